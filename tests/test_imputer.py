"""DeviationImputer on arrays: what it fills, with which std; odd data, new data, files."""

import json
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from noisewise import DataError, DeviationImputer, ModelFileError, OUSmoother, SettingError, storage
from noisewise.imputer import methods

QUICK = {"random_state": 0, "n_jobs": 1}


def wanderers(n_rows=300, seed=0):
    """Three series of different units that forget slowly, with noise."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n_rows, 3))
    for row in range(1, n_rows):
        x[row] = 0.9 * x[row - 1] + np.sqrt(1 - 0.81) * rng.normal(size=3)
    x += 0.2 * rng.normal(size=x.shape)
    return np.array([20.0, 1e5, 50.0]) + np.array([2.0, 300.0, 8.0]) * x


def with_holes(X, share=0.2, seed=1):
    holed = X.copy()
    holed[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return holed


@pytest.fixture(scope="module")
def whole():
    return wanderers()


@pytest.fixture(scope="module")
def holed(whole):
    return with_holes(whole)


@pytest.fixture(scope="module")
def fitted(holed):
    return DeviationImputer("ou", **QUICK).fit(holed)


def test_readings_stay_bit_for_bit_and_holes_are_filled(whole, holed, fitted):
    before = holed.copy()
    filled, std = fitted.transform(holed, return_std=True)
    holes = np.isnan(holed)
    np.testing.assert_array_equal(holed, before)
    np.testing.assert_array_equal(filled[~holes], holed[~holes])
    np.testing.assert_array_equal(std[~holes], 0.0)
    assert np.isfinite(filled).all()
    assert (std[holes] > 0).all()
    assert filled.dtype == std.dtype == np.float64


def test_the_std_is_right_in_the_units_of_every_series():
    whole = wanderers(1500)
    holed = with_holes(whole)
    filled, std = DeviationImputer("ou", **QUICK).fit_transform(holed, return_std=True)
    holes = np.isnan(holed)
    for series in range(3):
        own = holes[:, series]
        z = (whole[own, series] - filled[own, series]) / std[own, series]
        assert 0.85 < np.sqrt(np.mean(z**2)) < 1.15
        error = np.sqrt(np.mean((whole - filled)[own, series] ** 2))
        assert error < 0.7 * whole[:, series].std()  # far better than the mean of the series


def test_units_do_not_matter(holed, fitted):
    scaled = DeviationImputer("ou", **QUICK).fit_transform(holed * 1e6 + 1e9)
    np.testing.assert_allclose((scaled - 1e9) / 1e6, fitted.transform(holed), rtol=1e-5)


@pytest.mark.parametrize("method", [name for name in methods() if name not in ("auto", "bayes")])
def test_every_method_fills_two_modes_and_three(method):
    settings = {"epochs": 5} if method in ("dtf", "ptf") else None
    rng = np.random.default_rng(0)
    wave = np.sin(np.arange(60) / 5)
    for scale in (rng.uniform(1, 2, (6, 1)), rng.uniform(1, 2, (5, 3, 1))):
        X = np.moveaxis(with_holes(scale * wave), -1, 0)
        imputer = DeviationImputer(method, time=0, settings=settings, **QUICK)
        filled, std = imputer.fit_transform(X, return_std=True)
        assert np.isfinite(filled).all()
        assert ((std > 0) == np.isnan(X)).all()
        assert imputer.chosen_ == method


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
def test_bayes_fills_two_modes_and_three():
    wave = np.sin(np.arange(40) / 5)
    settings = {"rank": 2, "sweeps": 20, "burn_in": 10}
    for scale in (np.ones((4, 1)), np.ones((3, 2, 1))):
        X = np.moveaxis(with_holes(scale * wave), -1, 0)
        filled = DeviationImputer("bayes", time=0, settings=settings, **QUICK).fit_transform(X)
        assert np.isfinite(filled).all()


def test_auto_says_what_it_chose(holed):
    imputer = DeviationImputer(settings={"candidates": ("linear", "ou")}, **QUICK).fit(holed)
    assert imputer.chosen_ == imputer.model_.choice_
    assert set(imputer.model_.scores_) == {"linear", "ou"}


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_any_axis_of_a_tensor_may_be_time(axis):
    rng = np.random.default_rng(0)
    tensor = rng.uniform(1, 2, (4, 3, 1)) * np.sin(np.arange(50) / 4)
    holed = with_holes(tensor)
    last = DeviationImputer("ou", sensor=1, **QUICK).fit_transform(holed)
    moved = np.moveaxis(holed, -1, axis)
    sensor = [k for k in range(3) if k != axis % 3][1]
    filled = DeviationImputer("ou", time=axis, sensor=sensor, **QUICK).fit_transform(moved)
    np.testing.assert_allclose(np.moveaxis(filled, axis, -1), last, rtol=1e-9)


def test_the_shortest_axis_is_the_type_unless_it_is_named():
    rng = np.random.default_rng(0)
    units = np.array([1.0, 1000.0])[:, None]
    holed = with_holes(units * (rng.uniform(1, 2, (5, 2, 1)) * np.sin(np.arange(60) / 4)))
    auto, named, wrong = (
        DeviationImputer("ou", sensor=sensor, **QUICK).fit(holed) for sensor in ("auto", 1, None)
    )
    np.testing.assert_array_equal(auto.transform(holed), named.transform(holed))
    assert not np.array_equal(auto.transform(holed), wrong.transform(holed))
    assert auto.model_.sensor == 1
    assert wrong.model_.sensor is None


def test_types_of_plain_columns_can_be_told(holed):
    by_dict = DeviationImputer(
        "ou", location={0: "a", 1: "a", 2: "b"}, sensor={0: "t", 1: "p", 2: "t"}, **QUICK
    ).fit(holed)
    assert by_dict.model_.ids_[0].labels.tolist() == ["a", "b"]
    assert by_dict.model_.ids_[1].labels.tolist() == ["t", "p"]
    by_function = DeviationImputer("ou", sensor=lambda column: "tpt"[column], **QUICK).fit(holed)
    assert by_function.model_.ids_[0].labels.tolist() == [0, 1, 2]
    one_unit = DeviationImputer("ou", sensor=None, **QUICK).fit(holed)
    assert one_unit.model_.sensor is None


def test_float32_stays_and_integers_without_holes_stay(holed, fitted):
    small = holed.astype(np.float32)
    filled, std = DeviationImputer("ou", **QUICK).fit_transform(small, return_std=True)
    assert filled.dtype == std.dtype == np.float32
    np.testing.assert_array_equal(filled[~np.isnan(small)], small[~np.isnan(small)])
    counts = np.arange(12).reshape(6, 2)
    filled, std = DeviationImputer("ou", **QUICK).fit_transform(counts, return_std=True)
    assert filled.dtype == counts.dtype
    assert std.dtype == np.float64
    np.testing.assert_array_equal(filled, counts)


def test_a_table_without_holes_comes_back_as_a_copy(whole):
    filled, std = DeviationImputer("ou", **QUICK).fit_transform(whole, return_std=True)
    np.testing.assert_array_equal(filled, whole)
    np.testing.assert_array_equal(std, 0.0)
    assert not np.shares_memory(filled, whole)


def test_a_constant_series_is_filled_with_its_constant(whole):
    X = np.column_stack([whole, np.full(len(whole), 0.1), np.zeros(len(whole))])
    X[5:20, 3:] = np.nan
    filled, std = DeviationImputer("ou", **QUICK).fit_transform(X, return_std=True)
    np.testing.assert_allclose(filled[:, 3], 0.1, rtol=1e-9)
    np.testing.assert_allclose(filled[:, 4], 0.0, atol=1e-9)
    assert std[:, 3:].max() < 1e-5


def test_only_constants_are_filled_with_themselves():
    X = np.full((20, 2), 7.0)
    X[3, 0] = np.nan
    filled, std = DeviationImputer("ou", **QUICK).fit_transform(X, return_std=True)
    assert filled[3, 0] == pytest.approx(7.0)
    assert std[3, 0] < 1e-4


def test_a_series_never_read_stays_empty_and_is_named(holed):
    X = holed.copy()
    X[:, 1] = np.nan
    imputer = DeviationImputer("ou", **QUICK).fit(X)
    with pytest.warns(UserWarning, match=r"Nothing was ever read of 1, nor"):
        filled, std = imputer.transform(X, return_std=True)
    assert np.isnan(filled[:, 1]).all()
    assert np.isnan(std[:, 1]).all()
    assert np.isfinite(np.delete(filled, 1, axis=1)).all()


def test_a_series_never_read_is_filled_from_its_type_with_a_wide_std():
    rng = np.random.default_rng(0)
    heat = 20 + rng.normal(0, 2, (1, 4)) + np.sin(np.arange(80) / 6)[:, None]
    heat[:, 2] = np.nan
    heat[10:12, 0] = np.nan
    imputer = DeviationImputer("ou", sensor=lambda column: "heat", **QUICK)
    filled, std = imputer.fit_transform(heat, return_std=True)
    assert np.isfinite(filled).all()
    assert filled[:, 2].mean() == pytest.approx(np.nanmean(heat), abs=0.1)
    assert std[:, 2].min() > 3 * std[10:12, 0].max()


def test_a_single_reading_fills_its_series(holed):
    X = holed.copy()
    X[:, 2] = np.nan
    X[40, 2] = 5.0
    filled, std = DeviationImputer("ou", **QUICK).fit_transform(X, return_std=True)
    np.testing.assert_allclose(filled[:, 2], 5.0, rtol=0.2)
    assert 0.5 < std[100, 2] < 50  # nothing of the 1e5 of another unit


@pytest.mark.parametrize("shape", [(1, 4), (30, 1), (1, 3, 40), (5, 1, 40)])
def test_single_rows_series_and_locations_work(shape):
    X = np.random.default_rng(0).normal(10.0, 1.0, shape)
    X.flat[0] = np.nan
    imputer = DeviationImputer("ou", sensor=None, **QUICK)
    filled, std = imputer.fit_transform(X, return_std=True)
    assert np.isfinite(filled).all()
    assert std.flat[0] > 0


REFUSED = {
    "infinite": ([[1.0, np.inf], [2.0, 3.0]], "got inf for 1 in row 0: put NaN there"),
    "nothing read": ([[np.nan, np.nan], [np.nan, np.nan]], "2 readings to learn from; got 0 in 4"),
    "one reading": ([[1.0, np.nan], [np.nan, np.nan]], "2 readings to learn from; got 1 in 4"),
    "no rows": (np.empty((0, 3)), "0 sample"),
    "no columns": (np.empty((3, 0)), "0 feature"),
    "one dimension": ([1.0, np.nan], "Expected 2D array"),
    "text": ([["a", "b"], ["c", "d"]], "numeric"),
    "complex": (np.ones((3, 2)) * 1j, "Complex data not supported"),
    "dates": (np.array([["2024-01-01"], ["NaT"], ["2024-01-02"]], "M8[D]"), "must hold numbers"),
    "a masked array": (np.ma.masked_less([[1.0, 2.0], [3.0, 4.0]], 2.0), r"X.filled\(np.nan\)"),
}


@pytest.mark.parametrize(("X", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_fit_refuses_what_it_cannot_learn_from(X, message):
    imputer = DeviationImputer("ou")
    with pytest.raises(ValueError, match=message):
        imputer.fit(X)
    with pytest.raises(NotFittedError):
        imputer.transform([[1.0]])


SETTINGS = {
    "an unknown method": ({"method": "magic"}, "method must be one of"),
    "a method that needs coordinates": ({"method": "knn"}, "method must be one of"),
    "an unknown setting": ({"settings": {"magic": 1}}, "magic"),
    "a setting that is no dict": ({"settings": 3}, "settings must be a dict"),
    "duplicates": ({"duplicates": "first"}, "duplicates must be one of"),
    "refit": ({"refit": "no"}, "refit must be one of"),
    "an axis that is not there": ({"time": 2}, "time must be the number of one of 2 axes"),
    "a name for an axis": ({"time": "when"}, "time must be the number"),
    "values of a long frame": ({"value": "v"}, "value must be None"),
    "locations alone": ({"location": {0: "a"}}, "location must be a dict or a function, beside"),
    "a column that a dict lacks": ({"sensor": {0: "a", 1: "b"}}, "every column; 2 has none"),
    "locations that are no dict": ({"sensor": str, "location": 3}, "location must be a dict"),
    "a type that is no dict": ({"sensor": "kind"}, "sensor must be a dict or a function"),
    "columns alike": ({"sensor": lambda c: "t", "location": lambda c: c // 2}, r"\[0, 1\]"),
}


@pytest.mark.parametrize(("settings", "message"), SETTINGS.values(), ids=SETTINGS.keys())
def test_a_setting_that_makes_no_sense_is_refused(holed, settings, message):
    with pytest.raises((SettingError, DataError), match=message):
        DeviationImputer(**{"method": "ou"} | settings).fit(holed)


def test_axes_that_make_no_sense_are_refused():
    tensor = np.random.default_rng(0).normal(size=(3, 4, 5))
    for settings in ({"sensor": 2}, {"sensor": "kind"}, {"location": {0: 1}}, {"time": 3}):
        with pytest.raises(SettingError):
            DeviationImputer("ou", **settings).fit(tensor)
    imputer = DeviationImputer("ou", n_jobs=1).fit(tensor)
    with pytest.raises(DataError, match=r"\(3, 4\) places along the axes"):
        imputer.transform(tensor[:2])


def test_fit_and_transform_is_fit_transform(holed, fitted):
    once = DeviationImputer("ou", **QUICK).fit_transform(holed)
    np.testing.assert_array_equal(fitted.transform(holed), once)


def test_rows_that_begin_alike_are_those_of_fit(holed, fitted):
    np.testing.assert_array_equal(fitted.transform(holed[:50]), fitted.transform(holed)[:50])
    first = DeviationImputer("ou", refit=True, **QUICK).fit(holed[:150])
    longer = first.transform(holed)  # fitted again, to all
    np.testing.assert_allclose(longer, fitted.transform(holed), rtol=1e-6)


@pytest.mark.parametrize("refit", [True, False])
def test_other_rows_are_what_came_next_and_their_readings_count(whole, holed, refit):
    imputer = DeviationImputer("ou", refit=refit, **QUICK).fit(holed[:150])
    before = imputer.transform(holed[:150])
    filled, std = imputer.transform(holed[150:], return_std=True)
    holes = np.isnan(holed[150:])
    together, their_std = DeviationImputer("ou", **QUICK).fit(holed).transform(holed, True)
    scale = np.nanstd(holed, axis=0) * (1e-6 if refit else 0.2)
    assert (np.abs(filled - together[150:]) <= scale).all()
    np.testing.assert_allclose(std, their_std[150:], rtol=1e-4 if refit else 0.3)
    np.testing.assert_array_equal(imputer.transform(holed[:150]), before)
    alone = imputer.transform(np.full_like(holed[150:], np.nan))
    off = [np.abs(got - whole[150:])[holes[:, 0], 0].mean() for got in (filled, alone)]
    assert off[0] < off[1]


def test_rows_with_the_same_holes_and_other_readings_are_others(holed, fitted):
    other = holed[:40] + np.array([1.0, 100.0, 1.0])
    both = np.concatenate([holed, other])
    expected = DeviationImputer("ou", **QUICK).fit_transform(both)[len(holed) :]
    again = clone(fitted).set_params(refit=True).fit(holed)
    np.testing.assert_allclose(again.transform(other), expected, rtol=1e-6)


def test_transform_changes_nothing_in_the_imputer(holed, fitted):
    before = {name: id(value) for name, value in vars(fitted).items()}
    fitted.transform(holed[20:40])
    assert {name: id(value) for name, value in vars(fitted).items()} == before


def test_auto_keeps_its_choice_and_its_calibration_for_new_rows(holed, monkeypatch):
    candidates = (("one", OUSmoother()),)
    imputer = DeviationImputer(settings={"candidates": candidates}, **QUICK).fit(holed[:150])
    seen = []
    fit = OUSmoother.fit
    monkeypatch.setattr(OUSmoother, "fit", lambda self, X: seen.append(len(X)) or fit(self, X))
    updated = imputer._standardised.updated(
        imputer._read(holed, reset=False).observed("error"), "auto"
    )
    assert seen == [(~np.isnan(holed)).sum()]  # once, and to everything
    assert updated.model.calibration_ is imputer.model_.calibration_


def test_a_second_fit_forgets_the_first(holed):
    imputer = DeviationImputer("ou", **QUICK).fit(np.random.default_rng(0).normal(size=(9, 4, 5)))
    assert not hasattr(imputer, "n_features_in_")
    imputer.fit(holed)
    assert imputer.n_features_in_ == 3
    once = DeviationImputer("ou", **QUICK).fit(holed)
    np.testing.assert_array_equal(imputer.transform(holed), once.transform(holed))


def test_threads_change_no_bit(holed):
    one, two = (
        DeviationImputer("fast", random_state=0, n_jobs=n).fit_transform(holed, return_std=True)
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_many_holes_are_filled_in_parts(holed, fitted, monkeypatch):
    expected = fitted.transform(holed, return_std=True)
    monkeypatch.setattr("noisewise.imputer.CHUNK", 7)
    np.testing.assert_array_equal(fitted.transform(holed, return_std=True), expected)


@pytest.mark.parametrize(
    "imputer",
    [
        DeviationImputer("ou", **QUICK),
        DeviationImputer(settings={"candidates": ("linear", "ou")}, **QUICK),
        DeviationImputer("linear", sensor={0: "t", 1: "p", 2: "t"}, **QUICK),
    ],
    ids=["ou", "auto", "types"],
)
def test_files_and_pickles_keep_every_bit(imputer, holed, tmp_path):
    imputer = clone(imputer).fit(holed[:150])
    imputer.save(tmp_path / "imputer")
    for other in (
        DeviationImputer.load(tmp_path / "imputer"),
        pickle.loads(pickle.dumps(imputer)),  # as joblib does
    ):
        for X in (holed[:150], holed[150:]):
            expected = imputer.transform(X, return_std=True)
            np.testing.assert_array_equal(other.transform(X, return_std=True), expected)
        assert other.chosen_ == imputer.chosen_
        assert other.n_features_in_ == 3
        assert other.get_params() == imputer.get_params()


def test_a_function_of_columns_cannot_be_saved(holed, tmp_path):
    imputer = DeviationImputer("ou", sensor=lambda column: "one", **QUICK).fit(holed)
    with pytest.raises(SettingError, match=r"sensor must be plain.*give a dict"):
        imputer.save(tmp_path / "imputer")
    with pytest.raises(NotFittedError):
        DeviationImputer().save(tmp_path / "imputer")


def test_a_damaged_file_is_refused(holed, fitted, tmp_path):
    path = tmp_path / "imputer"
    fitted.save(path)
    header, tensors = storage.read(path, "imputer")
    changes = {
        "another method": ({"settings": header["settings"] | {"method": "magic"}}, {}),
        "no settings": ({"settings": {}}, {}),
        "a setting that is not there": ({"settings": header["settings"] | {"magic": 1}}, {}),
        "another sensor": ({"sensor": 1}, {}),
        "a sensor that is no number": ({"sensor": [1]}, {}),
        "other modes": ({"fitted": [["a", "b"], [3], "rows", 200]}, {}),
        "another clock": ({"fitted": [["series", "time"], [3], "sun", 200]}, {}),
        "one mode": ({"ids": header["ids"][:1]}, {}),
        "features that are no number": ({"n_features": "x"}, {}),
        "codes out of range": ({}, {"mode0.codes": tensors["mode0.codes"] + 1}),
        "fewer readings": ({}, {"values": tensors["values"][:-1]}),
        "other ids": ({}, {"mode0.ids": tensors["mode0.ids"] + 7}),
        "no model": ({"model": {}}, {}),
    }
    for words, (other_header, other_tensors) in changes.items():
        kept = {k: v for k, v in header.items() if k not in ("version", "kind")}
        storage.write(path, "imputer", kept | other_header, tensors | other_tensors)
        with pytest.raises(ModelFileError):
            pytest.fail(f"{words}: {DeviationImputer.load(path)}")
    storage.write(path, "model", {}, {})
    with pytest.raises(ModelFileError, match="not a 'imputer'"):
        DeviationImputer.load(path)


def test_a_file_holds_plain_json_and_numbers(fitted, tmp_path):
    fitted.save(tmp_path / "imputer")
    header = storage.read_header(tmp_path / "imputer", "imputer")
    assert json.loads(json.dumps(header)) == header
