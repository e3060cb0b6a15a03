"""Small pieces that all readers and models stand on, each by an example."""

import numpy as np
import pytest

from noisewise import observe
from noisewise.data.arrays import put_array, read_array
from noisewise.data.ids import Ids, fitting, group_cells
from noisewise.data.observations import encode_cells, warn_of_types
from noisewise.data.reader import to_floats
from noisewise.data.tables import find_ids
from noisewise.data.tables_with_holes import Roles, column_modes
from noisewise.data.timestamps import read_stamps, time_numbers, to_seconds
from noisewise.errors import shortened, too_coarse
from noisewise.evaluation.records import is_number
from noisewise.models.base import as_it_is, clone_with
from noisewise.models.residual import TypeMean
from noisewise.models.series import OUSmoother


def test_a_model_as_it_is_does_not_change_with_the_next_fit():
    model = TypeMean().fit([("hall", 8, 1.0), ("attic", 8, 3.0)])
    twin = as_it_is(model)
    model.fit([("hall", 8, 5.0), ("attic", 8, 7.0)])
    assert (twin.predict([("hall", 9)]).item(), model.predict([("hall", 9)]).item()) == (2.0, 6.0)


def test_a_clone_takes_the_settings_that_it_has():
    assert repr(clone_with(OUSmoother(time=0), n_jobs=1, random_state=7)) == (
        "OUSmoother(n_jobs=1, time=0)"
    )


def test_columns_are_told_apart_by_location_and_sensor():
    roles = Roles(location={"a1": "attic", "h1": "hall"}, sensor=lambda column: "heat")
    modes, sensor = column_modes(["a1", "h1"], roles, axis=1)
    assert [repr(mode.ids) for mode in modes] == ["Ids(2 location)", "Ids(1 sensor)"]
    assert sensor == 1


def test_times_of_cells_are_told_from_their_ids():
    seen = observe([("ann", "Alien", 5), ("bob", "Brazil", 3)])
    codes, times = encode_cells([("bob", "Alien", 978300760)], seen.ids, time=2)
    assert [code.item() for code in codes] == [1, 0]
    assert times.tolist() == [978300760]


@pytest.mark.parametrize(
    ("columns", "places"),
    [(["stars", "item", "user"], (2, 1)), (["movieId", "userId"], (1, 0)), (["film"], None)],
)
def test_columns_of_ids_are_found_by_their_names(columns, places):
    assert find_ids(columns, ["user", "item"]) == places


def test_values_far_from_zero_are_kept_in_double():
    values = np.array([1.0, 3.5, 5.0])
    assert (fitting(values).dtype, fitting(1e8 + values).dtype) == (np.float32, np.float64)
    assert [too_coarse(5.0, 1.1), too_coarse(101_330.0, 3.0), too_coarse(1e-22, 1e-23)] == [
        False, True, True,
    ]  # fmt: skip


def test_cells_that_are_equal_are_grouped_in_their_order():
    groups = group_cells([np.array([0, 1, 0]), np.array([2, 2, 2])], (2, 3))
    assert groups.order.tolist() == [0, 2, 1]
    assert (groups.starts.tolist(), groups.counts.tolist()) == ([0, 2], [2, 1])
    assert group_cells([np.array([0, 1]), np.array([2, 2])], (2, 3)) is None


def test_a_number_is_neither_truth_nor_text_nor_beyond_floats():
    assert [is_number(v) for v in (3, True, "3", 10**400)] == [True, False, False, False]


def test_an_array_is_filled_where_it_has_holes():
    holes = np.array([False, True])
    assert put_array(np.array([1, 2]), np.array([0.5, 0.5]), holes).tolist() == [1.0, 0.5]


def test_an_array_has_series_and_times():
    table = read_array(np.array([[20.0, 55.0], [np.nan, 54.0]]), Roles())
    assert (table.names, table.sensor) == (("series", "time"), 0)


def test_times_are_numbers_or_dates():
    stamps = read_stamps([3, "1970-01-02", "soon"])[0]
    np.testing.assert_array_equal(stamps, [3.0, 86400.0, np.nan])
    assert (to_seconds("1970-01-02"), to_seconds("-7.5")) == (86400.0, -7.5)
    numbers, kind = time_numbers(np.array(["2024-05-01T12:00", "2024-05-01T11:30"], "M8[m]"), "t")
    assert (numbers.tolist(), kind) == ([1714564800, 1714563000], "dates without a zone")


def test_text_is_read_as_numbers():
    assert to_floats(["1", " 2.5", "1e3"]).tolist() == [1.0, 2.5, 1000.0]


def test_long_text_is_shortened_in_errors():
    assert (shortened("user"), len(shortened("u" * 1_000_000))) == ("user", 63)


def test_ids_of_the_same_type_are_no_reason_to_warn():
    users, _ = Ids.encode([17, 42], "user")
    assert not warn_of_types(users, [17, 99])
