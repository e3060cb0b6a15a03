"""Forecasts of series on a grid of time: simple ones, mixed by how well each did before.

Each simple forecast learns from the first part of the table and is asked of the part after it,
origin by origin: that tells the weights of a mixture for every step, and how wide intervals must
be. In the end all learn from everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import nnls

from noisewise.engine.arrays import Array
from noisewise.errors import DataError, brief
from noisewise.forecast_widths import FEWEST, Widths
from noisewise.models.profiles import CYCLES
from noisewise.simple_forecasts import NAMES, Grid, Learned

HORIZON = 6  # steps that are learned at least; then twice as many, and so on
FOLDS = (0.5, 0.65, 0.8, 1.0)  # shares of the rows at which origins move on
MOST_ASKED = 4_000_000  # numbers that origins are asked for: series, steps and origins
SAFE = 8.0  # errors that the last reading is worth, as what to say where little is known
DRAWN = {"last": 0.0, "faded": 0.25}  # how much of that holds for a method; 1 for all others
HALF = 0.25  # of the rows: an origin so long before the last counts half
BESIDE = 0.8  # what a step counts for the weights of the next or the one before
EVEN = 1e-2  # of the best squared error, that draws weights to each other
USUAL = 0.9  # of rows, at which readings are as old as is usual
ALIKE = 1000.0  # errors of a series that weights of all series are worth
CLOSE = 0.995  # share of readings that weights are told by: no mixture comes close to the others


@dataclass(frozen=True, eq=False)
class Forecaster:
    """Forecasts of all series, as mixtures; arrays are by step."""

    learned: Learned
    weights: Array  # of the methods, by series
    widths: Widths
    end: float  # the last time that was learned from
    steps: int

    __repr__ = brief

    @classmethod
    def of(cls, grid: Grid, steps: int, read: Grid | None = None) -> Forecaster:
        """Learn from a table, and from origins that are moved in it.

        ``read`` is the same table with outliers, if there are any that nothing is learned from:
        they are what a forecast starts from and is judged by.
        """
        read = grid if read is None else read
        if len(grid.when) < 2:
            raise DataError("A forecast needs readings at 2 times or more; got 1.")
        asked = _moved(grid, read, steps)
        seen = FOLDS[-2] * float(grid.when[-1] - grid.when[0])  # by the last that origins judged
        learned = Learned.of(grid, steps, seen / CYCLES)
        usual = np.maximum(learned.std, 1e-12)
        weights = _mixed((asked.found - asked.truth) / usual, asked.count)
        left = asked.truth - np.einsum("hms,mohs->ohs", weights, asked.found)
        widths = Widths.of(left, asked.count, usual)
        return cls(learned, weights, widths, float(read.when[-1]), steps)

    def ahead(self, grid: Grid) -> tuple[Array, Array]:
        """Return mean and std of the steps after a table, step by series."""
        now = len(grid.when) - 1
        mean = _within(self._mean(grid, np.array([now]))[0], grid.values)
        later = round((float(grid.when[-1]) - self.end) / grid.step)
        if later <= 0:
            return mean, self._silent(grid.values, self.widths.now())
        origins = np.arange(max(now - later - self.steps + 1, 0), now)
        most = max(MOST_ASKED // (self.steps * grid.values.shape[1]), FEWEST)
        origins = origins[-min(len(self.widths.recent) + self.steps, most) :]
        left = _after(grid.values, origins, self.steps) - self._mean(grid, origins)
        return mean, self._silent(grid.values, self.widths.later(left, later).now())

    def _silent(self, values: Array, std: Array) -> Array:
        """Return stds that are wider for series that ended before others: these steps are more.

        They grow with the root of steps, as those of a walk, until they are those of the series.
        """
        row = np.arange(len(values))[:, None]
        last = np.maximum.accumulate(np.where(np.isnan(values), -1, row), axis=0)
        age = np.where(row <= last[-1], row - last, 0)  # of readings; errors know of usual ones
        more = np.maximum(row[-1] - last[-1] - np.quantile(age, USUAL, axis=0), 0.0)
        step = np.arange(1, len(std) + 1)[:, None]
        wider = std * np.sqrt(1.0 + more / step)
        return np.asarray(np.minimum(wider, np.maximum(std, self.learned.std)))

    def _mean(self, grid: Grid, origins: Any) -> Array:
        found = self.learned.ahead(grid, origins, self.steps)
        return np.asarray(np.einsum("hms,mohs->ohs", self.weights, found))

    def ends(self, coverage: float) -> Array:
        """Return the ends of intervals, in stds around the mean: low and high, by step."""
        return self.widths.ends(coverage)


@dataclass(frozen=True, eq=False)
class Asked:
    """Forecasts from moved origins."""

    found: Array  # method by origin by step by series
    truth: Array  # what came; NaN where nothing did
    count: Array  # of every origin: the more the later

    __repr__ = brief


def _moved(grid: Grid, read: Grid, steps: int) -> Asked:
    """Forecast from origins in a table, each by what was learned from the rows before some."""
    rows, n = read.values.shape
    ahead_of = round((float(grid.when[0]) - float(read.when[0])) / read.step)  # rows of outliers
    bounds = [round(share * rows) for share in FOLDS]
    if rows < FEWEST:  # all that is there has to do, and widths are a little wider for it
        bounds = [rows // 2, rows]
    most = max(MOST_ASKED // max(n * steps, 1) // (len(bounds) - 1), 20)
    found, origins = [], []
    for first, last in pairwise(bounds):
        asked = np.arange(max(first - 1, 0), last - 1)[-most:]
        if len(asked):
            known = Learned.of(grid.until(max(first - ahead_of, 1)), steps)
            found.append(known.ahead(read, asked, steps))
            origins.append(asked)
    at = np.concatenate(origins)
    count = 0.5 ** ((rows - at) / max(HALF * rows, 1.0))
    return Asked(np.concatenate(found, axis=1), _after(read.values, at, steps), count)


def _after(values: Array, origins: Any, steps: int) -> Array:
    """Return what came after origins: origin by step by series; NaN where nothing did."""
    rows = len(values)
    at = origins[:, None] + np.arange(1, steps + 1)
    return np.where((at < rows)[:, :, None], values[np.minimum(at, rows - 1)], np.nan)


def _within(mean: Array, values: Array) -> Array:
    """Return forecasts no farther beyond what was ever read than its lowest is from its highest.

    A line through readings that jumped at the end may lead anywhere.

    Examples
    --------
    >>> _within(np.array([[5.0, 99.0]]), np.array([[1.0, 2.0], [3.0, np.nan]])).tolist()
    [[5.0, 2.0]]
    """
    low, high = (end.reduce(values, axis=0) for end in (np.fmin, np.fmax))
    reach = np.nan_to_num(high - low)
    return np.where(np.isnan(low), mean, np.clip(mean, low - reach, high + reach))


def _mixed(error: Array, count: Array) -> Array:
    """Return the weights of methods, none below 0, that sum to 1: step by method by series.

    They are those that would have come closest for a series, drawn to those of all series, and to
    the last reading where few errors tell them; steps beside each other say nearly the same.
    """
    methods, _, steps, n = error.shape
    known = ~np.isnan(error[0])  # the same for all of them: all say something
    grams, many, own = np.zeros((steps, n, methods, methods)), np.zeros(steps), np.zeros((steps, n))
    for h in np.flatnonzero(known.any(axis=(0, 2))):
        best = (error[:, :, h] ** 2).min(axis=0)
        near = known[:, h] & (best <= np.nanquantile(best, CLOSE))
        one = np.where(near, error[:, :, h], 0.0).transpose(2, 0, 1)
        grams[h] = (one * count) @ one.transpose(0, 2, 1)
        many[h] = _evidence(known[:, h], count, int(h) + 1)
        own[h] = [_evidence(some[:, None], count, int(h) + 1) for some in known[:, h].T]
    beside = BESIDE ** np.abs(np.arange(steps)[:, None] - np.arange(steps))
    safe = SAFE / np.maximum((beside * many).max(axis=1), 1e-9)
    alike = _unit(np.tensordot(beside, _unit(grams.sum(axis=1)), 1))[:, None]
    share = (own / (own + ALIKE))[:, :, None, None]
    grams = share * _unit(np.tensordot(beside, _unit(grams), 1)) + (1.0 - share) * alike
    both = zip(grams, safe, strict=True)
    return np.array([[_weights(one, cost) for one in row] for row, cost in both]).swapaxes(1, 2)


def _evidence(known: Array, count: Array, step: int) -> float:
    """Return how many errors of one series tell as much as those at a step: origin by series.

    Errors of some steps overlap, and those of several series go together: they count as the root.
    """
    heavy = count * known.any(axis=1)
    if not heavy.any():
        return 0.0
    origins = heavy.sum() ** 2 / (heavy**2).sum()
    return float(origins / min(step, HORIZON) * np.sqrt(known.sum() / known.any(axis=1).sum()))


def _weights(gram: Array, safe: float) -> Array:
    """Return the weights that leave least, of the products of errors of methods.

    ``safe`` is what squared weights of methods cost beside that: nothing for the last reading.
    """
    methods = len(gram)
    if not gram.any():
        return np.asarray(np.eye(methods)[NAMES.index("last")])
    cost = np.array([DRAWN.get(name, 1.0) for name in NAMES])
    gram = _unit(gram) + EVEN * np.eye(methods) + safe * np.diag(cost)
    root = np.vstack([np.linalg.cholesky(gram).T, np.ones(methods)])
    weights = nnls(root, np.append(np.zeros(methods), 1.0))[0]  # whose sum is set afterwards
    return np.asarray(weights / weights.sum())


def _unit(grams: Array) -> Array:
    """Return products of errors over the squared error of the best method; 0 if none was made."""
    own = np.einsum("...ii->...i", grams)
    least = np.maximum(own.min(axis=-1), 1e-12 * own.max(axis=-1))
    return np.asarray(grams / np.maximum(least, np.finfo(float).tiny)[..., None, None])
