"""DeviationImputer on frames and on xarray: labels, types, times and columns of all kinds."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr

from noisewise import DataError, DeviationImputer, SettingError

QUICK = {"random_state": 0, "n_jobs": 1}
HOURS = pd.date_range("2024-03-30", periods=96, freq="h", tz="Europe/Berlin")  # summer time begins


def readings(n_series=3, seed=0):
    rng = np.random.default_rng(seed)
    day = np.sin(2 * np.pi * np.arange(96) / 24)[:, None]
    return rng.uniform(10, 20, n_series) + day + 0.1 * rng.normal(size=(96, n_series))


def holes(shape=(96, 3), seed=1):
    return np.random.default_rng(seed).random(shape) < 0.15


@pytest.fixture(scope="module")
def frame():
    data = np.where(holes(), np.nan, readings())
    return pd.DataFrame(data, columns=["hall", "attic", "cellar"], index=HOURS)


@pytest.fixture(scope="module")
def expected(frame):
    """What an array of hours gives: other kinds of tables with the same times must agree."""
    return DeviationImputer("ou", **QUICK).fit_transform(frame.to_numpy(), return_std=True)


def imputed(X, **settings):
    return DeviationImputer("ou", **QUICK, **settings).fit_transform(X, return_std=True)


def test_a_frame_comes_back_with_its_labels(frame, expected):
    before = frame.copy()
    filled, std = imputed(frame)
    pd.testing.assert_frame_equal(frame, before)
    for got, want in zip((filled, std), expected, strict=True):
        pd.testing.assert_index_equal(got.index, frame.index)
        pd.testing.assert_index_equal(got.columns, frame.columns)
        np.testing.assert_allclose(got.to_numpy(), want, rtol=1e-5)
    assert filled.index.tz is frame.index.tz


def test_time_is_real_time_and_not_the_number_of_a_row(frame):
    irregular = frame[np.random.default_rng(0).random(96) < 0.4]
    with_gaps = irregular.reindex(frame.index)
    filled, std = imputed(irregular)
    other, other_std = imputed(with_gaps)
    np.testing.assert_allclose(filled, other.loc[irregular.index], rtol=1e-6)
    np.testing.assert_allclose(std, other_std.loc[irregular.index], rtol=1e-6)
    assert not np.allclose(imputed(irregular.reset_index(drop=True))[0], filled)


def test_the_order_of_rows_does_not_matter_and_is_kept(frame):
    mixed = frame.sample(frac=1.0, random_state=0)
    filled, std = imputed(mixed)
    pd.testing.assert_index_equal(filled.index, mixed.index)
    in_order = imputed(frame)
    pd.testing.assert_frame_equal(filled.loc[frame.index], in_order[0], check_freq=False)
    pd.testing.assert_frame_equal(std.loc[frame.index], in_order[1], check_freq=False)


INDEXES = {
    "dates without a zone": HOURS.tz_convert(None),
    "another zone": HOURS.tz_convert("Asia/Tokyo"),
    "periods": HOURS.tz_convert(None).to_period("h"),
    "lengths of time": HOURS - HOURS[0],
    "numbers": pd.Index(3600.0 * np.arange(96) + 0.5),
    "ISO text": pd.Index([stamp.isoformat() for stamp in HOURS]),
    "dates as objects": pd.Index(HOURS.to_pydatetime(), dtype=object),
    "four a second": pd.date_range("2024-03-30", periods=96, freq="250ms"),
}


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES.keys())
def test_an_index_of_any_kind_is_time(frame, expected, index):
    filled, std = imputed(frame.set_axis(index))
    pd.testing.assert_index_equal(filled.index, index)
    np.testing.assert_allclose(filled.to_numpy(), expected[0], rtol=1e-5)
    np.testing.assert_allclose(std.to_numpy(), expected[1], rtol=1e-4)


BAD_INDEXES = {
    "text": (pd.Index([f"row {k}" for k in range(96)]), "must hold dates or numbers; got 'row 0'"),
    "a missing date": (HOURS.where(np.arange(96) != 7), "got .* in row 7"),
    "dates and numbers": (pd.Index([1, *HOURS[1:]], dtype=object), "must not mix"),
    "levels": (pd.MultiIndex.from_arrays([HOURS, ["a"] * 96], names=["t", "p"]), r"\['t', 'p'\]"),
}


@pytest.mark.parametrize(("index", "message"), BAD_INDEXES.values(), ids=BAD_INDEXES.keys())
def test_an_index_that_is_no_time_is_refused(frame, index, message):
    with pytest.raises(DataError, match=message):
        imputed(frame.set_axis(index))


def test_time_may_be_a_column(frame, expected):
    for library in (frame.reset_index(names="when"), as_polars(frame)):
        filled, std = imputed(library, time="when")
        names = frame.columns.tolist()
        assert list(filled.columns) == ["when", "hall", "attic", "cellar"]
        np.testing.assert_allclose(filled[names].to_numpy(), expected[0], rtol=1e-5)
        np.testing.assert_allclose(std[names].to_numpy(), expected[1], rtol=1e-4)
        assert (np.asarray(filled["when"]) == np.asarray(library["when"])).all()


def as_polars(frame):
    wide = frame.reset_index(names="when").to_dict("list")
    return pl.DataFrame(wide, strict=False).with_columns(pl.exclude("when").fill_nan(None))


def test_polars_and_pyarrow_come_back_as_themselves(frame, expected):
    wide = as_polars(frame)
    filled, std = imputed(wide, time="when")
    assert isinstance(filled, pl.DataFrame)
    assert filled.schema == wide.schema == std.schema
    assert filled.null_count().sum_horizontal().item() == 0
    without_time = imputed(wide.drop("when"))[0]
    np.testing.assert_allclose(without_time.to_numpy(), expected[0], rtol=1e-5)
    arrow = pa.table({name: wide[name].to_arrow() for name in ("hall", "attic")})
    filled, _ = imputed(arrow)
    assert isinstance(filled, pa.Table)
    assert filled.schema.equals(arrow.schema)
    assert filled["hall"].null_count == 0


def test_types_of_columns_are_kept(frame):
    wide = pd.DataFrame(
        {
            "float32": frame["hall"].astype(np.float32).to_numpy(),
            "counts": np.arange(96, dtype=np.int16),
            "flags": np.arange(96) % 3 == 0,
            "nullable": pd.array([None, *range(95)], dtype="Int64"),
            "nullable whole": pd.array(range(96), dtype="Int64"),
            "nullable float": frame["attic"].astype("Float64").array,
            "arrow": frame["cellar"].convert_dtypes(dtype_backend="pyarrow").array,
            "objects": pd.Series([1.5, None, pd.NA, *range(93)], dtype=object),
        }
    )
    filled, std = imputed(wide)
    changed = {"nullable": "Float64", "objects": "float64"}
    assert filled.dtypes.astype(str).to_dict() == wide.dtypes.astype(str).to_dict() | changed
    assert not filled.isna().any().any()
    for name in wide:
        there = wide[name].notna().to_numpy()
        assert (filled[name][there] == wide[name][there]).all(), name
        assert (std[name][there] == 0).all()
    narrow = pl.DataFrame(
        {
            "whole": [1, 2, 3],
            "missing": [1, None, 3],
            "none": [None] * 3,
            "f": [1.0, float("nan"), 2],
        }
    )
    with pytest.warns(UserWarning, match="Nothing was ever read of 'none'"):
        filled, _ = imputed(narrow)
    assert filled.schema == {
        "whole": pl.Int64, "missing": pl.Float64, "none": pl.Null, "f": pl.Float64
    }  # fmt: skip
    assert filled["f"].is_finite().all()


def test_a_frame_without_holes_comes_back_as_it_is(frame):
    whole = frame.interpolate().bfill()
    filled, std = imputed(whole)
    pd.testing.assert_frame_equal(filled, whole)
    assert (std == 0).all().all()
    assert filled is not whole


@pytest.mark.parametrize("method", ["ou", "linear"])
def test_levels_of_columns_are_modes(method):
    columns = pd.MultiIndex.from_product(
        [["hall", "attic", "cellar"], ["heat", "light"]], names=["place", "sensor"]
    )
    data = np.where(holes((96, 6)), np.nan, readings(6) * np.tile([1, 100], 3))
    wide = pd.DataFrame(data, columns=columns, index=HOURS)
    imputer = DeviationImputer(method, **QUICK)
    filled, std = imputer.fit_transform(wide, return_std=True)
    pd.testing.assert_index_equal(filled.columns, columns)
    pd.testing.assert_index_equal(std.columns, columns)
    assert not filled.isna().any().any()
    assert [ids.name for ids in imputer.model_.ids_] == ["place", "sensor", "time"]
    assert imputer.model_.sensor == 1
    tensor = data.reshape(96, 3, 2)
    other = DeviationImputer(method, time=0, sensor=2, **QUICK).fit_transform(tensor)
    np.testing.assert_allclose(filled.to_numpy(), other.reshape(96, 6), rtol=1e-5)
    flat = wide.set_axis(["_".join(pair) for pair in columns], axis=1)
    place, sensor = (lambda column, k=k: column.split("_")[k] for k in (0, 1))
    same = DeviationImputer(method, location=place, sensor=sensor, **QUICK).fit_transform(flat)
    np.testing.assert_array_equal(same.to_numpy(), filled.to_numpy())


def test_the_level_that_is_the_type_can_be_named_or_is_the_shortest():
    columns = pd.MultiIndex.from_product([["heat", "light"], range(3)])
    wide = pd.DataFrame(readings(6), columns=columns)
    wide.iloc[4, 0] = np.nan
    one_place = wide.loc[:, wide.columns.get_level_values(1) == 0]
    cases = {"auto": (wide, 0), 1: (wide, 1), "level1": (wide, 1), -2: (wide, 0)}
    for sensor, (X, sensor) in {**cases, None: (wide, None)}.items():
        assert DeviationImputer("ou", sensor=sensor, **QUICK).fit(X).model_.sensor == sensor
    assert DeviationImputer("ou", **QUICK).fit(one_place).model_.sensor == 0
    for settings in ({"sensor": "kind"}, {"sensor": 2}, {"location": str}):
        with pytest.raises(SettingError):
            DeviationImputer("ou", **settings).fit(wide)


@pytest.fixture(scope="module")
def long(frame):
    melted = frame.rename_axis("when").reset_index().melt("when", var_name="place")
    light = melted.assign(value=100 * melted["value"] + 5, kind="light")
    both = pd.concat([melted.assign(kind="heat"), light]).sample(frac=1.0, random_state=0)
    return both[both["value"].notna() | (both["kind"] == "heat")]


LONG = {"time": "when", "location": "place", "sensor": "kind", "value": "value"}


@pytest.mark.parametrize("library", [pd, pl], ids=lambda library: library.__name__)
def test_rows_of_a_long_frame_are_filled(frame, long, library):
    given = long if library is pd else pl.DataFrame(long.to_dict("list"), strict=False)
    filled, std = imputed(given, **LONG)
    assert isinstance(filled, library.DataFrame)
    assert list(filled.columns) == list(long.columns)
    missing = long["value"].isna().to_numpy()
    value = filled["value"].to_numpy()
    np.testing.assert_array_equal(value[~missing], long["value"].to_numpy()[~missing])
    assert np.isfinite(value).all()
    assert ((std["value"].to_numpy() > 0) == missing).all()
    assert (np.asarray(filled["place"]) == long["place"].to_numpy()).all()
    columns = pd.MultiIndex.from_product([frame.columns, ["heat", "light"]])
    both = np.stack([frame.to_numpy(), 100 * frame.to_numpy() + 5], axis=2).reshape(96, 6)
    wide = imputed(pd.DataFrame(both, columns=columns, index=HOURS))[0]
    own = long.assign(value=value)[missing]
    expected = [wide.loc[w, (p, k)] for w, p, k in own[["when", "place", "kind"]].to_numpy()]
    np.testing.assert_allclose(own["value"], expected, rtol=1e-4)


def test_a_long_frame_may_have_no_locations_or_no_types(long):
    heat = long[long["kind"] == "heat"]
    only = {"time": "when", "value": "value"}
    by_place = DeviationImputer("ou", **only, location="place", **QUICK).fit(heat)
    assert by_place.model_.sensor is None
    by_kind = DeviationImputer("ou", **only, sensor="place", **QUICK).fit(heat)
    assert by_kind.model_.sensor == 0
    called = heat.rename(columns={"place": "sensor"})
    assert DeviationImputer("ou", **only, **QUICK).fit(called).model_.sensor == 0
    alone = heat[heat["place"] == "hall"]
    filled = DeviationImputer("ou", **only, **QUICK).fit_transform(alone)
    assert filled["value"].notna().all()


BAD_LONG = {
    "no such value": ({"value": "v"}, "value must be one of the columns"),
    "no such time": ({"time": "t"}, "time must be one of the columns"),
    "no such location": ({"location": "p"}, "location must be one of the columns"),
    "no such sensor": ({"sensor": "s"}, "sensor must be one of the columns"),
    "no time": ({"time": None}, "time must be the name of the column with the times"),
    "a location left out": ({"location": None}, "188 cells are given more than once"),
}


@pytest.mark.parametrize(("settings", "message"), BAD_LONG.values(), ids=BAD_LONG.keys())
def test_a_long_frame_is_refused_with_a_reason(long, settings, message):
    with pytest.raises((SettingError, DataError), match=message):
        imputed(long, **LONG | settings)


def test_a_row_without_a_location_is_refused(long):
    broken = long.assign(place=long["place"].where(np.arange(len(long)) != 3))
    with pytest.raises(DataError, match="Row 3 of column 'place' has no id"):
        imputed(broken, **LONG)


def test_times_given_twice_are_counted_or_settled(frame):
    twice = pd.concat([frame, frame.iloc[[3, 8]] + 1.0])
    with pytest.raises(DataError, match=r"2 time stamps are given more than once, e.g. 2024-03-30"):
        imputed(twice)
    with pytest.raises(DataError, match=r"1 time stamp is .* in rows 3 and 96"):
        imputed(twice[:-1])
    for choice in ("mean", "last"):
        filled, _ = imputed(twice, duplicates=choice)
        pd.testing.assert_index_equal(filled.index, twice.index)
        assert not filled.isna().any().any()
        there = twice.notna().to_numpy()
        np.testing.assert_array_equal(filled.to_numpy()[there], twice.to_numpy()[there])
    settled = twice.groupby(level=0).mean()
    other = imputed(settled)[0]
    np.testing.assert_allclose(
        imputed(twice, duplicates="mean")[0].iloc[20:90], other.iloc[20:90], rtol=1e-4
    )


def test_a_cell_of_a_long_frame_given_twice_is_named(long):
    twice = pd.concat([long, long.iloc[[0]]])
    with pytest.raises(DataError, match=r"1 cell is given more than once, e.g. .*rows 0 and"):
        imputed(twice, **LONG)
    filled, _ = imputed(twice, **LONG, duplicates="last")
    assert filled["value"].notna().all()


BAD_FRAMES = {
    "text": (lambda f: f.assign(note="ok"), "Column 'note' must hold numbers; got 'ok' in row 0"),
    "dates": (lambda f: f.assign(when=HOURS), "Column 'when' must hold numbers.*time="),
    "infinity": (lambda f: f.assign(hall=np.inf), "got inf for 'hall' in row 0"),
    "no rows": (lambda f: f[:0], "0 rows"),
    "no columns": (lambda f: f[[]], "column for each series"),
    "columns alike": (lambda f: pd.concat([f, f], axis=1), "no two are alike"),
    "nothing read": (lambda f: f * np.nan, "2 readings to learn from; got 0 in 288 cells"),
    "no such time": (lambda f: f, "time must be one of the columns"),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_frame_is_refused_with_a_reason(frame, name):
    change, message = BAD_FRAMES[name]
    settings = {"time": "t"} if name == "no such time" else {}
    with pytest.raises((DataError, SettingError), match=message):
        imputed(change(frame), **settings)


def test_a_lazy_frame_is_refused():
    with pytest.raises(DataError, match=r"collect\(\)"):
        imputed(pl.LazyFrame({"a": [1.0, None]}))


def test_new_times_of_a_frame_are_filled_with_their_own_readings(frame):
    imputer = DeviationImputer("ou", refit=True, **QUICK).fit(frame[:60])
    together = imputed(frame)[0]
    pd.testing.assert_frame_equal(imputer.transform(frame[60:]), together[60:], rtol=1e-5)
    pd.testing.assert_frame_equal(imputer.transform(frame[40:]), together[40:], rtol=1e-5)
    pd.testing.assert_frame_equal(imputer.transform(frame), together, rtol=1e-5)
    known = imputer.transform(frame[:60])
    pd.testing.assert_frame_equal(imputer.transform(frame[20:40]), known[20:40])


def test_new_readings_of_known_cells_hold(frame):
    imputer = DeviationImputer("ou", **QUICK).fit(frame)
    hole = frame["hall"].isna().to_numpy().nonzero()[0][2]
    mended = frame.copy()
    mended.iloc[hole + 1, 0] = frame["hall"].max() + 3.0
    assert (
        imputer.transform(mended)["hall"].iloc[hole] > imputer.transform(frame)["hall"].iloc[hole]
    )


def test_times_with_a_zone_and_times_without_are_not_mixed(frame):
    local = frame.tz_localize(None)
    zoned = DeviationImputer("linear", **QUICK).fit(frame)
    with pytest.raises(DataError, match="must be dates with a zone, as in fit; got dates without"):
        zoned.transform(local)
    assert zoned.transform(frame.tz_convert("Asia/Tokyo")).notna().all(axis=None)
    for mixed in (
        [HOURS[0].isoformat(), *local.index[1:].map(str)],
        [HOURS[0].to_pydatetime(), *local.index[1:].to_pydatetime()],
    ):
        with pytest.raises(DataError, match="must not mix times with a zone and times without"):
            imputed(frame.set_axis(pd.Index(mixed, dtype=object)))


def test_dates_and_rows_are_not_mixed(frame):
    dates = DeviationImputer("ou", **QUICK).fit(frame)
    with pytest.raises(
        DataError, match="times of X must be dates with a zone, as in fit; got rows"
    ):
        dates.transform(frame.reset_index(drop=True))
    rows = DeviationImputer("ou", **QUICK).fit(frame.reset_index(drop=True))
    with pytest.raises(DataError, match="times of X must be rows, as in fit; got dates"):
        rows.transform(frame)
    later = frame.reset_index(drop=True)[50:]
    again = rows.transform(later)  # an index that does not start at 0 says which rows they are
    pd.testing.assert_frame_equal(again, rows.transform(frame.reset_index(drop=True))[50:])


def test_another_kind_of_table_is_refused(frame, long):
    imputer = DeviationImputer("ou", **QUICK).fit(frame)
    levels = frame.set_axis(pd.MultiIndex.from_product([["a"], frame.columns]), axis=1)
    with pytest.raises((DataError, ValueError)), pytest.warns(UserWarning, match="feature names"):
        imputer.transform(levels)


def test_columns_may_come_in_another_order(frame):
    imputer = DeviationImputer("ou", **QUICK).fit(frame)
    order = ["attic", "hall", "cellar"]
    pd.testing.assert_frame_equal(imputer.transform(frame[order]), imputer.transform(frame)[order])


@pytest.fixture(scope="module")
def cube():
    data = readings(6).T.reshape(2, 3, 96) * np.array([1, 50])[:, None, None]
    return xr.DataArray(
        np.where(holes((2, 3, 96)), np.nan, data),
        dims=("sensor", "place", "time"),
        coords={
            "sensor": ["heat", "light"],
            "place": ["hall", "attic", "cellar"],
            "time": HOURS.tz_convert(None),
            "height": ("place", [1.0, 9.0, -2.0]),
        },
        attrs={"source": "a test"},
        name="readings",
    )


def test_an_array_of_xarray_comes_back_with_its_labels(cube):
    before = cube.copy(deep=True)
    imputer = DeviationImputer("ou", **QUICK)
    filled, std = imputer.fit_transform(cube, return_std=True)
    xr.testing.assert_identical(cube, before)
    assert filled.attrs == cube.attrs
    assert filled.name == "readings"
    xr.testing.assert_equal(filled.coords.to_dataset(), cube.coords.to_dataset())
    assert bool(filled.notnull().all())
    xr.testing.assert_equal(filled.where(cube.notnull()), cube)
    assert ((std.values > 0) == cube.isnull().values).all()
    assert imputer.model_.sensor == 0
    as_array = DeviationImputer("ou", sensor=0, **QUICK).fit_transform(cube.values)
    np.testing.assert_allclose(filled.values, as_array, rtol=1e-5)


def test_dimensions_may_be_in_any_order_and_have_any_name(cube):
    expected = imputed(cube)[0]
    turned = cube.transpose("time", "place", "sensor")
    np.testing.assert_allclose(imputed(turned)[0].transpose(*cube.dims), expected, rtol=1e-12)
    renamed = cube.rename(time="when", sensor="kind")
    other = imputed(renamed, time="when", sensor="kind")[0]
    np.testing.assert_array_equal(other, expected)
    assert other.dims == ("kind", "place", "when")
    bare = cube.drop_vars(["time", "place"])
    np.testing.assert_allclose(imputed(bare)[0], expected, rtol=1e-5)
    single = cube.sel(sensor="heat", place="hall", drop=True)
    assert bool(imputed(single)[0].notnull().all())
    assert imputed(cube.astype(np.float32))[0].dtype == np.float32


def test_variables_of_a_dataset_are_types(cube):
    dataset = cube.to_dataset("sensor").assign(
        note=("place", ["a", "b", "c"]), light=cube.sel(sensor="light").T.drop_vars("sensor")
    )
    dataset["heat"].attrs["units"] = "degrees"
    filled, std = imputed(dataset)
    assert filled["heat"].attrs == {"units": "degrees"}
    assert filled["light"].dims == ("time", "place")
    xr.testing.assert_identical(filled["note"], dataset["note"])
    expected = imputed(cube)[0]
    for name in ("heat", "light"):
        got = filled[name].transpose("place", "time").values
        np.testing.assert_array_equal(got, expected.sel(sensor=name).values)
        assert (std[name].notnull()).all()


def test_new_times_and_new_places_of_xarray_are_filled(cube):
    early, late = cube.isel(time=slice(0, 60)), cube.isel(time=slice(60, None))
    imputer = DeviationImputer("ou", refit=True, **QUICK).fit(early)
    expected = imputed(cube)[0].isel(time=slice(60, None))
    np.testing.assert_allclose(imputer.transform(late), expected, rtol=1e-5)
    new_place = early.isel(place=[0]).assign_coords(place=["shed"])
    assert bool(imputer.transform(new_place).notnull().all())


BAD_CUBES = {
    "no time": (lambda cube: cube.rename(time="when"), {}, "needs a dimension 'time'"),
    "text": (lambda cube: cube.astype(str), {}, "readings must hold numbers"),
    "infinity": (lambda cube: cube.fillna(np.inf), {}, "got inf for"),
    "empty": (lambda cube: cube.isel(time=slice(0, 0)), {}, "has no 'time'"),
    "a value": (lambda cube: cube, {"value": "v"}, "value must be None"),
    "a location": (lambda cube: cube, {"location": "place"}, "location must be None"),
    "an unknown sensor": (lambda cube: cube, {"sensor": "kind"}, "sensor must be one of"),
    "no variable over time": (
        lambda cube: cube.isel(time=0, drop=True).to_dataset(),
        {},
        "variables with the dimension 'time'",
    ),
    "variables that differ": (
        lambda cube: cube.to_dataset(name="a").assign(b=cube.isel(place=0, drop=True)),
        {},
        "must have the same dimensions",
    ),
    "a type of a dataset": (
        lambda cube: cube.to_dataset("sensor"),
        {"sensor": "place"},
        "sensor must be 'auto'",
    ),
    "times given twice": (
        lambda cube: xr.concat([cube, cube.isel(time=[0, 1])], "time"),
        {},
        "2 time stamps are given more than once",
    ),
}


@pytest.mark.parametrize(
    ("change", "settings", "message"), BAD_CUBES.values(), ids=BAD_CUBES.keys()
)
def test_an_array_of_xarray_is_refused_with_a_reason(cube, change, settings, message):
    with pytest.raises((DataError, SettingError), match=message):
        imputed(change(cube), **settings)


def test_files_keep_dates_and_names(frame, tmp_path):
    imputer = DeviationImputer("ou", **QUICK).fit(frame[:60])
    imputer.save(tmp_path / "imputer")
    again = DeviationImputer.load(tmp_path / "imputer")
    pd.testing.assert_frame_equal(again.transform(frame), imputer.transform(frame))
    assert again.get_feature_names_out().tolist() == ["hall", "attic", "cellar"]
    with pytest.raises(ValueError, match="feature names"):
        again.transform(frame.rename(columns={"hall": "porch"}))


def test_seasons_may_be_named_where_times_are_dates():
    hours = pd.date_range("2024-05-01", periods=120, freq="h")
    cycle = 5 * np.sin(2 * np.pi * np.arange(120) / 24)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({k: k + cycle + rng.normal(0, 0.1, 120) for k in range(3)}, index=hours)
    dark = (hours >= "2024-05-03") & (hours < "2024-05-04")
    quick = {"rank": 1, "sweeps": 40, "tolerance": None}
    errors = {}
    for name, seasons in {"none": None, "named": ["day"], "seconds": [86_400.0]}.items():
        own = quick | {"seasons": seasons}
        imputer = DeviationImputer("bayes", settings=own, random_state=0, n_jobs=1)
        filled = imputer.fit_transform(frame.mask(np.tile(dark[:, None], 3)))
        errors[name] = np.abs((filled - frame)[dark].to_numpy()).mean()
    assert errors["named"] == errors["seconds"] < 0.5 * errors["none"]
    numbers = frame.reset_index(drop=True)
    with pytest.raises(SettingError, match="the times are numbers"):
        DeviationImputer("bayes", settings=quick | {"seasons": ["day"]}).fit(numbers)


def test_an_imputer_with_seasons_is_the_same_after_save_and_load(tmp_path):
    hours = pd.date_range("2024-05-01", periods=120, freq="h")
    cycle = 5 * np.sin(2 * np.pi * np.arange(120) / 24)
    frame = pd.DataFrame({"hall": cycle, "attic": 2 + cycle}, index=hours)
    holed = frame.mask(np.outer((hours >= "2024-05-03") & (hours < "2024-05-04"), [True, True]))
    own = {"rank": 1, "sweeps": 40, "tolerance": None, "seasons": ["day"]}
    imputer = DeviationImputer("bayes", settings=own, random_state=0, n_jobs=1).fit(holed)
    assert imputer.model_.seasons_
    imputer.save(tmp_path / "house.nw")
    again = DeviationImputer.load(tmp_path / "house.nw")
    assert again.model_.seasons_ == imputer.model_.seasons_
    pd.testing.assert_frame_equal(
        again.transform(holed), imputer.transform(holed), check_exact=True
    )
