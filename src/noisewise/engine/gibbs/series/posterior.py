"""Kept draws of series, and from them moments of cells at any time, seen, between or ahead.

The paths of series are not kept: given all else of a draw, a path is smoothed from its series'
observations, which takes less room and says exactly what its draws would say on average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from noisewise.engine import paths
from noisewise.engine.arrays import Array, Codes, Counts, Floats, Ints, Moments
from noisewise.engine.data import Series, as_series
from noisewise.engine.gibbs.posterior import Places, Sums
from noisewise.engine.gibbs.series.draw import SeriesDraw, SeriesSpec, products
from noisewise.engine.gibbs.sweep import Snapshot
from noisewise.engine.training import dealt, in_threads
from noisewise.errors import brief

KEPT = (
    "loadings", "precisions", "rows", "factors", "slopes", "factor_timescales", "strengths",
    "profiles", "calendar_settings", "timescales", "amplitudes", "variances", "slot_noise",
    "freedom",
)  # fmt: skip
LIGHTEST, SHADES = 1e-6, 16.0  # weights are kept as whole numbers: so many to a factor of e
_U = np.uintp
_ONE = np.uintp(1)


def snapshot(draw: SeriesDraw) -> Snapshot:
    """Return what predictions need of a draw, by name."""
    kept: Snapshot = {name: getattr(draw, name).astype(np.float32) for name in KEPT}
    shades = np.rint(SHADES * np.log(np.maximum(draw.weights, LIGHTEST) / LIGHTEST))
    return kept | {"weights": np.minimum(shades, 255).astype(np.uint8)}


class Asked(NamedTuple):
    """Cells to predict; a series never observed is taken to be like those of its sensor."""

    codes: Places  # rows of every mode but time; one more than there are: one never seen
    which: Ints  # series; -1 where nothing was observed of it
    when: Array  # times; NaN where there is none
    sensor: Ints  # of each cell's series
    sensors: Ints  # of all series that were observed


@dataclass(frozen=True)
class SeriesPosterior:
    """Kept draws of factors, loadings and processes, with the observations they stand on."""

    spec: SeriesSpec
    shape: tuple[int, ...]  # rows of each mode, time last
    counts: tuple[Counts, ...]  # observations of every row
    draws: Snapshot  # stacked: a leading axis of draws
    codes: Places  # of observations, by series and time; time is the last mode
    values: Floats
    stamps: Array  # times of the rows of the last mode, in order

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.draws["loadings"])

    @cached_property
    def series(self) -> Series:
        """The observations as series."""
        return as_series(self.codes, self.values, self.stamps, 0)

    def known_codes(self, mode: int, codes: Codes) -> Codes:
        """Send ids never trained on (-1, or without observations) to the last row."""
        count = self.counts[mode]
        known = (codes >= 0) & (count[codes] > 0)
        return np.where(known, codes, len(count)).astype(np.int32)

    def moments(self, asked: Asked, n_jobs: int = 1) -> Moments:
        """Moments of cells, in standardised units."""
        own, sums = _Own.of(self.series, asked), Sums.of(len(asked.when))
        times, place = np.unique(asked.when, return_inverse=True)
        for draw in range(len(self)):
            mean, noise, width = self._one(draw, asked, times, place.ravel(), own, n_jobs)
            sums.add(slice(None), mean, mean, mean**2 + width, noise)
        return sums.moments()

    def noise_by_series(self) -> Array:
        """Variance of the noise of every series, averaged over draws."""
        variances = self.draws["variances"].astype(np.float64)
        return np.asarray((variances * self.heaviness()[:, None]).mean(axis=0))

    def weights(self, draw: int, slot_noise: Array) -> Array:
        """Return what the precisions of observations are times that of their series, in a draw."""
        weights = np.ones(len(self.values))
        if self.spec.tails:
            weights = LIGHTEST * np.exp(self.draws["weights"][draw] / SHADES)
        return np.asarray(weights / self._by_slot(slot_noise, self.series.time))

    def _by_slot(self, noise: Array, time: Array) -> Array | float:
        """Return by how much noise is more, or less, at some times, given that of all slots."""
        if not self.spec.seasons:
            return 1.0
        known = ~np.isnan(time)
        found = np.full(len(time), noise.mean())
        found[known] = noise[self.spec.seasons[0].places(time[known])[1]]
        return found

    def heaviness(self) -> Array:
        """Return per draw by how much heavy tails widen the noise."""
        nu = self.draws["freedom"][:, 0].astype(np.float64)
        return nu / (nu - 2.0) if self.spec.tails else np.ones(len(nu))

    def _one(
        self, draw: int, asked: Asked, times: Array, place: Ints, own: _Own, n_jobs: int
    ) -> tuple[Array, Array, Array]:
        """Mean, noise and the variance of the mean of cells in one draw."""
        state = {name: array[draw].astype(np.float64) for name, array in self.draws.items()}
        factors, doubt = factors_at(times, self.stamps, state, self.spec)
        loading, width = self.loadings(state, asked, factors[place])
        f = factors[place]
        mean = np.einsum("nd,nd->n", loading[:, :-1], f) + loading[:, -1]
        width += np.einsum("nd,nd->n", loading[:, :-1] ** 2, doubt[place])
        amplitude = _of_series(state["amplitudes"], asked)
        if len(own.cells):
            middle, narrow = self._paths(draw, state, own, n_jobs)
            mean[own.cells] += middle
            amplitude[own.cells] = narrow
        return mean, self.noise_of(state, asked, draw), width + amplitude

    def typical(self, values: Array, asked: Asked) -> Array:
        """Return what each cell's series has; one never observed, what is usual of its sensor."""
        return _of_series(values, asked)

    def noise_of(self, state: dict[str, Array], asked: Asked, draw: int) -> Array:
        """Return the variance of the noise of cells in one draw."""
        variance = _of_series(state["variances"], asked)
        return np.asarray(
            variance * self.heaviness()[draw] * self._by_slot(state["slot_noise"], asked.when)
        )

    def loadings(self, state: dict[str, Array], asked: Asked, f: Array) -> tuple[Array, Array]:
        """Return loadings of cells, and the variance of the mean that their doubt adds."""
        n, drawn = len(asked.which), state["loadings"]
        new = np.flatnonzero(asked.which < 0)
        loading, width = drawn[asked.which], np.zeros(n)
        if not len(new):
            return loading, width
        x = np.column_stack([f[new], np.ones(len(new))])
        if not len(state["rows"]):  # of a single mode: like any other series
            loading[new], width[new] = drawn.mean(axis=0), _spread(x, drawn)
            return loading, width
        parts = np.split(state["rows"], np.cumsum(self.shape[:-2]))
        seen = [own[count > 0] for own, count in zip(parts, self.counts, strict=False)]
        typical = [
            np.vstack([own, known.mean(axis=0)]) for own, known in zip(parts, seen, strict=True)
        ]
        firsts = np.cumsum([0, *(len(own) for own in typical[:-1])])
        rows, at = np.vstack(typical), (asked.codes[:, new] + firsts[:, None]).astype(np.int64)
        loading[new] = products(rows, at)
        width[new] = (x**2 / state["precisions"]).sum(axis=1)
        for mode, known in enumerate(seen):
            unseen = asked.codes[mode, new] == self.shape[mode]
            others = products(rows, np.delete(at, mode, axis=0)[:, unseen])
            others[:, -1] = 1.0
            width[new[unseen]] += _spread(x[unseen] * others, known)
        return loading, width

    def _paths(
        self, draw: int, state: dict[str, Array], own: _Own, n_jobs: int
    ) -> tuple[Array, Array]:
        """Mean and variance of paths at cells, given the observations of their series."""
        weights = np.ones(1)
        if self.spec.tails or self.spec.seasons:
            weights = self.weights(draw, state["slot_noise"])
        mean, variance = np.empty((2, len(own.cells)))
        in_threads(
            lambda task: fill_paths(
                task, own.chosen, own.starts, own.when, own.right, self.series.starts,
                self.series.time, self.values, self.codes[-1], state["loadings"], state["factors"],
                self.spec.kind, state["timescales"], state["amplitudes"], state["variances"],
                weights, mean, variance,
            ),
            dealt(np.arange(len(own.chosen))), n_jobs,
        )  # fmt: skip
        return mean, variance


class _Own(NamedTuple):
    """Cells whose series was observed, sorted by series."""

    cells: npt.NDArray[np.intp]
    chosen: Ints  # their series
    starts: Ints  # where the cells of each begin
    when: Array
    right: Ints  # the first observation of the series that is not before the cell

    @classmethod
    def of(cls, series: Series, asked: Asked) -> _Own:
        own = np.flatnonzero((asked.which >= 0) & ~np.isnan(asked.when))
        own = own[np.argsort(asked.which[own], kind="stable")]
        which, when = asked.which[own], asked.when[own]
        chosen, starts = np.unique(which, return_index=True)
        starts = np.append(starts, len(own)).astype(np.int64)
        return cls(own, chosen, starts, when, series.place(which, when))


def _spread(x: Array, rows: Array) -> Array:
    """Variance of the products of x with a row that is like those that were seen."""
    centred = rows - rows.mean(axis=0)
    covariance = centred.T @ centred / max(len(rows) - 1, 1)
    return np.asarray(np.einsum("nd,de,ne->n", x, covariance, x))


def _of_series(values: Array, asked: Asked) -> Array:
    """Return what each cell's series has; one never observed, the geometric mean of its sensor."""
    most = max(int(asked.sensors.max()), int(asked.sensor.max(initial=0))) + 1
    logs, counts = np.log(values), np.bincount(asked.sensors, minlength=most)
    typical = np.bincount(asked.sensors, logs, most) / np.maximum(counts, 1)
    typical[counts == 0] = logs.mean()
    return np.where(asked.which >= 0, values[asked.which], np.exp(typical)[asked.sensor])


def factors_at(
    times: Array, stamps: Array, state: dict[str, Array], spec: SeriesSpec
) -> tuple[Array, Array]:
    """Mean and variance of all factors at any times, in one draw; NaN is a time not known."""
    mean, variance = np.zeros((len(times), spec.width)), np.ones((len(times), spec.width))
    known = np.flatnonzero(~np.isnan(times))
    when = times[known]
    right = np.searchsorted(stamps, when)
    for k in range(spec.rank):
        path = np.column_stack([state["factors"][:, k], state["slopes"][:, k]])
        variance[known, k] = 0.0
        fill_factor(
            when, right, stamps, path, spec.kind, state["factor_timescales"][k], known, mean[:, k],
            variance[:, k],
        )  # fmt: skip
    for number, (column, season, cycles, slots) in enumerate(spec.calendar()):
        timescale, spread_, _ = state["calendar_settings"][number]
        strength, profile = state["strengths"][cycles], state["profiles"][slots]
        cycle, slot = season.places(when)
        inside = cycle.clip(0, season.n_cycles - 1)
        phi = np.exp(-np.abs(cycle - inside) / timescale)
        h = profile[slot]
        mean[:, column], variance[:, column] = profile.mean(), profile.var()
        mean[known, column] = (1.0 + phi * (strength[inside] - 1.0)) * h
        variance[known, column] = spread_ * (1.0 - phi**2) * h**2
    return mean, variance


@njit(nogil=True, error_model="numpy", cache=True)
def fill_factor(when, right, stamps, path, kind, timescale, places, mean, variance):
    """Fill in a factor at any times, given its states at all stamps."""
    exact = np.zeros(3)
    for n in range(len(when)):
        r, place = right[n], places[n]
        if r < len(stamps) and stamps[r] == when[n]:
            mean[place], variance[place] = path[r, 0], 0.0
            continue
        before = when[n] - stamps[r - 1] if r > 0 else math.inf
        after = stamps[r] - when[n] if r < len(stamps) else math.inf
        left, next_ = path[max(r - 1, 0)], path[min(r, len(stamps) - 1)]
        mean[place], variance[place] = paths.at_time(
            before, after, kind, timescale, left, exact, next_, exact
        )


@njit(nogil=True, error_model="numpy", cache=True)
def fill_paths(
    task, chosen, cell_starts, when, right, starts, time, values, times, loadings, factors, kind,
    timescales, amplitudes, variances, weights, mean, variance,
):  # fmt: skip
    """Fill in mean and variance of the paths of some series at their cells."""
    width, most = _U(factors.shape[1]), 0
    for c in task:
        most = max(most, starts[_U(chosen[c]) + _ONE] - starts[_U(chosen[c])])
    w, pull, gaps = np.empty(most), np.empty(most), np.empty(most)
    filtered, smoothed = np.empty((most, 2)), np.empty((most, 2))
    spreads, widths = np.empty((most, 3)), np.empty((most, 3))
    heavy = len(weights) == len(values)
    for c in task:
        s = _U(chosen[c])
        first, n = starts[s], starts[s + _ONE] - starts[s]
        for k in range(n):
            i, j = _U(first + k), _U(k)
            total = loadings[s, width]
            for d in range(width):
                total += loadings[s, d] * factors[_U(times[i]), d]
            w[j] = (weights[i] if heavy else 1.0) / variances[s]
            pull[j] = w[j] * (values[i] - total)
            gaps[j] = time[i] - time[i - _ONE] if k else 1.0
        paths.smooth_path(
            0, n, gaps, w, pull, kind, timescales[s], amplitudes[s], filtered, spreads, smoothed,
            widths,
        )  # fmt: skip
        for cell in range(cell_starts[c], cell_starts[c + 1]):
            r = right[cell] - first
            before = when[cell] - time[_U(first + r - 1)] if r > 0 else math.inf
            after = time[_U(first + r)] - when[cell] if r < n else math.inf
            a, b = max(r - 1, 0), min(r, n - 1)
            mean[cell], share = paths.at_time(
                before, after, kind, timescales[s], filtered[a], spreads[a], smoothed[b], widths[b]
            )
            variance[cell] = amplitudes[s] * share
