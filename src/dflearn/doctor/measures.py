"""What the doctor measures. Everything is computed in float64, and nothing is changed: not a weight, not a draw of noise."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dflearn.data import Batch, DecisionDataset
from dflearn.doctor.diagnosis import VANISHING
from dflearn.evaluation.pessimistic import furthest_optimal
from dflearn.evaluation.regret import EXACT, Evaluation
from dflearn.losses.base import Loss, LossOutput
from dflearn.program import Program
from dflearn.solvers.base import Solution, Status

TIED = (
    1e-2  # optimal decisions this far apart in a random direction, by the size of their terms there, are different ones
)
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


def pull(output: LossOutput, gradient: Tensor, predicted: Tensor) -> np.ndarray:
    """‖∂loss/∂ŷ‖ ‖ŷ‖ / mean |loss|, `(count,)`: how much of itself the loss changes when the costs change by their size."""
    typical = float(output.value.detach().abs().mean()) or 1.0
    return (gradient.norm(dim=-1) * predicted.norm(dim=-1) / typical).numpy()


def solving(solution: Solution) -> dict[str, float]:
    """The worst residual and the share of fallbacks, where the layer reports them."""
    found = {}
    if solution.residual is not None:
        found["residual"] = float(solution.residual.max())
    if solution.fallback is not None:
        found["fallbacks"] = float(solution.fallback.double().mean())
    return found


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
    """So many rows, or all, evenly over the data."""
    return torch.linspace(0, count - 1, min(wanted, count)).long().unique()


def regrets(judged: Evaluation) -> dict[str, float]:
    """Σ regret / Σ |optimum| of the model and, where it is known, of E[y | x]; the share of labels that are beaten."""
    found = {"regret": judged.ratio_of_sums, "better": float(judged.negative_regrets.mean())}
    if judged.floor_regrets is not None:
        found["floor"] = judged.metrics["floor_ratio_of_sums"].value
    return found


def least_squares(data: DecisionDataset, count: int, trained_on: DecisionDataset | None = None) -> Tensor | None:
    """The costs that two-stage learning predicts for the first `count` instances, each by a map that did not see it.

    A linear map of least squared error, fitted to `trained_on`; without it, to four fifths of the data and applied to the fifth
    left out, five times. One map for all costs where features are per cost. `None` where there are too few instances to fit one.
    """
    x, y = _with_one(data), data.batch().require("costs").double()
    if x.ndim not in (2, 3):
        return None
    if trained_on is not None:
        return _fitted(_with_one(trained_on), trained_on.batch().require("costs").double(), x[:count])
    fold = torch.arange(len(x)) % FOLDS
    fitted = torch.empty_like(y)
    for left_out in range(min(FOLDS, count)):
        known = fold != left_out
        predicted = _fitted(x[known], y[known], x[~known])
        if predicted is None:
            return None
        fitted[~known] = predicted
    return fitted[:count]


def _with_one(data: DecisionDataset) -> Tensor:
    x = data.features.double()
    return torch.cat([x, torch.ones_like(x[..., :1])], -1)


def _fitted(x: Tensor, y: Tensor, new: Tensor) -> Tensor | None:
    """Costs of new instances by least squares on others; `None` where these are too few."""
    seen, costs = (x, y) if x.ndim == 2 else (x.flatten(0, 1), y.reshape(-1, 1))
    if len(seen) < 2 * seen.shape[1]:
        return None
    predicted = new @ torch.linalg.lstsq(seen, costs, driver="gelsd").solution
    return predicted.squeeze(-1) if x.ndim == 3 else predicted


def ties(program: Program, predicted: Tensor, data: DecisionDataset, generator: torch.Generator) -> float:
    """Share of instances for which another optimal decision goes further in a random direction of costs, or opposite to it.

    Further: by more than `TIED` of Σ_j |v_j| max(|w_j|, |w'_j|), v = S (a random y) being the direction, w the solver's decision
    and w' the furthest that is optimal too (see `furthest_optimal`). So the size of decisions and of costs does not matter, and what no predicted
    cost can tell apart (parts of a decision that cost nothing) is no tie.
    """
    from dflearn.solvers.highs import HiGHS

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


def sizes(predicted: Tensor, costs: Tensor) -> tuple[float, float]:
    """mean |ŷ| / mean |y|, and the same for the deviations from the mean over instances."""
    ratio = lambda a, b: float(a.abs().mean() / b.abs().mean().clamp_min(1e-300))  # noqa: E731
    return ratio(predicted, costs), ratio(predicted - predicted.mean(0), costs - costs.mean(0))


def wrong(judged: Evaluation | None, output: LossOutput | None, data: DecisionDataset) -> np.ndarray:
    """Which decisions have regret or, where that is not known, differ from the label; bool `(count,)`."""
    if judged is not None:
        return judged.regrets > EXACT * np.abs(judged.optima).mean()
    if output is None or output.solution is None or data.decisions is None:
        return np.ones(len(data), bool)
    size = data.decisions.abs().amax(-1).clamp_min(1e-300)
    return ((output.solution.decision.detach() - data.decisions).abs().amax(-1) / size).numpy() > TIED
