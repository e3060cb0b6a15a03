"""Files that are broken, or made to break what reads them: one sentence, and little memory."""

import contextlib
import gzip
import io
import json
import tracemalloc
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noisewise.cli.impute import fill_file
from noisewise.data import Ids
from noisewise.data.files import read, read_cells
from noisewise.data.gapped import read_gapped
from noisewise.data.reader import SETTING
from noisewise.errors import DataError, SettingError, listed
from noisewise.evaluation.records import read_results
from noisewise.evaluation.tuning import best_settings, read_tuned

USERS, ITEMS = Ids.encode([1, 2], "user")[0], Ids.encode(["a", "b"], "item")[0]
RATINGS = {"user": np.array([0, 1]), "item": np.array([1, 0]), "rating": np.array([3.0, 4.0])}


def memory_of(call):
    """Return the most bytes that a call took, and the error it ended with."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            call()
        return tracemalloc.get_traced_memory()[1], str(caught.value)
    finally:
        tracemalloc.stop()


def npz(path, arrays):
    np.savez(path, **arrays)
    return path


def forged_npz(path, header, content=b"", name="user"):
    """Write ratings of which one array has a header of its own."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in RATINGS.items():
            packed = io.BytesIO()
            np.save(packed, array)
            archive.writestr(f"{key}.npy", packed.getvalue() if key != name else header + content)
    return path


def npy_header(descr, shape):
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize("text", ["1_0", "١٢", "0x10", "1e400", "NaN", "1,5", "--3"])
def test_only_plain_numbers_are_values(tmp_path, text):
    path = tmp_path / "t.tsv"
    path.write_text(f"user\titem\trating\nann\tAlien\t{text}\nbob\tAlien\t2\n")
    with pytest.raises(DataError, match=r"line 2: rating .* is not"):
        read(path)


@pytest.mark.parametrize("text", ["1e30", "-1e300", "9007199254740994", "1_000", "inf"])
def test_only_times_that_numbers_can_tell_apart_are_read(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(f"user,item,rating,time\nann,Alien,1,{text}\nbob,Alien,2,978300760\n")
    with pytest.raises(DataError, match=r"line 2: time .* is (more than|neither)"):
        read(path, time="time")


@pytest.mark.parametrize("time", [np.array([1, 2**64 - 1], np.uint64), np.array([1.0, 1e30])])
def test_times_of_arrays_do_not_wrap(tmp_path, time):
    with pytest.raises(DataError, match=r"Row 1 of time is .*, more than 2\*\*53 seconds"):
        read(npz(tmp_path / "r.npz", RATINGS | {"time": time}), time="time")


def test_readings_and_times_with_underscores_are_no_numbers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("time,hall,attic\n1,1_0,2\n2,3,4\n")
    with pytest.raises(DataError, match="line 2: column 'hall' must hold a number"):
        read_gapped(path)


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_field_that_is_too_long_is_a_sentence(tmp_path, quote):
    path = tmp_path / "cells.csv"
    path.write_text(f'user,item\n1,a\n{quote}{"x" * 140_000}{quote},"b"\n')
    with pytest.raises(DataError, match=r"cells\.csv: line 3: field larger than field limit"):
        read_cells(path, [USERS, ITEMS])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cells.csv", "user,item\n1,a\n7,b\n"),
        ("cells.csv", "user;item\n1;a\n7;b\n"),
        ("cells.csv", "\ufeffuser, item\r\n1, a\r\n7, b\r\n"),
        ("cells.csv", '"user","item"\n"1"," a"\n7,"b"\n'),
        ("cells.csv", "item,other,user\na,,1\n\nb,,7\n"),
        ("cells.csv", "movieId,userId\na,1\nb,7\n"),
        ("cells.csv", "1,a,4,978300760\n7,b,3,978300760\n"),
        ("cells.dat", "1::a\n7::b\n"),
        ("cells.tsv", "user\titem\n1\ta\n7\tb\n"),
        ("cells", "user;item\n1;a\n7;b\n"),
        ("cells.csv.gz", "user;item\n1;a\n7;b\n"),
    ],
)
def test_cells_are_read_in_every_dialect_that_observations_are(tmp_path, name, content):
    path = tmp_path / name
    encoded = content.encode()
    path.write_bytes(gzip.compress(encoded) if name.endswith("gz") else encoded)
    columns, seconds = read_cells(path, [USERS, ITEMS])
    assert columns == [[1, 7], ["a", "b"]]
    assert seconds is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("user,item\n1,a\n,b\n", "line 3: user '' is empty"),
        ("user,item\n1,a\n1\n", "line 3: found 1 fields, expected 2"),
        ("user,item,when\n1,a,noon\n", "line 2: when 'noon' is neither"),
        ("user,item,when\n1,a,1e30\n", "line 2: when '1e30' is more than"),
        ('user,item\n1,"a\n', "is a quote left open"),
        ("", "The file is empty: it has 0 bytes"),
        ("only\n1\n", "2 id columns"),
    ],
)
def test_cells_that_cannot_be_read_are_a_sentence(tmp_path, content, message):
    path = tmp_path / "cells.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_cells(path, [USERS, ITEMS], "when")


def test_an_id_of_thousands_of_digits_is_unknown_and_no_error(tmp_path):
    path = tmp_path / "cells.csv"
    path.write_text(f"user,item\n{'9' * 5000},a\n")
    assert read_cells(path, [USERS, ITEMS])[0][0] == ["9" * 5000]


def test_broken_parquet_is_a_sentence_for_every_reader(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"user": [1, 2], "item": ["a", "b"], "value": [1.0, 2.0]}), path)
    whole = path.read_bytes()
    for content in (b"PAR1", whole[:-9], whole[:40] + whole[60:], b"PAR1" + bytes(400) + b"PAR1"):
        path.write_bytes(content)
        for reader in (read, read_gapped, lambda path: read_cells(path, [USERS, ITEMS])):
            with pytest.raises(DataError, match="Parquet file is damaged"):
                reader(path)


def test_text_and_dates_of_parquet_are_checked(tmp_path):
    path = tmp_path / "t.parquet"
    latin = pa.array([b"a\xff", b"b"]).view(pa.string())
    pq.write_table(pa.table({"user": [1, 2], "item": latin, "value": [1.0, 2.0]}), path)
    with pytest.raises(DataError, match="Parquet file is damaged"):
        read(path)
    late = pa.array([2**31 - 1, 0], pa.int32()).view(pa.date32())
    pq.write_table(pa.table({"user": [1, 2], "item": late, "value": [1.0, 2.0]}), path)
    with pytest.raises(DataError, match="Parquet file is damaged"):
        read(path)


@pytest.mark.parametrize("repeated", ["x" * 100_000, 7])
def test_a_small_parquet_that_unpacks_to_much_is_refused_before(tmp_path, repeated):
    path = tmp_path / "t.parquet"
    n = 5_000 if isinstance(repeated, str) else 10_000_000
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([repeated]))
    column = column if isinstance(repeated, str) else pa.array(np.full(n, repeated))
    pq.write_table(pa.table({"user": column, "item": column, "value": np.ones(n)}), path)
    assert path.stat().st_size < 300_000
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(DataError, match="NOISEWISE_MAX_UNPACKED"):
        read(path)
    assert pa.default_memory_pool().max_memory() - before < 2**27


def test_lengths_of_time_are_ids(tmp_path):
    seen = read(npz(tmp_path / "r.npz", RATINGS | {"user": np.array([1, 2], "m8[D]")}))
    assert seen.ids[0].labels.tolist() == [np.timedelta64(1, "D"), np.timedelta64(2, "D")]


def test_integers_that_floats_cannot_tell_apart_are_readings(tmp_path):
    path = tmp_path / "t.parquet"
    hall = pa.array([2**53 + 1, None, 2**62, 5])
    pq.write_table(pa.table({"time": [1, 2, 3, 4], "hall": hall}), path)
    fill_file(path, tmp_path / "out.parquet", method="linear")
    assert pq.read_table(tmp_path / "out.parquet")["hall"].to_pylist()[1] > 2**53


def test_a_scale_that_is_no_number_is_a_sentence(tmp_path):
    for scale in (np.array("half"), np.ones(3)):
        with pytest.raises(DataError, match="rating_scale must be a single number"):
            read(npz(tmp_path / "r.npz", RATINGS | {"rating_scale": scale}))
    text = RATINGS | {"rating": np.array(["a", "b"]), "rating_scale": np.array(0.5)}
    with pytest.raises(DataError, match="'rating' must hold numbers"):
        read(npz(tmp_path / "r.npz", text))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\x93NUMPY\x01\x00",
        b"\x93NUMPY\x03\x00\x10\x00\x00\x00" + b"{" * 16,
        b"\x93NUMPY\x01\x00\xff\x00" + b"(" * 255,
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 20_000,
        npy_header("<i8", (10**12,)),
        npy_header("<i8", (-2,)),
        npy_header("<U0", (10**12,)),
        npy_header("<U250000000", (2,)),
        npy_header("|O", (2,)),
        npy_header([("a", "<i8")], (2,)),
        npy_header("nonsense", (2,)),
        npy_header("<i8", "'ab'"),
    ],
)
def test_a_forged_header_of_an_array_is_a_sentence_and_takes_no_memory(tmp_path, header):
    path = forged_npz(tmp_path / "r.npz", header, bytes(16))
    taken, message = memory_of(lambda: read(path))
    assert "'user' cannot be read" in message
    assert taken < 2**22


def test_a_small_npz_that_unpacks_to_much_is_refused_before(tmp_path, monkeypatch):
    n = 2**23 + 1
    path = forged_npz(tmp_path / "r.npz", npy_header("<i8", (n,)), bytes(8 * n))
    assert path.stat().st_size < 100_000
    taken, message = memory_of(lambda: read(path))
    assert "set NOISEWISE_MAX_UNPACKED to more" in message
    assert taken < 2**22
    monkeypatch.setenv(SETTING, str(10 * n))
    with pytest.raises(DataError, match="need one common length"):
        read(path)
    monkeypatch.setenv(SETTING, "much")
    with pytest.raises(SettingError, match="must be a number of bytes"):
        read(path)


PARTS = {
    "a line without end": b"\0" * 2**20,
    "rows": b"1,1,5\n" * 2**17,
    "fields": b"1," * 2**19,
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
@pytest.mark.parametrize("reader", [read, read_gapped])
def test_a_small_gzip_that_unpacks_to_much_is_refused_before(tmp_path, part, reader):
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wb") as file:
        file.write(b"user,item,rating\n")
        for _ in range(120):
            file.write(part)
    assert path.stat().st_size < 500_000
    taken, message = memory_of(lambda: reader(path))
    assert "set NOISEWISE_MAX_UNPACKED to more" in message
    assert taken < 2**24


def test_what_a_gzip_says_of_its_size_is_not_believed(tmp_path, monkeypatch):
    monkeypatch.setenv(SETTING, "100000")
    path = tmp_path / "t.csv.gz"
    rows = b"".join(b"%d,%d,5\n" % divmod(k, 100) for k in range(20_000))
    path.write_bytes(gzip.compress(b"user,item,rating\n" + rows)[:-4] + bytes(4))
    with pytest.raises(DataError, match=r"unpacks to 1\d\d,\d+ bytes or more"):
        read(path)


@pytest.mark.parametrize("reader", [read, read_gapped])
def test_a_line_without_end_is_refused(tmp_path, reader):
    path = tmp_path / "t.csv"
    path.write_bytes(b"user,item,rating\n" + b"1" * 2**25)
    taken, message = memory_of(lambda: reader(path))
    assert "a line of more than 16,777,216 bytes" in message
    assert taken < 2**27


def test_a_table_of_millions_of_columns_is_refused_by_a_short_message(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",".join(map(str, range(200_000))) + "\n")
    for reader in (read, read_gapped):
        with pytest.raises(DataError, match="found 200,000 columns") as caught:
            reader(path)
        assert len(str(caught.value)) < 1000


def test_messages_name_some_columns_and_count_the_rest(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{k}" for k in range(5_000)) + "\n")
    with pytest.raises(DataError, match="At most 32 columns can be ids; got 4,999") as caught:
        read(path)
    assert "and 4,979 more" in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert listed(["a" * 1000]) == "a" * 60 + "..."


def test_netcdf_that_is_broken_or_too_large_is_a_sentence(tmp_path):
    xarray = pytest.importorskip("xarray")
    path = tmp_path / "t.nc"
    hours = np.arange(24.0)
    whole = xarray.Dataset({"heat": ("time", hours)}, {"time": hours})
    whole.to_netcdf(path)
    content = path.read_bytes()
    for k in range(0, len(content), 61):
        path.write_bytes(content[:k] + bytes([content[k] ^ 0xFF]) + content[k + 1 :])
        with contextlib.suppress(DataError):
            read_gapped(path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="cannot be read as NetCDF"):
        read_gapped(path)
    path = tmp_path / "large.nc"
    large = xarray.Dataset({"heat": (("time", "place"), np.zeros((1000, 10_000)))})
    large.to_netcdf(path, encoding={"heat": {"zlib": True, "complevel": 9}})
    assert path.stat().st_size < 2**19
    with pytest.raises(DataError, match="NOISEWISE_MAX_UNPACKED"):
        read_gapped(path)


RESULT = {
    "model": "dmf", "settings": {}, "protocol": "paper", "data": {},
    "splits": [{"seed": 0, "rmse": 0.9}],
}  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [
        [], 7, {}, [RESULT, None],
        RESULT | {"splits": [{"seed": []}]},
        RESULT | {"splits": [{"seed": 0, "rmse": "low"}]},
        RESULT | {"splits": [{"seed": 10**400}]},
        RESULT | {"model": {}},
        RESULT | {"protocol": {"kind": 3}},
        RESULT | {"protocol": {"kind": "cells", "share": None}},
        RESULT | {"settings": []},
        RESULT | {"mean": 3},
    ],
)  # fmt: skip
def test_broken_results_are_a_sentence(tmp_path, content):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"r\.json"):
        read_results(path)
    path.write_text(json.dumps(RESULT))
    assert read_results(path) == [RESULT]


def test_brackets_without_end_are_no_json(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("[" * 200_000)
    for reader in (read_results, read_tuned):
        with pytest.raises(DataError, match="as JSON"):
            reader(path)


@pytest.mark.parametrize(
    "change",
    [
        {"metric": []},
        {"task": {}},
        {"models": {"dmf": {"fixed": {}, "ranges": {}, "trials": [{"settings": {}}]}}},
        {"models": {"dmf": {"fixed": {}, "ranges": {},
                            "trials": [{"settings": {}, "seconds": 1, "rmse": "low"}]}}},
        {"models": {"dmf": {"fixed": {}, "ranges": {},
                            "trials": [{"settings": {}, "seconds": 1, "rmse": 10**400}]}}},
    ],
)  # fmt: skip
def test_broken_trials_are_a_sentence(tmp_path, change):
    whole = {
        "tuning": 1, "task": {"kind": "ratings"}, "method": "random", "seed": 0, "metric": "rmse",
        "models": {},
    }  # fmt: skip
    path = tmp_path / "t.json"
    path.write_text(json.dumps(whole | change))
    with pytest.raises(DataError, match=r"t\.json is damaged"):
        best_settings(path)
