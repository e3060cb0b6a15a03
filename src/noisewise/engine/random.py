"""Random numbers inside compiled loops: one stream per row, so that threads do not matter.

A stream is a splitmix64 counter: 64 bits of state that start from a key and the number of the row.
numba's own generator belongs to a thread, and so would the draws.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_STEP, _MIX, _MIX2 = (
    np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_APART = np.uint64(0xD1342543DE82EF95)
_ONE, _S11, _S27, _S30, _S31 = (np.uint64(k) for k in (1, 11, 27, 30, 31))


START, SWEEP, FOLD = range(3)  # what random numbers are for: the first of a place


def key(seed: int, *place: int) -> np.uint64:
    """Return the key of all streams of one draw, say of one conditional in one sweep."""
    return np.uint64(_sequence(seed, place).generate_state(1, np.uint64)[0])


def generator(seed: int, *place: int) -> np.random.Generator:
    """Return a generator of its own for one draw; no other place or seed has the same numbers."""
    return np.random.default_rng(_sequence(seed, place))


def _sequence(seed: int, place: tuple[int, ...]) -> np.random.SeedSequence:
    # As entropy, [seed, 0] would be the same as seed; a spawn key is never the same as none.
    return np.random.SeedSequence(seed, spawn_key=place)


@njit(inline="always")
def stream(key, number):
    """Return the state that the stream of a row starts from."""
    return _mixed(key + (np.uint64(number) + _ONE) * _APART)


@njit(inline="always")
def _mixed(x):
    x = (x ^ (x >> _S30)) * _MIX
    x = (x ^ (x >> _S27)) * _MIX2
    return x ^ (x >> _S31)


@njit(inline="always")
def uniform(state):
    """Return the next state, and a number strictly between 0 and 1."""
    state = state + _STEP
    return state, (np.float64(_mixed(state) >> _S11) + 0.5) * 2.0**-53


@njit(inline="always")
def normal_pair(state):
    """Return the next state, and two standard normals (Marsaglia's polar method)."""
    while True:
        state, a = uniform(state)
        state, b = uniform(state)
        a, b = 2.0 * a - 1.0, 2.0 * b - 1.0
        square = a * a + b * b
        if 0.0 < square < 1.0:
            scale = math.sqrt(-2.0 * math.log(square) / square)
            return state, a * scale, b * scale


@njit(inline="always")
def normal(state, spare, has_spare):
    """Return the next state, a standard normal, and another one to be used next, if there is."""
    if has_spare:
        return state, spare, spare, False
    state, z, spare = normal_pair(state)
    return state, z, spare, True


@njit(inline="always")
def gamma(state, shape):
    """Return the next state, and a Gamma of scale 1; shape at least 1 (Marsaglia and Tsang)."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        state, x, _ = normal_pair(state)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        state, u = uniform(state)
        if math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
            return state, d * v
