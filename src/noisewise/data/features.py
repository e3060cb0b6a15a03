"""Side features: tables of what is known of ids, such as the age of users and the genres of items.

A table is a frame of pandas, polars or pyarrow or a dict of columns, one of which has the ids, or a
pair of ids and an array. Its columns become features, kept sparse (see ``fields``); how they do is
learned from the ids that have observations, so that a table of later ids is encoded alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from noisewise.data.fields import LARGEST, Field, learn_field, numbers_of
from noisewise.data.ids import Codes, Ids, from_frame, group_cells
from noisewise.data.tables import USUAL_IDS, plain_name
from noisewise.errors import (
    DataError,
    DataWarning,
    UnknownIdsWarning,
    listed,
    shortened,
    warn,
)

Tables: TypeAlias = Mapping[Any, Any]  # by mode, what is known of its ids

MOST_FEATURES = 100_000  # of a mode
FEW_KNOWN = 0.5  # share of ids with features from which on nobody is warned
ONE = "features"  # what columns of an array are called, before their number


@dataclass(frozen=True, eq=False)
class SideTable:
    """The features of the ids of a mode, which may be more than those that have observations."""

    fields: tuple[Field, ...]
    ids: Ids
    matrix: Any  # scipy's, a row for each id

    def __repr__(self) -> str:
        return f"SideTable({len(self.ids):,} {self.ids.name}, {len(self):,} features)"

    def __len__(self) -> int:
        return int(self.matrix.shape[1])

    @classmethod
    def learn(cls, table: Any, known: Ids, counts: NDArray[Any]) -> SideTable:
        """Learn from the known ids that have observations how a table becomes features."""
        ids, columns = taken_apart(table, known.name)
        places = ids.lookup(known.labels)[counts > 0]
        _check_match(ids, known, places)
        rows = places[places >= 0]
        learned = ((name, learn_field(name, _rows_of(c, rows))) for name, c in columns.items())
        found = [(name, field) for name, field in learned if field is not None]
        fields = tuple(field for _, field in found)
        if not fields:
            raise DataError(
                f"The features of {known.name} tell no two ids apart: columns "
                f"{listed(list(columns))} are the same for all, or different for each."
            )
        if sum(map(len, fields)) > MOST_FEATURES:
            sizes = {field.name: len(field) for field in fields}
            worst = max(sizes, key=sizes.__getitem__)
            raise DataError(
                f"The features of {known.name} are more than {MOST_FEATURES:,}; leave out columns, "
                f"such as {worst!r}, which alone are {sizes[worst]:,}."
            )
        return cls(fields, ids, encoded(fields, columns, len(ids)))

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """Where the features of each field begin, and where the last ones end."""
        return np.cumsum([0, *map(len, self.fields)])

    def rows(self, labels: Any) -> Any:
        """Return the features of ids; all are missing of an id that is not in the table."""
        nothing = encoded(self.fields, {field.name: None for field in self.fields}, 1)
        return scipy.sparse.vstack([self.matrix, nothing], format="csr")[self.places(labels)]

    def places(self, labels: Any) -> Codes:
        """Return where ids are in the table, -1 if they are not."""
        return self.ids.lookup(labels)

    def extended(self, table: Any) -> SideTable:
        """Return these features with those of more ids; an id given again has the new ones."""
        ids, columns = taken_apart(table, self.ids.name)
        self._warn_of_other_names(list(columns))
        matrix = encoded(self.fields, columns, len(ids))
        every, codes = self.ids.extend(ids.labels)
        order = np.empty(len(every), dtype=np.int64)
        order[: len(self.ids)] = np.arange(len(self.ids))
        order[codes] = len(self.ids) + np.arange(len(ids))
        both = scipy.sparse.vstack([self.matrix, matrix], format="csr")
        return replace(self, ids=every, matrix=both[order])

    def _warn_of_other_names(self, found: list[str]) -> None:
        """Warn where a column is lacking and there is another one: it may be misspelt."""
        names = [field.name for field in self.fields]
        lacking = [name for name in names if name not in found]
        others = [name for name in found if name not in names]
        if lacking and others and len(lacking) < len(names):
            warn(
                f"The features of {self.ids.name} lack the columns {listed(lacking)}, which are "
                f"taken to be missing, and have {listed(others)}, which the model does not know.",
                DataWarning,
            )

    def one(self, features: Mapping[str, Any]) -> Any:
        """Return the features of a single id, given by the names of columns."""
        if not isinstance(features, Mapping):
            raise DataError(
                "The features of one id are a dict, such as {'age': 30, 'gender': 'F'}; got "
                f"{shortened(repr(features))}."
            )
        columns = {name: _one_row(entry) for name, entry in features.items()}
        return encoded(self.fields, columns, 1)


def _one_row(entry: Any) -> Any:
    return entry[None] if isinstance(entry, np.ndarray) else [entry]


def encoded(fields: Sequence[Field], columns: Mapping[str, Any], n: int) -> Any:
    """Return the features of a table with these columns; one that it lacks is missing."""
    names = [field.name for field in fields]
    if not set(names) & set(columns):
        raise DataError(
            f"The features need columns {listed(names)}; found {listed(list(map(str, columns)))}."
        )
    parts = []
    for field in fields:
        column = columns.get(field.name)
        if column is None and field.kind == "array":
            column = np.full((n, len(field)), np.nan)
        elif field.kind == "array":
            column = _as_array(column, field, n)
        parts.append(field.encode([None] * n if column is None else column))
    return scipy.sparse.csr_array(scipy.sparse.hstack(parts, format="csr").astype(np.float32))


def _as_array(column: Any, field: Field, n: int) -> Any:
    if scipy.sparse.issparse(column) or (isinstance(column, np.ndarray) and column.ndim == 2):
        array = column
    else:
        array = numbers_of(column, field.name)[:, None]
    if array.shape != (n, len(field)):
        raise DataError(
            f"The feature {field.name!r} has {len(field)} numbers for each id; got an array of "
            f"shape {array.shape} for {n} ids."
        )
    return array


def taken_apart(table: Any, mode: str) -> tuple[Ids, dict[str, Any]]:
    """Return the ids of a table, each of which is there once, and its other columns by name."""
    labels, columns = _labels_and_columns(table, mode)
    ids, codes = Ids.encode(labels, mode)
    if not len(codes):
        raise DataError(f"The features of {mode} are empty: got 0 rows.")
    lengths = {name: _length(column) for name, column in columns.items()}
    for name, length in lengths.items():
        if length != len(codes):
            raise DataError(
                f"The features of {mode} need columns of one length; got {len(codes)} ids, and "
                f"{length} entries of {name!r}."
            )
    groups = group_cells([codes], [len(ids)])
    if groups is not None:
        start = groups.starts[groups.counts > 1][0]
        first, second = groups.order[start : start + 2].tolist()
        label = ids.labels.tolist()[codes[first]]
        raise DataError(
            f"The features of {mode} have the id {label!r} in rows {first} and {second}: give each "
            "id once."
        )
    order = np.argsort(codes)
    return ids, {name: _rows_of(column, order) for name, column in columns.items()}


def _labels_and_columns(table: Any, mode: str) -> tuple[Any, dict[str, Any]]:
    if isinstance(table, tuple | list) and len(table) == 2:
        return table[0], {ONE: _checked_array(table[1], mode)}
    frame = from_frame(table)
    if isinstance(frame, nw.DataFrame):
        columns = {str(name): frame[name] for name in frame.columns}
    elif isinstance(table, Mapping):
        columns = {str(name): column for name, column in table.items()}
    else:
        raise DataError(
            f"The features of {mode} must be a frame, a dict of columns, or a pair of ids and an "
            f"array; got {type(table).__name__}."
        )
    for name, column in columns.items():
        if getattr(column, "ndim", 1) == 2:
            columns[name] = _checked_array(column, mode)
    own = id_column(list(columns), mode)
    if own is not None:
        return columns.pop(own), columns
    index: Any = getattr(table, "index", None)
    named = type(index).__name__ not in ("RangeIndex", "MultiIndex")  # of pandas
    if isinstance(frame, nw.DataFrame) and hasattr(index, "to_numpy") and named:
        return index.to_numpy(), columns
    raise DataError(
        f"The features of {mode} need a column of ids called {mode!r} or 'id'; found "
        f"{listed(list(columns))}."
    )


def id_column(names: list[str], mode: str) -> str | None:
    """Return which column has the ids: the one called like the mode, in one of the usual ways."""
    usual: set[str] = next((some for some in USUAL_IDS if plain_name(mode) in some), set())
    for wanted in ({mode}, *([usual] if usual else []), {"id"}):
        found = [name for name in names if name in wanted or plain_name(name) in wanted]
        if len(found) == 1:
            return found[0]
    return None


def _checked_array(array: Any, mode: str) -> Any:
    """Return an array of features with numbers that are finite, or NaN where one is missing."""
    found = array.tocsr() if scipy.sparse.issparse(array) else np.asarray(array)
    if found.ndim != 2 or found.dtype.kind not in "biuf" or not found.shape[1]:
        raise DataError(
            f"The features of {mode} need an array of numbers, a row for each id; got "
            f"{found.dtype} of shape {found.shape}."
        )
    found = found.astype(np.float64)
    numbers = found.data if scipy.sparse.issparse(found) else found
    strange = np.isnan(numbers) if scipy.sparse.issparse(found) else np.isinf(numbers)
    if (strange | (np.abs(numbers) > LARGEST)).any():
        raise DataError(f"The features of {mode} must be finite numbers; some are not.")
    return found


def _check_match(ids: Ids, known: Ids, places: Codes) -> None:
    """Raise or warn where hardly an id that is trained on has features."""
    share = float(np.mean(places >= 0)) if len(places) else 0.0
    if share == 0.0:
        raise DataError(
            f"None of the {len(known):,} ids of {known.name} is among the {len(ids):,} that have "
            f"features: trained on is {known.labels.tolist()[0]!r}, in the features "
            f"{ids.labels.tolist()[0]!r}."
        )
    if share < FEW_KNOWN:
        warn(
            f"Only {share:.0%} of the ids of {known.name} have features; the others, such as "
            f"{known.labels.tolist()[np.flatnonzero(places < 0)[0]]!r}, are taken to have none.",
            UnknownIdsWarning,
        )


def _length(column: Any) -> int:
    return int(column.shape[0]) if hasattr(column, "shape") else len(column)


def _rows_of(column: Any, rows: NDArray[Any]) -> Any:
    if isinstance(column, nw.Series):
        column = column.to_list()
    if isinstance(column, np.ndarray) or scipy.sparse.issparse(column):
        return column[rows]
    entries = list(column)
    return [entries[k] for k in rows.tolist()]


def by_mode(features: Tables | None, names: Sequence[str]) -> dict[int, Any]:
    """Return tables by the number of their mode; modes have names, or are users and items."""
    if features is None:
        return {}
    if not isinstance(features, Mapping):
        raise DataError(
            "features must be a dict of tables by mode, such as {'user': users, 'item': items}; "
            f"got {type(features).__name__}."
        )
    found: dict[int, Any] = {}
    for name, table in features.items():
        mode = _mode_of(name, list(names))
        if mode in found:
            raise DataError(f"features has two tables of {names[mode]}; give one.")
        found[mode] = table
    return found


def _mode_of(name: Any, names: list[str]) -> int:
    if name in names:
        return names.index(name)
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(names):
        return name
    for mode, usual in enumerate(USUAL_IDS):
        if len(names) == 2 and plain_name(str(name)) in usual:
            return mode
    raise DataError(
        f"features has a table of {shortened(repr(name))}, but the ids are of {listed(names)}."
    )
