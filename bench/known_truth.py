"""What the Bayesian model makes of made-up tables: ``python bench/known_truth.py [--json FILE]``.

Tables whose signal is a constant, of rank one, or a sum of two effects, with no noise, and with
noise of a ten-thousandth and a thousandth of the signal; a fifth of the cells is held out. And
ratings that are nothing but noise. All with the defaults.

Promises: the RMSE of held-out cells is at most twice the noise, and 90 % intervals hold 85 to 97 %
of them where there is noise; a model that was saved and loaded predicts the same. Of ratings that
are pure noise, the noise is found to a tenth, and the RMSE is within 2 % of the spread of values.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise import BayesianFactorizer
from noisewise.evaluation.records import where_and_when

SIGNALS = {
    "constant": lambda a, b: np.full((len(a), len(b)), 3.0),
    "rank one": np.outer,
    "additive": np.add.outer,
}
SHAPES = (60, 50), (500, 300)
NOISES = 0.0, 1e-4, 1e-3
RANDOM = (86, 65, 20), (500, 300, 40)  # users, items, ratings of a user

Array = npt.NDArray[Any]


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1, help="tables of each kind (default: 1)")
    parser.add_argument("--json", type=Path, help="file to write")
    chosen = parser.parse_args()
    report: dict[str, Any] = where_and_when() | {"settings": "defaults", "tables": [], "random": []}
    for seed in range(chosen.seeds):
        for users, items, each in RANDOM:
            _note(report["random"], pure_noise(users, items, each, seed), chosen.json, report)
        for shape in SHAPES:
            for signal in SIGNALS:
                for noise in NOISES:
                    entry = table(signal, shape, noise, seed)
                    _note(report["tables"], entry, chosen.json, report)


def table(signal: str, shape: tuple[int, int], noise: float, seed: int) -> dict[str, Any]:
    """Learn a table, and measure on the cells that were held out, in units of the signal."""
    rng = np.random.default_rng([17, seed])
    clean = SIGNALS[signal](*(rng.normal(size=n) for n in shape))
    size = float(clean.std()) or 1.0
    values = clean + noise * size * rng.normal(size=shape)
    known = rng.random(shape) < 0.8
    model, seconds = _fitted(np.argwhere(known), values[known], seed)
    cells, truth = np.argwhere(~known), values[~known]
    mean, noise_std, epistemic = model.predict_parts(cells)
    low, high = model.predict_interval(cells)
    rmse = float(np.sqrt(np.mean((truth - mean) ** 2))) / size
    inside = float(np.mean((low <= truth) & (truth <= high)))
    promised = rmse <= 2.0 * noise and 0.85 <= inside <= 0.97 if noise else rmse <= 2e-4
    return {
        "signal": signal, "shape": shape, "noise": noise, "seed": seed, "rmse": rmse,
        "coverage90": inside, "noise_std": _mean(noise_std) / size,
        "epistemic_std": _mean(epistemic) / size, "same_after_load": _kept(model, cells),
        "seconds": seconds, "kept": bool(promised),
    }  # fmt: skip


def pure_noise(users: int, items: int, each: int, seed: int) -> dict[str, Any]:
    """Learn ratings of 1 to 5 stars thrown at random, a tenth of them held out."""
    rng = np.random.default_rng([18, seed])
    X = np.array([(u, i) for u in range(users) for i in rng.choice(items, each, replace=False)])
    y = rng.integers(1, 6, len(X)).astype(float)
    hidden = rng.random(len(X)) < 0.1
    model, seconds = _fitted(X[~hidden], y[~hidden], seed)
    mean, noise_std, epistemic = model.predict_parts(X[hidden])
    rmse, spread = float(np.sqrt(np.mean((y[hidden] - mean) ** 2))), float(y[hidden].std())
    found = _mean(noise_std)
    return {
        "users": users, "items": items, "each": each, "seed": seed, "rmse": rmse,
        "spread": spread, "rmse_over_spread": rmse / spread, "noise_std": found,
        "epistemic_std": _mean(epistemic), "seconds": seconds,
        "kept": bool(abs(found / np.sqrt(2.0) - 1.0) <= 0.1 and rmse / spread <= 1.02),
    }  # fmt: skip


def _fitted(X: Array, y: Array, seed: int) -> tuple[BayesianFactorizer, float]:
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that are all alike
        model = BayesianFactorizer(random_state=seed).fit(X, y)
    return model, round(time.perf_counter() - started, 1)


def _kept(model: BayesianFactorizer, cells: Array) -> bool:
    """Whether a model that was saved and loaded predicts the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.nw"
        model.save(path)
        again = BayesianFactorizer.load(path).predict(cells, return_std=True)
    return all(map(np.array_equal, model.predict(cells, return_std=True), again))


def _mean(std: Array) -> float:
    return float(np.sqrt(np.mean(std.astype(np.float64) ** 2)))


def _note(entries: list[Any], entry: dict[str, Any], path: Path | None, report: Any) -> None:
    entries.append(entry)
    print(json.dumps(entry), flush=True)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
