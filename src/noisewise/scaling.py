"""Scales of readings: what models compute in, and the way back to the units of a table.

A model sees z-scores of every sensor, of readings as they are, of their roots or their logarithms:
counts and concentrations scatter the more the larger they are, and evenly on another scale. The way
back gives the mean of the reading (and not of its root), by quadrature; ends of intervals go back
as they are. Nothing goes below or above the bounds of a sensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from noisewise.data.timestamps import Floats, Ints, Units
from noisewise.errors import DataError, brief
from noisewise.settings import Rule, number

TRANSFORMS = ("sqrt", "log")
ENOUGH = 20  # readings that tell what a sensor is like
SKEWED = 0.5  # the skewness of what may be a count or a concentration
CLEARLY_SKEWED = 1.0  # and of what is one, however far from 0 its smallest reading is
MANY = 150  # the largest of whole numbers that are counts: whole degrees do not reach it
NEAR_ZERO = 0.25  # of the median: how small its smallest reading is at most
ZEROS = 2  # readings of exactly 0 that make 0 a bound
SCATTER = 0.6  # times their mean: how much whole numbers that count events scatter, at least
LEAST_VARIANCE = 1e-200  # of a sensor: floats hold smaller ones with few digits, or none
BEYOND = 1.0  # stds above the largest reading that the way back ends at
POINTS = 24  # of the quadrature

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(POINTS)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def _is_bounds(v: Any) -> bool:
    pair = isinstance(v, tuple | list) and len(v) == 2
    if not (pair and all(end is None or number().holds(end) for end in v)):
        return False
    return v[0] is None or v[1] is None or bool(v[0] < v[1])


BOUNDS = Rule(
    'a pair (low, high), of which either may be None, "auto" or None',
    lambda v: v is None or (isinstance(v, str) and v == "auto") or _is_bounds(v),
)


class Decided(NamedTuple):
    """What was decided of the scale of readings."""

    transform: str | None = None
    chosen: bool = False  # by "auto", so that it is for sensors that look like counts
    dropped: bool = False  # whether nothing is learned from outliers


@dataclass(frozen=True, eq=False)
class Scale:
    """How readings of sensors become z-scores, and back; arrays have an entry for each sensor."""

    transform: str | None  # of the sensors that have one
    transformed: npt.NDArray[np.bool_]
    origin: Floats  # that roots and logarithms count from
    offset: Floats  # that is added before a logarithm, so that there is one of the origin
    units: Units  # of transformed readings
    low: Floats  # bounds, infinite where there are none
    high: Floats
    top: Floats  # the largest z-score of a reading

    __repr__ = brief

    def standard(self, values: Floats, sensors: Ints) -> Floats:
        """Return readings as z-scores."""
        forward = self._forward(values, sensors)
        z = (forward - self.units.mean[sensors]) / np.sqrt(self.units.variance[sensors])
        return np.asarray(z, dtype=np.float64)

    def ends(self, z: Any, sensors: Ints) -> Floats:
        """Return z-scores as readings within their bounds."""
        z = np.asarray(z, dtype=np.float64)
        value = self.units.mean[sensors] + np.sqrt(self.units.variance[sensors]) * z
        changed = self.transformed[sensors]
        if changed.any():
            at = sensors[changed]
            back = np.maximum(value[changed], 0.0) ** 2
            if self.transform == "log":
                back = np.exp(np.minimum(value[changed], 700.0)) - self.offset[at]
            value[changed] = self.origin[at] + back
        return np.asarray(np.clip(value, self.low[sensors], self.high[sensors]))

    def own(self, mean: Any, std: Any, sensors: Ints, judged: Any = None) -> tuple[Floats, Floats]:
        """Return mean and std of readings whose z-scores have this mean and std.

        A std that reaches as far as the worst outages of a series is right for intervals, but the
        mean of a logarithm with such a std is far above what anybody read. ``judged`` is the std
        that the mean is taken with, if it is another.
        """
        mean, std = np.asarray(mean, np.float64), np.asarray(std, np.float64)
        value = self.ends(mean, sensors)
        spread = np.sqrt(self.units.variance[sensors]) * std
        changed = np.flatnonzero(self.transformed[sensors])
        if len(changed):
            value[changed], spread[changed] = self._by_quadrature(mean, std, sensors, changed)
            if judged is not None:
                value[changed] = self._by_quadrature(mean, judged, sensors, changed)[0]
        return value, spread

    def _by_quadrature(
        self, mean: Floats, std: Any, sensors: Ints, some: Ints
    ) -> tuple[Floats, Floats]:
        at, std = sensors[some], np.asarray(std, np.float64)
        top = self.top[at] + BEYOND
        nodes = np.array([
            self.ends(np.minimum(mean[some] + std[some] * node, top), at) for node in _NODES
        ])  # fmt: skip
        value = _WEIGHTS @ nodes
        return value, np.sqrt(np.maximum(_WEIGHTS @ (nodes - value) ** 2, 0.0))

    def _forward(self, values: Floats, sensors: Ints) -> Floats:
        return transformed(self.transform, values, sensors, self)


class Look(NamedTuple):
    """What readings of sensors look like."""

    smallest: Floats
    can_be_counts: npt.NDArray[np.bool_]  # never negative, near 0, and skewed
    ends_at_zero: npt.NDArray[np.bool_]  # never negative, and more that degrees are not
    are_whole: npt.NDArray[np.bool_]  # numbers, never negative and near 0

    @classmethod
    def at(cls, values: Floats, sensors: Ints, n: int) -> Self:
        """Look at the readings of n sensors."""
        smallest = np.full(n, np.inf)
        np.minimum.at(smallest, sensors, values)
        counts, ends, whole = (np.zeros(n, dtype=bool) for _ in range(3))
        order = np.argsort(sensors, kind="stable")
        bounds = np.searchsorted(sensors[order], np.arange(n + 1))
        for k in np.flatnonzero((smallest >= 0) & (np.diff(bounds) >= ENOUGH)):
            own = values[order[bounds[k] : bounds[k + 1]]]
            away = own - own.mean()
            std = own.std()
            if std > 0:
                skew = float(np.mean((away / std) ** 3))
                is_near, is_whole = smallest[k] <= NEAR_ZERO * np.median(own), _are_whole(own)
                counts[k], whole[k] = is_near and skew > SKEWED, is_near and is_whole
                is_many, is_zero = is_whole and own.max() >= MANY, (own == 0).sum() >= ZEROS
                ends[k] = counts[k] or is_zero or is_many or skew > CLEARLY_SKEWED
        return cls(smallest, counts, ends, whole)

    def with_scatter(self, scatter: Floats) -> Self:
        """End whole numbers at 0 that scatter as counts do.

        Events that come by chance have a ``scatter`` of 1 whatever their rhythm. Directions of the
        wind scatter more, so that this says nothing of the scale to compute in.
        """
        events = self.are_whole & (scatter >= SCATTER)
        return self._replace(ends_at_zero=self.ends_at_zero | events)


def _are_whole(own: Floats) -> bool:
    return np.array_equal(own, np.rint(own))


def scatter(values: Floats, sensors: Ints, series: Ints, n: int) -> Floats:
    """Return the variance of readings around what is usual at their time, over their mean.

    Readings are in the order of series and time: those before and after tell it, for n sensors.

    Examples
    --------
    >>> day = 50 + 40 * np.sin(np.arange(240) / 24 * 2 * np.pi)
    >>> events = np.random.default_rng(0).poisson(day)
    >>> both = np.append(events, np.rint(day))
    >>> scatter(both, *np.repeat([[0, 1], [0, 1]], 240, axis=1), 2).round(1).tolist()
    [1.0, 0.0]
    """
    inside = 1 + np.flatnonzero(series[2:] == series[:-2])
    own, of = values[inside], sensors[inside]
    away = own - (values[inside - 1] + values[inside + 1]) / 2
    squares, sums = np.bincount(of, away**2 / 1.5, n), np.bincount(of, own, n)
    return np.divide(squares, sums, out=np.zeros(n), where=sums > 0)


def transformed(transform: str | None, values: Floats, sensors: Ints, scale: Any) -> Floats:
    """Return readings on another scale, of the sensors that have one."""
    if transform is None or not scale.transformed.any():
        return values
    changed = scale.transformed[sensors]
    out = values.astype(np.float64)
    above = np.maximum(values[changed] - scale.origin[sensors[changed]], 0.0)
    if transform == "log":
        out[changed] = np.log(above + scale.offset[sensors[changed]])
    else:
        out[changed] = np.sqrt(above)
    return out


class _Start(NamedTuple):
    transformed: npt.NDArray[np.bool_]
    origin: Floats
    offset: Floats


def fit_scale(
    values: Floats, sensors: Ints, look: Look, transform: str | None, bounds: Any, *, chosen: bool
) -> Scale:
    """Learn the scale of sensors from their readings.

    A transform that was chosen by "auto" is for sensors that look like counts; one that a user
    asked for is for all, and readings that have no root or logarithm are an error.
    """
    n = len(look.smallest)
    low, high = _bounds(bounds, look, values, n)
    origin = np.where(np.isfinite(low), low, 0.0)
    changed = np.full(n, transform is not None)
    if transform is not None and chosen:
        changed = look.can_be_counts & (look.smallest >= origin)
    elif transform is not None and (look.smallest < origin).any():
        worst = int((look.smallest - origin).argmin())
        raise DataError(
            f"scale={transform!r} needs readings of {origin[worst]:g} or more; got "
            f"{look.smallest[worst]:g}: give bounds=(low, None), or scale=None."
        )
    if changed.any():
        low = np.where(changed, np.maximum(low, origin), low)
    start = _Start(changed, origin, _offsets(values, sensors, origin, n))
    forward = transformed(transform, values, sensors, start)
    units = sensor_units(forward, sensors, n)
    z = (forward - units.mean[sensors]) / np.sqrt(units.variance[sensors])
    top = np.zeros(n)
    np.maximum.at(top, sensors, z)
    return Scale(transform, *start, units, low, high, top)


def sensor_units(values: Floats, sensors: Ints, n: int) -> Units:
    """Mean and variance of each sensor; a single reading may be off by its own size."""
    mean, variance = Units.of(values, sensors, n)
    lone = np.flatnonzero(np.bincount(sensors, minlength=n) == 1)
    variance[lone] = np.where(mean[lone] == 0.0, 1.0, mean[lone] ** 2)
    if (variance < LEAST_VARIANCE).any():
        least = np.sqrt(LEAST_VARIANCE)
        raise DataError(
            f"Readings of a sensor must differ by more than {least:g}, or all be 0: give them in a "
            "smaller unit."
        )
    return Units(mean, variance)


def _offsets(values: Floats, sensors: Ints, origin: Floats, n: int) -> Floats:
    """Return what is added before a logarithm: half the smallest reading above the origin."""
    above = values - origin[sensors]
    positive = above > 0
    least = np.full(n, np.inf)
    np.minimum.at(least, sensors[positive], above[positive])
    return np.where(np.isfinite(least), 0.5 * least, 1.0)


def _bounds(bounds: Any, look: Look, values: Floats, n: int) -> tuple[Floats, Floats]:
    """Return the bounds of every sensor."""
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    if isinstance(bounds, str):
        low[look.ends_at_zero] = 0.0
    elif bounds is not None:
        low[:] = -np.inf if bounds[0] is None else bounds[0]
        high[:] = np.inf if bounds[1] is None else bounds[1]
        check_within(bounds, values)
    return low, high


def whole_numbers(values: Any, towards: Any, bounds: Any) -> Any:
    """Return whole numbers within bounds; ``towards`` is how to round, such as ``np.floor``.

    Examples
    --------
    >>> whole_numbers(np.array([0.6, 7.1]), np.ceil, (0.5, 7.2)).tolist()
    [1.0, 7.0]
    """
    ends: Any = bounds if isinstance(bounds, tuple | list) else (None, None)
    low = -np.inf if ends[0] is None else np.ceil(ends[0])
    high = np.inf if ends[1] is None else np.floor(ends[1])
    return np.clip(towards(values), low, high)


def check_within(bounds: Any, values: Floats) -> None:
    """Raise if readings are beyond bounds that a user has given."""
    if bounds is None or isinstance(bounds, str):
        return
    low, high = (end if end is not None else np.nan for end in bounds)
    beyond = (values < low) | (values > high)
    if beyond.any():
        raise DataError(
            f"bounds must hold all readings; got {values[beyond][0]:g}, and bounds={bounds}."
        )
