"""One batch of `DavisYin`: iterations by a backend, statuses by the rule of optimality, gradients by one of three rules.

This module imports numba. The layer imports it when it solves for the first time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.certify import ROUNDING, Certifier
from dflearn.engine.cuda.splitting import SplittingBlocks
from dflearn.engine.davis_yin.batch import LARGEST, Answer, Backend, Batch
from dflearn.engine.davis_yin.compiled import Compiled
from dflearn.engine.davis_yin.dense import Dense
from dflearn.engine.davis_yin.rows import SplittingRows
from dflearn.errors import OptionError
from dflearn.layers.base import as_rows
from dflearn.program.sides import Sides
from dflearn.solvers.base import Status
from dflearn.solvers.convex import ConvexQP

RESOLUTION = {torch.float32: 1e-5, torch.float64: 1e-12}  # errors that each dtype reaches
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Run:
    """One batch and its answer, kept for the gradient. tolerance: `None` for a fixed number of iterations."""

    batch: Batch
    backend: Backend
    answer: Answer
    tolerance: float | None

    @classmethod
    def of(
        cls,
        rows: SplittingRows,
        costs: Tensor,
        sides: Sides,
        q: np.ndarray | None,
        *,
        mu: float,
        step: float | None,
        limit: int,
        tolerance: float | None,
        start: np.ndarray | None,
        record: bool,
        on_gpu: bool,
    ) -> Run:
        """c `(*batch, n)`. record: keep what the unrolled gradient needs. on_gpu: iterate where the costs are, without a tolerance."""
        Q, count = rows.program.Q, costs.shape[:-1].numel()
        dtype = torch.float64 if costs.dtype == torch.float64 else torch.float32
        norm = np.asarray((0.0 if Q is None else Q.norm) + (0.0 if q is None else q.max(1, initial=0.0)))
        if q is not None and step is not None and (step * (mu + norm) >= 2).any():
            stop = float((2 / (mu + norm)).min())
            raise OptionError(f"with the instances' q, the iterations converge for steps 0 < α < {stop:g}; got {step}")
        backend: Backend
        if on_gpu:
            blocks = SplittingBlocks.fitting(rows, dtype, costs.device, count, limit if record else 0)
            backend = blocks or Dense.of(rows, dtype, costs.device)
        else:
            backend = Compiled.of(rows, dtype, CPU)
        batch = Batch(_rows(costs, count, backend), sides, mu, norm, q, step, Q is not None or q is not None)
        if tolerance is None:
            return cls(batch, backend, backend.iterate(batch, limit, record=record), None)
        tolerance = max(tolerance, RESOLUTION[dtype])
        compiled = Compiled.of(rows, dtype, CPU)
        answer = compiled.iterate(batch, limit, record=record, start=start, tolerance=tolerance)
        return cls(batch, compiled, answer, tolerance)

    def outcome(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """w `(count, n)`, NaN where there is no decision; statuses, objectives and residuals `(count,)`."""
        if self.tolerance is not None:
            self._allow()
        answer, none = self.answer, Status.FAILED if self.tolerance is None else Status.NOT_FOUND
        optimal = Status.FEASIBLE if self.tolerance is None else Status.OPTIMAL
        known = answer.residual <= (self.tolerance or LARGEST)
        status = torch.where(known, int(optimal), int(none)).to(torch.int8)
        if self.tolerance is not None and not bool(known.all()):
            status[answer.residual.isnan()] = int(Status.FAILED)
            with np.errstate(invalid="ignore", over="ignore"):
                self._explain(status)
        w, value = torch.where(known[:, None], answer.w, torch.nan), torch.where(known, answer.value, torch.nan)
        return w, status, value, answer.residual

    def backward(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient, `(*batch, n)` → `(*batch, n)`: through all iterations if they were recorded, or through the last."""
        g = _rows(gradient, len(self.batch.c), self.backend)
        return self.backend.back(g, self.batch, self.answer).reshape(gradient.shape).to(gradient)

    def face(self) -> tuple[np.ndarray, np.ndarray]:
        """Which variables lie inside their bounds `(count, n)`, which inequalities are in force `(count, slacks)`; 1 or 0."""
        n, inside = self.batch.c.shape[1], self.answer.inside.cpu().numpy()
        return np.ascontiguousarray(inside[:, :n]), 1 - inside[:, n:]

    def _allow(self) -> None:
        """Judge the instances that move no more and are not optimal again: is that rounding?"""
        answer, rows, tolerance = self.answer, self.backend.rows, self.tolerance
        assert answer.moved is not None
        assert answer.prices is not None
        assert tolerance is not None
        for i in ((answer.residual > tolerance) & (answer.moved <= tolerance)).nonzero().flatten().tolist():
            sides, certifier, mu = self.batch.sides.row(i), rows.certifier, self.batch.mu
            if self.batch.q is not None:
                certifier = Certifier(replace(rows.program, Q=rows.quadratic(self.batch.q[i])))
            c, w = (part[i].double().numpy() for part in (self.batch.c, answer.w))
            w, y, verdict = certifier.tidy(c, np.clip(w, sides.lower, sides.upper), answer.prices[i].numpy(), sides, mu)
            if verdict.error[0] > tolerance:
                rounding = max(ROUNDING, 4 * torch.finfo(answer.w.dtype).eps)  # of the numbers that were computed with
                verdict = certifier.examine(c, w, y, sides, mu).verdict(rounding=rounding)
            answer.residual[i], answer.w[i] = float(verdict.error[0]), torch.from_numpy(w)

    def _explain(self, status: Tensor) -> None:
        """Prove that instances without an answer are infeasible or, without smoothing, unbounded."""
        program, batch = self.backend.rows.program, self.batch
        missing = (status == Status.NOT_FOUND).nonzero().flatten().numpy()
        if not len(missing):
            return
        convex = ConvexQP(program)
        infeasible = convex.linear.proven_infeasible(batch.sides.rows(missing), len(missing))
        status[missing[infeasible]] = int(Status.INFEASIBLE)
        for i in [] if batch.mu else missing[~infeasible].tolist():
            if batch.q is not None:
                convex = ConvexQP(replace(program, Q=self.backend.rows.quadratic(batch.q[i])))
            none = convex.no_decision(batch.c[i].double().numpy(), batch.sides.row(i))
            status[i] = int(Status.NOT_FOUND if none is None else none)


def _rows(x: Tensor, count: int, backend: Backend) -> Tensor:
    """`(*batch, k)` as `(count, k)` for a backend."""
    if backend.device.type == "cpu":
        return torch.from_numpy(as_rows(x, count, backend.numbers))
    return x.detach().reshape(count, x.shape[-1]).to(backend.device, backend.dtype)
