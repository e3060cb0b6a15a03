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

from noisewise.engine.arrays import Codes, Floats, Values
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

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_strata(self) -> int:
        """How many strata there are."""
        return (len(self.starts) - 1) // self.side

    def placed(self, of_ids: tuple[Values, ...]) -> tuple[Values, ...]:
        """Return arrays that have an entry for every id code in the order of the rows."""
        return tuple(own[np.argsort(order)] for own, order in zip(of_ids, self.order, strict=True))


def arrange(codes: tuple[Codes, ...], values: Floats, shape: tuple[int, ...], width: int) -> Blocks:
    """Deal observations into strata; ``width`` is the number of floats in a packed row."""
    side = _side(len(values), shape, width) if len(shape) == 2 else _tensor_side(len(values), shape)
    dealt = [_deal(c, n, side) for c, n in zip(codes, shape, strict=True)]
    stripes, order = zip(*dealt, strict=True)
    visit = np.arange(len(values), dtype=np.uint32)
    # By row of the modes in turn, then by block: sorts that keep the order before.
    modes = (1, 0) if len(shape) == 2 else np.argsort(shape, kind="stable").tolist()
    for mode in modes:
        visit = kernels.stable_sort(codes[mode], order[mode], visit)
    block = _block_of(codes, stripes, side)
    visit, starts = kernels.sort_by_block(block, side ** len(shape), visit)
    del block
    placed = tuple(o[c[visit]] for o, c in zip(order, codes, strict=True))
    return Blocks(placed, values[visit], starts, side, order)


def epoch(state: State, blocks: Blocks, params: Params, n_jobs: int) -> EpochInfo:
    """Visit every observation once, in an order of seed and epoch; report in standardised units."""
    if state.epoch == params.warmup:
        release_deviation(state, params)
    learn_deviation = params.deviation_rank > 0 and state.epoch >= params.warmup
    settings = [
        np.float32(setting)
        for setting in (
            params.learning_rate, params.deviation_learning_rate, params.l2, params.bias_l2,
            params.deviation_l1, params.delta, params.beta, state.variance,
        )
    ]  # fmt: skip
    visit, codes, rows = _kernel(state, blocks)
    sums = np.zeros((len(blocks.starts) - 1, 2))
    workers = min(n_jobs, blocks.side)

    def work(stratum: int, worker: int) -> None:
        visit(
            stratum, worker, workers, blocks.side, blocks.starts, *codes, blocks.values,
            *rows, state.layout.mean, state.layout.deviation,
            *settings, learn_deviation, sums,
        )  # fmt: skip

    strata = np.random.default_rng([params.seed, 2, state.epoch]).permutation(blocks.n_strata)
    with pool(workers) as run:
        for stratum in strata.tolist():
            run(partial(work, stratum), range(workers))
    if len(state.rows) > 3:
        for own, part in zip(state.rows, np.split(rows[0], rows[1][1:]), strict=True):
            own[:] = part
    if len(state.rows) > 2:
        # A penalty may drive a factor of all modes to zero, by shares and never quite; products of
        # such small numbers leave the range in which a CPU is fast.
        for own in state.rows:
            factors = own[:, LINE : state.layout.deviation_start]
            factors[np.abs(factors) < TINY] = 0.0
    if not params.biases:
        for own in state.rows:
            own[:, BIAS] = 0.0  # their steps were nearly nothing, and should be nothing
    squared, scaled = (sums.sum(axis=0) / len(blocks)).tolist()
    state.epoch += 1
    if not learn_deviation:
        # A tensor may fit all it was shown; what divides its steps must stay above the floor.
        floor = LEAST_VARIANCE if len(state.rows) == 2 else params.delta
        state.variance = max(squared, floor)
    if params.deviation_rank == 0:
        scaled = math.log(state.variance) + squared / state.variance
    return EpochInfo(state.epoch, math.sqrt(squared), 0.5 * (math.log(2.0 * math.pi) + scaled))


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
    if len(state.rows) == 2:
        per_row = True if state.layout.copies == 1 else None
        return partial(kernels.visit_two, per_row), blocks.codes, state.rows
    if len(state.rows) == 3:
        return tensor_kernels.visit_three, blocks.codes, state.rows
    first = np.cumsum([0, *map(len, state.rows[:-1])])
    together = np.concatenate(state.rows), first
    return tensor_kernels.visit_many, (np.stack(blocks.codes),), together


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


def _deal(codes: Codes, n: int, side: int) -> tuple[Codes, Codes]:
    """Deal rows, busiest first and to and fro: the stripe of every code, and its place in order."""
    busiest_first = np.argsort(-np.bincount(codes, minlength=n), kind="stable")
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
