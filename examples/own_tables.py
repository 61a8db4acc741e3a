"""Files to try `dfl train` and `dfl decide` with: the plan of a small workshop, and tables of its days.

    python examples/own_tables.py               writes workshop.lp, x.csv, y.csv, new.csv, … into this folder
    python examples/own_tables.py --out DIR

    max over w of Σ_k price_k w_k − 18 overtime   s.t.   hours of each of three machines,   w_k ≤ 6 batches, w whole

Prices are known only in the evening; in the morning there are a forecast of the weather and of visitors, the weekday, and
last week's price index. The truth is no linear function of these, so a linear model must err somewhere: training decides
where. `hours.csv` and `new_hours.csv` hold, for each day, the hours that the machines have: a table of instances. `naive.csv`
is a forecast for the new days that needs no model: the prices of the day before.
"""

import argparse
import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np

PRODUCTS = ("bench", "chair", "desk", "frame", "lamp", "shelf", "stool", "table")
MACHINES = ("saw", "lathe", "paint")
FEATURES = ("temperature", "visitors", "weekend", "price_index")
DAYS, NEW_DAYS, FIRST = 240, 5, date(2024, 1, 1)


def workshop(rng: np.random.Generator) -> str:
    """The plan in LP format. The prices in it are placeholders: `dfl train` replaces them by predictions."""
    hours = rng.integers(1, 8, (len(MACHINES), len(PRODUCTS)))
    total = lambda factors: " + ".join(f"{f} make_{name}" for f, name in zip(factors, PRODUCTS, strict=True))  # noqa: E731
    rows = [f" {machine}: {total(h)} - overtime <= 60" for machine, h in zip(MACHINES, hours, strict=True)]
    bounds = [f" make_{name} <= 6" for name in PRODUCTS]
    objective = f" profit: {total([1] * len(PRODUCTS))} - 18 overtime"
    whole = " " + " ".join(f"make_{name}" for name in PRODUCTS)
    parts = ["Maximize", objective, "Subject To", *rows, "Bounds", *bounds, " overtime <= 12", "General", whole, "End"]
    return "\n".join(parts) + "\n"


def days(count: int, truth: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Features `(count, 4)` and prices `(count, products)`: a power of a linear map, with noise."""
    season = np.arange(count) % 365 / 365
    temperature = 10 - 9 * np.cos(2 * np.pi * season) + rng.normal(0, 4, count)
    visitors = rng.gamma(6, 60, count)
    weekend = np.array([(FIRST + timedelta(days=i)).weekday() >= 5 for i in range(count)], float)
    index = 100 + np.cumsum(rng.normal(0, 0.8, count))
    features = np.column_stack([temperature, visitors, weekend, index])
    scaled = (features - [10, 360, 0.3, 100]) / [8, 150, 0.5, 10]
    prices = 20 + 0.4 * np.maximum(scaled @ truth + 2.5, 0) ** 4 * rng.uniform(0.85, 1.15, (count, len(PRODUCTS)))
    return features.round(2), prices.round(2)


def write(path: Path, names: tuple[str, ...], rows: np.ndarray, first: int = 0) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["day", *names])
        writer.writerows([FIRST + timedelta(days=first + i), *row] for i, row in enumerate(rows.tolist()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder (default: this one)")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2)
    (out / "workshop.lp").write_text(workshop(rng))
    truth = rng.normal(0, 0.6, (len(FEATURES), len(PRODUCTS)))
    features, prices = days(DAYS + NEW_DAYS, truth, rng)
    hours = rng.integers(45, 75, (DAYS + NEW_DAYS, len(MACHINES)))
    columns = tuple(f"make_{name}" for name in PRODUCTS)
    tables = {"x": (FEATURES, features), "y": (columns, prices), "hours": (MACHINES, hours)}
    for name, (head, rows) in tables.items():
        write(out / f"{name}.csv", head, rows[:DAYS])
        write(out / ("new.csv" if name == "x" else f"new_{name}.csv"), head, rows[DAYS:], DAYS)
    write(out / "naive.csv", columns, prices[DAYS - 1 : -1], DAYS)
    print(f"{out.resolve()}: workshop.lp, and {DAYS} days in x.csv, y.csv and hours.csv; {NEW_DAYS} more in new.csv, …")


if __name__ == "__main__":
    main()
