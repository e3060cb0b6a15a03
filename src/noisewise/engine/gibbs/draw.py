"""One draw of everything unknown: what the sampler carries from sweep to sweep."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from noisewise.engine.arrays import Arrays, Floats, Source
from noisewise.engine.gibbs.data import Data, SeriesData, Spec
from noisewise.engine.random import START, generator

Floats64 = npt.NDArray[np.float64]
Snapshot = dict[str, Any]  # what predictions need of a draw, by name

START_STD = 0.15  # of factors at the start: smaller ones take many sweeps to grow
SERIES_START_STD = 0.1  # the same where series have paths of their own
FIRST_SCALE = 0.5  # of the prior of rows, before scales are drawn
EFFECTS = ((0, 0.8), (0, 0.98), (1, 0.95))  # temporal: their mode, and phi that the prior is around
EFFECT_VARIANCE = 0.03  # that the prior of their stationary variance is around
CUT_WIDTH = 0.7  # that the prior of the widths of levels is around
WIDTH_SPREAD = 0.3  # of the logs of widths between users, at the start
STILL = 1e-8  # amplitude of paths that have not joined in
POSITIVE = (
    "noise", "level", "strengths", "width_spread", "proposals", "timescales", "amplitudes",
    "variances",
)  # fmt: skip


@dataclass
class Draw:
    """Rows and their noise, in standardised units: what every model draws.

    Attributes
    ----------
    epoch
        Number of finished sweeps.
    factors, biases
        Rows of all modes, one after another; factors are padded with zeros to whole vectors.
    centres, precisions, scales
        Per mode, mean and precision of its rows, the bias last, and how far rows are expected to
        spread (see ``steps.normal_wishart``).
    noise, level
        Factors of the variance, and the prior mean of the last mode's; without factors, the level
        is the variance itself.
    fitted
        Factors' and biases' part of the mean of every observation.
    """

    epoch: int
    factors: Floats
    biases: Floats
    centres: Floats64
    precisions: Floats64
    scales: Floats64
    noise: Floats
    level: Floats64
    fitted: Floats

    def copy(self) -> Self:
        """Return a draw of its own."""
        return replace(self, **{name: array.copy() for name, array in self._arrays()})

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return all(np.isfinite(array.sum(dtype=np.float64)) for _, array in self._arrays())

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """Header and tensors of a checkpoint."""
        return {"epoch": self.epoch}, dict(self._arrays())

    def restored(self, source: Source) -> Self:
        """Return a draw like this one with what ``pack`` gave."""
        arrays = {
            name: source.array(name, str(array.dtype), *array.shape)
            for name, array in self._arrays()
        }
        for name, array in arrays.items():
            if name in POSITIVE and (array <= 0).any():
                raise source.damaged("must be above 0", name)
        epoch = source.whole("epoch")
        return replace(self, epoch=epoch, **{name: a.copy() for name, a in arrays.items()})

    def _arrays(self) -> list[tuple[str, Any]]:
        names = (field.name for field in fields(self) if field.name != "epoch")
        return [(name, getattr(self, name)) for name in names]


@dataclass
class RatingDraw(Draw):
    """All unknowns of ratings; a part that the model does not have is empty.

    Attributes
    ----------
    effects, features, strengths
        Of implicit sets: what they add to the mean of each row; the weights of every feature, those
        of the first mode's sets first; how strongly weights are pulled to zero.
    temporal, temporal_settings
        Per temporal effect, its value at every observation; logit of phi and log of the variance.
    widths, width_centre, width_spread
        Logs of the widths of levels per row of the first mode, and their mean and std.
    latent
        Hidden values of levels.
    proposals
        How far Metropolis proposals reach: cut-points, then each temporal effect.
    """

    effects: Floats
    features: Floats
    strengths: Floats64
    temporal: Floats
    temporal_settings: Floats64
    widths: Floats64
    width_centre: Floats64
    width_spread: Floats64
    latent: Floats
    proposals: Floats64

    def temporal_sum(self) -> Any:
        """Return all temporal effects together at every observation; 0 without any."""
        return self.temporal.sum(axis=0) if len(self.temporal) else np.float32(0.0)


@dataclass
class SeriesDraw(Draw):
    """All unknowns of series: rows, and an Ornstein-Uhlenbeck process for every series.

    Attributes
    ----------
    paths
        x of its series at every observation.
    timescales, amplitudes
        Of every series: the time after which x has forgotten all but 1/e, and the variance of x.
    variances
        Noise of every series, where it is not low-rank.
    """

    paths: Floats
    timescales: Floats64
    amplitudes: Floats64
    variances: Floats64


def first_draw(spec: Spec, data: Data, n_levels: int = 0) -> RatingDraw:
    """Start from small random factors, and everything else in the middle of its prior."""
    rows, n, D1 = sum(data.shape), len(data), spec.rank + 1
    many = n_levels - 2 if spec.ordinal else 0
    effects = len(EFFECTS) if spec.time else 0
    settings = [[np.log(phi / (1.0 - phi)), np.log(EFFECT_VARIANCE)] for _, phi in EFFECTS]
    implicit = rows if spec.implicit else 0
    return RatingDraw(
        **_first_rows(spec, data, START_STD, FIRST_SCALE),
        effects=np.zeros((implicit, D1), dtype=np.float32),
        features=np.zeros((implicit, D1), dtype=np.float32),
        strengths=np.ones(2 if spec.implicit else 0),
        temporal=np.zeros((effects, n), dtype=np.float32),
        temporal_settings=np.array(settings[:effects]).reshape(effects, 2),
        widths=np.full((data.shape[0], many), np.log(CUT_WIDTH)),
        width_centre=np.full(many, np.log(CUT_WIDTH)),
        width_spread=np.full(many, WIDTH_SPREAD),
        latent=np.zeros(n if spec.ordinal else 0, dtype=np.float32),
        proposals=np.array([1.0, *[0.1] * effects]),
    )


def first_series_draw(spec: Spec, data: SeriesData, shortest: float, longest: float) -> SeriesDraw:
    """Start from small random factors, and paths that stand still."""
    n = len(data.series)
    return SeriesDraw(
        **_first_rows(spec, data, SERIES_START_STD, 1.0),
        paths=np.zeros(len(data), dtype=np.float32),
        timescales=np.full(n, np.sqrt(shortest * longest)),
        amplitudes=np.full(n, STILL),
        variances=np.ones(n),
    )


def _first_rows(spec: Spec, data: Data, std: float, scale: float) -> dict[str, Any]:
    rng = generator(spec.seed, START, spec.chain)
    rows, modes, D1, K = sum(data.shape), data.n_modes, spec.rank + 1, spec.noise_rank
    factors = np.zeros((rows, -(-max(spec.rank, 1) // 16) * 16), dtype=np.float32)
    factors[:, : spec.rank] = rng.normal(0.0, std, (rows, spec.rank))
    noise = np.ones((rows, K), dtype=np.float32)
    noise[data.part(modes - 1)] /= max(K, 1)
    return {
        "epoch": 0,
        "factors": factors,
        "biases": np.zeros(rows, dtype=np.float32),
        "centres": np.zeros((modes, D1)),
        "precisions": np.tile(float(D1) * np.eye(D1), (modes, 1, 1)),
        "scales": np.full((modes, D1), scale),
        "noise": noise,
        "level": np.full(max(K, 1), 1.0 / max(K, 1)),
        "fitted": np.zeros(len(data), dtype=np.float32),
    }
