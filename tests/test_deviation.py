"""DeviationFactorizer: the noise it finds, what each setting does, and learning one by one."""

import inspect
import pickle

import numpy as np
import pytest
from shared import assert_same_bits, make_world, tensors_of

from noisewise import DataError, DeviationFactorizer, SettingError, observe
from noisewise.engine.sgd import strata

NAMES = inspect.signature(DeviationFactorizer).parameters.keys()


def make_model(**settings):
    """A model of the right size for the worlds of these tests."""
    chosen = {"rank": 2, "deviation_rank": 1, "delta": 0.02, "deviation_learning_rate": 0.05}
    return DeviationFactorizer(**{**chosen, "random_state": 0, "n_jobs": 1, **settings})


@pytest.fixture(scope="module")
def split(world):
    return world.halves()


@pytest.fixture(scope="module")
def fitted(split):
    return make_model().fit(split[0].X, split[0].y)


def rmse(model, world):
    return float(np.sqrt(np.mean((world.y - model.predict(world.X)) ** 2)))


# The noise.


def test_mean_comes_close_to_the_best_there_is(fitted, split):
    _, test = split
    best = np.sqrt(np.mean((test.y - test.mean) ** 2))
    assert rmse(fitted, test) < 1.05 * best
    assert rmse(fitted, test) < 0.8 * test.y.std()


def test_std_recovers_the_noise_we_put_in(fitted, split):
    _, test = split
    _, noise, _ = fitted.predict_parts(test.X)
    assert np.corrcoef(noise, test.std)[0, 1] > 0.9
    assert np.median(noise / test.std) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
def test_ninety_percent_interval_covers_ninety_percent(fitted, split, coverage):
    _, test = split
    low, high = fitted.predict_interval(test.X, coverage=coverage)
    assert np.mean((low <= test.y) & (test.y <= high)) == pytest.approx(coverage, abs=0.03)


def test_intervals_cover_although_what_calibrates_also_chose_the_epochs():
    covered = []
    for seed in range(100):
        world = make_world(60, 40, 2400, seed=seed)
        train, test = world.part(slice(500)), world.part(slice(500, None))  # 50 are held out
        settings = {"rank": 8, "deviation_rank": 2, "value_range": None, "n_jobs": 1}
        model = DeviationFactorizer(**settings, random_state=seed).fit(train.X, train.y)
        assert model.calibration_.n == 50
        low, high = model.predict_interval(test.X, coverage=0.9)
        covered.append(np.mean((low <= test.y) & (test.y <= high)))
    assert np.mean(covered) == pytest.approx(0.9, abs=0.02)


def test_intervals_cover_the_noisy_and_the_quiet_alike(fitted, split):
    _, test = split
    low, high = fitted.predict_interval(test.X, coverage=0.9)
    covered = (low <= test.y) & (test.y <= high)
    for part in np.array_split(np.argsort(test.std), 3):
        assert np.mean(covered[part]) == pytest.approx(0.9, abs=0.06)


@pytest.mark.filterwarnings("ignore:.* ids of .* were never trained on")
def test_intervals_of_unknown_ids_cover_too():
    world = make_world(300, 150, 24_000, seed=3)
    new = world.X[:, 0] >= 240
    model = make_model().fit(world.X[~new], world.y[~new])
    test = world.part(new)
    low, high = model.predict_interval(test.X, coverage=0.9)
    assert np.mean((low <= test.y) & (test.y <= high)) == pytest.approx(0.9, abs=0.06)


def test_without_deviation_factors_all_noise_is_the_same(split):
    train, test = split
    model = make_model(deviation_rank=0).fit(train.X, train.y)
    _, noise, epistemic = model.predict_parts(test.X)
    assert (noise == noise[0]).all()
    assert noise[0] == pytest.approx(np.sqrt(np.mean(test.std**2)), rel=0.1)
    assert len(np.unique(epistemic)) > 1


def test_more_observations_leave_less_epistemic(fitted):
    counts = fitted.factors_.counts[0]
    few, many = np.argsort(counts)[[0, -1]].tolist()
    cells = [[(user, item) for item in range(150)] for user in (few, many)]
    of_few, of_many = (fitted.predict_parts(part)[2].mean() for part in cells)
    assert of_many < of_few


def test_during_the_warm_up_the_noise_is_constant_and_after_it_is_learned(small_world):
    X, y = small_world.X, small_world.y
    for epochs, learned in ((3, False), (4, True)):
        model = make_model(warmup=3, epochs=epochs, patience=None).fit(X, y)
        assert model.factors_.learned_deviation is learned
        assert (len(np.unique(model.predict_parts(X)[1])) > 1) is learned


def test_noise_is_learned_though_the_mean_was_best_before_it():
    rng = np.random.default_rng(0)
    X = make_world(60, 50, 2_000).X
    std = np.where(X[:, 0] < 30, 0.2, 2.0)  # nothing but noise, of two kinds of user
    model = make_model(monitor="nll").fit(X, rng.normal(0, std))
    assert np.argmin(model.learning_curve_["validation_rmse"]) < model.warmup
    _, noise, _ = model.predict_parts(X)
    assert noise[std > 1].mean() > 3 * noise[std < 1].mean()


def test_the_learning_curve_tells_what_happened(fitted):
    curve = fitted.learning_curve_
    assert {len(column) for column in curve.values()} == {len(curve["epoch"])}
    assert curve["epoch"] == list(range(1, len(curve["epoch"]) + 1))
    best = int(np.argmin(curve["validation_rmse"])) + 1
    assert fitted.n_epochs_ == best
    assert curve["train_rmse"][-1] < curve["train_rmse"][0]
    assert curve["train_nll"][-1] < curve["train_nll"][0]
    assert fitted.seconds_ >= sum(curve["seconds"])


# Every setting does something.


CHANGES = {
    "rank": 3,
    "deviation_rank": 2,
    "epochs": 5,
    "patience": None,
    "refit": False,
    "monitor": "nll",
    "validation_fraction": 0.3,
    "learning_rate": 0.2,
    "deviation_learning_rate": 0.1,
    "biases": False,
    "l2": 0.5,
    "bias_l2": 0.5,
    "deviation_l1": 0.1,
    "penalty": "row",
    "delta": 0.5,
    "beta": 1.0,
    "warmup": 0,
    "adagrad": "row",
    "random_state": 1,
}
CHECKED = set(CHANGES)


def checks(*names):
    """Say of a test which settings it checks."""
    CHECKED.update(names)
    return lambda test: test


@pytest.mark.parametrize(("name", "value"), CHANGES.items())
def test_each_setting_of_learning_changes_the_model(small_world, name, value):
    X, y = small_world.X, small_world.y
    before = make_model(epochs=60).fit(X, y)
    after = make_model(epochs=60).set_params(**{name: value}).fit(X, y)
    assert not np.array_equal(before.predict(X, return_std=True), after.predict(X, return_std=True))


@checks("value_range")
def test_value_range_clips_what_is_predicted(split):
    train, test = split
    auto, free, narrow = (
        make_model(epochs=5, patience=None, value_range=chosen).fit(train.X, train.y)
        for chosen in ("auto", None, (2, 4))
    )
    assert auto.value_range_ == (train.y.astype("f4").min(), train.y.astype("f4").max())
    assert free.value_range_ is None
    mean = free.predict(test.X)
    assert mean.min() < 2 < 4 < mean.max()
    np.testing.assert_array_equal(narrow.predict(test.X), np.clip(mean, 2, 4))
    low, high = narrow.calibrate(test.X, test.y).predict_interval(test.X)
    assert (low.min(), high.max()) == (2, 4)


@checks("unknown")
def test_unknown_can_be_a_constant(small_world):
    X, y = small_world.X, small_world.y
    cells = [(-1, 3), (3, -1), (-1, -1), (3, 3)]
    default = make_model(epochs=5).fit(X, y)
    model = make_model(epochs=5, unknown=3.0).fit(X, y)
    assert model.predict(cells)[:3].tolist() == [3.0, 3.0, 3.0]
    np.testing.assert_array_equal(
        model.predict(cells, return_std=True)[1], default.predict(cells, return_std=True)[1]
    )
    assert model.predict(cells)[3] == default.predict(cells)[3]
    assert len(set(default.predict(cells).tolist())) == 4


@pytest.mark.parametrize(("duplicates", "value"), [("last", 5.0), ("mean", 3.0)])
@checks("duplicates")
def test_duplicates_are_settled_as_asked(duplicates, value):
    X, y = [("ann", "Alien"), ("bob", "Alien"), ("ann", "Alien")], [1.0, 2.0, 5.0]
    with pytest.raises(DataError, match="given more than once"):
        make_model().fit(X, y)
    model = make_model(duplicates=duplicates, epochs=5).fit(X, y)
    settled = make_model(epochs=5).fit([("ann", "Alien"), ("bob", "Alien")], [value, 2.0])
    order = X[:2]
    np.testing.assert_array_equal(model.predict(order), settled.predict(order))
    with pytest.raises(DataError, match="given more than once"):
        model.set_params(duplicates="error").partial_fit(X, y)


@checks("keep_seen")
def test_what_was_seen_is_kept_only_if_asked(small_world):
    model = make_model(epochs=2, keep_seen=False).fit(small_world.X, small_world.y)
    assert model.seen_ is None
    with pytest.raises(DataError, match="fit with keep_seen=True, or pass exclude_seen=False"):
        model.recommend(3)
    assert len(model.recommend(3, exclude_seen=False)) == 10


def test_a_checkpoint_is_kept_as_often_as_asked(small_world, tmp_path):
    path = tmp_path / "checkpoint"

    def present(**often):
        seen = []
        often |= {"callbacks": [lambda *_: seen.append(path.exists())], "checkpoint": path}
        make_model(epochs=4, patience=None).fit(small_world.X, small_world.y, **often)
        assert not path.exists()
        return seen

    assert present() == [False, True, True, True]
    assert present(checkpoint_epochs=2) == [False, False, True, True]
    assert present(checkpoint_epochs=None) == [False] * 4
    assert present(checkpoint_epochs=None, checkpoint_minutes=1e-9) == [False, True, True, True]


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(0)])
def test_a_checkpoint_needs_a_seed_to_go_on_with(small_world, tmp_path, random_state):
    model = make_model(random_state=random_state)
    with pytest.raises(SettingError, match="checkpoint needs random_state to be an int"):
        model.fit(small_world.X, small_world.y, checkpoint=tmp_path / "checkpoint")


@checks("n_jobs")
def test_n_jobs_is_the_number_of_threads(world, monkeypatch):
    used = set()
    pool = strata.pool

    def watched(workers):
        used.add(workers)
        return pool(workers)

    monkeypatch.setattr(strata, "pool", watched)
    monkeypatch.setattr(strata, "CHUNK", 100)
    for n_jobs in (1, 3, None):
        used.clear()
        make_model(n_jobs=n_jobs, epochs=2).fit(world.X, world.y)
        assert used == {n_jobs or 1}


@checks("verbose")
def test_verbose_shows_a_bar_or_none(small_world, capsys):
    for verbose in (False, True):
        make_model(epochs=2, verbose=verbose).fit(small_world.X, small_world.y)
        assert ("fit" in capsys.readouterr().err) is verbose


@checks("device", "precision", "deterministic")
def test_settings_of_a_gpu_change_nothing_on_a_cpu(small_world):
    X, y = small_world.X, small_world.y
    expected = make_model(epochs=3).fit(X, y).predict(X)
    model = make_model(epochs=3, device="cpu", precision="half", deterministic=True)
    np.testing.assert_array_equal(model.fit(X, y).predict(X), expected)


def test_every_setting_is_checked():
    assert set(NAMES) == CHECKED


INVALID = {
    "rank": [-1, 1.5, "8", None, True],
    "deviation_rank": [-1, 0.5, None],
    "epochs": [0, -3, 2.5, None],
    "patience": [0, -1, 1.5, "none"],
    "refit": ["yes", None, 2],
    "monitor": ["mae", None, np.array(["rmse"])],
    "validation_fraction": [0, 0.6, 1, -0.1, float("nan"), None],
    "learning_rate": [0, -0.1, float("inf"), float("nan"), "fast", None],
    "deviation_learning_rate": [0, -0.1, float("inf"), None],
    "biases": ["yes", None, 2],
    "l2": [-0.1, float("nan"), None],
    "bias_l2": [-0.1, float("nan"), None],
    "deviation_l1": [-0.1, float("inf"), None],
    "penalty": ["column", None],
    "delta": [0, -1, float("nan"), None],
    "beta": [-0.1, 1.1, None],
    "warmup": [-1, 0.5, None],
    "adagrad": ["adam", None],
    "device": ["gpu", "cuda:", "cuda:-1", "CUDA", 0, None],
    "precision": ["double", 16, None],
    "deterministic": ["yes", None, 2],
    "value_range": [(5, 1), (1, 1), (1,), (1, 2, 3), "stars", 5, (0, float("inf")), np.arange(2)],
    "unknown": ["mean", None, float("nan"), (3,)],
    "duplicates": ["first", None],
    "keep_seen": ["no", None],
    "random_state": [-1, 1.5, "seed", True],
    "n_jobs": [0, 1.5, "all", True],
    "verbose": ["yes", 2],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in INVALID.items() for value in values]
)
def test_an_invalid_setting_is_named_with_its_value(small_world, name, value):
    model = make_model().set_params(**{name: value})
    for learn in (model.fit, model.partial_fit):
        with pytest.raises(SettingError, match=rf"^{name} must be .*; got ") as caught:
            learn(small_world.X, small_world.y)
        assert repr(value) in str(caught.value)


OFTEN = {
    "checkpoint": [3, "", b"bytes"],
    "checkpoint_epochs": [0, 1.5],
    "checkpoint_minutes": [0, -1, "often"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OFTEN.items() for value in values]
)
def test_a_checkpoint_that_cannot_be_meant_is_named_with_its_value(small_world, name, value):
    with pytest.raises(SettingError, match=rf"^{name} must be .*; got ") as caught:
        make_model().fit(small_world.X, small_world.y, **{name: value})
    assert repr(value) in str(caught.value)


def test_every_setting_can_be_invalid():
    assert INVALID.keys() == NAMES


# Little data, and dull data.


@pytest.mark.parametrize("settings", [{}, {"rank": 0}, {"deviation_rank": 0}, {"adagrad": "row"}])
@pytest.mark.parametrize("n", range(2, 11))
def test_a_handful_of_observations_is_enough(n, settings):
    X = [(f"user{k % 2}", f"item{k}") for k in range(n)]
    model = DeviationFactorizer(random_state=0, n_jobs=1, **settings).fit(X, range(n))
    mean, std = model.predict([*X, ("nobody", "nothing")], return_std=True)
    assert ((mean >= 0) & (mean <= n - 1)).all()
    assert (np.isfinite(std) & (std > 0)).all()
    assert len(model.recommend("nobody", n=3)) == min(n, 3)


@pytest.mark.parametrize("shape", [(1, 40), (40, 1)])
def test_a_single_row_or_column_is_enough(shape):
    X = np.argwhere(np.ones(shape))
    y = np.random.default_rng(0).normal(size=len(X))
    mean, std = make_model().fit(X, y).predict([*X.tolist(), (-1, -1)], return_std=True)
    assert np.isfinite([mean, std]).all()


@pytest.mark.parametrize("n", [2, 200])
@pytest.mark.parametrize(
    "settings", [{}, {"rank": 0}, {"deviation_rank": 0}, {"rank": 0, "deviation_rank": 0}]
)
@pytest.mark.parametrize("value", [0.0, 3.3, -1e6])
@pytest.mark.filterwarnings("ignore:All .* values are")
def test_values_that_are_all_alike_are_predicted(value, settings, n):
    X = make_world(30, 20, n).X
    model = make_model(**settings).fit(X, np.full(n, value))
    mean, std = model.predict([*X.tolist(), (-1, -1)], return_std=True)
    np.testing.assert_array_equal(mean, np.float32(value))
    assert (np.isfinite(std) & (std > 0)).all()
    assert np.isfinite(model.fold_in([1, 2], [value, value]).predict([3])).all()


def test_without_mean_factors_the_mean_is_a_sum_of_biases(split):
    train, test = split
    model = make_model(rank=0, value_range=None).fit(train.X, train.y)
    grid = [(user, item) for user in (3, 4) for item in (5, 6)]
    a, b, c, d = model.predict(grid).tolist()
    assert a - b == pytest.approx(c - d, abs=1e-5)
    assert rmse(model, test) < 0.95 * test.y.std()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_settings_mean_the_same_in_any_unit(small_world, scale):
    X, y = small_world.X, small_world.y
    mean, std = make_model().fit(X, y).predict(X, return_std=True)
    other_mean, other_std = make_model().fit(X, scale * y + 7 * scale).predict(X, return_std=True)
    np.testing.assert_allclose(other_mean / scale - 7, mean, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(other_std / scale, std, rtol=1e-2)


# What is held out.


def test_held_out_values_may_be_given_with_ids_of_their_own(small_world):
    X, y = small_world.X, small_world.y
    kept, later = slice(300), slice(399, 299, -1)  # in another order, so numbered otherwise
    together = observe(X, y)
    by_rows = make_model().fit(together.take(kept), validation=together.take(later))
    own = make_model().fit(X[kept], y[kept], validation=observe(X[later].tolist(), y[later]))
    names = np.char.add("id", X.astype(str)).astype(object)
    text = make_model().fit(names[kept], y[kept], validation=observe(names[later], y[later]))
    for model, cells in ((by_rows, X), (own, X), (text, names)):
        assert np.corrcoef(model.predict(cells), y)[0, 1] > 0.6
        for mode in range(2):
            ids, counts = np.unique(cells[:, mode], return_counts=True)
            assert [model.row(id, mode=mode).observations for id in ids] == counts.tolist()


def test_held_out_values_may_bring_new_ids(small_world):
    X, y = small_world.X, small_world.y
    old = X[:, 0] < 20
    model = make_model().fit(X[old], y[old], validation=observe(X[~old], y[~old]))
    assert len(model.ids_[0]) == 30
    assert model.row(25).observations == (X[:, 0] == 25).sum()
    first = make_model(refit=False).fit(X[old], y[old], validation=observe(X[~old], y[~old]))
    assert first.predict([(25, 3)]) == first.predict([(9_999, 3)])


def test_held_out_values_need_patience(small_world):
    seen = observe(small_world.X, small_world.y)
    with pytest.raises(SettingError, match="validation is only used with patience"):
        make_model(patience=None).fit(seen, validation=seen)


def test_refit_trains_on_what_was_held_out(small_world):
    X, y = small_world.X, small_world.y
    first = make_model(refit=False).fit(X, y)
    again = make_model().fit(X, y)
    assert first.factors_.counts[0].sum() == 360
    assert again.factors_.counts[0].sum() == 400
    assert first.n_epochs_ == again.n_epochs_
    assert first.calibration_.n == again.calibration_.n == 40
    assert first.calibration_.scale == again.calibration_.scale


# One by one: rows, partial_fit, fold_in.


def test_a_row_by_id_says_what_a_prediction_is_made_of(fitted, split):
    user, item = fitted.row(7), fitted.row(11, mode="item")
    factors = fitted.factors_
    mean = user.bias + item.bias + user.mean @ item.mean
    variance = user.deviation @ item.deviation + fitted.delta
    got, noise, _ = fitted.cells([(7, 11)]).moments  # before calibration
    assert got[0] == pytest.approx(factors.location + factors.scale * mean, rel=1e-5)
    assert np.sqrt(noise[0]) == pytest.approx(factors.scale * np.sqrt(variance), rel=1e-5)
    assert user.observations == (split[0].X[:, 0] == 7).sum()
    user.mean[:] = 0  # a copy
    assert fitted.row(7).mean.any()


@pytest.mark.parametrize(("id", "mode"), [(-1, 0), ("ann", "item"), (7, "film"), (7, 2)])
def test_a_row_that_is_not_there_is_named(fitted, id, mode):
    with pytest.raises(DataError, match=rf"{id!r} was not seen|mode must be one of .*{mode!r}"):
        fitted.row(id, mode=mode)


@pytest.fixture
def newcomers():
    """A world of which 30 users and 20 items come later."""
    world = make_world(150, 100, 9_000, seed=5)
    late = (world.X[:, 0] >= 120) | (world.X[:, 1] >= 80)
    return world.part(~late), world.part(late)


def test_partial_fit_learns_new_users_and_items(newcomers):
    old, late = newcomers
    train, test = late.halves()
    model = make_model().fit(old.X, old.y)
    labels = [ids.labels.copy() for ids in model.ids_]
    error_before, error_old = rmse(model, test), rmse(model, old)
    std_before = model.predict(test.X, return_std=True)[1].mean()
    epochs_before = model.n_epochs_
    assert model.partial_fit(train.X, train.y, epochs=30) is model
    for ids, known in zip(model.ids_, labels, strict=True):
        np.testing.assert_array_equal(ids.labels[: len(known)], known)
    assert list(map(len, model.ids_)) == [150, 100]
    assert model.n_epochs_ == epochs_before + 30
    assert len(model.learning_curve_["epoch"]) == 30
    assert rmse(model, test) < 0.9 * error_before
    assert rmse(model, old) < 1.1 * error_old
    assert model.predict(test.X, return_std=True)[1].mean() < std_before
    assert model.factors_.counts[0].sum() == len(old.y) + len(train.y)
    assert model.row(149).observations == (train.X[:, 0] == 149).sum()


def test_partial_fit_leaves_alone_what_it_does_not_see(fitted):
    model = pickle.loads(pickle.dumps(fitted))
    model.partial_fit([(3, 5), ("new", 5)], [4.0, 2.0], epochs=2)
    untouched = np.flatnonzero(fitted.ids_[0].labels != 3)
    for part in ("biases", "mean_factors", "deviation_factors"):
        old, new = (getattr(m.factors_.state, part)(0) for m in (fitted, model))
        np.testing.assert_array_equal(new[untouched], old[untouched])
        assert not np.array_equal(new[3], old[3])
    assert model.std_scale_ == fitted.std_scale_
    assert model.value_range_ == fitted.value_range_


def test_partial_fit_remembers_what_was_seen(small_world):
    X, y = small_world.X, small_world.y
    model = make_model(epochs=3).fit(X[:300], y[:300]).partial_fit(X[300:], y[300:])
    cells = list(zip(*(codes.tolist() for codes in model.seen_.cells()), strict=True))
    assert len(cells) == 400
    user = int(X[350, 0])
    seen = set(X[X[:, 0] == user, 1].tolist())
    assert seen.isdisjoint(best.id for best in model.recommend(user, n=20))


def test_partial_fit_of_a_new_model_is_a_fit_on_everything(small_world):
    X, y = small_world.X, small_world.y
    model = make_model(epochs=50, patience=3)
    model.partial_fit(X, y, epochs=4)
    assert (model.epochs, model.patience) == (50, 3)
    whole = make_model(epochs=4, patience=None).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


def test_partial_fit_takes_a_single_observation(small_world):
    model = make_model(epochs=5).fit(small_world.X, small_world.y)
    before = model.predict([(9_999, 3)])[0]
    model.partial_fit([("new", 3)], [small_world.y.max()])
    assert model.predict([("new", 3)])[0] > before


@pytest.mark.parametrize("epochs", [0, -1, 1.5, None])
def test_partial_fit_needs_a_number_of_epochs(small_world, epochs):
    with pytest.raises(SettingError, match=r"epochs must be a whole number, 1 or more; got"):
        make_model().partial_fit(small_world.X, small_world.y, epochs=epochs)


def test_a_failed_first_partial_fit_puts_the_settings_back(small_world):
    model = make_model(epochs=50, patience=3)
    with pytest.raises(DataError):
        model.partial_fit([("a", "b")], [1.0])
    assert (model.epochs, model.patience) == (50, 3)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("settings", [{}, {"deviation_rank": 0}, {"penalty": "row", "l2": 1.0}])
def test_fold_in_comes_close_to_a_full_fit(world, mode, settings):
    late = world.X[:, mode] < 10
    old, new = world.part(~late), world.part(late)
    train, test = new.halves()
    X = np.concatenate([old.X, train.X])
    whole = make_model(**settings).fit(X, np.append(old.y, train.y))
    model = make_model(**settings).fit(old.X, old.y)
    folded, full, truth, unknown = [], [], [], []
    for id in range(10):
        mine, ask = (part.X[:, mode] == id for part in (train, test))
        others = test.X[ask, 1 - mode]
        row = model.fold_in(train.X[mine, 1 - mode], train.y[mine], mode=mode)
        folded += row.predict(others).tolist()
        full += whole.predict(test.X[ask]).tolist()
        unknown += model.predict(test.X[ask]).tolist()
        truth += test.y[ask].tolist()
    errors = [np.sqrt(np.mean(np.subtract(truth, got) ** 2)) for got in (folded, full, unknown)]
    assert errors[0] < 1.05 * errors[1]
    assert errors[0] < 0.9 * errors[2]
    assert np.corrcoef(folded, full)[0, 1] > 0.9


@pytest.mark.parametrize("penalty", ["rating", "row"])
def test_fold_in_is_the_posterior_of_a_row_of_the_population(small_world, penalty):
    model = make_model(deviation_rank=0, penalty=penalty, value_range=None)
    model.fit(small_world.X, small_world.y)
    items, values = [3, 5, 7, 11], np.array([5.0, 1.0, 2.0, 4.0])
    factors, all_items = model.factors_, model.ids_[1]
    known = [[model.row(id, mode=m) for id in ids.labels] for m, ids in enumerate(model.ids_)]
    rows = [np.array([[*row.mean, row.bias] for row in mode]) for mode in known]
    centre, C = rows[0].mean(axis=0), np.cov(rows[0].T, bias=True)
    seen = rows[1][all_items.lookup(items)]
    x = np.column_stack([seen[:, :-1], np.ones(4)])
    target = (values - factors.location) / factors.scale - seen[:, -1]
    _, noise, epistemic = model.predict_parts([(9_999, item) for item in items])
    own = np.einsum("ij,jk,ik->i", x, C, x)  # what not knowing the user adds, in a stranger
    scale = model.std_scale_ * factors.scale
    V = np.diag((noise / scale) ** 2 + (epistemic / scale) ** 2 - own)
    gain = C @ x.T @ np.linalg.inv(x @ C @ x.T + V)
    row = centre + gain @ (target - x @ centre)
    left = C - gain @ x @ C
    new = model.fold_in(items, values)
    expected = factors.location + factors.scale * (x @ row + seen[:, -1])
    np.testing.assert_allclose(new.predict(items), expected, rtol=1e-4)
    looked = np.column_stack([rows[1][:, :-1], np.ones(len(rows[1]))])
    often = np.array([row.observations for row in known[1]])
    typical = (looked * often[:, None]).T @ looked
    share = np.sum(left * typical) / np.sum(C * typical)
    assert new.side.shrink[0] == pytest.approx(share, rel=1e-4)


def test_fold_in_tells_a_noisy_newcomer_from_a_quiet_one(fitted, split):
    rng = np.random.default_rng(0)
    items = list(range(150))
    expected = fitted.predict([(9_999, item) for item in items])
    quiet, noisy = (
        fitted.fold_in(items, expected + rng.normal(0, std, 150)).predict(items, return_std=True)[1]
        for std in (0.2, 2.0)
    )
    assert noisy.mean() > 2 * quiet.mean()


def test_fold_in_of_more_values_leaves_less_epistemic(fitted):
    left = [fitted.fold_in(range(n), np.full(n, 3.0)).side.shrink[0] for n in (1, 2, 60, 120)]
    assert 1 > left[0] > left[1] > left[2] > left[3] > 0


def test_fold_in_does_not_change_the_model(fitted, tmp_path):
    before = tensors_of(fitted, tmp_path)
    new = fitted.fold_in([1, 2, 3], [5.0, 1.0, 3.0])
    new.predict([4], return_std=True)
    new.recommend(3)
    assert_same_bits(tensors_of(fitted, tmp_path), before)


def test_fold_in_takes_items_that_nobody_knows(fitted):
    new = fitted.fold_in([9_999, 5], [4.0, 3.0])
    mean, std = new.predict([9_999, 9_998, 5], return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert mean[0] == mean[1]


@pytest.mark.parametrize(
    ("others", "y", "message"),
    [
        ([1, 2], [3.0], "one value for each id; got 2 and 1"),
        ([], [], "one value for each id; got 0 and 0"),
        ([1], [np.nan], "Row 0 of y is NaN"),
        ([None], [3.0], "has no id"),
    ],
)
def test_fold_in_refuses_what_it_cannot_learn_from(fitted, others, y, message):
    with pytest.raises(DataError, match=message):
        fitted.fold_in(others, y)
