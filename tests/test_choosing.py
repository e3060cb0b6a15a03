"""AutoFactorizer: it takes what predicts held-out cells and outages best, and says why."""

import logging
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from noisewise import load, storage
from noisewise.data import observe
from noisewise.errors import DataError, ModelFileError, SettingError
from noisewise.models import contest, holes, lengths, mixing, staying
from noisewise.models.auto import CANDIDATES as NAMED
from noisewise.models.auto import AutoFactorizer
from noisewise.models.average import AverageFactorizer
from noisewise.models.bayesian import BayesianFactorizer
from noisewise.models.grid import TableModel
from noisewise.models.residual import ResidualFactorizer, TypeMean
from noisewise.models.series import LinearInterpolator, OUSmoother
from noisewise.models.temporal import TemporalFactorizer
from noisewise.models.weighing import Hidden

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


def test_scores_are_errors_over_the_best(fitted):
    assert set(fitted.scores_) >= {"linear", "mean", "both"}
    best = min(one["error"] for one in fitted.scores_.values())
    for one in fitted.scores_.values():
        assert one["score"] == pytest.approx(one["error"] / best, rel=1e-6)
        assert one["seconds"] > 0
    assert next(iter(fitted.scores_)) == fitted.choice_
    assert fitted.scores_[fitted.choice_]["score"] == 1.0


def test_a_few_broken_readings_do_not_decide():
    X, y = make_smooth()
    X, y, _, _ = some(X, y, 0.7)
    y[::200] = -1e4
    model = AutoFactorizer([("mean", TypeMean()), "ou"], random_state=0, n_jobs=1).fit(X, y)
    assert model.scores_["ou"]["error"] < model.scores_["mean"]["error"] < contest.FARTHEST + 1e-6


def test_it_says_what_it_chose_and_why(shared, caplog):
    model = AutoFactorizer(CANDIDATES, random_state=0, n_jobs=1)
    assert str(model).startswith("AutoFactorizer(")
    with caplog.at_level(logging.INFO, logger="noisewise"):
        model.fit(*shared[:2])
    assert str(model) in caplog.text
    assert "chose 'both'" in str(model)
    for name, one in model.scores_.items():
        assert f"{name} {one['error']:.3g}" in str(model)


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
    if kind == "cells":
        hidden[:, 2::5] = True
    else:
        for place, start in np.ndindex(8, 9):
            hidden[place, 20 + 40 * start + place :][:15] = True
    return hidden


@pytest.mark.parametrize("kind", ["cells", "blocks"])
def test_intervals_are_calibrated_on_cells_like_those_that_are_missing(kind):
    covered = []
    for seed in range(8):
        X, y, asked, truth = make_walks(hidden_cells(kind), seed)
        model = AutoFactorizer(["linear"], value_range=None, random_state=seed, n_jobs=1)
        model.fit(X, y, holes=asked)
        low, high = model.predict_interval(asked, 0.9)
        covered.append(np.mean((low <= truth) & (truth <= high)))
    assert np.mean(covered) == pytest.approx(0.9, abs=0.03)


def test_two_are_taken_together_where_their_mean_is_better(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = make_shared(n_places=6, n_times=150)
    walks = rng.normal(0, 0.25, (6, 150)).cumsum(axis=1)
    walks -= walks.mean(axis=1, keepdims=True)
    X, y, asked, truth = some(X, y + walks.ravel(), 0.8)
    model = AutoFactorizer(["regression", "ou"], random_state=0, n_jobs=1).fit(X, y)
    assert model.choice_ == "ou + regression" or model.choice_ == "regression + ou"
    assert isinstance(model.model_, AverageFactorizer)
    said = [part.predict(asked, return_std=True) for part in model.model_.parts_]
    parts, stds = zip(*said, strict=True)
    share = np.tile(np.array(model.model_.weights_)[:, None], len(truth))
    if model.model_.usual_stds is not None:
        share = mixing.shares(model.model_.weights_, stds, model.model_.usual_stds)
    mean = np.average(parts, axis=0, weights=share)
    np.testing.assert_allclose(model.predict(asked), mean, rtol=1e-5, atol=1e-6)
    error = [np.mean((truth - one) ** 2) for one in (model.predict(asked), *parts)]
    assert error[0] < min(error[1:])
    monkeypatch.setattr(contest, "VARIED", len(y))  # outages are few: none is surer than others
    model = AutoFactorizer(["regression", "ou"], random_state=0, n_jobs=1).fit(X, y)
    assert model.model_.usual_stds is None


@pytest.mark.parametrize("is_honest", [True, False])
def test_models_of_a_mix_count_by_std_only_where_that_errs_less(is_honest):
    rng, n = np.random.default_rng(5), 2 * contest.VARIED
    scale = rng.choice([0.3, 3.0], size=(2, n))  # where each model errs little, and where much
    own = scale * rng.standard_normal((2, n))
    stds = scale if is_honest else 1.0 / scale
    answers = {
        name: contest.Answers(mean, std, mean)
        for name, mean, std in zip("ab", own, stds, strict=True)
    }
    places = np.arange(n)
    hidden = Hidden(np.zeros(n, dtype=int), places, np.ones(n))
    cells, ones = observe(np.column_stack([places, places]), np.zeros(n)), np.ones(n)
    held = contest.Contest(cells, 0 * places, np.zeros(n), ones, hidden, ones, answers, {}, {})
    mix, error = held.together(["a", "b"])
    assert mix.by_std == is_honest
    assert sorted(mix.names) == ["a", "b"]
    assert (held.usual_stds(mix) is not None) == is_honest
    assert error < min(held.error(mixing.Mix.only(name)) for name in "ab")


@pytest.mark.parametrize(("cells", "rank"), [(40_000, 2), (300, 4)])
def test_a_table_larger_than_a_trial_takes_more_factors(shared, monkeypatch, cells, rank):
    monkeypatch.setattr(holes, "FEWEST_TIMES", 20)
    draw = contest.draw_heat
    monkeypatch.setattr(contest, "draw_heat", lambda own, *rest: draw(own.within(cells), *rest))
    small = TemporalFactorizer(2, sweeps=20, burn_in=5)
    found = AutoFactorizer((("small", small),), random_state=0, n_jobs=1).fit(*shared[:2])
    assert {part.rank for part in found.model_.parts_} == {rank}
    assert (f"small {rank} factors instead of 2" in found.reason_) == (rank > 2)


def test_a_large_table_has_a_heat_that_tells_who_of_the_dear_goes_on(shared, monkeypatch):
    monkeypatch.setattr(contest, "HEAT", 200)
    monkeypatch.setattr(holes, "FEWEST_TIMES", 20)
    monkeypatch.setattr(contest, "AFTER_A_HEAT", staying.Limits(1.6, 1))
    monkeypatch.setattr(contest, "MANY", np.inf)
    asked, answers = [], contest._answers

    def noted(model, train, *rest):
        asked.append((type(model).__name__, len(train)))
        return answers(model, train, *rest)

    monkeypatch.setattr(contest, "_answers", noted)
    short = {"sweeps": 20, "burn_in": 5}
    samplers = [(f"rank {k}", TemporalFactorizer(k, **short)) for k in (1, 2)]
    model = AutoFactorizer([*samplers, "linear"], random_state=0, n_jobs=1).fit(*shared[:2])
    sampled = [size for kind, size in asked if kind == "TemporalFactorizer"]
    assert len(sampled) == 2 + contest.AFTER_HEAT
    assert max(sampled[:2]) < min(sampled[2:])
    assert set(model.scores_) >= {"rank 1", "rank 2", "linear"}


def test_a_mix_hedges_where_few_outages_tell_and_finds_the_best_where_many_do():
    rng = np.random.default_rng(3)
    truth = rng.normal(size=(4, 6000))
    away = np.array([truth[0] + 0.8 * truth[1], truth[0] + 0.8 * truth[2], 1.5 * truth[3]])
    many = mixing.mixed("abc", away, np.ones(6000), np.arange(6000))
    best = np.linalg.solve(np.cov(away), np.ones(3))
    found = dict(zip(many.names, many.weights, strict=True))
    for name, weight in zip("abc", best / best.sum(), strict=True):
        assert found[name] == pytest.approx(weight, abs=0.03)
    few = [
        max(mixing.mixed("ab", away[:2, k : k + 3], np.ones(3), np.arange(3)).weights)
        for k in range(0, 300, 3)
    ]
    assert 0.55 < np.mean(few) < 0.9


def test_models_that_say_the_same_share_their_weight():
    away = np.random.default_rng(0).normal(size=200)
    mix = mixing.mixed("ab", np.array([away, away]), np.ones(200), np.arange(200))
    assert mix.weights == pytest.approx((0.5, 0.5))
    mix = mixing.mixed("ab", np.zeros((2, 5)), np.ones(5), np.arange(5))
    assert mix.weights == pytest.approx((0.5, 0.5))


def test_weights_are_kept_in_a_file_and_checked(tmp_path, shared):
    X, y, asked, _ = shared
    pairs = (("linear", LinearInterpolator()), ("ou", OUSmoother()))
    model = AverageFactorizer(pairs, weights=(3, 1), random_state=0).fit(X, y)
    parts = [part.predict(asked) for part in model.parts_]
    expected = 0.75 * parts[0] + 0.25 * parts[1]
    np.testing.assert_allclose(model.predict(asked), expected, rtol=1e-5, atol=1e-6)
    model.save(tmp_path / "two.nw")
    again = load(tmp_path / "two.nw")
    np.testing.assert_array_equal(again.predict(asked), model.predict(asked))
    header, tensors = storage.read(tmp_path / "two.nw", "model")
    header = {k: v for k, v in header.items() if k not in ("version", "kind")}
    for weights, told in (([0.5, 0.6], "belong together"), ([1.0], "belong together")):
        header["weights"] = weights
        storage.write(tmp_path / "odd.nw", "model", header, tensors)
        with pytest.raises(ModelFileError, match=told):
            load(tmp_path / "odd.nw")
    del header["weights"]  # a file from before there were any
    storage.write(tmp_path / "old.nw", "model", header, tensors)
    assert load(tmp_path / "old.nw").weights_ == (0.5, 0.5)
    with pytest.raises(SettingError, match="as many as models, 2; got 3"):
        AverageFactorizer(pairs, weights=(1, 1, 1)).fit(X, y)
    with pytest.raises(SettingError, match="positive"):
        AverageFactorizer(pairs, weights=(1, -1)).fit(X, y)


def test_a_mix_for_a_table_larger_than_its_trials_is_judged_by_all_of_it(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = make_shared(n_places=6, n_times=600)
    walks = rng.normal(0, 0.25, (6, 600)).cumsum(axis=1)
    walks -= walks.mean(axis=1, keepdims=True)
    X, y, *_ = some(X, y + walks.ravel(), 0.8)
    monkeypatch.setattr(holes, "FEWEST_TIMES", 20)
    draw, judge = contest.draw_heat, contest.Arena.judged_whole
    monkeypatch.setattr(contest, "draw_heat", lambda own, *rest: draw(own.within(1000), *rest))
    whole = []

    def judged(arena, scaling, models, found):
        whole.append((arena, found, judge(arena, scaling, models, found)))
        return whole[0][2]

    trained = []
    answer = contest._answers

    def answered(model, train, *rest):
        trained.append(len(train))
        return answer(model, train, *rest)

    monkeypatch.setattr(contest.Arena, "judged_whole", judged)
    monkeypatch.setattr(contest, "_answers", answered)
    model = AutoFactorizer(["regression", "ou"], random_state=0, n_jobs=1).fit(X, y)
    ((arena, before, after),) = whole
    hidden = np.unique(np.concatenate([trial.hidden for trial in arena.trials]))
    assert trained[-2:] == [len(y) - len(hidden)] * 2
    assert max(trained[:-2]) < 0.5 * len(y)
    mix, error = after.together(["regression", "ou"])
    assert (model.choice_, model.model_.weights_) == (" + ".join(mix.names), mix.weights)
    assert model.scores_[model.choice_]["error"] == error
    assert mix != before.together(["regression", "ou"])[0]


def test_models_count_more_where_they_are_surer_than_usual(tmp_path, shared):
    X, y, asked, _ = shared
    pairs = (("linear", LinearInterpolator()), ("ou", OUSmoother()))
    given = {"weights": (3, 1), "usual_stds": (0.8, 1.2), "random_state": 0}
    model = AverageFactorizer(pairs, **given).fit(X, y)
    means, stds = zip(*(part.predict(asked, return_std=True) for part in model.parts_), strict=True)
    relative = np.array(stds) / np.mean(stds, axis=0)
    share = np.array([[3 * 0.8], [1.2]]) / relative
    share = share / share.sum(axis=0)
    mean, std = model.predict(asked, return_std=True)
    np.testing.assert_allclose(mean, (share * means).sum(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(std, (share * stds).sum(axis=0), rtol=1e-5)
    model.save(tmp_path / "two.nw")
    np.testing.assert_array_equal(load(tmp_path / "two.nw").predict(asked), mean)
    header, tensors = storage.read(tmp_path / "two.nw", "model")
    header = {k: v for k, v in header.items() if k not in ("version", "kind")}
    header["settings"]["usual_stds"] = [1.0]
    storage.write(tmp_path / "odd.nw", "model", header, tensors)
    with pytest.raises(ModelFileError, match="belong together"):
        load(tmp_path / "odd.nw")
    with pytest.raises(SettingError, match="usual_stds must be as many as models, 2; got 1"):
        AverageFactorizer(pairs, usual_stds=(1,)).fit(X, y)


def test_stds_of_zero_and_of_far_less_than_others_leave_a_mix_whole():
    stds = [[0.0, 0.0, 1e-300, 1.0], [0.0, 1.0, 1.0, 1e30]]
    share = mixing.shares((0.5, 0.5), stds, mixing.usual_stds(stds))
    assert np.isfinite(share).all()
    np.testing.assert_allclose(share.sum(axis=0), 1.0)
    assert share[0, 1] == share[0, 2] > 0.9
    stds = [[0.0, 0.0], [1.0, 2.0]]  # one that is never unsure counts as its weight says
    assert min(mixing.usual_stds(stds)) > 0.0
    share = mixing.shares((0.5, 0.5), stds, mixing.usual_stds(stds))
    np.testing.assert_allclose(share, 0.5)


def test_models_that_were_chosen_stay_whatever_the_scale(shared):
    seen = observe(*shared[:2])
    readings = holes.Readings.of(seen, 1, None)
    drawn = contest.draw_heat(readings, "table", np.random.default_rng(0))[1]
    arena = contest.Arena(
        seen,
        readings,
        drawn,
        {"mean": TypeMean(), "linear": LinearInterpolator(), "low rank": TableModel("svd", rank=2)},
        "table",
    )
    names = ["mean", "low rank"]
    found = arena.hold(contest.unscaled(seen), names)
    assert [*found.answers] == names
    assert found.errors["mean"] > staying.AFTER_A_TRIAL.error * found.errors["low rank"]


def test_bursts_of_readings_far_apart_take_no_memory():
    rows = [(s, 86400.0 * day + 0.001 * k, np.sin(day + k + s))
            for s in range(2) for day in range(100) for k in range(20)]  # fmt: skip
    model = AutoFactorizer(["linear", "ou"], like="blackout", random_state=0, n_jobs=1).fit(rows)
    assert model.choice_


def test_holes_that_are_given_decide():
    """Where all were lost together, what others read at the same moment is of no use."""
    rng = np.random.default_rng(1)
    walk = rng.normal(size=300).cumsum()
    values = walk + rng.normal(0, 0.1, (8, 300))
    cells = np.array([(s, t) for s in range(8) for t in range(300)])
    lost = np.isin(cells[:, 1], np.r_[60:70, 130:140, 200:210])
    model = AutoFactorizer(["linear", "regression"], random_state=0, n_jobs=1)
    model.fit(cells[~lost], values.ravel()[~lost], holes=cells[lost])
    together = model.scores_["regression"]["error"]
    assert together == pytest.approx(model.scores_["linear"]["error"], rel=1e-3)
    single = rng.random(len(cells)) < 0.1
    model.fit(cells[~single], values.ravel()[~single], holes=cells[single])
    assert model.choice_ == "regression"
    assert model.scores_["regression"]["error"] < 0.3 * together


def test_errors_count_in_other_units_if_asked_for(shared):
    X, y = shared[:2]
    plain = AutoFactorizer(CANDIDATES, random_state=0, n_jobs=1).fit(X, y)
    tenfold = AutoFactorizer(CANDIDATES, random_state=0, n_jobs=1)
    seen = observe(X, y)
    scale = contest.Scaling(None, seen.values, lambda cells, mean, std: 10.0 * mean)
    tenfold.fit(seen, scales=[scale])
    for name, one in plain.scores_.items():
        assert tenfold.scores_[name]["error"] == pytest.approx(one["error"], rel=1e-5)


def test_the_choice_stays_where_more_is_read(fitted, shared):
    X, y, asked, truth = shared
    everything = observe(np.vstack([X, asked]), np.append(y, truth))
    again = fitted.refitted(everything)
    assert (again.choice_, again.calibration_) == (fitted.choice_, fitted.calibration_)
    assert np.mean((again.predict(asked) - truth) ** 2) < np.mean(
        (fitted.predict(asked) - truth) ** 2
    )
    more = observe(np.vstack([X, [(99, 3), (99, 4)]]), np.append(y, [1.0, 2.0]))
    mean, std = fitted.refitted(more).predict([(99, 5), (1, 3)], return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_the_best_is_fitted_on_everything(fitted, shared):
    assert len(fitted.model_.near_.base.series_.values) == len(shared[1])


def test_the_default_candidates_are_the_named_ones():
    found = AutoFactorizer(time=0, sensor=None, random_state=7, n_jobs=2)._candidates(7)
    assert list(found) == list(NAMED)
    for model in found.values():
        params = model.get_params(deep=False)
        assert params["n_jobs"] == 2
        assert params.get("time", 0) == 0


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
    "no such name": ({"candidates": ["kriging"]}, "candidates must be some of linear, pchip, ou"),
    "no pair": ({"candidates": [("a", "ou")]}, "or pairs of a name and a model"),
    "a name twice": ({"candidates": ["ou", ("ou", OUSmoother())]}, "got 'ou' twice"),
    "none": ({"candidates": []}, "one at least"),
    "no such holes": ({"like": "tunnels"}, "like must be one of 'table', 'cells'"),
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


def test_models_that_cost_little_may_be_farther_behind_after_a_trial():
    errors = {"best": 1.0, "dear": 1.6, "cheap": 1.9, "far": 2.1}
    kept = staying.hopeful(errors, [*errors], ["best", "dear"], staying.FEW, staying.AFTER_A_TRIAL)
    assert kept == ["best", "cheap"]


def test_a_model_that_says_just_what_another_says_leaves_after_a_trial():
    rng = np.random.default_rng(4)
    rows = [(s, t, np.sin(t / 7 + s) + 0.3 * rng.standard_normal())
            for s in range(3) for t in range(150)]  # fmt: skip
    kept = [row for row in rows if rng.random() > 0.2]
    names = ["linear", "again", "ou"]
    models = [LinearInterpolator(), LinearInterpolator(), OUSmoother()]
    model = AutoFactorizer([*zip(names, models, strict=True)], random_state=0, n_jobs=1).fit(kept)
    assert "again" not in model.choice_
    assert model.scores_["again"]["seconds"] < model.scores_["linear"]["seconds"]


def test_models_that_left_have_the_error_that_they_would_have_had():
    told = [{"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 2.0, "b": 3.0}, {"a": 4.0}]
    assert staying.as_if_later(told, ["a"], (1e-9, 30.0)) == {"b": 6.0, "c": 12.0}
    assert staying.as_if_later(told, [], (1e-9, 30.0)) == {}


def test_sampler_as_long_as_was_chosen_for_it_is_not_told_to_be_longer(monkeypatch):
    monkeypatch.setattr(lengths, "MOST_OF_CHAINS", 0)
    monkeypatch.setattr(lengths, "LONGEST", 8)
    brief = TemporalFactorizer(1, sweeps=6, burn_in=1, tolerance=1e-9)
    with pytest.warns(UserWarning, match="not settled"):
        brief.fit(*make_smooth(n_times=60))
    model = AutoFactorizer([("brief", brief)], random_state=0).fit(*make_smooth(n_times=60))
    assert isinstance(model.refitted(observe(*make_smooth(n_times=50))).model_, TemporalFactorizer)
