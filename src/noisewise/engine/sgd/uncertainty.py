"""How little is known of a row, from the number of its observations alone.

A point estimate has no posterior, but its row lies in a population that has a spread. Were a row
``f`` drawn from its population, with covariance ``C``, and then seen ``n`` times through rows ``x``
of the other mode with noise of variance ``v``, its posterior covariance would be, on average,

    (C**-1 + n / v * E[x x'])**-1  =  T diag(1 / (1 + n * strength)) T'

A cell with row ``x`` has ``x' T diag(...) T' x`` of variance that comes from not knowing ``f``.
Kept are two numbers per row: ``spread = x' C x``, the variance for an id never seen, and ``shrink``
in [0, 1], the share of it that is left after n observations.

With more than two modes, ``x`` is the product of the rows of all other modes, element by element.
There are too many of these to keep a spread for each, so it is worked out for the cells that are
asked for, from the covariance of every mode. As modes are taken to be independent, ``E[x x']`` is
the product of ``E[y y']`` over rows ``y`` of each of the others; the same stands for a mode whose
row was never seen, and is kept too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh, eigvalsh

from noisewise.engine.arrays import Codes, Counts, Floats
from noisewise.engine.sgd.tensor_kernels import multiply, quadratic
from noisewise.engine.sgd.vectors import LANES

Array = npt.NDArray[np.float64]
CHUNK = 8192  # rows that are worked on in float64 at a time


class Population(NamedTuple):
    """The rows of one mode of two, and what they are looked at through.

    Attributes
    ----------
    centre, covariance
        Of rows that were observed, the bias last.
    seen_through
        Mean of x x' over rows x of the other mode, as often as they were observed.
    """

    centre: Array
    covariance: Array
    seen_through: Array

    @classmethod
    def of(cls, own: Floats, counts: Counts, other: Floats, other_counts: Counts) -> Population:
        """Measure it; rows and counts as in ``spread_and_shrink``."""
        known = counts > 0
        weight = other_counts / max(other_counts.sum(), 1)
        return cls(
            known / max(known.sum(), 1) @ own,
            _covariance(own, counts),
            _moments(_seen_through(other), weight),
        )


class Spread(NamedTuple):
    """What not knowing the rows of one mode means; the last entry is that of an id never seen."""

    spread: Floats  # of every row of the other mode
    shrink: Floats  # of every row of the mode itself


def spread_and_shrink(
    own: Floats, counts: Counts, other: Floats, other_counts: Counts, noise: float
) -> Spread:
    """Measure what not knowing the rows of ``own`` does to cells.

    Parameters
    ----------
    own, other
        Rows ``[mean factors, bias]`` of two modes.
    counts, other_counts
        Observations of every row.
    noise
        Typical variance of the noise.
    """
    root = np.linalg.cholesky(_covariance(own, counts))
    weight = other_counts / max(other_counts.sum(), 1)
    strength, vectors = eigh(root.T @ _moments(_seen_through(other), weight) @ root / noise)

    turned = root @ vectors
    spread = np.empty(len(other))
    typical = np.zeros(len(strength))
    for part in _chunks(len(other)):
        parts = (_seen_through(other[part]) @ turned) ** 2
        spread[part] = parts.sum(axis=1)
        typical += weight[part] @ parts
    return Spread(
        np.append(spread, spread[other_counts > 0].mean()).astype(np.float32),
        _shrink(counts, typical, strength),
    )


def of_modes(
    rows: Sequence[Floats], counts: Sequence[Counts], noise: float
) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Measure what ``of_cells`` needs of three modes or more.

    Parameters
    ----------
    rows
        Per mode, rows ``[mean factors, bias]``.
    counts
        Per mode, observations of every row.
    noise
        Typical variance of the noise.

    Returns
    -------
    spread
        Per mode, covariance of its rows, and what stands for a row of it that was never seen.
    shrink
        Per mode, of every row and of one never seen.
    """
    covariances = [_covariance(own, count) for own, count in zip(rows, counts, strict=True)]
    unseen, typical = [], []
    for own, count in zip(rows, counts, strict=True):
        x = _seen_through(own)
        unseen.append(_moments(x, (count > 0) / max((count > 0).sum(), 1)))
        typical.append(_moments(x, count / max(count.sum(), 1)))
    shrink = []
    for m, covariance in enumerate(covariances):
        root = np.linalg.cholesky(covariance)
        seen = np.prod(typical[:m] + typical[m + 1 :], axis=0)
        strength = eigvalsh(root.T @ seen @ root / noise)
        shrink.append(_shrink(counts[m], noise * strength, strength))
    pairs = zip(covariances, unseen, strict=True)
    return tuple(np.stack(pair).astype(np.float32) for pair in pairs), tuple(shrink)


def of_cells(
    rows: Sequence[Floats],
    n_mean: int,
    spread: Sequence[Floats],
    shrink: Sequence[Floats],
    codes: Sequence[Codes],
) -> Floats:
    """Variance of cells that comes from not knowing their rows.

    Parameters
    ----------
    rows
        Per mode, packed rows; the last is that of an id never seen.
    n_mean
        Columns of a packed row that hold mean factors, padding included.
    spread, shrink
        As ``of_modes`` measured them.
    codes
        Per mode, the row of every cell.
    """
    unseen = np.zeros(len(codes[0]), dtype=np.int64)  # a bit for every mode
    for m, code in enumerate(codes):
        unseen |= (code == len(rows[m]) - 1).astype(np.int64) << m
    variance = np.zeros(len(codes[0]), dtype=np.float32)
    start = np.zeros(n_mean + LANES, dtype=np.float32)
    start[: n_mean + 1] = 1.0  # the last multiplies the bias
    for kind in np.unique(unseen).tolist():
        cells = np.flatnonzero(unseen == kind)
        for m, own in enumerate(codes):
            x, form = np.tile(start, (len(cells), 1)), spread[m][0]
            for other, code in enumerate(codes):
                if other != m and kind >> other & 1:
                    form = form * spread[other][1]
                elif other != m:
                    multiply(x, rows[other], code[cells], n_mean)
            variance[cells] += shrink[m][own[cells]] * quadratic(x, _laid_out(form, n_mean))
    return variance


def _laid_out(form: Floats, n_mean: int) -> Floats:
    """Return a form as ``quadratic`` takes it: padded like rows, with one triangle twice."""
    places = np.append(np.arange(len(form) - 1), n_mean)
    padded = np.zeros((n_mean + LANES, n_mean + LANES), dtype=np.float32)
    padded[np.ix_(places, places)] = np.triu(form) + np.triu(form, 1)
    return padded


def _covariance(rows: Floats, counts: Counts) -> Array:
    """Covariance of rows that were observed; it can be inverted."""
    covariance = _moments(rows, (counts > 0) / max((counts > 0).sum(), 1), centred=True)
    covariance += np.eye(len(covariance)) * max(1e-9 * np.trace(covariance), 1e-12)
    return covariance


def _shrink(counts: Counts, typical: Array, strength: Array) -> Floats:
    """Share of the variance that is left after so many observations, and of one never seen."""
    kinds, where = np.unique(counts, return_inverse=True)
    left = typical / (1.0 + kinds[:, None] * np.maximum(strength, 0.0))
    shrink = left.sum(axis=1) / max(typical.sum(), 1e-30)
    return np.append(shrink[where], 1.0).astype(np.float32)


def _seen_through(rows: Floats) -> Floats:
    """Return what multiplies the row that is not known: the factors, and 1 for its bias."""
    x = rows.copy()
    x[:, -1] = 1.0
    return x


def _moments(rows: Floats, weight: Array, *, centred: bool = False) -> Array:
    """Weighted second moments, or covariance, of rows; in float64, a chunk at a time."""
    mean = weight @ rows if centred else 0.0
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for part in _chunks(len(rows)):
        x = rows[part] - mean
        total += (x * weight[part, None]).T @ x
    return total


def _chunks(n: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, n, CHUNK)]
