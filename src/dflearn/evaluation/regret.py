"""Evaluation: decide with the predicted costs on the true program, then count what those decisions cost.

    regret_i = cost(w*(ŷ_i), y_i) − obj(y_i, w*(y_i)),   optimum_i = obj(y_i, w*(y_i))

cost(w, y) is obj(y, w); where the program predicts right-hand sides or has recourse variables, it is the cost of w after recourse,
infinite where none helps (`solvers.recourse`). Each average of regret_i / |optimum_i| has its own name here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.data import Data, DecisionDataset, as_dataset
from dflearn.data.labels import solve_cached
from dflearn.errors import DataError, OptionError, ShapeError
from dflearn.evaluation import estimates
from dflearn.evaluation.estimates import Estimate
from dflearn.models import predict
from dflearn.program import Instance, Objective
from dflearn.solvers.base import Solver, Status
from dflearn.solvers.recourse import recourse_of
from dflearn.solvers.task import Decided, DecisionTask, check_solves

Predictor = Callable[[Tensor], Tensor]

PUBLISHED_BATCH = 32  # rows per batch of the paper's test loop
EXACT = 1e-6  # a regret this small relative to the optimum is round-off: the decision is as good as optimal
ZERO = 1e-9  # an optimum this small relative to the average one is zero, and no ratio is formed with it
ZERO_OPTIMUM = "a zero optimum"  # how notes call it
GAP = 1e-3  # relative to the average optimum: what a solver's gap may explain
NOT_OPTIMAL = (
    "the decisions of the data are not optimal for the true costs, so these are no regrets: label the data with an exact "
    "solver, or judge data without decisions"
)

METRICS = {
    "mean_of_ratios": "mean of regret / |optimum|: the paper's formula",
    "ratio_of_sums": "Σ regret / Σ |optimum|: PyEPO's",
    "published_style": "mean regret × mean 1/|optimum| in each batch of 32, averaged over rows: the paper's tables",
    "absolute_regret": "mean regret",
    "pessimistic_regret": "mean regret of the worst decision that is optimal for the prediction",
    "mse": "mean squared error of the predicted costs",
    "exact_share": "share of decisions without regret",
    "floor_absolute_regret": "mean regret of deciding with E[y | x], the best any predictor can do",
    "floor_ratio_of_sums": "Σ regret / Σ |optimum| of deciding with E[y | x]",
}
"""The metrics of an `Evaluation` by name, each with its meaning.

Examples:
    >>> dfl.evaluation.METRICS["absolute_regret"]
    'mean regret'
"""

POST_HOC = {  # of programs whose decisions are settled once the truth is known
    "infeasible_share": "share of decisions that the truth makes infeasible, and no recourse helps: their regret is infinite",
    "feasible_absolute_regret": "mean regret of the other decisions",
    "feasible_ratio_of_sums": "Σ regret / Σ |optimum| of the other decisions",
}
MEANINGS = METRICS | POST_HOC


class Regrets(NamedTuple):
    """regret = obj(y, w) − obj(y, w*) and optimum = obj(y, w*), both `(*batch,)`.

    Examples:
        >>> found = dfl.evaluation.regrets_of(problem.solver(), data.costs, data.decisions, data.decisions)
        >>> found.regret.max(), found.optimum.shape
        (tensor(0.), torch.Size([40]))
    """

    regret: Tensor
    optimum: Tensor


def regrets_of(
    judge: Solver | Objective, costs: Tensor, decisions: Tensor, optimal: Tensor, instance: Instance | None = None
) -> Regrets:
    """What decisions w lose against the optimal ones w* under the true costs y.  y `(*batch, p)`, w and w* `(*batch, n)`.

    `judge` is a solver or an objective, and `instance` has what differs by row. Equal decisions have regret zero, not round-off.
    Where the objective has a `value`, both are by that. Where a solver's program has predicted right-hand sides or recourse
    variables, the regret is that after recourse, and infinite where none helps.

    Examples:
        >>> decisions = problem.solver().solve(predicted).decision
        >>> dfl.evaluation.regrets_of(program.objective, data.costs, decisions, data.decisions).regret.min() >= 0
        tensor(True)
    """
    objective, program = (judge, None) if isinstance(judge, Objective) else (judge.objective, judge.program)
    settle = None if program is None else recourse_of(program)
    optimum = objective.true_cost(costs, optimal, instance)
    if settle is None:
        return Regrets(objective.regret(costs, decisions, optimal, instance), optimum)
    settled = settle.settle(costs, decisions, instance)
    regret = objective.difference(costs, settled.decision.to(costs), optimal, instance)
    return Regrets(torch.where(settled.cost.isinf().to(regret.device), torch.inf, regret), optimum)


def check_linear(solver: Solver, found: Regrets, costs: Tensor, optimal: Tensor, instance: Instance | None) -> None:
    """An error where a solver without a program, judged by cᵀw alone, is beaten by more than rounding at the true costs."""
    if solver.program is not None or solver.objective.value is not None or not found.regret.numel():
        return
    terms = (solver.objective.vector(costs, instance) * optimal).abs().sum(-1)
    rounding = EXACT * torch.maximum(terms, terms.mean())
    beaten = found.regret < -rounding
    if bool(beaten.any()):
        raise DataError(
            f"{int(beaten.sum())} of {beaten.numel()} regrets are negative, the most by {float(-found.regret.min()):.3g}: other "
            f"decisions cost less under the true costs than the optimal ones, by cᵀw. If {solver!r} minimizes more than cᵀw (a "
            "quadratic term, a fee), pass from_callable(…, value=(y, w) → true cost). If the decisions of the data are not "
            "optimal, label them anew. If it is a heuristic, pass the linear value: such regrets are then counted"
        )


def zero_note(zeros: int, count: int, left_out_of: str) -> str:
    """How many instances a ratio leaves out, in words; shown wherever the ratio is."""
    return f"{zeros} of {count} instances have {ZERO_OPTIMUM}: left out of {left_out_of}"


def without_roundoff(regrets: np.ndarray, optima: np.ndarray) -> np.ndarray:
    """The regrets `(rows,)`, zero where round-off is all there is; NaN stays."""
    found = optima[np.isfinite(optima)]
    average = float(np.abs(found).mean()) if found.size else 0.0
    return np.where(np.abs(regrets) <= _roundoff(optima, average), 0.0, regrets)


def _roundoff(optima: np.ndarray, average: float) -> np.ndarray:
    """The largest regret that is round-off, beside optima whose mean size is `average`."""
    size = np.abs(optima)
    return EXACT * np.where(size <= ZERO * average, average, size)


class _Metric:
    """The value of a metric of an `Evaluation`, called like it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, evaluation: Evaluation, owner: type | None = None) -> float:
        if self.name not in evaluation.metrics:
            raise DataError("the pessimistic regret was not computed: evaluate with pessimistic=True")
        return evaluation.metrics[self.name].value


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Per-instance results, float64 `(count,)`, and the metrics computed from them.

    Attributes:
        problem, solver: name of what is decided and identity of the solver.
        ids: int64 `(count,)`.
        regrets: obj(y, w(ŷ)) − obj(y, w*), never clipped: a solver with a gap can make some slightly negative.
        optima: obj(y, w*), as the problem states it (values, not their negatives, where it maximizes).
        squared_errors: mean over the costs of (ŷ − y)².
        pessimistic_regrets, floor_regrets: where they were asked for and known.
        post_hoc: whether decisions were judged after recourse: regrets may then be infinite.
        predictions, decisions: ŷ `(count, p)` and w(ŷ) `(count, n)`, float64.
        confidence: level of all intervals.
        weights: how much each instance counts, `(count,)`; `None`: all the same. A value is that of instances that stand
            there as often as they weigh; for its interval each is one draw, with its weight.

    Examples:
        >>> evaluation = dfl.evaluate(predicted, problem, data, progress=False)
        >>> evaluation.regrets.shape, 0 < evaluation.ratio_of_sums < 1
        ((40,), True)
    """

    problem: str
    solver: str
    ids: np.ndarray
    regrets: np.ndarray
    optima: np.ndarray
    squared_errors: np.ndarray
    pessimistic_regrets: np.ndarray | None = None
    floor_regrets: np.ndarray | None = None
    decisions: Tensor | None = field(default=None, repr=False)
    confidence: float = 0.95
    weights: np.ndarray | None = None
    post_hoc: bool = False
    predictions: Tensor | None = field(default=None, repr=False)

    @property
    def infeasible(self) -> np.ndarray:
        """Where the truth makes a decision infeasible and no recourse helps, bool `(count,)`."""
        return np.isinf(self.regrets)

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Every metric of `METRICS` and `POST_HOC` that is known, with its interval: studentized bootstrap, for shares Wilson's.

        Instances with a zero optimum are left out of `mean_of_ratios` and `published_style`. A mean over an infinite regret is
        infinite; the other decisions then have means of their own. Intervals stay above zero, unless regrets do not.
        """
        size, kept, lost = np.abs(self.optima), ~self.zero_optima, self.infeasible
        inverse = np.divide(1.0, size, out=np.full_like(size, np.nan), where=kept)
        every = np.ones_like(kept)

        def mean(values: np.ndarray, rows: np.ndarray = every) -> Estimate:
            return ratio(values, rows, np.ones_like(size))

        def ratio(values: np.ndarray, rows: np.ndarray = every, by: np.ndarray = size) -> Estimate:
            weights = None if self.weights is None else self.weights[rows]
            return estimates.ratio_of_sums(values[rows], by[rows], self.confidence, weights)

        how = self.confidence, self.weights
        found = {
            "mean_of_ratios": mean(self.regrets * inverse, kept),
            "ratio_of_sums": ratio(self.regrets),
            "published_style": estimates.batched_product(self.regrets, inverse, PUBLISHED_BATCH, *how),
            "absolute_regret": mean(self.regrets),
            "mse": mean(self.squared_errors),
            "exact_share": estimates.share(self.regrets <= self.roundoff, *how),
        }
        if self.pessimistic_regrets is not None:
            found["pessimistic_regret"] = mean(self.pessimistic_regrets)
        if self.floor_regrets is not None:
            found["floor_absolute_regret"] = mean(self.floor_regrets)
            found["floor_ratio_of_sums"] = ratio(self.floor_regrets)
        if self.post_hoc or lost.any():
            found["infeasible_share"] = estimates.share(lost, *how)
        if lost.any():
            found["feasible_absolute_regret"] = mean(self.regrets, ~lost)
            found["feasible_ratio_of_sums"] = ratio(self.regrets, ~lost)
        above = bool((self.regrets >= 0).all())
        ordered = {name: found[name] for name in MEANINGS if name in found}
        return {name: e._replace(low=max(e.low, 0.0)) if above or name == "mse" else e for name, e in ordered.items()}

    mean_of_ratios = _Metric()
    ratio_of_sums = _Metric()
    published_style = _Metric()
    absolute_regret = _Metric()
    pessimistic_regret = _Metric()
    mse = _Metric()
    exact_share = _Metric()

    @property
    def zero_optima(self) -> np.ndarray:
        """Where the optimum is zero, bool `(count,)`."""
        return np.abs(self.optima) <= ZERO * self._average

    @property
    def negative_regrets(self) -> np.ndarray:
        """Where the decision beats the label by more than round-off, bool `(count,)`: the label was not optimal."""
        return self.regrets < -self.roundoff

    @property
    def effective_count(self) -> float:
        """How many instances of equal weight tell as much as these."""
        return estimates.effective_count(len(self.ids), self.weights)

    @property
    def _average(self) -> float:
        return float(np.average(np.abs(self.optima), weights=self.weights)) if self.optima.size else 0.0

    @property
    def roundoff(self) -> np.ndarray:
        """A regret of at most this much is none, `(count,)`."""
        return _roundoff(self.optima, self._average)

    def notes(self) -> list[str]:
        notes, count = [], len(self.ids)
        if self.weights is not None:
            notes.append(f"the {count} instances have weights, worth {self.effective_count:.4g} equal ones")
        if lost := int(self.infeasible.sum()):
            why = "infeasible once the truth is known, and no recourse helps: means are infinite"
            remedy = (
                "those over the other decisions say so. Priced slack makes them finite: Program.elastic(rows, price)"
            )
            notes.append(f"{lost} of {count} decisions are {why}; {remedy}")
        if zeros := int(self.zero_optima.sum()):
            notes.append(zero_note(zeros, count, "mean_of_ratios and published_style"))
        if negative := int(self.negative_regrets.sum()):
            small = self.regrets.min() >= -GAP * self._average
            why = "those labels are optimal only up to the solver's gap" if small else NOT_OPTIMAL
            notes.append(f"{negative} of {count} regrets are negative, the most by {self.regrets.min():.3g}: {why}")
        return notes

    def summary(self) -> str:
        lines = [f"{self.problem}: {len(self.ids)} instances, decided by {self.solver}"]
        for name, (value, low, high) in self.metrics.items():
            lines.append(f"  {name:<22}{value:>11.4g}  {f'[{low:.4g}, {high:.4g}]':<22}{MEANINGS[name]}")
        lines.append(f"  in brackets: {self.confidence:.0%} confidence")
        return "\n".join(lines + [f"  note: {note}" for note in self.notes()])

    __str__ = summary

    def as_dict(self) -> dict[str, Any]:
        """For JSON: plain numbers, `None` for what is not finite."""
        weighed = {} if self.weights is None else {"effective_instances": self.effective_count}
        return {
            "problem": self.problem,
            "solver": self.solver,
            "instances": len(self.ids),
            **weighed,
            "confidence": self.confidence,
            "metrics": estimates.plain(self.metrics),
            "zero_optima": int(self.zero_optima.sum()),
            **({"infeasible": int(self.infeasible.sum())} if self.post_hoc else {}),
            "negative_regrets": int(self.negative_regrets.sum()),
            "most_negative_regret": float(min(self.regrets.min(initial=0.0), 0.0)),
        }


def evaluate(
    predictor: Predictor | Tensor | np.ndarray | Any,
    problem: Decided,
    dataset: Data,
    solver: Solver | None = None,
    *,
    cache: str | Path | None = None,
    progress: bool = True,
    pessimistic: bool = False,
    floor: bool = True,
    confidence: float = 0.95,
    accept: Sequence[Status] = (Status.OPTIMAL,),
) -> Evaluation:
    """Judge predicted costs by the decisions they lead to on the true (MI)LP, solved exactly and cold.

    Args:
        predictor: features → costs (a module is put into eval mode meanwhile), a fitted estimator in scikit-learn's
            conventions, or the predicted costs `(count, p)`.
        problem: what is decided: a `Problem`, a `Program`, an exact `Solver`, or a function from costs to a decision. A
            problem may also know E[y | x] and so the floor. Where no program is known, decisions are not checked.
        dataset: features and true costs; its decisions are the labels, computed here where it has none. Its weights, where
            it has any, weigh every mean.
        solver: an exact solver to use instead of the problem's.
        cache: a folder that remembers solves, as of `label`.
        pessimistic: also find the worst decision that is optimal for each prediction: one more (MI)LP per instance.
        floor: also decide with E[y | x], where the problem knows it: one more solve per instance.
        confidence: level of the intervals.
        accept: the statuses of decisions that may count.

    Examples:
        >>> evaluation = dfl.evaluate(data.costs, problem, data, progress=False)  # a perfect forecast
        >>> evaluation.ratio_of_sums, evaluation.exact_share
        (0.0, 1.0)
    """
    if not 0 < confidence < 1:
        raise OptionError(f"confidence lies strictly between 0 and 1, got {confidence}")
    dataset = as_dataset(dataset)
    if dataset.costs is None:
        raise DataError("regret is measured with the true costs, and these data hold none")
    costs, instance = dataset.costs.detach().cpu().double(), dataset.instance
    task = DecisionTask.of(problem, costs.shape[1])
    if solver is not None:
        check_solves(solver, task.program)
        task = replace(task, solver=solver)
    settles = task.program is not None and recourse_of(task.program) is not None
    if pessimistic and settles:
        raise OptionError(f"the pessimistic regret is unknown for {task.name}, which has recourse")
    if pessimistic and task.program is None:
        raise OptionError(f"the pessimistic regret needs a program, and {task.solver!r} knows none")
    predicted = _predicted(predictor, dataset, task)

    def decide(y: Tensor) -> Tensor:
        solution = solve_cached(task.solver, y, instance, cache=cache, progress=progress)
        return solution.check(accept, name=lambda i: f"id {int(dataset.ids[i])}").decision

    given = dataset.decisions
    labels = None if given is None else _labels(dataset, task)
    # In single precision fractions are rounded, which would be regret.
    if labels is None or given is None or not (given.dtype == torch.float64 or bool((given == given.round()).all())):
        labels = decide(costs)
    decisions = decide(predicted)
    found = regrets_of(task.solver, costs, decisions, labels, instance)
    check_linear(task.solver, found, costs, labels, instance)
    regrets, optima = (part.numpy() for part in found)
    worst = unavoidable = None
    if pessimistic and task.program is not None:
        from dflearn.evaluation.pessimistic import worst_optimal

        program = task.program
        worst = worst_optimal(program, predicted, costs, decisions, instance, dataset.ids, progress=progress) - optima
    if floor and task.expected_costs is not None:
        best = decide(task.expected_costs(dataset.features.double()))
        unavoidable = regrets_of(task.solver, costs, best, labels, instance).regret.numpy()
    return Evaluation(
        problem=task.name,
        solver=task.solver.identity,
        ids=dataset.ids.numpy(),
        regrets=regrets,
        optima=-optima if task.objective.sense == "maximize" else optima,
        squared_errors=(predicted - costs).square().mean(-1).numpy(),
        pessimistic_regrets=worst,
        floor_regrets=unavoidable,
        decisions=decisions,
        confidence=confidence,
        weights=None if dataset.weights is None else dataset.weights.cpu().numpy(),
        post_hoc=settles,
        predictions=predicted.clone(),  # they may be the caller's own
    )


def _labels(dataset: DecisionDataset, task: DecisionTask) -> Tensor:
    """The decisions of the data in float64; an error where they are not decisions of this program at all."""
    assert dataset.decisions is not None
    labels = dataset.decisions.detach().cpu().double()
    if labels.shape[1:] != (task.objective.n,):
        raise ShapeError(f"{task.name} has {task.objective.n} variables; the labels have shape {tuple(labels.shape)}")
    if task.program is None:
        return labels
    assert dataset.costs is not None
    bad = ~task.program.is_feasible(labels, task.program.realize(dataset.costs.detach().cpu(), dataset.instance))
    if bool(bad.any()):
        raise DataError(
            f"{int(bad.sum())} of {len(bad)} labels are not feasible for {task.name} (first: id {int(dataset.ids[bad][0])}): they "
            "may come from the relaxation or from another problem; label the data with an exact solver of this program, or "
            "evaluate data without decisions"
        )
    return labels


def _predicted(predictor: Any, dataset: DecisionDataset, task: DecisionTask) -> Tensor:
    """Predicted costs, float64 `(count, p)`."""
    ask = predictor if callable(predictor) else getattr(predictor, "predict", None)
    if isinstance(predictor, Tensor | np.ndarray):
        predicted = torch.as_tensor(predictor)
    elif ask is None:
        raise OptionError(
            "evaluate takes predicted costs, a function from features to them, or a fitted estimator in scikit-learn's "
            f"conventions; got a {type(predictor).__name__}"
        )
    elif ask is predictor:
        predicted = predict(ask, dataset.features)
    else:
        predicted = torch.as_tensor(np.asarray(ask(dataset.features.detach().cpu().numpy()), np.float64))
    if predicted.shape != (len(dataset), task.objective.p):
        raise ShapeError(
            f"predictions must have shape {(len(dataset), task.objective.p)}, one row per instance and one column per "
            f"cost of {task.name}; got {tuple(predicted.shape)}"
        )
    return predicted.detach().cpu().double()
