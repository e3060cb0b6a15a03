"""Why a prediction is what it is, and what of the ratings is kept for that."""

import numpy as np
import pytest
from shared import make_world
from test_cli import run

from noisewise import BayesianFactorizer, DataError, SettingError, load

QUICK = {"rank": 3, "sweeps": 40, "burn_in": 20, "random_state": 0, "n_jobs": 1}


@pytest.fixture(scope="module")
def table():
    world = make_world(60, 40, 1200)
    return world.X, world.y


@pytest.fixture(scope="module", params=[True, False], ids=["sets", "no sets"])
def model(request, table):
    noise = "lowrank" if request.param else "constant"
    made = BayesianFactorizer(implicit=request.param, deviation=noise, value_range=None, **QUICK)
    return made.fit(*table)


def unseen(model, user):
    own = set(model.seen_.of_row(int(model.ids_[0].lookup([user])[0])).tolist())
    return [k for k in range(len(model.ids_[1])) if k not in own]


def test_parts_of_a_prediction_add_up(model, table):
    X, y = table
    for user in (3, 7):
        item = model.ids_[1].labels[unseen(model, user)[0]]
        why = model.explain(user, item, n=1000)
        mean, std = model.predict([(user, item)], return_std=True)
        assert (why.mean, why.std) == pytest.approx((mean[0], std[0]))
        assert {pull.id for pull in why.pulls} == set(X[X[:, 0] == user, 1].tolist())
        ratings = {pull.id: pull.value for pull in why.pulls}
        for (_, other), value in zip(X[X[:, 0] == user], y[X[:, 0] == user], strict=True):
            assert ratings[other] == pytest.approx(value, rel=1e-6)
        total = why.average + sum(pull.pull for pull in why.pulls)
        assert why.rest == pytest.approx(float(mean[0]) - total, abs=1e-5)
        epistemic = model.predict_parts([(user, item)])[2][0]
        draws = len(model.factors_)
        assert abs(why.rest) < 5 * epistemic / np.sqrt(draws / 4)  # the luck of the draws
        sizes = [abs(pull.pull) for pull in why.pulls]
        assert sizes == sorted(sizes, reverse=True)
        for pull in why.pulls:
            assert pull.pull == pytest.approx(pull.by_value + pull.by_choice, abs=1e-9)
            assert 0.0 <= pull.sure <= 1.0
            assert pull.std >= 0.0
            assert model.implicit or pull.by_choice == pytest.approx(0.0, abs=1e-9)


def test_a_pull_is_what_the_prediction_loses_with_the_rating(model):
    """In a single draw the mean of a row is linear: a changed value moves it by its own share."""
    from noisewise.engine.gibbs.pulls import pulls

    posterior = model.factors_
    codes, values, _ = model._own(5)
    z = (values - posterior.scale.location) / posterior.scale.scale
    column = unseen(model, 5)[0]
    ones = np.ones(len(z))
    before = pulls(posterior, 5, column, codes, z, ones)
    moved = z.copy()
    moved[2] += 1.0
    after = pulls(posterior, 5, column, codes, moved, ones)
    rest = np.arange(len(z)) != 2
    np.testing.assert_allclose(after.by_value[:, rest], before.by_value[:, rest])
    for k in (0, len(posterior) - 1):  # by the normal equations, as they stand
        other = posterior.rows(k, 1, np.append(codes, column).astype(np.int32))
        x = np.column_stack([other.factors, np.ones(len(codes) + 1)]).astype(float)
        one = {name: array[k].astype(float) for name, array in posterior.draws.items()}
        noise = np.full(len(codes), one["level"][0])
        if posterior.spec.noise_rank:
            noise = other.noise[:-1].astype(float) @ one["noise"][5]
        centre = one["centres"][0]
        if posterior.spec.implicit:
            centre = centre + one["features"][codes].sum(axis=0) / np.sqrt(len(codes))
        A = one["precisions"][0] + (x[:-1] / noise[:, None]).T @ x[:-1]
        b = one["precisions"][0] @ centre
        b = b + x[:-1].T @ ((z - other.biases[:-1]) / noise)
        expected = x[-1] @ np.linalg.solve(A, b) + other.biases[-1]
        found = before.average[k] + before.by_value[k].sum() + before.by_choice[k].sum()
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_ratings_are_kept_in_files(model, tmp_path):
    model.save(tmp_path / "model.nw")
    again = load(tmp_path / "model.nw")
    np.testing.assert_array_equal(again.values_, model.values_)
    item = model.ids_[1].labels[unseen(model, 3)[0]]
    assert again.explain(3, item) == model.explain(3, item)


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
def test_what_cannot_be_explained_is_said(model, table):
    X, y = table
    with pytest.raises(DataError, match="'nobody' was not seen in training"):
        model.explain("nobody", X[0, 1])
    with pytest.raises(DataError, match="'nothing' was not seen in training"):
        model.explain(X[0, 0], "nothing")
    with pytest.raises(SettingError, match="n must be a whole number, 1 or more"):
        model.explain(X[0, 0], X[0, 1], n=0)
    short = QUICK | {"sweeps": 6, "burn_in": 2}
    forgetful = BayesianFactorizer(keep_seen=False, **short)
    ordinal = BayesianFactorizer(likelihood="ordinal", **short)
    forgetful.fit(X, y)
    ordinal.fit(X, np.rint(y))
    with pytest.raises(DataError, match="fit with keep_seen=True"):
        forgetful.explain(X[0, 0], X[0, 1])
    with pytest.raises(SettingError, match='explain needs likelihood="gaussian"'):
        ordinal.explain(X[0, 0], X[0, 1])


def test_why_on_the_command_line(model, table, tmp_path, capsys):
    X, _ = table
    model.save(tmp_path / "model.nw")
    assert run("why", tmp_path / "model.nw", X[0, 0], X[0, 1], "-n", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7  # a head, names of columns, the average, three pulls, the rest
    assert " ± " in lines[0]
    assert run("why", tmp_path / "model.nw", "nobody", X[0, 1]) == 2
    assert "was not seen in training" in capsys.readouterr().err
