"""A file with gaps becomes a file without, and a page that finds the bad sensors."""

import csv
import datetime
import json
import re

import numpy as np
import pytest
from test_cli import run
from test_report import Elements

from noisewise.cli.impute import fill_file
from noisewise.errors import DataError, SettingError

PLACES, STEPS = 5, 120


def readings(seed=0):
    """Place, sensor, time and reading; heat in room 3 scatters, a day of room 1 is gone."""
    rng = np.random.default_rng(seed)
    day = np.sin(2 * np.pi * np.arange(STEPS) / 24)
    start = datetime.datetime(2024, 3, 1)
    rows = []
    for place in range(PLACES):
        for kind, unit in (("heat", 1.0), ("light", 100.0)):
            y = unit * (5 + day + rng.normal(0, 0.05 + 0.6 * ((place, kind) == (3, "heat")), STEPS))
            gone = rng.random(STEPS) < 0.1
            gone[40:64] |= place == 1
            rows += [
                [
                    f"room {place}",
                    kind,
                    (start + datetime.timedelta(hours=k)).isoformat(),
                    "" if gone[k] else f"{y[k]:.3f}",
                ]
                for k in range(STEPS)
            ]
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filling")
    rows = readings()
    _write(folder / "long.csv", ["site", "sensor", "time", "value"], rows)
    _write(
        folder / "lacking.csv", ["site", "sensor", "time", "value"], [row for row in rows if row[3]]
    )
    columns = list(dict.fromkeys(f"{row[0]}/{row[1]}" for row in rows))
    table = {}
    for place, kind, time, value in rows:
        table.setdefault(time, {})[f"{place}/{kind}"] = value
    wide = [[time, *(cells[name] for name in columns)] for time, cells in table.items()]
    _write(folder / "wide.csv", ["time", *columns], wide)
    return folder


def _write(path, head, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_gaps_are_filled_and_readings_stay(folder):
    report = fill_file(folder / "long.csv", folder / "out.csv", method="ou")
    before, after = rows_of(folder / "long.csv"), rows_of(folder / "out.csv")
    assert report["filled"] == sum(row["value"] == "" for row in before)
    assert report["left"] == 0
    for old, new in zip(before, after, strict=True):
        assert new["value"] == old["value"] or old["value"] == ""
        assert (
            (float(new["value_std"]) > 0) == (old["value"] == "") == (new["value_imputed"] == "1")
        )


def test_long_and_wide_files_are_filled_alike(folder):
    for name, options in (("long", {}), ("wide", {"separator": "/"})):
        fill_file(folder / f"{name}.csv", folder / f"{name}-out.csv", method="linear", **options)
    wide = {row["time"]: row for row in rows_of(folder / "wide-out.csv")}
    std = {row["time"]: row for row in rows_of(folder / "wide-out.std.csv")}
    for row in rows_of(folder / "long-out.csv"):
        name = f"{row['site']}/{row['sensor']}"
        assert float(wide[row["time"]][name]) == pytest.approx(float(row["value"]), rel=1e-6)
        assert float(std[row["time"]][name]) == pytest.approx(float(row["value_std"]), rel=1e-5)


def test_the_same_seed_gives_the_same_files(folder):
    for name in ("a", "b"):
        fill_file(
            folder / "long.csv",
            folder / f"{name}.csv",
            method="fast",
            page=folder / f"{name}.html",
            seed=3,
        )
    for suffix in ("csv", "html"):
        assert (folder / f"a.{suffix}").read_bytes() == (folder / f"b.{suffix}").read_bytes()


def charts(html):
    """Return what the script of a page is told of its series."""
    return json.loads(re.search(r'id="series-data">(.*?)</script>', html).group(1))["series"]


def test_the_page_has_the_longest_gaps_and_the_sensor_that_scatters_first(folder):
    page = folder / "page.html"
    fill_file(folder / "long.csv", folder / "out.csv", method="linear", page=page, most=4)
    html = page.read_text()
    drawn = charts(html)
    assert len(drawn) == 4
    gaps = [one["g"] for one in drawn]
    assert gaps == sorted(gaps, reverse=True)
    assert "6 series with shorter gaps are left out" in html
    noisy = re.search("Which sensors are noisy.*?<tbody>(.*?)</tbody>", html, re.DOTALL).group(1)
    assert noisy.split("</th>")[0].endswith(">room 3 heat")


def test_the_page_says_how_the_method_was_chosen(folder):
    page = folder / "auto.html"
    settings = {"candidates": ("linear", "ou")}
    report = fill_file(folder / "long.csv", folder / "out.csv", settings=settings, page=page)
    assert f"filled by &#x27;{report['chosen']}&#x27;" in page.read_text()
    assert {"error", "over the best"} <= set(Elements(page.read_text()).texts)


def test_columns_of_a_wide_table_without_types_are_compared_with_each_other(folder):
    page = folder / "wide.html"
    fill_file(folder / "wide.csv", folder / "out.csv", method="linear", page=page)
    noisiest = max(charts(page.read_text()), key=lambda one: one["z"])
    assert noisiest["n"] == "room 3/heat"


def test_rows_that_are_lacking_are_added_if_asked_for(folder):
    with pytest.raises(DataError, match="has no gap to fill: all of"):
        fill_file(folder / "lacking.csv", folder / "out.csv", method="linear")
    report = fill_file(folder / "lacking.csv", folder / "out.csv", method="linear", complete=True)
    assert report["filled"] > 100
    cells = {(row["site"], row["sensor"], row["time"]) for row in rows_of(folder / "out.csv")}
    assert len(cells) == len(rows_of(folder / "out.csv"))


def test_a_sensor_whose_type_was_never_read_stays_empty_and_is_counted(folder):
    rows = [*readings(), *(["room 0", "dust", row[2], ""] for row in readings()[:STEPS])]
    _write(folder / "dust.csv", ["site", "sensor", "time", "value"], rows)
    page = folder / "dust.html"
    with pytest.warns(UserWarning, match="dust"):
        report = fill_file(folder / "dust.csv", folder / "out.csv", method="linear", page=page)
    assert report["left"] == STEPS
    assert f"{STEPS} could not be filled" in page.read_text()
    assert rows_of(folder / "out.csv")[-1]["value"] == ""


def test_what_cannot_work_is_refused_before_the_work(folder):
    for out, page, message in (
        ("long.csv", None, "is kept as it is: write to another file"),
        ("out.parquet", None, "has the format of"),
        ("none/out.csv", None, "There is no folder"),
        ("out.csv", folder / "none" / "page.html", "There is no folder"),
    ):
        with pytest.raises(SettingError, match=message):
            fill_file(folder / "long.csv", folder / out, method="linear", page=page)


def test_impute_says_what_it_did(folder, capsys):
    out, page, report = folder / "cli.csv", folder / "cli.html", folder / "cli.json"
    words = ["--out", out, "--method", "linear", "--page", page, "--json", report]
    assert run("impute", folder / "long.csv", *words) == 0
    told = capsys.readouterr()
    assert "missing readings were filled by 'linear'" in told.out
    assert f"The result is in {out}." in told.out
    assert f"Look at {page}." in told.out
    assert "Filling" in told.err
    assert json.loads(report.read_text())["written"] == [str(out)]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing.csv", "--out", "{out}"], "There is no file missing.csv"),
        (["{long}", "--out", "{out}", "--method", "magic"], "must be one of"),
        (["{long}", "--out", "{out}", "--time", "when"], "time must be one of the columns"),
        (["{long}", "--out", "{out}", "--set", "rnk=3", "--method", "ou"], "no setting 'rnk'"),
        (["{wide}", "--out", "{out}", "--complete"], "complete does nothing for a wide table"),
        (["{long}", "--out", "{out}", "--page", "{out}", "--most", "0"], "1 series or more"),
    ],
)
def test_an_error_of_impute_is_one_sentence_and_status_two(folder, capsys, words, sentence):
    places = {"long": folder / "long.csv", "wide": folder / "wide.csv", "out": folder / "e.csv"}
    assert run("impute", *(word.format(**places) for word in words)) == 2
    shown = capsys.readouterr().err
    assert sentence in shown
    assert "Traceback" not in shown
