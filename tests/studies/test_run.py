"""One run: the same figures each time, and the same as a loop written out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from dflearn.problems import problem_named
from dflearn.studies.config import problem_of
from dflearn.studies.run import run
from support.study_records import TINY, tiny

# What a busy machine or another run before may change.
TIMES = ("cpu_seconds", "wall_seconds", "validation_seconds")


def test_equal_configs_give_equal_figures(tmp_path: Path) -> None:
    first, second = (run(tiny(method="SCE^DYS"), tmp_path) for _ in range(2))
    assert first.metrics == second.metrics
    histories = [{k: v for k, v in one.history.items() if k not in TIMES} for one in (first, second)]
    assert histories[0] == histories[1]
    np.testing.assert_array_equal(first.regrets, second.regrets)


def test_mse_equals_a_loop_by_hand() -> None:
    """Training by plain torch, decisions by enumerating the six paths of the 3 × 3 grid."""
    record = run(tiny(method="MSE"))
    problem = problem_named("SP-3", seed=1)
    split = problem.generate(TINY.points).split(1, 40, 0.25)
    torch.manual_seed(1)
    model = nn.Linear(10, problem.program.p)
    optimizer, order = torch.optim.Adam(model.parameters(), lr=0.005), torch.Generator().manual_seed(1)
    for _ in range(TINY.epochs):
        for index in torch.randperm(len(split.train), generator=order).split(TINY.batch_size):
            optimizer.zero_grad()
            batch = split.train.batch(index)
            nn.functional.mse_loss(model(batch.features), batch.require("costs")).backward()
            optimizer.step()
    test = split.test.batch()
    truth = test.require("costs").double()
    paths = _paths(problem)
    chosen = paths[(model(test.features).double() @ paths.T).argmin(1)]
    optimum = (truth @ paths.T).amin(1)
    regret = (truth * chosen).sum(1) - optimum
    np.testing.assert_allclose(record.regrets, regret.detach().numpy(), atol=1e-5)
    assert record.metric("mean_of_ratios") == pytest.approx(float((regret / optimum).mean()), rel=1e-4)
    parts = [(r.mean() * (1 / o).mean(), len(r)) for r, o in zip(regret.split(32), optimum.split(32), strict=True)]
    style = sum(float(value) * count for value, count in parts) / len(regret)
    assert record.metric("published_style") == pytest.approx(style, rel=1e-4)


def _paths(problem: object) -> torch.Tensor:
    """Every path from corner to corner, as a 0/1 vector over the edges."""
    edges = [tuple(edge) for edge in problem.edges().tolist()]  # type: ignore[attr-defined]
    found, last = [], max(head for _, head in edges)

    def extend(node: int, taken: list[int]) -> None:
        if node == last:
            found.append([float(k in taken) for k in range(len(edges))])
        for k, (tail, head) in enumerate(edges):
            if tail == node:
                extend(head, [*taken, k])

    extend(0, [])
    assert len(found) == 6
    return torch.tensor(found, dtype=torch.float64)


def test_a_record_says_what_it_ran_on() -> None:
    record = run(tiny("KP-10", "SPO+^relax", solver="gurobi"))
    assert record.solver.startswith("Gurobi")
    assert record.training_solver.startswith("Exact of FewRowLP")
    assert {len(values) for values in record.history.values()} == {TINY.epochs}
    assert {"loss", "gradient", "validation_absolute_regret", *TIMES} <= set(record.history)
    assert {"epoch", "epoch_wall", "labels", "prepare", "train", "evaluate", "total_wall"} == set(record.seconds)
    assert record.machine["versions"]["torch"] == torch.__version__
    assert record.peak_megabytes > 10
    assert all(regret >= -1e-6 for regret in record.history["validation_absolute_regret"])


def test_raw_predictions_and_decisions_are_kept_on_request(tmp_path: Path) -> None:
    """They are those of the figures: decided anew from the predictions, regrets are the record's."""
    config = tiny(method="SPO+^relax")
    record = run(config, raw=tmp_path / "raw")
    with np.load(tmp_path / "raw" / f"{config.key}.npz") as kept:
        problem = problem_of(config)
        decided = problem.solver().solve(torch.tensor(kept["predictions"])).check().decision
        np.testing.assert_array_equal(kept["decisions"], decided.numpy())
        np.testing.assert_array_equal(kept["ids"], record.ids)
        np.testing.assert_allclose(kept["regrets"], record.regrets, rtol=1e-6, atol=1e-6)
