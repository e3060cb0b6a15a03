"""Observations: one id per mode and a value, from any kind of table.

``observe`` is the way in. It takes what people have (a frame of pandas, polars or pyarrow, a numpy
array, a list of tuples, a scipy sparse matrix), checks it once, and leaves plain arrays: an int32
row number per mode and a float32 value, 12 bytes for an observation of two modes. Where float32 is
too coarse for the values they are float64. Cells that are given more than once are found by one
sort, and merged by keeping one or averaging.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from noisewise.data.columns import default_names, find_ids, known_parts, parts_of
from noisewise.data.ids import Codes, Ids
from noisewise.data.tables import Column, check_values
from noisewise.data.timestamps import check_seconds
from noisewise.errors import DataError, printable

Duplicates: TypeAlias = Literal["error", "last", "mean"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Observations:
    """Checked observations as plain arrays.

    ``codes`` has for each mode the row number of every observation, ``ids`` the ids that the row
    numbers stand for; ``values`` is what was observed, ``time`` when, in unix seconds.

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
        time = None if self.time is None else self.time[index]
        return Observations(codes, self.values[index], self.ids, time)

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

    Notes
    -----
    Columns of a frame are found by their usual names, as `noisewise.read` finds them: a user and an
    item (the user is the first mode, wherever it stands), a rating, value, score or stars, and a
    timestamp, time or date, which is left out unless `time` names it. Where there is no user and
    item, every column is an id, but for the value: the column with such a name if it is the last,
    else the last. With `y`, a column beside user and item that is named like a value is left out,
    and one with any other name is a mode more. Where names leave a doubt, this raises. In a table
    without names all columns are ids, but for the last, without `y`.

    Examples
    --------
    >>> observe(np.array([[7, 1], [7, 2], [9, 1]]), [4.5, 3.0, 5.0])
    Observations(3 of 2 user x 2 item)
    """
    check_duplicates(duplicates)
    if isinstance(X, Observations):
        if y is not None or not (time is None or isinstance(time, str | int)):
            raise DataError("Observations hold their values and times; leave out y and time.")
        return X if ids is None else _renumber(X, ids)
    return _observed_table(X, y, duplicates, time, ids)


def _observed_table(
    X: Any, y: Any, duplicates: Duplicates, time: Any, ids: Sequence[Ids] | None
) -> Observations:
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
    return assemble(
        [codes for _, codes in coded],
        values,
        [found for found, _ in coded],
        None if time is None else check_seconds(time, n_rows),
        duplicates=duplicates,
        at_least=2 if ids is None else 1,
    )


def assemble(
    codes: Sequence[Codes],
    values: NDArray[np.float32],
    ids: Sequence[Ids],
    time: NDArray[Any] | None = None,
    *,
    duplicates: Duplicates = "error",
    at_least: int = 2,
    place: Callable[[int, int], str] = "rows {} and {}".format,
) -> Observations:
    """Put observations together from checked columns, and merge those of the same cell.

    ``at_least`` observations are needed, 1 or 2; ``place`` says in words where two of them are, for
    the error about duplicates.
    """
    seen = Observations(tuple(codes), values, tuple(ids), time)
    if not len(seen):
        raise DataError("The table is empty: got 0 rows; at least 2 observations are needed.")
    groups = group_cells(seen.codes, seen.shape)
    if groups is not None:
        seen = _merged(seen, groups, duplicates, place)
    if len(seen) < at_least:
        raise DataError("Got a single observation (n_samples = 1); at least 2 are needed.")
    return seen


def paired_modes(seen: Observations, ids: Sequence[Ids]) -> list[tuple[Ids, Ids, Codes]]:
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
    renumbered = []
    for known, own, codes in paired_modes(seen, ids):
        extended, numbers = known.extend(own.labels)
        renumbered.append((extended, numbers[codes]))
    extended_ids, new_codes = zip(*renumbered, strict=True)
    return Observations(new_codes, seen.values, extended_ids, seen.time)


def _merged(
    seen: Observations, groups: Groups, duplicates: str, place: Callable[[int, int], str]
) -> Observations:
    """Return one observation per cell, or raise."""
    if duplicates == "last":
        return seen.take(np.sort(groups.lasts()))
    if duplicates == "mean":
        firsts = groups.firsts()
        merged = seen.take(np.sort(firsts))
        merged.values[:] = groups.means(seen.values)[np.argsort(firsts)]
        return merged
    repeated = groups.starts[groups.counts > 1]
    start = repeated[np.argmin(groups.order[repeated])]
    first, second = (int(row) for row in groups.order[start : start + 2])
    many = "1 cell is" if len(repeated) == 1 else f"{len(repeated):,} cells are"
    raise DataError(
        f"{many} given more than once, e.g. {seen.decode([first])[0]} in {place(first, second)}; "
        "pass duplicates='last' or duplicates='mean'."
    )


class Groups(NamedTuple):
    """Observations grouped by cell; within a cell they keep their order."""

    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    counts: NDArray[np.intp]

    def firsts(self) -> NDArray[np.intp]:
        """Return the first observation of every cell."""
        return self.order[self.starts]

    def lasts(self) -> NDArray[np.intp]:
        """Return the last observation of every cell."""
        lasts: NDArray[np.intp] = self.order[self.starts + self.counts - 1]
        return lasts

    def means(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean value of every cell."""
        sums = np.add.reduceat(values[self.order].astype(np.float64), self.starts)
        return np.asarray(sums / self.counts)


def check_duplicates(duplicates: str) -> None:
    """Raise unless the choice is one there is."""
    if duplicates not in ("error", "last", "mean"):
        raise ValueError(f"duplicates must be 'error', 'last' or 'mean'; got {duplicates!r}.")


def group_cells(codes: Sequence[NDArray[np.int32]], shape: Sequence[int]) -> Groups | None:
    """Group one observation or more by cell; None when no cell occurs twice.

    Examples
    --------
    >>> groups = group_cells([np.array([0, 1, 0]), np.array([2, 2, 2])], (2, 3))
    >>> groups.lasts().tolist()
    [2, 1]
    """
    # Most data has no duplicates, and a plain sort shows that many times faster than an argsort.
    cells = _number_cells(codes, shape)
    cells.sort()
    if np.all(cells[1:] != cells[:-1]):
        return None
    cells = _number_cells(codes, shape)
    order = np.argsort(cells, kind="stable")
    cells = cells[order]
    starts = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
    return Groups(order, starts, np.diff(starts, append=len(order)))


def _number_cells(codes: Sequence[NDArray[np.int32]], shape: Sequence[int]) -> NDArray[np.int64]:
    """Return a number per observation; two have the same only if they are of the same cell."""
    cells, size = codes[0].astype(np.int64), shape[0]
    for more, length in zip(codes[1:], shape[1:], strict=True):
        if size * length >= 2**63:  # too many cells for int64, so number only those that occur
            cells, size = np.unique(cells, return_inverse=True)[1], len(cells)
        cells = cells * length + more
        size *= length
    return cells
