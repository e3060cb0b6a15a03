"""What it costs that the held-out tenth chooses the epochs and calibrates as well.

    python bench/held_out.py --json bench/results/held-out.json

Many small tables whose noise is known are fitted with 50, 100 and 200 values held out. The same
model is then calibrated on as many fresh values, which chose nothing: the difference in coverage is
what the choice costs. Beside it stands the model as it comes, trained again on everything.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import DeviationFactorizer
from noisewise.evaluation.comparison import summarise
from noisewise.evaluation.records import where_and_when
from noisewise.metrics import coverage

HELD_OUT = (50, 100, 200)
COVERAGE = 0.9
SHAPE = 60, 60
RANK = 2


def table(kind: str, seed: int) -> tuple[Any, Any]:
    """All cells of a matrix in random order, and their values."""
    rng = np.random.default_rng(seed)
    users, items = np.divmod(rng.permutation(SHAPE[0] * SHAPE[1]), SHAPE[1])
    cells = np.column_stack([users, items])
    if kind == "stars at random":
        return cells, rng.integers(1, 6, len(cells)).astype(float)
    U, V = (rng.normal(size=(n, RANK)) for n in SHAPE)
    p, q = (rng.uniform(0.3, 1.5, n) for n in SHAPE)
    return cells, rng.normal((U[users] * V[items]).sum(axis=1), p[users] * q[items])


def covered(kind: str, held_out: int, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    """Coverage on unseen cells, by what calibrated the model."""
    cells, values = table(kind, seed)
    train, fresh = slice(10 * held_out), slice(10 * held_out, 11 * held_out)
    asked, truth = cells[11 * held_out :], values[11 * held_out :]

    def share(model: Any) -> float:
        return coverage(truth, *model.predict_interval(asked, COVERAGE))

    given = {**settings, "value_range": None, "random_state": seed, "n_jobs": 1}
    model = DeviationFactorizer(**given, refit=False).fit(cells[train], values[train])
    chose = share(model)
    afresh = share(model.calibrate(cells[fresh], values[fresh]))
    whole = DeviationFactorizer(**given).fit(cells[train], values[train])
    return {"chose too": chose, "fresh": afresh, "loss": afresh - chose, "refitted": share(whole)}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    for kind in ("low-rank mean and noise", "stars at random"):
        for name, settings in {"small": {"rank": 8, "deviation_rank": 2}, "defaults": {}}.items():
            for held_out in HELD_OUT:
                found = [covered(kind, held_out, k, settings) for k in range(given.tables)]
                over = {key: summarise([one[key] for one in found]) for key in found[0]}
                row = {"table": kind, "settings": name, "held_out": held_out}
                rows.append(row | {key: list(one[:3]) for key, one in over.items()})
                told = {key: f"{one.mean:.4f}" for key, one in over.items()}
                print(row | told, flush=True)
    if given.json is not None:
        result = {"tables": given.tables, "coverage": COVERAGE, "rows": rows, **where_and_when()}
        given.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
