"""Forecasts of 1 to 6 steps from 20 origins: ImputeBench's tables, London and Intel.

``python bench/forecast.py --data FOLDER --json bench/results/forecast.json`` measures noisewise,
the last value and the slot mean. With ``--peers PYTHON``, the interpreter of an environment with
statsmodels and statsforecast, AutoETS and UnobservedComponents forecast the first series of every
table from the same origins; noisewise is counted on the same cells beside them. ``--before``
takes the errors of peers from an earlier record, where rivals have the same errors in both.

Errors are in stds of a series over the rows before the first origin. Tables are cut to the last
rows, and to the series that were read most, so that a run takes minutes; the record says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

STEPS, ORIGINS, ROWS, SERIES, PEER_SERIES, PEER_ROWS = 6, 20, 3_000, 20, 3, 600
TABLES = ("airq", "chlorine", "gas_drift", "electricity", "bafu", "temperature", "meteo")
PERIODS = {  # rows of what may repeat, from what the tables are
    "airq": (24,), "chlorine": (288,), "electricity": (24, 168), "bafu": (48,),
    "temperature": (365,), "meteo": (144,), "gas_drift": (), "london": (7, 365), "intel": (1394,),
}  # fmt: skip
RHYTHM = 0.8  # of the std of a series: what the slot mean leaves at most where there is a rhythm


def table(data: Path, name: str) -> Any:
    """Return the last rows of a table, times by series."""
    if name in TABLES:
        with np.load(data / "imputebench.npz") as tables:
            values = tables[name].astype(np.float64)
    else:
        from imputation_cases import tensor

        truth = tensor(data, name)[0]
        values = truth.reshape(-1, truth.shape[-1]).T
    values = values[-ROWS:]
    many = (~np.isnan(values)).sum(axis=0)
    return values[:, np.sort(np.argsort(-many, kind="stable")[:SERIES])]


def slot_mean(past: Any, periods: tuple[int, ...]) -> Any:
    """Return the slot means of the next steps, by the period that leaves least."""
    best, found = np.inf, np.tile(np.nanmean(past, axis=0), (STEPS, 1))
    mean = found.copy()
    for period in periods:
        if len(past) < 2 * period:
            continue
        slots = np.arange(len(past)) % period
        means = np.array([_mean(past[slots == slot], mean[0]) for slot in range(period)])
        left = float(np.nanmean((past - means[slots]) ** 2 / np.nanvar(past, axis=0)))
        if left < best:
            best, found = left, means[(len(past) + np.arange(STEPS)) % period]
    return found


def rhythm(past: Any, periods: tuple[int, ...]) -> bool:
    """Tell whether what repeats explains much of the rows before the first origin."""
    left = []
    for period in periods:
        if len(past) >= 2 * period:
            slots = np.arange(len(past)) % period
            overall = np.nanmean(past, axis=0)
            means = np.array([_mean(past[slots == slot], overall) for slot in range(period)])
            many = len(past) / period  # of which a reading itself is one
            squared = np.nanmean((past - means[slots]) ** 2) / np.nanmean((past - overall) ** 2)
            left.append(float(squared) * (many / (many - 1)) ** 2)
    return bool(left) and min(left) < RHYTHM**2


def _mean(rows: Any, otherwise: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean = np.nanmean(rows, axis=0)
    return np.where(np.isnan(mean), otherwise, mean)


def last_value(past: Any) -> Any:
    """Return the last readings."""
    rows = np.where(np.isnan(past), -1, np.arange(len(past))[:, None]).max(axis=0)
    return np.tile(past[rows, np.arange(past.shape[1])], (STEPS, 1))


def origins_of(values: Any) -> list[int]:
    """Return the rows from which is forecast."""
    return np.linspace(0.75 * len(values), len(values) - STEPS - 1, ORIGINS).astype(int).tolist()


def measured(values: Any, periods: tuple[int, ...]) -> dict[str, Any]:
    """Forecast from all origins; return what everybody said, and what came."""
    from noisewise import DeviationImputer

    told: dict[str, list[Any]] = {"noisewise": [], "last": [], "slot": [], "low": [], "high": []}
    truth, seconds = [], 0.0
    for origin in origins_of(values):
        past = values[: origin + 1]
        started = time.perf_counter()
        found = DeviationImputer("linear", random_state=0).fit(past).forecast(STEPS)
        seconds += time.perf_counter() - started
        told["noisewise"].append(found.mean)
        told["low"].append(found.low)
        told["high"].append(found.high)
        told["last"].append(last_value(past))
        told["slot"].append(slot_mean(past, periods))
        truth.append(values[origin + 1 : origin + 1 + STEPS])
    arrays = {name: np.array(part) for name, part in told.items()}
    return arrays | {"truth": np.array(truth), "seconds": seconds / ORIGINS}


def summary(values: Any, found: dict[str, Any], periods: tuple[int, ...]) -> dict[str, Any]:
    """Return errors by step, and how often intervals held."""
    past = values[: origins_of(values)[0]]
    scale = np.nanstd(past, axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    out: dict[str, Any] = {}
    for name in ("noisewise", "last", "slot"):
        squared = ((found[name] - found["truth"]) / scale) ** 2
        out[name] = {
            "rmse": float(np.sqrt(np.nanmean(squared))),
            "by_step": np.sqrt(np.nanmean(squared, axis=(0, 2))).round(4).tolist(),
        }
    known = ~np.isnan(found["truth"])
    inside = (found["truth"] >= found["low"]) & (found["truth"] <= found["high"])
    counts = known.sum(axis=(0, 2))
    out["inside_by_step"] = (inside & known).sum(axis=(0, 2)).tolist()
    out["cells_by_step"] = counts.tolist()
    out["coverage_by_step"] = ((inside & known).sum(axis=(0, 2)) / counts).round(3).tolist()
    out["rhythm"] = rhythm(past, periods)
    out["over_last"] = out["noisewise"]["rmse"] / out["last"]["rmse"]
    out["over_slot"] = out["noisewise"]["rmse"] / out["slot"]["rmse"]
    out["seconds_a_forecast"] = found["seconds"]
    return out


def peers(python: str, values: Any, found: dict[str, Any], period: int) -> dict[str, Any]:
    """Let peers forecast the first series from the same origins; errors of all on these cells."""
    with tempfile.TemporaryDirectory() as folder:
        given, answer = Path(folder, "in.npz"), Path(folder, "out.npz")
        chosen = values[:, :PEER_SERIES]
        np.savez(given, values=chosen, origins=origins_of(values), period=period)
        run = [python, str(Path(__file__).with_name("forecast_peers.py")), str(given), str(answer)]
        subprocess.run([*run, str(STEPS), str(PEER_ROWS)], check=True)
        with np.load(answer) as said:
            told = {name: said[name] for name in said.files}
    return _errors(values, found, told)


def peers_before(record: dict[str, Any], values: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Return the errors that peers had in an earlier record, of the same cells."""
    own = _errors(values, found, {})
    same = all(np.isclose(own[name], record[name], rtol=1e-9) for name in ("last", "slot"))
    if not same:
        raise ValueError("The earlier record is of other cells: measure peers again.")
    return record | own


def _errors(values: Any, found: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """Return the errors of peers and rivals at the first series."""
    scale = np.nanstd(values[: origins_of(values)[0], :PEER_SERIES], axis=0)
    told |= {name: found[name][:, :, :PEER_SERIES] for name in ("noisewise", "last", "slot")}
    truth = found["truth"][:, :, :PEER_SERIES]
    return {
        name: float(np.sqrt(np.nanmean(((part - truth) / scale) ** 2)))
        for name, part in told.items()
    }


def versions(python: str) -> str:
    """Return the versions of peers in an environment."""
    show = "import statsforecast as a, statsmodels as b; print(a.__version__, b.__version__)"
    said = subprocess.run([python, "-c", show], check=True, capture_output=True, text=True)
    return "statsforecast {}, statsmodels {}".format(*said.stdout.split())


def main() -> None:
    """Measure all tables, and write the record after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("NOISEWISE_DATA"))
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--peers", default=None)
    parser.add_argument("--before", type=Path, default=None)
    parser.add_argument("--tables", nargs="*", default=[*PERIODS])
    given = parser.parse_args()
    record: dict[str, Any] = {
        "command": "python bench/forecast.py" + (" --peers PYTHON" if given.peers else "")
        + (" --before RECORD" if given.before else ""),
        "date": datetime.now(UTC).date().isoformat(), "machine": platform.machine(),
        "cpus": os.cpu_count(), "steps": STEPS, "origins": ORIGINS, "rows": ROWS, "series": SERIES,
        "peer_series": PEER_SERIES, "peer_rows": PEER_ROWS, "tables": {},
    }  # fmt: skip
    if given.peers is not None:
        record["peers"] = versions(given.peers)
    before = None if given.before is None else json.loads(given.before.read_text())
    if before is not None:
        record |= {"peers": before["peers"], "peers_date": before.get("peers_date", before["date"])}
    for name in given.tables:
        values = table(given.data, name)
        found = measured(values, PERIODS[name])
        record["tables"][name] = summary(values, found, PERIODS[name])
        if given.peers is not None:
            period = PERIODS[name][0] if PERIODS[name] else 1
            record["tables"][name]["peers"] = peers(given.peers, values, found, period)
        elif before is not None:
            one = before["tables"][name]["peers"]
            record["tables"][name]["peers"] = peers_before(one, values, found)
        inside, cells = (
            np.sum([one[key] for one in record["tables"].values()], axis=0)
            for key in ("inside_by_step", "cells_by_step")
        )
        record["coverage_by_step"] = (inside / cells).round(3).tolist()
        given.json.write_text(json.dumps(record, indent=1) + "\n")
        print(name, json.dumps(record["tables"][name]), flush=True)


if __name__ == "__main__":
    main()
