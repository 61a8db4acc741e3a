"""Ordinary planning models in their own units: is every instance solved, by which solver, rightly, and in what time?

    python benchmarks/speed/ordinary_models.py [--count 20000] [--only blending storage …] [--json FILE]

`ordinary_programs.py` draws the models; --count is the number of instances of the five models together (and 3 % more of big-M
facility location, reported apart). Each instance is solved by

    default    the exact solver that `label` chooses for a plain program (`best_solver`)
    HiGHS      dfl.HiGHS(program)
    Gurobi     dfl.Gurobi(program), where it is installed (its free licence takes these sizes)
    Smoothed   dfl.Smoothed(program, mu) at the automatic μ (`Scale.mu`), for linear programs

Objectives are compared with SciPy's own build of HiGHS, those of `Smoothed` with Clarabel. Errors are relative to Σ|c_j w_j|
(+ ½μ‖w‖²) at the reference's answer; violations of rows and bounds are in the model's units. Milliseconds are CPU time of one
thread, after two calls that may compile. The exit status is 1 unless all answers of the five models are OPTIMAL and right.
With --json, blocks of the same commit are kept and the others solved: an interrupted run goes on.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import Bounds, LinearConstraint, milp

import ordinary_programs as drawn
from dflearn.data import DecisionDataset
from dflearn.data.scale import Scale
from dflearn.errors import DflearnError
from dflearn.layers import Smoothed
from dflearn.program import Program
from dflearn.solvers.base import Status
from dflearn.solvers.gurobi import Gurobi
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.recognition import best_solver
from harness import command_line, earlier, parser, provenance, report

SEEDS = (1, 2, 3, 4)
RIGHT = 1e-6  # relative error of an objective
NAMED = 20  # instances that a record names
SOLVERS = ("default", "HiGHS", "Gurobi", "Smoothed")
APART = "facilities"
Draws = Callable[[drawn.Size, int], drawn.Model]
# Name → how it is drawn, its sizes, whether integrality is dropped, its part of all instances.
MODELS: dict[str, tuple[Draws, tuple[drawn.Size, ...], bool, float]] = {
    "blending": (drawn.blending, ((5, 4), (8, 8), (10, 12)), False, 0.24),
    "storage": (drawn.storage, ((24,), (72,)), False, 0.20),
    "lot-sizing": (drawn.lot_sizing, ((1, 10), (2, 6)), False, 0.08),
    "lot-sizing, relaxed": (drawn.lot_sizing, ((2, 6), (4, 12)), True, 0.12),
    "network flow": (drawn.network, ((12, 30), (24, 80), (60, 240)), False, 0.18),
    "unit commitment": (drawn.unit_commitment, ((3, 6), (4, 8)), False, 0.06),
    "unit commitment, relaxed": (drawn.unit_commitment, ((3, 6), (5, 12)), True, 0.12),
    APART: (drawn.facilities, ((5, 8), (8, 12)), False, 0.03),
}


class Reference:
    """SciPy's HiGHS for the program, Clarabel for the smoothed relaxation; the data of one instance at a time."""

    def __init__(self, program: Program) -> None:
        self.program, n = program, program.n
        self.rows = sp.csr_array(sp.vstack([program.A, program.G]))
        self.below, self.above = np.isfinite(program.lower), np.isfinite(program.upper)
        eye = sp.eye_array(n, format="csr")
        self.matrix = sp.csc_matrix(sp.vstack([self.rows, -eye[self.below], eye[self.above]]))
        equalities = program.A.shape[0]
        self.cones = [clarabel.ZeroConeT(equalities), clarabel.NonnegativeConeT(self.matrix.shape[0] - equalities)]
        self.settings = clarabel.DefaultSettings()
        self.settings.verbose, self.settings.max_threads = False, 1

    def exact(self, c: np.ndarray, b: np.ndarray, h: np.ndarray) -> np.ndarray | None:
        """w, or `None` where it is not solved."""
        rows = LinearConstraint(self.rows, np.r_[b, np.full(len(h), -np.inf)], np.r_[b, h])
        bounds = Bounds(self.program.lower, self.program.upper)
        options = {"mip_rel_gap": 0.0}
        answer = milp(c, integrality=self.program.integer, bounds=bounds, constraints=rows, options=options)
        return answer.x if answer.status == 0 else None

    def smoothed(self, c: np.ndarray, b: np.ndarray, h: np.ndarray, mu: float) -> np.ndarray | None:
        bounds = -self.program.lower[self.below], self.program.upper[self.above]
        quadratic, sides = sp.csc_matrix(mu * sp.eye_array(len(c))), np.concatenate([b, h, *bounds])
        answer = clarabel.DefaultSolver(quadratic, c, self.matrix, sides, self.cones, self.settings).solve()
        return np.array(answer.x) if str(answer.status) == "Solved" else None

    def violation(self, w: np.ndarray, b: np.ndarray, h: np.ndarray) -> float:
        """By how much w `(n,)` breaks a row or a bound at most."""
        left, program = self.rows @ w, self.program
        parts = (np.abs(left[: len(b)] - b), left[len(b) :] - h, program.lower - w, w - program.upper)
        return max(float(part.max(initial=0.0)) for part in parts)


class Block:
    """The instances 0 … count − 1 of one model, size and seed, and the references' answers to them."""

    def __init__(self, name: str, size: drawn.Size, seed: int, count: int) -> None:
        draws, _, relax, _ = MODELS[name]
        model = draws(size, seed)
        model = model.relaxed() if relax else model
        self.name, self.size, self.seed, self.count = name, size, seed, count
        self.program = model.program
        self.y, self.instance = model.draw(range(count))
        self.c = self.program.objective.vector(self.y).numpy()
        given = {} if self.instance is None else self.instance.present()
        self.b, self.h = (
            np.broadcast_to(given[side].numpy() if side in given else own, (count, len(own)))
            for side, own in (("b", self.program.b), ("h", self.program.h))
        )
        self.own, better = Reference(self.program), Reference(model.reference or self.program)
        self.exact = [better.exact(*row) for row in zip(self.c, self.b, self.h, strict=True)]
        known = [k for k, w in enumerate(self.exact) if w is not None]
        decisions = torch.as_tensor(np.array([self.exact[k] for k in known]))
        self.mu = Scale.of(self.program.objective, DecisionDataset(self.y[known], self.y[known], decisions)).mu

    def solver(self, name: str) -> Any:
        if name == "Smoothed":
            return Smoothed(self.program, self.mu)
        return {"default": best_solver, "HiGHS": HiGHS, "Gurobi": Gurobi}[name](self.program)

    def record(self, name: str) -> dict[str, Any]:
        """What one solver says to all instances."""
        mu = self.mu if name == "Smoothed" else 0.0
        solver = self.solver(name)
        part = lambda k, more=1: None if self.instance is None else self.instance[k : k + more]  # noqa: E731
        status, w, later = np.full(self.count, -1), np.full((self.count, self.program.n), np.nan), None
        message = ""
        try:
            for few in (1, 3):  # a batch may be solved in another way than one instance
                solver.solve(self.y[:few], part(0, few))
            begun = time.process_time()
            answer = solver.solve(self.y, self.instance)
            seconds = time.process_time() - begun
            status, w, later = answer.status.numpy(), answer.decision.detach().numpy(), answer.fallback
        except DflearnError as error:
            message, begun = str(error), time.process_time()
            for k in range(self.count):
                try:
                    answer = solver.solve(self.y[k : k + 1], part(k))
                    status[k], w[k] = int(answer.status[0]), answer.decision[0].detach().numpy()
                except DflearnError:
                    continue
            seconds = time.process_time() - begun
        errors, violations = np.full(self.count, np.nan), np.full(self.count, np.nan)
        for k, (c, b, h) in enumerate(zip(self.c, self.b, self.h, strict=True)):
            reference = self.own.smoothed(c, b, h, mu) if mu else self.exact[k]
            if status[k] == Status.OPTIMAL:
                violations[k] = self.own.violation(w[k], b, h)
            if status[k] == Status.OPTIMAL and reference is not None:
                size = np.abs(c * reference).sum() + 0.5 * mu * reference @ reference
                value = c @ w[k] + 0.5 * mu * w[k] @ w[k] - c @ reference - 0.5 * mu * reference @ reference
                errors[k] = value / max(size, 1e-300)
        wrong, other = np.abs(errors) > RIGHT, status != Status.OPTIMAL
        names = ["ERROR" if code < 0 else Status(code).name for code in status.tolist()]
        return {
            "model": self.name,
            "size": list(self.size),
            "seed": self.seed,
            "n": self.program.n,
            "rows": self.own.rows.shape[0],
            "integers": int(self.program.integer.sum()),
            "solver": name,
            "class": repr(solver).partition("(")[0],
            "instances": self.count,
            "statuses": dict(Counter(names)),
            "by the first solver": None if later is None else self.count - int(later.sum()),
            "wrong": int(wrong.sum()),
            "without reference": int((np.isnan(errors) & ~other).sum()),
            "worst error": _most(np.abs(errors)),
            "worst violation": _most(violations),
            "seconds": seconds,
            "not OPTIMAL or wrong": np.flatnonzero(wrong | other)[:NAMED].tolist(),
        } | ({"message": message} if message else {})


def _most(values: np.ndarray) -> float | None:
    return None if np.isnan(values).all() else float(np.nanmax(values))


def summary(records: list[dict[str, Any]], by: tuple[str, ...] = ("model", "solver")) -> Iterator[dict[str, Any]]:
    """One row per model and solver."""
    for key in dict.fromkeys(tuple(str(r[name]) for name in by) for r in records):
        group = [r for r in records if tuple(str(r[name]) for name in by) == key]
        count = sum(r["instances"] for r in group)
        statuses = sum((Counter(r["statuses"]) for r in group), Counter())
        first = [r["by the first solver"] for r in group]
        yield dict(zip(by, key, strict=True)) | {
            "class": ", ".join(dict.fromkeys(r["class"] for r in group)),
            "n": f"{min(r['n'] for r in group)} … {max(r['n'] for r in group)}",
            "instances": count,
            "not OPTIMAL": count - statuses["OPTIMAL"],
            "these are": ", ".join(f"{number} {name}" for name, number in statuses.items() if name != "OPTIMAL"),
            "wrong": sum(r["wrong"] for r in group),
            "without reference": sum(r["without reference"] for r in group),
            "by the first solver": "" if None in first else f"{sum(first) / count:.2%}",
            "worst error": max((r["worst error"] or 0.0 for r in group), default=math.nan),
            "worst violation": max((r["worst violation"] or 0.0 for r in group), default=math.nan),
            "ms": 1000 * sum(r["seconds"] for r in group) / count,
        }


def totals(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per solver for the five models."""
    rows = [record | {"model": "all five"} for record in records if record["model"] != APART]
    return list(summary(rows))


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--count", type=int, default=20_000, help="instances of the five models together")
    arguments.add_argument("--only", nargs="+", choices=list(MODELS), default=list(MODELS), help="these models")
    arguments.add_argument("--solvers", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    held = earlier(options.json, wanted=True)
    same = held and held["commit"] == provenance()["commit"] and not held["commit"].endswith("-dirty")
    name_of = lambda r: (r["model"], tuple(r["size"]), r["seed"], r["instances"], r["solver"])  # noqa: E731
    kept = {name_of(record): record for record in held["records"]} if held and same else {}
    records: list[dict[str, Any]] = []

    def show(quiet: bool) -> None:
        rows = {"the five models": totals(records)}
        rows |= {"by model": [row for row in summary(records) if row["model"] != APART]}
        rows |= {"apart: facilities with a big M": [row for row in summary(records) if row["model"] == APART]}
        title = "Ordinary models in their own units: what is solved, and in what time"
        report(title, rows, options.json, command_line(), quiet=quiet, records=records)

    for name in options.only:
        draws, sizes, relax, part = MODELS[name]
        integer = draws(sizes[0], SEEDS[0]).program.is_integer and not relax
        count = max(1, round(options.count * part / len(sizes) / len(SEEDS)))
        for size, seed in ((size, seed) for size in sizes for seed in SEEDS):
            block = None
            for solver in (solver for solver in options.solvers if not (integer and solver == "Smoothed")):
                done = kept.get((name, size, seed, count, solver))
                if done is None:
                    block = block or Block(name, size, seed, count)
                    done = block.record(solver)
                    print(done["model"], size, seed, solver, done["statuses"], f"{done['wrong']} wrong", flush=True)
                records.append(done)
            if options.json:
                show(quiet=True)
    show(quiet=False)
    bad = [r for r in totals(records) if r["not OPTIMAL"] or r["wrong"]]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
