"""The smoothed-QP layer against cvxpylayers and qpth: forward and backward of one batch, in float64.

    python benchmarks/speed/layers.py [--quick] [--problems KP-100 …] [--batches 1 32 256] [--repeats 5] [--threads 1] [--json results/bench/layers.json]

Everyone solves min over w of (S y + d)ᵀw + (μ/2)‖w‖² on the same feasible set, μ = 1, and sends the same incoming gradient
back to y. Cold: no start. Warm: from the multipliers of costs that differ by 2 %; the peers take no start. qpth gets the
bounds as rows, since it knows no others, and dependent equalities are left out for it. Differences are from our cold
answer, relative to its norm. Nothing: a layer that solves nothing, which is what torch takes around any of them.
"""

import itertools
from typing import Any

import numpy as np
import scipy.linalg

from contest import Entry, contest
from dflearn.problems import problem_named
from harness import Row, Rows, by_case, columns, costs_of, moved

MU = 1.0
OURS = {way: Entry("run_dflearn.py", (way,)) for way in ("cold", "warm", "nothing", "cvxpylayers")}
ENTRIES = OURS | {"qpth": Entry("run_peers.py", ("qpth",), "qpth")}


def material(name: str, batch: int) -> dict[str, Any]:
    """The program, its costs before and after they moved by 2 %, and the incoming gradient."""
    program, costs = problem_named(name, seed=1).program.relax(), costs_of(name, batch)
    n, near, A = program.n, moved(costs).numpy(), program.A.toarray()
    S, kept = np.eye(n) if program.S is None else program.S.toarray(), independent(A)
    given = {"problem": name, "mu": MU, "costs": costs.numpy(), "near": near, "incoming": np.linspace(-1, 1, n)}
    given |= {"A": A[kept], "b": program.b[kept], "G": program.G.toarray(), "B": np.zeros((len(kept), S.shape[1]))}
    given |= {part: getattr(program, part) for part in ("h", "d", "lower", "upper")}
    return given | {"y": near, "S": S, "Q": MU * np.eye(n), "given": True}


def independent(rows: np.ndarray) -> np.ndarray:
    """The numbers of as many linearly independent rows as there are."""
    if not len(rows):
        return np.arange(0)
    _, R, order = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    return np.sort(order[: int((np.abs(np.diag(R)) > 1e-9).sum())])


def measure(options: Any, name: str, batch: int) -> dict[str, Rows]:
    repeats = 2 if options.quick else options.repeats
    results = contest(ENTRIES, "layer", material(name, batch), repeats, options.threads)
    times = {who: result.seconds for who, result in results.items()}
    peers = ("cvxpylayers", "qpth")

    def far(who: str, what: str) -> float:
        ours, theirs = results["cold"].found[-1][what], results[who].found[-1][what]
        return float(np.linalg.norm(theirs - ours) / np.linalg.norm(ours))

    row: Row = {"problem": name, "batch": batch} | columns(times, "ms", 1e3)
    pairs = itertools.product(peers, ("cold", "warm"))
    row |= {f"{peer} {start} ratio": times[peer] / times[start] for peer, start in pairs}
    for who in ("warm", *peers):
        row |= {f"{what} differs, {who}": far(who, what) for what in ("decision", "gradient")}
    row |= {f"first call s, {who}": result.first for who, result in results.items()}
    return {"forward and backward": [row | {f"MiB, {who}": result.peak for who, result in results.items()}]}


if __name__ == "__main__":
    cases = [*itertools.product(("SP-10", "KP-100", "CFL-50"), (1, 32, 256))]
    title = "The smoothed layer against its peers"
    by_case(title, __doc__, measure, cases, [("KP-100", 32)], repeats=5, axes=("problem", "batch"))
