"""The Ornstein-Uhlenbeck process of every series: timescale, amplitude and noise, and its path.

Given its path, a few thousand steps of it pin all three. So each is moved by a random walk over
its logarithm that is accepted or refused (Metropolis) by the likelihood of the residuals alone,
which Kalman's filter has. Steps are of all sizes, so that none must be tuned.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from noisewise.engine.arrays import Floats
from noisewise.engine.gibbs.steps.noise import variances as low_rank_variances
from noisewise.engine.gibbs.sweep import (
    AMPLITUDES,
    NOISE,
    PATHS,
    SERIES_FROM,
    TIMESCALES,
    SeriesDraw,
    SeriesStep,
    SeriesWorkspace,
)
from noisewise.engine.random import normal_pair, stream, uniform
from noisewise.engine.series import Array, Ints
from noisewise.engine.state_space import draw_paths, path_log_likelihood, set_gains

AMPLITUDE_SHAPE, AMPLITUDE_RATE = 1.0, 0.01  # inverse Gamma prior of amplitudes
NOISE_SHAPE, NOISE_LEVEL = 2.0, 0.01  # inverse Gamma prior of a series' noise, and its mean
# A mean that is learned would go to zero: a path that forgets at once passes for noise.
TRIES = 4  # proposals in every sweep
LEAST_STEP, MOST_STEP = 0.03, 1.5  # stds of proposals
_U = np.uintp
_ONE = np.uintp(1)


class Timescales(NamedTuple):
    """Between which timescales a series may forget."""

    shortest: float
    longest: float


class ObservationNoise(SeriesStep):
    """Take the variance of every observation from its series, or from the noise factors."""

    def __call__(self, draw: SeriesDraw) -> None:
        """Set variances, and the roots of precisions."""
        work, data = self.work, self.data

        def fill(part: slice) -> None:
            if self.spec.noise_rank == 0:
                work.noise[part] = draw.variances[data.which[part]]
            else:
                low_rank_variances(data.places[:, part], draw.noise, work.noise[part])
            work.root[part] = 1.0 / np.sqrt(work.noise[part])

        work.over_observations(fill)


class Process(SeriesStep):
    """Move timescales, amplitudes and variances of series, their paths integrated out."""

    joins = SERIES_FROM

    def __init__(self, work: SeriesWorkspace, timescales: Timescales) -> None:
        super().__init__(work)
        self.timescales, self.noise = timescales, ObservationNoise(work)

    def __call__(self, draw: SeriesDraw) -> None:
        """Move them; in the first sweep, amplitudes start from the noise."""
        work, series = self.work, self.data.series
        if draw.epoch == self.joins:
            total = np.add.reduceat(work.noise, series.starts[:-1], dtype=np.float64)
            draw.amplitudes[:] = total / series.counts
        work.over(
            series.tasks, draw_timescales, series.starts, series.gaps,
            self.data.values - draw.fitted, work.noise, *self.timescales, AMPLITUDE_RATE,
            NOISE_LEVEL, self.spec.noise_rank == 0, work.key(draw, TIMESCALES), draw.timescales,
            draw.amplitudes, draw.variances,
        )  # fmt: skip
        self.noise(draw)


class Paths(SeriesStep):
    """Draw the paths of all series, and take them from the values: rows are to explain the rest."""

    def __call__(self, draw: SeriesDraw) -> None:
        """Draw them, and set the target."""
        work, values, series = self.work, self.data.values, self.data.series
        work.over(
            series.tasks, set_gains, series.starts, series.gaps, work.noise, draw.timescales,
            draw.amplitudes, work.phi, work.innovations, work.gain,
        )  # fmt: skip
        work.over(
            series.tasks, draw_paths, series.starts, values - draw.fitted, work.noise, work.phi,
            work.innovations, work.gain, work.key(draw, PATHS), draw.paths,
        )  # fmt: skip
        work.target = values - draw.paths


class Amplitudes(SeriesStep):
    """Draw amplitudes once more, given the paths."""

    joins = SERIES_FROM

    def __call__(self, draw: SeriesDraw) -> None:
        """Draw them."""
        work = self.work
        fresh = work.innovations[:-1] / draw.amplitudes[self.data.which]
        draw.amplitudes[:] = draw_amplitudes(
            self.data.series.starts, draw.paths, work.phi[:-1], fresh, work.rng(draw, AMPLITUDES)
        )


class SeriesNoise(SeriesStep):
    """Draw the variance of every series."""

    def __call__(self, draw: SeriesDraw) -> None:
        """Draw them."""
        rng, starts = self.work.rng(draw, NOISE), self.data.series.starts
        draw.variances[:] = draw_variances(starts, self.work.residual, NOISE_LEVEL, rng)


@njit(nogil=True, error_model="numpy", cache=True)
def draw_timescales(
    chosen, starts, gaps, residual, noise, shortest, longest, amplitude_rate, level, own_noise, key,
    timescales, amplitudes, variances,
):  # fmt: skip
    """Move timescales and amplitudes of the chosen series, and with ``own_noise`` their variances.

    A step goes along one of four directions: the timescale; the timescale and the amplitude alike,
    which leaves small steps of the path as they are; the amplitude; the noise. The prior of the
    timescale is uniform over its logarithm, from ``shortest`` to ``longest``.
    """
    directions = 4 if own_noise else 3
    for row in chosen:
        s = _U(row)
        first, last = starts[s], starts[s + _ONE]
        state = stream(key, s)
        timescale, amplitude, factor = timescales[s], amplitudes[s], 1.0
        score = path_log_likelihood(
            first, last, gaps, residual, noise, timescale, amplitude, factor
        )
        score += _log_prior(amplitude, variances[s], amplitude_rate, level, own_noise)
        for _ in range(TRIES):
            state, direction = uniform(state)
            state, size = uniform(state)
            state, z, _ = normal_pair(state)
            state, chance = uniform(state)
            by = math.exp(LEAST_STEP * (MOST_STEP / LEAST_STEP) ** size * z)
            way = int(directions * direction)
            new_timescale = timescale * by if way <= 1 else timescale
            new_amplitude = amplitude * by if way == 1 or way == 2 else amplitude
            new_factor = factor * by if way == 3 else factor
            if not shortest <= new_timescale <= longest:
                continue
            new_score = path_log_likelihood(
                first, last, gaps, residual, noise, new_timescale, new_amplitude, new_factor
            )
            new_score += _log_prior(
                new_amplitude, new_factor * variances[s], amplitude_rate, level, own_noise
            )
            if math.log(chance) < new_score - score:
                timescale, amplitude, factor = new_timescale, new_amplitude, new_factor
                score = new_score
        timescales[s], amplitudes[s] = timescale, amplitude
        variances[s] *= factor


@njit(inline="always")
def _log_prior(amplitude, variance, amplitude_rate, level, own_noise):
    """Log density of the logarithms of amplitude and noise, up to a constant."""
    total = -AMPLITUDE_SHAPE * math.log(amplitude) - amplitude_rate / amplitude
    if own_noise:
        total -= NOISE_SHAPE * math.log(variance) + (NOISE_SHAPE - 1.0) * level / variance
    return total


def draw_amplitudes(
    starts: Ints, paths: Floats, phi: Floats, fresh: Array, rng: np.random.Generator
) -> Array:
    """Draw the amplitudes of all series, given ``x_n = phi_n x_(n-1) + N(0, fresh_n amplitude)``.

    Where nothing is fresh, as at the same time, there is nothing to learn.
    """
    before = np.append(0.0, paths[:-1])
    told = fresh > 0.0
    steps = (paths.astype(np.float64) - phi * before) ** 2
    squares = np.add.reduceat(np.where(told, steps / np.where(told, fresh, 1.0), 0.0), starts[:-1])
    counts = np.add.reduceat(told.astype(np.float64), starts[:-1])
    gammas = rng.gamma(AMPLITUDE_SHAPE + 0.5 * counts)
    return np.asarray((AMPLITUDE_RATE + 0.5 * squares) / gammas)


def draw_variances(starts: Ints, residual: Floats, level: float, rng: np.random.Generator) -> Array:
    """Draw the noise of all series, given what is left; its prior mean is ``level``."""
    squares = np.add.reduceat(residual.astype(np.float64) ** 2, starts[:-1])
    gammas = rng.gamma(NOISE_SHAPE + 0.5 * np.diff(starts))
    return np.asarray(((NOISE_SHAPE - 1.0) * level + 0.5 * squares) / gammas)
