"""Panels: series observed over time; which mode is time, which the sensor, and their units.

A series is all that was observed of one combination of the ids of all modes but time. Series of the
same sensor (temperature, humidity, ...) have units and habits in common.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from noisewise.data.ids import Codes, Ids
from noisewise.data.observations import Observations, encode_ids, id_columns
from noisewise.data.tables import check_ids
from noisewise.data.timestamps import checked_stamps, read_stamps
from noisewise.errors import DataError, SettingError, brief, too_coarse

LOCATION, SENSOR, TIME = 0, 1, 2  # the modes of a panel
FLOOR = 1e-12  # the variance of what is constant, as a share of its square

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Coordinates: TypeAlias = dict[Any, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Panel:
    """Readings of sensors over time: what was measured where, by which sensor, and when.

    The modes are location, sensor and time, in this order.

    Examples
    --------
    >>> from noisewise.data import observe
    >>> seen = observe([("hall", "heat", 7, 20.5), ("hall", "heat", 9, 21.0)])
    >>> Panel(seen, {"hall": (0.0, 2.5)}, seconds=60.0).elapsed()
    array([  0., 120.])
    """

    observations: Observations  # ids of time are numbers that count steps of equal length
    coordinates: Coordinates | None  # x and y in metres of locations that somebody placed
    seconds: float  # how long a step of time is
    report: dict[str, int] = field(default_factory=dict)  # what a reader left out, how often

    __repr__ = brief

    def __post_init__(self) -> None:
        _check_modes(self.observations)
        times = self.observations.ids[TIME].labels.tolist()
        strange = [id for id in times if not isinstance(id, int | float)]
        if strange:
            raise DataError(
                f"The ids of time must be numbers that count steps; got {strange[0]!r}: number the "
                "dates in days or seconds."
            )
        if not self.seconds > 0:
            raise DataError(f"seconds must be above 0; got {self.seconds}.")

    def elapsed(self) -> Floats:
        """Return the seconds from the first time id to each of the others, by row number."""
        times = self.observations.ids[TIME].labels.astype(np.float64)
        return np.asarray((times - times.min()) * self.seconds)

    @classmethod
    def of(cls, observations: Observations) -> Panel:
        """Take a table of location, sensor and time, in this order, for readings of sensors.

        Times are numbers, then taken to be seconds, or dates.
        """
        _check_modes(observations)
        known = observations.ids[TIME]
        stamps, places = Ids.encode(checked_stamps(known)[0], known.name)
        codes = (*observations.codes[:TIME], places[observations.codes[TIME]])
        ids = (*observations.ids[:TIME], stamps)
        return cls(Observations(codes, observations.values, ids), None, seconds=1.0)


def _check_modes(observations: Observations) -> None:
    if observations.n_modes != TIME + 1:
        found = ", ".join(observations.names)
        raise DataError(f"Expected the modes location, sensor and time; got {found}.")


class Units(NamedTuple):
    """Mean and variance of every sensor; at the end, of everything, for one never seen."""

    mean: Floats
    variance: Floats

    @classmethod
    def of(cls, values: npt.NDArray[Any], sensors: npt.NDArray[Any], n: int) -> Units:
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
class Grouping:
    """Which series a cell belongs to, and of which sensor a series is.

    Attributes
    ----------
    time, sensor
        The mode that is time; the mode that is the sensor, None if all series are alike.
    shape
        Ids of every mode.
    keys
        Every series that was observed as one number, sorted.
    """

    time: int
    sensor: int | None
    shape: tuple[int, ...]
    keys: Ints

    @property
    def n_types(self) -> int:
        """The number of sensors."""
        return 1 if self.sensor is None else self.shape[self.sensor]

    @property
    def types(self) -> Ints:
        """The sensor of every series."""
        left, types = self.keys, np.zeros(len(self.keys), dtype=np.int64)
        for mode in reversed(range(len(self.shape))):
            if mode != self.time:
                left, code = np.divmod(left, self.shape[mode])
                types = code if mode == self.sensor else types
        return types

    def series(self, codes: tuple[Codes, ...]) -> Ints:
        """Return the series of cells, -1 where nothing was observed of it."""
        return key_places(self.keys, *series_keys(codes, self.shape, self.time))

    def type_of(self, codes: tuple[Codes, ...]) -> Ints:
        """Return the sensor of cells; one never seen is the one after the last."""
        if self.sensor is None:
            return np.zeros(len(codes[0]), dtype=np.int64)
        types = codes[self.sensor].astype(np.int64)
        return np.where(types < 0, self.n_types, types)


def series_keys(
    codes: tuple[Codes, ...], shape: tuple[int, ...], *without: int
) -> tuple[Ints, npt.NDArray[np.bool_]]:
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


def key_places(keys: Ints, asked: Ints, known: npt.NDArray[np.bool_]) -> Ints:
    """Return the places of numbers among sorted ones, -1 where they are not there."""
    at = np.searchsorted(keys, asked).clip(max=len(keys) - 1)
    return np.where(known & (keys[at] == asked), at, -1)


def sensor_modes(
    time: int | str, sensor: int | str | None, ids: tuple[Ids, ...]
) -> tuple[int, int | None]:
    """Return the mode that is time, and the mode that is the sensor, None if there is none.

    The sensor "auto" is the mode called "sensor", or else the one with the fewest ids that is not
    time, if there is more than one.
    """
    number = mode_number(time, ids, "time")
    others = [mode for mode in range(len(ids)) if mode != number]
    if sensor is None or (sensor == "auto" and len(others) == 1):
        return number, None
    if sensor == "auto":
        return number, min(others, key=lambda mode: (ids[mode].name != "sensor", len(ids[mode])))
    kind = mode_number(sensor, ids, "sensor")
    if kind == number:
        raise SettingError(f"sensor must be another mode than time; got {sensor!r} for both.")
    return number, kind


def encode_in_time(
    X: Any, ids: tuple[Ids, ...], mode: int, stamps: Floats, are_dates: bool
) -> tuple[tuple[Codes, ...], Floats]:
    """Return row numbers and times of cells; a time need not be known, only understood.

    ``stamps`` has the times of the known ids of ``mode``; what is no time is NaN.
    """
    codes = encode_ids(X, ids)
    when = np.append(stamps, np.nan)[codes[mode]]
    new = np.flatnonzero(codes[mode] < 0)
    if len(new):
        entries = check_ids(id_columns(X, ids)[mode].entries, ids[mode].name)
        fresh = [entries[k] for k in new] if isinstance(entries, list) else entries[new]
        found, dates = read_stamps(fresh)
        when[new] = np.where(dates == are_dates, found, np.nan)
    return codes, when


def mode_number(mode: int | str, ids: tuple[Ids, ...], setting: str) -> int:
    """Return the number of a mode that is named, or counted from the first or the last."""
    names = [one.name for one in ids]
    if isinstance(mode, str) and mode in names:
        return names.index(mode)
    if not isinstance(mode, str) and -len(names) <= mode < len(names):
        return int(mode) % len(names)
    raise SettingError(f"{setting} must be one of {names} or its number; got {mode!r}.")
