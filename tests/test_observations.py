import datetime as dt
import enum
import pickle
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import DataConversionWarning

from noisewise.data import Ids, encode_ids, id_columns, observe
from noisewise.errors import DataError

TRIPLES = [("ann", "Alien", 5.0), ("bob", "Alien", 3.5), ("ann", "Brazil", 0.0)]
CELLS = [("ann", "Alien"), ("bob", "Alien"), ("ann", "Brazil")]
STARS = [5.0, 3.5, 0.0]
COLUMNS = {"who": ["ann", "bob", "ann"], "what": ["Alien", "Alien", "Brazil"], "stars": STARS}


def same(left, right):
    """Whether two Observations agree in all but the names of their modes."""
    return (
        left.decode() == right.decode()
        and all(np.array_equal(a, b) for a, b in zip(left.codes, right.codes, strict=True))
        and np.array_equal(left.values, right.values)
        and left.shape == right.shape
    )


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS, index=[7, 7, 3]),
        pd.DataFrame(COLUMNS).astype({"who": "category", "stars": "Float64"}),
        pd.DataFrame(TRIPLES),
        pl.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS).with_columns(pl.col("who").cast(pl.Categorical)),
        pa.table(COLUMNS),
        np.array(TRIPLES, dtype=object),
        [list(row) for row in TRIPLES],
        tuple(TRIPLES),
        [np.array(row, dtype=object) for row in TRIPLES],
    ],
    ids=[
        "pandas",
        "pandas with an odd index",
        "pandas with category and nullable columns",
        "pandas without column names",
        "polars",
        "polars with a categorical column",
        "pyarrow",
        "numpy objects",
        "a list of lists",
        "a tuple of tuples",
        "a list of arrays",
    ],
)
def test_every_kind_of_table_gives_the_same_observations(table):
    assert same(observe(table), observe(TRIPLES))


@pytest.mark.parametrize(
    "y",
    [
        STARS,
        tuple(STARS),
        np.array(STARS),
        np.array(STARS, dtype=np.float16),
        np.array(STARS, dtype=object),
        [Decimal("5.0"), Fraction(7, 2), False],
        pd.Series(STARS, index=[9, 9, 1]),
        pd.Series(STARS, dtype="Float32"),
        pl.Series(STARS),
        pa.array(STARS),
        pa.chunked_array([STARS]),
    ],
    ids=lambda y: f"{type(y).__module__}.{type(y).__name__}",
)
def test_values_beside_the_ids_are_the_same_as_in_the_last_column(y):
    assert same(observe(CELLS, y), observe(TRIPLES))


def test_integer_tables_and_sparse_matrices_agree_and_a_stored_zero_is_a_value():
    rows, columns, values = [0, 2, 2], [1, 0, 1], [4.0, 0.0, 2.0]
    table = observe(np.column_stack([rows, columns]), values)
    for kind in (scipy.sparse.coo_array, scipy.sparse.csr_array, scipy.sparse.csr_matrix):
        assert same(observe(kind((values, (rows, columns)), shape=(5, 3))), table)
    assert table.values.tolist() == values
    assert table.shape == (2, 2)


def test_a_sparse_array_of_three_modes_has_three_id_columns():
    stored = scipy.sparse.coo_array(([1.0, 2.0], ([0, 1], [1, 1], [3, 0])), shape=(2, 2, 4))
    seen = observe(stored)
    assert seen.names == ("mode0", "mode1", "mode2")
    assert seen.decode() == [(0, 1, 3), (1, 1, 0)]


class Colour(enum.IntEnum):
    RED = 1


MANY_IDS = {
    "integers": [3, 0, 2**62],
    "negative integers": [-3, 5, -(2**63)],
    "integers longer than 64 bits": [2**80, -1, 5],
    "integers just too long": [2**63, -1, 5],
    "text": ["b", "a", "A"],
    "unicode": ["Ünal", "李", "🎬"],
    "text that looks like numbers": ["1", "01", "1.0"],
    "tuples": [("a", 1), ("a", 2), ()],
    "tuples of one length": [("a", 1), ("a", 2), ("b", 1)],
    "booleans": [True, False, True],
    "floats": [0.5, -1.25, 3.0],
    "bytes": [b"x", b"", b"\xff"],
    "dates": [dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "datetimes": [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC), None],
    "enums": [Colour.RED, Colour.RED, Colour.RED],
    "frozen sets": [frozenset("ab"), frozenset(), frozenset("b")],
    "mixed": [1, "1", (1,)],
    "integers and floats": [1, 2.5, 2],
}
MANY_IDS["datetimes"][2] = dt.datetime(1970, 1, 1)


@pytest.mark.parametrize("given_ids", MANY_IDS.values(), ids=MANY_IDS.keys())
def test_ids_come_back_as_they_went_in(given_ids):
    seen = observe([(label, row, 1.0) for row, label in enumerate(given_ids)])
    returned = [cell[0] for cell in seen.decode()]
    assert returned == given_ids
    assert list(map(type, returned)) == list(map(type, given_ids))
    assert seen.ids[0].lookup(given_ids).tolist() == seen.codes[0].tolist()


@pytest.mark.parametrize(
    "column",
    [
        np.array([3, 1, 3], dtype=np.uint8),
        np.array([2**64 - 1, 1, 1], dtype=np.uint64),
        np.array([0.5, 1.0, 0.5], dtype=np.float32),
        np.array(["b", "a", "b"]),
        np.array([b"b", b"a", b"b"]),
        np.array([True, False, True]),
        [np.int16(4), np.int64(4), 9],
        [np.str_("b"), "a", "b"],
        [np.bool_(True), "a", "b"],
        pd.Series([2, 1, 2], dtype="Int64"),
        pd.Series(["b", "a", "b"], dtype="category"),
        pl.Series([2, 1, 2], dtype=pl.UInt64),
        pl.Series([2, 1, 2], dtype=pl.Int128),
        pl.Series([dt.date(2024, 1, 1), dt.date(2023, 1, 1), dt.date(2024, 1, 1)]),
    ],
    ids=lambda column: f"{type(column).__module__} {getattr(column, 'dtype', type(column[0]))}",
)
def test_ids_of_numpy_and_frames_come_back_as_python_objects(column):
    ids, codes = Ids.encode(column, "user")
    returned = ids.labels[codes].tolist()
    expected = [entry.item() if isinstance(entry, np.generic) else entry for entry in list(column)]
    assert returned == expected
    assert not any(isinstance(label, np.generic) for label in returned)


def test_dates_of_numpy_stay_dates():
    days = np.array(["2024-02-29", "2023-01-01", "2024-02-29"], dtype="datetime64[ns]")
    ids, codes = Ids.encode(days, "day")
    assert ids.labels[codes].tolist() == list(days)
    assert len(ids) == 2
    assert ids.lookup(days).tolist() == codes.tolist()


def test_integer_ids_are_numbered_in_order_and_kept_thin():
    for wide in (1, 10**12):
        ids, codes = Ids.encode(np.array([30, -10, 20, 30]) * wide, "user")
        assert ids.labels.dtype == np.int64
        assert ids.labels.tolist() == [-10 * wide, 20 * wide, 30 * wide]
        assert codes.dtype == np.int32
        assert codes.tolist() == [2, 0, 1, 2]


def test_lookup_follows_python_equality():
    integers, _ = Ids.encode([1, 2], "user")
    assert integers.lookup([1.0, 2.5]).tolist() == [0, -1]
    assert integers.lookup(["1", "2"]).tolist() == [-1, -1]
    assert integers.lookup([1, "x"]).tolist() == [0, -1]
    texts, _ = Ids.encode(["1", "2"], "user")
    assert texts.lookup([1, 2]).tolist() == [-1, -1]
    floats, _ = Ids.encode([2.0, 1.0], "user")
    assert floats.lookup([1, 2, 3]).tolist() == [0, 1, -1]


def test_extend_keeps_numbers_and_appends_new_ids():
    ids, _ = Ids.encode([10, 20], "user")
    more, codes = ids.extend([5, 20, 5, 40])
    assert more.labels.tolist() == [10, 20, 5, 40]
    assert codes.tolist() == [2, 1, 2, 3]
    assert more.lookup([5, 10, 40, 7]).tolist() == [2, 0, 3, -1]
    mixed, codes = more.extend(["x", 10])
    assert mixed.labels.tolist() == [10, 20, 5, 40, "x"]
    assert codes.tolist() == [4, 0]
    assert ids.extend([20])[0] is ids


def test_ids_are_equal_when_names_and_labels_are():
    ids, _ = Ids.encode([("a", 1), ("b", 2)], "user")
    assert ids == Ids.encode([("a", 1), ("b", 2)], "user")[0]
    assert ids != Ids.encode([("a", 1), ("b", 2)], "item")[0]
    assert ids != Ids.encode([("a", 1), ("b", 3)], "user")[0]
    assert ids != "user"
    assert repr(ids) == "Ids(2 user)"


def test_ids_can_be_pickled_without_their_caches():
    ids, _ = Ids.encode(["a", "b"], "user")
    ids.lookup(["a"])
    copy = pickle.loads(pickle.dumps(ids))
    assert copy == ids
    assert vars(copy).keys() == {"labels", "name"}


LABELS = st.one_of(
    st.integers(),
    st.text(max_size=3),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.binary(max_size=2),
    st.tuples(st.integers(0, 2), st.text(max_size=1)),
    st.dates(),
)


@given(st.one_of(st.lists(LABELS), st.lists(st.integers(-3, 3)), st.lists(st.floats(0, 1))))
def test_encode_and_lookup_are_inverse(column):
    ids, codes = Ids.encode(column, "user")
    assert ids.labels[codes].tolist() == column
    assert len(ids) == len(set(column))
    assert ids.lookup(column).tolist() == codes.tolist()


@given(st.lists(LABELS), st.lists(LABELS))
def test_extend_agrees_with_lookup(known, column):
    ids, codes = Ids.encode(known, "user")
    more, new_codes = ids.extend(column)
    assert more.labels[new_codes].tolist() == column
    assert more.lookup(known).tolist() == codes.tolist()
    assert len(more) == len({*known, *column})


def test_two_modes_cost_twelve_bytes_an_observation():
    seen = observe(np.argwhere(np.ones((30, 40))), np.ones(1200, dtype=np.float64))
    assert seen.nbytes == 12 * 1200
    assert {codes.dtype for codes in seen.codes} == {np.dtype(np.int32)}
    assert seen.values.dtype == np.float32


def test_repr_counts_observations_and_ids():
    assert repr(observe(pd.DataFrame(COLUMNS))) == "Observations(3 of 2 who x 2 what)"
    thousand = observe(np.argwhere(np.ones((50, 40))), np.ones(2000))
    assert repr(thousand) == "Observations(2,000 of 50 user x 40 item)"


def test_take_and_decode_select_rows():
    seen = observe(CELLS, STARS, time=[10, 20, 30])
    assert seen.take(np.array([2, 0])).decode() == [CELLS[2], CELLS[0]]
    picked = seen.take(seen.values > 1)
    assert picked.values.tolist() == [5.0, 3.5]
    assert picked.time.tolist() == [10, 20]
    assert picked.ids is seen.ids
    assert seen.take(slice(0, 0)).decode() == []
    assert seen.decode(np.array([1])) == [CELLS[1]]


def test_names_come_from_the_frame_or_from_the_number_of_modes():
    assert observe(pl.DataFrame(COLUMNS)).names == ("who", "what")
    assert observe(TRIPLES).names == ("user", "item")
    assert observe(pd.DataFrame(TRIPLES)).names == ("user", "item")
    assert observe(CELLS, STARS).names == ("user", "item")
    assert observe([(1, 2, 3, 4.0), (1, 2, 4, 5.0)]).names == ("mode0", "mode1", "mode2")


REPEATED = [("a", "x", 1.0), ("b", "x", 9.0), ("a", "x", 2.0), ("a", "y", 7.0), ("a", "x", 6.0)]


def test_duplicates_last_keeps_the_last_row_in_its_place():
    seen = observe(REPEATED, duplicates="last")
    assert seen.decode() == [("b", "x"), ("a", "y"), ("a", "x")]
    assert seen.values.tolist() == [9.0, 7.0, 6.0]


def test_duplicates_mean_takes_the_place_of_the_first_row():
    seen = observe(REPEATED, duplicates="mean", time=[5, 6, 7, 8, 9])
    assert seen.decode() == [("a", "x"), ("b", "x"), ("a", "y")]
    assert seen.values.tolist() == [3.0, 9.0, 7.0]
    assert seen.time.tolist() == [5, 6, 8]


def test_duplicates_are_found_where_cells_are_too_many_for_64_bits():
    X = np.repeat(np.arange(256)[:, None], 9, axis=1)  # 2**72 cells
    differs_in_one_mode = np.vstack([X, [0] + [1] * 8])
    assert len(observe(differs_in_one_mode, np.ones(257))) == 257
    twice = np.vstack([X, X[5:7]])
    with pytest.raises(DataError, match=r"2 cells .* in rows 5 and 256;"):
        observe(twice, np.ones(258))
    assert len(observe(twice, np.ones(258), duplicates="last")) == 256


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 9)), min_size=9, max_size=30
    )
)
def test_duplicates_agree_with_a_dict(rows):
    last = {(user, item): value for user, item, value in rows}
    if len(last) < 2:
        return
    seen = observe(rows, duplicates="last")
    assert dict(zip(seen.decode(), seen.values.tolist(), strict=True)) == last
    means = observe(rows, duplicates="mean")
    assert means.decode() == list(last)
    for cell, value in zip(means.decode(), means.values, strict=True):
        assert value == pytest.approx(np.mean([row[2] for row in rows if row[:2] == cell]))


def test_known_ids_keep_their_numbers_and_one_new_observation_is_enough():
    known = observe(TRIPLES).ids
    seen = observe([("cat", "Brazil", 1.0)], ids=known)
    assert [codes.tolist() for codes in seen.codes] == [[2], [1]]
    assert seen.ids[0].labels.tolist() == ["ann", "bob", "cat"]
    assert seen.ids[1] == known[1]


def test_observations_are_returned_as_they_are_or_renumbered():
    seen = observe(TRIPLES)
    assert observe(seen) is seen
    other = observe([("zoe", "Alien", 1.0), ("bob", "Casablanca", 2.0)])
    moved = observe(seen, ids=other.ids)
    assert moved.decode() == seen.decode()
    assert moved.shape == (3, 3)
    assert moved.codes[0].tolist() == [2, 1, 2]


def test_encode_ids_says_minus_one_for_unknown_ids():
    ids = observe(TRIPLES).ids
    users, items = encode_ids([["bob", "Brazil"], ["eve", "Alien"]], ids)
    assert users.tolist() == [1, -1]
    assert items.tolist() == [1, 0]
    users, items = encode_ids(np.empty((0, 2)), ids)
    assert len(users) == len(items) == 0


def test_encode_ids_matches_columns_by_name_where_names_agree():
    ids = observe(pd.DataFrame(COLUMNS)).ids
    swapped = pl.DataFrame({"what": ["Brazil"], "who": ["bob"]})
    assert [codes.tolist() for codes in encode_ids(swapped, ids)] == [[1], [1]]
    renamed = pl.DataFrame({"film": ["bob"], "who": ["Brazil"]})
    with pytest.raises(DataError, match="X needs the id columns who, what, in any order; it has"):
        encode_ids(renamed, ids)


def test_encode_ids_maps_observations():
    train = observe(TRIPLES)
    test = observe([("eve", "Brazil", 1.0), ("bob", "Alien", 2.0), ("eve", "Alien", 1.0)])
    assert [codes.tolist() for codes in encode_ids(test, train.ids)] == [[-1, 1, -1], [1, 0, 0]]


def test_id_columns_come_in_the_order_of_the_modes():
    ids = observe(pd.DataFrame(COLUMNS)).ids
    swapped = pl.DataFrame({"what": ["Brazil"], "stars": [1.0], "who": ["bob"]})
    assert [(c.name, list(c.entries)) for c in id_columns(swapped, ids)] == [
        ("who", ["bob"]),
        ("what", ["Brazil"]),
    ]
    assert [list(c.entries) for c in id_columns(np.array([[1, 2], [3, 4]]), ids)] == [
        [1, 3],
        [2, 4],
    ]
    assert [list(c.entries) for c in id_columns(observe(TRIPLES), ids)] == [
        ["ann", "bob", "ann"],
        ["Alien", "Alien", "Brazil"],
    ]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ([1, 2, 3], np.array([1, 2, 3])),
        (np.array([0.5, 1, 2]), np.array([0.5, 1.0, 2.0])),
        (np.array(["1970-01-02"] * 3, dtype="datetime64[D]"), np.full(3, 86400)),
        ([dt.datetime(1970, 1, 1, 0, 1)] * 3, np.full(3, 60)),
        (pd.Series(pd.to_datetime(["1970-01-02"] * 3)), np.full(3, 86400)),
        (pd.Series(pd.to_datetime(["1970-01-02"] * 3)).dt.tz_localize("UTC"), np.full(3, 86400)),
        (pl.Series([dt.date(1970, 1, 2)] * 3), np.full(3, 86400)),
    ],
    ids=["integers", "floats", "numpy", "datetimes", "pandas", "pandas with a zone", "polars"],
)
def test_times_become_unix_seconds(time, expected):
    seen = observe(CELLS, STARS, time=time)
    assert seen.time.dtype == expected.dtype
    assert seen.time.tolist() == expected.tolist()


def test_a_column_vector_of_values_warns_and_works():
    with pytest.warns(DataConversionWarning, match="column-vector"):
        assert same(observe(CELLS, np.array(STARS)[:, None]), observe(TRIPLES))


class OnlyAnArray:
    """Nothing but what numpy asks for."""

    def __init__(self, data):
        self.data = np.asarray(data)

    def __array__(self, dtype=None, copy=None):
        return self.data


def test_anything_numpy_can_read_is_a_table():
    assert same(
        observe(OnlyAnArray([[1, 2], [3, 4]]), OnlyAnArray([1, 2])), observe([(1, 2, 1), (3, 4, 2)])
    )


def frame_with(name, entries):
    return pd.DataFrame(COLUMNS | {name: entries})


BAD_TABLES = {
    "None among ids": (
        [("a", "x", 1), (None, "x", 2)],
        None,
        ["Row 1", "'user'", "None", "drop the row"],
    ),
    "NaN among text ids": (
        [("a", "x", 1), ("b", float("nan"), 2)],
        None,
        ["Row 1", "'item'", "nan"],
    ),
    "NaN among float ids": (np.array([[1.0, 2.0], [np.nan, 1.0]]), [1, 2], ["Row 1", "NaN"]),
    "an infinite id": (np.array([[1.0, 2.0], [2.0, -np.inf]]), [1, 2], ["Row 1", "'item'", "-inf"]),
    "an infinite id among text": ([("a", 1), (np.inf, 2)], [1, 2], ["Row 1", "'user'", "inf"]),
    "NA of pandas among objects": ([("a", 1), (pd.NA, 2)], [1, 2], ["Row 1", "'user'", "<NA>"]),
    "NaT of pandas among objects": ([(pd.NaT, 1), ("b", 2)], [1, 2], ["Row 0", "'user'", "NaT"]),
    "NaT of numpy": (
        pd.DataFrame({"day": pd.to_datetime(["2024-01-01", None]), "site": ["a", "b"]}),
        [1, 2],
        ["Row 1", "'day'"],
    ),
    "null in a polars column": (
        pl.DataFrame({"who": ["a", None], "what": [1, 2], "stars": [1, 2]}),
        None,
        ["Row 1", "'who'", "null"],
    ),
    "null in an integer column of pyarrow": (
        pa.table({"who": [1, 2, None], "what": [1, 2, 3], "stars": [1, 2, 3]}),
        None,
        ["Row 2", "'who'", "null"],
    ),
    "missing text in pandas": (
        frame_with("what", ["Alien", "Alien", None]),
        None,
        ["Row 2", "'what'"],
    ),
    "an id that cannot be hashed": (
        [("a", [1, 2], 3.0), ("b", "x", 1.0)],
        None,
        ["Row 0", "'item'", "[1, 2]", "hashable"],
    ),
    "complex ids": (np.ones((2, 2), complex), [1, 2], ["Complex data not supported"]),
    "complex values": (CELLS, np.ones(3, complex), ["Complex data not supported", "y"]),
    "NaN among values": (CELLS, [1.0, np.nan, 2.0], ["Row 1 of y", "NaN", "not a finite number"]),
    "an infinite value": (CELLS, np.array([1.0, 2.0, np.inf]), ["Row 2 of y", "inf"]),
    "a value too large for float32": (CELLS, [1.0, 1e39, 2.0], ["Row 1 of y", "1e+39", "float32"]),
    "None among values": (CELLS, [1.0, None, 2.0], ["Row 1 of y", "no value", "None"]),
    "NA among values": (
        frame_with("stars", pd.array([1, 2, None], dtype="Int64")),
        None,
        ["Row 2", "'stars'", "NaN"],
    ),
    "text among values": (CELLS, [1.0, 2.0, "n/a"], ["Row 2 of y", "'n/a'", "not a number"]),
    "text that could be a number": (CELLS, ["5", "4", "3"], ["Row 0 of y", "'5'", "convert"]),
    "text in the value column of a frame": (
        frame_with("stars", ["5", "4", "3"]),
        None,
        ["Row 0", "column 'stars'", "'5'"],
    ),
    "dates as values": (CELLS, np.array(["2024"] * 3, "datetime64[D]"), ["Row 0 of y", "2024"]),
    "an empty frame": (pd.DataFrame({"a": [], "b": [], "c": []}), None, ["empty", "0 rows"]),
    "an empty list": ([], None, ["empty", "0 rows"]),
    "an empty array": (np.empty((0, 3)), [], ["empty", "0 rows"]),
    "a single row": ([("a", "x", 1.0)], None, ["single observation", "n_samples = 1", "2"]),
    "one column of ids": (
        np.ones((4, 1)),
        np.ones(4),
        ["1 feature(s) (shape=(4, 1))", "2 or more"],
    ),
    "no column": (np.ones((12, 0)), np.ones(12), ["0 feature(s) (shape=(12, 0)) while a minimum"]),
    "ids and value but one id column": ([("a", 1.0), ("b", 2.0)], None, ["1 feature", "last one"]),
    "one dimension": (np.arange(5), np.arange(5), ["Expected 2D array", "Reshape your data"]),
    "a list of ids": (["ann", "bob"], [1, 2], ["Expected 2D array", "[('ann', 'Alien')]"]),
    "a series": (pd.Series([1, 2]), [1, 2], ["Expected 2D array, got 1D"]),
    "three dimensions": (np.ones((2, 2, 2)), [1, 2], ["Expected 2D array, got 3D"]),
    "rows of different length": ([("a", "x", 1), ("b", 2)], None, ["Row 1", "2 entries", "3"]),
    "a dict": ({"a": [1]}, [1], ["frame", "dict"]),
    "a lazy frame": (pl.LazyFrame(COLUMNS), None, ["lazy", "collect()"]),
    "two columns of one name": (
        pd.DataFrame(TRIPLES, columns=["a", "a", "b"]),
        None,
        ["no two are alike", "'a'"],
    ),
    "values of another length": (CELLS, [1.0, 2.0], ["same length", "3 and 2"]),
    "values in two columns": (CELLS, np.ones((3, 2)), ["y should be a 1d array", "(3, 2)"]),
    "a sparse matrix and values": (scipy.sparse.eye_array(3), [1, 2, 3], ["sparse", "leave out y"]),
    "a sparse vector": (scipy.sparse.coo_array(np.ones(3)), None, ["1 feature(s)"]),
    "observations and values": (observe(TRIPLES), STARS, ["leave out y"]),
    "one cell twice": (
        [("ann", "Alien", 1), ("bob", "Alien", 2), ("ann", "Alien", 3)],
        None,
        ["1 cell is", "('ann', 'Alien') in rows 0 and 2", "duplicates='last'"],
    ),
    "three cells more than once": (
        [(k % 3, 0, k) for k in range(8)],
        None,
        ["3 cells are", "(0, 0) in rows 0 and 3", "duplicates='mean'"],
    ),
    "a sparse matrix with an entry twice": (
        scipy.sparse.coo_array(([1.0, 2.0], ([1, 1], [0, 0])), shape=(2, 2)),
        None,
        ["1 cell is", "(1, 0)"],
    ),
}


@pytest.mark.parametrize(("X", "y", "parts"), BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_a_bad_table_gets_its_own_error(X, y, parts):
    with pytest.raises(DataError) as caught:
        observe(X, y)
    for part in parts:
        assert part in str(caught.value)


def test_duplicates_that_leave_a_single_observation_are_an_error():
    with pytest.raises(DataError, match="single observation"):
        observe([(1, 1, 2.0), (1, 1, 3.0)], duplicates="mean")


def test_an_unknown_choice_for_duplicates_is_an_error():
    with pytest.raises(ValueError, match="'error', 'last' or 'mean'; got 'first'"):
        observe(TRIPLES, duplicates="first")


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ([1, 2], r"one entry per row, 3; got shape \(2,\)"),
        ([1.0, np.nan, 2.0], "Row 1 of time is nan"),
        (np.array(["2024", "NaT", "2024"], "datetime64[D]"), "Row 1 of time is NaT"),
        (["1", "2", "3"], "unix seconds or dates; got <U1"),
        ([object(), 1, 2], "unix seconds or dates"),
    ],
    ids=["too few", "NaN", "NaT", "text", "objects"],
)
def test_bad_times_are_an_error(time, message):
    with pytest.raises(DataError, match=message):
        observe(CELLS, STARS, time=time)


def test_lookup_refuses_a_missing_id():
    ids = observe(TRIPLES).ids
    with pytest.raises(DataError, match="Row 1 of column 'item' has no id: found None"):
        encode_ids([("ann", "Alien"), ("ann", None)], ids)


def test_predicting_with_the_wrong_number_of_columns_is_an_error():
    ids = observe(TRIPLES).ids
    message = "X has 3 features, but noisewise is expecting 2 features as input: .* user, item."
    with pytest.raises(DataError, match=message):
        encode_ids(TRIPLES, ids)
    with pytest.raises(DataError, match="X has 1 features"):
        encode_ids([["ann"]], ids)
    with pytest.raises(DataError, match=re.escape("Reshape your data")):
        encode_ids(("ann", "Alien"), ids)


def test_ids_of_two_dimensions_are_an_error():
    with pytest.raises(DataError, match=r"'user' must have one dimension; got shape \(2, 2\)"):
        Ids.encode(np.ones((2, 2)), "user")


def test_observations_cannot_be_changed_by_accident():
    with pytest.raises(AttributeError):
        observe(TRIPLES).values = np.zeros(3)
    assert same(pickle.loads(pickle.dumps(observe(TRIPLES))), observe(TRIPLES))


def test_a_whole_number_beyond_all_floats_is_an_error_that_names_its_row():
    with pytest.raises(DataError, match="Row 1 of y is inf"):
        observe(CELLS, [5, 10**400, 3])


def test_a_masked_array_is_taken_only_where_nothing_of_it_is_masked():
    X, hidden = np.array([[1, 2], [1, 3], [2, 2]]), [False, True, False]
    for masked in (np.ma.array(STARS, mask=hidden), np.ma.array(X, mask=np.c_[hidden, hidden])):
        with pytest.raises(DataError, match="is masked in part: leave out what is"):
            observe(*((X, masked) if masked.ndim == 1 else (masked, STARS)))
    assert same(observe(np.ma.array(X), np.ma.array(STARS)), observe(X, STARS))
