"""Forecasts of series on a grid of time: simple ones, mixed by how well each did before.

Five compete. The last reading; the mean of the part of the day, week or year (the slot); the slot
and what is left of how far the last reading was from its own, which fades (AR(1)); a regression of
what that leaves on readings before, the same part of the period before, and what all series do; and
a regression of how readings move on how they moved before.
Each learns from the first part of the table and is asked of the part after it, origin by origin:
that tells the weights of a mixture for every step, how far it is off, and how wide intervals must
be. In the end all learn from everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from noisewise.engine.arrays import Array
from noisewise.engine.data import Series
from noisewise.errors import brief
from noisewise.models.profiles import Profile, expected, fit_profiles

HORIZON = 6  # steps that are learned at least; then twice as many, and so on
NAMES = ("last", "slot", "faded", "regression", "moves")
FOLDS = (0.5, 0.65, 0.8, 1.0)  # shares of the rows at which origins move on
FEWEST = 40  # rows that origins are moved in
MOST_ROWS = 20_000  # the last ones, that are learned from
MOST_ASKED = 4_000_000  # numbers that origins are asked for: series, steps and origins
LAGS = 6  # readings before, of a regression
CYCLES = 4  # of a period, that the same part of those before is told by
COMMON = 4  # components of what all series do
STEPS = 24  # beyond, a regression says nothing
STRENGTH = 10.0  # readings that a regression of nothing is worth
FARTHEST = 6.0  # stds of its series that a reading counts at most
MEMORY = 48  # readings that tell how lively a series is now
EVEN = 40.0  # errors that the width of all series is worth
POWERS = (0.0, 0.5, 1.0)  # of how lively a series is now, that a width may follow
COVERAGE = 0.9  # that widths are judged by


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


class Learned(NamedTuple):
    """What simple forecasts have learned of series."""

    mean: Array
    std: Array  # of what the slot leaves
    profiles: list[Profile]
    phi: Array  # how much of that is left after a step
    common: Array  # components of all series
    weights: Array  # of a regression of what slots leave: step by series by feature
    moves: Array  # of one of how readings move
    cycle: int  # rows of a period; 0 if there is none

    @classmethod
    def of(cls, grid: Grid, steps: int) -> Learned:
        """Learn from a table."""
        n = grid.values.shape[1]
        read = ~np.isnan(grid.values)
        row, which = np.nonzero(read)
        series = Series.group(which, grid.when[row], grid.values[read], n)
        counts = np.maximum(read.sum(axis=0), 1)
        mean = np.nansum(grid.values, axis=0) / counts
        profiles = fit_profiles(series, "auto") if len(row) > 1 and np.ptp(grid.when) > 0 else []
        step = grid.when[1] - grid.when[0] if len(grid.when) > 1 else 1.0
        cycle = round(min(one.period for one in profiles) / step) if profiles else 0
        cycle = cycle if CYCLES * cycle <= len(grid.when) else 0
        none = np.zeros((0, n, 0))
        bare = cls(mean, np.ones(n), profiles, np.zeros(n), np.zeros((n, 0)), none, none, cycle)
        left = grid.values - bare.slots(grid.when)
        std = np.sqrt(np.nansum(left**2, axis=0) / counts)
        std = np.where(std > 0, std, 1.0)
        z = np.clip(left / std, -FARTHEST, FARTHEST)
        pairs = z[1:] * z[:-1]
        many = np.maximum((~np.isnan(pairs)).sum(axis=0), 1)
        phi = np.clip(np.nansum(pairs, axis=0) / many, 0.0, 0.9999)
        filled = faded(z, phi)
        covariance = filled.T @ filled / len(filled)
        components = np.linalg.eigh(covariance)[1][:, ::-1][:, : min(COMMON, n)]
        bare = bare._replace(std=std, phi=phi, common=components)
        steps = min(steps, STEPS)
        return bare._replace(
            weights=bare._regressions(z, True, steps),
            moves=bare._regressions((grid.values - mean) / std, False, steps),
        )

    def slots(self, when: Array) -> Array:
        """Return what the slots of times say of all series."""
        n = len(self.mean)
        which = np.tile(np.arange(n), len(when))
        told = expected(self.profiles, which, np.repeat(when, n)) if self.profiles else 0.0
        return np.asarray(self.mean + np.reshape(told + np.zeros(n * len(when)), (-1, n)))

    def _regressions(self, z: Array, levels: bool, steps: int) -> Array:
        """Learn regressions of all steps and series: of what slots leave, or of moves."""
        filled = faded(z, self.phi) if levels else _carried(z)
        found = []
        for step in range(1, steps + 1):
            origins = np.arange(LAGS, len(z) - step)
            x = self.features(filled, origins, step, levels)
            target = z[origins + step] - self.start(filled, origins, step, levels)
            known = ~np.isnan(target)
            x = x * known[:, :, None]
            gram = np.einsum("tsk,tsl->skl", x, x, optimize=True)
            pull = np.einsum("tsk,ts->sk", x, np.where(known, target, 0.0), optimize=True)
            size = np.einsum("skk->sk", gram)
            least = 1e-9 * size.max(axis=1, initial=0.0) + np.finfo(float).tiny
            many = np.maximum((x != 0).sum(axis=0), 1)  # rows that a feature is told by
            own = STRENGTH * np.maximum(size, least[:, None]) / many
            gram[:, np.arange(x.shape[2]), np.arange(x.shape[2])] += own
            found.append(np.linalg.solve(gram, pull[:, :, None])[:, :, 0])
        return np.array(found)

    def start(self, filled: Array, origins: Any, step: int, levels: bool) -> Array:
        """Return what a regression begins with: what has faded, or the last reading."""
        return np.asarray(self.phi**step * filled[origins] if levels else filled[origins])

    def features(self, filled: Array, origins: Any, step: int, levels: bool) -> Array:
        """Return what a regression knows at origins: origins by series by feature."""
        n = filled.shape[1]
        lags = [filled[np.maximum(origins - lag, 0)] for lag in range(LAGS)]
        found = lags if levels else [lags[0], *(a - b for a, b in pairwise(lags))]
        if self.cycle:
            before = origins + step - self.cycle * -(-step // self.cycle)
            for at in (before, before - self.cycle):
                told = filled[np.maximum(at, 0)]
                if not levels:
                    told = told - filled[np.maximum(at - step, 0)]
                found.append(np.where((at >= step)[:, None], told, 0.0))
        shared = filled[origins] @ self.common
        found += [np.repeat(part[:, None], n, axis=1) for part in shared.T]
        return np.stack([*found, np.ones((len(origins), n))], axis=2)

    def ahead(self, grid: Grid, origins: Any, steps: int) -> Array:
        """Forecast from origins: method by origin by step by series."""
        n, step = grid.values.shape[1], _step(grid.when)
        seen = self.slots(grid.when)
        z = np.clip((grid.values - seen) / self.std, -FARTHEST, FARTHEST)
        filled = faded(z, self.phi)
        last = self.mean + _carried(grid.values - self.mean)
        found = np.empty((len(NAMES), len(origins), steps, n))
        for h in range(1, steps + 1):
            slot = self.slots(grid.when[origins] + h * step)
            found[0, :, h - 1] = last[origins]
            found[1, :, h - 1] = slot
            fading = self.phi**h * filled[origins]
            found[2, :, h - 1] = slot + self.std * fading
            found[3, :, h - 1] = found[2, :, h - 1]
            found[4, :, h - 1] = last[origins]
            if h <= len(self.weights):
                x = self.features(filled, origins, h, True)
                found[3, :, h - 1] += self.std * _told(x, self.weights[h - 1])
                x = self.features((last - self.mean) / self.std, origins, h, False)
                found[4, :, h - 1] += self.std * _told(x, self.moves[h - 1])
        return found


def _told(x: Array, weights: Array) -> Array:
    return np.asarray(np.einsum("tsk,sk->ts", x, weights, optimize=True))


def faded(z: Array, phi: Array) -> Array:
    """Fill holes by what is left of the reading before."""
    out, hole = np.nan_to_num(z), np.isnan(z)
    for row in np.flatnonzero(hole.any(axis=1)):
        if row:
            out[row] = np.where(hole[row], phi * out[row - 1], out[row])
    return out


def _carried(values: Array) -> Array:
    """Return the last reading at every row."""
    read = ~np.isnan(values)
    at = np.maximum.accumulate(np.where(read, np.arange(len(values))[:, None], 0), axis=0)
    return np.nan_to_num(np.take_along_axis(values, at, axis=0))


def _step(when: Array) -> float:
    return float(when[1] - when[0]) if len(when) > 1 else 1.0


def lively(values: Array) -> Array:
    """Return how much series move now, at every row, over how much they do on the whole."""
    moves = np.diff(_carried(values), axis=0, prepend=np.nan)
    moves = np.nan_to_num(moves) ** 2
    usual = moves.mean(axis=0) + np.finfo(float).tiny
    most = np.quantile(moves, 0.99, axis=0)
    moves = np.minimum(moves, np.maximum(most, usual))
    sums = np.cumsum(np.vstack([np.zeros((1, values.shape[1])), moves]), axis=0)
    first = np.maximum(np.arange(1, len(values) + 1) - MEMORY, 0)
    many = (np.arange(1, len(values) + 1) - first)[:, None]
    own = (sums[1:] - sums[first]) + MEMORY * usual
    return np.asarray(np.sqrt(own / ((many + MEMORY) * usual)))


@dataclass(frozen=True, eq=False)
class Forecaster:
    """Forecasts of all series, as mixtures; arrays are by step."""

    learned: Learned
    weights: Array  # of the methods
    widths: Array  # by series: std of errors
    errors: list[Array]  # over their std, sorted
    power: float  # of how lively a series is now
    steps: int

    __repr__ = brief

    @classmethod
    def of(cls, grid: Grid, steps: int) -> Forecaster:
        """Learn from a table, and from origins that are moved in it."""
        found, truth, liveliness = _moved(grid, steps)
        n = grid.values.shape[1]
        learned = Learned.of(grid, steps)
        usual = np.maximum(learned.std, 1e-12)
        weights, widths, left = np.zeros((steps, len(NAMES))), np.ones((steps, n)), []
        for h in range(steps):
            weights[h] = _mixed(found[:, :, h] / usual, truth[:, h] / usual)
            left.append(truth[:, h] - np.tensordot(weights[h], found[:, :, h], 1))
            widths[h] = _widths(left[h], usual)
        losses = [
            sum(_loss(left[h] / (widths[h] * liveliness**power)) for h in range(steps))
            for power in POWERS
        ]
        power = POWERS[int(np.argmin(losses))]
        errors = [_scores(left[h] / (widths[h] * liveliness**power)) for h in range(steps)]
        return cls(learned, weights, widths, errors, power, steps)

    def ahead(self, grid: Grid) -> tuple[Array, Array]:
        """Return mean and std of the steps after a table, step by series."""
        origins = np.array([len(grid.values) - 1])
        found = self.learned.ahead(grid, origins, self.steps)[:, 0]
        mean = np.einsum("hm,mhs->hs", self.weights, found)
        now = lively(grid.values)[-1] ** self.power
        return mean, self.widths * now

    def ends(self, coverage: float) -> Array:
        """Return the ends of intervals, in stds around the mean: low and high, by step."""
        tails = np.array([0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage])
        return np.array([np.quantile(error, tails) for error in self.errors]).T


def _moved(grid: Grid, steps: int) -> tuple[Array, Array, Array]:
    """Return forecasts from moved origins, what came, and how lively series were."""
    rows, n = grid.values.shape
    most = max(MOST_ASKED // max(n * steps, 1), 20)
    found, truths, livelies = [], [], []
    bounds = [round(share * rows) for share in FOLDS]
    if rows < FEWEST:  # all that is there has to do, and widths are a little wider for it
        bounds = [rows // 2, rows]
    alive = lively(grid.values)
    for first, last in pairwise(bounds):
        known = Learned.of(Grid(grid.values[:first], grid.when[:first]), steps)
        origins = np.arange(max(first - 1, 0), last - 1)
        origins = origins[np.linspace(0, len(origins) - 1, min(len(origins), most)).astype(int)]
        if not len(origins):
            continue
        found.append(known.ahead(grid, origins, steps))
        at = origins[:, None] + np.arange(1, steps + 1)
        truth = grid.values[np.minimum(at, rows - 1)]
        truths.append(np.where((at < rows)[:, :, None], truth, np.nan))
        livelies.append(alive[origins])
    return np.concatenate(found, axis=1), np.concatenate(truths), np.concatenate(livelies)


def _mixed(found: Array, truth: Array) -> Array:
    """Return the weights of methods, none below 0, that sum to 1 and come closest to what came."""
    known = ~np.isnan(truth)
    equal = np.full(len(found), 1.0 / len(found))
    if known.sum() < FEWEST:
        return np.asarray(np.eye(len(found))[NAMES.index("faded")])
    x, y = found[:, known], truth[known]
    squared = (x - y) ** 2
    near = squared.min(axis=0) <= np.quantile(squared.min(axis=0), 0.995)
    x, y = x[:, near], y[near]
    error = x - y
    gram = error @ error.T
    gram = gram / max(float(gram.diagonal().min()), 1e-300) + 1e-2 * np.eye(len(x))
    root = np.vstack([np.linalg.cholesky(gram).T, np.ones(len(x))])
    weights = nnls(root, np.append(np.zeros(len(x)), 1.0))[0]  # whose sum is set afterwards
    return np.asarray(weights / weights.sum()) if weights.sum() > 0 else equal


def _widths(left: Array, usual: Array) -> Array:
    """Return the std of errors of every series, drawn to what all have where there are few."""
    score = np.clip(left / usual, -FARTHEST, FARTHEST)
    known = ~np.isnan(score)
    total = float((score[known] ** 2).mean()) if known.any() else 1.0
    total = max(total, 1e-12)
    own = np.nansum(score**2, axis=0)
    return np.asarray(usual * np.sqrt((own + EVEN * total) / (known.sum(axis=0) + EVEN)))


def _loss(score: Array) -> float:
    """Return the mean width and misses of intervals (the interval score), of scores by unit."""
    known = score[~np.isnan(score)]
    if not len(known):
        return 0.0
    low, high = np.quantile(known, [0.5 - 0.5 * COVERAGE, 0.5 + 0.5 * COVERAGE])
    beyond = np.maximum(low - known, 0.0) + np.maximum(known - high, 0.0)
    return float(high - low + 2.0 / (1.0 - COVERAGE) * beyond.mean())


def _scores(score: Array) -> Array:
    """Return errors over their std, sorted; a normal distribution where there are few."""
    known = np.sort(score[~np.isnan(score)])
    if len(known) < FEWEST:
        known = np.sort(np.append(known, np.linspace(-2.5, 2.5, FEWEST)))
    return known
