"""`Perturbed` beyond the contract: what it averages, how its Jacobian is estimated, what its state is."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.errors import OptionError, SolverError
from dflearn.layers.perturbed import Perturbed
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Raw, Solver, Status


class Box(Solver):
    """min cᵀw over 0 ≤ w ≤ upper in closed form, fast enough for many samples; negative upper bounds are infeasible.

    It remembers which starts it was given, and hands out c as the new one.
    """

    identity = "box"

    def __init__(self, n: int, S: np.ndarray | None = None) -> None:
        self.program = Program(n=n, upper=1, lower=-np.inf, S=S)
        self.objective = self.program.objective
        self.start_width = n
        self.seen: list[np.ndarray | None] = []

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        self.seen.append(start)
        upper = np.broadcast_to(sides.upper, c.shape)
        w = np.where(c < 0, upper, 0.0)
        status = np.where((upper < 0).any(1), int(Status.INFEASIBLE), int(Status.OPTIMAL)).astype(np.int8)
        w[status != Status.OPTIMAL] = np.nan
        value = (c * w).sum(1)
        return Raw(w, status, value, np.where(np.isnan(value), -np.inf, value), None if start is None else c)


def normal_cdf(x: Tensor) -> Tensor:
    return torch.special.ndtr(x)


def normal_density(x: Tensor) -> Tensor:
    return (-x.square() / 2).exp() / math.sqrt(2 * math.pi)


SAMPLES, REPETITIONS = 5, 40_000
Y = torch.tensor([-0.7, 0.2, 1.1], dtype=torch.float64)
WEIGHT = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
SIGMA = 0.8


def estimates(samples: int) -> tuple[Tensor, Tensor, Tensor]:
    """Independent estimates of the decision, of the gradient of its weighted sum, and of the optimum."""
    layer = Perturbed(Box(3), SIGMA, samples, generator=1)
    y = Y.expand(REPETITIONS, 3).clone().requires_grad_()
    solution = layer.solve(y)
    (slope,) = torch.autograd.grad(solution.decision, y, WEIGHT.expand_as(solution.decision))
    return solution.decision.detach(), slope, solution.objective


@pytest.mark.parametrize("samples", [1, 2, SAMPLES])
def test_estimates_are_unbiased(samples: int) -> None:
    """w*(y + σZ) = 1 where y + σZ < 0, so E w = Φ(−y/σ), dE w/dy = −φ(y/σ)/σ and E min = yΦ(−y/σ) − σφ(y/σ)."""
    decision, slope, optimum = estimates(samples)
    expected = normal_cdf(-Y / SIGMA)
    value = (Y * expected - SIGMA * normal_density(Y / SIGMA)).sum()
    for sample, mean in (
        (decision, expected),
        (slope, -WEIGHT * normal_density(Y / SIGMA) / SIGMA),
        (optimum[:, None], value[None]),
    ):
        error = sample.std(0) / math.sqrt(REPETITIONS)
        assert bool(((sample.mean(0) - mean).abs() <= 4.5 * error).all())


def test_the_optimum_is_the_potential_of_the_decision() -> None:
    """obj is the mean of minima; it is concave in y and its slope there is Sᵀ w: differences of it give the decision."""
    S = np.array([[1.0, 0.5], [0.0, -2.0], [1.5, 1.0]])
    layer = Perturbed(Box(3, S), 0.5, 4000, generator=2)
    y = torch.tensor([0.3, -0.2], dtype=torch.float64)
    state = layer.state_dict()

    def optimum(y: Tensor) -> Tensor:
        layer.load_state_dict(state)
        return layer.solve(y).objective

    layer.load_state_dict(state)
    slope = layer.objective.transpose(layer(y))
    for j in range(2):
        shift = torch.zeros(2, dtype=torch.float64)
        shift[j] = 1e-3
        difference = (optimum(y + shift) - optimum(y - shift)) / 2e-3
        assert float(difference) == pytest.approx(float(slope[j]), abs=2e-2)


def test_jacobian_through_the_known_part_of_the_objective() -> None:
    """With S, noise lies on y: E w_i = Φ(−(S y)_i/(σ‖S_i‖)); the estimate of its Jacobian has the right mean."""
    S = np.array([[1.0, 0.5], [0.0, -2.0]])
    count, rows = 40_000, torch.tensor(S)
    y0 = torch.tensor([0.3, -0.2], dtype=torch.float64)
    length = SIGMA * torch.linalg.vector_norm(rows, dim=1)
    density = normal_density(rows @ y0 / length) / length
    y = y0.expand(count, 2).clone().requires_grad_()
    decision = Perturbed(Box(2, S), SIGMA, 4, generator=3)(y)
    (slope,) = torch.autograd.grad(decision[:, 0].sum(), y)
    error = slope.std(0) / math.sqrt(count)
    assert bool(((slope.mean(0) + density[0] * rows[0]).abs() <= 4.5 * error).all())


def test_noise_is_fixed_by_seed_and_state() -> None:
    y = torch.zeros(3, dtype=torch.float64)
    make = lambda generator: Perturbed(Box(3), 1.0, 3, generator=generator)  # noqa: E731
    first, same, other = make(7), make(torch.Generator().manual_seed(7)), make(8)
    answers = [first(y) for _ in range(5)]
    assert [torch.equal(answer, same(y)) for answer in answers] == [True] * 5
    assert not all(torch.equal(answer, other(y)) for answer in answers)
    assert not all(torch.equal(answer, answers[0]) for answer in answers), "noise is drawn anew at each call"
    state = first.state_dict()
    later = [first(y) for _ in range(5)]
    other.load_state_dict(state)
    assert [torch.equal(answer, other(y)) for answer in later] == [True] * 5


def test_noise_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    Perturbed(Box(3))(torch.zeros(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_status_of_an_instance_is_its_worst_sample_and_instances_are_repeated() -> None:
    layer = Perturbed(Box(2), 0.1, 3)
    y = torch.full((2, 2, 2), -5.0)  # far from zero: every sample chooses the upper bound
    upper = torch.tensor([[[1.0, 2.0], [1.0, -1.0]], [[0.5, 3.0], [2.0, 2.0]]])
    solution = layer.solve(y, Instance(upper=upper))
    assert solution.status.tolist() == [[Status.OPTIMAL, Status.INFEASIBLE], [Status.OPTIMAL, Status.OPTIMAL]]
    assert solution.decision.shape == (2, 2, 2)
    assert solution.decision[0, 1].isnan().all()
    assert solution.bound[0, 1] == -torch.inf
    solved = solution.status == Status.OPTIMAL
    torch.testing.assert_close(solution.decision[solved], upper[solved])
    with pytest.raises(SolverError, match="instance 1 is INFEASIBLE"):
        layer(y, Instance(upper=upper))


@pytest.mark.parametrize(("sigma", "samples"), [(0.0, 1), (-1.0, 1), (math.inf, 1), (math.nan, 1), (1.0, 0)])
def test_arguments(sigma: float, samples: int) -> None:
    with pytest.raises(OptionError, match=r"Perturbed needs (a finite sigma > 0|samples >= 1)"):
        Perturbed(Box(2), sigma, samples)
