"""How low can regret go? Four models, four losses, 200 to 10,000 training instances, and the floor E[y|x] below them.

    python benchmarks/studies/frontier.py                                  # what results/frontier lacks, then its page
    python benchmarks/studies/frontier.py --problems SP-5 --seeds 1 --sizes 200 --out build/frontier
    python benchmarks/studies/frontier.py --no-run                         # write page and figure again

Every model is fitted for squared error first: ridge, ridge on degree 2, a net, boosted trees. The decision-focused losses go on
from there (trees get a linear correction) and keep the epoch with the least regret on validation rows, the start included.
Tested exactly on 1000 instances that all runs of a seed share. Finished runs are kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.data.cache import default_cache
from dflearn.data.labels import label
from dflearn.data.scale import Scale
from dflearn.evaluation import evaluate
from dflearn.files import replacing
from dflearn.layers import Exact, Smoothed
from dflearn.losses import MSE, SCE, SmoothedSPOPlus, SPOPlus
from dflearn.losses.base import Loss
from dflearn.models import MLP, Scaled, predict
from dflearn.problems import problem_named
from dflearn.problems.base import Problem
from dflearn.studies.record import machine
from dflearn.tables.two_stage import LinearFit, boosting, ridge
from dflearn.training import fit

OUT = Path(__file__).resolve().parents[2] / "results" / "frontier"
RECORDS = "frontier.ndjson.xz"  # one record a line, of a schema of its own
PROBLEMS = ("SP-5", "SP-10", "KP-100", "CFL-50")
MODELS = ("linear", "degree 2", "net", "trees")
LOSSES = ("MSE", "SPO+", "SCE^smoothed", "sSPO+")
SIZES = (200, 1000, 10_000)
SEEDS = (1, 2, 3)
TESTED = 1000  # instances
VALIDATED = 500  # instances to choose by: a quarter of the training instances, and at most so many
STEPS, LEAST_EPOCHS, BATCH, RATE = 1500, 8, 32, 0.005  # of training
PATIENCE = 0.3  # a share of the epochs without gain ends it
WIDTH, NET_EPOCHS = 128, 3  # of the net: hidden units, and epochs by squared error in units of the steps

Record = dict[str, Any]


# -- data -----------------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """What one seed of a problem gives: labelled rows to train on (the largest number), to choose by and to test on."""

    problem: Problem
    train: DecisionDataset
    validation: DecisionDataset
    test: DecisionDataset


@cache
def rows_of(name: str, seed: int, most: int) -> Rows:
    problem = problem_named(name, seed=seed)
    data = problem.generate(TESTED + VALIDATED + most, dtype=torch.float64)
    test, validation, train = (
        data.subset(slice(begin, end))
        for begin, end in ((0, TESTED), (TESTED, TESTED + VALIDATED), (TESTED + VALIDATED, None))
    )
    train, test = (label(part, problem.solver(), cache=default_cache(), progress=False) for part in (train, test))
    return Rows(problem, train, label(validation, problem.relaxed_solver(), progress=False), test)


# -- models: features as the model sees them, and a module fitted for squared error ----------------------------------------


class Corrected(nn.Module):
    """forecast + unit · (W x + b), where a row of features is x followed by the forecast."""

    def __init__(self, features: int, costs: int, unit: float) -> None:
        super().__init__()
        self.linear, self.features, self.unit = nn.Linear(features, costs, dtype=torch.float64), features, unit
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x[..., self.features :] + self.unit * self.linear(x[..., : self.features])


def degree_two(x: Tensor) -> Tensor:
    """x and all products of two of its entries."""
    first, second = torch.triu_indices(x.shape[-1], x.shape[-1])
    return torch.cat([x, x[..., first] * x[..., second]], -1)


def with_features(data: DecisionDataset, change: Callable[[Tensor], Tensor]) -> DecisionDataset:
    batch = data.batch()
    return DecisionDataset(change(batch.features), batch.costs, batch.decisions)


def as_module(found: LinearFit, unit: float) -> nn.Module:
    """The same map as a module that works in units of the costs."""
    costs, features = found.weight.shape
    linear = nn.Linear(features, costs, dtype=torch.float64)
    weight = found.weight / found.standardize.deviation
    with torch.no_grad():
        linear.weight.copy_(weight / unit)
        linear.bias.copy_((found.bias - weight @ found.standardize.mean) / unit)
    return Scaled(linear, unit)


class Fitted(NamedTuple):
    """A model fitted for squared error, and the rows as it sees them."""

    model: nn.Module
    train: DecisionDataset
    validation: DecisionDataset
    test: DecisionDataset


def two_stage(
    name: str, train: DecisionDataset, validation: DecisionDataset, test: DecisionDataset, seed: int
) -> Fitted:
    parts = train, validation, test
    unit = float(train.batch().require("costs").abs().mean())
    if name == "degree 2":
        parts = tuple(with_features(part, degree_two) for part in parts)
    x, y, chosen_by = parts[0].features, parts[0].batch().require("costs"), parts[1].batch()
    choose = chosen_by.features, chosen_by.require("costs")
    if name in ("linear", "degree 2"):
        return Fitted(as_module(ridge(x, y, choose=choose), unit), *parts)
    if name == "net":
        model = Scaled(MLP(x.shape[1], y.shape[1], hidden=(WIDTH,), seed=seed).double(), unit)
        train_model(model, MSE(), parts[0], parts[1], None, seed, times=NET_EPOCHS)
        return Fitted(model, *parts)
    trees = boosting(x, y, choose=choose, seed=seed)
    parts = tuple(with_features(part, lambda x: torch.cat([x, predict(trees, x)], -1)) for part in parts)
    return Fitted(Corrected(x.shape[1], y.shape[1], unit), *parts)


# -- training -------------------------------------------------------------------------------------------------------------


def train_model(
    model: nn.Module,
    loss: Loss,
    train: DecisionDataset,
    validation: DecisionDataset,
    problem: Any,
    seed: int,
    times: int = 1,
) -> float:
    """Trains in place and gives the least validation figure of any epoch, whose weights are kept."""
    epochs = times * max(LEAST_EPOCHS, math.ceil(STEPS * BATCH / len(train)))
    history = fit(
        model,
        loss,
        train,
        validation=validation,
        problem=problem,
        epochs=epochs,
        batch_size=BATCH,
        lr=RATE,
        early_stopping=max(3, math.ceil(PATIENCE * epochs)),
        seed=seed,
        keep="best",
        progress=False,
    )
    assert history.best is not None
    assert history.monitored is not None
    return float(history.best[history.monitored])


def loss_named(name: str, problem: Problem, train: DecisionDataset) -> Loss:
    if name == "SPO+":
        return SPOPlus(Exact(problem.relaxed_solver()))
    layer = Smoothed(problem.program, Scale.of(problem.program.objective, train).mu)
    return SCE(layer) if name == "SCE^smoothed" else SmoothedSPOPlus(layer)


def validation_regret(model: nn.Module, fitted: Fitted, problem: Problem) -> float:
    judged = evaluate(
        predict(model, fitted.validation.features), problem.relaxed_solver(), fitted.validation, progress=False
    )
    return judged.absolute_regret


def run(rows: Rows, model: str, size: int, seed: int, losses: Sequence[str]) -> Iterator[Record]:
    """One record per loss; the fit for squared error is shared."""
    problem = rows.problem
    validation = rows.validation.subset(slice(0, min(VALIDATED, size // 4)))
    begun = time.process_time()
    fitted = two_stage(model, rows.train.subset(slice(0, size)), validation, rows.test, seed)
    state = {name: value.clone() for name, value in fitted.model.state_dict().items()}
    fitting, start = time.process_time() - begun, validation_regret(fitted.model, fitted, problem)
    for name in losses:
        begun, reached = time.process_time(), start
        fitted.model.load_state_dict(state)
        if name != "MSE":
            loss = loss_named(name, problem, fitted.train)
            train_model(fitted.model, loss, fitted.train, fitted.validation, problem.relaxed_solver(), seed)
            reached = validation_regret(fitted.model, fitted, problem)
            if reached >= start:
                fitted.model.load_state_dict(state)
        seconds = fitting + time.process_time() - begun
        found = {"model": model, "loss": name, "size": size, "validation": float(f"{min(reached, start):.6g}")}
        yield found | tested(rows, predict(fitted.model, fitted.test.features)) | {"seconds": round(seconds, 2)}


def tested(rows: Rows, predicted: Tensor) -> Record:
    judged = evaluate(predicted, rows.problem, rows.test, cache=default_cache(), floor=False, progress=False)
    wanted = ("mean_of_ratios", "published_style", "mse")
    return {name: float(f"{judged.metrics[name].value:.6g}") for name in wanted if name in judged.metrics}


def complete(path: Path, options: argparse.Namespace) -> list[Record]:
    """The records there, and those of the runs that are lacking, each kept as soon as it is there."""
    records = read(path)
    have = {(one["problem"], one["seed"], one["model"], one["loss"], one["size"]) for one in records}
    for seed, name in itertools.product(options.seeds, options.problems):
        wanted = [
            (model, size, [loss for loss in LOSSES if (name, seed, model, loss, size) not in have])
            for size, model in itertools.product(options.sizes, MODELS)
        ]
        if not any(losses for _, _, losses in wanted):
            continue
        rows, same = rows_of(name, seed, max(SIZES)), {"problem": name, "seed": seed, "machine": machine()}
        if (name, seed, "E[y|x]", "", 0) not in have:
            floor = tested(rows, rows.problem.expected_costs(rows.test.features))
            records.append(same | {"model": "E[y|x]", "loss": "", "size": 0} | floor)
        for model, size, losses in wanted:
            for record in run(rows, model, size, seed, losses) if losses else ():
                records.append(same | record)
                shown = (name, seed, size, model, record["loss"], record["mean_of_ratios"], record["seconds"])
                print(*shown, sep="\t", flush=True)
            keep(path, records)
        rows_of.cache_clear()
    return records


def read(path: Path) -> list[Record]:
    if not path.exists():
        return []
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def keep(path: Path, records: list[Record]) -> None:
    """Written whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, lzma.open(temporary, "wt", encoding="utf-8", preset=9) as file:
        file.writelines(json.dumps(one, ensure_ascii=False, separators=(",", ":")) + "\n" for one in records)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    arguments.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    arguments.add_argument("--sizes", nargs="+", type=int, choices=SIZES, default=list(SIZES))
    arguments.add_argument("--out", type=Path, default=OUT)
    arguments.add_argument("--no-run", action="store_true", help="show what is there")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    path = options.out / RECORDS
    records = read(path) if options.no_run else complete(path, options)
    from frontier_page import draw, page

    (options.out / "table.md").write_text(page(records))
    draw(records, options.out / "frontier.svg")
    print(page(records))


if __name__ == "__main__":
    main()
