"""How the settings of Tucker were chosen: a random search on London, on validation alone.

    python -m noisewise_reproduction.runs.search_tucker london_laqn_daily.npz \
        --json reproduction/results/search-tucker.json

A trial draws settings and trains on the sparsest and on the densest share of the protocol, of split
0, stopping by the validation part; the test part is never looked at. The best is the one whose
errors on both, over the lowest of all trials, have the smallest mean. A run that is stopped goes on
where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from noisewise import storage
from noisewise.data import Observations
from noisewise.data.panel import named_panel
from noisewise.errors import progress
from noisewise.evaluation.records import as_json, where_and_when
from noisewise.splits import share_split
from noisewise_reproduction.declared import SHARES
from noisewise_reproduction.rivals.engine import tucker_sgd as tucker
from noisewise_reproduction.rivals.tucker import TuckerFactorizer
from noisewise_reproduction.runs.search import Space, draw

DATA = "london-paper-size"
ENDS = (SHARES[DATA][0], SHARES[DATA][-1])
SPACE: Space = {
    "rank": [6, 8, 10, 12],
    "learning_rate": (0.05, 0.2),
    "l2": (0.003, 0.06),
    "shrink": [1, 3, 10],  # of the start: `noisewise_reproduction.rivals.engine.tucker_sgd.SHRINK`
}

Trial = dict[str, Any]


def trial(observations: Observations, settings: dict[str, Any]) -> Trial:
    """Train with settings on both shares, and report what validation says."""
    own = {name: value for name, value in settings.items() if name != "shrink"}
    errors, epochs = [], []
    started = time.perf_counter()
    for share in ENDS:
        split = share_split(observations.shape, observations.codes, share, seed=0)
        model = TuckerFactorizer(**own, refit=False, patience=2, random_state=0)
        with mock.patch.object(tucker, "SHRINK", settings["shrink"]):
            model.fit(
                observations.take(split.train), validation=observations.take(split.validation)
            )
        best = model.n_epochs_ - 1
        errors.append(model.learning_curve_["validation_rmse"][best] ** 2)
        epochs.append(model.n_epochs_)
    seconds = time.perf_counter() - started
    return {"validation_mse": errors, "epochs": epochs, "seconds": seconds, "settings": settings}


def best_of(trials: list[Trial]) -> Trial:
    """Return the trial that is best on average over the shares.

    Examples
    --------
    >>> best_of([{"validation_mse": [0.5, 0.2]}, {"validation_mse": [0.4, 0.21]}])
    {'validation_mse': [0.4, 0.21]}
    """
    errors = np.array([one["validation_mse"] for one in trials])
    return trials[int((errors / errors.min(axis=0)).mean(axis=1).argmin())]


def main() -> None:
    """Search, and keep all trials in one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    observations = named_panel(DATA, given.data).observations
    trials: list[Trial] = (
        json.loads(given.json.read_text())["trials"] if given.json.exists() else []
    )
    rng = np.random.default_rng(0)
    drawn = [draw(SPACE, rng) for _ in range(given.trials)]
    for settings in progress(drawn[len(trials) :], desc="tucker"):
        trials.append(trial(observations, settings))
        result = {"data": DATA, "shares": ENDS, "split": 0, "best": best_of(trials)}
        result |= {"trials": trials, **where_and_when()}
        storage.write_bytes(given.json, as_json(result).encode())


if __name__ == "__main__":
    main()
