"""New rows one by one: milliseconds, and errors beside a full fit at the same rows.

``python bench/online.py --data FOLDER --json bench/results/online.json``: 18 stations of AQI-36,
fitted to the hours before a week; in that week three of ten readings are hidden. Every hour is
filled by ``transform`` and taken in by ``update``. At every twelfth, a model that is fitted again
to all readings up to that hour fills it, too (``refit=True``); both are counted on the same cells.
In the middle, the imputer is saved and loaded, and must go on with the same bits.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from noisewise import DeviationImputer

SERIES, ROWS, WEEK, HIDDEN, EVERY = 18, 1_200, 168, 0.3, 12
FIRST = 2_000  # hour of the year at which the week ends
SETTINGS: dict[str, Any] = {"bayes": {"rank": 8, "sweeps": 60, "tolerance": None}}


def table(data: Path) -> pd.DataFrame:
    """Return the hours up to the end of the week."""
    with np.load(data / "aqi36.npz") as found:
        values = found["value"].astype(np.float64)[FIRST - ROWS : FIRST, :SERIES]
        return pd.DataFrame(values, found["time"].astype("datetime64[s]")[FIRST - ROWS : FIRST])


def measured(frame: pd.DataFrame, method: str) -> dict[str, Any]:
    """Fill the week hour by hour."""
    rng = np.random.default_rng(0)
    week = frame[-WEEK:]
    lost = rng.random(week.shape) < HIDDEN
    told = week.mask(lost)
    settings = SETTINGS.get(method)
    imputer = DeviationImputer(method, settings=settings, random_state=0, n_jobs=1)
    imputer.fit(frame[:-WEEK])
    again = DeviationImputer(method, settings=settings, random_state=0, n_jobs=1, refit=True)
    again.fit(frame[:-WEEK])
    seconds, busy, errors, pairs, same = [], [], [], [], None
    imputer.transform(told[:1])  # compiled once
    for k in range(WEEK):
        row = told[k : k + 1]
        started, began = time.perf_counter(), time.process_time()
        filled = imputer.transform(row)
        between = time.perf_counter()
        busy.append(time.process_time() - began)
        imputer.update(row)
        seconds.append((between - started, time.perf_counter() - between))
        off = (filled - week[k : k + 1]).to_numpy()[0, lost[k]]
        errors.append(off)
        if k % EVERY == EVERY - 1:
            full = again.transform(told[: k + 1])[-1:]
            pairs.append((off, (full - week[k : k + 1]).to_numpy()[0, lost[k]]))
        if k == WEEK // 2:
            with tempfile.TemporaryDirectory() as folder:
                imputer.save(Path(folder, "it.nw"))
                other = DeviationImputer.load(Path(folder, "it.nw")).set_params(n_jobs=1)
            rest = told[k + 1 : k + 3]
            same = bool(other.transform(rest).equals(imputer.transform(rest)))
            imputer = other
    online, full = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    cost = 1e3 * np.median(seconds, axis=0)
    return {
        "transform_ms": float(cost[0]), "update_ms": float(cost[1]),
        "transform_cpu_ms": float(1e3 * np.median(busy)),
        "transform_ms_90": float(1e3 * np.quantile(np.array(seconds)[:, 0], 0.9)),
        "rmse_week": float(np.sqrt(np.nanmean(np.concatenate(errors) ** 2))),
        "rmse_online": float(np.sqrt(np.nanmean(online**2))),
        "rmse_full_fit": float(np.sqrt(np.nanmean(full**2))),
        "over_full_fit": float(np.sqrt(np.nanmean(online**2) / np.nanmean(full**2))),
        "cells_compared": int((~np.isnan(online)).sum()), "same_bits_after_load": same,
    }  # fmt: skip


def main() -> None:
    """Measure, and write the record after each method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("NOISEWISE_DATA"))
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--methods", nargs="*", default=["regression", "seasonal", "bayes"])
    given = parser.parse_args()
    record: dict[str, Any] = {
        "command": "python bench/online.py", "date": datetime.now(UTC).date().isoformat(),
        "machine": platform.machine(), "cpus": os.cpu_count(), "series": SERIES, "rows": ROWS,
        "week": WEEK, "hidden": HIDDEN, "full_fit_every": EVERY, "settings": SETTINGS,
        "methods": {},
    }  # fmt: skip
    for method in given.methods:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record["methods"][method] = measured(table(given.data), method)
        given.json.write_text(json.dumps(record, indent=1) + "\n")
        print(method, record["methods"][method], flush=True)


if __name__ == "__main__":
    main()
