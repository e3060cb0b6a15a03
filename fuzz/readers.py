"""Targets: every reader of data files, of cells to predict, and of JSON that is read back."""

from __future__ import annotations

import atexit
import bz2
import contextlib
import gzip
import io
import json
import lzma
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xarray
from noisewise_reproduction.datasets import intel, laqn, netflix
from noisewise_reproduction.runs import run as runs

import noisewise
from fuzz import small
from fuzz.harness import Target
from fuzz.mutating import (
    HOSTILE,
    Rng,
    array_changed,
    arrays_changed,
    bytes_changed,
    json_changed,
    pick,
    table_changed,
)
from noisewise.cli import app
from noisewise.cli.impute import fill_file
from noisewise.data import Ids
from noisewise.data.files import read_cells
from noisewise.data.panel import read_panel
from noisewise.errors import NoisewiseError
from noisewise.evaluation import comparison
from noisewise.evaluation.records import read_results
from noisewise.evaluation.tuning import best_settings

CSV = (",", ",", ",", ";", "\t")
RATINGS = "user,item,rating,time\n1,a,3,978300760\n1,b,4.5,2001-01-01\n2,a,5,978302109\n7,c,1,3\n"
MOVIELENS = "196\t242\t3\t881250949\n186\t302\t3\t891717742\n22\t377\t1\t878887116\n"
NETFLIX = "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n2:\n822109,4,2005-10-19\n"
LAB = (
    "2004-02-28 00:59:16.02785 3 1 19.9884 37.0933 45.08 2.69964\n"
    "2004-02-28 01:03:16.33393 11 2 19.3024 38.4629  2.68742\n"
    "2004-02-28 01:06:46.778088 18 1 19.175 38.8379 45.08 2.69964\n"
)
PLACES = "1 21.5 23\n2 24.5 20\n3 19.5 19\n"
LONDON = (
    "Site,Species,ReadingDateTime,Value,Units,Provisional or Ratified\n"
    "MY1,NO2,11/07/2002 00:00,96.1,ug m-3,R\nMY1,NO2,12/07/2002 00:00,,ug m-3,R\n"
    "MY1,CO,2002-07-12,1.4,mg m-3,R\nBX1,CO,13/07/2002 00:00,1.2,mg m-3,R\n"
)
SITES = "SiteCode,SiteName,Latitude,Longitude\nMY1,Road,51.5225,-0.1546\nBX1,Hill,51.46,0.18\n"
LONG = "time,location,sensor,value\n" + "".join(
    f"2024-05-01T{hour:02}:00,{place},{kind},{20 + hour % 3 if hour != 4 else ''}\n"
    for place in ("hall", "attic")
    for kind in ("heat", "light")
    for hour in range(6)
)
WIDE = "time,hall,attic,cellar\n1,20,15,\n2,21,,9\n3,,16,8\n4,22,17,9\n5,23,NA,9.5\n"
CELLS = "user,item,time\nu1,i1,1001\nu2,i0,1008\nnew,i1,2001-01-01\n"
STARS = {
    "user": np.array([0, 1, 1]), "item": np.array([1, 0, 1]), "rating": np.array([3, 4, 5], "i1"),
    "user_id": np.array([10, 20]), "item_id": np.array(["a", "b"]), "rating_scale": np.array(0.5),
    "time": np.array([1, 2, 3]),
}  # fmt: skip
TENSOR = {
    "loc": np.array([0, 1, 0]), "sensor": np.array([0, 0, 1]), "time": np.array([0, 1, 2]),
    "value": np.array([1.0, 2.0, 3.0]), "mote_id": np.array([4, 9]),
    "sensor_name": np.array(["heat", "light"]), "time_origin": np.array("1993-01-01 (days)"),
    "coords_latlon": np.array([[51.0, 0.1], [51.2, 0.3]]),
}  # fmt: skip
RESULT = {
    "model": "dmf", "settings": {"rank": 3}, "protocol": "paper", "data": {"observations": 100},
    "splits": [{"seed": seed, "rmse": 0.9 + seed / 100, "nll": 1.2} for seed in range(3)],
    "mean": {"rmse": 0.91, "nll": 1.2},
}  # fmt: skip
TUNED = {
    "tuning": 1, "task": {"kind": "ratings"}, "method": "random", "seed": 0, "metric": "rmse",
    "models": {"dmf": {"fixed": {}, "ranges": {"rank": [1, 9]}, "trials": [
        {"settings": {"rank": 3, "value_range": [1, 5]}, "seconds": 1.5, "rmse": 0.9},
    ]}},
}  # fmt: skip
MEASURED = runs.Run({"task": "t", "dataset": "d", "model": "m", "seed": 0}, {}, lambda threads: {})
FINISHED = {"about": MEASURED.about, "numbers": {"rmse": 0.9}, "machine": {}, "date": "2024-01-01"}

Run = Callable[[Path], None]
PACKING: dict[str, Callable[[bytes], bytes]] = {
    ".gz": partial(gzip.compress, compresslevel=6, mtime=0), ".bz2": bz2.compress,
    ".xz": lzma.compress,
}  # fmt: skip


def targets() -> list[Target]:
    """Make a target for every reader."""
    model = _kept_model()
    columns = {"user": ["1", "1", "2"], "item": ["a", "b", "a"], "rating": [3.0, 4.5, 5.0]}
    timed = columns | {"time": [978300760, 978302109, 3]}
    cells = {"user": ["u1", "u2"], "item": ["i1", "new"], "time": [1001.0, 1008.0]}
    hours = np.array(["2024-05-01T01", "2024-05-01T02", "2024-05-01T03", "2024-05-01T04"], "M8[us]")
    wide = {"time": hours, "hall": [1.0, None, 3.0, 4.0], "attic": [4, 5, 6, 7]}
    grids = _grids()
    return [
        text_target("read-csv", RATINGS, CSV, read_timed),
        text_target("read-csv-gz", RATINGS, CSV, read_timed, ".csv.gz"),
        text_target("read-tsv", RATINGS.replace(",", "\t"), ("\t",), read_timed, ".tsv"),
        text_target(
            "read-dat", RATINGS.replace(",", "::"), ("::", "::", ",", "\t"), read_timed, ".dat"
        ),
        text_target("read-movielens", MOVIELENS, ("\t",), read_movielens, ".data"),
        text_target("read-netflix", NETFLIX, (",",), read_netflix, ".txt"),
        text_target("read-intel", LAB, (" ",), read_intel, ".txt"),
        text_target("read-intel-places", PLACES, (" ",), read_intel_places, ".txt"),
        text_target("read-laqn", LONDON, (",",), read_laqn),
        text_target("read-laqn-sites", SITES, (",",), read_laqn_sites),
        _arrow("read-parquet", timed, read_timed),
        _arrays("read-npz", STARS, read_stars),
        _arrays("read-npz-sensors", TENSOR, read_sensors),
        text_target("cells-csv", CELLS, CSV, use_cells),
        _arrow("cells-parquet", cells, use_cells),
        text_target("predict-csv", CELLS, CSV, partial(predict, model)),
        text_target("impute-long", LONG, CSV, impute),
        text_target("impute-wide", WIDE, CSV, impute),
        text_target("impute-wide-gz", WIDE, CSV, impute, ".csv.gz"),
        _arrow("impute-parquet", wide, impute),
        Target("impute-netcdf", partial(_grid_changed, grids), ".nc", impute, grids),
        _document("json-results", RESULT, use_results),
        _document("json-tuned", TUNED, use_tuned),
        _document("json-run", FINISHED, use_run),
    ]


def text_target(
    name: str, text: str, delimiters: tuple[str, ...], run: Run, suffix: str = ".csv"
) -> Target:
    """Make a target of a table in text, packed if the suffix says so."""
    pack = PACKING.get(Path(suffix).suffix if suffix.count(".") > 1 else "")

    def make(rng: Rng) -> bytes:
        content = table_changed(rng, text, delimiters)
        if pack is None:
            return content
        times = pick(rng, [1, 1, 1, min(1000, 2**24 // (len(content) + 1))])
        zipped = pack(content * times)
        return bytes_changed(rng, zipped) if rng.random() < 0.5 else zipped

    valid = text.encode() if pack is None else pack(text.encode())
    return Target(name, make, suffix, run, [valid])


def _arrays(name: str, arrays: dict[str, Any], run: Run) -> Target:
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return Target(name, partial(arrays_changed, arrays=arrays), ".npz", run, [packed.getvalue()])


def _arrow(name: str, columns: dict[str, Any], run: Run) -> Target:
    valid = _parquet(pa.table(columns))

    def make(rng: Rng) -> bytes:
        if rng.random() < 0.5:
            return bytes_changed(rng, valid)
        table = pa.table(columns)
        for _ in range(int(rng.geometric(0.6))):
            at = int(rng.integers(table.num_columns))
            table = table.set_column(at, table.column_names[at], _column(rng, table.num_rows))
        if rng.random() < 0.2:
            table = pa.concat_tables([table] * pick(rng, [0, 2, 3000]) or [table.slice(0, 0)])
        if rng.random() < 0.2:
            names = [pick(rng, [old, *HOSTILE]) for old in table.column_names]
            table = table.rename_columns(names)
        try:
            content = _parquet(table)
        except pa.ArrowException:  # Parquet cannot hold all that Arrow can
            content = bytes_changed(rng, valid)
        return bytes_changed(rng, content) if rng.random() < 0.1 else content

    return Target(name, make, ".parquet", run, [valid])


def _parquet(table: Any) -> bytes:
    packed = io.BytesIO()
    pq.write_table(table, packed)
    return packed.getvalue()


def _column(rng: Rng, n: int) -> Any:
    """Return a column of any type that Parquet can hold."""
    ints = pa.array(rng.choice([0, 1, -1, 2**31, 2**53 + 1, -(2**63), 2**63 - 1], n))
    days = pa.array(rng.choice([0, 19_000, -(2**31), 2**31 - 1], n), pa.int32())
    kinds: list[Callable[[], Any]] = [
        lambda: ints,
        lambda: ints.view(pa.uint64()),
        lambda: ints.view(pa.timestamp("ns")),
        lambda: ints.view(pa.timestamp("s", tz="Europe/Berlin")),
        lambda: ints.view(pa.timestamp("us", tz="Nowhere/Land")),
        lambda: ints.view(pa.duration("us")),
        lambda: ints.view(pa.time64("us")),
        lambda: days.view(pa.date32()),
        lambda: pa.array(rng.choice([0.0, np.nan, np.inf, -np.inf, 1e308, 1e-320, 3.5e38], n)),
        lambda: pa.array([pick(rng, HOSTILE) for _ in range(n)]),
        lambda: pa.array([b"a\xff"] * n).view(pa.string()),
        lambda: pa.array([b"\x00\xff"] * n),
        lambda: pa.array(["x" * 100_000] * n).dictionary_encode(),
        lambda: pa.nulls(n, pa.float64()),
        lambda: pa.nulls(n),
        lambda: pa.array([True] * n),
        lambda: pa.array([[1, 2]] * n),
        lambda: pa.array([{"a": 1}] * n),
        lambda: pa.array(range(n)).cast(pa.decimal128(38, 5)),
    ]
    return pick(rng, kinds)()


def _grids() -> list[bytes]:
    """Return NetCDF files of both formats."""
    heat = np.array([[20.0, 15.0], [np.nan, 16.0], [21.0, 17.0], [22.0, np.nan]])
    hours = np.array(["2024-05-01T01", "2024-05-01T02", "2024-05-01T03", "2024-05-01T04"], "M8[ns]")
    data = xarray.Dataset(
        {"heat": (("time", "place"), heat), "level": (("time", "place"), heat + 1)},
        {"time": hours, "place": ["hall", "attic"]},
    )
    steps = data.drop_vars("time").assign_coords(time=[1, 2, 4, 8])
    with tempfile.TemporaryDirectory() as folder:
        made = [_netcdf(data, folder), _netcdf(steps, folder)]
        return [*made, _netcdf(data.drop_vars("place"), folder, "scipy")]


def _netcdf(data: Any, folder: str, engine: Any = "h5netcdf") -> bytes:
    path = Path(folder, "data.nc")
    data.to_netcdf(path, engine=engine)
    return path.read_bytes()


def _grid_changed(contents: list[bytes], rng: Rng) -> bytes:
    """Change the bytes of the old format, and what is in the new one.

    Bytes of the new one are left alone: the HDF5 library itself falls over them.
    """
    if rng.random() < 0.7:
        return bytes_changed(rng, contents[-1])
    n = pick(rng, [0, 1, 4])
    axis = pick(rng, [
        np.arange(n), np.arange(n) * 1e300, np.full(n, np.nan), np.zeros(n), np.arange(n) - 2**62,
        np.array([pick(rng, HOSTILE).replace("\0", "")[:40] for _ in range(n)], dtype=object),
    ])  # fmt: skip
    values = array_changed(rng, np.arange(2.0 * n).reshape(n, 2))
    if values.shape != (n, 2) or values.dtype.kind not in "biufU":
        values = np.full((n, 2), pick(rng, [np.nan, np.inf, 1e308, 7]))
    attributes = {
        pick(rng, ["units", "calendar", "scale_factor", "_FillValue", "missing_value", "x"]): pick(
            rng, [0.0, -1.0, np.nan, 1e308, "days since noon", "days since 9999-99-99", "none", ""]
        )
        for _ in range(int(rng.integers(3)))
    }
    data = xarray.Dataset({"heat": (("time", pick(rng, ["place", "time2"])), values)})
    data = data.assign_coords({pick(rng, ["time", "other"]): ("time", axis)})
    data[pick(rng, list(data.variables))].attrs.update(attributes)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return _netcdf(data, folder)
        except Exception:  # what xarray cannot write nobody has to read
            return bytes_changed(rng, contents[-1])


def _document(name: str, document: Any, run: Run) -> Target:
    make = partial(json_changed, document=document)
    return Target(name, make, ".json", run, [json.dumps(document).encode()])


def _kept_model() -> Path:
    """Save a small model for as long as this process lives."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "model.nw")
    rows = small.timed(small.ratings())
    noisewise.BayesianFactorizer(time=2, **small.SWEEPS).fit(rows).save(path)
    return path


def _beside(path: Path, name: str) -> Path:
    return Path(shutil.copyfile(path, path.with_name(name)))


def read_timed(path: Path) -> None:
    """Read observations, found by their names, and with times."""
    with contextlib.suppress(NoisewiseError):
        noisewise.read(path)
    with contextlib.suppress(NoisewiseError):
        noisewise.read(path, ids=[0, 1], value=2, duplicates="mean")
    noisewise.read(path, ids=["user", "item"], value="rating", time="time", duplicates="last")


def read_movielens(path: Path) -> None:
    """Read u.data."""
    noisewise.read(_beside(path, "u.data"), time="timestamp", duplicates="last")


def read_netflix(path: Path) -> None:
    """Read ratings of the Netflix Prize."""
    netflix.read(_beside(path, "combined_data_1.txt"), time="date", duplicates="last")


def read_intel(path: Path) -> None:
    """Read the lab, without coordinates."""
    path.with_name("mote_locs.txt").unlink(missing_ok=True)
    intel.read(_beside(path, "data.txt")).elapsed()


def read_intel_places(path: Path) -> None:
    """Read the lab, with coordinates that may be wrong."""
    _beside(path, "mote_locs.txt")
    path.with_name("data.txt").write_text(LAB)
    read_panel(path.with_name("data.txt"))


def read_laqn(path: Path) -> None:
    """Read a site in London, without coordinates."""
    folder = path.with_name("sites")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copyfile(path, folder / "MY1.csv")
    laqn.read(folder).elapsed()


def read_laqn_sites(path: Path) -> None:
    """Read London, with coordinates that may be wrong."""
    folder = path.with_name("sites")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copyfile(path, folder / "sites.csv")
    (folder / "MY1.csv").write_text(LONDON)
    read_panel(folder)


def read_stars(path: Path) -> None:
    """Read arrays of ratings, in their layout and by name."""
    with contextlib.suppress(NoisewiseError):
        noisewise.read(path, ids=["user", "item"], value="rating", duplicates="mean")
    noisewise.read(path, time="time", duplicates="last")


def read_sensors(path: Path) -> None:
    """Read arrays of sensors."""
    read_panel(path, repeats="last").elapsed()


def use_cells(path: Path) -> None:
    """Read cells to predict, of ids that are text and of ids that are numbers."""
    for users in (["u1", "u2"], [1, 2]):
        ids = [Ids.encode(users, "user")[0], Ids.encode(["i0", "i1"], "item")[0]]
        read_cells(path, ids, "time")


def predict(model: Path, path: Path) -> None:
    """Predict cells by the command line."""
    app(["predict", str(model), str(path)], standalone_mode=False)


def impute(path: Path) -> None:
    """Fill the gaps of a file."""
    out = path.with_name("filled" + "".join(path.suffixes))
    fill_file(path, out, method="linear", settings={"n_jobs": 1}, duplicates="last")


def use_results(path: Path) -> None:
    """Read results and compare them with themselves, with and without the command line."""
    for result in read_results(path):
        with contextlib.suppress(NoisewiseError):
            comparison.compare(result, result)
    app(["compare", str(path), str(path)], standalone_mode=False)


def use_tuned(path: Path) -> None:
    """Read the best settings."""
    best_settings(path, None, "ratings")


def use_run(path: Path) -> None:
    """Read a finished run."""
    _beside(path, MEASURED.name)
    runs.Store(path.parent).read(MEASURED)
