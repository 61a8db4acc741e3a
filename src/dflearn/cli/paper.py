"""dfl paper: the paper's tables beside the published ones, its figures, and the page of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from dflearn.cli.answers import Answer
from dflearn.cli.options import SEVERAL, Command, Positive, Words
from dflearn.cli.studies import FigureFormats, PageOfStudy, Runs
from dflearn.errors import DataError, OptionError
from dflearn.report.render import Format, render, titled

if TYPE_CHECKING:
    from dflearn.studies.config import RunConfig
    from dflearn.studies.store import Store

Name = Literal["sp", "kp", "cfl"]
NAMES: tuple[Name, ...] = ("sp", "kp", "cfl")
STORE = Path("paper.sqlite")


class List(Command):
    """Name the tables, the methods, the figures and what was published."""

    def run(self) -> Answer:
        from dflearn.studies.methods import method_named, method_names
        from dflearn.studies.paper import figures, published

        tables = {
            name: {problem: published.methods_named(problem, ["published"]) for problem in published.problems_of(name)}
            for name in NAMES
        }
        lists = {
            "methods": {name: method_named(name).about for name in method_names()},
            "figures": {name: about for name, (_, about) in (figures.COMPUTED | figures.FROM_RECORDS).items()},
        }
        found = [(name, problem, rows) for name, problems in tables.items() for problem, rows in problems.items()]
        rows = [[name, problem, str(len(methods)), " ".join(methods)] for name, problem, methods in found]
        text = render(["table", "problem", "rows", "published methods"], rows)
        for title, named in lists.items():
            text += f"\n\n{title}:\n" + "\n".join(f"  {name:<26}{about}" for name, about in named.items())
        return Answer(text, {"tables": tables, **lists})


class Choice(Command):
    """Which runs are meant, and where they are kept."""

    sizes: Annotated[tuple[int, ...], SEVERAL] = ()
    """default: those of the paper"""
    seeds: Words = ("1-5",)
    """such as 1 2 or 1-5 (default: 1-5)"""
    methods: Words = ("all",)
    """names, or published (the rows of the paper), or own (ours), or all (default)"""
    gurobi: bool = False
    """solve integer programs by Gurobi where its licence allows"""
    store: Path = STORE
    """where runs are kept (default: paper.sqlite)"""
    source: Annotated[Path | None, Parameter(name="--from")] = None
    """first take runs from a .jsonl (.xz) export"""

    def configs(self, *tables: str) -> list[RunConfig]:
        """Every run that the options name."""
        from dflearn.studies.config import resolve, seeds_of
        from dflearn.studies.paper.published import methods_named, problems_of

        return [
            resolve(problem, method, seed, solver="gurobi" if self.gurobi else "default")
            for name in tables
            for problem in problems_of(name, self.sizes)
            for seed in seeds_of(self.seeds)
            for method in methods_named(problem, self.methods)
        ]

    @contextmanager
    def opened(self, to_run: bool = False) -> Iterator[Store]:
        """The store, with the runs of `--from`; where nothing is to run and there is no file, none is made."""
        from dflearn.studies.store import Store

        with Store(self.store if to_run or self.store.exists() else ":memory:") as store:
            if self.source is not None:
                store.import_lines(self.source)
            yield store


class ChoiceOfTables(Choice):
    tables: Annotated[tuple[Name, ...], SEVERAL] = NAMES
    """default: all"""


class Table(Choice, Runs):
    """Run what is missing of a table and print it beside the published one.

    examples:
      dfl paper table kp --sizes 100 --methods MSE 'SPO+^relax' 'SCE^DYS' --jobs 2
      dfl paper table cfl --from results/paper/runs.jsonl.xz --no-run
    """

    table: Name = field(kw_only=False)
    """shortest paths, knapsacks or facility location"""
    format: Format = "text"
    """default: text"""
    no_run: bool = False
    """show what is there and run nothing"""

    def run(self) -> Answer:
        from dflearn.studies.paper import published, tables

        configs = self.configs(self.table)
        with self.opened(to_run=not self.no_run) as store:
            if not self.no_run:
                self.carry_out(configs, store, prior=published.published_costs())
            records = [record for config in configs if (record := store.get(config)) is not None]
            failures = [failure for config in configs if (failure := store.failure(config)) is not None]
        remark = "% " if self.format == "latex" else ""
        parts, document = [], {}
        for problem in published.problems_of(self.table, self.sizes):
            rows = tables.rows_of(problem, published.methods_named(problem, self.methods), records)
            document[problem] = [row.as_dict() for row in rows]
            if not rows:
                parts.append(f"{problem}: no runs")
                continue
            title = f"{problem}, seeds {', '.join(self.seeds)}, judged by {tables.judges(rows)}"
            table = render(tables.HEADER, [tables.cells(row) for row in rows], self.format)
            agreement = remark + tables.agreement_line(tables.agreement(rows))
            parts += [titled(title, self.format), table, agreement]
        lines = ["\n\n".join([*parts, remark + tables.LEGEND])]
        failed = [failure.as_dict() for failure in failures]
        lines += [f"failed: {one['run']}: {one['error']}" for one in failed]
        missing = len(configs) - len(records)
        if missing:
            lines.append(f"{missing} of {len(configs)} runs are missing; `dfl paper cost` says what they would take")
        return Answer("\n".join(lines), {"table": self.table, "rows": document, "failed": failed, "missing": missing})


class Summary(ChoiceOfTables):
    """Say problem by problem how near the runs come to the published tables."""

    format: Format = "text"
    """default: text"""

    def run(self) -> Answer:
        from dflearn.studies.paper import published, tables

        with self.opened() as store:
            records = [record for config in self.configs(*self.tables) if (record := store.get(config))]
        lines, document = [], {}
        for problem in [one for name in self.tables for one in published.problems_of(name, self.sizes)]:
            methods = published.methods_named(problem, ["published"])
            if rows := tables.rows_of(problem, methods, records):
                lines.append(tables.summary_cells(problem, rows, len(methods)))
                pairs = tables.agreement(rows)
                counts = {"pairs": pairs.ordered, "pairs_ordered_alike": pairs.ordered_alike}
                document[problem] = {"published_rows": len(methods), "rows": [row.as_dict() for row in rows], **counts}
        if not lines:
            raise DataError("there are no runs of a published row; dfl paper table makes them, --from takes an export")
        text = render(tables.SUMMARY_HEADER, lines, self.format) + "\n\n" + "% " * (self.format == "latex")
        return Answer(text + tables.SUMMARY_LEGEND, {"problems": document})


class All(ChoiceOfTables, Runs):
    """Run every table, cheapest information first, within a budget: dfl paper all --budget 8 --tables sp kp

    Runs are ordered by expected seconds × place of the seed: the first seed of a cheap row comes first.
    """

    budget: float
    """hours on the wall clock"""

    def run(self) -> Answer:
        from dflearn.studies import config, cost, driver
        from dflearn.studies.paper.published import published_costs

        if not self.budget > 0:
            raise OptionError(f"the budget is a positive number of hours, got {self.budget}")
        configs, prior = self.configs(*self.tables), published_costs()
        with self.opened(to_run=True) as store:
            costs = cost.Costs(store.records(), prior)
            place = {seed: number for number, seed in enumerate(config.seeds_of(self.seeds), 1)}
            configs.sort(key=lambda run: costs(run) * place[run.seed])
            outcome = self.carry_out(configs, store, budget=3600 * self.budget, prior=prior)
            missing = [run for run in configs if not store.has(run)]
            left = sum(map(cost.Costs(store.records(), prior), missing))
        new, done, failed = outcome.done, len(configs) - len(missing), len(outcome.failed)
        lines = [f"{done} of {len(configs)} runs in {self.store}, {new} of them new"]
        if failed:
            lines.append(f"{failed} runs failed; `dfl status {self.store}` says why")
        if missing:
            lines.append(f"the missing ones would take about {driver.duration(left)} on one core")
        counts = {"asked": len(configs), "done": done, "new": new, "failed": failed}
        return Answer("\n".join(lines), {"store": self.store, **counts, "seconds_left": left})


class Cost(ChoiceOfTables):
    """Say what each missing row would take: dfl paper cost --tables kp --cores 64"""

    whole: bool = False
    """count the runs that are there too: the whole study"""
    cores: Positive | None = None
    """also say when the last run would end on so many cores"""

    def run(self) -> Answer:
        from dflearn.studies.cost import Costs, makespan
        from dflearn.studies.driver import duration
        from dflearn.studies.paper.published import published_costs

        configs = self.configs(*self.tables)
        with self.opened() as store:
            costs = Costs(store.records(), published_costs())
            missing = configs if self.whole else [config for config in configs if not store.has(config)]
        rows = costs.by_method(missing)
        shown = [[str(value) for value in {**row, "seconds": duration(row["seconds"])}.values()] for row in rows]
        text = render(["problem", "method", "runs", "would take", "estimated from"], shown) + "\n" if rows else ""
        each = [costs(config) for config in missing]
        what = f"all {len(configs)} runs" if self.whole else f"{len(missing)} of {len(configs)} runs are missing;"
        text += f"\n{what} together about {duration(sum(each))} on one core"
        last = makespan(each, self.cores) if self.cores and each else None
        if last is not None:
            text += f"\non {self.cores} cores about {duration(last)}; the longest run takes {duration(max(each))}"
        totals = {"seconds": sum(each), "cores": self.cores, "seconds_on_cores": last}
        return Answer(text, {"asked": len(configs), "counted": len(missing), "rows": rows, **totals})


class Figure(Command):
    """Draw figures of the paper, with their numbers as CSV; dfl paper list names them."""

    names: Words = field(kw_only=False)
    """names of figures; `all` for every one that the study allows"""
    out: Path = Path("figures")
    """the folder of the files (default: figures)"""
    format: FigureFormats = ("png", "svg")
    """default: png svg"""
    quick: bool = False
    """fewer draws and points, for a first look"""
    study: Path = STORE
    """TOML file, store or .jsonl export, for the figures of runs (default: paper.sqlite)"""
    metric: str = "published_style"
    """regret of those figures (default: published_style, as in the paper)"""

    def run(self) -> Answer:
        from dflearn.studies.paper.figures import FROM_RECORDS, figure_names, make_figure
        from dflearn.studies.store import read_records, store_of

        everything, records, document = self.names == ("all",), None, {}
        lines: list[str] = []
        for name in figure_names() if everything else self.names:
            try:
                if name in FROM_RECORDS and records is None:
                    records = read_records(store_of(self.study))
                made = make_figure(name, quick=self.quick, records=records or (), metric=self.metric)
            except DataError as error:
                if not (everything and name in FROM_RECORDS):
                    raise
                lines.append(f"{name} is left out: {error}")
                continue
            files = made.write(self.out, self.format)
            document[name] = {"title": made.title, "findings": list(made.findings), "files": files}
            table = [] if made.table is None else render(*made.table).splitlines()
            lines += [made.title, *(f"  {line}" for line in (*made.findings, *table))]
            lines.append(f"  {files[0].with_suffix('')}" + "".join(f" {file.suffix}" for file in files))
        return Answer("\n".join(lines), {"figures": document})


class Report(PageOfStudy):
    """Write the page of a study with the published figures beside ours, and the paper's figures."""

    study: Path = STORE
    """TOML file, store or .jsonl export of the runs (default: paper.sqlite)"""
    metric: str = "published_style"
    """which regret to show (default: published_style)"""
    no_figures: bool = False
    """leave the paper's figures out"""

    def run(self) -> Answer:
        from dflearn.studies.paper.figures import paper_page
        from dflearn.studies.paper.tables import published_regrets

        title, shown = self.title or "The paper's runs", not self.no_figures
        return self.write(
            lambda records, notes: paper_page(records, title, self.metric, warnings=notes, with_figures=shown),
            lambda records: published_regrets(records, self.metric),
        )
