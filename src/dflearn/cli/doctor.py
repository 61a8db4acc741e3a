"""dfl doctor: why training with a loss does not move, on a named problem, on your own, or for a saved model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

import dflearn as dfl
from dflearn.cli.answers import Answer, in_options
from dflearn.cli.options import Cache, NamedProblem, OwnProgram, Positive, SavedModel, Workers
from dflearn.errors import DataError, OptionError
from dflearn.report.render import render

if TYPE_CHECKING:
    from torch import nn

    from dflearn.data.scale import Scale

    Judged = dfl.problems.Problem | dfl.Program
    Untrained = Callable[[], nn.Module]


class Doctor(OwnProgram, SavedModel, NamedProblem, Workers, Cache):
    """Tell why training with a loss does not move, and what to change.

    examples:
      dfl doctor --model model.dfl --features x.csv --costs y.csv
      dfl doctor --program model.mps --features x.csv --costs y.csv --loss spo+
    """

    problem: str | None = field(default=None, kw_only=False)
    """a name such as SP-5 (default); see dfl problems"""
    features: int | Path | None = None
    """number of features; with --model or --program, a table of them"""
    loss: str | None = None
    """sce (default; with --model, its own), mse, sce-plain, spo+, smoothed-spo+, …: see dfl methods"""
    layer: str = "auto"
    """smoothed, davis-yin, perturbed, relaxed or exact"""
    mu: float | None = None
    """smoothing, in units of the costs (default: to their scale)"""
    sigma: float | None = None
    """noise, in units of the costs (default: to their scale)"""
    step: float | None = None
    """step of davis-yin, in units of the costs (default: to their scale)"""
    count: Positive = 200
    """number of instances (default: 200)"""
    epochs: int = 30
    """then train so long and compare (default: 30)"""
    demo: bool = False
    """regret and SCE side by side, through one layer"""

    def run(self) -> Answer:
        own = [name for name in ("problem", "model", "program") if getattr(self, name) is not None]
        if len(own) > 1:
            first, second = (getattr(self, name) for name in own[:2])
            raise OptionError(f"{first} and {second} are two things to look at: name one")
        if own in (["model"], ["program"]):
            if self.features is None or self.costs is None:
                raise OptionError(f"--{own[0]} also needs --features and --costs: tables of the instances to look at")
            self.check_inputs()
            return self._saved_model() if own == ["model"] else self._own_program()
        self.without_tables("--model FILE or --program FILE")
        names = [self.loss or "sce"]
        if self.demo:
            names = ["regret", "sce"]
            self.problem, self.layer, self.mu = "TopK-20x1", "smoothed", 0.001
        self.problem = self.problem or "SP-5"

        problem = self.named_problem()
        data = dfl.label(problem.generate(self.count), self.spread(problem.solver()), cache=self.cache_folder)

        def untrained() -> nn.Module:
            return dfl.models.Linear(data.features.shape[-1], problem.program.p, seed=problem.seed)

        return self._examine(problem.name, names, problem, data, untrained, problem.seed)

    def _own_program(self) -> Answer:
        """The diagnosis of an untrained linear model on a program and tables of one's own."""
        with in_options():
            features, costs, instances = self.read_tables(self.id)
            assert costs is not None
            source = self.read_program(features, costs)

            import torch
            from torch import nn

            from dflearn.solvers.task import DecisionTask
            from dflearn.tables.encoding import Encoding
            from dflearn.tables.tables import Tables

            program = self.with_slack(source.program())
            given = {"features": features, "costs": costs, "instances": instances}
            tables = Tables.of(given, self.id, {"costs": program.cost_names}, "the program")
            assert tables.costs is not None
            x, y = torch.tensor(Encoding.of(features)(features)), torch.tensor(tables.costs.values)
            data = dfl.DecisionDataset(x, y, instance=tables.instance(program)).subset(slice(0, self.count))
            data = dfl.label(data, self.spread(DecisionTask.of(program).solver), cache=self.cache_folder)
            seed, size = self.seed or 0, float(y.abs().mean())

            def untrained() -> nn.Module:
                linear = dfl.models.Scaled(dfl.models.Linear(x.shape[-1], program.p, seed=seed), size)
                return nn.Sequential(dfl.models.Standardize(x.shape[-1], data.features), linear).double()

            return self._examine(str(self.program), [self.loss or "spo+"], program, data, untrained, seed)

    def _examine(
        self, called: str, names: list[str], problem: Judged, data: dfl.DecisionDataset, untrained: Untrained, seed: int
    ) -> Answer:
        """The diagnosis of an untrained model with each loss, and how far training then gets."""
        from dflearn.data.scale import Scale
        from dflearn.solvers.task import DecisionTask

        scale = Scale.of(DecisionTask.of(problem).objective, data)
        text, rows, documents = "", [], []
        held_out = len(data) // 4
        if self.epochs > 0 and not held_out:
            raise OptionError(f"{len(data)} rows are too few to train on some and judge on others: add --epochs 0")
        part, held = data[: len(data) - held_out], data[len(data) - held_out :]
        for name in names:
            model, loss = untrained(), self._loss(name, problem, scale, seed, data)
            diagnosis = dfl.diagnose(model, loss, data, problem=problem, limit=self.count)
            text += f"{called}, untrained linear model. {diagnosis}\n\n"
            before = after = None
            if self.epochs > 0:
                before = dfl.evaluate(model, problem, held, floor=False).ratio_of_sums
                dfl.fit(model, loss, part, epochs=self.epochs, seed=seed)
                after = dfl.evaluate(model, problem, held, floor=False).ratio_of_sums
                rows.append([name, f"{diagnosis.stuck:.0%}", f"{before:.2%}", f"{after:.2%}"])
            documents.append({"loss": name, **diagnosis.as_dict(), "regret_before": before, "regret_after": after})
        if rows:
            text += f"Trained on the first {len(part)} instances, regrets on the {held_out} others:\n\n"
            text += render(["loss", "wrong without gradient", "regret", f"after {self.epochs} epochs"], rows)
        return Answer(text.rstrip("\n"), {"looked_at": called, "epochs": self.epochs, "diagnoses": documents})

    def _saved_model(self) -> Answer:
        """The diagnosis of a model that dfl train saved, on the rows of these tables that it was not trained on."""
        from dflearn.tables import decisions

        with in_options(self.model):
            regressor = self.load_model()
            features, costs, instances = self.read_tables(self.id or regressor.record_["id"])
            assert costs is not None
            given = decisions.dataset_for(regressor, features, costs, instances)
            known, whole = decisions.seen(given, regressor.record_.get("trained_on", ""))
            if known.all():
                why = "which says nothing about new rows: pass tables with rows that the model has not seen"
                raise DataError(f"every row of {self.features} was trained on, {why}")
        data, trained_on = given.subset(~known), given.subset(known) if whole and known.any() else None
        program, loss = regressor.solver_.program, regressor.loss_
        assert program is not None
        if self.loss is not None:
            loss = self._loss(self.loss, program, regressor.scale_, regressor.random_state, data)
        diagnosis = dfl.diagnose(regressor.model_, loss, data, problem=program, limit=self.count, trained_on=trained_on)
        rows = f"the {len(data)} of {len(given)} rows" if known.any() else f"{len(data)} rows"
        kept = f"{self.model}, the {regressor.record_['chosen']} model"
        counts = {"given": len(given), "trained_on": int(known.sum()), "judged": min(len(data), self.count)}
        diagnoses = [{"loss": str(self.loss or regressor.loss), **diagnosis.as_dict()}]
        document = {"looked_at": self.model, "epochs": 0, "rows": counts, "diagnoses": diagnoses}
        return Answer(f"{kept}, judged on {rows} that it was not trained on. {diagnosis}", document)

    def _loss(self, name: str, problem: Judged, scale: Scale, seed: int, data: dfl.DecisionDataset) -> dfl.losses.Loss:
        from dflearn.solvers.task import DecisionTask
        from dflearn.tables.methods import make_loss

        given = {key: getattr(self, key) for key in ("mu", "sigma", "step")}
        amounts = {key: value for key, value in given.items() if value is not None}
        return make_loss(name, self.layer, DecisionTask.of(problem), scale, seed=seed, data=data, **amounts)
