"""Files of loggers and networks are read without an option, or ask for one by name."""

import warnings

import logger_files
import numpy as np
import pyarrow as pa
import pytest
from logger_files import DAMP, HEAT, HOURS

from noisewise.data.gapped import read_gapped
from noisewise.errors import DataError

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
