"""`fit`: equal to a loop written by hand, and everything around that loop."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dflearn.data import Batch, DecisionDataset
from dflearn.errors import DataError, DivergenceError, OptionError, ShapeError, SolverError
from dflearn.evaluation import evaluate
from dflearn.layers.base import Exact
from dflearn.layers.perturbed import Perturbed
from dflearn.layers.smoothed import Smoothed
from dflearn.losses import MSE, SCE, FenchelYoung, Loss, LossOutput, Regret, SPOPlus
from dflearn.models import Linear
from dflearn.program import Program
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS
from dflearn.training import Callback, Run, fit, tune
from support.closed_form_layers import SmoothedBox
from support.small_problem import FEATURES, ITEMS, PROGRAM, RELAXED, knapsack_data
from support.training_helpers import Scripted, weights

TRAIN, VALIDATION = knapsack_data(50, 1), knapsack_data(20, 2)


def spo_plus() -> SPOPlus:
    return SPOPlus(Exact(HiGHS(RELAXED)))


def test_rows() -> None:
    """Validation metrics are those of `evaluate`, and the parts of the time add up."""
    model = Linear(FEATURES, ITEMS)
    history = fit(model, spo_plus(), TRAIN, validation=VALIDATION, problem=HiGHS(PROGRAM), epochs=2)
    assert history.column("epoch") == [1, 2]
    assert history.stopped == "epochs"
    assert history.monitored == "validation_absolute_regret"
    row = history.rows[-1]
    judged = evaluate(model, PROGRAM, VALIDATION, floor=False)
    assert row["validation_absolute_regret"] == pytest.approx(judged.absolute_regret)
    assert row["validation_ratio_of_sums"] == pytest.approx(judged.ratio_of_sums)
    parts = [row[f"seconds_{part}"] for part in ("predict", "solve", "backward", "validation")]
    assert min(parts) > 0
    assert row["seconds"] == pytest.approx(sum(parts))
    assert row["lr"] == 0.005
    assert row["gradient"] > 0
    assert "failed" not in row


def test_validation_labels_of_the_relaxation_are_not_believed() -> None:
    relaxed = knapsack_data(20, 2, HiGHS(RELAXED))
    regrets = []
    for validation in (VALIDATION, DecisionDataset(relaxed.features, relaxed.costs)):
        history = fit(Linear(FEATURES, ITEMS), MSE(), TRAIN, validation=validation, problem=HiGHS(PROGRAM), epochs=1)
        regrets.append(history.rows[0]["validation_absolute_regret"])
    with pytest.warns(RuntimeWarning, match="not feasible"):
        history = fit(Linear(FEATURES, ITEMS), MSE(), TRAIN, validation=relaxed, problem=HiGHS(PROGRAM), epochs=1)
    regrets.append(history.rows[0]["validation_absolute_regret"])
    assert "relaxation" in history.notes[0]
    assert regrets == pytest.approx([regrets[0]] * 3)


class Dropout(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(Linear(FEATURES, 8), nn.Dropout(0.5), Linear(8, ITEMS))


@pytest.mark.parametrize("make_model", [lambda: Linear(FEATURES, ITEMS), Dropout], ids=["linear", "dropout"])
def test_the_seed_decides_and_the_global_generator_does_not(make_model: type[nn.Module]) -> None:
    results = []
    for global_seed, seed in ((0, 0), (1, 0), (0, 1)):
        model = make_model()
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        fit(model, MSE(), TRAIN, epochs=2, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        results.append(weights(model))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_each_instance_gets_its_own_start() -> None:
    """A layer whose start is its own input, so that a mixed-up store shows."""

    class Remembers(SmoothedBox):
        start_width = ITEMS

        def _solve(self, y: Tensor, instance: Any, start: Tensor | None) -> Any:
            assert start is not None
            seen.append(start)
            return replace(super()._solve(y, instance, None), start=y.detach().double())

    class Identity(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale

    seen: list[Tensor] = []
    data = DecisionDataset(TRAIN.costs, TRAIN.costs, TRAIN.decisions, ids=torch.arange(100, 150))
    fit(Identity(), SCE(Remembers(Program(upper=1, n=ITEMS), 1.0)), data, epochs=2, batch_size=16, lr=1e-12)
    first, second = torch.cat(seen[:5]), torch.cat(seen[5:])  # one batch compiles before the first epoch
    assert first.isnan().all()
    generator = torch.Generator().manual_seed(0)
    torch.randperm(50, generator=generator)
    order = torch.randperm(50, generator=generator)
    torch.testing.assert_close(second, TRAIN.costs[order].double())


class Snapshots(Callback):
    def __init__(self) -> None:
        self.weights: list[Tensor] = []

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        self.weights.append(weights(run.model))


@pytest.mark.parametrize(
    ("script", "patience", "epochs", "best"),
    [
        ((5, 4, 4.5, 4.2, 1), 2, 4, 2),
        ((5, 4, 4, 4, 1), 2, 4, 2),
        ((5, 6, 4, 5, 3), 2, 5, 5),
        ((5, math.nan, math.nan, 1), 2, 3, 1),
        ((5, 4, 3, 2, 1), 1, 5, 5),
    ],
)
def test_early_stopping_and_best_weights(script: tuple[float, ...], patience: int, epochs: int, best: int) -> None:
    for keep in ("last", "best"):
        model, snapshots = Linear(FEATURES, ITEMS), Snapshots()
        loss = Scripted(*([9] if keep == "best" else []), *script)  # where the best are kept, the start is judged first
        options: dict[str, Any] = {"validation": VALIDATION, "epochs": len(script), "early_stopping": patience}
        history = fit(model, loss, TRAIN, keep=keep, callbacks=[snapshots], **options)
        assert len(history.rows) == epochs
        assert history.best is not None
        assert history.best["epoch"] == best
        assert history.stopped == ("early stopping" if epochs < len(script) else "epochs")
        assert torch.equal(weights(model), snapshots.weights[(best if keep == "best" else epochs) - 1])


@pytest.mark.parametrize("name", ["validation_absolute_regret", "loss"])
def test_a_callback_may_not_change_what_a_row_holds(name: str) -> None:
    class Changes(Callback):
        def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
            row[name] = 0.0

    options: dict[str, Any] = {"validation": VALIDATION, "problem": HiGHS(PROGRAM), "epochs": 1}
    with pytest.raises(DataError, match=f"Changes changed what the epoch's row holds already: {name}"):
        fit(Linear(FEATURES, ITEMS), MSE(), TRAIN, callbacks=[Changes()], **options)


def test_callbacks() -> None:
    class Records(Callback):
        def __init__(self) -> None:
            self.calls: list[Any] = []

        def on_start(self, run: Run) -> None:
            self.calls.append(("start", run.epoch))

        def on_epoch_end(self, run: Run, row: dict[str, Any]) -> bool:
            row["mine"] = float(run.epoch)
            self.calls.append(("epoch", run.epoch))
            return run.epoch == 2

        def on_end(self, run: Run) -> None:
            self.calls.append(("end", run.epoch, run.history.stopped))

    records, other = Records(), Snapshots()
    history = fit(Linear(FEATURES, ITEMS), MSE(), TRAIN, epochs=5, callbacks=[records, other])
    assert records.calls == [("start", 0), ("epoch", 1), ("epoch", 2), ("end", 2, "callback")]
    assert len(other.weights) == 2
    assert history.column("mine") == [1.0, 2.0]
    assert history.stopped == "callback"


def test_a_scheduler_that_watches_the_validation_loss() -> None:
    plateau = lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)  # noqa: E731
    options: dict[str, Any] = {"validation": VALIDATION, "epochs": 3, "optimizer": "sgd", "scheduler": plateau}
    history = fit(Linear(FEATURES, ITEMS), Scripted(1, 2, 2), TRAIN, **options)
    assert history.column("lr") == pytest.approx([0.005, 0.005, 0.0005])


def test_a_step_whose_instances_were_not_finished_is_made_again_before_the_weights_move() -> None:
    """As on a GPU, whose kernels leave an instance without waiting: the weights are those of a run that left none."""

    class Leaves(Smoothed):
        """In its third solve, instances have no gradient, which it tells when it is asked."""

        solves, left = 0, False

        def solve(self, *arguments: Any) -> Any:
            self.solves += 1
            solution = super().solve(*arguments)
            if self.solves != 3:
                return solution
            self.left = True
            return replace(solution, decision=0 * solution.decision, deferred=True)

        def unsettled(self) -> bool:
            left, self.left = self.left, False
            return left

    found = []
    for kind in (Smoothed, Leaves):
        torch.manual_seed(0)
        model, loss = Linear(FEATURES, ITEMS), SCE(kind(RELAXED))
        history = fit(model, loss, TRAIN, epochs=1, batch_size=16, lr=0.02, warm_start=False)
        found.append((weights(model), history.rows[0]["loss"]))
    assert isinstance(loss.layer, Leaves)
    assert loss.layer.solves > 4
    assert found[0][1] == found[1][1]
    assert torch.equal(found[0][0], found[1][0])


class Broken(MSE):
    """Breaks at a given evaluation: in the value of one instance, or in the gradient alone."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__()
        self.at, self.what = at, what

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        value = super()._output(predicted, batch).value
        self.at -= 1
        if self.at == 0 and self.what == "value":
            value = value + torch.where(batch.require("ids") == 107, torch.nan, 0.0)
        if self.at == 0 and self.what == "gradient":
            value = value + (predicted - predicted.detach()).sum(-1).sqrt()
        return LossOutput(value)


@pytest.mark.parametrize(("dtype", "lr"), [(torch.float32, 1e30), (torch.float64, 1e300)])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_last_step_far_too_long_does_not_pass_in_silence(dtype: torch.dtype, lr: float, optimizer: str) -> None:
    """No loss is computed after it, which could tell."""
    model = Linear(FEATURES, ITEMS).to(dtype)
    options: dict[str, Any] = {"epochs": 1, "batch_size": len(TRAIN), "lr": lr, "optimizer": optimizer}
    with pytest.warns(RuntimeWarning, match=rf"the run diverged: .* lower lr \(now {re.escape(f'{lr:g}')}\)"):
        history = fit(model, MSE(), TRAIN.to(dtype), **options)
    assert "the run diverged" in history.notes[-1]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("value", r"epoch 2, step 1: the loss is not finite, though .* Instances: 107\."),
        ("gradient", r"epoch 2, step 1: the gradient is not finite, though the loss is"),
    ],
)
def test_divergence_is_diagnosed_and_the_last_finite_weights_stay(what: str, message: str) -> None:
    data = DecisionDataset(TRAIN.features, TRAIN.costs, TRAIN.decisions, ids=torch.arange(100, 150))
    model, snapshots = Linear(FEATURES, ITEMS), Snapshots()
    with pytest.raises(DivergenceError, match=message):
        fit(model, Broken(2, what), data, epochs=3, batch_size=50, callbacks=[snapshots])
    assert torch.equal(weights(model), snapshots.weights[0])


@pytest.mark.parametrize("make_loss", [MSE, spo_plus], ids=["MSE", "SPO+"])
@pytest.mark.parametrize(
    ("factor", "lr", "message"),
    [
        (100, 3e38, r"epoch 1, step 2: the weights are no longer finite.*lower lr"),
        (1, 1e35, r"predicted costs exploded.*lower lr"),  # named before the solver is blamed
    ],
)
def test_steps_far_too_long(factor: float, lr: float, message: str, make_loss: type[Loss]) -> None:
    """The model holds the last weights that were finite."""
    model, data = Linear(FEATURES, ITEMS), DecisionDataset(factor * TRAIN.features, TRAIN.costs, TRAIN.decisions)
    with pytest.raises(DivergenceError, match=message):
        fit(model, make_loss(), data, optimizer="sgd", lr=lr)
    assert weights(model).isfinite().all()
    assert factor == 1 or torch.equal(weights(model), weights(Linear(FEATURES, ITEMS)))


def test_a_failing_solve_says_where_it_happened() -> None:
    unbounded = Program(lower=-torch.inf, upper=torch.inf, n=ITEMS)
    with pytest.raises(SolverError) as caught:
        fit(Linear(FEATURES, ITEMS), SPOPlus(Exact(HiGHS(unbounded))), TRAIN, epochs=1, batch_size=4)
    assert "epoch 1, step 1, on the instances with ids" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epochs": -1}, OptionError, "epochs"),
        ({"batch_size": 0}, OptionError, "batch_size"),
        *(({"lr": lr}, OptionError, "lr") for lr in (0.0, 1e39, math.inf, math.nan)),
        ({"optimizer": "best"}, OptionError, "adam"),
        ({"early_stopping": 0, "validation": VALIDATION}, OptionError, "early_stopping"),
        ({"early_stopping": 3}, OptionError, "validation"),
        ({"keep": "best"}, OptionError, "validation"),
        ({"keep": "worst"}, OptionError, "keep"),
        ({"problem": HiGHS(PROGRAM)}, OptionError, "validation"),
        ({"validation": VALIDATION.subset(slice(0, 0))}, DataError, "empty"),
        ({"train": TRAIN.subset(slice(0, 0))}, DataError, "empty"),
        ({"model": Linear(FEATURES, ITEMS + 1)}, ShapeError, "differ in shape"),
        ({"train": DecisionDataset(TRAIN.features)}, DataError, "needs costs"),
        ({"validation": DecisionDataset(TRAIN.features), "problem": HiGHS(PROGRAM)}, DataError, "needs true costs"),
        ({"loss": Regret(Exact(HiGHS(RELAXED)))}, OptionError, "does not depend on the predicted costs"),
    ],
)
def test_mistakes_are_explained(options: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"model": Linear(FEATURES, ITEMS), "loss": MSE(), "train": TRAIN, **options}
    with pytest.raises(error, match=message):
        fit(arguments.pop("model"), arguments.pop("loss"), arguments.pop("train"), **arguments)


class Failing(SPOPlus):
    """SPO+ whose layer ends with this status on the instances with these ids."""

    def __init__(self, status: Status, ids: list[int]) -> None:
        super().__init__(Exact(HiGHS(RELAXED)))
        self.status, self.ids = int(status), torch.tensor(ids)

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        output = super()._output(predicted, batch)
        assert output.solution is not None
        bad = torch.isin(batch.require("ids"), self.ids)
        codes = torch.where(bad, self.status, output.solution.status.long()).to(torch.int8)
        return LossOutput(output.value, replace(output.solution, status=codes).check())


def test_an_instance_that_fails_has_no_weight_and_is_named() -> None:
    """The epoch is that of the other instances, in their order, in the same batches."""
    model, by_hand = Linear(FEATURES, ITEMS), Linear(FEATURES, ITEMS)
    history = fit(model, Failing(Status.FAILED, [7]), TRAIN, epochs=2, batch_size=10, warm_start=False, progress=False)
    assert history.column("failed") == [1, 1]
    assert history.column("failed_ids") == ["7", "7"]
    optimizer, generator = torch.optim.Adam(by_hand.parameters(), lr=0.005), torch.Generator().manual_seed(0)
    for _ in range(2):
        for index in torch.randperm(50, generator=generator).split(10):
            batch = TRAIN.batch(index[index != 7])
            optimizer.zero_grad()
            spo_plus()(by_hand(batch.features), batch).mean().backward()
            optimizer.step()
    assert torch.equal(model.weight, by_hand.weight)
    with pytest.raises(SolverError, match="FAILED"):  # more than one in a hundred
        fit(Linear(FEATURES, ITEMS), Failing(Status.FAILED, [7, 8]), TRAIN, epochs=1, progress=False)


@pytest.mark.parametrize("status", [Status.INFEASIBLE, Status.UNBOUNDED])
def test_infeasible_and_unbounded_stay_errors(status: Status) -> None:
    advice = r"\*predicted\* costs that make a program unbounded.*positive=True"
    remedy = advice if status == Status.UNBOUNDED else "INFEASIBLE"
    with pytest.raises(SolverError, match=remedy):
        fit(Linear(FEATURES, ITEMS), Failing(status, [7]), TRAIN, epochs=1, warm_start=False, progress=False)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_training_is_the_same_in_small_units_of_the_objective(optimizer: str) -> None:
    """Adam's epsilon is 1e-8 whatever gradients are measured in; a run fits it to its first gradient."""
    found = []
    for unit in (1.0, 1e-12):
        program = replace(RELAXED, h=unit * RELAXED.h, upper=unit * RELAXED.upper)
        assert TRAIN.decisions is not None
        data = TRAIN.with_decisions(unit * TRAIN.decisions.double())
        model = Linear(FEATURES, ITEMS)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(0.1)
        fit(model, SPOPlus(Exact(HiGHS(program))), data, epochs=3, optimizer=optimizer, progress=False)
        found.append(torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]))
    assert bool((found[0] - 0.1).abs().max() > 0.01)
    torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=1e-3)


def test_validation_leaves_no_trace() -> None:
    """The run goes the same way with and without it, even where the loss draws random numbers."""
    results = []
    for validation in (None, VALIDATION):
        model = Linear(FEATURES, ITEMS)
        fit(model, FenchelYoung(Perturbed(HiGHS(RELAXED), 0.5)), TRAIN, validation=validation, epochs=2)
        results.append(weights(model))
    assert torch.equal(*results)


OPTIONS: dict[str, Any] = {"train": knapsack_data(24, 1), "validation": knapsack_data(12, 2)}
OPTIONS |= {"make_model": lambda seed: Linear(FEATURES, ITEMS, seed=seed)}
OPTIONS |= {"problem": HiGHS(PROGRAM), "epochs": 2, "lr": 0.05}


def perturbed(sigma: float) -> FenchelYoung:
    return FenchelYoung(Perturbed(HiGHS(RELAXED), sigma))


class Scaled(MSE):
    """`scale` = 0 learns nothing, NaN diverges."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return LossOutput(self.scale * super()._output(predicted, batch).value)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_table_is_what_separate_runs_give(keep: Any) -> None:
    grid, seeds = [0.1, 1.0, 10.0], [0, 1]
    found = tune(perturbed, grid, seeds=seeds, keep=keep, **OPTIONS)
    assert [(row["value"], row["seed"]) for row in found.rows] == [(v, s) for v in grid for s in seeds]
    means = []
    for value in grid:
        regrets = []
        for seed in seeds:
            rest = {name: option for name, option in OPTIONS.items() if name != "make_model"}
            history = fit(Linear(FEATURES, ITEMS, seed=seed), perturbed(value), seed=seed, keep=keep, **rest)
            row = history.best if keep == "best" else history.rows[-1]
            regrets.append(row["validation_absolute_regret"])
        means.append(sum(regrets) / len(regrets))
        assert [row["validation_absolute_regret"] for row in found.rows if row["value"] == value] == regrets
    assert found.best == grid[means.index(min(means))]
    assert found.at_edge == (found.best != 1.0)


def test_a_value_that_diverges_loses() -> None:
    found = tune(Scaled, [float("nan"), 0.0, 1.0], **{**OPTIONS, "epochs": 20})
    assert found.best == 1.0
    assert found.at_edge
    assert "not finite" in found.rows[0]["error"]
    assert found.rows[0]["validation_absolute_regret"] == float("inf")
    assert found.rows[2]["error"] == ""


def test_equals_go_to_the_first_and_no_winner_is_an_error() -> None:
    assert tune(lambda value: MSE(), ["a", "b"], **OPTIONS).best == "a"
    with pytest.raises(DivergenceError, match="every value"):
        tune(Scaled, [float("nan")], **OPTIONS)
    with pytest.raises(OptionError, match="at least one value"):
        tune(Scaled, [], **OPTIONS)
