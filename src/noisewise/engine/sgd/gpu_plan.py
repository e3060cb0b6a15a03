"""In which order a GPU visits observations: runs that race, or a ring of stripes that does not.

**Runs.** Observations are sorted by the longest mode, and at random within a row of it. A run is
up to ``LONGEST_RUN`` observations of one row, which stays in the registers of a warp; rows of other
modes are fetched and stored with every observation. Warps take runs in random order. Where two
change a row at once, the change of one is lost.

**Ring.** Rows of every mode are dealt into as many stripes as there are warps, S. Worker w keeps
stripe w of the longest mode; of the others it has, at step t, stripe w + d, where d is the digit of
t (in base S) that belongs to the mode. It starts on step t when worker w + 1 has finished step
t - 1. Why no two ever have the same row: by that rule (w, t) comes after (w + k, t - j) whenever
j >= k >= 0. If (w, t) and (w', t') with t' < t share a stripe of a mode whose digits are d and d',
then k = w' - w is d - d' modulo S, and t - t' is at least that: the digits of t above d are not
smaller than those of t', and if one is larger, t - t' is at least S + d - d'. The result has the
same bits on every run. Stripes get new numbers in every epoch.

A row that has more observations than a few stripes together would keep all others waiting, and so
would a mode of fewer rows than there are workers. Such a row gets replicas, each for some of the
workers and in a stripe of its own, which are averaged after the epoch; their AdaGrad sums are added
up.

The functions take arrays of numpy as well as those of a GPU: ``xp`` is the module they come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from noisewise.engine.arrays import Codes, Counts

LONGEST_RUN = 256  # observations
RUNS_PER_WORKER = 8  # as many at least, for warps to end together
SMALLEST_BLOCK = 1.5  # observations in a block of the ring, below which workers mostly wait
SMALLEST_TENSOR_BLOCK = 16
STRIPES_PER_ROW = 4  # of the shortest mode of a tensor, at most
HEAVIEST = 1.0  # times the observations of an average stripe, above which a row gets replicas
HEAVIEST_OF_FEW = 4.0  # the same of fewer observations than RING_BELOW: less speed, more accuracy
RING_BELOW = 20_000_000  # observations: then the ring is as fast as runs that race
SORTING_BYTES = 96  # per observation, while observations are put in order


class Order(NamedTuple):
    """Observations in the order in which warps visit them.

    Attributes
    ----------
    modes
        Which mode the kernel has first, second and so on; the row of the first stays in registers.
    codes, values
        Row of each mode, in that order, and the value.
    starts
        Run, or block, k is ``starts[k]:starts[k + 1]``.
    side
        Stripes per mode of a ring; 0 of runs.
    replicas
        Of some places of modes, the row that each replica is of; replicas follow the rows.
    """

    modes: tuple[int, ...]
    codes: tuple[Any, ...]
    values: Any
    starts: Any
    side: int = 0
    replicas: Mapping[int, Counts] = MappingProxyType({})

    @property
    def arrays(self) -> list[Any]:
        """All arrays of the device, as they can be moved elsewhere."""
        return [*self.codes, self.values, self.starts]

    def with_arrays(self, arrays: list[Any]) -> Order:
        """Return the same order with arrays that were moved."""
        *codes, values, starts = arrays
        return self._replace(codes=tuple(codes), values=values, starts=starts)


def bytes_of(n: int, n_modes: int) -> int:
    """Bytes that observations take while they are trained on."""
    return n * 4 * (n_modes + 1)


def ring_side(n: int, shape: tuple[int, ...], workers: int) -> int:
    """Stripes per mode: no more than warps, rows to deal, or blocks that are worth a visit."""
    if len(shape) == 2:
        return max(1, min(workers, *shape, int((n / SMALLEST_BLOCK) ** 0.5)))
    worth = int((n / SMALLEST_TENSOR_BLOCK) ** (1.0 / len(shape)))
    return max(1, min(workers, max(shape), STRIPES_PER_ROW * min(shape), worth))


def in_runs(
    xp: Any, codes: tuple[Any, ...], values: Any, shape: tuple[int, ...], workers: int
) -> Order:
    """Sort observations by the longest mode, and cut them into runs."""
    modes = tuple(sorted(range(len(shape)), key=lambda m: -shape[m]))
    n, held = len(values), codes[modes[0]]
    key = held.astype(np.uint64) << np.uint64(32) | _mixed(xp, n)
    visit = xp.argsort(key)
    del key
    placed = tuple(codes[m][visit] for m in modes)
    first = xp.cumsum(xp.bincount(held, minlength=shape[modes[0]])) - xp.bincount(
        held, minlength=shape[modes[0]]
    )
    longest = max(1, min(LONGEST_RUN, n // (workers * RUNS_PER_WORKER)))
    begins = (xp.arange(n) - first[placed[0]]) % longest == 0
    starts = xp.append(xp.flatnonzero(begins), n).astype(np.uint32)
    return Order(modes, placed, values[visit], starts)


def in_ring(
    xp: Any, codes: tuple[Any, ...], values: Any, shape: tuple[int, ...], side: int
) -> Order:
    """Deal rows into stripes, and sort observations by worker, block and row of the first mode."""
    longest = max(range(len(shape)), key=lambda m: shape[m])
    rest = sorted((m for m in range(len(shape)) if m != longest), key=lambda m: -shape[m])
    modes = (rest[0], longest, *rest[1:])
    own = [codes[m] for m in modes]
    stripes = [deal(xp, own[1], shape[longest], side)[own[1]]]
    replicas = {}
    for place, mode in enumerate(modes):
        if place == 1:
            continue
        few = len(values) < RING_BELOW and len(shape) == 2
        most = (HEAVIEST_OF_FEW if few else HEAVIEST) * len(values) / side
        own[place], extra = replicated(xp, own[place], shape[mode], stripes[-1], most)
        stripe = deal(xp, own[place], shape[mode] + len(extra), side)[own[place]]
        stripes.insert(place, stripe)
        if len(extra):
            replicas[place] = extra
    block, weight = xp.zeros(len(values), dtype=np.int64), 1
    for place, stripe in enumerate(stripes):
        if place != 1:
            block += stripe * weight
            weight *= side
    block += stripes[1] * weight
    del stripes
    starts = xp.zeros(side * weight + 1, dtype=np.uint32)
    starts[1:] = xp.cumsum(xp.bincount(block, minlength=side * weight))
    visit = xp.argsort(block << 32 | own[0], kind="stable")
    del block
    placed = tuple(code[visit] for code in own)
    return Order(modes, placed, values[visit], starts, side, replicas)


def replicated(xp: Any, codes: Any, n: int, worker: Any, most: float) -> tuple[Any, Counts]:
    """Give rows with more than ``most`` observations replicas; return codes, and rows of replicas.

    Of a row that counts r times, worker w has replica w % r, of which 0 is the row itself.
    """
    counts = xp.bincount(codes, minlength=n)
    times = xp.maximum(1, xp.ceil(counts / most)).astype(np.int64)
    if int(times.max()) == 1:
        return codes, np.empty(0, dtype=np.int64)
    first = n + xp.cumsum(times - 1) - (times - 1)
    which = worker % times[codes]
    moved = xp.where(which > 0, first[codes] + which - 1, codes).astype(np.int32)
    extra = times.get() - 1 if hasattr(times, "get") else times - 1  # of a GPU, or of numpy
    return moved, np.repeat(np.arange(n), extra)


def seen(xp: Any, codes: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return which columns every row was seen with: starts, and columns in order."""
    key = xp.unique(codes[0].astype(np.int64) * shape[1] + codes[1])
    starts = xp.zeros(shape[0] + 1, dtype=np.int64)
    starts[1:] = xp.cumsum(xp.bincount(key // shape[1], minlength=shape[0]))
    return starts, (key % shape[1]).astype(np.int32)


def deal(xp: Any, codes: Any, n: int, side: int) -> Any:
    """Deal n rows into stripes, busiest first and to and fro, so that stripes weigh the same."""
    busiest_first = xp.argsort(-xp.bincount(codes, minlength=n), kind="stable")
    turn = xp.arange(n) % (2 * side)
    stripe = xp.empty(n, dtype=np.int64)
    stripe[busiest_first] = xp.minimum(turn, 2 * side - 1 - turn)
    return stripe


def pieces(counts: np.ndarray[Any, Any], largest: int) -> np.ndarray[Any, Any]:
    """Return for every row of a mode the piece of the data that it belongs to.

    A piece has rows that follow each other, and about ``largest`` observations at most; a single
    row may have more.
    """
    before = np.cumsum(counts) - counts
    piece: np.ndarray[Any, Any] = (before // largest).astype(np.int32)
    return piece


def labels(n_modes: int, side: int, rng: np.random.Generator) -> Codes:
    """Return a number for every stripe of every mode, in an order of its own."""
    return np.stack([rng.permutation(side) for _ in range(n_modes)]).astype(np.int32)


def affine(n: int, rng: np.random.Generator) -> tuple[int, int]:
    """Return a and b, so that ``(a * k + b) % n`` is an order of 0 to n - 1."""
    stride = int(rng.integers(1, n + 1))
    while math.gcd(stride, n) > 1:
        stride = stride % n + 1
    return stride, int(rng.integers(n))


def _mixed(xp: Any, n: int) -> Any:
    """Return a number for each of n positions, all different, as if drawn at random."""
    x = xp.arange(n, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    for factor, shift in ((0x7FEB352D, 16), (0x846CA68B, 15)):
        x ^= x >> np.uint64(shift)
        x = x * np.uint64(factor) & low
    return x ^ x >> np.uint64(16)
