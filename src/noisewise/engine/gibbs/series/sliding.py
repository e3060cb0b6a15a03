"""A move that lets factors and the series' own paths slide along each other.

They pin each other: what a factor explains can be moved only as fast as all paths give way. To
add d(t) to a factor and take ``L_s d(t)`` from the path of every series s leaves what is explained
as it is, so d is drawn from the priors of these paths alone: a normal distribution whose precision
links neighbours in time, solved from the first moment to the last and drawn backwards.

Of every transition between moments, and every path with ``c`` (1 of the factor, -L_s of a series)
times d added to it, the prior has ``|e + c B d_t - c F B d_(t-1)|^2`` over its innovation, where e
is the innovation as it is, and B gives slopes in units of the path.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from noisewise.engine.gibbs.series.draw import SeriesDraw, SeriesStep
from noisewise.engine.paths import transition
from noisewise.engine.random import normal_pair, stream

SLIDING = 203  # stream
IN, OUT, CROSS, NOW, BEFORE = 0, 3, 6, 10, 12  # columns of what is summed per transition
COLUMNS = 14
_ROOT3 = math.sqrt(3.0)
_U = np.uintp


class Sliding(SeriesStep):
    """Move every factor, and the paths of all series along with it."""

    def _draw(self, draw: SeriesDraw) -> None:
        work, kind = self.work, self.spec.kind
        sums = np.empty((work.n_times, COLUMNS))
        shift = np.empty((work.n_times, 2))
        for k in range(self.spec.rank):
            loading = np.ascontiguousarray(draw.loadings[:, k])
            factor = np.column_stack([draw.factors[:, k], draw.slopes[:, k]])
            timescale = draw.factor_timescales[k]
            work.over(
                work.chunks, sum_transitions, kind, factor, timescale, loading, draw.paths,
                draw.timescales, draw.amplitudes, work.gaps, sums,
            )  # fmt: skip
            draw_shift(kind, sums, work.key(draw, SLIDING, k), shift)
            work.over(
                work.chunks, move, kind, shift, timescale, loading, draw.timescales, factor,
                draw.paths,
            )  # fmt: skip
            draw.factors[:, k], draw.slopes[:, k] = factor.T


@njit(nogil=True, error_model="numpy", cache=True)
def sum_transitions(
    chunk, kind, factor, timescale, loading, paths, timescales, amplitudes, gaps, sums
):
    """Sum over paths what each transition into the moments of a chunk says of the shift."""
    sums[chunk[0] : chunk[1]] = 0.0
    _add_path(chunk, kind, 1.0, factor, timescale, 1.0, gaps, sums)
    for s in range(len(loading)):
        if loading[s] != 0.0:
            _add_path(chunk, kind, -loading[s], paths[s], timescales[s], amplitudes[s], gaps, sums)


@njit(nogil=True, error_model="numpy", fastmath={"contract"}, cache=True)
def _add_path(chunk, kind, c, path, timescale, amplitude, gaps, sums):
    slope = timescale / _ROOT3
    first = chunk[0]
    if first == 0:
        w = c / amplitude
        sums[0, IN] += c * w
        sums[0, IN + 2] += c * w * slope * slope
        sums[0, NOW] += w * path[0, 0]
        sums[0, NOW + 1] += w * slope * path[0, 1]
        first = 1
    gap = -1.0
    f00, f01, f10, f11, q00, q01, q11 = 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0
    w00, w01, w11 = 1.0, 0.0, 1.0
    k00, k01, k10, k11 = 0.0, 0.0, 0.0, 0.0
    m00, m01, m10, m11 = 0.0, 0.0, 0.0, 0.0
    for row in range(first, chunk[1]):
        t, before = _U(row), _U(row - 1)
        if gaps[t] != gap:
            gap = gaps[t]
            f00, f01, f10, f11, q00, q01, q11 = transition(kind, gap, timescale)
            if kind == 0:
                w00 = 1.0 / (q00 * amplitude)
            else:
                det = (q00 * q11 - q01 * q01) * amplitude
                w00, w01, w11 = q11 / det, -q01 / det, q00 / det
                k00, k01, k10, k11 = f00, f01 * slope, f10, f11 * slope  # F B
                m00, m01 = w00 * k00 + w01 * k10, w00 * k01 + w01 * k11  # W F B
                m10, m11 = w01 * k00 + w11 * k10, w01 * k01 + w11 * k11
        if kind == 0:
            x = c * w00 * (path[t, 0] - f00 * path[before, 0])
            square = c * c * w00
            sums[t, IN] += square
            sums[t, OUT] += square * f00 * f00
            sums[t, CROSS] -= square * f00
            sums[t, NOW] += x
            sums[t, BEFORE] += f00 * x
            continue
        square = c * c
        sums[t, IN] += square * w00
        sums[t, IN + 1] += square * w01 * slope
        sums[t, IN + 2] += square * w11 * slope * slope
        sums[t, OUT] += square * (k00 * m00 + k10 * m10)
        sums[t, OUT + 1] += square * (k00 * m01 + k10 * m11)
        sums[t, OUT + 2] += square * (k01 * m01 + k11 * m11)
        sums[t, CROSS] -= square * m00
        sums[t, CROSS + 1] -= square * m01
        sums[t, CROSS + 2] -= square * slope * m10
        sums[t, CROSS + 3] -= square * slope * m11
        u0, u1 = path[before, 0], path[before, 1]
        e0, e1 = path[t, 0] - f00 * u0 - f01 * u1, path[t, 1] - f10 * u0 - f11 * u1
        x0, x1 = c * (w00 * e0 + w01 * e1), c * (w01 * e0 + w11 * e1)
        sums[t, NOW] += x0
        sums[t, NOW + 1] += slope * x1
        sums[t, BEFORE] += k00 * x0 + k10 * x1
        sums[t, BEFORE + 1] += k01 * x0 + k11 * x1


@njit(nogil=True, error_model="numpy", cache=True)
def draw_shift(kind, sums, key, shift):
    """Draw d, given what transitions say; ``sums`` are used up."""
    T = len(sums)
    for row in range(T):
        t = _U(row)
        shift[t, 0], shift[t, 1] = -sums[t, NOW], -sums[t, NOW + 1]
        if row + 1 < T:
            after = _U(row + 1)
            shift[t, 0] += sums[after, BEFORE]
            shift[t, 1] += sums[after, BEFORE + 1]
            for k in range(_U(3)):
                sums[t, IN + k] += sums[after, OUT + k]
    state = stream(key, 0)
    if kind == 0:
        for row in range(1, T):
            t, before = _U(row), _U(row - 1)
            ratio = sums[t, CROSS] / sums[before, IN]
            sums[t, IN] -= ratio * sums[t, CROSS]
            shift[t, 0] -= ratio * shift[before, 0]
        d = 0.0
        for back in range(T):
            t = _U(T - 1 - back)
            pull = shift[t, 0] - (sums[_U(T - back), CROSS] * d if back else 0.0)
            state, z, _ = normal_pair(state)
            d = pull / sums[t, IN] + z / math.sqrt(sums[t, IN])
            shift[t, 0] = d
        return
    for row in range(1, T):
        _eliminate(sums, shift, _U(row), _U(row - 1))
    d0, d1 = 0.0, 0.0
    for back in range(T):
        t = _U(T - 1 - back)
        r0, r1 = shift[t, 0], shift[t, 1]
        if back:
            n = _U(T - back)
            r0 -= sums[n, CROSS] * d0 + sums[n, CROSS + 2] * d1
            r1 -= sums[n, CROSS + 1] * d0 + sums[n, CROSS + 3] * d1
        state, z0, z1 = normal_pair(state)
        l00 = math.sqrt(sums[t, IN])
        l01 = sums[t, IN + 1] / l00
        l11 = math.sqrt(max(sums[t, IN + 2] - l01 * l01, 1e-14 * sums[t, IN + 2]))
        y0 = r0 / l00
        y1 = (r1 - l01 * y0) / l11
        d1 = (y1 + z1) / l11
        d0 = (y0 + z0 - l01 * d1) / l00
        shift[t, 0], shift[t, 1] = d0, d1


@njit(nogil=True, error_model="numpy", inline="always")
def _eliminate(sums, shift, t, before):
    """Take what the moment before says into account; blocks are 2 x 2."""
    p00, p01, p11 = sums[before, IN], sums[before, IN + 1], sums[before, IN + 2]
    det = max(p00 * p11 - p01 * p01, 1e-14 * p00 * p11)
    i00, i01, i11 = p11 / det, -p01 / det, p00 / det
    o00, o01, o10, o11 = sums[t, CROSS], sums[t, CROSS + 1], sums[t, CROSS + 2], sums[t, CROSS + 3]
    a00, a01 = o00 * i00 + o01 * i01, o00 * i01 + o01 * i11
    a10, a11 = o10 * i00 + o11 * i01, o10 * i01 + o11 * i11
    sums[t, IN] -= a00 * o00 + a01 * o01
    sums[t, IN + 1] -= a00 * o10 + a01 * o11
    sums[t, IN + 2] -= a10 * o10 + a11 * o11
    shift[t, 0] -= a00 * shift[before, 0] + a01 * shift[before, 1]
    shift[t, 1] -= a10 * shift[before, 0] + a11 * shift[before, 1]


@njit(nogil=True, error_model="numpy", cache=True)
def move(chunk, kind, shift, timescale, loading, timescales, factor, paths):
    """Add the shift to a factor, and take it from the paths of all series, at some moments."""
    slope = timescale / _ROOT3
    for row in range(chunk[0], chunk[1]):
        t = _U(row)
        factor[t, 0] += shift[t, 0]
        if kind:
            factor[t, 1] += slope * shift[t, 1]
    for s in range(len(loading)):
        c, slope = loading[s], timescales[s] / _ROOT3
        if c == 0.0:
            continue
        for row in range(chunk[0], chunk[1]):
            t = _U(row)
            paths[s, t, 0] -= c * shift[t, 0]
            if kind:
                paths[s, t, 1] -= c * slope * shift[t, 1]
