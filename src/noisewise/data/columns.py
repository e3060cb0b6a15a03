"""Which columns of a table are ids, which one is the value, which one the time: by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

from noisewise.errors import DataError, listed, shortened

MOST_MODES = 32  # as many axes as numpy can index at once

_USER = {"user", "userid", "uid", "customer", "customerid", "reviewer", "reviewerid"}
_ITEM = {"item", "itemid", "iid", "movie", "movieid", "product", "productid"}
_VALUE = {"rating", "value", "score", "stars"}
_TIME = {"timestamp", "time", "date", "datetime"}
_NEVER_A_MODE = {"timestamp"}  # wherever it stands; a column "time" before the value may be one
IN_A_FILE = "Say so with ids= and value=, such as ids=['user', 'item'], value='rating'."


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
    advice: str = IN_A_FILE,
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
    advice : str
        What the error says about how to choose, where names leave a doubt.

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
    taken = {time_at, *(ids_at or ())}
    free = [k for k in range(len(names)) if k not in taken]
    value_at = (
        _position(value, names) if value is not None else _find_value(names, free, ids_at, advice)
    )
    if ids_at is None:
        free = [k for k in free if k != value_at]
        ids_at = _find_ids(names, free, value_at, value is not None, advice)
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
    raise DataError(f"There is no column {column!r}; the columns are {listed(names)}.")


def choose_ids(names: list[str], time: int | None = None) -> tuple[int, ...]:
    """Choose the id columns of a table whose values are given apart.

    Beside a user and an item, a column with the name of a value or a time is no id; all others are.
    Where there is no user and item, every column is an id.

    Parameters
    ----------
    names : list of str
        The columns there are.
    time : int, optional
        Position of a column that is known to hold times.

    Examples
    --------
    >>> choose_ids(["movieId", "userId", "timestamp"])
    (1, 0)
    >>> choose_ids(["site", "species", "time"])
    (0, 1, 2)
    """
    free = [k for k in range(len(names)) if k != time]
    pair = _user_and_item(names, free)
    if pair is None:
        return tuple(free)
    others = [k for k in free if k not in pair and _plain(names[k]) not in _VALUE | _TIME]
    return (*pair, *others)


def find_ids(names: list[str], wanted: list[str]) -> tuple[int, ...] | None:
    """Find id columns by their names, or a user and an item by other usual names for them.

    Examples
    --------
    >>> find_ids(["stars", "item", "user"], ["user", "item"])
    (2, 1)
    >>> find_ids(["movieId", "userId"], ["user", "item"])
    (1, 0)
    >>> find_ids(["film", "viewer"], ["user", "item"]) is None
    True
    """
    if set(wanted) <= set(names):
        return tuple(names.index(name) for name in wanted)
    asked, known = (_user_and_item(some, range(len(some))) for some in (names, wanted))
    if asked is None or known is None or len(wanted) != 2:
        return None
    return asked if known == (0, 1) else asked[::-1]


def find_time(names: list[str], free: list[int]) -> int | None:
    """Find the one column that has the name of a time, if there is one."""
    likely = [k for k in free if _plain(names[k]) in _TIME]
    return likely[0] if len(likely) == 1 else None


def _find_value(names: list[str], free: list[int], ids: tuple[int, ...] | None, advice: str) -> int:
    likely = [k for k in free if _plain(names[k]) in _VALUE]
    if len(likely) == 1:
        return likely[0]
    timeless = [k for k in free if _plain(names[k]) not in _TIME]
    if ids is not None and len(timeless) == 1:
        return timeless[0]
    if likely or not timeless or timeless[-1] != free[-1] or (ids is not None and len(free) > 1):
        _refuse_to_guess(names, advice)
    return free[-1]


def _find_ids(
    names: list[str], free: list[int], value: int, value_is_known: bool, advice: str
) -> tuple[int, ...]:
    pair = _user_and_item(names, free)
    if pair is not None:
        rest = [k for k in free if k not in pair and _plain(names[k]) not in _NEVER_A_MODE]
        if any(k < value or _plain(names[k]) not in _TIME for k in rest):
            _refuse_to_guess(names, advice)
        return pair
    if not value_is_known and any(k > value for k in free):
        _refuse_to_guess(names, advice)
    return tuple(free)


def _user_and_item(names: list[str], free: Iterable[int]) -> tuple[int, int] | None:
    """Return where the user and the item are, if there is one of each by name."""
    found = [[k for k in free if _plain(names[k]) in usual] for usual in (_USER, _ITEM)]
    return (found[0][0], found[1][0]) if len(found[0]) == len(found[1]) == 1 else None


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _refuse_to_guess(names: list[str], advice: str) -> NoReturn:
    raise DataError(
        f"Which of the columns {listed(names)} are ids and which is the value? {advice}"
    )
