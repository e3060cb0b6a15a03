"""Protocols for ratings: random 90/10 splits with epochs chosen on validation data, and others.

The number of epochs is chosen on validation, and the model is trained again on all that is not
test: what is measured is the model that ``fit`` makes.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any, Unpack

import numpy as np

from noisewise import metrics, registry
from noisewise.data import Observations
from noisewise.data.features import Tables
from noisewise.engine.workers import Cluster
from noisewise.errors import DataError, SettingError
from noisewise.evaluation.comparison import Result
from noisewise.evaluation.ranking import PER_USER, Ranking, judged
from noisewise.evaluation.records import RunOptions, data_of, measure
from noisewise.evaluation.trials import Task, about_task, watches_validation
from noisewise.models.featured import features_for
from noisewise.settings import whole
from noisewise.splits import Split, leave_last_out, rating_split, split_by_time, split_by_user
from noisewise.spread import here

PROTOCOLS = ("random", "paper", "time", "user", "last")
TIMED = ("time", "last")  # protocols that need the time of each rating
METRICS = ("rmse", "nll")  # of tuning, the usual one first
PAPER_UNKNOWN = 3.0
MOST_LEVELS = 50


def evaluate(
    observations: Observations,
    name: str,
    settings: dict[str, Any] | None = None,
    *,
    splits: int = 5,
    seed: int = 0,
    protocol: str = "random",
    ranking: Ranking | None = None,
    features: Tables | None = None,
    cluster: Cluster | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    """Run a model over splits and report every metric for each, with the mean and its interval.

    The model is one of ``registry.models("ratings")`` with settings that differ from its own.
    Splits are ``seed`` to ``seed + splits - 1``; each is also the model's random state. They are
    random tenths ("random"); the same, with a 3 for ids that were not trained on, as the paper has
    it ("paper"); each user's later ratings ("time"); users held out whole ("user"); or each user's
    last rating ("last"). With a ``ranking`` lists are judged too; ``features`` are given to
    ``fit``, which a ``cluster`` may do. ``options`` are those of ``RunOptions``. The result is
    ready for JSON.

    Examples
    --------
    >>> from noisewise.data.synthetic import make_ratings
    >>> ratings = make_ratings(n_users=60, n_items=40).observations
    >>> evaluate(ratings, "dmf", splits=2)["mean"]["rmse"] < 1.5
    True
    """
    whole(1).require("splits", splits)
    whole(0).require("seed", seed)
    chosen = {**settings_under(protocol, observations), **(settings or {})}
    values = np.unique(observations.values)
    levels = values if 2 <= len(values) <= MOST_LEVELS else None

    def measured(model: Any, k: int) -> dict[str, Any]:
        if ranking is not None:
            ranking.check(model)
        beside = features_for(model, features) | ({} if cluster is None else {"cluster": cluster})
        split = split_of(observations, k, protocol)
        _fit(model, observations, split, beside)
        scores = score(model, here(observations, split.test), levels)
        rounds = {"rounds": model.rounds_} if hasattr(model, "rounds_") else {}
        if ranking is None:
            return {**scores, **rounds}
        known, later = (here(observations, part) for part in (split.fit, split.test))
        of_lists, of_users = judged(model, known, later, ranking)
        users = {name: np.round(column, 6).tolist() for name, column in of_users.items()}
        alike = {"users": users} if protocol == "last" else {}  # the same users on every split
        return {**scores, **of_lists, **rounds, **alike}

    about = {"protocol": protocol, "data": data_of(observations)}
    if ranking is not None:
        about["ranking"] = ranking.about()
    if features:
        about["features"] = _named(features)
    seeds = range(seed, seed + splits)
    build = partial(_built, name, chosen)
    return measure(build, measured, seeds, name=name, about=about, **options)


def _built(name: str, settings: dict[str, Any], seed: int) -> Any:
    own = {key: value for key, value in settings.items() if key != "random_state"}
    return registry.build("ratings", name, own, random_state=seed)


def _fit(model: Any, observations: Observations, split: Split, beside: dict[str, Any]) -> None:
    """Fit a model to all but the test part, watching the validation part if it does."""
    if watches_validation(model):
        validation = here(observations, split.validation)
        model.fit(observations.take(split.train), validation=validation, **beside)
    else:
        model.fit(observations.take(np.append(split.train, split.validation)), **beside)


def rating_task(
    observations: Observations,
    *,
    protocol: str = "random",
    seed: int = 0,
    ranking: Ranking | None = None,
    features: Tables | None = None,
) -> Task:
    """Judge models of ratings on the validation part of a split, as ``evaluate`` makes it.

    With a ``ranking`` trials can also be ranked by NDCG, recall, MRR and hit rate of lists;
    ``features`` are given to models as ``fit`` takes them.

    Examples
    --------
    >>> from noisewise.data.synthetic import make_ratings
    >>> task = rating_task(make_ratings(n_users=40, n_items=20, seed=0).observations)
    >>> task.metrics[0]
    'rmse'
    """
    split = split_of(observations, seed, protocol)
    train, held_out = observations.take(split.train), observations.take(split.validation)

    def errors(model: Any, seen: Observations) -> dict[str, float]:
        mean, std = _expected(model, seen)
        found = {
            "rmse": metrics.rmse(seen.values, mean),
            "nll": metrics.nll(seen.values, mean, std),
        }
        if ranking is not None:
            ranking.check(model)
            found |= judged(model, train, seen, ranking)[0]
        return found

    about = about_task("ratings", observations, {"kind": protocol}, seed)
    of_lists: tuple[str, ...] = ()
    if ranking is not None:
        about["ranking"] = ranking.about()
        of_lists = tuple(f"{name}{ranking.top}" for name in PER_USER)
    if features:
        about["features"] = _named(features)
    own: Any = {"settings": settings_under(protocol, observations), "features": features}
    return Task("ratings", train, held_out, about, METRICS + of_lists, errors, **own)


def _named(features: Tables) -> dict[str, list[str]]:
    """Return the names of the columns of tables, as a result has them."""
    return {str(mode): sorted(map(str, table)) for mode, table in features.items()}


def settings_under(protocol: str, observations: Observations) -> dict[str, Any]:
    """Return the settings that a protocol has of its own."""
    if protocol != "paper":
        return {}
    low, high = observations.values.min(), observations.values.max()
    if not low <= PAPER_UNKNOWN <= high:
        raise SettingError(
            f"The paper's protocol gives unknown ids the rating {PAPER_UNKNOWN:g}, but these "
            f"ratings go from {low:g} to {high:g}: use the protocol 'random'."
        )
    return {"unknown": PAPER_UNKNOWN}


def _expected(model: Any, test: Observations) -> tuple[Any, Any]:
    """Return mean and std of values; of weights only models of noisewise know."""
    if test.weight is None:
        mean, std = model.predict(test, return_std=True)
    else:
        mean, std = model.expected(test)
    return mean, std


def score(model: Any, test: Observations, levels: Any = None) -> dict[str, float]:
    """Every metric of a fitted model on ratings that it has not seen.

    ``constant_nll`` is the NLL of the same mean with one std for all, ``constant_std``: the error
    on the validation part, or the root mean square of its own std if it was shown none. With the
    ``levels`` that ratings can have, ``log_loss`` is that of the level: of the model's own
    probabilities where it has some, else of its normal distribution.
    """
    mean, std = _expected(model, test)
    if test.weight is None:
        low, high = model.predict_interval(test, coverage=0.9)
    else:
        low, high = model.interval(mean, std, 0.9, model.strangers(test))
    measured = metrics.evaluate(test.values, mean, std, low=low, high=high, coverage=0.9)
    if watches_validation(model):
        one = float(model.learning_curve_["validation_rmse"][model.n_epochs_ - 1])
    else:
        one = metrics.sharpness(std)
    measured["constant_std"] = one
    own_nll = metrics.constant_nll(test.values, mean, [one]) if one > 0.0 else float("nan")
    measured["constant_nll"] = own_nll
    if levels is not None and hasattr(model, "predict_proba"):
        own, chances = model.levels_, model.predict_proba(test)
        place = np.searchsorted(own, test.values).clip(max=len(own) - 1)
        right = np.where(own[place] == test.values, chances[np.arange(len(test)), place], 0.0)
        measured["log_loss"] = float(-np.mean(np.log(np.maximum(right, 1e-12))))
    elif levels is not None:
        measured["log_loss"] = metrics.rating_log_loss(test.values, mean, std, levels)
    if hasattr(model, "seconds_"):  # which models of other packages need not tell
        measured["seconds"] = model.seconds_
    if hasattr(model, "learning_curve_"):
        measured["epochs"] = model.n_epochs_
        measured["seconds_per_epoch"] = statistics.median(model.learning_curve_["seconds"])
    return measured


def split_of(observations: Observations, seed: int, protocol: str) -> Split:
    """Return a split of a protocol."""
    whole(0).require("seed", seed)
    if protocol not in PROTOCOLS:
        raise SettingError(f"protocol must be one of {', '.join(PROTOCOLS)}; got {protocol!r}.")
    if protocol == "user":
        return split_by_user(observations.codes[0], seed=seed)
    if protocol not in TIMED:
        return rating_split(len(observations), seed)
    if observations.time is None:
        raise DataError(
            f"The protocol {protocol!r} needs the time of each rating: name its column."
        )
    if protocol == "last":
        return leave_last_out(observations.time, observations.codes[0])
    return split_by_time(observations.time, users=observations.codes[0])
