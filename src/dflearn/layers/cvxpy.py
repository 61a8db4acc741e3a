"""The smoothed program through cvxpylayers: slow and general, the independent reference for `Smoothed`.

CVXPY writes the program as a cone program, Clarabel solves it, diffcp differentiates the optimality conditions.
"""

from __future__ import annotations

import operator
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.errors import MissingExtraError, OptionError
from dflearn.layers.base import Layer, PositiveWeight, refuse_quadratic, symmetric, with_gradient
from dflearn.program import Instance, Program
from dflearn.program.sides import Side, Sides
from dflearn.solvers.base import Solution, Status

SOLVED = 1e-5  # relative residual up to which an answer counts as optimal; Clarabel reaches about 1e-7 on cone programs
NOTHING = 1e-7  # a decision this small beside right-hand sides and bounds may be zero
LITTLE = 1e-3
AT_ZERO = 1e-6  # relative length below which a decision counts as the kink of ‖w‖₂
BACKWARD_ONLY = ("mode", "n_jobs_backward", "derivative_kwargs")
NO_SECOND = "CvxpySmoothed(regularizer='norm') has no second derivatives: use Smoothed(…, regularizer='norm')"
KEPT = 32  # how many shapes of the constraints stay compiled


class CvxpySmoothed(Layer):
    """w minimizes obj(y, w) + (μ/2)‖w‖² ("squared") or obj(y, w) + μ‖w‖₂ ("norm") over the LP relaxation.

    The gradient is the implicit one. Clarabel's statuses do not come through cvxpylayers: they are worked out again from the
    optimality conditions and, for an instance that fails them, by HiGHS. Needs the extra `cvxpy`.

    Args:
        program: its integrality is dropped.
        mu: weight μ > 0 of the regularizer; may be set later, `layer.mu = …`.
        regularizer: "squared" or "norm".
        tolerance: Clarabel's, for feasibility and duality gap.
        threads: how many instances of a batch are solved at once.
        solver_args: further arguments of diffcp and Clarabel, as cvxpylayers takes them: `{"mode": "dense"}`, say.
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
        refuse_quadratic("CvxpySmoothed", program)
        if regularizer not in ("squared", "norm"):
            raise OptionError(f"regularizer is 'squared' or 'norm', got {regularizer!r}")
        _import()
        self.program, self.mu, self.regularizer = program.relax(), mu, regularizer
        self.solver_args = {
            "solve_method": "Clarabel",
            **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance),
            **dict.fromkeys(("n_jobs_forward", "n_jobs_backward"), threads),
            **(solver_args or {}),
        }
        self._compiled: dict[tuple[Any, ...], _Compiled] = {}

    def extra_repr(self) -> str:
        return f"{self.program!r}, mu={self.mu}, regularizer={self.regularizer!r}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_compiled": {}}

    def regularization(self, w: Tensor) -> Tensor:
        if self.regularizer == "squared":
            return self.mu / 2 * w.square().sum(-1)
        norm: Tensor = torch.linalg.vector_norm(w, dim=-1)
        return self.mu * norm

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        batch = y.shape[:-1]
        count, n = batch.numel(), self.program.n
        sides = self.program.sides(instance, count)
        self.program.equality_form().right_hand_side(sides)  # refuses what contradicts dropped rows
        c = self.objective.vector(y, instance).reshape(count, n).cpu().double()
        w, residual = c * 0, np.zeros(count)
        for rows in _alike(sides, count):
            part = sides.rows(rows)
            found, multipliers = self._implicit(c[rows], part)
            w = w.index_put((torch.as_tensor(rows),), found)
            residual[rows] = self._residual(c[rows].detach().numpy(), found.detach().numpy(), multipliers.numpy(), part)
        status = self._status(c.detach(), w.detach(), residual, sides)
        solved = torch.as_tensor(status == Status.OPTIMAL)
        w = torch.where((solved | torch.as_tensor(status == Status.FEASIBLE))[:, None], w, torch.nan)
        value = ((c * w).sum(-1) + self.regularization(w)).detach()
        return Solution(
            decision=w.to(y).reshape(*batch, n),
            status=torch.as_tensor(status).reshape(batch),
            objective=value.reshape(batch),
            bound=torch.where(solved, value, -torch.inf).reshape(batch),
            residual=torch.as_tensor(residual).reshape(batch),
        )

    def _implicit(self, c: Tensor, sides: Sides) -> tuple[Tensor, Tensor]:
        """w `(count, n)` for c `(count, n)`, and the multipliers of the rows.

        cvxpylayers copies tensors into arrays in a way that numpy deprecates, on the way back as well: hence both
        directions run here, where its warnings are kept from the caller.
        """
        layer, parameters = self._compile(sides).bind(sides)
        wanted = c.requires_grad and torch.is_grad_enabled()
        arguments = self.solver_args
        if not wanted:  # then diffcp refuses what belongs to the way back
            arguments = {name: value for name, value in arguments.items() if name not in BACKWARD_ONLY}
        leaf = c.detach().requires_grad_(wanted)
        with _quiet(), torch.set_grad_enabled(wanted):
            w, *multipliers = layer(leaf, *parameters, solver_args=arguments)

        def way_back(gradient: Tensor) -> Tensor:
            with _quiet(), torch.enable_grad():
                (back,) = torch.autograd.grad(w, leaf, gradient.detach(), retain_graph=True)
            return back

        def way_back_again(gradient: Tensor, decision: Tensor) -> Tensor:
            return symmetric(gradient, decision, way_back)

        rows = torch.cat([part.detach() for part in multipliers], -1) if multipliers else c.new_zeros(len(c), 0)
        again = way_back_again if self.regularizer == "squared" else NO_SECOND
        return with_gradient(c, w.detach(), way_back, again), rows.detach()

    def _compile(self, sides: Sides) -> _Compiled:
        """The program as a CVXPY layer in which c and what differs between the instances are parameters."""
        differs = set(sides.differing)
        if differs & {"lower", "upper"}:
            differs |= {"lower", "upper"}
        lower, upper = (sides.lines(name)[0] for name in ("lower", "upper"))
        fixed = lower == upper
        below, above = np.isfinite(lower) & ~fixed, np.isfinite(upper) & ~fixed
        key = (self.mu, *sorted(differs), fixed.tobytes(), below.tobytes(), above.tobytes())
        with _quiet():
            if key not in self._compiled:
                while len(self._compiled) >= KEPT:
                    del self._compiled[next(iter(self._compiled))]
                self._compiled[key] = self._write(differs, fixed, below, above)
            return self._compiled[key]

    def _write(self, differs: set[Side], fixed: np.ndarray, below: np.ndarray, above: np.ndarray) -> _Compiled:
        import cvxpy
        from cvxpylayers.torch import CvxpyLayer

        w, parameters = cvxpy.Variable(self.program.n), [cvxpy.Parameter(self.program.n)]
        slots: list[tuple[Side, np.ndarray]] = []

        def side(name: Side, where: np.ndarray) -> Any:
            if name not in differs:
                return getattr(self.program, name)[where]
            slots.append((name, where))
            parameters.append(cvxpy.Parameter(len(where)))
            return parameters[-1]

        rows, kept = [], self.program.equality_form().kept
        if len(kept):
            rows.append(self.program.A[kept] @ w == side("b", kept))
        if self.program.G.shape[0]:
            rows.append(self.program.G @ w <= side("h", np.arange(self.program.G.shape[0])))
        bounds = []
        # A variable whose bounds are equal is fixed by one equality: two inequalities would have no interior.
        kinds: tuple[tuple[np.ndarray, Side, Callable[[Any, Any], Any]], ...] = (
            (fixed, "lower", operator.eq),
            (below, "lower", operator.ge),
            (above, "upper", operator.le),
        )
        for mask, name, write in kinds:
            if mask.any():
                bounds.append(write(w[np.flatnonzero(mask)], side(name, np.flatnonzero(mask))))
        smoothing = self.mu / 2 * cvxpy.sum_squares(w) if self.regularizer == "squared" else self.mu * cvxpy.norm(w, 2)
        problem = cvxpy.Problem(cvxpy.Minimize(parameters[0] @ w + smoothing), rows + bounds)
        variables = [w, *(row.dual_variables[0] for row in rows)]
        return _Compiled(CvxpyLayer(problem, parameters, variables), slots)

    def _residual(self, c: np.ndarray, w: np.ndarray, multipliers: np.ndarray, sides: Sides) -> np.ndarray:
        """The distance of w and the multipliers from the optimality conditions, relative to the sizes of c, w and sides:
        the same in any units.

        Stationarity and bounds in one, with s = ∇(obj + Ω) + Aᵀλ + Gᵀν:  w = clip(w − s, lower, upper);
        rows:  A w = b  and  min(ν, h − G w) = 0.
        """
        A, G = self.program.A[self.program.equality_form().kept], self.program.G
        b = sides.b[..., self.program.equality_form().kept]
        nu = multipliers[:, A.shape[0] :]
        slope = c + (sp.vstack([A, G]).T @ multipliers.T).T
        size_of_w = _sizes(w, sides)
        pull = self.mu * size_of_w if self.regularizer == "squared" else self.mu
        size_of_c = np.maximum(np.abs(c).max(1, initial=0, keepdims=True), pull)
        step = size_of_w / size_of_c  # makes costs comparable with decisions
        length = np.linalg.norm(w, axis=1, keepdims=True)
        kink = (length <= AT_ZERO * size_of_w) & (self.regularizer == "norm")
        if self.regularizer == "squared":
            slope = slope + self.mu * w
        else:
            slope = slope + np.where(kink, 0, self.mu * w / np.maximum(length, np.finfo(float).tiny))
        gap = w - np.clip(w - step * slope, sides.lower, sides.upper)
        # At w = 0 every vector of length up to μ is a subgradient of μ‖w‖₂.
        excess = np.maximum(np.linalg.norm(gap, axis=1, keepdims=True) - step * self.mu, 0)
        parts = (
            np.where(kink, excess, np.abs(gap)) / size_of_w,
            np.abs((A @ w.T).T - b) / _terms(A, w, b, size_of_w),
            np.abs(np.minimum(step * nu, sides.h - (G @ w.T).T)) / _terms(G, w, sides.h, size_of_w),
        )
        worst: np.ndarray = np.max([part.max(1, initial=0) for part in parts], axis=0)
        return worst

    def _status(self, c: Tensor, w: Tensor, residual: np.ndarray, sides: Sides) -> np.ndarray:
        status = np.full(len(residual), int(Status.OPTIMAL), np.int8)
        for i in np.flatnonzero(~(residual <= SOLVED)):
            own = {name: torch.tensor(side) for name, side in sides.row(i).parts().items()}
            status[i] = self._why(c[i], w[i], Instance(**own))
        return status

    def _why(self, c: Tensor, w: Tensor, instance: Instance) -> Status:
        """The status of one instance, c and w `(n,)`, whose answer fails the optimality conditions."""
        ray = (w / torch.linalg.vector_norm(w)).numpy()
        falls = self.regularizer == "norm" and bool(c.numpy() @ ray + self.mu < 0)
        if falls and self._recedes(ray, instance):
            return Status.UNBOUNDED
        if bool(self.program.violation(w, instance) <= SOLVED):
            return Status.FEASIBLE
        from dflearn.solvers.highs import HiGHS

        zero = torch.zeros(self.program.p, dtype=torch.float64)
        anywhere = Instance(**instance.present(), d=torch.zeros_like(c))
        found = Status(int(HiGHS(self.program).solve(zero, anywhere).status))
        return Status.INFEASIBLE if found is Status.INFEASIBLE else Status.FAILED

    def _recedes(self, ray: np.ndarray, instance: Instance) -> bool:
        """Whether the program allows to go on for ever along a ray of length one, up to the accuracy of the solver."""
        A, G, sides = self.program.A, self.program.G, self.program.sides(instance, 1).row(0)
        lengths = [np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).reshape(-1)) for rows in (A, G)]
        gaps = (
            np.abs(A @ ray) - SOLVED * lengths[0],
            G @ ray - SOLVED * lengths[1],
            np.where(np.isfinite(sides.lower), -ray, -np.inf) - SOLVED,
            np.where(np.isfinite(sides.upper), ray, -np.inf) - SOLVED,
        )
        return all(bool((gap <= 0).all()) for gap in gaps)


@dataclass(frozen=True)
class _Compiled:
    """A CVXPY layer (c, *parameters) → (w, *multipliers), and which entries of which sides its parameters are."""

    layer: Any
    slots: list[tuple[Side, np.ndarray]]

    def bind(self, sides: Sides) -> tuple[Any, list[Tensor]]:
        """The layer and the values of its parameters `(count, k)`."""
        lines = {name: sides.lines(name) for name, _ in self.slots}
        count = max((len(line) for line in lines.values()), default=0)
        values = (np.broadcast_to(lines[name], (count, lines[name].shape[1]))[:, where] for name, where in self.slots)
        return self.layer, [torch.as_tensor(value) for value in values]


def _sizes(w: np.ndarray, sides: Sides) -> np.ndarray:
    """The largest of each decision, `(count, 1)`; where that is rounding beside right-hand sides and bounds, the largest of those."""
    own = np.abs(w).max(1, initial=0, keepdims=True)
    known = [np.where(np.isfinite(part), np.abs(part), 0.0).max(initial=0.0) for part in sides.parts().values()]
    size = max(known) or 1.0  # where all of them are zero, any length is as good as another
    return np.where(own > NOTHING * size, own, size)


def _terms(rows: Any, w: np.ndarray, right: np.ndarray, size: np.ndarray) -> np.ndarray:
    """|r_i| + Σ_j |a_ij w_j| of each row, `(count, rows)`, and at least a little of what decisions of that size could make it."""
    least = LITTLE * size * abs(rows).max(axis=1).toarray().reshape(1, -1) if rows.shape[0] else 0.0
    terms: np.ndarray = np.maximum(np.abs(right) + (abs(rows) @ np.abs(w).T).T, least)
    return np.where(terms > 0, terms, 1.0)


def _alike(sides: Sides, count: int) -> list[np.ndarray]:
    """The instances `(count,)` in groups whose bounds are finite, and equal, in the same places."""
    everyone = np.arange(count)
    lower, upper = sides.lower, sides.upper
    if not count or not {"lower", "upper"} & set(sides.differing):
        return [everyone] if count else []
    shape = (count, lower.shape[-1])
    kinds = [np.broadcast_to(kind, shape) for kind in (np.isfinite(lower), np.isfinite(upper), lower == upper)]
    _, group = np.unique(np.hstack(kinds), axis=0, return_inverse=True)
    return [everyone[group == number] for number in range(int(group.max()) + 1)]


_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings, one thread at a time: the list of warning filters belongs to the whole process."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _import() -> None:
    try:
        with _quiet():
            import cvxpylayers.torch  # noqa: F401
    except ImportError as error:
        raise MissingExtraError('CvxpySmoothed needs cvxpylayers: pip install "dflearn[cvxpy]"') from error
