"""A draw made compact: what predictions need of it, in half precision where that is enough."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewise.engine.arrays import Floats
from noisewise.engine.gibbs import cells
from noisewise.engine.gibbs.data import Floats64, Model, Problem
from noisewise.engine.gibbs.draw import PATHS, Draw

MOST_ROUNDING = 0.01  # share of the noise's std

Snapshot = dict[str, Any]


def snapshot(draw: Draw, model: Model, problem: Problem, half: type = np.float16) -> Snapshot:
    """Return what predictions need of a draw, by name; most of it of type ``half``.

    Beside the parts of the draw there are the average row of each mode and the covariance of rows,
    which stand for a row never seen, and the values of paths between observations.
    """
    single = np.float32
    means, covariances = _typical(draw, model, problem)
    kept = {
        "factors": draw.factors[:, : model.rank].astype(half),
        "biases": draw.biases.astype(half),
        "noise": draw.noise.astype(single),
        "level": draw.level.astype(single),
        "centres": draw.centres.astype(single),
        "precisions": draw.precisions.astype(single),
        "features": draw.features.astype(half),
        "typical": means.astype(single),
        "covariances": covariances.astype(single),
        "widths": draw.widths.astype(half),
        "width_centre": draw.width_centre.astype(single),
        "path_settings": draw.path_settings.astype(single),
    }
    for mode in range(2 if model.time else 0):
        kept[f"gaps{mode}"] = gaps(draw, problem, mode).astype(half)
    return kept


def half_is_enough(draw: Draw, places: Any, root: float) -> bool:
    """Whether half precision moves predictions by a small share of the noise's std only.

    Parameters
    ----------
    draw, places
        A draw, and cells to try.
    root
        One over the std of the noise.
    """
    exact, rounded = np.empty((2, places.shape[1]), dtype=np.float32)
    cells.means(places, draw.factors, draw.biases, exact)
    factors, biases = (
        array.astype(np.float16).astype(np.float32) for array in (draw.factors, draw.biases)
    )
    cells.means(places, factors, biases, rounded)
    apart = (rounded - exact).astype(np.float64)
    return bool(np.sqrt(np.mean(apart**2)) * root < MOST_ROUNDING)


def _typical(draw: Draw, model: Model, problem: Problem) -> tuple[Floats64, Floats64]:
    """Mean and covariance of the rows that have observations, per mode."""
    means, covariances = [], []
    for mode in range(problem.n_modes):
        seen = np.flatnonzero(np.diff(problem.starts[mode])) + problem.firsts[mode]
        rows = np.column_stack([draw.factors[seen, : model.rank], draw.biases[seen]])
        rows = rows.astype(np.float64)
        means.append(rows.mean(axis=0))
        centred = rows - means[-1]
        covariances.append(centred.T @ centred / len(rows))
    return np.array(means), np.array(covariances)


def gaps(draw: Draw, problem: Problem, mode: int) -> Floats:
    """Return the effect of time expected between neighbours of a row's sequence, and at its ends.

    Row i with n observations has n + 1 gaps; they start at ``starts[i] + i``.
    """
    starts, index = problem.starts[mode], problem.index[mode]
    rows = np.repeat(np.arange(problem.shape[mode]), np.diff(starts))
    after = np.arange(len(index)) + rows  # the gap before each observation; the next one is after
    total = np.zeros(len(index) + problem.shape[mode], dtype=np.float32)
    for number, (own, _) in enumerate(PATHS):
        if own != mode:
            continue
        phi, path = _phi(draw.path_settings[number, 0]), draw.paths[number][index]
        both = np.zeros_like(total)
        both[after] += path
        both[after + 1] += path
        weight = np.full(len(total), np.sqrt(phi) / (1.0 + phi), dtype=np.float32)
        ends = starts + np.arange(len(starts))
        weight[ends[:-1]] = weight[ends[1:] - 1] = np.sqrt(phi)
        total += weight * both
    return total


def gap_variance(settings: Floats, mode: int) -> float:
    """Variance of the effect of time in a gap between neighbours, given the path."""
    return sum(
        float(np.exp(settings[k, 1])) * (1.0 - _phi(settings[k, 0])) / (1.0 + _phi(settings[k, 0]))
        for k, (own, _) in enumerate(PATHS)
        if own == mode
    )


def path_variance(settings: Floats, mode: int) -> float:
    """Variance of the effect of time where nothing is known of it."""
    return sum(float(np.exp(settings[k, 1])) for k, (own, _) in enumerate(PATHS) if own == mode)


def _phi(logit: float) -> float:
    return float(1.0 / (1.0 + np.exp(-logit)))
