"""Gaussian processes over real time whose state is two numbers, a value and a slope.

    OU (kind 0):          corr(x(s), x(t)) = exp(-|s - t| / timescale): rough; the slope is idle
    Matern 3/2 (kind 1):  corr = (1 + a) exp(-a), a = sqrt(3) |s - t| / timescale: smooth

In units of the amplitude, the variance of x, both states have the identity for covariance, and

    state_n = F state_(n-1) + N(0, I - F F')

What is seen of x comes as evidence: at step n a precision, 0 where nothing is seen, and a pull,
precision times value. The filter goes forwards, a smoother or a sampler backwards.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from noisewise.engine.random import normal_pair

KINDS = {"ou": 0, "matern32": 1}
_ROOT3 = math.sqrt(3.0)
_U = np.uintp
_ONE = np.uintp(1)


@njit(nogil=True, error_model="numpy", cache=True)
def transition(kind, gap, timescale):
    """Return F (four numbers) and I - FF' (three) of a gap."""
    if kind == 0:
        a = gap / timescale
        return math.exp(-a), 0.0, 0.0, 0.0, -math.expm1(-2.0 * a), 0.0, 1.0
    a = _ROOT3 * gap / timescale
    if a > 100.0:
        return 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0
    e, b = math.exp(-a), 2.0 * a
    square = e * e
    if b < 0.1:  # exp(b) - 1 - b - b^2 / 2, term by term: their difference would be lost
        q = 1.0 + b / 6.0 * (1.0 + b / 7.0 * (1.0 + b / 8.0))
        q = b * b * b / 6.0 * (1.0 + b / 4.0 * (1.0 + b / 5.0 * q))
    else:
        q = math.exp(b) - 1.0 - b - 0.5 * b * b
    slope = square * (math.expm1(b) + b - 0.5 * b * b)
    return (
        e * (1.0 + a), e * a, -e * a, e * (1.0 - a), square * q, 2.0 * square * a * a, slope,
    )  # fmt: skip


@njit(nogil=True, error_model="numpy", inline="always")
def ahead(F, p00, p01, p11):
    """Return the covariance of the next state, given that of this one."""
    f00, f01, f10, f11, q00, q01, q11 = F
    a0, a1 = f00 * p00 + f01 * p01, f00 * p01 + f01 * p11
    b0, b1 = f10 * p00 + f11 * p01, f10 * p01 + f11 * p11
    return a0 * f00 + a1 * f01 + q00, a0 * f10 + a1 * f11 + q01, b0 * f10 + b1 * f11 + q11


@njit(nogil=True, error_model="numpy", inline="always")
def given_value(full, w, amplitude, p00, p01, p11):
    """Return the covariance of a state once x is seen with precision w."""
    p11 -= w * amplitude / full * p01 * p01
    p00, p01 = p00 / full, p01 / full
    return p00, p01, max(p11, p01 * p01 / p00)


@njit(nogil=True, error_model="numpy", cache=True)
def log_likelihood(first, last, gaps, precision, pull, kind, timescale, amplitude):
    """Log-likelihood of the evidence of some steps, up to what does not depend on the process."""
    m0, m1, p00, p01, p11 = 0.0, 0.0, 1.0, 0.0, 1.0
    F = transition(kind, 1.0, timescale)
    gap, total, scale, logs = 1.0, 0.0, 1.0, 0.0
    for k in range(first, last):
        n = _U(k)
        if k > first:
            if gaps[n] != gap:  # they are mostly alike, and an exponential is slow
                gap = gaps[n]
                F = transition(kind, gap, timescale)
            m0, m1 = F[0] * m0 + F[1] * m1, F[2] * m0 + F[3] * m1
            p00, p01, p11 = ahead(F, p00, p01, p11)
        w = precision[n]
        if w > 0.0:
            full = 1.0 + w * amplitude * p00  # variance of the surprise, times w
            e = pull[n] - w * m0
            gain = e / full
            total -= e * gain / w
            scale *= full  # one logarithm for many
            if scale > 1e200:
                logs += math.log(scale)
                scale = 1.0
            m0 += amplitude * p00 * gain
            m1 += amplitude * p01 * gain
            p00, p01, p11 = given_value(full, w, amplitude, p00, p01, p11)
    return 0.5 * (total - logs - math.log(scale))


@njit(nogil=True, error_model="numpy", cache=True)
def filter_path(first, last, gaps, precision, pull, kind, timescale, amplitude, means, spreads):
    """Fill in what evidence up to each step says of its state.

    That is a mean (two numbers) and a covariance (three, in units of the amplitude).
    """
    m0, m1, p00, p01, p11 = 0.0, 0.0, 1.0, 0.0, 1.0
    F = transition(kind, 1.0, timescale)
    gap = 1.0
    for k in range(first, last):
        n = _U(k)
        if k > first:
            if gaps[n] != gap:
                gap = gaps[n]
                F = transition(kind, gap, timescale)
            m0, m1 = F[0] * m0 + F[1] * m1, F[2] * m0 + F[3] * m1
            p00, p01, p11 = ahead(F, p00, p01, p11)
        w = precision[n]
        if w > 0.0:
            full = 1.0 + w * amplitude * p00
            gain = amplitude * (pull[n] - w * m0) / full
            m0, m1 = m0 + p00 * gain, m1 + p01 * gain
            p00, p01, p11 = given_value(full, w, amplitude, p00, p01, p11)
        means[n, 0], means[n, 1] = m0, m1
        spreads[n, 0], spreads[n, 1], spreads[n, 2] = p00, p01, p11


@njit(nogil=True, error_model="numpy", cache=True)
def given_next(F, m0, m1, p00, p01, p11, x0, x1, s00, s01, s11):
    """Return mean and covariance of a state, given the next: x, known up to a covariance s."""
    f00, f01, f10, f11 = F[0], F[1], F[2], F[3]
    c00, c01 = p00 * f00 + p01 * f01, p00 * f10 + p01 * f11  # P F'
    c10, c11 = p01 * f00 + p11 * f01, p01 * f10 + p11 * f11
    d00, d01, d11 = ahead(F, p00, p01, p11)
    det = d00 * d11 - d01 * d01
    if not det > 1e-290:
        return m0, m1, p00, p01, p11
    i00, i01, i11 = d11 / det, -d01 / det, d00 / det
    g00, g01 = c00 * i00 + c01 * i01, c00 * i01 + c01 * i11
    g10, g11 = c10 * i00 + c11 * i01, c10 * i01 + c11 * i11
    r0, r1 = x0 - (f00 * m0 + f01 * m1), x1 - (f10 * m0 + f11 * m1)
    h00, h01, h11 = s00 - d00, s01 - d01, s11 - d11
    a0, a1 = g00 * h00 + g01 * h01, g00 * h01 + g01 * h11
    b0, b1 = g10 * h00 + g11 * h01, g10 * h01 + g11 * h11
    return (
        m0 + g00 * r0 + g01 * r1, m1 + g10 * r0 + g11 * r1, max(p00 + a0 * g00 + a1 * g01, 0.0),
        p01 + a0 * g10 + a1 * g11, max(p11 + b0 * g10 + b1 * g11, 0.0),
    )  # fmt: skip


@njit(nogil=True, error_model="numpy", cache=True)
def draw_path(
    first, last, gaps, precision, pull, kind, timescale, amplitude, state, means, spreads, out
):
    """Draw the states of some steps, backwards; means and spreads are filled on the way."""
    filter_path(first, last, gaps, precision, pull, kind, timescale, amplitude, means, spreads)
    root, gap = math.sqrt(amplitude), 1.0
    F = transition(kind, 1.0, timescale)
    x0, x1 = 0.0, 0.0
    for back in range(last - first):
        n = _U(last - 1 - back)
        m0, m1 = means[n, 0], means[n, 1]
        p00, p01, p11 = spreads[n, 0], spreads[n, 1], spreads[n, 2]
        if back:
            if gaps[n + _ONE] != gap:
                gap = gaps[n + _ONE]
                F = transition(kind, gap, timescale)
            if kind == 0:
                f, fresh = F[0], F[4]
                full = f * f * p00 + fresh
                m0, p00 = m0 + f * p00 / full * (x0 - f * m0), p00 * fresh / full
                p01, p11 = 0.0, 1.0
            else:
                m0, m1, p00, p01, p11 = given_next(F, m0, m1, p00, p01, p11, x0, x1, 0.0, 0.0, 0.0)
        state, z0, z1 = normal_pair(state)
        s = math.sqrt(p00)
        tilt = p01 / s if s > 0.0 else 0.0
        x0 = m0 + root * s * z0
        x1 = m1 + root * (tilt * z0 + math.sqrt(max(p11 - tilt * tilt, 0.0)) * z1)
        out[n, 0], out[n, 1] = x0, x1
    return state


@njit(nogil=True, error_model="numpy", cache=True)
def smooth_path(
    first, last, gaps, precision, pull, kind, timescale, amplitude, means, spreads, smoothed, widths
):
    """Fill in what evidence up to each step says of its state, and what all evidence says."""
    filter_path(first, last, gaps, precision, pull, kind, timescale, amplitude, means, spreads)
    x0, x1, s00, s01, s11 = 0.0, 0.0, 0.0, 0.0, 0.0
    for back in range(last - first):
        n = _U(last - 1 - back)
        a0, a1, b00, b01, b11 = x0, x1, s00, s01, s11
        x0, x1 = means[n, 0], means[n, 1]
        s00, s01, s11 = spreads[n, 0], spreads[n, 1], spreads[n, 2]
        if back:
            F = transition(kind, gaps[n + _ONE], timescale)
            x0, x1, s00, s01, s11 = given_next(F, x0, x1, s00, s01, s11, a0, a1, b00, b01, b11)
        smoothed[n, 0], smoothed[n, 1] = x0, x1
        widths[n, 0], widths[n, 1], widths[n, 2] = s00, s01, s11


@njit(nogil=True, error_model="numpy", cache=True)
def at_time(before, after, kind, timescale, left, spread, right, width):
    """Return mean and variance of x between two steps, the variance in units of the amplitude.

    ``before`` and ``after`` are times since the step before and to the next one, infinite where
    there is none; ``left`` and ``spread`` are what evidence up to the step before says of its
    state, ``right`` and ``width`` what all evidence says of the next.
    """
    m0, m1, p00, p01, p11 = 0.0, 0.0, 1.0, 0.0, 1.0
    if before < math.inf:
        F = transition(kind, before, timescale)
        m0, m1 = F[0] * left[0] + F[1] * left[1], F[2] * left[0] + F[3] * left[1]
        p00, p01, p11 = ahead(F, spread[0], spread[1], spread[2])
    if after < math.inf:
        F = transition(kind, after, timescale)
        m0, m1, p00, p01, p11 = given_next(
            F, m0, m1, p00, p01, p11, right[0], right[1], width[0], width[1], width[2]
        )
    return m0, p00
