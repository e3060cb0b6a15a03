"""TableImputer: what scikit-learn fills in, a std from held-out cells, and tables too large."""

import pickle

import numpy as np
import pytest
from noisewise_reproduction.rivals.table_imputers import TableImputer
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.impute import KNNImputer
from test_storage import overflowing

from noisewise import load, storage
from noisewise.data import observe
from noisewise.errors import DataError, ModelFileError, SettingError
from noisewise.models.sensors import Series, series_units

TYPES = ("C", "%")


def make_sensors(n_places=8, n_times=150, seed=0, share=0.7):
    """Cells (place, type, time) of series that move together, in no order."""
    rng = np.random.default_rng(seed)
    weather = rng.normal(size=(n_times, 2))
    cells, values = [], []
    for place in range(n_places):
        for kind, unit in enumerate((1.0, 30.0)):
            y = (1 + 0.1 * place) * weather[:, kind] + rng.normal(0, 0.2 + 0.3 * kind, n_times)
            cells += [(f"p{place}", TYPES[kind], t) for t in range(n_times)]
            values += (unit * (y + 5)).tolist()
    order = rng.permutation(len(cells))
    X, y = np.array(cells, dtype=object)[order], np.array(values)[order]
    cut = int(share * len(y))
    return X[:cut], y[:cut], X[cut:], y[cut:]


@pytest.fixture(scope="module")
def data():
    return make_sensors()


@pytest.fixture(scope="module", params=["knn", "iterative"])
def fitted(request, data):
    return TableImputer(request.param, sensor=1, random_state=0).fit(*data[:2])


def test_cells_are_predicted_better_than_by_the_mean(fitted, data):
    X, y, asked, truth = data
    mean = fitted.predict(asked)
    for kind in TYPES:
        own = asked[:, 1] == kind
        assert np.mean((truth - mean)[own] ** 2) < 0.6 * truth[own].var()
    np.testing.assert_allclose(fitted.predict(X), y, rtol=1e-5)


def test_the_table_is_what_scikit_learn_makes_of_series_of_mean_0_and_std_1(data):
    X, y, asked, _ = data
    model = TableImputer("knn", sensor=1, n_neighbours=3, weights="uniform", random_state=0)
    model.fit(X, y)
    seen = observe(X, y)
    which = seen.codes[0] * 2 + seen.codes[1]
    series = Series.group(which, seen.codes[2].astype(float), seen.values, 16)
    units = series_units(series, np.tile([0, 1], 8), 2)
    table = np.full((150, 16), np.nan)
    table[seen.codes[2], which] = (seen.values - units.mean[which]) / np.sqrt(units.variance[which])
    filled = units.mean + np.sqrt(units.variance) * KNNImputer(n_neighbors=3).fit_transform(table)
    np.testing.assert_allclose(model.table_, filled, rtol=1e-4)
    codes = [one.lookup(asked[:, mode].tolist()) for mode, one in enumerate(seen.ids)]
    expected = filled[codes[2], codes[0] * 2 + codes[1]]
    np.testing.assert_allclose(model.predict(asked), expected, rtol=1e-4)


def test_std_is_right_for_every_type(fitted, data):
    _, _, asked, truth = data
    mean, std = fitted.predict(asked, return_std=True)
    for kind in TYPES:
        own = asked[:, 1] == kind
        assert np.mean(((truth - mean) / std)[own] ** 2) == pytest.approx(1.0, abs=0.3)
    low, high = fitted.predict_interval(asked, coverage=0.9)
    assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(0.9, abs=0.06)


def test_a_noisy_series_has_a_wider_std(data):
    X, y, _, _ = data
    rng = np.random.default_rng(1)
    loud = (X[:, 0] == "p2") & (X[:, 1] == "C")
    y = y + loud * rng.normal(0, 3, len(y))
    model = TableImputer("knn", sensor=1, random_state=0).fit(X, y)
    _, std = model.predict([("p2", "C", 3), ("p3", "C", 3)], return_std=True)
    assert std[0] > 2 * std[1]


def test_unknown_ids_never_fail_and_have_a_wider_std(fitted, data):
    X, y = data[:2]
    known = fitted.predict([("p1", "C", 3)], return_std=True)[1][0]
    cells = [("p1", "C", 9999), ("nowhere", "C", 3), ("p1", "?", 3)]
    mean, std = fitted.predict(cells, return_std=True)
    own = y[(X[:, 1] == "C")]
    assert mean[1] == pytest.approx(own.mean(), rel=1e-4)
    assert abs(mean[0] - own[X[X[:, 1] == "C", 0] == "p1"].mean()) < 0.2
    assert mean[2] == pytest.approx(y.mean(), rel=1e-4)
    assert (std > known).all()


def test_unknown_ids_can_have_a_constant(data):
    model = TableImputer("knn", sensor=1, unknown=3.0, value_range=None).fit(*data[:2])
    np.testing.assert_array_equal(model.predict([("p1", "C", 999), ("nowhere", "C", 3)]), 3.0)


def test_series_and_times_without_a_reading_are_no_trouble():
    rows = [(i, j, t, float(i + j + t % 3)) for i in range(4) for j in range(2) for t in range(20)]
    rows = [row for row in rows if row[:2] != (1, 1) and row[2] != 7]
    seen = observe([*rows, (1, 1, 7, 1.0)])
    seen = seen.take(slice(0, -1))  # ids of a series and of a time that nothing is known of
    for method in ("knn", "iterative"):
        model = TableImputer(method, sensor=1, random_state=0).fit(seen)
        assert model.table_.shape == (20, 7)
        cells = [(0, 0, 7), (1, 1, 3), (1, 1, 7)]
        assert np.isfinite(model.predict(cells, return_std=True)).all()


def test_series_of_one_reading_and_constant_ones_are_no_trouble():
    rows = [("a", t, 7.0) for t in range(12)] + [("b", 3, 2.0)]
    rows += [("c", t, float(t)) for t in range(12)]
    for method in ("knn", "iterative"):
        model = TableImputer(method, random_state=0).fit(rows)
        mean, std = model.predict([("a", 5), ("b", 5), ("c", 5)], return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()


@pytest.mark.parametrize("method", ["knn", "iterative"])
def test_a_handful_of_readings_is_enough(method):
    rows = [("a", 0, 1.0), ("a", 1, 2.0), ("b", 0, 1.5)]
    model = TableImputer(method, random_state=0).fit(rows)
    assert model.calibration_ is None
    assert np.isfinite(model.predict([("b", 1)], return_std=True)).all()


def test_a_table_that_is_too_large_is_refused_before_it_is_made():
    n = 20_000
    rows = np.column_stack([np.arange(n), np.arange(n)])
    with pytest.raises(DataError, match=r"20,000 times and 20,000 series has 400,000,000 cells"):
        TableImputer().fit(rows, np.arange(n))
    small = TableImputer(max_cells=5)
    with pytest.raises(DataError, match="more than max_cells=5"):
        small.fit([("a", 0, 1.0), ("a", 1, 2.0), ("b", 2, 1.5)])


def test_validation_is_in_the_table_in_the_end(data):
    X, y, _, _ = data
    train, validation = observe(X[:1000], y[:1000]), observe(X[1000:], y[1000:])
    model = TableImputer(sensor=1, random_state=0).fit(train, validation=validation)
    assert model.calibration_.n == len(validation)
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-5)


def test_files_and_pickles_keep_every_bit(fitted, data, tmp_path):
    X, y, asked, _ = data
    cells = [*asked.tolist(), ("nowhere", "C", 3), ("p1", "C", 999)]
    fitted.save(tmp_path / "model")
    expected = fitted.predict(cells, return_std=True)
    others = [load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted)), clone(fitted).fit(X, y)]
    for other in others:
        np.testing.assert_array_equal(other.predict(cells, return_std=True), expected)
        assert other.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        clone(fitted).predict(asked)


DAMAGE = {
    "no noise": ("share", lambda t: 0 * t),
    "a series too few": ("table", lambda t: t[:, 1:].copy()),
    "series that cannot be": ("keys", lambda t: t + 10**9),
    "series in no order": ("keys", lambda t: t[::-1].copy()),
    "series whose differences overflow": ("keys", overflowing),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_refused(fitted, tmp_path, name, damage):
    path = tmp_path / "model"
    fitted.save(path)
    header, tensors = storage.read(path, "model")
    del header["kind"], header["version"]
    storage.write(path, "model", header, tensors | {name: damage(tensors[name])})
    with pytest.raises(ModelFileError, match="damaged"):
        TableImputer.load(path)


BAD = {
    "another method": ({"method": "mice"}, "method must be one of 'knn', 'iterative'"),
    "no neighbours": ({"n_neighbours": 0}, "n_neighbours must be a whole number, 1 or more"),
    "no such mode": ({"time": "when"}, "time must be one of"),
}


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD.keys())
def test_a_setting_that_cannot_be_is_refused_with_a_reason(data, settings, message):
    with pytest.raises(SettingError, match=message):
        TableImputer(**settings).fit(*data[:2])
