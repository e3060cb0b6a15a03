"""What is odd is found, with its date; what is only unusual is left alone."""

import json

import numpy as np
import pandas as pd
import pytest
from test_cli import run

from noisewise import DataError, DeviationImputer, SettingError, find_anomalies
from noisewise.anomalies.dates import Path, first_after
from noisewise.anomalies.others import Others
from noisewise.anomalies.stuck import long_runs
from noisewise.anomalies.tracks import Grid, Tracks
from noisewise.data import observe

HOURS = pd.date_range("2024-05-01", periods=600, freq="h", tz="Europe/Berlin")


def table(seed=0, series=8, n=600):
    """Rooms of a building: a day, weather that all share, a path of their own, and noise."""
    rng = np.random.default_rng(seed)
    hours = np.arange(n)
    shared = walk(rng, n, 40.0)[:, None] * rng.uniform(0.7, 1.3, series)
    own = np.column_stack([walk(rng, n, 10.0) for _ in range(series)])
    day = np.sin(2 * np.pi * hours / 24)[:, None]
    return 20 + 2 * shared + 2 * day + 0.3 * own + rng.normal(0, 0.1, (n, series))


def walk(rng, n, timescale):
    path, phi = np.empty(n), np.exp(-1 / timescale)
    path[0] = rng.normal()
    for k in range(1, n):
        path[k] = phi * path[k - 1] + np.sqrt(1 - phi**2) * rng.normal()
    return path


def found(values, **options):
    told = find_anomalies(values, sensor=None, **options)
    return list(zip(*(told[name].tolist() for name in ("kind", "series", "start")), strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_a_clean_table_has_nothing_odd(seed):
    assert found(table(seed)) == []
    assert found(np.round(table(seed))) == []  # whole numbers repeat themselves
    assert found(table(seed)[:, :1]) == []
    assert found(np.maximum(table(seed) - 21, 0.0)) == []  # nothing for half of the time


@pytest.mark.parametrize("series", [1, 8])
def test_spikes_are_found_and_nothing_else(series):
    for seed in range(3):
        values = table(seed, series)
        rng = np.random.default_rng(seed)
        places = np.sort(rng.permutation(600)[:8])
        values[places, 0] += 20 * values[:, 0].std()
        told = [start for kind, s, start in found(values) if (kind, s) == ("spike", 0)]
        assert set(told) <= set(places.tolist())
        assert len(told) >= 7
        assert len(found(values)) == len(told)


def test_a_switch_that_is_often_on_for_a_while_may_be_on_for_a_moment():
    rng = np.random.default_rng(0)
    on = np.column_stack([walk(rng, 3000, 15.0) for _ in range(4)]) > 0.8
    watts = np.round(np.where(on, 1500.0, 60.0) + 10 * rng.normal(size=on.shape))
    assert len(found(watts)) <= 12
    watts[1000, 2] = 9000.0
    assert ("spike", 2, 1000) in found(watts)


def test_what_several_series_read_at_a_time_is_an_event():
    values = table()
    values[300] += 80.0
    assert found(values) == []
    values[300, 1:] -= 80.0
    assert found(values) == [("spike", 0, 300)]


@pytest.mark.parametrize("wild", [60.0, 1e4, 1e6, 1e9])
def test_wild_readings_of_a_short_series_make_no_other_odd(wild):
    for seed in range(5):
        noise = np.random.default_rng(seed).normal(0, 0.3, (120, 2))
        values = 20 + 3 * np.sin(np.arange(120) / 4)[:, None] + noise
        assert find_anomalies(values)["kind"].tolist() == []
        for at in ([13], [13, 30]):
            values[at, 0] = wild
            assert sorted(find_anomalies(values)["start"].tolist()) == at


def test_the_probability_of_a_spike_can_be_asked_for():
    values = table()
    values[300, 0] += 3.5
    sizes = [len(find_anomalies(values, probability=p)["kind"]) for p in (0.01, 0.5, 1.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 0
    for wrong in (0.0, 1.5, float("nan"), None, "0.5"):
        with pytest.raises(SettingError, match="probability must be a number, above 0, at most 1;"):
            find_anomalies(values, probability=wrong)


def test_a_sensor_that_is_stuck_for_a_day():
    values = np.round(table(), 1)
    values[300:324, 3] = values[300, 3]
    (row,) = found(values)
    assert row[:2] == ("stuck", 3)
    assert 298 <= row[2] <= 300


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_day_that_is_stuck_is_found_though_most_of_it_is_missing(seed):
    rng = np.random.default_rng(seed)
    values = np.round(5 * table(seed, 6, 3000))
    values[rng.random(values.shape) < 0.3] = np.nan
    level = np.nanmedian(values[:, 3])
    values[700:725, 3] = np.nan
    values[699 + np.arange(1, 26, 3), 3] = level
    values[[699, 725], 3] = level + 3, level - 4
    assert found(values) == [("stuck", 3, 700)]


def test_runs_at_the_floor_of_a_series_do_not_hide_one_above_it():
    rng = np.random.default_rng(0)
    values = np.maximum(np.round(10 * walk(rng, 3000, 20.0)), 0.0)
    values[1500:1514] = [21.0] + 12 * [14.0] + [25.0]
    tracks = Tracks.of(observe([("a", t, v) for t, v in enumerate(values.tolist())]))
    runs = long_runs(tracks, np.ones(3000, dtype=bool))
    assert [(run.first, run.last) for run in runs if run.certain] == [(1501, 1512)]


def test_a_sensor_that_is_stuck_for_a_fifth_of_its_readings_is_no_habit():
    rng = np.random.default_rng(0)
    values = np.round(4 * walk(rng, 5000, 200.0))
    values[2000:3000] = 1.0
    values[[1999, 3000]] = 3.0, -1.0
    tracks = Tracks.of(observe([("a", t, v) for t, v in enumerate(values.tolist())]))
    (run,) = (one for one in long_runs(tracks, np.ones(5000, dtype=bool)) if one.certain)
    assert (run.first, run.last) == (2000, 2999)


@pytest.mark.parametrize("seed", [4, 7])
def test_a_lamp_that_is_left_on_is_no_fault_and_a_sensor_of_light_that_is_stuck_is(seed):
    rng, hours = np.random.default_rng(seed), np.arange(4800)
    day = np.exp(3 + 0.5 * walk(rng, 4800, 20.0))[:, None] * rng.uniform(0.5, 2, 6)
    day = day * np.exp(0.1 * rng.normal(size=day.shape))
    lamps = np.exp(rng.normal(3, 0.7, (40, 6)))[hours // 120]
    values = np.round(np.where((hours // 60 % 2 == 1)[:, None], lamps, day), 1)
    assert found(values) == []
    values[1230:1650, 3] = values[1230, 3]
    assert found(values) == [("stuck", 3, 1230)]


@pytest.mark.parametrize("seed", [4, 11])
def test_a_reading_that_a_converter_often_repeats_is_no_fault(seed):
    rng = np.random.default_rng(seed)
    shared = 20 * walk(rng, 4000, 100.0)
    columns = [shared + 3 * walk(rng, 4000, 30.0) + rng.normal(0, 0.7, 4000) for _ in range(6)]
    values = np.round(np.column_stack(columns))
    values[(values >= 10) & (values <= 14)] = 12.0
    assert [row for row in found(values) if row[0] == "stuck"] == []


def test_a_night_without_light_is_no_fault():
    rng = np.random.default_rng(0)
    light = np.maximum(np.sin(2 * np.pi * np.arange(600) / 48), 0.0)[:, None]
    values = np.round(500 * light * rng.uniform(0.8, 1.2, (600, 6)))
    assert found(values) == []


def test_a_change_of_unit_is_named_with_its_hour():
    values = table()
    values[400:, 5] = 1.8 * values[400:, 5] + 32
    frame = pd.DataFrame(values, HOURS, [f"room {k}" for k in range(8)])
    told = find_anomalies(frame)
    assert told["kind"].tolist() == ["unit"]
    assert told["words"][0].startswith("room 5 seems to have changed its unit at 2024-05-17T14:00")
    assert told["words"][0].endswith("from °C to °F.")
    assert told["start"][0] == np.datetime64(HOURS[400].tz_convert(None), "us")


def test_other_units_and_the_way_back():
    for factor, offset in ((1.0, 273.15), (1 / 1.8, -32 / 1.8), (10.0, 0.0)):
        values = table(3)
        values[350:, 2] = factor * values[350:, 2] + offset
        assert found(values) == [("unit", 2, 350)]


def test_of_two_series_the_one_that_changed_is_told():
    values = table(0, 2)
    values[300:, 1] = 1.8 * values[300:, 1] + 32
    assert [row[:2] for row in found(values)] == [("unit", 1)]


def test_a_drift_and_a_shift_are_told_apart():
    values = table(1)
    values[300:, 2] += 0.1 * np.arange(300)
    values[300:, 6] += 15.0
    rows = {kind: (s, start) for kind, s, start in found(values)}
    assert set(rows) == {"drift", "shift"}
    assert rows["drift"][0] == 2
    assert abs(rows["drift"][1] - 300) <= 24
    assert rows["shift"] == (6, 300)


def test_dead_sensors_are_silent_or_flat():
    rng = np.random.default_rng(0)
    values = table(2)
    values[400:, 0] = np.nan
    values[450:, 1] = 20.0
    values[380:, 2] = 20.0 + rng.normal(0, 0.001, 220)
    rows = {s: (kind, start) for kind, s, start in found(values)}
    assert rows[0] == ("dead", 399)  # the last reading
    assert rows[1] == ("dead", 450)
    assert rows[2][0] == "dead"
    assert abs(rows[2][1] - 380) <= 3
    assert len(rows) == 3


def test_a_series_alone_that_goes_flat_is_compared_with_no_others():
    values = table(2)[:, :1]
    values[400:, 0] = 20.0 + np.random.default_rng(0).normal(0, 0.001, 200)
    (words,) = find_anomalies(values)["words"]
    assert words == "0 hardly changes any more since 400."


@pytest.mark.parametrize("seed", range(6))
def test_what_goes_flat_is_dated_to_the_hour_in_long_tables(seed):
    rng = np.random.default_rng(seed)
    values, start = table(seed, 6, 9000), int(rng.integers(3000, 6000))
    values[start:, 0] = values[start, 0] + rng.normal(0, 0.03, 9000 - start)
    ((kind, series, when),) = found(values)
    assert (kind, series) == ("dead", 0)
    assert abs(when - start) <= 2


@pytest.mark.parametrize("seed", range(6))
def test_changes_are_dated_in_what_wanders(seed):
    rng = np.random.default_rng(seed)
    x = 10 * walk(rng, 4000, 50.0)
    y = 50 + x + 4 * walk(rng, 4000, 8.0) * np.exp(0.02 * x)
    at, start = np.arange(4000.0), int(rng.integers(1500, 2500))
    drifts = np.where(at >= start, y + 0.15 * (at - start), y)
    place = first_after(Path(at, drifts, x, 0.01), "drift", 1.0, 0.0, start + 60)
    assert abs(place - start) <= 20
    turned = np.where(at >= start, 1.8 * y + 32, y)
    assert first_after(Path(at, turned, x, 0.01), "unit", 1.8, 32.0, start - 100) == start


def test_rows_that_nobody_has_read_yet_make_nobody_dead():
    values = table()
    values[500:] = np.nan
    assert found(values) == []


def test_an_imputer_tells_what_is_odd_in_what_it_learned_from(tmp_path):
    values = table()
    values[100, 1] = 95.0
    frame = pd.DataFrame(values, HOURS)
    imputer = DeviationImputer("linear").fit(frame)
    told = imputer.anomalies()
    direct = find_anomalies(frame)
    assert [column.tolist() for column in told.values()] == [
        column.tolist() if column.dtype.kind != "f" else pytest.approx(column.tolist(), nan_ok=True)
        for column in direct.values()
    ]
    imputer.save(tmp_path / "rooms.nw")
    again = DeviationImputer.load(tmp_path / "rooms.nw").anomalies()
    assert again["words"].tolist() == told["words"].tolist() != []


def test_long_tables_irregular_times_and_names_that_are_hostile():
    values = table()
    values[100, 1] = 95.0
    times = HOURS[np.sort(np.random.default_rng(0).permutation(600)[:500])]
    frame = pd.DataFrame(values, HOURS, [*map(str, range(7)), "{who}{0}<script>\x1b[31m"])
    frame.loc[HOURS[200], frame.columns[7]] = -999.0
    rows = frame.loc[times.union(HOURS[[100, 200]])].rename_axis("when").reset_index()
    rows = rows.melt(id_vars="when", var_name="sensor", value_name="reading")
    told = find_anomalies(rows, time="when", sensor="sensor", value="reading")
    assert told["sensor"].tolist() == ["{who}{0}<script>\x1b[31m", "1"]
    assert told["words"][0].startswith("{who}{0}<script>\x1b[31m read -999 at")


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((50, 2)),
        np.arange(30.0)[:, None],
        np.array([[1.0], [2.0]]),
        1e100 * np.ones((100, 3)),
        np.where(np.eye(120, 3) > 0, 1e100, 1e-200),
        1e-250 * np.arange(300.0).reshape(100, 3),
        np.tile([[0.0, 1.0], [1.0, 0.0]], (100, 1)),
    ],
)
def test_odd_tables_are_judged_without_a_word_of_warning(values):
    find_anomalies(values)


def test_too_little_is_said_to_be_too_little():
    with pytest.raises(DataError, match="at least 2 are needed"):
        find_anomalies(np.array([[1.0], [np.nan]]))
    with pytest.raises(DataError, match="Readings must be at most"):
        find_anomalies(np.array([[1.0], [1e200]]))
    with pytest.raises(
        DataError, match=r"masked in part: leave out what is, or pass X.filled\(np.nan\)"
    ):
        find_anomalies(np.ma.masked_greater([[1.0], [2.0], [9e9]], 5.0))


def test_series_of_a_grid_are_medians_of_their_bins():
    seen = observe([("a", t, float(v)) for t, v in enumerate([1, 2, 90, 3])] + [("b", 3, 5.0)])
    tracks = Tracks.of(seen)
    grid = Grid.of(tracks, np.ones(5, dtype=bool))
    np.testing.assert_array_equal(grid.table[0], [1, 2, 90, 3])
    np.testing.assert_array_equal(grid.table[1], [np.nan] * 3 + [5.0])


def test_one_series_that_is_off_does_not_move_what_others_say():
    values = table().T
    before = next(Others(values).references())
    values[3, 200:] += 500.0
    after = next(Others(values).references())
    assert np.abs(after - before).max() < 1.0


def test_runs_are_long_only_beside_the_habit_of_a_series():
    rng = np.random.default_rng(0)
    rows = [("a", t, float(t // 9 % 7)) for t in range(500)]
    rows += [("b", t, float(v)) for t, v in enumerate(rng.integers(0, 90, 500))]
    rows[500 + 250 : 500 + 262] = [("b", t, 44.5) for t in range(250, 262)]
    tracks = Tracks.of(observe(rows))
    runs = long_runs(tracks, np.ones(1000, dtype=bool))
    assert [(run.series, run.first, run.certain) for run in runs] == [(1, 750, True)]


def test_a_file_is_searched_from_the_command_line(tmp_path, capsys):
    values = table()
    values[100, 1] = 95.0
    values[400:, 5] = 1.8 * values[400:, 5] + 32
    frame = pd.DataFrame(values, HOURS.tz_localize(None), [f"room {k}" for k in range(8)])
    path, odd = tmp_path / "rooms.csv", tmp_path / "odd.csv"
    frame.to_csv(path, index_label="when")
    assert run("anomalies", path, "--out", odd) == 0
    told = capsys.readouterr().out
    assert "1 in another unit, 1 spike in 4,800 readings." in told
    assert "room 1 read 95 at 2024-05-05T04:00, where about" in told
    assert pd.read_csv(odd)["kind"].tolist() == ["unit", "spike"]
    assert run("anomalies", path, "--json", "-") == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["series"] for row in report["found"]] == ["room 5", "room 1"]
    assert report["found"][0]["probability"] is None
    frame.tz_localize("+02:00").to_csv(path, index_label="when")
    assert run("anomalies", path) == 0
    told = capsys.readouterr().out
    assert "room 1 read 95 at 2024-05-05T02:00Z, where about" in told
    assert "spike  2024-05-05T02:00Z" in told
    frame.iloc[:50].to_csv(path, index_label="when")
    assert run("anomalies", path) == 0
    assert "Nothing is odd in 400 readings." in capsys.readouterr().out
