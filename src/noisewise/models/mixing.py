"""Mixes of models: how much each counts, so that together they err least on cells that were hidden.

Weights that are best on a few outages may be best by luck. So they are found again and again, with
outages that count more or less by chance (the Bayesian bootstrap), and their mean is taken: where
many cells tell who is best it is the best mix, and where few do it hedges.

Who is best near a reading may not be best in an outage. Models know that: their stds tell it. So,
where outages are many, a model counts more where it is surer than usual, beside the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import nnls

from noisewise.engine.arrays import Array, Ints

DRAWS = 50  # of what outages count
MOST = 4  # models of a mix
LEAST = 0.1  # of the largest weight, that another has at least
RIDGE = 1e-9  # share of the mean squared error, so that equal models share their weight
SUREST = 0.01  # of the mean std of all models, that one counts as having at least
SUM = 1e3  # times the root of the mean squared error: what a sum of weights that is not 1 costs


class Mix(NamedTuple):
    """Models by name, and how much each counts."""

    names: tuple[str, ...]
    weights: tuple[float, ...]  # their sum is 1
    by_std: bool = False  # whether a model counts more where it is surer than usual

    @classmethod
    def only(cls, name: str) -> Self:
        """Take one model."""
        return cls((name,), (1.0,))

    def of(self, parts: Sequence[Any], stds: Sequence[Any]) -> Array:
        """Return the mean of what the models say of cells, by weight, and maybe by std."""
        share = np.array(self.weights)[:, None]
        if self.by_std:
            share = shares(self.weights, stds, usual_stds(stds))
        return np.asarray((share * np.asarray(parts)).sum(axis=0))

    def __str__(self) -> str:
        if len(self.names) == 1:
            return self.names[0]
        pairs = zip(self.names, self.weights, strict=True)
        return ", ".join(f"{weight:.0%} {name}" for name, weight in pairs)


def usual_stds(stds: Sequence[Any]) -> tuple[float, ...]:
    """Return the std that each model usually has of cells, over the mean of all of them."""
    return tuple(_relative(stds).mean(axis=1).tolist())


def shares(weights: Sequence[float], stds: Sequence[Any], usual: Sequence[float]) -> Array:
    """Return how much each model counts for each cell; 1 together.

    That is its weight, times how much smaller its std is there than it is ``usual``.

    Examples
    --------
    >>> stds = ([0.1, 2.0], [1.0, 1.0])  # of two models: of a cell near a reading, and of one afar
    >>> shares((0.5, 0.5), stds, usual_stds(stds)).round(2).tolist()
    [[0.86, 0.23], [0.14, 0.77]]
    """
    surer = np.array(usual)[:, None] / _relative(stds)
    share = np.array(weights)[:, None] * surer
    return np.asarray(share / share.sum(axis=0))


def _relative(stds: Sequence[Any]) -> Array:
    """Return stds of models over their mean, ``SUREST`` at least; 1 where all of them are 0."""
    given = np.asarray(stds, dtype=np.float64)
    mean = given.mean(axis=0)
    relative = np.where(mean > 0.0, given / np.where(mean > 0.0, mean, 1.0), 1.0)
    return np.asarray(np.maximum(relative, SUREST))


def mixed(names: Sequence[str], away: Array, weight: Array, outage: Ints) -> Mix:
    """Return the mix of models that errs least, from errors of each on hidden cells.

    Parameters
    ----------
    names : sequence of str
    away : models x cells
        What models said, less the truth.
    weight : one for each cell
        How much it counts.
    outage : one for each cell
        The number of the outage that it belongs to.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(size=(3, 1000))
    >>> mix = mixed(["a", "b", "c"], noise * [[1.0], [1.0], [9.0]], np.ones(1000), np.arange(1000))
    >>> mix.names, bool(0.4 < mix.weights[0] < 0.6)
    (('a', 'b'), True)
    """
    if len(names) == 1:
        return Mix.only(names[0])
    products = _products(away, weight, outage)
    rng, total = np.random.default_rng(0), np.zeros(len(names))
    for _ in range(DRAWS):
        total += _least_squares(np.tensordot(rng.exponential(size=len(products)), products, axes=1))
    order = np.argsort(-total, kind="stable")[:MOST]
    kept = order[total[order] >= LEAST * total[order[0]]]
    weights = total[kept] / total[kept].sum()
    return Mix(tuple(names[k] for k in kept), tuple(weights.tolist()))


def _products(away: Array, weight: Array, outage: Ints) -> Array:
    """Return for every outage the products of errors of every two models, summed over its cells."""
    number = np.unique(outage, return_inverse=True)[1]
    n, many = len(away), int(number.max()) + 1
    out = np.empty((many, n, n))
    for i in range(n):
        for j in range(i, n):
            out[:, i, j] = np.bincount(number, weight * away[i] * away[j], many)
            out[:, j, i] = out[:, i, j]
    return out


def _least_squares(products: Array) -> Array:
    """Return weights, 0 or more and 1 together, whose mix has the least squared error."""
    n = len(products)
    size = float(np.trace(products)) / n
    if size <= 0.0:  # nobody errs
        return np.full(n, 1.0 / n)
    values, vectors = np.linalg.eigh(products / size)
    root = np.sqrt(np.maximum(values, RIDGE))[:, None] * vectors.T
    found = nnls(np.vstack([root, np.full(n, SUM)]), np.append(np.zeros(n), SUM))[0]
    return np.asarray(found / found.sum())
