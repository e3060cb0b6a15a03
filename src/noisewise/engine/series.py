"""Series over real time: lines between observations, and an Ornstein-Uhlenbeck process with noise.

    y_k = x(t_k) + N(0, noise),   x(t) ~ N(mean, variance),   corr(x(s), x(t)) = exp(-rate |s - t|)

filtered forwards and smoothed backwards, which is exact and takes a few operations per observation,
however irregular the times. Series are independent of each other, so threads share them out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from noisewise.engine.threads import chunks, dealt, in_threads
from noisewise.errors import brief

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_ONE = np.uintp(1)


@dataclass(frozen=True)
class Series:
    """Observations of many series: of series s, those from ``starts[s]`` to ``starts[s + 1]``.

    Within a series they are in the order of time.
    """

    starts: Ints
    time: Array
    values: Array

    __repr__ = brief

    @classmethod
    def group(cls, which: npt.NDArray[Any], time: Array, values: Any, n: int) -> Series:
        """Group observations in any order into n series; ``which`` has the series of each.

        Examples
        --------
        >>> series = Series.group(np.array([1, 1]), np.array([5.0, 2.0]), [50, 20], 2)
        >>> series.starts.tolist(), series.values.tolist()
        ([0, 0, 2], [20.0, 50.0])
        """
        order = np.lexsort([time, which])
        counts = np.bincount(which, minlength=n)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(starts, time[order], np.asarray(values, dtype=np.float64)[order])

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def counts(self) -> Ints:
        """Observations of every series."""
        return np.diff(self.starts)

    @property
    def which(self) -> Ints:
        """The series of every observation."""
        return np.repeat(np.arange(len(self)), self.counts)

    @cached_property
    def tasks(self) -> list[Ints]:
        """Series dealt into tasks of about equal work, the longest first."""
        return dealt(np.argsort(-self.counts, kind="stable"))


class Process(NamedTuple):
    """An Ornstein-Uhlenbeck process for every series: its mean, variance, noise and rate."""

    mean: Array
    variance: Array
    noise: Array
    rate: Array

    def __repr__(self) -> str:
        return brief(self)


class Smoothed(NamedTuple):
    """What is known of x, less its mean, at every observation.

    ``before`` and ``before_variance`` know the observations up to it, ``mean`` and ``variance``
    know all.
    """

    before: Array
    before_variance: Array
    mean: Array
    variance: Array


class Line(NamedTuple):
    """Interpolated values, and what their variance is made of.

    A random walk has the variance ``reach`` between its two neighbours; their noise, and its own,
    is in the error ``load`` times.
    """

    value: Array
    reach: Array
    load: Array


def interpolate(
    series: Series, which: Ints, when: Array, *, leave_out: bool = False, n_jobs: int = 1
) -> Line:
    """Interpolate series at any times; beyond their ends they stay as they were.

    Parameters
    ----------
    series
        The observations.
    which, when
        Series and time of what is asked for.
    leave_out
        Use no observation of exactly that time.
    n_jobs
        Threads; they change no bit.

    Returns
    -------
    Line
        NaN where a series has no observation to tell.

    Examples
    --------
    >>> series = Series.group(np.zeros(2, int), np.array([0.0, 10.0]), [1.0, 3.0], 1)
    >>> interpolate(series, np.zeros(2, int), np.array([5.0, 20.0])).value.tolist()
    [2.0, 3.0]
    """
    line = Line(*(np.empty(len(when)) for _ in range(3)))

    def work(part: slice) -> None:
        own = (array[part] for array in line)
        _interpolate(
            series.starts, series.time, series.values, which[part], when[part], leave_out, *own
        )

    in_threads(work, chunks(len(when)), n_jobs)
    return line


def log_likelihood(series: Series, process: Process, n_jobs: int = 1) -> tuple[Array, Array]:
    """Log-likelihood of every series, and the sum of its squared surprises.

    A surprise is what an observation differs from what those before it say, over its std: if the
    process is right, their squares are 1 on average.
    """
    out, surprise = np.zeros(len(series)), np.zeros(len(series))
    data = series.starts, series.time, series.values

    def work(chosen: Ints) -> None:
        _log_likelihood(chosen, *data, *process, out, surprise)

    in_threads(work, series.tasks, n_jobs)
    return out, surprise


def smooth(series: Series, process: Process, n_jobs: int = 1) -> Smoothed:
    """Filter forwards and smooth backwards (Kalman; Rauch, Tung and Striebel)."""
    out = Smoothed(*(np.empty(len(series.time)) for _ in range(4)))
    data = series.starts, series.time, series.values
    in_threads(lambda chosen: _smooth(chosen, *data, *process, *out), series.tasks, n_jobs)
    return out


def predict(
    series: Series,
    process: Process,
    smoothed: Smoothed,
    which: Ints,
    when: Array,
    *,
    leave_out: bool = False,
    n_jobs: int = 1,
) -> tuple[Array, Array]:
    """Mean and variance of x, without the noise of an observation, at any times.

    Parameters
    ----------
    series, process, smoothed
        The observations, the process, and what ``smooth`` made of them.
    which, when
        Series and time of what is asked for.
    leave_out
        Forget the observation of exactly that time.
    n_jobs
        Threads; they change no bit.
    """
    mean, variance = np.empty(len(when)), np.empty(len(when))
    data = series.starts, series.time, series.values

    def work(part: slice) -> None:
        own = which[part], when[part], leave_out, mean[part], variance[part]
        _predict(*data, *process, *smoothed, *own)

    in_threads(work, chunks(len(when)), n_jobs)
    return mean, variance


def _compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    decorate: Callable[[Callable[..., Any]], Callable[..., Any]]
    decorate = njit(nogil=True, cache=True, error_model="numpy", **options)
    return decorate


@_compiled(inline="always")
def _place(time: Any, start: Any, end: Any, t: Any) -> Any:
    """First observation from ``start`` to ``end`` that is not before t."""
    while start < end:
        middle = (start + end) // 2
        if time[np.uintp(middle)] < t:
            start = middle + 1
        else:
            end = middle
    return start


@_compiled()
def _interpolate(
    starts: Any, time: Any, values: Any, which: Any, when: Any, leave_out: Any,
    out: Any, reach: Any, load: Any,
) -> None:  # fmt: skip
    for query in range(len(when)):
        q, s, t = np.uintp(query), np.uintp(which[query]), when[query]
        start, end = starts[s], starts[s + _ONE]
        right = _place(time, start, end, t)
        left = right - 1
        if right < end and time[np.uintp(right)] == t:
            if leave_out:
                right += 1
            else:
                left = right
        if left < start and right >= end:
            out[q] = reach[q] = load[q] = np.nan
        elif left == right or left < start or right >= end:
            k = np.uintp(right if left < start else left)
            out[q], reach[q], load[q] = values[k], abs(t - time[k]), 2.0
        else:
            a, b = np.uintp(left), np.uintp(right)
            gap = time[b] - time[a]
            share = (t - time[a]) / gap if gap > 0.0 else 0.5
            out[q] = values[a] + share * (values[b] - values[a])
            reach[q] = gap * share * (1.0 - share)
            load[q] = 1.0 + share * share + (1.0 - share) * (1.0 - share)


@_compiled()
def _log_likelihood(
    chosen: Any, starts: Any, time: Any, values: Any,
    centre: Any, variance: Any, noise: Any, rate: Any, out: Any, surprise: Any,
) -> None:  # fmt: skip
    for row in chosen:
        s = np.uintp(row)
        v, r, fade = variance[s], noise[s], rate[s]
        mean, spread, total, log_det, scale = 0.0, v, 0.0, 0.0, 1.0
        gap, phi = 0.0, 1.0
        for k in range(starts[s], starts[s + _ONE]):
            n = np.uintp(k)
            if k > starts[s]:
                step = time[n] - time[n - _ONE]
                if step != gap:  # gaps are mostly alike, and an exponential is slow
                    gap, phi = step, math.exp(-fade * step)
                mean *= phi
                spread = v + phi * phi * (spread - v)
            full = spread + r
            e = values[n] - centre[s] - mean
            total += e * e / full
            scale *= full / (v + r)  # one logarithm for many
            if scale < 1e-200:
                log_det += math.log(scale)
                scale = 1.0
            mean += spread / full * e
            spread *= r / full
        count = starts[s + _ONE] - starts[s]
        log_det += math.log(scale) + count * math.log(2.0 * math.pi * (v + r))
        out[s], surprise[s] = -0.5 * (total + log_det), total


@_compiled()
def _smooth(
    chosen: Any, starts: Any, time: Any, values: Any,
    centre: Any, variance: Any, noise: Any, rate: Any,
    before: Any, before_variance: Any, means: Any, variances: Any,
) -> None:  # fmt: skip
    for row in chosen:
        s = np.uintp(row)
        v, r, fade = variance[s], noise[s], rate[s]
        start, end = starts[s], starts[s + _ONE]
        mean, spread = 0.0, v
        for k in range(start, end):
            n = np.uintp(k)
            if k > start:
                step = fade * (time[n] - time[n - _ONE])
                mean *= math.exp(-step)
                spread = math.exp(-2.0 * step) * spread - v * math.expm1(-2.0 * step)
            full = spread + r
            mean += spread / full * (values[n] - centre[s] - mean)
            spread *= r / full
            before[n], before_variance[n] = mean, spread
        for back in range(end - start):
            n = np.uintp(end - 1 - back)
            mean, spread = before[n], before_variance[n]
            if back:
                step = fade * (time[n + _ONE] - time[n])
                mean, spread = _looking_back(
                    mean, spread, v, step, means[n + _ONE], variances[n + _ONE]
                )
            means[n], variances[n] = mean, spread


@_compiled(inline="always")
def _looking_back(mean: Any, spread: Any, v: Any, step: Any, after: Any, after_spread: Any) -> Any:
    """Mean and variance once what comes ``step`` later is known too."""
    phi = math.exp(-step)
    drift = -v * math.expm1(-2.0 * step)
    ahead = phi * phi * spread + drift
    gain = phi * spread / ahead
    return mean + gain * (after - phi * mean), spread * drift / ahead + gain * gain * after_spread


@_compiled()
def _predict(
    starts: Any, time: Any, values: Any,
    centre: Any, variance: Any, noise: Any, rate: Any,
    before: Any, before_variance: Any, means: Any, variances: Any,
    which: Any, when: Any, leave_out: Any, out: Any, out_variance: Any,
) -> None:  # fmt: skip
    for query in range(len(when)):
        q, s, t = np.uintp(query), np.uintp(which[query]), when[query]
        v, r, fade = variance[s], noise[s], rate[s]
        start, end = starts[s], starts[s + _ONE]
        right = _place(time, start, end, t)
        n = np.uintp(right)
        if right < end and time[n] == t:
            mean, spread = means[n], variances[n]
            if leave_out:
                e = values[n] - centre[s]
                without = 1.0 / (1.0 / spread - 1.0 / r)
                mean, spread = without * (mean / spread - e / r), without
        else:
            mean, spread = 0.0, v
            if right > start:
                step = fade * (t - time[n - _ONE])
                mean = math.exp(-step) * before[n - _ONE]
                spread = math.exp(-2.0 * step) * before_variance[n - _ONE]
                spread -= v * math.expm1(-2.0 * step)
            if right < end:
                step = fade * (time[n] - t)
                mean, spread = _looking_back(mean, spread, v, step, means[n], variances[n])
        out[q], out_variance[q] = centre[s] + mean, spread
