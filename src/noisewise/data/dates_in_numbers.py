"""Dates that are written as numbers: unix seconds, 20130301, 201303, and times of day as 1230."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisewise.data.dates import LOCAL, ORDERS, Ints, Moments, Parts, days_in_order, days_of

LONGEST = 14  # digits of a date
_UNITS = {1: (5e8, 4e9), 1_000: (5e11, 4e12), 10**6: (5e14, 4e15), 10**9: (5e17, 4e18)}


def epochs(numbers: NDArray[np.float64]) -> Moments | None:
    """Return unix seconds, or thousandths and less of them, as dates; None if they are none."""
    known = numbers[np.isfinite(numbers)]
    if not len(known) or len(known) < len(numbers):
        return None
    low, high = known.min(), known.max()
    for per_second, (first, last) in _UNITS.items():
        if first <= low and high <= last:
            return Moments(np.round(numbers * (1e6 / per_second)).astype(np.int64), True)
    return None


def compact(numbers: NDArray[np.float64]) -> Parts | None:
    """Take numbers apart that are dates: 20130301, 201303011230, 201303, 2013060 or 1032013."""
    if not len(numbers) or not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        return None
    digits = {len(str(int(n))) for n in (numbers.min(), numbers.max())}
    if max(digits) > LONGEST:
        return None
    whole = numbers.astype(np.int64)
    ways = (_of_months, _of_days_of_years, _years_last, _years_first)
    return next((parts for way in ways if (parts := way(whole, digits)) is not None), None)


def _years_first(whole: Ints, digits: set[int]) -> Parts | None:
    """Take numbers of year, month and day apart, and maybe of hour, minute and second."""
    if len(digits) > 1 or not digits <= {8, 10, 12, 14}:
        return None
    pairs = (max(digits) - 8) // 2
    clock = np.zeros((3, len(whole)), dtype=np.int64)
    for k in reversed(range(pairs)):
        whole, clock[k] = np.divmod(whole, 100)
    year, month, day = whole // 10_000, whole // 100 % 100, whole % 100
    fine = (clock[0] <= 24) & (clock[1:] < 60).all(axis=0)
    if not fine.all() or not _are_years(year) or days_of(year, month, day) is None:
        return None
    ticks = ((clock[0] * 60 + clock[1]) * 60 + clock[2]) * 1_000_000
    same = np.zeros_like(year)
    return Parts(year, month, day, same, ticks if pairs else same - 1, same + LOCAL)


def _of_months(whole: Ints, digits: set[int]) -> Parts | None:
    """Take numbers of a year and a month apart; within one year they may as well be counts."""
    year, month = np.divmod(whole, 100)
    if digits != {6} or not _are_years(year) or days_of(year, month, year * 0 + 1) is None:
        return None
    same = np.zeros_like(year)
    return Parts(year, month, same + 1, same, same - 1, same + LOCAL) if np.ptp(year) else None


def _of_days_of_years(whole: Ints, digits: set[int]) -> Parts | None:
    """Take numbers of a year and its day apart; within one year they may as well be counts."""
    year, day = np.divmod(whole, 1_000)
    if digits != {7} or not _are_years(year) or (day < 1).any() or not np.ptp(year):
        return None
    dates = (year - 1970).astype("M8[Y]").astype("M8[D]") + (day - 1)
    if (dates.astype("M8[Y]").astype(np.int64) + 1970 != year).any():
        return None
    months = dates.astype("M8[M]")
    same = np.zeros_like(year)
    month, of_month = months.astype(np.int64) % 12 + 1, (dates - months).astype(np.int64) + 1
    return Parts(year, month, of_month, same, same - 1, same + LOCAL)


def _years_last(whole: Ints, digits: set[int]) -> Parts | None:
    """Take numbers of two parts and a year apart, whose first zero may be lost: 1032013."""
    rest, year = np.divmod(whole, 10_000)
    first, second = np.divmod(rest, 100)
    if not digits <= {7, 8} or not _are_years(year) or not np.ptp(rest):
        return None
    same = np.zeros_like(year)
    parts = Parts(first, second, year, same + 2, same - 1, same + LOCAL)
    days = [days_in_order(parts, {2: order}) for order in ORDERS[:2]]
    return parts if any(one is not None for one in days) else None


def _are_years(year: Ints) -> bool:
    return bool((year >= 1900).all() and (year <= 2100).all())


def of_day(numbers: NDArray[np.float64]) -> Parts | None:
    """Return times of day from hours, 0 to 24, or from hours and minutes such as 1230."""
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        return None
    whole = numbers.astype(np.int64)
    hour, minute = (whole, whole * 0) if whole.max(initial=0) <= 24 else np.divmod(whole, 100)
    if (whole < 0).any() or (hour > 24).any() or (minute > 59).any():
        return None
    nothing, local = np.zeros_like(whole), np.full_like(whole, LOCAL)
    ticks = (hour * 60 + minute) * 60_000_000
    return Parts(nothing, nothing, nothing, nothing + 4, ticks, local)
