"""The hot loops, on plain arrays and in the paper's letters.

``A`` and ``B`` are the packed rows of two modes (see ``layout``): U and V are their mean factors, P
and Q their deviation factors. For one observation, ``e`` is its error, ``s`` its variance, ``g``
and ``h`` are what ``reference`` has. Observations are visited in pairs, unless two share a row:
first the errors of both, then the steps of both, so that the CPU need not wait for the one error
before it starts on the other.

All indices are unsigned: a signed one may be negative, which is checked every time. There are no
slices, and no functions of arrays with branches: they would be reference-counted, with a lock, for
every observation.
"""

import numpy as np
from numba import njit

from noisewise.engine.sgd.layout import BIAS, BIAS_SUM, DEVIATION_SUM, LINE, MEAN_SUM, SHARE
from noisewise.engine.sgd.vectors import (
    CACHE,
    STEP,
    inverse_root,
    load,
    positive,
    store,
    total,
    zeros,
)

HEADER, AT_BIAS, AT_BIAS_SUM, AT_MEAN_SUM, AT_DEVIATION_SUM, AT_SHARE = (
    np.uintp(k) for k in (LINE, BIAS, BIAS_SUM, MEAN_SUM, DEVIATION_SUM, SHARE)
)
WIDTH, NEXT = np.uintp(STEP), np.uintp(1)
ZERO, QUARTER, HALF, ONE, TWO = (np.float32(x) for x in (0.0, 0.25, 0.5, 1.0, 2.0))
FARTHEST = np.float32(50.0)  # squared error over variance, as far as a deviation step believes it


@njit(fastmath=True, error_model="numpy", inline="always")
def weight_of(s, beta):
    """Return ``s ** beta``; roots are much cheaper than the power."""
    if beta == ZERO:
        return ONE
    if beta == QUARTER:
        return np.sqrt(np.sqrt(s))
    if beta == HALF:
        return np.sqrt(s)
    return s**beta


@njit(fastmath=True, error_model="numpy", inline="always")
def pulls(e, s, beta):
    """Return g, h and the squared error over the variance."""
    precision = ONE / s
    ratio = e * e * precision
    weight = weight_of(s, beta) * precision
    return weight * e, weight * HALF * (ONE - min(ratio, FARTHEST)), ratio


@njit(fastmath=True, error_model="numpy", inline="always")
def log_product(log_variance, product, s):
    """Multiply variances, and take one logarithm of many: the sum so far, and what is left."""
    product *= s
    if product < 1e-200 or product > 1e200:
        log_variance += np.log(product)
        product = 1.0
    return log_variance, product


@njit(fastmath=True, error_model="numpy", inline="always")
def step_bias(A, i, g, rate, l2):
    """Change the bias of a row."""
    slope = l2 * A[i, AT_SHARE] * A[i, AT_BIAS] - g
    A[i, AT_BIAS_SUM] += slope * slope
    A[i, AT_BIAS] -= rate * slope / np.sqrt(A[i, AT_BIAS_SUM])


@njit(fastmath=True, error_model="numpy", inline="always")
def adagrad(A, i, d, slope, rate):
    """Add a squared gradient to its sums, which stand at column d, and return the step."""
    squares = load(A, i, d) + slope * slope
    store(A, i, d, squares)
    return rate * slope * inverse_root(squares)


@njit(fastmath=True, error_model="numpy", inline="always")
def report(sums, block, starts, squared, scaled, log_variance, product, variance, learn):
    """Write down what a block adds to squared error and likelihood."""
    if not learn:
        scaled = squared / variance
        log_variance = np.log(variance) * (starts[block + 1] - starts[block])
    sums[block, 0], sums[block, 1] = squared, scaled + log_variance + np.log(product)


@njit(fastmath=True, error_model="numpy", inline="always")
def _dot(A, i, B, j, start, end):
    uv = zeros()
    for d in range(start, end, WIDTH):
        uv += load(A, i, d) * load(B, j, d)
    return total(uv)


@njit(fastmath=True, error_model="numpy", nogil=True, cache=CACHE)
def visit_two(
    per_row, weight, stratum, worker, workers, side, starts, row, column, value, A, B, n_mean,
    n_deviation, rate, deviation_rate, l2, bias_l2, l1, delta, beta, variance, learn, sums,
):  # fmt: skip
    """One worker's blocks of a stratum.

    AdaGrad has a sum per coordinate if ``per_row`` is None, which numba compiles on its own and
    without the other branches. Else it has one per row, of the mean square. For the mean that
    follows from |U|², |V|² and U.V, which come with the error: the step then has no sums to wait
    for. For the deviation, whose step is longer, it is summed on the way. ``weight`` divides the
    variance of every observation, if it is not None.
    """
    p0 = HEADER + np.uintp(n_mean)
    end = p0 + np.uintp(n_deviation)
    to_sum = end - HEADER  # from a factor to its sum
    per_mean = np.float32(1.0 / max(n_mean, 1))
    per_deviation = np.float32(1.0 / max(n_deviation, 1))
    G, H, UV, UU, VV = np.empty((5, 2), np.float32)
    constant = weight_of(variance, beta) / variance
    for block in range(stratum * side + worker, (stratum + 1) * side, workers):
        squared, scaled, log_variance, product = 0.0, 0.0, 0.0, 1.0
        n, last = np.uintp(starts[block]), np.uintp(starts[block + 1])
        while n < last:
            after = n + NEXT
            if after < last and row[after] != row[n] and column[after] != column[n]:
                after += NEXT
            for m in range(n, after):
                i, j = np.uintp(row[m]), np.uintp(column[m])
                if per_row is not None:
                    uv, uu, vv = zeros(), zeros(), zeros()
                    for d in range(HEADER, p0, WIDTH):
                        u, v = load(A, i, d), load(B, j, d)
                        uv += u * v
                        uu += u * u
                        vv += v * v
                    UV[m - n], UU[m - n], VV[m - n] = total(uv), total(uu), total(vv)
                    e = value[m] - (A[i, AT_BIAS] + B[j, AT_BIAS] + UV[m - n])
                else:
                    e = value[m] - (A[i, AT_BIAS] + B[j, AT_BIAS] + _dot(A, i, B, j, HEADER, p0))
                if weight is not None:  # errors in units of an observation of weight 1
                    e *= np.sqrt(weight[m])
                squared += e * e
                G[m - n] = constant * e
                if learn:
                    s = delta + _dot(A, i, B, j, p0, end)
                    G[m - n], H[m - n], ratio = pulls(e, s, beta)
                    scaled += ratio
                    log_variance, product = log_product(log_variance, product, s)
                if weight is not None:  # and what they pull the mean by
                    G[m - n] *= np.sqrt(weight[m])

            for m in range(n, after):
                i, j, g, h = np.uintp(row[m]), np.uintp(column[m]), G[m - n], H[m - n]
                a, b = l2 * A[i, AT_SHARE], l2 * B[j, AT_SHARE]
                if per_row is not None:
                    rate_i = rate / np.sqrt(A[i, AT_MEAN_SUM])
                    rate_j = rate / np.sqrt(B[j, AT_MEAN_SUM])
                    keep_i, keep_j = ONE - rate_i * a, ONE - rate_j * b
                    pull_i, pull_j = rate_i * g, rate_j * g
                    for d in range(HEADER, p0, WIDTH):
                        u, v = load(A, i, d), load(B, j, d)
                        store(A, i, d, keep_i * u + pull_i * v)
                        store(B, j, d, keep_j * v + pull_j * u)
                    u_u, u_v, v_v = UU[m - n], UV[m - n], VV[m - n]
                    A[i, AT_MEAN_SUM] += per_mean * (a * a * u_u - TWO * a * g * u_v + g * g * v_v)
                    B[j, AT_MEAN_SUM] += per_mean * (b * b * v_v - TWO * b * g * u_v + g * g * u_u)
                else:
                    for d in range(HEADER, p0, WIDTH):
                        u, v = load(A, i, d), load(B, j, d)
                        du, dv = a * u - g * v, b * v - g * u
                        store(A, i, d, u - adagrad(A, i, d + to_sum, du, rate))
                        store(B, j, d, v - adagrad(B, j, d + to_sum, dv, rate))
                step_bias(A, i, g, rate, bias_l2)
                step_bias(B, j, g, rate, bias_l2)
                if learn:
                    a, b = l1 * A[i, AT_SHARE], l1 * B[j, AT_SHARE]
                    if per_row is not None:
                        rate_i = deviation_rate / np.sqrt(A[i, AT_DEVIATION_SUM])
                        rate_j = deviation_rate / np.sqrt(B[j, AT_DEVIATION_SUM])
                        x, y = zeros(), zeros()
                        for d in range(p0, end, WIDTH):
                            p, q = load(A, i, d), load(B, j, d)
                            dp, dq = h * q + a, h * p + b
                            x += dp * dp
                            y += dq * dq
                            store(A, i, d, positive(p - rate_i * dp))
                            store(B, j, d, positive(q - rate_j * dq))
                        A[i, AT_DEVIATION_SUM] += per_deviation * total(x)
                        B[j, AT_DEVIATION_SUM] += per_deviation * total(y)
                    else:
                        for d in range(p0, end, WIDTH):
                            p, q = load(A, i, d), load(B, j, d)
                            dp, dq = h * q + a, h * p + b
                            step_i = adagrad(A, i, d + to_sum, dp, deviation_rate)
                            step_j = adagrad(B, j, d + to_sum, dq, deviation_rate)
                            store(A, i, d, positive(p - step_i))
                            store(B, j, d, positive(q - step_j))
            n = after
        report(sums, block, starts, squared, scaled, log_variance, product, variance, learn)


@njit(fastmath=True, error_model="numpy", nogil=True, cache=CACHE)
def predict(row, column, A, B, n_mean, n_deviation, floor, mean, variance):
    """Fill in mean and variance of cells."""
    p0 = HEADER + np.uintp(n_mean)
    end = p0 + np.uintp(n_deviation)
    for n in range(len(row)):
        i, j = np.uintp(row[n]), np.uintp(column[n])
        mean[n] = A[i, AT_BIAS] + B[j, AT_BIAS] + _dot(A, i, B, j, HEADER, p0)
        variance[n] = floor + _dot(A, i, B, j, p0, end)


@njit(nogil=True, cache=True)
def stable_sort(codes, order, visit):
    """Sort ``visit`` by the row of what it visits; equal rows keep their order."""
    place = np.zeros(len(order) + 1, dtype=np.int64)
    for code in codes:
        place[order[code] + 1] += 1
    place = np.cumsum(place)
    out = np.empty_like(visit)
    for n in visit:
        k = order[codes[n]]
        out[place[k]] = n
        place[k] += 1
    return out


@njit(nogil=True, cache=True)
def sort_by_block(block, n_blocks, visit):
    """Sort ``visit`` by block, whose halves take turns; also return where each block starts."""
    place = np.zeros(n_blocks + 1, dtype=np.int64)
    for k in block:
        place[k + 1] += 1
    starts = np.cumsum(place)
    done = np.zeros(n_blocks, dtype=np.int64)
    out = np.empty_like(visit)
    for n in visit:
        k = block[n]
        half = (starts[k + 1] - starts[k] + 1) // 2
        turn, second = done[k] % half, done[k] // half
        out[starts[k] + 2 * turn + second] = n
        done[k] += 1
    return out, starts
