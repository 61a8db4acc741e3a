"""Your own solver, no program at all: a ship crosses an ice field, and a routine of fifteen lines finds its way.

    python examples/own_solver.py [--quick]

Each cell of a map costs time; the ship goes from west to east, one column at a step, straight on or one row up or down.
`cheapest_crossing` is ordinary numpy: it could be C, a web service or thirty years old. `from_callable` makes it a solver,
and every loss that needs a solver only (SPO+, perturbed Fenchel-Young, SCE without smoothing) trains through it.
"""

import math
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter
from torch import Tensor

import dflearn as dfl
from beside import draw_shares, large_gain, one_seed, options_of, outlined, picture, single
from dflearn.data import DecisionDataset
from dflearn.report.style import LINE, color_of


def cheapest_crossing(costs: np.ndarray) -> np.ndarray:
    """costs `(count, rows, columns)` → the cells of the cheapest way, zeros and ones of the same shape.

    reach(r, k) = cost(r, k) + min(reach(r − 1, k − 1), reach(r, k − 1), reach(r + 1, k − 1)).  Costs may be negative: SPO+
    asks for 2ŷ − y, which often is. Dijkstra's algorithm, which needs costs ≥ 0, would give wrong answers there.
    """
    count, rows, columns = costs.shape
    reach, came_from = costs[:, :, 0], np.zeros(costs.shape, np.int64)
    for k in range(1, columns):
        walled = np.pad(reach, ((0, 0), (1, 1)), constant_values=np.inf)
        choices = np.stack([walled[:, :-2], walled[:, 1:-1], walled[:, 2:]])
        came_from[:, :, k] = np.arange(rows) + choices.argmin(0) - 1
        reach = costs[:, :, k] + choices.min(0)
    way, each = np.zeros(costs.shape), np.arange(count)
    row = reach.argmin(1)
    for k in reversed(range(columns)):
        way[each, row, k] = 1
        row = came_from[each, row, k]
    return way


def ice_maps(count: int, rows: int, columns: int, seed: int) -> tuple[DecisionDataset, Tensor]:
    """Radar, optical and wind images as features of each cell `(count, cells, 3)`, the times, and their means. Thin ice slows a
    ship a little, thick ice nearly stops it. The optical image tells open water from thin ice and sees nothing in thick ice;
    radar tells how thick thick ice is, and sees only speckle elsewhere."""
    rng = np.random.RandomState(seed)

    def field(width: float) -> np.ndarray:
        drawn = np.stack([gaussian_filter(rng.normal(size=(rows, columns)), width) for _ in range(count)])
        return (drawn - drawn.mean()) / drawn.std()

    thickness, wind = field(1.6), field(4.0)
    mean = 1 + 0.7 * np.exp(1.8 * thickness) + 0.2 * wind.clip(0)
    times = mean * rng.gamma(25, 0.04, mean.shape)  # noise of mean one and spread 0.2
    radar = thickness.clip(0) + 0.4 * rng.normal(size=mean.shape)
    optical = thickness.clip(max=0) + 0.2 * rng.normal(size=mean.shape)
    features = np.stack([radar, optical, wind], axis=-1)
    cells = rows * columns
    return DecisionDataset(single(features).flatten(1, 2), single(times).flatten(1)), single(mean).reshape(count, cells)


def study(
    solver: dfl.Solver, data: DecisionDataset, mean: Tensor, seed: int, epochs: int
) -> tuple[DecisionDataset, dict[str, dfl.Evaluation]]:
    """The test maps, and how each method does on them."""
    parts = dfl.label(data, solver).split(seed, test=0.5, validation=0.25)
    sigma = float(parts.train.costs.mean())
    losses = {
        "two-stage": dfl.losses.MSE(),
        "SPO+": dfl.losses.SPOPlus(dfl.Exact(solver)),
        "PFY": dfl.losses.FenchelYoung(dfl.Perturbed(solver, sigma, samples=3, generator=seed)),
    }
    make_model = lambda: dfl.models.SharedLinear(data.features.shape[-1], seed=seed)  # noqa: E731
    options = {"epochs": epochs, "lr": 0.1, "seed": seed, "batch_size": 16}
    return parts.test, one_seed(parts, losses, make_model, [solver], mean, **options)


def draw(figure: Any, shape: list[int], test: DecisionDataset, found: dict[str, dfl.Evaluation]) -> None:
    regrets = {name: evaluation.regrets / evaluation.optima for name, evaluation in found.items()}
    which = large_gain(regrets["two-stage"] - regrets["SPO+"])
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    times = test.costs[which].reshape(shape)
    left.imshow(times.log().numpy(), cmap="Purples_r", alpha=0.6, aspect="auto")
    best = test.decisions[which].reshape(shape).argmax(0)
    left.plot(best, color="white", linewidth=7, label="best", path_effects=outlined(7))
    for name in ("two-stage", "SPO+"):
        way, label = found[name].decisions[which].reshape(shape), f"{name}: {regrets[name][which]:.0%} too slow"
        left.plot(way.argmax(0), color=color_of(name), linewidth=3, label=label, path_effects=outlined(3))
    left.set_axis_off()
    legend = left.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, frameon=True, facecolor=LINE)
    legend.get_frame().set_linewidth(0)
    left.set_title("One test map, west to east: lighter cells are slower")
    means = {name: f"{values.mean():.1%}" for name, values in regrets.items()}
    draw_shares(right, regrets, means, xlabel="slower than the best way, at least by", ylabel="share of test maps")
    right.set_xlim(0, float(np.quantile(regrets["two-stage"], 0.99)))
    right.legend(frameon=False, title="mean of regret / optimum")
    right.set_title(f"All {len(test)} test maps")


def main() -> None:
    options = options_of(__doc__, "small maps, 40 of them, 2 epochs", plot="own_solver.png").parse_args()
    maps, *shape = (40, 8, 12) if options.quick else (400, 24, 48)

    def cross(c: np.ndarray) -> np.ndarray:
        return cheapest_crossing(c.reshape(-1, *shape)).reshape(c.shape)

    solver = dfl.from_callable(cross, n=math.prod(shape), batched=True, name=f"crossing of {(*shape,)}")
    data, mean = ice_maps(maps, *shape, options.seed)
    test, found = study(solver, data, mean, options.seed, 2 if options.quick else options.epochs)
    print(f"{solver!r}\n\n{len(test)} test maps\n{'':<20}{'regret / optimum':>18}{'less than two-stage':>24}")
    regrets = {name: evaluation.regrets / evaluation.optima for name, evaluation in found.items()}
    for name, regret in regrets.items():
        less = regrets["two-stage"] - regret
        error = 1.96 * less.std(ddof=1) / len(less) ** 0.5
        shown = "" if name == "two-stage" else f"{less.mean():.2%} ± {error:.2%}"
        print(f"{name:<20}{regret.mean():>18.2%}{shown:>24}")
    picture(options.plot, (13, 4.6), draw, shape, test, found)


if __name__ == "__main__":
    main()
