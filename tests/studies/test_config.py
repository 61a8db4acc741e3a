"""Configs: what a TOML file may say, and what makes a run the same run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dflearn.errors import DflearnError, OptionError
from dflearn.studies import config as module
from dflearn.studies.config import RunConfig, Settings, Study, read_study, resolve, seeds_of
from support.study_records import TINY, tiny

STUDY = """
problems = ["SP-3", "KP-10"]
methods = ["MSE", "SCE^DYS"]
seeds = [1, 2, 3]

[settings]
epochs = 2

[parameters."SCE^DYS"]
tau = 0.5
"""


GRID = 'problems = ["SP-3"]\nmethods = ["MSE"]\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def test_a_file_is_a_grid_with_every_parameter_filled_in(tmp_path: Path) -> None:
    runs = read_study(written(tmp_path, STUDY)).runs()
    assert len({run.key for run in runs}) == len(runs) == 2 * 2 * 3
    knapsack = next(run for run in runs if run.problem == "KP-10" and run.method == "SCE^DYS")
    assert dict(knapsack.parameters) == {"alpha": 0.01, "iterations": 100, "labels": "relaxed", "tau": 0.5}
    assert knapsack.settings == Settings(epochs=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('problem = ["SP-3"]', f"unknown key 'problem'; the keys are {', '.join(module.FORMS)}"),
        (f"{GRID}[settings]\nepoch = 3", r"'epoch' in \[settings\]; the keys are points"),
        ('problems = "SP-3"\nmethods = ["MSE"]', "problems must be a list of names"),
        (f"{GRID}seeds = [1.5]", "seeds must be a list of integers"),
        ('problems = ["SP-3"]', "methods must be given"),
        ('problems = []\nmethods = ["MSE"]', "problems is empty"),
        (f'{GRID}[settings]\nkeep = "first"', "keep is 'last' or 'best', got 'first'"),
        (f'{GRID}solver = "cplex"', "'default' or 'gurobi', got 'cplex'"),
        (f"{GRID}[settings]\nepochs = 0", "epochs must be an integer of at least 1"),
        (f"{GRID}[parameters.PFY]\nsigma = 2", "PFY, not among the methods"),
        ("problems = [", "not a TOML file"),
    ],
)
def test_what_is_unknown_or_wrong_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DflearnError, match=message):
        read_study(written(tmp_path, text))


def test_a_method_or_parameter_that_does_not_exist() -> None:
    with pytest.raises(OptionError, match=r"'SCE\^DSY'.*did you mean 'SCE\^DYS'"):
        tiny(method="SCE^DSY")
    with pytest.raises(OptionError, match="PFY has no parameter mu on SP-3; its parameters are: sigma, samples"):
        tiny(method="PFY", parameters={"mu": 1.0})
    with pytest.raises(OptionError, match="no problem is named 'XX-3'"):
        tiny("XX-3")


def test_the_key_tells_runs_apart_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny(method="PFY")
    others = [
        tiny("SP-4", "PFY"),
        tiny(method="PFY^relax"),
        tiny(method="PFY", seed=2),
        tiny(method="PFY", parameters={"sigma": 2.0}),
        tiny(method="PFY", model="mlp"),
        tiny(method="PFY", model="mlp", model_options={"hidden": [8]}),
        tiny(method="PFY", tuning={"sigma": [0.1, 1.0]}),
        tiny("KP-10", "PFY", problem_options={"capacity_share": 0.3}),
        replace(run, settings=replace(TINY, epochs=3)),
        replace(run, solver="gurobi"),
    ]
    assert len({run.key, *(other.key for other in others)}) == 1 + len(others)
    assert tiny(method="PFY", imports=["json"]).key == run.key
    assert all(RunConfig.from_dict(other.as_dict()) == other for other in (run, *others))
    # Exact solvers answer the same question.
    assert others[-1].question == run.question
    assert len({run.question, *(other.question for other in others)}) == len(others)
    before = run.key
    monkeypatch.setattr(module, "RESULTS_VERSION", module.RESULTS_VERSION + 1)
    assert tiny(method="PFY").key != before


def test_gurobi_is_chosen_where_it_is_needed_and_allowed() -> None:
    names = ("SP-5", "KP-100", "CFL-100", "CFL-200")
    solvers = {name: resolve(name, "MSE", 1, solver="gurobi").solver for name in names}
    assert solvers == {"SP-5": "default", "KP-100": "gurobi", "CFL-100": "gurobi", "CFL-200": "default"}


def test_a_study_goes_problem_by_problem() -> None:
    runs = Study(("SP-3", "SP-4"), ("MSE", "PFY"), (1, 2)).runs()
    assert [(run.problem, run.seed) for run in runs] == [(p, s) for p in ("SP-3", "SP-4") for s in (1, 1, 2, 2)]


def test_seeds() -> None:
    assert seeds_of(["1-3", "7", "2"]) == [1, 2, 3, 7]
    with pytest.raises(OptionError):
        seeds_of(["1-"])
