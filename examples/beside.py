"""What the examples share: options, training, tables of regret, pictures.

Five of them compare ways to train a linear model over seeds: a way is a function of training data and a seed that gives a model.
All ways of a seed see the same data and are judged on the same instances, so that differences are paired.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import dflearn as dfl
from dflearn.data import Batch, DecisionDataset, Split
from dflearn.evaluation import Evaluation, estimates
from dflearn.report.style import INK, color_of

Way = Callable[[DecisionDataset, int], nn.Module]
Draw = Callable[[int], tuple[DecisionDataset, DecisionDataset]]


def data(features: Tensor, y: Tensor, train: int, seed: int) -> tuple[DecisionDataset, DecisionDataset]:
    """The first `train` instances, and the others; every seed has ids of its own."""
    whole = DecisionDataset(features, y, ids=torch.arange(len(y)) + seed * len(y))
    return whole.subset(range(train)), whole.subset(range(train, len(y)))


def ridge(train: DecisionDataset, seed: int, strength: float = 1.0) -> nn.Module:
    """Least squares with strength · ‖weights‖² added, in closed form: the classical forecast of the mean."""
    x, y = train.features, train.batch().require("costs")
    model, centred = dfl.models.Linear(x.shape[1], y.shape[1], seed=seed).double(), x - x.mean(0)
    normal = centred.T @ centred + strength * torch.eye(x.shape[1]).double()
    weight = torch.linalg.solve(normal, centred.T @ (y - y.mean(0)))
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
    """Regret in % of the optimum and per instance; how much less than the first way's, with Student's interval over seeds, which
    share no data, and on how many of them."""
    first, *_ = found
    lines = [f"{'':<26}{'regret':>8}{'each':>9}   less than {first}"]
    for name, evaluations in found.items():
        share = sum(e.regrets.sum() for e in evaluations) / sum(abs(e.optima).sum() for e in evaluations)
        each = sum(e.absolute_regret for e in evaluations) / len(evaluations)
        line = f"{name:<26}{share:>8.2%}{each:>9.4g}"
        if name != first:
            pairs = zip(found[first], evaluations, strict=True)
            less = np.array([a.absolute_regret - b.absolute_regret for a, b in pairs])
            line += f"   {estimates.mean(less, 0.95)}, {(less > 0).sum()} of {len(less)} seeds"
        lines.append(line)
    return "\n".join(lines)


def seeds_of(description: str | None) -> list[int]:
    """Of the command line: five, or one with --quick."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="how many (default: 5)")
    parser.add_argument("--quick", action="store_true", help="one seed")
    options = parser.parse_args()
    return list(range(1 if options.quick else options.seeds))


def forecasts(
    program: dfl.Program, draw: Draw, share: float | Tensor, seeds: Sequence[int], *, mu: float, **training: Any
) -> str:
    """The table of three forecasts: the mean, the newsvendor's quantile, and what the cost after recourse teaches."""
    after = trained(dfl.losses.TaskLoss(dfl.Smoothed(program, mu)), **training)
    ways = {"mean (ridge)": ridge, "quantile": trained(pinball(share), **training), "cost after recourse": after}
    return table(study(program, draw, ways, seeds))


def options_of(description: str | None, quick: str, *, plot: str, epochs: int = 30) -> argparse.ArgumentParser:
    """The options that examples with a picture take."""
    arguments = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--epochs", type=int, default=epochs)
    arguments.add_argument("--plot", type=Path, default=Path(plot))
    arguments.add_argument("--quick", action="store_true", help=quick)
    torch.set_num_threads(1)
    return arguments


def scattered(rng: np.random.RandomState, first: np.ndarray, count: int) -> np.ndarray:
    """Places in the unit square without clumps: each the one of ten spots that is farthest from all places so far."""
    places = first
    while len(places) < count:
        spots = rng.uniform(size=(10, 2))
        apart = np.linalg.norm(spots[:, None] - places[None, :], axis=-1).min(1)
        places = np.vstack([places, spots[np.argmax(apart)]])
    return places


def single(array: np.ndarray) -> Tensor:
    return torch.as_tensor(array, dtype=torch.float32)


def one_seed(
    parts: Split,
    losses: Mapping[str, Any],
    make_model: Callable[[], nn.Module],
    judge: Sequence[Any],
    mean: Tensor,
    validated_by: Any = None,
    **options: Any,
) -> dict[str, Evaluation]:
    """A model for each loss on the test data, and the mean of the costs in place of a model. The best epoch is kept: by
    validation regret, two-stage's by its own loss. judge: a program and its solver, or a solver."""
    found, solver = {}, judge[-1]
    for name, loss in losses.items():
        by_regret = {} if name == "two-stage" else {"problem": validated_by or solver}
        model = make_model()
        dfl.fit(
            model, loss, parts.train, validation=parts.validation, keep="best", progress=False, **options, **by_regret
        )
        found[name] = dfl.evaluate(model, judge[0], parts.test, solver, progress=False)
    known = mean[parts.test.ids]
    return found | {"knowing the mean": dfl.evaluate(known, judge[0], parts.test, solver, progress=False)}


def comparison(found: Mapping[str, Evaluation], columns: Mapping[str, Callable[[str], str]]) -> str:
    """A line for each method: its regret and further columns, each a function of the method's name."""
    widths = {head: max(12, len(head) + 2) for head in columns}
    lines = [f"{'':<20}{'regret':>8}" + "".join(f"{head:>{wide}}" for head, wide in widths.items())]
    for name, evaluation in found.items():
        cells = "".join(f"{columns[head](name):>{wide}}" for head, wide in widths.items())
        lines.append(f"{name:<20}{evaluation.ratio_of_sums:>8.2%}{cells}")
    return "\n".join(lines)


def saved(found: Mapping[str, Evaluation], metric: str, form: str) -> Callable[[str], str]:
    """How much less than two-stage, with its 95 % interval."""

    def show(name: str) -> str:
        if name == "two-stage":
            return ""
        value, low, high = (0.0 - part for part in getattr(dfl.compare(found[name], found["two-stage"]), metric))
        return f"{value:{form}} [{high:{form}}, {low:{form}}]"

    return show


def picture(path: Path, size: tuple[float, float], draw: Callable[..., None], *given: Any) -> None:
    """draw(figure, *given), in the examples' style, to a file; nothing where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, layout="constrained")
        draw(figure, *given)
    except ModuleNotFoundError as error:
        print(f"no plot: {error}")
        return
    for axes in figure.axes:
        axes.title.set(weight="bold", color=INK, size=12)
        axes.spines[["top"] if axes.yaxis.get_label_position() == "right" else ["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"\nplot: {path}")


def outlined(width: float) -> Any:
    """Path effects of a route on a map: a dark edge, so that grey stands out among greys."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=width + 2, foreground=INK)]


def draw_route(axes: Any, segments: np.ndarray, decision: Tensor, name: str, cost: str, width: float) -> None:
    """The segments `(arcs, 2, 2)` of a map that a method's decision takes."""
    from matplotlib.collections import LineCollection

    style = {"color": color_of(name), "linewidths": width, "path_effects": outlined(width)}
    axes.add_collection(LineCollection(list(segments[decision.numpy() > 0.5]), label=f"{name}: {cost}", **style))


def percent(*axes: Any, decimals: int = 0) -> None:
    """Labels of axes (`axes.xaxis`) in percent."""
    from matplotlib.ticker import PercentFormatter

    for axis in axes:
        axis.set_major_formatter(PercentFormatter(1, decimals=decimals))


def large_gain(gain: np.ndarray) -> int:
    """An instance of large gain to show: the ninth decile."""
    return int(np.argsort(gain)[int(0.9 * len(gain))])


def draw_shares(axes: Any, excess: Mapping[str, np.ndarray], labels: Mapping[str, str], **settings: Any) -> None:
    """The share of instances whose decision costs more than the best by at least so much."""
    for name, values in excess.items():
        share = np.linspace(1, 0, len(values))
        axes.plot(np.sort(values), share, color=color_of(name), linewidth=2.2, label=f"{name}: {labels[name]}")
    percent(axes.xaxis, axes.yaxis)
    axes.set(ylim=(0, 1), **settings)


def draw_regrets(axes: Any, found: Mapping[str, Evaluation], decimals: int = 0) -> None:
    """Σ regret / Σ optimum of each method, with its interval."""
    for place, (name, evaluation) in enumerate(found.items()):
        value, low, high = evaluation.metrics["ratio_of_sums"]
        axes.barh(place, value, 0.7, color=color_of(name))
        axes.errorbar(value, place, xerr=[[value - low], [high - value]], ecolor=INK, elinewidth=1)
    axes.set_yticks(range(len(found)), [name.replace(", ", ",\n") for name in found])
    axes.invert_yaxis()
    percent(axes.xaxis, decimals=decimals)
    axes.set(xlabel="Σ regret / Σ optimum, with 95 % interval")
