"""How settings are chosen: random search on the validation part of split 0.

    python -m noisewise_reproduction.runs.search ml1m.npz --json search-ml1m.json
    python -m noisewise_reproduction.runs.search ml1m.npz --model rcf --trials 30 --json rcf.json
    python -m noisewise_reproduction.runs.search ml1m.npz --model rbmf --try rank=8,64 --json r.json

Every model gets the same number of trials. A trial draws settings, trains on 81 % and stops on the
9 % of validation; the test part is never looked at. A run that is stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import registry, storage
from noisewise.data import Observations, files
from noisewise.errors import NoisewiseError, SettingError, progress
from noisewise.evaluation.records import as_json, where_and_when
from noisewise.evaluation.trials import same_settings
from noisewise.splits import rating_split

Space = dict[str, Any]  # a pair is drawn log-uniformly, a list evenly, all else is fixed
Trial = dict[str, Any]

MEAN: Space = {"rank": 128, "learning_rate": (0.02, 0.08), "bias_l2": (0.006, 0.08)}
DEVIATION: Space = {
    **MEAN,
    "deviation_rank": [2, 8, 32, 128],
    "deviation_learning_rate": (0.003, 0.06),
    "deviation_l1": (0.0003, 0.01),
    "delta": [0.1, 0.16, 0.24, 0.32],
    "warmup": [1, 2, 3, 4, 5, 6],
}
OURS: dict[str, tuple[str, Space]] = {
    "biased-mf": ("biased-mf", {**MEAN, "l2": (0.04, 0.08)}),
    "dmf": ("dmf", {**DEVIATION, "l2": (0.035, 0.07), "beta": [0.25, 0.5]}),
    "dmf-paper": ("dmf", {**DEVIATION, "l2": (0.045, 0.1), "beta": 0.0}),
}
RIVALS: dict[str, Space] = {
    "rcf": {
        **MEAN,
        "l2": (0.02, 0.07),
        "k": [0.5, 0.75, 1.0, 1.345, 2.0],
        "scale_floor": [0.3, 0.5, 0.6, 0.7, 0.8],
        "patience": 3,
    },
    "drmf": {
        **MEAN,
        "l2": (0.02, 0.07),
        "outliers": [0.01, 0.05, 0.1],
        "round_epochs": [1, 2, 3, 4, 5],
        "patience": 3,
    },
    "rbmf": {"rank": [8, 16, 32], "max_precision": [3.0, 10.0, 30.0], "patience": 3},
    "rbm": {
        "hidden": [100, 200, 400, 600],
        "learning_rate": (0.003, 0.3),
        "decay": [0.97, 0.98, 0.99, 1.0],
        "momentum": [0.5, 0.8, 0.9],
        "l2": (0.00001, 0.005),
        "batch": [100, 200, 500, 1000],
        "steps": [1, 3, 5, 9],
        "steps_every": [3, 5, 10, 15, 30, 40],
        "patience": 10,
    },
    "llorma": {
        "rank": [5, 10, 20, 40],
        "models": [20, 50],
        "kernel": ["epanechnikov", "quadratic"],
        "bandwidth": (0.8, 3.1),
        "learning_rate": (0.006, 0.1),
        "l2": (0.001, 0.08),
        "global_rank": [3, 5, 10, 20],
        "patience": 3,
    },
    "autorec": {
        "hidden": [300, 500, 800],
        "l2": (100.0, 700.0),
        "presence": [0.0, 2.0, 3.2, 5.0, 7.0],
        "balance": [0.0, 0.25, 0.5, 0.75],
        "patience": 25,
    },
}
SPACES: dict[str, tuple[str, Space]] = OURS | {name: (name, RIVALS[name]) for name in RIVALS}


def ranges(words: Sequence[str]) -> Space:
    """Read ranges: of numbers, of a few choices, or a single value.

    Examples
    --------
    >>> ranges(["l2=0.01..0.1", "rank=8,16,32", "kernel=quadratic"])
    {'l2': (0.01, 0.1), 'rank': [8, 16, 32], 'kernel': 'quadratic'}
    """
    space: Space = {}
    for word in words:
        name, equals, text = word.partition("=")
        low, dots, high = text.partition("..")
        if not (name and equals and text):
            raise SettingError(f"A range is NAME=LOW..HIGH, NAME=A,B,C or NAME=A; got {word!r}.")
        if dots:
            space[name] = _bounds(word, _value(low), _value(high))
        else:
            choices = [_value(part) for part in text.split(",")]
            space[name] = choices if len(choices) > 1 else choices[0]
    return space


def draw(space: Space, rng: np.random.Generator) -> dict[str, Any]:
    """Draw one setting from a space.

    Examples
    --------
    >>> draw({"rank": 8, "l2": (0.1, 0.2)}, np.random.default_rng(0))
    {'rank': 8, 'l2': 0.1555...}
    """
    drawn: dict[str, Any] = {}
    for name, values in space.items():
        if isinstance(values, tuple):
            drawn[name] = float(np.exp(rng.uniform(*np.log(values))))
        else:
            drawn[name] = values[rng.integers(len(values))] if isinstance(values, list) else values
    return drawn


def trial(
    observations: Observations, model: str, settings: dict[str, Any], n_jobs: int = -1
) -> Trial:
    """Train with settings, and report what validation says."""
    split = rating_split(len(observations), 0)
    fixed = {"patience": 2, **settings, "refit": False, "random_state": 0, "n_jobs": n_jobs}
    known = {
        *registry.build("ratings", model).get_params(),
        *settings,
    }  # a sampler has nothing to refit
    fitted = registry.build(
        "ratings", model, {name: value for name, value in fixed.items() if name in known}
    )
    started = time.perf_counter()
    fitted.fit(observations.take(split.train), validation=observations.take(split.validation))
    best = fitted.n_epochs_ - 1
    curve = fitted.learning_curve_
    return {
        "validation_rmse": curve["validation_rmse"][best],
        "validation_nll": curve["validation_nll"][best],
        "epochs": fitted.n_epochs_,
        "seconds": time.perf_counter() - started,
        "settings": settings,
    }


def search(
    observations: Observations,
    name: str,
    more: Space | None = None,
    *,
    trials: int = 100,
    earlier: Sequence[Trial] = (),
    n_jobs: int = -1,
) -> Iterator[Trial]:
    """Run the trials of a model, one after the other.

    Parameters
    ----------
    observations : Observations
        All ratings.
    name : str
        One of ``SPACES``, or any model of ``noisewise.evaluation.ratings``.
    more : dict
        Ranges that the model does not have in ``SPACES``, or has others of.
    trials : int
        How many, with the earlier ones.
    earlier : sequence of dict
        Trials of the same ranges that need not be run again.
    n_jobs : int
        Threads.
    """
    model, space = SPACES.get(name, (name, {}))
    space = {**space, **(more or {})}
    if not any(isinstance(values, tuple | list) for values in space.values()):
        raise SettingError(f"{name} has no ranges to draw from: name some, such as rank=8,16,32.")
    rng = np.random.default_rng(0)
    drawn = [draw(space, rng) for _ in range(trials)]
    if not all(same_settings(one["settings"], d) for one, d in zip(earlier, drawn, strict=False)):
        raise SettingError(f"The earlier trials of {name} have other ranges: start another file.")
    for settings in progress(drawn[len(earlier) :], desc=name):
        yield trial(observations, model, settings, n_jobs)


def main() -> None:
    """Search, and keep all trials in one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", action="append", help=f"may be given often; {', '.join(OURS)}")
    parser.add_argument("--try", dest="ranges", action="append", default=[], metavar="NAME=RANGE")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    try:
        more, observations = ranges(given.ranges), files.read(given.data)
        done = json.loads(given.json.read_text())["trials"] if given.json.exists() else {}
        for name in given.model or OURS:
            trials = done.setdefault(name, [])
            chosen = {"trials": given.trials, "earlier": list(trials), "n_jobs": given.jobs}
            for one in search(observations, name, more, **chosen):
                trials.append(one)
                best = {name: min(trials, key=_error) for name, trials in done.items()}
                result = {"data": given.data.name, "split": 0, "best": best, "trials": done}
                storage.write_bytes(given.json, as_json(result | where_and_when()).encode())
    except NoisewiseError as error:
        parser.error(str(error))


def _error(trial: Trial) -> float:
    return float(trial["validation_rmse"])


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _bounds(word: str, low: Any, high: Any) -> tuple[float, float]:
    numbers = isinstance(low, int | float) and isinstance(high, int | float)
    if not (numbers and 0 < low < high):
        raise SettingError(f"A range of numbers goes from one above 0 to a higher; got {word!r}.")
    return low, high


if __name__ == "__main__":
    main()
