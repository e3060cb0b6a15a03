"""What goes on in time: temporal effects of ratings, and the paths of series.

Effects of ratings (moods, fashions) are AR(1) over a row's observations in the order of time:

    x_t = phi x_(t-1) + N(0, v (1 - phi^2)),   stationary variance v,   one step per observation

A series has an Ornstein-Uhlenbeck process with a timescale, an amplitude and maybe a noise of its
own; a timescale is uniform over its logarithm. Effects and paths would pin their settings. So these
are moved by Metropolis steps over logarithms, by the likelihood of the residuals alone, which the
Kalman filter has. For series, steps are of all sizes, so that none must be tuned.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from noisewise.engine import state_space
from noisewise.engine.arrays import Array, Floats, Ints, Values
from noisewise.engine.data import Data
from noisewise.engine.gibbs import sweep
from noisewise.engine.gibbs.steps.variances import low_rank_variances
from noisewise.engine.gibbs.sweep import EFFECT_VARIANCE
from noisewise.engine.random import normal_pair, stream, uniform
from noisewise.engine.state_space import path_log_likelihood

SETTINGS_FROM = 8  # sweep from which phi and variance are drawn
SETTINGS_PRIOR = np.array([1.0, 1.5])  # std of logit phi, and of the log of the variance
AMPLITUDE_SHAPE, AMPLITUDE_RATE = 1.0, 0.01  # inverse Gamma prior of amplitudes
NOISE_SHAPE, NOISE_LEVEL = 2.0, 0.01  # inverse Gamma prior of a series' noise, and its mean
# A mean that is learned would go to zero: a path that forgets at once passes for noise.
TRIES = 4  # proposals in every sweep
LEAST_STEP, MOST_STEP = 0.03, 1.5  # stds of proposals
_U = np.uintp
_ONE = np.uintp(1)


class TemporalEffect(sweep.Step[sweep.RatingDraw]):
    """Draw a temporal effect: phi and variance, then its values, taken from the residual."""

    joins = sweep.ALL_FROM

    def __init__(self, work: sweep.Workspace, number: int) -> None:
        super().__init__(work, sweep.EFFECTS[number][0])
        self.number = number

    def _draw(self, draw: sweep.RatingDraw) -> None:
        if draw.epoch >= SETTINGS_FROM:
            self._draw_settings(draw)
        phi, variance = phi_and_variance(draw.temporal_settings[[self.number]])
        self._draw_effect(
            draw, phi[0], variance[0], self.work.key(draw, sweep.TEMPORAL, self.number)
        )

    def _draw_settings(self, draw: sweep.RatingDraw) -> None:
        """Move phi and variance by one Metropolis step."""
        work, number = self.work, self.number
        rng = work.rng(draw, sweep.TEMPORAL_SETTINGS, number)
        old = draw.temporal_settings[number]
        new = old + draw.proposals[1 + number] * rng.standard_normal(2)
        before, after = self._scores(draw, *phi_and_variance(np.array([old, new])))
        ratio = after - before + settings_prior(number, new) - settings_prior(number, old)
        accepted = math.log(rng.uniform()) < ratio
        if accepted:
            draw.temporal_settings[number] = new
        work.tune(draw, 1 + number, float(accepted))

    def _draw_effect(
        self, draw: sweep.RatingDraw, phi: float, variance: float, key: np.uint64
    ) -> None:
        """Draw the values at observations."""
        data, work, mode = self.data, self.work, self.mode
        work.over(
            data.tasks[mode], state_space.draw_ar1, data.starts[mode], data.index[mode],
            work.residual, draw.temporal[self.number], work.root, phi, variance, key,
        )  # fmt: skip

    def _scores(self, draw: sweep.RatingDraw, phi: Values, variance: Values) -> Values:
        """Log-likelihood of the residuals for each pair of phi and variance."""
        data, work, mode = self.data, self.work, self.mode
        scores = np.zeros((data.shape[mode], 2))
        work.over(
            data.tasks[mode], state_space.ar1_log_likelihood, data.starts[mode], data.index[mode],
            work.residual, draw.temporal[self.number], work.root, phi, variance, scores,
        )  # fmt: skip
        return np.asarray(scores.sum(axis=0))


def phi_and_variance(settings: Values) -> tuple[Values, Values]:
    """Return phi and stationary variance of settings: a logit, and a logarithm."""
    return 1.0 / (1.0 + np.exp(-settings[:, 0])), np.exp(settings[:, 1])


def settings_prior(number: int, settings: Array) -> float:
    """Log density of phi and variance of an effect, up to a constant."""
    phi = sweep.EFFECTS[number][1]
    away = settings - np.array([math.log(phi / (1.0 - phi)), math.log(EFFECT_VARIANCE)])
    return -0.5 * float(((away / SETTINGS_PRIOR) ** 2).sum())


def gaps(draw: sweep.RatingDraw, data: Data, mode: int) -> Floats:
    """Return the effect of time expected in every gap of a row's sequence (see ``Timeline``)."""
    starts, index = data.starts[mode], data.index[mode]
    rows = np.repeat(np.arange(data.shape[mode]), np.diff(starts))
    after = np.arange(len(index)) + rows  # the gap before each observation; the next one is after
    total = np.zeros(len(index) + data.shape[mode], dtype=np.float32)
    phis, _ = phi_and_variance(draw.temporal_settings)
    for (own, _), phi, effect in zip(sweep.EFFECTS, phis, draw.temporal, strict=True):
        if own != mode:
            continue
        both = np.zeros_like(total)
        both[after] += effect[index]
        both[after + 1] += effect[index]
        weight = np.full(len(total), np.sqrt(phi) / (1.0 + phi), dtype=np.float32)
        ends = starts + np.arange(len(starts))
        weight[ends[:-1]] = weight[ends[1:] - 1] = np.sqrt(phi)
        total += weight * both
    return total


def effect_variances(settings: Floats, mode: int) -> tuple[float, float]:
    """Variance of the effect of time where nothing is known of it, and given both neighbours."""
    both = zip(sweep.EFFECTS, *(part.tolist() for part in phi_and_variance(settings)), strict=True)
    own = [(phi, variance) for (own_mode, _), phi, variance in both if own_mode == mode]
    return sum(v for _, v in own), sum(v * (1.0 - phi) / (1.0 + phi) for phi, v in own)


class Timescales(NamedTuple):
    """Between which timescales a series may forget."""

    shortest: float
    longest: float


class ObservationNoise(sweep.SeriesStep):
    """Take the variance of every observation from its series, or from the noise factors."""

    def _draw(self, draw: sweep.SeriesDraw) -> None:
        work, data = self.work, self.data

        def fill(part: slice) -> None:
            if self.spec.noise_rank == 0:
                work.noise[part] = draw.variances[data.series.which[part]]
            else:
                low_rank_variances(data.places[:, part], draw.noise, work.noise[part])
            work.root[part] = 1.0 / np.sqrt(work.noise[part])

        work.over_observations(fill)


class Process(sweep.SeriesStep):
    """Move timescales, amplitudes and variances of series, their paths integrated out."""

    joins = sweep.SERIES_FROM

    def __init__(self, work: sweep.SeriesWorkspace, timescales: Timescales) -> None:
        super().__init__(work)
        self.timescales, self.noise = timescales, ObservationNoise(work)

    def _draw(self, draw: sweep.SeriesDraw) -> None:
        work, series = self.work, self.data.series
        if draw.epoch == self.joins:  # amplitudes start from the noise
            total = np.add.reduceat(work.noise, series.starts[:-1], dtype=np.float64)
            draw.amplitudes[:] = total / series.counts
        work.over(
            series.tasks, draw_timescales, series.starts, series.gaps,
            self.data.values - draw.fitted, work.noise, *self.timescales, AMPLITUDE_RATE,
            NOISE_LEVEL, self.spec.noise_rank == 0, work.key(draw, sweep.TIMESCALES),
            draw.timescales, draw.amplitudes, draw.variances,
        )  # fmt: skip
        self.noise(draw)


class Paths(sweep.SeriesStep):
    """Draw the paths of all series, and take them from the values: rows are to explain the rest."""

    def _draw(self, draw: sweep.SeriesDraw) -> None:
        work, values, series = self.work, self.data.values, self.data.series
        work.over(
            series.tasks, state_space.set_gains, series.starts, series.gaps, work.noise,
            draw.timescales, draw.amplitudes, work.phi, work.innovations, work.gain,
        )  # fmt: skip
        work.over(
            series.tasks, state_space.draw_paths, series.starts, values - draw.fitted, work.noise,
            work.phi, work.innovations, work.gain, work.key(draw, sweep.PATHS), draw.paths,
        )  # fmt: skip
        work.target = values - draw.paths


class Amplitudes(sweep.SeriesStep):
    """Draw amplitudes once more, given the paths."""

    joins = sweep.SERIES_FROM

    def _draw(self, draw: sweep.SeriesDraw) -> None:
        series, phi, rng = self.data.series, self.work.phi, self.work.rng(draw, sweep.AMPLITUDES)
        fresh = self.work.innovations[:-1] / draw.amplitudes[series.which]
        draw.amplitudes[:] = draw_amplitudes(series.starts, draw.paths, phi[:-1], fresh, rng)


class SeriesNoise(sweep.SeriesStep):
    """Draw the variance of every series."""

    def _draw(self, draw: sweep.SeriesDraw) -> None:
        rng, starts = self.work.rng(draw, sweep.NOISE), self.data.series.starts
        draw.variances[:] = draw_variances(starts, self.work.residual, NOISE_LEVEL, rng)


@njit(nogil=True, error_model="numpy", cache=True)
def draw_timescales(
    chosen, starts, gaps, residual, noise, shortest, longest, amplitude_rate, level, own_noise, key,
    timescales, amplitudes, variances,
):  # fmt: skip
    """Move timescales and amplitudes of the chosen series, and with ``own_noise`` their variances.

    A step goes along one of four directions: the timescale; the timescale and the amplitude alike,
    which leaves small steps of the path as they are; the amplitude; the noise.
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
    """Draw amplitudes of all series, given ``x_n = phi_n x_(n-1) + N(0, fresh_n amplitude)``."""
    before = np.append(0.0, paths[:-1])
    told = fresh > 0.0  # where nothing is, as at the same time, there is nothing to learn
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
