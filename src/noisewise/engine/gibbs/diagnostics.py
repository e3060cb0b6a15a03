"""Whether chains have converged: split R-hat and effective sample size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noisewise.engine.gibbs.sampler import Chain
from noisewise.engine.gibbs.sweep import Floats64


def convergence(
    chains: Sequence[Chain[Any]], names: list[str], first: int
) -> dict[str, dict[str, float]]:
    """Split R-hat and effective sample size of every summary, and of the predictions of probes."""
    length = min(chain.epoch for chain in chains)
    traces = np.array([chain.trace[first:length] for chain in chains])
    probes = np.array([chain.probes[first:length] for chain in chains], dtype=np.float64)
    report = {
        name: {
            "rhat": split_rhat(traces[:, :, k]),
            "effective_size": effective_size(traces[:, :, k]),
        }
        for k, name in enumerate(names)
    }
    each = [(split_rhat(p), effective_size(p)) for p in np.moveaxis(probes, 2, 0)]
    rhat, size = np.median(each, axis=0)
    report["predictions (median)"] = {"rhat": float(rhat), "effective_size": float(size)}
    return report


def split_rhat(chains: Floats64) -> float:
    """Return how much wider all draws together are than halves of chains: 1 when they agree.

    There is a row of draws per chain.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bool(split_rhat(rng.normal(size=(2, 500))) < 1.01)
    True
    >>> bool(split_rhat(np.arange(500.0)[None]) > 1.5)
    True
    """
    half = chains.shape[1] // 2
    if half < 2:
        return float("nan")
    parts = np.concatenate([chains[:, :half], chains[:, -half:]])
    within = parts.var(axis=1, ddof=1).mean()
    between = half * parts.mean(axis=1).var(ddof=1)
    if within == 0.0:
        return 1.0 if between == 0.0 else float("inf")
    return float(np.sqrt((half - 1) / half + between / half / within))


def effective_size(chains: Floats64) -> float:
    """Return how many independent draws the mean of the draws is worth.

    Autocorrelations are summed in pairs as long as pairs are positive (Geyer), over both halves of
    every chain.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(1, 1000))
    >>> bool(600 < effective_size(draws) <= 1000)
    True
    """
    half = chains.shape[1] // 2
    if half < 4:
        return float("nan")
    parts = np.concatenate([chains[:, :half], chains[:, -half:]])
    centred = parts - parts.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, n=2 * half, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, axis=1)[:, :half].mean(axis=0) / half
    within = covariance[0] * half / (half - 1)
    total = within * (half - 1) / half + parts.mean(axis=1).var(ddof=1)
    if total == 0.0:
        return float(parts.size)
    correlation = 1.0 - (within - covariance * half / (half - 1)) / total
    correlation[0] = 1.0
    pairs = correlation[: half // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs < 0.0)
    length = 2.0 * pairs[: ends[0] if len(ends) else len(pairs)].sum() - 1.0
    return float(min(parts.size / max(length, 1e-12), parts.size))
