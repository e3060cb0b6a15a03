"""Models of single series: straight lines, and Ornstein-Uhlenbeck processes seen through noise.

A line is hard to beat where sensors miss single readings. ``OUSmoother`` takes every series as

    y = m_s + x(t) + e,   corr(x(s), x(t)) = exp(-|s - t| / length),   e ~ N(0, share of variance)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Literal

import numpy as np
from scipy.interpolate import PchipInterpolator
from sklearn.utils.validation import check_is_fitted

from noisewise.data.timestamps import Units
from noisewise.engine.arrays import Array, Floats, Ints
from noisewise.engine.data import Series, interpolate
from noisewise.engine.state_space import Process, log_likelihood, predict, smooth
from noisewise.models.base import at_one_moment
from noisewise.models.profiles import Profile, expected, fit_profiles, without_profiles
from noisewise.models.sensors import PRIOR, SeriesModel, index_of, series_units
from noisewise.schema import NOT_NEGATIVE, POSITIVE, Entry, Found, Rule, Schema, Tensor, real
from noisewise.settings import SEASONS, learned, one_of, setting, settings

ROUNDS = 10  # of ``fit_variance``
ENOUGH = 100_000  # errors tell two variances; of more, every so manieth is used
LEAST = 1e-6  # share of a type's variance that an error has at least
LEAST_SHARE, MOST_SHARE = 1e-3, 0.99  # of a variance that is noise
LENGTHS, SHARES = 16, 9  # points of the grid at first
REFINEMENTS = 2  # each looks between the points of the one before
STEPS = 10  # of the variance, in a round

SHARE = Rule("must be between 0 and 1", lambda a: 0 < a.min() <= a.max() < 1)


@settings
class LinearInterpolator(SeriesModel):
    """Interpolate every series linearly in time; beyond its ends it stays as it was.

    The std is that of errors when each training cell is left out in turn: of a line through a
    random walk that is seen through noise, fitted by type of sensor, times a factor of each series.
    It grows with the gap. A series that was never observed gets its type's mean and std.

    Examples
    --------
    >>> readings = [("hall", 8, 19.0), ("hall", 10, 21.0), ("attic", 8, 15.0), ("attic", 9, 15.5)]
    >>> model = LinearInterpolator().fit(readings)
    >>> model.predict([("hall", 9), ("attic", 12)]).tolist()
    [20.0, 15.5]
    """

    curve: Literal["line", "pchip"] = setting(
        one_of("line", "pchip"),
        'What to draw between readings: lines, or cubics that never overshoot ("pchip").',
        default="line",
    )

    walk_: Array = learned(
        "Per type, in the order of its ids, and for a type never seen: variance that a unit of "
        "time adds."
    )
    noise_: Array = learned("The same for the variance of noise.")
    _factor: Array = learned()
    _most: Array = learned()

    def _learn_series(self, series: Series, types: Ints, n_types: int) -> None:
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
        types, factor = self._index.sensors[which], self._factor[which]
        noise = self.noise_[types]
        reached = np.minimum(self.walk_[types] * line.reach, self._most[types])
        epistemic = reached + noise * (line.load - 1.0)  # noise of the two observations is in it
        value = line.value
        if self.curve == "pchip" and not leave_out:
            value = np.where(np.isnan(value), value, cubics(self.series_, which, when))
        return value, factor * noise, factor * epistemic

    def schema(self) -> Schema:
        """Declare what a file keeps: also the variances."""
        n_series = yield from super().schema()
        n = index_of(self, self.ids_).n_sensors + 1
        yield Tensor("walk", "float64", (n,), "walk_", NOT_NEGATIVE)
        yield Tensor("noise", "float64", (n,), "noise_", POSITIVE)
        yield Tensor("most", "float64", (n,), "_most", NOT_NEGATIVE)
        yield Tensor("factor", "float64", (n_series,), "_factor", POSITIVE)


def cubics(series: Series, which: Ints, when: Array) -> Array:
    """Return series at some times by monotone cubics; beyond their ends they stay as they were.

    Examples
    --------
    >>> series = Series.group(np.zeros(3, int), np.array([0.0, 1.0, 3.0]), [0.0, 1.0, 1.0], 1)
    >>> cubics(series, np.zeros(2, int), np.array([2.0, 9.0])).tolist()
    [1.0, 1.0]
    """
    out = np.full(len(when), np.nan)
    order = np.argsort(which, kind="stable")
    bounds = np.searchsorted(which[order], np.arange(len(series) + 1))
    for s in np.flatnonzero(np.diff(bounds)):
        rows, own = order[bounds[s] : bounds[s + 1]], slice(*series.starts[s : s + 2])
        times, first = np.unique(series.time[own], return_index=True)
        values = series.values[own][first]
        if len(times) == 1:
            out[rows] = values[0]
        elif len(times) > 1:
            out[rows] = PchipInterpolator(times, values)(np.clip(when[rows], times[0], times[-1]))
    return out


def fit_walk(reach: Array, load: Array, squared: Array, most: float) -> tuple[float, float]:
    """Fit the variance of squared errors as ``walk * reach + noise * load``, by likelihood.

    The reach is ``(t - a)(b - t) / (b - a)`` between observations at a and b. Where there are no
    errors to learn from, an observation tells nothing of the next.
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


@settings
class OUSmoother(SeriesModel):
    """Smooth every series as an Ornstein-Uhlenbeck process with noise.

    Series of one type have in common how long they remember and which share of their variance is
    noise: the two that make all of them together most likely. Each has its own mean and variance,
    drawn to those of its type where it has few observations. Given all these, mean and std of every
    cell are exact (Kalman filter and smoother). A series never observed gets those of its type.

    Examples
    --------
    >>> readings = [("hall", hour, 20.0 + hour % 2) for hour in range(24)]
    >>> model = OUSmoother().fit([*readings, ("attic", 3, 15.0), ("attic", 9, 16.0)])
    >>> _, std = model.predict([("hall", 11.5), ("hall", 100)], return_std=True)
    >>> bool(std[0] <= std[1])
    True
    """

    seasons: Literal["auto"] | Sequence[float] | None = setting(
        SEASONS,
        "Periods of what repeats, in units of the ids of time (seconds for dates): the mean of "
        'every part of a period is taken out first, where that helps. "auto" tries a day, a week, '
        "a year, and the period at which series are most like themselves.",
        default=None,
    )

    process_: Process = learned("Mean, variance, noise and timescale of every series.")
    length_: Array = learned(
        "Per type, in the order of its ids: the time after which the correlation is 1/e (in units "
        "of the ids, seconds for dates)."
    )
    noise_share_: Array = learned("Per type, the share of the variance that is noise.")
    unit_: float = learned("The time that mostly lies between one stamp and the next.")
    profiles_: list[Profile] = learned("What repeats, a profile for every period that is of use.")

    @property
    @at_one_moment
    def phi_(self) -> Array:
        """Per type, the correlation after ``unit_``."""
        return np.asarray(np.exp(-self.unit_ / self.length_))

    @at_one_moment
    def epistemic_share(self, X: Any) -> Floats:
        """Return how much of the variance of a series its readings leave open at cells.

        0 next to readings without noise, 1 far from all of them, or if there are none.
        """
        check_is_fitted(self)
        codes, when = self._encoded(X)
        which = self._index.series(codes)
        epistemic = self._known(codes, when, leave_out=False)[0].epistemic
        share = epistemic / self.process_.variance[which]
        return np.where(which < 0, 1.0, np.minimum(share, 1.0)).astype(np.float32)

    def _learn_series(self, series: Series, types: Ints, n_types: int) -> None:
        unit = series.usual_step()
        rest = self._without_profiles(series)
        units = series_units(rest, types, n_types)
        length, share = fit_timescales(rest, units, types, n_types, unit, self._threads())
        self._smooth(units, types, length, share)
        self.unit_ = unit

    def _without_profiles(self, series: Series) -> Series:
        self.profiles_ = fit_profiles(series, self.seasons)
        self._rest = without_profiles(series, self.profiles_) if self.profiles_ else series
        return self._rest

    def _smooth(self, units: Units, types: Ints, length: Array, share: Array) -> None:
        process, _ = fit_processes(self._rest, units, types, length, share, self._threads())
        self._smoothed = smooth(self._rest, process, self._threads())
        self.process_, self.length_, self.noise_share_ = process, length, share

    def _extend(self) -> None:
        rest = self.series_
        self._rest = without_profiles(rest, self.profiles_) if self.profiles_ else rest
        self._smoothed = smooth(self._rest, self.process_, self._threads())

    @property
    def _noise(self) -> Array:
        shares = np.append(self.noise_share_, self.noise_share_.mean())
        return shares * self._units.variance

    def _at(self, which: Ints, when: Array, leave_out: bool) -> tuple[Array, Array, Array]:
        mean, variance = predict(
            self._rest, self.process_, self._smoothed, which, when,
            leave_out=leave_out, n_jobs=self._threads(),
        )  # fmt: skip
        if self.profiles_:
            mean = mean + expected(self.profiles_, which, when)
        return mean, self.process_.noise[which], variance

    def schema(self) -> Schema:
        """Declare what a file keeps: also memory and noise of types."""
        yield from super().schema()
        n = index_of(self, self.ids_).n_sensors
        yield Entry("unit", "unit_", real(above=0.0))
        yield Tensor("length", "float64", (n,), "length_", POSITIVE)
        yield Tensor("noise_share", "float64", (n,), "noise_share_", SHARE)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        types, length, share = self._index.sensors, self.length_, self.noise_share_
        rest = self._without_profiles(self.series_)
        units = series_units(rest, types, self._index.n_sensors)
        self._smooth(units, types, length, share)


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


def fit_timescales(
    series: Series, units: Units, types: Ints, n_types: int, unit: float, n_jobs: int
) -> tuple[Array, Array]:
    """Return the timescale and the share of noise of every sensor, by likelihood.

    Where there is none, of a sensor of single observations, it is the first point of the grid.
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
