"""How little is known of a row, from the number of its observations alone.

Were a row ``f`` drawn from its population, with covariance ``C``, and then seen ``n`` times through
rows ``x`` of the other mode with noise of variance ``v``, its posterior covariance would be, on
average, ``(C**-1 + n / v * E[x x'])**-1 = T diag(1 / (1 + n * strength)) T'``. Kept are two numbers
per row: ``spread = x' C x``, the variance for an id never seen, and ``shrink`` in [0, 1], the share
of it that is left after n observations.

With more than two modes, ``x`` is the product of the rows of all others, too many to keep a spread
for each: it is worked out for the cells that are asked for. As modes are taken to be independent,
``E[x x']`` is the product of ``E[y y']`` over rows ``y`` of each of the others; the same stands for
a mode whose row was never seen, and is kept too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh, eigvalsh

from noisewise.engine.arrays import Array, Codes, Counts, Floats
from noisewise.engine.sgd.tensor_kernels import multiply, quadratic
from noisewise.engine.sgd.vectors import LANES
from noisewise.engine.training import chunks

CHUNK = 8192  # rows that are worked on in float64 at a time


class Population(NamedTuple):
    """The observed rows ``[mean factors, bias]`` of one mode of two."""

    centre: Array
    covariance: Array
    seen_through: Array  # mean of x x' over rows x of the other mode, as often as observed

    @classmethod
    def of(cls, own: Floats, counts: Counts, other: Floats, other_counts: Counts) -> Population:
        """Measure it; ``counts`` are observations of every row."""
        return cls(
            _shares(counts > 0) @ own,
            _covariance(own, counts),
            _moments(_seen_through(other), _shares(other_counts)),
        )


def of_two_modes(
    rows: Sequence[Floats], counts: Sequence[Counts], noise: float
) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Measure spread and shrink of every row of two modes, and of ids never seen.

    The spread of a row is what not knowing the row of the other mode means for it. ``noise`` is
    the typical variance of the noise.
    """
    first = _spread_and_shrink(rows[0], counts[0], rows[1], counts[1], noise)
    second = _spread_and_shrink(rows[1], counts[1], rows[0], counts[0], noise)
    return (second[0], first[0]), (first[1], second[1])


def _spread_and_shrink(
    own: Floats, counts: Counts, other: Floats, other_counts: Counts, noise: float
) -> tuple[Floats, Floats]:
    """Measure what not knowing rows of ``own`` means: spread of the others, and its own shrink."""
    population = Population.of(own, counts, other, other_counts)
    root = np.linalg.cholesky(population.covariance)
    strength, vectors = eigh(root.T @ population.seen_through @ root / noise)

    turned, weight = root @ vectors, _shares(other_counts)
    spread = np.empty(len(other))
    typical = np.zeros(len(strength))
    for part in chunks(len(other), CHUNK):
        parts = (_seen_through(other[part]) @ turned) ** 2
        spread[part] = parts.sum(axis=1)
        typical += weight[part] @ parts
    unseen = np.append(spread, spread[other_counts > 0].mean())
    return unseen.astype(np.float32), shrink_of(counts, typical, strength)


def of_modes(
    rows: Sequence[Floats], counts: Sequence[Counts], noise: float
) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Measure what ``of_cells`` needs of three modes or more, likewise.

    A spread is the covariance of rows, and what stands for a row of the mode that was never seen.
    """
    covariances = [_covariance(own, count) for own, count in zip(rows, counts, strict=True)]
    unseen, typical = [], []
    for own, count in zip(rows, counts, strict=True):
        x = _seen_through(own)
        unseen.append(_moments(x, _shares(count > 0)))
        typical.append(_moments(x, _shares(count)))
    shrink = []
    for m, covariance in enumerate(covariances):
        root = np.linalg.cholesky(covariance)
        seen = np.prod(typical[:m] + typical[m + 1 :], axis=0)
        strength = eigvalsh(root.T @ seen @ root / noise)
        shrink.append(shrink_of(counts[m], noise * strength, strength))
    pairs = zip(covariances, unseen, strict=True)
    return tuple(np.stack(pair).astype(np.float32) for pair in pairs), tuple(shrink)


def of_cells(
    rows: Sequence[Floats],
    n_mean: int,
    spread: Sequence[Floats],
    shrink: Sequence[Floats],
    codes: Sequence[Codes],
) -> Floats:
    """Variance of cells that comes from not knowing their rows; spread and shrink of ``of_modes``.

    Rows are packed, with ``n_mean`` columns of mean factors; the last is that of an id never seen.
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
    return stabilised(_moments(rows, _shares(counts > 0), centred=True))


def stabilised(covariance: Array) -> Array:
    """Return a covariance that can be inverted."""
    ridge = max(1e-9 * np.trace(covariance), 1e-12)
    return np.asarray(covariance + np.eye(len(covariance)) * ridge)


def shrink_of(counts: Counts, typical: Array, strength: Array) -> Floats:
    """Share of the variance that is left after so many observations, and of one never seen."""
    kinds, where = np.unique(counts, return_inverse=True)
    left = typical / (1.0 + kinds[:, None] * np.maximum(strength, 0.0))
    shrink = left.sum(axis=1) / max(typical.sum(), 1e-30)
    return np.append(shrink[where], 1.0).astype(np.float32)


def _shares(counts: npt.NDArray[np.integer | np.bool_]) -> Array:
    return np.asarray(counts / max(counts.sum(), 1))


def _seen_through(rows: Floats) -> Floats:
    """Return what multiplies the row that is not known: the factors, and 1 for its bias."""
    x = rows.copy()
    x[:, -1] = 1.0
    return x


def _moments(rows: Floats, weight: Array, *, centred: bool = False) -> Array:
    """Weighted second moments, or covariance, of rows; in float64, a chunk at a time."""
    mean = weight @ rows if centred else 0.0
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for part in chunks(len(rows), CHUNK):
        x = rows[part] - mean
        total += (x * weight[part, None]).T @ x
    return total
