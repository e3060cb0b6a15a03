"""Factors of time given loadings and the series' own paths: paths, and calendar factors.

Of one factor, every moment has evidence from all its observations: a precision and a pull. Given
that, a factor that is a path is one filter and one draw backwards; its timescale is moved before by
Metropolis steps, the path integrated out. Calendar factors gather the same evidence by cycles, for
strengths, and by slots, for profiles.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from noisewise.engine import paths
from noisewise.engine.arrays import Array, Ints
from noisewise.engine.gibbs.series.draw import SeriesDraw, SeriesStep, SeriesWorkspace
from noisewise.engine.random import normal_pair, stream, uniform

FACTORS, CALENDAR = 201, 202  # streams
TRIES = 2  # proposals of a timescale in every sweep
LEAST_STEP, MOST_STEP = 0.03, 1.5  # stds of proposals over logarithms: of all sizes, none is tuned
PROFILE_STEPS = 0.2, 2.0  # timescales of profiles: in slots, and in cycles
# Log-normal priors of the timescale of strengths, in cycles, and of their variance.
STRENGTH_TIMESCALE, STRENGTH_VARIANCE = (math.log(5.0), 1.0), (-2.0, 1.5)
_U = np.uintp
_ONE = np.uintp(1)


class Timescales(NamedTuple):
    """Between which timescales paths may forget."""

    shortest: float
    longest: float


class TimeFactors(SeriesStep):
    """Draw all factors of time, one after the other."""

    timescales: Timescales
    starts: Ints
    evidence: Array
    room: tuple[Array, Array, Array]
    left: Array
    weights: Array

    def __init__(self, work: SeriesWorkspace, timescales: Timescales) -> None:
        super().__init__(work)
        self.timescales = timescales
        self.starts = self.data.starts[-1]
        self.calendar = [
            (column, season, cycles, slots, *season.places(self.data.stamps))
            for column, season, cycles, slots in self.spec.calendar()
        ]
        T = work.n_times
        self.evidence = np.empty((2, T))
        self.room = np.empty((T, 2)), np.empty((T, 3)), np.empty((T, 2))

    def _draw(self, draw: SeriesDraw) -> None:
        work = self.work
        own = draw.paths[work.which, work.times, 0]
        residual = work.values - own - self._explained(draw)
        self.left = residual[work.by_time]
        self.weights = work.precision[work.by_time]
        for k in range(self.spec.rank):
            self._gather(draw, k)
            draw.factor_timescales[k] = draw_factor(
                *self.evidence, work.gaps, self.spec.kind, draw.factor_timescales[k],
                *self.timescales, work.key(draw, FACTORS, k), *self.room,
            )  # fmt: skip
            draw.slopes[:, k] = self.room[2][:, 1]
            self._put(draw, k, self.room[2][:, 0])
        for number in range(len(self.calendar)):
            self._draw_calendar(draw, number)

    def _draw_calendar(self, draw: SeriesDraw, number: int) -> None:
        """Draw strengths and profile of a calendar factor."""
        column, season, cycles, slots, cycle, slot = self.calendar[number]
        rng, settings = self.work.rng(draw, CALENDAR, number), draw.calendar_settings[number]
        self._gather(draw, column)
        h = draw.profiles[slots][slot]
        told = self._told(cycle, h, season.n_cycles)
        settings[:2], draw.strengths[cycles] = draw_strengths(*told, settings[:2], rng)
        d = draw.strengths[cycles][cycle]
        settings[2], draw.profiles[slots] = draw_profile(
            *self._told(slot, d, season.n_slots), settings[2], rng
        )
        self._put(draw, column, d * draw.profiles[slots][slot])

    def _told(self, place: Ints, by: Array, n: int) -> tuple[Array, Array]:
        """Sum evidence over the moments of a cycle or a slot, whose factor is times ``by``."""
        precision, pull = self.evidence
        sums = (np.bincount(place, told, n) for told in (precision * by * by, pull * by))
        first, second = (one.astype(np.float64) for one in sums)
        return first, second

    def _explained(self, draw: SeriesDraw) -> Array:
        """Return what loadings, factors and biases make of every observation."""
        work, out = self.work, np.empty(len(self.data))
        work.over(
            self.data.series.tasks, explain, self.data.series.starts, work.times, draw.loadings,
            draw.factors, out,
        )  # fmt: skip
        return out

    def _gather(self, draw: SeriesDraw, column: int) -> None:
        """Sum the evidence of every moment for one factor."""
        loading = np.ascontiguousarray(draw.loadings[:, column])
        factor = np.ascontiguousarray(draw.factors[:, column])
        self.work.over(
            self.work.chunks, gather, self.starts, self.work.at_time, loading, self.weights,
            self.left, factor, *self.evidence,
        )  # fmt: skip

    def _put(self, draw: SeriesDraw, column: int, new: Array) -> None:
        """Take over a factor, and take what it explains from what is left."""
        loading = np.ascontiguousarray(draw.loadings[:, column])
        change = new - draw.factors[:, column]
        draw.factors[:, column] = new
        self.work.over(
            self.work.chunks, take, self.starts, self.work.at_time, loading, change, self.left
        )


@njit(nogil=True, error_model="numpy", fastmath={"contract"}, cache=True)
def explain(chosen, starts, times, loadings, factors, out):
    """Fill in what loadings and factors make of every observation of the chosen series."""
    width = _U(factors.shape[1])
    for row in chosen:
        s = _U(row)
        for k in range(starts[s], starts[s + _ONE]):
            n, t = _U(k), _U(times[_U(k)])
            total = loadings[s, width]
            for d in range(width):
                total += loadings[s, d] * factors[t, d]
            out[n] = total


@njit(nogil=True, error_model="numpy", cache=True)
def gather(chunk, starts, which, loading, weights, left, factor, precision, pull):
    """Fill in the evidence for a factor at some moments."""
    for row in range(chunk[0], chunk[1]):
        t = _U(row)
        a, b = 0.0, 0.0
        for k in range(starts[t], starts[t + _ONE]):
            n = _U(k)
            l = loading[_U(which[n])]  # noqa: E741
            w = weights[n] * l
            a += w * l
            b += w * left[n]
        precision[t], pull[t] = a, b + a * factor[t]


@njit(nogil=True, error_model="numpy", cache=True)
def take(chunk, starts, which, loading, change, left):
    """Take the change of a factor from what is left at some moments."""
    for row in range(chunk[0], chunk[1]):
        t = _U(row)
        for k in range(starts[t], starts[t + _ONE]):
            left[_U(k)] -= loading[_U(which[_U(k)])] * change[t]


@njit(nogil=True, error_model="numpy", cache=True)
def draw_factor(
    precision, pull, gaps, kind, timescale, shortest, longest, key, means, spreads, out
):
    """Move the timescale of a path of variance 1, and draw the path; return the timescale."""
    state, T = stream(key, 0), len(precision)
    score = paths.log_likelihood(0, T, gaps, precision, pull, kind, timescale, 1.0)
    for _ in range(TRIES):
        state, size = uniform(state)
        state, z, _ = normal_pair(state)
        state, chance = uniform(state)
        new = timescale * math.exp(LEAST_STEP * (MOST_STEP / LEAST_STEP) ** size * z)
        if not shortest <= new <= longest:
            continue
        new_score = paths.log_likelihood(0, T, gaps, precision, pull, kind, new, 1.0)
        if math.log(chance) < new_score - score:
            timescale, score = new, new_score
    paths.draw_path(0, T, gaps, precision, pull, kind, timescale, 1.0, state, means, spreads, out)
    return timescale


def draw_strengths(
    precision: Array, pull: Array, settings: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Move timescale and variance of strengths around 1, and draw them, a number per cycle."""
    n = len(precision)
    gaps, pull = np.ones(n), pull - precision  # of what is beyond 1
    new = settings * np.exp(np.array([0.4, 0.5]) * rng.standard_normal(2))

    def score(timescale: float, variance: float) -> float:
        found = paths.log_likelihood(0, n, gaps, precision, pull, 0, timescale, variance)
        for value, (mean, std) in zip(
            (timescale, variance), (STRENGTH_TIMESCALE, STRENGTH_VARIANCE), strict=True
        ):
            found -= 0.5 * ((math.log(value) - mean) / std) ** 2
        return float(found)

    if math.log(rng.uniform()) < score(*new) - score(*settings):
        settings = new
    timescale, variance = settings.tolist()
    return settings, 1.0 + _path(precision, pull, gaps, timescale, variance, rng)


def draw_profile(
    precision: Array, pull: Array, timescale: float, rng: np.random.Generator
) -> tuple[float, Array]:
    """Move the timescale of a profile, and draw it, a number per slot."""
    n = len(precision)
    gaps = np.ones(n)
    new = timescale * math.exp(0.4 * rng.standard_normal())
    if PROFILE_STEPS[0] <= new <= PROFILE_STEPS[1] * n:
        before, after = (
            paths.log_likelihood(0, n, gaps, precision, pull, 0, one, 1.0)
            for one in (timescale, new)
        )
        if math.log(rng.uniform()) < after - before:
            timescale = new
    return timescale, _path(precision, pull, gaps, timescale, 1.0, rng)


def _path(
    precision: Array, pull: Array, gaps: Array, timescale: float, variance: float,
    rng: np.random.Generator,
) -> Array:  # fmt: skip
    """Draw an OU path of equal steps."""
    n = len(precision)
    state = np.uint64(rng.integers(2**63))
    out = np.empty((n, 2))
    paths.draw_path(
        0, n, gaps, precision, pull, 0, timescale, variance, state, np.empty((n, 2)),
        np.empty((n, 3)), out,
    )  # fmt: skip
    return np.ascontiguousarray(out[:, 0])
