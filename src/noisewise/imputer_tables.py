"""Tables that an imputer is given, their columns checked as scikit-learn does."""

from __future__ import annotations

from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.utils.validation import check_array, validate_data

from noisewise.data import Ids
from noisewise.data.arrays import read_array, read_xarray
from noisewise.data.frames import as_frame, read_frame
from noisewise.data.labelled import is_series, read_series, series_frame
from noisewise.data.tables_with_holes import LabelledArray, Roles, is_xarray
from noisewise.errors import DataError

Known: TypeAlias = tuple[tuple[int, ...], tuple[Ids, ...]]  # lengths of modes of fit; ids read


def read_table(imputer: Any, X: Any, roles: Roles, known: Known | None) -> LabelledArray:
    """Read a table of any kind; ``known`` is what the fitted one was like, None in ``fit``."""
    reset = known is None
    if reset:
        for name in ("n_features_in_", "feature_names_in_"):
            imputer.__dict__.pop(name, None)
    if is_xarray(X):
        return read_xarray(X, roles)
    if is_series(X):
        table = read_series(X, roles)
        _check_columns(imputer, series_frame(X), table, known)
        return table
    frame = as_frame(X)
    if frame is not None:
        if reset and roles.value is None:
            _check_columns(imputer, X, None, None)
        table = read_frame(frame, roles)
        if not reset and roles.value is None:
            _check_columns(imputer, X, table, known)
        return table
    numbers = {"dtype": "numeric", "ensure_all_finite": False}
    X = check_array(X, ensure_2d=False, allow_nd=True, estimator=imputer, **numbers)
    if X.dtype.kind in "mM":
        raise DataError(f"X must hold numbers; got {X.dtype}.")
    flat = X.ndim <= 2 and roles.time in (None, 0, -2)
    if flat:
        X = validate_data(imputer, X, reset=reset, **numbers)
    table = read_array(X, roles)
    if known is not None and not flat and table.lengths != known[0]:
        raise DataError(
            f"X must have {known[0]} places along the axes beside time, as in fit; got "
            f"{table.lengths}."
        )
    return table


def _check_columns(
    imputer: Any, frame: Any, table: LabelledArray | None, known: Known | None
) -> None:
    """Have the columns of a frame checked; in ``transform`` they may be some of those in ``fit``.

    Where scikit-learn names the columns of the result, they must be just those of ``fit``.
    """
    if known is not None and table is not None and not _are_named(imputer):
        fitted = getattr(imputer, "feature_names_in_", None)
        if _has_known_columns(frame, table, fitted, known[1]):
            return
    validate_data(imputer, frame, reset=known is None, skip_check_array=True)


def _are_named(transformer: Any) -> bool:
    """Tell whether ``set_output`` or the configuration has scikit-learn name the columns."""
    own = getattr(transformer, "_sklearn_output_config", {}).get("transform")
    return bool((own or get_config()["transform_output"]) != "default")


def _has_known_columns(frame: Any, table: LabelledArray, names: Any, ids: tuple[Ids, ...]) -> bool:
    """Tell whether the columns of a frame are among those of the fitted one, in any order."""
    columns = list(nw.from_native(frame, eager_only=True).columns)
    if len(set(columns)) < len(columns):
        return False
    if names is not None:
        return set(columns) <= set(names)
    modes = zip(ids[:-1], table.modes[:-1], strict=False)
    return all((own.lookup(mode.ids.labels) >= 0).all() for own, mode in modes)


def holes_said(like: Any, X: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return where a user says that holes will be, in a table of the same layout as X."""
    for labels in ("columns", "index"):
        own, asked = (list(getattr(table, labels, ())) for table in (X, like))
        if own and asked and own != asked and sorted(map(str, own)) == sorted(map(str, asked)):
            raise DataError(f"like must have the {labels} of X in the same order.")
    mask = np.asarray(like)
    if mask.shape != shape:
        raise DataError(
            f"like must have the shape of the readings of X, {shape}; got {mask.shape}."
        )
    odd = np.flatnonzero((mask.ravel() != 0) & (mask.ravel() != 1))
    if len(odd):
        raise DataError(
            f"like must be True where a hole will be, and False elsewhere; got "
            f"{mask.ravel()[odd[0]]!r}: give like=X.isna() for the holes of another table."
        )
    return mask.astype(bool)
