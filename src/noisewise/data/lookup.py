"""Row numbers of ids that are asked for, and a warning where next to none of them is known.

A new user is normal, and so are many new ids in cross-validation of sparse data. Ids that are text
where those trained on are numbers are not, nor are many cells of which no id is known, nor is a
column of twenty and more ids of which next to none is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data.columns import known_parts
from noisewise.data.ids import Codes, Ids
from noisewise.data.observations import Observations, paired_modes
from noisewise.data.tables import Column, check_ids
from noisewise.data.timestamps import check_seconds
from noisewise.errors import UnknownIdsWarning, warn

MOST = 0.9  # share of different ids that may be unknown
FEW = 20  # different ids of which all may be, as long as something else is known of a cell


def encode_ids(X: Any, ids: Sequence[Ids]) -> tuple[Codes, ...]:
    """Return the row numbers of a table of ids, -1 where an id is unknown.

    The columns of a frame are found by their names, in any order, and columns with other names are
    left out. Those of a table without names go by position.

    Examples
    --------
    >>> from noisewise.data import observe
    >>> seen = observe([("ann", "Alien", 5), ("bob", "Brazil", 3)])
    >>> encode_ids([("bob", "Alien"), ("ann", "Casablanca")], seen.ids)
    (array([1, 0], dtype=int32), array([ 0, -1], dtype=int32))
    """
    if isinstance(X, Observations):
        return tuple(known.lookup(own.labels)[codes] for known, own, codes in paired_modes(X, ids))
    modes = zip(ids, known_parts(X, [known.name for known in ids]).ids, strict=True)
    return tuple(known.lookup(column.entries) for known, column in modes)


def id_columns(X: Any, ids: Sequence[Ids]) -> list[Column]:
    """Return the id columns of a table, found as `encode_ids` finds them, in the order of the ids.

    Examples
    --------
    >>> from noisewise.data import observe
    >>> seen = observe([("ann", "Alien", 5), ("bob", "Brazil", 3)])
    >>> id_columns([("ann", "Alien"), ("bob", "Alien")], seen.ids)
    [Column(name='user', entries=['ann', 'bob']), Column(name='item', entries=['Alien', 'Alien'])]
    """
    if isinstance(X, Observations):
        paired = paired_modes(X, ids)
        return [Column(known.name, own.labels[codes]) for known, own, codes in paired]
    return known_parts(X, [known.name for known in ids]).ids


def encode_cells(
    X: Any, ids: Sequence[Ids], time: str | int
) -> tuple[tuple[Codes, ...], NDArray[Any] | None]:
    """Return the row numbers of a table of ids, and its times where it has any, as unix seconds.

    ``time`` is the name or number of the column that holds times, if there is one; in a table
    without names, it is the last of one column more than there are ids.

    Examples
    --------
    >>> from noisewise.data import observe
    >>> seen = observe([("ann", "Alien", 5), ("bob", "Brazil", 3)])
    >>> encode_cells([("bob", "Alien", 978300760)], seen.ids, time=2)[1]
    array([978300760])
    """
    if isinstance(X, Observations):
        return encode_ids(X, ids), X.time
    columns, _, seconds = known_parts(X, [known.name for known in ids], time=time)
    if seconds is not None:
        seconds = check_seconds(seconds, len(columns[0].entries))
    modes = zip(ids, columns, strict=True)
    return tuple(known.lookup(column.entries) for known, column in modes), seconds


def warn_of_unknown(
    X: Any, ids: Sequence[Ids], unseen: NDArray[np.bool_], *, but: Sequence[int] = ()
) -> None:
    """Warn where so many ids are unknown that they are hardly those that were meant.

    ``unseen`` tells which rows of X have an id that was never trained on; ``but`` has modes in
    which an unknown id is normal, such as time.
    """
    if not len(unseen) or unseen.mean() <= MOST:
        return
    codes = encode_ids(X, ids)
    modes = [mode for mode in range(len(ids)) if mode not in but]
    strange = [mode for mode in modes if _share(codes[mode]) > MOST]
    if not strange:
        return
    columns = id_columns(X, ids)
    none_known = all((codes[mode] < 0).all() for mode in modes)
    for mode in strange:
        asked = _distinct(columns[mode].entries, ids[mode])
        unknown = asked[ids[mode].lookup(asked) < 0]
        if warn_of_types(ids[mode], asked):
            continue
        enough = 2 if none_known else FEW
        if len(asked) >= enough and len(unknown) > MOST * len(asked):
            name, known = ids[mode].name, ids[mode].labels.tolist()
            warn(
                f"{len(unknown):,} of the {len(asked):,} ids of {name} that were asked for were "
                f"never trained on, such as {unknown.tolist()[0]!r} (an id that was: {known[0]!r}),"
                f" so these predictions know nothing of the {name}.",
                UnknownIdsWarning,
            )


def warn_of_types(ids: Ids, asked: Any) -> bool:
    """Warn if all ids that were asked for are of another type than those trained on.

    Examples
    --------
    >>> users, _ = Ids.encode([17, 42], "user")
    >>> warn_of_types(users, [17, 99])
    False
    """
    wanted = np.fromiter(asked, dtype=object)
    kinds, known = _kinds(wanted.tolist()), _kinds(ids.labels.tolist())
    if not len(wanted) or not known or kinds & known:
        return False
    trained = ids.labels.tolist()[0]
    warn(
        f"None of the ids of {ids.name} that were asked for was trained on: they are of type "
        f"{_named(kinds)}, such as {wanted[0]!r}, and those trained on of type {_named(known)}, "
        f"such as {trained!r}. Convert them to the same type.",
        UnknownIdsWarning,
    )
    return True


def _share(codes: Codes) -> float:
    return float(np.mean(codes < 0))


def _distinct(entries: Any, ids: Ids) -> Any:
    column = check_ids(entries, ids.name)
    return np.fromiter(
        dict.fromkeys(column if isinstance(column, list) else column.tolist()), dtype=object
    )


def _kinds(labels: list[Any]) -> set[type]:
    """Return the types of ids; numbers are of one kind, as 1 and 1.0 are the same id."""
    types = set(map(type, labels))
    return {int if issubclass(kind, int | float | np.number) else kind for kind in types}


def _named(kinds: set[type]) -> str:
    return " or ".join(sorted(kind.__name__ for kind in kinds))
