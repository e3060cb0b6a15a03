"""The protocols for ratings: random 90/10 splits, epochs chosen on a tenth of the rest; and others.

For split s a permutation drawn from s puts the first tenth into the test part and a tenth of the
rest into validation. The number of epochs is chosen on validation, and the model is trained again
on all 90 %. The protocol "random" measures the model that ``fit`` makes. That of the paper does the
same, but gives the rating 3 to a test pair whose user or item was not trained on.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import metrics
from noisewise.data import Observations
from noisewise.errors import DataError, SettingError
from noisewise.evaluation.resplits import split_ratio
from noisewise.models.autorec import AutoRec
from noisewise.models.base import Factorizer
from noisewise.models.bayesian import BayesianFactorizer
from noisewise.models.deviation import DeviationFactorizer
from noisewise.models.drmf import TrimmedFactorizer
from noisewise.models.llorma import LLORMA
from noisewise.models.rbm import RBM
from noisewise.models.rbmf import RobustBayesianFactorizer
from noisewise.models.rcf import HuberFactorizer
from noisewise.models.trained import Trained
from noisewise.showing import progress
from noisewise.splits import Split, rating_split, split_by_time, split_by_user

# The best trial of each on validation data (search.py), rounded; "dmf" has the library's defaults,
# picked by hand near its best trial for few epochs and a low NLL (docs/settings.md).
MODELS: dict[str, tuple[type[Factorizer], dict[str, Any]]] = {
    "bayes": (BayesianFactorizer, {}),
    "dmf": (DeviationFactorizer, {}),
    "biased-mf": (
        DeviationFactorizer,
        {"deviation_rank": 0, "learning_rate": 0.035, "l2": 0.041, "bias_l2": 0.063},
    ),
    "dmf-paper": (
        DeviationFactorizer,
        {
            "beta": 0.0,
            "deviation_rank": 32,
            "learning_rate": 0.03,
            "deviation_learning_rate": 0.004,
            "l2": 0.066,
            "bias_l2": 0.044,
            "deviation_l1": 0.0012,
            "delta": 0.24,
            "warmup": 6,
        },
    ),
    "rcf": (HuberFactorizer, {}),
    "rbmf": (RobustBayesianFactorizer, {}),
    "drmf": (TrimmedFactorizer, {}),
    "rbm": (RBM, {}),
    "llorma": (LLORMA, {}),
    "autorec": (AutoRec, {}),
}
PROTOCOLS = ("random", "paper", "time", "user")
PAPER_UNKNOWN = 3.0
UNTOLD = {"random_state", "verbose"}  # settings that a result does not name
MOST_LEVELS = 50

Result = dict[str, Any]


def build(name: str, settings: dict[str, Any] | None = None) -> Any:
    """Make a model by the name that the command line knows it by.

    Examples
    --------
    >>> build("biased-mf", {"rank": 16}).deviation_rank
    0
    """
    if name not in MODELS:
        raise SettingError(f"model must be one of {', '.join(MODELS)}; got {name!r}.")
    kind, own = MODELS[name]
    model = kind(**own)
    for setting in settings or {}:
        if setting not in model.get_params():
            known = ", ".join(sorted(model.get_params()))
            raise SettingError(f"{name} has no setting {setting!r}; it has {known}.")
    model.set_params(**(settings or {}))
    return model


def evaluate(
    observations: Observations,
    name: str,
    settings: dict[str, Any] | None = None,
    *,
    splits: int = 5,
    seed: int = 0,
    protocol: str = "random",
    verbose: bool | None = None,
    earlier: Result | None = None,
    after_split: Callable[[Result], object] | None = None,
) -> Result:
    """Run a model over splits and report every metric for each, with the mean and its interval.

    Parameters
    ----------
    observations : Observations
        All ratings; the protocol "time" needs them with their time.
    name : str
        One of ``MODELS``.
    settings : dict
        Settings that differ from the model's own.
    splits, seed : int
        Splits ``seed`` to ``seed + splits - 1``; each is also the model's random state.
    protocol : {"random", "paper", "time", "user"}
        Random tenths; the same, with a 3 for ids that were not trained on, as the paper has it;
        each user's later ratings; users held out whole.
    verbose : bool or None
        Show a bar of splits: True always, False never; None on a terminal and in a notebook.
    earlier : dict, optional
        A result of the same model, settings, protocol and data: its splits are kept, and only those
        that it lacks are run.
    after_split : callable, optional
        Called with the result so far after every split.

    Returns
    -------
    dict
        JSON-ready: model, settings, splits, mean, interval95, and where and when it ran; for DRMF
        also what became of errors round by round.
    """
    if splits < 1:
        raise SettingError(f"splits must be 1 or more; got {splits}.")
    chosen = {**settings_under(protocol, observations), **(settings or {})}
    rows = {row["seed"]: row for row in (earlier or {}).get("splits", ())}
    rounds = {row["seed"]: row for row in (earlier or {}).get("rounds", ())}
    levels = _levels(observations)
    for k in progress(range(seed, seed + splits), desc=name, unit="split", verbose=verbose):
        model = build(name, {**chosen, "random_state": k})
        head = {
            "model": name,
            "settings": {k: v for k, v in model.get_params().items() if k not in UNTOLD},
            "protocol": protocol,
            "data": {"observations": len(observations), "shape": list(observations.shape)},
        }
        if earlier is not None:
            check_same(earlier, head)
        if k in rows:
            continue
        split = split_of(observations, k, protocol)
        _fit(model, observations, split)
        rows[k] = {"seed": k, **score(model, observations.take(split.test), levels)}
        if isinstance(model, TrimmedFactorizer):
            rounds[k] = {"seed": k, **model.rounds_}
        if after_split is not None:
            after_split(_result(head, rows, rounds))
    return _result(head, rows, rounds)


def check_same(earlier: Result, head: dict[str, Any]) -> None:
    """Raise unless splits of an earlier result may stand beside new ones."""
    for key, value in json.loads(as_json(head)).items():
        if earlier[key] != value:
            there, here = earlier[key], value
            if isinstance(there, dict) and isinstance(here, dict):
                differ = [k for k in {**there, **here} if there.get(k) != here.get(k)]
                there, here = ({k: d.get(k) for k in differ} for d in (there, here))
            raise DataError(
                f"An earlier result can only be taken up with the same {key}; it has {there}, and "
                f"this run {here}: write to another file, or remove the old one."
            )


def _result(head: dict[str, Any], rows: dict[int, Any], rounds: dict[int, Any]) -> Result:
    splits = [rows[k] for k in sorted(rows)]
    keys = [key for key in splits[0] if key != "seed" and all(key in row for row in splits)]
    measured = {key: [number(row[key]) for row in splits] for key in keys}
    ratio = split_ratio(head["protocol"], head["data"])
    summaries = {key: metrics.summarise(values, ratio) for key, values in measured.items()}
    return {
        **head,
        "splits": splits,
        "mean": {key: summary.mean for key, summary in summaries.items()},
        "interval95": {key: _pair(summary) for key, summary in summaries.items()},
        **({"rounds": [rounds[k] for k in sorted(rounds)]} if rounds else {}),
        **where_and_when(),
    }


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


def number(score: float | None) -> float:
    """Return a score; what JSON has as null could not be measured."""
    return float("nan") if score is None else score


def score(model: Any, test: Observations, levels: Any = None) -> dict[str, float]:
    """Every metric of a fitted model on ratings that it has not seen.

    ``constant_nll`` is the NLL of the same mean with one std for all, ``constant_std``: the error
    on the validation part when the number of epochs was chosen; or the root mean square of its own
    std, for a model that was shown no validation part.

    With the ``levels`` that ratings can have, ``log_loss`` is that of the level: of the model's own
    probabilities where it has some, else of its normal distribution.
    """
    mean, std = model.predict(test, return_std=True)
    low, high = model.predict_interval(test, coverage=0.9)
    measured = metrics.evaluate(test.values, mean, std, low=low, high=high, coverage=0.9)
    one = _validation_rmse(model) if _holds_out(model) else metrics.sharpness(std)
    measured["constant_std"] = one
    measured["constant_nll"] = metrics.constant_nll(test.values, mean, [one])
    if levels is not None:
        measured["log_loss"] = _log_loss(model, test, mean, std, levels)
    measured |= {"epochs": model.n_epochs_, "seconds": model.seconds_}
    measured["seconds_per_epoch"] = statistics.median(model.learning_curve_["seconds"])
    return measured


def compare(a: Result, b: Result, metric: str = "rmse") -> metrics.PairedTest:
    """Test two results on the same splits against each other, in pairs."""
    values = [{row["seed"]: row.get(metric) for row in result["splits"]} for result in (a, b)]
    alike = all(a[key] == b[key] for key in ("data", "protocol"))
    if not alike or values[0].keys() != values[1].keys():
        raise DataError("Results can only be compared over the same data and the same splits.")
    if None in values[0].values() or None in values[1].values():
        raise DataError(f"Both results need {metric!r} on every split, as a number.")
    ratio = split_ratio(a["protocol"], a["data"])
    first, second = (list(v.values()) for v in values)
    return metrics.paired_test(first, second, ratio)


def where_and_when() -> dict[str, Any]:
    """Name the machine, the versions and the day, for a result to carry."""
    packages = ("noisewise", "numpy", "numba", "scikit-learn")
    return {
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "packages": {name: version(name) for name in packages},
            **_gpu(),
        },
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def as_json(result: Result) -> str:
    """Write a result as JSON; what could not be measured is null."""
    return json.dumps(_finite(result), indent=1, default=str) + "\n"


def _fit(model: Any, observations: Observations, split: Split) -> None:
    """Train on all but the test part; what has epochs to choose does so on the validation part."""
    if _holds_out(model):
        validation = observations.take(split.validation)
        model.fit(observations.take(split.train), validation=validation)
    else:
        model.fit(observations.take(np.append(split.train, split.validation)))


def _holds_out(model: Any) -> bool:
    return isinstance(model, Trained) and model.patience is not None


def _validation_rmse(model: Any) -> float:
    return float(model.learning_curve_["validation_rmse"][model.n_epochs_ - 1])


def _levels(observations: Observations) -> Any:
    """Return the levels that ratings have; None if they have too many to be levels."""
    levels = np.unique(observations.values)
    return levels if 2 <= len(levels) <= MOST_LEVELS else None


def _log_loss(model: Any, test: Observations, mean: Any, std: Any, levels: Any) -> float:
    own = getattr(model, "levels_", ())
    if len(own) == 0:
        return metrics.rating_log_loss(test.values, mean, std, levels)
    chances = model.predict_proba(test)
    place = np.searchsorted(own, test.values).clip(max=len(own) - 1)
    right = np.where(own[place] == test.values, chances[np.arange(len(test)), place], 0.0)
    return float(-np.mean(np.log(np.maximum(right, 1e-12))))


def split_of(observations: Observations, seed: int, protocol: str) -> Split:
    """Return a split of a protocol."""
    splitters: dict[str, Callable[[], Split]] = {
        "random": lambda: rating_split(len(observations), seed),
        "paper": lambda: rating_split(len(observations), seed),
        "time": lambda: split_by_time(_time(observations), users=observations.codes[0]),
        "user": lambda: split_by_user(observations.codes[0], seed=seed),
    }
    if protocol not in PROTOCOLS:
        raise SettingError(f"protocol must be one of {', '.join(PROTOCOLS)}; got {protocol!r}.")
    return splitters[protocol]()


def _time(observations: Observations) -> Any:
    if observations.time is None:
        raise DataError("The protocol 'time' needs the time of each rating: name its column.")
    return observations.time


def _pair(summary: metrics.Summary) -> list[float]:
    return [summary.low, summary.high]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _gpu() -> dict[str, str]:
    """Name the graphics card, if a model may have used one."""
    torch = sys.modules.get("torch")
    return {"gpu": torch.cuda.get_device_name()} if torch and torch.cuda.is_available() else {}


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in _lines(info):
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _lines(path: Path) -> Iterator[str]:
    with path.open() as file:
        yield from file
