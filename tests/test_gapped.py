"""Files with gaps: every layout is read, and written back with nothing changed but the gaps."""

import csv
import gzip
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from noisewise.data.gapped import beside, lacking, read_gapped
from noisewise.errors import DataError, MissingExtraError, SettingError
from noisewise.imputer import DeviationImputer

LONG = """site,kind,time,value,note
hall,heat,2024-05-01,20.50,ok
hall,heat,2024-05-02,,gone
hall,heat,2024-05-03,21.10,ok
attic,heat,2024-05-01,NA,gone
attic,heat,2024-05-02,15,"so, so"
attic,heat,2024-05-03,16.0,ok
"""
WIDE = """time;hall/heat;attic/heat;hall/light
1;20.50;15;100
2;;15.5;nan
3;21.1;;120
4;21.0;16;130
"""


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def fill(gapped, out):
    """Fill every gap with 7, std 0.5."""
    table = gapped.table

    def constant(number, elsewhere):
        columns = {}
        for name in table.column_names:
            column = table.column(name)
            if pa.types.is_floating(column.type) and name != gapped.options["time"]:
                hole = column.is_null(nan_is_null=True).to_numpy()
                other = column.to_numpy() if elsewhere is None else elsewhere
                column = pa.chunked_array([np.where(hole, number, other)])
            columns[name] = column
        return pa.table(columns)

    return gapped.write(out, constant(7.0, None), constant(0.5, 0.0))


def rows_of(path, delimiter=","):
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return list(csv.reader(text.splitlines(), delimiter=delimiter))


def test_a_long_table_keeps_every_letter_but_those_of_the_gaps(tmp_path):
    path = written(tmp_path, "long.csv", LONG)
    gapped = read_gapped(path, sensor="kind")
    assert gapped.options == {
        "value": "value", "time": "time", "location": "site", "sensor": "kind",
    }  # fmt: skip
    assert fill(gapped, tmp_path / "out.csv") == [tmp_path / "out.csv"]
    before, after = rows_of(path), rows_of(tmp_path / "out.csv")
    assert after[0] == [*before[0], "value_std", "value_imputed"]
    holes = {2, 4}
    for row in range(1, len(before)):
        if row in holes:
            assert after[row][3:] == ["7", before[row][4], "0.5", "1"]
        else:
            assert after[row] == [*before[row], "0", "0"]


def test_a_wide_table_has_a_second_one_for_its_stds(tmp_path):
    path = written(tmp_path, "wide.csv", WIDE)
    gapped = read_gapped(path, separator="/")
    assert gapped.options["location"]("hall/light") == "hall"
    assert gapped.options["sensor"]("hall/light") == "light"
    files = fill(gapped, tmp_path / "out.csv")
    assert [file.name for file in files] == ["out.csv", "out.std.csv"]
    before, after, std = (rows_of(file, ";") for file in (path, *files))
    assert after[0] == std[0] == before[0]
    assert after[2] == ["2", "7", "15.5", "7"]
    assert after[1] == before[1]
    assert std[2] == ["2", "0.5", "0", "0.5"]
    assert [row[0] for row in std] == [row[0] for row in before]


def test_the_imputer_takes_what_is_read_of_either_layout(tmp_path):
    for name, text, options in (("a.csv", LONG, {"sensor": "kind"}), ("b.csv", WIDE, {})):
        gapped = read_gapped(written(tmp_path, name, text), **options)
        imputer = DeviationImputer("linear", **gapped.options)
        filled, std = imputer.fit_transform(gapped.table, return_std=True)
        for file in gapped.write(tmp_path / f"out-{name}", filled, std):
            assert all(entry not in ("", "NA", "nan") for row in rows_of(file) for entry in row)


def test_parquet_keeps_its_types_and_the_index_of_pandas(tmp_path):
    import pandas as pd

    frame = pd.DataFrame(
        {"hall": [1.0, np.nan, 3.0], "attic": np.array([4, 5, 6], dtype=np.int16)},
        index=pd.date_range("2024-05-01", periods=3, name="time"),
    )
    frame.to_parquet(tmp_path / "wide.parquet")
    gapped = read_gapped(tmp_path / "wide.parquet")
    filled, std = DeviationImputer("linear", **gapped.options).fit_transform(
        gapped.table, return_std=True
    )
    files = gapped.write(tmp_path / "out.parquet", filled, std)
    again = pd.read_parquet(files[0])
    assert again["hall"].tolist() == [1.0, 2.0, 3.0]
    assert again["attic"].dtype == np.int16
    assert again.index.name == "time"
    assert (again.index == frame.index).all()
    assert parquet.read_table(files[1]).column("hall").to_pylist()[0] == 0.0


@pytest.mark.parametrize("kind", ["Int64", "boolean", "Float32", "float32"])
def test_pandas_reads_what_was_filled_in_columns_of_its_own_types(tmp_path, kind):
    import pandas as pd

    hall = pd.array([1, None, 0, 1], dtype=kind) if kind != "float32" else [1, np.nan, 0, 1]
    frame = pd.DataFrame({"hall": hall, "attic": pd.array([4, 5, 6, 7], dtype="Int16")})
    frame.astype({"hall": kind}).to_parquet(tmp_path / "a.parquet")
    gapped = read_gapped(tmp_path / "a.parquet")
    filled = DeviationImputer("linear", **gapped.options).fit_transform(gapped.table)
    files = gapped.write(tmp_path / "out.parquet", filled, filled)
    again = pd.read_parquet(files[0])
    assert again["hall"].tolist() == pytest.approx([1.0, 0.5, 0.0, 1.0])
    assert again["attic"].dtype == "Int16"
    assert pd.read_parquet(files[1])["hall"].tolist() == again["hall"].tolist()
    for pandas in (b"no json", b"[]", b'{"columns": 3}', b'{"columns": [{"field_name": []}]}'):
        forged = gapped.table.replace_schema_metadata({b"pandas": pandas})
        parquet.write_table(forged, tmp_path / "forged.parquet")
        read = read_gapped(tmp_path / "forged.parquet")
        assert read.write(tmp_path / "out.parquet", filled, filled)


def test_compressed_text_stays_compressed(tmp_path):
    path = tmp_path / "long.csv.gz"
    path.write_bytes(gzip.compress(LONG.encode()))
    fill(read_gapped(path, sensor="kind"), tmp_path / "out.csv.gz")
    assert rows_of(tmp_path / "out.csv.gz")[2][3] == "7"
    assert (tmp_path / "out.csv.gz").read_bytes()[4:8] == bytes(4)  # no date: always the same bits


def test_rows_that_a_series_lacks_are_added_between_its_first_and_its_last(tmp_path):
    lines = LONG.splitlines(keepends=True)
    path = written(tmp_path, "long.csv", "".join(lines[:2] + lines[3:4] + lines[5:]))
    gapped = read_gapped(path, sensor="kind", complete=True)
    fill(gapped, tmp_path / "out.csv")
    after = rows_of(tmp_path / "out.csv")
    # The hall lacks its second day; the attic begins on it, so that its first is no gap.
    assert after[5:] == [["hall", "heat", "2024-05-02", "7", "", "0.5", "1"]]


def test_rows_are_added_to_parquet_too(tmp_path):
    table = pa.table(
        {"time": [1, 3, 1, 2, 3], "site": list("aabbb"), "value": [1.0, 2, 3, 4, 5], "x": [1] * 5}
    )
    parquet.write_table(table, tmp_path / "long.parquet")
    gapped = read_gapped(tmp_path / "long.parquet", complete=True)
    assert gapped.table.column("time").to_pylist()[-1] == 2
    assert gapped.table.column("value").to_pylist()[-1] is None
    fill(gapped, tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet").to_pylist()[-1] == {
        "time": 2, "site": "a", "value": 7.0, "x": None, "value_std": 0.5, "value_imputed": 1,
    }  # fmt: skip


def test_nothing_is_lacking_where_every_cell_is_there():
    like, at = lacking([np.array([0, 0, 1, 1])], np.array([0, 1, 0, 1]))
    assert len(like) == len(at) == 0


def test_columns_are_found_by_their_usual_names_unless_there_is_a_doubt(tmp_path):
    def options(head, *rows, **named):
        text = "\n".join([head, *rows])
        return read_gapped(written(tmp_path, "names.csv", text), **named).options

    assert options("Timestamp,STATION,Parameter,Value,Units", "1,a,x,5,C", "2,a,x,,C") == {
        "value": "Value", "time": "Timestamp", "location": "STATION", "sensor": "Parameter",
    }  # fmt: skip
    with pytest.raises(DataError, match="Which of the columns time, day is the time"):
        options("day,time,value", "1,2,3", "1,3,4")
    assert options("day,time,value", "1,2,3", "1,3,4", value="time")["time"] == "day"
    pair = ("1,a,x,5", "1,b,x,6", "2,a,y,7")
    assert options("time,room,site,value", *pair)["location"] == "room"
    assert "location" not in options("time,site", "1,5", "2,6")


def test_a_std_file_stands_beside_its_file(tmp_path):
    assert beside(tmp_path / "a.b.csv", "std") == tmp_path / "a.b.std.csv"


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("x.csv", LONG, {"time": "when"}, "time must be one of the columns site, kind"),
        ("x.csv", LONG.replace("2024-05-", "no date "), {}, "column 'time' must hold times"),
        ("x.csv", LONG.replace("20.50", "cold"), {}, "line 2: column 'value' must hold a number"),
        ("x.csv", LONG, {"separator": "/"}, "separator does nothing for a long table"),
        ("x.csv", WIDE, {"complete": True}, "complete does nothing for a wide table"),
        ("x.csv", WIDE, {"sensor": "time"}, "sensor does nothing for a wide table"),
        ("x.csv", WIDE, {"separator": "-"}, "must be named LOCATION-SENSOR; got 'hall/heat'"),
        ("x.csv", "", {}, "The file is empty"),
        ("x.csv", "a\nb\n", {}, "must have two columns or more"),
        ("x.csv", "time,a\n", {}, "no rows below"),
        ("x.csv", "time,a\n1,2,3\n", {}, "line 2: found 3 fields"),
        ("x.xlsx", "", {}, "must end in .csv, .tsv"),
        ("x.parquet.gz", "", {}, "must end in .csv, .tsv"),
        ("x.parquet", "no", {}, "Parquet file is damaged"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path, name, text, options, message):
    path = written(tmp_path, name, text)
    with pytest.raises((DataError, SettingError), match=message):
        read_gapped(path, **options)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match="There is no file"):
        read_gapped(tmp_path / "none.csv")


def test_without_pyarrow_the_pip_line_is_given(tmp_path, monkeypatch):
    path = written(tmp_path, "long.csv", LONG)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'noisewise\[parquet\]'"):
        read_gapped(path)


def test_without_xarray_the_pip_line_is_given(tmp_path, monkeypatch):
    (tmp_path / "air.nc").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'noisewise\[xarray\]'"):
        read_gapped(tmp_path / "air.nc")


@pytest.fixture
def air(tmp_path):
    """A NetCDF file: two variables over time and place, one over place, with attributes."""
    xarray = pytest.importorskip("xarray")
    rng = np.random.default_rng(0)
    heat = rng.normal(20, 1, (3, 30))
    heat[1, 5:9] = np.nan
    data = xarray.Dataset(
        {
            "heat": (("place", "time"), heat, {"units": "C"}),
            "damp": (("time", "place"), rng.normal(50, 5, (30, 3))),
            "height": ("place", [1.0, 2.0, np.nan]),
        },
        {"place": ["hall", "attic", "cellar"], "time": np.arange(30)},
        {"title": "air"},
    )
    data.to_netcdf(tmp_path / "air.nc")
    return tmp_path / "air.nc", data


@pytest.mark.parametrize("options", [{}, {"value": "heat"}])
def test_netcdf_has_std_and_flag_beside_each_variable_that_is_filled(air, tmp_path, options):
    import xarray

    path, data = air
    gapped = read_gapped(path, **options)
    filled, std = DeviationImputer("linear", **gapped.options).fit_transform(
        gapped.table, return_std=True
    )
    assert gapped.write(tmp_path / "out.nc", filled, std) == [tmp_path / "out.nc"]
    with xarray.open_dataset(tmp_path / "out.nc") as again:
        assert not again["heat"].isnull().any()
        hole = data["heat"].isnull()
        assert (again["heat_imputed"] == hole).all()
        assert ((again["heat_std"] > 0) == hole).all()
        assert again["heat"].where(~hole).equals(data["heat"])
        assert again["heat"].attrs == {"units": "C"}
        assert again["heat_std"].attrs == {}
        assert again.attrs == {"title": "air"}
        xarray.testing.assert_equal(again["height"], data["height"])
        assert ("damp_std" in again) == (not options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "when"}, "needs variables with the dimension 'when'"),
        ({"value": "height"}, "needs variables with the dimension 'time'"),
        ({"location": "place"}, "location does nothing for netcdf"),
        ({"complete": True}, "complete does nothing for netcdf"),
    ],
)
def test_netcdf_that_cannot_be_filled_is_refused(air, options, message):
    with pytest.raises((DataError, SettingError), match=message):
        read_gapped(air[0], **options)


def test_a_broken_netcdf_is_refused(tmp_path):
    pytest.importorskip("xarray")
    (tmp_path / "air.nc").write_bytes(b"CDF\x01")
    with pytest.raises(DataError, match="cannot be read as NetCDF"):
        read_gapped(tmp_path / "air.nc")
