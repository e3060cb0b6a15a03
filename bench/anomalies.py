"""Faults put into tables of sensors, and whether they are found, when, and what else is.

    python bench/anomalies.py --data DIR --json bench/results/anomalies.json

DIR has aqi36.npz and intel_lab_5days.npz. Into each, 20 times, go five faults of five series:
stuck for a day, °C taken for °F, a drift, readings that end, and readings that stay the same but
for a little noise until the end. Spikes are those of bench/imputation_small.py: 8 of 500 readings
of one sensor, 20 stds too high, 20 tables; and the same into one series of the two tables.

A fault counts as found if something of its kind begins on the same day (``day``), or within a day
(``near``). What else is told is compared with what the table has without the faults. Thresholds
were chosen with other seeds (from 100 on), on other tables (ImputeBench) and on these without
faults.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from imputation_small import small

from noisewise.anomalies.find import find_anomalies
from noisewise.evaluation.records import as_json, where_and_when
from noisewise.noise import noisy_places, table_noise_model
from noisewise.storage import write_bytes

SPIKES, SPIKE = 8, 20.0  # readings, stds
CLEAN = ("one-series", "three-series", "irregular", "sparse", "counts", "no-spikes")
KINDS = {"stuck": "stuck", "unit": "unit", "drift": "drift", "ended": "dead", "flat": "dead"}

Floats = Any


class Source(NamedTuple):
    """A table, series by times, with what a day and a drift are in it."""

    table: Floats
    day: int  # steps
    drift: float  # stds of the series a day


def main() -> None:
    """Read the command line, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the two files")
    parser.add_argument("--first", type=int, default=0, help="seed of the first simulation")
    parser.add_argument("--many", type=int, default=20, help="simulations (default: 20)")
    parser.add_argument("--tables", nargs="*", default=["aqi36", "intel"])
    parser.add_argument("--motes", action="store_true", help="also rank the motes of Intel")
    parser.add_argument("--json", type=Path, help="file to write")
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.many)
    report: dict[str, Any] = where_and_when() | {"seeds": [seeds.start, seeds.stop]}
    report["small"] = small_tables(seeds)
    print(report["small"], flush=True)
    for name in chosen.tables:
        report[name] = with_faults(load(chosen.data, name), seeds)
        print(name, {k: v for k, v in report[name].items() if k != "runs"}, flush=True)
    if chosen.motes:
        report["noisiest_motes"] = motes(chosen.data)
        print(report["noisiest_motes"])
    if chosen.json is not None:
        write_bytes(chosen.json, as_json(report).encode())


def load(data: Path, name: str) -> Source:
    """Return a table: of AQI-36 by hours, of Intel by epochs of half a minute, or of ImputeBench.

    Time is in days.
    """
    if name == "aqi36":
        with np.load(data / "aqi36.npz") as found:
            return Source(found["value"].T.astype(np.float64), 24, 0.25)
    if name == "intel":
        with np.load(data / "intel_lab_5days.npz") as found:
            table = np.full((len(found["mote_id"]), 4, 14_400), np.nan)
            table[found["loc"], found["sensor"], found["time"]] = found["value"]
            return Source(table.reshape(-1, table.shape[-1]), 2_880, 2.0)
    with np.load(data / "imputebench.npz") as found:
        table = found[name].T.astype(np.float64)
    return Source(table, max(table.shape[1] // 50, 20), 0.5)


def small_tables(seeds: range) -> dict[str, Any]:
    """Find spikes in small tables, and count what is told of clean ones."""
    hit = wrong = clean = 0
    least = SPIKES
    for seed in seeds:
        table, truth, _ = small("spikes", seed)
        broken = np.argwhere(np.nan_to_num(table - truth, nan=0.0) > 0.0).tolist()
        found = find_anomalies(table)
        told = [[t, s] for k, s, t in _rows(found) if k == "spike"]
        right = sum(one in told for one in broken)
        least, hit, wrong = min(least, right), hit + right, wrong + len(told) - right
        clean += int((~np.isnan(table)).sum()) - SPIKES
    told_of_clean = {}
    for kind in CLEAN:
        tables = [small(kind, seed)[0] for seed in seeds]
        kinds = [k for table in tables for k in find_anomalies(table)["kind"].tolist()]
        told_of_clean[kind] = {
            "readings": sum(int((~np.isnan(table)).sum()) for table in tables),
            "told": {k: kinds.count(k) for k in sorted(set(kinds))},
        }
    return {
        "tables": len(seeds), "spikes_found": hit, "of": SPIKES * len(seeds),
        "fewest_of_8": least, "clean_flagged_per_1000": 1000 * wrong / clean,
        "told_of_clean_tables": told_of_clean,
    }  # fmt: skip


def with_faults(source: Source, seeds: range) -> dict[str, Any]:
    """Put faults into a table, and see whether they are found."""
    started = time.perf_counter()
    before = _rows(find_anomalies(source.table.T, sensor=None))
    seconds = time.perf_counter() - started
    readings = int((~np.isnan(source.table)).sum())
    report: dict[str, Any] = {
        "seconds": round(seconds, 2),
        "drift_stds_a_day": source.drift,
        "told_without_faults": {k: sum(one[0] == k for one in before) for k in _kinds(before)},
        "spikes_per_1000": 1000 * sum(one[0] == "spike" for one in before) / readings,
        "runs": [],
    }  # fmt: skip
    for seed in seeds:
        report["runs"].append(_run(source, seed, before))
    for fault in KINDS:
        entries = [run["faults"][fault] for run in report["runs"]]
        report[fault] = {key: sum(one[key] for one in entries) for key in ("day", "near", "told")}
    report["spikes_found"] = sum(run["spikes"] for run in report["runs"])
    report["fewest_of_8"] = min(run["spikes"] for run in report["runs"])
    report["spikes"] = SPIKES * len(seeds)
    report["others_told"] = {
        k: sum(run["others"].count(k) for run in report["runs"])
        for k in ("dead", "unit", "drift", "shift", "stuck", "spike")
    }
    return report


def _run(source: Source, seed: int, before: list[Any]) -> dict[str, Any]:
    rng = np.random.default_rng([31, seed])
    table = source.table.copy()
    full = np.flatnonzero((~np.isnan(table)).mean(axis=1) > 0.3)
    moving = full[[np.nanstd(table[s]) > 0 for s in full]]
    series = rng.permutation(moving)[: len(KINDS) + 1]
    starts = {}
    for fault, own in zip(KINDS, series, strict=False):
        starts[fault] = int(own), put(fault, table[own], source, rng)
    spiky = int(series[-1])
    places = rng.permutation(np.flatnonzero(~np.isnan(table[spiky])))[:SPIKES]
    table[spiky, places] += SPIKE * np.nanstd(table[spiky])
    found = _rows(find_anomalies(table.T, sensor=None))
    faults = {}
    for fault, (own, start) in starts.items():
        days = [(t - start) / source.day for k, s, t in found if (k, s) == (KINDS[fault], own)]
        same = [(start + days_off * source.day) // source.day for days_off in days]
        faults[fault] = {
            "series": own, "start": start,
            "told": any(k == KINDS[fault] for k, s, _ in found if s == own),
            "day": start // source.day in same,
            "near": any(abs(one) <= 1.0 for one in days),
            "days_off": min(days, key=abs, default=None),
        }  # fmt: skip
    hurt = {own for own, _ in starts.values()} | {spiky}
    known = {(k, s) for k, s, _ in before}
    others = [k for k, s, _ in found if s not in hurt and (k, s) not in known]
    right = sum(("spike", spiky, int(place)) in found for place in places)
    return {"seed": seed, "faults": faults, "spikes": right, "others": others}


def put(fault: str, own: Floats, source: Source, rng: Any) -> int:
    """Put a fault into a series, in place; return when it begins."""
    known = np.flatnonzero(~np.isnan(own))
    start = int(known[int(rng.uniform(0.3, 0.75) * len(known))])
    after, std = own[start:], float(np.nanstd(own))
    if fault == "stuck":
        day = own[start : start + source.day]
        day[~np.isnan(day)] = own[start]
    elif fault == "unit":
        own[start:] = 1.8 * after + 32.0
    elif fault == "drift":
        sign = rng.choice([-1.0, 1.0])
        own[start:] = after + sign * source.drift * std * np.arange(len(after)) / source.day
    elif fault == "ended":
        own[start + 1 :] = np.nan
    else:
        noise = 0.01 * std * rng.normal(size=len(after))
        own[start:] = np.where(np.isnan(after), np.nan, own[start] + noise)
    return start


def motes(data: Path) -> list[int]:
    """Rank the motes of Intel, bins of two epochs as in the results of the reproduction."""
    source = load(data, "intel").table.reshape(52, 4, -1)
    with np.load(data / "intel_lab_5days.npz") as found:
        ids = found["mote_id"]
    first, second = source[..., ::2], source[..., 1::2]
    table = np.where(np.isnan(first), second, first)
    model = table_noise_model(table, sensor=1, random_state=0)
    return [int(ids[place]) for place in noisy_places(model, mode=0, n=5)["id"]]


def _rows(found: Any) -> list[tuple[str, int, int]]:
    columns = (found[name].tolist() for name in ("kind", "series", "start"))
    return list(zip(*columns, strict=True))


def _kinds(rows: list[tuple[str, int, int]]) -> list[str]:
    return sorted({kind for kind, _, _ in rows})


if __name__ == "__main__":
    main()
