"""TableImputer: scikit-learn's imputers on the table that has a row per time, a column per series.

They are what people try first; here they answer the same questions as every other model.
"""

from __future__ import annotations

import time as clock
import warnings
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

# IterativeImputer must be switched on, as scikit-learn may still change it.
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer

from noisewise.calibration import Calibration
from noisewise.data import Observations, encode_ids, observe
from noisewise.data.timestamps import SeriesIndex, Units, n_keys, sensor_modes, series_keys
from noisewise.engine.arrays import Array, Codes, Moments
from noisewise.engine.data import Series
from noisewise.engine.training import one_blas_thread
from noisewise.errors import DataError
from noisewise.models.base import Cells, in_one_step
from noisewise.models.learner import fixed_seed, hold_out, joined, range_of
from noisewise.models.sensors import PRIOR, InTime, Typed, index_of, series_units, units_schema
from noisewise.schema import ANY, POSITIVE, Entry, Found, Schema, Tensor, keys, real
from noisewise.settings import (
    RANDOM_SEED,
    check,
    either,
    learned,
    number,
    one_of,
    setting,
    settings,
    whole,
)

LEAST = 1e-6  # share of a type's variance that an error has at least


class Filled(NamedTuple):
    """A table without gaps, with a row per time and a column per series of ``grouping``.

    ``series`` and ``types`` are the units of every series, and of every type.
    """

    table: npt.NDArray[np.float32]
    grouping: SeriesIndex
    series: Units
    types: Units

    def moments(
        self, codes: tuple[Codes, ...], share: Array, factor: Array
    ) -> tuple[Array, Array, Array]:
        """Mean, noise and epistemic variance of cells.

        ``share`` is the noise of every type as a share of its variance, ``factor`` is on it for
        every series.
        """
        which, types = self.grouping.series(codes), self.grouping.sensors_of(codes)
        when = codes[self.grouping.time]
        mean, variance = (part[types] for part in self.types)
        noise = share[types] * variance
        known = which >= 0
        mean[known], variance[known] = (part[which[known]] for part in self.series)
        noise[known] *= factor[which[known]]
        there = known & (when >= 0)
        mean[there] = self.table[when[there], which[there]]
        noise = np.where(there, noise, np.minimum(noise, variance))
        return mean, noise, np.where(there, 0.0, variance - noise)


@settings
class TableImputer(InTime, Typed):
    """Fill the table of times and series with an imputer of scikit-learn.

    Series are brought to mean 0 and std 1, imputed and brought back. A cell that was trained on is
    predicted as it was; a time that was never seen gets the mean of the series, a series never seen
    that of its type.

    The imputers have no std of their own. A share of the cells is held out and imputed: the mean
    squared error of each type of sensor, and a factor for each series that is drawn to 1 where few
    of its cells were held out, give the std; all of it is noise but at cells that cannot be
    imputed. Then the table is filled again from everything.

    Examples
    --------
    >>> rows = [(place, hour, place + np.sin(hour)) for place in range(5) for hour in range(30)]
    >>> model = TableImputer("knn", n_neighbours=1, random_state=0).fit(rows[::4] + rows[1::4])
    >>> model.table_.shape
    (30, 5)
    """

    method: Literal["knn", "iterative"] = setting(
        one_of("knn", "iterative"),
        "``KNNImputer``: the mean of those times at which other series were most alike; or "
        "``IterativeImputer``: a regression of each series on others, in turns.",
        default="knn",
        kw_only=False,
    )
    n_neighbours: int = setting(
        whole(1),
        'Times to average, for "knn".',
        default=5,
    )
    weights: Literal["uniform", "distance"] = setting(
        one_of("uniform", "distance"),
        'Average them alike or by inverse distance, for "knn".',
        default="distance",
    )
    n_nearest: int | None = setting(
        either(whole(1), None),
        "Other series that a regression has, drawn by their correlation with its own, for "
        '"iterative". None takes all of them, which is slow for more than a few dozen series.',
        default=20,
    )
    iterations: int = setting(
        whole(1),
        'How often to impute every series, for "iterative".',
        default=5,
    )
    validation_fraction: float = setting(
        number(above=0.0, most=0.5),
        "Share to hold out.",
        default=0.1,
    )
    max_cells: int = setting(
        whole(1),
        "Refuse a table of more cells: it would be held in memory, gaps and all.",
        default=50000000,
    )
    random_state: int | np.random.RandomState | None = setting(
        RANDOM_SEED,
        'Draws what is held out and, for "iterative", the other series. The same int gives the '
        "same bits.",
        default=None,
    )
    seconds_: float = learned("Time that fit took.")
    _filled: Filled = learned()
    _share: Array = learned()
    _factor: Array = learned()

    @property
    def table_(self) -> npt.NDArray[np.float32]:
        """The table without gaps; a row per time, a column per series that was observed."""
        return self._filled.table

    @in_one_step
    def fit(self, X: Any, y: Any = None, *, validation: Observations | None = None) -> Self:
        """Learn from a table of ids and a value for each row.

        Parameters
        ----------
        X : table of ids or Observations
            One id column per mode.
        y : sequence of float, optional
            The values; without it, the last column of X.
        validation : Observations, optional
            Held-out values to use instead of a random share of X. They are in the table in the end,
            as a random share is.

        Returns
        -------
        self
        """
        started = clock.perf_counter()
        check(self)
        everything = observe(X, y, duplicates=self.duplicates)
        seed = fixed_seed(self.random_state)
        kept, held_out = hold_out(everything, validation, self.validation_fraction, seed)
        if held_out is not None:
            everything = joined(kept, held_out)
        filled = self._fill(everything, seed)
        share, factor = np.ones(len(filled.types.mean)), np.ones(len(filled.series.mean))
        calibration = None
        if held_out is not None:
            told, _, _ = self._fill(kept, seed).moments(held_out.codes, share, factor)
            error = held_out.values - told
            share, factor = _spread(filled, held_out.codes, error)
            _, noise, epistemic = filled.moments(held_out.codes, share, factor)
            calibration = Calibration.measure(error, np.sqrt(noise + epistemic))
        self._filled, self._share, self._factor = filled, share, factor
        self.ids_, self.calibration_ = everything.ids, calibration
        self.value_range_ = range_of(self.value_range, everything)
        self._note_columns(X)
        self.seconds_ = clock.perf_counter() - started
        return self

    def _fill(self, seen: Observations, seed: int) -> Filled:
        time, sensor = sensor_modes(self.time, self.sensor, seen.ids)
        keys, which = np.unique(series_keys(seen.codes, seen.shape, time)[0], return_inverse=True)
        n_times, n_series = seen.shape[time], len(keys)
        if n_times * n_series > self.max_cells:
            raise DataError(
                f"A table of {n_times:,} times and {n_series:,} series has {n_times * n_series:,} "
                f"cells, more than max_cells={self.max_cells:,}: take a model that needs no table, "
                "or raise max_cells if there is memory for it."
            )
        grouping = SeriesIndex(time, sensor, seen.shape, keys)
        when = seen.codes[time]
        series = Series.group(which, when.astype(np.float64), seen.values, n_series)
        units = series_units(series, grouping.sensors, grouping.n_sensors)
        scale = np.sqrt(units.variance)
        table = np.full((n_times, n_series), np.nan)
        table[when, which] = (seen.values - units.mean[which]) / scale[which]
        table = units.mean + scale * self._impute(table, seed)
        types = Units.of(seen.values, grouping.sensors_of(seen.codes), grouping.n_sensors)
        if types.precision is np.float64:
            raise DataError(
                "TableImputer keeps its table in single precision, which is too coarse for these "
                "values: subtract what they have in common, or change their unit."
            )
        return Filled(table.astype(np.float32), grouping, units, types)

    def _impute(self, table: Array, seed: int) -> Array:
        """Fill a table in which every column has an entry."""
        if self.method == "knn":
            imputer = KNNImputer(n_neighbors=self.n_neighbours, weights=self.weights)
        else:
            farthest = 1.0 + float(np.nanmax(np.abs(table)))  # a regression may run away
            imputer = IterativeImputer(
                max_iter=self.iterations, n_nearest_features=self.n_nearest, min_value=-farthest,
                max_value=farthest, random_state=seed,
            )  # fmt: skip
        with one_blas_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # iterations are few on purpose
            return np.asarray(imputer.fit_transform(table))

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        codes = encode_ids(X, self.ids_)
        parts = self._filled.moments(codes, self._share, self._factor)
        unseen = np.any([code < 0 for code in codes], axis=0)
        return Cells(Moments(*(part.astype(np.float32) for part in parts)), unseen)

    def schema(self) -> Schema:
        """Declare what a file keeps: the table without gaps, and units."""
        yield Entry("seconds", "seconds_", real())
        grouping = index_of(self, self.ids_)
        rule = keys(n_keys(grouping.shape, grouping.time))
        n = len((yield Tensor("keys", "int64", (ANY,), "_filled.grouping.keys", rule)))
        size, n_types = (grouping.shape[grouping.time], n), grouping.n_sensors + 1
        yield Tensor("table", "float32", size, "_filled.table")
        yield from units_schema("series.", "_filled.series", n)
        yield from units_schema("types.", "_filled.types", n_types)
        yield Tensor("share", "float64", (n_types,), "_share", POSITIVE)
        yield Tensor("factor", "float64", (n,), "_factor", POSITIVE)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        grouping = replace(index_of(self, self.ids_), keys=found["keys"])
        units = (Units(**found.part(name)) for name in ("series", "types"))
        self._filled = Filled(found["table"], grouping, *units)


def _spread(filled: Filled, codes: tuple[Codes, ...], error: Array) -> tuple[Array, Array]:
    """Return the noise of every type as a share of its variance, and a factor for every series.

    A type counts what all have in common, a series what its type has, as ``PRIOR`` observations.
    """
    which, types = filled.grouping.series(codes), filled.grouping.sensors_of(codes)
    variance = filled.types.variance[types]
    score = error**2 / variance
    n_types, n_series = len(filled.types.mean), len(filled.series.mean)
    overall = max(float(score.mean()), LEAST)
    sums, counts = np.bincount(types, score, n_types), np.bincount(types, minlength=n_types)
    share = np.maximum((PRIOR * overall + sums) / (PRIOR + counts), LEAST)
    own = score / share[types]
    sums, counts = np.bincount(which, own, n_series), np.bincount(which, minlength=n_series)
    return share, (PRIOR + sums) / (PRIOR + counts)
