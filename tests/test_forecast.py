"""Forecasts: the next rows of any table, with intervals that hold."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
from typer.testing import CliRunner

from noisewise import DeviationImputer
from noisewise.cli import app
from noisewise.data.next_rows import next_stamps
from noisewise.errors import DataError, SettingError
from noisewise.forecasting import Forecaster
from noisewise.models.profiles import PRIOR, Profile
from noisewise.simple_forecasts import NAMES, Grid, Learned, near, smoothed


def rhythm(n=480, seed=0, holes=0.1):
    rng = np.random.default_rng(seed)
    hours = np.arange(n)
    day = np.sin(hours / 24 * 2 * np.pi)[:, None] * [2.0, 3.0, -1.0]
    slow = np.zeros((n, 3))
    for k in range(1, n):
        slow[k] = 0.9 * slow[k - 1] + 0.3 * rng.normal(size=3)
    whole = 20 + day + slow + 0.2 * rng.normal(size=(n, 3))
    return np.where(rng.random(whole.shape) < holes, np.nan, whole), whole


HOURS = pd.date_range("2024-05-01", periods=480, freq="h", tz="Europe/Berlin", name="when")
FRAME = pd.DataFrame(rhythm()[0], index=HOURS, columns=list("abc"))


def imputer(**more):
    return DeviationImputer("linear", n_jobs=1, **more)


@pytest.fixture(scope="module")
def expected():
    return imputer().fit(FRAME).forecast(4)


def test_forecasts_beat_the_last_value_and_the_slot_mean_and_intervals_hold():
    errors, inside = {"mix": [], "last": [], "slot": []}, []
    for seed in range(6):
        holed, whole = rhythm(seed=seed)
        for end in (440, 456, 470):
            grid = Grid(holed[:end], np.arange(end, dtype=float))
            model = Forecaster.of(grid, 6)
            mean, std = model.ahead(grid)
            low, high = model.ends(0.9)
            truth = whole[end : end + 6]
            simple = model.learned.ahead(grid, np.array([end - 1]), 6)[:, 0]
            for name, told in (("mix", mean), ("last", simple[0]), ("slot", simple[1])):
                errors[name].append((told - truth) ** 2)
            up, down = mean + high[:, None] * std, mean + low[:, None] * std
            inside.append((truth > down) & (truth < up))
    rmse = {name: np.sqrt(np.mean(part)) for name, part in errors.items()}
    assert rmse["mix"] < 0.9 * min(rmse["last"], rmse["slot"])
    assert 0.84 < np.mean(inside) < 0.96


def simulated(kind, seed, rows=160, n=6):
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(rows, n))
    if kind == "walk":
        return np.cumsum(noise, axis=0)
    return noise + (kind == "season") * 3 * np.sin(np.arange(rows) / 12 * 2 * np.pi)[:, None]


@pytest.mark.parametrize("kind", ["walk", "season", "noise"])
def test_ninety_percent_intervals_cover_about_ninety_percent_at_each_step(kind):
    inside = []
    for seed in range(28):
        values = simulated(kind, seed)
        model = Forecaster.of(Grid(values[:120], np.arange(120.0)), 6)
        low, high = model.ends(0.9)[:, :, None]
        for end in (120, 137, 154):
            mean, std = model.ahead(Grid(values[:end], np.arange(float(end))))
            truth = values[end : end + 6]
            inside.append((truth > mean + low * std) & (truth < mean + high * std))
    coverage = np.mean(inside, axis=(0, 2))
    assert coverage.min() > 0.85
    assert coverage.max() < 0.97


def test_intervals_widen_where_errors_have_been_large_of_late():
    rng = np.random.default_rng(0)
    loud = np.where(np.arange(900) // 60 % 2, 4.0, 1.0)[:, None]  # loud and quiet hours in turn
    values = loud * rng.normal(size=(900, 3))
    model = Forecaster.of(Grid(values[:600], np.arange(600.0)), 6)
    stds = [
        model.ahead(Grid(values[:end], np.arange(float(end))))[1].mean() for end in (718, 778, 838)
    ]
    assert stds[0] > 2 * stds[1]
    assert stds[2] > 2 * stds[1]


def test_intervals_hold_outliers_of_which_nothing_is_learned():
    rng = np.random.default_rng(0)
    clean = rng.normal(size=(400, 2))
    spikes = rng.random(clean.shape) < 0.02
    read = Grid(np.where(spikes, 40.0, clean), np.arange(400.0))
    holed = Grid(np.where(spikes, np.nan, clean), read.when)
    without, model = Forecaster.of(holed, 1), Forecaster.of(holed, 1, read)
    reach = [one.ends(0.98)[1, 0] * one.ahead(holed)[1][0].min() for one in (without, model)]
    assert reach[0] < 6 < reach[1]
    np.testing.assert_allclose(model.learned.mean, without.learned.mean)


def test_slots_are_smoothed_where_that_tells_other_cycles_better():
    rng = np.random.default_rng(0)
    t = np.arange(400.0)
    smooth = np.sin(t / 100 * 2 * np.pi)
    jagged = rng.normal(size=100)[np.arange(400) % 100] * 3
    truth = np.stack([smooth, jagged], axis=1)
    for k, gain in ((0, 0.6), (1, 1.1)):
        left = truth[:, [k]] + 0.5 * rng.normal(size=(400, 1))
        raw = Profile(100.0, left.reshape(4, 100, 1).sum(axis=0).T / (4 + PRIOR))
        (found,) = smoothed(left, t, [raw])
        errors = [((one.means[0] - truth[:100, k]) ** 2).mean() for one in (found, raw)]
        assert errors[0] < gain * errors[1]


def test_a_level_that_has_jumped_is_followed_and_a_lone_spike_is_not():
    rng = np.random.default_rng(0)
    day = np.sin(np.arange(490) / 24 * 2 * np.pi)[:, None]
    values = day + 0.1 * rng.normal(size=(490, 2))
    for k in range(1, 490):
        values[k] += 0.95 * (values[k - 1] - day[k - 1])  # what is left fades slowly
    model = Forecaster.of(Grid(values[:480], np.arange(480.0)), 6)
    jumped, spiked = values.copy(), values.copy()
    jumped[480:] += 30.0
    spiked[489] += 30.0
    grids = [Grid(one, np.arange(490.0)) for one in (values, jumped, spiked)]
    regressed = [model.learned.ahead(one, np.array([489]), 6)[3, 0] for one in grids]
    assert np.abs(regressed[1][0] - regressed[0][0]).min() > 10.0
    assert np.abs(regressed[2] - regressed[0]).max() < 3.0
    np.testing.assert_allclose(near(np.array([[0.0], [9.0], [0.0]]))[1], 6.0)


def test_a_short_walk_goes_on_from_its_end():
    away = []
    for seed in range(20):
        walk = simulated("walk", seed, 30, 1)
        grid = Grid(walk, np.arange(30.0))
        away.append(((Forecaster.of(grid, 6).ahead(grid)[0] - walk[-1]) ** 2).mean())
    assert np.sqrt(np.mean(away)) < 1.2


@pytest.mark.parametrize(
    ("kind", "rows", "most"),
    [
        ("walk", 14, 1.1),
        ("walk", 24, 1.1),
        ("walk", 40, 1.05),
        ("noise", 40, 1.1),
        ("season", 60, 1.05),
    ],
)
def test_short_tables_are_told_nearly_as_well_as_by_the_last_reading_or_the_slot_mean(
    kind, rows, most
):
    squared = np.zeros((3, 6))
    for seed in range(50):
        values = simulated(kind, seed, rows + 6, 2)
        past = values[:rows]
        slots = np.arange(rows + 6) % (12 if kind == "season" else 1)
        mean = [past[slots[:rows] == slot].mean(axis=0) for slot in slots[rows:]]
        grid = Grid(past, np.arange(float(rows)))
        told = (Forecaster.of(grid, 6).ahead(grid)[0], past[-1], np.array(mean))
        squared += [((one - values[rows:]) ** 2).mean(axis=1) for one in told]
    best = squared[1:][squared[1:].sum(axis=1).argmin()]
    assert np.sqrt(squared[0] / best).max() < most


def test_what_was_seen_too_rarely_to_be_judged_is_not_said_to_repeat():
    t = np.arange(700.0)
    values = 4 * np.sin(t / 220 * 2 * np.pi)[:, None] + 0.3 * simulated("noise", 0, 700, 3)
    early = Grid(values[:500], t[:500])
    assert Learned.of(early, 1).profiles
    assert not Forecaster.of(early, 1).learned.profiles
    assert Forecaster.of(Grid(values, t), 1).learned.profiles


def test_weights_are_those_of_the_best_where_one_is_right():
    t = np.arange(400.0)
    grid = Grid(np.sin(t / 30)[:, None] * [1.0, 2.0], t)  # smooth: moves go on
    model = Forecaster.of(grid, 6)
    assert NAMES[model.weights[0].mean(axis=1).argmax()] in ("moves", "recent moves")
    np.testing.assert_allclose(
        model.ahead(grid)[0][0], np.sin(400 / 30) * np.array([1, 2]), atol=0.01
    )
    rng = np.random.default_rng(0)
    walk = Grid(np.cumsum(rng.normal(size=(600, 2)), axis=0), np.arange(600.0))
    assert np.abs(Forecaster.of(walk, 6).ahead(walk)[0][0] - walk.values[-1]).max() < 1.0
    assert np.isfinite(Learned.of(Grid(walk.values[:3], walk.when[:3]), 6).mean).all()


def table_of(kind):
    """The same readings as another kind of table, and settings that tell what is what."""
    long = FRAME.reset_index().melt(id_vars="when", var_name="sensor", value_name="reading")
    by_place = pd.concat([FRAME.assign(place=place).reset_index() for place in ("x", "y")])
    naive = FRAME.tz_localize(None)
    return {
        "array": (FRAME.to_numpy(), {}),
        "rows": (FRAME.reset_index(drop=True), {}),
        "column": (FRAME.reset_index(), {"time": "when"}),
        "long": (long, {"time": "when", "sensor": "sensor", "value": "reading"}),
        "places": (by_place, {"time": "when", "location": "place"}),
        "polars": (pl.from_pandas(naive.reset_index()), {"time": "when"}),
        "arrow": (pl.from_pandas(naive.reset_index()).to_arrow(), {"time": "when"}),
        "series": (FRAME["a"], {}),
        "polars series": (pl.Series("a", FRAME["a"].to_numpy()), {}),
        "xarray": (xr.DataArray(naive, dims=("time", "sensor")), {}),
        "dataset": (xr.Dataset.from_dataframe(naive.rename_axis("time")), {}),
        "numbers": (FRAME.set_axis(np.arange(480) * 10), {}),
        "periods": (naive.to_period("h"), {}),
        "text": (naive.set_axis(naive.index.astype(str)), {}),
    }[kind]


KINDS = (
    "array", "rows", "column", "long", "places", "polars", "arrow", "series", "polars series",
    "xarray", "dataset", "numbers", "periods", "text",
)  # fmt: skip


def test_the_next_rows_of_a_frame_have_the_next_stamps(expected):
    mean = expected.mean
    assert list(mean.index) == list(pd.date_range(HOURS[-1], periods=5, freq="h")[1:])
    assert mean.index.tz is not None
    assert mean.index.name == "when"
    assert list(mean.columns) == list("abc")
    assert (expected.low < mean).all().all()
    assert (mean < expected.high).all().all()
    assert (expected.std > 0).all().all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_goes_on_as_itself(kind, expected):
    X, settings = table_of(kind)
    told = imputer(**settings).fit(X).forecast(4)
    assert type(told.mean) is type(X)
    mean = told.mean
    if kind == "long":
        assert list(mean.columns) == list(X.columns)
        mean = mean.pivot(index="when", columns="sensor", values="reading")
        pd.testing.assert_index_equal(mean.index, expected.mean.index, check_names=False)
    elif kind == "places":
        assert len(mean) == 8
        mean = mean[mean["place"] == "y"][list("abc")]
    elif kind in ("polars", "arrow", "column"):
        mean = pl.from_arrow(mean) if kind == "arrow" else mean
        stamps = mean["when"].to_list()
        want = expected.mean.index.tz_localize(None) if kind != "column" else expected.mean.index
        assert stamps == list(want.to_pydatetime())
        mean = mean[list("abc")]
    elif kind == "dataset":
        mean = mean.to_dataframe()[list("abc")]
    elif kind == "numbers":
        assert mean.index.tolist() == [4800, 4810, 4820, 4830]
    elif kind == "periods":
        assert mean.index[0] == X.index[-1] + 1
    elif kind == "text":
        assert mean.index[0] == "2024-05-21 00:00:00"
    elif kind == "rows":
        assert mean.index.tolist() == [480, 481, 482, 483]
    wide = np.asarray(mean, dtype=float).reshape(4, -1)
    scale = FRAME.std().to_numpy()[: wide.shape[1]]
    assert (np.abs(wide - expected.mean.to_numpy()[:, : wide.shape[1]]) < 0.3 * scale).all()


def test_months_and_years_are_those_of_the_calendar():
    assert next_stamps(["2023-11-30", "2023-12-31"], 2.6e6, 2) == [
        "2024-01-31", "2024-02-29",
    ]  # fmt: skip
    monthly = pd.Series(np.arange(30.0), index=pd.date_range("2020-01-31", periods=30, freq="ME"))
    index = imputer().fit(monthly).forecast(2).mean.index
    assert list(index.astype(str)) == ["2022-07-31", "2022-08-31"]


def test_forecasts_go_on_from_newer_rows_and_from_files(expected, tmp_path):
    early = imputer().fit(FRAME[:470])
    newer = early.forecast(4, FRAME[470:])
    assert newer.mean.index.equals(expected.mean.index)
    assert early.forecast(1).mean.index[0] == HOURS[470]
    early.update(FRAME[470:])
    pd.testing.assert_frame_equal(early.forecast(4).mean, newer.mean)
    early.save(tmp_path / "early.nw")
    loaded = DeviationImputer.load(tmp_path / "early.nw").set_params(n_jobs=1)
    with pytest.raises(DataError, match="does not know what its tables look like"):
        loaded.forecast(4)
    for one, other in zip(loaded.forecast(4, FRAME[-1:]), newer, strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True, check_freq=False)


def test_a_call_says_the_same_after_others():
    model = imputer().fit(FRAME[["a"]])
    first = model.forecast(3)
    model.forecast(10)
    pd.testing.assert_frame_equal(model.forecast(3).low, first.low, check_exact=True)
    wide = model.forecast(3, coverage=0.99)
    assert (wide.high > first.high).all().all()


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, 1001, "2"])
def test_steps_must_be_a_whole_number(steps, expected):
    with pytest.raises(SettingError, match="steps must be a whole number from 1 to 1,000"):
        imputer().fit(FRAME[:50]).forecast(steps)


def test_short_tables_bounds_and_series_never_read():
    few = imputer().fit(np.array([[1.0], [2.0], [3.0]])).forecast(3)
    assert np.isfinite(few.mean).all()
    counts = np.random.default_rng(0).poisson(3.0, (200, 2)).astype(float)
    told = imputer(whole=True).fit(counts).forecast(5)
    assert (told.low >= 0).all()
    assert (told.mean == np.rint(told.mean)).all()
    frame = imputer().fit(FRAME.assign(d=np.nan)).forecast(2).mean
    assert frame["d"].isna().all()
    assert frame["a"].notna().all()


def test_forecast_on_the_command_line(tmp_path):
    FRAME.tz_localize(None).to_csv(tmp_path / "in.csv")
    out, report = tmp_path / "next.csv", tmp_path / "report.json"
    words = ["forecast", str(tmp_path / "in.csv"), "--steps", "2", "--out", str(out)]
    result = CliRunner().invoke(app, [*words, "--json", str(report)])
    assert result.exit_code == 0, result.output
    found = pd.read_csv(out)
    assert found.columns.tolist()[:5] == ["when", "a", "a_std", "a_low", "a_high"]
    assert found["when"].tolist() == ["2024-05-21 00:00:00", "2024-05-21 01:00:00"]
    assert json.loads(report.read_text())["rows"] == 2
    long = FRAME.tz_localize(None).reset_index().melt(id_vars="when", var_name="sensor")
    long.to_csv(tmp_path / "long.csv", index=False)
    words = ["forecast", str(tmp_path / "long.csv"), "--out", str(tmp_path / "next.parquet")]
    assert CliRunner().invoke(app, words).exit_code == 0
    found = pd.read_parquet(tmp_path / "next.parquet")
    assert found.columns.tolist() == [
        "sensor", "when", "value", "value_std", "value_low", "value_high",
    ]  # fmt: skip
    assert len(found) == 18
    words = ["forecast", str(tmp_path / "x.nc"), "--out", str(tmp_path / "y.csv")]
    assert "save NetCDF as CSV first" in str(CliRunner().invoke(app, words).exception)


def test_one_row_is_not_enough_to_go_on_from():
    for rows in (1, 6):
        table = np.full((rows, 2), np.nan)
        table[0] = 1.0, 2.0
        with pytest.raises(DataError, match="2 times or more"):
            DeviationImputer("linear").fit(table).forecast(2)


def test_a_jump_of_all_series_at_the_end_leads_not_far_beyond_it():
    rng = np.random.default_rng(0)
    table = np.sin(np.arange(120)[:, None] / 5 + np.arange(3)) + 0.1 * rng.normal(size=(120, 3))
    table[-1] = 1e4
    assert np.abs(DeviationImputer("linear").fit(table).forecast(2).mean).max() < 2.1e4


def test_rows_that_come_long_after_the_fit_take_no_memory():
    table = np.random.default_rng(0).normal(size=(100, 3))
    model = Forecaster.of(Grid(table, np.arange(100.0)), 2)
    later = model.widths.later(np.ones((3, 2, 3)), 10**12)
    assert np.isfinite(later.now()).all()


def backwards(kind):
    """Return the frame with the last row first, as a table of some kind; and how it is read."""
    frame = FRAME[::-1]
    if kind == "shuffled":
        return FRAME.sample(frac=1.0, random_state=0), {}
    if kind == "a series":
        return frame["a"], {}
    if kind == "polars":
        return pl.from_pandas(frame.tz_localize(None).reset_index()), {"time": "when"}
    if kind == "xarray":
        times = frame.index.tz_localize(None).to_numpy()
        return xr.DataArray(frame.to_numpy(), dims=("time", "s"), coords={"time": times}), {}
    return frame, {}


@pytest.mark.parametrize("kind", ["a frame", "shuffled", "a series", "polars", "xarray"])
def test_the_next_rows_follow_the_last_time_and_not_the_last_row(kind, expected):
    table, options = backwards(kind)
    mean = imputer(**options).fit(table).forecast(4).mean
    values = mean.drop("when").to_numpy() if kind == "polars" else mean.to_numpy()
    stamps = {"polars": lambda: mean["when"].to_list(), "xarray": lambda: mean["time"].values}
    found = pd.DatetimeIndex(stamps.get(kind, lambda: mean.index)()).tz_localize(None)
    assert found.tolist() == pd.date_range("2024-05-21", periods=4, freq="h").tolist()
    whole = imputer().fit(FRAME["a"]).forecast(4) if kind == "a series" else expected
    np.testing.assert_allclose(values, whole.mean.to_numpy(), rtol=1e-4)


def test_rows_without_readings_at_the_end_are_steps_of_a_forecast():
    silent = FRAME.copy()
    silent.iloc[-7:] = np.nan
    fitted = imputer().fit(silent)
    short = imputer().fit(FRAME[:-7])
    whole = short.forecast(12).mean
    for ahead in (fitted.forecast(5), short.forecast(5, silent[-7:])):
        pd.testing.assert_frame_equal(ahead.mean, whole[7:], check_freq=False)
    rows = imputer().fit(silent.to_numpy()).forecast(5).mean
    np.testing.assert_allclose(rows, whole[7:].to_numpy(), rtol=1e-5)
    with pytest.raises(DataError, match="Nothing was read in the last 7 rows"):
        fitted.forecast(995)


def test_older_rows_change_nothing_of_where_a_forecast_begins(tmp_path):
    fitted = imputer().fit(FRAME)
    pd.testing.assert_frame_equal(fitted.forecast(5, FRAME[:50]).mean, fitted.forecast(5).mean)
    fitted.save(tmp_path / "a.nw")
    with pytest.raises(DataError, match="the last rows that the imputer knows, or later ones"):
        DeviationImputer.load(tmp_path / "a.nw").forecast(5, FRAME[:50])


def test_a_series_read_once_is_forecast_with_a_wide_std():
    ahead = imputer().fit(np.array([[20.0, np.nan], [np.nan, 30.0]])).forecast(2)
    assert (ahead.std >= [20.0, 30.0]).all()
