"""Rows that come later: better known with every value, and never worse than a stranger."""

import numpy as np
import pytest
from sklearn.base import clone

from noisewise import BayesianFactorizer, DeviationFactorizer, metrics
from noisewise.engine.sgd.fold_in import fold_in

QUICK = {"random_state": 0, "n_jobs": 1}
MODELS = {
    "defaults": DeviationFactorizer(**QUICK),
    "deviation": DeviationFactorizer(2, deviation_rank=1, delta=0.02, **QUICK),
    "constant noise": DeviationFactorizer(4, deviation_rank=0, **QUICK),
    "per row": DeviationFactorizer(4, deviation_rank=1, penalty="row", l2=0.5, **QUICK),
    "bayes": BayesianFactorizer(4, sweeps=80, burn_in=40, samples=20, **QUICK),
}
TOLD = (1, 2, 3, 5, 10)
LATE = 40  # rows that come later

pytestmark = pytest.mark.filterwarnings("ignore:Predictions have not settled")


@pytest.fixture(scope="module", params=[0, 1], ids=["users", "items"])
def mode(request):
    return request.param


@pytest.fixture(scope="module", params=MODELS)
def fitted(request, world, mode):
    return fitted_without_latecomers(MODELS[request.param], world, mode)


def fitted_without_latecomers(model, world, mode):
    old = world.part(world.X[:, mode] >= LATE)
    return clone(model).fit(old.X, old.y)


def judged(model, world, mode):
    """RMSE, mean std and coverage of 90 % intervals: of a stranger, and by values told."""
    found = []
    for n in (0, *TOLD):
        parts = []
        for id in range(LATE):
            mine = world.part(world.X[:, mode] == id)
            told, asked = mine.part(slice(n)), mine.part(slice(TOLD[-1], None))
            if n:
                who = model.fold_in(told.X[:, 1 - mode], told.y, mode=mode)
                cells = asked.X[:, 1 - mode]
            else:
                who, cells = model, asked.X
            interval = who.predict_interval(cells, coverage=0.9)
            parts.append((asked.y, *who.predict(cells, return_std=True), *interval))
        truth, mean, std, low, high = map(np.concatenate, zip(*parts, strict=True))
        covered = np.mean((low <= truth) & (truth <= high))
        found.append((metrics.rmse(truth, mean), std.mean(), covered))
    return np.array(found).T


def assert_better_known_with_every_value(rmse, std, covered):
    assert rmse[1:].max() <= 1.005 * rmse[0]  # at most: so few rows settle no more
    assert rmse[-1] < 0.95 * rmse[0]
    assert (np.diff(std) < 0).all()
    assert covered.min() > 0.85


def test_a_newcomer_is_better_known_with_every_value(fitted, world, mode):
    rmse, std, covered = judged(fitted, world, mode)
    assert_better_known_with_every_value(rmse, std, covered)
    assert covered.max() < 0.96


def test_nothing_told_is_a_stranger(world):
    model = clone(MODELS["deviation"]).fit(world.X, world.y)
    nothing = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
    for mode, count in enumerate(model.factors_.counts):
        side = fold_in(model.factors_, mode, *nothing)
        stranger = model.factors_.side(mode, np.array([len(count)]))
        for part, expected in zip(side, stranger, strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def collectors():
    """A world in which those who have seen much expect less, and a model of it."""
    rng = np.random.default_rng(3)
    seen = rng.integers(5, 100, 150)
    users = np.repeat(np.arange(150), seen)
    items = np.concatenate([rng.permutation(120)[:n] for n in seen])
    y = 3.0 - 0.2 * np.sqrt(seen)[users] + rng.normal(0, 0.5, 120)[items]
    y += rng.normal(0, 0.3, 150)[users] + rng.normal(0, 0.7, len(users))
    return BayesianFactorizer(2, sweeps=80, burn_in=40, samples=20, **QUICK).fit(
        np.column_stack([users, items]), y
    )


def test_a_set_that_has_just_begun_is_not_taken_for_a_small_one(collectors):
    items = list(range(120))
    expected = collectors.predict([(-1, item) for item in items])
    for item in (3, 50):
        new = collectors.fold_in([item], [expected[item]])
        np.testing.assert_allclose(new.predict(items), expected, atol=0.1)


def test_every_value_leaves_less_epistemic_of_every_row(collectors):
    items = np.arange(120)
    cells = np.column_stack([np.full(120, -1), items])
    expected, _, stranger = collectors.predict_parts(cells)
    rng = np.random.default_rng(0)
    for _ in range(3):
        told, left = rng.permutation(120)[:8], [stranger]
        for n in range(1, 9):
            new = collectors.fold_in(told[:n], expected[told[:n]])
            left.append(new.predict_parts(items)[2])
        assert (np.diff(np.mean(np.square(left), axis=1)) < 0).all()


def test_strangers_are_as_those_who_were_observed_are_on_average(world):
    """Who observes much, and what is chosen, counts as often as it was observed."""
    model = clone(MODELS["bayes"]).fit(world.X, world.y)
    own, codes = (
        model.factors_,
        [ids.lookup(x) for ids, x in zip(model.ids_, world.X.T, strict=True)],
    )
    for mode in (0, 1):
        asked = [np.full_like(code, len(ids)) if m == mode else code
                 for m, (code, ids) in enumerate(zip(codes, model.ids_, strict=True))]  # fmt: skip
        known, stranger = (own.moments(tuple(map(np.int32, c))) for c in (codes, asked))
        assert stranger.mean.mean() == pytest.approx(known.mean.mean(), abs=0.02)
        assert stranger.noise.mean() == pytest.approx(known.noise.mean(), rel=0.15)
