"""How the settings of PTF and DTF for sensors were chosen: random search on validation parts.

    python -m noisewise_reproduction.runs.search_sensors london.npz intel.npz --json sensors.json

The two files are copies of the data behind ``london-paper-size`` and ``intel-2epoch``. A trial
draws settings, trains on the training part of split 0 of every task and stops on its validation
part; test parts are never looked at. Values are standardised by type of sensor, with what the
training part says. One setting is to serve all tasks, so trials are ranked by the geometric mean of
their errors. A run that is stopped goes on where it was.

The settings that the library has, ``PTF`` and ``DTF``, were picked near the best trials, for round
numbers and one mean for both models. In the end they are run on the validation parts of five
splits, which says how far the two differ.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import storage
from noisewise.data import Observations
from noisewise.data.panel import SENSOR, Panel, named_panel
from noisewise.data.timestamps import Units
from noisewise.errors import DivergedError, progress
from noisewise.evaluation.records import as_json, where_and_when
from noisewise.models.deviation import DTF, PTF, DeviationFactorizer
from noisewise.splits import share_split
from noisewise_reproduction.runs.search import Space, Trial, draw

TASKS = (("london-paper-size", 0.05), ("london-paper-size", 0.2), ("intel-2epoch", 0.4))
MEAN: Space = {
    "rank": [48, 64],
    "learning_rate": (0.12, 0.5),
    "l2": (1.0, 10.0),
    "bias_l2": (3.0, 30.0),
    "biases": [True, False],
    "penalty": "row",
    "delta": [0.02, 0.05, 0.1],
    "beta": [0.0, 0.25],
}
SPACES: dict[str, Space] = {
    "ptf": {**MEAN, "deviation_rank": 0},
    "dtf": {
        **MEAN,
        "deviation_rank": [1, 4, 8],
        "deviation_learning_rate": (0.02, 0.3),
        "deviation_l1": (0.01, 1.0),
    },
}
FIXED = {"epochs": 60, "patience": 5, "refit": False, "random_state": 0}
SPLITS = 5

Parts = tuple[Observations, Observations]


def parts(data: Panel, share: float, seed: int) -> Parts:
    """Return training and validation part of a split, in units of each type of sensor."""
    seen = data.observations
    split = share_split(seen.shape, seen.codes, share, seed)
    train, validation = seen.take(split.train), seen.take(split.validation)
    units = Units.of(train.values, train.codes[SENSOR], seen.shape[SENSOR])

    def standardised(part: Observations) -> Observations:
        types = part.codes[SENSOR]
        z = (part.values - units.mean[types]) / np.sqrt(units.variance[types])
        return Observations(part.codes, z.astype(np.float32), part.ids)

    return standardised(train), standardised(validation)


def tasks_of(data: dict[str, Panel], seed: int) -> dict[str, Parts]:
    """Return the parts of every task in a split, by name."""
    return {f"{name} {share:.0%}": parts(data[name], share, seed) for name, share in TASKS}


def trial(tasks: dict[str, Parts], settings: dict[str, Any], n_jobs: int = -1) -> Trial:
    """Train with settings on every task, and report what validation says."""
    started = time.perf_counter()
    found: dict[str, dict[str, float]] = {}
    for name, (train, validation) in tasks.items():
        model = DeviationFactorizer(**{**settings, **FIXED, "n_jobs": n_jobs})
        try:
            curve = model.fit(train, validation=validation).learning_curve_
        except DivergedError:
            found[name] = dict.fromkeys(("mse", "nll", "epochs"), math.inf)
            continue
        best = model.n_epochs_ - 1
        found[name] = {
            "mse": curve["validation_rmse"][best] ** 2,
            "nll": curve["validation_nll"][best],
            "epochs": model.n_epochs_,
        }
    errors = [one["mse"] for one in found.values()]
    return {
        "error": float(np.exp(np.mean(np.log(errors)))),
        "tasks": found,
        "seconds": time.perf_counter() - started,
        "settings": settings,
    }


def main() -> None:
    """Search for both models, and keep all trials in one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("london", type=Path)
    parser.add_argument("intel", type=Path)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    paths = {"london-paper-size": given.london, "intel-2epoch": given.intel}
    data = {name: named_panel(name, path) for name, path in paths.items()}
    tasks = tasks_of(data, seed=0)
    done = json.loads(given.json.read_text())["trials"] if given.json.exists() else {}

    def keep(**more: Any) -> None:
        best = {name: min(trials, key=_error) for name, trials in done.items()}
        result = {"tasks": list(tasks), "best": best, "trials": done, **more, **where_and_when()}
        storage.write_bytes(given.json, as_json(result).encode())

    for name, space in SPACES.items():
        trials = done.setdefault(name, [])
        rng = np.random.default_rng(0)
        drawn = [draw(space, rng) for _ in range(given.trials)]
        for settings in progress(drawn[len(trials) :], desc=name):
            trials.append(trial(tasks, settings, given.jobs))
            keep()
    chosen: dict[str, list[Trial]] = {"ptf": [], "dtf": []}
    for seed in progress(range(SPLITS), desc="chosen"):
        tasks = tasks_of(data, seed)
        for name, settings in (("ptf", PTF), ("dtf", DTF)):
            chosen[name].append({"seed": seed, **trial(tasks, settings, given.jobs)})
    keep(chosen=chosen)


def _error(trial: Trial) -> float:
    """Return the error of a trial, as a file has it too: what has diverged is null there."""
    return math.inf if trial["error"] is None else float(trial["error"])


if __name__ == "__main__":
    main()
