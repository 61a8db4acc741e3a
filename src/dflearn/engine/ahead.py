"""Kernels that were compiled before anybody called them.

`dfl compile` calls every kernel once and leaves what numba made of it in the folder `compiled` beside this module, for a level
of x86-64 processors rather than for the one at hand, so that an image, a wheel or a shared disk may carry it to others. It is
used where Python, numba, llvmlite and the source of all kernels are those that it was made from, and where the processor has
the level; otherwise numba compiles at the first call, and keeps that in a cache of its own, if there is a folder for it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numba.extending
from llvmlite import binding
from numba.core import caching, sigutils
from numba.core.ccallback import CFunc

FOLDER = Path(__file__).parent / "compiled"
# From the best on: the names that LLVM knows them by, and what a processor must have for them beyond the one below.
LEVELS = {
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
}
RECORDING = "DFLEARN_COMPILE"  # environment variable: the level that this process compiles for, and keeps in the folder


def recording(level: str) -> dict[str, str]:
    """What the environment of a process must say, from its beginning on, to fill the folder for that level."""
    return {RECORDING: level, "NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""}


@cache
def levels() -> tuple[str, ...]:
    """The levels that this processor has, from the best on; none on other machines."""
    if not binding.get_default_triple().startswith("x86_64"):
        return ()
    features, found = binding.get_host_cpu_features(), []
    for level, needed in reversed(LEVELS.items()):
        if not all(features.get(feature, False) for feature in needed):
            break
        found.append(level)
    return tuple(reversed(found))


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit`, which looks for compiled code in the folder and in numba's own cache before it compiles."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled: Any = numba.njit(**options)(function)
        compiled._cache = _cache_of(function)
        return compiled

    return decorate


class Stage(numba.types.ExternalFunction):
    """A compiled function that other compiled code calls by its symbol. It is compiled once, when its module is imported.

    numba compiles a function that `njit` made again inside each of its callers. The arguments of a stage are integers (addresses
    among them) and floats. `run` calls it from Python, without the GIL.
    """

    def __init__(self, function: Callable[..., Any], signature: str, options: dict[str, Any]) -> None:
        arguments, result = sigutils.normalize_signature(signature)
        make: Any = CFunc
        self.compiled = make(function, (arguments, result), {}, {"nopython": True, **options})
        self.compiled._cache = _cache_of(function)
        self.compiled.compile()
        symbol = f"{function.__module__}.{function.__name__}"
        binding.add_symbol(symbol, self.compiled.address)
        super().__init__(symbol, numba.core.typing.signature(result, *arguments))
        self.run = self.compiled.ctypes


numba.extending.register_model(Stage)(numba.extending.models.OpaqueModel)


def _cache_of(function: Callable[..., Any]) -> Any:
    try:
        own: Any = caching.FunctionCache(function)
        # Stages share the layout of their work space: code made from other sources of any kernel is not used.
        own._cache_file._source_stamp = own._cache_file._source_stamp, _sources()
    except RuntimeError:  # numba finds no folder that can be written
        own = _Nowhere()
    return _Both(function, own) if os.environ.get(RECORDING) or FOLDER.is_dir() else own


@cache
def _sources() -> bytes:
    """All that compiled code depends on, but for the module that its function is in: numba looks at that one alone."""
    parts = [path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py"))]
    versions = f"{sys.version_info[:2]} {numba.__version__} {llvmlite.__version__}".encode()
    return hashlib.sha256(b"".join([versions, *parts])).digest()


class _Nowhere(caching.NullCache):
    """In place of numba's own cache where no folder can be written: nothing is kept, and the first time says so."""

    told = False

    def save_overload(self, sig: Any, data: Any) -> None:
        if not _Nowhere.told:
            _Nowhere.told = True
            warnings.warn(
                "no folder can be written to keep compiled code in, so that every process compiles its kernels anew: name one in "
                "the environment variable NUMBA_CACHE_DIR, or run `dfl compile` where the package is installed",
                RuntimeWarning,
                stacklevel=2,
            )


class _Place(caching._CacheLocator):
    """Where numba is to look, and by what it knows that nothing has changed."""

    def __init__(self, file: str) -> None:
        self._py_file = file

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Place:
        return cls(py_file)

    def get_cache_path(self) -> str:
        return str(FOLDER)

    def get_source_stamp(self) -> bytes:
        return hashlib.sha256(_sources() + Path(self._py_file).read_bytes()).digest()

    def get_disambiguator(self) -> str:
        return Path(self._py_file).parent.name


class _Results(caching.CompileResultCacheImpl):
    _locator_classes: list[Any] = [_Place]


class _Folder(caching.FunctionCache):
    """numba's cache, in the folder, with levels in place of processors."""

    _impl_class = _Results
    level = ""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        own, (triple, *_), code = super()._index_key(sig, codegen)
        return own, (triple, self.level), code


class _Both(caching._Cache):
    """The folder, then numba's own cache."""

    def __init__(self, function: Callable[..., Any], own: Any) -> None:
        self.own, self.folder = own, _Folder(function)

    @property
    def cache_path(self) -> Any:
        return self.own.cache_path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if not os.environ.get(RECORDING):
            for self.folder.level in levels():
                found = self.folder.load_overload(sig, target_context)
                if found is not None:
                    return found
        return self.own.load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        if level := os.environ.get(RECORDING):
            self.folder.level = level
            self.folder.save_overload(sig, data)
        else:
            self.own.save_overload(sig, data)

    def enable(self) -> None:
        self.own.enable()

    def disable(self) -> None:
        self.own.disable()

    def flush(self) -> None:
        self.own.flush()
