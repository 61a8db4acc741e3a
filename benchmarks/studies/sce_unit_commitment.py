"""Why SCE with the estimator's automatic μ does badly on a unit commitment: python -m benchmarks.studies.sce_unit_commitment

From ridge, seven epochs of SCE on the development data of the practice study, at several μ and with two kinds of labels. Printed
are regrets relative to the optimum, on the LP relaxation, of the rows to train on and of those to choose by.
"""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.practice import DEVELOPMENT, PROBLEMS
from dflearn.data import DecisionDataset
from dflearn.data.scale import Scale
from dflearn.data.split import parts_of
from dflearn.layers.smoothed import Smoothed
from dflearn.losses.sce import SCE
from dflearn.models import predict
from dflearn.solvers.task import DecisionTask
from dflearn.tables.encoding import Encoding
from dflearn.tables.starts import linear_start
from dflearn.tables.tables import Tables
from dflearn.tables.two_stage import ridge
from dflearn.training import fit

EPOCHS, RATE = 7, 0.03


def main() -> None:
    case = PROBLEMS["unit commitment"](DEVELOPMENT)
    program, task = case.program, DecisionTask.of(case.program)
    given = {"features": case.features, "costs": case.costs, "instances": case.instances}
    tables = Tables.of(given, None, {"costs": program.cost_names}, "the program")
    assert tables.costs is not None
    parts = parts_of(len(case), test=case.test, ordered=case.ordered, seed=case.seed)
    x = torch.tensor(Encoding.of(tables.features, parts.train)(tables.features))
    costs, instance = torch.tensor(tables.costs.values), tables.instance(program)
    best = task.relaxed.solve(costs, instance).check().decision
    data = DecisionDataset(x, costs, best, instance)
    train, choose = data.subset(parts.train), data.subset(parts.choose)
    y = train.batch().require("costs")
    fitted = ridge(train.features, y, choose=(choose.features, choose.batch().require("costs")))
    error = DecisionDataset(train.features, y - fitted(train.features), train.decisions)
    automatic, by_error = Scale.of(task.objective, train).mu, Scale.of(task.objective, error).mu

    def regret(predicted: torch.Tensor, part: DecisionDataset) -> float:
        truth, held = part.batch().require("costs"), part.batch().require("decisions")
        decided = task.relaxed.solve(predicted, part.instance).check().decision
        lost = task.objective(truth, decided - held, part.instance).sum()
        return float(lost / task.objective(truth, held, part.instance).abs().sum())

    def said(name: str, predicted: list[torch.Tensor]) -> None:
        print(
            name,
            *(f"{regret(one, part):.2%}" for one, part in zip(predicted, (train, choose), strict=True)),
            flush=True,
        )

    print(
        f"mu automatic {automatic:.3g}, by the error of the forecasts {by_error:.3g} ({by_error / automatic:.2f} times)"
    )
    said("ridge", [fitted(part.features) for part in (train, choose)])
    for mu in (automatic, 0.3 * automatic, by_error):
        for label in ("exact", "smoothed"):
            start = linear_start(train, fitted, 1.0, None)
            layer = Smoothed(program, mu)
            held = start.train
            if label == "smoothed":
                held = held.with_decisions(layer(y, train.instance))
            fit(start.module, SCE(layer), held, epochs=EPOCHS, lr=RATE * start.reach, progress=False)
            shown = [predict(start.module, start.rows(part.features)) for part in (train, choose)]
            said(f"mu {mu / automatic:.3g} times automatic, {label} labels", shown)


if __name__ == "__main__":
    np.set_printoptions(precision=4)
    main()
