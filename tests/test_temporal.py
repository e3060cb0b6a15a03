"""TemporalFactorizer: what it finds, what it says of its doubts, and what it refuses."""

import datetime
import pickle
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from noisewise import storage
from noisewise.data import observe
from noisewise.errors import DataError, FitInterrupted, ModelFileError, SettingError
from noisewise.models import load
from noisewise.models.series import OUSmoother
from noisewise.models.temporal import TemporalFactorizer

pytestmark = pytest.mark.filterwarnings("ignore:Predictions have not settled")

QUICK = {"rank": 3, "sweeps": 80, "burn_in": 7, "tolerance": None, "random_state": 0, "n_jobs": 1}
KINDS = ("heat", "damp")
UNITS = {"heat": (20.0, 3.0), "damp": (500.0, 90.0)}  # mean and std


def make_model(**settings):
    return TemporalFactorizer(**{**QUICK, **settings})


@dataclass(frozen=True)
class Sensors:
    """Cells (place, kind, time), values, and the truth: values without noise, and its std."""

    X: np.ndarray
    y: np.ndarray
    truth: np.ndarray
    noise: np.ndarray

    def part(self, index):
        return Sensors(self.X[index], self.y[index], self.truth[index], self.noise[index])


def make_sensors(n_places=12, n_times=150, seed=0):
    """All cells of sensors that share two signals, drift on their own, and are noisy; shuffled."""
    rng = np.random.default_rng(seed)
    time = np.cumsum(rng.uniform(0.5, 1.5, n_times)).round(3)
    signals = rng.normal(size=(2, n_times))  # as fast as can be: neighbours in time do not tell
    of_place, of_kind = rng.normal(0.0, 0.8, (n_places, 2)), {k: rng.normal(size=2) for k in KINDS}
    cells, truth, noise = [], [], []
    for place in range(n_places):
        for kind in KINDS:
            weights, drift = of_place[place] * of_kind[kind], np.zeros(n_times)
            length, amplitude = rng.uniform(5.0, 30.0), rng.uniform(0.1, 0.6)
            for k in range(n_times):
                phi = np.exp(-(time[k] - time[k - 1]) / length) if k else 0.0
                drift[k] = phi * drift[k - 1] + np.sqrt(amplitude * (1 - phi**2)) * rng.normal()
            mean, std = UNITS[kind]
            cells += [(f"p{place}", kind, t) for t in time.tolist()]
            truth += (mean + std * (weights @ signals + drift)).tolist()
            noise += [std * rng.uniform(0.05, 0.5)] * n_times
    order = rng.permutation(len(cells))
    X, truth, noise = (
        np.array(a, dtype=d) for a, d in ((cells, object), (truth, float), (noise, float))
    )
    return Sensors(X, rng.normal(truth, noise), truth, noise).part(order)


def in_units(values, X):
    """Values over the std of their kind."""
    return values / np.array([UNITS[kind][1] for kind in X[:, 1]])


@pytest.fixture(scope="module")
def sensors():
    return make_sensors()


@pytest.fixture(scope="module")
def cells(sensors):
    """Half of the cells to train on, and the rest."""
    half = len(sensors.y) // 2
    return sensors.part(slice(half)), sensors.part(slice(half, None))


@pytest.fixture(scope="module")
def outages(sensors):
    """A fifth of the stretches of single series are silent."""
    rng = np.random.default_rng(1)
    stretch = (sensors.X[:, 2].astype(float) // 15).astype(int)
    names = np.array([f"{p} {k} {s}" for (p, k), s in zip(sensors.X[:, :2], stretch, strict=True)])
    blocks, block = np.unique(names, return_inverse=True)
    silent = (rng.uniform(size=len(blocks)) < 0.2)[block]
    return sensors.part(~silent), sensors.part(silent)


@pytest.fixture(scope="module")
def fitted(cells):
    return make_model().fit(cells[0].X, cells[0].y)


def tensors_of(model, folder):
    model.save(folder / "model")
    return storage.read(folder / "model", "model")[1]


def assert_same_bits(got, expected):
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(got[name], tensor, err_msg=name)


@pytest.mark.parametrize("hidden", ["cells", "outages"])
@pytest.mark.parametrize("kernel", ["ou", "matern32"])
def test_what_is_hidden_is_predicted_better_than_from_single_series(hidden, kernel, request):
    train, test = request.getfixturevalue(hidden)
    errors = []
    for model in (make_model(kernel=kernel), OUSmoother(n_jobs=1)):
        error = model.fit(train.X, train.y).predict(test.X) - test.truth
        errors.append(np.mean(in_units(error, test.X) ** 2))
    assert errors[0] < 0.3 * errors[1]


@pytest.mark.parametrize("hidden", ["cells", "outages"])
def test_ninety_percent_intervals_cover_ninety_percent_without_anything_held_out(hidden, request):
    train, test = request.getfixturevalue(hidden)
    low, high = make_model().fit(train.X, train.y).predict_interval(test.X, coverage=0.9)
    least = {"cells": 0.86, "outages": 0.84}[hidden]  # readings of an outage err together
    assert least < np.mean((low <= test.y) & (test.y <= high)) < 0.94


def test_what_is_held_out_says_how_far_intervals_reach_and_is_learned_from(cells):
    train, test = cells
    heavy = np.where(np.arange(len(train.y)) % 20 == 0, 4.0 * train.noise, 0.0)  # one in twenty
    y = train.y + heavy * np.random.default_rng(2).choice([-1.0, 1.0], len(heavy))
    fifth = len(y) // 5
    kept, held_out = observe(train.X[fifth:], y[fifth:]), observe(train.X[:fifth], y[:fifth])
    model = make_model().fit(kept, validation=held_out)
    assert model.calibration_.n == fifth
    alone = make_model().fit(
        np.append(train.X[fifth:], train.X[:fifth], axis=0), np.roll(y, -fifth)
    )
    np.testing.assert_allclose(model.predict(test.X), alone.predict(test.X), rtol=1e-4)
    assert model.predict(test.X, return_std=True)[1].mean() != alone.predict(test.X, True)[1].mean()
    low, high = model.predict_interval(held_out, coverage=0.9)
    assert 0.88 < np.mean((low <= held_out.values) & (held_out.values <= high)) <= 1


def test_a_calibrated_model_keeps_its_intervals_in_a_file(cells, tmp_path):
    train, test = cells
    model = make_model(sweeps=20).fit(
        observe(train.X[200:], train.y[200:]), validation=observe(train.X[:200], train.y[:200])
    )
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        TemporalFactorizer.load(tmp_path / "model").predict_interval(test.X),
        model.predict_interval(test.X),
    )


def test_noise_and_drift_of_every_series_are_found(fitted, cells):
    train, _ = cells
    found = pd.DataFrame(fitted.noise_by_series_)
    assert list(found.columns[:2]) == ["mode0", "mode1"]
    assert len(found) == 24
    assert found["observations"].sum() == len(train.y)
    for kind in KINDS:
        own = train.X[:, 1] == kind
        frame = pd.DataFrame({"place": train.X[own, 0], "noise": train.noise[own]})
        truth = frame.groupby("place")["noise"].first()
        rows = found[found["mode1"] == kind].set_index("mode0").loc[truth.index]
        assert np.corrcoef(rows["noise_std"], truth)[0, 1] > 0.8
        assert rows["noise_std"].mean() == pytest.approx(truth.mean(), rel=0.25)
        assert (rows["drift_std"] > 0).all()
        assert 1.0 < rows["timescale"].median() < 150.0


def test_a_sensor_that_wanders_off_drifts_and_one_that_is_shaky_scatters(sensors):
    X, y = sensors.X, sensors.y.copy()
    time = X[:, 2].astype(float)
    off = (X[:, 0] == "p1") & (X[:, 1] == "heat")
    y[off] += 8.0 * np.maximum(time[off] - 75.0, 0.0) / 75.0 * UNITS["heat"][1]
    shaky = (X[:, 0] == "p2") & (X[:, 1] == "heat")
    y[shaky] += np.random.default_rng(0).normal(0, 2.0 * UNITS["heat"][1], shaky.sum())
    found = pd.DataFrame(make_model().fit(X, y).noise_by_series_)
    found = found[found["mode1"] == "heat"].set_index("mode0")
    assert found["drift_std"].idxmax() == "p1"
    assert found["noise_std"].idxmax() == "p2"


def test_noise_that_follows_the_calendar_is_found():
    rng = np.random.default_rng(3)
    X = np.array([(place, hour) for place in range(4) for hour in range(24 * 20)])
    wild = np.where(X[:, 1] % 24 < 12, 1.0, 0.1)
    y = np.sin(X[:, 1] / 24 * 2 * np.pi) + wild * rng.normal(size=len(X))
    test = rng.random(len(X)) < 0.2
    model = make_model(seasons=[24.0], rank=1).fit(X[~test], y[~test])
    _, std = model.predict(X[test], return_std=True)
    loud = wild[test] == 1.0
    assert 0.7 < std[loud].mean() < 1.4
    assert std[~loud].mean() < 0.3


def test_a_blackout_is_filled_by_the_season():
    rng = np.random.default_rng(4)
    X = np.array([(place, hour) for place in range(5) for hour in range(24 * 15)])
    day = 2.0 * np.sin(X[:, 1] / 24 * 2 * np.pi) * (1 + 0.2 * X[:, 0])
    y = day + 0.2 * rng.normal(size=len(X))
    dark = (X[:, 1] >= 150) & (X[:, 1] < 174)
    errors = {}
    for seasons in (None, "auto"):
        model = make_model(seasons=seasons).fit(X[~dark], y[~dark])
        errors[seasons] = np.sqrt(np.mean((model.predict(X[dark]) - day[dark]) ** 2))
    assert [one.period for one in model.seasons_] == [24.0]
    assert errors["auto"] < 0.3 < errors[None]


def test_a_blackout_of_a_moment_is_as_good_as_a_line():
    rng = np.random.default_rng(5)
    common = np.cumsum(rng.normal(size=200))
    X = np.array([(place, t) for place in range(4) for t in range(200)])
    y = common[X[:, 1]] * (1 + 0.3 * X[:, 0]) + 0.05 * rng.normal(size=len(X))
    dark = X[:, 1] % 10 == 5
    line = 0.5 * (y[np.flatnonzero(dark) - 1] + y[np.flatnonzero(dark) + 1])
    mean = make_model().fit(X[~dark], y[~dark]).predict(X[dark])
    errors = [np.sqrt(np.mean((guess - y[dark]) ** 2)) for guess in (mean, line)]
    assert errors[0] < 1.05 * errors[1]


def test_times_that_are_nearly_the_same_are_one():
    rows = [(place, hour + jitter, float(hour % 7)) for place in "ab" for hour in range(40)
            for jitter in (0.0, 1e-7)]  # fmt: skip
    model = make_model(rank=1).fit(rows)
    assert len(model.posterior_.stamps) == 40
    assert np.isfinite(model.predict([("a", 3.0), ("b", 39.5)], return_std=True)).all()


def test_epistemic_grows_with_the_gap_and_noise_does_not(fitted, cells):
    last = max(cells[0].X[:, 2])
    _, noise, epistemic = fitted.predict_parts([("p1", "heat", last + t) for t in (0, 2, 20, 500)])
    np.testing.assert_allclose(noise, noise[0], rtol=1e-5)
    assert (np.diff(epistemic) > -1e-2 * epistemic[:-1]).all()
    assert epistemic[1] > epistemic[0]


def test_time_may_be_any_mode_by_number_or_name(fitted, cells):
    train, test = cells
    expected = fitted.predict(test.X[:200], return_std=True)
    names = ["place", "kind", "when"]
    frame, asked = (pd.DataFrame(part.X, columns=names) for part in (train, test))
    frame, asked = (f.astype({"when": float})[["when", "place", "kind"]] for f in (frame, asked))
    for time, sensor in (("when", "kind"), (0, 2), (-3, -1)):
        model = make_model(time=time, sensor=sensor).fit(frame, train.y)
        np.testing.assert_array_equal(model.predict(asked[:200], return_std=True), expected)


@pytest.mark.parametrize("many", [2, 4])
def test_two_modes_and_four_modes_work(many, cells):
    train, test = cells

    def reshaped(X):
        if many == 2:
            return [(f"{place} {kind}", t) for place, kind, t in X]
        return [(place[0], place[1:], kind, t) for place, kind, t in X]

    sensor = None if many == 2 else 2
    y, truth = (in_units(values, part.X) for values, part in ((train.y, train), (test.truth, test)))
    model = make_model(sensor=sensor).fit(reshaped(train.X), y)
    error = model.predict(reshaped(test.X)) - truth
    single = OUSmoother(sensor=sensor, n_jobs=1).fit(reshaped(train.X), y)
    assert np.mean(error**2) < 0.5 * np.mean((single.predict(reshaped(test.X)) - truth) ** 2)


def test_unknown_ids_and_times_never_fail_and_have_a_wider_std(fitted, cells):
    X = cells[1].X[:300]
    known = fitted.predict(X, return_std=True)[1]
    for mode, id in ((0, "nowhere"), (2, 1e9)):
        asked = X.copy()
        asked[:, mode] = id
        mean, std = fitted.predict(asked, return_std=True)
        assert np.isfinite(mean).all()
        assert in_units(std, X).mean() > in_units(known, X).mean()
    for cell in (("p1", "strange", 5.0), ("nowhere", "strange", 5.0), ("p1", "heat", "soon")):
        mean, std = fitted.predict([cell], return_std=True)
        assert np.isfinite(mean).all()
        assert std[0] > 0


def test_a_new_time_between_two_known_ones_is_told_by_the_drift(fitted, cells):
    own = (cells[0].X[:, 0] == "p1") & (cells[0].X[:, 1] == "heat")
    time = np.sort(cells[0].X[own, 2].astype(float))
    between, far = 0.5 * (time[3] + time[4]), time[-1] + 1000.0
    near_std, far_std = fitted.predict(
        [("p1", "heat", between), ("p1", "heat", far)], return_std=True
    )[1]
    assert near_std < far_std


def test_unknown_ids_can_have_a_constant(cells):
    model = make_model(sweeps=12, unknown=-7.0, value_range=None).fit(cells[0].X, cells[0].y)
    asked = [("nowhere", "heat", 3.0), ("p1", "strange", 3.0), ("p1", "heat", "soon")]
    np.testing.assert_array_equal(model.predict(asked), -7.0)
    assert model.predict([("p1", "heat", 3.5)])[0] != -7.0  # a new time is not unknown


def test_a_series_never_observed_is_told_by_its_place_and_its_kind(sensors):
    hidden = (sensors.X[:, 0] == "p2") & (sensors.X[:, 1] == "damp")
    model = make_model().fit(sensors.X[~hidden], sensors.y[~hidden])
    mean, std = model.predict(sensors.X[hidden], return_std=True)
    assert np.isfinite(mean).all()
    other = (sensors.X[:, 0] == "p3") & (sensors.X[:, 1] == "damp")
    assert std.mean() > model.predict(sensors.X[other], return_std=True)[1].mean()


def test_dates_are_times_with_real_distances():
    day, rng = datetime.date(2004, 2, 1), np.random.default_rng(0)
    days = [day + datetime.timedelta(int(k)) for k in np.cumsum(rng.integers(1, 9, 40))]
    seconds = [86400 * (d - datetime.date(1970, 1, 1)).days for d in days]
    values = rng.normal(size=(3, 40)).cumsum(axis=1)
    forms = [days, [d.isoformat() for d in days], seconds]
    predictions = []
    for form in forms:
        rows = [(i, t, v) for i in range(3) for t, v in zip(form, values[i], strict=True)]
        model = make_model(rank=1, sweeps=20).fit(rows[::2])
        predictions.append(model.predict([row[:2] for row in rows]))
    np.testing.assert_array_equal(predictions[0], predictions[1])
    np.testing.assert_array_equal(predictions[0], predictions[2])


@pytest.mark.parametrize("settings", [{}, {"tails": "heavy"}], ids=["normal", "heavy tails"])
def test_draws_have_the_same_bits_for_any_number_of_threads(cells, settings, tmp_path):
    train, _ = cells
    one, *others = (
        tensors_of(make_model(n_jobs=n, sweeps=14, **settings).fit(train.X, train.y), tmp_path)
        for n in (1, 2, 4)
    )
    for other in others:
        assert_same_bits(other, one)


def test_files_pickles_and_threads_keep_every_bit_of_predictions(fitted, cells, tmp_path):
    asked = [*cells[1].X.tolist(), ("nowhere", "heat", 3.0), ("p1", "heat", 77.7)]
    fitted.save(tmp_path / "model")
    expected = fitted.predict_parts(asked)
    loaded = load(tmp_path / "model")
    for other in (loaded, pickle.loads(pickle.dumps(fitted)), loaded.set_params(n_jobs=3)):
        np.testing.assert_array_equal(other.predict_parts(asked), expected)
    for name, column in fitted.noise_by_series_.items():
        np.testing.assert_array_equal(loaded.noise_by_series_[name], column)
    assert loaded.convergence_.keys() == fitted.convergence_.keys()
    assert loaded.n_epochs_ == 80
    loaded.save(tmp_path / "again")
    assert_same_bits(
        storage.read(tmp_path / "again", "model")[1], storage.read(tmp_path / "model", "model")[1]
    )
    with pytest.raises(NotFittedError):
        clone(fitted).predict(asked)


def test_a_prediction_does_not_depend_on_the_others(fitted, cells):
    X = cells[1].X[:20]
    together = np.array(fitted.predict(X, return_std=True))
    alone = np.array([fitted.predict(X[k : k + 1], return_std=True) for k in range(20)])
    np.testing.assert_array_equal(alone[:, :, 0].T, together)


def test_observations_frames_and_arrays_are_all_the_same(cells, tmp_path):
    train, test = cells
    expected = make_model(sweeps=12).fit(train.X, train.y)
    given = make_model(sweeps=12).fit(observe(train.X, train.y))
    assert_same_bits(tensors_of(given, tmp_path), tensors_of(expected, tmp_path))
    asked = observe(test.X, test.y)
    np.testing.assert_array_equal(given.predict(asked), expected.predict(test.X))


def test_an_interrupted_fit_is_still_a_model_and_goes_on_with_the_same_bits(cells, tmp_path):
    train, test = cells
    often = {"checkpoint": tmp_path / "checkpoint", "checkpoint_epochs": 7}

    def interrupt(info, state):
        if info.epoch == 17:
            raise KeyboardInterrupt

    model = make_model(sweeps=30)
    with pytest.raises(FitInterrupted, match=r"sweep 17 of 30: .* from 9 draws"):
        model.fit(train.X, train.y, callbacks=[interrupt], **often)
    assert np.isfinite(model.predict(test.X, return_std=True)).all()
    assert (tmp_path / "checkpoint").exists()
    seen = []
    again = make_model(n_jobs=2, sweeps=30)
    again.fit(train.X, train.y, callbacks=[lambda info, _: seen.append(info.epoch)], **often)
    assert seen == list(range(18, 31))
    assert not (tmp_path / "checkpoint").exists()
    once = make_model(sweeps=30).fit(train.X, train.y)
    assert_same_bits(tensors_of(again, tmp_path), tensors_of(once, tmp_path))
    assert again.learning_curve_["train_rmse"] == once.learning_curve_["train_rmse"]


def test_a_checkpoint_of_other_data_is_refused(cells, tmp_path):
    train, _ = cells
    often = {"checkpoint": tmp_path / "checkpoint", "checkpoint_epochs": 1}

    def fail(info, state):
        if info.epoch == 3:
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        make_model(sweeps=8).fit(train.X, train.y, callbacks=[fail], **often)
    with pytest.raises(ModelFileError, match="other data or other settings"):
        make_model(sweeps=8).fit(train.X, 2 * train.y, **often)


def test_a_fit_that_fails_leaves_the_model_as_it_was(cells):
    def fail(info, state):
        raise ArithmeticError

    train, test = cells
    model = make_model(sweeps=12).fit(train.X[:600], train.y[:600])
    before = model.predict(test.X, return_std=True)
    with pytest.raises(ArithmeticError):
        model.fit(train.X[600:], train.y[600:], callbacks=[fail])
    np.testing.assert_array_equal(model.predict(test.X, return_std=True), before)


def test_a_tolerance_stops_a_chain_that_has_settled(cells):
    X, y = cells[0].X, cells[0].y
    assert make_model(sweeps=130, tolerance=1.0).fit(X, y).n_epochs_ == 59
    assert make_model(sweeps=130, tolerance=1e-9).fit(X, y).n_epochs_ == 130


@pytest.mark.filterwarnings("error")
def test_a_chain_that_is_too_short_warns_unless_nothing_was_asked(cells):
    X, y = cells[0].X, cells[0].y
    with pytest.warns(UserWarning, match=r"after 25 sweeps: so few.*sweeps \(now 25\)"):
        make_model(sweeps=25, tolerance=0.01).fit(X, y)
    with pytest.warns(UserWarning, match=r"after 101 sweeps: the mean.*off by 0\.\d+ of its std"):
        make_model(sweeps=101, tolerance=0.001).fit(X, y)
    make_model(sweeps=25, tolerance=None).fit(X, y)


def test_the_record_has_every_sweep(fitted):
    curve = fitted.learning_curve_
    assert curve["epoch"] == list(range(1, 81))
    assert curve["train_rmse"][-1] < curve["train_rmse"][0]
    assert fitted.convergence_["predictions (median)"]["rhat"] < 1.3
    assert {"timescale", "amplitude", "noise"} <= fitted.convergence_.keys()


def test_a_rank_of_zero_leaves_biases_and_drift(cells):
    train, test = cells
    model = make_model(rank=0).fit(train.X, train.y)
    error = in_units(model.predict(test.X) - test.truth, test.X)
    assert np.mean(error**2) < np.mean(in_units(test.truth - 0, test.X) ** 2)
    assert np.isfinite(error).all()


SMALL = {
    "one observation of each series": [("a", 1, 1.0), ("b", 2, 3.0)],
    "one series": [("a", t, float(t % 3)) for t in range(9)],
    "one time": [("a", 1, 1.0), ("b", 1, 2.0), ("c", 1, 4.0)],
    "constants": [(place, t, 7.0) for place in "ab" for t in range(5)],
    "zeros": [(place, t, 0.0) for place in "ab" for t in range(5)],
    "equal times": [
        ("a", t, float(k)) for k, t in enumerate(["2004-01-01", "2004-01-01T00", "2004-01-02"])
    ],
}


@pytest.mark.parametrize("rows", SMALL.values(), ids=SMALL.keys())
@pytest.mark.parametrize("tails", ["normal", "heavy"])
def test_little_data_is_enough(rows, tails):
    model = make_model(rank=2, sweeps=20, tails=tails).fit(rows)
    asked = [row[:2] for row in rows]
    mean, std = model.predict(asked, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()
    low, high = model.value_range_
    assert ((low - 1e-3 <= mean) & (mean <= high + 1e-3)).all()


def test_duplicates_are_refused_unless_it_is_said_what_to_do():
    rows = [("a", 1, 1.0), ("a", 1, 3.0), ("a", 2, 5.0)]
    with pytest.raises(DataError, match="given more than once"):
        make_model().fit(rows)
    model = make_model(duplicates="mean", sweeps=8, burn_in=2).fit(rows)
    assert model.posterior_.series.counts.tolist() == [2]


BAD_SETTINGS = {
    "burn_in": ({"burn_in": 80}, "sweeps must be more than burn_in; got 80 and 80"),
    "rank": ({"rank": -1}, "rank must be a whole number, 0 or more; got -1"),
    "kernel": ({"kernel": "some"}, "kernel must be one of 'ou', 'matern32'; got 'some'"),
    "tails": ({"tails": "some"}, "tails must be one of 'normal', 'heavy'; got 'some'"),
    "seasons": ({"seasons": ["moon"]}, "seasons must be None, "),
    "tolerance": ({"tolerance": 0.0}, "tolerance must be a number, above 0 or None"),
    "time": ({"time": 1.5}, "time must be the name or the number of a mode"),
    "sensor": ({"sensor": -1}, "another mode than time"),
    "no such mode": ({"time": "when"}, "time must be one of"),
    "samples": ({"samples": 0}, "samples must be a whole number, 1 or more"),
}


@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS.values(), ids=BAD_SETTINGS.keys())
def test_a_bad_setting_is_named(cells, settings, message):
    with pytest.raises(SettingError, match=message):
        make_model(**settings).fit(cells[0].X, cells[0].y)


def test_a_checkpoint_needs_a_seed_to_go_on_with(cells):
    with pytest.raises(SettingError, match="random_state to be an int"):
        make_model(random_state=None).fit(cells[0].X, cells[0].y, checkpoint="x")


BAD_DATA = {
    "a word as time": ([("a", "soon", 1.0), ("a", "late", 2.0)], "got 'soon'"),
    "dates and numbers": ([("a", 1, 1.0), ("a", "2004-01-01", 2.0)], "mix numbers and dates"),
    "a missing value": ([("a", 1, 1.0), ("a", 2, np.nan)], "NaN"),
}


@pytest.mark.parametrize(("rows", "message"), BAD_DATA.values(), ids=BAD_DATA.keys())
def test_data_that_cannot_be_used_are_named(rows, message):
    with pytest.raises(DataError, match=message):
        make_model().fit(rows)


def test_predict_refuses_what_is_no_table_of_ids(fitted):
    with pytest.raises(DataError, match="expecting 3 features"):
        fitted.predict([("p0", "heat")])


DAMAGE = {
    "a timescale of zero": ("draws.timescales", lambda t: 0 * t),
    "too few series": ("draws.amplitudes", lambda t: t[:, 1:]),
    "observations in no order": ("codes", lambda t: t[:, ::-1].copy()),
    "observations that cannot be": ("codes", lambda t: t + 1000),
    "too few values": ("values", lambda t: t[1:]),
    "no variance": ("units.variance", lambda t: 0 * t),
    "other factors": ("draws.factors", lambda t: t[:, 1:]),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_refused(fitted, tmp_path, name, damage):
    path = tmp_path / "model"
    fitted.save(path)
    header, tensors = storage.read(path, "model")
    del header["kind"], header["version"]
    storage.write(path, "model", header, tensors | {name: damage(tensors[name])})
    with pytest.raises(ModelFileError, match="damaged"):
        TemporalFactorizer.load(path)
