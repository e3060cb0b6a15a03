"""The pieces of the sampler for sensors against dense linear algebra and brute force.

Whether all pieces together sample what they should is asked in test_geweke_temporal.py.
"""

import math
from dataclasses import fields

import numpy as np
import pytest
from scipy import stats
from shared import assert_standard_normal, whitened

from noisewise.engine import data as engine_data
from noisewise.engine import state_space
from noisewise.engine.data import SeriesData, Spec
from noisewise.engine.gibbs.sampler import LaterHalf
from noisewise.engine.gibbs.series_sampler import (
    PROCESS,
    Asked,
    SeriesProbes,
    SeriesSampler,
    series_steps,
)
from noisewise.engine.gibbs.steps import temporal
from noisewise.engine.gibbs.steps.rows import draw_time_factors
from noisewise.engine.gibbs.steps.temporal import Timescales
from noisewise.engine.gibbs.sweep import (
    SERIES_FROM,
    SeriesDraw,
    SeriesWorkspace,
    Sweep,
    effective_size,
    first_series_draw,
    key,
)
from noisewise.engine.training import one_blas_thread
from noisewise.schema import Source

DRAWS = 4000
TIMESCALES = Timescales(0.5, 40.0)


def make_table(shape=(3, 2, 12), n=40, seed=0):
    """Cells at random, at irregular times; also the times of their rows."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(math.prod(shape), n, replace=False)
    codes = tuple(code.astype(np.int32) for code in np.unravel_index(chosen, shape))
    stamps = np.cumsum(rng.exponential(1.0, shape[-1]))
    values = rng.normal(size=n).astype(np.float32)
    return SeriesData.of(codes, values, shape, stamps), stamps


def make_sweep(noise_rank=0, n_jobs=1, rank=2, sweeps=SERIES_FROM + 2, **size):
    """A sweep, and a draw that all parts have joined."""
    table, _ = make_table(**size)
    spec = Spec(rank, noise_rank, "gaussian", implicit=False, time=False, seed=3)
    work = SeriesWorkspace(spec, table, n_jobs)
    sweep = Sweep(work, series_steps(work, TIMESCALES))
    draw = first_series_draw(spec, table, *TIMESCALES)
    with one_blas_thread():
        for _ in range(sweeps):
            sweep(draw)
    return sweep, draw


def covariance(series, s, timescale, amplitude):
    time = series.time[series.starts[s] : series.starts[s + 1]]
    return amplitude * np.exp(-np.abs(np.subtract.outer(time, time)) / timescale)


def make_gains(table, seed=0):
    """Settings of series, noise of observations, and the filter's numbers."""
    rng = np.random.default_rng(seed)
    n, many = len(table), len(table.series)
    timescales, amplitudes = rng.uniform(1.0, 8.0, many), rng.uniform(0.5, 2.0, many)
    noise = rng.uniform(0.1, 1.0, n).astype(np.float32)
    phi, innovations = np.zeros((2, n + 1), dtype=np.float32)
    innovations[n] = 1.0
    gain = np.empty(n, dtype=np.float32)
    state_space.set_gains(
        np.arange(many), table.series.starts, table.series.gaps, noise, timescales, amplitudes,
        phi, innovations, gain,
    )  # fmt: skip
    return timescales, amplitudes, noise, phi, innovations, gain


def test_observations_are_in_order_and_gaps_are_times():
    table, stamps = make_table()
    data, series = table, table.series
    codes = data.places - np.array(data.firsts)[:, None]
    cells = np.ravel_multi_index(tuple(codes), data.shape)
    assert (np.diff(cells) > 0).all()
    np.testing.assert_array_equal(series.time, stamps[codes[-1]])
    assert len(np.unique(cells // 12)) == len(series)
    for s in range(len(series)):
        own = slice(series.starts[s], series.starts[s + 1])
        assert np.isinf(table.series.gaps[own][0])
        np.testing.assert_allclose(table.series.gaps[own][1:], np.diff(series.time[own]))


def test_blocks_hold_every_row_of_time_once_and_bind_what_lies_across(monkeypatch):
    monkeypatch.setattr(engine_data, "SHORTEST", 3)
    table, _ = make_table()
    assert len(table.blocks) == 4
    np.testing.assert_array_equal(np.concatenate(table.blocks), np.arange(12))
    block = np.repeat(np.arange(4), [len(part) for part in table.blocks])
    row = table.places[-1] - table.firsts[-1]
    expected = np.zeros(len(row), dtype=bool)
    for n in range(1, len(row)):
        if np.isfinite(table.series.gaps[n]) and block[row[n]] != block[row[n - 1]]:
            expected[[n - 1, n]] = True
    np.testing.assert_array_equal(table.bound, expected)
    assert expected.any()
    assert not expected.all()


def test_observations_of_the_same_time_are_bound():
    codes = np.zeros(4, dtype=np.int32), np.arange(4, dtype=np.int32)
    table = SeriesData.of(codes, np.zeros(4, np.float32), (1, 4), np.array([0.0, 1, 1, 2]))
    assert table.bound.tolist() == [False, True, True, False]


def test_gains_are_those_of_the_dense_covariance():
    table, _ = make_table()
    timescales, amplitudes, noise, *_, gain = make_gains(table)
    for s in range(len(table.series)):
        own = slice(table.series.starts[s], table.series.starts[s + 1])
        full = covariance(table.series, s, timescales[s], amplitudes[s]) + np.diag(noise[own])
        surprise = np.diag(np.linalg.cholesky(full)) ** 2
        np.testing.assert_allclose(gain[own], 1.0 - noise[own] / surprise, rtol=1e-5)


@pytest.mark.parametrize("exactly", [False, True], ids=["smoothed", "drawn"])
def test_paths_are_those_of_the_dense_conditional(exactly):
    table, _ = make_table()
    series, n = table.series, len(table)
    timescales, amplitudes, noise, phi, innovations, gain = make_gains(table)
    residual = table.values
    chosen = np.arange(len(series))
    drawn = np.empty((DRAWS, n), dtype=np.float32)
    before, means, spreads = np.empty((3, n))
    if exactly:
        for number in range(DRAWS):
            state_space.draw_paths(
                chosen, series.starts, residual, noise, phi, innovations, gain, key(0, number),
                drawn[number],
            )  # fmt: skip
    else:
        state_space.smooth_paths(
            chosen, series.starts, residual, noise, phi, innovations, gain, before, means, spreads
        )
    for s in chosen:
        own = slice(series.starts[s], series.starts[s + 1])
        prior = covariance(series, s, timescales[s], amplitudes[s])
        precision = np.linalg.inv(prior) + np.diag(1.0 / noise[own])
        mean = np.linalg.solve(precision, residual[own] / noise[own])
        if exactly:
            assert_standard_normal(whitened(drawn[:, own], mean, precision))
        else:
            np.testing.assert_allclose(means[own], mean, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(spreads[own], np.diag(np.linalg.inv(precision)), rtol=1e-4)


def test_between_observations_and_beyond_them_paths_are_exact():
    table, _ = make_table()
    series, n = table.series, len(table)
    timescales, amplitudes, noise, phi, innovations, gain = make_gains(table)
    residual = table.values
    before, means, spreads = np.empty((3, n))
    chosen = np.arange(len(series))
    state_space.smooth_paths(
        chosen, series.starts, residual, noise, phi, innovations, gain, before, means, spreads
    )
    for s in chosen:
        own = slice(series.starts[s], series.starts[s + 1])
        time = series.time[own]
        when = np.concatenate([[-3.0, 99.0], time, 0.5 * (time[1:] + time[:-1])])
        which, right = np.full(len(when), s), own.start + np.searchsorted(time, when)
        middle, width = np.empty((2, len(when)))
        state_space.between(
            which, when, right, series.starts, series.time, timescales, amplitudes, before,
            gain.astype(np.float64) * noise, means, spreads, middle, width,
        )  # fmt: skip
        both = np.concatenate([when, time])
        prior = amplitudes[s] * np.exp(-np.abs(np.subtract.outer(both, both)) / timescales[s])
        cross, k = prior[: len(when), len(when) :], len(when)
        full = prior[k:, k:] + np.diag(noise[own])
        np.testing.assert_allclose(
            middle, cross @ np.linalg.solve(full, residual[own]), rtol=1e-4, atol=1e-5
        )
        left = np.diag(prior[:k, :k] - cross @ np.linalg.solve(full, cross.T))
        np.testing.assert_allclose(width, left, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_likelihood_of_settings_is_that_of_a_dense_normal(factor):
    table, _ = make_table()
    _, _, noise, *_ = make_gains(table)
    residual = table.values
    options, found = [(2.0, 0.5), (30.0, 4.0), (0.6, 1.0)], []
    for s in range(len(table.series)):
        own = slice(table.series.starts[s], table.series.starts[s + 1])
        for timescale, amplitude in options:
            got = state_space.path_log_likelihood(
                own.start,
                own.stop,
                table.series.gaps,
                residual,
                noise,
                timescale,
                amplitude,
                factor,
            )
            full = covariance(table.series, s, timescale, amplitude) + factor * np.diag(noise[own])
            expected = stats.multivariate_normal(cov=full).logpdf(residual[own])
            expected += 0.5 * (own.stop - own.start) * math.log(2.0 * math.pi)
            found.append(got - expected)
    np.testing.assert_allclose(found, 0.0, atol=1e-4)


@pytest.mark.parametrize("own_noise", [False, True])
def test_timescales_are_drawn_from_their_posterior(own_noise):
    rng = np.random.default_rng(4)
    starts, n, level, rate = np.array([0, 12]), 12, 0.4, 0.3
    gaps = np.append(np.inf, rng.exponential(1.0, n - 1))
    residual = (0.5 * rng.normal(size=n).cumsum()).astype(np.float32)
    noise = np.full(n, 0.3, dtype=np.float32)
    timescales, amplitudes, variances = np.full(1, 2.0), np.ones(1), np.full(1, 0.3)
    drawn = np.empty((40_000, 3))
    for number in range(len(drawn)):
        temporal.draw_timescales(
            np.zeros(1, np.int64), starts, gaps, residual, noise, *TIMESCALES, rate, level,
            own_noise, key(0, number), timescales, amplitudes, variances,
        )  # fmt: skip
        noise[:] = variances
        drawn[number] = np.log([timescales[0], amplitudes[0], variances[0]])
    ends = [np.log(TIMESCALES), (-6.0, 9.0), (-5.0, 4.0)]
    axes = [low + (high - low) * (np.arange(50) + 0.5) / 50 for low, high in ends]
    if not own_noise:
        assert (drawn[:, 2] == np.log(0.3)).all()
        axes[2] = np.log([0.3])
    shape, one = temporal.NOISE_SHAPE, np.ones(n, np.float32)
    log_density = np.empty([len(axis) for axis in axes])
    for at in np.ndindex(log_density.shape):
        timescale, amplitude, variance = (
            math.exp(axis[k]) for axis, k in zip(axes, at, strict=True)
        )
        log_density[at] = state_space.path_log_likelihood(
            0, n, gaps, residual, one, timescale, amplitude, variance
        )
        log_density[at] -= temporal.AMPLITUDE_SHAPE * math.log(amplitude) + rate / amplitude
        log_density[at] -= shape * math.log(variance) + (shape - 1.0) * level / variance
    density = np.exp(log_density - log_density.max())
    for k, axis in enumerate(axes[: 3 if own_noise else 2]):
        marginal = density.sum(axis=tuple(j for j in range(3) if j != k))
        marginal /= marginal.sum()
        mean = (marginal * axis).sum()
        std = math.sqrt((marginal * (axis - mean) ** 2).sum())
        error = std / math.sqrt(effective_size(drawn[None, :, k]))
        assert drawn[:, k].mean() == pytest.approx(mean, abs=4.5 * error + 0.01 * std)
        assert drawn[:, k].std() == pytest.approx(std, rel=0.1)


def test_amplitudes_and_variances_have_their_inverse_gamma_distribution():
    rng = np.random.default_rng(0)
    starts, n = np.array([0, 3, 10]), 10
    paths, residual = rng.normal(size=(2, n)).astype(np.float32)
    phi, fresh = rng.uniform(0.2, 0.8, (2, n)).astype(np.float32)
    phi[starts[:-1]], fresh[starts[:-1]] = 0.0, 1.0
    fresh[5] = 0.0  # of the same time as the one before: says nothing
    drawn = np.array(
        [temporal.draw_amplitudes(starts, paths, phi, fresh, rng) for _ in range(DRAWS)]
    )
    noise = np.array([temporal.draw_variances(starts, residual, 0.7, rng) for _ in range(DRAWS)])
    for s, told in enumerate(([0, 1, 2], [3, 4, 6, 7, 8, 9])):
        steps = paths[told] - phi[told] * np.append(0.0, paths)[told]
        rate = temporal.AMPLITUDE_RATE + 0.5 * (steps**2 / fresh[told]).sum()
        shape = temporal.AMPLITUDE_SHAPE + 0.5 * len(told)
        assert stats.kstest(drawn[:, s], stats.invgamma(shape, scale=rate).cdf).pvalue > 1e-3
        own = residual[starts[s] : starts[s + 1]].astype(np.float64)
        rate = (temporal.NOISE_SHAPE - 1.0) * 0.7 + 0.5 * (own**2).sum()
        shape = temporal.NOISE_SHAPE + 0.5 * len(own)
        assert stats.kstest(noise[:, s], stats.invgamma(shape, scale=rate).cdf).pvalue > 1e-3


def make_rows(shape, rank=2, seed=1, **size):
    rng = np.random.default_rng(seed)
    table, _ = make_table(shape, **size)
    factors = np.zeros((sum(shape), 16), dtype=np.float32)
    factors[:, :rank] = rng.normal(size=(sum(shape), rank))
    biases = rng.normal(size=sum(shape)).astype(np.float32)
    centre = rng.normal(size=rank + 1)
    precision = np.linalg.inv(np.cov(rng.normal(size=(rank + 1, 20))))
    return table, factors, biases, centre, precision


@pytest.mark.parametrize("shape", [(6, 7), (3, 2, 7)], ids=["two modes", "three modes"])
def test_a_row_of_time_and_its_paths_are_drawn_together_given_the_neighbours(shape):
    rank, mode, row = 1, len(shape) - 1, 3
    table, factors, biases, centre, precision = make_rows(shape, rank, n=30)
    data = table
    timescales, amplitudes, noise, phi, innovations, _ = make_gains(table)
    paths = np.random.default_rng(2).normal(size=len(data)).astype(np.float32)
    start = paths.copy()
    fitted = np.zeros(len(data), dtype=np.float32)
    seen = np.flatnonzero(data.places[mode] == data.firsts[mode] + row)
    bound = np.zeros(len(data), dtype=bool)
    bound[seen[0]] = True
    assert len(seen) >= 3
    place = data.firsts[mode] + row
    drawn = np.empty((DRAWS, rank + 1 + len(seen) - 1))
    for number in range(DRAWS):
        draw_time_factors(
            np.array([row], dtype=np.int32), data.starts[mode], data.index[mode],
            data.others[mode], factors, biases, data.firsts[mode], bound, noise, phi,
            innovations, data.values, centre, precision, rank, key(0, number), key(1, number),
            paths, fitted,
        )  # fmt: skip
        drawn[number] = [*factors[place, :rank], biases[place], *paths[seen[1:]]]
    rest = np.setdiff1d(np.arange(len(data)), seen[1:])
    np.testing.assert_array_equal(paths[rest], start[rest])
    inverse = np.zeros((len(data), len(data)))
    for s in range(len(table.series)):
        own = slice(table.series.starts[s], table.series.starts[s + 1])
        inverse[own, own] = np.linalg.inv(covariance(table.series, s, timescales[s], amplitudes[s]))
    others = np.delete(data.places, mode, axis=0)[:, seen]
    X = np.column_stack([factors[others, :rank].prod(axis=0), np.ones(len(seen))])
    Z = np.column_stack([X, np.eye(len(seen))[:, 1:]])  # the unknowns: row, bias, free paths
    W = np.diag(1.0 / noise[seen].astype(np.float64))
    y = data.values[seen] - biases[others].sum(axis=0)
    y[0] -= start[seen[0]]
    free = seen[1:]
    prior = np.zeros((Z.shape[1], Z.shape[1]))
    prior[: rank + 1, : rank + 1] = precision
    prior[rank + 1 :, rank + 1 :] = inverse[np.ix_(free, free)]
    pull = np.append(precision @ centre, -inverse[np.ix_(free, rest)] @ start[rest])
    A = prior + Z.T @ W @ Z
    mean = np.linalg.solve(A, pull + Z.T @ W @ y)
    assert_standard_normal(whitened(drawn, mean, A))


@pytest.mark.parametrize("noise_rank", [0, 2])
def test_a_sweep_changes_every_part_and_reports_what_is_left(noise_rank):
    sweep, draw = make_sweep(noise_rank)
    before = draw.copy()
    info = sweep(draw)
    kept_still = {"epoch", "scales"}
    kept_still |= {"variances"} if noise_rank else {"noise", "level"}
    for field in fields(SeriesDraw):
        old, new = (getattr(d, field.name) for d in (before, draw))
        if field.name not in kept_still:
            assert not np.array_equal(old, new), field.name
    residual = sweep.work.data.values - draw.fitted - draw.paths
    assert info.train_rmse == pytest.approx(np.sqrt(np.mean(residual**2)), rel=1e-5)
    places, firsts = sweep.work.data.places, sweep.work.data.firsts
    assert places.min() == firsts[0]
    fit = draw.factors[places].prod(axis=0).sum(axis=1) + draw.biases[places].sum(axis=0)
    np.testing.assert_allclose(draw.fitted, fit, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("noise_rank", [0, 2])
def test_sweeps_have_the_same_bits_for_any_number_of_threads(noise_rank, monkeypatch):
    monkeypatch.setattr(engine_data, "SHORTEST", 4)
    one, *others = (make_sweep(noise_rank, n_jobs=n, shape=(7, 3, 40), n=500)[1] for n in (1, 2, 4))
    for other in others:
        for field in fields(SeriesDraw):
            np.testing.assert_array_equal(getattr(other, field.name), getattr(one, field.name))


@pytest.mark.parametrize("burn_in", [0, 3, 30])
@pytest.mark.parametrize("samples", [1, 4, 10])
def test_draws_are_thinned_as_the_chain_grows(burn_in, samples):
    schedule, before = LaterHalf(200, burn_in, samples), set()
    for epoch in range(1, 200):
        kept = schedule.kept_by(epoch)
        assert len(kept) <= samples
        assert set(kept) <= before | {epoch}  # what was dropped does not come back
        assert all(max(burn_in, epoch // 2) < sweep <= epoch for sweep in kept)
        assert len(kept) >= min(epoch - schedule.first(epoch), samples) // 2
        assert len(set(np.diff(kept).tolist())) <= 1
        before = set(kept)


def make_sampling(noise_rank=0, sweeps=40, **size):
    table, _ = make_table(**size)
    spec = Spec(2, noise_rank, "gaussian", implicit=False, time=False, seed=3)
    return SeriesSampler(spec, table, TIMESCALES, LaterHalf(sweeps, 5, 8), 1)


def test_probes_are_observed_series_at_observed_times():
    table, stamps = make_table()
    probes = SeriesProbes.at_random(table)
    series = table.series
    for k in range(50):
        s = probes.which[k]
        own = slice(series.starts[s], series.starts[s + 1])
        np.testing.assert_array_equal(probes.places[:-1, k], table.places[:-1, series.starts[s]])
        row = probes.places[-1, k] - table.firsts[-1]
        assert probes.when[k] == stamps[row]
        assert probes.right[k] == own.start + np.searchsorted(series.time[own], probes.when[k])


@pytest.mark.parametrize("noise_rank", [0, 2])
def test_predictions_are_averages_of_conditional_means_over_the_kept_draws(noise_rank):
    sampling = make_sampling(noise_rank)
    chain = sampling.start()
    with one_blas_thread():
        for _ in range(30):
            sampling.step(chain)
    posterior = sampling.posterior(chain)
    assert len(posterior) == len(sampling.schedule.kept_by(30)) == 8
    data, series = sampling.data, sampling.data.series
    codes = np.indices(data.shape).reshape(3, -1).astype(np.int32)
    keys = series_numbers(sampling.data)
    which = np.array([keys.get(cell, -1) for cell in zip(*codes[:-1].tolist(), strict=True)])
    sensor = np.zeros(len(which), dtype=np.int64)
    sensors = np.zeros(len(series), dtype=np.int64)
    asked = Asked(codes, which, sampling.data.stamps[codes[-1]], sensor, sensors)
    mean, noise, epistemic = posterior.moments(asked)
    total, square, variance = np.zeros((3, len(which)))
    for draw in range(len(posterior)):
        one = dense_prediction(posterior, draw, asked)
        total += one[0] / len(posterior)
        square += (one[0] ** 2 + one[1]) / len(posterior)
        variance += one[2] / len(posterior)
    np.testing.assert_allclose(mean, total, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(epistemic, square - total**2, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(noise, variance, rtol=1e-3)
    by_series = posterior.noise_by_series()
    own = np.array([noise[which == s].mean() for s in range(len(series))])
    if noise_rank == 0:
        np.testing.assert_allclose(by_series, own, rtol=1e-4)
    assert (by_series > 0).all()


def series_numbers(table):
    codes = table.places[:-1, table.series.starts[:-1]]
    codes = codes - np.array(table.firsts[:-1])[:, None]
    return {cell: s for s, cell in enumerate(zip(*codes.tolist(), strict=True))}


def dense_prediction(posterior, draw, asked):
    """Mean, its variance, and noise of cells in one draw, by dense matrices."""
    one = {name: kept[draw].astype(np.float64) for name, kept in posterior.draws.items()}
    settings = {name: one[name] for name in PROCESS}
    firsts = np.cumsum([0, *posterior.shape[:-1]])[:, None]

    def rows_of(codes):
        at = codes + firsts
        return one["factors"][at].prod(axis=0).sum(axis=1) + one["biases"][at].sum(axis=0)

    def noise_of(codes, which):
        if one["noise"].shape[1]:
            return one["noise"][codes + firsts].prod(axis=0).sum(axis=1)
        typical = np.exp(np.log(settings["variances"]).mean())
        return np.where(which >= 0, settings["variances"][which], typical)

    mean, spread = rows_of(asked.codes), np.zeros(len(asked.which))
    spread[asked.which < 0] = np.exp(np.log(settings["amplitudes"]).mean())
    residual = posterior.values - rows_of(posterior.codes)
    train_noise = noise_of(posterior.codes, posterior.series.which)
    for s in range(len(posterior.series)):
        own, cells = posterior.series.which == s, np.flatnonzero(asked.which == s)
        both = np.concatenate([asked.when[cells], posterior.series.time[own]])
        apart = np.abs(np.subtract.outer(both, both))
        prior = settings["amplitudes"][s] * np.exp(-apart / settings["timescales"][s])
        k = len(cells)
        full = prior[k:, k:] + np.diag(train_noise[own])
        mean[cells] += prior[:k, k:] @ np.linalg.solve(full, residual[own])
        spread[cells] = np.diag(
            prior[:k, :k] - prior[:k, k:] @ np.linalg.solve(full, prior[k:, :k])
        )
    return mean, spread, noise_of(asked.codes, asked.which)


def test_a_restored_chain_goes_on_with_the_same_bits():
    sampling = make_sampling()
    chain, half = sampling.start(), None
    with one_blas_thread():
        for epoch in range(30):
            sampling.step(chain)
            if epoch == 17:
                header, tensors = chain.pack()
                copies = {name: tensor.copy() for name, tensor in tensors.items()}
                half = sampling.start().restored(Source(header, copies))
        for _ in range(12):
            sampling.step(half)
    one, other = (sampling.posterior(c) for c in (chain, half))
    for name, kept in one.draws.items():
        np.testing.assert_array_equal(other.draws[name], kept)
    assert sampling.mean_error(chain) == sampling.mean_error(half)


def test_a_chain_without_a_kept_draw_predicts_by_its_current_one():
    sampling = make_sampling()
    chain = sampling.start()
    with one_blas_thread():
        sampling.step(chain)
    assert len(sampling.posterior(chain)) == 1
    assert sampling.mean_error(chain) == math.inf
