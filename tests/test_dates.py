"""Dates as loggers write them, understood from whole columns."""

import warnings

import numpy as np
import pytest

from noisewise.data.dates import Parts, calendar, is_date, understood
from noisewise.data.dates_in_numbers import compact, epochs, of_day
from noisewise.errors import DataError


def read(entries, order=None, times=None):
    parts, of_days = Parts.of(entries), None if times is None else Parts.of(times)
    return understood(parts, "t", order, of_days).ticks.astype("M8[us]").astype("M8[m]").astype(str)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("2013-03-31T12:30", "2013-03-31T12:30"),
        ("2013-03-31 12:30:00.25", "2013-03-31T12:30"),
        ("2013-03-31T12:30:00+02:00", "2013-03-31T10:30"),
        ("2013-03-31 12:30 CEST", "2013-03-31T10:30"),
        ("2013-03-31T12:30:00.123456789Z", "2013-03-31T12:30"),
        ("31.03.2013 12:30", "2013-03-31T12:30"),
        ("31.3.13 12:30", "2013-03-31T12:30"),
        ("31/03/2013 12.30", "2013-03-31T12:30"),
        ("03/31/13 12:30:00 PM", "2013-03-31T12:30"),
        ("3/31/2013 12:30 a. m.", "2013-03-31T00:30"),
        ("31-Mar-2013 12:30", "2013-03-31T12:30"),
        ("31MAR2013 12:30", "2013-03-31T12:30"),
        ("31 Mär 2013 12:30", "2013-03-31T12:30"),
        ("31 août 2013 12h30", "2013-08-31T12:30"),
        ("Mar 31, 2013 12:30", "2013-03-31T12:30"),
        ("Sun, 31 Mar 2013 12:30:00 GMT", "2013-03-31T12:30"),
        ("2013/3/31 24:00", "2013-04-01T00:00"),
        ("20130331 12:30", "2013-03-31T12:30"),
    ],
)
def test_a_date_is_read(entry, expected):
    assert read([entry]).tolist() == [expected]


@pytest.mark.parametrize(
    "entry",
    ["", "soon", "12.5", "2013", "31.13.2013x", "2013-03-31 25:00", "12:60", "13:00 PM", "x" * 99,
     "31 Foo 2013", "2013-03-31T12:30+99:00", "1/2", "--"],
)  # fmt: skip
def test_what_is_no_date_is_none(entry):
    assert not is_date(entry)


@pytest.mark.parametrize("entry", ["2013-02-30", "31.04.2013", "00/00/2013", "32/13/2013"])
def test_a_day_that_is_in_no_calendar_is_an_error(entry):
    with pytest.raises(DataError, match="in no calendar"):
        read([entry, "2013-01-01"])


def test_a_number_above_twelve_tells_day_from_month():
    assert read(["01/03/2013", "13/03/2013"])[0] == "2013-03-01T00:00"
    assert read(["01/03/2013", "01/13/2013"])[0] == "2013-01-03T00:00"
    with pytest.raises(DataError, match="day first in some rows and the month first in others"):
        read(["13/03/2013", "03/13/2013"])


def test_hours_that_go_on_at_midnight_tell_day_from_month():
    hours = [f"{day:02}/03/2013 {hour:02}:00" for day in (1, 2, 3) for hour in range(24)]
    assert read(hours)[-1] == "2013-03-03T23:00"
    swapped = [f"03/{day:02}/2013 {hour:02}:00" for day in (1, 2, 3) for hour in range(24)]
    assert read(swapped)[-1] == "2013-03-03T23:00"


@pytest.mark.parametrize(
    "entries",
    [
        ["01/03/2013 00:00", "01/03/2013 12:00"],
        ["01/01/2013", "01/02/2013", "01/03/2013"],
        ["01/02/03", "01/02/04"],
    ],
)
def test_what_stays_open_is_asked_for(entries):
    with pytest.raises(DataError, match=r"does not tell the day from the month.*date_order='dmy'"):
        read(entries)
    assert read(entries, "mdy")[0].startswith("20")
    assert read(["03/03/2013"]).tolist() == ["2013-03-03T00:00"]  # which is the same in any order


def test_an_order_of_years_of_two_digits_can_be_said():
    assert read(["13-03-01", "13-03-31"], "ymd")[0] == "2013-03-01T00:00"
    with pytest.raises(DataError, match="in no calendar"):
        read(["2013-13-01", "01/02/2013"], "dmy")


def test_zones_are_never_mixed():
    with pytest.raises(DataError, match="mixes times with a zone and times without one"):
        read(["2013-03-01T00:00Z", "2013-03-01T01:00"])
    assert read(["2013-03-31T01:00+01:00", "2013-03-31T03:00+02:00"]).tolist() == [
        "2013-03-31T00:00", "2013-03-31T01:00",
    ]  # fmt: skip


def test_days_and_times_of_day_belong_together():
    assert read(["01.03.2013", "01.03.2013"], None, ["01:00", "24:00"]).tolist() == [
        "2013-03-01T01:00", "2013-03-02T00:00",
    ]  # fmt: skip
    assert of_day(np.array([0.0, 130.0, 2400.0])).ticks.tolist() == [
        0,
        5_400_000_000,
        86_400_000_000,
    ]
    assert of_day(np.array([7.0, 24.0])).ticks.tolist() == [25_200_000_000, 86_400_000_000]
    assert of_day(np.array([7.5])) is None
    assert of_day(np.array([61.0, 99.0])) is None


def test_numbers_are_dates_where_they_can_be_nothing_else():
    for scale in (1, 1e3, 1e6, 1e9):
        found = epochs(np.array([1362096000.0, 1362099600.0]) * scale)
        assert found.has_zone
        assert found.ticks.astype("M8[us]").astype("M8[h]").astype(str).tolist() == [
            "2013-03-01T00", "2013-03-01T01",
        ]  # fmt: skip
    assert epochs(np.array([1.0, 2.0])) is None
    assert epochs(np.array([1362096000.0, np.nan])) is None
    assert compact(np.array([2013030100.0, 2013030124.0])).ticks.tolist() == [0, 86_400_000_000]
    assert not compact(np.array([20130301.0])).has_times
    for wrong in ([20131301.0], [20130230.0], [2013030125.0], [1.5e7], [], [np.nan]):
        assert compact(np.array(wrong)) is None


def test_numbers_of_a_year_and_a_month_are_the_first_of_that_month():
    months = np.array([201311.0, 201312.0, 201401.0])
    found = understood(compact(months), "t", None).ticks.astype("M8[us]").astype("M8[D]")
    assert found.astype(str).tolist() == ["2013-11-01", "2013-12-01", "2014-01-01"]
    for counts in ([201301.0, 201302.0], [201312.0, 201313.0, 201401.0], [310001.0, 310101.0]):
        assert compact(np.array(counts)) is None


def test_numbers_of_a_year_and_its_day_are_dates_if_there_are_several_years():
    days = compact(np.array([2012366.0, 2013001.0, 2013060.0]))
    found = understood(days, "t", None).ticks.astype("M8[us]").astype("M8[D]")
    assert found.astype(str).tolist() == ["2012-12-31", "2013-01-01", "2013-03-01"]
    for counts in ([2013001.0, 2013060.0], [2012365.0, 2013366.0], [2012365.0, 2013000.0]):
        assert compact(np.array(counts)) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compact(np.array([1e300, 2e300])) is None


def test_numbers_that_end_with_a_year_are_dates_whose_first_zero_is_lost():
    days = compact(np.array([31012013.0, 1022013.0]))
    found = understood(days, "t", None).ticks.astype("M8[us]").astype("M8[D]")
    assert found.astype(str).tolist() == ["2013-01-31", "2013-02-01"]
    with pytest.raises(DataError, match=r"as in 01/02/2013: say date_order='dmy' or"):
        understood(compact(np.array([1022013.0, 2022013.0])), "t", None)
    for counts in ([1022013.0, 1022014.0], [1032013.0, 1332013.0], [1.5e7, 1.6e7]):
        assert compact(np.array(counts)) is None


def test_columns_of_year_month_and_day_make_a_date():
    year, month, day = np.array([2013.0, 13.0]), np.array([3.0, 3.0]), np.array([1.0, 2.0])
    found = calendar([year, month, day, np.array([0.0, 24.0])], "y, m, d, h")
    assert found.ticks.astype("M8[us]").astype("M8[h]").astype(str).tolist() == [
        "2013-03-01T00", "2013-03-03T00",
    ]  # fmt: skip
    with pytest.raises(DataError, match="whole number in every row"):
        calendar([year, month, day + 0.5], "y, m, d")
    with pytest.raises(DataError, match="in no calendar"):
        calendar([year, month + 10, day], "y, m, d")
