"""The practice study: on each problem, the default of `dflearn.train` beside the ordinary ways to forecast.

    python -m benchmarks.practice.study                                   # all problems and their seeds, into results/practice
    python -m benchmarks.practice.study --problems battery --seeds 0 --out build/practice
    python -m benchmarks.practice.study --no-run                          # write the table and the figure again

The three problems on real days need their file: `DFLEARN_ENERGY=energy_days.npz`. Finished pairs of problem and seed are kept
in regrets.ndjson.xz and not run again: round by round, so that the study can be ended after any. No option of `train` is
touched but those that say which rows are tested on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dflearn
from benchmarks.practice import ON_DAYS, PROBLEMS, SEEDS, Case
from benchmarks.practice.page import write
from benchmarks.practice.two_stage import FORECASTS
from dflearn.evaluation import evaluate
from dflearn.files import replacing
from dflearn.problems.energy import load_energy_days
from dflearn.studies.record import machine

Record = dict[str, Any]
RECORDS = "regrets.ndjson.xz"  # in the study's folder: one record a line, of a schema of its own


def run(name: str, seed: int) -> Record:
    """Train by default, forecast the ordinary ways on the same columns and rows, decide exactly: one record.

    Regrets are row by row on the rows to test on, in their order, of models fitted to all other rows. "choosing" holds means on
    the rows to choose by, of models fitted to the rows to train on.
    """
    case = PROBLEMS[name](seed)
    begun, worked = time.perf_counter(), time.process_time()
    result = dflearn.train(
        case.program,
        case.features,
        case.costs,
        case.instances,
        test=case.test,
        ordered=case.ordered,
        seed=seed,
        progress=False,
    )
    seconds = {"default": time.perf_counter() - begun, "default, processor": time.process_time() - worked}
    parts = case.parts
    assert all(map(np.array_equal, result.parts, parts)), (
        f"{name}: train divided the rows otherwise than the problem says"
    )
    data = result.data
    X, Y = data.features.double().numpy(), data.batch().require("costs").double().numpy()
    regrets: dict[str, np.ndarray] = {}
    choosing: dict[str, float] = {}
    optima = result.tested[result.chosen].optima
    known = np.sort(np.concatenate(parts[:2]))
    for method, fit in FORECASTS.items():
        begun = time.perf_counter()
        before, forecast = (fit(X[rows], Y[rows]) for rows in (parts.train, known))
        seconds[method] = time.perf_counter() - begun
        chosen_by, judged = (
            evaluate(fitted(X[rows]), case.program, data.subset(rows), progress=False)
            for fitted, rows in ((before, parts.choose), (forecast, parts.test))
        )
        np.testing.assert_allclose(judged.optima, optima, rtol=1e-4, atol=1e-4 * np.abs(optima).max())
        regrets[method], choosing[method] = judged.regrets, chosen_by.absolute_regret
    own = {method: judged.regrets for method, judged in result.tested.items()}
    return {
        "problem": name,
        "seed": seed,
        "money": case.money,
        "ordered": case.ordered,
        "rows": list(map(len, parts)),
        "columns": X.shape[1],
        "digest": digest(case),
        "synthetic days": name in ON_DAYS and load_energy_days().is_synthetic,
        "chosen": result.chosen,
        "baseline": result.baseline,
        "choosing": {key: shorter(value) for key, value in choosing.items()}
        | {f"dflearn {key}": shorter(judged.absolute_regret) for key, judged in result.validation.items()},
        "seconds": {key: round(value, 1) for key, value in seconds.items()},
        "optima": shorter(optima),
        "regrets": {key: shorter(values) for key, values in regrets.items()}
        | {"default": shorter(own[result.chosen])}
        | {f"dflearn {key}": shorter(values) for key, values in own.items()},
        "machine": machine(),
    }


def shorter(values: Any) -> Any:
    """Six significant digits, as lists that JSON holds."""
    return [float(f"{value:.6g}") for value in values] if np.ndim(values) else float(f"{values:.6g}")


def digest(case: Case) -> str:
    """Which data these are."""
    tables = (case.features, case.costs, case.instances or {})
    text = b"".join(name.encode() + str(column.tolist()).encode() for table in tables for name, column in table.items())
    return hashlib.sha256(case.program.fingerprint.encode() + text).hexdigest()[:16]


# -- the file -------------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Record]:
    if not path.exists():
        return []
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def keep(path: Path, records: list[Record]) -> None:
    """Written whole or not at all, in the order of problems and seeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    order = list(PROBLEMS)
    records = sorted(records, key=lambda one: (order.index(one["problem"]), one["seed"]))
    with replacing(path) as temporary, lzma.open(temporary, "wt", encoding="utf-8", preset=9) as file:
        file.writelines(json.dumps(one, ensure_ascii=False, separators=(",", ":")) + "\n" for one in records)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    arguments.add_argument("--seeds", nargs="+", type=int, help="default: those of the study")
    arguments.add_argument("--out", type=Path, default=Path("results/practice"))
    arguments.add_argument("--no-run", action="store_true", help="show what is there")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    path = options.out / RECORDS
    rounds = sorted(
        (turn, name, seed) for name in options.problems for turn, seed in enumerate(options.seeds or SEEDS[name])
    )
    for _, name, seed in () if options.no_run else rounds:
        if any((one["problem"], one["seed"]) == (name, seed) for one in read(path)):
            continue
        record = run(name, seed)
        keep(path, [*read(path), record])
        means = {key: f"{np.mean(values):.4g}" for key, values in record["regrets"].items()}
        print(f"{name}, seed {seed}, {record['seconds']['default']} s, kept {record['chosen']}: {means}", flush=True)
    print(write(options.out, read(path)))


if __name__ == "__main__":
    main()
