"""OUSmoother: every series is an Ornstein-Uhlenbeck process, seen through noise.

    y = m_s + x(t) + e,   corr(x(s), x(t)) = exp(-|s - t| / length),   e ~ N(0, share of variance)

It goes back to its mean in long gaps and does not follow single readings, as a line does; and what
it does not know is exact.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from noisewise import storage
from noisewise.data.panel import Units
from noisewise.engine.arrays import Floats
from noisewise.engine.series import Array, Ints, Series
from noisewise.engine.state_space import Process, log_likelihood, predict, smooth
from noisewise.errors import ModelFileError
from noisewise.models.changing import at_one_moment
from noisewise.models.sensors import PRIOR, SeriesModel, series_units
from noisewise.settings import learned, settings

LEAST_SHARE, MOST_SHARE = 1e-3, 0.99  # of a variance that is noise
LENGTHS, SHARES = 16, 9  # points of the grid at first
REFINEMENTS = 2  # each looks between the points of the one before


@settings
class OUSmoother(SeriesModel):
    """Smooth every series as an Ornstein-Uhlenbeck process with noise.

    Series of one type have in common how long they remember and which share of their variance is
    noise: the two that make all of them together most likely, on a grid that is refined. Each has
    its own mean and variance, drawn to those of its type where it has few observations; given the
    memory, the variance is the one that makes its steps likely. Given all these, mean and std of
    every cell are exact (Kalman filter and smoother), at any distances in time. A series that was
    never observed gets its type's mean and std.

    Examples
    --------
    >>> readings = [("hall", hour, 20.0 + hour % 2) for hour in range(24)]
    >>> model = OUSmoother().fit([*readings, ("attic", 3, 15.0), ("attic", 9, 16.0)])
    >>> _, std = model.predict([("hall", 11.5), ("hall", 100)], return_std=True)
    >>> bool(std[0] <= std[1])
    True
    """

    process_: Process = learned("Mean, variance, noise and timescale of every series.")
    length_: Array = learned(
        "Per type, in the order of its ids: the time after which the correlation is 1/e (in units "
        "of the ids, seconds for dates)."
    )
    noise_share_: Array = learned("Per type, the share of the variance that is noise.")
    unit_: float = learned("The time that mostly lies between one stamp and the next.")

    @property
    @at_one_moment
    def phi_(self) -> Array:
        """Per type, the correlation after ``unit_``."""
        return np.asarray(np.exp(-self.unit_ / self.length_))

    @at_one_moment
    def doubt(self, X: Any) -> Floats:
        """Return how much of the variance of a series its readings leave open at cells.

        0 next to readings without noise, 1 far from all of them, or if there are none.
        """
        check_is_fitted(self)
        codes, when = self._encoded(X)
        which = self._grouping.series(codes)
        epistemic = self._known(codes, when, leave_out=False)[0].epistemic
        share = epistemic / self.process_.variance[which]
        return np.where(which < 0, 1.0, np.minimum(share, 1.0)).astype(np.float32)

    def _learn(self, series: Series, types: Ints, n_types: int) -> None:
        unit = series.usual_step()
        units = series_units(series, types, n_types)
        length, share = fit_memory(series, units, types, n_types, unit, self._threads())
        self._smooth(series, units, types, length, share)
        self.unit_ = unit

    def _smooth(
        self, series: Series, units: Units, types: Ints, length: Array, share: Array
    ) -> None:
        process, _ = fit_processes(series, units, types, length, share, self._threads())
        self._smoothed = smooth(series, process, self._threads())
        self.process_, self.length_, self.noise_share_ = process, length, share

    @property
    def _noise(self) -> Array:
        shares = np.append(self.noise_share_, self.noise_share_.mean())
        return shares * self._units.variance

    def _at(self, which: Ints, when: Array, leave_out: bool) -> tuple[Array, Array, Array]:
        mean, variance = predict(
            self.series_, self.process_, self._smoothed, which, when,
            leave_out=leave_out, n_jobs=self._threads(),
        )  # fmt: skip
        return mean, self.process_.noise[which], variance

    def _pack(self) -> tuple[dict[str, Any], storage.Tensors]:
        header, tensors = super()._pack()
        tensors |= {"length": self.length_, "noise_share": self.noise_share_}
        return header | {"unit": self.unit_}, tensors

    def _unpack(self, path: str | Path, header: dict[str, Any], tensors: storage.Tensors) -> None:
        super()._unpack(path, header, tensors)
        n_types = self._grouping.n_types
        self.unit_ = float(header["unit"])
        length = storage.take(path, tensors, "length", "float64", n_types)
        share = storage.take(path, tensors, "noise_share", "float64", n_types)
        if not (self.unit_ > 0 and length.min() > 0 and 0 < share.min() <= share.max() < 1):
            raise ModelFileError(f"{path} is damaged: its processes make no sense.")
        self._smooth(self.series_, self._series_units, self._grouping.types, length, share)


def fit_processes(
    series: Series, units: Units, types: Ints, length: Array, share: Array, n_jobs: int
) -> tuple[Process, Array]:
    """Return the process of every series, given memory and noise of its type; and its likelihood.

    The variance around the mean says little of a series that wanders slowly; its surprises say what
    it is worth, one for each observation.
    """
    noise = share[types] * units.variance
    process = Process(units.mean, units.variance - noise, noise, length[types])
    log, surprise = log_likelihood(series, process, n_jobs)
    scale = (PRIOR + surprise) / (PRIOR + series.counts)
    log += 0.5 * (surprise * (1.0 - 1.0 / scale) - series.counts * np.log(scale))
    scaled = process._replace(variance=scale * process.variance, noise=scale * process.noise)
    return scaled, log


def fit_memory(
    series: Series, units: Units, types: Ints, n_types: int, unit: float, n_jobs: int
) -> tuple[Array, Array]:
    """Return the length of the memory and the share of noise of every type, by likelihood.

    A type without an observation, or of single ones, gets the first point of the grid, which then
    makes no difference.
    """
    span = float(np.ptp(series.time)) or unit
    lengths = np.linspace(np.log(0.25 * unit), np.log(4.0 * span), LENGTHS)
    shares = np.linspace(_logit(LEAST_SHARE), _logit(MOST_SHARE), SHARES)
    steps = lengths[1] - lengths[0], shares[1] - shares[0]
    best = np.full(n_types, -np.inf)
    at = np.zeros((2, n_types))

    def look(length: Array, share: Array) -> None:
        share = np.clip(share, _logit(LEAST_SHARE), _logit(MOST_SHARE))
        plain = 1.0 / (1.0 + np.exp(-share))
        _, log = fit_processes(series, units, types, np.exp(length), plain, n_jobs)
        own = np.bincount(types, log, n_types)
        better = own > best
        best[better] = own[better]
        at[0, better], at[1, better] = length[better], share[better]

    for a, b in product(lengths, shares):
        look(np.full(n_types, a), np.full(n_types, b))
    for turn in range(1, REFINEMENTS + 1):
        centre = at.copy()
        for a, b in product((-1, 0, 1), repeat=2):
            look(centre[0] + a * steps[0] / 2**turn, centre[1] + b * steps[1] / 2**turn)
    return np.exp(at[0]), np.asarray(1.0 / (1.0 + np.exp(-at[1])))


def _logit(share: float) -> float:
    return float(np.log(share / (1.0 - share)))
