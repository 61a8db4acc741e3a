"""Results as lines of a file, one run each, so that what is finished survives an interruption."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("dflearn", "torch", "numpy", "scipy", "highspy", "numba")


def read(path: Path, settings: dict[str, Any], *names: str) -> dict[Any, dict[str, Any]]:
    """The finished runs in these settings, by their values of `names`; a line that was cut short is left out."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if row["settings"] == settings:
            found[tuple(row[name] for name in names)] = row
    return found


def append(path: Path, row: dict[str, Any]) -> None:
    """Add a run. A line that was cut short before it ends here, and stays unreadable."""
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    cut_short = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write("\n" * cut_short + json.dumps({**row, "versions": versions}) + "\n")
