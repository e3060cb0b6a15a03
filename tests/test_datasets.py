import gzip
import importlib
import io
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noisewise.data import observe
from noisewise.data.files import read
from noisewise.errors import DataError, MissingExtraError

DATA = os.environ.get("NOISEWISE_DATA")
needs_data = pytest.mark.skipif(
    not DATA, reason="set NOISEWISE_DATA to a folder with ml1m.npz and its siblings to run this"
)

RATINGS = "1,1193,5,978300760\n1,661,3,978302109\n2,1193,4.5,978298413\n"
HEADER = "userId,movieId,rating,timestamp\n"
CELLS = [(1, 1193), (1, 661), (2, 1193)]


@pytest.fixture
def write(tmp_path):
    """Write a file and return its path."""

    def write_file(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ratings.csv", HEADER + RATINGS),
        ("ratings.csv", RATINGS),
        ("ratings.csv", HEADER.lower() + RATINGS),
        ("ratings.dat", RATINGS.replace(",", "::")),
        ("u.data", RATINGS.replace(",", "\t").replace("4.5", "4")),
        ("other.dat", RATINGS.replace(",", "::")),
        ("other.data", RATINGS.replace(",", "\t")),
        ("other.txt", RATINGS.replace(",", ";")),
        ("other.tsv", (HEADER + RATINGS).replace(",", "\t")),
        ("other.CSV", (HEADER + RATINGS).replace(",", ";")),
        ("windows.csv", "\ufeff" + (HEADER + RATINGS).replace("\n", "\r\n")),
        ("oldmac.csv", (HEADER + RATINGS).replace("\n", "\r")),
        ("blanks.csv", (HEADER + RATINGS).replace(",", " , ").replace("1 ,", " 1,", 1)),
        ("gaps.csv", (HEADER + RATINGS).replace("\n", "\n\n")),
        ("endless.csv", (HEADER + RATINGS).rstrip()),
        ("quoted.csv", re.sub(r"([^,\n]+)", r'"\1"', HEADER + RATINGS)),
        ("packed.csv.gz", gzip.compress((HEADER + RATINGS).encode())),
        ("ratings.dat.gz", gzip.compress(RATINGS.replace(",", "::").encode())),
    ],
    ids=[
        "MovieLens ratings.csv",
        "no header",
        "a header in small letters",
        "MovieLens ratings.dat",
        "MovieLens u.data",
        "double colons under another name",
        "tabs under another name",
        "semicolons without a header",
        "tsv",
        "semicolons under a name in capitals",
        "a file from Windows",
        "a file with carriage returns",
        "blanks around fields",
        "empty lines",
        "no line end at the end",
        "quotes around every field",
        "gzip",
        "MovieLens in gzip",
    ],
)
def test_every_layout_of_text_gives_the_same_observations(write, name, content):
    seen = read(write(name, content))
    assert seen.decode() == CELLS
    assert seen.values.tolist() == [5.0, 3.0, 4.0 if name == "u.data" else 4.5]
    assert seen.ids[0].labels.dtype == np.int64
    assert seen.time is None


@pytest.mark.parametrize("name", ["u.data", "ratings.dat", "ratings.csv"])
def test_a_movielens_folder_is_read_whatever_its_layout(write, name):
    delimiter = {"u.data": "\t", "ratings.dat": "::", "ratings.csv": ","}[name]
    content = RATINGS.replace("4.5", "4").replace(",", delimiter)
    path = write("ml/" + name, (HEADER if name == "ratings.csv" else "") + content)
    write("ml/README", "see grouplens.org")
    for source in (path.parent, str(path), path):
        seen = read(source, time="timestamp")
        assert seen.decode() == CELLS
        assert seen.time.tolist() == [978300760, 978302109, 978298413]


def test_columns_are_chosen_by_name_or_position(write):
    path = write("t.csv", "day,site,level,kind\n1,A,0.5,x\n2,A,0.7,y\n")
    by_name = read(path, ids=["site", "kind", "day"], value="level")
    assert by_name.names == ("site", "kind", "day")
    assert by_name.decode() == [("A", "x", 1), ("A", "y", 2)]
    assert read(path, ids=[1, 3, 0], value=2).decode() == by_name.decode()
    assert read(path, value="level").names == ("day", "site", "kind")
    assert read(path, ids=["site", "kind", "day"]).values.tolist() == by_name.values.tolist()


def test_columns_without_usual_names_are_ids_and_then_the_value(write):
    seen = read(write("t.csv", "site,species,day,level\nA,x,1,0.5\nA,y,1,0.7\n"))
    assert seen.names == ("site", "species", "day")
    assert seen.values.tolist() == [np.float32(0.5), np.float32(0.7)]


def test_positions_choose_columns_of_a_file_without_names(write):
    seen = read(write("t.csv", "9,A,x,0.5,1\n9,A,y,0.7,2\n"), ids=[1, 2], value=3, time=4)
    assert seen.decode() == [("A", "x"), ("A", "y")]
    assert seen.time.tolist() == [1, 2]


def test_ids_are_integers_only_if_all_are_written_as_such(write):
    seen = read(write("t.csv", "user,item,rating\n7,07,1\n-8,8,2\n0,99999999999999999999,3\n"))
    assert seen.decode() == [(7, "07"), (-8, "8"), (0, "99999999999999999999")]


def test_text_and_frames_number_ids_alike(write):
    path = write("t.csv", "user,item,rating\n30,b,1\n-4,a,2\n9,b,3\n")
    text, frame = read(path), observe(pd.read_csv(path))
    assert text.ids == frame.ids
    assert [a.tolist() for a in text.codes] == [a.tolist() for a in frame.codes]


def test_quoted_fields_may_hold_delimiters_quotes_and_line_ends(write):
    content = 'user,item,rating\nann,"Alien, ""directed""",5\nbob,"two\nlines",3\n'
    assert read(write("t.csv", content)).decode() == [
        ("ann", 'Alien, "directed"'),
        ("bob", "two\nlines"),
    ]


def test_times_in_text_are_numbers_or_iso_dates(write):
    path = write("t.csv", "user,item,rating,date\n1,2,3,1970-01-02\n1,3,4,1970-01-01T01:00+01:00\n")
    assert read(path, time="date").time.tolist() == [86400, 0]
    path = write("t.csv", "user,item,rating,date\n1,2,3,0.5\n1,3,4,2\n")
    assert read(path, time=3).time.tolist() == [0.5, 2.0]


def test_a_long_file_is_read_in_blocks(write):
    cells = [(k // 100, k % 100) for k in range(10_000)]
    seen = read(write("t.tsv", "".join(f"{user}\t{item}\t{user / 2}\n" for user, item in cells)))
    assert seen.decode() == cells
    assert seen.values.tolist() == [user / 2 for user, _ in cells]
    assert seen.nbytes == 12 * len(cells)


def test_a_quoted_field_may_reach_from_block_to_block(write):
    long = "\n".join(map(str, range(9_000)))
    content = "".join(f"{k},x,1\n" for k in range(3_000)) + f'"{long}",y,2\nlast,y,?\n'
    with pytest.raises(DataError, match=r"line 12002: rating '\?'"):
        read(write("t.csv", NAMES + content))
    seen = read(write("t.csv", NAMES + content.replace("?", "3")))
    assert seen.decode()[-2:] == [(long, "y"), ("last", "y")]


FIELDS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(FIELDS, FIELDS), min_size=2, max_size=9, unique=True))
def test_any_text_that_pandas_writes_is_read(tmp_path, cells):
    cells = list(dict.fromkeys((a.strip() or "x", b.strip() or "x") for a, b in cells))
    if len(cells) < 2:
        return
    frame = pd.DataFrame(cells, columns=["user", "item"]).assign(rating=1.5)
    frame.to_csv(tmp_path / "t.csv", index=False, lineterminator="\n")
    assert [tuple(map(str, cell)) for cell in read(tmp_path / "t.csv").decode()] == cells


def test_parquet_is_read_as_the_frame_it_was(tmp_path):
    path = tmp_path / "t.parquet"
    frame = pl.DataFrame(
        {
            "junk": [0, 0, 0],
            "timestamp": [3, 1, 2],
            "movieId": ["a", "b", "a"],
            "userId": [7, 7, 9],
            "rating": [1.0, 2.5, 4.0],
        }
    )
    frame.write_parquet(path)
    seen = read(path, ids=["userId", "movieId"], time="timestamp")
    assert seen.names == ("userId", "movieId")
    assert seen.decode() == [(7, "a"), (7, "b"), (9, "a")]
    assert seen.values.tolist() == [1.0, 2.5, 4.0]
    assert seen.time.tolist() == [3, 1, 2]


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [1, 2]}).write_parquet(path)
    real = importlib.__import__

    def without_pyarrow(name, *args, **kwargs):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr("builtins.__import__", without_pyarrow)
    with pytest.raises(MissingExtraError, match=r"noisewise\[parquet\]"):
        read(path)


def test_npz_of_ratings_gives_original_ids_and_stars(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(
        path,
        user=np.array([0, 2, 2], np.uint8),
        item=np.array([1, 0, 1], np.uint8),
        rating=np.array([9, 1, 10], np.uint8),
        rating_scale=0.5,
        user_id=np.array([11, 12, 5]),
        item_id=np.array(["x", "y"]),
        timestamp=np.array([30, 20, 10]),
    )
    seen = read(path, time="timestamp")
    assert seen.decode() == [(11, "y"), (5, "x"), (5, "y")]
    assert seen.values.tolist() == [4.5, 0.5, 5.0]
    assert seen.time.tolist() == [30, 20, 10]
    assert seen.shape == (2, 2)
    assert seen.names == ("user", "item")


def test_npz_of_sensors_has_three_modes(tmp_path):
    path = tmp_path / "t.npz"
    arrays = {
        "loc": np.array([0, 1]),
        "sensor": np.array([1, 0]),
        "time": np.array([0, 3], np.uint16),
        "value": np.array([0.5, -9.0]),
        "sensor_name": np.array(["light", "heat"]),
    }
    np.savez(path, **arrays, mote_id=np.array([4, 7], np.int16), epoch0=100)
    assert read(path).names == ("location", "sensor", "time")
    assert read(path).decode() == [(4, "heat", 100), (7, "light", 103)]
    np.savez(path, **arrays, site_code=np.array(["BG1", "BL0"]))
    assert read(path).decode() == [("BG1", "heat", 0), ("BL0", "light", 3)]


def test_npz_of_other_arrays_is_read_by_name(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, a=[5, 6], b=["x", "y"], c=[1.0, 2.0], d=np.ones((3, 3)))
    assert read(path, ids=["a", "b"], value="c").decode() == [(5, "x"), (6, "y")]


def test_duplicates_in_a_file_are_settled(write):
    path = write("t.csv", "user,item,rating\n1,1,4\n1,2,3\n1,1,5\n")
    assert read(path, duplicates="last").values.tolist() == [3.0, 5.0]
    assert read(path, duplicates="mean").values.tolist() == [4.5, 3.0]


def test_format_overrules_the_name(write):
    assert len(read(write("ratings.download", HEADER + RATINGS), format="csv")) == 3


def npz(**arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def parquet(**columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


SMALL = {"user": [0, 1], "item": [0, 1], "rating": [1, 2]}
TABLE = parquet(**SMALL)
ARCHIVE = npz(**SMALL)
NAMES = "user,item,rating\n"
GZIPPED = gzip.compress((NAMES + "".join(f"{k},1,5\n" for k in range(99_999))).encode())

BAD_FILES = {
    "text for a number": ("t.csv", NAMES + "a,x,5\nb,x,n/a\n", {}, ["line 3: rating 'n/a' is not"]),
    "an empty value": ("t.csv", NAMES + "a,x,\n", {}, ["line 2: rating '' is not a number"]),
    "NaN for a number": ("t.csv", NAMES + "a,x,nan\n", {}, ["line 2: rating 'nan' is not finite"]),
    "too large a number": ("t.csv", NAMES + "a,x,1e39\n", {}, ["line 2: rating '1e39'", "float32"]),
    "an empty id": ("t.csv", NAMES + "a,x,5\na,,4\n", {}, ["line 3: item '' is empty", "remove"]),
    "a blank id": ("t.csv", NAMES + "a,x,5\na, ,4\n", {}, ["line 3: item ' ' is empty"]),
    "too few fields": ("t.csv", NAMES + "a,x,5\nb,x\n", {}, ["line 3: found 2", "user, item, rat"]),
    "too many fields": ("t.csv", NAMES + "a,x,5,6\n", {}, ["line 2: found 4 fields, expected 3"]),
    "short lines that add up": ("t.csv", NAMES + "a\nb\na,b,3\n", {}, ["line 2: found 1 fields"]),
    "an error below quoted line ends": (
        "t.csv",
        NAMES + '"a\nb\nc",x,5\nb,x,?\n',
        {},
        ["line 5: rating '?'"],
    ),
    "an error below empty lines": ("t.csv", NAMES + "a,x,5\n\n\nb,x,?\n", {}, ["line 5: rating"]),
    "a quote left open": ("t.csv", NAMES + 'a,x,5\n"b,x,5\nc,x,5\n', {}, ["line 3:", "quote left"]),
    "a quote left open in the header": (
        "t.csv",
        '"user,item\n',
        {},
        ["line 1:", "quote left open"],
    ),
    "text behind a quote": ("t.csv", NAMES + 'a,x,5\n"b"c,x,5\n', {}, ["line 3:", "quote"]),
    "double colons and too few": ("t.dat", "1::2::3\n1::3\n", {}, ["line 2: found 2 fields"]),
    "a NUL byte": ("t.csv", NAMES + "a,x,5\n" * 200 + "a\0b,x,5\n", {}, ["line 202", "NUL byte"]),
    "text in Latin 1": (
        "t.csv",
        (NAMES + "ann,x,5\nJosé,x,4\n").encode("latin1"),
        {},
        ["line 3", "not UTF-8", "iconv"],
    ),
    "text in UTF-16": ("t.csv", NAMES.encode("utf-16"), {}, ["looks like UTF-16"]),
    "no delimiter": ("t.tsv", NAMES, {}, ["line 1: found no '\\t'", "'user,item,rating\\n'"]),
    "nothing below the header": ("t.csv", NAMES, {}, ["empty", "0 rows"]),
    "nothing at all": ("t.csv", "", {}, ["empty", "0 bytes"]),
    "one cell in two lines": (
        "t.csv",
        NAMES + "7,x,5\n\n8,x,5\n7,x,3\n",
        {},
        ["1 cell is given more than once, e.g. (7, 'x') in lines 2 and 5; pass duplicates='last'"],
    ),
    "a column that is not there": (
        "t.csv",
        NAMES + "a,x,5\n",
        {"value": "stars"},
        ["no column 'stars'; the columns are user, item, rating"],
    ),
    "a position that is not there": ("t.csv", RATINGS, {"ids": [0, 1], "value": 4}, ["column 4"]),
    "a time column that is not there": ("t.csv", NAMES, {"time": "when"}, ["no column 'when'"]),
    "a column that is there twice": (
        "t.csv",
        "user,item,item,rating\n",
        {"ids": ["user", "item"], "value": "rating"},
        ["2 columns 'item'", "position"],
    ),
    "the value among the ids": (
        "t.csv",
        NAMES,
        {"ids": ["user", "rating"], "value": "rating"},
        ["another one for the value"],
    ),
    "one id column": ("t.csv", "user,rating\n1,2\n", {}, ["Two or more id columns", "ids user"]),
    "columns that may mean anything": (
        "t.csv",
        "user,item,mood,rating\n",
        {},
        ["Which of the columns user, item, mood, rating", "ids="],
    ),
    "a time that may be a mode": ("t.csv", "user,item,time,rating\n", {}, ["Which of the columns"]),
    "a value amid unknown columns": ("t.csv", "a,b,score,c\n", {}, ["Which of", "value="]),
    "two values": ("t.csv", "user,item,rating,score\n", {}, ["Which of the columns"]),
    "ids but several values": ("t.csv", "a,b,c,d\n", {"ids": ["a", "b"]}, ["Which of the columns"]),
    "five columns without names": ("t.csv", "1,2,3,4,5\n", {}, ["no column names and 5", "ids=[0"]),
    "four columns, none of them a time": ("t.csv", "1,2,3,4\n", {}, ["no column names and 4"]),
    "a time that is none": (
        "t.csv",
        "user,item,rating,date\n1,2,3,2024-01-01\n1,3,3,noon\n",
        {"time": "date"},
        ["line 3: date 'noon' is neither unix seconds nor an ISO date"],
    ),
    "an infinite time": ("ratings.csv", HEADER + "1,2,3,inf\n", {"time": 3}, ["timestamp 'inf'"]),
    "Parquet named csv": ("t.csv", TABLE, {}, ["Expected text", "looks like Parquet", "rename"]),
    "npz named csv": ("t.csv", ARCHIVE, {}, ["Expected text", "zip archive"]),
    "gzip named csv": ("t.csv", GZIPPED, {}, ["Expected text", "gzip"]),
    "text named gz": ("t.csv.gz", NAMES, {}, ["Expected a gzip file", "looks like text"]),
    "text named npz": ("t.npz", NAMES, {}, ["Expected a zip archive", "looks like text"]),
    "text named Parquet": ("t.parquet", NAMES, {}, ["Expected Parquet", "looks like text"]),
    "a web page named csv": ("t.csv", "<!DOCTYPE html>", {}, ["looks like a web page"]),
    "bytes named csv": ("t.csv", b"\1\2\0\3", {}, ["looks like binary data"]),
    "a name that says nothing": ("t.xyz", NAMES, {}, ["does not tell the format", "format="]),
    "gzip that is cut off": ("t.csv.gz", GZIPPED[:-4000], {}, ["line ", "cut off", "new copy"]),
    "gzip that is damaged": (
        "t.csv.gz",
        GZIPPED[:500] + b"\xff" * 500 + GZIPPED[1000:],
        {},
        ["line ", "damaged"],
    ),
    "Parquet that is cut off": ("t.parquet", TABLE[:-20], {}, ["Parquet file is damaged"]),
    "Parquet with text values": (
        "t.parquet",
        parquet(user=[1, 2], item=[1, 2], rating=["5", "4"]),
        {},
        ["Row 0 of column 'rating' is '5', not a number"],
    ),
    "Parquet with a missing id": (
        "t.parquet",
        parquet(user=[1, None], item=[1, 2], rating=[5, 4]),
        {},
        ["Row 1 of column 'user' has no id"],
    ),
    "Parquet without the column": ("t.parquet", TABLE, {"value": "x"}, ["no column 'x'", "rating"]),
    "npz that is cut off": ("t.npz", ARCHIVE[:-30], {}, ["npz file is damaged"]),
    "npz that is damaged inside": (
        "t.npz",
        ARCHIVE.replace(ARCHIVE[60:120], b"\x00" * 60, 1),
        {},
        ["'user' cannot be read"],
    ),
    "npz with objects": (
        "t.npz",
        npz(user=np.array([{}, 1], dtype=object), item=[0, 1], rating=[1, 2]),
        {},
        ["'user' cannot be read"],
    ),
    "npz of other arrays": ("t.npz", npz(a=[1], b=[2]), {}, ["arrays a, b", "ids= and value="]),
    "npz with half of the names": ("t.npz", npz(a=[1], b=[2]), {"value": "a"}, ["name both ids="]),
    "npz without the array": (
        "t.npz",
        ARCHIVE,
        {"time": "when"},
        ["no array 'when'; the arrays are user, item, rating"],
    ),
    "npz of different lengths": (
        "t.npz",
        npz(user=[0, 1], item=[0, 1], rating=[1]),
        {},
        ["common length; got user 2, item 2, rating 1"],
    ),
    "npz with a position beyond the ids": (
        "t.npz",
        npz(**SMALL, user_id=[7]),
        {},
        ["user has position 1; user_id has 1 ids"],
    ),
    "npz with a matrix": ("t.npz", npz(user=[[1]], item=[1], rating=[1]), {}, ["one dimension"]),
    "npz with NaN": (
        "t.npz",
        npz(user=[0, 1], item=[0, 1], rating=[1, np.nan]),
        {},
        ["Row 1 of rating is NaN"],
    ),
}


@pytest.mark.parametrize(
    ("name", "content", "options", "parts"), BAD_FILES.values(), ids=BAD_FILES.keys()
)
def test_a_bad_file_gets_its_own_error(write, name, content, options, parts):
    path = write(name, content)
    with pytest.raises(DataError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.count(str(path)) == 1
    for part in parts:
        assert part in message


@pytest.mark.parametrize("quote", ["", '"'], ids=["plain", "with a quote above"])
def test_a_file_that_breaks_in_line_900000_says_so(write, quote):
    lines = [NAMES, f"{quote}0{quote},1,5\n", *(f"{k},1,5\n" for k in range(1, 899_998))]
    path = write("t.csv", "".join([*lines, "ann,1,five\n", "1,2,3\n"]))
    with pytest.raises(DataError, match=r"line 900000: rating 'five' is not a number"):
        read(path)


def test_a_file_that_is_not_there_is_the_usual_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        read(tmp_path / "nowhere.csv")


def test_an_unknown_format_is_an_error(write):
    with pytest.raises(ValueError, match="csv, tsv, text, parquet, npz; got 'xls'"):
        read(write("t.xls", NAMES), format="xls")


def test_a_folder_needs_one_file_of_movielens(write):
    folder = write("ml/movies.dat", "x").parent
    with pytest.raises(DataError, match=r"ratings\.csv in it; found none"):
        read(folder)
    write("ml/u.data", "x")
    write("ml/ratings.dat", "x")
    with pytest.raises(DataError, match=r"found ratings\.dat and u\.data"):
        read(folder)


def test_a_file_is_of_movielens_by_its_name_and_its_first_line(write):
    line = "1::1193::5::978300760\n2::1193::4::978300761\n"
    assert len(read(write("ratings.dat", line), time="timestamp").time) == 2
    assert len(read(write("films.dat", line), time="time").time) == 2
    other = read(write("ratings.dat", "ann::Alien::5\nbob::Alien::3\n"))
    assert other.decode() == [("ann", "Alien"), ("bob", "Alien")]
    with pytest.raises(DataError, match="no column 'timestamp'"):
        read(write("films.dat", line), time="timestamp")


@needs_data
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ml1m", "Observations(1,000,209 of 6,040 user x 3,706 item)"),
        ("ml100k", "Observations(100,000 of 943 user x 1,682 item)"),
    ],
)
def test_real_data_has_the_published_counts(name, expected):
    seen = read(Path(DATA) / f"{name}.npz")
    assert repr(seen) == expected
    assert seen.nbytes <= (4 + 4 * seen.n_modes) * len(seen)


@needs_data
def test_real_ratings_survive_the_way_through_ratings_dat(tmp_path):
    stored = read(Path(DATA) / "ml1m.npz", time="timestamp")
    rows = zip(stored.decode(), stored.values.tolist(), stored.time.tolist(), strict=True)
    lines = (f"{user}::{item}::{stars:g}::{time}\n" for (user, item), stars, time in rows)
    (tmp_path / "ratings.dat").write_text("".join(lines))
    text = read(tmp_path, time="timestamp")
    assert text.ids == stored.ids
    assert all(np.array_equal(a, b) for a, b in zip(text.codes, stored.codes, strict=True))
    assert np.array_equal(text.values, stored.values)
    assert np.array_equal(text.time, stored.time)
