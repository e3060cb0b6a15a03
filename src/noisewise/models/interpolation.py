"""LinearInterpolator: a straight line between the two observations next to a time.

What people use when sensors miss single readings, and hard to beat then: the rival of every model
of sensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from noisewise import storage
from noisewise.data.panel import Units
from noisewise.engine.series import Array, Ints, Series, interpolate
from noisewise.errors import ModelFileError
from noisewise.models.sensors import PRIOR, SeriesModel
from noisewise.settings import learned, settings

ROUNDS = 10  # of ``fit_variance``
STEPS = 10  # of the variance, in a round
ENOUGH = 100_000  # errors tell two variances; of more, every so manieth is used
LEAST = 1e-6  # share of a type's variance that an error has at least


@settings
class LinearInterpolator(SeriesModel):
    """Interpolate every series linearly in time; beyond its ends it stays as it was.

    The std is that of errors when each training cell is left out in turn. Their variance is fitted,
    per type of sensor, as that of a line through a random walk that is seen through noise:
    ``walk * reach + noise * load``. The reach, ``(t - a)(b - t) / (b - a)`` between observations at
    a and b, grows with the gap; its part of the variance stops at that of the type. Then each
    series has a factor of its own, drawn to 1 where it has few observations.

    A series that was never observed gets its type's mean and std.

    Examples
    --------
    >>> readings = [("hall", 8, 19.0), ("hall", 10, 21.0), ("attic", 8, 15.0), ("attic", 9, 15.5)]
    >>> model = LinearInterpolator().fit(readings)
    >>> model.predict([("hall", 9), ("attic", 12)]).tolist()
    [20.0, 15.5]
    """

    walk_: Array = learned(
        "Per type, in the order of its ids, and for a type never seen: variance that a unit of "
        "time adds."
    )
    noise_: Array = learned("The same for the variance of noise.")
    _factor: Array = learned()
    _most: Array = learned()

    def _learn(self, series: Series, types: Ints, n_types: int) -> None:
        which = series.which
        line = interpolate(series, which, series.time, leave_out=True, n_jobs=self._threads())
        squared = (series.values - line.value) ** 2
        most = Units.of(series.values, types[which], n_types).variance
        parts = np.empty((2, n_types + 1))
        told = ~np.isnan(squared)
        for kind in range(n_types + 1):  # the last is for a type never seen: all together
            own = told & ((types[which] == kind) | (kind == n_types))
            parts[:, kind] = fit_walk(line.reach[own], line.load[own], squared[own], most[kind])
        walk, noise = parts
        of_type = types[which[told]]
        reached = np.minimum(walk[of_type] * line.reach[told], most[of_type])
        score = squared[told] / (reached + noise[of_type] * line.load[told])
        counts = np.bincount(which[told], minlength=len(series))
        factor = (PRIOR + np.bincount(which[told], score, len(series))) / (PRIOR + counts)
        self.walk_, self.noise_, self._factor, self._most = walk, noise, factor, most

    @property
    def _noise(self) -> Array:
        return self.noise_

    def _at(self, which: Ints, when: Array, leave_out: bool) -> tuple[Array, Array, Array]:
        line = interpolate(self.series_, which, when, leave_out=leave_out, n_jobs=self._threads())
        types, factor = self._grouping.types[which], self._factor[which]
        noise = self.noise_[types]
        reached = np.minimum(self.walk_[types] * line.reach, self._most[types])
        epistemic = reached + noise * (line.load - 1.0)  # noise of the two observations is in it
        return line.value, factor * noise, factor * epistemic

    def _pack(self) -> tuple[dict[str, Any], storage.Tensors]:
        header, tensors = super()._pack()
        own = {"walk": self.walk_, "noise": self.noise_, "most": self._most}
        return header, tensors | own | {"factor": self._factor}

    def _unpack(self, path: str | Path, header: dict[str, Any], tensors: storage.Tensors) -> None:
        super()._unpack(path, header, tensors)
        n_types = self._grouping.n_types + 1
        names = ("walk", "noise", "most")
        parts = [storage.take(path, tensors, name, "float64", n_types) for name in names]
        self.walk_, self.noise_, self._most = parts
        self._factor = storage.take(path, tensors, "factor", "float64", len(self.series_))
        if min(part.min() for part in (self.walk_, self._most)) < 0:
            raise ModelFileError(f"{path} is damaged: it has a variance below 0.")
        if min(part.min() for part in (self.noise_, self._factor)) <= 0:
            raise ModelFileError(f"{path} is damaged: it has no noise.")


def fit_walk(reach: Array, load: Array, squared: Array, most: float) -> tuple[float, float]:
    """Fit the variance of squared errors as ``walk * reach + noise * load``, by likelihood.

    Where there are no errors to learn from, an observation tells nothing of the next.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> reach, load = rng.exponential(1.0, 10_000), np.full(10_000, 1.5)
    >>> walk, noise = fit_walk(reach, load, rng.normal(0, np.sqrt(2 * reach + load)) ** 2, 10.0)
    >>> bool(1.8 < walk < 2.2), bool(0.9 < noise < 1.1)
    (True, True)
    """
    if not len(squared):
        return 0.0, most
    least = LEAST * most
    every = slice(None, None, -(-len(squared) // ENOUGH))
    reach, load, squared = reach[every], load[every], squared[every]
    size = np.array([max(reach.mean(), np.finfo(float).tiny), load.mean()])
    level = max(float(squared.mean()), least)
    features = np.column_stack([reach / size[0], load / size[1]])
    p = np.array([0.5 * level, 0.5 * level])
    for _ in range(ROUNDS):
        p = fit_variance(features, squared, p, least)
    walk, noise = p / size
    return float(walk), float(noise + least)


def fit_variance(features: Array, squared: Array, p: Array, floor: float) -> Array:
    """Take a few steps of p >= 0 towards ``features @ p + floor = squared``, in likelihood.

    Each step multiplies, so that nothing becomes negative, and none lowers the likelihood
    (Itakura-Saito factorization with one side fixed).
    """
    for _ in range(STEPS):
        s = features @ p + floor
        up, down = features.T @ (squared / s**2), features.T @ (1.0 / s)
        p = p * np.sqrt(up / np.maximum(down, np.finfo(float).tiny))
    return p
