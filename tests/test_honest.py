"""What the Bayesian model says of data whose truth is known: clean tables, noise alone, both ends.

Here the numbers are asked for, not the code behind them: is the error as small as the noise allows,
does an interval hold, is the std of a prediction that of its draws?
"""

import warnings

import numpy as np
import pytest

from noisewise import BayesianFactorizer

SIGNALS = {
    "constant": lambda a, b: np.full((len(a), len(b)), 3.0),
    "rank one": np.outer,
    "additive": np.add.outer,
    "one number a row": lambda a, b: np.repeat(
        1.0 + np.arange(len(a))[:, None] % 5, len(b), axis=1
    ),
}


class Table:
    """A table with a signal and noise, a share of whose cells is trained on."""

    def __init__(self, signal, noise, shape=(60, 50), share=0.8, seed=0):
        rng = np.random.default_rng([90, seed])
        clean = SIGNALS[signal](*(rng.normal(size=n) for n in shape))
        self.size = float(clean.std()) or 1.0
        values = clean + noise * self.size * rng.normal(size=shape)
        known = rng.random(shape) < share
        self.X, self.y = np.argwhere(known), values[known]
        self.hidden, self.truth = np.argwhere(~known), values[~known]


def fitted(X, y, **settings):
    settings = {"sweeps": 120, "burn_in": 50, "random_state": 0} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that are all alike
        return BayesianFactorizer(**settings).fit(X, y)


@pytest.mark.parametrize("deviation", ["lowrank", "constant"])
@pytest.mark.parametrize("signal", SIGNALS)
def test_a_table_without_noise_is_learned_and_kept(signal, deviation, tmp_path):
    table = Table(signal, 0.0)
    model = fitted(table.X, table.y, rank=8, deviation=deviation)
    mean, std = model.predict(table.hidden, return_std=True)
    assert np.sqrt(np.mean((mean - table.truth) ** 2)) < 1e-3 * table.size
    assert 0.0 < std.max() < 1e-2 * table.size
    model.save(tmp_path / "model.nw")
    again = BayesianFactorizer.load(tmp_path / "model.nw").predict(table.hidden, return_std=True)
    np.testing.assert_array_equal(again, (mean, std))


@pytest.mark.parametrize("noise", [1e-4, 1e-3, 1e-1])
@pytest.mark.parametrize("signal", SIGNALS)
def test_noise_that_is_hardly_there_is_found(signal, noise):
    table = Table(signal, noise)
    model = fitted(table.X, table.y, rank=8)
    error = np.sqrt(np.mean((model.predict(table.hidden) - table.truth) ** 2))
    assert error < 2.0 * noise * table.size
    low, high = model.predict_interval(table.hidden)
    assert 0.85 < np.mean((low <= table.truth) & (table.truth <= high)) < 0.97


def test_draws_of_clean_data_are_kept_more_precisely():
    clean, noisy = (Table("rank one", noise) for noise in (1e-4, 0.5))
    kinds = [fitted(t.X, t.y, rank=4).factors_.draws["factors"].dtype for t in (clean, noisy)]
    assert kinds == [np.float32, np.float16]


@pytest.mark.parametrize("seed", [0, 1])
def test_noise_alone_is_called_noise(seed):
    rng = np.random.default_rng([91, seed])
    X = np.array([(i, j) for i in range(86) for j in rng.choice(65, 20, replace=False)])
    y = rng.integers(1, 6, len(X)).astype(float)
    mean, noise, epistemic = fitted(X[200:], y[200:]).predict_parts(X[:200])
    # Cells left out one at a time say how far stds must reach: of so few, to a tenth or so.
    assert np.sqrt(np.mean(noise**2)) == pytest.approx(np.sqrt(2.0), rel=0.15)
    assert np.sqrt(np.mean(epistemic**2)) < 0.75
    assert np.sqrt(np.mean((y[:200] - mean) ** 2)) < 1.05 * y[:200].std()


@pytest.fixture(scope="module")
def extremes():
    """Models of users who give nothing but high ratings, and others, with and without a range."""
    rng = np.random.default_rng(92)
    X = np.array([(i, j) for i in range(40) for j in rng.choice(30, 12, replace=False)])
    y = np.clip(np.round(rng.normal(1.0 + 0.12 * X[:, 0], 0.7)), 1, 5)
    return [fitted(X, y, rank=4, value_range=span) for span in ("auto", None)]


def test_clipping_a_prediction_does_not_change_its_std(extremes):
    cells = np.array([(i, j) for i in range(40) for j in range(30)] + [(0, 99), (99, 0), (99, 99)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inside, free = (model.predict_parts(cells) for model in extremes)
    assert free[0].max() > 5.0 >= inside[0].max()
    np.testing.assert_array_equal(inside[1], free[1])
    np.testing.assert_array_equal(inside[2], free[2])


def test_nor_in_recommendations_and_for_a_new_user(extremes):
    items = list(range(30))
    for user in (0, 39):
        inside, free = (
            {entry.id: entry.std for entry in model.recommend(user, n=30, exclude_seen=False)}
            for model in extremes
        )
        direct = extremes[0].predict([(user, item) for item in items], return_std=True)[1]
        np.testing.assert_array_equal([inside[k] for k in items], [free[k] for k in items])
        np.testing.assert_allclose([inside[k] for k in items], direct, rtol=1e-3)
    inside, free = (
        model.fold_in([1, 2, 3], [5.0, 5.0, 5.0]).predict(items, return_std=True)[1]
        for model in extremes
    )
    np.testing.assert_array_equal(inside, free)


def test_the_std_is_that_of_the_draws(extremes):
    model = extremes[0]
    posterior = model.factors_
    codes = tuple(np.array([code], dtype=np.int32) for code in (39, 0))
    draws = []
    for number in range(len(posterior)):
        user, item = (posterior.rows(number, mode, codes[mode]) for mode in (0, 1))
        draws.append(user.biases[0] + item.biases[0] + user.factors[0] @ item.factors[0])
    epistemic = model.predict_parts([(39, 0)])[2][0]
    assert epistemic == pytest.approx(np.std(draws) * posterior.scale.scale, rel=1e-4)


def test_only_a_scale_bounds_predictions():
    rng = np.random.default_rng(93)
    a, b = (np.append(rng.normal(size=n), 4.0) for n in (30, 25))
    values = np.outer(a, b)  # the largest one is hidden
    known = np.ones(values.shape, dtype=bool)
    known[-1, -1] = False
    model = fitted(np.argwhere(known), values[known], rank=4)
    assert model.value_range_ is None
    assert model.predict([(30, 25)])[0] == pytest.approx(16.0, rel=0.01)
    stars = np.clip(np.round(values + 3.0), 1, 5)
    assert fitted(np.argwhere(known), stars[known], rank=4, sweeps=100).value_range_ == (1.0, 5.0)
