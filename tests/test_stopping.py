"""Ctrl-C: a fit keeps what it has and raises, loops end, commands end with 130."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from shared import make_world
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from noisewise import (
    AutoFactorizer,
    BayesianFactorizer,
    DeviationFactorizer,
    DeviationImputer,
    FitInterrupted,
    ResidualFactorizer,
    SettingError,
    TemporalFactorizer,
    load,
    observe,
)
from noisewise.cli import app
from noisewise.engine import training
from noisewise.engine.training import CtrlC
from noisewise.evaluation import ratings, records

pytestmark = pytest.mark.filterwarnings("ignore:Predictions have not settled")

WORLD = make_world(40, 30, 700)
SENSORS = [(k % 6, k // 6, np.sin(k / 40) + k % 6) for k in range(600) if k % 7]
SWEEPS = {"rank": 2, "random_state": 0, "n_jobs": 1}
windows = pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one child")


def quick(**settings):
    return DeviationFactorizer(
        **{"rank": 2, "deviation_rank": 1, "random_state": 0, "n_jobs": 1, "epochs": 6, **settings}
    )


# The handler.


def test_ctrl_c_is_noted_once_and_raises_the_second_time(ctrl_c, capsys):
    with CtrlC("Stopping soon.") as noted:
        ctrl_c()
        assert noted.pressed
        assert capsys.readouterr().err == "\nStopping soon.\n"
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_handler_of_python_is_back_in_the_end(ctrl_c):
    with CtrlC("") as noted:
        assert signal.getsignal(signal.SIGINT) == noted._press
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(ArithmeticError), CtrlC(""):
        raise ArithmeticError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_handler_of_somebody_else_is_left_alone(ctrl_c):
    def mine(*_):
        raise ArithmeticError

    signal.signal(signal.SIGINT, mine)
    with pytest.raises(ArithmeticError), CtrlC(""):
        ctrl_c()
    assert signal.getsignal(signal.SIGINT) is mine


def test_a_fit_in_another_thread_sets_no_handler(ctrl_c):
    handlers = []

    def look(info, state):
        handlers.append(signal.getsignal(signal.SIGINT))

    given = {"X": WORLD.X, "y": WORLD.y, "callbacks": [look]}
    thread = threading.Thread(target=quick().fit, kwargs=given)
    thread.start()
    thread.join()
    assert set(handlers) == {signal.default_int_handler}


# A fit.


def test_a_fit_finishes_its_epoch_keeps_the_best_and_raises(press_in_epoch, tmp_path):
    seen = press_in_epoch(3)
    model, path = quick(patience=None), tmp_path / "checkpoint"
    with pytest.raises(FitInterrupted, match="after epoch 3 of 6: the model is that of epoch 3"):
        model.fit(WORLD.X, WORLD.y, checkpoint=path)
    assert seen == [1, 2, 3]
    short = quick(patience=None, epochs=3).fit(WORLD.X, WORLD.y)
    np.testing.assert_array_equal(model.predict(WORLD.X), short.predict(WORLD.X))
    seen.clear()
    model.fit(WORLD.X, WORLD.y, checkpoint=path)
    assert seen == [4, 5, 6]  # it went on from the epoch that was finished
    assert list(tmp_path.iterdir()) == []


def test_a_second_ctrl_c_leaves_the_model_as_it_was(ctrl_c, monkeypatch):
    model = quick().fit(WORLD.X, WORLD.y)
    before = model.predict(WORLD.X)
    check = training._check_finite

    def twice(info, state, advice):
        ctrl_c()
        ctrl_c()
        check(info, state, advice)

    monkeypatch.setattr(training, "_check_finite", twice)
    with pytest.raises(KeyboardInterrupt) as stop:
        model.fit(WORLD.X[:300], WORLD.y[:300])
    assert not isinstance(stop.value, FitInterrupted)
    np.testing.assert_array_equal(model.predict(WORLD.X), before)


def test_ctrl_c_in_the_last_epoch_is_not_lost(press_in_epoch):
    press_in_epoch(6)
    model = quick(patience=None)
    with pytest.raises(FitInterrupted, match="after epoch 6 of 6"):
        model.fit(WORLD.X, WORLD.y)


def test_a_partial_fit_keeps_the_epochs_it_has_run(press_in_epoch):
    model = quick(patience=None, duplicates="last").fit(WORLD.X[:500], WORLD.y[:500])
    press_in_epoch(2)
    with pytest.raises(FitInterrupted, match="after epoch 2 of 5"):
        model.partial_fit(WORLD.X[500:], WORLD.y[500:], epochs=5)
    assert model.n_epochs_ == 8
    assert np.isfinite(model.predict(WORLD.X)).all()


@pytest.mark.parametrize("sweep", [1, 10, 11])
def test_a_sampler_without_a_posterior_keeps_nothing(press_in_epoch, sweep):
    """One draw is no posterior: it would say that nothing is unknown."""
    press_in_epoch(sweep)
    model = BayesianFactorizer(sweeps=30, burn_in=10, **SWEEPS)
    with pytest.raises(KeyboardInterrupt, match=f"after sweep {sweep}, with burn_in=10") as stop:
        model.fit(WORLD.X, WORLD.y)
    assert not isinstance(stop.value, FitInterrupted)
    with pytest.raises(NotFittedError):
        model.predict(WORLD.X)


def test_a_sampler_keeps_the_draws_it_has(press_in_epoch):
    press_in_epoch(15)
    model = BayesianFactorizer(sweeps=30, burn_in=10, **SWEEPS)
    with pytest.raises(FitInterrupted, match=r"sweep 15 of 30: .* from 5 draws, .* had 20"):
        model.fit(WORLD.X, WORLD.y)
    assert (model.predict_parts(WORLD.X)[2] > 0).all()


def test_a_chain_cut_short_in_burn_in_leaves_the_chains_before_it(press_in_epoch):
    press_in_epoch(33)
    model = BayesianFactorizer(sweeps=30, burn_in=10, chains=3, samples=30, **SWEEPS)
    with pytest.raises(FitInterrupted, match=r"sweep 33 of 90: .* from 10 draws, .* had 30"):
        model.fit(WORLD.X, WORLD.y)
    one = BayesianFactorizer(sweeps=30, burn_in=10, samples=10, **SWEEPS)
    one.fit(WORLD.X, WORLD.y)
    np.testing.assert_array_equal(model.predict(WORLD.X), one.predict(WORLD.X))


@pytest.mark.parametrize(
    "model",
    [
        BayesianFactorizer(sweeps=30, burn_in=10, **SWEEPS),
        TemporalFactorizer(sweeps=30, burn_in=10, **SWEEPS),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_callback_that_ends_sampling_in_burn_in_is_refused(model):
    with pytest.raises(SettingError, match="callback ended sampling after sweep 4, with burn_in"):
        model.fit(SENSORS, callbacks=[lambda info, state: info.epoch == 4])


def test_tolerance_waits_for_draws_to_predict_from():
    model = BayesianFactorizer(sweeps=60, burn_in=5, tolerance=1e9, samples=3, **SWEEPS)
    model.fit(WORLD.X, WORLD.y)
    assert model.n_epochs_ < 60
    assert (model.predict_parts(WORLD.X)[2] > 0).all()


# Models within models, and loops.


@pytest.mark.parametrize(
    "model",
    [
        ResidualFactorizer(quick(), random_state=0, n_jobs=1),
        AutoFactorizer([("dtf", ResidualFactorizer(quick())), "ou"], random_state=0, n_jobs=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_of_several_stops_with_the_first_and_keeps_nothing(press_in_epoch, model):
    seen = press_in_epoch(2)
    with pytest.raises(KeyboardInterrupt) as stop:
        model.fit([row[:2] for row in SENSORS], [row[2] for row in SENSORS])
    assert not isinstance(stop.value, FitInterrupted)
    assert seen == [1, 2]
    with pytest.raises(NotFittedError):
        model.predict([(1, 2)])


def test_an_imputer_stops(press_in_epoch):
    seen = press_in_epoch(3)
    table = np.random.default_rng(0).normal(size=(60, 3))
    table[3:5, 1] = np.nan
    imputer = DeviationImputer("bayes", random_state=0, n_jobs=1)
    with pytest.raises(KeyboardInterrupt):
        imputer.fit_transform(table)
    assert seen == [1, 2, 3]
    with pytest.raises(NotFittedError):
        imputer.transform(table)


def test_the_trial_run_of_a_validation_stops_all(press_in_epoch):
    seen = press_in_epoch(25)
    rows = observe(SENSORS)
    part = np.arange(len(rows)) % 5 == 0
    model = TemporalFactorizer(sweeps=30, burn_in=10, **SWEEPS)
    with pytest.raises(KeyboardInterrupt) as stop:
        model.fit(rows.take(~part), validation=rows.take(part))
    assert not isinstance(stop.value, FitInterrupted)
    assert len(seen) == 25


@pytest.mark.parametrize("n_jobs", [None, 1])
def test_loops_of_scikit_learn_stop(press_in_epoch, n_jobs):
    for loop in (
        lambda: cross_val_score(quick(refit=False), WORLD.X, WORLD.y, cv=3, n_jobs=n_jobs),
        lambda: GridSearchCV(quick(refit=False), {"l2": [0.1, 0.2]}, cv=3).fit(WORLD.X, WORLD.y),
    ):
        seen = press_in_epoch(2)
        with pytest.raises(KeyboardInterrupt):
            loop()
        assert len(seen) == 2


def test_evaluate_takes_up_the_splits_that_were_finished(press_in_epoch):
    rows = observe(WORLD.X, WORLD.y)
    settings = {"rank": 2, "epochs": 2, "refit": False, "n_jobs": 1}
    whole = ratings.evaluate(rows, "dmf", settings, splits=3, protocol="user")
    press_in_epoch(4)
    kept = []
    with pytest.raises(KeyboardInterrupt):
        ratings.evaluate(rows, "dmf", settings, splits=3, protocol="user", after_split=kept.append)
    assert [len(result["splits"]) for result in kept] == [1]
    earlier = json.loads(records.as_json(kept[-1]))
    again = ratings.evaluate(rows, "dmf", settings, splits=3, protocol="user", earlier=earlier)
    for key in ("rmse", "nll"):
        expected = [row[key] for row in whole["splits"]]
        assert [row[key] for row in again["splits"]] == expected
    assert again["mean"]["rmse"] == whole["mean"]["rmse"]


# Real signals to real processes.


WAITING = """
import pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the parent has
from noisewise.cli import app
from noisewise.engine import training
folder, number = pathlib.Path(sys.argv.pop(1)), int(sys.argv.pop(1))
check, seen = training._check_finite, []

def wait(info, state, advice):
    seen.append(info)
    if len(seen) == number:
        (folder / "ready").touch()
        while not (folder / "go").exists():
            time.sleep(0.002)
    check(info, state, advice)

training._check_finite = wait
"""
COMMAND = WAITING + "from noisewise.cli import main\nmain()\n"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    rows = [f"{u},{i},{r:.3f}" for (u, i), r in zip(WORLD.X, WORLD.y, strict=True)]
    path.write_text("\n".join(["user,item,rating", *rows]))
    return path


def stopped(script, folder, number, *words, times=1, group=False):
    """Run a script, press Ctrl-C when it is ready; give its exit code, and what it said."""
    for name in ("ready", "go"):
        (folder / name).unlink(missing_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder), str(number), *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:  # fmt: skip
        while not (folder / "ready").exists() and process.poll() is None:
            time.sleep(0.01)
        for _ in range(times):
            (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
            time.sleep(0.2)  # two signals at once would be one
        (folder / "go").touch()
        out, error = process.communicate()
    return process.returncode, out + error


def done(*words):
    """Run a command to its end, here."""
    app(list(map(str, words)), standalone_mode=False)


FIT = ["--set", "rank=2", "--set", "n_jobs=1"]


@windows
def test_the_command_fit_writes_what_it_has_and_ends_with_130(table, tmp_path):
    words = ["fit", table, "--model", "dmf", *FIT, "--set", "epochs=6", "--out", tmp_path / "model"]
    code, told = stopped(COMMAND, tmp_path, 3, *words)
    assert code == 130, told
    assert "Traceback" not in told
    assert "Stopping after this epoch" in told
    assert "interrupted after epoch 3 of 6" in told
    assert f"It is in {tmp_path / 'model'}." in told
    assert np.isfinite(load(tmp_path / "model").predict([(1, 2)])).all()


@windows
@pytest.mark.parametrize("times", [1, 2])
def test_the_command_fit_writes_nothing_that_is_no_model(table, tmp_path, times):
    """In burn-in; and, where a model could be kept, at the second Ctrl-C."""
    model = ["bayes", "--set", "burn_in=9"] if times == 1 else ["dmf"]
    words = ["fit", table, "--model", *model, *FIT, "--out", tmp_path / "model"]
    code, told = stopped(COMMAND, tmp_path, 3, *words, times=times)
    assert code == 130, told
    assert "Traceback" not in told
    assert f"{tmp_path / 'model'} was not written" in told
    assert not (tmp_path / "model").exists()


@windows
def test_the_command_evaluate_keeps_finished_splits_and_goes_on(table, tmp_path):
    words = [
        "evaluate", table, "--model", "dmf", *FIT, "--set", "epochs=2", "--set", "refit=false",
        "--splits", 3, "--json",
    ]  # fmt: skip
    code, told = stopped(COMMAND, tmp_path, 4, *words, tmp_path / "result.json")
    assert code == 130, told
    assert "Traceback" not in told
    assert "1 finished splits are in" in told
    result = json.loads((tmp_path / "result.json").read_text())
    assert [row["seed"] for row in result["splits"]] == [0]
    done(*words, tmp_path / "result.json")
    done(*words, tmp_path / "whole.json")
    again, whole = (
        json.loads((tmp_path / name).read_text()) for name in ("result.json", "whole.json")
    )
    assert [row["rmse"] for row in again["splits"]] == [row["rmse"] for row in whole["splits"]]
    assert again["splits"][0] == result["splits"][0]  # taken up, and not run again


@windows
def test_the_command_tune_keeps_finished_trials_and_goes_on(table, tmp_path):
    out = tmp_path / "tuned.json"
    words = [
        "tune", table, "--model", "dmf", *FIT[:2], "--set", "epochs=2", "--range", "l2=0.01:0.1",
        "--trials", 3, "--jobs", 1, "--out", out,
    ]  # fmt: skip
    code, told = stopped(COMMAND, tmp_path, 4, *words)
    assert code == 130, told
    assert "Traceback" not in told
    assert f"finished trials are in {out}" in told
    first = json.loads(out.read_text())["models"]["dmf"]["trials"]
    assert len(first) == 1
    done(*words)
    trials = json.loads(out.read_text())["models"]["dmf"]["trials"]
    assert len(trials) == 3
    assert trials[0] == first[0]


CROSS_VALIDATION = (
    WAITING
    + """
import numpy as np
from sklearn.model_selection import cross_val_score
from noisewise import DeviationFactorizer

X = [(i, j) for i in range(20) for j in range(20)]
y = np.arange(400.0) % 7
model = DeviationFactorizer(rank=2, epochs=3, patience=None, n_jobs=1)
try:
    print("scores", cross_val_score(model, X, y, cv=4))
except KeyboardInterrupt:
    print("stopped after", len(seen))
    sys.exit(130)
"""
)


@windows
def test_cross_validation_stops(tmp_path):
    code, told = stopped(CROSS_VALIDATION, tmp_path, 4)
    assert code == 130, told
    assert "stopped after 4" in told
    assert "scores" not in told
