"""DeviationRegressor: least squares, known deviations, learned ones; and the paper's figure."""

import json
import subprocess
import sys

import numpy as np
import pytest
from noisewise_reproduction.page.regression import line_fits
from noisewise_reproduction.rivals.linear import DeviationRegressor, fit_variance
from noisewise_reproduction.runs import regression
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from noisewise.errors import DataError, SettingError
from noisewise.report.figures import render


def make_data(n=400, seed=0):
    """Noise whose variance is .1 + .5 |x_0|; two features, of which one adds none."""
    rng = np.random.default_rng(seed)
    X = rng.normal(0, 2, (n, 2))
    variance = 0.1 + 0.5 * np.abs(X[:, 0])
    mean = 1.0 + X @ [2.0, -1.0]
    return X, rng.normal(mean, np.sqrt(variance)), mean, variance


@parametrize_with_checks([DeviationRegressor(), DeviationRegressor("constant")])
def test_scikit_learn_has_no_complaints(estimator, check):
    check(estimator)


@pytest.mark.parametrize("intercept", [True, False])
def test_constant_deviation_is_linear_regression(intercept):
    X, y, _, _ = make_data()
    model = DeviationRegressor("constant", fit_intercept=intercept).fit(X, y)
    plain = LinearRegression(fit_intercept=intercept).fit(X, y)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-9)
    assert model.intercept_ == pytest.approx(plain.intercept_, abs=1e-12)
    freedom = len(y) - 2 - intercept
    _, noise, _ = model.predict_parts(X[:3])
    np.testing.assert_allclose(noise**2, np.sum((y - plain.predict(X)) ** 2) / freedom)


def test_the_std_of_a_regression_is_that_of_the_textbook():
    X, y, _, _ = make_data(30)
    _, std = DeviationRegressor("constant").fit(X, y).predict(X, return_std=True)
    design = np.column_stack([X, np.ones(30)])
    variance = np.sum((y - LinearRegression().fit(X, y).predict(X)) ** 2) / 27
    leverage = np.einsum("ij,jk,ik->i", design, np.linalg.inv(design.T @ design), design)
    np.testing.assert_allclose(std, np.sqrt(variance * (1 + leverage)))


@pytest.mark.parametrize("intercept", [True, False])
def test_known_deviations_give_weighted_least_squares(intercept):
    X, y, _, variance = make_data()
    model = DeviationRegressor(fit_intercept=intercept).fit(X, y, sample_std=np.sqrt(variance))
    weighted = LinearRegression(fit_intercept=intercept).fit(X, y, sample_weight=1 / variance)
    np.testing.assert_allclose(model.coef_, weighted.coef_, rtol=1e-8)
    assert model.intercept_ == pytest.approx(weighted.intercept_, rel=1e-8)
    noise = model.predict_parts(X[:2])[1]
    np.testing.assert_allclose(noise, np.sqrt(variance.mean()))


def test_learned_deviations_are_those_that_were_put_in():
    X, y, _, variance = make_data(5000)
    model = DeviationRegressor().fit(X, y)
    np.testing.assert_allclose(model.predict_parts(X)[1] ** 2, variance, rtol=0.25, atol=0.02)
    assert model.deviation_coef_[0] == pytest.approx(0.5, rel=0.1)
    assert model.deviation_coef_[1] < 0.05
    assert (model.deviation_coef_ >= 0).all()


def test_ninety_percent_of_values_are_within_their_normal_interval():
    X, y, _, _ = make_data(4000)
    model = DeviationRegressor().fit(X[:2000], y[:2000])
    for near in (np.abs(X[2000:, 0]) < 0.5, np.abs(X[2000:, 0]) > 3):
        mean, std = model.predict(X[2000:][near], return_std=True)
        covered = np.abs(y[2000:][near] - mean) < 1.645 * std
        assert covered.mean() == pytest.approx(0.9, abs=0.04)


def test_more_data_leave_less_epistemic_but_not_less_noise():
    X, y, _, _ = make_data(4000)
    few, many = (DeviationRegressor().fit(X[:n], y[:n]).predict_parts(X) for n in (100, 4000))
    assert many[2].mean() < 0.3 * few[2].mean()
    assert many[1].mean() == pytest.approx(few[1].mean(), rel=0.2)


def test_no_turn_lowers_the_likelihood():
    for seed in range(5):
        X, y, _, _ = make_data(60, seed)
        curve = DeviationRegressor(tol=0.0, max_iter=30, delta=0.1)
        with pytest.warns(ConvergenceWarning, match="raise max_iter or tol"):
            curve.fit(X, y)
        assert len(curve.nll_) == curve.n_iter_ == 30
        assert (np.diff(curve.nll_) <= 1e-12).all()


def test_the_variance_step_finds_the_likeliest_variance():
    rng = np.random.default_rng(0)
    features = np.column_stack([rng.uniform(0, 3, 20_000), np.ones(20_000)])
    p = np.ones(2)
    squared = rng.normal(0, np.sqrt(features @ [0.7, 0.2] + 0.05)) ** 2
    for _ in range(60):
        p = fit_variance(features, squared, p, 0.05)
    np.testing.assert_allclose(p, [0.7, 0.2], rtol=0.1)


def test_delta_is_the_floor_of_the_variance():
    X, y, _, _ = make_data()
    y = np.where(np.abs(X[:, 0]) < 1, 1.0 + X @ [2.0, -1.0], y)  # no noise at all near zero
    around = np.var(y - LinearRegression().fit(X, y).predict(X))
    for delta in (0.3, 0.03):
        model = DeviationRegressor(delta=delta).fit(X, y)
        least = model.predict_parts([[0.0, 0.0]])[1][0] ** 2
        assert least == pytest.approx(delta * around, rel=0.5)


@pytest.mark.parametrize("deviation", ["linear", "constant"])
@pytest.mark.parametrize("y", [[0.0] * 5, [7.0] * 5, [0.0, 1.0, 2.0, 3.0, 4.0]])
def test_values_without_noise_are_no_trouble(deviation, y):
    X = np.column_stack([np.arange(5.0), np.zeros(5)])
    mean, std = DeviationRegressor(deviation).fit(X, y).predict(X, return_std=True)
    np.testing.assert_allclose(mean, y, atol=1e-9)
    assert np.isfinite(std).all()
    assert (std < 1e-3).all()


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_change_the_numbers_and_nothing_else(scale):
    X, y, _, _ = make_data()
    mean, std = DeviationRegressor().fit(X, y).predict(X, return_std=True)
    other_mean, other_std = (
        DeviationRegressor().fit(scale * X, scale * y).predict(scale * X, return_std=True)
    )
    np.testing.assert_allclose(other_mean, scale * mean, rtol=1e-6)
    np.testing.assert_allclose(other_std, scale * std, rtol=1e-6)


BAD_STDS = {
    "too few": ([1.0], r"one std for each of 400 values; got shape \(1,\)"),
    "a zero": ([0.0] + [1.0] * 399, "row 0 is 0.0"),
    "negative": ([1.0] * 399 + [-2.0], "row 399 is -2.0"),
    "missing": ([1.0, np.nan] + [1.0] * 398, "row 1 is nan"),
}


@pytest.mark.parametrize(("std", "message"), BAD_STDS.values(), ids=BAD_STDS.keys())
def test_deviations_that_cannot_be_are_refused(std, message):
    X, y, _, _ = make_data()
    with pytest.raises(DataError, match=message):
        DeviationRegressor().fit(X, y, sample_std=std)


@pytest.mark.parametrize("setting", [{"deviation": "cubic"}, {"delta": 0.0}, {"max_iter": 0}])
def test_a_bad_setting_is_named(setting):
    X, y, _, _ = make_data()
    with pytest.raises(SettingError, match=next(iter(setting))):
        DeviationRegressor(**setting).fit(X, y)


# The paper's second figure.


@pytest.fixture(scope="module")
def worlds():
    return regression.compare(200)


def test_told_of_deviations_the_line_is_closer_to_the_truth(worlds):
    world = worlds["deviations told"]
    assert world["dlr_error"] < 0.5 * world["lr_error"]
    assert world["t_pvalue"] < 1e-20
    assert world["wilcoxon_pvalue"] < 1e-20
    assert world["wins"] > 160
    won = stats.binomtest(world["wins"], 200, alternative="greater").pvalue
    assert won < 1e-20


def test_learned_deviations_bring_the_line_closer_where_noise_grows(worlds):
    world = worlds["noise grows, deviations learned"]
    assert world["dlr_error"] < 0.9 * world["lr_error"]
    assert world["interval95"][1] < 0
    assert world["wilcoxon_pvalue"] < 1e-6


def test_learned_deviations_cost_little_where_noise_does_not_grow(worlds):
    world = worlds["same noise, deviations learned"]
    assert world["dlr_error"] == pytest.approx(world["lr_error"], rel=0.03)


def test_points_have_the_noise_of_the_paper():
    noise = np.concatenate([p.y - p.truth for p in map(regression.draw_points, range(300))])
    assert noise.var() == pytest.approx(0.01, rel=0.1)
    assert stats.kstest(noise / 0.1, "norm").pvalue > 0.01
    growing = regression.draw_points(0, 20_000, growing=True)
    assert np.mean(growing.std**2) == pytest.approx(0.01, rel=0.1)
    assert growing.std[15_000:].mean() > 1.5 * growing.std[:5_000].mean()


def test_too_few_draws_are_refused():
    with pytest.raises(SettingError, match="seeds must be 2 or more; got 1"):
        regression.compare(1)


def test_the_figure_shows_points_and_both_lines():
    drawing = regression.figure()
    axes = drawing.figure().axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [label.split(":")[0] for label in labels] == ["LR", "DLR", "seen", "expected"]
    assert "Lines through 12 noisy points" in drawing.alt
    assert render(drawing, "png").startswith(b"\x89PNG")
    assert "DLR" in drawing.svg()


def test_a_figure_of_columns_that_do_not_fit_is_refused():
    with pytest.raises(
        DataError, match=r"one length and 2 rows or more; got shapes \(3,\), \(2,\)"
    ):
        line_fits([1, 2, 3], [1, 2], [1, 2, 3], {"LR": [1, 2, 3]})
    with pytest.raises(DataError, match="1 to 4 lines; got 0"):
        line_fits([1, 2], [1, 2], [1, 2], {})


def test_the_experiment_writes_its_result_and_its_figure(tmp_path, capsys, monkeypatch):
    out, picture = tmp_path / "out.json", tmp_path / "dlr.svg"
    arguments = ["--seeds", "3", "--json", str(out), "--figure", str(picture)]
    monkeypatch.setattr(sys, "argv", ["regression", *arguments])
    regression.main()
    assert "deviations told" in capsys.readouterr().out
    assert json.loads(out.read_text())["seeds"] == 3
    assert "<svg" in picture.read_text()


def test_the_regressor_needs_no_matplotlib():
    code = """
import sys
sys.modules["matplotlib"] = None
import numpy as np
from noisewise_reproduction.runs.regression import compare
from noisewise_reproduction.rivals.linear import DeviationRegressor
DeviationRegressor().fit(np.arange(6.0)[:, None], [0, 1, 2, 3, 4, 6]).predict([[7.0]])
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)
