"""dfl run, dfl status, dfl export, dfl report: studies from TOML files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from dflearn.cli.answers import Answer
from dflearn.cli.options import SEVERAL, WORKERS, Cache, Cluster, Command, Positive
from dflearn.errors import DataError, OptionError
from dflearn.files import check_writable, write_whole
from dflearn.report.render import render

if TYPE_CHECKING:
    from dflearn.report.page import Page
    from dflearn.studies.config import RunConfig
    from dflearn.studies.cost import Prior
    from dflearn.studies.driver import StudyOutcome
    from dflearn.studies.executors import Executor
    from dflearn.studies.record import Record
    from dflearn.studies.store import Store

TABLES = {".md": "markdown", ".tex": "latex", ".txt": "text"}
FigureFormats = Annotated[tuple[Literal["pdf", "svg", "png"], ...], SEVERAL]


class Runs(Cluster, Cache):
    """How runs are carried out."""

    jobs: Annotated[Positive | None, WORKERS] = None
    """runs side by side, each in a process of its own (default: one per core)"""
    in_process: Annotated[bool, WORKERS] = False
    """one after the other in this process"""
    retries: int = 2
    """how often a run is tried again whose process or node was lost (default: 2)"""
    retry_failed: bool = False
    """also repeat runs that failed before"""
    raw: Path | None = None
    """folder: keep predictions and decisions of the test rows of every run that is carried out, as FOLDER/KEY.npz"""

    def carry_out(
        self, configs: Sequence[RunConfig], store: Store, budget: float | None = None, prior: Prior | None = None
    ) -> StudyOutcome:
        """Run what is missing, with a progress bar, and say what failed."""
        from dflearn.studies.cost import Costs
        from dflearn.studies.driver import run_study

        missing = sum(not store.has(config) for config in configs)
        again: dict[str, Any] = {"retry_failed": self.retry_failed, "retries": self.retries}
        estimate = Costs(store.records(), prior)
        with self._executor(missing) as executor:
            outcome = run_study(configs, store, executor, budget=budget, estimate=estimate, **again)
        if outcome.skipped:
            print(f"{len(outcome.skipped)} runs failed before and were not repeated; --retry-failed repeats them")
        return outcome

    def _executor(self, missing: int) -> Executor:
        from dflearn.studies.executors import InProcess, LocalProcesses, available_cores

        if self.raw is not None and self.on_ray:
            raise OptionError("--raw writes to this machine, and Ray's runs are on others: leave one of the two out")
        if self.raw is not None:
            try:
                self.raw.mkdir(parents=True, exist_ok=True)
            except OSError as error:  # before hours of training, not after
                raise OptionError(f"--raw: no folder can be made at {self.raw}: {error.strerror}") from error
        if self.on_ray and missing:
            from dflearn.integrations.ray import GIGABYTE, RayExecutor

            return RayExecutor(self.address, self.cache_folder, self.memory * GIGABYTE)
        if self.in_process or not missing:
            return InProcess(self.cache_folder, self.raw)
        return LocalProcesses(self.jobs or min(available_cores(), missing), self.cache_folder, self.raw)


class Run(Runs):
    """Carry out a study: a grid of problems, methods and seeds from a TOML file.

    examples:
      dfl run experiment.toml --jobs 2

    Finished runs are kept in experiment.sqlite beside the file and never repeated: call it again to go on.
    """

    study: Path = field(kw_only=False)
    """the TOML file"""
    store: Path | None = None
    """where runs are kept (default: beside the TOML file)"""

    def run(self) -> Answer:
        from dflearn.studies.config import read_study
        from dflearn.studies.store import Store, store_of
        from dflearn.studies.summary import notes_on

        configs = read_study(self.study).runs()
        with Store(self.store or store_of(self.study)) as store:
            new = self.carry_out(configs, store).done
            records = [record for config in configs if (record := store.get(config)) is not None]
        runs: list[dict[str, Any]] = [
            {"problem": str(one.config.problem), "method": one.config.method, "seed": one.config.seed}
            | {name: one.metric(name) for name in ("mean_of_ratios", "published_style")}
            | {"seconds_per_epoch": one.seconds["epoch"]}
            for one in records
        ]
        header = ["problem", "method", "seed", "mean of ratios", "published style", "s/epoch"]
        forms = ("", "", "", ".4f", ".4f", ".3g")
        rows = [[format(value, form) for value, form in zip(one.values(), forms, strict=True)] for one in runs]
        asked, done, notes = len(configs), len(records), notes_on(records)
        counts = {"store": store.path, "asked": asked, "done": done, "new": new}
        lines = [render(header, rows), f"\n{done} of {asked} runs in {store.path}, {new} of them new", *notes]
        error = DataError(f"{asked - done} runs are not there; `dfl status {store.path}` says why")
        return Answer("\n".join(lines), {**counts, "runs": runs, "notes": notes}, error if done < asked else None)


class Status(Command):
    """Say where a study stands."""

    study: Path = field(kw_only=False)
    """the study's TOML file or its store"""

    def run(self) -> Answer:
        from dflearn.studies.cost import Costs
        from dflearn.studies.driver import duration
        from dflearn.studies.store import Store, store_of

        with Store(store_of(self.study), must_exist=True) as store:
            progress, costs = store.progress(), Costs(store.records(), folder=self.study.parent)
        counts = {name: len(getattr(progress, name)) for name in ("done", "running", "failed", "missing")}
        total, now = sum(counts.values()), time.time()
        running: list[dict[str, Any]] = [
            {"run": str(config), "seconds": now - began, "expected_seconds": costs(config)}
            for config, began in progress.running.items()
        ]
        failed = [one.as_dict() for one in progress.failed]
        left = sum(map(costs, [*progress.missing, *progress.running]))
        lines = [f"{store.path}: {total} runs, " + ", ".join(f"{count} {name}" for name, count in counts.items())]
        for one in running:
            times = duration(one["seconds"]), duration(one["expected_seconds"])
            lines.append(f"  running for {times[0]}: {one['run']}, expected to take {times[1]}")
        lines += [f"  failed: {one['run']}: {one['error']}" for one in failed]
        if progress.missing:
            lines.append(f"  left: about {duration(left)} on one core")
        document = {"store": store.path, "runs": total, **counts, "seconds_left": left}
        return Answer("\n".join(lines), {**document, "running": running, "failed": failed})


class Export(Command):
    """Write the finished runs of a study as a table: dfl export experiment.toml --out runs.csv

    A .csv or .parquet file has a row per run; a .jsonl file (.gz, .xz) holds whole records.
    """

    study: Path = field(kw_only=False)
    """the study's TOML file or its store"""
    out: Path
    """a .csv, .parquet or .jsonl (.gz, .xz) file"""
    instances: bool = False
    """also regret and optimum of every test instance (.jsonl only)"""

    def run(self) -> Answer:
        from dflearn.studies.store import Store, store_of

        with Store(store_of(self.study), must_exist=True) as store:
            count = store.export(self.out, instances=self.instances)
        return Answer(f"{count} runs in {self.out}", {"out": self.out, "runs": count})


class PageOfStudy(Command):
    """The page, the tables or the figures of a study."""

    study: Path
    out: Annotated[Path, Parameter(alias="-o")] = Path("report.html")
    """default: report.html"""
    format: FigureFormats = ("pdf",)
    """of the figures in a folder: pdf (default), svg, png"""
    metric: str = "mean_of_ratios"
    """which regret to show (default: mean_of_ratios)"""
    title: str | None = None
    """default: the study's name"""

    def write(
        self,
        make_page: Callable[[list[Record], Iterable[str]], Page],
        reference: Callable[[list[Record]], Mapping[tuple[str, str], float]] = lambda records: {},
    ) -> Answer:
        """Write what the name of `out` asks for. reference: known regrets, for the tables."""
        from dflearn.studies.report import tables
        from dflearn.studies.summary import runs_of

        kind = self.out.suffix.lower()
        if kind not in ("", ".html", *TABLES):
            raise OptionError(f"a report ends in .html, {', '.join(TABLES)}, or is a folder; got {self.out.name!r}")
        check_writable(self.out)
        records, notes = runs_of(self.study)
        files = [self.out]
        if kind in TABLES:
            form: Any = TABLES[kind]
            write_whole(self.out, tables(records, self.metric, form, reference(records)).encode())
        elif kind:
            make_page(records, notes).write(self.out)
        else:
            files = make_page(records, ()).write_figures(self.out, self.format)
        text = f"{len(records)} runs in {self.out}" if kind else f"{len(files)} files in {self.out}"
        return Answer(text, {"out": self.out, "runs": len(records), "files": files})


class Report(PageOfStudy):
    """Write what a study shows: an HTML page, its tables, or its figures.

    examples:
      dfl report experiment.toml -o report.html

    The page is one file that loads nothing. A name that ends in .md, .tex (booktabs) or .txt gets tables only; a name
    without an ending is a folder that gets all figures of the page as files.
    """

    study: Path = field(kw_only=False)
    """the study's TOML file, its store, or a .jsonl export"""

    def run(self) -> Answer:
        from dflearn.studies.report import study_page

        title = self.title or f"Study {self.study.stem}"
        return self.write(lambda records, notes: study_page(records, title, self.metric, warnings=notes))
