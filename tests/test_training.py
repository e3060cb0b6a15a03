"""The training loop: when it stops, what it keeps, and what it does when something goes wrong."""

import json
import math
import shutil

import numpy as np
import pytest
from sklearn.base import clone

from noisewise import BayesianFactorizer, observe, storage
from noisewise.engine.sgd.layout import Layout, State
from noisewise.engine.training import EpochInfo, train
from noisewise.errors import DataError, DivergedError, FitInterrupted, ModelFileError
from noisewise.models import learner
from noisewise.models.deviation import DeviationFactorizer
from noisewise.models.learner import Checkpoint


def make_state() -> State:
    rows = tuple(np.zeros((n, 16), dtype=np.float32) for n in (3, 2))
    return State(rows, Layout.of(0, 0, 1))


def count_up(state: State) -> EpochInfo:
    """Stand in for a backend: write the number of the epoch everywhere."""
    state.epoch += 1
    for rows in state.rows:
        rows += 1
    state.variance = 1.0 / state.epoch
    return EpochInfo(state.epoch, 1.0 / state.epoch, 0.5)


def curve(*rmse, nll=None):
    """Stand in for held-out data: the given errors, one after the other."""
    nll = nll or [0.0] * len(rmse)
    return lambda state: (rmse[state.epoch - 1], nll[state.epoch - 1])


def assert_is_of_epoch(state: State, epoch: int) -> None:
    assert state.epoch == epoch
    assert all((rows == epoch).all() for rows in state.rows)


def test_early_stopping_keeps_the_best_state():
    training = train(
        make_state(), count_up, epochs=20, patience=2, validate=curve(3, 2, 1, 4, 5, 0, 0)
    )
    assert [info.epoch for info in training.curve] == [1, 2, 3, 4, 5]
    assert_is_of_epoch(training.chosen, 3)
    assert training.chosen.variance == pytest.approx(1 / 3)
    assert_is_of_epoch(training.state, 5)


def test_an_equal_result_is_not_an_improvement():
    training = train(make_state(), count_up, epochs=9, patience=3, validate=curve(1, 1, 1, 1, 0))
    assert len(training.curve) == 4
    assert_is_of_epoch(training.chosen, 1)


def test_patience_none_runs_all_epochs_and_still_keeps_the_best():
    errors = curve(3, 1, 2, 2, 2, 2)
    training = train(make_state(), count_up, epochs=6, patience=None, validate=errors)
    assert len(training.curve) == 6
    assert_is_of_epoch(training.chosen, 2)


def test_without_held_out_data_the_last_state_is_kept():
    training = train(make_state(), count_up, epochs=6, patience=1)
    assert len(training.curve) == 6
    assert_is_of_epoch(training.chosen, 6)
    assert training.curve[0].validation_rmse is None


@pytest.mark.parametrize(("monitor", "best"), [("rmse", 2), ("nll", 4)])
def test_monitor_says_which_number_must_improve(monitor, best):
    validate = curve(3, 1, 2, 3, 4, 5, nll=[4, 3, 2, 1, 2, 3])
    training = train(
        make_state(), count_up, epochs=6, patience=2, validate=validate, monitor=monitor
    )
    assert_is_of_epoch(training.chosen, best)
    assert len(training.curve) == best + 2


@pytest.mark.parametrize(("after", "best", "epochs"), [([3, 3, 3, 3], 1, 5), ([3, 0, 3, 3], 5, 7)])
def test_patience_begins_after_the_warm_up(after, best, epochs):
    validate = curve(1, 2, 2, *after)
    training = train(make_state(), count_up, epochs=7, patience=2, warmup=3, validate=validate)
    assert_is_of_epoch(training.chosen, best)
    assert len(training.curve) == epochs


def test_any_callback_can_stop_and_all_are_called():
    seen = []
    callbacks = [
        lambda info, state: info.epoch == 3,
        lambda info, state: seen.append((info.epoch, state.epoch)),
    ]
    training = train(make_state(), count_up, epochs=9, callbacks=callbacks)
    assert seen == [(1, 1), (2, 2), (3, 3)]
    assert_is_of_epoch(training.chosen, 3)


def test_numbers_that_blow_up_raise_with_advice():
    def explode(state):
        info = count_up(state)
        if state.epoch == 2:
            state.rows[1][0, 0] = np.inf
        return info

    with pytest.raises(DivergedError, match=r"blew up in epoch 2 .*Sit down\."):
        train(make_state(), explode, epochs=9, advice="Sit down.")


def test_an_error_that_is_not_a_number_raises_too():
    with pytest.raises(DivergedError, match="training error nan"):
        train(make_state(), lambda state: EpochInfo(1, math.nan, 0.0), epochs=9)


def test_interrupt_keeps_the_best_state_so_far():
    def interrupt(info, state):
        if info.epoch == 4:
            raise KeyboardInterrupt

    training = train(
        make_state(), count_up, epochs=9, patience=9, validate=curve(3, 1, 2, 2),
        callbacks=[interrupt],
    )  # fmt: skip
    assert training.interrupted
    assert_is_of_epoch(training.chosen, 2)


def test_interrupt_before_the_first_epoch_has_nothing_to_keep():
    def interrupt(state):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(make_state(), interrupt, epochs=9)


class Killed(Exception):
    """What a test throws where a kill would come."""


def killed_at(epoch):
    def step(state):
        if state.epoch == epoch:
            raise Killed
        return count_up(state)

    return step


@pytest.mark.parametrize("moment", [1, 2, 3, 5])
def test_a_killed_training_goes_on_from_its_checkpoint(tmp_path, moment):
    checkpoint = Checkpoint(tmp_path / "checkpoint", "these data")
    how = {"epochs": 9, "patience": 3, "validate": curve(5, 4, 1, 3, 3, 3)}
    whole = train(make_state(), count_up, **how)
    with pytest.raises(Killed):
        train(make_state(), killed_at(moment), **how, checkpoint=checkpoint)
    visited = []
    again = train(
        make_state(), count_up, **how, checkpoint=checkpoint,
        callbacks=[lambda info, _: visited.append(info.epoch)],
    )  # fmt: skip
    assert visited == list(range(moment + 1, 7))
    assert_is_of_epoch(again.chosen, 3)
    assert_is_of_epoch(again.state, 6)
    assert again.state.variance == whole.state.variance
    assert [info.validation_rmse for info in again.curve] == [5, 4, 1, 3, 3, 3]


def test_a_finished_checkpoint_is_not_trained_on(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint", "these data")
    train(make_state(), count_up, epochs=3, checkpoint=checkpoint)
    training = train(make_state(), killed_at(3), epochs=3, checkpoint=checkpoint)
    assert_is_of_epoch(training.chosen, 3)


def test_a_training_that_a_callback_stopped_stays_stopped(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint", "these data")
    stop = [lambda info, state: info.epoch == 2]
    train(make_state(), count_up, epochs=9, checkpoint=checkpoint, callbacks=stop)
    training = train(make_state(), count_up, epochs=9, checkpoint=checkpoint, callbacks=stop)
    assert_is_of_epoch(training.chosen, 2)


def test_a_checkpoint_is_written_as_often_as_asked(tmp_path):
    def writes(**often):
        path = tmp_path / "checkpoint"
        path.unlink(missing_ok=True)
        present = []
        train(
            make_state(), count_up, epochs=5, checkpoint=Checkpoint(path, "these data", **often),
            callbacks=[lambda *_: present.append(_epoch_in(path))],
        )  # fmt: skip
        return [*present, _epoch_in(path)]

    assert writes(epochs=1) == [0, 1, 2, 3, 4, 5]
    assert writes(epochs=2) == [0, 0, 2, 2, 4, 5]
    assert writes(epochs=None, minutes=1e-9) == [0, 1, 2, 3, 4, 5]
    assert writes(epochs=None, minutes=60.0) == [0, 0, 0, 0, 0, 5]


def _epoch_in(path):
    return storage.read(path, "checkpoint")[0]["state"]["epoch"] if path.exists() else 0


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    path = tmp_path / "checkpoint"
    train(make_state(), count_up, epochs=2, checkpoint=Checkpoint(path, "these data"))
    with pytest.raises(ModelFileError, match="belongs to other data or other settings"):
        train(make_state(), count_up, epochs=2, checkpoint=Checkpoint(path, "those data"))


def test_a_checkpoint_of_another_shape_is_refused(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint", "these data")
    train(make_state(), count_up, epochs=2, checkpoint=checkpoint)
    wider = State(tuple(np.zeros((n, 32), np.float32) for n in (3, 2)), Layout.of(16, 0, 1))
    with pytest.raises(ModelFileError, match=r"rows0 must be float32 of shape \(3, 32\)"):
        train(wider, count_up, epochs=2, checkpoint=checkpoint)


@pytest.mark.parametrize("cut", [0, 4, 100, -1])
def test_a_checkpoint_cut_short_is_refused(tmp_path, cut):
    checkpoint = Checkpoint(tmp_path / "checkpoint", "these data")
    train(make_state(), count_up, epochs=2, checkpoint=checkpoint)
    checkpoint.path.write_bytes(checkpoint.path.read_bytes()[:cut])
    with pytest.raises(ModelFileError, match="cut short or damaged"):
        train(make_state(), count_up, epochs=2, checkpoint=checkpoint)


@pytest.mark.parametrize("lost", ["curve", "state", "stopped"])
def test_a_checkpoint_without_a_part_is_refused(tmp_path, lost):
    checkpoint = Checkpoint(tmp_path / "checkpoint", "these data")
    train(make_state(), count_up, epochs=2, checkpoint=checkpoint)
    header, tensors = storage.read(checkpoint.path, "checkpoint")
    del header[lost]
    storage.write(checkpoint.path, "checkpoint", json.loads(json.dumps(header)), tensors)
    with pytest.raises(ModelFileError, match=f"is damaged: .*{lost}"):
        train(make_state(), count_up, epochs=2, checkpoint=checkpoint)


def rewritten(checkpoint, change):
    """Change the header of a checkpoint, and write it anew with a right checksum."""
    header, tensors = storage.read(checkpoint.path, "checkpoint")
    change(header)
    del header["kind"]
    storage.write(checkpoint.path, "checkpoint", header, tensors)


LIES = {
    "a best epoch of its own": lambda header: header["best"].update(epoch=10**18),
    "a best epoch that was not": lambda header: header["best"].update(epoch=1),
    "more epochs than the curve": lambda header: header["state"].update(epoch=5),
    "epochs below zero": lambda header: header["state"].update(epoch=-1),
    "epochs in no order": lambda header: header["curve"].update(epoch=[1, 3, 2, 4]),
    "a curve cut short": lambda header: header["curve"]["train_nll"].pop(),
    "a curve of text": lambda header: header["curve"].update(train_nll=["1", "2", "3", "4"]),
    "a curve of lists": lambda header: header["curve"].update(seconds=[[], [], [], []]),
    "no curve": lambda header: header.update(curve=None),
    "stopped, maybe": lambda header: header.update(stopped="yes"),
    "no variance": lambda header: header["state"].update(variance=0.0),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_checkpoint_that_makes_no_sense_is_refused(tmp_path, lie):
    checkpoint = Checkpoint(tmp_path / "checkpoint", "these data")
    how = {"epochs": 9, "patience": 3, "validate": curve(5, 1, 4, 3, 3)}
    with pytest.raises(Killed):
        train(make_state(), killed_at(4), **how, checkpoint=checkpoint)
    rewritten(checkpoint, lie)
    with pytest.raises(ModelFileError, match="is damaged"):
        train(make_state(), count_up, **how, checkpoint=checkpoint)


def test_what_could_not_be_measured_yet_survives_a_checkpoint(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint", "these data")
    how = {"epochs": 3, "validate": curve(math.nan, 2, 1), "keep_best": False}
    with pytest.raises(Killed):
        train(make_state(), killed_at(2), **how, checkpoint=checkpoint)
    training = train(make_state(), count_up, **how, checkpoint=checkpoint)
    held_out = [info.validation_rmse for info in training.curve]
    assert math.isnan(held_out[0])
    assert held_out[1:] == [2, 1]


def test_a_checkpoint_that_fails_does_not_end_the_training(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()

    def vanish(info, state):
        if info.epoch == 2:
            shutil.rmtree(folder)

    with pytest.warns(UserWarning, match=r"could not be written .*training goes on"):
        training = train(
            make_state(), count_up, epochs=4, callbacks=[vanish],
            checkpoint=Checkpoint(folder / "checkpoint", "these data"),
        )  # fmt: skip
    assert_is_of_epoch(training.chosen, 4)


# The same, seen from a model.


def quick(**settings):
    return DeviationFactorizer(
        **{"rank": 2, "deviation_rank": 1, "random_state": 0, "n_jobs": 1, "epochs": 8, **settings}
    )


def test_an_absurd_learning_rate_diverges_with_advice(small_world):
    model = quick(learning_rate=1e12)
    with pytest.raises(DivergedError, match=r"smaller learning_rate \(now 1000000000000.0\)"):
        model.fit(small_world.X, small_world.y)


def interrupt_at(epoch, *, in_refit=False):
    def callback(info, state):
        if info.epoch == epoch and (info.validation_rmse is None) == in_refit:
            raise KeyboardInterrupt

    return callback


def test_an_interrupted_fit_is_a_model_and_a_second_fit_goes_on(small_world, tmp_path):
    X, y = small_world.X, small_world.y
    whole = quick().fit(X, y)
    model, path = quick(), tmp_path / "checkpoint"
    message = "interrupted after epoch 3 of 8: the model is that of epoch [123], the best so far"
    with pytest.raises(FitInterrupted, match=message) as stop:
        model.fit(X, y, callbacks=[interrupt_at(3)], checkpoint=path)
    assert stop.value.model is model
    assert len(model.learning_curve_["epoch"]) == 3
    assert model.calibration_ is not None
    assert np.isfinite(model.predict(X)).all()
    assert path.exists()
    model.fit(X, y, checkpoint=path)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_refit_keeps_the_first_training_and_its_checkpoint(small_world, tmp_path):
    X, y = small_world.X, small_world.y
    model, path = quick(), tmp_path / "checkpoint"
    with pytest.raises(FitInterrupted, match="refit was interrupted after epoch 1 of"):
        model.fit(X, y, callbacks=[interrupt_at(1, in_refit=True)], checkpoint=path)
    first = quick(refit=False).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), first.predict(X))
    model.fit(X, y, checkpoint=path)
    np.testing.assert_array_equal(model.predict(X), quick().fit(X, y).predict(X))


@pytest.mark.parametrize("change", ["settings", "values", "cells", "held out"])
def test_a_model_refuses_the_checkpoint_of_another(small_world, tmp_path, change):

    X, y = small_world.X, small_world.y
    seen = observe(X, y)
    path = tmp_path / "checkpoint"

    def fit(model, kept, held_out):
        model.fit(kept, validation=held_out, callbacks=[interrupt_at(2)], checkpoint=path)

    model = quick()
    with pytest.raises(FitInterrupted):
        fit(model, seen.take(slice(300)), seen.take(slice(300, None)))
    border = 300
    if change == "settings":
        model.set_params(l2=0.5)
    elif change == "values":
        seen.values[0] += 1
    elif change == "cells":
        seen.codes[1][0], seen.codes[1][1] = seen.codes[1][1], seen.codes[1][0]
    else:
        border = 301
    with pytest.raises(ModelFileError, match="belongs to other data or other settings"):
        fit(model, seen.take(slice(border)), seen.take(slice(border, None)))


def test_other_threads_and_other_intervals_may_go_on_with_a_checkpoint(small_world, tmp_path):
    X, y = small_world.X, small_world.y
    model, path = quick(), tmp_path / "checkpoint"
    with pytest.raises(FitInterrupted):
        model.fit(X, y, callbacks=[interrupt_at(2)], checkpoint=path)
    model.set_params(n_jobs=2, keep_seen=False)
    model.fit(X, y, checkpoint=path, checkpoint_epochs=3)
    np.testing.assert_array_equal(model.predict(X), quick().fit(X, y).predict(X))


def test_a_fit_leaves_the_files_of_others_alone(small_world, tmp_path):
    other = tmp_path / "v.refit"
    other.write_text("a diary")
    quick(refit=False).fit(small_world.X, small_world.y, checkpoint=tmp_path / "v")
    assert other.read_text() == "a diary"
    with pytest.raises(ModelFileError, match=r"v\.refit is not a noisewise file"):
        quick().fit(small_world.X, small_world.y, checkpoint=tmp_path / "v")
    assert list(tmp_path.iterdir()) == [other]
    assert other.read_text() == "a diary"


@pytest.mark.parametrize("place", ["nowhere/checkpoint", "."], ids=["no folder", "a folder"])
@pytest.mark.parametrize("model", [quick(), BayesianFactorizer(2, random_state=0)], ids=repr)
def test_a_checkpoint_that_cannot_be_written_is_refused_before_training(
    small_world, tmp_path, model, place
):
    model, path = clone(model), tmp_path / place

    def never(info, state):
        pytest.fail("it trained")

    with pytest.raises(DataError, match="cannot be written"):
        model.fit(small_world.X, small_world.y, callbacks=[never], checkpoint=path)


def test_a_checkpoint_is_kept_through_a_link(small_world, tmp_path):
    (tmp_path / "scratch").mkdir()
    target, link = tmp_path / "scratch" / "kept", tmp_path / "checkpoint"
    link.symlink_to(target)
    model = quick()
    with pytest.raises(FitInterrupted):
        model.fit(small_world.X, small_world.y, callbacks=[interrupt_at(3)], checkpoint=link)
    assert target.is_file()
    model.fit(small_world.X, small_world.y, checkpoint=link)
    assert link.is_symlink()
    assert not target.exists()


def test_a_checkpoint_of_another_version_is_refused(small_world, tmp_path, monkeypatch):
    model, path = quick(), tmp_path / "checkpoint"
    with pytest.raises(FitInterrupted):
        model.fit(small_world.X, small_world.y, callbacks=[interrupt_at(3)], checkpoint=path)
    monkeypatch.setattr(learner, "VERSION", "0.0.9")
    with pytest.raises(ModelFileError, match="another version of noisewise"):
        model.fit(small_world.X, small_world.y, checkpoint=path)


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
@pytest.mark.parametrize("moment", [2, 7])
def test_a_watched_chain_goes_on_from_its_checkpoint(small_world, tmp_path, moment):
    seen = observe(small_world.X, small_world.y)
    kept, held_out = seen.take(slice(300)), seen.take(slice(300, None))
    settings = {"rank": 2, "sweeps": 12, "burn_in": 4, "random_state": 0, "n_jobs": 1}
    whole = BayesianFactorizer(**settings).fit(kept, validation=held_out)

    def kill(info, state):
        if info.epoch == moment + 1:
            raise Killed

    model = BayesianFactorizer(**settings)
    often = {"checkpoint": tmp_path / "kept", "checkpoint_epochs": 1}
    with pytest.raises(Killed):
        model.fit(kept, validation=held_out, callbacks=[kill], **often)
    with pytest.raises(ModelFileError, match="belongs to other data"):
        model.fit(kept, validation=held_out.take(slice(50)), **often)
    with pytest.raises(ModelFileError, match="belongs to other data"):
        model.fit(kept, **often)
    model.fit(kept, validation=held_out, **often)
    np.testing.assert_array_equal(model.predict(kept), whole.predict(kept))
    for name in ("validation_rmse", "validation_nll"):
        np.testing.assert_array_equal(model.learning_curve_[name], whole.learning_curve_[name])
    assert list(tmp_path.iterdir()) == []
