"""Calibration: answers worked out by hand, and the coverage that was promised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from noisewise import Calibration, DataError
from noisewise.calibration import MAX_SCORES, normal_half_width


def ends(calibration, coverage):
    """Half-width in units of the std that was predicted."""
    return calibration.scale * calibration.half_width(coverage)


@pytest.mark.parametrize(
    ("coverage", "expected"), [(0.1, 1), (0.15, 2), (0.5, 5), (0.55, 6), (0.8, 8), (0.9, 9)]
)
def test_of_nine_errors_the_one_that_covers_enough_is_taken(coverage, expected):
    calibration = Calibration.measure([3, -1, 2, -9, 8, 7, -6, 5, 4], np.ones(9))
    assert ends(calibration, coverage) == pytest.approx(expected)


def test_errors_are_measured_in_stds():
    calibration = Calibration.measure([2.0, 30.0, 400.0], [2.0, 10.0, 100.0])
    assert ends(calibration, 0.25) == pytest.approx(1)
    assert ends(calibration, 0.5) == pytest.approx(2 + 1)
    assert ends(calibration, 0.75) == pytest.approx(4)


def test_scale_makes_the_mean_squared_score_one():
    calibration = Calibration.measure([3.0, 4.0], [1.0, 1.0])
    assert calibration.scale == pytest.approx(np.sqrt(12.5))
    assert np.mean(calibration.scores**2) == pytest.approx(1.0)
    assert calibration.n == 2


def test_beyond_what_few_errors_can_tell_students_t_takes_over():
    quiet = Calibration.measure([1.0, 1.0, 1.0], np.ones(3))
    assert quiet.half_width(0.99) == pytest.approx(t.ppf(0.995, 3))
    wild = Calibration.measure([0.0] * 24 + [30.0], np.ones(25))
    assert wild.half_width(0.99) == pytest.approx(5.0)


def test_a_single_error_is_enough():
    calibration = Calibration.measure([2.0], [1.0])
    assert ends(calibration, 0.5) == pytest.approx(2.0)
    assert ends(calibration, 0.9) == pytest.approx(2 * t.ppf(0.95, 1))


@pytest.mark.parametrize("n", [1, 3, 8])
def test_normal_errors_are_covered_as_often_as_promised_by_a_handful(n):
    errors, new = np.random.default_rng(n).normal(0.0, 2.0, (4_000, n + 1)).T, []
    for held_out, error in zip(errors[:-1].T, errors[-1], strict=True):
        new.append(abs(error) <= ends(Calibration.measure(held_out, np.ones(n)), 0.9))
    assert 0.88 < np.mean(new) < 0.95


def test_no_error_at_all_gives_no_width():
    calibration = Calibration.measure(np.zeros(20), np.ones(20))
    assert calibration.scale == 1.0
    assert calibration.half_width(0.9) == 0.0


@pytest.mark.parametrize("n", [9, 40, 700])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_exchangeable_data_are_covered_as_often_as_promised(coverage, n):
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(4_000_000 // (n * 200)):
        error = rng.standard_t(3, n + 200) * 2.5  # not normal, and the std is wrong
        calibration = Calibration.measure(error[:n], np.ones(n))
        hits.append(np.mean(np.abs(error[n:]) <= ends(calibration, coverage)))
    expected = np.ceil((n + 1) * coverage) / (n + 1)
    assert np.mean(hits) == pytest.approx(expected, abs=5 * np.std(hits) / np.sqrt(len(hits)))


@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.9, 0.99, 0.9999])
def test_a_large_set_is_kept_in_few_scores_that_never_say_too_little(coverage):
    error = np.random.default_rng(0).standard_t(4, 100_000)
    calibration = Calibration.measure(error, np.ones(len(error)))
    assert len(calibration.scores) == MAX_SCORES
    assert calibration.n == 100_000
    share = np.mean(np.abs(error) <= ends(calibration, coverage))
    assert coverage <= share <= coverage + 1 / (MAX_SCORES - 1) + 1e-5


@given(
    error=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60),
    coverages=st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)),
)
def test_more_coverage_never_takes_less_width(error, coverages):
    calibration = Calibration.measure(error, np.full(len(error), 0.5))
    low, high = (calibration.half_width(coverage) for coverage in sorted(coverages))
    assert 0 <= low <= high


@pytest.mark.parametrize("coverage", [0, 1, -0.5, 2, float("nan"), "0.9", None, [0.5, 0.9], True])
def test_coverage_is_a_share(coverage):
    with pytest.raises(DataError, match="coverage must be between 0 and 1"):
        normal_half_width(coverage)
    with pytest.raises(DataError, match="coverage must be between 0 and 1"):
        Calibration.measure([1.0], [1.0]).half_width(coverage)


@pytest.mark.parametrize(
    ("error", "std"), [([], []), ([1.0, np.nan], [1.0, 1.0]), ([1.0], [np.nan]), ([0.0], [0.0])]
)
def test_errors_must_be_there_and_finite(error, std):
    with pytest.raises(DataError, match="finite"):
        Calibration.measure(error, std)


def test_normal_half_width_is_the_known_quantile():
    assert normal_half_width(0.95) == pytest.approx(1.959964, abs=1e-6)


def test_columns_that_do_not_belong_together_are_refused():
    for columns in (([1, 2, 3], [1, 1]), ([1, 2], [1, 1], [3]), ([[1, 2]], [[1, 1]]), (1, 1)):
        with pytest.raises(DataError, match="Calibration needs columns of one length"):
            Calibration.measure(*columns)
    with pytest.raises(DataError, match="stds above 0"):
        Calibration.measure([1, 2], [1, -1])
