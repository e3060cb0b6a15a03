"""How well new users are predicted: ``python bench/newcomers.py DATA [--json FILE]``.

All ratings of some users are held out, and a model with its defaults is trained on the rest. Then
each of these users is folded in with the first 1, 2, 3, 5 and 10 of their ratings, in a random
order, and asked for those after the tenth. The line of 0 ratings is that of a stranger: what
``predict`` says of an id never seen.

Three promises: the RMSE is never above a stranger's, the mean std falls with every line, and 90 %
intervals hold 87 to 93 % of the values.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise import BayesianFactorizer, DeviationFactorizer, metrics
from noisewise.data import Observations
from noisewise.data.files import read
from noisewise.errors import UnknownIdsWarning
from noisewise.evaluation.records import where_and_when

MODELS = {"deviation": DeviationFactorizer, "bayesian": BayesianFactorizer}
RATINGS = (1, 2, 3, 5, 10)
COVERAGE, LOWEST, HIGHEST = 0.9, 0.87, 0.93
STRANGER = "an id that no data has"

Array = npt.NDArray[Any]


class Newcomer(NamedTuple):
    """A user who was held out: items and values, in the order in which they are told."""

    items: Array
    values: Array

    @property
    def asked(self) -> Array:
        """The items to predict, whatever the number that was told."""
        return self.items[RATINGS[-1] :]

    @property
    def truth(self) -> Array:
        """Their values."""
        return self.values[RATINGS[-1] :]


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="ratings, of any format noisewise reads")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--users", type=int, default=120, help="to hold out (default: 120)")
    parser.add_argument("--seed", type=int, default=0, help="of users, orders and models")
    parser.add_argument("--n-jobs", type=int, default=-1, help="threads (default: all cores)")
    parser.add_argument("--json", type=Path, help="file to write; other models there are kept")
    chosen = parser.parse_args()

    observations = read(chosen.data)
    train, newcomers = parted(observations, chosen.users, chosen.seed)
    report = where_and_when() | {
        "data": {
            "name": chosen.data.stem,
            "ratings": len(observations),
            "users": observations.shape[0],
            "items": observations.shape[1],
        },
        "settings": {
            "users_held_out": len(newcomers),
            "ratings_asked": sum(len(newcomer.truth) for newcomer in newcomers),
            "ratings_told": RATINGS,
            "seed": chosen.seed,
            "models": "defaults",
        },
        "models": _kept(chosen.json),
    }
    for name in chosen.models:
        report["models"][name] = measured(name, train, newcomers, chosen.seed, chosen.n_jobs)
        print(_as_text(name, report["models"][name]))
        if chosen.json is not None:
            chosen.json.parent.mkdir(parents=True, exist_ok=True)
            chosen.json.write_text(json.dumps(report, indent=1) + "\n")


def parted(
    observations: Observations, users: int, seed: int
) -> tuple[Observations, list[Newcomer]]:
    """Return what is trained on, and the users who are held out; each has ratings to ask for."""
    rng = np.random.default_rng(seed)
    rows, items = observations.codes
    enough = np.flatnonzero(np.bincount(rows) > RATINGS[-1])
    if len(enough) < users:
        raise SystemExit(f"Only {len(enough)} users have more than {RATINGS[-1]} ratings.")
    late = rng.choice(enough, users, replace=False)
    labels = observations.ids[1].labels
    newcomers = []
    for row in late.tolist():
        own = rng.permutation(np.flatnonzero(rows == row))
        newcomers.append(Newcomer(labels[items[own]], observations.values[own]))
    return observations.take(~np.isin(rows, late)), newcomers


def measured(
    name: str, train: Observations, newcomers: list[Newcomer], seed: int, n_jobs: int
) -> dict[str, Any]:
    """Train a model, and measure what it makes of newcomers."""
    started = time.perf_counter()
    model = MODELS[name](random_state=seed, n_jobs=n_jobs).fit(train)
    fit_seconds = time.perf_counter() - started
    truth = np.concatenate([newcomer.truth for newcomer in newcomers])
    lines = []
    for n in (0, *RATINGS):
        parts = [_predicted(model, newcomer, n) for newcomer in newcomers]
        mean, std, low, high = map(np.concatenate, zip(*parts, strict=True))
        lines.append(
            {
                "ratings": n,
                "rmse": metrics.rmse(truth, mean),
                "mean_std": float(std.mean()),
                "coverage_90": metrics.coverage(truth, low, high),
                "mean_width_90": metrics.width(low, high),
            }
        )
    rmse, std, covered = (
        [line[key] for line in lines] for key in ("rmse", "mean_std", "coverage_90")
    )
    return {
        "fit_seconds": round(fit_seconds, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "by_ratings": lines,
        "promises": {
            "never_worse_than_a_stranger": max(rmse[1:]) <= rmse[0],
            "std_falls_with_every_line": all(np.diff(std) < 0),
            "coverage_87_to_93": min(covered[1:]) >= LOWEST and max(covered[1:]) <= HIGHEST,
        },
    }


def _predicted(model: Any, newcomer: Newcomer, n: int) -> tuple[Array, ...]:
    """Return mean, std, and the ends of the interval of what a newcomer is asked for."""
    who, cells = model, [(STRANGER, item) for item in newcomer.asked.tolist()]
    if n:
        who = model.fold_in(newcomer.items[:n].tolist(), newcomer.values[:n])
        cells = newcomer.asked.tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownIdsWarning)  # a stranger is one
        interval = who.predict_interval(cells, coverage=COVERAGE)
        return (*who.predict(cells, return_std=True), *interval)


def _kept(path: Path | None) -> dict[str, Any]:
    if path is None or not path.exists():
        return {}
    return dict(json.loads(path.read_text())["models"])


def _as_text(name: str, found: dict[str, Any]) -> str:
    lines = [f"{name:12}{'ratings':>8}{'rmse':>9}{'std':>9}{'90 %':>9}"]
    lines += [
        f"{'':12}{line['ratings']:8}{line['rmse']:9.4f}{line['mean_std']:9.4f}"
        f"{line['coverage_90']:9.4f}"
        for line in found["by_ratings"]
    ]
    lines += [f"{'':12}{what}: {kept}" for what, kept in found["promises"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
