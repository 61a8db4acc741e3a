"""What five examples share: ways to train a linear model, and a table of their regrets over seeds.

A way is a function of training data and a seed; it answers with a model. All ways of a seed see the same data and are judged on
the same instances, so that differences are paired.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

import dflearn as dfl
from dflearn.data import Batch, DecisionDataset
from dflearn.evaluation import Evaluation

Way = Callable[[DecisionDataset, int], nn.Module]
Draw = Callable[[int], tuple[DecisionDataset, DecisionDataset]]


def data(features: Tensor, y: Tensor, train: int, seed: int) -> tuple[DecisionDataset, DecisionDataset]:
    """The first `train` instances, and the others; every seed has ids of its own."""
    whole = DecisionDataset(features, y, ids=torch.arange(len(y)) + seed * len(y))
    return whole.subset(range(train)), whole.subset(range(train, len(y)))


def ridge(train: DecisionDataset, seed: int, strength: float = 1.0) -> nn.Module:
    """Least squares with strength · ‖weights‖² added, in closed form: the classical forecast of the mean."""
    x, y = train.features, train.costs
    assert y is not None
    model = dfl.models.Linear(x.shape[1], y.shape[1], seed=seed).double()
    centred = x - x.mean(0)
    weight = torch.linalg.solve(
        centred.T @ centred + strength * torch.eye(x.shape[1]).double(), centred.T @ (y - y.mean(0))
    )
    with torch.no_grad():
        model.weight.copy_(weight.T)
        model.bias.copy_(y.mean(0) - x.mean(0) @ weight)
    return model


def trained(loss: object, *, epochs: int, lr: float, batch_size: int = 16) -> Way:
    """From the ridge forecast on, by a loss."""

    def way(train: DecisionDataset, seed: int) -> nn.Module:
        model = ridge(train, seed)
        dfl.fit(model, loss, train, epochs=epochs, lr=lr, batch_size=batch_size, seed=seed, progress=False)  # type: ignore[arg-type]
        return model

    return way


def pinball(share: float | Tensor) -> Callable[[Tensor, Batch], Tensor]:
    """The loss whose least mean is at the quantile: what is missing costs `share`, what is too much 1 − share."""

    def loss(predicted: Tensor, batch: Batch) -> Tensor:
        missing = batch.require("costs") - predicted
        return torch.maximum(share * missing, (share - 1) * missing).sum(-1)

    return loss


def study(
    program: dfl.Program, draw: Draw, ways: Mapping[str, Way], seeds: Sequence[int]
) -> dict[str, list[Evaluation]]:
    """Each way judged on the test data of each seed, after recourse."""
    found: dict[str, list[Evaluation]] = {name: [] for name in ways}
    for seed in seeds:
        train, test = draw(seed)
        test = dfl.label(test, program, progress=False)
        for name, way in ways.items():
            found[name].append(dfl.evaluate(way(train, seed), program, test, progress=False))
    return found


def table(found: Mapping[str, Sequence[Evaluation]]) -> str:
    """Regret in % of the optimum and per instance; how much less than the first way's, with an interval over seeds, and on how
    many of them."""
    first, *_ = found
    lines = [f"{'':<26}{'regret':>8}{'each':>9}   less than {first}"]
    for name, evaluations in found.items():
        share = sum(e.regrets.sum() for e in evaluations) / sum(abs(e.optima).sum() for e in evaluations)
        each = sum(e.absolute_regret for e in evaluations) / len(evaluations)
        line = f"{name:<26}{share:>8.2%}{each:>9.4g}"
        if name != first:
            less = np.array(
                [a.absolute_regret - b.absolute_regret for a, b in zip(found[first], evaluations, strict=True)]
            )
            low, high = interval(less)
            line += f"   {less.mean():.4g} [{low:.4g}, {high:.4g}], {(less > 0).sum()} of {len(less)} seeds"
        lines.append(line)
    return "\n".join(lines)


def interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Student's, of the mean: values are independent, one for each seed, training and test data of its own. NaN of one value."""
    if len(values) < 2:
        return np.nan, np.nan
    reach = stats.t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - reach), float(values.mean() + reach)


def seeds_of(description: str | None) -> list[int]:
    """Of the command line: five, or one with --quick."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="how many (default: 5)")
    parser.add_argument("--quick", action="store_true", help="one seed")
    options = parser.parse_args()
    return list(range(1 if options.quick else options.seeds))
