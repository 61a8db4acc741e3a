"""The documents tell the truth: their Python runs, their links lead somewhere, and what they repeat is the same."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import dflearn
from dflearn.data import DecisionDataset

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.py")) if "__main__" in path.read_text()]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(text: str, language: str = "python") -> Iterator[tuple[int, str]]:
    """(line number, content) of each fenced block in `language`."""
    for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield text.count("\n", 0, match.start(1)) + 1, match[1]


SHOWN = re.compile(r"^```python\n((?:(?!^```).)*)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
SHOWS = [path for path in DOCUMENTS if any(shown for _, shown in SHOWN.findall(path.read_text()))]
RUN = [path for path in DOCUMENTS if list(blocks(path.read_text())) and path not in SHOWS]


@pytest.mark.parametrize("path", RUN, ids=name_of)
def test_python_in_documents_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a document in one namespace, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("document")  # a real module, so that the classes a document defines can be pickled
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for line, content in blocks(path.read_text()):
        # Blank lines ahead make an error point at the document's own line.
        exec(compile("\n" * (line - 1) + content, str(path), "exec"), vars(module))


NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@pytest.mark.parametrize("path", SHOWS, ids=name_of)
def test_documents_show_what_their_code_prints(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a block of text follows a block of code, word for word; numbers may differ as other processors make them."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for code, shown in SHOWN.findall(path.read_text()):
        exec(compile(code, str(path), "exec"), namespace)
        printed = capsys.readouterr().out
        if not shown:
            continue
        words, wanted = (" ".join(NUMBER.sub("#", text).split()) for text in (printed, shown))
        assert words == wanted
        for number, other in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
            assert float(number) == pytest.approx(float(other), rel=0.25, abs=2e-3)


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as a script, in its quick version where it has one (`ten_lines.py` runs as part of the README), on 20 days."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(path.parent)
    study = importlib.import_module("beside").study

    def on_few(program: dflearn.Program, draw: Callable[[int], tuple[DecisionDataset, ...]], *given: object) -> object:
        return study(program, lambda seed: [part.subset(slice(0, 20)) for part in draw(seed)], *given)

    monkeypatch.setattr("beside.study", on_few)
    monkeypatch.setattr("sys.argv", [str(path), *(["--quick"] if "--quick" in path.read_text() else [])])
    runpy.run_path(str(path), run_name="__main__")


def anchors(path: Path) -> set[str]:
    """The headings of a document as code hosts make them into anchors."""
    titles = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", path.read_text()):
        place = "".join(target)
        if not place.startswith(("http://", "https://", "mailto:")):
            name, _, anchor = place.partition("#")
            file = path.parent / name if name else path
            assert file.exists(), f"{name_of(path)} links to {place}"
            assert not anchor or anchor in anchors(file), (
                f"{name_of(path)} links to {place}, and there is no such heading"
            )


def test_readme_example_is_the_file_in_examples() -> None:
    _, first = next(blocks((ROOT / "README.md").read_text()))
    assert first == (ROOT / "examples" / "ten_lines.py").read_text()
    assert len([line for line in first.splitlines() if line and not line.startswith(("#", "import", "from"))]) <= 10


BLOCKS = runpy.run_path(str(ROOT / "benchmarks" / "pages" / "results_blocks.py"))


@pytest.mark.parametrize("name", BLOCKS["DOCUMENTS"])
def test_figures_of_documents_are_those_of_the_results(name: str) -> None:
    shown = BLOCKS["BLOCK"].search((ROOT / name).read_text())
    assert shown is not None
    assert shown[0] == BLOCKS["DOCUMENTS"][name](), "run: python benchmarks/pages/results_blocks.py"


def test_tables_of_the_paper_are_those_of_its_runs() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "pages" / "paper_tables.py"))
    assert (ROOT / "results" / "paper" / "tables.md").read_text() == script["page"](), (
        "run: python benchmarks/pages/paper_tables.py"
    )


QUESTIONS = (
    "Which regret do I report?",
    "Which method do I use?",
    "How many rows do I need?",
    "Will it help on my data?",
    "When do I retrain?",
    "How do I set a time limit or a gap?",
    "How do decisions get back into Pyomo or Gurobi?",
    "My integer program takes ten minutes",
    "Does `maximize` negate anything?",
    "Does it run on Windows, macOS and ARM?",
    "How much memory and how many threads does it use?",
    "How are the data sets made?",
    "What does this error or status mean?",
)


def test_common_questions_are_answered_two_clicks_from_home() -> None:
    page = (ROOT / "docs" / "faq.md").read_text()
    assert "(faq.md)" in (ROOT / "docs" / "README.md").read_text()
    answers = dict(re.findall(r"^## (.+)\n\n((?:(?!^## ).*\n)+)", page, re.MULTILINE))
    listed = page[: page.index("\n## ")]
    for question in QUESTIONS:
        anchor = re.sub(r"[^\w\- ]", "", question.lower()).replace(" ", "-")
        assert f"](#{anchor})" in listed, f"the list at the top of docs/faq.md lacks {question!r}"
        assert len(answers[question].split()) > 10


ROWS = re.compile(r"<!-- rows of (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if ROWS.search(path.read_text())], ids=name_of)
def test_tables_in_documents_are_those_of_the_results(path: Path) -> None:
    for source, shown in ROWS.findall(path.read_text()):
        made = (ROOT / source).read_text().splitlines()
        for row in shown.splitlines():
            assert row in made, f"{name_of(path)} shows a row that {source} does not have: {row}"


def test_changelog_knows_this_version() -> None:
    version = dflearn.__version__.partition(".dev")[0]
    heading = "Unreleased" if ".dev" in dflearn.__version__ else version
    assert f"## [{heading}]" in (ROOT / "CHANGELOG.md").read_text()


def test_citation() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    (paper,) = citation["references"]
    assert "Surrogate Losses" in paper["title"]
    assert [author["family-names"] for author in paper["authors"]] == ["Mandi", "Mahmutoğulları", "Berden", "Guns"]
