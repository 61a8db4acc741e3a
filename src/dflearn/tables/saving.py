"""One-file models: a zip that holds JSON, safetensors and a plain .npz. Nothing in it is code, and nothing is pickled.

A module of a user's own is told by its import path; it is imported and run only where who loads the file says so.

metadata.json          format, version, class, parameters, versions of the packages, fingerprint of the program
weights.safetensors    the model's weights
program.npz            the program's sparse matrices and vectors
"""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data.scale import Scale
from dflearn.errors import DataError, MissingExtraError, OptionError, ProgramError
from dflearn.files import replacing
from dflearn.models import Trees
from dflearn.problems import Problem, problem_of_origin
from dflearn.program import Program, Quadratic
from dflearn.reading import COLUMNS, UNREADABLE, check_dense, check_sparse, check_zip, limit, read_npz
from dflearn.solvers.base import Solver
from dflearn.solvers.task import Decided, DecisionTask
from dflearn.tables.choices import make_loss
from dflearn.tables.modules import as_saved, from_saved
from dflearn.training import History

if TYPE_CHECKING:
    from dflearn.tables.regressor import DecisionFocusedRegressor


FORMAT, VERSION = "dflearn model", 1  # the marker of a saved file, and the newest version that this code reads
METADATA, WEIGHTS, PROGRAM = "metadata.json", "weights.safetensors", "program.npz"
PACKAGES = ("dflearn", "torch", "numpy", "scipy", "highspy")


class Saved(NamedTuple):
    """What a file holds."""

    metadata: dict[str, Any]
    weights: dict[str, Tensor]
    program: Program


def write(
    path: str | os.PathLike[str], metadata: Mapping[str, Any], weights: Mapping[str, Tensor], program: Program
) -> None:
    """Write one file, whole or not at all; the same content gives the same bytes.

    `metadata` holds what JSON can hold; format, version, package versions and the program's fingerprint are added.
    """
    save = _safetensors().save
    try:
        check_weights(weights)
    except DataError as error:
        raise DataError(f"the model is not saved: {error}") from error
    content = {
        "format": FORMAT,
        "version": VERSION,
        **metadata,
        "packages": {name: version(name) for name in PACKAGES},
        "program": program.fingerprint,
    }
    parts = {
        METADATA: json.dumps(content, indent=2).encode(),
        WEIGHTS: save({name: value.detach().cpu().contiguous() for name, value in weights.items()}),
        PROGRAM: _pack(program),
    }
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(name), part)  # ZipInfo's own date: the same each time


def read(path: str | os.PathLike[str]) -> Saved:
    """Read what `write` wrote. A file that is foreign, damaged, cut short or of a newer version is refused."""
    load = _safetensors().load
    with open(path, "rb") as file:
        try:
            parts = _parts(file)
            metadata = json.loads(parts[METADATA])
            if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
                raise DataError(f"its marker {FORMAT!r} is missing")
            if not isinstance(metadata.get("packages"), dict):
                raise DataError("it does not say which packages wrote it")
            if not metadata["version"] <= VERSION:
                raise DataError(f"its version is {metadata['version']}, newer than {VERSION}: update dflearn")
            program = _unpack(parts[PROGRAM], columns=max(COLUMNS, len(parts[WEIGHTS])))
            if program.fingerprint != metadata["program"]:
                raise DataError("its program is not the one that it was saved with")
            weights = load(parts[WEIGHTS])
            check_weights(weights)
            return Saved(metadata, weights, program)
        except (*UNREADABLE, _safetensors_error()) as error:
            raise DataError(f"{path} is not a model that can be read here: {error}") from error


def check_weights(weights: Mapping[str, Tensor]) -> None:
    """An error where a weight is no number. (A constant feature has the standard deviation ∞, so that it becomes zero.)"""
    for name, value in weights.items():
        bad = value.isnan() if name.endswith("deviation") else ~value.isfinite()
        if bool(bad.any()):
            raise DataError(
                f"{int(bad.sum())} of the {value.numel()} numbers in its weights {name!r} are NaN or infinite, so it predicts "
                "nothing: train the model again, with a smaller lr"
            )


def other_versions(metadata: Mapping[str, Any]) -> list[str]:
    """What to say where dflearn or torch was of another major or minor version when the file was written."""
    told = []
    for name in ("dflearn", "torch"):
        then, now = str(metadata.get("packages", {}).get(name, "")), version(name)
        if then and then.split(".")[:2] != now.split(".")[:2]:
            told.append(
                f"the model was saved with {name} {then}, and this is {now}: predictions may differ in their last digits; "
                "compare some before you rely on it"
            )
    return told


def _parts(file: Any) -> dict[str, bytes]:
    if not zipfile.is_zipfile(file):
        raise DataError("it is no zip file, or is cut short")
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        check_zip(archive, size)
        missing = {METADATA, WEIGHTS, PROGRAM} - set(archive.namelist())
        if missing:
            raise DataError(f"it lacks {', '.join(sorted(missing))}")
        if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
            raise DataError("its parts are compressed, which `save` never does: save the model anew")
        return {name: archive.read(name) for name in (METADATA, WEIGHTS, PROGRAM)}  # read checks each checksum


# -- what a file can hold -------------------------------------------------------------------------------------------


def plain(name: str, value: Any) -> Any:
    """The value as JSON holds it; an error where it is an object."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, (list, tuple)):
        return [plain(name, one) for one in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, nn.Module) and name == "model":
        return as_saved(value)
    raise DataError(
        f"{name} is a {type(value).__name__}, and a file holds names and numbers only: predictions do not depend on it: name "
        f"one with set_params({name}=…), then save"
    )


RECOGNIZED, GENERAL = "recognized", "HiGHS"  # how a file names the solver of its program


def solver_name(held: Problem | Program, solver: Solver) -> str | None:
    """How a file names this solver: the one that suits the program or problem, or HiGHS; `None` where it is another."""
    if _same(DecisionTask.of(held).solver, solver):
        return RECOGNIZED
    return GENERAL if isinstance(held, Program) and _same(_general(held), solver) else None


def solver_named(metadata: Mapping[str, Any], task: DecisionTask) -> Solver:
    """What `solver_name` named."""
    name = metadata["solver"]
    if name not in (RECOGNIZED, GENERAL):
        raise DataError(f"its solver {name!r} is none that is known here")
    return task.solver if name == RECOGNIZED or task.program is None else _general(task.program)


def _general(program: Program) -> Solver:
    from dflearn.solvers.highs import HiGHS

    return HiGHS(program)


def _same(a: Solver, b: Solver) -> bool:
    """Whether two solvers give the same answers."""
    fingerprints = {None if one.program is None else one.program.fingerprint for one in (a, b)}
    return a.identity == b.identity and len(fingerprints) == 1


def origin_of(problem: Decided | None) -> dict[str, Any]:
    """How to make the problem again: by its name and configuration, or, empty, from the program alone."""
    if not isinstance(problem, Problem):
        return {}
    try:
        known = problem_of_origin(problem.origin) == problem
    except (DataError, OptionError, ProgramError):
        known = False
    if not known:
        raise DataError(f"{problem!r} is a problem of your own, which a file cannot hold: fit with its program instead")
    return problem.origin


def problem_from(origin: dict[str, Any], program: Program) -> Problem | Program:
    """What `origin_of` says, made again."""
    if not origin:
        return program
    problem = problem_of_origin(origin)
    if problem.program.fingerprint != program.fingerprint:
        raise DataError(f"{problem.name} is another program here than where the file was written")
    return problem


# -- programs -------------------------------------------------------------------------------------------------------

_MATRICES = ("A", "G", "S", "B", "H", "Q", "Q.factor")
_VECTORS = ("b", "h", "lower", "upper", "d", "integer")
_NAMES = ("variable_names", "cost_names")


def _pack(program: Program) -> bytes:
    """A program as the bytes of an .npz file."""
    arrays: dict[str, np.ndarray] = {name: getattr(program, name) for name in _VECTORS}
    further = {} if program.Q is None else program.Q.parts()  # Q as it was given, whole or as a factor
    arrays |= {"Q.diagonal": further["Q.diagonal"]} if "Q.diagonal" in further else {}
    arrays |= {} if program.recourse is None else {"recourse": program.recourse}
    for name in _MATRICES:
        matrix = further.get(name) if name.startswith("Q") else getattr(program, name)
        if matrix is not None:
            for part in ("data", "indices", "indptr", "shape"):
                arrays[f"{name}.{part}"] = np.asarray(getattr(matrix, part))
    arrays |= {name: np.array(names) for name in _NAMES if (names := getattr(program, name)) is not None}
    if program.constraint_names is not None:
        arrays["constraint_names"] = np.array(json.dumps(program.constraint_names))
    arrays |= {"sense": np.array(program.sense), "name": np.array(program.name)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    if sum(array.nbytes for array in arrays.values()) > limit(len(buffer.getvalue())) // 2:  # readers might refuse it
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _unpack(packed: bytes, columns: int = COLUMNS) -> Program:
    """What `_pack` packed. Every array is checked before scipy, which trusts its caller, gets it."""
    arrays = read_npz(io.BytesIO(packed))
    d = check_dense(arrays, "d", "numbers", (None,))
    n = len(d)
    parts: dict[str, Any] = {"d": d, "integer": check_dense(arrays, "integer", "booleans", (n,))}
    parts |= {name: check_dense(arrays, name, "numbers", (None,)) for name in ("b", "h")}
    parts |= {name: check_dense(arrays, name, "numbers", (n,), finite=False) for name in ("lower", "upper")}
    parts |= {name: check_dense(arrays, name, "text", (None,)).tolist() for name in _NAMES if name in arrays}
    sense, name = (str(check_dense(arrays, one, "text", ())) for one in ("sense", "name"))
    if "constraint_names" in arrays:
        parts["constraint_names"] = json.loads(str(check_dense(arrays, "constraint_names", "text", ())))
    for one in _MATRICES:
        if f"{one}.data" in arrays:
            parts[one] = check_sparse(arrays, one, columns=columns)
    if "Q.diagonal" in arrays:
        parts["Q"] = Quadratic(parts.pop("Q.factor"), check_dense(arrays, "Q.diagonal", "numbers", (n,)))
    if "recourse" in arrays:
        parts["recourse"] = check_dense(arrays, "recourse", "booleans", (n,))
    return Program(**parts, n=n, sense=sense, name=name)  # type: ignore[arg-type]


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise MissingExtraError("models are saved with safetensors: pip install 'dflearn[sklearn]'") from error
    return safetensors.torch


def _safetensors_error() -> type[Exception]:
    import safetensors

    return safetensors.SafetensorError


# -- estimators --------------------------------------------------------------------------------------------------------


Regressor = TypeVar("Regressor", bound="DecisionFocusedRegressor")


def save(
    regressor: DecisionFocusedRegressor, path: str | os.PathLike[str], record: Mapping[str, Any] | None = None
) -> None:
    held = regressor.problem.program if isinstance(regressor.problem, Solver) else regressor.problem
    program = held.program if isinstance(held, Problem) else held
    solver = solver_name(held, regressor.solver_) if isinstance(held, Problem | Program) else None
    if solver is None or not isinstance(program, Program):
        raise DataError(
            f"{regressor.solver_!r} cannot be saved, and decisions depend on it: fit with a Problem or a Program, "
            "or keep the weights alone, with safetensors.torch.save_file(regressor.model_.state_dict(), path)"
        )
    parameters = {name: value for name, value in regressor.get_params(deep=False).items() if name != "problem"}
    metadata = {
        "class": type(regressor).__name__,
        "parameters": {name: plain(name, value) for name, value in parameters.items()},
        "origin": origin_of(regressor.problem),
        "solver": solver,
        "features": list(regressor._shape),
        "feature_names": list(map(str, getattr(regressor, "feature_names_in_", []))),
        "one_dimensional": regressor._one_dimensional,
        "with_instances": regressor._with_instances,
        "record": dict(record or {}),
        "scale": asdict(regressor.scale_),
        "history": asdict(regressor.history_),
    }
    write(path, metadata, regressor.model_.state_dict(), program)


def load(kind: type[Regressor], path: str | os.PathLike[str], *, trust: bool) -> Regressor:
    metadata, weights, program = read(path)
    for remark in other_versions(metadata):
        warnings.warn(f"{path}: {remark}", stacklevel=3)
    try:
        if metadata["class"] != kind.__name__:
            raise DataError(f"it holds a {metadata['class']}, not a {kind.__name__}")
        problem = problem_from(metadata["origin"], program)
        parameters = dict(metadata["parameters"])
        if isinstance(parameters.get("model"), dict):
            parameters["model"] = from_saved(parameters["model"], trust=trust)
        return _filled(kind(problem, **parameters), metadata, weights)
    except UNREADABLE as error:
        raise DataError(f"{path} is not a model that can be read here: {error}") from error


def _filled(empty: Regressor, metadata: dict[str, Any], weights: dict[str, Tensor]) -> Regressor:
    """An estimator with the parameters of the file → the fitted one."""
    empty.hidden = tuple(empty.hidden)
    empty._shape, empty._one_dimensional = tuple(metadata["features"]), metadata["one_dimensional"]
    empty._with_instances, empty.record_ = metadata["with_instances"], metadata["record"]
    empty.n_features_in_ = empty._shape[0]
    if metadata["feature_names"]:
        empty.feature_names_in_ = np.array(metadata["feature_names"], dtype=object)
    empty.scale_, empty.history_ = Scale(**metadata["scale"]), History(**metadata["history"])
    if not all(0 < number < np.inf for number in metadata["scale"].values()):
        raise DataError(f"its scales are {metadata['scale']}, and positive numbers are wanted")
    task = empty._task(None)
    empty.solver_ = solver_named(metadata, task)
    empty.model_ = _model(empty, task.objective.p, weights)
    empty.loss_ = make_loss(
        empty.loss, empty.layer, task, empty.scale_, mu=empty.mu, sigma=empty.sigma, step=empty.step
    )
    return empty


def _model(empty: DecisionFocusedRegressor, p: int, weights: dict[str, Tensor]) -> nn.Module:
    """The model with its weights. One that would be larger than the weights in the file is refused before it takes memory."""
    if len(empty.hidden) > len(weights):
        raise DataError(f"it names {len(empty.hidden)} hidden layers, and has {len(weights)} weights")
    if isinstance(empty.model, str):
        with torch.device("meta"):
            wanted = sum(part.numel() for part in empty._build(p, 1.0, seed=0).state_dict().values())
        held = sum(part.numel() for part in weights.values())
        if wanted > held:
            raise DataError(f"its model has {wanted} weights, and the file {held}")
    model = empty._build(p, empty.scale_.costs, seed=0)
    if any(weights[name].dtype != part.dtype for name, part in model.state_dict().items() if name in weights):
        raise DataError("its weights are of another type than those of its model")
    model.load_state_dict(weights)
    for part in model.modules():
        if isinstance(part, Trees):
            part.check(empty._shape[-1])
    return model
