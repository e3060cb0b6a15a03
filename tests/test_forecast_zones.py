"""The stamps of a forecast, where clocks are put forward and back."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from noisewise import DeviationImputer
from noisewise.data.next_rows import next_stamps


def stamps_after(kind, start, freq, rows):
    """Return the next two stamps of a table in Berlin that lacks a row, and its last one."""
    when = pd.date_range(start, periods=rows, freq=freq, tz="Europe/Berlin").delete(5)
    table = pd.DataFrame({"heat": np.sin(np.arange(len(when)) / 4)}, index=when)
    options = {}
    if kind == "polars":
        table, options = pl.from_pandas(table.reset_index(names="when")), {"time": "when"}
    elif kind == "objects":
        table.index = pd.Index(when.to_pydatetime(), dtype=object)
    elif kind == "text":
        table.index = [one.isoformat() for one in when]
    mean = DeviationImputer("linear", n_jobs=1, **options).fit(table).forecast(2).mean
    found = mean["when"].to_list() if kind == "polars" else mean.index
    return [pd.Timestamp(one).isoformat() for one in found], when[-1].isoformat()


@pytest.mark.parametrize("kind", ["pandas", "polars", "objects"])
@pytest.mark.parametrize(
    ("start", "freq", "rows", "expected"),
    [
        ("2024-03-29", "h", 50, ["2024-03-31T03:00:00+02:00", "2024-03-31T04:00:00+02:00"]),
        ("2024-10-24", "h", 75, ["2024-10-27T02:00:00+01:00", "2024-10-27T03:00:00+01:00"]),
        ("2024-10-24", "h", 76, ["2024-10-27T03:00:00+01:00", "2024-10-27T04:00:00+01:00"]),
        ("2024-08-28", "D", 61, ["2024-10-28T00:00:00+01:00", "2024-10-29T00:00:00+01:00"]),
        ("2021-01-01", "MS", 34, ["2023-11-01T00:00:00+01:00", "2023-12-01T00:00:00+01:00"]),
    ],
)
def test_hours_have_sixty_minutes_and_days_begin_at_midnight(kind, start, freq, rows, expected):
    assert stamps_after(kind, start, freq, rows)[0] == expected


def test_text_goes_on_after_its_last_moment_and_not_after_its_last_letters():
    found, last = stamps_after("text", "2024-10-24", "h", 76)
    assert last == "2024-10-27T02:00:00+01:00"  # an hour after 02:00:00+02:00
    assert found == ["2024-10-27T03:00:00+01:00", "2024-10-27T04:00:00+01:00"]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ("2024-01-31T05:00:00.500000Z", "2024-01-31T05:00:01.000000Z"),
        ("2024-01-31T05:00:00.500+01:00", "2024-01-31T05:00:01.000+01:00"),
        ("20240131T050000", "2024-01-31T05:00:00.500000"),
    ],
)
def test_text_is_written_as_it_was(known, expected):
    assert next_stamps([known], 0.5, 1) == [expected]
    assert next_stamps(["20240131"], 86_400.0, 1) == ["20240201"]
    assert next_stamps(["2024-01-31 05:00+01:00"], 3600.0, 1) == ["2024-01-31 06:00+01:00"]
