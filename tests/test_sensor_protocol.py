"""The protocol for sensors, with a model so simple that its errors are known."""

import json
import warnings

import numpy as np
import pytest
from scipy import stats

from noisewise.data import observe
from noisewise.data.panel import Panel
from noisewise.errors import DataError, SettingError
from noisewise.evaluation import comparison
from noisewise.evaluation.comparison import compare, split_ratio
from noisewise.evaluation.records import as_json, data_of
from noisewise.evaluation.sensors import (
    evaluate,
    protocol_of,
    score,
    sensor_units,
    split_of,
    trimmed_mean,
)
from noisewise.splits import share_split


class SeriesMean:
    """Predicts the mean of a series, and its std."""

    def __init__(self, shift=0.0):
        self.shift = shift

    def get_params(self):
        return {"shift": self.shift, "random_state": 1}

    def fit(self, observations, validation=None):
        self.seen, self.held_out = observations, validation
        self.shape = observations.shape
        series = self._series(observations)
        size = self.shape[0] * self.shape[1]
        count = np.maximum(np.bincount(series, minlength=size), 1)
        self.mean = np.bincount(series, observations.values, minlength=size) / count
        error = observations.values - self.mean[series]
        self.std = np.sqrt(np.bincount(series, error**2, minlength=size) / count)

    def predict(self, observations, return_std):
        assert return_std
        series = self._series(observations)
        return self.mean[series] + self.shift, self.std[series]

    def predict_interval(self, observations, coverage):
        mean, std = self.predict(observations, return_std=True)
        reach = stats.norm.ppf(0.5 + coverage / 2) * std
        return mean - reach, mean + reach

    def _series(self, observations):
        return observations.codes[0] * self.shape[1] + observations.codes[1]


class NothingToChoose(SeriesMean):
    def fit(self, observations):
        super().fit(observations)


@pytest.fixture(scope="module")
def data():
    """Series of white noise around their own level, in units that differ a thousandfold."""
    rng = np.random.default_rng(0)
    place, kind, step = (column.ravel() for column in np.indices((6, 2, 200)))
    level = rng.normal(size=(6, 2))[place, kind]
    value = np.array([1.0, 1000.0])[kind] * (5 + level + rng.normal(0, 0.5, len(kind)))
    kept = rng.random(len(kind)) < 0.8
    rows = [*zip(place[kept], kind[kept], 3 * step[kept], value[kept], strict=True)]
    return Panel(observe(rows), None, seconds=20.0)


@pytest.fixture(scope="module")
def result(data):
    return evaluate(data, lambda seed: SeriesMean(), share=0.4, repeats=3, seed=5)


def test_a_result_has_every_split_and_their_mean(result):
    assert result["model"] == "SeriesMean"
    assert result["settings"] == {"shift": 0.0}
    assert [row["seed"] for row in result["splits"]] == [5, 6, 7]
    scores = ["mse", "median_se", "trimmed_mse", "nll", "coverage90", "seconds"]
    assert list(result["splits"][0]) == ["seed", *scores]
    for key in scores:
        assert result["mean"][key] == np.mean([row[key] for row in result["splits"]])
    assert {"machine", "date", "protocol", "data", "interval95"} <= result.keys()
    assert json.loads(as_json(result))["mean"] == result["mean"]


def test_errors_are_those_of_the_z_scores(data, result):
    seen = data.observations
    kind, y = seen.codes[1], seen.values.astype(float)
    mean, std = (np.array([f(y[kind == k]) for k in (0, 1)])[kind] for f in (np.mean, np.std))
    split = share_split(seen.shape, seen.codes, 0.4, 5)
    model = SeriesMean()
    model.fit(seen.take(split.train))
    guess, spread = model.predict(seen.take(split.test), True)
    rows = split.test
    truth, guess = (y[rows] - mean[rows]) / std[rows], (guess - mean[rows]) / std[rows]
    spread = spread / std[rows]
    first = result["splits"][0]
    assert first["mse"] == pytest.approx(np.mean((truth - guess) ** 2))
    assert first["median_se"] == pytest.approx(np.median((truth - guess) ** 2))
    assert first["nll"] == pytest.approx(-stats.norm.logpdf(truth, guess, spread).mean())
    inside = np.abs(truth - guess) <= stats.norm.ppf(0.95) * spread
    assert first["coverage90"] == pytest.approx(inside.mean())
    assert first["coverage90"] == pytest.approx(0.9, abs=0.04)


def test_the_unit_of_a_sensor_does_not_matter(data):
    seen = data.observations
    scaled = seen.values * np.where(seen.codes[1] == 0, 64.0, 1.0).astype(np.float32)
    other = Panel(type(seen)(seen.codes, scaled, seen.ids), None, data.seconds)
    a, b = (
        evaluate(d, lambda seed: SeriesMean(), share=0.4, repeats=1)["mean"] for d in (data, other)
    )
    assert a["mse"] == pytest.approx(b["mse"], rel=1e-5)
    assert a["nll"] == pytest.approx(b["nll"], rel=1e-5)


def test_a_sensor_that_always_reads_the_same_keeps_its_unit():
    rows = [(place, "dead", step, 7.0) for place in "ab" for step in range(3)]
    data = Panel(observe(rows), None, 1.0)
    mean, std = units = sensor_units(data)
    assert mean.tolist() == [7.0]
    assert std.tolist() == [1.0]
    model = SeriesMean(shift=0.5)
    model.fit(data.observations)
    model.std = np.ones_like(model.std)
    assert score(model, data.observations, units)["mse"] == 0.25


def test_one_broken_reading_moves_the_mean_and_not_its_companions():
    errors = np.r_[np.full(999, 0.01), 400.0]
    assert errors.mean() > 0.4
    assert trimmed_mean(errors) == pytest.approx(0.01)
    assert trimmed_mean(errors[:99]) == pytest.approx(0.01)  # too few to leave one out


def test_a_model_learns_from_all_but_test_and_is_told_what_to_validate_on(data):
    models = []

    def build(seed):
        models.append(SeriesMean() if seed == 0 else NothingToChoose())
        return models[-1]

    evaluate(data, build, share=0.3, repeats=2)
    n_fit = 720  # of 2,400 cells
    assert len(models[0].seen) == n_fit - n_fit // 10
    assert len(models[0].held_out) == n_fit // 10
    assert len(models[1].seen) == n_fit


def test_outages_hide_stretches_of_single_series(data):
    models = []

    def build(seed):
        models.append(NothingToChoose())
        return models[-1]

    # A step of 3 ids is 60 s, so that an outage of 20 minutes has 20 steps: 120 blocks.
    result = evaluate(data, build, protocol="blocks", share=0.2, repeats=1, outage=1200.0)
    assert result["protocol"] == {"kind": "blocks", "share": 0.2, "outage_seconds": 1200.0}
    seen = models[0].seen
    blocks = set(zip(seen.codes[0], seen.codes[1], seen.codes[2] // 20, strict=True))
    assert len(blocks) == 96
    assert result["mean"]["mse"] < 0.5


def test_two_models_are_compared_by_both_tests(data, result):
    worse = evaluate(
        data, lambda seed: SeriesMean(shift=0.3), share=0.4, repeats=3, seed=5, name="shifted"
    )
    assert worse["model"] == "shifted"
    found = compare(result, worse)
    a, b = ([row["mse"] for row in r["splits"]] for r in (result, worse))
    assert found.unpaired_pvalue == pytest.approx(stats.ttest_ind(a, b).pvalue)
    assert found.paired.t_pvalue > stats.ttest_rel(a, b).pvalue  # splits share training parts
    ratio = split_ratio(result["protocol"], result["data"])
    assert found.paired == pytest.approx(comparison.paired_test(a, b, ratio))
    assert found.paired.wins == 3
    assert found.paired.difference < 0


@pytest.mark.parametrize(("share", "outage"), [(0.1, None), (0.4, None), (0.2, 1200.0)])
def test_the_ratio_of_a_split_is_that_of_its_parts(data, share, outage):
    kind = "cells" if outage is None else "blocks"
    split = split_of(data, kind, share, outage, seed=0)
    protocol = protocol_of(kind, share, outage)
    ratio = split_ratio(protocol, data_of(data.observations))
    assert ratio == pytest.approx(len(split.test) / len(split.fit), rel=0.05)


def test_a_model_does_not_differ_from_itself(result):
    same = compare(result, result, metric="nll")
    assert same.unpaired_pvalue == pytest.approx(1.0)
    assert same.paired.difference == 0


def test_one_split_decides_nothing(data):
    one = evaluate(data, lambda seed: SeriesMean(), share=0.4, repeats=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(compare(one, one).unpaired_pvalue)


def test_scores_without_spread_have_the_p_value_of_the_limit(result):
    def constant(level):
        rows = [{"seed": k, "mse": level} for k in range(3)]
        return {**result, "splits": rows}

    assert compare(constant(0.1), constant(0.1)).unpaired_pvalue == 1.0
    assert compare(constant(0.1), constant(0.2)).unpaired_pvalue == 0.0


def test_results_of_other_splits_are_not_compared(data, result):
    for options in ({"share": 0.3, "seed": 5}, {"share": 0.4, "seed": 6}):
        other = evaluate(data, lambda seed: SeriesMean(), repeats=3, **options)
        with pytest.raises(DataError, match="same data and the same splits"):
            compare(result, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "rows"}, "protocol must be one of cells, blocks; got 'rows'"),
        ({"protocol": "blocks"}, "'blocks' needs outage=, in seconds"),
        ({"outage": 60.0}, "'cells' has no outages; leave out outage=60.0"),
        ({"repeats": 0}, "repeats must be a whole number, 1 or more; got 0"),
    ],
)
def test_a_protocol_is_chosen_whole(data, options, message):
    with pytest.raises(SettingError, match=message):
        evaluate(data, lambda seed: SeriesMean(), share=0.4, **options)


def test_splits_that_were_run_are_kept_and_the_others_are_added(data, result):
    built, told = [], []

    def build(seed):
        built.append(SeriesMean())
        return built[-1]

    earlier = json.loads(as_json(result))
    earlier["splits"] = earlier["splits"][:2]
    again = evaluate(
        data, build, share=0.4, repeats=3, seed=5, earlier=earlier, after_split=told.append
    )
    assert [hasattr(model, "mean") for model in built] == [False, False, True]
    scores = [{k: v for k, v in row.items() if k != "seconds"} for row in again["splits"]]
    expected = [{k: v for k, v in row.items() if k != "seconds"} for row in result["splits"]]
    assert scores == expected
    assert [[row["seed"] for row in one["splits"]] for one in told] == [[5, 6, 7]]


def test_the_result_so_far_is_told_after_every_split(data):
    told = []
    evaluate(data, lambda seed: SeriesMean(), share=0.4, repeats=2, after_split=told.append)
    assert [len(one["splits"]) for one in told] == [1, 2]
    assert told[0]["mean"]["mse"] == told[0]["splits"][0]["mse"]


def test_splits_of_another_run_are_not_taken_up(data, result):
    for options, other in (
        ({"share": 0.3}, SeriesMean()),
        ({"share": 0.4}, SeriesMean(shift=1.0)),
        ({"share": 0.4, "name": "another"}, SeriesMean()),
    ):
        with pytest.raises(DataError, match="can only be taken up with the same"):
            evaluate(data, lambda seed, m=other: m, repeats=1, earlier=result, **options)


def test_settings_are_those_of_models_within_models_too_and_have_no_seeds(data):
    class Outer(NothingToChoose):
        def get_params(self):
            within = {"within__rank": 3, "within__random_state": 7}
            return {"within": SeriesMean(), "places": {1: (0.0, 2.0)}, **within}

    found = evaluate(data, lambda seed: Outer(), share=0.4, repeats=1)["settings"]
    assert found == {"within": "SeriesMean", "places": {"1": [0.0, 2.0]}, "within__rank": 3}


def test_the_choice_of_a_model_stands_beside_its_scores(data):
    class Choosing(NothingToChoose):
        choice_ = "ou"

    found = evaluate(data, lambda seed: Choosing(), share=0.4, repeats=1)
    assert found["splits"][0]["choice"] == "ou"
    assert "choice" not in found["mean"]


def test_a_score_that_was_not_measured_cannot_be_compared(result):
    with pytest.raises(DataError, match="need 'rmse' on every split"):
        compare(result, result, metric="rmse")


def test_a_table_with_dates_is_a_tensor_of_sensors():
    rows = [
        ("hall", "heat", "2020-01-02", 20.0),
        ("hall", "heat", "2020-01-01", 21.0),
        ("attic", "heat", "2020-01-04", 15.0),
    ]
    data = Panel.of(observe(rows))
    assert data.elapsed().tolist() == [0.0, 86_400.0, 3 * 86_400.0]
    assert data.observations.codes[2].tolist() == [1, 0, 2]
    with pytest.raises(DataError, match="location, sensor and time; got user, item"):
        Panel.of(observe([("hall", 1, 20.0), ("hall", 2, 21.0)]))
