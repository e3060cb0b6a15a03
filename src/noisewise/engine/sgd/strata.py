"""The kernels on the CPU: numba over fixed block strata.

Rows of every mode are dealt into stripes of equal weight; a block is where stripes of all modes
meet. The blocks of one stratum share no row in any mode, so threads work on them without locks, and
the result has the same bits for any number of threads. With S stripes in each of N modes there are
S ** (N - 1) strata of S blocks: the stripe of the first mode counts the blocks of a stratum, and
how far ahead of it the other stripes are tells which stratum a block is in.

Inside a block, observations are sorted by the first mode (of a tensor, by the longest), in two
halves that take turns: two rows of it stay in the nearest cache while rows of the others pass by.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Array, Codes, Counts, Floats, Values
from noisewise.engine.sgd import kernels, tensor_kernels
from noisewise.engine.sgd.layout import BIAS, LINE, Params, State, release_deviation
from noisewise.engine.training import EpochInfo, chunks, pool

STRIPE_BYTES = 512 * 1024  # a stripe of the second mode must stay in the second cache
MIN_BLOCK = 1_000  # observations in a block, below which a finer grid costs more than it gives
MIN_SIDE, COMFORTABLE_SIDE, MAX_SIDE = 4, 8, 256  # as many threads have work; more, more waiting
MIN_STRATUM, LARGE_STRATUM = 1_000, 100_000  # of tensors: fewer observations, more waiting
CHUNK = 65_536  # observations predicted by one task
MANY_CHUNK = 4_096  # of more than three modes
TINY = np.float32(1e-12)  # mean factors of tensors below it are zero
LEAST_VARIANCE = 1e-6  # of residuals: values that are all alike must not divide by zero


@dataclass(frozen=True)
class Blocks:
    """Observations in the order in which the kernel visits them, with rows in its own order."""

    codes: tuple[Codes, ...]
    values: Floats
    starts: npt.NDArray[np.int64]  # of block ``stratum * side + k``, and one for the end
    side: int  # stripes per mode; as many blocks in a stratum
    order: tuple[Codes, ...]  # per mode, the row of every id code
    weight: Floats | None = None  # that divides the variance of every observation

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_strata(self) -> int:
        """How many strata there are."""
        return (len(self.starts) - 1) // self.side

    def placed(self, of_ids: tuple[Values, ...]) -> tuple[Values, ...]:
        """Return arrays that have an entry for every id code in the order of the rows."""
        return tuple(own[np.argsort(order)] for own, order in zip(of_ids, self.order, strict=True))


@dataclass(frozen=True)
class Grid:
    """Rows of every mode dealt into stripes, which lie one after another in the order of rows."""

    shape: tuple[int, ...]
    side: int  # stripes per mode
    stripes: tuple[Codes, ...]  # per mode, the stripe of every id code
    order: tuple[Codes, ...]  # per mode, the row of every id code

    @classmethod
    def deal(cls, counts: tuple[Counts, ...], width: int) -> Grid:
        """Deal rows by the number of their observations; a packed row has ``width`` floats."""
        shape, n = tuple(map(len, counts)), int(counts[0].sum())
        side = _side(n, shape, width) if len(shape) == 2 else _tensor_side(n, shape)
        stripes, order = zip(*(_deal(count, side) for count in counts), strict=True)
        return cls(shape, side, stripes, order)

    def arrange(
        self, codes: tuple[Codes, ...], values: Floats, weight: Floats | None = None
    ) -> Blocks:
        """Put observations, all or those of some stripes, into the order of visits."""
        visit = np.arange(len(values), dtype=np.uint32)
        # By row of the modes in turn, then by block: sorts that keep the order before.
        by_length = np.argsort(self.shape, kind="stable").tolist()
        for mode in (1, 0) if len(self.shape) == 2 else by_length:
            visit = kernels.stable_sort(codes[mode], self.order[mode], visit)
        block = _block_of(codes, self.stripes, self.side)
        visit, starts = kernels.sort_by_block(block, self.side ** len(self.shape), visit)
        del block
        placed = tuple(o[c[visit]] for o, c in zip(self.order, codes, strict=True))
        worth = None if weight is None else weight[visit]
        return Blocks(placed, values[visit], starts, self.side, self.order, worth)


def arrange(
    codes: tuple[Codes, ...],
    values: Floats,
    shape: tuple[int, ...],
    width: int,
    weight: Floats | None = None,
) -> Blocks:
    """Deal observations into strata; ``width`` is the number of floats in a packed row."""
    counts = tuple(np.bincount(c, minlength=n) for c, n in zip(codes, shape, strict=True))
    return Grid.deal(counts, width).arrange(codes, values, weight)


def epoch(state: State, blocks: Blocks, params: Params, n_jobs: int) -> EpochInfo:
    """Visit every observation once, in an order of seed and epoch; report in standardised units."""
    if state.epoch == params.warmup:
        release_deviation(state, params)
    visit, codes, rows = _kernel(state, blocks)
    sums = np.zeros((len(blocks.starts) - 1, 2))
    workers, given = min(n_jobs, blocks.side), settings(params, state.epoch, state.variance)

    def work(stratum: int, worker: int) -> None:
        visit(
            stratum, worker, workers, blocks.side, blocks.starts, *codes, blocks.values,
            *rows, state.layout.mean, state.layout.deviation, *given, sums,
        )  # fmt: skip

    with pool(workers) as run:
        for stratum in strata_of(params, state.epoch, blocks.n_strata):
            run(partial(work, stratum), range(workers))
    if len(state.rows) > 3:
        for own, part in zip(state.rows, np.split(rows[0], rows[1][1:]), strict=True):
            own[:] = part
    for own in state.rows:
        tidy(own, params, len(state.rows))
    state.epoch, state.variance, info = reported(
        sums, len(blocks), params, state.epoch, state.variance, len(state.rows)
    )
    return info


def settings(params: Params, epoch: int, variance: float) -> tuple[Any, ...]:
    """Return what kernels are told: numbers, and whether the deviation is learned."""
    numbers = (
        params.learning_rate, params.deviation_learning_rate, params.l2, params.bias_l2,
        params.deviation_l1, params.delta, params.beta, variance,
    )  # fmt: skip
    return *map(np.float32, numbers), params.deviation_rank > 0 and epoch >= params.warmup


def strata_of(params: Params, epoch: int, n_strata: int) -> list[int]:
    """Return the order in which an epoch visits strata."""
    order = np.random.default_rng([params.seed, 2, epoch]).permutation(n_strata)
    return [int(stratum) for stratum in order]


def tidy(rows: Floats, params: Params, n_modes: int) -> None:
    """Set to zero, after an epoch, what should be: tiny factors of tensors, and unwanted biases."""
    if n_modes > 2:
        # A penalty may drive a factor of all modes to zero, by shares and never quite; products of
        # such small numbers leave the range in which a CPU is fast.
        factors = rows[:, LINE : params.layout.deviation_start]
        factors[np.abs(factors) < TINY] = 0.0
    if not params.biases:
        rows[:, BIAS] = 0.0  # their steps were nearly nothing, and should be nothing


def reported(
    sums: Array, n: int, params: Params, epoch: int, variance: float, n_modes: int
) -> tuple[int, float, EpochInfo]:
    """Return, from the sums of all blocks, the next epoch and its variance, and the report."""
    squared, scaled = (sums.sum(axis=0) / n).tolist()
    if not (params.deviation_rank > 0 and epoch >= params.warmup):
        # A tensor may fit all it was shown; what divides its steps must stay above the floor.
        variance = max(squared, LEAST_VARIANCE if n_modes == 2 else params.delta)
    if params.deviation_rank == 0:
        scaled = math.log(variance) + squared / variance
    nll = 0.5 * (math.log(2.0 * math.pi) + scaled)
    return epoch + 1, variance, EpochInfo(epoch + 1, math.sqrt(squared), nll)


def predict(
    state: State, codes: tuple[Codes, ...], params: Params, n_jobs: int
) -> tuple[Floats, Floats]:
    """Mean and variance of given cells, in standardised units."""
    mean, variance = np.empty((2, len(codes[0])), dtype=np.float32)
    learned = params.deviation_rank > 0 and state.epoch > params.warmup
    floor = np.float32(params.delta if learned else state.variance)
    widths = state.layout.mean, state.layout.deviation if learned else 0
    kernel = {2: kernels.predict, 3: tensor_kernels.predict_three}.get(len(codes))

    def work(part: slice) -> None:
        cells = tuple(c[part] for c in codes)
        if kernel is None:
            mean[part], variance[part] = _moments(cells, state.rows, *widths)
            variance[part] += floor
        else:
            kernel(*cells, *state.rows, *widths, floor, mean[part], variance[part])

    in_chunks(work, len(mean), MANY_CHUNK if kernel is None else CHUNK, n_jobs)
    return mean, variance


def in_chunks(work: Callable[[slice], None], n: int, size: int, n_jobs: int) -> None:
    """Call ``work`` for every chunk of n cells, on no more threads than there are chunks."""
    parts = chunks(n, size)
    with pool(max(1, min(n_jobs, len(parts)))) as run:
        run(work, parts)


def _kernel(
    state: State, blocks: Blocks
) -> tuple[Callable[..., None], tuple[Any, ...], tuple[Any, ...]]:
    """Return the kernel for so many modes, and codes and rows as it takes them; of many, copies."""
    if len(state.rows) <= 3:
        return kernel_of(state, blocks.codes, weight=blocks.weight)
    first = np.cumsum([0, *map(len, state.rows[:-1])])
    together = np.concatenate(state.rows), first
    return kernel_of(state, blocks.codes, *together, weight=blocks.weight)


def kernel_of(
    state: State, codes: tuple[Codes, ...], *together: Any, weight: Floats | None = None
) -> tuple[Callable[..., None], tuple[Any, ...], tuple[Any, ...]]:
    """Do the same; of more than three modes, rows are ``together``: all, and each mode's first."""
    if len(codes) == 2:
        per_row = True if state.layout.copies == 1 else None
        return partial(kernels.visit_two, per_row, weight), codes, state.rows
    if len(codes) == 3:
        return partial(tensor_kernels.visit_three, weight), codes, state.rows
    return partial(tensor_kernels.visit_many, weight), (np.stack(codes),), together


def _moments(
    codes: tuple[Codes, ...], rows: tuple[Floats, ...], n_mean: int, n_deviation: int
) -> tuple[Floats, Floats]:
    """Mean of cells of any number of modes, and what their variance has above its floor."""
    used = slice(LINE, LINE + n_mean + n_deviation)
    product: Any = np.float32(1.0)
    biases: Any = np.float32(0.0)
    for own, code in zip(rows, codes, strict=True):
        product = product * own[code, used]
        biases = biases + own[code, BIAS]
    return biases + product[:, :n_mean].sum(axis=1), product[:, n_mean:].sum(axis=1)


def _side(n: int, shape: tuple[int, ...], width: int) -> int:
    """Stripes per mode: small enough for the cache, large enough to keep blocks worth a visit."""
    by_cache = min(shape) * width * 4 // STRIPE_BYTES
    by_size = int((n / MIN_BLOCK) ** 0.5)
    side = min(max(by_cache, COMFORTABLE_SIDE), by_size, MAX_SIDE)
    return max(1, min(max(side, MIN_SIDE), *shape))


def _tensor_side(n: int, shape: tuple[int, ...]) -> int:
    """Stripes per mode of a tensor: few, as strata multiply and each visits the longest mode."""
    per_stripe = 1.0 / (len(shape) - 1)
    side = max(MIN_SIDE, (n / LARGE_STRATUM) ** per_stripe)
    return max(1, int(min(side, (n / MIN_STRATUM) ** per_stripe, *shape)))


def _deal(counts: Counts, side: int) -> tuple[Codes, Codes]:
    """Deal rows, busiest first and to and fro: the stripe of every code, and its place in order."""
    busiest_first, n = np.argsort(-counts, kind="stable"), len(counts)
    turn = np.arange(n, dtype=np.int32) % (2 * side)
    stripe = np.empty(n, dtype=np.int32)
    stripe[busiest_first] = np.minimum(turn, 2 * side - 1 - turn)
    order = np.empty(n, dtype=np.int32)
    order[np.argsort(stripe, kind="stable")] = np.arange(n, dtype=np.int32)
    return stripe, order


def _block_of(codes: tuple[Codes, ...], stripes: tuple[Codes, ...], side: int) -> Codes:
    """Return the block of every observation."""
    first = stripes[0][codes[0]]
    block: Any = 0
    for code, stripe in zip(codes[1:], stripes[1:], strict=True):
        block = (block + (stripe[code] - first) % side) * side
    block += first
    return np.asarray(block)
