"""Arrays of xarray with holes: every dimension is a mode, and has a name."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from noisewise.data.arrays import put
from noisewise.data.holes import (
    Clock,
    Floats,
    Layout,
    Mask,
    Mode,
    Table,
    refuse,
    refuse_repeats,
    type_mode,
)
from noisewise.data.times import row_mode, time_mode
from noisewise.errors import DataError


def knows(X: Any) -> bool:
    """Tell whether X is of xarray, which nobody needs who has none."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(X, xarray.DataArray | xarray.Dataset)


def read(X: Any, layout: Layout) -> Table:
    """Read a DataArray, or a Dataset, whose variables over time are the types of sensors."""
    for setting in ("location", "value"):
        got = getattr(layout, setting)
        if got is not None:
            refuse(setting, got, "None, as every dimension is a mode,")
    time = "time" if layout.time is None else layout.time
    return _dataset(X, time, layout) if hasattr(X, "data_vars") else _array(X, time, layout)


def _array(X: Any, time: Any, layout: Layout) -> Table:
    _check_dimensions(X, time)
    modes = [_mode(X, dim, axis) for axis, dim in enumerate(X.dims) if dim != time]
    if not modes:
        modes = [Mode.of([str(X.name)] * X.size, "series", 0)]
    rows, clock = _rows(X, time, X.dims.index(time), layout)
    values = _numbers(X)

    def fill(new: Floats, where: Mask) -> Any:
        return X.copy(data=put(X.values, new, where))

    return Table(values, (*modes, rows), type_mode(modes, layout.sensor), clock, fill)


def _dataset(X: Any, time: Any, layout: Layout) -> Table:
    names = [name for name, part in X.data_vars.items() if time in part.dims]
    if not names:
        raise DataError(
            f"X needs variables with the dimension {time!r}; its dimensions are {list(X.dims)}: "
            "name the one that is time with time=."
        )
    dims = X[names[0]].dims
    other = next((name for name in names if set(X[name].dims) != set(dims)), None)
    if other is not None:
        raise DataError(
            f"Variables over {time!r} must have the same dimensions; got {dims} for {names[0]!r} "
            f"and {X[other].dims} for {other!r}: fill them one at a time."
        )
    if layout.sensor not in ("auto", "variable"):
        refuse("sensor", layout.sensor, "'auto', as each variable is a type,")
    parts = [X[name].transpose(*dims) for name in names]
    modes = [Mode.of(names, "variable", 0)]
    modes += [_mode(X, dim, axis) for axis, dim in enumerate(dims, 1) if dim != time]
    rows, clock = _rows(X, time, 1 + dims.index(time), layout)
    values = np.stack([_numbers(part) for part in parts])

    def fill(new: Floats, where: Mask) -> Any:
        filled = {
            name: part.copy(data=put(part.values, *own)).transpose(*X[name].dims)
            for name, part, *own in zip(names, parts, new, where, strict=True)
        }
        return X.assign(filled)

    return Table(values, (*modes, rows), 0, clock, fill)


def _check_dimensions(X: Any, time: Any) -> None:
    if time not in X.dims:
        raise DataError(
            f"X needs a dimension {time!r}; it has {list(X.dims)}: name the one that is time with "
            "time=."
        )


def _mode(X: Any, dim: Any, axis: int) -> Mode:
    labels = X.indexes[dim].tolist() if dim in X.indexes else np.arange(X.sizes[dim])
    return Mode.of(labels, str(dim), axis)


def _rows(X: Any, time: Any, axis: int, layout: Layout) -> tuple[Mode, Clock]:
    if not X.sizes[time]:
        raise DataError(f"X has no {time!r}; there is nothing to learn from or to fill.")
    if time not in X.indexes:
        return row_mode(X.sizes[time], axis), "rows"
    stamps = X[time].values
    rows, clock = time_mode(stamps, f"Dimension {time!r}", axis)
    if layout.duplicates == "error":
        refuse_repeats([rows], "time stamp", lambda row: str(stamps[row]))
    return rows, clock


def _numbers(X: Any) -> Floats:
    if X.dtype.kind not in "biuf":
        raise DataError(f"{X.name or 'X'} must hold numbers; got {X.dtype}.")
    return np.ascontiguousarray(X.values, dtype=np.float64)
