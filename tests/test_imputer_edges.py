"""DeviationImputer at the edges: sizes, scales, times and settings that nobody means to give."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.exceptions import NotFittedError

from noisewise import DeviationImputer, gap_report
from noisewise.errors import DataError, SettingError

QUICK = {"random_state": 0, "n_jobs": 1}


def table(rows=80, seed=0):
    """Three series that swing and wander, a sixth of their readings lost."""
    rng = np.random.default_rng(seed)
    swing = 3 * np.sin(np.arange(rows) / 4)[:, None] + [10.0, 20.0, 30.0]
    whole = swing + np.cumsum(rng.normal(0, 0.2, (rows, 3)), axis=0)
    return np.where(rng.random(whole.shape) < 1 / 6, np.nan, whole)


def fitted(X, method="linear", **settings):
    return DeviationImputer(method, **QUICK, **settings).fit(X)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_forecast_goes_on_after_lengths_of_time(library):
    frame = pd.DataFrame(table(), columns=list("abc"))
    ticks = pd.to_timedelta(np.arange(80) * 15, unit="min")
    if library == "pandas":
        ahead = fitted(frame.set_axis(ticks)).forecast(2).mean
        last = ahead.index.tolist()
    else:
        wide = pl.from_pandas(frame.assign(t=ticks))
        ahead = fitted(wide, time="t").forecast(2).mean
        last = ahead["t"].to_list()
    assert last == [pd.Timedelta("20h"), pd.Timedelta("20h15min")]


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        (1e200, r"at most 1e\+100 in size, or NaN for a hole; got .*e\+20. for 0 in row"),
        (1e-300, "give them in a smaller unit"),
        (5e-324, "give them in a smaller unit"),
    ],
)
def test_readings_that_floats_cannot_square_are_refused(unit, message):
    with pytest.raises(DataError, match=message):
        fitted(table() * unit)


@pytest.mark.parametrize("unit", [1e-90, 1e90])
def test_units_may_be_far_from_one(unit):
    X = table()
    filled = DeviationImputer("linear", **QUICK).fit_transform(X * unit)
    usual = DeviationImputer("linear", **QUICK).fit_transform(X)
    np.testing.assert_allclose(filled / unit, usual, rtol=1e-5)


@pytest.mark.parametrize("unit", [1e-90, 1e90])
def test_outliers_are_judged_in_any_unit(unit):
    X = table()
    X[40, 0] = 500.0
    settings = {"scale": None, "outliers": "auto"}
    usual = fitted(X, **settings).transform(X)
    np.testing.assert_allclose(fitted(X * unit, **settings).transform(X * unit) / unit, usual, 1e-5)


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (lambda X: X, r"True where a hole will be, and False elsewhere; got .*: give like=X.isna"),
        (lambda X: X.isna()[["c", "a", "b"]], "the columns of X in the same order"),
        (lambda X: X.isna()[::-1], "the index of X in the same order"),
        (lambda X: X.isna()[:9], r"the shape of the readings of X, \(80, 3\); got \(9, 3\)"),
    ],
)
def test_a_table_of_holes_to_come_must_be_one(like, message):
    X = pd.DataFrame(table(), columns=list("abc"))
    with pytest.raises(DataError, match=message):
        fitted(X, like=like(X))
    for mask in (X.isna(), X.isna().astype(int), X.isna().to_numpy()):
        assert fitted(X, like=mask).chosen_ == "linear"


def test_a_new_reading_of_any_size_overflows_nothing():
    X = table()
    imputer = fitted(X[:60])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=RuntimeWarning)
        warnings.filterwarnings("ignore", category=UserWarning)
        imputer.update(X[60:] * 1e90)
        assert np.isfinite(imputer.transform(X[60:] * 1e90)).all()


@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.9, 0.99])
def test_intervals_hold_what_is_filled_in(coverage):
    # On a scale of logarithms the mean is above the middle, and above all that was ever read.
    rng = np.random.default_rng(1)
    rare = rng.poisson(0.05, (150, 3)).astype(float)
    steep = np.arange(150.0)[:, None] ** 4 * [1.0, 2.0, -1.0]
    rare[rng.random(rare.shape) < 0.2] = steep[20:40, 0] = steep[140:, 1] = np.nan
    for X in (rare, steep):
        imputer = fitted(X)
        filled, (low, high) = imputer.transform(X), imputer.interval(X, coverage)
        assert (low <= filled).all()
        assert (filled <= high).all()


def test_intervals_of_a_forecast_hold_its_mean_where_all_errors_have_one_sign():
    X = np.exp(np.arange(60.0))[:, None] * [1.0, 2.0]
    ahead = fitted(X).forecast(3, coverage=0.5)
    assert (ahead.low <= ahead.mean).all()
    assert (ahead.mean <= ahead.high).all()


@pytest.mark.parametrize("coverage", [0, 1, -0.1, 1.5, float("nan"), None, "0.9", [0.5, 0.9]])
def test_a_coverage_that_is_no_share_is_refused(coverage):
    imputer = fitted(table())
    for ask in (imputer.interval, lambda X, c: imputer.forecast(2, coverage=c)):
        with pytest.raises(DataError, match="coverage must be between 0 and 1"):
            ask(table(), coverage)


@pytest.mark.parametrize("seed", ["x", -1, 1.5])
def test_a_seed_of_samples_is_a_whole_number(seed):
    with pytest.raises(SettingError, match="random_state must be a whole number"):
        fitted(table()).sample(table(), 1, random_state=seed)


@pytest.mark.parametrize("name", ["chosen_", "scale_", "model_"])
def test_what_was_learned_is_not_there_before_a_fit(name):
    with pytest.raises(NotFittedError):
        getattr(DeviationImputer(), name)


def test_a_scale_that_readings_do_not_have_is_named_as_it_was_given():
    with pytest.raises(DataError, match=r"^scale='log' needs .* or scale=None\.$"):
        fitted(table() - 50.0, scale="log")


def test_what_is_nearly_a_table_says_what_to_do():
    frame = pd.DataFrame(table(), columns=list("abc"))
    with pytest.raises(DataError, match=r"pyarrow\.Table\.from_batches"):
        fitted(pa.Table.from_pandas(frame).to_batches()[0])
    with pytest.raises(DataError, match="make numbers of that text first"):
        fitted(frame.astype(str))
    with pytest.raises(DataError, match="make dates of that text first"):
        fitted(frame.set_axis([f"{k:02d}.01.2013" for k in range(80)]))


def test_a_report_of_gaps_takes_what_an_imputer_takes():
    X = table()
    assert gap_report(X.astype(object)).share == gap_report(X).share
    with pytest.raises(DataError, match="an array of numbers"):
        gap_report([["a", "b"], ["c", "d"]])


def wanderers(seed):
    """Three series that forget within ten hours, with noise, hour by hour."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(500, 3))
    for k in range(1, 500):
        steps[k] += 0.9 * steps[k - 1]
    when = pd.date_range("2024-05-01", periods=500, freq="h")
    return pd.DataFrame(steps + 0.3 * rng.normal(size=steps.shape), index=when)


@pytest.mark.parametrize("rows", ["in between", "every third"])
def test_rows_at_other_distances_are_no_more_surprising(rows):
    surprise = []
    for seed in range(6):
        frame = wanderers(seed)
        late = np.arange(500) >= 300
        new = late & (np.arange(500) % 3 == 0)
        if rows == "in between":
            new = np.random.default_rng(9).random(500) < 0.3
        imputer = fitted(frame[~new & ~late] if rows == "every third" else frame[~new])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a level may wander far in so many hours
            surprise.append(imputer.update(frame[new]).drift()["surprise"])
    assert 0.7 < np.mean(surprise) < 1.4


def test_a_series_that_has_moved_away_has_drifted_at_any_distance():
    frame = wanderers(0)
    imputer = fitted(frame[:300])
    with pytest.warns(UserWarning, match="of 3 series have drifted"):
        imputer.update(frame[300::3].add([0.0, 0.0, 12.0]))
    assert imputer.drift()["drifted"][2]


def test_whole_numbers_stay_within_bounds_that_are_none():
    rng = np.random.default_rng(0)
    counts = rng.poisson(3, (120, 3)).clip(1, 7).astype(float)
    counts[rng.random(counts.shape) < 0.2] = np.nan
    imputer = fitted(counts, whole=True, bounds=(0.5, 7.2))
    ahead = imputer.forecast(3, coverage=0.99)
    tables = (imputer.transform(counts), *imputer.interval(counts, 0.99), *ahead[:1], *ahead[2:])
    for one in tables:
        assert (one == np.rint(one)).all()
        assert one.min() >= 1.0
        assert one.max() <= 7.0


def test_times_closer_than_a_microsecond_are_asked_for_as_numbers():
    frame = pd.DataFrame(table()).set_axis(pd.DatetimeIndex(np.arange(80) * 100))
    with pytest.raises(DataError, match="give finer times as numbers"):
        fitted(frame)
    filled = DeviationImputer("linear", **QUICK).fit_transform(frame.set_axis(np.arange(80) * 100))
    assert filled.notna().all(axis=None)


@pytest.mark.parametrize("method", ["regression", "lagged", "forest"])
def test_a_single_row_is_filled_without_a_word(method):
    row = pd.DataFrame([[1.0, 2.0, np.nan]])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=RuntimeWarning)
        filled = DeviationImputer(method, sensor=None, **QUICK).fit_transform(row)
    assert filled.notna().all(axis=None)


def test_what_is_masked_in_an_array_is_not_taken_for_a_reading():
    masked = np.ma.masked_invalid(table())
    masked.data[masked.mask] = -9999.0
    with pytest.raises(DataError, match=r"pass X.filled\(np.nan\)"):
        fitted(masked)
    filled = fitted(masked.filled(np.nan)).transform(masked.filled(np.nan))
    np.testing.assert_array_equal(filled, fitted(table()).transform(table()))
