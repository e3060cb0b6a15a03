"""Moods and fashions: a path over a row's observations in the order of time, AR(1).

    x_t = phi x_(t-1) + N(0, v (1 - phi^2)),   stationary variance v,   one step per observation

observed through residuals with their own precision. The path is drawn by a Kalman filter forwards
and a sampler backwards; phi and v are judged with the path integrated out, as a million steps of a
given path would pin them.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from noisewise.engine.random import normal_pair, stream

_U = np.uintp


@njit(nogil=True, error_model="numpy", cache=True)
def log_likelihood(chosen, starts, index, residual, path, root, phi, variance, out):
    """Fill in, for the chosen rows, the log-likelihood of each pair of phi and variance."""
    for row in chosen:
        i = _U(row)
        for option in range(len(phi)):
            f, v = phi[option], variance[option]
            drift = v * (1.0 - f * f)
            mean, spread, total, scale = 0.0, v, 0.0, 1.0
            for k in range(starts[i], starts[i + _U(1)]):
                n = _U(index[k])
                e = np.float64(residual[n]) + path[n] - mean
                w = np.float64(root[n]) * root[n]
                gain = 1.0 + spread * w
                total += w * e * e / gain
                scale *= gain  # one logarithm for many
                if scale > 1e200:
                    total += math.log(scale)
                    scale = 1.0
                mean = f * (mean + spread * w / gain * e)
                spread = f * f * spread / gain + drift
            out[i, option] = -0.5 * (total + math.log(scale))


@njit(nogil=True, error_model="numpy", cache=True)
def draw_paths(chosen, starts, index, residual, path, root, phi, v, key):
    """Draw the paths of the chosen rows; what they take up is taken from the residual."""
    longest = 0
    for row in chosen:
        longest = max(longest, starts[_U(row) + _U(1)] - starts[_U(row)])
    means, spreads = np.empty(longest), np.empty(longest)
    drift = v * (1.0 - phi * phi)
    for row in chosen:
        i = _U(row)
        state = stream(key, i)
        first, count = starts[i], starts[i + _U(1)] - starts[i]
        mean, spread = 0.0, v
        for t in range(count):
            n = _U(index[first + t])
            w = np.float64(root[n]) * root[n]
            gain = 1.0 + spread * w
            mean += spread * w / gain * (np.float64(residual[n]) + path[n] - mean)
            spread /= gain
            means[_U(t)], spreads[_U(t)] = mean, spread
            mean *= phi
            spread = phi * phi * spread + drift
        after, ahead = 0.0, 0.0
        spare, has_spare = 0.0, False
        for back in range(count):
            t = count - 1 - back
            mean, spread = means[_U(t)], spreads[_U(t)]
            if back:
                ahead = phi * phi * spread + drift
                weight = spread * phi / ahead
                mean += weight * (after - phi * mean)
                spread = spread * drift / ahead
            if has_spare:
                z, has_spare = spare, False
            else:
                state, z, spare = normal_pair(state)
                has_spare = True
            after = mean + math.sqrt(spread) * z
            n = _U(index[first + t])
            residual[n] += path[n] - np.float32(after)
            path[n] = after
