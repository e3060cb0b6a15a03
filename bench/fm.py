"""Ratings as a factorization machine of myFM sees them.

A column of the main table or of a relation block is a feature. A block holds a row for each user
(or item) once, however many ratings they have: that is what makes myFM fast on sets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, diags_array, eye_array, hstack
from scipy.special import ndtr

DAY = 86_400  # seconds

Numbers = npt.NDArray[np.int64]


class Features(NamedTuple):
    """What ``fit`` and ``predict`` of myFM are given, with the size of every group of features."""

    table: csr_matrix | None
    blocks: list[Any]
    groups: list[int]


def ids_only(user: Numbers, item: Numbers) -> Features:
    """User and item, one feature for each: Bayesian matrix factorization with biases."""
    sizes = [int(code.max()) + 1 for code in (user, item)]
    identities = [csr_matrix(eye_array(size)) for size in sizes]
    return Features(None, _blocks((user, item), identities), sizes)


class Extended:
    """User, item, day, the items of the user and the users of the item, as seen in training.

    These are the features of the best result that is published for myFM on MovieLens 1M. A day, a
    user or an item that was not in training has no feature.

    Parameters
    ----------
    user, item : codes of the training ratings
    time : unix seconds of the training ratings
    shape : number of users and of items
    """

    def __init__(self, user: Numbers, item: Numbers, time: Numbers, shape: tuple[int, int]) -> None:
        seen = csr_matrix((np.ones(len(user)), (user, item)), shape=shape)
        self.rows = [_own_and_set(seen), _own_and_set(csr_matrix(seen.T))]
        self.days = np.unique(time // DAY)
        self.groups = [len(self.days), shape[0], shape[1], shape[1], shape[0]]

    def of(self, user: Numbers, item: Numbers, time: Numbers) -> Features:
        """Return the features of some ratings."""
        day = time // DAY
        place = np.searchsorted(self.days, day).clip(max=len(self.days) - 1)
        known = np.flatnonzero(self.days[place] == day)
        one_hot = (np.ones(len(known)), (known, place[known]))
        table = csr_matrix(one_hot, shape=(len(day), len(self.days)))
        return Features(table, _blocks((user, item), self.rows), self.groups)


class Described:
    """User and item, one feature for each that was in training, and side features of both.

    Parameters
    ----------
    tables : side features of users and of items, as noisewise encodes them
    ids : ids of users and of items that were in training
    """

    def __init__(self, tables: list[Any], ids: Any) -> None:
        self.tables, self.ids, self.rows, self.groups = tables, ids, [], []
        for table, known in zip(tables, ids, strict=True):
            places = table.places(known.labels)
            own = csr_matrix(
                (np.ones(len(known)), (places, np.arange(len(known)))),
                shape=(len(table.ids), len(known)),
            )
            self.rows.append(csr_matrix(hstack([own, table.matrix.astype(np.float64)])))
            self.groups += [len(known), *map(len, table.fields)]

    def of(self, cells: npt.NDArray[Any]) -> Features:
        """Return the features of some cells, given by ids that the tables have."""
        codes = tuple(
            table.places(column).astype(np.int64)
            for table, column in zip(self.tables, cells.T, strict=True)
        )
        return Features(None, _blocks(codes, self.rows), self.groups)


def chances_of(model: Any, asked: Features) -> npt.NDArray[np.float64]:
    """Return what ``predict_proba`` of an ordered probit does, from the same draws.

    The same to the last digits, but ``predict_proba`` took longer than the fit on MovieLens 1M.
    """
    parts = [] if asked.table is None else [(slice(None), asked.table)]
    parts += [
        (np.asarray(block.original_to_block), csr_matrix(block.data)) for block in asked.blocks
    ]
    total = 0.0
    samples = model.predictor_.samples
    for sample in samples:
        below = ndtr(np.asarray(sample.cutpoints[0]) - _score(sample, parts)[:, None])
        edges = np.pad(below, ((0, 0), (1, 1)), constant_values=(0.0, 1.0))
        total = total + np.diff(edges, axis=1)
    return np.asarray(total / len(samples))


def _score(sample: Any, parts: list[tuple[Any, csr_matrix]]) -> npt.NDArray[np.float64]:
    """Return the value that the cut-points cut: linear terms, and products of all pairs."""
    linear, sums, first = sample.w0, 0.0, 0
    for rows, features in parts:
        own = slice(first, first + features.shape[1])
        weights, factors = np.asarray(sample.w)[own], np.asarray(sample.V)[own]
        alone = features @ weights - 0.5 * (features.multiply(features) @ (factors**2).sum(axis=1))
        linear = linear + alone[rows]
        sums = sums + (features @ factors)[rows]
        first = own.stop
    return np.asarray(linear + 0.5 * (sums**2).sum(axis=1))


def _own_and_set(seen: csr_matrix) -> csr_matrix:
    """A row for each id: itself, and its set divided by the root of the set's size."""
    size = np.asarray(seen.sum(axis=1)).ravel()
    own = diags_array((size > 0).astype(float))
    rows = hstack([own, diags_array(1 / np.sqrt(np.maximum(size, 1))) @ seen], format="csr")
    rows.eliminate_zeros()
    return csr_matrix(rows)


def _blocks(codes: tuple[Numbers, ...], rows: list[csr_matrix]) -> list[Any]:
    from myfm import RelationBlock

    return [RelationBlock(code, row) for code, row in zip(codes, rows, strict=True)]
