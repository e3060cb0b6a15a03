"""How little is known of a row, from the number of its observations alone.

A point estimate has no posterior, but its row lies in a population that has a spread. Were a row
``f`` drawn from its population, with covariance ``C``, and then seen ``n`` times through rows ``x``
of the other mode with noise of variance ``v``, its posterior covariance would be, on average,

    (C**-1 + n / v * E[x x'])**-1  =  T diag(1 / (1 + n * strength)) T'

A cell with row ``x`` has ``x' T diag(...) T' x`` of variance that comes from not knowing ``f``.
Kept are two numbers per row: ``spread = x' C x``, the variance for an id never seen, and ``shrink``
in [0, 1], the share of it that is left after n observations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh

from noisewise.engine.state import Floats

Array = npt.NDArray[np.float64]
CHUNK = 8192  # rows that are worked on in float64 at a time


class Ignorance(NamedTuple):
    """What not knowing the rows of one mode means; the last entry is that of an id never seen."""

    spread: Floats  # of every row of the other mode
    shrink: Floats  # of every row of the mode itself


def spread_and_shrink(
    own: Floats,
    counts: npt.NDArray[np.int64],
    other: Floats,
    other_counts: npt.NDArray[np.int64],
    noise: float,
) -> Ignorance:
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
    covariance = _moments(own, (counts > 0) / max((counts > 0).sum(), 1), centred=True)
    covariance += np.eye(len(covariance)) * max(1e-9 * np.trace(covariance), 1e-12)
    weight = other_counts / max(other_counts.sum(), 1)
    root = np.linalg.cholesky(covariance)
    strength, vectors = eigh(root.T @ _moments(_seen_through(other), weight) @ root / noise)

    turned = root @ vectors
    spread = np.empty(len(other))
    typical = np.zeros(len(strength))
    for part in _chunks(len(other)):
        parts = (_seen_through(other[part]) @ turned) ** 2
        spread[part] = parts.sum(axis=1)
        typical += weight[part] @ parts
    kinds, where = np.unique(counts, return_inverse=True)
    left = typical / (1.0 + kinds[:, None] * np.maximum(strength, 0.0))
    shrink = left.sum(axis=1) / max(typical.sum(), 1e-30)
    return Ignorance(
        np.append(spread, spread[other_counts > 0].mean()).astype(np.float32),
        np.append(shrink[where], 1.0).astype(np.float32),
    )


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
