"""Compiled kernels on one GPU: loaded and launched through the driver, on torch's current stream."""

from __future__ import annotations

import ctypes
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.cuda.nvrtc import SPLITTING, Compiler, NotHere
from dflearn.engine.cuda.plan import FIELDS, SIZES, WARP
from dflearn.engine.torch_private import current_device, current_stream

LEAST_CAPABILITY = (7, 0)  # warps whose lanes are threads of their own
RESERVED = 1024  # bytes of fast memory that the system takes of each block
MAX_SHARED_OPTIN, MAX_SHARED_PER_MULTIPROCESSOR = 97, 81  # attributes of a device
MAX_DYNAMIC_SHARED = 8  # of a function
BUFFER_POINTER, BUFFER_SIZE = 1, 2  # what follows, in the list that tells of a kernel's arguments
# The arguments of each kernel, as `struct` writes them: P for a pointer, i for an int, d for a double.
KERNELS = {
    "smoothed_solve": "iPPPdPiiPPPPiPiPiPiPPPPPPPP",
    "smoothed_project": "iPPPPiPiPiiPPiPiPPPP",
    "splitting_iterate": 5 * "i" + 8 * "P" + "PPiPPiPiPiPPiddi" + 7 * "P",
    "splitting_back": 5 * "i" + 8 * "P" + "PPiiPdPiP",
}


class PlanStruct(ctypes.Structure):
    """`struct Plan` of source/block.cuh."""

    _fields_ = [("sizes", ctypes.c_int * len(SIZES)), ("fields", ctypes.c_void_p * len(FIELDS))]

    @classmethod
    def of(cls, sizes: dict[str, int], fields: Sequence[Tensor]) -> PlanStruct:
        numbers = (ctypes.c_int * len(SIZES))(*(sizes[name] for name in SIZES))
        return cls(numbers, (ctypes.c_void_p * len(FIELDS))(*(field.data_ptr() for field in fields)))


class Shape(NamedTuple):
    """Threads of a block, how many each stands for in sums (see `Sum` in source/block.cuh), and blocks on a multiprocessor."""

    threads: int
    parts: int
    together: int


class Module(ABC):
    """The kernels with one plan in them."""

    @abstractmethod
    def slots(self, kernel: str) -> int:
        """How many blocks the device holds at once."""

    @abstractmethod
    def launch(self, kernel: str, blocks: int, *arguments: float) -> None:
        """Arguments as of `KERNELS`; a pointer is the address of a tensor, which lives until then, or 0."""


class Machine(ABC):
    """What runs blocks.

    Attributes:
        warp: lanes of a warp.
        fast_memory: bytes that one block may have, and that one multiprocessor has.
        multiprocessors: how many there are.
    """

    warp: int
    multiprocessors: int
    fast_memory: tuple[int, int]

    @abstractmethod
    def load(self, shape: Shape, sizes: dict[str, int], fields: Sequence[np.ndarray], shared: int) -> Module:
        """The kernels for blocks of that shape, with a plan and its fast memory."""

    @abstractmethod
    def load_splitting(self, threads: int, options: tuple[str, ...], shared: int) -> Module:
        """The kernels of Davis-Yin iterations, with options of the compiler as of source/splitting.cu."""


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NotHere(f"the CUDA driver was not found: {error}") from error


@lru_cache(maxsize=1)
def _launcher() -> Any:
    launch = _driver().cuLaunchKernel
    number, pointer = ctypes.c_uint, ctypes.c_void_p
    launch.argtypes = (pointer, *(number,) * 7, pointer, pointer, pointer)
    return launch


def _check(code: int) -> None:
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"CUDA driver: {(text.value or b'unknown error').decode()} ({code})")


class Gpu(Machine):
    """One CUDA device of torch's."""

    warp = WARP

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.capability = torch.cuda.get_device_capability(device)
        if self.capability < LEAST_CAPABILITY or torch.version.cuda is None:
            raise NotHere(f"{torch.cuda.get_device_name(device)} is too old: compute capability 7.0 is the least")
        properties = torch.cuda.get_device_properties(device)
        self.multiprocessors = properties.multi_processor_count
        torch.cuda.synchronize(device)  # torch makes the context
        self._context, self._entered = ctypes.c_void_p(), threading.local()
        with torch.cuda.device(device):
            _check(_driver().cuCtxGetCurrent(ctypes.byref(self._context)))
        self.fast_memory = (self._attribute(MAX_SHARED_OPTIN), self._attribute(MAX_SHARED_PER_MULTIPROCESSOR))
        self.compiler = Compiler(torch.version.cuda)

    def enter(self) -> None:
        """Make torch's context that of this thread: the first work of a thread, as in backward, may be a kernel of ours."""
        if not self._entered.__dict__:
            _check(_driver().cuCtxSetCurrent(self._context))
            self._entered.there = True

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        _check(_driver().cuDeviceGetAttribute(ctypes.byref(value), number, self.device.index or 0))
        return value.value

    def load(self, shape: Shape, sizes: dict[str, int], fields: Sequence[np.ndarray], shared: int) -> Module:
        more = (f"-DPARTS={shape.parts}", f"-DMIN_BLOCKS={shape.together}", *(["-DSPILL"] if sizes["far"] else []))
        code = self.compiler.cubin(self._options(shape.threads, *more))
        return PlannedModule(self, code, shape.threads, sizes, fields, shared)

    def load_splitting(self, threads: int, options: tuple[str, ...], shared: int) -> Module:
        return GpuModule(self, self.compiler.cubin(self._options(threads, *options), SPLITTING), threads, shared)

    def _options(self, threads: int, *more: str) -> tuple[str, ...]:
        major, minor = self.capability
        return f"--gpu-architecture=sm_{major}{minor}", "--std=c++17", f"-DNT={threads}", *more


class Function(NamedTuple):
    """A kernel: how many of its blocks the device holds, and how its arguments lie in memory."""

    handle: ctypes.c_void_p
    slots: int
    layout: struct.Struct


class Arguments:
    """The memory that tells of a kernel's arguments, used again by each launch of a thread."""

    def __init__(self, size: int) -> None:
        self.memory, self.size = ctypes.create_string_buffer(size), ctypes.c_size_t(size)
        parts = (BUFFER_POINTER, ctypes.addressof(self.memory), BUFFER_SIZE, ctypes.addressof(self.size), None)
        self.extra = (ctypes.c_void_p * 5)(*parts)


class GpuModule(Module):
    """A loaded cubin."""

    def __init__(self, gpu: Gpu, code: bytes, threads: int, shared: int) -> None:
        self.gpu, self.threads, self.shared = gpu, threads, shared
        self.handle = ctypes.c_void_p()
        with torch.cuda.device(gpu.device):
            gpu.enter()
            _check(_driver().cuModuleLoadData(ctypes.byref(self.handle), code))
        self._functions: dict[str, Function] = {}
        self._arguments = threading.local()

    def _function(self, kernel: str) -> Function:
        found = self._functions.get(kernel)
        if found is None:
            driver, handle, blocks = _driver(), ctypes.c_void_p(), ctypes.c_int()
            with torch.cuda.device(self.gpu.device):
                self.gpu.enter()
                _check(driver.cuModuleGetFunction(ctypes.byref(handle), self.handle, kernel.encode()))
                _check(driver.cuFuncSetAttribute(handle, MAX_DYNAMIC_SHARED, self.shared))
                occupancy = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
                _check(occupancy(ctypes.byref(blocks), handle, self.threads, ctypes.c_size_t(self.shared)))
            found = Function(handle, max(blocks.value, 1) * self.gpu.multiprocessors, struct.Struct(KERNELS[kernel]))
            self._functions[kernel] = found
        return found

    def slots(self, kernel: str) -> int:
        return self._function(kernel).slots

    def launch(self, kernel: str, blocks: int, *arguments: float) -> None:
        function, gpu = self._function(kernel), self.gpu
        # As one piece of memory, laid out as C does, which takes less time than a pointer to each.
        kept = self._arguments.__dict__.get(kernel)
        if kept is None:
            kept = self._arguments.__dict__[kernel] = Arguments(function.layout.size)
        function.layout.pack_into(kept.memory, 0, *arguments)
        stream = current_stream(gpu.device.index)
        shape = (blocks, 1, 1, self.threads, 1, 1, self.shared, stream, None, kept.extra)
        if current_device() == gpu.device.index:
            gpu.enter()
            _check(_launcher()(function.handle, *shape))
            return
        with torch.cuda.device(gpu.device):
            _check(_launcher()(function.handle, *shape))


class PlannedModule(GpuModule):
    """With a plan in its constant memory."""

    def __init__(
        self, gpu: Gpu, code: bytes, threads: int, sizes: dict[str, int], fields: Sequence[np.ndarray], shared: int
    ) -> None:
        super().__init__(gpu, code, threads, shared)
        self.fields = [torch.from_numpy(field.copy()).to(gpu.device) for field in fields]
        driver, plan = _driver(), PlanStruct.of(sizes, self.fields)
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        with torch.cuda.device(gpu.device):
            _check(driver.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), self.handle, b"p"))
            assert size.value == ctypes.sizeof(plan), "struct Plan and PlanStruct differ"
            _check(driver.cuMemcpyHtoD_v2(address, ctypes.byref(plan), size))
            torch.cuda.synchronize(gpu.device)


@lru_cache(maxsize=16)
def gpu(index: int) -> Gpu:
    """The machine behind a CUDA device."""
    return Gpu(torch.device("cuda", index))
