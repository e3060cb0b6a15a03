"""HuberFactorizer: weights, what outliers can do to it, and what a killed fit goes on with."""

import json

import numpy as np
import pytest
from noisewise_reproduction.rivals.rcf import HuberFactorizer
from noisewise_reproduction.rivals.robust import Units, robust_std

from noisewise import load, metrics, storage
from noisewise.errors import DivergedError, ModelFileError, SettingError
from noisewise.models.deviation import DeviationFactorizer


def make_model(**settings):
    chosen = {"rank": 3, "epochs": 15, "random_state": 0, "n_jobs": 1, **settings}
    return HuberFactorizer(**chosen)


def biased_mf(**settings):
    own = {"learning_rate": 0.035, "l2": 0.058, "bias_l2": 0.05}
    chosen = {"rank": 3, "epochs": 15, "random_state": 0, "n_jobs": 1, **own, **settings}
    return DeviationFactorizer(deviation_rank=0, **chosen)


def corrupted(world, share=0.05, by=30.0, seed=0):
    """The values of a world, some of them moved far up or down."""
    rng = np.random.default_rng(seed)
    bad = rng.random(len(world.y)) < share
    return np.where(bad, world.y + by * rng.choice([-1, 1], len(bad)), world.y), bad


def test_a_very_large_k_is_biased_mf(world):
    y = np.clip(world.y, 1.0, 5.0)
    huber = make_model(k=1e9).fit(world.X, y)
    plain = biased_mf().fit(world.X, y)
    assert huber.n_epochs_ == plain.n_epochs_
    np.testing.assert_allclose(
        huber.predict(world.X, return_std=True), plain.predict(world.X, return_std=True), rtol=1e-3
    )


def test_outliers_hurt_less_than_they_hurt_biased_mf(world):
    y, _ = corrupted(world)
    settings = {"value_range": None}
    errors = {
        model: metrics.rmse(world.mean, model.fit(world.X, y).predict(world.X))
        for model in (make_model(**settings), biased_mf(**settings))
    }
    clean = metrics.rmse(world.mean, make_model(**settings).fit(world.X, world.y).predict(world.X))
    huber, plain = errors.values()
    assert huber < 0.6 * plain
    assert huber < 1.3 * clean


def test_values_beyond_all_measure_do_no_harm(world):
    y, bad = corrupted(world, share=0.01, by=1e12)
    model = make_model(value_range=None, patience=None).fit(world.X, y)
    clean = make_model(value_range=None, patience=None).fit(world.X, world.y)
    mean, expected = model.predict(world.X), clean.predict(world.X)
    assert np.sqrt(np.mean((mean - expected) ** 2)) < 0.2
    assert model.weights(world.X, y)[bad].max() < 1e-6


def test_weights_find_the_outliers(world):
    y, bad = corrupted(world)
    model = make_model().fit(world.X, y)
    weights = model.weights(world.X, y)
    assert weights.dtype == np.float32
    assert ((weights > 0) & (weights <= 1)).all()
    assert weights[bad].max() < 0.2
    assert weights[~bad].mean() > 0.8


def test_a_weight_is_the_limit_over_the_error(small_world):
    X, y = small_world.X, small_world.y
    model = make_model(k=0.8).fit(X, y)
    error = np.abs(y - model.predict(X))
    expected = np.minimum(1.0, 0.8 * model.scale_ / error)
    np.testing.assert_allclose(model.weights(X, y), expected, rtol=1e-4)


def test_at_the_end_cut_errors_balance_the_penalty(small_world):
    """The gradient of Huber's loss, which weights are a way to follow, vanishes."""
    X, y = small_world.X, small_world.y
    model = make_model(
        rank=0, epochs=3000, patience=None, learning_rate=0.3, k=0.7, value_range=None
    ).fit(X, y)
    error = (y - model.predict(X)) / model.factors_.scale
    limit = model.k * model.scale_ / model.factors_.scale
    strength = model.factors_.state.variance**-0.75
    for mode, ids in enumerate(model.ids_):
        codes = ids.lookup(X[:, mode])
        push = model.bias_l2 * np.bincount(codes) * model.factors_.state.biases(mode)[:-1]
        cut, uncut = (
            strength * np.bincount(codes, pull) for pull in (np.clip(error, -limit, limit), error)
        )
        assert np.linalg.norm(cut - push) < 0.15 * np.linalg.norm(push)
        assert np.linalg.norm(uncut - push) > 0.5 * np.linalg.norm(push)


def test_the_floor_keeps_good_values_from_losing_their_weight(world):
    part = world.part(slice(3000))  # so few that factors adapt to the noise
    fits = {
        floor: make_model(
            rank=16, l2=0.0, learning_rate=0.3, epochs=60, patience=None, scale_floor=floor
        ).fit(part.X, part.y)
        for floor in (0.7, 1e-3)
    }
    high, low = (fits[floor].scale_ / fits[floor].factors_.scale for floor in fits)
    assert high == pytest.approx(0.7, rel=1e-5)
    assert low < 0.5


def test_the_std_is_that_of_the_bulk_of_the_errors(world):
    y, bad = corrupted(world)
    model = make_model(patience=None, value_range=None).fit(world.X, y)
    mean, noise, _ = model.predict_parts(world.X)
    good = np.sqrt(np.mean((y - mean)[~bad] ** 2))
    assert noise[0] == pytest.approx(good, rel=0.3)
    assert noise[0] < 0.4 * np.sqrt(np.mean((y - mean) ** 2))
    assert np.ptp(noise) == 0


def test_units_are_set_by_the_bulk_of_values():
    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 2.0, 10_000).astype(np.float32)
    values[:300] = 1e9
    location, scale = Units.of(values)
    assert location == pytest.approx(3.0, abs=0.5)
    assert scale == pytest.approx(2.0, rel=0.4)
    assert robust_std(values) == pytest.approx(2.0, rel=0.1)


def test_units_of_ordinary_values_are_their_mean_and_std():
    values = np.random.default_rng(0).integers(1, 6, 1000).astype(np.float32)
    assert Units.of(values) == pytest.approx((values.mean(), values.std()), rel=1e-6)
    assert Units.of(np.full(9, 0.1, dtype=np.float32)).scale == 1.0
    mostly = np.array([5.0] * 90 + [1.0] * 10, dtype=np.float32)
    assert 0 < Units.of(mostly).scale < 2


@pytest.mark.parametrize("value", [0.0, -3.5, 1e6])
@pytest.mark.filterwarnings("ignore:All .* values are")
def test_values_that_are_all_alike_are_predicted(value):
    X = [(user, item) for user in range(5) for item in range(4)]
    mean, std = make_model(patience=None).fit(X, [value] * 20).predict(X, return_std=True)
    np.testing.assert_allclose(mean, value, atol=1e-3)
    assert np.isfinite(std).all()


def test_the_curve_reports_errors_as_they_are_and_not_as_they_are_cut(world):
    y, _ = corrupted(world)
    model = make_model(value_range=None).fit(world.X, y)
    curve = model.learning_curve_
    assert curve["train_rmse"][-1] == pytest.approx(curve["validation_rmse"][-1], rel=0.15)
    assert curve["train_rmse"][0] == pytest.approx(y.std(), rel=0.05)


@pytest.mark.parametrize("scale", [0.0, -1.0, "wide", None])
def test_a_file_with_a_scale_that_cannot_be_is_refused(small_world, tmp_path, scale):
    make_model().fit(small_world.X, small_world.y).save(tmp_path / "model")
    header, tensors = storage.read(tmp_path / "model", "model")
    header = json.loads(json.dumps({**header, "scale": scale}))
    for key in ("version", "kind"):
        del header[key]
    storage.write(tmp_path / "model", "model", header, tensors)
    with pytest.raises(ModelFileError, match="scale is "):
        HuberFactorizer.load(tmp_path / "model")


def test_an_absurd_learning_rate_diverges_with_advice(small_world):
    with pytest.raises(DivergedError, match=r"smaller learning_rate \(now 1e\+30\)"):
        make_model(learning_rate=1e30).fit(small_world.X, small_world.y)


@pytest.mark.parametrize("setting", [{"k": 0.0}, {"scale_floor": 0.0}, {"l2": -1.0}])
def test_a_bad_setting_is_named(small_world, setting):
    with pytest.raises(SettingError, match=next(iter(setting))):
        make_model(**setting).fit(small_world.X, small_world.y)


def test_a_model_of_two_modes_takes_no_file_of_three(small_world, tmp_path):
    make_model().fit(small_world.X, small_world.y).save(tmp_path / "matrix")
    cells = np.column_stack([small_world.X, small_world.X[:, 0] % 3])
    DeviationFactorizer(2, epochs=2).fit(cells, small_world.y).save(tmp_path / "tensor")
    header, tensors = storage.read(tmp_path / "tensor", "model")
    header["model"] = "HuberFactorizer"
    header["settings"] = storage.read(tmp_path / "matrix", "model")[0]["settings"]
    storage.write(tmp_path / "model", "model", header, tensors)
    with pytest.raises(ModelFileError, match="must have 2 modes, but has 3"):
        load(tmp_path / "model")
