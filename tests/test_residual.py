"""ResidualFactorizer: what series leave is factorized, std is honest, files hold both parts."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from noisewise import load, storage
from noisewise.data import observe
from noisewise.errors import DataError, ModelFileError, SettingError
from noisewise.models.bayesian import BayesianFactorizer
from noisewise.models.deviation import PTF, DeviationFactorizer
from noisewise.models.residual import POWERS, Layer, ResidualFactorizer, TypeMean, _best_power
from noisewise.models.series import OUSmoother

TYPES = ("C", "%")
FEW = BayesianFactorizer(rank=2, deviation="constant", implicit=False, sweeps=40, burn_in=20)
EPOCHS = DeviationFactorizer(**(PTF | {"rank": 2, "epochs": 30, "learning_rate": 0.1, "l2": 0.01}))


def make_sensors(n_places=12, n_times=150, seed=0, share=0.4):
    """Cells (place, type, time): a walk of each series, shocks that all places share, noise."""
    rng = np.random.default_rng(seed)
    loads = rng.normal(1, 0.5, (n_places, 2))
    shocks = rng.normal(size=(n_times, 2))
    cells, values = [], []
    for place in range(n_places):
        for kind, unit in enumerate((1.0, 30.0)):
            walk = np.cumsum(rng.normal(0, 0.15, n_times))
            y = walk + loads[place, kind] * shocks[:, kind] + rng.normal(0, 0.2, n_times)
            cells += [(f"p{place}", TYPES[kind], t) for t in range(n_times)]
            values += (unit * (y + 5)).tolist()
    order = rng.permutation(len(cells))
    X, y = np.array(cells, dtype=object)[order], np.array(values)[order]
    cut = int(share * len(y))
    return X[:cut], y[:cut], X[cut:], y[cut:]


def errors_over(truth, mean, X, y):
    """Mean squared error in units of each type's variance."""
    scale = np.array([y[X[:, 1] == kind].std() for kind in TYPES])
    kinds = np.array([TYPES.index(kind) for kind in X[:, 1]])
    return np.mean(((truth - mean) / scale[kinds]) ** 2)


@pytest.fixture(scope="module")
def data():
    return make_sensors()


@pytest.fixture(scope="module", params=[FEW, EPOCHS], ids=["drawn", "in epochs"])
def fitted(request, data):
    return ResidualFactorizer(request.param, sensor=1, random_state=0, n_jobs=1).fit(*data[:2])


def test_two_parts_together_beat_each_alone(fitted, data):
    X, y, asked, truth = data
    alone = OUSmoother(sensor=1, n_jobs=1).fit(X, y)
    flat = ResidualFactorizer(fitted.factorizer, base="type", sensor=1, random_state=0, n_jobs=1)
    flat.fit(X, y)
    both = errors_over(truth, fitted.predict(asked), asked, truth)
    assert both < 0.8 * errors_over(truth, alone.predict(asked), asked, truth)
    assert both < 0.9 * errors_over(truth, flat.predict(asked), asked, truth)


def test_what_it_learns_from_are_errors_of_cells_left_out_over_their_std(data):
    X, y, _, _ = data
    seen = observe(X, y)
    given = {}

    class Spy(DeviationFactorizer):
        def fit(self, X, y=None, **more):
            given["left"] = X
            return super().fit(X, y, **more)

    spied = Spy(rank=1, patience=None, epochs=1)
    model = ResidualFactorizer(spied, sensor=1, random_state=0, n_jobs=1).fit(seen)
    smoother, left = model.near_.base, given["left"]
    assert len(smoother.series_.values) == len(y) == len(left)
    mean, std = smoother.leave_one_out(left, return_std=True)
    np.testing.assert_allclose(left.values * std + mean, _in_order(left, seen), rtol=1e-4)
    assert left.values.std() == pytest.approx(1.0, abs=0.1)


def _in_order(of, seen):
    """Values of ``seen`` in the order of other observations of the same cells."""
    cells = dict(zip(seen.decode(), seen.values.tolist(), strict=True))
    return np.array([cells[cell] for cell in of.decode()])


def test_ninety_percent_intervals_cover_ninety_percent(fitted, data):
    _, _, asked, truth = data
    low, high = fitted.predict_interval(asked, coverage=0.9)
    assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(0.9, abs=0.03)


def test_std_is_right_on_average_and_its_parts_add_up(fitted, data):
    _, _, asked, truth = data
    mean, std = fitted.predict(asked, return_std=True)
    assert np.mean(((truth - mean) / std) ** 2) == pytest.approx(1.0, abs=0.25)
    parts = fitted.predict_parts(asked)
    np.testing.assert_array_equal(parts[0], mean)
    np.testing.assert_allclose(np.hypot(*parts[1:]), std, rtol=1e-5)


def test_far_from_all_readings_the_epistemic_part_is_larger(fitted):
    near, far = ("p0", "C", 75), ("p0", "C", 400)
    (_, _), (noise, more), (epistemic, wider) = fitted.predict_parts([near, far])
    assert wider > epistemic
    assert min(noise, more) > 0
    share = fitted.near_.base.epistemic_share([near, far, ("nowhere", "C", 75), ("p0", "?", 75)])
    assert share[0] < 0.5
    np.testing.assert_allclose(share[1:], 1.0, atol=0.01)


def test_predictions_are_mixed_by_the_epistemic_share(fitted, data):
    asked = data[2]
    far, near = (layer.cells(asked)[0].mean for layer in (fitted.far_, fitted.near_))
    weight = fitted.near_.base.epistemic_share(asked) ** fitted.power_
    expected = (1 - weight) * near + weight * far
    np.testing.assert_allclose(fitted.predict(asked), expected, rtol=1e-4)
    assert 0 < weight.mean() < 1


def test_the_power_of_the_epistemic_share_is_the_best_on_held_out_cells(data):
    X, y, _, _ = data
    seen = observe(X, y)
    kept, held_out = seen.take(slice(0, 1200)), seen.take(slice(1200, None))
    bases = TypeMean(sensor=1), OUSmoother(sensor=1, n_jobs=1)
    inside = clone(FEW).set_params(random_state=0, n_jobs=1)
    layers = [Layer.learn(base, clone(inside), kept, None) for base in bases]
    far, near = (layer.cells(held_out)[0].mean for layer in layers)
    share = bases[1].epistemic_share(held_out)
    errors = []
    for power in POWERS:
        mean = (1 - share**power) * near + share**power * far
        errors.append(errors_over(held_out.values, mean, X[1200:], y[1200:]))
    assert _best_power(layers, held_out) == POWERS[np.argmin(errors)]
    fitted = ResidualFactorizer(FEW, sensor=1, random_state=0, n_jobs=1)
    fitted.fit(kept, validation=held_out)
    assert fitted.power_ == POWERS[np.argmin(errors)]


def test_a_long_gap_is_filled_from_other_places(data):
    X, y, asked, truth = data
    gap = [(cells[:, 0] == "p3") & (abs(cells[:, 2].astype(int) - 75) < 30) for cells in (X, asked)]
    X, y, asked, truth = X[~gap[0]], y[~gap[0]], asked[gap[1]], truth[gap[1]]
    model = ResidualFactorizer(FEW, sensor=1, random_state=0, n_jobs=1).fit(X, y)
    alone = OUSmoother(sensor=1, n_jobs=1).fit(X, y)
    both = errors_over(truth, model.predict(asked), asked, truth)
    assert both < 0.5 * errors_over(truth, alone.predict(asked), asked, truth)


def test_validation_stops_training_and_is_trained_on_in_the_end(data):
    X, y, _, _ = data
    cut = len(y) * 9 // 10
    train, validation = observe(X[:cut], y[:cut]), observe(X[cut:], y[cut:])
    model = ResidualFactorizer(EPOCHS, sensor=1, random_state=0, n_jobs=1)
    model.fit(train, validation=validation)
    assert model.calibration_.n == len(validation)
    assert len(model.near_.base.series_.values) == len(y)
    for layer in (model.near_, model.far_):
        assert layer.factorizer.patience is None
        assert 1 <= layer.factorizer.n_epochs_ <= 30


def test_without_a_factorizer_there_is_a_small_one(data):
    model = ResidualFactorizer(sensor=1, random_state=0, n_jobs=1).fit(*data[:2])
    assert isinstance(model.near_.factorizer, BayesianFactorizer)
    assert isinstance(model.far_.factorizer, BayesianFactorizer)
    assert model.get_params()["factorizer"] is None


def test_settings_inside_can_be_reached_as_in_any_meta_estimator():
    model = ResidualFactorizer(clone(EPOCHS), base="type")
    assert model.get_params()["factorizer__rank"] == 2
    copy = clone(model).set_params(factorizer__rank=5, base="ou")
    assert (copy.factorizer.rank, copy.base) == (5, "ou")
    assert (model.factorizer.rank, model.base) == (2, "type")


def test_the_model_inside_is_not_changed_by_fit(data):
    inside = clone(EPOCHS)
    before = inside.get_params()
    ResidualFactorizer(inside, sensor=1, random_state=0, n_jobs=1).fit(*data[:2])
    assert inside.get_params() == before
    with pytest.raises(NotFittedError):
        inside.predict(data[0])


def test_files_pickles_and_threads_keep_every_bit(fitted, data, tmp_path):
    X, y, asked, _ = data
    cells = [*asked.tolist(), ("nowhere", "C", 3), ("p1", "?", 3), ("p1", "C", 77.5)]
    fitted.save(tmp_path / "model")
    expected = fitted.predict(cells, return_std=True)
    others = [
        load(tmp_path / "model"),
        ResidualFactorizer.load(tmp_path / "model"),
        pickle.loads(pickle.dumps(fitted)),
        clone(fitted).set_params(n_jobs=3).fit(X, y),
    ]
    for other in others:
        np.testing.assert_array_equal(other.predict(cells, return_std=True), expected)
    loaded = others[0]
    assert str(loaded.get_params()) == str(fitted.get_params())
    refitted = loaded.fit(X, y).predict(cells, return_std=True)
    np.testing.assert_array_equal(refitted, expected)


@pytest.mark.parametrize("base", ["ou", "type"])
def test_unknown_ids_never_fail_and_have_a_wider_std(base, data):
    X, y = data[:2]
    model = ResidualFactorizer(FEW, base=base, sensor=1, random_state=0, n_jobs=1).fit(X, y)
    known = model.predict(X[X[:, 1] == "C"], return_std=True)[1].mean()
    mean, std = model.predict([("nowhere", "C", 3), ("nowhere", "C", 9999)], return_std=True)
    assert np.isfinite(mean).all()
    assert (std > known).all()
    assert np.isfinite(model.predict([("p1", "strange", 3)], return_std=True)).all()


def test_unknown_ids_can_have_a_constant(data):
    settings = {"unknown": 3.0, "value_range": None, "sensor": 1, "random_state": 0, "n_jobs": 1}
    model = ResidualFactorizer(EPOCHS, **settings).fit(*data[:2])
    cells = [("nowhere", "C", 3), ("p1", "?", 3), ("p1", "C", 999)]
    mean = model.predict(cells)
    np.testing.assert_array_equal(mean[:2], 3.0)
    assert mean[2] != 3.0  # a time that can be reached is not unknown


def test_a_matrix_has_one_type(data):
    X, y = data[:2]
    own = X[:, 1] == "C"
    model = ResidualFactorizer(FEW, random_state=0, n_jobs=1).fit(X[own][:, [0, 2]], y[own])
    assert np.isfinite(model.predict([("p1", 5), ("p1", 5.5)], return_std=True)).all()


def test_a_few_readings_are_enough():
    rows = [("a", 0, 1.0), ("a", 1, 2.0), ("b", 0, 1.5), ("b", 2, 2.5)]
    model = ResidualFactorizer(FEW, random_state=0, n_jobs=1).fit(rows)
    assert model.calibration_ is None
    assert np.isfinite(model.predict([("a", 2), ("c", 0)], return_std=True)).all()
    with pytest.warns(UserWarning, match="not calibrated"):
        model.predict_interval([("a", 2)])


def test_readings_that_never_change_are_no_trouble():
    rows = [(place, t, 7.0) for place in range(3) for t in range(30)]
    mean, std = (
        ResidualFactorizer(FEW, random_state=0, n_jobs=1)
        .fit(rows)
        .predict([(0, 3), (5, 99)], return_std=True)
    )
    np.testing.assert_allclose(mean, 7.0, rtol=1e-4)
    assert (std > 0).all()


def test_types_have_mean_and_std_of_their_own(data, tmp_path):
    X, y = data[:2]
    model = TypeMean(sensor=1).fit(X, y)
    model.save(tmp_path / "model")
    for name in TYPES:
        own = y[X[:, 1] == name]
        mean, std = TypeMean.load(tmp_path / "model").predict([("x", name, 0)], return_std=True)
        np.testing.assert_allclose([mean[0], std[0]], [own.mean(), own.std()], rtol=1e-5)


BAD = {
    "another base": ({"base": "mean"}, "base must be one of 'ou', 'type'"),
    "no model": ({"factorizer": "ptf"}, "factorizer must be a model of noisewise or None"),
    "no such mode": ({"sensor": "kind"}, "sensor must be one of"),
    "time as the type": ({"sensor": -1}, "sensor must be another mode than time"),
}


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD.keys())
def test_a_setting_that_cannot_be_is_refused_with_a_reason(data, settings, message):
    with pytest.raises(SettingError, match=message):
        ResidualFactorizer(**settings).fit(*data[:2])


def test_duplicate_cells_are_refused():
    with pytest.raises(DataError, match="given more than once"):
        ResidualFactorizer().fit([(0, 0, 1.0), (0, 0, 2.0)])


def test_a_damaged_file_is_refused(data, tmp_path):
    X, y = data[:2]
    path = tmp_path / "model"
    ResidualFactorizer(EPOCHS, sensor=1, random_state=0, n_jobs=1).fit(X, y).save(path)
    header, tensors = storage.read(path, "model")
    del header["kind"], header["version"]
    endless = {"model": "ResidualFactorizer", "settings": {"factorizer": None}}
    for _ in range(150):
        endless = {"model": "ResidualFactorizer", "settings": {"factorizer": endless}}
    damages = [
        (header | {"near.base": header["far.base"]}, tensors),
        (header | {"far.factorizer": {**header["far.factorizer"], "model": "os"}}, tensors),
        ({k: v for k, v in header.items() if k != "near.base"}, tensors),
        (header | {"power": -1.0}, tensors),
        (header, {k: v for k, v in tensors.items() if k != "far.factorizer.mode0.counts"}),
        (header | {"settings": {"factorizer": {"model": "system", "settings": {}}}}, tensors),
        (header | {"settings": {"factorizer": endless}, "ids": []}, tensors),
    ]
    for damaged in damages:
        storage.write(path, "model", *damaged)
        with pytest.raises(ModelFileError):
            load(path)
