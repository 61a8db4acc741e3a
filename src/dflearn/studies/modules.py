"""A user's modules that a study imports: beside its TOML file or on Python's path, here and on other machines."""

from __future__ import annotations

import atexit
import hashlib
import importlib
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path, PurePath

from dflearn.errors import DataError, OptionError
from dflearn.files import write_whole


def import_modules(names: Iterable[str], folder: Path | None = None) -> None:
    """Import the modules, which register methods, problems and models. folder: goes to the front of Python's path, to stay."""
    names = list(names)
    if names and folder is not None and str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    for name in names:
        try:
            module = importlib.import_module(name)
        except Exception as error:
            why = f", which fails: {type(error).__name__}: {error}"
            if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
                where = "on Python's path" if folder is None else f"in {folder} or on Python's path"
                why = f", and there is no such module {where}"
            raise OptionError(f"the study imports {name!r}{why}") from error
        wanted = Path(folder or "").resolve() / f"{name.replace('.', '/')}.py"
        if folder is not None and wanted.exists() and Path(str(module.__file__)).resolve() != wanted:
            raise OptionError(f"the study imports {name!r}, and {module.__file__} has that name too: rename one")


def sources(names: Iterable[str]) -> dict[str, str]:
    """Path relative to their folder → text of these modules, and of those that they loaded from there; no installed packages."""
    found: dict[str, str] = {}
    package = Path(__file__).resolve().parents[1]
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib", "platstdlib")}
    files = {Path(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
    loaded = [path.resolve() for path in files if path.is_absolute() and path.suffix == ".py"]  # torch.ops has no file
    for name in names:
        file = Path(sys.modules[name.partition(".")[0]].__file__ or "/").resolve()
        folder = file.parents[1] if file.name == "__init__.py" else file.parent
        if file.suffix != ".py" or folder in installed:
            continue
        for path in loaded:
            if path.is_relative_to(folder) and not path.is_relative_to(package):
                found[path.relative_to(folder).as_posix()] = path.read_text()
    return found


def digest_of(names: Iterable[str]) -> str:
    """A hash of the text of these modules: their version in a record."""
    texts = [Path(str(sys.modules[name].__file__)).read_bytes() for name in names]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def install(texts: Mapping[str, str]) -> None:
    """Put the texts of `sources` on the path of this process, once."""
    if texts:
        _install(tuple(sorted(texts.items())))


@cache
def _install(texts: tuple[tuple[str, str], ...]) -> None:
    for name, _ in texts:
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts or PurePath(name).suffix != ".py":
            raise DataError(f"the study's module {name!r} is no .py file inside of its folder: rename it")
    folder = Path(tempfile.mkdtemp(prefix="dflearn-modules-"))  # private, under a name that nobody can guess
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, text in texts:
        write_whole(folder / name, text.encode())
    sys.path.insert(0, str(folder))
