"""What all others say of an observation, from draws that have seen it, beside the exact answer."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from noisewise.engine.data import Scale
from noisewise.engine.gibbs import left_out
from noisewise.engine.gibbs.left_out import Look
from noisewise.engine.gibbs.steps.ordinal import cut_points

SWEEPS, N = 10_000, 20
LEVELS = np.arange(1.0, 6.0)
CUTS = np.array([-1.5, -0.7, 0.4, 1.6])


def draws(n_levels):
    """Return means and variances of others, what was seen, and a look in each of many sweeps."""
    rng = np.random.default_rng(0)
    mean, variance, noise = rng.normal(0, 0.7, N), rng.uniform(0.1, 0.6, N), 0.8
    f = mean + rng.normal(size=(100_000, 1)) * np.sqrt(variance)
    if not n_levels:
        value = mean + rng.normal(0.0, 1.5, N)
        likely = np.exp(-0.5 * (value - f) ** 2 / noise)
    else:
        seen = rng.integers(n_levels, size=N)
        ends = np.concatenate([[-np.inf], CUTS, [np.inf]])
        low, high = ((ends[seen + k] - f) / np.sqrt(noise) for k in (0, 1))
        likely = ndtr(high) - ndtr(low)
    weight = likely / likely.sum(axis=0)
    chosen = np.stack([rng.choice(len(f), SWEEPS, p=weight[:, n]) for n in range(N)], axis=1)
    own = np.take_along_axis(f, chosen, axis=0)
    if n_levels:  # hidden values, given f and the level that was seen
        low, high = (np.take_along_axis(ndtr(end), chosen, axis=0) for end in (low, high))
        value = own + np.sqrt(noise) * ndtri(low + rng.uniform(size=own.shape) * (high - low))
    else:
        seen, value = value, np.broadcast_to(value, own.shape)
    root = np.full(N, noise**-0.5)
    looks = [Look(own[s], root, value[s]) for s in range(SWEEPS)]
    return mean, variance + noise, seen, looks


def test_numbers_are_as_if_they_had_not_been_seen():
    mean, total, seen, looks = draws(0)
    sums = sum(np.vstack([*look.sums(), np.ones(N)]) for look in looks)
    scale = Scale(3.0, 2.0, -9.0, 9.0, np.empty(0, dtype=np.float32), 1)
    found = left_out.found(sums, seen, scale)
    np.testing.assert_allclose(found.truth, 3.0 + 2.0 * seen)
    np.testing.assert_allclose(found.mean, 3.0 + 2.0 * mean, atol=0.15)
    np.testing.assert_allclose(found.std, 2.0 * np.sqrt(total), rtol=0.05)
    assert found.share == pytest.approx(np.mean(1.0 - 0.8 / total), abs=0.02)
    assert left_out.found(sums * 1e-4, seen, scale) is None  # of too few sweeps


def test_means_are_clipped_as_they_are_in_every_draw():
    rng = np.random.default_rng(0)
    mean, std = np.array([-2.0, 0.3, 1.1, 1.0]), np.array([0.5, 0.9, 0.4, 0.0])
    drawn = mean + std * rng.normal(size=(200_000, 4))
    for low, high in ((-1.0, 1.0), (-np.inf, 1.0), (-np.inf, np.inf)):
        exact = drawn.clip(low, high).mean(axis=0)
        np.testing.assert_allclose(left_out._clipped(mean, std, low, high), exact, atol=0.01)


def test_levels_are_as_if_they_had_not_been_seen():
    mean, total, seen, looks = draws(5)
    unit = 1.7  # in which all is measured
    cuts = np.tile(unit * CUTS, (N, 1)).T
    sums = sum(np.vstack([*look.times(unit).sums(), cuts, np.ones(N)]) for look in looks)
    assert len(sums) == left_out.rows(5)
    scale = Scale(0.0, 1.0, 1.0, 5.0, LEVELS.astype(np.float32), 3)
    found = left_out.found(sums, seen.astype(np.float64), scale)
    below = ndtr((CUTS - mean[:, None]) / np.sqrt(total)[:, None])
    exact = np.diff(below, axis=1, prepend=0.0, append=1.0)
    np.testing.assert_allclose(found.chances, exact, atol=0.03)
    np.testing.assert_allclose(found.mean, exact @ LEVELS, atol=0.06)
    assert (found.truth == LEVELS[seen]).all()


def test_noise_that_has_seen_an_outlier_is_smaller_without_it():
    rng = np.random.default_rng(0)
    log = rng.normal(0.0, 0.3, (SWEEPS, 2))
    value = np.array([0.0, 4.0])
    looks = [Look(np.zeros(2), np.exp(-0.5 * one), value) for one in log]
    sums = sum(np.vstack([*look.sums(), np.ones(2)]) for look in looks)
    scale = Scale(0.0, 1.0, -9.0, 9.0, np.empty(0, dtype=np.float32), 1)
    usual, outlier = left_out.found(sums, value, scale).std
    assert outlier < 0.9 * usual


@pytest.mark.parametrize("anchor", [1, 2, 4])
def test_cut_points_are_those_of_the_sampler(anchor):
    widths = np.random.default_rng(0).normal(size=(1, 3))
    ends = np.empty(6)
    cut_points(widths[0], anchor, ends)
    np.testing.assert_allclose(left_out.cuts_of(widths, anchor)[0], ends[1:-1], atol=1e-12)
    assert left_out.cuts_of(np.empty((2, 0)), 1).tolist() == [[0.0], [0.0]]
