"""Rivals for sensors by their names: every one builds, fits, predicts, and is tuned."""

import numpy as np
import pytest
from battery import PLACES
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_sensor_models import (
    assert_fits_predicts_and_is_filed,
    assert_shared_settings_reach,
    build,
    readings,
)

from noisewise import DeviationImputer, observe, registry
from noisewise.data.panel import Panel
from noisewise.errors import SettingError
from noisewise.evaluation.sensors import sensor_task
from noisewise.evaluation.tuning import Budget, tune

RIVALS = ("tucker", "knn", "idw", "knn-imputer", "iterative-imputer")


def test_names_are_those_that_results_have():
    assert {*RIVALS} <= registry.models("sensors").keys()


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_fits_predicts_and_is_filed(name, tmp_path):
    settings = {"rank": 2, "epochs": 3} if name == "tucker" else None
    where = PLACES if registry.models("sensors")[name].needs_coordinates else None
    assert_fits_predicts_and_is_filed(name, readings(), tmp_path, settings, where)


@pytest.mark.parametrize("name", RIVALS)
def test_shared_settings_reach_every_rival_that_has_them(name):
    assert_shared_settings_reach(name, PLACES)


def test_settings_and_coordinates_reach_the_model():
    assert build("idw", coordinates=PLACES, settings={"power": 2}).power == 2
    model = build("auto", coordinates=PLACES, settings={"candidates": ["linear", "knn"]})
    assert [name for name, _ in model.candidates] == ["linear", "knn"]


def test_neighbours_need_coordinates():
    with pytest.raises(SettingError, match="'knn' needs to know where locations are"):
        build("knn")


@parametrize_with_checks([DeviationImputer("knn-imputer")])
@pytest.mark.filterwarnings("ignore:Nothing was ever read")
def test_scikit_learn_has_no_complaints_of_an_imputer_with_a_rival(estimator, check):
    check(estimator)


def test_neighbours_are_tuned_with_the_coordinates_of_a_panel():
    rng = np.random.default_rng(0)
    cells = [(k, "heat", t) for k in range(6) for t in range(60)]
    seen = observe(cells, [np.sin(t / 9 + k / 10) + 0.1 * rng.normal() for k, _, t in cells])
    panel = Panel(seen, {k: (100.0 * k, 0.0) for k in range(6)}, seconds=60.0)
    result = tune(sensor_task(panel), ["knn", "idw"], budget=Budget(trials=2), n_jobs=1)
    errors = [trial["mse"] for one in result["models"].values() for trial in one["trials"]]
    assert len(errors) == 4
    assert max(errors) < 0.2
