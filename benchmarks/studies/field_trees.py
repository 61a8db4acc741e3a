"""SPO trees beside trees of squared error, on the problems of the field study whose features are one row: depth tuned on seed 0.

    python benchmarks/studies/field_trees.py             # results/field/trees.md and trees.json; a minute
    python benchmarks/studies/field_trees.py --no-run    # write the page again

Both trees have leaves of at least 20 rows and predict the mean costs of a leaf; they differ in what a split is chosen by: the regret
of the leaves' decisions (Elmachtoub et al., 2020), or the squared error of all costs (CART, by scikit-learn). Data, seeds and
judgement are those of the field study; a linear model of it stands beside them.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.tree import DecisionTreeRegressor

from dflearn.data.cache import default_cache
from dflearn.evaluation import evaluate
from dflearn.problems.base import Problem
from dflearn.report.render import render
from dflearn.tables import SPOTree
from field import OUT, RECORDS, SEEDS, TASKS, TUNED_ON, Check, Record, Task, read, rows_of
from field_statistics import Field

DEPTHS, LEAF = (1, 2, 3, 4, 5), 20
BESIDE = ("MSE", "SCE")  # linear models of the study
TREES: dict[str, Callable[[Problem, int], Any]] = {
    "SPO tree": lambda problem, depth: SPOTree(problem.relaxed_solver(), max_depth=depth, min_samples_leaf=LEAF),
    "CART": lambda problem, depth: DecisionTreeRegressor(max_depth=depth, min_samples_leaf=LEAF, random_state=0),
}


def run(task: Task, method: str, depth: int, seed: int) -> Record:
    rows = rows_of(task, seed)
    X, y = rows.train.features.double().numpy(), rows.train.batch().require("costs").double().numpy()
    begun = time.process_time()
    tree = TREES[method](rows.problem, depth).fit(X, y)
    record = {
        "problem": task.name,
        "method": method,
        "seed": seed,
        "trial": depth,
        "seconds": time.process_time() - begun,
    }

    def predict(features: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(tree.predict(features.double().numpy()))

    if seed == TUNED_ON:
        return record | {"validation": Check(rows, 1).regret(predict)}  # type: ignore[arg-type]
    judged = evaluate(predict, rows.problem, rows.test, cache=default_cache(), floor=False, progress=False)
    size = float(np.abs(judged.optima).mean())
    regrets = [float(f"{regret / size:.3g}") for regret in judged.regrets]
    return record | {"regret": judged.ratio_of_sums, "regrets": regrets}


def all_runs() -> list[Record]:
    records: list[Record] = []
    for task in TASKS:
        if task.model != "linear" or task.methods != "all":
            continue
        for method in TREES:
            tried = [run(task, method, depth, TUNED_ON) for depth in DEPTHS]
            chosen = min(tried, key=lambda one: one["validation"])["trial"]
            records += [*tried, *(run(task, method, chosen, seed) for seed in SEEDS)]
            print(task.name, method, chosen, [f"{one['regret']:.2%}" for one in records[-len(SEEDS) :]], flush=True)
        rows_of.cache_clear()
    return records


def page(records: list[Record], compared: list[Record]) -> str:
    names = dict.fromkeys(one["problem"] for one in records)
    linear = [one for one in compared if one["method"] in BESIDE and one["problem"] in names]
    trees, known, lines = Field(records), Field(linear), []
    for problem in names:
        depth = [
            min(trees.trials(problem, method), key=lambda pair: pair[1])[0]
            if trees.trials(problem, method)
            else math.nan
            for method in TREES
        ]
        one = trees.difference(problem, "SPO tree", "CART")
        regrets = [f"{trees.mean(problem, method):.2%}" for method in TREES]
        beside = [f"{known.mean(problem, method):.2%}" if problem in known.problems else "" for method in BESIDE]
        paired = f"{100 * one.value:+.2f} [{100 * one.low:+.2f}, {100 * one.high:+.2f}]"
        lines.append([problem, *regrets, paired, " / ".join(map(str, depth)), *beside])
    seconds = [np.median([one["seconds"] for one in records if one["method"] == method]) for method in TREES]
    header = ("problem", *TREES, "SPO tree less CART, points", "depths", *(f"linear, {name}" for name in BESIDE))
    return (
        "# Trees\n\n`python benchmarks/studies/field_trees.py` writes this page. Regret on test rows, seeds 1 to 5; the depth, of "
        f"{DEPTHS[0]} to {DEPTHS[-1]}, is the best on seed 0's validation rows; paired differences with 95 % intervals as in "
        "[the comparison](README.md), whose linear models stand on the right.\n\n"
        + render(header, lines, "markdown")
        + f"\n\nCPU seconds to grow a tree, median: {seconds[0]:.2f} (SPO tree, on the relaxation) and {seconds[1]:.3f} (CART).\n"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--no-run", action="store_true", help="write the page again")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    path = OUT / "trees.json"
    if not options.no_run:
        text = ",\n".join(json.dumps(one, separators=(",", ":")) for one in all_runs())
        path.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    (OUT / "trees.md").write_text(page(json.loads(path.read_text()), read(OUT / RECORDS)), encoding="utf-8")


if __name__ == "__main__":
    main()
