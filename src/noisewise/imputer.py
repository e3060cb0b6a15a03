"""DeviationImputer: fills the holes of a table of sensors, and says how far off it may be.

A transformer of scikit-learn. Tables are read by `noisewise.data`, and a model learns from readings
as z-scores of their sensor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from noisewise import imputer_file, registry, storage
from noisewise.data import Codes, Ids, Observations, observe, tables_with_holes
from noisewise.data.tables_with_holes import Fitted, LabelledArray, Roles
from noisewise.data.timestamps import (
    Floats,
    Ints,
    Units,
    as_integers,
    key_places,
    same_clock,
    series_keys,
)
from noisewise.errors import DataError
from noisewise.imputer_tables import read_table
from noisewise.models import base
from noisewise.models.auto import AutoFactorizer
from noisewise.models.base import Factorizer, at_one_moment, in_one_step
from noisewise.settings import Rule, check, learned, one_of, rules_of, setting, settings

CHUNK = 1_000_000  # holes that are filled at a time

_NAME = Rule("a name, a number or None", lambda v: isinstance(v, Hashable))
_NAMES = Rule("a name, a dict, a function or None", lambda v: isinstance(v, Hashable | Mapping))


def methods() -> list[str]:
    """Return the names of the models that tables can be filled by."""
    return [name for name, one in registry.models("sensors").items() if not one.needs_coordinates]


@settings
class DeviationImputer(
    base.Seeded,
    base.Threads,
    OneToOneFeatureMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Fill the holes of a table of sensors, with a std for every hole.

    A hole is NaN, null, None or NA. What comes back is of the same kind as what went in: the same
    labels, order and types, and every reading as it was, bit for bit; a column of whole numbers
    becomes one of floats only if it had holes. The std of a hole is that of the missing reading
    around the value filled in.

    What a table can be:

    - an array of two dimensions, times x series as samples x features in scikit-learn; with more
      dimensions, time is the last unless ``time`` has the number of another;
    - a wide frame of pandas, polars or pyarrow with a column for each series. The index of a frame
      of pandas is the time, or the column that ``time`` names. Levels of columns (location, sensor)
      are modes of their own. If ``location`` names a column, rows are of a place and a time each,
      and all other columns are sensors;
    - a series, whose index is the time;
    - a long frame with a row for each reading, if ``value`` names the column to fill;
    - a DataArray of xarray, or a Dataset, whose variables over time are the sensors.

    Times may lie at any distances, in any order. Where there are none, rows count as one step each.

    Examples
    --------
    >>> hours = np.arange(48.0)
    >>> heat = np.column_stack([20 + np.sin(hours / 4), 15 + np.sin(hours / 4)])
    >>> heat[20:22, 0] = np.nan
    >>> filled, std = DeviationImputer("ou").fit_transform(heat, return_std=True)
    >>> filled[19:23, 0].round(1).tolist(), bool(std[20, 0] > std[19, 0])
    ([19.0, 19.1, 19.2, 19.3], True)
    """

    method: str = setting(
        Rule("the name of a model", lambda v: isinstance(v, str)),
        'A model of sensors. "bayes" is the most accurate, "fast" nearly so in seconds; "ou" and '
        '"linear" look at one series at a time; "dtf" and "ptf" at what series have in common. '
        '"auto" holds some readings out and takes the one that predicts them best. Models of '
        "other installed packages have names too; those that need coordinates cannot be taken.",
        default="auto",
        kw_only=False,
    )
    time: str | int | None = setting(
        _NAME,
        "The column or the dimension of times; of an array, the number of the axis.",
        default=None,
    )
    location: str | Mapping[Any, Any] | Callable[[Any], Any] | None = setting(
        _NAMES,
        "For a long frame, or one with a column for each sensor, the column that says where. For "
        "plain columns, what says where each is: "
        '``{"t1": "hall"}``, or a function of its name; without it each column is at a place of '
        "its own.",
        default=None,
    )
    sensor: str | int | Mapping[Any, Any] | Callable[[Any], Any] | None = setting(
        _NAMES,
        "What tells sensors apart (temperature, humidity). Readings of one sensor have one unit: "
        "they are standardised together, and series of one sensor have habits in common. For a "
        "long frame it is the column that says so, for levels, axes or dimensions it is one of "
        "them by name or number, for plain columns a dict or a function of their names. None takes "
        'all readings to have one unit. "auto" takes what is called "sensor" or "variable"; else, '
        "of more than one mode beside time, the shortest. Plain columns are each a sensor of "
        "their own then.",
        default="auto",
    )
    value: str | None = setting(_NAME, "The column of values of a long frame.", default=None)
    duplicates: Literal["error", "last", "mean"] = setting(
        one_of("error", "last", "mean"),
        "What to learn from readings of one series at one time: nothing, and raise; the last; or "
        "their mean.",
        default="error",
    )
    refit: bool = setting(
        one_of(True, False),
        "Whether ``transform`` learns from new readings too: if X has any, the model is fitted "
        "again, to those of ``fit`` and the new ones together. With False a new table is filled "
        "from what was read in ``fit`` alone.",
        default=True,
    )
    settings: Mapping[str, Any] | None = setting(
        Rule("a dict or None", lambda v: v is None or isinstance(v, Mapping)),
        'Parameters of the model, such as ``{"rank": 8}``.',
        default=None,
    )

    _standardised: StandardisedModel = learned()
    _fitted: Fitted = learned()

    @in_one_step
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the readings of a table, with or without holes; y is there for pipelines."""
        self._check()
        table = self._read(X, reset=True)
        seen = table.observed(self.duplicates)
        if len(seen) < 2:
            raise DataError(
                f"X needs 2 readings to learn from; got {len(seen)} in {table.values.size} cells."
            )
        model = registry.build(
            "sensors", self.method, self.settings, time=-1, sensor=table.sensor,
            random_state=self.random_state, n_jobs=self.n_jobs, verbose=self.verbose,
        )  # fmt: skip
        self._standardised = StandardisedModel.fit(seen, table.sensor, model)
        self._fitted = Fitted.of(table)
        return self

    def _check(self) -> None:
        check(self, rules_of(self) | {"method": one_of(*methods())})

    @at_one_moment
    def transform(self, X: Any, return_std: bool = False) -> Any:
        """Return a copy of a table without holes and, if asked for, the std of every cell.

        X is the table that was fitted, or another of the same series; a frame may have their
        columns in any order, and not all of them. Times and ids tell which of
        its cells were there in ``fit``. Rows without times are those of ``fit`` if they begin with
        the same readings and holes; else they are what came next. Series of whose sensor nothing
        was ever read stay as they are, with a warning. The std of a reading is 0.
        """
        check_is_fitted(self)
        table = self._read(X, reset=False)
        holes = np.isnan(table.values)
        places = np.flatnonzero(holes)
        mean, std = np.zeros(holes.size), np.zeros(holes.size)
        if len(places):
            table, model = self._placed(table), self._standardised
            if self.refit:
                model = model.updated(table.observed(self.duplicates))
            for start in range(0, len(places), CHUNK):
                part = places[start : start + CHUNK]
                mean[part], std[part] = model.predict(table.cells(part))
            tables_with_holes.warn_of_unread(table, places[np.isnan(mean[places])])
        known = holes & ~np.isnan(mean.reshape(holes.shape))
        filled = table.put(mean.reshape(holes.shape), known)
        if not return_std:
            return filled
        return filled, table.put(std.reshape(holes.shape), np.ones_like(holes))

    def fit_transform(self, X: Any, y: Any = None, return_std: bool = False) -> Any:
        """Learn from a table and fill its holes; see ``fit`` and ``transform``."""
        return self.fit(X, y).transform(X, return_std=return_std)

    @property
    def model_(self) -> Factorizer:
        """What was learned, of readings in standard deviations of their sensor."""
        return self._standardised.model

    @property
    @at_one_moment
    def chosen_(self) -> str:
        """The method; for "auto", the one it took."""
        return self.model_.choice_ if isinstance(self.model_, AutoFactorizer) else self.method

    @at_one_moment
    def save(self, path: str | Path) -> None:
        """Write the imputer to one safetensors file, wholly or not at all; nothing in it can run.

        A function of columns cannot be saved: give location and sensor as dicts.
        """
        check_is_fitted(self)
        model, names = self._standardised, getattr(self, "feature_names_in_", None)
        kept = imputer_file.Kept(
            self.get_params(deep=False), self._fitted, model.seen, model.sensor, model.model,
            getattr(self, "n_features_in_", None), None if names is None else names.tolist(),
        )  # fmt: skip
        imputer_file.write(path, kept)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an imputer that ``save`` wrote; a broken or foreign file is a ``ModelFileError``."""
        with storage.reading(path):
            kept = imputer_file.read(path)
            imputer = cls(**kept.settings)
            imputer._check()
            units, _ = _units(kept.seen, kept.sensor)
            imputer._standardised = StandardisedModel(kept.seen, kept.sensor, units, kept.model)
            imputer._fitted = kept.fitted
            if kept.features is not None:
                imputer.feature_names_in_ = np.array(kept.features, dtype=object)
            if kept.n_features is not None:
                imputer.n_features_in_ = kept.n_features
        return imputer

    def _read(self, X: Any, *, reset: bool) -> LabelledArray:
        """Read a table of any kind; if not ``reset``, it must be like the fitted one."""
        roles = Roles(self.time, self.location, self.sensor, self.value, self.duplicates)
        known = None if reset else (self._fitted.lengths, self._standardised.seen.ids)
        return read_table(self, X, roles, known)

    def _placed(self, table: LabelledArray) -> LabelledArray:
        """Check that a table has the modes of the fitted one, and say when its rows were."""
        fitted = self._fitted
        if table.names != fitted.names:
            raise DataError(f"X must have the modes {fitted.names}, as in fit; got {table.names}.")
        if not same_clock(table.clock, fitted.clock):
            raise DataError(
                f"The times of X must be {fitted.clock}, as in fit; got {table.clock}: give "
                "both the same kind of index or column."
            )
        if table.clock != "rows":
            return table
        seen = table.observed(self.duplicates)
        alike = self._standardised.begins_like(seen, min(table.n_rows, fitted.end))
        return table if alike else table.later(fitted.end)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_standardised")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass(frozen=True, eq=False)
class StandardisedModel:
    """Readings, the units of their sensors, and the model that was fitted to both.

    Models compute in float32: what they say of z-scores goes back to units in float64, so that a
    meter that counts in millions keeps its digits.
    """

    seen: Observations  # all readings, in float64; ids that have none are not among its ids
    sensor: int | None  # the mode that is the sensor; None if all readings have one unit
    units: Units  # mean and variance of each sensor
    model: Factorizer  # fitted to the readings as z-scores

    @classmethod
    def fit(cls, seen: Observations, sensor: int | None, model: Factorizer) -> StandardisedModel:
        """Fit a model to readings."""
        seen = _without_unseen(seen)
        units, sensors = _units(seen, sensor)
        scores = (seen.values - units.mean[sensors]) / np.sqrt(units.variance[sensors])
        model.fit(Observations(seen.codes, scores.astype(np.float32), seen.ids))
        return cls(seen, sensor, units, model)

    def predict(self, cells: Observations) -> tuple[Floats, Floats]:
        """Mean and std of readings; NaN for sensors of which nothing was ever read."""
        mean, std = np.full(len(cells), np.nan), np.full(len(cells), np.nan)
        sensors = np.zeros(len(cells), dtype=np.int32)
        if self.sensor is not None:
            asked = cells.ids[self.sensor].labels
            sensors = self.seen.ids[self.sensor].lookup(asked)[cells.codes[self.sensor]]
        known = np.flatnonzero(sensors >= 0)
        if len(known):
            scores, spread = self.model.predict(cells.take(known), return_std=True)
            scale = np.sqrt(self.units.variance[sensors[known]])
            mean[known] = self.units.mean[sensors[known]] + scale * scores
            std[known] = scale * spread
        return mean, std

    def updated(self, new: Observations) -> StandardisedModel:
        """Fit the model again if readings are new; they replace old ones of the same cells."""
        if not len(new):
            return self
        new = observe(new, ids=self.seen.ids)
        old_keys, new_keys = _keys(self.seen, new.shape), _keys(new, new.shape)
        order = np.argsort(old_keys)
        at = key_places(old_keys[order], new_keys, np.ones(len(new), dtype=bool))
        if ((at >= 0) & (self.seen.values[order[at]] == new.values)).all():
            return self
        rest = self.seen.take(~np.isin(old_keys, new_keys))
        codes = tuple(np.append(a, b) for a, b in zip(rest.codes, new.codes, strict=True))
        everything = Observations(codes, np.append(rest.values, new.values), new.ids)
        if not isinstance(self.model, AutoFactorizer):
            return StandardisedModel.fit(everything, self.sensor, base.clone_with(self.model))
        again = StandardisedModel.fit(everything, self.sensor, base.clone_with(self.model.model_))
        again.model.calibration_ = self.model.calibration_  # as the chosen one was judged
        return again

    def begins_like(self, new: Observations, n_rows: int) -> bool:
        """Tell whether rows, numbered from 0, have the same readings up to a row."""
        old, new = (
            part.take(part.ids[-1].labels[part.codes[-1]] < n_rows) for part in (self.seen, new)
        )
        if len(old) != len(new) or not len(new):
            return len(old) == len(new)
        new = observe(new, ids=self.seen.ids)
        a, b = _keys(old, new.shape), _keys(new, new.shape)
        first, second = np.argsort(a), np.argsort(b)
        alike = np.array_equal(a[first], b[second])
        return alike and np.array_equal(old.values[first], new.values[second])


def _keys(seen: Observations, shape: tuple[int, ...]) -> Ints:
    """Return one number for each cell."""
    return series_keys(seen.codes, shape)[0]


def _units(seen: Observations, sensor: int | None) -> tuple[Units, Any]:
    """Mean and variance of each sensor, and the sensor of each reading."""
    if sensor is None:
        sensors, many = np.zeros(len(seen), dtype=np.int64), 1
    else:
        sensors, many = seen.codes[sensor].astype(np.int64), len(seen.ids[sensor])
    mean, variance = Units.of(seen.values, sensors, many)
    lone = np.flatnonzero(np.bincount(sensors, minlength=many) == 1)
    # One reading says nothing of the variance of its sensor: it may be off by its own size.
    variance[lone] = np.where(mean[lone] == 0.0, 1.0, mean[lone] ** 2)
    return Units(mean, variance), sensors


def _without_unseen(seen: Observations) -> Observations:
    """Return the same readings without the ids that have none; times in their order."""
    coded: list[tuple[Ids, Codes]] = []
    for own, seen_codes in zip(seen.ids[:-1], seen.codes[:-1], strict=True):
        present, code = np.unique(seen_codes, return_inverse=True)
        coded.append((Ids(own.labels[present], own.name), code.astype(np.int32)))
    times = seen.ids[-1].labels[seen.codes[-1]].astype(np.float64)
    coded.append(Ids.encode(as_integers(times), seen.ids[-1].name))
    codes = tuple(code for _, code in coded)
    return Observations(codes, seen.values, tuple(ids for ids, _ in coded))
