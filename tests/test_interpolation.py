"""LinearInterpolator, and what all models of single series share."""

import datetime
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from noisewise.data import observe
from noisewise.errors import DataError, ModelFileError, SettingError
from noisewise.models.series import LinearInterpolator, OUSmoother, fit_walk

TYPES = ("calm", "wild")


def make_sensors(n_places=5, n_times=120, seed=0):
    """Cells (place, type, time) of walks that are seen through noise; half of them, in no order."""
    rng = np.random.default_rng(seed)
    cells, values = [], []
    for place in range(n_places):
        for kind, scale in zip(TYPES, (1.0, 20.0), strict=True):
            walk = np.cumsum(rng.normal(0, scale, n_times)) + 10 * scale
            seen = walk + rng.normal(0, 0.5 * scale, n_times)
            cells += [(f"p{place}", kind, t) for t in range(n_times)]
            values += seen.tolist()
    order = rng.permutation(len(cells))
    X = np.array(cells, dtype=object)[order]
    y = np.array(values)[order]
    half = len(y) // 2
    return X[:half], y[:half], X[half:], y[half:]


@pytest.fixture(scope="module", params=[LinearInterpolator, OUSmoother])
def kind(request):
    """A class of models of single series."""
    return request.param


@pytest.fixture(scope="module")
def sensors():
    return make_sensors()


@pytest.fixture(scope="module")
def fitted(kind, sensors):
    return kind(sensor=1, n_jobs=1).fit(*sensors[:2])


def test_a_line_goes_through_the_neighbours_in_time(sensors):
    X, y, asked, _ = sensors
    model = LinearInterpolator(n_jobs=1).fit(X, y)
    own = (X[:, 0] == "p1") & (X[:, 1] == "wild")
    asked = asked[(asked[:, 0] == "p1") & (asked[:, 1] == "wild")]
    time, values = X[own, 2].astype(float), y[own]
    order = np.argsort(time)
    expected = np.interp(asked[:, 2].astype(float), time[order], values[order])
    np.testing.assert_allclose(model.predict(asked), expected, rtol=1e-5)
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-5)


def test_std_is_right_on_average_for_every_type(fitted, sensors):
    X, y = sensors[2:]
    mean, std = fitted.predict(X, return_std=True)
    for name in TYPES:
        own = X[:, 1] == name
        assert np.mean(((y - mean) / std)[own] ** 2) == pytest.approx(1.0, abs=0.25)


def test_leaving_out_training_cells_gives_errors_like_those_of_cells_held_out(fitted, sensors):
    X, y, asked, truth = sensors
    mean, std = fitted.leave_one_out(X, return_std=True)
    assert np.mean(((y - mean) / std) ** 2) == pytest.approx(1.0, abs=0.2)
    np.testing.assert_array_equal(fitted.leave_one_out(asked), fitted.predict(asked))
    held_out = np.mean((truth - fitted.predict(asked)) ** 2)
    assert np.mean((y - mean) ** 2) == pytest.approx(held_out, rel=0.4)


def test_std_grows_with_the_gap(fitted):
    times = [(("p0", "calm", t)) for t in (119, 125, 140)]
    std = fitted.predict(times, return_std=True)[1]
    assert std[0] < std[1] < std[2]


def test_unknown_ids_fall_back_to_the_type_and_have_a_wider_std(fitted, sensors):
    X, y = sensors[:2]
    known = fitted.predict(X, return_std=True)[1]
    for name in TYPES:
        own = X[:, 1] == name
        mean, std = fitted.predict([("nowhere", name, 3)], return_std=True)
        assert mean[0] == pytest.approx(y[own].mean(), rel=1e-4)
        assert std[0] == pytest.approx(y[own].std(), rel=1e-4)
        assert std[0] > known[own].mean()
    mean, std = fitted.predict([("p0", "strange", 3), ("nowhere", "strange", 3)], return_std=True)
    np.testing.assert_allclose(mean, y.mean(), rtol=1e-4)
    np.testing.assert_allclose(std, y.std(), rtol=1e-4)


def test_a_series_never_observed_falls_back_to_its_type(kind, sensors):
    X, y = sensors[:2]
    rest = ~((X[:, 0] == "p2") & (X[:, 1] == "wild"))
    model = kind(sensor=1, n_jobs=1).fit(X[rest], y[rest])
    mean = model.predict([("p2", "wild", 7)])
    assert mean[0] == pytest.approx(y[rest & (X[:, 1] == "wild")].mean(), rel=1e-4)


def test_a_time_that_is_none_gets_the_series_mean(fitted, sensors):
    X, y = sensors[:2]
    mean, std = fitted.predict([("p1", "wild", "soon")], return_std=True)
    own = (X[:, 0] == "p1") & (X[:, 1] == "wild")
    assert abs(mean[0] - y[own].mean()) < 0.3 * y[own].std()
    assert std[0] > fitted.predict(X[own], return_std=True)[1].mean()


def test_unknown_ids_can_have_a_constant(kind, sensors):
    model = kind(sensor=1, unknown=3.0, value_range=None, n_jobs=1).fit(*sensors[:2])
    cells = [("nowhere", "wild", 3), ("p1", "strange", 3), ("p1", "wild", "soon")]
    np.testing.assert_array_equal(model.predict(cells), 3.0)
    assert model.predict([("p1", "wild", 3.5)])[0] != 3.0  # a new time is not unknown


def test_the_order_of_rows_does_not_matter(kind, sensors):
    X, y, asked, _ = sensors
    order = np.random.default_rng(5).permutation(len(y))
    predictions = [
        kind(sensor=1, n_jobs=1).fit(*data).predict(asked, return_std=True)
        for data in ((X, y), (X[order], y[order]))
    ]
    np.testing.assert_allclose(*predictions, rtol=1e-5)


def test_time_may_be_any_mode_by_number_or_name(kind, sensors):
    X, y, asked, _ = sensors
    expected = kind(sensor=1, n_jobs=1).fit(X, y).predict(asked)
    frame = pd.DataFrame({"when": X[:, 2].astype(int), "kind": X[:, 1], "place": X[:, 0]})
    for time, sensor in (("when", "kind"), (0, 1), (-3, -2)):
        model = kind(time=time, sensor=sensor, n_jobs=1).fit(frame, y)
        np.testing.assert_allclose(model.predict(asked[:, [2, 1, 0]]), expected, rtol=1e-5)
        named = pd.DataFrame(asked, columns=["place", "kind", "when"])
        np.testing.assert_allclose(model.predict(named), expected, rtol=1e-5)


def test_dates_are_times_with_real_distances(kind):
    day = datetime.date(2004, 2, 1)
    days = [day + datetime.timedelta(k) for k in (0, 1, 30, 31)]
    values = [0.0, 1.0, 30.0, 31.0]
    forms = [
        days,
        [np.datetime64(d) for d in days],
        [d.isoformat() for d in days],
        [pd.Timestamp(d) for d in days],
        [86400 * k for k in (0, 1, 30, 31)],
    ]
    predictions = []
    for form in forms:
        model = kind(n_jobs=1).fit([("a", t, v) for t, v in zip(form, values, strict=True)])
        between = form[1] + datetime.timedelta(10) if not isinstance(form[1], str | int) else None
        between = {str: "2004-02-12", int: 86400 * 11}.get(type(form[1]), between)
        predictions.append(model.predict([("a", between)])[0])
    np.testing.assert_allclose(predictions, predictions[0], rtol=1e-4)
    if kind is LinearInterpolator:
        assert predictions[0] == pytest.approx(11.0, rel=1e-5)


def test_a_number_is_no_time_among_dates(kind):
    model = kind(n_jobs=1).fit([("a", "2004-02-01", 1.0), ("a", "2004-02-03", 3.0)])
    assert model.predict([("a", 1075600000)])[0] == pytest.approx(2.0)


def test_group_is_the_mode_with_fewest_ids_unless_it_is_said(kind, sensors):
    X, y, asked, _ = sensors
    chosen = kind(n_jobs=1).fit(X, y).predict(asked, return_std=True)
    said = kind(sensor=1, n_jobs=1).fit(X, y).predict(asked, return_std=True)
    np.testing.assert_array_equal(chosen, said)
    alike = kind(sensor=None, n_jobs=1).fit(X, y).predict(asked, return_std=True)
    assert not np.array_equal(alike[1], said[1])


def test_two_modes_and_four_modes_work(kind, sensors):
    X, y, asked, _ = sensors
    both = np.array([f"{place} {name}" for place, name in X[:, :2]], dtype=object)
    two = kind(sensor=None, n_jobs=1).fit(np.column_stack([both, X[:, 2]]), y)
    three = kind(sensor=None, n_jobs=1).fit(X, y)
    asked_both = [(f"{place} {name}", t) for place, name, t in asked]
    np.testing.assert_allclose(two.predict(asked_both), three.predict(asked), rtol=1e-4)
    one = np.full((len(X), 1), "the only one", dtype=object)
    four = kind(sensor=2, n_jobs=1).fit(np.hstack([one, X]), y)
    asked_four = np.hstack([one[: len(asked)], asked])
    expected = kind(sensor=1, n_jobs=1).fit(X, y).predict(asked)
    np.testing.assert_allclose(four.predict(asked_four), expected, rtol=1e-5)


def test_constants_are_predicted_with_a_std_above_zero(kind):
    rows = [(place, t, value) for place, value in (("a", 7.0), ("b", 0.0)) for t in range(5)]
    for part in (rows, rows[:5], rows[5:]):
        model = kind(n_jobs=1).fit(part)
        mean, std = model.predict([row[:2] for row in part], return_std=True)
        np.testing.assert_allclose(mean, [row[2] for row in part], atol=1e-3)
        assert (std > 0).all()
        assert np.isfinite(std).all()


def test_one_observation_of_each_series_is_enough(kind):
    model = kind(n_jobs=1).fit([("a", 1, 1.0), ("b", 2, 3.0)])
    mean, std = model.predict([("a", 5), ("b", 2), ("c", 1)], return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_duplicate_stamps_are_refused_unless_it_is_said_what_to_do(kind):
    rows = [("a", 1, 1.0), ("a", 1, 3.0), ("a", 2, 5.0)]
    with pytest.raises(DataError, match="given more than once"):
        kind().fit(rows)
    assert kind(duplicates="mean", n_jobs=1).fit(rows).series_.values.tolist() == [2.0, 5.0]


def test_files_pickles_and_threads_keep_every_bit(kind, fitted, sensors, tmp_path):
    X, y, asked, _ = sensors
    fitted.save(tmp_path / "model")
    expected = fitted.predict(asked, return_std=True)
    others = [
        kind.load(tmp_path / "model"),
        pickle.loads(pickle.dumps(fitted)),
        clone(fitted).set_params(n_jobs=3).fit(X, y),
        clone(fitted).fit(observe(X, y)),
    ]
    for other in others:
        np.testing.assert_array_equal(other.predict(asked, return_std=True), expected)
        np.testing.assert_array_equal(other.leave_one_out(X), fitted.leave_one_out(X))
    assert clone(fitted).get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        clone(fitted).predict(asked)
    with pytest.raises(ModelFileError):
        next(k for k in (LinearInterpolator, OUSmoother) if k is not kind).load(tmp_path / "model")


def test_intervals_cover_what_they_say_and_calibrate_works(fitted, sensors):
    X, y = sensors[2:]
    low, high = fitted.predict_interval(X, coverage=0.9)
    assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.9, abs=0.05)
    model = pickle.loads(pickle.dumps(fitted)).calibrate(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.mean(((y - mean) / std) ** 2) == pytest.approx(1.0, rel=1e-3)


BAD = {
    "a word as time": ({}, [("a", "soon", 1.0), ("a", "late", 2.0)], DataError, "got 'soon'"),
    "dates and numbers": (
        {},
        [("a", 1, 1.0), ("a", "2004-01-01", 2.0)],
        DataError,
        "must not mix numbers and dates",
    ),
    "no such mode": ({"time": "when"}, [("a", 1, 1.0), ("a", 2, 2.0)], SettingError, "'when'"),
    "no such number": ({"time": 2}, [("a", 1, 1.0), ("a", 2, 2.0)], SettingError, "got 2"),
    "time twice": (
        {"sensor": 1},
        [("a", 1, 1.0), ("a", 2, 2.0)],
        SettingError,
        "another mode than time",
    ),
    "no mode": ({"time": 1.5}, [("a", 1, 1.0), ("a", 2, 2.0)], SettingError, "time must be"),
}


@pytest.mark.parametrize(("settings", "rows", "error", "message"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_used_is_refused_with_a_reason(kind, settings, rows, error, message):
    with pytest.raises(error, match=message):
        kind(**settings).fit(rows)


def test_predict_refuses_what_is_no_table_of_ids(fitted):
    with pytest.raises(DataError, match="expecting 3 features"):
        fitted.predict([("p0", "calm")])


def test_fit_walk_finds_both_variances():
    rng = np.random.default_rng(0)
    reach, load = rng.exponential(10.0, 50_000), rng.uniform(1.5, 2.0, 50_000)
    squared = rng.normal(0, np.sqrt(0.3 * reach + 2.0 * load)) ** 2
    walk, noise = fit_walk(reach, load, squared, 100.0)
    assert walk == pytest.approx(0.3, rel=0.1)
    assert noise == pytest.approx(2.0, rel=0.1)
