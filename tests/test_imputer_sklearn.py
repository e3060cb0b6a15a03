"""DeviationImputer among the transformers of scikit-learn: checks, pipelines, names, output."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from noisewise import DeviationImputer

QUICK = {"random_state": 0, "n_jobs": 1}


@pytest.fixture(scope="module")
def weather():
    """Sensors with holes, and what depends on them."""
    rng = np.random.default_rng(0)
    slow = np.cumsum(rng.normal(size=(300, 4)), axis=0)
    y = slow @ [1.0, -2.0, 0.5, 1.5] + rng.normal(size=300)
    slow[rng.random(slow.shape) < 0.2] = np.nan
    return pd.DataFrame(slow, columns=list("abcd")), y


def pipeline(method="ou"):
    return make_pipeline(DeviationImputer(method, **QUICK), StandardScaler(), Ridge())


@pytest.mark.parametrize("kind", ["numpy", "pandas", "polars"])
def test_a_pipeline_learns_and_predicts(weather, kind):
    X, y = weather
    X = {"numpy": X.to_numpy(), "pandas": X, "polars": pl.DataFrame(X.to_dict("list"))}[kind]
    model = pipeline().fit(X[:200], y[:200])
    assert model.score(X[200:], y[200:]) > 0.8
    assert model.predict(X[200:]).shape == (100,)


def test_cross_validation_and_grid_search_work(weather):
    X, y = weather
    scores = cross_val_score(pipeline(), X, y, cv=TimeSeriesSplit(3))
    assert (scores > 0.5).all()
    grid = {"deviationimputer__method": ["linear", "ou"], "ridge__alpha": [0.1, 1e9]}
    search = GridSearchCV(pipeline(), grid, cv=TimeSeriesSplit(2)).fit(X, y)
    assert search.best_params_["ridge__alpha"] == 0.1
    by_method = [
        cross_val_score(pipeline(method), X, y, cv=TimeSeriesSplit(2)).mean()
        for method in ("linear", "ou")
    ]
    best = ("linear", "ou")[int(np.argmax(by_method))]
    assert search.best_params_["deviationimputer__method"] == best


@pytest.mark.parametrize("library", [pd, pl], ids=lambda library: library.__name__)
def test_output_can_be_asked_for_as_a_frame(weather, library):
    X, _ = weather
    imputer = DeviationImputer("ou", **QUICK).set_output(transform=library.__name__)
    expected = clone(imputer).fit_transform(X.to_numpy())
    filled = imputer.fit_transform(X.to_numpy())
    assert isinstance(filled, library.DataFrame)
    assert list(filled.columns) == ["x0", "x1", "x2", "x3"]
    np.testing.assert_array_equal(filled.to_numpy(), expected)
    filled, std = imputer.fit_transform(X, return_std=True)
    assert isinstance(filled, library.DataFrame)
    assert isinstance(std, pd.DataFrame)  # as X
    assert list(filled.columns) == list("abcd")


def test_names_go_through(weather):
    X, _ = weather
    imputer = DeviationImputer("ou", **QUICK).fit(X)
    assert imputer.feature_names_in_.tolist() == list("abcd")
    assert imputer.get_feature_names_out().tolist() == list("abcd")
    pipe = make_pipeline(DeviationImputer("ou", **QUICK), StandardScaler()).fit(X)
    assert pipe.get_feature_names_out().tolist() == list("abcd")
    timed = X.assign(when=np.arange(len(X)) * 60)
    imputer = DeviationImputer("ou", time="when", **QUICK).fit(timed)
    assert imputer.get_feature_names_out().tolist() == [*"abcd", "when"]
    assert imputer.transform(timed).columns.tolist() == [*"abcd", "when"]


@pytest.mark.filterwarnings("ignore:Nothing was ever read")
@parametrize_with_checks(
    [
        DeviationImputer("ou", n_jobs=1),
        DeviationImputer("linear", n_jobs=1),
    ]
)
def test_scikit_learn_has_no_complaints(estimator, check):
    check(estimator)
