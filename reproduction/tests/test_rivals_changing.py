"""A rival changes in one step or not at all, and is asked as it is at one moment."""

import noisewise_reproduction
import numpy as np
from battery import PLACES, public_models
from noisewise_reproduction.rivals.autorec import AutoRec
from noisewise_reproduction.rivals.drmf import TrimmedFactorizer
from noisewise_reproduction.rivals.linear import DeviationRegressor
from noisewise_reproduction.rivals.llorma import LLORMA
from noisewise_reproduction.rivals.rbm import RBM
from noisewise_reproduction.rivals.rbmf import RobustBayesianFactorizer
from noisewise_reproduction.rivals.rcf import HuberFactorizer
from test_changing import QUICK, RATINGS, Case, Changing, of_sensors

from noisewise.models.base import Factorizer

NETWORK = {"hidden": 3, "epochs": 3, "device": "cpu", "random_state": 0, "n_jobs": 1}
POINTS = [(X, X @ [1.0, 2.0]) for X in np.random.default_rng(0).normal(size=(2, 40, 2))]

CASES = {
    "rcf": Case.of(HuberFactorizer(**QUICK), RATINGS),
    "rbmf": Case.of(RobustBayesianFactorizer(**QUICK), RATINGS),
    "drmf": Case.of(TrimmedFactorizer(round_epochs=1, **QUICK), RATINGS),
    "llorma": Case.of(LLORMA(models=4, global_rank=2, **QUICK), RATINGS),
    "autorec": Case.of(AutoRec(**NETWORK), RATINGS, needs="torch"),
    "rbm": Case.of(RBM(**NETWORK), RATINGS, needs="torch"),
    "tucker": of_sensors("tucker", {"rank": 2, "epochs": 3}),
    "knn": of_sensors("knn", {}, PLACES),
    "idw": of_sensors("idw", {}, PLACES),
    "knn imputer": of_sensors("knn-imputer", {}),
    "iterative imputer": of_sensors("iterative-imputer", {"iterations": 2}),
    "regression": Case.of(DeviationRegressor(), POINTS),
}


class TestEveryRival(Changing):
    cases = CASES


def test_no_rival_is_forgotten():
    tried = {type(case.make()) for case in CASES.values()}
    assert tried == public_models(noisewise_reproduction, Factorizer) | {DeviationRegressor}
