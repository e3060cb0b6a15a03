"""TrimmedFactorizer: what it leaves out, what its rounds tell, how a killed fit goes on."""

import json

import numpy as np
import pytest
from noisewise_reproduction.rivals.drmf import Trimmed, TrimmedFactorizer
from noisewise_reproduction.rivals.robust import Task, biased_mf

from noisewise import metrics, observe, storage
from noisewise.errors import FitInterrupted, ModelFileError, SettingError
from noisewise.evaluation import ratings, records


def make_model(**settings):
    chosen = {"rank": 3, "outliers": 0.05, "round_epochs": 2, "epochs": 16, "n_jobs": 1}
    return TrimmedFactorizer(random_state=0, **{**chosen, **settings})


@pytest.fixture(scope="module")
def corrupted(world):
    """The world with a twentieth of its values moved far away, and which those are."""
    bad = np.random.default_rng(0).random(len(world.y)) < 0.05
    return np.where(bad, world.y + 15.0, world.y), bad


def test_outliers_are_found_and_left_out(world, corrupted):
    y, bad = corrupted
    model = make_model(outliers=bad.mean(), value_range=None, patience=None).fit(world.X, y)
    found = model.is_outlier(world.X, y)
    assert found.sum() == pytest.approx(bad.sum(), rel=0.01)
    assert (found & bad).sum() > 0.98 * bad.sum()
    clean = make_model(outliers=1e-4, value_range=None, patience=None).fit(world.X, world.y)
    errors = [metrics.rmse(world.mean, m.predict(world.X)) for m in (model, clean)]
    assert errors[0] < 1.2 * errors[1]


def test_to_leave_out_too_few_is_worse(world, corrupted):
    settings = {"value_range": None, "patience": None}
    models = [make_model(outliers=share, **settings) for share in (0.05, 0.005)]
    errors = [
        metrics.rmse(world.mean, model.fit(world.X, corrupted[0]).predict(world.X))
        for model in models
    ]
    assert errors[0] < 0.8 * errors[1]


def test_a_cell_left_out_has_no_say(small_world):
    seen = observe(small_world.X, small_world.y)
    task = Task.of(biased_mf(2, 0.03, 0.04, 0.06, 0), seen, 1)
    left_out = np.zeros(len(seen), dtype=bool)
    left_out[::3] = True
    blocks = task.without(left_out)
    assert len(blocks) == (~left_out).sum()
    np.testing.assert_array_equal(blocks.values, task.blocks.values[~left_out])
    for block in range(blocks.side**2):
        old = slice(*task.blocks.starts[block : block + 2])
        new = slice(*blocks.starts[block : block + 2])
        np.testing.assert_array_equal(blocks.values[new], task.blocks.values[old][~left_out[old]])
        for codes, before in zip(blocks.codes, task.blocks.codes, strict=True):
            np.testing.assert_array_equal(codes[new], before[old][~left_out[old]])


def test_rounds_tell_what_each_came_to(world):
    model = make_model(round_epochs=3, epochs=12, patience=12).fit(world.X, world.y)
    rounds, curve = model.rounds_, model.learning_curve_
    assert rounds["round"] == [1, 2, 3, 4]
    assert rounds["epoch"] == [3, 6, 9, 12]
    n = round(0.05 * 0.9 * len(world.y))
    assert rounds["outliers"] == [0, n, n, n]
    assert rounds["changed"][:2] == [0, n]
    assert 0 < rounds["changed"][3] < n
    assert rounds["validation_rmse"] == [curve["validation_rmse"][k - 1] for k in (3, 6, 9, 12)]
    assert all(len(column) == 4 for column in rounds.values())


def test_evaluate_tells_the_rounds_of_every_split(small_world):
    seen = observe(small_world.X, small_world.y)
    settings = {"rank": 2, "epochs": 6, "patience": 6, "n_jobs": 1}
    result = ratings.evaluate(seen, "drmf", settings | {"round_epochs": 2}, splits=2)
    assert [split["seed"] for split in result["rounds"]] == [0, 1]
    assert [split["epoch"] for split in result["rounds"]] == [[2, 4, 6]] * 2
    assert json.loads(records.as_json(result))["rounds"] == result["rounds"]
    assert "rounds" not in ratings.evaluate(seen, "rcf", settings, splits=1)


def test_the_objective_is_the_squared_error_outside_the_outliers(small_world):
    X, y = small_world.X, small_world.y
    model = make_model(patience=None, epochs=2, round_epochs=1, value_range=None).fit(X, y)
    error = y - model.predict(X)
    assert model.rounds_["train_rmse"][-1] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)
    first = make_model(patience=None, epochs=1, value_range=None).fit(X, y)
    kept = ~first.is_outlier(X, y)
    assert model.rounds_["outliers"][-1] == (~kept).sum() == 20
    assert model.rounds_["objective"][-1] == pytest.approx(np.sum(error[kept] ** 2), rel=1e-4)
    assert model.rounds_["objective"][0] == pytest.approx(
        len(y) * model.rounds_["train_rmse"][0] ** 2
    )


def test_the_objective_falls_where_a_round_trains_long_enough(world, corrupted):
    y, _ = corrupted
    model = make_model(patience=None, round_epochs=10, epochs=60, l2=0.0, bias_l2=0.0)
    objective = model.fit(world.X, y).rounds_["objective"]
    assert (np.diff(objective) < 0).all()


def test_rounds_are_those_of_the_training_that_was_watched(small_world):
    X, y = small_world.X, small_world.y
    model, once = (make_model(refit=refit).fit(X, y) for refit in (True, False))
    assert model.rounds_ == once.rounds_
    assert model.rounds_["validation_rmse"][0] is not None
    alone = make_model(patience=None).fit(X, y)
    assert alone.rounds_["validation_rmse"] == [None] * 8


def test_an_interrupt_leaves_the_rounds_that_were_judged(small_world, monkeypatch, ctrl_c):
    X, y = small_world.X, small_world.y
    judge, calls = Task.validate, []

    def slow(self, *given):
        validate = judge(self, *given)

        def judged(state):
            calls.append(state.epoch)
            if state.epoch == 4:
                ctrl_c()
            return validate(state)

        return judged

    monkeypatch.setattr(Task, "validate", slow)
    model = make_model(patience=9)
    with pytest.raises(FitInterrupted, match="interrupted after epoch 4 of 16"):
        model.fit(X, y)
    assert calls == [1, 2, 3, 4]
    assert model.rounds_["epoch"] == [2, 4]


def test_the_std_is_that_of_what_is_not_left_out(world, corrupted):
    y, bad = corrupted
    model = make_model(outliers=bad.mean(), patience=None, value_range=None).fit(world.X, y)
    mean, noise, _ = model.predict_parts(world.X)
    assert noise[0] == pytest.approx(np.sqrt(np.mean((y - mean)[~bad] ** 2)), rel=0.2)


def test_a_copy_of_the_state_is_its_own(small_world):
    seen = observe(small_world.X, small_world.y)
    start = Task.of(biased_mf(2, 0.03, 0.04, 0.06, 0), seen, 1).start()
    state = Trimmed(start.rows, start.layout, 3, 0.5, np.zeros(4, dtype=bool), 2, [{"epoch": 1}])
    copy = state.copy()
    state.rows[0][:] = 9.0
    state.outlier[:] = True
    state.rounds.append({"epoch": 2})
    assert (copy.rows[0] != 9.0).all()
    assert not copy.outlier.any()
    assert (copy.epoch, copy.variance, copy.changed, copy.rounds) == (3, 0.5, 2, [{"epoch": 1}])


def test_a_file_with_a_threshold_that_cannot_be_is_refused(small_world, tmp_path):
    make_model().fit(small_world.X, small_world.y).save(tmp_path / "model")
    header, tensors = storage.read(tmp_path / "model", "model")
    header = json.loads(json.dumps({**header, "threshold": -1.0}))
    for key in ("version", "kind"):
        del header[key]
    storage.write(tmp_path / "model", "model", header, tensors)
    with pytest.raises(ModelFileError, match=r"threshold is -1\.0"):
        TrimmedFactorizer.load(tmp_path / "model")


@pytest.mark.filterwarnings("ignore:All .* values are")
def test_values_that_are_all_alike_have_no_outliers():
    X = [(user, item) for user in range(5) for item in range(4)]
    model = make_model(patience=None).fit(X, [2.0] * 20)
    np.testing.assert_allclose(model.predict(X), 2.0, atol=1e-3)
    assert not model.is_outlier(X, [2.0] * 20).any()
    assert model.is_outlier(X[:1], [9.0]).all()


@pytest.mark.parametrize("setting", [{"outliers": 0.0}, {"outliers": 0.6}, {"round_epochs": 0}])
def test_a_bad_setting_is_named(small_world, setting):
    with pytest.raises(SettingError, match=next(iter(setting))):
        make_model(**setting).fit(small_world.X, small_world.y)
