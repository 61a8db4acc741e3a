"""What arrives at the door of `fit`: what is decided in every form and at every entry, data, losses, models, optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.doctor import diagnose
from dflearn.errors import DataError, OptionError, ShapeError
from dflearn.evaluation import evaluate
from dflearn.integrations.lightning import DecisionModule
from dflearn.layers import Exact
from dflearn.losses import MSE
from dflearn.models import Linear, predict
from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from dflearn.solvers.callable import from_callable
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.oracles import DagShortestPath
from dflearn.solvers.task import DecisionTask
from dflearn.tables import DecisionFocusedRegressor
from dflearn.training import Tuning, fit, tune
from dflearn.training.validation import Validation
from support.training_helpers import weights

PROBLEM = problem_named("SP-3", seed=1)
K, P = 10, PROBLEM.program.p
BARE = PROBLEM.generate(24)
DATA = label(BARE, PROBLEM)


def shortest(c: np.ndarray) -> np.ndarray:
    """The shortest path, as a function that knows no program."""
    return DagShortestPath(PROBLEM.program)._decide(torch.tensor(c)[None])[0][0].numpy()


WHATS: dict[str, Any] = {
    "a problem": PROBLEM,
    "a program": PROBLEM.program,
    "a solver": HiGHS(PROBLEM.program),
    "a solver of a function": from_callable(shortest, P),
    "a function": shortest,
    "a task": DecisionTask.of(PROBLEM),
}


def model() -> Linear:
    return Linear(K, P, seed=3)


def regret() -> float:
    """Of the untrained model, by hand."""
    w = HiGHS(PROBLEM.program).solve(model()(DATA.features).detach().double()).decision
    return float((DATA.costs.double() * (w - DATA.decisions.double())).sum(-1).mean())


def fitted(what: Any) -> float:
    history = fit(model(), MSE(), DATA, validation=DATA, problem=what, epochs=1, lr=1e-12)
    return history.rows[0]["validation_absolute_regret"]


def tuned(what: Any) -> float:
    options: dict[str, Any] = {"train": DATA, "validation": DATA, "problem": what, "epochs": 1, "lr": 1e-12}
    found: Tuning = tune(lambda value: MSE(), [1.0], make_model=lambda seed: model(), **options)
    return found.rows[0]["validation_absolute_regret"]


def validated(what: Any) -> float:
    return Validation(DATA, MSE(), what)(model())["validation_absolute_regret"]


def under_lightning(what: Any) -> float:
    module = DecisionModule(model(), MSE(), DATA, validation=DATA, problem=what)
    assert module.validation is not None
    return module.validation(module.model)["validation_absolute_regret"]


def diagnosed(what: Any) -> float:
    found = diagnose(model(), MSE(), BARE, problem=what)
    assert found.regret is not None
    assert (found.ties is None) == (DecisionTask.of(what, P).program is None)
    return found.regret * float((DATA.costs * DATA.decisions).sum(-1).abs().mean())


def labelled(what: Any) -> float:
    return evaluate(model(), PROBLEM, label(BARE, what)).absolute_regret


def estimated(what: Any) -> float:
    """Decisions and score of an estimator whose model is ours."""
    regressor = DecisionFocusedRegressor(what, loss="mse", epochs=0, validation_fraction=0, model=model().double())
    regressor.fit(DATA.features.numpy(), DATA.costs.numpy())
    score = regressor.score(DATA.features.numpy(), DATA.costs.numpy())
    return -score * float((DATA.costs * DATA.decisions).sum(-1).abs().mean())


ENTRIES: dict[str, Callable[[Any], float]] = {
    "fit": fitted,
    "tune": tuned,
    "Validation": validated,
    "evaluate": lambda what: evaluate(model(), what, DATA).absolute_regret,
    "evaluate without labels": lambda what: evaluate(model(), what, BARE).absolute_regret,
    "label": labelled,
    "diagnose": diagnosed,
    "estimator": estimated,
    "Lightning": under_lightning,
}


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_takes_whatever_says_what_is_decided(entry: str, what: str) -> None:
    assert ENTRIES[entry](WHATS[what]) == pytest.approx(regret(), rel=1e-4)


@pytest.mark.parametrize("what", ["SP-3", None, 3, HiGHS, nn.Linear(2, 2), Exact(HiGHS(PROBLEM.program))], ids=repr)
def test_what_decides_nothing_is_refused_everywhere(what: Any) -> None:
    for entry in ("evaluate", "label", "estimator") if what is None else ENTRIES:
        with pytest.raises(OptionError, match=r"what is decided.*"):
            ENTRIES[entry](what)


def test_a_function_needs_the_number_of_costs() -> None:
    with pytest.raises(OptionError, match="from_callable"):
        DecisionTask.of(shortest)
    with pytest.raises(ShapeError, match=f"SP-3 has {P} costs, and the data have 5"):
        DecisionTask.of(PROBLEM, 5)
    regressor = DecisionFocusedRegressor(shortest, loss="fenchel-young", layer="exact", epochs=1)
    regressor.fit(DATA.features.numpy(), decisions=DATA.decisions.numpy())
    assert regressor.decide(DATA.features.numpy()).shape == (24, P)


def test_instances_with_constraints_of_their_own_are_solved() -> None:
    """Oracles know one set of constraints. Where instances differ in theirs, HiGHS solves them."""
    few = Program(A=np.ones((1, 4)), b=[2], upper=1, name="two of four")
    costs = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    by_row = DecisionDataset(costs, costs, instance=Instance(b=torch.tensor([[1.0], [2], [3], [1], [2], [3]])))
    by_bound = DecisionDataset(costs, costs, instance=Instance(upper=torch.full((6, 4), 0.5)))
    for data in (by_row, by_bound):
        found = label(data, few).decisions
        reference = HiGHS(few).solve(costs, data.instance).decision
        torch.testing.assert_close((found * costs).sum(-1), (reference * costs).sum(-1))
        assert evaluate(costs, few, data).absolute_regret == pytest.approx(0, abs=1e-6)
    X, Y = costs.double().numpy(), costs.double().numpy()
    regressor = DecisionFocusedRegressor(few, loss="mse", epochs=1).fit(X, Y)
    assert regressor.solver_.identity == "TopK"
    decided = regressor.decide(X, by_row.instance.to(torch.float64))  # type: ignore[union-attr]
    np.testing.assert_allclose(decided.sum(1), [1, 2, 3, 1, 2, 3])


def test_data_of_torch_are_taken_where_they_leave_no_doubt() -> None:
    wanted = model()
    fit(wanted, MSE(), DATA.subset(slice(0, 12)), epochs=2)
    rows = list(range(12))
    for data in (
        Subset(DATA, rows),
        Subset(Subset(DATA, range(20)), rows),
        TensorDataset(DATA.features[:12], DATA.costs[:12]),
        TensorDataset(DATA.features[:12], DATA.costs[:12], DATA.decisions[:12]),
        Subset(TensorDataset(DATA.features, DATA.costs), rows),
    ):
        found = model()
        fit(found, MSE(), data, epochs=2)
        assert torch.equal(weights(found), weights(wanted))
        assert evaluate(found, PROBLEM, data).absolute_regret >= 0
        assert label(data, PROBLEM).decisions is not None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DataLoader(DATA, batch_size=7), r"loader.dataset, and batch_size=7"),
        (TensorDataset(DATA.features), "of 1 tensors, which do not say what they are"),
        (TensorDataset(*[DATA.features] * 4), "of 4 tensors"),
        ((DATA.features, DATA.costs), r"tuple of 2: name its parts, DecisionDataset\(features, costs=…\)"),
        (Subset(DATA, torch.arange(len(DATA)) > 11), "a Subset by a mask, whose True and False"),  # type: ignore[arg-type]
        (Subset(DATA, np.arange(len(DATA)) > 11), "a Subset by a mask"),  # type: ignore[arg-type]
    ],
    ids=["loader", "one tensor", "four tensors", "tuple", "mask", "mask of numpy"],
)
def test_other_data_are_refused_with_what_to_do(data: Any, message: str) -> None:
    for take in (
        lambda: fit(model(), MSE(), data),
        lambda: fit(model(), MSE(), DATA, validation=data),
        lambda: evaluate(model(), PROBLEM, data),
        lambda: label(data, PROBLEM),
        lambda: diagnose(model(), MSE(), data),
        lambda: DecisionModule(model(), MSE(), data),
    ):
        with pytest.raises(DataError, match=message):
            take()


def test_features_of_another_precision_than_the_weights() -> None:
    with pytest.raises(DataError, match=r"torch.float64 and the model's weights torch.float32.*data.to\("):
        fit(model(), MSE(), DATA.to(torch.float64), epochs=1)
    fit(model().double(), MSE(), DATA.to(torch.float64), epochs=1)


def test_a_function_is_a_loss() -> None:
    one, other = model(), model()
    fit(one, lambda predicted, batch: (predicted - batch.costs).square().mean(-1), DATA, epochs=2)
    fit(other, MSE(), DATA, epochs=2)
    torch.testing.assert_close(weights(one), weights(other))
    found = diagnose(model(), lambda predicted, batch: (predicted - batch.costs).abs().mean(-1), DATA)
    assert found.setting == "FunctionLoss on 24 instances"
    with pytest.raises(ShapeError, match=r"one value per instance, shape \(24,\); .*mean_of_all returned \(\)"):
        fit(model(), mean_of_all, DATA, epochs=1, batch_size=24)


def mean_of_all(predicted: Tensor, batch: Any) -> Tensor:
    return (predicted - batch.costs).abs().mean()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": MSE}, r"the loss is a class: make one, MSE\(…\)"),
        ({"loss": nn.MSELoss()}, r"got a MSELoss. For squared error: dflearn.losses.MSE\(\)"),
        ({"loss": "mse"}, "got 'mse'.* Losses by name are for DecisionFocusedRegressor and train"),
        *(
            ({"loss": one}, rf"lambda y, batch: {one.__name__}\(y, batch.costs, reduction='none'\)")
            for one in (nn.functional.mse_loss, nn.functional.l1_loss)
        ),
        ({"loss": torch.compile(MSE(), backend="eager")}, r"torch.compile can do nothing for it"),
        ({"model": lambda x: x}, "torch.nn.Module, whose parameters are trained; got a function"),
        ({"model": Linear}, "got a class: make one"),
        ({"optimizer": torch.optim.Adam(model().parameters())}, "pass the class, optimizer=torch.optim.Adam, or a"),
        ({"optimizer": 3}, "adam, adamw, sgd, a class, or a function"),
        ({"callbacks": [print]}, "dflearn.Callback objects"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:20],
)
def test_what_cannot_be_used_is_refused_with_what_to_do(options: dict[str, Any], message: str) -> None:
    arguments = {"model": model(), "loss": MSE(), **options}
    with pytest.raises(OptionError, match=message):
        fit(arguments.pop("model"), arguments.pop("loss"), DATA, **arguments)


def test_predict_leaves_every_part_of_a_model_in_its_mode() -> None:
    parts = nn.Sequential(Linear(K, 4), nn.Dropout(0.9), nn.BatchNorm1d(4), Linear(4, P)).train()
    parts[2].eval()
    whole = predict(parts, BARE.features.double())
    assert [part.training for part in parts] == [True, True, False, True]
    assert whole.dtype == torch.float32
    torch.testing.assert_close(predict(parts, BARE.features, rows=5), whole)
    assert predict(parts, BARE.features[:0]).shape == (0, P)
    assert torch.equal(predict(lambda x: 2 * x, BARE.features), 2 * BARE.features)
