"""Daily updates of the Bayesian model: what changed is drawn anew in every kept draw."""

import warnings

import numpy as np
import pandas as pd
import pytest
from shared import make_world
from test_cli import run

import noisewise as nw
from noisewise import (
    BayesianFactorizer,
    DataError,
    DeviationFactorizer,
    SettingError,
    load,
    observe,
)
from noisewise.engine.gibbs import update
from noisewise.engine.gibbs.steps.ordinal import cut_points
from noisewise.engine.gibbs.update import changed_rows, due_rows, updated
from noisewise.errors import DataWarning, UnknownIdsWarning

QUICK = {"rank": 3, "sweeps": 60, "burn_in": 20, "random_state": 0, "n_jobs": 1}
pytestmark = pytest.mark.filterwarnings("ignore:Predictions have not settled")


@pytest.fixture(scope="module")
def parts():
    """Ratings of 80 users, all but the last ten known; of some of these, ratings come later."""
    world = make_world(80, 40, 2000)
    users = world.X[:, 0]
    late = (users >= 70) | ((users < 10) & (np.arange(len(users)) % 3 == 0))
    rng = np.random.default_rng(1)
    test = late & (rng.random(len(users)) < 0.4)
    return [(world.X[part], world.y[part]) for part in (~late, late & ~test, test)]


@pytest.fixture(scope="module")
def fitted(parts):
    return BayesianFactorizer(**QUICK).fit(*parts[0])


def again(model, tmp_path):
    model.save(tmp_path / "model.nw")
    return load(tmp_path / "model.nw")


def rmse(model, test):
    return np.sqrt(np.mean((test[1] - model.predict(test[0])) ** 2))


@pytest.mark.parametrize("implicit", [True, False], ids=["sets", "no sets"])
@pytest.mark.parametrize("mode", [0, 1])
def test_rows_are_drawn_from_their_conditional_given_all_observations(parts, mode, implicit):
    model = BayesianFactorizer(implicit=implicit, samples=40, **QUICK).fit(*parts[0])
    before, seen = model.factors_, model._kept()
    scale = before.scale
    z = ((seen.values - scale.location) / scale.scale).astype(np.float32)
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2.0, len(z)).astype(np.float32)
    rows = np.array([1, 4, 9], dtype=np.int32)
    own = changed_rows(mode, rows, seen.codes, z, weight, seen.shape, implicit)
    after = updated(before, seen.shape, before.counts, seen.codes, [own], 1, 1)
    first, scores = 0 if mode == 0 else seen.shape[0], []
    for k in range(len(before)):
        one = {name: array[k].astype(float) for name, array in before.draws.items()}
        for row in rows.tolist():
            mine = seen.codes[mode] == row
            others = seen.codes[1 - mode][mine] + (seen.shape[0] if mode == 0 else 0)
            x = np.column_stack([one["factors"][others], np.ones(mine.sum())])
            w = weight[mine] / np.sum(one["noise"][others] * one["noise"][first + row], axis=1)
            centre = one["centres"][mode]
            if implicit:
                start = 0 if mode == 0 else seen.shape[1]
                sets = one["features"][start + seen.codes[1 - mode][mine]]
                centre = centre + sets.sum(axis=0) / np.sqrt(mine.sum())
            A = one["precisions"][mode] + (x * w[:, None]).T @ x
            h = one["precisions"][mode] @ centre + x.T @ (w * (z[mine] - one["biases"][others]))
            drawn = np.append(
                after.draws["factors"][k, first + row], after.draws["biases"][k, first + row]
            )
            scores.append(np.linalg.cholesky(A).T @ (drawn - np.linalg.solve(A, h)))
    scores = np.array(scores)
    n = scores.size
    assert abs(scores.mean()) < 4.5 / np.sqrt(n)
    assert abs(scores.var() - 1.0) < 4.5 * np.sqrt(2.0 / n)
    stays = np.setdiff1d(np.arange(sum(seen.shape)), first + rows)
    for name in ("factors", "biases", "noise"):
        np.testing.assert_array_equal(after.draws[name][:, stays], before.draws[name][:, stays])
        assert (after.draws[name][:, first + rows] != before.draws[name][:, first + rows]).any()


def test_new_ratings_users_and_items_are_learned_from(fitted, parts, tmp_path):
    train, new, test = parts
    model = again(fitted, tmp_path)
    std = model.predict(test[0], return_std=True)[1]
    before = rmse(model, test)
    assert model.partial_fit(*new) is model
    assert len(model.ids_[0]) == 80
    refit = BayesianFactorizer(**QUICK).fit(
        np.vstack([train[0], new[0]]), np.append(train[1], new[1])
    )
    assert rmse(model, test) < 0.9 * before
    assert rmse(model, test) < 1.04 * rmse(refit, test)
    mean, after = model.predict(test[0], return_std=True)
    assert after.mean() < 0.97 * std.mean()  # more is known
    assert 0.8 < np.sqrt(np.mean(((test[1] - mean) / after) ** 2)) < 1.25
    late = test[0][:, 0] >= 70
    parts_of = model.predict_parts(test[0][late])[2], refit.predict_parts(test[0][late])[2]
    assert parts_of[0].mean() == pytest.approx(parts_of[1].mean(), rel=0.25)
    assert model.since_fit_ == len(new[1])
    assert 0.5 < model.drift_.spread < 1.6
    user = new[0][-1, 0]
    assert not {one.id for one in model.recommend(user, 40)} & set(
        new[0][new[0][:, 0] == user, 1].tolist()
    )
    why = model.explain(user, test[0][test[0][:, 0] == user][0, 1])
    assert len(why.pulls) > 0


def test_new_ratings_of_levels_are_learned_from(parts, tmp_path):
    train, new, test = ((X, np.clip(np.rint(y), 1, 5)) for X, y in parts)
    settings = QUICK | {"likelihood": "ordinal", "sweeps": 120}
    model = again(BayesianFactorizer(**settings).fit(*train), tmp_path)
    before = rmse(model, test)
    widths = model.factors_.draws["widths"].copy()
    model.partial_fit(*new)
    np.testing.assert_array_equal(model.factors_.draws["widths"][:, : widths.shape[1]], widths)
    centre = model.factors_.draws["width_centre"]
    np.testing.assert_allclose(model.factors_.draws["widths"][:, -1], centre, atol=1e-2)
    refit = BayesianFactorizer(**settings).fit(
        np.vstack([train[0], new[0]]), np.append(train[1], new[1])
    )
    assert rmse(model, test) < 0.93 * before
    assert rmse(model, test) < 1.05 * rmse(refit, test)
    chances = model.predict_proba(test[0])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-6)


def test_hidden_values_of_an_update_lie_between_the_cut_points(parts):
    X, y = parts[0]
    y = np.clip(np.rint(y), 1, 5)
    model = BayesianFactorizer(**(QUICK | {"sweeps": 30}), likelihood="ordinal").fit(X, y)
    own, seen = model.factors_, model._kept()
    z = model._as_drawn(seen.values, "partial_fit")
    rows = np.arange(5, dtype=np.int32)
    changed = changed_rows(1, rows, seen.codes, z, np.ones_like(z), seen.shape, False)
    one = {name: array[0] for name, array in own.draws.items()}
    fitted, root = np.zeros((2, len(changed.data)), dtype=np.float32)
    root += 1.0
    hidden = update._hidden(own, one, changed.data, fitted, root, np.uint64(7))
    level = changed.data.values
    cuts = np.empty(one["widths"].shape[1] + 3)
    for user in np.unique(changed.data.places[0]):
        cut_points(one["widths"][user].astype(np.float64), own.scale.anchor, cuts)
        mine = changed.data.places[0] == user
        k = level[mine].astype(int)
        assert (hidden[mine] >= cuts[k] - 1e-4).all()
        assert (hidden[mine] <= cuts[k + 1] + 1e-4).all()


def test_updates_have_the_same_bits_for_any_number_of_threads_and_after_files(
    fitted, parts, tmp_path
):
    _, new, test = parts
    half = len(new[1]) // 2
    first, second = ((new[0][part], new[1][part]) for part in (slice(half), slice(half, None)))
    one, other = again(fitted, tmp_path), again(fitted, tmp_path).set_params(n_jobs=2)
    one.partial_fit(*first).partial_fit(*second)
    other.partial_fit(*first)
    other = again(other, tmp_path).partial_fit(*second)
    np.testing.assert_array_equal(
        one.predict(test[0], return_std=True), other.predict(test[0], return_std=True)
    )
    assert one.since_fit_ == other.since_fit_ == len(new[1])
    for mine, kept in zip(one._waiting, again(one, tmp_path)._waiting, strict=True):
        np.testing.assert_array_equal(mine, kept)


def test_a_cell_that_is_rated_again_has_its_new_value(fitted, parts, tmp_path):
    X, y = parts[0]
    model = again(fitted, tmp_path)
    cell, many = X[:1], len(model.values_)
    model.partial_fit(cell, [y[0] + 2.0])
    assert len(model.values_) == many
    codes, values, _ = model._own(int(model.ids_[0].lookup([cell[0, 0]])[0]))
    own = dict(zip(model.ids_[1].labels[codes].tolist(), values.tolist(), strict=True))
    assert own[cell[0, 1]] == pytest.approx(y[0] + 2.0, rel=1e-6)


def test_rows_of_many_observations_wait_for_enough_new_ones(fitted, parts, tmp_path, monkeypatch):
    counts = np.array([1000, 10, 30, 0])
    assert due_rows(counts, np.array([49, 0, 0, 0]), 1).tolist() == []
    assert due_rows(counts, np.array([50, 0, 0, 0]), 1).tolist() == [0]
    monkeypatch.setattr(update, "CHEAP", 0)
    monkeypatch.setattr(update, "SHARE", 0.5)
    model = again(fitted, tmp_path)
    X, y = parts[1]
    known = X[:, 0] < 70
    before = model.factors_
    model.partial_fit(X[known][:1], y[known][:1])  # one of many is not enough for anybody
    np.testing.assert_array_equal(model.factors_.draws["factors"], before.draws["factors"])
    assert [int(part.sum()) for part in model._waiting] == [1, 1]
    new = X[:, 0] == 75
    model.partial_fit(X[new], y[new])  # all that is known of this user
    row = int(model.ids_[0].lookup([75])[0])
    assert model._waiting[0][row] == 0
    assert int(model._waiting[1].sum()) == 1 + new.sum()


def test_drift_is_said(fitted, parts, tmp_path):
    X, y = parts[1]
    known = X[:, 0] < 70
    model = again(fitted, tmp_path)
    with pytest.warns(DataWarning, match=r"not what was expected: their errors .* fit anew"):
        model.partial_fit(X[known], y[known] + 3.0)
    assert model.drift_.shift > 1
    model = again(fitted, tmp_path)
    model.since_fit_ = len(model.values_)
    with pytest.warns(DataWarning, match="have come since the model was fitted"):
        model.partial_fit(X[known][:5], y[known][:5])
    model = again(fitted, tmp_path)
    model.partial_fit([("nobody", "nothing")], [3.0])
    assert model.drift_.n == 0


def test_the_first_partial_fit_is_a_fit(parts):
    model = BayesianFactorizer(**QUICK).partial_fit(*parts[0])
    assert model.since_fit_ == 0
    assert model.drift_ is None
    np.testing.assert_array_equal(
        model.predict(parts[2][0]), BayesianFactorizer(**QUICK).fit(*parts[0]).predict(parts[2][0])
    )


def test_what_cannot_be_updated_is_said_and_left_as_it_was(fitted, parts):
    X, y = parts[0]
    short = QUICK | {"sweeps": 6, "burn_in": 2}
    cases = {
        "fit with keep_seen=True": (DataError, {"keep_seen": False}, y),
        "needs values among the levels": (DataError, {"likelihood": "ordinal"}, np.rint(y)),
    }
    for message, (kind, settings, values) in cases.items():
        model = BayesianFactorizer(**short, **settings).fit(X, values)
        with pytest.raises(kind, match=message):
            model.partial_fit(*parts[1])
    before = fitted.predict(X, return_std=True)
    with pytest.raises(DataError, match=r"partial_fit needs values on the scale.*1e\+30"):
        fitted.partial_fit(X[:2], [3.0, 1e30])
    with pytest.raises(DataError, match=r"fold_in needs values on the scale.*-1e\+30"):
        fitted.fold_in(X[:2, 1], [3.0, -1e30])
    with pytest.raises(DataError, match="Row 0 of y is NaN"):
        fitted.partial_fit(X[:1], [np.nan])
    with pytest.raises(SettingError, match="sweeps must be a whole number, 1 or more"):
        fitted.partial_fit(X[:1], [3.0], sweeps=0)
    np.testing.assert_array_equal(fitted.predict(X, return_std=True), before)
    timed = observe(X, y, time=np.arange(len(y)))
    model = BayesianFactorizer(**short, time="time").fit(timed)
    with pytest.raises(SettingError, match="partial_fit needs time=None"):
        model.partial_fit(timed)
    tensor = np.column_stack([X, np.arange(len(X)) % 3])
    three = BayesianFactorizer(**short).fit(tensor, y)
    with pytest.raises(DataError, match="partial_fit needs a model of 2 id columns"):
        three.partial_fit(tensor[:2], y[:2])


def test_values_that_single_precision_cannot_hold_are_kept(parts, tmp_path):
    X, y = parts[0]
    model = again(BayesianFactorizer(**QUICK).fit(X, 1e9 + y), tmp_path)
    assert model.values_.dtype == np.float64
    model.partial_fit(parts[1][0], 1e9 + parts[1][1])
    assert rmse(model, (parts[2][0], 1e9 + parts[2][1])) < 1.5


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_a_single_rating_is_enough_for_an_update(fitted, parts, tmp_path, capsys, kind):
    ((user, item),) = parts[1][0][:1].tolist()
    table = {"user": [user], "item": [item], "rating": [parts[1][1][0]]}
    data = tmp_path / f"new.{kind}"
    fitted.save(tmp_path / "model.nw")
    if kind == "csv":
        data.write_text(f"user,item,rating\n{user},{item},{table['rating'][0]}\n")
    elif kind == "npz":
        np.savez(data, **table)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(table), data)
    assert len(nw.read(data)) == 1
    assert run("update", tmp_path / "model.nw", data) == 0
    assert capsys.readouterr().out.startswith("1 rating, ")
    assert load(tmp_path / "model.nw").since_fit_ == 1
    for build in (BayesianFactorizer, nw.DeviationFactorizer):
        with pytest.raises(DataError, match="at least 2 are needed"):
            build().fit(nw.read(data))


def test_a_model_is_updated_on_the_command_line(fitted, parts, tmp_path, capsys):
    new = observe(*parts[1])
    data, model = tmp_path / "new.csv", tmp_path / "model.nw"
    lines = [f"{u},{i},{v:.3f}" for (u, i), v in zip(new.decode(), new.values, strict=True)]
    names = ",".join(ids.name for ids in fitted.ids_)
    data.write_text("\n".join([f"{names},value", *lines]))
    fitted.save(model)
    assert run("update", model, data, "--out", tmp_path / "later.nw") == 0
    assert "later.nw" in capsys.readouterr().out
    assert load(tmp_path / "later.nw").since_fit_ == len(new)
    assert load(model).since_fit_ == 0
    assert run("update", model, data) == 0
    assert load(model).since_fit_ == len(new)


@pytest.mark.parametrize(
    ("columns", "ids"),
    [("film,who", []), ("who,film", []), ("a,b", ["--id", "b", "--id", "a"]), ("a,b", None)],
)
def test_new_ratings_are_told_by_the_names_that_ids_have_in_the_model(
    parts, tmp_path, capsys, columns, ids
):
    (X, y), model, data = parts[0], tmp_path / "model.nw", tmp_path / "new.csv"
    frame = pd.DataFrame({"who": X[:, 0], "film": X[:, 1]})
    DeviationFactorizer(rank=2, epochs=2, patience=None, random_state=0).fit(frame, y).save(model)
    order = [0, 1] if columns.startswith("who") else [1, 0]
    rows = [f"{cell[order[0]]},{cell[order[1]]},3" for cell in X[:50].tolist()]
    data.write_text("\n".join([f"{columns},stars", *rows]))
    status = run("update", model, data, *(ids or []))
    told = capsys.readouterr()
    if ids is None:
        assert status == 2
        assert "the id columns a, b, but the model knows who, film: say which" in told.err
    else:
        assert status == 0
        assert told.out.startswith("50 ratings, 0 new in who, 0 new in film")


@pytest.mark.parametrize(
    "model",
    [
        BayesianFactorizer(rank=1, sweeps=10, burn_in=4, random_state=0),
        DeviationFactorizer(rank=1, patience=None, epochs=2, random_state=0),
    ],
)
def test_new_ids_of_another_type_draw_a_warning(model):
    cells = [(user, item) for user in range(6) for item in range(5)]
    ratings = [(f"{user}", item, float(1 + (user + item) % 5)) for user, item in cells]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few sweeps settle nothing
        model.fit(ratings)
        model.partial_fit([("9", 2, 3.0)])
    with pytest.warns(
        UnknownIdsWarning, match="None of these ids of user was trained on.*type int"
    ):
        model.partial_fit([(1, 2, 3.0), (2, 2, 4.0)])
