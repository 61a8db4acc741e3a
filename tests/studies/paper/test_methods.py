"""Methods: each trains, and is what the paper's authors ran where it says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.errors import OptionError
from dflearn.models import Linear, Scaled
from dflearn.problems import problem_named
from dflearn.studies.config import Settings, resolve
from dflearn.studies.methods import Prepared, RunContext, method_named, method_names
from dflearn.studies.paper.methods import SCALED
from dflearn.studies.run import run
from dflearn.training import fit
from support.study_records import TINY, tiny

SMALLEST = Settings(points=32, test=16, validation=0.25, epochs=1, batch_size=8)


def prepared(problem_name: str, method: str) -> tuple[RunContext, Prepared]:
    config = tiny(problem_name, method)
    problem = problem_named(problem_name, seed=1)
    train = label(problem.generate(TINY.points).split(1, 40, 0.25).train, problem.solver())
    task = RunContext(problem, train, 1, dict(config.parameters), problem.solver)
    return task, method_named(method).prepare(task)


@pytest.mark.parametrize("method", method_names())
def test_every_method_trains_on_a_mixed_integer_program(method: str, cache: Path) -> None:
    record = run(resolve("CFL-6x2", method, 1, SMALLEST), cache)
    assert all(np.isfinite(record.history["loss"]))
    assert 0 <= record.metric("mean_of_ratios") < 10
    assert record.training_solver


@pytest.mark.parametrize("problem", ["SP-3", "KP-10"])
def test_methods_that_differ_between_problems_train_there_too(problem: str, cache: Path) -> None:
    for method in ("SPO+^p=5%", "PFY", "CaVE", "SqDE^DYS", "SCE^CVX", "SCE^DYS unrolled"):
        assert all(np.isfinite(run(resolve(problem, method, 1, SMALLEST), cache).history["loss"]))


def test_three_ways_to_solve_the_same_paths_give_the_same_model() -> None:
    ways = [run(tiny("SP-4", method)) for method in ("SPO+^relax", "SPO+^relax cold", "SPO+^relax warm", "SPO+^ILP")]
    assert len({record.training_solver for record in ways}) == 2  # the oracle, and HiGHS
    for record in ways[1:]:
        np.testing.assert_allclose(record.regrets, ways[0].regrets, atol=1e-6)
        np.testing.assert_allclose(record.history["loss"], ways[0].history["loss"], rtol=1e-3)


@pytest.mark.parametrize("method", SCALED)
@pytest.mark.parametrize("problem", ["SP-4", "KP-10"])
def test_scaled_is_the_same_with_costs_that_were_divided(problem: str, method: str) -> None:
    task, _ = prepared(problem, f"{method} scaled")
    task = replace(task, train=task.train.to(torch.float64))  # in float32 rounding may turn a decision
    own = method_named(f"{method} scaled").prepare(task)
    assert task.train.costs is not None
    assert own.scale == pytest.approx(float(task.train.costs.abs().mean()))
    small = DecisionDataset(task.train.features, task.train.costs / own.scale, task.train.decisions)
    plain = method_named(method).prepare(replace(task, train=small))
    models = [Linear(10, task.problem.program.p).double() for _ in range(2)]
    fit(Scaled(models[0], own.scale), own.loss, own.train, epochs=3, lr=0.05, progress=False)
    fit(models[1], plain.loss, plain.train, epochs=3, lr=0.05, progress=False)
    # Adam's ε is not in units of the costs.
    torch.testing.assert_close(models[0].weight, models[1].weight, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("problem", ["SP-3", "KP-10", "CFL-6x2"])
def test_our_layers_stand_for_cvxpylayers_and_for_the_dense_matrices_of_the_authors(problem: str, cache: Path) -> None:
    ours, theirs = (run(tiny(problem, f"SCE^CVX{suffix}"), cache) for suffix in ("", " cvxpylayers"))
    np.testing.assert_allclose(ours.history["loss"], theirs.history["loss"], rtol=2e-3, atol=1e-4)
    ours, theirs = (run(tiny(problem, f"SCE^DYS{suffix}"), cache) for suffix in ("", " dense"))
    assert (ours.training_solver, theirs.training_solver) == ("SparseAsPublished", "AsPublished")
    np.testing.assert_allclose(ours.history["loss"], theirs.history["loss"], rtol=1e-3)
    np.testing.assert_allclose(ours.metric("mean_of_ratios"), theirs.metric("mean_of_ratios"), atol=1e-3)


def test_losses_of_the_authors_see_the_assignment_part_only() -> None:
    """Regret, SPO+, SCE and SqDE on facility location, written out as demand × assignment."""
    task, _ = prepared("CFL-6x2", "SCE^DYS")
    pairs, demands = 12, torch.tensor(np.repeat(task.problem.structure["demands"], 2), dtype=torch.float32)
    batch = task.train.batch(torch.arange(8))
    costs, truth = batch.require("costs"), batch.require("decisions")[:, :pairs] * demands
    predicted = costs * 0.8 + 0.3
    for name in ("Regret", "SPO+", "SCE", "SqDE"):
        _, made = prepared("CFL-6x2", f"{name}^DYS")
        batch = made.train.batch(torch.arange(8))
        inner = made.loss.layer.layer  # the same generator gives the same random start twice
        state = inner.get_extra_state()
        shown = 2 * predicted - costs if name == "SPO+" else predicted
        carried = inner(shown)[:, :pairs] * demands
        inner.set_extra_state(state)
        expected = {
            "Regret": (costs * (carried - truth)).sum(-1),
            "SPO+": (shown * (truth - carried)).sum(-1),
            "SCE": ((predicted - costs) * (truth - carried)).sum(-1),
            "SqDE": (truth - carried).square().mean(-1),
        }[name]
        torch.testing.assert_close(made.loss(predicted, batch), expected, rtol=1e-4, atol=1e-4)


def test_labels_are_those_of_the_authors() -> None:
    task, made = prepared("KP-10", "SCE^DYS")
    relaxed = made.train.batch().require("decisions")
    assert bool((relaxed - relaxed.round()).abs().max() > 0.01)
    _, made = prepared("KP-10", "SPO+^relax")
    assert torch.equal(made.train.batch().require("decisions"), task.train.batch().require("decisions"))  # exact labels
    _, made = prepared("CFL-6x2", "SCE^CVX")
    batch = made.train.batch()
    torch.testing.assert_close(batch.require("decisions"), made.loss.layer(batch.require("costs")))


def test_labels_that_do_not_exist() -> None:
    for method, known in (("SCE^DYS", "'exact' or 'relaxed'"), ("SCE^CVX", "'exact' or 'relaxed' or 'smoothed'")):
        with pytest.raises(OptionError, match=f"labels are {known} for this method, got 'none'"):
            run(resolve("SP-3", method, 1, SMALLEST, {"labels": "none"}))
