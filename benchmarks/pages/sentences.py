"""Words per page and per sentence of the documents.

    python benchmarks/pages/sentences.py [PAGES…]

Code, tables, formulas and headings are left out; an item of a list is a sentence of its own. About 20 words to a sentence is the aim.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]


def sentences(text: str) -> list[str]:
    """The sentences of a page in Markdown."""
    text = re.sub(r"^```.*?^```|\$\$.*?\$\$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    lines = [line for line in text.splitlines() if not re.match(r"\s*(\||#|:::|    )", line)]
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", "\n".join(lines))
    end = r"(?<=[.!?])[*)\"]*\s+(?=[A-Z`*\"“(])"
    return [one for part in parts for one in re.split(end, " ".join(part.split())) if len(words(one)) > 1]


def words(sentence: str) -> list[str]:
    return re.findall(r"[^\W_](?:[\w.\-'’/×]*\w)?", re.sub(r"`[^`]*`", "code", sentence))


def report(pages: list[Path]) -> str:
    lines = [f"{'page':<48}{'lines':>6}{'words':>7}{'sentences':>11}{'words each':>12}"]
    for page in pages:
        text = page.read_text()
        found = [len(words(sentence)) for sentence in sentences(text)]
        if found:
            name, count = page.resolve().relative_to(ROOT).as_posix(), text.count("\n")
            lines.append(f"{name:<48}{count:>6}{sum(found):>7}{len(found):>11}{sum(found) / len(found):>12.1f}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report([Path(name) for name in sys.argv[1:]] or DOCUMENTS))
