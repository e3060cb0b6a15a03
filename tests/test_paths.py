"""Paths of two numbers: what the filter, the smoother and the sampler say, by matrices."""

import math

import numpy as np
import pytest

from noisewise.engine import paths
from noisewise.engine.data import Series
from noisewise.engine.gibbs.series.draw import Season
from noisewise.engine.gibbs.series.seasons import find_seasons
from noisewise.models.profiles import fit_profiles

TIMES = np.array([0.0, 0.4, 0.5, 2.0, 2.1, 2.1001, 5.0, 9.0])
SEEN = np.array([True, True, False, True, True, True, False, True])
KINDS = [0, 1]


def covariance(kind: int, a, b, timescale: float, amplitude: float):
    """What the definition says."""
    apart = np.abs(np.subtract.outer(a, b)) / timescale
    if kind == 0:
        return amplitude * np.exp(-apart)
    apart = math.sqrt(3.0) * apart
    return amplitude * (1.0 + apart) * np.exp(-apart)


def evidence(seed: int = 0):
    rng = np.random.default_rng(seed)
    precision = np.where(SEEN, rng.uniform(1.0, 30.0, len(TIMES)), 0.0)
    values = rng.standard_normal(len(TIMES))
    return precision, values, precision * values, np.diff(TIMES, prepend=0.0)


def conditional(kind: int, at, timescale: float, amplitude: float):
    """Mean and variance at some times, given the evidence."""
    precision, values, _, _ = evidence()
    own = TIMES[SEEN]
    full = covariance(kind, own, own, timescale, amplitude) + np.diag(1.0 / precision[SEEN])
    cross = covariance(kind, at, own, timescale, amplitude)
    mean = cross @ np.linalg.solve(full, values[SEEN])
    return mean, amplitude - np.einsum("ij,ji->i", cross, np.linalg.solve(full, cross.T))


@pytest.mark.parametrize("kind", KINDS)
def test_states_go_on_as_their_covariance_says(kind):
    for gap in (1e-4, 0.01, 0.3, 5.0, 400.0):
        f00, f01, f10, f11, *q = paths.transition(kind, gap, 2.0)
        F, Q = np.array([[f00, f01], [f10, f11]]), np.array([[q[0], q[1]], [q[1], q[2]]])
        np.testing.assert_allclose(F @ F.T + Q, np.eye(2), atol=1e-12)
        np.testing.assert_allclose(f00, covariance(kind, [0.0], [gap], 2.0, 1.0)[0, 0], atol=1e-12)
        assert np.linalg.eigvalsh(Q).min() > 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_differences_of_likelihoods_are_those_of_normal_densities(kind):
    precision, values, pull, gaps = evidence()
    found, expected = [], []
    for timescale, amplitude in ((1.0, 0.5), (3.0, 2.0)):
        found.append(
            paths.log_likelihood(0, len(TIMES), gaps, precision, pull, kind, timescale, amplitude)
        )
        own, y = TIMES[SEEN], values[SEEN]
        full = covariance(kind, own, own, timescale, amplitude) + np.diag(1.0 / precision[SEEN])
        expected.append(-0.5 * (y @ np.linalg.solve(full, y) + np.linalg.slogdet(full)[1]))
    assert found[1] - found[0] == pytest.approx(expected[1] - expected[0], rel=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_smoothed_states_are_conditional_moments(kind):
    precision, _, pull, gaps = evidence()
    n = len(TIMES)
    means, spreads, smoothed, widths = (np.empty((n, k)) for k in (2, 3, 2, 3))
    paths.smooth_path(0, n, gaps, precision, pull, kind, 1.5, 0.7, means, spreads, smoothed, widths)
    mean, variance = conditional(kind, TIMES, 1.5, 0.7)
    np.testing.assert_allclose(smoothed[:, 0], mean, rtol=1e-6)
    np.testing.assert_allclose(0.7 * widths[:, 0], variance, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_between_before_and_after_all_steps(kind):
    precision, _, pull, gaps = evidence()
    n = len(TIMES)
    means, spreads, smoothed, widths = (np.empty((n, k)) for k in (2, 3, 2, 3))
    paths.smooth_path(0, n, gaps, precision, pull, kind, 1.5, 0.7, means, spreads, smoothed, widths)
    asked = np.array([-3.0, 0.2, 2.05, 7.0, 9.5, 40.0])
    mean, variance = conditional(kind, asked, 1.5, 0.7)
    right = np.searchsorted(TIMES, asked)
    for k, (when, r) in enumerate(zip(asked, right, strict=True)):
        before = when - TIMES[r - 1] if r else math.inf
        after = TIMES[r] - when if r < n else math.inf
        a, b = max(r - 1, 0), min(r, n - 1)
        found = paths.at_time(
            before, after, kind, 1.5, means[a], spreads[a], smoothed[b], widths[b]
        )
        assert found[0] == pytest.approx(mean[k], abs=1e-7)
        assert 0.7 * found[1] == pytest.approx(variance[k], rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_paths_scatter_as_the_conditional_does(kind):
    precision, _, pull, gaps = evidence()
    n, many = len(TIMES), 4000
    draws = np.empty((many, n, 2))
    means, spreads = np.empty((n, 2)), np.empty((n, 3))
    state = np.uint64(7)
    for out in draws:
        state = np.uint64(
            paths.draw_path(0, n, gaps, precision, pull, kind, 1.5, 0.7, state, means, spreads, out)
        )
    mean, variance = conditional(kind, TIMES, 1.5, 0.7)
    error = np.sqrt(variance / many)
    assert (np.abs(draws[:, :, 0].mean(axis=0) - mean) < 4.5 * error).all()
    np.testing.assert_allclose(draws[:, :, 0].var(axis=0), variance, rtol=0.12)


def day_and_noise(days: int, share: float, seed: int = 0) -> Series:
    rng = np.random.default_rng(seed)
    hours = np.arange(24.0 * days)
    wave = math.sqrt(2.0 * share) * np.sin(hours / 24.0 * 2.0 * np.pi)
    values = [wave + math.sqrt(1.0 - share) * rng.standard_normal(len(hours)) for _ in range(3)]
    which = np.repeat(np.arange(3), len(hours))
    return Series.group(which, np.tile(3600.0 * hours, 3), np.concatenate(values), 3)


@pytest.mark.parametrize("are_dates", [True, False])
def test_a_day_is_found_and_noise_is_not(are_dates):
    for share, expected in ((0.4, [86_400.0]), (0.0, [])):
        series = day_and_noise(30, share)
        found = find_seasons(series, np.unique(series.time), 3600.0, are_dates, 3)
        assert [one.period for one in found] == expected


def in_hours(lines: np.ndarray) -> Series:
    """Series of hours without dates."""
    n, hours = lines.shape
    return Series.group(
        np.repeat(np.arange(n), hours), np.tile(np.arange(hours), n), lines.ravel(), n
    )


def found_periods(lines: np.ndarray) -> list[float]:
    series = in_hours(lines)
    found = find_seasons(series, np.unique(series.time), 1.0, are_dates=False, most=8)
    return [one.period for one in found]


@pytest.mark.parametrize("workday", [0.4, 3.0])  # the week is seen less than the day, or more
def test_a_week_is_found_beside_its_day_without_dates(workday):
    rng, hours = np.random.default_rng(1), np.arange(24 * 7 * 12)
    day = np.sin(hours / 24 * 2 * np.pi)
    week = workday * np.where(hours // 24 % 7 < 5, 1.0, -1.0) * np.maximum(day, 0.0)
    lines = day + week + 0.5 * rng.standard_normal((3, len(hours)))
    assert found_periods(lines) == [24.0, 168.0]


def test_a_day_is_found_beside_sensors_that_are_stuck():
    rng, hours = np.random.default_rng(6), np.arange(24 * 30)
    day = np.sin(hours / 24 * 2 * np.pi) + 0.5 * rng.standard_normal((2, len(hours)))
    stuck = np.repeat([[7.1], [0.0], [-3e7]], 10, axis=0) + np.zeros(len(hours))
    assert found_periods(np.vstack([day, stuck])) == [24.0]


@pytest.mark.parametrize("are_dates", [True, False])
def test_weather_has_no_week(are_dates):
    rng, hours = np.random.default_rng(2), np.arange(24.0 * 7 * 9)
    weather = np.zeros((2, len(hours)))
    for k in range(1, len(hours)):  # which goes on for three days or so
        weather[:, k] = 0.985 * weather[:, k - 1] + 0.17 * rng.standard_normal(2)
    series = in_hours(np.sin(hours / 24 * 2 * np.pi) + 1.5 * weather)
    step = 3600.0 if are_dates else 1.0
    series = Series(series.starts, step * series.time, series.values)
    found = find_seasons(series, np.unique(series.time), step, are_dates, 2)
    assert [one.period / step for one in found] == [24.0]


def test_a_year_of_52_weeks_is_no_week():
    rng, days = np.random.default_rng(4), np.arange(364 * 4)
    lines = np.sin(days / 364 * 2 * np.pi) + 0.3 * rng.standard_normal((3, len(days)))
    assert found_periods(lines) == pytest.approx([364.0], abs=3.0)
    (profile,) = fit_profiles(in_hours(lines), "auto")
    assert profile.period == pytest.approx(364.0, abs=3.0)


def test_a_cycle_is_found_where_what_is_near_in_time_is_more_alike():
    rng, hours = np.random.default_rng(3), np.arange(3000)
    slow = np.cumsum(rng.standard_normal((2, len(hours))), axis=1)
    slow -= np.array([np.convolve(line, np.ones(200) / 200, mode="same") for line in slow])
    day = 1.2 * slow.std() * np.sin(hours / 24 * 2 * np.pi)
    assert found_periods(day + slow) == [24.0]


def test_cycles_and_slots_are_counted_from_the_origin():
    season = Season(period=24.0, origin=-24.0, n_cycles=3, n_slots=4, rank=1)
    cycle, slot = season.places(np.array([-24.0, -0.1, 0.0, 11.9, 12.0, 100.0]))
    assert cycle.tolist() == [0, 0, 1, 1, 1, 5]
    assert slot.tolist() == [0, 3, 0, 1, 2, 0]
