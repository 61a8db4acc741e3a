"""Two figures from many draws: gradients of regret and SCE for the best of M items, and the generalization bound of SCE."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from dflearn.data import Batch
from dflearn.layers import Exact, Smoothed
from dflearn.losses import SCE, Regret
from dflearn.problems import Selection
from dflearn.report import style
from dflearn.studies.paper.figures import Plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# -- gradients ----------------------------------------------------------------------------------------------------
#
# The best of M items: max over w of yᵀw   s.t.   Σ w ≤ 1,   w ≥ 0;   y and ŷ are two permutations of 1, …, M
# With both regularizers, (μ/2)‖w‖², which the paper's text states, and μ‖w‖₂, which gives its table.

ITEMS = (5, 10, 20, 40, 80, 100)
STRENGTHS = (0.1, 0.5, 0.99, 1.05, 1.5, 2.0, 5.0)
DRAWS = 20
Row = dict[str, str | int | float]
REGULARIZERS: tuple[Literal["squared", "norm"], ...] = ("squared", "norm")


def published_distances() -> dict[tuple[float, int], float]:
    """The paper's table: (μ, M) → Manhattan distance of the smoothed solution from the LP's."""
    text = (files("dflearn.studies.paper") / "manhattan_table.csv").read_text()
    return {
        (float(row["mu"]), int(column.removeprefix("M"))): float(value)
        for row in csv.DictReader(text.splitlines())
        for column, value in row.items()
        if column != "mu"
    }


def simulate(items: int, mu: float, regularizer: Literal["squared", "norm"], draws: int, seed: int) -> Row:
    """Means over the draws: |gradient| per component of regret and of SCE, ‖w_μ(ŷ) − w*(ŷ)‖₁."""
    problem = Selection(items=items, k=1, seed=seed)
    rng = np.random.RandomState(seed)
    y, predicted = (torch.as_tensor(np.stack([rng.permutation(items) + 1.0 for _ in range(draws)])) for _ in range(2))
    exact, smoothed = Exact(problem.solver()), Smoothed(problem.program, mu, regularizer=regularizer)
    batch = Batch(y, y, exact(y))
    row: Row = {"regularizer": regularizer, "mu": mu, "M": items}
    for name, loss in (("regret", Regret(smoothed)), ("SCE", SCE(smoothed))):
        at = predicted.clone().requires_grad_()
        loss(at, batch).sum().backward()
        assert at.grad is not None
        row[f"mean |gradient| of {name}"] = float(at.grad.abs().mean())
    row["distance"] = float((smoothed(predicted) - exact(predicted)).abs().sum(-1).mean())
    return row


def gradients(quick: bool = False) -> Plot:
    draws = 5 if quick else DRAWS
    published = published_distances()
    rows: list[Row] = [
        {**simulate(items, mu, regularizer, draws, seed=1), "published distance": published[mu, items]}
        for regularizer in REGULARIZERS
        for mu in STRENGTHS
        for items in ITEMS
    ]
    title = "The best of M items: gradients, and how far smoothing moves the solution"
    return Plot("gradients", title, _draw_gradients(rows), rows, _what_gradients_say(rows), manhattan_table(rows))


def manhattan_table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: μ, the published distance, and ours with both regularizers, as means over M."""
    header = ["μ", "published", "μ‖w‖", "(μ/2)‖w‖²"]

    def mean(mu: float, column: str, kind: str) -> str:
        values = [float(row[column]) for row in rows if row["mu"] == mu and row["regularizer"] == kind]
        return f"{np.mean(values):.3f}"

    columns = ("published distance", "norm"), ("distance", "norm"), ("distance", "squared")
    return header, [[f"{mu:g}", *(mean(mu, *column) for column in columns)] for mu in STRENGTHS]


def _what_gradients_say(rows: list[Row]) -> list[str]:
    vanishing = max(float(r["mean |gradient| of regret"]) for r in rows if float(r["mu"]) < 1)
    gap = max(abs(float(r["distance"]) - float(r["published distance"])) for r in rows if r["regularizer"] == "norm")
    smallest = min(float(r["mean |gradient| of SCE"]) * int(r["M"]) for r in rows)
    ours = {kind: next(r for r in rows if r["mu"] == 2.0 and r["regularizer"] == kind) for kind in REGULARIZERS}
    return [
        "Where μ < 1, the gap between the two best items, the regret's gradient is "
        f"{vanishing:.1e} at most; SCE's sum of |components| is at least "
        f"{smallest:.2f} everywhere. Drawn with μ‖w‖; the numbers hold (μ/2)‖w‖² too.",
        f"Distances with μ‖w‖ agree with the published table to {gap:.4f}; with (μ/2)‖w‖² they do not "
        f"(μ = 2: {ours['norm']['distance']:.3f} against {ours['squared']['distance']:.3f}).",
    ]


@style.styled
def _draw_gradients(rows: list[Row]) -> Figure:
    figure = style.new_figure(10.2, 3.9)
    left, middle, right = figure.subplots(1, 3)
    places = np.arange(len(STRENGTHS))

    def column(name: str, kind: str, items: int) -> list[float]:
        return [float(row[name]) for row in rows if row["regularizer"] == kind and row["M"] == items]

    for axes, name in ((left, "regret"), (middle, "SCE")):
        for items, color in zip(ITEMS, style.SEQUENCE, strict=True):
            values = column(f"mean |gradient| of {name}", "norm", items)
            axes.plot(places, values, "-o", color=color, markersize=3.5, label=f"M = {items}")
        axes.set_yscale("symlog", linthresh=0.01, linscale=0.4)
        axes.set(title=f"mean |gradient| of smoothed {name}", ylim=(-0.002, 1.3))
        axes.set_yticks([0, 0.01, 0.1, 1], ["0", "0.01", "0.1", "1"])
    left.legend()
    right.plot(places, column("distance", "norm", ITEMS[-1]), color=style.VERMILLION, label="μ‖w‖")
    right.plot(places, column("distance", "squared", ITEMS[-1]), color=style.BLUE, label="(μ/2)‖w‖²")
    published = column("published distance", "norm", ITEMS[-1])
    right.plot(places, published, "o", color=style.INK, markerfacecolor="none", markersize=7, label="published")
    right.set(title="distance from the LP's solution")
    right.legend()
    for axes in (left, middle, right):
        axes.axvline(2.5, color=style.FAINT, linewidth=1, linestyle=":")  # μ = 1
        axes.set_xticks(places, [f"{mu:g}" for mu in STRENGTHS])
        axes.set_xlabel("smoothing μ")
    return figure


# -- generalization -----------------------------------------------------------------------------------------------
#
#     R(M) − R̂(M) ≤ 2 ℜ + 2D √(log(1/δ) / 2N)          for all M in the class, with probability 1 − δ
#     R(M̂) − min R ≤ 2 ℜ + 4D √(log(2/δ) / 2N)          for M̂ that minimizes R̂, likewise
#
# R is the expected SCE, R̂ its mean over N draws, ℜ the Rademacher complexity of the class, D the diameter of the feasible
# set; costs and predictions have length at most one. The distribution is uniform over a finite population, so R is
# known exactly, and samples are drawn from it with replacement.

MAPS, FEATURES, CHOICES = 50, 4, 5
POPULATION, SAMPLES, RADEMACHER_DRAWS = 4000, 1000, 1000
DIAMETER = float(np.sqrt(2))  # of {w ≥ 0, Σ w ≤ 1}: the distance of two unit vectors
SIZES = (25, 50, 100, 200, 400, 800)
LEVELS = (0.5, 0.2, 0.1, 0.05, 0.01)
SHOWN_LEVEL, DOTS = 0.05, 150
KINDS = ("uniform", "excess")  # the two inequalities


def population_losses(population: int = POPULATION) -> np.ndarray:
    """SCE of each map at each point of the population, `(MAPS, population)`."""
    rng, exact = np.random.RandomState(1), Exact(Selection(items=CHOICES, k=1, seed=1).solver())

    def contraction(near: np.ndarray | None = None) -> np.ndarray:
        matrix = rng.randn(CHOICES, FEATURES) if near is None else near + 0.5 * rng.randn(CHOICES, FEATURES)
        return matrix / np.linalg.norm(matrix, 2)

    truth = contraction()
    # Half of the class are guesses near the truth, half have nothing to do with it.
    maps = np.stack([contraction(truth if k % 2 else None) for k in range(MAPS)])
    x = _into_ball(rng.randn(population, FEATURES))
    y = torch.as_tensor(_into_ball(x @ truth.T + 0.2 * rng.randn(population, CHOICES)))
    loss, batch = SCE(exact), Batch(torch.as_tensor(x), y, exact(y))
    return np.stack([loss(torch.as_tensor(x @ one.T), batch).numpy() for one in maps])


def _into_ball(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))


def complexity(losses: np.ndarray, size: int, draws: int, rng: np.random.RandomState) -> tuple[float, float]:
    """ℜ = E max over maps of (1/N) Σ σ_i loss_i, over samples and signs: its Monte-Carlo mean and standard error."""
    suprema = np.empty(draws)
    for k in range(draws):
        sample = losses[:, rng.randint(losses.shape[1], size=size)]
        suprema[k] = (sample @ rng.choice([-1.0, 1.0], size)).max() / size
    return float(suprema.mean()), float(suprema.std(ddof=1) / np.sqrt(draws))


def gaps(losses: np.ndarray, size: int, samples: int, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Of each sample: max over maps of R − R̂, and R of the map with the least R̂ minus the least R; `(samples,)`."""
    risks = losses.mean(1)
    uniform, excess = np.empty(samples), np.empty(samples)
    for k in range(samples):
        empirical = losses[:, rng.randint(losses.shape[1], size=size)].mean(1)
        uniform[k] = (risks - empirical).max()
        excess[k] = risks[empirical.argmin()] - risks.min()
    return uniform, excess


def bounds(complexity: float, diameter: float, size: int, level: float) -> tuple[float, float]:
    """The right-hand sides of the two inequalities."""
    first = 2 * complexity + 2 * diameter * np.sqrt(np.log(1 / level) / (2 * size))
    second = 2 * complexity + 4 * diameter * np.sqrt(np.log(2 / level) / (2 * size))
    return float(first), float(second)


def generalization(quick: bool = False) -> Plot:
    samples, sizes = (200, SIZES[::2]) if quick else (SAMPLES, SIZES)
    losses = population_losses()
    rng = np.random.RandomState(1)
    rows: list[Row] = []
    drawn = {}
    for size in sizes:
        value, error = complexity(losses, size, samples if quick else RADEMACHER_DRAWS, rng)
        drawn[size] = gaps(losses, size, samples, rng)
        for level in LEVELS:
            row: Row = {"N": size, "delta": level, "complexity": value, "standard error": error}
            for kind, gap, bound in zip(KINDS, drawn[size], bounds(value, DIAMETER, size, level), strict=True):
                quantile, violations = float(np.quantile(gap, 1 - level)), float((gap > bound).mean())
                row |= {f"{kind} bound": bound, f"{kind} violations": violations, f"{kind} gap quantile": quantile}
            rows.append(row)
    rates = [(float(row[f"{kind} violations"]), float(row["delta"])) for row in rows for kind in KINDS]
    loose = [float(row["uniform bound"]) / float(row["uniform gap quantile"]) for row in rows]
    worst = max(share / delta for share, delta in rates)
    findings = [
        f"Of {samples} samples of each size at most {100 * max(rates)[0]:.1f} % violate a bound that holds with probability "
        f"1 − δ, for δ from {min(LEVELS):g} to {max(LEVELS):g}; the largest ratio of that share to δ is {worst:.2f}.",
        f"The first bound is {min(loose):.1f} to {max(loose):.1f} times the quantile that it bounds; D = {DIAMETER:.4f}, and the "
        f"Monte-Carlo error of the complexity is at most {max(float(row['standard error']) for row in rows):.4f}.",
    ]
    title = "The generalization bound of SCE on 50 linear maps"
    return Plot("generalization", title, _draw_bounds(rows, drawn), rows, findings)


@style.styled
def _draw_bounds(rows: list[Row], drawn: dict[int, tuple[np.ndarray, np.ndarray]]) -> Figure:
    figure = style.new_figure(9.4, 3.7)
    sizes = list(drawn)
    shown = [row for row in rows if row["delta"] == SHOWN_LEVEL]
    titles = ("every map: R − R̂", "the map that fits best: R − least R")
    panels = figure.subplots(1, 2)
    for k, (axes, kind, title) in enumerate(zip(panels, KINDS, titles, strict=True)):
        for size in sizes:
            some = drawn[size][k][:DOTS]
            spots = size * np.exp(np.random.RandomState(size).uniform(-0.12, 0.12, len(some)))
            axes.plot(spots, some, ".", color=style.SKY, markersize=3, alpha=0.5)
        for column, color, name in (
            (f"{kind} gap quantile", style.BLUE, f"{100 * (1 - SHOWN_LEVEL):g} % of the samples lie below"),
            (f"{kind} bound", style.VERMILLION, f"bound, δ = {SHOWN_LEVEL:g}"),
        ):
            values = [float(row[column]) for row in shown]
            axes.plot(sizes, values, "-o", color=color, markersize=4, label=name)
        axes.set(xscale="log", xlabel="sample size N", title=title)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    panels[0].legend()
    return figure
