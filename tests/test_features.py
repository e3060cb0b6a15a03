"""Tables of features: how columns are read and encoded, and what is refused."""

import datetime
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse

from noisewise import DataError, read_features
from noisewise.data.features import SideTable, by_mode, taken_apart
from noisewise.data.fields import MISSING, OTHER, learn_field
from noisewise.data.ids import Ids
from noisewise.errors import DataWarning

AGES = [18, 25, 35, 44, 51, 62, 70, 29]
WORDS = [["a", "b"], ["a"], None, ["b", "c"], ["a", "c"], ["c"], ["b"], ["a"]]


def learn(table, n=8, name="user"):
    ids, _ = Ids.encode(list(range(n)), name)
    return SideTable.learn(table, ids, np.ones(n, dtype=np.int64))


def test_lists_are_words_with_a_feature_each():
    field = learn_field("genre", WORDS)
    assert (field.kind, field.words) == ("words", ("a", "b", "c"))
    np.testing.assert_array_equal(field.encode([["b", "a", "b"], ["new"], None]).toarray(),
                                  [[1, 1, 0], [0, 0, 0], [0, 0, 0]])  # fmt: skip


@pytest.mark.parametrize("mark", [" ", "|", ", ", ";"])
def test_text_of_few_different_words_is_words(mark):
    texts = [mark.join(words) for words in (["x", "y"], ["x"], ["y", "z"], ["x", "z"], ["z"])] * 3
    field = learn_field("genre", [*texts, ""])
    assert (field.kind, field.words) == ("words", ("x", "y", "z"))
    np.testing.assert_array_equal(field.encode([mark.join(["z", "y"])]).toarray(), [[0, 1, 1]])


def test_other_text_is_categories_and_rare_ones_are_one_together():
    field = learn_field("city", ["New York"] * 3 + ["Rome"] * 4 + ["Bern", "Oslo", "Kiel"])
    assert (field.kind, field.words) == ("category", ("New York", "Rome", OTHER))
    encoded = field.encode(["Rome", "Bern", "Paris", None]).toarray()
    np.testing.assert_array_equal(encoded, [[0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]])


def test_missing_entries_are_a_category_where_they_are_common():
    field = learn_field("city", ["Rome"] * 3 + [None, float("nan"), ""])
    assert field.words == (MISSING, "Rome")
    np.testing.assert_array_equal(field.encode([None, "Rome"]).toarray(), [[1, 0], [0, 1]])
    number = learn_field("age", [*np.linspace(0, 9, 40), None, None, np.nan])
    encoded = number.encode([None, 3.0]).toarray()
    np.testing.assert_array_equal(encoded[0], [0.0] * (len(number) - 1) + [1.0])
    assert encoded[1].sum() == pytest.approx(1.0)


def test_few_whole_numbers_are_categories_and_many_are_a_curve():
    assert learn_field("group", [1, 18, 25] * 4).words == ("1", "18", "25")
    assert learn_field("age", list(range(40))).kind == "number"
    assert learn_field("weight", [1.5, 2.5, 3.5] * 4).kind == "number"
    day = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    dates = [day + datetime.timedelta(days=k) for k in range(40)]
    assert learn_field("since", dates).kind == "number"


def test_a_curve_is_the_same_beyond_its_ends_and_smooth_between():
    field = learn_field("age", list(np.linspace(0.0, 1.0, 50)))
    ends, inside = field.encode([-9.0, 0.0, 1.0, 9.0]).toarray(), field.encode([0.4, 0.4001])
    np.testing.assert_allclose(ends[0], ends[1])
    np.testing.assert_allclose(ends[2], ends[3])
    assert np.abs(np.diff(inside.toarray(), axis=0)).max() < 0.01


def test_yes_and_no_are_one_feature():
    field = learn_field("new", [True, False, True])
    assert len(field) == 1
    assert learn_field("new", [0, 1, 1]) == field


def test_what_is_alike_for_all_or_different_for_each_is_no_feature():
    assert learn_field("same", ["x"] * 9) is None
    assert learn_field("same", [3.5] * 9) is None
    assert learn_field("name", [f"name{k}" for k in range(9)]) is None


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_tables_of_any_library_are_encoded_alike(make):
    columns = {"userId": list(range(8)), "age": [*AGES[:-1], None], "genre": WORDS}
    table, plain = learn(make(columns)), learn(columns)
    assert table.fields == plain.fields
    np.testing.assert_array_equal(table.matrix.toarray(), plain.matrix.toarray())


def test_ids_may_be_the_index_of_a_frame():
    frame = pd.DataFrame({"city": ["a", "b"] * 4}, index=[7, 6, 5, 4, 3, 2, 1, 0])
    np.testing.assert_array_equal(learn(frame).rows([7, 6]).toarray(), [[1, 0], [0, 1]])


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_arrays_come_with_their_ids(make):
    array = np.arange(16.0).reshape(8, 2) % 5
    table = learn((list(range(8)), make(array)))
    assert len(table) == 2
    assert np.ptp(table.matrix.toarray(), axis=0).min() > 0


def test_order_of_rows_does_not_matter_and_unknown_ids_are_left_out():
    order = [3, 1, 0, 2, 7, 5, 6, 4]
    columns = {"user": [*order, 99], "city": [*(list("aabb") * 2), "a"]}
    table = learn(columns)
    np.testing.assert_array_equal(table.rows([3, 4, 99]).toarray(), [[1, 0], [0, 1], [1, 0]])
    assert table.places([3, "x"]).tolist()[1] == -1


def test_more_ids_are_encoded_like_the_first():
    table = learn({"user": range(8), "city": list("aaaabbbb"), "age": AGES})
    more = table.extended({"user": [8, 0], "city": ["b", "b"]})
    assert len(more.ids) == 9
    np.testing.assert_array_equal(more.rows([8, 0, 1]).toarray()[:, :2], [[0, 1], [0, 1], [1, 0]])
    one = table.one({"city": "a"}).toarray()
    np.testing.assert_array_equal(one[0, :2], [1, 0])


def test_a_column_that_may_be_misspelt_draws_a_warning():
    table = learn({"user": range(8), "city": list("aaaabbbb"), "height": np.array(AGES) / 100})
    with pytest.warns(DataWarning, match="lack the columns height, which .* and have hight, which"):
        table.extended({"user": [8], "city": ["b"], "hight": [0.3]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.extended({"user": [8], "city": ["b"], "height": [0.3], "shoe size": [40]})


def test_modes_are_found_by_name_by_number_or_as_users_and_items():
    assert by_mode({"who": 1, 1: 2}, ["who", "film"]) == {0: 1, 1: 2}
    assert by_mode({"user": 1, "item": 2}, ["userId", "movieId"]) == {0: 1, 1: 2}
    with pytest.raises(DataError, match="has a table of 'shop', but the ids are of user, item"):
        by_mode({"shop": 1}, ["user", "item"])
    with pytest.raises(DataError, match="two tables of user"):
        by_mode({"user": 1, 0: 2}, ["user", "item"])
    with pytest.raises(DataError, match="must be a dict of tables"):
        by_mode([1], ["user", "item"])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"user": [1, 1], "age": [2, 3]}, "id 1 in rows 0 and 1: give each id once"),
        ({"user": [1, 2], "age": [2]}, "one length; got 2 ids, and 1 entries of 'age'"),
        ({"age": [2]}, "need a column of ids called 'user' or 'id'; found age"),
        ({"user": [None], "age": [2]}, "has no id"),
        ({"user": [], "age": []}, "are empty"),
        (3, "must be a frame, a dict of columns, or a pair"),
        (([1], np.zeros(3)), "need an array of numbers, a row for each id; got float64"),
        (([1], [["x"]]), "need an array of numbers"),
        (([1], np.array([[np.inf]])), "must be finite"),
    ],
)
def test_broken_tables_are_refused_in_a_sentence(table, words):
    with pytest.raises(DataError, match=words):
        taken_apart(table, "user")


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([1.5, float("inf"), 2.5, 3.5], "Row 1 of the feature 'age' is inf"),
        ([1.5, 1e200, 2.5, 3.5], "Row 1 of the feature 'age'"),
        ([1.5, {}, 2.5, 3.5], "Row 1 of the feature 'age' is {}"),
        (["a", ("b",), "c", "d"] * 2, None),
        (["a", {}, "c", "d"], "single values"),
    ],
)
def test_entries_that_are_none_are_refused_with_their_row(column, words):
    if words is None:  # words, some of them in lists
        assert learn_field("age", column * 2).kind == "words"
        return
    with pytest.raises(DataError, match=words):
        learn_field("age", column)


def test_tables_that_say_nothing_of_the_ids_are_refused():
    with pytest.raises(DataError, match="None of the 8 ids of user is among the 2"):
        learn({"user": ["0", "1"], "city": ["a", "b"]})
    with pytest.raises(DataError, match="tell no two ids apart"):
        learn({"user": range(8), "city": ["a"] * 8})
    with pytest.warns(UserWarning, match="Only 25% of the ids of user have features"):
        learn({"user": [0, 1], "new": [True, False]})


def test_files_are_read_by_their_columns(tmp_path):
    text = tmp_path / "films.tsv"
    text.write_text("movieId\tyear\tzip\tgenres\n1\t1999\t02134\tDrama|War\n2\t\t10001\t\n")
    expected = {
        "item": [1, 2],
        "year": [1999.0, None],
        "zip": ["02134", "10001"],
        "genres": ["Drama|War", None],
    }
    assert read_features(text, "item") == expected
    table = tmp_path / "films.parquet"
    pa.parquet.write_table(pa.table({"id": [1, 2], "genres": [["Drama"], None]}), table)
    assert read_features(table, "item") == {"item": [1, 2], "genres": [["Drama"], None]}


def test_arrays_of_npz_go_by_their_ids_or_by_those_of_ratings(tmp_path):
    ratings, features = tmp_path / "r.npz", tmp_path / "f.npz"
    np.savez(ratings, user=[0, 1], item=[0, 0], rating=[1, 2], user_id=[7, 9], item_id=[3])
    np.savez(features, age=[30, 40], year=[1999])
    found = read_features(features, "user", ids=ratings)
    assert {name: array.tolist() for name, array in found.items()} == {
        "user": [7, 9], "age": [30, 40],
    }  # fmt: skip
    assert read_features(features, "item", ids=ratings)["year"].tolist() == [1999]
    with pytest.raises(DataError, match="no array 'user' or 'id' that holds the ids"):
        read_features(features, "user")
    np.savez(features, user_id=[7, 9], age=[30, 40], year=[1999])
    assert set(read_features(features, "user")) == {"user", "age"}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "user,age\n", "no rows below line 1"),
        ("a.csv", "user,user\n1,2\n", "name every column once"),
        ("a.csv", "age\n3\n", "column of ids called 'user'"),
        ("a.csv", "user,age\n1\n", "line 2"),
        ("a.pdf", "x", "features are read from files"),
        ("a.npz", "PK\x03\x04", "damaged"),
    ],
)
def test_broken_files_are_refused_in_a_sentence(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        read_features(path, "user")
    with pytest.raises(DataError, match="There is no file"):
        read_features(tmp_path / "missing.csv", "user")


def test_a_column_of_an_array_of_which_nothing_is_known_says_nothing():
    array = np.array([[1.0, np.nan], [2.0, np.nan], [4.0, np.nan]])
    found = learn_field("x", array).encode(array).toarray()
    assert (found[:, 1] == 0).all()
    assert found[:, 0].std() == pytest.approx(1.0)


def test_a_word_among_numbers_that_makes_them_categories_draws_a_warning():
    ages = [20 + 0.5 * k for k in range(40)]
    with pytest.warns(DataWarning, match="'age' is taken to be categories, as row 3 is 'unknown'"):
        learn_field("age", [*ages[:3], "unknown", *ages[4:]])
    with pytest.warns(DataWarning, match="row 3 is 'unknown'"):
        learn_field("age", [*map(str, ages[:3]), "unknown", "", *map(str, ages[5:])])
    for column in (["1", "2", "A", "B"] * 10, [str(age) for age in ages], [*ages[:39], None]):
        learn_field("column", column)
