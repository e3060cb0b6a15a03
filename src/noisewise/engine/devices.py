"""The GPU, where there is one: found by name, asked for memory, and given kernels to run.

CuPy is imported only when a GPU is asked for. What the engine does on a GPU it does through a
``Device``: ``xp`` has arrays with numpy's functions, ``compiled`` has kernels. A test can put numpy
and a compiler for the CPU in their place.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, Protocol

import numpy as np

from noisewise.errors import MissingExtraError, SettingError, warn

WARP = 32
BLOCK = 256  # threads that start together
SPARE = 0.9  # share of the free memory that may be used
NAMES = re.compile(r"cpu|auto|cuda(:\d+)?")

Launch = Callable[..., None]


class Device(Protocol):
    """Where arrays and kernels live."""

    @property
    def name(self) -> str:
        """As a user names it."""

    @property
    def xp(self) -> Any:
        """Arrays with numpy's functions."""

    @property
    def out_of_memory(self) -> type[Exception]:
        """What is raised where memory runs out."""

    def active(self) -> AbstractContextManager[Any]:
        """Make this the device on which arrays are made, for a while."""

    def compiled(self, source: str, options: tuple[str, ...]) -> Callable[..., Launch]:
        """Compile CUDA; return a function of a kernel's name and its number of warps.

        It also takes the bytes of shared memory of a block, and its threads.
        """

    def workers(self, resident: int) -> int:
        """Warps that run at the same time, with so many blocks on a multiprocessor."""

    def free_bytes(self) -> int:
        """Memory that may be used."""

    def on_device(self, array: Any) -> Any:
        """Return a copy of an array of numpy, on the device."""

    def on_host(self, array: Any, out: Any = None) -> Any:
        """Return a copy of an array as numpy has it, in ``out`` if it is given."""

    def pinned(self, array: Any) -> Any:
        """Return a copy of a device's array in memory from which it comes back fastest."""

    def pointers(self, arrays: Sequence[Any]) -> Any:
        """Return where arrays lie, as an array that kernels can read."""

    def uploading(self) -> AbstractContextManager[Any]:
        """Copy to the device beside what is running there, for a while."""

    def arrived(self) -> None:
        """Let what runs next wait for what is being copied."""

    def release(self) -> None:
        """Give back memory that is no longer used."""


class Cuda:
    """A GPU of NVIDIA, through CuPy."""

    xp: Any
    number: int
    name: str

    def __init__(self, cupy: Any, number: int) -> None:
        self.xp, self.number = cupy, number
        self.name = f"cuda:{number}"
        self.out_of_memory: type[Exception] = cupy.cuda.memory.OutOfMemoryError
        self._copies: Any = None  # a stream of its own

    def __repr__(self) -> str:
        return f"Cuda({self.number})"

    def active(self) -> AbstractContextManager[Any]:
        """Make this the device on which arrays are made, for a while."""
        device: AbstractContextManager[Any] = self.xp.cuda.Device(self.number)
        return device

    def compiled(self, source: str, options: tuple[str, ...]) -> Callable[..., Launch]:
        """Compile CUDA; return a function of a kernel's name and its number of warps."""
        fixed = ("--use_fast_math", "-std=c++17")
        module = self.xp.RawModule(code=source, options=(*fixed, *options), backend="nvrtc")

        def kernel(name: str, workers: int, shared: int = 0, threads: int = BLOCK) -> Launch:
            function = module.get_function(name)
            if shared:
                function.max_dynamic_shared_size_bytes = shared
            blocks = max(1, -(-workers * WARP // threads))
            return lambda *given: function((blocks,), (threads,), given, shared_mem=shared)

        return kernel

    def workers(self, resident: int) -> int:
        """Warps that run at the same time, with so many blocks on a multiprocessor."""
        many: int = self.xp.cuda.Device(self.number).attributes["MultiProcessorCount"]
        return many * resident * BLOCK // WARP

    def free_bytes(self) -> int:
        """Memory that may be used."""
        self.release()
        with self.active():
            free, _ = self.xp.cuda.runtime.memGetInfo()
        return int(SPARE * free)

    def on_device(self, array: Any) -> Any:
        """Return a copy of an array of numpy, on the device."""
        return self.xp.asarray(array)

    def on_host(self, array: Any, out: Any = None) -> Any:
        """Return a copy of an array as numpy has it, in ``out`` if it is given."""
        return array.get() if out is None else array.get(out=out)

    def pinned(self, array: Any) -> Any:
        """Return a copy of a device's array in memory from which it comes back fastest."""
        make = importlib.import_module("cupyx").empty_pinned
        return array.get(out=make(array.shape, array.dtype))

    def pointers(self, arrays: Sequence[Any]) -> Any:
        """Return where arrays lie, as an array that kernels can read."""
        return self.xp.asarray(np.array([array.data.ptr for array in arrays], dtype=np.uint64))

    def uploading(self) -> AbstractContextManager[Any]:
        """Copy to the device beside what is running there, for a while."""
        if self._copies is None:
            self._copies = self.xp.cuda.Stream(non_blocking=True)
        stream: AbstractContextManager[Any] = self._copies
        return stream

    def arrived(self) -> None:
        """Let what runs next wait for what is being copied."""
        if self._copies is not None:
            self.xp.cuda.get_current_stream().wait_event(self._copies.record())

    def release(self) -> None:
        """Give back memory that is no longer used."""
        with self.active():
            self.xp.get_default_memory_pool().free_all_blocks()


def chosen(device: str) -> Device | None:
    """Return the GPU that a user named, or None for the CPU.

    ``auto`` takes a GPU if there is one, else warns and takes the CPU.
    """
    if device == "cpu":
        return None
    try:
        return _cuda(int(device.partition(":")[2] or 0))
    except (MissingExtraError, SettingError) as error:
        if device != "auto":
            raise
        warn(f"device='auto' takes the CPU. {error}")
        return None


@cache
def _cuda(number: int) -> Cuda:
    try:
        cupy: Any = importlib.import_module("cupy")
    except ImportError as error:
        raise MissingExtraError("A GPU", "gpu") from error
    try:
        many = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:  # a driver that is missing or too old
        raise SettingError(f"No GPU of NVIDIA can be used here ({error}).") from error
    if number >= many:
        raise SettingError(
            f"device='cuda:{number}' names a GPU that is not there: this machine has {many}, "
            "counted from 0."
        )
    return Cuda(cupy, number)


def card() -> str | None:
    """Return the name of the GPU that this process has used, if it has."""
    if not _cuda.cache_info().currsize:
        return None
    cupy: Any = importlib.import_module("cupy")
    name: bytes = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"]
    return name.decode()


class TooLittleMemory(SettingError):
    """A GPU has not the memory for what is asked of it."""


def too_little(device: Device, needed: int, what: str) -> TooLittleMemory:
    """Return what to raise where the memory of a GPU is too small."""
    return TooLittleMemory(
        f"{what} needs {needed / 1e9:.1f} GB on {device.name}, which has "
        f"{device.free_bytes() / 1e9:.1f} GB free; use device='cpu', or a smaller model."
    )


@contextmanager
def enough_memory(device: Device) -> Iterator[None]:
    """Say in one sentence that the memory of a GPU was not enough, where that shows on the way."""
    try:
        yield
    except device.out_of_memory as error:
        raise TooLittleMemory(
            f"The memory of {device.name} is too small for this model: {error} Use device='cpu', "
            "or a smaller model."
        ) from error
