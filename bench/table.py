"""From raw measurements to medians, ratios, what was promised, and text."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

PEER = "cornac MF"
Row = dict[str, Any]


class Promise(NamedTuple):
    """A figure with a bound: at least, or at most."""

    figure: str
    value: float
    bound: float | None = None
    at_least: bool = False

    @property
    def kept(self) -> bool | None:
        """Whether the value is within the bound, if there is one."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def summary(measurements: list[Row]) -> list[Row]:
    """One row per shape, rank, threads and system: medians over rounds, and ratios to cornac.

    A ratio is taken within a round, where the two ran minutes apart, before the median.
    """
    runs: dict[tuple[Any, ...], dict[int, Row]] = {}
    for run in measurements:
        if run["task"] == "train":
            key = (run["shape"], run["rank"], run["threads"], run["system"])
            runs.setdefault(key, {})[run["round"]] = run
    rows = []
    for key, by_round in runs.items():
        peer = runs[*key[:3], PEER]
        speed = {r: run["updates_per_second"] for r, run in by_round.items()}
        ratios = [speed[r] / peer[r]["updates_per_second"] for r in speed]
        errors = [run["train_rmse"] for run in by_round.values()]
        peaks = [run["peak_mb"] for run in by_round.values()]
        above = [run["peak_mb"] - run["baseline_mb"] for run in by_round.values()]
        rows.append(
            dict(zip(("shape", "rank", "threads", "system"), key, strict=True))
            | {
                "rounds": len(speed),
                "updates_per_second": median(speed.values()),
                "ratio_to_cornac": median(ratios),
                "ratio_low": min(ratios),
                "ratio_high": max(ratios),
                "peak_mb": max(peaks),
                "above_baseline_mb": max(above),
                "train_rmse": None if None in errors else median(errors),
            }
        )
    return rows


def promises(rows: list[Row], measurements: list[Row]) -> list[Promise]:
    """Return the figures that are promised, as far as they were measured."""
    by_key = {(row["shape"], row["rank"], row["threads"], row["system"]): row for row in rows}
    found = []
    for rank, system, bound in (
        (100, "noisewise BMF row", 3.0),
        (100, "noisewise DMF row", 1.8),
        (100, "noisewise DMF coordinate", 1.0),
        (32, "noisewise DMF coordinate", 1.0),
    ):
        if row := by_key.get(("ml-1m", rank, 2, system)):
            figure = f"ml-1m, rank {rank}, 2 threads: {system} over {PEER}"
            found.append(Promise(figure, row["ratio_to_cornac"], bound, at_least=True))
            sorted_peer = by_key[("ml-1m", rank, 2, f"{PEER}, sorted")]
            ratio = row["updates_per_second"] / sorted_peer["updates_per_second"]
            found.append(Promise(f"  the same, over {PEER} on sorted ratings", ratio))

    small, large = (
        by_key.get((shape, 100, 2, "noisewise DMF coordinate")) for shape in ("ml-1m", "ml-10m")
    )
    if small and large:
        cost = small["updates_per_second"] / large["updates_per_second"]
        found += [
            Promise("ml-10m, DMF 100/100: cost of a rating over that in ml-1m", cost, 1.5),
            Promise("ml-10m, DMF 100/100: peak memory, MB", large["peak_mb"], 1_200.0),
        ]

    def middle(task: str, measure: Callable[[Row], float]) -> list[float]:
        values = [measure(run) for run in measurements if run["task"] == task]
        return [median(values)] if values else []

    def beyond(run: Row) -> float:
        return float(run["first_fit_s"] - run["second_fit_s"])

    beside: list[tuple[str, str, Callable[[Row], float], float | None]] = [
        ("import, s", "start from cache", lambda run: run["import_s"], None),
        ("first fit beyond a second, compiling, s", "start", beyond, 10.0),
        ("first fit beyond a second, from cache, s", "start from cache", beyond, 2.0),
        ("fold_in of one user, ms", "serve", lambda run: 1e3 * run["fold_in_s"], 5.0),
        ("10 items for 1,000 users, s", "serve", lambda run: run["recommend_s"], 1.0),
    ]
    for figure, task, measure, at_most in beside:
        found += [Promise(figure, value, at_most) for value in middle(task, measure)]
    return found


def as_text(rows: list[Row], kept: list[Promise]) -> str:
    """Return the table, group by group, and the promises below."""
    lines = []
    groups = dict.fromkeys((row["shape"], row["rank"], row["threads"]) for row in rows)
    for shape, rank, threads in groups:
        title = f"{shape}, rank {rank}, {threads} thread{'s'[: threads - 1]}"
        lines += [
            "",
            f"{title:26}{'M updates/s':>12}{'x cornac':>10}{'(low-high)':>15}"
            f"{'peak MB':>9}{'above':>7}{'rmse':>7}",
        ]
        for row in rows:
            if (row["shape"], row["rank"], row["threads"]) == (shape, rank, threads):
                spread = f"({row['ratio_low']:.2f}-{row['ratio_high']:.2f})"
                rmse = "-" if row["train_rmse"] is None else f"{row['train_rmse']:.3f}"
                lines.append(
                    f"{row['system']:26}{row['updates_per_second'] / 1e6:12.2f}"
                    f"{row['ratio_to_cornac']:10.2f}{spread:>15}"
                    f"{row['peak_mb']:9.0f}{row['above_baseline_mb']:7.0f}{rmse:>7}"
                )
    lines += ["", f"{'figure':66}{'value':>9}{'bound':>10}"]
    for promise in kept:
        sign = ">=" if promise.at_least else "<="
        bound = "-" if promise.bound is None else f"{sign} {promise.bound:g}"
        verdict = {True: "  kept", False: "  MISSED", None: ""}[promise.kept]
        lines.append(f"{promise.figure:66}{promise.value:9.2f}{bound:>10}{verdict}")
    return "\n".join(lines)
