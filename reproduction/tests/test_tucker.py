"""TuckerFactorizer: the equations by hand, short modes, files, and ids never seen."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from noisewise_reproduction.rivals.engine import tucker_sgd as tucker
from noisewise_reproduction.rivals.tucker import TuckerFactorizer
from noisewise_reproduction.runs import search_tucker
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from noisewise import storage
from noisewise.data import observe
from noisewise.data.panel import Panel
from noisewise.engine.sgd.layout import ADAGRAD_START
from noisewise.errors import DataError, DivergedError, ModelFileError, SettingError

ROOT = Path(__file__).parents[1]
SHAPE = (12, 3, 60)
QUICK = {"rank": (4, 3, 4), "random_state": 0, "n_jobs": 1}


def make_tensor(shape=SHAPE, share=0.6, seed=0, noise=0.1):
    """Cells of a tensor of ranks (3, 2, 3) whose middle mode has units of its own."""
    rng = np.random.default_rng(seed)
    ranks = (3, 2, 3)[: len(shape)]
    factors = [rng.normal(size=(n, r)) for n, r in zip(shape, ranks, strict=True)]
    mean = rng.normal(size=ranks)
    for rows in factors:
        mean = np.tensordot(mean, rows, axes=(0, 1))
    mean /= mean.std()
    cells = np.array(list(np.ndindex(shape)))
    units = 10.0 ** cells[:, 1] if len(shape) > 2 else 1.0
    y = units * (mean.ravel() + rng.normal(0, noise, len(cells)) + 3)
    order = rng.permutation(len(cells))
    cut = int(share * len(cells))
    return cells[order[:cut]], y[order[:cut]], cells[order[cut:]], y[order[cut:]]


@pytest.fixture(scope="module")
def data():
    return make_tensor()


@pytest.fixture(scope="module")
def fitted(data):
    return TuckerFactorizer(**QUICK).fit(*data[:2])


def standardised(X, y, X_train, y_train):
    mean = np.array([y_train[X_train[:, 1] == k].mean() for k in range(SHAPE[1])])
    std = np.array([y_train[X_train[:, 1] == k].std() for k in range(SHAPE[1])])
    return (y - mean[X[:, 1]]) / std[X[:, 1]]


def test_an_epoch_is_what_the_equations_say():
    rng = np.random.default_rng(0)
    shape, ranks, rate, l2 = (3, 2, 4), (2, 2, 3), 0.1, 0.05
    codes = tuple(rng.integers(0, n, 6).astype(np.int32) for n in shape)
    values = rng.normal(size=6).astype(np.float32)
    params = tucker.Params(ranks, rate, l2, 7)
    state = tucker.initial_state(params, codes, values, shape)
    state.rows += rng.normal(0, 0.5, state.rows.shape).astype(np.float32)
    A, B, C = (
        state.rows[first : first + n, :r].astype(float)
        for first, n, r in zip(tucker.first_places(shape), shape, ranks, strict=True)
    )
    G = state.core.reshape(ranks).astype(float)
    sums = [np.full(part.shape, ADAGRAD_START) for part in (A, B, C, G)]
    total = 0.0
    for n in np.random.default_rng([7, 1, 0]).permutation(6):
        i, j, k = (code[n] for code in codes)
        a, b, c = A[i].copy(), B[j].copy(), C[k].copy()
        e = values[n] - np.einsum("abc,a,b,c->", G, a, b, c)
        total += e**2
        gradients = [
            l2 * a - e * np.einsum("abc,b,c->a", G, b, c),
            l2 * b - e * np.einsum("abc,a,c->b", G, a, c),
            l2 * c - e * np.einsum("abc,a,b->c", G, a, b),
            l2 * G - e * np.einsum("a,b,c->abc", a, b, c),
        ]
        places = (A[i], B[j], C[k], G)
        own_sums = (sums[0][i], sums[1][j], sums[2][k], sums[3])
        for place, own, gradient in zip(places, own_sums, gradients, strict=True):
            own += gradient**2
            place -= rate * gradient / np.sqrt(own)
    info = tucker.epoch(state, tucker.places_of(codes, shape), values, params)
    assert info.epoch == state.epoch == 1
    assert info.train_rmse == pytest.approx(np.sqrt(total / 6), rel=1e-4)
    for first, rows in zip(tucker.first_places(shape), (A, B, C), strict=True):
        found = state.rows[first : first + len(rows), : rows.shape[1]]
        np.testing.assert_allclose(found, rows, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(state.core, G.ravel(), rtol=1e-3, atol=1e-5)


def test_the_start_is_a_higher_order_svd_of_a_full_tensor():
    X, y, _, _ = make_tensor((12, 30, 40), share=1.0, noise=0.0)
    y = ((y - y.mean()) / y.std()).astype(np.float32)
    unfolded = tucker._unfolded(tuple(X.T.astype(np.int32)), y, (12, 30, 40), 2)
    dense = np.zeros((40, 12, 30))
    dense[X[:, 2], X[:, 0], X[:, 1]] = y
    rng = np.random.default_rng(0)
    expected = np.linalg.svd(dense.reshape(40, -1))[0][:, :3]
    small = tucker.leading_vectors(unfolded, 3, rng)
    np.testing.assert_allclose(np.abs(np.diag(expected.T @ small)), 1.0, atol=1e-6)


def test_long_modes_have_the_same_singular_vectors_as_short_ones(monkeypatch):
    matrix = tucker.scipy.sparse.random(60, 50, 0.3, rng=np.random.default_rng(0), format="csr")
    rng = np.random.default_rng(0)
    small = tucker.leading_vectors(matrix, 4, rng)
    monkeypatch.setattr(tucker, "SMALL", 10)
    large = tucker.leading_vectors(matrix, 4, rng)
    np.testing.assert_allclose(np.abs(np.diag(small.T @ large)), 1.0, atol=1e-6)


def test_most_of_a_tensor_is_recovered_whatever_its_units(fitted, data):
    X, y, asked, truth = data
    error = standardised(asked, fitted.predict(asked), X, y) - standardised(asked, truth, X, y)
    for kind in range(SHAPE[1]):
        assert np.mean(error[asked[:, 1] == kind] ** 2) < 0.15


def test_std_is_right_on_average(fitted, data):
    _, _, asked, truth = data
    mean, std = fitted.predict(asked, return_std=True)
    assert np.mean(((truth - mean) / std) ** 2) == pytest.approx(1.0, abs=0.5)


def test_ranks_respect_short_modes(data):
    model = TuckerFactorizer(rank=5, epochs=2, random_state=0, n_jobs=1).fit(*data[:2])
    assert model.core_.shape == (5, 3, 5)


def test_two_and_four_modes_work():
    for shape in ((20, 30), (5, 3, 4, 10)):
        rng = np.random.default_rng(0)
        cells = np.array(list(np.ndindex(shape)))
        y = np.prod([np.cos(cells[:, m] + m) for m in range(len(shape))], axis=0)
        y += rng.normal(0, 0.01, len(y))
        model = TuckerFactorizer(rank=2, sensor=None, random_state=0, n_jobs=1)
        order = rng.permutation(len(y))
        train, test = order[: 3 * len(y) // 4], order[3 * len(y) // 4 :]
        assert model.fit(cells[train], y[train]).score(cells[test], y[test]) > 0.5


def test_unknown_ids_never_fail_and_have_a_wider_std(fitted, data):
    X = data[0]
    known = fitted.predict(X, return_std=True)[1]
    place, time, both = (X.copy() for _ in range(3))
    place[:, 0], time[:, 2], both[:, [0, 2]] = 99, 9999, 99
    means, stds = zip(
        *(fitted.predict(cells, return_std=True) for cells in (place, time, both)), strict=True
    )
    assert np.isfinite(means).all()
    assert (stds[0] > known).all()
    assert (stds[1] > known).all()
    assert (stds[2] >= np.maximum(stds[0], stds[1])).all()
    assert np.isfinite(fitted.predict([(0, 77, 3)], return_std=True)).all()


def test_unknown_ids_can_have_a_constant(data):
    model = TuckerFactorizer(unknown=5.0, value_range=None, epochs=2, **QUICK).fit(*data[:2])
    np.testing.assert_array_equal(model.predict([(99, 0, 3), (0, 9, 3), (0, 0, -5)]), 5.0)


def test_files_pickles_and_threads_keep_every_bit(fitted, data, tmp_path):
    X, y, asked, _ = data
    fitted.save(tmp_path / "model")
    expected = fitted.predict(asked, return_std=True)
    others = [
        TuckerFactorizer.load(tmp_path / "model"),
        pickle.loads(pickle.dumps(fitted)),
        clone(fitted).set_params(n_jobs=3).fit(X, y),
    ]
    for other in others:
        np.testing.assert_array_equal(other.predict(asked, return_std=True), expected)
        assert other.n_epochs_ == fitted.n_epochs_
    assert clone(fitted).get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        clone(fitted).predict(asked)


def test_a_training_that_was_killed_goes_on_with_the_same_bits(data, tmp_path):
    X, y, asked, _ = data

    def kill(info, state):
        if info.epoch == 3:
            raise ArithmeticError

    model = TuckerFactorizer(epochs=6, **QUICK)
    with pytest.raises(ArithmeticError):
        model.fit(X, y, callbacks=[kill], checkpoint=tmp_path / "state")
    assert (tmp_path / "state").exists()
    resumed = model.fit(X, y, checkpoint=tmp_path / "state").predict(asked)
    assert not (tmp_path / "state").exists()
    once = TuckerFactorizer(epochs=6, **QUICK).fit(X, y).predict(asked)
    np.testing.assert_array_equal(resumed, once)


@pytest.mark.filterwarnings("ignore:All .* values are")
def test_constants_are_predicted_with_a_std_above_zero():
    rows = [(i, j, k, 7.0) for i in range(4) for j in range(3) for k in range(5)]
    model = TuckerFactorizer(rank=2, epochs=5, random_state=0, n_jobs=1).fit(rows)
    mean, std = model.predict([row[:3] for row in rows], return_std=True)
    np.testing.assert_allclose(mean, 7.0, rtol=1e-4)
    assert (std > 0).all()


def test_one_location_and_an_empty_series_are_no_trouble():
    rows = [(0, j, k, float(j + k)) for j in range(3) for k in range(9) if j != 2 or k == 0]
    model = TuckerFactorizer(rank=2, epochs=5, random_state=0, n_jobs=1).fit(rows)
    assert np.isfinite(model.predict([(0, 2, 5), (0, 1, 3)], return_std=True)).all()


def test_duplicate_cells_are_refused():
    with pytest.raises(DataError, match="given more than once"):
        TuckerFactorizer().fit([(0, 0, 0, 1.0), (0, 0, 0, 2.0)])


BAD = {
    "no rank": ({"rank": 0}, "rank must be a whole number, 1 or more, or one for each mode"),
    "one rank too few": ({"rank": (2, 2)}, "one for each of 3 modes"),
    "no such mode": ({"sensor": "kind"}, "sensor must be one of"),
    "no step": ({"learning_rate": 0}, "learning_rate must be"),
}


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD.keys())
def test_a_setting_that_cannot_be_is_refused_with_a_reason(data, settings, message):
    with pytest.raises(SettingError, match=message):
        TuckerFactorizer(**settings).fit(*data[:2])


def test_numbers_that_blow_up_are_an_error_with_advice(data):
    with pytest.raises(DivergedError, match="smaller learning_rate"):
        TuckerFactorizer(learning_rate=1e12, **QUICK).fit(*data[:2])


def test_a_damaged_file_is_refused(fitted, tmp_path):
    path = tmp_path / "model"
    fitted.save(path)
    header, tensors = storage.read(path, "model")
    del header["kind"], header["version"]
    for name in ("noise", "core", "known"):
        damaged = tensors | {name: 0 * tensors[name] if name == "noise" else tensors[name][1:]}
        storage.write(path, "model", header, damaged)
        with pytest.raises(ModelFileError, match="damaged"):
            TuckerFactorizer.load(path)


def test_times_are_not_taken_for_types_even_if_they_are_few():
    rows = [(i, j, k, 100.0 * j + i * k) for i in range(6) for j in range(4) for k in range(3)]
    settings = {"rank": 2, "epochs": 2, "random_state": 0, "n_jobs": 1}
    model = TuckerFactorizer(**settings).fit(rows)
    assert len(model.decomposition_.units.mean) == 4 + 1
    first = TuckerFactorizer(time=0, **settings).fit([(k, j, i, y) for i, j, k, y in rows])
    assert len(first.decomposition_.units.mean) == 4 + 1


def test_the_search_tries_settings_on_two_shares_and_goes_on_where_it_was(
    monkeypatch, tmp_path, data
):
    seen = observe(np.concatenate(data[::2]), np.concatenate(data[1::2]))
    place = tmp_path / "search.json"
    words = ["search", "london.npz", "--json", str(place), "--trials"]
    asked = []

    def named(name, path):
        asked.append(name)
        return Panel(seen, None, 1.0)

    monkeypatch.setattr(search_tucker, "named_panel", named)
    before = tucker.SHRINK
    for trials in (1, 2):
        monkeypatch.setattr("sys.argv", [*words, str(trials)])
        search_tucker.main()
        found = json.loads(place.read_text())
        assert len(found["trials"]) == trials
        assert found["best"] in found["trials"]
    assert found["trials"][0]["settings"] != found["trials"][1]["settings"]
    assert all(0 < error < 2 for one in found["trials"] for error in one["validation_mse"])
    assert asked == ["london-paper-size"] * 2
    assert before == tucker.SHRINK


def test_defaults_are_the_best_of_the_committed_search():
    found = json.loads((ROOT / "results" / "search-tucker.json").read_text())
    best = search_tucker.best_of(found["trials"])
    assert best == found["best"]
    assert best["settings"].pop("shrink") == tucker.SHRINK
    defaults = TuckerFactorizer().get_params()
    for name, value in best["settings"].items():
        assert defaults[name] == pytest.approx(value, rel=0.05)  # rounded
