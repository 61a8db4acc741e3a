"""The site: it builds without a warning, fetches nothing when viewed, and shows every page and every public name."""

from __future__ import annotations

import doctest
import importlib
import io
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import griffe
import pytest
import yaml

import dflearn
from dflearn.problems import registry
from dflearn.studies import methods, models

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.xdist_group("site")  # what they share is made once
MODULES = (
    "data",
    "evaluation",
    "layers",
    "losses",
    "models",
    "problems",
    "solvers",
    "studies",
    "tables",
    "testing",
    "training",
)


class Configuration(yaml.SafeLoader):
    """Reads mkdocs.yml; the values of Python's own tags are left out."""


Configuration.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
Configuration.add_constructor("!ENV", lambda *_: None)
CONFIGURATION = yaml.load((ROOT / "mkdocs.yml").read_text(), Configuration)
NAVIGATION = CONFIGURATION["nav"]


def pages(part: Any, depth: int = 0) -> Iterator[tuple[str, int]]:
    """Each page of the navigation, and how many menus one opens to see it."""
    if isinstance(part, str):
        yield part, depth
    else:
        for inner in part.values() if isinstance(part, dict) else part:
            yield from pages(inner, depth + isinstance(part, dict))


def public(module: str) -> dict[str, object]:
    """The public names of a module with what they are; modules are not among them."""
    found = importlib.import_module(f"dflearn.{module}" if module else "dflearn")
    names = getattr(found, "__all__", None) or [
        name
        for name, value in vars(found).items()
        if getattr(value, "__module__", None) == found.__name__ and name[0] != "_"
    ]
    values = {name: getattr(found, name) for name in names if not name.startswith("__")}
    return {name: value for name, value in values.items() if type(value) is not type(dflearn)}


def documented() -> list[tuple[str, object]]:
    names = [
        name
        for page in sorted((DOCS / "reference" / "api").glob("*.md"))
        for name in re.findall(r"^::: dflearn\.(\S+)$", page.read_text(), re.MULTILINE)
    ]
    places = [name.rpartition(".") for name in names]
    return [
        (name, getattr(importlib.import_module(f"dflearn.{place}" if place else "dflearn"), short))
        for name, (place, _, short) in zip(names, places, strict=True)
    ]


@pytest.mark.parametrize("module", ["", *MODULES])
def test_every_public_name_is_in_the_reference(module: str) -> None:
    shown = [value for _, value in documented()]
    missing = [name for name, value in public(module).items() if not any(value is other for other in shown)]
    assert not missing, f"add to docs/reference/api, as `::: dflearn.{module or '…'}.NAME`: {', '.join(missing)}"


REFERENCE = sorted(path.stem for path in (DOCS / "reference" / "api").glob("*.md") if path.stem != "README")


@pytest.fixture(scope="module")
def source() -> griffe.Object:
    return griffe.load(
        "dflearn", search_paths=[ROOT / "src"]
    )  # docstrings as the site shows them, those of constants too


@pytest.mark.parametrize("page", REFERENCE)
def test_every_public_name_has_an_example_that_runs(
    page: str, source: griffe.Object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gurobi.env").write_text("OutputFlag 0\n")  # Gurobi's first word is about its licence
    for module, name in ((registry, "_FORMS"), (methods, "_METHODS"), (models, "_MODELS")):
        monkeypatch.setattr(module, name, dict(getattr(module, name)))  # what examples register is forgotten afterwards
    folder = DOCS / "reference" / "api"
    shown = re.search(r"^```python\n(.*?)^```", (folder / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert shown is not None
    before: dict[str, Any] = {"__name__": "example"}
    exec(shown[1], before)
    runner, told = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), io.StringIO()
    for name in re.findall(r"^::: dflearn\.(\S+)$", (folder / f"{page}.md").read_text(), re.MULTILINE):
        docstring = source[name].docstring
        test = doctest.DocTestParser().get_doctest(docstring.value if docstring else "", before, name, None, None)
        assert test.examples, f"dflearn.{name} needs a section `Examples:`"
        runner.run(test, out=told.write)
    assert not runner.failures, told.getvalue()


def arguments(found: griffe.Object | griffe.Alias) -> list[str]:
    """The public arguments of a function or of the constructor of a class; `**options` are those of a base class."""
    made = found.all_members.get("__init__") if found.is_class else found
    named = [parameter.name for parameter in getattr(made, "parameters", ())]
    return [name for name in named if name[0] != "_" and name not in {"self", "args", "kwargs", "options"}]


@pytest.mark.parametrize("page", REFERENCE)
def test_every_argument_of_a_public_name_is_explained(page: str, source: griffe.Object) -> None:
    """In its docstring, or in that of the name that it says its arguments are those of."""
    for name in re.findall(
        r"^::: dflearn\.(\S+)$", (DOCS / "reference" / "api" / f"{page}.md").read_text(), re.MULTILINE
    ):
        if page == "errors":
            continue
        docstring = source[name].docstring
        text = docstring.value if docstring else ""
        for other in re.findall(r"(?:Arguments|Arguments and rules|Fields): as of `(\w+)`", text):
            same = source[other].docstring
            text += same.value if same else ""
        missing = [argument for argument in arguments(source[name]) if not re.search(rf"\b{argument}\b", text)]
        assert not missing, f"the docstring of dflearn.{name} does not explain {', '.join(missing)}"


def test_every_error_is_in_the_reference() -> None:
    family = {
        name
        for name, value in vars(dflearn.errors).items()
        if isinstance(value, type) and value.__module__ == dflearn.errors.__name__
    }
    assert {f"errors.{name}" for name in family} <= {name for name, _ in documented()}


def test_no_name_is_in_the_reference_twice() -> None:
    twice = [name for name, count in Counter(name for name, _ in documented()).items() if count > 1]
    assert not twice


def test_every_page_is_in_the_menu() -> None:
    listed = dict(pages(NAVIGATION))
    here = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert here - set(listed) == set(), "not in the navigation of mkdocs.yml"
    notebooks = {path.relative_to(DOCS).with_suffix(".md").as_posix() for path in DOCS.rglob("*.ipynb")}
    assert {name for name in listed if not (DOCS / name).exists()} == {"CHANGELOG.md"} | notebooks
    assert max(listed.values()) <= 3


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "benchmarks/pages/site_pages.py"], cwd=ROOT, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Shown(HTMLParser):
    """The anchors of a page, and its links: those of the text, and all of them."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.depth = 0
        self.anchors, self.text, self.links = {""}, set[str](), set[str]()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = dict(attrs)
        self.anchors.add(has.get("id") or "")
        self.depth += tag == "article"
        for place in filter(None, (has.get("href"), has.get("src"))):
            if not urlsplit(place).netloc and not place.startswith("data:"):
                (self.text if self.depth and tag == "a" else self.links).add(place)

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "article"


def test_links_lead_somewhere_and_every_page_is_two_clicks_from_home(site: Path) -> None:
    """By links of the text alone: menus are not counted."""
    shown = {page.relative_to(site).as_posix(): Shown(page) for page in site.rglob("*.html") if page.name != "404.html"}
    leads: dict[str, set[str]] = {}
    for name, page in shown.items():
        for place in page.text | page.links:
            parts = urlsplit(urljoin(f"/{name}", place))
            target = unquote(parts.path).lstrip("/")
            if not target or target.endswith("/"):
                target += "index.html"
            assert (site / target).is_file(), f"{name} links to {place}"
            if target in shown:
                assert unquote(parts.fragment) in shown[target].anchors, f"{name} links to {place}: no such heading"
                if place in page.text:
                    leads.setdefault(name, set()).add(target)
    near = {"index.html"}
    for _ in range(2):
        near |= {target for name in near for target in leads.get(name, ())}
    assert set(shown) - near == set(), "more than two clicks from home"


def test_footer_has_the_version() -> None:
    assert CONFIGURATION["copyright"] == f"dflearn {dflearn.__version__}"


def test_pages_fetch_nothing(site: Path) -> None:
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|img|iframe|link)\b[^>]*>", page.read_text()):
            assert "://" not in tag or 'rel="canonical"' in tag, f"{page.relative_to(site)}: {tag}"


def test_formulas_are_shown_as_mathematics(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r"\$\$|\\\\[\[(]", re.sub(r"<(pre|script)\b.*?</\1>", "", text, flags=re.DOTALL)), (
            page.relative_to(site)
        )
        assert not re.search(r"<m[a-z]+>\\\\[a-zA-Z]", text), (
            f"{page.relative_to(site)} has a command of LaTeX that is not known"
        )
