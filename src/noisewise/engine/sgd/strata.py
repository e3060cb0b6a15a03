"""The kernels on the CPU: numba over fixed block strata.

Rows of every mode are dealt into stripes of equal weight; a block is where stripes of all modes
meet. The blocks of one stratum share no row in any mode, so threads work on them without locks, and
the result has the same bits for any number of threads. Inside a block, observations are sorted by
the first mode (of a tensor, by the longest), in two halves that take turns: two rows of it stay in
the nearest cache while rows of the others pass by, and the kernel works on two observations at
once.

With S stripes in each of N modes there are S ** (N - 1) strata of S blocks: the stripe of the first
mode counts the blocks of a stratum, and how far ahead of it the other stripes are tells which
stratum a block is in. All rows are written, so the shortest mode limits S, and with it the threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Codes, Floats
from noisewise.engine.sgd import kernels, tensor_kernels
from noisewise.engine.sgd.layout import BIAS, LINE, Params, State, release_deviation
from noisewise.engine.threads import chunks, pool
from noisewise.engine.training import EpochInfo

STRIPE_BYTES = 512 * 1024  # a stripe of the second mode must stay in the second cache
MIN_BLOCK = 1_000  # observations in a block, below which a finer grid costs more than it gives
MIN_SIDE, COMFORTABLE_SIDE, MAX_SIDE = 4, 8, 256  # as many threads have work; more, more waiting
MIN_STRATUM, LARGE_STRATUM = 1_000, 100_000  # of tensors: fewer observations, more waiting
CHUNK = 65_536  # observations predicted by one task
MANY_CHUNK = 4_096  # of more than three modes
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
        Stripes per mode; as many blocks in a stratum.
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

    @property
    def n_strata(self) -> int:
        """How many strata there are."""
        return (len(self.starts) - 1) // self.side


def arrange(codes: tuple[Codes, ...], values: Floats, shape: tuple[int, ...], width: int) -> Blocks:
    """Deal observations into strata; ``width`` is the number of floats in a packed row."""
    side = _side(len(values), shape, width) if len(shape) == 2 else _tensor_side(len(values), shape)
    dealt = [_deal(c, n, side) for c, n in zip(codes, shape, strict=True)]
    stripes, order = [d.stripe for d in dealt], tuple(d.order for d in dealt)
    visit = np.arange(len(values), dtype=np.uint32)
    # By row of the modes in turn, then by block: sorts that keep the order before.
    modes = (1, 0) if len(shape) == 2 else np.argsort(shape, kind="stable").tolist()
    for mode in modes:
        visit = kernels.stable_sort(codes[mode], order[mode], visit)
    if len(shape) == 2:
        visit, starts = kernels.sort_by_block(*codes, *stripes, side, visit)
    else:
        visit, starts = _sorted_by_block(codes, stripes, side, visit)
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
    visit, codes, rows = _kernel(state, blocks, params)
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
        for own in state.rows:
            tensor_kernels.flush(own, state.layout.mean)
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
    state: State, blocks: Blocks, params: Params
) -> tuple[Callable[..., None], tuple[Any, ...], tuple[Any, ...]]:
    """Return the kernel for so many modes, and codes and rows as it takes them.

    That of many modes works on a copy, in which the rows of all modes stand together.
    """
    n_modes = len(state.rows)
    if n_modes > 3:
        first = np.cumsum([0, *map(len, state.rows[:-1])])
        return (
            tensor_kernels.visit_many,
            (np.stack(blocks.codes),),
            (np.concatenate(state.rows), first),
        )
    if n_modes == 3:
        return tensor_kernels.visit_three, blocks.codes, state.rows
    visit = kernels.visit_coordinate if params.adagrad == "coordinate" else kernels.visit_row
    return visit, blocks.codes, state.rows


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


def _sorted_by_block(
    codes: tuple[Codes, ...], stripes: list[Codes], side: int, visit: npt.NDArray[np.uint32]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Do for any number of modes what ``kernels.sort_by_block`` does for two."""
    first = stripes[0][codes[0]]
    block = np.zeros_like(first)
    for code, stripe in zip(codes[1:], stripes[1:], strict=True):
        block *= side
        block += (stripe[code] - first) % side
    block *= side
    block += first
    n_blocks = side ** len(codes)
    starts = np.append(0, np.cumsum(np.bincount(block, minlength=n_blocks)))
    visit = kernels.stable_sort(block, np.arange(n_blocks, dtype=np.int32), visit)
    return tensor_kernels.halves_in_turn(starts, visit), starts
