"""The hot loops of tensors: three modes as fast as two, and any number of modes.

The letters are those of ``kernels``. The third mode has packed rows ``C``, with T for its mean
factors and W for its deviation factors: the mean is the sum of U V T over factors, the variance
that of P Q W. A row steps against what multiplies it, which is the product of the others.

AdaGrad has a sum per coordinate where rows are wide enough to hold them, else one per row.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

import numpy as np
from numba import njit

from noisewise.engine.sgd.kernels import (
    AT_BIAS,
    AT_DEVIATION_SUM,
    AT_MEAN_SUM,
    AT_SHARE,
    HEADER,
    NEXT,
    ONE,
    WIDTH,
    ZERO,
    adagrad,
    log_product,
    pulls,
    report,
    step_bias,
    weight_of,
)
from noisewise.engine.sgd.vectors import CACHE, inverse_root, load, positive, store, total, zeros


@njit(fastmath=True, error_model="numpy", nogil=True, cache=CACHE)
def visit_three(
    weight, stratum, worker, workers, side, starts, row, column, layer, value, A, B, C, n_mean,
    n_deviation, rate, deviation_rate, l2, bias_l2, l1, delta, beta, variance, learn, sums,
):  # fmt: skip
    """One worker's blocks of a stratum of three modes, in pairs as ``kernels`` has them."""
    p0 = HEADER + np.uintp(n_mean)
    end = p0 + np.uintp(n_deviation)
    to_sum = end - HEADER  # from a factor to its sum
    per_row = np.uintp(A.shape[1]) == end
    per_mean = np.float32(1.0 / max(n_mean, 1))
    per_deviation = np.float32(1.0 / max(n_deviation, 1))
    G, H = np.empty(2, np.float32), np.empty(2, np.float32)
    constant = weight_of(variance, beta) / variance
    for block in range(stratum * side + worker, (stratum + 1) * side, workers):
        squared, scaled, log_variance, product = 0.0, 0.0, 0.0, 1.0
        n, last = np.uintp(starts[block]), np.uintp(starts[block + 1])
        while n < last:
            after = n + NEXT
            alone = after == last or row[after] == row[n] or column[after] == column[n]
            if not (alone or layer[after] == layer[n]):
                after += NEXT
            for m in range(n, after):
                i, j, k = np.uintp(row[m]), np.uintp(column[m]), np.uintp(layer[m])
                biases = A[i, AT_BIAS] + B[j, AT_BIAS] + C[k, AT_BIAS]
                e = value[m] - (biases + _dot(A, i, B, j, C, k, HEADER, p0))
                if weight is not None:
                    e *= np.sqrt(weight[m])
                squared += e * e
                G[m - n] = constant * e
                if learn:
                    s = delta + _dot(A, i, B, j, C, k, p0, end)
                    G[m - n], H[m - n], ratio = pulls(e, s, beta)
                    scaled += ratio
                    log_variance, product = log_product(log_variance, product, s)
                if weight is not None:
                    G[m - n] *= np.sqrt(weight[m])

            for m in range(n, after):
                i, j, k = np.uintp(row[m]), np.uintp(column[m]), np.uintp(layer[m])
                g, h = G[m - n], H[m - n]
                a, b, c = l2 * A[i, AT_SHARE], l2 * B[j, AT_SHARE], l2 * C[k, AT_SHARE]
                if per_row:
                    x, y, z = zeros(), zeros(), zeros()
                    rate_i = rate / np.sqrt(A[i, AT_MEAN_SUM])
                    rate_j = rate / np.sqrt(B[j, AT_MEAN_SUM])
                    rate_k = rate / np.sqrt(C[k, AT_MEAN_SUM])
                    for d in range(HEADER, p0, WIDTH):
                        u, v, t = load(A, i, d), load(B, j, d), load(C, k, d)
                        du, dv, dt = a * u - g * (v * t), b * v - g * (u * t), c * t - g * (u * v)
                        x += du * du
                        y += dv * dv
                        z += dt * dt
                        store(A, i, d, u - rate_i * du)
                        store(B, j, d, v - rate_j * dv)
                        store(C, k, d, t - rate_k * dt)
                    A[i, AT_MEAN_SUM] += per_mean * total(x)
                    B[j, AT_MEAN_SUM] += per_mean * total(y)
                    C[k, AT_MEAN_SUM] += per_mean * total(z)
                else:
                    for d in range(HEADER, p0, WIDTH):
                        u, v, t = load(A, i, d), load(B, j, d), load(C, k, d)
                        du, dv, dt = a * u - g * (v * t), b * v - g * (u * t), c * t - g * (u * v)
                        store(A, i, d, u - adagrad(A, i, d + to_sum, du, rate))
                        store(B, j, d, v - adagrad(B, j, d + to_sum, dv, rate))
                        store(C, k, d, t - adagrad(C, k, d + to_sum, dt, rate))
                step_bias(A, i, g, rate, bias_l2)
                step_bias(B, j, g, rate, bias_l2)
                step_bias(C, k, g, rate, bias_l2)
                if learn:
                    a, b, c = l1 * A[i, AT_SHARE], l1 * B[j, AT_SHARE], l1 * C[k, AT_SHARE]
                    if per_row:
                        x, y, z = zeros(), zeros(), zeros()
                        rate_i = deviation_rate / np.sqrt(A[i, AT_DEVIATION_SUM])
                        rate_j = deviation_rate / np.sqrt(B[j, AT_DEVIATION_SUM])
                        rate_k = deviation_rate / np.sqrt(C[k, AT_DEVIATION_SUM])
                        for d in range(p0, end, WIDTH):
                            p, q, w = load(A, i, d), load(B, j, d), load(C, k, d)
                            dp, dq, dw = h * (q * w) + a, h * (p * w) + b, h * (p * q) + c
                            x += dp * dp
                            y += dq * dq
                            z += dw * dw
                            store(A, i, d, positive(p - rate_i * dp))
                            store(B, j, d, positive(q - rate_j * dq))
                            store(C, k, d, positive(w - rate_k * dw))
                        A[i, AT_DEVIATION_SUM] += per_deviation * total(x)
                        B[j, AT_DEVIATION_SUM] += per_deviation * total(y)
                        C[k, AT_DEVIATION_SUM] += per_deviation * total(z)
                    else:
                        for d in range(p0, end, WIDTH):
                            p, q, w = load(A, i, d), load(B, j, d), load(C, k, d)
                            dp, dq, dw = h * (q * w) + a, h * (p * w) + b, h * (p * q) + c
                            step_i = adagrad(A, i, d + to_sum, dp, deviation_rate)
                            step_j = adagrad(B, j, d + to_sum, dq, deviation_rate)
                            step_k = adagrad(C, k, d + to_sum, dw, deviation_rate)
                            store(A, i, d, positive(p - step_i))
                            store(B, j, d, positive(q - step_j))
                            store(C, k, d, positive(w - step_k))
            n = after
        report(sums, block, starts, squared, scaled, log_variance, product, variance, learn)


@njit(fastmath=True, error_model="numpy", nogil=True, cache=CACHE)
def visit_many(
    weight, stratum, worker, workers, side, starts, codes, value, R, first, n_mean,
    n_deviation, rate, deviation_rate, l2, bias_l2, l1, delta, beta, variance, learn, sums,
):  # fmt: skip
    """One worker's blocks of a stratum of any number of modes.

    ``R`` has the rows of all modes; those of mode m begin at ``first[m]``. What multiplies a row is
    the product of the modes before it, kept in ``Z`` with the error, and of those after it,
    gathered in the last row of ``Z`` as steps go from the last mode to the first.
    """
    p0 = HEADER + np.uintp(n_mean)
    end = p0 + np.uintp(n_deviation)
    to_sum = end - HEADER
    per_row = np.uintp(R.shape[1]) == end
    per_mean = np.float32(1.0 / max(n_mean, 1))
    per_deviation = np.float32(1.0 / max(n_deviation, 1))
    modes = np.uintp(len(first))
    at = np.empty(len(first), np.uintp)
    Z = np.empty((len(first) + 1, to_sum + HEADER), np.float32)
    constant = weight_of(variance, beta) / variance
    for block in range(stratum * side + worker, (stratum + 1) * side, workers):
        squared, scaled, log_variance = 0.0, 0.0, 0.0
        for n in range(np.uintp(starts[block]), np.uintp(starts[block + 1])):
            e, s, h = value[n], variance, ZERO
            for m in range(modes):
                at[m] = np.uintp(first[m] + codes[m, n])
                e -= R[at[m], AT_BIAS]
            e -= _products(R, at, Z, modes, HEADER, p0)
            if weight is not None:
                e *= np.sqrt(weight[n])
            squared += e * e
            g = constant * e
            if learn:
                s = delta + _products(R, at, Z, modes, p0, end)
                g, h, ratio = pulls(e, s, beta)
                scaled += ratio
                log_variance += np.log(s)
            if weight is not None:
                g *= np.sqrt(weight[n])

            for back in range(modes):
                mode = modes - NEXT - back
                i = at[mode]
                a, b = l2 * R[i, AT_SHARE], l1 * R[i, AT_SHARE]
                step, x = zeros() + rate / np.sqrt(R[i, AT_MEAN_SUM]), zeros()
                for d in range(HEADER, p0, WIDTH):
                    u, later = load(R, i, d), load(Z, modes, d)
                    du = a * u - g * (load(Z, mode, d) * later)
                    x += du * du
                    if not per_row:
                        y = load(R, i, d + to_sum) + du * du
                        store(R, i, d + to_sum, y)
                        step = rate * inverse_root(y)
                    store(R, i, d, u - step * du)
                    store(Z, modes, d, later * u)
                if per_row:
                    R[i, AT_MEAN_SUM] += per_mean * total(x)
                step_bias(R, i, g, rate, bias_l2)
                if learn:
                    step = zeros() + deviation_rate / np.sqrt(R[i, AT_DEVIATION_SUM])
                    x = zeros()
                    for d in range(p0, end, WIDTH):
                        p, later = load(R, i, d), load(Z, modes, d)
                        dp = h * (load(Z, mode, d) * later) + b
                        x += dp * dp
                        if not per_row:
                            y = load(R, i, d + to_sum) + dp * dp
                            store(R, i, d + to_sum, y)
                            step = deviation_rate * inverse_root(y)
                        store(R, i, d, positive(p - step * dp))
                        store(Z, modes, d, later * p)
                    if per_row:
                        R[i, AT_DEVIATION_SUM] += per_deviation * total(x)
        report(sums, block, starts, squared, scaled, log_variance, 1.0, variance, learn)


@njit(fastmath=True, error_model="numpy", nogil=True, cache=CACHE)
def predict_three(row, column, layer, A, B, C, n_mean, n_deviation, floor, mean, variance):
    """Fill in mean and variance of cells of three modes."""
    p0 = HEADER + np.uintp(n_mean)
    end = p0 + np.uintp(n_deviation)
    for n in range(len(row)):
        i, j, k = np.uintp(row[n]), np.uintp(column[n]), np.uintp(layer[n])
        biases = A[i, AT_BIAS] + B[j, AT_BIAS] + C[k, AT_BIAS]
        mean[n] = biases + _dot(A, i, B, j, C, k, HEADER, p0)
        variance[n] = floor + _dot(A, i, B, j, C, k, p0, end)


@njit(fastmath=True, error_model="numpy", nogil=True, cache=CACHE)
def multiply(x, A, code, n_mean):
    """Multiply every row of x by the mean factors of a row of ``A``."""
    for n in range(np.uintp(len(x))):
        i = np.uintp(code[n])
        for d in range(np.uintp(0), np.uintp(n_mean), WIDTH):
            store(x, n, d, load(x, n, d) * load(A, i, d + HEADER))


@njit(fastmath=True, error_model="numpy", nogil=True, cache=CACHE)
def quadratic(x, form):
    """Return ``x' form x`` of every row of x, at least 0; nothing stands below the diagonal."""
    out = np.empty(len(x), np.float32)
    width = np.uintp(len(form))
    for n in range(np.uintp(len(x))):
        whole = zeros()
        for a in range(width):
            part = zeros()
            for d in range(a - a % WIDTH, width, WIDTH):
                part += load(form, a, d) * load(x, n, d)
            whole += x[n, a] * part
        out[n] = max(total(whole), ZERO)
    return out


@njit(fastmath=True, error_model="numpy", inline="always")
def _dot(A, i, B, j, C, k, start, end):
    uvt = zeros()
    for d in range(start, end, WIDTH):
        uvt += load(A, i, d) * load(B, j, d) * load(C, k, d)
    return total(uvt)


@njit(fastmath=True, error_model="numpy", inline="always")
def _products(R, at, Z, modes, start, end):
    """Return the sum of products of all modes; keep in ``Z`` the product of those before each."""
    everything = zeros()
    for d in range(start, end, WIDTH):
        before = zeros() + ONE
        store(Z, modes, d, before)
        for m in range(modes):
            store(Z, m, d, before)
            before = before * load(R, at[m], d)
        everything += before
    return total(everything)
