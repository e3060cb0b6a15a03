"""What leaves the house: ONNX and vectors say what ``predict`` says."""

import numpy as np
import pytest

from noisewise import BayesianFactorizer, DataError, DeviationFactorizer, SettingError
from noisewise.data.synthetic import make_ratings
from noisewise.export import to_onnx, vectors, write_vectors
from noisewise.export.vectors import read_vectors

onnx = pytest.importorskip("onnx", reason="writing ONNX needs the extra onnx")
runtime = pytest.importorskip("onnxruntime", reason="reading ONNX needs onnxruntime")


@pytest.fixture(scope="module")
def model():
    ratings = make_ratings(n_users=300, n_items=120, seed=0).observations
    found = DeviationFactorizer(rank=4, deviation_rank=2, random_state=0).fit(ratings)
    assert found.calibration_.shape is not None  # the hardest case
    return found


def cells_of(model, n=400):
    rng = np.random.default_rng(0)
    users, items = (ids.labels[rng.integers(len(ids), size=n)] for ids in model.ids_)
    return users, items


def asked(path, **columns):
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, columns)


def check(model, path, users, items):
    to_onnx(model, path)
    mean, std = asked(path, user=users, item=items)
    want = model.predict(list(zip(users.tolist(), items.tolist(), strict=True)), return_std=True)
    np.testing.assert_allclose(mean, want[0], atol=1e-5, rtol=1e-6)
    np.testing.assert_allclose(std, want[1], atol=1e-5, rtol=1e-6)


def test_onnx_gives_mean_and_std_of_predict(model, tmp_path):
    users, items = cells_of(model)
    users[:3], items[2:5] = "nobody", "nothing"
    check(model, tmp_path / "model.onnx", users, items)


@pytest.mark.parametrize(
    "settings",
    [
        {"patience": None}, {"deviation_rank": 0}, {"unknown": 2.5}, {"value_range": None},
        {"value_range": (2.0, 3.0)},
    ],
    ids=str,
)  # fmt: skip
def test_onnx_follows_the_settings(settings, tmp_path):
    ratings = make_ratings(n_users=60, n_items=40, seed=1).observations
    model = DeviationFactorizer(**{"rank": 2, "random_state": 0} | settings).fit(ratings)
    users, items = cells_of(model, 50)
    users[:2] = "nobody"
    check(model, tmp_path / "model.onnx", users, items)


def test_ids_may_be_numbers_and_values_large(tmp_path):
    rng = np.random.default_rng(0)
    X = np.unique(rng.integers(0, 40, size=(900, 2)), axis=0) * [[7, 11]]
    model = DeviationFactorizer(rank=2, random_state=0).fit(X, 1e6 + rng.normal(size=len(X)))
    users, items = cells_of(model, 50)
    to_onnx(model, tmp_path / "model.onnx")
    names = [ids.name for ids in model.ids_]
    mean, _ = asked(tmp_path / "model.onnx", **dict(zip(names, (users, items), strict=True)))
    np.testing.assert_allclose(mean, model.predict(np.column_stack([users, items])), rtol=1e-6)


def test_inner_products_of_both_sides_are_the_predictions(model, tmp_path):
    users, items = cells_of(model)
    users[0], items[1] = "nobody", "nothing"
    sides = []
    for name, ids in (("user", users), ("item", items)):
        to_onnx(model, tmp_path / "side.onnx", mode=name)
        sides.append(asked(tmp_path / "side.onnx", **{name: ids}))
    mean, variance = (np.einsum("ij,ij->i", *pair) for pair in zip(*sides, strict=True))
    cells = list(zip(users.tolist(), items.tolist(), strict=True))
    low, high = model.value_range_
    np.testing.assert_allclose(mean.clip(low, high), model.predict(cells), atol=1e-5)
    raw = model.cells(cells).moments
    np.testing.assert_allclose(variance, raw.noise + raw.epistemic, rtol=1e-5)


def test_vectors_are_those_of_files(model, tmp_path):
    own = vectors(model, mode="item")
    assert write_vectors(model, tmp_path / "v.npz", mode="item") == 120
    for found, want in zip(read_vectors(tmp_path / "v.npz"), own, strict=True):
        np.testing.assert_array_equal(found, want)
    parquet = pytest.importorskip("pyarrow.parquet")
    write_vectors(model, tmp_path / "v.parquet", mode="item")
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table.column_names == ["item", "mean", "variance", "observations"]
    np.testing.assert_array_equal(np.array(table["mean"].to_pylist(), np.float32), own.mean[:-1])
    assert table["item"].to_pylist() == own.ids.tolist()


def test_what_cannot_be_exported_is_a_sentence(model, tmp_path):
    with pytest.raises(SettingError, match=r"to .npz or .parquet; got"):
        write_vectors(model, tmp_path / "v.csv")
    tensor = [(k % 3, k % 4, k % 5, float(k)) for k in range(60)]
    with pytest.raises(DataError, match="2 id columns; this one has 3"):
        vectors(DeviationFactorizer(rank=1, epochs=1).fit(tensor))
    dates = [((k % 5, "x"), k % 7, float(k)) for k in range(35)]
    with pytest.raises(SettingError, match="whole numbers or text"):
        to_onnx(DeviationFactorizer(rank=1, epochs=1).fit(dates), tmp_path / "m.onnx")
    bayes = BayesianFactorizer(rank=1, sweeps=3, burn_in=1, n_jobs=1, random_state=0)
    bayes.fit([(k % 5, k % 7, float(k % 3)) for k in range(35)])
    with pytest.raises(SettingError, match="A BayesianFactorizer has no vectors"):
        vectors(bayes)
    assert not (tmp_path / "m.onnx").exists()
