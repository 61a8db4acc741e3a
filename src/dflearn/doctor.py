"""`diagnose`: why training does not move, in numbers and in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data import Batch, DecisionDataset
from dflearn.errors import DataError, SolverError
from dflearn.evaluation import EXACT, Evaluation, evaluate
from dflearn.labels import label
from dflearn.layers.base import Layer
from dflearn.losses.base import Loss, LossOutput
from dflearn.methods import Scale, Task
from dflearn.pessimistic import worst_optimal
from dflearn.program import Program

if TYPE_CHECKING:
    from dflearn.problems.base import Problem

Severity = Literal["problem", "warning", "fine"]

VANISHING = (
    1e-6  # a gradient that changes the loss by less than this share, when costs change by their own size, is zero
)
CONVERGED = 1e-4  # a residual above this is no solution
TIED = 1e-2  # optimal decisions this far apart in a random direction are different ones
AGREES = 1e-3  # relative difference at which a slope confirms a gradient
STEPS = (1e-4, 1e-5, 1e-6)  # of finite differences, relative to the costs: a kink is unlikely within all three
SLOPES, TIES = 8, 16  # how many instances are tried


class Finding(NamedTuple):
    """One observation, and what to change if it is not fine."""

    severity: Severity
    what: str
    remedy: str = ""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What `diagnose` measured. Shares lie between 0 and 1; what could not be measured is `None`.

    Attributes:
        setting: loss, layer and number of instances, in words.
        gradients: ‖∂loss/∂ŷ‖ ‖ŷ‖ / mean |loss|, `(count,)`: free of units; empty where the loss failed.
        wrong: which instances' decisions have regret (or, without a problem, differ from the label), bool `(count,)`.
        residual: worst relative residual of the layer.
        fallbacks: share of instances that the layer's own method did not finish.
        better: share of instances whose decision is better than the label, so that the label is not optimal.
        ties: share of instances with more than one optimal decision for their predicted costs.
        size, spread: mean |ŷ| / mean |y|, and the same for the deviations from the mean over instances.
        slopes: how many gradients finite differences confirm, of how many.
        regret, two_stage, floor: Σ regret / Σ |optimum| of the model, of least squares on the same data, of E[y | x].
        findings: observations, the worst first.
    """

    setting: str
    gradients: np.ndarray
    wrong: np.ndarray
    residual: float | None = None
    fallbacks: float | None = None
    better: float | None = None
    ties: float | None = None
    size: float | None = None
    spread: float | None = None
    slopes: tuple[int, int] | None = None
    regret: float | None = None
    two_stage: float | None = None
    floor: float | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def without_gradient(self) -> float:
        """Share of all instances whose gradient is (nearly) zero."""
        return float(self._zero.mean()) if self._zero.size else 1.0

    @property
    def stuck(self) -> float:
        """Share of the wrong instances whose gradient is (nearly) zero: nothing pulls them right."""
        if not self._zero.size:
            return 1.0
        return float(self._zero[self.wrong].mean()) if self.wrong.any() else 0.0

    @property
    def _zero(self) -> np.ndarray:
        return self.gradients <= VANISHING

    @property
    def healthy(self) -> bool:
        """Whether no finding is a problem."""
        return all(finding.severity != "problem" for finding in self.findings)

    def __str__(self) -> str:
        lines = [self.setting, "", *(f"  {name:<44}{value}" for name, value in self._measures()), ""]
        for finding in self.findings:
            lines.append(_wrapped(f"  {_MARKS[finding.severity]} ", finding.what))
            if finding.remedy:
                lines.append(_wrapped("       → ", finding.remedy))
        return "\n".join(lines)

    def _measures(self) -> Iterator[tuple[str, str]]:
        yield "decisions that are not optimal", f"{self.wrong.mean() if self.wrong.size else 0:.1%}"
        yield "instances without gradient", f"{self.without_gradient:.1%}"
        yield "  of those with a wrong decision", f"{self.stuck:.1%}"
        if self.residual is not None:
            yield "worst residual of the layer", f"{self.residual:.1e}"
        if self.fallbacks is not None:
            yield "instances left to the fallback solver", f"{self.fallbacks:.1%}"
        if self.slopes is not None:
            yield "gradients confirmed by finite differences", f"{self.slopes[0]} of {self.slopes[1]}"
        if self.ties is not None:
            yield "predictions with several optimal decisions", f"{self.ties:.1%}"
        if self.size is not None and self.spread is not None:
            yield "size of predicted costs, relative to true", f"{self.size:.3g}"
            yield "their spread over instances, likewise", f"{self.spread:.3g}"
        names = {"regret": "regret of the model", "two_stage": "regret of least squares", "floor": "regret of E[y | x]"}
        for name, text in names.items():
            value = getattr(self, name)
            if value is not None:
                yield text, f"{value:.2%}"


_MARKS: dict[Severity, str] = {"problem": "[!!]", "warning": "[! ]", "fine": "[ok]"}  # the worst first


def _wrapped(mark: str, text: str) -> str:
    return fill(text, width=100, initial_indent=mark, subsequent_indent=" " * len(mark))


def diagnose(
    model: nn.Module,
    loss: Loss,
    data: DecisionDataset,
    *,
    problem: Problem | Program | None = None,
    limit: int = 200,
    seed: int = 0,
) -> Diagnosis:
    """Look at what the loss tells the model on the first `limit` instances, and say what to change.

    Args:
        model: features → costs, at any stage of its training; it is not changed.
        loss: what it is (to be) trained with.
        data: features with costs, decisions or both. Missing decisions are computed where `problem` is given.
        problem: what decisions are judged by. Without it nothing is said about regret and ties.
        seed: of random directions.
    """
    if not len(data):
        raise DataError("there is nothing to diagnose: the data are empty")
    program = problem if problem is None or isinstance(problem, Program) else problem.program
    data = data.subset(slice(0, limit)).to(torch.float64)
    if data.decisions is None and data.costs is not None and program is not None:
        data = label(data, Task.of(problem or program).solver, progress=False)
    predicted = _predict(model, data)
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, Any] = {"setting": _setting(loss, data)}
    failure = ""
    try:
        output, gradient = _gradient(loss, predicted, data.batch())
    except SolverError as error:
        failure, output, gradient = str(error), None, predicted.new_zeros(0, predicted.shape[-1])
    found["gradients"] = np.zeros(0)
    if output is not None:
        typical = output.value.detach().abs().mean()
        found["gradients"] = (gradient.norm(dim=-1) * predicted.norm(dim=-1) / (typical or 1.0)).numpy()
        if output.solution is not None:
            found |= _solving(output)
        found["slopes"] = _confirm(loss, predicted, data, generator)
    judged = None
    if problem is not None and data.costs is not None:
        judged = evaluate(predicted, problem, data, progress=False)
        found |= _regrets(judged, problem, data)
    if program is not None:
        found["ties"] = _ties(program, predicted, data, generator)
    if data.costs is not None:
        found["size"], found["spread"] = _sizes(predicted, data.costs)
    found["wrong"] = _wrong(judged, output, data)
    diagnosis = Diagnosis(**found)
    diagnosis.findings.extend(
        sorted(_findings(diagnosis, loss, data, failure), key=lambda one: list(_MARKS).index(one.severity))
    )
    return diagnosis


def _setting(loss: Loss, data: DecisionDataset) -> str:
    through = "" if loss.layer is None else f" through {type(loss.layer).__name__}"
    return f"{type(loss).__name__}{through} on {len(data)} instances"


# -- what is measured -----------------------------------------------------------------------------------------------


def _predict(model: nn.Module, data: DecisionDataset) -> Tensor:
    """Predicted costs in float64; the model is asked in its own precision and left as it was."""
    first = next(model.parameters(), None)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        predicted = model(data.features if first is None else data.features.to(first))
    model.train(was_training)
    return predicted.detach().cpu().double()


def _evaluate(loss: Loss, predicted: Tensor, batch: Batch) -> LossOutput:
    """The loss, leaving no trace in what it holds (noise generators, pools)."""
    state = loss.state_dict()
    try:
        return loss.evaluate(predicted, batch)
    finally:
        loss.load_state_dict(state)


def _gradient(loss: Loss, predicted: Tensor, batch: Batch) -> tuple[LossOutput, Tensor]:
    """The loss and its gradient with respect to the predicted costs, `(count, p)`."""
    leaf = predicted.clone().requires_grad_()
    output = _evaluate(loss, leaf, batch)
    if not output.value.requires_grad:
        return output, torch.zeros_like(predicted)
    (gradient,) = torch.autograd.grad(output.value.sum(), leaf)
    return output, gradient


def _solving(output: LossOutput) -> dict[str, float]:
    solution = output.solution
    assert solution is not None
    found = {}
    if solution.residual is not None:
        found["residual"] = float(solution.residual.max())
    if solution.fallback is not None:
        found["fallbacks"] = float(solution.fallback.double().mean())
    return found


def _confirm(loss: Loss, predicted: Tensor, data: DecisionDataset, generator: torch.Generator) -> tuple[int, int]:
    """How many of the gradients agree with (L(ŷ + h v) − L(ŷ − h v)) / 2h in a random direction v, for some step h."""
    rows = _spread(len(data), SLOPES)
    batch, at = data.batch(rows), predicted[rows]
    _, gradient = _gradient(loss, at, batch)  # of these alone, so that noise, where there is any, is the same below
    direction = torch.randn(at.shape, generator=generator, dtype=at.dtype)
    direction *= predicted.abs().mean().clamp_min(1e-9) / direction.norm(dim=-1, keepdim=True)
    claimed = (gradient * direction).sum(-1)
    least = VANISHING * (gradient.norm(dim=-1).max() * direction.norm(dim=-1)).clamp_min(1e-12)
    confirmed = torch.zeros(len(rows), dtype=torch.bool)
    with torch.no_grad():
        for step in STEPS:
            ahead, behind = (_evaluate(loss, at + sign * step * direction, batch).value for sign in (1, -1))
            measured = (ahead - behind) / (2 * step)
            size = torch.maximum(torch.maximum(measured.abs(), claimed.abs()), least)
            confirmed |= (measured - claimed).abs() <= AGREES * size
    return int(confirmed.sum()), len(rows)


def _spread(count: int, wanted: int) -> Tensor:
    """So many rows, or all, evenly over the data."""
    return torch.linspace(0, count - 1, min(wanted, count)).long().unique()


def _regrets(judged: Evaluation, problem: Problem | Program, data: DecisionDataset) -> dict[str, float]:
    found = {"regret": judged.ratio_of_sums, "better": float(judged.negative_regrets.mean())}
    if judged.floor_regrets is not None:
        found["floor"] = judged.metrics["floor_ratio_of_sums"].value
    least_squares = evaluate(_least_squares(data), problem, data, progress=False, floor=False)
    return {**found, "two_stage": least_squares.ratio_of_sums}


def _least_squares(data: DecisionDataset) -> Tensor:
    """The costs that the linear map of least squared error predicts; one map for all costs where features are per cost."""
    x, y = data.features, data.batch().require("costs")
    x = torch.cat([x, torch.ones(*x.shape[:-1], 1, dtype=x.dtype)], -1)
    shared = x.ndim == 3
    flat, target = (x.reshape(-1, x.shape[-1]), y.reshape(-1, 1)) if shared else (x, y)
    fitted = flat @ torch.linalg.lstsq(flat, target, driver="gelsd").solution
    return fitted.reshape(y.shape)


def _ties(program: Program, predicted: Tensor, data: DecisionDataset, generator: torch.Generator) -> float:
    """Share of instances for which another optimal decision goes further in a random direction, or in the opposite one."""
    from dflearn.solvers.highs import HiGHS

    rows = _spread(len(data), TIES)
    instance = None if data.instance is None else data.instance[rows]
    at = predicted[rows]
    decisions = HiGHS(program).solve(at, instance).check().decision
    direction = torch.randn(at.shape, generator=generator, dtype=at.dtype)
    several = np.zeros(len(rows), bool)
    for costs in (direction, -direction):
        furthest = worst_optimal(program, at, costs, decisions, instance, progress=False)
        several |= furthest - program.objective(costs, decisions, instance).numpy() > TIED
    return float(several.mean())


def _sizes(predicted: Tensor, costs: Tensor) -> tuple[float, float]:
    ratio = lambda a, b: float(a.abs().mean() / b.abs().mean().clamp_min(1e-300))  # noqa: E731
    return ratio(predicted, costs), ratio(predicted - predicted.mean(0), costs - costs.mean(0))


def _wrong(judged: Evaluation | None, output: LossOutput | None, data: DecisionDataset) -> np.ndarray:
    if judged is not None:
        return judged.regrets > EXACT * np.abs(judged.optima).mean()
    if output is None or output.solution is None or data.decisions is None:
        return np.ones(len(data), bool)
    return (output.solution.decision.detach() - data.decisions).abs().amax(-1).numpy() > TIED


# -- what it means --------------------------------------------------------------------------------------------------


def _findings(found: Diagnosis, loss: Loss, data: DecisionDataset, failure: str) -> Iterator[Finding]:
    name = type(loss).__name__
    if failure:
        yield Finding(
            "problem",
            f"The solver inside the loss failed: {failure}.",
            "Training would stop here. Check the constraints of this instance and the scale of the costs.",
        )
        return
    yield from _about_gradients(found, loss, data)
    yield from _about_solving(found)
    if found.slopes is not None and found.slopes[0] < found.slopes[1]:
        yield Finding(
            "warning",
            f"Finite differences confirm only {found.slopes[0]} of {found.slopes[1]} gradients of {name}.",
            "A Jacobian-free or sampled gradient need not agree. An exact one must, kinks apart: if yours is meant to be "
            "exact, check the layer, or compare with Smoothed.",
        )
    yield from _about_predictions(found, name)
    yield from _about_regret(found)


def _about_gradients(found: Diagnosis, loss: Loss, data: DecisionDataset) -> Iterator[Finding]:
    name = type(loss).__name__
    if found.better:
        yield Finding(
            "problem",
            f"On {found.better:.0%} of the instances the model's decision is better than the label.",
            "These labels are not optimal for the program that judges: compute them with label(data, solver).",
        )
    elif not found.wrong.any():
        yield Finding("fine", "Every decision is optimal already.")
    if found.stuck < 0.5:
        if found.wrong.any():
            yield Finding("fine", f"{1 - found.stuck:.0%} of the instances with a wrong decision have a gradient.")
        return
    severity: Severity = "problem" if found.stuck >= 0.9 else "warning"
    what = f"{found.stuck:.0%} of the instances with a wrong decision have no gradient: {name} stands still on them."
    if name in ("Regret", "SquaredDecisionError"):
        remedy = (
            f"{name} sees only decisions that move with the costs, and these do not. Use SCE or SmoothedSPOPlus through "
            "the same layer: their gradient contrasts two decisions and needs none to move."
        )
        mu = _smoothing(loss.layer)
        suggested = 0.0 if loss.layer is None else Scale.of(loss.layer.objective, data).mu
        if mu is not None and mu < suggested:
            remedy += f" Or smooth more: mu is {mu:.3g}, and about {suggested:.3g} suits costs of this size."
    elif loss.layer is None:
        remedy = "The loss is at its minimum for these instances, or does not depend on the predicted costs."
    else:
        remedy = (
            f"{name} is content with decisions that are not optimal: check that its layer solves the program that judges "
            "(a relaxation may be content where the program itself is not), and that the labels are its decisions."
        )
    yield Finding(severity, what, remedy)


def _smoothing(layer: Layer | None) -> float | None:
    """μ of a layer that smooths."""
    from dflearn.layers.smoothed import Smoothed

    return layer.mu if isinstance(layer, Smoothed) else None


def _about_solving(found: Diagnosis) -> Iterator[Finding]:
    if found.residual is not None and not found.residual <= CONVERGED:
        yield Finding(
            "warning",
            f"The layer's answers are not solutions: the worst residual is {found.residual:.1e}.",
            "Give it more iterations or a tolerance, or use Smoothed, which solves exactly.",
        )
    if found.fallbacks:
        yield Finding(
            "warning" if found.fallbacks > 0.05 else "fine",
            f"{found.fallbacks:.1%} of the instances had to be solved one by one by the slower solver.",
            "Scale costs and constraints to numbers around 1, or raise mu." if found.fallbacks > 0.05 else "",
        )


def _about_predictions(found: Diagnosis, name: str) -> Iterator[Finding]:
    if found.ties:
        yield Finding(
            "warning",
            f"{found.ties:.0%} of the predictions leave several decisions optimal; regret then depends on which one the "
            "solver returns.",
            "Judge with evaluate(…, pessimistic=True). If predictions are constant or zero, the model has not learned or "
            "has collapsed: check features, and prefer SCE to its plain variant.",
        )
    if found.size is None or found.spread is None:
        return
    if not 0.1 <= found.size <= 10:
        yield Finding(
            "warning",
            f"Predicted costs are {found.size:.2g} times as large as true ones.",
            "Smoothing (mu, sigma) is then out of proportion, and so is a known part d of the objective. Scale the "
            "model's output to the costs, train longer, or begin with MSE.",
        )
    elif found.spread < 0.05:
        yield Finding(
            "warning",
            "Predicted costs hardly differ between instances.",
            f"The model ignores its features: scale them, train longer, or raise the learning rate ({name} may also need "
            "a larger gradient: see above).",
        )


def _about_regret(found: Diagnosis) -> Iterator[Finding]:
    if found.regret is None or found.two_stage is None:
        return
    floor = (
        "" if found.floor is None else f" Deciding with E[y | x] has {found.floor:.1%}, which nothing beats on average."
    )
    if found.regret > found.two_stage:
        yield Finding(
            "warning",
            f"The model's regret is {found.regret:.1%}, least squares has {found.two_stage:.1%}.{floor}",
            "Train on, or begin with the least-squares model.",
        )
    else:
        yield Finding(
            "fine", f"The model's regret is {found.regret:.1%}, that of least squares {found.two_stage:.1%}.{floor}"
        )
