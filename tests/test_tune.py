"""Tuning: on validation alone, resumable to the bit, the same budget for every model."""

import importlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from noisewise import registry
from noisewise.cli import main
from noisewise.data import observe
from noisewise.data.panel import Panel
from noisewise.data.synthetic import make_ratings
from noisewise.errors import DataError, DivergedError, MissingExtraError, SettingError
from noisewise.evaluation import records, trials
from noisewise.evaluation.ratings import rating_task
from noisewise.evaluation.sensors import sensor_task
from noisewise.evaluation.trials import Choices, Numbers, as_space, draw, parse_range, run_trial
from noisewise.evaluation.tuning import Budget, best_settings, read_tuned, tune
from noisewise.models import load
from noisewise.models.deviation import DeviationFactorizer
from noisewise.settings import rules_of
from noisewise.splits import rating_split

RATINGS = make_ratings(n_users=60, n_items=30, seed=0).observations
QUICK = {"rank": 2, "epochs": 4}
SMALL = {"learning_rate": Numbers(0.01, 0.1, log=True), "l2": Numbers(0.01, 0.2, log=True)}


@pytest.fixture(scope="module")
def task():
    return rating_task(RATINGS)


@pytest.fixture(scope="module")
def readings():
    """Six places on a line, two sensors each, that follow the same waves."""
    rng = np.random.default_rng(0)
    place, kind, step = (column.ravel() for column in np.indices((6, 2, 120)))
    wave = np.sin(step / 9 + place / 2) + 0.1 * rng.normal(size=len(step))
    kept = rng.random(len(step)) < 0.8
    rows = [*zip(place[kept], kind[kept], step[kept], (wave * (1 + 9 * kind))[kept], strict=True)]
    places = {k: (100.0 * k, 0.0) for k in range(6)}
    return Panel(observe(rows), places, seconds=60.0)


def search(task, *models, trials=3, **options):
    options = {"fixed": QUICK, "ranges": SMALL, "n_jobs": 1, **options}
    return tune(task, models or ["biased-mf"], budget=Budget(trials=trials), **options)


def tried(result, model="biased-mf"):
    """Return all that a trial found, but for its time."""
    rows = result["models"][model]["trials"]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_a_trial_never_sees_the_test_part(monkeypatch):
    """What is test may be anything: trials stay the same to the bit."""
    split = rating_split(len(RATINGS), 0)
    values = RATINGS.values.copy()
    values[split.test] = 1e6
    spoilt = type(RATINGS)(RATINGS.codes, values, RATINGS.ids)
    results = [search(rating_task(seen)) for seen in (RATINGS, spoilt)]
    assert tried(results[0]) == tried(results[1])


def test_a_trial_of_sensors_never_sees_the_test_part(readings):
    seen = readings.observations
    tasks = [sensor_task(readings)]
    known = {*map(tuple, np.column_stack(tasks[0].train.codes).tolist())}
    known |= {*map(tuple, np.column_stack(tasks[0].validation.codes).tolist())}
    test = [k for k, cell in enumerate(zip(*(c.tolist() for c in seen.codes), strict=True))
            if cell not in known]  # fmt: skip
    assert len(test) == pytest.approx(0.1 * len(seen), abs=1)
    values = seen.values.copy()
    values[test] = -1e6
    spoilt = type(seen)(seen.codes, values, seen.ids)
    tasks.append(sensor_task(Panel(spoilt, readings.coordinates, readings.seconds)))
    for model in ("linear", "ptf"):
        settings = draw(as_space(registry.ranges("sensors", model)), 0, 0)
        first, second = (run_trial(task, model, settings, 0, 1) for task in tasks)
        assert first | {"seconds": 0} == second | {"seconds": 0}


def test_a_trial_says_what_validation_says(task):
    trial = run_trial(task, "biased-mf", QUICK, 0, 1)
    model = registry.build(
        "ratings", "biased-mf", {**QUICK, "refit": False, "random_state": 0, "n_jobs": 1}
    )
    model.fit(task.train, validation=task.validation)
    assert trial["rmse"] == pytest.approx(min(model.learning_curve_["validation_rmse"]), rel=1e-6)
    assert trial["epochs"] == model.n_epochs_
    assert trial["settings"] == QUICK


def test_the_best_trial_is_the_lowest_and_all_are_kept(task, tmp_path):
    path = tmp_path / "tuned.json"
    result = search(task, trials=5, path=path)
    errors = [trial["rmse"] for trial in result["models"]["biased-mf"]["trials"]]
    assert len(set(errors)) == 5
    assert result["best"]["rmse"] == min(errors) == result["models"]["biased-mf"]["best"]["rmse"]
    assert json.loads(path.read_text()) == json.loads(records.as_json(result))
    assert best_settings(path) == ("biased-mf", result["best"]["settings"])


@pytest.mark.parametrize("method", ["random", "bayes"])
def test_a_search_that_goes_on_is_the_one_that_was_begun(task, tmp_path, method):
    if method == "bayes":
        pytest.importorskip("optuna")
    path = tmp_path / "tuned.json"
    for trials_ in (2, 3, 13):
        again = search(task, trials=trials_, method=method, path=path)
        assert len(tried(again)) == trials_
    whole = search(task, trials=13, method=method)
    assert tried(read_tuned(path)) == tried(whole)


def test_a_search_that_is_killed_goes_on_with_the_same_bits(task, tmp_path):
    path = tmp_path / "tuned.json"
    code = f"""
import os, signal
from noisewise.evaluation import records, trials
from tests.test_tune import RATINGS, rating_task, search

run, runs = trials.run_trial, []

def deadly(*trial):
    runs.append(trial)
    if len(runs) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return run(*trial)

trials.run_trial = deadly
search(rating_task(RATINGS), trials=6, path={str(path)!r})
"""
    words = [sys.executable, "-c", code]
    killed = subprocess.run(words, cwd=Path(__file__).parents[1], check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    before = tried(read_tuned(path))
    assert len(before) == 3
    after = tried(search(task, trials=6, path=path))
    assert after == tried(search(task, trials=6))
    assert after[:3] == before


def test_models_take_turns_and_get_the_same_number_of_trials(task, tmp_path, monkeypatch):
    order = []
    real = trials.run_trial

    def noted(task, model, *rest):
        order.append(model)
        return real(task, model, *rest)

    monkeypatch.setattr(trials, "run_trial", noted)
    result = search(task, "biased-mf", "dmf", trials=3)
    assert order == ["biased-mf", "dmf"] * 3
    assert {len(one["trials"]) for one in result["models"].values()} == {3}


def test_minutes_are_a_budget_too_and_earlier_ones_count(task, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "noisewise.evaluation.trials.run_trial",
        lambda task, model, settings, *_: {"settings": settings, "rmse": 1.0, "seconds": 30.0},
    )
    options = {"fixed": QUICK, "ranges": SMALL, "path": tmp_path / "tuned.json"}
    for minutes, expected in ((0.1, 1), (1.0, 2), (1.6, 4), (0.5, 4)):
        result = tune(task, ["biased-mf", "dmf"], budget=Budget(minutes=minutes), **options)
        assert {len(one["trials"]) for one in result["models"].values()} == {expected}


def test_settings_and_ranges_of_one_model_are_named_with_it(task):
    result = search(
        task, "biased-mf", "dmf", trials=2, fixed={**QUICK, "dmf.rank": 3, "dmf.beta": 0.5},
        ranges={**SMALL, "dmf.delta": Choices((0.2,))},
    )  # fmt: skip
    settings = {name: one["best"]["settings"] for name, one in result["models"].items()}
    assert settings["biased-mf"]["rank"] == 2
    assert settings["dmf"]["rank"] == 3
    assert settings["dmf"]["beta"] == 0.5
    assert settings["dmf"]["delta"] == 0.2
    assert "delta" not in settings["biased-mf"]


def test_a_trial_that_diverges_is_noted_and_the_search_goes_on(task, monkeypatch):
    real = DeviationFactorizer.fit

    def sometimes(model, *seen, **options):
        if model.learning_rate > 0.03:
            raise DivergedError("The numbers blew up.")
        return real(model, *seen, **options)

    monkeypatch.setattr(DeviationFactorizer, "fit", sometimes)
    result = search(task, trials=8)
    rows = result["models"]["biased-mf"]["trials"]
    blown = [row for row in rows if "diverged" in row]
    assert blown
    assert len(blown) < 8
    assert "diverged" not in result["best"]
    monkeypatch.setattr(DeviationFactorizer, "fit", Mock(side_effect=DivergedError("")))
    assert search(task, trials=2)["best"] is None


def test_bayesian_search_learns_also_from_trials_that_diverged():
    pytest.importorskip("optuna")
    from noisewise.evaluation.trials import suggest

    space = {"x": Numbers(0.0, 1.0), "kind": Choices(((1, 2), "b")), "n": Numbers(1, 9, int=True)}
    done = []
    for _ in range(40):
        settings = suggest(space, 0, done)
        assert isinstance(settings["n"], int)
        assert settings["kind"] in space["kind"].choices
        error = float("inf") if settings["x"] > 0.8 else abs(settings["x"] - 0.3)
        done.append((settings, error))
    late = np.array([settings["x"] for settings, _ in done[20:]])
    assert np.median(np.abs(late - 0.3)) < 0.2
    assert late.max() < 0.8
    assert suggest(space, 0, done) == suggest(space, 0, done) != suggest(space, 1, done)


def test_an_interrupted_trial_does_not_count(task, tmp_path, monkeypatch):
    path = tmp_path / "tuned.json"
    search(task, trials=1, path=path)
    real = registry.build

    def interrupting(kind, name, settings, **shared):
        model = real(kind, name, settings, **shared)
        fit = model.fit

        def stop(info, state):
            raise KeyboardInterrupt

        model.fit = lambda *args, **options: fit(*args, **options, callbacks=[stop])
        return model

    monkeypatch.setattr(registry, "build", interrupting)
    with pytest.raises(KeyboardInterrupt):
        search(task, trials=2, path=path)
    assert len(tried(read_tuned(path))) == 1


def test_a_model_without_ranges_has_one_trial(readings):
    task = sensor_task(readings, protocol="blocks", outage=1200.0)
    result = tune(task, ["linear", "ptf"], budget=Budget(trials=3), n_jobs=1)
    assert {name: len(one["trials"]) for name, one in result["models"].items()} == {
        "linear": 1,
        "ptf": 3,
    }
    assert result["metric"] == "mse"
    assert result["task"]["protocol"] == {"kind": "blocks", "share": 0.2, "outage_seconds": 1200.0}


@pytest.mark.parametrize("kind", ["ratings", "sensors"])
def test_every_model_has_ranges_that_it_takes(readings, kind):
    task = rating_task(RATINGS) if kind == "ratings" else sensor_task(readings)
    models = registry.models(kind)
    for name in models:
        space = as_space(registry.ranges(kind, name))
        for ends in (_lowest, _highest):
            model = task.build(name, {key: ends(one) for key, one in space.items()}, 0, 1)
            settings = model.get_params()
            for key in space:
                inner = key if key in settings else f"factorizer__{key}"
                owner = model if key in settings else model.factorizer
                rule = rules_of(owner)[key]
                assert rule.holds(settings[inner]), f"{name}: {key}={settings[inner]}"


def _lowest(one):
    return one.choices[0] if isinstance(one, Choices) else one.low


def _highest(one):
    return one.choices[-1] if isinstance(one, Choices) else one.high


def test_the_best_settings_of_each_model_can_be_read(task, tmp_path):
    path = tmp_path / "tuned.json"
    result = search(task, "biased-mf", "dmf", trials=2, path=path)
    assert best_settings(path, "dmf") == ("dmf", result["models"]["dmf"]["best"]["settings"])
    assert best_settings(path)[0] == result["best"]["model"]
    with pytest.raises(SettingError, match="has settings of biased-mf, dmf; got 'bayes'"):
        best_settings(path, "bayes")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seed": 1}, "another seed"),
        ({"method": "bayes"}, "another method"),
        ({"metric": "nll"}, "another metric"),
        ({"fixed": {"rank": 3, "epochs": 4}}, "settings and ranges for biased-mf"),
        ({"ranges": {"l2": Numbers(0.01, 0.3)}}, "settings and ranges for biased-mf"),
    ],
)
def test_a_file_of_another_search_is_left_alone(task, tmp_path, change, sentence):
    path = tmp_path / "tuned.json"
    search(task, trials=1, path=path)
    before = path.read_bytes()
    with pytest.raises(DataError, match=sentence):
        search(task, trials=2, path=path, **change)
    assert path.read_bytes() == before


def test_a_file_of_other_data_or_other_draws_is_left_alone(task, tmp_path):
    path = tmp_path / "tuned.json"
    search(task, trials=2, path=path)
    other = type(RATINGS)(RATINGS.codes, RATINGS.values + 1, RATINGS.ids)
    with pytest.raises(DataError, match="another task"):
        search(rating_task(other), trials=3, path=path)
    content = json.loads(path.read_text())
    content["models"]["biased-mf"]["trials"][1]["settings"]["l2"] = 0.05
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="another draw of settings in trial 1 of biased-mf"):
        search(task, trials=3, path=path)


def test_a_search_goes_on_on_a_machine_that_rounds_otherwise(task, tmp_path):
    path = tmp_path / "tuned.json"
    search(task, trials=1, path=path)
    content = json.loads(path.read_text())
    (trial,) = content["models"]["biased-mf"]["trials"]
    trial["settings"]["l2"] = float(np.nextafter(trial["settings"]["l2"], 1.0))
    path.write_text(json.dumps(content))
    result = search(task, trials=2, path=path)
    assert len(result["models"]["biased-mf"]["trials"]) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "must hold trials as JSON"),
        ("[]", "something other than trials"),
        ('{"model": "dmf", "splits": []}', "something other than trials"),
        (None, "has format 2"),
        ({"dmf": {}}, "dmf needs fixed, ranges, trials"),
        ({"dmf": {"fixed": {}, "ranges": {}, "trials": [{}]}}, "need settings, seconds and"),
        ([], "must have names"),
    ],
)
def test_a_broken_file_is_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "tuned.json"
    if not isinstance(text, str):
        head = {"tuning": 1, "task": {"kind": "ratings"}, "metric": "rmse", "models": text}
        head |= {"method": 0, "seed": 0}
        text = json.dumps({**head, "tuning": 2} if text is None else head)
    path.write_text(text)
    with pytest.raises(DataError, match=sentence):
        best_settings(path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "grid"}, "method must be one of random, bayes; got 'grid'"),
        ({"metric": "mse"}, "metric must be one of rmse, nll; got 'mse'"),
        ({"fixed": {"l2": 0.1}, "ranges": SMALL}, "l2 is both fixed and a range"),
        ({"fixed": {"k": 2}}, "'biased-mf' has no setting 'k'"),
        ({"ranges": {"k": Numbers(1.0, 2.0)}}, "'biased-mf' has no setting 'k'"),
        ({"fixed": {"dmf.rank": 2}}, "dmf.rank is about 'dmf', which is not among"),
    ],
)
def test_a_wrong_choice_is_a_sentence(task, options, sentence):
    with pytest.raises(SettingError, match=sentence):
        tune(task, ["biased-mf"], budget=Budget(trials=1), **options)


def test_wrong_models_protocols_and_budgets_are_sentences(task, readings):
    for models in ([], ["dmf", "dmf"]):
        with pytest.raises(SettingError, match="Name one model or several"):
            tune(task, models)
    with pytest.raises(SettingError, match="model must be one of"):
        tune(task, ["magic"])
    with pytest.raises(SettingError, match="needs outage="):
        sensor_task(readings, protocol="blocks")
    for budget in ({}, {"trials": 1, "minutes": 2.0}):
        with pytest.raises(SettingError, match="one of the two"):
            Budget(**budget)
    with pytest.raises(SettingError, match="trials must be 1 or more; got 0"):
        Budget(trials=0)
    with pytest.raises(SettingError, match="minutes must be above 0"):
        Budget(minutes=0.0)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("l2=0.01:0.1:log", ("l2", Numbers(0.01, 0.1, log=True))),
        ("beta=0.0:1", ("beta", Numbers(0.0, 1))),
        ("warmup=1:6", ("warmup", Numbers(1, 6, int=True))),
        ("dmf.hidden=50:800:log", ("dmf.hidden", Numbers(50, 800, log=True, int=True))),
        ("penalty=row,rating", ("penalty", Choices(("row", "rating")))),
        ("patience=null,3", ("patience", Choices((None, 3)))),
    ],
)
def test_ranges_are_read_from_words(word, expected):
    assert parse_range(word) == expected


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("l2", "NAME=LOW:HIGH"),
        ("=1:2", "NAME=LOW:HIGH"),
        ("l2=a:b", "LOW:HIGH or LOW:HIGH:log; got 'a:b'"),
        ("l2=1:2:lg", "LOW:HIGH:log; got '1:2:lg'"),
        ("l2=2:1", "must be in order"),
        ("l2=0:1:log", "above 0, and in order"),
    ],
)
def test_a_wrong_range_is_a_sentence(word, sentence):
    with pytest.raises(SettingError, match=sentence):
        parse_range(word)


@pytest.mark.parametrize(
    "entry",
    [{"low": 1}, {"low": 1, "high": "x"}, {"low": 1.5, "high": 3, "int": True}, {"choices": []},
     {"low": 1, "high": 2, "step": 1}, 3, {"low": 1, "high": float("inf")}],
)  # fmt: skip
def test_a_wrong_entry_of_a_table_is_a_sentence(entry):
    with pytest.raises(SettingError):
        trials.as_space({"rank": entry})


def test_draws_stay_in_their_range_and_reach_both_ends():
    space = {
        "a": Numbers(1, 3, int=True), "b": Numbers(1, 40, log=True, int=True),
        "c": Numbers(0.001, 0.1, log=True), "d": Choices(("x", None)),
    }  # fmt: skip
    drawn = [draw(space, 0, k) for k in range(3000)]
    assert {one["a"] for one in drawn} == {1, 2, 3}
    assert {one["b"] for one in drawn} == set(range(1, 41))
    assert {one["d"] for one in drawn} == {"x", None}
    c = np.log10([one["c"] for one in drawn])
    assert -3 <= c.min() < -2.99
    assert -1.01 < c.max() <= -1
    assert np.mean(c < -2) == pytest.approx(0.5, abs=0.03)


def test_without_optuna_it_says_what_to_install(task, monkeypatch):
    real = importlib.__import__

    def without_optuna(name, *args, **kwargs):
        if name == "optuna":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr("builtins.__import__", without_optuna)
    with pytest.raises(MissingExtraError, match=r"noisewise\[tune\]"):
        search(task, method="bayes")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Call the command line in a folder with ratings and readings; status and what it said."""
    monkeypatch.chdir(tmp_path)
    write_csv("ratings.csv", "user,item,rating", RATINGS)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["noisewise", *map(str, words)])
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        said = capsys.readouterr()
        return status, said.out + said.err

    return call


def write_csv(name, head, seen):
    rows = zip(seen.decode(), seen.values.tolist(), strict=True)
    lines = [",".join(map(str, (*cell, value))) for cell, value in rows]
    Path(name).write_text("\n".join([head, *lines]) + "\n")


SETS = ["--set", "rank=2", "--set", "epochs=4"]
WORDS = ["--model", "biased-mf", "--model", "dmf", *SETS, "--range", "l2=0.01:0.2:log"]


def test_tuned_settings_are_taken_by_fit_and_evaluate(run):
    status, said = run("tune", "ratings.csv", *WORDS, "--trials", 2, "--out", "tuned.json")
    assert status == 0, said
    assert "--settings tuned.json" in said
    content = read_tuned("tuned.json")
    best = content["best"]
    assert f"{best['model']} --set rank=2" in said

    assert run("fit", "ratings.csv", "--settings", "tuned.json", "--out", "best.nw")[0] == 0
    model = load("best.nw")
    expected = registry.build("ratings", best["model"], best["settings"])
    assert model.get_params() == {**expected.get_params(), "random_state": 0}
    words = ["--settings", "tuned.json", "--model", "biased-mf", "--set", "l2=0.07"]
    assert run("fit", "ratings.csv", *words, "--out", "other.nw")[0] == 0
    own = load("other.nw").get_params()
    assert own["l2"] == 0.07
    assert own["bias_l2"] == content["models"]["biased-mf"]["best"]["settings"]["bias_l2"]

    words = ["--settings", "tuned.json", "--splits", 1, "--json", "result.json"]
    assert run("evaluate", "ratings.csv", *words)[0] == 0
    result = json.loads(Path("result.json").read_text())
    assert result["model"] == best["model"]
    assert {name: result["settings"][name] for name in best["settings"]} == best["settings"]


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
def test_models_are_tuned_with_features(run):
    items = RATINGS.ids[1].labels.tolist()
    lines = [f"{item},{'ab'[k % 2]}" for k, item in enumerate(items)]
    Path("items.csv").write_text("\n".join(["item,genre", *lines]))
    words = ["--set", "sweeps=8", "--set", "burn_in=2", "--range", "rank=1:3", "--trials", 2]
    words += ["--item-features", "items.csv"]
    status, said = run("tune", "ratings.csv", "--model", "bayes", *words, "--out", "tuned.json")
    assert status == 0, said
    assert read_tuned("tuned.json")["task"]["features"] == {"1": ["genre", "item"]}
    status, said = run("tune", "ratings.csv", *WORDS, "--item-features", "items.csv")
    assert status != 0
    assert "learns from values alone" in said


def test_sensors_are_tuned_by_cells_or_blocks_and_evaluated(run, readings):
    write_csv("readings.csv", "place,kind,step,value", readings.observations)
    words = ["--model", "fast", "--set", "sweeps=20", "--range", "rank=1,2", "--out", "tuned.json"]
    status, said = run("tune", "readings.csv", *words, "--trials", 1)
    assert status == 0, said
    assert read_tuned("tuned.json")["task"]["protocol"]["kind"] == "cells"
    words[-1] = "blocks.json"
    blocks = ["--validation", "blocks", "--outage", 30, "--share", 25]
    assert run("tune", "readings.csv", *words, "--trials", 1, *blocks)[0] == 0
    protocol = read_tuned("blocks.json")["task"]["protocol"]
    assert protocol == {"kind": "blocks", "share": 0.25, "outage_seconds": 30.0}
    words = ["--protocol", "cells", "--share", 50, "--splits", 1, "--json", "result.json"]
    status, said = run("evaluate", "readings.csv", "--settings", "tuned.json", *words)
    assert status == 0, said
    assert json.loads(Path("result.json").read_text())["model"] == "fast"
    status, said = run("fit", "readings.csv", "--settings", "tuned.json", "--out", "x.nw")
    assert status == 2
    assert "has settings for sensors, not for ratings" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "magic"], "model must be one of"),
        (["--model", "dmf", "--trials", "0"], "trials must be 1 or more"),
        (["--model", "dmf", "--trials", "3", "--minutes", "2"], "one of the two"),
        (["--model", "dmf", "--range", "l2"], "--range takes NAME=LOW:HIGH"),
        (["--model", "dmf", "--share", "20"], "--share is for sensors"),
        (["--model", "dmf", "--validation", "magic"], "--validation must be one of"),
        (["--model", "fast", "--time", "when"], "--time is for ratings"),
    ],
)
def test_an_error_of_the_command_is_one_sentence(run, words, sentence):
    status, said = run("tune", "ratings.csv", *words)
    assert status == 2
    assert sentence in said
    assert "Traceback" not in said


def test_the_command_has_help_with_an_example(run):
    assert "Example: noisewise tune" in run("tune", "--help")[1]
