"""Rows that come later: better known with every value, and never worse than a stranger."""

import numpy as np
import pytest
from sklearn.base import clone

from noisewise import (
    AutoRec,
    DeviationFactorizer,
    HuberFactorizer,
    RobustBayesianFactorizer,
    TrimmedFactorizer,
    metrics,
)
from noisewise.engine.foldin import fold_in

QUICK = {"random_state": 0, "n_jobs": 1}
MODELS = {
    "defaults": DeviationFactorizer(**QUICK),
    "deviation": DeviationFactorizer(2, deviation_rank=1, delta=0.02, **QUICK),
    "constant noise": DeviationFactorizer(4, deviation_rank=0, **QUICK),
    "per row": DeviationFactorizer(4, deviation_rank=1, penalty="row", l2=0.5, **QUICK),
    "rcf": HuberFactorizer(4, **QUICK),
    "drmf": TrimmedFactorizer(4, round_epochs=2, epochs=15, **QUICK),
    "rbmf": RobustBayesianFactorizer(4, epochs=15, **QUICK),
    "autorec": AutoRec(8, l2=10.0, presence=0.0, balance=0.0, epochs=30, device="cpu", **QUICK),
}
TOLD = (1, 2, 3, 5, 10)
LATE = 40


@pytest.fixture(scope="module", params=[0, 1], ids=["users", "items"])
def mode(request):
    return request.param


@pytest.fixture(scope="module", params=MODELS)
def fitted(request, world, mode):
    if request.param == "autorec":
        pytest.importorskip("torch")
    old = world.part(world.X[:, mode] >= LATE)
    return clone(MODELS[request.param]).fit(old.X, old.y)


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


def test_a_newcomer_is_better_known_with_every_value(fitted, world, mode):
    rmse, std, covered = judged(fitted, world, mode)
    assert rmse[1:].max() <= 1.005 * rmse[0]  # at most: forty rows settle no more
    assert rmse[-1] < 0.95 * rmse[0]
    assert (np.diff(std) < 0).all()
    assert covered.min() > 0.85
    if not isinstance(fitted, RobustBayesianFactorizer):  # whose strangers are told too cautiously
        assert covered.max() < 0.96


def test_nothing_told_is_a_stranger(world):
    model = clone(MODELS["deviation"]).fit(world.X, world.y)
    nothing = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
    for mode, count in enumerate(model.factors_.counts):
        side = fold_in(model.factors_, mode, *nothing)
        stranger = model.factors_.side(mode, np.array([len(count)]))
        for part, expected in zip(side, stranger, strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-6)
