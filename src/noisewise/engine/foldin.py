"""One new row from its own observations, with the rows of the other mode fixed.

The mean part is a weighted ridge regression, exact. The deviation part takes multiplicative steps
that never raise the objective (Itakura-Saito factorization of squared residuals), from the average
row and shrunk back to it: a handful of residuals says little of a variance.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve, cholesky, solve_triangular

from noisewise.engine.blas import one_blas_thread
from noisewise.engine.factors import Factors
from noisewise.engine.state import BIAS, LINE, Codes, Floats

ROUNDS = 2  # of regression and deviation in turn
STEPS = 10  # of the deviation in a round
PRIOR_RATINGS = 20  # observations that the average deviation is worth

Array = npt.NDArray[np.float64]


def fold_in(factors: Factors, mode: int, codes: Codes, values: Floats) -> Floats:
    """Return the packed row of a new id of ``mode``, seen with ``codes`` of the other mode.

    Parameters
    ----------
    factors
        A factorization of two modes; it is not changed.
    mode
        Mode of the new row.
    codes
        Rows of the other mode, as from ``Factors.known_codes``.
    values
        Observed values, in their own units.
    """
    params, layout = factors.params, factors.state.layout
    row: Floats = factors.state.rows[mode][-1].copy()
    columns = factors.state.rows[1 - mode][codes].astype(np.float64)
    mean_part = slice(LINE, LINE + params.rank)
    part = slice(layout.deviation_start, layout.deviation_start + params.deviation_rank)
    x = np.column_stack([columns[:, mean_part], np.full(len(columns), float(params.biases))])
    target = (values - factors.location) / factors.scale - columns[:, BIAS]
    n = len(values)
    charged = n if params.penalty == "rating" else 1
    ridge = charged * np.append(np.full(params.rank, params.l2), params.bias_l2) + 1e-8

    q = columns[:, part]
    average = row[part].astype(np.float64)
    p = average.copy()
    with one_blas_thread():
        for _ in range(ROUNDS):
            variance = q @ p + params.delta if factors.learned_deviation else factors.state.variance
            weight = np.broadcast_to(variance ** (params.beta - 1.0), n)
            root = cholesky((x * weight[:, None]).T @ x + np.diag(ridge), lower=True)
            fitted = cho_solve((root, True), x.T @ (weight * target))
            if not factors.learned_deviation:
                break
            leverage = weight * (solve_triangular(root, x.T, lower=True) ** 2).sum(axis=0)
            left_out = (target - x @ fitted) / np.maximum(1.0 - leverage, 1e-3)
            p = _deviation(q, left_out**2, average, params.delta, charged * params.deviation_l1)
    row[mean_part] = fitted[:-1]
    row[BIAS] = fitted[-1]
    row[part] = p
    return row


def _deviation(q: Array, squared: Array, start: Array, delta: float, l1: float) -> Array:
    """Non-negative p for which ``q p + delta`` follows the squared residuals."""
    p = start.copy()
    for _ in range(STEPS):
        s = q @ p + delta
        p *= np.sqrt((q.T @ (squared / s**2)) / (q.T @ (1.0 / s) + 2.0 * l1 + 1e-12))
    n = len(squared)
    return np.asarray((n * p + PRIOR_RATINGS * start) / (n + PRIOR_RATINGS))
