"""The committed runs: one schema, read by one reader; the tables beside them are theirs, and their studies are complete."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from dflearn.studies.config import read_study
from dflearn.studies.store import read_records

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
FILES = sorted(RESULTS.glob("*/*.jsonl.xz"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_every_file_holds_records_with_their_keys(path: Path) -> None:
    text = lzma.decompress(path.read_bytes()).decode()
    for line in text.splitlines():
        json.loads(line, parse_constant=pytest.fail)  # called for NaN and Infinity
    records = read_records(path)
    assert len(records) == text.count("\n") > 0
    keys = [record.config.key for record in records]
    assert len(set(keys)) == len(keys)
    assert all(f'"key": "{key}"' in line for key, line in zip(keys, text.splitlines(), strict=True))
    assert all(record.metric("mean_of_ratios") >= 0 for record in records)


def test_there_are_no_other_files_of_runs() -> None:
    assert len(FILES) == 8
    assert not [*RESULTS.rglob("*.jsonl"), *RESULTS.rglob("*.sqlite")]


@pytest.mark.parametrize(
    ("study", "folder"),
    [
        ("benchmarks/studies/comparison.toml", "comparison"),
        ("benchmarks/studies/mse_baseline.toml", "mse_baseline"),
        ("examples/travelling_salesman.toml", "travelling_salesman"),
    ],
)
def test_studies_are_complete(study: str, folder: str) -> None:
    known = {record.config.question for record in read_records(RESULTS / folder / "runs.jsonl.xz")}
    assert {config.question for config in read_study(ROOT / study).runs()} == known


@pytest.mark.parametrize(("name", "count"), [("field", 805), ("frontier", 48)])
def test_studies_without_committed_runs_can_be_run(name: str, count: int) -> None:
    assert len(read_study(ROOT / "benchmarks" / "studies" / f"{name}.toml").runs()) == count


def test_the_iteration_of_the_authors_trains_the_same_model_sparse_and_dense() -> None:
    """In float64, seed by seed; in float32 training magnifies rounding."""
    records = read_records(RESULTS / "sparse_iteration" / "runs.jsonl.xz")
    regret = {(r.config.method, r.config.seed): r.metric("published_style") for r in records}
    pairs = [key for key in regret if key[0].endswith("float64") and "dense" not in key[0]]
    assert pairs
    for method, seed in pairs:
        dense = method.replace(" float64", " dense float64")
        assert abs(regret[method, seed] - regret[dense, seed]) <= 0.003
