"""A first study: four ways to train the same linear model on the smallest shortest-path problem of the paper."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.evaluation import Evaluation, evaluate
from dflearn.layers import DavisYin, Exact, Smoothed
from dflearn.losses import MSE, SCE, SPOPlus
from dflearn.losses.base import Loss
from dflearn.models import Linear
from dflearn.problems import ShortestPath
from dflearn.solvers.base import Solver
from dflearn.training import History, fit

SIDE, SEED, COUNT = 5, 1, 2000
EPOCHS, BATCH, LEARNING_RATE = 25, 32, 0.005
BASELINE, BEST = "MSE", "SCE^smoothed"


@dataclass(frozen=True)
class Trained:
    """One method's model, how it was trained, and how it did on the test set."""

    model: nn.Module
    history: History
    judged: Evaluation

    @property
    def seconds(self) -> float:
        """Training time per epoch, validation apart."""
        parts = (self.history.column(f"seconds_{part}") for part in ("predict", "solve", "backward"))
        return sum(map(sum, parts)) / len(self.history.rows)


@dataclass(frozen=True)
class Demo:
    """The problem, its data with labels, each method by name, and the floor E[y | x]."""

    problem: ShortestPath
    train: DecisionDataset
    validation: DecisionDataset
    test: DecisionDataset
    methods: dict[str, Trained]
    floor: Evaluation
    validation_floor: Evaluation


def run_demo(epochs: int = EPOCHS, count: int = COUNT) -> Demo:
    """Draw the data, label them, train every method and judge it. count: instances, of which 1000 are for the test."""
    problem = ShortestPath(SIDE, SIDE, seed=SEED)
    solver = problem.solver()
    train, validation, test = label(problem.generate(count), solver).split(SEED)
    methods = {}
    for name, loss in _losses(problem, train, solver).items():
        model, history = _train(problem, loss, train, validation, solver, epochs)
        methods[name] = Trained(model, history, evaluate(model, problem, test, solver, floor=False))
    floor, validation_floor = (
        evaluate(problem.expected_costs, problem, part, solver, floor=False) for part in (test, validation)
    )
    return Demo(problem, train, validation, test, methods, floor, validation_floor)


def _losses(problem: ShortestPath, train: DecisionDataset, solver: Solver) -> dict[str, Loss]:
    """The two-stage baseline, the classic, and the paper's loss through both kinds of differentiable layer."""
    assert train.costs is not None
    mu = float(train.costs.abs().mean())
    return {
        BASELINE: MSE(),
        "SPO+": SPOPlus(Exact(solver)),
        "SCE^DYS unrolled": SCE(DavisYin(problem.program, mu=0.0, step=0.01, gradient="unrolled")),  # the paper's step
        BEST: SCE(Smoothed(problem.program, mu=mu)),
    }


def _train(
    problem: ShortestPath, loss: Loss, train: DecisionDataset, validation: DecisionDataset, solver: Solver, epochs: int
) -> tuple[nn.Module, History]:
    model = Linear(train.features.shape[-1], problem.program.p, seed=SEED)
    history = fit(
        model, loss, train, validation=validation, problem=solver,
        epochs=epochs, batch_size=BATCH, lr=LEARNING_RATE, seed=SEED,
    )  # fmt: skip
    return model, history
