"""Every moment by itself: all factors at one time, together with the paths of the series seen then.

Whole paths are drawn one factor after the other, which is slow where factors explain the same. So
all factors of a moment are drawn jointly once more, given their neighbours in time, the paths of
the series at that moment integrated out; then these are drawn, too. Given the even moments, the
odd ones do not depend on each other, nor the even ones given the odd.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from noisewise.engine import paths
from noisewise.engine.gibbs.series.draw import SeriesDraw, SeriesStep
from noisewise.engine.gibbs.steps.rows import draw as draw_normal
from noisewise.engine.gibbs.steps.rows import factorise
from noisewise.engine.random import normal_pair, stream

MOMENTS = 210  # stream
EVERY = 2  # sweep in which it is done: it takes as long as all other steps together
_U = np.uintp
_ONE = np.uintp(1)


class Moments(SeriesStep):
    """Draw the factors of every moment jointly, and the paths of the series that were seen then."""

    def _draw(self, draw: SeriesDraw) -> None:
        work, rank = self.work, self.spec.rank
        if not rank or draw.epoch % EVERY:
            return
        for parity in (0, 1):
            work.over(
                work.chunks, draw_moments, parity, self.data.starts[-1], work.by_time,
                work.at_time, work.values, work.precision, draw.loadings, rank, self.spec.kind,
                work.gaps, draw.factor_timescales, draw.timescales, draw.amplitudes,
                work.key(draw, MOMENTS, parity), draw.factors, draw.slopes, draw.paths,
            )  # fmt: skip


@njit(nogil=True, error_model="numpy", inline="always")
def _transition(kept, i, kind, gap, timescale):
    """Return the transition of a gap; what was computed for a path is kept for its next moment."""
    if kept[i, 7] != gap:
        F = paths.transition(kind, gap, timescale)
        for k in range(_U(7)):
            kept[i, k] = F[k]
        kept[i, 7] = gap
    return (
        kept[i, 0], kept[i, 1], kept[i, 2], kept[i, 3], kept[i, 4], kept[i, 5], kept[i, 6],
    )  # fmt: skip


@njit(nogil=True, error_model="numpy", inline="always")
def _between(t, gaps, kind, timescale, amplitude, before, after, i, l0, l1, r0, r1):
    """Mean and covariance, in units of the amplitude, of a state given those next to it."""
    m0, m1, p00, p01, p11 = 0.0, 0.0, 1.0, 0.0, 1.0
    if t > 0:
        F = _transition(before, i, kind, gaps[t], timescale)
        m0, m1 = F[0] * l0 + F[1] * l1, F[2] * l0 + F[3] * l1
        p00, p01, p11 = F[4], F[5], F[6]
    if t + 1 < len(gaps):
        F = _transition(after, i, kind, gaps[t + 1], timescale)
        if kind == 0:
            full = F[0] * F[0] * p00 + F[4]
            m0, p00 = m0 + F[0] * p00 / full * (r0 - F[0] * m0), p00 * F[4] / full
        else:
            m0, m1, p00, p01, p11 = paths.given_next(
                F, m0, m1, p00, p01, p11, r0, r1, 0.0, 0.0, 0.0
            )
    return m0, m1, p00 * amplitude, p01 * amplitude, p11 * amplitude


@njit(nogil=True, error_model="numpy", fastmath={"contract"}, cache=True)
def draw_moments(
    chunk, parity, starts, index, which, values, precision, loadings, rank, kind, gaps,
    factor_timescales, timescales, amplitudes, key, factors, slopes, states,
):  # fmt: skip
    """Draw the factors at every second moment of a chunk, and the paths seen then."""
    T, width, D = len(factors), _U(factors.shape[1]), _U(rank)
    kept = np.full((2, rank, 8), -1.0), np.full((2, len(timescales), 8), -1.0)
    A, h, out = np.empty((rank, (rank + 7) // 8 * 8)), np.empty(rank), np.empty(rank + 1)
    prior = np.empty((rank, 5))
    most = 0
    for t in range(chunk[0], chunk[1]):
        most = max(most, starts[t + 1] - starts[t])
    own = np.empty((most, 7))  # mean and covariance of paths, precision, and what is left of values
    series = np.empty(most, dtype=np.int64)
    for t in range(chunk[0] + (chunk[0] + parity) % 2, chunk[1], 2):
        b, a = max(t - 1, 0), min(t + 1, T - 1)
        A[:] = 0.0
        for k in range(rank):
            prior[k] = _between(
                t, gaps, kind, factor_timescales[k], 1.0, kept[0][0], kept[0][1], k,
                factors[b, k], slopes[b, k], factors[a, k], slopes[a, k],
            )  # fmt: skip
            A[k, k] = 1.0 / prior[k, 2]
            h[k] = prior[k, 0] / prior[k, 2]
        n = 0
        for v in range(starts[t], starts[t + 1]):
            i, s = _U(index[v]), which[v]
            left = values[i] - loadings[s, width]
            for d in range(D, width):
                left -= loadings[s, d] * factors[t, d]
            if n and series[n - 1] == s:  # read twice at one time
                total = own[n - 1, 5] + precision[i]
                own[n - 1, 6] += precision[i] / total * (left - own[n - 1, 6])
                own[n - 1, 5] = total
                continue
            series[n] = s
            m0, m1, p00, p01, p11 = _between(
                t, gaps, kind, timescales[s], amplitudes[s], kept[1][0], kept[1][1], s,
                states[s, b, 0], states[s, b, 1], states[s, a, 0], states[s, a, 1],
            )  # fmt: skip
            own[n, 0], own[n, 1], own[n, 2], own[n, 3], own[n, 4] = m0, m1, p00, p01, p11
            own[n, 5], own[n, 6] = precision[i], left
            n += 1
        for j in range(n):
            s = series[j]
            w = own[j, 5] / (1.0 + own[j, 5] * own[j, 2])
            y = w * (own[j, 6] - own[j, 0])
            for k in range(D):
                l = loadings[s, k]  # noqa: E741
                h[k] += l * y
                for m in range(k, D):
                    A[k, m] += w * l * loadings[s, m]
        state = stream(key, t)
        factorise(A, D)
        draw_normal(A, h, D, state, out)
        state = stream(key, t + T)
        for k in range(rank):
            factors[t, k] = out[k]
            state, slopes[t, k] = _slope(state, kind, out[k], prior[k])
        for j in range(n):
            s = series[j]
            left = own[j, 6]
            for k in range(rank):
                left -= loadings[s, k] * factors[t, k]
            share = 1.0 / (1.0 + own[j, 5] * own[j, 2])
            state, z, _ = normal_pair(state)
            x = own[j, 0] + own[j, 2] * share * own[j, 5] * (left - own[j, 0])
            x += math.sqrt(own[j, 2] * share) * z
            states[s, t, 0] = x
            state, states[s, t, 1] = _slope(state, kind, x, own[j])


@njit(nogil=True, error_model="numpy", inline="always")
def _slope(state, kind, value, known):
    """Draw the slope of a path at a moment, given its value and what its neighbours say."""
    if kind == 0:
        return state, 0.0
    state, z, _ = normal_pair(state)
    tilt = known[3] / known[2]
    spread = max(known[4] - tilt * known[3], 0.0)
    return state, known[1] + tilt * (value - known[0]) + math.sqrt(spread) * z
