"""The engine: kernels against the equations, gradients, block strata, what an epoch may touch."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from noisewise.engine.sgd import reference, strata, wide
from noisewise.engine.sgd.layout import (
    BIAS,
    BIAS_SUM,
    DEVIATION_SUM,
    LINE,
    MEAN_SUM,
    SHARE,
    Params,
    State,
    initial_state,
    release_deviation,
)
from noisewise.engine.sgd.vectors import NARROW


def make_params(**changed) -> Params:
    chosen = {
        "rank": 3,
        "deviation_rank": 2,
        "learning_rate": 0.1,
        "deviation_learning_rate": 0.05,
        "l2": 0.06,
        "bias_l2": 0.03,
        "deviation_l1": 0.01,
        "penalty": "rating",
        "delta": 0.16,
        "beta": 0.0,
        "warmup": 1,
        "adagrad": "coordinate",
        "seed": 7,
    }
    return Params(**{**chosen, **changed})


def make_problem(params: Params, shape=(9, 7), n=40, seed=0) -> tuple[State, strata.Blocks]:
    """Draw n different cells with values, arranged, and a state to start from."""
    rng = np.random.default_rng(seed)
    rows, columns = np.divmod(rng.permutation(math.prod(shape))[:n], shape[1])
    codes = (rows.astype(np.int32), columns.astype(np.int32))
    values = rng.normal(size=n).astype(np.float32)
    blocks = strata.arrange(codes, values, shape, params.layout.width)
    counts = tuple(np.bincount(c, minlength=m) for c, m in zip(blocks.codes, shape, strict=True))
    return initial_state(params, counts), blocks


def kernel_order(blocks: strata.Blocks, params: Params, epoch: int) -> list[int]:
    """Observations in the order in which one thread visits them."""
    strata = np.random.default_rng([params.seed, 2, epoch]).permutation(blocks.n_strata)
    order = []
    for stratum in strata:
        for block in range(stratum * blocks.side, (stratum + 1) * blocks.side):
            order += range(blocks.starts[block], blocks.starts[block + 1])
    return order


def reference_epoch(state: State, blocks: strata.Blocks, params: Params) -> tuple[float, float]:
    """Do what ``strata.epoch`` does, with the equations in numpy; return mean square and NLL."""
    if state.epoch == params.warmup:
        release_deviation(state, params)
    learn = params.deviation_rank > 0 and state.epoch >= params.warmup
    squared, likelihood = [], []
    for n in kernel_order(blocks, params, state.epoch):
        cell = tuple(int(codes[n]) for codes in blocks.codes)
        mean, variance = reference.mean_and_variance(state, cell, params)
        variance = variance if learn else state.variance
        error = float(blocks.values[n]) - mean
        squared.append(error**2)
        likelihood.append(0.5 * math.log(2 * math.pi * variance) + error**2 / (2 * variance))
        reference.step(state, cell, float(blocks.values[n]), params, learn)
    state.epoch += 1
    if not learn:
        state.variance = float(np.mean(squared))
    return float(np.mean(squared)), float(np.mean(likelihood))


@pytest.mark.parametrize("warmup", [0, 2], ids="warmup{}".format)
@pytest.mark.parametrize(("rank", "deviation_rank"), [(3, 2), (3, 0), (0, 2), (17, 18)])
@pytest.mark.parametrize("beta", [0.0, 0.25, 0.5, 0.7], ids="beta{}".format)
@pytest.mark.parametrize("penalty", ["rating", "row"])
@pytest.mark.parametrize("adagrad", ["coordinate", "row"])
def test_kernel_takes_the_steps_of_the_reference(
    adagrad, penalty, beta, rank, deviation_rank, warmup
):
    params = make_params(
        rank=rank, deviation_rank=deviation_rank, adagrad=adagrad, penalty=penalty,
        beta=beta, warmup=warmup,
    )  # fmt: skip
    fast, blocks = make_problem(params)
    slow = fast.copy()
    assert blocks.side > 1
    rough = 7e-4 if adagrad == "coordinate" else 0.0  # the relative error of an inverse root
    near = 1e-4 + rough
    for _ in range(4):
        info = strata.epoch(fast, blocks, params, n_jobs=1)
        squared, nll = reference_epoch(slow, blocks, params)
        assert info.train_rmse == pytest.approx(math.sqrt(squared), rel=near)
        if deviation_rank:
            assert info.train_nll == pytest.approx(nll, rel=near, abs=near)
        assert (fast.epoch, fast.variance) == (slow.epoch, pytest.approx(slow.variance, rel=near))
        for got, expected in zip(fast.rows, slow.rows, strict=True):
            np.testing.assert_allclose(got, expected, rtol=near, atol=2e-6 + 0.1 * rough)


@pytest.mark.parametrize("kind", [wide, NARROW], ids=["wide", "narrow"])
def test_an_inverse_root_is_off_by_less_than_a_thousandth_wherever_sums_may_be(kind):
    inverse_root, load, store = kind.inverse_root, kind.load, kind.store

    @njit
    def inverse_roots(x, out):
        for n in range(len(x)):
            store(out, np.uintp(n), np.uintp(0), inverse_root(load(x, np.uintp(n), np.uintp(0))))

    x = np.geomspace(1e-6, 1e12, 16_000, dtype=np.float32).reshape(-1, kind.STEP)
    got = np.empty_like(x)
    inverse_roots(x, got)
    np.testing.assert_allclose(got * np.sqrt(x), 1.0, rtol=7e-4)


def test_without_deviation_factors_the_reported_nll_is_that_of_the_best_constant_variance():
    params = make_params(deviation_rank=0)
    state, blocks = make_problem(params)
    info = strata.epoch(state, blocks, params, n_jobs=1)
    s = info.train_rmse**2
    assert info.train_nll == pytest.approx(0.5 * math.log(2 * math.pi * s) + 0.5)


@pytest.mark.parametrize("adagrad", ["coordinate", "row"])
@pytest.mark.parametrize("delta", [1e-3, 30.0])
def test_the_reported_nll_is_right_for_blocks_of_many_observations(adagrad, delta):
    params = make_params(
        adagrad=adagrad, delta=delta, warmup=0, learning_rate=1e-30, deviation_learning_rate=1e-30
    )
    state, blocks = make_problem(params, shape=(2, 3000), n=6000)
    assert np.diff(blocks.starts).min() > 1000
    info = strata.epoch(state, blocks, params, n_jobs=1)
    mean, variance = (
        m.astype(float) for m in strata.predict(state, blocks.codes, params, n_jobs=1)
    )
    loss = np.log(2 * np.pi * variance) + (blocks.values - mean) ** 2 / variance
    assert info.train_nll == pytest.approx(0.5 * loss.mean(), rel=1e-5)


@given(
    error=st.floats(-3, 3),
    variance=st.floats(0.2, 4),
    beta=st.floats(0, 1),
)
def test_gradients_are_the_slopes_of_the_weighted_likelihood(error, variance, beta):
    def loss(mean, s):
        return variance**beta * ((error - mean) ** 2 / (2 * s) + math.log(s) / 2)

    g, h = reference.gradients(error, variance, beta)
    step = 1e-5
    by_mean = (loss(step, variance) - loss(-step, variance)) / (2 * step)
    by_variance = (loss(0, variance + step) - loss(0, variance - step)) / (2 * step)
    assert -g == pytest.approx(by_mean, rel=1e-5, abs=1e-7)
    assert h == pytest.approx(by_variance, rel=1e-4, abs=1e-6)


def test_an_outlier_pulls_on_the_variance_no_harder_than_fifty_variances():
    assert reference.gradients(100.0, 0.5, 0.0)[1] == reference.gradients(5.0, 0.5, 0.0)[1] == -49.0


@pytest.mark.parametrize("beta", [0.0, 0.25])
@pytest.mark.parametrize("penalty", ["rating", "row"])
def test_a_step_goes_down_the_slope_of_the_penalised_likelihood(penalty, beta):
    params = make_params(penalty=penalty, beta=beta, adagrad="row", deviation_learning_rate=0.1)
    state, _ = make_problem(params)
    release_deviation(state, params)
    for mode in range(2):
        state.deviation_factors(mode)[:] += 0.5  # far from the projection
    cell, value = (1, 2), 1.5
    old = state.copy()
    fixed_weight = reference.mean_and_variance(old, cell, params)[1] ** beta

    def objective(rows):
        u, v = (row[LINE : LINE + params.rank] for row in rows)
        start = params.layout.deviation_start
        p, q = (row[start : start + params.deviation_rank] for row in rows)
        error = value - (u @ v + rows[0][BIAS] + rows[1][BIAS])
        variance = p @ q + params.delta
        total = fixed_weight * (error**2 / (2 * variance) + math.log(variance) / 2)
        for row, mean, deviation in zip(rows, (u, v), (p, q), strict=True):
            total += params.l2 / 2 * row[SHARE] * (mean @ mean)
            total += params.bias_l2 / 2 * row[SHARE] * row[BIAS] ** 2
            total += params.deviation_l1 * row[SHARE] * deviation.sum()
        return total

    reference.step(state, cell, value, params, learn=True)
    start = params.layout.deviation_start
    mean_part = range(LINE, LINE + params.rank)
    deviation_part = range(start, start + params.deviation_rank)
    for mode in range(2):
        for column in (BIAS, *mean_part, *deviation_part):
            rows = [r[k].astype(float) for r, k in zip(old.rows, cell, strict=True)]
            rows[mode][column] += 1e-5
            above = objective(rows)
            rows[mode][column] -= 2e-5
            slope = (above - objective(rows)) / 2e-5
            moved = float(old.rows[mode][cell[mode], column] - state.rows[mode][cell[mode], column])
            scale = math.sqrt(1.0 + slope**2) if column == BIAS else 1.0  # AdaGrad starts at one
            assert moved == pytest.approx(0.1 * slope / scale, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("adagrad", ["coordinate", "row"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_epoch_changes_every_array_it_should_and_no_other(adagrad, n_jobs):
    params = make_params(adagrad=adagrad, warmup=1)
    state, blocks = make_problem(params, shape=(8, 8), n=64)
    layout = params.layout
    mean_end, start = LINE + params.rank, layout.deviation_start
    deviation_end = start + params.deviation_rank
    of_mean = {
        "biases": np.s_[:, BIAS],
        "bias sums": np.s_[:, BIAS_SUM],
        "mean factors": np.s_[:, LINE:mean_end],
    }
    of_deviation = {"deviation factors": np.s_[:, start:deviation_end]}
    if adagrad == "coordinate":
        sums = layout.sums_start
        of_mean["mean sums"] = np.s_[:, sums : sums + params.rank]
        of_deviation["deviation sums"] = np.s_[
            :, sums + layout.mean : sums + layout.mean + params.deviation_rank
        ]
    else:
        of_mean["mean sums"] = np.s_[:, MEAN_SUM]
        of_deviation["deviation sums"] = np.s_[:, DEVIATION_SUM]

    def changed(before, part):
        return [(a[part] != b[part]).all() for a, b in zip(before.rows, state.rows, strict=True)]

    before = state.copy()
    strata.epoch(state, blocks, params, n_jobs)  # the warm-up
    for name, part in of_mean.items():
        assert all(changed(before, part)), name
    for name, part in of_deviation.items():
        assert not any(changed(before, part)), name
    before = state.copy()
    strata.epoch(state, blocks, params, n_jobs)
    for name, part in (of_mean | of_deviation).items():
        assert all(changed(before, part)), name
    for old, rows in zip(before.rows, state.rows, strict=True):
        np.testing.assert_array_equal(rows[:, SHARE], old[:, SHARE])
        assert not rows[:, SHARE + 1 : LINE].any()
        assert not rows[:, mean_end:start].any()
        assert not rows[:, deviation_end : start + layout.deviation].any()


@pytest.mark.parametrize("adagrad", ["coordinate", "row"])
def test_deviation_factors_are_never_negative_and_can_reach_zero(adagrad):
    params = make_params(adagrad=adagrad, deviation_l1=0.5, deviation_learning_rate=0.3, warmup=0)
    state, blocks = make_problem(params)
    for _ in range(5):
        strata.epoch(state, blocks, params, n_jobs=1)
        for mode in range(2):
            factors = state.deviation_factors(mode)
            assert (factors >= 0).all()
    assert any((state.deviation_factors(m) == 0).any() for m in range(2))


@pytest.mark.parametrize("residual_variance", [1.0, 0.3, 0.05])
def test_released_deviation_starts_at_the_variance_of_the_residuals(residual_variance):
    params = make_params(deviation_rank=30, delta=0.04)
    state = initial_state(params, (np.ones(400, int), np.ones(300, int)))
    state.variance = residual_variance
    release_deviation(state, params)
    P, Q = (state.deviation_factors(m) for m in range(2))
    assert np.mean(P @ Q.T + params.delta) == pytest.approx(residual_variance, rel=0.1)


@pytest.mark.parametrize("learned", [False, True])
def test_predict_gives_the_moments_of_the_reference(learned):
    params = make_params(warmup=1)
    state, blocks = make_problem(params)
    for _ in range(3 if learned else 1):
        strata.epoch(state, blocks, params, n_jobs=1)
    mean, variance = strata.predict(state, blocks.codes, params, n_jobs=2)
    cells = list(zip(*(codes.tolist() for codes in blocks.codes), strict=True))
    expected = np.array([reference.mean_and_variance(state, cell, params) for cell in cells])
    np.testing.assert_allclose(mean, expected[:, 0], rtol=1e-5, atol=1e-6)
    constant = np.full(len(cells), state.variance)
    np.testing.assert_allclose(variance, expected[:, 1] if learned else constant, rtol=1e-5)


def test_released_factors_that_no_epoch_has_trained_add_no_variance():
    params = make_params(warmup=1)
    state, blocks = make_problem(params)
    strata.epoch(state, blocks, params, n_jobs=1)
    release_deviation(state, params)  # as when an interrupt comes in the middle of the next epoch
    _, variance = strata.predict(state, blocks.codes, params, n_jobs=1)
    np.testing.assert_array_equal(variance, np.float32(state.variance))


def test_predicting_no_cells_gives_no_numbers():
    params = make_params()
    state, _ = make_problem(params)
    empty = np.empty(0, dtype=np.int32)
    mean, variance = strata.predict(state, (empty, empty), params, n_jobs=2)
    assert len(mean) == len(variance) == 0


def test_values_that_are_all_alike_stay_finite():
    params = make_params(rank=0)
    state, blocks = make_problem(params)
    blocks.values[:] = 0.0
    for _ in range(4):
        info = strata.epoch(state, blocks, params, n_jobs=1)
        assert math.isfinite(info.train_nll)
    assert state.is_finite()


@st.composite
def cells(draw):
    """Different cells of a matrix of any shape, tiny ones too."""
    shape = draw(st.tuples(st.integers(1, 30), st.integers(1, 30)))
    n = draw(st.integers(1, math.prod(shape)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, columns = np.divmod(rng.permutation(math.prod(shape))[:n], shape[1])
    return (rows.astype(np.int32), columns.astype(np.int32)), shape


def check_arrangement(codes, shape, blocks):
    """Every observation once; blocks of a stratum share no row; halves of a block are in order."""
    values = np.arange(len(codes[0]), dtype=np.float32)
    visit = blocks.values.astype(int)
    np.testing.assert_array_equal(np.sort(visit), values)
    for given_codes, placed, order in zip(codes, blocks.codes, blocks.order, strict=True):
        np.testing.assert_array_equal(placed, order[given_codes[visit]])
    for order, n in zip(blocks.order, shape, strict=True):
        np.testing.assert_array_equal(np.sort(order), np.arange(n))
    side, starts = blocks.side, blocks.starts
    assert 1 <= side <= min(shape)
    assert starts[0] == 0
    assert starts[-1] == len(values)
    assert len(starts) == side**2 + 1
    for stratum in range(side):
        for mode in range(2):
            seen = [
                set(blocks.codes[mode][starts[b] : starts[b + 1]].tolist())
                for b in range(stratum * side, (stratum + 1) * side)
            ]
            assert len(set().union(*seen)) == sum(map(len, seen))
    for start, end in itertools.pairwise(starts):
        rows = blocks.codes[0][start:end]
        assert (np.diff(np.concatenate([rows[::2], rows[1::2]])) >= 0).all()


@given(cells())
def test_blocks_of_a_stratum_share_no_row(drawn):
    codes, shape = drawn
    values = np.arange(len(codes[0]), dtype=np.float32)
    check_arrangement(codes, shape, strata.arrange(codes, values, shape, width=64))


@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 50), (50, 1), (2, 3), (3, 2), (5, 400), (400, 300)], ids=str
)
def test_full_matrices_of_any_shape_are_arranged(shape):
    rows, columns = np.divmod(np.arange(math.prod(shape)), shape[1])
    codes = (rows.astype(np.int32), columns.astype(np.int32))
    values = np.arange(len(rows), dtype=np.float32)
    check_arrangement(codes, shape, strata.arrange(codes, values, shape, width=64))


def test_rows_without_observations_have_a_place_too():
    codes = (np.array([0, 4], dtype=np.int32), np.array([9, 0], dtype=np.int32))
    blocks = strata.arrange(codes, np.array([0.0, 1.0], dtype=np.float32), (5, 10), width=64)
    check_arrangement(codes, (5, 10), blocks)


def test_stripes_weigh_the_same_though_few_rows_are_busy():
    rng = np.random.default_rng(0)
    n, shape = 200_000, (3_000, 2_000)
    codes = tuple((m * rng.random(n) ** 1.5).astype(np.int32) for m in shape)
    blocks = strata.arrange(codes, np.zeros(n, dtype=np.float32), shape, width=64)
    assert blocks.side >= 8
    sizes = np.diff(blocks.starts).reshape(blocks.side, blocks.side)
    by_first = sizes.sum(axis=0)  # block k of every stratum has the k-th stripe of the first mode
    assert by_first.max() < 1.1 * by_first.mean()
    longest = sizes.max(axis=1)  # a stratum takes as long as its largest block
    assert longest.sum() < 1.5 * n / blocks.side


def test_rows_start_on_cache_lines_and_a_copy_is_its_own():
    params = make_params()
    state, _ = make_problem(params)
    copy = state.copy()
    for rows, other in zip(state.rows, copy.rows, strict=True):
        assert rows.ctypes.data % 64 == 0
        assert other.ctypes.data % 64 == 0
        assert not np.shares_memory(rows, other)
    copy.rows[0][0, 0] = np.nan
    assert state.is_finite()
    assert not copy.is_finite()
