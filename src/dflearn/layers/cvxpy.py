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
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.certify import OPTIMAL, SURE, Certifier
from dflearn.errors import MissingExtraError, OptionError
from dflearn.layers.base import Layer, PositiveWeight, refuse_quadratic, symmetric, with_gradient
from dflearn.layers.quadratic import Hard
from dflearn.program import Instance, Program, Quadratic
from dflearn.program.sides import Side, Sides
from dflearn.solvers.base import Solution, Status
from dflearn.solvers.convex import ConvexQP

RECEDES = 1e-5  # by how much a ray of length one may break a row of length one
AT_ZERO = 1e-6  # beside right-hand sides and bounds: a shorter decision may be the kink of ‖w‖₂
SECANTS, FAR = 12, 0.1  # steps of the search for κ; the share of μ from which on the solver's answer is no start for it
BACKWARD_ONLY = ("mode", "n_jobs_backward", "derivative_kwargs")
NO_SECOND = "CvxpySmoothed(regularizer='norm') has no second derivatives: use Smoothed(…, regularizer='norm')"
KEPT = 32  # how many shapes of the constraints stay compiled


class CvxpySmoothed(Layer):
    """w minimizes obj(y, w) + (μ/2)‖w‖² ("squared") or obj(y, w) + μ‖w‖₂ ("norm") over the LP relaxation.

    The gradient is the implicit one. Clarabel's statuses do not come through cvxpylayers: the rule of `certify` judges its answers. An
    answer that does not pass is finished on its face. Then an instance without an optimal answer is INFEASIBLE, UNBOUNDED or
    FAILED, and `Solution.reason` says why. Needs the extra `cvxpy`.

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
        self._certifier, equalities = Certifier(self.program), program.A.shape[0]
        self._places = np.append(self.program.equality_form().kept, equalities + np.arange(program.G.shape[0]))

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
        w, prices = c * 0, np.zeros((count, self.program.A.shape[0] + self.program.G.shape[0]))
        for rows in _alike(sides, count):
            found, multipliers = self._implicit(c[rows], sides.rows(rows))
            w = w.index_put((torch.as_tensor(rows),), found)
            prices[rows[:, None], self._places] = -multipliers.numpy()
        status, residual, reasons = np.zeros(count, np.int8), np.zeros(count), np.full(count, "", object)  # OPTIMAL
        exact = np.empty((count, n))
        for i in range(count):
            own, at, line = c[i].detach().numpy(), w[i].detach().numpy(), sides.row(i)
            if (
                self.regularizer == "norm"
                and np.linalg.norm(at) <= AT_ZERO * _size(line)
                and self._stays_at_zero(own, line)
            ):
                exact[i] = 0.0
                continue
            answer, reasons[i] = self._certified(own, at, prices[i], line)
            exact[i], residual[i] = answer.w, answer.error
            if not answer.error <= OPTIMAL:
                exact[i], status[i] = np.nan, self._why(own, at, line)
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
            reason=None if solved.all() else reasons,
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

    def _certified(self, c: np.ndarray, w: np.ndarray, y: np.ndarray, sides: Sides) -> tuple[Quality, str]:
        """An answer to one instance, c and w `(n,)`, y `(rows,)`, that passes the rule of `certify` if one is found, and why not.

        An interior point is near bounds, never at them: what does not pass is finished on its face. The norm is the squared
        regularizer with κ = μ/‖w‖, where w ≠ 0.
        """
        norm = self.regularizer == "norm"
        kappa = self.mu / max(float(np.linalg.norm(w)), np.finfo(float).tiny) if norm else self.mu
        if not (np.isfinite(w).all() and np.isfinite(kappa)):
            return Quality(w, y, np.inf), "the solver found no decision"
        w = np.clip(w, sides.lower, sides.upper)
        error, off = float(self._certifier.check(c[None], w[None], y[None], sides, kappa).error[0]), 0.0
        before = [(0.0, 0.0)]  # κ and how far κ‖w‖ was from μ
        for _ in range(SECANTS if error > OPTIMAL else 0):
            found = Hard(self._certifier).solve(c, kappa, sides, (w, y))
            if not np.isfinite(found.w).all():
                break
            w, y, error = found.w, found.y, found.residual
            off = kappa * float(np.linalg.norm(w)) / self.mu - 1.0 if norm else 0.0
            if abs(off) <= SURE or abs(off) > FAR:
                break
            before.append((kappa, off))
            (last, then), (now, _) = before[-2:]
            secant = now - off * (now - last) / (off - then) if last and off != then else 0.0
            kappa = secant if 0.5 * now < secant < 2 * now else now / (1 + off)
        reason = f"κ‖w‖ is off by {abs(off):.1e} of μ"
        if error > abs(off):
            reason = self._certifier.examine(c, w, y, sides, kappa).reason()
        error = max(error, abs(off))
        return Quality(w, y, error), "" if error <= OPTIMAL else reason

    def _stays_at_zero(self, c: np.ndarray, sides: Sides) -> bool:
        """Whether w = 0 minimizes cᵀw + μ‖w‖₂: −c pulls by no more than μ into the directions in which one may leave it."""
        program = self.program
        inside = (sides.lower <= 0).all() and (sides.upper >= 0).all() and not sides.b.any() and (sides.h >= 0).all()
        if not inside:
            return False
        cone = Program(
            A=program.A, b=0.0, G=program.G[sides.h == 0], h=0.0, n=program.n, Q=Quadratic(diagonal=np.ones(program.n)),
            lower=np.where(sides.lower < 0, -np.inf, 0.0), upper=np.where(sides.upper > 0, np.inf, 0.0),
        )  # fmt: skip
        found = ConvexQP(cone).best(c, cone.own_sides)
        if found is None:
            return False
        error = Certifier(cone).allow(c, found.w, found.y, cone.own_sides).error[0]
        return bool(error <= OPTIMAL and np.linalg.norm(found.w) <= self.mu * (1 + OPTIMAL))

    def _why(self, c: np.ndarray, w: np.ndarray, sides: Sides) -> Status:
        """The status of one instance, c and w `(n,)`, without an optimal answer."""
        ray, instance = w / np.linalg.norm(w), Instance(**{k: torch.tensor(v) for k, v in sides.parts().items()})
        if self.regularizer == "norm" and bool(c @ ray + self.mu < 0) and self._recedes(ray, instance):
            return Status.UNBOUNDED
        from dflearn.solvers.highs import HiGHS

        zero = torch.zeros(self.program.p, dtype=torch.float64)
        anywhere = Instance(**instance.present(), d=torch.zeros(len(c), dtype=torch.float64))
        found = Status(int(HiGHS(self.program).solve(zero, anywhere).status))
        return Status.INFEASIBLE if found is Status.INFEASIBLE else Status.FAILED

    def _recedes(self, ray: np.ndarray, instance: Instance) -> bool:
        """Whether the program allows to go on for ever along a ray of length one, up to the accuracy of the solver."""
        A, G, sides = self.program.A, self.program.G, self.program.sides(instance, 1).row(0)
        lengths = [np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).reshape(-1)) for rows in (A, G)]
        gaps = (
            np.abs(A @ ray) - RECEDES * lengths[0],
            G @ ray - RECEDES * lengths[1],
            np.where(np.isfinite(sides.lower), -ray, -np.inf) - RECEDES,
            np.where(np.isfinite(sides.upper), ray, -np.inf) - RECEDES,
        )
        return all(bool((gap <= 0).all()) for gap in gaps)


class Quality(NamedTuple):
    """An answer, decision and prices, and its error by the rule."""

    w: np.ndarray
    y: np.ndarray
    error: float


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


def _size(sides: Sides) -> float:
    """The largest right-hand side or bound of an instance; one, if all of them are zero."""
    return max(float(np.abs(part[np.isfinite(part)]).max(initial=0.0)) for part in sides.parts().values()) or 1.0


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
