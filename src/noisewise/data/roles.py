"""Which column of a table is the time, which ones say where and what, and which hold readings.

Names decide where they are usual, in a few languages; content decides all else.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from noisewise.data.ids import Codes
from noisewise.errors import DataError, listed

_LISTS = {
    # Numbers are times only under these names; dates are times under any.
    "time": (
        "time timestamp datetime date day hour epoch step ts unixtime unixtimestamp epochtime "
        "messdatum timestampms yyyymmdd yyyymmddhh yyyymmddhhmm yyyymmddhhmmss yyyymm yyyyddd "
        "ddmmyyyy mmddyyyy datehour yearmonth yearmo "
        "doy jday julianday dayofyear yearday yday decimalday decimaldoy"
    ),
    "date": (
        "dateandtime datumzeit datumuhrzeit zeitstempel zeitpunkt zeit datum fecha fechahora data "
        "dataora dato dateheure tid tijd tijdstip datetimeutc timeutc createdat lastchanged "
        "lastupdated readingdatetime measurementdatetime localtime dateobserved begin"
    ),
    "location": (
        "location site station place room mote moteid node stationscode stationcode stationid "
        "stationsid stationname sitecode siteid sitename sensorid deviceid devicename device "
        "nodeid monitor estacion estación stazione locationid loggerid meter meterid building "
        "host sitenum"
    ),
    "sensor": (
        "sensor species variable quantity parameter kind parametername pollutant schadstoff "
        "komponente valuetype field entityid series metric magnitud contaminante polluant "
        "sensortype"
    ),
    "value": "value reading measurement messwert samplemeasurement obsvalue",
    # These are values only if no other column can be.
    "maybe": "state arithmeticmean valeur valor wert valore waarde concentration result",
    "hour": "hour hours stunde heure hora ora uur hh hourending time uhrzeit",
}
USUAL = {role: tuple(names.split()) for role, names in _LISTS.items()}
_CALENDAR = (
    "year jahr année annee anno año ano yyyy yr jaar",
    "month monat mois mes mês mese mo maand",
    "day tag jour dia día giorno dag dy",
    "hour stunde heure hora ora uur hr",
    "minute minutes minuto minuut mn",
    "second seconds sekunde seconde",
)
_OF_YEAR = frozenset(["doy", "jday", "jd", "julian", "julianday", "dayofyear", "yearday", "yday"])
_HOURS = frozenset(f"{_CALENDAR[3]} hours hhmm hrmn hourmin hourminutertm time".split())
_PARTS = {"yy", *USUAL["hour"], *(word for words in _CALENDAR for word in words.split())}
_BUOYS = ("YY", "MM", "DD", "hh", "mm")  # where only the case tells months from minutes
_TOGETHER = (("statecode", "countycode", "sitenum"),)  # columns that only together say where
_COUNTERS = (
    "record", "rec", "recnum", "recnbr", "line", "#", "no", "nr", "id", "index", "entryid", "row",
    "column1", "unnamed0",
)  # fmt: skip
_ABOUT = ("lat", "lon", "long", "latitude", "longitude", "altitude", "elevation", "alt")


class Table(Protocol):
    """What is known of the columns of a table, whatever it is in."""

    @property
    def names(self) -> list[str]:
        """All columns, in their order."""

    def is_number(self, name: str) -> bool:
        """Tell whether a column holds readings."""

    def date_kind(self, name: str) -> str | None:
        """Tell if a column holds "days", "moments", "times" of day; "broken" if most rows do."""

    def codes(self, name: str) -> Codes | None:
        """Return which id every row has; None for what cannot be ids."""

    def is_epoch(self, name: str) -> bool:
        """Tell whether a column of numbers holds unix seconds, or parts of them, that rise."""

    def varies(self, name: str) -> bool:
        """Tell whether a column of dates holds more than one."""


class Found(NamedTuple):
    """The columns of every role; several of a role belong together."""

    time: tuple[str, ...]
    location: tuple[str, ...]
    sensor: tuple[str, ...]
    value: str | None

    @property
    def ids(self) -> tuple[str, ...]:
        """The columns that tell series apart."""
        return (*self.location, *self.sensor)


@functools.lru_cache(maxsize=4096)
def plain(name: str) -> str:
    """Return a name without case, signs and units: "Date Time, GMT+01:00" is "datetime".

    Examples
    --------
    >>> plain("Date Time, GMT+01:00"), plain("_time"), plain("#")
    ('datetime', 'time', '#')
    """
    first = re.split(r"[(\[,]", name)[0]
    return "".join(letter for letter in first.lower() if letter.isalnum()) or name.strip()


def may_be_id(name: str) -> bool:
    """Tell whether a column may hold ids, even if they are numbers."""
    together = {one for names in _TOGETHER for one in names}
    return plain(name) in {*USUAL["location"], *USUAL["sensor"], *together}


def may_be_time(name: str) -> bool:
    """Tell whether a name is usual for times."""
    return plain(name) in {*USUAL["time"], *USUAL["date"]}


def names_time(name: str) -> bool:
    """Tell whether a name is usual for times or for parts of them."""
    return may_be_time(name) or plain(name) in _PARTS


def checked(names: Iterable[str], all_names: list[str], role: str) -> tuple[str, ...]:
    """Return the columns that were named for a role; raise if there is none of that name."""
    for name in names:
        if name not in all_names:
            raise DataError(f"{role} must be one of the columns {listed(all_names)}; got {name!r}.")
    return tuple(names)


def usual(names: Sequence[str], role: str) -> list[str]:
    """Return the columns with a usual name for a role, the most usual first."""
    order = {name: k for k, name in enumerate(USUAL[role])}
    return sorted((n for n in names if plain(n) in order), key=lambda n: order[plain(n)])


def find_value(table: Table, named: str | None, taken: Iterable[str]) -> str | None:
    """Return the column of values, which makes a table long."""
    if named is not None:
        return checked([named], table.names, "value")[0]
    free = [name for name in table.names if name not in set(taken)]
    readings = [name for name in free if table.is_number(name)]
    found = usual(readings, "value")
    if not found:
        others = [n for n in readings if not may_be_id(n) and plain(n) not in (*_ABOUT, *_COUNTERS)]
        found = usual(others, "maybe") if len(others) == 1 else []
    if len(found) > 1:
        raise DataError(f"Which of the columns {listed(found)} is the value? Name it with value=.")
    return found[0] if found else None


def find_time(table: Table, named: str | None, taken: Iterable[str]) -> tuple[str, ...]:
    """Return the column of times; or those of dates and of times of day, or of parts of dates."""
    free = [name for name in table.names if name not in set(taken)]
    kinds = {name: table.date_kind(name) for name in free}
    dated = [name for name in free if kinds[name] in ("days", "moments")]
    if named is not None:
        checked([named], table.names, "time")
        if kinds.get(named) == "times" and dated:
            return (_best(dated, free), named)
        return (named, *_time_of_day(table, named, free, kinds))
    moving = [name for name in dated if table.varies(name)] or dated
    if moving:
        best = _best(moving, free)
        return (best, *_time_of_day(table, best, free, kinds))
    parts = _calendar_columns(table, free)
    if parts:
        return parts
    found = [name for name in usual(free, "time") if table.is_number(name)]
    unread = [name for name in usual(free, "time") if not table.is_number(name)]
    unread += [name for name in free if kinds[name] == "broken"]
    if len(found) > 1:
        raise DataError(f"Which of the columns {listed(found)} is the time? Name it with time=.")
    rising = [name for name in free if table.is_epoch(name)] if not found + unread else []
    monthly = _calendar_parts(table, free)  # of which there are no days
    return tuple(found or unread[:1] or rising[:1] or (monthly if len(monthly) == 2 else ()))


def _best(dated: list[str], free: list[str]) -> str:
    """Return the column of dates whose name says most clearly that it is the time."""

    def clarity(name: str) -> tuple[int, bool, bool]:
        word = plain(name)
        if word in USUAL["time"] or word in USUAL["date"]:
            rank = 3
        else:
            rank = 2 if any(part in word for part in ("time", "date", "datum", "zeit")) else 1
        is_end = any(part in word for part in ("end", "stop", "until", "bis"))
        return rank, "utc" in name.lower() or "gmt" in name.lower(), not is_end

    ranked = sorted(dated, key=clarity, reverse=True)
    if len(ranked) > 1 and clarity(ranked[0]) == clarity(ranked[1]):
        first = [name for name in ranked if clarity(name) == clarity(ranked[0])]
        order = [name for name in usual(first, "time") if plain(name) in USUAL["time"][:3]]
        if len({plain(name) for name in order}) == len(order) and order:
            return order[0]
        raise DataError(f"Which of the columns {listed(first)} is the time? Name it with time=.")
    return ranked[0]


def _time_of_day(
    table: Table, date: str, free: list[str], kinds: dict[str, str | None]
) -> tuple[str, ...]:
    """Return the column with the time of day that goes with a column of days, if there is one."""
    if kinds.get(date) != "days":
        return ()
    times = [name for name in free if kinds[name] == "times"]
    if len(times) > 1:
        ends = {name: name.split()[-1].lower() for name in times}
        same = [name for name in times if ends[name] == date.split()[-1].lower()]
        times = same or [name for name in times if plain(name) in USUAL["hour"]] or times
    if len(times) > 1:
        raise DataError(
            f"Which of the columns {listed(times)} has the time of day of {date!r}? Name it with "
            "time=."
        )
    hours = [name for name in usual(free, "hour") if table.is_number(name) and name != date]
    return tuple(times or hours[:1])


def _calendar_columns(table: Table, free: list[str]) -> tuple[str, ...]:
    """Return columns of year, month, day, and of hour, minute and second where there are any."""
    if tuple(free[: len(_BUOYS)]) == _BUOYS:
        return _BUOYS
    found = _calendar_parts(table, free)
    return tuple(found) if len(found) >= 3 else _day_of_year(table, free, found[:1])


def _calendar_parts(table: Table, free: list[str]) -> list[str]:
    """Return columns of year, month, day and so on, as far as there is one of each."""
    found: list[str] = []
    for words in _CALENDAR:
        named = [name for name in free if plain(name) in words.split()]
        fitting = [name for name in named if table.is_number(name)]
        if len(fitting) != 1:
            break
        found.append(fitting[0])
    return found


def _day_of_year(table: Table, free: list[str], year: list[str]) -> tuple[str, ...]:
    """Return columns of a year, of its day, and of hour and minute where there are any."""
    found = list(year)
    for words in (_OF_YEAR, _HOURS, _CALENDAR[4].split()):
        fitting = [name for name in free if plain(name) in words and table.is_number(name)]
        if len(fitting) != 1:
            break
        found += fitting
    return tuple(found) if year and len(found) >= 2 else ()


def is_day_of_year(name: str) -> bool:
    """Tell whether a column with this name, beside one of years, has the day of the year."""
    return plain(name) in _OF_YEAR


def find_ids(table: Table, named: Found, times: Codes, value: str | None) -> Found:
    """Return the columns that say where and what: of a long table, or where times repeat.

    ``named`` has those that were given, and the time.
    """
    free = [name for name in table.names if name not in {*named.time, *named.ids, value}]
    sensor = named.sensor
    if value is not None and not sensor:
        sensor = tuple(_coded(table, usual(free, "sensor"))[:1])
    location = named.location
    rest = [name for name in free if name not in sensor]
    if not location:
        together = next((c for words in _TOGETHER if (c := _together(rest, words))), ())
        likely = _coded(table, usual(rest, "location"))
        if value is not None:
            location = together or _telling(table, (times,), sensor, likely)
        elif not is_unique([times]):
            texts = [n for n in rest if not table.is_number(n) and table.date_kind(n) is None]
            others = _coded(table, [name for name in texts if name not in likely])
            location = _telling(table, (times,), sensor, likely, others)
    return Found(named.time, location, sensor, value)


def _together(free: list[str], words: tuple[str, ...]) -> tuple[str, ...]:
    found = [next((name for name in free if plain(name) == word), None) for word in words]
    return tuple(name for name in found if name is not None) if all(found) else ()


def _coded(table: Table, names: list[str]) -> list[str]:
    return [name for name in names if table.codes(name) is not None]


def _telling(
    table: Table,
    times: tuple[Codes, ...],
    sensor: tuple[str, ...],
    likely: list[str],
    others: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the column that tells rows of the same time apart."""
    known = [*times, *(codes for name in sensor if (codes := table.codes(name)) is not None)]
    for name in likely:
        codes = table.codes(name)
        if codes is not None and is_unique([*known, codes]):
            return (name,)
    if is_unique(known):
        return tuple(likely[:1])
    telling = [n for n in others if (c := table.codes(n)) is not None and is_unique([*known, c])]
    if len(telling) > 1:
        raise DataError(
            f"Times repeat, and each of the columns {listed(telling)} tells the rows of a time "
            "apart: name the one that says where with location=."
        )
    return tuple(telling or likely[:1])


def is_unique(codes: Sequence[Codes]) -> bool:
    """Tell whether no two rows have the same codes in all of some columns."""
    keys = np.zeros(len(codes[0]), dtype=np.int64)
    for column in codes:
        _, keys = np.unique(keys * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    return len(np.unique(keys)) == len(keys)


def is_beside(name: str, numbers: np.ndarray, *, may_count: bool = False) -> bool:
    """Tell whether a column of numbers counts rows or tells a place, and holds no readings.

    One that may count rows does so whatever its name is.
    """
    if not len(numbers) or not np.isfinite(numbers).all():
        return False
    if plain(name) in _ABOUT or plain(name) in USUAL["location"]:
        return len(numbers) > 1 and bool((numbers == numbers[0]).all())
    counts = np.diff(numbers)
    may_count = may_count or plain(name) in _COUNTERS
    return may_count and len(counts) > 1 and bool((counts == 1.0).all())
