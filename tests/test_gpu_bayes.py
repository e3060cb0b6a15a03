"""The sampler on a GPU, without one: its kernels are compiled for the CPU, its arrays are numpy's.

Streams of random numbers are those of the CPU, so that both draw the same up to rounding.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import test_geweke
from host_device import COMPILER, Host

from noisewise import BayesianFactorizer
from noisewise.engine import devices
from noisewise.engine.data import Data, Spec
from noisewise.engine.gibbs import gpu, gpu_posterior, gpu_steps
from noisewise.engine.gibbs.gpu import GpuDraw, GpuWorkspace
from noisewise.engine.gibbs.sampler import rating_steps
from noisewise.engine.gibbs.steps import temporal
from noisewise.engine.gibbs.steps.variances import SCALES_FROM
from noisewise.engine.gibbs.sweep import RatingDraw, Sweep, Workspace, first_draw
from noisewise.engine.training import one_blas_thread
from noisewise.errors import SettingError
from noisewise.models import on_gpu

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")

MODELS = {
    "constant": Spec(3, 0, "gaussian", False, False, seed=1),
    "rank one": Spec(9, 1, "gaussian", False, False, seed=1),
    "implicit": Spec(5, 2, "gaussian", True, False, seed=2),
    "wide": Spec(64, 3, "gaussian", True, False, seed=3),
    "biases alone": Spec(0, 2, "gaussian", True, False, seed=3),
    "time": Spec(2, 2, "gaussian", False, True, seed=4),
    "levels": Spec(4, 0, "ordinal", False, False, seed=5),
    "everything": Spec(6, 2, "ordinal", True, True, seed=6),
}


def observed(spec, shape=(40, 30), n=500, seed=0):
    rng = np.random.default_rng(seed)
    cells = rng.choice(np.prod(shape), n, replace=False)
    codes = tuple(code.astype(np.int32) for code in np.unravel_index(cells, shape))
    values = rng.integers(5, size=n) if spec.ordinal else rng.normal(size=n)
    time = rng.integers(100, size=n) if spec.time else None
    return Data.arrange(codes, values.astype(np.float32), (shape[0] + 1, *shape[1:]), time)[0]


def both(spec, data, sweeps, device=None):
    """Sweep on the CPU and with the kernels of a GPU; return both draws and workspaces."""
    ours, theirs = Workspace(spec, data, 1, 20), GpuWorkspace(device or Host(), spec, data, 20)
    cpu = first_draw(spec, data, 5)
    other = GpuDraw.of(cpu.copy(), theirs.device)
    ends = (
        Sweep(ours, rating_steps(ours, 2)),
        gpu_steps.GpuSweep(theirs, gpu_steps.rating_steps(theirs, 2)),
    )
    for _ in range(sweeps):
        infos = ends[0](cpu), ends[1](other)
    return cpu, other, infos


@pytest.mark.parametrize("name", MODELS)
def test_draws_are_those_of_the_cpu(name):
    spec = MODELS[name]
    cpu, other, infos = both(spec, observed(spec), 12)
    assert infos[1].train_rmse == pytest.approx(infos[0].train_rmse, rel=1e-3)
    for key, array in cpu.arrays.items():
        scale = np.abs(array).max(initial=1e-3)
        apart = np.abs(array - other.arrays[key]).max(initial=0.0) / scale
        assert apart < 0.02, (key, apart)


def test_three_modes_are_drawn_as_on_the_cpu():
    spec = Spec(4, 2, "gaussian", False, False, seed=7)
    cpu, other, _ = both(spec, observed(spec, (12, 9, 8), 300), 8)
    assert np.abs(cpu.factors - other.factors).max() < 1e-3
    assert np.abs(cpu.noise / other.noise - 1.0).max() < 1e-3


def test_many_rows_and_small_noise_have_kernels_of_their_own(monkeypatch):
    spec = MODELS["implicit"]
    monkeypatch.setattr(gpu_steps, "MOST_SHARED", 0)
    monkeypatch.setattr(gpu_steps, "EXACT_FROM", 0.0)
    cpu, other, _ = both(spec, observed(spec), 6)
    for name in ("factors", "features", "effects", "noise"):
        assert np.abs(getattr(cpu, name) - getattr(other, name)).max() < 1e-3, name


@pytest.mark.parametrize("time", [False, True])
def test_observations_are_put_in_the_same_order(time):
    rng = np.random.default_rng(0)
    codes = tuple(rng.integers(n, size=400).astype(np.int32) for n in (20, 30))
    values = rng.normal(size=400).astype(np.float32)
    when = rng.integers(50, size=400) if time else None
    ours, order = Data.arrange(codes, values, (21, 30), when)
    theirs, other_order = gpu.arrange(Host(), codes, values, (21, 30), when)
    for name in ("places", "starts", "index"):
        for a, b in zip(getattr(ours, name), getattr(theirs, name), strict=True):
            assert (a == b).all()
    assert (order == other_order).all()


@pytest.fixture
def host(monkeypatch):
    """Let device="cuda" mean a GPU that is none."""
    device = Host()
    monkeypatch.setattr(devices, "chosen", lambda name: None if name == "cpu" else device)
    return device


def ratings(time=False, users=60, items=40, n=1200):
    rng = np.random.default_rng(1)
    cells = rng.choice(users * items, n, replace=False)
    columns = [cells // items, cells % items]
    if time:
        columns.append(rng.integers(1000, size=n))
    taste = rng.normal(size=users)[cells // items] * rng.normal(size=items)[cells % items]
    return np.column_stack(columns), np.clip(np.rint(3 + taste + rng.normal(size=n)), 1, 5)


SMALL = {"rank": 3, "sweeps": 30, "burn_in": 10, "samples": 20, "random_state": 0, "verbose": False}
KINDS = {"defaults": {}, "everything": {"likelihood": "ordinal", "time": 2}}
ONE_NOISE = {"deviation": "constant", "implicit": False}


def fitted(kind, device, **settings):
    own = ONE_NOISE if kind == "constant" else KINDS[kind]
    X, y = ratings("time" in own)
    model = BayesianFactorizer(**SMALL | own | settings, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few sweeps settle nothing
        return model.fit(X, y), X


@pytest.mark.parametrize("kind", KINDS)
def test_models_predict_as_those_of_the_cpu_do(kind, host):
    (cpu, X), (other, _) = (fitted(kind, device) for device in ("cpu", "cuda"))
    for a, b in zip(cpu.predict_parts(X), other.predict_parts(X), strict=True):
        assert np.abs(a - b).max() < 1e-2
    assert host.sent


@pytest.mark.parametrize("kind", [*KINDS, "constant"])
def test_many_cells_are_predicted_as_on_the_cpu(kind, host, monkeypatch):
    monkeypatch.setattr(on_gpu, "MANY_DRAWN", 1)
    monkeypatch.setattr(gpu_posterior, "PREDICTED", 300)
    model, X = fitted(kind, "cuda")
    X = np.concatenate([X, X[:4]])
    X[-4:-2, 0], X[-3:-1, 1] = 1000, 1000  # never seen, and one cell of two such ids
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = model.predict_parts(X)
        model.device = "cpu"
        ours = model.predict_parts(X)
    for a, b in zip(ours, theirs, strict=True):
        assert b == pytest.approx(a, abs=2e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("risk", [0.0, 1.0])
def test_lists_are_those_of_the_cpu(kind, risk, host, monkeypatch):
    monkeypatch.setattr(on_gpu, "MANY_ROWS", 1)
    monkeypatch.setattr(gpu_posterior, "CELLS", 400)  # ten users at a time
    model, _ = fitted(kind, "cuda")
    ids = list(range(60))
    theirs = model.recommend_many(ids, 5, risk=risk)
    model.device = "cpu"
    ours = model.recommend_many(ids, 5, risk=risk)
    for a, b in zip(ours, theirs, strict=True):
        assert [one.id for one in a] == [one.id for one in b]
        for first, second in zip(a, b, strict=True):
            assert second[1:] == pytest.approx(first[1:], abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_never_seen_are_ranked_as_on_the_cpu(kind, host):
    model, _ = fitted(kind, "cuda")
    own = model.factors_
    rows = np.array([own.shape[0], 3], dtype=np.int32)
    codes, moments = gpu_posterior.GpuPosterior(host, own).best(rows, gpu_posterior.Sought(4))
    side = own.side(0, rows)
    for k in range(2):
        cells = own.pairs(0, side, np.full(4, k, dtype=np.int32), codes[k])
        for a, b in zip(cells, moments, strict=True):
            assert b[4 * k : 4 * k + 4] == pytest.approx(a, rel=1e-3, abs=1e-4)


def test_a_fit_goes_on_from_its_checkpoint(host, tmp_path):
    whole, X = fitted("everything", "cuda")
    path = tmp_path / "kept"
    model = BayesianFactorizer(**SMALL | KINDS["everything"], device="cuda")
    values = ratings(time=True)[1]

    def stop(info, chain):
        if info.epoch == 17:
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        model.fit(X, values, checkpoint=path, checkpoint_epochs=5, callbacks=[stop])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, values, checkpoint=path)
    assert (model.predict(X) == whole.predict(X)).all()


def test_too_little_memory_is_said_in_a_sentence(host):
    host.memory = 10_000
    with pytest.raises(
        devices.TooLittleMemory, match=r"rank 3 and \S+ observations needs 0\.\d GB on host:0"
    ):
        fitted("defaults", "cuda")
    model = BayesianFactorizer(**SMALL, device="auto")
    with pytest.warns(UserWarning, match="takes the CPU"):
        model.fit(*ratings())


def test_a_rank_beyond_what_a_block_holds_is_refused(host):
    with pytest.raises(SettingError, match="rank must be at most 150; got 151"):
        fitted("defaults", "cuda", rank=151)
    with pytest.raises(SettingError, match="deviation_rank must be at most 16; got 17"):
        fitted("defaults", "cuda", deviation_rank=17)
    with pytest.warns(UserWarning, match="takes the CPU. On a GPU, rank must be at most 150"):
        BayesianFactorizer(151, sweeps=2, burn_in=0, device="auto").fit(*ratings(n=50))


def test_sweeps_leave_the_joint_distribution_alone(monkeypatch):
    monkeypatch.setattr(temporal, "EFFECT_VARIANCE", 1.0)
    monkeypatch.setattr(test_geweke, "swept", swept_on(Host()))
    case = test_geweke.CASES["everything"]._replace(draws=400, features=False)
    scores = test_geweke.z_scores(case)
    assert not {key: z for key, z in scores.items() if not abs(z) < test_geweke.FARTHEST}


def swept_on(device):
    """Return what sweeps over many draws with the kernels of a GPU, each given its data."""

    def swept(start, data, case, cells):
        end = replace(start, **{name: getattr(start, name).copy() for name in test_geweke.ARRAYS})
        work = GpuWorkspace(device, case.spec, cells)
        steps = gpu_steps.rating_steps(work, test_geweke.ANCHOR)
        sweep, given = gpu_steps.GpuSweep(work, steps), work.here.values
        given = next((s.levels for s in steps if isinstance(s, gpu_steps.GpuLevels)), given)
        for number in range(case.draws):
            given[...] = device.on_device(data[number])
            own = {name: getattr(end, name)[number] for name in test_geweke.ARRAYS}
            epoch = SCALES_FROM + test_geweke.SWEEPS * number
            draw = GpuDraw.of(RatingDraw(epoch, **own), device)
            with one_blas_thread():
                for _ in range(test_geweke.SWEEPS):
                    if np.isfinite(float(draw.biases.sum())):
                        sweep(draw)
            for name, array in draw.arrays.items():
                own[name][...] = array
        return end

    return swept


@pytest.mark.parametrize("rank", [0, 1, 8, 64, 128, gpu.MOST_RANK])
def test_a_block_of_any_rank_fits_the_shared_memory(rank):
    assert gpu.shared_bytes(rank, exact=True) <= 227 * 1024
