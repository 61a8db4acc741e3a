"""dfl doctor: why training with a loss does not move, on a named problem."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dflearn.cli.arguments import (
    add_command,
    add_problem_options,
    add_solve_options,
    cache_of,
    parallel,
    positive,
    problem_of,
    table,
)

if TYPE_CHECKING:
    from dflearn.data import DecisionDataset
    from dflearn.losses.base import Loss
    from dflearn.problems.base import Problem

DEMO = {"problem": "TopK-20x1", "layer": "smoothed", "mu": 0.001}


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "doctor",
        doctor,
        "tell why training with a loss does not move, and what to change",
        "  dfl doctor --demo                                     regret stands still where SCE moves\n"
        "  dfl doctor SP-5 --loss regret --layer smoothed --mu 0.01\n"
        "  dfl doctor KP-50 --loss spo+ --epochs 0               look only, do not train",
    )
    parser.add_argument("problem", nargs="?", default="SP-5", help="a name such as SP-5; see dfl problems")
    add_problem_options(parser)
    parser.add_argument("--loss", default="sce", help="mse, sce, sce-plain, spo+, smoothed-spo+, fenchel-young, …")
    parser.add_argument("--layer", default="auto", help="smoothed, davis-yin, perturbed, relaxed or exact")
    for name, what in (("mu", "smoothing"), ("sigma", "noise"), ("step", "step of davis-yin")):
        parser.add_argument(f"--{name}", type=float, help=f"{what}, in units of the costs (default: to their scale)")
    parser.add_argument("--count", type=positive, default=200, help="number of instances (default: 200)")
    parser.add_argument("--epochs", type=int, default=30, help="then train so long and compare (default: 30)")
    parser.add_argument("--demo", action="store_true", help="regret and SCE side by side, through one layer")
    add_solve_options(parser)


def doctor(options: argparse.Namespace) -> None:
    from dflearn.labels import label

    if options.demo:
        vars(options).update(DEMO)
    problem = problem_of(options)
    solver = parallel(problem.solver(), options.workers)
    data = label(problem.generate(options.count), solver, cache=cache_of(options))
    names = ("regret", "sce") if options.demo else (options.loss,)
    rows = [examine(name, problem, data, options) for name in names]
    if options.epochs > 0:
        print(table(["loss", "wrong without gradient", "regret", f"after {options.epochs} epochs"], rows))


def examine(name: str, problem: Problem, data: DecisionDataset, options: argparse.Namespace) -> list[str]:
    """Print the diagnosis of an untrained linear model; a row of the table, once it is trained."""
    from dflearn.doctor import diagnose
    from dflearn.evaluation import evaluate
    from dflearn.models import Linear
    from dflearn.training import fit

    model = Linear(data.features.shape[-1], problem.program.p, seed=problem.seed)
    loss = _loss(name, problem, data, options)
    found = diagnose(model, loss, data, problem=problem, limit=options.count)
    print(f"{problem.name}, untrained linear model. {found}\n")
    after = ""
    if options.epochs > 0:
        fit(model, loss, data, epochs=options.epochs, seed=problem.seed)
        after = f"{evaluate(model, problem, data, floor=False).ratio_of_sums:.2%}"
    return [name, f"{found.stuck:.0%}", f"{found.regret:.2%}", after]


def _loss(name: str, problem: Problem, data: DecisionDataset, options: argparse.Namespace) -> Loss:
    from dflearn.methods import Scale, Task, make_loss

    given = {key: getattr(options, key) for key in ("mu", "sigma", "step")}
    amounts = {key: value for key, value in given.items() if value is not None}
    task = Task.of(problem)
    return make_loss(name, options.layer, task, Scale.of(task.objective, data), seed=problem.seed, **amounts)
