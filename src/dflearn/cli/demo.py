"""dfl demo: two-stage training against SPO+ on the smallest shortest-path problem, with the paper's settings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dflearn.cli.arguments import add_command, positive, table

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


def demo(options: argparse.Namespace) -> None:
    from dflearn.evaluation import METRICS, compare, evaluate
    from dflearn.labels import label
    from dflearn.layers import Exact
    from dflearn.losses import MSE, SPOPlus
    from dflearn.models import Linear
    from dflearn.problems import problem_named
    from dflearn.solvers.oracles import DagShortestPath
    from dflearn.training import fit

    problem = problem_named(PROBLEM, seed=SEED)
    solver = DagShortestPath.of(problem.program)
    train, validation, test = label(problem.generate(COUNT), solver).split(SEED)
    features, costs = train.features.shape[-1], problem.program.p
    print(f"{PROBLEM}: paths through a grid, whose {costs} edge costs are predicted from {features} features.")
    print(f"{len(train)} instances to train on, {len(validation)} to validate, {len(test)} to test.")
    print(f"A linear model, Adam at {LEARNING_RATE}, batches of {BATCH}, {options.epochs} epochs.")

    found, seconds, curves = {}, {}, {}
    for name, loss in {"MSE": MSE(), "SPO+": SPOPlus(Exact(solver))}.items():
        model = Linear(features, costs, seed=SEED)
        settings = {"epochs": options.epochs, "batch_size": BATCH, "lr": LEARNING_RATE, "seed": SEED}
        history = fit(model, loss, train, validation=validation, problem=solver, **settings)
        curves[name] = history.column("validation_ratio_of_sums")
        parts = (history.column(f"seconds_{part}") for part in ("predict", "solve", "backward"))
        seconds[name] = sum(map(sum, parts)) / options.epochs
        found[name] = evaluate(model, problem, test, solver, floor=False)
    found["E[y | x]"] = evaluate(problem.expected_costs, problem, test, solver, floor=False)

    metrics = ["mean_of_ratios", "ratio_of_sums", "published_style", "absolute_regret", "exact_share", "mse"]
    rows = []
    for name, judged in found.items():
        values = [f"{judged.metrics[metric].value:.4f}" for metric in metrics]
        rows.append([name, *values, f"{seconds[name]:.3f}" if name in seconds else ""])
    print("\n" + table(["test", *metrics, "s/epoch"], rows))
    print("\nE[y | x] is the floor: it decides with the exact mean of the costs.")
    print("\n".join(f"{metric}: {METRICS[metric]}" for metric in metrics))
    print(f"\nSPO+ against MSE, {compare(found['SPO+'], found['MSE'])}")
    plotted = plot(curves, options.out)
    if plotted:
        print(f"\n{plotted}: validation regret after every epoch")


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
