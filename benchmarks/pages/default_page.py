"""The outcome of results/default, written above the hypothesis from the runs beside it.

    python benchmarks/pages/default_page.py

Reads runs.jsonl.xz, which `dfl export` wrote, and estimator.json in results/default; rewrites README.md and ranks.svg there.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import rankdata

from dflearn.report.render import render
from dflearn.report.style import new_figure, styled, write_figure
from dflearn.studies.config import read_study
from dflearn.studies.store import read_records

ROOT = Path(__file__).resolve().parents[2]
FOLDER, STUDY = ROOT / "results" / "default", read_study(ROOT / "benchmarks" / "studies" / "default.toml")
KNOWN = STUDY.problems[:6]  # with known costs beside predicted ones
OURS, DRAWS, FLOOR = "convex, then sharp", 20_000, 1e-6  # regrets below the floor count as it, in ratios alone
LINE = "\n---\n"


def regrets() -> tuple[list[int], np.ndarray]:
    """The seeds that are complete, and the regret `(problems, seeds, methods)`; ∞ where a method is not defined."""
    held = {
        (r.config.problem, r.config.seed, r.config.method): r.metric("ratio_of_sums")
        for r in read_records(FOLDER / "runs.jsonl.xz")
    }
    undefined = {
        (p, m) for p in STUDY.problems for m in STUDY.methods if not any((p, s, m) in held for s in STUDY.seeds)
    }
    seeds = [
        s for s in STUDY.seeds
        if all((p, s, m) in held or (p, m) in undefined for p in STUDY.problems for m in STUDY.methods)
    ]  # fmt: skip
    table = [[[held.get((p, s, m), np.inf) for m in STUDY.methods] for s in seeds] for p in STUDY.problems]
    return seeds, np.array(table)


def interval(values: np.ndarray) -> tuple[float, float]:
    """95 % of the bootstrap over problems, of the mean of `(problems,)`."""
    drawn = np.random.RandomState(0).randint(len(values), size=(DRAWS, len(values)))
    low, high = np.quantile(values[drawn].mean(1), (0.025, 0.975))
    return float(low), float(high)


def log_ratio(table: np.ndarray, one: str, other: str) -> np.ndarray:
    """Mean over seeds of log(regret / regret of the other), `(problems,)`."""
    logs = np.log(np.maximum(table, FLOOR))
    return (logs[..., STUDY.methods.index(one)] - logs[..., STUDY.methods.index(other)]).mean(1)


def told(logs: np.ndarray) -> str:
    low, high = np.exp(interval(logs))
    return f"{np.exp(logs.mean()):.3f} [{low:.3f}, {high:.3f}]"


@styled
def drawn(ranks: np.ndarray, order: np.ndarray) -> Figure:
    figure = new_figure(7, 4)
    axes = figure.subplots()
    for place, method in enumerate(order[::-1]):
        low, high = interval(ranks[:, method])
        color = "C3" if STUDY.methods[method] == OURS else "C0"
        axes.plot([low, high], [place, place], color=color)
        axes.plot(ranks[:, method].mean(), place, "o", color=color)
    axes.set_yticks(range(len(order)), [STUDY.methods[method] for method in order[::-1]])
    axes.set_xlabel("mean rank over the problems, with 95 % of the bootstrap over problems; less is better")
    return figure


def estimator() -> str:
    """The second check: ratios of regrets, by problem."""
    held = json.loads((FOLDER / "estimator.json").read_text())
    rows = []
    for problem in KNOWN:
        runs = [run for key, run in held.items() if key.split()[0] == problem]
        ratios = [run["estimator"] / run["ridge"] for run in runs]
        means = (f"{100 * np.mean([run[who] for run in runs]):.2f}" for who in ("estimator", "ridge"))
        kept = str(sum(run["epoch"] == 0 for run in runs))
        rows.append([problem, *means, f"{np.mean(ratios):.3f}", ", ".join(f"{one:.2f}" for one in ratios), kept])
    head = ["problem", "estimator, %", "ridge, %", "mean ratio", "by seed", "seeds with ridge kept"]
    return render(head, rows, "markdown")


def page() -> str:
    seeds, table = regrets()
    ranks = np.apply_along_axis(rankdata, 2, table).mean(1)  # (problems, methods)
    order, ours = ranks.mean(0).argsort(), STUDY.methods.index(OURS)
    write_figure(drawn(ranks, order), FOLDER, "ranks", ["svg"])
    head = [
        "method",
        "mean rank",
        "known costs",
        "all predicted",
        "rank less than ours",
        "regret / start's",
        "most, of a problem",
    ]
    rows = []
    for method in order:
        defined = np.isfinite(table[..., method]).all(1)
        logs = log_ratio(table[defined], STUDY.methods[method], "start")
        low, high = interval(ranks[:, method] - ranks[:, ours])
        rows.append([
            STUDY.methods[method], *(f"{part.mean():.2f}" for part in (ranks[:, method], ranks[:6, method], ranks[6:, method])),
            "" if method == ours else f"{(ranks[:, method] - ranks[:, ours]).mean():+.2f} [{low:+.2f}, {high:+.2f}]",
            told(logs), f"{np.exp(logs.max()):.2f}",
        ])  # fmt: skip
    each = [
        [p, *(f"{100 * value:.2f}" if np.isfinite(value) else "–" for value in table[i].mean(0)[order])]
        for i, p in enumerate(STUDY.problems)
    ]
    safe = np.exp(log_ratio(table, OURS, "start"))
    claims = [
        f"1. Mean rank of *{OURS}*: {ranks[:, ours].mean():.2f}, place {1 + list(order).index(ours)} of {len(order)}.",
        f"2. Its regret over the start's, largest of a problem: {safe.max():.3f} ({STUDY.problems[int(safe.argmax())]}); "
        f"above 1.02 on {int((safe > 1.02).sum())} of {len(safe)}.",
        f"3. Own label over exact label, known costs: {told(log_ratio(table[:6], 'sSPO+ own', 'sSPO+ exact'))}; "
        f"all costs predicted: {told(log_ratio(table[6:], 'sSPO+ own', 'sSPO+ exact'))}.",
        f"4. *{OURS}* over SCE with exact labels at the automatic μ: {told(log_ratio(table, OURS, 'SCE^smoothed scaled'))}; "
        f"known costs: {told(log_ratio(table[:6], OURS, 'SCE^smoothed scaled'))}.",
    ]
    return "\n".join([
        f"Seeds {', '.join(map(str, seeds))} of {len(STUDY.seeds)} are complete. Figures of the four hypotheses, in their order:", "", *claims, "",
        "![Mean ranks](ranks.svg)", "", render(head, rows, "markdown"), "",
        "Regret in % of the optimum, mean over seeds:", "", render(["problem", *(STUDY.methods[m] for m in order)], each, "markdown"), "",
        "The estimator beside ridge, five seeds:", "", estimator(), "",
    ])  # fmt: skip


if __name__ == "__main__":
    path = FOLDER / "README.md"
    above, _, below = path.read_text().partition(LINE)
    title, _, rest = above.partition("<!-- runs -->")
    verdict = rest.partition("<!-- end of runs -->")[2]
    path.write_text(f"{title.rstrip()}\n\n<!-- runs -->\n{page()}<!-- end of runs -->{verdict.rstrip()}\n{LINE}{below}")
