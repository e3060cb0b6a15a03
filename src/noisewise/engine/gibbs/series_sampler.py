"""The sampler of series, and its posterior: kept draws, and moments of cells at any time.

Paths are not kept: given rows and process of a draw, the path of a series is smoothed from its
observations, which takes less room, and says exactly what its draws would say on average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine import state_space
from noisewise.engine.arrays import Array, Floats, Ints, Moments
from noisewise.engine.data import Series, SeriesData, Spec, as_series
from noisewise.engine.gibbs import sweep
from noisewise.engine.gibbs.posterior import Places, Posterior, Rows, Sums, snapshot, stacked
from noisewise.engine.gibbs.sampler import PROBES, Chain, LaterHalf, Sampler
from noisewise.engine.gibbs.steps import rows, temporal
from noisewise.engine.gibbs.steps.temporal import Timescales
from noisewise.engine.gibbs.steps.variances import LowRankNoise, NormalWishart, low_rank_variances
from noisewise.engine.training import chunks, in_threads

PROCESS = "timescales", "amplitudes", "variances"  # that every series has


class Asked(NamedTuple):
    """Cells to predict; a series never observed is taken to be like those of its sensor."""

    codes: Places  # rows of every mode, time last; one more than there are: one never seen
    which: Ints  # series; -1 where nothing was observed of it
    when: Array  # times; NaN where there is none
    sensor: Ints  # of each cell's series
    sensors: Ints  # of all series that were observed


@dataclass(frozen=True, repr=False)
class SeriesPosterior(Posterior):
    """Kept draws of rows and of the processes of series, with the observations they stand on."""

    codes: Places  # of observations, by series and time; time is the last mode
    values: Floats
    stamps: Array  # times of the rows of the last mode, in order

    @cached_property
    def series(self) -> Series:
        """The observations as series."""
        return as_series(self.codes, self.values, self.stamps, 0)

    def moments(self, asked: Asked, n_jobs: int = 1) -> Moments:
        """Moments of cells, in standardised units."""
        own = _Own.of(self, asked)
        sums = Sums.of(len(asked.when))
        for draw in range(len(self)):
            mean, noise, spread = self._one(draw, asked, own, n_jobs)
            sums.add(slice(None), mean, mean, mean**2 + spread, noise)
        return sums.moments()

    def noise_by_series(self, n_jobs: int = 1) -> Array:
        """Variance of the noise of every series, averaged over its observations and draws."""
        if self.spec.noise_rank == 0:
            return np.asarray(self.draws["variances"].mean(axis=0, dtype=np.float64))
        total = np.zeros(len(self.series))
        for draw in range(len(self)):
            stack = stacked(self._rows(draw))
            variance = _filled(low_rank_variances, n_jobs, self.codes, stack[0], stack[3])
            total += np.add.reduceat(variance.astype(np.float64), self.series.starts[:-1])
        return total / self.series.counts / len(self)

    def _one(self, draw: int, asked: Asked, own: _Own, n_jobs: int) -> tuple[Array, Array, Array]:
        """Mean, noise and the variance of the mean of cells in one draw."""
        modes = self._rows(draw)
        process = [self.draws[name][draw].astype(np.float64) for name in PROCESS]
        stack = stacked(modes)
        mean = _filled(rows.means, n_jobs, asked.codes, *stack[:3]).astype(np.float64)
        amplitude, variance = (_of_series(values, asked) for values in process[1:])
        spread = self.extra(draw, modes, asked.codes) + amplitude
        if len(own.cells):
            middle, width = self._paths(stack, process, own, n_jobs)
            mean[own.cells] += middle
            spread[own.cells] += width - amplitude[own.cells]
        if self.spec.noise_rank:
            low_rank = _filled(low_rank_variances, n_jobs, asked.codes, stack[0], stack[3])
            variance = low_rank.astype(np.float64)
        return mean, variance, spread

    def _paths(
        self, stack: tuple[Any, ...], process: list[Array], own: _Own, n_jobs: int
    ) -> tuple[Array, Array]:
        """Mean and variance of paths at cells, given the observations of their series."""
        timescale, amplitude, variances = (values[own.chosen] for values in process)
        residual = own.values - _filled(rows.means, n_jobs, own.codes, *stack[:3])
        variance = variances[own.series.which].astype(np.float32)
        if self.spec.noise_rank:
            variance = _filled(low_rank_variances, n_jobs, own.codes, stack[0], stack[3])
        smoothed = state_space.smooth_residuals(
            own.series, residual, variance, timescale, amplitude, n_jobs
        )
        return state_space.at_times(
            own.series, own.which, own.when, own.right, timescale, amplitude, smoothed, n_jobs
        )

    def _rows(self, draw: int) -> list[Rows]:
        """Rows of every mode in one draw, and after the last the one for an id never seen."""
        sizes = enumerate(self.shape)
        return [self.rows(draw, m, np.arange(n + 1, dtype=np.int32)) for m, n in sizes]


class _Own(NamedTuple):
    """Cells whose series was observed, and the observations of these series."""

    cells: npt.NDArray[np.intp]
    chosen: Ints
    which: Ints  # among those chosen
    when: Array
    right: Ints
    codes: Places
    values: Floats
    series: Series

    @classmethod
    def of(cls, posterior: SeriesPosterior, asked: Asked) -> _Own:
        own = np.flatnonzero((asked.which >= 0) & ~np.isnan(asked.when))
        chosen, which = np.unique(asked.which[own], return_inverse=True)
        needed = np.isin(posterior.series.which, chosen)
        codes, values = posterior.codes[:, needed], posterior.values[needed]
        series = posterior.series
        if not needed.all():
            starts = np.append(0, np.cumsum(series.counts[chosen]))
            series = Series(starts, series.time[needed], series.values[needed])
        when, many = asked.when[own], len(posterior.stamps) + 1
        place = series.which * many + codes[-1]
        right = np.searchsorted(place, which * many + np.searchsorted(posterior.stamps, when))
        return cls(own, chosen, which, when, right, codes, values, series)


def _filled(kernel: Any, n_jobs: int, codes: Places, firsts: Any, *given: Any) -> Floats:
    """Return what a kernel makes of cells, given parts of the rows of all modes."""
    out = np.empty(codes.shape[1], dtype=np.float32)

    def fill(part: slice) -> None:
        kernel(codes[:, part] + firsts[:, None], *given, out[part])

    in_threads(fill, chunks(len(out)), n_jobs)
    return out


def _of_series(values: Array, asked: Asked) -> Array:
    """Return what each cell's series has; one never observed, the geometric mean of its sensor."""
    most = max(int(asked.sensors.max()), int(asked.sensor.max(initial=0))) + 1
    logs, counts = np.log(values), np.bincount(asked.sensors, minlength=most)
    typical = np.bincount(asked.sensors, logs, most) / np.maximum(counts, 1)
    typical[counts == 0] = logs.mean()
    return np.where(asked.which >= 0, values[asked.which], np.exp(typical)[asked.sensor])


def series_steps(work: sweep.SeriesWorkspace, timescales: Timescales) -> list[sweep.Step[Any]]:
    """Return the steps of series: without their paths, the paths, and what is drawn given them."""
    spec, last = work.spec, work.data.n_modes - 1
    steps: list[sweep.Step[Any]] = [temporal.ObservationNoise(work)]
    steps += [temporal.Process(work, timescales), temporal.Paths(work)]
    for mode in range(last + 1):
        steps.append(NormalWishart(work, mode, spec.rank + 1.0, math.inf))  # scales stay 1
        steps.append(rows.TimeFactors(work) if mode == last else rows.Rows(work, mode))
    steps.append(temporal.Amplitudes(work))
    if spec.noise_rank:
        return [*steps, LowRankNoise(work, sweep.SERIES_FROM)]
    return [*steps, temporal.SeriesNoise(work)]


class SeriesProbes(NamedTuple):
    """Cells whose predictions show whether a chain has converged: any series at any time."""

    places: Any
    which: Ints
    when: Array
    right: Ints

    @classmethod
    def at_random(cls, data: SeriesData) -> SeriesProbes:
        """Choose cells, the same for every chain."""
        rng = np.random.default_rng(0)
        which = rng.integers(len(data.series), size=PROBES)
        row = rng.choice(data.places[-1], PROBES) - data.firsts[-1]
        places = data.places[:, data.series.starts[which]]
        places[-1] = row + data.firsts[-1]
        many = data.shape[-1]
        known = data.series.which * many + data.places[-1] - data.firsts[-1]
        right = np.searchsorted(known, which * many + row)
        return cls(places, which, data.stamps[row], right)


class SeriesSampler(Sampler[sweep.SeriesDraw]):
    """A sampler of series, which may forget between ``timescales``."""

    fewest = 50
    data: SeriesData

    def __init__(
        self, spec: Spec, data: SeriesData, timescales: Timescales, schedule: LaterHalf, n_jobs: int
    ) -> None:
        work = sweep.SeriesWorkspace(spec, data, n_jobs)
        super().__init__(sweep.Sweep(work, series_steps(work, timescales)), schedule)
        self.timescales, self.probes = timescales, SeriesProbes.at_random(data)

    def start(self) -> Chain[sweep.SeriesDraw]:
        """Return a chain before its first sweep."""
        return self._started(sweep.first_series_draw(self.spec, self.data, *self.timescales), 0)

    def posterior(self, chain: Chain[sweep.SeriesDraw]) -> SeriesPosterior:
        """Return what a chain has kept; if that is nothing yet, its current draw."""
        data = self.data
        kept = {name: array[: chain.n_kept].copy() for name, array in chain.kept.items()}
        if not chain.n_kept:
            kept = {name: array[None] for name, array in self._snapshot(chain.draw).items()}
        counts = tuple(np.diff(starts) for starts in data.starts)
        codes = data.places - np.array(data.firsts, dtype=np.int32)[:, None]
        return SeriesPosterior(self.spec, data.shape, counts, kept, codes, data.values, data.stamps)

    def summaries(self, draw: sweep.SeriesDraw) -> dict[str, float]:
        """Return a few numbers by which to judge whether a chain has converged."""
        noise = draw.noise if self.spec.noise_rank else draw.variances
        named = {"timescale": draw.timescales, "amplitude": draw.amplitudes, "noise": noise}
        logs = {name: float(np.log(values).mean()) for name, values in named.items()}
        return logs | super().summaries(draw)

    def _snapshot(self, draw: sweep.SeriesDraw) -> sweep.Snapshot:
        process: sweep.Snapshot = {name: getattr(draw, name).astype(np.float32) for name in PROCESS}
        return snapshot(draw, self.spec, self.data) | process

    def _predicted(self, draw: sweep.SeriesDraw) -> tuple[Floats, Array]:
        """Means of probes given rows and paths of a draw, and their variances with the noise."""
        probes, series = self.probes, self.data.series
        explained = np.empty(PROBES, dtype=np.float32)
        rows.means(probes.places, draw.factors, draw.biases, explained)
        exact = np.zeros_like(draw.paths)
        mean, spread = state_space.at_times(
            series, probes.which, probes.when, probes.right, draw.timescales, draw.amplitudes,
            state_space.Smoothed(draw.paths, exact, draw.paths, exact),
        )  # fmt: skip
        variance = draw.variances[probes.which].astype(np.float32)
        if self.spec.noise_rank:
            low_rank_variances(probes.places, draw.noise, variance)
        return explained + mean.astype(np.float32), spread + variance

    def _share_of_std(self, chain: Chain[sweep.SeriesDraw], seen: Array, apart: Array) -> float:
        """Return the median: a series of which little is known may wander for long."""
        variance = seen.var(axis=0) + self._predicted(chain.draw)[1]
        return float(np.median(np.abs(apart) / np.sqrt(variance)))
