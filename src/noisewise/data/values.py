"""Values of a table as floats, checked; an error names the row that is wrong."""

from __future__ import annotations

import numbers
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning

from noisewise.data.ids import NUMPY_TYPES, from_frame, is_missing
from noisewise.data.tables import fitting
from noisewise.errors import DataError, warn


def check_values(column: Any, name: str) -> NDArray[Any]:
    """Return values as finite float32, or as float64 where float32 is too coarse for them.

    ``name`` is what errors call them.
    """
    column = from_frame(column)
    if isinstance(column, nw.DataFrame):
        column = column.to_numpy()
    elif isinstance(column, nw.Series):
        column = column.to_numpy() if column.dtype in NUMPY_TYPES else column.to_list()
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


def _numbers(entries: list[Any], name: str) -> NDArray[np.float64]:
    """Return Python objects as floats, if all of them are numbers."""
    kinds = {t for t in set(map(type, entries)) if not issubclass(t, numbers.Real | Decimal)}
    if not kinds:
        return np.array(entries, dtype=np.float64)
    row = next(row for row, entry in enumerate(entries) if type(entry) in kinds)
    if is_missing(entries[row]):
        raise DataError(f"Row {row} of {name} has no value: found {entries[row]}; drop the row.")
    raise DataError(f"Row {row} of {name} is {entries[row]!r}, not a number; drop or convert it.")
