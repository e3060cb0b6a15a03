"""SpatialNeighbours: neighbours in space at the same time, weighted by distance."""

import pickle

import numpy as np
import pandas as pd
import pytest
from noisewise_reproduction.rivals.engine.neighbours import Snapshots, nearest
from noisewise_reproduction.rivals.spatial import SpatialNeighbours
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from test_storage import overflowing

from noisewise import storage
from noisewise.errors import DataError, ModelFileError, SettingError

PLACES = {f"p{k}": (float(k % 4), float(k // 4)) for k in range(16)}


def make_fields(n_times=60, seed=0, noise=0.2):
    """Cells (place, type, time) of fields that are smooth in space; half of them, in no order."""
    rng = np.random.default_rng(seed)
    cells, values = [], []
    for kind, scale in (("calm", 1.0), ("wild", 30.0)):
        for t in range(n_times):
            slope, level = rng.normal(size=2), rng.normal()
            for place, xy in PLACES.items():
                cells.append((place, kind, t))
                values.append(scale * (slope @ xy / 2 + level + 5 + rng.normal(0, noise)))
    order = rng.permutation(len(cells))
    X, y = np.array(cells, dtype=object)[order], np.array(values)[order]
    half = len(y) // 2
    return X[:half], y[:half], X[half:], y[half:]


@pytest.fixture(scope="module")
def fields():
    return make_fields()


@pytest.fixture(scope="module")
def fitted(fields):
    model = SpatialNeighbours(PLACES, n_neighbours="auto", power="auto", n_jobs=1)
    return model.fit(*fields[:2])


def by_hand(X, y, cell, n, power):
    """Average the n nearest in plain Python."""
    place, kind, t = cell
    near = []
    for (other, other_kind, other_t), value in zip(X.tolist(), y, strict=True):
        if other != place and (other_kind, other_t) == (kind, t):
            near.append((np.hypot(*np.subtract(PLACES[place], PLACES[other])), other, value))
    near = sorted(near, key=lambda entry: (entry[0], list(PLACES).index(entry[1])))[:n]
    if not near:
        return np.mean([v for c, v in zip(X.tolist(), y, strict=True) if c[1] == kind])
    weights = [distance**-power for distance, _, _ in near]
    return np.average([value for _, _, value in near], weights=weights)


@pytest.mark.parametrize(("n", "power"), [(1, 0), (3, 0), (4, 1), (100, 2), (2, 0.5)])
def test_predictions_are_those_made_by_hand(fields, n, power):
    X, y, asked, _ = fields
    model = SpatialNeighbours(PLACES, n_neighbours=n, power=power, n_jobs=1).fit(X, y)
    expected = [by_hand(X, y, cell, n, power) for cell in asked[:40].tolist()]
    np.testing.assert_allclose(model.predict(asked[:40]), expected, rtol=1e-5)


def test_a_training_cell_is_not_its_own_neighbour(fields):
    X, y = fields[:2]
    model = SpatialNeighbours(PLACES, n_neighbours=2, n_jobs=1).fit(X, y)
    expected = [by_hand(X, y, cell, 2, 0) for cell in X[:20].tolist()]
    np.testing.assert_allclose(model.predict(X[:20]), expected, rtol=1e-5)


def test_number_and_power_are_chosen_well(fitted, fields):
    X, y, asked, truth = fields
    z = np.where(asked[:, 1] == "wild", 30.0, 1.0)
    best = np.mean(((truth - fitted.predict(asked)) / z) ** 2)
    for n, power in ((1, 0), (10, 0), (5, 1), (10, 2)):
        other = SpatialNeighbours(PLACES, n_neighbours=n, power=power, n_jobs=1).fit(X, y)
        assert best < 1.1 * np.mean(((truth - other.predict(asked)) / z) ** 2)
    assert 1 < fitted.n_neighbours_ <= 10


def test_std_is_right_on_average_for_every_type(fitted, fields):
    _, _, asked, truth = fields
    mean, std = fitted.predict(asked, return_std=True)
    for kind in ("calm", "wild"):
        own = asked[:, 1] == kind
        assert np.mean(((truth - mean) / std)[own] ** 2) == pytest.approx(1.0, abs=0.2)
    low, high = fitted.predict_interval(asked)
    assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(0.9, abs=0.05)


def test_without_neighbours_the_type_is_all_that_is_known(fitted, fields):
    X, y = fields[:2]
    own = X[:, 1] == "wild"
    cells = [("p3", "wild", 10**6), ("nowhere", "wild", 3), ("nowhere", "wild", 10**6)]
    mean, std = fitted.predict(cells, return_std=True)
    np.testing.assert_allclose(mean, y[own].mean(), rtol=1e-4)
    np.testing.assert_allclose(std, y[own].std(), rtol=1e-4)
    assert std[0] > fitted.predict(X[own], return_std=True)[1].mean()
    mean, std = fitted.predict([("p3", "strange", 3)], return_std=True)
    assert mean[0] == pytest.approx(y.mean(), rel=1e-4)
    assert std[0] == pytest.approx(y.std(), rel=1e-4)


def test_a_location_never_trained_on_is_predicted_by_its_coordinates(fields):
    X, y = fields[:2]
    rest = X[:, 0] != "p5"
    model = SpatialNeighbours(PLACES, n_neighbours=3, unknown=-1.0, value_range=None, n_jobs=1)
    model.fit(X[rest], y[rest])
    cell = ("p5", "wild", 7)
    expected = by_hand(X[rest], y[rest], cell, 3, 0)
    assert model.predict([cell])[0] == pytest.approx(expected, rel=1e-5)
    cells = [("nowhere", "wild", 7), ("p5", "strange", 7), ("p5", "wild", 10**6)]
    np.testing.assert_array_equal(model.predict(cells), -1.0)


def test_a_location_without_coordinates_is_nobodys_neighbour(fields):
    X, y = fields[:2]
    known = {place: xy for place, xy in PLACES.items() if place != "p5"}
    model = SpatialNeighbours(known, n_neighbours=3, n_jobs=1).fit(X, y)
    rest = X[:, 0] != "p5"
    cells = X[rest][:30]
    expected = SpatialNeighbours(known, n_neighbours=3, n_jobs=1).fit(X[rest], y[rest])
    np.testing.assert_allclose(model.predict(cells), expected.predict(cells), rtol=1e-5)
    mean = model.predict([("p5", "calm", 7)])
    assert mean[0] == pytest.approx(y[X[:, 1] == "calm"].mean(), rel=1e-4)


def test_one_location_alone_has_no_neighbours():
    rows = [("p0", t, float(t)) for t in range(5)]
    model = SpatialNeighbours({"p0": (0, 0)}, power="auto", n_jobs=1).fit(rows)
    mean, std = model.predict([("p0", 3)], return_std=True)
    assert mean[0] == pytest.approx(2.0)
    assert std[0] == pytest.approx(np.std(range(5)))


def test_constants_are_predicted_with_a_std_above_zero():
    rows = [(place, t, 7.0) for place in PLACES for t in range(3)]
    mean, std = (
        SpatialNeighbours(PLACES, power="auto", n_jobs=1)
        .fit(rows)
        .predict([row[:2] for row in rows], return_std=True)
    )
    np.testing.assert_allclose(mean, 7.0)
    assert (std > 0).all()


def test_two_locations_at_one_place_are_no_trouble():
    rows = [("a", 1, 1.0), ("b", 1, 2.0), ("c", 1, 9.0)]
    places = {"a": (0, 0), "b": (0, 0), "c": (5, 5)}
    model = SpatialNeighbours(places, n_neighbours=2, power=2, n_jobs=1).fit(rows)
    assert model.predict([("a", 1)])[0] == pytest.approx(2.0, rel=1e-5)


def test_coordinates_may_be_a_table_and_modes_in_any_order(fitted, fields):
    X, y, asked, _ = fields
    frame = pd.DataFrame([(place, *xy) for place, xy in PLACES.items()], columns=["id", "x", "y"])
    settings = {"n_neighbours": "auto", "power": "auto", "n_jobs": 1}
    expected = fitted.predict(asked)
    for table in (frame, [(place, *xy) for place, xy in PLACES.items()]):
        model = SpatialNeighbours(table, **settings).fit(X, y)
        np.testing.assert_array_equal(model.predict(asked), expected)
    turned = SpatialNeighbours(PLACES, time=0, **settings).fit(X[:, [2, 1, 0]], y)
    assert turned.location_ == 2
    np.testing.assert_allclose(turned.predict(asked[:, [2, 1, 0]]), expected, rtol=1e-6)


def test_files_pickles_and_threads_keep_every_bit(fitted, fields, tmp_path):
    X, y, asked, _ = fields
    fitted.save(tmp_path / "model")
    expected = fitted.predict(asked, return_std=True)
    loaded = SpatialNeighbours.load(tmp_path / "model")
    assert loaded.coordinates == PLACES
    others = [
        loaded,
        pickle.loads(pickle.dumps(fitted)),
        clone(fitted).set_params(n_jobs=3).fit(X, y),
        clone(loaded).fit(X, y),
    ]
    for other in others:
        np.testing.assert_array_equal(other.predict(asked, return_std=True), expected)
    assert clone(fitted).get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        clone(fitted).predict(asked)


def test_duplicate_cells_are_refused():
    with pytest.raises(DataError, match="given more than once"):
        SpatialNeighbours(PLACES).fit([("p0", 1, 1.0), ("p0", 1, 2.0)])


BAD = {
    "no coordinates": ({"nowhere": (0, 0)}, {}, DataError, "None of the ids of"),
    "an infinite one": ({"p0": (0, np.inf)}, {}, DataError, "must be finite; got .* for 'p0'"),
    "one too few": ({"p0": (0, 1), "p1": (0,)}, {}, DataError, "same number of numbers"),
    "words": ({"p0": ("here", "there")}, {}, DataError, "same number of numbers"),
    "none": ({}, {}, DataError, "one or more numbers"),
    "an id twice": ([("p0", 0, 1), ("p0", 1, 1)], {}, DataError, "each id once"),
    "no neighbours": (PLACES, {"n_neighbours": 0}, SettingError, "n_neighbours must be"),
    "a power below 0": (PLACES, {"power": -1}, SettingError, "power must be"),
    "no such time": (PLACES, {"time": 5}, SettingError, "time must be one of"),
}


@pytest.mark.parametrize(
    ("coordinates", "settings", "error", "message"), BAD.values(), ids=BAD.keys()
)
def test_what_cannot_be_used_is_refused_with_a_reason(coordinates, settings, error, message):
    with pytest.raises(error, match=message):
        SpatialNeighbours(coordinates, **settings).fit([("p0", 1, 1.0), ("p1", 1, 2.0)])


DAMAGE = {
    "a place that is not there": ("seen", lambda t: t + 100),
    "keys in no order": ("keys", lambda t: t[::-1].copy()),
    "keys whose differences overflow": ("keys", overflowing),
    "starts whose differences overflow": ("starts", overflowing),
    "no variance": ("variance", lambda t: 0 * t),
    "too few values": ("values", lambda t: t[1:]),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_refused(fitted, tmp_path, name, damage):
    path = tmp_path / "model"
    fitted.save(path)
    header, tensors = storage.read(path, "model")
    del header["kind"], header["version"]
    storage.write(path, "model", header, tensors | {name: damage(tensors[name])})
    with pytest.raises(ModelFileError, match="damaged"):
        SpatialNeighbours.load(path)


def test_of_neighbours_at_the_same_distance_the_first_comes_first():
    position = np.array([[0.0], [1.0], [-1.0], [1.0]])
    seen = Snapshots.group(np.zeros(3, int), np.array([3, 2, 1]), [3.0, 2.0, 1.0], 1, position)
    near = nearest(seen, np.zeros(1, int), np.zeros(1, int), 2)
    assert near.values.tolist() == [[1.0, 2.0]]
    assert near.found.tolist() == [2]
