"""What models of readings share: which mode is time, which the sensor, in which units.

A series is all that was observed of one combination of the ids of all modes but time. Series of the
same type (temperature, humidity, ...) have units and habits in common.
"""

from __future__ import annotations

import time as clock
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from noisewise import schema
from noisewise.calibration import Calibration
from noisewise.data import Ids, Observations, observe
from noisewise.data.observations import encode_in_time
from noisewise.data.timestamps import (
    FLOOR,
    SeriesIndex,
    Units,
    checked_stamps,
    mode_number,
    n_keys,
    sensor_modes,
    series_keys,
)
from noisewise.engine.arrays import Array, Codes, Ints, Moments
from noisewise.engine.data import Series
from noisewise.models.base import (
    Cells,
    Factorizer,
    Threads,
    as_it_is,
    at_one_moment,
    in_one_step,
)
from noisewise.models.learner import range_of, refuse_weight
from noisewise.schema import Entry, Found, Schema, Tensor
from noisewise.settings import Rule, check, either, learned, setting, settings
from noisewise.storage import Damaged

PRIOR = 5.0  # observations that what a type has in common is worth

MODE = Rule(
    "the name or the number of a mode",
    lambda v: isinstance(v, str | int | np.integer) and type(v) is not bool,
)


@settings
class Typed:
    """Base class of models that tell types of sensors apart."""

    sensor: int | str | None = setting(
        either(MODE, None),
        "The mode that is the type of sensor, by number or name; None takes all series to be of "
        'one type. "auto" takes the mode called "sensor", else the one with the fewest ids that is '
        "not time, and None if there is only one other.",
        default="auto",
    )


@settings
class InTime(Factorizer):
    """Base class of models of which one mode is time."""

    time: int | str = setting(
        MODE,
        "The mode that holds the times, by number (-1 is the last) or name. Its ids are numbers or "
        "dates (also as ISO text), at any distances; times that were never seen can be asked for.",
        default=-1,
    )

    def _unbounded(self) -> tuple[int, ...]:
        return (mode_number(self.time, self.ids_, "time"),)


@settings
class Readings(Typed):
    """Part of models in time that learn in one go; one says what it learns (``_learn``)."""

    seconds_: float = learned("Time that fit took.")

    @in_one_step
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a table of ids, one of which is a time (a number or a date), and values y.

        Without y, the last column of X has the values.
        """
        self._fit(X, y, None)
        return self

    def _fit(self: Any, X: Any, y: Any, validation: Observations | None) -> None:
        started = clock.perf_counter()
        check(self)
        given = observe(X, y, duplicates=self.duplicates)
        refuse_weight(self, given)
        seen, self.calibration_ = self._learn(given, validation)
        self.ids_, self.value_range_ = seen.ids, range_of(self.value_range, seen)
        self._note_columns(X)
        self.seconds_ = clock.perf_counter() - started

    @abstractmethod
    def _learn(
        self, seen: Observations, validation: Observations | None
    ) -> tuple[Observations, Calibration | None]:
        """Learn; return all that was learned from, and what held-out errors say of the std."""


@settings
class SeriesModel(Readings, InTime, Threads):
    """Base class of models that look at one series at a time."""

    _std_is_honest: ClassVar[bool] = True

    series_: Series = learned("The observations, by series and time.")

    @abstractmethod
    def _learn_series(self, series: Series, types: Ints, n_types: int) -> None:
        """Learn from all series."""

    @abstractmethod
    def _at(self, which: Ints, when: Array, leave_out: bool) -> tuple[Array, Array, Array]:
        """Mean, noise and epistemic variance of series at some times; NaN where none is known."""

    @property
    @abstractmethod
    def _noise(self) -> Array:
        """Variance of the noise of every type, and of a type never seen."""

    def _learn(
        self, seen: Observations, validation: Observations | None
    ) -> tuple[Observations, Calibration | None]:
        bare = index_of(self, seen.ids)
        keys, _ = series_keys(seen.codes, seen.shape, bare.time)
        keys, which = np.unique(keys, return_inverse=True)
        stamps, _ = checked_stamps(seen.ids[bare.time])
        series = Series.group(which, stamps[seen.codes[bare.time]], seen.values, len(keys))
        index = replace(bare, keys=keys)
        self._learn_series(series, index.sensors, index.n_sensors)
        self._keep(series, index, seen.ids)
        return seen, None

    def with_readings(self, new: Observations) -> Self:
        """Return a twin that knows more readings of its series; nothing is trained.

        Examples
        --------
        >>> from noisewise.models.series import LinearInterpolator
        >>> model = LinearInterpolator().fit([("hall", 8, 19.0), ("hall", 10, 21.0)])
        >>> model.with_readings(observe([("hall", 12, 25.0)], ids=model.ids_)).predict(
        ...     [("hall", 11)]
        ... ).tolist()
        [23.0]
        """
        codes, when = self._encoded(new)
        which = self._index.series(codes)
        known = (which >= 0) & ~np.isnan(when)
        again = widened(self, new.values)
        values = np.asarray(new.values[known], dtype=np.float64)
        again.series_ = self.series_.joined(which[known], when[known], values)
        again._extend()
        return cast(Self, again)

    def _extend(self) -> None:
        """Make the most of more readings, with all that was learned as it was."""

    @at_one_moment
    def leave_one_out(self, X: Any, return_std: bool = False) -> Any:
        """Predict cells as if each had not been trained on; what it was is then a fair test."""
        check_is_fitted(self)
        mean, noise, epistemic = self._known(*self._encoded(X), leave_out=True)[0]
        std = np.float32(self.std_scale_) * np.sqrt(noise + epistemic)
        return (self._clipped(mean), std) if return_std else self._clipped(mean)

    def _keep(self, series: Series, index: SeriesIndex, ids: tuple[Ids, ...]) -> None:
        self.series_, self._index = series, index
        self._stamps, self._are_dates = checked_stamps(ids[index.time])
        types = index.sensors
        self._units = Units.of(series.values, types[series.which], index.n_sensors)
        self._series_units = series_units(series, types, index.n_sensors)

    def _encoded(self, X: Any) -> tuple[tuple[Codes, ...], Array]:
        """Row numbers and times of cells; a time need not be known, only understood."""
        return encode_in_time(X, self.ids_, self._index.time, self._stamps, self._are_dates)

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        return self._known(*self._encoded(X), leave_out=False)

    def _known(self, codes: tuple[Codes, ...], when: Array, *, leave_out: bool) -> Cells:
        which, types = self._index.series(codes), self._index.sensors_of(codes)
        mean, variance = self._units.mean[types], self._units.variance[types]
        series = which >= 0
        timeless = series & np.isnan(when)
        own = self._series_units
        mean[timeless], variance[timeless] = (part[which[timeless]] for part in own)
        noise = np.minimum(self._noise[types], variance)
        epistemic = variance - noise
        asked = np.flatnonzero(series & ~timeless)
        found = self._at(which[asked], when[asked], leave_out)
        there = ~np.isnan(found[0])
        for whole_part, part in zip((mean, noise, epistemic), found, strict=True):
            whole_part[asked[there]] = part[there]
        unseen = np.isnan(when)
        for mode, code in enumerate(codes):
            unseen |= (code < 0) & (mode != self._index.time)
        precision = self._units.precision
        parts = (part.astype(precision) for part in (mean, noise, epistemic))
        return Cells(Moments(*parts), unseen)

    def schema(self) -> Schema:
        """Declare what a file keeps: the observations; return the number of series."""
        yield Entry("seconds", "seconds_", schema.real())
        bare = index_of(self, self.ids_)
        rule = schema.keys(n_keys(bare.shape, bare.time))
        keys = yield Tensor("series.keys", "int64", (schema.ANY,), "_index.keys", rule)
        size = (len(keys) + 1,)
        starts = yield Tensor("series.starts", "int64", size, "series_.starts", schema.STARTS)
        if not schema.rises(starts, strictly=True):
            raise Damaged("it has a series without observations")
        yield Tensor("series.time", "float64", (int(starts[-1]),), "series_.time")
        yield Tensor("series.values", "float64", (int(starts[-1]),), "series_.values")
        return len(keys)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        parts = found.part("series")
        index = replace(index_of(self, self.ids_), keys=parts.pop("keys"))
        series = Series(**parts)
        inside = series.which[1:] == series.which[:-1]
        if (series.time[1:] < series.time[:-1])[inside].any():
            raise Damaged("its series are not in the order of time")
        self._keep(series, index, self.ids_)


def series_units(series: Series, types: Ints, n_types: int) -> Units:
    """Mean and variance of every series, drawn to those of its type where it has few observations.

    Means are shrunk by the share of their variance that is not chance.
    """
    which, counts = series.which, series.counts
    own = np.bincount(which, series.values) / counts
    squares = np.bincount(which, (series.values - own[which]) ** 2)
    everything = Units.of(series.values, types[which], n_types)
    freedom = np.bincount(types, counts - 1, n_types)
    within = np.bincount(types, squares, n_types) / np.maximum(freedom, 1)
    within = np.where(freedom > 0, within, everything.variance[:-1])
    within = np.maximum(within, FLOOR * everything.variance[:-1])
    centre = everything.mean[types]
    many = np.maximum(np.bincount(types, minlength=n_types), 1)
    between = np.bincount(types, (own - centre) ** 2 - within[types] / counts, n_types) / many
    between = np.maximum(between, 0.0)[types]
    mean = centre + between / (between + within[types] / counts) * (own - centre)
    around = squares + counts * (own - mean) ** 2
    return Units(mean, (around + PRIOR * within[types]) / (counts + PRIOR))


def widened(model: Any, values: Any) -> Any:
    """Return a twin of a model, whose range of values has room for new ones."""
    again = as_it_is(model)
    if again.value_range == "auto" and again.value_range_ is not None and len(values):
        low, high = again.value_range_
        again.value_range_ = min(low, float(values.min())), max(high, float(values.max()))
    return again


def index_of(model: Any, ids: tuple[Ids, ...]) -> SeriesIndex:
    """Return which mode of a model's ids is what; there are no series yet."""
    modes = sensor_modes(model.time, model.sensor, ids)
    return SeriesIndex(*modes, tuple(map(len, ids)), np.empty(0, dtype=np.int64))


def units_schema(prefix: str, of: str, n: int) -> Schema:
    """Declare what a file keeps of n units."""
    yield Tensor(f"{prefix}mean", "float64", (n,), f"{of}.mean")
    yield Tensor(f"{prefix}variance", "float64", (n,), f"{of}.variance", schema.POSITIVE)
