"""Tables of any kind, taken apart: which columns are ids, which one is the value, which the time.

A table is a frame of pandas, polars or pyarrow, a 2-d array, a list of tuples or a scipy sparse
matrix. In a frame or a file the names of its columns decide, in a table without names their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import narwhals as nw
import numpy as np
import scipy.sparse

from noisewise.data.ids import from_frame
from noisewise.errors import DataError, DataWarning, listed, shortened, warn

LIBRARIES = ("pandas", "polars", "pyarrow")  # whose frames are taken, and given back
MANY_MODES = 6  # columns of ids that are hardly meant, where nobody said so
MOST_MODES = 32  # as many axes as numpy can index at once

_USER = {"user", "userid", "uid", "customer", "customerid", "reviewer", "reviewerid"}
_ITEM = {"item", "itemid", "iid", "movie", "movieid", "product", "productid"}
USUAL_IDS = (_USER, _ITEM)
_VALUE = {"rating", "value", "score", "stars"}
_TIME = {"timestamp", "time", "date", "datetime"}
_NEVER_A_MODE = {"timestamp"}  # wherever it stands; a column "time" before the value may be one
_IN_A_FILE = "Say so with ids= and value=, such as ids=['user', 'item'], value='rating'."
_APART = (
    "Give ids and values apart, the ids as X and the values as y, such as "
    "X=frame[['user', 'item']] and y=frame['rating']."
)
# Unix seconds from 1985 to 2096, and milliseconds of the same years.
_SECONDS, _MILLISECONDS = (5e8, 4e9), (5e11, 4e12)


At: TypeAlias = int | None  # the position of a column


class Column(NamedTuple):
    """One column of a table."""

    name: str
    entries: Any


class Choice(NamedTuple):
    """The positions of columns to read."""

    ids: tuple[int, ...]
    value: int
    time: int | None
    weight: int | None = None


class Parts(NamedTuple):
    """Columns by what they are for; a value or a time only where one is in the table."""

    ids: list[Column]
    value: Column | None
    time: Any

    @classmethod
    def of(
        cls, names: list[str] | None, entries: list[Any], ids: tuple[int, ...], value: At, time: At
    ) -> Parts:
        """Take columns by their positions."""
        modes = default_names(len(ids)) if names is None else [names[k] for k in ids]
        columns = [Column(name, entries[k]) for name, k in zip(modes, ids, strict=True)]
        values = None
        if value is not None:
            values = Column("value" if names is None else names[value], entries[value])
        return cls(columns, values, None if time is None else entries[time])


def take_apart(X: Any, *, with_value: bool = False) -> tuple[list[str] | None, list[Any]]:
    """Return names, if all are text, and entries of the columns of a table."""
    X = from_frame(X)
    if isinstance(X, nw.DataFrame):
        return _text_names(X), list(X.iter_columns())
    if scipy.sparse.issparse(X):
        stored = X.tocoo()  # its ids are the positions of stored entries
        return None, [*stored.coords, stored.data] if with_value else list(stored.coords)
    if isinstance(X, list | tuple):
        return None, _transpose(X)
    if not hasattr(X, "__array__"):
        raise DataError(f"X must be a frame, a 2-d array or a list of tuples; got {type(X)}.")
    array = np.asarray(X)
    if array.ndim != 2:
        _refuse_shape(array.ndim)
    return None, list(array.T)


def has_names(X: Any) -> bool:
    """Tell whether X is a frame whose columns have names, all of them text."""
    X = from_frame(X)
    return isinstance(X, nw.DataFrame) and _text_names(X) is not None


def library_of(X: Any) -> str | None:
    """Return the library whose frame X is: one of ``LIBRARIES``, or None."""
    frame = from_frame(X)
    if not isinstance(frame, nw.DataFrame):
        return None
    name = frame.implementation.value
    return name if name in LIBRARIES else None


def _text_names(frame: Any) -> list[str] | None:
    names = list(frame.columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def _transpose(rows: Sequence[Any]) -> list[Any]:
    """Turn rows into columns."""
    if not rows:
        raise DataError("X is empty: got 0 rows.")
    if any(not issubclass(kind, list | tuple | np.ndarray) for kind in set(map(type, rows))):
        _refuse_shape(1)
    width = len(rows[0])
    if set(map(len, rows)) != {width}:
        row = next(k for k, entries in enumerate(rows) if len(entries) != width)
        raise DataError(f"Row {row} has {len(rows[row])} entries, the rows before it {width}.")
    return [list(column) for column in zip(*rows, strict=True)]


def _refuse_shape(n_dimensions: int) -> NoReturn:
    raise DataError(
        f"Expected 2D array, got {n_dimensions}D array instead: X needs one id column per mode. "
        "Reshape your data; a single cell is written [('ann', 'Alien')]."
    )


def parts_of(X: Any, *, with_value: bool = False, time: str | int | None = None) -> Parts:
    """Find the parts of a table to learn from; ``time`` names or counts the column of times."""
    names, entries = take_apart(X, with_value=with_value)
    time_at = None
    if time is not None:
        time_at = _place(time, names, len(entries))
        if time_at is None:
            found = ", ".join(names) if names else f"{len(entries)} columns without names"
            raise DataError(f"X has no column {time!r} with times; it has {found}.")
    value_at: At = None
    if names is None:
        ids_at, value_at = _in_order(len(entries), time_at, with_value)
    elif with_value:
        ids_at, value_at, *_ = choose_columns(names, time=time_at, advice=_APART)
    else:
        ids_at = choose_ids(names, time_at)
    parts = Parts.of(names, entries, ids_at, value_at, time_at)
    if parts.value is not None and len(ids_at) > 2:
        _refuse_times(parts.value)
        _warn_if_wide(len(ids_at))
    return parts


def known_parts(
    X: Any, wanted: Sequence[str], *, with_value: bool = False, time: str | int | None = None
) -> Parts:
    """Find the columns of modes that are known by name, in their order; others are left out.

    ``time`` is the name or number of the column that holds times, if there is one; in a table
    without names it is the last of one column more than there are ids.
    """
    names, entries = take_apart(X, with_value=with_value)
    time_at: At = None
    value_at: At = None
    if names is None:
        if time is not None and len(entries) == len(wanted) + with_value + 1:
            time_at = _place(time, None, len(entries))
            time_at = len(entries) - 1 if time_at is None else time_at
        ids_at, value_at = _in_order(len(entries), time_at, with_value)
        if len(ids_at) != len(wanted):
            raise DataError(
                f"X has {len(ids_at)} features, but noisewise is expecting {len(wanted)} features "
                f"as input: one id column each for {', '.join(wanted)}."
            )
        return Parts.of(None, entries, ids_at, value_at, time_at)
    found = find_ids(names, list(wanted))
    if found is None:
        raise DataError(
            f"X needs the id columns {', '.join(wanted)}, in any order; it has {', '.join(names)}. "
            "Rename its columns, or give an array, whose columns go by position."
        )
    free = [k for k in range(len(names)) if k not in found]
    time_at = None if time is None else _place(time, names, len(names))
    if isinstance(time, int) and time_at not in free:  # counted where there were other columns
        likely = [k for k in free if plain_name(names[k]) in _TIME]
        time_at = likely[0] if len(likely) == 1 else None
    if with_value:
        value_at = choose_columns(names, ids=found, time=time_at, advice=_APART).value
    return Parts.of(names, entries, found, value_at, time_at)


def _place(time: str | int, names: list[str] | None, many: int) -> int | None:
    """Return which column holds times, None if there is no such column."""
    if isinstance(time, str):
        return names.index(time) if names is not None and time in names else None
    return time if 0 <= time < many else None


def _in_order(many: int, time: int | None, with_value: bool) -> tuple[tuple[int, ...], int | None]:
    """Return which columns without names are ids, and which is the value: the last, if any is."""
    rest = [k for k in range(many) if k != time]
    value = rest.pop() if with_value and rest else None
    return tuple(rest), value


def _warn_if_wide(n_ids: int) -> None:
    """Warn of a table that has so many columns of ids that it will be one of users by items."""
    if n_ids >= MANY_MODES:
        warn(
            f"X has {n_ids + 1} columns: without y, the last is taken for the value and all others "
            "for ids. Of a table with a row for each user and a column for each item, give its "
            "cells: frame.stack().reset_index(), or scipy.sparse.coo_array(array).",
            DataWarning,
        )


def default_names(many: int) -> list[str]:
    """Return what modes are called in a table without names."""
    return ["user", "item"] if many == 2 else [f"mode{k}" for k in range(many)]


def _refuse_times(value: Column) -> None:
    """Raise for a last column that is no value but the time, as unix seconds have it."""
    array = np.asarray(value.entries)
    if array.dtype.kind not in "iuf" or not array.size or (array != np.floor(array)).any():
        return
    low, high = array.min(), array.max()
    if any(first <= low and high <= last for first, last in (_SECONDS, _MILLISECONDS)):
        raise DataError(
            f"The last column, {value.name!r}, holds the values if y is None, but these look like "
            f"times: {low:g} to {high:g}. {_APART}"
        )


def choose_columns(
    names: list[str],
    *,
    ids: Sequence[str | int] | None = None,
    value: str | int | None = None,
    time: str | int | None = None,
    weight: str | int | None = None,
    advice: str = _IN_A_FILE,
) -> Choice:
    """Choose the columns of a table by the names or positions that were asked for, else by names.

    These are found as `noisewise.read` says; a doubt is an error, with ``advice`` how to choose.
    """
    apart = [None if one is None else _position(one, names) for one in (time, weight)]
    ids_at = None if ids is None else tuple(_position(column, names) for column in ids)
    taken = {*apart, *(ids_at or ())}
    free = [k for k in range(len(names)) if k not in taken]
    value_at = _find_value(names, free, ids_at) if value is None else _position(value, names)
    if ids_at is None and value_at is not None:
        free = [k for k in free if k != value_at]
        ids_at = _find_ids(names, free, value_at, value is not None)
    if ids_at is None or value_at is None:
        raise DataError(
            f"Which of the columns {listed(names)} are ids and which is the value? {advice}"
        )
    chosen = [*ids_at, value_at]
    if len(ids_at) < 2 or len(set(chosen)) < len(chosen):
        found = listed([names[k] for k in ids_at])
        raise DataError(
            f"Two or more id columns and another one for the value are needed; got ids {found} and "
            f"value {shortened(names[value_at])}, of the columns {listed(names)}."
        )
    if len(ids_at) > MOST_MODES:
        raise DataError(
            f"At most {MOST_MODES} columns can be ids; got {len(ids_at):,}, which are "
            f"{listed([names[k] for k in ids_at])}. Say which with ids=; a table with a column for "
            "each series is one to impute."
        )
    if apart[1] is not None and apart[1] in (*chosen, apart[0]):
        raise DataError(f"The column {names[apart[1]]!r} has weights, and can be nothing else.")
    return Choice(ids_at, value_at, *apart)


def choose_ids(names: list[str], time: int | None = None) -> tuple[int, ...]:
    """Choose the id columns of a table whose values are given apart: all but ``time``.

    Beside a user and an item, a column with the name of a value or a time is no id either.
    """
    free = [k for k in range(len(names)) if k != time]
    pair = _user_and_item(names, free)
    if pair is None:
        return tuple(free)
    others = [k for k in free if k not in pair and plain_name(names[k]) not in _VALUE | _TIME]
    return (*pair, *others)


def find_ids(names: list[str], wanted: list[str]) -> tuple[int, ...] | None:
    """Find id columns by their names, or a user and an item by other usual names for them."""
    if set(wanted) <= set(names):
        return tuple(names.index(name) for name in wanted)
    asked, known = (_user_and_item(some, range(len(some))) for some in (names, wanted))
    if asked is None or known is None or len(wanted) != 2:
        return None
    return asked if known == (0, 1) else asked[::-1]


def _position(column: str | int, names: list[str]) -> int:
    if isinstance(column, str) and column not in names and column.isascii() and column.isdigit():
        column = int(column)  # as the command line has it
    if isinstance(column, int):
        if 0 <= column < len(names):
            return column
    elif names.count(column) == 1:
        return names.index(column)
    elif column in names:
        raise DataError(f"There are {names.count(column)} columns {column!r}; give its position.")
    raise DataError(f"There is no column {column!r}; the columns are {listed(names)}.")


def _find_value(names: list[str], free: list[int], ids: tuple[int, ...] | None) -> int | None:
    """Return the column of values by its name or its place; None where that leaves a doubt."""
    likely = [k for k in free if plain_name(names[k]) in _VALUE]
    if len(likely) == 1:
        return likely[0]
    timeless = [k for k in free if plain_name(names[k]) not in _TIME]
    if ids is not None and len(timeless) == 1:
        return timeless[0]
    if likely or not timeless or timeless[-1] != free[-1] or (ids is not None and len(free) > 1):
        return None
    return free[-1]


def _find_ids(
    names: list[str], free: list[int], value: int, value_is_known: bool
) -> tuple[int, ...] | None:
    """Return the columns of ids by their names or their places; None where that leaves a doubt."""
    pair = _user_and_item(names, free)
    if pair is not None:
        rest = [k for k in free if k not in pair and plain_name(names[k]) not in _NEVER_A_MODE]
        doubtful = any(k < value or plain_name(names[k]) not in _TIME for k in rest)
        return None if doubtful else pair
    doubtful = not value_is_known and any(k > value for k in free)
    return None if doubtful else tuple(free)


def _user_and_item(names: list[str], free: Iterable[int]) -> tuple[int, int] | None:
    """Return where the user and the item are, if there is one of each by name."""
    found = [[k for k in free if plain_name(names[k]) in usual] for usual in (_USER, _ITEM)]
    return (found[0][0], found[1][0]) if len(found[0]) == len(found[1]) == 1 else None


def plain_name(name: str) -> str:
    """Return a name without case, spaces and signs."""
    return "".join(letter for letter in name.lower() if letter.isalnum())
