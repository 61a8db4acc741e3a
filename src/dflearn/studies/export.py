"""Finished runs as files: tables (.csv, .parquet), and whole records, a line each (.jsonl, .jsonl.gz, .jsonl.xz)."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dflearn.errors import DataError, MissingExtraError, OptionError
from dflearn.files import write_whole
from dflearn.reading import UNREADABLE, unpack
from dflearn.studies.config import RESULTS_VERSION
from dflearn.studies.record import Record

# Ending → how bytes are packed and unpacked; the same content gives the same file.
LINES: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".jsonl": (bytes, bytes),
    ".jsonl.gz": (lambda content: gzip.compress(content, mtime=0), lambda packed: unpack(packed, "gzip")),
    ".jsonl.xz": (
        lambda content: lzma.compress(content, preset=9 | lzma.PRESET_EXTREME),
        lambda packed: unpack(packed, "xz"),
    ),
}


def ending_of(path: str | Path) -> str | None:
    """The ending of an export that holds whole records; `None` for other names."""
    return next((ending for ending in LINES if Path(path).name.lower().endswith(ending)), None)


def write_records(path: str | Path, records: Sequence[Record], *, instances: bool = False) -> None:
    """Write runs to a .csv, .parquet or .jsonl file; .jsonl.gz and .jsonl.xz are the last one compressed.

    The first two are tables with a column per setting, parameter and metric. The third holds whole records, a line each,
    and with `instances` also the figures of single instances; `read_lines` reads it.
    """
    path = Path(path)
    kind, ending = path.suffix.lower(), ending_of(path)
    if ending is not None:
        lines = (json.dumps(r.as_dict(instances=instances), sort_keys=True, allow_nan=False) for r in records)
        content = LINES[ending][0]("".join(f"{line}\n" for line in lines).encode())
    elif kind == ".csv":
        content = _csv(records)
    elif kind == ".parquet":
        content = _parquet(records)
    else:
        raise OptionError(
            f"the name of an export ends in .csv, .parquet or .jsonl (.jsonl.gz, .jsonl.xz), got {path.name!r}"
        )
    if not path.absolute().parent.is_dir():
        raise DataError(f"the folder of {path} does not exist")
    write_whole(path, content)


def read_lines(path: str | Path) -> list[Record]:
    """The runs of a .jsonl export; those of another results version are left out."""
    ending = ending_of(path)
    if ending is None:
        raise OptionError(f"an export of whole records ends in {', '.join(LINES)}, got {Path(path).name!r}")
    packed = Path(path).read_bytes()
    try:
        lines = LINES[ending][1](packed).decode().splitlines()
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
    """A record as one row of a table: what differs from run to run, without history and single instances."""
    config = record.config
    row: dict[str, Any] = {
        "problem": config.problem,
        "method": config.method,
        "seed": config.seed,
        "model": config.model,
    }
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
    """Name → a value per record; `None` where a record has none."""
    rows = [flat(record) for record in records]
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def _csv(records: Iterable[Record]) -> bytes:
    columns, text = _columns(records), io.StringIO(newline="")
    csv.writer(text).writerows([list(columns), *zip(*columns.values(), strict=True)])
    return text.getvalue().encode()


def _parquet(records: Iterable[Record]) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("a Parquet file needs the package pyarrow: pip install 'dflearn[parquet]'") from error
    columns = _columns(records)
    for name, values in columns.items():
        # A parameter may be a number for one method and a word for another: a column has one type, so it becomes text.
        kinds = {type(value) for value in values if value is not None}
        if not kinds <= {int, float} and len(kinds) > 1:
            columns[name] = [None if value is None else str(value) for value in values]
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()
