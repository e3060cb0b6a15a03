"""How well peers predict: ``python bench/peers.py accuracy|small DATA [--json FILE]``.

``accuracy`` runs myFM with its best published features; ``small`` runs every system, and is meant
for MovieLens 100K. The protocol is the paper's, as ``noisewise evaluate --protocol paper`` has it:
for split s the first tenth of a permutation drawn from s is the test part, all else is trained on,
and a test pair whose user or item is not in training gets the rating 3.

The file is written after each split; a run goes on from what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from raters import RATERS, UNKNOWN, Forecast, Rater

from noisewise import BayesianFactorizer, metrics
from noisewise.data import Observations
from noisewise.data.files import read
from noisewise.evaluation import comparison
from noisewise.evaluation.comparison import split_ratio
from noisewise.evaluation.records import where_and_when
from noisewise.splits import rating_split

DEFAULT = {"accuracy": ["myfm"], "small": list(RATERS)}
PACKAGES = ("myfm", "scikit-surprise", "cornac", "scipy", "pandas")
PROTOCOL = (
    "split s: the first tenth of default_rng(s).permutation(n) is test, all else training; a test "
    "pair whose user or item is not in training gets the rating 3"
)
SHOWN = ("rmse", "log_loss", "spearman", "error_auc", "seconds", "cpu_seconds")

Report = dict[str, Any]


def main() -> None:
    """Read the command line, run what is missing, write and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=list(DEFAULT))
    parser.add_argument("data", type=Path, help="ratings with times, of any format noisewise reads")
    parser.add_argument("--time", default="timestamp", help="its column (default: timestamp)")
    parser.add_argument("--systems", nargs="+", choices=list(RATERS), help="only these")
    parser.add_argument("--splits", type=int, default=5, help="how many (default: 5)")
    parser.add_argument("--json", type=Path, help="file to write, and to go on from")
    parser.add_argument("--quick", action="store_true", help="a smoke test; writes nothing")
    chosen = parser.parse_args()
    if chosen.quick and chosen.json:
        parser.error("--quick writes nothing: leave out --json.")
    if chosen.splits < 1:
        parser.error(f"--splits must be 1 or more; got {chosen.splits}.")

    observations = read(chosen.data, time=chosen.time)
    report = _begun(chosen.json, observations, chosen.data.stem)
    for name in chosen.systems or DEFAULT[chosen.what]:
        rater = RATERS[name]
        if chosen.quick:
            rater = rater._replace(settings=rater.settings | rater.quick)
        entry = _entry(report, name, rater)
        for seed in range(chosen.splits):
            if any(row["seed"] == seed for row in entry["splits"]):
                continue
            entry["splits"].append({"seed": seed, **_judged(rater, observations, seed)})
            _summarise(entry)
            if chosen.json:
                _write(chosen.json, report)
            print(
                f"{name}, split {seed}: {_line(entry['splits'][-1])}", file=sys.stderr, flush=True
            )
    print(_as_text(report))
    if chosen.quick:
        print("\nA quick run is a smoke test: these figures mean nothing.")


def _judged(rater: Rater, observations: Observations, seed: int) -> dict[str, float]:
    """Train on one split, and measure on its test part."""
    split = rating_split(len(observations), seed)
    train, test = observations.take(np.sort(split.fit)), observations.take(split.test)
    started = time.perf_counter()
    forecast = rater.predict(train, test, rater.settings, seed)
    everything = time.perf_counter() - started
    unknown = np.zeros(len(test), dtype=bool)
    for trained, tested in zip(train.codes, test.codes, strict=True):
        unknown |= ~np.isin(tested, trained)
    levels = np.unique(train.values)
    mean = np.where(unknown, UNKNOWN, np.clip(forecast.mean, levels[0], levels[-1]))
    measured = _measured(forecast, test.values, mean, levels)
    return measured | {
        "unknown": int(unknown.sum()),
        "seconds": round(forecast.took.seconds, 2),
        "cpu_seconds": round(forecast.took.cpu_seconds, 2),
        "predict_seconds": round(everything - forecast.took.seconds, 2),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _measured(forecast: Forecast, truth: Any, mean: Any, levels: Any) -> dict[str, float]:
    found = {"rmse": metrics.rmse(truth, mean), "mae": metrics.mae(truth, mean)}
    if forecast.std is not None:
        found["log_loss"] = metrics.rating_log_loss(truth, mean, forecast.std, levels)
        found["spearman"] = metrics.spearman(truth, mean, forecast.std)
        found["error_auc"] = metrics.error_auc(truth, mean, forecast.std)
    if forecast.chances is not None:
        right = forecast.chances[np.arange(len(truth)), np.searchsorted(levels, truth)]
        found["log_loss"] = float(-np.log(np.maximum(right, 1e-12)).mean())
    return found


def _begun(path: Path | None, observations: Observations, name: str) -> Report:
    """Return the report in the file, or an empty one."""
    data = {"name": name, "observations": len(observations), "shape": list(observations.shape)}
    if path is None or not path.exists():
        return {"data": data, "protocol": PROTOCOL, "systems": {}}
    report: Report = json.loads(path.read_text())
    if report["data"] != data:
        raise SystemExit(f"{path} is about {report['data']}; got {data}. Name another file.")
    return report


def _entry(report: Report, name: str, rater: Rater) -> Report:
    """Return a system's part of the report; what other settings or versions gave is dropped."""
    settings = dict(rater.settings)
    if name.startswith("noisewise"):
        settings = BayesianFactorizer(**settings).get_params()
    place = where_and_when()
    place["machine"]["packages"] |= {package: version(package) for package in PACKAGES}
    entry = {"model": rater.model, "settings": settings, "splits": []} | place
    found = report["systems"].get(name)
    if found is None or _identity(found) != _identity(entry):
        report["systems"][name] = entry
    kept: Report = report["systems"][name]
    return kept


def _identity(entry: Report) -> tuple[Any, ...]:
    return entry["settings"], entry["machine"]["packages"]


def _summarise(entry: Report) -> None:
    rows = entry["splits"]
    keys = [key for key in rows[0] if key not in ("seed", "load_average")]
    ratio = split_ratio("paper", {})
    found = {key: comparison.summarise([row[key] for row in rows], ratio) for key in keys}
    entry["mean"] = {key: summary.mean for key, summary in found.items()}
    entry["interval95"] = {
        key: [summary.low, summary.high] if len(rows) > 1 else [None, None]
        for key, summary in found.items()
    }


def _write(path: Path, report: Report) -> None:
    """Write beside the file and rename: a run that is stopped leaves a whole file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(report, indent=1) + "\n")
    beside.replace(path)


def _as_text(report: Report) -> str:
    lines = [f"{report['data']['name']:20}" + "".join(f"{key:>12}" for key in ("splits", *SHOWN))]
    for name, entry in report["systems"].items():
        cells = [f"{entry['mean'][k]:12.4f}" if k in entry["mean"] else f"{'-':>12}" for k in SHOWN]
        lines.append(f"{name:20}{len(entry['splits']):12d}" + "".join(cells))
    return "\n".join(lines)


def _line(row: dict[str, float]) -> str:
    return ", ".join(f"{key} {row[key]:.4f}" for key in SHOWN if key in row)


if __name__ == "__main__":
    main()
