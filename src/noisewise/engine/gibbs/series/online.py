"""What comes in after a fit: every kept draw goes on as a Kalman filter, and nothing is trained.

Given the loadings, timescales and variances of a draw, factors, strengths of calendar factors and
the paths of series are one linear Gaussian state. It starts where the draw ends: factors as they
were drawn, the path of a series as its observations say. A moment carries the state on over the
time that has passed; a reading corrects it. What later readings say of earlier moments comes back
by the adjoint of the filter (Bryson and Frazier), which keeps a vector for each reading and no
covariance. Predictions are averaged over the draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from noisewise.engine.arrays import Array, Ints, Moments
from noisewise.engine.gibbs.series.draw import SeriesSpec
from noisewise.engine.gibbs.series.filtering import backwards, end_paths, forwards
from noisewise.engine.gibbs.series.posterior import SeriesPosterior
from noisewise.engine.training import in_threads
from noisewise.errors import brief

DRAWS, FEWEST = 16, 4  # that go on: their spread is that of what is not known of the model
NUMBERS = 160_000  # of the covariances of all draws together, beyond which there are fewer
KEPT = 2**24  # numbers kept on the way for the way back; beyond, a run goes in parts


class Timed(NamedTuple):
    """Cells of series in the order of their moments, and what was read there."""

    when: Array
    which: Ints
    values: Array

    @classmethod
    def of(cls, when: Array, which: Ints, values: Array | None = None) -> Timed:
        """Put cells in order; return them as they were if they are."""
        values = np.zeros(len(when)) if values is None else values
        order = np.lexsort([which, when])
        return cls(when[order], which[order], np.asarray(values, dtype=np.float64)[order])

    def part(self, above: float, upto: float) -> Timed:
        """Return the cells of a stretch of time."""
        return self.take(slice(*np.searchsorted(self.when, [above, upto], side="right")))

    def take(self, rows: Any) -> Timed:
        """Return some of the cells."""
        return Timed(self.when[rows], self.which[rows], self.values[rows])


NOTHING = Timed(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0))


class Run(NamedTuple):
    """What a filter says: the state at the end, moments of what was asked, surprises."""

    state: Online
    moments: Moments
    surprises: Array  # of readings, in stds of what was expected of them before


@dataclass(frozen=True)
class Online:
    """The state of every draw at the last moment that was taken in; arrays are by draw.

    A path has one number of the state, or two if it is smooth: a value and a slope. First come
    those of factors, then those of series, and at the end one strength of every calendar factor.
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
        n, wide = len(posterior.series), 1 + spec.kind
        size = wide * (spec.rank + n)
        whole = size + spec.calendar_rank
        many = int(np.clip(NUMBERS // whole**2, FEWEST, DRAWS))
        chosen = np.unique(np.linspace(0, len(posterior) - 1, many).round().astype(int))
        many = len(chosen)
        draws = {name: array[chosen].astype(np.float64) for name, array in kept.items()}
        timescales = np.concatenate([draws["factor_timescales"], draws["timescales"]], axis=1)
        amplitudes = np.concatenate([np.ones((many, spec.rank)), draws["amplitudes"]], axis=1)
        means, covariances = np.zeros((many, whole)), np.zeros((many, whole, whole))
        means[:, 0 : wide * spec.rank : wide] = draws["factors"][:, -1, : spec.rank]
        if spec.kind:
            means[:, 1 : wide * spec.rank : wide] = draws["slopes"][:, -1]
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
                draws["amplitudes"][draw], draws["variances"][draw], weights, wide * spec.rank,
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

    def at_rest(self, when: float) -> Online:
        """Return the state before anything was ever read, at some moment."""
        n, wide = self.timescales.shape[1], 1 + self.spec.kind
        means, covariances = np.zeros_like(self.means), np.zeros_like(self.covariances)
        places = np.arange(wide * n)
        covariances[:, places, places] = np.repeat(self.amplitudes, wide, axis=1)
        strengths = np.arange(wide * n, means.shape[1])
        means[:, strengths] = 1.0
        covariances[:, strengths, strengths] = self.calendar_settings[:, :, 1]
        return replace(self, when=float(when), means=means, covariances=covariances)

    def at(self, when: float) -> Online:
        """Carry all states on to a later moment."""
        return self._run(np.array([float(when)]), NOTHING, NOTHING, 1).state

    def given(self, which: Ints, values: Array) -> Online:
        """Correct all states by readings of series at the present moment."""
        return self.run(Timed(np.full(len(which), self.when), which, values)).state

    def moments(self, which: Ints) -> Moments:
        """Moments of readings of series at the present moment."""
        nothing = np.zeros(len(which))
        return self.run(NOTHING, Timed(self.when + nothing, which, nothing)).moments

    def run(self, read: Timed, asked: Timed = NOTHING, n_jobs: int = 1) -> Run:
        """Take readings in, moment by moment, and tell what all of them say of what is asked.

        Of a run so long that it goes in parts, cells know the readings up to the end of their part.
        """
        moments = np.unique(np.concatenate([read.when, asked.when]))
        cells = len(read.when) + len(asked.when)
        n_parts = min(-(-cells * self.means.shape[1] // KEPT), len(moments))
        state, found = self, list[Run]()
        for part in np.array_split(moments, max(n_parts, 1)):
            ends = (-np.inf if not found else found[-1].state.when, part[-1] if len(part) else 0.0)
            found.append(state._run(part, read.part(*ends), asked.part(*ends), n_jobs))
            state = found[-1].state
        told = zip(*(run.moments for run in found), strict=True)
        surprises = np.concatenate([run.surprises for run in found])
        return Run(state, Moments(*(np.concatenate(part) for part in told)), surprises)

    def _run(self, moments: Array, read: Timed, asked: Timed, n_jobs: int) -> Run:
        if len(moments) and moments[0] < self.when:
            raise ValueError(f"A moment must not be before {self.when}; got {moments[0]}.")
        means, covariances = self.means.copy(), self.covariances.copy()
        gaps = np.diff(moments, prepend=self.when)
        read_from, asked_from = (
            np.searchsorted(part.when, np.append(moments, np.inf)) for part in (read, asked)
        )
        cycles, slots = self._calendar(moments)
        n, many = len(asked.when), len(self)
        mean, noise, spread = np.zeros((3, many, n))
        errors, totals = np.zeros((2, many, len(read.when)))
        at_moment = np.searchsorted(moments, asked.when)

        def go(draw: int) -> None:
            shapes = self.profiles[draw][slots] if slots.size else np.zeros(slots.shape)
            loud = self._noise(draw, moments)
            gains, told = (np.empty((len(part.when), means.shape[1])) for part in (read, asked))
            own = (
                self.spec.kind, self.spec.rank, gaps, cycles, shapes, self.timescales[draw],
                self.amplitudes[draw], self.calendar_settings[draw], self.loadings[draw],
            )  # fmt: skip
            forwards(
                own, loud, self.variances[draw], read_from, read.which, read.values, asked_from,
                asked.which, means[draw], covariances[draw], gains, errors[draw], totals[draw],
                told, mean[draw], spread[draw],
            )  # fmt: skip
            if n and len(read.when):
                backwards(
                    own, read_from, read.which, asked_from, gains, errors[draw], totals[draw],
                    told, mean[draw], spread[draw],
                )  # fmt: skip
            noise[draw] = self.variances[draw, asked.which] * loud[at_moment]

        in_threads(go, range(many), n_jobs)
        middle = mean.mean(axis=0)
        epistemic = np.maximum(spread, 0.0).mean(axis=0) + mean.var(axis=0)
        last = float(moments[-1]) if len(moments) else self.when
        state = replace(self, when=last, means=means, covariances=covariances)
        expected = errors.mean(axis=0) / np.sqrt(totals.mean(axis=0) + errors.var(axis=0))
        return Run(state, Moments(middle, noise.mean(axis=0), epistemic), expected)

    def _calendar(self, moments: Array) -> tuple[Array, Ints]:
        """Return how many cycles pass before each moment, and its places among profiles."""
        calendar = self.spec.calendar()
        cycles = np.zeros((len(moments), len(calendar)))
        slots = np.zeros((len(moments), len(calendar)), dtype=np.int64)
        for k, (_, season, _, own) in enumerate(calendar):
            cycle, slot = season.places(np.append(self.when, moments))
            cycles[:, k], slots[:, k] = np.diff(cycle), own.start + slot[1:]
        return cycles, slots

    def _noise(self, draw: int, moments: Array) -> Array:
        """Return by how much noise is more, or less, at some moments."""
        if not self.spec.seasons:
            return np.ones(len(moments))
        return np.asarray(self.slot_noise[draw][self.spec.seasons[0].places(moments)[1]])
