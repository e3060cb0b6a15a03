"""What is missing is said: by series, the longest gaps, blackouts; in Python and from files."""

import json

import numpy as np
import pandas as pd
import pytest
from test_cli import run

from noisewise import GapReport, gap_report

HOURS = pd.date_range("2024-05-01", periods=48, freq="h")


def frame():
    """Hall misses hours 3 and 4, attic 4 to 9, cellar the last ten; hours 20 to 22 have no row."""
    table = pd.DataFrame({name: np.arange(48.0) for name in ("hall", "attic", "cellar")}, HOURS)
    table.loc[HOURS[3:5], "hall"] = np.nan
    table.loc[HOURS[4:10], "attic"] = np.nan
    table.loc[HOURS[38:], "cellar"] = np.nan
    table.loc[HOURS[30]] = np.nan
    return table.drop(HOURS[20:23])


def test_a_report_counts_what_every_series_lacks():
    report = gap_report(frame())
    assert isinstance(report, GapReport)
    assert (report.n_series, report.n_times, report.step, report.lacking) == (3, 45, 3600.0, 3)
    series = pd.DataFrame(report.series).set_index("series")
    assert series["missing"].to_dict() == {"cellar": 11, "attic": 7, "hall": 3}
    assert series["gaps"].to_dict() == {"cellar": 2, "attic": 2, "hall": 2}
    assert series.loc["attic", "longest"] == 7 * 3600.0
    assert series.loc["cellar", "last"] == HOURS[37].to_datetime64()
    assert report.share == pytest.approx(21 / 135)


def test_gaps_and_blackouts_come_longest_first():
    report = gap_report(frame())
    gaps = pd.DataFrame(report.gaps)
    assert gaps.loc[0, ["series", "missing", "lasts"]].tolist() == ["cellar", 10, 10 * 3600.0]
    assert gaps.loc[0, "start"] == HOURS[38]
    assert gaps.loc[0, "end"] == HOURS[47]
    assert gaps["lasts"].is_monotonic_decreasing
    blackouts = pd.DataFrame(report.blackouts)
    assert blackouts["lasts"].tolist() == [4 * 3600.0, 2 * 3600.0]
    assert blackouts["missing"].tolist() == [0, 1]
    assert blackouts.loc[1, "start"] == HOURS[30]


def test_rows_that_a_long_table_lacks_are_missing():
    long = frame().rename_axis("time").reset_index().melt("time", var_name="sensor").dropna()
    long["site"] = "house"
    report = gap_report(long, time="time", value="value", location="site", sensor="sensor")
    wide = gap_report(frame())
    # The hour in which nothing was read is in no row at all.
    assert report.n_times == wide.n_times - 1
    assert report.lacking == wide.lacking + 1
    assert report.n_readings == wide.n_readings
    assert report.blackouts["lasts"].tolist() == [4 * 3600.0, 2 * 3600.0]


def test_blackouts_of_a_location_are_told_from_those_of_all():
    columns = pd.MultiIndex.from_product([["hall", "attic"], ["heat", "light"]])
    table = pd.DataFrame(np.ones((48, 4)), HOURS, columns.set_names(["location", "sensor"]))
    table.loc[HOURS[5:8], "attic"] = np.nan
    table.loc[HOURS[9], ("hall", "heat")] = np.nan
    blackouts = pd.DataFrame(gap_report(table).blackouts)
    assert blackouts["location"].tolist() == ["attic"]
    assert blackouts["missing"].tolist() == [3]


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_tables_without_gaps_and_without_readings_have_a_report(rows):
    whole = gap_report(np.ones((rows, 2)))
    assert (whole.share, len(whole.gaps), len(whole.blackouts)) == (0.0, 0, 0)
    empty = gap_report(np.full((rows, 2), np.nan))
    assert (empty.share, empty.n_readings) == (1.0, 0)
    assert empty.series["missing"].tolist() == [rows, rows]
    assert empty.series["first"].tolist() == [None, None]
    assert empty.blackouts["missing"].tolist() == [rows]


def test_the_command_line_shows_what_a_file_lacks(tmp_path, capsys):
    path = tmp_path / "readings.csv"
    frame().rename_axis("time").assign(note="ok").to_csv(path)
    assert run("gaps", path) == 0
    shown = capsys.readouterr().out
    assert "3 series at 45 times, mostly 1 h apart: 21 of 135 readings are missing" in shown
    assert "3 more times have no row" in shown
    assert "10 h" in shown
    assert "2024-05-02T14:00" in shown
    assert run("gaps", path, "-n", 1, "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["left_alone"] == ["note"]
    assert [row["series"] for row in found["series"]] == ["cellar"]
    assert found["gaps"][0]["start"] == "2024-05-02T14:00"
    assert found["blackouts"][0]["location"] is None
    frame().rename_axis("time").tz_localize("+02:00").to_csv(path)
    assert run("gaps", path) == 0
    assert "2024-05-02T12:00Z" in capsys.readouterr().out


def test_the_command_line_takes_the_options_of_impute(tmp_path, capsys):
    path = tmp_path / "readings.csv"
    text = frame().rename_axis("when").to_csv(sep=";", decimal=",", na_rep="-999")
    path.write_text("Logger 7\n\n" + text)
    words = ["--missing", "-999", "--decimal", ",", "--ignore", "hall"]
    assert run("gaps", path, *words) == 0
    assert "2 series at 45 times" in capsys.readouterr().out
