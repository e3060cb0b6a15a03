"""SensorData: what was measured where, by which sensor, and when.

Observations have the modes location, sensor and time, in this order. The ids of time are numbers
that count steps of equal length, so that the time between two of them is their difference times
``seconds``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisewise.data.ids import Codes, Ids
from noisewise.data.observations import (
    Duplicates,
    Observations,
    assemble,
    check_duplicates,
    group_cells,
)
from noisewise.data.tables import check_values
from noisewise.errors import DataError, brief

Repeats: TypeAlias = Duplicates | Literal["first"]
Coordinates: TypeAlias = dict[Any, tuple[float, float]]

LOCATION, SENSOR, TIME = 0, 1, 2

_EARTH = 6_371_000.0  # metres
_CHARING_CROSS = 51.5074, -0.1278  # where distances in London are measured from


@dataclass(frozen=True, eq=False)
class SensorData:
    """Readings of sensors at known places.

    Attributes
    ----------
    observations : Observations
        With the modes location, sensor and time, and numbers as ids of time.
    coordinates : dict or None
        Where locations are: x and y in metres by the id of the location. A location that nobody
        placed is not in it; None when no location is.
    seconds : float
        How long a step of the time ids is.
    report : dict of int
        What a reader left out, and how often: lines that are broken, readings that are repeated.

    Examples
    --------
    >>> from noisewise.data import observe
    >>> seen = observe([("hall", "heat", 7, 20.5), ("hall", "heat", 9, 21.0)])
    >>> SensorData(seen, {"hall": (0.0, 2.5)}, seconds=60.0).elapsed()
    array([  0., 120.])
    """

    observations: Observations
    coordinates: Coordinates | None
    seconds: float
    report: dict[str, int] = field(default_factory=dict)

    __repr__ = brief

    def __post_init__(self) -> None:
        seen = self.observations
        if seen.n_modes != TIME + 1:
            found = ", ".join(seen.names)
            raise DataError(f"Expected the modes location, sensor and time; got {found}.")
        strange = [id for id in seen.ids[TIME].labels.tolist() if not isinstance(id, int | float)]
        if strange:
            raise DataError(
                f"The ids of time must be numbers that count steps; got {strange[0]!r}: number the "
                "dates in days or seconds."
            )
        if not self.seconds > 0:
            raise DataError(f"seconds must be above 0; got {self.seconds}.")

    def elapsed(self) -> NDArray[np.float64]:
        """Return the seconds from the first time id to each of the others, by row number."""
        times = self.observations.ids[TIME].labels.astype(np.float64)
        return np.asarray((times - times.min()) * self.seconds)


def gather(
    location: tuple[Ids, Codes],
    sensor: tuple[Ids, Codes],
    time: NDArray[np.int64],
    value: NDArray[Any],
    repeats: Repeats,
) -> tuple[Observations, int]:
    """Put readings together.

    Parameters
    ----------
    location, sensor : pair of Ids and codes
        One row number per reading.
    time : ndarray of int64
        The time id of each reading.
    value : ndarray of float
        What was read.
    repeats : {"first", "error", "last", "mean"}
        What to do about a cell that was read more than once.

    Returns
    -------
    observations, repeated
        No cell twice, and how many readings went for that.
    """
    check_repeats(repeats)
    if not len(value):
        raise DataError("Found no reading; at least 2 are needed.")
    coded = [location, sensor, Ids.encode(time, "time")]
    codes, ids = [codes for _, codes in coded], [ids for ids, _ in coded]
    values = check_values(value, "value")
    if repeats == "first":
        groups = group_cells(codes, [len(mode) for mode in ids])
        if groups is not None:
            firsts = np.sort(groups.firsts())
            codes, values = [column[firsts] for column in codes], values[firsts]
        seen = assemble(codes, values, ids)
    else:
        place = "readings {} and {}".format
        seen = assemble(codes, values, ids, duplicates=repeats, place=place)
    return seen, len(value) - len(seen)


def check_repeats(repeats: str) -> None:
    """Raise unless the choice is one there is."""
    if repeats != "first":
        check_duplicates(repeats)


def from_degrees(latitude: float, longitude: float) -> tuple[float, float]:
    """Turn degrees into metres east and north of Charing Cross, right to a metre in ten kilometres.

    Examples
    --------
    >>> x, y = from_degrees(51.5226, -0.1546)  # Marylebone Road
    >>> round(x), round(y)
    (-1855, 1690)
    """
    if not (abs(latitude) <= 90 and abs(longitude) <= 360):
        raise DataError(f"A place has a latitude and a longitude; got {latitude}, {longitude}.")
    north, east = np.radians(np.subtract((latitude, longitude), _CHARING_CROSS))
    parallel = _EARTH * np.cos(np.radians(_CHARING_CROSS[0]))
    return float(parallel * east), float(_EARTH * north)
