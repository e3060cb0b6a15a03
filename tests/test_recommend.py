"""Lists: what brute force would give, who is left out, and who is similar."""

import warnings
from datetime import date, timedelta

import numpy as np
import pytest

from noisewise import BayesianFactorizer, DataError, DeviationFactorizer, load, recommend
from noisewise.errors import DataWarning, SettingError
from noisewise.models import lists

N_USERS, N_ITEMS = 30, 20


@pytest.fixture(scope="module")
def model(small_world):
    # Without a range of values there are no ties at its ends.
    chosen = {"rank": 3, "deviation_rank": 2, "value_range": None, "random_state": 0, "n_jobs": 1}
    return DeviationFactorizer(**chosen).fit(small_world.X, small_world.y)


@pytest.fixture(scope="module")
def seen(small_world):
    return {user: set(small_world.X[small_world.X[:, 0] == user, 1].tolist()) for user in range(30)}


def brute_force(model, user, n, *, risk=0.0, without=(), items=range(N_ITEMS)):
    """Rank all items by what predict says."""
    left = [item for item in items if item not in without]
    if not left:
        return []
    mean, std = model.predict([(user, item) for item in left], return_std=True)
    order = np.argsort(-(mean - risk * std))[:n]
    return [(left[k], mean[k], std[k]) for k in order]


def assert_same_list(got, expected):
    assert [best.id for best in got] == [id for id, _, _ in expected]
    np.testing.assert_allclose(
        [(best.mean, best.std) for best in got],
        [(mean, std) for _, mean, std in expected],
        rtol=1e-5,
    )


@pytest.mark.parametrize("risk", [0.0, 1.0, -2.0])
@pytest.mark.parametrize("n", [1, 5, 20, 100])
def test_lists_are_those_of_brute_force(model, seen, n, risk):
    for user in range(N_USERS):
        got = model.recommend(user, n, risk=risk)
        assert_same_list(got, brute_force(model, user, n, risk=risk, without=seen[user]))
        everything = model.recommend(user, n, risk=risk, exclude_seen=False)
        assert_same_list(everything, brute_force(model, user, n, risk=risk))


@pytest.mark.parametrize("cells_at_once", [1, 50, 10**6])
def test_many_lists_are_the_same_as_one_by_one_in_chunks_of_any_size(
    model, monkeypatch, cells_at_once
):
    monkeypatch.setattr(recommend, "CHUNK_CELLS", cells_at_once)
    users = [*range(N_USERS), 9_999]
    assert model.recommend_many(users, 4, risk=0.5) == [
        model.recommend(user, 4, risk=0.5) for user in users
    ]
    assert model.recommend_many([]) == []


def test_risk_prefers_the_certain(model):
    safe, plain, bold = (
        np.mean([best.std for user in range(N_USERS) for best in model.recommend(user, 3, risk=r)])
        for r in (3.0, 0.0, -3.0)
    )
    assert safe < plain < bold


def test_candidates_are_the_only_ones_ranked(model, seen):
    chosen = [3, 7, 11, 9_999, 7]
    got = model.recommend(5, 10, candidates=chosen, exclude_seen=False)
    assert_same_list(got, brute_force(model, 5, 10, items=[3, 7, 11]))
    got = model.recommend(5, 10, candidates=iter(chosen))
    assert_same_list(got, brute_force(model, 5, 10, items=[3, 7, 11], without=seen[5]))
    assert model.recommend(5, candidates=[9_999]) == []
    assert model.recommend(5, candidates=[]) == []


def test_a_user_who_has_seen_everything_gets_nothing():
    X = [(user, item) for user in range(3) for item in range(4)]
    model = DeviationFactorizer(rank=1, epochs=3, random_state=0, n_jobs=1).fit(X, range(12))
    assert model.recommend(1) == []
    assert len(model.recommend(1, exclude_seen=False)) == 4


def test_a_user_never_seen_gets_what_is_best_on_average(model):
    got = model.recommend(9_999, 5)
    assert_same_list(got, brute_force(model, 9_999, 5))


def test_an_item_that_was_only_held_out_is_not_recommended(small_world):
    from noisewise import observe

    X, y = small_world.X, small_world.y
    rare = X[:, 1] == 7
    settings = {"rank": 1, "epochs": 5, "refit": False, "random_state": 0, "n_jobs": 1}
    model = DeviationFactorizer(**settings)
    model.fit(X[~rare], y[~rare], validation=observe(X[rare], y[rare]))
    assert len(model.ids_[1]) == N_ITEMS
    assert 7 not in {best.id for best in model.recommend(9_999, 50)}
    assert 7 not in {similar.id for similar in model.similar(3, 50)}


def test_a_newcomer_gets_lists_like_any_other(model):
    new = model.fold_in([1, 2, 3], [5.0, 1.0, 4.0])
    got = new.recommend(5, risk=0.5)
    others = [item for item in range(N_ITEMS) if item not in (1, 2, 3)]
    mean, std = new.predict(others, return_std=True)
    order = np.argsort(-(mean - 0.5 * std))[:5]
    assert_same_list(got, [(others[k], mean[k], std[k]) for k in order])
    assert len(new.recommend(50, exclude_seen=False)) == N_ITEMS
    assert {best.id for best in new.recommend(5, candidates=[1, 9])} == {9}


def test_a_new_item_gets_a_list_of_users(model):
    new = model.fold_in([1, 2], [5.0, 4.0], mode="item")
    got = new.recommend(50)
    assert len(got) == N_USERS - 2
    assert [best.mean for best in got] == sorted((best.mean for best in got), reverse=True)
    users = [best.id for best in got]
    np.testing.assert_allclose(new.predict(users), [best.mean for best in got], rtol=1e-5)


def test_means_in_a_list_stay_within_the_range_of_values(small_world):
    settings = {"rank": 3, "value_range": (2, 3), "random_state": 0, "n_jobs": 1}
    model = DeviationFactorizer(**settings).fit(small_world.X, small_world.y)
    best = model.recommend(4, 3)
    assert {item.mean for item in best} <= {3.0}
    free = model.set_params(value_range=None).fit(small_world.X, small_world.y)
    assert free.recommend(4, 1)[0].id == best[0].id  # clipped only after ranking


@pytest.mark.parametrize(("mode", "size"), [("user", N_USERS), ("item", N_ITEMS), (0, N_USERS)])
def test_similar_ids_are_those_with_the_largest_cosine(model, mode, size):
    rows = np.array([model.row(id, mode=mode).mean for id in range(size)])
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for id in range(size):
        cosine = unit @ unit[id]
        cosine[id] = -np.inf
        expected = np.argsort(-cosine)[:6]
        got = model.similar(id, 6, mode=mode)
        assert [similar.id for similar in got] == expected.tolist()
        np.testing.assert_allclose(
            [similar.similarity for similar in got], cosine[expected], rtol=1e-4, atol=1e-6
        )
    assert len(model.similar(0, 1000, mode=mode)) == size - 1


@pytest.mark.parametrize("n", [0, -1])
def test_a_list_has_at_least_one_place(model, n):
    for ask in (model.recommend, model.similar, model.fold_in([1], [3.0]).recommend):
        with pytest.raises(DataError, match=f"n must be 1 or more; got {n}"):
            ask(*([] if ask.__name__ == "recommend" and ask.__self__ is not model else [3]), n=n)


@pytest.mark.parametrize("n", [2.5, "3", None, True])
def test_the_length_of_a_list_is_a_whole_number(model, n):
    for ask in (model.recommend, model.similar):
        with pytest.raises(DataError, match=f"n must be a whole number, 1 or more; got {n!r}"):
            ask(3, n=n)


def test_a_single_id_where_several_are_meant_is_refused_and_not_read_letter_by_letter(model):
    for wrong in ("12", b"12", 12):
        with pytest.raises(
            DataError, match=f"candidates must be ids in a list, such as .{wrong!r}"
        ):
            model.recommend(3, candidates=wrong)
    with pytest.raises(DataError, match=r"one dimension; got shape \(\): a single id is written"):
        model.recommend_many("12")
    for others, y in ((["12"], [[5.0, 3.0]]), ([1], [5.0]), ([[1]], [5.0])):
        with pytest.raises(DataError, match="needs a list of ids and a list of values for every"):
            model.fold_in_many(others, y)


@pytest.mark.parametrize("risk", [float("nan"), float("inf"), "1", None])
def test_risk_is_a_finite_number(model, risk):
    with pytest.raises(DataError, match="risk must be a finite number"):
        model.recommend(3, risk=risk)


def test_similar_to_an_unknown_id_is_refused(model):
    with pytest.raises(DataError, match="The item 9999 was not seen in training"):
        model.similar(9_999)


@pytest.mark.parametrize("risk", [0.0, 1.0])
@pytest.mark.parametrize("mode", ["user", "item"])
def test_a_table_for_all_has_the_lists_of_each(model, mode, risk):
    table = model.recommend_all(4, mode=mode, risk=risk)
    other = "item" if mode == "user" else "user"
    assert list(table) == [mode, "rank", other, "mean", "std"]
    for id in range(N_USERS if mode == "user" else N_ITEMS):
        mine = table[mode] == id
        expected = model.recommend(id, 4, mode=mode, risk=risk)
        got = zip(*(table[name][mine].tolist() for name in (other, "mean", "std")), strict=True)
        assert list(got) == [tuple(one) for one in expected]
        assert table["rank"][mine].tolist() == list(range(1, len(expected) + 1))


def test_lists_for_items_leave_out_who_has_rated_them(model, seen):
    for item in range(N_ITEMS):
        users = {best.id for best in model.recommend(item, 50, mode=1)}
        assert users == {user for user in range(N_USERS) if item not in seen[user]}


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_table_for_all_is_a_frame_like_the_one_fitted_to(small_world, library, tmp_path):
    frames = pytest.importorskip(library)
    columns = {"who": small_world.X[:, 0], "rank": small_world.X[:, 1], "stars": small_world.y}
    make = frames.table if library == "pyarrow" else frames.DataFrame
    model = DeviationFactorizer(rank=1, epochs=3, random_state=0, n_jobs=1).fit(make(columns))
    model.save(tmp_path / "m.nw")
    for one in (model, load(tmp_path / "m.nw")):
        table = one.recommend_all(2, ids=[3, 4])
        assert isinstance(table, type(make(columns)))
        names = table.column_names if library == "pyarrow" else list(table.columns)
        assert names == ["who", "list_rank", "rank", "mean", "std"]
        assert len(table) == 4
    assert isinstance(model.recommend_all(frame=None), dict)
    with pytest.raises(SettingError, match="frame must be one of"):
        model.recommend_all(frame="csv")


def test_a_table_for_all_goes_to_parquet_in_parts(model, monkeypatch, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    whole = model.recommend_all(3)
    monkeypatch.setattr(lists, "ROWS_AT_ONCE", 7)
    out = tmp_path / "top.parquet"
    assert model.recommend_all(3, out=out) == len(whole["rank"])
    table = parquet.read_table(out)
    assert parquet.ParquetFile(out).num_row_groups > 1
    for name, column in whole.items():
        assert table[name].to_pylist() == column.tolist()
    with pytest.raises(SettingError, match=r"out must end in \.parquet"):
        model.recommend_all(3, out=tmp_path / "top.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["top.parquet"]


def test_the_lists_of_levels_are_ordered_by_what_is_predicted(small_world):
    chosen = {"rank": 2, "sweeps": 30, "burn_in": 10, "random_state": 0, "n_jobs": 1}
    model = BayesianFactorizer(**chosen, likelihood="ordinal")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(small_world.X, np.clip(np.rint(small_world.y), 1, 5))
    for user in (3, 4):
        best = model.recommend(user, 6, exclude_seen=False)
        mean, std = model.predict([(user, one.id) for one in best], return_std=True)
        np.testing.assert_allclose([one[1:] for one in best], np.column_stack([mean, std]), 1e-5)
        assert (np.diff(mean) <= 0).all()


def test_ties_at_the_end_of_the_range_do_not_hide_what_is_best():
    X = [(user, item) for user in range(12) for item in range(8)]
    values = np.tile([1.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0], 12)
    model = DeviationFactorizer(rank=0, epochs=2, random_state=0, n_jobs=1).fit(X, values)
    many = model.recommend_many(range(12), 3, exclude_seen=False)
    assert many == [model.recommend(user, 3, exclude_seen=False) for user in range(12)]


def test_values_beyond_all_levels_draw_a_warning(small_world):
    stars = np.clip(np.rint(small_world.y), 1, 5)
    model = DeviationFactorizer(rank=2, epochs=2, random_state=0).fit(small_world.X, stars)
    model.fold_in([0, 1], [5.0, 1.0])
    with pytest.warns(DataWarning, match="The value 10 is beyond those .* 1 to 5"):
        model.fold_in([0, 1, 2], [5.0, 10.0, 6.0])
    with pytest.warns(DataWarning, match="The value -1 is beyond"):
        model.fold_in_many([[0], [1]], [[5.0], [-1.0]])
    plain = DeviationFactorizer(rank=2, epochs=2, random_state=0)
    plain.fit(small_world.X, small_world.y).fold_in([0], [20.0])


@pytest.mark.parametrize("risk", [1e39, -1e300])
def test_a_risk_beyond_single_precision_ranks_by_the_std_alone(model, risk):
    found = model.recommend(0, 20, risk=risk, exclude_seen=False)
    stds = [best.std for best in found]
    assert len(found) == N_ITEMS
    assert stds == sorted(stds, reverse=risk < 0)


@pytest.mark.parametrize("mode", [True, 1.0, 2, -1, "film", None, np.array([0, 1])])
def test_a_mode_is_a_name_or_a_number(model, mode):
    with pytest.raises(DataError, match="mode must be one of"):
        model.recommend(0, mode=mode)
    assert model.recommend(0, mode=np.int64(1)) == model.recommend(0, mode="item")


@pytest.mark.parametrize("given", [None, 3, "ab"])
def test_many_new_ids_come_in_lists(model, given):
    with pytest.raises(DataError, match="fold_in_many needs two lists"):
        model.fold_in_many(given, given)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (lambda k: k if k < 12 else f"i{k}", "string"),
        (lambda k: (k, "a"), "string"),
        (lambda k: 2**70 + k, "string"),
        (lambda k: k, "int64"),
        (lambda k: np.datetime64("2026-01-01") + k, "string"),
        (lambda k: date(2026, 1, 1) + timedelta(k), "date32[day]"),
    ],
    ids=["mixed", "tuples", "large", "whole", "dates of numpy", "dates"],
)
def test_ids_of_any_type_go_to_parquet_in_parts(small_world, monkeypatch, tmp_path, name, kind):
    order = np.lexsort(small_world.X.T[::-1])  # so that the first parts have one type
    cells = [(name(user), name(item)) for user, item in small_world.X[order].tolist()]
    model = DeviationFactorizer(rank=1, epochs=2, patience=None, random_state=0, n_jobs=1)
    model.fit(cells, small_world.y[order])
    monkeypatch.setattr(lists, "ROWS_AT_ONCE", 7)
    out = tmp_path / "lists.parquet"
    length = model.recommend_all(2, out=out)
    found = pytest.importorskip("pyarrow.parquet").read_table(out)
    assert [str(found.schema.field(k).type) for k in (0, 2)] == [kind, kind]
    assert found.num_rows == length == len(model.recommend_all(2)["rank"])
    for library in ("pandas", "polars", "pyarrow"):
        assert len(model.recommend_all(2, frame=library)) == length
    users = np.array([0, 1])
    if kind == "int64":
        model.recommend_all(2, ids=users, out=out)
        found = pytest.importorskip("pyarrow.parquet").read_table(out)
        assert str(found.schema.field(0).type) == "int64"
