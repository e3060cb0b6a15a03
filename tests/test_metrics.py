"""Metrics: answers worked out by hand, integrals, other libraries, and what must always hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import logsumexp
from sklearn.metrics import ndcg_score

from noisewise import metrics
from noisewise.errors import DataError
from noisewise.evaluation.comparison import paired_test, summarise
from noisewise.metrics import evaluate

OF_STD = (
    metrics.nll,
    metrics.crps,
    metrics.miscalibration_area,
    metrics.ence,
    metrics.spearman,
    metrics.error_auc,
    metrics.ause,
    metrics.rpi,
)


@st.composite
def predictions(draw, min_size=1):
    """Truth, mean and std with many ties, as ratings have."""
    n = draw(st.integers(min_size, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.integers(1, 6, n) / 1.0, rng.uniform(1, 5, n).round(1), rng.integers(1, 8, n) / 4


@pytest.fixture(scope="module")
def honest():
    """100,000 rows whose noise has exactly the std that is predicted."""
    rng = np.random.default_rng(0)
    mean, std = rng.normal(3, 1, 100_000), rng.uniform(0.3, 2.0, 100_000)
    return rng.normal(mean, std), mean, std


def test_errors_of_3_and_4_give_the_known_means():
    truth, mean = [0, 0], [3, -4]
    assert metrics.rmse(truth, mean) == pytest.approx(math.sqrt(12.5))
    assert metrics.mse(truth, mean) == pytest.approx(12.5)
    assert metrics.mae(truth, mean) == pytest.approx(3.5)


@given(predictions())
def test_rmse_is_the_root_of_mse_and_at_least_mae(columns):
    truth, mean, _ = columns
    assert metrics.rmse(truth, mean) == pytest.approx(math.sqrt(metrics.mse(truth, mean)))
    assert metrics.rmse(truth, mean) >= metrics.mae(truth, mean) - 1e-12


@given(predictions())
def test_nll_is_half_the_log_of_2_pi_s_plus_the_scaled_square(columns):
    truth, mean, std = columns
    by_hand = 0.5 * np.log(2 * np.pi * std**2) + (truth - mean) ** 2 / (2 * std**2)
    assert metrics.nll(truth, mean, std) == pytest.approx(by_hand.mean())


def test_constant_nll_uses_the_root_mean_square_of_the_residuals():
    by_hand = metrics.nll([1, 2], [0, 0], [5, 5])
    assert metrics.constant_nll([1, 2], [0, 0], residuals=[3, -4, 5, math.sqrt(50)]) == by_hand


def test_the_right_std_beats_a_constant_one(honest):
    truth, mean, std = honest
    assert metrics.nll(truth, mean, std) < metrics.constant_nll(truth, mean, truth - mean) - 0.05


@pytest.mark.parametrize(("truth", "mean", "std"), [(1, 3, 0.5), (2, 2, 1.5), (4.5, 1, 2)])
def test_crps_is_the_integral_of_the_squared_distance_of_distributions(truth, mean, std):
    def below(x):
        return stats.norm.cdf(x, mean, std) ** 2

    def above(x):
        return stats.norm.sf(x, mean, std) ** 2

    integral = integrate.quad(below, -40, truth)[0] + integrate.quad(above, truth, 40)[0]
    assert metrics.crps([truth], [mean], [std]) == pytest.approx(integral, abs=1e-6)


def test_crps_is_the_mean_distance_of_draws_less_half_their_spread():
    rng = np.random.default_rng(0)
    draws, others = rng.normal(3, 0.7, (2, 400_000))
    sampled = np.abs(draws - 4).mean() - 0.5 * np.abs(draws - others).mean()
    assert metrics.crps([4], [3], [0.7]) == pytest.approx(sampled, abs=0.005)


@given(predictions())
def test_crps_tends_to_mae_as_std_goes_to_0(columns):
    truth, mean, _ = columns
    tiny = np.full(len(truth), 1e-9)
    assert metrics.crps(truth, mean, tiny) == pytest.approx(metrics.mae(truth, mean), abs=1e-8)


@pytest.mark.parametrize("score", [metrics.nll, metrics.crps])
@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_proper_scores_prefer_the_right_std(honest, score, factor):
    truth, mean, std = honest
    assert score(truth, mean, std) < score(truth, mean, std * factor)


@given(predictions())
def test_rating_log_loss_is_that_of_the_cell_masses(columns):
    truth, mean, std = columns[0], columns[1], columns[2] + 0.5
    edges = np.array([0.5, 1.5, 2.5, 3.5, 4.5, 5.5])
    mass = np.diff(stats.norm.cdf(edges, mean[:, None], std[:, None]))
    mass /= mass.sum(axis=1, keepdims=True)
    by_hand = -np.log(mass[np.arange(len(truth)), truth.astype(int) - 1]).mean()
    loss = metrics.rating_log_loss(truth, mean, std, levels=[1, 2, 3, 4, 5])
    assert loss == pytest.approx(by_hand, rel=1e-6)


def test_rating_log_loss_takes_uneven_levels_and_sums_to_one():
    levels = [0.5, 1, 3, 10]
    losses = [metrics.rating_log_loss([level], [2.2], [1.7], levels) for level in levels]
    assert sum(math.exp(-loss) for loss in losses) == pytest.approx(1)
    cell = stats.norm.cdf([0.25, 2, 6.5, 13.5], 2.2, 1.7)
    assert losses[2] == pytest.approx(-math.log((cell[2] - cell[1]) / (cell[3] - cell[0])))


@pytest.mark.parametrize(("mean", "std"), [(9.0, 0.1), (-3.0, 0.1), (60.0, 0.5)])
def test_rating_log_loss_stays_exact_far_in_the_tails(mean, std):
    def log_mass(low, high):
        middles = low + (np.arange(100_000) + 0.5) * (high - low) / 100_000
        return logsumexp(-(((middles - mean) / std) ** 2) / 2) + np.log(high - low)

    by_sum = log_mass(0.5, 5.5) - log_mass(1.5, 2.5)
    loss = metrics.rating_log_loss([2], [mean], [std], [1, 2, 3, 4, 5])
    assert loss == pytest.approx(by_sum, abs=1e-3)
    assert loss > 100


@pytest.mark.parametrize(
    ("truth", "levels", "message"),
    [
        ([2.5], [1, 2, 3], r"truth must hold only the levels \[1. 2. 3.\]; got 2.5 in row 0"),
        ([9], [1, 2, 3], "got 9.0 in row 0"),
        ([1], [1], "two or more"),
        ([1], [3, 2, 1], "each above the last"),
    ],
)
def test_rating_log_loss_refuses_ratings_and_levels_that_do_not_fit(truth, levels, message):
    with pytest.raises(DataError, match=message):
        metrics.rating_log_loss(truth, [1], [1], levels)


def test_sharpness_is_the_root_mean_variance():
    assert metrics.sharpness([3, 4]) == pytest.approx(math.sqrt(12.5))


def test_interval_metrics_of_a_hit_and_two_misses():
    truth, low, high = [0, 3, -2], [-1, -1, -1], [1, 1, 2]
    assert metrics.coverage(truth, low, high) == pytest.approx(1 / 3)
    assert metrics.width(low, high) == pytest.approx(7 / 3)
    # width 2; width 2 and 2 above at 2 / .2 each; width 3 and 1 below
    score = metrics.interval_score(truth, low, high, coverage=0.8)
    assert score == pytest.approx((2 + (2 + 20) + (3 + 10)) / 3)


def test_the_ends_belong_to_the_interval():
    assert metrics.coverage([1, 2], [1, 1], [2, 2]) == 1


def test_the_true_quantiles_get_the_best_interval_score(honest):
    truth, mean, std = honest
    scores = [
        metrics.interval_score(truth, mean - z * std, mean + z * std, coverage=0.9)
        for z in (1.3, stats.norm.ppf(0.95), 2.1)
    ]
    assert scores[1] == min(scores)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 0.95])
def test_an_honest_interval_covers_its_share(honest, share):
    scores = evaluate(*honest, coverage=share)
    assert scores[f"coverage{100 * share:.0f}"] == pytest.approx(share, abs=0.005)


def test_calibration_curve_counts_truths_up_to_and_at_the_quantile():
    curve = metrics.calibration_curve([0, 0, 1], [0, 1, 0], [1, 1, 1], levels=[0, 0.2, 0.5, 1])
    np.testing.assert_allclose(curve, [0, 1 / 3, 2 / 3, 1])


def test_honest_predictions_are_calibrated_and_others_are_not(honest):
    truth, mean, std = honest
    levels = np.linspace(0, 1, 21)
    np.testing.assert_allclose(
        metrics.calibration_curve(truth, mean, std, levels), levels, atol=0.01
    )
    assert metrics.miscalibration_area(truth, mean, std) < 0.005
    assert metrics.miscalibration_area(truth, mean, std / 2) > 0.05
    assert metrics.miscalibration_area(truth, mean + 1000, std) == pytest.approx(0.5)
    assert metrics.ence(truth, mean, std) < 0.03
    assert metrics.ence(truth, mean, std / 2) == pytest.approx(1, abs=0.03)


@given(predictions())
def test_miscalibration_area_is_that_between_the_curve_and_the_diagonal(columns):
    levels = np.linspace(0, 1, 20_001)
    gap = np.abs(metrics.calibration_curve(*columns, levels) - levels)
    by_grid = integrate.trapezoid(gap, levels)
    assert metrics.miscalibration_area(*columns) == pytest.approx(by_grid, abs=1e-3)


def test_levels_of_the_calibration_curve_lie_between_0_and_1():
    with pytest.raises(DataError, match=r"levels must lie between 0 and 1; got 1\.5 in row 1"):
        metrics.calibration_curve([0], [0], [1], levels=[0.5, 1.5])


def test_ence_compares_rmse_and_std_bin_by_bin():
    truth, mean, std = [1, 3, 4, 4], [0, 0, 0, 0], [1, 1, 4, 5]
    small = abs(math.sqrt(5) - 1) / 1
    large = abs(4 - math.sqrt(20.5)) / math.sqrt(20.5)
    assert metrics.ence(truth, mean, std, bins=2) == pytest.approx((small + large) / 2)
    by_row = (0 + 0 + 0 + 1 / 5) / 4  # errors equal to std, but for the last
    assert metrics.ence([1, 2, 3, 4], mean, [1, 2, 3, 5], bins=9) == pytest.approx(by_row)
    with pytest.raises(DataError, match="bins must be 1 or more; got 0"):
        metrics.ence(truth, mean, std, bins=0)


@given(predictions(min_size=3))
def test_spearman_is_the_correlation_of_ranks(columns):
    truth, mean, std = columns
    error = np.abs(truth - mean)
    if np.ptp(error) == 0 or np.ptp(std) == 0:
        assert math.isnan(metrics.spearman(*columns))
    else:
        by_hand = np.corrcoef(stats.rankdata(error), stats.rankdata(std))[0, 1]
        assert metrics.spearman(*columns) == pytest.approx(by_hand, abs=1e-12)


@given(predictions())
def test_error_auc_is_the_share_of_pairs_in_the_right_order(columns):
    truth, mean, std = columns
    large = np.abs(truth - mean) > 1
    over = std[large][:, None] - std[~large]
    if over.size:
        by_hand = (np.sum(over > 0) + 0.5 * np.sum(over == 0)) / over.size
        assert metrics.error_auc(*columns) == pytest.approx(by_hand)
    else:
        assert math.isnan(metrics.error_auc(*columns))


def test_error_auc_has_a_threshold_and_an_error_equal_to_it_is_small():
    truth, mean, std = [1, 2, 3], [0, 0, 0], [1, 3, 2]
    assert metrics.error_auc(truth, mean, std) == 1
    assert metrics.error_auc(truth, mean, std, threshold=2.5) == 0.5
    assert math.isnan(metrics.error_auc(truth, mean, std, threshold=3))
    assert math.isnan(metrics.error_auc(truth, mean, std, threshold=0.5))


def test_ause_of_the_worst_order_of_two_rows():
    # by std: RMSE of both, then of the error 3; by error: of both, then of the error 1
    assert metrics.ause([1, 3], [0, 0], [2, 1]) == pytest.approx((3 - 1) / 2)
    assert metrics.ause([1, 3], [0, 0], [1, 2]) == 0
    assert metrics.ause([1, 3], [0, 0], [1, 1]) == pytest.approx((math.sqrt(5) - 1) / 2)


@given(predictions())
def test_ause_is_0_when_std_has_the_order_of_the_errors_and_never_less(columns):
    truth, mean, std = columns
    error = np.abs(truth - mean)
    assert metrics.ause(truth, mean, error + 1) == pytest.approx(0, abs=1e-7)
    assert metrics.ause(truth, mean, std) >= -1e-7


def test_rpi_follows_its_formula():
    # errors 1, 3: MAE 2, MAD 1; std 1, 2: mean 1.5, MAD .5; mean(1*-1*-.5, 3*1*.5) = 1
    assert metrics.rpi([1, 3], [0, 0], [1, 2]) == pytest.approx(1)
    assert metrics.rpi([1, 3], [0, 0], [2, 1]) == pytest.approx(-1)


def test_a_constant_std_ranks_nothing():
    truth, mean, std = [1, 2, 5], [1, 1, 1], [0.1, 0.1, 0.1]
    assert math.isnan(metrics.spearman(truth, mean, std))
    assert math.isnan(metrics.rpi(truth, mean, std))
    assert metrics.error_auc(truth, mean, std) == 0.5


def test_a_std_that_follows_the_noise_ranks_errors_better_than_a_shuffled_one(honest):
    truth, mean, std = honest
    shuffled = np.random.default_rng(1).permutation(std)
    assert metrics.spearman(truth, mean, std) > 0.3
    assert abs(metrics.spearman(truth, mean, shuffled)) < 0.01
    assert metrics.error_auc(truth, mean, std) > 0.65
    assert metrics.error_auc(truth, mean, shuffled) == pytest.approx(0.5, abs=0.01)
    assert metrics.rpi(truth, mean, std) > 0.5
    assert abs(metrics.rpi(truth, mean, shuffled)) < 0.03
    assert metrics.ause(truth, mean, std) < metrics.ause(truth, mean, shuffled)


@given(predictions(), st.integers(0, 99))
def test_the_order_of_the_rows_never_matters(columns, seed):
    order = np.random.default_rng(seed).permutation(len(columns[0]))
    mixed = [column[order] for column in columns]
    for metric in OF_STD:
        assert metric(*mixed) == pytest.approx(metric(*columns), abs=1e-7, nan_ok=True)


@given(predictions(), st.floats(0.1, 10))
def test_ranking_and_calibration_do_not_depend_on_the_unit(columns, unit):
    truth, mean, std = columns
    other = [truth * unit, mean * unit, std * unit]
    for metric in (metrics.miscalibration_area, metrics.ence, metrics.rpi):
        assert metric(*other) == pytest.approx(metric(*columns), abs=1e-6, nan_ok=True)
    for metric in (metrics.crps, metrics.ause):
        assert metric(*other) == pytest.approx(unit * metric(*columns), abs=1e-6)


@given(st.permutations(range(8)), st.sets(st.integers(0, 7), min_size=1), st.integers(1, 10))
def test_ndcg_agrees_with_sklearn_on_a_full_ranking(ranked, relevant, n):
    gain = [[float(item in relevant) for item in range(8)]]
    score = [[-float(ranked.index(item)) for item in range(8)]]
    assert metrics.ndcg_at(ranked, relevant, n) == pytest.approx(ndcg_score(gain, score, k=n))


def test_lists_shorter_than_n_and_relevant_ids_out_of_reach_cost_gain():
    best = 1 + 1 / math.log2(3) + 1 / 2
    assert metrics.ndcg_at(["a"], ["a", "b", "c", "d"], n=3) == pytest.approx(1 / best)
    assert metrics.ndcg_at(["x", "a"], ["a"], n=1) == 0
    assert metrics.recall_at(["a", "x", "b"], ["a", "b", "c", "d"], n=3) == 0.5
    assert metrics.recall_at(["a", "x", "b"], ["a", "b", "c", "d"], n=2) == 0.25
    assert metrics.recall_at([], ["a"], n=5) == 0
    assert metrics.ndcg_at(np.array([3, 1]), np.array([3]), n=2) == 1


@pytest.mark.parametrize("metric", [metrics.ndcg_at, metrics.recall_at])
def test_lists_with_nothing_to_find_are_nan_and_broken_ones_refused(metric):
    assert math.isnan(metric(["a"], set(), n=3))
    with pytest.raises(DataError, match="n must be 1 or more; got 0"):
        metric(["a"], {"a"}, n=0)
    with pytest.raises(DataError, match="each id once"):
        metric(["a", "a"], {"a"}, n=3)


def test_evaluate_has_the_same_numbers_as_the_functions(honest):
    scores = evaluate(*honest, coverage=0.8)
    truth, mean, std = honest
    low, high = mean - 1.2815515655446004 * std, mean + 1.2815515655446004 * std
    names = ("nll", "crps", "calibration_area", "ence", "spearman", "auc", "ause", "rpi")
    expected = {name: metric(*honest) for name, metric in zip(names, OF_STD, strict=True)}
    expected |= {
        "rmse": metrics.rmse(truth, mean),
        "mae": metrics.mae(truth, mean),
        "sharpness": metrics.sharpness(std),
        "coverage80": metrics.coverage(truth, low, high),
        "width80": metrics.width(low, high),
        "interval_score80": metrics.interval_score(truth, low, high, 0.8),
    }
    assert scores == pytest.approx(expected)
    assert all(type(score) is float for score in scores.values())


def test_evaluate_gives_what_the_columns_allow():
    assert evaluate([1, 2], [1, 4]) == {"rmse": math.sqrt(2), "mae": 1}
    with_interval = evaluate([1, 2], [1, 4], low=[0, 3], high=[2, 5], coverage=0.975)
    assert list(with_interval) == ["rmse", "mae", "coverage97.5", "width97.5", "interval_score97.5"]
    given = evaluate([1, 2], [1, 4], [1, 1], low=[0, 3], high=[2, 5])
    assert given["coverage90"] == 0.5
    assert given["width90"] == 2
    with pytest.raises(DataError, match="needs low and high"):
        evaluate([1, 2], [1, 4], low=[0, 3])


@pytest.mark.parametrize("share", [0, 1, 90, float("nan")])
def test_coverage_is_a_share(share):
    with pytest.raises(DataError, match=f"coverage must be between 0 and 1, e.g. 0.9; got {share}"):
        evaluate([1], [1], [1], coverage=share)
    with pytest.raises(DataError, match="coverage must be"):
        metrics.interval_score([1], [1], [1], coverage=share)


@pytest.mark.parametrize("metric", OF_STD)
@pytest.mark.parametrize(
    ("truth", "mean", "std", "message"),
    [
        ([], [], [], r"truth needs one dimension and a row or more; got shape \(0,\)"),
        ([[1]], [[1]], [[1]], r"got shape \(1, 1\)"),
        ([1, 2], [1], [1, 2], r"truth, mean, std need the same length; got \[2, 1, 2\]"),
        ([1, math.nan], [1, 1], [1, 1], "truth needs finite numbers; got nan in row 1"),
        ([1, 1], [math.inf, 1], [1, 1], "mean needs finite numbers; got inf in row 0"),
        ([1, 1], [1, 1], [1, 0], "std must be above 0; got 0.0 in row 1"),
        (["bad"], [1], [1], "truth needs numbers: could not convert string to float: 'bad'"),
    ],
)
def test_broken_columns_are_named(metric, truth, mean, std, message):
    with pytest.raises(DataError, match=message):
        metric(truth, mean, std)


def test_an_interval_upside_down_is_refused():
    with pytest.raises(DataError, match=r"high must not be below low; got 1\.0 in row 1"):
        metrics.coverage([1, 1], [0, 2], [2, 1])


def test_integers_of_one_byte_do_not_wrap_around():
    truth, mean = np.array([1, 5], dtype=np.uint8), np.array([5, 1], dtype=np.uint8)
    assert metrics.rmse(truth, mean) == 4
    assert metrics.ause(truth, mean, [1, 1]) == 0
    assert evaluate(truth, mean, [1, 1])["coverage90"] == 0


def test_summary_has_the_interval_of_student():
    # mean 3, sd sqrt(2.5), t(.975, 4) = 2.776445
    assert summarise([1, 2, 3, 4, 5]) == pytest.approx((3, 3 - 1.963243, 3 + 1.963243, 5))


def test_summary_of_one_value_has_no_interval_and_of_equal_values_none_to_speak_of():
    one = summarise([0.84])
    assert (one.mean, one.n) == (0.84, 1)
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    assert summarise([0.1, 0.1, 0.1]) == pytest.approx((0.1, 0.1, 0.1, 3))


def test_summary_of_a_metric_without_meaning_is_nan():
    summary = summarise([0.2, math.nan, 0.3])
    assert all(math.isnan(number) for number in summary[:3])
    with pytest.raises(DataError, match="values needs one dimension and a row or more"):
        summarise([])


def test_ninety_five_percent_interval_holds_the_mean_in_ninety_five_percent():
    draws = np.random.default_rng(0).normal(2, 1, (2000, 5))
    summaries = [summarise(draw) for draw in draws]
    assert np.mean([s.low <= 2 <= s.high for s in summaries]) == pytest.approx(0.95, abs=0.015)


def resplits(rng, n=60, splits=15):
    """Errors of mean and median on the test tenths of random splits of one small table."""
    values, errors = rng.normal(0, 1, n), []
    for _ in range(splits):
        order = rng.permutation(n)
        test, train = values[order[: n // 10]], values[order[n // 10 :]]
        errors.append([np.mean(np.abs(test - middle(train))) for middle in (np.mean, np.median)])
    return np.array(errors).T


def test_an_interval_over_resplits_holds_the_error_on_new_data_and_a_plain_one_does_not():
    rng = np.random.default_rng(0)
    tables = [resplits(rng) for _ in range(400)]
    for of in (lambda errors: errors[0], lambda errors: errors[0] - errors[1]):
        truth = np.mean([of(errors).mean() for errors in tables])
        plain, corrected = (
            np.mean([one.low <= truth <= one.high for one in summaries])
            for summaries in ([summarise(of(e), ratio) for e in tables] for ratio in (0.0, 1 / 9))
        )
        assert plain < 0.87
        assert 0.91 < corrected < 0.99


def test_over_resplits_interval_and_p_value_are_those_of_nadeau_and_bengio():
    a, b = [0.835, 0.833, 0.838, 0.834], [0.838, 0.837, 0.840, 0.836]
    difference = np.subtract(a, b)
    error = difference.std(ddof=1) * math.sqrt(1 / 4 + 1 / 9)
    result = paired_test(a, b, 1 / 9)
    reach = stats.t.ppf(0.975, 3) * error
    assert (result.low, result.high) == pytest.approx(
        (difference.mean() - reach, difference.mean() + reach)
    )
    assert result.t_pvalue == pytest.approx(2 * stats.t.sf(abs(difference.mean()) / error, 3))
    with pytest.raises(DataError, match="test_ratio must be 0 or more; got -1"):
        summarise([1, 2], -1)


def test_paired_test_on_the_sleep_data_of_student():
    # Ten patients, hours of extra sleep: t = -4.0621, p = .002833; Wilcoxon drops the one zero.
    a = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    b = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    result = paired_test(a, b)
    assert result.difference == pytest.approx(-1.58)
    assert (result.low, result.high) == pytest.approx((-2.4598858, -0.7001142))
    assert result.t_pvalue == pytest.approx(0.00283289)
    assert result.wilcoxon_pvalue == pytest.approx(2 / 2**9)
    assert (result.wins, result.n) == (9, 10)


def test_five_wins_of_five_is_the_paper_relation_and_wilcoxon_can_say_no_more():
    biased = [0.8392, 0.8368, 0.8403, 0.8391, 0.8358]
    deviation = [0.8362, 0.8334, 0.8377, 0.8360, 0.8329]
    result = paired_test(deviation, biased)
    assert result.wins == 5
    assert result.high < 0
    assert result.t_pvalue == pytest.approx(stats.ttest_rel(deviation, biased).pvalue)
    assert result.wilcoxon_pvalue == 0.0625


@given(st.integers(2, 6), st.integers(0, 10_000))
def test_swapping_the_methods_turns_the_difference_around(n, seed):
    a, b = np.random.default_rng(seed).integers(0, 4, (2, n)) / 10
    there, back = paired_test(a, b), paired_test(b, a)
    assert (there.difference, there.low, there.high) == pytest.approx(
        (-back.difference, -back.high, -back.low)
    )
    assert there.t_pvalue == pytest.approx(back.t_pvalue)
    assert there.wilcoxon_pvalue == pytest.approx(back.wilcoxon_pvalue)
    assert there.wins + back.wins == np.sum(a != b)


def test_one_split_tests_nothing():
    result = paired_test([0.83], [0.84])
    assert result.difference == pytest.approx(-0.01)
    assert math.isnan(result.low)
    assert math.isnan(result.t_pvalue)
    assert result.wilcoxon_pvalue == 1
    assert (result.wins, result.n) == (1, 1)


def test_equal_differences_give_the_limit_of_the_p_value_without_a_warning():
    same = paired_test([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert (same.difference, same.t_pvalue, same.wilcoxon_pvalue, same.wins) == (0, 1, 1, 0)
    rounding = paired_test([0.1 + 0.2, 0.5], [0.3, 0.5])
    assert (rounding.t_pvalue, rounding.wilcoxon_pvalue, rounding.wins) == (1, 1, 0)
    shifted = paired_test([0.1, 0.2, 0.3], [0.2, 0.3, 0.4])
    assert shifted.t_pvalue == 0
    assert shifted.wilcoxon_pvalue == 0.25
    assert shifted.wins == 3


def test_paired_test_refuses_what_cannot_be_compared():
    with pytest.raises(DataError, match="a, b need the same length"):
        paired_test([1, 2], [1])
    with pytest.raises(DataError, match="b needs finite numbers; got nan in row 1"):
        paired_test([1, 2], [1, math.nan])
