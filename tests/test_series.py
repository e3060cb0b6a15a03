"""Series over real time: lines, and a process that is compared with a dense Gaussian process."""

import numpy as np
import pytest

from noisewise.engine.data import Series, interpolate
from noisewise.engine.state_space import Process, log_likelihood, predict, smooth

COUNTS = (40, 1, 0, 7)  # observations of each series
PROCESS = Process(
    np.array([2.0, -1.0, 5.0, 0.0]),
    np.array([1.5, 0.3, 2.0, 0.7]),
    np.array([0.2, 0.4, 0.1, 0.002]),
    np.array([3.0, 1.0, 0.5, 100.0]),
)


@pytest.fixture(scope="module")
def series():
    """Series of irregular times, given in no order."""
    rng = np.random.default_rng(0)
    which = np.repeat(np.arange(4), COUNTS)
    time = rng.exponential(3.0, len(which)).cumsum()
    mixed = rng.permutation(len(which))
    values = rng.normal(PROCESS.mean[which], 1.2)
    return Series.group(which[mixed], time[mixed], values[mixed], 4)


def dense(series, s, when, without=None):
    """Mean and variance of x at some times, by matrices; and the log-likelihood."""
    own = np.arange(series.starts[s], series.starts[s + 1])
    own = own[own != without]
    time, values = series.time[own], series.values[own]
    mean, variance, noise, timescale = (part[s] for part in PROCESS)

    def kernel(a, b):
        return variance * np.exp(-np.abs(np.subtract.outer(a, b)) / timescale)

    full = kernel(time, time) + noise * np.eye(len(own))
    cross = kernel(when, time)
    e = values - mean
    found = mean + cross @ np.linalg.solve(full, e) if len(own) else np.full(len(when), mean)
    left = variance - np.einsum("qk,kq->q", cross, np.linalg.solve(full, cross.T))
    log_det = np.linalg.slogdet(2 * np.pi * full)[1]
    return found, left, -0.5 * (e @ np.linalg.solve(full, e) + log_det)


def test_observations_are_grouped_and_put_in_the_order_of_time(series):
    assert series.counts.tolist() == list(COUNTS)
    for s in range(4):
        assert (np.diff(series.time[series.starts[s] : series.starts[s + 1]]) > 0).all()
    np.testing.assert_array_equal(series.which, np.repeat(np.arange(4), COUNTS))


def test_the_likelihood_is_that_of_a_dense_gaussian_process(series):
    found, surprise = log_likelihood(series, PROCESS)
    expected = [dense(series, s, np.zeros(0))[2] for s in range(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    _, variance, noise, _ = PROCESS
    twice = log_likelihood(series, PROCESS._replace(variance=2 * variance, noise=2 * noise))[0]
    from_scale = 2 * (2 * twice - 2 * found + np.array(COUNTS) * np.log(2))
    np.testing.assert_allclose(surprise, from_scale, rtol=1e-8, atol=1e-10)


def test_the_likelihood_of_a_long_series_does_not_underflow():
    time = np.arange(5000.0)
    series = Series.group(np.zeros(5000, int), time, np.zeros(5000), 1)
    sharp = Process(*(np.array([x]) for x in (0.0, 1.0, 1e-4, 1e6)))
    assert np.isfinite(log_likelihood(series, sharp)).all()


@pytest.mark.parametrize("s", range(4))
def test_predictions_at_any_time_are_those_of_a_dense_gaussian_process(series, s):
    low, high = series.time.min() - 20, series.time.max() + 20
    when = np.concatenate([np.random.default_rng(1).uniform(low, high, 200), series.time])
    which = np.full(len(when), s)
    mean, variance = predict(series, PROCESS, smooth(series, PROCESS), which, when)
    expected = dense(series, s, when)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(variance, expected[1], rtol=1e-8, atol=1e-8)


def test_smoothed_values_are_predictions_where_there_is_an_observation(series):
    smoothed = smooth(series, PROCESS)
    mean, variance = predict(series, PROCESS, smoothed, series.which, series.time)
    np.testing.assert_array_equal(mean, smoothed.mean + PROCESS.mean[series.which])
    np.testing.assert_array_equal(variance, smoothed.variance)


def test_leaving_one_out_is_a_dense_gaussian_process_without_it(series):
    smoothed = smooth(series, PROCESS)
    mean, variance = predict(series, PROCESS, smoothed, series.which, series.time, leave_out=True)
    for k, s in enumerate(series.which):
        expected = dense(series, s, series.time[k : k + 1], without=k)
        np.testing.assert_allclose(mean[k], expected[0][0], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(variance[k], expected[1][0], rtol=1e-8, atol=1e-8)


def test_lines_are_those_of_numpy(series):
    when = np.concatenate([np.linspace(-5, series.time.max() + 5, 300), series.time])
    for s in (0, 1, 3):
        own = slice(series.starts[s], series.starts[s + 1])
        line = interpolate(series, np.full(len(when), s), when)
        np.testing.assert_allclose(
            line.value, np.interp(when, series.time[own], series.values[own]), rtol=1e-12
        )


def test_a_line_without_an_observation_is_that_between_its_neighbours(series):
    own = slice(0, COUNTS[0])
    time, values = series.time[own], series.values[own]
    line = interpolate(series, np.zeros(len(time), int), time, leave_out=True)
    for k in range(len(time)):
        others = np.arange(len(time)) != k
        expected = np.interp(time[k], time[others], values[others])
        assert line.value[k] == pytest.approx(expected, rel=1e-12)


def test_the_variance_of_a_line_through_a_random_walk_is_what_reach_and_load_say():
    rng = np.random.default_rng(0)
    time = np.sort(rng.uniform(0, 10, 7))
    t, step, noise = 4.2, 0.7, 0.3
    line = interpolate(
        Series.group(np.zeros(7, int), time, time, 1), np.zeros(1, int), np.array([t])
    )
    times = np.append(time, t)
    weights = np.zeros(8)
    b = np.searchsorted(time, t)
    share = (t - time[b - 1]) / (time[b] - time[b - 1])
    weights[[b - 1, b, 7]] = 1 - share, share, -1.0
    covariance = step * np.minimum.outer(times, times) + noise * np.eye(8)
    assert step * line.reach[0] + noise * line.load[0] == pytest.approx(
        weights @ covariance @ weights
    )


def test_a_series_without_observations_has_no_line_and_one_is_all_there_is(series):
    line = interpolate(series, np.array([2, 1, 1]), np.array([3.0, -8.0, 1e6]))
    assert np.isnan(line.value[0])
    np.testing.assert_array_equal(line.value[1:], series.values[COUNTS[0]])
    alone = np.array([series.time[COUNTS[0]]])
    assert np.isnan(interpolate(series, np.array([1]), alone, leave_out=True).value[0])


def test_two_observations_of_one_time_are_no_trouble():
    series = Series.group(np.zeros(3, int), np.array([1.0, 1.0, 2.0]), [0.0, 1.0, 2.0], 1)
    process = Process(*(part[:1] for part in PROCESS))
    mean, variance = predict(
        series, process, smooth(series, process), np.zeros(3, int), np.array([1.0, 1.5, 2.0])
    )
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
    assert np.isfinite(log_likelihood(series, process)).all()
    middle = interpolate(series, np.zeros(2, int), np.array([1.0, 1.5]))
    assert np.isfinite(middle.value).all()


def test_threads_change_no_bit(series):
    rng = np.random.default_rng(2)
    which, when = rng.integers(0, 4, 200_000), rng.uniform(0, 200, 200_000)
    results = []
    for n_jobs in (1, 3):
        smoothed = smooth(series, PROCESS, n_jobs)
        results.append(
            [
                *interpolate(series, which, when, n_jobs=n_jobs),
                *log_likelihood(series, PROCESS, n_jobs),
                *smoothed,
                *predict(series, PROCESS, smoothed, which, when, n_jobs=n_jobs),
            ]
        )
    for one, three in zip(*results, strict=True):
        np.testing.assert_array_equal(one, three)
