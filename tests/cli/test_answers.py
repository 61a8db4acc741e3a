"""What every command answers to programs, before torch is loaded, and to the Tab key; own programs judged by SciPy."""

from __future__ import annotations

import html
import json
import os
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

import dflearn
from dflearn.cli import application, main
from dflearn.cli.options import Command
from dflearn.files import as_json
from dflearn.problems import PROBLEMS
from dflearn.studies.store import Store
from dflearn.tables import Imported
from dflearn.tables.methods import METHODS
from support.study_records import study

Output = pytest.CaptureFixture[str]
pytestmark = pytest.mark.xdist_group("answers")  # what they share is made once
MODEL = """\
Maximize
 value: 1 tent + 1 stove + 1 rope + 0.5 spare
Subject To
 weight: 3 tent + 4 stove + 5 rope + spare <= 9
Binary
 tent stove rope spare
End
"""
COSTS = ["tent", "stove", "rope"]
OWN = ["--program", "pack.lp", "--features", "x.csv", "--costs", "y.csv", "--id", "day"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, tables, forecasts, a trained model, a data set and a store: what commands read."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    (folder / "pack.lp").write_text(MODEL)
    x = rng.normal(size=(40, 2))
    y = 5 + x @ rng.normal(size=(2, 3)) + rng.normal(0, 0.3, (40, 3))
    days = [str(np.datetime64("2024-01-01") + k) for k in range(40)]
    for name, values in (("x", x), ("y", y), ("old", y + 1), ("new", y[::-1])):
        names = ["rain", "wind"] if name == "x" else COSTS
        pd.DataFrame(values, columns=names).assign(day=days).to_csv(folder / f"{name}.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", *OWN, "--out", "model.dfl", "--epochs", "1", "--loss", "spo+", "--no-page"]) == 0
        assert main(["generate", "TopK-4x1", "--count", "6", "--out", "data.npz"]) == 0
    np.savez(folder / "predicted.npz", costs=np.ones((6, 4)))
    settings = "[settings]\npoints = 80\ntest = 40\nepochs = 2\n"
    (folder / "study.toml").write_text(f'problems = ["SP-3"]\nmethods = ["MSE"]\nseeds = [1]\n{settings}')
    with Store(folder / "small.sqlite") as store:
        records = study(problems=("SP-5",), methods=("MSE", "PFY"), seeds=(1,))
        store.put_wanted([one.config for one in records])
        for one in records:
            store.put(one)
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


# -- JSON -----------------------------------------------------------------------------------------------------------

STUDY = ["--store", "small.sqlite", "--sizes", "5", "--seeds", "1", "--methods", "MSE", "PFY"]
COMMANDS: dict[str, tuple[list[str], set[str]]] = {  # a call of each, and the keys that its document has
    "dfl demo": (["--epochs", "1", "--out", "demo"], {"epochs", "methods", "page"}),
    "dfl train": (
        [*OWN, "--out", "again.dfl", "--epochs", "1", "--loss", "spo+", "--unit", "EUR"],
        {
            "model", "page", "chosen", "baseline", "compared", "rows", "unit", "rows_per_year", "savings", "difference",
            "test", "choose", "notes", "folds",
        },
    ),
    "dfl decide": (
        ["--model", "model.dfl", "--features", "x.csv", "--costs", "y.csv", "--out", "decided.csv"],
        {"out", "model", "chosen", "decisions", "statuses", "mean_regret", "ratio_of_sums"},
    ),
    "dfl problems": ([], {"problems", "forms"}),
    "dfl methods": ([], {"methods"}),
    "dfl generate": (["TopK-4x1", "--count", "6", "--out", "more.npz"], {"out", "problem", "seed", "instances"}),
    "dfl label": (["data.npz", "--out", "labelled.npz"], {"out", "problem", "instances", "relaxed", "seconds"}),
    "dfl evaluate": (
        ["predicted.npz", "--data", "data.npz"],
        {"problem", "solver", "instances", "confidence", "metrics", "zero_optima", "negative_regrets", "most_negative_regret"},
    ),
    "dfl doctor": (["TopK-4x1", "--count", "20", "--epochs", "1"], {"looked_at", "epochs", "diagnoses"}),
    "dfl run": (["study.toml", "--in-process"], {"store", "asked", "done", "new", "runs", "notes"}),
    "dfl status": (["small.sqlite"], {"store", "runs", "done", "running", "failed", "missing", "seconds_left"}),
    "dfl export": (["small.sqlite", "--out", "runs.csv"], {"out", "runs"}),
    "dfl report": (["small.sqlite", "-o", "report.html"], {"out", "runs", "files"}),
    "dfl paper list": ([], {"tables", "methods", "figures"}),
    "dfl paper table": (["sp", *STUDY, "--no-run"], {"table", "rows", "failed", "missing"}),
    "dfl paper summary": (["--tables", "sp", *STUDY], {"problems"}),
    "dfl paper all": (
        ["--tables", "sp", *STUDY, "--store", "other.sqlite", "--budget", "1e-9", "--in-process"],
        {"store", "asked", "done", "new", "failed", "seconds_left"},
    ),
    "dfl paper cost": (
        ["--tables", "sp", *STUDY, "--cores", "2", "--whole"],
        {"asked", "counted", "rows", "seconds", "cores", "seconds_on_cores"},
    ),
    "dfl paper figure": (["one-dimension", "--quick", "--out", "figures"], {"figures"}),
    "dfl paper report": (["--study", "small.sqlite", "-o", "paper.md"], {"out", "runs", "files"}),
    "dfl completion": (["bash"], {"shell", "script"}),
}  # fmt: skip
TIMED = {"dfl bench", "dfl compile"}  # take minutes; tests/test_benchmarks.py and tests/engine/test_ahead.py run them


def classes() -> dict[str, type[Command]]:
    """The class of each command, by what is typed for it."""
    app, found = application(), dict[str, Any]()
    for above, here in (("dfl", app), ("dfl paper", app["paper"])):
        found |= {f"{above} {name}": one.default_command for name, one in here.resolved_commands().items()}
    return {name: one for name, one in found.items() if isinstance(one, type)}


def test_every_command_has_a_document_here() -> None:
    assert set(classes()) == {*COMMANDS, *TIMED}
    for one in classes().values():
        assert "json" in {field.name for field in fields(one)}


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_one_document_and_nothing_else(command: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments, keys = COMMANDS[command]
    assert main([*command.split()[1:], *arguments, "--json"]) == 0
    document = json.loads(capfd.readouterr().out, parse_constant=refuse)
    assert (document.pop("command"), document.pop("dflearn")) == (command, dflearn.__version__)
    assert set(document) == keys


def test_documents_say_what_the_texts_say(folder: Path, capsys: Output) -> None:
    def document(*arguments: str) -> dict[str, Any]:
        assert main([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert [one["problem"] for one in document("problems")["problems"]] == list(PROBLEMS)
    assert document("status", "small.sqlite")["done"] == 2
    assert "KP-500" in document("paper", "list")["tables"]["kp"]
    found = document("decide", *COMMANDS["dfl decide"][0])
    assert found["mean_regret"] == pytest.approx(pd.read_csv("decided.csv")["regret"].mean())
    assert found["statuses"] == {"optimal": 40}


def test_an_error_is_a_document_too(folder: Path, capsys: Output) -> None:
    assert main(["status", "none.sqlite", "--json"]) == 1
    seen = capsys.readouterr()
    document = json.loads(seen.out)
    assert (document["command"], document["error"]["type"]) == ("dfl status", "DataError")
    assert seen.err == f"dfl: error: {document['error']['message']}\n"
    assert main(["methods", "none", "--json"]) == 1
    error = {"type": "OptionError", "message": "no method is named 'none': dfl methods lists the names"}
    assert json.loads(capsys.readouterr().out)["error"] == {**error, "remedy": "dfl methods lists the names"}


def test_wrong_usage_is_a_document_too(capsys: Output) -> None:
    assert main(["status", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["error"]["remedy"]) == ("dfl status", "dfl status --help")
    assert main(["status"]) == 2
    assert capsys.readouterr().out == ""


def test_an_encoding_that_lacks_characters(folder: Path) -> None:
    """Question marks in the text, escapes in the document."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "dflearn", "methods"]
    run = lambda *more: subprocess.run([*command, *more], env=environment, capture_output=True, check=True)  # noqa: E731
    text, document = run().stdout, run("--json").stdout
    assert "μ" in str([entry.as_dict() for entry in METHODS])
    assert text.isascii()
    assert json.loads(document.decode("ascii"))["methods"] == as_json([entry.as_dict() for entry in METHODS])


def test_next_commands_are_quoted_for_the_shell(folder: Path, capsys: Output) -> None:
    odd = Path("it's a $model & more.dfl")
    assert main(["train", *OWN, "--out", str(odd), "--epochs", "1", "--loss", "spo+"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Next: "))
    words = shlex.split(line.removeprefix("Next: "))
    assert words[:4] == ["dfl", "decide", "--model", str(odd)]
    page = html.unescape(odd.with_suffix(".html").read_text())
    assert f"--model {shlex.quote(str(odd))} --features" in page


def test_what_json_cannot_hold_is_told_otherwise() -> None:
    found = as_json({"a": float("nan"), 3: np.float64(2), "p": Path("x"), "l": (1, np.arange(2)), "i": np.inf})
    assert found == {"a": None, "3": 2.0, "p": "x", "l": [1, [0, 1]], "i": None}


# -- programs of one's own ------------------------------------------------------------------------------------------


def regrets(predicted: np.ndarray, costs: np.ndarray, limits: np.ndarray | None = None) -> np.ndarray:
    """By SciPy's MILP solver, on matrices written by hand."""
    found = []
    for i, (guess, true) in enumerate(zip(predicted, costs, strict=True)):
        rows = LinearConstraint([[3, 4, 5, 1]], ub=[9 if limits is None else limits[i]])
        solve = lambda y, rows=rows: milp(-np.append(y, 0.5), constraints=rows, bounds=Bounds(0, 1), integrality=1)  # noqa: E731
        decided, best = solve(guess).x, solve(true).x
        found.append(np.append(true, 0.5) @ (best - decided))
    return np.array(found)


def test_forecasts_are_judged_on_an_own_program(folder: Path, capsys: Output) -> None:
    given = ["evaluate", "--program", "pack.lp", "--costs", "y.csv", "--id", "day", "--features", "x.csv"]
    assert main([*given, "--predictions", "old.csv", "new.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    y, old, new = (pd.read_csv(f"{name}.csv")[COSTS].to_numpy() for name in ("y", "old", "new"))
    wanted = {"old.csv": regrets(old, y), "new.csv": regrets(new, y)}
    for name, some in wanted.items():
        assert found["predictions"][name]["metrics"]["absolute_regret"]["value"] == pytest.approx(some.mean(), abs=1e-9)
    average = regrets(np.tile(y.mean(0), (40, 1)), y).mean()
    assert found["average_costs"]["metrics"]["absolute_regret"]["value"] == pytest.approx(average)
    difference = found["differences"]["new.csv"]["absolute_regret"]["value"]
    assert difference == pytest.approx((wanted["new.csv"] - wanted["old.csv"]).mean())
    assert main([*given, "new.csv", "--json", "judged.json"]) == 0  # with a file, the text is printed too
    assert "absolute_regret" in capsys.readouterr().out
    assert json.loads(Path("judged.json").read_text())["predictions"]["new.csv"] == found["predictions"]["new.csv"]


def test_rows_are_matched_by_id_and_instances_count(folder: Path, capsys: Output) -> None:
    limits = pd.DataFrame({"weight": np.arange(40) % 7 + 4, "day": pd.read_csv("y.csv")["day"]})
    limits[::-1].to_csv("limits.csv", index=False)
    pd.read_csv("old.csv")[["day", "rope", "tent", "stove"]][::-1].to_csv("mixed.csv", index=False)
    command = "evaluate mixed.csv --program pack.lp --costs y.csv --id day --instances limits.csv --json"
    assert main(command.split()) == 0
    y, old = (pd.read_csv(f"{name}.csv")[COSTS].to_numpy() for name in ("y", "old"))
    found = json.loads(capsys.readouterr().out)["predictions"]["mixed.csv"]
    wanted = regrets(old, y, limits["weight"]).mean()
    assert found["metrics"]["absolute_regret"]["value"] == pytest.approx(wanted, abs=1e-9)


OWN_COSTS = "--program pack.lp --costs y.csv --id day"
CONFLICTS = {
    "evaluate": "name a file of predictions",
    "evaluate old.csv": "add --data FILE, or --program FILE with --costs FILE",
    "evaluate old.csv --data data.npz --costs y.csv": "add --program FILE",
    "evaluate --predictions a.csv b.csv --data data.npz": "--data takes one file of predictions",
    "evaluate old.csv --data data.npz --features x": "--features is about tables of your own: add --program FILE",
    "evaluate old.csv --program pack.lp": "--program also needs --costs",
    "evaluate old.csv --program pack.lp --costs y.csv --data data.npz": "both say what to evaluate on",
    f"evaluate x.csv {OWN_COSTS}": "x.csv lacks the column 'tent'",
    "doctor SP-5 --program pack.lp": "SP-5 and pack.lp both say what to examine",
    "doctor --program pack.lp --costs y.csv": "--program also needs --features and --costs",
}


@pytest.mark.parametrize("command", CONFLICTS)
def test_what_does_not_go_together_is_told(command: str, folder: Path, capsys: Output) -> None:
    assert main(command.split()) == 1
    assert CONFLICTS[command] in capsys.readouterr().err


# -- before anything heavy ------------------------------------------------------------------------------------------

TRAIN = ["train", *OWN, "--out", "early.dfl"]
DECIDE = ["decide", "--model", "model.dfl", "--features", "x.csv", "--out", "early.csv"]
EARLY = {
    "no such features": ([*TRAIN, "--features", "none.csv"], "none.csv: No such file"),
    "another ending": ([*TRAIN, "--features", "pack.lp"], "pack.lp should end in .csv or .parquet"),
    "unknown column": ([*TRAIN, "--costs", "x.csv"], "x.csv with pack.lp: the model has no variable 'rain'"),
    "unknown loss": ([*TRAIN, "--loss", "spo"], "--loss is one of"),
    "no folder": ([*TRAIN, "--out", "nowhere/model.dfl"], "the folder of nowhere/model.dfl does not exist"),
    "page and model": ([*TRAIN, "--page", "early.dfl"], "--out and the page are both early.dfl"),
    "no model": ([*DECIDE, "--model", "none.dfl"], "none.dfl: No such file"),
    "not a model": ([*DECIDE, "--model", "x.csv"], "x.csv is not a model that can be read here"),
    "no predictions": (["evaluate", "none.csv", "--data", "data.npz"], "none.csv"),
    "own columns": (["doctor", "--program", "pack.lp", "--features", "x.csv", "--costs", "x.csv", "--id", "day"], "'rain'"),
}  # fmt: skip


def test_input_errors_are_found_before_torch_is_loaded(folder: Path) -> None:
    """All in one fresh interpreter: what one call loads, the others would show."""
    code = f"""
import contextlib, io, json, sys
from dflearn.cli import main
found = {{}}
for name, command in { ({name: command for name, (command, _) in EARLY.items()})!r}.items():
    with contextlib.redirect_stderr(io.StringIO()) as said:
        status = main(command)
    heavy = [one for one in ("torch", "sklearn", "numba", "matplotlib") if one in sys.modules]
    found[name] = [status, said.getvalue(), heavy]
print(json.dumps(found))
"""
    before = {path.name for path in folder.iterdir()}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name, (status, said, heavy) in json.loads(done.stdout).items():
        assert (status, heavy) == (1, []), (name, said)
        assert EARLY[name][1] in said, name
        assert said.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == before  # nothing was tried out and left behind


def test_too_little_room_is_told_before_training(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    class Full:
        free = 2**20

    monkeypatch.setattr("shutil.disk_usage", lambda path: Full)
    assert main(TRAIN) == 1
    assert "could not be written: less than 16 MB are free there" in capsys.readouterr().err


def test_models_with_code_need_a_word(folder: Path, capsys: Output) -> None:
    model = dflearn.DecisionFocusedRegressor.load("model.dfl")
    record = model.record_
    imported = Imported("support.own_nets:Small")
    own = dflearn.DecisionFocusedRegressor(model.problem, model=imported, epochs=1, loss="spo+")
    x, y = pd.read_csv("x.csv")[["rain", "wind"]].to_numpy(), pd.read_csv("y.csv")[COSTS].to_numpy()
    own.fit(x, y).save("code.dfl", record)
    command = ["decide", "--model", "code.dfl", "--features", "x.csv", "--out", "decided.csv"]
    assert main(command) == 1
    assert "support.own_nets:Small: loading it runs that code" in (said := capsys.readouterr().err)
    assert "--trust-code" in said
    assert main([*command, "--trust-code"]) == 0
    assert "note: support.own_nets:Small is imported and run" in capsys.readouterr().err


# -- completion -----------------------------------------------------------------------------------------------------


def complete(script: str, line: str) -> list[str]:
    """What bash offers at the end of this line."""
    words = line.split(" ")
    listed = " ".join(f"'{word}'" for word in words)
    code = f"{script}\nCOMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _dfl; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_commands_options_and_values(folder: Path, capsys: Output) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert complete(script, "dfl tr") == ["train"]
    assert complete(script, "dfl paper su") == ["summary"]
    assert complete(script, "dfl train --prog") == ["--program"]
    assert complete(script, "dfl evaluate --part ") == ["all", "train", "validation", "test"]
    assert complete(script, "dfl paper table k") == ["kp"]
    assert complete(script, "dfl train --program pack") == ["pack.lp"]
    assert complete(script, "dfl decide --trust") == ["--trust-code"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_in_the_script(shell: str, capsys: Output) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for called, one in classes().items():
        assert called.split()[-1] in script
        for field in fields(one):
            assert {"source": "from"}.get(field.name, field.name.replace("_", "-")) in script
