"""dfl doctor: why training with a loss does not move, on a named problem, on your own, or for a saved model."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import (
    add_command,
    add_problem_options,
    add_solve_options,
    cache_of,
    positive,
    problem_of,
    spread,
)
from dflearn.cli.checks import add_trust_option, check_inputs, load_model
from dflearn.cli.inputs import (
    add_mapping_option,
    add_recourse_options,
    add_row_options,
    in_options,
    read_tables,
    with_slack,
)
from dflearn.cli.judge import count_of
from dflearn.errors import OptionError
from dflearn.report.render import render

if TYPE_CHECKING:
    from torch import nn

    from dflearn.data import DecisionDataset
    from dflearn.data.scale import Scale
    from dflearn.doctor import Diagnosis
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
        "  dfl doctor --model model.dfl --features x.csv --costs y.csv   look at a model that dfl train saved\n"
        "  dfl doctor --program model.mps --features x.csv --costs y.csv --loss spo+    or before anything is trained",
    )
    parser.add_argument("problem", nargs="?", help="a name such as SP-5 (default); see dfl problems")
    add_problem_options(parser, features=False)
    parser.add_argument(
        "--features", metavar="NUMBER|FILE", help="number of features; with --model or --program, a table of them"
    )
    parser.add_argument("--model", type=Path, metavar="FILE", help="look at this model, that dfl train saved, instead")
    parser.add_argument(
        "--program", type=Path, metavar="FILE", help="look at a program of your own, .mps or .lp, instead"
    )
    parser.add_argument("--costs", type=Path, metavar="FILE", help="with --model or --program: the table of true costs")
    add_row_options(parser)
    add_mapping_option(parser)
    add_recourse_options(parser)
    parser.add_argument(
        "--loss", help="sce (default; with --model, its own), mse, sce-plain, spo+, smoothed-spo+, …: see dfl methods"
    )
    parser.add_argument("--layer", default="auto", help="smoothed, davis-yin, perturbed, relaxed or exact")
    for name, what in (("mu", "smoothing"), ("sigma", "noise"), ("step", "step of davis-yin")):
        parser.add_argument(f"--{name}", type=float, help=f"{what}, in units of the costs (default: to their scale)")
    parser.add_argument("--count", type=positive, default=200, help="number of instances (default: 200)")
    parser.add_argument("--epochs", type=int, default=30, help="then train so long and compare (default: 30)")
    parser.add_argument("--demo", action="store_true", help="regret and SCE side by side, through one layer")
    add_trust_option(parser)
    add_solve_options(parser)


def doctor(options: argparse.Namespace) -> Answer:
    own = [name for name in ("problem", "model", "program") if getattr(options, name) is not None]
    if len(own) > 1:
        first, second = (getattr(options, name) for name in own[:2])
        raise OptionError(f"{first} and {second} are two things to look at: name one")
    if own in (["model"], ["program"]):
        if options.features is None or options.costs is None:
            raise OptionError(f"--{own[0]} also needs --features and --costs: tables of the instances to look at")
        options.features = Path(options.features)
        check_inputs(options, own[0], "features", "costs", "instances", "map")
        return examine_saved(options) if own == ["model"] else examine_program(options)
    for name in ("costs", "instances", "id", "map"):
        if getattr(options, name) is not None:
            raise OptionError(f"--{name} tells about tables of your own: add --model FILE or --program FILE")
    options.problem = options.problem or "SP-5"
    options.features = count_of(options.features, "--model or --program")
    if options.demo:
        vars(options).update(DEMO)
    names = ("regret", "sce") if options.demo else (options.loss or "sce",)

    from dflearn.data.labels import label
    from dflearn.models import Linear

    problem = problem_of(options)
    solver = spread(problem.solver(), options)
    data = label(problem.generate(options.count), solver, cache=cache_of(options))

    def untrained() -> nn.Module:
        return Linear(data.features.shape[-1], problem.program.p, seed=problem.seed)

    return examine(problem.name, names, problem, data, untrained, options, problem.seed)


def examine_program(options: argparse.Namespace) -> Answer:
    """The diagnosis of an untrained linear model on a program and tables of one's own."""
    from dflearn.cli.train import read_program
    from dflearn.tables.tables import Tables

    with in_options():
        features, costs, instances = read_tables(options, options.id)
        assert costs is not None
        source = read_program(options, features, costs)

        import torch
        from torch import nn

        from dflearn.data import DecisionDataset
        from dflearn.data.labels import label
        from dflearn.models import Linear, Scaled, Standardize
        from dflearn.solvers.task import DecisionTask
        from dflearn.tables.encoding import Encoding

        program = with_slack(source.program(), options)
        given = {"features": features, "costs": costs, "instances": instances}
        tables = Tables.of(given, options.id, {"costs": program.cost_names}, "the program")
        assert tables.costs is not None
        x = torch.tensor(Encoding.of(tables.features)(tables.features))
        y = torch.tensor(tables.costs.values)
        data = DecisionDataset(x, y, instance=tables.instance(program)).subset(slice(0, options.count))
        data = label(data, spread(DecisionTask.of(program).solver, options), cache=cache_of(options))
        seed = options.seed or 0
        size = float(y.abs().mean())

        def untrained() -> nn.Module:
            parts = (Standardize(x.shape[-1], data.features), Scaled(Linear(x.shape[-1], program.p, seed=seed), size))
            return nn.Sequential(*parts).double()

        return examine(str(options.program), (options.loss or "spo+",), program, data, untrained, options, seed)


def examine(
    called: str,
    names: Sequence[str],
    problem: Problem | Program,
    data: DecisionDataset,
    untrained: Callable[[], nn.Module],
    options: argparse.Namespace,
    seed: int,
) -> Answer:
    """The diagnosis of an untrained model with each loss, and how far training then gets."""
    from dflearn.data.scale import Scale
    from dflearn.doctor import diagnose
    from dflearn.evaluation import evaluate
    from dflearn.solvers.task import DecisionTask
    from dflearn.training import fit

    scale = Scale.of(DecisionTask.of(problem).objective, data)
    text, rows, documents = "", [], []
    held_out = len(data) // 4
    if options.epochs > 0 and not held_out:
        raise OptionError(
            f"{len(data)} rows are too few to train on some and judge on others: 4 is the least, or --epochs 0"
        )
    part, held = data[: len(data) - held_out], data[len(data) - held_out :]
    for name in names:
        model, loss = untrained(), _loss(name, problem, scale, options, seed, data)
        found = diagnose(model, loss, data, problem=problem, limit=options.count)
        text += f"{called}, untrained linear model. {found}\n\n"
        before = after = None
        if options.epochs > 0:
            before = evaluate(model, problem, held, floor=False).ratio_of_sums
            fit(model, loss, part, epochs=options.epochs, seed=seed)
            after = evaluate(model, problem, held, floor=False).ratio_of_sums
        rows.append([name, f"{found.stuck:.0%}", _share(before), _share(after)])
        documents.append({"loss": name, **_document(found), "regret_before": before, "regret_after": after})
    if options.epochs > 0:
        text += f"Trained on the first {len(part)} instances, regrets on the {held_out} others:\n\n"
        text += render(["loss", "wrong without gradient", "regret", f"after {options.epochs} epochs"], rows)
    return Answer(text.rstrip("\n"), {"looked_at": called, "epochs": options.epochs, "diagnoses": documents})


def examine_saved(options: argparse.Namespace) -> Answer:
    """The diagnosis of a model that dfl train saved, on the rows of these tables that it was not trained on."""
    from dflearn.doctor import diagnose
    from dflearn.errors import DataError
    from dflearn.tables import decisions
    from dflearn.tables.decisions import seen

    with in_options(options.model):
        regressor = load_model(options)
        features, costs, instances = read_tables(options, options.id or regressor.record_["id"])
        assert costs is not None
        given = decisions.dataset_for(regressor, features, costs, instances)
        known, whole = seen(given, regressor.record_.get("trained_on", ""))
        if known.all():
            raise DataError(
                f"every row of {options.features} was trained on, which says nothing about new rows: pass tables with rows that "
                "the model has not seen"
            )
    data = given.subset(~known)
    trained_on = given.subset(known) if whole and known.any() else None
    program, loss = regressor.solver_.program, regressor.loss_
    assert program is not None
    if options.loss is not None:
        loss = _loss(options.loss, program, regressor.scale_, options, regressor.random_state, data)
    found = diagnose(regressor.model_, loss, data, problem=program, limit=options.count, trained_on=trained_on)
    rows = f"the {len(data)} of {len(given)} rows" if known.any() else f"{len(data)} rows"
    name = options.loss or regressor.loss
    return Answer(
        f"{options.model}, the {regressor.record_['chosen']} model, judged on {rows} that it was not trained on. {found}",
        {
            "looked_at": options.model,
            "epochs": 0,
            "rows": {"given": len(given), "trained_on": int(known.sum()), "judged": min(len(data), options.count)},
            "diagnoses": [{"loss": str(name), **_document(found)}],
        },
    )


def _document(found: Diagnosis) -> dict[str, Any]:
    """Measures and findings, for programs."""
    measures = ("without_gradient", "stuck", "residual", "fallbacks", "better", "ties", "size", "spread")
    regrets = ("regret", "two_stage", "floor")
    return {
        "setting": found.setting,
        "healthy": found.healthy,
        "wrong": float(found.wrong.mean()) if found.wrong.size else 0.0,
        **{name: getattr(found, name) for name in (*measures, *regrets)},
        "slopes": None if found.slopes is None else dict(zip(("confirmed", "of"), found.slopes, strict=True)),
        "findings": [finding._asdict() for finding in found.findings],
    }


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"


def _loss(
    name: str,
    problem: Problem | Program,
    scale: Scale,
    options: argparse.Namespace,
    seed: int,
    data: DecisionDataset,
) -> Loss:
    from dflearn.solvers.task import DecisionTask
    from dflearn.tables.choices import make_loss

    given = {key: getattr(options, key) for key in ("mu", "sigma", "step")}
    amounts = {key: value for key, value in given.items() if value is not None}
    return make_loss(name, options.layer, DecisionTask.of(problem), scale, seed=seed, data=data, **amounts)
