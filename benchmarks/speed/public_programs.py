"""`Smoothed` on public LP and MIP files, one instance each, beside Clarabel on the same quadratic program.

    python benchmarks/speed/public_programs.py FOLDER [--most 10000] [--mu 1e-5 1e-2 1] [--json FILE]

FOLDER holds .mps, .mps.gz or .lp files, or .npz files as SciPy's sources ship them (`benchmarks/benchmarks/
linprog_benchmark_files`: the Netlib programs; they hold pickles, so read none that you do not trust). None is part of this
repository. Integrality is dropped. μ is relative: that number times max |c| over the size of the right-hand sides and bounds. Times are of the second call, so that compilation and the
symbolic factorization, which a training run pays once, do not count; Clarabel's include its setup. Residuals are as of
`Solution.residual`, for Clarabel with its own prices.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import clarabel
import highspy
import numpy as np
import scipy.sparse as sp
import torch

from dflearn.errors import DflearnError
from dflearn.frontends.files import from_lp, from_mps
from dflearn.layers import Smoothed
from dflearn.program import Program
from dflearn.solvers.base import Status

TIME_LIMIT = 60.0  # seconds, of Clarabel


def read(path: Path) -> tuple[Program, np.ndarray]:
    """The program, whose costs are all predicted, and the file's costs."""
    if path.suffix == ".npz":
        return read_arrays(path)
    program = (from_lp if path.suffix == ".lp" else from_mps)(path)
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.readModel(str(path))
    return program.relax(), np.array(model.getLp().col_cost_, np.float64)


def read_arrays(path: Path) -> tuple[Program, np.ndarray]:
    """A program in the arguments of SciPy's `linprog`: c, A_ub, b_ub, A_eq, b_eq, bounds (none: w ≥ 0)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the files are old
        held = dict(np.load(path, allow_pickle=True))
    c = held["c"].reshape(-1).astype(float)
    bounds = np.squeeze(held["bounds"])
    pairs = bounds.reshape(-1, 2) if bounds.size else np.tile([0.0, np.inf], (len(c), 1))
    lower, upper = (
        np.array([open_end if end is None else float(end) for end in ends])
        for ends, open_end in zip(pairs.T, (-np.inf, np.inf), strict=True)
    )
    matrices = {}
    for name, matrix, side in (("A", "A_eq", "b_eq"), ("G", "A_ub", "b_ub")):
        rows = sp.csr_array(held[matrix].astype(float).reshape(-1, len(c)))
        held_rows = np.diff(rows.indptr) > 0  # an empty one constrains nothing
        if held_rows.any():
            rows, sides = rows[held_rows], held[side].reshape(-1).astype(float)[held_rows]
            matrices |= {name: rows, "b" if name == "A" else "h": sides}
    return Program(**matrices, lower=lower, upper=upper, n=len(c)), c


def natural_size(program: Program) -> float:
    """The size of right-hand sides over their rows' lengths, or else of bounds: a median of those that are not zero."""
    rows = sp.csr_array(sp.vstack([program.A, program.G]))
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).reshape(-1))
    sizes = np.abs(np.concatenate([program.b, program.h])) / np.where(lengths > 0, lengths, 1)
    for values in (sizes, np.abs(program.upper), np.abs(program.lower)):
        values = values[np.isfinite(values) & (values > 0)]
        if len(values):
            return float(np.median(values))
    return 1.0


def by_clarabel(program: Program, c: np.ndarray, mu: float) -> tuple[str, np.ndarray, float]:
    """Status, w and seconds."""
    eye, n = sp.eye_array(program.n, format="csr"), program.n
    fixed = program.lower == program.upper
    below, above = np.isfinite(program.lower) & ~fixed, np.isfinite(program.upper) & ~fixed
    matrix = sp.csc_matrix(sp.vstack([program.A, eye[fixed], program.G, -eye[below], eye[above]]))
    sides = (program.b, program.lower[fixed], program.h, -program.lower[below], program.upper[above])
    equalities = program.A.shape[0] + int(fixed.sum())
    cones = [clarabel.ZeroConeT(equalities), clarabel.NonnegativeConeT(matrix.shape[0] - equalities)]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads, settings.time_limit = False, 1, TIME_LIMIT
    begun = time.perf_counter()
    quadratic = sp.csc_matrix(mu * sp.eye_array(n))
    solution = clarabel.DefaultSolver(quadratic, c, matrix, np.concatenate(sides), cones, settings).solve()
    return str(solution.status), np.array(solution.x)[:n], time.perf_counter() - begun


def compare(path: Path, program: Program, costs: np.ndarray, share: float) -> dict[str, Any]:
    y = torch.as_tensor(costs)[None]
    c = program.objective.vector(y)[0].numpy()
    mu = share * (float(np.abs(c).max(initial=0.0)) or 1.0) / natural_size(program)
    status, w, theirs = by_clarabel(program, c, mu)
    layer = Smoothed(program, mu)
    begun = time.perf_counter()
    solution = layer.solve(y)
    first = time.perf_counter() - begun
    if first < TIME_LIMIT / 2:
        solution = layer.solve(y)
    mine = solution.decision[0].numpy()
    value = lambda x: float(c @ x + 0.5 * mu * x @ x)  # noqa: E731
    assert solution.residual is not None
    assert solution.fallback is not None
    return {
        "file": path.name,
        "n": program.n,
        "rows": program.A.shape[0] + program.G.shape[0],
        "mu": share,
        "status": Status(int(solution.status[0])).name,
        "residual": float(solution.residual[0]),
        "highs": bool(solution.fallback[0]),
        "first": first,
        "seconds": solution.seconds,
        "clarabel": status,
        "clarabel_seconds": theirs,
        "difference": float(np.abs(mine - w).max(initial=0.0) / max(np.abs(w).max(initial=0.0), 1e-300)),
        "value": (value(mine) - value(w)) / max(abs(value(w)), 1e-300),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=10_000, help="variables; larger files are skipped")
    parser.add_argument("--mu", type=float, nargs="+", default=[1e-5, 1e-2, 1.0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    records = []
    for path in sorted(options.folder.iterdir(), key=lambda path: path.stat().st_size):
        try:
            program, costs = read(path)
        except (DflearnError, KeyError) as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            continue
        if program.n > options.most:
            continue
        for share in options.mu:
            record = compare(path, program, costs, share)
            records.append(record)
            print(
                f"{record['file']:22.22} {record['n']:6} {record['rows']:6} {share:7.0e} {record['status']:10} "
                f"{record['residual']:8.1e} {'HiGHS' if record['highs'] else '':5} {record['seconds']:8.3f} s | "
                f"{record['clarabel']:14.14} {record['clarabel_seconds']:8.3f} s  {record['difference']:8.1e} {record['value']:9.1e}",
                flush=True,
            )
    solved = [record for record in records if record["status"] == "OPTIMAL"]
    theirs = [record for record in records if record["clarabel"] in ("Solved", "AlmostSolved")]
    both = [record for record in solved if record in theirs]
    ratio = math.exp(sum(math.log(r["seconds"] / r["clarabel_seconds"]) for r in both) / max(len(both), 1))
    print(f"solved {len(solved)} of {len(records)}, Clarabel {len(theirs)}; time ratio (geometric mean) {ratio:.2f}")
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
