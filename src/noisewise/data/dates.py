"""Dates as loggers write them: a column is read in parts, and understood as a whole.

``01/03/2013`` has the day first in Leeds and the month first in Boston. What the parts of a date
mean is told by all entries of a column together: a number above 12 is no month, and a logger does
not jump by a month at midnight. What they leave open is asked for, with ``date_order``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from noisewise.errors import DataError

DateOrder: TypeAlias = Literal["dmy", "mdy", "ymd"]
Ints: TypeAlias = NDArray[np.int64]

ORDERS: tuple[str, ...] = get_args(DateOrder)
LOCAL = -(2**31)  # the offset of what has no zone
DAY = 86_400_000_000  # microseconds

_MONTHS = {
    month: number
    for number, names in enumerate(
        (
            "jan janv ene gen january januar janvier enero gennaio januari janeiro",
            "feb fév févr fev feb febr february februar février febrero febbraio fevereiro",
            "mar mär mrz mars mrt maart march märz marzo março",
            "apr avr abr april avril abril aprile",
            "may mai mei mag maj mayo maggio maio",
            "jun juin juni june junio giugno junho giu",
            "jul juil juli july juillet julio luglio julho lug",
            "aug août aout ago august augustus agosto",
            "sep sept set september septembre septiembre settembre setembro",
            "oct okt ott out october oktober octobre octubre ottobre outubro",
            "nov november novembre noviembre novembro",
            "dec dez déc dic december dezember décembre diciembre dicembre dezembro",
        ),
        start=1,
    )
    for month in names.split()
}
_ZONES = {
    "z": 0, "utc": 0, "gmt": 0, "cet": 60, "mez": 60, "cest": 120, "mesz": 120,
}  # fmt: skip
_ZONE = r"(?P<zone>z|utc|gmt|cest|cet|mesz|mez|(?:utc|gmt)?[+-]\d\d(?::?\d\d)?)"
_CLOCK = (
    r"(?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d)(?:[:.](?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?)?"
    r"|\s?h\s?(?P<after>\d\d)?|(?=\s?[ap]\.?\s?m\b))"
    r"\s?(?P<half>[ap]\.?\s?m\.?)?"
)
_DATE = (
    r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\s+)?"
    r"(?:(?P<y>\d{4})(?P<s1>[-/.])(?P<m>\d{1,2})(?P=s1)(?P<d>\d{1,2})"
    r"|(?P<a>\d{1,2})(?P<s2>[-/.])(?P<b>\d{1,2})(?P=s2)(?P<c>\d{4}|\d\d)"
    r"|(?P<day>\d{1,2})\.?[-/ ]?(?P<month>[^\W\d_]{3,10})\.?[-/ ]?,?\s?(?P<year>\d{4}|\d\d)"
    r"|(?P<month2>[^\W\d_]{3,10})\.?\s(?P<day2>\d{1,2}),?\s(?P<year2>\d{4})"
    r"|(?P<compact>\d{8}))"
)
_DIGITS = r"(?P<digits>\d{4}(?:\d\d)?)"
_STAMP = re.compile(rf"{_DATE}(?:(?:\s*t\s*|,?\s+)(?:{_CLOCK}|{_DIGITS})(?:\s*{_ZONE})?)?", re.I)
_TIME = re.compile(rf"{_CLOCK}(?:\s*{_ZONE})?", re.I)
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?")


class Parts(NamedTuple):
    """Dates taken apart: three numbers in the order in which they stand, and what is known of it.

    ``order`` is 0 for year, month, day; 1 for day, month, year; 2 for two numbers and a year; 3
    for three numbers of two digits; 4 for a time of day alone.
    """

    first: Ints
    second: Ints
    third: Ints
    order: Ints
    ticks: Ints  # microseconds since midnight; -1 where there is no time of day
    zone: Ints  # minutes ahead of UTC

    @classmethod
    def of(cls, entries: Sequence[str]) -> Parts | None:
        """Take the dates of some rows apart; None if one of them is no date."""
        quick = _plain_iso(entries)
        if quick is not None:
            return quick
        known: dict[str, tuple[int, ...] | None] = {}
        rows = []
        for entry in entries:
            if entry not in known:
                known[entry] = _taken_apart(entry)
            row = known[entry]
            if row is None:
                return None
            rows.append(row)
        return cls(*np.array(rows, dtype=np.int64).reshape(-1, 6).T)

    @classmethod
    def joined(cls, parts: Sequence[Parts]) -> Parts:
        """Return the parts of all rows."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    @property
    def has_days(self) -> bool:
        """Whether these are dates, and not times of day alone."""
        return not (self.order == 4).any()

    @property
    def has_times(self) -> bool:
        """Whether there is a time of day."""
        return bool((self.ticks >= 0).any())


class Moments(NamedTuple):
    """Dates that were understood: microseconds since 1970, and whether they have a zone."""

    ticks: Ints
    has_zone: bool


def is_date(text: str) -> bool:
    """Tell whether a text is a date, a time of day, or both."""
    return _taken_apart(text.strip()) is not None


def understood(parts: Parts, name: str, order: str | None, time: Parts | None = None) -> Moments:
    """Return what dates of a column mean; ``time`` has times of day of the same rows."""
    zones = parts.zone if time is None else np.where(parts.zone == LOCAL, time.zone, parts.zone)
    local = zones == LOCAL
    if local.any() and not local.all():
        raise DataError(
            f"column {name!r} mixes times with a zone and times without one, of which nobody can "
            "tell which comes first: write all of them with the zone, or none."
        )
    ticks = np.maximum(parts.ticks if time is None else time.ticks, 0)
    days = _days(parts, name, order, ticks)
    total = days * DAY + ticks - np.where(local, 0, zones) * 60_000_000
    return Moments(total, not local.any())


def calendar(columns: Sequence[NDArray[np.float64]], name: str) -> Moments:
    """Return dates from columns of year, month and maybe day, hour, minute and second."""
    if any((~np.isfinite(column) | (column != np.floor(column))).any() for column in columns):
        raise DataError(f"the columns {name} must hold a whole number in every row.")
    year, month, *rest = (column.astype(np.int64) for column in columns)
    day, *clock = rest or [np.ones_like(year)]
    days = days_of(_century(year), month, day)
    if days is None:
        raise DataError(f"the columns {name} hold a day that is in no calendar.")
    hour, minute, second = (*clock, *(np.zeros_like(year),) * (3 - len(clock)))
    if (hour > 24).any() or (minute > 59).any() or (second > 60).any():
        raise DataError(f"the columns {name} hold a time of day beyond 24:00.")
    return Moments(days * DAY + ((hour * 60 + minute) * 60 + second) * 1_000_000, False)


def _plain_iso(entries: Sequence[str]) -> Parts | None:
    """Take dates apart that are all written as in 2013-03-01 00:00, a few times faster."""
    first = entries[0] if len(entries) else ""
    if not _ISO.fullmatch(first) or set(map(len, entries)) != {len(first)}:
        return None
    if any(entry[-1] in "zZ" or entry[-6] in "+-" for entry in entries):
        return None
    try:
        ticks = np.array(entries, dtype="M8[us]").astype(np.int64)
    except ValueError:
        return None
    days = ticks // DAY
    dates = days.astype("M8[D]")
    months = dates.astype("M8[M]")
    year = months.astype("M8[Y]").astype(np.int64) + 1970
    month = months.astype(np.int64) % 12 + 1
    day = (dates - months).astype(np.int64) + 1
    same = np.zeros_like(year)
    return Parts(year, month, day, same, ticks - days * DAY, same + LOCAL)


def _taken_apart(entry: str) -> tuple[int, ...] | None:
    """Return the fields of ``Parts`` for one entry; None for what is no date."""
    if len(entry) > 60 or not entry:
        return None
    found = _STAMP.fullmatch(entry)
    is_time = found is None
    if found is None:
        found = _TIME.fullmatch(entry)
    if found is None:
        return None
    ticks, zone = _of_clock(found), _of_zone(found["zone"])
    if ticks is None or zone is None:
        return None
    if is_time:
        return (0, 0, 0, 4, ticks, zone)
    numbers = _of_date(found)
    return None if numbers is None else (*numbers, ticks, zone)


def _of_date(found: re.Match[str]) -> tuple[int, int, int, int] | None:
    part = found.groupdict()
    if part["y"]:
        return int(part["y"]), int(part["m"]), int(part["d"]), 0
    if part["compact"]:
        text = part["compact"]
        return int(text[:4]), int(text[4:6]), int(text[6:]), 0
    if part["a"]:
        order = 1 if part["s2"] == "." else 2 if len(part["c"]) == 4 else 3
        return int(part["a"]), int(part["b"]), int(part["c"]), order
    word = (part["month"] or part["month2"]).lower()
    if word not in _MONTHS:
        return None
    day, year = part["day"] or part["day2"], part["year"] or part["year2"]
    return int(day), _MONTHS[word], int(year), 1


def _of_clock(found: re.Match[str]) -> int | None:
    """Return microseconds since midnight, -1 if there is no time of day, None if it is wrong."""
    digits = found.groupdict().get("digits")
    if found["hour"] is None and digits is None:
        return -1
    hour, minute = int(found["hour"] or 0), int(found["minute"] or found["after"] or 0)
    second = int(found["second"] or 0)
    if digits is not None:
        hour, minute, second = int(digits[:2]), int(digits[2:4]), int(digits[4:] or 0)
    half = (found["half"] or "").lower()
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half[0] == "p" else 0)
    if minute > 59 or second > 60 or hour * 3600 + minute * 60 + second > 86_400:
        return None
    part = int((found["part"] or "0").ljust(9, "0")[:6])
    return (hour * 3600 + minute * 60 + second) * 1_000_000 + part


def _of_zone(text: str | None) -> int | None:
    """Return minutes ahead of UTC, LOCAL where no zone is given, None if it is wrong."""
    if text is None:
        return LOCAL
    text = text.lower()
    if text in _ZONES:
        return _ZONES[text]
    text = text.removeprefix("utc").removeprefix("gmt")
    minutes = int(text[1:3]) * 60 + int(text[3:].lstrip(":") or 0)
    if minutes > 16 * 60:
        return None
    return -minutes if text[0] == "-" else minutes


def _days(parts: Parts, name: str, order: str | None, ticks: Ints) -> Ints:
    """Return days since 1970."""
    doubtful = parts.order >= 2
    if (parts.order == 4).any():
        raise DataError(f"column {name!r} holds times of day, and no column has their dates.")
    if not doubtful.any():
        days = days_in_order(parts, {})
        if days is None:
            raise _impossible(parts, name)
        return days
    candidates = ORDERS if (parts.order == 3).all() else ORDERS[:2]
    if order is not None:
        candidates = (order,)
    read = {one: days_in_order(parts, {2: one, 3: one}) for one in candidates}
    possible = {one: days for one, days in read.items() if days is not None}
    if not possible:
        raise _impossible(parts, name)
    distinct = _distinct(possible)
    if len(distinct) > 1:
        distinct = _distinct(_steady({one: possible[one] for one in distinct}, ticks))
    if len(distinct) > 1:
        row = int(doubtful.argmax())
        shown = "/".join(f"{part[row]:02}" for part in parts[:3])
        choice = " or ".join(f"date_order='{one}'" for one in distinct)
        raise DataError(
            f"column {name!r} does not tell the day from the month, as in {shown}: say {choice}."
        )
    return possible[distinct[0]]


def _distinct(possible: dict[str, Ints]) -> list[str]:
    """Return orders that mean different days."""
    seen: dict[bytes, str] = {}
    for one, days in possible.items():
        seen.setdefault(days.tobytes(), one)
    return list(seen.values())


def _steady(possible: dict[str, Ints], ticks: Ints) -> dict[str, Ints]:
    """Leave out orders in which times within days jump by weeks where another goes on steadily.

    Dates alone are left alone: the first of every month and the first days of January look alike.
    """
    jumps = {}
    for one, days in possible.items():
        times = np.unique(days * DAY + ticks)
        jumps[one] = int(np.diff(times).max(initial=0))
    if len(np.unique(ticks)) > 1 and min(jumps.values()) <= 2 * DAY:
        calm = {one: days for one, days in possible.items() if jumps[one] <= 20 * DAY}
        return calm if len(calm) == 1 else possible
    return possible


def days_in_order(parts: Parts, orders: dict[int, str]) -> Ints | None:
    """Return days since 1970 if dates in doubt have an order; None if one is in no calendar."""
    year, month, day = (np.zeros_like(parts.first) for _ in range(3))
    meaning = {0: "ymd", 1: "dmy", **orders}
    for kind, order in meaning.items():
        rows = parts.order == kind
        if kind == 2 and order == "ymd" and rows.any():
            return None
        for letter, part in zip(order, parts[:3], strict=True):
            {"y": year, "m": month, "d": day}[letter][rows] = part[rows]
    return days_of(_century(year), month, day)


def _century(year: Ints) -> Ints:
    """Return years of two digits as those from 1969 to 2068, as POSIX has it."""
    return np.where(year < 69, year + 2000, np.where(year < 100, year + 1900, year))


def days_of(year: Ints, month: Ints, day: Ints) -> Ints | None:
    """Return days since 1970; None if one of them is in no calendar."""
    if ((month < 1) | (month > 12) | (day < 1) | (year < 1) | (year > 9999)).any():
        return None
    months = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    days = months.astype("M8[D]") + (day - 1)
    if (days.astype("M8[M]") != months).any():
        return None
    return days.astype(np.int64)


def _impossible(parts: Parts, name: str) -> DataError:
    """Return an error about dates that are in no calendar, whatever their order."""
    for row in range(len(parts.first)):
        one = Parts(*(part[row : row + 1] for part in parts))
        read = [days_in_order(one, {2: order, 3: order}) for order in ORDERS]
        if all(days is None for days in read):
            numbers = ", ".join(str(int(part[0])) for part in one[:3])
            return DataError(f"column {name!r} holds a date that is in no calendar: {numbers}.")
    return DataError(
        f"column {name!r} has the day first in some rows and the month first in others: write all "
        "dates alike, such as 2013-03-31."
    )
