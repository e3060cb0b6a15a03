"""Fold-in: a row that comes later, learned from its observations, all else as in kept draws.

In every draw the new row has a normal distribution given its observations and their noise. It is
kept whole, as mean and covariance: a single draw from it would add the luck of that draw to what is
predicted. The noise is expected rather than drawn for the same reason, in turn with the row (EM).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from noisewise.engine.arrays import Array, Codes, Floats
from noisewise.engine.gibbs import newcomers
from noisewise.engine.gibbs.posterior import RatingPosterior, Rows, Side
from noisewise.engine.gibbs.steps.ordinal import draw_levels
from noisewise.engine.gibbs.steps.variances import FLOOR, SHAPE
from noisewise.engine.gibbs.sweep import FOLD, generator, key
from noisewise.engine.training import one_blas_thread

ROUNDS = {"gaussian": 2, "ordinal": 4}  # of row and noise in turn, from the average row's noise
STEPS = 3  # of the noise in a round
ROUNDING = 1e-6  # share of the largest variance that single precision may take from another


class Seen(NamedTuple):
    """What a new row was seen with, in one draw: rows of the other mode."""

    x: Array  # factors and 1
    biases: Array
    noise: Array  # factors of the noise
    unknown_variance: Array  # that comes from rows that were never seen
    widths: Array  # of the levels of these rows, if they are users


def fold_in(
    posterior: RatingPosterior, mode: int, codes: Codes, values: Floats, features: Any = None
) -> Side:
    """Return the new row of ``mode`` in every draw; values are standardised, or of levels.

    ``features`` is a sparse matrix of one row, if any are known of it.
    """
    with one_blas_thread():
        draws = [
            _learned(posterior, k, mode, codes, values, features) for k in range(len(posterior))
        ]
    return Side(1, draws.__getitem__)


def _learned(
    posterior: RatingPosterior, number: int, mode: int, codes: Codes, values: Floats, features: Any
) -> Rows:
    spec = posterior.spec
    one = {name: array[number] for name, array in posterior.draws.items()}
    seen = _seen(posterior, number, one, mode, codes)
    level = one["level"].astype(np.float64)
    common = posterior.average_noise[number, mode].astype(np.float64)
    shift: Any = 0.0
    if features is not None:
        given = posterior.draws, spec, number, mode, newcomers.part_of(posterior.cold, mode)
        rows, noise = newcomers.expected(*given, features)
        shift = newcomers.prior_shift(one, given[4], features)[0]
        one["typical"], one["covariances"] = one["typical"].copy(), one["covariances"].copy()
        one["typical"][mode], one["covariances"][mode] = rows[0], one["cold_covariances"][mode]
        common = noise[0].astype(np.float64)
    centre, precision = _prior(posterior, one, mode, codes, shift)
    widths = one["width_centre"][None].astype(np.float64)
    own, target = common, values.astype(np.float64)
    mean, half = one["typical"][mode].astype(np.float64), np.zeros_like(precision)
    for turn in range(ROUNDS[spec.likelihood]):
        noise = seen.noise @ own if spec.noise_rank else np.full(len(codes), level[0])
        weight = 1.0 / (np.maximum(noise, FLOOR) + seen.unknown_variance)
        if spec.ordinal:
            rng = generator(spec.seed, FOLD, number, turn, 1)
            drawn = mean + half.T @ rng.standard_normal(len(mean))
            target = _hidden(
                posterior, mode, values, seen, seen.x @ drawn + seen.biases, weight, widths,
                key(spec.seed, FOLD, number, turn, 0),
            )  # fmt: skip
        mean, half = _given(seen.x, target - seen.biases, weight, centre, precision)
        if spec.noise_rank:
            left = target - seen.biases - seen.x @ mean
            squared = left**2 + ((seen.x @ half.T) ** 2).sum(axis=1)
            own = _noise(own, seen, squared, common)
    return Rows(
        mean.astype(np.float32)[None, :-1],
        mean.astype(np.float32)[None, -1],
        own[None, : spec.noise_rank].astype(np.float32),
        widths.astype(np.float32) if mode == 0 else np.empty((1, 0), dtype=np.float32),
        np.zeros(1, dtype=np.bool_),
        (half.T @ half).astype(np.float32)[None],
        np.zeros(1, dtype=np.bool_),
    )


def _seen(
    posterior: RatingPosterior, number: int, one: dict[str, Any], mode: int, codes: Codes
) -> Seen:
    other = posterior.side(1 - mode, codes).rows(number)
    x = np.column_stack([other.factors, np.ones(len(codes))]).astype(np.float64)
    own, unknown = one["covariances"][mode], one["covariances"][1 - mode]
    z = np.append(one["typical"][mode, :-1], 1.0)
    unknown_variance = other.unknown * (z @ unknown @ z + np.sum((own * unknown)[:-1, :-1]))
    if other.featured.any():
        unknown = one["cold_covariances"][1 - mode]
        unknown_variance[other.featured] = z @ unknown @ z + np.sum((own * unknown)[:-1, :-1])
    biases, noise, widths = (
        array.astype(np.float64) for array in (other.biases, other.noise, other.widths)
    )
    return Seen(x, biases, noise, unknown_variance, np.ascontiguousarray(widths))


def _prior(
    posterior: RatingPosterior, one: dict[str, Any], mode: int, codes: Codes, shift: Any
) -> tuple[Array, Array]:
    """Mean and precision of the new row before its values, given its set as far as it is known.

    ``shift`` is what features add to the mean of rows whose sets are known.

    Effects were learned from the sets of rows that have been there for long. A new row has begun
    one: what is missing to a common size is taken to be like the sets of all rows.
    """
    centre, precision = (one[name][mode].astype(np.float64) for name in ("centres", "precisions"))
    centre = centre + shift
    if not posterior.spec.implicit:
        return centre, precision
    count = posterior.counts[mode]
    common = np.sqrt(count[count > 0]).mean() ** 2
    missing = max(0.0, 1.0 - len(codes) / common)
    first = 0 if mode == 0 else posterior.shape[1]
    known = codes[codes < posterior.shape[1 - mode]]
    effect = one["features"][first + known].astype(np.float64).sum(axis=0)
    effect /= np.sqrt(max(len(codes), common))
    if missing:
        effect += missing * (one["typical"][mode] - centre)
        covariance = (1.0 - missing) * np.linalg.inv(precision)
        covariance += missing * one["covariances"][mode]
        covariance += ROUNDING * np.diag(covariance).max() * np.eye(len(covariance))
        precision = np.linalg.inv(covariance)
    return centre + effect, precision


def _given(
    x: Array, target: Array, weight: Array, centre: Array, precision: Array
) -> tuple[Array, Array]:
    """Return the mean of a row given its observations, and H with covariance H'H."""
    given = (x * weight[:, None]).T @ x + precision
    root = cholesky(given, lower=True, check_finite=False)
    half = solve_triangular(root, np.eye(len(given)), lower=True, check_finite=False)
    return half.T @ (half @ (x.T @ (weight * target) + precision @ centre)), half


def _noise(own: Array, seen: Seen, squared: Array, common: Array) -> Array:
    """Return the factors of the noise expected given squared residuals: sums of parts of each."""
    for _ in range(STEPS):
        parts = seen.noise * own
        share = parts / (parts.sum(axis=1) + seen.unknown_variance)[:, None]
        expected = share**2 * squared[:, None] + parts * (1.0 - share)
        rate = (SHAPE - 1.0) * common + 0.5 * (expected / seen.noise).sum(axis=0)
        own = rate / (SHAPE - 1.0 + 0.5 * len(squared))
    return own


def _hidden(
    posterior: RatingPosterior, mode: int, values: Floats, seen: Seen, fitted: Array,
    weight: Array, widths: Array, key: np.uint64,
) -> Array:  # fmt: skip
    """Draw hidden values of levels, given the row; each has the cut-points of its own user."""
    n = len(values)
    rows = np.arange(n if mode == 1 else 1, dtype=np.int32)
    ends = np.arange(n + 1) if mode == 1 else np.array([0, n])
    target = np.empty(n, dtype=np.float32)
    draw_levels(
        rows, ends, values.astype(np.int32), fitted.astype(np.float32),
        np.sqrt(weight).astype(np.float32), seen.widths if mode == 1 else widths, widths[0],
        np.ones_like(widths[0]), posterior.scale.anchor, 0.0, key, target,
        np.zeros(len(rows), dtype=np.bool_),
    )  # fmt: skip
    return target.astype(np.float64)
