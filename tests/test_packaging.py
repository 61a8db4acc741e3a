"""The distribution: an sdist, the wheel built from it, and that wheel at work in an environment of its own."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from readme_renderer import markdown

import dflearn

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.xdist_group("package")  # what they share is made once
KINDS = {".py", ".pyi", ".csv", ".css", ".js", ".cu", ".cuh"}
FILES = {path for path in (ROOT / "src" / "dflearn").rglob("*") if path.suffix in KINDS}
COMPILED = "dflearn/engine/compiled/kernel.nbc"  # what `dfl compile` leaves there goes into the wheel
CONTENT = {path.relative_to(ROOT / "src").as_posix() for path in FILES} | {"dflearn/py.typed", COMPILED}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel, built from a copy so that nothing is written into the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "compiled", "*.nb?")
    )
    (source / "src" / COMPILED).parent.mkdir()
    (source / "src" / COMPILED).touch()
    # The build tools are those of this environment, so nothing is downloaded.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", source / "dist", cwd=source)
    return source / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


def test_both_hold_every_module_and_the_type_marker(built: Path, wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if name.startswith("dflearn/")} == CONTENT
    assert any(name.endswith("licenses/LICENSE") for name in names)
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in CONTENT} | {"pyproject.toml", "README.md", "LICENSE"} <= names


def test_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path, symlinks=True)
    install = ("install", "--no-deps", "--no-index", "--no-compile", wheel)
    run(sys.executable, "-m", "pip", "--python", tmp_path, *install, cwd=tmp_path)
    # The dependencies are borrowed from this environment; its own (editable) dflearn is not among them.
    packages = sysconfig.get_path("purelib", "venv", {"base": str(tmp_path), "platbase": str(tmp_path)})
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(packages, "borrowed.pth").write_text("\n".join(sorted(borrowed)))

    python, command = tmp_path / "bin" / "python", tmp_path / "bin" / "dfl"
    where = run(python, "-c", "import dflearn; print(dflearn.HiGHS.__module__, dflearn.__file__)", cwd=tmp_path)
    assert where.split() == ["dflearn.solvers.highs", str(Path(packages, "dflearn", "__init__.py"))]
    assert dflearn.__version__ in run(command, "--version", cwd=tmp_path)


@pytest.mark.parametrize("repository", ["", "https://code.example/dflearn"])
def test_package_index_renders_the_readme(repository: str) -> None:
    packaged = runpy.run_path(str(ROOT / "benchmarks" / "pages" / "package_readme.py"))["packaged"]
    shown = markdown.render(packaged((ROOT / "README.md").read_text(), repository))
    assert "<table>" in shown
    assert "$" not in shown
    places = re.findall(r'(?:href|src)="([^#"][^"]*)"', shown)
    assert all(place.startswith("https://code.example/dflearn/") for place in places)
    assert bool(places) == bool(repository)
