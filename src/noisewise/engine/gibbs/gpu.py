"""Ratings on a GPU: their order there, the kernels that visit them, and a draw of all unknowns.

Rows, noise and hidden values live on the GPU, what belongs to a whole mode in numpy. Every row has
the stream of random numbers that it has on the CPU, and sums have a fixed order: the same bits on
every run of the same card, and the CPU's up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Arrays, Codes, Floats, Source
from noisewise.engine.data import Data, Spec
from noisewise.engine.devices import BLOCK, WARP, Device, Launch, TooLittleMemory, too_little
from noisewise.engine.gibbs.sweep import RatingDraw, Workspace

SOURCES = ("streams.cu", "rows.cu", "noise.cu", "ratings.cu")
TILE = 8  # of rows.cu
MOST_SHARED = 220_000  # bytes of a block
MOST_RANK, MOST_NOISE_RANK = 150, 16  # so that a row's matrix fits there, and a warp's normals
WIDE = 1024  # threads of a block where only few blocks can work
RESIDENT = 8  # blocks of a multiprocessor, of kernels that warps share
LARGE = (
    "factors", "biases", "noise", "fitted", "effects", "features", "temporal", "widths", "latent",
)  # fmt: skip
WORKING = 12  # numbers of eight bytes that a step needs for every coordinate of a row, at most


def check(
    device: Device, spec: Spec, shape: tuple[int, ...], n: int, *, features: bool = False
) -> None:
    """Raise unless the kernels can hold such a model, and the memory n observations with it."""
    if features:
        raise TooLittleMemory("On a GPU, features are not supported: leave out device, or them.")
    for name, own, most in (
        ("rank", spec.rank, MOST_RANK),
        ("deviation_rank", spec.noise_rank, MOST_NOISE_RANK),
    ):
        if own > most:
            raise TooLittleMemory(f"On a GPU, {name} must be at most {most}; got {own}.")
    needed = bytes_needed(spec, shape, n)
    if needed > device.free_bytes():
        raise too_little(device, needed, f"A model of rank {spec.rank} and {n:,} observations")


def arrange(
    device: Device, codes: tuple[Codes, ...], values: Floats, shape: tuple[int, ...], time: Any
) -> tuple[Data, npt.NDArray[np.intp]]:
    """Do what ``Data.arrange`` does, sorting on the GPU."""
    xp = device.xp
    here = [device.on_device(code) for code in codes]
    times = None if time is None else device.on_device(np.asarray(time, dtype=np.float64))
    order = _order(xp, here, shape, 0, times)
    here = [code[order] for code in here]
    times = None if times is None else times[order]
    index = [np.arange(len(values), dtype=np.int32)]
    index += [
        device.on_host(_order(xp, here, shape, mode, times).astype(np.int32))
        for mode in range(1, len(shape))
    ]
    firsts = np.cumsum([0, *shape[:-1]])
    places = np.empty((len(shape), len(values)), dtype=np.int32)
    starts = []
    for mode, (code, first) in enumerate(zip(here, firsts, strict=True)):
        counts = device.on_host(xp.bincount(code, minlength=shape[mode]))
        starts.append(np.concatenate([[0], np.cumsum(counts)]))
        places[mode] = device.on_host(code + np.int32(first))
    order = device.on_host(order)
    return Data(shape, places, values[order], tuple(starts), tuple(index)), order


def _order(xp: Any, codes: list[Any], shape: tuple[int, ...], mode: int, time: Any) -> Any:
    """Order by the row of a mode, then time, then the rows of the other modes."""
    key = xp.zeros(len(codes[0]), dtype=np.int64)
    for m in range(len(shape)):
        if m != mode:
            key = key * shape[m] + codes[m]
    if time is None and math.prod(shape) < 2**62:
        key += codes[mode].astype(np.int64) * (math.prod(shape) // shape[mode])
        return xp.argsort(key, kind="stable")
    order = xp.argsort(key, kind="stable")
    for own in ([] if time is None else [time]) + [codes[mode]]:
        order = order[xp.argsort(own[order], kind="stable")]
    return order


class GpuData:
    """Observations on a GPU, in the orders in which modes visit them."""

    places: Any
    values: Any
    index: list[Any]
    starts: list[Any]
    order: list[Any]
    others: list[Any]
    members: list[Any]
    shares: list[Any]

    def __init__(self, device: Device, spec: Spec, data: Data) -> None:
        xp = device.xp
        self.places, self.values = device.on_device(data.places), device.on_device(data.values)
        self.index = [device.on_device(index) for index in data.index]
        self.starts = [device.on_device(starts.astype(np.int64)) for starts in data.starts]
        lengths = [np.diff(starts) for starts in data.starts]
        self.order = [  # of rows, the longest first, so that none is waited for in the end
            device.on_device(np.argsort(-length, kind="stable").astype(np.int32))
            for length in lengths
        ]
        self.others = []
        for mode, index in enumerate(self.index):
            kept = [m for m in range(data.n_modes) if m != mode]
            others = xp.empty((len(kept), len(data)), dtype=np.int32)
            for line, m in enumerate(kept):
                others[line] = self.places[m][index]
            self.others.append(others)
        self.members, self.shares = [], []
        if spec.implicit:
            firsts = data.firsts
            self.members = [self.others[1 - m][0] - np.int32(firsts[m]) for m in (0, 1)]
            self.shares = [device.on_device(share) for share in data.shares]


class GpuWorkspace(Workspace):
    """The workspace of steps on a GPU: its arrays are there, and so are kernels."""

    device: Device
    xp: Any
    here: GpuData
    target: Any
    residual: Any
    warps: int

    def __init__(self, device: Device, spec: Spec, data: Data, burn_in: int = 0) -> None:
        check(device, spec, data.shape, len(data))
        super().__init__(spec, data, 1, burn_in)
        xp = device.xp
        self.device, self.xp = device, xp
        self.here = GpuData(device, spec, data)
        self.root: Any = xp.ones(len(data), dtype=np.float32)
        self.target = self.residual = xp.zeros(len(data), dtype=np.float32)
        self.warps = device.workers(RESIDENT)
        self.kernels = kernels_of(device, spec, data.n_modes)
        self.filtered: Any = xp.empty((2, len(data) if spec.time else 0))

    def kernel(
        self, name: str, warps: int | None = None, shared: int = 0, threads: int = BLOCK
    ) -> Launch:
        """Return a kernel of sums in single precision, to be called with its arguments."""
        return self.kernels(name, warps or self.warps, shared, threads)

    def rows_kernel(self, rows: int, exact: bool) -> Launch:
        """Return the kernel that draws rows, a block for each."""
        kernels, blocks = self.kernels, min(rows, 2**20)
        if exact:
            kernels = kernels_of(self.device, self.spec, self.data.n_modes, exact=True)
        return kernels("draw_rows", blocks * BLOCK // WARP, shared_bytes(self.spec.rank, exact))

    def fit(self, places: Any, draw: RatingDraw, out: Any) -> Any:
        """Fill in what rows make of cells; ``places`` has a line for each mode."""
        self.kernel("fit")(places, np.int64(len(out)), draw.factors, draw.biases, out)
        return out

    def on_host(self, array: Any) -> Any:
        """Return a copy of an array as numpy has it."""
        return self.device.on_host(array)


def kernels_of(
    device: Device, spec: Spec, modes: int, *, exact: bool = False
) -> Callable[..., Launch]:
    """Return the kernels of a model; ``exact`` sums products in double precision."""
    here: Any = device
    factors = max(spec.noise_rank, 1)
    kernels: Callable[..., Launch] = _kernels(here, spec.rank, modes - 1, factors, exact)
    return kernels


@cache
def _kernels(device: Any, rank: int, others: int, factors: int, exact: bool) -> Any:
    here = files(__package__)
    source = "\n".join(here.joinpath(name).read_text() for name in SOURCES)
    width = width_of(rank)
    resident = 2 if not exact and 2 * shared_bytes(rank, False) < MOST_SHARED else 1
    sums = "double" if exact else "float"
    return device.compiled(source, (
        f"-DRANK={rank}", f"-DWIDTH={width}", f"-DOTHERS={others}", f"-DFACTORS={factors}",
        f"-DSUM={sums}", f"-DRESIDENT={resident}",
    ))  # fmt: skip


def width_of(rank: int) -> int:
    """Return how long rows are, padded as those of ``first_draw``."""
    return -(-max(rank, 1) // 16) * 16


def shared_bytes(rank: int, exact: bool) -> int:
    """Return the shared memory that a block of ``draw_rows`` needs; see rows.cu."""
    size = rank + 2
    tiles = -(-size // TILE)
    slices = min(16, BLOCK // (tiles * (tiles + 1) // 2))
    stage = 32 if slices < 4 else 8 * slices
    doubles = size * (size | 1) + 3 * size + 2 * WARP + 3
    return 8 * doubles + (8 if exact else 4) * stage * tiles * TILE


def bytes_needed(spec: Spec, shape: tuple[int, ...], n: int) -> int:
    """Return about how much memory a fit needs."""
    modes, rows, longest = len(shape), sum(shape), max(shape)
    each = 4 * (4 * modes + 8)  # places, index, others, members; values, root, target...
    each += 4 * 3 + 8 * 2 + 8 if spec.time else 0
    each += 4 * 4 if spec.ordinal else 0
    per_row = 4 * (spec.rank + 16 + 2 * spec.noise_rank)
    per_row += 8 * (spec.rank + 1) if spec.implicit else 0
    return n * each + rows * per_row + longest * 8 * (spec.rank + 1) * WORKING // 2


@dataclass
class GpuDraw(RatingDraw):
    """All unknowns, the large ones on a GPU."""

    @classmethod
    def of(cls, draw: RatingDraw, device: Device) -> Self:
        """Send a draw."""
        sent = {name: device.on_device(getattr(draw, name)) for name in LARGE}
        return cls(**(vars(draw) | sent))

    def __deepcopy__(self, memo: Any) -> Self:
        return replace(self, **{name: array.copy() for name, array in self._own.items()})

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        on_gpu = sum(getattr(self, name).sum(dtype=np.float64) for name in LARGE)
        rest = sum(array.sum() for name, array in self._own.items() if name not in LARGE)
        return bool(np.isfinite(float(on_gpu)) and np.isfinite(rest))

    @property
    def arrays(self) -> Arrays:
        """All but the number of sweeps, by name, as numpy has them."""
        return {name: _as_numpy(array) for name, array in self._own.items()}

    def restored(self, source: Source) -> Self:
        """Return a draw like this one with what ``pack`` gave."""
        new = super().restored(source)
        return replace(
            new, **{name: _filled(getattr(self, name), getattr(new, name)) for name in LARGE}
        )

    @property
    def _own(self) -> dict[str, Any]:
        return {name: array for name, array in vars(self).items() if name != "epoch"}


def _as_numpy(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array.copy()


def _filled(like: Any, array: Any) -> Any:
    out = like.copy()
    if hasattr(out, "set"):
        out.set(array)
    else:
        out[...] = array
    return out
