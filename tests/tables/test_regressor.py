"""`DecisionFocusedRegressor`: scikit-learn's own checks, and every choice it offers against an independent reference."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, check_sample_weight_equivalence_on_dense_data

from dflearn.data import DecisionDataset
from dflearn.data.scale import Scale
from dflearn.errors import DataError, OptionError, ShapeError, SolverError
from dflearn.evaluation import evaluate
from dflearn.layers import Exact, Smoothed
from dflearn.losses import MSE, FenchelYoung, SmoothedSPOPlus, SPOPlus
from dflearn.models import predict
from dflearn.program import Instance, Program
from dflearn.solvers.callable import from_callable
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.task import DecisionTask
from dflearn.tables import DecisionFocusedRegressor
from dflearn.tables.linear import linear_fit, strength_by_leaving_one_out
from dflearn.tables.methods import LAYERS, LOSSES, make_loss
from dflearn.training import fit
from support.small_problem import ITEMS, PROGRAM, knapsack_data

DATA = knapsack_data(60, seed=1)
X, Y, W = (part.double().numpy() for part in (DATA.features, DATA.costs, DATA.decisions))
ALL = np.array(list(product([0.0, 1.0], repeat=ITEMS)))
WEIGHTS = PROGRAM.G.toarray()[0]


def quick(problem: Any = PROGRAM, **options: Any) -> DecisionFocusedRegressor:
    return DecisionFocusedRegressor(problem, **({"epochs": 3} | options))


def best_values(values: np.ndarray, capacity: np.ndarray | float = 9.0) -> np.ndarray:
    """The value of the best knapsack, by enumeration."""
    feasible = (ALL @ WEIGHTS)[None] <= np.broadcast_to(capacity, (len(values),))[:, None]
    return np.where(feasible, values @ ALL.T, -np.inf).max(1)


class OfAnyTarget(DecisionFocusedRegressor):
    """Decides over a box with as many variables as y has columns: scikit-learn's checks bring targets of their own."""

    def _task(self, p: int | None) -> DecisionTask:
        return DecisionTask.of(Program(n=p or 1, lower=-1, upper=1))


def test_scikit_learn_s_own_checks() -> None:
    repetition = "check_sample_weight_equivalence_on_dense_data"
    expected = {repetition: "with more rows, other rows are held out and make a batch: see the next test"}
    results = check_estimator(OfAnyTarget(epochs=2), expected_failed_checks=expected, on_skip=None, on_fail=None)
    assert len(results) > 40
    # The skipped one needs an environment variable of SciPy's; dflearn works on numpy arrays.
    others = {result["check_name"]: result["status"] for result in results if result["status"] != "passed"}
    wanted = {"check_array_api_input": "skipped", repetition: "xfail"}
    assert others == wanted, [str(result["exception"]) for result in results]


def test_a_weight_counts_as_so_many_rows() -> None:
    """With all rows in one batch and none held out; by scikit-learn's check, and with everything that looks at the data."""
    # Not from ridge: a copy of a row is not left out with it, so that other strengths are chosen.
    whole: dict[str, Any] = {"batch_size": 1000, "validation_fraction": 0.0, "start": "zero"}
    check_sample_weight_equivalence_on_dense_data("whole", OfAnyTarget(epochs=2, **whole))
    weights = np.random.RandomState(0).randint(0, 4, 60)
    x, y, w = (np.repeat(array, weights, axis=0) for array in (X, Y, W))
    for options in ({}, {"loss": "spo+"}, {"loss": "mse", "positive": True}):
        one = quick(**whole, **options).fit(X, Y, weights, decisions=W)
        other = quick(**whole, **options).fit(x, y, decisions=w)
        np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-6)
    assert one.score(X, Y, weights) == pytest.approx(one.score(x, y), rel=1e-12)
    assert one.score(X, Y, weights) != pytest.approx(one.score(X, Y), rel=1e-3)


def test_rows_of_weight_zero_are_left_out() -> None:
    weights = np.arange(60) % 3 > 0
    one, other = quick().fit(X, Y, weights, decisions=W), quick().fit(X[weights], Y[weights], decisions=W[weights])
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-9)
    np.testing.assert_array_equal(one.held_out_, np.flatnonzero(weights)[other.held_out_])
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        quick().fit(X, Y, -np.ones(60))
    with pytest.raises(ValueError, match="zero"):
        quick().fit(X, Y, np.zeros(60))


def test_decisions_are_feasible_and_optimal_for_the_predictions() -> None:
    regressor = quick().fit(X, Y, decisions=W)
    predicted, decided = regressor.predict(X), regressor.decide(X)
    assert predicted.shape == Y.shape
    assert decided.shape == W.shape
    assert set(np.unique(decided)) <= {0.0, 1.0}
    assert (decided @ WEIGHTS <= 9).all()
    np.testing.assert_allclose((predicted * decided).sum(1), best_values(predicted))


def test_score_is_minus_the_normalized_regret() -> None:
    regressor = quick().fit(X, Y, decisions=W)
    regrets = best_values(Y) - (Y * regressor.decide(X)).sum(1)
    assert regressor.score(X, Y) == pytest.approx(-regrets.sum() / best_values(Y).sum())
    judged = evaluate(regressor.model_, PROGRAM, DATA.to(torch.float64))
    assert regressor.score(X, Y, decisions=W) == pytest.approx(-judged.ratio_of_sums)


def test_training_reduces_the_regret() -> None:
    held_out = knapsack_data(100, seed=2)
    test = held_out.features.numpy(), held_out.costs.numpy()
    made = (quick(epochs=epochs, lr=0.05, start="zero") for epochs in (1, 30))
    untrained, trained = (regressor.fit(X, Y, decisions=W).score(*test) for regressor in made)
    assert -0.05 < trained < 0
    assert trained > untrained / 2


def test_a_target_of_one_column_may_be_flat() -> None:
    program = Program(n=1, lower=-1, upper=1)
    flat, column = quick(program).fit(X, Y[:, 0] - 3), quick(program).fit(X, Y[:, :1] - 3)
    assert flat.predict(X).shape == (60,)
    assert column.predict(X).shape == (60, 1)
    np.testing.assert_array_equal(flat.predict(X), column.predict(X)[:, 0])
    assert flat.decide(X).shape == (60, 1)
    assert flat.score(X, Y[:, 0] - 3) == column.score(X, Y[:, :1] - 3)


def test_the_scale_of_the_costs_does_not_matter() -> None:
    small, large = (quick().fit(X, factor * Y, decisions=W) for factor in (1, 1024))
    np.testing.assert_allclose(large.predict(X), 1024 * small.predict(X), rtol=1e-5)
    np.testing.assert_array_equal(large.decide(X), small.decide(X))


def test_the_same_seed_gives_the_same_model() -> None:
    made = (quick(random_state=seed, start="zero") for seed in (3, 3, 4))
    first, second, other = (regressor.fit(X, Y, decisions=W).predict(X) for regressor in made)
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, other)
    drawn = quick(random_state=np.random.RandomState(0), start="zero")
    assert not np.allclose(drawn.fit(X, Y, decisions=W).predict(X), drawn.fit(X, Y, decisions=W).predict(X))


@pytest.mark.parametrize(("loss", "layer"), [*((loss, "auto") for loss in LOSSES), *(("spo+", one) for one in LAYERS)])
def test_every_loss_and_every_layer_by_name(loss: str, layer: str) -> None:
    regressor = quick(loss=loss, layer=layer, epochs=1).fit(X, Y, decisions=W)
    if layer in ("exact", "relaxed"):
        assert regressor.loss_.layer.solver.program.is_integer == (layer == "exact")
    assert layer == "auto" or regressor.loss_.layer.objective is not None
    assert np.isfinite(regressor.score(X, Y, decisions=W))


def test_what_is_automatic_is_relative_to_the_data() -> None:
    program = Program(A=np.array([[1.0, 1, 1]]), b=[4.0], upper=3, S=np.array([[2.0, 0], [0, -1], [0, 0]]), d=[0, 0, 5])
    y, w = np.array([[1.0, 2], [-3, 4]]), np.array([[3.0, 1, 0], [0, 2, 2]])
    features = np.array([[0.0], [1]])

    def layer_of(**options: Any) -> Any:
        model = quick(program, epochs=1, validation_fraction=0, **options).fit(features, y, decisions=w)
        return model.loss_.layer

    # |S y| is 2, 2 and 6, 4: the third variable's cost is not predicted. The largest |w| are 3 and 2.
    relative = 3.5 / 2.5
    for loss, share in (("auto", 0.1), ("sce", 1), ("sce-own", 0.3), ("smoothed-spo+", 0.1), ("intopt", 0.1)):
        assert layer_of(loss=loss).mu == pytest.approx(share * relative)
        assert layer_of(loss=loss, mu=0.7).mu == 0.7
    assert layer_of(loss="pfy").sigma == pytest.approx(2.5)
    assert layer_of(loss="pfy", sigma=0.7).sigma == 0.7
    scale = Scale.of(program.objective, DecisionDataset(torch.tensor(features), torch.tensor(y), torch.tensor(w)))
    assert make_loss("lava", "auto", DecisionTask.of(program), scale).margin == pytest.approx(0.1 * 3.5 * 2.5)
    splitting = layer_of(loss="smoothed-spo+", layer="davis-yin", mu=0.5, step=0.2)
    assert (splitting.mu, splitting.step, splitting.gradient) == (0.5, 0.2, "unrolled")


def test_objects_are_used_as_they_are() -> None:
    loss, layer, module = SPOPlus(Exact(HiGHS(PROGRAM))), Smoothed(PROGRAM, 2.0), torch.nn.Linear(3, ITEMS)
    before = module.weight.detach().clone()
    assert quick(loss=loss).fit(X, Y, decisions=W).loss_ is loss
    regressor = quick(layer=layer, model=module).fit(X, Y, decisions=W)
    assert regressor.loss_.layer is layer
    assert torch.equal(module.weight, before)
    assert not torch.equal(regressor.model_.weight.float(), before)
    again = clone(regressor).fit(X, Y, decisions=W)
    np.testing.assert_array_equal(again.predict(X), regressor.predict(X))


@pytest.mark.parametrize("loss", ["fenchel-young", "pfy", "sce-plain", "sqde", "cave"])
def test_decisions_alone_suffice(loss: str) -> None:
    regressor = quick(loss=loss, epochs=5).fit(X, decisions=W)
    assert regressor.history_.monitored == "validation_loss"
    assert regressor.decide(X).shape == W.shape


@pytest.mark.parametrize("loss", ["mse", "sce", "spo+", "regret"])
def test_losses_that_need_costs_say_so(loss: str) -> None:
    with pytest.raises(DataError, match="needs costs"):
        quick(loss=loss).fit(X, decisions=W)


def test_labels_are_remembered(tmp_path: Any) -> None:
    quick(cache=tmp_path).fit(X, Y)
    assert list(tmp_path.rglob("*.sqlite"))


def test_instances_with_their_own_capacity() -> None:
    capacity = np.linspace(4, 14, 60)
    instance = Instance(h=torch.tensor(capacity)[:, None])
    regressor = quick().fit(X, Y, instance=instance)
    predicted, decided = regressor.predict(X), regressor.decide(X, instance)
    assert (decided @ WEIGHTS <= capacity).all()
    np.testing.assert_allclose((predicted * decided).sum(1), best_values(predicted, capacity))
    regrets = best_values(Y, capacity) - (Y * decided).sum(1)
    wanted = -regrets.sum() / best_values(Y, capacity).sum()
    assert regressor.score(X, Y, instance=instance) == pytest.approx(wanted)
    with pytest.raises(SolverError, match="instance 1 is INFEASIBLE"):
        regressor.decide(X[:2], Instance(h=torch.tensor([[1.0], [-1.0]])))


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_features_of_each_cost_share_one_map(model: str) -> None:
    each = np.random.RandomState(0).normal(size=(40, ITEMS, 2))
    values = 3 + each @ [1.0, -0.5]
    regressor = quick(model=model, hidden=(4,), epochs=40, lr=0.05).fit(each, values)
    order = np.random.RandomState(1).permutation(ITEMS)
    np.testing.assert_allclose(regressor.predict(each[:, order]), regressor.predict(each)[:, order])
    assert regressor.score(each, values) > -0.02


def test_features_of_a_wrong_shape_are_refused() -> None:
    each = np.zeros((60, 2, 3))
    for model, features in (("linear", each), ("mlp", np.zeros((60, ITEMS, 2, 2)))):
        with pytest.raises(ShapeError, match=r"wants features of shape \(n_samples, "):
            quick(model=model).fit(features, Y, decisions=W)
    regressor = quick().fit(np.zeros((60, ITEMS, 2)), Y, decisions=W)
    with pytest.raises(ShapeError, match=r"\(n_samples, 6, 2\) in fit"):
        regressor.predict(np.zeros((5, ITEMS, 3)))


def test_pipeline_and_grid_search() -> None:
    """Costs 100 times too large in one feature; decisions are computed once, and cut with the folds."""
    pipeline = make_pipeline(StandardScaler(), quick(epochs=5))
    stretched = X * [1, 100, 1]
    grid = {"decisionfocusedregressor__loss": ["mse", "sce"], "decisionfocusedregressor__mu": [0.5, "auto"]}
    search = GridSearchCV(pipeline, grid, cv=KFold(2)).fit(stretched, Y, decisionfocusedregressor__decisions=W)
    assert search.best_score_ <= 0
    assert search.best_estimator_[-1].decide(StandardScaler().fit_transform(stretched)).shape == W.shape
    train, test = next(KFold(2).split(X))
    alone = clone(pipeline).set_params(**search.cv_results_["params"][2]).fit(stretched[train], Y[train])
    assert alone.score(stretched[test], Y[test]) == pytest.approx(search.cv_results_["split0_test_score"][2])


def test_grid_search_cuts_instances_with_the_folds() -> None:
    capacity = np.linspace(4, 14, 60)
    instance = Instance(h=torch.tensor(capacity)[:, None], d=torch.zeros(60, ITEMS, dtype=torch.float64))
    with sklearn.config_context(enable_metadata_routing=True):
        regressor = quick().set_fit_request(instance=True).set_score_request(instance=True)
        search = GridSearchCV(regressor, {"loss": ["mse", "spo+"]}, cv=KFold(2)).fit(X, Y, instance=instance)
    train, test = next(KFold(2).split(X))
    alone = quick(loss="spo+").fit(X[train], Y[train], instance=instance[train])
    wanted = alone.score(X[test], Y[test], instance=instance[test])
    assert search.cv_results_["split0_test_score"][1] == pytest.approx(wanted)
    with pytest.raises(DataError, match="set_score_request"):  # without routing, scores would be of another program
        GridSearchCV(quick(), {"loss": ["mse"]}, cv=KFold(2), error_score="raise").fit(X, Y, instance=instance)
    assert (instance[3:5].shape, Instance().shape) == ((2,), ())


@pytest.mark.parametrize("model", ["linear", "mlp", torch.nn.Linear(3, ITEMS)])
def test_positive_is_a_softplus_in_units_of_the_costs(model: Any) -> None:
    regressor = quick(model=model, positive=True, loss="mse", start="zero").fit(X, Y)
    before, scale = regressor.model_[0], np.abs(Y).mean()
    plain = before(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(regressor.predict(X), scale * np.log1p(np.exp(plain / scale)))
    with pytest.raises(DataError, match=r"negative costs, -2 the least"):
        quick(positive=True).fit(X, Y - Y.min() - 2)


def test_the_rows_held_out_are_known() -> None:
    options: dict[str, Any] = {"validation_fraction": 0.25, "start": "zero", "loss": "mse"}
    regressor = quick(refit=False, **options).fit(X, Y, decisions=W)
    assert len(regressor.held_out_) == 15
    by_rows = quick(refit=False, **options).fit(X, Y, decisions=W, validation=regressor.held_out_)
    np.testing.assert_array_equal(by_rows.held_out_, np.sort(regressor.held_out_))
    assert not np.allclose(quick(**options).fit(X, Y, decisions=W).predict(X), regressor.predict(X))  # all rows again
    assert quick(validation_fraction=0).fit(X, Y, decisions=W).held_out_.size == 0


def test_the_default_is_ridge_where_nothing_is_better() -> None:
    """With steps too small to change a decision the start is kept: what ridge regression of all rows gives."""
    reference = linear_fit(*map(torch.tensor, (X, Y)), strength_by_leaving_one_out(*map(torch.tensor, (X, Y))))
    regressor = quick(lr=1e-12).fit(X, Y, decisions=W)
    assert regressor.epoch_ == 0
    np.testing.assert_allclose(regressor.predict(X), reference(torch.tensor(X)), rtol=1e-9)
    part = quick(lr=1e-12, refit=False).fit(X, Y, decisions=W)
    assert not np.allclose(part.predict(X), regressor.predict(X), rtol=1e-4)


def test_features_per_cost_begin_at_one_ridge_regression() -> None:
    features = np.random.RandomState(0).normal(size=(60, ITEMS, 2))
    costs = features @ [2.0, -1.0] + 5 + 0.1 * np.random.RandomState(1).normal(size=(60, ITEMS))
    flat = torch.tensor(features.reshape(-1, 2)), torch.tensor(costs.reshape(-1, 1))
    reference = linear_fit(*flat, strength_by_leaving_one_out(*flat))(flat[0]).reshape(60, ITEMS)
    regressor = quick(lr=1e-12).fit(features, costs)
    np.testing.assert_allclose(regressor.predict(features), reference, rtol=1e-3)
    assert regressor.decide(features).shape == (60, ITEMS)
    weights = 1.0 + (np.arange(60) % 2)
    assert np.isfinite(quick().fit(features, costs, weights).score(features, costs))


def test_losses_in_turn() -> None:
    default, same = (quick(epochs=4, **options).fit(X, Y) for options in ({}, {"loss": "smoothed-spo+mse"}))
    np.testing.assert_array_equal(default.predict(X), same.predict(X))
    assert [type(one) for _, one in default.loss_.terms] == [SmoothedSPOPlus, MSE]
    named = quick(epochs=4, loss=["smoothed-spo+", "sce-own"]).fit(X, Y)
    assert named.history_.column("phase") == [1, 1, 2, 2]
    assert clone(named).get_params()["loss"] == ["smoothed-spo+", "sce-own"]
    only_decisions = quick().fit(X, decisions=W)
    assert isinstance(only_decisions.loss_, FenchelYoung)
    assert "phase" not in only_decisions.history_.rows[0]


def test_a_refit_trains_as_long_as_was_best() -> None:
    regressor = quick(epochs=12, lr=0.1, start="zero", loss="mse").fit(X, Y)
    best, data = regressor.history_.best, DecisionDataset(torch.tensor(X), torch.tensor(Y))
    model = regressor._start(data, DecisionTask.of(PROGRAM), 209652396).module  # the seed that random_state=0 draws
    fit(model, MSE(), data, epochs=best["epoch"], lr=0.1, seed=209652396)
    assert regressor.epoch_ == best["epoch"] > 0
    np.testing.assert_allclose(regressor.predict(X), predict(model, torch.tensor(X)), rtol=1e-12)


def test_data_frames_keep_their_names() -> None:
    frame = pd.DataFrame(X, columns=["price", "rain", "day"])
    regressor = quick().fit(frame, pd.DataFrame(Y))
    assert list(regressor.feature_names_in_) == ["price", "rain", "day"]
    np.testing.assert_array_equal(regressor.predict(frame), quick().fit(X, Y).predict(X))
    with pytest.raises(ValueError, match="feature names"):
        regressor.predict(frame.rename(columns={"rain": "sun"}))


def cheapest(c: np.ndarray) -> np.ndarray:
    """Choose the variable of least cost."""
    return np.eye(len(c))[c.argmin()]


def test_any_function_decides() -> None:
    solver = from_callable(cheapest, n=ITEMS)
    regressor = quick(solver, epochs=30, lr=0.05, start="zero").fit(X, Y)
    assert isinstance(regressor.loss_, SPOPlus)
    np.testing.assert_array_equal(regressor.decide(X).argmax(1), regressor.predict(X).argmin(1))
    assert regressor.score(X, Y) > quick(solver, loss="spo+", epochs=1, start="zero").fit(X, Y).score(X, Y)
    for options in ({"loss": "sce"}, {"loss": "cave"}, {"loss": "spo+", "layer": "smoothed"}):
        with pytest.raises(OptionError, match="constraints of a program"):
            quick(solver, **options).fit(X, Y)


def test_the_best_epoch_is_kept_and_training_stops_early() -> None:
    regressor = quick(epochs=40, early_stopping=2, lr=0.1, loss="sce", start="zero").fit(X, Y, decisions=W)
    history = regressor.history_
    assert history.stopped == "early stopping"
    assert history.monitored == "validation_absolute_regret"
    assert history.best["epoch"] == len(history.rows) - 2
    everything = quick(validation_fraction=0).fit(X, Y, decisions=W)
    assert everything.history_.monitored is None
    assert len(everything.history_.rows) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"problem": None}, "nothing says what is decided"),
        ({"problem": "SP-5"}, "a Problem, a Program, a Solver or a function"),
        ({"problem": Program(n=4, upper=1)}, "4 costs, and the data have 6"),
        ({"loss": "spo"}, "loss is one of mse, sce"),
        ({"layer": "smooth"}, "layer is 'auto', one of smoothed"),
        ({"model": "forest"}, "model is 'linear', 'mlp'"),
        ({"validation_fraction": 1.0}, r"validation_fraction lies in \[0, 1\)"),
        ({"mu": -1.0}, "mu > 0"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(X, Y)


def test_costs_are_matched_by_name() -> None:
    names = [f"item {k}" for k in range(ITEMS)]
    program = replace(PROGRAM, cost_names=names)
    frame = pd.DataFrame(Y, columns=names)
    plain, named = quick(program, loss="mse").fit(X, Y), quick(program, loss="mse").fit(X, frame[names[::-1]])
    np.testing.assert_array_equal(named.predict(X), plain.predict(X))
    assert named.score(X, frame[names[::-1]]) == plain.score(X, Y)
    with pytest.raises(DataError, match="y lacks the column 'item 0' of the program"):
        quick(program).fit(X, frame.rename(columns={"item 0": "other"}))
    with pytest.raises(DataError, match="y has the column 'more', which is none of the program"):
        quick(program).fit(X, frame.assign(more=1.0))


def test_a_function_decides_for_costs_with_names() -> None:
    x, y = np.arange(12.0).reshape(6, 2), pd.DataFrame(np.arange(18.0).reshape(6, 3) - 9, columns=list("abc"))
    model = DecisionFocusedRegressor(lambda c: (c < 0).astype(float), loss="spo+", epochs=1, validation_fraction=0)
    assert model.fit(x, y).score(x, y) == model.score(x, y.to_numpy())
