"""The hot loops, on plain arrays and in the paper's letters.

``A`` and ``B`` are the packed rows of two modes (see ``state``): U and V are their mean factors, P
and Q their deviation factors. For one observation, ``e`` is its error, ``s`` its variance; ``g`` is
minus the gradient of its likelihood by the mean, ``h`` the gradient by the variance, both weighted
by ``s ** beta``.

All indices are unsigned. A signed one may be negative, which keeps numba from vectorising the
loops; a slice would be reference-counted, with a lock, for every observation.
"""

import numpy as np
from numba import njit

from noisewise.engine.state import BIAS, BIAS_SUM, DEVIATION_SUM, LINE, MEAN_SUM, SHARE

_HEADER, _BIAS, _BIAS_SUM, _MEAN_SUM, _DEVIATION_SUM, _SHARE = (
    np.uintp(k) for k in (LINE, BIAS, BIAS_SUM, MEAN_SUM, DEVIATION_SUM, SHARE)
)
_ZERO, _QUARTER, _HALF, _ONE, _TWO = (np.float32(x) for x in (0.0, 0.25, 0.5, 1.0, 2.0))
_FARTHEST = np.float32(50.0)  # squared error over variance, as far as a deviation step believes it


@njit(fastmath=True, error_model="numpy", inline="always")
def _weight(s, beta):
    """Return ``s ** beta``; roots are much cheaper than the power."""
    if beta == _ZERO:
        return _ONE
    if beta == _QUARTER:
        return np.sqrt(np.sqrt(s))
    if beta == _HALF:
        return np.sqrt(s)
    return s**beta


@njit(fastmath=True, error_model="numpy", nogil=True, cache=True)
def visit_coordinate(
    stratum, worker, workers, side, starts, row, column, value, A, B, n_mean, n_deviation,
    rate, deviation_rate, l2, bias_l2, l1, delta, beta, variance, learn_deviation, sums,
):  # fmt: skip
    """One worker's blocks of a stratum; AdaGrad with a sum per coordinate."""
    D, K = np.uintp(n_mean), np.uintp(n_deviation)
    p0 = _HEADER + D
    u_sum = p0 + K
    p_sum = u_sum + D
    for block in range(stratum * side + worker, (stratum + 1) * side, workers):
        squared, scaled, log_variance, product = 0.0, 0.0, 0.0, 1.0
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
            ratio = e * e / s
            weight = _weight(s, beta) / s
            g, h = weight * e, weight * _HALF * (_ONE - min(ratio, _FARTHEST))
            squared += e * e
            scaled += ratio
            product *= s  # one logarithm for many variances
            if product < 1e-200 or product > 1e200:
                log_variance += np.log(product)
                product = 1.0

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
                    A[i, p0 + k] = max(p, _ZERO)
                    B[j, p0 + k] = max(q, _ZERO)
        sums[block, 0], sums[block, 1] = squared, scaled + log_variance + np.log(product)


@njit(fastmath=True, error_model="numpy", nogil=True, cache=True)
def visit_row(
    stratum, worker, workers, side, starts, row, column, value, A, B, n_mean, n_deviation,
    rate, deviation_rate, l2, bias_l2, l1, delta, beta, variance, learn_deviation, sums,
):  # fmt: skip
    """One worker's blocks of a stratum; AdaGrad with one sum per row, of the mean square.

    That mean square follows from |U|², |V|² and U.V (and alike for P and Q), which one pass over
    the rows gives; the second pass, the step, then has no sums to wait for.
    """
    D, K = np.uintp(n_mean), np.uintp(n_deviation)
    p0 = _HEADER + D
    per_mean = np.float32(1.0 / max(n_mean, 1))
    per_deviation = np.float32(1.0 / max(n_deviation, 1))
    for block in range(stratum * side + worker, (stratum + 1) * side, workers):
        squared, scaled, log_variance, product = 0.0, 0.0, 0.0, 1.0
        for n in range(starts[block], starts[block + 1]):
            i, j = np.uintp(row[n]), np.uintp(column[n])
            uv, uu, vv = _ZERO, _ZERO, _ZERO
            for d in range(D):
                u, v = A[i, _HEADER + d], B[j, _HEADER + d]
                uv += u * v
                uu += u * u
                vv += v * v
            s = variance
            pq, pp, qq, p_total, q_total = _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
            if learn_deviation:
                for k in range(K):
                    p, q = A[i, p0 + k], B[j, p0 + k]
                    pq += p * q
                    pp += p * p
                    qq += q * q
                    p_total += p
                    q_total += q
                s = delta + pq
            e = value[n] - (uv + A[i, _BIAS] + B[j, _BIAS])
            ratio = e * e / s
            weight = _weight(s, beta) / s
            g, h = weight * e, weight * _HALF * (_ONE - min(ratio, _FARTHEST))
            squared += e * e
            scaled += ratio
            product *= s  # one logarithm for many variances
            if product < 1e-200 or product > 1e200:
                log_variance += np.log(product)
                product = 1.0

            a, b = l2 * A[i, _SHARE], l2 * B[j, _SHARE]
            rate_i = rate / np.sqrt(A[i, _MEAN_SUM])
            rate_j = rate / np.sqrt(B[j, _MEAN_SUM])
            keep_i, keep_j = _ONE - rate_i * a, _ONE - rate_j * b
            pull_i, pull_j = rate_i * g, rate_j * g
            for d in range(D):
                u, v = A[i, _HEADER + d], B[j, _HEADER + d]
                A[i, _HEADER + d] = keep_i * u + pull_i * v
                B[j, _HEADER + d] = keep_j * v + pull_j * u
            A[i, _MEAN_SUM] += per_mean * (a * a * uu - _TWO * a * g * uv + g * g * vv)
            B[j, _MEAN_SUM] += per_mean * (b * b * vv - _TWO * b * g * uv + g * g * uu)
            _step_biases(A, B, i, j, g, rate, bias_l2)
            if learn_deviation:
                a, b = l1 * A[i, _SHARE], l1 * B[j, _SHARE]
                rate_i = deviation_rate / np.sqrt(A[i, _DEVIATION_SUM])
                rate_j = deviation_rate / np.sqrt(B[j, _DEVIATION_SUM])
                down_i, down_j = rate_i * a, rate_j * b
                pull_i, pull_j = rate_i * h, rate_j * h
                for k in range(K):
                    p, q = A[i, p0 + k], B[j, p0 + k]
                    x, y = p - down_i - pull_i * q, q - down_j - pull_j * p
                    A[i, p0 + k] = max(x, _ZERO)
                    B[j, p0 + k] = max(y, _ZERO)
                A[i, _DEVIATION_SUM] += (
                    per_deviation * (h * h * qq + _TWO * h * a * q_total) + a * a
                )
                B[j, _DEVIATION_SUM] += (
                    per_deviation * (h * h * pp + _TWO * h * b * p_total) + b * b
                )
        sums[block, 0], sums[block, 1] = squared, scaled + log_variance + np.log(product)


@njit(fastmath=True, error_model="numpy", inline="always")
def _step_biases(A, B, i, j, g, rate, l2):
    du = l2 * A[i, _SHARE] * A[i, _BIAS] - g
    dv = l2 * B[j, _SHARE] * B[j, _BIAS] - g
    A[i, _BIAS_SUM] += du * du
    B[j, _BIAS_SUM] += dv * dv
    A[i, _BIAS] -= rate * du / np.sqrt(A[i, _BIAS_SUM])
    B[j, _BIAS] -= rate * dv / np.sqrt(B[j, _BIAS_SUM])


@njit(fastmath=True, error_model="numpy", nogil=True, cache=True)
def predict(row, column, A, B, n_mean, n_deviation, floor, mean, variance):
    """Fill in mean and variance of cells."""
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
def sort_by_block(row, column, stripe, stripe2, side, visit):
    """Sort ``visit`` by block, likewise; also return where each block starts."""
    place = np.zeros(side * side + 1, dtype=np.int64)
    for n in range(len(row)):
        i, j = stripe[row[n]], stripe2[column[n]]
        place[(j - i) % side * side + i + 1] += 1
    starts = np.cumsum(place)
    place = starts.copy()
    out = np.empty_like(visit)
    for n in visit:
        i, j = stripe[row[n]], stripe2[column[n]]
        block = (j - i) % side * side + i
        out[place[block]] = n
        place[block] += 1
    return out, starts
