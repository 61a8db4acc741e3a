"""dfl run, dfl status, dfl export, dfl report: studies from TOML files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from dflearn.cli.answers import Answer
from dflearn.cli.options import SEVERAL, WORKERS, Cache, Cluster, Command, Positive
from dflearn.errors import DataError, OptionError
from dflearn.files import check_writable, write_whole
from dflearn.report.render import Format, render

if TYPE_CHECKING:
    from dflearn.report.page import Page
    from dflearn.studies.config import RunConfig
    from dflearn.studies.driver import Prior, StudyOutcome
    from dflearn.studies.executors import Executor
    from dflearn.studies.record import Record
    from dflearn.studies.store import Store

TABLES: dict[str, Format] = {".md": "markdown", ".tex": "latex", ".txt": "text"}
FigureFormats = Annotated[tuple[Literal["pdf", "svg", "png"], ...], SEVERAL]


class Runs(Cluster, Cache):
    jobs: Annotated[Positive | None, WORKERS] = None
    """number of runs at the same time, each in its own process (default: one per core)"""
    in_process: Annotated[bool, WORKERS] = False
    """carry out one run after the other in this process"""
    retries: int = 2
    """how often to repeat a run if its process or node is lost (default: 2)"""
    retry_failed: bool = False
    """repeat runs that failed before"""
    raw: Path | None = None
    """folder for predictions and decisions of the test set: FOLDER/KEY.npz for each run that is carried out"""

    def carry_out(
        self, configs: Sequence[RunConfig], store: Store, budget: float | None = None, prior: Prior | None = None
    ) -> StudyOutcome:
        from dflearn.studies.driver import Costs, run_study

        missing = sum(not store.has(config) for config in configs)
        how: dict[str, Any] = {"retry_failed": self.retry_failed, "retries": self.retries, "budget": budget}
        with self._executor(missing) as executor:
            outcome = run_study(configs, store, executor, estimate=Costs(store.records(), prior), **how)
        if outcome.skipped:
            print(f"note: {len(outcome.skipped)} runs failed before. To repeat them, add --retry-failed")
        return outcome

    def _executor(self, missing: int) -> Executor:
        from dflearn.studies.executors import InProcess, LocalProcesses, available_cores

        if self.raw is not None and self.on_ray:
            raise OptionError("--raw writes to this machine, and --executor ray uses others: leave out one of the two")
        if self.raw is not None:
            self.raw.mkdir(parents=True, exist_ok=True)  # an error comes before hours of training, not after
        if self.on_ray and missing:
            from dflearn.integrations.ray import GIGABYTE, RayExecutor

            return RayExecutor(self.address, self.cache_folder, self.memory * GIGABYTE)
        if self.in_process or not missing:
            return InProcess(self.cache_folder, self.raw)
        return LocalProcesses(self.jobs or min(available_cores(), missing), self.cache_folder, self.raw)


class Run(Runs):
    """Carry out a study: a grid of problems, methods and seeds in a TOML file.

    example: dfl run experiment.toml --jobs 2

    experiment.sqlite beside the file stores finished runs, so none is repeated. After
    an interruption, the same command continues.
    """

    study: Path = field(kw_only=False)
    """the TOML file"""
    store: Path | None = None
    """file that stores the runs (default: beside the TOML file)"""

    def run(self) -> Answer:
        from dflearn.studies.config import read_study
        from dflearn.studies.store import Store, store_of
        from dflearn.studies.summary import notes_on

        configs = read_study(self.study).runs()
        with Store(self.store or store_of(self.study)) as store:
            new = self.carry_out(configs, store).done
            records = [record for config in configs if (record := store.get(config)) is not None]
        forms = {"problem": "", "method": "", "seed": "", "mean_of_ratios": ".4f", "published_style": ".4f"}
        runs: list[dict[str, Any]] = [
            {name: getattr(one.config, name) if not form else one.metric(name) for name, form in forms.items()}
            | {"seconds_per_epoch": one.seconds["epoch"]}
            for one in records
        ]
        header = [*(name.replace("_", " ") for name in forms), "s/epoch"]
        rows = [[format(value, forms.get(name, ".3g")) for name, value in one.items()] for one in runs]
        asked, done, notes = len(configs), len(records), notes_on(records)
        counts = {"store": store.path, "asked": asked, "done": done, "new": new}
        lines = [render(header, rows), f"\n{done} of {asked} runs in {store.path}, {new} of them new", *notes]
        error = DataError(f"{asked - done} of {asked} runs failed. Next: dfl status {quote(str(store.path))}")
        lines += [f"Next: dfl report {quote(str(self.study))} -o report.html"] if done == asked else []
        return Answer("\n".join(lines), {**counts, "runs": runs, "notes": notes}, error if done < asked else None)


class Status(Command):
    """Show the progress of a study: finished, running, failed and missing runs, and the time left."""

    study: Path = field(kw_only=False)
    """the study's TOML file or its store"""

    def run(self) -> Answer:
        from dflearn.studies.driver import Costs, duration
        from dflearn.studies.store import Store, store_of

        with Store(store_of(self.study), must_exist=True) as store:
            progress, costs = store.progress(), Costs(store.records())
        counts = {name: len(getattr(progress, name)) for name in ("done", "running", "failed", "missing")}
        total, now = sum(counts.values()), time.time()
        failed = [one.as_dict() for one in progress.failed]
        left = sum(map(costs, [*progress.missing, *progress.running]))
        lines = [f"{store.path}: {total} runs, " + ", ".join(f"{count} {name}" for name, count in counts.items())]
        running: list[dict[str, Any]] = []
        for config, began in progress.running.items():
            seconds, expected = now - began, costs(config)
            running.append({"run": str(config), "seconds": seconds, "expected_seconds": expected})
            lines.append(f"  running: {config}, {duration(seconds)} of about {duration(expected)}")
        lines += [f"  failed: {one['run']}: {one['error']}" for one in failed]
        if progress.missing:
            lines.append(f"  time left: about {duration(left)} on one core")
        document = {"store": store.path, "runs": total, **counts, "seconds_left": left}
        return Answer("\n".join(lines), {**document, "running": running, "failed": failed})


class Export(Command):
    """Write the finished runs of a study to a table.

    example: dfl export experiment.toml --out runs.csv

    A .csv or .parquet file has a row per run. A .jsonl file (.gz, .xz) has whole records.
    """

    study: Path = field(kw_only=False)
    """the study's TOML file or its store"""
    out: Path
    """a .csv, .parquet or .jsonl (.gz, .xz) file"""
    instances: bool = False
    """with .jsonl: also write the regret and the optimum of every test instance"""

    def run(self) -> Answer:
        from dflearn.studies.store import Store, store_of

        with Store(store_of(self.study), must_exist=True) as store:
            count = store.export(self.out, instances=self.instances)
        return Answer(f"{count} runs in {self.out}", {"out": self.out, "runs": count})


class PageOfStudy(Command):
    """The page, the tables or the figures of a study."""

    study: Path
    out: Annotated[Path, Parameter(alias="-o")] = Path("report.html")
    """a page (.html), tables (.md, .tex, .txt), or a folder for the figures (default: report.html)"""
    format: FigureFormats = ("pdf",)
    """file formats of the figures in a folder (default: pdf)"""
    metric: str = "mean_of_ratios"
    """the regret to show (default: mean_of_ratios)"""

    def write(
        self,
        make_page: Callable[[list[Record], Iterable[str]], Page],
        reference: Callable[[list[Record]], Mapping[tuple[str, str], float]] = lambda records: {},
    ) -> Answer:
        """Write a page, tables or figures, by the ending of `out`. reference: known regrets, for the tables."""
        from dflearn.studies.report import tables
        from dflearn.studies.summary import runs_of

        kind = self.out.suffix.lower()
        if kind not in ("", ".html", *TABLES):
            raise OptionError(f"--out ends in .html, {', '.join(TABLES)}, or is a folder; got {self.out.name!r}")
        check_writable(self.out)
        records, notes = runs_of(self.study)
        if kind in TABLES:
            files = [write_whole(self.out, tables(records, self.metric, TABLES[kind], reference(records)).encode())]
        elif kind:
            files = [make_page(records, notes).write(self.out)]
        else:
            files = make_page(records, ()).write_figures(self.out, self.format)
        text = f"{len(records)} runs in {self.out}" if kind else f"{len(files)} files in {self.out}"
        return Answer(text, {"out": self.out, "runs": len(records), "files": files})


class Report(PageOfStudy):
    """Write the results of a study: an HTML page, tables, or figures.

    examples:
      dfl report experiment.toml -o report.html   (one page)
      dfl report experiment.toml -o tables.tex    (tables only; also .md and .txt)
      dfl report experiment.toml -o figures       (a folder with the figures)
    """

    study: Path = field(kw_only=False)
    """the study's TOML file, its store, or a .jsonl export"""

    def run(self) -> Answer:
        from dflearn.studies.report import study_page

        title = f"Study {self.study.stem}"
        return self.write(lambda records, notes: study_page(records, title, self.metric, warnings=notes))
