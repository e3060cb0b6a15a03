"""Which columns of a file are ids, which one is the value, which one the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from noisewise.errors import DataError

_USER = {"user", "userid", "uid", "customer", "customerid", "reviewer", "reviewerid"}
_ITEM = {"item", "itemid", "iid", "movie", "movieid", "product", "productid"}
_VALUE = {"rating", "value", "score", "stars"}
_TIME = {"timestamp", "time", "date", "datetime"}


class Choice(NamedTuple):
    """The positions of the columns to read."""

    ids: tuple[int, ...]
    value: int
    time: int | None


def choose_columns(
    names: list[str],
    *,
    ids: Sequence[str | int] | None = None,
    value: str | int | None = None,
    time: str | int | None = None,
) -> Choice:
    """Choose the columns of a table by what was asked for, else by their names.

    What was not asked for is found by usual names, in any spelling: user and item, rating, value,
    score or stars, and after the value a timestamp, which is left out unless asked for. Where there
    is no user and item, all columns but the last are ids and the last is the value. Where that
    leaves a doubt, this raises.

    Parameters
    ----------
    names : list of str
        The columns there are.
    ids : sequence of str or int, optional
        Names or positions of the id columns, one per mode.
    value : str or int, optional
        Name or position of the value column.
    time : str or int, optional
        Name or position of the time column; none is read by default.

    Returns
    -------
    Choice
        The positions.

    Examples
    --------
    >>> choose_columns(["movieId", "userId", "rating", "timestamp"])
    Choice(ids=(1, 0), value=2, time=None)
    >>> choose_columns(["site", "species", "day", "level"])
    Choice(ids=(0, 1, 2), value=3, time=None)
    """
    time_at = None if time is None else _position(time, names)
    ids_at = None if ids is None else tuple(_position(column, names) for column in ids)
    free = [k for k in range(len(names)) if k != time_at and k not in (ids_at or ())]
    value_at = _position(value, names) if value is not None else _find_value(names, free, ids_at)
    if ids_at is None:
        free = [k for k in free if k != value_at]
        ids_at = _find_ids(names, free, value_at, value_is_known=value is not None)
    chosen = [*ids_at, value_at]
    if len(ids_at) < 2 or len(set(chosen)) < len(chosen):
        found = ", ".join(names[k] for k in ids_at)
        raise DataError(
            f"Two or more id columns and another one for the value are needed; got ids {found} and "
            f"value {names[value_at]}, of the columns {', '.join(names)}."
        )
    return Choice(ids_at, value_at, time_at)


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
    raise DataError(f"There is no column {column!r}; the columns are {', '.join(names)}.")


def _find_value(names: list[str], free: list[int], ids: tuple[int, ...] | None) -> int:
    likely = [k for k in free if _plain(names[k]) in _VALUE]
    if len(likely) == 1:
        return likely[0]
    if likely or not free or (ids is not None and len(free) > 1):
        _refuse_to_guess(names)
    return free[-1]


def _find_ids(
    names: list[str], free: list[int], value: int, *, value_is_known: bool
) -> tuple[int, ...]:
    users = [k for k in free if _plain(names[k]) in _USER]
    items = [k for k in free if _plain(names[k]) in _ITEM]
    if len(users) == len(items) == 1:
        pair = (users[0], items[0])
        rest = [k for k in free if k not in pair]
        if any(k < value or _plain(names[k]) not in _TIME for k in rest):
            _refuse_to_guess(names)
        return pair
    if not value_is_known and any(k > value for k in free):
        _refuse_to_guess(names)
    return tuple(free)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _refuse_to_guess(names: list[str]) -> NoReturn:
    raise DataError(
        f"Which of the columns {', '.join(names)} are ids and which is the value? Say so with ids= "
        "and value=, such as ids=['user', 'item'], value='rating'."
    )
