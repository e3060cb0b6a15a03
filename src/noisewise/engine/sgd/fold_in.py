"""One new row from its own observations, with the rows of the other mode fixed.

A row is drawn from the population of its mode: normal, with the mean and the covariance C of the
rows that were learned. Given values ``y`` seen through rows ``X`` of the other mode, whose noise
and whose own uncertainty have variances ``v``,

    covariance = (C**-1 + X' diag(1 / v) X)**-1
    row        = centre + covariance X' diag(1 / v) (y - X centre)

exactly. The deviation part takes multiplicative steps that never raise the objective (Itakura-Saito
factorization of squared residuals, expected ones as in EM), from the average row and shrunk back to
it: a handful of residuals says little of a variance.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from noisewise.engine.arrays import Array, Codes, Floats
from noisewise.engine.sgd.factors import Factors, Side
from noisewise.engine.sgd.layout import BIAS
from noisewise.engine.training import one_blas_thread

ROUNDS = 2  # of regression and deviation in turn
STEPS = 10  # of the deviation in a round
PRIOR_RATINGS = 20  # observations that the average deviation is worth


def fold_in(factors: Factors, mode: int, codes: Codes, values: Floats) -> Side:
    """Return the row of a new id of ``mode``, seen with ``codes`` of the other mode.

    Codes are as from ``Factors.known_codes``; values have their own units.
    """
    params, parts = factors.params, factors.state.layout.parts
    own, other = factors.populations[mode], factors.populations[1 - mode]
    row: Floats = factors.state.rows[mode][-1].copy()
    columns = factors.state.rows[1 - mode][codes].astype(np.float64)
    x = np.column_stack([columns[:, parts["mean"]], np.full(len(columns), float(params.biases))])
    target = (values - factors.location) / factors.scale - columns[:, BIAS] - x @ own.centre
    epistemic = factors.shrink[1 - mode][codes].astype(np.float64) * factors.spread[mode][-1]

    q = columns[:, parts["deviation"]]
    average = row[parts["deviation"]].astype(np.float64)
    p = average.copy()
    with one_blas_thread():
        root = cholesky(own.covariance, lower=True)
        for _ in range(ROUNDS if factors.learned_deviation else 1):
            noise = q @ p + params.delta if factors.learned_deviation else factors.state.variance
            weight = 1.0 / (noise + epistemic)
            half = _half(root, x, weight)
            moved = half.T @ (half @ (x.T @ (weight * target)))
            if factors.learned_deviation:
                squared = (target - x @ moved) ** 2 + ((x @ half.T) ** 2).sum(axis=1)
                share = noise * weight  # of a residual that is noise; the rest is epistemic
                p = _deviation(q, share**2 * squared + share * epistemic, average, params.delta)
        left = half.T @ half
        shrink = np.sum(left * own.seen_through) / np.sum(own.covariance * own.seen_through)
        fitted = own.centre + moved
        z = np.append(fitted[:-1], 1.0)
        spread = z @ other.covariance @ z + np.sum((left * other.covariance)[:-1, :-1])
    row[parts["mean"]] = fitted[:-1]
    row[BIAS] = fitted[-1]
    row[parts["deviation"]] = p
    return Side(row[None], np.array([spread], np.float32), np.array([shrink], np.float32))


def _half(root: Array, x: Array, weight: Array) -> Array:
    """Return H, where H'H is what observations through x leave of the covariance root root'."""
    turned = x @ root
    precision = (turned * weight[:, None]).T @ turned
    precision[np.diag_indices_from(precision)] += 1.0
    inner = cholesky(precision, lower=True)
    return np.asarray(solve_triangular(inner, root.T, lower=True))


def _deviation(q: Array, squared: Array, start: Array, delta: float) -> Array:
    """Non-negative p for which ``q p + delta`` follows the squared residuals."""
    p = start.copy()
    for _ in range(STEPS):
        s = q @ p + delta
        p *= np.sqrt((q.T @ (squared / s**2)) / (q.T @ (1.0 / s) + 1e-12))
    n = len(squared)
    return np.asarray((n * p + PRIOR_RATINGS * start) / (n + PRIOR_RATINGS))
