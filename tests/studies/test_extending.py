"""A researcher's own method, problem and model in a study: in this process, in others, on a cluster, and in what reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch

import dflearn
from dflearn.cli import main
from dflearn.errors import DataError, OptionError
from dflearn.problems import registry as problems
from dflearn.studies import Method, Prepared, methods, models, register, register_model, register_problem
from dflearn.studies.config import read_study, resolve
from dflearn.studies.driver import run_study
from dflearn.studies.executors import InProcess
from dflearn.studies.modules import import_modules, install, sources
from dflearn.studies.run import run
from dflearn.studies.store import Store, read_records
from dflearn.studies.summary import summarize
from support.study_records import TINY, tiny

MODULE = '''
"""The perturbation gradient, advertising, and a model with a hidden layer."""

from dataclasses import dataclass

import numpy as np
from torch import nn

import dflearn as dfl
import helper_of_mine
from dflearn.losses import PerturbationGradient
from dflearn.problems import Problem
from dflearn.studies import Method, Prepared, register, register_model, register_problem


def prepare(context):
    loss = PerturbationGradient(dfl.Exact(context.problem.relaxed_solver()), context.parameters["h"], difference="central")
    return Prepared(loss, context.train)


register(Method("PG", "the perturbation gradient", prepare, lambda problem: {"h": helper_of_mine.H}))


@dataclass(frozen=True)
class Billboards(Problem):
    m: int
    k: int
    crowd: float = 1.0

    @property
    def name(self):
        return f"Billboards-{self.m}x{self.k}"

    @property
    def _feature_shape(self):
        return (3,)

    def _draw_structure(self, rng):
        return {"B": rng.uniform(-1, 1, (self.m, 3))}

    def _build_program(self, structure):
        S, row = -np.eye(self.m), np.ones((1, self.m))
        return dfl.Program(G=row, h=[self.k], upper=1, S=S, integer=True, sense="maximize", name=self.name)

    def _draw_features(self, rng, count):
        return rng.normal(size=(count, 3))

    def _draw_costs(self, rng, features):
        return self._expected_costs(features) * rng.uniform(0.5, 1.5, (len(features), self.m))

    def _expected_costs(self, features):
        return self.crowd * np.exp(features @ self.structure["B"].T)


register_problem("Billboards-{m}x{k}", Billboards, "rent k of m billboards")


def hidden(features, costs, seed, width=4):
    first, second = dfl.models.Linear(features[0], width, seed=seed), dfl.models.Linear(width, costs, seed=seed + 1)
    return nn.Sequential(first, nn.ReLU(), second)


register_model("hidden", hidden)
'''

STUDY = """
import = ["methods_of_mine"]
problems = ["Billboards-6x2"]
methods = ["MSE", "PG", "SCE^smoothed"]
seeds = [1, 2]

[settings]
points = 80
test = 40
validation = 0.25
epochs = 2
batch_size = 8

[model]
name = "hidden"
width = 5

[options."Billboards-6x2"]
crowd = 2.0

[parameters.PG]
h = 0.5

[tuning."SCE^smoothed"]
mu = [0.1, 1.0]
"""


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Path]:
    """The researcher's folder; what the study registers is gone afterwards."""
    methods.load_plugins()
    for name, taken in (("PG", methods._METHODS), ("hidden", models._MODELS), ("Billboards-{m}x{k}", problems._FORMS)):
        taken.pop(name, None)  # type: ignore[attr-defined]
    before = [dict(registry) for registry in (methods._METHODS, models._MODELS, problems._FORMS)]
    path, modules = list(sys.path), set(sys.modules)
    (tmp_path / "methods_of_mine.py").write_text(MODULE)
    (tmp_path / "helper_of_mine.py").write_text("H = 0.25\n")
    (tmp_path / "study.toml").write_text(STUDY)
    yield tmp_path / "study.toml"
    for registry, content in zip((methods._METHODS, models._MODELS, problems._FORMS), before, strict=True):
        registry.clear()
        registry.update(content)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.endswith("_of_mine"):
            del sys.modules[name]


def figures(store: Store) -> dict[str, Any]:
    return {record.config.key: (record.metrics, record.chosen) for record in store.records()}


@pytest.fixture
def here(study: Path) -> Path:
    """The store of the study, carried out in this process."""
    path = study.with_name("here.sqlite")
    with Store(path) as store:
        assert not run_study(read_study(study).runs(), store, InProcess(), progress=False).failed, store.progress()
    return path


def test_a_study_runs_here_and_by_the_command_line_alike_and_can_be_read(
    study: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(study), "--jobs", "1", "--no-cache"]) == 0
    assert "6 of 6 runs" in capsys.readouterr().out
    assert main(["export", str(study), "--out", str(study.with_name("runs.csv"))]) == 0
    header = study.with_name("runs.csv").read_text().splitlines()[0].split(",")
    assert {"chosen_mu", "parameter_h", "option_crowd", "option_width", "model"} <= set(header)
    with Store(study.with_suffix(".sqlite")) as store, Store(here) as own:
        assert figures(store) == figures(own)
        assert store.export(study.with_name("runs.jsonl.xz"), instances=True) == 6
        kept = store.records()
    again = read_records(study.with_name("runs.jsonl.xz"))
    assert [record.as_dict(instances=True) for record in again] == [record.as_dict(instances=True) for record in kept]
    assert len(np.unique(np.asarray(again[0].ids))) == 40
    assert {(s.problem, s.method, s.seeds) for s in summarize(again)} == {
        ("Billboards-6x2", method, (1, 2)) for method in ("MSE", "PG", "SCE^smoothed")
    }
    perturbed = next(record.config for record in again if record.config.method == "PG")
    assert dict(perturbed.parameters) == {"h": 0.5}
    assert (perturbed.model, perturbed.imports) == ("hidden", ("methods_of_mine",))


def test_the_status_of_a_study_that_is_half_done(study: Path, here: Path) -> None:
    """In a process of its own, which has not imported the study's modules, from another folder."""
    study.write_text(STUDY.replace('["Billboards-6x2"]', '["Billboards-6x2", "Billboards-8x2"]'))
    configs = read_study(study).runs()
    with Store(here) as store:
        store.put_wanted(configs)
    here.rename(study.with_suffix(".sqlite"))
    environment = {**os.environ, "PYTHONPATH": str(Path(dflearn.__file__).resolve().parents[1])}
    where = study.parents[1]
    command = [sys.executable, "-m", "dflearn", "status", str(study.relative_to(where))]
    answer = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert f"{len(configs)} runs, 6 done" in answer.stdout


def test_what_travels_to_other_machines(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module and what it loaded from its folder; nothing that is installed, and nothing else that lies there."""
    monkeypatch.chdir(study.parent)
    assert torch.ops.__file__ == "_ops.py", "relative to the folder of the study, and no file"
    (tmp_path / "bystander_of_mine.py").write_text("raise RuntimeError\n")
    read_study(study)
    assert sources(["methods_of_mine"]) == {"methods_of_mine.py": MODULE, "helper_of_mine.py": "H = 0.25\n"}
    assert sources(["numpy", "json"]) == {}
    install(sources(["methods_of_mine"]))
    assert (Path(sys.path[0]) / "helper_of_mine.py").read_text() == "H = 0.25\n"


def test_tuning_keeps_the_value_with_the_least_validation_regret(cache: Path) -> None:
    values = [0.01, 100.0]
    tuned = run(tiny("SP-4", "SCE^smoothed", tuning={"mu": values}), cache)
    each = [run(tiny("SP-4", "SCE^smoothed", parameters={"mu": value}), cache) for value in values]
    last = [record.history["validation_absolute_regret"][-1] for record in each]
    best = last.index(min(last))
    assert tuned.chosen == {"mu": values[best]}
    assert [row["mu"] for row in tuned.tried] == values
    assert [row["validation_absolute_regret"] for row in tuned.tried] == pytest.approx(last, rel=1e-3)
    assert tuned.metrics == each[best].metrics


@pytest.mark.parametrize("problem", ["energy-60", "energy-60-price", "scheduling-3x2"])
def test_recorded_data_with_features_of_every_cost(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A problem without a floor, with a split of its own; a store tells real days from synthetic ones."""
    monkeypatch.delenv("DFLEARN_ENERGY", raising=False)
    settings = replace(TINY, points=40, test=10, validation=8, keep="best")
    configs = [resolve(problem, m, 1, settings, model="shared") for m in ("two-stage scaled", "SPO+^relax scaled")]
    first, second = map(run, configs)
    np.testing.assert_array_equal(first.ids, second.ids)
    assert "floor_ratio_of_sums" not in first.metrics
    assert "validation_loss" in first.history
    assert first.history["validation_loss"][first.chosen["epoch"] - 1] == min(first.history["validation_loss"])
    assert len(dict(configs[0].problem_options)["digest"]) == 16
    with pytest.raises(DataError, match="the days with digest 0 are wanted"):
        resolve(problem, "MSE", 1, settings, model="shared", problem_options={"digest": "0"})


def test_the_best_epoch_is_kept_on_request(cache: Path) -> None:
    settings = replace(TINY, epochs=6, learning_rate=0.5)
    record = run(resolve("SP-4", "SPO+^relax", 1, replace(settings, keep="best")), cache)
    regret = record.history["validation_absolute_regret"]
    epoch = record.chosen["epoch"]
    assert regret[epoch - 1] == min(regret)
    assert epoch < 6, "this learning rate is so large that the last epoch is not the best"
    assert record.metrics == run(resolve("SP-4", "SPO+^relax", 1, replace(settings, epochs=epoch)), cache).metrics


def test_models_of_the_library() -> None:
    torch.manual_seed(3)
    by_hand = torch.nn.Linear(4, 2)
    made = models.make_model("linear", (4,), 2, seed=3)
    assert torch.equal(by_hand.weight, made.weight)  # type: ignore[arg-type]
    assert models.make_model("shared", (7, 4), 7, seed=0)(torch.rand(5, 7, 4)).shape == (5, 7)
    assert models.make_model("mlp", (4,), 2, 0, hidden=(3,))(torch.rand(5, 4)).shape == (5, 2)
    with pytest.raises(OptionError, match='use model = "shared"'):
        models.make_model("linear", (7, 4), 7, seed=0)
    with pytest.raises(OptionError, match="'mlp' has no option depth; its options are: hidden"):
        models.make_model("mlp", (4,), 2, 0, depth=3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"methods_of_mine"', '"methods_of_others"'), "imports 'methods_of_others', and there is no such module in"),
        (('"MSE",', '"MES",'), "no method is named 'MES'.*import = .*did you mean 'MSE'"),
        (("Billboards-6x2", "Bilboards-6x2"), "no problem is named 'Bilboards-6x2'.*Billboards-{m}x{k}"),
        (('"hidden"', '"hiden"'), "no model is named 'hiden': use one of linear, mlp, shared, tiles, ridge, .*hidden"),
        (("width = 5", "breadth = 5"), "the model 'hidden' has no option breadth; its options are: width"),
        (("crowd", "people"), "Billboards-6x2 has no option people; its options are crowd, seed"),
        (("mu = [0.1, 1.0]", "mu = 3"), "the tuning of mu is a list of values to try, got 3"),
        (("mu = [0.1, 1.0]", "nu = [3]"), "SCE\\^smoothed has no parameter nu"),
    ],
)
def test_mistakes_are_named(study: Path, change: tuple[str, str], message: str) -> None:
    study.write_text(STUDY.replace(*change))
    with pytest.raises(OptionError, match=message):
        read_study(study).runs()


def test_a_module_that_fails_and_one_whose_name_is_taken(study: Path, tmp_path: Path) -> None:
    (tmp_path / "broken_of_mine.py").write_text("1 / 0\n")
    with pytest.raises(OptionError, match="'broken_of_mine', which fails: ZeroDivisionError"):
        import_modules(["broken_of_mine"], tmp_path)
    (tmp_path / "json.py").write_text("")
    with pytest.raises(OptionError, match=r"json.* has that name too: rename one"):
        import_modules(["json"], tmp_path)


def test_names_that_are_taken(study: Path) -> None:
    read_study(study)
    read_study(study)  # again, as a notebook does
    with pytest.raises(OptionError, match="a method is named 'MSE' already"):
        register(Method("MSE", "another", lambda context: Prepared(None, context.train)))  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="a model is named 'linear' already"):
        register_model("linear", lambda features, costs, seed: torch.nn.Identity())
    with pytest.raises(OptionError, match=r"the form 'SP-\{side\}' is taken"):
        register_problem("SP-{side}", lambda side, seed: None)  # type: ignore[arg-type, return-value]


def test_packages_plug_in_by_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is installed and names its module is known to a fresh interpreter without an import."""
    package = tmp_path / "plugged.py"
    package.write_text(
        dedent("""
        from dflearn.losses import MSE
        from dflearn.studies import Method, Prepared, register
        register(Method("Plugged", "from a package", lambda context: Prepared(MSE(), context.train)))
        """)
    )
    information = tmp_path / "plugged-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[dflearn.methods]\nmine = plugged\n")
    code = "from dflearn.studies.methods import method_names as f; print({'Plugged', 'SCE^DYS', 'MSE'} <= set(f()))"
    path = {"PYTHONPATH": str(tmp_path)}
    assert subprocess.check_output([sys.executable, "-c", code], env=path, text=True) == "True\n"
