"""Simple rivals of ratings: what is popular, and what is like what a user has rated (item-kNN).

Both predict ratings by biases, shrunk to zero where a row has few observations,

    mean_ij = mu + b_i + b_j (+ what neighbours of j among the items of i say)

and rank for a list what is most likely to be rated, not what would be rated highest.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_is_fitted

from noisewise import schema
from noisewise.data import Observations, encode_ids, observe
from noisewise.data.ids import Seen
from noisewise.engine.arrays import Array, Codes, Counts, Floats, Ints, Moments
from noisewise.errors import DataError, too_coarse
from noisewise.models import learner
from noisewise.models.base import Cells, Factorizer, at_one_moment, in_one_step
from noisewise.models.lists import Recommendation
from noisewise.recommend import as_candidates
from noisewise.schema import Entry, Found, Schema, Tensor
from noisewise.settings import check, learned, number, setting, settings, whole
from noisewise.storage import Damaged

SHRINKAGE = (15.0, 10.0)  # observations that say a user's, or an item's, bias is zero
LEAST = 1e-6  # share of the variance of all values that noise has at least
HELD_OUT = 0.1  # share of ratings that calibrate the std, before all are learned from
BLOCK = 256  # items whose neighbours are looked for at the same time, users who are ranked for
CELLS = 8_192  # that are predicted at the same time


@settings
class Simple(Factorizer):
    """Base class of rivals that keep ratings as they are: biases, and who has rated what."""

    counts_: tuple[Counts, ...] = learned("Observations of every row of both modes.")
    biases_: tuple[Array, ...] = learned("Biases of every row of both modes, shrunk to zero.")
    location_: float = learned("The mean of all values.")
    noise_: float = learned("Variance of values around their predictions.")
    spread_: Array = learned("Variance of the biases of each mode.")
    seen_: Seen = learned("Which cells were trained on, for ``recommend`` to leave them out.")
    seconds_: float = learned("Time that fit took.")

    @abstractmethod
    def _learn(self, seen: Observations) -> Array:
        """Learn what is beyond biases, and return the errors of all predictions."""

    @abstractmethod
    def _scores(self, rows: Codes) -> Array:
        """Return how likely users are to rate each item, in any unit; -1 is a user never seen."""

    @abstractmethod
    def _mean(self, users: Codes, items: Codes) -> Array:
        """Predict cells of rows in float64; -1 is an id never seen."""

    @in_one_step
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a table of ids and a value for each row, as ``DeviationFactorizer`` does."""
        started = time.perf_counter()
        check(self)
        seen = observe(X, y, duplicates=self.duplicates)
        learner.refuse_weight(self, seen)
        if seen.n_modes != 2:
            raise DataError(f"X must have 2 id columns here; got {seen.n_modes}.")
        learner.warn_if_alike(seen)
        self.ids_, self.calibration_ = seen.ids, None
        self.value_range_ = learner.range_of(self.value_range, seen)
        kept, held_out = learner.hold_out(seen, None, HELD_OUT, seed=0)
        self._fit(kept)
        if held_out is not None:  # says how far std and intervals must reach
            self.calibrate(held_out)
            self._fit(seen)
        self._note_columns(X)
        self.seconds_ = time.perf_counter() - started
        return self

    def _fit(self, seen: Observations) -> None:
        self.counts_ = learner.count_rows(seen)
        values = seen.values.astype(np.float64)
        self.location_ = float(values.mean())
        self.seen_ = Seen.of(seen.codes, seen.shape)
        left, biases, spread = values - self.location_, [], []
        for mode in (1, 0):  # items first: they have more ratings each
            codes, count = seen.codes[mode], self.counts_[mode]
            bias = np.bincount(codes, left, len(count)) / (count + SHRINKAGE[mode])
            left = left - bias[codes]
            biases.append(bias)
            spread.append(float(np.average(bias**2, weights=count > 0)))
        self.biases_, self.spread_ = tuple(reversed(biases)), np.array(spread[::-1])
        least = LEAST * (float(values.var()) or max(self.location_**2, 1.0))
        self.noise_ = max(float(np.mean(self._learn(seen) ** 2)), least)

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        users, items = encode_ids(X, self.ids_)
        return self._cells(users, items)

    def _cells(self, users: Codes, items: Codes) -> Cells:
        epistemic = np.zeros(len(users))
        for mode, codes in enumerate((users, items)):
            count = np.where(codes < 0, 0, self.counts_[mode][codes])
            epistemic += self.spread_[mode] * SHRINKAGE[mode] / (count + SHRINKAGE[mode])
        mean = self._means(users, items)
        parts = mean, np.full(len(mean), self.noise_), epistemic
        coarse = too_coarse(abs(self.location_), math.sqrt(self.noise_))
        kind: Any = np.float64 if coarse else np.float32
        moments = Moments(*(part.astype(kind) for part in parts))
        return Cells(moments, (users < 0) | (items < 0))

    def _means(self, users: Codes, items: Codes) -> Array:
        """Predict cells chunk by chunk."""
        chunks = [slice(k, k + CELLS) for k in range(0, len(users), CELLS)]
        return np.concatenate([np.empty(0), *(self._mean(users[c], items[c]) for c in chunks)])

    def recommend(
        self,
        id: Any,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        candidates: Iterable[Any] | None = None,
    ) -> list[Recommendation]:
        """Recommend to one user the n items that they are most likely to rate.

        Parameters
        ----------
        id : hashable
            A user. One never seen gets what is popular.
        n : int
            How many.
        exclude_seen : bool
            Leave out what the user was trained with.
        candidates : iterable of ids, optional
            Rank only these.
        """
        (best,) = self.recommend_many([id], n, exclude_seen=exclude_seen, candidates=candidates)
        return best

    @at_one_moment
    def recommend_many(
        self,
        ids: Sequence[Any],
        n: int = 10,
        *,
        exclude_seen: bool = True,
        candidates: Iterable[Any] | None = None,
    ) -> list[list[Recommendation]]:
        """Recommend to many users, each as ``recommend`` would."""
        check_is_fitted(self)
        whole(1).require("n", n)
        users, labels = self.ids_[0].lookup(ids), self.ids_[1].labels
        barred = self.counts_[1] == 0
        named = as_candidates(candidates)
        if named is not None:
            wanted = self.ids_[1].lookup(named)
            barred = barred | ~np.isin(np.arange(len(barred)), wanted)
        lists = []
        for start in range(0, len(users), BLOCK):
            rows = users[start : start + BLOCK]
            for user, score in zip(rows.tolist(), self._scores(rows), strict=True):
                score[barred] = -np.inf
                if exclude_seen:
                    score[self.seen_.of_row(user)] = -np.inf
                best = np.argsort(-score, kind="stable")[:n]
                lists.append(best[np.isfinite(score[best])])
        ends = np.cumsum([0, *map(len, lists)]).tolist()
        items = np.concatenate([np.empty(0, dtype=np.int64), *lists]).astype(np.int32)
        cells = self._cells(np.repeat(users, np.diff(ends)), items)
        mean, noise, epistemic = self.finished(cells)
        columns = labels[items], mean, np.sqrt(noise + epistemic)
        found = [Recommendation(*one) for one in zip(*(c.tolist() for c in columns), strict=True)]
        return [found[a:b] for a, b in pairwise(ends)]

    def _biases(self, mode: int, codes: Codes) -> Array:
        return np.where(codes < 0, 0.0, self.biases_[mode][codes])

    def schema(self) -> Schema:
        """Declare what a file keeps: biases, and which cells were trained on."""
        if len(self.ids_) != 2:
            raise Damaged(f"it must have 2 modes, but has {len(self.ids_)}")
        yield from super().schema()
        rows, columns = map(len, self.ids_)
        yield Entry("location", "location_", schema.real())
        yield Entry("noise", "noise_", schema.real(above=0.0))
        yield Entry("seconds", "seconds_", schema.real())
        yield Tensor("spread", "float64", (2,), "spread_", schema.NOT_NEGATIVE)
        for mode, n in enumerate((rows, columns)):
            yield Tensor(f"mode{mode}.biases", "float64", (n,), f"biases_.{mode}")
            yield Tensor(f"mode{mode}.counts", "int64", (n,), f"counts_.{mode}", schema.COUNTS)
        starts = yield Tensor("seen.starts", "int64", (rows + 1,), "seen_.starts", schema.STARTS)
        size = (int(starts[-1]),)
        yield Tensor("seen.columns", "int32", size, "seen_.columns", schema.below(columns))

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        self.seen_ = Seen(found["seen.starts"], found["seen.columns"])
        self.biases_, self.counts_ = (
            tuple(found[f"mode{mode}.{name}"] for mode in (0, 1)) for name in ("biases", "counts")
        )


@settings
class Popularity(Simple):
    """Recommend what most users have rated; predict the mean of an item, shrunk to that of all.

    Examples
    --------
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Alien", 1), ("bob", "M", 5)]
    >>> [one.id for one in Popularity().fit(ratings).recommend("eve", 1)]
    ['Alien']
    """

    def _learn(self, seen: Observations) -> Array:
        return seen.values - self._means(*seen.codes)

    def _scores(self, rows: Codes) -> Array:
        return np.tile(self.counts_[1].astype(np.float64), (len(rows), 1))

    def _mean(self, users: Codes, items: Codes) -> Array:
        return self.location_ + self._biases(1, items)


class Neighbours(NamedTuple):
    """Items next to item i: ``columns[starts[i]:starts[i + 1]]``, and how much they are like it."""

    starts: Ints
    columns: Codes
    weights: Floats

    @classmethod
    def of(cls, parts: list[scipy.sparse.csr_array]) -> Neighbours:
        """Put rows one below another."""
        whole = scipy.sparse.vstack(parts, format="csr")
        return cls(
            whole.indptr.astype(np.int64), whole.indices.astype(np.int32),
            whole.data.astype(np.float32),
        )  # fmt: skip

    def matrix(self) -> scipy.sparse.csr_array:
        """Return them as a sparse matrix, a row per item."""
        n = len(self.starts) - 1
        return scipy.sparse.csr_array((self.weights, self.columns, self.starts), shape=(n, n))


@settings
class ItemKNN(Simple):
    """Nearest neighbours of items: what a user thinks of those of them that they have rated.

    Ratings are predicted from what biases leave of the user's own, weighted by shrunk Pearson
    correlations of items. Lists are ranked by the sum of cosines between the sets of users of an
    item and of those that the user has rated.

    Examples
    --------
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Alien", 1), ("bob", "M", 5)]
    >>> model = ItemKNN().fit([*ratings, ("cat", "M", 4), ("cat", "Brazil", 2), ("cat", "Jaws", 3)])
    >>> [one.id for one in model.recommend("ann", 2)]
    ['M', 'Jaws']
    """

    neighbours: int = setting(whole(1), "Neighbours that every item has, at most.", default=30)
    shrinkage: float = setting(
        number(least=0.0),
        "Users that say two items have nothing to do with each other.",
        default=50.0,
    )

    values_: Floats = learned("What biases leave of the value of every cell that was seen.")
    ratings_: Neighbours = learned("Correlations of ratings with those of neighbours.")
    sets_: Neighbours = learned("Cosines of sets of users with those of neighbours.")

    def _learn(self, seen: Observations) -> Array:
        left = seen.values - self.location_
        left = left - self._biases(0, seen.codes[0]) - self._biases(1, seen.codes[1])
        R = scipy.sparse.csr_array((left, seen.codes), shape=seen.shape)
        R.sort_indices()
        self.values_ = R.data.astype(np.float32)
        self.ratings_, self.sets_ = nearest(R, self.neighbours, self.shrinkage)
        return seen.values - self._means(*seen.codes)

    def _sparse(self, values: Any, rows: Codes) -> scipy.sparse.csr_array:
        """Return rows of users, with a value for every item that they have rated."""
        shape = tuple(map(len, self.ids_))
        whole = scipy.sparse.csr_array((values, self.seen_.columns, self.seen_.starts), shape=shape)
        own = whole[np.maximum(rows, 0)]
        return scipy.sparse.csr_array(own.multiply((rows >= 0)[:, None]))

    def _scores(self, rows: Codes) -> Array:
        sets = self._sparse(np.ones_like(self.values_), rows)
        likely = (sets @ self.sets_.matrix().T).toarray()
        popular = self.counts_[1] / self.counts_[1].max()
        return np.asarray(likely + LEAST * popular)  # which decides where no neighbour was rated

    def _mean(self, users: Codes, items: Codes) -> Array:
        base = self.location_ + self._biases(0, users) + self._biases(1, items)
        near = self.ratings_.matrix()[np.maximum(items, 0)]
        said, weight = (
            np.asarray(near.multiply(self._sparse(values, users)).sum(axis=1))
            for values in (self.values_, np.ones_like(self.values_))
        )
        told = (weight > 0) & (items >= 0)
        return np.asarray(base + np.where(told, said / np.where(told, weight, 1.0), 0.0))

    def schema(self) -> Schema:
        """Declare what a file keeps: also what biases leave, and neighbours."""
        yield from super().schema()
        items = len(self.ids_[1])
        size = (int((yield Entry("cells", lambda m: len(m.values_), schema.integer()))),)
        yield Tensor("values", "float32", size, "values_")
        for name in ("ratings", "sets"):
            place = f"{name}_"
            starts = yield Tensor(
                f"{name}.starts", "int64", (items + 1,), f"{place}.starts", schema.STARTS
            )
            size, below = (int(starts[-1]),), schema.below(items)
            yield Tensor(f"{name}.columns", "int32", size, f"{place}.columns", below)
            yield Tensor(f"{name}.weights", "float32", size, f"{place}.weights", schema.POSITIVE)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        if len(self.values_) != len(self.seen_.columns):
            raise Damaged("it must have a value for every cell that was seen")
        self.ratings_, self.sets_ = (Neighbours(**found.part(n)) for n in ("ratings", "sets"))


def nearest(
    R: scipy.sparse.csr_array, many: int, shrinkage: float
) -> tuple[Neighbours, Neighbours]:
    """Return the items most like each other by their ratings, and by who has rated them at all.

    R has what biases leave of every rating. Only what is above 0 counts as like.
    """
    seen = R.copy()
    seen.data = np.ones_like(R.data)
    squares, count = R.power(2), np.asarray(seen.sum(axis=0))
    by_ratings: list[scipy.sparse.csr_array] = []
    by_sets: list[scipy.sparse.csr_array] = []
    for start in range(0, R.shape[1], BLOCK):
        own = np.arange(start, min(start + BLOCK, R.shape[1]))
        both = (seen[:, own].T @ seen).toarray()
        product = (R[:, own].T @ R).toarray()
        size = (squares[:, own].T @ seen).toarray() * (seen[:, own].T @ squares).toarray()
        correlation = product / np.sqrt(np.maximum(size, np.finfo(np.float64).tiny))
        correlation *= both / (both + shrinkage + np.finfo(np.float64).tiny)
        cosine = both / np.sqrt(np.maximum(np.outer(count[own], count), 1.0))
        for found, like in ((by_ratings, correlation), (by_sets, cosine)):
            like[np.arange(len(own)), own] = 0.0
            found.append(_largest(like, many))
    return Neighbours.of(by_ratings), Neighbours.of(by_sets)


def _largest(like: Array, many: int) -> scipy.sparse.csr_array:
    """Keep the largest numbers of every row that are above 0, and of equal ones the first."""
    order = np.argsort(-like, axis=1, kind="stable")[:, :many]
    kept = np.take_along_axis(like, order, axis=1)
    rows, places = np.nonzero(kept > np.finfo(np.float32).tiny)
    cells = rows, order[rows, places]
    found = scipy.sparse.csr_array((kept[rows, places], cells), shape=like.shape)
    found.sort_indices()
    return found
