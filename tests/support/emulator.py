"""The kernels' own source as plain C++, on the CPU: a machine whose warps have one lane, or more."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from dflearn.engine.cuda.driver import KERNELS, Machine, Module, PlanStruct, Shape
from dflearn.engine.cuda.nvrtc import MAIN, SOURCE, SPLITTING
from dflearn.engine.smoothed.gpu import SmoothedBlocks
from dflearn.layers import Smoothed

COMPILER = shutil.which("g++") or shutil.which("clang++")
MISSING = "no C++ compiler (g++ or clang++) to build the CUDA kernels for the CPU with"
ONE_AT_A_TIME = threading.Lock()  # the kernels' plan and fast memory are theirs alone


@lru_cache
def library(folder: Path, threads: int, spill: bool, flags: tuple[str, ...] = (), main: str = MAIN) -> Path:
    assert COMPILER is not None
    out = folder / f"emulated-{main}-{threads}-{int(spill)}{''.join(flags)}.so"
    options = ["-O1", "-std=c++20", "-DEMULATE", f"-DNT={threads}", *(["-DSPILL"] if spill else []), *flags]
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    command = [
        COMPILER,
        *options,
        *warnings,
        "-shared",
        "-fPIC",
        "-x",
        "c++",
        str(SOURCE / main),
        "-o",
        str(out),
        "-pthread",
    ]
    subprocess.run(command, check=True)
    return out


class Emulator(Machine):
    """fast_memory: bytes that a block may have, so that spilling can be tried. threads: how many work at once, `warp` of them in step, in place
    of `planned` ones."""

    multiprocessors = 1

    def __init__(
        self,
        folder: Path,
        threads: int = 1,
        fast_memory: int = 2**30,
        flags: tuple[str, ...] = (),
        warp: int = 1,
        planned: int | None = None,
    ) -> None:
        self.folder, self.threads, self.fast_memory, self.warp = folder, threads, (fast_memory, fast_memory), warp
        self.planned = planned or threads
        self.flags = (*flags, f"-DW={warp}", f"-DPARTS={self.planned // threads}")
        self.loaded: list[EmulatedModule] = []

    def load(self, shape: Shape, sizes: dict[str, int], fields: Sequence[np.ndarray], shared: int) -> Module:
        assert shape.threads == self.planned, "the plan is made for other blocks"
        module = EmulatedModule(
            library(self.folder, self.threads, bool(sizes["far"]), self.flags), self.threads, sizes, fields, shared
        )
        self.loaded.append(module)
        return module

    def load_splitting(self, threads: int, options: tuple[str, ...], shared: int) -> Module:
        path = library(self.folder, threads, False, (*options, *self.flags), SPLITTING)
        return EmulatedSource(path, threads, shared)


class EmulatedSource(Module):
    def __init__(self, path: Path, threads: int, shared: int) -> None:
        self.code, self.threads = ctypes.CDLL(str(path)), threads
        self.fast = np.full(shared // 8, np.nan)
        self.launched: list[str] = []

    def slots(self, kernel: str) -> int:
        return 1

    def prepare(self) -> None:
        self.code.prepare(ctypes.c_void_p(self.fast.ctypes.data))  # modules share the library

    def launch(self, kernel: str, blocks: int, *arguments: float) -> None:
        kinds = {"P": ctypes.c_void_p, "i": ctypes.c_int, "d": ctypes.c_double}
        with ONE_AT_A_TIME:
            self._launch(kernel, [kinds[kind](one) for kind, one in zip(KERNELS[kernel], arguments, strict=True)])

    def _launch(self, kernel: str, values: list[Any]) -> None:
        self.launched.append(kernel)
        self.prepare()

        def thread(number: int) -> None:
            self.code.enter(number)
            getattr(self.code, kernel)(*values)

        if self.threads == 1:
            thread(0)
            return
        running = [threading.Thread(target=thread, args=(number,)) for number in range(self.threads)]
        for one in running:
            one.start()
        for one in running:
            one.join()


class EmulatedModule(EmulatedSource):
    """With a plan."""

    def __init__(
        self, path: Path, threads: int, sizes: dict[str, int], fields: Sequence[np.ndarray], shared: int
    ) -> None:
        super().__init__(path, threads, shared)
        self.sizes, self.fields = sizes, [torch.from_numpy(field.copy()) for field in fields]
        self.plan = PlanStruct.of(sizes, self.fields)

    def prepare(self) -> None:
        self.code.prepare(ctypes.byref(self.plan), ctypes.c_void_p(self.fast.ctypes.data))

    def launch(self, kernel: str, blocks: int, *arguments: float) -> None:
        assert blocks == 1
        super().launch(kernel, blocks, *arguments)


class InBlocks(Smoothed):
    """`Smoothed` by the emulated kernels, on tensors of the CPU; copies are so too. `machine` is set before use."""

    machine: ClassVar[Emulator]

    def blocks(self, device: torch.device) -> SmoothedBlocks | None:
        if self.regularizer == "norm":
            return None
        if device not in self._places:
            change = None if self.program.Q is None else self.quadratic.at(self.mu)
            self._places[device] = SmoothedBlocks(self.program, self.machine, device, self.machine.threads, change)
        place = self._places[device]
        assert isinstance(place, SmoothedBlocks)
        return place
