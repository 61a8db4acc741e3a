"""dfl doctor: why training with a loss does not move, on a named problem, or for a saved model and its tables."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.arguments import (
    add_command,
    add_problem_options,
    add_solve_options,
    cache_of,
    positive,
    problem_of,
    spread,
    table,
)
from dflearn.cli.inputs import add_row_options, in_options, read_tables
from dflearn.errors import OptionError

if TYPE_CHECKING:
    from dflearn.data import DecisionDataset
    from dflearn.data.scale import Scale
    from dflearn.losses.base import Loss
    from dflearn.problems.base import Problem
    from dflearn.program import Program

DEMO = {"problem": "TopK-20x1", "layer": "smoothed", "mu": 0.001}


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "doctor",
        doctor,
        "tell why training with a loss does not move, and what to change",
        "  dfl doctor --demo                                     regret stands still where SCE moves\n"
        "  dfl doctor SP-5 --loss regret --layer smoothed --mu 0.01\n"
        "  dfl doctor KP-50 --loss spo+ --epochs 0               look only, do not train\n"
        "  dfl doctor --model model.dfl --features x.csv --costs y.csv   look at a model that dfl train saved",
    )
    parser.add_argument("problem", nargs="?", help="a name such as SP-5 (default); see dfl problems")
    add_problem_options(parser, features=False)
    parser.add_argument("--features", metavar="NUMBER|FILE", help="number of features; with --model, a table of them")
    parser.add_argument("--model", type=Path, metavar="FILE", help="look at this model, that dfl train saved, instead")
    parser.add_argument("--costs", type=Path, metavar="FILE", help="with --model: the table of true costs")
    add_row_options(parser)
    parser.add_argument(
        "--loss", help="sce (default; with --model, its own), mse, sce-plain, spo+, smoothed-spo+, fenchel-young, …"
    )
    parser.add_argument("--layer", default="auto", help="smoothed, davis-yin, perturbed, relaxed or exact")
    for name, what in (("mu", "smoothing"), ("sigma", "noise"), ("step", "step of davis-yin")):
        parser.add_argument(f"--{name}", type=float, help=f"{what}, in units of the costs (default: to their scale)")
    parser.add_argument("--count", type=positive, default=200, help="number of instances (default: 200)")
    parser.add_argument("--epochs", type=int, default=30, help="then train so long and compare (default: 30)")
    parser.add_argument("--demo", action="store_true", help="regret and SCE side by side, through one layer")
    add_solve_options(parser)


def doctor(options: argparse.Namespace) -> None:
    from dflearn.data.labels import label

    if options.model is not None:
        examine_saved(options)
        return
    for name in ("costs", "instances", "id"):
        if getattr(options, name) is not None:
            raise OptionError(f"--{name} tells about the tables of a saved model: add --model FILE")
    options.problem, options.loss = options.problem or "SP-5", options.loss or "sce"
    options.features = _count(options.features)
    if options.demo:
        vars(options).update(DEMO)
    problem = problem_of(options)
    solver = spread(problem.solver(), options)
    data = label(problem.generate(options.count), solver, cache=cache_of(options))
    names = ("regret", "sce") if options.demo else (options.loss,)
    rows = [examine(name, problem, data, options) for name in names]
    if options.epochs > 0:
        print(table(["loss", "wrong without gradient", "regret", f"after {options.epochs} epochs"], rows))


def examine(name: str, problem: Problem, data: DecisionDataset, options: argparse.Namespace) -> list[str]:
    """Print the diagnosis of an untrained linear model; a row of the table, once it is trained."""
    from dflearn.data.scale import Scale
    from dflearn.doctor import diagnose
    from dflearn.evaluation import evaluate
    from dflearn.models import Linear
    from dflearn.training import fit

    model = Linear(data.features.shape[-1], problem.program.p, seed=problem.seed)
    scale = Scale.of(problem.program.objective, data)
    loss = _loss(name, problem, scale, options, problem.seed)
    found = diagnose(model, loss, data, problem=problem, limit=options.count)
    print(f"{problem.name}, untrained linear model. {found}\n")
    after = ""
    if options.epochs > 0:
        fit(model, loss, data, epochs=options.epochs, seed=problem.seed)
        after = f"{evaluate(model, problem, data, floor=False).ratio_of_sums:.2%}"
    return [name, f"{found.stuck:.0%}", f"{found.regret:.2%}", after]


def examine_saved(options: argparse.Namespace) -> None:
    """Print the diagnosis of a model that dfl train saved, on the rows of these tables."""
    from dflearn.doctor import diagnose
    from dflearn.estimator import decisions

    if options.problem is not None:
        raise OptionError(f"{options.problem} and {options.model} are two things to look at: name one")
    if options.features is None or options.costs is None:
        raise OptionError("--model also needs --features and --costs: tables of the instances to look at")
    options.features = Path(options.features)
    with in_options(options.model):
        regressor = decisions.load(options.model)
        features, costs, instances = read_tables(options, options.id or regressor.record_["id"])
        assert costs is not None
        data = decisions.dataset_for(regressor, features, costs, instances)
    program, loss = regressor.solver_.program, regressor.loss_
    assert program is not None
    if options.loss is not None:
        loss = _loss(options.loss, program, regressor.scale_, options, regressor.random_state)
    found = diagnose(regressor.model_, loss, data, problem=program, limit=options.count)
    print(f"{options.model}, the {regressor.record_['chosen']} model. {found}")


def _loss(name: str, problem: Problem | Program, scale: Scale, options: argparse.Namespace, seed: int) -> Loss:
    from dflearn.estimator.choices import make_loss
    from dflearn.solvers.task import DecisionTask

    given = {key: getattr(options, key) for key in ("mu", "sigma", "step")}
    amounts = {key: value for key, value in given.items() if value is not None}
    return make_loss(name, options.layer, DecisionTask.of(problem), scale, seed=seed, **amounts)


def _count(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError as error:
        raise OptionError(f"--features is a number, unless --model names a saved model; got {text!r}") from error
