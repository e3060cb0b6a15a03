"""Observations: one id per mode and a value, from any kind of table.

``observe`` is the way in. It takes what people have, checks it once, and leaves plain arrays: an
int32 row number per mode and a float32 value, 12 bytes for an observation of two modes; float64
where float32 is too coarse. ``encode_ids`` looks up ids that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from noisewise.data.ids import Codes, Groups, Ids, check_ids, check_values, group_cells, some_of
from noisewise.data.tables import Column, default_names, find_ids, known_parts, parts_of
from noisewise.data.timestamps import Floats, check_seconds, read_stamps
from noisewise.data.weights import check_weight
from noisewise.errors import DataError, UnknownIdsWarning, printable, warn

Duplicates: TypeAlias = Literal["error", "last", "mean"]

MOST = 0.9  # share of different ids that may be unknown
FEW = 20  # different ids of which all may be, as long as something else is known of a cell


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Observations:
    """Checked observations as plain arrays.

    ``codes`` has for each mode the row number of every observation, ``ids`` the ids that the row
    numbers stand for; ``values`` is what was observed, ``time`` when, in unix seconds; ``weight``
    is what the variance of the noise of each is divided by, 1 for all if it is None.

    Examples
    --------
    >>> seen = observe([("ann", "Alien", 5), ("bob", "Alien", 3), ("bob", "Brazil", 4)])
    >>> seen
    Observations(3 of 2 user x 2 item)
    >>> seen.take(seen.values > 3).decode()
    [('ann', 'Alien'), ('bob', 'Brazil')]
    """

    codes: tuple[Codes, ...]
    values: NDArray[Any]
    ids: tuple[Ids, ...]
    time: NDArray[Any] | None = None
    weight: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_modes(self) -> int:
        """The number of id columns."""
        return len(self.codes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of ids in each mode."""
        return tuple(map(len, self.ids))

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each mode."""
        return tuple(ids.name for ids in self.ids)

    @property
    def nbytes(self) -> int:
        """The bytes that row numbers and values take."""
        return self.values.nbytes + sum(codes.nbytes for codes in self.codes)

    def take(self, index: NDArray[Any] | slice) -> Observations:
        """Return some of the observations, by an array or a slice; with the same ids."""
        codes = tuple(codes[index] for codes in self.codes)
        time, weight = (
            None if column is None else column[index] for column in (self.time, self.weight)
        )
        return Observations(codes, self.values[index], self.ids, time, weight)

    def decode(self, index: Any = slice(None)) -> list[tuple[Any, ...]]:
        """Return the ids of observations as they were given, a tuple for each."""
        modes = zip(self.ids, self.codes, strict=True)
        return list(zip(*(ids.labels[codes[index]].tolist() for ids, codes in modes), strict=True))

    def __repr__(self) -> str:
        modes = " x ".join(f"{len(ids):,} {printable(ids.name)}" for ids in self.ids)
        return f"Observations({len(self):,} of {modes})"


def observe(
    X: Any,
    y: Any = None,
    *,
    duplicates: Duplicates = "error",
    time: Any = None,
    ids: Sequence[Ids] | None = None,
    weight: Any = None,
) -> Observations:
    """Check a table and turn it into observations.

    Parameters
    ----------
    X : table of ids, sparse matrix or Observations
        One id column per mode: a frame of pandas, polars or pyarrow, a 2-d array, or a list of
        tuples. In a scipy sparse matrix every stored entry is an observation, a stored zero too;
        rows and columns without one get no id. Observations are returned as they are.
    y : 1-d array, series or sequence, optional
        The values. Without it a column of `X` holds them.
    duplicates : {"error", "last", "mean"}
        What to do about a cell that is given more than once: raise, keep its last row, or take the
        mean in the place (and with the time) of its first row.
    time : 1-d array, series or sequence, or name or number of a column, optional
        When each value was observed, as unix seconds or dates; or which column of `X` says so.
    ids : sequence of Ids, optional
        Ids that keep their row numbers; ids not among them are appended. A single observation is
        enough then. The columns of a frame are found by the names of these ids, and others are left
        out.
    weight : 1-d array, series or sequence, optional
        How much each value is worth: the variance of its noise is divided by it. One of weight 0 is
        left out. The mean of a cell that is given more than once is weighted.

    Notes
    -----
    Columns of a frame are found by their usual names, as `noisewise.read` finds them; the user is
    the first mode, wherever it stands, and a timestamp, time or date is left out unless `time`
    names it. Where there is no user and item, or no names, every column is an id, but for the last,
    without `y`. With `y`, a column beside user and item that is named like a value is left out, and
    one with any other name is a mode more.

    Examples
    --------
    >>> observe(np.array([[7, 1], [7, 2], [9, 1]]), [4.5, 3.0, 5.0])
    Observations(3 of 2 user x 2 item)
    """
    check_repeats(duplicates)
    if isinstance(X, Observations):
        if y is not None or not (time is None or isinstance(time, str | int)):
            raise DataError("Observations hold their values and times; leave out y and time.")
        if weight is not None:
            X = _weighted(replace(X, weight=check_weight(weight, len(X))))
        return _enough(X, 2) if ids is None else _renumber(X, ids)
    given: Any = {"duplicates": duplicates, "time": time, "ids": ids, "weight": weight}
    return observed(X, y, **given, at_least=2 if ids is None else 1)


def observed(
    X: Any, y: Any = None, *, duplicates: Duplicates = "error", time: Any = None,
    ids: Sequence[Ids] | None = None, weight: Any = None, at_least: int = 1,
) -> Observations:  # fmt: skip
    """Turn a table into observations, of which there may be a single one."""
    if scipy.sparse.issparse(X) and y is not None:
        raise DataError("A sparse matrix X holds the values itself; leave out y.")
    place = time if isinstance(time, str | int) else None
    if ids is None:
        columns, value, seconds = parts_of(X, with_value=y is None, time=place)
    else:
        wanted = [known.name for known in ids]
        columns, value, seconds = known_parts(X, wanted, with_value=y is None, time=place)
    time = time if place is None else seconds
    value = Column("y", y) if value is None else value
    n_rows = len(columns[0].entries) if columns else len(X)
    values = None if y is None else check_values(y, "y")
    if len(columns) < 2:
        beside = (
            ", beside the last one, which holds the values if y is None; this table requires y to "
            "be passed, but the target y is None"
        )
        raise DataError(
            f"X needs one id column per mode (2 or more){beside if y is None else ''}: found "
            f"{len(columns)} feature(s) (shape=({n_rows}, {len(columns)})) while a minimum of 2 is "
            "required."
        )
    if values is None:
        values = check_values(value.entries, f"column {value.name!r}")
    if len(values) != n_rows:
        raise DataError(f"X and y need the same length; got {n_rows} and {len(values)} rows.")
    if ids is None:
        coded = [Ids.encode(column.entries, column.name) for column in columns]
    else:
        modes = zip(ids, columns, strict=True)
        coded = [known.extend(column.entries) for known, column in modes]
    found, codes = zip(*coded, strict=True)
    seconds = None if time is None else check_seconds(time, n_rows)
    given = codes, values, found, seconds, weight
    return assemble(*given, duplicates=duplicates, at_least=at_least)


def assemble(
    codes: Sequence[Codes],
    values: NDArray[np.float32],
    ids: Sequence[Ids],
    time: NDArray[Any] | None = None,
    weight: Any = None,
    *,
    duplicates: Duplicates = "error",
    at_least: int = 2,
    place: Callable[[int, int], str] = "rows {} and {}".format,
) -> Observations:
    """Put ``at_least`` 1 or 2 observations together from checked columns, each cell once.

    Weights need not be checked yet.
    ``place`` says where two of them are, for the error about duplicates.
    """
    worth = None if weight is None else check_weight(weight, len(values))
    seen = _weighted(Observations(tuple(codes), values, tuple(ids), time, worth))
    return _once(seen, duplicates, at_least, place)


def _weighted(seen: Observations) -> Observations:
    """Leave out observations of weight 0."""
    worth = seen.weight
    return seen if worth is None or worth.all() else seen.take(worth > 0)


def _once(
    seen: Observations, duplicates: Duplicates, at_least: int, place: Callable[[int, int], str]
) -> Observations:
    """Return observations with each cell once."""
    if not len(seen):
        raise DataError("The table is empty: got 0 rows; at least 2 observations are needed.")
    groups = group_cells(seen.codes, seen.shape)
    if groups is not None:
        seen = _merged(seen, groups, duplicates, place)
    return _enough(seen, at_least)


def _enough(seen: Observations, at_least: int) -> Observations:
    """Return observations if they are not fewer than 1 or 2."""
    if len(seen) < at_least:
        raise DataError("Got a single observation (n_samples = 1); at least 2 are needed.")
    return seen


def encode_ids(X: Any, ids: Sequence[Ids]) -> tuple[Codes, ...]:
    """Return the row numbers of a table of ids, -1 where an id is unknown.

    The columns of a frame are found by their names, in any order, and columns with other names are
    left out. Those of a table without names go by position.

    Examples
    --------
    >>> seen = observe([("ann", "Alien", 5), ("bob", "Brazil", 3)])
    >>> encode_ids([("bob", "Alien"), ("ann", "Casablanca")], seen.ids)
    (array([1, 0], dtype=int32), array([ 0, -1], dtype=int32))
    """
    return encode_cells(X, ids)[0]


def encode_cells(
    X: Any, ids: Sequence[Ids], time: str | int | None = None
) -> tuple[tuple[Codes, ...], NDArray[Any] | None]:
    """Return the row numbers of a table of ids, and its times, as `known_parts` finds them."""
    if isinstance(X, Observations):
        paired = _paired(X, ids)
        return tuple(known.lookup(own.labels)[codes] for known, own, codes in paired), X.time
    columns, _, seconds = known_parts(X, [known.name for known in ids], time=time)
    if seconds is not None:
        seconds = check_seconds(seconds, len(columns[0].entries))
    modes = zip(ids, columns, strict=True)
    return tuple(known.lookup(column.entries) for known, column in modes), seconds


def encode_in_time(
    X: Any, ids: tuple[Ids, ...], mode: int, stamps: Floats, are_dates: bool
) -> tuple[tuple[Codes, ...], Floats]:
    """Return row numbers and times of cells; a time may be new, and is NaN if it is none."""
    codes = encode_ids(X, ids)
    when = np.append(stamps, np.nan)[codes[mode]]
    new = np.flatnonzero(codes[mode] < 0)
    if len(new):
        entries = check_ids(id_columns(X, ids)[mode].entries, ids[mode].name)
        found, dates = read_stamps(some_of(entries, new))
        when[new] = np.where(dates == are_dates, found, np.nan)
    return codes, when


def id_columns(X: Any, ids: Sequence[Ids], time: str | int | None = None) -> list[Column]:
    """Return the id columns of a table as `encode_cells` finds them, in the order of the ids."""
    if isinstance(X, Observations):
        paired = _paired(X, ids)
        return [Column(known.name, own.labels[codes]) for known, own, codes in paired]
    return known_parts(X, [known.name for known in ids], time=time).ids


def warn_of_unknown(
    X: Any, ids: Sequence[Ids], unseen: NDArray[np.bool_], *, but: Sequence[int] = ()
) -> None:
    """Warn where so many ids are unknown that they are hardly those that were meant.

    New ids are normal; ids of another type are not, nor are many cells of which no id is known, nor
    is a column of twenty and more ids of which next to none is. ``unseen`` tells which rows of X
    have an id that was never trained on; ``but`` has modes such as time, where all may be new.
    """
    if not len(unseen) or unseen.mean() <= MOST:
        return
    codes = encode_ids(X, ids)
    modes = [mode for mode in range(len(ids)) if mode not in but]
    strange = [mode for mode in modes if np.mean(codes[mode] < 0) > MOST]
    if not strange:
        return
    columns = id_columns(X, ids)
    none_known = all((codes[mode] < 0).all() for mode in modes)
    enough = 2 if none_known else FEW
    for mode in strange:
        asked = Ids.encode(columns[mode].entries, ids[mode].name)[0].labels.astype(object)
        unknown = asked[ids[mode].lookup(asked) < 0]
        many = len(asked) >= enough and len(unknown) > MOST * len(asked)
        if not warn_of_types(ids[mode], asked) and many:
            name, known = ids[mode].name, ids[mode].labels.tolist()
            warn(
                f"{len(unknown):,} of the {len(asked):,} ids of {name} that were asked for were "
                f"never trained on, such as {unknown.tolist()[0]!r} (an id that was: {known[0]!r}),"
                f" so these predictions know nothing of the {name}.",
                UnknownIdsWarning,
            )


def warn_of_types(ids: Ids, asked: Any) -> bool:
    """Warn, and say so, if all ids that were asked for are of another type than those known."""
    wanted, trained = list(asked), ids.labels.tolist()
    kinds, known = _kinds(wanted), _kinds(trained)
    if not wanted or not trained or kinds & known:
        return False
    warn(
        f"None of these ids of {ids.name} was trained on: they are of type "
        f"{_named(kinds)}, such as {wanted[0]!r}, and those trained on of type {_named(known)}, "
        f"such as {trained[0]!r}. Convert them to the same type.",
        UnknownIdsWarning,
    )
    return True


def _kinds(labels: list[Any]) -> set[type]:
    """Return the types of ids; numbers are of one kind, as 1 and 1.0 are the same id."""
    types = set(map(type, labels))
    return {int if issubclass(kind, int | float | np.number) else kind for kind in types}


def _named(kinds: set[type]) -> str:
    return " or ".join(sorted(kind.__name__ for kind in kinds))


def _paired(seen: Observations, ids: Sequence[Ids]) -> list[tuple[Ids, Ids, Codes]]:
    """Return for each mode the known ids, the ids of the observations and their row numbers."""
    names, wanted = list(seen.names), [known.name for known in ids]
    if len(names) != len(wanted):
        raise DataError(
            f"These observations have {len(names)} modes ({', '.join(names)}), but {len(wanted)} "
            f"are needed: {', '.join(wanted)}."
        )
    order = find_ids(names, wanted)
    if order is None and default_names(len(names)) == names:  # they came without names
        order = tuple(range(len(names)))
    if order is None:
        raise DataError(
            f"These observations are of {', '.join(names)}, but {', '.join(wanted)} are needed: "
            "read them with columns of these names."
        )
    return [(known, seen.ids[k], seen.codes[k]) for known, k in zip(ids, order, strict=True)]


def _renumber(seen: Observations, ids: Sequence[Ids]) -> Observations:
    """Return the same observations under ids that keep their row numbers."""
    paired = _paired(seen, ids)
    extended, numbers = zip(*(known.extend(own.labels) for known, own, _ in paired), strict=True)
    codes = tuple(new[old] for new, (_, _, old) in zip(numbers, paired, strict=True))
    return Observations(codes, seen.values, extended, seen.time, seen.weight)


def _merged(
    seen: Observations, groups: Groups, duplicates: str, place: Callable[[int, int], str]
) -> Observations:
    """Return one observation per cell, or raise."""
    if duplicates == "last":
        return seen.take(np.sort(groups.order[groups.starts + groups.counts - 1]))
    if duplicates == "mean":
        firsts = groups.order[groups.starts]
        values, counts = seen.values[groups.order].astype(np.float64), groups.counts
        merged = seen.take(np.sort(firsts))
        if seen.weight is not None and merged.weight is not None:
            weight = seen.weight[groups.order].astype(np.float64)
            values, counts = values * weight, np.add.reduceat(weight, groups.starts)
            merged.weight[:] = (counts / groups.counts)[np.argsort(firsts)]
        sums = np.add.reduceat(values, groups.starts)
        merged.values[:] = (sums / counts)[np.argsort(firsts)]
        return merged
    raise groups.error("cell", lambda row: seen.decode([row])[0], place)


def check_repeats(duplicates: str) -> None:
    """Raise unless the choice is one there is."""
    if duplicates not in ("error", "last", "mean"):
        raise ValueError(f"duplicates must be 'error', 'last' or 'mean'; got {duplicates!r}.")
