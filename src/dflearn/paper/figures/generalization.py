"""The generalization bound of SCE, checked on a class of 50 linear maps.

    R(M) − R̂(M) ≤ 2 ℜ + 2D √(log(1/δ) / 2N)          for all M in the class, with probability 1 − δ
    R(M̂) − min R ≤ 2 ℜ + 4D √(log(2/δ) / 2N)          for M̂ that minimizes R̂, likewise

R is the expected SCE, R̂ its mean over N draws, ℜ the Rademacher complexity of the class, D the diameter of the feasible
set; costs and predictions have length at most one. The distribution is uniform over a finite population, so R is
known exactly, and samples are drawn from it with replacement.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch

from dflearn.data import Batch
from dflearn.layers import Exact
from dflearn.losses import SCE
from dflearn.paper.figures.base import Plot
from dflearn.problems import Selection
from dflearn.program import Program
from dflearn.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAPS, FEATURES, ITEMS = 50, 4, 5
POPULATION, SAMPLES, RADEMACHER_DRAWS = 4000, 1000, 1000
SIZES = (25, 50, 100, 200, 400, 800)
LEVELS = (0.5, 0.2, 0.1, 0.05, 0.01)
SHOWN_LEVEL, DOTS = 0.05, 150


def diameter(program: Program) -> float:
    """max ‖w − w'‖ over the feasible 0-1 points, which span the relaxation of this program."""
    points = torch.tensor(list(product([0.0, 1.0], repeat=program.n)), dtype=torch.float64)
    feasible = points[program.violation(points) <= 1e-9]
    return float(torch.cdist(feasible, feasible).max())


def population_losses(population: int = POPULATION, seed: int = 1) -> tuple[np.ndarray, float]:
    """SCE of each map at each point of the population, `(MAPS, population)`, and the diameter D."""
    rng = np.random.RandomState(seed)
    problem = Selection(items=ITEMS, k=1, seed=seed)

    def contraction(near: np.ndarray | None = None) -> np.ndarray:
        """A linear map of norm one."""
        matrix = rng.randn(ITEMS, FEATURES) if near is None else near + 0.5 * rng.randn(ITEMS, FEATURES)
        return matrix / np.linalg.norm(matrix, 2)

    truth = contraction()
    # Half of the class are guesses near the truth, half have nothing to do with it.
    maps = np.stack([contraction(truth if k % 2 else None) for k in range(MAPS)])
    x = _into_ball(rng.randn(population, FEATURES))
    y = torch.as_tensor(_into_ball(x @ truth.T + 0.2 * rng.randn(population, ITEMS)))
    exact = Exact(problem.solver())
    loss, batch = SCE(exact), Batch(torch.as_tensor(x), y, exact(y))
    values = np.stack([loss(torch.as_tensor(x @ one.T), batch).numpy() for one in maps])
    return values, diameter(problem.program)


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


def make(quick: bool = False) -> Plot:
    samples, sizes = (200, SIZES[::2]) if quick else (SAMPLES, SIZES)
    losses, span = population_losses()
    rng = np.random.RandomState(1)
    rows: list[dict[str, str | int | float]] = []
    drawn = {}
    for size in sizes:
        value, error = complexity(losses, size, samples if quick else RADEMACHER_DRAWS, rng)
        drawn[size] = gaps(losses, size, samples, rng)
        for level in LEVELS:
            first, second = bounds(value, span, size, level)
            rows.append(
                {
                    "N": size,
                    "delta": level,
                    "complexity": value,
                    "standard error": error,
                    "uniform bound": first,
                    "uniform violations": float((drawn[size][0] > first).mean()),
                    "uniform gap quantile": float(np.quantile(drawn[size][0], 1 - level)),
                    "excess bound": second,
                    "excess violations": float((drawn[size][1] > second).mean()),
                    "excess gap quantile": float(np.quantile(drawn[size][1], 1 - level)),
                }
            )
    rates = [float(row[f"{kind} violations"]) for row in rows for kind in ("uniform", "excess")]
    loose = [float(row["uniform bound"]) / float(row["uniform gap quantile"]) for row in rows]
    worst = max(
        float(row[f"{kind} violations"]) / float(row["delta"]) for row in rows for kind in ("uniform", "excess")
    )
    findings = [
        f"Of {samples} samples of each size at most {100 * max(rates):.1f} % violate a bound that holds with probability "
        f"1 − δ, for δ from {min(LEVELS):g} to {max(LEVELS):g}; the largest ratio of that share to δ is {worst:.2f}.",
        f"The first bound is {min(loose):.1f} to {max(loose):.1f} times the quantile that it bounds; D = {span:.4f}, and the "
        f"Monte-Carlo error of the complexity is at most {max(float(row['standard error']) for row in rows):.4f}.",
    ]
    title = "The generalization bound of SCE on 50 linear maps"
    return Plot("generalization", title, _draw(rows, drawn), rows, findings)


@style.styled
def _draw(rows: list[dict[str, str | int | float]], drawn: dict[int, tuple[np.ndarray, np.ndarray]]) -> Figure:
    figure = style.new_figure(9.4, 3.7)
    sizes = list(drawn)
    shown = [row for row in rows if row["delta"] == SHOWN_LEVEL]
    titles = ("every map: R − R̂", "the map that fits best: R − least R")
    for k, (axes, kind, title) in enumerate(zip(figure.subplots(1, 2), ("uniform", "excess"), titles, strict=True)):
        for size in sizes:
            some = drawn[size][k][:DOTS]
            spots = size * np.exp(np.random.RandomState(size).uniform(-0.12, 0.12, len(some)))
            axes.plot(spots, some, ".", color=style.SKY, markersize=3, alpha=0.5)
        quantiles = [float(row[f"{kind} gap quantile"]) for row in shown]
        limits = [float(row[f"{kind} bound"]) for row in shown]
        axes.plot(sizes, quantiles, "-o", color=style.BLUE, markersize=4)
        axes.plot(sizes, limits, "-o", color=style.VERMILLION, markersize=4)
        axes.set(xscale="log", xlabel="sample size N", title=title)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        axes.annotate(f"bound, δ = {SHOWN_LEVEL:g}", (sizes[1], limits[1]), (8, 6), textcoords="offset points",
                      color=style.VERMILLION)  # fmt: skip
        axes.annotate(f"{100 * (1 - SHOWN_LEVEL):g} % of the samples lie below", (sizes[1], quantiles[1]), (4, 8),
                      textcoords="offset points", color=style.BLUE)  # fmt: skip
    return figure
