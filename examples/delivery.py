"""Delivery on a road network that is no grid: every day another customer, and travel times that depend on the day.

    python examples/delivery.py [--quick]

    min over w of Σ_a time_a w_a   s.t.   out(v) − in(v) = 1 at the depot, −1 at today's customer, 0 elsewhere,   0 ≤ w ≤ 1

Roads run both ways, so the graph has cycles and no topological order. The linear program does not mind: its vertices are
whole paths (with cycles only where a predicted time is negative). The customer differs from day to day: b of `Instance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import cKDTree
from torch import Tensor, nn

import beside
import dflearn as dfl
from beside import single
from dflearn.data import DecisionDataset
from dflearn.evaluation import Evaluation
from dflearn.losses import MSE, SCE, SPOPlus
from dflearn.report.style import INK


@dataclass(frozen=True, eq=False)
class Roads:
    """Places in the unit square and the roads between them, both directions of each. positions `(nodes, 2)`; tails, heads
    `(arcs,)`; node 0 is the depot."""

    positions: np.ndarray
    tails: np.ndarray
    heads: np.ndarray

    @classmethod
    def random(cls, nodes: int, seed: int, neighbours: int = 4) -> Roads:
        """A geometric graph: each place joined to its nearest ones, and all of them by a tree."""
        positions = beside.scattered(np.random.RandomState(seed), np.array([[0.04, 0.04]]), nodes)
        distance = np.linalg.norm(positions[:, None] - positions[None, :], axis=-1)
        _, near = cKDTree(positions).query(positions, neighbours + 1)
        joined = np.zeros((nodes, nodes), bool)
        joined[np.repeat(np.arange(nodes), neighbours), near[:, 1:].reshape(-1)] = True
        joined |= minimum_spanning_tree(distance).toarray() > 0
        return cls(positions, *np.nonzero(joined | joined.T))

    @property
    def lengths(self) -> np.ndarray:
        return np.linalg.norm(self.positions[self.tails] - self.positions[self.heads], axis=1)

    @property
    def centrality(self) -> np.ndarray:
        """One in the middle of town, falling to zero outside it, at the middle of each arc."""
        middle = (self.positions[self.tails] + self.positions[self.heads]) / 2
        return np.exp(-(np.linalg.norm(middle - 0.5, axis=1) ** 2) / 0.08)

    def program(self) -> dfl.Program:
        nodes = len(self.positions)
        each = np.arange(nodes)[:, None]
        A = sp.csr_array((each == self.tails) * 1.0 - (each == self.heads))
        return dfl.Program(A=A, b=np.zeros(nodes), upper=1, name=f"delivery, {nodes} places")  # b comes with each day

    def days(self, count: int, seed: int) -> tuple[DecisionDataset, Tensor]:
        """Features of every arc on every day `(count, arcs, 5)`, times `(count, arcs)`, each day's customer as b; and the
        mean times given the features, which no model here can express."""
        rng = np.random.RandomState(seed)
        rush, rain = rng.beta(1.5, 1.5, (count, 1)), rng.uniform(size=(count, 1)) ** 2
        length, centrality = self.lengths[None, :], self.centrality[None, :]
        # Jams build up where the town is dense and the day is busy, and far more steeply than in proportion.
        mean = length * (1 + 15 * (rush * centrality) ** 3 + 1.5 * rain * centrality)
        times = mean * rng.gamma(100, 0.01, mean.shape)  # noise of mean one and spread 0.1
        columns = [length, length * rush, length * centrality, length * rush * centrality, length * rain * centrality]
        features = np.stack([np.broadcast_to(column, times.shape) for column in columns], axis=-1)
        b = np.zeros((count, len(self.positions)))
        far = np.flatnonzero(np.linalg.norm(self.positions - self.positions[0], axis=1) > 0.6)
        b[:, 0], b[np.arange(count), rng.choice(far, count)] = 1, -1
        scale = float(length.mean())  # times and features are of size one then
        instance = dfl.Instance(b=single(b))
        return DecisionDataset(single(features) / scale, single(times) / scale, instance=instance), single(mean) / scale


def study(program: dfl.Program, data: DecisionDataset, mean: Tensor, seed: int, epochs: int) -> dict[str, Evaluation]:
    solver = dfl.HiGHS(program)
    parts = dfl.label(data, solver).split(seed, test=0.5, validation=0.25)
    losses = {"two-stage": MSE(), "SPO+": SPOPlus(dfl.Exact(solver)), "SCE": SCE(dfl.Smoothed(program, mu=1.0))}
    # Softplus keeps times positive: a loop of negative time would be worth driving round.
    make_model = lambda: nn.Sequential(dfl.models.SharedLinear(data.features.shape[-1], seed=seed), nn.Softplus())  # noqa: E731
    options = {"epochs": epochs, "lr": 0.1, "seed": seed, "batch_size": 8}
    return beside.one_seed(parts, losses, make_model, (program, solver), mean, **options)


def draw(figure: Any, roads: Roads, data: DecisionDataset, found: dict[str, Evaluation]) -> None:
    from matplotlib.collections import LineCollection

    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    # Of the busier half of the test days, one of large gain: the ninth decile.
    excess = {name: evaluation.regrets / evaluation.optima for name, evaluation in found.items()}
    all_slowness = data.costs[found["SCE"].ids].numpy() / roads.lengths
    busy = np.flatnonzero(all_slowness.max(1) >= np.median(all_slowness.max(1)))
    which = int(busy[beside.large_gain((excess["two-stage"] - excess["SCE"])[busy])])
    segments, slowness = roads.positions[np.stack([roads.tails, roads.heads], axis=1)], all_slowness[which]
    # The slower of the two directions is drawn last; darker means slower, on a logarithmic scale.
    order = np.argsort(slowness)
    width = 2 + 2 * np.log(slowness / slowness.min())[order] / np.log(slowness.max() / slowness.min())
    drawn = LineCollection(list(segments[order]), array=np.log(slowness)[order], cmap="bone_r", linewidths=width)
    drawn.set_clim(np.log(slowness.min()) - 1, np.log(slowness.max()))
    left.add_collection(drawn)
    for name, thick in (("SCE", 9), ("two-stage", 4)):
        cost = f"{excess[name][which]:.0%} too slow" if excess[name][which] > 1e-6 else "the fastest"
        beside.draw_route(left, segments, found[name].decisions[which], name, cost, thick)
    left.scatter(*roads.positions.T, s=14, color="white", edgecolors=INK, linewidths=0.8, zorder=3)
    customer = int(data.instance.b[int(found["SCE"].ids[which])].argmin())
    for node, text in ((0, "depot"), (customer, "customer")):
        left.scatter(*roads.positions[node], s=110, color=INK, zorder=4)
        left.annotate(text, roads.positions[node], (0, 9), textcoords="offset points", ha="center", weight="bold")
    left.set(aspect="equal", xlim=(-0.05, 1.05), ylim=(-0.03, 1.03))
    left.set_axis_off()
    left.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2)
    left.set_title("One test day; darker roads are slower")

    totals = {name: f"{evaluation.ratio_of_sums:.1%} in all" for name, evaluation in found.items()}
    xlabel = "slower than the fastest route, at least by"
    beside.draw_shares(right, excess, totals, xlabel=xlabel, ylabel="share of test days", xlim=(0, 0.3))
    right.legend(frameon=False)
    right.set_title(f"All {len(all_slowness)} test days")


def main() -> None:
    options = beside.options_of(__doc__, "20 places, 40 days, 2 epochs", plot="delivery.png").parse_args()
    places, days = (20, 40) if options.quick else (100, 600)
    roads = Roads.random(places, options.seed)
    program = roads.program()
    print(program)
    data, mean = roads.days(days, options.seed)
    found = study(program, data, mean, options.seed, 2 if options.quick else options.epochs)
    print(f"\n{len(found['SCE'].ids)} test days")
    best = {"best route": lambda name: f"{found[name].exact_share:.0%}"}
    print(beside.comparison(found, best | {"less than two-stage": beside.saved(found, "ratio_of_sums", ".2%")}))
    beside.picture(options.plot, (11.5, 5.4), draw, roads, data, found)


if __name__ == "__main__":
    main()
