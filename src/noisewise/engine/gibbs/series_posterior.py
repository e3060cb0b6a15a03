"""Kept draws, and from them mean, noise and epistemic variance of cells at any time.

Courses are not kept. Given rows and settings of a draw, the course of a series is smoothed from its
observations: that takes less room than its draws, and says exactly what they would say on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.engine import state_space as course
from noisewise.engine.arrays import Floats, Moments
from noisewise.engine.gibbs import cells
from noisewise.engine.gibbs import storage as keeping
from noisewise.engine.gibbs.data import Model
from noisewise.engine.gibbs.posterior import Posterior, Sums
from noisewise.engine.gibbs.series_data import as_series, gaps
from noisewise.engine.series import Array, Ints, Series
from noisewise.engine.threads import chunks, in_threads
from noisewise.errors import ModelFileError, brief
from noisewise.storage import ANY, Tensors, check_codes, take

SETTINGS = "lengths", "amplitudes", "variances"  # that every series has


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
    kind, kinds
        The kind of each cell's series, and of all series that were observed: one that was not is
        taken to be like those of its kind.
    """

    codes: npt.NDArray[np.int32]
    which: Ints
    when: Array
    kind: Ints
    kinds: Ints


@dataclass(frozen=True)
class DriftPosterior:
    """Kept draws of rows and of the settings of series, with the observations they stand on.

    Attributes
    ----------
    rows
        Draws of rows.
    settings
        Per name, draws of what every series has.
    codes, values
        Observations, by series and time; codes have a row per mode, time last.
    stamps
        Times of the rows of the last mode, in order.
    """

    rows: Posterior
    settings: dict[str, Floats]
    codes: npt.NDArray[np.int32]
    values: Floats
    stamps: Array

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.rows)

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
        if self.rows.model.noise_rank == 0:
            return np.asarray(self.settings["variances"].mean(axis=0, dtype=np.float64))
        total = np.zeros(len(self.series))
        for draw in range(len(self)):
            variance = self._noise(draw, self._rows(draw), self.codes, n_jobs)
            total += np.add.reduceat(variance.astype(np.float64), self.series.starts[:-1])
        return total / self.series.counts / len(self)

    def _one(self, draw: int, asked: Asked, own: _Own, n_jobs: int) -> tuple[Array, Array, Array]:
        """Mean, noise and the variance of the mean of cells in one draw."""
        rows = self._rows(draw)
        settings = {name: kept[draw].astype(np.float64) for name, kept in self.settings.items()}
        mean = self._means(rows, asked.codes, n_jobs).astype(np.float64)
        spread = self.rows.extra(draw, rows, asked.codes)
        amplitude = _of_series(settings["amplitudes"], asked)
        spread += amplitude
        if len(own.cells):
            middle, width = self._courses(draw, rows, settings, own, n_jobs)
            mean[own.cells] += middle
            spread[own.cells] += width - amplitude[own.cells]
        if self.rows.model.noise_rank:
            noise = self._noise(draw, rows, asked.codes, n_jobs).astype(np.float64)
        else:
            noise = _of_series(settings["variances"], asked)
        return mean, noise, spread

    def _courses(
        self, draw: int, rows: list[Any], settings: dict[str, Array], own: _Own, n_jobs: int
    ) -> tuple[Array, Array]:
        """Mean and variance of courses at cells, given the observations of their series."""
        n, starts, tasks = len(own.values), own.series.starts, own.series.tasks
        lengths, amplitudes, variances = (settings[name][own.chosen] for name in SETTINGS)
        residual = own.values - self._means(rows, own.codes, n_jobs)
        noise = variances[own.series.which].astype(np.float32)
        if self.rows.model.noise_rank:
            noise = self._noise(draw, rows, own.codes, n_jobs)
        fade, drift, gain = np.empty((3, n), dtype=np.float32)
        before, means, spreads = np.empty((3, n))

        def smooth(chosen: Ints) -> None:
            course.set_gains(
                chosen, starts, own.gaps, noise, lengths, amplitudes, fade, drift, gain
            )
            course.smooth(
                chosen, starts, residual, noise, fade, drift, gain, before, means, spreads
            )

        in_threads(smooth, tasks, n_jobs)
        before_spreads = gain.astype(np.float64) * noise
        middle, width = np.empty((2, len(own.which)))

        def look(part: slice) -> None:
            course.between(
                own.which[part], own.when[part], own.right[part], starts, own.series.time, lengths,
                amplitudes, before, before_spreads, means, spreads, middle[part], width[part],
            )  # fmt: skip

        in_threads(look, chunks(len(middle)), n_jobs)
        return middle, width

    def _rows(self, draw: int) -> list[Any]:
        """Rows of every mode in one draw, and after the last the one for an id never seen."""
        sizes = enumerate(self.rows.shape)
        return [self.rows.rows(draw, m, np.arange(n + 1, dtype=np.int32)) for m, n in sizes]

    def _means(self, rows: list[Any], codes: npt.NDArray[np.int32], n_jobs: int) -> Floats:
        factors, biases = (np.concatenate([r[k] for r in rows]) for k in (0, 1))
        return self._filled(
            lambda places, out: cells.means(places, factors, biases, out), rows, codes, n_jobs
        )

    def _noise(
        self, draw: int, rows: list[Any], codes: npt.NDArray[np.int32], n_jobs: int
    ) -> Floats:
        noise = np.concatenate([r.noise for r in rows])
        return self._filled(
            lambda places, out: cells.variances(places, noise, out), rows, codes, n_jobs
        )

    def _filled(
        self, fill: Any, rows: list[Any], codes: npt.NDArray[np.int32], n_jobs: int
    ) -> Floats:
        """Call ``fill`` with places of cells, when the rows of all modes stand together."""
        firsts = np.cumsum([0, *(len(r.biases) for r in rows[:-1])]).astype(np.int32)
        out = np.empty(codes.shape[1], dtype=np.float32)
        in_threads(
            lambda part: fill(codes[:, part] + firsts[:, None], out[part]),
            chunks(len(out)),
            n_jobs,
        )
        return out

    def pack(self) -> tuple[dict[str, Any], Tensors]:
        """Header and tensors of a file."""
        header, tensors = keeping.pack(self.rows)
        tensors |= {f"series.{name}": kept for name, kept in self.settings.items()}
        return header, tensors | {"codes": self.codes, "values": self.values}


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
    gaps: Array

    @classmethod
    def of(cls, posterior: DriftPosterior, asked: Asked) -> _Own:
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
        return cls(own, chosen, which, when, right, codes, values, series, gaps(series))


def unpack(
    path: Any,
    model: Model,
    header: dict[str, Any],
    tensors: Tensors,
    shape: tuple[int, ...],
    stamps: Array,
) -> DriftPosterior:
    """Undo ``pack``, given the model that the settings of the file describe; trust nothing."""
    rows = keeping.unpack(path, model, header, tensors, shape)
    codes = take(path, tensors, "codes", "int32", len(shape), ANY)
    n = codes.shape[1]
    values = take(path, tensors, "values", "float32", n)
    if not n:
        raise ModelFileError(f"{path} is damaged: it has no observations.")
    for mode, size in enumerate(shape):
        check_codes(path, "codes", codes[mode], size)
    steps = np.diff(codes, axis=1)  # of codes within their bounds, none overflows
    first = (steps != 0).argmax(axis=0)
    if (np.take_along_axis(steps, first[None], axis=0) <= 0).any():
        raise ModelFileError(f"{path} is damaged: its observations are not in order.")
    many = 1 + int((first < len(shape) - 1).sum())
    settings = {
        name: take(path, tensors, f"series.{name}", "float32", len(rows), many) for name in SETTINGS
    }
    if not all((kept > 0).all() for kept in settings.values()):
        raise ModelFileError(f"{path} is damaged: its series make no sense.")
    return DriftPosterior(rows, settings, codes, values, stamps)


def _of_series(values: Array, asked: Asked) -> Array:
    """Return what each cell's series has; one never observed, the geometric mean of its kind."""
    most = max(int(asked.kinds.max()), int(asked.kind.max(initial=0))) + 1
    logs, counts = np.log(values), np.bincount(asked.kinds, minlength=most)
    typical = np.bincount(asked.kinds, logs, most) / np.maximum(counts, 1)
    typical[counts == 0] = logs.mean()
    return np.where(asked.which >= 0, values[asked.which], np.exp(typical)[asked.kind])
