"""Moments, the rows of time, and what courses are there: drawn together.

Where noise is small, a moment and the courses of all series at that moment pin each other. So the
moment is drawn with these courses integrated out, given those before and after; and then they are
drawn too. Threads draw stretches of time side by side.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, no-check-untyped-defs
# as numba infers the types

from __future__ import annotations

import math

import numpy as np
from numba import njit

from noisewise.engine.gibbs.steps.rows import CHUNK, draw, factorise, gather
from noisewise.engine.random import normal_pair, stream

_U = np.uintp
_ONE = np.uintp(1)


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def draw_moments(
    chosen, starts, index, others, factors, biases, first, bound, noise, fade, drift, values,
    centre, precision, rank, key, courses_key, courses, fitted,
):  # fmt: skip
    """Draw the chosen moments, one after the other, and the courses at their observations.

    Parameters
    ----------
    chosen : int32[:]
        Rows of the last mode.
    starts, index, others, factors, biases, first, centre, precision
        As for ``noisewise.engine.gibbs.steps.rows.draw_rows``.
    bound : bool[:]
        Observations whose courses stay as they are.
    noise, values : float32[:]
        Variance and value of every observation.
    fade, drift : float32[:]
        As from ``set_gains``; one more at the end, where the fade is zero.
    courses, fitted : float32[:]
        Both are changed, for the chosen moments only.
    """
    D, width = _U(rank), factors.shape[1]
    A, h, out = np.empty((rank + 1, (rank + 8) // 8 * 8)), np.empty(rank + 1), np.empty(rank + 2)
    S = np.empty((CHUNK, width), dtype=np.float32)
    gram = np.empty((width, width), dtype=np.float32)
    pull, edge = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    most = 0
    for row in chosen:
        most = max(most, starts[_U(row) + _ONE] - starts[_U(row)])
    means, spreads = np.empty(most), np.empty(most)
    for row in chosen:
        i = _U(row)
        _start(A, h, centre, precision)
        for start in range(starts[i], starts[i + _ONE], CHUNK):
            m = min(CHUNK, starts[i + _ONE] - start)
            weight, shift = 0.0, 0.0
            pull[:], edge[:] = 0.0, 0.0
            for k in range(m):
                visit, s, at = _U(start + k), _U(k), _U(start - starts[i] + k)
                n = _U(index[visit])
                mean, spread = _between_neighbours(n, bound, fade, drift, courses)
                means[at], spreads[at] = mean, spread
                root = np.float32(1.0 / math.sqrt(spread + noise[n]))
                bias = gather(S, s, visit, others, factors, biases, root)
                y = np.float32(root * (values[n] - bias - mean))
                weight += root * root
                shift += root * y
                for d in range(_U(width)):
                    pull[d] += y * S[s, d]
                    edge[d] += root * S[s, d]
            _add(A, h, S[:m], gram, pull, edge, weight, shift)
        factorise(A, D + _ONE)
        draw(A, h, D + _ONE, stream(key, i), out)
        _keep(factors, biases, _U(first) + i, out, D)
        state = stream(courses_key, i)
        for k in range(starts[i + _ONE] - starts[i]):
            visit, at = _U(starts[i] + k), _U(k)
            n = _U(index[visit])
            fitted[n] = _fit(S, visit, others, factors, biases, _U(first) + i)
            share = spreads[at] / (spreads[at] + noise[n])
            state, z, _ = normal_pair(state)
            left = values[n] - fitted[n] - means[at]
            courses[n] = means[at] + share * left + math.sqrt(share * noise[n]) * z


@njit(nogil=True, error_model="numpy", cache=True)
def _between_neighbours(n, bound, fade, drift, courses):
    """Mean and variance of x at an observation, given x at its neighbours; a bound one is known."""
    if bound[n]:
        return np.float64(courses[n]), 0.0
    mean, spread = 0.0, np.float64(drift[n])
    if fade[n] > 0.0:
        mean = np.float64(fade[n]) * courses[n - _ONE]
    phi, after = np.float64(fade[n + _ONE]), np.float64(drift[n + _ONE])
    if phi > 0.0:
        ahead = phi * phi * spread + after
        mean += phi * spread / ahead * (courses[n + _ONE] - phi * mean)
        spread *= after / ahead
    return mean, spread


@njit(nogil=True, error_model="numpy", cache=True)
def _start(A, h, centre, precision):
    """Start the precision A and the pull h of a row from its prior; A is padded with zeros."""
    n = _U(len(h))
    A[:] = 0.0
    for a in range(n):
        h[a] = 0.0
        for b in range(n):
            A[a, b] = precision[a, b]
            h[a] += precision[a, b] * centre[b]


@njit(nogil=True, error_model="numpy", cache=True)
def _add(A, h, X, gram, pull, edge, weight, shift):
    """Add observations with the regressors X, and the bias's: its products are ``edge``."""
    D = _U(len(h)) - _ONE
    np.dot(X.T, X, gram)
    for a in range(D):
        for b in range(a, D):
            A[a, b] += gram[a, b]
        A[a, D] += edge[a]
        h[a] += pull[a]
    A[D, D] += weight
    h[D] += shift


@njit(nogil=True, error_model="numpy", inline="always")
def _keep(factors, biases, place, drawn, D):
    """Write what was drawn, the bias last."""
    for d in range(D):
        factors[place, d] = drawn[d]
    biases[place] = drawn[D]


@njit(nogil=True, fastmath=True, error_model="numpy", inline="always")
def _fit(S, visit, others, factors, biases, place):
    """Return what rows make of an observation; the first row of S is used up."""
    total = biases[place] + gather(S, _U(0), visit, others, factors, biases, np.float32(1.0))
    for d in range(_U(factors.shape[1])):
        total += factors[place, d] * S[_U(0), d]
    return total
