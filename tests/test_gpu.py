"""Training on a GPU, as far as it shows without one: the kernels compiled for the CPU by g++."""

import itertools
import math

import numpy as np
import pytest
from host_device import COMPILER, Host
from test_cli import run
from test_engine import make_params

import noisewise
from noisewise import DeviationFactorizer, FitInterrupted
from noisewise.data.ids import Seen
from noisewise.engine import devices
from noisewise.engine.sgd import gpu, gpu_plan, gpu_state, reference
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.gpu_factors import OnGpu, finalize
from noisewise.errors import MissingExtraError, SettingError
from noisewise.models import on_gpu

compiled = pytest.mark.skipif(COMPILER is None, reason="needs g++")
SHAPES = {2: (30, 20), 3: (7, 6, 5), 4: (5, 4, 3, 3)}


def make_cells(shape, n, seed=0):
    rng = np.random.default_rng(seed)
    flat = rng.permutation(math.prod(shape))[:n]
    codes = tuple(code.astype(np.int32) for code in np.unravel_index(flat, shape))
    return codes, rng.normal(size=n).astype(np.float32)


def make_ratings(params, shape=(30, 20), n=None, device=None, **options):
    codes, values = make_cells(shape, n or math.prod(shape) // 2)
    device = device or Host(warps=4)
    units = 0.0, 1.0
    return gpu.Ratings(device, params, gpu.Options(**options), codes, values, shape, units)


def make_state(ratings):
    return gpu_state.initial_state(ratings.device, ratings.params, ratings.counts)


def visits(order, rng, workers):
    """Observations in the order in which one thread visits them."""
    starts, found = order.starts.tolist(), []
    if not order.side:
        runs = len(starts) - 1
        stride, offset = gpu_plan.affine(runs, rng)
        taken = [n for w in range(workers) for n in range(w, runs, workers)]
        blocks = [(n * stride + offset) % runs for n in taken]
    else:
        blocks = [block for row in ring_blocks(order, rng) for block in row]
    for block in blocks:
        found += range(starts[block], starts[block + 1])
    return found


def ring_blocks(order, rng):
    """Block of every worker, step by step."""
    side, digits = order.side, len(order.modes) - 1
    steps = side**digits
    held, workers, *others = gpu_plan.labels(len(order.modes), side, rng).tolist()
    powers = [side**m for m in range(digits)]
    return [
        [
            workers[w] * steps
            + sum(
                own[(w + t // p) % side] * p for p, own in zip(powers, [held, *others], strict=True)
            )
            for w in range(side)
        ]
        for t in range(steps)
    ]


def reference_epoch(state, ratings, learn):
    """Do what an epoch does, with the equations in numpy; return mean square and NLL."""
    params, (order,) = ratings.params, ratings.pieces()
    rng = np.random.default_rng([params.seed, 2, state.epoch])
    squared, likelihood = [], []
    for n in visits(order, rng, ratings.kernels.workers):
        cell = [0] * len(ratings.shape)
        for mode, code in zip(order.modes, order.codes, strict=True):
            cell[mode] = int(code[n])
        mean, variance = reference.mean_and_variance(state, tuple(cell), params)
        variance = variance if learn else state.variance
        error = float(order.values[n]) - mean
        squared.append(error**2)
        likelihood.append(0.5 * math.log(2 * math.pi * variance) + error**2 / (2 * variance))
        reference.step(state, tuple(cell), float(order.values[n]), params, learn)
    if not params.biases:
        for rows in state.rows:
            rows[:, 0] = 0.0
    state.epoch += 1
    if not learn:
        state.variance = float(np.mean(squared))
    return float(np.mean(squared)), float(np.mean(likelihood))


@compiled
@pytest.mark.parametrize("deterministic", [False, True], ids=["race", "ring"])
@pytest.mark.parametrize(
    ("n_modes", "changed"),
    [
        (2, {}),
        (2, {"rank": 17, "deviation_rank": 18, "beta": 0.25, "penalty": "row"}),
        (2, {"adagrad": "row", "beta": 0.7}),
        (2, {"deviation_rank": 0, "beta": 0.5, "biases": False}),
        (3, {"rank": 0}),
        (3, {"adagrad": "row", "penalty": "row"}),
        (4, {"rank": 17}),
    ],
)
def test_kernel_takes_the_steps_of_the_reference(monkeypatch, n_modes, changed, deterministic):
    monkeypatch.setattr(gpu_plan, "RING_BELOW", 0)
    # No replicas, of which the equations know nothing.
    monkeypatch.setattr(gpu_plan, "HEAVIEST", 1000)
    monkeypatch.setattr(gpu_plan, "SMALLEST_TENSOR_BLOCK", 2)
    params = make_params(**changed)
    ratings = make_ratings(params, SHAPES[n_modes], deterministic=deterministic)
    assert ratings.is_ring == deterministic
    fast = make_state(ratings)
    slow = fast.on_host()
    for epoch in range(3):
        info = ratings.epoch(fast)
        learn = params.deviation_rank > 0 and epoch >= params.warmup
        if epoch == params.warmup:
            held = gpu_state.sent(ratings.device, slow)
            gpu_state.release_deviation(held, params)
            slow = held.on_host()
        squared, nll = reference_epoch(slow, ratings, learn)
        assert info.train_rmse == pytest.approx(math.sqrt(squared), rel=1e-4)
        if params.deviation_rank:
            assert info.train_nll == pytest.approx(nll, rel=1e-4, abs=1e-4)
        for got, expected in zip(fast.on_host().rows, slow.rows, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-6)
    codes, _ = make_cells(SHAPES[n_modes], 10)
    mean, variance = ratings.kernels.predict(fast, codes)
    cells = zip(*(code.tolist() for code in codes), strict=True)
    expected = [reference.mean_and_variance(slow, cell, params) for cell in cells]
    np.testing.assert_allclose(mean, [m for m, _ in expected], rtol=1e-3, atol=1e-5)
    if params.deviation_rank:
        np.testing.assert_allclose(variance, [s for _, s in expected], rtol=1e-3)


@pytest.mark.parametrize(
    ("shape", "side"), [((40, 11), 11), ((12, 9, 6), 6), ((30, 9, 2), 12), ((6, 5, 4, 4), 4)]
)
def test_a_ring_visits_everything_once_and_no_two_workers_ever_have_the_same_row(shape, side):
    codes, values = make_cells(shape, math.prod(shape) // 2)
    order = gpu_plan.in_ring(np, codes, values, shape, side)
    rounds = ring_blocks(order, np.random.default_rng(0))
    seen, workers = [], range(order.side)
    holders = {}  # of every row, worker and step
    for t, blocks in enumerate(rounds):
        for worker, block in zip(workers, blocks, strict=True):
            own = range(order.starts[block], order.starts[block + 1])
            seen += own
            for m, code in enumerate(order.codes):
                for row in set(code[own.start : own.stop].tolist()):
                    holders.setdefault((m, row), []).append((worker, t))
    assert sorted(seen) == list(range(len(values)))
    for visited in holders.values():
        for (w, t), (w2, t2) in itertools.pairwise(visited):
            assert (w - w2) % order.side <= t2 - t or w == w2  # the second waits for the first
            assert t2 > t


def test_runs_have_one_row_each_and_every_observation_once():
    codes, values = make_cells((30, 20), 400)
    order = gpu_plan.in_runs(np, codes, values, (30, 20), workers=4)
    assert order.modes == (0, 1)
    starts = order.starts.tolist()
    assert starts[0] == 0
    assert starts[-1] == 400
    for a, b in itertools.pairwise(starts):
        assert 0 < b - a <= 400 // 32
        assert len(set(order.codes[0][a:b].tolist())) == 1
    cells = sorted(
        zip(*(code.tolist() for code in order.codes), order.values.tolist(), strict=True)
    )
    assert cells == sorted(zip(*(code.tolist() for code in codes), values.tolist(), strict=True))


@pytest.mark.parametrize("n", [1, 2, 12, 97])
def test_runs_are_all_taken_in_an_order_of_their_own(n):
    stride, offset = gpu_plan.affine(n, np.random.default_rng(n))
    assert sorted((k * stride + offset) % n for k in range(n)) == list(range(n))


def test_rows_with_too_many_observations_get_replicas_for_some_of_the_workers_each():
    rng = np.random.default_rng(0)
    codes = np.where(rng.random(10_000) < 0.5, 3, rng.integers(20, size=10_000)).astype(np.int32)
    worker = rng.integers(16, size=10_000)
    moved, replicas = gpu_plan.replicated(np, codes, 20, worker, most=1_400)
    assert replicas.tolist() == [3, 3, 3]
    np.testing.assert_array_equal(np.append(np.arange(20), replicas)[moved], codes)
    for replica in (3, 20, 21, 22):
        assert 500 < (moved == replica).sum() < 2_500
    assert {len(set(moved[(codes == 3) & (worker == w)])) for w in range(16)} == {1}


def test_replicas_are_averaged_and_their_sums_added_up():
    layout = make_params().layout
    before = np.ones((4, layout.width), dtype=np.float32)
    rows = np.concatenate([before, before[:2]])
    rows[1], rows[4], rows[5] = 2.0, 3.0, 10.0
    gpu_state.merge(np, before, rows, np.array([1, 1]), layout)
    np.testing.assert_array_equal(before[[0, 2, 3]], 1.0)
    assert before[1, 0] == before[1, 16] == 5.0  # bias and factors
    assert before[1, 1] == before[1, -1] == 1.0 + 1.0 + 2.0 + 9.0  # sums
    assert before[1, 4] == 5.0


@compiled
def test_a_ring_with_replicas_learns(monkeypatch):
    monkeypatch.setattr(gpu_plan, "HEAVIEST_OF_FEW", 1)
    rng = np.random.default_rng(0)
    item = np.minimum(rng.geometric(0.2, 3000) - 1, 29).astype(np.int32)
    user = rng.integers(50, size=3000).astype(np.int32)
    values = (0.1 * item - 0.4 + rng.normal(0, 0.1, 3000)).astype(np.float32)
    params = make_params(deviation_rank=0)
    ratings = gpu.Ratings(Host(16), params, gpu.Options(), (user, item), values, (50, 30))
    (order,) = ratings.pieces()
    assert len(order.replicas)
    state = make_state(ratings)
    errors = [ratings.epoch(state).train_rmse for _ in range(12)]
    assert errors[-1] < 0.35 < errors[0]


@compiled
@pytest.mark.parametrize("deterministic", [False, True], ids=["race", "ring"])
def test_observations_that_do_not_fit_are_sent_in_pieces(deterministic):
    params = make_params()
    rows = int(gpu.COPIES * 4 * params.layout.width * 50)
    device = Host(warps=2, memory=rows + 120 * gpu_plan.SORTING_BYTES)
    ratings = make_ratings(params, n=300, device=device, deterministic=deterministic)
    assert not ratings.resident
    pieces = list(ratings.pieces())
    assert len(pieces) > 2
    assert sum(len(piece.values) for piece in pieces) == 300
    longest = [set(piece.codes[piece.modes.index(0)].tolist()) for piece in pieces]
    assert sum(map(len, longest)) == len(set().union(*longest))  # a row is in one piece alone
    state = make_state(ratings)
    errors = [ratings.epoch(state).train_rmse for _ in range(5)]
    assert errors[-1] < errors[0]


@compiled
def test_half_precision_goes_on_where_it_is_good_and_is_left_where_it_is_not(monkeypatch):
    params = make_params(warmup=0)
    ratings = make_ratings(params, precision="half")
    state, single = make_state(ratings), make_ratings(params)
    other = make_state(single)
    for _ in range(3):
        a, b = ratings.epoch(state), single.epoch(other)
        assert a.train_rmse == pytest.approx(b.train_rmse, rel=1e-3)
    items = state.on_host().mean_factors(1)
    np.testing.assert_array_equal(items, items.astype(np.float16))
    np.testing.assert_allclose(items, other.on_host().mean_factors(1), rtol=0.1, atol=2e-3)

    monkeypatch.setattr(gpu, "WORSE", 0.5)
    ratings = make_ratings(params, precision="half")
    state = make_state(ratings)
    with pytest.warns(UserWarning, match="Half precision has a training error of .* goes on in si"):
        ratings.epoch(state)
    ratings.epoch(state)
    assert state.epoch == 2
    items = state.on_host().mean_factors(1)
    assert (items != items.astype(np.float16)).any()


@compiled
def test_factors_of_a_gpu_are_those_of_the_cpu():
    ratings = make_ratings(make_params(), n=200)
    state = make_state(ratings)
    for _ in range(3):
        ratings.epoch(state)
    params, device = ratings.params, ratings.device
    got = finalize(device, params, state, ratings.counts, 3.0, 2.0)
    order = tuple(np.arange(n, dtype=np.int32) for n in ratings.shape)
    expected = Factors.finalize(params, state.on_host(), ratings.counts, 3.0, 2.0, order)
    for name in ("spread", "shrink"):
        for a, b in zip(getattr(got, name), getattr(expected, name), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    for a, b in zip(got.state.rows, expected.state.rows, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    codes = tuple(np.array([0, 3, n], dtype=np.int32) for n in ratings.shape)
    for a, b in zip(OnGpu(device, got).moments(codes), expected.moments(codes), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.fixture
def host(monkeypatch):
    """Let every device but the CPU be one that is compiled for it."""
    if COMPILER is None:
        pytest.skip("needs g++")
    device = Host(warps=8)
    monkeypatch.setattr(devices, "chosen", lambda name: None if name == "cpu" else device)
    return device


def make_table(n=3_000, shape=(100, 60)):
    codes, _ = make_cells(shape, n)
    rng = np.random.default_rng(1)
    rows = [rng.normal(size=(size, 2)) for size in shape]
    mean = np.prod([own[code] for own, code in zip(rows, codes, strict=True)], axis=0).sum(axis=1)
    return np.column_stack(codes), (3 + mean + rng.normal(0, 0.3, n)).astype(np.float32)


SETTINGS = {"rank": 8, "deviation_rank": 2, "random_state": 0, "n_jobs": 1, "epochs": 15}


@pytest.mark.parametrize("changed", [{}, {"deterministic": True}, {"deviation_rank": 0}], ids=str)
def test_a_model_of_a_gpu_predicts_as_well_as_that_of_the_cpu(host, changed):
    X, y = make_table()
    train, test = slice(2_700), slice(2_700, None)
    errors = {}
    for device in ("cpu", "cuda:1"):
        model = DeviationFactorizer(**SETTINGS | changed, device=device).fit(X[train], y[train])
        errors[device] = np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2))
        assert model.calibration_ is not None
    assert errors["cuda:1"] == pytest.approx(errors["cpu"], rel=0.08)
    assert errors["cuda:1"] < 0.7 * y.std()


def test_a_tensor_is_trained_on_a_gpu(host):
    X, y = make_table(2_000, (20, 15, 12))
    model = DeviationFactorizer(**SETTINGS, learning_rate=0.3, l2=0.0, device="cuda").fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - y) ** 2)) < 0.6 * y.std()
    with pytest.raises(SettingError, match=r"precision='half' needs 2 id columns; got 3"):
        DeviationFactorizer(**SETTINGS, precision="half", device="cuda").fit(X, y)


def test_a_file_of_a_model_knows_nothing_of_the_gpu(host, tmp_path):
    X, y = make_table(1_000)
    model = DeviationFactorizer(**SETTINGS, device="cuda", precision="half").fit(X, y)
    model.save(tmp_path / "m.nw")
    loaded = noisewise.load(tmp_path / "m.nw")
    assert (loaded.device, loaded.precision) == ("cpu", "single")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_a_gpu_recommends_and_predicts_as_the_cpu_does(host, monkeypatch):
    X, y = make_table()
    model = DeviationFactorizer(**SETTINGS, device="cuda").fit(X, y)
    expected = Seen.of(tuple(X.T.astype(np.int32)), (100, 60))
    np.testing.assert_array_equal(model.seen_.columns, expected.columns)
    np.testing.assert_array_equal(model.seen_.starts, expected.starts)
    asked = [*range(100), "a stranger"]
    for chosen in ({}, {"risk": 0.7}, {"exclude_seen": False}, {"candidates": [1, 2, 3, 50, 99]}):
        slow = model.recommend_many(asked, 40, **chosen)
        with monkeypatch.context() as patch:
            patch.setattr(on_gpu, "MANY_ROWS", 1)
            fast = model.recommend_many(asked, 40, **chosen)
        assert [len(own) for own in fast] == [len(own) for own in slow]
        for own, other in zip(fast, slow, strict=True):
            got, wanted = (np.array([r[1:] for r in rows]).reshape(-1, 2) for rows in (own, other))
            np.testing.assert_allclose(got, wanted, rtol=1e-3)
    slow = model.predict_parts(X)
    monkeypatch.setattr(on_gpu, "MANY_CELLS", 1)
    for got, wanted in zip(model.predict_parts(X), slow, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4)


def test_a_training_on_a_gpu_goes_on_from_its_checkpoint_with_the_same_bits(host, tmp_path):
    X, y = make_table(1_000)
    settings = SETTINGS | {"device": "cuda", "deterministic": True, "epochs": 6, "patience": 2}

    def stop(info, state):
        assert state.biases(0).shape == state.mean_factors(0)[:, 0].shape
        if info.epoch == 2:
            raise KeyboardInterrupt

    whole = DeviationFactorizer(**settings).fit(X, y)
    kept = tmp_path / "kept"
    with pytest.raises(FitInterrupted):
        DeviationFactorizer(**settings).fit(X, y, checkpoint=kept, callbacks=[stop])
    resumed = DeviationFactorizer(**settings).fit(X, y, checkpoint=kept)
    for a, b in zip(whole.factors_.state.rows, resumed.factors_.state.rows, strict=True):
        np.testing.assert_array_equal(a, b)


def test_new_observations_are_learned_on_a_gpu(host):
    X, y = make_table(1_000)
    model = DeviationFactorizer(**SETTINGS, device="cuda").fit(X[:800], y[:800])
    before = np.mean((model.predict(X[800:]) - y[800:]) ** 2)
    model.partial_fit(X[800:], y[800:], epochs=5)
    assert np.mean((model.predict(X[800:]) - y[800:]) ** 2) < before


def test_memory_that_is_too_small_is_said_in_a_sentence_or_auto_takes_the_cpu(host):
    X, y = make_table(500)
    host.memory = 1_000
    says = r"Training 100 \+ 60 rows needs 0\.\d GB on host:0, which has 0\.0 GB free; use device"
    with pytest.raises(SettingError, match=says):
        DeviationFactorizer(**SETTINGS, device="cuda").fit(X, y)
    with pytest.warns(UserWarning, match="device='auto' takes the CPU. Training"):
        model = DeviationFactorizer(**SETTINGS, keep_seen=False, device="auto").fit(X, y)
    cpu = DeviationFactorizer(**SETTINGS).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), cpu.predict(X))


def test_memory_that_runs_out_on_the_way_is_said_in_a_sentence(host, monkeypatch):
    def fail(*_):
        raise MemoryError("out of memory allocating 8 bytes.")

    monkeypatch.setattr(gpu_plan, "in_ring", fail)
    X, y = make_table(500)
    with pytest.raises(
        SettingError, match=r"The memory of host:0 is too small .* Use device='cpu'"
    ):
        DeviationFactorizer(**SETTINGS, device="cuda").fit(X, y)


@pytest.fixture
def no_gpu(monkeypatch):
    devices._cuda.cache_clear()
    yield monkeypatch
    devices._cuda.cache_clear()


def test_without_cupy_a_sentence_has_the_pip_line_and_auto_warns(no_gpu):
    no_gpu.setitem(__import__("sys").modules, "cupy", None)
    X, y = make_table(200)
    with pytest.raises(MissingExtraError, match=r"pip install 'noisewise\[gpu\]'"):
        DeviationFactorizer(**SETTINGS, device="cuda").fit(X, y)
    with pytest.warns(UserWarning, match="device='auto' takes the CPU. A GPU needs an optional"):
        DeviationFactorizer(**SETTINGS, keep_seen=False, patience=None, device="auto").fit(X, y)


class _Cupy:
    """As much of CuPy as it takes to count the GPUs of a machine."""

    def __init__(self, many):
        self.many, self.cuda, self.runtime, self.memory = many, self, self, self
        self.OutOfMemoryError, self.CUDARuntimeError = MemoryError, RuntimeError

    def getDeviceCount(self):
        if self.many is None:
            raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
        return self.many


@pytest.mark.parametrize(
    ("many", "named", "says"),
    [
        (None, "cuda", "No GPU of NVIDIA can be used here .*no CUDA-capable device"),
        (1, "cuda:1", "device='cuda:1' names a GPU that is not there: this machine has 1"),
        (0, "cuda", "names a GPU that is not there: this machine has 0"),
    ],
)
def test_a_gpu_that_is_not_there_is_said_in_a_sentence(no_gpu, many, named, says):
    no_gpu.setitem(__import__("sys").modules, "cupy", _Cupy(many))
    with pytest.raises(SettingError, match=says):
        devices.chosen(named)


def test_the_second_gpu_may_be_named(no_gpu):
    no_gpu.setitem(__import__("sys").modules, "cupy", _Cupy(2))
    assert devices.chosen("cuda").name == "cuda:0"
    assert devices.chosen("cuda:1").name == "cuda:1"
    assert devices.chosen("cpu") is None


def test_the_command_line_trains_on_a_device(host, tmp_path, capsys):
    X, y = make_table(800)
    table = tmp_path / "ratings.csv"
    np.savetxt(table, np.column_stack([X, y]), "%g", ",", header="user,item,rating", comments="")
    chosen = ["--model", "dmf", "--set", "rank=4", "--set", "epochs=3", "--device", "cuda"]
    assert run("fit", table, "--out", tmp_path / "m.nw", *chosen) == 0
    assert host.sent > 0
    assert noisewise.load(tmp_path / "m.nw").device == "cpu"
    chosen[-1] = "gpu"
    assert run("fit", table, "--out", tmp_path / "m.nw", *chosen) != 0
    assert "device must be 'cpu', 'auto', 'cuda'" in capsys.readouterr().err


def test_a_cpu_is_asked_for_no_gpu(monkeypatch):
    monkeypatch.setattr(devices, "_cuda", lambda number: pytest.fail("a GPU was looked for"))
    X, y = make_table(200)
    model = DeviationFactorizer(**SETTINGS).fit(X, y)
    model.partial_fit(X, y, epochs=1)
    model.recommend_many(range(3))
