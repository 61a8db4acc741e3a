"""The committed runs: one schema, read by one reader; the tables beside them are theirs, and their studies are complete."""

from __future__ import annotations

import csv
import json
import lzma
from pathlib import Path

import pytest

import comparison
import early_stopping
import mse_baseline
import sparse_iteration
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
    assert len(FILES) == 7
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


def test_tables_are_those_of_the_runs() -> None:
    records = read_records(RESULTS / "comparison" / "runs.jsonl.xz")
    assert (RESULTS / "comparison" / "table.md").read_text() == comparison.page(records)
    assert (
        early_stopping.table(early_stopping.regrets(records))
        in (RESULTS / "comparison" / "early_stopping.md").read_text()
    )
    with open(RESULTS / "mse_baseline" / "published.csv") as file:
        published = {row["problem"]: float(row["published"]) for row in csv.DictReader(file)}
    rows = mse_baseline.compare(read_records(RESULTS / "mse_baseline" / "runs.jsonl.xz"), published)
    with open(RESULTS / "mse_baseline" / "comparison.csv") as file:
        assert [{key: str(value) for key, value in row.items()} for row in rows] == list(csv.DictReader(file))


def test_the_iteration_of_the_authors_trains_the_same_model_sparse_and_dense() -> None:
    """In float64, seed by seed; in float32 training magnifies rounding."""
    records = read_records(RESULTS / "sparse_iteration" / "runs.jsonl.xz")
    wanted = {config.question for study in sparse_iteration.STUDIES for config in read_study(study).runs()}
    assert {record.config.question for record in records} == wanted
    rows = sparse_iteration.regrets(records)
    assert sparse_iteration.table(rows, ".4f") in (RESULTS / "sparse_iteration" / "table.md").read_text()
    assert all(abs(row["difference"]) <= 0.003 for row in rows if row["precision"] == "float64")
