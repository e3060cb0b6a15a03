"""Synthetic ratings of the shape of public datasets, made once and mapped by every process."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SIGNAL_RANK = 8

Numbers = npt.NDArray[np.int64]


class Shape(NamedTuple):
    """Size of a dataset, and how unequal its users and items are (sigma of a lognormal)."""

    users: int
    items: int
    ratings: int
    user_skew: float
    item_skew: float

    def shrunk(self, factor: int) -> Shape:
        """Return a smaller one, as dense, for a smoke test."""
        size = (self.users // factor, self.items // factor, self.ratings // factor**2)
        return Shape(*size, self.user_skew, self.item_skew)


SHAPES = {
    "ml-1m": Shape(6_040, 3_706, 1_000_209, 1.1, 1.5),
    "ml-10m": Shape(69_878, 10_677, 10_000_054, 1.2, 2.0),
}


def sized(n: int) -> Shape:
    """Return the shape of MovieLens 10M, as dense, with so many ratings."""
    whole = SHAPES["ml-10m"]
    side = (n / whole.ratings) ** 0.5
    users, items = (max(20, round(side * size)) for size in (whole.users, whole.items))
    return Shape(users, items, n, whole.user_skew, whole.item_skew)


class Ratings(NamedTuple):
    """One (user, item) pair per row, numbered from 0, and its value."""

    cells: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]


def ratings(shape: Shape, seed: int) -> Ratings:
    """Draw ratings: no cell twice, every user and item at least once, whole values of 1 to 5.

    Cells are drawn by the popularity of user and item; values are a bias of each, a signal of rank
    8 and noise. The order is random, as a split into training and test part leaves ratings.
    """
    rng = np.random.default_rng(seed)
    cells = _draw_cells(shape, rng)
    user, item = np.divmod(cells, shape.items)
    value = 3.5 + 0.4 * rng.standard_normal(shape.users)[user]
    value += 0.5 * rng.standard_normal(shape.items)[item]
    for _ in range(SIGNAL_RANK):
        left, right = rng.standard_normal(shape.users), rng.standard_normal(shape.items)
        value += 0.5 / np.sqrt(SIGNAL_RANK) * left[user] * right[item]
    value += rng.normal(0.0, 0.8, shape.ratings)
    order = rng.permutation(shape.ratings)
    pairs = np.column_stack([user, item]).astype(np.int32)
    return Ratings(pairs[order], np.clip(np.rint(value), 1, 5).astype(np.float32)[order])


def store(folder: Path, drawn: Ratings) -> None:
    """Write ratings to a folder."""
    folder.mkdir(parents=True)
    for name, array in drawn._asdict().items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


def load(folder: Path) -> Ratings:
    """Map ratings into memory, and touch every page of them."""
    mapped = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in Ratings._fields)
    loaded = Ratings(*map(np.asarray, mapped))
    for array in loaded:
        array.max()
    return loaded


def _draw_cells(shape: Shape, rng: np.random.Generator) -> Numbers:
    """Return distinct cells as ``user * items + item``, sorted."""
    longer = np.arange(max(shape.users, shape.items))
    cells = np.sort(longer % shape.users * shape.items + longer % shape.items)
    user_weight = rng.lognormal(0.0, shape.user_skew, shape.users)
    item_weight = rng.lognormal(0.0, shape.item_skew, shape.items)
    while (missing := shape.ratings - len(cells)) > 0:
        n = 2 * missing  # as popular cells come up again
        user, item = _draw(user_weight, n, rng), rng.permutation(_draw(item_weight, n, rng))
        drawn = _distinct(user * shape.items + item)
        at = np.minimum(np.searchsorted(cells, drawn), len(cells) - 1)
        new = rng.permutation(drawn[cells[at] != drawn])[:missing]
        cells = np.sort(np.append(cells, new))
    return cells


def _draw(weight: npt.NDArray[np.float64], n: int, rng: np.random.Generator) -> Numbers:
    """Draw n numbers in proportion to their weights, sorted."""
    return np.repeat(np.arange(len(weight)), rng.multinomial(n, weight / weight.sum()))


def _distinct(numbers: Numbers) -> Numbers:
    """Sort and compare neighbours: on tens of millions, a hash table is a hundred times slower."""
    numbers = np.sort(numbers)
    new: Numbers = numbers[np.append(True, numbers[1:] != numbers[:-1])]
    return new
