"""Systems that predict ratings, each through its own public interface.

A system is given training ratings, the cells to predict, settings and a seed. It says what it
predicts, and how long it took to have a finished model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise import BayesianFactorizer
from noisewise.data import Observations

UNKNOWN = 3.0  # the protocol's rating for a user or an item without training ratings

Floats = npt.NDArray[np.float64]


class Took(NamedTuple):
    """Seconds by the clock, and of the processor: on a busy machine the latter are the fairer."""

    seconds: float
    cpu_seconds: float


class Watch:
    """Started when it is made."""

    def __init__(self) -> None:
        self._started = self._now()

    def read(self) -> Took:
        return Took(*(now - then for now, then in zip(self._now(), self._started, strict=True)))

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()


class Forecast(NamedTuple):
    """Predictions: a mean, and where a system has them, the chance of every level, and a std."""

    mean: Floats
    std: Floats | None
    chances: Floats | None
    took: Took


class Rater(NamedTuple):
    """A system, its settings, and what to lower for a smoke test."""

    predict: Callable[[Observations, Observations, dict[str, Any], int], Forecast]
    model: str
    settings: dict[str, Any]
    quick: dict[str, Any]


def myfm(train: Observations, test: Observations, settings: dict[str, Any], seed: int) -> Forecast:
    from fm import Extended, chances_of
    from myfm import MyFMOrderedProbit

    levels, level = np.unique(train.values, return_inverse=True)
    watch = Watch()
    features = Extended(*train.codes, train.time, train.shape)
    known = features.of(*train.codes, train.time)
    model = MyFMOrderedProbit(settings["rank"], random_seed=seed)
    model.fit(
        known.table,
        level.astype(np.int64),
        X_rel=known.blocks,
        group_shapes=known.groups,
        n_iter=settings["iterations"],
        n_kept_samples=settings["iterations"] - settings["burn_in"],
    )
    took = watch.read()
    asked = features.of(*test.codes, test.time)
    chances = chances_of(model, asked)
    mean = chances @ levels
    std = np.sqrt(((levels - mean[:, None]) ** 2 * chances).sum(axis=1))
    return Forecast(mean, std, chances, took)


def surprise(
    train: Observations, test: Observations, settings: dict[str, Any], seed: int
) -> Forecast:
    from pandas import DataFrame
    from surprise import Dataset, Reader, SVDpp

    watch = Watch()
    user, item = train.codes
    frame = DataFrame({"user": user, "item": item, "rating": train.values})
    reader = Reader(rating_scale=(float(train.values.min()), float(train.values.max())))
    dataset = Dataset.load_from_df(frame, reader).build_full_trainset()
    model = SVDpp(random_state=seed, **settings).fit(dataset)
    took = watch.read()
    cells = zip(*(code.tolist() for code in test.codes), strict=True)
    return Forecast(np.array([model.predict(*cell).est for cell in cells]), None, None, took)


def cornac(
    train: Observations, test: Observations, settings: dict[str, Any], seed: int
) -> Forecast:
    from cornac.data import Dataset
    from cornac.models import MF

    watch = Watch()
    columns = (column.tolist() for column in (*train.codes, train.values))
    dataset = Dataset.build(list(zip(*columns, strict=True)))
    model = MF(seed=seed, verbose=False, **settings).fit(dataset)
    took = watch.read()
    # Its own numbers; those it has not seen come after the last, and get the mean or a bias.
    maps = ((dataset.uid_map, train.shape[0]), (dataset.iid_map, train.shape[1]))
    user, item = (
        [numbers.get(code, beyond) for code in codes.tolist()]
        for (numbers, beyond), codes in zip(maps, test.codes, strict=True)
    )
    mean = np.array([model.rate(*cell) for cell in zip(user, item, strict=True)])
    return Forecast(mean, None, None, took)


def noisewise(
    train: Observations, test: Observations, settings: dict[str, Any], seed: int
) -> Forecast:
    watch = Watch()
    model = BayesianFactorizer(**settings, random_state=seed).fit(train)
    took = watch.read()
    mean, std = model.predict(test, return_std=True)
    chances = model.predict_proba(test) if model.likelihood == "ordinal" else None
    return Forecast(mean, std, chances, took)


RATERS = {
    "myfm": Rater(
        myfm,
        "Factorization machine, ordered probit, Gibbs sampling: user, item, day, the items of the "
        "user and the users of the item (training ratings only, over the root of their number)",
        {"rank": 32, "iterations": 200, "burn_in": 40},
        {"rank": 4, "iterations": 6, "burn_in": 2},
    ),
    "surprise": Rater(surprise, "SVDpp, as it comes", {}, {"n_epochs": 1}),
    "cornac": Rater(
        cornac,
        "MF, as it comes: of its models of ratings that need no more than that, the best on "
        "validation parts of MovieLens 100K (tried: MF, SVD, PMF, NMF, BaselineOnly, UserKNN, "
        "ItemKNN)",
        {},
        {"max_iter": 2},
    ),
    "noisewise": Rater(
        noisewise,
        "BayesianFactorizer, as it comes: user, item, rating",
        {"unknown": UNKNOWN},
        {"rank": 4, "sweeps": 6, "burn_in": 2},
    ),
    "noisewise-time": Rater(
        noisewise,
        "BayesianFactorizer, as it comes, with the time of each rating",
        {"unknown": UNKNOWN, "time": "time"},
        {"rank": 4, "sweeps": 6, "burn_in": 2},
    ),
}
