"""Fits on a cluster of Ray, which these tests start on this machine and stop: the same bits."""

import os
from dataclasses import fields
from functools import partial

import numpy as np
import pytest

import noisewise as nw
from noisewise.engine import workers
from noisewise.engine.data import Data, Scale, Spec, Timeline
from noisewise.engine.gibbs.cluster import SpreadSampler
from noisewise.engine.gibbs.sampler import RatingSampler
from noisewise.engine.gibbs.schedule import Schedule
from noisewise.engine.sgd import strata
from noisewise.engine.sgd.cluster import Spread
from noisewise.engine.sgd.layout import Params, initial_state
from noisewise.engine.training import one_blas_thread
from noisewise.engine.workers import Cluster, Team, cut_evenly
from noisewise.errors import SettingError
from noisewise.spread import SpreadObservations

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'noisewise[cluster]'.")

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray leaves sockets and processes to others
MOST = 4  # workers


# On a machine that is busy, parts of Ray may take long to start.
for name in ("agent_register_timeout_ms", "health_check_timeout_ms"):
    os.environ.setdefault(f"RAY_{name}", "120000")
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")


@pytest.fixture(scope="module")
def started():
    """Ray on this machine, bound to loopback, with room for all workers."""
    with workers.connected(Cluster("local", workers=MOST + 2, threads=1)):
        yield


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

    def some(many):
        part = Team(everyone.cluster)
        part.hosts = everyone.hosts[:many]
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
    for many in range(1, MOST + 1):
        spread = Spread(team(many), PARAMS, counted(seen), chunks, watched, np.asarray)
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
)
def test_a_cluster_that_cannot_be_meant_is_refused(wanted, told):
    with pytest.raises(SettingError, match=told):
        nw.DeviationFactorizer().fit([("a", "b", 1), ("b", "c", 2)], cluster=wanted)


def test_models_that_have_no_workers_say_so():
    with pytest.raises(SettingError, match="one machine"):
        nw.TemporalFactorizer().fit(
            [("a", 1, 1.0), ("a", 2, 2.0), ("b", 1, 2.0), ("b", 2, 1.0)], cluster="local"
        )
    with pytest.raises(SettingError, match="device must be 'cpu'"):
        nw.DeviationFactorizer(device="auto").fit([("a", "b", 1), ("b", "c", 2)], cluster="local")


def test_other_versions_are_refused():
    wanted = workers.versions() | {"numba": "0.0.1"}
    with pytest.raises(SettingError, match=r"has numba .* instead of 0\.0\.1"):
        workers.check_versions(wanted)


MODELS = {
    "deviation": partial(nw.DeviationFactorizer, rank=8, epochs=8, random_state=0),
    "bayes": partial(nw.BayesianFactorizer, rank=4, sweeps=14, burn_in=10, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_fitted_model_is_that_of_one_machine(started, name):
    seen = make((300, 200), 12_000, seed=4)
    build = MODELS[name]
    one, ours = build().fit(seen), build().fit(seen, cluster=Cluster("local", workers=2, threads=1))
    assert ours.learning_curve_ | {"seconds": 0} == one.learning_curve_ | {"seconds": 0}
    for theirs, own in zip(one.moments(seen), ours.moments(seen), strict=True):
        np.testing.assert_array_equal(own, theirs)
    assert ours.calibration_ is None or ours.calibration_.scale == one.calibration_.scale
