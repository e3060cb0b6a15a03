"""RBM: its conditional chances and its gradient, levels, settings, and the same bits."""

import sys

import numpy as np
import pytest
from noisewise_reproduction.rivals.boltzmann import Machine, Schedule
from noisewise_reproduction.rivals.rbm import RBM
from noisewise_reproduction.rivals.torch_state import TorchState
from scipy.special import expit, softmax
from shared import assert_same_bits, tensors_of

from noisewise import DataError, MissingExtraError, ModelFileError, SettingError, observe, storage

torch = pytest.importorskip("torch")


def make_model(**settings):
    """A model of the right size for the worlds of these tests."""
    chosen = {"hidden": 10, "batch": 20, "learning_rate": 0.1, "l2": 0.001, "steps_every": 10}
    fixed = {"epochs": 40, "patience": 5, "device": "cpu", "random_state": 0, "n_jobs": 1}
    return RBM(**{**chosen, **fixed, **settings})


def stars(world):
    return np.clip(np.rint(world.y), 1, 5)


@pytest.fixture(scope="module")
def split(world):
    train, test = world.halves()
    return (train.X, stars(train)), (test.X, stars(test))


@pytest.fixture(scope="module")
def fitted(split):
    return make_model().fit(*split[0])


@pytest.fixture(scope="module")
def small(small_world):
    return small_world.X, stars(small_world)


def rmse(model, X, y):
    return float(np.sqrt(np.mean((y - model.predict(X)) ** 2)))


# The machine.


@pytest.fixture
def machine(small):
    schedule = Schedule(0.1, 0.9, 0.9, 0.01, batch=7, steps=3, steps_every=2)
    return Machine(
        torch, torch.device("cpu"), observe(*small), None, encoded=0, hidden=4,
        levels=np.arange(1, 6, dtype=np.float32), schedule=schedule, value_range=None, seed=0,
        n_jobs=1,
    )  # fmt: skip


def random_state(machine):
    rng = np.random.default_rng(0)
    first = machine.first_weights()
    weights = {
        name: torch.from_numpy(rng.normal(size=weight.shape).astype(np.float32))
        for name, weight in first.items()
    }
    return TorchState(torch, weights, lambda w: machine.schedule.optimizer(torch, w))


def one_hot(n, states, rows, size):
    table = np.zeros((n, size))
    table[rows, states] = 1.0
    return table


def test_first_biases_give_every_item_its_own_shares_of_levels(machine, small):
    data = observe(*small)
    bias = machine.first_weights()["visible"].numpy().reshape(-1, 5)
    shares = np.exp(bias)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-5)
    own = [(shares[j] * np.arange(1, 6)).sum() for j in range(data.shape[1])]
    mean = [data.values[data.codes[1] == j].mean() for j in range(data.shape[1])]
    assert np.corrcoef(own, mean)[0, 1] > 0.99


def test_hidden_chances_come_from_observed_levels_alone(machine, small):
    data, state = observe(*small), random_state(machine)
    states = data.codes[1] * 5 + data.values.astype(int) - 1
    visible = one_hot(data.shape[0], states, data.codes[0], 5 * data.shape[1])
    w = {name: weight.numpy() for name, weight in state.weights.items()}
    np.testing.assert_allclose(
        machine.encode(state.weights, machine.observed),
        expit(visible @ w["weights"] + w["hidden"]),
        rtol=1e-4,
    )


def test_batches_hold_every_observation_once(machine, small):
    data = observe(*small)
    random = torch.Generator()
    batches = list(machine._batches(random.manual_seed(0)))
    assert len(batches) == -(-data.shape[0] // 7)
    seen = np.sort(np.concatenate([batch.observed.numpy() for batch in batches]))
    np.testing.assert_array_equal(seen, np.sort(data.codes[1] * 5 + data.values.astype(int) - 1))
    order = [batch.observed.tolist() for batch in machine._batches(random.manual_seed(1))]
    assert order != [batch.observed.tolist() for batch in batches]


def test_chances_of_levels_are_a_softmax_over_them(machine):
    state = random_state(machine)
    batch = next(machine._batches(torch.Generator().manual_seed(0)))
    hidden = machine.encode(state.weights, machine._cells(batch.starts, batch.observed))
    got = machine._chances(state.weights, hidden, batch.levels, batch.items)
    w = {name: weight.numpy() for name, weight in state.weights.items()}
    items, h = batch.items.numpy(), hidden.numpy()[batch.rows.numpy()]
    score = np.einsum("nf,nkf->nk", h, w["weights"].reshape(-1, 5, 4)[items])
    np.testing.assert_allclose(got, softmax(score + w["visible"].reshape(-1, 5)[items], 1), 1e-4)


def test_gradient_is_what_is_dreamt_less_what_was_observed(machine):
    state = random_state(machine)
    batch = next(machine._batches(torch.Generator().manual_seed(0)))
    n, size = 7, len(state.weights["visible"])
    awake, asleep = torch.rand(n, 4), torch.rand(n, 4)
    dreamt = batch.items * 5 + torch.randint(0, 5, batch.items.shape, dtype=torch.int32)
    machine._leave_gradient(state.weights, batch, dreamt, awake, asleep)
    tables = [
        one_hot(n, states.numpy(), batch.rows.numpy(), size) for states in (dreamt, batch.observed)
    ]
    expected = (tables[0].T @ asleep.numpy() - tables[1].T @ awake.numpy()) / n
    np.testing.assert_allclose(state.weights["weights"].grad, expected, atol=1e-5)
    expected = (tables[0] - tables[1]).mean(axis=0)
    np.testing.assert_allclose(state.weights["visible"].grad, expected, atol=1e-5)
    np.testing.assert_allclose(
        state.weights["hidden"].grad, (asleep - awake).mean(0), rtol=1e-4, atol=1e-6
    )


def test_steps_and_rate_follow_the_schedule(machine):
    state = random_state(machine)
    assert [machine.schedule.prepare(state.optimizer, epoch) for epoch in range(8)] == [
        1, 1, 2, 2, 3, 3, 3, 3,
    ]  # fmt: skip
    groups = state.optimizer.param_groups
    assert {group["lr"] for group in groups} == {0.1 * 0.9**7}
    assert {group["momentum"] for group in groups} == {0.9}
    assert [group["weight_decay"] for group in groups] == [0.01, 0.0, 0.0]


# The model.


@pytest.mark.parametrize("orientation", ["user", "item"])
def test_mean_is_much_better_than_the_average(split, orientation):
    (X, y), (test_X, test_y) = split
    model = make_model(orientation=orientation).fit(X, y)
    assert rmse(model, test_X, test_y) < 0.85 * test_y.std()


def test_mean_and_noise_follow_from_the_chances(split):
    (X, y), (test_X, _) = split
    model = make_model(patience=None, epochs=10).fit(X, y)
    chances = model.predict_proba(test_X)
    np.testing.assert_array_equal(model.levels_, [1, 2, 3, 4, 5])
    assert chances.dtype == np.float32
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-5)
    mean, noise, epistemic = model.predict_parts(test_X)
    np.testing.assert_allclose(mean, chances @ model.levels_, rtol=1e-5)
    variance = (chances * (model.levels_ - mean[:, None]) ** 2).sum(axis=1)
    np.testing.assert_allclose(noise**2, variance, rtol=1e-3)
    assert (epistemic > 0).all()


def test_chances_are_right_on_average(fitted, split):
    _, (X, y) = split
    chances = fitted.predict_proba(X)
    shares = [np.mean(y == level) for level in fitted.levels_]
    np.testing.assert_allclose(chances.mean(axis=0), shares, atol=0.03)
    likelihood = np.log(chances[np.arange(len(y)), y.astype(int) - 1]).mean()
    assert likelihood > np.log(shares) @ shares


def test_half_stars_have_ten_levels(small):
    X, y = small
    model = make_model(epochs=2).fit(X, np.arange(len(y)) % 10 / 2 + 0.5)
    np.testing.assert_array_equal(model.levels_, np.arange(1, 11) / 2)


def test_too_many_levels_are_refused_with_their_number(small_world):
    with pytest.raises(DataError, match="at most 50 levels, such as stars; got 400 different"):
        make_model().fit(small_world.X, small_world.y)


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_intervals_cover_as_often_as_they_say(fitted, split, coverage):
    _, (X, y) = split
    low, high = fitted.predict_interval(X, coverage=coverage)
    assert np.mean((low <= y) & (y <= high)) == pytest.approx(coverage, abs=0.03)


# The same bits.


def test_fit_has_the_same_bits_for_any_number_of_threads(split, tmp_path):
    (X, y), _ = split
    before = torch.get_num_threads()
    one, *others = (
        tensors_of(make_model(hidden=64, epochs=4, n_jobs=n).fit(X, y), tmp_path) for n in (1, 2, 4)
    )
    for other in others:
        assert_same_bits(other, one)
    assert torch.get_num_threads() == before


def test_a_loaded_model_has_the_same_chances(fitted, split, tmp_path):
    fitted.save(tmp_path / "model")
    cells = [*split[1][0].tolist(), (-1, 3), (3, -1), (-1, -1)]
    loaded = RBM.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(cells), fitted.predict_proba(cells))


BREAKS = {
    "levels is not sorted": lambda tensors: {"levels": tensors["levels"][::-1]},
    "bias must be": lambda tensors: {"bias": tensors["bias"][:, :4]},
    "counts0 makes no sense": lambda tensors: {"counts0": 0 * tensors["counts0"]},
    "shrink1 must not be negative": lambda tensors: {"shrink1": -tensors["shrink1"]},
}


@pytest.mark.parametrize("message", BREAKS)
def test_a_file_that_makes_no_sense_is_refused(fitted, tmp_path, message):
    fitted.save(tmp_path / "model")
    header, tensors = storage.read(tmp_path / "model", "model")
    storage.write(tmp_path / "model", "model", header, tensors | BREAKS[message](tensors))
    with pytest.raises(ModelFileError, match=message):
        RBM.load(tmp_path / "model")


# Settings.


CHANGES = {
    "hidden": 5,
    "orientation": "item",
    "learning_rate": 0.03,
    "decay": 0.5,
    "momentum": 0.1,
    "l2": 0.1,
    "batch": 5,
    "steps": 1,
    "steps_every": 3,
    "epochs": 5,
    "patience": 5,
    "random_state": 1,
}


@pytest.mark.parametrize(("name", "value"), CHANGES.items())
def test_each_setting_of_learning_changes_the_model(small, name, value):
    X, _ = small
    before, after = (
        make_model(patience=None, epochs=12, steps_every=2).set_params(**change).fit(*small)
        for change in ({}, {name: value})
    )
    assert not np.array_equal(before.predict(X, return_std=True), after.predict(X, return_std=True))


@pytest.mark.parametrize("monitor", ["rmse", "nll"])
def test_monitor_chooses_the_epoch(small, monitor):
    model = make_model(monitor=monitor, refit=False, epochs=20, patience=20).fit(*small)
    assert model.n_epochs_ == 1 + np.argmin(model.learning_curve_[f"validation_{monitor}"])


INVALID = {
    "hidden": [0, 1.5, None],
    "orientation": ["row", None],
    "learning_rate": [0, -0.1, float("nan")],
    "decay": [0, 1.1],
    "momentum": [-0.1, 1.0],
    "l2": [-1, None],
    "batch": [0, 0.5],
    "steps": [0],
    "steps_every": [0],
    "device": ["gpu", None],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in INVALID.items() for value in values]
)
def test_an_invalid_setting_is_named_with_its_value(small, name, value):
    with pytest.raises(SettingError, match=rf"^{name} must be .*; got {value!r}"):
        make_model(**{name: value}).fit(*small)


def test_numbers_that_blow_up_are_an_error_with_advice(small):
    with pytest.raises(ArithmeticError, match=r"smaller learning_rate \(now 1e\+38\)"):
        make_model(learning_rate=1e38).fit(*small)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_learns_as_well(split):
    (X, y), test = split
    cpu, gpu = (make_model(device=device).fit(X, y) for device in ("cpu", "cuda"))
    assert rmse(gpu, *test) == pytest.approx(rmse(cpu, *test), rel=0.03)


def test_without_torch_the_error_says_what_to_install(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"RBM needs.*noisewise-reproduction\[neural\]"):
        make_model().fit(*small)
