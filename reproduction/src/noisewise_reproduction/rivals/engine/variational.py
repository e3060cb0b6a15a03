"""The variational posterior of a robust factorization, and the steps that improve it.

    y_nm = u_n . v_m + c_n + d_m + e_nm,     e_nm ~ N(0, 1 / (tau a_n b_m))
    z_n  = [u_n, c_n] ~ N(0, (a_n L)**-1),   a_n ~ Gamma(s, s), of mean 1

and the same for the other mode, with ``b_m`` and an L and s of its own. Given its precision a row
is Gaussian; without, Student-t. The posterior is sought among

    q(z_n, a_n) = N(z_n; m_n, (a_n A_n)**-1) Gamma(a_n; shape_n, rate_n)

which keeps row and precision together. A row is known to the other mode by its moments E[a g g'],
g = [z, 1], packed as a triangle that ends with E[a g]. L, s and tau are those under which the data
are likeliest. No step has a size, and none lowers ``bound``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import digamma, gammaln

from noisewise import schema
from noisewise.engine import arrays
from noisewise.engine.training import in_threads, one_blas_thread
from noisewise.errors import brief
from noisewise.schema import Entry, Found, Rule, Schema, Source, Tensor, integer, real
from noisewise.storage import Tensors
from noisewise_reproduction.rivals.engine.als import Array, Grouped, gathered, inverted, unpacked

CHUNK = 256  # rows that one task works on
START_SHARE = 0.2  # of the variance of values: what factors explain of it at the start
START_SHAPE = 5.0
SHAPES = 1.5, 1e4  # of s: below, an id never seen has no variance; above, all rows are alike
LEAST_COVARIANCE = 1e-6  # added to that of rows, by a prior of L that keeps it finite
LARGEST_PRECISION = 1e6  # of tau, for values that are all alike

ARRAYS = "moments", "shape", "rate", "log_det"  # of a posterior: one of each per mode, by row


@dataclass
class Common:
    """What rows have in common: L and s of either mode, and tau, the precision of the noise."""

    prior: list[Array]
    shape: list[float]
    tau: float = 1.0

    __repr__ = brief

    @property
    def rank(self) -> int:
        """Number of factors."""
        return len(self.prior[0]) - 1

    def covariance(self, mode: int) -> Array:
        """Return the covariance of a row never seen, whatever its precision: E[1/a] / L."""
        s = self.shape[mode]
        return np.asarray(s / (s - 1.0) * np.linalg.inv(self.prior[mode]))

    @classmethod
    def schema(cls, rank: int, place: str) -> Schema:
        """Declare what a file keeps."""
        yield Entry("common.shape", f"{place}.shape", _shapes)
        yield Entry("common.tau", f"{place}.tau", real(above=0.0))
        size = (rank + 1, rank + 1)
        for mode in range(2):
            yield Tensor(f"prior{mode}", "float64", size, f"{place}.prior.{mode}", CERTAIN)

    @classmethod
    def of(cls, found: Found) -> Common:
        """Make it of what a file has."""
        priors = [found[f"prior{mode}"] for mode in range(2)]
        return cls(priors, found["common.shape"], found["common.tau"])


CERTAIN = Rule("is no precision", lambda a: (np.linalg.eigvalsh(a) > 0).all())


def _shapes(value: Any) -> list[float] | None:
    shapes = [float(shape) for shape in value]
    return shapes if len(shapes) == 2 and 1 < min(shapes) <= max(shapes) < math.inf else None


@dataclass
class Posterior:
    """What is believed of every row of both modes.

    Attributes
    ----------
    moments
        Per mode and row, the packed triangle of E[a g g'].
    shape, rate
        Per mode and row, of the Gamma posterior of its precision.
    log_det
        Per mode and row, log of the determinant of A.
    common
        What rows have in common.
    squares
        Sum over all cells of E[a b (y - mean)**2].
    epoch
        Number of finished sweeps.
    bounds
        The bound after each of them.
    """

    moments: tuple[Array, ...]
    shape: tuple[Array, ...]
    rate: tuple[Array, ...]
    log_det: tuple[Array, ...]
    common: Common
    squares: float = 0.0
    epoch: int = 0
    bounds: list[float] = field(default_factory=list)

    @property
    def rank(self) -> int:
        """Number of factors."""
        return self.common.rank

    def mean(self, mode: int) -> Array:
        """Return the mean of every row, its bias last."""
        ends = self.moments[mode][:, -(self.rank + 2) :]
        return ends[:, :-1] / ends[:, -1:]

    def covariance(self, mode: int) -> Array:
        """Return the packed covariance of every row, whatever its precision: E[1/a] / A."""
        mean, squares = self.mean(mode), self.moments[mode][:, : -(self.rank + 2)]
        i, j = np.tril_indices(self.rank + 1)
        apart = squares - self.precision(mode)[:, None] * mean[:, i] * mean[:, j]
        return self.noise(mode)[:, None] * apart

    def precision(self, mode: int) -> Array:
        """Return E[a] of every row."""
        return self.shape[mode] / self.rate[mode]

    def noise(self, mode: int) -> Array:
        """Return E[1/a] of every row."""
        return self.rate[mode] / (self.shape[mode] - 1.0)

    def copy(self) -> Posterior:
        """Return a posterior of its own, to be kept while training goes on."""
        arrays: Any = {name: tuple(a.copy() for a in getattr(self, name)) for name in ARRAYS}
        common = Common(list(self.common.prior), list(self.common.shape), self.common.tau)
        return replace(self, **arrays, common=common, bounds=list(self.bounds))

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        parts = (self.moments, self.rate, self.log_det, self.common.prior)
        return all(np.isfinite(array.sum()) for part in parts for array in part)

    def _schema(self) -> Schema:
        yield from Common.schema(self.rank, "common")
        for name in ARRAYS:
            for m, like in enumerate(getattr(self, name)):
                yield Tensor(f"{name}{m}", "float64", like.shape, f"{name}.{m}")
        yield Entry("squares", "squares", real())
        yield Entry("epoch", "epoch", integer())
        yield Entry("bounds", "bounds", lambda bounds: [float(bound) for bound in bounds])

    def pack(self) -> tuple[dict[str, Any], Tensors]:
        """Header and tensors of a checkpoint."""
        return schema.packed(self._schema(), self)

    def restored(self, source: arrays.Source) -> Posterior:
        """Return a posterior like this one with what ``pack`` gave; the file is not trusted."""
        found = schema.unpacked(self._schema(), Source(source.header, source.tensors))
        arrays: Any = {name: tuple(found[f"{name}{m}"] for m in range(2)) for name in ARRAYS}
        numbers = {name: found[name] for name in ("squares", "epoch", "bounds")}
        return replace(self, **arrays, common=Common.of(found), **numbers)


def initial_posterior(shape: tuple[int, ...], rank: int, seed: int) -> Posterior:
    """Draw the posterior to start from: rows of the size that standardised values suggest."""
    rng = np.random.default_rng([seed, 0])
    variance = np.full(rank + 1, START_SHARE)
    variance[:rank] = math.sqrt(START_SHARE / max(rank, 1))
    moments = []
    for n in shape:
        mean = rng.normal(0.0, np.sqrt(variance), (n, rank + 1))
        mean[:, -1] = 0.0
        certain = np.broadcast_to(np.diag(0.1 * variance), (n, rank + 1, rank + 1))
        moments.append(packed(mean, certain, np.ones(n)))
    prior = [np.diag(1.0 / variance) for _ in shape]
    shapes, rates = (tuple(np.full(n, START_SHAPE) for n in shape) for _ in range(2))
    log_det = tuple(np.full(n, -np.log(0.1 * variance).sum()) for n in shape)
    common = Common(prior, [START_SHAPE, START_SHAPE])
    return Posterior(tuple(moments), shapes, rates, log_det, common)


def sweep(state: Posterior, data: tuple[Grouped, ...], cap: float, n_jobs: int) -> None:
    """Take every step once; ``cap`` is the most that E[a] may be."""
    with one_blas_thread():  # the same bits on any machine's threads
        for step in steps(state, data, cap, n_jobs):
            step()
        state.epoch += 1
        state.bounds.append(bound(state, data))


def steps(
    state: Posterior, data: tuple[Grouped, ...], cap: float, n_jobs: int
) -> list[Callable[[], None]]:
    """Return the steps of a sweep in their order; none of them lowers the bound."""
    chosen: list[Callable[[], None]] = []
    for mode, side in enumerate(data):
        chosen += [
            partial(update_rows, state, mode, side, cap, n_jobs),
            partial(update_prior, state, mode, side.counts),
            partial(update_shape, state, mode, side.counts),
            partial(update_tau, state, len(side.values)),
        ]
    return chosen


def update_rows(state: Posterior, mode: int, side: Grouped, cap: float, n_jobs: int) -> None:
    """Give every row of a mode its best posterior, given the other mode's."""
    n = len(side.starts) - 1
    squares = np.empty(n)

    def work(start: int) -> None:
        part = slice(start, min(start + CHUNK, n))
        belief = posterior_rows(
            state.common, mode, gathered(side, part, state.moments[1 - mode]), cap
        )
        for name, new in zip(ARRAYS, belief[:4], strict=True):
            getattr(state, name)[mode][part] = new
        squares[part] = belief[4]

    in_threads(work, range(0, n, CHUNK), n_jobs)
    state.squares = float(squares[side.counts > 0].sum())


def update_prior(state: Posterior, mode: int, counts: npt.NDArray[np.int64]) -> None:
    """Give rows the likeliest L; only rows that were observed have a say."""
    squares = state.moments[mode][counts > 0, : -(state.rank + 2)].mean(axis=0)
    covariance = unpacked(squares[None], state.rank + 1)[0]
    state.common.prior[mode] = np.linalg.inv(covariance + LEAST_COVARIANCE * np.eye(state.rank + 1))


def update_shape(state: Posterior, mode: int, counts: npt.NDArray[np.int64]) -> None:
    """Give the precisions of rows the likeliest s: a root in one dimension."""
    shape, rate = state.shape[mode][counts > 0], state.rate[mode][counts > 0]
    spread = np.mean(shape / rate - (digamma(shape) - np.log(rate))) - 1.0

    def slope(log_s: float) -> float:
        s = math.exp(log_s)
        return float(log_s - digamma(s) - spread)

    low, high = map(math.log, SHAPES)
    if slope(low) <= 0.0:
        root = low
    else:
        root = high if slope(high) >= 0.0 else float(brentq(slope, low, high, xtol=1e-12))
    state.common.shape[mode] = math.exp(root)


def update_tau(state: Posterior, n: int) -> None:
    """Give the noise of n cells the likeliest precision."""
    state.common.tau = min(n / max(state.squares, 1e-300), LARGEST_PRECISION)


def bound(state: Posterior, data: tuple[Grouped, ...]) -> float:
    """Return the lower bound of the log-likelihood (ELBO), with the prior of L."""
    n = len(data[0].values)
    total = (
        0.5 * n * math.log(state.common.tau / (2.0 * math.pi))
        - 0.5 * state.common.tau * state.squares
    )
    for mode, side in enumerate(data):
        seen = side.counts > 0
        moments, shape, rate, log_det = (getattr(state, name)[mode][seen] for name in ARRAYS)
        log_precision = digamma(shape) - np.log(rate)
        total += 0.5 * float(side.counts[seen] @ log_precision)
        total -= _apart(state.common.prior[mode], moments, log_det)
        s = state.common.shape[mode]
        total -= float(
            np.sum(
                (shape - s) * digamma(shape) - gammaln(shape) + gammaln(s)
                + s * (np.log(rate) - math.log(s)) + shape * (s - rate) / rate
            )
        )  # fmt: skip
        total -= (
            0.5 * int(seen.sum()) * LEAST_COVARIANCE * float(np.trace(state.common.prior[mode]))
        )
    return total


def posterior_rows(
    common: Common, mode: int, seen: tuple[Array, ...], cap: float
) -> tuple[Array, ...]:
    """Return moments, shape, rate, log_det and expected squares of rows, from what ``gathered``."""
    counts, sums, products, squares = seen
    rank, tau, prior, s = common.rank, common.tau, common.prior[mode], common.shape[mode]
    own = np.append(np.arange(rank), rank + 1)  # what the row is multiplied with: factors and 1
    other_bias = rank
    G = unpacked(sums, rank + 2)
    A = prior + tau * G[:, own[:, None], own]
    pull = tau * (products[:, own] - G[:, own, other_bias])
    energy = tau * (squares - 2.0 * products[:, other_bias] + G[:, other_bias, other_bias])

    covariance, log_det = inverted(A)
    mean = np.einsum("nij,nj->ni", covariance, pull)
    left = np.maximum(energy - (mean * pull).sum(axis=1), 0.0)
    shape = s + 0.5 * counts
    rate = np.maximum(s + 0.5 * left, shape / cap)  # still the best q of those that obey the cap
    precision = shape / rate

    held = ((mean @ prior) * mean).sum(axis=1)
    expected = precision * (left - held) + (rank + 1) - np.einsum("nij,ij->n", covariance, prior)
    return packed(mean, covariance, precision), shape, rate, log_det, expected / tau


def _apart(prior: Array, moments: Array, log_det: Array) -> float:
    """Divergence of the posteriors of rows from their prior, their precisions given."""
    size = len(prior)
    i, j = np.tril_indices(size)
    doubled = np.where(i == j, 1.0, 2.0) * prior[i, j]
    apart = log_det - np.linalg.slogdet(prior)[1] - size + moments[:, : len(doubled)] @ doubled
    return 0.5 * float(apart.sum())


def packed(mean: Array, covariance: Array, precision: Array) -> Array:
    """Return E[a g g'] of rows, packed; ``covariance`` is that of a precision of 1."""
    i, j = np.tril_indices(mean.shape[1])
    weighted = precision[:, None] * mean
    inner = weighted[:, i] * mean[:, j] + covariance[:, i, j]
    return np.column_stack([inner, weighted, precision])
