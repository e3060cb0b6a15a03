"""What rows have in common: Normal-Wishart draws of their mean and precision."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

Array = npt.NDArray[np.float64]

MEAN_WEIGHT = 2.0  # rows that the prior mean, zero, is worth


def draw_common(
    rows: Array, features: Array | None, strength: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw mean and precision of rows.

    Parameters
    ----------
    rows
        One row each, its bias last, less the effect of its set.
    features
        Weights of a set's features, which share the precision times ``strength``; None without.
    rng
        Where random numbers come from.

    Returns
    -------
    mean, precision
        With the prior precision ~ Wishart(I, D), mean ~ N(0, (2 precision)^-1).
    """
    n, D = rows.shape
    average = rows.mean(axis=0)
    centred = rows - average
    scatter = np.eye(D) + centred.T @ centred
    scatter += MEAN_WEIGHT * n / (MEAN_WEIGHT + n) * np.outer(average, average)
    freedom = D + n
    if features is not None:
        scatter += strength * (features.T @ features)
        freedom += len(features)
    precision = _wishart(scatter, freedom, rng)
    root = np.linalg.cholesky((MEAN_WEIGHT + n) * precision)
    noise = solve_triangular(root, rng.standard_normal(D), lower=True, trans="T")
    return n * average / (MEAN_WEIGHT + n) + noise, precision


def _wishart(scatter: Array, freedom: float, rng: np.random.Generator) -> Array:
    """Draw from Wishart(scatter^-1, freedom) by Bartlett's decomposition."""
    D = len(scatter)
    bartlett = np.tril(rng.standard_normal((D, D)), -1)
    bartlett[np.diag_indices(D)] = np.sqrt(rng.chisquare(freedom - np.arange(D)))
    root = np.linalg.cholesky(scatter)
    half = solve_triangular(root, bartlett, lower=True, trans="T")
    return np.asarray(half @ half.T)
