"""Bands for the error on real ratings; run when NOISEWISE_DATA names a folder that has them."""

import pytest

from noisewise.data.files import read
from noisewise.evaluation.comparison import compare
from noisewise.evaluation.ratings import evaluate


@pytest.fixture(scope="module")
def results(data_folder):
    ratings = read(data_folder / "ml1m.npz")
    return {
        name: evaluate(ratings, name, splits=1, protocol="paper") for name in ("dmf", "biased-mf")
    }


def test_dmf_reaches_its_error_on_movielens(results):
    assert results["dmf"]["mean"]["rmse"] < 0.8385


def test_biased_mf_reaches_its_error_on_movielens(results):
    assert results["biased-mf"]["mean"]["rmse"] < 0.8410


def test_dmf_is_more_accurate_than_biased_mf_on_movielens(results):
    assert compare(results["dmf"], results["biased-mf"]).paired.difference < 0


def test_learned_deviation_beats_a_constant_one_on_movielens(results):
    mean = results["dmf"]["mean"]
    assert mean["nll"] < mean["constant_nll"] - 0.02
    assert mean["spearman"] > 0.2


def test_ninety_percent_interval_covers_ninety_percent_on_movielens(results):
    assert results["dmf"]["mean"]["coverage90"] == pytest.approx(0.9, abs=0.01)


def test_small_ratings_need_no_other_settings(data_folder):
    result = evaluate(read(data_folder / "ml100k.npz"), "dmf", splits=3)
    assert result["mean"]["rmse"] < 0.915
    assert result["mean"]["nll"] < result["mean"]["constant_nll"]
