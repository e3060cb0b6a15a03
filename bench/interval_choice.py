"""How to calibrate, chosen on validation data: ``python bench/interval_choice.py FOLDER``.

FOLDER has files that ``bench/intervals.py --inner --keep FOLDER`` wrote: a tenth of what is no test
data, predicted from the rest. The constants of ``noisewise.calibration`` are tried one at a time
and some of them together; of every model and dataset the worst tenth (by mean, std, activity and
popularity, averaged over splits) is looked at. The fewer points tenths are off, the better.
``--test`` judges files without ``--inner`` by the constants as they are.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from intervals import COVERAGE, Predicted, judged, summary

from noisewise import calibration
from noisewise.calibration import Calibration
from noisewise.evaluation.records import where_and_when

TRIED: dict[str, list[Any]] = {
    "KNOTS": [5, 8, 12],
    "PENALTY": [5.0, 20.0, 80.0],
    "GROUPS": [(1, 1), (10, 1), (20, 1), (20, 3), (20, 5), (40, 5)],
    "BORROWED": [30.0, 100.0, 300.0],
    "MORE_BORROWED": [100.0, 300.0, 1_000.0],
}
NAMES = ("KNOTS", "PENALTY", "GROUPS", "PER_GROUP", "BORROWED", "MORE_BORROWED")


def main() -> None:
    """Read the command line, try, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--test", action="store_true", help="judge test data instead of choosing")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    files = load(chosen.folder, inner=not chosen.test)
    usual = {name: getattr(calibration, name) for name in NAMES}
    if chosen.test:
        found: Any = {"constants": usual} | {of: summary(runs_of(own)) for of, own in files.items()}
    else:
        found = {"constants": usual, "tried": tried(files, usual)}
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(where_and_when() | found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def load(folder: Path, *, inner: bool) -> dict[str, list[tuple[int, Any]]]:
    """Return what files have, by data and model, with their seeds."""
    files: dict[str, Any] = defaultdict(list)
    for path in sorted(folder.glob("*.npz")):
        data, model, seed, *rest = path.stem.split("-")
        if bool(rest) == inner:
            files[f"{data} {model}"].append((int(seed), dict(np.load(path))))
    if not files:
        raise SystemExit(f"{folder} has no such files.")
    return dict(files)


def tried(files: dict[str, Any], usual: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure every choice, the best first."""
    choices: list[dict[str, Any]] = [{}]
    choices += [{name: value} for name, values in TRIED.items() for value in values]
    pair = product(TRIED["GROUPS"], TRIED["BORROWED"])
    choices += [{"GROUPS": groups, "BORROWED": borrowed} for groups, borrowed in pair]
    found = []
    for choice in choices:
        for name, value in (usual | choice).items():
            setattr(calibration, name, value)
        told = {of: summary(runs_of(own)) for of, own in files.items()}
        worst = {of: off(next(iter(own.values()))) for of, own in told.items()}
        widths = {of: next(iter(own.values()))["width"] for of, own in told.items()}
        mean = {key: float(np.mean([w[key] for w in worst.values()])) for key in ("coverage", "z")}
        found.append({"choice": choice, "mean": mean, "worst": worst, "width": widths})
        print({k: v for k, v in found[-1].items() if k != "width"}, flush=True)
    for name, value in usual.items():
        setattr(calibration, name, value)
    return sorted(found, key=lambda one: one["mean"]["coverage"])


def off(told: dict[str, Any]) -> dict[str, float]:
    """Return how far the worst tenth is from what it should be."""
    away = {"coverage": 0.0, "z": 0.0}
    for name, (low, high, _) in told["tenths"].items():
        key, aim = ("coverage", COVERAGE) if name.startswith("coverage") else ("z", 1.0)
        away[key] = max(away[key], aim - low, high - aim)
    return away


def runs_of(files: list[tuple[int, Any]]) -> list[dict[str, Any]]:
    """Calibrate and judge every file of a model."""
    return [{"model": "it", "seed": seed} | judged(predicted(file)) for seed, file in files]


def predicted(file: dict[str, Any]) -> Predicted:
    """Return predictions as calibrated on what a file has for that."""
    mean, std = (file[name].astype(np.float64) for name in ("mean", "std"))
    levels, own = file["levels"], None
    low, high = (levels[0], levels[-1]) if len(levels) else (-np.inf, np.inf)
    if "held_out_truth" in file:
        given = [file[f"held_out_{name}"].astype(np.float64) for name in ("truth", "mean", "std")]
        if file.get("left_out"):
            own = Calibration.left_out(*given, levels, scale=float(file.get("scale", 1.0)))
        else:
            own = Calibration.measure(given[0] - given[1], given[2], given[1])
    half = calibration.normal_half_width(COVERAGE)
    if own is not None:
        std = std * np.sqrt(own.factor(mean, std))
        half = own.half_width(COVERAGE, mean, std)
    ends = (mean - half * std).clip(low, high), (mean + half * std).clip(low, high)
    return Predicted(file["truth"], mean, std, *ends, [file["user"], file["item"]])


if __name__ == "__main__":
    main()
