"""The parts of a table: which columns are ids, which one holds values, which one times.

In a frame the names of its columns decide, in a table without names their order does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from noisewise.data.columns import choose_columns, choose_ids, find_ids, find_time
from noisewise.data.tables import Column, take_apart
from noisewise.errors import DataError

APART = (
    "Give ids and values apart, the ids as X and the values as y, such as "
    "X=frame[['user', 'item']] and y=frame['rating']."
)
# Unix seconds from 1985 to 2096, and milliseconds of the same years.
SECONDS, MILLISECONDS = (5e8, 4e9), (5e11, 4e12)


class Parts(NamedTuple):
    """Columns by what they are for; a value or a time only where one is in the table."""

    ids: list[Column]
    value: Column | None
    time: Any


def parts_of(X: Any, *, with_value: bool = False, time: str | int | None = None) -> Parts:
    """Find the parts of a table to learn from.

    Parameters
    ----------
    X : frame, 2-d array, list of rows or sparse matrix
        One id column per mode.
    with_value : bool
        Whether a column holds the values: the one with the name of a value, else the last.
    time : str or int, optional
        Name or number of the column that holds times.

    Returns
    -------
    Parts
        Ids in the order of the columns, a user always before an item. Without names they are called
        "user" and "item", or "mode0", "mode1", ... where there are not two of them.
    """
    names, entries = take_apart(X, with_value=with_value)
    place = None
    if time is not None:
        place = _place(time, names, len(entries))
        if place is None:
            found = ", ".join(names) if names else f"{len(entries)} columns without names"
            raise DataError(f"X has no column {time!r} with times; it has {found}.")
    value_at: int | None = None
    if names is None:
        rest = [k for k in range(len(entries)) if k != place]
        value_at = rest.pop() if with_value and rest else None
        ids_at = tuple(rest)
    elif with_value:
        ids_at, value_at, _ = choose_columns(names, time=place, advice=APART)
    else:
        ids_at = choose_ids(names, place)
    parts = _parts(names, entries, ids_at, value_at, place)
    if parts.value is not None and len(ids_at) > 2:
        _refuse_times(parts.value)
    return parts


def known_parts(
    X: Any, wanted: Sequence[str], *, with_value: bool = False, time: str | int | None = None
) -> Parts:
    """Find the columns of modes that are known by name, and leave out all other columns.

    Parameters
    ----------
    X : frame, 2-d array, list of rows or sparse matrix
        The ids of a frame may stand in any order, those of other tables in the order of the modes.
    wanted : sequence of str
        The names of the modes. A user and an item are also found by other usual names.
    with_value : bool
        Whether a column holds the values.
    time : str or int, optional
        Name or number of the column that holds times, if there is one; without names it is the last
        of one column more than there are ids.

    Returns
    -------
    Parts
        Ids in the order of the modes.
    """
    names, entries = take_apart(X, with_value=with_value)
    value_at: int | None = None
    if names is None:
        place = None
        if time is not None and len(entries) == len(wanted) + with_value + 1:
            place = _place(time, None, len(entries))
            place = len(entries) - 1 if place is None else place
        rest = [k for k in range(len(entries)) if k != place]
        value_at = rest.pop() if with_value and rest else None
        if len(rest) != len(wanted):
            raise DataError(
                f"X has {len(rest)} features, but noisewise is expecting {len(wanted)} features as "
                f"input: one id column each for {', '.join(wanted)}."
            )
        return _parts(None, entries, tuple(rest), value_at, place)
    ids_at = find_ids(names, list(wanted))
    if ids_at is None:
        raise DataError(
            f"X needs the id columns {', '.join(wanted)}, in any order; it has {', '.join(names)}. "
            "Rename its columns, or give an array, whose columns go by position."
        )
    free = [k for k in range(len(names)) if k not in ids_at]
    place = None if time is None else _place(time, names, len(names))
    if isinstance(time, int) and place not in free:  # counted where there were other columns
        place = find_time(names, free)
    if with_value:
        value_at = choose_columns(names, ids=ids_at, time=place, advice=APART).value
    return _parts(names, entries, ids_at, value_at, place)


def default_names(many: int) -> list[str]:
    """Return what modes are called in a table without names."""
    return ["user", "item"] if many == 2 else [f"mode{k}" for k in range(many)]


def _parts(
    names: list[str] | None,
    entries: list[Any],
    ids_at: tuple[int, ...],
    value_at: int | None,
    place: int | None,
) -> Parts:
    modes = default_names(len(ids_at)) if names is None else [names[k] for k in ids_at]
    ids = [Column(name, entries[k]) for name, k in zip(modes, ids_at, strict=True)]
    value = None
    if value_at is not None:
        value = Column("value" if names is None else names[value_at], entries[value_at])
    return Parts(ids, value, None if place is None else entries[place])


def _place(time: str | int, names: list[str] | None, many: int) -> int | None:
    """Return which column holds times, None if there is no such column."""
    if isinstance(time, str):
        return names.index(time) if names is not None and time in names else None
    return time if 0 <= time < many else None


def _refuse_times(value: Column) -> None:
    """Raise for a last column that is no value but the time, as unix seconds have it."""
    array = np.asarray(value.entries)
    if array.dtype.kind not in "iuf" or not array.size or (array != np.floor(array)).any():
        return
    low, high = array.min(), array.max()
    if any(first <= low and high <= last for first, last in (SECONDS, MILLISECONDS)):
        raise DataError(
            f"The last column, {value.name!r}, holds the values if y is None, but these look like "
            f"times: {low:g} to {high:g}. {APART}"
        )
