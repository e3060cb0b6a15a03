"""Why a prediction is what it is: what each observation of a row adds to it, in every draw.

Given the other mode's rows x and the prior N(m, Lam^-1) of a row, with m = c + sum_l Y_l / sqrt(n)
for the set of what it was seen with, the mean of the row given its observations y_n of variance
1/w_n is linear in them. With ``A = Lam + sum_n w_n x_n x_n'`` and ``s = A^-1 x_j``, the prediction
of cell j is

    x_j . c + b_j  +  sum_n  w_n (s . x_n) (y_n - x_n . c - b_n)  +  sum_l  s . Lam Y_l / sqrt(n)

what is expected of the average row, what each value adds that differs from what the average row
would give, and what the choice adds to have been seen with l at all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from noisewise.engine.arrays import Array, Codes
from noisewise.engine.gibbs.posterior import RatingPosterior
from noisewise.engine.gibbs.steps.variances import FLOOR
from noisewise.engine.training import one_blas_thread


class Pulls(NamedTuple):
    """Parts of one prediction, a row per draw, in standardised units."""

    average: Array  # what is expected of the average row
    by_value: Array  # what every observation adds by its value
    by_choice: Array  # what it adds by being there


def pulls(
    posterior: RatingPosterior, row: int, column: int, codes: Codes, values: Array, weight: Array
) -> Pulls:
    """Return what pulls the prediction of a cell: the row's observations with ``codes``.

    Values are standardised; ``weight`` divides the variance of their noise.
    """
    spec, n, draws = posterior.spec, len(codes), len(posterior)
    found = Pulls(np.empty(draws), np.zeros((draws, n)), np.zeros((draws, n)))
    with one_blas_thread():
        for k in range(draws):
            one = {name: array[k] for name, array in posterior.draws.items()}
            other = posterior.rows(k, 1, np.append(codes, np.int32(column)))
            x = np.column_stack([other.factors, np.ones(n + 1)]).astype(np.float64)
            biases = other.biases.astype(np.float64)
            centre, precision = (
                one[name][0].astype(np.float64) for name in ("centres", "precisions")
            )
            noise = np.full(n, float(one["level"][0]))
            if spec.noise_rank:
                noise = other.noise[:-1].astype(np.float64) @ one["noise"][row].astype(np.float64)
            w = weight / np.maximum(noise, FLOOR)
            A = (x[:-1] * w[:, None]).T @ x[:-1] + precision
            s = cho_solve(cho_factor(A, check_finite=False), x[-1], check_finite=False)
            left = values - biases[:-1] - x[:-1] @ centre
            found.average[k] = x[-1] @ centre + biases[-1]
            found.by_value[k] = w * (x[:-1] @ s) * left
            if spec.implicit:
                features = one["features"][codes].astype(np.float64)
                found.by_choice[k] = features @ (precision @ s) / np.sqrt(n)
    return found
