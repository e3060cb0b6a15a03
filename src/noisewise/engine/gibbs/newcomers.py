"""Rows that have no observations, with features or without: what to expect of them in a draw."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from noisewise.engine.arrays import Array, Floats
from noisewise.engine.data import Data, Spec
from noisewise.engine.gibbs.steps.rows import means
from noisewise.engine.gibbs.sweep import RatingDraw, Snapshot, rows_of

FARTHEST_LOG = 50.0  # of a factor of the noise, from 0: beyond it numbers mean nothing


class Expected(NamedTuple):
    """Expected rows, the bias last, and factors of the noise."""

    rows: Array
    noise: Array


def as_chosen(one: Snapshot, places: Any) -> Floats:
    """Return the average row of every mode in one draw, its bias as observations have it.

    People rate what they like, and some of them more than others: with the average row instead of
    their own, some observations, whose rows are at ``places``, would be below what they are.
    """
    biases, average = one["biases"], one["typical"]
    n = len(biases)
    table = np.concatenate([one["factors"], average[:, :-1]]).astype(np.float32)
    offsets = np.append(biases, average[:, -1]).astype(np.float32)
    own, without = np.empty((2, places.shape[1]), dtype=np.float32)
    means(places, table, offsets, own)
    found: Floats = average.astype(np.float32)
    for mode in range(len(average)):
        replaced = places.copy()
        replaced[mode] = n + mode
        means(replaced, table, offsets, without)
        found[mode, -1] += (own - without).mean(dtype=np.float64)
    return found


def kept_of(draw: RatingDraw, spec: Spec, data: Data, half: type) -> Snapshot:
    """Return what a draw knows of rows by their features alone; nothing without features.

    The centre is that of rows with what they were seen with: people rate what they like. Logs of
    the noise are normal, and noise is expected to be the exponential of the mean and half the
    variance: that half is added to the centre.
    """
    if not len(draw.cold_weights):
        return {}
    D1, centres = spec.rank + 1, draw.cold_centres.copy()
    for mode in range(data.n_modes):
        centres[mode, spec.rank] += chosen(draw, spec, data, mode)
    centres[:, D1:] += 0.5 * np.diagonal(draw.cold_covariances, axis1=1, axis2=2)[:, D1:]
    return {
        "cold_weights": draw.cold_weights.astype(half),
        "cold_centres": centres.astype(np.float32),
        "cold_covariances": draw.cold_covariances[:, :D1, :D1].astype(np.float32),
    }


def chosen(draw: RatingDraw, spec: Spec, data: Data, mode: int) -> float:
    """Return by how much observations of two modes are above what features make of their rows.

    That is the mean, over observations, of the part of rows that features leave, times the rows of
    the other mode that these chose.
    """
    design = data.designs.of(mode)
    if design is None or data.n_modes != 2:
        return 0.0
    D1, own = spec.rank + 1, draw.cold_weights[data.designs.places[mode].features]
    left = rows_of(draw, data.part(mode), spec.rank) - draw.cold_centres[mode, :D1]
    left -= design.matrix @ own[:, :D1]
    ones, shape = np.ones(len(data), dtype=np.float32), (data.shape[mode], len(draw.factors))
    seen = scipy.sparse.csr_array((ones, data.others[mode][0], data.starts[mode]), shape=shape)
    others = seen @ draw.factors[:, : spec.rank]  # summed over what a row was seen with
    total = np.einsum("ij,ij->", left[:, :-1], others) + np.diff(data.starts[mode]) @ left[:, -1]
    return float(total) / len(data)


def part_of(cold: tuple[Any, ...], mode: int) -> slice:
    """Return where the features of a mode are among those of all modes."""
    sizes = [0 if matrix is None else matrix.shape[1] for matrix in cold]
    return slice(sum(sizes[:mode]), sum(sizes[: mode + 1]))


def expected(
    draws: Snapshot, spec: Spec, draw: int, mode: int, part: slice, features: Any
) -> Expected:
    """Return what one draw expects of rows with these features; ``part`` has their weights."""
    weights = draws["cold_weights"][draw, part].astype(np.float32)
    found = draws["cold_centres"][draw, mode] + features @ weights
    D1 = spec.rank + 1
    noise = np.exp(np.clip(found[:, D1:], -FARTHEST_LOG, FARTHEST_LOG))
    return Expected(found[:, :D1], noise)


def prior_shift(one: Snapshot, part: slice, features: Any) -> Array:
    """Return what one draw adds to the means of rows whose sets are known, by their features.

    Weights of side features come after those of sets; ``part`` is that of the mode among them.
    """
    weights, cold = one["features"], len(one["cold_weights"])
    own = weights[len(weights) - cold :][part].astype(np.float64)
    found: Array = np.asarray(features @ own)
    return found
