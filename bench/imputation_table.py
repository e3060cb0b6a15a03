"""From records to tables of errors and coverage, and to what was promised."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import Any, NamedTuple

from imputation_cases import ROWS, SIX, TABLES, TENSORS
from imputation_peers import PEERS
from imputation_protocols import committed_mse, protocols
from imputation_small import ODD, SMALL
from imputation_unseen import UNSEEN, UNSEEN_HOLES
from table import Promise

SIMPLE = tuple(
    f"noisewise-{name}"
    for name in (
        "linear", "pchip", "ou", "seasonal", "nearest", "nearest-lagged", "regression", "lagged",
        "forest", "soft", "svd",
    )
)  # fmt: skip
RIVALS = (*PEERS, *SIMPLE)
SIMPLE_RIVALS = ("pandas-linear", "pandas-pchip", "pandas-last", *SIMPLE)
LINEAR = "pandas-linear"
ENOUGH = 50  # cells of a series, for its coverage to be judged
EQUAL = 1.0005  # a ratio that is not worse

Record = dict[str, Any]
Runs = dict[tuple[str, str], dict[str, dict[int, Record]]]  # by dataset and scenario, method, mask


class Beside(NamedTuple):
    """A method beside the best of its rivals in one cell of the table."""

    error: float
    ratio: float  # to the rival that is best on the masks that both have
    rival: str
    masks: int


class Covered(NamedTuple):
    """How often intervals held the value."""

    share: float
    worst: float  # of series with enough cells; NaN if none has
    series: int  # which one that is


def as_text(records: list[Record], judged: str) -> str:
    """Return all tables, and the promises below."""
    runs = by_place(records)
    parts = [_aqi36(runs), _table(runs, judged), _lost(runs, judged), _committed(runs, judged)]
    parts += [
        _coverage(runs, judged),
        _odd(runs, judged),
        _unseen(runs, judged),
        _failures(records),
        _promised(promises(runs, judged)),
    ]
    return "\n\n".join(part for part in parts if part)


def by_place(records: list[Record]) -> Runs:
    """Sort records that did not fail."""
    runs: Runs = defaultdict(lambda: defaultdict(dict))
    for record in records:
        if "failed" not in record:
            runs[record["dataset"], record["scenario"]][record["method"]][record["mask"]] = record
    return runs


def beside(
    methods: dict[str, dict[int, Record]], judged: str, rivals: tuple[str, ...]
) -> Beside | None:
    """Compare the mean error of a method with that of every rival on the same masks."""
    own = methods.get(judged, {})
    found = []
    for rival in rivals:
        if rival == judged:
            continue
        masks = own.keys() & methods.get(rival, {}).keys()
        if masks:
            ours, theirs = (
                fmean(one[mask]["rmse"] for mask in masks) for one in (own, methods[rival])
            )
            found.append(Beside(ours, ours / theirs, rival, len(masks)))
    return max(found, key=lambda one: one.ratio) if found else None


def coverage(records: list[Record]) -> Covered | None:
    """Pool the coverage of runs on one table: of all cells, and of the worst series."""
    asked: dict[int, int] = defaultdict(int)
    covered: dict[int, int] = defaultdict(int)
    for record in records:
        if "coverage90" in record and "series" in record:
            for which, n, held in zip(
                *(record[k] for k in ("series", "asked", "covered")), strict=True
            ):
                asked[which] += n
                covered[which] += held
    if not asked:
        return None
    share = fmean(r["coverage90"] for r in records if "coverage90" in r)
    shares = {which: covered[which] / n for which, n in asked.items() if n >= ENOUGH}
    worst = min(shares, key=shares.__getitem__, default=-1)
    return Covered(share, shares.get(worst, float("nan")), worst)


def promises(runs: Runs, judged: str) -> list[Promise]:
    """Return the figures that are promised, as far as they were measured."""
    found: list[Promise] = []
    for record in runs["aqi36", "fixed"].get(judged, {}).values():
        found += [
            Promise("AQI-36: MAE", record["mae"], 11.0),
            Promise("AQI-36: MSE", record["mse"], 440.0),
            Promise("AQI-36: hours with no station left, MAE", record["dark"]["mae"], 18.0),
            *_within("AQI-36: coverage of 90 % intervals", record["coverage90"], 0.88, 0.92),
        ]
    places = [(table, scenario) for table in TABLES for scenario in SIX]
    ratios = [one.ratio for at in places if (one := beside(runs[at], judged, RIVALS))]
    if ratios:
        title = f"ImputeBench, {len(ratios)} of {len(places)} cells"
        found += [
            Promise(f"{title}: largest ratio to the best rival", max(ratios), 1.05),
            Promise(f"{title}: above 1.05", sum(r > 1.05 for r in ratios), 0),
            Promise(f"{title}: below the best rival", sum(r < 1 for r in ratios), 30, True),
        ]
    found += _promised_coverage(runs, judged)
    lost = [(name, rows) for name in (*TABLES, *TENSORS) for rows in ROWS]
    ratios = [one.ratio for at in lost if (one := beside(runs[at], judged, (LINEAR,)))]
    if ratios:
        title = f"rows lost, {len(ratios)} of {len(lost)}: largest ratio to linear"
        found.append(Promise(title, max(ratios), EQUAL))
    for dataset in TENSORS:
        ratios = [r for s in protocols(dataset) if (r := _to_committed(runs, judged, dataset, s))]
        if ratios:
            title = f"{dataset}, {len(ratios)} of {len(protocols(dataset))} protocols"
            found.append(Promise(f"{title}: largest ratio to the committed", max(ratios), 1.01))
    return found + _promised_small(runs, judged)


def _promised_coverage(runs: Runs, judged: str) -> list[Promise]:
    found: list[Promise] = []
    worst: list[float] = []
    for scenario in SIX:
        shares = [
            one
            for table in TABLES
            if (one := coverage([*runs[table, scenario].get(judged, {}).values()]))
        ]
        if shares:
            share = fmean(one.share for one in shares)
            found += _within(f"ImputeBench, {scenario}: coverage", share, 0.87, 0.93)
            worst += [one.worst for one in shares if one.worst == one.worst]
    pooled = []
    for table in TABLES:
        rows = [row for s in SIX for row in runs[table, s].get(judged, {}).values()]
        if one := coverage(rows):
            pooled.append(one.worst)
    if worst:
        found.append(Promise("ImputeBench: worst series of a scenario", min(worst), 0.75, True))
    if pooled:
        title = "ImputeBench: worst series of a table, over scenarios"
        found.append(Promise(title, min(pooled), 0.75, True))
    return found


def _promised_small(runs: Runs, judged: str) -> list[Promise]:
    found: list[Promise] = []
    for kind in ODD:
        if one := beside(runs[kind, "small"], judged, SIMPLE_RIVALS):
            rows = runs[kind, "small"][judged].values()
            held = sum(sum(row["covered"]) for row in rows) / sum(sum(row["asked"]) for row in rows)
            found.append(Promise(f"{kind}: ratio to {one.rival}", one.ratio, 1.1))
            found += _within(f"{kind}: coverage of 90 % intervals", held, 0.84, 0.96)
    spikes, clean = (runs[kind, "small"].get(judged, {}) for kind in ("spikes", "no-spikes"))
    if both := spikes.keys() & clean.keys():
        for title, part, bound in (("spikes: that", slice(1), 1.3), ("beside", slice(1, 9), 1.05)):
            with_spikes, without = (
                sum(sum(one[k]["squared"][part]) for k in both) ** 0.5 for one in (spikes, clean)
            )
            found.append(
                Promise(f"{title} sensor's error over that without", with_spikes / without, bound)
            )
    if counts := runs["counts", "small"].get(judged):
        lowest = min(row["lowest"] for row in counts.values())
        found.append(Promise("counts: lowest fill or end of an interval", lowest, 0.0, True))
    return found


def _within(figure: str, value: float, low: float, high: float) -> list[Promise]:
    """Two promises of one figure: the one that is missed, or else the lower bound."""
    both = [Promise(figure, value, low, at_least=True), Promise(figure, value, high)]
    return [one for one in both if not one.kept] or both[:1]


def _to_committed(runs: Runs, judged: str, dataset: str, scenario: str) -> float | None:
    """Mean squared error over the committed one, on the splits that both have."""
    own, before = runs[dataset, scenario].get(judged, {}), committed_mse(dataset, scenario)
    splits = own.keys() & before.keys()
    if not splits:
        return None
    return fmean(own[k]["mse"] for k in splits) / fmean(before[k] for k in splits)


def _aqi36(runs: Runs) -> str:
    methods = {name: one[0] for name, one in runs["aqi36", "fixed"].items() if 0 in one}
    if not methods:
        return ""
    lines = [f"{'AQI-36':38}{'MAE':>8}{'MSE':>8}{'no station':>12}{'covered':>9}{'seconds':>9}"]
    for name in sorted(methods, key=lambda name: methods[name]["mae"]):
        one = methods[name]
        lines.append(
            f"{name:38}{one['mae']:8.2f}{one['mse']:8.0f}{one['dark']['mae']:12.2f}"
            f"{one.get('coverage90', float('nan')):9.3f}{one['seconds']:9.0f}"
        )
    return "\n".join(lines)


def _table(runs: Runs, judged: str) -> str:
    lines = [
        f"{judged + ' on ImputeBench':32}{'masks':>6}{'RMSE':>9}{'ratio':>7}  "
        f"{'best rival':26}{'covered':>8}{'worst':>7}  choice"
    ]
    for table in TABLES:
        for scenario in SIX:
            methods = runs[table, scenario]
            one = beside(methods, judged, RIVALS)
            if one is None:
                continue
            rows = [*methods[judged].values()]
            held = coverage(rows)
            choices = "; ".join(dict.fromkeys(r["choice"] for r in rows if "choice" in r))
            flag = "  <-- " if one.ratio > 1.05 else "      "
            told = f"{held.share:8.3f}{held.worst:7.2f}" if held else " " * 15
            lines.append(
                f"{table:20}{scenario:12}{one.masks:6d}{one.error:9.4f}{one.ratio:7.3f}  "
                f"{one.rival:26}{told}{flag}{choices}"
            )
    return "\n".join(lines) if len(lines) > 1 else ""


def _lost(runs: Runs, judged: str) -> str:
    lines = [f"{'rows lost':32}{'masks':>6}{'RMSE':>9}{'to linear':>11}{'to best':>9}  best rival"]
    for name in (*TABLES, *TENSORS):
        for rows in ROWS:
            one = beside(runs[name, rows], judged, (LINEAR,))
            best = beside(runs[name, rows], judged, RIVALS)
            if one and best:
                lines.append(
                    f"{name:20}{rows:12}{one.masks:6d}{one.error:9.4f}{one.ratio:11.3f}"
                    f"{best.ratio:9.3f}  {best.rival}"
                )
    return "\n".join(lines) if len(lines) > 1 else ""


def _committed(runs: Runs, judged: str) -> str:
    lines = [f"{'as committed':40}{'splits':>7}{'MSE':>10}{'to committed':>14}{'covered':>9}"]
    for dataset in TENSORS:
        for scenario in protocols(dataset):
            ratio = _to_committed(runs, judged, dataset, scenario)
            if ratio is not None:
                rows = [*runs[dataset, scenario][judged].values()]
                mse, held = (fmean(row[key] for row in rows) for key in ("mse", "coverage90"))
                place = f"{dataset}, {scenario.removeprefix('protocol ')}"
                lines.append(f"{place:40}{len(rows):7d}{mse:10.5f}{ratio:14.3f}{held:9.3f}")
    return "\n".join(lines) if len(lines) > 1 else ""


def _coverage(runs: Runs, judged: str) -> str:
    """Coverage by scenario, as the mean over tables, with its extremes."""
    lines = [f"{'coverage of 90 % intervals':32}{'mean':>8}{'lowest':>8}{'highest':>9}"]
    for scenario in (*SIX, *ROWS):
        shares = {
            table: one.share
            for table in TABLES
            if (one := coverage([*runs[table, scenario].get(judged, {}).values()]))
        }
        if shares:
            low, high = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
            lines.append(
                f"{scenario:32}{fmean(shares.values()):8.3f}{shares[low]:8.3f}{shares[high]:9.3f}"
                f"  {low}, {high}"
            )
    return "\n".join(lines) if len(lines) > 1 else ""


def _odd(runs: Runs, judged: str) -> str:
    """Small and odd tables: the mean over seeds beside the best simple model."""
    places = {kind: (kind, "small") for kind in SMALL}
    return _beside_simple(runs, judged, "small tables", places)


def _unseen(runs: Runs, judged: str) -> str:
    """Tables on which nothing was chosen: the mean over masks beside the best simple model."""
    both = [(name, holes) for name in UNSEEN for holes in UNSEEN_HOLES]
    return _beside_simple(runs, judged, "unseen tables", {", ".join(at): at for at in both})


def _beside_simple(runs: Runs, judged: str, title: str, places: dict[str, tuple[str, str]]) -> str:
    lines = [f"{title:20}{'seeds':>6}{'RMSE':>9}{'ratio':>7}  {'best rival':26}{'covered':>8}"]
    for name, at in places.items():
        if one := beside(runs[at], judged, SIMPLE_RIVALS):
            held = fmean(row["coverage90"] for row in runs[at][judged].values())
            lines.append(
                f"{name:20}{one.masks:6d}{one.error:9.4f}{one.ratio:7.3f}  "
                f"{one.rival:26}{held:8.3f}"
            )
    return "\n".join(lines) if len(lines) > 1 else ""


def _failures(records: list[Record]) -> str:
    """Say which methods could not be run, how often and why."""
    why: dict[tuple[str, str], list[str]] = defaultdict(list)
    for record in records:
        if "failed" in record:
            words = record["failed"].split("\n")[0]
            why[record["method"], words].append(record["dataset"])
    lines = [
        f"{method}: {words}: {len(places)} times ({', '.join(dict.fromkeys(places))})"
        for (method, words), places in sorted(why.items())
    ]
    return "\n".join(["not filled", *lines]) if lines else ""


def _promised(found: list[Promise]) -> str:
    if not found:
        return ""
    lines = [f"{'figure':66}{'value':>9}{'bound':>10}"]
    for one in found:
        sign = ">=" if one.at_least else "<="
        verdict = "kept" if one.kept else "MISSED"
        lines.append(f"{one.figure:66}{one.value:9.3f}{sign + f' {one.bound:g}':>11}  {verdict}")
    return "\n".join(lines)
