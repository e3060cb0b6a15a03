"""Intervals, sets, sizes and times: ``python bench/intervals.py ml100k.npz [--json FILE]``.

Every model is fitted to each split (the first tenth of ``default_rng(seed).permutation(n)`` is
test). Of the test cells: RMSE, NLL, coverage and width of 90 % intervals, coverage and size of 90 %
sets, and coverage and error over std in every tenth by predicted mean, by std, by the number of the
user's ratings and by that of the item's. Of the fit: seconds, seconds of CPU, sweeps, and bytes of
the file. ``before`` has the sweeps and draws that were the defaults once, without tolerance.

A file that is there already keeps its runs, which are not run again.

``--inner`` never looks at the test part: a tenth of the rest is predicted from what is left. With
``--keep FOLDER`` a file of every fit has the errors that it was calibrated on, and the predictions
before that; ``bench/interval_choice.py`` tries how to calibrate on these.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise import BayesianFactorizer, DeviationFactorizer
from noisewise.calibration import Calibration
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


class Asked(NamedTuple):
    """How to measure."""

    device: str
    n_jobs: int
    inner: bool
    keep: Path | None


class Predicted(NamedTuple):
    """Predictions of cells with their intervals, and how often their ids were trained on."""

    truth: Any
    mean: Any
    std: Any
    low: Any
    high: Any
    counts: list[Any]


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="ratings with times, in a file noisewise reads")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["dmf", "bayes"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--device", default="cpu", help="where to fit")
    parser.add_argument("--n-jobs", type=int, default=2, help="threads")
    parser.add_argument("--inner", action="store_true", help="leave the test part alone")
    parser.add_argument("--keep", type=Path, help="folder for predictions before calibration")
    parser.add_argument(
        "--json", type=Path, help="file to write, after every fit; runs that it has are kept"
    )
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore", "Predictions have not settled")
    how = Asked(chosen.device, chosen.n_jobs, chosen.inner, chosen.keep)
    seen = read(chosen.data, time="timestamp")
    runs: list[dict[str, Any]] = kept(chosen.json)
    done = {(run["model"], run["seed"]) for run in runs}
    for seed in chosen.seeds:
        for name in chosen.models:
            if (name, seed) in done:
                continue
            found = measured(name, seen, seed, how, chosen.data.stem)
            runs.append({"model": name, "seed": seed} | found | where_and_when())
            told = {k: v for k, v in runs[-1].items() if k not in ("tenths", "machine")}
            print({k: round(v, 4) if isinstance(v, float) else v for k, v in told.items()})
            if chosen.json is not None:
                report = where_and_when() | {
                    "data": chosen.data.name,
                    "settings": {n: MODELS[n][1] for n in sorted({run["model"] for run in runs})},
                    "device": chosen.device,
                    "threads": chosen.n_jobs,
                    "inner": chosen.inner,
                    "summary": summary(runs),
                    "runs": runs,
                }
                chosen.json.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(summary(runs), indent=1))


def kept(path: Path | None) -> list[dict[str, Any]]:
    """Return the runs of a file that is there, each with its machine and its date."""
    if path is None or not path.exists():
        return []
    report = json.loads(path.read_text())
    where = {key: report[key] for key in ("machine", "date")}
    return [where | run for run in report["runs"]]


def parts(n: int, seed: int, *, inner: bool) -> tuple[Any, Any]:
    """Return which observations are trained on, and which are asked for."""
    split = rating_split(n, seed)
    if not inner:
        return split.fit, split.test
    again = rating_split(len(split.fit), seed)
    return split.fit[again.fit], split.fit[again.test]


def measured(name: str, seen: Any, seed: int, how: Asked, data: str) -> dict[str, Any]:
    """Fit one model to one split, and measure it."""
    kind, settings = MODELS[name]
    fit, test = (seen.take(part) for part in parts(len(seen), seed, inner=how.inner))
    own = {"random_state": seed, "device": how.device, "n_jobs": how.n_jobs, "verbose": False}
    model, learned = kind(**own, **settings), Learned()
    started, cpu = time.perf_counter(), time.process_time()
    with learned:
        model.fit(fit)
    found = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.nw")
        found["megabytes"] = (Path(folder) / "model.nw").stat().st_size / 1e6
    asked = test if settings.get("time") else test.decode()
    sets = model.predict_set(asked, COVERAGE)
    mean, std = model.predict(asked, return_std=True)
    low, high = model.predict_interval(asked, COVERAGE)
    rows = [ids.lookup(labels) for ids, labels in zip(model.ids_, _columns(test), strict=True)]
    counts = [np.append(n, 0)[code] for n, code in zip(model.factors_.counts, rows, strict=True)]
    truth = test.values
    if how.keep is not None:
        how.keep.mkdir(parents=True, exist_ok=True)
        model.calibration_ = None
        raw = dict(zip(("mean", "std"), model.predict(asked, return_std=True), strict=True))
        raw |= {"truth": truth, "user": counts[0], "item": counts[1], "levels": model.levels_}
        path = how.keep / f"{data}-{name}-{seed}{'-inner' if how.inner else ''}.npz"
        np.savez_compressed(path, allow_pickle=False, **raw, **learned.given)
    place = np.searchsorted(model.levels_, truth)
    found |= judged(Predicted(truth, mean, std, low, high, counts))
    return found | {
        "epochs": model.n_epochs_,
        "set_coverage": float(sets[np.arange(len(truth)), place].mean()),
        "set_size": float(sets.sum(axis=1).mean()),
        "load_average": os.getloadavg()[0],
    }


class Learned:
    """Notes what a model is calibrated on."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def __enter__(self) -> None:
        self.before = Calibration.__dict__["measure"], Calibration.__dict__["left_out"]
        measure, left_out = Calibration.measure, Calibration.left_out

        def noted(error: Any, std: Any, mean: Any = None) -> Any:
            if mean is not None:
                self._note(np.asarray(mean) + error, mean, std, left_out=False)
            return measure(error, std, mean)

        def noted_left_out(
            truth: Any, means: Any, stds: Any, levels: Any, chances: Any = None, scale: float = 1.0
        ) -> Any:
            self._note(truth, means, stds, left_out=True)
            self.given["scale"] = np.array(scale)
            return left_out(truth, means, stds, levels, chances, scale)

        Calibration.measure = staticmethod(noted)  # type: ignore[method-assign, assignment]
        Calibration.left_out = staticmethod(noted_left_out)  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        Calibration.measure, Calibration.left_out = self.before  # type: ignore[method-assign]

    def _note(self, truth: Any, mean: Any, std: Any, *, left_out: bool) -> None:
        parts = {"held_out_truth": truth, "held_out_mean": mean, "held_out_std": std}
        self.given = {name: np.asarray(part, dtype=np.float32) for name, part in parts.items()}
        self.given["left_out"] = np.array(left_out)


def judged(cells: Predicted) -> dict[str, Any]:
    """Measure predictions and their intervals, all of them and tenth by tenth."""
    truth, mean, std = (np.asarray(part, dtype=np.float64) for part in cells[:3])
    error = truth - mean
    held = (truth >= cells.low - 1e-6) & (truth <= cells.high + 1e-6)
    score = (error / std) ** 2
    ties = np.random.default_rng(0).random(len(truth))
    keys = {"mean": mean, "std": std}
    keys |= dict(zip(("user activity", "item popularity"), cells.counts, strict=True))
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "nll": float(np.mean(np.log(2 * np.pi * std**2) + score) / 2),
        "coverage": float(held.mean()),
        "width": float(np.mean(cells.high - cells.low)),
        "error_over_std": float(np.sqrt(score.mean())),
        "tenths": {
            by: [
                {"coverage": float(held[part].mean()), "error_over_std": _root(score[part])}
                for part in np.array_split(np.lexsort((ties, key)), 10)
            ]
            for by, key in keys.items()
        },
    }


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
