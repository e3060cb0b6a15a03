"""What training on a GPU carries from epoch to epoch, and rows as its kernels take them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise.engine.arrays import Arrays, Counts, Floats, Source
from noisewise.engine.devices import Device
from noisewise.engine.sgd.layout import (
    ADAGRAD_START,
    BIAS_SUM,
    DEVIATION_SUM,
    LINE,
    MEAN_SUM,
    SHARE,
    STANDSTILL,
    Layout,
    Params,
    State,
    aligned_zeros,
)
from noisewise.errors import brief

CACHE_LINE = 32  # floats in a line of a GPU's cache


@dataclass
class GpuState:
    """What ``layout.State`` is, with its rows on a GPU.

    Attributes
    ----------
    device
        Where the rows are.
    rows
        One packed matrix per mode.
    epoch, variance
        As in ``State``.
    """

    device: Device
    rows: tuple[Any, ...]
    layout: Layout
    epoch: int = 0
    variance: float = 1.0

    __repr__ = brief

    def biases(self, mode: int) -> Floats:
        """One bias per row, a copy."""
        return self.on_host().biases(mode)

    def mean_factors(self, mode: int) -> Floats:
        """Mean factors of every row, a copy."""
        return self.on_host().mean_factors(mode)

    def deviation_factors(self, mode: int) -> Floats:
        """Deviation factors of every row, a copy."""
        return self.on_host().deviation_factors(mode)

    def on_host(self) -> State:
        """Return the same state with arrays of numpy."""
        rows = []
        for own in self.rows:
            copy = aligned_zeros(*own.shape)
            self.device.on_host(own, out=copy)
            rows.append(copy)
        return State(tuple(rows), self.layout, self.epoch, self.variance)

    def copy(self) -> GpuState:
        """Return a state of its own, to be kept while training goes on."""
        rows = tuple(laid_out(self.device.xp, own) for own in self.rows)
        return GpuState(self.device, rows, self.layout, self.epoch, self.variance)

    def is_finite(self) -> bool:
        """Whether every number is finite (a sum over each matrix is enough to see it)."""
        # With what lies between rows, which is zero: a sum over one piece of memory is much faster.
        return all(math.isfinite(float(own.base.sum())) for own in self.rows)

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """Header and arrays of a checkpoint."""
        return self.on_host().pack()

    def restored(self, source: Source) -> GpuState:
        """Return a state like this one with what ``pack`` gave."""
        return sent(self.device, self.on_host().restored(source))


def sent(device: Device, state: State) -> GpuState:
    """Return a state with its rows on a GPU."""
    rows = tuple(laid_out(device.xp, device.on_device(own)) for own in state.rows)
    return GpuState(device, rows, state.layout, state.epoch, state.variance)


def stride(width: int) -> int:
    """Floats from row to row: whole lines of the cache, of which the header ends the first."""
    return -(-(LINE + width) // CACHE_LINE) * CACHE_LINE


def empty_rows(xp: Any, n: int, width: int) -> Any:
    """Return zeros for n packed rows; their factors start with a line of the cache."""
    return xp.zeros((n, stride(width)), dtype=np.float32)[:, LINE : LINE + width]


def laid_out(xp: Any, *parts: Any) -> Any:
    """Return rows, one part after the other, so that they start as ``empty_rows`` has them."""
    rows, start = empty_rows(xp, sum(map(len, parts)), parts[0].shape[1]), 0
    for part in parts:
        rows[start : start + len(part)] = part
        start += len(part)
    return rows


def initial_state(device: Device, params: Params, counts: tuple[Counts, ...]) -> GpuState:
    """Draw the state to start from, as ``layout.initial_state`` does, but on the GPU."""
    xp, layout = device.xp, params.layout
    scale = 0.1 / math.sqrt(max(params.rank, 1))
    if len(counts) > 2:
        scale **= 1.0 / len(counts)
    rng = xp.random.default_rng(_seed(params, 0))
    rows = []
    for count in counts:
        own = empty_rows(xp, len(count), layout.width)
        if params.rank:
            drawn = rng.standard_normal((len(count), params.rank), dtype=np.float32)
            own[:, LINE : LINE + params.rank] = drawn * np.float32(scale)
        for place in (BIAS_SUM, MEAN_SUM, DEVIATION_SUM):
            own[:, place] = ADAGRAD_START
        if not params.biases:
            own[:, BIAS_SUM] = STANDSTILL
        own[:, layout.sums_start :] = ADAGRAD_START
        share = 1.0 / np.maximum(count, 1) if params.penalty == "row" else np.ones(len(count))
        own[:, SHARE] = device.on_device(share.astype(np.float32))
        rows.append(own)
    return GpuState(device, tuple(rows), layout)


def release_deviation(state: GpuState, params: Params) -> None:
    """Start the deviation factors, as ``layout.release_deviation`` does."""
    if params.deviation_rank == 0:
        return
    rng = state.device.xp.random.default_rng(_seed(params, 1))
    target = max(state.variance - params.delta, 0.1 * state.variance)
    middle = (target / params.deviation_rank) ** (1.0 / len(state.rows))
    start = state.layout.deviation_start
    for own in state.rows:
        drawn = rng.random((len(own), params.deviation_rank), dtype=np.float32)
        own[:, start : start + params.deviation_rank] = (0.8 + 0.4 * drawn) * np.float32(middle)


def _seed(params: Params, stream: int) -> int:
    return int(np.random.SeedSequence([params.seed, stream]).generate_state(1)[0])


def halved(xp: Any, rows: Any, layout: Layout) -> Any:
    """Return packed rows with factors, and nothing else, in half precision."""
    factors = xp.ascontiguousarray(rows[:, LINE : layout.sums_start]).astype(np.float16)
    parts = [rows[:, :LINE], factors.view(np.float32), rows[:, layout.sums_start :]]
    return laid_out(xp, xp.concatenate(parts, axis=1))


def made_whole(xp: Any, rows: Any, layout: Layout) -> Any:
    """Undo ``halved``."""
    end = LINE + (layout.mean + layout.deviation) // 2
    factors = xp.ascontiguousarray(rows[:, LINE:end]).view(np.float16).astype(np.float32)
    return xp.concatenate([rows[:, :LINE], factors, rows[:, end:]], axis=1)


def merge(xp: Any, before: Any, rows: Any, replicas: Any, layout: Layout) -> None:
    """Put rows that were trained back; replicas are averaged, and their AdaGrad sums added up.

    ``replicas`` has the row that each replica is of, in order; they follow the rows.
    """
    n = len(before)
    if len(replicas):
        heavy, times = np.unique(replicas, return_counts=True)
        turn = np.arange(len(replicas)) - np.repeat(np.cumsum(times) - times, times)
        at = xp.asarray(heavy)
        total = rows[at]
        for k in range(int(times.max())):
            here = np.flatnonzero(turn == k)
            total[xp.asarray(np.flatnonzero(times > k))] += rows[n + xp.asarray(here)]
        times = xp.asarray(times)[:, None].astype(np.float32)
        average = total / (times + 1)
        for part in (slice(BIAS_SUM, SHARE), slice(layout.sums_start, None)):
            average[:, part] = total[:, part] - times * before[at][:, part]
        rows[at] = average
    before[...] = rows[:n]
