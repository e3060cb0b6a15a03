"""Tables of any kind, taken apart into checked columns. The only file that knows data frames.

A table is a frame of pandas, polars or pyarrow, a 2-d array, a list of tuples or a scipy sparse
matrix. Ids and values each have one function that checks a column and names the row that is wrong.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

import narwhals as nw
import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning

from noisewise.errors import DataError, too_coarse, warn

# Frame types that turn into a numpy array of numbers without loss.
_NUMPY_TYPES = (
    *(nw.Int8, nw.Int16, nw.Int32, nw.Int64),
    *(nw.UInt8, nw.UInt16, nw.UInt32, nw.UInt64),
    *(nw.Float32, nw.Float64),
)

_CHUNK = 1_000_000  # values whose squares are held at a time


class Column(NamedTuple):
    """One column of a table."""

    name: str
    entries: Any


def take_apart(X: Any, *, with_value: bool = False) -> tuple[list[str] | None, list[Any]]:
    """Take a table apart.

    The ids of a sparse matrix are the positions of its stored entries, which come as the last
    column ``with_value``.

    Returns
    -------
    names, entries
        Of every column. Names are None where `X` has none, or some that are no text.
    """
    X = _from_frame(X)
    if isinstance(X, nw.DataFrame):
        return _text_names(X), list(X.iter_columns())
    if scipy.sparse.issparse(X):
        stored = X.tocoo()
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
    X = _from_frame(X)
    return isinstance(X, nw.DataFrame) and _text_names(X) is not None


def _text_names(frame: Any) -> list[str] | None:
    names = list(frame.columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def check_ids(column: Any, name: str) -> NDArray[Any] | list[Any]:
    """Return ids as an int64 array, a float64 array, or a list of hashable objects; none missing.

    ``name`` is what errors call the column.
    """
    column = _from_frame(column)
    if isinstance(column, nw.Series):
        missing = column.is_null().to_numpy()
        if missing.any():
            _refuse_missing(name, int(missing.argmax()), "null")
        column = column.to_numpy() if column.dtype in _NUMPY_TYPES else column.to_list()
    if not isinstance(column, list | tuple):
        array = np.asarray(column)
        if array.ndim != 1:
            raise DataError(f"Column {name!r} must have one dimension; got shape {array.shape}.")
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
        column = [_python_scalar(entry) for entry in column]
    if not types <= {str, bytes, bool, int}:
        _check_objects(column, name)
    return list(column)


def check_values(column: Any, name: str) -> NDArray[Any]:
    """Return values as finite float32, or as float64 where float32 is too coarse for them.

    ``name`` is what errors call them.
    """
    column = _from_frame(column)
    if isinstance(column, nw.DataFrame):
        column = column.to_numpy()
    elif isinstance(column, nw.Series):
        column = column.to_numpy() if column.dtype in _NUMPY_TYPES else column.to_list()
    # As objects, a list that mixes numbers and text keeps both.
    array = (
        np.array(column, dtype=object) if isinstance(column, list | tuple) else np.asarray(column)
    )
    if array.ndim == 2 and array.shape[1] == 1:
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


def _from_frame(native: Any) -> Any:
    """Wrap what narwhals knows, leave the rest as it is."""
    try:
        wrapped = nw.from_native(native, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"Rename columns of X so that no two are alike. {error}") from None
    if isinstance(wrapped, nw.LazyFrame):
        raise DataError("X is a lazy frame; call its collect() first.")
    return wrapped


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


def _finite_floats(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    array = array.astype(np.float64, copy=False)
    finite = np.isfinite(array)
    if not finite.all():
        row = int(finite.argmin())
        _refuse_missing(name, row, "NaN" if np.isnan(array[row]) else str(array[row]))
    return array


def _python_scalar(entry: Any) -> Any:
    keep = not isinstance(entry, np.generic) or isinstance(entry, np.datetime64 | np.timedelta64)
    return entry if keep else entry.item()


def _check_objects(column: Sequence[Any], name: str) -> None:
    """Raise for the first entry that is missing or that cannot be the key of a dict."""
    try:
        distinct = dict.fromkeys(column)
    except TypeError:
        row = next(row for row, entry in enumerate(column) if not _is_hashable(entry))
        raise DataError(
            f"Row {row} of column {name!r} holds {column[row]!r}, which cannot be an id; use a "
            "hashable type, such as str, int or tuple."
        ) from None
    if any(map(is_missing, distinct)):
        row = next(row for row, entry in enumerate(column) if is_missing(entry))
        _refuse_missing(name, row, str(column[row]))


def _is_integer(kind: type) -> bool:
    """Tell integers of numpy; a length of time is one, too, by its class alone."""
    return issubclass(kind, np.integer) and not issubclass(kind, np.timedelta64)


def _is_hashable(entry: Any) -> bool:
    try:
        hash(entry)
    except TypeError:
        return False
    return True


def is_missing(entry: Any) -> bool:
    """Tell None, NaN, NaT and NA, none of which is plainly equal to itself, and infinity."""
    equal = entry == entry
    return (
        entry is None
        or not (isinstance(equal, bool | np.bool_) and equal)
        or (isinstance(entry, float) and math.isinf(entry))
    )


def _numbers(entries: list[Any], name: str) -> NDArray[np.float64]:
    """Return Python objects as floats, if all of them are numbers."""
    kinds = {t for t in set(map(type, entries)) if not issubclass(t, numbers.Real | Decimal)}
    if not kinds:
        return np.array(entries, dtype=np.float64)
    row = next(row for row, entry in enumerate(entries) if type(entry) in kinds)
    if is_missing(entries[row]):
        raise DataError(f"Row {row} of {name} has no value: found {entries[row]}; drop the row.")
    raise DataError(f"Row {row} of {name} is {entries[row]!r}, not a number; drop or convert it.")


def _refuse_missing(name: str, row: int, found: str) -> NoReturn:
    raise DataError(
        f"Row {row} of column {name!r} has no id: found {found}; drop the row or give it an id."
    )


def _refuse_shape(n_dimensions: int) -> NoReturn:
    raise DataError(
        f"Expected 2D array, got {n_dimensions}D array instead: X needs one id column per mode. "
        "Reshape your data; a single cell is written [('ann', 'Alien')]."
    )


def fitting(values: NDArray[Any]) -> NDArray[Any]:
    """Return finite values in single precision where that is enough, else in double.

    Values that are all alike are single if that does not change them.

    Examples
    --------
    >>> fitting(np.array([1.0, 3.5, 5.0])).dtype, fitting(1e8 + np.array([1.0, 3.5, 5.0])).dtype
    (dtype('float32'), dtype('float64'))
    """
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
