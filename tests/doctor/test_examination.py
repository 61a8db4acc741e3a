"""The doctor, on cases whose illness is known: the paper's own, and one for each finding."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from torch import Tensor, nn

from dflearn.cli import main
from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.doctor import Diagnosis, diagnose
from dflearn.evaluation import evaluate
from dflearn.layers import Exact, Perturbed, Smoothed
from dflearn.losses import MSE, SCE, FenchelYoung, Regret, SPOPlus, SquaredDecisionError
from dflearn.models import Linear
from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution
from dflearn.solvers.highs import HiGHS
from dflearn.training import fit
from support.closed_form_layers import SmoothedTopOne, top_one
from support.small_problem import PROGRAM, knapsack_data

DATA = knapsack_data(40, seed=1)


class Constant(nn.Module):
    """Predicts the same costs for every instance."""

    def __init__(self, costs: list[float]) -> None:
        super().__init__()
        self.costs = nn.Parameter(torch.tensor(costs))

    def forward(self, x: Tensor) -> Tensor:
        return self.costs.expand(len(x), -1)


class Given(nn.Module):
    """Predicts costs that are part of the features."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def dataset(costs: Any, count: int = 1) -> DecisionDataset:
    y = torch.tensor(costs, dtype=torch.float32).expand(count, -1)
    return DecisionDataset(torch.ones(count, 1), y)


def texts(diagnosis: Diagnosis, severity: str) -> str:
    return " ".join(f"{one.what} {one.remedy}" for one in diagnosis.findings if one.severity == severity)


def test_regret_stands_still_where_sce_moves() -> None:
    """One of two items, worth 0.8 and 0.4. The prediction (0.1, 0.2) prefers the wrong one, and at μ = 0.05 so firmly
    that the smoothed decision is the vertex (0, 1): regret has no slope there. SCE still contrasts two decisions."""
    problem, data = top_one(2), dataset([0.8, 0.4])
    layer = Smoothed(problem, mu=0.05)
    still, moving = (diagnose(Constant([0.1, 0.2]), loss(layer), data, problem=problem) for loss in (Regret, SCE))
    assert still.wrong.all()
    assert moving.wrong.all()
    assert (still.stuck, moving.stuck) == (1.0, 0.0)
    assert not still.healthy
    assert moving.healthy
    assert "Regret stands still" in texts(still, "problem")
    assert "Use SCE or SmoothedSPOPlus through the same layer" in texts(still, "problem")
    assert "mu is 0.05, and about 0.6 suits" in texts(still, "problem")  # mean |y| = 0.6, decisions of size 1

    labelled = label(data, HiGHS(problem))
    for loss, decided in ((Regret(layer), [0.0, 1.0]), (SCE(layer), [1.0, 0.0])):
        model = Constant([0.1, 0.2])
        fit(model, loss, labelled, epochs=100, lr=0.01, progress=False)
        assert HiGHS(problem).solve(model(data.features)).decision.tolist() == [decided]


def test_the_share_without_gradient_is_the_closed_form_s() -> None:
    """At small μ most random Top-1 predictions are decided firmly; the closed form of the layer says which."""
    rng = np.random.RandomState(0)
    predicted, costs = (torch.tensor(rng.normal(1, 1, (150, 10))) for _ in range(2))
    problem = top_one(10)
    data = label(DecisionDataset(predicted, costs), HiGHS(problem))
    for mu in (0.1, 0.5, 2.0):
        found = diagnose(Given(), Regret(Smoothed(problem, mu)), data, problem=problem)
        leaf = predicted.clone().requires_grad_()
        Regret(SmoothedTopOne(10, mu))(leaf, data.batch()).sum().backward()
        assert leaf.grad is not None
        still = (leaf.grad.norm(dim=-1) < 1e-9).numpy()
        assert found.without_gradient == pytest.approx(still.mean())
        assert found.stuck == pytest.approx(still[found.wrong].mean())


def test_regrets_are_those_of_evaluate_and_of_least_squares() -> None:
    problem = problem_named("TopK-6x2", seed=1)
    data, model = problem.generate(80), Linear(10, 6, seed=2)
    found = diagnose(model, SCE(Smoothed(problem.program, 1.0)), data, problem=problem)
    judged = evaluate(model, problem, data)
    assert found.regret == pytest.approx(judged.ratio_of_sums)
    assert found.floor == pytest.approx(judged.metrics["floor_ratio_of_sums"].value)
    x, y = data.features.double().numpy(), data.costs.double().numpy()
    folds = PredefinedSplit(np.arange(80) % 5)
    unseen = cross_val_predict(LinearRegression(), x, y, cv=folds)  # each row by a line that did not see it
    assert found.two_stage == pytest.approx(evaluate(torch.tensor(unseen), problem, data).ratio_of_sums)
    part = diagnose(model, SCE(Smoothed(problem.program, 1.0)), data, problem=problem, limit=20)
    first = evaluate(torch.tensor(unseen[:20]), problem, data.subset(slice(0, 20)))
    assert part.two_stage == pytest.approx(first.ratio_of_sums)
    np.testing.assert_array_equal(found.wrong, judged.regrets > 1e-6)
    assert "Train on" in texts(found, "warning")
    good = diagnose(Scaled(problem.expected_costs), SCE(Smoothed(problem.program, 1.0)), data, problem=problem)
    assert "The model's regret is" in texts(good, "fine")
    assert good.regret == good.floor


def test_least_squares_of_what_the_model_was_trained_on() -> None:
    """Judged on other instances, both are those that were fitted to the same."""
    problem = problem_named("TopK-6x2", seed=1)
    data, model = problem.generate(80), Linear(10, 6, seed=2)
    train, new = data[:60], data[60:]
    found = diagnose(model, MSE(), new, problem=problem, trained_on=train)
    fitted = LinearRegression().fit(train.features.double().numpy(), train.costs.double().numpy())
    predicted = torch.tensor(fitted.predict(new.features.double().numpy()))
    assert found.two_stage == pytest.approx(evaluate(predicted, problem, new).ratio_of_sums)
    assert found.regret == pytest.approx(evaluate(model, problem, new).ratio_of_sums)
    assert found.setting == "MSE on 20 instances that were not trained on"
    assert found.trained_on == 60
    assert "regret of least squares, on the same rows " in str(found)


class Scaled(nn.Module):
    """A function as a module, times a factor."""

    def __init__(self, function: Any, factor: float = 1.0) -> None:
        super().__init__()
        self.function, self.factor = function, factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.function(x)


def test_least_squares_of_features_per_cost_is_one_map() -> None:
    each = torch.tensor(np.random.RandomState(0).normal(size=(30, 6, 2)))
    data = DecisionDataset(each, 3 + each @ torch.tensor([1.0, -0.5], dtype=torch.float64))
    found = diagnose(Scaled(lambda x: x.sum(-1)), MSE(), data, problem=PROGRAM)
    assert found.two_stage == pytest.approx(0, abs=1e-9)
    assert found.regret > 0
    few = diagnose(Scaled(lambda x: x.sum(-1)), MSE(), data.subset(slice(0, 2)), problem=PROGRAM)
    assert few.two_stage is not None  # six costs of the other instance are six rows for one shared map
    assert diagnose(Linear(3, 6), MSE(), DATA.subset(slice(0, 7)), problem=PROGRAM).two_stage is None


def test_ties() -> None:
    """Equal values leave every choice of one item optimal; different ones leave a single one."""
    problem, data = top_one(4), dataset([1.0, 2, 3, 4], count=3)
    loss = SPOPlus(Exact(HiGHS(problem)))
    tied = diagnose(Constant([1.0, 1, 1, 1]), loss, data, problem=problem)
    assert tied.ties == 1
    assert "several decisions optimal" in texts(tied, "warning")
    assert diagnose(Constant([1.0, 1, 1, 1.01]), loss, data, problem=problem).ties == 0
    half = DecisionDataset(torch.tensor([[2.0, 2, 1, 0], [3, 2, 1, 0]]), torch.ones(2, 4))
    assert diagnose(Given(), loss, half, problem=problem).ties == 0.5


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0, 1e4, 1e7])
def test_ties_are_counted_in_any_unit(size: float) -> None:
    """A whole to be shared out: one share is the cheapest, or two are equally cheap, whatever the whole is."""
    program = Program(A=np.ones((1, 4)), b=[size], upper=size, d=[0, 0, 0, 0.001])
    loss, data = MSE(), dataset([1.0, 2, 3, 4], count=3)
    assert diagnose(Constant([1.0, 1.01, 2, 3]), loss, data, problem=program).ties == 0
    assert diagnose(Constant([1.0, 1, 2, 3]), loss, data, problem=program).ties == 1


def test_predictions_of_another_size() -> None:
    loss = SCE(Smoothed(PROGRAM, 1.0))
    for factor, said in ((100.0, "1e+02 times as large"), (3.0, "3 times as large"), (0.3, "0.3 times as large")):
        found = diagnose(Given(), loss, DATA.with_features(factor * DATA.costs), problem=PROGRAM)
        assert found.size == pytest.approx(factor)
        assert found.spread == pytest.approx(factor)
        assert said in texts(found, "warning")
    fine = diagnose(Given(), loss, DATA.with_features(DATA.costs), problem=PROGRAM)
    assert texts(fine, "warning") == texts(fine, "problem") == ""
    assert "Every decision is optimal already" in texts(fine, "fine")
    means = DATA.costs.mean(0).tolist()
    assert "hardly differ between instances" in texts(diagnose(Constant(means), loss, DATA, problem=PROGRAM), "warning")


class Wrong(SmoothedTopOne):
    """A layer whose gradient is twice the true one."""

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        solution = super()._solve(y, instance, start)
        return replace(solution, decision=2 * solution.decision - solution.decision.detach())


def test_a_wrong_gradient_is_found() -> None:
    rng = np.random.RandomState(0)
    data = DecisionDataset(*(torch.tensor(rng.normal(size=(30, 5))) for _ in range(2)))
    data = label(data, HiGHS(top_one(5)))
    right, wrong = (diagnose(Given(), Regret(layer(5, 3.0)), data) for layer in (SmoothedTopOne, Wrong))
    assert right.slopes == (8, 8)
    assert wrong.slopes is not None
    assert wrong.slopes[0] < 8
    assert "Finite differences confirm only" in texts(wrong, "warning")


@pytest.mark.parametrize(
    "loss",
    [
        MSE(),
        SPOPlus(Exact(HiGHS(PROGRAM))),
        SCE(Smoothed(PROGRAM, 1.0)),
        SquaredDecisionError(Smoothed(PROGRAM, 1.0)),
        FenchelYoung(Perturbed(HiGHS(PROGRAM.relax()), 1.0)),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_gradients_that_finite_differences_confirm(loss: Any) -> None:
    state, model = loss.state_dict(), Linear(3, 6)
    weights = model.weight.clone()
    found = diagnose(model, loss, DATA, problem=PROGRAM)
    assert found.slopes == (8, 8)
    assert found.healthy
    for name, value in loss.state_dict().items():  # nothing is left behind: not a weight, not a draw of noise
        assert repr(value) == repr(state[name])
    assert torch.equal(model.weight, weights)
    assert model.training


class Reporting(SmoothedTopOne):
    """A layer that reports a large residual and a fallback for half of the instances."""

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        solution, count = super()._solve(y, instance, start), len(y)
        return replace(solution, residual=torch.linspace(0, 0.25, count), fallback=torch.arange(count) % 2 == 0)


def test_what_the_layer_reports() -> None:
    data = dataset([1.0, 2, 3], count=10)
    data = label(data, HiGHS(top_one(3)))
    found = diagnose(Constant([3.0, 2, 1]), SCE(Reporting(3, 1.0)), data)
    assert (found.residual, found.fallbacks) == (0.25, 0.5)
    assert "the worst residual is 2.5e-01" in texts(found, "warning")
    assert "50.0% of the instances had to be solved one by one" in texts(found, "warning")


def test_a_solver_that_fails() -> None:
    capacity = torch.full((40, 1), 9.0)
    capacity[3] = -1.0
    data = DecisionDataset(DATA.features, DATA.costs, DATA.decisions, Instance(h=capacity))
    found = diagnose(Linear(3, 6), SCE(Smoothed(PROGRAM, 1.0)), data)
    assert not found.healthy
    assert "instance 3 is INFEASIBLE" in texts(found, "problem")
    assert "INFEASIBLE" in str(found)
    unlabelled = DecisionDataset(DATA.features, DATA.costs, instance=Instance(h=capacity))
    for loss in (MSE(), SCE(Smoothed(PROGRAM, 1.0))):
        judged = diagnose(Linear(3, 6), loss, unlabelled, problem=PROGRAM)
        assert "id 3 is INFEASIBLE" in texts(judged, "problem")


def test_labels_of_the_relaxation_train_but_cannot_judge() -> None:
    data = label(DATA, HiGHS(PROGRAM.relax()))
    found = diagnose(Linear(3, 6), SCE(Smoothed(PROGRAM, 1.0)), data, problem=PROGRAM)
    assert "they may come from the relaxation" in texts(found, "warning")
    assert found.regret is None
    assert found.stuck == 0


def test_layers_of_another_program_and_labels_that_are_not_optimal_are_suspected() -> None:
    """The first layer knows one decision only, and that is the label: the loss is content whatever is predicted."""
    problem, data = top_one(3), dataset([3.0, 2, 1], count=5)
    rigid = Program(lower=[1, 0, 0], upper=[1, 0, 0], S=-np.eye(3))
    found = diagnose(Constant([1.0, 2, 3]), SCE(Exact(HiGHS(rigid))), data, problem=problem)
    assert found.stuck == 1
    assert "SCE is content with decisions that are not optimal" in texts(found, "problem")
    data = data.with_decisions(torch.tensor([[0.0, 0, 1]]).expand(5, -1))
    found = diagnose(Constant([3.0, 2, 1]), SCE(Smoothed(problem, 1.0)), data, problem=problem)
    assert found.better == 1
    assert "better than the label" in texts(found, "problem")


def test_without_a_problem_and_without_costs() -> None:
    loss = FenchelYoung(Smoothed(PROGRAM, 1.0))
    found = diagnose(Linear(3, 6), loss, DecisionDataset(DATA.features, decisions=DATA.decisions))
    assert (found.regret, found.two_stage, found.floor, found.ties, found.size) == (None,) * 5
    assert found.wrong.mean() > 0.5
    assert found.stuck == 0
    assert "regret" not in str(found)


def test_the_command_judges_training_on_instances_held_out(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["doctor", "TopK-6x2", "--count", "40", "--loss", "mse", "--epochs", "5", "--json"]
    assert main(command) == 0
    (found,) = json.loads(capsys.readouterr().out)["diagnoses"]
    problem = problem_named("TopK-6x2", seed=1)
    data = label(problem.generate(40), problem.solver())
    model = Linear(data.features.shape[-1], 6, seed=1)
    assert found["regret_before"] == pytest.approx(evaluate(model, problem, data[30:]).ratio_of_sums)
    fit(model, MSE(), data[:30], epochs=5, seed=1, progress=False)
    assert found["regret_after"] == pytest.approx(evaluate(model, problem, data[30:]).ratio_of_sums)
    assert main(["doctor", "TopK-6x2", "--count", "3"]) == 1
    assert "3 rows are too few for a training and a test set" in capsys.readouterr().err
