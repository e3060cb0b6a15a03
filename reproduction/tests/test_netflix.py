"""The Netflix Prize in its own files: combined, one per movie, and those that hold no stars."""

import numpy as np
import pytest
from noisewise_reproduction.datasets import netflix

from noisewise.data.files import read
from noisewise.errors import DataError

FIRST = "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n885013,4,2005-10-19\n"
SECOND = "2:\n822109,1,1999-12-31\n2649429,2,2004-02-29\n"
CELLS = [(1488844, 1), (822109, 1), (885013, 1), (822109, 2), (2649429, 2)]
STARS = [3.0, 5.0, 4.0, 1.0, 2.0]
DATES = ["2005-09-06", "2005-05-13", "2005-10-19", "1999-12-31", "2004-02-29"]

LAYOUTS = {
    "one combined file": {"combined_data_1.txt": FIRST + SECOND},
    "several combined files": {"combined_data_1.txt": FIRST, "combined_data_2.txt": SECOND},
    "a file per movie": {"mv_0000001.txt": FIRST, "mv_0000002.txt": SECOND},
    "the folder above": {
        "training_set/mv_0000001.txt": FIRST,
        "training_set/mv_0000002.txt": SECOND,
        "probe.txt": "1:\n1488844\n",
        "qualifying.txt": "1:\n1046323,2005-12-19\n",
        "movie_titles.txt": "1,2003,Dinosaur Planet\n",
    },
    "a file from Windows": {"combined_data_1.txt": (FIRST + SECOND).replace("\n", "\r\n")},
    "no line end at the end": {"combined_data_1.txt": (FIRST + SECOND)[:-1]},
    "a movie that nobody rated": {"combined_data_1.txt": FIRST + "3:\n" + SECOND + "4:\n"},
}


@pytest.fixture
def folder(tmp_path):
    """Write files below a folder, and return it."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text.encode())
        return tmp_path

    return write


@pytest.mark.parametrize("files", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_gives_the_same_ratings(folder, files):
    place = folder(files)
    for seen in (read(place), netflix.read(place)):
        assert seen.decode() == CELLS
        assert seen.values.tolist() == STARS
        assert seen.names == ("user", "item")
        assert seen.time is None


@pytest.mark.parametrize("files", LAYOUTS.values(), ids=LAYOUTS)
def test_dates_are_read_when_asked_for(folder, files):
    seen = read(folder(files), time="date")
    assert seen.time.astype("datetime64[s]").astype("datetime64[D]").astype(str).tolist() == DATES


def test_a_single_file_is_read_by_its_first_line(folder):
    place = folder({"combined_data_3.txt": FIRST, "mine.txt": SECOND})
    assert read(place / "combined_data_3.txt").decode() == CELLS[:3]
    assert read(place / "mine.txt").decode() == CELLS[3:]


def test_ids_are_numbered_in_their_own_order_and_take_twelve_bytes(folder):
    seen = read(folder({"combined_data_1.txt": SECOND + FIRST}))
    assert seen.ids[0].labels.tolist() == [822109, 885013, 1488844, 2649429]
    assert seen.ids[1].labels.tolist() == [1, 2]
    assert seen.decode() == CELLS[3:] + CELLS[:3]
    assert seen.nbytes == 12 * len(seen)


@pytest.mark.parametrize("size", [30, 31, 64, 1000])
def test_a_file_is_cut_into_chunks_between_lines(folder, monkeypatch, size):
    monkeypatch.setattr(netflix, "_CHUNK", size)
    rng = np.random.default_rng(0)
    cells = [(int(user), movie) for movie in range(1, 9) for user in rng.permutation(500)[:40] + 1]
    lines = []
    for k, (user, movie) in enumerate(cells):
        lines += [f"{movie}:\n"] if k % 40 == 0 else []
        lines += [f"{user},{1 + user % 5},2001-01-{1 + k % 28:02}\n"]
    seen = read(folder({"combined_data_1.txt": "".join(lines)}))
    assert seen.decode() == cells
    assert seen.values.tolist() == [1.0 + user % 5 for user, _ in cells]


def test_every_day_of_a_leap_year_is_its_own(folder):
    days = np.arange("2004-01-01", "2005-01-01", dtype="datetime64[D]")
    lines = "".join(f"{k},5,{day}\n" for k, day in enumerate(days.astype(str), 1))
    seen = read(folder({"combined_data_1.txt": "7:\n" + lines}), time=3)
    assert (seen.time == days.astype(np.int64) * 86_400).all()


@pytest.mark.parametrize(
    "text", ["1:\n5,3,2005-09-06\n6,3,2005-09-06\n5,4,2005-09-07\n", "1:\n5,3,2005-09-06\n"
             "2:\n6,3,2005-09-06\n1:\n5,4,2005-09-07\n"], ids=["in a row", "movie named twice"]
)  # fmt: skip
def test_a_cell_that_is_there_twice_is_settled(folder, text):
    place = folder({"combined_data_1.txt": text})
    with pytest.raises(DataError, match=r"1 cell is given more than once, e\.g\. \(5, 1\)"):
        read(place)
    last = read(place, duplicates="last")
    assert sorted(zip(last.decode(), last.values.tolist(), strict=True))[0] == ((5, 1), 4.0)
    assert 3.5 in read(place, duplicates="mean").values


RATING = "is neither a movie"
BAD = {
    "an id that is none": ("1:\nann,3,2005-09-06\n", "line 2: 'ann,3,2005-09-06' " + RATING),
    "too large an id": ("1:\n16777216,3,2005-09-06\n", "line 2: '16777216,3,2005-09-06' " + RATING),
    "no stars between commas": ("1:\n5,,2005-09-06\n", "line 2: '5,,2005-09-06' " + RATING),
    "stars out of range": ("1:\n5,3,2005-09-06\n6,6,2005-09-06\n", "line 3: '6,6,2005-09-06'"),
    "half a star": ("1:\n5,3.5,2005-09-06\n", "line 2: '5,3.5,2005-09-06'"),
    "a day that never was": ("1:\n5,3,2005-02-29\n", "line 2: '5,3,2005-02-29'"),
    "a month that never was": ("1:\n5,3,2005-13-01\n", "line 2: '5,3,2005-13-01'"),
    "a year before 1970": ("1:\n5,3,1969-12-31\n", "line 2: '5,3,1969-12-31'"),
    "letters in a date": ("1:\n5,3,2005-0a-01\n", "line 2: '5,3,2005-0a-01'"),
    "text behind a rating": ("1:\n5,3,2005-09-06,x\n", "line 2: '5,3,2005-09-06,x'"),
    "text behind a movie": ("1:\n2:x\n", "line 2: '2:x'"),
    "an empty line": ("1:\n\n5,3,2005-09-06\n", "line 2: '' " + RATING),
    "a line that is cut off": ("1:\n5,3,2005-09-06\n6,4,2005-", "line 3: '6,4,2005-'"),
    "a probe file": ("1:\n30878\n", "line 2: '30878' is a user without stars, as in probe.txt"),
    "a qualifying file": ("1:\n1046323,2005-12-19\n", "as in qualifying.txt, whose ratings were"),
    "no rating at all": ("1:\n2:\n", "got 0 rows"),
    "a single rating": ("1:\n5,3,2005-09-06\n", "single observation"),
}


@pytest.mark.parametrize(("text", "sentence"), BAD.values(), ids=BAD)
def test_a_bad_file_gets_its_own_error(folder, text, sentence):
    path = folder({"combined_data_1.txt": text}) / "combined_data_1.txt"
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).count(str(path)) == 1
    assert sentence in str(caught.value)


def test_a_bad_line_is_counted_over_chunks(folder, monkeypatch):
    monkeypatch.setattr(netflix, "_CHUNK", 100)
    lines = "".join(f"{k},3,2005-09-06\n" for k in range(1, 500))
    with pytest.raises(DataError, match="line 501: 'x' is neither"):
        read(folder({"combined_data_1.txt": f"1:\n{lines}x\n"}))


def test_a_long_file_without_line_ends_is_refused(folder, monkeypatch):
    monkeypatch.setattr(netflix, "_CHUNK", 100)
    with pytest.raises(DataError, match=r"line 2: '9{60}' is neither"):
        netflix.read(folder({"combined_data_1.txt": "1:\n" + "9" * 1000}))


def test_other_files_and_folders_are_refused(folder):
    place = folder({"combined_data_1.txt": FIRST, "other/mv_1.txt": "5,3,2005-09-06\n"})
    with pytest.raises(DataError, match="line 1: expected a movie, such as '1:'"):
        netflix.read(place / "other")
    (place / "empty").mkdir()
    with pytest.raises(DataError, match=r"expected combined_data_\*\.txt or mv_\*\.txt in it"):
        netflix.read(place / "empty")
    with pytest.raises(DataError, match="no column 'when'; the columns are user, item, rating"):
        read(place, time="when")
