"""Loadings, the processes and paths of series, and their noise.

A series' path and its loadings pin each other, and so do a path and its timescale. So timescale and
amplitude are moved, and loadings are drawn, with the path integrated out: the filter whitens the
regressors as it whitens the values.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from noisewise.engine import paths
from noisewise.engine.arrays import Array, Ints
from noisewise.engine.gibbs.series.draw import SeriesDraw, SeriesStep, SeriesWorkspace, products
from noisewise.engine.gibbs.series.time_factors import LEAST_STEP, MOST_STEP, Timescales
from noisewise.engine.gibbs.steps.rows import draw as draw_normal
from noisewise.engine.gibbs.steps.rows import factorise
from noisewise.engine.random import gamma, normal_pair, stream, uniform

PROCESS, LOADINGS, SCATTER, OWN, TAILS, SLOT_NOISE = range(204, 210)  # streams
JOINS = 6  # sweep in which the paths of series join in: factors explain first what they can
TRIES = 3  # proposals of a process in every sweep
AMPLITUDE_SHAPE, AMPLITUDE_RATE = 1.0, 0.003  # inverse Gamma prior of amplitudes
LEAST_AMPLITUDE, MOST_AMPLITUDE = 1e-12, 1e4
NOISE_SHAPE, NOISE_RATE = 1.5, 0.005  # inverse Gamma prior of a series' noise
LEAST_NOISE = 1e-7
SLOT_SHAPE = 5.0  # inverse Gamma prior of the noise of slots, whose mean is 1
PRECISION_SHAPE, PRECISION_RATE = 1.0, 0.5  # Gamma prior of the precision of rows
CENTRE_WEIGHT = 1.0  # rows that the prior of their mean, which is 0, is worth
LEAST_FREEDOM, MOST_FREEDOM = 2.1, 200.0
_U = np.uintp
_ONE = np.uintp(1)


class Process(SeriesStep):
    """Move timescales and amplitudes, and sum products of regressors, paths integrated out."""

    def __init__(self, work: SeriesWorkspace, timescales: Timescales) -> None:
        super().__init__(work)
        self.timescales = timescales

    def _draw(self, draw: SeriesDraw) -> None:
        work, series = self.work, self.data.series
        factors = np.column_stack([draw.factors, np.ones(work.n_times)])
        work.over(
            series.tasks, draw_process, series.starts, series.gaps, work.times, work.values,
            work.precision, factors, draw.loadings, self.spec.kind, draw.epoch >= JOINS,
            *self.timescales, work.key(draw, PROCESS), draw.timescales, draw.amplitudes,
            work.grams, work.pulls,
        )  # fmt: skip


class Loadings(SeriesStep):
    """Draw the loadings of every series, its path integrated out."""

    def _draw(self, draw: SeriesDraw) -> None:
        work, series = self.work, self.data.series
        expected = np.broadcast_to(draw.centres[0], draw.loadings.shape)
        if len(draw.rows):
            expected = products(draw.rows, work.rows_of_series)
        work.over(
            series.tasks, draw_loadings, expected, draw.precisions, work.grams, work.pulls,
            work.key(draw, LOADINGS), draw.loadings,
        )  # fmt: skip


class Scatter(SeriesStep):
    """Draw how loadings scatter: around their centre, or the products of rows, which are drawn."""

    def _draw(self, draw: SeriesDraw) -> None:
        rng = self.work.rng(draw, SCATTER)
        if not len(draw.rows):
            draw.centres[0], draw.precisions[:] = draw_centres(draw.loadings, rng)
            return
        places = self.work.rows_of_series
        for mode in range(len(places)):
            part = self.data.part(mode)
            draw.centres[mode], draw.row_precisions[mode] = draw_centres(draw.rows[part], rng)
            others = products(draw.rows, np.delete(places, mode, axis=0))
            told = draw.loadings.copy()
            told[:, -1] -= others[:, -1]
            others[:, -1] = 1.0
            draw.rows[part] = draw_rows(
                places[mode] - part.start, told, others, draw.precisions, draw.centres[mode],
                draw.row_precisions[mode], part.stop - part.start, rng,
            )  # fmt: skip
        squares = ((draw.loadings - products(draw.rows, places)) ** 2).sum(axis=0)
        shape = PRECISION_SHAPE + 0.5 * len(draw.loadings)
        draw.precisions[:] = rng.gamma(shape, 1.0 / (PRECISION_RATE + 0.5 * squares))


class OwnPaths(SeriesStep):
    """Draw the paths of series, and the noise that is left."""

    def _draw(self, draw: SeriesDraw) -> None:
        work, series = self.work, self.data.series
        plain = not (self.spec.tails or self.spec.seasons)
        weights = np.ones(1) if plain else work.precision * draw.variances[work.which]
        work.over(
            series.tasks, draw_own_paths, series.starts, work.times, work.gaps, work.values,
            work.precision, weights, draw.factors, draw.loadings, self.spec.kind,
            draw.epoch >= JOINS, work.key(draw, OWN), draw.timescales, draw.amplitudes,
            draw.variances, draw.paths, work.residual,
        )  # fmt: skip


class Tails(SeriesStep):
    """Draw the weight of every observation, and how heavy the tails are (a scale mixture)."""

    joins = JOINS

    def _draw(self, draw: SeriesDraw) -> None:
        work, rng = self.work, self.work.rng(draw, TAILS)
        nu = float(draw.freedom[0])
        squares = work.residual**2 / draw.variances[work.which]
        if self.spec.seasons:
            squares /= draw.slot_noise[work.slots]
        draw.weights[:] = rng.gamma(0.5 * (nu + 1.0), size=len(squares)) / (0.5 * (nu + squares))
        draw.freedom[0] = draw_freedom(draw.weights, nu, rng)


class SlotNoise(SeriesStep):
    """Draw by how much noise is more, or less, in every slot of the first season."""

    joins = JOINS

    def _draw(self, draw: SeriesDraw) -> None:
        work, rng, n = self.work, self.work.rng(draw, SLOT_NOISE), len(draw.slot_noise)
        squares = work.residual**2 / draw.variances[work.which]
        if self.spec.tails:
            squares *= draw.weights
        rate = SLOT_SHAPE - 1.0 + 0.5 * np.bincount(work.slots, squares, n)
        shape = SLOT_SHAPE + 0.5 * np.bincount(work.slots, minlength=n)
        draw.slot_noise[:] = rate / rng.gamma(shape)


class Precisions(SeriesStep):
    """Set the precision of every observation: noise of its series and its slot, and its weight."""

    def _draw(self, draw: SeriesDraw) -> None:
        work = self.work
        work.precision[:] = 1.0 / draw.variances[work.which]
        if self.spec.tails:
            work.precision *= draw.weights
        if self.spec.seasons:
            work.precision /= draw.slot_noise[work.slots]
        work.root[:] = np.sqrt(work.precision)


@njit(nogil=True, error_model="numpy", cache=True)
def draw_process(
    chosen, starts, gaps, times, values, precision, factors, loadings, kind, joined, shortest,
    longest, key, timescales, amplitudes, grams, pulls,
):  # fmt: skip
    """Move the processes of the chosen series, and sum products of their whitened regressors."""
    width = _U(factors.shape[1])
    most = 0
    for row in chosen:
        most = max(most, starts[_U(row) + _ONE] - starts[_U(row)])
    w, apart, pull = np.empty(most), np.empty(most), np.empty(most)
    for row in chosen:
        s = _U(row)
        first, n = starts[s], starts[s + _ONE] - starts[s]
        state = stream(key, s)
        for k in range(n):
            i = _U(first + k)
            total = 0.0
            for d in range(width):
                total += loadings[s, d] * factors[_U(times[i]), d]
            w[_U(k)], apart[_U(k)] = precision[i], gaps[i]
            pull[_U(k)] = precision[i] * (values[i] - total)
        if joined:
            timescales[s], amplitudes[s] = _move(
                n, apart, w, pull, kind, timescales[s], amplitudes[s], shortest, longest, state
            )
        whiten(
            first, n, apart, w, times, values, factors, kind, timescales[s],
            amplitudes[s] if joined else 0.0, grams[s], pulls[s],
        )  # fmt: skip


@njit(nogil=True, error_model="numpy", cache=True)
def _move(n, gaps, precision, pull, kind, timescale, amplitude, shortest, longest, state):
    """Move timescale and amplitude of a path, which is integrated out, by Metropolis steps."""
    score = _log_prior(amplitude) + paths.log_likelihood(
        0, n, gaps, precision, pull, kind, timescale, amplitude
    )
    for _ in range(TRIES):
        state, way = uniform(state)
        state, size = uniform(state)
        state, z, _ = normal_pair(state)
        state, chance = uniform(state)
        by = math.exp(LEAST_STEP * (MOST_STEP / LEAST_STEP) ** size * z)
        new_timescale = timescale * by if way < 0.67 else timescale
        new_amplitude = amplitude * by if way > 0.33 else amplitude
        if not shortest <= new_timescale <= longest:
            continue
        if not LEAST_AMPLITUDE <= new_amplitude <= MOST_AMPLITUDE:
            continue
        new_score = _log_prior(new_amplitude) + paths.log_likelihood(
            0, n, gaps, precision, pull, kind, new_timescale, new_amplitude
        )
        if math.log(chance) < new_score - score:
            timescale, amplitude, score = new_timescale, new_amplitude, new_score
    return timescale, amplitude


@njit(inline="always")
def _log_prior(amplitude):
    """Log density of the logarithm of an amplitude, up to a constant."""
    return -AMPLITUDE_SHAPE * math.log(amplitude) - AMPLITUDE_RATE / amplitude


@njit(nogil=True, error_model="numpy", fastmath={"contract"}, cache=True)
def whiten(
    first, n, gaps, precision, times, values, factors, kind, timescale, amplitude, gram, pull
):
    """Fill in products of the regressors of a series, and of its values, whitened by the filter."""
    width = _U(factors.shape[1])
    m0, m1, e = np.zeros(factors.shape[1]), np.zeros(factors.shape[1]), np.empty(width)
    gram[:], pull[:] = 0.0, 0.0
    y0, y1, p00, p01, p11, gap = 0.0, 0.0, 1.0, 0.0, 1.0, 1.0
    F = paths.transition(kind, 1.0, timescale)
    for k in range(n):
        i = _U(first + k)
        t, w = _U(times[i]), precision[_U(k)]
        if k:
            if gaps[_U(k)] != gap:
                gap = gaps[_U(k)]
                F = paths.transition(kind, gap, timescale)
            p00, p01, p11 = paths.ahead(F, p00, p01, p11)
        full = 1.0 + w * amplitude * p00
        root = math.sqrt(w / full)
        gain0, gain1 = w * amplitude * p00 / full, w * amplitude * p01 / full
        f00, f01, f10, f11 = F[0], F[1], F[2], F[3]
        for d in range(width):
            a, b = f00 * m0[d] + f01 * m1[d], f10 * m0[d] + f11 * m1[d]
            surprise = factors[t, d] - a
            m0[d], m1[d] = a + gain0 * surprise, b + gain1 * surprise
            e[d] = surprise * root
        a, b = f00 * y0 + f01 * y1, f10 * y0 + f11 * y1
        surprise = values[i] - a
        y0, y1 = a + gain0 * surprise, b + gain1 * surprise
        for a in range(width):
            pull[a] += e[a] * surprise * root
            for b in range(a + _ONE):
                gram[a, b] += e[a] * e[b]
        p00, p01, p11 = paths.given_value(full, w, amplitude, p00, p01, p11)
    for a in range(width):
        for b in range(a):
            gram[b, a] = gram[a, b]


@njit(nogil=True, error_model="numpy", cache=True)
def draw_loadings(chosen, expected, precision, grams, pulls, key, loadings):
    """Draw the loadings of the chosen series, given what is expected of them."""
    width = len(precision)
    A, h, out = np.empty((width, (width + 7) // 8 * 8)), np.empty(width), np.empty(width + 1)
    for row in chosen:
        s = _U(row)
        A[:] = 0.0
        for a in range(_U(width)):
            for b in range(a, _U(width)):
                A[a, b] = grams[s, a, b]
            A[a, a] += precision[a]
            h[a] = pulls[s, a] + precision[a] * expected[s, a]
        factorise(A, _U(width))
        draw_normal(A, h, _U(width), stream(key, s), out)
        for a in range(_U(width)):
            loadings[s, a] = out[a]


def draw_rows(
    row: Ints, told: Array, others: Array, precision: Array, centre: Array, own: Array, n: int,
    rng: np.random.Generator,
) -> Array:  # fmt: skip
    """Draw n rows of a mode, given loadings that scatter around their products with others."""
    weight, pull = np.tile(own, (n, 1)), np.tile(own * centre, (n, 1))
    np.add.at(weight, row, precision * others**2)
    np.add.at(pull, row, precision * others * told)
    return np.asarray(pull / weight + rng.standard_normal(weight.shape) / np.sqrt(weight))


def draw_centres(rows: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw mean and precision of every column of rows (a normal and a Gamma prior)."""
    n, mean = len(rows), rows.mean(axis=0)
    weight = CENTRE_WEIGHT + n
    squares = ((rows - mean) ** 2).sum(axis=0) + CENTRE_WEIGHT * n / weight * mean**2
    shape, rate = PRECISION_SHAPE + 0.5 * n, PRECISION_RATE + 0.5 * squares
    precision = rng.gamma(shape, 1.0 / rate)
    centre = n / weight * mean + rng.standard_normal(len(mean)) / np.sqrt(weight * precision)
    return centre, precision


@njit(nogil=True, error_model="numpy", cache=True)
def draw_own_paths(
    chosen, starts, times, gaps, values, precision, weights, factors, loadings, kind, joined, key,
    timescales, amplitudes, variances, out, residual,
):  # fmt: skip
    """Draw the paths of the chosen series at all times, and the variance of their noise."""
    T, width = len(factors), _U(factors.shape[1])
    w, pull = np.empty(T), np.empty(T)
    means, spreads = np.empty((T, 2)), np.empty((T, 3))
    heavy = len(weights) == len(values)
    for row in chosen:
        s = _U(row)
        first, last = starts[s], starts[s + _ONE]
        state = stream(key, s)
        w[:], pull[:] = 0.0, 0.0
        for k in range(first, last):
            i, t = _U(k), _U(times[_U(k)])
            total = loadings[s, width]
            for d in range(width):
                total += loadings[s, d] * factors[t, d]
            residual[i] = values[i] - total
            w[t] += precision[i]
            pull[t] += precision[i] * residual[i]
        if joined:
            state = paths.draw_path(
                0, T, gaps, w, pull, kind, timescales[s], amplitudes[s], state, means, spreads,
                out[s],
            )  # fmt: skip
        squares = 0.0
        for k in range(first, last):
            i = _U(k)
            residual[i] -= out[s, _U(times[i]), 0]
            squares += residual[i] * residual[i] * (weights[i] if heavy else 1.0)
        state, g = gamma(state, NOISE_SHAPE + 0.5 * (last - first))
        variances[s] = max((NOISE_RATE + 0.5 * squares) / g, LEAST_NOISE)


def draw_freedom(weights: Array, nu: float, rng: np.random.Generator) -> float:
    """Move the degrees of freedom of tails, given weights, by a Metropolis step."""
    n, told = len(weights), float((np.log(weights) - weights).sum())

    def score(nu: float) -> float:  # over the logarithm, with the prior 1 / nu
        half = 0.5 * nu
        return n * (half * math.log(half) - math.lgamma(half)) + half * told

    step = 0.5 / math.sqrt(max(n, 1)) ** 0.5
    new = nu * math.exp(step * rng.standard_normal())
    accepted = math.log(rng.uniform()) < score(new) - score(nu)
    return new if accepted and LEAST_FREEDOM <= new <= MOST_FREEDOM else nu
