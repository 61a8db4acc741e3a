"""dfl problems, dfl generate, dfl label, dfl methods."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from time import perf_counter

import dflearn as dfl
from dflearn.cli.answers import Answer
from dflearn.cli.options import Cache, Command, NamedProblem, Positive, Workers
from dflearn.errors import OptionError
from dflearn.files import check_writable
from dflearn.report.render import render


class Problems(Command):
    """List the generated problems and their sizes."""

    def run(self) -> Answer:
        header = ["problem", "sense", "variables", "integer", "costs", "equalities", "inequalities"]
        problems = []
        for name in dfl.problems.PROBLEMS:
            program = dfl.problems.problem_named(name, seed=1).program
            sizes = (program.n, int(program.integer.sum()), program.p, program.A.shape[0], program.G.shape[0])
            problems.append(dict(zip(header, (name, program.sense, *sizes), strict=True)))
        rows = [[v if isinstance(v, str) else f"{v:,}" for v in one.values()] for one in problems]
        forms = {form.form: form.about for form in dfl.problems.problem_forms()}
        others = "\n".join(f"  {form:<34}{about}" for form, about in forms.items())
        text = f"{render(header, rows)}\n\nProblems of any size, by name:\n{others}"
        return Answer(text, {"problems": problems, "forms": forms})


class Generate(NamedProblem):
    """Draw features and costs of a generated problem.

    example: dfl generate SP-5 --seed 1 --out data.npz
    """

    problem: str = field(kw_only=False)
    """a name such as SP-5, KP-100, CFL-50 or TopK-10x2; dfl problems lists them"""
    count: Positive = 2000
    """number of instances (default: 2000)"""
    out: Path
    """the .npz file to write"""

    def run(self) -> Answer:
        check_writable(self.out)
        problem = self.named_problem()
        count = len(dataset := problem.generate(self.count))
        dataset.save(self.out)
        text = f"{self.out}: {count} instances of {problem.name}, seed {problem.seed}"
        return Answer(text, {"out": self.out, "problem": problem.name, "seed": problem.seed, "instances": count})


class Label(NamedProblem, Workers, Cache):
    """Compute the optimal decision of every instance.

    example: dfl label data.npz --workers 2 --out labelled.npz

    Results are stored: after an interruption, the same command continues.
    """

    data: Path = field(kw_only=False)
    """a data file of dfl generate or DecisionDataset.save"""
    relaxed: bool = False
    """solve the LP relaxation; such labels are for training, not for evaluation"""
    out: Path
    """the .npz file to write"""

    def run(self) -> Answer:
        check_writable(self.out)
        dataset = dfl.DecisionDataset.load(self.data)
        problem = self.problem_behind(dataset)
        solver = problem.relaxed_solver() if self.relaxed else problem.solver()
        solver, begun = self.spread(solver) if self.on_ray else solver, perf_counter()
        labelled = dfl.label(dataset, solver, cache=self.cache_folder, workers=self.workers)
        labelled.save(self.out)
        count, seconds, what = len(labelled), perf_counter() - begun, "relaxed" if self.relaxed else "optimal"
        text = f"{self.out}: {count} {what} decisions of {problem.name} in {seconds:.1f} s"
        document = {"out": self.out, "problem": problem.name, "instances": count}
        return Answer(text, {**document, "relaxed": self.relaxed, "seconds": seconds})


class Methods(Command):
    """List the losses by name, with the data and the solves that each needs.

    examples:
      dfl methods
      dfl methods pg lava      (details of two methods)

    dfl train --loss NAME and DecisionFocusedRegressor(loss=NAME) take these names.
    """

    names: tuple[str, ...] = field(default=(), kw_only=False)
    """methods to describe in detail (default: a table of all)"""

    def run(self) -> Answer:
        from dflearn.tables.methods import METHODS

        if not self.names:
            header = ["name", "method", "needs", "solves", "convex", "to tune"]
            convex = {True: "yes", False: "no"}
            rows = [[m.name, m.title, ", ".join(m.needs), m.solves, convex[m.convex], m.tune] for m in METHODS]
            return Answer(render(header, rows), {"methods": [one.as_dict() for one in METHODS]})
        chosen = []
        for name in self.names:
            called = name.lower()
            found = [one for one in METHODS if called in (one.name.lower(), one.study.lower(), one.pyepo.lower())]
            if not found:
                raise OptionError(f"no method is named {name!r}: dfl methods lists the names")
            chosen += found
        return Answer("\n\n".join(map(str, chosen)), {"methods": [one.as_dict() for one in chosen]})
