"""Three modes and more: kernels against the equations, strata, and the model from end to end."""

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import World
from test_determinism import assert_same_bits, tensors_of
from test_engine import make_params, reference_epoch

from noisewise import (
    DataError,
    DeviationFactorizer,
    ModelFileError,
    load,
    observe,
    storage,
)
from noisewise.engine.sgd import reference, strata
from noisewise.engine.sgd import uncertainty as epistemic
from noisewise.engine.sgd.layout import BIAS, LINE, SHARE, initial_state, release_deviation
from noisewise.models.deviation import DTF, PTF
from noisewise.noise import noisy_ids

SHAPES = [(6, 4, 9), (5, 4, 3, 6), (3, 4, 2, 3, 4)]


def make_cells(shape, n, seed=0):
    """Draw n different cells."""
    cells = np.random.default_rng(seed).permutation(math.prod(shape))[:n]
    return tuple(code.astype(np.int32) for code in np.unravel_index(cells, shape))


def arrange(codes, values, shape, width=64, side=4):
    """Let a few observations be enough for many strata."""
    with mock.patch.multiple(strata, MIN_STRATUM=1, MIN_SIDE=side):
        return strata.arrange(codes, values, shape, width)


def make_problem(params, shape, n=100):
    """Draw cells with values, in blocks of several, and a state to start from."""
    codes = make_cells(shape, n)
    values = np.random.default_rng(1).normal(size=n).astype(np.float32)
    blocks = arrange(codes, values, shape, params.layout.width, side=2)
    counts = tuple(np.bincount(c, minlength=m) for c, m in zip(blocks.codes, shape, strict=True))
    return initial_state(params, counts), blocks


# The kernels.


@pytest.mark.parametrize("warmup", [0, 2], ids="warmup{}".format)
@pytest.mark.parametrize(("rank", "deviation_rank"), [(3, 2), (3, 0), (0, 2), (17, 18)])
@pytest.mark.parametrize("beta", [0.0, 0.7], ids="beta{}".format)
@pytest.mark.parametrize("penalty", ["rating", "row"])
@pytest.mark.parametrize("adagrad", ["coordinate", "row"])
@pytest.mark.parametrize("shape", [(6, 4, 9), (9, 6, 4), (5, 4, 3, 6)], ids=str)
def test_kernels_take_the_steps_of_the_reference(
    shape, adagrad, penalty, beta, rank, deviation_rank, warmup
):
    params = make_params(
        rank=rank, deviation_rank=deviation_rank, adagrad=adagrad, penalty=penalty,
        beta=beta, warmup=warmup,
    )  # fmt: skip
    fast, blocks = make_problem(params, shape)
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
            np.testing.assert_allclose(got, expected, rtol=near, atol=5e-6 + 0.5 * rough)


@pytest.mark.parametrize("adagrad", ["coordinate", "row"])
@pytest.mark.parametrize("shape", [(8, 7), *SHAPES], ids=len)
def test_without_biases_there_are_none_and_factors_step_as_ever(shape, adagrad):
    params = make_params(adagrad=adagrad, biases=False)
    fast, blocks = make_problem(params, shape, n=50)
    slow = fast.copy()
    for _ in range(3):
        strata.epoch(fast, blocks, params, n_jobs=1)
        reference_epoch(slow, blocks, params)
        for got, expected in zip(fast.rows, slow.rows, strict=True):
            assert not got[:, BIAS].any()
            np.testing.assert_allclose(got, expected, rtol=8e-4, atol=8e-5)


@pytest.mark.parametrize("adagrad", ["coordinate", "row"])
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("shape", [(8, 4, 8), (4, 4, 4, 4)], ids=len)
def test_an_epoch_changes_all_factors_and_no_padding(shape, n_jobs, adagrad):
    params = make_params(adagrad=adagrad, warmup=1)
    state, blocks = make_problem(params, shape, n=256)
    layout, before = params.layout, state.copy()
    start, end = layout.deviation_start, layout.deviation_start + params.deviation_rank
    strata.epoch(state, blocks, params, n_jobs)  # the warm-up
    for old, rows in zip(before.rows, state.rows, strict=True):
        assert (rows[:, LINE : LINE + params.rank] != old[:, LINE : LINE + params.rank]).all()
        assert (rows[:, BIAS] != old[:, BIAS]).all()
        assert not rows[:, start:end].any()
    release_deviation(before, params)
    strata.epoch(state, blocks, params, n_jobs)
    for old, rows in zip(before.rows, state.rows, strict=True):
        assert (rows[:, start:end] != old[:, start:end]).all()
        np.testing.assert_array_equal(rows[:, SHARE], old[:, SHARE])
        assert not rows[:, LINE + params.rank : start].any()
        assert not rows[:, end : start + layout.deviation].any()


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=len)
def test_predict_gives_the_moments_of_the_reference(shape, learned):
    params = make_params(warmup=1)
    state, blocks = make_problem(params, shape)
    for _ in range(3 if learned else 1):
        strata.epoch(state, blocks, params, n_jobs=1)
    mean, variance = strata.predict(state, blocks.codes, params, n_jobs=2)
    cells = list(zip(*(codes.tolist() for codes in blocks.codes), strict=True))
    expected = np.array([reference.mean_and_variance(state, cell, params) for cell in cells])
    np.testing.assert_allclose(mean, expected[:, 0], rtol=1e-5, atol=1e-6)
    constant = np.full(len(cells), state.variance)
    np.testing.assert_allclose(variance, expected[:, 1] if learned else constant, rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=len)
def test_factors_that_have_nearly_vanished_are_zero(shape):
    params = make_params(l2=20.0, learning_rate=0.5)
    state, blocks = make_problem(params, shape)
    for _ in range(8):
        strata.epoch(state, blocks, params, n_jobs=1)
        for mode in range(len(shape)):
            size = np.abs(state.mean_factors(mode))
            assert not ((size > 0) & (size < 1e-12)).any()
    assert not any(state.mean_factors(m).any() for m in range(len(shape)))
    assert state.is_finite()


@pytest.mark.parametrize("deviation_rank", [0, 2])
def test_the_variance_of_a_tensor_stays_above_its_floor(deviation_rank):
    params = make_params(deviation_rank=deviation_rank, rank=8, delta=0.3, l2=0.0)
    state, blocks = make_problem(params, (6, 4, 9))
    blocks.values[:] *= 0.1
    for _ in range(4):
        info = strata.epoch(state, blocks, params, n_jobs=1)
        assert info.train_rmse**2 < 0.3
        assert state.variance == 0.3
        assert (strata.predict(state, blocks.codes, params, n_jobs=1)[1] >= np.float32(0.3)).all()


@pytest.mark.parametrize("rank", [1, 8, 50])
@pytest.mark.parametrize("n_modes", [3, 4, 6])
def test_products_of_first_factors_have_the_same_scale_for_any_rank_and_modes(n_modes, rank):
    params = make_params(rank=rank)
    state = initial_state(params, (np.ones(60_000, int),) * n_modes)
    product = np.prod([state.mean_factors(m) for m in range(n_modes)], axis=0).sum(axis=1)
    assert product.std() == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize("n_modes", [3, 4])
def test_released_deviation_starts_at_the_variance_of_the_residuals(n_modes):
    params = make_params(deviation_rank=30, delta=0.04)
    state = initial_state(params, (np.ones(500, int),) * n_modes)
    state.variance = 0.3
    release_deviation(state, params)
    factors = [state.deviation_factors(m) for m in range(n_modes)]
    assert np.prod(factors, axis=0).sum(axis=1).mean() + 0.04 == pytest.approx(0.3, rel=0.1)


# Strata.


def check_arrangement(codes, shape, blocks):
    """Every observation once; blocks of a stratum share no row; halves of a block are in order."""
    visit = blocks.values.astype(int)
    np.testing.assert_array_equal(np.sort(visit), np.arange(len(codes[0])))
    for given_codes, placed, order, n in zip(codes, blocks.codes, blocks.order, shape, strict=True):
        np.testing.assert_array_equal(placed, order[given_codes[visit]])
        np.testing.assert_array_equal(np.sort(order), np.arange(n))
    side, starts = blocks.side, blocks.starts
    assert 1 <= side <= min(shape)
    assert (starts[0], starts[-1]) == (0, len(visit))
    assert blocks.n_strata == side ** (len(shape) - 1)
    for stratum in range(blocks.n_strata):
        for placed in blocks.codes:
            seen = [
                set(placed[starts[b] : starts[b + 1]].tolist())
                for b in range(stratum * side, (stratum + 1) * side)
            ]
            assert len(set().union(*seen)) == sum(map(len, seen))
    longest = max(range(len(shape)), key=lambda mode: shape[mode])
    if shape.count(shape[longest]) == 1:
        for start, end in itertools.pairwise(starts):
            rows = blocks.codes[longest][start:end]
            assert (np.diff(np.concatenate([rows[::2], rows[1::2]])) >= 0).all()


@given(
    shape=st.lists(st.integers(1, 9), min_size=3, max_size=5).map(tuple),
    share=st.floats(0.01, 1),
    seed=st.integers(0, 2**32),
)
def test_blocks_of_a_stratum_share_no_row_in_any_mode(shape, share, seed):
    codes = make_cells(shape, max(1, int(share * math.prod(shape))), seed)
    values = np.arange(len(codes[0]), dtype=np.float32)
    check_arrangement(codes, shape, arrange(codes, values, shape))


@pytest.mark.parametrize(
    ("shape", "n", "side"),
    [
        ((15, 19, 7479), 400_000, 4),
        ((52, 4, 7200), 500_000, 4),
        ((200, 2, 300), 100_000, 2),
        ((1, 50, 60), 3_000, 1),
        ((15, 19, 7479), 5_000, 2),
        ((50, 40, 30), 300, 1),
        ((30, 30, 30, 30), 100_000, 4),
        ((9,) * 12, 10_000, 1),
    ],
)
def test_there_are_strata_for_four_threads_where_they_are_worth_it(shape, n, side):
    assert strata._tensor_side(n, shape) == side


def test_larger_tensors_have_work_for_more_threads():
    assert strata._tensor_side(10_000_000, (1000, 1000, 1000)) == 10


# The model.


def make_world(shape=(40, 12, 60), n=12_000, seed=0):
    """Draw cells of a tensor with a mean of rank two; some locations, and times, are noisier."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(make_cells(shape, n, seed))
    factors = [rng.normal(size=(size, 2)) for size in shape]
    mean = np.prod([own[code] for own, code in zip(factors, X.T, strict=True)], axis=0).sum(axis=1)
    width = [rng.uniform(0.3, 1.2, size) for size in shape[:2]]
    std = width[0][X[:, 0]] * width[1][X[:, 1]]
    return World(X, 10.0 + 2.0 * rng.normal(mean, std), 10.0 + 2.0 * mean, 2.0 * std)


def make_model(**settings):
    chosen = {"rank": 4, "deviation_rank": 2, "learning_rate": 0.1, "l2": 0.002, "delta": 0.02}
    chosen |= {"deviation_learning_rate": 0.05, "random_state": 0, "n_jobs": 1}
    return DeviationFactorizer(**{**chosen, **settings})


@pytest.fixture(scope="module")
def world():
    return make_world()


@pytest.fixture(scope="module")
def split(world):
    return world.halves()


@pytest.fixture(scope="module")
def fitted(split):
    return make_model().fit(split[0].X, split[0].y)


def rmse(model, world):
    return float(np.sqrt(np.mean((world.y - model.predict(world.X)) ** 2)))


def test_mean_comes_close_to_the_best_there_is(fitted, split):
    _, test = split
    assert rmse(fitted, test) < 1.1 * np.sqrt(np.mean((test.y - test.mean) ** 2))


def test_std_recovers_the_noise_we_put_in(fitted, split):
    _, test = split
    _, noise, _ = fitted.predict_parts(test.X)
    assert np.corrcoef(noise, test.std)[0, 1] > 0.9
    assert np.median(noise / test.std) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_intervals_cover_what_they_promise(fitted, split, coverage):
    _, test = split
    low, high = fitted.predict_interval(test.X, coverage=coverage)
    assert np.mean((low <= test.y) & (test.y <= high)) == pytest.approx(coverage, abs=0.04)


def test_without_deviation_factors_all_noise_is_the_same(split):
    train, test = split
    model = make_model(deviation_rank=0).fit(train.X, train.y)
    _, noise, epistemic = model.predict_parts(test.X)
    assert (noise == noise[0]).all()
    assert len(np.unique(epistemic)) > 1
    assert rmse(model, test) < 1.15 * np.sqrt(np.mean((test.y - test.mean) ** 2))


def test_four_modes_are_learned_too():
    train, test = make_world((12, 8, 10, 9), n=6_000).halves()
    model = make_model().fit(train.X, train.y)
    assert rmse(model, test) < 1.25 * np.sqrt(np.mean((test.y - test.mean) ** 2))
    _, noise, _ = model.predict_parts(test.X)
    assert np.corrcoef(noise, test.std)[0, 1] > 0.8


@pytest.mark.parametrize("chosen", [PTF, DTF], ids=["PTF", "DTF"])
def test_the_settings_for_tensors_learn_what_the_defaults_drive_to_zero(split, chosen):
    train, test = split
    model = DeviationFactorizer(**chosen, random_state=0, n_jobs=1).fit(train.X, train.y)
    default = DeviationFactorizer(random_state=0, n_jobs=1).fit(train.X, train.y)
    best = np.sqrt(np.mean((test.y - test.mean) ** 2))
    assert rmse(model, test) < 1.3 * best
    assert rmse(default, test) > 1.5 * best


@pytest.mark.parametrize("shape", [(30, 20), (30, 8, 20)], ids=len)
def test_without_biases_a_mean_is_a_product(shape):
    world = make_world(shape, n=500)
    model = make_model(biases=False, epochs=5).fit(world.X, world.y)
    rows = [model.row(int(id), mode=m) for m, id in enumerate(world.X[0])]
    assert [row.bias for row in rows] == [0.0] * len(shape)
    mean = np.prod([row.mean for row in rows], axis=0).sum()
    location, scale = model.factors_.location, model.factors_.scale
    assert model.predict(world.X[:1])[0] == pytest.approx(location + scale * mean, rel=1e-5)


def test_fold_in_without_biases_gives_a_row_without_one():
    world = make_world((30, 20), n=500)
    model = make_model(biases=False, epochs=5).fit(world.X, world.y)
    new = model.fold_in([1, 2, 3], [9.0, 11.0, 12.0])
    assert new.side.rows[0, BIAS] == 0.0
    assert new.side.rows[0, LINE : LINE + 4].all()


# Epistemic variance.


def packed(rows):
    """Rows as the engine has them, and one more for ids never seen."""
    laid_out = [np.zeros((len(own) + 1, 2 * LINE), dtype=np.float32) for own in rows]
    for own, place in zip(rows, laid_out, strict=True):
        place[:-1, LINE : LINE + own.shape[1] - 1] = own[:, :-1]
    return laid_out


def test_epistemic_of_two_modes_follows_from_that_of_many():
    rng = np.random.default_rng(0)
    shape, rank = (40, 30), 3
    rows = [rng.normal(size=(n, rank + 1)).astype(np.float32) for n in shape]
    counts = [rng.integers(0, 20, n) for n in shape]
    of_two, shrink_of_two = epistemic.of_two_modes(rows, counts, 0.5)
    spread, shrink = epistemic.of_modes(rows, counts, 0.5)
    for m in range(2):
        np.testing.assert_allclose(shrink[m], shrink_of_two[m], rtol=1e-4)
    i, j = (np.append(rng.integers(0, n, 50), [n, n, 3]) for n in shape)
    i[-1], j[-2] = shape[0], 5
    expected = shrink_of_two[0][i] * of_two[1][j] + shrink_of_two[1][j] * of_two[0][i]
    found = epistemic.of_cells(packed(rows), LINE, spread, shrink, [i, j])
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_epistemic_of_three_modes_is_the_variance_that_unknown_rows_make():
    rng = np.random.default_rng(1)
    shape, rank = (300, 5, 6), 2
    rows = [rng.normal(size=(n, rank + 1)).astype(np.float32) for n in shape]
    counts = [np.full(n, 10_000) for n in shape]  # what was seen is known
    counts[0][:] = 1_000_000
    spread, shrink = epistemic.of_modes(rows, counts, 0.1)
    cell = [np.array([code]) for code in (300, 2, 4)]
    means = (rows[0][:, :-1] * rows[1][2, :-1] * rows[2][4, :-1]).sum(axis=1) + rows[0][:, -1]
    found = epistemic.of_cells(packed(rows), LINE, spread, shrink, cell)[0]
    assert found == pytest.approx(means.var(), rel=0.01)


def test_unknown_ids_of_more_modes_have_a_wider_std(fitted, split):
    X = split[1].X[:500]
    known = fitted.predict(X, return_std=True)[1].mean()
    widths = [known]
    for modes in ([0], [0, 1], [0, 1, 2]):
        cells = X.copy()
        cells[:, modes] = -1
        mean, std = fitted.predict(cells, return_std=True)
        assert np.isfinite(mean).all()
        widths.append(std.mean())
    assert widths == sorted(widths)
    assert widths[-1] > 1.2 * known


def test_more_observations_leave_less_epistemic(split):
    train, _ = split
    few = train.part(slice(2_000))
    cells = train.X[:1000]
    of_few, of_many = (
        make_model().fit(part.X, part.y).predict_parts(cells)[2].mean() for part in (few, train)
    )
    assert of_many < of_few


# The same bits.


@pytest.mark.parametrize("adagrad", ["coordinate", "row"])
@pytest.mark.parametrize("shape", [(40, 4, 60), (20, 8, 4, 30)], ids=len)
def test_fit_has_the_same_bits_for_any_number_of_threads(monkeypatch, shape, adagrad, tmp_path):
    monkeypatch.setattr(strata, "MIN_STRATUM", 1)
    world = make_world(shape, n=4_000)
    codes = tuple(world.X.T.astype(np.int32))
    assert strata.arrange(codes, world.y.astype(np.float32), shape, width=64).side == 4
    one, *others = (
        tensors_of(make_model(adagrad=adagrad, epochs=6, n_jobs=n).fit(world.X, world.y), tmp_path)
        for n in (1, 2, 4)
    )
    for other in others:
        assert_same_bits(other, one)


@pytest.mark.parametrize("shape", [(40, 4, 60), (20, 8, 4, 30)], ids=len)
def test_predict_has_the_same_bits_for_any_number_of_threads_and_cells(monkeypatch, shape):
    world = make_world(shape, n=4_000)
    model = make_model(epochs=4).fit(world.X, world.y)
    for chunk in ("CHUNK", "MANY_CHUNK"):
        monkeypatch.setattr(strata, chunk, 500)
    one = model.predict_parts(world.X)
    for n_jobs in (2, 4):
        other = model.set_params(n_jobs=n_jobs).predict_parts(world.X)
        np.testing.assert_array_equal(other, one)
    alone = [model.predict_parts(world.X[k : k + 1]) for k in range(30)]
    np.testing.assert_array_equal(np.array(alone)[:, :, 0].T, np.array(one)[:, :30])


def test_partial_fit_has_the_same_bits_for_any_number_of_threads(split, tmp_path):
    first, more = split
    one, *others = (
        tensors_of(
            make_model(epochs=3, n_jobs=n).fit(first.X, first.y).partial_fit(more.X, more.y),
            tmp_path,
        )
        for n in (1, 2, 4)
    )
    for other in others:
        assert_same_bits(other, one)


def test_a_loaded_model_has_the_same_bits_and_goes_on_learning(split, fitted, tmp_path):
    _, test = split
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    cells = [*test.X[:500].tolist(), (-1, 3, 2), (3, -1, -1), (-1, -1, -1)]
    np.testing.assert_array_equal(loaded.predict_parts(cells), fitted.predict_parts(cells))
    np.testing.assert_array_equal(loaded.predict_interval(cells), fitted.predict_interval(cells))
    loaded.partial_fit(test.X, test.y, epochs=2)
    assert loaded.n_epochs_ == fitted.n_epochs_ + 2


@pytest.mark.parametrize("moment", [2, 5])
def test_a_fit_that_was_stopped_goes_on_to_the_same_bits(split, tmp_path, moment):
    train = split[0].part(slice(3_000))
    settings, path = {"epochs": 8, "patience": None}, tmp_path / "checkpoint"

    class StopError(Exception):
        pass

    def stop(info, state):
        if info.epoch == moment + 1:
            raise StopError

    whole = tensors_of(make_model(**settings).fit(train.X, train.y), tmp_path)
    with pytest.raises(StopError):
        make_model(**settings).fit(train.X, train.y, callbacks=[stop], checkpoint=path)
    assert path.exists()
    again = make_model(**settings).fit(train.X, train.y, checkpoint=path)
    assert_same_bits(tensors_of(again, tmp_path), whole)


# All the rest.


def test_held_out_values_stop_training_and_are_trained_on_in_the_end(split):
    train, test = split
    first, again = (
        make_model(refit=refit).fit(train.X, train.y, validation=observe(test.X, test.y))
        for refit in (False, True)
    )
    assert first.n_epochs_ == again.n_epochs_ < 100
    assert first.factors_.counts[2].sum() == len(train.y)
    assert again.factors_.counts[2].sum() == len(train.y) + len(test.y)
    assert again.calibration_.n == len(test.y)


def test_partial_fit_learns_new_ids_of_any_mode():
    world = make_world((40, 12, 60), n=12_000, seed=4)
    late = (world.X[:, 0] >= 34) | (world.X[:, 2] >= 50)
    old, new = world.part(~late), world.part(late)
    train, test = new.halves()
    model = make_model().fit(old.X, old.y)
    before = rmse(model, test)
    model.partial_fit(train.X, train.y, epochs=20)
    assert list(map(len, model.ids_)) == [40, 12, 60]
    assert rmse(model, test) < 0.8 * before


def test_what_takes_two_modes_says_so(fitted):
    for name, ask in (
        ("recommend", lambda: fitted.recommend(3)),
        ("fold_in", lambda: fitted.fold_in([1, 2], [3.0, 4.0])),
    ):
        with pytest.raises(
            DataError, match=f"{name} needs a model of 2 id columns; this one has 3"
        ):
            ask()


def test_rows_similar_ids_and_noisy_ids_are_there_for_every_mode(fitted):
    for mode, size in enumerate((40, 12, 60)):
        assert fitted.row(3, mode=mode).mean.shape == (4,)
        assert len(fitted.similar(3, n=5, mode=mode)) == 5
        table = noisy_ids(fitted, mode=mode, n=None)
        assert len(table["id"]) == size
    expected = fitted.predict_parts([(3, j, k) for j in range(12) for k in range(60)])[1]
    table = noisy_ids(fitted, mode=0, n=None)
    got = table["noise_std"][table["id"].tolist().index(3)]
    assert got == pytest.approx(np.sqrt(np.mean(expected**2)), rel=0.05)


def test_the_number_of_modes_stays_what_it_was(fitted):
    with pytest.raises(DataError, match="expecting 3 features"):
        fitted.predict([(1, 2)])
    with pytest.raises(DataError, match="expecting 3 features"):
        fitted.partial_fit([(1, 2)], [3.0])


def test_a_sparse_tensor_is_never_made_dense():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 50_000, (20_000, 3))  # a dense one would take 500 terabytes
    model = make_model(epochs=2, patience=None).fit(X, rng.normal(size=len(X)))
    assert np.isfinite(model.predict(X, return_std=True)).all()


DAMAGE = {
    "a spread of another rank": lambda t: t.update({"mode1.spread": t["mode1.spread"][:, 1:, 1:]}),
    "no spread": lambda t: t.pop("mode2.spread"),
    "a negative shrink": lambda t: t["mode0.shrink"].__setitem__(0, -1.0),
    "a spread that is no number": lambda t: t["mode0.spread"].__setitem__((0, 0, 0), np.nan),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_refused(fitted, tmp_path, damage):
    fitted.save(tmp_path / "model")
    header, tensors = storage.read(tmp_path / "model", "model")
    tensors = {name: tensor.copy() for name, tensor in tensors.items()}
    damage(tensors)
    storage.write(tmp_path / "model", "model", header, tensors)
    with pytest.raises(ModelFileError):
        load(tmp_path / "model")
