"""What candidates are judged by: the regret of their decisions on rows that they did not see; and progress on stderr."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dflearn.data import DecisionDataset
from dflearn.data.labels import solve_cached
from dflearn.evaluation import regrets_of
from dflearn.solvers.base import Solver, Status

EVERY = 10.0  # seconds between passing lines, where each stays


class Progress:
    """Lines on stderr: `tell` for one that stays, `pass_by` for one that the next line replaces."""

    def __init__(self, show: bool) -> None:
        self.show, self.begun, self.last = show, time.perf_counter(), time.perf_counter()

    def tell(self, line: str) -> None:
        self._write(f"[{time.perf_counter() - self.begun:4.0f} s] {line}\n")

    def pass_by(self, line: str) -> None:
        if sys.stderr.isatty():
            self._write(line[:100])
        elif time.perf_counter() - self.last > EVERY:
            self.tell(line)

    def done(self) -> None:
        self._write("")

    def _write(self, text: str) -> None:
        if self.show:
            print("\r\033[K" * sys.stderr.isatty() + text, end="", file=sys.stderr, flush=True)
            self.last = time.perf_counter()


class Judge:
    """The regret of predictions on labelled rows: on the true program, and on its relaxation, which costs less."""

    def __init__(self, solver: Solver, relaxed: Solver, data: DecisionDataset, cache: str | Path | None = None) -> None:
        self.solver, self.relaxed, self.data, self.cache = solver, relaxed, data, cache
        self.costs, self.best = data.batch().require("costs"), data.batch().require("decisions")
        self.same = solver is relaxed or solver.program is None or not solver.program.is_integer
        if not self.same:
            self.best_relaxed = relaxed.solve(self.costs, data.instance).check().decision

    def regrets(self, predicted: Tensor) -> np.ndarray:
        """`(rows, p)` → `(rows,)`, infinite where the predictions leave no decision; times weights of mean one, so that their
        plain mean is the weighted one."""
        return self._of(self.solver, predicted, self.best, self.cache)

    def relaxed_regrets(self, predicted: Tensor) -> np.ndarray:
        """The same on the relaxation, where that is another program."""
        return self.regrets(predicted) if self.same else self._of(self.relaxed, predicted, self.best_relaxed, None)

    def _of(self, solver: Solver, predicted: Tensor, best: Tensor, cache: str | Path | None) -> np.ndarray:
        solution = solve_cached(solver, predicted, self.data.instance, cache=cache, progress=False)
        decided = (solution.status == int(Status.OPTIMAL)) | (solution.status == int(Status.FEASIBLE))
        decision = torch.where(decided[:, None], solution.decision, best)
        regret = regrets_of(solver, self.costs, decision, best, self.data.instance).regret.numpy()
        if self.data.weights is not None:
            regret = regret * (self.data.weights / self.data.weights.mean()).numpy()
        return np.where(decided.numpy(), regret, np.inf)
