"""BayesianFactorizer: what it finds, what it says of its doubts, and what it refuses."""

import sys
import time

import numpy as np
import pandas as pd
import pytest
from shared import assert_same_bits, forkserver, tensors_of

from noisewise import (
    BayesianFactorizer,
    DataError,
    DivergedError,
    ModelFileError,
    SettingError,
    load,
    storage,
)
from noisewise.data import observe
from noisewise.engine.arrays import Moments
from noisewise.models import bayesian
from noisewise.models.base import Cells

pytestmark = pytest.mark.filterwarnings("ignore:Predictions have not settled")

QUICK = {"rank": 4, "sweeps": 60, "burn_in": 20, "samples": 40, "random_state": 0, "n_jobs": 1}
FULL = {"likelihood": "ordinal", "time": "when"}


def make_model(**settings):
    return BayesianFactorizer(**{**QUICK, **settings})


@pytest.fixture(scope="module")
def split(world):
    return world.halves()


@pytest.fixture(scope="module")
def fitted(split):
    return make_model().fit(split[0].X, split[0].y)


@pytest.fixture(scope="module")
def stars():
    """Ratings of one to five stars with times: users differ in what they call five stars."""
    rng = np.random.default_rng(0)
    users, items = np.divmod(rng.permutation(80 * 60)[:2500], 60)
    taste = rng.normal(size=80)[users] * rng.normal(size=60)[items] + rng.normal(size=60)[items]
    hidden = taste + rng.normal(0, 0.7, len(users))
    width = np.exp(rng.normal(0, 0.3, 80))[users]
    rating = 3 + np.clip(np.round(hidden / width), -2, 2)
    when = rng.integers(0, 10_000, len(users))
    return pd.DataFrame({"user": users, "item": items, "when": when}), rating


@pytest.fixture(scope="module")
def full(stars):
    """A model of levels and times; no test changes it."""
    return make_model(**FULL).fit(*stars)


def test_the_mean_and_the_noise_that_we_put_in_are_found(fitted, split):
    test = split[1]
    mean, noise, _ = fitted.predict_parts(test.X)
    assert np.sqrt(np.mean((mean - test.mean) ** 2)) < 0.4 * test.mean.std()
    assert np.corrcoef(noise, test.std)[0, 1] > 0.9


def test_low_rank_noise_is_likelier_than_one_noise_for_all(fitted, split):
    train, test = split
    constant = make_model(deviation="constant").fit(train.X, train.y)
    nll = []
    for model in (fitted, constant):
        mean, std = model.predict(test.X, return_std=True)
        nll.append(np.mean(np.log(std) + 0.5 * ((test.y - mean) / std) ** 2))
    assert nll[0] < nll[1] - 0.1
    noise = constant.predict_parts(test.X)[1]
    assert np.ptp(noise) < 1e-6


def test_ninety_percent_intervals_cover_ninety_percent_without_anything_held_out(fitted, split):
    test = split[1]
    low, high = fitted.predict_interval(test.X, coverage=0.9)
    assert 0.87 < np.mean((low <= test.y) & (test.y <= high)) < 0.93


def test_epistemic_shrinks_with_observations_and_noise_does_not(world):
    few = world.X[:, 0] % 2 == 0
    keep = ~few | (np.arange(len(few)) % 12 == 0)
    model = make_model().fit(world.X[keep], world.y[keep])
    cells = world.X[~keep | ~few]
    _, noise, epistemic = model.predict_parts(cells)
    rare = cells[:, 0] % 2 == 0
    assert epistemic[rare].mean() > 1.5 * epistemic[~rare].mean()
    assert noise[rare].mean() == pytest.approx(noise[~rare].mean(), rel=0.2)


def test_sets_help_where_what_is_seen_depends_on_taste():
    rng = np.random.default_rng(1)
    taste, kind = rng.normal(size=300), rng.normal(size=60)
    chance = 1 / (1 + np.exp(2.0 - 2.0 * np.outer(taste, kind)))
    users, items = np.nonzero(rng.uniform(size=chance.shape) < chance)
    y = taste[users] * kind[items] + rng.normal(0, 1.5, len(users))
    X = np.column_stack([users, items])
    test = rng.uniform(size=len(y)) < 0.3
    errors = []
    for implicit in (False, True):
        model = make_model(rank=2, implicit=implicit).fit(X[~test], y[~test])
        error = model.predict(X[test]) - taste[users[test]] * kind[items[test]]
        errors.append(np.sqrt(np.mean(error**2)))
    assert errors[1] < 0.95 * errors[0]


def test_time_follows_moods():
    rng = np.random.default_rng(2)
    users, items = np.divmod(rng.permutation(40 * 120)[:3600], 120)
    when = rng.permutation(len(users))
    mood = np.zeros(len(users))
    for user in range(40):
        own = np.flatnonzero(users == user)
        own = own[np.argsort(when[own])]
        mood[own] = np.repeat(rng.normal(size=len(own) // 15 + 1), 15)[: len(own)]
    y = mood + rng.normal(0, 0.5, len(users))
    frame = pd.DataFrame({"user": users, "item": items, "when": when})
    test = rng.uniform(size=len(y)) < 0.2
    errors = []
    for settings in ({}, {"time": "when"}):
        columns = ["user", "item", *settings.values()]
        model = make_model(rank=1, sweeps=120, **settings).fit(frame.loc[~test, columns], y[~test])
        predicted = model.predict(frame.loc[test, columns])
        errors.append(np.sqrt(np.mean((predicted - mood[test]) ** 2)))
    assert errors[1] < 0.7 * errors[0]


def test_probabilities_of_levels_sum_to_one_and_agree_with_mean_and_std(stars, full):
    model = full
    chances = model.predict_proba(stars[0])
    np.testing.assert_array_equal(model.levels_, [1, 2, 3, 4, 5])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-6)
    mean, std = model.predict(stars[0], return_std=True)
    np.testing.assert_allclose(chances @ model.levels_, mean, rtol=1e-4)
    square = chances @ model.levels_.astype(float) ** 2
    own = std.astype(float) ** 2 / model.calibration_.factor(mean, std)
    np.testing.assert_allclose(square - mean.astype(float) ** 2, own, atol=1e-4)
    observed = np.bincount((stars[1] - 1).astype(int)) / len(stars[1])
    np.testing.assert_allclose(chances.mean(axis=0), observed, atol=0.02)


def test_only_levels_have_probabilities(fitted):
    assert not hasattr(fitted, "predict_proba")


def test_a_time_may_be_left_out_and_then_means_after_the_last_rating(stars):
    frame, y = stars
    model = make_model(time="when").fit(frame, y)
    cells = frame[["user", "item"]]
    late = frame.assign(when=10**9)
    np.testing.assert_array_equal(model.predict(cells), model.predict(late))
    assert not np.array_equal(model.predict(cells), model.predict(frame))


def test_times_may_come_with_observations_or_as_a_numbered_column(stars):
    frame, y = stars
    named = make_model(time="when").fit(frame, y)
    observations = observe(frame[["user", "item"]], y, time=frame["when"])
    given = make_model(time="when").fit(observations)
    np.testing.assert_array_equal(given.predict(observations), named.predict(frame))
    numbered = make_model(time=2).fit(frame.to_numpy(), y)
    np.testing.assert_array_equal(numbered.predict(frame.to_numpy()), named.predict(frame))


def test_three_modes_are_a_tensor():
    rng = np.random.default_rng(3)
    i, j, k = np.unravel_index(rng.permutation(30 * 20 * 8)[:3000], (30, 20, 8))
    U, V, T = (rng.normal(size=(n, 2)) for n in (30, 20, 8))
    p = rng.uniform(0.1, 0.8, 30)
    mean = (U[i] * V[j] * T[k]).sum(axis=1)
    y = mean + p[i] * rng.normal(size=len(i))
    X = np.column_stack([i, j, k])
    model = make_model(rank=3, sweeps=150, burn_in=80).fit(X[:2400], y[:2400])
    predicted, noise, _ = model.predict_parts(X[2400:])
    assert np.corrcoef(predicted, mean[2400:])[0, 1] > 0.95
    assert np.corrcoef(noise, p[i[2400:]])[0, 1] > 0.8
    far = model.predict([(99, 99, 99)], return_std=True)
    assert np.isfinite(far).all()
    with pytest.raises(DataError, match="recommend needs a model of 2 id columns"):
        model.recommend(1)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("settings", [{}, {"deviation": "constant", "implicit": False}])
def test_fold_in_comes_close_to_a_full_fit(world, mode, settings):
    late = world.X[:, mode] < 6
    old, new = world.part(~late), world.part(late)
    train, test = new.halves()
    X = np.concatenate([old.X, train.X])
    whole = make_model(**settings).fit(X, np.append(old.y, train.y))
    model = make_model(**settings).fit(old.X, old.y)
    folded, full = [], []
    for id in range(6):
        mine, ask = (part.X[:, mode] == id for part in (train, test))
        row = model.fold_in(train.X[mine, 1 - mode], train.y[mine], mode=mode)
        folded += row.predict(test.X[ask, 1 - mode]).tolist()
        full += whole.predict(test.X[ask]).tolist()
    assert np.corrcoef(folded, full)[0, 1] > 0.95


def test_fold_in_of_levels_refuses_what_is_no_level(stars):
    model = make_model(likelihood="ordinal").fit(stars[0][["user", "item"]], stars[1])
    assert 1 <= model.fold_in([1, 2, 3], [5, 4, 5]).predict([7])[0] <= 5
    assert 1 <= model.fold_in([1, 2, 3], [5, 4, 5], mode=1).predict([7])[0] <= 5
    with pytest.raises(DataError, match=r"levels \[1.0, 2.0, 3.0, 4.0, 5.0\]; got 2.5"):
        model.fold_in([1, 2], [5, 2.5])


@pytest.mark.parametrize("of", ["numbers", "levels"])
def test_recommendations_are_what_predict_says(stars, full, of):
    frame, y = stars
    model = full if of == "levels" else make_model().fit(frame[["user", "item"]], y)
    best = model.recommend(3, n=5)
    assert len(best) == 5
    cells = [(3, r.id) for r in best]
    mean, std = model.predict(cells, return_std=True)
    np.testing.assert_allclose([r.mean for r in best], mean, rtol=1e-4)
    np.testing.assert_allclose([r.std for r in best], std, rtol=1e-3)
    rated = set(frame.item[frame.user == 3])
    assert not rated & {r.id for r in best}
    assert len(model.similar(1, 3)) == 3
    assert model.row(3).observations == len(rated)


def test_the_record_has_the_running_error_on_what_was_held_out(split):
    train, test = (observe(part.X, part.y) for part in split)
    model = make_model(samples=40).fit(train, validation=test)
    curve = model.learning_curve_["validation_rmse"]
    assert len(curve) == 60
    assert np.isnan(curve[:20]).all()
    error = np.sqrt(np.mean((model.predict(test) - test.values) ** 2))
    assert curve[-1] == pytest.approx(error, rel=1e-3)
    assert curve[-1] < curve[20]


def test_what_is_held_out_is_only_watched(split):
    train, test = (observe(part.X, part.y) for part in split)
    scrambled = observe(split[1].X, np.random.default_rng(0).permutation(split[1].y))
    one, other = (
        make_model(sweeps=12, burn_in=4).fit(train, validation=v) for v in (test, scrambled)
    )
    np.testing.assert_array_equal(
        one.predict(test, return_std=True), other.predict(test, return_std=True)
    )


def test_chains_pool_their_draws(small_world):
    model = make_model(chains=2, samples=30).fit(small_world.X, small_world.y)
    assert len(model.factors_) == 30
    assert model.n_epochs_ == 120
    assert model.convergence_["predictions (median)"]["rhat"] < 1.1


def test_a_tolerance_stops_a_chain_that_has_settled(small_world):
    X, y = small_world.X, small_world.y
    assert make_model(tolerance=1.0).fit(X, y).n_epochs_ < 60
    assert make_model(tolerance=1e-9).fit(X, y).n_epochs_ == 60


@pytest.mark.filterwarnings("error")
def test_a_chain_that_is_too_short_warns(world, monkeypatch):
    monkeypatch.setattr(bayesian, "WORST_RHAT", 1.0)  # which no chain so short reaches
    with pytest.warns(UserWarning, match=r"not settled.*raise sweeps \(now 12\)"):
        make_model(sweeps=12, burn_in=0).fit(world.X, world.y)


BAD = {
    "burn_in": ({"burn_in": 60}, "sweeps must be more than burn_in; got 60 and 60"),
    "deviation": ({"deviation": "some"}, "deviation must be one of 'lowrank'"),
    "likelihood": ({"likelihood": "poisson"}, "likelihood must be one of"),
    "time": ({"time": 1.5}, "time must be the name of a column, its number counted from 0"),
    "chains": ({"chains": 0}, "chains must be a whole number, 1 or more"),
}


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_setting_is_named(small_world, settings, message):
    with pytest.raises(SettingError, match=message):
        make_model(**settings).fit(small_world.X, small_world.y)


def test_data_that_do_not_fit_the_settings_are_named(small_world):
    X, y = small_world.X, small_world.y
    with pytest.raises(DataError, match="2 to 50 distinct values; got 400"):
        make_model(likelihood="ordinal").fit(X, y)
    with pytest.raises(DataError, match="have no times"):
        make_model(time="when").fit(observe(X, y))
    with pytest.raises(DataError, match="no column 'when' with times; it has a, b"):
        make_model(time="when").fit(pd.DataFrame(X, columns=["a", "b"]), y)
    three = np.column_stack([X, X[:, 0] % 2])
    with pytest.raises(DataError, match="implicit=True needs 2 id columns; got 3"):
        make_model(implicit=True).fit(three, y)


@pytest.mark.parametrize("settings", [{}, FULL], ids=["numbers", "everything"])
def test_draws_have_the_same_bits_for_any_number_of_threads(stars, settings, tmp_path):
    columns = ["user", "item"] + (["when"] if "time" in settings else [])
    quick = {"sweeps": 14, "burn_in": 4, **settings}
    one, *others = (
        tensors_of(make_model(n_jobs=n, **quick).fit(stars[0][columns], stars[1]), tmp_path)
        for n in (1, 2, 4)
    )
    for other in others:
        assert_same_bits(other, one)


def test_a_loaded_model_has_the_same_bits(stars, full, tmp_path):
    frame, model = stars[0], full
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_parts(frame), model.predict_parts(frame))
    np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    assert loaded.recommend(3) == model.recommend(3)
    new, loaded_new = (m.fold_in([1, 2, 3], [5, 4, 3]) for m in (model, loaded))
    np.testing.assert_array_equal(loaded_new.predict([7, 8, -1]), new.predict([7, 8, -1]))
    assert loaded.convergence_.keys() == model.convergence_.keys()


@pytest.mark.parametrize("part", ["draws.noise", "levels", "timeline0.starts", "draws.gaps1"])
def test_a_damaged_file_is_refused(full, tmp_path, part):
    full.save(tmp_path / "model")
    header, tensors = storage.read(tmp_path / "model", "model")
    tensors[part] = -tensors[part][:-1]
    storage.write(tmp_path / "model", "model", header, tensors)
    with pytest.raises(ModelFileError, match="is damaged"):
        load(tmp_path / "model")


def sample_slowly(frame, y, folder, progress, last):
    """Fit with a checkpoint, and save; report each sweep, and wait to be killed after the last."""

    def report(info, state):
        progress.value += 1
        time.sleep(0.004 if info.epoch < last else 600)

    settings = {"sweeps": 30, "burn_in": 10, "chains": 2, **FULL}
    often = {"checkpoint": folder / "checkpoint", "checkpoint_epochs": 3}
    make_model(**settings).fit(frame, y, callbacks=[report], **often).save(folder / "done")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork and no SIGKILL on Windows")
def test_sampling_goes_on_with_the_same_bits_after_being_killed(stars, tmp_path):
    settings = {"sweeps": 30, "burn_in": 10, "chains": 2, **FULL}
    expected = tensors_of(make_model(**settings).fit(*stars), tmp_path)
    context = forkserver()
    rng = np.random.default_rng()
    progress = context.RawValue("i", 0)  # without a lock, that a killed process might hold
    for moment in (5, 17, 12, 8):  # sweeps after the checkpoint before: in both chains
        progress.value = 0
        job = (*stars, tmp_path, progress, 10**9)
        process = context.Process(target=sample_slowly, args=job)
        process.start()
        while progress.value < moment and process.is_alive():
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02))
        process.kill()
        process.join()
        assert process.exitcode == -9
    sample_slowly(*stars, tmp_path, progress, 10**9)
    assert_same_bits(storage.read(tmp_path / "done", "model")[1], expected)
    assert not list(tmp_path.glob("checkpoint*"))


def test_variances_whose_sum_is_infinite_are_refused(small_world):
    model = make_model().fit(small_world.X, small_world.y)
    huge = np.full(3, 3e38, dtype=np.float32)
    cells = Cells(Moments(np.zeros(3, dtype=np.float32), huge, huge), np.zeros(3, dtype=bool))
    with pytest.raises(DivergedError, match="not finite"):
        model.finished(cells)
