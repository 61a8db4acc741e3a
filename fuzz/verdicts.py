"""Verdicts: is an answer right, honest, or silently wrong?"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor

from dflearn.solvers.base import Solution, Status
from dflearn.testing.optimality import infeasibility, kkt_residuals
from fuzz.cases import Case
from fuzz.references import Truth, scale_of, truth_of

Kind = Literal["none", "relaxed", "squared", "norm"]
VERDICTS = ("right", "honest", "unsure", "refused", "silent wrong", "crash")
NOISE = 1e-9  # what counts as zero beside decisions of size one
BAD = ("silent wrong", "crash")


class Verdict(NamedTuple):
    """One instance's: `honest` claims nothing, `unsure` has no reference, `refused` is an error that says why."""

    verdict: str
    detail: str = ""
    instance: int = 0
    start: list[float] | None = None


def judge(case: Case, kind: Kind, solution: Solution, start: Tensor | None = None) -> list[Verdict]:
    """A verdict on every instance of a solution; kind says what was minimized (see `truth_of`)."""
    decision = solution.decision.detach().double().reshape(case.count, case.n).numpy()
    status = solution.status.reshape(-1).tolist()
    objective, bound = (part.detach().reshape(-1).numpy() for part in (solution.objective, solution.bound))
    seen: dict[bytes, Verdict] = {}
    out = []
    for i in range(case.count):
        told = (float(objective[i]), float(bound[i]))
        parts = [case.c(i), *(case.line(name, i) for name in ("b", "h", "lower", "upper")), decision[i], np.array(told)]
        key = b"".join(part.tobytes() for part in parts) + bytes([status[i]])
        if key not in seen:
            seen[key] = _judge_one(case, kind, i, Status(status[i]), decision[i], *told)
        bad = seen[key].verdict in BAD and start is not None
        out.append(seen[key]._replace(instance=i, start=start[i].tolist() if bad and start is not None else None))
    return out


def _judge_one(
    case: Case, kind: Kind, i: int, status: Status, decision: np.ndarray, objective: float, bound: float
) -> Verdict:
    truth = truth_of(case, kind, i)
    if truth.status == "unknown":
        return Verdict("unsure")
    bound /= case.cost
    if truth.status == "optimal" and bound > truth.objective + case.tolerance * truth.scale:
        return Verdict("silent wrong", f"bound {bound:.9g} above the optimum {truth.objective:.9g}")
    if status in (Status.INFEASIBLE, Status.UNBOUNDED):
        if status.name.lower() == truth.status:
            return Verdict("right")
        return Verdict("silent wrong", f"called {status.name}, is {truth.status}")
    if status is not Status.OPTIMAL:
        return Verdict("honest", f"{status.name}, is {truth.status}")
    if truth.status != "optimal":
        return Verdict("silent wrong", f"called OPTIMAL, is {truth.status}")
    return _judge_optimal(case, kind, i, truth, decision, objective)


def _judge_optimal(case: Case, kind: Kind, i: int, truth: Truth, decision: np.ndarray, objective: float) -> Verdict:
    tolerance, mu, regularizer = case.tolerance, 0.0, "squared"
    if kind in ("squared", "norm"):
        mu, regularizer = case.user_mu(kind), kind
    if not np.isfinite(decision).all():
        return Verdict("silent wrong", "called OPTIMAL, and the decision is not finite")
    if kind == "none" and case.integer.any() and np.abs(decision - np.round(decision))[case.integer].max() > 0:
        return Verdict("silent wrong", "an integer variable is not an integer")
    # Rows are judged in base units, where decisions are of size one: what is zero up to 1e-9 there is zero.
    w, rounding, base = decision / case.column, max(NOISE, 8 * float(np.finfo(case.dtype).eps)), case.base
    broken = infeasibility(w, case.c(i), base.program, base.user_sides(i), rounding=rounding, size=1.0)
    if broken > tolerance:
        return Verdict("silent wrong", f"a row or bound is broken by {broken:.2g}, relative")
    value, rest = _value(case, kind, i, w)
    scale = max(truth.scale, scale_of(case.c(i), w, rest) if case.dtype != "float64" else 0.0)
    if value - truth.objective > tolerance * scale:
        return Verdict("silent wrong", f"objective {value:.9g}, the optimum is {truth.objective:.9g}")
    if abs(objective / case.cost - value) > tolerance * max(scale, scale_of(case.c(i), w, rest)):
        return Verdict("silent wrong", f"told objective {objective / case.cost:.9g}, the decision's is {value:.9g}")
    assert truth.w is not None
    if kind in ("squared", "norm") and truth.exact:
        error = np.abs(w - truth.w).max() / max(1.0, float(np.abs(truth.w).max()))
        if error > tolerance:
            worst = kkt_residuals(
                decision, case.user_c(i), case.program, case.user_sides(i),
                mu=mu, regularizer=regularizer, rounding=rounding, size=case.size,
            ).worst  # fmt: skip
            if worst > tolerance:
                return Verdict("silent wrong", f"decision off by {error:.2g}, residual {worst:.2g}")
    return Verdict("right")


def _value(case: Case, kind: Kind, i: int, w: np.ndarray) -> tuple[float, float]:
    """The objective in base units, and what of it is not linear."""
    rest = float(case.bent(w))
    if kind == "squared":
        rest += float(0.5 * case.curvature @ w**2)
    elif kind == "norm":
        rest += float(np.linalg.norm(case.norm_weights * w))
    return float(case.c(i) @ w) + rest, rest
