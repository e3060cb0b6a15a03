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

from noisewise.engine.arrays import Array
from noisewise.engine.sgd import layout
from noisewise.engine.sgd.layout import BIAS, BIAS_SUM, LINE, Params, State

FARTHEST = 50.0  # squared error over variance, as far as a deviation step believes it


def mean_and_variance(state: State, cell: tuple[int, ...], params: Params) -> tuple[float, float]:
    """Mean and variance of one cell, in standardised units."""
    mean_part, deviation_part = _parts(params)
    rows = [rows[k].astype(np.float64) for rows, k in zip(state.rows, cell, strict=True)]
    mean = np.prod([r[mean_part] for r in rows], axis=0).sum() + sum(r[BIAS] for r in rows)
    variance = np.prod([r[deviation_part] for r in rows], axis=0).sum() + params.delta
    return float(mean), float(variance)


def gradients(error: float, variance: float, beta: float) -> tuple[float, float]:
    """Return g and h of the module's docstring."""
    weight = variance**beta
    trusted = min(error**2 / variance, FARTHEST)
    return weight * error / variance, weight * (1.0 - trusted) / (2.0 * variance)


def step(
    state: State,
    cell: tuple[int, ...],
    value: float,
    params: Params,
    learn: bool,
    weight: float = 1.0,
) -> None:
    """Change ``state`` by one observation. ``learn`` is false while only the mean is trained.

    The variance of its noise is ``s`` over its weight: ``weight * e**2`` stands for ``e**2`` above.
    """
    mean, variance = mean_and_variance(state, cell, params)
    root = float(np.sqrt(weight))
    g, h = gradients(root * (value - mean), variance if learn else state.variance, params.beta)
    g *= root
    mean_part, deviation_part = _parts(params)
    old = [rows[k].astype(np.float64) for rows, k in zip(state.rows, cell, strict=True)]
    for mode, row in enumerate(old):
        others = old[:mode] + old[mode + 1 :]
        new, share = row.copy(), row[layout.SHARE]

        x = np.prod([r[mean_part] for r in others], axis=0)
        gradient = params.l2 * share * row[mean_part] - g * x
        scaled = _adagrad(new, gradient, params, mean_part, layout.MEAN_SUM)
        new[mean_part] -= params.learning_rate * scaled

        slope = params.bias_l2 * share * row[BIAS] - g
        new[BIAS_SUM] += slope**2
        new[BIAS] -= params.learning_rate * slope / np.sqrt(new[BIAS_SUM])

        if learn:
            x = np.prod([r[deviation_part] for r in others], axis=0)
            gradient = h * x + params.deviation_l1 * share
            scaled = _adagrad(new, gradient, params, deviation_part, layout.DEVIATION_SUM)
            stepped = new[deviation_part] - params.deviation_learning_rate * scaled
            new[deviation_part] = np.maximum(stepped, 0.0)
        state.rows[mode][cell[mode]] = new


def _parts(params: Params) -> tuple[slice, slice]:
    """Columns of mean and deviation factors, with the padding, as the kernels treat them."""
    start, end = params.layout.deviation_start, params.layout.sums_start
    return slice(LINE, start), slice(start, end)


def _adagrad(row: Array, gradient: Array, params: Params, part: slice, of_row: int) -> Array:
    """Add the squared gradient to its sum, and scale the gradient by the root of that sum."""
    if params.adagrad == "row":  # by the sum before, as the mean square is known only after
        scaled = gradient / np.sqrt(row[of_row])
        row[of_row] += np.sum(gradient**2) / max(len(gradient), 1)
        return np.asarray(scaled)
    to_sum = params.layout.sums_start - LINE  # from a factor to its sum
    sums = slice(part.start + to_sum, part.stop + to_sum)
    row[sums] += gradient**2
    return np.asarray(gradient / np.sqrt(row[sums]))
