"""Panels of readings: what makes one, and what is none."""

import numpy as np
import pytest

from noisewise.data import observe
from noisewise.data.panel import Panel, read_panel
from noisewise.errors import DataError


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
