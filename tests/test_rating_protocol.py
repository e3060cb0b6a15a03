"""What `noisewise evaluate` measures on ratings: the model that fit makes, and fair controls."""

import numpy as np
import pytest

from noisewise import DataError, SettingError, metrics, observe, registry
from noisewise.evaluation import comparison, ratings
from noisewise.evaluation.comparison import split_ratio
from noisewise.evaluation.ratings import rating_task

SMALL = {"rank": 2, "epochs": 4, "n_jobs": 1}


def sparse_ratings(low, high, seed=0):
    """Few ratings of many items: many test pairs have an id that was not trained on."""
    rng = np.random.default_rng(seed)
    cells = np.column_stack(np.divmod(rng.permutation(60 * 300)[:600], 300))
    return observe(cells, rng.integers(low, high + 1, len(cells)).astype(float))


def fitted(observations, split, **settings):
    model = registry.build("ratings", "dmf", {**SMALL, "random_state": 0, **settings})
    return model.fit(observations.take(split.train), validation=observations.take(split.validation))


def test_evaluate_measures_the_model_that_fit_makes():
    observations = sparse_ratings(20, 100)
    split = ratings.split_of(observations, 0, "random")
    test = observations.take(split.test)
    strangers = ~np.isin(test.codes[1], observations.codes[1][split.fit])
    assert strangers.mean() > 0.1
    (row,) = ratings.evaluate(observations, "dmf", SMALL, splits=1)["splits"]
    mean = fitted(observations, split).predict(test)
    assert row["rmse"] == pytest.approx(metrics.rmse(test.values, mean))
    assert row["rmse"] < 1.1 * test.values.std()


def test_only_the_papers_protocol_gives_a_three_to_unknown_ids():
    observations = sparse_ratings(1, 5)
    split = ratings.split_of(observations, 0, "paper")
    test = observations.take(split.test)
    result = ratings.evaluate(observations, "dmf", SMALL, splits=1, protocol="paper")
    mean = fitted(observations, split, unknown=3.0).predict(test)
    assert result["splits"][0]["rmse"] == pytest.approx(metrics.rmse(test.values, mean))
    assert result["settings"]["unknown"] == 3.0
    other = ratings.evaluate(observations, "dmf", SMALL, splits=1)
    assert other["settings"]["unknown"] == "default"
    assert other["splits"][0]["rmse"] != pytest.approx(result["splits"][0]["rmse"])
    with pytest.raises(DataError, match="the same data and the same splits"):
        comparison.compare(result, other)


def test_a_three_that_no_rating_can_be_is_refused():
    with pytest.raises(SettingError, match="go from 20 to 100: use the protocol 'random'"):
        ratings.evaluate(sparse_ratings(20, 100), "dmf", SMALL, protocol="paper")


@pytest.mark.parametrize("protocol", ["random", "paper", "user"])
def test_the_ratio_of_a_split_is_that_of_its_parts(protocol):
    observations = sparse_ratings(1, 5)
    split = ratings.split_of(observations, 0, protocol)
    ratio = split_ratio(protocol, {"observations": 600, "shape": [60, 300]})
    assert ratio == pytest.approx(len(split.test) / len(split.fit), rel=0.25)
    assert split_ratio("time", {}) == 0.0


def test_a_trial_is_of_the_same_protocol():
    observations = sparse_ratings(1, 5)
    built = {
        protocol: rating_task(observations, protocol=protocol).build("dmf", SMALL, 0, 1).unknown
        for protocol in ("random", "paper")
    }
    assert built == {"random": "default", "paper": 3.0}


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
@pytest.mark.parametrize("name", ["dmf", "bayes"])
def test_the_one_std_for_all_knows_nothing_of_test_errors(name):
    observations = sparse_ratings(1, 5)
    split = ratings.split_of(observations, 0, "random")
    spoiled = observations.take(np.arange(len(observations)))  # a copy
    spoiled.values[split.test[::2]] = 5.0
    spoiled.values[split.test[1::2]] = 1.0
    settings = SMALL if name == "dmf" else {"rank": 2, "sweeps": 12, "burn_in": 4, "n_jobs": 1}
    one, other = (
        ratings.evaluate(data, name, settings, splits=1)["splits"][0]
        for data in (observations, spoiled)
    )
    assert other["rmse"] > 1.05 * one["rmse"]
    assert other["constant_std"] == one["constant_std"]
    for row in (one, other):
        std = row["constant_std"]
        expected = 0.5 * np.log(2 * np.pi * std**2) + row["rmse"] ** 2 / (2 * std**2)
        assert row["constant_nll"] == pytest.approx(expected)


def test_the_one_std_for_all_is_the_error_on_the_validation_part():
    observations = sparse_ratings(1, 5)
    split = ratings.split_of(observations, 0, "random")
    held_out = observations.take(split.validation)
    (row,) = ratings.evaluate(observations, "dmf", SMALL, splits=1)["splits"]
    mean = fitted(observations, split, refit=False).predict(held_out)
    assert row["constant_std"] == pytest.approx(metrics.rmse(held_out.values, mean), rel=1e-3)


@pytest.mark.filterwarnings("ignore:All .* values are 3")
def test_values_that_are_all_alike_are_measured_without_a_std_of_their_errors():
    (row,) = ratings.evaluate(sparse_ratings(3, 3), "dmf", SMALL, splits=1)["splits"]
    assert row["rmse"] == row["constant_std"] == 0.0
    assert np.isnan(row["constant_nll"])
    assert row["coverage90"] == 1.0


@pytest.mark.parametrize("given", [{"splits": 1.5}, {"splits": "2"}, {"seed": -1}, {"seed": None}])
def test_splits_and_their_seeds_are_whole_numbers(given):
    with pytest.raises(SettingError, match="must be a whole number"):
        ratings.evaluate(sparse_ratings(1, 5), "dmf", SMALL, **given)
    if "seed" in given:
        with pytest.raises(SettingError, match="seed must be a whole number"):
            rating_task(sparse_ratings(1, 5), **given)
