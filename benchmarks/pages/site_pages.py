"""The pages of the site, in build/pages: what MkDocs and Zensical build without hooks of their own.

    python benchmarks/pages/site_pages.py

Pages link to files of the repository as a code host shows them: ../results/bench/epochs.md, ../../examples/tours.py. Pages and
pictures that are linked become part of the site. Other files are linked at the repository, where DFLEARN_REPOSITORY names it.
Formulas become MathML, which every browser draws without a script, and each notebook has a page. Pages that did not change are
not written again.
"""

import json
import os
import re
from pathlib import Path

from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = ROOT / "build" / "pages"
MERMAID = ROOT / "build" / "mermaid" / "nicegui" / "elements" / "mermaid" / "dist"
REPOSITORY = os.environ.get("DFLEARN_REPOSITORY", "").rstrip("/")
SHOWN = {".md", ".svg", ".png"}
LINK = re.compile(r"\[(?P<text>[^]]*)\]\((?P<place>[^)\s]+)\)")
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
FORMULA = re.compile(r"^\$\$(.+?)\$\$$", re.DOTALL | re.MULTILINE)


def target_of(place: str, page: Path) -> Path | None:
    """The file that a relative link of a page means; `None` for addresses and for anchors of the page itself."""
    name = place.partition("#")[0]
    if not name or re.match(r"[a-z]+:", name):
        return None
    target = Path(os.path.normpath(page.parent / name))
    return target / "README.md" if (target / "README.md").is_file() else target


def place_of(file: Path) -> Path:
    """Where the site shows a file: those of docs/ at the top, others as in the repository, notebooks as pages."""
    if file == ROOT / "README.md":
        return PAGES / "README.md"
    place = PAGES / file.relative_to(DOCS if file.is_relative_to(DOCS) else ROOT)
    return place.with_suffix(".md") if file.suffix == ".ipynb" else place


def files_of_the_site() -> set[Path]:
    """All of docs/, and what its pages link to, and what those link to."""
    found = {path for path in DOCS.rglob("*") if path.is_file()} | {ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"}
    waiting = [path for path in found if path.suffix == ".md"]
    while waiting:
        page = waiting.pop()
        targets = {target_of(match["place"], page) for match in LINK.finditer(page.read_text())}
        new = {one for one in targets - found - {ROOT / "README.md"} if one and one.suffix in SHOWN and one.is_file()}
        found |= new
        waiting.extend(file for file in new if file.suffix == ".md")
    return found


def formula(match: re.Match[str]) -> str:
    # The converter does not know \arg.
    latex = re.sub(r"\\(min|max)_", r"\\\1\\limits_", match[1].strip().replace(r"\arg", r"\operatorname{arg}"))
    return f'<div class="formula">{convert(latex, display="block")}</div>'


def with_formulas(text: str) -> str:
    return "".join(part if part.startswith("`") else FORMULA.sub(formula, part) for part in CODE.split(text))


def page_of(page: Path, shown: set[Path]) -> str:
    """A page with its links and formulas as the site has them; code stays as it is."""

    def link(match: re.Match[str]) -> str:
        target = target_of(match["place"], page)
        if target is None or not target.exists():
            return match[0]
        anchor = "".join(match["place"].partition("#")[1:])
        if target in shown or target == ROOT / "README.md":
            return f"[{match['text']}]({os.path.relpath(place_of(target), place_of(page).parent)}{anchor})"
        name = target.relative_to(ROOT).as_posix()
        return f"[{match['text']}]({REPOSITORY}/blob/main/{name}{anchor})" if REPOSITORY else match["text"]

    return with_formulas(LINK.sub(link, page.read_text()))


def page_of_notebook(file: Path) -> str:
    """Its text and code, and a link to download it."""
    shown = {"code": "```python\n{}\n```", "markdown": "{}"}
    cells = json.loads(file.read_text())["cells"]
    title, *others = [shown[cell["cell_type"]].format("".join(cell["source"])) for cell in cells]
    return with_formulas("\n\n".join([title, f"[Download the notebook]({file.name}).", *others]) + "\n")


def shown_as(file: Path, shown: set[Path]) -> bytes:
    if file.suffix == ".md":
        return page_of(file, shown).encode()
    return page_of_notebook(file).encode() if file.suffix == ".ipynb" else file.read_bytes()


def write() -> None:
    shown = files_of_the_site()
    content = {place_of(file): shown_as(file, shown) for file in shown}
    content |= {PAGES / file.relative_to(DOCS): file.read_bytes() for file in DOCS.rglob("*.ipynb")}  # to download
    content |= {PAGES / "assets" / "mermaid" / file.name: file.read_bytes() for file in MERMAID.glob("*.js")}
    for file in PAGES.rglob("*"):
        if file.is_file() and file not in content:
            file.unlink()
    for place, data in content.items():
        if not place.exists() or place.read_bytes() != data:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)


def on_pre_build(**_: object) -> None:
    """A hook of MkDocs: `make docs-serve` shows a page anew when it changes."""
    write()


if __name__ == "__main__":
    write()
