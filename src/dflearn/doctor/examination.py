"""`diagnose`, and what it measures. Everything is computed in float64, and nothing is changed: not a weight, not a draw of noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data import Batch, Data, DecisionDataset, as_dataset
from dflearn.data.labels import label
from dflearn.doctor.diagnosis import VANISHING, Diagnosis, Finding, failed, findings
from dflearn.errors import DataError, SolverError
from dflearn.evaluation import compare, evaluate
from dflearn.evaluation.pessimistic import furthest_optimal
from dflearn.evaluation.regret import EXACT, Evaluation
from dflearn.losses.base import Loss, LossOutput
from dflearn.models import predict
from dflearn.program import Program
from dflearn.randomness import Randomness, generator_of
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.task import Decided, DecisionTask
from dflearn.training.step import AnyLoss, as_loss, check_model


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
    """Examine the loss and its gradients on the first `limit` instances, and say what to change.

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

    Examples:
        >>> model, loss = dfl.models.Linear(10, 12), dfl.losses.Regret(dfl.Exact(problem.solver()))
        >>> dfl.diagnose(model, loss, data, problem=problem).findings[0].what
        '100% of the instances with a wrong decision have no gradient: Regret stands still on them.'
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
    through = "" if loss.layer is None else f" through {type(loss.layer).__name__}"
    new, seen = ("", None) if known is None else (" that were not trained on", len(known))
    setting = f"{type(loss).__name__}{through} on {len(data)} instances{new}"
    found: dict[str, Any] = {"setting": setting, "gradients": np.zeros(0), "trained_on": seen}
    noted: list[Finding] = []
    try:
        if task is not None and data.decisions is None and data.costs is not None:
            data = label(data, task, progress=False)
        output, slope = gradient(loss, predicted, data.batch())
        typical = float(output.value.detach().abs().mean()) or 1.0
        found["gradients"] = (slope.norm(dim=-1) * predicted.norm(dim=-1) / typical).numpy()
        if output.solution is not None and output.solution.residual is not None:
            found["residual"] = float(output.solution.residual.max())
        if output.solution is not None and output.solution.fallback is not None:
            found["fallbacks"] = float(output.solution.fallback.double().mean())
        found["slopes"] = confirmed_slopes(loss, predicted, data, generator)
    except SolverError as error:
        output = None
        noted.append(failed(error))
    judged = None
    if task is not None and not noted:
        try:
            if task.program is not None:
                found["ties"] = ties(task.program, predicted, data, generator)
            if data.costs is not None:
                judged = evaluate(predicted, task, data, progress=False)
                found |= {"regret": judged.ratio_of_sums, "better": float(judged.negative_regrets.mean())}
                if judged.floor_regrets is not None:
                    found["floor"] = judged.metrics["floor_ratio_of_sums"].value
                fitted = least_squares(everything, len(data), known)
                if fitted is not None:
                    two_stage = evaluate(fitted, task, data, progress=False, floor=False)
                    found["two_stage"] = two_stage.ratio_of_sums
                    found["behind"] = compare(judged, two_stage).absolute_regret.low > 0
        except (SolverError, DataError) as error:
            noted.append(failed(error))
    if data.costs is not None:
        ratio = lambda a, b: float(a.abs().mean() / b.abs().mean().clamp_min(1e-300))  # noqa: E731
        found["size"] = ratio(predicted, data.costs)
        found["spread"] = ratio(predicted - predicted.mean(0), data.costs - data.costs.mean(0))
    found["wrong"] = wrong(judged, output, data)
    diagnosis = Diagnosis(**found)
    diagnosis.findings.extend(findings(diagnosis, loss, data, noted))
    return diagnosis


TIED = 1e-2  # optimal decisions this far apart in a random direction, by the size of their terms there, differ
AGREES = 1e-3  # relative difference at which a slope confirms a gradient
STEPS = (1e-4, 1e-5, 1e-6)  # of finite differences, relative to the costs: a kink is unlikely within all three
SLOPES, TIES = 8, 16  # how many instances are tried
FOLDS = 5  # of the data, one of which least squares does not see


def _output_of(loss: Loss, predicted: Tensor, batch: Batch) -> LossOutput:
    """The loss, leaving no trace in what it holds (noise generators, pools)."""
    state = loss.state_dict()
    try:
        return loss.output(predicted, batch)
    finally:
        loss.load_state_dict(state)


def gradient(loss: Loss, predicted: Tensor, batch: Batch) -> tuple[LossOutput, Tensor]:
    """The loss and its gradient with respect to the predicted costs, `(count, p)`."""
    leaf = predicted.clone().requires_grad_()
    output = _output_of(loss, leaf, batch)
    if not output.value.requires_grad:
        return output, torch.zeros_like(predicted)
    return output, torch.autograd.grad(output.value.sum(), leaf)[0]


def confirmed_slopes(
    loss: Loss, predicted: Tensor, data: DecisionDataset, generator: torch.Generator
) -> tuple[int, int]:
    """How many of the gradients agree with (L(ŷ + h v) − L(ŷ − h v)) / 2h in a random direction v, for some step h."""
    rows = _spread(len(data), SLOPES)
    batch, at = data.batch(rows), predicted[rows]
    _, slope = gradient(loss, at, batch)  # of these alone, so that noise, where there is any, is the same below
    direction = torch.randn(at.shape, generator=generator, dtype=at.dtype)
    direction *= predicted.abs().mean().clamp_min(1e-9) / direction.norm(dim=-1, keepdim=True)
    claimed = (slope * direction).sum(-1)
    least = VANISHING * (slope.norm(dim=-1).max() * direction.norm(dim=-1)).clamp_min(1e-12)
    confirmed = torch.zeros(len(rows), dtype=torch.bool)
    with torch.no_grad():
        for step in STEPS:
            ahead, behind = (_output_of(loss, at + sign * step * direction, batch).value for sign in (1, -1))
            measured = (ahead - behind) / (2 * step)
            size = torch.maximum(torch.maximum(measured.abs(), claimed.abs()), least)
            confirmed |= (measured - claimed).abs() <= AGREES * size
    return int(confirmed.sum()), len(rows)


def _spread(count: int, wanted: int) -> Tensor:
    return torch.linspace(0, count - 1, min(wanted, count)).long().unique()


def least_squares(data: DecisionDataset, count: int, trained_on: DecisionDataset | None = None) -> Tensor | None:
    """The costs that two-stage learning predicts for the first `count` instances, each by a map that did not see it.

    A linear map of least squared error, fitted to `trained_on`; without it, to four fifths of the data and applied to the fifth
    left out, five times. One map for all costs where features are per cost. `None` where there are too few instances to fit one.
    """
    x, y = data.features.double(), data.batch().require("costs").double()
    if x.ndim not in (2, 3):
        return None
    if trained_on is not None:
        return _fitted(trained_on.features.double(), trained_on.batch().require("costs").double(), x[:count])
    fold, fitted = torch.arange(len(x)) % FOLDS, torch.empty_like(y)
    for left_out in range(min(FOLDS, count)):
        predicted = _fitted(x[fold != left_out], y[fold != left_out], x[fold == left_out])
        if predicted is None:
            return None
        fitted[fold == left_out] = predicted
    return fitted[:count]


def _fitted(x: Tensor, y: Tensor, new: Tensor) -> Tensor | None:
    """Costs of new instances by least squares on others, with an intercept; `None` where these are too few."""
    x, new = (torch.cat([part, torch.ones_like(part[..., :1])], -1) for part in (x, new))
    seen, costs = (x, y) if x.ndim == 2 else (x.flatten(0, 1), y.reshape(-1, 1))
    if len(seen) < 2 * seen.shape[1]:
        return None
    return (new @ torch.linalg.lstsq(seen, costs, driver="gelsd").solution).reshape(len(new), -1)


def ties(program: Program, predicted: Tensor, data: DecisionDataset, generator: torch.Generator) -> float:
    """Share of instances for which another optimal decision goes further in a random direction of costs, or opposite to it.

    Further: by more than `TIED` of Σ_j |v_j| max(|w_j|, |w'_j|), v = S (a random y), w the solver's decision, w' the furthest that
    is optimal too. So sizes do not matter, and what no predicted cost can tell apart is no tie.
    """
    rows = _spread(len(data), TIES)
    instance = None if data.instance is None else data.instance[rows]
    at = predicted[rows]
    w = HiGHS(program).solve(at, instance).check().decision
    drawn = torch.randn(at.shape, generator=generator, dtype=at.dtype)
    direction = program.objective.vector(drawn) - program.objective.vector(torch.zeros_like(drawn))
    several = np.zeros(len(rows), bool)
    for v in (direction, -direction):
        for i, other in enumerate(furthest_optimal(program, at, v, w, instance)):
            if other.status == Status.UNBOUNDED:
                several[i] = True
                continue
            further = (v[i] * (other.decision - w[i])).sum()
            several[i] |= bool(further > TIED * (v[i].abs() * torch.maximum(w[i].abs(), other.decision.abs())).sum())
    return float(several.mean())


def wrong(judged: Evaluation | None, output: LossOutput | None, data: DecisionDataset) -> np.ndarray:
    """Which decisions have regret or, where that is not known, differ from the label; bool `(count,)`."""
    if judged is not None:
        return judged.regrets > EXACT * np.abs(judged.optima).mean()
    if output is None or output.solution is None or data.decisions is None:
        return np.ones(len(data), bool)
    size = data.decisions.abs().amax(-1).clamp_min(1e-300)
    return ((output.solution.decision.detach() - data.decisions).abs().amax(-1) / size).numpy() > TIED
