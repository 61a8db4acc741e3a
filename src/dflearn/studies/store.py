"""The store of a study: one SQLite file. A finished run is one row, written in one transaction, so no crash leaves half of one.

Finished runs are exported as tables (.csv, .parquet), or as whole records, a line each (.jsonl, .jsonl.gz, .jsonl.xz).
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from dflearn.errors import DataError, OptionError
from dflearn.files import transaction, write_whole
from dflearn.reading import LEAST, UNREADABLE, unpack
from dflearn.studies.config import RESULTS_VERSION, RunConfig
from dflearn.studies.record import Record
from dflearn.tables.table_files import write_table

Kind = TypeVar("Kind", Record, RunConfig)
FORMAT = 4  # of the tables below

# Plain rollback journal and synchronous=FULL: one file, safe against power cuts, readable while a study runs. `asked` holds
# the runs of the studies: `place` in the last study (or NULL), the process that carries it out, and its failure.
SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    key TEXT PRIMARY KEY, question TEXT NOT NULL, results_version INTEGER NOT NULL, record TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS runs_by_question ON runs (question);
CREATE TABLE IF NOT EXISTS asked (
    key TEXT PRIMARY KEY, config TEXT NOT NULL, place INTEGER, began REAL, process INTEGER, error TEXT, ended REAL);
"""
IDLE = "began = NULL, process = NULL"


@dataclass(frozen=True)
class Failure:
    """A run that ended in an error."""

    config: RunConfig
    error: str

    def as_dict(self) -> dict[str, str]:
        return {"run": str(self.config), "error": self.error.strip().splitlines()[-1]}


@dataclass(frozen=True)
class Progress:
    """The runs that the study asked for last, by their state."""

    done: list[RunConfig]
    running: dict[RunConfig, float]  # since when
    failed: list[Failure]
    missing: list[RunConfig]


class Store(AbstractContextManager["Store"]):
    """The file of a study, made unless it `must_exist`. Only one process, the driver, writes; any number may read meanwhile."""

    def __init__(self, path: str | Path, *, must_exist: bool = False) -> None:
        self.path = Path(path)
        if must_exist and not self.path.exists():
            raise DataError(f"there is no study at {self.path}")
        _check_folder(self.path)
        self.connection = sqlite3.connect(self.path, timeout=60)
        try:
            self.connection.execute("PRAGMA synchronous = FULL")
            (version,) = self.connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, FORMAT):
                raise sqlite3.DatabaseError(f"it is of another dflearn (format {version}), so update this one")
            size = os.path.getsize(self.path) if self.path.exists() else 0  # ":memory:" is no file
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(LEAST, 2 * size))
            kinds = "SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index') OR upper(sql) LIKE '%GENERATED%'"
            if self.connection.execute(kinds).fetchone() != (0,):  # for example a view that never ends
                raise sqlite3.DatabaseError("it holds more than tables")
            with self.connection:
                self.connection.executescript(SCHEMA)
                self.connection.execute(f"PRAGMA user_version = {FORMAT}")
        except sqlite3.DatabaseError as error:
            self.connection.close()
            raise DataError(f"{self.path} cannot be used as a study: {error}; name another file") from error

    def __exit__(self, *exception: object) -> None:
        self.connection.close()

    def put(self, record: Record) -> None:
        """Keep a finished run, and forget an earlier failure of it."""
        config = record.config
        row = (config.key, config.question, RESULTS_VERSION, json.dumps(record.as_dict(instances=True)))
        with transaction(self.connection, self.path):
            self.connection.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", row)
            self.connection.execute(f"UPDATE asked SET {IDLE}, error = NULL WHERE key = ?", (config.key,))

    def put_failure(self, config: RunConfig, error: str) -> None:
        with transaction(self.connection, self.path):
            self._note(config, error=error, ended=time.time(), began=None, process=None)

    def put_wanted(self, configs: Sequence[RunConfig]) -> None:
        """The runs that the study now asks for; `progress` reports them."""
        with transaction(self.connection, self.path):
            self.connection.execute("UPDATE asked SET place = NULL")
            for place, config in enumerate(configs):
                self._note(config, place=place)

    def put_running(self, config: RunConfig) -> None:
        with transaction(self.connection, self.path):
            self._note(config, began=time.time(), process=os.getpid())

    def clear_running(self) -> None:
        """Forget the runs that this driver, or a killed one, had started."""
        rows = list(self._rows("SELECT key, process FROM asked WHERE process IS NOT NULL"))
        gone = [(key,) for key, process in rows if process == os.getpid() or not _alive(process)]
        with transaction(self.connection, self.path):
            self.connection.executemany(f"UPDATE asked SET {IDLE} WHERE key = ?", gone)

    def _note(self, config: RunConfig, **values: object) -> None:
        """Set columns of a run that was asked for."""
        row = {"key": config.key, "config": json.dumps(config.as_dict()), **values}
        changes = ", ".join(f"{name} = excluded.{name}" for name in values)
        text = f"INSERT INTO asked ({', '.join(row)}) VALUES ({', '.join('?' * len(row))}) ON CONFLICT (key) DO UPDATE SET {changes}"
        self.connection.execute(text, tuple(row.values()))

    def _rows(self, question: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self.connection.execute(question, values)
        except sqlite3.Error as error:
            raise _unreadable(self.path, error) from error

    def get(self, config: RunConfig) -> Record | None:
        """The finished run of this config, or one that differs only in the exact solver."""
        text = "SELECT record FROM runs WHERE question = ? AND results_version = ? ORDER BY key != ?, key"
        rows = self._rows(text, (config.question, RESULTS_VERSION, config.key))
        return next((_read(self.path, Record, content) for (content,) in rows), None)

    def has(self, config: RunConfig) -> bool:
        text = "SELECT 1 FROM runs WHERE question = ? AND results_version = ?"
        return any(self._rows(text, (config.question, RESULTS_VERSION)))

    def records(self) -> list[Record]:
        rows = self._rows("SELECT record FROM runs WHERE results_version = ?", (RESULTS_VERSION,))
        records = [_read(self.path, Record, text) for (text,) in rows]
        return sorted(records, key=lambda r: (r.config.problem, r.config.method, r.config.seed, r.config.key))

    def failure(self, config: RunConfig) -> Failure | None:
        rows = self._rows("SELECT error FROM asked WHERE key = ? AND error IS NOT NULL", (config.key,))
        return next((Failure(config, error) for (error,) in rows), None)

    def progress(self) -> Progress:
        """The state of the runs that were asked for last."""
        rows = self._rows("SELECT config, began, process FROM asked WHERE place IS NOT NULL ORDER BY place")
        found = Progress([], {}, [], [])
        for text, began, process in list(rows):
            config = _read(self.path, RunConfig, text)
            if self.has(config):
                found.done.append(config)
            elif process is not None and _alive(process):
                found.running[config] = began
            elif (failure := self.failure(config)) is not None:
                found.failed.append(failure)
            else:
                found.missing.append(config)
        return found

    def export(self, path: str | Path, *, instances: bool = False) -> int:
        """Write every finished run to a file with `write_records`, and return how many there are."""
        records = self.records()
        write_records(path, records, instances=instances)
        return len(records)

    def import_lines(self, path: str | Path) -> int:
        """Add the missing runs of an exported .jsonl file, and return how many."""
        new = [record for record in read_lines(path) if not self.has(record.config)]
        for record in new:
            self.put(record)
        return len(new)


def store_of(study: Path) -> Path:
    """The store of a TOML file; a store or an export stands for itself."""
    return study.with_suffix(".sqlite") if study.suffix == ".toml" else study


def read_records(path: str | Path) -> list[Record]:
    """Every finished run of this results version in a store or in an exported .jsonl file (.gz, .xz)."""
    if ending_of(path) is not None and Path(path).exists():
        return read_lines(path)
    with Store(path, must_exist=True) as store:
        return store.records()


def _read(path: Path, kind: type[Kind], text: str) -> Kind:
    try:
        return kind.from_dict(json.loads(text))
    except UNREADABLE as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: BaseException) -> DataError:
    return DataError(f"{path} holds a run that cannot be read ({error}): take it from a copy, or name another file")


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


# -- finished runs as files ---------------------------------------------------------------------------------------------

# Ending → how to pack bytes, and what `unpack` calls it; the same content gives the same file.
LINES: dict[str, tuple[Callable[[bytes], bytes], Literal["gzip", "xz"] | None]] = {
    ".jsonl": (bytes, None),
    ".jsonl.gz": (partial(gzip.compress, mtime=0), "gzip"),
    ".jsonl.xz": (partial(lzma.compress, preset=9 | lzma.PRESET_EXTREME), "xz"),
}


def ending_of(path: str | Path) -> str | None:
    """The ending of an export that holds whole records; `None` for other names."""
    return next((ending for ending in LINES if Path(path).name.lower().endswith(ending)), None)


def write_records(path: str | Path, records: Sequence[Record], *, instances: bool = False) -> None:
    """Write runs to a .csv or .parquet file, a row each; or whole to .jsonl (.gz, .xz), with `instances` with all arrays."""
    path, ending = Path(path), ending_of(path)
    if ending is None and path.suffix not in (".csv", ".parquet"):
        raise OptionError(f"an export ends in .csv, .parquet or .jsonl (.jsonl.gz, .jsonl.xz), got {path.name!r}")
    _check_folder(path)
    if ending is None:
        write_table(path, _columns(records))
    else:
        lines = (json.dumps(r.as_dict(instances=instances), sort_keys=True, allow_nan=False) for r in records)
        write_whole(path, LINES[ending][0]("".join(f"{line}\n" for line in lines).encode()))


def _check_folder(path: Path) -> None:
    if not path.absolute().parent.is_dir():
        raise DataError(f"the folder of {path} does not exist")


def read_lines(path: str | Path) -> list[Record]:
    """The runs of a .jsonl export; those of another results version are left out."""
    ending = ending_of(path)
    if ending is None:
        raise OptionError(f"an export of whole records ends in {', '.join(LINES)}, got {Path(path).name!r}")
    packed, form = Path(path).read_bytes(), LINES[ending][1]
    try:
        lines = (packed if form is None else unpack(packed, form)).decode().splitlines()
    except UNREADABLE as error:
        raise DataError(f"{path} is damaged, or no {ending} file: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            content = json.loads(line)
            if content["results_version"] == RESULTS_VERSION:
                found.append(Record.from_dict(content))
        except UNREADABLE as error:
            raise DataError(f"line {number} of {path} is not an exported run: {error!r}") from error
    return found


def flat(record: Record) -> dict[str, Any]:
    """A record as one row of a table, without its history and single instances."""
    config = record.config
    row: dict[str, Any] = {name: getattr(config, name) for name in ("problem", "method", "seed", "model")}
    row |= {f"parameter_{name}": value for name, value in config.parameters}
    row |= {f"chosen_{name}": value for name, value in record.chosen.items()}
    row |= {f"option_{name}": str(value) for name, value in (*config.problem_options, *config.model_options)}
    row |= {f"setting_{name}": value for name, value in asdict(config.settings).items()}
    for name, (value, low, high) in record.metrics.items():
        row |= {name: value, f"{name}_low": low, f"{name}_high": high}
    row |= {f"seconds_{name}": value for name, value in record.seconds.items()}
    row |= {"peak_megabytes": record.peak_megabytes, "solver": record.solver, "training_solver": record.training_solver}
    row |= {name: value for name, value in record.machine.items() if name != "versions"}
    row |= {f"version_{name}": value for name, value in record.machine["versions"].items()}
    return row | {"notes": " | ".join(record.notes), "key": config.key, "results_version": RESULTS_VERSION}


def _columns(records: Iterable[Record]) -> dict[str, list[Any]]:
    """Name → a value per record, or `None`. A parameter that is a number for one method and a word for another becomes text."""
    rows, columns = [flat(record) for record in records], dict[str, list[Any]]()
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        mixed = len(kinds) > 1 and not kinds <= {int, float}
        columns[name] = [None if value is None else str(value) for value in values] if mixed else values
    return columns
