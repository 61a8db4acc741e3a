"""dfl doctor: why training does not improve decisions, for a saved model, a program of your own or a generated problem."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import dflearn as dfl
from dflearn.cli.answers import Answer, in_options
from dflearn.cli.options import Cache, NamedProblem, OwnProgram, Positive, SavedModel, Workers
from dflearn.errors import DataError, OptionError
from dflearn.report.render import render

if TYPE_CHECKING:
    from torch import nn

    from dflearn.data.scale import Scale
    from dflearn.losses import Loss
    from dflearn.solvers.task import Decided


class Doctor(OwnProgram, SavedModel, NamedProblem, Workers, Cache):
    """Tell why training does not improve decisions, and what to change.

    examples:
      dfl doctor --model model.dfl --features x.csv --costs y.csv
      dfl doctor --program model.mps --features x.csv --costs y.csv --loss spo+
      dfl doctor SP-5 --loss regret

    With --model, it examines a saved model on rows outside its training set. Without,
    it examines an untrained linear model, trains it on three quarters of the
    instances, and measures its regret on the rest.
    """

    problem: str | None = field(default=None, kw_only=False)
    """a generated problem such as SP-5 (default); dfl problems lists them"""
    loss: str | None = None
    """the loss to examine; dfl methods lists them (default: spo+ with --program, the model's own with --model, else sce)"""
    layer: str = "auto"
    """the layer of the loss: smoothed, davis-yin, perturbed, relaxed or exact (default: the usual one of the loss)"""
    mu: float | None = None
    """smoothing μ, in units of the costs (default: depends on the scale of the costs)"""
    count: Positive = 200
    """number of instances (default: 200)"""
    epochs: int = 30
    """training epochs, or 0 for no training (default: 30)"""

    def run(self) -> Answer:
        own = [name for name in ("problem", "model", "program") if getattr(self, name) is not None]
        if len(own) > 1:
            both = " and ".join(str(getattr(self, name)) for name in own[:2])
            raise OptionError(f"{both} both say what to examine: name one of them")
        if own in (["model"], ["program"]):
            if self.features is None or self.costs is None:
                raise OptionError(f"--{own[0]} also needs --features and --costs: the tables of the instances")
            self.check_inputs()
            return self._saved_model() if own == ["model"] else self._own_program()
        self.without_tables("--model FILE or --program FILE")
        self.problem = self.problem or "SP-5"
        problem = self.named_problem()
        data = dfl.label(problem.generate(self.count), self.spread(problem), cache=self.cache_folder)
        untrained = dfl.models.Linear(data.features.shape[-1], problem.program.p, seed=problem.seed)
        return self._examine(problem.name, self.loss or "sce", problem, data, untrained, problem.seed)

    def _own_program(self) -> Answer:
        """The diagnosis of an untrained linear model on the user's program and tables."""
        with in_options():
            features, costs, instances = self.read_tables(self.id)
            assert costs is not None
            source = self.read_program(features, costs)

            import torch
            from torch import nn

            from dflearn.tables.columns import Encoding
            from dflearn.tables.tables import Tables

            program = self.with_slack(source.program())
            given = {"features": features, "costs": costs, "instances": instances}
            tables = Tables.of(given, self.id, {"costs": program.cost_names}, "the program")
            assert tables.costs is not None
            x, y = torch.tensor(Encoding.of(features)(features)), torch.tensor(tables.costs.values)
            data = dfl.DecisionDataset(x, y, instance=tables.instance(program)).subset(slice(0, self.count))
            data = dfl.label(data, self.spread(program), cache=self.cache_folder)
            seed, size = self.seed or 0, float(y.abs().mean())
            linear = dfl.models.Scaled(dfl.models.Linear(x.shape[-1], program.p, seed=seed), size)
            untrained = nn.Sequential(dfl.models.Standardize(x.shape[-1], data.features), linear).double()
            return self._examine(str(self.program), self.loss or "spo+", program, data, untrained, seed)

    def _examine(
        self, on: str, name: str, what: Decided, data: dfl.DecisionDataset, model: nn.Module, seed: int
    ) -> Answer:
        """The diagnosis of an untrained model, and its regret before and after training."""
        held_out = len(data) // 4
        if self.epochs > 0 and not held_out:
            raise OptionError(f"{len(data)} rows are too few for a training and a test set: add some, or --epochs 0")
        loss = self._loss(name, what, data, seed)
        diagnosis = dfl.diagnose(model, loss, data, problem=what, limit=self.count)
        text = f"{on}, untrained linear model. {diagnosis}"
        before = after = None
        if self.epochs > 0:
            part, held = data[: len(data) - held_out], data[len(data) - held_out :]
            before = dfl.evaluate(model, what, held, floor=False).ratio_of_sums
            dfl.fit(model, loss, part, epochs=self.epochs, seed=seed)
            after = dfl.evaluate(model, what, held, floor=False).ratio_of_sums
            row = [name, f"{diagnosis.stuck:.0%}", f"{before:.2%}", f"{after:.2%}"]
            text += f"\n\nTraining on the first {len(part)} instances, regret on the {held_out} others:\n\n"
            text += render(["loss", "wrong without gradient", "regret", f"after {self.epochs} epochs"], [row])
        found = {"loss": name, **diagnosis.as_dict(), "regret_before": before, "regret_after": after}
        return Answer(text, {"looked_at": on, "epochs": self.epochs, "diagnoses": [found]})

    def _saved_model(self) -> Answer:
        """The diagnosis of a saved model on the rows of these tables that were not in its training set."""
        from dflearn.tables import decisions

        with in_options(self.model):
            regressor = self.load_model()
            features, costs, instances = self.read_tables(self.id or regressor.record_["id"])
            assert costs is not None
            given = decisions.dataset_for(regressor, features, costs, instances)
            known, whole = decisions.seen(given, regressor.record_.get("trained_on", ""))
            if known.all():
                why = "and a diagnosis needs other rows: add rows that the model was not trained on"
                raise DataError(f"every row of {self.features} was in the training set, {why}")
        data, trained_on = given.subset(~known), given.subset(known) if whole and known.any() else None
        program, loss = regressor.solver_.program, regressor.loss_
        assert program is not None
        if self.loss is not None:
            loss = self._loss(self.loss, program, data, regressor.random_state, regressor.scale_)
        diagnosis = dfl.diagnose(regressor.model_, loss, data, problem=program, limit=self.count, trained_on=trained_on)
        rows = f"the {len(data)} of {len(given)} rows" if known.any() else f"{len(data)} rows"
        kept = f"{self.model}, the {regressor.record_['chosen']} model"
        counts = {"given": len(given), "trained_on": int(known.sum()), "judged": min(len(data), self.count)}
        diagnoses = [{"loss": str(self.loss or regressor.loss), **diagnosis.as_dict()}]
        document = {"looked_at": self.model, "epochs": 0, "rows": counts, "diagnoses": diagnoses}
        return Answer(f"{kept}, examined on {rows} that were not in its training set. {diagnosis}", document)

    def _loss(self, name: str, what: Decided, data: dfl.DecisionDataset, seed: int, scale: Scale | None = None) -> Loss:
        from dflearn.data.scale import Scale
        from dflearn.solvers.task import DecisionTask
        from dflearn.tables.methods import make_loss

        task, amounts = DecisionTask.of(what), {} if self.mu is None else {"mu": self.mu}
        unit = scale or Scale.of(task.objective, data)
        return make_loss(name, self.layer, task, unit, seed=seed, data=data, **amounts)
