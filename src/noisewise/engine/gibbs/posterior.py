"""Kept draws, and from them moments of cells: what all posteriors share, and that of series.

Paths of series are not kept. Given rows and process of a draw, the path of a series is smoothed
from its observations: that takes less room than its draws, and says exactly what they would say on
average.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine import state_space
from noisewise.engine.arrays import Codes, Counts, Floats, Moments
from noisewise.engine.gibbs.data import Data, SeriesData, Spec, as_series
from noisewise.engine.gibbs.draw import Draw, Floats64, SeriesDraw, Snapshot
from noisewise.engine.gibbs.steps import noise, rows
from noisewise.engine.series import Array, Ints, Series
from noisewise.engine.threads import chunks, in_threads
from noisewise.errors import brief

PROCESS = "timescales", "amplitudes", "variances"  # that every series has


class Rows(NamedTuple):
    """Some rows of a mode in one draw; ``unknown`` ones stand for ids never seen.

    Rows that were not drawn, but are known by their distribution, have a ``covariance`` each, the
    bias last.
    """

    factors: Floats
    biases: Floats
    noise: Floats
    widths: Floats
    unknown: npt.NDArray[np.bool_]
    covariance: Floats

    def take(self, chosen: Any) -> Rows:
        """Return some of the rows."""
        arrays: Any = (array[chosen] for array in self)
        return Rows(*arrays)


class Sums:
    """What is summed over draws for cells; of levels in units, else in standardised units.

    ``mean`` is of predictions clipped to the range of values, ``centre`` and ``square`` of what the
    draws say: clipping a prediction must not change its std.
    """

    def __init__(self, n: int, n_levels: int) -> None:
        self.draws = 0
        self.mean, self.centre, self.square, self.noise = np.zeros((4, n))
        self.probabilities = np.zeros((n, n_levels))

    def moments(self) -> Moments:
        """Mean, noise and epistemic variance of cells."""
        totals: Any = (self.mean, self.centre, self.square, self.noise)
        mean, centre, square, noise = (total / self.draws for total in totals)
        return Moments(mean, noise, np.maximum(square - centre**2, 0.0))


@dataclass(frozen=True)
class Posterior:
    """Kept draws; a code equal to the number of a mode's rows stands for an id never seen.

    Attributes
    ----------
    spec, shape
        What was sampled, and rows of each mode.
    counts
        Observations of every row.
    draws
        Snapshots, stacked: a leading axis of draws.
    """

    spec: Spec
    shape: tuple[int, ...]
    counts: tuple[Counts, ...]
    draws: Snapshot

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.draws["level"])

    def known_codes(self, mode: int, codes: Codes) -> Codes:
        """Send ids never trained on (-1, or without observations) to the last row."""
        count = self.counts[mode]
        known = (codes >= 0) & (count[codes] > 0)
        return np.where(known, codes, len(count)).astype(np.int32)

    def rows(self, draw: int, mode: int, codes: Codes) -> Rows:
        """Rows of a mode by their codes, in one draw."""
        names = "factors", "biases", "noise", "typical", "level"
        one = {name: self.draws[name][draw] for name in names}
        n, first = self.shape[mode], sum(self.shape[:mode])
        unknown = codes == n
        codes = np.where(unknown, 0, codes)
        factors, biases, noise = (
            one[name][codes + first].astype(np.float32) for name in ("factors", "biases", "noise")
        )
        factors[unknown], biases[unknown] = one["typical"][mode, :-1], one["typical"][mode, -1]
        if self.spec.noise_rank:
            noise[unknown] = one["level"] if mode == len(self.shape) - 1 else 1.0
        widths = np.empty((len(codes), 0), dtype=np.float32)
        drawn = np.empty((len(codes), 0, 0), dtype=np.float32)
        return Rows(factors, biases, noise, widths, unknown, drawn)

    def extra(self, draw: int, rows: list[Rows], places: npt.NDArray[np.int32]) -> Floats64:
        """Variance of the mean in one draw: rows never seen."""
        extra = np.zeros(places.shape[1])
        found = [self._open(draw, mode, r, places[mode]) for mode, r in enumerate(rows)]
        for mode, cases in enumerate(found):
            for which, covariance in cases:
                others = [
                    r._replace(covariance=r.covariance[:, :0, :0]).take(at[which])
                    for m, (r, at) in enumerate(zip(rows, places, strict=True))
                    if m != mode
                ]
                extra[which] += spread(_product(others), covariance)
            extra += self.time_variance(draw, mode, rows[mode].unknown[places[mode]])
        for (first, one), (second, other) in itertools.product(found[0], found[1]):
            extra[first & second] += float((one * other)[:-1, :-1].sum())
        return extra

    def time_variance(self, draw: int, mode: int, unknown: npt.NDArray[np.bool_]) -> Any:
        """Variance that temporal effects of a mode add to cells, of unknown rows and of others."""
        return 0.0

    def _open(
        self, draw: int, mode: int, rows: Rows, places: npt.NDArray[np.int32]
    ) -> list[tuple[npt.NDArray[np.bool_], Floats]]:
        """Which cells have a row of a mode that was not drawn, and its covariance."""
        cases = [(rows.unknown[places], self.draws["covariances"][draw, mode])]
        if rows.covariance.size:
            cases += [(places == row, own) for row, own in enumerate(rows.covariance)]
        return [(which, covariance) for which, covariance in cases if which.any()]


def stacked(rows: list[Rows]) -> tuple[npt.NDArray[np.int32], Floats, Floats, Floats]:
    """Put the rows of all modes together: where each mode begins, factors, biases and noise."""
    firsts = np.cumsum([0, *(len(r.biases) for r in rows[:-1])]).astype(np.int32)
    factors, biases, noise = (np.concatenate([r[k] for r in rows]) for k in range(3))
    return firsts, factors, biases, noise


def _product(rows: list[Rows]) -> Rows:
    """Multiply factors of several modes; all else is the first mode's."""
    factors = rows[0].factors
    for other in rows[1:]:
        factors = factors * other.factors
    return rows[0]._replace(factors=factors)


def spread(rows: Rows, covariance: Floats) -> Floats64:
    """Variance that a row of this covariance has with given rows of the others."""
    x = np.column_stack([rows.factors, np.ones(len(rows.factors), dtype=np.float32)])
    return np.asarray(np.einsum("ij,ij->i", x @ covariance, x, dtype=np.float64))


def snapshot(draw: Draw, spec: Spec, data: Data, half: type = np.float16) -> Snapshot:
    """Return what predictions need of rows of a draw, by name; most of it of type ``half``.

    Beside the parts of the draw there are the average row of each mode and the covariance of rows,
    which stand for a row never seen.
    """
    means, covariances = _typical(draw, spec, data)
    return {
        "factors": draw.factors[:, : spec.rank].astype(half),
        "biases": draw.biases.astype(half),
        "noise": draw.noise.astype(np.float32),
        "level": draw.level.astype(np.float32),
        "typical": means.astype(np.float32),
        "covariances": covariances.astype(np.float32),
    }


def _typical(draw: Draw, spec: Spec, data: Data) -> tuple[Floats64, Floats64]:
    """Mean and covariance of the rows that have observations, per mode."""
    means, covariances = [], []
    for mode in range(data.n_modes):
        seen = np.flatnonzero(np.diff(data.starts[mode])) + data.firsts[mode]
        rows = np.column_stack([draw.factors[seen, : spec.rank], draw.biases[seen]])
        rows = rows.astype(np.float64)
        means.append(rows.mean(axis=0))
        centred = rows - means[-1]
        covariances.append(centred.T @ centred / len(rows))
    return np.array(means), np.array(covariances)


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


@dataclass(frozen=True, repr=False)
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
