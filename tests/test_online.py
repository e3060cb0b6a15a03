"""Draws that go on as filters: the same as a posterior that has the new readings, untrained."""

import warnings
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from noisewise import DeviationImputer, TemporalFactorizer
from noisewise.data import observe
from noisewise.engine.data import Series
from noisewise.engine.gibbs.series import online
from noisewise.engine.gibbs.series.online import DRAWS, NOTHING, Online, Timed
from noisewise.engine.gibbs.series.posterior import Asked
from noisewise.errors import DataError, ModelFileError
from noisewise.models.auto import AutoFactorizer
from noisewise.models.average import AverageFactorizer
from noisewise.models.grid import TableModel
from noisewise.models.later_rows import KnownRows
from noisewise.models.residual import ResidualFactorizer
from noisewise.models.series import OUSmoother
from noisewise.since import filters, with_readings

KINDS = ("ou", "matern32")
N = 4


def fitted(**settings):
    rng = np.random.default_rng(0)
    hours = np.arange(96)
    common = np.sin(hours / 24 * 2 * np.pi) + np.cumsum(rng.normal(0, 0.2, 96))
    rows = [
        (s, float(t), (1 + 0.5 * s) * common[t] + 0.3 * rng.normal())
        for s in range(N)
        for t in hours
        if (s + 3 * t) % 7
    ]
    quick = {"sweeps": 30, "burn_in": 4, "samples": DRAWS, "tolerance": None, "random_state": 0}
    return TemporalFactorizer(**(quick | {"rank": 2} | settings)).fit(rows).posterior_


def asked(when):
    which = np.arange(N)
    return Asked(which[None].astype(np.int32), which, np.full(N, when), which * 0, which * 0)


@pytest.mark.parametrize("kernel", KINDS)
@pytest.mark.parametrize("seasons", [None, [24.0]])
def test_without_readings_it_says_what_the_posterior_says_of_later_moments(kernel, seasons):
    posterior = fitted(kernel=kernel, seasons=seasons, tails="heavy")
    for when in (95.5, 100.0, 170.0):
        expected = posterior.moments(asked(when))
        found = Online.of(posterior).at(97.0 if when > 97 else 95.0).at(when).moments(np.arange(N))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kernel", KINDS)
def test_readings_of_series_alone_are_taken_in_exactly(kernel):
    posterior = fitted(kernel=kernel, rank=0)
    new = (1, 97.5, 0.8)  # a reading: of a series, at a time
    state = Online.of(posterior).at(new[1]).given(np.array([new[0]]), np.array([new[2]]))
    found = state.at(99.0).moments(np.arange(N))
    place = int(posterior.series.starts[new[0] + 1])
    stamps = np.append(posterior.stamps, new[1])
    longer = replace(
        posterior,
        shape=(*posterior.shape[:-1], len(stamps)),
        codes=np.insert(posterior.codes, place, [new[0], len(stamps) - 1], axis=1),
        values=np.insert(posterior.values, place, np.float32(new[2])),
        stamps=stamps,
        draws=posterior.draws
        | {
            "factors": np.zeros((len(posterior), len(stamps), 0), np.float32),
            "slopes": np.zeros((len(posterior), len(stamps), 0), np.float32),
        },
    )
    for one, other in zip(found, longer.moments(asked(99.0)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kernel", KINDS)
def test_a_reading_tells_of_other_series_by_what_they_share(kernel):
    posterior = fitted(kernel=kernel)
    state = Online.of(posterior).at(98.0)
    one = Online(**{k: v[:1] if k in SHARED else v for k, v in vars(state).items()})
    which, values = np.array([0, 2]), np.array([0.5, -1.0])
    rows = np.zeros((N, one.means.shape[1]))
    wide = 1 + one.spec.kind
    rows[:, 0 : 2 * wide : wide] = one.loadings[0, :, :2]
    rows[np.arange(N), wide * (2 + np.arange(N))] = 1.0
    joint = rows @ one.covariances[0] @ rows.T
    mean = rows @ one.means[0] + one.loadings[0, :, -1]
    full = joint[np.ix_(which, which)] + np.diag(one.variances[0, which])
    gain = np.linalg.solve(full, joint[which]).T
    expected = mean + gain @ (values - mean[which])
    spread = np.diag(joint - gain @ joint[which])
    found = one.given(which, values).moments(np.arange(N))
    np.testing.assert_allclose(found.mean, expected, rtol=1e-8)
    np.testing.assert_allclose(found.epistemic, spread, rtol=1e-6)
    again = one.given(which[:1], values[:1]).given(which[1:], values[1:]).moments(np.arange(N))
    np.testing.assert_allclose(again.mean, found.mean, rtol=1e-8)


@pytest.mark.parametrize("kernel", KINDS)
@pytest.mark.parametrize("seasons", [None, [24.0]])
def test_later_readings_tell_of_earlier_moments_as_the_joint_distribution_does(kernel, seasons):
    state = Online.of(fitted(kernel=kernel, seasons=seasons, rank=1))
    one = Online(**{k: v[:1] if k in SHARED else v for k, v in vars(state).items()})
    rng = np.random.default_rng(1)
    when = np.repeat([96.0, 97.5, 98.0, 121.0], N)
    which = np.tile(np.arange(N), 4)
    hidden = rng.random(len(when)) < 0.4
    values = rng.normal(size=len(when))
    cells = Timed(when, which, values)
    known, asked = (Timed(*(part[rows] for part in cells)) for rows in (~hidden, hidden))
    run = one.run(known, asked)
    # the same by brute force: filters that see one reading each tell what cells covary with
    prior = one.run(NOTHING, cells).moments
    full = np.empty((len(when), len(when)))
    for k in range(len(when)):
        told = one.run(Timed(*(part[[k]] for part in cells)), cells).moments
        total = prior.epistemic[k] + prior.noise[k]
        shift = (told.mean - prior.mean) / (values[k] - prior.mean[k])
        full[:, k] = shift * total
    noisy = full[np.ix_(~hidden, ~hidden)] + np.diag(prior.noise[~hidden])
    gain = np.linalg.solve(noisy, full[np.ix_(~hidden, hidden)]).T
    expected = prior.mean[hidden] + gain @ (values - prior.mean)[~hidden]
    spread = np.diag(full[np.ix_(hidden, hidden)] - gain @ full[np.ix_(~hidden, hidden)])
    np.testing.assert_allclose(run.moments.mean, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(run.moments.epistemic, spread, rtol=1e-5, atol=1e-9)


def test_a_run_in_parts_ends_where_a_whole_one_does(monkeypatch):
    state = Online.of(fitted(rank=1))
    rng = np.random.default_rng(1)
    when = np.repeat(96.0 + np.arange(20), N)
    cells = Timed(when, np.tile(np.arange(N), 20), rng.normal(size=len(when)))
    whole = state.run(cells)
    monkeypatch.setattr(online, "KEPT", 100)
    parts = state.run(cells, cells)
    np.testing.assert_array_equal(parts.state.means, whole.state.means)
    np.testing.assert_array_equal(parts.surprises, whole.surprises)
    assert len(parts.moments.mean) == len(when)


def test_surprises_of_what_the_model_itself_made_have_a_variance_of_one():
    state = Online.of(fitted(rank=1))
    one = Online(**{k: v[:1] if k in SHARED else v for k, v in vars(state).items()})
    rng, found = np.random.default_rng(2), []
    for t in range(400):
        for s in range(N):
            now = one.at(96.0 + t)
            mean, noise, epistemic = now.moments(np.array([s]))
            value = mean + np.sqrt(noise + epistemic) * rng.normal(size=1)
            run = now.run(Timed(np.array([now.when]), np.array([s]), value))
            found.append(run.surprises[0])
            one = run.state
    assert 0.93 < np.std(found) < 1.07


SHARED = (
    "means", "covariances", "loadings", "timescales", "amplitudes", "variances", "slot_noise",
    "profiles", "calendar_settings",
)  # fmt: skip


def test_time_does_not_go_back():
    with pytest.raises(ValueError, match=r"must not be before 95\.0"):
        Online.of(fitted(rank=1)).at(3.0)


def table(n=150, seed=0):
    rng = np.random.default_rng(seed)
    hours = np.arange(n)
    common = np.sin(hours / 24 * 2 * np.pi) + np.cumsum(rng.normal(0, 0.1, n))
    whole = common[:, None] * [1.0, 1.5, -1.0, 0.5] + 0.2 * rng.normal(size=(n, 4)) + 10.0
    index = pd.date_range("2024-05-01", periods=n, freq="h")
    return pd.DataFrame(whole, index=index, columns=list("abcd"))


METHODS = ("ou", "seasonal", "linear", "regression", "nearest", "fast", "dtf", "bayes", "auto")
SHORT = {"sweeps": 30, "burn_in": 4, "samples": 8, "tolerance": None, "rank": 2}
TWO = {"candidates": ["regression", "bayes-4"]}


def imputer(method, **more):
    settings = {"bayes": SHORT, "auto": TWO}.get(method)
    return DeviationImputer(method, settings=settings, random_state=0, n_jobs=1, **more)


def holed(frame, share=0.25, seed=1):
    return frame.mask(np.random.default_rng(seed).random(frame.shape) < share)


@pytest.fixture(scope="module")
def fitted_imputers():
    frame = holed(table())[:120]
    return {method: imputer(method).fit(frame) for method in METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_new_rows_are_filled_without_training(fitted_imputers, method, monkeypatch):
    whole, model = table(), fitted_imputers[method]
    new = holed(whole)[120:]
    for kind in (OUSmoother, TableModel, TemporalFactorizer, ResidualFactorizer, AutoFactorizer):
        monkeypatch.setattr(kind, "fit", None)
    filled = model.transform(new)
    assert not filled.isna().any().any()
    pd.testing.assert_frame_equal(filled.where(new.notna()), new)
    off = (filled - whole[120:]).where(new.isna()).abs().mean().mean()
    mean = (holed(whole)[:120].mean() - whole[120:]).where(new.isna()).abs().mean().mean()
    assert off < 0.8 * mean


@pytest.mark.parametrize("method", METHODS)
def test_update_goes_on_with_the_same_bits_after_save_and_load(fitted_imputers, method, tmp_path):
    rows = holed(table())
    going = copy(fitted_imputers[method]).update(rows[120:130])
    going.save(tmp_path / "going.nw")
    loaded = DeviationImputer.load(tmp_path / "going.nw").set_params(n_jobs=1)
    for one in (slice(130, 133), slice(133, 134), slice(110, 150)):
        pd.testing.assert_frame_equal(
            loaded.transform(rows[one]), going.transform(rows[one]), check_exact=True
        )
        if one.start > 120:
            going.update(rows[one])
            loaded.update(rows[one])
    late = rows[122:124].fillna(table()[122:124])  # readings that arrive late
    assert not going.update(late).transform(rows[120:]).equals(loaded.transform(rows[120:]))
    pd.testing.assert_frame_equal(
        loaded.update(late).transform(rows), going.transform(rows), check_exact=True
    )
    assert fitted_imputers[method]._standardised.since.when.size == 0  # a copy went on


@pytest.mark.parametrize("method", ["ou", "regression", "bayes"])
def test_rows_taken_in_one_by_one_say_what_all_of_them_say_at_once(fitted_imputers, method):
    rows = holed(table())
    going = copy(fitted_imputers[method])
    for k in range(120, 140):
        going.update(rows[k : k + 1])
    at_once = fitted_imputers[method].transform(rows[120:])
    np.testing.assert_allclose(going.transform(rows[120:]), at_once, rtol=1e-5)


def test_a_late_reading_before_the_end_of_the_fit_counts(fitted_imputers):
    whole, rows = table(), holed(table())
    for method in ("ou", "bayes"):
        model = fitted_imputers[method]
        hole = np.flatnonzero(rows["a"][:120].isna())[5]
        told = rows[:120].copy()
        told.iloc[hole - 1 : hole + 2, 0] = whole.iloc[hole - 1 : hole + 2, 0] + 3.0
        told.iloc[hole, 0] = np.nan
        before = model.transform(rows[:120]).iloc[hole, 0]
        assert model.transform(told).iloc[hole, 0] > before + 0.5
        assert model.transform(rows[:120]).iloc[hole, 0] == before
    between = rows[100:102].copy()
    between.index = between.index + pd.Timedelta("20min")
    assert not fitted_imputers["bayes"].transform(between).isna().any().any()


def test_a_column_that_fit_never_read_is_left_out(fitted_imputers):
    frame = holed(table())
    frame["d"] = np.nan
    model = imputer("bayes", sensor=None).fit(frame[:120])
    rows = holed(table())[120:]
    assert model.update(rows[:5]).transform(rows[5:]).notna().all().all()
    assert len(model._standardised.since.when) == rows[:5][["a", "b", "c"]].notna().sum().sum()


def test_drift_is_said_once_with_numbers_and_quiet_rows_are_not():
    rng = np.random.default_rng(0)
    whole = rng.normal(0, 1, (400, 3)) + np.sin(np.arange(400) / 24 * 2 * np.pi)[:, None]
    model = DeviationImputer("ou", n_jobs=1).fit(whole[:300])
    model.update(whole[300:350])
    assert not model.drift()["drifted"].any()
    moved = whole[350:].copy()
    moved[:, 1] += 4.0
    with pytest.warns(UserWarning, match=r"^1 of 3 series have drifted .* 1 is 3\.\d stds above"):
        model.update(moved)
    assert model.drift()["drifted"].tolist() == [False, True, False]
    model.update(moved[:3])
    louder = DeviationImputer("ou", n_jobs=1).fit(whole[:300])
    with pytest.warns(UserWarning, match="squared surprises of"):
        louder.transform(np.where(np.arange(50)[:, None] == 49, np.nan, 5.0 * whole[350:]))


def test_a_reading_beyond_the_bounds_is_refused_as_in_fit():
    model = DeviationImputer("ou", bounds=(0, None), n_jobs=1).fit(np.arange(20.0)[:, None])
    with pytest.raises(DataError, match="bounds must hold all readings; got -3"):
        model.update([[-3.0]])


def test_rows_without_times_count_on_from_the_last_update():
    rows = table().to_numpy()
    model = DeviationImputer("linear", n_jobs=1).fit(rows[:100]).update(rows[100:110])
    model.update(rows[110:120])
    assert model._standardised.since.when.tolist() == np.repeat(np.arange(100.0, 120), 4).tolist()
    longer = np.vstack([rows[:120], np.full((1, 4), np.nan)])
    np.testing.assert_allclose(model.transform(longer)[-1], rows[119])


def test_a_file_whose_filters_are_elsewhere_is_refused(fitted_imputers, tmp_path):
    going = copy(fitted_imputers["bayes"]).update(holed(table())[120:122])
    (model,) = filters(going._standardised.now)
    later = model.later_
    for field, value in (
        ("when", later.state.when + 1.0),
        ("means", later.state.means[:, :-1]),
        ("covariances", later.state.covariances[:2]),
    ):
        model.later_ = replace(later, state=replace(later.state, **{field: value}))
        going.save(tmp_path / "bad.nw")
        with pytest.raises(ModelFileError, match=r"bad\.nw"):
            DeviationImputer.load(tmp_path / "bad.nw")
    model.later_ = later
    going.save(tmp_path / "good.nw")
    assert DeviationImputer.load(tmp_path / "good.nw").set_params(n_jobs=1) is not None


@pytest.mark.parametrize(
    "rows", [[[1.0, 2.0, 3.0]], [[0, 1, 0], [1, 0, 1.0]], [[1.0, 2.0, 3.0]] * 60]
)
def test_later_rows_are_filled_where_rows_of_the_fit_tell_no_covariance(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        imputer = DeviationImputer("svd", random_state=0, n_jobs=1).fit(np.array(rows))
        filled = imputer.transform([*rows, [0.0, 1.0, np.nan], [np.nan, 1.0, np.nan]])
    low, high = np.min(rows, axis=0), np.max(rows, axis=0)
    for row in filled[-2:]:
        assert ((row == [0.0, 1.0, 0.0]) | ((row >= low - 1e-6) & (row <= high + 1e-6))).all()


@pytest.mark.parametrize("by_neighbours", [True, False])
def test_a_row_is_filled_alike_alone_and_among_others(by_neighbours):
    rng = np.random.default_rng(0)
    filled = rng.normal(size=(5, 40)).cumsum(axis=1)
    known = KnownRows.of(filled, np.arange(40.0), by_neighbours)
    later = np.where(rng.random((5, 12)) < 0.4, np.nan, rng.normal(size=(5, 12)))
    later[0] = 1.0  # so that every row has a reading
    later[:, 3] = filled[:, 7]
    later[2:, 3] = np.nan

    def extended(upto):
        which, when = np.nonzero(~np.isnan(later[:, :upto]))
        series = Series.group(which, 40.0 + when, later[which, when], 5)
        return known.extended(series)[1][:, 40:]

    one_by_one = np.column_stack([extended(k + 1)[:, -1] for k in range(12)])
    known.told.clear()
    np.testing.assert_array_equal(extended(12), one_by_one)
    np.testing.assert_array_equal(extended(12), one_by_one)  # as they were told before
    if by_neighbours:
        np.testing.assert_allclose(one_by_one[:, 3], filled[:, 7], atol=1e-6)


def test_models_of_a_mix_that_look_at_rows_beside_a_row_leave_it_when_rows_come_in():
    seen = observe(readings := [(s, t, np.sin(t / 5 + s)) for s in range(4) for t in range(80)])
    lagged, plain = TableModel("regression", lags=(1,)), TableModel("regression")
    pairs = (("lagged", lagged), ("plain", plain), ("ou", OUSmoother()))
    mix = AverageFactorizer(pairs, weights=(2, 1, 1), usual_stds=(0.5, 1.0, 1.5)).fit(seen)
    later = with_readings(mix, observe([(s, 80, 0.5) for s in range(3)], ids=seen.ids))
    assert [name for name, _ in later.models] == ["plain", "ou"]
    assert (later.weights_, later.usual_stds) == ((0.5, 0.5), (1.0, 1.5))
    alone = AverageFactorizer(pairs[:1]).fit(readings)
    later = with_readings(alone, observe([(s, 80, 0.5) for s in range(3)], ids=seen.ids))
    assert [name for name, _ in later.models] == ["lagged"]
