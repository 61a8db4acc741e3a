"""dfl evaluate: the regret of predicted costs in files, on a data set or on a program of your own."""

from __future__ import annotations

import json
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dflearn as dfl
from dflearn.cli.answers import Answer, in_options
from dflearn.cli.options import OUTPUT, SEVERAL, Cache, NamedProblem, OwnProgram, Workers
from dflearn.errors import DataError, OptionError
from dflearn.files import check_writable, write_whole

if TYPE_CHECKING:
    from dflearn.tables.tables import Table


class Evaluate(OwnProgram, NamedProblem, Workers, Cache):
    """Judge predicted costs by the regret of the decisions they lead to.

    examples:
      dfl evaluate predictions.csv --data labelled.npz
      dfl evaluate --program model.mps --costs y.csv --predictions old.csv new.csv --id day
      dfl evaluate --program model.mps --costs y.csv --predictions old.csv model.dfl --features x.csv

    A .csv file has one row per instance and one column per cost; a header is optional, and if it calls the
    first column id, rows are matched by instance id. A .npz file holds the array costs, optionally ids.
    Without ids the rows are those of --part, in order.

    With --program, the tables of forecasts and of true costs have named columns, the variables whose cost they
    are; of several forecasts, the others are compared with the first, row by row. A model that dfl train
    wrote (.dfl) predicts from the table of --features.
    """

    predictions: Annotated[tuple[Path, ...], SEVERAL] = field(default=(), kw_only=False)
    """predicted costs, .csv or .npz; with --program, one or several tables of forecasts, .csv or .parquet, or models, .dfl"""
    data: Path | None = None
    """the data set with the true costs"""
    features: int | Path | None = None
    """number of features (default: as in the paper); with --program, a table whose rows the others must have"""
    part: Literal["all", "train", "validation", "test"] = "all"
    """judge a part of the paper's split by the problem's seed (default: all)"""
    program: Path | None = None
    """judge on this program of your own, .mps or .lp (or .gz), instead"""
    pessimistic: bool = False
    """also break ties against the prediction (slower)"""
    no_floor: bool = False
    """do not decide with E[y | x] for comparison"""
    confidence: float = 0.95
    """level of the intervals (default: 0.95)"""
    json: Annotated[Path | bool, OUTPUT] = False  # type: ignore[assignment]
    """answer with one JSON document on stdout; with a FILE (after all else), print, and write it there too"""

    def run(self) -> Answer:
        if isinstance(self.json, Path):
            check_writable(self.json)
        if not self.predictions:
            raise OptionError("nothing is there to judge: name a file of predictions")
        if not 0 < self.confidence < 1:
            raise OptionError(f"--confidence lies strictly between 0 and 1, got {self.confidence}")
        answer = self._on_data() if self.program is None else self._on_own_program()
        if isinstance(self.json, Path):
            write_whole(self.json, (json.dumps(answer.document, indent=2, allow_nan=False) + "\n").encode())
        return answer

    def _judging(self) -> dict[str, Any]:
        return {"cache": self.cache_folder, "pessimistic": self.pessimistic, "confidence": self.confidence}

    def _on_data(self) -> Answer:
        self.without_tables("--program FILE")
        if self.data is None:
            raise OptionError("nothing tells the true costs: add --data FILE, or --program FILE with --costs FILE")
        if len(self.predictions) > 1:
            raise OptionError("several predictions are compared with --program; with --data, name one")
        from dflearn.tables.table_files import read_predictions

        costs, ids = read_predictions(self.predictions[0])
        with open(self.data, "rb"):  # a missing file is reported before anything heavy is loaded
            pass

        import torch

        dataset = dfl.DecisionDataset.load(self.data)
        problem = self.problem_behind(dataset)
        if self.part != "all":
            dataset = getattr(dataset.split(problem.seed), self.part)
        if ids is not None:
            place = {int(number): row for row, number in enumerate(dataset.ids)}
            missing = [number for number in ids.tolist() if number not in place]
            if missing:
                count, path = len(missing), self.predictions[0]
                raise DataError(f"{path} has {count} ids that the data lack, the first {missing[0]}")
            dataset = dataset.subset([place[number] for number in ids.tolist()])
        solver, floor = self.spread(problem.solver()), not self.no_floor
        judged = dfl.evaluate(torch.as_tensor(costs), problem, dataset, solver, floor=floor, **self._judging())
        return Answer(judged.summary(), judged.as_dict())

    def _on_own_program(self) -> Answer:
        """Forecasts from anywhere, on a program and true costs of one's own."""
        for name in ("data", "problem"):
            if getattr(self, name) is not None:
                raise OptionError(f"--{name} and --program are two things to judge on: name one")
        if self.costs is None:
            raise OptionError("--program also needs --costs: the table of true costs")
        self.check_inputs(*self.predictions)
        from dflearn.tables.tables import read_mixed, read_table

        with in_options():
            costs = read_table(self.costs, self.id)
            if self.features is not None:
                costs = costs.aligned_with(read_mixed(self.inputs()["features"], self.id))
            read = {str(path): self._forecast(path) for path in self.predictions}
            instances = None if self.instances is None else read_table(self.instances, self.id, infinite=True)
            source = self.read_program(None, costs)
            names = source.coefficients.names
            assert names is not None
            true = costs.in_order(names, str(self.program)).values
            ordered = {name: one.aligned_with(costs).in_order(names, str(self.costs)) for name, one in read.items()}

            import torch

            from dflearn.solvers.task import DecisionTask

            program = self.with_slack(source.program())
            y = torch.tensor(true)
            instance = None if instances is None else instances.aligned_with(costs).instance(program)
            data = dfl.DecisionDataset(torch.zeros(len(y), 0, dtype=torch.float64), y, instance=instance)
            solver = self.spread(DecisionTask.of(program).solver)
            data = dfl.label(data, solver, cache=self.cache_folder)
            guesses = {name: torch.tensor(one.values) for name, one in ordered.items()}
            guesses["average costs"] = y.mean(0).expand_as(y)
            how = self._judging()
            judged = {name: dfl.evaluate(guess, program, data, solver, **how) for name, guess in guesses.items()}
        first, *others = ordered
        compared = {name: dfl.compare(judged[name], judged[first]) for name in others}
        lines = [f"{name}\n{one}" for name, one in judged.items()]
        lines[-1] += "\n  (the mean of the true costs of these very rows, for comparison)"
        lines += [f"{name} − {first}: {one}" for name, one in compared.items()]
        figures = {name: one.as_dict() for name, one in judged.items()}
        differences = {name: one.as_dict() for name, one in compared.items()}
        document = {"program": str(self.program), "average_costs": figures.pop("average costs"), "predictions": figures}
        return Answer("\n\n".join(lines), {**document, "compared_with": first, "differences": differences})

    def _forecast(self, path: Path) -> Table:
        """A table of forecasts; that of a model, from the table of features."""
        import numpy as np

        from dflearn.tables.tables import Table, read_mixed, read_table

        if path.suffix != ".dfl":
            return read_table(path, self.id)
        if self.features is None:
            raise OptionError(f"{path} is a model, which predicts from features: add --features TABLE")
        model, features = dfl.load(path), read_mixed(self.inputs()["features"], self.id)
        with in_options(path):
            model.learned_encoding()
            costs = model.predict(features)
        columns = {name: np.asarray(costs[name]) for name in costs}
        return Table(str(path), columns, features.places, features.ids)
