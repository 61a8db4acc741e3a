"""What is looked at before anything heavy is loaded or computed: the files to read and the files to write."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from dflearn.cli.inputs import as_options
from dflearn.errors import DataError, OptionError
from dflearn.files import check_writable

if TYPE_CHECKING:
    from dflearn.tables import DecisionFocusedRegressor

ENDINGS = {"program": (".mps", ".lp", ".mps.gz", ".lp.gz"), "model": (), "map": (".csv", ".parquet", ".json")}
TABLES = (".csv", ".parquet")


def check_inputs(options: argparse.Namespace, *names: str) -> None:
    """The files that these options name are there, can be read, and end as they should."""
    for name in names:
        path = getattr(options, name)
        if path is None:
            continue
        with open(path, "rb") as file:  # a missing file is an error of its own
            file.read(1)
        endings = ENDINGS.get(name, TABLES)
        if endings and not str(path).endswith(endings):
            raise DataError(f"--{name}: {path} should end in {' or '.join(endings[:2])}, which says how it is read")
        if name == "model" and not zipfile.is_zipfile(path):
            raise DataError(f"{path} is not a model that can be read here: it is no zip file, or is cut short")


def check_output(options: argparse.Namespace, *inputs: str, out: Path | None = None, called: str = "--out") -> None:
    """A file can be written there, and is none of those that are read. out: default `--out`."""
    out = out or options.out
    check_writable(out)
    for name in inputs:
        path = getattr(options, name)
        if path is not None and _same(path, out):
            raise OptionError(f"{called} and --{name} are both {path}: write to another file")


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and os.path.samefile(one, other))


def add_trust_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust-code",
        action="store_true",
        help="run the code that a model file names to build its module: only for files from people you trust",
    )


def load_model(options: argparse.Namespace) -> DecisionFocusedRegressor:
    """The model that `--model` names; code that it asks for is run with `--trust-code` only."""
    from dflearn.tables import decisions

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        model = decisions.load(options.model, trust=options.trust_code)
    for warning in noted:
        print(f"note: {as_options(str(warning.message))}", file=sys.stderr)
    return model
