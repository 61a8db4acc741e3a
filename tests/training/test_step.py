"""The training step by its short ways: bit for bit the loop that one would write, whatever stands around it."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Adam
from torch.optim.lr_scheduler import StepLR

from dflearn.data import Batch, DecisionDataset
from dflearn.layers.smoothed import Smoothed
from dflearn.losses import SCE, Loss, SPOPlus
from dflearn.models import Linear
from dflearn.program import Instance
from dflearn.training import Callback, Run, fit
from dflearn.training.adam import Steps
from support.small_problem import FEATURES, ITEMS, RELAXED, knapsack_data
from support.training_helpers import weights

TRAIN = knapsack_data(50, 1)
SIZE = 7  # times three features of four bytes: batches begin anywhere in what is gathered at once
Parameters = list[nn.Parameter]


def by_hand(
    model: nn.Module, loss: Loss, data: DecisionDataset, optimizer: Any, scheduler: Any = None, warm_start: bool = False
) -> Tensor:
    """The weights after two epochs of the loop that one would write, by autograd and the optimizer's own methods."""
    generator, starts = torch.Generator().manual_seed(0), None
    if warm_start and loss.layer is not None:
        starts = loss.layer.no_start(len(data))
    for _ in range(2):
        for rows in torch.randperm(len(data), generator=generator).split(SIZE):
            batch = replace(data.batch(rows), start=None if starts is None else starts[rows])
            output = loss.output(model(batch.features), batch)
            optimizer.zero_grad()
            output.value.mean().backward()
            optimizer.step()
            if starts is not None and output.solution is not None and output.solution.start is not None:
                starts[rows] = output.solution.start
        if scheduler is not None:
            scheduler.step()
    return weights(model)


def trained(model: nn.Module, loss: Loss, data: DecisionDataset, **options: Any) -> Tensor:
    usual = {"epochs": 2, "batch_size": SIZE, "lr": 0.02, "optimizer": Adam, "warm_start": False}
    fit(model, loss, data, **{**usual, **options})
    return weights(model)


# -- Adam -------------------------------------------------------------------------------------------------------------


def test_many_steps_are_those_of_torch() -> None:
    """Beyond 1270 steps, where √(1 − β₂ᵗ) and (1 − β₂ᵗ)^½ are two numbers."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(500, dtype=torch.float64, generator=generator)
    ours, theirs = (nn.Parameter(start.clone()) for _ in range(2))
    optimizer, reference = Adam([ours], lr=0.1), Adam([theirs], lr=0.1)
    steps = Steps(optimizer)
    for _ in range(1300):
        gradient = torch.randn(500, dtype=torch.float64, generator=generator)
        ours.grad, theirs.grad = gradient, gradient.clone()
        steps.take()
        reference.step()
    assert steps._groups is not None  # it did go the short way
    assert torch.equal(ours, theirs)
    assert all(torch.equal(optimizer.state[ours][name], value) for name, value in reference.state[theirs].items())


def decay(optimizer: Adam, parameter: nn.Parameter) -> None:
    optimizer.param_groups[0]["weight_decay"] = 0.3


def listen(optimizer: Adam, parameter: nn.Parameter) -> None:
    optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_value_([parameter], 1e-3))


def widen(optimizer: Adam, parameter: nn.Parameter) -> None:
    parameter.joined = nn.Parameter(torch.ones(3))  # type: ignore[attr-defined]
    parameter.joined.grad = torch.ones(3)  # type: ignore[attr-defined]
    optimizer.add_param_group({"params": [parameter.joined]})  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", [decay, listen, widen])
def test_what_an_optimizer_is_told_between_two_steps_counts(change: Callable[[Adam, nn.Parameter], None]) -> None:
    ours, theirs = (nn.Parameter(torch.linspace(-1, 1, 5)) for _ in range(2))
    optimizer, reference = Adam([ours], lr=0.1), Adam([theirs], lr=0.1)
    steps = Steps(optimizer)
    for number in range(6):
        steps.clear()
        reference.zero_grad()
        ours.grad, theirs.grad = torch.ones(5), torch.ones(5)
        if number == 3:
            assert steps._groups is not None
            change(optimizer, ours)
            change(reference, theirs)
        steps.take()
        reference.step()
    assert torch.equal(ours, theirs)
    for one, other in zip(optimizer.param_groups, reference.param_groups, strict=True):
        assert all(torch.equal(*pair) for pair in zip(one["params"], other["params"], strict=True))


def clipping(parameters: Parameters, lr: float) -> Adam:
    """A step of its own, which clips."""
    optimizer, own = Adam(parameters, lr=lr), Adam.step

    def step(self: Adam, closure: Any = None) -> Any:
        nn.utils.clip_grad_value_(parameters, 1e-3)
        return own(self, closure)

    optimizer.step = types.MethodType(step, optimizer)  # type: ignore[method-assign]
    return optimizer


def adding_up(parameters: Parameters, lr: float) -> Adam:
    """Gradients that are never cleared."""
    optimizer = Adam(parameters, lr=lr)
    optimizer.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
    return optimizer


class Around:
    """An optimizer around another, which it asks for whatever it does not know."""

    def __init__(self, inner: Adam) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)


MAKE: dict[str, Callable[..., Any]] = {
    "plain": Adam,
    "clipping": clipping,
    "adding up": adding_up,
    "around": lambda parameters, lr: Around(Adam(parameters, lr=lr)),
    "tensors": lambda parameters, lr: Adam(parameters, lr=lr, betas=(torch.tensor(0.9), torch.tensor(0.99))),
    "weight decay": lambda parameters, lr: Adam(parameters, lr=lr, weight_decay=0.1),
    "groups": lambda parameters, lr: Adam([{"params": [one], "lr": 0.1 + i} for i, one in enumerate(parameters)]),
}


@pytest.mark.parametrize(
    ("name", "scheduled"),
    [(name, scheduled) for name in MAKE for scheduled in (False, True) if not (scheduled and name == "around")],
)  # torch's schedulers refuse what is no optimizer of torch's
def test_any_adam_steps_as_it_says(name: str, scheduled: bool) -> None:
    model, make = Linear(FEATURES, ITEMS), MAKE[name]
    optimizer = make(list(model.parameters()), lr=0.02)
    reference = by_hand(
        model, SCE(Smoothed(RELAXED)), TRAIN, optimizer, StepLR(optimizer, 1, 0.5) if scheduled else None
    )
    options: dict[str, Any] = {"scheduler": lambda own: StepLR(own, 1, 0.5)} if scheduled else {}
    assert torch.equal(
        trained(Linear(FEATURES, ITEMS), SCE(Smoothed(RELAXED)), TRAIN, optimizer=make, **options), reference
    )


class Thaws(Callback):
    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        if row["epoch"] == 1:
            first = run.model.get_submodule("0").requires_grad_(True)
            run.optimizer.add_param_group({"params": list(first.parameters())})


def test_the_gradient_of_a_row_is_that_of_all_parameters_that_move() -> None:
    """One step an epoch: the row's gradient is the norm of what the parameters hold after it."""
    model = nn.Sequential(nn.Linear(FEATURES, 4), nn.Linear(4, ITEMS))
    model[0].requires_grad_(False)
    history = fit(model, SCE(Smoothed(RELAXED)), TRAIN, epochs=2, batch_size=len(TRAIN), callbacks=[Thaws()])
    whole = torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None]).norm()
    assert history.rows[-1]["gradient"] == pytest.approx(float(whole), rel=1e-6)


class Replaces(Callback):
    """Another layer for each epoch, with half of the last one's μ."""

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        assert isinstance(run.loss.layer, Smoothed)
        run.loss.layer = Smoothed(RELAXED, mu=run.loss.layer.mu / 2)


def test_a_checkpoint_holds_the_numbers_of_the_layer_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    fit(Linear(FEATURES, ITEMS), SCE(Smoothed(RELAXED)), TRAIN, epochs=2, callbacks=[Replaces()], checkpoint=path)
    assert torch.load(path)["annealed"] == {"layer": {"mu": 0.25}}


# -- losses and layers ------------------------------------------------------------------------------------------------


class ByColumns(nn.Module):
    """Costs in column-major order."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, ITEMS * FEATURES).reshape(ITEMS, FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight @ x.T).T


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("kind", [SCE, SPOPlus])
@pytest.mark.parametrize(
    ("make_model", "dtype"),
    [
        (lambda: Linear(FEATURES, ITEMS), torch.float32),
        (lambda: Linear(FEATURES, ITEMS), torch.float64),
        (lambda: Linear(FEATURES, ITEMS), torch.bfloat16),
        (ByColumns, torch.float32),
    ],
    ids=["single", "double", "bfloat16", "by columns"],
)
def test_fit_is_the_loop_one_would_write(
    make_model: Callable[[], nn.Module], dtype: torch.dtype, kind: type[SCE] | type[SPOPlus], warm_start: bool
) -> None:
    data, model = TRAIN.to(dtype), make_model().to(dtype)
    optimizer = Adam(model.parameters(), lr=0.02)
    reference = by_hand(model, kind(Smoothed(RELAXED)), data, optimizer, warm_start=warm_start)
    result = trained(make_model().to(dtype), kind(Smoothed(RELAXED)), data, warm_start=warm_start)
    assert torch.equal(result, reference)


@pytest.mark.parametrize("name", ["output", "_output"])
def test_an_output_that_a_loss_was_given_counts(name: str) -> None:
    def threefold() -> SCE:
        loss = SCE(Smoothed(RELAXED))
        own = getattr(loss, name)
        setattr(loss, name, lambda predicted, batch: replace(it := own(predicted, batch), value=3 * it.value))
        return loss

    sgd = {"optimizer": torch.optim.SGD, "lr": 1e-3}
    model = Linear(FEATURES, ITEMS)
    reference = by_hand(model, threefold(), TRAIN, torch.optim.SGD(model.parameters(), lr=1e-3))
    assert torch.equal(trained(Linear(FEATURES, ITEMS), threefold(), TRAIN, **sgd), reference)


@pytest.mark.parametrize("warm_start", [False, True])
def test_a_solve_that_a_layer_was_given_counts(warm_start: bool) -> None:
    layer, counted = Smoothed(RELAXED), []
    own = layer.solve
    layer.solve = lambda *arguments: (counted.append(1), own(*arguments))[1]  # type: ignore[method-assign,func-returns-value]
    trained(Linear(FEATURES, ITEMS), SCE(layer), TRAIN, epochs=1, warm_start=warm_start)
    assert len(counted) == 1 + -(-len(TRAIN) // SIZE)  # the first compiles


def test_options_of_a_layer_that_has_solved_may_be_set_anew() -> None:
    assert TRAIN.costs is not None
    layer, small = Smoothed(RELAXED), 0.1 * TRAIN.costs
    layer(small)
    layer.regularizer = "norm"
    assert torch.equal(layer(small), Smoothed(RELAXED, regularizer="norm")(small))
    layer.regularizer, layer.tolerance = "squared", 1e-7
    assert torch.equal(layer(small), Smoothed(RELAXED, tolerance=1e-7)(small))


# -- data -------------------------------------------------------------------------------------------------------------


class Centred(DecisionDataset):
    """What a batch holds depends on all of its instances."""

    def batch(self, index: Any = slice(None)) -> Batch:
        whole = super().batch(index)
        return replace(whole, features=whole.features - whole.features.mean(0))


def test_a_data_set_is_asked_for_each_batch_where_it_makes_them_itself() -> None:
    data = Centred(TRAIN.features, TRAIN.costs, TRAIN.decisions)
    model = Linear(FEATURES, ITEMS)
    reference = by_hand(model, SCE(Smoothed(RELAXED)), data, Adam(model.parameters(), lr=0.02))
    assert torch.equal(trained(Linear(FEATURES, ITEMS), SCE(Smoothed(RELAXED)), data), reference)


@pytest.mark.parametrize("field", ["features", "h"])
def test_data_may_be_learned(field: str) -> None:
    def data() -> tuple[DecisionDataset, Tensor]:
        capacities = torch.full((len(TRAIN), 1), 9.0)
        learned = (TRAIN.features.clone() if field == "features" else capacities).requires_grad_()
        held = {"features": learned} if field == "features" else {"instance": Instance(h=learned)}
        return DecisionDataset(
            **{"features": TRAIN.features, "costs": TRAIN.costs, "decisions": TRAIN.decisions, **held}
        ), learned  # type: ignore[arg-type]

    model, (whole, moved) = Linear(FEATURES, ITEMS), data()
    by_hand(model, SCE(Smoothed(RELAXED)), whole, Adam([*model.parameters(), moved], lr=0.02))
    own, learned = data()
    make = lambda parameters, lr: Adam([*parameters, learned], lr=lr)  # noqa: E731
    result = trained(Linear(FEATURES, ITEMS), SCE(Smoothed(RELAXED)), own, optimizer=make)
    assert torch.equal(result, weights(model))
    assert torch.equal(learned, moved)
