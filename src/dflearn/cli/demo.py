"""dfl demo: two-stage training against SPO+ on the smallest shortest-path problem, with the paper's settings."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from dflearn.cli.arguments import add_command, positive, table

if TYPE_CHECKING:
    from torch import nn

    from dflearn.data import DecisionDataset
    from dflearn.losses.base import Loss
    from dflearn.program import Program
    from dflearn.solvers.base import Solver

PROBLEM, SEED, COUNT = "SP-5", 1, 2000
EPOCHS, BATCH, LEARNING_RATE = 25, 32, 0.005


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
        "--out", type=Path, default=Path("demo"), metavar="DIR", help="folder for the plot (default: demo)"
    )


class Run(NamedTuple):
    """A trained model, its mean seconds per epoch of training, and its validation regret after each epoch."""

    model: nn.Module
    seconds: float
    curve: list[float]


def demo(options: argparse.Namespace) -> None:
    from dflearn.evaluation import METRICS, compare, evaluate
    from dflearn.labels import label
    from dflearn.layers import Exact
    from dflearn.losses import MSE, SPOPlus
    from dflearn.problems import problem_named

    problem = problem_named(PROBLEM, seed=SEED)
    solver = problem.solver()
    parts = label(problem.generate(COUNT), solver).split(SEED)
    sizes = f"{len(parts.train)} to train, {len(parts.validation)} to validate, {len(parts.test)} to test"
    print(
        f"{PROBLEM}: paths through a grid whose {problem.program.p} edge costs are predicted from 10 features; {sizes}."
    )
    print(f"A linear model, Adam at {LEARNING_RATE}, batches of {BATCH}, {options.epochs} epochs:")

    losses = {"MSE": MSE(), "SPO+": SPOPlus(Exact(solver))}
    runs = {name: train(loss, parts, problem.program, solver, options.epochs) for name, loss in losses.items()}
    found = {name: evaluate(run.model, problem, parts.test, solver, floor=False) for name, run in runs.items()}
    found["E[y | x]"] = evaluate(problem.expected_costs, problem, parts.test, solver, floor=False)

    metrics = ["mean_of_ratios", "ratio_of_sums", "published_style", "absolute_regret", "exact_share", "mse"]
    rows = []
    for name, judged in found.items():
        seconds = f"{runs[name].seconds:.3f}" if name in runs else ""
        rows.append([name, *(f"{judged.metrics[metric].value:.4f}" for metric in metrics), seconds])
    print("\n" + table(["test", *metrics, "s/epoch"], rows))
    print("\nE[y | x] is the floor: it decides with the exact mean of the costs.")
    print("\n".join(f"{metric}: {METRICS[metric]}" for metric in metrics))
    print(f"\nSPO+ against MSE, {compare(found['SPO+'], found['MSE'])}")
    plotted = plot({name: run.curve for name, run in runs.items()}, options.out)
    if plotted:
        print(f"\n{plotted}: validation regret after every epoch")


def train(loss: Loss, parts: Any, program: Program, solver: Solver, epochs: int) -> Run:
    """The paper's training loop; the last epoch's model is kept."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = torch.nn.Linear(parts.train.features.shape[-1], program.p)
    order = torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    seconds, curve = 0.0, []
    for _ in range(epochs):
        begun = perf_counter()
        for rows in torch.randperm(len(parts.train), generator=order).split(BATCH):
            batch = parts.train.batch(rows)
            optimizer.zero_grad()
            loss(model(batch.features), batch).mean().backward()
            optimizer.step()
        seconds += perf_counter() - begun
        curve.append(_regret(model, parts.validation, program, solver))
    return Run(model, seconds / epochs, curve)


def _regret(model: nn.Module, dataset: DecisionDataset, program: Program, solver: Solver) -> float:
    from dflearn.evaluation import evaluate

    judged = evaluate(model, program, dataset, solver)
    return float(judged.regrets.sum() / judged.optima.sum())


def plot(curves: dict[str, list[float]], folder: Path) -> Path | None:
    """Validation regret by epoch, as a .png; nothing where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for name, curve in curves.items():
        axes.plot(range(1, len(curve) + 1), curve, marker=".", label=name)
    axes.set(xlabel="epoch", ylabel="validation regret, ratio of sums", title=PROBLEM, ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    path = folder / "regret.png"
    figure.savefig(path, dpi=150)
    return path
