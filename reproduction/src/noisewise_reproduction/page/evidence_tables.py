"""Tables of a reproduction: the paper's number, ours with its interval, and the verdict.

Each function takes what ``noisewise reproduce`` wrote of an artefact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noisewise.report.page import Table
from noisewise_reproduction.claims import paper, verdicts
from noisewise_reproduction.claims.verdicts import Result

NOTHING = "\N{EN DASH}"
MEASURES = {"seconds": ".1f", "seconds_per_epoch": ".3f", "epochs": ".0f"}
HONESTY = {
    "rmse": ("RMSE", ".4f"),
    "nll": ("NLL", ".4f"),
    "log_loss": ("log-loss of the level", ".4f"),
    "crps": ("CRPS", ".4f"),
    "ence": ("ENCE", ".3f"),
    "spearman": ("rank corr. of error and std", ".3f"),
    "auc": ("AUC, error > 1", ".3f"),
    "coverage90": ("90 % interval covers", ".1%"),
    "width90": ("its width", ".2f"),
}


def datasets(artefact: Result) -> Table:
    """Table 1."""
    rows = {row["dataset"]: row for row in artefact.get("rows", [])}
    lines = []
    for name, theirs in paper.paper()["datasets"].items():
        ours = rows.get(name)
        lines.append(
            [
                theirs["title"],
                _shape(theirs["shape"]),
                _shape(ours["shape"]) if ours else NOTHING,
                theirs["observations"],
                f"{ours['observations']:,}" if ours else NOTHING,
                f"{theirs['sparsity']:.2%}",
                f"{ours['sparsity']:.2%}" if ours else NOTHING,
                _same_data(theirs, ours, artefact["quick"]),
            ]
        )
    head = ["", "size, the paper", "here", "observed, the paper", "here", "empty, the paper",
            "here", "verdict"]  # fmt: skip
    caption = "Reproduced: the same size, and the same share is empty, to the digits of the paper."
    return Table(head, lines, caption)


def ratings(artefact: Result, dataset: str) -> Table:
    """Table 2, one dataset."""
    summary = {row["model"]: row for row in artefact["summary"] if row["dataset"] == dataset}
    theirs = paper.paper()["ratings"].get(dataset, {})
    lines = []
    for model in [*theirs, *(name for name in summary if name not in theirs)]:
        number = paper.rmse(dataset, model)
        row = summary.get(model)
        mean, (low, high) = _mean(row, "rmse")
        verdict = "not in the paper"
        if number is not None:
            verdict = verdicts.of_interval(low, high, *number) if row else verdicts.MISSING
        lines.append(
            [
                called(artefact, model),
                NOTHING if number is None else f"{number[0]:.3f} ± {number[1]:.3f}",
                *_cells(mean, low, high, ".4f"),
                str(row["splits"]) if row else NOTHING,
                _unless_quick(verdict, artefact),
            ]
        )
    head = ["", "RMSE, the paper", "here", "95 % interval", "splits", "verdict"]
    return Table(head, lines, "The paper's intervals are at most as wide as shown.")


def time(artefact: Result) -> Table:
    """Table 3."""
    lines = []
    for row in artefact["summary"]:
        model = row["model"]
        cells: list[str] = []
        for measure, form in MEASURES.items():
            cells += [_text(paper.amount(measure, model), form), _text(row["mean"][measure], form)]
        theirs = paper.ratio("seconds", model)
        mean, (low, high) = _mean(row, "seconds_ratio")
        verdict = NOTHING
        if theirs is not None and model != artefact["base"]:
            verdict = _unless_quick(verdicts.of_interval(low, high, theirs), artefact)
        ours = " ".join(_cells(mean, low, high, ".2f")).removesuffix(NOTHING).strip()
        lines.append([called(artefact, model), *cells, _text(theirs, ".2f"), ours, verdict])
    head = ["", "seconds, the paper", "here", "per epoch, the paper", "here", "epochs, the paper",
            "here", "time over Biased MF, the paper", "here", "verdict"]  # fmt: skip
    return Table(
        head,
        lines,
        "Machines differ, so the verdict is about time over that of Biased MF. Ours is the whole "
        "fit: the search for the number of epochs, and the refit.",
    )


def sensors(artefact: Result, dataset: str) -> Table:
    """Figure 3 in numbers, one dataset."""
    rows = [r for r in artefact["summary"] if r["dataset"] == dataset and r["protocol"] == "cells"]
    shares = sorted({row["share"] for row in rows})
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        cells = []
        for share in shares:
            row = next((r for r in rows if r["model"] == model and r["share"] == share), None)
            mean, (low, high) = _mean(row, "mse")
            cells.append(_give_or_take(mean, low, high))
        lines.append([called(artefact, model), *cells])
    caption = "MSE in units of the type of sensor, ± half of the 95 % interval. Columns are the "
    caption += "share of all cells that trains. The paper shows this as a figure without numbers."
    return Table([dataset, *(f"{share:.0%}" for share in shares)], lines, caption)


def outages(artefact: Result, dataset: str) -> Table:
    """Outages, one dataset."""
    lines = []
    for row in artefact["summary"]:
        if row["dataset"] == dataset and row["protocol"] == "blocks":
            mean, (low, high) = _mean(row, "mse")
            more = [
                _text(row["mean"].get(name), form)
                for name, form in (("median_se", ".4f"), ("nll", ".2f"), ("coverage90", ".1%"))
            ]
            lines.append([called(artefact, row["model"]), _give_or_take(mean, low, high), *more])
    head = [dataset, "MSE", "median squared error", "NLL", "90 % interval covers"]
    return Table(head, lines, "Whole stretches of single series are hidden. Not in the paper.")


def honesty(artefact: Result, dataset: str) -> Table:
    """How good means and deviations are, one dataset."""
    lines = []
    for row in artefact["summary"]:
        if row["dataset"] == dataset:
            cells = [_text(row["mean"].get(name), form) for name, (_, form) in HONESTY.items()]
            lines.append([called(artefact, row["model"]), *cells, str(row["splits"])])
    return Table(["", *(title for title, _ in HONESTY.values()), "splits"], lines)


def worlds(artefact: Result) -> Table:
    """Figure 2 in numbers."""
    lines = []
    for name, world in artefact["worlds"].items():
        low, high = world["interval95"]
        lines.append(
            [
                name,
                f"{world['lr_error']:.4f}",
                f"{world['dlr_error']:.4f}",
                f"{world['difference']:+.4f} ({low:+.4f} to {high:+.4f})",
                f"{world['wins']} of {artefact['seeds']}",
                _p(world["t_pvalue"]),
                _p(world["wilcoxon_pvalue"]),
            ]
        )
    head = ["", "LR off by", "DLR off by", "difference, 95 %", "DLR closer in", "p, paired t",
            "p, Wilcoxon"]  # fmt: skip
    return Table(head, lines, "Root mean square distance from the true line.")


def comparisons(artefact: Result, where: Sequence[str] = ("dataset",)) -> Table:
    """Models against each other, split by split."""
    unpaired = any("unpaired_pvalue" in test for test in artefact["tests"])
    lines = []
    for test in artefact["tests"]:
        low, high = test["low"], test["high"]
        place = ", ".join(_place(test[key]) for key in where)
        lines.append(
            [
                f"{called(artefact, test['a'])} minus {called(artefact, test['b'])} ({place})",
                f"{test['difference']:+.4f}",
                NOTHING if low is None or high is None else f"{low:+.4f} to {high:+.4f}",
                f"{test['wins']} of {test['n']}",
                *(_both(test, name) for name in ("t_pvalue", "wilcoxon_pvalue")),
                *([_both(test, "unpaired_pvalue")] if unpaired else []),
            ]
        )
    metric = artefact["tests"][0]["metric"].upper() if artefact["tests"] else ""
    head = [f"{metric}", "difference", "95 % interval", "lower on", "p, paired t (Holm)",
            "p, Wilcoxon (Holm)", *(["p, unpaired t (Holm)"] if unpaired else [])]  # fmt: skip
    caption = "In brackets: corrected by Holm's method for all rows of this table. With n splits "
    return Table(head, lines, caption + "Wilcoxon's p cannot go below 2 / 2ⁿ: .0625 for five.")


def experiments(artefact: Result) -> Table:
    """Zeros, rounds and small experiments in numbers."""
    lines: list[list[str]] = []
    parts = {
        "zeros in P and Q": artefact["zeros"]["summary"],
        "rounds of DRMF": artefact["rounds"]["summary"],
    }
    for name, rows in parts.items():
        for row in rows:
            lines += _numbers(f"{name}, {called(artefact, row['model'])}", row, row["splits"])
    for name, found in artefact["small"].items():
        lines += _numbers(name, found, len(found["repeats"]))
    return Table(["experiment", "mean", "95 % interval", "splits or repeats"], lines)


def called(artefact: Result, model: str) -> str:
    """Return what tables call a model."""
    title: str = artefact["models"].get(model, {}).get("title", model)
    return title


def _same_data(theirs: Result, ours: Result | None, quick: bool) -> str:
    if ours is None:
        return verdicts.MISSING
    alike = theirs["shape"] == ours["shape"] and round(ours["sparsity"], 4) == theirs["sparsity"]
    return verdicts.OPEN if quick and not alike else verdicts.of_rule(alike)


def _unless_quick(verdict: str, artefact: Result) -> str:
    judged = verdict in (verdicts.BETTER, verdicts.REPRODUCED, verdicts.MISSED)
    return verdicts.OPEN if artefact["quick"] and judged else verdict


def _mean(row: Result | None, metric: str) -> tuple[float | None, list[float | None]]:
    if row is None or metric not in row["mean"]:
        return None, [None, None]
    return row["mean"][metric], row["interval95"][metric]


def _cells(mean: float | None, low: float | None, high: float | None, form: str) -> list[str]:
    if mean is None:
        return [NOTHING, NOTHING]
    inside = NOTHING if low is None or high is None else f"{low:{form}} to {high:{form}}"
    return [format(mean, form), inside]


def _give_or_take(mean: float | None, low: float | None, high: float | None) -> str:
    if mean is None:
        return NOTHING
    digits = 4 if mean < 0.1 else 3
    if low is None or high is None:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {(high - low) / 2:.{digits}f}"


def _numbers(name: str, found: Result, n: int) -> list[list[str]]:
    lines = []
    for number, mean in found["mean"].items():
        low, high = found["interval95"][number]
        lines.append([f"{name}: {number}", *_cells(mean, low, high, ".3g"), str(n)])
    return lines


def _text(number: float | None, form: str) -> str:
    return NOTHING if number is None else format(number, form)


def _p(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2g}"


def _both(test: Result, name: str) -> str:
    return f"{_p(test[name])} ({_p(test[f'{name}_holm'])})"


def _place(value: Any) -> str:
    return f"{value:.0%}" if isinstance(value, float) else str(value)


def _shape(shape: Sequence[int]) -> str:
    return " \N{MULTIPLICATION SIGN} ".join(f"{size:,}" for size in shape)
