"""What comes in after a fit: every kept draw goes on as a Kalman filter, and nothing is trained.

Given the loadings, timescales and variances of a draw, factors, strengths of calendar factors and
the paths of series are one linear Gaussian state. It starts where the draw ends: factors as they
were drawn, the path of a series as its observations say. A moment carries the state on over the
time that has passed; a reading corrects it. Predictions are averaged over the draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from numba import njit

from noisewise.engine import paths
from noisewise.engine.arrays import Array, Ints, Moments
from noisewise.engine.gibbs.series.draw import SeriesSpec
from noisewise.engine.gibbs.series.posterior import SeriesPosterior
from noisewise.engine.training import in_threads
from noisewise.errors import brief

DRAWS = 16  # that go on, at most: their spread is that of what is not known of the model
_U = np.uintp


@dataclass(frozen=True)
class Online:
    """The state of every draw at the last moment that was taken in; arrays are by draw.

    A path has two numbers of the state, a value and a slope; first come those of factors, then
    those of series, and at the end one strength of every calendar factor.
    """

    spec: SeriesSpec
    when: float  # the last moment
    means: Array
    covariances: Array
    loadings: Array  # of series
    timescales: Array  # of paths, factors first
    amplitudes: Array
    variances: Array  # of the noise of series
    slot_noise: Array
    profiles: Array
    calendar_settings: Array

    __repr__ = brief

    @classmethod
    def of(cls, posterior: SeriesPosterior, n_jobs: int = 1) -> Self:
        """Start where the draws of a posterior end."""
        spec, kept = posterior.spec, posterior.draws
        chosen = np.unique(np.linspace(0, len(posterior) - 1, DRAWS).round().astype(int))
        draws = {name: array[chosen].astype(np.float64) for name, array in kept.items()}
        n, many = len(posterior.series), len(chosen)
        timescales = np.concatenate([draws["factor_timescales"], draws["timescales"]], axis=1)
        amplitudes = np.concatenate([np.ones((many, spec.rank)), draws["amplitudes"]], axis=1)
        size = 2 * (spec.rank + n)
        means, covariances = (
            np.zeros((many, size + spec.calendar_rank, *more))
            for more in ((), (size + spec.calendar_rank,))
        )
        means[:, 0 : 2 * spec.rank : 2] = draws["factors"][:, -1, : spec.rank]
        means[:, 1 : 2 * spec.rank : 2] = draws["slopes"][:, -1]
        for k, (_, _, cycles, _) in enumerate(spec.calendar()):
            means[:, size + k] = draws["strengths"][:, cycles.stop - 1]

        def start(draw: int) -> None:
            weights = np.ones(1)
            if spec.tails or spec.seasons:
                weights = posterior.weights(int(chosen[draw]), draws["slot_noise"][draw])
            end_paths(
                posterior.series.starts, posterior.series.time, posterior.values,
                posterior.codes[-1], float(posterior.stamps[-1]), draws["loadings"][draw],
                draws["factors"][draw], spec.kind, draws["timescales"][draw],
                draws["amplitudes"][draw], draws["variances"][draw], weights, 2 * spec.rank,
                means[draw], covariances[draw],
            )  # fmt: skip

        in_threads(start, range(many), n_jobs)
        heavy = posterior.heaviness()[chosen]
        return cls(
            spec, float(posterior.stamps[-1]), means, covariances, draws["loadings"], timescales,
            amplitudes, draws["variances"] * heavy[:, None], draws["slot_noise"],
            draws["profiles"], draws["calendar_settings"],
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.means)

    def at(self, when: float) -> Online:
        """Carry all states on to a later moment."""
        if when < self.when:
            raise ValueError(f"A moment must not be before {self.when}; got {when}.")
        means, covariances = self.means.copy(), self.covariances.copy()
        cycles = np.array([self._cycles(when, column) for column in range(self.spec.calendar_rank)])
        for draw in range(len(self)):
            go_on(
                self.spec.kind, when - self.when, self.timescales[draw], self.amplitudes[draw],
                self.calendar_settings[draw], cycles.astype(np.float64), means[draw],
                covariances[draw],
            )  # fmt: skip
        return self._with(when, means, covariances)

    def given(self, which: Ints, values: Array) -> Online:
        """Correct all states by readings of series at the present moment."""
        means, covariances = self.means.copy(), self.covariances.copy()
        for draw in range(len(self)):
            rows, offsets = self._readings(draw, which)
            noise = self.variances[draw, which] * self._noise(draw)
            correct(rows, values - offsets, noise, means[draw], covariances[draw])
        return self._with(self.when, means, covariances)

    def moments(self, which: Ints) -> Moments:
        """Moments of readings of series at the present moment."""
        totals = np.zeros((3, len(which)))
        square = np.zeros(len(which))
        for draw in range(len(self)):
            rows, offsets = self._readings(draw, which)
            mean = offsets + rows @ self.means[draw]
            totals[0] += mean
            totals[1] += self.variances[draw, which] * self._noise(draw)
            totals[2] += np.einsum("nd,de,ne->n", rows, self.covariances[draw], rows)
            square += mean**2
        mean, noise, spread = totals / len(self)
        epistemic = spread + np.maximum(square / len(self) - mean**2, 0.0)
        return Moments(mean, noise, epistemic)

    def surprise(self, which: Ints, values: Array) -> Array:
        """How far readings are from what is expected of them, in stds."""
        mean, noise, epistemic = self.moments(which)
        return np.asarray((values - mean) / np.sqrt(noise + epistemic))

    def _with(self, when: float, means: Array, covariances: Array) -> Online:
        return Online(
            self.spec, float(when), means, covariances, self.loadings, self.timescales,
            self.amplitudes, self.variances, self.slot_noise, self.profiles,
            self.calendar_settings,
        )  # fmt: skip

    def _cycles(self, when: float, number: int) -> int:
        """Return how many cycles of a calendar factor have passed."""
        season = self.spec.calendar()[number][1]
        now, then = (int(season.places(np.array([t]))[0][0]) for t in (self.when, when))
        return then - now

    def _readings(self, draw: int, which: Ints) -> tuple[npt.NDArray[np.float64], Array]:
        """Return what makes readings of series out of the state, and their biases."""
        rank, loading = self.spec.rank, self.loadings[draw, which]
        rows = np.zeros((len(which), self.means.shape[1]))
        rows[:, 0 : 2 * rank : 2] = loading[:, :rank]
        rows[np.arange(len(which)), 2 * (rank + which)] = 1.0
        first = 2 * (rank + self.loadings.shape[1])
        for k, (column, season, _, slots) in enumerate(self.spec.calendar()):
            slot = int(season.places(np.array([self.when]))[1][0])
            rows[:, first + k] = loading[:, column] * self.profiles[draw, slots.start + slot]
        return rows, loading[:, -1]

    def _noise(self, draw: int) -> float:
        """Return by how much noise is more, or less, at the present moment."""
        if not self.spec.seasons:
            return 1.0
        slot = int(self.spec.seasons[0].places(np.array([self.when]))[1][0])
        return float(self.slot_noise[draw, slot])


@njit(nogil=True, error_model="numpy", cache=True)
def end_paths(
    starts, time, values, times, end, loadings, factors, kind, timescales, amplitudes, variances,
    weights, first, means, covariances,
):  # fmt: skip
    """Fill in the states of the paths of all series at the end, given their observations."""
    width, most = factors.shape[1], 0
    for s in range(len(timescales)):
        most = max(most, starts[s + 1] - starts[s])
    w, pull, gaps = np.empty(most), np.empty(most), np.empty(most)
    filtered, spreads = np.empty((most, 2)), np.empty((most, 3))
    heavy = len(weights) == len(values)
    for s in range(len(timescales)):
        n = starts[s + 1] - starts[s]
        for k in range(n):
            i = starts[s] + k
            total = loadings[s, width]
            for d in range(width):
                total += loadings[s, d] * factors[times[i], d]
            w[k] = (weights[i] if heavy else 1.0) / variances[s]
            pull[k] = w[k] * (values[i] - total)
            gaps[k] = time[i] - time[i - 1] if k else 1.0
        paths.filter_path(
            0, n, gaps, w, pull, kind, timescales[s], amplitudes[s], filtered, spreads
        )
        F = paths.transition(kind, end - time[starts[s] + n - 1], timescales[s])
        m0, m1 = filtered[n - 1, 0], filtered[n - 1, 1]
        at = first + 2 * s
        means[at], means[at + 1] = F[0] * m0 + F[1] * m1, F[2] * m0 + F[3] * m1
        p00, p01, p11 = paths.ahead(F, spreads[n - 1, 0], spreads[n - 1, 1], spreads[n - 1, 2])
        covariances[at, at] = amplitudes[s] * p00
        covariances[at, at + 1] = covariances[at + 1, at] = amplitudes[s] * p01
        covariances[at + 1, at + 1] = amplitudes[s] * p11


@njit(nogil=True, error_model="numpy", cache=True)
def go_on(kind, gap, timescales, amplitudes, settings, cycles, means, covariances):
    """Carry a state on over a gap of time; strengths go on by whole cycles."""
    n = len(timescales)
    first, size = 2 * n, len(means)
    F, fresh = np.zeros((size, 2)), np.zeros((size, 2))  # what a number takes of its pair
    for p in range(n):
        f00, f01, f10, f11, q00, q01, q11 = paths.transition(kind, gap, timescales[p])
        a, b = 2 * p, 2 * p + 1
        F[a, 0], F[a, 1], F[b, 0], F[b, 1] = f00, f01, f10, f11
        fresh[a, 0], fresh[a, 1] = q00 * amplitudes[p], q01 * amplitudes[p]
        fresh[b, 0], fresh[b, 1] = q01 * amplitudes[p], q11 * amplitudes[p]
        m0, m1 = means[a], means[b]
        means[a], means[b] = f00 * m0 + f01 * m1, f10 * m0 + f11 * m1
    half = np.empty((size, size))
    for i in range(size):
        for j in range(first):
            a = j - j % 2
            half[i, j] = F[j, 0] * covariances[i, a] + F[j, 1] * covariances[i, a + 1]
        for j in range(first, size):
            half[i, j] = np.exp(-cycles[j - first] / settings[j - first, 0]) * covariances[i, j]
    for j in range(size):
        for i in range(first):
            a = i - i % 2
            covariances[i, j] = F[i, 0] * half[a, j] + F[i, 1] * half[a + 1, j]
        for i in range(first, size):
            covariances[i, j] = np.exp(-cycles[i - first] / settings[i - first, 0]) * half[i, j]
    for i in range(first):
        a = i - i % 2
        covariances[i, a] += fresh[i, 0]
        covariances[i, a + 1] += fresh[i, 1]
    for k in range(size - first):
        phi = np.exp(-cycles[k] / settings[k, 0])
        means[first + k] = 1.0 + phi * (means[first + k] - 1.0)
        covariances[first + k, first + k] += settings[k, 1] * (1.0 - phi * phi)


@njit(nogil=True, error_model="numpy", cache=True)
def correct(rows, values, noise, means, covariances):
    """Correct a state by readings, one after the other."""
    size = len(means)
    gain = np.empty(size)
    for n in range(len(values)):
        total, expected = noise[n], 0.0
        for i in range(size):
            gain[i] = 0.0
        for j in range(size):
            if rows[n, j] != 0.0:
                expected += rows[n, j] * means[j]
                for i in range(size):
                    gain[i] += covariances[i, j] * rows[n, j]
        for j in range(size):
            total += rows[n, j] * gain[j]
        e = (values[n] - expected) / total
        for i in range(size):
            means[i] += gain[i] * e
            for j in range(size):
                covariances[i, j] -= gain[i] * gain[j] / total
