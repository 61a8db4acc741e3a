"""The command `dfl`, run in process."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from dflearn.cli import main
from dflearn.data import DecisionDataset
from dflearn.errors import DataError
from dflearn.evaluation import evaluate
from dflearn.problems import PROBLEMS, problem_named
from dflearn.solvers.highs import HiGHS

Output = pytest.CaptureFixture[str]
KNAPSACK = ["--problem", "KP-12", "--seed", "3"]


@pytest.fixture
def data(tmp_path: Path, capsys: Output) -> Path:
    path = tmp_path / "data.npz"
    assert main(["generate", "KP-12", "--seed", "3", "--count", "15", "--out", str(path)]) == 0
    capsys.readouterr()
    return path


def test_problems_lists_every_name(capsys: Output) -> None:
    assert main(["problems"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2 : 2 + len(PROBLEMS)]] == list(PROBLEMS)
    assert lines[2].split()[2:] == ["40", "0", "40", "25", "0"]
    rest = "\n".join(lines[2 + len(PROBLEMS) :])
    assert all(word in rest for word in ("TopK-", "energy", "scheduling"))


def test_generate_writes_the_problem_s_data(data: Path, tmp_path: Path, capsys: Output) -> None:
    problem = problem_named("KP-12", seed=3)
    assert torch.equal(DecisionDataset.load(data).costs, problem.generate(15).costs)
    assert main(["generate", "KP-12", "--seed", "4", "--count", "7", "--out", str(tmp_path / "other.npz")]) == 0
    assert "7 instances of KP-12, seed 4" in capsys.readouterr().out


@pytest.mark.parametrize("relaxed", [False, True])
def test_label(data: Path, tmp_path: Path, relaxed: bool, capsys: Output) -> None:
    out = tmp_path / "labelled.npz"
    assert main(["label", str(data), *KNAPSACK, "--workers", "2", "--out", str(out)] + ["--relaxed"] * relaxed) == 0
    assert ("relaxed decisions" if relaxed else "optimal decisions") in capsys.readouterr().out
    problem, found = problem_named("KP-12", seed=3), DecisionDataset.load(out)
    program = problem.relaxation if relaxed else problem.program
    wanted = HiGHS(program).solve(found.costs)
    objective = program.objective(found.costs.double(), found.decisions.double())
    torch.testing.assert_close(objective, wanted.objective, rtol=1e-6, atol=1e-6)


def test_label_uses_the_cache_it_is_given(data: Path, tmp_path: Path) -> None:
    command = ["label", str(data), *KNAPSACK, "--out", str(tmp_path / "out.npz")]
    assert main([*command, "--no-cache"]) == 0
    assert not (tmp_path / "cache").exists()
    assert main([*command, "--cache", str(tmp_path / "cache")]) == 0
    assert list((tmp_path / "cache").rglob("*.sqlite"))


@pytest.mark.parametrize("form", ["csv", "header", "ids", "npz"])
def test_evaluate_every_form_of_predictions(data: Path, tmp_path: Path, form: str, capsys: Output) -> None:
    dataset, problem = DecisionDataset.load(data), problem_named("KP-12", seed=3)
    costs = problem.expected_costs(dataset.features).double().numpy().round(3)
    path, rows = tmp_path / "predictions.csv", np.arange(15)
    if form == "ids":
        rows = np.array([9, 2, 4])
    table = np.column_stack([rows, costs[rows]]) if form == "ids" else costs
    if form == "npz":
        path = tmp_path / "predictions.npz"
        np.savez(path, costs=costs)
    else:
        names = ",".join(f"item {i}" for i in range(12))
        header = {"csv": "", "header": f"{names}\n", "ids": f"id,{names}\n"}[form]
        path.write_text(header + "\n".join(",".join(map(str, row)) for row in table.tolist()) + "\n")
    record = tmp_path / "metrics.json"
    command = ["evaluate", str(path), "--data", str(data), *KNAPSACK, "--json", str(record)]
    assert main([*command, "--pessimistic", "--workers", "2"]) == 0
    wanted = evaluate(torch.as_tensor(costs[rows]), problem, dataset.subset(rows), pessimistic=True)
    assert json.loads(record.read_text()) == wanted.as_dict()
    assert capsys.readouterr().out == f"{wanted}\n"


def test_evaluate_the_published_test_part(tmp_path: Path, capsys: Output) -> None:
    problem = problem_named("TopK-3x1", seed=1)
    dataset = problem.generate(1300)
    dataset.save(tmp_path / "data.npz")
    test = dataset.split(1).test
    np.savez(tmp_path / "p.npz", costs=test.costs)
    command = ["evaluate", str(tmp_path / "p.npz"), "--data", str(tmp_path / "data.npz"), "--problem", "TopK-3x1"]
    assert main([*command, "--part", "test"]) == 0
    out = capsys.readouterr().out
    assert "1000 instances" in out


def test_errors_are_one_line_on_stderr(data: Path, tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "out.npz"
    short = tmp_path / "short.csv"
    short.write_text("1,2\n3,4\n")
    np.savez(tmp_path / "p.npz", costs=np.ones((2, 12)), ids=np.array([3, 99]))
    for command, message in (
        (["generate", "SP-x", "--out", str(out)], "no problem is named 'SP-x'"),
        (["generate", "SP-5", "--out", str(tmp_path / "nowhere" / "x.npz")], "does not exist"),
        (["generate", "SP-5", "--out", os.devnull], f"{os.devnull} is a device"),
        (["label", str(data), *KNAPSACK, "--out", str(tmp_path)], "is a folder, which a file would replace"),
        (["label", str(tmp_path / "missing.npz"), *KNAPSACK, "--out", str(out)], "missing.npz"),
        (["label", str(short), *KNAPSACK, "--out", str(out)], "short.csv"),
        (["label", str(data), "--problem", "KP-13", "--out", str(out)], "come from KP-12 with seed 3"),
        (["evaluate", str(short), "--data", str(data), *KNAPSACK], "(15, 12)"),
        (["evaluate", str(tmp_path / "p.npz"), "--data", str(data), *KNAPSACK], "1 ids that the data lack, as 99"),
    ):
        assert main(command) == 1
        seen = capsys.readouterr()
        assert seen.out == ""
        assert seen.err.startswith("dfl: error: ")
        assert seen.err.count("\n") == 1
        assert message in seen.err
    assert {path.name for path in tmp_path.iterdir()} == {"data.npz", "p.npz", "short.csv"}  # nothing half-written
    with pytest.raises(DataError):
        main(["--debug", "evaluate", str(tmp_path / "p.txt"), "--data", str(data), *KNAPSACK])


def test_wrong_usage_and_interruption(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    for command in ("", "unknown", "train --out x", "decide --out x", "generate X", "generate X --count 0 --out x"):
        assert main(command.split()) == 2

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DecisionDataset, "load", interrupt)
    assert main(["label", str(data), *KNAPSACK, "--out", str(data)]) == 130
    assert capsys.readouterr().err.endswith("dfl: interrupted\n")
