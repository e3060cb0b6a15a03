"""LLORMA: its kernels against plain numpy, its neighbourhoods, its settings, and the same bits."""

import math
from itertools import pairwise

import numpy as np
import pytest
from noisewise_reproduction.rivals.engine import local
from noisewise_reproduction.rivals.llorma import LLORMA
from shared import World, assert_same_bits, make_world, tensors_of
from sklearn.exceptions import NotFittedError

from noisewise import FitInterrupted, ModelFileError, SettingError, observe, storage


def make_model(**settings):
    """A model of the right size for the worlds of these tests."""
    chosen = {"rank": 3, "models": 8, "global_rank": 2, "learning_rate": 0.05, "l2": 0.05}
    return LLORMA(**{**chosen, "random_state": 0, "n_jobs": 1, **settings})


@pytest.fixture(scope="module")
def split(world):
    return world.halves()


@pytest.fixture(scope="module")
def fitted(split):
    return make_model().fit(split[0].X, split[0].y)


def rmse(model, world):
    return float(np.sqrt(np.mean((world.y - model.predict(world.X)) ** 2)))


# The kernels.


@pytest.fixture
def scene():
    """Observations, weights of three neighbourhoods, and a state, all random."""
    rng = np.random.default_rng(0)
    world = make_world(12, 9, 80, seed=2)
    data = observe(world.X, world.y - 3.0)
    weights = tuple(rng.uniform(-0.5, 1.0, (3, n + 1)).astype("f4").clip(0) for n in data.shape)
    for part in weights:
        part[:, -1] = 0.0
    state = local.LocalState.start(3, data.shape, 4, seed=1)
    cells = local.Cells.arrange(data.codes, data.values, data.shape, 5)
    return data, weights, state, cells


def value_of(rows, t, i, j):
    a, b = rows[0][t, i].astype(float), rows[1][t, j].astype(float)
    return a[0] + b[0] + a[1:] @ b[1:]


def stepped(rows, t, i, j, weight, error, rate, l2):
    """Change the rows of one model by one gradient step."""
    a, b = rows[0][t, i].copy(), rows[1][t, j].copy()
    keep, g = 1 - rate * weight * l2, rate * weight * error
    rows[0][t, i], rows[1][t, j] = keep * a + g * b, keep * b + g * a
    rows[0][t, i, 0], rows[1][t, j, 0] = keep * a[0] + g, keep * b[0] + g


def test_arranged_cells_are_the_observations_in_another_order(scene):
    data, _, _, cells = scene
    before, after = (
        sorted(zip(*(part.tolist() for part in (*given.codes, given.values)), strict=True))
        for given in (data, cells)
    )
    assert before == after
    for codes in cells.codes:
        in_block = [set(codes[a:b].tolist()) for a, b in pairwise(cells.starts[: cells.side + 1])]
        assert sum(map(len, in_block)) == len(set().union(*in_block))  # of the first stratum


def test_each_model_descends_its_own_weighted_error(scene):
    _, weights, state, cells = scene
    rows = tuple(part.astype(float) for part in state.rows)
    total = weight_sum = 0.0
    for t in range(3):
        for i, j, value in zip(*cells.codes, cells.values, strict=True):
            w = float(weights[0][t, i]) * float(weights[1][t, j])
            if w > 0:
                error = value - value_of(rows, t, i, j)
                total, weight_sum = total + w * error**2, weight_sum + w
                stepped(rows, t, i, j, w, error, 0.1, 0.3)
    info = local.epoch_of_each(state, cells, weights, 0.1, 0.3, n_jobs=1)
    for got, expected in zip(state.rows, rows, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)
    assert info.train_rmse == pytest.approx(math.sqrt(total / weight_sum), rel=1e-4)
    assert (info.epoch, state.epoch) == (1, 1)


def test_together_they_descend_the_error_of_their_blend(scene):
    _, weights, state, cells = scene
    rows = tuple(part.astype(float) for part in state.rows)
    order = np.random.default_rng([5, 7, 0]).permutation(cells.side)
    for stratum in order:
        part = slice(cells.starts[stratum * cells.side], cells.starts[(stratum + 1) * cells.side])
        for i, j, value in zip(*(c[part] for c in cells.codes), cells.values[part], strict=True):
            w = weights[0][:, i].astype(float) * weights[1][:, j]
            if w.sum() > 0:
                w /= w.sum()
                error = value - sum(w[t] * value_of(rows, t, i, j) for t in range(3))
                for t in np.flatnonzero(w):
                    stepped(rows, t, i, j, w[t], error, 0.1, 0.3)
    local.epoch_of_blend(state, cells, weights, 0.1, 0.3, seed=5, n_jobs=1)
    for got, expected in zip(state.rows, rows, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)


def test_the_blend_is_a_weighted_mean_and_knows_where_it_ends(scene):
    data, weights, state, _ = scene
    codes = tuple(
        np.append(c, n).astype(np.int32) for c, n in zip(data.codes, data.shape, strict=True)
    )
    mean, between, reached = local.blend(state, weights, codes, n_jobs=1)
    for n, (i, j) in enumerate(zip(*codes, strict=True)):
        w = weights[0][:, i].astype(float) * weights[1][:, j]
        assert reached[n] == (w.sum() > 0)
        if reached[n]:
            f = np.array([value_of(state.rows, t, i, j) for t in range(3)])
            middle = w @ f / w.sum()
            assert mean[n] == pytest.approx(middle, rel=1e-4, abs=1e-6)
            assert between[n] == pytest.approx(w @ (f - middle) ** 2 / w.sum(), rel=1e-3, abs=1e-6)
        else:
            assert mean[n] == between[n] == 0.0
    assert reached.any()
    assert not reached[-1]


# The neighbourhoods.


def test_weights_fall_with_the_angle_to_the_anchor(fitted):
    for mode, weights in enumerate(fitted.weights_):
        rows = fitted.factors_.state.mean_factors(mode)[:-1]
        (anchors,) = np.where((weights[:, :-1] == 1.0).any(axis=0))  # nothing is nearer than itself
        assert len(anchors) >= 6  # two may be alike
        t = int(np.argmax(weights[:, anchors[0]]))
        cosine = rows @ rows[anchors[0]]
        cosine /= np.linalg.norm(rows, axis=1) * np.linalg.norm(rows[anchors[0]])
        angle = np.arccos(np.clip(cosine, -1, 1))
        expected = np.maximum(1 - (angle / fitted.bandwidth) ** 2, 0)
        np.testing.assert_allclose(weights[t, :-1], expected, atol=2e-3)
        assert (weights[:, -1] == 0).all()


def test_the_quadratic_kernel_ends_at_the_bandwidth(split):
    train, _ = split
    model = make_model(kernel="quadratic", bandwidth=0.8, epochs=1).fit(train.X, train.y)
    weights = model.weights_[0]
    assert weights[weights > 0].min() >= 1 - 0.8**2 - 1e-4
    assert 0.05 < (weights > 0).mean() < 0.6


def test_anchors_are_observed_cells(small_world):
    X, y = small_world.X, small_world.y
    model = make_model(models=30, patience=None, epochs=1).fit(X, y)
    observed = {tuple(pair) for pair in np.column_stack(observe(X, y).codes).tolist()}
    first, second = (weights[:, :-1] > 1 - 1e-6 for weights in model.weights_)
    for t in range(30):
        pairs = {(i, j) for i in np.flatnonzero(first[t]) for j in np.flatnonzero(second[t])}
        assert pairs & observed


def test_where_no_neighbourhood_reaches_the_global_model_is_predicted(split):
    train, test = split
    model = make_model(models=2, bandwidth=0.3).fit(train.X, train.y)
    codes = observe(test.X, test.y, ids=model.ids_).codes
    reached = local.blend(model.local_, model.weights_, codes, 1).reached
    assert 0 < reached.mean() < 0.5
    everywhere = np.clip(model.factors_.moments(codes).mean, *model.value_range_)
    got = model.predict(test.X)
    np.testing.assert_array_equal(got[~reached], everywhere[~reached])
    assert (got[reached] != everywhere[reached]).all()


def two_tastes():
    """Users of two kinds and items of two kinds; what counts in one corner does not in another."""
    rng = np.random.default_rng(0)
    n = 160
    users, items = np.divmod(rng.permutation(n * n)[: n * n // 2], n)
    kind = 2 * (users < n // 2) + (items < n // 2)
    U, V = rng.normal(size=(4, n)), rng.normal(size=(4, n))
    group = np.where(users < n // 2, 1.0, -1.0) * np.where(items < n // 2, 1.0, -1.0)
    mean = group + U[kind, users] * V[kind, items]
    std = np.full(len(mean), 0.3)
    return World(np.column_stack([users, items]), rng.normal(mean, std), mean, std)


def test_local_models_see_what_a_global_one_of_their_rank_cannot():
    train, test = two_tastes().halves()
    settings = {"rank": 1, "global_rank": 3, "l2": 0.01, "epochs": 200, "random_state": 0}
    near, far = (
        LLORMA(models=40, bandwidth=bandwidth, n_jobs=1, **settings).fit(train.X, train.y)
        for bandwidth in (1.2, 100.0)
    )
    assert rmse(near, test) < 0.8 * rmse(far, test)


# The model.


@pytest.mark.parametrize("loss", ["local", "global"])
def test_mean_comes_close_to_the_best_there_is(split, loss):
    train, test = split
    rate = 0.05 if loss == "local" else 0.3
    model = make_model(loss=loss, learning_rate=rate).fit(train.X, train.y)
    best = np.sqrt(np.mean((test.y - test.mean) ** 2))
    assert rmse(model, test) < 1.1 * best
    assert rmse(model, test) < 0.8 * test.y.std()


def test_a_blend_of_many_beats_one(split):
    train, test = split
    one, many = (make_model(models=n, bandwidth=3.0).fit(train.X, train.y) for n in (1, 20))
    assert rmse(many, test) < rmse(one, test)


def test_epistemic_is_larger_where_the_models_disagree(fitted, split):
    _, test = split
    codes = observe(test.X, test.y, ids=fitted.ids_).codes
    between = local.blend(fitted.local_, fitted.weights_, codes, 1).between
    _, noise, epistemic = fitted.predict_parts(test.X)
    assert (noise == noise[0]).all()
    assert np.corrcoef(epistemic**2, between)[0, 1] > 0.5


def test_models_that_learn_together_may_disagree_without_epistemic(split):
    train, test = split
    model = make_model(loss="global", learning_rate=0.3).fit(train.X, train.y)
    codes = observe(test.X, test.y, ids=model.ids_).codes
    expected = model.std_scale_ * np.sqrt(model.factors_.moments(codes).epistemic)
    np.testing.assert_allclose(model.predict_parts(test.X)[2], expected, rtol=1e-5)
    std = model.predict([(3, 3), (-1, 3), (3, -1), (-1, -1)], return_std=True)[1]
    assert std[0] < min(std[1:3]) <= max(std[1:3]) < std[3]


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_intervals_cover_as_often_as_they_say(fitted, split, coverage):
    _, test = split
    low, high = fitted.predict_interval(test.X, coverage=coverage)
    assert np.mean((low <= test.y) & (test.y <= high)) == pytest.approx(coverage, abs=0.03)


# The same bits.


@pytest.mark.parametrize("loss", ["local", "global"])
def test_fit_and_predict_have_the_same_bits_for_any_number_of_threads(world, tmp_path, loss):
    models = [make_model(loss=loss, epochs=4, n_jobs=n).fit(world.X, world.y) for n in (1, 2, 4)]
    one, *others = (tensors_of(model, tmp_path) for model in models)
    for other in others:
        assert_same_bits(other, one)
    one, *others = (model.predict(world.X, return_std=True) for model in models)
    for other in others:
        np.testing.assert_array_equal(other, one)


class Killed(Exception):
    """Training was killed."""


def test_a_fit_of_the_blend_has_the_same_bits_after_being_killed(small_world, tmp_path):
    X, y = small_world.X, small_world.y
    settings = {"loss": "global", "learning_rate": 0.3}
    whole = make_model(**settings).fit(X, y)
    expected, last = tensors_of(whole, tmp_path), whole.n_epochs_
    assert last > 2
    model, kept = make_model(**settings), tmp_path / "kept"
    for in_refit, epoch in ((False, 2), (False, last + 2), (True, 1), (True, last)):

        def kill(info, state, in_refit=in_refit, epoch=epoch):
            if (info.validation_rmse is None) is in_refit and info.epoch == epoch:
                raise Killed

        with pytest.raises(Killed):
            model.fit(X, y, callbacks=[kill], checkpoint=kept)
    assert_same_bits(tensors_of(model.fit(X, y, checkpoint=kept), tmp_path), expected)


BREAKS = {
    "weights0 makes no sense": lambda tensors: {"weights0": -tensors["weights0"]},
    "weights1 must be": lambda tensors: {"weights1": tensors["weights1"][:3]},
    "local1 must be": lambda tensors: {"local1": tensors["local1"][:, :, 1:]},
}


@pytest.mark.parametrize("message", BREAKS)
def test_a_file_that_makes_no_sense_is_refused(fitted, tmp_path, message):
    fitted.save(tmp_path / "model")
    header, tensors = storage.read(tmp_path / "model", "model")
    storage.write(tmp_path / "model", "model", header, tensors | BREAKS[message](tensors))
    with pytest.raises(ModelFileError, match=message):
        LLORMA.load(tmp_path / "model")


def test_an_interrupt_before_the_first_epoch_is_passed_on(small_world, monkeypatch, ctrl_c):
    from noisewise.engine.sgd import strata

    visited = []

    def interrupted(*given, epoch=strata.epoch):
        visited.append(given)
        if len(visited) == 3:
            ctrl_c()
        return epoch(*given)

    monkeypatch.setattr(strata, "epoch", interrupted)
    model = make_model()
    with pytest.raises(KeyboardInterrupt):
        model.fit(small_world.X, small_world.y)
    assert not hasattr(model, "factors_")


def test_an_interrupt_among_its_models_is_passed_on_too(press_in_epoch, small_world):
    seen, model = press_in_epoch(2), make_model()
    with pytest.raises(KeyboardInterrupt) as stop:
        model.fit(small_world.X, small_world.y)
    assert not isinstance(stop.value, FitInterrupted)
    assert seen == [1, 2]
    with pytest.raises(NotFittedError):
        model.predict([(1, 2)])


# Settings.


CHANGES = {
    "rank": 2,
    "models": 5,
    "kernel": "quadratic",
    "bandwidth": 1.2,
    "loss": "global",
    "learning_rate": 0.02,
    "l2": 0.5,
    "global_rank": 3,
    "epochs": 2,
    "patience": None,
    "refit": False,
    "validation_fraction": 0.3,
    "random_state": 1,
}


@pytest.mark.parametrize(("name", "value"), CHANGES.items())
def test_each_setting_of_learning_changes_the_model(small_world, name, value):
    X, y = small_world.X, small_world.y
    before = make_model().fit(X, y)
    after = make_model().set_params(**{name: value}).fit(X, y)
    assert not np.array_equal(before.predict(X, return_std=True), after.predict(X, return_std=True))


@pytest.mark.parametrize("monitor", ["rmse", "nll"])
def test_monitor_chooses_the_epoch(small_world, monitor):
    model = make_model(monitor=monitor, refit=False, epochs=20, patience=20)
    model.fit(small_world.X, small_world.y)
    assert model.n_epochs_ == 1 + np.argmin(model.learning_curve_[f"validation_{monitor}"])


INVALID = {
    "rank": [-1, 1.5, None],
    "models": [0, None],
    "kernel": ["gaussian", None],
    "bandwidth": [0, -1, float("inf")],
    "loss": ["both", None],
    "learning_rate": [0, float("nan")],
    "l2": [-0.1, None],
    "global_rank": [0, 2.5],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in INVALID.items() for value in values]
)
def test_an_invalid_setting_is_named_with_its_value(small_world, name, value):
    with pytest.raises(SettingError, match=rf"^{name} must be .*; got {value!r}"):
        make_model(**{name: value}).fit(small_world.X, small_world.y)


@pytest.mark.parametrize("loss", ["local", "global"])
def test_numbers_that_blow_up_are_an_error_with_advice(small_world, loss):
    with pytest.raises(ArithmeticError, match=r"smaller learning_rate \(now 100000.0\)"):
        make_model(loss=loss, learning_rate=1e5).fit(small_world.X, 100 * small_world.y)


@pytest.mark.parametrize("settings", [{"rank": 0}, {"loss": "global"}])
@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.filterwarnings("ignore:All .* values are")
def test_a_handful_of_observations_is_enough(n, settings):
    X = [(f"user{k % 2}", f"item{k}") for k in range(n)]
    for y in (range(n), [3.0] * n):
        model = make_model(**settings).fit(X, y)
        mean, std = model.predict([*X, ("nobody", "nothing")], return_std=True)
        assert ((mean >= min(y)) & (mean <= max(y))).all()
        assert (np.isfinite(std) & (std > 0)).all()
