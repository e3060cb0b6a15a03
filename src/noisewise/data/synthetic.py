"""Ratings made up with a known noise: the data to check a learned deviation against.

    mean_ij     = 3.2 + u_i + v_j + U_i . V_j
    variance_ij = noise^2 (FLOOR + (1 - FLOOR) P_i . Q_j)      P, Q >= 0, P . Q is 1 on average

so that both are low-rank, as ``DeviationFactorizer`` has them. Users come in crowds: careful ones,
ordinary ones, and a careless crowd whose ratings say little.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data.ids import Codes, Ids, as_objects
from noisewise.data.observations import Observations
from noisewise.settings import check, number, whole

Floats = NDArray[np.float64]
Random = np.random.Generator


# Careful users, ordinary ones and careless ones: shares of all, and sizes of deviation factors.
SHARES, LEVELS = (0.4, 0.4, 0.2), (0.1, 0.6, 7.0)
STARS = 3.2  # mean of all
USER_BIAS, ITEM_BIAS, TASTE = 0.35, 0.45, 0.7  # stds of the parts of the mean, in stars
FLOOR = 0.35  # share of the noise variance that all cells have
ACTIVITY = 5.0  # the smaller, the more users differ in how many items they rate
POPULARITY = 0.8  # the larger, the more items differ in how many users rate them
FEWEST = 3  # ratings of a user, if there are so many items

RULES = {
    "n_users": whole(1), "n_items": whole(1), "density": number(above=0.0, most=0.99),
    "rank": whole(0), "deviation_rank": whole(0), "noise": number(above=0.0), "seed": whole(0),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class SyntheticRatings:
    """Ratings, and the mean and std of the normal distribution that each was drawn from."""

    observations: Observations
    true_mean: Floats
    true_std: Floats

    def take(self, index: NDArray[Any] | slice) -> SyntheticRatings:
        """Return some of the ratings, with the same ids."""
        part = self.observations.take(index)
        return SyntheticRatings(part, self.true_mean[index], self.true_std[index])


def make_ratings(
    n_users: int = 2500,
    n_items: int = 1000,
    *,
    density: float = 0.2,
    rank: int = 4,
    deviation_rank: int = 2,
    noise: float = 0.8,
    seed: int = 0,
) -> SyntheticRatings:
    """Make up ratings around 1 to 5 stars, in random order; they are neither rounded nor clipped.

    Parameters
    ----------
    n_users, n_items : int
        Size of the table. Ids are text, such as "user0017" and "item003".
    density : float
        Share of the cells that is rated, on average. Some users rate much, some little; some items
        are popular.
    rank, deviation_rank : int
        Factors of the mean, beside the biases, and of the noise variance; 0 of the latter give all
        ratings the same noise.
    noise : float
        Root mean square of the noise, in stars.
    seed : int
        The same seed gives the same ratings.

    Examples
    --------
    >>> ratings = make_ratings(n_users=100, n_items=40, seed=0)
    >>> ratings.observations.ids[0].labels[:3].tolist()
    ['user00', 'user01', 'user02']
    >>> careful, careless = np.quantile(ratings.true_std, [0.1, 0.9])
    >>> bool(careless > 2 * careful)
    True
    """
    check(SimpleNamespace(**locals()), RULES)
    rng = np.random.default_rng(seed)
    shape = n_users, n_items
    i, j = _cells(rng, shape, density)
    mean = _mean(rng, shape, rank, i, j)
    std = noise * np.sqrt(_variance(rng, shape, deviation_rank, i, j))
    values = rng.normal(mean, std).astype(np.float32)
    ids = _ids("user", n_users), _ids("item", n_items)
    return SyntheticRatings(Observations((i, j), values, ids), mean, std)


def _cells(rng: Random, shape: tuple[int, int], density: float) -> tuple[Codes, Codes]:
    """Users and items of the rated cells, in random order."""
    n_users, n_items = shape
    share = rng.beta(ACTIVITY * density, ACTIVITY * (1 - density), n_users)
    counts = np.maximum(np.rint(share * n_items).astype(int), min(FEWEST, n_items))
    popularity = rng.normal(0.0, POPULARITY, n_items)
    # The largest of weights on a log scale, each with Gumbel noise, are a draw without replacement.
    items = [np.argsort(-popularity - rng.gumbel(size=n_items))[:count] for count in counts]
    i, j = np.repeat(np.arange(n_users), counts), np.concatenate(items)
    order = rng.permutation(len(i))
    return i[order].astype(np.int32), j[order].astype(np.int32)


def _mean(rng: Random, shape: tuple[int, int], rank: int, i: Codes, j: Codes) -> Floats:
    u, v = (rng.normal(0.0, b, n) for b, n in zip((USER_BIAS, ITEM_BIAS), shape, strict=True))
    U, V = (rng.normal(0.0, np.sqrt(TASTE) / max(rank, 1) ** 0.25, (n, rank)) for n in shape)
    taste: Floats = (U[i] * V[j]).sum(axis=1)
    return STARS + u[i] + v[j] + taste


def _variance(rng: Random, shape: tuple[int, int], rank: int, i: Codes, j: Codes) -> Floats:
    """Variances of the cells, 1 on average."""
    if rank == 0:
        return np.ones(len(i))
    n_users, n_items = shape
    level = rng.choice(LEVELS, n_users, p=SHARES) * rng.lognormal(0.0, 0.25, n_users)
    P = level[:, None] * rng.dirichlet([2.0] * rank, n_users)
    Q = rng.gamma(4.0, 1.0, (n_items, rank))
    own: Floats = (P[i] * Q[j]).sum(axis=1)
    variance: Floats = FLOOR + (1 - FLOOR) * own / own.mean()
    return variance


def _ids(name: str, n: int) -> Ids:
    digits = len(str(n - 1))
    return Ids(as_objects(f"{name}{k:0{digits}}" for k in range(n)), name)
