"""Columns of a table, checked: ids of any hashable type with their row numbers, and values.

The ids of one mode (all users, all items, all sensors) are checked and numbered 0, 1, 2, ... once.
Learning works on these numbers; people only ever see the ids. A cell is one row number per mode,
and Seen has the cells that were observed. Values are floats; an error names the row that is wrong.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple, NoReturn, TypeAlias

import narwhals as nw
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from noisewise.errors import DataError, brief, printable, too_coarse, warn

Codes: TypeAlias = NDArray[np.int32]

# Frame types that turn into a numpy array of numbers without loss.
NUMPY_TYPES = (
    *(nw.Int8, nw.Int16, nw.Int32, nw.Int64),
    *(nw.UInt8, nw.UInt16, nw.UInt32, nw.UInt64),
    *(nw.Float32, nw.Float64),
)
_CHUNK = 1_000_000  # values whose squares are held at a time


def from_frame(native: Any) -> Any:
    """Wrap a frame or a series of any library, leave the rest as it is."""
    if isinstance(native, np.ma.MaskedArray) and native.mask.any():
        raise DataError("X is masked in part: leave out what is, or pass X.filled(np.nan).")
    if isinstance(native, np.ndarray | list | tuple):
        return native
    try:
        wrapped = nw.from_native(native, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"Rename columns of X so that no two are alike. {error}") from None
    if isinstance(wrapped, nw.LazyFrame):
        raise DataError("X is a lazy frame; call its collect() first.")
    if type(native).__name__ == "RecordBatch":  # of pyarrow
        raise DataError("X is a record batch; pass pyarrow.Table.from_batches([X]).")
    return wrapped


def check_ids(column: Any, name: str) -> NDArray[Any] | list[Any]:
    """Return ids as an int64 or a float64 array, or a list of hashable objects; none missing."""
    column = from_frame(column)
    if isinstance(column, nw.Series):
        missing = column.is_null().to_numpy()
        if missing.any():
            _refuse_missing(name, int(missing.argmax()), "null")
        column = column.to_numpy() if column.dtype in NUMPY_TYPES else column.to_list()
    if not isinstance(column, list | tuple):
        array = np.asarray(column)
        if array.ndim != 1:
            shape = array.shape if array.ndim else f"(): a single id is written [{array.item()!r}]"
            raise DataError(f"Column {name!r} must have one dimension; got shape {shape}.")
        if array.dtype.kind == "c":
            raise DataError(f"Complex data not supported: column {name!r} is {array.dtype}.")
        if array.dtype.kind == "f":
            return _finite_floats(array, name)
        if array.dtype.kind in "iu" and np.can_cast(array.dtype, np.int64):
            return array.astype(np.int64, copy=False)
        # Dates of numpy stay numpy's: as Python objects they may turn into integers.
        column = list(array) if array.dtype.kind in "mM" else array.tolist()
    types = set(map(type, column))
    if types and all(t is int or _is_integer(t) for t in types):
        try:
            return np.array(column, dtype=np.int64)
        except OverflowError:
            return [int(entry) for entry in column]
    if types and all(t is float or issubclass(t, np.floating) for t in types):
        return _finite_floats(np.array(column, dtype=np.float64), name)
    if any(issubclass(t, np.generic) for t in types):
        plain = [isinstance(entry, np.generic) and entry.dtype.kind not in "mM" for entry in column]
        column = [e.item() if is_plain else e for e, is_plain in zip(column, plain, strict=True)]
    if not types <= {str, bytes, bool, int}:
        _check_objects(column, name)
    return list(column)


def _finite_floats(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    array = array.astype(np.float64, copy=False)
    finite = np.isfinite(array)
    if not finite.all():
        row = int(finite.argmin())
        _refuse_missing(name, row, "NaN" if np.isnan(array[row]) else str(array[row]))
    return array


def _is_integer(kind: type) -> bool:
    """Tell integers of numpy; a length of time is one, too, by its class alone."""
    return issubclass(kind, np.integer) and not issubclass(kind, np.timedelta64)


def _check_objects(column: Sequence[Any], name: str) -> None:
    """Raise for the first entry that is missing or that cannot be the key of a dict."""
    distinct: dict[Any, int] = {}
    for row, entry in enumerate(column):
        try:
            distinct.setdefault(entry, row)
        except TypeError:
            raise DataError(
                f"Row {row} of column {name!r} holds {entry!r}, which cannot be an id; use a "
                "hashable type, such as str, int or tuple."
            ) from None
    for entry, row in distinct.items():
        if is_missing(entry):
            _refuse_missing(name, row, str(entry))


def is_missing(entry: Any) -> bool:
    """Tell None, NaN, NaT and NA, none of which is plainly equal to itself, and infinity."""
    equal = entry == entry
    sound = entry is not None and isinstance(equal, bool | np.bool_) and bool(equal)
    return not sound or (isinstance(entry, float) and math.isinf(entry))


def _refuse_missing(name: str, row: int, found: str) -> NoReturn:
    raise DataError(
        f"Row {row} of column {name!r} has no id: found {found}; drop the row or give it an id."
    )


def some_of(column: NDArray[Any] | list[Any], rows: NDArray[np.intp]) -> Any:
    """Return some rows of checked ids."""
    return [column[k] for k in rows] if isinstance(column, list) else column[rows]


def check_values(column: Any, name: str) -> NDArray[Any]:
    """Return values as finite float32, or as float64 where float32 is too coarse for them."""
    column = from_frame(column)
    if isinstance(column, nw.DataFrame):
        column = column.to_numpy()
    elif isinstance(column, nw.Series):
        column = column.to_numpy() if column.dtype in NUMPY_TYPES else column.to_list()
    mixes = isinstance(column, list | tuple)  # as objects, it keeps both numbers and text
    array = np.array(column, dtype=object) if mixes else np.asarray(column)
    if array.ndim == 2 and array.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning  # whose import takes two seconds

        warn(
            "A column-vector y was passed when a 1d array was expected; pass y.ravel().",
            DataConversionWarning,
        )
        array = array.ravel()
    if array.ndim != 1:
        raise DataError(f"{name} should be a 1d array of values; got shape {array.shape}.")
    if array.dtype.kind == "c":
        raise DataError(f"Complex data not supported: {name} is {array.dtype}.")
    if array.dtype.kind not in "biuf":
        array = _numbers(array.tolist(), name)
    with np.errstate(over="ignore"):
        finite = np.isfinite(array.astype(np.float32))
    if not finite.all():
        row = int(finite.argmin())
        found = "NaN" if np.isnan(array[row]) else f"{array[row]}, beyond what float32 can hold"
        raise DataError(f"Row {row} of {name} is {found}, not a finite number; drop or mend it.")
    return fitting(array)


def _numbers(entries: list[Any], name: str) -> NDArray[np.float64]:
    """Return Python objects as floats, if all of them are numbers."""
    kinds = {t for t in set(map(type, entries)) if not issubclass(t, numbers.Real | Decimal)}
    if not kinds:
        try:
            return np.array(entries, dtype=np.float64)
        except OverflowError:  # a whole number beyond all floats is as good as infinite
            return np.array([math.inf if abs(e) > 1e300 else e for e in entries], np.float64)
    row = next(row for row, entry in enumerate(entries) if type(entry) in kinds)
    if is_missing(entries[row]):
        raise DataError(f"Row {row} of {name} has no value: found {entries[row]}; drop the row.")
    raise DataError(f"Row {row} of {name} is {entries[row]!r}, not a number; drop or convert it.")


def fitting(values: NDArray[Any]) -> NDArray[Any]:
    """Return finite values in single precision where that is enough, else in double."""
    single = values.astype(np.float32)
    if not len(values):
        return single
    low, high = float(values.min()), float(values.max())
    if low == high:
        coarse = float(single[0]) != low
    else:
        coarse = too_coarse(max(abs(low), abs(high)), _std(values))
    return values.astype(np.float64) if coarse else single


def _std(values: NDArray[Any]) -> float:
    mean = float(values.mean(dtype=np.float64))
    chunks = (values[k : k + _CHUNK].astype(np.float64) for k in range(0, len(values), _CHUNK))
    return math.sqrt(sum(float(np.square(chunk - mean).sum()) for chunk in chunks) / len(values))


class Ids:
    """The ids of one mode, in the order of their row numbers.

    Two ids are the same when Python says they are equal: ``1`` and ``1.0`` are, ``1`` and ``"1"``
    are not.

    ``labels`` has the distinct ids; row number ``k`` belongs to ``labels[k]``. It is an int64 array
    when all ids are integers, else an object array that holds the ids as they were given. ``name``
    says what they stand for, such as ``"user"``.

    Examples
    --------
    >>> users, codes = Ids.encode(["ann", "bob", "ann"], "user")
    >>> codes
    array([0, 1, 0], dtype=int32)
    >>> users.lookup(["bob", "cat"])
    array([ 1, -1], dtype=int32)
    """

    def __init__(self, labels: NDArray[Any], name: str) -> None:
        self.labels = labels
        self.name = name

    @classmethod
    def encode(cls, column: Any, name: str) -> tuple[Ids, Codes]:
        """Give each id of a column its row number.

        Integers and floats are numbered in sorted order, all else in order of appearance.
        """
        column = check_ids(column, name)
        if isinstance(column, list):
            index = Index()
            codes = np.fromiter(map(index.__getitem__, column), np.int32, len(column))
            return cls(as_objects(index), name), codes
        if column.dtype == np.int64:
            labels, inverse = _rank_integers(column)
            return cls(labels, name), inverse.astype(np.int32, copy=False)
        labels, inverse = np.unique(column, return_inverse=True)
        return cls(as_objects(labels.tolist()), name), inverse.astype(np.int32)

    def lookup(self, column: Any) -> Codes:
        """Return the row number of each id, -1 where it is unknown."""
        return self._lookup(check_ids(column, self.name))

    def extend(self, column: Any) -> tuple[Ids, Codes]:
        """Give each id of a column its row number; known ids keep theirs, new ones are appended."""
        column = check_ids(column, self.name)
        codes = self._lookup(column)
        unknown = np.flatnonzero(codes < 0)
        if not len(unknown):
            return self, codes
        new, new_codes = Ids.encode(some_of(column, unknown), self.name)
        codes[unknown] = new_codes + len(self)
        if self.labels.dtype == new.labels.dtype:
            labels = np.concatenate([self.labels, new.labels])
        else:
            labels = as_objects(self.labels.tolist() + new.labels.tolist())
        return Ids(labels, self.name), codes

    def __len__(self) -> int:
        return len(self.labels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ids):
            return NotImplemented
        return self.name == other.name and np.array_equal(self.labels, other.labels)

    def __repr__(self) -> str:
        return f"Ids({len(self):,} {printable(self.name)})"

    def __getstate__(self) -> dict[str, Any]:
        return {"labels": self.labels, "name": self.name}  # the caches below stay at home

    def _lookup(self, column: NDArray[Any] | list[Any]) -> Codes:
        integers = self.labels.dtype == np.int64 and getattr(column, "dtype", None) == np.int64
        if integers and len(self):
            labels, order = self._sorted
            at = np.searchsorted(labels, column).clip(max=len(labels) - 1)
            return np.where(labels[at] == column, order[at], -1).astype(np.int32)
        entries = column if isinstance(column, list) else column.tolist()
        return np.fromiter(map(self._index.get, entries, repeat(-1)), np.int32, len(entries))

    @cached_property
    def _sorted(self) -> tuple[NDArray[Any], NDArray[np.intp]]:
        order = np.argsort(self.labels)
        return self.labels[order], order

    @cached_property
    def _index(self) -> dict[Any, int]:
        return {label: code for code, label in enumerate(self.labels.tolist())}


class Index(dict[Any, int]):
    """Row numbers by id; a new id gets the next one."""

    def __missing__(self, label: Any) -> int:
        code = self[label] = len(self)
        return code


def as_objects(labels: Iterable[Any]) -> NDArray[np.object_]:
    """Return a 1-d object array of Python objects, tuples left whole."""
    return np.fromiter(labels, dtype=object)


def _rank_integers(column: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the sorted distinct integers, and the rank of each entry among them."""
    if not len(column):
        return column, column
    low, high = int(column.min()), int(column.max())
    if high - low > 8 * len(column):
        return np.unique(column, return_inverse=True)
    # Ids are mostly dense; then a table is many times faster than sorting.
    present = np.zeros(high - low + 1, dtype=bool)
    present[column - low] = True
    rank = np.cumsum(present, dtype=np.int32) - 1
    return np.flatnonzero(present) + low, rank[column - low]


class Groups(NamedTuple):
    """Observations grouped by cell; within a cell they keep their order."""

    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    counts: NDArray[np.intp]

    def error(
        self, what: str, entry: Callable[[int], Any], place: Callable[[int, int], str]
    ) -> DataError:
        """Return an error with what is repeated first, and where it is for the first two times."""
        repeated = self.starts[self.counts > 1]
        start = repeated[np.argmin(self.order[repeated])]
        first, second = self.order[start : start + 2].tolist()
        many = f"1 {what} is" if len(repeated) == 1 else f"{len(repeated):,} {what}s are"
        return DataError(
            f"{many} given more than once, e.g. {entry(first)} in {place(first, second)}; pass "
            "duplicates='last' or duplicates='mean', or drop rows."
        )


def group_cells(codes: Sequence[NDArray[np.int32]], shape: Sequence[int]) -> Groups | None:
    """Group one observation or more by cell; None when no cell occurs twice."""
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


class Seen(NamedTuple):
    """Which cells were observed: columns of row i are ``columns[starts[i]:starts[i + 1]]``."""

    starts: NDArray[np.int64]
    columns: Codes

    def __repr__(self) -> str:
        return brief(self)

    @classmethod
    def of(cls, codes: tuple[Codes, ...], shape: tuple[int, ...]) -> Seen:
        """Remember cells by their codes; four bytes a cell."""
        ones = np.ones(len(codes[0]), dtype=np.int8)
        matrix = scipy.sparse.csr_array((ones, codes), shape=shape)
        matrix.sum_duplicates()
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))

    def cells(self) -> tuple[Codes, Codes]:
        """Codes of every cell."""
        rows = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))
        return rows, self.columns

    def turned(self, n_columns: int) -> Seen:
        """Return the same cells by column."""
        rows, columns = self.cells()
        return Seen.of((columns, rows), (n_columns, len(self.starts) - 1))

    def of_row(self, row: int) -> Codes:
        """Columns seen with a row; a row beyond the end has none."""
        if not 0 <= row < len(self.starts) - 1:
            return np.empty(0, dtype=np.int32)
        return self.columns[self.starts[row] : self.starts[row + 1]]
