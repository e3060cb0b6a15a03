"""Readings of sensors in numpy archives, and what makes a panel of them."""

import numpy as np
import pytest

from noisewise.data import observe
from noisewise.data.npz import read_panel
from noisewise.data.panel import Panel
from noisewise.errors import DataError


def npz(path, **more):
    loc, time = np.divmod(np.arange(6), 3)
    np.savez(
        path,
        loc=loc.astype(np.uint8),
        time=time.astype(np.int16),
        sensor=np.zeros(6, np.uint8),
        value=np.arange(6.0),
        sensor_name=np.array(["NO2"]),
        **more,
    )
    return path


def test_an_archive_of_days_counts_them_from_1970(tmp_path):
    path = npz(
        tmp_path / "t.npz",
        site_code=np.array(["BX1", "BQ9"]),
        coords_latlon=np.array([[51.5074, -0.1278], [np.nan, np.nan]]),
        time_origin="2002-07-11 (days)",
    )
    data = read_panel(path)
    assert data.observations.ids[2].labels.tolist() == [11879, 11880, 11881]
    assert data.coordinates == {"BX1": (0.0, 0.0)}
    assert data.seconds == 86_400


def test_an_archive_of_the_lab_counts_epochs(tmp_path):
    path = npz(
        tmp_path / "t.npz",
        mote_id=np.array([4, 7]),
        coords_xy_m=np.array([[1.0, 2.0], [3.0, 4.5]]),
        epoch0=14284,
        time_origin="epoch 14284 = 2004-03-04 00:00",
    )
    data = read_panel(path)
    assert data.observations.ids[2].labels.tolist() == [14284, 14285, 14286]
    assert data.coordinates == {4: (1.0, 2.0), 7: (3.0, 4.5)}
    assert data.seconds == 30


def test_an_archive_must_say_how_long_a_step_is(tmp_path):
    with pytest.raises(DataError, match="needs an array time_origin such as"):
        read_panel(npz(tmp_path / "t.npz"))


def test_an_archive_of_ratings_is_no_archive_of_sensors(tmp_path):
    np.savez(tmp_path / "t.npz", user=[0, 1], item=[0, 1], rating=[1.0, 2.0])
    with pytest.raises(DataError, match="Expected sensors; got observations of user, item"):
        read_panel(tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("rows", "seconds", "message"),
    [
        ([("a", "b", 1.0), ("a", "c", 2.0)], 1.0, "Expected the modes location, sensor and time"),
        ([("a", "b", "monday", 1.0), ("a", "b", "tuesday", 2.0)], 1.0, "got 'monday'"),
        ([("a", "b", 1, 1.0), ("a", "b", 2, 2.0)], 0.0, "seconds must be above 0; got 0.0"),
    ],
)
def test_sensor_data_needs_three_modes_and_numbers_for_time(rows, seconds, message):
    with pytest.raises(DataError, match=message):
        Panel(observe(rows), None, seconds)
