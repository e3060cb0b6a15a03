"""The same bits: for any number of threads, from a file, and after being killed at any moment."""

import ast
import math
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from shared import assert_same_bits, forkserver, tensors_of

from noisewise import load, storage
from noisewise.engine.sgd import strata
from noisewise.models.deviation import DeviationFactorizer

ROOT = Path(__file__).parents[1]


def make_model(**settings):
    chosen = {"rank": 4, "deviation_rank": 2, "epochs": 12, "warmup": 2, "random_state": 3}
    return DeviationFactorizer(**{**chosen, "n_jobs": 1, **settings})


@pytest.mark.parametrize("adagrad", ["coordinate", "row"])
def test_fit_has_the_same_bits_for_any_number_of_threads(adagrad, world, tmp_path):
    shape = (200, 150)
    assert strata.arrange(tuple(world.X.T.astype(np.int32)), world.y, shape, width=64).side >= 4
    models = [
        make_model(adagrad=adagrad, n_jobs=n_jobs).fit(world.X, world.y) for n_jobs in (1, 2, 4)
    ]
    one, *others = [tensors_of(model, tmp_path) for model in models]
    for other in others:
        assert_same_bits(other, one)
    curves = [model.learning_curve_["validation_rmse"] for model in models]
    assert curves[0] == curves[1] == curves[2]


def test_predict_has_the_same_bits_for_any_number_of_threads(world, monkeypatch):
    monkeypatch.setattr(strata, "CHUNK", 1000)  # so that there is work for each of them
    model = make_model(epochs=3).fit(world.X, world.y)
    one = model.predict(world.X, return_std=True)
    for n_jobs in (2, 4, -1):
        other = model.set_params(n_jobs=n_jobs).predict(world.X, return_std=True)
        np.testing.assert_array_equal(other, one)


def test_partial_fit_has_the_same_bits_for_any_number_of_threads(world, tmp_path):
    first, more = world.halves()
    one, *others = (
        tensors_of(make_model(n_jobs=n).fit(first.X, first.y).partial_fit(more.X, more.y), tmp_path)
        for n in (1, 2, 4)
    )
    for other in others:
        assert_same_bits(other, one)


def test_fit_has_the_same_bits_for_the_same_seed_and_others_for_another(small_world, tmp_path):
    X, y = small_world.X, small_world.y
    model = make_model()
    first = tensors_of(model.fit(X, y), tmp_path)
    assert_same_bits(tensors_of(model.fit(X, y), tmp_path), first)
    other = tensors_of(make_model(random_state=4).fit(X, y), tmp_path)
    assert not np.array_equal(other["mode0.mean"], first["mode0.mean"])


def test_no_seed_gives_another_model_every_time(small_world):
    X, y = small_world.X, small_world.y
    first, second = (make_model(random_state=None).fit(X, y).predict(X) for _ in range(2))
    assert not np.array_equal(first, second)


def test_the_order_of_columns_in_a_frame_does_not_change_a_bit(small_world):
    import pandas as pd

    frame = pd.DataFrame(small_world.X, columns=["user", "item"])
    model = make_model().fit(frame, small_world.y)
    np.testing.assert_array_equal(model.predict(frame[["item", "user"]]), model.predict(frame))


def test_a_loaded_model_has_the_same_bits(world, tmp_path):
    model = make_model().fit(world.X, world.y)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    cells = [*world.X[:500].tolist(), (-1, 3), (3, -1), (-1, -1)]
    np.testing.assert_array_equal(
        loaded.predict(cells, return_std=True), model.predict(cells, return_std=True)
    )
    np.testing.assert_array_equal(loaded.predict_parts(cells), model.predict_parts(cells))
    for risk in (0.0, 1.0):
        users = [*range(20), -1]
        assert loaded.recommend_many(users, risk=risk) == model.recommend_many(users, risk=risk)
    assert loaded.similar(5) == model.similar(5)
    new, loaded_new = (m.fold_in([1, 2, 3], [5, 4, 3]) for m in (model, loaded))
    np.testing.assert_array_equal(loaded_new.predict([7, 8, -1]), new.predict([7, 8, -1]))


def fit_slowly(X, y, folder, progress, last):
    """Fit with a checkpoint, and save; report each epoch, and wait to be killed after the last."""

    def report(info, state):
        progress.value = moment_of(info)
        time.sleep(0.004 if progress.value < last else 600)

    model = make_model().fit(X, y, callbacks=[report], checkpoint=folder / "checkpoint")
    model.save(folder / "done")


def moment_of(info):
    """Number the epochs of fit from 1, and those of refit from 1001."""
    return info.epoch + 1000 * (info.validation_rmse is None)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork and no SIGKILL on Windows")
def test_fit_has_the_same_bits_after_being_killed_at_twenty_moments(small_world, tmp_path):
    X, y = small_world.X, small_world.y
    whole, moments = make_model(), []
    whole.fit(X, y, callbacks=[lambda info, _: moments.append(moment_of(info))])
    expected = tensors_of(whole, tmp_path)
    in_fit = [moment for moment in moments if moment < 1000]
    in_refit = [moment for moment in moments if moment > 1000][:-2]

    context = forkserver()
    rng = np.random.default_rng()
    for run in range(4):
        folder = tmp_path / f"run{run}"
        folder.mkdir()
        progress = context.RawValue("i", 0)  # without a lock, that a killed process might hold
        for moment in sorted([*rng.choice(in_fit, 3, False), *rng.choice(in_refit, 2, False)]):
            job = X, y, folder, progress, moment + 2
            process = context.Process(target=fit_slowly, args=job)
            process.start()
            while progress.value < moment and process.is_alive():
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.012))  # asleep, computing, or in the middle of writing
            process.kill()
            process.join()
            assert process.exitcode == -9
        assert (folder / "checkpoint.refit").exists()
        fit_slowly(X, y, folder, progress, last=math.inf)
        assert_same_bits(storage.read(folder / "done", "model")[1], expected)
        assert not (folder / "checkpoint").exists()
        assert not (folder / "checkpoint.refit").exists()


def compiled_functions():
    """Every function that numba compiles: its decorator, and the names that it calls."""
    for folder in ("src", "reproduction/src"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef):
                    by = [ast.unparse(one) for one in node.decorator_list]
                    how = next((text for text in by if text.startswith("njit")), None)
                    if how is not None:
                        calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
                        yield node.name, how, {f.id for f in calls if isinstance(f, ast.Name)}


def test_what_may_be_rounded_freely_is_compiled_into_its_caller():
    """A loop of its own is compiled once more with each caller; which one runs, chance decides."""
    compiled = list(compiled_functions())
    called = set().union(*(calls for _, _, calls in compiled))
    free = {name for name, how, _ in compiled if "fastmath=True" in how and "inline" not in how}
    assert "draw_rows" in free
    assert not free & called
