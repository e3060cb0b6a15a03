"""Every model of the library passes the battery, and scikit-learn's checks."""

import pytest
from battery import Battery, Case, public_models, ratings, readings, scikit_learn_checks
from sklearn.base import BaseEstimator

import noisewise
from noisewise import (
    AutoFactorizer,
    BayesianFactorizer,
    DeviationFactorizer,
    DeviationImputer,
    LinearInterpolator,
    OUSmoother,
    ResidualFactorizer,
    TemporalFactorizer,
)
from noisewise.models.average import AverageFactorizer
from noisewise.models.grid import TableModel
from noisewise.models.residual import TypeMean
from noisewise.models.simple import ItemKNN, Popularity

SEED = {"random_state": 0, "n_jobs": 1}
EPOCHS = SEED | {"rank": 4, "epochs": 15, "warmup": 2}
SWEEPS = SEED | {"rank": 4, "sweeps": 30, "burn_in": 10}
QUICK = {"rank": 2, "sweeps": 9, "burn_in": 3}

CASES = {
    "deviation": Case(DeviationFactorizer(deviation_rank=2, **EPOCHS), ratings, (0.9, 1.08)),
    "constant noise": Case(DeviationFactorizer(deviation_rank=0, **EPOCHS), ratings, (0.9, 1.09)),
    "per row": Case(
        DeviationFactorizer(deviation_rank=1, adagrad="row", penalty="row", l2=0.5, **EPOCHS),
        ratings,
        (0.9, 1.08),
    ),
    "all epochs": Case(
        DeviationFactorizer(deviation_rank=1, patience=None, **EPOCHS), ratings, (0.9, 1.08)
    ),
    "bayes": Case(BayesianFactorizer(**SWEEPS), ratings, (0.9, 1.15), is_honest=True),
    "bayes, constant noise": Case(
        BayesianFactorizer(deviation="constant", implicit=False, **SWEEPS),
        ratings,
        (0.9, 1.08),
        is_honest=True,
    ),
    "popularity": Case(Popularity(), ratings, (1.0, 1.4)),
    "item-kNN": Case(ItemKNN(shrinkage=5.0), ratings, (0.9, 1.2)),
    "temporal": Case(TemporalFactorizer(**SWEEPS), readings, (1.4, 1.95), is_honest=True),
    "temporal, low rank": Case(
        TemporalFactorizer(tails="heavy", **SWEEPS), readings, (1.4, 1.85), is_honest=True
    ),
    "residual": Case(
        ResidualFactorizer(BayesianFactorizer(**QUICK), **SEED), readings, (1.4, 1.95)
    ),
    "residual, of sensors": Case(
        ResidualFactorizer(DeviationFactorizer(rank=2, epochs=10), base="type", **SEED),
        readings,
        (3.0, 3.9),
    ),
    "ou": Case(OUSmoother(n_jobs=1), readings, (1.9, 2.3), is_honest=True),
    "linear": Case(LinearInterpolator(n_jobs=1), readings, (2.1, 2.6), is_honest=True),
    "seasonal": Case(OUSmoother(seasons="auto", n_jobs=1), readings, (1.5, 2.4), is_honest=True),
    "pchip": Case(
        LinearInterpolator(curve="pchip", n_jobs=1), readings, (2.1, 2.6), is_honest=True
    ),
    **{
        f"table, {method}": Case(TableModel(method, n_jobs=1), readings, (1.4, 3.9), is_honest=True)
        for method in ("nearest", "regression", "soft", "svd")
    },
    **{
        f"table, {method}, lagged": Case(
            TableModel(method, lags=(1, 3), n_jobs=1), readings, (1.4, 3.9), is_honest=True
        )
        for method in ("nearest", "regression", "forest")
    },
    "average": Case(
        AverageFactorizer((("bayes", TemporalFactorizer(**QUICK)), ("ou", OUSmoother())), **SEED),
        readings,
        (1.4, 2.6),
    ),
    "mean of a sensor": Case(TypeMean(), readings, (5.5, 6.3)),
    "auto": Case(AutoFactorizer(("linear", "ou"), **SEED), readings, (1.9, 2.6)),
}


class TestEveryModel(Battery):
    cases = CASES


def test_no_model_is_forgotten():
    in_battery = {type(case.model) for case in CASES.values()}
    assert in_battery == public_models(noisewise, noisewise.models.base.Factorizer)
    exported = {getattr(noisewise, name) for name in noisewise.__all__}
    estimators = {k for k in exported if isinstance(k, type) and issubclass(k, BaseEstimator)}
    assert estimators - in_battery == {DeviationImputer}  # a transformer: test_imputer_sklearn.py


SHORT = SEED | {"duplicates": "mean"}
FEW_SWEEPS = {"rank": 2, "sweeps": 6, "burn_in": 2}


@scikit_learn_checks(
    any_modes=[
        DeviationFactorizer(2, deviation_rank=2, epochs=3, **SHORT),
        BayesianFactorizer(**FEW_SWEEPS, **SHORT),
        TemporalFactorizer(**FEW_SWEEPS, **SHORT),
        ResidualFactorizer(BayesianFactorizer(**FEW_SWEEPS), **SHORT),
        AutoFactorizer(("linear", "ou"), **SHORT),
        OUSmoother(duplicates="mean", n_jobs=1),
        LinearInterpolator(duplicates="mean", n_jobs=1),
        TableModel(duplicates="mean", n_jobs=1),
        AverageFactorizer((("ou", OUSmoother()),), **SHORT),
        TypeMean(duplicates="mean"),
    ],
    two_modes=[Popularity(duplicates="mean"), ItemKNN(duplicates="mean")],
    failing={
        (TypeMean, "check_regressors_train"): "It predicts one value for all of a sensor.",
        (Popularity, "check_regressors_train"): "It predicts one value for all of an item.",
        **{
            (kind, "check_sample_weight_equivalence_on_dense_data"): "A cell is there only once."
            for kind in (DeviationFactorizer, BayesianFactorizer)
        },
        **{
            (BayesianFactorizer, check): "partial_fit takes two columns of ids; there are more."
            for check in ("check_fit_score_takes_y", "check_n_features_in_after_fitting")
        },
    },
)
@pytest.mark.filterwarnings("ignore:Predictions have not settled")
def test_scikit_learn_has_no_complaints(estimator, check):
    check(estimator)
