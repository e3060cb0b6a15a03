"""One battery that every model passes: scikit-learn's contract, unknown ids, intervals, files."""

import pickle
import warnings
from importlib.util import find_spec

import numpy as np
import pandas as pd
import polars as pl
import pytest
from noisewise_reproduction.rivals.autorec import AutoRec
from noisewise_reproduction.rivals.drmf import TrimmedFactorizer
from noisewise_reproduction.rivals.llorma import LLORMA
from noisewise_reproduction.rivals.rbm import RBM
from noisewise_reproduction.rivals.rbmf import RobustBayesianFactorizer
from noisewise_reproduction.rivals.rcf import HuberFactorizer
from shared import assert_same_bits
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.utils.estimator_checks import parametrize_with_checks

from noisewise import (
    BayesianFactorizer,
    DataError,
    DeviationFactorizer,
    FitInterrupted,
    SettingError,
    load,
    observe,
    storage,
)
from noisewise.errors import UnknownIdsWarning
from noisewise.models.rows import Rowwise

QUICK = {"rank": 4, "random_state": 0, "n_jobs": 1}
FEW = QUICK | {"epochs": 15, "warmup": 2}
SWEEPS = QUICK | {"sweeps": 30, "burn_in": 10}
NETWORK = {"hidden": 8, "patience": 5, "device": "cpu", "random_state": 0, "n_jobs": 1}

MODELS = {
    "deviation": DeviationFactorizer(deviation_rank=2, **FEW),
    "constant noise": DeviationFactorizer(deviation_rank=0, **FEW),
    "per row": DeviationFactorizer(deviation_rank=1, adagrad="row", penalty="row", l2=0.5, **FEW),
    "all epochs": DeviationFactorizer(deviation_rank=1, patience=None, **FEW),
    "rcf": HuberFactorizer(epochs=15, **QUICK),
    "rbmf": RobustBayesianFactorizer(epochs=15, **QUICK),
    "drmf": TrimmedFactorizer(round_epochs=2, epochs=15, **QUICK),
    "llorma": LLORMA(models=8, global_rank=2, learning_rate=0.05, l2=0.05, epochs=15, **QUICK),
    "autorec": AutoRec(l2=10.0, presence=0.0, balance=0.0, epochs=30, **NETWORK),
    "rbm": RBM(learning_rate=0.3, l2=0.001, batch=40, epochs=15, **NETWORK),
    "bayes": BayesianFactorizer(**SWEEPS),
    "bayes, constant noise": BayesianFactorizer(deviation="constant", implicit=False, **SWEEPS),
}
IN_TORCH = AutoRec, RBM

pytestmark = pytest.mark.filterwarnings("ignore:Predictions have not settled")


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS.keys())
def fresh(request):
    """A model that was not fitted."""
    if isinstance(request.param, IN_TORCH):
        pytest.importorskip("torch")
    return request.param


@pytest.fixture(scope="module")
def named(fresh, world):
    """The world with ids that are text; stars for values, where a model needs levels."""
    users, items = (np.char.add(kind, world.X[:, k].astype(str)) for k, kind in enumerate("ui"))
    y = np.clip(np.rint(world.y), 1, 5) if isinstance(fresh, RBM) else world.y
    return np.column_stack([users, items]).astype(object), y


@pytest.fixture(scope="module")
def fitted(fresh, named):
    return clone(fresh).fit(*named)


def shortened(model, epochs):
    """Settings with which a model learns for so many epochs only."""
    if isinstance(model, BayesianFactorizer):
        return {"sweeps": 2 * epochs, "burn_in": epochs - 1}
    return {"epochs": epochs}


def test_clone_and_params(fresh):
    params = fresh.get_params()
    copy = clone(fresh)
    assert copy is not fresh
    assert copy.get_params() == params
    assert copy.set_params(n_jobs=2).get_params() == {**params, "n_jobs": 2}
    assert fresh.get_params() == params
    with pytest.raises(ValueError, match="no_such_setting"):
        copy.set_params(no_such_setting=1)


def test_fit_returns_self_and_changes_no_setting_and_no_data(fresh, named):
    X, y = (column.copy() for column in named)
    model = clone(fresh)
    assert model.fit(X, y) is model
    assert model.get_params() == fresh.get_params()
    np.testing.assert_array_equal(X, named[0])
    np.testing.assert_array_equal(y, named[1])
    assert model.n_features_in_ == 2


@pytest.mark.parametrize("library", [pd, pl], ids=lambda library: library.__name__)
def test_cross_validation_works_with_frames_of_text(fresh, named, library):
    X, y = named
    frame = library.DataFrame({"user": X[:, 0].tolist(), "item": X[:, 1].tolist()})
    scoring = "r2", "neg_root_mean_squared_error"
    scores = cross_validate(fresh, frame, library.Series(y), cv=3, scoring=scoring)
    assert scores["test_r2"].shape == (3,)
    assert (scores["test_r2"] > 0.2).all()  # better than the mean by far
    assert (scores["test_neg_root_mean_squared_error"] > -y.std()).all()


@pytest.mark.parametrize("library", [pd, pl], ids=lambda library: library.__name__)
def test_grid_search_works_with_frames_of_text(fresh, named, library):
    X, y = named
    frame = library.DataFrame({"user": X[:, 0].tolist(), "item": X[:, 1].tolist()})
    size, least = ("hidden", 1) if isinstance(fresh, IN_TORCH) else ("rank", 0)
    short = shortened(fresh, 1)
    full = {name: fresh.get_params()[name] for name in (size, *short)}
    grid = [
        {size: [least, full[size]], **{name: [part[name]] for name in short}}
        for part in (short, full)
    ]
    search = GridSearchCV(fresh, grid, cv=2).fit(frame, y)
    assert search.best_params_ == full
    assert search.predict(frame[:3]).shape == (3,)


def test_arrays_frames_lists_and_observations_are_all_the_same(fresh, named):
    X, y = named[0][:600], named[1][:600]
    frame = pd.DataFrame(X, columns=["user", "item"])
    with_values = [(user, item, value) for (user, item), value in zip(X.tolist(), y, strict=True)]
    observations = observe(X, y)
    expected = clone(fresh).fit(X, y).predict(X)
    for given in ((frame, y), (X.tolist(), y.tolist()), (with_values,), (observations,)):
        np.testing.assert_array_equal(clone(fresh).fit(*given).predict(frame), expected)
    np.testing.assert_array_equal(clone(fresh).fit(X, y).predict(observations), expected)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_predictions_are_float32_one_for_each_row(fitted, named, n):
    X = named[0][:n]
    mean = fitted.predict(X)
    assert mean.shape == (n,)
    assert mean.dtype == np.float32
    for part in (*fitted.predict(X, return_std=True), *fitted.predict_parts(X)):
        assert part.shape == (n,)
        assert part.dtype == np.float32
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "These intervals are not calibrated")
        for end in fitted.predict_interval(X):
            assert end.shape == (n,)
            assert end.dtype == np.float32


def test_mean_is_the_same_with_and_without_a_std(fitted, named):
    X = named[0]
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_array_equal(fitted.predict(X), mean)
    parts = fitted.predict_parts(X)
    np.testing.assert_array_equal(parts[0], mean)
    np.testing.assert_allclose(np.hypot(parts[1], parts[2]), std, rtol=1e-5)


def test_std_is_positive_and_finite(fitted, named):
    cells = [*named[0].tolist(), ("nobody", "nothing")]
    std = fitted.predict(cells, return_std=True)[1]
    assert np.isfinite(std).all()
    assert (std > 0).all()


def test_a_prediction_does_not_depend_on_the_others(fitted, named):
    X = named[0][:50]
    together = np.array(fitted.predict(X, return_std=True))
    alone = np.array([fitted.predict(X[k : k + 1], return_std=True) for k in range(50)])
    np.testing.assert_array_equal(alone[:, :, 0].T, together)


def test_unknown_ids_never_fail_and_have_a_wider_std(fitted, named):
    X = named[0]
    known = fitted.predict(X, return_std=True)[1].mean()
    new_user, new_item, new_both = X.copy(), X.copy(), X.copy()
    new_user[:, 0] = "nobody"
    new_item[:, 1] = "nothing"
    new_both[:] = "nobody", "nothing"
    stds = []
    for cells in (new_user, new_item, new_both):
        mean, std = fitted.predict(cells, return_std=True)
        assert np.isfinite(mean).all()
        stds.append(std.mean())
    assert known < min(stds[:2])
    assert max(stds[:2]) < stds[2]


def test_ids_of_another_type_are_unknown_and_not_an_error(fitted):
    with pytest.warns(
        UnknownIdsWarning, match="of type (int or tuple|bytes or int), .* str, "
    ) as told:
        mean = fitted.predict([(1, 2.5), (("a", "tuple"), b"bytes")])
    assert len(told) == 2
    np.testing.assert_array_equal(mean, fitted.predict([("nobody", "nothing")] * 2))


def test_intervals_are_in_order_in_range_and_wider_for_more_coverage(fitted, named):
    X = named[0]
    low, high = fitted.value_range_ or (-np.inf, np.inf)
    before = np.zeros(len(X))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "These intervals are not calibrated")
        for coverage in (0.1, 0.5, 0.9, 0.999):
            bottom, top = fitted.predict_interval(X, coverage=coverage)
            assert (np.float32(low) <= bottom).all()
            assert (bottom <= top).all()
            assert (top <= np.float32(high)).all()
            assert (top - bottom >= before).all()
            assert (top - bottom).mean() > before.mean()
            before = top - bottom


def test_intervals_that_nothing_held_out_could_calibrate_warn(fitted, named):
    X = named[0][:3]
    if fitted.calibration_ is None and not isinstance(fitted, BayesianFactorizer):
        with pytest.warns(UserWarning, match=r"not calibrated.*calibrate\(X, y\)"):
            fitted.predict_interval(X)
    else:
        fitted.predict_interval(X)


@pytest.mark.parametrize("mode", [0, 1])
def test_a_folded_row_tells_parts_and_intervals_as_its_model_does(fitted, named, mode):
    if not isinstance(fitted, Rowwise):
        pytest.skip("This model has no rows to fold in.")
    mine = named[0][:, mode] == named[0][0, mode]
    others = named[0][mine, 1 - mode].tolist()
    row = fitted.fold_in(others, named[1][mine], mode=mode)
    asked = [*others, "nothing"]
    mean, std = row.predict(asked, return_std=True)
    parts = row.predict_parts(asked)
    np.testing.assert_array_equal(parts[0], mean)
    np.testing.assert_allclose(np.hypot(parts[1], parts[2]), std, rtol=1e-5)
    own_std = fitted.predict(named[0][mine], return_std=True)[1]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "These intervals are not calibrated")
        ends = row.predict_interval(asked, coverage=0.8)
        own_ends = fitted.predict_interval(named[0][mine], coverage=0.8)
    low, high = (np.float32(end) for end in fitted.value_range_ or (-np.inf, np.inf))
    free = (own_ends[0] > low) & (own_ends[1] < high)
    half = np.median(((own_ends[1] - own_ends[0]) / own_std)[free]) / 2
    np.testing.assert_allclose(ends[0], np.clip(mean - half * std, low, high), atol=1e-3)
    np.testing.assert_allclose(ends[1], np.clip(mean + half * std, low, high), atol=1e-3)


def test_a_folded_row_is_shown_in_a_line(fitted):
    if not isinstance(fitted, Rowwise):
        pytest.skip("This model has no rows to fold in.")
    row = fitted.fold_in(["i1", "i2", "nothing"], [5.0, 3.0, 4.0])
    name = fitted.ids_[0].name
    assert repr(row).startswith(f"NewRow({name}, learned from ")
    assert type(fitted).__name__ in repr(row)
    assert len(repr(row)) < 80


def test_score_is_the_share_of_variance_explained(fitted, named):
    X, y = named
    left = np.mean((y - fitted.predict(X)) ** 2)
    assert fitted.score(X, y) == pytest.approx(1 - left / y.var(), rel=1e-5)


BAD = {
    "a missing id": ([("ann", None)], r"Row 0 of column 'item' has no id"),
    "one column": ([("ann",)], "features"),
    "three columns": ([("ann", "Alien", 5.0)], "features"),
    "a flat list": (["ann", "Alien"], "Expected 2D array"),
    "a list as an id": ([("ann", ["Alien"])], "cannot be an id"),
    "no table": (7, "X must be a frame"),
}


@pytest.mark.parametrize(("X", "message"), BAD.values(), ids=BAD.keys())
def test_predict_refuses_what_is_no_table_of_ids(fitted, X, message):
    with pytest.raises(DataError, match=message):
        fitted.predict(X)


BAD_TRAINING = {
    "a value that is missing": ([("a", "b"), ("a", "c")], [1.0, np.nan], "Row 1 of y is NaN"),
    "a value that is text": ([("a", "b"), ("a", "c")], ["good", 1], "Row 0 of y is 'good'"),
    "too few values": ([("a", "b"), ("a", "c")], [1.0], "same length; got 2 and 1"),
    "a single row": ([("a", "b")], [1.0], "single observation"),
    "a cell twice": ([("a", "b"), ("a", "b")], [1.0, 2.0], "given more than once"),
    "no rows": (np.empty((0, 2)), [], "0 rows"),
    "one id column": ([("a",), ("b",)], [1.0, 2.0], "2 or more"),
}


@pytest.mark.parametrize(("X", "y", "message"), BAD_TRAINING.values(), ids=BAD_TRAINING.keys())
def test_fit_refuses_what_it_cannot_learn_from(fresh, X, y, message):
    model = clone(fresh)
    with pytest.raises(DataError, match=message):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict([("a", "b")])


def test_a_model_that_was_not_fitted_says_so(fresh, tmp_path):
    asks = {
        "predict": [[("a", "b")]],
        "predict_interval": [[("a", "b")]],
        "predict_parts": [[("a", "b")]],
        "calibrate": [[("a", "b")], [1.0]],
        "save": [tmp_path / "model"],
    }
    if isinstance(fresh, Rowwise):
        asks |= {"recommend": ["a"], "similar": ["a"], "row": ["a"], "fold_in": [["b"], [1.0]]}
    for name, words in asks.items():
        with pytest.raises(NotFittedError):
            getattr(clone(fresh), name)(*words)


@pytest.mark.parametrize("coverage", [0, 1, -0.1, 1.5, float("nan")])
def test_coverage_must_be_a_share(fitted, named, coverage):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "These intervals are not calibrated")
        with pytest.raises(DataError, match="coverage must be between 0 and 1"):
            fitted.predict_interval(named[0][:2], coverage=coverage)


def test_a_bad_setting_is_found_by_fit_and_not_before(fresh, named):
    model = clone(fresh).set_params(n_jobs=0)
    with pytest.raises(SettingError, match="n_jobs must be a whole number but 0, or None; got 0"):
        model.fit(*named)


def kept(model, folder):
    """All that a file has of a model, but for its settings and how long everything took."""
    model.save(folder / "kept")
    header, tensors = storage.read(folder / "kept", "model")
    record = dict(header["record"])
    curve = {name: column for name, column in record["learning_curve"].items() if name != "seconds"}
    header = {**header, "settings": None, "record": {**record, "learning_curve": curve}}
    del header["record"]["seconds"]
    return header, tensors


def assert_same(model, other, X, folder):
    """Assert that two models have learned and predict the same, to the bit."""
    (header, tensors), (other_header, other_tensors) = (kept(m, folder) for m in (model, other))
    assert other_header == header
    assert_same_bits(other_tensors, tensors)
    np.testing.assert_array_equal(
        other.predict(X, return_std=True), model.predict(X, return_std=True)
    )
    if isinstance(model, Rowwise):
        assert other.recommend("u3", risk=1.0) == model.recommend("u3", risk=1.0)
        assert other.similar("i3") == model.similar("i3")
        rows = [m.fold_in(["i1", "i2"], [5.0, 3.0]) for m in (model, other)]
        one, another = (row.predict(["i7", "nothing"], return_std=True) for row in rows)
        np.testing.assert_array_equal(another, one)


def test_files_and_pickles_and_threads_keep_every_bit(fresh, fitted, named, tmp_path):
    fitted.save(tmp_path / "model")
    others = [
        load(tmp_path / "model"),
        type(fitted).load(tmp_path / "model"),
        pickle.loads(pickle.dumps(fitted)),  # as joblib does
        clone(fresh).set_params(n_jobs=2).fit(*named),
    ]
    for other in others:
        assert_same(fitted, other, named[0], tmp_path)
        assert other.n_epochs_ == fitted.n_epochs_


def test_a_second_fit_forgets_the_first(fresh, named):
    X, y = named
    model = clone(fresh).fit(X[:4000], y[:4000])
    model.fit(X[4000:8000], 10 * y[4000:8000])
    once = clone(fresh).fit(X[4000:8000], 10 * y[4000:8000])
    np.testing.assert_array_equal(
        model.predict(X, return_std=True), once.predict(X, return_std=True)
    )


def test_a_fit_that_fails_leaves_the_model_as_it_was(fresh, named):
    def fail(info, state):
        raise ArithmeticError

    X, y = named
    model = clone(fresh).fit(X[:4000], y[:4000])
    before = model.predict(X, return_std=True)
    with pytest.raises(ArithmeticError):
        model.fit(X[4000:8000], 100 * y[4000:8000], callbacks=[fail])
    np.testing.assert_array_equal(model.predict(X, return_std=True), before)


def test_an_interrupted_fit_is_the_best_model_so_far(fresh, named, tmp_path):
    def interrupt(info, state):
        if info.epoch == 2:
            raise KeyboardInterrupt

    model = clone(fresh)
    if isinstance(fresh, BayesianFactorizer):
        model.set_params(burn_in=0)
    with pytest.raises(FitInterrupted, match=r"interrupted after (epoch|sweep) 2 of") as stop:
        model.fit(*named, callbacks=[interrupt])
    assert stop.value.model is model
    assert model.learning_curve_["epoch"] == [1, 2]
    assert np.isfinite(model.predict(named[0], return_std=True)).all()
    if isinstance(fresh, BayesianFactorizer):
        assert (model.predict_parts(named[0])[2] > 0).all()
    else:
        short = clone(fresh).set_params(epochs=2, refit=False).fit(*named)
        assert_same(short, model, named[0], tmp_path)


class Killed(Exception):
    """What a test throws where a kill would come."""


def test_a_killed_fit_goes_on_with_the_same_bits(fresh, named, tmp_path):
    X, y = named[0][:4000], named[1][:4000]
    moments = []

    def moment_of(info):
        return info.epoch, info.validation_rmse is None  # the second for a refit

    whole = clone(fresh).fit(X, y, callbacks=[lambda info, _: moments.append(moment_of(info))])
    model, often = clone(fresh), {"checkpoint": tmp_path / "checkpoint", "checkpoint_epochs": 1}
    for moment in (moments[1], moments[len(moments) // 2], moments[-1]):

        def kill(info, state, moment=moment):
            if moment_of(info) == moment:
                raise Killed

        with pytest.raises(Killed):
            model.fit(X, y, callbacks=[kill], **often)
    model.fit(X, y, **often)
    assert not list(tmp_path.iterdir())
    assert_same(whole, model, X, tmp_path)


@pytest.mark.filterwarnings("ignore:All .* values are 3")
@pytest.mark.parametrize("n", [2, 3, 10])
def test_a_handful_of_observations_is_enough(fresh, n):
    X = [(f"user{k % 2}", f"item{k}") for k in range(n)]
    for y in (range(n), [3.0] * n):
        mean, std = clone(fresh).fit(X, y).predict([*X, ("nobody", "nothing")], return_std=True)
        assert ((mean >= min(y)) & (mean <= max(y))).all()
        assert (np.isfinite(std) & (std > 0)).all()


def test_calibrate_makes_the_std_right_on_average(fitted, world, named, tmp_path):
    fitted.save(tmp_path / "model")
    model = load(tmp_path / "model")
    X, y = named[0][:3000], named[1][:3000] + 2.0  # a world that has changed since
    model.calibrate(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.mean(((y - mean) / std) ** 2) == pytest.approx(1.0, rel=1e-3)


MORE_MODES = "The check fits three or more columns; this model takes two ids for every value."
EXPECTED_FAILURES = {
    **dict.fromkeys(
        (
            "check_dict_unchanged",
            "check_dont_overwrite_parameters",
            "check_dtype_object",
            "check_estimators_dtypes",
            "check_estimators_nan_inf",
            "check_estimators_pickle",
            "check_f_contiguous_array_estimator",
            "check_fit2d_predict1d",
            "check_fit_score_takes_y",
            "check_methods_sample_order_invariance",
            "check_methods_subset_invariance",
            "check_n_features_in_after_fitting",
            "check_pipeline_consistency",
            "check_positive_only_tag_during_fit",
            "check_regressor_data_not_an_array",
            "check_regressors_int",
            "check_regressors_no_decision_function",
            "check_regressors_train",
            "check_supervised_y_2d",
        ),
        MORE_MODES,
    ),
    "check_complex_data": "The check gives one column; that there must be two is said first.",
    "check_requires_y_none": "Without y, the last column of X holds the values.",
}


ANY_MODES = {"check_complex_data", "check_requires_y_none"}  # what is left where they may be many


def expected_failures(model):
    expected = {name: EXPECTED_FAILURES[name] for name in ANY_MODES}
    any_modes = isinstance(model, DeviationFactorizer | BayesianFactorizer)
    return expected if any_modes else EXPECTED_FAILURES


def one_of_each_class():
    found = {type(model): clone(model) for model in MODELS.values()}
    return [m for m in found.values() if find_spec("torch") or not isinstance(m, IN_TORCH)]


@parametrize_with_checks(
    [m.set_params(duplicates="mean", **shortened(m, 3)) for m in one_of_each_class()],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_has_no_other_complaints(estimator, check):
    check(estimator)
