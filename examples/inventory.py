"""Buying ahead: known orders, unknown prices. When to buy, and how much, for the next fortnight?

    python examples/inventory.py
    python examples/inventory.py --quick

    min over (buy, stock, order) of  Σ_t price_t buy_t + holding Σ_t stock_t + fee Σ_t order_t
        s.t.  stock_{t−1} + buy_t − stock_t = demand_t,   buy_t ≤ order_t,   stock_t ≤ room,   order_t ∈ {0, 1}

Quantities are truckloads. Prices are predicted; holding costs and fees are known (d of `Program`). Each fortnight has its own demand: b of `Instance`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

import dflearn as dfl
from dflearn.data import DecisionDataset
from dflearn.evaluation import Evaluation
from dflearn.losses import MSE, SCE, SPOPlus

INK, GREY, RED, BLUE, GREEN = "#1f2933", "#c3cad3", "#d1495b", "#2b6cb0", "#5aa469"
COLORS = {"two-stage": RED, "SPO+": GREEN, "SCE": BLUE, "knowing the mean": GREY}
DAYS, ROOM, HOLDING, FEE = 14, 2.0, 0.02, 0.1
GRID = (0.003, 0.01, 0.03, 0.1)  # of μ


def inventory_program() -> dfl.Program:
    """Variables: buy (14), stock (14), order (14). S puts the price of each day on what is bought that day."""
    one, zero = sp.eye_array(DAYS), sp.csr_array((DAYS, DAYS))
    yesterday = sp.diags_array(np.ones(DAYS - 1), offsets=-1, shape=(DAYS, DAYS))
    return dfl.Program(
        A=sp.hstack([one, yesterday - one, zero]),
        b=np.zeros(DAYS),  # the demand: it comes with each fortnight
        G=sp.hstack([one, zero, -one]),
        h=np.zeros(DAYS),
        upper=np.repeat([1.0, ROOM, 1.0], DAYS),
        S=sp.vstack([one, zero, zero]),
        d=np.repeat([0.0, HOLDING, FEE], DAYS),
        integer=np.arange(2 * DAYS, 3 * DAYS),
        name="inventory",
    )


def fortnights(count: int, seed: int) -> tuple[DecisionDataset, Tensor]:
    """Features of each day `(count, 14, 4)`, prices `(count, 14)`, each fortnight's demand as b; and the mean prices.

    The market is quiet most days, and dear when several signals come together.
    """
    rng = np.random.RandomState(seed)
    smooth = lambda: np.cumsum(rng.normal(0, 0.45, (count, DAYS)), axis=1) + rng.normal(0, 0.8, (count, 1))  # noqa: E731
    scarcity, freight, harvest = smooth(), smooth(), smooth()
    mean = 3 + 0.3 * np.exp(1.2 * np.clip(scarcity + freight - harvest, -4, 3))
    prices = mean * rng.gamma(100, 0.01, mean.shape)  # noise of mean one and spread 0.1
    features = np.stack([scarcity, freight, harvest, np.broadcast_to(np.linspace(-1, 1, DAYS), mean.shape)], axis=-1)
    demand = np.clip(rng.gamma(2, 0.15, (count, DAYS)), 0, 0.95)
    tensor = lambda array: torch.as_tensor(array, dtype=torch.float32)  # noqa: E731
    return DecisionDataset(tensor(features), tensor(prices), instance=dfl.Instance(b=tensor(demand))), tensor(mean)


def study(
    program: dfl.Program, data: DecisionDataset, mean: Tensor, model_kind: str, seed: int, epochs: int
) -> tuple[dict[str, Evaluation], float, float]:
    """Results on the test fortnights, the share of the optimum by which the relaxation lies below it, and μ."""
    solver, relaxed = dfl.HiGHS(program), dfl.HiGHS(program.relax())
    train, validation, test = dfl.label(data, solver).split(seed, test=0.4, validation=0.25)
    options = {"epochs": epochs, "lr": 0.05, "batch_size": 8, "validation": validation, "progress": False}

    def make_model(seed: int) -> nn.Module:
        linear = dfl.models.SharedLinear(data.features.shape[-1], seed=seed)
        return linear if model_kind == "linear" else nn.Sequential(linear, nn.Softplus())

    tuning = dfl.tune(
        lambda mu: SCE(dfl.Smoothed(program, mu)), GRID, make_model=make_model, train=train, problem=relaxed,
        seeds=[seed], **options,
    )  # fmt: skip
    losses = {
        "two-stage": MSE(),
        "SPO+": SPOPlus(dfl.Exact(relaxed)),
        "SCE": SCE(dfl.Smoothed(program, tuning.best)),
    }
    found = {}
    for name, loss in losses.items():
        model = make_model(seed)
        by_regret = {} if name == "two-stage" else {"problem": relaxed}
        dfl.fit(model, loss, train, keep="best", seed=seed, **options, **by_regret)
        found[name] = dfl.evaluate(model, program, test, solver, progress=False)
    found["knowing the mean"] = dfl.evaluate(mean[test.ids], program, test, solver, progress=False)
    assert test.costs is not None
    below = relaxed.solve(test.costs, test.instance).objective.numpy()
    optimum = found["SCE"].optima
    return found, float((optimum - below).sum() / optimum.sum()), tuning.best


def table(found: dict[str, Evaluation]) -> str:
    lines = [f"{'':<20}{'regret':>8}{'paid too much':>15}{'saved a fortnight against two-stage':>38}"]
    for name, evaluation in found.items():
        saved = ""
        if name != "two-stage":
            value, low, high = dfl.compare(evaluation, found["two-stage"]).absolute_regret
            saved = f"{-value:.3f} [{-high:.3f}, {-low:.3f}]"
        lines.append(f"{name:<20}{evaluation.ratio_of_sums:>8.2%}{evaluation.absolute_regret:>15.3f}{saved:>38}")
    return "\n".join(lines)


def draw(path: Path, data: DecisionDataset, found: dict[str, Evaluation]) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(13, 4.8), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.7, 1))
    prices, plans = left.subplots(2, 1, sharex=True, height_ratios=(1, 1.5))

    # A fortnight of large gain: the ninth decile.
    gain = found["two-stage"].regrets - found["SCE"].regrets
    which = int(np.argsort(gain)[int(0.9 * len(gain))])
    batch = data.batch(int(found["SCE"].ids[which]))
    assert batch.instance is not None
    assert batch.instance.b is not None
    day = np.arange(1, DAYS + 1)
    price, demand = batch.require("costs").numpy(), batch.instance.b.numpy()
    prices.step(day, price, where="mid", color=INK, linewidth=2)
    prices.fill_between(day, price, step="mid", color=GREY, alpha=0.6)
    prices.set(ylabel="true price", ylim=(0, None))
    prices.set_title("A test fortnight: what is bought, when")
    plans.plot(day, demand, "k_", markersize=16, markeredgewidth=2, label="demand")
    for offset, name in ((-0.2, "two-stage"), (0.2, "SCE")):
        decisions = found[name].decisions
        assert decisions is not None
        over = found[name].regrets[which] / found[name].optima[which]
        plans.bar(
            day + offset, decisions[which, :DAYS].numpy(), 0.38, color=COLORS[name], label=f"bought, {name}: pays {over:.0%} too much"
        )  # fmt: skip
    plans.set(xlabel="day", ylabel="truckloads", xticks=day, xlim=(0.4, DAYS + 0.6))
    plans.set_ylim(0, 1.3)
    plans.legend(frameon=False, ncols=3, loc="upper center", fontsize=9)

    bars = right.subplots()
    for place, (name, evaluation) in enumerate(found.items()):
        value, low, high = evaluation.metrics["ratio_of_sums"]
        bars.barh(place, value, 0.7, color=COLORS[name])
        bars.errorbar(value, place, xerr=[[value - low], [high - value]], ecolor=INK, elinewidth=1)
    bars.set_yticks(range(len(found)), list(found))
    bars.invert_yaxis()
    bars.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    bars.set(xlabel="Σ regret / Σ optimum, with 95 % interval")
    bars.set_title(f"All {len(gain)} test fortnights")
    for axes in (prices, plans, bars):
        axes.title.set(weight="bold", color=INK, size=12)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    print(f"\nplot: {path}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--fortnights", type=int, default=500)
    arguments.add_argument("--model", choices=["linear", "softplus"], default="linear", help="of the price of a day")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--epochs", type=int, default=30)
    arguments.add_argument("--plot", type=Path, default=Path("inventory.png"))
    arguments.add_argument("--quick", action="store_true", help="40 fortnights, 2 epochs")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    if options.quick:
        options.fortnights, options.epochs = 40, 2
    program = inventory_program()
    print(program)
    data, mean = fortnights(options.fortnights, options.seed)
    found, gap, mu = study(program, data, mean, options.model, options.seed, options.epochs)
    cost = found["SCE"].optima.mean()
    print(f"\n{len(found['SCE'].ids)} test fortnights; knowing the prices, one costs {cost:.2f} on average")
    print(f"the relaxation that training uses lies {gap:.1%} below; μ = {mu:g} was chosen for SCE\n")
    print(table(found))
    try:
        draw(options.plot, data, found)
    except ModuleNotFoundError as error:
        print(f"no plot: {error}")


if __name__ == "__main__":
    main()
