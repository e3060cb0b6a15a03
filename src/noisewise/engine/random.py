"""Random numbers and the normal distribution inside compiled loops.

Every row has a stream of its own, so that threads do not matter: a splitmix64 counter, 64 bits of
state that start from a key and the number of the row. numba's own generator belongs to a thread,
and so would the draws. scipy has the quantile too, but what calls it there cannot be cached.
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
_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
TINY = 1e-300


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


@njit(inline="always")
def below(x):
    """Return the share of a standard normal below x."""
    return 0.5 * math.erfc(-x * _ROOT_HALF)


@njit(inline="always")
def density(x):
    """Return the density of a standard normal at x."""
    return _DENSITY * math.exp(-0.5 * x * x)


@njit(inline="always")
def tails(low, high):
    """Return the shares below both ends, from the side where they are small, and that side."""
    if low > 0.0:
        return below(-high), below(-low), -1.0
    return below(low), below(high), 1.0


@njit(nogil=True, cache=True)
def quantile(p):
    """Return x with ``below(x) = p`` to about 16 digits (Wichura's AS 241)."""
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        a = ((((((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r
            + 6.7265770927008700853e4) * r + 4.5921953931549871457e4) * r
            + 1.3731693765509461125e4) * r + 1.9715909503065514427e3) * r
            + 1.3314166789178437745e2) * r + 3.3871328727963666080e0  # fmt: skip
        b = ((((((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r
            + 3.9307895800092710610e4) * r + 2.1213794301586595867e4) * r
            + 5.3941960214247511077e3) * r + 6.8718700749205790830e2) * r
            + 4.2313330701600911252e1) * r + 1.0  # fmt: skip
        return q * a / b
    r = math.sqrt(-math.log(max(p if q < 0.0 else 1.0 - p, TINY)))
    if r <= 5.0:
        r -= 1.6
        a = ((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r
            + 2.41780725177450611770e-1) * r + 1.27045825245236838258e0) * r
            + 3.64784832476320460504e0) * r + 5.76949722146069140550e0) * r
            + 4.63033784615654529590e0) * r + 1.42343711074968357734e0  # fmt: skip
        b = ((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r
            + 1.51986665636164571966e-2) * r + 1.48103976427480074590e-1) * r
            + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0) * r
            + 2.05319162663775882187e0) * r + 1.0  # fmt: skip
    else:
        r -= 5.0
        a = ((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r
            + 1.24266094738807843860e-3) * r + 2.65321895265761230930e-2) * r
            + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0) * r
            + 5.46378491116411436990e0) * r + 6.65790464350110377720e0  # fmt: skip
        b = ((((((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r
            + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4) * r
            + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1) * r
            + 5.99832206555887937690e-1) * r + 1.0  # fmt: skip
    return -a / b if q < 0.0 else a / b
