"""dfl paper: the paper's tables beside the published ones, its figures, and a page of its runs."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from shlex import quote
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
    """List the tables with their published rows, all methods, and the figures."""

    def run(self) -> Answer:
        from dflearn.studies.methods import method_named, method_names
        from dflearn.studies.paper import figures, published

        problems = {name: published.problems_of(name) for name in NAMES}
        tables = {name: {one: published.methods_named(one, ["published"]) for one in problems[name]} for name in NAMES}
        found = [(name, one, methods) for name in NAMES for one, methods in tables[name].items()]
        rows = [[name, one, str(len(methods)), " ".join(methods)] for name, one, methods in found]
        text = render(["table", "problem", "rows", "published methods"], rows)
        about = {name: method_named(name).about for name in method_names()}
        lists = {"methods": about, "figures": {name: words for name, (_, words) in figures.FIGURES.items()}}
        for title, named in lists.items():
            text += f"\n\n{title}:\n" + "\n".join(f"  {name:<33}{words}" for name, words in named.items())
        return Answer(text, {"tables": tables, **lists})


class Choice(Command):
    sizes: Annotated[tuple[int, ...], SEVERAL] = ()
    """sizes of the problems, such as 5 10 (default: those of the paper)"""
    seeds: Words = ("1-5",)
    """seeds, such as 1 2 or 1-5 (default: 1-5)"""
    methods: Words = ("all",)
    """names of methods, published (rows of the paper), own (our rows), or all (default)"""
    gurobi: bool = False
    """solve integer programs with Gurobi if its licence allows their size"""
    store: Path = STORE
    """file that stores the runs (default: paper.sqlite)"""
    source: Annotated[Path | None, Parameter(name="--from")] = None
    """also use the runs of this .jsonl (.jsonl.xz) export"""

    def configs(self, *tables: str) -> list[RunConfig]:
        from dflearn.studies.config import resolve, seeds_of
        from dflearn.studies.paper.published import methods_named, problems_of

        return [
            resolve(problem, method, seed, solver="gurobi" if self.gurobi else "default")
            for name in tables
            for problem in problems_of(name, self.sizes)
            for seed in seeds_of(self.seeds)
            for method in methods_named(problem, self.methods)
        ]

    def opened(self, to_run: bool = False) -> Store:
        """The store, with the runs of `--from`. Unless runs are to be stored, no new file is made."""
        from dflearn.studies.store import Store

        store = Store(self.store if to_run or self.store.exists() else ":memory:")
        if self.source is not None:
            store.import_lines(self.source)
        return store


class ChoiceOfTables(Choice):
    tables: Annotated[tuple[Name, ...], SEVERAL] = NAMES
    """sp, kp or cfl: shortest paths, knapsacks, facility location (default: all)"""


class Table(Choice, Runs):
    """Carry out the missing runs of a table, and print it beside the published one.

    examples:
      dfl paper table kp --sizes 100 --methods MSE 'SPO+^relax' 'SCE^DYS' --jobs 2
      dfl paper table cfl --from results/paper/runs.jsonl.xz --no-run
    """

    table: Name = field(kw_only=False)
    """sp, kp or cfl: shortest paths, knapsacks, facility location"""
    format: Format = "text"
    """format of the table (default: text)"""
    no_run: bool = False
    """print the stored runs, and carry out none"""

    def run(self) -> Answer:
        from dflearn.studies.paper import published, tables

        configs = self.configs(self.table)
        with self.opened(to_run=not self.no_run) as store:
            if not self.no_run:
                self.carry_out(configs, store, prior=published.published_costs())
            records = [record for config in configs if (record := store.get(config)) is not None]
            failed = [found.as_dict() for config in configs if (found := store.failure(config)) is not None]
        remark = "% " if self.format == "latex" else ""
        parts, document = [], {}
        for problem in published.problems_of(self.table, self.sizes):
            rows = tables.rows_of(problem, published.methods_named(problem, self.methods), records)
            document[problem] = [row.as_dict() for row in rows]
            if not rows:
                parts.append(f"{problem}: no runs")
                continue
            title = f"{problem}, seeds {', '.join(self.seeds)}, exact solver: {tables.judges(rows)}"
            parts += [titled(title, self.format), render(tables.HEADER, list(map(tables.cells, rows)), self.format)]
            parts.append(remark + tables.agreement_line(tables.agreement(rows)))
        lines = ["\n\n".join([*parts, remark + tables.LEGEND])]
        lines += [f"failed: {one['run']}: {one['error']}" for one in failed]
        missing, what = len(configs) - len(records), f"of {len(configs)} runs are missing"
        lines += [f"{missing} {what}. dfl paper cost estimates their time."] if missing else []
        return Answer("\n".join(lines), {"table": self.table, "rows": document, "failed": failed, "missing": missing})


class Summary(ChoiceOfTables):
    """Print one line per problem: how close the stored runs are to the published table."""

    format: Format = "text"
    """format of the table (default: text)"""

    def run(self) -> Answer:
        from dflearn.studies.paper import published, tables

        with self.opened() as store:
            records = [record for config in self.configs(*self.tables) if (record := store.get(config))]
        lines, document = [], {}
        for problem in [one for name in self.tables for one in published.problems_of(name, self.sizes)]:
            methods = published.methods_named(problem, ["published"])
            if rows := tables.rows_of(problem, methods, records):
                lines.append(tables.summary_cells(problem, rows, len(methods)))
                pairs, listed = tables.agreement(rows), [row.as_dict() for row in rows]
                counts = {"pairs": pairs.ordered, "pairs_ordered_alike": pairs.ordered_alike}
                document[problem] = {"published_rows": len(methods), "rows": listed, **counts}
        if not lines:
            raise DataError("no runs of published rows: run dfl paper table, or read an export with --from FILE")
        text = render(tables.SUMMARY_HEADER, lines, self.format) + "\n\n" + "% " * (self.format == "latex")
        return Answer(text + tables.SUMMARY_LEGEND, {"problems": document})


class All(ChoiceOfTables, Runs):
    """Carry out the missing runs of all tables within a time budget, the quickest first.

    example: dfl paper all --budget 8 --tables sp kp

    Runs are ordered by expected time × place of the seed, so the first seed of a
    quick row comes first.
    """

    budget: float
    """wall-clock time in hours"""

    def run(self) -> Answer:
        from dflearn.studies import config, driver
        from dflearn.studies.paper.published import published_costs

        if not self.budget > 0:
            raise OptionError(f"--budget is a positive number of hours, got {self.budget}")
        configs, prior, seeds = self.configs(*self.tables), published_costs(), config.seeds_of(self.seeds)
        with self.opened(to_run=True) as store:
            costs = driver.Costs(store.records(), prior)
            configs.sort(key=lambda run: costs(run) * (1 + seeds.index(run.seed)))
            outcome = self.carry_out(configs, store, budget=3600 * self.budget, prior=prior)
            missing = [run for run in configs if not store.has(run)]
            left = sum(map(driver.Costs(store.records(), prior), missing))
        new, done, failed = outcome.done, len(configs) - len(missing), len(outcome.failed)
        lines = [f"{done} of {len(configs)} runs in {self.store}, {new} of them new"]
        lines += [f"{failed} runs failed. Next: dfl status {quote(str(self.store))}"] if failed else []
        lines += [f"The missing runs take about {driver.duration(left)} on one core."] if missing else []
        counts = {"asked": len(configs), "done": done, "new": new, "failed": failed}
        return Answer("\n".join(lines), {"store": self.store, **counts, "seconds_left": left})


class Cost(ChoiceOfTables):
    """Estimate the time of the missing runs, row by row.

    example: dfl paper cost --tables kp --cores 64
    """

    whole: bool = False
    """estimate all runs, also the stored ones"""
    cores: Positive | None = None
    """also estimate the time on so many cores"""

    def run(self) -> Answer:
        from dflearn.studies.driver import Costs, duration, makespan
        from dflearn.studies.paper.published import published_costs

        configs = self.configs(*self.tables)
        with self.opened() as store:
            costs = Costs(store.records(), published_costs())
            missing = configs if self.whole else [config for config in configs if not store.has(config)]
        rows, each = costs.by_method(missing), [costs(config) for config in missing]
        shown = [[str(value) for value in {**row, "seconds": duration(row["seconds"])}.values()] for row in rows]
        text = render(["problem", "method", "runs", "time", "estimated from"], shown) + "\n" if rows else ""
        what = f"All {len(configs)} runs" if self.whole else f"The {len(missing)} missing of {len(configs)} runs"
        text += f"\n{what} take about {duration(sum(each))} on one core."
        last = makespan(each, self.cores) if self.cores and each else None
        if last is not None:
            text += f"\nOn {self.cores} cores: about {duration(last)}. The longest run takes {duration(max(each))}."
        totals = {"seconds": sum(each), "cores": self.cores, "seconds_on_cores": last}
        return Answer(text, {"asked": len(configs), "counted": len(missing), "rows": rows, **totals})


class Figure(Command):
    """Draw figures of the paper, and write their numbers as CSV. dfl paper list shows the names.

    examples:
      dfl paper figure cave gradients
      dfl paper figure all --study results/paper/runs.jsonl.xz
    """

    names: Words = field(kw_only=False)
    """names of figures, or all (without figures whose runs the study lacks)"""
    out: Path = Path("figures")
    """folder for the files (default: figures)"""
    format: FigureFormats = ("png", "svg")
    """file formats (default: png svg)"""
    quick: bool = False
    """fewer draws and points"""
    study: Path = STORE
    """runs for the figures that show runs: TOML file, store or .jsonl export (default: paper.sqlite)"""

    def run(self) -> Answer:
        from dflearn.studies.paper.figures import FIGURES, FROM_RECORDS, make_figure
        from dflearn.studies.store import read_records, store_of

        everything, records, document = self.names == ("all",), None, {}
        lines: list[str] = []
        for name in FIGURES if everything else self.names:
            try:
                if name in FROM_RECORDS:
                    records = records or read_records(store_of(self.study))
                made = make_figure(name, quick=self.quick, records=records or ())
            except DataError as error:
                if not (everything and name in FROM_RECORDS):
                    raise
                lines.append(f"note: {name} is left out: {error}")
                continue
            files, table = made.write(self.out, self.format), render(*made.table).splitlines() if made.table else []
            document[name] = {"title": made.title, "findings": list(made.findings), "files": files}
            lines += [made.title, *(f"  {line}" for line in (*made.findings, *table))]
            lines.append(f"  {files[0].with_suffix('')}" + "".join(f" {file.suffix}" for file in files))
        return Answer("\n".join(lines), {"figures": document})


class Report(PageOfStudy):
    """Write a page of the runs with the published values beside ours, and the paper's figures.

    example: dfl paper report --study results/paper/runs.jsonl.xz -o report.html
    """

    study: Path = STORE
    """the runs: TOML file, store or .jsonl export (default: paper.sqlite)"""
    metric: str = "published_style"
    """the regret to show (default: published_style)"""

    def run(self) -> Answer:
        from dflearn.studies.paper.figures import paper_page
        from dflearn.studies.paper.tables import published_regrets

        return self.write(
            lambda records, notes: paper_page(records, "The paper's runs", self.metric, warnings=notes),
            lambda records: published_regrets(records, self.metric),
        )
