"""CUDA C++ to machine code, by the NVRTC that torch's CUDA wheels bring. No toolkit is needed.

What was compiled once on a machine is kept in the user's cache folder (or where DFLEARN_CACHE says), by a hash of all that it
depends on.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import hashlib
import os
import sys
from pathlib import Path

import platformdirs

from dflearn.errors import StorageError
from dflearn.files import write_whole


class NotHere(Exception):
    """The kernels cannot run: no compiler, too old a GPU, too large a program. Layers tell why, and go on with the CPU."""


SOURCE = Path(__file__).parent / "source"
MAIN, SPLITTING = "smoothed.cu", "splitting.cu"
HEADERS = {
    MAIN: (
        "threads.cuh", "block.cuh", "factor.cuh", "optimality.cuh", "interior_point.cuh", "dual_newton.cuh", "face.cuh", "solve.cuh",
    ),
    SPLITTING: ("threads.cuh",),
}  # fmt: skip


def folder() -> Path:
    """Where compiled kernels are kept."""
    named = os.environ.get("DFLEARN_CACHE")
    return (Path(named) if named else platformdirs.user_cache_path("dflearn", appauthor=False)) / "cuda"


class Compiler:
    """NVRTC of one CUDA version, as text, "13.0"."""

    def __init__(self, version: str) -> None:
        self.library = _library(version)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = f"{major.value}.{minor.value}"

    def cubin(self, options: tuple[str, ...], main: str = MAIN) -> bytes:
        """The kernels of a source as machine code, from the cache where it is there."""
        texts = {name: (SOURCE / name).read_bytes() for name in (main, *HEADERS[main])}
        known = hashlib.sha256(repr((self.version, options, texts)).encode()).hexdigest()[:32]
        path = folder() / f"{known}.cubin"
        if path.is_file():
            return path.read_bytes()
        code = self._compile(main, texts, options)
        with contextlib.suppress(OSError, StorageError):  # a cache that cannot be written is no reason to stop
            write_whole(path, code)
        return code

    def _compile(self, main: str, texts: dict[str, bytes], options: tuple[str, ...]) -> bytes:
        library, program, known = self.library, ctypes.c_void_p(), HEADERS[main]
        strings = ctypes.c_char_p * len(known)
        headers, names = strings(*(texts[name] for name in known)), strings(*(name.encode() for name in known))
        self._check(
            library.nvrtcCreateProgram(ctypes.byref(program), texts[main], main.encode(), len(known), headers, names)
        )
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            failed = library.nvrtcCompileProgram(program, len(options), given)
            size = ctypes.c_size_t()
            if failed:
                self._check(library.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
                log = ctypes.create_string_buffer(size.value)
                self._check(library.nvrtcGetProgramLog(program, log))
                raise NotHere(f"NVRTC {self.version} did not compile the kernels: {log.value.decode()[:2000]}")
            self._check(library.nvrtcGetCUBINSize(program, ctypes.byref(size)))
            code = ctypes.create_string_buffer(size.value)
            self._check(library.nvrtcGetCUBIN(program, code))
            return code.raw
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    def _check(self, code: int) -> None:
        if code:
            self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise NotHere(f"NVRTC: {self.library.nvrtcGetErrorString(code).decode()}")


def _library(version: str) -> ctypes.CDLL:
    """torch's own NVRTC; one on the loader's path where torch was built without."""
    major = version.split(".")[0]
    names = [path for entry in sys.path for path in sorted(glob.glob(f"{entry}/nvidia/*/lib/libnvrtc.so.{major}*"))]
    names += [path for entry in sys.path for path in sorted(glob.glob(f"{entry}/torch/lib/libnvrtc*.so.{major}*"))]
    names = [name for name in names if "builtins" not in name and "alt" not in name] + [f"libnvrtc.so.{major}"]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NotHere(f"NVRTC of CUDA {version} was not found among {names}: install torch's CUDA wheel")
