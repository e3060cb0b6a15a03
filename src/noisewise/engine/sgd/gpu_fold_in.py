"""Many new rows at once on a GPU: what ``fold_in`` does, with matrices of many rows together.

With ``root root'`` the covariance C of ``fold_in.py`` and ``T = X root``, the covariance of a row
is ``root (I + T' diag(1 / v) T)**-1 root'``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cholesky

from noisewise.engine.arrays import Array, Codes, Counts, Floats
from noisewise.engine.devices import Device
from noisewise.engine.ragged import Batch, batches, entries, times
from noisewise.engine.sgd.factors import Factors, Side
from noisewise.engine.sgd.fold_in import PRIOR_RATINGS, ROUNDS, STEPS
from noisewise.engine.sgd.layout import BIAS
from noisewise.engine.training import one_blas_thread

COPIES = 4  # of rows seen, and of matrices, that a batch needs


class _Seen(NamedTuple):
    """Rows of the other mode that were seen, on the GPU."""

    turned: Any  # T
    biases: Any  # and what the average row makes of them
    noise: Any  # deviation factors
    epistemic: Any


def fold_in_many(
    device: Device, factors: Factors, mode: int, starts: Counts, codes: Codes, values: Floats
) -> Side:
    """Return the rows of new ids of ``mode``, of which k was seen with ``codes[starts[k:k + 2]]``.

    Codes are as from ``Factors.known_codes``; values have their own units.
    """
    xp, own = device.xp, factors.populations[mode]
    with one_blas_thread():
        root = cholesky(own.covariance, lower=True)
    used, places = np.unique(codes, return_inverse=True)
    seen = _seen(device, factors, mode, used, root)
    places = device.on_device(places)
    targets = device.on_device((values.astype(np.float64) - factors.location) / factors.scale)
    size = len(root)
    found = Side(
        np.repeat(factors.state.rows[mode][-1:], len(starts) - 1, axis=0),
        *(np.empty(len(starts) - 1, dtype=np.float32) for _ in range(2)),
    )
    average = device.on_device(found.rows[0, factors.state.layout.parts["deviation"]])
    here = _Learner(xp, factors, seen, average.astype(np.float64))
    for batch in batches(starts, entries(device, COPIES * size), fixed=size):
        at = device.on_device(batch.at)
        moved, inverse, p = here.learn(
            batch, device.on_device(batch.valid), places[at], targets[at]
        )
        _keep(device, factors, mode, root, found, batch, (moved, inverse, p))
    return found


def _seen(device: Device, factors: Factors, mode: int, used: Codes, root: Array) -> _Seen:
    parts, centre = factors.state.layout.parts, factors.populations[mode].centre
    columns = factors.state.rows[1 - mode][used].astype(np.float64)
    ones = np.full((len(used), 1), float(factors.params.biases))
    x = np.concatenate([columns[:, parts["mean"]], ones], axis=1)
    epistemic = factors.shrink[1 - mode][used].astype(np.float64) * factors.spread[mode][-1]
    seen = x @ root, columns[:, BIAS] + x @ centre, columns[:, parts["deviation"]], epistemic
    return _Seen(*map(device.on_device, seen))


class _Learner:
    """Regression and deviation in turn, of a batch of rows."""

    def __init__(self, xp: Any, factors: Factors, seen: _Seen, average: Any) -> None:
        self.xp, self.factors, self.seen, self.average = xp, factors, seen, average

    def learn(self, batch: Batch, valid: Any, at: Any, target: Any) -> tuple[Any, Any, Any]:
        """Return how far rows moved and (I + T' diag(1 / v) T)**-1, both turned; deviation."""
        xp, seen, factors, delta = self.xp, self.seen, self.factors, self.factors.params.delta
        turned, q, epistemic = seen.turned[at], seen.noise[at], seen.epistemic[at]
        target, learned = target - seen.biases[at], factors.learned_deviation
        p = xp.repeat(self.average[None], len(at), axis=0)
        for _ in range(ROUNDS if learned else 1):
            noise = times(xp, q, p) + delta if learned else factors.state.variance
            weight = valid / (noise + epistemic)
            weighted = xp.swapaxes(turned * weight[..., None], 1, 2)
            inverse = xp.linalg.inv(xp.eye(turned.shape[2]) + weighted @ turned)
            moved = times(xp, inverse, times(xp, weighted, target))
            if learned:
                left = (target - times(xp, turned, moved)) ** 2
                left += ((turned @ inverse) * turned).sum(axis=2)
                share = noise * weight
                squared = share**2 * left + share * epistemic
                p = self._deviation(batch, valid, q, squared, delta)
        return moved, inverse, p

    def _deviation(self, batch: Batch, valid: Any, q: Any, squared: Any, delta: float) -> Any:
        """Do what ``fold_in._deviation`` does."""
        xp, across = self.xp, self.xp.swapaxes(q, 1, 2)
        p = start = xp.repeat(self.average[None], len(q), axis=0)
        for _ in range(STEPS):
            s = times(xp, q, p) + delta
            more, less = (times(xp, across, valid * part) for part in (squared / s**2, 1.0 / s))
            p = p * xp.sqrt(more / (less + 1e-12))
        n = xp.asarray(batch.lengths)[:, None]
        return (n * p + PRIOR_RATINGS * start) / (n + PRIOR_RATINGS)


def _keep(
    device: Device, factors: Factors, mode: int, root: Array, found: Side, batch: Batch, own: Any
) -> None:
    """Turn what was learned back, and put it where it belongs."""
    moved, inverse, p = own
    mine, other = factors.populations[mode], factors.populations[1 - mode].covariance
    turn, parts = device.on_device(root), factors.state.layout.parts
    fitted = device.on_device(mine.centre) + moved @ turn.T
    # Sums over the elements of root M root' times those of A are those of M times root' A root.
    through = turn.T @ device.on_device(mine.seen_through) @ turn
    inner = np.zeros_like(other)
    inner[:-1, :-1] = other[:-1, :-1]
    inner = turn.T @ device.on_device(inner) @ turn
    z = fitted.copy()
    z[:, -1] = 1.0
    spread = ((z @ device.on_device(other)) * z).sum(axis=1) + (inverse * inner).sum(axis=(1, 2))
    all_of_it = float(np.sum(mine.covariance * mine.seen_through))
    shrink = (inverse * through).sum(axis=(1, 2)) / all_of_it
    here = [device.on_host(part) for part in (fitted, p, spread, shrink)]
    if not all(np.isfinite(part).all() for part in here):
        raise np.linalg.LinAlgError("A row is not finite.")
    rows, at = found.rows, batch.rows
    rows[at, parts["mean"]], rows[at, BIAS] = here[0][:, :-1], here[0][:, -1]
    rows[at, parts["deviation"]] = here[1]
    found.spread[at], found.shrink[at] = here[2], here[3]
