"""Models go through MLflow and come back the same, and nothing is pickled."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
mlflow = pytest.importorskip("mlflow", reason="the MLflow flavour needs the extra mlflow")

from noisewise import DeviationFactorizer, DeviationImputer, ModelFileError  # noqa: E402
from noisewise.data.synthetic import make_ratings  # noqa: E402
from noisewise.mlflow import load_model, log_model, save_model  # noqa: E402


@pytest.fixture(scope="module")
def model():
    ratings = make_ratings(n_users=60, n_items=40, seed=0).observations
    return DeviationFactorizer(rank=2, random_state=0).fit(ratings)


@pytest.fixture
def asked():
    return pd.DataFrame({"user": ["user00", "user01", "nobody"], "item": ["item03"] * 3})


@pytest.mark.filterwarnings("ignore")  # what pandas says of how MLflow keeps examples
def test_a_saved_model_is_the_same_as_itself_and_as_pyfunc(model, asked, tmp_path):
    save_model(model, tmp_path / "saved", input_example=asked)
    mean, std = model.predict(asked, return_std=True)
    again = load_model(str(tmp_path / "saved"))
    np.testing.assert_array_equal(again.predict(asked), mean)
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    found = loaded.predict(asked)
    np.testing.assert_allclose(found["mean"], mean, atol=1e-5)
    np.testing.assert_allclose(found["std"], std, atol=1e-5)
    low, high = model.predict_interval(asked, coverage=0.5)
    narrow = loaded.predict(asked, params={"coverage": 0.5})
    np.testing.assert_allclose(narrow["low"], low, atol=1e-5)
    np.testing.assert_allclose(narrow["high"], high, atol=1e-5)
    assert [column.name for column in loaded.metadata.signature.inputs.inputs] == ["user", "item"]
    assert type(loaded.get_raw_model()) is DeviationFactorizer


def test_nothing_of_a_saved_model_is_pickled(model, tmp_path):
    save_model(model, tmp_path / "saved")
    files = {path.name for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    assert files == {"MLmodel", "model.safetensors", "requirements.txt", "python_env.yaml"}
    path = tmp_path / "saved" / "model.safetensors"
    path.write_bytes(b"\x80\x04cos\nsystem\n(S'touch owned'\ntR.")
    with pytest.raises(ModelFileError, match="not a noisewise file"):
        mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    assert not Path("owned").exists()


def test_columns_of_another_type_are_refused_by_the_signature(model, asked, tmp_path):
    save_model(model, tmp_path / "saved")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    with pytest.raises(mlflow.exceptions.MlflowException, match="missing"):
        loaded.predict(asked[["user"]])


def test_an_imputer_fills_a_frame(tmp_path):
    hours = pd.date_range("2026-01-01", periods=48, freq="h")
    heat = pd.DataFrame({"hall": 20 + np.sin(np.arange(48) / 4), "attic": 15.0}, index=hours)
    heat["attic"] += np.cos(np.arange(48) / 4)
    heat.iloc[20:23, 0] = np.nan
    imputer = DeviationImputer("ou", random_state=0).fit(heat)
    save_model(imputer, tmp_path / "saved")
    found = mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict(heat)
    filled, std = imputer.transform(heat, return_std=True)
    assert list(found.columns) == ["hall", "attic", "hall_std"]
    np.testing.assert_allclose(found["hall"], filled["hall"], atol=1e-5)
    np.testing.assert_allclose(found["hall_std"], std["hall"], atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # what MLflow says of libraries of its own
def test_a_model_is_logged_to_a_run_and_registered(model, asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # which takes no seconds to set up
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        with mlflow.start_run():
            info = log_model(model, "ratings", registered_model_name="ratings")
        again = load_model(info.model_uri)
        np.testing.assert_array_equal(again.predict(asked), model.predict(asked))
        found = mlflow.pyfunc.load_model("models:/ratings/1").predict(asked)
        np.testing.assert_allclose(found["mean"], model.predict(asked), atol=1e-5)
    finally:
        mlflow.set_tracking_uri(before)
