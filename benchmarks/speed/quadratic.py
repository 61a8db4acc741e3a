"""The exact quadratic layer against cvxpylayers, qpth and Moreau: forward and backward of one batch, in float64, cold.

    python benchmarks/speed/quadratic.py [--quick] [--problems portfolio-50 …] [--batches 1 32] [--repeats 5] [--json results/bench/quadratic.json]

Everyone solves min over w of (S y + d)ᵀw + ½ wᵀQ w on the same feasible set and sends the same incoming gradient back to y. Portfolios:
long only, fully invested, returns predicted, covariance by factors. Scheduling: three units with quadratic costs and ramps over
24 hours, load predicted (a right-hand side), shortage and excess at unequal prices. Sparse: a random sparse Q over random rows.
There everyone is given Q, and we its sparse factor M as well (`factor given`). One thread, CPU time, the least of all turns. Moreau
chooses its method, or takes interior points. qpth is left out of batches that take it minutes. Differences are from our answer,
relative to its norm; `violation` is by how much rows and bounds are broken, relative to the largest entry. A peer whose answers differ
by more than 1e-3 has no ratio: the second tables tell by how much.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from contest import Entry, contest
from harness import Row, Rows, by_case, columns

OURS, FACTOR = "dflearn", "dflearn, factor given"
LONG = 10_000  # variables of a batch from which on qpth, whose matrices are dense, takes minutes
RIGHT = 1e-3  # relative difference of decisions and gradients up to which a peer's answer is the same
WHERE = {OURS: "", FACTOR: "", "cvxpylayers": "", "qpth": "qpth"}
WHERE |= dict.fromkeys(("Moreau", "Moreau, interior points"), "moreau")
ENTRIES = {who: Entry("run_peers.py", (who,), environment) for who, environment in WHERE.items()}
Data = dict[str, Any]


def portfolio(assets: int, batch: int) -> Data:
    """max yᵀw − ½ wᵀQ w,   Σ w = 1,   0 ≤ w ≤ 1:   as many factors as the root of the number of assets."""
    rng = np.random.default_rng(assets)
    factors = round(np.sqrt(assets))
    R, delta = 0.3 * rng.normal(size=(factors, assets)) / np.sqrt(factors), rng.uniform(0.005, 0.05, assets)
    returns = 0.02 + 0.03 * rng.normal(size=(batch, assets))
    return whole(R=R, delta=delta, A=np.ones((1, assets)), b=[1.0], upper=np.ones(assets), S=-np.eye(assets), y=returns)


def scheduling(batch: int, hours: int = 24, units: int = 3) -> Data:
    """min Σ cost_i g_it + ½ curve_i g_it² + short and excess,   Σ_i g_it + short_t − excess_t = load_t,   |g_it − g_i,t−1| ≤ ramp_i."""
    rng = np.random.default_rng(24)
    n = hours * (units + 2)
    delta, d = np.repeat([0.4, 0.8, 1.6, 0.5, 0.5], hours), np.repeat([2.0, 3.0, 1.0, 20.0, 2.0], hours)
    A = np.hstack([np.eye(hours)] * (units + 1) + [-np.eye(hours)])
    step = (np.eye(hours) - np.eye(hours, k=1))[:-1]
    up = np.hstack([np.kron(np.eye(units), step), np.zeros((units * (hours - 1), 2 * hours))])
    ramps = np.repeat([0.3, 0.6, 1.2], hours - 1)
    upper = np.repeat([4.0, 4.0, 3.0, np.inf, np.inf], hours)
    day = 6 + 3 * np.sin(2 * np.pi * (np.arange(hours) - 9) / hours)
    load = day * (1 + 0.1 * rng.normal(size=(batch, 1))) + 0.5 * rng.normal(size=(batch, hours))
    return whole(
        delta=delta, d=d, A=A, b=np.zeros(hours), B=np.eye(hours), G=np.vstack([up, -up]), h=np.tile(ramps, 2), upper=upper,
        S=np.zeros((n, hours)), y=load,
    )  # fmt: skip


def sparse(n: int, batch: int) -> Data:
    """n / 5 equalities and n / 2 inequalities of five entries each, a box, and Q = MᵀM + I / 10 with three entries a row of M."""
    rng = np.random.default_rng(n)

    def rows(count: int, entries: int) -> np.ndarray:
        matrix = np.zeros((count, n))
        for row in matrix:
            row[rng.choice(n, entries, replace=False)] = rng.normal(size=entries)
        return matrix

    A, G, M = rows(n // 5, 5), rows(n // 2, 5), rows(n, 3)
    inside = rng.uniform(-0.5, 0.5, n)
    return whole(
        Q=M.T @ M + 0.1 * np.eye(n), R=M, delta=np.full(n, 0.1), A=A, b=A @ inside, G=G, h=G @ inside + rng.uniform(0, 0.3, n // 2), lower=-np.ones(n),
        upper=np.ones(n), y=rng.normal(size=(batch, n)),
    )  # fmt: skip


def whole(**parts: Any) -> Data:
    """With what is missing: Q from its parts, no rows, costs S = I, d = 0, and the incoming gradient."""
    given = "Q" in parts
    n, p = np.shape(parts["A"])[1], parts["y"].shape[1]
    parts = {name: np.asarray(value, float) for name, value in parts.items()}
    empty = {"R": np.zeros((0, n)), "delta": np.zeros(n), "G": np.zeros((0, n)), "h": np.zeros(0), "lower": np.zeros(n)}
    parts = {**empty, "d": np.zeros(n), "S": np.eye(n), "B": np.zeros((len(parts["A"]), p)), **parts}
    if not given:
        parts["Q"] = parts["R"].T @ parts["R"] + np.diag(parts["delta"])
    return {**parts, "given": np.array(given), "incoming": np.linspace(-1, 1, n)}


PROBLEMS: dict[str, Callable[[int], Data]] = {f"portfolio-{n}": partial(portfolio, n) for n in (50, 500)}
PROBLEMS |= {"scheduling-24": scheduling} | {f"sparse-{n}": partial(sparse, n) for n in (100, 500)}


def violation(data: Data, w: np.ndarray) -> float:
    """The most by which rows and bounds are broken, relative to the largest entry of w."""
    right = data["b"] + data["y"] @ data["B"].T
    parts = (np.abs(w @ data["A"].T - right), w @ data["G"].T - data["h"], data["lower"] - w, w - data["upper"])
    return float(max(part.max(initial=0.0) for part in parts) / np.abs(w).max())


def objective(data: Data, w: np.ndarray) -> np.ndarray:
    """Of each instance."""
    value: np.ndarray = ((data["y"] @ data["S"].T + data["d"]) * w).sum(1) + 0.5 * ((w @ data["Q"]) * w).sum(1)
    return value


def measure(options: Any, name: str, batch: int) -> dict[str, Rows]:
    """Times with their ratios, and how far the answers are apart."""
    data = PROBLEMS[name](batch)
    left_out = {FACTOR: not data["given"], "qpth": len(data["d"]) * batch > LONG}
    entries = {who: entry for who, entry in ENTRIES.items() if not left_out.get(who)}
    results = contest(entries, "layer", data, 2 if options.quick else options.repeats)
    least = {who: min(result.turns[1:]) for who, result in results.items()}
    found = {who: result.found[-1] for who, result in results.items()}
    values = {who: float(objective(data, one["decision"]).sum()) for who, one in found.items()}
    row: Row = {"problem": name} | columns({who: seconds for who, seconds in least.items() if who != FACTOR}, "ms", 1e3)
    apart: Rows = []
    for who, one in found.items():
        pairs = {what: (one[what], found[OURS][what]) for what in ("decision", "gradient")}
        far = {what: float(np.linalg.norm(a - b) / np.linalg.norm(b)) for what, (a, b) in pairs.items()}
        apart.append({"problem": name, "who": who, "violation": violation(data, one["decision"])})
        if who != OURS:
            apart[-1] |= {f"{what} differs": value for what, value in far.items()}
            apart[-1]["objective above ours"] = (values[who] - values[OURS]) / abs(values[OURS])
        if who not in (OURS, FACTOR) and max(far.values()) <= RIGHT:
            row[f"{who} ratio"] = least[who] / least[OURS]
    if FACTOR in least:
        row[f"{FACTOR} ms"] = 1e3 * least[FACTOR]
        row["cvxpylayers, factor given ratio"] = least["cvxpylayers"] / least[FACTOR]
    return {f"batch of {batch}": [row], f"answers, batch of {batch}": apart}


if __name__ == "__main__":
    cases, quick = [*itertools.product(PROBLEMS, (32, 1))], [("portfolio-50", 32)]
    title = "The exact quadratic layer against its peers, forward and backward"
    by_case(title, __doc__, measure, cases, quick, repeats=5, axes=("problem", "batch"))
