"""Buying ahead: known orders, unknown prices. When to buy, and how much, for the next fortnight?

    python examples/inventory.py [--quick]

    min over (buy, stock, order) of  Σ_t price_t buy_t + holding Σ_t stock_t + fee Σ_t order_t
        s.t.  stock_{t−1} + buy_t − stock_t = demand_t,   buy_t ≤ order_t,   stock_t ≤ room,   order_t ∈ {0, 1}

Quantities are truckloads. Prices are predicted; holding costs and fees are known (d of `Program`). Each fortnight has its own demand: b of `Instance`.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor, nn

import dflearn as dfl
from beside import comparison, draw_regrets, large_gain, one_seed, options_of, picture, saved, single
from dflearn.losses import MSE, SCE, SPOPlus
from dflearn.report.style import INK, LINE, color_of

DAYS, ROOM, HOLDING, FEE = 14, 2.0, 0.02, 0.1
GRID = (0.003, 0.01, 0.03, 0.1)  # of μ


def inventory_program() -> dfl.Program:
    """Variables: buy (14), stock (14), order (14). S puts the price of each day on what is bought that day."""
    one, zero = sp.eye_array(DAYS), sp.csr_array((DAYS, DAYS))
    yesterday = sp.diags_array(np.ones(DAYS - 1), offsets=-1, shape=(DAYS, DAYS))
    A, G = sp.hstack([one, yesterday - one, zero]), sp.hstack([one, zero, -one])
    costs = {"S": sp.vstack([one, zero, zero]), "d": np.repeat([0.0, HOLDING, FEE], DAYS)}
    demand, whole = np.zeros(DAYS), np.arange(2 * DAYS, 3 * DAYS)  # the demand comes with each fortnight
    upper = np.repeat([1.0, ROOM, 1.0], DAYS)
    return dfl.Program(A=A, b=demand, G=G, h=0.0, upper=upper, **costs, integer=whole, name="inventory")


def fortnights(count: int, seed: int) -> tuple[dfl.DecisionDataset, Tensor]:
    """Features of each day `(count, 14, 4)`, prices `(count, 14)`, each fortnight's demand as b; and the mean prices. The market
    is quiet most days, and dear when several signals come together."""
    rng = np.random.RandomState(seed)
    smooth = lambda: np.cumsum(rng.normal(0, 0.45, (count, DAYS)), axis=1) + rng.normal(0, 0.8, (count, 1))  # noqa: E731
    scarcity, freight, harvest = smooth(), smooth(), smooth()
    mean = 3 + 0.3 * np.exp(1.2 * np.clip(scarcity + freight - harvest, -4, 3))
    prices = mean * rng.gamma(100, 0.01, mean.shape)  # noise of mean one and spread 0.1
    features = np.stack([scarcity, freight, harvest, np.broadcast_to(np.linspace(-1, 1, DAYS), mean.shape)], axis=-1)
    demand = np.clip(rng.gamma(2, 0.15, (count, DAYS)), 0, 0.95)
    return dfl.DecisionDataset(single(features), single(prices), instance=dfl.Instance(b=single(demand))), single(mean)


def study(
    program: dfl.Program, data: dfl.DecisionDataset, mean: Tensor, model_kind: str, seed: int, epochs: int
) -> tuple[dict[str, dfl.Evaluation], float, float]:
    """Results on the test fortnights, the share of the optimum by which the relaxation lies below it, and μ."""
    solver, relaxed = dfl.HiGHS(program), dfl.HiGHS(program.relax())
    parts = dfl.label(data, solver).split(seed, test=0.4, validation=0.25)
    options = {"epochs": epochs, "lr": 0.05, "batch_size": 8}

    def make_model(seed: int) -> nn.Module:
        linear = dfl.models.SharedLinear(data.features.shape[-1], seed=seed)
        return linear if model_kind == "linear" else nn.Sequential(linear, nn.Softplus())

    tuning = dfl.tune(
        lambda mu: SCE(dfl.Smoothed(program, mu)), GRID, make_model=make_model, train=parts.train,
        validation=parts.validation, problem=relaxed, seeds=[seed], progress=False, **options,
    )  # fmt: skip
    smoothed = dfl.Smoothed(program, tuning.best)
    losses = {"two-stage": MSE(), "SPO+": SPOPlus(dfl.Exact(relaxed)), "SCE": SCE(smoothed)}
    judge, model = (program, solver), lambda: make_model(seed)
    found = one_seed(parts, losses, model, judge, mean, relaxed, seed=seed, **options)
    below = relaxed.solve(parts.test.costs, parts.test.instance).objective.numpy()
    optimum = found["SCE"].optima
    return found, float((optimum - below).sum() / optimum.sum()), tuning.best


def draw(figure: Any, data: dfl.DecisionDataset, found: dict[str, dfl.Evaluation]) -> None:
    left, right = figure.subfigures(1, 2, width_ratios=(1.7, 1))
    prices, plans = left.subplots(2, 1, sharex=True, height_ratios=(1, 1.5))
    which = large_gain(found["two-stage"].regrets - found["SCE"].regrets)
    day, shown = np.arange(1, DAYS + 1), int(found["SCE"].ids[which])
    price, demand = data.costs[shown].numpy(), data.instance.b[shown].numpy()
    prices.step(day, price, where="mid", color=INK, linewidth=2)
    prices.fill_between(day, price, step="mid", color=LINE, alpha=0.6)
    prices.set(ylabel="true price", ylim=(0, None))
    prices.set_title("A test fortnight: what is bought, when")
    plans.plot(day, demand, "k_", markersize=16, markeredgewidth=2, label="demand")
    for offset, name in ((-0.2, "two-stage"), (0.2, "SCE")):
        bought, over = found[name].decisions[which, :DAYS], found[name].regrets[which] / found[name].optima[which]
        text = f"bought, {name}: pays {over:.0%} too much"
        plans.bar(day + offset, bought.numpy(), 0.38, color=color_of(name), label=text)
    plans.set(xlabel="day", ylabel="truckloads", xticks=day, xlim=(0.4, DAYS + 0.6))
    plans.set_ylim(0, 1.3)
    plans.legend(frameon=False, ncols=3, loc="upper center", fontsize=9)

    bars = right.subplots()
    draw_regrets(bars, found)
    bars.set_title(f"All {len(found['SCE'].ids)} test fortnights")


def main() -> None:
    arguments = options_of(__doc__, "40 fortnights, 2 epochs", plot="inventory.png")
    arguments.add_argument("--model", choices=["linear", "softplus"], default="linear", help="of the price of a day")
    options = arguments.parse_args()
    program = inventory_program()
    print(program)
    data, mean = fortnights(40 if options.quick else 500, options.seed)
    epochs = 2 if options.quick else options.epochs
    found, gap, mu = study(program, data, mean, options.model, options.seed, epochs)
    cost = found["SCE"].optima.mean()
    print(f"\n{len(found['SCE'].ids)} test fortnights; knowing the prices, one costs {cost:.2f} on average")
    print(f"the relaxation that training uses lies {gap:.1%} below; μ = {mu:g} was chosen for SCE\n")
    columns = {"paid too much": lambda name: f"{found[name].absolute_regret:.3f}"}
    print(comparison(found, columns | {"saved a fortnight against two-stage": saved(found, "absolute_regret", ".3f")}))
    picture(options.plot, (13, 4.8), draw, data, found)


if __name__ == "__main__":
    main()
