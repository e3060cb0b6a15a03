"""The course of a series: an Ornstein-Uhlenbeck process over real time, seen through noise.

    x(t) ~ N(0, amplitude),   corr(x(s), x(t)) = exp(-|s - t| / length),   residual_n = x(t_n) + e_n

where every observation has a variance of its own, ``noise_n``. Kalman's filter goes forwards, and a
smoother or a sampler goes backwards, over the observed times only. Two numbers say how x goes on
from one observation to the next, ``x_n = fade_n x_(n-1) + N(0, drift_n)``; the first of a series
has a fade of zero, so that series need not be told apart. What is known of x moves by ``gain_n``
times the surprise.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# as numba infers the types

from __future__ import annotations

import math

import numpy as np
from numba import njit

from noisewise.engine.random import normal_pair, stream

_U = np.uintp
_ONE = np.uintp(1)


@njit(nogil=True, error_model="numpy", cache=True)
def set_gains(chosen, starts, gaps, noise, lengths, amplitudes, fade, drift, gain):
    """Fill in how x goes on, and the filter's gain."""
    for row in chosen:
        s = _U(row)
        amplitude, spread = amplitudes[s], 0.0
        gap, phi, fresh = -1.0, 0.0, 1.0
        for k in range(starts[s], starts[s + _ONE]):
            n = _U(k)
            if gaps[n] != gap:  # they are mostly alike, and an exponential is slow
                gap = gaps[n]
                phi, fresh = math.exp(-gap / lengths[s]), -math.expm1(-2.0 * gap / lengths[s])
            spread = phi * phi * spread + amplitude * fresh
            full = spread + noise[n]
            fade[n], drift[n] = phi, amplitude * fresh
            gain[n] = spread / full
            spread *= noise[n] / full


@njit(nogil=True, error_model="numpy", cache=True)
def draw_courses(chosen, starts, residual, noise, fade, drift, gain, key, courses):
    """Draw x at every observation of the chosen series, given residuals."""
    for row in chosen:
        s = _U(row)
        state = stream(key, s)
        _filter(starts[s], starts[s + _ONE], residual, fade, gain, courses)
        value, spare, has_spare = 0.0, 0.0, False
        for back in range(starts[s + _ONE] - starts[s]):
            n = _U(starts[s + _ONE] - 1 - back)
            mean, spread = np.float64(courses[n]), np.float64(gain[n]) * noise[n]
            if back:
                mean, spread = _knowing_next(
                    mean, spread, fade[n + _ONE], drift[n + _ONE], value, 0.0
                )
            if has_spare:
                z, has_spare = spare, False
            else:
                state, z, spare = normal_pair(state)
                has_spare = True
            value = mean + math.sqrt(spread) * z
            courses[n] = value


@njit(nogil=True, error_model="numpy", cache=True)
def smooth(chosen, starts, residual, noise, fade, drift, gain, before, means, spreads):
    """Fill in the mean of x given residuals up to its own, and mean and variance given all."""
    for row in chosen:
        s = _U(row)
        _filter(starts[s], starts[s + _ONE], residual, fade, gain, before)
        mean, spread = 0.0, 0.0
        for back in range(starts[s + _ONE] - starts[s]):
            n = _U(starts[s + _ONE] - 1 - back)
            after, after_spread = mean, spread
            mean, spread = np.float64(before[n]), np.float64(gain[n]) * noise[n]
            if back:
                mean, spread = _knowing_next(
                    mean, spread, fade[n + _ONE], drift[n + _ONE], after, after_spread
                )
            means[n], spreads[n] = mean, spread


@njit(nogil=True, error_model="numpy", cache=True)
def between(
    which, when, right, starts, time, lengths, amplitudes, before, before_spreads, means, spreads,
    out, out_spread,
):  # fmt: skip
    """Fill in mean and variance of x at any times.

    Parameters
    ----------
    which, when, right : int64[:], float64[:], int64[:]
        Series and time of what is asked for, and the first observation that is not before it.
    before, before_spreads, means, spreads : float[:]
        What is known of x at every observation, from those up to it and from all.
    """
    for cell in range(len(which)):
        c, s = _U(cell), _U(which[cell])
        length, amplitude = lengths[s], amplitudes[s]
        n = _U(right[c])
        mean, spread = 0.0, np.float64(amplitude)
        if right[c] > starts[s]:
            gap = (when[c] - time[n - _ONE]) / length
            mean = math.exp(-gap) * before[n - _ONE]
            spread = math.exp(-2.0 * gap) * before_spreads[n - _ONE]
            spread -= amplitude * math.expm1(-2.0 * gap)
        if right[c] < starts[s + _ONE] and spread > 0.0:
            gap = (time[n] - when[c]) / length
            drift = -amplitude * math.expm1(-2.0 * gap)
            mean, spread = _knowing_next(mean, spread, math.exp(-gap), drift, means[n], spreads[n])
        out[c], out_spread[c] = mean, spread


@njit(inline="always")
def _filter(start, end, residual, fade, gain, out):
    """Fill in the mean of x given all residuals up to its own."""
    mean = 0.0
    for k in range(start, end):
        n = _U(k)
        mean *= fade[n]
        mean += gain[n] * (residual[n] - mean)
        out[n] = mean


@njit(inline="always")
def _knowing_next(mean, spread, fade, drift, after, after_spread):
    """Return mean and variance of x once the next x is known, up to a variance."""
    ahead = np.float64(fade) * fade * spread + drift
    weight = fade * spread / ahead
    mean = mean + weight * (after - fade * mean)
    return mean, spread * drift / ahead + weight * weight * after_spread
