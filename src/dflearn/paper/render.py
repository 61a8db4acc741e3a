"""Tables as text for a terminal, as Markdown, and as LaTeX (booktabs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dflearn.paper.tables import Agreement, Row, agreement

Format = Literal["text", "markdown", "latex"]
FORMATS: tuple[Format, ...] = ("text", "markdown", "latex")

HEADER = (
    "method", "seeds", "published", "ours, published style", "difference", "mean of ratios", "s/epoch", "published s",
    "rank", "published rank",
)  # fmt: skip
LEGEND = (
    "published and ours: normalized regret in the published style, mean(regret) × mean(1/optimum) per test batch of "
    "32; mean of ratios: the formula of the text. ± is the standard deviation over seeds. s/epoch: CPU seconds of "
    "training per epoch on one core, validation apart; published s: as printed, on the authors' machine, validation "
    "included. Ranks are among the methods with a published row; ties share the mean of their places."
)

NEAR = 0.01  # the published figures have two digits
SUMMARY_HEADER = ("problem", "published rows run", "seeds", f"within {NEAR:g}", "further apart", "pairs ordered alike")
SUMMARY_LEGEND = (
    f"Within {NEAR:g}: rows whose mean over the seeds is that near to the published figure, in the published style; "
    "further apart: ours, in brackets the published one. Pairs ordered alike: of the pairs of methods that the published "
    "figures order, those that ours order the same way."
)


def summary_cells(problem: str, rows: Sequence[Row], published: int) -> list[str]:
    """One problem in a line: how much of its published table is there, and how near it comes."""
    compared = [(row, row.published, row.difference) for row in rows if row.published and row.difference is not None]
    far = [(row, theirs) for row, theirs, difference in compared if abs(difference) > NEAR]
    found = agreement(rows)
    return [
        problem,
        f"{len(compared)} of {published}",
        seed_counts([row for row, _, _ in compared]),
        f"{len(compared) - len(far)} of {len(compared)}",
        ", ".join(f"{row.method} {row.style:.3f} ({theirs.regret:.2f})" for row, theirs in far),
        f"{found.ordered_alike} of {found.ordered}",
    ]


def judges(rows: Sequence[Row]) -> str:
    """The exact solvers that judged these rows."""
    return ", ".join(sorted({name for row in rows for name in row.solver.split(", ")}))


def seed_counts(rows: Sequence[Row]) -> str:
    """How many seeds the rows have: "5", or "2 to 5"."""
    counts = {len(row.seeds) for row in rows}
    return " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""


def cells(row: Row) -> list[str]:
    published = row.published
    return [
        row.method,
        str(len(row.seeds)),
        "" if published is None else f"{published.regret:.2f}",
        _spread(row.style, row.style_deviation, len(row.seeds)),
        "" if row.difference is None else f"{row.difference:+.3f}",
        _spread(row.ratios, row.ratios_deviation, len(row.seeds)),
        f"{row.seconds:.3g}",
        "" if published is None else f"{published.seconds:.2f}",
        "" if row.rank is None else f"{row.rank:g}",
        "" if row.published_rank is None else f"{row.published_rank:g}",
    ]


def _spread(mean: float, deviation: float, seeds: int) -> str:
    return f"{mean:.4f} ± {deviation:.4f}" if seeds > 1 else f"{mean:.4f}"


def agreement_line(found: Agreement) -> str:
    """How far the rankings agree, in a sentence or two."""
    if found.spearman is None or found.kendall is None:
        return f"Ranking: {found.methods} methods with a published row, too few to compare."
    text = (
        f"Ranking: of {found.ordered} pairs of methods that the published figures order, ours order "
        f"{found.ordered_alike} the same way (Spearman {found.spearman:.2f}, Kendall {found.kendall:.2f}, "
        f"{found.methods} methods)."
    )
    if found.reversed_pairs:
        pairs = ", ".join(f"{better} < {worse}" for better, worse in found.reversed_pairs)
        text += f" Published the other way round: {pairs}."
    return text


def render(header: Sequence[str], rows: Sequence[Sequence[str]], form: Format) -> str:
    """Columns of text, the first to the left, the others to the right."""
    if form == "markdown":
        lines = [_bars([_escaped(cell) for cell in line]) for line in (header, *rows)]
        return "\n".join([lines[0], _bars(["---", *["---:"] * (len(header) - 1)]), *lines[1:]])
    if form == "latex":
        lines = [" & ".join(map(_latex, line)) + r" \\" for line in (header, *rows)]
        top = [rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\toprule", lines[0], r"\midrule"]
        return "\n".join([*top, *lines[1:], r"\bottomrule", r"\end{tabular}"])
    widths = [max(len(line[k]) for line in (header, *rows)) for k in range(len(header))]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in (header, *rows)
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _bars(line: Sequence[str]) -> str:
    return "| " + " | ".join(line) + " |"


def _escaped(cell: str) -> str:
    return cell.replace("|", r"\|")


def _latex(cell: str) -> str:
    """SCE^DYS clean → SCE\\textsuperscript{DYS} clean."""
    cell = cell.replace("%", r"\%").replace("&", r"\&").replace("_", r"\_").replace("±", r"$\pm$")
    head, mark, tail = cell.partition("^")
    if mark:
        word, space, rest = tail.partition(" ")
        cell = rf"{head}\textsuperscript{{{word}}}{space}{rest}"
    return cell.replace("μ", r"$\mu$").replace("×", r"$\times$")
