"""`DecisionFocusedRegressor`: the whole way from features to decisions behind scikit-learn's conventions."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset, split_rows
from dflearn.data.labels import label
from dflearn.data.scale import Scale
from dflearn.errors import DataError, OptionError, ShapeError
from dflearn.layers.base import Layer
from dflearn.losses import Quantile
from dflearn.losses.base import Loss
from dflearn.models import predict
from dflearn.program import Instance
from dflearn.solvers.base import Solver
from dflearn.solvers.task import Decided, DecisionTask
from dflearn.tables import saving, table_model as common
from dflearn.tables.columns import Encoding
from dflearn.tables.demand import LEVELS, Scenarios, critical_ratios
from dflearn.tables.forecasters import Combination
from dflearn.tables.linear import Start, after_model, beats, best_of, ridge_start
from dflearn.tables.methods import WITHOUT_SOLVES, Amount, default_losses, make_loss
from dflearn.tables.tables import MixedTable, TableLike, Tables, id_column_in, is_table
from dflearn.training import History, fit
from dflearn.training.step import counted_rows
from dflearn.training.validation import Validation


@dataclass(eq=False, repr=False)
class DecisionFocusedRegressor(common.Decider):
    """Predict the costs of a (mixed-integer) linear program so that the decisions made with them are good.

        regressor = DecisionFocusedRegressor(problem).fit(X, y)
        regressor.predict(X)    # costs
        regressor.decide(X)     # decisions: optimal for the predicted costs, feasible for the true program

    X has one row of features per instance, `(n_samples, k)`, or one per predicted cost, `(n_samples, p, k)`; y are the
    true costs `(n_samples, p)`. Scale the features, with a `StandardScaler` in a `Pipeline`; the scale of the costs is taken care
    of: the model's output is multiplied by mean |y|, and what is "auto" is relative to it.

    Args:
        problem: what is decided: a `Problem`, a `Program`, an exact `Solver`, or a function from costs to a decision. A
            program is solved by the fastest exact solver for its structure, `solver_`.
        loss: "auto" (default), which is "smoothed-spo+mse", or where that is not defined another one
            (`dflearn.tables.methods.default_losses`); any name that `dfl methods` lists with what it needs, or a `Loss`; or
            several of these, for phases in turn. Without y, a loss that needs no costs: "fenchel-young", "pfy", "cave".
        layer: what the loss solves in training: "smoothed", "davis-yin", "perturbed", "relaxed", "exact", a `Layer`,
            or "auto": "relaxed" for "spo+", "perturbed" for "pfy", otherwise "smoothed".
        model: "linear"; "mlp", with the widths of its layers in `hidden`; or a module, which is copied, and whose output is
            taken as it is. With features per cost, "linear" and "mlp" are one map that all costs share.
        start: "ridge": ridge regression, its strength chosen by leave-one-out errors; `lr` is then how far a step moves forecasts
            in units of their error, features are standardized, and the model is "linear". "zero": small random weights, which
            Adam moves by `lr` a step; a module of yours begins as it is. "auto" (default): "ridge" for a linear model with y.
        positive: whether costs are known to be positive. Predictions are then made so, by a softplus in units of mean |y|.
        mu: smoothing of "smoothed" and "davis-yin"; "auto" is mean |S y| / mean largest |w*|, and a tenth of it for
            "smoothed-spo+" and "smoothed-spo+mse", three tenths for "sce-own".
        sigma: noise of "perturbed"; "auto" is mean |y|.
        step: step of "davis-yin"; "auto" leaves it to the layer.
        epochs, batch_size, lr: of Adam; `lr` acts on the model before its output is scaled.
        validation_fraction: share of the instances held out. The epoch whose decisions have the least regret on them,
            on the LP relaxation, is kept; but ridge regression, unless it is beaten by more than one standard error (not where
            right-hand sides are predicted, for which a mean is no plan). 0 trains on all of them and keeps the last epoch.
        refit: whether to train once more, on all instances, for as many epochs as were kept. Not with validation data.
        early_stopping: the number of epochs without improvement that ends the training; `None`: never.
        cache: folder that remembers the exact solves behind labels and scores, across fits and runs.
        device: where it is trained, "cuda", say (docs/how-to/gpu.md); the fitted model lies on the CPU.
        random_state: seed of initial weights, held-out part, order of the instances and noise.

    Attributes:
        model_, loss_, solver_: the trained module, features → costs, in float64; the (last) loss; the exact solver that decides.
        scale_: the `Scale` of the training data.
        history_, epoch_: the `History` of the training that chose the epoch, and that epoch; 0: the start was kept.
        held_out_: the rows of X that were held out for validation, int64.
        record_: what `save` was given to keep, after `load`; of a model of `train`, its encoding of features and its names.

    Examples:
        >>> regressor = dfl.DecisionFocusedRegressor(problem, epochs=3).fit(data.features, data.costs)
        >>> regressor.predict(data.features[:2]).shape, regressor.decide(data.features[:2]).shape
        ((2, 12), (2, 12))
    """

    problem: Decided | None = None
    _: KW_ONLY
    loss: str | Loss | Sequence[str | Loss] = "auto"
    layer: str | Layer = "auto"
    model: str | nn.Module = "linear"
    hidden: Sequence[int] = (64,)
    start: str = "auto"
    positive: bool = False
    mu: Amount = "auto"
    sigma: Amount = "auto"
    step: Amount = "auto"
    epochs: int = 100
    batch_size: int = 32
    lr: float = 0.005
    validation_fraction: float = 0.2
    early_stopping: int | None = 10
    refit: bool = True
    cache: str | Path | None = None
    device: str | None = None
    random_state: Any = 0
    model_: nn.Module = field(init=False)
    solver_: Solver = field(init=False)
    held_out_: np.ndarray = field(init=False)
    record_: dict[str, Any] = field(init=False)
    _shape: tuple[int, ...] = field(init=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    # -- training -------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        decisions: Any = None,
        instance: Instance | None = None,
        validation: Any = None,
    ) -> Self:
        """Train on features X and costs y `(n_samples, p)`, or on decisions alone if the loss needs no costs.

        Args:
            sample_weight: the weight of each instance in training and validation, `(n_samples,)`; weight zero leaves it out.
            decisions: w* `(n_samples, n)`; by default computed from y by the exact solver. Compute them once for several fits.
            instance: what differs from instance to instance, each field `(n_samples, …)`.
            validation: what chooses the epoch, in place of `validation_fraction` of the instances at random: data (X, y) or
                (X, y, instance); a scikit-learn splitter such as `TimeSeriesSplit()`, whose last split is taken; or the rows
                of X to hold out.
        """
        if y is None and decisions is None:
            remedy = "Without them, pass decisions and a loss that needs no costs, such as 'fenchel-young'"
            what = "DecisionFocusedRegressor requires y to be passed, but the target y is None: y are the costs."
            raise DataError(f"{what} {remedy}")
        common.check_same_index(X, y)
        options = {"dtype": np.float64, "allow_nd": True}
        if y is None:
            X = common.validate_data(self, X, **options)
        else:
            X, y = common.validate_data(self, X, self._in_order(y), multi_output=True, y_numeric=True, **options)
            y = np.ascontiguousarray(y, np.float64)
        X = np.ascontiguousarray(X)
        if self.positive and y is not None and y.min() < 0:
            raise DataError(f"positive=True, and y holds negative costs, {y.min():.4g} the least: leave it at False")
        seed = int(common.check_random_state(self.random_state).randint(2**31 - 1))
        costs = None if y is None else y.reshape(len(X), -1)
        width = np.shape(decisions if costs is None else costs)[-1]
        task = self._task(None if y is None and not self._only_decides() else width)
        self._shape, self._one_dimensional = X.shape[1:], y is not None and y.ndim == 1
        self._with_instances = instance is not None
        data = self._data(X, costs, decisions, instance, sample_weight)
        rows = counted_rows(data)
        data = data if data.weights is None else data.subset(rows)
        names = self._named(task, y is not None)
        solves = any("decisions" in one.needs if isinstance(one, Loss) else one not in WITHOUT_SOLVES for one in names)
        if solves and data.decisions is None:
            data = label(data, task.solver, cache=self.cache, progress=False)
        self.scale_, self.solver_ = Scale.of(task.objective, data), task.solver
        losses = self._losses(names, task, seed=seed, data=data)
        train, checked = self._divide(data, rows.numpy(), seed, validation, task)
        regret = checked is not None and checked.costs is not None
        if checked is not None and regret and task.relaxed is not task.solver:
            checked = checked.without_decisions()  # the relaxation judges, and its optimal decisions are others
        found = []
        for turns in self._levels(losses, task, regret):
            start, watched = self._start(train, task, seed), dict[str, Any]()
            if checked is not None:
                watched = {"validation": start.on(checked), "early_stopping": self.early_stopping, "keep": "best"}
                watched |= {"problem": task.relaxed} if regret else {}
            found.append((self._fit(start, turns, seed, epochs=self.epochs, **watched), turns, start))
        self.history_, losses, start = min(found, key=lambda one: best_of(one[0]))
        best = self.history_.best
        self.epoch_ = len(self.history_.rows) if best is None else int(best["epoch"])
        incumbent = start.name == "ridge" and (task.program is None or not task.program.predicts_rows)
        if checked is not None and regret and incumbent and self.epoch_:
            untrained = self._start(train, task, seed)
            judge = Validation(start.on(checked), losses[-1], task.relaxed)
            if not beats(judge, start.module, untrained.module):
                start, self.epoch_ = untrained, 0
        if self.refit and len(self.held_out_):  # on all the data, each loss for the epochs that were kept
            start = self._start(data, task, seed)
            phases = [row.get("phase", 1) for row in self.history_.rows[: self.epoch_]]
            for number, loss in enumerate(losses, 1):
                self._fit(start, loss, seed, epochs=phases.count(number))
        self.model_, self.loss_ = start.model, losses[-1]
        return self

    def _fit(self, start: Start, loss: Loss | list[Loss], seed: int, **watched: Any) -> History:
        """Adam on the module of a start, which is then on the CPU."""
        watched |= {"batch_size": self.batch_size, "lr": self.lr * start.reach, "seed": seed}
        history = fit(start.module, loss, start.train, device=self.device, progress=False, **watched)
        start.module.cpu()
        return history

    def _named(self, task: DecisionTask, with_costs: bool = True) -> Sequence[str | Loss]:
        """The losses of the phases, by name or as they are."""
        if self.loss == "auto":
            return default_losses(task, with_costs)
        return [self.loss] if isinstance(self.loss, str | Loss) else list(self.loss)

    def _levels(self, losses: list[Loss], task: DecisionTask, regret: bool) -> list[list[Loss]]:
        """The losses; or, if no critical ratio tells the quantile, one for each level, to choose among."""
        known = self.loss != "quantile" or task.program is None or critical_ratios(task.program) is not None
        return [losses] if known or not regret else [[Quantile(level)] for level in LEVELS]

    def _losses(self, names: Sequence[str | Loss], task: DecisionTask, **options: Any) -> list[Loss]:
        amounts = {"mu": self.mu, "sigma": self.sigma, "step": self.step, **options}
        return [make_loss(one, self.layer, task, self.scale_, **amounts) for one in names]

    def adopt(self, module: nn.Module, data: DecisionDataset, scale: Scale, history: History) -> Self:
        """Be fitted with a model that was trained elsewhere, on these data; it must be built as `start` and `model` say."""
        task = self._fill(tuple(data.features.shape[1:]), False, data.instance is not None, scale, history)
        self.solver_, self.model_, self.held_out_ = task.solver, module, np.arange(0)
        return self

    def _fill(
        self, shape: tuple[int, ...], one_dimensional: bool, with_instances: bool, scale: Scale, history: History
    ) -> DecisionTask:
        """Be fitted, but for the solver and the model; the task."""
        self._shape, self._one_dimensional, self._with_instances = shape, one_dimensional, with_instances
        self.n_features_in_, self.scale_, self.history_ = shape[0], scale, history
        task = self._task(None)
        self.loss_ = self._losses(self._named(task), task)[-1]
        return task

    def _start(self, train: DecisionDataset, task: DecisionTask, seed: int) -> Start:
        """The model to train, and its first weights."""
        if self.start not in ("auto", "zero", "ridge"):
            raise OptionError(f"start is 'auto', 'zero' or 'ridge'; got {self.start!r}")
        fits = self.model == "linear" and self._shape[:-1] in ((), (task.objective.p,))
        if self.start == "ridge" and not fits:
            what = "needs model='linear' and features (n_samples, k), or (n_samples, p, k)"
            raise OptionError(f"start='ridge' {what}: pass start='zero'")
        if self.start == "ridge" or (self.start == "auto" and fits and train.costs is not None):
            return ridge_start(train, after_model(self.positive, self.scale_.costs))
        zero = self.get_params(deep=False) | {"start": "zero"}
        model = saving.build(zero, self._shape, task.objective.p, self.scale_.costs, seed)
        return Start("zero", model, train, model)

    def _task(self, p: int | None) -> DecisionTask:
        """What is decided, for p costs (unknown without y)."""
        if self.problem is None:
            example = "DecisionFocusedRegressor(dflearn.Program(A=…, b=…, upper=1))"
            raise OptionError(f"nothing says what is decided: pass a Problem, a Program or a Solver, as in {example}")
        return DecisionTask.of(self.problem, p)

    def _data(
        self, X: np.ndarray, y: np.ndarray | None, decisions: Any, instance: Instance | None, sample_weight: Any = None
    ) -> DecisionDataset:
        weights = None
        if sample_weight is not None:
            weights = common._check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if decisions is not None:
            decisions = common.check_array(decisions, dtype=np.float64, input_name="decisions")
        costs, optimal, counts = (None if array is None else torch.tensor(array) for array in (y, decisions, weights))
        instance = None if instance is None else instance.to(torch.float64)
        return DecisionDataset(torch.tensor(X), costs, optimal, instance, weights=counts)

    def _divide(
        self, data: DecisionDataset, rows: np.ndarray, seed: int, validation: Any, task: DecisionTask
    ) -> tuple[DecisionDataset, DecisionDataset | None]:
        """Training and validation data; `rows` are those of X that the data hold."""
        self.held_out_ = np.arange(0)
        if isinstance(validation, tuple):
            X, y, *more = validation
            common.check_same_index(X, y)
            X = np.ascontiguousarray(common.validate_data(self, X, dtype=np.float64, allow_nd=True, reset=False))
            costs = np.asarray(self._in_order(y), np.float64).reshape(len(X), -1)
            held = self._data(X, costs, None, *(more or [None]))
            return data, label(held, task.solver, cache=self.cache, progress=False)
        every = np.arange(len(data))
        if validation is None:
            if not 0 <= self.validation_fraction < 1:
                raise OptionError(f"validation_fraction lies in [0, 1), got {self.validation_fraction}")
            number = round(self.validation_fraction * len(data))
            held_out, kept = split_rows(len(data), {"validation": number}, seed) if number else (every[:0], every)
        else:
            if isinstance(validation, np.ndarray | list):
                held_out = np.flatnonzero(np.isin(rows, np.asarray(validation, np.int64)))
            else:
                *_, (_, held_out) = validation.split(data.features.numpy())
            kept = np.setdiff1d(every, held_out)
        self.held_out_ = rows[np.asarray(held_out)]
        return data.subset(kept), data.subset(held_out) if len(held_out) else None

    def predict(self, X: Any) -> Any:
        """Predicted costs, float64 `(n_samples, p)`; `(n_samples,)` where y had that shape.

        A model that `train` made takes tables of features too: a DataFrame, a dict of columns or of one row, a file. It answers
        them with a DataFrame of the costs by name, and warns of unusual cells. An array holds their columns in the order of
        training, or these columns encoded as numbers.
        """
        common.check_is_fitted(self, "model_")
        if not self._takes_tables or not is_table(X):
            return self._costs(X)
        features = self.read({"features": X})[0].features
        return self._framed(common.cost_columns(self.cost_names, self._costs(features)), features)

    def _costs(self, X: Any) -> np.ndarray:
        """Predicted costs for an array or a table."""
        X = np.ascontiguousarray(
            common.validate_data(self, self._encoded(X), dtype=np.float64, allow_nd=True, reset=False)
        )
        if X.shape[1:] != self._shape:
            shape = ", ".join(map(str, self._shape))
            raise ShapeError(f"features had shape (n_samples, {shape}) in fit; got {X.shape}")
        costs = predict(self.model_, torch.tensor(X)).numpy()
        return costs.reshape(-1) if self._one_dimensional else costs

    def decide(self, X: Any, instance: Any = None) -> Any:
        """For each row of X the decision that is optimal for the predicted costs, `(n_samples, n)`.

        It is feasible for the true program, integrality included; an error names the first instance without any. A model that
        `train` made answers a table of features (and one of instances) with a DataFrame of the predicted costs and the
        decisions by name, and warns of unusual cells. `dflearn.decide` tells more: statuses, objectives, regret.
        """
        if not self._takes_tables or not is_table(X) or isinstance(instance, Instance):
            return self._solve(self._costs(X), instance).numpy()
        tables, sides = self.read({"features": X, "instances": instance})
        costs, program = self._costs(tables.features), self.solver_.program
        assert program is not None
        columns = common.beside_decisions(common.cost_columns(self.cost_names, costs))
        decided = self._solve(costs, sides, name=tables.where).numpy()
        return self._framed(columns | common.decision_columns(program, decided, columns), tables.features)

    def _solve(self, costs: np.ndarray, instance: Instance | None, **named: Any) -> Tensor:
        y = torch.as_tensor(costs, dtype=torch.float64).reshape(len(costs), -1)
        return self.decider().solve(y, instance).check(**named).decision

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, decisions: Any = None, instance: Instance | None = None
    ) -> float:
        """−Σ regret / Σ |optimum|: minus the normalized regret of `decide(X)` under the true costs y.

        Zero is perfect and larger is better, as scikit-learn expects. `decisions` are the optimal ones, by default
        computed from y by the exact solver. With `sample_weight` `(n_samples,)`, both sums are weighted. This is not R².
        """
        common.check_same_index(X, y)
        y = np.ascontiguousarray(
            common.check_array(self._in_order(y), dtype=np.float64, ensure_2d=False, input_name="y")
        )
        if self._with_instances and instance is None:
            raise DataError(
                "fit was told what differs between instances, and score was not: pass instance. A grid search passes it "
                "after sklearn.set_config(enable_metadata_routing=True) and "
                "regressor.set_fit_request(instance=True).set_score_request(instance=True)"
            )
        decided = self._solve(self._costs(X), instance)
        data = self._data(np.zeros((len(y), 0)), y.reshape(len(y), -1), decisions, instance, sample_weight)
        if data.decisions is None:
            data = label(data, self.solver_, cache=self.cache, progress=False)
        return common.minus_regret(self.solver_, data, decided, 1.0 if data.weights is None else data.weights)

    # -- tables, for a model that `train` made --------------------------------------------------------------------

    def decider(self, solver: Solver | None = None) -> Solver:
        """The solver for predictions of this model: the exact one, for several scenarios at once if the model has any."""
        solver, model = self.solver_ if solver is None else solver, self.model_
        return Scenarios(solver, model.errors) if isinstance(model, Combination) and len(model.errors) else solver

    @property
    def cost_names(self) -> Sequence[str] | None:
        """The names of the costs: of the program, or else of the table that the model was trained on."""
        program = self.solver_.program
        return None if program is None else program.cost_names or vars(self).get("record_", {}).get("costs")

    @property
    def encoding(self) -> Encoding | None:
        """The encoding of tables of features; `None` if the model was not made of tables."""
        held = vars(self).get("record_", {}).get("encoding")
        return None if held is None else Encoding.from_dict(held)

    def learned_encoding(self) -> Encoding:
        """The same; an error if there is none."""
        if (encoding := self.encoding) is None:
            what = "the model was not made by dfl train, so nothing tells the names of its features"
            raise DataError(f"{what}: use it in Python, with arrays")
        return encoding

    @property
    def _takes_tables(self) -> bool:
        return self.solver_.program is not None and self.encoding is not None

    def _encoded(self, X: Any) -> Any:
        """A table of features as numbers, with warnings of unusual cells; X itself if it is no table, or the model knows none."""
        if (encoding := self.encoding) is None:
            return X
        width = None if is_table(X) else np.shape(X)[1:]
        if width is not None and (width == self._shape or width != (len(encoding.inputs),)):
            return X
        table = MixedTable.of(X, "X", names=encoding.inputs)
        for remark in encoding.remarks(table):
            warnings.warn(remark, stacklevel=4)
        return encoding(table)

    def _framed(self, columns: dict[str, np.ndarray], features: MixedTable) -> Any:
        """A DataFrame with the rows of a table."""
        return common.as_frame(
            columns, None if features.ids is None else self.record_["id"], features.ids or features.index
        )

    def read(
        self, given: Mapping[str, TableLike | None], id_column: str | None = None
    ) -> tuple[Tables, Instance | None]:
        """Tables with their columns in the order of training, and their instances; an error if they do not suit the model."""
        encoding, program, record = self.learned_encoding(), self.solver_.program, self.record_
        assert program is not None
        if "instances" in given and record["instances"] and given["instances"] is None:
            names = ", ".join(record["instances"])
            raise DataError(f"the model was trained with instances (columns {names}): add such a table")
        if not record["instances"] and given.get("instances") is not None:
            raise DataError("the model was trained without instances: leave it out, or train with it")
        if record["forecast"] and given.get("forecast") is None:
            what = "the model builds on your own forecast of the costs"
            raise DataError(f"{what}: add such a table, decide(…, forecast=…)")
        if not record["forecast"]:
            given = {**given, "forecast": None}
        wanted = {"features": encoding.inputs, "costs": self.cost_names, "instances": list(record["instances"])}
        wanted["forecast"] = record["forecast"] or None
        id_column = id_column or id_column_in(given.values(), record["id"])
        tables = Tables.of(given, id_column, wanted, "the {} in training")
        return tables, tables.instance(program)

    def save(self, path: str | os.PathLike[str], record: Mapping[str, Any] | None = None) -> None:
        """Write the fitted estimator to one file, without pickle; `load` gives it back, answer for answer.

        `record` is what else to keep, as JSON holds it: what the columns of X are called, how the model did, ….
        A file holds names and numbers. An object of your own (a loss, a solver) is refused here; a module is kept by its
        import path: see `dflearn.tables.Imported`.
        """
        common.check_is_fitted(self, "model_")
        saving.save(self, path, record)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, trust: bool = False) -> Self:
        """Read what `save` wrote; a file that is anything else, damaged, or of a newer version is refused.

        trust: whether code may be run that the file names to build a module of your own. Only for files that you trust;
            all other files load without it, and run nothing.
        """
        return saving.load(cls, path, trust=trust)
