"""The matrix kernel on the CPU: numba over fixed block strata.

Rows of both modes are dealt into stripes of equal weight; a block is where two stripes meet. The
blocks of one stratum share no row in any mode, so threads work on them without locks, and the
result has the same bits for any number of threads. Inside a block, observations are sorted by the
first mode, in two halves that take turns: two rows of it stay in the nearest cache while rows of
the second pass by, and the kernel works on two observations at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine import kernels
from noisewise.engine.state import Codes, EpochInfo, Floats, Params, State, release_deviation

STRIPE_BYTES = 512 * 1024  # a stripe of the second mode must stay in the second cache
MIN_BLOCK = 1_000  # observations in a block, below which a finer grid costs more than it gives
MIN_SIDE, COMFORTABLE_SIDE, MAX_SIDE = 4, 8, 256  # as many threads have work; more, more waiting
CHUNK = 65_536  # observations predicted by one task
LEAST_VARIANCE = 1e-6  # of residuals: values that are all alike must not divide by zero


@dataclass(frozen=True)
class Blocks:
    """Observations in the order in which the kernel visits them.

    Attributes
    ----------
    codes, values
        Row of each mode in the engine's own numbering, and the value, block after block.
    starts
        Block ``stratum * side + k`` is ``starts[block]:starts[block + 1]``.
    side
        Stripes per mode; as many strata, and as many blocks in a stratum.
    order
        Per mode, the engine's row of every id code.
    """

    codes: tuple[Codes, ...]
    values: Floats
    starts: npt.NDArray[np.int64]
    side: int
    order: tuple[Codes, ...]

    def __len__(self) -> int:
        return len(self.values)


def arrange(codes: tuple[Codes, ...], values: Floats, shape: tuple[int, ...], width: int) -> Blocks:
    """Deal observations into strata; ``width`` is the number of floats in a packed row."""
    side = _side(len(values), shape, width)
    dealt = [_deal(c, n, side) for c, n in zip(codes, shape, strict=True)]
    stripes, order = [d.stripe for d in dealt], tuple(d.order for d in dealt)
    visit = np.arange(len(values), dtype=np.uint32)
    for mode in (1, 0):  # by column, then by row, then by block: sorts that keep the order before
        visit = kernels.stable_sort(codes[mode], order[mode], visit)
    visit, starts = kernels.sort_by_block(*codes, *stripes, side, visit)
    placed = tuple(o[c[visit]] for o, c in zip(order, codes, strict=True))
    return Blocks(placed, values[visit], starts, side, order)


def epoch(state: State, blocks: Blocks, params: Params, n_jobs: int) -> EpochInfo:
    """Visit every observation once; the order comes from the seed and the number of the epoch.

    The report is in standardised units.
    """
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
    visit = kernels.visit_coordinate if params.adagrad == "coordinate" else kernels.visit_row
    sums = np.zeros((blocks.side**2, 2))

    def work(stratum: int, worker: int, workers: int) -> None:
        visit(
            stratum, worker, workers, blocks.side, blocks.starts, *blocks.codes, blocks.values,
            *state.rows, state.layout.mean, state.layout.deviation,
            *settings, learn_deviation, sums,
        )  # fmt: skip

    strata = np.random.default_rng([params.seed, 2, state.epoch]).permutation(blocks.side)
    _in_parallel(work, strata.tolist(), min(n_jobs, blocks.side))
    squared, scaled = (sums.sum(axis=0) / len(blocks)).tolist()
    state.epoch += 1
    if not learn_deviation:
        state.variance = max(squared, LEAST_VARIANCE)
    if params.deviation_rank == 0:
        scaled = math.log(state.variance) + 1.0
    return EpochInfo(state.epoch, math.sqrt(squared), 0.5 * (math.log(2.0 * math.pi) + scaled))


def predict(
    state: State, codes: tuple[Codes, ...], params: Params, n_jobs: int
) -> tuple[Floats, Floats]:
    """Mean and variance of given cells, in standardised units."""
    mean, variance = np.empty((2, len(codes[0])), dtype=np.float32)
    learned = params.deviation_rank > 0 and state.epoch > params.warmup
    floor = np.float32(params.delta if learned else state.variance)
    n_deviation = state.layout.deviation if learned else 0
    chunks = -(-len(mean) // CHUNK)

    def work(_: int, worker: int, workers: int) -> None:
        for chunk in range(worker, chunks, workers):
            part = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
            cells = (c[part] for c in codes)
            kernels.predict(
                *cells,
                *state.rows,
                state.layout.mean,
                n_deviation,
                floor,
                mean[part],
                variance[part],
            )

    _in_parallel(work, [0], max(1, min(n_jobs, chunks)))
    return mean, variance


def _in_parallel(work: Callable[[int, int, int], None], rounds: list[int], workers: int) -> None:
    """Call ``work(round, worker, workers)`` for every worker, one round after the other."""
    if workers == 1:
        for k in rounds:
            work(k, 0, 1)
        return
    with ThreadPoolExecutor(workers) as pool:
        for k in rounds:
            for done in [pool.submit(work, k, w, workers) for w in range(workers)]:
                done.result()


def _side(n: int, shape: tuple[int, ...], width: int) -> int:
    """Stripes per mode: small enough for the cache, large enough to keep blocks worth a visit."""
    by_cache = min(shape) * width * 4 // STRIPE_BYTES
    by_size = int((n / MIN_BLOCK) ** 0.5)
    side = min(max(by_cache, COMFORTABLE_SIDE), by_size, MAX_SIDE)
    return max(1, min(max(side, MIN_SIDE), *shape))


class _Dealt(NamedTuple):
    stripe: Codes  # of every code
    order: Codes  # place of every code when rows are laid stripe after stripe


def _deal(codes: Codes, n: int, side: int) -> _Dealt:
    """Deal n rows into stripes, busiest first and to and fro, so that stripes weigh the same."""
    busiest_first = np.argsort(-np.bincount(codes, minlength=n), kind="stable")
    turn = np.arange(n, dtype=np.int32) % (2 * side)
    stripe = np.empty(n, dtype=np.int32)
    stripe[busiest_first] = np.minimum(turn, 2 * side - 1 - turn)
    order = np.empty(n, dtype=np.int32)
    order[np.argsort(stripe, kind="stable")] = np.arange(n, dtype=np.int32)
    return _Dealt(stripe, order)
