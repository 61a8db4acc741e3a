"""Hooks of mkdocs.yml: pages that lie outside docs/, formulas as MathML, and the script that draws diagrams.

Pages link to files of the repository as a code host shows them: ../results/bench/epochs.md, ../../examples/tours.py. Pages and
pictures that are linked become part of the site. Other files are linked at the repository, where `repo_url` names it.
"""

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SHOWN = {".md", ".svg", ".png"}
LINK = re.compile(r"\[(?P<text>[^]]*)\]\((?P<place>[^)\s]+)\)")
MERMAID = ROOT / "build" / "mermaid" / "nicegui" / "elements" / "mermaid" / "dist"


def target_of(place: str, page: Path) -> Path | None:
    """The file that a relative link of a page means; `None` for addresses and for anchors of the page itself."""
    name = place.partition("#")[0]
    if not name or re.match(r"[a-z]+:", name):
        return None
    target = Path(os.path.normpath(page.parent / name))
    return target / "README.md" if (target / "README.md").is_file() else target


def source_of(page: Path) -> str:
    """Where a file stands among the sources of the site: those of docs/ at the top, others as in the repository."""
    if page == ROOT / "README.md":
        return "README.md"
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).as_posix()


def path_of(source: str) -> Path:
    return DOCS / source if (DOCS / source).exists() else ROOT / source


def linked(page: Path) -> Iterator[Path]:
    """Files outside docs/ that a page links to, and that become part of the site."""
    for match in LINK.finditer(page.read_text()):
        target = target_of(match["place"], page)
        if target and target.suffix in SHOWN and target.is_file() and not target.is_relative_to(DOCS):
            yield target


def on_files(files: Files, config: Any) -> Files:
    waiting = [*DOCS.rglob("*.md"), *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md"))]
    seen = {ROOT / "README.md"}
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        if not page.is_relative_to(DOCS):
            files.append(File.generated(config, source_of(page), abs_src_path=str(page)))
        if page.suffix == ".md":
            waiting.extend(linked(page))
    for file in sorted(MERMAID.glob("*.js")):
        files.append(File.generated(config, f"assets/mermaid/{file.name}", abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    here = path_of(page.file.src_uri)

    def mend(match: re.Match[str]) -> str:
        target = target_of(match["place"], here)
        if target is None:
            return match[0]
        anchor = "".join(match["place"].partition("#")[1:])
        if files.get_file_from_path(source_of(target)):
            place = os.path.relpath(source_of(target), Path(source_of(here)).parent)
        elif not target.exists():
            return match[0]
        elif not config.repo_url:
            return match["text"]
        else:
            place = f"{config.repo_url.rstrip('/')}/blob/main/{target.relative_to(ROOT).as_posix()}"
        return f"[{match['text']}]({place}{anchor})"

    return LINK.sub(mend, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML, which every browser draws without a script."""

    def formula(match: re.Match[str]) -> str:
        # The converter does not know \arg.
        latex = html.unescape(match["latex"]).replace(r"\arg", r"\operatorname{arg}")
        if match["open"] == "(":
            return convert(latex, display="inline")
        return convert(re.sub(r"\\(min|max)_", r"\\\1\\limits_", latex), display="block")

    pattern = r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]</(?P=tag)>'
    return re.sub(pattern, formula, content, flags=re.DOTALL)
