"""dfl paper: the paper's tables, made anew beside the published ones."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import add_command, positive
from dflearn.cli.paper_figures import add_figure_command, add_report_command
from dflearn.cli.studies import add_executor_options, carry_out
from dflearn.errors import DataError, OptionError
from dflearn.report.render import FORMATS, render, titled

if TYPE_CHECKING:
    from dflearn.paper.tables import Row
    from dflearn.studies.config import RunConfig
    from dflearn.studies.store import Store

TABLES = ("sp", "kp", "cfl")
STORE = Path("paper.sqlite")


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "paper",
        help="the paper's tables and figures, made anew",
        description="The paper's tables and figures, made anew.",
    )
    inner = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_command(inner, "list", list_all, "name the tables, the methods, the figures and what was published")
    made = add_command(
        inner,
        "table",
        table,
        "run what is missing of a table and print it beside the published one",
        "  dfl paper table sp --sizes 5 --seeds 1\n"
        "  dfl paper table kp --sizes 100 --methods MSE 'SPO+^relax' 'SCE^DYS' --gurobi --jobs 2\n"
        "  dfl paper table cfl --from results/paper/runs.jsonl.xz --no-run --format markdown",
    )
    made.add_argument("table", choices=TABLES, help="shortest paths, knapsacks or facility location")
    _add_choice(made)
    made.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    made.add_argument("--no-run", action="store_true", help="show what is there and run nothing")
    add_executor_options(made)
    brief = add_command(
        inner,
        "summary",
        summary,
        "say problem by problem how near the runs come to the published tables",
        "  dfl paper summary --from results/paper/runs.jsonl.xz",
    )
    brief.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), help="default: all")
    brief.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    _add_choice(brief)
    everything = add_command(
        inner,
        "all",
        run_all,
        "run every table, cheapest information first, within a budget",
        "  dfl paper all --budget 2\n  dfl paper all --budget 8 --tables sp kp --gurobi\n\n"
        "Runs are ordered by expected seconds × place of the seed: the first seed of a cheap row comes first.",
    )
    everything.add_argument("--budget", type=float, required=True, metavar="HOURS", help="hours on the wall clock")
    everything.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), help="default: all")
    _add_choice(everything)
    add_executor_options(everything)
    cost = add_command(
        inner,
        "cost",
        show_cost,
        "say what each missing row would take",
        "  dfl paper cost --tables kp --gurobi\n  dfl paper cost --cores 64",
    )
    cost.add_argument("--whole", action="store_true", help="count the runs that are there too: the whole study")
    cost.add_argument("--cores", type=positive, help="also say when the last run would end on so many cores")
    cost.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), help="default: all")
    _add_choice(cost)
    add_figure_command(inner)
    add_report_command(inner)


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", nargs="+", type=int, help="default: those of the paper")
    parser.add_argument("--seeds", nargs="+", default=["1-5"], help="such as 1 2 or 1-5 (default: 1-5)")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["all"],
        help="names, or published (the rows of the paper), or own (ours), or all (default)",
    )
    parser.add_argument(
        "--gurobi", action="store_true", help="solve integer programs by Gurobi where its licence allows"
    )
    parser.add_argument(
        "--store", type=Path, default=STORE, metavar="FILE", help=f"where runs are kept (default: {STORE})"
    )
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="first take runs from a .jsonl (.xz) export"
    )


def seeds_of(words: list[str]) -> list[int]:
    """["1-3", "5"] → [1, 2, 3, 5]."""
    found: list[int] = []
    for word in words:
        first, dash, last = word.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise OptionError(f"seeds are numbers or ranges such as 1-5, got {word!r}")
        found += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(found))


def problems_asked(name: str, sizes: list[int] | None) -> list[str]:
    from dflearn.paper.published import problems_of

    known = problems_of(name)
    if sizes is None:
        return known
    wanted = [f"{name.upper()}-{size}" for size in sizes]
    strangers = [problem for problem in wanted if problem not in known]
    if strangers:
        raise OptionError(f"the paper has no {', '.join(strangers)}; its sizes are {', '.join(known)}")
    return wanted


def methods_asked(problem: str, words: list[str]) -> list[str]:
    """Names as they are; published, own and all stand for the rows of that problem's table."""
    from dflearn.paper.published import methods_of, published_rows
    from dflearn.studies.methods import method_named

    rows = methods_of(problem)
    published = [method for method in rows if (problem, method) in published_rows()]
    groups = {"all": rows, "published": published, "own": [method for method in rows if method not in published]}
    asked = [name for word in words for name in groups.get(word, [word])]
    return [method_named(name).name for name in dict.fromkeys(asked)]


def configs_asked(tables: list[str], options: argparse.Namespace) -> list[RunConfig]:
    """Every run that the options name."""
    from dflearn.studies.config import resolve

    solver: Any = "gurobi" if options.gurobi else "default"
    return [
        resolve(problem, method, seed, solver=solver)
        for name in tables
        for problem in problems_asked(name, options.sizes)
        for seed in seeds_of(options.seeds)
        for method in methods_asked(problem, options.methods)
    ]


def list_all(options: argparse.Namespace) -> Answer:
    from dflearn.paper.figures import COMPUTED, FROM_RECORDS
    from dflearn.paper.published import problems_of, published_rows
    from dflearn.studies.methods import method_named, method_names

    tables = {
        name: {p: [method for other, method in published_rows() if other == p] for p in problems_of(name)}
        for name in TABLES
    }
    rows = [
        [name, problem, str(len(published)), " ".join(published)]
        for name, problems in tables.items()
        for problem, published in problems.items()
    ]
    methods = {name: method_named(name).about for name in method_names()}
    figures = {**COMPUTED, **FROM_RECORDS}
    text = render(["table", "problem", "rows", "published methods"], rows)
    for title, named in (("methods", methods), ("figures", figures)):
        text += f"\n\n{title}:\n" + "\n".join(f"  {name:<26}{about}" for name, about in named.items())
    return Answer(text, {"tables": tables, "methods": methods, "figures": figures})


def table(options: argparse.Namespace) -> Answer:
    from dflearn.paper.published import published_costs
    from dflearn.paper.tables import HEADER, LEGEND, agreement, agreement_line, cells, judges, rows_of

    configs = configs_asked([options.table], options)
    with _opened(options, to_run=not options.no_run) as store:
        if not options.no_run:
            carry_out(configs, store, options, prior=published_costs())
        records = [record for config in configs if (record := store.get(config)) is not None]
        failures = [failure for config in configs if (failure := store.failure(config)) is not None]
    remark = "% " if options.format == "latex" else ""
    lines, found = [], {}
    for problem in problems_asked(options.table, options.sizes):
        rows = rows_of(problem, methods_asked(problem, options.methods), records)
        found[problem] = [_row_document(row) for row in rows]
        if not rows:
            lines.append(f"{problem}: no runs\n")
            continue
        title = f"{problem}, seeds {', '.join(options.seeds)}, judged by {judges(rows)}"
        lines.append(titled(title, options.format) + "\n")
        lines.append(render(HEADER, [cells(row) for row in rows], options.format) + "\n")
        lines.append(remark + agreement_line(agreement(rows)) + "\n")
    lines.append(remark + LEGEND)
    failed = [{"run": str(failure.config), "error": failure.error.splitlines()[-1]} for failure in failures]
    lines += [f"failed: {one['run']}: {one['error']}" for one in failed]
    missing = len(configs) - len(records)
    if missing:
        lines.append(f"{missing} of {len(configs)} runs are missing; `dfl paper cost` says what they would take")
    return Answer("\n".join(lines), {"table": options.table, "rows": found, "failed": failed, "missing": missing})


def _row_document(row: Row) -> dict[str, Any]:
    published, summary = row.published, row.summary
    return {
        "method": summary.method,
        "seeds": list(summary.seeds),
        "published_style": summary.regret,
        "mean_of_ratios": summary.mean_of("mean_of_ratios"),
        "seconds_per_epoch": summary.seconds,
        "rank": row.rank,
        "published": None if published is None else published.regret,
        "published_seconds_per_epoch": None if published is None else published.seconds,
        "published_rank": row.published_rank,
    }


def summary(options: argparse.Namespace) -> Answer:
    from dflearn.paper.tables import SUMMARY_HEADER, SUMMARY_LEGEND, agreement, rows_of, summary_cells

    with _opened(options, to_run=False) as store:
        records = [record for config in configs_asked(options.tables, options) if (record := store.get(config))]
    lines, found = [], {}
    for problem in (problem for name in options.tables for problem in problems_asked(name, options.sizes)):
        published = methods_asked(problem, ["published"])
        rows = rows_of(problem, published, records)
        if rows:
            lines.append(summary_cells(problem, rows, len(published)))
            compared = agreement(rows)
            found[problem] = {
                "published_rows": len(published),
                "rows": [_row_document(row) for row in rows],
                "pairs": compared.ordered,
                "pairs_ordered_alike": compared.ordered_alike,
            }
    if not lines:
        raise DataError("there are no runs of a published row; `dfl paper table` makes them, --from takes an export")
    text = render(SUMMARY_HEADER, lines, options.format) + "\n\n"
    text += ("% " if options.format == "latex" else "") + SUMMARY_LEGEND
    return Answer(text, {"problems": found})


def run_all(options: argparse.Namespace) -> Answer:
    from dflearn.paper.published import published_costs
    from dflearn.studies.cost import Costs
    from dflearn.studies.driver import duration

    if not options.budget > 0:
        raise OptionError(f"the budget is a positive number of hours, got {options.budget}")
    configs = configs_asked(options.tables, options)
    with _opened(options, to_run=True) as store:
        costs = Costs(store.records(), published_costs())
        place = {seed: number for number, seed in enumerate(seeds_of(options.seeds), 1)}
        configs.sort(key=lambda config: costs(config) * place[config.seed])
        summary = carry_out(configs, store, options, budget=3600 * options.budget, prior=published_costs())
        missing = [config for config in configs if not store.has(config)]
        costs = Costs(store.records(), published_costs())
    left, done = sum(map(costs, missing)), len(configs) - len(missing)
    lines = [f"{done} of {len(configs)} runs in {options.store}, {summary.done} of them new"]
    if summary.failed:
        lines.append(f"{len(summary.failed)} runs failed; `dfl status {options.store}` says why")
    if missing:
        lines.append(f"the missing ones would take about {duration(left)} on one core")
    document = {
        "store": options.store,
        "asked": len(configs),
        "done": done,
        "new": summary.done,
        "failed": len(summary.failed),
        "seconds_left": left,
    }
    return Answer("\n".join(lines), document)


def show_cost(options: argparse.Namespace) -> Answer:
    from dflearn.paper.published import published_costs
    from dflearn.studies.cost import Costs, makespan
    from dflearn.studies.driver import duration

    configs = configs_asked(options.tables, options)
    with _opened(options, to_run=False) as store:
        costs = Costs(store.records(), published_costs())
        missing = configs if options.whole else [config for config in configs if not store.has(config)]
    groups: dict[tuple[str, str], list[RunConfig]] = {}
    for config in missing:
        groups.setdefault((config.problem, config.method), []).append(config)
    rows, found = [], []
    for (problem, method), runs in groups.items():
        estimate = costs.estimate(runs[0])
        whole = estimate.seconds * len(runs)
        rows.append([problem, method, str(len(runs)), duration(whole), estimate.source])
        found.append(
            {"problem": problem, "method": method, "runs": len(runs), "seconds": whole, "source": estimate.source}
        )
    text = render(["problem", "method", "runs", "would take", "estimated from"], rows) + "\n" if rows else ""
    seconds = [costs(config) for config in missing]
    what = f"all {len(configs)} runs" if options.whole else f"{len(missing)} of {len(configs)} runs are missing;"
    text += f"\n{what} together about {duration(sum(seconds))} on one core"
    last = makespan(seconds, options.cores) if options.cores and seconds else None
    if last is not None:
        text += f"\non {options.cores} cores about {duration(last)}; the longest run takes {duration(max(seconds))}"
    document = {"asked": len(configs), "counted": len(missing), "rows": found, "seconds": sum(seconds)}
    return Answer(text, {**document, "cores": options.cores, "seconds_on_cores": last})


@contextmanager
def _opened(options: argparse.Namespace, *, to_run: bool) -> Iterator[Store]:
    """The store, with what --from brings; a command that runs nothing does not make a file where there is none."""
    from dflearn.studies.store import Store

    with Store(options.store if to_run or options.store.exists() else ":memory:") as store:
        if options.source is not None:
            store.import_lines(options.source)
        yield store
