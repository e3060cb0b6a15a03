"""Scales of readings, their bounds, outliers, and intervals of the imputer."""

import numpy as np
import pytest

from noisewise import DeviationImputer, standardised
from noisewise.data import observe
from noisewise.errors import DataError, SettingError
from noisewise.outliers import are_errors, find_outliers
from noisewise.scaling import Look, fit_scale

QUICK = {"random_state": 0, "n_jobs": 1}


@pytest.fixture(scope="module")
def counts():
    """Few events an hour, many at noon, of three places; and holes."""
    rng = np.random.default_rng(0)
    level = np.exp(0.5 + 1.2 * np.sin(np.arange(300) / 6))[:, None] * [1.0, 0.5, 2.0]
    table = rng.poisson(level).astype(float)
    table[rng.random(table.shape) < 0.15] = np.nan
    return table


def scale_of(values, transform, bounds=None, chosen=False):
    sensors = np.zeros(len(values), dtype=np.int64)
    look = Look.at(values, sensors, 1)
    return fit_scale(values, sensors, look, transform, bounds, chosen=chosen), sensors


@pytest.mark.parametrize("transform", [None, "sqrt", "log"])
def test_readings_come_back_from_their_scale(transform):
    values = np.random.default_rng(0).gamma(2.0, 3.0, 200)
    scale, sensors = scale_of(values, transform)
    z = scale.standard(values, sensors)
    np.testing.assert_allclose(scale.ends(z, sensors), values, rtol=1e-9)
    assert z.mean() == pytest.approx(0.0, abs=1e-9)
    assert z.std() == pytest.approx(1.0)


@pytest.mark.parametrize("transform", ["sqrt", "log"])
def test_what_comes_back_is_the_mean_and_not_the_median(transform):
    values = np.random.default_rng(0).gamma(4.0, 3.0, 500)
    scale, sensors = scale_of(values, transform)
    drawn = np.random.default_rng(1).normal(0.3, 0.4, 200_000)
    many = scale.ends(drawn, np.zeros(len(drawn), dtype=np.int64))
    mean, std = scale.own(np.array([0.3]), np.array([0.4]), sensors[:1])
    assert mean[0] == pytest.approx(many.mean(), rel=0.01)
    assert std[0] == pytest.approx(many.std(), rel=0.02)
    assert mean[0] > scale.ends(np.array([0.3]), sensors[:1])[0]


def test_a_wider_interval_moves_no_fill(counts):
    # A mote whose light jumped once in the logarithm needs wide intervals, and was filled with ten
    # times what anybody had read.
    imputer = DeviationImputer("auto", scale="log", random_state=0).fit(counts)
    hole = np.isnan(counts)
    before, ends = imputer.transform(counts), imputer.interval(counts)
    imputer.model_.local_.series[:] *= 7.0
    np.testing.assert_allclose(imputer.transform(counts), before)
    wider = imputer.interval(counts)
    assert (wider[1] - wider[0])[hole].mean() > 2.0 * (ends[1] - ends[0])[hole].mean()


def test_a_root_of_what_is_negative_is_refused():
    with pytest.raises(DataError, match="needs readings of 0 or more; got -2"):
        scale_of(np.array([1.0, -2.0, 3.0]), "sqrt")
    scale, sensors = scale_of(np.array([1.0, -2.0, 3.0]), "sqrt", bounds=(-5, None))
    assert scale.ends(np.array([-50.0]), sensors[:1]) == [-5.0]


def test_readings_beyond_bounds_are_refused(counts):
    with pytest.raises(DataError, match="bounds must hold all readings"):
        DeviationImputer("ou", bounds=(0, 5), **QUICK).fit(counts)
    with pytest.raises(SettingError, match="bounds must be a pair"):
        DeviationImputer("ou", bounds=(5, 0), **QUICK).fit(counts)


@pytest.mark.parametrize("scale", ["auto", None, "sqrt", "log"])
def test_counts_stay_counts(counts, scale):
    imputer = DeviationImputer("ou", scale=scale, whole=True, **QUICK).fit(counts)
    filled = imputer.transform(counts)
    low, high = imputer.interval(counts, coverage=0.95)
    for table in (filled, low, high):
        assert table.min() >= 0
        assert np.array_equal(table, np.rint(table))
        assert np.array_equal(table[~np.isnan(counts)], counts[~np.isnan(counts)])
    assert (low <= high).all()
    assert imputer.scale_ == scale or scale == "auto"


def test_what_can_be_negative_has_no_bound():
    rng = np.random.default_rng(0)
    table = rng.normal(1.0, 1.0, (200, 2)).cumsum(axis=0) % 9 - 4
    table[rng.random(table.shape) < 0.1] = np.nan
    imputer = DeviationImputer("ou", **QUICK).fit(table)
    assert imputer.scale_ is None
    low, _ = imputer.interval(table, 0.99)
    assert low.min() < 0


def test_a_temperature_that_was_never_negative_may_become_so():
    heat = 8.0 + 7.0 * np.sin(np.arange(300) / 20)[:, None] * [1.0, 0.9]
    assert heat.min() > 0
    imputer = DeviationImputer("ou", **QUICK).fit(heat)
    assert np.isneginf(imputer._standardised.scale.low).all()


def test_counts_and_concentrations_far_from_0_end_there_and_degrees_do_not():
    rng, wave = np.random.default_rng(0), np.sin(np.arange(300) / 20)
    lows = {
        "cars": (np.rint(500.0 + 300.0 * wave), 0.0),
        "concentration": (5.0 + rng.gamma(1.0, 8.0, 300), 0.0),
        "whole degrees": (np.rint(16.0 + 10.0 * wave), -np.inf),
        "pressure": (500.5 + 300.0 * wave, -np.inf),
    }
    for kind, (values, low) in lows.items():
        assert values.min() > 0.25 * np.median(values), kind
        assert scale_of(values, None, bounds="auto")[0].low == [low], kind


def test_whole_numbers_that_scatter_as_events_do_end_at_0_and_degrees_do_not():
    rng, times = np.random.default_rng(0), np.arange(500)
    rhythm = 20.0 + 15.0 * np.sin(2 * np.pi * times / 24)
    events = np.maximum(rng.poisson(rhythm[:, None] * [0.6, 1.0, 2.0]), 1.0)
    mild = np.rint(np.maximum(9.0 + 7.0 * np.sin(times / 58) + 2.0 * rng.normal(size=500), 1.0))
    table = np.column_stack([events, mild])
    assert (table.max(axis=0) < 150).all()
    order = rng.permutation(table.size)
    seen = observe(np.argwhere(table > 0)[order][:, ::-1], table.ravel()[order])
    scale = standardised.scale_of(seen, 0, standardised.Decided(), "auto")
    assert scale.low.tolist() == [0.0, 0.0, 0.0, -np.inf]


def test_events_beside_frost_and_beside_nothing_raise_no_warning():
    rng, times = np.random.default_rng(2), np.arange(300)
    events = rng.poisson(20.0 + 15.0 * np.sin(2 * np.pi * times / 24)).astype(float)
    lone = np.where(times == 7, 3.0, np.nan)
    table = np.column_stack([events, np.rint(rng.normal(-9.0, 3.0, 300)), 0.0 * times, lone])
    table[rng.random(300) < 0.1, 0] = np.nan
    imputer = DeviationImputer("seasonal", **QUICK).fit(table)
    assert imputer._standardised.scale.low[:2].tolist() == [0.0, -np.inf]


def test_no_interval_of_events_ends_below_0():
    rng, times = np.random.default_rng(1), np.arange(500)
    rhythm = 20.0 + 15.0 * np.sin(2 * np.pi * times / 24)
    table = rng.poisson(rhythm[:, None] * [0.6, 1.0, 1.6]).astype(float)
    table[rng.random(table.shape) < 0.2] = np.nan
    imputer = DeviationImputer("seasonal", **QUICK).fit(table)
    assert imputer.interval(table, 0.99)[0].min() == 0.0
    assert imputer.transform(table).min() >= 0.0


def test_intervals_hold_as_often_as_they_say(counts):
    rng = np.random.default_rng(1)
    read = np.argwhere(~np.isnan(counts))
    hidden = read[rng.permutation(len(read))[:150]]
    table = counts.copy()
    table[tuple(hidden.T)] = np.nan
    low, high = (
        DeviationImputer(settings={"candidates": ["ou", "seasonal"]}, **QUICK)
        .fit(table)
        .interval(table, 0.9)
    )
    at = tuple(hidden.T)
    assert 0.82 < np.mean((low[at] <= counts[at]) & (counts[at] <= high[at])) <= 1.0


def test_scales_bounds_and_outliers_are_kept_in_files(counts, tmp_path):
    spiked = counts.copy()
    spiked[40, 0] = 400.0
    candidates = ["linear", "ou", "regression"]
    imputer = DeviationImputer(settings={"candidates": candidates}, **QUICK).fit(spiked)
    imputer.save(tmp_path / "imputer")
    loaded = DeviationImputer.load(tmp_path / "imputer")
    assert loaded._standardised.decided == imputer._standardised.decided
    for one, other in zip(imputer.interval(spiked), loaded.interval(spiked), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(
        *(each.transform(spiked, return_std=True)[1] for each in (imputer, loaded))
    )


def test_spikes_are_no_readings():
    rng = np.random.default_rng(0)
    walk = rng.normal(0, 0.3, (400, 2)).cumsum(axis=0)
    truth = np.column_stack([walk @ [1.0, 0.5], walk @ [0.3, 1.0], walk.sum(axis=1)])
    truth += rng.normal(0, 0.1, truth.shape)
    hidden = rng.random(truth.shape) < 0.1
    table = np.where(hidden, np.nan, truth)
    spiked = table.copy()
    where = rng.permutation(np.flatnonzero(~hidden[:, 0]))[:6]
    spiked[where, 0] += 20 * truth[:, 0].std()
    errors = []
    for one, how in ((table, "auto"), (spiked, "auto"), (spiked, "keep")):
        given = {"settings": {"candidates": ["linear", "ou", "regression"]}, "outliers": how}
        filled = DeviationImputer(**given, **QUICK).fit_transform(one)
        errors.append(np.sqrt(np.mean((filled - truth)[hidden[:, 0], 0] ** 2)))
    assert errors[1] < 1.3 * errors[0]
    assert errors[2] > 1.2 * errors[1]


def test_what_several_series_have_at_once_is_an_event():
    values = np.sin(np.arange(200.0) / 5)[:, None] * [1.0, 2.0]
    values[50] += 60.0
    values[90, 0] += 60.0
    rows = [(s, t, values[t, s]) for s in range(2) for t in range(200)]
    seen = observe(rows)
    which, when = np.repeat([0, 1], 200), np.tile(np.arange(200.0), 2)
    assert np.flatnonzero(find_outliers(seen, which, when, 2)).tolist() == [90]


def test_a_mask_says_what_holes_will_be_like(counts):
    like = np.zeros(counts.shape, dtype=bool)
    like[100:120] = True
    given = {"settings": {"candidates": ["ou", "regression"]}, **QUICK}
    imputer = DeviationImputer(like=like, **given).fit(counts)
    assert "hidden by holes like those" in str(imputer.model_)
    with pytest.raises(DataError, match="like must have the shape"):
        DeviationImputer(like=like[:5], **given).fit(counts)
    with pytest.raises(SettingError, match="like must be one of"):
        DeviationImputer(like="tunnels", **given).fit(counts)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_no_series_decides_about_outliers_by_what_it_is_measured_in(factor):
    rng = np.random.default_rng(1)
    times, peaks = np.arange(400), np.arange(25, 390, 12)
    spiky, peaked = np.sin(times / 9) + rng.normal(0, 0.01, 400), rng.normal(0, 0.1, 400)
    spikes = rng.choice(np.arange(10, 390), 6, replace=False)
    spiky[spikes] += 20
    for beside, height in ((-1, 7), (0, 10), (1, 7)):  # what is high is expected beside a peak
        peaked[peaks + beside] += height
    kept = rng.random((2, 400)) > 0.3
    kept[0, spikes] = kept[1, peaks] = True
    which, when = np.nonzero(kept)
    values = np.where(which == 0, spiky[when], factor * peaked[when])
    found = np.where(which == 0, np.isin(when, spikes), np.isin(when, peaks))
    seen = observe(np.column_stack([which, when]), values)
    assert are_errors(seen, None, found)
