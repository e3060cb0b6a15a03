"""How the settings were chosen: random search on the validation part of split 0.

    python -m noisewise.experiments.search ml1m.npz --json docs/results/search-ml1m.json

Every model gets the same number of trials. A trial draws settings, trains on 81 % and stops on the
9 % of validation; the test part is never looked at. A run that is stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from noisewise import datasets, storage
from noisewise.experiments.ratings import as_json, build, where_and_when
from noisewise.observations import Observations
from noisewise.splits import rating_split

Space = dict[str, Any]  # a pair is drawn log-uniformly, a list evenly, all else is fixed

MEAN: Space = {"rank": 128, "learning_rate": (0.02, 0.08), "bias_l2": (0.006, 0.08)}
DEVIATION: Space = {
    **MEAN,
    "deviation_rank": [2, 8, 32, 128],
    "deviation_learning_rate": (0.003, 0.06),
    "deviation_l1": (0.0003, 0.01),
    "delta": [0.1, 0.16, 0.24, 0.32],
    "warmup": [1, 2, 3, 4, 5, 6],
}
SPACES: dict[str, tuple[str, Space]] = {
    "biased-mf": ("biased-mf", {**MEAN, "l2": (0.04, 0.08)}),
    "dmf": ("dmf", {**DEVIATION, "l2": (0.035, 0.07), "beta": [0.25, 0.5]}),
    "dmf-paper": ("dmf", {**DEVIATION, "l2": (0.045, 0.1), "beta": 0.0}),
}


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
) -> dict[str, Any]:
    """Train with settings, and report what validation says."""
    split = rating_split(len(observations), 0)
    fixed = {"refit": False, "patience": 2, "random_state": 0, "n_jobs": n_jobs}
    fitted = build(model, {**settings, **fixed})
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


def main() -> None:
    """Search for every model in ``SPACES``, and keep all trials in one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    observations = datasets.read(given.data)
    done = json.loads(given.json.read_text())["trials"] if given.json.exists() else {}
    for name, (model, space) in SPACES.items():
        trials = done.setdefault(name, [])
        rng = np.random.default_rng(0)
        drawn = [draw(space, rng) for _ in range(given.trials)]
        for settings in tqdm(drawn[len(trials) :], desc=name, disable=None):
            trials.append(trial(observations, model, settings, given.jobs))
            best = {name: min(trials, key=_error) for name, trials in done.items()}
            result = {"data": given.data.name, "split": 0, "best": best, "trials": done}
            result |= where_and_when()
            storage.write_bytes(given.json, as_json(result).encode())


def _error(trial: dict[str, Any]) -> float:
    return float(trial["validation_rmse"])


if __name__ == "__main__":
    main()
