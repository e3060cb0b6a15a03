"""The rows that come after a table: of the same kind, with the next stamps, and nothing in them."""

from __future__ import annotations

import calendar
import sys
from datetime import UTC, date, datetime, timedelta
from typing import Any

import narwhals as nw
import numpy as np

from noisewise.data.arrays import time_axis
from noisewise.data.frames import as_frame
from noisewise.data.labelled import is_series
from noisewise.data.tables_with_holes import SENSOR_NAMES, Roles, is_xarray
from noisewise.errors import DataError

ENOUGH = 60  # last rows that tell how stamps go on
DAY = 86_400.0  # seconds
MONTH = 28 * DAY, 31 * DAY
YEAR = 365 * DAY, 366 * DAY
FINE = ("hours", "minutes", "seconds", "milliseconds", "microseconds")  # what text ends with


def last_rows(X: Any, roles: Roles, when: Any) -> Any:
    """Return a small part of a table that tells what its next rows are like.

    It has the last rows in the order of time, which ``when`` has for every row; of a table with
    rows of several series, the last row of each.
    """
    ordered = bool((when[1:] >= when[:-1]).all())
    order = np.argsort(when, kind="stable")
    last: Any = slice(-ENOUGH, None) if ordered else order[-ENOUGH:].tolist()
    if is_xarray(X):
        return X.isel({"time" if roles.time is None else roles.time: last})
    if is_series(X):
        return nw.from_native(X, series_only=True)[last].to_native() if not ordered else X[last]
    frame = as_frame(X)
    if frame is None:
        X = np.asarray(X)
        axis = time_axis(X.ndim, roles.time)
        return np.take(X, np.arange(max(X.shape[axis] - 1, 0), X.shape[axis]), axis=axis)
    sensor = roles.sensor if roles.value is not None else None
    if sensor == "auto" and sensor not in frame.columns:
        sensor = next((name for name in SENSOR_NAMES if name in frame.columns), None)
    named = [roles.location, sensor]
    keys = [name for name in named if isinstance(name, str) and name in frame.columns]
    if roles.value is not None or keys:
        late = frame if ordered else frame[order.tolist()]
        late = late.unique(subset=keys, keep="last", maintain_order=True) if keys else late[-1:]
        return late.to_native()
    return (frame.tail(ENOUGH) if ordered else frame[last]).to_native()


def next_rows(rows: Any, roles: Roles, step: float, steps: int) -> Any:
    """Return an empty table of the next stamps, of the kind of a table of last rows."""
    if is_xarray(rows):
        return _next_xarray(rows, "time" if roles.time is None else roles.time, step, steps)
    if is_series(rows):
        return _next_series(rows, step, steps)
    frame = as_frame(rows)
    if frame is None:
        axis = time_axis(rows.ndim, roles.time)
        kind = rows.dtype if rows.dtype.kind == "f" else np.float64
        return np.repeat(np.full(np.take(rows, [0], axis=axis).shape, np.nan, kind), steps, axis)
    is_long = roles.value is not None or (
        isinstance(roles.location, str) and roles.location in frame.columns
    )
    if not is_long:
        frame = frame.tail(1)
    repeated = nw.concat([frame] * steps)
    if roles.time is not None:
        stamps = next_stamps(frame[roles.time].to_list(), step, steps)
        every = [stamp for stamp in stamps for _ in range(len(frame))]
        column = nw.new_series(
            roles.time, every, frame[roles.time].dtype, backend=frame.implementation
        )
        repeated = repeated.with_columns(_aligned(column, repeated))
    about = {roles.time, roles.location, roles.sensor} if is_long else {roles.time}
    names = [c for c in frame.columns if not _is_among(c, about)]
    names = [roles.value] if roles.value is not None else names
    repeated = _emptied(repeated, names)
    native = repeated.to_native()
    if roles.time is None and frame.implementation.is_pandas_like():
        native.index = next_index(nw.to_native(rows, pass_through=True).index, step, steps).repeat(
            len(frame)
        )
    return native


def _is_among(name: Any, about: set[Any]) -> bool:
    return any(isinstance(one, str) and one == name for one in about)


def _aligned(column: Any, frame: Any) -> Any:
    """Give a new column the index of a frame, where frames have one."""
    return nw.maybe_set_index(column, index=nw.maybe_get_index(frame)) if (
        frame.implementation.is_pandas_like()
    ) else column  # fmt: skip


def _emptied(frame: nw.DataFrame[Any], names: list[Any]) -> nw.DataFrame[Any]:
    if frame.implementation.is_pandas_like():
        native = frame.to_native().copy()
        for place, name in enumerate(frame.columns):
            if name in names:
                kind = np.float32 if str(native.dtypes.iloc[place]) == "float32" else np.float64
                native.isetitem(place, np.full(len(native), np.nan, dtype=kind))
        return nw.from_native(native, eager_only=True)
    kinds = {name: frame[name].dtype for name in names}
    empty = [
        nw.lit(None).cast(kind if kind in (nw.Float32, nw.Float64) else nw.Float64).alias(name)
        for name, kind in kinds.items()
    ]
    return frame.with_columns(*empty)


def _next_series(rows: Any, step: float, steps: int) -> Any:
    native = nw.to_native(rows, pass_through=True)
    if hasattr(native, "index") and hasattr(native, "iloc"):
        index = next_index(native.index, step, steps)
        kind = native.dtype if native.dtype.kind == "f" else np.float64
        return type(native)(np.nan, index=index, name=native.name, dtype=kind)
    column = nw.from_native(native, series_only=True)
    kind = column.dtype if column.dtype in (nw.Float32, nw.Float64) else nw.Float64
    return nw.new_series(
        column.name, [None] * steps, kind, backend=column.implementation
    ).to_native()


def _next_xarray(rows: Any, time: str, step: float, steps: int) -> Any:
    last = rows.isel({time: [-1]})
    stamps: Any = np.arange(1, steps + 1)
    if time in rows.coords:
        known = rows[time].values
        stamps = _next_array(known, step, steps)
        last = last.isel({time: [0] * steps}).assign_coords({time: stamps})
    else:
        last = last.isel({time: [0] * steps})
    if hasattr(last, "data_vars"):
        changed = {
            name: part.astype(_float_of(part.dtype)) * np.nan
            for name, part in last.data_vars.items() if time in part.dims
        }  # fmt: skip
        return last.assign(changed)
    return last.copy(data=np.full(last.shape, np.nan, dtype=_float_of(last.dtype)))


def _float_of(kind: Any) -> Any:
    return kind if kind == np.float32 else np.float64


def next_index(index: Any, step: float, steps: int) -> Any:
    """Return what an index of pandas goes on with."""
    start, stride = getattr(index, "start", None), getattr(index, "step", None)
    if start is not None and stride is not None:
        last = index[-1] if len(index) else -stride
        return type(index)(last + stride, last + stride * (steps + 1), stride)
    if hasattr(index, "to_timestamp"):  # periods
        return type(index)([index.max() + k for k in range(1, steps + 1)], name=index.name)
    if getattr(index.dtype, "kind", "") != "M":
        return type(index)(next_stamps(index.tolist(), step, steps), name=index.name)
    pd: Any = sys.modules["pandas"]  # which made the index
    known = index.unique().sort_values()
    own = index.freq if index.is_monotonic_increasing else None
    freq = own or (type(known)(known, freq="infer").freq if len(known) > 2 else None)
    if freq is not None:
        found = pd.date_range(known[-1], periods=steps + 1, freq=freq)[1:]
    elif index.tz is None:
        found = pd.DatetimeIndex(_next_array(known.to_numpy(), step, steps))
    elif _is_of_calendar(step):
        clocks = pd.DatetimeIndex(_next_array(known.tz_localize(None).to_numpy(), step, steps))
        summer = np.ones(steps, dtype=bool)  # of an hour that comes twice, the first
        found = clocks.tz_localize(index.tz, ambiguous=summer, nonexistent="shift_forward")
    else:
        found = known[-1] + pd.to_timedelta(step * np.arange(1, steps + 1), unit="s")
    return found.as_unit(index.unit).rename(index.name)


def _next_array(known: Any, step: float, steps: int) -> Any:
    """Return what an array of times goes on with."""
    if known.dtype.kind == "M":
        last = known.max().astype("datetime64[us]").astype(datetime)
        found = [_later(last, step, k) for k in range(1, steps + 1)]
        return np.array(found, dtype="datetime64[us]").astype(known.dtype)
    if known.dtype.kind in "iuf":
        return np.array(next_stamps(known.tolist(), step, steps))
    return np.array(next_stamps(list(known), step, steps), dtype=object)


def next_stamps(known: list[Any], step: float, steps: int) -> list[Any]:
    """Return the stamps that come after some: numbers, dates, or dates as text.

    Examples
    --------
    >>> next_stamps([0, 10, 20], 10.0, 2), next_stamps(["2024-01-31", "2024-02-29"], 2.5e6, 2)
    ([30, 40], ['2024-03-29', '2024-04-29'])
    """
    last = max(known, key=_instant)
    if isinstance(last, str):
        moment = datetime.fromisoformat(last)
        return [_as_text(_later(moment, step, k), last) for k in range(1, steps + 1)]
    if isinstance(last, datetime):
        return [_later(last, step, k) for k in range(1, steps + 1)]
    if isinstance(last, timedelta):
        return [last + k * timedelta(seconds=step) for k in range(1, steps + 1)]
    if isinstance(last, date):
        moment = datetime(last.year, last.month, last.day)
        return [_later(moment, step, k).date() for k in range(1, steps + 1)]
    found = [last + step * k for k in range(1, steps + 1)]
    return [int(one) for one in found] if isinstance(last, int) and step == int(step) else found


def _instant(stamp: Any) -> Any:
    """Return what tells which stamp is later: text and clocks go back when summer time ends."""
    moment = datetime.fromisoformat(stamp) if isinstance(stamp, str) else stamp
    is_zoned = isinstance(moment, datetime) and moment.tzinfo is not None
    return moment.timestamp() if is_zoned else moment


def _as_text(moment: datetime, like: str) -> str:
    """Write a moment as another one is written, if that is a usual way; else in full.

    Examples
    --------
    >>> _as_text(datetime(2024, 1, 31, 6), "2024-01-30 05:00")
    '2024-01-31 06:00'
    """
    apart, core = " " if " " in like else "T", like.replace("Z", "+00:00")
    if len(like) <= len("2024-01-31"):
        return f"{moment:%Y-%m-%d}" if "-" in like else f"{moment:%Y%m%d}"
    for fine in FINE:
        told = moment.isoformat(apart, fine)
        if len(told) == len(core):
            return told.replace("+00:00", "Z") if "Z" in like else told
    return moment.isoformat(apart)


def _is_of_calendar(step: float) -> bool:
    """Tell whether a step is of days, months or years, which clocks and not seconds count."""
    spans = any(low <= step <= high for low, high in (MONTH, YEAR))
    return spans or step % DAY == 0


def _later(last: datetime, step: float, k: int) -> datetime:
    """Return a moment k steps later.

    Months and years are those of the calendar, and days begin when clocks say so, however long a
    day is in a zone with summer time; hours have 60 minutes each.
    """
    try:
        later = _moved(last, step, k)
        # A clock skips an hour in spring: by way of UTC it is put forward.
        return later if last.tzinfo is None else later.astimezone(UTC).astimezone(last.tzinfo)
    except OverflowError:
        raise DataError(f"There is no date {k} steps of {step:g} seconds after {last}.") from None


def _moved(last: datetime, step: float, k: int) -> datetime:
    """Return the same, on a clock that may not show it."""
    if YEAR[0] <= step <= YEAR[1]:
        return _on_day(last, last.year + k, last.month)
    if MONTH[0] <= step <= MONTH[1]:
        month = last.month - 1 + k
        return _on_day(last, last.year + month // 12, month % 12 + 1)
    by_clock = last.tzinfo is None or _is_of_calendar(step)
    return (last if by_clock else last.astimezone(UTC)) + timedelta(seconds=step * k)


def _on_day(last: datetime, year: int, month: int) -> datetime:
    if not 1 <= year <= 9999:
        raise DataError(f"There is no date in the year {year}: ask for fewer steps.")
    return last.replace(
        year=year, month=month, day=min(last.day, calendar.monthrange(year, month)[1])
    )
