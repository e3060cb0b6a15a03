"""DeviationImputer: fills the holes of a table of sensors, and says how far off it may be.

A transformer of scikit-learn. Tables are read by `noisewise.data`, and what is learned of them is a
`noisewise.standardised.StandardisedModel`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from noisewise import registry, storage
from noisewise.data.arrays import read_array, read_xarray
from noisewise.data.tables_with_holes import (
    CLOCKS,
    Fitted,
    LabelledArray,
    Roles,
    as_frame,
    is_xarray,
    read_frame,
    warn_of_unread,
)
from noisewise.errors import DataError, SettingError
from noisewise.models.auto import AutoFactorizer
from noisewise.models.base import Factorizer, Seeded, Threads, at_one_moment, in_one_step
from noisewise.models.model_file import OF_THE_MACHINE
from noisewise.schema import Source
from noisewise.settings import Rule, check, learned, one_of, rules_of, setting, settings
from noisewise.standardised import StandardisedModel

CHUNK = 1_000_000  # holes that are filled at a time
LATEST = 2**62  # time that rows may be counted from: more would not fit a number of 64 bits

_KIND = "imputer"
_NAME = Rule("a name, a number or None", lambda v: isinstance(v, Hashable))
_NAMES = Rule("a name, a dict, a function or None", lambda v: isinstance(v, Hashable | Mapping))


def methods() -> list[str]:
    """Return the names of the models that tables can be filled by."""
    return [name for name, one in registry.models("sensors").items() if not one.needs_coordinates]


@settings
class DeviationImputer(
    Seeded,
    Threads,
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
      are modes of their own;
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
        "For a long frame, the column that says where. For plain columns, what says where each is: "
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

        X is the table that was fitted, or another of the same series. Times and ids tell which of
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
            warn_of_unread(table, places[np.isnan(mean[places])])
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
        _write(path, self)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an imputer that ``save`` wrote; a broken or foreign file is a ``ModelFileError``."""
        imputer: Self = _read(path, cls)
        return imputer

    def _read(self, X: Any, *, reset: bool) -> LabelledArray:
        """Read a table of any kind; scikit-learn checks the features of those that have any."""
        roles = Roles(self.time, self.location, self.sensor, self.value, self.duplicates)
        if reset:
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
        if is_xarray(X):
            return read_xarray(X, roles)
        frame = as_frame(X)
        if frame is not None:
            if self.value is None:
                validate_data(self, X, reset=reset, skip_check_array=True)
            return read_frame(frame, roles)
        if isinstance(X, np.ma.MaskedArray):
            raise DataError("X is a masked array; pass X.filled(np.nan), with floats.")
        numbers = {"dtype": "numeric", "ensure_all_finite": False}
        X = check_array(X, ensure_2d=False, allow_nd=True, estimator=self, **numbers)
        flat = X.ndim <= 2 and self.time in (None, 0, -2)
        if flat:
            X = validate_data(self, X, reset=reset, **numbers)
        table = read_array(X, roles)
        if not (reset or flat) and table.lengths != self._fitted.lengths:
            raise DataError(
                f"X must have {self._fitted.lengths} places along the axes beside time, as in fit; "
                f"got {table.lengths}."
            )
        return table

    def _placed(self, table: LabelledArray) -> LabelledArray:
        """Check that a table has the modes of the fitted one, and say when its rows were."""
        fitted = self._fitted
        if table.names != fitted.names:
            raise DataError(f"X must have the modes {fitted.names}, as in fit; got {table.names}.")
        if (table.clock == "dates") != (fitted.clock == "dates"):
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


def _write(path: str | Path, imputer: DeviationImputer) -> None:
    """Write a fitted imputer, wholly or not at all."""
    header, tensors = imputer._standardised.pack()
    names = getattr(imputer, "feature_names_in_", None)
    settings = imputer.get_params(deep=False)
    del settings["verbose"]  # how it is watched is no part of it
    settings["settings"] = _kept(settings["settings"])
    header |= {
        "settings": _plain(settings),
        "fitted": imputer._fitted,
        "n_features": getattr(imputer, "n_features_in_", None),
        "features": None if names is None else names.tolist(),
    }
    storage.write(path, _KIND, header, tensors)


def _read(path: str | Path, kind: type[Any]) -> Any:
    """Undo ``_write``, trusting nothing."""
    header, tensors = storage.read(path, _KIND)
    source = Source(header, tensors)
    with storage.reading(path):
        imputer = kind(**_given(header["settings"]))
        imputer._check()
        imputer._standardised = StandardisedModel.unpack(source)
        imputer._fitted = _fitted(header["fitted"], imputer._standardised)
        names, many = header["features"], header["n_features"]
        if names is not None:
            imputer.feature_names_in_ = np.array(list(map(str, names)), dtype=object)
        if many is not None:
            imputer.n_features_in_ = source.whole("n_features", least=1)
            if names is not None and len(names) != many:
                raise storage.Damaged(f"it names {len(names)} of {many} columns")
    return imputer


def _fitted(entry: Any, model: StandardisedModel) -> Fitted:
    names, lengths, clock, end = entry
    if type(end) is not int or abs(end) > LATEST:
        raise storage.Damaged(f"its readings end at {storage.shown(end)}")
    fitted = Fitted(tuple(names), tuple(map(int, lengths)), clock, end)
    if fitted.names != model.seen.names or clock not in CLOCKS:
        raise storage.Damaged("its readings are of another table")
    return fitted


def _kept(settings: Any) -> Any:
    """Return settings of the model without those that no file decides."""
    if settings is None:
        return None
    return {name: value for name, value in settings.items() if name not in OF_THE_MACHINE}


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as JSON has them; a dict from columns becomes pairs."""
    if isinstance(settings["random_state"], np.random.RandomState):
        settings["random_state"] = None
    for name in ("location", "sensor"):
        if isinstance(settings[name], Mapping):
            settings[name] = list(settings[name].items())
    for name, value in settings.items():
        try:
            json.dumps(value)
        except TypeError:
            hint = "; give a dict instead" if callable(value) else ""
            raise SettingError(
                f"{name} must be plain numbers and text to be saved{hint}; got {value!r}."
            ) from None
    return settings


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """Undo ``_plain``."""
    for name in ("location", "sensor"):
        if isinstance(settings[name], list):
            settings[name] = dict(settings[name])
    inside = _kept(settings["settings"])
    if inside is not None:
        settings["settings"] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in inside.items()
        }
    return settings
