"""Tables of readings that have come as JSON or CSV, as an imputer takes them; and back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from noisewise.anomalies.find import find_anomalies
from noisewise.data.gapped import read_gapped
from noisewise.data.ids import from_frame
from noisewise.data.reader import require_pyarrow
from noisewise.errors import DataError, NoisewiseError, listed
from noisewise.imputer import DeviationImputer
from noisewise.serve import schemas
from noisewise.serve.answers import Refused, Served
from noisewise.serve.answers import listed as plain

PURPOSE = "A table of readings"


@dataclass(frozen=True)
class Given:
    """A table as an imputer takes it, and what else it had."""

    X: Any
    index: str | None = None  # the name of the column that is the index of X
    names: list[str] = field(default_factory=list)  # of columns, where X has none

    def columns(self, table: Any) -> dict[str, Any]:
        """Return the columns of a table that is like X, the index among them."""
        if isinstance(table, np.ndarray):
            names = self.names or [str(k) for k in range(table.shape[1])]
            return dict(zip(names, table.T, strict=True))
        frame = from_frame(table)
        found = {name: frame[name] for name in frame.columns}
        if self.index is not None:
            found = {self.index: nw.from_native(table.index.to_series(), series_only=True)} | found
        return {str(name): _numbers(column) for name, column in found.items()}


def read(served: Served, asked: schemas.Readings) -> Given:
    """Read a table that was sent."""
    ways = {"columns": asked.columns, "rows": asked.rows, "csv": asked.csv}
    given = [name for name, way in ways.items() if way is not None]
    if len(given) != 1:
        raise DataError(f"A table is given by one of columns, rows or csv; got {len(given)}.")
    if asked.rows is not None:
        return _array(served, asked.rows)
    if asked.csv is not None:
        table, time = _from_text(asked.csv)
    else:
        table, time = _from_columns(asked.columns or {})
    _few(served, len(table), len(table.column_names))
    return _suited(served.model, table, time)


def impute(served: Served, asked: schemas.Holes) -> dict[str, Any]:
    """Fill the holes of a table; each hole has a std and an interval."""
    given = read(served, asked)
    imputer = served.model
    with _in_words():
        filled, std = imputer.transform(given.X, return_std=True)
        ends = imputer.interval(given.X, asked.coverage)
    before, after, spread, low, high = map(given.columns, (given.X, filled, std, *ends))
    holes = {}
    for name, column in before.items():
        if np.asarray(column).dtype.kind == "f":
            rows = np.flatnonzero(np.isnan(np.asarray(column, dtype=np.float64)))
            if len(rows):
                holes[name] = rows
    pick = {
        what: {name: plain(np.asarray(part[name])[rows]) for name, rows in holes.items()}
        for what, part in {"std": spread, "low": low, "high": high}.items()
    }
    return {
        "columns": {name: plain(column) for name, column in after.items()},
        **pick,
        "holes": {name: rows.tolist() for name, rows in holes.items()},
        "coverage": asked.coverage,
    }


def forecast(served: Served, asked: schemas.Ahead) -> dict[str, Any]:
    """Tell what to expect of the rows after those that are given, with intervals."""
    given = read(served, asked)
    columns = getattr(given.X, "shape", (0, len(served.ids[0])))[-1]
    _few(served, asked.steps, columns)
    with _in_words():
        found = served.model.forecast(asked.steps, given.X, asked.coverage)
    mean, *others = map(given.columns, found)
    drawn = [name for name, column in mean.items() if np.asarray(column).dtype.kind == "f"]
    if given.index is None and served.model.time in drawn:
        drawn.remove(served.model.time)  # times that are numbers
    return {
        "columns": {name: plain(column) for name, column in mean.items()},
        **{
            what: {name: plain(part[name]) for name in drawn}
            for what, part in zip(("std", "low", "high"), others, strict=True)
        },
        "coverage": asked.coverage,
    }


def anomalies(served: Served, asked: schemas.Odd) -> dict[str, Any]:
    """Find spikes, sensors that are stuck or dead, other units, shifts and drifts."""
    imputer = served.model
    if all(way is None for way in (asked.columns, asked.rows, asked.csv)):
        found = imputer.anomalies(asked.probability)
    else:
        given = read(served, asked)
        names = ("time", "location", "sensor", "value", "duplicates")
        roles = {name: getattr(imputer, name) for name in names}
        with _in_words():
            found = find_anomalies(given.X, probability=asked.probability, **roles)
    return {"columns": {name: plain(column) for name, column in found.items()}}


@contextmanager
def _in_words() -> Iterator[None]:
    """Turn what scikit-learn says of a table that is not like the fitted one into a DataError."""
    try:
        yield
    except NoisewiseError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from error


def _few(served: Served, rows: int, columns: int) -> None:
    """Refuse tables that are too large."""
    limits = served.limits
    if rows * columns > limits.readings or columns > limits.series:
        raise Refused(
            413,
            f"A table may have {limits.readings:,} cells in {limits.series:,} columns; got "
            f"{rows:,} rows of {columns:,}.",
        )


def _array(served: Served, rows: list[list[float | None]]) -> Given:
    width = len(rows[0])
    if not width or any(len(row) != width for row in rows):
        raise DataError("All rows of a table need the same number of entries, at least one.")
    _few(served, len(rows), width)
    return Given(np.array(rows, dtype=np.float64))  # None is NaN


def _from_text(text: str) -> tuple[Any, str | None]:
    """Read a text as a file with gaps is read; return a table of pyarrow and its column of time."""
    with tempfile.TemporaryDirectory(prefix="noisewise-") as folder:
        path = Path(folder) / "table.csv"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            gapped = read_gapped(path)
        except DataError as error:
            raise DataError(str(error).replace(f"{path}", "the table")) from error
        return gapped.table, gapped.options.get("time")


def _from_columns(columns: dict[str, list[Any]]) -> tuple[Any, str | None]:
    arrow = require_pyarrow(PURPOSE)
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"All columns need the same length; got {listed(sorted(lengths))}.")
    made = {name: _column(arrow, name, column) for name, column in columns.items()}
    texts = [name for name, column in made.items() if not arrow.types.is_floating(column.type)]
    return arrow.table(made), texts[0] if texts else None


def _column(arrow: Any, name: str, entries: list[Any]) -> Any:
    """Return a column of floats, or of text where all is text."""
    kinds = {type(entry) for entry in entries if entry is not None}
    if kinds == {str}:
        return arrow.array(entries, arrow.string())
    if str in kinds:
        raise DataError(f"Column {name!r} must hold numbers or text, not both.")
    if kinds == {int} and None not in entries:
        return arrow.array(np.array(entries, dtype=np.float64))
    floats = np.array([np.nan if entry is None else float(entry) for entry in entries])
    if np.isinf(floats).any():
        raise DataError(f"Column {name!r} holds a number that is not finite.")
    return arrow.array(floats)


def _suited(imputer: DeviationImputer, table: Any, time: str | None) -> Given:
    """Return a table with times where the imputer has them: a column, the index, or nowhere."""
    if imputer.time is not None:
        if imputer.time not in table.column_names and time is not None:
            names = [imputer.time if name == time else name for name in table.column_names]
            table = table.rename_columns(list(map(str, names)))
        return Given(table)
    if imputer._fitted.clock == "rows":
        known = getattr(imputer, "feature_names_in_", None)
        kept = [name for name in table.column_names if known is None or name in known]
        if known is None:
            kept = [name for name in kept if name != time]
            if not kept:
                raise DataError("The table has no column of readings.")
            return Given(np.column_stack([_floats(table, name) for name in kept]), names=kept)
        return Given(table.select(kept))
    try:
        pd: Any = import_module("pandas")
    except ImportError:
        raise DataError(
            "The times of this imputer are the index of a frame: the server needs pandas, too."
        ) from None
    if time is None:
        raise DataError("The table needs a column of times, as the fitted one had.")
    frame = table.to_pandas()
    stamps = frame.pop(time)
    is_text = not pd.api.types.is_datetime64_any_dtype(stamps)
    frame.index = pd.DatetimeIndex(_dates(pd, stamps) if is_text else stamps, name=time)
    return Given(frame, index=time)


def _floats(table: Any, name: str) -> Any:
    column = table.column(name).to_numpy()
    try:
        return column.astype(np.float64)
    except (ValueError, TypeError):
        raise DataError(f"Column {name!r} must hold numbers; it holds text.") from None


def _dates(pd: Any, stamps: Any) -> Any:
    try:
        return pd.to_datetime(stamps, format="ISO8601")
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"The times of the table cannot be read: {error}") from None


def _numbers(column: nw.Series[Any]) -> Any:
    """Return a column as an array: numbers as floats, NaN where there is none; dates as text."""
    if column.dtype.is_numeric():
        return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
    if column.dtype.is_temporal():
        moments = column.to_list()
        texts = [None if moment is None else moment.isoformat() for moment in moments]
        return np.array(texts, dtype=object)
    return np.array(column.to_list(), dtype=object)
