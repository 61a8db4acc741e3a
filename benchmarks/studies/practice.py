"""The practice benchmark: `dflearn.train` with no option touched, beside plain scikit-learn pipelines, on twelve problems.

    python benchmarks/studies/practice.py --energy energy_days.npz                  # all runs that the file lacks, seeds outermost
    python benchmarks/studies/practice.py --problems feed --seeds 0 --out build/practice
    python benchmarks/studies/practice.py --no-run                                  # write the page again

The rules of judgement are in results/practice_2/README.md. Finished runs are lines of runs.ndjson.xz, and are never repeated while
the data they name are the same. Seed 0 is for development.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import dflearn as dfl
from dflearn.data.split import Parts, parts_of
from dflearn.files import replacing
from dflearn.problems.energy import VARIABLE
from dflearn.studies.record import machine
from practice_goods import bakery, couriers, feed, purchasing, selection, shifts, transport
from practice_markets import WEEK, Case, battery, commitment, half_hours, heating, schedule


def as_numbers(features: dict[str, np.ndarray]) -> pd.DataFrame:
    """The table with what people make of a date: days since the first, a circle of the year, and the weekday."""
    frame = pd.DataFrame(features)
    for name in frame.select_dtypes("datetime"):
        dates = frame.pop(name).dt
        circle = 2 * np.pi * dates.day_of_year / 365.25
        frame[f"{name}, days"] = dates.normalize().map(pd.Timestamp.toordinal)
        frame[f"{name}, sine"], frame[f"{name}, cosine"] = np.sin(circle), np.cos(circle)
        frame[f"{name}, weekday"] = dates.day_of_week.map(dict(enumerate(WEEK)))
    return frame


class QuantileBoosting(BaseEstimator):  # type: ignore[misc]
    """Boosted trees at a quantile level of each cost."""

    def __init__(self, levels: np.ndarray) -> None:
        self.levels = levels

    def fit(self, X: np.ndarray, Y: np.ndarray) -> QuantileBoosting:
        make = lambda level: HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0)  # noqa: E731
        self.models_ = [make(level).fit(X, y) for level, y in zip(self.levels, Y.T, strict=True)]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.column_stack([model.predict(X) for model in self.models_])


def ordinary(case: Case) -> dict[str, Any]:
    """Pipelines as a textbook has them, by name."""
    models = {
        "least squares": LinearRegression(),
        "ridge": RidgeCV(np.logspace(-1, 4, 16), alpha_per_target=True),
        "boosting": MultiOutputRegressor(HistGradientBoostingRegressor(random_state=0)),
    }
    if case.quantiles is not None:
        models["quantile boosting"] = QuantileBoosting(case.quantiles)
    kinds = make_column_selector(dtype_exclude=[object, "str"]), make_column_selector(dtype_include=[object, "str"])
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    categories = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((numbers, kinds[0]), (categories, kinds[1]))
    return {name: make_pipeline(columns, model) for name, model in models.items()}


Record = dict[str, Any]
WORLDS = (
    *(half_hours, schedule, battery, transport, shifts, selection),
    *(commitment, purchasing, heating, couriers, bakery, feed),
)
PROBLEMS: dict[str, Callable[[int], Case]] = {make.__name__: make for make in WORLDS}
SEEDS, LEVEL, RECORDS = (1, 2, 3, 4, 5), 0.95, "runs.ndjson.xz"


def run(name: str, seed: int) -> Record:
    """Train by default; forecast the ordinary ways on the same rows; decide exactly; keep regrets of the test rows."""
    case = PROBLEMS[name](seed)
    begun = time.process_time()
    result = dfl.train(
        case.program, case.features, case.costs, case.instances, test=case.test, ordered=case.ordered, seed=seed,
        progress=False,
    )  # fmt: skip
    seconds = {"train": time.process_time() - begun}
    instance = None if case.instances is None else case.program.instance(case.instances)
    y = np.column_stack([case.costs[one] for one in case.program.cost_names or ()])
    frame, kept = as_numbers(case.features), result.tested[result.chosen]
    data = dfl.DecisionDataset(torch.zeros(len(y), 1), torch.as_tensor(y), instance=instance)
    parts = parts_of(len(y), test=case.test, ordered=case.ordered, seed=seed)
    assert set(kept.ids.tolist()) == set(parts.test.tolist()), f"{name}: train tested other rows than the rules say"
    parts = Parts(parts.train, parts.choose, kept.ids)
    regrets: dict[str, np.ndarray] = {}
    validation: dict[str, float] = {}
    begun = time.process_time()

    def judged(pipeline: Any, known: np.ndarray, rows: np.ndarray) -> dfl.Evaluation:
        """The pipeline, fitted to the rows that are known, on others."""
        forecast = pipeline.fit(frame.iloc[known], y[known]).predict(frame.iloc[rows])
        return dfl.evaluate(torch.as_tensor(forecast), case.program, data.subset(torch.as_tensor(rows)), progress=False)

    for method, pipeline in ordinary(case).items():
        chosen_by = judged(pipeline, parts.train, parts.choose)
        tested = judged(pipeline, np.sort(np.concatenate(parts[:2])), parts.test)
        np.testing.assert_allclose(tested.optima, kept.optima, rtol=1e-4, atol=1e-4 * np.abs(kept.optima).max())
        regrets[method], validation[method] = tested.regrets, chosen_by.absolute_regret
    seconds["ordinary"] = time.process_time() - begun
    own = {f"dflearn {key}": found.regrets for key, found in result.tested.items()}
    config = {"test": case.test, "ordered": case.ordered, "rows": list(map(len, parts)), "costs": y.shape[1]}
    about = {"problem": name, "seed": seed, "digest": case.digest, "money": case.money, "config": config}
    return about | {
        "chosen": result.chosen,
        "baseline": result.baseline,
        "seconds": {key: round(value, 1) for key, value in seconds.items()},
        "validation": {key: short(value) for key, value in validation.items()},
        "optimum": short(np.abs(kept.optima).mean()),
        "regrets": {key: [short(one) for one in values] for key, values in (regrets | own).items()},
        "machine": machine() | {"scikit-learn": sklearn.__version__},
    }


def short(value: float) -> float:
    return float(f"{value:.6g}")


def read(path: Path) -> list[Record]:
    if not path.exists():
        return []
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def keep(path: Path, records: Iterable[Record]) -> None:
    """Written whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, lzma.open(temporary, "wt", encoding="utf-8", preset=9) as file:
        file.writelines(json.dumps(one, ensure_ascii=False, separators=(",", ":")) + "\n" for one in records)


def mean(record: Record, method: str) -> float:
    return float(np.mean(record["regrets"][method]))


def by_validation(record: Record) -> str:
    return min(record["validation"], key=record["validation"].__getitem__)


def in_hindsight(records: list[Record]) -> str:
    """The ordinary forecast of least mean regret on the test rows of all seeds."""
    return min(records[0]["validation"], key=lambda method: sum(mean(one, method) for one in records))


def paired(difference: np.ndarray) -> tuple[float, float, float]:
    """Mean, half the width of Student's interval, and p of a paired test over seeds; no difference at all has p = 1."""
    if len(difference) < 2 or not difference.any():
        return float(difference.mean()), 0.0 if len(difference) > 1 else np.nan, 1.0
    test = stats.ttest_1samp(difference, 0)
    return float(difference.mean()), float(np.ptp(test.confidence_interval(LEVEL)) / 2), float(test.pvalue)


def holm(p: list[float]) -> np.ndarray:
    """p adjusted for all tests of the list (Holm, 1979), in its order."""
    order, adjusted = np.argsort(p), np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.asarray(p)[order] * np.arange(len(p), 0, -1)).clip(max=1)
    return adjusted


def against(groups: dict[str, list[Record]], rival: Callable[[list[Record]], list[str]], words: str) -> str:
    """A table of the default − a rival by problem, and the counts beyond chance."""
    lines = [f"## The default − {words}", ""]
    lines += ["| problem | rival's regret | difference | 95 % | p | p, Holm | |", "|---" * 7 + "|"]
    others = [[mean(one, m) for one, m in zip(own, rival(own), strict=True)] for own in groups.values()]
    mine = [[mean(one, f"dflearn {one['chosen']}") for one in own] for own in groups.values()]
    tests = [paired(np.subtract(*pair)) for pair in zip(mine, others, strict=True)]
    after = holm([p for *_, p in tests])
    words_of = lambda value: "worse" if value > 0 else "better"  # noqa: E731
    said = [words_of(test[0]) if q < 1 - LEVEL else "" for test, q in zip(tests, after, strict=True)]
    for name, other, (value, half, p), q, word in zip(groups, others, tests, after, said, strict=True):
        cells = f"{np.mean(other):.4g} | {value:+.3g} ({value / np.mean(other):+.1%}) | ± {half:.3g} | {p:.2g} | {q:.2g} | {word} |"
        lines.append(f"| {name} | {cells}")
    lower = sum(value < 0 for value, *_ in tests)
    counts = f"Worse beyond chance on {said.count('worse')} of {len(said)}, better on {said.count('better')}; the mean is lower on {lower}."
    return "\n".join([*lines, "", counts, ""])


def page(records: list[Record]) -> str:
    groups = {name: own for name in PROBLEMS if (own := [one for one in records if one["problem"] == name])}
    head = "| problem | seed | optimum | kept | its baseline | by validation | train, CPU s | ordinary |"
    runs = [head, "|---" * 8 + "|"]
    for one in (one for own in groups.values() for one in own):
        cells = [f"{one['problem']}, {one['money']}", one["seed"], f"{one['optimum']:.4g}", one["chosen"]]
        cells += [one["baseline"], by_validation(one), *one["seconds"].values()]
        runs.append(f"| {' | '.join(map(str, cells))} |")
    commits = ", ".join(sorted({str(one["machine"]["commit"])[:7] for one in records}))
    head = f"# Practice: {len(groups)} problems, {len(records)} runs, commits {commits}\n\n`python benchmarks/studies/practice.py "
    head += "--no-run` writes this page from runs.ndjson.xz. The rules are in README.md.\n"
    tables = [
        against(groups, lambda own: [by_validation(one) for one in own], "the best ordinary forecast by validation"),
        against(groups, lambda own: [in_hindsight(own)] * len(own), "the best ordinary forecast in hindsight"),
        against(groups, lambda own: [f"dflearn {one['baseline']}" for one in own], "its own baseline"),
    ]
    return "\n".join([head, *tables, "## Runs", "", *runs, ""])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    arguments.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    arguments.add_argument("--energy", type=Path, help=f"file of real days (default: ${VARIABLE}, else synthetic ones)")
    arguments.add_argument("--out", type=Path, default=Path("results/practice_2"))
    arguments.add_argument("--no-run", action="store_true", help="show what is there")
    options = arguments.parse_args()
    if options.energy is not None:
        os.environ[VARIABLE] = str(options.energy)
    torch.set_num_threads(1)
    path = options.out / RECORDS
    for seed, name in () if options.no_run else ((seed, name) for seed in options.seeds for name in options.problems):
        records = read(path)
        known = {(one["problem"], one["seed"]): one["digest"] for one in records}
        if (name, seed) in known:
            assert known[name, seed] == PROBLEMS[name](seed).digest, f"{path} holds {name}, seed {seed}, of other data"
            continue
        record = run(name, seed)
        keep(path, [*records, record])
        told = {key: f"{np.mean(values):.4g}" for key, values in record["regrets"].items()}
        print(f"{name}, seed {seed}, {record['seconds']}, kept {record['chosen']}: {told}", flush=True)
    if records := read(path):
        (options.out / "table.md").write_text(page(records), encoding="utf-8")


if __name__ == "__main__":
    main()
