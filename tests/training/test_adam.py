"""`Steps` takes torch's steps, to the last bit, the short way or torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dflearn.training import adam
from dflearn.training.adam import Steps


def net(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 37), nn.Linear(37, 3)).to(dtype)


def trained(
    make: Callable[[Any], torch.optim.Optimizer], short: bool, epochs: int = 4, **options: Any
) -> list[torch.Tensor]:
    """Weights and moments after some epochs of six steps each, with noise for gradients."""
    model, noise = net(options.get("dtype", torch.float32)), torch.Generator().manual_seed(1)
    optimizer = make(model.parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7) if options.get("scheduler") else None
    for epoch in range(epochs):
        steps = Steps(optimizer)
        for step in range(6):
            steps.clear() if short else optimizer.zero_grad()
            for place, parameter in enumerate(model.parameters()):
                missing = options.get("missing") and place == 1 and step == 2
                own = torch.randn(parameter.shape, generator=noise, dtype=parameter.dtype)
                parameter.grad = None if missing else own
            if options.get("moved") and step == 3:
                model[0].weight.data = model[0].weight.data.clone()
            steps.take() if short else optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if options.get("saved") and epoch == 1:
            state = optimizer.state_dict()
            optimizer = make(model.parameters())
            optimizer.load_state_dict(state)
    return [part.detach() for part in model.parameters()] + [
        part for state in optimizer.state.values() for part in state.values()
    ]


def plain(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scheduler": True},
        {"missing": True},
        {"moved": True},
        {"saved": True},
        {"dtype": torch.float64},
        {"dtype": torch.bfloat16},
        {"small": 0},
    ],
)
def test_weights_and_moments_are_those_of_torch(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adam, "SMALL", options.get("small", adam.SMALL))
    for ours, torchs in zip(trained(plain, True, **options), trained(plain, False, **options), strict=True):
        assert torch.equal(ours, torchs)


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
        lambda parameters: torch.optim.Adam(parameters, lr=0.01, weight_decay=0.1),
        lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
        lambda parameters: torch.optim.Adam(parameters, lr=0.01, maximize=True),
        lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.01)),
    ],
)
def test_other_optimizers_step_as_they_do(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    for ours, torchs in zip(trained(make, True), trained(make, False), strict=True):
        assert torch.equal(ours, torchs)
