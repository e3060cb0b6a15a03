"""The equations of deviation-driven factorization in numpy: slow and obvious.

Every backend is tested against these few lines. They work on any number of modes: a cell's mean is
the sum over factors of the product of its rows (plus biases), its variance likewise plus delta.

With ``e`` the error, ``s`` the variance and each term of the likelihood weighted by ``s ** beta``
(beta = 0 is the paper; the weight itself is not differentiated)::

    loss = s**beta * (e**2 / (2 s) + log(s) / 2)
    d loss / d mean     = -s**beta * e / s            =: -g
    d loss / d variance =  s**beta * (s - e**2) / (2 s**2)  =: h
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from noisewise.engine.sgd.layout import (
    BIAS,
    BIAS_SUM,
    DEVIATION_SUM,
    LINE,
    MEAN_SUM,
    SHARE,
    Params,
    State,
)

FARTHEST = 50.0  # squared error over variance, as far as a deviation step believes it

Array = npt.NDArray[np.float64]


def mean_and_variance(state: State, cell: tuple[int, ...], params: Params) -> tuple[float, float]:
    """Mean and variance of one cell, in standardised units."""
    rows = [rows[k].astype(np.float64) for rows, k in zip(state.rows, cell, strict=True)]
    mean = np.prod([r[_mean(params)] for r in rows], axis=0).sum() + sum(r[BIAS] for r in rows)
    variance = np.prod([r[_deviation(params)] for r in rows], axis=0).sum() + params.delta
    return float(mean), float(variance)


def gradients(error: float, variance: float, beta: float) -> tuple[float, float]:
    """Return g and h of the module's docstring."""
    weight = variance**beta
    trusted = min(error**2 / variance, FARTHEST)
    return weight * error / variance, weight * (1.0 - trusted) / (2.0 * variance)


def step(state: State, cell: tuple[int, ...], value: float, params: Params, learn: bool) -> None:
    """Change ``state`` by one observation. ``learn`` is false while only the mean is trained."""
    mean, variance = mean_and_variance(state, cell, params)
    if not learn:
        variance = state.variance
    g, h = gradients(value - mean, variance, params.beta)
    old = [rows[k].astype(np.float64) for rows, k in zip(state.rows, cell, strict=True)]
    for mode, row in enumerate(old):
        others = old[:mode] + old[mode + 1 :]
        new = row.copy()
        share = row[SHARE]

        x = np.prod([r[_mean(params)] for r in others], axis=0)
        gradient = params.l2 * share * row[_mean(params)] - g * x
        new[_mean(params)] -= params.learning_rate * _adagrad(new, gradient, params, "mean")

        slope = params.bias_l2 * share * row[BIAS] - g
        new[BIAS_SUM] += slope**2
        new[BIAS] -= params.learning_rate * slope / np.sqrt(new[BIAS_SUM])

        if learn:
            x = np.prod([r[_deviation(params)] for r in others], axis=0)
            gradient = h * x + params.deviation_l1 * share
            stepped = new[_deviation(params)] - params.deviation_learning_rate * _adagrad(
                new, gradient, params, "deviation"
            )
            new[_deviation(params)] = np.maximum(stepped, 0.0)
        state.rows[mode][cell[mode]] = new


def _adagrad(row: Array, gradient: Array, params: Params, part: str) -> Array:
    """Add the squared gradient to its sum, and scale the gradient by the root of that sum.

    With one sum per row, the step is scaled by the sum *before* it, as its mean square is known
    only after the whole row was seen.
    """
    if params.adagrad == "row":
        place = MEAN_SUM if part == "mean" else DEVIATION_SUM
        scaled = gradient / np.sqrt(row[place])
        row[place] += np.sum(gradient**2) / max(len(gradient), 1)
        return np.asarray(scaled)
    sums = _sums(params, part)
    row[sums] += gradient**2
    return np.asarray(gradient / np.sqrt(row[sums]))


# The slices take the padding in: factors that stay zero, as the kernels treat them.


def _mean(params: Params) -> slice:
    return slice(LINE, LINE + params.layout.mean)


def _deviation(params: Params) -> slice:
    layout = params.layout
    return slice(layout.deviation_start, layout.deviation_start + layout.deviation)


def _sums(params: Params, part: str) -> slice:
    layout = params.layout
    if part == "mean":
        return slice(layout.sums_start, layout.sums_start + layout.mean)
    return slice(
        layout.sums_start + layout.mean, layout.sums_start + layout.mean + layout.deviation
    )
