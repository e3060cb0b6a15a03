"""OUSmoother: memory and noise are found, and the std is exact (see test_interpolation too)."""

import numpy as np
import pytest

from noisewise import storage
from noisewise.errors import ModelFileError
from noisewise.models.series import LEAST_SHARE, LinearInterpolator, OUSmoother

LENGTHS = {"short": 3.0, "long": 30.0}
SHARES = {"short": 0.05, "long": 0.4}


def make_processes(n_places=8, n_times=300, seed=0):
    """Cells (place, type, time) at irregular times; half of them, in no order."""
    rng = np.random.default_rng(seed)
    cells, values = [], []
    for kind, scale in (("short", 1.0), ("long", 50.0)):
        for place in range(n_places):
            time = np.cumsum(rng.exponential(1.0, n_times))
            x = rng.normal()
            for k in range(n_times):
                if k:
                    phi = np.exp(-(time[k] - time[k - 1]) / LENGTHS[kind])
                    x = phi * x + np.sqrt(1 - phi**2) * rng.normal()
                noise = rng.normal(0, np.sqrt(SHARES[kind]))
                cells.append((place, kind, float(time[k])))
                values.append(scale * (np.sqrt(1 - SHARES[kind]) * x + noise + 2))
    order = rng.permutation(len(cells))
    X, y = np.array(cells, dtype=object)[order], np.array(values)[order]
    half = len(y) // 2
    return X[:half], y[:half], X[half:], y[half:]


@pytest.fixture(scope="module")
def data():
    return make_processes()


@pytest.fixture(scope="module")
def model(data):
    return OUSmoother(n_jobs=1).fit(*data[:2])


def test_memory_and_noise_are_found_for_every_type(model):
    for kind, length, share in zip(
        model.ids_[1].labels, model.length_, model.noise_share_, strict=True
    ):
        assert length == pytest.approx(LENGTHS[kind], rel=0.5)
        assert share == pytest.approx(SHARES[kind], abs=0.1)
    np.testing.assert_allclose(model.phi_, np.exp(-model.unit_ / model.length_))


def test_times_that_were_never_seen_are_predicted_better_than_by_a_line(model, data):
    X, y, asked, truth = data
    line = LinearInterpolator(n_jobs=1).fit(X, y)
    for kind in LENGTHS:
        own = asked[:, 1] == kind
        errors = [np.mean((truth - m.predict(asked))[own] ** 2) for m in (model, line)]
        assert errors[0] < errors[1]


def test_std_is_right_for_every_type(model, data):
    _, _, asked, truth = data
    mean, std = model.predict(asked, return_std=True)
    for kind in LENGTHS:
        own = asked[:, 1] == kind
        assert np.mean(((truth - mean) / std)[own] ** 2) == pytest.approx(1.0, abs=0.15)


def test_mean_and_std_are_those_of_a_dense_gaussian_process(model, data):
    X, y, asked, _ = data
    own = (X[:, 0] == 3) & (X[:, 1] == "long")
    asked = asked[(asked[:, 0] == 3) & (asked[:, 1] == "long")]
    kinds = model.ids_[1].labels.tolist()
    codes = [3], [kinds.index("long")], [0]
    place = model._index.series(tuple(np.array(code, np.int32) for code in codes))[0]
    mean, variance, noise, timescale = (part[place] for part in model.process_)

    def kernel(a, b):
        return variance * np.exp(-np.abs(np.subtract.outer(a, b)) / timescale)

    time, when = X[own, 2].astype(float), asked[:, 2].astype(float)
    full = kernel(time, time) + noise * np.eye(len(time))
    cross = kernel(when, time)
    expected = mean + cross @ np.linalg.solve(full, y[own].astype(np.float32) - mean)
    left = variance + noise - np.einsum("qk,kq->q", cross, np.linalg.solve(full, cross.T))
    found = model.predict(asked, return_std=True)
    np.testing.assert_allclose(found, [expected, np.sqrt(left)], rtol=1e-5)


def test_far_from_all_observations_there_is_only_the_series_mean(model):
    mean, std = model.predict([(3, "long", 1e9)], return_std=True)
    series = np.argmin(np.abs(model.process_.mean - mean[0]))
    own = model.process_.variance[series] + model.process_.noise[series]
    assert std[0] == pytest.approx(np.sqrt(own), rel=1e-4)


def test_a_series_without_noise_keeps_a_little():
    rows = [("a", t, np.sin(t / 50)) for t in range(400)]
    model = OUSmoother(n_jobs=1).fit(rows)
    assert model.noise_share_[0] == pytest.approx(LEAST_SHARE)
    middle = model.predict([("a", 100.5)])[0]
    assert middle == pytest.approx(np.sin(100.5 / 50), abs=0.01)


def test_white_noise_is_averaged():
    rng = np.random.default_rng(0)
    rows = [("a", t, value) for t, value in enumerate(rng.normal(5, 1, 500))]
    mean = OUSmoother(n_jobs=1).fit(rows).predict([row[:2] for row in rows])
    assert mean.std() < 0.4
    assert mean.mean() == pytest.approx(5, abs=0.2)


DAMAGE = {
    "a share of one": ("noise_share", lambda t: np.ones_like(t)),
    "no length": ("length", lambda t: 0 * t),
    "times in no order": ("series.time", lambda t: t[::-1].copy()),
    "series that cannot be": ("series.keys", lambda t: t + 10**9),
    "too few values": ("series.values", lambda t: t[1:]),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_refused(model, tmp_path, name, damage):
    path = tmp_path / "model"
    model.save(path)
    header, tensors = storage.read(path, "model")
    del header["kind"], header["version"]
    storage.write(path, "model", header, tensors | {name: damage(tensors[name])})
    with pytest.raises(ModelFileError, match="damaged"):
        OUSmoother.load(path)
