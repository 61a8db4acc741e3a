"""The Davis-Yin layers of the literature: the baselines that `DavisYin` is measured against.

`AsPublished` is the authors' own, in dense torch; `SparseAsPublished` has the same iterates from a fused kernel, and is what the
paper's methods train with; `DenseJacobianFree` is the text's. All work on w ≥ 0 and one system of rows, in which bounds are
rows too:

    [C  I] (w)   (d)      C w ≤ d: inequalities and chosen upper bounds, a slack each,
    [A  0] (s) = (b)      A w = b: equalities,
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from dflearn.errors import OptionError, ProgramError, ShapeError
from dflearn.layers.base import Layer, with_gradient
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution, Status

if TYPE_CHECKING:
    from dflearn.paper.sparse_rows import PublishedRows

UpperBoundRows = Literal["all", "none", "integer"] | np.ndarray
PUBLISHED_ROWS: dict[str, UpperBoundRows] = {"SP": "none", "KP": "all", "CFL": "integer"}  # by kind of problem
SMALLEST_SINGULAR_VALUE = 1e-3
EXTRA_REGULARIZATION = 1e-6
DECAY = 0.1
NO_SECOND_DERIVATIVES = "SparseAsPublished has no second derivatives; AsPublished, the dense layer, has"


class HasProgram(Protocol):
    """A problem: something with a program."""

    @property
    def program(self) -> Program: ...


class _BoundsAsRows(Layer):
    """A layer on w ≥ 0 with the chosen upper bounds as rows; it computes in `dtype`, whatever the costs are."""

    program: Program

    def __init__(
        self,
        problem: HasProgram | Program,
        regularization: float,
        alpha: float,
        iterations: int,
        upper_bound_rows: UpperBoundRows | None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        program = problem if isinstance(problem, Program) else problem.program
        super().__init__(program.objective)
        name = type(self).__name__
        if not (regularization >= 0 and alpha > 0 and iterations >= 1):
            raise ProgramError(
                f"{name} needs a regularization ≥ 0, alpha > 0 and iterations ≥ 1; "
                f"got {regularization}, {alpha} and {iterations}"
            )
        if (program.lower != 0).any():
            raise ProgramError(f"{name} knows lower bounds of zero only; use DavisYin, which takes any bounds")
        if dtype not in (torch.float32, torch.float64):
            raise OptionError(f"{name} computes in torch.float32 or torch.float64, not in {dtype}")
        self.program, self.alpha, self.iterations = program.relax(), float(alpha), int(iterations)
        self.bounded, self.dtype = _bounded(program, upper_bound_rows), dtype

    def extra_repr(self) -> str:
        return f"{self.program!r}, alpha={self.alpha}, iterations={self.iterations}"

    @property
    def width(self) -> int:
        """Variables, slacks of inequalities and slacks of upper bounds."""
        return self.program.n + self.program.G.shape[0] + int(self.bounded.sum())

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        batch, n = y.shape[:-1], self.program.n
        if instance is not None and {"lower", "upper"} & instance.present().keys():
            raise ShapeError(
                f"{type(self).__name__} has its bounds in its rows: an instance may change b, h and d only"
            )
        costs = self.objective.vector(y, instance).reshape(-1, n)
        w = self._decide(costs.to(self.dtype), instance)
        value = (costs.detach() * w.detach()).sum(-1, dtype=torch.float64)  # a number only where all of w are numbers
        status = torch.where(torch.isfinite(value), int(Status.FEASIBLE), int(Status.FAILED)).to(torch.int8)
        return Solution(
            decision=w.to(y.dtype).reshape(*batch, n),
            status=status.cpu().reshape(batch),
            objective=value.cpu().reshape(batch),
            bound=torch.full(batch, -torch.inf, dtype=torch.float64),
        )

    @abstractmethod
    def _decide(self, costs: Tensor, instance: Instance | None) -> Tensor:
        """c `(count, n)` → w `(count, n)`, differentiable."""


class _Dense(_BoundsAsRows):
    """The dense system, its pseudo-inverse, and the two projections: P₁ onto the rows, P₂ = max(0, ·)."""

    V: Tensor
    inverse_values: Tensor
    U: Tensor
    matrix: Tensor
    right: Tensor

    def __init__(
        self,
        problem: HasProgram | Program,
        regularization: float,
        alpha: float,
        iterations: int,
        upper_bound_rows: UpperBoundRows | None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(problem, regularization, alpha, iterations, upper_bound_rows, dtype)
        program, rows = self.program, np.flatnonzero(self.bounded)
        C = np.vstack([program.G.toarray(), np.eye(program.n)[rows]])
        top = np.hstack([C, np.eye(len(C))])
        bottom = np.hstack([program.A.toarray(), np.zeros((program.A.shape[0], len(C)))])
        matrix = torch.tensor(np.vstack([top, bottom]), dtype=dtype)
        U, values, V = torch.linalg.svd(matrix, full_matrices=False)
        kept = values > SMALLEST_SINGULAR_VALUE
        for key, value in (
            ("matrix", matrix.T),
            ("U", U[:, kept].contiguous()),
            ("inverse_values", 1 / values[kept]),
            ("V", V[kept].contiguous()),
            ("right", torch.tensor(np.concatenate([program.h, program.upper[rows], program.b]), dtype=dtype)),
        ):
            self.register_buffer(key, value, persistent=False)

    def project_onto_rows(self, z: Tensor, right: Tensor) -> Tensor:
        """P₁(z) = z − V Σ⁻¹ Uᵀ (M z − right), z `(count, n + slacks)`."""
        return z - ((z @ self.matrix - right) @ self.U * self.inverse_values) @ self.V

    def _decide(self, costs: Tensor, instance: Instance | None) -> Tensor:
        n = self.program.n
        c = torch.nn.functional.pad(costs, (0, self.width - n))
        return self._iterate(c, self._right_hand_side(instance, len(c)))[:, :n]

    def _right_hand_side(self, instance: Instance | None, count: int) -> Tensor:
        if instance is None or not {"b", "h"} & instance.present().keys():
            return self.right
        sides = self.program.sides(instance, count)
        parts = (sides.h, self.program.upper[self.bounded], sides.b)
        return torch.tensor(
            np.hstack([np.broadcast_to(part, (count, part.shape[-1])) for part in parts]),
            dtype=self.dtype,
            device=self.right.device,
        )

    @abstractmethod
    def _iterate(self, c: Tensor, right: Tensor) -> Tensor:
        """c `(count, n + slacks)` → P₂ of the last z, differentiable."""


class _RandomStart(_BoundsAsRows):
    """What is published beside the projections: τ, the steps, and the starts and where they come from."""

    def __init__(
        self,
        problem: HasProgram | Program,
        tau: float,
        alpha: float = 0.01,
        iterations: int = 100,
        *,
        generator: torch.Generator | None = None,
        upper_bound_rows: UpperBoundRows | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(problem, tau, alpha, iterations, upper_bound_rows, dtype)
        self.tau = float(tau)
        self.generator = torch.Generator().manual_seed(0) if generator is None else generator

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, tau={self.tau}"

    def get_extra_state(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])

    @property
    def rho(self) -> float:
        """ρ = 10⁻⁶ + τ, the regularization of z; τ is that of P₂z."""
        return EXTRA_REGULARIZATION + self.tau

    def steps(self) -> list[float]:
        """α_0 … α_{N−1}, then α."""
        decaying = [self.alpha * (1 - i / self.iterations) ** DECAY for i in range(self.iterations)]
        return [*decaying, self.alpha]

    def draw(self, count: int) -> Tensor:
        """z ~ N(0, 1), `(count, n + slacks)`: float32 numbers in any dtype, so that all have the same."""
        return torch.randn((count, self.width), generator=self.generator)


class AsPublished(_RandomStart, _Dense):
    """DYS-Net as the paper's code runs it, for comparison with its tables; autograd through all iterations.

    From z ~ N(0, 1), with N iterations and α_i = α (1 − i/N)^0.1 for i = 0 … N − 1, then once more with α itself:

        z ← z − P₂z + P₁((2 − τ α_i) P₂z − z − α_i (c + (10⁻⁶ + τ) z)),    w = P₂z.

    The regularizer enters twice and smooths the slacks too. At the published α = 0.01 the iterations are far from their
    limit, so that the result depends on the random start. The reference of `SparseAsPublished`.

    Args:
        problem: one of the paper's problems, or any program with w ≥ 0; integrality is dropped afterwards.
        tau: τ ≥ 0.
        alpha, iterations: α and N.
        generator: where the starts come from; the layer has a generator of its own, with seed 0, otherwise. Part of
            `state_dict`.
        upper_bound_rows: which finite upper bounds become rows; the others are dropped. "all", "none", "integer" (those
            of integer variables) or a mask `(n,)`. Default: as published for programs named SP-… ("none"), KP-… ("all")
            and CFL-… ("integer", the facilities); needed for others.
        dtype: in which it computes, whatever the costs are; the authors' code has float32.
    """

    def _iterate(self, c: Tensor, right: Tensor) -> Tensor:
        z = self.draw(len(c)).to(c)
        for alpha in self.steps():
            x = z.clamp(min=0)
            slope = c + self.rho * z
            z = z - x + self.project_onto_rows((2 - self.tau * alpha) * x - z - alpha * slope, right)
        return z.clamp(min=0)


class SparseAsPublished(_RandomStart):
    """The iterates of `AsPublished` up to rounding, and their unrolled gradient, sparse and fused: `dflearn.paper.iteration`.

    Same arguments, same starts from the same generator. The dense layer drops singular values of the rows up to 10⁻³; this
    one drops rows that are combinations of others, which is the same unless rows are nearly, but not quite, dependent. No
    second derivatives.
    """

    compiles_by_batch = True

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "rows"}

    @cached_property
    def rows(self) -> PublishedRows:
        """The rows on the compiled side, made when they are first needed."""
        from dflearn.paper.sparse_rows import PublishedRows

        return PublishedRows(self.program, self.bounded)

    def _decide(self, costs: Tensor, instance: Instance | None) -> Tensor:
        from dflearn.paper.sparse_rows import PublishedRun

        count = len(costs)
        record = costs.requires_grad and torch.is_grad_enabled()
        run = PublishedRun(self, costs, self.draw(count), self.program.sides(instance, count), record)
        w = torch.from_numpy(run.w).to(costs)
        return with_gradient(costs, w, run.way_back, NO_SECOND_DERIVATIVES)


class DenseJacobianFree(_Dense):
    """The text's iteration on the dense system with the Jacobian-free gradient: what `DavisYin(gradient="jfb")` speeds up.

        z ← z − P₂z + P₁((2 − α μ) P₂z − z − α c)  from z = 0,  w = P₂z;  autograd through the last iteration only.

    Smooths the slacks too, unlike `DavisYin`. Arguments as of `AsPublished`, with μ ≥ 0 in place of τ.
    """

    def __init__(
        self,
        problem: HasProgram | Program,
        mu: float,
        alpha: float = 0.01,
        iterations: int = 100,
        *,
        upper_bound_rows: UpperBoundRows | None = None,
    ) -> None:
        super().__init__(problem, mu, alpha, iterations, upper_bound_rows)
        self.mu = float(mu)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mu={self.mu}"

    def _iterate(self, c: Tensor, right: Tensor) -> Tensor:
        z = torch.zeros_like(c)
        with torch.no_grad():
            for _ in range(self.iterations - 1):
                z = self._step(z, c, right)
        return self._step(z, c, right).clamp(min=0)

    def _step(self, z: Tensor, c: Tensor, right: Tensor) -> Tensor:
        x = z.clamp(min=0)
        return z - x + self.project_onto_rows((2 - self.alpha * self.mu) * x - z - self.alpha * c, right)


def _bounded(program: Program, rows: UpperBoundRows | None) -> np.ndarray:
    """Which variables get a row for their upper bound, `(n,)`."""
    if rows is None:
        kind = program.name.split("-")[0]
        if kind not in PUBLISHED_ROWS:
            raise ProgramError(
                f"which upper bounds become rows is published for SP, KP and CFL only, and this is {program.name!r}; "
                "pass upper_bound_rows='all', 'none', 'integer' or a mask"
            )
        rows = PUBLISHED_ROWS[kind]
    finite = np.isfinite(program.upper)
    if not isinstance(rows, str):
        mask = np.asarray(rows)
        if mask.shape != finite.shape or mask.dtype != bool or (mask & ~finite).any():
            raise ProgramError(
                f"upper_bound_rows as a mask is boolean, ({program.n},), and true at finite upper bounds only"
            )
        return mask
    if rows == "integer" and not program.is_integer:
        raise ProgramError(
            f"{program.name!r} has no integer variables, so none has a row for its upper bound; do not relax it"
        )
    choices = {"all": finite, "none": np.zeros_like(finite), "integer": finite & program.integer}
    if rows not in choices:
        raise ProgramError(f"upper_bound_rows is 'all', 'none', 'integer' or a mask; got {rows!r}")
    return choices[rows]
