"""DeviationImputer on series, on columns in another order and on some of them, and by place."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from test_imputer_tables import HOURS, QUICK, holes, readings

from noisewise import DataError, DeviationImputer, SettingError, noisy_series, table_noise_model


@pytest.fixture(scope="module")
def frame():
    data = np.where(holes(), np.nan, readings())
    return pd.DataFrame(data, columns=["hall", "attic", "cellar"], index=HOURS)


@pytest.fixture(scope="module")
def imputer(frame):
    return DeviationImputer("ou", **QUICK).fit(frame)


@pytest.mark.parametrize("name", ["hall", None, 7])
def test_a_series_of_pandas_comes_back_as_one(frame, name):
    series = frame["hall"].rename(name)
    filled, std = DeviationImputer("ou", **QUICK).fit_transform(series, return_std=True)
    whole = DeviationImputer("ou", **QUICK).fit_transform(series.to_frame("hall"))
    assert isinstance(filled, pd.Series)
    assert filled.name == std.name == name
    pd.testing.assert_index_equal(filled.index, series.index)
    np.testing.assert_array_equal(filled.to_numpy(), whole["hall"].to_numpy())
    assert ((std > 0) == series.isna()).all()
    assert series.isna().any()


def test_a_series_of_polars_comes_back_as_one(frame):
    series = pl.Series("hall", frame["hall"].to_numpy()).fill_nan(None)
    filled = DeviationImputer("ou", **QUICK).fit_transform(series)
    assert isinstance(filled, pl.Series)
    assert filled.name == "hall"
    assert filled.null_count() == 0


def test_a_series_can_be_one_of_those_that_were_fitted(frame, imputer):
    filled = imputer.transform(frame["attic"])
    np.testing.assert_array_equal(filled.to_numpy(), imputer.transform(frame)["attic"].to_numpy())
    with pytest.raises(ValueError, match="unseen at fit time"):
        imputer.transform(frame["attic"].rename("loft"))
    with pytest.raises(SettingError, match="location must be None, as a series has no other"):
        DeviationImputer("ou", location={"hall": "x"}, **QUICK).fit(frame["hall"])


def test_columns_may_come_in_another_order_or_be_missing(frame, imputer):
    whole, std = imputer.transform(frame, return_std=True)
    for columns in (["cellar", "hall", "attic"], ["attic"], ["cellar", "hall"]):
        some, some_std = imputer.transform(frame[columns], return_std=True)
        pd.testing.assert_frame_equal(some, whole[columns])
        pd.testing.assert_frame_equal(some_std, std[columns])


def test_columns_of_several_levels_may_be_missing_too():
    columns = pd.MultiIndex.from_product([["hall", "attic"], ["heat", "light"]])
    data = np.where(holes((96, 4)), np.nan, readings(4))
    frame = pd.DataFrame(data, HOURS, columns)
    imputer = DeviationImputer("ou", **QUICK).fit(frame)
    some = frame[[("attic", "light"), ("hall", "heat")]]
    pd.testing.assert_frame_equal(imputer.transform(some), imputer.transform(frame)[some.columns])


def test_columns_that_were_never_seen_are_an_error(frame, imputer):
    with pytest.raises(ValueError, match="unseen at fit time"):
        imputer.transform(frame.rename(columns={"attic": "loft"}))
    with pytest.raises(ValueError, match="unseen at fit time"):
        imputer.transform(frame.assign(loft=1.0))


def test_names_that_scikit_learn_gives_are_those_of_the_columns(frame):
    imputer = DeviationImputer("ou", **QUICK).set_output(transform="pandas").fit(frame)
    assert list(imputer.transform(frame).columns) == list(frame.columns)
    with pytest.raises(ValueError, match="same order"):
        imputer.transform(frame[["cellar", "hall", "attic"]])


def test_some_columns_can_be_filled_after_saving(frame, imputer, tmp_path):
    imputer.save(tmp_path / "imputer.nw")
    again = DeviationImputer.load(tmp_path / "imputer.nw").transform(frame[["cellar", "hall"]])
    pd.testing.assert_frame_equal(again, imputer.transform(frame)[["cellar", "hall"]])


def by_place(frame):
    """Rows for each place and time, columns for each sensor."""
    parts = [
        pd.DataFrame({"when": HOURS, "site": site, "heat": frame[site], "light": frame["cellar"]})
        for site in ("hall", "attic")
    ]
    return pd.concat(parts, ignore_index=True)


def test_a_column_may_say_where_rows_are(frame):
    table = by_place(frame)
    imputer = DeviationImputer("ou", time="when", location="site", **QUICK)
    filled = imputer.fit_transform(table)
    assert list(filled.columns) == list(table.columns)
    long = table.melt(["when", "site"], var_name="sensor")
    other = DeviationImputer(
        "ou", time="when", location="site", sensor="sensor", value="value", **QUICK
    ).fit_transform(long)
    np.testing.assert_allclose(
        filled[["heat", "light"]].to_numpy().ravel("F"), other["value"], rtol=1e-6
    )
    with pytest.raises(DataError, match="more than once"):
        imputer.fit(pd.concat([table, table]))


def test_noise_of_any_table_is_told(frame):
    rng = np.random.default_rng(0)
    day = np.sin(np.arange(96) / 4)[:, None]
    heat = rng.normal(20 + day, [0.1, 0.1, 1.5, 0.1, 0.1])
    table = pd.DataFrame(heat, HOURS, list("abcde"))
    long = table.rename_axis("when").reset_index().melt("when", var_name="room")
    for X, roles in (
        (table, {"sensor": None}),
        (long, {"time": "when", "location": "room", "value": "value"}),
    ):
        model = table_noise_model(X, **roles, random_state=0, n_jobs=1, sweeps=30)
        found = noisy_series(model, n=1)
        assert "c" in {column[0] for column in found.values()}
