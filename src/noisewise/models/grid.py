"""TableModel: simple ways to fill a table of series by times, each from what the others read.

Nearest moments, regressions on the series that are most alike, with or without trees, and low rank.
They know nothing of time but the line that they start from; between the times of the table they
draw lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from scipy.linalg import eigh
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import BayesianRidge
from sklearn.metrics.pairwise import nan_euclidean_distances

from noisewise.data.timestamps import Units
from noisewise.engine.arrays import Array, Ints
from noisewise.engine.data import Series, interpolate
from noisewise.engine.training import one_blas_thread
from noisewise.errors import DataError, SettingError
from noisewise.models.later_rows import KnownRows
from noisewise.models.sensors import PRIOR, SeriesModel
from noisewise.schema import POSITIVE, RISING, Schema, Tensor
from noisewise.settings import Rule, learned, one_of, setting, settings, whole

HELD_OUT = 0.1  # share of readings that tell the std
MOST_CELLS = 50_000_000  # of a table
MOST_ROWS = 4_000  # that nearest moments are looked for among, and that a regression learns from
NEIGHBOURS = 10
ROUNDS, SAME = 4, 1e-2  # of regressions; stds by which the last round moves what it fills, at most
PREDICTORS, WITH_LAGS = 40, 20  # series of a regression: alone, and with what they read before
TREES, LEAF, FEATURES = 20, 3, 0.1  # of a forest: readings of a leaf, and share of what is tried
SHRINKAGE = 1 / 50  # of singular values, as a share of the largest
STEPS = 100  # of low rank, at most
SETTLED = 1e-4  # relative change of a step that is the last
LEAST = 1e-6  # share of a series' variance that an error has at least


def _are_lags(given: Any) -> bool:
    return isinstance(given, tuple | list) and all(whole(1).holds(lag) for lag in given)


@settings
class TableModel(SeriesModel):
    """Fill a table of series by times from what other series, or other moments, read.

    Readings are standardised by series, and holes start as lines between readings. The std of a
    series is that of a tenth of its readings, which are filled as if they had been holes.

    Examples
    --------
    >>> rows = [(place, hour, (1 + (place == "attic")) * np.sin(hour / 4))
    ...         for place in ("hall", "attic", "cellar") for hour in range(48)]
    >>> model = TableModel("regression").fit([row for row in rows if row[:2] != ("attic", 6)])
    >>> bool(abs(model.predict([("attic", 6)])[0] - 2 * np.sin(6 / 4)) < 0.01)
    True
    """

    method: Literal["nearest", "regression", "forest", "soft", "svd"] = setting(
        one_of("nearest", "regression", "forest", "soft", "svd"),
        '"nearest": the mean of moments that are most alike. "regression": every series on those '
        'most like it, round by round. "forest": the same, and randomised trees for what it leaves '
        'over. "soft": singular values less a constant (SoftImpute). "svd": a low rank.',
        default="regression",
        kw_only=False,
    )
    rank: int = setting(whole(1), 'Singular values that "svd" keeps.', default=4)
    lags: Sequence[int] = setting(
        Rule("a list of whole numbers, 1 or more", _are_lags),
        'How many moments before and after "nearest", "regression" and "forest" also look at what '
        "was read then. Rows that come in after the fit are filled by what is read at their time.",
        default=(),
    )

    filled_: Array = learned("The table, series by times, without holes.")
    times_: Array = learned("Its times.")
    variance_: Array = learned("Variance of errors of every series.")

    def _learn_series(self, series: Series, types: Ints, n_types: int) -> None:
        times, place = np.unique(series.time, return_inverse=True)
        if len(times) * len(series) > MOST_CELLS:
            raise DataError(
                f"{self.method!r} fills a table of series by times, here {len(series):,} by "
                f"{len(times):,}, and takes {MOST_CELLS:,} cells at most: take another method, or "
                "times that series have in common."
            )
        fill, quick = FILLS[self.method], QUICK.get(self.method, FILLS[self.method])
        with one_blas_thread():
            tell = np.random.default_rng(0).random(len(place)) < HELD_OUT
            once = _filled(partial(quick, self), series, times, place, ~tell)
            squared = (series.values - once[series.which, place]) ** 2
            known = np.ones(len(place), dtype=bool)
            self.filled_ = _filled(partial(fill, self), series, times, place, known)
        self.times_ = times
        units = Units.of(series.values, types[series.which], n_types)
        least = LEAST * units.variance[types]
        common = units.variance[:-1]
        if tell.any():
            sums = np.bincount(types[series.which[tell]], squared[tell], n_types)
            counts = np.bincount(types[series.which[tell]], minlength=n_types)
            common = np.where(counts > 0, sums / np.maximum(counts, 1), common)
        own = np.bincount(series.which[tell], squared[tell], len(series))
        many = np.bincount(series.which[tell], minlength=len(series))
        self.variance_ = np.maximum((own + PRIOR * common[types]) / (many + PRIOR), least)

    @cached_property
    def _known_rows(self) -> KnownRows:
        return KnownRows.of(self.filled_, self.times_, self.method == "nearest")

    def _extend(self) -> None:
        with one_blas_thread():
            self.times_, self.filled_ = self._known_rows.extended(self.series_)

    @property
    def _noise(self) -> Array:
        types, variance = self._index.sensors, self.variance_
        n = self._index.n_sensors
        sums = np.bincount(types, variance, n) / np.maximum(np.bincount(types, minlength=n), 1)
        return np.append(np.where(sums > 0, sums, variance.mean()), variance.mean())

    def _at(self, which: Ints, when: Array, leave_out: bool) -> tuple[Array, Array, Array]:
        if leave_out:
            raise SettingError(
                f"{self.method!r} does not tell what a reading would be without itself: take "
                '"ou" or "linear".'
            )
        right = np.searchsorted(self.times_, when).clip(max=len(self.times_) - 1)
        left = np.maximum(right - 1, 0)
        gap = self.times_[right] - self.times_[left]
        share = (when - self.times_[left]) / np.where(gap > 0, gap, 1.0)
        share = np.where(gap > 0, share, 1.0).clip(0.0, 1.0)
        before, after = self.filled_[which, left], self.filled_[which, right]
        variance = self.variance_[which]
        return before + share * (after - before), variance, np.zeros(len(when))

    def schema(self) -> Schema:
        """Declare what a file keeps: also the filled table, and the variance of its series."""
        n_series = yield from super().schema()
        times = yield Tensor("times", "float64", (None,), "times_", RISING)
        yield Tensor("filled", "float64", (n_series, len(times)), "filled_")
        yield Tensor("variance", "float64", (n_series,), "variance_", POSITIVE)


def _filled(
    fill: Callable[[Array, Array], Array],
    series: Series,
    times: Array,
    place: Ints,
    known: Any,
) -> Array:
    """Return the table of series, filled from some of their readings."""
    table = np.full((len(series), len(times)), np.nan)
    which = series.which
    table[which[known], place[known]] = series.values[known]
    counts = np.maximum((~np.isnan(table)).sum(axis=1), 1)
    mean = np.nansum(table, axis=1) / counts
    read = (~np.isnan(table)).any(axis=1)
    mean = np.where(read, mean, mean[read].mean() if read.any() else 0.0)
    std = np.sqrt(np.nansum((table - mean[:, None]) ** 2, axis=1) / counts)
    std = np.where(std > 0, std, 1.0)
    table = (table - mean[:, None]) / std[:, None]
    some = Series.group(
        which[known], series.time[known], table[which[known], place[known]], len(series)
    )
    every = np.repeat(np.arange(len(series)), len(times))
    start = interpolate(some, every, np.tile(times, len(series))).value.reshape(table.shape)
    start = np.nan_to_num(start)
    whole = fill(table, start)
    whole = np.where(np.isfinite(whole), whole, start)
    return np.asarray(mean[:, None] + std[:, None] * np.where(np.isnan(table), whole, table))


def _by_neighbours(model: TableModel, table: Array, start: Array) -> Array:
    """Fill moments with the mean of those that are most alike."""
    out, n = start.copy(), table.shape[1]
    reach = max(model.lags, default=0)
    for piece in np.array_split(np.arange(n), -(-n // MOST_ROWS)):
        part = table[:, piece]
        rows = np.flatnonzero(np.isnan(part).any(axis=0))
        if not len(rows):
            continue
        first, last = max(piece[0] - reach, 0), piece[-1] + 1 + reach
        around = _with_lags(table[:, first:last].T, model.lags)[piece - first]
        away = nan_euclidean_distances(around[rows], around)
        away = np.where(np.isnan(away), np.inf, away)
        for s in range(len(table)):
            donors, holes = np.flatnonzero(~np.isnan(part[s])), np.isnan(part[s, rows])
            if len(donors) and holes.any():
                found = _mean_of_nearest(away[holes][:, donors], part[s, donors])
                at = piece[rows[holes]]
                out[s, at] = np.where(np.isnan(found), out[s, at], found)
    return out


def _mean_of_nearest(away: Array, values: Array) -> Array:
    """Return means of the nearest values, by one over how far they are; NaN if all are infinite.

    Examples
    --------
    >>> _mean_of_nearest(np.array([[1.0, 3.0], [0.0, 1.0], [np.inf, np.inf]]), np.array([4.0, 8.0]))
    array([ 5.,  4., nan])
    """
    n = min(NEIGHBOURS, away.shape[1])
    nearest = np.argpartition(away, n - 1, axis=1)[:, :n]
    far = np.take_along_axis(away, nearest, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where((far == 0).any(axis=1)[:, None], far == 0, 1.0 / far)
        return np.asarray((weight * values[nearest]).sum(axis=1) / weight.sum(axis=1))


def _by_regression(model: TableModel, table: Array, start: Array, rounds: int = ROUNDS) -> Array:
    """Fill series from those most like them, by ridge regressions whose penalty is learned."""
    out, known = start.copy(), ~np.isnan(table)
    if min(table.shape) < 2:
        return out
    order = np.argsort(-known.sum(axis=1), kind="stable")
    ridge, rng = BayesianRidge(tol=1e-3, max_iter=50), np.random.default_rng(0)
    for _ in range(rounds):
        before = out.copy()
        nearest = _most_alike(out, WITH_LAGS if model.lags else PREDICTORS)
        for s in order:
            rows = _to_learn_from(table[s], rng)
            if len(rows):
                others = _with_lags(out[nearest[s]].T, model.lags)
                ridge.fit(others[rows], table[s, rows])
                out[s, ~known[s]] = ridge.predict(others[~known[s]])
        if np.abs(out - before).max() <= SAME:
            break
    return out


def _by_forest(model: TableModel, table: Array, start: Array, rounds: int = ROUNDS) -> Array:
    """Fill series from those most like them, by ridge regressions and trees for what they leave.

    Others are filled by regressions first. Trees know the time, too: what is left may drift.
    """
    filled = _by_regression(TableModel("regression"), table, start, rounds)
    if min(table.shape) < 2:
        return filled
    known = ~np.isnan(table)
    base = np.where(known, table, filled)
    ridge, rng = BayesianRidge(tol=1e-3, max_iter=50), np.random.default_rng(0)
    nearest, when = _most_alike(base, WITH_LAGS), np.linspace(0.0, 1.0, table.shape[1])[:, None]
    for s in range(len(table)):
        rows, hole = _to_learn_from(table[s], rng), ~known[s]
        if len(rows):
            others = _with_lags(base[nearest[s]].T, model.lags)
            ridge.fit(others[rows], table[s, rows])
            left = table[s, rows] - ridge.predict(others[rows])
            told = np.hstack([others, when])
            trees = ExtraTreesRegressor(
                TREES, min_samples_leaf=LEAF, max_features=FEATURES, random_state=0
            ).fit(told[rows], left)
            filled[s, hole] = ridge.predict(others[hole]) + trees.predict(told[hole])
    return filled


def _most_alike(whole: Array, most: int) -> list[Ints]:
    """Return for every series the others that are most like it, by correlation."""
    alike = np.abs(np.corrcoef(whole + 1e-12 * np.arange(whole.shape[1])))
    np.fill_diagonal(alike, -1.0)
    nearest = np.argsort(-np.nan_to_num(alike), axis=1, kind="stable")[:, :most]
    return [own[own != s] for s, own in enumerate(nearest)]


def _to_learn_from(series: Array, rng: np.random.Generator) -> Ints:
    """Return when a series was read, not too often; nothing if it has no holes or tells nothing."""
    rows = np.flatnonzero(~np.isnan(series))
    if len(rows) == len(series) or len(rows) < 3 or np.ptp(series[rows]) == 0:
        return rows[:0]
    return rows if len(rows) <= MOST_ROWS else np.sort(rng.choice(rows, MOST_ROWS, replace=False))


def _with_lags(others: Array, lags: Sequence[int]) -> Array:
    """Return moments with what was read before and after, beside what was read then.

    Examples
    --------
    >>> _with_lags(np.array([[1.0], [2.0], [3.0]]), [1]).tolist()
    [[1.0, 1.0, 2.0], [2.0, 1.0, 3.0], [3.0, 2.0, 3.0]]
    """
    at = np.arange(len(others))
    offsets = [0, *(sign * lag for lag in lags for sign in (-1, 1))]
    return np.hstack([others[(at + offset).clip(0, len(others) - 1)] for offset in offsets])


def _by_singular_values(model: TableModel, table: Array, start: Array) -> Array:
    """Fill a table with low rank, step by step: singular values shrunk, or all but a few cut."""
    known = ~np.isnan(table)
    turned = len(table) > table.shape[1]  # the shorter side has the vectors
    target, mask = (table.T, known.T) if turned else (table, known)
    now = np.where(mask, 0.0, start.T if turned else start)
    cut = None
    for _ in range(STEPS):
        guess = np.where(mask, target, now)
        values, vectors = eigh(guess @ guess.T)
        singular = np.sqrt(np.maximum(values, 0.0))
        cut = SHRINKAGE * singular[-1] if cut is None else cut
        with np.errstate(divide="ignore", invalid="ignore"):
            keep = np.nan_to_num(np.maximum(singular - cut, 0.0) / singular)
        if model.method == "svd":
            keep = (np.arange(len(singular)) >= len(singular) - model.rank).astype(float)
        new = (vectors * keep) @ (vectors.T @ guess)
        change = np.linalg.norm((new - now)[~mask])
        scale = np.linalg.norm(now[~mask])
        now = new
        if change <= SETTLED * scale:
            break
    return now.T if turned else now


FILLS: dict[str, Callable[[TableModel, Array, Array], Array]] = {
    "nearest": _by_neighbours,
    "regression": _by_regression,
    "forest": _by_forest,
    "soft": _by_singular_values,
    "svd": _by_singular_values,
}
# For single readings, whose neighbours in time are there, lines are a good start: one round does.
QUICK = {
    "regression": partial(_by_regression, rounds=1),
    "forest": partial(_by_forest, rounds=1),
}
