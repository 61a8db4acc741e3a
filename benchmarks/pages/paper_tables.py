"""results/paper/tables.md, written from results/paper/runs.jsonl.xz: every table of the paper beside our figures.

    python benchmarks/pages/paper_tables.py

Nothing is run here: `dfl paper table` and `dfl paper all` make the runs. A test compares the page with what this would
write.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from dflearn.problems import PROBLEMS
from dflearn.report.render import render
from dflearn.studies.methods import method_names
from dflearn.studies.paper import tables
from dflearn.studies.paper.methods import SCALED
from dflearn.studies.paper.published import methods_of, published_rows
from dflearn.studies.paper.tables import rows_of
from dflearn.studies.record import Record
from dflearn.studies.store import read_records
from dflearn.studies.summary import MethodSummary

FOLDER = Path(__file__).resolve().parents[2] / "results" / "paper"
STYLES = {"published_style": "published style", "mean_of_ratios": "mean of ratios"}
UNITS = [x for style in STYLES.values() for x in (style, "scaled", "difference")]
UNITS_HEADER = ["problem", "method", "seeds", *UNITS]
LEAD_HEADER = ["problem", *(x for style in STYLES.values() for x in (style, "nearest", "difference", "ahead of"))]
BEST = "SCE^smoothed scaled"  # of our methods
DIFFERENTIABLE = [f"{loss}^{layer}" for layer in ("CVX", "DYS") for loss in ("Regret", "SqDE", "SPO+", "SCE")]
LOSSES = (*DIFFERENTIABLE, "SCE^relax", "SCE^ILP", "MSE")
TIMES = (*(f"SPO+^{way}" for way in ("relax cold", "relax warm", "relax", "ILP")), "PFY")
TIMES += ("SCE^DYS", "SCE^DYS unrolled", "SCE^smoothed")


def summary(records: Sequence[Record]) -> str:
    lines = []
    for problem in PROBLEMS:
        published = [method for name, method in published_rows() if name == problem]
        rows = rows_of(problem, published, records)
        if rows:
            lines.append(tables.summary_cells(problem, rows, len(published)))
    return render(tables.SUMMARY_HEADER, lines, "markdown")


def paired(records: Sequence[Record], problem: str, metric: str, *methods: str) -> list[np.ndarray]:
    """The metric of each method, over the seeds that all of them have."""
    found = {(r.config.method, r.config.seed): r.metric(metric) for r in records if r.config.problem == problem}
    seeds = [seed for method, seed in found if method == methods[-1] and all((m, seed) in found for m in methods)]
    return [np.array([found[method, seed] for seed in seeds]) for method in methods]


def units(records: Sequence[Record]) -> str:
    """Every method that has a scaled version beside that version, over the seeds that both have."""
    lines = []
    for problem, method in ((problem, method) for problem in PROBLEMS for method in SCALED):
        both = [paired(records, problem, metric, method, f"{method} scaled") for metric in STYLES]
        count = len(both[0][0])
        line = [problem, method, str(count)]
        for plain, other in both if count else ():
            change = other - plain
            spread = f" ± {change.std(ddof=1) / count**0.5:.4f}" if count > 1 else ""
            line += [f"{plain.mean():.4f}", f"{other.mean():.4f}", f"{change.mean():+.4f}{spread}"]
        lines += [line] if count else []
    return render(UNITS_HEADER, lines, "markdown")


def lead(records: Sequence[Record]) -> str:
    """Our best method less each published one, seed by seed: the nearest of them, and how many it beats beyond chance."""
    lines = []
    for problem in PROBLEMS:
        published = [method for name, method in published_rows() if name == problem]
        line = [problem]
        for metric in STYLES:
            differences = {m: np.subtract(*paired(records, problem, metric, BEST, m)) for m in published}
            nearest = max(differences, key=lambda method: differences[method].mean())
            best = paired(records, problem, metric, BEST)[0].mean()
            ahead = sum(each.mean() + student(each) < 0 for each in differences.values())
            change = f"{differences[nearest].mean():+.4f} ± {student(differences[nearest]):.4f}"
            line += [f"{best:.4f}", nearest, change, f"{ahead} of {len(published)}"]
        lines.append(line)
    return render(LEAD_HEADER, lines, "markdown")


def student(values: np.ndarray) -> float:
    """Half of the 95 % interval of the mean, by Student's distribution."""
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5)


def columns(records: Sequence[Record], methods: Sequence[str], show: Callable[[MethodSummary], str]) -> str:
    """One line per problem that has at least two of the methods."""
    lines = []
    for problem in PROBLEMS:
        rows = {row.summary.method: row.summary for row in rows_of(problem, methods, records)}
        if len(rows) > 1:
            lines.append([problem, *(show(rows[method]) if method in rows else "" for method in methods)])
    return render(["problem", *methods], lines, "markdown")


def every_row(records: Sequence[Record]) -> list[str]:
    parts = []
    for problem in PROBLEMS:
        known = methods_of(problem)
        rows = rows_of(problem, [*known, *(name for name in method_names() if name not in known)], records)
        if rows:
            table = render(tables.HEADER, [tables.cells(row) for row in rows], "markdown")
            agreement = tables.agreement_line(tables.agreement(rows))
            parts.append(f"### {problem}, judged by {tables.judges(rows)}\n\n{table}\n\n{agreement}")
    return parts


def page() -> str:
    records = read_records(FOLDER / "runs.jsonl.xz")
    parts = [
        "# Our figures beside the published ones",
        f"{len(records)} runs; written by `python benchmarks/pages/paper_tables.py` from `runs.jsonl.xz`.",
        "## How near",
        summary(records),
        tables.SUMMARY_LEGEND + " `dfl paper summary --from results/paper/runs.jsonl.xz` prints this.",
        "## In units of the costs",
        "Scaled: the model's output is multiplied by the mean |y| of the training data, and parameters that are costs "
        "with it; all else is the same, seed by seed. ± is the standard error of the mean difference between the seeds.",
        units(records),
        "## Our best method beside the published ones",
        f"{BEST}, with the paper's settings and nothing tuned. Nearest: the published method of least regret. Difference: "
        "ours less that one's, with its 95 % interval over the seeds that both have, paired (Student's). Ahead of: published "
        "methods whose interval lies below zero.",
        lead(records),
        "## Surrogate and decision losses, with differentiable solvers and without",
        "Published style, means over the seeds.",
        columns(records, LOSSES, lambda own: f"{own.regret:.3f}"),
        "## Seconds per epoch",
        "CPU seconds of training per epoch of 800 instances, validation apart. Integer programs in SPO+^ILP are solved by "
        "Gurobi on KP-100, CFL-50 and CFL-100 and by FewRowBinary on the other knapsacks.",
        columns(records, TIMES, lambda own: f"{own.seconds:.3g}"),
        "## Every row",
        tables.LEGEND + " `dfl paper table sp --from results/paper/runs.jsonl.xz --no-run` and so on print these.",
        *every_row(records),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    (FOLDER / "tables.md").write_text(page())
