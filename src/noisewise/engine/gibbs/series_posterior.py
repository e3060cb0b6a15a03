"""Kept draws of series, and from them mean, noise and epistemic variance of cells at any time.

Paths are not kept. Given rows and process of a draw, the path of a series is smoothed from its
observations: that takes less room than its draws, and says exactly what they would say on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine import state_space
from noisewise.engine.arrays import Floats, Moments
from noisewise.engine.gibbs.data import SeriesData, as_series
from noisewise.engine.gibbs.draw import SeriesDraw, Snapshot
from noisewise.engine.gibbs.posterior import Posterior, Rows, Sums, snapshot, stacked
from noisewise.engine.gibbs.spec import Spec
from noisewise.engine.gibbs.steps import noise, rows
from noisewise.engine.series import Array, Ints, Series
from noisewise.engine.threads import chunks, in_threads

PROCESS = "timescales", "amplitudes", "variances"  # that every series has


class Asked(NamedTuple):
    """Cells to predict.

    Attributes
    ----------
    codes
        Rows of every mode, time last; one more than there are stands for one never seen.
    which
        Series; -1 where nothing was observed of it.
    when
        Times; NaN where there is none.
    sensor, sensors
        The sensor of each cell's series, and of all series that were observed: one that was not is
        taken to be like those of its sensor.
    """

    codes: npt.NDArray[np.int32]
    which: Ints
    when: Array
    sensor: Ints
    sensors: Ints


@dataclass(frozen=True)
class SeriesPosterior(Posterior):
    """Kept draws of rows and of the processes of series, with the observations they stand on.

    Attributes
    ----------
    codes, values
        Observations, by series and time; codes have a row per mode, time last.
    stamps
        Times of the rows of the last mode, in order.
    """

    codes: npt.NDArray[np.int32]
    values: Floats
    stamps: Array

    @cached_property
    def series(self) -> Series:
        """The observations as series."""
        return as_series(self.codes, self.values, self.stamps, 0)

    def moments(self, asked: Asked, n_jobs: int = 1) -> Moments:
        """Moments of cells, in standardised units."""
        own = _Own.of(self, asked)
        sums = Sums(len(asked.when), 0)
        for draw in range(len(self)):
            mean, noise, spread = self._one(draw, asked, own, n_jobs)
            sums.mean += mean
            sums.centre += mean
            sums.square += mean**2 + spread
            sums.noise += noise
            sums.draws += 1
        return sums.moments()

    def noise_by_series(self, n_jobs: int = 1) -> Array:
        """Variance of the noise of every series, averaged over its observations and draws."""
        if self.spec.noise_rank == 0:
            return np.asarray(self.draws["variances"].mean(axis=0, dtype=np.float64))
        total = np.zeros(len(self.series))
        for draw in range(len(self)):
            variance = self._noise(self._rows(draw), self.codes, n_jobs)
            total += np.add.reduceat(variance.astype(np.float64), self.series.starts[:-1])
        return total / self.series.counts / len(self)

    def _one(self, draw: int, asked: Asked, own: _Own, n_jobs: int) -> tuple[Array, Array, Array]:
        """Mean, noise and the variance of the mean of cells in one draw."""
        rows = self._rows(draw)
        process = {name: self.draws[name][draw].astype(np.float64) for name in PROCESS}
        mean = self._means(rows, asked.codes, n_jobs).astype(np.float64)
        spread = self.extra(draw, rows, asked.codes)
        amplitude = _of_series(process["amplitudes"], asked)
        spread += amplitude
        if len(own.cells):
            middle, width = self._paths(rows, process, own, n_jobs)
            mean[own.cells] += middle
            spread[own.cells] += width - amplitude[own.cells]
        if self.spec.noise_rank:
            noise = self._noise(rows, asked.codes, n_jobs).astype(np.float64)
        else:
            noise = _of_series(process["variances"], asked)
        return mean, noise, spread

    def _paths(
        self, rows: list[Rows], process: dict[str, Array], own: _Own, n_jobs: int
    ) -> tuple[Array, Array]:
        """Mean and variance of paths at cells, given the observations of their series."""
        n, starts = len(own.values), own.series.starts
        timescales, amplitudes, variances = (process[name][own.chosen] for name in PROCESS)
        residual = own.values - self._means(rows, own.codes, n_jobs)
        noise = variances[own.series.which].astype(np.float32)
        if self.spec.noise_rank:
            noise = self._noise(rows, own.codes, n_jobs)
        phi, innovations, gain = np.empty((3, n), dtype=np.float32)
        filtered, means, spreads = np.empty((3, n))

        def smooth(chosen: Ints) -> None:
            state_space.set_gains(
                chosen,
                starts,
                own.series.gaps,
                noise,
                timescales,
                amplitudes,
                phi,
                innovations,
                gain,
            )
            state_space.smooth_paths(
                chosen, starts, residual, noise, phi, innovations, gain, filtered, means, spreads
            )

        in_threads(smooth, own.series.tasks, n_jobs)
        filtered_spreads = gain.astype(np.float64) * noise
        middle, width = np.empty((2, len(own.which)))

        def look(part: slice) -> None:
            state_space.between(
                own.which[part], own.when[part], own.right[part], starts, own.series.time,
                timescales, amplitudes, filtered, filtered_spreads, means, spreads, middle[part],
                width[part],
            )  # fmt: skip

        in_threads(look, chunks(len(middle)), n_jobs)
        return middle, width

    def _rows(self, draw: int) -> list[Rows]:
        """Rows of every mode in one draw, and after the last the one for an id never seen."""
        sizes = enumerate(self.shape)
        return [self.rows(draw, m, np.arange(n + 1, dtype=np.int32)) for m, n in sizes]

    def _means(self, modes: list[Rows], codes: npt.NDArray[np.int32], n_jobs: int) -> Floats:
        firsts, factors, biases, _ = stacked(modes)
        out = np.empty(codes.shape[1], dtype=np.float32)
        in_threads(
            lambda part: rows.means(codes[:, part] + firsts[:, None], factors, biases, out[part]),
            chunks(len(out)),
            n_jobs,
        )
        return out

    def _noise(self, modes: list[Rows], codes: npt.NDArray[np.int32], n_jobs: int) -> Floats:
        firsts, _, _, factors = stacked(modes)
        out = np.empty(codes.shape[1], dtype=np.float32)
        in_threads(
            lambda part: noise.variances(codes[:, part] + firsts[:, None], factors, out[part]),
            chunks(len(out)),
            n_jobs,
        )
        return out


class _Own(NamedTuple):
    """Cells whose series was observed, and the observations of these series."""

    cells: npt.NDArray[np.intp]
    chosen: Ints
    which: Ints  # among those chosen
    when: Array
    right: Ints
    codes: npt.NDArray[np.int32]
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


def series_snapshot(draw: SeriesDraw, spec: Spec, data: SeriesData) -> Snapshot:
    """Return what predictions need of a draw of series, by name."""
    process: dict[str, Any] = {name: getattr(draw, name).astype(np.float32) for name in PROCESS}
    return snapshot(draw, spec, data) | process


def _of_series(values: Array, asked: Asked) -> Array:
    """Return what each cell's series has; one never observed, the geometric mean of its sensor."""
    most = max(int(asked.sensors.max()), int(asked.sensor.max(initial=0))) + 1
    logs, counts = np.log(values), np.bincount(asked.sensors, minlength=most)
    typical = np.bincount(asked.sensors, logs, most) / np.maximum(counts, 1)
    typical[counts == 0] = logs.mean()
    return np.where(asked.which >= 0, values[asked.which], np.exp(typical)[asked.sensor])
