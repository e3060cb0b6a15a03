"""DeviationImputer: fills the holes of a table of sensors, and says how far off it may be.

A transformer of scikit-learn. Tables are read by `noisewise.data`, and a model learns from readings
as z-scores of their sensor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from noisewise import imputer_file, registry, storage
from noisewise.calibration import check_coverage
from noisewise.data import Observations, tables_with_holes
from noisewise.data.next_rows import last_rows
from noisewise.data.tables_with_holes import Fitted, LabelledArray, Roles
from noisewise.data.timestamps import Floats, are_dates, same_clock
from noisewise.drift import warn_of
from noisewise.engine.gibbs.series.seasons import periods_in_seconds
from noisewise.errors import DataError
from noisewise.imputer_ahead import Ahead
from noisewise.imputer_tables import holes_said, read_table
from noisewise.models import base
from noisewise.models.auto import LIKE, AutoFactorizer
from noisewise.models.base import Factorizer, at_one_moment, in_one_step
from noisewise.scaling import BOUNDS, TRANSFORMS, whole_numbers
from noisewise.settings import (
    Rule,
    check,
    either,
    learned,
    one_of,
    rules_of,
    setting,
    settings,
    whole,
)
from noisewise.showing import Showing
from noisewise.since import filters
from noisewise.standardised import StandardisedModel, Wishes, scale_of

CHUNK = 1_000_000  # holes that are filled at a time

_NAME = Rule("a name, a number or None", lambda v: isinstance(v, Hashable))
_LIKE = Rule(
    f"one of {', '.join(map(repr, LIKE))}, or a table of True where a hole will be",
    lambda v: v in LIKE if isinstance(v, str) else hasattr(v, "shape"),
)
_LIMIT = either(whole(1), None)
_NAMES = Rule("a name, a dict, a function or None", lambda v: isinstance(v, Hashable | Mapping))


def methods() -> list[str]:
    """Return the names of the models that tables can be filled by."""
    return [name for name, one in registry.models("sensors").items() if not one.needs_coordinates]


@settings
class DeviationImputer(
    Ahead,
    Showing,
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
        "Whether ``transform`` trains again where X has new readings, on those of ``fit`` and the "
        "new ones together, which costs as much as a fit. By default nothing is trained: what was "
        "learned is filtered forward over the new readings.",
        default=False,
    )
    scale: Literal["auto", "sqrt", "log"] | None = setting(
        one_of("auto", *TRANSFORMS, None),
        "What models compute in: readings as they are (None), their roots or their logarithms. "
        '"auto" tries all three on readings that are hidden, for sensors that are never negative '
        "and skewed, as counts and concentrations are. What is filled in is the mean of the "
        "reading on its own scale.",
        default="auto",
    )
    bounds: Literal["auto"] | tuple[float | None, float | None] | None = setting(
        BOUNDS,
        "What no reading can be below or above, in units of the table: (0, None). Nothing filled "
        'in, and no end of an interval, is beyond. "auto" has 0 for sensors that are never '
        "negative and are skewed, 0 more than once, or whole numbers that are counts.",
        default="auto",
    )
    whole: bool = setting(
        one_of(True, False),
        "Whether readings are whole numbers: what is filled in is rounded, and ends of intervals "
        "outwards.",
        default=False,
    )
    outliers: Literal["auto", "keep", "drop"] = setting(
        one_of("auto", "keep", "drop"),
        "What to learn from single readings that are far from all others of their series and from "
        'those before and after: what they say, or nothing. "auto" decides by whether others are '
        "predicted better without. They stay in the table either way.",
        default="auto",
    )
    like: Literal["table", "cells", "blocks", "blackout", "end"] | Any = setting(
        _LIKE,
        'What the holes are like that will be filled, which "auto" judges models by: those of the '
        'table, or single "cells", "blocks" of ten steps of single series, "blackout" (of all '
        'series), the "end" of all series, as in a forecast; or a table of the same layout that '
        "is True where holes will be.",
        default="table",
    )
    limit: int | None = setting(
        _LIMIT,
        "How many holes in a row are filled, as in pandas: the first ones in time of every run; "
        "the others of a longer run stay missing.",
        default=None,
    )
    settings: Mapping[str, Any] | None = setting(
        Rule("a dict or None", lambda v: v is None or isinstance(v, Mapping)),
        'Parameters of the model, such as ``{"rank": 8}``.',
        default=None,
    )

    _standardised: StandardisedModel = learned()
    _fitted: Fitted = learned()
    _last: Any = learned()

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
        own = dict(self.settings or {})
        if "seasons" in own and are_dates(table.clock):  # models get times as numbers, in seconds
            own["seasons"] = periods_in_seconds(own["seasons"])
        model = registry.build(
            "sensors", self.method, own, time=-1, sensor=table.sensor,
            random_state=self.random_state, n_jobs=self.n_jobs, verbose=self.verbose,
            **({"like": self.like} if isinstance(self.like, str) else {}),
        )  # fmt: skip
        wishes = Wishes(self.scale, self.bounds, self.outliers, "table")
        if isinstance(self.like, str):
            wishes = wishes._replace(like=cast(Any, self.like))
        self._standardised = StandardisedModel.fit(
            seen, table.sensor, model, wishes, self._holes(X, table)
        )
        self._fitted, self._last = Fitted.of(table), last_rows(X, self._roles, table.when)
        return self

    def _holes(self, X: Any, table: LabelledArray) -> Observations:
        """Return the cells that models are judged by: holes, or what a user says will be holes."""
        said = not isinstance(self.like, str)
        mask = holes_said(self.like, X, table.values.shape) if said else np.isnan(table.values)
        return table.cells(np.flatnonzero(mask))

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
        table, known, (mean, std) = self._answered(X, StandardisedModel.predict)
        mean = whole_numbers(mean, np.rint, self.bounds) if self.whole else mean
        filled = table.put(mean, known)
        return (filled, table.put(std, np.ones_like(known))) if return_std else filled

    @at_one_moment
    def interval(self, X: Any, coverage: float = 0.9) -> tuple[Any, Any]:
        """Return two tables, the lower and the upper ends of intervals of what is missing.

        An interval holds the missing reading in ``coverage`` of the cases. Where there is a
        reading, both ends are the reading. X is as for ``transform``.

        Examples
        --------
        >>> counts = np.tile([0.0, 1.0, 2.0, 9.0], 20)[:, None]
        >>> counts[3::8] = np.nan
        >>> low, high = DeviationImputer("ou").fit(counts).interval(counts, coverage=0.8)
        >>> bool((low >= 0).all()), bool((low <= high).all())
        (True, True)
        """
        check_coverage(coverage)
        table, known, (low, high) = self._answered(
            X, lambda model, cells: model.interval(cells, coverage)
        )
        if self.whole:
            low = whole_numbers(low, np.floor, self.bounds)
            high = whole_numbers(high, np.ceil, self.bounds)
        return table.put(low, known), table.put(high, known)

    def fit_transform(self, X: Any, y: Any = None, return_std: bool = False) -> Any:
        """Learn from a table and fill its holes; see ``fit`` and ``transform``."""
        return self.fit(X, y).transform(X, return_std=return_std)

    def _answered(
        self, X: Any, ask: Callable[[StandardisedModel, Observations], Any], n: int = 2
    ) -> tuple[LabelledArray, Any, list[Floats]]:
        """Ask for n numbers of every hole; return the table, and where there is an answer."""
        check_is_fitted(self)
        table = self._read(X, reset=False)
        holes = np.isnan(table.values)
        asked = holes if self.limit is None else table.first_of_runs(holes, self.limit)
        places = np.flatnonzero(asked)
        found = np.zeros((n, holes.size))
        found[:, holes.ravel() & ~asked.ravel()] = np.nan
        if len(places):
            table, model = self._placed(table), self._standardised
            new = table.observed(self.duplicates)
            take = model.updated if self.refit else model.knowing
            model = take(new, self.bounds)
            if model is not self._standardised and not self.refit:
                drift, names = model.drift()
                warn_of(drift, names, drift.surprising)
            for start in range(0, len(places), CHUNK):
                part = places[start : start + CHUNK]
                found[:, part] = ask(model, table.cells(part))
            tables_with_holes.warn_of_unread(table, places[np.isnan(found[0, places])])
        shaped = [part.reshape(holes.shape) for part in found]
        return table, holes & ~np.isnan(shaped[0]), shaped

    @property
    def model_(self) -> Factorizer:
        """What was learned, of readings in standard deviations of their sensor."""
        check_is_fitted(self)
        return self._standardised.model

    @property
    @at_one_moment
    def chosen_(self) -> str:
        """The method; for "auto", the one it took."""
        return self.model_.choice_ if isinstance(self.model_, AutoFactorizer) else self.method

    @property
    @at_one_moment
    def scale_(self) -> str | None:
        """The scale that models compute in; for "auto", the one it took."""
        check_is_fitted(self)
        return self._standardised.decided.transform

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
            model.decided, model.since, [one.later_.place for one in filters(model.now)],
        )  # fmt: skip
        imputer_file.write(path, kept)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an imputer that ``save`` wrote; a broken or foreign file is a ``ModelFileError``."""
        with storage.reading(path):
            kept = imputer_file.read(path)
            imputer = cls(**kept.settings)
            imputer._check()
            scale = scale_of(kept.seen, kept.sensor, kept.decided, imputer.bounds)
            fitted = StandardisedModel.made(kept.seen, kept.sensor, kept.decided, scale, kept.model)
            since = kept.since.observations(kept.seen.ids)
            imputer._standardised = fitted.knowing(since, None, iter(kept.places)).settled()
            imputer._fitted = kept.fitted
            if kept.features is not None:
                imputer.feature_names_in_ = np.array(kept.features, dtype=object)
            if kept.n_features is not None:
                imputer.n_features_in_ = kept.n_features
        return imputer

    def _read(self, X: Any, *, reset: bool) -> LabelledArray:
        """Read a table of any kind; if not ``reset``, it must be like the fitted one."""
        known = None if reset else (self._fitted.lengths, self._standardised.seen.ids)
        return read_table(self, X, self._roles, known)

    @property
    def _roles(self) -> Roles:
        return Roles(self.time, self.location, self.sensor, self.value, self.duplicates)

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
