"""Small experiments behind single claims: what an epoch costs, and what becomes of clean data."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise import metrics
from noisewise.data import Ids, Observations
from noisewise.data.synthetic import SyntheticRatings, make_ratings
from noisewise.models.deviation import DeviationFactorizer
from noisewise.splits import random_split
from noisewise_reproduction.runs.rating_runs import zeros
from noisewise_reproduction.runs.run import Numbers

TEST = 0.2
L2 = 0.002  # small, so that the factors of a tensor do not vanish, which would be cheaper

Codes = NDArray[np.int64]


def cost_of_observations(cost: dict[str, Any], seed: int, n_jobs: int) -> Numbers:
    """Measure seconds of an epoch over the number of observations, and the exponent.

    Always with one thread.
    """
    every = drawn_cells(cost["shape"], max(cost["observations"]), seed)
    parts = [every.take(slice(n)) for n in cost["observations"]]
    seconds = [epoch_seconds(part, cost["rank"], cost["epochs"], seed) for part in parts]
    return _scaling(cost["observations"], seconds)


def cost_of_rank(cost: dict[str, Any], seed: int, n_jobs: int) -> Numbers:
    """Measure seconds of an epoch over the rank of mean and deviation, and the exponent."""
    seen = drawn_cells(cost["shape"], cost["at"], seed)
    seconds = [epoch_seconds(seen, rank, cost["epochs"], seed) for rank in cost["ranks"]]
    return _scaling(cost["ranks"], seconds)


def cost_of_modes(modes: dict[str, Any], seed: int, n_jobs: int) -> Numbers:
    """Measure seconds of an epoch on the same cells as a tensor and as a matrix, and the ratio."""
    tensor = drawn_cells(modes["shape"], modes["observations"], seed)
    seconds = [
        epoch_seconds(seen, modes["rank"], modes["epochs"], seed)
        for seen in (as_matrix(tensor), tensor)
    ]
    return {"matrix": seconds[0], "tensor": seconds[1], "ratio": seconds[1] / seconds[0]}


def equal_noise(equal: dict[str, Any], seed: int, n_jobs: int) -> Numbers:
    """Measure how far Biased MF and DMF are off the true means, where nothing is to be gained.

    That is a world with the same noise everywhere; beside it stands one where noise differs.
    """
    numbers: Numbers = {}
    for name, deviation_rank in equal["worlds"].items():
        world = make_ratings(**equal["world"], deviation_rank=deviation_rank, seed=seed)
        train, test = _halves(world, seed)
        numbers[name] = {}
        for model, rank in (("biased-mf", 0), ("dmf", equal["deviation_rank"])):
            given = {**equal["settings"], "deviation_rank": rank}
            fitted = _fitted(given, train, seed, n_jobs)
            numbers[name][model] = metrics.rmse(test.true_mean, fitted.predict(test.observations))
        numbers[name]["difference"] = numbers[name]["dmf"] - numbers[name]["biased-mf"]
    return numbers


def clean_data(clean: dict[str, Any], seed: int, n_jobs: int) -> Numbers:
    """Measure the deviations that are learned from ratings without noise, and from noisy ones.

    "level" is the root mean square of the learned noise over the std of all ratings, "spread" the
    std of the learned variance over its mean, 0 if all cells share one; both on held-out cells.
    """
    numbers: Numbers = {}
    for name, noise in clean["noises"].items():
        world = make_ratings(**clean["world"], noise=noise, seed=seed)
        train, test = _halves(world, seed)
        fitted = _fitted(clean["settings"], train, seed, n_jobs)
        _, learned, _ = fitted.predict_parts(test.observations)
        variance = learned.astype(np.float64) ** 2
        numbers[name] = {
            "level": math.sqrt(variance.mean()) / float(train.observations.values.std()),
            "spread": float(variance.std() / variance.mean()),
            "true_level": float(np.sqrt(np.mean(test.true_std**2)))
            / float(train.observations.values.std()),
            "rmse": metrics.rmse(test.true_mean, fitted.predict(test.observations)),
            "zeros": zeros(fitted)["both"],
            "epochs": fitted.n_epochs_,
        }
    return numbers


def epoch_seconds(seen: Observations, rank: int, epochs: int, seed: int) -> float:
    """Return the median seconds of an epoch of one thread, the first left out."""
    model = DeviationFactorizer(
        rank, deviation_rank=rank, epochs=1 + epochs, patience=None, warmup=0, l2=L2,
        keep_seen=False, random_state=seed, n_jobs=1,
    )  # fmt: skip
    seconds: list[float] = model.fit(seen).learning_curve_["seconds"]
    return statistics.median(seconds[1:])


def drawn_cells(shape: list[int], n: int, seed: int) -> Observations:
    """Draw different cells of a matrix or a tensor, in random order, with values to learn from.

    Examples
    --------
    >>> drawn_cells([30, 20], 100, seed=0)
    Observations(100 of 30 mode0 x 20 mode1)
    """
    rng = np.random.default_rng(seed)
    cells = rng.choice(math.prod(shape), n, replace=False)
    codes = [code.astype(np.int32) for code in np.unravel_index(cells, shape)]
    parts = [rng.normal(size=size)[code] for size, code in zip(shape, codes, strict=True)]
    values = sum(parts) + np.prod(parts, axis=0) + rng.normal(0.0, 0.5, n)
    ids = tuple(Ids(np.arange(size), f"mode{mode}") for mode, size in enumerate(shape))
    return Observations(tuple(codes), values.astype(np.float32), ids)


def as_matrix(tensor: Observations) -> Observations:
    """Return the same observations with all modes but the last as one."""
    *first, last = tensor.codes
    shape = tensor.shape[:-1]
    series: Codes = np.ravel_multi_index(first, shape)
    ids = Ids(np.arange(math.prod(shape)), "series"), tensor.ids[-1]
    return Observations((series.astype(np.int32), last), tensor.values, ids)


def _scaling(sizes: list[int], seconds: list[float]) -> Numbers:
    """Fit seconds = a * size ** exponent by least squares of logarithms."""
    exponent, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    return {"sizes": list(sizes), "seconds": seconds, "exponent": float(exponent)}


def _halves(world: SyntheticRatings, seed: int) -> tuple[SyntheticRatings, SyntheticRatings]:
    rng = np.random.default_rng(seed)
    train, test = random_split(len(world.observations), TEST, rng)
    return world.take(train), world.take(test)


def _fitted(
    settings: dict[str, Any], train: SyntheticRatings, seed: int, n_jobs: int
) -> DeviationFactorizer:
    model = DeviationFactorizer(**settings, random_state=seed, n_jobs=n_jobs)
    return model.fit(train.observations)
