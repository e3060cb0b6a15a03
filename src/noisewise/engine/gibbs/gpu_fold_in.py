"""Many new rows at once on a GPU: what ``fold_in`` does, with matrices of many rows together.

Levels are not among it: their hidden values are drawn one row after another.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from noisewise.engine.arrays import Codes, Counts, Floats
from noisewise.engine.devices import Device
from noisewise.engine.gibbs.fold_in import ROUNDING, ROUNDS, STEPS
from noisewise.engine.gibbs.posterior import RatingPosterior, Rows, Side
from noisewise.engine.gibbs.steps.variances import FLOOR, SHAPE
from noisewise.engine.ragged import Batch, batches, entries, times

COPIES = 5  # of rows seen, and of matrices, that a batch needs


class _Seen(NamedTuple):
    """Rows of the other mode that were seen, in one draw, on the GPU."""

    x: Any  # factors and 1
    biases: Any
    noise: Any
    unknown_variance: Any
    features: Any  # what having been seen with each adds to a row, 0 for those never seen


class _Part(NamedTuple):
    """A batch of rows on the GPU."""

    batch: Batch
    at: Any  # among rows seen
    valid: Any
    values: Any


def fold_in_many(
    device: Device,
    posterior: RatingPosterior,
    mode: int,
    starts: Counts,
    codes: Codes,
    values: Floats,
) -> Side:
    """Return new rows of ``mode`` in every draw; k was seen with ``codes[starts[k:k + 2]]``.

    Values are standardised.
    """
    size, many = posterior.spec.rank + 1, len(starts) - 1
    used, places = np.unique(codes, return_inverse=True)
    parts = [
        _Part(batch, *map(device.on_device, (places[batch.at], batch.valid, values[batch.at])))
        for batch in batches(starts, entries(device, COPIES * size), fixed=size)
    ]
    draws = []
    for number in range(len(posterior)):
        one = _Draw(device, posterior, number, mode, used)
        rows = Rows(
            np.empty((many, size - 1), dtype=np.float32),
            np.empty(many, dtype=np.float32),
            np.empty((many, posterior.spec.noise_rank), dtype=np.float32),
            np.empty((many, 0), dtype=np.float32),
            np.zeros(many, dtype=np.bool_),
            np.empty((many, size, size), dtype=np.float32),
            np.zeros(many, dtype=np.bool_),
        )
        for part in parts:
            mean, noise, covariance = map(device.on_host, one.learn(part))
            if not np.isfinite(covariance).all():
                raise np.linalg.LinAlgError("A row is not finite.")
            at = part.batch.rows
            rows.factors[at], rows.biases[at], rows.noise[at] = mean[:, :-1], mean[:, -1], noise
            rows.covariance[at] = covariance
        draws.append(rows)
    return Side(many, draws.__getitem__)


class _Draw:
    """One kept draw, and what new rows are in it."""

    def __init__(
        self, device: Device, posterior: RatingPosterior, number: int, mode: int, used: Codes
    ) -> None:
        self.device, self.xp, self.spec = device, device.xp, posterior.spec
        self.one = {name: array[number] for name, array in posterior.draws.items()}
        self.mode, self.counts = mode, posterior.counts[mode]
        self.common = device.on_device(posterior.average_noise[number, mode].astype(np.float64))
        own, unknown = self.one["covariances"][mode], self.one["covariances"][1 - mode]
        other = posterior.side(1 - mode, used).rows(number)
        z = np.append(self.one["typical"][mode, :-1], 1.0)
        variance = z @ unknown @ z + np.sum((own * unknown)[:-1, :-1])
        features = np.zeros((len(used), 0))
        if self.spec.implicit:
            known = used < posterior.shape[1 - mode]
            first = 0 if mode == 0 else posterior.shape[1]
            features = self.one["features"][first + np.where(known, used, 0)] * known[:, None]
        x = np.concatenate([other.factors, np.ones((len(used), 1))], axis=1)
        seen = x, other.biases, other.noise, variance * other.unknown, features
        self.seen = _Seen(*(device.on_device(part.astype(np.float64)) for part in seen))

    def learn(self, part: _Part) -> tuple[Any, Any, Any]:
        """Return means, noise and covariances of a batch of rows, in single precision."""
        xp, spec, seen = self.xp, self.spec, self.seen
        level = self.device.on_device(self.one["level"].astype(np.float64))
        own = common = xp.repeat(self.common[None], len(part.at), axis=0)
        x, unknown = seen.x[part.at], seen.unknown_variance[part.at]
        target = part.values - seen.biases[part.at]
        centre, precision = self._prior(part)
        for _ in range(ROUNDS[spec.likelihood]):
            factors = seen.noise[part.at]
            noise = times(xp, factors, own) if spec.noise_rank else level[0]
            weight = part.valid / (xp.maximum(noise, FLOOR) + unknown)
            weighted = xp.swapaxes(x * weight[..., None], 1, 2)
            covariance = xp.linalg.inv(weighted @ x + precision)
            given = times(xp, weighted, target) + times(xp, precision, centre)
            mean = times(xp, covariance, given)
            if spec.noise_rank:
                squared = (target - times(xp, x, mean)) ** 2
                squared += ((x @ covariance) * x).sum(axis=2)
                own = self._noise(part, own, factors, unknown, squared, common)
        noise = own[:, : spec.noise_rank]
        return mean.astype(np.float32), noise.astype(np.float32), covariance.astype(np.float32)

    def _prior(self, part: _Part) -> tuple[Any, Any]:
        """Mean and precision of every row before its values; see ``fold_in._prior``."""
        xp, send = self.xp, self.device.on_device
        centre, precision = (
            self.one[name][self.mode].astype(np.float64) for name in ("centres", "precisions")
        )
        rows = len(part.at)
        if not self.spec.implicit:
            return send(np.tile(centre, (rows, 1))), send(precision)[None]
        common = np.sqrt(self.counts[self.counts > 0]).mean() ** 2
        lengths = part.batch.lengths
        effect = (self.seen.features[part.at] * part.valid[..., None]).sum(axis=1)
        effect /= send(np.sqrt(np.maximum(lengths, common)))[:, None]
        missing = send(np.maximum(0.0, 1.0 - lengths / common))
        effect += missing[:, None] * send(self.one["typical"][self.mode] - centre)
        before, after = np.linalg.inv(precision), self.one["covariances"][self.mode]
        missing = missing[:, None, None]
        covariance = (1.0 - missing) * send(before) + missing * send(after.astype(np.float64))
        largest = xp.diagonal(covariance, axis1=1, axis2=2).max(axis=1)
        covariance += ROUNDING * largest[:, None, None] * xp.eye(len(centre))
        own = xp.where(missing > 0, xp.linalg.inv(covariance), send(precision))
        return send(centre) + effect, own

    def _noise(
        self, part: _Part, own: Any, factors: Any, unknown: Any, squared: Any, common: Any
    ) -> Any:
        """Do what ``fold_in._noise`` does."""
        n = self.device.on_device(part.batch.lengths)[:, None]
        for _ in range(STEPS):
            parts = factors * own[:, None]
            share = parts / (parts.sum(axis=2) + unknown)[..., None]
            expected = share**2 * squared[..., None] + parts * (1.0 - share)
            shown = (part.valid[..., None] * expected / factors).sum(axis=1)
            own = ((SHAPE - 1.0) * common + 0.5 * shown) / (SHAPE - 1.0 + 0.5 * n)
        return own
