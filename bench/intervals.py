"""Intervals, sets, sizes and times: ``python bench/intervals.py ml100k.npz [--json FILE]``.

Every model is fitted to each split (the first tenth of ``default_rng(seed).permutation(n)`` is
test). Of the test cells: RMSE, NLL, coverage and width of 90 % intervals, coverage and size of 90 %
sets, and coverage and error over std in every tenth by predicted mean, by std, by the number of the
user's ratings and by that of the item's. Of the fit: seconds, seconds of CPU, sweeps, and bytes of
the file. ``before`` has the sweeps and draws that were the defaults once, without tolerance.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import BayesianFactorizer, DeviationFactorizer
from noisewise.data.files import read
from noisewise.evaluation.records import where_and_when
from noisewise.splits import rating_split

COVERAGE = 0.9
BEFORE = {"sweeps": 300, "burn_in": 50, "samples": 100, "tolerance": None}
FULL = {"likelihood": "ordinal", "time": "timestamp"}
MODELS: dict[str, Any] = {
    "dmf": (DeviationFactorizer, {}),
    "bayes": (BayesianFactorizer, {}),
    "before": (BayesianFactorizer, BEFORE),
    "full": (BayesianFactorizer, FULL),
}
AIMS = {"coverage": (0.875, 0.925), "error_over_std": (0.93, 1.07)}


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="ratings with times, in a file noisewise reads")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["dmf", "bayes"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--device", default="cpu", help="where to fit")
    parser.add_argument("--json", type=Path, help="file to write, after every fit")
    chosen = parser.parse_args()
    seen = read(chosen.data, time="timestamp")
    runs: list[dict[str, Any]] = []
    for seed in chosen.seeds:
        for name in chosen.models:
            runs.append({"model": name, "seed": seed} | measured(name, seen, seed, chosen.device))
            told = {k: v for k, v in runs[-1].items() if k != "tenths"}
            print({k: round(v, 4) if isinstance(v, float) else v for k, v in told.items()})
            if chosen.json is not None:
                report = where_and_when() | {
                    "data": chosen.data.name,
                    "settings": {n: MODELS[n][1] for n in chosen.models},
                    "device": chosen.device,
                    "summary": summary(runs),
                    "runs": runs,
                }
                chosen.json.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(summary(runs), indent=1))


def measured(name: str, seen: Any, seed: int, device: str) -> dict[str, Any]:
    """Fit one model to one split, and measure it."""
    kind, settings = MODELS[name]
    split = rating_split(len(seen), seed)
    test = seen.take(split.test)
    model = kind(random_state=seed, device=device, n_jobs=2, verbose=False, **settings)
    started, cpu = time.perf_counter(), time.process_time()
    model.fit(seen.take(split.fit))
    found = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.nw")
        found["megabytes"] = (Path(folder) / "model.nw").stat().st_size / 1e6
    asked = test if settings.get("time") else test.decode()
    mean, std = model.predict(asked, return_std=True)
    low, high = model.predict_interval(asked, COVERAGE)
    sets = model.predict_set(asked, COVERAGE)
    truth, error = test.values, test.values - mean
    held = (truth >= low - 1e-6) & (truth <= high + 1e-6)
    score = (error / std) ** 2
    place = np.searchsorted(model.levels_, truth)
    found |= {
        "epochs": model.n_epochs_,
        "rmse": float(np.sqrt(np.mean(error**2))),
        "nll": float(np.mean(np.log(2 * np.pi * std**2) + score) / 2),
        "coverage": float(held.mean()),
        "width": float(np.mean(high - low)),
        "error_over_std": float(np.sqrt(score.mean())),
        "set_coverage": float(sets[np.arange(len(truth)), place].mean()),
        "set_size": float(sets.sum(axis=1).mean()),
        "load_average": os.getloadavg()[0],
    }
    rows = [ids.lookup(labels) for ids, labels in zip(model.ids_, _columns(test), strict=True)]
    counts = [np.append(n, 0)[code] for n, code in zip(model.factors_.counts, rows, strict=True)]
    ties = np.random.default_rng(0).random(len(truth))
    keys = {"mean": mean, "std": std, "user activity": counts[0], "item popularity": counts[1]}
    found["tenths"] = {
        by: [
            {"coverage": float(held[part].mean()), "error_over_std": _root(score[part])}
            for part in np.array_split(np.lexsort((ties, key)), 10)
        ]
        for by, key in keys.items()
    }
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over splits; the lowest and the highest tenth, of means over splits."""
    told: dict[str, Any] = {}
    for name in dict.fromkeys(run["model"] for run in runs):
        own = [run for run in runs if run["model"] == name]
        numbers = [key for key, value in own[0].items() if isinstance(value, float)]
        told[name] = {key: float(np.mean([run[key] for run in own])) for key in numbers}
        told[name] |= {"splits": len(own), "tenths": {}}
        for by in own[0]["tenths"]:
            for what, (least, most) in AIMS.items():
                tenths = np.mean([[t[what] for t in run["tenths"][by]] for run in own], axis=0)
                low, high = float(tenths.min()), float(tenths.max())
                told[name]["tenths"][f"{what} by {by}"] = [low, high, least <= low <= high <= most]
    return told


def _columns(test: Any) -> list[Any]:
    pairs = zip(test.ids, test.codes, strict=True)
    return [ids.labels[codes].tolist() for ids, codes in pairs]


def _root(squares: Any) -> float:
    return float(np.sqrt(squares.mean()))


if __name__ == "__main__":
    main()
