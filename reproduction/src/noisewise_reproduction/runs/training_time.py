"""How long models train, on the same splits and in turns, so that a slow minute hits all alike.

    python -m noisewise_reproduction.runs.training_time ml1m.npz --json ml1m-time.json

A fit is what a user waits for: epochs chosen on validation (81 % of the ratings), then the refit on
90 %. Beside its seconds stands how long the first of the two took to reach the best validation RMSE
of Biased MF.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from noisewise import registry, storage
from noisewise.data import Observations, files
from noisewise.errors import progress
from noisewise.evaluation import comparison
from noisewise.evaluation.comparison import split_ratio
from noisewise.evaluation.records import as_json, where_and_when
from noisewise.splits import rating_split

MODELS = ("biased-mf", "dmf", "dmf-paper")


def fit_times(observations: Observations, *, splits: int, rounds: int) -> list[dict[str, Any]]:
    """Fit every model on every split in turns, ``rounds`` times over."""
    rows = []
    turns = [(r, s, name) for r in range(rounds) for s in range(splits) for name in MODELS]
    for round_, seed, name in progress(turns, desc="time", unit="fit"):
        split = rating_split(len(observations), seed)
        train, held_out = observations.take(split.train), observations.take(split.validation)
        model = registry.build("ratings", name, {"random_state": seed}).fit(
            train, validation=held_out
        )
        curve = model.learning_curve_
        rows.append(
            {
                "round": round_,
                "seed": seed,
                "model": name,
                "seconds": model.seconds_,
                "epochs": model.n_epochs_,
                "seconds_per_epoch": statistics.median(curve["seconds"]),
                "validation_rmse": curve["validation_rmse"],
                "epoch_seconds": curve["seconds"],
            }
        )
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Median times of each model, and its ratio to Biased MF over the same turns.

    The test is one over splits, each with its mean time over rounds: rounds of the same split train
    for the same epochs, and say no more than it does.
    """
    by = {(row["round"], row["seed"], row["model"]): row for row in rows}
    turns = sorted({key[:2] for key in by})
    result: dict[str, Any] = {}
    for name in MODELS:
        own = [by[(*turn, name)] for turn in turns]
        base = [by[(*turn, "biased-mf")] for turn in turns]
        seconds = [row["seconds"] for row in own]
        ratios = [a / b["seconds"] for a, b in zip(seconds, base, strict=True)]
        reached = [
            _until(row, min(other["validation_rmse"]))
            / _until(other, min(other["validation_rmse"]))
            for row, other in zip(own, base, strict=True)
        ]
        faster = sum(ratio < 1.0 for ratio in ratios)
        test = comparison.paired_test(_by_split(own), _by_split(base), split_ratio("paper", {}))
        result[name] = {
            "seconds": statistics.median(seconds),
            "epochs": statistics.median(row["epochs"] for row in own),
            "seconds_per_epoch": statistics.median(row["seconds_per_epoch"] for row in own),
            "ratio": statistics.median(ratios),
            "ratio_to_reach_biased_mf": statistics.median(reached),
            "faster_on": f"{faster} of {len(turns)}",
            "paired_t_pvalue": test.t_pvalue,
        }
    return result


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    observations = files.read(given.data)
    fit_times(observations.take(slice(20_000)), splits=1, rounds=1)  # compile, and warm up
    rows = fit_times(observations, splits=given.splits, rounds=given.rounds)
    result = {"data": given.data.name, "summary": summary(rows), "fits": rows, **where_and_when()}
    for name, row in result["summary"].items():
        print(name, {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
    storage.write_bytes(given.json, as_json(result).encode())


def _by_split(rows: list[dict[str, Any]]) -> list[float]:
    seeds = sorted({row["seed"] for row in rows})
    return [statistics.fmean(row["seconds"] for row in rows if row["seed"] == k) for k in seeds]


def _until(row: dict[str, Any], rmse: float) -> float:
    """Seconds of training until a validation RMSE was reached; all of them if it never was."""
    seconds = 0.0
    for spent, reached in zip(row["epoch_seconds"], row["validation_rmse"], strict=True):
        seconds += spent
        if reached <= rmse:
            break
    return seconds


if __name__ == "__main__":
    main()
