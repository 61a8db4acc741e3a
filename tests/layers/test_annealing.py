"""`layer.mu = …`: from then on the layer is the one that would be made with that μ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dflearn.errors import CheckpointError, OptionError
from dflearn.layers import CvxpySmoothed, DavisYin, Layer, Perturbed, Smoothed
from dflearn.losses import FenchelYoung
from dflearn.models import Linear
from dflearn.problems import problem_named
from dflearn.solvers.highs import HiGHS
from dflearn.training import Anneal, Callback, Run, fit
from support.small_problem import FEATURES, ITEMS, RELAXED, knapsack_data

PROGRAM = problem_named("CFL-4x2").program.relax()
MUS = (5.0, 1.0, 0.2, 0.03, 2.0)

LAYERS: dict[str, Callable[[float], Layer]] = {
    "Smoothed": lambda mu: Smoothed(PROGRAM, mu),
    "Smoothed, norm": lambda mu: Smoothed(PROGRAM, mu, regularizer="norm"),
    "CvxpySmoothed": lambda mu: CvxpySmoothed(PROGRAM, mu),
    "CvxpySmoothed, norm": lambda mu: CvxpySmoothed(PROGRAM, mu, regularizer="norm"),
    "DavisYin": lambda mu: DavisYin(PROGRAM, mu),
    "DavisYin, unrolled": lambda mu: DavisYin(PROGRAM, mu, gradient="unrolled"),
    "DavisYin, implicit": lambda mu: DavisYin(PROGRAM, mu, iterations=20_000, tolerance=1e-9, gradient="implicit"),
    "DavisYin, its own step": lambda mu: DavisYin(PROGRAM, mu, 0.1),
}


def costs() -> Tensor:
    return torch.randn(4, PROGRAM.p, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3 + 4


def both(layer: Layer, y: Tensor, **given: Any) -> tuple[Tensor, Tensor]:
    """Decision and gradient."""
    leaf = y.clone().requires_grad_()
    w = layer.solve(leaf, **given).check().decision
    weight = torch.linspace(-1, 1, w.shape[-1], dtype=w.dtype)
    return w.detach(), torch.autograd.grad((w * weight).sum(), leaf)[0]


@pytest.mark.parametrize("name", LAYERS)
def test_an_annealed_layer_equals_a_fresh_one(name: str) -> None:
    layer, y = LAYERS[name](10.0), costs()
    both(layer, y)
    for mu in MUS:
        layer.mu = mu  # type: ignore[assignment]
        fresh = LAYERS[name](mu)
        assert repr(layer) == repr(fresh)
        for one, other in zip(both(layer, y), both(fresh, y), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert torch.equal(layer.regularization(y.new_ones(PROGRAM.n)), fresh.regularization(y.new_ones(PROGRAM.n)))


@pytest.mark.parametrize("name", ["Smoothed", "Smoothed, norm", "DavisYin, implicit"])
def test_a_start_from_another_mu_does_no_harm(name: str) -> None:
    layer, y = LAYERS[name](10.0), costs()
    start = layer.solve(y, None, layer.no_start(len(y))).start
    for mu in MUS:
        layer.mu = mu  # type: ignore[assignment]
        solution = layer.solve(y, None, start)
        cold = LAYERS[name](mu)
        torch.testing.assert_close(solution.check().decision, cold(y), rtol=1e-6, atol=1e-6)
        for one, other in zip(both(layer, y, start=start), both(cold, y), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        start = solution.start


BAD = (0.0, -1.0, float("inf"), float("nan"), "much", None, [1.0, 2.0])


@pytest.mark.parametrize("name", LAYERS)
def test_a_bad_mu_is_refused_and_changes_nothing(name: str) -> None:
    layer = LAYERS[name](2.0)
    for mu in BAD:
        if mu != 0.0 or name not in ("DavisYin", "DavisYin, unrolled", "DavisYin, its own step"):
            with pytest.raises(OptionError, match="mu"):
                layer.mu = mu  # type: ignore[assignment]
            assert layer.mu == 2.0


def test_davis_yin_refuses_a_mu_for_which_its_step_is_too_long() -> None:
    layer = DavisYin(PROGRAM, 1.0, 0.5)
    with pytest.raises(OptionError, match=r"0 < α < 2/μ = 0.4"):
        layer.mu = 5
    assert layer.mu == 1.0


class Halve(Callback):
    """Half as much smoothing after each epoch."""

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        for number in run.loss.layer.annealed:
            setattr(run.loss.layer, number, 0.5 * getattr(run.loss.layer, number))


def trained(layer: Layer, epochs: int, **options: Any) -> list[Tensor]:
    model = Linear(FEATURES, ITEMS)
    fit(model, FenchelYoung(layer), knapsack_data(40, 1), epochs=epochs, callbacks=[Halve()], **options)
    return [parameter.detach() for parameter in model.parameters()]


def test_in_training_warm_starts_change_nothing() -> None:
    warm, cold = Smoothed(RELAXED, 4.0), Smoothed(RELAXED, 4.0)
    for one, other in zip(trained(warm, 5), trained(cold, 5, warm_start=False), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert warm.mu == cold.mu == 0.125


@pytest.mark.parametrize("make", [lambda: Smoothed(RELAXED, 4.0), lambda: Perturbed(HiGHS(RELAXED), 4.0, 2)])
def test_a_checkpoint_keeps_what_was_annealed(make: Callable[[], Layer], tmp_path: Path) -> None:
    trained(make(), 3, checkpoint=tmp_path / "run.pt")
    resumed = make()
    for one, other in zip(trained(resumed, 5, checkpoint=tmp_path / "run.pt"), trained(make(), 5), strict=True):
        assert torch.equal(one, other)
    assert [getattr(resumed, number) for number in resumed.annealed] == [0.125]


# -- schedules --------------------------------------------------------------------------------------------------------


def scheduled(epochs: int, loss: Any = None, schedule: Any = None, **options: Any) -> tuple[Tensor, Any, Any]:
    model = Linear(FEATURES, ITEMS)
    loss = FenchelYoung(Smoothed(RELAXED, 4.0)) if loss is None else loss
    schedule = Anneal(mu=[4.0, 1.0, 0.5]) if schedule is None else schedule
    history = fit(model, loss, knapsack_data(24, 1), epochs=epochs, callbacks=[schedule], **options)
    return model.weight.detach(), loss, history


def test_a_schedule_sets_numbers_epoch_by_epoch() -> None:
    weights, _, history = scheduled(5)
    assert history.column("mu") == [4.0, 1.0, 0.5, 0.5, 0.5]
    again = scheduled(5, schedule=Anneal(mu=lambda epoch: (4.0, 1.0, 0.5, 0.5, 0.5, 0.5)[epoch]))[0]
    assert torch.equal(weights, again)
    assert not torch.equal(weights, scheduled(5, schedule=Anneal(mu=[4.0]))[0])


def test_a_schedule_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    scheduled(2, checkpoint=tmp_path / "run.pt")
    resumed, _, history = scheduled(5, checkpoint=tmp_path / "run.pt")
    assert torch.equal(resumed, scheduled(5)[0])
    assert history.column("mu") == [4.0, 1.0, 0.5, 0.5, 0.5]


def test_a_schedule_goes_on_with_the_loss_that_it_has_changed(tmp_path: Path) -> None:
    _, loss, _ = scheduled(2, checkpoint=tmp_path / "run.pt")
    assert loss.layer.mu == 0.5
    assert torch.equal(scheduled(5, loss, checkpoint=tmp_path / "run.pt")[0], scheduled(5)[0])
    with pytest.raises(CheckpointError, match="another run"):
        scheduled(5, FenchelYoung(Smoothed(RELAXED, 4.0, regularizer="norm")), checkpoint=tmp_path / "run.pt")
    other = FenchelYoung(Smoothed(RELAXED, 3.0))  # without a schedule, another μ is another run
    with pytest.raises(CheckpointError, match="another run"):
        fit(Linear(FEATURES, ITEMS), other, knapsack_data(24, 1), epochs=6, checkpoint=tmp_path / "run.pt")


def test_a_schedule_finds_the_layers_of_sums() -> None:
    loss = 0.5 * FenchelYoung(Smoothed(RELAXED, 4.0)) + FenchelYoung(Perturbed(HiGHS(RELAXED), 4.0))
    _, _, history = scheduled(2, loss, Anneal(mu=[2.0, 1.0], sigma=[3.0]))
    assert [one.layer.annealed for _, one in loss.terms] == [("mu",), ("sigma",)]
    assert (loss.terms[0][1].layer.mu, loss.terms[1][1].layer.sigma) == (1.0, 3.0)
    assert history.column("sigma") == [3.0, 3.0]


def test_a_schedule_of_nothing_is_an_error() -> None:
    with pytest.raises(OptionError, match="no layer of this loss has a 'sigma' to anneal; they have: mu"):
        scheduled(1, schedule=Anneal(sigma=[1.0]))
    for schedules in ({}, {"mu": []}):
        with pytest.raises(OptionError, match="needs a schedule"):
            Anneal(**schedules)
