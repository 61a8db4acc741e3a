"""How the solve of one instance ended."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """How the solve of one instance ended. Only `OPTIMAL` and `FEASIBLE` come with a decision.

    Examples:
        >>> solution = dfl.HiGHS(dfl.Program(n=1, upper=1.0)).solve(torch.tensor([-1.0]))
        >>> dfl.Status(int(solution.status)).name
        'OPTIMAL'
    """

    OPTIMAL = 0
    FEASIBLE = 1
    INFEASIBLE = 2
    UNBOUNDED = 3
    NOT_FOUND = 4
    FAILED = 5

    @property
    def message(self) -> str:
        return _MESSAGES[self]

    @property
    def has_decision(self) -> bool:
        return self in (Status.OPTIMAL, Status.FEASIBLE)


_MESSAGES = {
    Status.OPTIMAL: "solved to optimality within the solver's tolerances",
    Status.FEASIBLE: "a limit was reached with a feasible decision in hand that is not proven optimal; raise the limit "
    "or accept the gap between `objective` and `bound`",
    Status.INFEASIBLE: "no decision satisfies the constraints; check the right-hand sides and bounds of this instance",
    Status.UNBOUNDED: "the objective falls without end; add the missing bounds or constraints",
    Status.NOT_FOUND: "a limit was reached before any feasible decision was found; raise the time limit",
    Status.FAILED: "no solver found an answer that passes the check of optimality",
}
