"""Words per page and per sentence of the documents; about 20 words to a sentence is the aim.

    python benchmarks/pages/sentences.py

Code, tables, formulas and headings are left out. An item of a list is a sentence of its own.
"""

import re
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]


def lengths(text: str) -> list[int]:
    """Words in each sentence of a page in Markdown."""
    text = re.sub(r"^```.*?^```|\$\$.*?\$\$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "code", re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text))
    lines = [line for line in text.splitlines() if not re.match(r"\s*(\||#|:::|    )", line)]
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)|(?<=[.!?])[*)\"]*\s+(?=[A-Z*\"“(])", "\n".join(lines))
    return [count for part in parts if (count := len(re.findall(r"[^\W_](?:[\w.\-'’/×]*\w)?", part))) > 1]


if __name__ == "__main__":
    rows = [[p.relative_to(ROOT), sum(n), len(n), sum(n) / len(n)] for p in DOCUMENTS if (n := lengths(p.read_text()))]
    print(tabulate(rows, ["page", "words", "sentences", "words each"], floatfmt=".1f"))
