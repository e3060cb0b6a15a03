"""Gaussian processes of one hidden number, seen through noise: the package's Kalman filter.

    x_n = phi_n x_(n-1) + N(0, innovation_n),   residual_n = x_n + N(0, noise_n)

An Ornstein-Uhlenbeck process over real time has ``x(t) ~ N(0, amplitude)`` and
``corr(x(s), x(t)) = exp(-|s - t| / timescale)``, at any times; AR(1) takes one step
per observation. The filter goes forwards, a smoother or a sampler backwards, over observed times.
The first observation of a series has a phi of zero; x moves by ``gain_n`` times the surprise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from noisewise.engine.arrays import Array, Ints, Values
from noisewise.engine.data import Series
from noisewise.engine.random import normal, stream
from noisewise.engine.training import chunks, in_threads
from noisewise.errors import brief

_U = np.uintp
_ONE = np.uintp(1)


class Process(NamedTuple):
    """An Ornstein-Uhlenbeck process for every series: mean, variance, noise and timescale."""

    mean: Array
    variance: Array
    noise: Array
    timescale: Array

    def __repr__(self) -> str:
        return brief(self)


class Smoothed(NamedTuple):
    """What is known of x, less its mean, at every observation."""

    filtered: Values  # from the observations up to it
    filtered_variance: Values
    mean: Values  # from all
    variance: Values


def log_likelihood(series: Series, process: Process, n_jobs: int = 1) -> tuple[Array, Array]:
    """Log-likelihood of every series, and the sum of its squared surprises.

    These are differences from what observations before say, over their std: 1 on average, if right.
    """
    out, surprise = np.zeros(len(series)), np.zeros(len(series))
    residual, ones = series.values - process.mean[series.which], np.ones(len(series.values))

    def work(chosen: Ints) -> None:
        _log_likelihoods(
            chosen, series.starts, series.gaps, residual, ones, *process[1:], out, surprise
        )

    in_threads(work, series.tasks, n_jobs)
    return out, surprise


def smooth(series: Series, process: Process, n_jobs: int = 1) -> Smoothed:
    """Filter forwards and smooth backwards (Kalman; Rauch, Tung and Striebel)."""
    residual, noise = series.values - process.mean[series.which], process.noise[series.which]
    return smooth_residuals(series, residual, noise, process.timescale, process.variance, n_jobs)


def smooth_residuals(
    series: Series, residual: Values, noise: Values, timescale: Array, amplitude: Array, n_jobs: int
) -> Smoothed:
    """Smooth what is left of series, whose noise is that of every observation."""
    starts, n = series.starts, len(residual)
    phi, innovations, gain = np.empty((3, n), dtype=noise.dtype)
    filtered, means, variances = np.empty((3, n))

    def work(chosen: Ints) -> None:
        set_gains(chosen, starts, series.gaps, noise, timescale, amplitude, phi, innovations, gain)
        smooth_paths(
            chosen, starts, residual, noise, phi, innovations, gain, filtered, means, variances
        )

    in_threads(work, series.tasks, n_jobs)
    return Smoothed(filtered, gain.astype(np.float64) * noise, means, variances)


def at_times(
    series: Series, which: Ints, when: Array, right: Ints, timescale: Array, amplitude: Array,
    smoothed: Smoothed, n_jobs: int = 1,
) -> tuple[Array, Array]:  # fmt: skip
    """Mean and variance of x, less its mean, right before the observations ``right``."""
    mean, variance = np.empty((2, len(when)))

    def work(part: slice) -> None:
        between(
            which[part], when[part], right[part], series.starts, series.time, timescale,
            amplitude, *smoothed, mean[part], variance[part],
        )  # fmt: skip

    in_threads(work, chunks(len(when)), n_jobs)
    return mean, variance


def predict(
    series: Series, process: Process, smoothed: Smoothed, which: Ints, when: Array, *,
    leave_out: bool = False, n_jobs: int = 1,
) -> tuple[Array, Array]:  # fmt: skip
    """Mean and variance of x, without noise, at any times; an observation there may be left out."""
    right = series.place(which, when, n_jobs)
    mean, variance = at_times(
        series, which, when, right, process.timescale, process.variance, smoothed, n_jobs
    )
    inside = np.flatnonzero(right < series.starts[which + 1])
    seen = inside[series.time[right[inside]] == when[inside]]
    at = right[seen]
    mean[seen], variance[seen] = smoothed.mean[at], smoothed.variance[at]
    if leave_out:
        e, noise = series.values[at] - process.mean[which[seen]], process.noise[which[seen]]
        without = 1.0 / (1.0 / variance[seen] - 1.0 / noise)
        mean[seen] = without * (mean[seen] / variance[seen] - e / noise)
        variance[seen] = without
    return process.mean[which] + mean, variance


@njit(inline="always")
def _given_next(mean, variance, phi, innovation, after, after_variance):
    """Return mean and variance of x once the next x is known, up to a variance."""
    ahead = np.float64(phi) * phi * variance + innovation
    weight = phi * variance / ahead
    mean = mean + weight * (after - phi * mean)
    return mean, variance * innovation / ahead + weight * weight * after_variance


@njit(inline="always")
def _filter(start, end, residual, phi, gain, out):
    """Fill in the mean of x given all residuals up to its own."""
    mean = 0.0
    for k in range(start, end):
        n = _U(k)
        mean *= phi[n]
        mean += gain[n] * (residual[n] - mean)
        out[n] = mean


@njit(nogil=True, error_model="numpy", cache=True)
def set_gains(chosen, starts, gaps, noise, timescales, amplitudes, phi, innovations, gain):
    """Fill in how an Ornstein-Uhlenbeck process goes on, and the filter's gain."""
    for row in chosen:
        s = _U(row)
        amplitude, variance = amplitudes[s], 0.0
        gap, f, fresh = -1.0, 0.0, 1.0
        for k in range(starts[s], starts[s + _ONE]):
            n = _U(k)
            if gaps[n] != gap:  # they are mostly alike, and an exponential is slow
                gap = gaps[n]
                f, fresh = math.exp(-gap / timescales[s]), -math.expm1(-2.0 * gap / timescales[s])
            variance = f * f * variance + amplitude * fresh
            full = variance + noise[n]
            phi[n], innovations[n] = f, amplitude * fresh
            gain[n] = variance / full
            variance *= noise[n] / full


@njit(nogil=True, error_model="numpy", cache=True)
def _log_likelihoods(
    chosen, starts, gaps, residual, ones, amplitudes, noise, timescales, out, surprise
):  # fmt: skip
    for row in chosen:
        s = _U(row)
        total, logs, last_log = _surprise(
            starts[s], starts[s + _ONE], gaps, residual, ones, timescales[s], amplitudes[s],
            noise[s],
        )  # fmt: skip
        logs += last_log + (starts[s + _ONE] - starts[s]) * math.log(2.0 * math.pi)
        out[s], surprise[s] = -0.5 * (total + logs), total


@njit(nogil=True, error_model="numpy", cache=True)
def _surprise(first, last, gaps, residual, noise, timescale, amplitude, factor):
    """Return the sum of squared surprises of a series, and logs of their variances in two sums."""
    mean, variance, total, logs, scale = 0.0, 0.0, 0.0, 0.0, 1.0
    gap, f, fresh = -1.0, 0.0, 1.0
    for k in range(first, last):
        n = _U(k)
        if gaps[n] != gap:  # they are mostly alike, and an exponential is slow
            gap = gaps[n]
            f, fresh = math.exp(-gap / timescale), -math.expm1(-2.0 * gap / timescale)
        mean *= f
        variance = f * f * variance + amplitude * fresh
        full = variance + factor * noise[n]
        inverse = 1.0 / full
        e = residual[n] - mean
        total += e * e * inverse
        scale *= full  # one logarithm for many
        if scale < 1e-200 or scale > 1e200:
            logs += math.log(scale)
            scale = 1.0
        mean += variance * inverse * e
        variance *= factor * noise[n] * inverse
    return total, logs, math.log(scale)


@njit(nogil=True, error_model="numpy", cache=True)
def smooth_paths(
    chosen, starts, residual, noise, phi, innovations, gain, filtered, means, variances
):
    """Fill in the mean of x given residuals up to its own, and mean and variance given all."""
    for row in chosen:
        s = _U(row)
        _filter(starts[s], starts[s + _ONE], residual, phi, gain, filtered)
        mean, variance = 0.0, 0.0
        for back in range(starts[s + _ONE] - starts[s]):
            n = _U(starts[s + _ONE] - 1 - back)
            after, after_variance = mean, variance
            mean, variance = np.float64(filtered[n]), np.float64(gain[n]) * noise[n]
            if back:
                mean, variance = _given_next(
                    mean, variance, phi[n + _ONE], innovations[n + _ONE], after, after_variance
                )
            means[n], variances[n] = mean, variance


@njit(nogil=True, error_model="numpy", cache=True)
def between(
    which, when, right, starts, time, timescales, amplitudes, filtered, filtered_variances, means,
    variances, out, out_variance,
):  # fmt: skip
    """Fill in mean and variance of processes at any times, right before observations ``right``."""
    for cell in range(len(which)):
        c, s = _U(cell), _U(which[cell])
        timescale, amplitude = timescales[s], amplitudes[s]
        n = _U(right[c])
        mean, variance = 0.0, np.float64(amplitude)
        if right[c] > starts[s]:
            gap = (when[c] - time[n - _ONE]) / timescale
            mean = math.exp(-gap) * filtered[n - _ONE]
            variance = math.exp(-2.0 * gap) * filtered_variances[n - _ONE]
            variance -= amplitude * math.expm1(-2.0 * gap)
        if right[c] < starts[s + _ONE] and variance > 0.0:
            gap = (time[n] - when[c]) / timescale
            innovation = -amplitude * math.expm1(-2.0 * gap)
            mean, variance = _given_next(
                mean, variance, math.exp(-gap), innovation, means[n], variances[n]
            )
        out[c], out_variance[c] = mean, variance


@njit(nogil=True, error_model="numpy", cache=True)
def ar1_log_likelihood(chosen, starts, index, residual, effect, root, phi, variance, out):
    """Fill in, for the chosen rows, the log-likelihood of each pair of phi and variance of AR(1).

    Residuals are less the effect as it is; row i is visited at ``index[starts[i]:starts[i + 1]]``.
    """
    for row in chosen:
        i = _U(row)
        for option in range(len(phi)):
            f, v = phi[option], variance[option]
            innovation = v * (1.0 - f * f)
            mean, spread, total, scale = 0.0, v, 0.0, 1.0
            for k in range(starts[i], starts[i + _ONE]):
                n = _U(index[k])
                e = np.float64(residual[n]) + effect[n] - mean
                w = np.float64(root[n]) * root[n]
                gain = 1.0 + spread * w
                total += w * e * e / gain
                scale *= gain  # one logarithm for many
                if scale > 1e200:
                    total += math.log(scale)
                    scale = 1.0
                mean = f * (mean + spread * w / gain * e)
                spread = f * f * spread / gain + innovation
            out[i, option] = -0.5 * (total + math.log(scale))


@njit(nogil=True, error_model="numpy", cache=True)
def draw_ar1(chosen, starts, index, residual, effect, root, phi, v, key):
    """Draw AR(1) effects of the chosen rows; what they take up is taken from the residual."""
    longest = 0
    for row in chosen:
        longest = max(longest, starts[_U(row) + _ONE] - starts[_U(row)])
    means, variances = np.empty(longest), np.empty(longest)
    innovation = v * (1.0 - phi * phi)
    for row in chosen:
        i = _U(row)
        state = stream(key, i)
        first, count = starts[i], starts[i + _ONE] - starts[i]
        mean, variance = 0.0, v
        for t in range(count):
            n = _U(index[first + t])
            w = np.float64(root[n]) * root[n]
            gain = 1.0 + variance * w
            mean += variance * w / gain * (np.float64(residual[n]) + effect[n] - mean)
            variance /= gain
            means[_U(t)], variances[_U(t)] = mean, variance
            mean *= phi
            variance = phi * phi * variance + innovation
        after = 0.0
        spare, has_spare = 0.0, False
        for back in range(count):
            t = count - 1 - back
            mean, variance = means[_U(t)], variances[_U(t)]
            if back:
                mean, variance = _given_next(mean, variance, phi, innovation, after, 0.0)
            state, z, spare, has_spare = normal(state, spare, has_spare)
            after = mean + math.sqrt(variance) * z
            n = _U(index[first + t])
            residual[n] += effect[n] - np.float32(after)
            effect[n] = after
