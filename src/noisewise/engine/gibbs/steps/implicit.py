"""Implicit sets: what a row was seen with says something of the row, whatever the values.

    row_i ~ N(mu + sum_l x_il Y_l, Lam^-1),   x_il = 1 / sqrt(n_i) for every l that i was seen with
    Y_l   ~ N(0, (strength Lam)^-1)

As prior and rows share Lam, coordinates are independent once they are multiplied by its root, and
every Y_l is drawn given the others in one pass over its rows. Threads take blocks of coordinates.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy.linalg import solve_triangular

from noisewise.engine.gibbs.data import Data
from noisewise.engine.gibbs.draw import RatingDraw
from noisewise.engine.gibbs.sweep import FEATURES, Step, rows_of
from noisewise.engine.random import normal_pair, stream
from noisewise.engine.threads import in_threads

BLOCK = 32  # coordinates in a block: four vectors
_U = np.uintp


class Implicit(Step[RatingDraw]):
    """Draw the weights of what rows of a mode were seen with, and what they add to the rows."""

    joins = 3

    def __call__(self, draw: RatingDraw) -> None:
        """Draw them."""
        data, mode, work = self.data, self.mode, self.work
        part, own = data.part(mode), feature_part(data, mode)
        root = np.linalg.cholesky(draw.precisions[mode])
        centred = rows_of(draw, part, self.spec.rank) - draw.centres[mode]
        whitened = ((centred - draw.effects[part]) @ root).astype(np.float32)
        weights = (draw.features[own] @ root).astype(np.float32)
        strength = np.float32(draw.strengths[mode])

        def draw_block(start: int) -> None:
            block = slice(start, start + BLOCK)
            E, Y = (np.ascontiguousarray(array[:, block]) for array in (whitened, weights))
            draw_features(
                data.starts[1 - mode], data.members[mode], data.shares[mode],
                strength, work.key(draw, FEATURES, mode, start), E, Y,
            )  # fmt: skip
            whitened[:, block], weights[:, block] = E, Y

        in_threads(draw_block, range(0, self.spec.rank + 1, BLOCK), work.n_jobs)
        draw.strengths[mode] = draw_strength(weights, work.rng(draw, FEATURES, mode))
        draw.features[own] = solve_triangular(root, weights.T, lower=True, trans="T").T
        left = solve_triangular(root, whitened.T, lower=True, trans="T").T
        draw.effects[part] = centred - left


def feature_part(data: Data, mode: int) -> slice:
    """Return where the features of a mode's sets lie: they are the rows of the other mode."""
    start = 0 if mode == 0 else data.shape[1]
    return slice(start, start + data.shape[1 - mode])


@njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
def draw_features(starts, members, x, strength, key, E, Y):
    """Draw the weights of every feature, one after the other, for a block of coordinates.

    Parameters
    ----------
    starts, members : int64[:], int32[:]
        Rows that have feature l are ``members[starts[l]:starts[l + 1]]``.
    x : float32[:]
        What a feature of row i counts: one over the root of the size of its set.
    E, Y : float32[:, :]
        Rows less their mean and the effects of their sets, and the weights; both are changed.
    """
    width = _U(E.shape[1])
    total, change = np.empty(E.shape[1], np.float32), np.empty(E.shape[1], np.float32)
    for feature in range(len(starts) - 1):
        l = _U(feature)  # noqa: E741
        state = stream(key, l)
        total[:] = 0.0
        square = np.float32(0.0)
        for k in range(starts[l], starts[l + _U(1)]):
            i = _U(members[k])
            square += x[i] * x[i]
            for d in range(width):
                total[d] += x[i] * E[i, d]
        precision = square + strength
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
            for d in range(width):
                E[i, d] -= x[i] * change[d]


def draw_strength(Y: npt.NDArray[np.float32], rng: np.random.Generator) -> float:
    """Draw how strongly weights are pulled to zero; Y as in ``draw_features``."""
    square = float(np.einsum("ij,ij->", Y, Y, dtype=np.float64))
    return float(rng.gamma(1.0 + 0.5 * Y.size, 1.0 / (1.0 + 0.5 * square)))
