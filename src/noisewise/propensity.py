"""Which items a user is likely to take up next, by who has rated what: a linear model of sets.

A rating says how much somebody liked what they chose; a list should also know what they choose. X
has a 1 for every cell that was seen. B, with zeros on its diagonal, predicts every item of a set
from the others (EASE, Steck 2019):

    min |X - X B|^2 + penalty |B|^2,   B = I - P / diag(P),   P = (X'X + penalty I)^-1
"""

from __future__ import annotations

import threading
import weakref
from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.linalg import get_lapack_funcs

from noisewise.data.ids import Seen
from noisewise.engine.arrays import Array, Codes, Floats
from noisewise.errors import DivergedError

PENALTY = 2.0  # times the number of observations of an item, in the mean
MOST_ITEMS = 10_000  # that tell of each other: those that were seen most
LEAST = 1e-3  # that the model adds for an item which everybody has seen, and less for others


class Propensity(NamedTuple):
    """How likely users are to take up each item, given the set that they have."""

    items: Codes  # that tell of each other
    weights: Floats  # B, for these
    popularity: Array  # share of users who have seen each item

    @classmethod
    def of(cls, seen: Seen, n_items: int) -> Propensity:
        """Learn from all sets.

        Examples
        --------
        >>> users, items = np.array([0, 0, 1, 1, 2, 2, 3]), np.array([0, 1, 0, 1, 2, 3, 2])
        >>> sets = Seen.of((users, items), (4, 4))
        >>> int(Propensity.of(sets, 4).scores([np.array([0])])[0, 1:].argmax())  # of items 1 to 3
        0
        """
        rows, columns = seen.cells()
        count = np.bincount(columns, minlength=n_items)
        items = np.sort(
            np.argsort(-count, kind="stable")[: min(MOST_ITEMS, int((count > 0).sum()))]
        )
        place = np.full(n_items, -1)
        place[items] = np.arange(len(items))
        told = place[columns] >= 0
        shape = (len(seen.starts) - 1, len(items))
        ones = np.ones(int(told.sum()))
        X = scipy.sparse.csr_array((ones, (rows[told], place[columns[told]])), shape=shape)
        gram = (X.T @ X).toarray()
        gram[np.diag_indices(len(items))] += PENALTY * count[items].mean()
        P = _inverse(gram)
        weights = -P / np.diag(P)
        weights[np.diag_indices(len(items))] = 0.0
        return cls(items.astype(np.int32), weights.astype(np.float32), count / shape[0])

    def scores(self, sets: list[Codes]) -> Array:
        """Return a row of scores above 0 for every set of items."""
        place = np.full(len(self.popularity), -1)
        place[self.items] = np.arange(len(self.items))
        starts = np.cumsum([0, *map(len, sets)])
        columns = place[np.concatenate([np.empty(0, dtype=np.int32), *sets])]
        told = (columns >= 0).astype(np.float32)
        shape = (len(sets), len(self.items))
        X = scipy.sparse.csr_array((told, np.maximum(columns, 0), starts), shape=shape)
        found = np.tile(LEAST * np.maximum(self.popularity, 1e-9), (len(sets), 1))
        found[:, self.items] += np.maximum(X @ self.weights, 0.0)
        return found


_KNOWN: dict[int, Propensity] = {}  # by the address of the columns that were seen
_LOCK = threading.Lock()


def propensity_of(seen: Seen, n_items: int) -> Propensity:
    """Return what was learned from sets; it is kept for as long as the sets are."""
    key = id(seen.columns)
    with _LOCK:
        if key not in _KNOWN:
            _KNOWN[key] = Propensity.of(seen, n_items)
            weakref.finalize(seen.columns, _KNOWN.pop, key, None)
        return _KNOWN[key]


def _inverse(gram: Array) -> Array:
    """Return the inverse of a positive definite matrix."""
    potrf, potri = get_lapack_funcs(("potrf", "potri"), (gram,))
    root, failed = potrf(gram, lower=True, clean=True)
    inverse, failed_too = potri(root, lower=True)
    if failed or failed_too:
        raise DivergedError("What users have seen could not be learned from: its sums overflow.")
    lower = np.tril(inverse)
    return np.asarray(lower + np.tril(inverse, -1).T)
