"""AutoRec: the loss it descends, both orientations and optimizers, new rows, and the same bits."""

import sys

import numpy as np
import pytest
from noisewise_reproduction.rivals.autoencoder import Network
from noisewise_reproduction.rivals.autorec import AutoRec
from shared import assert_same_bits, make_world, tensors_of

from noisewise import DataError, MissingExtraError, ModelFileError, SettingError, observe, storage

torch = pytest.importorskip("torch")


def make_model(**settings):
    """A model of the right size for the worlds of these tests."""
    chosen = {"hidden": 10, "l2": 10.0, "presence": 0.0, "balance": 0.0, "epochs": 80}
    fixed = {"patience": 5, "device": "cpu", "random_state": 0, "n_jobs": 1}
    return AutoRec(**{**chosen, **fixed, **settings})


@pytest.fixture(scope="module")
def split(world):
    return world.halves()


@pytest.fixture(scope="module")
def fitted(split):
    return make_model().fit(split[0].X, split[0].y)


def rmse(model, world):
    return float(np.sqrt(np.mean((world.y - model.predict(world.X)) ** 2)))


@pytest.mark.parametrize("orientation", ["item", "user"])
@pytest.mark.parametrize("optimizer", ["rprop", "lbfgs"])
def test_mean_comes_near_the_best_there_is(split, orientation, optimizer):
    train, test = split
    model = make_model(orientation=orientation, optimizer=optimizer).fit(train.X, train.y)
    best = np.sqrt(np.mean((test.y - test.mean) ** 2))
    assert rmse(model, test) < 1.15 * best
    assert rmse(model, test) < 0.8 * test.y.std()


@pytest.mark.parametrize("encoded", [0, 1])
def test_gradient_is_that_of_the_loss_on_observed_outputs(small_world, encoded):
    data = observe(small_world.X, small_world.y)
    network = Network(
        torch, torch.device("cpu"), data, None,
        encoded=encoded, hidden=3, l2=0.7, presence=1.5, balance=0.5, value_range=None, n_jobs=1,
    )  # fmt: skip
    weights = {name: 100 * weight + 0.1 for name, weight in network.first_weights(0).items()}
    loss, _ = network._gradient(weights)

    mask = np.zeros((data.shape[encoded], data.shape[1 - encoded]), bool)
    table = np.zeros(mask.shape)
    cells = data.codes[encoded], data.codes[1 - encoded]
    mask[cells], table[cells] = True, (data.values - data.values.mean()) / data.values.std()
    target, seen = torch.tensor(table), torch.tensor(mask).double()
    count = seen.sum(1, keepdim=True)
    free = {k: w.double().clone().requires_grad_() for k, w in weights.items()}
    inputs = seen * (target + 1.5) * (count.mean() / count) ** 0.5
    hidden = torch.sigmoid(inputs @ free["encoder"] + free["shift"])
    error = seen * (hidden @ free["decoder"].T + free["bias"] - target)
    squares = (free["encoder"] ** 2).sum() + (free["decoder"] ** 2).sum()
    expected = (error**2).sum() + 0.35 * squares
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for name, weight in weights.items():
        np.testing.assert_allclose(weight.grad, free[name].grad, rtol=1e-3, atol=1e-3)


def test_every_step_of_lbfgs_lowers_the_loss(small_world):
    X, y = small_world.X, small_world.y
    model = make_model(optimizer="lbfgs", l2=0.01, patience=None, epochs=20).fit(X, y)
    curve = model.learning_curve_["train_rmse"]
    assert (np.diff(curve) < 1e-3).all()
    assert curve[-1] < 0.3 * y.std()


def test_a_table_of_all_cells_is_never_built():
    n = 60_000  # all cells: 14 GB
    X, y = np.column_stack([np.arange(n), np.arange(n)]), np.arange(n) % 5
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    make_model(hidden=2, epochs=2).fit(X, y).predict(X)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kilobytes


@pytest.mark.parametrize("orientation", ["item", "user"])
def test_a_row_that_is_folded_in_predicts_like_one_that_was_trained(split, orientation):
    train, _ = split
    model = make_model(orientation=orientation, optimizer="lbfgs", epochs=300, patience=None)
    model.set_params(presence=1.0, balance=0.5).fit(train.X, train.y)
    for mode in (0, 1):
        mine = train.X[:, mode] == 7
        new = model.fold_in(train.X[mine, 1 - mode].tolist(), train.y[mine], mode=mode)
        others = [*range(100), -1]
        cells = np.full((len(others), 2), 7)
        cells[:, 1 - mode] = others
        encoded = mode == (1 if orientation == "item" else 0)
        np.testing.assert_allclose(
            np.clip(new.predict(others), *model.value_range_),
            model.predict(cells),
            atol=1e-3 if encoded else 0.3,  # the network again, or outputs like those it has
        )
    with pytest.raises(DataError, match="one value for each id"):
        model.fold_in([1, 2], [3.0], mode=1)


def test_recommendations_are_the_best_of_what_was_not_seen(fitted, split):
    train, _ = split
    seen = set(train.X[train.X[:, 0] == 3, 1].tolist())
    best = fitted.recommend(3, n=5)
    left = [item for item in range(150) if item not in seen]
    mean = dict(zip(left, fitted.predict([(3, item) for item in left]).tolist(), strict=True))
    assert [r.id for r in best] == sorted(left, key=lambda item: -mean[item])[:5]


def test_noise_is_the_same_everywhere_and_epistemic_is_not(fitted, split):
    _, test = split
    _, noise, epistemic = fitted.predict_parts(test.X)
    assert (noise == noise[0]).all()
    assert len(np.unique(epistemic)) > 1


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_intervals_cover_as_often_as_they_say(fitted, split, coverage):
    _, test = split
    low, high = fitted.predict_interval(test.X, coverage=coverage)
    assert np.mean((low <= test.y) & (test.y <= high)) == pytest.approx(coverage, abs=0.03)


# The same bits.


@pytest.mark.parametrize("optimizer", ["rprop", "lbfgs"])
def test_fit_has_the_same_bits_for_any_number_of_threads(world, tmp_path, optimizer):
    before = torch.get_num_threads()
    one, *others = (
        tensors_of(
            make_model(hidden=64, optimizer=optimizer, epochs=10, n_jobs=n).fit(world.X, world.y),
            tmp_path,
        )
        for n in (1, 2, 4)
    )
    for other in others:
        assert_same_bits(other, one)
    assert torch.get_num_threads() == before


class Killed(Exception):
    """Training was killed."""


def test_lbfgs_has_the_same_bits_after_being_killed(small_world, tmp_path):
    X, y = small_world.X, small_world.y
    whole = make_model(optimizer="lbfgs").fit(X, y)
    expected, last = tensors_of(whole, tmp_path), whole.n_epochs_
    assert last > 2
    model, kept = make_model(optimizer="lbfgs"), tmp_path / "kept"
    for in_refit, epoch in ((False, 3), (False, last + 4), (True, 2), (True, last)):

        def kill(info, state, in_refit=in_refit, epoch=epoch):
            if (info.validation_rmse is None) is in_refit and info.epoch == epoch:
                raise Killed

        with pytest.raises(Killed):
            model.fit(X, y, callbacks=[kill], checkpoint=kept)
    assert_same_bits(tensors_of(model.fit(X, y, checkpoint=kept), tmp_path), expected)


def test_a_checkpoint_whose_optimizer_fits_no_weights_is_refused(small_world, tmp_path):
    path = tmp_path / "kept"

    def kill(info, state):
        if info.epoch == 3:
            raise Killed

    model = make_model()
    with pytest.raises(Killed):
        model.fit(small_world.X, small_world.y, callbacks=[kill], checkpoint=path)
    header, tensors = storage.read(path, "checkpoint")
    (name, *_) = (name for name in tensors if name.startswith("state.optimizer"))
    tensors[name] = tensors[name].reshape(-1)[1:]
    storage.write(path, "checkpoint", {k: v for k, v in header.items() if k != "kind"}, tensors)
    with pytest.raises(ModelFileError, match=r"optimizer\.\S+ must be float32 of shape"):
        model.fit(small_world.X, small_world.y, checkpoint=path)


def test_a_file_without_its_encoder_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    header, tensors = storage.read(tmp_path / "model", "model")
    del tensors["encoder"]
    storage.write(tmp_path / "model", "model", header, tensors)
    with pytest.raises(ModelFileError, match="encoder is missing"):
        AutoRec.load(tmp_path / "model")


# Settings.


CHANGES = {
    "hidden": 5,
    "orientation": "user",
    "optimizer": "lbfgs",
    "l2": 30.0,
    "presence": 3.0,
    "balance": 0.5,
    "epochs": 5,
    "patience": None,
    "refit": False,
    "validation_fraction": 0.3,
    "random_state": 1,
}


@pytest.mark.parametrize(("name", "value"), CHANGES.items())
def test_each_setting_of_learning_changes_the_model(small_world, name, value):
    X, y = small_world.X, small_world.y
    before = make_model().fit(X, y)
    after = make_model().set_params(**{name: value}).fit(X, y)
    assert not np.array_equal(before.predict(X, return_std=True), after.predict(X, return_std=True))


def test_monitor_chooses_the_epoch(small_world):
    model = make_model(monitor="nll", refit=False, epochs=40, patience=40)
    model.fit(small_world.X, small_world.y)
    assert model.n_epochs_ == 1 + np.argmin(model.learning_curve_["validation_nll"])


INVALID = {
    "hidden": [0, 1.5, None],
    "orientation": ["row", None],
    "optimizer": ["adam", None],
    "l2": [-1, float("nan"), None],
    "presence": [float("inf"), "raw"],
    "balance": [-0.1, 1.1],
    "device": ["gpu", 0, None],
    "epochs": [0],
    "n_jobs": [0],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in INVALID.items() for value in values]
)
def test_an_invalid_setting_is_named_with_its_value(small_world, name, value):
    with pytest.raises(SettingError, match=rf"^{name} must be .*; got {value!r}"):
        make_model(**{name: value}).fit(small_world.X, small_world.y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_an_error_and_auto_takes_the_cpu(small_world):
    X, y = small_world.X, small_world.y
    with pytest.raises(SettingError, match="torch sees no GPU; got 'cuda'"):
        make_model(device="cuda").fit(X, y)
    auto, cpu = (make_model(device=device).fit(X, y).predict(X) for device in ("auto", "cpu"))
    np.testing.assert_array_equal(auto, cpu)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_learns_the_same_model(split):
    train, test = split
    cpu, gpu = (make_model(device=d).fit(train.X, train.y) for d in ("cpu", "cuda"))
    assert rmse(gpu, test) == pytest.approx(rmse(cpu, test), rel=0.02)


def test_without_torch_the_error_says_what_to_install(small_world, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"AutoRec needs.*noisewise-reproduction\[neural\]"):
        make_model().fit(small_world.X, small_world.y)


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.filterwarnings("ignore:All .* values are")
def test_a_handful_of_observations_is_enough_for_lbfgs(n):
    X = [(f"user{k % 2}", f"item{k}") for k in range(n)]
    for y in (range(n), [3.0] * n):
        model = make_model(optimizer="lbfgs").fit(X, y)
        mean, std = model.predict([*X, ("nobody", "nothing")], return_std=True)
        assert ((mean >= min(y)) & (mean <= max(y))).all()
        assert (np.isfinite(std) & (std > 0)).all()


def test_ids_that_were_only_held_out_are_unknown_at_first():
    world = make_world(30, 20, 400, seed=1)
    train, more = world.halves()
    more = observe([*more.X.tolist(), (99, 99)], [*more.y, 3.0])
    model = make_model(refit=False).fit(train.X, train.y, validation=more)
    np.testing.assert_array_equal(model.predict([(99, 99)]), model.predict([(-1, -1)]))
    model.set_params(refit=True).fit(train.X, train.y, validation=more)
    assert model.predict([(99, 99)]) != model.predict([(-1, -1)])
