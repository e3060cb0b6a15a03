"""The systems, each called through its own public interface with what makes it fast.

A system is made ready for a rank and a number of threads (that imports it), and then trains on
ratings for some epochs after a first one, which nobody is charged for. It says how long an epoch
took, and how well it then predicts ratings it was trained on: that it learns, not how well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from data import Ratings

SAMPLE = 2_000  # ratings predicted for the RMSE


class Outcome(NamedTuple):
    """What one training came to."""

    seconds_per_epoch: float
    rmse: float | None


Train = Callable[[Ratings, int], Outcome]
AdaGrad = Literal["coordinate", "row"]


class System(NamedTuple):
    """A system to time.

    ``pace`` is the share of the epochs of others that a slow one is asked for; one that is
    ``slow_to_load`` takes part in a single round of large shapes.
    """

    prepare: Callable[[int, int], Train]
    model: str
    epoch: str
    timing: str
    pace: float = 1.0
    one_thread: bool = False
    slow_to_load: bool = False


def noisewise(rank: int, threads: int, *, deviation: bool, adagrad: AdaGrad) -> Train:
    from noisewise import DeviationFactorizer

    def train(ratings: Ratings, epochs: int) -> Outcome:
        ends: list[float] = []
        model = DeviationFactorizer(
            rank, deviation_rank=rank if deviation else 0, adagrad=adagrad, epochs=1 + epochs,
            patience=None, warmup=0, n_jobs=threads, random_state=0,
        )  # fmt: skip
        model.fit(*ratings, callbacks=[lambda *_: ends.append(time.perf_counter())])
        return Outcome((ends[-1] - ends[0]) / epochs, _rmse(ratings, model.predict))

    return train


def cornac(rank: int, threads: int, *, sort: bool) -> Train:
    from cornac.data import Dataset
    from cornac.models import MF

    def train(ratings: Ratings, epochs: int) -> Outcome:
        user, item = ratings.cells.astype(np.int64).T.copy()
        value = ratings.values
        if sort:
            order = np.lexsort((item, user))
            user, item, value = user[order], item[order], value[order]
        users, items = ({k: k for k in range(ids.max() + 1)} for ids in (user, item))
        dataset = Dataset(len(users), len(items), users, items, (user, item, value))

        def fit(n: int) -> Any:
            return MF(k=rank, max_iter=n, num_threads=threads).fit(dataset)

        seconds, model = _by_difference(fit, epochs)
        return Outcome(seconds, _rmse(ratings, lambda cells: [model.score(*c) for c in cells]))

    return train


def libmf(rank: int, threads: int) -> Train:
    from libmf import mf

    # The wrapper's own defaults charge an L1 penalty, which is two to three times slower and drives
    # most factors to zero; these are the defaults of LIBMF itself.
    penalty = {"lambda_p1": 0.0, "lambda_q1": 0.0, "lambda_p2": 0.1, "lambda_q2": 0.1}

    def train(ratings: Ratings, epochs: int) -> Outcome:
        table = np.column_stack([ratings.cells, ratings.values]).astype(np.float32)

        def fit(n: int) -> Any:
            model = mf.MF(k=rank, nr_iters=n, nr_threads=threads, quiet=True, **penalty)
            model.fit(table)
            return model

        seconds, model = _by_difference(fit, epochs)
        users, items = model.p_factors(), model.q_factors()
        return Outcome(
            seconds, _rmse(ratings, lambda cells: (users[cells[:, 0]] * items[cells[:, 1]]).sum(1))
        )

    return train


def implicit(rank: int, threads: int) -> Train:
    from implicit.cpu.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    def train(ratings: Ratings, epochs: int) -> Outcome:
        ends: list[float] = []
        model = AlternatingLeastSquares(rank, iterations=1 + epochs, num_threads=threads)
        model.fit(
            csr_matrix((ratings.values, ratings.cells.T)),
            show_progress=False,
            callback=lambda *_: ends.append(time.perf_counter()),
        )
        return Outcome((ends[-1] - ends[0]) / epochs, None)

    return train


def surprise(rank: int, threads: int) -> Train:
    from pandas import DataFrame
    from surprise import SVD, Dataset, Reader

    def train(ratings: Ratings, epochs: int) -> Outcome:
        user, item = ratings.cells.T
        frame = DataFrame({"user": user, "item": item, "rating": ratings.values})
        dataset = Dataset.load_from_df(frame, Reader(rating_scale=(1, 5))).build_full_trainset()

        def fit(n: int) -> Any:
            return SVD(n_factors=rank, n_epochs=n).fit(dataset)

        seconds, model = _by_difference(fit, epochs)
        return Outcome(
            seconds, _rmse(ratings, lambda cells: [model.predict(*c).est for c in cells.tolist()])
        )

    return train


def _by_difference(fit: Callable[[int], Any], epochs: int) -> tuple[float, Any]:
    """Time a long run minus a short one; the short one is the faster of two, the first is cold."""

    def timed(n: int) -> tuple[float, Any]:
        started = time.perf_counter()
        model = fit(n)
        return time.perf_counter() - started, model

    short = min(timed(1)[0] for _ in range(2))
    long, model = timed(1 + epochs)
    if long <= short:
        raise ArithmeticError(
            f"{1 + epochs} epochs took {long:.3f} s, one took {short:.3f} s: the machine is too "
            "busy, or the ratings too few, to time it."
        )
    return (long - short) / epochs, model


def _rmse(ratings: Ratings, predict: Callable[[Any], Any]) -> float:
    every = max(1, len(ratings.values) // SAMPLE)
    error = np.asarray(predict(ratings.cells[::every])) - ratings.values[::every]
    rmse = float(np.sqrt(np.mean(error.astype(np.float64) ** 2)))
    if not np.isfinite(rmse):
        raise ArithmeticError(f"The predictions are not finite (RMSE {rmse}): it has diverged.")
    return rmse


_ONCE = "every rating visited once, a step for its user and its item"
_CALLBACK = "time between the ends of the first and the last epoch of one fit"
_DIFFERENCE = "a fit of many epochs minus the faster of two fits of one"


def _ours(model: str, deviation: bool, adagrad: AdaGrad) -> System:
    prepare = partial(noisewise, deviation=deviation, adagrad=adagrad)
    return System(prepare, f"{model}, adagrad={adagrad!r}; float32", _ONCE, _CALLBACK)


_DMF = "DMF, deviation rank as the rank, no warm-up epochs"

SYSTEMS = {
    "cornac MF": System(
        partial(cornac, sort=False), "Biased MF, plain SGD; float32", _ONCE, _DIFFERENCE
    ),
    "cornac MF, sorted": System(
        partial(cornac, sort=True),
        "the same, on ratings that were sorted by user and item beforehand",
        _ONCE,
        _DIFFERENCE,
    ),
    "noisewise BMF row": _ours("Biased MF", False, "row"),
    "noisewise BMF coordinate": _ours("Biased MF", False, "coordinate"),
    "noisewise DMF row": _ours(_DMF, True, "row"),
    "noisewise DMF coordinate": _ours(_DMF, True, "coordinate"),
    "libmf": System(libmf, "MF without biases, AdaGrad per row; float32", _ONCE, _DIFFERENCE),
    "implicit ALS": System(
        implicit,
        "ALS on confidences by conjugate gradients, 3 steps: not a model of ratings; float32",
        "one iteration: all users solved for, then all items; a rating counts once",
        _CALLBACK,
        pace=0.25,
    ),
    "Surprise SVD": System(
        surprise, "Biased MF, plain SGD; float64, one thread only", _ONCE, _DIFFERENCE,
        pace=0.1, one_thread=True, slow_to_load=True,
    ),
}  # fmt: skip
