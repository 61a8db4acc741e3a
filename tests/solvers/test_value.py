"""`from_callable(…, value=…)`: decisions judged by what they truly cost, against a closed form."""

import numpy as np
import pytest
import torch

import dflearn as dfl
from dflearn.data import DecisionDataset
from dflearn.errors import DataError, OptionError, ShapeError
from dflearn.tables import DecisionFocusedRegressor

N = 3


def project(c: np.ndarray) -> np.ndarray:
    """min cᵀw + ½‖w‖²: w = −c."""
    return -c


def value(y: np.ndarray, w: np.ndarray) -> float:
    return float(y @ w + 0.5 * w @ w)


def values(y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return (y * w).sum(-1) + 0.5 * (w * w).sum(-1)


def data(count: int = 40) -> DecisionDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 2, generator=generator, dtype=torch.float64)
    return DecisionDataset(x, x @ torch.randn(2, N, generator=generator, dtype=torch.float64) + 1)


@pytest.mark.parametrize(
    "solver",
    [dfl.from_callable(project, N, value=value), dfl.from_callable(project, N, batched=True, value=values)],
    ids=["single", "batched"],
)
def test_a_quadratic_regret_is_half_the_squared_distance(solver) -> None:
    true, off = data(), torch.linspace(-2, 2, 40 * N, dtype=torch.float64).reshape(40, N)
    judged = dfl.evaluate(true.costs + off, solver, true, progress=False)
    np.testing.assert_allclose(judged.regrets, 0.5 * off.square().sum(1), atol=1e-12)
    np.testing.assert_allclose(judged.optima, -0.5 * true.costs.square().sum(1))
    np.testing.assert_allclose(solver.solve(true.costs).objective, -0.5 * true.costs.square().sum(1))
    assert not judged.negative_regrets.any()


def test_wrappers_hand_it_on_and_batches_keep_their_shape() -> None:
    solver = dfl.Parallel(dfl.from_callable(project, N, batched=True, value=values), workers=1)
    y = torch.ones(2, 5, N, dtype=torch.float64)
    np.testing.assert_allclose(solver.solve(y).objective, np.full((2, 5), -1.5))
    assert solver.solve(y[:, :0]).objective.shape == (2, 0)
    with pytest.raises(OptionError, match="least cᵀw"):
        dfl.Pooled(dfl.from_callable(project, N, value=value), 0.5)


def test_training_validates_and_scores_by_it() -> None:
    solver, all_rows = dfl.from_callable(project, N, value=value), data()
    train, held = (dfl.label(all_rows.subset(rows), solver) for rows in (slice(0, 30), slice(30, 40)))
    model = dfl.models.Linear(2, N).double()
    history = dfl.fit(model, dfl.losses.MSE(), train, validation=held, problem=solver, epochs=2, seed=0, progress=False)
    with torch.no_grad():
        expected = 0.5 * (model(held.features) - held.costs).square().sum(1).mean()
    assert history.rows[-1]["validation_absolute_regret"] == pytest.approx(float(expected), rel=1e-6)
    X, Y = all_rows.features.numpy(), all_rows.costs.numpy()
    regressor = DecisionFocusedRegressor(solver, loss="mse", epochs=3).fit(X, Y)
    off = regressor.predict(X) - Y
    assert regressor.score(X, Y) == pytest.approx(-np.square(off).sum() / np.square(Y).sum(), rel=1e-5)


def test_without_it_a_negative_regret_is_an_error_that_names_it() -> None:
    true = data()
    solver = dfl.from_callable(project, N)
    with pytest.raises(DataError, match=r"negative.*value=\(y, w\)"):
        dfl.evaluate(2 * true.costs, solver, true, progress=False)
    labelled = dfl.label(true, solver)
    model = dfl.models.Linear(2, N).double()
    with pytest.raises(DataError, match="value="):
        dfl.fit(model, dfl.losses.MSE(), labelled, validation=labelled, problem=solver, epochs=30, lr=1, progress=False)


def test_a_heuristic_with_the_linear_value_is_counted() -> None:
    linear = dfl.from_callable(lambda c: -np.eye(N)[0], N, value=lambda y, w: y @ w)
    true = data().with_decisions(torch.zeros(40, N, dtype=torch.float64))
    judged = dfl.evaluate(true.costs, linear, true, progress=False)
    assert judged.negative_regrets.sum() == int((true.costs[:, 0] > 0).sum())


def test_what_it_cannot_do_is_said() -> None:
    with pytest.raises(OptionError, match="value is a function"):
        dfl.from_callable(project, N, value=3)
    with pytest.raises(ShapeError, match="one cost for each of 40 decisions"):
        dfl.from_callable(project, N, batched=True, value=lambda y, w: y).solve(data().costs)
    solver = dfl.from_callable(project, N, value=value)
    with pytest.raises(OptionError, match="override d"):
        solver.solve(torch.ones(2, N), dfl.Instance(d=torch.ones(2, N)))
    with pytest.raises(OptionError, match="SPO"):
        dfl.losses.Regret(dfl.Exact(solver))
