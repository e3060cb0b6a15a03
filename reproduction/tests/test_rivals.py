"""Every rival passes the battery that the library's models pass, and scikit-learn's checks."""

import noisewise_reproduction
from battery import (
    PLACES,
    Battery,
    Case,
    public_models,
    ratings,
    readings,
    scikit_learn_checks,
    stars,
)
from noisewise_reproduction.rivals.autorec import AutoRec
from noisewise_reproduction.rivals.drmf import TrimmedFactorizer
from noisewise_reproduction.rivals.llorma import LLORMA
from noisewise_reproduction.rivals.rbm import RBM
from noisewise_reproduction.rivals.rbmf import RobustBayesianFactorizer
from noisewise_reproduction.rivals.rcf import HuberFactorizer
from noisewise_reproduction.rivals.spatial import SpatialNeighbours
from noisewise_reproduction.rivals.table_imputers import TableImputer
from noisewise_reproduction.rivals.tucker import TuckerFactorizer

from noisewise.models.base import Factorizer

SEED = {"random_state": 0, "n_jobs": 1}
EPOCHS = SEED | {"rank": 4, "epochs": 15}
NETWORK = SEED | {"hidden": 8, "patience": 5, "device": "cpu"}

CASES = {
    "rcf": Case(HuberFactorizer(**EPOCHS), ratings, (0.9, 1.12)),
    "rbmf": Case(RobustBayesianFactorizer(**EPOCHS), ratings, (0.9, 1.1)),
    "drmf": Case(TrimmedFactorizer(round_epochs=2, **EPOCHS), ratings, (0.9, 1.12)),
    "llorma": Case(
        LLORMA(models=8, global_rank=2, learning_rate=0.05, l2=0.05, **EPOCHS), ratings, (0.9, 1.12)
    ),
    "autorec": Case(
        AutoRec(l2=10.0, presence=0.0, balance=0.0, epochs=30, **NETWORK),
        ratings,
        (0.9, 1.13),
        needs="torch",
    ),
    "rbm": Case(
        RBM(learning_rate=0.3, l2=0.001, batch=40, epochs=15, **NETWORK),
        stars,
        (0.9, 1.15),
        needs="torch",
    ),
    "tucker": Case(TuckerFactorizer(2, epochs=10, **SEED), readings, (1.9, 2.6)),
    "spatial": Case(SpatialNeighbours(PLACES, n_jobs=1), readings, (2.8, 3.6), is_honest=True),
    "knn imputer": Case(TableImputer(random_state=0), readings, (1.8, 2.3)),
    "iterative imputer": Case(
        TableImputer("iterative", iterations=2, random_state=0), readings, (1.4, 1.9)
    ),
}


class TestEveryRival(Battery):
    cases = CASES


def test_no_rival_is_forgotten():
    in_battery = {type(case.model) for case in CASES.values()}
    assert in_battery == public_models(noisewise_reproduction, Factorizer)


SHORT = SEED | {"duplicates": "mean"}
FEW = SHORT | {"rank": 2, "epochs": 3}
ALL_EPOCHS = SHORT | {"patience": None}


@scikit_learn_checks(
    any_modes=[
        SpatialNeighbours({0: (1.0, 0.0)}, duplicates="mean", n_jobs=1),
        TableImputer(duplicates="mean", random_state=0),
        TuckerFactorizer(2, epochs=60, **ALL_EPOCHS),
    ],
    two_modes=[
        HuberFactorizer(**FEW | {"epochs": 15}),
        RobustBayesianFactorizer(**FEW),
        TrimmedFactorizer(round_epochs=2, learning_rate=0.1, **FEW | {"epochs": 12}),
        LLORMA(models=4, global_rank=2, **FEW),
        AutoRec(hidden=8, epochs=60, l2=0.01, presence=0.0, device="cpu", **ALL_EPOCHS),
    ],
    in_levels=[
        RBM(hidden=4, epochs=30, learning_rate=0.3, batch=20, device="cpu", **ALL_EPOCHS),
    ],
    failing={
        (RBM, "check_regressors_no_decision_function"): "Shares of its levels are predict_proba.",
    },
)
def test_scikit_learn_has_no_complaints(estimator, check):
    check(estimator)
