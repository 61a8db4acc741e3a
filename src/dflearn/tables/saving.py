"""One-file models: a zip that holds JSON, safetensors and a plain .npz. Nothing in it is code, and nothing is pickled.

metadata.json          format, version, class, parameters, versions of the packages, fingerprint of the program
weights.safetensors    the model's weights
program.npz            the program's sparse matrices and vectors
"""

from __future__ import annotations

import copy
import importlib
import io
import json
import os
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data.scale import Scale
from dflearn.errors import DataError, MissingExtraError, OptionError, ShapeError
from dflearn.files import replacing
from dflearn.models import MLP, Correction, Linear, OnForecast, Positive, Scaled, Standardize
from dflearn.program import Program, Quadratic
from dflearn.reading import COLUMNS, UNREADABLE, check_dense, check_sparse, check_zip, limit, read_npz
from dflearn.solvers.base import Solver
from dflearn.solvers.task import DecisionTask
from dflearn.tables.forecasters import Combination
from dflearn.training import History

if TYPE_CHECKING:
    from dflearn.tables.regressor import DecisionFocusedRegressor


FORMAT, VERSION = "dflearn model", 1  # the marker of a saved file, and the newest version that this code reads
METADATA, WEIGHTS, PROGRAM = "metadata.json", "weights.safetensors", "program.npz"
PACKAGES = ("dflearn", "torch", "numpy", "scipy", "highspy")
ALONE = "keep the weights alone, with safetensors.torch.save_file(regressor.model_.state_dict(), path)"


class Saved(NamedTuple):
    metadata: dict[str, Any]
    weights: dict[str, Tensor]
    program: Program


def write(
    path: str | os.PathLike[str], metadata: Mapping[str, Any], weights: Mapping[str, Tensor], program: Program
) -> None:
    """Write one file, whole or not at all; the same content gives the same bytes. `metadata` is plain JSON values."""
    save = _safetensors().torch.save
    try:
        check_weights(weights)
    except DataError as error:
        raise DataError(f"the model is not saved: {error}") from error
    content = {"format": FORMAT, "version": VERSION, **metadata}
    content |= {"packages": {name: version(name) for name in PACKAGES}, "program": program.fingerprint}
    parts = {
        METADATA: json.dumps(content, indent=2).encode(),
        WEIGHTS: save({name: value.detach().cpu().contiguous() for name, value in weights.items()}),
        PROGRAM: _pack(program),
    }
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(name), part)  # ZipInfo's own date: the same each time


def read(path: str | os.PathLike[str]) -> Saved:
    """Read a file of `write`. One that is foreign, damaged, cut short or of a newer version is refused."""
    safetensors = _safetensors()
    with open(path, "rb") as file:
        try:
            if not zipfile.is_zipfile(file):
                raise DataError("it is no zip file, or is cut short")
            size = file.seek(0, os.SEEK_END)
            with zipfile.ZipFile(file) as archive:
                check_zip(archive, size)
                if missing := {METADATA, WEIGHTS, PROGRAM} - set(archive.namelist()):
                    raise DataError(f"it lacks {', '.join(sorted(missing))}")
                if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                    raise DataError("its parts are compressed, which `save` never does: save the model anew")
                parts = {name: archive.read(name) for name in (METADATA, WEIGHTS, PROGRAM)}  # read checks each checksum
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
            weights = safetensors.torch.load(parts[WEIGHTS])
            check_weights(weights)
            return Saved(metadata, weights, program)
        except (*UNREADABLE, safetensors.SafetensorError) as error:
            raise DataError(f"{path} is not a model that can be read here: {error}") from error


def check_weights(weights: Mapping[str, Tensor]) -> None:
    """An error where a weight is no number. (A constant feature has the standard deviation ∞, so that it becomes zero.)"""
    for name, value in weights.items():
        if bad := int((value.isnan() if name.endswith("deviation") else ~value.isfinite()).sum()):
            numbers = f"{bad} of the {value.numel()} numbers in its weights {name!r} are NaN or infinite"
            raise DataError(f"{numbers}, so it predicts nothing: train the model again, with a smaller lr")


def other_versions(metadata: Mapping[str, Any]) -> list[str]:
    """A warning for each of dflearn and torch that was of another major or minor version when the file was written."""
    said, remedy = [], "predictions may differ in their last digits; compare some before you rely on it"
    for name in ("dflearn", "torch"):
        then, now = str(metadata["packages"].get(name, "")), version(name)
        if then and then.split(".")[:2] != now.split(".")[:2]:
            said.append(f"the model was saved with {name} {then}, and this is {now}: {remedy}")
    return said


# -- what a file can hold -------------------------------------------------------------------------------------------


def plain(name: str, value: Any) -> Any:
    """The value as JSON holds it; an error where it is an object."""
    value = value.item() if isinstance(value, np.generic) else value
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(value, (list, tuple)):
        return [plain(name, one) for one in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Combination):
        return {"combination": value.plan()}
    if isinstance(value, Imported):
        return {"import": value.path, "arguments": value.arguments}
    remedy = f"predictions do not depend on it: name one with set_params({name}=…), then save"
    if isinstance(value, nn.Module) and name == "model":
        remedy = "build it by its import path, model=dflearn.tables.Imported('package.module:Class', …its arguments…)"
        remedy += f", or use model='linear' or 'mlp', or {ALONE}, and build the module anew"
    raise DataError(f"{name} is a {type(value).__name__}, and a file holds names and numbers only: {remedy}")


def _solvers(program: Program | None) -> dict[str, Solver]:
    """The solvers that a file can name: the one that suits the program, and HiGHS."""
    from dflearn.solvers.highs import HiGHS

    return {} if program is None else {"recognized": DecisionTask.of(program).solver, "HiGHS": HiGHS(program)}


_PARTS = ("A", "G", "S", "B", "H")
_MATRICES = (*_PARTS, "Q", "Q.factor")
_VECTORS = ("b", "h", "lower", "upper", "d", "integer")
_NAMES = ("variable_names", "cost_names")


def _pack(program: Program) -> bytes:
    of = {name: getattr(program, name) for name in (*_PARTS, *_VECTORS, *_NAMES, "recourse", "sense", "name")}
    of |= {} if program.Q is None else program.Q.parts()  # Q as it was given, whole or as a factor
    of["constraint_names"] = None if program.constraint_names is None else json.dumps(program.constraint_names)
    arrays: dict[str, np.ndarray] = {}
    for name, part in of.items():
        if name in _MATRICES and part is not None:
            arrays |= {f"{name}.{x}": np.asarray(getattr(part, x)) for x in ("data", "indices", "indptr", "shape")}
        elif part is not None:
            arrays[name] = np.array(part)
    for write in (np.savez_compressed, np.savez):
        buffer = io.BytesIO()
        write(buffer, allow_pickle=False, **arrays)
        if sum(array.nbytes for array in arrays.values()) <= limit(len(buffer.getvalue())) // 2:
            break  # otherwise readers might refuse it
    return buffer.getvalue()


def _unpack(packed: bytes, columns: int = COLUMNS) -> Program:
    """What `_pack` packed. Every array is checked before scipy, which trusts its caller, gets it."""
    arrays = read_npz(io.BytesIO(packed))
    n = len(check_dense(arrays, "d", "numbers", (None,)))
    parts: dict[str, Any] = {name: check_dense(arrays, name, "numbers", (None,)) for name in ("b", "h", "d")}
    parts |= {name: check_dense(arrays, name, "numbers", (n,), finite=False) for name in ("lower", "upper")}
    parts |= {name: check_dense(arrays, name, "booleans", (n,)) for name in ("integer", "recourse") if name in arrays}
    parts |= {name: check_dense(arrays, name, "text", (None,)).tolist() for name in _NAMES if name in arrays}
    parts |= {name: str(check_dense(arrays, name, "text", ())) for name in ("sense", "name")}
    if "constraint_names" in arrays:
        parts["constraint_names"] = json.loads(str(check_dense(arrays, "constraint_names", "text", ())))
    parts |= {name: check_sparse(arrays, name, columns=columns) for name in _MATRICES if f"{name}.data" in arrays}
    if "Q.diagonal" in arrays:
        parts["Q"] = Quadratic(parts.pop("Q.factor"), check_dense(arrays, "Q.diagonal", "numbers", (n,)))
    return Program(**parts, n=n)


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise MissingExtraError("models are saved with safetensors: pip install 'dflearn[sklearn]'") from error
    return safetensors


# -- estimators --------------------------------------------------------------------------------------------------------


Regressor = TypeVar("Regressor", bound="DecisionFocusedRegressor")


def save(regressor: DecisionFocusedRegressor, path: str | os.PathLike[str], record: Mapping[str, Any] | None) -> None:
    program, decides = regressor._task(None).program, regressor.solver_
    known = decides.program is not None and program is not None and decides.program.fingerprint == program.fingerprint
    names = [name for name, one in _solvers(program).items() if known and one.identity == decides.identity]
    if program is None or not names:
        remedy = f"fit with a Problem or a Program, or {ALONE}"
        raise DataError(f"{decides!r} cannot be saved, and decisions depend on it: {remedy}")
    parameters = {name: value for name, value in regressor.get_params(deep=False).items() if name != "problem"}
    metadata = {
        "class": type(regressor).__name__,
        "parameters": {name: plain(name, value) for name, value in parameters.items()},
        "solver": names[0],
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
        parameters = dict(metadata["parameters"])
        if isinstance(parameters.get("model"), dict):
            parameters["model"] = from_saved(parameters["model"], trust=trust)
        empty = kind(program, **parameters)
        empty.hidden, empty.record_ = tuple(empty.hidden), metadata["record"]
        if metadata["feature_names"]:
            empty.feature_names_in_ = np.array(metadata["feature_names"], dtype=object)
        if not all(0 < number < np.inf for number in metadata["scale"].values()):
            raise DataError(f"its scales are {metadata['scale']}, and positive numbers are wanted")
        shape, flat, sides = (metadata[name] for name in ("features", "one_dimensional", "with_instances"))
        task = empty._fill(tuple(shape), flat, sides, Scale(**metadata["scale"]), History(**metadata["history"]))
        if (solver := _solvers(program).get(metadata["solver"])) is None:
            raise DataError(f"its solver {metadata['solver']!r} is none that is known here")
        empty.solver_, empty.model_ = solver, _model(empty, task.objective.p, weights)
        return empty
    except UNREADABLE as error:
        raise DataError(f"{path} is not a model that can be read here: {error}") from error


def _model(empty: DecisionFocusedRegressor, p: int, weights: dict[str, Tensor]) -> nn.Module:
    """The model with its weights. One that is larger than the weights in the file is refused before it takes memory."""
    if len(empty.hidden) > len(weights):
        raise DataError(f"it names {len(empty.hidden)} hidden layers, and has {len(weights)} weights")
    parameters = empty.get_params(deep=False)
    if parameters["start"] == "auto":
        parameters["start"] = "ridge" if "correction.weight" in weights else "zero"
    of = parameters, empty._shape, p, empty.scale_.costs
    if isinstance(empty.model, str):
        with torch.device("meta"):
            wanted = sum(part.numel() for part in build(*of, seed=0).state_dict().values())
        if wanted > (held := sum(part.numel() for part in weights.values())):
            raise DataError(f"its model has {wanted} weights, and the file {held}")
    model = build(*of, seed=0)
    if any(weights[name].dtype != part.dtype for name, part in model.state_dict().items() if name in weights):
        raise DataError("its weights are of another type than those of its model")
    model.load_state_dict(weights)
    if isinstance(model, Combination):
        model.check()
    return model


# -- modules: by name, or of a user's own by their import path, since a model file holds no code -------------------------


def build(of: Mapping[str, Any], shape: tuple[int, ...], p: int, scale: float, seed: int) -> nn.Module:
    """The untrained model in float64 of an estimator with these parameters: features of `shape` → p costs, in units of `scale`."""
    k, model, after = shape[-1], of["model"], cast(nn.Module | None, Positive(scale) if of["positive"] else None)
    per_cost = len(shape) == 2  # one map that all costs share
    outputs = 1 if per_cost else p
    if of["start"] != "zero":
        after = nn.Sequential(after or nn.Identity(), nn.Flatten(-2)) if per_cost else after
        forecast = nn.Sequential(Standardize(k), Linear(k, outputs).double())
        return OnForecast(forecast, Correction(Standardize(k + outputs), torch.ones(outputs).double(), after=after))
    if isinstance(model, nn.Module):
        built = copy.deepcopy(model)
    elif model not in ("linear", "mlp"):
        raise OptionError(f"model is 'linear', 'mlp' or a torch module; got {model!r}")
    elif len(shape) > 2 or (per_cost and shape[0] != p):
        wanted, came = f"(n_samples, {p}, k)" if per_cost else "(n_samples, k)", ", ".join(map(str, shape))
        raise ShapeError(f"model={model!r} wants features of shape {wanted}; got (n_samples, {came})")
    else:
        net = MLP(k, outputs, hidden=of["hidden"], seed=seed) if model == "mlp" else Linear(k, outputs, seed=seed)
        built = Scaled(nn.Sequential(net, nn.Flatten(-2)) if per_cost else net, scale)
    return (built if after is None else nn.Sequential(built, after)).double()


class Imported(nn.Module):
    """A module that is built by importing and calling: `Imported("nets:PriceNet", hidden=32)`.

    So it can be saved with an estimator: the file holds the import path, the arguments and the weights.

    Args:
        path: "module:name" of a class or function that returns a module, importable wherever the file is loaded.
        arguments: its arguments, as JSON holds them.

    Examples:
        >>> from dflearn.tables import Imported
        >>> Imported("dflearn.models:Linear", features=10, costs=12)(data.features).shape
        torch.Size([40, 12])
    """

    def __init__(self, path: str, **arguments: Any) -> None:
        super().__init__()
        try:
            plain = json.loads(json.dumps(arguments, allow_nan=False))
        except (TypeError, ValueError) as error:
            kept = "are to be kept in a file, as JSON holds them"
            raise OptionError(f"the arguments of {path} {kept}: {error}") from error
        name, colon, rest = path.partition(":")
        if not (name and colon and rest):
            raise OptionError(f"a module is imported by 'package.module:name', got {path!r}")
        try:
            made: Any = attrgetter(rest)(importlib.import_module(name))
        except (ImportError, AttributeError) as error:
            remedy = "install what it is in, or add its folder to PYTHONPATH"
            raise OptionError(f"{path!r} cannot be imported here ({error}): {remedy}") from error
        if not callable(made):
            raise OptionError(f"{path!r} is a {type(made).__name__}, and something to call is wanted")
        if not isinstance(built := made(**arguments), nn.Module):
            raise OptionError(f"{path} gives a {type(built).__name__}, and a torch module is wanted")
        self.path, self.arguments, self.module = path, plain, built

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)


def from_saved(held: Mapping[str, Any], *, trust: bool) -> nn.Module:
    """The module that a file names, once its reader has said that the code may run."""
    if "combination" in held:
        return Combination.of(held["combination"], trust=trust)
    path, arguments = str(held["import"]), dict(held["arguments"])
    if not trust:
        runs = "loading it runs that code, with arguments from the file. If you trust both, load it with trust=True"
        raise DataError(f"its model is built by code that is not dflearn's, {path}: {runs}")
    warnings.warn(f"{path} is imported and run, as the model file asks and trust=True allows", stacklevel=5)
    return Imported(path, **arguments)
