"""dfl problems, dfl generate, dfl label."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter
from typing import Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import (
    add_command,
    add_problem_options,
    add_solve_options,
    cache_of,
    on_ray,
    positive,
    problem_behind,
    problem_of,
    spread,
)
from dflearn.files import check_writable
from dflearn.report.render import render


def add_commands(commands: Any) -> None:
    parser = add_command(commands, "problems", problems, "list the named problems and their sizes")

    parser = add_command(
        commands,
        "generate",
        generate,
        "draw features and costs of a named problem",
        "  dfl generate SP-5 --seed 1 --out data.npz              the paper's data\n"
        "  dfl generate KP-30 --count 500 --draw 7 --out more.npz   the same kind of data, drawn anew",
    )
    parser.add_argument("problem", help="a name such as SP-5, KP-100, CFL-50 or TopK-10x2; see dfl problems")
    parser.add_argument("--count", type=positive, default=2000, help="number of instances (default: 2000)")
    add_problem_options(parser)
    parser.add_argument("--draw", type=int, metavar="SEED", help="draw data afresh for the problem that --seed gives")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the .npz file to write")

    parser = add_command(
        commands,
        "label",
        label,
        "compute the optimal decision of every instance",
        "  dfl label data.npz --out labelled.npz\n"
        "  dfl label data.npz --relaxed --workers 2 --out relaxed.npz\n"
        "  dfl label data.npz --executor ray --address 10.0.0.1:6379 --out labelled.npz\n\n"
        "Solves are remembered: an interrupted run goes on where it stopped.",
    )
    parser.add_argument("data", type=Path, help="a file that dfl generate or DecisionDataset.save wrote")
    parser.add_argument("--problem", help="which problem it is, for data that do not say so themselves")
    add_problem_options(parser)
    parser.add_argument("--relaxed", action="store_true", help="drop integrality: labels to train on, not to judge by")
    add_solve_options(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the .npz file to write")


def problems(options: argparse.Namespace) -> Answer:
    from dflearn.problems import PROBLEMS, problem_forms, problem_named

    header = ["problem", "sense", "variables", "integer", "costs", "equalities", "inequalities"]
    rows, found = [], []
    for name in PROBLEMS:
        program = problem_named(name, seed=1).program
        sizes = (program.n, int(program.integer.sum()), program.p, program.A.shape[0], program.G.shape[0])
        rows.append([name, program.sense, *(f"{size:,}" for size in sizes)])
        found.append(dict(zip(header, (name, program.sense, *sizes), strict=True)))
    others = {form.form: form.about for form in problem_forms()}
    text = f"{render(header, rows)}\n\nothers, by name at any size:\n"
    text += "\n".join(f"  {form:<34}{about}" for form, about in others.items())
    return Answer(text, {"problems": found, "forms": others})


def generate(options: argparse.Namespace) -> Answer:
    check_writable(options.out)
    problem = problem_of(options)
    dataset = problem.generate(options.count, options.draw)
    dataset.save(options.out)
    text = f"{options.out}: {len(dataset)} instances of {problem.name}, seed {problem.seed}"
    return Answer(text, {"out": options.out, "problem": problem.name, "seed": problem.seed, "instances": len(dataset)})


def label(options: argparse.Namespace) -> Answer:
    from dflearn.data import DecisionDataset, labels

    check_writable(options.out)
    dataset = DecisionDataset.load(options.data)
    problem = problem_behind(dataset, options)
    solver = problem.relaxed_solver() if options.relaxed else problem.solver()
    begun = perf_counter()
    if on_ray(options):
        solver = spread(solver, options)
    labelled = labels.label(dataset, solver, cache=cache_of(options), workers=options.workers)
    labelled.save(options.out)
    what = "relaxed decisions" if options.relaxed else "optimal decisions"
    seconds = perf_counter() - begun
    return Answer(
        f"{options.out}: {len(labelled)} {what} of {problem.name} in {seconds:.1f} s",
        {
            "out": options.out,
            "problem": problem.name,
            "instances": len(labelled),
            "relaxed": options.relaxed,
            "seconds": seconds,
        },
    )
