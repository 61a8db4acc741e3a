"""Modules of a user that a study imports: found beside its TOML file or on Python's path, here and on other machines."""

from __future__ import annotations

import atexit
import hashlib
import importlib
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

from dflearn.errors import DataError, OptionError
from dflearn.files import write_whole


def import_modules(names: Iterable[str], folder: Path | None = None) -> None:
    """Import the modules, which register what they bring.

    Args:
        folder: looked into first, as Python does for the folder of a script; it stays on the path, since processes that
            start later need it too.
    """
    names = list(names)
    if names and folder is not None and str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    for name in names:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
                where = "on Python's path" if folder is None else f"in {folder} or on Python's path"
                raise OptionError(f"the study imports {name!r}, and there is no such module {where}") from error
            raise OptionError(f"the study imports {name!r}, and that imports a missing module: {error}") from error
        except Exception as error:
            raise OptionError(f"the study imports {name!r}, which fails: {type(error).__name__}: {error}") from error
        wanted = None if folder is None else folder.resolve() / f"{name.replace('.', '/')}.py"
        if wanted is not None and wanted.exists() and Path(str(module.__file__)).resolve() != wanted:
            raise OptionError(
                f"the study imports {name!r}, and {module.__file__} has that name too: rename one of them"
            )


def sources(names: Iterable[str]) -> dict[str, str]:
    """Path relative to their folder → text of these modules and of what they loaded from the same folder.

    Modules of installed packages are left out: a machine that is to run them has the package too.
    """
    found: dict[str, str] = {}
    for name in names:
        top = sys.modules[name.partition(".")[0]]
        if top.__file__ is None:
            continue
        file = Path(top.__file__).resolve()
        folder = file.parents[1] if file.name == "__init__.py" else file.parent
        if folder in _installed():
            continue
        for module in list(sys.modules.values()):
            path = Path(getattr(module, "__file__", None) or "/")
            if not path.is_absolute():  # of modules that no file holds, torch.ops for one
                continue
            path = path.resolve()
            if path.suffix == ".py" and path.is_relative_to(folder) and not path.is_relative_to(_package()):
                found[path.relative_to(folder).as_posix()] = path.read_text()
    return found


def digest_of(names: Iterable[str]) -> str:
    """A hash of the text of these modules, by which a record tells which version of them it was made with."""
    texts = [Path(str(sys.modules[name].__file__)).read_bytes() for name in names]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


_INSTALLED: set[str] = set()  # by this process


def install(texts: Mapping[str, str]) -> None:
    """Put what `sources` gave elsewhere on the path of this process."""
    if not texts:
        return
    digest = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()
    if digest in _INSTALLED:
        return
    for name in texts:
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts or PurePath(name).suffix != ".py":
            raise DataError(
                f"a module of the study is called {name!r}, which is no .py file inside of its folder: rename it"
            )
    folder = Path(
        tempfile.mkdtemp(prefix="dflearn-modules-")
    )  # for this user alone, under a name that nobody can guess
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, text in texts.items():
        write_whole(folder / name, text.encode())
    sys.path.insert(0, str(folder))
    _INSTALLED.add(digest)


def _installed() -> set[Path]:
    return {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib", "platstdlib")}


def _package() -> Path:
    return Path(__file__).resolve().parents[1]
