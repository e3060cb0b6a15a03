"""Any table with holes, as `DeviationImputer` takes it: frames, series, arrays, xarray."""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np

from noisewise.data.arrays import read_array, read_xarray
from noisewise.data.frames import as_frame, read_frame
from noisewise.data.tables_with_holes import LabelledArray, Roles, is_xarray, refuse
from noisewise.errors import DataError

UNNAMED = "series"  # what a series without a name is called


def labelled(X: Any, roles: Roles) -> LabelledArray:
    """Read a table of any kind."""
    if is_xarray(X):
        return read_xarray(X, roles)
    if is_series(X):
        return read_series(X, roles)
    frame = as_frame(X)
    if frame is not None:
        return read_frame(frame, roles)
    array = np.asarray(X)
    if array.dtype.kind == "O" and all(isinstance(v, numbers.Real | None) for v in array.flat):
        array = array.astype(np.float64)
    if array.ndim < 2 or array.dtype.kind not in "biuf":
        raise DataError(
            f"X must be a frame, a series, an array of numbers with 2 dimensions or more, or of "
            f"xarray; got {type(X).__name__} of shape {array.shape}."
        )
    return read_array(array.astype(np.float64), roles)


def is_series(X: Any) -> bool:
    """Tell whether X is a single column, of pandas, polars or pyarrow."""
    return isinstance(_wrapped(X), nw.Series)


def _wrapped(X: Any) -> Any:
    return nw.from_native(X, series_only=True, pass_through=True)


def series_frame(X: Any) -> Any:
    """Return a series as a frame of one column, which has its name and its index."""
    column = _wrapped(X)
    name = column.name if isinstance(column.name, str) and column.name else UNNAMED
    return column.alias(name).to_frame().to_native()


def read_series(X: Any, roles: Roles) -> LabelledArray:
    """Read a series: its index is the time, and a series is what comes back."""
    for setting in ("time", "location", "value"):
        if getattr(roles, setting) is not None:
            refuse(setting, getattr(roles, setting), "None, as a series has no other columns,")
    column, native = _wrapped(X), series_frame(X)
    table = read_frame(nw.from_native(native), roles)

    def put(new: Any, where: Any) -> Any:
        filled = nw.from_native(table.put(new, where), eager_only=True)
        one = filled.get_column(filled.columns[0]).to_native()
        if column.implementation.is_pandas_like():
            one.name = X.name  # which may be of any type
            return one
        return nw.from_native(one, series_only=True).alias(column.name).to_native()

    return replace(table, put=put)
