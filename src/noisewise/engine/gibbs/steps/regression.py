"""What rows are expected to be: a regression on what they were seen with, and on their features.

    row_i ~ N(mean + sum_l x_il Y_l, precision^-1),   Y_l ~ N(0, (strength precision)^-1)

There are two kinds of regressors. Implicit sets have ``x_il = 1 / sqrt(n_i)`` for every l that i
was seen with, and one strength; side features have values of their own, and a strength for every
field, that is for every column of the table that they come from. Rows and weights have the same
precision, so that coordinates are independent once they are multiplied by its root, and a weight
given all others costs as much as its feature has rows: a sweep is O(non-zeros).

A newcomer has features, but was seen with nothing. Its row is to be expected given the features
alone, whatever sets explain of rows that have one. So rows, and logs of their noise, have a second
regression, on features alone. It takes rows as they are drawn and gives nothing back to them. Rows
count in it by their observations, as that is how often rows like them will be asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from scipy.linalg import cholesky, solve_triangular

from noisewise.engine.arrays import Array, Floats, Ints
from noisewise.engine.data import Data, Spec
from noisewise.engine.design import Columns, Place
from noisewise.engine.gibbs import sweep
from noisewise.engine.gibbs.sweep import RatingDraw, Step, Workspace
from noisewise.engine.random import normal_pair, stream
from noisewise.engine.training import in_threads

BLOCK = 32  # coordinates that a thread takes: four vectors
JOINS = 3  # the sweep from which on rows are regressed on anything
PSEUDO_ROWS = 1.0  # with independent coordinates, that a covariance of newcomers is mixed with
NO_VALUES = np.empty(0, dtype=np.float32)  # where all are 1
LEAST_VARIANCE = 1e-10  # of a coordinate of rows, in standardised units
_U = np.uintp


class Regression(Step[RatingDraw]):
    """Draw the weights of regressors of a mode, and what all of them add to its rows."""

    joins = JOINS
    stream: int  # of random numbers
    columns: Columns
    bounds: Any  # of fields, each of which has a strength
    place: Place  # of weights and strengths in a draw

    def _draw(self, draw: RatingDraw) -> None:
        mode, work = self.mode, self.work
        part = self.data.part(mode)
        root = np.linalg.cholesky(draw.precisions[mode])
        centred = sweep.rows_of(draw, part, self.spec.rank) - draw.centres[mode]
        whitened = ((centred - draw.effects[part]) @ root).astype(np.float32)
        weights = (draw.features[self.place.features] @ root).astype(np.float32)
        strengths = draw.strengths[self.place.fields]
        self._draw_weights(draw, whitened, weights)
        draw_strengths(strengths, self.bounds, weights, work.rng(draw, self.stream, mode))
        draw.features[self.place.features] = _unwhitened(root, weights)
        draw.effects[part] = centred - _unwhitened(root, whitened)

    def _draw_weights(self, draw: RatingDraw, whitened: Any, weights: Any) -> None:
        """Draw weights of all features, whitened as rows are; some coordinates at a time."""
        draw_weights(
            self.columns, self.bounds, draw.strengths[self.place.fields], whitened, weights,
            lambda start: self.work.key(draw, self.stream, self.mode, start), self.work.n_jobs,
        )  # fmt: skip


class Implicit(Regression):
    """Draw the weights of what rows of a mode were seen with."""

    stream = sweep.FEATURES

    def __init__(self, work: Workspace, mode: int) -> None:
        super().__init__(work, mode)
        data = work.data
        self.bounds = np.array([0, data.shape[1 - mode]])
        self.place = Place(feature_part(data, mode), slice(mode, mode + 1))

    @property
    def columns(self) -> Columns:  # type: ignore[override]
        """Sets by what is in them; only workers of a cluster know theirs."""
        data, mode = self.data, self.mode
        shares = data.shares[mode]
        return Columns(data.starts[1 - mode], data.members[mode], shares, NO_VALUES)


class SideFeatures(Regression):
    """Draw the weights of side features of a mode."""

    stream = sweep.SIDE_FEATURES

    def __init__(self, work: Workspace, mode: int) -> None:
        super().__init__(work, mode)
        design = work.data.designs[mode]
        self.columns = design.columns(np.ones(work.data.shape[mode], dtype=np.float32))
        self.bounds, self.place = design.bounds, side_place(work.spec, work.data, mode)


class Newcomers(Step[RatingDraw]):
    """Draw the regression of rows, and of logs of their noise, on side features alone."""

    place: Place
    weights: Array
    columns: Columns

    def __init__(self, work: Workspace, mode: int) -> None:
        super().__init__(work, mode)
        design = work.data.designs[mode]
        self.design, self.place = design, work.data.designs.places[mode]
        counts = np.diff(work.data.starts[mode]).astype(np.float64)
        # As many rows in all as these unequal ones are worth (Kish).
        self.weights = counts * (counts.sum() / np.square(counts).sum())
        self.columns = design.columns(np.sqrt(self.weights).astype(np.float32))

    def _draw(self, draw: RatingDraw) -> None:
        mode, work = self.mode, self.work
        rows = self._rows(draw)
        root = cholesky(draw.cold_covariances[mode], lower=True)
        own = draw.cold_weights[self.place.features]
        left = rows - draw.cold_centres[mode] - self.design.matrix @ own
        left *= np.sqrt(self.weights)[:, None]
        whitened, weights = (
            solve_triangular(root, array.T, lower=True).T.astype(np.float32)
            for array in (left, own)
        )
        strengths = draw.cold_strengths[self.place.fields]
        draw_weights(
            self.columns, self.design.bounds, strengths, whitened, weights,
            lambda start: work.key(draw, sweep.NEWCOMERS, mode, start), work.n_jobs,
        )  # fmt: skip
        rng = work.rng(draw, sweep.NEWCOMERS, mode)
        draw_strengths(strengths, self.design.bounds, weights, rng)
        own[:] = weights @ root.T
        self._draw_centre(draw, rows - self.design.matrix @ own, rng)

    def _rows(self, draw: RatingDraw) -> Array:
        part = self.data.part(self.mode)
        noise = np.log(draw.noise[part].astype(np.float64))
        return np.column_stack([sweep.rows_of(draw, part, self.spec.rank), noise])

    def _draw_centre(self, draw: RatingDraw, left: Array, rng: np.random.Generator) -> None:
        """Take the covariance of what features leave of rows, and draw its centre."""
        total = self.weights.sum()
        average = self.weights @ left / total
        centred = left - average
        covariance = (centred * self.weights[:, None]).T @ centred / total
        variances = np.diag(covariance) + LEAST_VARIANCE
        share = PSEUDO_ROWS / (total + PSEUDO_ROWS)
        covariance = (1.0 - share) * covariance + share * np.diag(variances)
        noise = cholesky(covariance, lower=True) @ rng.standard_normal(len(average))
        draw.cold_centres[self.mode] = average + noise / math.sqrt(total)
        draw.cold_covariances[self.mode] = covariance


def feature_part(data: Data, mode: int) -> slice:
    """Return where the features of a mode's sets lie: they are the rows of the other mode."""
    start = 0 if mode == 0 else data.shape[1]
    return slice(start, start + data.shape[1 - mode])


def side_place(spec: Spec, data: Data, mode: int) -> Place:
    """Return where the side features of a mode are in a draw: after all sets."""
    features, fields = data.designs.places[mode]
    rows, sets = (sum(data.shape), 2) if spec.implicit else (0, 0)
    return Place(
        slice(features.start + rows, features.stop + rows),
        slice(fields.start + sets, fields.stop + sets),
    )


def side_scatter(draw: RatingDraw, spec: Spec, data: Data, mode: int) -> tuple[Any, int]:
    """Return the scatter of the weights of side features, as rows would have it; their number."""
    design = data.designs.of(mode)
    if design is None:
        return 0.0, 0
    place = side_place(spec, data, mode)
    strengths = np.repeat(draw.strengths[place.fields], np.diff(design.bounds))
    weights = draw.features[place.features].astype(np.float64)
    return weights.T @ (weights * strengths[:, None]), len(weights)


def scaled_weights(draw: RatingDraw, spec: Spec, data: Data, mode: int) -> list[Any]:
    """Return all arrays of a mode whose columns are coordinates of rows: effects and weights."""
    found = [draw.effects[data.part(mode)]] if len(draw.effects) else []
    if spec.implicit:
        found.append(draw.features[feature_part(data, mode)])
    if data.designs.of(mode) is not None:
        found.append(draw.features[side_place(spec, data, mode).features])
        found.append(draw.cold_weights[data.designs.places[mode].features])
    return found


def draw_weights(
    columns: Columns,
    bounds: Ints,
    strengths: Array,
    E: Floats,
    Y: Floats,
    key: Callable[[int], np.uint64],
    n_jobs: int,
) -> None:
    """Draw all weights Y, one feature after the other; E, rows less all means, changes with them.

    Coordinates are independent, and have variance 1: blocks of them are drawn side by side.
    """
    strength = np.repeat(strengths, np.diff(bounds)).astype(np.float32)

    def draw_block(start: int) -> None:
        block = slice(start, start + BLOCK)
        e, y = (np.ascontiguousarray(array[:, block]) for array in (E, Y))
        draw_features(*columns, strength, key(start), e, y)
        E[:, block], Y[:, block] = e, y

    in_threads(draw_block, range(0, E.shape[1], BLOCK), n_jobs)


def draw_strengths(
    strengths: Array, bounds: Ints, weights: Floats, rng: np.random.Generator
) -> None:
    """Draw the strength of every field, with a Gamma(1, 1) prior, given its weights."""
    for field in range(len(strengths)):
        own = weights[bounds[field] : bounds[field + 1]]
        rate = 1.0 + 0.5 * float(np.einsum("ij,ij->", own, own, dtype=np.float64))
        strengths[field] = rng.gamma(1.0 + 0.5 * own.size, 1.0 / rate)


def _unwhitened(root: Array, array: Floats) -> Array:
    found: Array = solve_triangular(root, array.T, lower=True, trans="T").T
    return found


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def draw_features(starts, members, x, values, strength, key, E, Y):
    """Draw the weights Y of every feature, one after the other, for a block of coordinates.

    ``members[starts[l]:starts[l + 1]]`` have feature l; E, rows less all means, changes with Y.
    """
    width = _U(E.shape[1])
    total, change = np.empty(E.shape[1], np.float32), np.empty(E.shape[1], np.float32)
    plain = len(values) == 0
    for feature in range(len(starts) - 1):
        l = _U(feature)  # noqa: E741
        state = stream(key, l)
        total[:] = 0.0
        square = np.float32(0.0)
        for k in range(starts[l], starts[l + _U(1)]):
            i = _U(members[k])
            v = x[i] if plain else x[i] * values[_U(k)]
            square += v * v
            for d in range(width):
                total[d] += v * E[i, d]
        precision = square + strength[l]
        scale = math.sqrt(1.0 / precision)
        for d in range(_U(0), width, _U(2)):
            state, a, b = normal_pair(state)
            for step in range(_U(2)):
                e = d + step
                if e < width:
                    new = (total[e] + square * Y[l, e]) / precision + scale * (b if step else a)
                    change[e] = new - Y[l, e]
                    Y[l, e] = new
        for k in range(starts[l], starts[l + _U(1)]):
            i = _U(members[k])
            v = x[i] if plain else x[i] * values[_U(k)]
            for d in range(width):
                E[i, d] -= v * change[d]
