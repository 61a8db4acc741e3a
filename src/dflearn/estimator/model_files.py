"""A fitted estimator as one file, and back: what `DecisionFocusedRegressor.save` and `load` do. `saving` has the format."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data.scale import Scale
from dflearn.errors import DataError
from dflearn.estimator import saving
from dflearn.estimator.choices import make_loss
from dflearn.estimator.modules import from_saved
from dflearn.models import Trees
from dflearn.problems import Problem
from dflearn.program import Program
from dflearn.reading import UNREADABLE
from dflearn.solvers.base import Solver
from dflearn.training import History

if TYPE_CHECKING:
    from dflearn.estimator.regressor import DecisionFocusedRegressor

Regressor = TypeVar("Regressor", bound="DecisionFocusedRegressor")


def save(
    regressor: DecisionFocusedRegressor, path: str | os.PathLike[str], record: Mapping[str, Any] | None = None
) -> None:
    held = regressor.problem.program if isinstance(regressor.problem, Solver) else regressor.problem
    program = held.program if isinstance(held, Problem) else held
    solver = saving.solver_name(held, regressor.solver_) if isinstance(held, Problem | Program) else None
    if solver is None or not isinstance(program, Program):
        raise DataError(
            f"{regressor.solver_!r} cannot be saved, and decisions depend on it: fit with a Problem or a Program, "
            "or keep the weights alone, with safetensors.torch.save_file(regressor.model_.state_dict(), path)"
        )
    parameters = {name: value for name, value in regressor.get_params(deep=False).items() if name != "problem"}
    metadata = {
        "class": type(regressor).__name__,
        "parameters": {name: saving.plain(name, value) for name, value in parameters.items()},
        "origin": saving.origin_of(regressor.problem),
        "solver": solver,
        "features": list(regressor._shape),
        "feature_names": list(map(str, getattr(regressor, "feature_names_in_", []))),
        "one_dimensional": regressor._one_dimensional,
        "with_instances": regressor._with_instances,
        "record": dict(record or {}),
        "scale": asdict(regressor.scale_),
        "history": asdict(regressor.history_),
    }
    saving.write(path, metadata, regressor.model_.state_dict(), program)


def load(kind: type[Regressor], path: str | os.PathLike[str], *, trust: bool) -> Regressor:
    metadata, weights, program = saving.read(path)
    for remark in saving.other_versions(metadata):
        warnings.warn(f"{path}: {remark}", stacklevel=3)
    try:
        if metadata["class"] != kind.__name__:
            raise DataError(f"it holds a {metadata['class']}, not a {kind.__name__}")
        problem = saving.problem_from(metadata["origin"], program)
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
    empty.solver_ = saving.solver_named(metadata, task)
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
