"""Times, and what is observed over them: series, their sensors, and the units of sensors.

The one parser of times reads numbers, dates of any library and ISO text. Dates become seconds since
1970; without a time zone they are taken to be of UTC. Numbers stay what they are. A series is all
that was observed of one combination of the ids of all modes but time; series of the same sensor
(temperature, humidity, ...) have units and habits in common.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from noisewise.data.ids import Codes, Ids, is_missing
from noisewise.data.reader import to_float
from noisewise.errors import DataError, SettingError, too_coarse

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
# "dates" is what files from before zones were told apart have: with a zone or without.
Clock: TypeAlias = Literal["dates without a zone", "dates with a zone", "dates", "numbers", "rows"]

FARTHEST = 2.0**53  # seconds from 1970: beyond, floats do not tell one from the next
FLOOR = 1e-12  # the variance of what is constant, as a share of its square
_SECOND = 1_000_000  # in microseconds, the finest that 64 bits of seconds can tell apart today


def read_stamps(entries: Any) -> tuple[Floats, NDArray[np.bool_]]:
    """Return times as numbers, dates as seconds, NaN for what is neither; and which are dates."""
    if isinstance(entries, np.ndarray) and entries.dtype != object:
        return entries.astype(np.float64), np.zeros(len(entries), dtype=bool)
    dates = [not isinstance(entry, numbers.Real) for entry in entries]
    return np.array(list(map(_stamp, entries)), dtype=np.float64), np.array(dates, dtype=bool)


def _stamp(entry: Any) -> float:
    """Return a number, or the seconds of a date; NaN for what is neither."""
    if isinstance(entry, bool):
        return math.nan
    if isinstance(entry, numbers.Real):
        return float(entry)
    if isinstance(entry, np.datetime64):
        return float((entry - np.datetime64(0, "s")) / np.timedelta64(1, "s"))
    if isinstance(entry, str):
        try:
            entry = datetime.fromisoformat(entry)
        except ValueError:
            return math.nan
    if isinstance(entry, date) and not isinstance(entry, datetime):
        entry = datetime(entry.year, entry.month, entry.day)
    return _timestamp(entry) if isinstance(entry, datetime) else math.nan


def _timestamp(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def checked_stamps(ids: Ids) -> tuple[Floats, bool]:
    """Return the ids of a mode as times, and whether they are dates."""
    stamps, dates = read_stamps(ids.labels)
    bad = np.isnan(stamps)
    if bad.any():
        raise DataError(
            f"Column {ids.name!r} must hold times, as numbers or dates; got "
            f"{ids.labels[bad.argmax()]!r}. Name the mode that is time with time=."
        )
    _refuse_mixture(f"Column {ids.name!r}", ids.labels, dates)
    return stamps, bool(dates.any())


def check_seconds(column: Any, n_rows: int) -> NDArray[Any]:
    """Return a column of ``n_rows`` numbers or dates as unix seconds; only floats stay floats."""
    column = nw.from_native(column, allow_series=True, pass_through=True)
    array = column.to_numpy() if isinstance(column, nw.Series) else np.asarray(column)
    if array.shape != (n_rows,):
        raise DataError(f"time needs one entry per row, {n_rows}; got shape {array.shape}.")
    given = array
    if array.dtype.kind == "O":
        stamps, dates = read_stamps(array)
        strange = [row for row in np.flatnonzero(np.isnan(stamps)) if not is_missing(given[row])]
        if strange:
            found = f"{given[strange[0]]!r} in row {strange[0]}"
            raise DataError(f"time must hold unix seconds or dates; got {found}.")
        array = as_integers(np.where(dates, np.floor(stamps), stamps))
    if array.dtype.kind not in "iufM":
        raise DataError(f"time must hold unix seconds or dates; got {array.dtype} entries.")
    missing = np.isnat(array) if array.dtype.kind == "M" else ~np.isfinite(array)
    if missing.any():
        row = int(missing.argmax())
        raise DataError(f"Row {row} of time is {given[row]}; drop the row or give it a time.")
    if array.dtype.kind == "M":
        array = array.astype("datetime64[s]")
    elif (far := np.abs(array.astype(np.float64)) > FARTHEST).any():
        row = int(far.argmax())
        raise DataError(f"Row {row} of time is {given[row]}, more than 2**53 seconds from 1970.")
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


def time_numbers(column: Any, words: str, *, has_zone: bool = False) -> tuple[NDArray[Any], Clock]:
    """Return times of a table as numbers, dates as seconds; ``words`` are what errors call them.

    ``has_zone`` says that dates have one which numpy has no room for.
    """
    if isinstance(column, nw.Series):
        has_zone = has_zone or getattr(column.dtype, "time_zone", None) is not None
    entries = column.to_numpy() if isinstance(column, nw.Series) else np.asarray(column)
    kind = entries.dtype.kind
    if kind in "mM":
        missing = np.isnat(entries)
        ticks = entries.astype(f"{kind}8[us]").astype(np.int64)
        if len(np.unique(entries)) > len(np.unique(ticks)):
            raise DataError(
                f"{words} must be microseconds apart, or more: give finer times as numbers, such "
                "as nanoseconds since the first."
            )
        whole = not (ticks % _SECOND).any()
        stamps = ticks // _SECOND if whole else ticks / _SECOND
    elif kind in "iuf":
        missing, stamps = ~np.isfinite(entries), entries
    else:
        stamps, dates = read_stamps(entries.astype(object))
        missing, kind = np.isnan(stamps), "M" if dates.any() else "f"
        _refuse_mixture(words, entries, dates)
        has_zone = has_zone or _all_zoned(words, entries[~missing & dates])
    if missing.any():
        row = int(missing.argmax())
        remedy = "drop the row or give it a time"
        if isinstance(entries[row], str) and entries[row]:
            remedy = "make dates of that text first, or write them as 2013-03-31 12:00"
        raise DataError(
            f"{words} must hold dates or numbers; got {entries[row]!r} in row {row}: {remedy}."
        )
    if kind != "M":
        return as_integers(stamps), "numbers"
    return as_integers(stamps), "dates with a zone" if has_zone else "dates without a zone"


def are_dates(clock: Clock) -> bool:
    """Tell whether times are dates, with a zone or without."""
    return clock.startswith("dates")


def same_clock(a: Clock, b: Clock) -> bool:
    """Tell whether times of two tables can be compared: numbers with numbers, zones with zones."""
    if not (are_dates(a) and are_dates(b)):
        return are_dates(a) == are_dates(b)
    return a == b or "dates" in (a, b)


def _all_zoned(words: str, entries: Any) -> bool:
    """Tell whether dates have a zone; raise if only some of them do."""
    zoned = np.array([_has_zone(entry) for entry in entries], dtype=bool)
    if zoned.any() and not zoned.all():
        pair = entries[zoned.argmax()], entries[zoned.argmin()]
        raise DataError(
            f"{words} must not mix times with a zone and times without; got {pair}: convert all of "
            "them to one zone, or take the zones off."
        )
    return bool(zoned.any())


def _has_zone(entry: Any) -> bool:
    if isinstance(entry, str):
        entry = datetime.fromisoformat(entry)
    return isinstance(entry, datetime) and entry.tzinfo is not None


def to_seconds(text: str) -> float:
    """Return the unix seconds of a time in a file; raise ``ValueError`` for what is none."""
    try:
        seconds = to_float(text)
    except ValueError:
        return _timestamp(datetime.fromisoformat(text.strip()))
    if not abs(seconds) <= FARTHEST:
        raise ValueError(f"{text} is more than 2**53 seconds from 1970")
    return seconds


def as_integers(stamps: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers as integers, which are looked up faster, and others as they are."""
    whole = (stamps == np.floor(stamps)).all() and (np.abs(stamps) < FARTHEST).all()
    return stamps.astype(np.int64) if whole else stamps.astype(np.float64)


def _refuse_mixture(words: str, entries: Any, dates: NDArray[np.bool_]) -> None:
    if dates.any() and not dates.all():
        pair = entries[dates.argmin()], entries[dates.argmax()]
        raise DataError(f"{words} must not mix numbers and dates; got {pair}.")


class Units(NamedTuple):
    """Mean and variance of every sensor; at the end, of everything, for one never seen."""

    mean: Floats
    variance: Floats

    @classmethod
    def of(cls, values: NDArray[Any], sensors: NDArray[Any], n: int) -> Units:
        """Measure values; a sensor of which a single one is known is as wide as everything."""
        values = values.astype(np.float64)
        counts = np.append(np.bincount(sensors, minlength=n), len(values))
        sums = np.append(np.bincount(sensors, values, n), values.sum())
        mean = sums / np.maximum(counts, 1)
        away = (values - mean[sensors]) ** 2
        total = float(np.mean((values - mean[-1]) ** 2))
        variance = np.append(np.bincount(sensors, away, n), total * len(values))
        variance /= np.maximum(counts, 1)
        mean[counts == 0] = mean[-1]
        variance[counts < 2] = total
        rounding = variance <= (FLOOR * mean) ** 2
        return cls(mean, np.where(rounding, _constant(mean), variance))

    @property
    def precision(self) -> type[np.floating]:
        """The dtype of predictions: double where single is too coarse for a sensor."""
        told = self.variance != _constant(self.mean)
        pairs = zip(np.abs(self.mean[told]).tolist(), np.sqrt(self.variance[told]), strict=True)
        return np.float64 if any(too_coarse(*pair) for pair in pairs) else np.float32


def _constant(mean: Floats) -> Floats:
    """Return the variance that a sensor gets whose values are all the same."""
    return np.asarray(FLOOR * (mean**2 + (mean == 0.0)))


@dataclass(frozen=True)
class SeriesIndex:
    """Which series a cell belongs to, and of which sensor a series is."""

    time: int  # the mode that is time
    sensor: int | None  # the mode that is the sensor; None if all series are alike
    shape: tuple[int, ...]  # ids of every mode
    keys: Ints  # every series that was observed as one number, sorted

    @property
    def n_sensors(self) -> int:
        """The number of sensors."""
        return 1 if self.sensor is None else self.shape[self.sensor]

    @property
    def sensors(self) -> Ints:
        """The sensor of every series."""
        if self.sensor is None:
            return np.zeros(len(self.keys), dtype=np.int64)
        others = [mode for mode in range(len(self.shape)) if mode != self.time]
        codes = np.unravel_index(self.keys, [self.shape[mode] for mode in others])
        return codes[others.index(self.sensor)]

    def series(self, codes: tuple[Codes, ...]) -> Ints:
        """Return the series of cells, -1 where nothing was observed of it."""
        return key_places(self.keys, *series_keys(codes, self.shape, self.time))

    def sensors_of(self, codes: tuple[Codes, ...]) -> Ints:
        """Return the sensor of cells; one never seen is the one after the last."""
        if self.sensor is None:
            return np.zeros(len(codes[0]), dtype=np.int64)
        sensors = codes[self.sensor].astype(np.int64)
        return np.where(sensors < 0, self.n_sensors, sensors)


def series_keys(
    codes: tuple[Codes, ...], shape: tuple[int, ...], *without: int
) -> tuple[Ints, NDArray[np.bool_]]:
    """Return numbers for combinations of ids of all modes but some, and if all ids are known."""
    if n_keys(shape, *without) >= 2**63:
        raise DataError(f"There can be at most 2^63 combinations of ids; got modes of {shape}.")
    keys = np.zeros(len(codes[0]), dtype=np.int64)
    known = np.ones(len(keys), dtype=bool)
    for mode, (code, n) in enumerate(zip(codes, shape, strict=True)):
        if mode not in without:
            keys = keys * n + code
            known &= code >= 0
    return keys, known


def n_keys(shape: tuple[int, ...], *without: int) -> int:
    """Return how many combinations of ids of all modes but some there can be."""
    return math.prod(n for mode, n in enumerate(shape) if mode not in without)


def key_places(keys: Ints, asked: Ints, known: NDArray[np.bool_]) -> Ints:
    """Return the places of numbers among sorted ones, -1 where they are not there."""
    at = np.searchsorted(keys, asked).clip(max=len(keys) - 1)
    return np.where(known & (keys[at] == asked), at, -1)


def sensor_modes(
    time: int | str, sensor: int | str | None, ids: tuple[Ids, ...]
) -> tuple[int, int | None]:
    """Return the mode that is time, and the mode that is the sensor, None if there is none."""
    number = mode_number(time, ids, "time")
    others = [mode for mode in range(len(ids)) if mode != number]
    if sensor is None or (sensor == "auto" and len(others) == 1):
        return number, None
    if sensor == "auto":
        return number, min(others, key=lambda mode: (ids[mode].name != "sensor", len(ids[mode])))
    other = mode_number(sensor, ids, "sensor")
    if other == number:
        raise SettingError(f"sensor must be another mode than time; got {sensor!r} for both.")
    return number, other


def mode_number(mode: int | str, ids: tuple[Ids, ...], setting: str) -> int:
    """Return the number of a mode that is named, or counted from the first or the last."""
    names = [one.name for one in ids]
    if isinstance(mode, str) and mode in names:
        return names.index(mode)
    if not isinstance(mode, str) and -len(names) <= mode < len(names):
        return int(mode) % len(names)
    raise SettingError(f"{setting} must be one of {names} or its number; got {mode!r}.")
