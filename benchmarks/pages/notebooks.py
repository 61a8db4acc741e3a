"""The notebooks of docs/notebooks, made from their sources in jupytext's percent format, without output.

    python benchmarks/pages/notebooks.py    # make notebooks

A source is a Python file: `# %%` begins a cell of code, `# %% [markdown]` a cell of text. A commented line magic that
stays commented, `# # %pip …`, loses one of its signs, as with jupytext.
"""

import json
import re
from pathlib import Path

SOURCES = sorted((Path(__file__).resolve().parents[2] / "docs" / "notebooks").glob("*.py"))
KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebook(source: str) -> str:
    """The content of the .ipynb file."""
    _, *parts = re.split(r"^# %%(.*)\n", source, flags=re.MULTILINE)
    cells = []
    for number, (kind, text) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        lines = text.strip("\n")
        cell: dict[str, object] = {"cell_type": "code", "execution_count": None, "id": f"cell-{number}", "metadata": {}}
        if kind.strip() == "[markdown]":
            cell = {"cell_type": "markdown", "id": f"cell-{number}", "metadata": {}}
            lines = re.sub(r"^# ?", "", lines, flags=re.MULTILINE)
        else:
            cell["outputs"] = []
            lines = re.sub(r"^# # %", "# %", lines, flags=re.MULTILINE)
        cells.append(cell | {"source": lines.splitlines(keepends=True)})
    whole = {"cells": cells, "metadata": KERNEL, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path in SOURCES:
        path.with_suffix(".ipynb").write_text(notebook(path.read_text()))
