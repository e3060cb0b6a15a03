"""From a posterior to Factors: what is known of rows, and how much of it is still open.

The covariance of a row is taken to be that of a row never seen, times the share of it that is left:
one number per row, that share on average over the cells that people look at. So a model need not
keep a matrix for every row, and all that works on Factors works.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Codes, Counts, Floats
from noisewise.engine.sgd.factors import Factors, Side
from noisewise.engine.sgd.layout import BIAS, LINE, Params, State, aligned_zeros
from noisewise.engine.training import one_blas_thread
from noisewise_reproduction.rivals.engine.als import Array, Grouped, gathered
from noisewise_reproduction.rivals.engine.variational import (
    Common,
    Posterior,
    packed,
    posterior_rows,
)


@dataclass(frozen=True)
class Doubt:
    """What not knowing a row of one mode does to cells.

    Attributes
    ----------
    covariance
        Of a row never seen.
    typical
        Mean over observed cells of x x', where x is what the row is multiplied with.
    both
        Variance of a cell whose rows are both unknown, from the product of what is not known.
    """

    covariance: Array
    typical: Array
    both: float

    @classmethod
    def of(cls, factors: Factors, common: Common, mode: int) -> Doubt:
        """Take it from the rows of the other mode."""
        x, weight = seen_through(factors, 1 - mode)[:-1], factors.counts[1 - mode]
        own, other = common.covariance(mode), common.covariance(1 - mode)
        typical = (x * (weight / weight.sum())[:, None]).T @ x
        return cls(own, typical, float(np.sum(own[:-1, :-1] * other[:-1, :-1])))

    def left(self, covariances: Array) -> Array:
        """Return the share of doubt that packed covariances of rows leave."""
        i, j = np.tril_indices(len(self.typical))
        doubled = np.where(i == j, 1.0, 2.0) * self.typical[i, j]
        share = covariances @ doubled / np.sum(self.covariance * self.typical)
        return np.asarray(np.clip(share, 0.0, 1.0))

    def spread(self, x: Array, left: Array) -> Array:
        """Return the variance of cells of rows x of the other mode, were the row never seen.

        Half of what comes from both is counted here, half by the other mode.
        """
        return np.asarray(((x @ self.covariance) * x).sum(axis=1) + 0.5 * self.both * left)


def as_factors(
    belief: Posterior, params: Params, counts: tuple[Counts, ...], location: float, scale: float
) -> Factors:
    """Return means as mean factors, noise as a deviation of rank 1, and the doubt that is left."""
    noise = [belief.noise(m) / math.sqrt(belief.common.tau) for m in range(2)]
    rows = tuple(_laid_out(params, belief.mean(m), noise[m]) for m in range(2))
    order = tuple(np.arange(len(own), dtype=np.int32) for own in rows)
    state = State(rows, params.layout, belief.epoch, 1.0 / belief.common.tau)
    factors = Factors.finalize(params, state, counts, location, scale, order)
    with one_blas_thread():  # the same bits on any machine's threads
        doubts = [Doubt.of(factors, belief.common, m) for m in range(2)]
        shrink = [np.append(doubts[m].left(belief.covariance(m)), 1.0) for m in range(2)]
        spread = [doubts[1 - m].spread(seen_through(factors, m), shrink[m]) for m in range(2)]
    for own, count, doubt in zip(spread, counts, doubts, strict=True):
        own[-1] = own[:-1][count > 0].mean() + 0.5 * doubt.both
    return replace(factors, spread=_floats(spread), shrink=_floats(shrink))


def new_side(
    factors: Factors, common: Common, mode: int, codes: Codes, values: Floats, cap: float
) -> Side:
    """Return a row that has no id yet, from its own values, as a sweep would find it.

    Parameters
    ----------
    factors, common
        As ``as_factors`` gave them, and the posterior had it.
    mode
        Mode of the new row.
    codes
        Rows of the other mode that it was seen with, as from ``Factors.known_codes``.
    values
        Standardised values.
    cap
        The most that the precision may be.
    """
    other, n = 1 - mode, len(codes)
    mean, noise = _rows(factors, other)
    shape = common.shape[other] + 0.5 * np.append(factors.counts[other], 0)[codes]
    noise = noise[codes] * math.sqrt(common.tau)
    share = factors.shrink[other][codes].astype(np.float64) / noise
    covariance = share[:, None, None] * common.covariance(other)
    moments = packed(mean[codes], covariance, shape / ((shape - 1.0) * noise))
    side = Grouped(np.array([0, n]), np.arange(n, dtype=np.int32), values.astype(np.float64))
    moments, shape, rate, log_det, _ = posterior_rows(
        common, mode, gathered(side, slice(0, 1), moments), cap
    )
    belief = Posterior((moments,), (shape,), (rate,), (log_det,), common)
    row = _laid_out(factors.params, belief.mean(0), belief.noise(0) / math.sqrt(common.tau))
    shrink = Doubt.of(factors, common, mode).left(belief.covariance(0))
    x = belief.mean(0)
    x[:, -1] = 1.0
    spread = Doubt.of(factors, common, other).spread(x, shrink)
    return Side(row, *_floats([spread, shrink]))


def seen_through(factors: Factors, mode: int) -> Array:
    """Return what multiplies a row of the other mode: the factors of ``mode``, and 1."""
    x, _ = _rows(factors, mode)
    x[:, -1] = 1.0
    return x


def _rows(factors: Factors, mode: int) -> tuple[Array, Array]:
    """Return rows with their bias last, and their deviation; the row never seen included."""
    state = factors.state
    means = np.column_stack([state.mean_factors(mode), state.biases(mode)])
    return means.astype(np.float64), state.deviation_factors(mode)[:, 0].astype(np.float64)


def _laid_out(params: Params, mean: Array, noise: Array) -> Floats:
    rows = aligned_zeros(len(mean), params.layout.width)
    rows[:, BIAS] = mean[:, -1]
    rows[:, LINE : LINE + params.rank] = mean[:, :-1]
    rows[:, params.layout.deviation_start] = noise
    return rows


def _floats(arrays: list[npt.NDArray[np.float64]]) -> tuple[Floats, ...]:
    return tuple(array.astype(np.float32) for array in arrays)
