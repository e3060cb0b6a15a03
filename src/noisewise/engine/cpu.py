"""The matrix kernel on the CPU: numba over fixed block strata.

Rows of both modes are dealt into stripes of equal weight; a block is where two stripes meet. The
blocks of one stratum share no row in any mode, so threads work on them without locks, and the
result has the same bits for any number of threads. Inside a block, observations are sorted by the
first mode: that row stays in the nearest cache while rows of the second pass by.

The kernels index with unsigned integers throughout: signed ones may be negative, which keeps numba
from vectorising, and slices are reference-counted inside the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from noisewise.engine.state import (
    BIAS,
    BIAS_SUM,
    DEVIATION_SUM,
    LINE,
    MEAN_SUM,
    SHARE,
    Codes,
    EpochInfo,
    Floats,
    Params,
    State,
    release_deviation,
)

STRIPE_BYTES = 512 * 1024  # a stripe of the second mode must stay in the second cache
MIN_BLOCK = 1_000  # observations in a block, below which a finer grid costs more than it gives
MIN_SIDE, MAX_SIDE = 4, 256
CHUNK = 65_536  # observations predicted by one task

_HEADER, _BIAS, _BIAS_SUM, _MEAN_SUM, _DEVIATION_SUM, _SHARE = (
    np.uintp(k) for k in (LINE, BIAS, BIAS_SUM, MEAN_SUM, DEVIATION_SUM, SHARE)
)
_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)
_FARTHEST = np.float32(50.0)  # squared error over variance, as far as a deviation step believes it
_TINY = np.float32(1e-8)  # smaller deviation factors are zero: subnormal numbers are slow


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
    (stripe, order), (stripe2, order2) = (
        _deal(c, n, side) for c, n in zip(codes, shape, strict=True)
    )
    block = (stripe2[codes[1]] - stripe[codes[0]]) % side * side + stripe[codes[0]]
    starts = np.zeros(side * side + 1, dtype=np.int64)
    np.cumsum(np.bincount(block, minlength=side * side), out=starts[1:])
    key = block * (shape[0] * shape[1])
    del block
    key += order[codes[0]].astype(np.int64) * shape[1]
    key += order2[codes[1]]
    visit = np.argsort(key)
    del key
    engine_codes = (order[codes[0]][visit], order2[codes[1]][visit])
    return Blocks(engine_codes, values[visit], starts, side, (order, order2))


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
    kernel = _visit_coordinate if params.adagrad == "coordinate" else _visit_row
    sums = np.zeros((blocks.side**2, 2))

    def work(stratum: int, worker: int, workers: int) -> None:
        kernel(
            stratum, worker, workers, blocks.side, blocks.starts, *blocks.codes, blocks.values,
            *state.rows, state.layout.mean, state.layout.deviation, *settings, learn_deviation, sums,
        )  # fmt: skip

    strata = np.random.default_rng([params.seed, 2, state.epoch]).permutation(blocks.side)
    _in_parallel(work, strata.tolist(), min(n_jobs, blocks.side))
    squared, scaled = (sums.sum(axis=0) / len(blocks)).tolist()
    state.epoch += 1
    if not learn_deviation:
        state.variance = squared
    if params.deviation_rank == 0:
        scaled = math.log(squared) + 1.0 if squared > 0.0 else -math.inf
    return EpochInfo(state.epoch, math.sqrt(squared), 0.5 * (math.log(2.0 * math.pi) + scaled))


def predict(
    state: State, codes: tuple[Codes, ...], params: Params, n_jobs: int
) -> tuple[Floats, Floats]:
    """Mean and variance of given cells, in standardised units."""
    mean, variance = np.empty((2, len(codes[0])), dtype=np.float32)
    learned = params.deviation_rank > 0 and state.epoch > params.warmup
    floor = np.float32(params.delta if learned else state.variance)
    layout = state.layout
    chunks = -(-len(mean) // CHUNK)

    def work(_: int, worker: int, workers: int) -> None:
        for chunk in range(worker, chunks, workers):
            part = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
            cells = (c[part] for c in codes)
            _predict(
                *cells,
                *state.rows,
                layout.mean,
                layout.deviation,
                floor,
                mean[part],
                variance[part],
            )

    _in_parallel(work, range(1), max(1, min(n_jobs, chunks)))
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
    side = min(max(by_cache, 16), by_size, MAX_SIDE)
    return max(1, min(max(side, MIN_SIDE), *shape))


def _deal(codes: Codes, n: int, side: int) -> tuple[npt.NDArray[np.int64], Codes]:
    """Deal n rows into stripes, busiest first and to and fro, so that stripes weigh the same.

    Returns the stripe of every code, and its place when rows are laid stripe after stripe.
    """
    busiest_first = np.argsort(-np.bincount(codes, minlength=n), kind="stable")
    turn = np.arange(n) % (2 * side)
    stripe = np.empty(n, dtype=np.int64)
    stripe[busiest_first] = np.minimum(turn, 2 * side - 1 - turn)
    order = np.empty(n, dtype=np.int32)
    order[np.argsort(stripe, kind="stable")] = np.arange(n, dtype=np.int32)
    return stripe, order


# The kernels. e: error; s: variance; g, h: minus the gradient of the weighted likelihood by the
# mean, and its gradient by the variance. Every term of the likelihood is weighted by s ** beta.


@njit(fastmath=True, error_model="numpy", inline="always")
def _gradients(e, s, beta):
    log_s = np.log(s)
    weight = np.exp(beta * log_s) if beta > _ZERO else _ONE
    scaled = e * e / s
    g = weight * e / s
    h = weight * _HALF * (_ONE - min(scaled, _FARTHEST)) / s
    return g, h, log_s + scaled


@njit(fastmath=True, error_model="numpy", nogil=True, cache=True)
def _visit_coordinate(
    stratum, worker, workers, side, starts, row, column, value, A, B, n_mean, n_deviation,
    rate, deviation_rate, l2, bias_l2, l1, delta, beta, variance, learn_deviation, sums,
):  # fmt: skip
    """One worker's blocks of a stratum; AdaGrad with a sum per coordinate."""
    D, K = np.uintp(n_mean), np.uintp(n_deviation)
    p0 = _HEADER + D
    u_sum = p0 + K
    p_sum = u_sum + D
    for block in range(stratum * side + worker, (stratum + 1) * side, workers):
        squared, likelihood = 0.0, 0.0
        for n in range(starts[block], starts[block + 1]):
            i, j = np.uintp(row[n]), np.uintp(column[n])
            mean = A[i, _BIAS] + B[j, _BIAS]
            for d in range(D):
                mean += A[i, _HEADER + d] * B[j, _HEADER + d]
            s = variance
            if learn_deviation:
                s = delta
                for k in range(K):
                    s += A[i, p0 + k] * B[j, p0 + k]
            e = value[n] - mean
            g, h, loss = _gradients(e, s, beta)
            squared += e * e
            likelihood += loss

            l2_i, l2_j = l2 * A[i, _SHARE], l2 * B[j, _SHARE]
            for d in range(D):
                u, v = A[i, _HEADER + d], B[j, _HEADER + d]
                du, dv = l2_i * u - g * v, l2_j * v - g * u
                x, y = A[i, u_sum + d] + du * du, B[j, u_sum + d] + dv * dv
                A[i, u_sum + d], B[j, u_sum + d] = x, y
                A[i, _HEADER + d] = u - rate * du * (_ONE / np.sqrt(x))
                B[j, _HEADER + d] = v - rate * dv * (_ONE / np.sqrt(y))
            _step_biases(A, B, i, j, g, rate, bias_l2)
            if learn_deviation:
                l1_i, l1_j = l1 * A[i, _SHARE], l1 * B[j, _SHARE]
                for k in range(K):
                    p, q = A[i, p0 + k], B[j, p0 + k]
                    dp, dq = h * q + l1_i, h * p + l1_j
                    x, y = A[i, p_sum + k] + dp * dp, B[j, p_sum + k] + dq * dq
                    A[i, p_sum + k], B[j, p_sum + k] = x, y
                    p -= deviation_rate * dp * (_ONE / np.sqrt(x))
                    q -= deviation_rate * dq * (_ONE / np.sqrt(y))
                    A[i, p0 + k] = p if p > _TINY else _ZERO
                    B[j, p0 + k] = q if q > _TINY else _ZERO
        sums[block, 0], sums[block, 1] = squared, likelihood


@njit(fastmath=True, error_model="numpy", nogil=True, cache=True)
def _visit_row(
    stratum, worker, workers, side, starts, row, column, value, A, B, n_mean, n_deviation,
    rate, deviation_rate, l2, bias_l2, l1, delta, beta, variance, learn_deviation, sums,
):  # fmt: skip
    """One worker's blocks of a stratum; AdaGrad with one sum per row, of the mean square."""
    D, K = np.uintp(n_mean), np.uintp(n_deviation)
    p0 = _HEADER + D
    per_mean, per_deviation = (
        np.float32(1.0 / max(n_mean, 1)),
        np.float32(1.0 / max(n_deviation, 1)),
    )
    for block in range(stratum * side + worker, (stratum + 1) * side, workers):
        squared, likelihood = 0.0, 0.0
        for n in range(starts[block], starts[block + 1]):
            i, j = np.uintp(row[n]), np.uintp(column[n])
            mean = A[i, _BIAS] + B[j, _BIAS]
            for d in range(D):
                mean += A[i, _HEADER + d] * B[j, _HEADER + d]
            s = variance
            if learn_deviation:
                s = delta
                for k in range(K):
                    s += A[i, p0 + k] * B[j, p0 + k]
            e = value[n] - mean
            g, h, loss = _gradients(e, s, beta)
            squared += e * e
            likelihood += loss

            l2_i, l2_j = l2 * A[i, _SHARE], l2 * B[j, _SHARE]
            rate_i = rate / np.sqrt(A[i, _MEAN_SUM])
            rate_j = rate / np.sqrt(B[j, _MEAN_SUM])
            x, y = _ZERO, _ZERO
            for d in range(D):
                u, v = A[i, _HEADER + d], B[j, _HEADER + d]
                du, dv = l2_i * u - g * v, l2_j * v - g * u
                x += du * du
                y += dv * dv
                A[i, _HEADER + d] = u - rate_i * du
                B[j, _HEADER + d] = v - rate_j * dv
            A[i, _MEAN_SUM] += x * per_mean
            B[j, _MEAN_SUM] += y * per_mean
            _step_biases(A, B, i, j, g, rate, bias_l2)
            if learn_deviation:
                l1_i, l1_j = l1 * A[i, _SHARE], l1 * B[j, _SHARE]
                rate_i = deviation_rate / np.sqrt(A[i, _DEVIATION_SUM])
                rate_j = deviation_rate / np.sqrt(B[j, _DEVIATION_SUM])
                x, y = _ZERO, _ZERO
                for k in range(K):
                    p, q = A[i, p0 + k], B[j, p0 + k]
                    dp, dq = h * q + l1_i, h * p + l1_j
                    x += dp * dp
                    y += dq * dq
                    p -= rate_i * dp
                    q -= rate_j * dq
                    A[i, p0 + k] = p if p > _TINY else _ZERO
                    B[j, p0 + k] = q if q > _TINY else _ZERO
                A[i, _DEVIATION_SUM] += x * per_deviation
                B[j, _DEVIATION_SUM] += y * per_deviation
        sums[block, 0], sums[block, 1] = squared, likelihood


@njit(fastmath=True, error_model="numpy", inline="always")
def _step_biases(A, B, i, j, g, rate, l2):
    du = l2 * A[i, _SHARE] * A[i, _BIAS] - g
    dv = l2 * B[j, _SHARE] * B[j, _BIAS] - g
    A[i, _BIAS_SUM] += du * du
    B[j, _BIAS_SUM] += dv * dv
    A[i, _BIAS] -= rate * du / np.sqrt(A[i, _BIAS_SUM])
    B[j, _BIAS] -= rate * dv / np.sqrt(B[j, _BIAS_SUM])


@njit(fastmath=True, error_model="numpy", nogil=True, cache=True)
def _predict(row, column, A, B, n_mean, n_deviation, floor, mean, variance):
    D, K = np.uintp(n_mean), np.uintp(n_deviation)
    p0 = _HEADER + D
    for n in range(len(row)):
        i, j = np.uintp(row[n]), np.uintp(column[n])
        m, s = A[i, _BIAS] + B[j, _BIAS], floor
        for d in range(D):
            m += A[i, _HEADER + d] * B[j, _HEADER + d]
        for k in range(K):
            s += A[i, p0 + k] * B[j, p0 + k]
        mean[n] = m
        variance[n] = s
