"""The models: shapes, and weights that depend on the seed alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dflearn.errors import ShapeError
from dflearn.models import MLP, Linear, Positive, SharedLinear

MAKERS = {
    "linear": lambda seed: Linear(3, 5, seed=seed),
    "shared": lambda seed: SharedLinear(3, seed=seed),
    "mlp": lambda seed: MLP(3, 5, hidden=(7, 4), activation=nn.Tanh, seed=seed),
}


@pytest.mark.parametrize("batch", [(), (1,), (4,), (2, 3), (0,)])
def test_shapes(batch: tuple[int, ...]) -> None:
    assert Linear(3, 5)(torch.zeros(*batch, 3)).shape == (*batch, 5)
    assert MLP(3, 5)(torch.zeros(*batch, 3)).shape == (*batch, 5)
    assert SharedLinear(3)(torch.zeros(*batch, 5, 3)).shape == (*batch, 5)


@pytest.mark.parametrize("name", MAKERS)
def test_weights_depend_on_the_seed_alone(name: str) -> None:
    make = MAKERS[name]
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = (nn.utils.parameters_to_vector(make(seed).parameters()) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_shared_model_treats_all_coefficients_alike() -> None:
    model, x = SharedLinear(3), torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(model(x)[:, order], model(x[:, order]))


def test_mlp_is_what_it_says() -> None:
    model, x = MLP(3, 5, hidden=(7,), activation=nn.Tanh), torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    first, _, last = model
    torch.testing.assert_close(model(x), torch.tanh(x @ first.weight.T + first.bias) @ last.weight.T + last.bias)
    assert len(MLP(3, 5, hidden=())) == 1
    with pytest.raises(ShapeError, match="width"):
        MLP(3, 5, hidden=(0,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_positive_is_a_softplus_of_any_size(dtype: torch.dtype) -> None:
    costs = torch.tensor([[-2e9, -3.0, 0.0], [3.0, 400.0, 2e9]], dtype=dtype)
    found = Positive(10.0)(costs)
    assert found.dtype == dtype
    assert (found >= 0).all()
    torch.testing.assert_close(found, 10 * torch.logaddexp(costs / 10, torch.zeros_like(costs)))
