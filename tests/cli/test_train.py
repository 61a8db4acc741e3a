"""dfl train, dfl decide and dfl doctor --model, against SciPy's MILP solver on matrices written by hand."""

from __future__ import annotations

import json
import re
import runpy
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from sklearn.linear_model import LinearRegression

from dflearn.cli import main
from dflearn.cli.train import Train
from dflearn.data import DecisionDataset
from dflearn.evaluation import evaluate
from dflearn.program import Instance
from dflearn.tables import DecisionFocusedRegressor

Output = pytest.CaptureFixture[str]
ROWS, NEW = 40, 6

# Values of the first four are predicted; `spare` is sold at a known 0.5, and the objective has the constant 7.
KNAPSACK = """\
NAME pack
OBJSENSE
    MAX
ROWS
 N value
 L weight
 L volume
 G least
COLUMNS
    M1 'MARKER' 'INTORG'
    tent value 1 weight 3
    tent volume 4 least 1
    stove value 1 weight 4
    stove volume 2 least 1
    boots value 1 weight 2
    boots volume 5 least 1
    rope value 1 weight 5
    rope volume 1 least 1
    M2 'MARKER' 'INTEND'
    spare value 0.5 weight 1
RHS
    R weight 9 volume 8
    R least 1 value -7
BOUNDS
 UP B tent 1
 UP B stove 1
 UP B boots 1
 UP B rope 1
 UP B spare 2
ENDATA
"""
WEIGHTS = np.array([[3, 4, 2, 5, 1], [4, 2, 5, 1, 0], [-1, -1, -1, -1, 0]], float)
# min Σ cost ship + 9 rent + 100: only ship_a and ship_c are predicted.
TRANSPORT = """\
Minimize
 total: 4 ship_a + 6 ship_b + 5 ship_c + 9 rent + 100
Subject To
 need: ship_a + ship_b + ship_c = 20
 room: ship_a + ship_c - 10 rent <= 5
 some: ship_b + rent >= 2
 alone: ship_a <= 15
Bounds
 rent <= 2
General
 rent
End
"""


def best(name: str, costs: np.ndarray, sides: dict[str, np.ndarray] | None = None) -> np.ndarray:
    """The optimal objective of each row, constant included, by SciPy."""
    found = []
    for i, y in enumerate(costs):
        at = lambda what, default, i=i: default if what not in (sides or {}) else sides[what][i]  # noqa: E731
        if name == "pack.mps":
            c = -np.append(y, at("d:spare", 0.5))
            rows = LinearConstraint(WEIGHTS, ub=[at("weight", 9), 8, -at("least", 1)])
            bounds, whole, sign, constant = Bounds(0, [1, 1, 1, at("upper:rope", 1), 2]), [1, 1, 1, 1, 0], -1, 7
        else:
            c, sign, constant = np.array([y[0], 6, y[1], 9]), 1, 100
            matrix = [[1, 1, 1, 0], [1, 0, 1, -10], [0, 1, 0, 1]]
            rows = LinearConstraint(matrix, [20, -np.inf, 2], [20, 5, np.inf])
            bounds, whole = Bounds(0, [15, np.inf, np.inf, 2]), [0, 0, 0, 1]
        answer = milp(c, constraints=rows, bounds=bounds, integrality=whole)
        found.append(sign * answer.fun + constant)
    return np.array(found)


PREDICTED = {"pack.mps": ["tent", "stove", "boots", "rope"], "transport.lp": ["ship_a", "ship_c"]}
FEATURES = ["rain", "wind", "weekend"]


def write(path: str, names: list[str], values: np.ndarray) -> None:
    pd.DataFrame(values, columns=names).to_csv(path, index=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both programs, and tables for them: x.csv, y-pack.csv, y-transport.csv, new.csv."""
    monkeypatch.chdir(tmp_path)
    Path("pack.mps").write_text(KNAPSACK)
    Path("transport.lp").write_text(TRANSPORT)
    rng = np.random.default_rng(0)
    x = rng.normal([10, 300, 0.5], [5, 90, 0.4], (ROWS + NEW, 3)).round(3)
    for program, names in PREDICTED.items():
        truth = rng.uniform(-1, 1, (3, len(names)))
        y = (5 + ((x - [10, 300, 0.5]) / [5, 90, 0.4]) @ truth + rng.normal(0, 0.3, (ROWS + NEW, len(names)))).round(3)
        write(f"y-{program.partition('.')[0]}.csv", names, y[:ROWS])
        write(f"new-y-{program.partition('.')[0]}.csv", names, y[ROWS:])
    write("x.csv", FEATURES, x[:ROWS])
    write("new.csv", FEATURES, x[ROWS:])
    return tmp_path


ORDINARY = ["ridge", "huber", "boosting", "blend"]


def train(program: str = "pack.mps", *more: str) -> int:
    costs = f"y-{program.partition('.')[0]}.csv"
    options = f"--program {program} --features x.csv --costs {costs} --out model.dfl --epochs 2 --no-page".split()
    return main(["train", *options, *more])  # of an option given twice, the last one counts


def decide(*more: str) -> int:
    return main(["decide", "--model", "model.dfl", "--features", "new.csv", "--out", "decisions.csv", *more])


def metadata() -> dict[str, Any]:
    with zipfile.ZipFile("model.dfl") as archive:
        return json.loads(archive.read("metadata.json"))


# -- from files to decisions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PREDICTED)
def test_decisions_are_optimal_for_the_predicted_costs(program: str, folder: Path, capsys: Output) -> None:
    assert train(program) == 0
    out = capsys.readouterr().out
    assert "40 rows: 30 for training (30 left out in turn, for validation), 10 for testing" in out
    assert "dfl decide --model model.dfl --features NEW.csv --out decisions.csv" in out
    assert decide("--costs", f"new-y-{program.partition('.')[0]}.csv") == 0
    found = pd.read_csv("decisions.csv")
    regressor = DecisionFocusedRegressor.load("model.dfl")
    predicted = regressor.predict(pd.read_csv("new.csv").to_numpy())
    costs = pd.read_csv(f"new-y-{program.partition('.')[0]}.csv").to_numpy()
    np.testing.assert_allclose(found["predicted_objective"], best(program, predicted), rtol=1e-7)
    sign = -1 if program == "pack.mps" else 1
    regret = sign * (found["true_objective"] - best(program, costs))
    np.testing.assert_allclose(found["regret"], regret, rtol=1e-7, atol=1e-7)
    assert list(found["status"]) == ["optimal"] * NEW
    variables = list(regressor.problem.variable_names)
    assert list(found)[4:] == variables
    np.testing.assert_array_equal(found[variables], regressor.decide(pd.read_csv("new.csv").to_numpy()))
    assert found.dtypes[variables[0 if program == "pack.mps" else -1]] == np.int64
    known = 0.5 * found["spare"] + 7 if program == "pack.mps" else 6 * found["ship_b"] + 9 * found["rent"] + 100
    np.testing.assert_allclose(found["true_objective"], (costs * found[PREDICTED[program]].to_numpy()).sum(1) + known)


def test_what_is_printed_is_what_the_saved_model_does(folder: Path, capsys: Output) -> None:
    """The test rows, told by --ordered, judged again by SciPy; the model chosen without them."""
    assert train("pack.mps", "--ordered", "--test", "0.3", "--seed", "4", "--loss", "spo+") == 0
    out, held = capsys.readouterr().out, metadata()
    record = held["record"]
    x, y = pd.read_csv("x.csv").to_numpy()[-12:], pd.read_csv("y-pack.csv").to_numpy()[-12:]
    regressor = DecisionFocusedRegressor.load("model.dfl")
    optima = best("pack.mps", y) - 7
    decided = regressor.decide(x)
    regrets = optima - (y * decided[:, :4]).sum(1) - 0.5 * decided[:, 4]
    metrics = record["test"][record["chosen"]]["metrics"]
    assert metrics["absolute_regret"]["value"] == pytest.approx(regrets.mean(), abs=1e-9)
    assert metrics["mean_of_ratios"]["value"] == pytest.approx((regrets / optima).mean(), abs=1e-9)
    assert metrics["mse"]["value"] == pytest.approx(((regressor.predict(x) - y) ** 2).mean())
    assert record["baseline"] in ORDINARY
    assert f"the {record['chosen']} model" in out
    assert {"seed": 4, "loss": ["spo+"], "features": "x.csv"}.items() <= record["options"].items()
    assert {"dflearn", "torch", "highspy"} <= set(held["packages"])
    assert held["parameters"]["random_state"] == 4
    for words in ("mean of regret / optimum", "total regret / total optimum", "mean regret"):
        assert re.search(rf"^  {words} +[-+]\S+ \[", out, re.MULTILINE)


def test_positive_models(folder: Path, capsys: Output) -> None:
    costs = pd.read_csv("y-transport.csv")
    ((costs - costs.min()) ** 4 + 0.01).to_csv("y-transport.csv", index=False)  # so skewed that lines go below zero
    assert train("transport.lp") == 0
    assert re.search(r"all costs are positive, and predictions of .* are not: see --pos", capsys.readouterr().out)
    assert train("transport.lp", "--positive") == 0
    assert "see --positive" not in capsys.readouterr().out
    regressor = DecisionFocusedRegressor.load("model.dfl")
    assert regressor.model.positive > 0
    assert regressor.predict(1e3 * np.random.default_rng(0).normal(size=(50, 3))).min() >= 0


def test_the_same_seed_writes_the_same_file(folder: Path) -> None:
    written = []
    for seed in ("3", "3", "5"):
        assert train("pack.mps", "--seed", seed) == 0
        with zipfile.ZipFile("model.dfl") as archive:
            parts = {name: archive.read(name) for name in archive.namelist() if name != "metadata.json"}
        written.append((parts, metadata() | {"history": None}))  # the history holds times
    assert written[0] == written[1]
    assert written[0] != written[2]
    assert metadata()["record"]["options"]["loss"] == ["smoothed-spo+", "sce"]


def test_the_commands_of_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    """They print what docs/get-started/tables-and-model-file.md shows, figures apart: those may differ in the last digits elsewhere."""
    monkeypatch.chdir(tmp_path)
    root = Path(__file__).parents[2]
    monkeypatch.setattr("sys.argv", ["own_tables.py"])
    runpy.run_path(str(root / "examples" / "own_tables.py"), run_name="__main__")
    capsys.readouterr()
    words = lambda text: re.findall(r"[A-Za-z][\w.-]*", text)  # noqa: E731
    document = (root / "docs" / "get-started" / "tables-and-model-file.md").read_text()
    shown = re.findall(r"^```console\n\$ dfl ([^\n]*)\n(.*?)^```", document, re.DOTALL | re.MULTILINE)
    assert [command.split()[0] for command, _ in shown] == ["train", "decide", "decide", "evaluate"]
    for command, output in shown:
        assert main(command.split()) == 0
        assert words(capsys.readouterr().out) == words(output)
    for name in ("x.csv", "y.csv", "hours.csv"):
        assert "\n".join(Path(name).read_text().splitlines()[:3]) in document


# -- what differs from row to row -----------------------------------------------------------------------------------


def test_a_table_of_instances(folder: Path) -> None:
    rng = np.random.default_rng(1)

    def sides(count: int, path: str) -> dict[str, np.ndarray]:
        columns = {
            "weight": rng.integers(6, 14, count),
            "least": rng.integers(0, 3, count),
            "upper:rope": rng.choice([0.0, 0.9, 1.0, 3.5], count),
            "d:spare": rng.uniform(0, 3, count).round(3),
        }
        pd.DataFrame(columns).to_csv(path, index=False)
        return columns | {"upper:rope": np.floor(columns["upper:rope"])}

    seen, new = sides(ROWS, "sides.csv"), sides(NEW, "new-sides.csv")
    assert train("pack.mps", "--instances", "sides.csv", "--ordered") == 0
    regressor = DecisionFocusedRegressor.load("model.dfl")
    chosen = metadata()["record"]
    assert decide("--instances", "new-sides.csv", "--costs", "new-y-pack.csv") == 0
    found, costs = pd.read_csv("decisions.csv"), pd.read_csv("new-y-pack.csv").to_numpy()
    predicted = regressor.predict(pd.read_csv("new.csv").to_numpy())
    np.testing.assert_allclose(found["predicted_objective"], best("pack.mps", predicted, new), rtol=1e-7)
    np.testing.assert_allclose(found["regret"], best("pack.mps", costs, new) - found["true_objective"], atol=1e-7)
    x, y = pd.read_csv("x.csv").to_numpy()[-10:], pd.read_csv("y-pack.csv").to_numpy()[-10:]
    optima = best("pack.mps", y, {name: column[-10:] for name, column in seen.items()}) - 7
    instance = Instance(
        h=torch.tensor(np.column_stack([seen["weight"], np.full(ROWS, 8), -seen["least"]])[-10:]).double(),
        upper=torch.tensor(np.column_stack([np.ones((ROWS, 3)), seen["upper:rope"], np.full(ROWS, 2)])[-10:]),
        d=torch.tensor(np.column_stack([np.zeros((ROWS, 4)), -seen["d:spare"]])[-10:]),
    )
    metric = chosen["test"][chosen["chosen"]]["metrics"]["ratio_of_sums"]["value"]
    assert metric == pytest.approx(-regressor.score(x, y, instance=instance), abs=1e-9)
    decided = regressor.decide(x, instance)
    reached = (y * decided[:, :4]).sum(1) + seen["d:spare"][-10:] * decided[:, 4]
    assert metric == pytest.approx((optima - reached).sum() / optima.sum(), abs=1e-9)


def test_rows_without_a_decision(folder: Path, capsys: Output) -> None:
    pd.DataFrame({"weight": np.full(ROWS, 9.0)}).to_csv("sides.csv", index=False)
    assert train("pack.mps", "--instances", "sides.csv", "--loss", "spo+") == 0
    new = [9.0, 9.0, 1.0, 9.0, 9.0, 9.0]  # the lightest weighs 2, and one at least must come along
    pd.DataFrame({"weight": new}).to_csv("new-sides.csv", index=False)
    capsys.readouterr()
    assert decide("--instances", "new-sides.csv") == 1
    assert "with the predicted costs. new-sides.csv, line 4 is INFEASIBLE" in capsys.readouterr().err
    assert not Path("decisions.csv").exists()
    assert decide("--instances", "new-sides.csv", "--partial") == 0
    assert "5 optimal, 1 infeasible" in capsys.readouterr().out
    rows = [line.split(",") for line in Path("decisions.csv").read_text().splitlines()]
    assert rows[3] == ["infeasible", *[""] * 6]
    assert "" not in rows[4]


def test_a_variable_that_is_called_like_another_column(folder: Path) -> None:
    Path("pack.mps").write_text(KNAPSACK.replace("spare", "status"))
    assert train("pack.mps", "--loss", "spo+") == 0
    assert decide() == 0
    assert list(pd.read_csv("decisions.csv"))[-1] == "status (variable)"


# -- the doctor -----------------------------------------------------------------------------------------------------


def test_limits_of_the_solver(folder: Path, capsys: Output) -> None:
    """The solver that the options ask for judges; decisions within its limit count."""
    assert train("pack.mps", "--time-limit", "30", "--mip-gap", "0.01", *ONLY_RIDGE) == 0
    record = metadata()["record"]
    assert "HiGHS" in record["test"]["ridge"]["solver"]
    assert "time_limit=30.0 gap=0.01" in record["test"]["ridge"]["solver"]
    assert train("pack.mps", "--solver", "scip", *ONLY_RIDGE) == 1
    assert "use HiGHS" in capsys.readouterr().err


ONLY_RIDGE = ("--forecasters", "ridge", "--minutes", "1e-9")  # no decision-focused candidate is begun


def test_doctor_looks_at_a_saved_model(folder: Path, capsys: Output) -> None:
    assert train("pack.mps", *ONLY_RIDGE) == 0
    capsys.readouterr()
    tables = ["--features", "x.csv", "--costs", "y-pack.csv"]
    for more, words in (([], "MSE on 10 instances that were not trained on"), (["--loss", "spo+"], "SPOPlus")):
        assert main(["doctor", "--model", "model.dfl", *tables, *more]) == 0
        out = capsys.readouterr().out
        chosen = metadata()["record"]["chosen"]
        assert f"{chosen} model, examined on the 10 of 40 rows that were not in its training set. {words}" in out
        assert "regret of the model" in out
    for command, message in (
        (["SP-5", "--model", "model.dfl", *tables], "name one"),
        (["--model", "model.dfl", "--features", "x.csv"], "also needs --features and --costs"),
        (["SP-5", "--costs", "y-pack.csv"], "add --model"),
        (["SP-5", "--features", "x.csv"], "--features is about tables of your own"),
    ):
        assert main(["doctor", *command]) == 1
        assert message in capsys.readouterr().err


def test_doctor_judges_on_rows_that_were_not_trained_on(folder: Path, capsys: Output) -> None:
    """The regret is that on the test rows, in whatever order the tables have their rows, and whatever rows are beside them."""

    def looked(features: str, costs: str, *more: str) -> dict[str, Any]:
        capsys.readouterr()
        tables = ["--features", features, "--costs", costs]
        assert main(["doctor", "--model", "model.dfl", *tables, "--json", *more]) == 0
        return json.loads(capsys.readouterr().out)

    assert train("pack.mps", "--ordered", *ONLY_RIDGE) == 0
    record = metadata()["record"]
    tested = record["test"][record["chosen"]]["metrics"]["ratio_of_sums"]["value"]
    x, y = (pd.read_csv(name).to_numpy() for name in ("x.csv", "y-pack.csv"))
    fitted = LinearRegression().fit(x[:-10], y[:-10]).predict(x[-10:])
    unseen = DecisionDataset(torch.tensor(x[-10:]), torch.tensor(y[-10:]))
    program = DecisionFocusedRegressor.load("model.dfl").problem
    least_squares = evaluate(fitted, program, unseen, progress=False).ratio_of_sums
    order = np.random.default_rng(3).permutation(ROWS)
    for name in ("x.csv", "y-pack.csv"):
        pd.read_csv(name).iloc[order].to_csv(f"shuffled-{name}", index=False)
    for tables in (("x.csv", "y-pack.csv"), ("shuffled-x.csv", "shuffled-y-pack.csv")):
        found = looked(*tables)
        assert found["rows"] == {"given": ROWS, "trained_on": 30, "judged": 10}
        assert found["diagnoses"][0]["regret"] == pytest.approx(tested)
        assert found["diagnoses"][0]["two_stage"] == pytest.approx(least_squares)
    new = looked("new.csv", "new-y-pack.csv")
    assert new["rows"] == {"given": NEW, "trained_on": 0, "judged": NEW}
    for name, more in (("x.csv", "new.csv"), ("y-pack.csv", "new-y-pack.csv")):
        pd.concat([pd.read_csv(name), pd.read_csv(more)]).to_csv(f"both-{name}", index=False)
    both = looked("both-x.csv", "both-y-pack.csv")
    assert both["rows"] == {"given": ROWS + NEW, "trained_on": 30, "judged": 10 + NEW}
    assert train("pack.mps", "--refit", *ONLY_RIDGE) == 0
    named = {"features": Path("x.csv"), "costs": Path("y.csv"), "program": Path("pack.mps"), "out": Path("model.dfl")}
    for refit, files in ((False, "--features x.csv --costs y.csv"), (True, "--features NEW.csv --costs TRUE.csv")):
        assert Train(**named, refit=refit).next_steps()[-1][1] == f"dfl doctor --model model.dfl {files}"
    capsys.readouterr()
    assert main(["doctor", "--model", "model.dfl", "--features", "x.csv", "--costs", "y-pack.csv"]) == 1
    assert "every row of x.csv was in the training set" in capsys.readouterr().err
    assert looked("new.csv", "new-y-pack.csv")["rows"]["judged"] == NEW


# -- errors ---------------------------------------------------------------------------------------------------------


def renamed(path: str, **names: str) -> None:
    pd.read_csv(path).rename(columns=names).to_csv(path, index=False)


def with_day(*paths: str) -> None:
    for path in paths:
        pd.read_csv(path).assign(day=range(ROWS)).to_csv(path, index=False)


def with_cell(path: str, row: int, column: str, value: Any) -> None:
    frame = pd.read_csv(path).astype(object)
    frame.loc[row, column] = value
    frame.to_csv(path, index=False)


def sides(name: str, value: float = 3.0) -> None:
    pd.DataFrame({name: np.full(ROWS, value)}).to_csv("sides.csv", index=False)


TRAIN_ERRORS = {
    "unknown cost": (lambda: renamed("y-pack.csv", tent="tents"), [], "y-pack.csv with pack.mps: .*no variable 'tents'.*'tent'"),
    "shared id": (lambda: with_day("x.csv", "y-pack.csv"), [], "no variable 'day'.*add --id day"),
    "missing value": (lambda: with_cell("y-pack.csv", 4, "tent", None), [], "y-pack.csv, line 6, column 'tent' is empty"),
    "group": (lambda: None, ["--groups", "winds"], "x.csv has no column 'winds' for groups; did you mean 'wind'"),
    "gap": (lambda: None, ["--gap", "3"], "--gap 3 leaves out rows .*: add --ordered"),
    "map": (
        lambda: Path("map.csv").write_text("cost,variable\ntent,tents\n"),
        ["--map", "map.csv"],
        "y-pack.csv with pack.mps by map.csv: .*no variable 'tents'; did you mean 'tent'",
    ),
    "test share": (lambda: None, ["--test", "0.9"], "--test 0.9 of 40 rows is 36"),
    "positive": (lambda: with_cell("y-pack.csv", 3, "boots", -0.5), ["--positive"], "line 5, column 'boots' holds -0.5, and --pos"),
    "unknown side": (lambda: sides("wieght"), ["--instances", "sides.csv"], "column 'wieght' is neither.*'weight'"),
}  # fmt: skip


@pytest.mark.parametrize("case", TRAIN_ERRORS)
def test_train_says_what_is_wrong_and_leaves_what_was_there(case: str, folder: Path, capsys: Output) -> None:
    prepare, options, message = TRAIN_ERRORS[case]
    Path("model.dfl").write_text("the model of yesterday")
    prepare()
    before = sorted(path.name for path in folder.iterdir())
    assert train("pack.mps", *options) == 1
    assert re.fullmatch(f"dfl: error: .*{message}.*\n", capsys.readouterr().err)
    assert Path("model.dfl").read_text() == "the model of yesterday"
    assert sorted(path.name for path in folder.iterdir()) == before


DECIDE_ERRORS = {
    "missing column": (lambda: renamed("new.csv", wind="winds"), [], "new.csv lacks the column 'wind' .*did you mean 'winds'"),
    "no number": (lambda: with_cell("new.csv", 0, "rain", "wet"), [], "new.csv, line 2, column 'rain' holds 'wet', .* held numbers"),
    "costs": (lambda: None, ["--costs", "new-y-transport.csv"], "new-y-transport.csv lacks the column 'tent'"),
    "instances": (lambda: None, ["--instances", "new.csv"], "was trained without --instances"),
    "ending": (lambda: None, ["--out", "decisions.xlsx"], r"decisions.xlsx should end in .csv or .parquet"),
    "damaged": (lambda: Path("model.dfl").write_bytes(Path("model.dfl").read_bytes()[:-80]), [], "model.dfl is not a model"),
    "from Python": (lambda: None, ["--model", "python.dfl"], "python.dfl was not made by dfl train"),
}  # fmt: skip


def test_decide_says_what_is_wrong_and_leaves_what_was_there(folder: Path, capsys: Output) -> None:
    assert train("pack.mps", "--loss", "spo+") == 0
    DecisionFocusedRegressor.load("model.dfl").save("python.dfl")
    Path("decisions.csv").write_text("yesterday's")
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    for case, (prepare, options, message) in DECIDE_ERRORS.items():
        prepare()
        capsys.readouterr()
        assert decide(*options) == 1, case
        assert re.fullmatch(f"dfl: error: .*{message}.*\n", capsys.readouterr().err), case
        assert {path.name for path in folder.iterdir()} == kept.keys()
        assert Path("decisions.csv").read_text() == "yesterday's"
        for name, content in kept.items():
            Path(name).write_bytes(content)
