"""Dates that are written as numbers: unix seconds, 20130301, 201303, and times of day as 1230."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data.dates import LOCAL, ORDERS, Ints, Moments, Parts, days_in_order, days_of

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
    """Take numbers such as 20130301, 201303011230, 201303 or 1032013 apart; None if no dates."""
    if not len(numbers) or not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        return None
    digits = {len(str(int(n))) for n in (numbers.min(), numbers.max())}
    whole = numbers.astype(np.int64)
    if digits <= {6}:
        return _of_months(whole)
    years_last = _years_last(whole) if digits <= {7, 8} else None
    if years_last is not None or len(digits) > 1 or not digits <= {8, 10, 12, 14}:
        return years_last
    pairs = (digits.pop() - 8) // 2
    clock = np.zeros((3, len(whole)), dtype=np.int64)
    for k in reversed(range(pairs)):
        whole, clock[k] = np.divmod(whole, 100)
    year, month, day = whole // 10_000, whole // 100 % 100, whole % 100
    fine = (clock[0] <= 24) & (clock[1:] < 60).all(axis=0) & _is_usual(year)
    if not fine.all() or days_of(year, month, day) is None:
        return None
    ticks = ((clock[0] * 60 + clock[1]) * 60 + clock[2]) * 1_000_000
    same = np.zeros_like(year)
    return Parts(year, month, day, same, ticks if pairs else same - 1, same + LOCAL)


def _of_months(whole: Ints) -> Parts | None:
    """Take numbers of a year and a month apart; within one year they may as well be counts."""
    year, month = np.divmod(whole, 100)
    fine = _is_usual(year) & (month >= 1) & (month <= 12)
    if not fine.all() or len(np.unique(year)) < 2:
        return None
    same = np.zeros_like(year)
    return Parts(year, month, same + 1, same, same - 1, same + LOCAL)


def _years_last(whole: Ints) -> Parts | None:
    """Take numbers of two parts and a year apart, whose first zero is lost: 1032013."""
    rest, year = np.divmod(whole, 10_000)
    first, second = np.divmod(rest, 100)
    same = np.zeros_like(year)
    parts = Parts(first, second, year, same + 2, same - 1, same + LOCAL)
    days = [days_in_order(parts, {2: order}) for order in ORDERS[:2]]
    is_one = any(one is not None for one in days) and len(np.unique(rest)) > 1
    return parts if is_one and _is_usual(year).all() else None


def _is_usual(year: Ints) -> Any:
    return (year >= 1900) & (year <= 2100)


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
