"""The search for settings: what it draws, what it may look at, and what came of it."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from noisewise_reproduction.runs import search, search_sensors
from test_tensor import make_world

from noisewise import SettingError, observe, registry
from noisewise.data import Ids, Observations
from noisewise.data.panel import Panel
from noisewise.evaluation.trials import same_settings
from noisewise.models.deviation import DTF, PTF
from noisewise.settings import check
from noisewise.splits import rating_split

RESULTS = Path(__file__).parents[1] / "results"
SMALL = {"rank": 2, "epochs": 4}


@pytest.fixture(scope="module")
def observations(small_world):
    return observe(small_world.X, small_world.y)


def without_time(trials):
    return [{name: value for name, value in one.items() if name != "seconds"} for one in trials]


def test_settings_are_drawn_from_their_ranges():
    rng = np.random.default_rng(0)
    space = {"l2": (0.01, 1.0), "rank": [2, 4], "kernel": "quadratic"}
    drawn = [search.draw(space, rng) for _ in range(400)]
    assert all(0.01 <= one["l2"] <= 1.0 for one in drawn)
    assert np.median([one["l2"] for one in drawn]) == pytest.approx(0.1, rel=0.3)
    assert {one["rank"] for one in drawn} == {2, 4}
    assert {one["kernel"] for one in drawn} == {"quadratic"}


@pytest.mark.parametrize("name", search.SPACES)
def test_every_range_has_settings_that_its_model_takes(name):
    model, space = search.SPACES[name]
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = registry.build("ratings", model, search.draw(space, rng))
        check(drawn)


@pytest.mark.parametrize("word", ["l2", "l2=", "=3", "l2=1..0.1", "l2=0..1", "l2=a..b"])
def test_a_range_that_is_none_is_refused(word):
    with pytest.raises(SettingError, match=word):
        search.ranges([word])


def test_a_trial_never_looks_at_the_test_part(observations):
    split = rating_split(len(observations), 0)
    spoiled = observations.take(np.arange(len(observations)))  # a copy
    spoiled.values[split.test] = 1e6
    one, other = (search.trial(data, "rcf", SMALL, n_jobs=1) for data in (observations, spoiled))
    assert without_time([one]) == without_time([other])
    spoiled.values[split.validation] += 1.0
    assert (
        search.trial(spoiled, "rcf", SMALL, n_jobs=1)["validation_rmse"] != one["validation_rmse"]
    )


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
def test_a_sampler_can_be_tried_as_well(observations):
    sweeps = {"rank": 2, "sweeps": 12, "burn_in": 4}
    found = search.trial(observations, "bayes", sweeps, n_jobs=1)
    assert found["epochs"] == 12
    assert 0 < found["validation_rmse"] < observations.values.std()


def test_a_search_goes_on_where_it_was(observations):
    more = {**SMALL, "k": 1.0}
    whole = list(search.search(observations, "rcf", more, trials=4, n_jobs=1))
    assert len({one["settings"]["l2"] for one in whole}) == 4
    rest = search.search(observations, "rcf", more, trials=4, earlier=whole[:3], n_jobs=1)
    assert without_time(rest) == without_time(whole[3:])
    other = search.search(observations, "rcf", {**more, "k": 2.0}, trials=4, earlier=whole[:3])
    with pytest.raises(SettingError, match="earlier trials of rcf have other ranges"):
        list(other)


def test_a_search_goes_on_on_a_machine_that_rounds_otherwise(observations):
    more = {**SMALL, "k": 1.0}
    first = next(search.search(observations, "rcf", more, trials=1, n_jobs=1))
    first["settings"]["l2"] = np.nextafter(first["settings"]["l2"], 1.0)
    (second,) = search.search(observations, "rcf", more, trials=2, earlier=[first], n_jobs=1)
    assert second["settings"]["l2"] != pytest.approx(first["settings"]["l2"])


def test_a_model_without_ranges_needs_some(observations):
    with pytest.raises(SettingError, match="bayes has no ranges to draw from"):
        list(search.search(observations, "bayes", {"rank": 3}))


def test_the_command_keeps_every_trial_and_the_best(small_world, tmp_path, monkeypatch):
    rows = zip(*small_world.X.T.tolist(), small_world.y.tolist(), strict=True)
    lines = ["user,item,rating", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "ratings.csv").write_text("\n".join(lines))
    words = [str(tmp_path / "ratings.csv"), "--json", str(tmp_path / "out.json"), "--jobs", "1"]
    words += ["--model", "rcf", "--model", "rbmf", "--try", "rank=1,2", "--try", "epochs=3"]
    for trials in (2, 3):
        monkeypatch.setattr(sys, "argv", ["search", *words, "--trials", str(trials)])
        search.main()
        found = json.loads((tmp_path / "out.json").read_text())
        assert {name: len(tried) for name, tried in found["trials"].items()} == {
            "rcf": trials,
            "rbmf": trials,
        }
    for name, tried in found["trials"].items():
        assert found["best"][name] == min(tried, key=lambda one: one["validation_rmse"])
    assert found["split"] == 0
    assert found["machine"]["cores"] > 0


def test_the_command_says_what_it_cannot_do(tmp_path, monkeypatch, capsys):
    words = [str(tmp_path / "none.csv"), "--json", str(tmp_path / "out.json"), "--try", "l2"]
    monkeypatch.setattr(sys, "argv", ["search", *words])
    with pytest.raises(SystemExit):
        search.main()
    assert "A range is NAME=LOW..HIGH" in capsys.readouterr().err


# What came of it.


def test_committed_trials_are_those_that_the_seed_draws():
    trials = json.loads((RESULTS / "search-ml1m.json").read_text())["trials"]
    for name, tried in trials.items():
        rng = np.random.default_rng(0)
        for one in tried:
            assert same_settings(one["settings"], search.draw(search.SPACES[name][1], rng))


RIVALS = json.loads((RESULTS / "search-rivals.json").read_text())


@pytest.mark.parametrize("name", RIVALS["chosen"])
def test_rivals_have_the_settings_that_were_chosen(name):
    chosen = RIVALS["chosen"][name]["settings"]
    settings = registry.build("ratings", name).get_params()
    assert {setting: settings[setting] for setting in chosen} == chosen


@pytest.mark.parametrize("name", RIVALS["chosen"])
def test_the_record_has_the_trial_that_was_chosen_and_the_best(name):
    tried = [one["validation_rmse"] for one in RIVALS["trials"][name]]
    assert RIVALS["chosen"][name]["validation_rmse"] in tried
    assert RIVALS["best"][name]["validation_rmse"] == min(tried)


def test_the_search_tries_settings_on_every_task_and_goes_on_where_it_was(monkeypatch, tmp_path):
    world = make_world((6, 3, 100), n=1_600)
    names = ("location", "sensor", "time")
    ids = tuple(Ids(np.arange(n), name) for n, name in zip((6, 3, 100), names, strict=True))
    seen = Observations(tuple(world.X.T.astype(np.int32)), world.y.astype(np.float32), ids)
    monkeypatch.setattr(search_sensors, "named_panel", lambda name, path: Panel(seen, None, 1.0))
    place = tmp_path / "search.json"
    for trials in (1, 2):
        words = ["search", "london.npz", "intel.npz", "--trials", str(trials), "--json", str(place)]
        monkeypatch.setattr("sys.argv", words)
        search_sensors.main()
        found = json.loads(place.read_text())
        assert {name: len(runs) for name, runs in found["trials"].items()} == {
            "ptf": trials,
            "dtf": trials,
        }
    for runs in found["trials"].values():
        assert runs[0]["settings"] != runs[1]["settings"]
        for one in runs:
            assert len(one["tasks"]) == len(search_sensors.TASKS)
            errors = [task["mse"] for task in one["tasks"].values()]
            assert one["error"] == pytest.approx(math.prod(errors) ** (1 / len(errors)))
    assert found["best"]["ptf"]["error"] == min(one["error"] for one in found["trials"]["ptf"])
    for name, settings in (("ptf", PTF), ("dtf", DTF)):
        assert [one["seed"] for one in found["chosen"][name]] == list(range(5))
        assert found["chosen"][name][0]["settings"] == settings
