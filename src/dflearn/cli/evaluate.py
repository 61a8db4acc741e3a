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
    """Measure predicted costs by the regret of their decisions.

    examples:
      dfl evaluate --program model.mps --costs y.csv --predictions old.csv new.csv --id day
      dfl evaluate --program model.mps --costs y.csv --predictions old.csv model.dfl --features x.csv
      dfl evaluate predictions.csv --data labelled.npz

    With --program, a table of forecasts has the columns of the table of true costs.
    A model of dfl train (.dfl) predicts from the table of --features. Each further
    forecast is compared with the first, row by row.

    With --data, predictions are a .csv file with a row per instance and a column
    per cost, or a .npz file with an array costs. A first column id (in .npz: an
    array ids) names the instances. Otherwise rows are in the order of --part.
    """

    predictions: Annotated[tuple[Path, ...], SEVERAL] = field(default=(), kw_only=False)
    """predicted costs: with --program, tables (.csv, .parquet) or models (.dfl); with --data, one .csv or .npz file"""
    data: Path | None = None
    """a data file of dfl generate or dfl label, with the true costs"""
    features: Path | None = None
    """table of features for models; only its rows are evaluated"""
    part: Literal["all", "train", "validation", "test"] = "all"
    """with --data: evaluate this part of the paper's split (default: all)"""
    pessimistic: bool = False
    """also break ties between optimal decisions against the prediction (slower)"""
    json: Annotated[Path | bool, OUTPUT] = False  # type: ignore[assignment]
    """print one JSON document; as the last option with a FILE: print text, and write the document to FILE"""

    def run(self) -> Answer:
        if isinstance(self.json, Path):
            check_writable(self.json)
        if not self.predictions:
            raise OptionError("there are no predictions to evaluate: name a file of predictions")
        answer = self._on_data() if self.program is None else self._on_own_program()
        if isinstance(self.json, Path):
            write_whole(self.json, (json.dumps(answer.document, indent=2, allow_nan=False) + "\n").encode())
        return answer

    def _on_data(self) -> Answer:
        self.without_tables("--program FILE")
        if self.data is None:
            raise OptionError("the true costs are missing: add --data FILE, or --program FILE with --costs FILE")
        if len(self.predictions) > 1:
            raise OptionError("--data takes one file of predictions: name one, or use --program to compare several")
        from dflearn.tables.table_files import read_predictions

        costs, ids = read_predictions(self.predictions[0])
        open(self.data, "rb").close()  # a missing file is reported before anything heavy is loaded

        import torch

        dataset = dfl.DecisionDataset.load(self.data)
        problem = self.problem_behind(dataset)
        if self.part != "all":
            dataset = getattr(dataset.split(problem.seed), self.part)
        if ids is not None:
            place = {int(number): row for row, number in enumerate(dataset.ids)}
            missing = [number for number in ids.tolist() if number not in place]
            if missing:
                raise DataError(f"{self.predictions[0]} has {len(missing)} ids that the data lack, as {missing[0]}")
            dataset = dataset.subset([place[number] for number in ids.tolist()])
        how: dict[str, Any] = {"cache": self.cache_folder, "pessimistic": self.pessimistic}
        judged = dfl.evaluate(torch.as_tensor(costs), problem, dataset, self.spread(problem), **how)
        return Answer(judged.summary(), judged.as_dict())

    def _on_own_program(self) -> Answer:
        """Forecasts from any source, on the user's program and true costs."""
        for name in ("data", "problem"):
            if getattr(self, name) is not None:
                raise OptionError(f"--{name} and --program both say what to evaluate on: name one of them")
        if self.costs is None:
            raise OptionError("--program also needs --costs: the table of true costs")
        self.check_inputs(*self.predictions)
        from dflearn.tables.tables import read_mixed, read_table

        with in_options():
            costs = read_table(self.costs, self.id)
            if self.features is not None:
                costs = costs.aligned_with(read_mixed(self.features, self.id))
            models = {str(path): dfl.load(path) for path in self.predictions if path.suffix == ".dfl"}
            read = {str(path): self._forecast(path, models.get(str(path))) for path in self.predictions}
            instances = None if self.instances is None else read_table(self.instances, self.id, infinite=True)
            source = self.read_program(None, costs)
            names = source.coefficients.names
            assert names is not None
            true = costs.in_order(names, str(self.program)).values
            ordered = {name: one.aligned_with(costs).in_order(names, str(self.costs)) for name, one in read.items()}

            import torch

            program = self.with_slack(source.program())
            y = torch.tensor(true)
            instance = None if instances is None else instances.aligned_with(costs).instance(program)
            data = dfl.DecisionDataset(torch.zeros(len(y), 0, dtype=torch.float64), y, instance=instance)
            solver = self.spread(program)
            data = dfl.label(data, solver, cache=self.cache_folder)
            guesses = {name: torch.tensor(one.values) for name, one in ordered.items()}
            guesses["average costs"] = y.mean(0).expand_as(y)
            how: dict[str, Any] = {"cache": self.cache_folder, "pessimistic": self.pessimistic}
            judged = {}
            for name, guess in guesses.items():
                decider = models[name].decider(solver) if name in models else solver  # some decide in several scenarios
                judged[name] = dfl.evaluate(guess, program, data, decider, **how)
        first, *others = ordered
        compared = {name: dfl.compare(judged[name], judged[first]) for name in others}
        lines = [f"{name}\n{one}" for name, one in judged.items()]
        lines[-1] += "\n  (for comparison: the mean of the true costs of these rows as the forecast)"
        lines += [f"{name} − {first}: {one}" for name, one in compared.items()]
        figures, differences = ({name: one.as_dict() for name, one in some.items()} for some in (judged, compared))
        document = {"program": str(self.program), "average_costs": figures.pop("average costs"), "predictions": figures}
        return Answer("\n\n".join(lines), {**document, "compared_with": first, "differences": differences})

    def _forecast(self, path: Path, model: dfl.DecisionFocusedRegressor | None) -> Table:
        """A table of forecasts, or the forecasts of a model from the table of features."""
        import numpy as np

        from dflearn.tables.tables import Table, read_mixed, read_table

        if model is None:
            return read_table(path, self.id)
        if self.features is None:
            raise OptionError(f"{path} is a model and predicts from features: add --features TABLE")
        features = read_mixed(self.features, self.id)
        with in_options(path):
            model.learned_encoding()
            costs = model.predict(features)
        return Table(str(path), {name: np.asarray(costs[name]) for name in costs}, features.places, features.ids)
