"""Draws that go on as filters: the same as a posterior that has the new readings, untrained."""

from dataclasses import replace

import numpy as np
import pytest

from noisewise import TemporalFactorizer
from noisewise.engine.gibbs.series.online import DRAWS, Online
from noisewise.engine.gibbs.series.posterior import Asked

KINDS = ("ou", "matern32")
N = 4


def fitted(**settings):
    rng = np.random.default_rng(0)
    hours = np.arange(96)
    common = np.sin(hours / 24 * 2 * np.pi) + np.cumsum(rng.normal(0, 0.2, 96))
    rows = [
        (s, float(t), (1 + 0.5 * s) * common[t] + 0.3 * rng.normal())
        for s in range(N)
        for t in hours
        if (s + 3 * t) % 7
    ]
    quick = {"sweeps": 30, "burn_in": 4, "samples": DRAWS, "tolerance": None, "random_state": 0}
    return TemporalFactorizer(**(quick | {"rank": 2} | settings)).fit(rows).posterior_


def asked(when):
    which = np.arange(N)
    return Asked(which[None].astype(np.int32), which, np.full(N, when), which * 0, which * 0)


@pytest.mark.parametrize("kernel", KINDS)
@pytest.mark.parametrize("seasons", [None, [24.0]])
def test_without_readings_it_says_what_the_posterior_says_of_later_moments(kernel, seasons):
    posterior = fitted(kernel=kernel, seasons=seasons, tails="heavy")
    for when in (95.5, 100.0, 170.0):
        expected = posterior.moments(asked(when))
        found = Online.of(posterior).at(97.0 if when > 97 else 95.0).at(when).moments(np.arange(N))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kernel", KINDS)
def test_readings_of_series_alone_are_taken_in_exactly(kernel):
    posterior = fitted(kernel=kernel, rank=0)
    new = (1, 97.5, 0.8)  # a reading: of a series, at a time
    state = Online.of(posterior).at(new[1]).given(np.array([new[0]]), np.array([new[2]]))
    found = state.at(99.0).moments(np.arange(N))
    place = int(posterior.series.starts[new[0] + 1])
    stamps = np.append(posterior.stamps, new[1])
    longer = replace(
        posterior,
        shape=(*posterior.shape[:-1], len(stamps)),
        codes=np.insert(posterior.codes, place, [new[0], len(stamps) - 1], axis=1),
        values=np.insert(posterior.values, place, np.float32(new[2])),
        stamps=stamps,
        draws=posterior.draws
        | {
            "factors": np.zeros((len(posterior), len(stamps), 0), np.float32),
            "slopes": np.zeros((len(posterior), len(stamps), 0), np.float32),
        },
    )
    for one, other in zip(found, longer.moments(asked(99.0)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kernel", KINDS)
def test_a_reading_tells_of_other_series_by_what_they_share(kernel):
    posterior = fitted(kernel=kernel)
    state = Online.of(posterior).at(98.0)
    one = Online(**{k: v[:1] if k in SHARED else v for k, v in vars(state).items()})
    which, values = np.array([0, 2]), np.array([0.5, -1.0])
    rows = np.zeros((N, one.means.shape[1]))
    rows[:, 0:4:2] = one.loadings[0, :, :2]
    rows[np.arange(N), 2 * (2 + np.arange(N))] = 1.0
    joint = rows @ one.covariances[0] @ rows.T
    mean = rows @ one.means[0] + one.loadings[0, :, -1]
    full = joint[np.ix_(which, which)] + np.diag(one.variances[0, which])
    gain = np.linalg.solve(full, joint[which]).T
    expected = mean + gain @ (values - mean[which])
    spread = np.diag(joint - gain @ joint[which])
    found = one.given(which, values).moments(np.arange(N))
    np.testing.assert_allclose(found.mean, expected, rtol=1e-8)
    np.testing.assert_allclose(found.epistemic, spread, rtol=1e-6)
    again = one.given(which[:1], values[:1]).given(which[1:], values[1:]).moments(np.arange(N))
    np.testing.assert_allclose(again.mean, found.mean, rtol=1e-8)


SHARED = (
    "means", "covariances", "loadings", "timescales", "amplitudes", "variances", "slot_noise",
    "profiles", "calendar_settings",
)  # fmt: skip


def test_time_does_not_go_back():
    with pytest.raises(ValueError, match=r"must not be before 95\.0"):
        Online.of(fitted(rank=1)).at(3.0)
