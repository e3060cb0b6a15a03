"""The sampler's pieces against dense linear algebra, scipy and brute force; its bits; its secrets.

Whether all pieces together sample what they should is asked in test_geweke.py.
"""

import math
from dataclasses import fields

import numpy as np
import pytest
from numba import njit
from scipy import special, stats
from shared import assert_standard_normal, whitened

from noisewise import BayesianFactorizer, observe
from noisewise.engine import random, state_space, training
from noisewise.engine.data import Data, Spec, Timeline
from noisewise.engine.gibbs.sampler import rating_steps
from noisewise.engine.gibbs.schedule import Schedule
from noisewise.engine.gibbs.snapshots import rating_snapshot
from noisewise.engine.gibbs.steps import ordinal, regression, rows, variances
from noisewise.engine.gibbs.steps.ordinal import CENTRE_SPREAD
from noisewise.engine.gibbs.steps.regression import feature_part
from noisewise.engine.gibbs.steps.temporal import SETTINGS_PRIOR, effect_variances, gaps
from noisewise.engine.gibbs.steps.variances import MEAN_WEIGHT, SCALES_FROM, freedom
from noisewise.engine.gibbs.sweep import (
    CUT_WIDTH,
    EFFECT_VARIANCE,
    EFFECTS,
    START_STD,
    RatingDraw,
    Sweep,
    Workspace,
    effective_size,
    first_draw,
    generator,
    key,
    split_rhat,
)
from noisewise.models.bayesian import prepare

DRAWS = 4000
ANCHOR = 2
ARRAYS = [field.name for field in fields(RatingDraw) if field.name != "epoch"]


def make_data(shape=(6, 8), n=40, seed=0, n_levels=0):
    """Cells at random, some of them at the same time; no cell twice unless there are too few."""
    rng = np.random.default_rng(seed)
    many = math.prod(shape)
    chosen = rng.choice(many, n, replace=n > many)
    codes = tuple(code.astype(np.int32) for code in np.unravel_index(chosen, shape))
    values = rng.integers(n_levels, size=n) if n_levels else rng.normal(size=n)
    time = rng.integers(n // 2, size=n)
    arranged, order = Data.arrange(codes, values.astype(np.float32), shape, time)
    return arranged, time[order]


def make_sweep(likelihood="ordinal", rank=3, n_jobs=1, burn_in=0, **size):
    """A sweep with everything switched on, and a draw that all parts have joined."""
    spec = Spec(rank, 2, likelihood, implicit=True, time=True, seed=3)
    data, _ = make_data(n_levels=5 if likelihood == "ordinal" else 0, **size)
    work = Workspace(spec, data, n_jobs, burn_in)
    sweep = Sweep(work, rating_steps(work, anchor=ANCHOR))
    draw = first_draw(spec, data, n_levels=5)
    for _ in range(SCALES_FROM + 2):
        sweep(draw)
    return sweep, draw


@njit
def fill(key, rows, shape, uniforms, normals, gammas):
    for row in range(rows):
        state = random.stream(key, row)
        for k in range(uniforms.shape[1]):
            state, uniforms[row, k] = random.uniform(state)
            state, normals[row, k, 0], normals[row, k, 1] = random.normal_pair(state)
            state, gammas[row, k] = random.gamma(state, shape)


def streams(key, shape=4.0, rows=200, many=200):
    out = np.empty((rows, many)), np.empty((rows, many, 2)), np.empty((rows, many))
    fill(key, rows, shape, *out)
    return out


@pytest.mark.parametrize("shape", [1.0, 4.0, 50.0])
def test_streams_have_the_distributions_they_should(shape):
    uniforms, normals, gammas = streams(key(7, 1), shape)
    assert uniforms.min() > 0.0
    assert uniforms.max() < 1.0
    assert stats.kstest(uniforms.ravel(), "uniform").pvalue > 0.001
    assert stats.kstest(normals.ravel(), "norm").pvalue > 0.001
    assert stats.kstest(gammas.ravel(), stats.gamma(shape).cdf).pvalue > 0.001
    assert_standard_normal(normals.reshape(-1, 2))


def test_streams_of_different_rows_are_independent():
    uniforms, normals, _ = streams(key(7, 2))
    assert len(np.unique(uniforms)) == uniforms.size
    assert_standard_normal(normals[:20].reshape(20, -1).T)
    assert_standard_normal(normals[:, :5].reshape(200, -1))


def test_the_same_key_gives_the_same_numbers_and_another_gives_others():
    first, again, other = (streams(k, rows=3)[0] for k in (key(7, 2), key(7, 2), key(7, 3)))
    np.testing.assert_array_equal(first, again)
    assert not np.isin(other, first).any()


def test_no_two_places_have_the_same_numbers():
    places = [(), (0,), (0, 0), (0, 0, 0), (1,), (1, 0), (0, 1), (0, 0, 1), (2, 0, 0)]
    keys = [key(seed, *place) for seed in (0, 1) for place in places]
    assert len(set(keys)) == len(keys)
    own = [generator(seed, *place).normal() for seed in (0, 1) for place in places[1:]]
    own += [np.random.default_rng(seed).normal() for seed in (0, 1)]
    assert len(set(own)) == len(own)


def test_chains_and_seeds_start_apart_and_not_where_a_users_own_numbers_do():
    data, _ = make_data()
    models = [
        Spec(3, 2, "gaussian", True, False, seed, chain) for seed in (0, 1) for chain in (0, 1)
    ]
    starts = [first_draw(model, data).factors[:, :3].ravel() for model in models]
    own = np.random.default_rng(0).normal(0.0, START_STD, len(starts[0])).astype(np.float32)
    assert len(np.unique([*starts, own], axis=0)) == 5


def test_quantile_is_the_inverse_that_scipy_has():
    small = np.concatenate([np.logspace(-299, -1, 600), np.linspace(0.01, 0.499, 500)])
    for p in (small, 1.0 - small[small > 1e-16]):
        got = np.array([random.quantile(x) for x in p])
        np.testing.assert_allclose(got, special.ndtri(p), rtol=1e-13)


@njit
def mass(low, high):
    return random.tails(low, high)


@pytest.mark.parametrize("at", [-30.0, -5.0, -0.1, 0.0, 0.1, 5.0, 30.0])
def test_mass_of_an_interval_is_exact_in_both_tails(at):
    for low, high in ((at, at + 0.01), (at, at + 1.0), (at, 1e30), (-1e30, at)):
        a, b, side = mass(low, high)
        near, far = (-high, -low) if side < 0 else (low, high)
        np.testing.assert_allclose([a, b], special.ndtr([near, far]), rtol=1e-12)
        assert (side < 0) == (low > 0)
        assert b > a


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 16, 20])
def test_factorise_agrees_with_cholesky(size):
    rng = np.random.default_rng(size)
    X = rng.normal(size=(size + 3, size))
    A = np.zeros((size, -(-size // 8) * 8))
    A[:, :size] = X.T @ X
    expected = np.linalg.cholesky(A[:, :size]).T
    rows.factorise(A, np.uintp(size))
    np.testing.assert_allclose(np.triu(A[:, :size]), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 30), (2, 5, 6)], ids=["two modes", "three modes"])
@pytest.mark.parametrize("with_effects", [False, True])
@pytest.mark.parametrize("sums", [np.float32, np.float64])
def test_rows_are_drawn_from_their_regression(shape, with_effects, sums):
    rng = np.random.default_rng(1)
    data, _ = make_data(shape, n=1200)  # so that a row takes more than one chunk
    assert rows.CHUNK < data.starts[0][1] < 2 * rows.CHUNK
    rank, first, n = 2, data.firsts[0], len(data)
    factors = np.zeros((sum(shape), 16), dtype=np.float32)
    factors[:, :rank] = rng.normal(size=(sum(shape), rank))
    biases = rng.normal(size=sum(shape)).astype(np.float32)
    root = rng.uniform(0.1, 0.5, n).astype(np.float32)
    target = rng.normal(size=n).astype(np.float32)
    centre = rng.normal(size=rank + 1)
    effects = rng.normal(size=(shape[0] if with_effects else 0, rank + 1)).astype(np.float32)
    precision = np.linalg.inv(np.cov(rng.normal(size=(rank + 1, 20))))
    fitted = np.zeros(n, dtype=np.float32)
    drawn = np.empty((DRAWS, 2, rank + 1))
    for number in range(DRAWS):
        rows.draw_rows(
            np.array([1, 0], dtype=np.int32), data.starts[0], data.index[0],
            data.others[0], factors, biases, first, root, target, centre, effects, precision,
            rank, key(0, number), np.empty(0, dtype=sums), fitted,
        )  # fmt: skip
        drawn[number] = np.column_stack([factors[:2, :rank], biases[:2]])
    for row in (0, 1):
        seen = data.index[0][data.starts[0][row] : data.starts[0][row + 1]]
        others = data.others[0][:, seen]
        X = np.column_stack([factors[others, :rank].prod(axis=0), np.ones(len(seen))])
        mean = centre + (effects[row] if with_effects else 0.0)
        weighted = X * root[seen, None].astype(np.float64) ** 2
        A = precision + weighted.T @ X
        h = precision @ mean + weighted.T @ (target[seen] - biases[others].sum(axis=0))
        assert_standard_normal(whitened(drawn[:, row], np.linalg.solve(A, h), A))
        own = X @ drawn[-1, row] + biases[others].sum(axis=0)
        np.testing.assert_allclose(fitted[seen], own, rtol=1e-4, atol=1e-4)
    assert not factors[:, rank:].any()


def test_roots_are_of_the_sum_over_factors_of_products():
    data, _ = make_data((3, 4, 5), n=30)
    factors = np.random.default_rng(0).gamma(4.0, size=(12, 3)).astype(np.float32)
    got = np.empty(30, dtype=np.float32)
    variances.roots(data.places, factors, got)
    expected = factors[data.places].prod(axis=0).sum(axis=1) ** -0.5
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def make_path(n, seed=0):
    rng = np.random.default_rng(seed)
    starts, index = np.array([0, n]), rng.permutation(n).astype(np.int32)
    residual, path = rng.normal(size=(2, n)).astype(np.float32)
    root = rng.uniform(0.5, 3.0, n).astype(np.float32)
    return np.zeros(1, dtype=np.int32), starts, index, residual, path, root


def covariance_of_path(phi, variance, times):
    return variance * phi ** np.abs(np.subtract.outer(times, times))


@pytest.mark.parametrize("n", [1, 7, 150])
def test_likelihood_of_path_settings_is_that_of_a_dense_normal(n):
    job = make_path(n)
    _, _, index, residual, path, root = job
    phi, variance = np.array([0.8, 0.99, 0.5]), np.array([0.3, 5.0, 500.0])
    got = np.zeros((1, 3))
    state_space.ar1_log_likelihood(*job, phi, variance, got)
    seen, weight = (residual + path)[index].astype(np.float64), root[index].astype(np.float64) ** 2
    for option in range(3):
        dense = covariance_of_path(phi[option], variance[option], np.arange(n))
        expected = stats.multivariate_normal(cov=dense + np.diag(1.0 / weight)).logpdf(seen)
        expected += 0.5 * n * math.log(2.0 * math.pi) - 0.5 * np.log(weight).sum()
        assert got[0, option] == pytest.approx(expected, rel=1e-5)


def test_paths_are_drawn_from_their_dense_conditional():
    n, phi, variance = 9, 0.8, 0.6
    job = make_path(n)
    _, _, index, residual, path, root = job
    seen, weight = (residual + path)[index].astype(np.float64), root[index].astype(np.float64) ** 2
    drawn = np.empty((DRAWS, n))
    for number in range(DRAWS):
        state_space.draw_ar1(*job, phi, variance, key(0, number))
        drawn[number] = path[index]
        np.testing.assert_allclose((residual + path)[index], seen, atol=1e-3)
    dense = covariance_of_path(phi, variance, np.arange(n))
    precision = np.linalg.inv(dense) + np.diag(weight)
    mean = np.linalg.solve(precision, weight * seen)
    assert_standard_normal(whitened(drawn, mean, precision))


@pytest.mark.parametrize("mode", [0, 1])
def test_gaps_are_expected_half_way_between_neighbours(mode):
    sweep, draw = make_sweep()
    data, starts = sweep.work.data, sweep.work.data.starts[mode]
    draw.temporal_settings[:, 0] = [0.5, 3.0, 1.0]
    got = gaps(draw, data, mode)
    assert len(got) == len(data) + data.shape[mode]
    for row in range(data.shape[mode]):
        n = starts[row + 1] - starts[row]
        seen = data.index[mode][starts[row] : starts[row + 1]]
        expected, between = np.zeros(n + 1), np.zeros(n + 1)
        for number, (own, _) in enumerate(EFFECTS):
            if own != mode:
                continue
            logit, log_variance = draw.temporal_settings[number]
            times = np.concatenate([np.arange(n) + 0.5, np.arange(n + 1)])  # what is known first
            dense = covariance_of_path(special.expit(logit), math.exp(log_variance), times)
            weights = dense[n:, :n] @ np.linalg.inv(dense[:n, :n])
            expected += weights @ draw.temporal[number, seen]
            between += np.diag(dense[n:, n:] - weights @ dense[:n, n:])
        np.testing.assert_allclose(got[starts[row] + row :][: n + 1], expected, atol=1e-5)
        np.testing.assert_allclose(
            between[1:-1], effect_variances(draw.temporal_settings, mode)[1], rtol=1e-5
        )
    own = [number for number, path in enumerate(EFFECTS) if path[0] == mode]
    total = np.exp(draw.temporal_settings[own, 1]).sum()
    assert effect_variances(draw.temporal_settings, mode)[0] == pytest.approx(total)


def test_timeline_finds_the_gap_that_counting_finds():
    data, time = make_data((4, 5), n=16)
    timeline = Timeline.of(data, time)
    cells = np.indices((4, 5, 12)).reshape(3, -1)
    codes, when = tuple(cells[:2].astype(np.int32)), cells[2] - 2
    seen = data.places - np.array(data.firsts)[:, None]
    for mode, found in enumerate(timeline.gaps(codes, when)):
        for n, (own, other) in enumerate(zip(codes[mode], codes[1 - mode], strict=True)):
            pairs = zip(time, seen[1 - mode], seen[mode], strict=True)
            before = sum((t, o) < (when[n], other) for t, o, i in pairs if i == own)
            assert found[n] == data.starts[mode][own] + own + before
    after_all = timeline.gaps(codes, np.full(len(when), 99))
    np.testing.assert_array_equal(timeline.gaps(codes, None), after_all)


def make_levels(spread=1.0, seed=0):
    """Levels of two users with cut-points of their own, some of them far from their means."""
    rng = np.random.default_rng(seed)
    starts, level = np.array([0, 25, 40]), rng.integers(5, size=40).astype(np.int32)
    mean = rng.normal(0.0, spread, 40).astype(np.float32)
    root = rng.uniform(0.5, 2.0, 40).astype(np.float32)
    widths = rng.normal(-0.3, 0.3, (2, 3))
    return np.arange(2, dtype=np.int32), starts, level, mean, root, widths


def ends_of(starts, level, widths, anchor):
    cuts = np.empty((2, 6))
    for user in (0, 1):
        ordinal.cut_points(widths[user], anchor, cuts[user])
    users = np.repeat([0, 1], np.diff(starts))
    return cuts[users, level], cuts[users, level + 1]


@pytest.mark.parametrize("anchor", [1, 2, 4])
def test_cut_points_lie_apart_by_their_widths(anchor):
    t, cuts = np.log([0.5, 1.0, 2.0]), np.empty(6)
    ordinal.cut_points(t, anchor, cuts)
    assert cuts[anchor] == 0.0
    np.testing.assert_allclose(np.diff(cuts[1:-1]), [0.5, 1.0, 2.0])
    assert cuts[0] < -1e20
    assert cuts[-1] > 1e20


@pytest.mark.parametrize("at", [-1.0, 0.0, 0.7])
def test_likelihood_of_a_scale_has_the_slope_and_curvature_of_its_differences(at):
    job = make_levels()
    _, starts, level, mean, root, widths = job

    def look(log_scale):
        sums = np.zeros((2, 3))
        ordinal.scale_likelihood(*job, 2, log_scale, sums)
        return sums.sum(axis=0)

    value, slope, curvature = look(at)
    low, high = ends_of(starts, level, widths, 2)
    by = math.exp(at) * root.astype(np.float64)
    expected = np.log(special.ndtr(by * (high - mean)) - special.ndtr(by * (low - mean))).sum()
    assert value == pytest.approx(expected, rel=1e-9)
    step = 1e-4
    before, after = look(at - step), look(at + step)
    assert slope == pytest.approx((after[0] - before[0]) / (2 * step), rel=1e-5)
    assert curvature == pytest.approx((after[1] - before[1]) / (2 * step), rel=1e-5)


@pytest.mark.parametrize("spread", [1.0, 8.0], ids=["near", "far in the tails"])
def test_hidden_values_are_truncated_normals(spread):
    job = make_levels(spread)
    _, starts, level, mean, root, widths = job
    latent, accepted = np.zeros(40, dtype=np.float32), np.zeros(2, dtype=np.bool_)
    low, high = ends_of(starts, level, widths, 2)
    drawn = np.empty((500, 40))
    for number in range(len(drawn)):
        ordinal.draw_levels(
            *job, np.zeros(3), np.ones(3), 2, 0.0, key(0, number), latent, accepted
        )  # fmt: skip
        drawn[number] = latent
    assert (drawn > low - 1e-5).all()
    assert (drawn < high + 1e-5).all()
    for n in range(40):
        a, b = root[n] * (low[n] - mean[n]), root[n] * (high[n] - mean[n])
        expected = stats.truncnorm(a, b, mean[n], 1.0 / root[n])
        assert stats.kstest(drawn[:, n], expected.cdf).pvalue > 1e-5


def log_prior(draw, spec, data):
    """Log density of all that a scale moves, by scipy."""
    D, total = spec.rank + 1, 0.0
    for mode, precision in enumerate(draw.precisions):
        part, covariance = data.part(mode), np.linalg.inv(precision)
        features = draw.features[feature_part(data, mode)]
        own = np.column_stack([draw.factors[part, : spec.rank], draw.biases[part]])
        away = own - draw.effects[part] - draw.centres[mode]
        free = freedom(D, data.shape[mode])
        total += stats.wishart(free, np.diag(1.0 / draw.scales[mode])).logpdf(precision)
        total += stats.multivariate_normal(cov=covariance).logpdf(away).sum()
        covariances = covariance / MEAN_WEIGHT, covariance / draw.strengths[mode]
        for normals, cov in zip((draw.centres[[mode]], features), covariances, strict=True):
            total += stats.multivariate_normal(cov=cov).logpdf(normals).sum()
    for number, (mode, centre) in enumerate(EFFECTS):
        settings = draw.temporal_settings[number]
        middle = [special.logit(centre), np.log(EFFECT_VARIANCE)]
        total += stats.norm(middle, SETTINGS_PRIOR).logpdf(settings).sum()
        for seen in np.split(data.index[mode], data.starts[mode][1:-1]):
            if len(seen):
                phi, variance = special.expit(settings[0]), np.exp(settings[1])
                dense = covariance_of_path(phi, variance, np.arange(len(seen)))
                total += stats.multivariate_normal(cov=dense).logpdf(draw.temporal[number, seen])
    total += stats.norm(draw.width_centre, draw.width_spread).logpdf(draw.widths).sum()
    return total + stats.norm(np.log(CUT_WIDTH), CENTRE_SPREAD).logpdf(draw.width_centre).sum()


@pytest.mark.parametrize("at", [-0.4, 0.9])
def test_scaling_changes_density_times_volume_as_the_move_reckons(at):
    sweep, draw = make_sweep(rank=2)
    spec, data = sweep.work.spec, sweep.work.data
    scaled = draw.copy()
    ordinal._scale(scaled, spec, data, at)
    volume = at * draw.temporal.size
    for moved in (1, spec.rank + 1):  # biases; of the last mode, factors too
        volume += at * moved * (sum(data.shape) + 1 - (spec.rank + 2))
    expected = log_prior(scaled, spec, data) - log_prior(draw, spec, data) + volume
    after, before = (ordinal._log_prior(draw, spec, data, x) for x in (at, 0.0))
    assert after - before == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(scaled.fitted, math.exp(at) * draw.fitted, rtol=1e-5)
    cuts = np.empty((2, 6))
    for k, some in enumerate((draw, scaled)):
        ordinal.cut_points(some.widths[0], ANCHOR, cuts[k])
    np.testing.assert_allclose(cuts[1, 1:-1], math.exp(at) * cuts[0, 1:-1])


@pytest.mark.parametrize("shape", [2.0, 20.0])
def test_newton_steps_sample_the_density_that_they_look_at(shape):
    rng, x, drawn = np.random.default_rng(0), math.log(shape), np.empty(20_000)
    for number in range(len(drawn)):

        def look(jump, x=x):  # the log of a Gamma variable
            value = math.exp(x + jump)
            return shape * (x + jump) - value, shape - value, -value

        x += ordinal._newton_step(look, rng)
        drawn[number] = x
    thinned = np.exp(drawn[:: int(2 * len(drawn) / effective_size(drawn[None]))])
    assert len(thinned) > 1000
    assert stats.kstest(thinned, stats.gamma(shape).cdf).pvalue > 0.001


def autoregressive(chains, n, phi, rng):
    x = rng.normal(size=(chains, n)) * math.sqrt(1.0 - phi**2)
    x[:, 0] = rng.normal(size=chains)
    for t in range(1, n):
        x[:, t] += phi * x[:, t - 1]
    return x


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_effective_size_is_that_of_an_autoregression(phi):
    x = autoregressive(4, 10_000, phi, np.random.default_rng(0))
    assert effective_size(x) == pytest.approx(x.size * (1.0 - phi) / (1.0 + phi), rel=0.15)
    assert split_rhat(x) < 1.01


def test_chains_apart_are_seen_by_rhat_and_effective_size():
    x = np.random.default_rng(0).normal([[0.0], [3.0]], 1.0, (2, 1000))
    assert split_rhat(x) == pytest.approx(2.0, rel=0.05)
    assert effective_size(x) < 10
    constant = np.ones((2, 100))
    assert (split_rhat(constant), effective_size(constant)) == (1.0, 200.0)
    assert split_rhat(np.repeat([[0.0], [1.0]], 10, axis=1)) == math.inf
    assert math.isnan(split_rhat(x[:, :3]))
    assert math.isnan(effective_size(x[:, :7]))


@pytest.mark.parametrize("likelihood", ["gaussian", "ordinal"])
def test_sweeps_change_every_number_of_a_draw(likelihood, monkeypatch):
    for move in ("move_signal", "move_all"):  # they change all numbers, and could hide a lost write
        monkeypatch.setattr(ordinal, move, lambda *_: None)
    sweep, draw = make_sweep(likelihood, burn_in=100)
    before = draw.copy()
    for _ in range(10):  # proposals are refused now and then
        sweep(draw)
    for name in ARRAYS:
        new, old = getattr(draw, name), getattr(before, name)
        if name == "factors":
            assert not new[:, 3:].any()
            new, old = new[:, :3], old[:, :3]
        if likelihood == "ordinal" and name == "level":
            np.testing.assert_array_equal(new, 0.5)
        elif likelihood == "gaussian" and name == "proposals":
            assert new[0] == old[0]
            assert (new[1:] != old[1:]).all()
        else:
            assert (new != old).all(), name


def test_what_follows_from_a_draw_follows_it_through_sweeps_and_moves_of_the_scale():
    sweep, draw = make_sweep()
    data, places = sweep.work.data, sweep.work.data.places

    def check():
        products = draw.factors[places].prod(axis=0).sum(axis=1)
        np.testing.assert_allclose(
            draw.fitted, products + draw.biases[places].sum(axis=0), atol=1e-4
        )
        variance = draw.noise[places].prod(axis=0).sum(axis=1)
        np.testing.assert_allclose(sweep.work.root, variance**-0.5, rtol=1e-5)
        for mode in (0, 1):
            own, other = (places[m] - data.firsts[m] for m in (mode, 1 - mode))
            expected = np.zeros((data.shape[mode], 4))
            weights = draw.features[feature_part(data, mode)][other]
            np.add.at(expected, own, weights * data.shares[mode][own, None])
            np.testing.assert_allclose(draw.effects[data.part(mode)], expected, atol=1e-4)

    moved, (precisions, rescaled) = 0, sweep.steps[:2]
    for _ in range(5):
        before = draw.noise.copy()
        precisions(draw)
        rescaled(draw)
        moved += not np.array_equal(draw.noise, before)
        check()
        sweep(draw)
        precisions(draw)
        check()
    assert moved > 1


@pytest.mark.parametrize("likelihood", ["gaussian", "ordinal"])
def test_a_chain_has_the_same_bits_for_any_number_of_threads(likelihood, monkeypatch):
    monkeypatch.setattr(training, "CHUNK", 100)  # so that there is work for each of them
    size = {"shape": (40, 50), "n": 800, "rank": regression.BLOCK + 8}
    one, *others = (make_sweep(likelihood, n_jobs=n, burn_in=5, **size)[1] for n in (1, 2, 4))
    for other in others:
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(other, name), getattr(one, name), err_msg=name)


@pytest.mark.parametrize("likelihood", ["gaussian", "ordinal"])
def test_half_precision_moves_a_prediction_by_a_thousandth_of_its_std(likelihood, world):
    y = world.y if likelihood == "gaussian" else np.clip(np.round(world.y), 1, 5)
    cells = np.column_stack([world.X, np.arange(len(y))])
    observations = observe(cells[:6000], y[:6000], time=2)
    spec = Spec(8, 2, likelihood, implicit=True, time=True, seed=0)
    sampling = prepare(spec, observations, None, None, Schedule(20, 10, 1), 1)
    chain = sampling.start()
    for _ in range(20):
        sampling.step(chain)
    draw = chain.draw
    rounded = rating_snapshot(draw, spec, sampling.data)
    exact = rounded | {
        "factors": draw.factors[:, :8], "biases": draw.biases, "noise": draw.noise,
        "widths": draw.widths, "gaps0": gaps(draw, sampling.data, 0),
        "gaps1": gaps(draw, sampling.data, 1),
    }  # fmt: skip
    codes, time = observations.codes, observations.time
    got, expected = (
        sampling.as_posterior({name: array[None] for name, array in kept.items()}).moments(
            codes, time=time
        )
        for kept in (rounded, exact)
    )
    std = np.sqrt(expected.noise)
    away = (got.mean - expected.mean) / std
    assert 0.0 < np.sqrt(np.mean(away**2)) < 1e-3
    assert np.abs(away).max() < 5e-3
    np.testing.assert_allclose(np.sqrt(got.noise), std, rtol=5e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
@pytest.mark.parametrize("likelihood", ["gaussian", "ordinal"])
def test_scrambled_held_out_values_change_no_prediction(likelihood, small_world):
    X = np.column_stack([small_world.X, np.arange(400)])
    y = np.clip(np.round(small_world.y), 1, 5)
    scrambled = np.random.default_rng(0).permutation(y[300:])
    models = [
        BayesianFactorizer(
            rank=2, likelihood=likelihood, time=2, sweeps=12, burn_in=4, random_state=0, n_jobs=1
        ).fit(X[:300], y[:300], validation=observe(X[300:], held_out, time=2))
        for held_out in (y[300:], scrambled)
    ]
    one, other = (model.predict(X, return_std=True) for model in models)
    np.testing.assert_array_equal(one, other)
    curves = [model.learning_curve_["validation_rmse"][-1] for model in models]
    assert curves[0] != curves[1]


def test_a_jump_that_no_float_holds_is_refused():
    rng = np.random.default_rng(0)
    assert ordinal._newton_step(lambda at: (0.0, 1e9, -1.0), rng) == 0.0
    assert ordinal._newton_step(lambda at: (-0.5 * at**2, -at, -1.0), rng) != 0.0
