"""The smoothed-QP layer against cvxpylayers and qpth: forward and backward of one batch, in float64.

    python benchmarks/speed/layers.py [--quick] [--problems KP-100 …] [--batches 1 32 256] [--repeats 5] [--threads 1] [--json results/bench/layers.json]

Everyone solves min over w of (S y + d)ᵀw + (μ/2)‖w‖² on the same feasible set, μ = 1, and sends the same incoming gradient
back to y. Cold: no start. Warm: from the multipliers of costs that differ by 2 %; the peers take no start. qpth gets the
bounds as rows, since it knows no others, and dependent equalities are left out for it. Differences are from our cold
answer, relative to its norm. Nothing: a layer that solves nothing, which is what torch takes around any of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import torch

from contest import Entry, contest
from dflearn.problems import problem_named
from harness import Row, by_place, command_line, costs_of, earlier, moved, parser, report

MU = 1.0
PROBLEMS, BATCHES = ("SP-10", "KP-100", "CFL-50"), (1, 32, 256)
ENTRIES = {
    "cold": Entry("run_dflearn.py", ("cold",)),
    "warm": Entry("run_dflearn.py", ("warm",)),
    "nothing": Entry("run_dflearn.py", ("nothing",)),
    "cvxpylayers": Entry("run_dflearn.py", ("cvxpylayers",)),
    "qpth": Entry("run_peers.py", ("qpth",), "qpth"),
}


def material(name: str, batch: int) -> dict[str, Any]:
    """The program, its costs before and after they moved by 2 %, and the incoming gradient."""
    program, costs = problem_named(name, seed=1).program.relax(), costs_of(name, batch)
    near, A, n = moved(costs).numpy(), program.A.toarray(), program.n
    kept = independent(A)
    given = {"problem": name, "mu": MU, "costs": costs.numpy(), "near": near, "incoming": np.linspace(-1, 1, n)}
    rows = {"A": A[kept], "b": program.b[kept], "G": program.G.toarray(), "h": program.h}
    S = np.eye(n) if program.S is None else program.S.toarray()
    quadratic = {
        "y": near,
        "S": S,
        "d": program.d,
        "Q": MU * np.eye(n),
        "given": True,
        "B": np.zeros((len(kept), S.shape[1])),
    }
    return given | rows | quadratic | {"lower": program.lower, "upper": program.upper}


def independent(rows: np.ndarray) -> np.ndarray:
    """The numbers of as many linearly independent rows as there are."""
    if not len(rows):
        return np.arange(0)
    _, R, order = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    return np.sort(order[: int((np.abs(np.diag(R)) > 1e-9).sum())])


def measure(name: str, batch: int, repeats: int, threads: int) -> dict[str, Any]:
    results = contest(ENTRIES, "layer", material(name, batch), repeats, threads)

    def far(who: str, what: str) -> float:
        ours, theirs = results["cold"].found[-1][what], results[who].found[-1][what]
        return float(np.linalg.norm(theirs - ours) / np.linalg.norm(ours))

    row: Row = {"problem": name, "batch": batch}
    row |= {f"{who} ms": 1e3 * result.seconds for who, result in results.items()}
    for peer in ("cvxpylayers", "qpth"):
        row |= {f"{peer} {start} ratio": results[peer].seconds / results[start].seconds for start in ("cold", "warm")}
    for who in ("warm", "cvxpylayers", "qpth"):
        row |= {f"decision differs, {who}": far(who, "decision"), f"gradient differs, {who}": far(who, "gradient")}
    row |= {f"first call s, {who}": result.first for who, result in results.items()}
    return row | {f"MiB, {who}": result.peak for who, result in results.items()}


def main() -> None:
    arguments = parser(__doc__, repeats=5)
    arguments.add_argument("--batches", nargs="+", type=int, help="only these; the others keep what the JSON file has")
    arguments.add_argument("--problems", nargs="+", choices=PROBLEMS, help="the same for problems")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    cases = [(name, batch) for name in options.problems or PROBLEMS for batch in options.batches or BATCHES]
    if options.quick:
        cases = [("KP-100", 32)]
    kept = earlier(options.json, options.batches or options.problems)
    order = [(name, batch) for name in PROBLEMS for batch in BATCHES]
    rows, ordered = by_place(kept, "forward and backward", order, "problem", "batch")
    for case in cases:
        rows[case] = measure(*case, 2 if options.quick else options.repeats, options.threads)
        subjects = {"forward and backward": ordered()}
        title = f"The smoothed layer against its peers, {options.threads} thread{'s' * (options.threads > 1)}"
        report(title, subjects, options.json, command_line(kept), quiet=case != cases[-1])


if __name__ == "__main__":
    main()
