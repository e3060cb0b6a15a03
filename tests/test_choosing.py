"""AutoFactorizer: it takes what predicts held-out cells and outages best, and says why."""

import logging
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from noisewise import load, storage
from noisewise.data import observe
from noisewise.engine.data import Series
from noisewise.errors import DataError, ModelFileError, SettingError
from noisewise.models.auto import BLOCKS, CELLS, TRAIN, AutoFactorizer, find_gaps, like_gaps
from noisewise.models.bayesian import BayesianFactorizer
from noisewise.models.residual import ResidualFactorizer, TypeMean
from noisewise.models.series import LinearInterpolator, OUSmoother

SMALL = BayesianFactorizer(rank=2, deviation="constant", implicit=False, sweeps=20, burn_in=8)
CANDIDATES = (
    ("linear", LinearInterpolator()),
    ("mean", TypeMean()),
    ("both", ResidualFactorizer(SMALL)),
)


def make_smooth(n_places=4, n_times=300, seed=0):
    """Series of their own that change slowly: a line between readings is all it takes."""
    rng = np.random.default_rng(seed)
    cells = [(place, t) for place in range(n_places) for t in range(n_times)]
    values = [np.sin(t / 20 + place**2) + rng.normal(0, 0.01) for place, t in cells]
    return np.array(cells), np.array(values)


def make_shared(n_places=12, n_times=120, seed=0):
    """White noise that all places have in common: only the others know."""
    rng = np.random.default_rng(seed)
    shocks, loads = rng.normal(size=n_times), rng.normal(1, 0.3, n_places)
    cells = [(place, t) for place in range(n_places) for t in range(n_times)]
    values = [loads[place] * shocks[t] + rng.normal(0, 0.1) for place, t in cells]
    return np.array(cells), np.array(values)


def some(X, y, share, seed=0):
    order = np.random.default_rng(seed).permutation(len(y))
    cut = int(share * len(y))
    return X[order[:cut]], y[order[:cut]], X[order[cut:]], y[order[cut:]]


@pytest.fixture(scope="module")
def shared():
    return some(*make_shared(), 0.6)


@pytest.fixture(scope="module")
def fitted(shared):
    return AutoFactorizer(CANDIDATES, random_state=0, n_jobs=1).fit(*shared[:2])


def test_lines_are_chosen_where_lines_are_enough():
    X, y, asked, truth = some(*make_smooth(), 0.7)
    model = AutoFactorizer(["linear", ("mean", TypeMean())], random_state=0, n_jobs=1).fit(X, y)
    assert model.choice_ == "linear"
    assert np.mean((truth - model.predict(asked)) ** 2) < 0.01 * truth.var()


def test_a_factorization_is_chosen_where_only_the_others_know(fitted, shared):
    _, _, asked, truth = shared
    assert fitted.choice_ == "both"
    assert isinstance(fitted.model_, ResidualFactorizer)
    assert np.mean((truth - fitted.predict(asked)) ** 2) < 0.2 * truth.var()


def test_scores_are_errors_over_the_best_weighted_by_the_gaps(fitted, shared):
    X, y = shared[:2]
    seen = observe(X, y)
    gaps = find_gaps(Series.group(seen.codes[0], X[:, 1].astype(float), seen.values, 12))
    assert set(fitted.scores_) == {"linear", "mean", "both"}
    best = {k: min(one[k] for one in fitted.scores_.values()) for k in ("cells", "blocks")}
    for one in fitted.scores_.values():
        ratios = [one[kind] / best[kind] for kind in ("cells", "blocks")]
        expected = gaps.single * ratios[0] + (1 - gaps.single) * ratios[1]
        assert one["score"] == pytest.approx(expected, rel=1e-6)
        assert one["seconds"] > 0
    assert fitted.choice_ == min(fitted.scores_, key=lambda name: fitted.scores_[name]["score"])


def test_held_out_are_single_cells_and_whole_stretches(shared):
    seen = observe(*shared[:2])
    model = AutoFactorizer(validation_fraction=0.2)
    gaps, part = model._held_out(seen, 0)
    when = seen.ids[1].labels[seen.codes[1]]
    block = seen.codes[0] * 10_000 + (when - when.min()) // gaps.length
    hidden = np.unique(block[part == BLOCKS])
    assert (part[np.isin(block, hidden)] == BLOCKS).all()
    assert np.mean(part == CELLS) == pytest.approx(0.1, abs=0.01)
    assert np.mean(part == BLOCKS) == pytest.approx(0.1, abs=0.02)
    assert np.mean(part == TRAIN) > 0.75


def test_gaps_are_measured_in_steps_of_time():
    full = np.arange(100.0)
    assert find_gaps(Series.group(np.zeros(100, int), full, full, 1)) == (0.5, 9.9)
    alternating = np.setdiff1d(full, np.arange(20, 60, 2))  # 20 cells, each between two readings
    found = find_gaps(Series.group(np.zeros(80, int), alternating, alternating, 1))
    assert found == (1.0, 9.9)
    outages = np.setdiff1d(np.arange(1000.0), np.r_[100:130, 400:430, 700, 701])
    found = find_gaps(Series.group(np.zeros(len(outages), int), 2 * outages, outages, 1))
    assert found == (0.0, 60.0)


def test_a_single_time_has_gaps_of_no_length():
    assert find_gaps(Series.group(np.arange(3), np.zeros(3), np.zeros(3), 3)) == (0.5, 1.0)


def test_a_few_broken_readings_do_not_decide():
    X, y = make_smooth()
    X, y, _, _ = some(X, y, 0.7)
    y[::200] = -1e4
    model = AutoFactorizer([("mean", TypeMean()), "ou"], random_state=0, n_jobs=1).fit(X, y)
    assert all(one["cells"] < 1 for one in model.scores_.values())


def test_it_says_what_it_chose_and_why(shared, caplog):
    model = AutoFactorizer(CANDIDATES, random_state=0, n_jobs=1)
    assert str(model).startswith("AutoFactorizer(")
    with caplog.at_level(logging.INFO, logger="noisewise"):
        model.fit(*shared[:2])
    assert str(model) in caplog.text
    assert "chose 'both'" in str(model)
    for name, one in model.scores_.items():
        assert f"{name} {one['cells']:.3g} and {one['blocks']:.3g}" in str(model)


def test_intervals_are_calibrated_on_what_was_held_out(fitted, shared):
    _, _, asked, truth = shared
    low, high = fitted.predict_interval(asked, coverage=0.9)
    assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(0.9, abs=0.05)
    mean, std = fitted.predict(asked, return_std=True)
    assert np.mean(((truth - mean) / std) ** 2) == pytest.approx(1.0, abs=0.35)


def make_walks(hidden, seed):
    """Random walks with holes: where, and what is in them."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=hidden.shape).cumsum(axis=1)
    return np.argwhere(~hidden), values[~hidden], np.argwhere(hidden), values[hidden]


def hidden_cells(kind):
    """Single cells, or stretches of fifteen, of eight series."""
    hidden = np.zeros((8, 400), dtype=bool)
    if kind == CELLS:
        hidden[:, 2::5] = True
    else:
        for place, start in np.ndindex(8, 9):
            hidden[place, 20 + 40 * start + place :][:15] = True
    return hidden


@pytest.mark.parametrize("kind", [CELLS, BLOCKS])
def test_intervals_are_calibrated_on_cells_like_those_that_are_missing(kind):
    covered = []
    for seed in range(8):
        X, y, asked, truth = make_walks(hidden_cells(kind), seed)
        model = AutoFactorizer(["linear"], value_range=None, random_state=seed, n_jobs=1).fit(X, y)
        _, part = model._held_out(observe(X, y), seed)
        assert model.calibration_.n == np.sum(part == kind)
        low, high = model.predict_interval(asked, 0.9)
        covered.append(np.mean((low <= truth) & (truth <= high)))
    assert np.mean(covered) == pytest.approx(0.9, abs=0.05)  # of stretches there are few


@pytest.mark.parametrize("single", [0.0, 0.1, 0.5, 0.8, 1.0])
def test_what_calibrates_has_the_mix_of_what_is_missing(single):
    part = np.random.default_rng(0).permutation(np.repeat([TRAIN, CELLS, BLOCKS], [500, 60, 80]))
    alike = like_gaps(part, single, seed=0)
    counts = np.bincount(part[alike], minlength=3)
    assert counts[TRAIN] == 0
    assert counts[CELLS] / len(alike) == pytest.approx(single, abs=0.01)
    assert counts[CELLS] == 60 or counts[BLOCKS] == 80


def test_the_best_is_fitted_on_everything(fitted, shared):
    assert len(fitted.model_.near_.base.series_.values) == len(shared[1])


def test_the_default_candidates_are_the_named_ones():
    found = AutoFactorizer(time=0, sensor=None, random_state=7, n_jobs=2)._candidates(7)
    assert list(found) == ["linear", "ou", "fast", "bayes"]
    for model in found.values():
        params = model.get_params(deep=False)
        assert (params["time"], params["n_jobs"]) == (0, 2)


def test_too_few_readings_take_the_first():
    model = AutoFactorizer(["ou", "linear"], n_jobs=1).fit([("a", 0, 1.0), ("a", 1, 2.0)])
    assert (model.choice_, model.scores_) == ("ou", {})
    assert isinstance(model.model_, OUSmoother)
    assert "too few" in str(model)


def test_unknown_ids_can_have_a_constant(shared):
    model = AutoFactorizer(["ou"], unknown=3.0, value_range=None, n_jobs=1).fit(*shared[:2])
    np.testing.assert_array_equal(model.predict([(99, 3)]), 3.0)


def test_files_pickles_and_threads_keep_every_bit(fitted, shared, tmp_path):
    X, y, asked, _ = shared
    cells = [*asked.tolist(), (99, 3), (1, 55.5)]
    fitted.save(tmp_path / "model")
    expected = fitted.predict(cells, return_std=True)
    others = [
        load(tmp_path / "model"),
        pickle.loads(pickle.dumps(fitted)),
        clone(fitted).set_params(n_jobs=3).fit(X, y),
    ]
    for other in others:
        np.testing.assert_array_equal(other.predict(cells, return_std=True), expected)
        assert other.choice_ == fitted.choice_
    loaded = others[0]
    assert (loaded.scores_, str(loaded)) == (fitted.scores_, str(fitted))
    assert str(loaded.get_params()) == str(fitted.get_params())
    with pytest.raises(NotFittedError):
        clone(fitted).predict(asked)


BAD = {
    "no such name": ({"candidates": ["kriging"]}, "candidates must be some of linear, ou"),
    "no pair": ({"candidates": [("a", "ou")]}, "or pairs of a name and a model"),
    "a name twice": ({"candidates": ["ou", ("ou", OUSmoother())]}, "got 'ou' twice"),
    "none": ({"candidates": []}, "one at least"),
    "all held out": ({"validation_fraction": 1.0}, "validation_fraction must be"),
}


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD.keys())
def test_a_setting_that_cannot_be_is_refused_with_a_reason(shared, settings, message):
    with pytest.raises(SettingError, match=message):
        AutoFactorizer(**settings).fit(*shared[:2])


def test_times_that_are_none_are_refused():
    with pytest.raises(DataError, match="must hold times"):
        AutoFactorizer(["ou"]).fit([("a", "soon", 1.0), ("a", "later", 2.0)])


def test_a_damaged_file_is_refused(fitted, tmp_path):
    path = tmp_path / "model"
    fitted.save(path)
    header, tensors = storage.read(path, "model")
    del header["kind"], header["version"]
    short = {**tensors, "mode0.ids": tensors["mode0.ids"][:-1]}
    ids = [{**header["ids"][0], "length": 11}, header["ids"][1]]
    damages = [
        (header | {"ids": ids}, short),
        ({k: v for k, v in header.items() if k != "scores"}, tensors),
        (header | {"settings": {**header["settings"], "candidates": ["kriging"]}}, tensors),
    ]
    for damaged in damages:
        storage.write(path, "model", *damaged)
        with pytest.raises(ModelFileError, match="damaged"):
            load(path)
