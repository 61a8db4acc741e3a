"""Random programs by family. A family is a function of a random generator; `make` names the case that a seed gives."""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.bases import Rng, boxed, exact_numbers, feasible, filled, integral, numbers, resized
from fuzz.cases import Case
from fuzz.convex import predicted_sides, quadratic, recourse
from fuzz.extremes import blocks, fates, loose, ties, wide, wide_quadratic, zeros
from fuzz.planning import balances, big_m

TWO = 0.1  # the share of programs with two instances, if they differ in costs alone


def ordinary(rng: Rng) -> dict[str, Any]:
    base = feasible(rng)
    return boxed(rng, base) if rng.random() < 0.7 else base


def degenerate(rng: Rng) -> dict[str, Any]:
    """Many rows through one point, costs that tie."""
    base = boxed(rng, feasible(rng, kind="integers"))
    n, w0 = len(base["w0"]), np.round(base["w0"])
    G = filled(rng, rng.integers(-2, 3, (n + 2, n)).astype(float))
    y = rng.integers(-1, 2, (2, n)).astype(float)
    y[0] = -(rng.integers(0, 2, len(G)) @ G)  # a combination of the rows: a whole face is optimal
    return base | {"b": base["A"] @ w0, "G": G, "h": G @ w0, "y": y}


def dependent(rng: Rng) -> dict[str, Any]:
    """Rows that say what others say."""
    base = boxed(rng, feasible(rng, kind=exact_numbers(rng), n=int(rng.integers(2, 7))))
    A = filled(rng, rng.integers(-2, 3, (2, len(base["w0"]))).astype(float))
    A = np.vstack([A, A[0] + A[1], 2 * A[0]])[rng.permutation(4)][: int(rng.integers(2, 5))]
    A = A[A.any(1)]
    G = np.vstack([base["G"], base["G"][:1] * 2, A[:1]])
    h = np.concatenate([base["h"], base["h"][:1] * 2, A[:1] @ base["w0"]])
    return base | {"A": A, "b": A @ base["w0"], "G": G, "h": h}


def free_and_fixed(rng: Rng) -> dict[str, Any]:
    base = feasible(rng)
    n = len(base["w0"])
    free, fixed = rng.random(n) < 0.3, rng.random(n) < 0.3
    lower = np.where(free, -np.inf, np.where(fixed, base["w0"], base["lower"]))
    upper = np.where(free, np.inf, np.where(fixed, base["w0"], base["upper"]))
    return base | {"lower": lower, "upper": upper}


def mixed_scales(rng: Rng) -> dict[str, Any]:
    base = ordinary(rng)
    n, m = len(base["w0"]), len(base["b"]) + len(base["h"])
    reach = int(rng.choice([7, 20]))
    column = 2.0 ** rng.integers(-reach, reach + 1, n)
    return base | {"column": column, "row": 2.0 ** rng.integers(-reach, reach + 1, m)}


def penalties(rng: Rng) -> dict[str, Any]:
    """Soft rows: a variable of huge cost takes what the others leave; big-M rows that link variables."""
    base = boxed(rng, feasible(rng, kind=exact_numbers(rng)))
    n = len(base["w0"])
    row = np.append(-rng.integers(1, 4, n), -1.0)
    G = np.vstack([np.hstack([base["G"], np.zeros((len(base["h"]), 1))]), row])
    h = np.append(base["h"], row[:-1] @ base["w0"])
    big = float(10.0 ** rng.integers(4, 11))
    if n > 1 and rng.random() < 0.5:  # w_0 ≤ M w_1
        link = np.zeros(n + 1)
        link[0], link[1] = 1.0, -float(10.0 ** rng.integers(2, 7))
        G, h = np.vstack([G, link]), np.append(h, max(0.0, link[:-1] @ base["w0"]))
    more = {"lower": 0.0, "upper": np.inf, "d": big, "integer": False, "w0": 0.0}  # of the variable
    rows = {"A": np.hstack([base["A"], np.zeros((len(base["b"]), 1))]), "G": G, "h": h, "S": np.eye(n + 1)[:, :n]}
    return base | rows | {name: np.append(base[name], value) for name, value in more.items()}


def tiny_decisions(rng: Rng) -> dict[str, Any]:
    return resized(rng, ordinary(rng), (-1,))


def huge_decisions(rng: Rng) -> dict[str, Any]:
    return resized(rng, ordinary(rng), (1,))


def units_of_costs(rng: Rng) -> dict[str, Any]:
    return ordinary(rng) | {"cost": float(2.0 ** (rng.choice([-1, 1]) * rng.integers(10, 28)))}


def units_of_rows(rng: Rng) -> dict[str, Any]:
    base = ordinary(rng)
    m = len(base["b"]) + len(base["h"])
    if rng.random() < 0.5:
        return base | {"row": np.full(m, 2.0 ** (rng.choice([-1, 1]) * rng.integers(10, 28)))}
    return base | {"row": 2.0 ** rng.integers(-27, 28, m)}


def norms(rng: Rng) -> dict[str, Any]:
    """Boxes and few rows with costs that fall, μ near ‖c‖, where the norm decides."""
    n = int(rng.integers(1, 7))
    base = feasible(rng, n=n, kind="floats")
    y = -np.abs(rng.normal(size=(2, n)))
    box = {"lower": np.where(rng.random(n) < 0.5, 0.0, rng.integers(0, 3, n).astype(float)), "upper": np.full(n, 10.0)}
    if rng.random() < 0.6:
        box |= {"A": np.zeros((0, n)), "b": np.zeros(0), "G": np.zeros((0, n)), "h": np.zeros(0)}
    else:
        w0 = (box["lower"] + box["upper"]) / 2
        box |= {"b": base["A"] @ w0, "h": base["G"] @ w0 + 1.0}
    factor = float(rng.choice([0.5, 0.9, 1.05, 2.0]))
    return base | box | {"y": y, "mu": factor * float(np.linalg.norm(y[0]))}


def integer(rng: Rng) -> dict[str, Any]:
    return integral(rng, feasible(rng, kind=exact_numbers(rng)), float(rng.choice([0.4, 1.0])))


def integer_degenerate(rng: Rng) -> dict[str, Any]:
    return integral(rng, degenerate(rng))


def integer_dependent(rng: Rng) -> dict[str, Any]:
    return integral(rng, dependent(rng))


def integer_penalties(rng: Rng) -> dict[str, Any]:
    base = penalties(rng)
    n = len(base["w0"])
    mask = rng.random(n) < 0.7
    mask[-1] = False
    mask[np.flatnonzero(mask)[4:]] = False
    lower, upper = np.floor(base["lower"]), np.where(mask, np.ceil(base["lower"]) + 1, base["upper"])
    w0 = np.minimum(np.where(mask, np.round(base["w0"]), base["w0"]), upper)
    h = np.maximum(base["h"], base["G"] @ w0)
    bounds = {"integer": mask, "lower": np.where(mask, lower, base["lower"]), "upper": upper}
    return base | bounds | {"b": base["A"] @ w0, "h": h, "w0": w0}


def integer_units(rng: Rng) -> dict[str, Any]:
    """Integers keep their unit; rows, costs and continuous variables do not."""
    base = integer(rng)
    n, m = len(base["w0"]), len(base["b"]) + len(base["h"])
    column = np.where(base["integer"], 1.0, 2.0 ** rng.integers(-20, 21, n))
    row = 2.0 ** rng.integers(-20, 21, m) if rng.random() < 0.5 else np.ones(m)
    return base | {"column": column, "row": row, "cost": float(2.0 ** rng.integers(-27, 28))}


def infeasible(rng: Rng) -> dict[str, Any]:
    """Rows that contradict each other, by much or by little, or bounds that rows cannot meet; sometimes in other units."""
    base = boxed(rng, feasible(rng, kind=exact_numbers(rng)))
    n = len(base["w0"])
    row = filled(rng, rng.integers(-2, 3, (1, n)).astype(float))
    gap = float(2.0 ** rng.integers(-6, 3))
    if rng.random() < 0.5:
        at = row[0] @ base["w0"]
        rows, sides = [row, -row], [at, -at - gap]
    else:
        rows, sides = [row], [np.where(row[0] > 0, row[0] * base["lower"], row[0] * base["upper"]).sum() - gap]
    out = base | {"G": np.vstack([base["G"], *rows]), "h": np.append(base["h"], sides)}
    if rng.random() < 0.3:
        out["integer"] = rng.random(n) < 0.5
    elif rng.random() < 0.3:
        out = resized(rng, out, (-1, 1))
    return out


def unbounded(rng: Rng) -> dict[str, Any]:
    base = feasible(rng, kind=exact_numbers(rng), n=int(rng.integers(2, 7)))
    n = len(base["w0"])
    upper = np.where(rng.random(n) < 0.8, np.inf, base["upper"])
    w0, whole = base["w0"], rng.random() < 0.3
    if whole:
        w0 = np.round(w0)
    ray = np.where(np.isinf(upper), rng.integers(0, 3, n), 0).astype(float)
    G = base["G"] * np.where((base["G"] @ ray) > 0, -1.0, 1.0)[:, None]
    A = base["A"][(base["A"] @ ray) == 0]
    y = base["y"] - 2 * np.abs(base["y"]).max() * (ray > 0)
    rows = {"A": A, "b": A @ w0, "G": G, "h": G @ w0 + 1}
    return base | rows | {"upper": upper, "y": y, "integer": np.full(n, whole), "w0": w0}


def sides(rng: Rng) -> dict[str, Any]:
    """Right-hand sides, bounds and d of each instance's own; some of them infeasible, perhaps."""
    count = 4
    base = boxed(rng, feasible(rng, kind=exact_numbers(rng), count=count))
    n = len(base["w0"])
    points = np.minimum(base["lower"] + rng.integers(0, 4, (count, n)) / 2, base["upper"])
    moves = rng.integers(-1, 3, (count, len(base["h"]))).astype(float)
    every = {
        "b": points @ base["A"].T,
        "h": points @ base["G"].T + moves,
        "lower": base["lower"] - rng.integers(0, 2, (count, n)),
        "upper": base["upper"] + rng.integers(0, 2, (count, n)),
        "d": rng.integers(-4, 5, (count, n)) / 4,
    }
    chosen = [name for name in every if rng.random() < 0.6] or ["b", "h"]
    out = base | {name: every[name] for name in chosen}
    if "b" not in chosen:
        out["b"] = base["A"] @ base["w0"]
    draw = rng.random()
    if draw < 0.2:
        return resized(rng, out, (-1, 1))
    if draw < 0.4 and not len(base["A"]):
        out["integer"] = np.full(n, True)
        out["upper"] = np.minimum(out["upper"], out["lower"] + 2)
    return out


def rectangular(rng: Rng) -> dict[str, Any]:
    base = ordinary(rng)
    n, p = len(base["w0"]), int(rng.integers(1, 9))
    S = rng.integers(-8, 9, (n, p)) / 4 * (rng.random((n, p)) < 0.6)
    return base | {"S": S, "y": rng.normal(size=(2, p)), "d": rng.integers(-8, 9, n) / 4}


def batches(rng: Rng) -> dict[str, Any]:
    """0, 1, 33 or, seldom, 1000 instances, of which few differ."""
    base = ordinary(rng)
    count = int(rng.choice([0, 1, 33, 1000], p=[0.3, 0.3, 0.399, 0.001]))
    return base | {"y": base["y"][rng.integers(0, len(base["y"]), count)]}


def dtypes(rng: Rng) -> dict[str, Any]:
    base = boxed(rng, feasible(rng, kind=exact_numbers(rng)))
    dtype = str(rng.choice(["float16", "float32", "float64"]))
    y = rng.normal(size=base["y"].shape).astype(dtype).astype(float)
    return base | {"y": y, "dtype": dtype}


def bare(n: int, **parts: Any) -> dict[str, Any]:
    """No rows, w ≥ 0, and what else is given."""
    none, zero = np.zeros((0, n)), np.zeros(n)
    rows = {"A": none, "b": np.zeros(0), "G": none, "h": np.zeros(0), "lower": zero, "S": None, "d": zero}
    return rows | {"integer": np.zeros(n, bool), "mu": 1.0, "w0": zero} | parts


def knapsacks(rng: Rng) -> dict[str, Any]:
    """Yes or no under a few rows: what `FewRowBinary` and, relaxed, `FewRowLP` are for; in any units."""
    n, m = int(rng.integers(2, 11)), int(rng.integers(1, 4))
    G = rng.integers(1, 9, (m, n)).astype(float)
    h = np.floor(G.sum(1) * rng.choice([0.25, 0.5, 0.75]))
    y = -numbers(rng, 2, n, kind=str(rng.choice(["integers", "eighths", "floats"])))
    y = y if rng.random() < 0.5 else -np.abs(y)
    out = bare(n, G=G, h=h, upper=np.ones(n), y=y, integer=np.full(n, rng.random() < 0.7))
    draw = rng.random()
    if draw < 0.3:
        out["row"] = 2.0 ** rng.integers(-27, 28, m)
    elif draw < 0.5:
        out["cost"] = float(2.0 ** rng.integers(-27, 28))
    elif draw < 0.7:  # one item worth far more than the others
        out["y"][:, 0] *= float(10.0 ** rng.integers(5, 11))
    return out


def choices(rng: Rng) -> dict[str, Any]:
    """The k best: `TopK`."""
    n = int(rng.integers(2, 9))
    k, unit = int(rng.integers(1, n + 1)), float(rng.choice([0.25, 1.0, 3.0]))
    row = np.full((1, n), unit)
    none, exactly = np.zeros((0, n)), rng.random() < 0.5
    sides = {"A": row if exactly else none, "b": np.full(int(exactly), k * unit)}
    sides |= {"G": none if exactly else row, "h": np.full(int(not exactly), k * unit)}
    y, cost = rng.integers(-8, 9, (2, n)) / 4, float(2.0 ** rng.integers(-20, 21))
    return bare(n, **sides, upper=np.ones(n), y=y, integer=np.full(n, True), cost=cost)


def paths(rng: Rng) -> dict[str, Any]:
    """One unit of flow through an acyclic graph: `DagShortestPath`."""
    nodes = int(rng.integers(2, 6))
    arcs = [(i, i + 1) for i in range(nodes - 1)]
    arcs += [(i, j) for i in range(nodes) for j in range(i + 1, nodes) if rng.random() < 0.5]
    A = np.zeros((nodes, len(arcs)))
    for k, (i, j) in enumerate(arcs):
        A[i, k], A[j, k] = 1.0, -1.0
    b = np.zeros(nodes)
    b[0], b[-1] = 1.0, -1.0
    n = len(arcs)
    upper, y = np.full(n, float(rng.choice([1.0, np.inf]))), rng.integers(-8, 17, (2, n)) / 4
    mu, cost = float(2.0 ** rng.integers(-4, 4)), float(2.0 ** rng.integers(-20, 21))
    return bare(n, A=A, b=b, upper=upper, y=y, mu=mu, cost=cost)


FAMILIES: dict[str, Callable[[Rng], dict[str, Any]]] = {
    function.__name__: function
    for function in (
        ordinary, degenerate, dependent, free_and_fixed, mixed_scales, penalties, tiny_decisions, huge_decisions,
        units_of_costs, units_of_rows, norms, integer, integer_degenerate, integer_dependent, integer_penalties,
        integer_units, infeasible, unbounded, sides, rectangular, batches, dtypes, knapsacks, choices, paths,
        quadratic, predicted_sides, recourse, loose, blocks, balances, big_m, wide_quadratic,
        ties, wide, zeros, fates,
    )
}  # fmt: skip


def make(family: str, seed: int) -> Case:
    """The case of a seed: the same on every machine. Of two instances without sides of their own, often one is left."""
    rng = np.random.default_rng([zlib.crc32(family.encode()), seed])
    parts = FAMILIES[family](rng)
    parts.pop("w0")
    n, rows = len(parts["integer"]), parts["A"].shape[0] + parts["G"].shape[0]
    units = {"column": np.ones(n), "row": np.ones(rows)}
    starts = int(rng.integers(2**31))
    if len(parts["y"]) == 2 and all(parts[name].ndim == 1 for name in ("b", "h", "lower", "upper", "d")):
        parts["y"] = parts["y"][: 1 + (rng.random() < TWO)]
    return Case(family=family, seed=seed, **(units | parts), starts=starts)
