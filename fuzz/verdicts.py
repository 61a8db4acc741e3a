"""Verdicts: is an answer right, honest, missing, or silently wrong?

Everything is judged in base units, where decisions are of size one, and independent parts of a program each in its own.
"""

from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor

from dflearn.solvers.base import Solution, Status
from dflearn.testing.optimality import kkt_residuals
from fuzz.cases import Case
from fuzz.references import Truth, scale_of, truth_of

Kind = Literal["none", "relaxed", "squared", "norm"]
VERDICTS = ("right", "missed", "declared", "honest", "refused", "unsure", "silent wrong", "crash")
MEANINGS = {
    "right": "the answer, or the status, is the reference's",
    "missed": "no answer, although the reference has one",
    "declared": "no answer, as the documents say: not made for this program, no convergence of Davis-Yin, a pooled decision",
    "honest": "no answer, and there is none",
    "refused": "an error of the library's own, and there is no answer (or the file is damaged)",
    "unsure": "the reference has no answer",
    "silent wrong": "a wrong answer that is called right",
    "crash": "an error that is not the library's own, or the end of the process",
}
NOISE = 1e-9  # what counts as zero beside decisions of size one
BAD = ("silent wrong", "crash")


class Verdict(NamedTuple):
    """One instance's. first: whether the first method gave the answer, and not one that it fell back to."""

    verdict: str
    detail: str = ""
    instance: int = 0
    start: list[float] | None = None
    first: bool = True


def judge(
    case: Case, kind: Kind, solution: Solution, start: Tensor | None = None, declared: tuple[Status, ...] = ()
) -> list[Verdict]:
    """A verdict on every instance of a solution; kind says what was minimized (see `truth_of`). declared: statuses that this
    subject may end with although there is an optimum."""
    decision = solution.decision.detach().double().reshape(case.count, case.n).numpy()
    status = solution.status.reshape(-1).tolist()
    objective, bound = (part.detach().reshape(-1).numpy() for part in (solution.objective, solution.bound))
    later = [False] * case.count if solution.fallback is None else solution.fallback.reshape(-1).tolist()
    seen: dict[bytes, Verdict] = {}
    out = []
    for i in range(case.count):
        told = (float(objective[i]), float(bound[i]))
        key = case.key(i) + decision[i].tobytes() + np.array(told).tobytes() + bytes([status[i]])
        if key not in seen:
            seen[key] = _judge_one(case, kind, i, Status(status[i]), decision[i], *told, declared)
        bad = seen[key].verdict in BAD and start is not None
        own = start[i].tolist() if bad and start is not None else None
        out.append(seen[key]._replace(instance=i, start=own, first=not later[i]))
    return out


def refusals(case: Case, kind: Kind, error: Exception) -> list[Verdict]:
    """The verdicts on an error of the library's own: something is missed where all instances have an answer."""
    text = f"{type(error).__name__}: {error}"
    answered = all(truth_of(case, kind, i).status == "optimal" for i in range(case.count))
    return [Verdict("missed" if answered else "refused", text, i) for i in range(max(case.count, 1))]


def _judge_one(
    case: Case,
    kind: Kind,
    i: int,
    status: Status,
    decision: np.ndarray,
    objective: float,
    bound: float,
    declared: tuple[Status, ...],
) -> Verdict:
    truth = truth_of(case, kind, i)
    if truth.status == "unknown":
        squares = _as_square(case, decision) if kind == "norm" and status is Status.OPTIMAL else None
        if squares is None or truth_of(squares, "squared", i).status != "optimal":
            return Verdict("unsure")
        return _judge_optimal(squares, "squared", i, decision, None)
    bound /= case.cost
    if truth.status == "optimal" and bound > truth.objective + case.tolerance * truth.scale:
        return Verdict("silent wrong", f"bound {bound:.9g} above the optimum {truth.objective:.9g}")
    if status in (Status.INFEASIBLE, Status.UNBOUNDED):
        if status.name.lower() == truth.status:
            return Verdict("right")
        return Verdict("silent wrong", f"called {status.name}, is {truth.status}")
    if status is not Status.OPTIMAL:
        if status is Status.FEASIBLE and (not declared or Status.FAILED not in declared):
            broken = (
                "there is nothing feasible" if truth.status == "infeasible" else infeasible(case, kind, i, decision)
            )
            if broken:
                return Verdict("silent wrong", f"called FEASIBLE: {broken}")
        missing = "declared" if status in declared else "missed"
        return Verdict(missing if truth.status == "optimal" else "honest", f"{status.name}, is {truth.status}")
    if truth.status != "optimal":
        return Verdict("silent wrong", f"called OPTIMAL, is {truth.status}")
    return _judge_optimal(case, kind, i, decision, objective)


def _as_square(case: Case, decision: np.ndarray) -> Case | None:
    """μ‖w‖₂ has at w the slope of (μ / 2‖w‖₂)‖w‖₂²: what solves the one solves the other, where w is not zero."""
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(decision))
    if not (np.isfinite(length) and length > 0):
        return None
    return case.changed(mu=case.user_mu("norm") / length * case.size**2 / case.cost)


def _judge_optimal(case: Case, kind: Kind, i: int, decision: np.ndarray, objective: float | None) -> Verdict:
    """objective: as told by the subject; `None` where it is of another objective."""
    if broken := infeasible(case, kind, i, decision):
        return Verdict("silent wrong", broken)
    # The gap of branch and bound is that of the whole objective; otherwise each part is optimal by itself.
    apart = kind != "none" or not case.integer.any()
    total = best = size = 0.0
    for part, own in case.parts:
        w, truth, factor = decision[own] / part.column, truth_of(part, kind, i), part.cost / case.cost
        value, rest = _value(part, kind, i, w)
        told = scale_of(part.lines(i)[0], w, rest)
        scale = max(truth.scale, told if case.dtype != "float64" else 0.0)
        if apart and value - truth.objective > case.tolerance * scale:
            return Verdict("silent wrong", f"objective {value:.9g}, the optimum is {truth.objective:.9g}")
        total, best, size = total + factor * value, best + factor * truth.objective, size + factor * max(scale, told)
        if kind in ("squared", "norm") and truth.exact and (text := _misplaced(part, kind, i, truth, w)):
            return Verdict("silent wrong", text)
    if not apart and total - best > case.tolerance * truth_of(case, kind, i).scale:
        return Verdict("silent wrong", f"objective {total:.9g}, the optimum is {best:.9g}")
    if objective is not None and not abs(objective / case.cost - total) <= case.tolerance * size:
        return Verdict("silent wrong", f"told objective {objective / case.cost:.9g}, the decision's is {total:.9g}")
    return Verdict("right")


def infeasible(case: Case, kind: Kind, i: int, decision: np.ndarray) -> str:
    """What a decision breaks, in words; nothing where it is feasible."""
    if not np.isfinite(decision).all():
        return "the decision is not finite"
    if kind == "none" and case.integer.any() and np.abs(decision - np.round(decision))[case.integer].max() > 0:
        return "an integer variable is not an integer"
    w, (_, b, h, lower, upper) = decision / case.column, case.lines(i)
    rows, right = np.vstack([case.A, case.G]), np.concatenate([b, h])
    rounding = max(NOISE, 8 * float(np.finfo(case.dtype).eps)) * (np.ones(case.n) if case.sizes is None else case.sizes)
    excess, terms = rows @ w - right, np.abs(rows) @ np.abs(w) + np.abs(right)
    broken = np.where(np.arange(len(right)) < len(b), np.abs(excess), excess)
    worst = (broken > case.tolerance * terms) & (broken > np.abs(rows) @ rounding)
    if worst.any():
        k = int(np.flatnonzero(worst)[0])
        return f"row {k} is broken by {broken[k]:.2g}, its terms are {terms[k]:.2g}"
    outside = np.maximum(lower - w, w - upper)
    if (outside > np.maximum(rounding, case.tolerance * np.abs(w))).any():
        k = int(outside.argmax())
        return f"a bound of variable {k} is broken by {outside[k]:.2g}, its value is {w[k]:.2g}"
    return ""


def _misplaced(case: Case, kind: Kind, i: int, truth: Truth, w: np.ndarray) -> str:
    """Why a smoothed decision is not the one that is optimal, in words; nothing where it is."""
    assert truth.w is not None
    error = np.abs(w - truth.w).max(initial=0.0) / max(1.0, float(np.abs(truth.w).max(initial=0.0)))
    if error <= case.tolerance:
        return ""
    worst = kkt_residuals(
        w * case.column, case.user_c(i), case.program, case.user_sides(i), mu=case.user_mu(kind),
        regularizer="norm" if kind == "norm" else "squared",
        rounding=max(NOISE, 8 * float(np.finfo(case.dtype).eps)), size=case.size,
    ).worst  # fmt: skip
    return f"decision off by {error:.2g}, residual {worst:.2g}" if worst > case.tolerance else ""


def _value(case: Case, kind: Kind, i: int, w: np.ndarray) -> tuple[float, float]:
    """The objective in base units, and what of it is not linear."""
    rest = float(case.bent(w))
    if kind == "squared":
        rest += float(0.5 * case.curvature @ w**2)
    elif kind == "norm":
        rest += float(np.linalg.norm(case.norm_weights * w))
    return float(case.lines(i)[0] @ w) + rest, rest
