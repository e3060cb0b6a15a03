"""Fits on a cluster of Ray, which these tests start on this machine and stop: the same bits."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from copy import copy
from dataclasses import fields
from functools import partial

import numpy as np
import pytest
import shared

import noisewise as nw
from noisewise import spread_reader
from noisewise.cli import app
from noisewise.engine import workers
from noisewise.engine.data import Data, Scale, Spec, Timeline
from noisewise.engine.gibbs.cluster import SpreadSampler
from noisewise.engine.gibbs.sampler import RatingSampler
from noisewise.engine.gibbs.schedule import Schedule
from noisewise.engine.mapped import mapped
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.cluster import Spread
from noisewise.engine.sgd.layout import Params, initial_state
from noisewise.engine.training import one_blas_thread
from noisewise.engine.versions import check_versions, versions
from noisewise.engine.workers import Cluster, Team, cut_evenly
from noisewise.errors import DataError, SettingError
from noisewise.models import lists
from noisewise.spread import SpreadObservations

os.environ |= shared.RAY

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'noisewise[cluster]'.")

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray leaves sockets and processes to others
MOST = 4  # workers
ALIKE = {"node_ip_address": "127.0.0.1", "object_store_memory": 100 * 2**20}  # of nodes


@pytest.fixture(scope="module")
def started():
    """Two Ray nodes on this machine, bound to loopback, with room for all workers."""
    from ray.cluster_utils import Cluster as Nodes

    head = ALIKE | {"num_cpus": MOST // 2 + 1, "include_dashboard": False}
    nodes = Nodes(initialize_head=True, head_node_args=head)
    try:
        nodes.add_node(num_cpus=MOST // 2 + 1, **ALIKE)
        ray.init(nodes.address, log_to_driver=False, logging_level="error")
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture(scope="module")
def everyone(started):
    """Start workers once, as that takes longest."""
    team = Team(Cluster("local", workers=MOST, threads=1))
    team.start()
    assert len(team) == MOST
    yield team
    team.stop()


@pytest.fixture
def team(everyone):
    """Return a function that gives a team of some of the workers."""

    def some(many, apart=False):
        part = Team(everyone.cluster)
        part.hosts, part.machines = everyone.hosts[:many], everyone.machines[:many]
        if apart:  # as if each had a machine of its own
            part.machines = list(map(str, range(many)))
        return part

    return some


def make(shape, n, seed=0, levels=0, time=False):
    rng = np.random.default_rng(seed)
    cells = rng.choice(int(np.prod(shape)), n, replace=False)
    codes = tuple(c.astype(np.int32) for c in np.unravel_index(cells, shape))
    values = rng.integers(0, levels, n) if levels else rng.normal(size=n)
    ids = tuple(nw.Ids(np.arange(m), f"mode{k}") for k, m in enumerate(shape))
    when = rng.integers(0, 10**6, n) if time else None
    return nw.Observations(codes, values.astype(np.float32), ids, when)


PARAMS = Params(
    rank=20, deviation_rank=4, learning_rate=0.05, deviation_learning_rate=0.01, l2=0.05,
    bias_l2=0.02, deviation_l1=0.0006, penalty="row", delta=0.2, beta=0.25, warmup=1,
    adagrad="coordinate", seed=3,
)  # fmt: skip


def counted(seen):
    return tuple(np.bincount(c, minlength=n) for c, n in zip(seen.codes, seen.shape, strict=True))


@pytest.mark.parametrize(
    ("shape", "n"),
    [((300, 200), 20_000), ((100, 400), 20_000), ((40, 50, 30), 20_000), ((20, 15, 10, 9), 9_000)],
    ids=str,
)
def test_epochs_have_the_bits_of_one_machine_for_any_number_of_workers(team, shape, n):
    seen, held_out = make(shape, n), make(shape, 500, seed=1)
    blocks = strata.arrange(seen.codes, seen.values, seen.shape, PARAMS.layout.width)
    state = initial_state(PARAMS, blocks.placed(counted(seen)))
    reports = [strata.epoch(state, blocks, PARAMS, 1) for _ in range(3)]
    cells = tuple(o[c] for o, c in zip(blocks.order, held_out.codes, strict=True))
    predicted = strata.predict(state, cells, PARAMS, 1)
    chunks, watched = (SpreadObservations.of(one, 7_000).chunks for one in (seen, held_out))
    for many, apart in [*((many, False) for many in range(1, MOST + 1)), (3, True), (4, True)]:
        spread = Spread(team(many, apart), PARAMS, counted(seen), chunks, watched, np.asarray)
        own = spread.start()
        assert [spread.epoch(own) for _ in range(2)] == reports[:2]
        best, before = own.copy(), spread.finished(own).rows
        spread.predict(own)  # which sends stripes round, and changes nothing
        assert spread.epoch(own) == reports[2]
        for ours, theirs in zip(spread.predict(own), predicted, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for ours, theirs in zip(spread.finished(own).rows, state.rows, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for ours, theirs in zip(spread.finished(best).rows, before, strict=True):
            np.testing.assert_array_equal(ours, theirs)


KINDS = {
    "defaults": ((300, 200), {"noise_rank": 2, "implicit": True}),
    "constant noise": ((300, 200), {"noise_rank": 0}),
    "everything": (
        (300, 200),
        {"noise_rank": 2, "implicit": True, "time": True, "likelihood": "ordinal", "rank": 40},
    ),
    "time": ((200, 300), {"noise_rank": 1, "time": True}),
    "three modes": ((40, 50, 30), {"noise_rank": 2}),
    "three modes, levels": ((40, 50, 30), {"noise_rank": 0, "likelihood": "ordinal"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_sweeps_have_the_bits_of_one_machine_for_any_number_of_workers(team, kind):
    shape, own = KINDS[kind]
    chosen = {"rank": 6, "seed": 5, "likelihood": "gaussian", "implicit": False, "time": False}
    spec = Spec(**chosen | own)
    seen = make(shape, 12_000, levels=5 if spec.ordinal else 0, time=spec.time)
    levels = np.arange(5 if spec.ordinal else 0, dtype=np.float32)
    scale, schedule = Scale(3.0, 1.1, -np.inf, np.inf, levels, 2), Schedule(13, 10, 2)
    data, order = Data.arrange(seen.codes, seen.values, seen.shape, seen.time)
    timeline = Timeline.of(data, seen.time[order]) if spec.time else None
    watched = (
        tuple(c[:90] for c in seen.codes),
        seen.time[:90] if spec.time else None,
        seen.values[:90],
    )
    chunks = SpreadObservations.of(seen, 5_000).chunks
    with one_blas_thread():
        one = RatingSampler(spec, data, scale, counted(seen), timeline, schedule, watched, 1)
        for many in (1, 2, 3, 4) if kind in ("defaults", "everything") else (3,):
            given = spec, scale, counted(seen), schedule, watched
            spread = SpreadSampler(team(many), chunks, np.asarray, *given)
            chains = one.start(), spread.start()
            for _ in range(schedule.sweeps):
                assert one.step(chains[0]) == spread.step(chains[1])
            assert_same(chains[1], chains[0])
            draws = (s.posterior([c]).draws for s, c in zip((one, spread), chains, strict=True))
            ours, theirs = draws
            for name, array in theirs.items():
                np.testing.assert_array_equal(ours[name], array)
            whole = spread.whole(chains[1])
            for field in fields(whole.draw):
                np.testing.assert_array_equal(
                    getattr(whole.draw, field.name), getattr(chains[0].draw, field.name)
                )


def assert_same(ours, theirs):
    for name in ("trace", "probes", "sums"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_rows_are_cut_into_parts_of_about_equal_weight():
    assert cut_evenly(np.ones(10), 3) == [0, 4, 7, 10]
    assert cut_evenly([9, 1, 1, 1], 2) == [0, 1, 4]
    assert cut_evenly([1, 1], 4) == [0, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("nowhere", "'auto', 'local'"),
        ("ray://host", "'auto', 'local'"),
        (3, "an address or a Cluster"),
        (Cluster("local", workers=0), "workers must be a whole number"),
        (Cluster("local", threads=True), "threads must be a whole number"),
    ],
    ids=str,
)
def test_a_cluster_that_cannot_be_meant_is_refused(wanted, told):
    with pytest.raises(SettingError, match=told):
        nw.DeviationFactorizer().fit([("a", "b", 1), ("b", "c", 2)], cluster=wanted)


def test_models_that_have_no_workers_say_so():
    with pytest.raises(SettingError, match="one machine"):
        nw.TemporalFactorizer().fit(
            [("a", 1, 1.0), ("a", 2, 2.0), ("b", 1, 2.0), ("b", 2, 1.0)], cluster="local"
        )
    with pytest.raises(SettingError, match="features and sample_weight must be"):
        nw.BayesianFactorizer().fit("folder", features={"user": {}}, cluster="local")
    with pytest.raises(SettingError, match="features and sample_weight must be"):
        nw.DeviationFactorizer().fit("folder", sample_weight=[1.0], cluster="local")
    with pytest.raises(SettingError, match="device must be 'cpu'"):
        nw.DeviationFactorizer(device="auto").fit([("a", "b", 1), ("b", "c", 2)], cluster="local")


def test_other_versions_are_refused():
    wanted = versions() | {"numba": "0.0.1"}
    with pytest.raises(SettingError, match=r"has numba .* instead of 0\.0\.1"):
        check_versions(wanted)


LISTENING = """
import ray, psutil
from noisewise.engine.workers import Cluster, Team, connected

place = Cluster("local", workers=1, threads=1)
with connected(place):
    team = Team(place)
    team.start()
    own = {process.pid for process in psutil.Process().children(recursive=True)}
    for one in psutil.net_connections(kind="tcp"):
        if one.status == psutil.CONN_LISTEN and one.pid in own:
            print(one.laddr.ip)
"""


def test_a_cluster_of_this_machine_listens_to_nobody_else():
    own = {k: v for k, v in os.environ.items() if k != "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"}
    run = subprocess.run(
        [sys.executable, "-c", LISTENING], env=own, capture_output=True, text=True, check=True
    )
    listening = run.stdout.split()
    assert len(listening) > 3
    assert set(listening) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


MODELS = {
    "deviation": partial(nw.DeviationFactorizer, rank=8, epochs=8, random_state=0),
    "bayes": partial(nw.BayesianFactorizer, rank=4, sweeps=14, burn_in=10, random_state=0),
}


def kill_later(team, seconds):
    """Kill a worker in a moment, as the system might."""
    _, process, _ = team.get(team.hosts[-1].about.remote(versions()))
    timer = threading.Timer(seconds, os.kill, (process, signal.SIGKILL))
    timer.start()
    return timer


@pytest.mark.parametrize("name", MODELS)
def test_a_worker_that_is_killed_is_replaced_and_no_bit_changes(started, name):
    seen, build = make((300, 200), 12_000, seed=4), MODELS[name]
    timers, place = [], Cluster("local", workers=2, threads=1)

    def attack(info, state):
        if info.epoch in (3, 12):
            timers.append(kill_later(workers.current(), 0.01 * info.epoch))

    one, ours = build().fit(seen), build().fit(seen, cluster=place, callbacks=[attack])
    for timer in timers:
        timer.join()
    assert timers
    assert ours.learning_curve_ | {"seconds": 0} == one.learning_curve_ | {"seconds": 0}
    for theirs, own in zip(one.moments(seen), ours.moments(seen), strict=True):
        np.testing.assert_array_equal(own, theirs)


def processes(title):
    """Return processes of this cluster by their title."""
    import psutil  # which Ray brings along

    children = psutil.Process().children(recursive=True)
    return [p.pid for p in children if " ".join(p.cmdline()).startswith(title)]


def test_a_lead_that_is_killed_is_replaced_and_goes_on_from_the_checkpoint(started, tmp_path):
    seen = write_folder(tmp_path / "ratings", "text")
    told = []

    def attack(info, state):
        told.append(info.epoch)
        if len(told) == 5:
            for process in processes("ray::Lead"):
                os.kill(process, signal.SIGKILL)

    build, place = MODELS["bayes"], Cluster(started.address, workers=2, threads=1)
    ours = build().fit(
        tmp_path / "ratings", cluster=place, callbacks=[attack], checkpoint=tmp_path / "kept",
        checkpoint_epochs=2,
    )  # fmt: skip
    assert told[:6] == [1, 2, 3, 4, 5, 5]
    for theirs, own in zip(build().fit(seen).moments(seen), ours.moments(seen), strict=True):
        np.testing.assert_array_equal(own, theirs)


def test_a_command_that_is_killed_goes_on_with_resume(started, tmp_path):
    seen = write_folder(tmp_path / "ratings", "text")
    kept, out = tmp_path / "kept", tmp_path / "model.nw"
    settings = ["--set", "rank=8", "--set", "epochs=40", "--set", "patience=40", "--model", "dmf"]
    words = ["fit", str(tmp_path / "ratings"), "--out", str(out), "--cluster", started.address]
    words += ["--workers", "2", *settings]
    with pytest.raises(SettingError, match="There is no checkpoint"):
        app([*words, "--resume", str(kept)], standalone_mode=False)
    command = [sys.executable, "-m", "noisewise", *words, "--checkpoint", str(kept)]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not kept.exists() and running.poll() is None:
        time.sleep(0.02)
    running.kill()
    assert running.wait() == -signal.SIGKILL
    assert not out.exists()
    app([*words, "--resume", str(kept)], standalone_mode=False)
    assert not kept.exists()
    one = nw.DeviationFactorizer(rank=8, epochs=40, patience=40, random_state=0).fit(seen)
    np.testing.assert_array_equal(nw.load(out).predict(seen), one.predict(seen))


def test_a_fit_goes_on_from_its_checkpoint_here_or_there(started, tmp_path):
    seen, build = make((300, 200), 12_000, seed=4), MODELS["bayes"]
    place, file = Cluster("local", workers=2, threads=1), tmp_path / "kept"
    with pytest.raises(KeyboardInterrupt):
        build().fit(
            seen, cluster=place, checkpoint=file, checkpoint_epochs=1,
            callbacks=[lambda info, state: stop_at(6, info)],
        )  # fmt: skip
    assert file.exists()
    copy = tmp_path / "copy"
    copy.write_bytes(file.read_bytes())
    one = build().fit(seen)
    here = build().fit(seen, checkpoint=file)
    there = build().fit(seen, checkpoint=copy, cluster=place)
    for model in (here, there):
        for theirs, own in zip(one.moments(seen), model.moments(seen), strict=True):
            np.testing.assert_array_equal(own, theirs)


def stop_at(epoch, info):
    if info.epoch == epoch:
        raise KeyboardInterrupt


def write_folder(path, kind):
    """Write ratings as a folder of Parquet; return them as one machine reads them."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    seen = make((120, 80), 4_000, seed=6, time=True)
    users, items = (c.tolist() for c in seen.codes)
    if kind == "text":
        users, items = [f"u{7 * u % 120}" for u in users], [f"film {i}" for i in items]
    table = pa.table({"user": users, "item": items, "rating": np.round(seen.values, 1),
                      "timestamp": seen.time})  # fmt: skip
    path.mkdir()
    for k in range(3):
        rows = table.slice(k * 1_400, 1_400)
        parquet.write_table(rows, path / f"part-{k}.parquet", row_group_size=500)
    parquet.write_table(table, path.parent / "all.parquet")
    return nw.read(path.parent / "all.parquet")


@pytest.mark.parametrize("kind", ["text", "numbers"])
def test_a_cluster_reads_a_folder_as_one_machine_reads_a_file(started, tmp_path, kind):
    seen = write_folder(tmp_path / "ratings", kind)
    source = spread_reader.source_of(tmp_path / "ratings", None, None, "timestamp")
    ours = spread_reader.read_spread(source)
    assert ours.ids == seen.ids
    for own, theirs in zip(ours.codes, seen.codes, strict=True):
        np.testing.assert_array_equal(own, theirs)
    np.testing.assert_array_equal(ours.values, seen.values)
    assert ours.values.dtype == seen.values.dtype
    assert len(ours.time) == len(seen)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_a_folder_is_that_of_one_machine(started, tmp_path, name):
    seen = write_folder(tmp_path / "ratings", "text")
    told = []
    place = Cluster("local", workers=2, threads=1)
    watch = [lambda info, state: told.append(info.epoch)]
    one = MODELS[name]().fit(seen)
    ours = MODELS[name]().fit(tmp_path / "ratings", cluster=place, callbacks=watch)
    assert told[: len(one.learning_curve_["epoch"])] == one.learning_curve_["epoch"]
    assert ours.learning_curve_ | {"seconds": 0} == one.learning_curve_ | {"seconds": 0}
    for theirs, own in zip(one.moments(seen), ours.moments(seen), strict=True):
        np.testing.assert_array_equal(own, theirs)
    np.testing.assert_array_equal(ours.seen_.columns, one.seen_.columns)


def test_a_model_of_a_dataset_of_ray_is_that_of_one_machine(started, tmp_path):
    ray_data = pytest.importorskip("ray.data")
    import pyarrow.parquet as parquet

    seen = write_folder(tmp_path / "ratings", "text")
    files = sorted((tmp_path / "ratings").iterdir())
    given = ray_data.from_arrow([parquet.read_table(file) for file in files])
    place = Cluster(started.address, workers=2, threads=1)
    ours = MODELS["deviation"]().fit(given, cluster=place)
    np.testing.assert_array_equal(ours.predict(seen), MODELS["deviation"]().fit(seen).predict(seen))


def test_a_command_writes_the_model_of_a_folder(started, tmp_path, capsys):
    seen = write_folder(tmp_path / "ratings", "text")
    out = tmp_path / "model.nw"
    settings = ["--set", "rank=8", "--set", "epochs=6", "--seed", "0", "--model", "dmf"]
    words = ["fit", str(tmp_path / "ratings"), "--out", str(out), "--cluster", "local", *settings]
    app(words, standalone_mode=False)
    one = nw.DeviationFactorizer(rank=8, epochs=6, random_state=0).fit(seen)
    np.testing.assert_array_equal(nw.load(out).predict(seen), one.predict(seen))
    assert "4,000 of 120 user x 80 item" in capsys.readouterr().out


def test_lists_of_a_cluster_are_those_of_one_machine(started, tmp_path, monkeypatch, capsys):
    seen = make((300, 200), 12_000, seed=4)
    model = MODELS["deviation"]().fit(seen)
    monkeypatch.setattr(lists, "ROWS_AT_ONCE", 70)
    place = Cluster("local", workers=2, threads=1)
    for how in ({"by": "utility"}, {"mode": 1, "ids": [3, 7, 999], "risk": 1.0}):
        one = model.recommend_all(5, frame=None, **how)
        ours = model.recommend_all(5, frame=None, cluster=place, **how)
        assert list(ours) == list(one)
        for name, column in one.items():
            np.testing.assert_array_equal(ours[name], column)
    model.save(tmp_path / "model.nw")
    model.recommend_all(10, out=tmp_path / "one.parquet")
    words = ["recommend", str(tmp_path / "model.nw"), "--all", "--cluster", "local"]
    app([*words, "--workers", "2", "--out", str(tmp_path / "ours.parquet")], standalone_mode=False)
    written = [(tmp_path / f"{name}.parquet").read_bytes() for name in ("one", "ours")]
    assert written[0] == written[1]
    with pytest.raises(SettingError, match="--cluster is for lists"):
        app(words, standalone_mode=False)
    with pytest.raises(SettingError, match="device must be 'cpu'"):
        copy(model).set_params(device="auto").recommend_all(cluster="local")


def test_lists_of_a_worker_that_is_killed_are_made_again(started):
    def columns(task, threads):
        if task == 3 and not os.path.exists(flag):
            open(flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return task * threads

    with tempfile.TemporaryDirectory() as folder:
        flag = f"{folder}/killed"
        place = Cluster("local", workers=2, threads=1)
        assert list(mapped(place, columns, range(8))) == list(range(8))
        assert os.path.exists(flag)


def test_models_are_evaluated_on_a_cluster_with_the_same_scores(started, tmp_path):
    write_folder(tmp_path / "ratings", "text")
    settings, found = ["--set", "rank=8", "--set", "epochs=6"], []
    for data, where in (("all.parquet", []), ("ratings", ["--cluster", "local", "--workers", "2"])):
        out = tmp_path / f"{data}.json"
        words = ["evaluate", str(tmp_path / data), "--model", "dmf", "--splits", "1", *settings]
        app([*words, *where, "--json", str(out)], standalone_mode=False)
        found.append(json.loads(out.read_text())["splits"][0])
    timed = {"seconds": 0, "seconds_per_epoch": 0}
    assert found[0] | timed == found[1] | timed


def test_what_a_cluster_cannot_read_is_refused(started, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    folder = tmp_path / "ratings"
    with pytest.raises(DataError, match="no Parquet file"):
        spread_reader.source_of(folder, None, None, None)
    folder.mkdir()
    twice = pa.table({"user": ["a", "a", "b"], "item": ["x", "x", "y"], "rating": [1, 2, 3]})
    parquet.write_table(twice, folder / "one.parquet")
    source = spread_reader.source_of(folder, None, None, None)
    with pytest.raises(DataError, match=r"more than once, e.g. \('a', 'x'\)"):
        spread_reader.read_spread(source)
    with pytest.raises(SettingError, match="duplicates must be 'error'"):
        spread_reader.read_spread(source, "last")
    (folder / "two.parquet").write_text("nothing")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        spread_reader.source_of(folder, None, None, None)


def test_a_node_that_is_killed_is_done_without_and_no_bit_changes(started, monkeypatch):
    monkeypatch.setattr(workers, "SHORT", 1.0)
    seen, build, hit = make((300, 200), 12_000, seed=4), MODELS["bayes"], []
    place = Cluster(started.address, workers=2, threads=1)

    def attack(info, state):
        if info.epoch == 3 and not hit:
            (node,) = started.worker_nodes  # all but the head
            hit.append(node.node_id in workers.current().machines)
            started.remove_node(node, allow_graceful=False)

    one, ours = build().fit(seen), build().fit(seen, cluster=place, callbacks=[attack])
    assert hit == [True]
    assert ours.learning_curve_ | {"seconds": 0} == one.learning_curve_ | {"seconds": 0}
    for theirs, own in zip(one.moments(seen), ours.moments(seen), strict=True):
        np.testing.assert_array_equal(own, theirs)
