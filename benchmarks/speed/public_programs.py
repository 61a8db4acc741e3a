"""`Smoothed` on public LP and MIP files, one instance each, beside Clarabel on the same quadratic program.

    python benchmarks/speed/public_programs.py FOLDER... [--most 10000] [--mu 1e-5 1e-2 1] [--json FILE]
    python benchmarks/speed/public_programs.py FOLDER... --exact [--json FILE]

With --exact the linear programs themselves are solved, by `best_solver` and by `HiGHS`, and compared with SciPy's own build of HiGHS
and with Clarabel. A folder holds .mps, .mps.gz, .lp or .npz files and is called by what they come from: sources in the package registry,

    scipy-1.9.3   benchmarks/benchmarks/linprog_benchmark_files: the Netlib programs (they hold pickles: read none that you do not trust)
    mip-2.0.0     examples and test/data: MIPLIB and others; integrality is dropped

μ is relative: that number times max |c| over the size of the right-hand sides and bounds. Times are CPU times of one thread, the
best of up to REPEATS calls after the first, so that compilation and the symbolic factorization, which a training run pays once,
do not count; Clarabel's include its setup. What takes longer than the limit is ended and counted as not solved, and so is what
ends the process. With --json, rows of the same commit are kept and the others solved: an interrupted run goes on. Errors of
objectives are relative to Σ|c_j w_j| at the reference's answer.
"""

import argparse
import itertools
import json
import math
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import clarabel
import highspy
import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import linprog

import dflearn as dfl
from dflearn.errors import DflearnError
from dflearn.solvers.task import best_solver
from harness import Row, Rows, command_line, earlier, parser, provenance, report

REPEATS, SHORT = 3, 0.5  # calls after the first, while they take less than so many seconds
SOLVED = ("Solved", "AlmostSolved")  # by Clarabel
NO_POINT = ("PrimalInfeasible", "AlmostPrimalInfeasible")
EXACT = {"default": best_solver, "HiGHS": dfl.HiGHS}
RIGHT = 1e-6  # relative error of an objective
ENDS = ("OPTIMAL", "TIME LIMIT", "INFEASIBLE", "UNBOUNDED", "FAILED")  # of SciPy's linprog, by its codes
Way = float | str  # μ, or which exact solver


def read(path: Path) -> tuple[dfl.Program, np.ndarray]:
    """The program, whose costs are all predicted, and the file's costs."""
    if path.suffix == ".npz":
        return read_arrays(path)
    program = (dfl.from_lp if path.suffix == ".lp" else dfl.from_mps)(path)
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.readModel(str(path))
    return program.relax(), np.array(model.getLp().col_cost_, np.float64)


def read_arrays(path: Path) -> tuple[dfl.Program, np.ndarray]:
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
    return dfl.Program(**matrices, lower=lower, upper=upper, n=len(c)), c


def natural_size(program: dfl.Program) -> float:
    """The size of right-hand sides over their rows' lengths, or else of bounds: a median of those that are not zero."""
    rows = sp.csr_array(sp.vstack([program.A, program.G]))
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).reshape(-1))
    sizes = np.abs(np.concatenate([program.b, program.h])) / np.where(lengths > 0, lengths, 1)
    for values in (sizes, np.abs(program.upper), np.abs(program.lower)):
        values = values[np.isfinite(values) & (values > 0)]
        if len(values):
            return float(np.median(values))
    return 1.0


def best(solve: Any) -> tuple[Any, float]:
    """The last answer, and the least CPU seconds of a call; the first call counts where it is long."""
    least = math.inf
    for _ in range(REPEATS):
        begun = time.process_time()
        answer = solve()
        least = min(least, time.process_time() - begun)
        if least > SHORT:
            break
    return answer, least


def by_clarabel(program: dfl.Program, c: np.ndarray, mu: float, limit: float) -> tuple[str, np.ndarray, float]:
    """Status, w and seconds."""
    eye, n = sp.eye_array(program.n, format="csr"), program.n
    fixed = program.lower == program.upper
    below, above = np.isfinite(program.lower) & ~fixed, np.isfinite(program.upper) & ~fixed
    matrix = sp.csc_matrix(sp.vstack([program.A, eye[fixed], program.G, -eye[below], eye[above]]))
    sides = np.concatenate([program.b, program.lower[fixed], program.h, -program.lower[below], program.upper[above]])
    equalities = program.A.shape[0] + int(fixed.sum())
    cones = [clarabel.ZeroConeT(equalities), clarabel.NonnegativeConeT(len(sides) - equalities)]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads, settings.time_limit = False, 1, limit
    quadratic = sp.csc_matrix(mu * sp.eye_array(n))
    solution, seconds = best(lambda: clarabel.DefaultSolver(quadratic, c, matrix, sides, cones, settings).solve())
    return str(solution.status), np.array(solution.x)[:n], seconds


def by_scipy(program: dfl.Program, c: np.ndarray, limit: float) -> tuple[str, np.ndarray | None]:
    """Status and w of the linear program."""
    rows = {"A_eq": program.A, "b_eq": program.b, "A_ub": program.G, "b_ub": program.h}
    rows = {name: part for name, part in rows.items() if part.shape[0]}
    bounds = np.column_stack([program.lower, program.upper])
    answer = linprog(c, bounds=bounds, method="highs", options={"time_limit": limit}, **rows)
    return ENDS[answer.status], answer.x if answer.status == 0 else None


def compare(program: dfl.Program, costs: np.ndarray, way: Way, limit: float) -> Iterator[Row]:
    """What Clarabel says (and SciPy, of a linear program), then what we say: the layer with a relative μ, or an exact solver."""
    y = torch.as_tensor(costs)[None]
    c, exact = program.objective.vector(y)[0].numpy(), isinstance(way, str)
    mu = 0.0 if isinstance(way, str) else way * (float(np.abs(c).max(initial=0.0)) or 1.0) / natural_size(program)
    status, w, seconds = by_clarabel(program, c, mu, limit)
    known: np.ndarray | None = w if status == "Solved" or not exact else None
    size = {"n": program.n, "rows": program.A.shape[0] + program.G.shape[0]}
    yield size | {"clarabel": status, "clarabel_seconds": seconds}
    if exact:
        scipy_status, vertex = by_scipy(program, c, limit)
        known = known if vertex is None else vertex
        yield {"scipy": scipy_status}
    solver: Any = EXACT[way](program) if isinstance(way, str) else dfl.Smoothed(program, mu)
    begun = time.process_time()
    solution = solver.solve(y)
    seconds = first = time.process_time() - begun
    if first < limit / 2:  # the very first call compiles
        solution, seconds = best(lambda: solver.solve(y))
    answer, error = dfl.Status(int(solution.status[0])).name, None
    if known is not None and (answer == "OPTIMAL" or not exact):
        mine, theirs = ((c * x, 0.5 * mu * x * x) for x in (solution.decision[0].numpy(), known))
        whole = np.abs(theirs[0]).sum() if exact else abs(sum(theirs).sum())
        error = float((sum(mine) - sum(theirs)).sum() / max(whole, 1e-300))
    own = {"solver": repr(solver).partition("(")[0]} if exact else {"residual": float(solution.residual[0])}
    answer = answer if seconds <= limit or not exact else "TIME LIMIT"
    fallback = None if solution.fallback is None else bool(solution.fallback[0])
    yield own | {"status": answer, "highs": fallback, "first": first, "seconds": seconds, "value": error}


def told(path: Path, options: argparse.Namespace) -> Iterator[Row]:
    """In a process of its own: the parts of one record."""
    try:
        program, costs = read(path)
    except (DflearnError, KeyError) as error:
        yield {"unread": str(error)}
        return
    if program.n > options.most:
        yield {"unread": f"{program.n} variables"}
    else:
        way = options.one if options.one in EXACT else float(options.one)
        yield from compare(program, costs, way, options.limit)


def record_of(path: Path, way: Way, options: argparse.Namespace) -> Row:
    """What a process prints that solves one program: a part of the record a line, until it ends or is late."""
    command = [sys.executable, __file__, str(path), "--one", str(way)]
    command += ["--most", str(options.most), "--limit", str(options.limit)]
    patience = 60 + 8 * options.limit  # all calls, on a machine that may be busy
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=patience, check=False)
        printed, ended = done.stdout, {"status": f"PROCESS ENDED {done.returncode}", "seconds": None}
    except subprocess.TimeoutExpired as late:
        printed, ended = late.stdout or b"", {"status": "TIME LIMIT", "seconds": options.limit}
    record: Row = {"source": path.parent.name, "file": path.name.split(".")[0], "mu": way}
    for line in printed.splitlines():
        if line.startswith(b"{"):
            record |= json.loads(line)
    record = record if {"status", "unread"} & {*record} else record | ended
    return {key: None if isinstance(part, float) and not math.isfinite(part) else part for key, part in record.items()}


def beside(records: Rows) -> float | str:
    """Our time over Clarabel's, the geometric mean."""
    ratios = [record["seconds"] / record["clarabel_seconds"] for record in records]
    return statistics.geometric_mean(ratios) if ratios else ""


def how_many(records: Rows, key: str, *values: str) -> int:
    return sum(record.get(key) in values for record in records)


def summary(records: Rows) -> Iterator[Row]:
    """One row per source and μ, and one for all feasible ones."""
    sources, shares = dict.fromkeys(r["source"] for r in records), sorted({r["mu"] for r in records})
    groups = [(s, mu, [r for r in records if (r["source"], r["mu"]) == (s, mu)]) for s in sources for mu in shares]
    for source, mu, group in [*groups, ("all", "all", records)]:
        theirs = [record for record in group if record["clarabel"] in SOLVED]
        both = [record for record in theirs if record["status"] == "OPTIMAL"]
        solved, none = (how_many(group, "status", status) for status in ("OPTIMAL", "INFEASIBLE"))
        row = {"files of": source, "μ": mu, "programs": len(group), "Clarabel solves": len(theirs)}
        row |= {"of these solved": len(both), "share": f"{len(both) / len(theirs):.1%}" if theirs else ""}
        row |= {"solved beyond these": solved - len(both), "infeasible": none}
        row |= {
            "infeasible by Clarabel": how_many(group, "clarabel", *NO_POINT),
            "time beside Clarabel's": beside(both),
        }
        yield row


def exact_summary(records: Rows) -> Iterator[Row]:
    """One row per source and exact solver, and one per solver for all files."""
    for way, source in itertools.product(EXACT, [*dict.fromkeys(r["source"] for r in records), "all"]):
        group = [r for r in records if r["mu"] == way and source in (r["source"], "all")]
        theirs = [r for r in group if r["clarabel"] in SOLVED]
        row = {"files of": source, "solver": way, "programs": len(group)}
        row |= {status: how_many(group, "status", status) for status in ("OPTIMAL", "INFEASIBLE")}
        row |= {"wrong": sum(map(wrong, group)), "SciPy solves": how_many(group, "scipy", "OPTIMAL")}
        row |= {"infeasible by SciPy": how_many(group, "scipy", "INFEASIBLE"), "Clarabel solves": len(theirs)}
        row["of these OPTIMAL"] = how_many(theirs, "status", "OPTIMAL")
        yield row | {"s in all": float(sum(r["seconds"] or 0.0 for r in group))}


def wrong(record: Row) -> bool:
    """Whether an exact answer contradicts SciPy: another objective, or no solution where there is one, or the reverse."""
    theirs, none = record.get("scipy"), ("INFEASIBLE", "UNBOUNDED")
    if theirs is not None and record["status"] == "OPTIMAL":
        return theirs in none or abs(record["value"] or 0.0) > RIGHT
    return theirs == "OPTIMAL" and record["status"] in none


def unsolved(records: Rows) -> Iterator[Row]:
    """What neither has an answer here nor is known to have none."""
    keys = {"files of": "source", "file": "file", "μ": "mu", "status": "status", "s": "seconds"}
    keys |= {"Clarabel": "clarabel", "its s": "clarabel_seconds"}
    for record in records:
        if record["status"] not in ("OPTIMAL", "INFEASIBLE") or wrong(record):
            yield {name: record[key] for name, key in keys.items()}


def by_file(records: Rows, source: str) -> Rows:
    """One row per file: for each μ milliseconds, or what kept it from an answer, and how often Clarabel's time that is."""
    rows: dict[str, Row] = {}
    for record in (record for record in records if record["source"] == source):
        row = rows.setdefault(record["file"], {"file": record["file"], "n": record["n"], "rows": record["rows"]})
        answered, theirs = record["status"] == "OPTIMAL", record["clarabel"]
        way = record["mu"] if isinstance(record["mu"], str) else f"{record['mu']:g}"
        row[f"{way}: ms"] = 1000 * record["seconds"] if answered else record["status"]
        row[f"{way}: beside Clarabel's"] = beside([record]) if answered and theirs in SOLVED else f"({theirs})"
    return [*rows.values()]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("folders", type=Path, nargs="+")
    arguments.add_argument("--most", type=int, default=10_000, help="variables; larger files are skipped")
    arguments.add_argument("--mu", type=float, nargs="+", default=[1e-5, 1e-2, 1.0])
    arguments.add_argument("--limit", type=float, default=20.0, help="seconds of one solve, of either")
    arguments.add_argument("--exact", action="store_true", help="the linear programs themselves, by exact solvers")
    arguments.add_argument("--one", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.one:
        torch.set_num_threads(1)
        for part in told(options.folders[0], options):
            print(json.dumps(part), flush=True)
        return
    held, name_of = earlier(options.json, wanted=True), itemgetter("source", "file", "mu")
    there = held["records"] if held and held["commit"] == provenance()["commit"] else []
    kept, unread, records = {name_of(record): record for record in there}, {}, []
    size = lambda path: path.stat().st_size  # noqa: E731
    for path in (path for folder in options.folders for path in sorted(folder.iterdir(), key=size)):
        for way in EXACT if options.exact else options.mu:
            name = path.parent.name, path.name.split(".")[0], way
            record = kept.get(name) or record_of(path, way, options)
            if "unread" in record:
                unread[f"{name[0]}/{name[1]}"] = record["unread"]
                break
            records.append({"clarabel": "not known", "clarabel_seconds": None} | record)
            if name not in kept:
                print(json.dumps(record), flush=True)
        if options.json:
            write(records, unread, options.json)
    write(records, unread, options.json)


def write(records: Rows, unread: dict[str, str], file: Path | None) -> None:
    exact = any(isinstance(record["mu"], str) for record in records)
    tables = {"solved": [*(exact_summary if exact else summary)(records)], "not solved": [*unsolved(records)]}
    sources = dict.fromkeys(record["source"] for record in records)
    tables |= {f"files of {source}": by_file(records, source) for source in sources}
    title = "Public LP and MIP files (relaxed), batch 1: " + ("exact solvers" if exact else "Smoothed, beside Clarabel")
    report(title, tables, file, command_line(), quiet=True, records=records, unread=unread)


if __name__ == "__main__":
    main()
