"""One draw of everything unknown: what the sampler carries from sweep to sweep."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from noisewise.engine.arrays import Floats
from noisewise.engine.gibbs.data import Floats64, Model, Problem
from noisewise.engine.random import START, generator
from noisewise.errors import ModelFileError
from noisewise.storage import Tensors, take, take_whole

START_STD = 0.15  # of factors at the start: smaller ones take many sweeps to grow
FIRST_SCALE = 0.5  # of the prior of rows, before scales are drawn
PATHS = ((0, 0.8), (0, 0.98), (1, 0.95))  # mode of a path, and phi that its prior is around
PATH_VARIANCE = 0.03  # that the prior of its stationary variance is around
CUT_WIDTH = 0.7  # that the prior of the widths of levels is around
WIDTH_SPREAD = 0.3  # of the logs of widths between users, at the start
# Parts of a draw that are above 0, those of series among them.
POSITIVE = (
    "noise", "level", "strengths", "width_spread", "steps", "lengths", "amplitudes", "variances",
)  # fmt: skip


@dataclass
class Draw:
    """All unknowns, in standardised units; a part that the model does not have is empty.

    Attributes
    ----------
    epoch
        Number of finished sweeps.
    factors, biases
        Rows of all modes, one after another; factors are padded with zeros to whole vectors.
    centres, precisions, scales
        Per mode, mean and precision of its rows, the bias last, and how far rows are expected to
        spread (see ``hyper``).
    noise, level
        Factors of the variance, and the prior mean of the last mode's; without factors, the level
        is the variance itself.
    effects, features, strengths
        Of sets: what they add to the mean of each row; the weights of every feature, those of the
        first mode's sets first; how strongly weights are pulled to zero.
    paths, path_settings
        Per path, its value at every observation; logit of phi and log of the variance.
    widths, width_centre, width_spread
        Logs of the widths of levels per row of the first mode, and their mean and std.
    latent
        Hidden values of levels.
    fitted
        Factors' and biases' part of the mean of every observation.
    steps
        How far Metropolis proposals reach: cut-points, then each path.
    """

    epoch: int
    factors: Floats
    biases: Floats
    centres: Floats64
    precisions: Floats64
    scales: Floats64
    noise: Floats
    level: Floats64
    effects: Floats
    features: Floats
    strengths: Floats64
    paths: Floats
    path_settings: Floats64
    widths: Floats64
    width_centre: Floats64
    width_spread: Floats64
    latent: Floats
    fitted: Floats
    steps: Floats64

    def copy(self) -> Self:
        """Return a draw of its own."""
        return replace(self, **{name: array.copy() for name, array in self._arrays()})

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return all(np.isfinite(array.sum(dtype=np.float64)) for _, array in self._arrays())

    def pack(self) -> tuple[dict[str, Any], Tensors]:
        """Header and tensors of a checkpoint."""
        return {"epoch": self.epoch}, dict(self._arrays())

    def restored(self, path: Any, header: dict[str, Any], tensors: Tensors) -> Self:
        """Return a draw like this one with what ``pack`` gave; the file is not trusted."""
        arrays = {
            name: take(path, tensors, name, str(array.dtype), *array.shape)
            for name, array in self._arrays()
        }
        for name, array in arrays.items():
            if name in POSITIVE and (array <= 0).any():
                raise ModelFileError(f"{path} is damaged: {name} must be above 0.")
        epoch = take_whole(path, header, "epoch")
        return replace(self, epoch=epoch, **{name: a.copy() for name, a in arrays.items()})

    def _arrays(self) -> list[tuple[str, Any]]:
        names = (field.name for field in fields(self) if field.name != "epoch")
        return [(name, getattr(self, name)) for name in names]


def first_draw(
    model: Model, problem: Problem, n_levels: int = 0, start_std: float = START_STD
) -> Draw:
    """Start from small random factors, and everything else in the middle of its prior."""
    rng = generator(model.seed, START, model.chain)
    rows, n, modes, D1 = sum(problem.shape), len(problem), problem.n_modes, model.rank + 1
    factors = np.zeros((rows, -(-max(model.rank, 1) // 16) * 16), dtype=np.float32)
    factors[:, : model.rank] = rng.normal(0.0, start_std, (rows, model.rank))
    K = model.noise_rank
    noise = np.ones((rows, K), dtype=np.float32)
    noise[problem.part(modes - 1)] /= max(K, 1)
    many = n_levels - 2 if model.ordinal else 0
    paths = len(PATHS) if model.time else 0
    settings = [[np.log(phi / (1.0 - phi)), np.log(PATH_VARIANCE)] for _, phi in PATHS[:paths]]
    sets = rows if model.sets else 0
    return Draw(
        epoch=0,
        factors=factors,
        biases=np.zeros(rows, dtype=np.float32),
        centres=np.zeros((modes, D1)),
        precisions=np.tile(float(D1) * np.eye(D1), (modes, 1, 1)),
        scales=np.full((modes, D1), FIRST_SCALE),
        noise=noise,
        level=np.full(max(K, 1), 1.0 / max(K, 1)),
        effects=np.zeros((sets, D1), dtype=np.float32),
        features=np.zeros((sets, D1), dtype=np.float32),
        strengths=np.ones(2 if model.sets else 0),
        paths=np.zeros((paths, n), dtype=np.float32),
        path_settings=np.array(settings).reshape(paths, 2),
        widths=np.full((problem.shape[0], many), np.log(CUT_WIDTH)),
        width_centre=np.full(many, np.log(CUT_WIDTH)),
        width_spread=np.full(many, WIDTH_SPREAD),
        latent=np.zeros(n if model.ordinal else 0, dtype=np.float32),
        fitted=np.zeros(n, dtype=np.float32),
        steps=np.array([1.0, *[0.1] * paths]),
    )
