"""`diagnose`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from dflearn.data import Data, DecisionDataset, as_dataset
from dflearn.data.labels import label
from dflearn.doctor import measures
from dflearn.doctor.diagnosis import Diagnosis, Finding
from dflearn.doctor.findings import failed, findings
from dflearn.errors import DataError, SolverError
from dflearn.evaluation import compare, evaluate
from dflearn.losses.base import Loss
from dflearn.models import predict
from dflearn.randomness import Randomness, generator_of
from dflearn.solvers.task import Decided, DecisionTask
from dflearn.training.arguments import AnyLoss, as_loss, check_model


def diagnose(
    model: nn.Module,
    loss: AnyLoss,
    data: Data,
    *,
    problem: Decided | None = None,
    trained_on: Data | None = None,
    limit: int = 200,
    seed: Randomness = 0,
) -> Diagnosis:
    """Look at what the loss tells the model on the first `limit` instances, and say what to change.

    Args:
        model: features → costs, at any stage of its training; it is not changed.
        loss: what it is (to be) trained with. Of an estimator: `regressor.model_` and `regressor.loss_`.
        data: features with costs, decisions or both. Missing decisions are computed where `problem` is given. The regret tells
            how a trained model does on new instances only if these are ones that it was not trained on.
        problem: what is decided, as of `fit`: decisions are judged by it. Without it nothing is said about regret and ties;
            where it knows no program, nothing about ties.
        trained_on: what the model was trained on, none of it among `data`: least squares is fitted to the same. Without it, each
            instance is predicted by a map that was fitted to the others of `data`.
        seed: of random directions, or their generator.
    """
    check_model(model)
    loss, data = as_loss(loss), as_dataset(data)
    if not len(data):
        raise DataError("there is nothing to diagnose: the data are empty")
    everything, data = data, data.subset(slice(0, limit)).to(torch.float64)
    predicted = predict(model, data.features).cpu().double()
    generator = generator_of(seed)
    task = None if problem is None else DecisionTask.of(problem, predicted.shape[-1])
    known = None if trained_on is None else as_dataset(trained_on, "trained_on")
    found: dict[str, Any] = {"setting": _setting(loss, data, known), "gradients": np.zeros(0)}
    found["trained_on"] = None if known is None else len(known)
    noted: list[Finding] = []
    try:
        if task is not None and data.decisions is None and data.costs is not None:
            data = label(data, task, progress=False)
        output, gradient = measures.gradient(loss, predicted, data.batch())
        found["gradients"] = measures.pull(output, gradient, predicted)
        found |= {} if output.solution is None else measures.solving(output.solution)
        found["slopes"] = measures.confirmed_slopes(loss, predicted, data, generator)
    except SolverError as error:
        output = None
        noted.append(failed(error))
    judged = None
    if task is not None and not noted:
        try:
            if task.program is not None:
                found["ties"] = measures.ties(task.program, predicted, data, generator)
            if data.costs is not None:
                judged = evaluate(predicted, task, data, progress=False)
                found |= measures.regrets(judged)
                fitted = measures.least_squares(everything, len(data), known)
                if fitted is not None:
                    two_stage = evaluate(fitted, task, data, progress=False, floor=False)
                    found["two_stage"] = two_stage.ratio_of_sums
                    found["behind"] = compare(judged, two_stage).absolute_regret.low > 0
        except (SolverError, DataError) as error:
            noted.append(failed(error))
    if data.costs is not None:
        found["size"], found["spread"] = measures.sizes(predicted, data.costs)
    found["wrong"] = measures.wrong(judged, output, data)
    diagnosis = Diagnosis(**found)
    diagnosis.findings.extend(findings(diagnosis, loss, data, noted))
    return diagnosis


def _setting(loss: Loss, data: DecisionDataset, known: DecisionDataset | None) -> str:
    through = "" if loss.layer is None else f" through {type(loss.layer).__name__}"
    new = "" if known is None else " that were not trained on"
    return f"{type(loss).__name__}{through} on {len(data)} instances{new}"
