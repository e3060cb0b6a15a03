"""Rivals on tables as people have them: ids of the wrong type, and values of any scale."""

import numpy as np
import pandas as pd
import pytest
from noisewise_reproduction.rivals.autorec import AutoRec
from noisewise_reproduction.rivals.drmf import TrimmedFactorizer
from noisewise_reproduction.rivals.llorma import LLORMA
from noisewise_reproduction.rivals.rbm import RBM
from noisewise_reproduction.rivals.rbmf import RobustBayesianFactorizer
from noisewise_reproduction.rivals.rcf import HuberFactorizer
from noisewise_reproduction.rivals.spatial import SpatialNeighbours
from noisewise_reproduction.rivals.table_imputers import TableImputer
from noisewise_reproduction.rivals.tucker import TuckerFactorizer
from sklearn.base import clone
from test_tables import SCALES, assert_same_in_units, assert_same_nll_in_units, small_readings

from noisewise import DataError, SettingError, noisy_ids, noisy_observations
from noisewise.errors import UnknownIdsWarning

SEED = {"random_state": 0, "n_jobs": 1}
EPOCHS = SEED | {"rank": 2, "epochs": 8}
RATED = {
    "huber": HuberFactorizer(**EPOCHS),
    "trimmed": TrimmedFactorizer(round_epochs=2, **EPOCHS),
    "rbmf": RobustBayesianFactorizer(**EPOCHS),
    "llorma": LLORMA(models=4, global_rank=2, **EPOCHS),
    "autorec": AutoRec(hidden=8, epochs=10, device="cpu", **SEED),
}
READ = {
    "tucker": TuckerFactorizer(2, epochs=5, **SEED),
    "spatial": SpatialNeighbours({k: (float(k), 0.0) for k in range(6)}, n_jobs=1),
}


@pytest.fixture(params=SCALES.values(), ids=SCALES.keys())
def unit(request):
    return request.param


@pytest.mark.parametrize("model", RATED.values(), ids=RATED.keys())
def test_ratings_of_any_offset_and_scale_are_learned_alike(model, unit, small_world, tmp_path):
    if isinstance(model, AutoRec):
        pytest.importorskip("torch")
    assert_same_in_units(model, small_world.X, small_world.y, unit, tmp_path)


@pytest.mark.parametrize("model", READ.values(), ids=READ.keys())
def test_readings_of_any_offset_and_scale_are_learned_alike(model, unit, tmp_path):
    assert_same_in_units(model, *small_readings(), unit, tmp_path)


@pytest.mark.parametrize("name", ["huber", "llorma"])
def test_the_nll_of_small_values_is_that_of_large_ones_in_another_unit(name, small_world):
    assert_same_nll_in_units(RATED[name], small_world)


def test_probabilities_of_ids_of_another_type_are_told(small_world):
    pytest.importorskip("torch")
    frame = pd.DataFrame(small_world.X, columns=["user", "item"])
    model = RBM(epochs=2, device="cpu").fit(frame, np.clip(np.rint(small_world.y), 1, 5))
    with pytest.warns(UnknownIdsWarning, match="ids of user .* are of type str"):
        model.predict_proba([("17", 1)])


def test_a_model_without_rows_has_no_noisy_ids(small_world):
    model = clone(RATED["llorma"]).fit(small_world.X, small_world.y)
    with pytest.raises(SettingError, match="a LLORMA does not"):
        noisy_ids(model)
    assert len(noisy_observations(model, small_world.X, small_world.y, n=3)["surprise"]) == 3


@pytest.mark.parametrize("model", [RBM(epochs=2, device="cpu"), TableImputer()], ids=["rbm", "knn"])
def test_a_model_that_keeps_single_precision_refuses_what_is_too_coarse(model, small_world):
    y = 1e8 + np.clip(np.rint(small_world.y), 1, 5)
    with pytest.raises(DataError, match=r"single precision"):
        clone(model).fit(small_world.X, y)
