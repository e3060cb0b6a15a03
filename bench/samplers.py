"""Gibbs samplers, and one measurement of one: ``python bench/samplers.py TASK OUT``.

TASK is JSON with the name of a sampler, a folder of ratings, rank, threads and sweeps. Samplers
draw from the same kind of model, a factorization with biases or without, and are called through
their public interfaces with what makes them fast. What comes before the end of the first sweep,
nobody is charged for.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from data import Ratings, load

SAMPLE = 2_000  # ratings predicted for the RMSE


class Timed(NamedTuple):
    """Ratings and when they were given, in unix seconds."""

    ratings: Ratings
    time: Any


class Outcome(NamedTuple):
    """What one run came to: seconds of each sweep after the first, and RMSE on training ratings."""

    seconds: list[float]
    rmse: float


class Sampler(NamedTuple):
    """A sampler to time; a slow one runs a share (``pace``) of the sweeps of others."""

    run: Callable[[Timed, int, int, int], Outcome]
    model: str
    pace: float = 1.0


def noisewise(data: Timed, rank: int, threads: int, sweeps: int, **settings: Any) -> Outcome:
    from noisewise import BayesianFactorizer

    ends: list[float] = []
    model = BayesianFactorizer(
        rank, sweeps=1 + sweeps, burn_in=1, n_jobs=threads, random_state=0, **settings
    )
    X: Any = data.ratings.cells
    if "time" in settings:
        X = np.column_stack([X, data.time])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few sweeps settle nothing
        model.fit(X, data.ratings.values, callbacks=[lambda *_: ends.append(time.perf_counter())])
    some = _some(data.ratings)
    return Outcome(np.diff(ends).tolist(), _rmse(model.predict(X[some]), data.ratings.values[some]))


def myfm(data: Timed, rank: int, threads: int, sweeps: int) -> Outcome:
    from myfm import MyFMRegressor
    from scipy.sparse import csr_matrix

    ends: list[float] = []

    def note(*_: Any) -> tuple[bool, None]:
        ends.append(time.perf_counter())
        return False, None

    # Without sets, one table of one-hot columns is faster than relation blocks; so is sorting it.
    ordered = _sorted(data.ratings)
    sizes = (ordered.cells.max(axis=0) + 1).tolist()
    columns = ordered.cells + np.array([0, sizes[0]])
    n = len(columns)
    table = csr_matrix((np.ones(2 * n), columns.ravel(), np.arange(0, 2 * n + 1, 2)))
    model = MyFMRegressor(rank, random_seed=0)
    model.fit(
        table, ordered.values, group_shapes=sizes, n_iter=1 + sweeps, n_kept_samples=sweeps,
        callback=note,
    )  # fmt: skip
    some = _some(ordered)
    return Outcome(np.diff(ends).tolist(), _rmse(model.predict(table[some]), ordered.values[some]))


def smurff(data: Timed, rank: int, threads: int, sweeps: int, *, prior: str) -> Outcome:
    from scipy.sparse import coo_array, csr_matrix
    from smurff import SampledNoise, TrainSession

    ordered = _sorted(data.ratings)
    values = ordered.values - ordered.values.mean(dtype=np.float64)
    train = csr_matrix((values, ordered.cells.T))
    some = _some(ordered)
    test = coo_array((values[some], ordered.cells[some].T), shape=train.shape)
    session = TrainSession(
        priors=[prior, prior], num_latent=rank, num_threads=threads, burnin=1, nsamples=sweeps,
        seed=0, verbose=0,
    )  # fmt: skip
    session.addTrainAndTest(train, test, SampledNoise(1.0))
    session.init()
    ends = []
    while session.step():
        ends.append(time.perf_counter())
    return Outcome(np.diff(ends).tolist(), float(session.getRmseAvg()))


def measured(sampler: str, folder: str, rank: int, threads: int, sweeps: int) -> dict[str, Any]:
    """Run a sampler on the ratings of a folder; a median is not moved by a disturbed sweep."""
    data = Timed(load(Path(folder)), np.load(Path(folder) / "time.npy"))
    outcome = SAMPLERS[sampler].run(data, rank, threads, sweeps)
    if not np.isfinite(outcome.rmse):
        raise ArithmeticError(f"The predictions of {sampler} are not finite: it has diverged.")
    return {
        "ratings": len(data.ratings.values),
        "seconds_per_sweep": float(np.median(outcome.seconds)),
        "fastest_s": min(outcome.seconds),
        "train_rmse": outcome.rmse,
    }


def _sorted(ratings: Ratings) -> Ratings:
    order = np.lexsort((ratings.cells[:, 1], ratings.cells[:, 0]))
    return Ratings(ratings.cells[order], ratings.values[order])


def _some(ratings: Ratings) -> slice:
    return slice(None, None, max(1, len(ratings.values) // SAMPLE))


def _rmse(mean: Any, truth: Any) -> float:
    return float(np.sqrt(np.mean((np.asarray(mean, dtype=np.float64) - truth) ** 2)))


_PLAIN = {"deviation": "constant", "implicit": False}
_NOISY = {"deviation": "lowrank", "implicit": False}
_FULL = {"deviation": "lowrank", "likelihood": "ordinal", "implicit": True, "time": 2}

SAMPLERS = {
    "noisewise constant": Sampler(
        partial(noisewise, **_PLAIN), "biases and factors of users and items, one noise for all"
    ),
    "noisewise lowrank": Sampler(
        partial(noisewise, **_NOISY), "the same, with a low-rank noise of each rating"
    ),
    "myFM": Sampler(
        myfm, "biases and factors, one noise for all, factor by factor; one thread only", pace=0.25
    ),
    "smurff": Sampler(
        partial(smurff, prior="normal"), "BPMF: factors, one noise for all; no biases", pace=0.5
    ),
    "smurff univariate": Sampler(
        partial(smurff, prior="normalone"), "the same, drawn factor by factor", pace=0.5
    ),
    "noisewise default": Sampler(noisewise, "the library's defaults but for the rank"),
    "noisewise full": Sampler(
        partial(noisewise, **_FULL), "levels, low-rank noise, sets and times", pace=0.5
    ),
}

if __name__ == "__main__":
    report = measured(**json.loads(sys.argv[1]))
    Path(sys.argv[2]).write_text(json.dumps(report))
