"""Tables as people have them: columns by name, ids of the wrong type, and odd values."""

import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, cross_val_score

from noisewise import (
    BayesianFactorizer,
    DataError,
    DeviationFactorizer,
    LinearInterpolator,
    OUSmoother,
    ResidualFactorizer,
    SettingError,
    TemporalFactorizer,
    load,
    noisy_ids,
    noisy_observations,
    observe,
    read,
)
from noisewise.data.tables import choose_columns, choose_ids
from noisewise.errors import DataWarning, UnknownIdsWarning
from noisewise.models.deviation import DTF
from noisewise.models.learner import joined

pytestmark = pytest.mark.filterwarnings("ignore:Predictions have not settled")

QUICK = {"rank": 2, "deviation_rank": 1, "epochs": 3, "patience": None, "random_state": 0}
SWEEPS = {"rank": 2, "sweeps": 6, "burn_in": 2, "random_state": 0}
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.fixture(scope="module")
def ratings():
    """MovieLens in small: 40 users, 30 items, 600 ratings, each with its time."""
    rng = np.random.default_rng(0)
    user, item = np.divmod(rng.permutation(40 * 30)[:600], 30)
    return {
        "item": [f"film {k}" for k in item],
        "user": user.tolist(),
        "rating": (1.0 + (user + item + rng.integers(0, 2, 600)) % 5).tolist(),
        "timestamp": (978_300_000 + rng.integers(0, 10**6, 600)).tolist(),
    }


@pytest.fixture(params=FRAMES.values(), ids=FRAMES.keys())
def frame_of(request):
    return request.param


@pytest.fixture(scope="module")
def fitted(ratings):
    return DeviationFactorizer(**QUICK).fit(pd.DataFrame(ratings))


def columns(ratings, *names):
    return {name: ratings[name] for name in names}


def test_fit_finds_the_columns_of_a_frame_as_read_does(ratings, frame_of, tmp_path):
    frame = frame_of(ratings)
    seen = observe(frame)
    assert seen.names == ("user", "item")
    assert seen.values.tolist() == ratings["rating"]
    model = DeviationFactorizer(**QUICK).fit(frame)
    assert model.n_features_in_ == 2
    assert model.feature_names_in_.tolist() == ["user", "item"]
    apart = frame_of(columns(ratings, "user", "item"))
    other = DeviationFactorizer(**QUICK).fit(apart, ratings["rating"])
    np.testing.assert_array_equal(model.predict(apart), other.predict(apart))
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").feature_names_in_.tolist() == ["user", "item"]


def test_everything_beside_user_and_item_that_is_no_id_is_left_out_with_y(ratings, frame_of):
    y = ratings["rating"]
    for names in (("timestamp",), ("rating",), ("timestamp", "rating")):
        seen = observe(frame_of(columns(ratings, *names, "item", "user")), y)
        assert seen.names == ("user", "item")
    with_day = columns(ratings, "user", "item") | {"day": [k % 7 for k in range(len(y))]}
    assert observe(frame_of(with_day), y).names == ("user", "item", "day")


def test_a_model_with_time_takes_its_column_and_one_without_leaves_it_out(ratings, frame_of):
    frame = frame_of(ratings)
    timed = BayesianFactorizer(time="timestamp", **SWEEPS).fit(frame)
    assert timed.feature_names_in_.tolist() == ["user", "item"]
    by_number = BayesianFactorizer(time=3, **SWEEPS).fit(frame)
    cells = frame_of(columns(ratings, "timestamp", "item", "user"))
    np.testing.assert_array_equal(timed.predict(cells), timed.predict(frame))
    np.testing.assert_array_equal(by_number.predict(cells), timed.predict(frame))
    without = frame_of(columns(ratings, "user", "item"))
    assert not np.array_equal(timed.predict(without), timed.predict(frame))
    timed.calibrate(frame)  # with times, as it was trained
    table = noisy_observations(timed, frame, n=None)
    order = np.lexsort((table["item"], table["user"]))
    asked = np.lexsort((ratings["item"], ratings["user"]))
    np.testing.assert_array_equal(table["predicted"][order], timed.predict(frame)[asked])


@pytest.mark.parametrize("time", [-1, True, 1.5])
def test_a_time_column_is_counted_from_0(ratings, time):
    model = BayesianFactorizer(time=time, **SWEEPS)
    with pytest.raises(SettingError, match="its number counted from 0, or None; got"):
        model.fit(pd.DataFrame(ratings))


def test_predict_takes_the_trained_columns_in_any_order_and_no_others(fitted, ratings, frame_of):
    expected = fitted.predict(list(zip(ratings["user"], ratings["item"], strict=True)))
    for names in (("item", "user"), ("rating", "user", "timestamp", "item")):
        got = fitted.predict(frame_of(columns(ratings, *names)))
        np.testing.assert_array_equal(got, expected)
    usual = frame_of({"movieId": ratings["item"], "userId": ratings["user"]})
    np.testing.assert_array_equal(fitted.predict(usual), expected)


def test_wrong_names_are_never_taken_by_position(fitted, ratings, frame_of):
    wrong = frame_of({"viewer": ratings["user"], "film": ratings["item"]})
    message = "X needs the id columns user, item, in any order; it has viewer, film."
    for method in (fitted.predict, fitted.predict_interval, fitted.predict_parts):
        with pytest.raises(DataError, match=message):
            method(wrong)
    for method in (fitted.calibrate, fitted.partial_fit, fitted.score):
        with pytest.raises(DataError, match=message):
            method(wrong, ratings["rating"])


def test_every_method_finds_columns_by_name(ratings, frame_of):
    model = DeviationFactorizer(**QUICK).fit(frame_of(ratings))
    positions = np.array(list(zip(ratings["user"], ratings["item"], strict=True)), dtype=object)
    frame, y = frame_of(ratings), ratings["rating"]
    assert model.score(frame, y) == model.score(positions, y)
    scales = [model.calibrate(*data).std_scale_ for data in ((frame,), (frame, y), (positions, y))]
    assert scales[0] == scales[1] == scales[2]
    more = frame_of({"item": ["film 0"], "rating": [5.0], "user": [99], "timestamp": [0]})
    model.partial_fit(more, epochs=1)
    assert model.ids_[0].lookup([99])[0] >= 0
    assert model.n_features_in_ == 2


def test_unknown_names_keep_the_rule_of_the_last_column_where_it_leaves_no_doubt(frame_of):
    table = {"site": ["a", "b"], "species": ["x", "y"], "day": [1, 2], "level": [0.5, 0.7]}
    assert observe(frame_of(table)).names == ("site", "species", "day")
    assert observe(frame_of(columns(table, "site", "species", "level"))).names == (
        "site",
        "species",
    )
    sensors = {"site": ["a", "b"], "time": [1, 2], "level": [0.5, 0.7]}
    model = LinearInterpolator(time="time").fit(frame_of(sensors))
    assert model.feature_names_in_.tolist() == ["site", "time"]


STAMPS = [978_300_760, 978_302_109]
DOUBTS = {
    "a timestamp at the end": {"a": [1, 2], "b": [1, 2], "c": [3, 4], "timestamp": [1, 2]},
    "a mode or a time": {"user": [1, 2], "item": [1, 2], "time": [3, 4], "rating": [1, 2]},
    "a column too many": {"user": [1, 2], "item": [1, 2], "title": [3, 4], "rating": [1, 2]},
    "two values": {"user": [1, 2], "item": [1, 2], "score": [3, 4], "rating": [1, 2]},
}


@pytest.mark.parametrize("table", DOUBTS.values(), ids=DOUBTS.keys())
def test_a_doubt_about_columns_is_an_error_that_says_how_to_end_it(table, frame_of):
    with pytest.raises(DataError, match=r"Which of the columns .* Give ids and values apart"):
        observe(frame_of(table))


@pytest.mark.parametrize("stamps", [STAMPS, [1000 * s for s in STAMPS]], ids=["s", "ms"])
def test_times_are_not_taken_for_values(stamps):
    rows = [(1, 10, 5, stamps[0]), (2, 10, 3, stamps[1])]
    for table in (rows, np.array(rows), pd.DataFrame(rows), pl.DataFrame(rows, orient="row")):
        with pytest.raises(DataError, match=r"look like times: .* Give ids and values apart"):
            observe(table)
    assert len(observe([(u, i, s) for u, i, _, s in rows])) == 2  # two ids: large values, then


def test_names_that_are_no_text_go_by_position(ratings):
    rows = list(zip(ratings["user"], ratings["item"], ratings["rating"], strict=True))
    model = DeviationFactorizer(**QUICK).fit(pd.DataFrame(ratings)).fit(pd.DataFrame(rows))
    assert not hasattr(model, "feature_names_in_")
    assert model.ids_[0].labels.dtype == np.int64
    cells = pd.DataFrame([row[:2] for row in rows])
    assert np.array_equal(model.predict(cells), model.predict([row[:2] for row in rows]))


def test_observations_of_other_names_are_not_taken_by_position(fitted, ratings):
    other = observe(pd.DataFrame({"viewer": [1, 2], "film": ["film 1", "film 2"], "stars": [1, 2]}))
    with pytest.raises(DataError, match="These observations are of viewer, film, but user, item"):
        fitted.predict(other)
    nameless = observe([(1, "film 1", 3.0), (2, "film 2", 3.0)])
    assert len(fitted.predict(nameless)) == 2


def test_columns_are_chosen_by_name():
    names = ["rating", "timestamp", "movieId", "userId"]
    assert choose_columns(names).ids == (3, 2)
    assert choose_columns(["movieId", "userId", "rating", "timestamp"])[:3] == ((1, 0), 2, None)
    assert choose_columns(["site", "species", "day", "level"])[:3] == ((0, 1, 2), 3, None)
    assert choose_columns(["user", "item", "timestamp", "rating"]).value == 3
    assert choose_ids(["a", "b", "rating"]) == (0, 1, 2)


def test_observations_that_are_joined_keep_their_times(ratings):
    seen = observe(pd.DataFrame(ratings), time="timestamp")
    both = joined(seen.take(slice(100)), seen.take(slice(100, None)))
    assert both.time.tolist() == ratings["timestamp"]


def test_ids_of_another_type_than_the_trained_ones_are_told(fitted, ratings):
    text = [(str(user), item) for user, item in zip(ratings["user"], ratings["item"], strict=True)]
    message = "ids of user .* are of type str, such as '[0-9]+', and .* of type int, such as 0"
    for cells in (text, text[:1]):
        with pytest.warns(UnknownIdsWarning, match=message) as told:
            fitted.predict(cells)
        assert len(told) == 1
        assert told[0].filename == __file__
    with pytest.warns(UnknownIdsWarning, match=message):
        fitted.recommend("17")
    with pytest.warns(UnknownIdsWarning, match="ids of item .* type int, such as 7, and .* str"):
        fitted.fold_in([7, 8], [1, 2])
    with pytest.warns(UnknownIdsWarning, match=message):
        fitted.calibrate(text, ratings["rating"])


def test_probabilities_of_ids_of_another_type_are_told(ratings):
    model = BayesianFactorizer(likelihood="ordinal", **SWEEPS).fit(pd.DataFrame(ratings))
    with pytest.warns(UnknownIdsWarning, match="ids of user .* are of type str"):
        model.predict_proba([("17", "film 1")])


def test_a_column_of_unknown_ids_is_told_and_a_few_are_not(fitted):
    with pytest.warns(UnknownIdsWarning) as told:
        fitted.predict([(1000 + k, f"song {k}") for k in range(3)])
    assert [re.search(r"ids of (\w+)", str(w.message))[1] for w in told] == ["user", "item"]
    with pytest.warns(UnknownIdsWarning, match=r"30 of the 30 ids of user .*such as 1000"):
        fitted.predict([(1000 + k, "film 1") for k in range(30)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict([(1000, "song 1")])  # one stranger, and what nobody knows
        fitted.predict([(1000, f"film {k}") for k in range(30)])  # one new user, all items
        fitted.predict([(k, f"film {k % 30}") for k in range(10, 100)])  # two thirds are new
        fitted.recommend(1000)
        fitted.fold_in(["film 1"], [5.0]).predict(["film 2", "song 1"])


def test_new_ids_in_cross_validation_are_normal(ratings):
    frame, y = pd.DataFrame(ratings)[["user", "item"]], ratings["rating"]
    sparse = frame.assign(user=range(len(frame)))  # every user once: all of a fold are new
    model = DeviationFactorizer(**QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cross_val_score(model, frame, y, cv=KFold(5, shuffle=True, random_state=0))
    with pytest.warns(UnknownIdsWarning, match="120 of the 120 ids of user"):
        cross_val_score(model, sparse, y, cv=GroupKFold(5), groups=sparse["user"])


@pytest.mark.parametrize(
    "model", [DeviationFactorizer(**QUICK), BayesianFactorizer(**SWEEPS)], ids=["sgd", "bayes"]
)
def test_values_that_are_all_alike_are_told(model, ratings):
    frame = pd.DataFrame(columns(ratings, "user", "item"))
    message = "All 600 values are 1, so there is nothing to tell apart.*not from clicks"
    with pytest.warns(DataWarning, match=message) as told:
        clone(model).fit(frame, np.ones(600))
    assert told[0].filename == __file__
    assert told[0].category is DataWarning


def test_a_model_without_rows_has_no_noisy_ids(small_world):
    model = LinearInterpolator().fit(small_world.X, small_world.y)
    with pytest.raises(SettingError, match="a LinearInterpolator does not"):
        noisy_ids(model)
    assert len(noisy_observations(model, small_world.X, small_world.y, n=3)["surprise"]) == 3


def test_times_never_seen_are_normal_for_sensors():
    cells = [("hall", t) for t in range(50)]
    model = LinearInterpolator(time=1).fit(cells, np.arange(50.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict([("hall", t + 0.5) for t in range(49)])


SENSORS = {"loc": 6, "sensor": 3, "time": 40}
SCALES = {
    "an offset of 1e8": (1e8, 1.0),
    "pascals": (101_325.0, 3.0),
    "seconds since 1970": (1.7e9, 4.0),
    "1e-12": (0.0, 1e-12),
    "1e-23": (3e-23, 1e-23),
    "1e19": (0.0, 1e19),
}


@pytest.fixture(params=SCALES.values(), ids=SCALES.keys())
def unit(request):
    return request.param


RATED = {
    "sgd": DeviationFactorizer(rank=4, deviation_rank=2, epochs=20, random_state=0, n_jobs=1),
    "bayes": BayesianFactorizer(rank=2, sweeps=20, burn_in=8, random_state=0, n_jobs=1),
}


def assert_same_in_units(model, X, y, unit, tmp_path):
    """Values in another unit give the same predictions in that unit, also from a file."""
    location, scale = unit
    plain = clone(model).fit(X, y)
    mean, std = plain.predict(X, return_std=True)
    other = clone(model).fit(X, location + scale * y)
    other.save(tmp_path / "model")
    for one in (other, load(tmp_path / "model")):
        got_mean, got_std = one.predict(X, return_std=True)
        # Rounding to single precision may take other ways, but not far.
        np.testing.assert_allclose((got_mean - location) / scale, mean, atol=0.02 * y.std())
        np.testing.assert_allclose(got_std / scale, std, rtol=0.05)
        assert (got_std > 0).all()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "These intervals are not calibrated")
            low, high = one.predict_interval(X)
        assert ((low <= got_mean) & (got_mean <= high) & (low < high)).all()


@pytest.mark.parametrize("model", RATED.values(), ids=RATED.keys())
def test_ratings_of_any_offset_and_scale_are_learned_alike(model, unit, small_world, tmp_path):
    assert_same_in_units(model, small_world.X, small_world.y, unit, tmp_path)


def assert_same_nll_in_units(model, small_world):
    """Values in a small unit give the same negative log-likelihood, in that unit."""
    held_out = observe(small_world.X[300:], small_world.y[300:])
    tiny = observe(small_world.X[300:], 1e-12 * small_world.y[300:])
    plain = clone(model).fit(small_world.X[:300], small_world.y[:300], validation=held_out)
    other = clone(model).fit(small_world.X[:300], 1e-12 * small_world.y[:300], validation=tiny)
    got, expected = (m.learning_curve_["validation_nll"][-1] for m in (other, plain))
    assert got == pytest.approx(expected + np.log(1e-12), abs=0.05)


@pytest.mark.parametrize("model", RATED.values(), ids=RATED.keys())
def test_the_nll_of_small_values_is_that_of_large_ones_in_another_unit(model, small_world):
    assert_same_nll_in_units(model, small_world)


def test_a_new_row_is_folded_in_at_any_offset(small_world):
    for name in ("sgd", "bayes"):
        plain = clone(RATED[name]).fit(small_world.X, small_world.y)
        other = clone(RATED[name]).fit(small_world.X, 1e8 + small_world.y)
        for others, y in (([1, 2, 3], [5.0, 4.0, 4.5]), ([1], [4.25])):
            expected = plain.fold_in(others, y).predict([5, 6], return_std=True)
            got = other.fold_in(others, 1e8 + np.array(y)).predict([5, 6], return_std=True)
            np.testing.assert_allclose(got[0] - 1e8, expected[0], atol=0.01)
            np.testing.assert_allclose(got[1], expected[1], rtol=0.01)


SERIES = {
    "interpolation": LinearInterpolator(),
    "smoother": OUSmoother(),
    "residual": ResidualFactorizer(base="type", random_state=0, n_jobs=1),
    "temporal": TemporalFactorizer(rank=2, sweeps=12, burn_in=4, random_state=0, n_jobs=1),
    "tensor": DeviationFactorizer(**(DTF | {"rank": 4, "epochs": 5, "n_jobs": 1}), random_state=0),
}


def small_readings():
    """Cells of three modes in no order, and their values."""
    rng = np.random.default_rng(0)
    cells = np.stack(np.unravel_index(rng.permutation(720)[:600], tuple(SENSORS.values())), axis=1)
    return cells, np.sin(cells[:, 2] / 5.0) + cells[:, 0] + rng.normal(0, 0.3, 600)


@pytest.mark.filterwarnings("ignore:.*settled")
@pytest.mark.parametrize("model", SERIES.values(), ids=SERIES.keys())
def test_readings_of_any_offset_and_scale_are_learned_alike(model, unit, tmp_path):
    assert_same_in_units(model, *small_readings(), unit, tmp_path)


def test_a_file_with_an_offset_is_read_as_it_is(tmp_path):
    file = tmp_path / "readings.csv"
    values = 1e8 + np.arange(40.0) / 4
    rows = [f"{k // 8},{k % 8},{value!r}\n" for k, value in enumerate(values.tolist())]
    file.write_text("user,item,rating\n" + "".join(rows))
    assert read(file).values.tolist() == values.tolist()


def test_values_are_single_unless_that_is_too_coarse(small_world):
    X = small_world.X
    for y in (small_world.y, np.clip(np.rint(small_world.y), 1, 5), 20.0 + 0.1 * small_world.y):
        assert observe(X, y).values.dtype == np.float32
    assert observe(X, np.full(len(X), 3.0)).values.dtype == np.float32
    assert observe(X[:2], [16_777_217.0] * 2).values.tolist() == [16_777_217.0] * 2


def test_a_model_that_keeps_single_precision_refuses_what_is_too_coarse(small_world):
    y = 1e8 + np.clip(np.rint(small_world.y), 1, 5)
    with pytest.raises(DataError, match=r"single precision"):
        BayesianFactorizer(likelihood="ordinal", **SWEEPS).fit(small_world.X, y)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [np.array, pd.DataFrame, pl.from_numpy])
def test_a_table_of_users_by_items_draws_a_warning(kind):
    wide = kind(np.random.default_rng(0).integers(1, 6, (20, 12)).astype(float))
    with pytest.warns(DataWarning, match=r"X has 12 columns: without y.*coo_array"):
        observe(wide, duplicates="last")


def test_values_too_near_to_each_other_to_compute_with_are_refused():
    rng = np.random.default_rng(0)
    cells, y = np.column_stack(np.divmod(rng.permutation(30), 6)), 1e-300 * rng.normal(size=30)
    for model in (DeviationFactorizer(rank=1), BayesianFactorizer(rank=1, sweeps=4, burn_in=1)):
        with pytest.raises(DataError, match="too near to each other to compute with: multiply"):
            model.fit(cells, y)
