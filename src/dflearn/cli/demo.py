"""dfl demo: what decision-focused training buys, on the smallest shortest-path problem, with the paper's settings."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.arguments import add_command, positive, table

if TYPE_CHECKING:
    from torch import nn

    from dflearn.data import DecisionDataset
    from dflearn.evaluation import Evaluation
    from dflearn.losses.base import Loss
    from dflearn.problems.shortest_path import ShortestPath
    from dflearn.solvers.base import Solver
    from dflearn.training import History

SIDE, SEED, COUNT = 5, 1, 2000
EPOCHS, BATCH, LEARNING_RATE = 25, 32, 0.005
SHOWN = ("mean_of_ratios", "ratio_of_sums", "published_style", "absolute_regret", "exact_share", "mse")
FLOOR = "E[y | x]"


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "demo",
        demo,
        "train on a small shortest-path problem and show what it buys",
        "  dfl demo\n  dfl demo --epochs 5 --out somewhere",
    )
    parser.add_argument("--epochs", type=positive, default=EPOCHS, help=f"default: {EPOCHS}, as in the paper")
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), metavar="DIR", help="folder of the page (default: demo)"
    )


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


def demo(options: argparse.Namespace) -> None:
    from dflearn.data.labels import label
    from dflearn.evaluation import METRICS, compare, evaluate
    from dflearn.problems import ShortestPath

    problem = ShortestPath(SIDE, SIDE, seed=SEED)
    solver = problem.solver()
    train, validation, test = label(problem.generate(COUNT), solver).split(SEED)
    print(f"{problem.name}: paths through a grid, whose {problem.program.p} edge costs are predicted from 10 features.")
    print(f"{len(train)} instances to train on, {len(validation)} to validate, {len(test)} to test.")
    print(f"A linear model, Adam at {LEARNING_RATE}, batches of {BATCH}, {options.epochs} epochs.\n")
    methods = {
        name: _train(problem, loss, train, validation, test, solver, options.epochs)
        for name, loss in _losses(problem, train, solver).items()
    }
    floor, validation_floor = (
        evaluate(problem.expected_costs, problem, part, solver, floor=False) for part in (test, validation)
    )

    header = ["test", *SHOWN, "s/epoch"]
    rows = [[name, *_values(method.judged), f"{method.seconds:.3f}"] for name, method in methods.items()]
    rows.append([FLOOR, *_values(floor), ""])
    print(table(header, rows))
    print(f"\n{FLOOR} is the floor: it decides with the exact mean of the costs.")
    print("\n".join(f"{metric}: {METRICS[metric]}" for metric in SHOWN))
    differences = [
        f"{name} against MSE, {compare(methods[name].judged, methods['MSE'].judged)}"
        for name in methods
        if name != "MSE"
    ]
    print("\n" + "\n".join(differences))
    written = _write_page(
        problem, methods, validation_floor, test, header, rows, differences, options.out / "index.html"
    )
    print(
        f"\nThe page with the plots: {written}" if written else "\nFor a page with plots: pip install 'dflearn[plot]'"
    )


def _losses(problem: ShortestPath, train: DecisionDataset, solver: Solver) -> dict[str, Loss]:
    """The two-stage baseline, the classic, and the paper's loss through both kinds of differentiable layer."""
    from dflearn.layers import DavisYin, Exact, Smoothed
    from dflearn.losses import MSE, SCE, SPOPlus

    assert train.costs is not None
    mu = float(train.costs.abs().mean())
    return {
        "MSE": MSE(),
        "SPO+": SPOPlus(Exact(solver)),
        "SCE^DYS": SCE(DavisYin(problem.program, mu=0.0, step=0.01, gradient="unrolled")),  # the paper's step and μ
        "SCE^smoothed": SCE(Smoothed(problem.program, mu=mu)),
    }


def _train(
    problem: ShortestPath,
    loss: Loss,
    train: DecisionDataset,
    validation: DecisionDataset,
    test: DecisionDataset,
    solver: Solver,
    epochs: int,
) -> Trained:
    from dflearn.evaluation import evaluate
    from dflearn.models import Linear
    from dflearn.training import fit

    model = Linear(train.features.shape[-1], problem.program.p, seed=SEED)
    history = fit(
        model, loss, train, validation=validation, problem=solver,
        epochs=epochs, batch_size=BATCH, lr=LEARNING_RATE, seed=SEED,
    )  # fmt: skip
    return Trained(model, history, evaluate(model, problem, test, solver, floor=False))


def _values(judged: Evaluation) -> list[str]:
    return [f"{judged.metrics[metric].value:.4f}" for metric in SHOWN]


def _write_page(
    problem: ShortestPath,
    methods: dict[str, Trained],
    validation_floor: Evaluation,
    test: DecisionDataset,
    header: list[str],
    rows: list[list[str]],
    differences: list[str],
    path: Path,
) -> Path | None:
    """The results as one HTML page; nothing where matplotlib is missing."""
    from dflearn.errors import MissingExtraError
    from dflearn.evaluation import METRICS
    from dflearn.report import figures
    from dflearn.report.page import Page

    page = Page(
        "Small errors or good decisions?",
        f"Four ways to train the same linear model on {problem.name}, a shortest-path problem whose edge costs are "
        "predicted. MSE makes the prediction error small; the others make the regret of the decisions small.",
    )
    page.section("On the test set")
    page.table(header, rows)
    page.text(f"{FLOOR} decides with the exact mean of the costs: no predictor can expect to do better.", faint=True)
    page.text("; ".join(f"{metric}: {METRICS[metric]}" for metric in SHOWN) + ".", faint=True)
    for difference in differences:
        page.text(difference)
    try:
        page.section("While training")
        curves = {name: method.history.column("validation_ratio_of_sums") for name, method in methods.items()}
        page.figure(
            figures.learning_curves(curves, "validation regret, ratio of sums", validation_floor.ratio_of_sums),
            "Regret on the validation set after every epoch; the dashed line is the floor.",
        )
        page.section("Regret against time")
        points = {}
        for name, method in methods.items():
            estimate = method.judged.metrics["ratio_of_sums"]
            points[name] = (method.seconds, estimate.value, (estimate.high - estimate.low) / 2)
        page.figure(
            figures.regret_against_time(points, "seconds per epoch", "test regret, ratio of sums"),
            "Further down is better, further left is faster. Bars are 95 % intervals.",
        )
        page.section("One decision")
        page.figure(
            _worst_case(problem, methods, test),
            "The test instance where MSE loses most against SCE^smoothed. Edges are as thick as they truly cost; each "
            "title has the true cost of the path taken.",
        )
    except MissingExtraError:
        return None
    return page.write(path)


def _worst_case(problem: ShortestPath, methods: dict[str, Trained], test: DecisionDataset) -> Any:
    from dflearn.report import figures

    assert test.costs is not None
    gain = methods["MSE"].judged.regrets - methods["SCE^smoothed"].judged.regrets
    i = int(gain.argmax())
    costs = test.costs[i].double().numpy()
    best = problem.solver().solve(test.costs[i].double()).decision.numpy()
    paths = {"optimal": (best, float(costs @ best))}
    for name, method in methods.items():
        assert method.judged.decisions is not None
        taken = method.judged.decisions[i].double().numpy()
        paths[name] = (taken, float(costs @ taken))
    return figures.grid_paths(problem.edges(), (SIDE, SIDE), costs, paths)
