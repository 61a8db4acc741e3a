"""The smoothed program through cvxpylayers: slow and general, the independent reference for `Smoothed`.

CVXPY writes the program as a cone program, Clarabel solves it, diffcp differentiates the optimality conditions.
"""

from __future__ import annotations

import operator
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.certify import OPTIMAL, Certifier
from dflearn.errors import OptionError, optional
from dflearn.layers.base import Layer, PositiveWeight, one_of, symmetric, with_gradient
from dflearn.layers.smoothed import Smoothed
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status

BACKWARD_ONLY = ("mode", "n_jobs_backward", "derivative_kwargs")
NO_SECOND = "CvxpySmoothed(regularizer='norm') has no second derivatives: use Smoothed(…, regularizer='norm')"
KEPT = 32  # how many shapes of the constraints stay compiled


class CvxpySmoothed(Layer):
    """w minimizes obj(y, w) + (μ/2)‖w‖² ("squared") or obj(y, w) + μ‖w‖₂ ("norm") over the LP relaxation.

    The gradient is the implicit one. Clarabel's statuses do not come through cvxpylayers: the rule of `certify` judges its answers.
    Instances whose answer does not pass get the decision and the status of `Smoothed`, and `Solution.reason` says why one is not
    OPTIMAL. Needs the extra `cvxpy`.

    Args:
        program: its integrality is dropped.
        mu: weight μ > 0 of the regularizer; may be set later, `layer.mu = …`.
        regularizer: "squared" or "norm".
        tolerance: Clarabel's, for feasibility and duality gap.
        threads: how many instances of a batch are solved at once.
        solver_args: further arguments of diffcp and Clarabel, as cvxpylayers takes them: `{"mode": "dense"}`, say.

    Examples:
        >>> layer = dfl.CvxpySmoothed(program, mu=1.0)
        >>> torch.allclose(layer(predicted[:2]), dfl.Smoothed(program, mu=1.0)(predicted[:2]), atol=1e-4)
        True
    """

    program: Program
    annealed = ("mu",)
    mu = PositiveWeight("μ", "(for mu = 0 use Exact)")  # where it is set anew, the program is compiled anew

    def __init__(
        self,
        program: Program,
        mu: float = 1.0,
        *,
        regularizer: Literal["squared", "norm"] = "squared",
        tolerance: float = 1e-10,
        threads: int = 1,
        solver_args: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(program.objective)
        if program.Q is not None:
            raise OptionError(f"CvxpySmoothed takes linear objectives; {program!r} has a quadratic one: use Smoothed")
        with _quiet():
            optional("cvxpylayers.torch", "cvxpy", "CvxpySmoothed")
        self.program, self.mu = program.relax(), mu
        self.regularizer = one_of("regularizer", regularizer, "squared", "norm")
        self.solver_args = {
            "solve_method": "Clarabel",
            **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance),
            **dict.fromkeys(("n_jobs_forward", "n_jobs_backward"), threads),
            **(solver_args or {}),
        }
        self._certifier, equalities = Certifier(self.program), program.A.shape[0]
        self._places = np.append(self.program.equality_form().kept, equalities + np.arange(program.G.shape[0]))

    def extra_repr(self) -> str:
        return f"{self.program!r}, mu={self.mu}, regularizer={self.regularizer!r}"

    def regularization(self, w: Tensor) -> Tensor:
        if self.regularizer == "squared":
            return 0.5 * self.mu * w.square().sum(-1)  # type: ignore[no-any-return]
        return self.mu * w.norm(dim=-1)  # type: ignore[no-any-return]

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        batch, n = y.shape[:-1], self.program.n
        count = batch.numel()
        sides = self.program.sides(instance, count)
        self.program.equality_form().right_hand_side(sides)  # refuses what contradicts dropped rows
        c = self.objective.vector(y, instance).reshape(count, n).cpu().double()
        w, prices = c * 0, np.zeros((count, self.program.A.shape[0] + self.program.G.shape[0]))
        for rows in _alike(sides, count):
            found, multipliers = self._implicit(c[rows], sides.rows(rows))
            w = w.index_put((torch.as_tensor(rows),), found)
            prices[rows[:, None], self._places] = -multipliers.numpy()
        at = w.detach().numpy()
        exact = np.clip(at, sides.lower, sides.upper)
        status, reason = np.zeros(count, np.int8), np.full(count, "", object)  # OPTIMAL
        with np.errstate(divide="ignore", over="ignore"):
            kappa = self.mu / np.linalg.norm(exact, axis=1) if self.regularizer == "norm" else self.mu
            residual = self._certifier.check(c.detach().numpy(), exact, prices, sides, kappa).error
        left = np.flatnonzero(~(residual <= OPTIMAL))
        if len(left):
            solution = self._by_smoothed(y, instance, left)
            exact[left], status[left], residual[left] = solution.decision.numpy(), solution.status, solution.residual
            reason[left] = "" if solution.reason is None else solution.reason
            status[status == Status.FEASIBLE] = int(Status.FAILED)
            lost = left[(status[left] == Status.OPTIMAL) & ~np.isfinite(at[left]).all(1)]
            status[lost], reason[lost] = int(Status.FAILED), "the solver found no decision, and so no gradient"
        w = torch.from_numpy(exact) + (w - w.detach())  # the gradient is diffcp's
        solved = torch.as_tensor(status == Status.OPTIMAL)
        w = torch.where(solved[:, None], w, torch.nan)
        value = ((c * w).sum(-1) + self.regularization(w)).detach()
        return Solution(
            decision=w.to(y).reshape(*batch, n),
            status=torch.as_tensor(status).reshape(batch),
            objective=value.reshape(batch),
            bound=torch.where(solved, value, -torch.inf).reshape(batch),
            residual=torch.as_tensor(residual).reshape(batch),
            reason=None if solved.all() else reason,
        )

    def _by_smoothed(self, y: Tensor, instance: Instance | None, index: np.ndarray) -> Solution:
        """The instances at `index` by `Smoothed`, without a gradient."""

        def chosen(part: Tensor) -> Tensor:
            return part.detach().cpu().double().reshape(y.shape[:-1].numel(), part.shape[-1])[index]

        layer = Smoothed(self.program, self.mu, regularizer=self.regularizer)
        return layer._solve(chosen(y), None if instance is None else instance.map(chosen), None)

    def _implicit(self, c: Tensor, sides: Sides) -> tuple[Tensor, Tensor]:
        """w `(count, n)` for c `(count, n)`, and the multipliers of the rows; warnings of cvxpylayers are kept from the caller."""
        form, lower, upper = self.program.equality_form(), sides.lines("lower"), sides.lines("upper")
        kinds = _kinds(lower[0], upper[0])
        bounds = (side[:, kind] for side, kind in zip((lower, lower, upper), kinds, strict=True))
        parts = (sides.lines("b")[:, form.kept], sides.lines("h"), *bounds)
        parameters = [torch.tensor(part).expand(len(c), -1) for part in parts if part.shape[1]]
        with _quiet():
            layer = _written(self.program, self.mu, self.regularizer, *(kind.tobytes() for kind in kinds))
        wanted = c.requires_grad and torch.is_grad_enabled()
        refused = () if wanted else BACKWARD_ONLY  # by diffcp
        arguments = {name: value for name, value in self.solver_args.items() if name not in refused}
        leaf = c.detach().requires_grad_(wanted)
        with _quiet(), torch.set_grad_enabled(wanted):
            w, *multipliers = layer(leaf, *parameters, solver_args=arguments)

        def in_costs(gradient: Tensor) -> Tensor:
            with _quiet(), torch.enable_grad():
                (back,) = torch.autograd.grad(w, leaf, gradient.detach(), retain_graph=True)
            return back

        rows = torch.cat([part.detach() for part in multipliers], -1) if multipliers else c.new_zeros(len(c), 0)
        why = "" if self.regularizer == "squared" else NO_SECOND
        return with_gradient(c, w.detach(), lambda v, at: symmetric(v, at, in_costs), why), rows.detach()


@lru_cache(maxsize=KEPT)
def _written(program: Program, mu: float, regularizer: str, *bytes_of_kinds: bytes) -> Any:
    """The program as a CVXPY layer (c, b, h, bounds) → (w, *multipliers), for bounds of these kinds (see `_kinds`)."""
    import cvxpy
    from cvxpylayers.torch import CvxpyLayer

    w, c = cvxpy.Variable(program.n), cvxpy.Parameter(program.n)
    parameters, kinds = [c], [np.frombuffer(one, bool) for one in bytes_of_kinds]

    def constrained(left: Any, compare: Callable[[Any, Any], Any]) -> list[Any]:
        if not left.shape[0]:
            return []
        parameters.append(cvxpy.Parameter(left.shape[0]))
        return [compare(left, parameters[-1])]

    rows = constrained(program.A[program.equality_form().kept] @ w, operator.eq)
    rows += constrained(program.G @ w, operator.le)
    compared = zip(kinds, (operator.eq, operator.ge, operator.le), strict=True)
    bounds = [bound for kind, compare in compared for bound in constrained(w[np.flatnonzero(kind)], compare)]
    smoothing = mu / 2 * cvxpy.sum_squares(w) if regularizer == "squared" else mu * cvxpy.norm(w, 2)
    problem = cvxpy.Problem(cvxpy.Minimize(c @ w + smoothing), rows + bounds)
    return CvxpyLayer(problem, parameters, [w, *(row.dual_variables[0] for row in rows)])


def _kinds(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which variables are fixed (by one equality), and which others have a lower and an upper bound; `(…, n)`."""
    fixed = lower == upper
    return fixed, np.isfinite(lower) & ~fixed, np.isfinite(upper) & ~fixed


def _alike(sides: Sides, count: int) -> list[np.ndarray]:
    """The instances `(count,)` in groups whose bounds are of the same kinds."""
    lower, upper = np.broadcast_arrays(sides.lines("lower"), sides.lines("upper"))
    if len(lower) < 2:
        return [np.arange(count)] if count else []
    _, group = np.unique(np.hstack(_kinds(lower, upper)), axis=0, return_inverse=True)
    return [np.flatnonzero(group == number) for number in range(int(group.max()) + 1)]


_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings, one thread at a time: the list of warning filters belongs to the whole process."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
