"""Runs: measured once, kept whole, taken up after a kill, adopted only where settings agree."""

import json
import os
import signal
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pytest
from noisewise_reproduction.runs import plan as planning
from noisewise_reproduction.runs.adopting import adopt, agree, numbered
from noisewise_reproduction.runs.plan import Chosen, Plan
from noisewise_reproduction.runs.rating_runs import fit_run, rating_run, zeros
from noisewise_reproduction.runs.run import Run, Store, settings_of
from noisewise_reproduction.runs.running import measure_all
from noisewise_reproduction.runs.sources import Source, find

from noisewise import registry
from noisewise.errors import DataError, MissingExtraError, SettingError
from noisewise.evaluation import ratings
from noisewise.evaluation.records import as_json
from noisewise.models.deviation import DeviationFactorizer

QUICK = {"rank": 4, "deviation_rank": 2, "epochs": 3}


def write_ratings(folder, n_users=60, n_items=40, n=900, seed=0):
    rng = np.random.default_rng(seed)
    users, items = np.divmod(rng.permutation(n_users * n_items)[:n], n_items)
    np.savez(
        folder / "ml1m.npz",
        user=users,
        item=items,
        rating=rng.integers(1, 6, n),
        timestamp=rng.integers(0, 10**9, n),
    )
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_ratings(tmp_path_factory.mktemp("data"))


@pytest.fixture
def source(data):
    return Source("ml1m", data / "ml1m.npz")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


def chosen(model="dmf", label=None, **settings):
    return Chosen(label or model, model, model, settings, "for a test")


def count(path, n_jobs):
    """Leave a line for every time that this is called."""
    with path.open("a") as file:
        file.write("x\n")
    return {"value": 0.1 + 0.2, "threads": n_jobs}


def run(measure, seed=0, *, alone=False, **about):
    words = {"task": "test", "dataset": "none", "model": "m", "seed": seed, **about}
    return Run(words, {"model": "m", "seed": seed}, measure, alone)


def test_a_cell_is_named_after_all_that_its_numbers_follow_from():
    one = run(count, settings={"rank": 8, "l2": 0.1})
    same = run(count, settings={"l2": 0.1, "rank": 8})
    assert one.name == same.name
    assert one.name.startswith("test--none--m--0--")
    assert one.name != run(count, settings={"rank": 9, "l2": 0.1}).name
    assert one.name != run(count, seed=1, settings={"rank": 8, "l2": 0.1}).name


def test_a_finished_cell_is_not_measured_again(store, tmp_path):
    runs = [run(partial(count, tmp_path / "calls"), seed) for seed in range(3)]
    measure_all(runs, store)
    measure_all([*runs, *runs], store)
    assert (tmp_path / "calls").read_text() == "x\n" * 3
    assert store.read(runs[0])["numbers"]["value"] == 0.1 + 0.2


def fail(path, n_jobs):
    if not path.exists():
        path.touch()
        raise DataError("not yet")
    return {"value": 1}


def test_what_is_finished_stays_when_a_later_cell_fails(store, tmp_path):
    good, bad = (
        run(partial(count, tmp_path / "calls"), 0),
        run(partial(fail, tmp_path / "failed"), 1),
    )
    with pytest.raises(DataError, match="not yet"):
        measure_all([good, bad], store)
    assert store.has(good)
    assert not store.has(bad)
    measure_all([good, bad], store)
    assert (tmp_path / "calls").read_text() == "x\n"
    assert store.read(bad)["numbers"] == {"value": 1}


KILLED = """
import os, signal, sys
from functools import partial
from pathlib import Path
from noisewise_reproduction.runs.run import Run, Store
from noisewise_reproduction.runs.running import measure_all

folder = Path(sys.argv[1])

def measure(seed, n_jobs):
    calls = folder / f"calls{seed}"
    calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
    if seed == 1 and calls.read_text() == "x":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": seed / 3}

def run(seed):
    about = {"task": "test", "dataset": "none", "model": "m", "seed": seed}
    return Run(about, {}, partial(measure, seed))

measure_all([run(seed) for seed in range(3)], Store(folder / "runs"))
"""


def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path):
    words = [sys.executable, "-c", KILLED, str(tmp_path)]
    first = subprocess.run(words, check=False)
    assert first.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "runs").glob("test*.json"))) == 1
    subprocess.run(words, check=True)
    assert [(tmp_path / f"calls{seed}").read_text() for seed in range(3)] == ["x", "xx", "x"]
    values = sorted(
        json.loads(path.read_text())["numbers"]["value"]
        for path in (tmp_path / "runs").glob("test*.json")
    )
    assert values == [0.0, 1 / 3, 2 / 3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "it is no JSON"),
        (b"\xff", "it is no JSON"),
        (b"[]", "it is of another run"),
        (b'{"about": {"task": "other"}}', "it is of another run"),
    ],
)
def test_a_damaged_cell_is_refused_with_the_fix(store, content, message):
    one = run(count)
    store.folder.mkdir()
    store.path(one).write_bytes(content)
    with pytest.raises(DataError, match=f"{message}.*Remove it, and the run is measured again"):
        store.read(one)


def test_a_cell_without_numbers_is_refused(store):
    one = run(count)
    store.keep(one, {"date": "today", "machine": {}})
    with pytest.raises(DataError, match="it needs date, machine, numbers"):
        store.read(one)


def lacking(n_jobs):
    raise MissingExtraError("A network", "neural")


def test_a_cell_that_lacks_a_library_is_left_out_and_named(store, tmp_path):
    good, bad = run(partial(count, tmp_path / "calls"), 0), run(lacking, 1)
    why = measure_all([bad, good], store)
    assert list(why) == [bad.name]
    assert "pip install 'noisewise[neural]'" in why[bad.name]
    assert store.has(good)
    assert not store.has(bad)


def interrupted(n_jobs):
    def stop(info, state):
        os.kill(os.getpid(), signal.SIGINT)

    model = DeviationFactorizer(rank=2, epochs=5, n_jobs=1)
    model.fit([(i, j, float(i * j)) for i in range(9) for j in range(9)], callbacks=[stop])
    return {"value": "half trained"}


def test_an_interrupted_training_is_not_kept_as_finished(store, ctrl_c):
    one = run(interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        measure_all([one], store)
    assert not store.has(one)
    assert signal.getsignal(signal.SIGINT) is before


def warned(n_jobs):
    warnings.warn("predictions have not settled", stacklevel=1)
    return {}


def test_what_a_cell_warned_of_is_kept(store):
    measure_all([run(warned)], store)
    assert store.read(run(warned))["warnings"] == ["predictions have not settled"]


def test_no_process_is_refused(store):
    with pytest.raises(SettingError, match="jobs must be 1 or more; got 0"):
        measure_all([], store, jobs=0)


def test_numbers_do_not_depend_on_the_number_of_processes(source, tmp_path):
    runs = [rating_run(source, chosen(**QUICK), seed) for seed in range(2)]
    stores = [Store(tmp_path / str(jobs)) for jobs in (1, 2)]
    for jobs, one in zip((1, 2), stores, strict=True):
        measure_all(runs, one, jobs=jobs)
    for one in runs:
        first, second = (store.read(one) for store in stores)
        assert (first["n_jobs"], second["n_jobs"]) == (-1, 1)
        for record in (first, second):
            for name in ("seconds", "seconds_per_epoch"):
                del record["numbers"]["scores"][name]
        assert first["numbers"] == second["numbers"]


def test_cells_that_are_timed_run_alone_and_use_all_cores(store, tmp_path):
    timed = run(partial(count, tmp_path / "calls"), 0, alone=True)
    measure_all([timed], store, jobs=2)
    assert store.read(timed)["numbers"]["threads"] == -1


def test_a_rating_cell_has_the_numbers_of_evaluate(source, store):
    one = rating_run(source, chosen(**QUICK), 1)
    measure_all([one], store)
    (row,) = evaluated(source, "dmf", QUICK, splits=1, seed=1)["splits"]
    assert store.read(one)["numbers"]["scores"]["rmse"] == row["rmse"]
    assert one.about["settings"]["unknown"] == 3.0
    assert "n_jobs" not in one.about["settings"]


def test_a_fit_cell_has_the_curve_and_the_zeros(source, store):
    one = fit_run(source, chosen(**QUICK), 0)
    measure_all([one], store)
    numbers = store.read(one)["numbers"]
    assert one.alone
    assert len(numbers["curve"]["validation_rmse"]) == len(numbers["curve"]["seconds"])
    assert 0.0 <= numbers["zeros"]["both"] <= 1.0
    biased = fit_run(source, chosen("biased-mf", rank=4, epochs=2), 0)
    measure_all([biased], store)
    assert "zeros" not in store.read(biased)["numbers"]


def test_zeros_are_counted_over_ids_that_were_trained_on(world):
    model = DeviationFactorizer(4, deviation_rank=3, epochs=4, patience=None, random_state=0)
    model.fit(world.X, world.y)
    rows = model.factors_.state
    for mode in (0, 1):
        rows.deviation_factors(mode)[:] = 1.0
    rows.deviation_factors(0)[:-1, 0] = 0.0
    found = zeros(model)
    assert found["P"] == pytest.approx(1 / 3)
    assert found["Q"] == 0.0
    assert found["both"] == pytest.approx(200 / 3 / 350, rel=1e-6)


def evaluated(source, *words, **options):
    return ratings.evaluate(source.ratings(), *words, **options, protocol="paper")


def written(folder, name, result):
    (folder / name).write_text(as_json(result))


def test_a_result_of_evaluate_is_adopted_with_the_same_numbers(source, store, tmp_path):
    result = evaluated(source, "dmf", QUICK, splits=2)
    written(tmp_path, "mine.json", result)
    (tmp_path / "search.json").write_text('{"trials": []}')
    runs = [rating_run(source, chosen(**QUICK), seed) for seed in range(3)]
    taken = adopt(runs, store, tmp_path)
    assert taken == (2, ["search.json"])
    assert [store.has(one) for one in runs] == [True, True, False]
    record = store.read(runs[1])
    assert record["adopted"] == "mine.json"
    assert record["numbers"]["scores"]["rmse"] == result["splits"][1]["rmse"]
    assert record["date"] == result["date"]


def test_rounds_are_adopted_too(source, store, tmp_path):
    settings = {"rank": 4, "epochs": 4, "round_epochs": 2, "patience": 4, "refit": False}
    result = evaluated(source, "drmf", settings, splits=1)
    written(tmp_path, "drmf.json", result)
    one = rating_run(source, chosen("drmf", **settings), 0)
    assert adopt([one], store, tmp_path).runs == 1
    expected = {key: value for key, value in result["rounds"][0].items() if key != "seed"}
    assert store.read(one)["numbers"]["rounds"] == json.loads(as_json(expected))


@pytest.mark.parametrize("change", ["rank", "protocol", "data", "model", "unknown setting"])
def test_a_result_of_something_else_is_not_adopted(source, store, tmp_path, change):
    result = evaluated(source, "dmf", QUICK, splits=1)
    if change == "rank":
        result["settings"]["rank"] = 5
    elif change == "unknown setting":
        result["settings"]["flavour"] = "sweet"
    else:
        result[change] = {"protocol": "time", "data": {"observations": 1}, "model": "bayes"}[change]
    written(tmp_path, "other.json", result)
    assert adopt([rating_run(source, chosen(**QUICK), 0)], store, tmp_path).runs == 0


def test_a_setting_that_did_not_exist_then_must_have_its_default_now(source, store, tmp_path):
    result = evaluated(source, "dmf", QUICK, splits=1)
    del result["settings"]["biases"]
    written(tmp_path, "old.json", result)
    changed = rating_run(source, chosen(**QUICK, biases=False), 0)
    default = rating_run(source, chosen(**QUICK), 0)
    assert adopt([changed], store, tmp_path).runs == 0
    assert adopt([default], store, tmp_path).runs == 1


def test_settings_that_change_no_number_need_not_agree():
    ours = {"rank": 8}
    assert agree(ours, {"rank": 8, "n_jobs": 7, "keep_seen": False, "inner__n_jobs": 2}, {})
    assert agree({"implicit": "auto"}, {"implicit": True}, {})
    assert not agree({"implicit": "auto"}, {"implicit": False}, {})
    assert not agree(ours, {}, {})


def test_settings_of_a_model_are_those_that_its_numbers_follow_from():
    found = settings_of(DeviationFactorizer(8, n_jobs=3, random_state=1))
    assert found["rank"] == 8
    assert not {"n_jobs", "random_state", "keep_seen"} & found.keys()


def test_adopting_needs_a_folder(store, tmp_path):
    with pytest.raises(DataError, match="Expected a folder with results to adopt"):
        adopt([], store, tmp_path / "nowhere")


def test_a_folder_is_searched_for_known_files(data):
    assert list(find(data)) == ["ml1m"]
    with pytest.raises(DataError, match="Expected a folder with copies of the data"):
        find(data / "nowhere")


def test_missing_data_are_named(tmp_path):
    with pytest.raises(DataError, match=r"needs ml1m\.npz or ml-1m; it has none of them"):
        Plan.of(tmp_path).there(["ml1m"])


def test_a_quick_plan_has_one_split_and_small_models(data):
    whole, quick = Plan.of(data), Plan.of(data, quick=True)
    assert (whole.splits, quick.splits) == (5, 1)
    assert Plan.of(data, quick=True, splits=3).splits == 3
    assert whole.model("biased-mf").settings == {}
    assert quick.model("biased-mf").settings["rank"] == 16
    assert quick.artefact("regression")["seeds"] < whole.artefact("regression")["seeds"]
    assert "quick" not in quick.artefact("claims")
    with pytest.raises(SettingError, match="splits must be 1 or more; got 0"):
        Plan.of(data, splits=0)


def labels(group):
    return list(planning.settings()[group])


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("label", labels("ratings"))
def test_every_model_of_ratings_can_be_built(data, label, quick):
    model = Plan.of(data, quick=quick).model(label)
    assert registry.build("ratings", model.model, model.settings)
    assert model.chosen
    assert model.title


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("label", labels("sensors"))
def test_every_model_of_sensors_can_be_built(data, label, quick):
    model = Plan.of(data, quick=quick).model(label, "sensors")
    assert registry.build("sensors", model.model, model.settings, coordinates={"a": (0, 0)})


def test_items_name_models_that_there_are():
    artefacts = planning.settings()["artefacts"]
    for name, artefact in artefacts.items():
        known = labels("sensors" if name == "sensors" else "ratings")
        controls = ["learned", "constant", "counts", "shuffled"] if name == "noise" else []
        for key in ("models", "sparse", "rounds", "rivals"):
            assert set(artefact.get(key, ())) <= set(known)
        for pair in artefact.get("pairs", ()):
            assert set(pair) <= {*artefact["models"], *controls}


def test_the_type_of_sensor_must_be_the_same_mode_however_it_is_named():
    london, intel = (15, 19, 7479), (52, 4, 7200)
    assert numbered({"sensor": "auto"}, intel) == numbered({"sensor": "sensor"}, intel)
    assert numbered({"sensor": "auto"}, london) == numbered({"sensor": 1}, london)
    assert numbered({"time": "timestamp"}, (6040, 3706)) == {"time": "timestamp"}
