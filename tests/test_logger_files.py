"""Files of loggers and networks are read without an option, or ask for one by name."""

import json
import tracemalloc
import warnings
from datetime import datetime

import logger_files
import numpy as np
import pyarrow as pa
import pytest
from logger_files import DAMP, HEAT, HOURS
from test_cli import run

from noisewise.cli.impute import fill_file
from noisewise.data.gapped import read_gapped
from noisewise.errors import DataError, SettingError

FILES = logger_files.files()
READ = {name: file for name, file in FILES.items() if not file.asks}
ASKING = {name: file for name, file in FILES.items() if file.asks}


def write(tmp_path, file):
    path = tmp_path / f"file{file.suffix}"
    path.write_bytes(file.content)
    return path


def test_there_are_enough_files():
    countries = (
        "germany france italy spain brazil netherlands sweden poland switzerland china japan"
    )
    assert len(FILES) >= 30
    assert all(any(name.startswith(one) for name in FILES) for one in countries.split())


@pytest.mark.parametrize("name", READ)
def test_a_file_is_read_as_it_comes(tmp_path, name):
    file = READ[name]
    gapped = read_gapped(write(tmp_path, file), **file.options)
    table = gapped.table
    when = table.column(gapped.options["time"])
    assert pa.types.is_timestamp(when.type), when.type
    whole = {"heat": HEAT, "damp": DAMP}
    if "value" in gapped.options:
        sensors = table.column(gapped.options["sensor"]).to_pylist()
        assert sensors == [one for one in file.series for _ in range(HOURS)]
        values = table.column(gapped.options["value"]).to_numpy().reshape(2, HOURS)
        when = when[:HOURS]
    else:
        series = [n for n in table.column_names if n != gapped.options["time"]]
        assert len(series) == len(file.series), series
        assert all(a.startswith(b) for a, b in zip(series, file.series, strict=True)), series
        values = [table.column(name).to_numpy() for name in series[:2]]
    for got, expected in zip(values, whole.values(), strict=True):
        np.testing.assert_array_equal(got, np.array(expected, dtype=float))
    stamps = when.to_numpy().astype("M8[s]")
    assert stamps[0] == np.datetime64(file.start)
    assert set(np.diff(stamps).astype(int).tolist()) == {3600}


@pytest.mark.parametrize("name", ASKING)
def test_a_file_in_doubt_asks_for_an_option_in_one_sentence(tmp_path, name):
    file = ASKING[name]
    with pytest.raises(DataError, match="^[^\n]*" + file.asks.replace("'", ".")):
        read_gapped(write(tmp_path, file), **file.options)


@pytest.mark.parametrize("name", READ)
def test_what_is_written_back_differs_in_the_gaps_alone(tmp_path, name):
    file = READ[name]
    path = write(tmp_path, file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gapped = read_gapped(path, **file.options)
    out = tmp_path / f"out{file.suffix}"
    gapped.write(out, gapped.table, gapped.table)
    if "value" not in gapped.options:
        opened = out.read_bytes()
        if len(file.suffix) == 4:  # what is not packed is there to the last byte
            assert opened == file.content
        again = read_gapped(out, **file.options)
        assert again.table.equals(gapped.table) or again.table.num_rows == HOURS


def test_gaps_are_filled_in_the_words_of_the_file(tmp_path):
    file = FILES["germany, Windows"]
    path, out = write(tmp_path, file), tmp_path / "out.csv"
    fill_file(path, out, method="linear")
    before, after = (p.read_bytes().decode("cp1252").splitlines() for p in (path, out))
    changed = [k for k, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
    assert changed == [6, 7, 21]
    assert before[6] == "11.03.2013 05:00;;1.046,00"
    assert after[6].startswith("11.03.2013 05:00;2")
    assert after[6].endswith(";1.046,00")
    assert "," in after[6].split(";")[1]
    std = (tmp_path / "out.std.csv").read_bytes().decode("cp1252").splitlines()
    assert std[0] == before[0]
    assert std[1] == "11.03.2013 00:00;0;0"
    assert float(std[6].split(";")[1].replace(",", ".")) > 0


def test_headers_and_text_of_loggers_come_back(tmp_path):
    for name, above in (("Campbell TOA5", 4), ("Davis WeatherLink", 2), ("UK, AURN", 6)):
        file = FILES[name]
        path, out = write(tmp_path, file), tmp_path / f"out{file.suffix}"
        report = fill_file(path, out, method="linear")
        before, after = (p.read_bytes().decode().splitlines(True) for p in (path, out))
        assert after[:above] == before[:above]
        assert len(after) == len(before)
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 3
        assert report["filled"] == 3
    assert report["left_alone"] == ["status", "unit", "status.1"]


def test_a_long_file_has_its_two_columns_behind_the_last_one(tmp_path):
    file = FILES["InfluxDB"]
    path, out = write(tmp_path, file), tmp_path / "out.csv"
    fill_file(path, out, method="linear")
    before, after = (p.read_text().splitlines() for p in (path, out))
    assert after[:3] == before[:3]
    assert after[3] == before[3] + ",_value_std,_value_imputed"
    assert after[4] == before[4] + ",0,0"
    assert after[9].endswith(",1")
    assert ",," not in after[9].removeprefix(",,")


def test_rows_of_several_places_are_told_apart_by_a_column(tmp_path):
    rows = [
        f"{site};2013-03-{1 + k // 24:02}T{k % 24:02}:00;{lat};{k % 7 if k % 5 else ''};{k % 3}"
        for site, lat in (("A1", 52.5), ("B2", 48.1))
        for k in range(48)
    ]
    path = tmp_path / "places.csv"
    path.write_text("\n".join(["station;time;lat;pm10;no2", *rows]) + "\n")
    gapped = read_gapped(path)
    assert gapped.options == {"time": "time", "location": "station"}
    assert gapped.table.column_names == ["station", "time", "pm10", "no2"]
    assert gapped.left == ["lat"]
    page = tmp_path / "page.html"
    report = fill_file(path, tmp_path / "out.csv", method="ou", page=page)
    assert (report["filled"], report["left"]) == (20, 0)
    path.write_text("time,a,b,x\n1,p,q,1\n1,r,s,2\n2,p,q,3\n2,r,s,\n")
    with pytest.raises(DataError, match=r"each of the columns a, b tells the rows .* location="):
        read_gapped(path)
    assert read_gapped(path, location="b").options["location"] == "b"
    assert read_gapped(path, location=["a", "b"]).table.column("a b").to_pylist()[0] == "p q"


def test_a_code_for_a_missing_reading_is_suspected_and_can_be_named(tmp_path, capsys):
    path = write(tmp_path, FILES["code"])
    with pytest.warns(UserWarning, match=r"'heat' holds -999 2 times.*say missing=-999"):
        read_gapped(path)
    assert run("gaps", path, "--missing", "-999", "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["series"]: row["missing"] for row in found["series"]} == {"heat": 2, "damp": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert run("gaps", path) == 0
    assert "say --missing -999" in capsys.readouterr().err


def test_noise_takes_the_options_of_files(tmp_path, capsys):
    path = write(tmp_path, FILES["germany, Excel"])
    words = ["--decimal", ",", "--date-order", "dmy", "--header", 1, "--ignore", "damp"]
    assert run("noise", path, *words, "--json", "-") == 0
    assert [row["series"] for row in json.loads(capsys.readouterr().out)["series"]] == ["heat"]


def test_an_option_that_is_asked_for_is_named_as_the_command_line_has_it(tmp_path, capsys):
    for name, words in (
        ("days or months", "say --date-order dmy or --date-order mdy."),
        ("thousands or decimals", "say --decimal , or --decimal ."),
        ("two times", "Name it with --time."),
        ("a word", "Say --missing broken, if it stands for a missing reading, or --ignore heat"),
    ):
        assert run("gaps", write(tmp_path, FILES[name])) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("gap", ["", "NA"])
@pytest.mark.parametrize("head", ["heat\n", ""])
def test_a_table_may_have_a_single_column(tmp_path, gap, head):
    entries = [gap if number is None else f"{number:.2f}" for number in HEAT]
    text = head + "\n".join(entries) + "\n\n"
    (tmp_path / "a.csv").write_text(text)
    fill_file(tmp_path / "a.csv", tmp_path / "out.csv", method="linear")
    old, new = (text.split("\n"), (tmp_path / "out.csv").read_text().split("\n"))
    assert len(old) == len(new)
    changed = [k for k, pair in enumerate(zip(old, new, strict=True)) if len(set(pair)) > 1]
    assert changed == [k + bool(head) for k, number in enumerate(HEAT) if number is None]


def test_a_day_that_no_year_has_is_refused(tmp_path):
    rows = "".join(f"2013,{day},20.5\n" for day in (364, 365, 366, 367))
    (tmp_path / "a.csv").write_text("Year,DOY,heat\n" + rows)
    with pytest.raises(DataError, match="a day from 1 to 366"):
        read_gapped(tmp_path / "a.csv")


def test_a_word_that_a_shell_would_take_for_its_own_is_quoted(tmp_path, capsys):
    text = FILES["plain"].content.decode().replace(",,", ",#bad,")
    (tmp_path / "a.csv").write_text(text)
    assert run("impute", tmp_path / "a.csv", "--out", tmp_path / "out.csv") == 2
    assert "Say --missing '#bad'" in capsys.readouterr().err


def test_infinity_in_a_file_warns_of_nothing_but_itself(tmp_path, capsys):
    (tmp_path / "a.csv").write_text(FILES["plain"].content.decode().replace(",,", ",inf,"))
    assert run("impute", tmp_path / "a.csv", "--out", tmp_path / "out.csv") == 2
    assert "invalid value" not in capsys.readouterr().err


def test_decimals_far_below_the_head_are_understood(tmp_path):
    rows = "".join(f"{k};{'0,2' if k == 900 else 0};\n" for k in range(1000))
    path = tmp_path / "rain.csv"
    path.write_text("time;rain;empty\n" + rows)
    assert read_gapped(path).table.column("rain").to_pylist()[900] == 0.2


def test_names_may_lie_about_the_time(tmp_path):
    path = tmp_path / "names.csv"
    rows = "".join(f"{k * 7 % 5},2013-03-0{k + 1} 00:00,{k}\n" for k in range(5))
    path.write_text("time,when it was,date\n" + rows)
    gapped = read_gapped(path)
    assert gapped.options == {"time": "when it was"}
    assert gapped.table.column_names == ["when it was", "time", "date"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("time,a\n2013-01-01,1\n,2\n", {}, "line 3: column 'time' has no time"),
        ("time,a\n2013-01-01,1\nlater,2\n", {}, "line 3: column 'time' must hold times"),
        ("when,a\n2013-01-01,1\nlater,2\n", {}, "line 3: column 'when' must hold times"),
        ("time,a\n2013-01-01T00Z,1\n2013-01-02,2\n", {}, "line 2: column 'time' must hold|mixes"),
        ("time,a\n2013-01-01,1\ntotal\n2013-01-02,2\n", {}, "line 3: found 1 fields, expected 2"),
        ("time,a\n1,x\n2,y\n", {}, "No column holds readings"),
        ("time,a\n1,1\n2,2\n", {"header": 9}, "line 9 cannot have the names"),
        ("time,a\n1,1\n2,2\n", {"encoding": "no such"}, "encoding must be one that Python knows"),
        ("time,a\n1,1\n2,2\n", {"encoding": "zlib"}, "encoding must be one that Python knows"),
        ("time,ä\n1,1\n2,2\n", {"encoding": "ascii"}, "line 1 is not ascii text"),
        ("time,a\n1,1\n2,2\n", {"decimal": ";"}, "decimal must be"),
        ("time,a\n1,1\n2,2\n", {"date_order": "dym"}, "date_order must be one of dmy, mdy, ymd"),
        ("time,a\n1,1\n2,2\n", {"ignore": "b"}, "ignore must be one of the columns time, a"),
        ("time,a\n1,1\n2,2\n", {"colour": "b"}, "has no option 'colour'"),
        ("PK\x03\x04", {}, "looks like a zip archive"),
        ('time,a\n1,"1\n2,2\n', {}, "is a quote left open"),
    ],
)
def test_what_cannot_be_understood_is_a_sentence(tmp_path, text, options, message):
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises((DataError, SettingError), match=message):
        read_gapped(path, **options)


@pytest.mark.parametrize(
    ("head", "form"),
    [
        ("year,month", "%Y,%m"),
        ("Jahr,Monat", "%Y,%-m"),
        ("yr,mo,dy,hr,mn", "%Y,%m,%d,%H,%M"),
        ("YYYYMM", "%Y%m"),
        ("month", "%Y%m"),
        ("date", "%Y%j"),
        ("date", "%d%m%Y"),
        ("when it was", "%Y%m%d"),
    ],
)
def test_months_and_days_may_be_numbers(tmp_path, head, form):
    path = tmp_path / "months.csv"
    when = [datetime(2019 + k // 12, 1 + k % 12, 1) for k in range(30)]
    rows = [f"{one.strftime(form)},{k % 7}.5" for k, one in enumerate(when)]
    path.write_text("\n".join([f"{head},heat", *rows]) + "\n")
    named = {"time": head} if head == "when it was" else {}
    gapped = read_gapped(path, date_order="dmy" if form == "%d%m%Y" else None, **named)
    assert gapped.table.column_names == [gapped.options["time"], "heat"]
    assert gapped.table.column(0).to_pylist() == when


def test_files_that_cannot_be_read_say_what_to_do(tmp_path):
    for name, message in (("a.xlsx", "Save the sheet as CSV"), ("a.csv.zst", "zstd -d")):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(DataError, match=message):
            read_gapped(tmp_path / name)
    for suffix in ("bz2", "xz", "gz"):
        path = tmp_path / f"cut.csv.{suffix}"
        path.write_bytes(FILES[{"bz2": "bzip2", "xz": "xz", "gz": "gzip"}[suffix]].content[:-20])
        with pytest.raises(DataError, match="damaged or cut off"):
            read_gapped(path)
        path.write_bytes(b"no " + path.read_bytes())
        with pytest.raises(DataError, match="damaged or cut off"):
            read_gapped(path)


def peak_of(path):
    tracemalloc.start()
    try:
        read_gapped(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_with_the_numbers_and_not_with_the_text(tmp_path):
    peaks, series = [], 12
    for rows in (3000, 9000):
        path = tmp_path / f"{rows}.csv"
        times = (np.datetime64("2013-01-01T00:00") + np.arange(rows)).astype(str).tolist()
        values = ",".join(f"{k}.125" for k in range(series))
        lines = [f"{time},{values},a remark that nobody needs" for time in times]
        names = ",".join(f"s{k}" for k in range(series))
        path.write_text("\n".join([f"time,{names},note", *lines]))
        peaks.append(peak_of(path))
    # A number has 8 bytes, and a time some hundred; a field of text, as an object, 50 or more.
    assert peaks[1] - peaks[0] < 6000 * (16 * series + 300)
