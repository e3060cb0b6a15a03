"""How long a series remembers, how far it drifts and how noisy it is, its course integrated out.

Given its course, a few thousand steps of it pin all three. So each is moved by a random walk over
its logarithm that is accepted or refused (Metropolis) by the likelihood of the residuals alone,
which Kalman's filter has. Steps are of all sizes, so that none must be tuned.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# as numba infers the types

from __future__ import annotations

import math

import numpy as np
from numba import njit

from noisewise.engine.arrays import Floats
from noisewise.engine.random import normal_pair, stream, uniform
from noisewise.engine.series import Array, Ints

AMPLITUDE_SHAPE, AMPLITUDE_RATE = 1.0, 0.01  # inverse Gamma prior of amplitudes
NOISE_SHAPE, NOISE_LEVEL = 2.0, 0.01  # inverse Gamma prior of a series' noise, and its mean
# A mean that is learned would go to zero: a course that forgets at once passes for noise.
TRIES = 4  # proposals in every sweep
LEAST_STEP, MOST_STEP = 0.03, 1.5  # stds of proposals
_U = np.uintp
_ONE = np.uintp(1)


@njit(nogil=True, error_model="numpy", cache=True)
def draw_memory(
    chosen, starts, gaps, residual, noise, shortest, longest, amplitude_rate, level, own_noise, key,
    lengths, amplitudes, variances,
):  # fmt: skip
    """Move lengths and amplitudes of the chosen series, and with ``own_noise`` their variances.

    A step goes along one of four directions: the length; the length and the amplitude alike, which
    leaves small steps of the course as they are; the amplitude; the noise. The prior of the length
    is uniform over its logarithm, from ``shortest`` to ``longest``.
    """
    directions = 4 if own_noise else 3
    for row in chosen:
        s = _U(row)
        first, last = starts[s], starts[s + _ONE]
        state = stream(key, s)
        length, amplitude, factor = lengths[s], amplitudes[s], 1.0
        score = _log_likelihood(first, last, gaps, residual, noise, length, amplitude, factor)
        score += _log_prior(amplitude, variances[s], amplitude_rate, level, own_noise)
        for _ in range(TRIES):
            state, direction = uniform(state)
            state, size = uniform(state)
            state, z, _ = normal_pair(state)
            state, chance = uniform(state)
            by = math.exp(LEAST_STEP * (MOST_STEP / LEAST_STEP) ** size * z)
            way = int(directions * direction)
            new_length = length * by if way <= 1 else length
            new_amplitude = amplitude * by if way == 1 or way == 2 else amplitude
            new_factor = factor * by if way == 3 else factor
            if not shortest <= new_length <= longest:
                continue
            new_score = _log_likelihood(
                first, last, gaps, residual, noise, new_length, new_amplitude, new_factor
            )
            new_score += _log_prior(
                new_amplitude, new_factor * variances[s], amplitude_rate, level, own_noise
            )
            if math.log(chance) < new_score - score:
                length, amplitude, factor = new_length, new_amplitude, new_factor
                score = new_score
        lengths[s], amplitudes[s] = length, amplitude
        variances[s] *= factor


@njit(inline="always")
def _log_prior(amplitude, variance, amplitude_rate, level, own_noise):
    """Log density of the logarithms of amplitude and noise, up to a constant."""
    total = -AMPLITUDE_SHAPE * math.log(amplitude) - amplitude_rate / amplitude
    if own_noise:
        total -= NOISE_SHAPE * math.log(variance) + (NOISE_SHAPE - 1.0) * level / variance
    return total


@njit(nogil=True, error_model="numpy", cache=True)
def _log_likelihood(first, last, gaps, residual, noise, length, amplitude, factor):
    """Log density of the residuals of a series, up to a constant; ``factor`` is on the noise."""
    mean, spread, total, logs, scale = 0.0, 0.0, 0.0, 0.0, 1.0
    gap, phi, fresh = -1.0, 0.0, 1.0
    for k in range(first, last):
        n = _U(k)
        if gaps[n] != gap:  # they are mostly alike, and an exponential is slow
            gap = gaps[n]
            phi, fresh = math.exp(-gap / length), -math.expm1(-2.0 * gap / length)
        mean *= phi
        spread = phi * phi * spread + amplitude * fresh
        full = spread + factor * noise[n]
        inverse = 1.0 / full
        e = residual[n] - mean
        total += e * e * inverse
        scale *= full  # one logarithm for many
        if scale < 1e-200 or scale > 1e200:
            logs += math.log(scale)
            scale = 1.0
        mean += spread * inverse * e
        spread *= factor * noise[n] * inverse
    return -0.5 * (total + logs + math.log(scale))


def draw_amplitudes(
    starts: Ints,
    courses: Floats,
    fade: Floats,
    fresh: Array,
    rng: np.random.Generator,
) -> Array:
    """Draw the amplitudes of all series, given their courses.

    Parameters
    ----------
    starts
        Of series s, observations are those from ``starts[s]`` to ``starts[s + 1]``.
    courses, fade, fresh
        ``x_n = fade_n x_(n-1) + N(0, fresh_n amplitude)``; where nothing is fresh, as at the same
        time, there is nothing to learn.
    """
    before = np.append(0.0, courses[:-1])
    told = fresh > 0.0
    steps = (courses.astype(np.float64) - fade * before) ** 2
    squares = np.add.reduceat(np.where(told, steps / np.where(told, fresh, 1.0), 0.0), starts[:-1])
    counts = np.add.reduceat(told.astype(np.float64), starts[:-1])
    gammas = rng.gamma(AMPLITUDE_SHAPE + 0.5 * counts)
    return np.asarray((AMPLITUDE_RATE + 0.5 * squares) / gammas)


def draw_variances(starts: Ints, residual: Floats, level: float, rng: np.random.Generator) -> Array:
    """Draw the noise of all series, given what is left; its prior mean is ``level``."""
    squares = np.add.reduceat(residual.astype(np.float64) ** 2, starts[:-1])
    gammas = rng.gamma(NOISE_SHAPE + 0.5 * np.diff(starts))
    return np.asarray(((NOISE_SHAPE - 1.0) * level + 0.5 * squares) / gammas)
