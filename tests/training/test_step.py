"""The training step: bit for bit the loop that one would write, for every optimizer, loss, dtype and kind of start."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Adam
from torch.optim.lr_scheduler import StepLR

from dflearn.data import DecisionDataset
from dflearn.layers import Exact, Perturbed, Smoothed
from dflearn.losses import MSE, SCE, FenchelYoung, Loss, SPOPlus
from dflearn.models import Linear
from dflearn.solvers.highs import HiGHS
from dflearn.training import fit
from support.small_problem import FEATURES, ITEMS, RELAXED, knapsack_data
from support.training_helpers import weighted, weights

TRAIN = knapsack_data(50, 1)
SIZE = 7  # times three features of four bytes: batches begin anywhere in what is gathered at once
Parameters = list[nn.Parameter]


def by_hand(
    model: nn.Module, loss: Loss, data: DecisionDataset, optimizer: Any, scheduler: Any = None, warm_start: bool = False
) -> tuple[Tensor, list[float]]:
    """The weights and mean losses of two epochs of the loop that one would write, by autograd and the optimizer's own methods."""
    generator, starts, means = torch.Generator().manual_seed(0), None, []
    every = torch.ones(len(data)) if data.weights is None else data.weights
    counted = every.nonzero()[:, 0]  # instances of weight zero are never drawn
    if warm_start and loss.layer is not None:
        starts = loss.layer.no_start(len(data))
    for _ in range(2):
        total = 0.0
        for places in torch.randperm(len(counted), generator=generator).split(SIZE):
            rows, weight = counted[places], every[counted[places]]
            batch = replace(data.batch(rows), start=None if starts is None else starts[rows])
            output = loss.output(model(batch.features), batch)
            optimizer.zero_grad()
            mean = output.value.mean() if data.weights is None else (weight * output.value).sum() / weight.sum()
            mean.backward()
            optimizer.step()
            total += mean.item() * float(weight.sum())
            if starts is not None and output.solution is not None and output.solution.start is not None:
                starts[rows] = output.solution.start
        means.append(total / float(every.sum()))
        if scheduler is not None:
            scheduler.step()
    return weights(model), means


def trained(model: nn.Module, loss: Loss, data: DecisionDataset, **options: Any) -> tuple[Tensor, list[float]]:
    usual = {"epochs": 2, "batch_size": SIZE, "lr": 0.02, "optimizer": Adam, "warm_start": False}
    history = fit(model, loss, data, **{**usual, **options})
    return weights(model), history.column("loss")


def clipping(parameters: Parameters, lr: float) -> Adam:
    """An optimizer with a step of its own, which clips."""
    optimizer, own = Adam(parameters, lr=lr), Adam.step

    def step(self: Adam, closure: Any = None) -> Any:
        nn.utils.clip_grad_value_(parameters, 1e-3)
        return own(self, closure)

    optimizer.step = types.MethodType(step, optimizer)  # type: ignore[method-assign]
    return optimizer


class ByColumns(nn.Module):
    """Costs in column-major order."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, ITEMS * FEATURES).reshape(ITEMS, FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight @ x.T).T


def linear() -> Linear:
    return Linear(FEATURES, ITEMS)


def sce() -> Loss:
    return SCE(Smoothed(RELAXED))


def of_groups(parameters: Parameters, lr: float) -> Adam:
    return Adam([{"params": [one], "lr": 0.1 + i} for i, one in enumerate(parameters)])


# What differs from Linear and SCE through Smoothed in float32, trained by Adam without warm starts.
CASES: dict[str, dict[str, Any]] = {
    "usual": {},
    "warm": {"warm_start": True},
    "double": {"dtype": torch.float64, "warm_start": True},
    "bfloat16": {"dtype": torch.bfloat16},
    "by columns": {"make_model": ByColumns},
    "SPO+, warm": {"make_loss": lambda: SPOPlus(Smoothed(RELAXED)), "warm_start": True},
    "SPO+, exact": {"make_loss": lambda: SPOPlus(Exact(HiGHS(RELAXED)))},
    "MSE": {"make_loss": MSE},
    "weights": {"data": weighted(TRAIN), "dtype": torch.float64},
    "perturbed": {"make_loss": lambda: FenchelYoung(Perturbed(HiGHS(RELAXED), 0.5, 2))},
    "schedule": {"scheduler": lambda optimizer: StepLR(optimizer, 1, 0.5)},
    "clipping": {"optimizer": clipping},
    "groups": {"optimizer": of_groups, "scheduler": lambda optimizer: StepLR(optimizer, 1, 0.5)},
}


@pytest.mark.parametrize("case", CASES)
def test_fit_is_the_loop_one_would_write(case: str) -> None:
    options = dict(CASES[case])
    dtype, make_model = options.pop("dtype", torch.float32), options.pop("make_model", linear)
    make_loss: Callable[[], Loss] = options.pop("make_loss", sce)
    model, data = make_model().to(dtype), options.pop("data", TRAIN).to(dtype)
    optimizer = options.get("optimizer", Adam)(list(model.parameters()), lr=0.02)
    scheduler = options["scheduler"](optimizer) if "scheduler" in options else None
    wanted = by_hand(model, make_loss(), data, optimizer, scheduler, options.get("warm_start", False))
    found = trained(make_model().to(dtype), make_loss(), data, **options)
    assert torch.equal(found[0], wanted[0])
    assert found[1] == wanted[1]
