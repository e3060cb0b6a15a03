"""A row that comes later: drawn from its own observations, all else as in the kept draws."""

from __future__ import annotations

import numpy as np

from noisewise.engine.blas import one_blas_thread
from noisewise.engine.gibbs.noise import FLOOR, draw_noise
from noisewise.engine.gibbs.ordinal import draw_levels
from noisewise.engine.gibbs.posterior import Posterior, Rows, Side
from noisewise.engine.gibbs.random import FOLD, key
from noisewise.engine.gibbs.rows import draw_rows, sums_for
from noisewise.engine.state import Codes, Floats

ROUNDS = {"gaussian": 2, "ordinal": 4}  # of conditional draws, from the average row's noise


def fold_in(posterior: Posterior, mode: int, codes: Codes, values: Floats) -> Side:
    """Return the new row of ``mode`` in every kept draw, seen with ``codes`` of the other mode.

    ``values`` are standardised, or numbers of levels.
    """
    with one_blas_thread():
        draws = [_drawn(posterior, k, mode, codes, values) for k in range(len(posterior))]
    return Side(1, draws.__getitem__)


def _drawn(posterior: Posterior, number: int, mode: int, codes: Codes, values: Floats) -> Rows:
    model, n = posterior.model, len(codes)
    one = {name: array[number] for name, array in posterior.draws.items()}
    other = posterior.side(1 - mode, codes).rows(number)
    width = -(-max(model.rank, 1) // 16) * 16
    factors = np.zeros((1 + n, width), dtype=np.float32)
    factors[1:, : model.rank] = other.factors
    biases = np.append(np.float32(0.0), other.biases)
    last = mode == len(posterior.shape) - 1
    level = one["level"].astype(np.float64) if last else np.ones(len(one["level"]))
    noise = np.empty((1 + n, model.noise_rank), dtype=np.float32)
    if model.noise_rank:
        noise[0], noise[1:] = level, other.noise
    widths = one["width_centre"][None].astype(np.float64)
    chosen, index = np.zeros(1, dtype=np.int32), np.arange(n, dtype=np.int32)
    starts, others = np.array([0, n]), index[None] + np.int32(1)
    effects = np.empty((0, model.rank + 1), dtype=np.float32)
    if model.sets:
        effects = _effect(posterior, one, mode, codes)
    centre, precision = (one[name][mode].astype(np.float64) for name in ("centres", "precisions"))

    fitted = np.zeros(n, dtype=np.float32)
    fitted += one["typical"][mode, -1] + other.biases
    fitted += other.factors @ one["typical"][mode, :-1]
    target = values.astype(np.float32)
    for turn in range(ROUNDS[model.likelihood]):
        root = _roots(posterior, number, noise)
        if model.ordinal:
            cuts = np.ascontiguousarray(other.widths, np.float64) if mode == 1 else widths
            target = np.empty(n, dtype=np.float32)
            rows = index if mode == 1 else chosen  # each rating has cut-points of its own user
            ends = np.arange(n + 1) if mode == 1 else starts
            draw_levels(
                rows, ends, values.astype(np.int32), fitted, root, cuts, widths[0],
                np.ones_like(widths[0]), posterior.scale.anchor, 0.0,
                key(model.seed, FOLD, number, turn, 0), target, np.zeros(len(rows), dtype=np.bool_),
            )  # fmt: skip
        draw_rows(
            chosen, starts, index, others, factors, biases, 0, root, target, centre, effects,
            precision, model.rank, key(model.seed, FOLD, number, turn, 1), sums_for(root), fitted,
        )  # fmt: skip
        if model.noise_rank:
            draw_noise(
                chosen, starts, others, noise, 0, target - fitted, level,
                key(model.seed, FOLD, number, turn, 2),
            )  # fmt: skip
    return Rows(
        factors[:1, : model.rank], biases[:1], noise[:1],
        widths.astype(np.float32) if mode == 0 else np.empty((1, 0), dtype=np.float32),
        np.zeros(1, dtype=np.bool_),
    )  # fmt: skip


def _roots(posterior: Posterior, number: int, noise: Floats) -> Floats:
    """Root of the precision of the new row's observations."""
    if posterior.model.noise_rank == 0:
        level = posterior.draws["level"][number, 0]
        return np.full(len(noise) - 1, 1.0 / np.sqrt(level), dtype=np.float32)
    variance = np.maximum(noise[1:] @ noise[0], np.float32(FLOOR))
    return np.asarray(1.0 / np.sqrt(variance), dtype=np.float32)


def _effect(posterior: Posterior, one: dict[str, Floats], mode: int, codes: Codes) -> Floats:
    """Return what the new row's set adds to its prior mean."""
    first = 0 if mode == 0 else posterior.shape[1]
    known = codes[codes < posterior.shape[1 - mode]]
    weights = one["features"][first + known].astype(np.float32)
    return np.asarray(weights.sum(axis=0, keepdims=True) / np.sqrt(np.float32(len(codes))))
