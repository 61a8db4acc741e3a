"""The layers and the loss of the paper's authors: Davis-Yin layers to compare `DavisYin` with, and their CaVE.

`AsPublished` is the authors' code, in dense torch. `SparseAsPublished` has the same iterates from sparse rows; the paper's methods
train with it. `DenseJacobianFree` is the text's algorithm. All work on w ≥ 0 and one system of rows, bounds included:

    [C  I] (w)   (d)      C w ≤ d: inequalities and chosen upper bounds, a slack each,
    [A  0] (s) = (b)      A w = b: equalities,
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from dflearn.data import Batch
from dflearn.errors import OptionError, ProgramError, ShapeError
from dflearn.layers.base import Layer, with_gradient
from dflearn.losses.base import Field, Loss, LossOutput
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status

if TYPE_CHECKING:
    from dflearn.engine.davis_yin.data import SplittingRows
    from dflearn.problems.base import Problem

SMALLEST_SINGULAR_VALUE = 1e-3
EXTRA_REGULARIZATION = 1e-6
DECAY = 0.1
NO_SECOND_DERIVATIVES = "SparseAsPublished has no second derivatives; AsPublished, the dense layer, has"


class _Published(Layer):
    """A layer on w ≥ 0 with some upper bounds as rows. It computes in `dtype`, for costs of any dtype.

    Attributes:
        extended: the program whose inequalities are C w ≤ d, and whose variables have no bounds.
        width: variables and slacks.
    """

    program: Program

    def __init__(
        self,
        problem: Problem | Program,
        tau: float,
        alpha: float = 0.01,
        iterations: int = 100,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        program = problem if isinstance(problem, Program) else problem.program
        super().__init__(program.objective)
        name = type(self).__name__
        if not (tau >= 0 and alpha > 0 and iterations >= 1):
            given = f"{tau}, {alpha} and {iterations}"
            raise ProgramError(f"{name} needs a regularization ≥ 0, alpha > 0 and iterations ≥ 1; got {given}")
        if (program.lower != 0).any():
            raise ProgramError(f"{name} takes lower bounds of zero only; use DavisYin, which takes any bounds")
        if dtype not in (torch.float32, torch.float64):
            raise OptionError(f"{name} computes in torch.float32 or torch.float64, not in {dtype}")
        self.program, self.alpha, self.iterations, self.dtype = program.relax(), float(alpha), int(iterations), dtype
        bounded = np.flatnonzero(_bounded(program))
        self.bounds = program.upper[bounded]
        self.extended = Program(
            n=program.n, A=program.A, b=program.b, lower=-np.inf,
            G=sp.vstack([program.G, sp.eye_array(program.n, format="csr")[bounded]]),
            h=np.concatenate([program.h, self.bounds]),
        )  # fmt: skip
        self.width = program.n + self.extended.G.shape[0]
        self.tau, self.rho = float(tau), EXTRA_REGULARIZATION + float(tau)
        self.generator = torch.Generator().manual_seed(0) if generator is None else generator

    def extra_repr(self) -> str:
        return f"{self.program!r}, tau={self.tau}, alpha={self.alpha}, iterations={self.iterations}"

    def get_extra_state(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])

    def steps(self) -> list[float]:
        """α_0 … α_{N−1}, then α."""
        decaying = [self.alpha * (1 - i / self.iterations) ** DECAY for i in range(self.iterations)]
        return [*decaying, self.alpha]

    def draw(self, count: int) -> Tensor:
        """z ~ N(0, 1), `(count, n + slacks)`: the same float32 numbers for any dtype."""
        return torch.randn((count, self.width), generator=self.generator)

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        batch, n = y.shape[:-1], self.program.n
        given = set() if instance is None else instance.present().keys()
        if {"lower", "upper"} & given:
            raise ShapeError(f"{type(self).__name__} has its bounds as rows: an instance may change b, h and d only")
        costs = self.objective.vector(y, instance).reshape(-1, n)
        sides = self.extended.own_sides
        if {"b", "h"} & given:
            own = self.program.sides(instance, len(costs))
            bounds = np.broadcast_to(self.bounds, (*own.h.shape[:-1], len(self.bounds)))
            sides = Sides(own.b, np.concatenate([own.h, bounds], -1), sides.lower, sides.upper)
        w = self._decide(costs.to(self.dtype), sides)
        value = (costs.detach() * w.detach()).sum(-1, dtype=torch.float64)  # NaN if any of w is
        status = torch.where(torch.isfinite(value), int(Status.FEASIBLE), int(Status.FAILED)).to(torch.int8)
        return Solution(
            decision=w.to(y.dtype).reshape(*batch, n),
            status=status.cpu().reshape(batch),
            objective=value.cpu().reshape(batch),
            bound=torch.full(batch, -torch.inf, dtype=torch.float64),
        )

    @abstractmethod
    def _decide(self, costs: Tensor, sides: Sides) -> Tensor:
        """c `(count, n)` → w `(count, n)`, differentiable. sides: of `extended`."""


class AsPublished(_Published):
    """DYS-Net as in the paper's code; autograd through all iterations.

    From z ~ N(0, 1), with N iterations and α_i = α (1 − i/N)^0.1 for i = 0 … N − 1, then once more with α itself:

        z ← z − P₂z + P₁((2 − τ α_i) P₂z − z − α_i (c + (10⁻⁶ + τ) z)),    w = P₂z = max(0, z),

    P₁ the projection onto the rows. The regularizer enters twice and smooths the slacks too. At the published α = 0.01 the
    iterations are far from their limit, so the result depends on the random start.

    Args:
        problem: one of the paper's problems, or its program. The name decides which upper bounds become rows: SP-… none, KP-…
            all, CFL-… those of the facilities. The others are dropped, and then integrality.
        tau: τ ≥ 0.
        alpha, iterations: α and N.
        generator: of the starts; default: a new one with seed 0. Part of `state_dict`.
        dtype: of the computation; the authors' code has float32.
    """

    matrix: Tensor  # Mᵀ = V Σ Uᵀ, of the rows M (w, s) = r
    U: Tensor
    inverse_values: Tensor
    V: Tensor

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        G, A = self.extended.G, self.extended.A
        rows = sp.block_array([[G, sp.eye_array(G.shape[0])], [A, None]])
        matrix = torch.tensor(rows.toarray(), dtype=self.dtype)
        U, values, V = torch.linalg.svd(matrix, full_matrices=False)
        kept = values > SMALLEST_SINGULAR_VALUE
        U, V = U[:, kept].contiguous(), V[kept].contiguous()
        for name, value in {"matrix": matrix.T, "U": U, "inverse_values": 1 / values[kept], "V": V}.items():
            self.register_buffer(name, value, persistent=False)

    def _decide(self, costs: Tensor, sides: Sides) -> Tensor:
        step, z = self._iteration(costs, sides), self.draw(len(costs)).to(costs)
        for alpha in self.steps():
            z = step(z, alpha)
        return z.clamp(min=0)[:, : self.program.n]

    def _iteration(self, costs: Tensor, sides: Sides) -> Callable[[Tensor, float], Tensor]:
        """(z, α_i) → the next z, where P₁(v) = v − V Σ⁻¹ Uᵀ (M v − r)."""
        h, b = sides.lines("h"), sides.lines("b")
        both = [np.broadcast_to(part, (max(len(h), len(b)), part.shape[1])) for part in (h, b)]
        right = torch.tensor(np.hstack(both)).to(self.matrix)
        c = torch.nn.functional.pad(costs, (0, self.width - self.program.n))

        def step(z: Tensor, alpha: float) -> Tensor:
            x = z.clamp(min=0)
            v = (2 - self.tau * alpha) * x - z - alpha * (c + self.rho * z)
            return z - x + v - ((v @ self.matrix - right) @ self.U * self.inverse_values) @ self.V

        return step


class SparseAsPublished(_Published):
    """The iterates of `AsPublished` up to rounding, and their unrolled gradient, by a sparse factor of the rows.

    Same arguments, same starts from the same generator. The dense layer drops singular values of the rows up to 10⁻³; this one
    drops dependent rows, which differs only if rows are almost dependent. No second derivatives.
    """

    compiles_by_batch = True

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "rows"}

    @cached_property
    def rows(self) -> SplittingRows:
        """The rows for the kernels, made at the first solve, so that the layer imports without numba."""
        from dflearn.engine.davis_yin.data import SplittingRows

        return SplittingRows(self.extended)

    def _decide(self, costs: Tensor, sides: Sides) -> Tensor:
        from dflearn.studies.paper.iteration import run

        record, start, steps = (
            costs.requires_grad and torch.is_grad_enabled(),
            self.draw(len(costs)),
            np.array(self.steps()),
        )
        w, backward = run(self.rows, self.tau, self.rho, steps, costs, start, sides, self.dtype, record)
        return with_gradient(costs, torch.from_numpy(w).to(costs), lambda g, _: backward(g), NO_SECOND_DERIVATIVES)


class DenseJacobianFree(AsPublished):
    """The text's iteration on the dense system with the Jacobian-free gradient: what `DavisYin(gradient="jfb")` speeds up.

        z ← z − P₂z + P₁((2 − α μ) P₂z − z − α c)  from z = 0,  w = P₂z;  autograd through the last iteration only.

    Smooths the slacks too, unlike `DavisYin`. Arguments as of `AsPublished`, with μ ≥ 0 in place of τ.
    """

    def __init__(self, problem: Problem | Program, mu: float, alpha: float = 0.01, iterations: int = 100) -> None:
        super().__init__(problem, mu, alpha, iterations)
        self.rho = 0.0

    def _decide(self, costs: Tensor, sides: Sides) -> Tensor:
        step, z = self._iteration(costs, sides), costs.new_zeros(len(costs), self.width)
        with torch.no_grad():
            for _ in range(self.iterations - 1):
                z = step(z, self.alpha)
        return step(z, self.alpha).clamp(min=0)[:, : self.program.n]


def _bounded(program: Program) -> np.ndarray:
    """Which variables get a row for their upper bound, as published, `(n,)`: all of KP, the facilities of CFL, none of SP."""
    kind, finite = program.name.split("-")[0], np.isfinite(program.upper)
    rows = {"SP": np.zeros_like(finite), "KP": finite, "CFL": finite & program.integer}
    if kind not in rows or (kind == "CFL" and not program.is_integer):
        known = "programs named SP-…, KP-… and CFL-… only, the last with its integers"
        raise ProgramError(f"which upper bounds become rows is published for {known}; this is {program!r}")
    return rows[kind]


# -- CaVE ---------------------------------------------------------------------------------------------------------------
#
# An interior-point method on the multipliers, stopped after three steps. Its point then depends on the solver and on the form of
# the problem, and on knapsacks the regret depends on that point a lot. So the published rows need this solver and form;
# `dflearn.losses.CaVE` is ours.

TIGHT = 1e-5  # a row with less slack, or a variable nearer to 0 or 1, is binding
KEPT = 1024  # decisions whose problems are kept: more than the paper's training sets have


class CaVEAsPublished(Loss):
    """1 − cos(v, p),   v = −(S ŷ + d),   p = Nᵀλ after `iterations` of Clarabel towards min over λ ≥ 0 of ‖v − Nᵀλ‖².

    The rows of N bind at w*: inequalities, equalities in both directions, −e_j where w*_j = 0, e_j where w*_j = 1. For programs
    with variables between 0 and 1, as in the paper.
    """

    needs: tuple[Field, ...] = ("decisions",)

    def __init__(self, program: Program, iterations: int = 3) -> None:
        super().__init__()
        import clarabel

        self.program, self.clarabel = program, clarabel
        self.settings = clarabel.DefaultSettings()
        self.settings.verbose, self.settings.max_iter, self.settings.max_threads = False, int(iterations), 1
        self._problem_at = lru_cache(KEPT)(self._problem)

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        v = -self.program.objective.vector(predicted)
        vectors = v.detach().double().numpy().reshape(-1, self.program.n)
        decisions = batch.require("decisions").double().numpy().reshape(-1, self.program.n)
        found = np.stack([self.project(*pair) for pair in zip(vectors, decisions, strict=True)])
        target = torch.as_tensor(found).to(v).reshape(v.shape)
        return LossOutput(1.0 - cosine_similarity(v, target, dim=-1))

    def project(self, v: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Clarabel's point after its last step: near the projection of v `(n,)` onto the cone at w `(n,)`."""
        normals, quadratic, matrix = self._problem_at(w.tobytes())
        rows, n = normals.shape
        cones: list[Any] = [self.clarabel.ZeroConeT(n), self.clarabel.NonnegativeConeT(rows)]
        side = np.concatenate([v, np.zeros(rows)])
        solver = self.clarabel.DefaultSolver(quadratic, np.zeros(rows + n), matrix, side, cones, self.settings)
        return normals.T @ np.array(solver.solve().x[:rows])

    def normals(self, w: np.ndarray) -> sp.csr_matrix:
        """N, `(binding, n)`."""
        program, unit = self.program, sp.eye(self.program.n, format="csr")
        tight = np.flatnonzero(np.abs(program.h - program.G @ w) < TIGHT)
        low, high = np.flatnonzero(w <= TIGHT), np.flatnonzero(w >= 1 - TIGHT)
        return sp.csr_matrix(sp.vstack([program.G[tight], program.A, -program.A, -unit[low], unit[high]]))

    def _problem(self, decision: bytes) -> tuple[sp.csr_matrix, sp.csc_matrix, sp.csc_matrix]:
        """N, and the problem over (λ, r) in Clarabel's form:  min ‖r‖²   s.t.   Nᵀλ + r = v,   λ ≥ 0."""
        normals = self.normals(np.frombuffer(decision))
        rows, n = normals.shape
        quadratic = sp.block_diag([sp.csc_matrix((rows, rows)), 2 * sp.eye(n)], format="csc")
        matrix = sp.block_array([[normals.T, sp.eye(n)], [-sp.eye(rows), None]], format="csc")
        return normals, quadratic, matrix
