# ruff: noqa: E402 (benchmarks are scripts: their folder joins the path first)
"""The benchmark suite: contenders take turns, verdicts and the regression check say what they should. No timings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from dflearn.cli import main, tools

ROOT = Path(__file__).parents[1]

import contest
import epochs
import gpu_page
import growth
import harness
import layers
import quadratic
import targets
from dflearn.problems import problem_named

Output = pytest.CaptureFixture[str]

COUNTING = """
import numpy as np
from turns import Turns, threads
turns = Turns()
print("what libraries print does not matter")
count = 0
while True:
    turns.begin()
    count += 1
    turns.end(count=np.array(count), threads=np.array(threads()))
"""


def script(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    path = folder / "contender.py"
    path.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "benchmarks" / "speed" / "contenders"))
    return str(path)


def test_contenders_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(tmp_path, monkeypatch, COUNTING)
    entries = {"one": contest.Entry(path), "two": contest.Entry(path, threads=2)}
    results = contest.contest(entries, "any", {}, repeats=3)
    for threads, result in enumerate(results.values(), 1):
        assert [int(found["count"]) for found in result.found] == [1, 2, 3, 4]
        assert int(result.found[0]["threads"]) == threads
        assert 0 < result.imports <= result.peak
        assert result.seconds >= 0
        assert len(result.turns) == 4


def test_a_contender_that_dies_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(tmp_path, monkeypatch, "raise ValueError('no licence')")
    with pytest.raises(contest.BenchmarkError, match="poor died: ValueError: no licence"):
        contest.contest({"poor": contest.Entry(path)}, "any", {}, 1)
    with pytest.raises(contest.BenchmarkError, match="make peers"):
        contest.contest({"absent": contest.Entry(path, (), "nowhere")}, "any", {}, 1)


def test_dflearn_and_pyepo_train_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same data, order, start and subgradients: after two epochs the weights are the same."""
    monkeypatch.setattr(epochs, "TRAIN", 160)
    problem = problem_named("SP-5", seed=1)
    given, test = epochs.material(problem)
    entries = {who: epochs.entry(who) for who in ("SPO+", f"SPO+, {epochs.GUROBI}")}
    ours, theirs = contest.contest(entries, "epochs", given, repeats=1).values()
    assert epochs.difference(ours, theirs) < 1e-6
    assert np.linalg.norm(ours.found[1]["weight"] - ours.found[0]["weight"]) > 0
    assert 0 < epochs.regret(problem, test, ours.found[-1]) < 1


def test_tables_of_epochs() -> None:
    def found(seconds: float, regrets: list[float]) -> dict[str, object]:
        return {"seconds": seconds, "regrets": regrets, "first": 9.0, "MiB": 100.0}

    contenders = {"SCE^DYS": found(0.5, [0.4, 0.3, 0.2]), "SCE^DYS as published": found(4.0, [0.4, 0.31])}
    rows = epochs.SUBJECTS["SCE^DYS against the published layer"].rows({"SP-5": contenders, "SP-10": contenders})
    assert rows[0]["unrolled ratio"] == 8
    assert (rows[0]["epochs"], rows[0]["regret, unrolled"]) == (2, 0.3)  # as many as both have
    assert "jfb ratio" not in rows[0]
    assert rows[2] == {"problem": "geometric mean", "unrolled ratio": pytest.approx(8)}


def test_independent_rows() -> None:
    rows = np.array([[1.0, 0, 1], [2, 0, 2], [0, 1, 0]])
    kept = layers.independent(rows)
    assert len(kept) == 2
    assert np.linalg.matrix_rank(rows[kept]) == 2


@pytest.mark.parametrize("name", ["scheduling-24", "sparse-100"])
def test_quadratic_contenders_solve_the_same_program(name: str) -> None:
    """Both ways to give Q are the same matrix; our layer and cvxpylayers agree on decisions and gradients."""
    data = quadratic.PROBLEMS[name](2)
    np.testing.assert_allclose(data["R"].T @ data["R"] + np.diag(data["delta"]), data["Q"], atol=1e-12)
    entries = {who: quadratic.ENTRIES[who] for who in (quadratic.OURS, "cvxpylayers")}
    ours, theirs = (result.found[-1] for result in contest.contest(entries, "layer", data, repeats=1).values())
    for part in ("decision", "gradient"):
        np.testing.assert_allclose(ours[part], theirs[part], atol=quadratic.RIGHT * np.abs(ours[part]).max())
    assert quadratic.violation(data, ours["decision"]) < 1e-9
    far = ours["decision"] + 1e-3
    assert quadratic.violation(data, far) > 1e-6
    own, other = (quadratic.objective(data, found["decision"]) for found in (ours, theirs))
    np.testing.assert_allclose(own, other, rtol=1e-5)


def test_exponents_are_slopes() -> None:
    rows = [
        {"problem": name, "variables": n, "nonzeros + nnz(L)": 2 * n, "Smoothed ms": n**1.5, "Smoothed MiB": 3 * n}
        for name, n in zip(growth.FAMILIES["SP"], (40, 180, 420, 1200, 4900, 19800), strict=True)
    ]
    (line,) = growth.exponents(rows)
    assert line["Smoothed ms, exponent"] == pytest.approx(1.5)
    assert line["Smoothed MiB, exponent"] == pytest.approx(1)


def results(folder: Path, **ratios: float) -> Path:
    folder.mkdir()
    rows = [{"problem": name, "cold ratio": value} for name, value in ratios.items()]
    (folder / "epochs.json").write_text(json.dumps({"subjects": {"SPO+ on shortest paths": rows}}))
    return folder


def test_verdicts(tmp_path: Path) -> None:
    def verdict(folder: Path) -> str:
        return targets.verdicts(folder)[0]["verdict"]

    assert verdict(results(tmp_path / "a", SP15=60.0, SP25=70.0)) == "goal met"
    assert verdict(results(tmp_path / "b", SP15=60.0, SP25=11.0)) == "met"
    assert verdict(results(tmp_path / "c", SP15=60.0, SP25=9.04)) == "**missed** on SP25 (9)"
    assert verdict(results(tmp_path / "d", SP15=60.0)) == "goal met (1 of 2 rows)"
    assert targets.verdicts(tmp_path / "a")[-1]["verdict"] == "not measured"
    overhead = next(target for target in targets.TARGETS if target.at_most and target.file == "training")
    assert overhead.verdict({"fit": 0.2}) == "met"
    assert overhead.verdict({"fit": 0.4}) == "**missed** on fit (0.4)"


def test_regressions_are_named(tmp_path: Path) -> None:
    committed = results(tmp_path / "committed", A=10.0, B=20.0, C=5.0)
    new = results(tmp_path / "new", A=6.1, B=11.9, D=1.0)
    count, lines = targets.regressions(new, committed, 0.6)
    assert count == 2
    assert lines == ["epochs, SPO+ on shortest paths: cold ratio on B is 12, was 20"]


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "bench").glob("*.json")), ids=lambda path: path.stem)
def test_committed_results_are_whole(path: Path) -> None:
    """The page beside each file shows its rows, and no row says the same thing twice."""
    record = json.loads(path.read_text())
    assert {"title", "command", "processor", "versions", "commit", "subjects"} <= set(record)
    page = path.with_suffix(".md").read_text()
    for subject, rows in record["subjects"].items():
        assert f"## {subject}\n\n{harness.table(rows)}" in page


def test_targets_point_at_committed_results() -> None:
    """A target whose column was renamed would silently count as not measured."""
    for target in targets.TARGETS:
        path = targets.RESULTS / f"{target.file}.json"
        measured = json.loads(path.read_text())["subjects"] if path.exists() else {}
        if target.subject in measured:
            assert target.figures(), target.name


def test_peers_are_pinned() -> None:
    for path in (ROOT / "benchmarks" / "speed" / "environments").glob("*.txt"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
        assert any(line.startswith(f"{path.stem}==") for line in lines)


def test_dfl_bench_runs_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Output) -> None:
    assert all((tools.FOLDER / f"{name}.py").exists() for name in tools.BENCHMARKS)
    (tmp_path / "growth.py").write_text(
        "import os, sys; print(sys.argv[1:], os.environ['OMP_NUM_THREADS']); open(sys.argv[-1], 'w').write('{}')"
    )
    (tmp_path / "layers.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(tools, "FOLDER", tmp_path)
    out = tmp_path / "out.json"
    assert main(["bench", "growth", "--quick", "--repeats", "2", "--json", str(out)]) == 0
    assert capfd.readouterr().out == f"{['--threads', '1', '--quick', '--repeats', '2', '--json', str(out)]} 1\n"
    assert main(["bench", "layers"]) == 1
    assert "exit status 3" in capfd.readouterr().err
    assert main(["bench", "epochs"]) == 1
    assert "clone it" in capfd.readouterr().err
    assert main(["bench", "growth", "--json", str(tmp_path / "missing" / "out.json")]) == 1


def test_the_gpus_pages_are_those_of_the_committed_measurements() -> None:
    found = json.loads((ROOT / "results" / "gpu" / "gpu.json").read_text())
    assert (ROOT / "results" / "gpu" / "README.md").read_text() == gpu_page.page(found)
    document = (ROOT / "docs" / "notes" / "gpu.md").read_text()
    assert gpu_page.documented(document, found) == document
