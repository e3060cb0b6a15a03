"""Lists judged by what users rated later, and the simple rivals that they are compared with."""

import gc
import json

import numpy as np
import pytest
from scipy.special import ndtr
from test_cli import run

from noisewise import DataError, SettingError, metrics, observe, propensity, registry
from noisewise.data.ids import Seen
from noisewise.evaluation import ranking, ratings, tuning
from noisewise.evaluation.ranking import Ranking, comparison_of, core_of, judged
from noisewise.evaluation.trials import Choices
from noisewise.models.simple import ItemKNN, Popularity
from noisewise.propensity import PENALTY, Propensity, propensity_of
from noisewise.splits import core, leave_last_out


def world(users=60, items=40, seed=0):
    """Two tastes: users rate what most of their kind rate, one after another."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        liked = np.arange(items) % 2 == user % 2
        chance = np.where(liked, 3.0, 0.3) / (1 + np.arange(items))
        chosen = rng.choice(items, size=8, replace=False, p=chance / chance.sum())
        for k, item in enumerate(chosen.tolist()):
            rows.append((f"u{user}", f"i{item}", 3.0 + liked[item] + rng.normal(0, 0.3), 100 + k))
    table = np.array(rows, dtype=object)
    return table[:, :2], table[:, 2].astype(float), table[:, 3].astype(float)


def observations(**how):
    X, y, time = world(**how)
    return observe(np.column_stack([X, time]), y, time=2)


def test_the_last_rating_of_every_user_is_left_out():
    users = np.array([2, 0, 0, 2, 2, 1, 0, 1])
    split = leave_last_out([1, 5, 9, 7, 7, 3, 6, 4], users)
    assert split.test.tolist() == [2, 4]  # of rows 3 and 4, of the same time, the lower one
    assert split.validation.tolist() == [3, 6]
    assert split.train.tolist() == [0, 1, 5, 7]  # both rows of user 1, who has only two
    with pytest.raises(DataError, match="a user with 3 rows or more"):
        leave_last_out([1, 2, 3], [0, 1, 0])
    with pytest.raises(DataError, match="one code per row, 3; got 2"):
        leave_last_out([1, 2, 3], [0, 1])


def test_a_core_is_the_largest_part_whose_ids_all_have_enough():
    rng = np.random.default_rng(0)
    codes = [rng.integers(30, size=250), rng.integers(30, size=250)]
    rows = core(codes, 5)
    for column in codes:
        counts = np.bincount(column[rows])
        assert counts[counts > 0].min() >= 5
    seen = observations()
    left = core_of(seen, 4)
    assert all(np.bincount(codes).min() >= 4 for codes in left.codes)
    assert set(left.decode()) <= set(seen.decode())
    assert left.time is not None
    with pytest.raises(DataError, match="take a smaller core"):
        core(codes, 1000)
    with pytest.raises(DataError, match="1 or more; got 0"):
        core(codes, 0)


def test_metrics_of_lists_are_those_of_their_definitions():
    ranked = ["a", "b", "c", "d"]
    assert metrics.reciprocal_rank_at(ranked, {"c", "d"}, n=4) == 1 / 3
    assert metrics.reciprocal_rank_at(ranked, {"c"}, n=2) == 0
    assert metrics.hit_at(ranked, {"c"}, n=3) == 1
    assert metrics.hit_at(ranked, {"c"}, n=2) == 0
    assert np.isnan(metrics.hit_at(ranked, [], n=2))
    assert np.isnan(metrics.reciprocal_rank_at(ranked, [], n=2))
    assert metrics.novelty([["x"]], {}, users=4) == 2
    assert np.isnan(metrics.novelty([[]], {"a": 1}, users=4))
    with pytest.raises(DataError, match="relevant ids; got 1 and 2"):
        metrics.rank_metrics([["a"]], [{"a"}, {"b"}], n=1)
    with pytest.raises(DataError, match="catalogue has one id or more"):
        metrics.catalogue_coverage([], 0)
    with pytest.raises(DataError, match="one user or more"):
        metrics.novelty([], {}, 0)


def test_popularity_recommends_what_most_have_rated_and_the_user_has_not():
    X, y, _ = world()
    model = Popularity().fit(X, y)
    names, counts = np.unique(X[:, 1].astype(str), return_counts=True)
    mine = set(X[X[:, 0] == "u3", 1])
    found = [one.id for one in model.recommend("u3", 5)]
    best = sorted((c for n, c in zip(names, counts, strict=True) if n not in mine), reverse=True)
    assert [counts[names == one][0] for one in found] == best[:5]
    assert [one.id for one in model.recommend("u3", 3, candidates=["i1", "no"])] in (["i1"], [])
    seen = model.recommend("nobody", 1)[0]
    assert counts[names == seen.id][0] == counts.max()
    with pytest.raises(SettingError, match="n must be a whole number"):
        model.recommend("u3", 0)
    with pytest.raises(DataError, match="candidates must be ids in a list"):
        model.recommend("u3", candidates="i1")


def test_neighbours_of_an_item_are_the_correlations_of_what_biases_leave():
    X, y, _ = world(users=20, items=10)
    model = ItemKNN(neighbours=10, shrinkage=2.0).fit(X, y)
    seen = observe(X, y)
    R = np.full(seen.shape, np.nan)
    left = seen.values - model.location_
    R[seen.codes] = left - model.biases_[0][seen.codes[0]] - model.biases_[1][seen.codes[1]]
    near, sets = model.ratings_.matrix().toarray(), model.sets_.matrix().toarray()
    for a in range(10):
        for b in range(10):
            both = ~np.isnan(R[:, a]) & ~np.isnan(R[:, b])
            if a == b or not both.any():
                assert near[a, b] == sets[a, b] == 0
                continue
            one, other = R[both, a], R[both, b]
            like = (
                one @ other / np.sqrt(one @ one * (other @ other)) * both.sum() / (both.sum() + 2)
            )
            assert near[a, b] == pytest.approx(max(like, 0), abs=1e-5)
            many = np.sqrt(np.prod([np.sum(~np.isnan(R[:, k])) for k in (a, b)]))
            assert sets[a, b] == pytest.approx(both.sum() / many, rel=1e-5)
    user, item = 3, int(np.flatnonzero(np.isnan(R[3]))[0])
    own = ~np.isnan(R[user])
    said = near[item, own] @ R[user, own] / near[item, own].sum()
    base = model.location_ + model.biases_[0][user] + model.biases_[1][item]
    cell = [(seen.ids[0].labels[user], seen.ids[1].labels[item])]
    low, high = model.value_range_
    assert model.predict(cell)[0] == pytest.approx(np.clip(base + said, low, high), rel=1e-5)


def test_evaluate_judges_the_lists_of_the_model_that_fit_makes():
    seen = observations()
    how = Ranking(top=5)
    result = ratings.evaluate(seen, "item-knn", protocol="last", splits=1, ranking=how)
    split = ratings.split_of(seen, 0, "last")
    model = ItemKNN().fit(seen.take(split.fit))
    test = seen.take(split.test)
    truth = dict(test.decode())
    lists = {user: [one.id for one in model.recommend(user, 5)] for user in truth}
    ndcg = [metrics.ndcg_at(lists[user], {item}, 5) for user, item in truth.items()]
    (row,) = result["splits"]
    assert row["ndcg5"] == pytest.approx(np.mean(ndcg))
    assert row["recall5"] == row["hit5"] == pytest.approx(np.mean(np.array(ndcg) > 0))
    assert 0 < row["catalogue5"] <= 1
    assert row["novelty5"] > 0
    assert result["ranking"] == {"top": 5, "relevant": None, "how": {}}
    assert len(result["users"][0]["ndcg5"]) == len(truth)
    liked, _ = judged(model, seen, test, Ranking(top=5, relevant=4.0))
    right = [n for n, v in zip(ndcg, test.values, strict=True) if v >= 4.0]
    assert liked["ndcg5"] == pytest.approx(np.mean(right))
    with pytest.raises(DataError, match="No rating of the test part is 9 or more"):
        judged(model, seen, test, Ranking(relevant=9.0))


def test_lists_of_two_results_are_compared_user_by_user():
    seen, how = observations(), Ranking(top=5)
    knn, popular = (
        json.loads(json.dumps(
            ratings.evaluate(seen, name, protocol="last", splits=1, ranking=how)
        ))
        for name in ("item-knn", "popularity")
    )  # fmt: skip
    test, better = comparison_of(knn, popular, "ndcg5")
    assert test.paired.n == 60
    assert test.paired.difference == pytest.approx(knn["mean"]["ndcg5"] - popular["mean"]["ndcg5"])
    assert test.paired.difference > 0  # it knows of the two tastes
    assert list(better) == ["higher on"]
    assert better["higher on"].endswith("of 60 users")
    broken = {**popular, "users": [{"seed": 0, "ndcg5": ["a"]}]}
    assert ranking.by_user(broken, "ndcg5") is None
    other = {**popular, "ranking": {**popular["ranking"], "relevant": 4.0}}
    with pytest.raises(DataError, match="--relevant differs"):
        comparison_of(knn, other, "ndcg5")


def test_lists_need_a_model_that_recommends_and_knows_what_it_is_told():
    seen = observations()
    with pytest.raises(SettingError, match="risk must be left out: a Popularity has one way"):
        ratings.evaluate(seen, "popularity", ranking=Ranking(how=(("risk", 1.0),)), splits=1)
    with pytest.raises(SettingError, match="top must be a whole number, 1 or more"):
        Ranking(top=0)
    with pytest.raises(SettingError, match="Lists need a model that recommends; a object does not"):
        Ranking().check(object())


def test_settings_can_be_looked_for_by_lists():
    task = ratings.rating_task(observations(), protocol="last", ranking=Ranking(top=5))
    fixed = {"shrinkage": 5.0}
    ranges = {"neighbours": Choices((1, 20))}
    found = tuning.tune(
        task, ["item-knn"], budget=tuning.Budget(trials=8), metric="ndcg5", fixed=fixed,
        ranges=ranges, n_jobs=1,
    )  # fmt: skip
    trials = found["models"]["item-knn"]["trials"]
    assert found["best"]["ndcg5"] == max(trial["ndcg5"] for trial in trials)
    assert len({trial["ndcg5"] for trial in trials}) > 1


def test_propensities_are_the_solution_of_their_least_squares():
    X, y, _ = world(users=30, items=12)
    seen = observe(X, y)
    sets = Seen.of(seen.codes, seen.shape)
    found = Propensity.of(sets, seen.shape[1])
    M = np.zeros(seen.shape)
    M[seen.codes] = 1.0
    penalty = PENALTY * M.sum(axis=0).mean()
    for item in range(seen.shape[1]):  # each from all others, by the normal equations
        others = np.delete(np.arange(seen.shape[1]), item)
        A = M[:, others].T @ M[:, others] + penalty * np.eye(len(others))
        b = np.linalg.solve(A, M[:, others].T @ M[:, item])
        np.testing.assert_allclose(found.weights[others, item], b, rtol=1e-4, atol=1e-6)
        assert found.weights[item, item] == 0
    one, nobody = found.scores([sets.of_row(0), np.empty(0, dtype=np.int32)])
    expected = np.maximum(M[0] @ found.weights, 0) + 1e-3 * M.mean(axis=0)
    np.testing.assert_allclose(one, expected, rtol=1e-4)
    assert nobody.argmax() == M.sum(axis=0).argmax()  # of whom nothing is known


def test_sets_are_learned_from_once_and_forgotten_with_them():
    X, y, _ = world(users=10, items=9)
    seen = observe(X, y)
    sets = Seen.of(seen.codes, seen.shape)
    assert propensity_of(sets, 9) is propensity_of(sets, 9)
    gc.collect()  # what other tests have left
    before = len(propensity._KNOWN)
    del sets
    gc.collect()
    assert len(propensity._KNOWN) == before - 1


def test_utility_ranks_what_users_go_for_and_like():
    seen = observations(users=120)
    split = ratings.split_of(seen, 0, "last")
    model = registry.build("ratings", "dmf", {"rank": 4, "random_state": 0, "n_jobs": 1})
    model.fit(seen.take(split.fit))
    test = seen.take(split.test)
    by_value, by_utility = (
        judged(model, seen, test, Ranking(top=5, how=(("by", by),)))[0]["ndcg5"]
        for by in ("value", "utility")
    )
    assert by_utility > 1.5 * by_value
    (first, *_) = model.recommend("u3", 3, by="utility")
    user = seen.ids[0].lookup(["u3"])[0]
    items = np.setdiff1d(np.arange(40), seen.take(split.fit).codes[1][
        seen.take(split.fit).codes[0] == user])  # fmt: skip
    names = seen.ids[1].labels[items].tolist()
    mean, std = model.predict([("u3", name) for name in names], return_std=True)
    chance = ndtr((mean - model.factors_.location) / std)
    scores = Propensity.of(model.seen_, 40).scores([model.seen_.of_row(user)])[0][items]
    assert first.id == names[int(np.argmax(scores * chance))]
    row = model.fold_in(["i1", "i3"], [4.0, 4.2])
    assert row.recommend(2, by="utility")[0].id not in ("i1", "i3")
    for message, ask in {
        "by must be one of": lambda: model.recommend("u3", by="taste"),
        'risk is for by="value"': lambda: model.recommend("u3", by="utility", risk=1.0),
    }.items():
        with pytest.raises(SettingError, match=message):
            ask()
    with pytest.raises(DataError, match="is for new rows"):
        model.fold_in(["u1"], [4.0], mode=1).recommend(2, by="utility")
    model.seen_ = None
    with pytest.raises(DataError, match="did not keep what was seen"):
        model.recommend("u3", by="utility", exclude_seen=False)


@pytest.mark.parametrize("kind", [Popularity, ItemKNN])
def test_simple_rivals_take_values_of_any_offset(kind):
    rng = np.random.default_rng(0)
    X = np.column_stack(np.divmod(rng.permutation(30 * 20)[:300], 20))
    y = rng.integers(1, 6, 300).astype(float)
    near, far = (kind().fit(X, values) for values in (y, y + 1e8))
    (mean, std), (moved, same) = (model.predict(X, return_std=True) for model in (near, far))
    np.testing.assert_allclose(moved - 1e8, mean, atol=1e-4)
    np.testing.assert_allclose(same, std, rtol=1e-4)
    low, high = far.predict_interval(X)
    assert np.mean((low <= y + 1e8) & (y + 1e8 <= high)) > 0.8


def test_simple_rivals_are_found_by_name():
    for name in ("popularity", "biases", "item-knn"):
        assert name in registry.models("ratings")
    assert registry.build("ratings", "biases").rank == 0


def test_lists_are_judged_on_the_command_line(tmp_path, capsys):
    X, y, time = world()
    data, kept = tmp_path / "ratings.csv", [tmp_path / f"{k}.json" for k in range(2)]
    lines = [f"{u},{i},{v:.2f},{t:.0f}" for (u, i), v, t in zip(X, y, time, strict=True)]
    data.write_text("\n".join(["user,item,rating,timestamp", *lines]))
    for name, out in zip(("item-knn", "popularity"), kept, strict=True):
        given = ["evaluate", data, "--model", name, "--protocol", "last", "--top", "5"]
        assert run(*given, "--core", "2", "--splits", "1", "--json", out) == 0
    assert "ndcg5" in capsys.readouterr().out
    assert run("compare", *kept, "--metric", "ndcg5") == 0
    assert "of 60 users" in capsys.readouterr().out
    given = ["tune", data, "--model", "item-knn", "--metric", "ndcg", "--validation", "last"]
    assert run(*given, "--range", "neighbours=2,20", "--trials", "2") == 0
    assert "best ndcg10" in capsys.readouterr().out
    assert run("evaluate", data, "--model", "popularity", "--relevant", "4", "--splits", "1") == 2
    assert "--relevant is for lists: add --top 10" in capsys.readouterr().err
    model = tmp_path / "model.nw"
    assert run("fit", data, "--model", "popularity", "--out", model) == 0
    assert run("recommend", model, "u1", "-n", "2") == 0
    assert "  2. " in capsys.readouterr().out
    assert run("recommend", model, "u1", "--risk", "1") == 2
    assert "--by, --risk and --mode are not for a Popularity" in capsys.readouterr().err


@pytest.mark.parametrize("n", [2.5, None, "2", True])
def test_lists_are_judged_at_a_whole_number(n):
    for metric in (metrics.ndcg_at, metrics.recall_at, metrics.reciprocal_rank_at, metrics.hit_at):
        with pytest.raises(DataError, match="n must be a whole number, 1 or more"):
            metric(["a", "b"], {"b"}, n)
    with pytest.raises(DataError, match="n must be a whole number, 1 or more"):
        metrics.rank_metrics([], [], n)
