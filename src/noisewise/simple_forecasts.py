"""Simple forecasts of series on a grid of time, which compete in ``forecasting``.

The last reading; the mean of the part of the day, week or year (the slot); the slot and what is
left of how far the last reading was from its own, which fades (AR(1)); a regression of what that
leaves on readings before, the same part of the period before, and what all series do; and a
regression of how readings move on how they moved before. Both regressions learn twice, from all
rows alike and mostly from recent ones, and draw what a series says to what all series say. What
the first leaves is told once more, by what all series read last.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.signal import lfilter

from noisewise.engine.arrays import Array
from noisewise.engine.data import Series
from noisewise.models.profiles import PRIOR, Profile, expected, fit_profiles, slots

NAMES = ("last", "slot", "faded", "levels", "recent levels", "moves", "recent moves", "together")
MOST_ROWS = 20_000  # the last ones, that are learned from
MOST_READINGS = 400_000  # of the last rows, that regressions learn from
FEWEST_ROWS = 2_000  # that they learn from however many series there are
MOST_NUMBERS = 250_000  # of features, that are held at a time: a cache has room for them
LAGS = 6  # readings before, of a regression
CYCLES = 4  # of a period, that the same part of those before is told by
MEMORIES = (12, 72)  # readings that moving means remember
COMMON = 4  # components of what all series do
ALL = 20  # components, by which all series together tell what each leaves
STEPS = 24  # beyond, a regression says nothing
STRENGTH = 10.0  # readings that a regression of nothing is worth
DOUBT = 100.0  # readings that it is worth beside what all series together tell
ALIKE = 50.0  # readings of a series that the regression of all series is worth
RECENT = 0.3  # of the rows: before that, a row counts half for what learns from recent ones
FARTHEST = 6.0  # stds of its series that a reading counts at most
AROUND = 5  # readings, of which a lone one that is far off counts as no farther than that
WIDEST = 0.125  # of a period: as far to either side slots are smoothed at most


class Grid(NamedTuple):
    """Readings of series on a grid of time."""

    values: Array  # times by series; NaN where nothing was read
    when: Array

    @classmethod
    def of(cls, which: Any, when: Array, values: Array, n: int, step: float) -> Grid:
        """Put readings on the grid that ends with the last of them; of two, the later holds."""
        last = float(when.max())
        row = np.rint((when - last) / step).astype(np.int64)
        first = max(int(row.min()), 1 - MOST_ROWS)
        rows = np.arange(first, 1)
        table = np.full((len(rows), n), np.nan)
        inside = row >= first
        order = np.argsort(when[inside], kind="stable")
        table[row[inside][order] - first, which[inside][order]] = values[inside][order]
        return cls(table, np.asarray(last + step * rows, dtype=np.float64))

    @property
    def step(self) -> float:
        """The time between rows."""
        return float(self.when[1] - self.when[0]) if len(self.when) > 1 else 1.0

    def until(self, row: int) -> Grid:
        """Return the rows before one."""
        return Grid(self.values[:row], self.when[:row])


class Known(NamedTuple):
    """What regressions know of rows: by series, then by row."""

    own: Array  # readings of series, holes filled from before
    slow: list[Array]  # their moving means
    shared: Array  # components of all series

    @classmethod
    def of(cls, own: Array, common: Array) -> Known:
        """Look at series, of which there are components; a row for each time."""
        every = (own, *(moving(own, memory) for memory in MEMORIES), own @ common)
        own, *slow, shared = (np.ascontiguousarray(one.T) for one in every)
        return cls(own, slow, shared)

    def part(self, some: slice) -> Known:
        """Return what is known of some series."""
        return Known(self.own[some], [one[some] for one in self.slow], self.shared)


class Learned(NamedTuple):
    """What simple forecasts have learned of series."""

    mean: Array
    std: Array  # of what the slot leaves
    profiles: list[Profile]
    phi: Array  # how much of that is left after a step
    common: Array  # components of all series
    levels: Array  # weights of regressions of what slots leave: rows, step, series, feature
    moves: Array  # and of how readings move
    every: Array  # components of all series, more of them
    together: Array  # weights of what these tell of what levels leave: step, feature, series
    cycle: int  # rows of a period; 0 if there is none

    @classmethod
    def of(cls, grid: Grid, steps: int, longest: float = np.inf) -> Learned:
        """Learn from a table; of what repeats, only what takes no longer than some time."""
        n = grid.values.shape[1]
        read = ~np.isnan(grid.values)
        row, which = np.nonzero(read)
        series = Series.group(which, grid.when[row], grid.values[read], n)
        counts = np.maximum(read.sum(axis=0), 1)
        mean = np.nansum(grid.values, axis=0) / counts
        found = fit_profiles(series, "auto") if len(row) > 1 and np.ptp(grid.when) > 0 else []
        found = [one for one in found if one.period <= longest]  # the longest come last
        profiles = smoothed(grid.values - mean, grid.when, found)
        cycle = round(min(one.period for one in profiles) / grid.step) if profiles else 0
        cycle = cycle if CYCLES * cycle <= len(grid.when) else 0
        none, own = np.zeros((2, 0, n, 0)), np.zeros((n, 0))
        bare = cls(mean, np.ones(n), profiles, np.zeros(n), own, none, none, own, none[0], cycle)
        left = grid.values - bare.slots(grid.when)
        std = np.sqrt(np.nansum(left**2, axis=0) / counts)
        std = np.where(std > 0, std, 1.0)
        z = np.clip(left / std, -FARTHEST, FARTHEST)
        pairs = z[1:] * z[:-1]
        many = np.maximum((~np.isnan(pairs)).sum(axis=0), 1)
        phi = np.nansum(pairs, axis=0) / many
        phi = np.clip(phi + (1.0 + 3.0 * phi) / many, 0.0, 0.9999)  # few rows show too little of it
        filled = faded(z, phi)
        covariance = filled.T @ filled / len(filled)
        components = np.linalg.eigh(covariance)[1][:, ::-1]
        bare = bare._replace(
            std=std, phi=phi, common=components[:, :COMMON], every=components[:, :ALL]
        )
        steps = min(steps, STEPS)
        bare = bare._replace(
            levels=bare._regressions(z, filled, grid.when, steps, True),
            moves=bare._regressions(
                near((grid.values - mean) / std), bare._last(grid), grid.when, steps, False
            ),
        )
        return bare._replace(together=bare._told_together(z, filled))

    def slots(self, when: Array) -> Array:
        """Return what the slots of times say of all series."""
        n = len(self.mean)
        which = np.tile(np.arange(n), len(when))
        told = expected(self.profiles, which, np.repeat(when, n)) if self.profiles else 0.0
        return np.asarray(self.mean + np.reshape(told + np.zeros(n * len(when)), (-1, n)))

    def _last(self, grid: Grid) -> Array:
        """Return the last reading at every row, in stds from the mean; lone ones count less."""
        return carried(near((grid.values - self.mean) / self.std))

    def _regressions(self, z: Array, filled: Array, when: Array, steps: int, levels: bool) -> Array:
        """Learn regressions of all steps and series: of what slots leave, or of moves."""
        rows, n = z.shape
        slot = self.slots(when) / self.std
        everything = Known.of(filled, self.common)
        age = np.arange(rows)[::-1] / max(RECENT * rows, 1.0)
        count = np.stack([np.ones(rows), 0.5**age])
        found = []
        for step in range(1, steps + 1):
            at = _learned(rows, n, step)
            grams, pulls, many = [], [], []
            for part in _parts(n, rows):
                some = everything.part(part)
                x = self.features(some, at, step, levels)
                if not levels:
                    x[:, -1] = (slot[at + step, part] - slot[at, part]).T
                target = z[at + step, part].T - self._start(some.own, part, at, step, levels)
                known = ~np.isnan(target)
                x *= known[:, None]
                y = np.where(known, target, 0.0)[:, :, None]
                heavy = [x, x * count[1, at]]
                grams.append(np.stack([one @ x.transpose(0, 2, 1) for one in heavy]))
                pulls.append(np.stack([(one @ y)[:, :, 0] for one in heavy]))
                many.append(count[:, at] @ known.T)
            joined = (np.concatenate(one, axis=1) for one in (grams, pulls, many))
            found.append(_solved(*joined))
        return np.array(found).swapaxes(0, 1) if found else np.zeros((2, 0, n, 0))

    def _told_together(self, z: Array, filled: Array) -> Array:
        """Learn what all series tell of what the regression of levels leaves, for all its steps."""
        rows, n = z.shape
        everything, told = Known.of(filled, self.common), together(filled @ self.every)
        found = np.zeros((self.levels.shape[1], told.shape[1], n))
        for h, weights in enumerate(self.levels[0], 1):
            at = _learned(rows, n, h)
            x = told[at]
            gram = x.T @ x
            size = gram.diagonal() / max(len(at), 1)
            gram += DOUBT * np.diag(np.maximum(size, 1e-9 * size.max() + np.finfo(float).tiny))
            for part in _parts(n, rows):
                some = everything.part(part)
                own = _told(self.features(some, at, h, True), weights[None, part])[0]
                left = z[at + h, part] - self._start(some.own, part, at, h, True).T - own
                left = np.clip(np.nan_to_num(left), -FARTHEST, FARTHEST)
                found[h - 1][:, part] = np.linalg.solve(gram, x.T @ left)
        return found

    def _start(self, own: Array, part: slice, at: Any, step: int, levels: bool) -> Array:
        """Return what a regression begins with: what has faded, or the last reading."""
        return np.asarray(self.phi[part, None] ** step * own[:, at] if levels else own[:, at])

    def features(self, known: Known, at: Any, step: int, levels: bool) -> Array:
        """Return what a regression knows at rows: series by feature by row.

        The last feature of moves is how the slot moves, and is filled in by who knows it.
        """
        own = known.own
        lags = [own[:, np.maximum(at - lag, 0)] for lag in range(LAGS)]
        slow = [one[:, at] for one in known.slow]
        found = lags + slow
        if not levels:
            found = [lags[0], *(a - b for a, b in pairwise(lags)), *(lags[0] - a for a in slow)]
        if self.cycle:
            before = at + step - self.cycle * -(-step // self.cycle)
            for row in (before, before - self.cycle):
                told = own[:, np.maximum(row, 0)]
                if not levels:
                    told = told - own[:, np.maximum(row - step, 0)]
                found.append(np.where(row >= step, told, 0.0))
        found += [np.broadcast_to(one[at], lags[0].shape) for one in known.shared]
        found.append(np.ones_like(lags[0]))
        if not levels:
            found.append(np.zeros_like(lags[0]))
        return np.stack(found, axis=1)

    def ahead(self, grid: Grid, origins: Any, steps: int) -> Array:
        """Forecast from origins: method by origin by step by series."""
        now = self.slots(grid.when)
        z = faded(near((grid.values - now) / self.std), self.phi)
        last = self._last(grid)
        levels, moves = (Known.of(one, self.common) for one in (z, last))
        told = together(z @ self.every)[origins]
        found = np.empty((len(NAMES), len(origins), steps, grid.values.shape[1]))
        for h in range(1, steps + 1):
            slot = self.slots(grid.when[origins] + h * grid.step)
            start = slot + self.std * self.phi**h * z[origins]
            reading = self.mean + self.std * last[origins]
            begin = (reading, slot, start, start, start, reading, reading, start)
            found[:, :, h - 1] = np.stack(begin)
            if h <= self.levels.shape[1]:
                x = self.features(levels, origins, h, True)
                found[3:5, :, h - 1] += self.std * _told(x, self.levels[:, h - 1])
                x = self.features(moves, origins, h, False)
                x[:, -1] = ((slot - now[origins]) / self.std).T
                found[5:7, :, h - 1] += self.std * _told(x, self.moves[:, h - 1])
                found[7, :, h - 1] = found[3, :, h - 1] + self.std * (told @ self.together[h - 1])
        return found


def _learned(rows: int, n: int, step: int) -> Any:
    """Return the rows from which regressions of a step learn: the last ones, if there are many."""
    last = max(rows - step, min(LAGS, rows))
    return np.arange(max(min(LAGS, rows), last - max(MOST_READINGS // n, FEWEST_ROWS)), last)


def _parts(n: int, rows: int) -> list[slice]:
    """Return series in parts whose features are few enough to be held."""
    features = LAGS + len(MEMORIES) + COMMON + 4
    size = max(MOST_NUMBERS // max(rows * features, 1), 1)
    return [slice(first, min(first + size, n)) for first in range(0, n, size)]


def _solved(grams: Array, pulls: Array, many: Array) -> Array:
    """Return the weights of every series, drawn to those that all series have together."""
    size = np.einsum("rskk->rsk", grams)
    size = np.maximum(size, 1e-9 * size.max(axis=2, keepdims=True) + np.finfo(float).tiny)
    many = np.maximum(many, 1.0)[:, :, None]
    diagonal = np.arange(size.shape[2])
    gram = grams.sum(axis=1)
    gram[:, diagonal, diagonal] += STRENGTH * size.sum(axis=1) / many.sum(axis=1)
    alike = np.linalg.solve(gram, pulls.sum(axis=1)[:, :, None])[:, None, :, 0]
    own = ALIKE * size / many
    grams[:, :, diagonal, diagonal] += own
    return np.asarray(np.linalg.solve(grams, (pulls + own * alike)[..., None])[..., 0])


def _told(x: Array, weights: Array) -> Array:
    return np.asarray((weights.swapaxes(0, 1) @ x).transpose(1, 2, 0))


def smoothed(left: Array, when: Array, profiles: list[Profile]) -> list[Profile]:
    """Return profiles whose slots are drawn to those beside them, as far as tells a cycle best.

    Every cycle is told by all others, with each width.
    """
    out = []
    many = np.maximum((~np.isnan(left)).sum(axis=0), 1)
    unit = np.maximum(np.nansum(left**2, axis=0) / many, 1e-300)
    for profile in profiles:
        n = profile.means.shape[1]
        slot = slots(when, profile.period, n)
        cycle = np.floor(when / profile.period + 1e-9).astype(np.int64)
        bounds = np.flatnonzero(np.diff(cycle, prepend=cycle[0] - 1, append=cycle[-1] + 1))
        known = ~np.isnan(left)
        sums = np.zeros((2, n, left.shape[1]))
        np.add.at(sums[0], slot, np.where(known, left, 0.0))
        np.add.at(sums[1], slot, known.astype(np.float64))
        widths = [0, *(2**k for k in range(16) if 2**k <= WIDEST * n)]
        near_slots = [_beside(n, width) for width in widths]
        lost = np.zeros(len(widths))
        for first, last in pairwise(bounds if len(widths) > 1 else []):
            own = np.zeros_like(sums)
            rows = slice(first, last)
            np.add.at(own[0], slot[rows], np.where(known[rows], left[rows], 0.0))
            np.add.at(own[1], slot[rows], known[rows].astype(np.float64))
            for k, beside in enumerate(near_slots):
                total, count = beside @ (sums - own)
                away = left[rows] - (total / (count + PRIOR))[slot[rows]]
                lost[k] += np.nansum(np.nansum(away**2, axis=0) / unit)
        total, count = near_slots[int(np.argmin(lost))] @ sums
        means = total / (count + PRIOR)
        left = left - means[slot]
        out.append(Profile(profile.period, means.T))
    return out


def _beside(n: int, width: int) -> Array:
    """Return how much slots count for each other, around a period: the less the farther."""
    away = np.abs(np.arange(n)[:, None] - np.arange(n))
    return np.asarray(np.maximum(1.0 - np.minimum(away, n - away) / (width + 1.0), 0.0))


def moving(values: Array, memory: float, start: Any = None) -> Array:
    """Return the mean of rows until each, which forgets."""
    level = np.broadcast_to(values[:1] if start is None else start, values[:1].shape)
    kept = 1.0 - 1.0 / memory
    return np.asarray(lfilter([1.0 / memory], [1.0, -kept], values, axis=0, zi=kept * level)[0])


def together(all_of_them: Array) -> Array:
    """Return what components tell: where they are, how they moved, and how far from their mean."""
    before = np.vstack([all_of_them[:1], all_of_them[:-1]])
    slow = moving(all_of_them, MEMORIES[0])
    return np.column_stack([all_of_them, all_of_them - before, all_of_them - slow])


def near(z: Array) -> Array:
    """Return z-scores of which lone ones that are far from those around count less."""
    known = carried(z)
    before = np.vstack([np.repeat(known[:1], AROUND - 1, axis=0), known])
    middle = _median(*(before[k : k + len(z)] for k in range(AROUND)))
    return np.asarray(np.clip(z, middle - FARTHEST, middle + FARTHEST))


def _median(a: Array, b: Array, c: Array, d: Array, e: Array) -> Array:
    """Return the medians of five, of which the ends of two pairs and the fifth decide."""
    low = np.maximum(np.minimum(a, b), np.minimum(c, d))
    high = np.minimum(np.maximum(a, b), np.maximum(c, d))
    return np.asarray(np.maximum(np.minimum(e, low), np.minimum(np.maximum(e, low), high)))


def faded(z: Array, phi: Array) -> Array:
    """Fill holes by what is left of the reading before."""
    out, hole = np.nan_to_num(z), np.isnan(z)
    for row in np.flatnonzero(hole.any(axis=1)):
        if row:
            out[row] = np.where(hole[row], phi * out[row - 1], out[row])
    return out


def carried(values: Array) -> Array:
    """Return the last reading at every row; 0 before there is one."""
    read = ~np.isnan(values)
    at = np.maximum.accumulate(np.where(read, np.arange(len(values))[:, None], 0), axis=0)
    return np.nan_to_num(np.take_along_axis(values, at, axis=0))
