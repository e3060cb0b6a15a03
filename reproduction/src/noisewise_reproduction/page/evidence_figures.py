"""Figures of a reproduction, in the form of the paper's where it has one.

``drawings`` takes what ``noisewise reproduce`` wrote of an artefact and gives its figures by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise.report.figures import Drawing
from noisewise_reproduction.claims.paper import paper, ratio, rmse
from noisewise_reproduction.page.lines import Dot, Line, dots, logarithmic, panels
from noisewise_reproduction.page.regression import line_fits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {"london-paper-size": "London", "intel-2epoch": "Intel lab", "ml1m": "MovieLens1M"}

Result = dict[str, Any]


def drawings(artefact: Result) -> dict[str, Drawing]:
    """Return the figures of an artefact by the name of their file; table 1 has none.

    Parameters
    ----------
    artefact : dict
        What ``noisewise reproduce`` wrote of it.
    """
    measured = artefact["machines"] and artefact["artefact"] in FIGURES
    return FIGURES[artefact["artefact"]](artefact) if measured else {}


def _ratings(artefact: Result) -> dict[str, Drawing]:
    return {
        f"ratings-{dataset}": dots(
            f"RMSE on {_called(dataset)}",
            [
                _dot(row, "rmse", artefact, mark=(rmse(dataset, row["model"]) or [None])[0])
                for row in artefact["summary"]
                if row["dataset"] == dataset
            ],
            unit="RMSE",
            mark="the paper",
        )
        for dataset in _datasets(artefact)
    }


def _time(artefact: Result) -> dict[str, Drawing]:
    rows = [row for row in artefact["summary"] if "seconds_ratio" in row["mean"]]
    named = [
        _dot(row, "seconds_ratio", artefact, mark=ratio("seconds", row["model"])) for row in rows
    ]
    return {"time": dots("Time over that of Biased MF", named, unit="ratio", mark="the paper")}


def _regression(artefact: Result) -> dict[str, Drawing]:
    return {"regression": line_fits(**artefact["figure"])}


def _sensors(artefact: Result) -> dict[str, Drawing]:
    single = [row for row in artefact["summary"] if row["protocol"] == "cells"]
    found = list(dict.fromkeys(row["dataset"] for row in single))
    lines = [
        _by_share([row for row in single if row["dataset"] == name], artefact) for name in found
    ]

    def set_up(axes: Axes, k: int) -> None:
        from matplotlib.ticker import PercentFormatter

        logarithmic(axes.yaxis)  # Intel's errors differ by two orders of magnitude
        axes.set_xticks(sorted({row["share"] for row in single if row["dataset"] == found[k]}))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, 0, " %"))

    below = ["share of all cells that trains"] * len(found)
    figures = {
        "sensors": panels([_called(n) for n in found], lines, x=below, y="MSE", set_up=set_up)
    }
    for dataset in found:
        rows = [
            r for r in artefact["summary"] if r["dataset"] == dataset and r["protocol"] == "blocks"
        ]
        if rows:
            drawn = [_dot(row, "mse", artefact) for row in rows]
            title = f"Outages, {_called(dataset)}"
            figures[f"sensors-outages-{dataset}"] = dots(title, drawn, unit="MSE")
    return figures


def _curves(artefact: Result) -> dict[str, Drawing]:
    curves = {_title(row["model"], artefact): row["curve"] for row in artefact["rows"]}
    by_epoch = [Line(name, c["epoch"], c["validation_rmse"]) for name, c in curves.items()]
    by_time = [
        Line(name, np.cumsum(c["seconds"]).tolist(), c["validation_rmse"])
        for name, c in curves.items()
    ]

    def set_up(axes: Axes, k: int) -> None:
        logarithmic(axes.xaxis)

    return {
        "curves": panels(
            ["Held-out RMSE by epoch", "Held-out RMSE by time"], [by_epoch, by_time],
            x=["epoch", "seconds"], y="RMSE", set_up=set_up, marks=False,
        )
    }  # fmt: skip


def _noise(artefact: Result) -> dict[str, Drawing]:
    return {
        f"noise-{dataset}": dots(
            f"NLL on {_called(dataset)}",
            [
                _dot(row, "nll", artefact)
                for row in artefact["summary"]
                if row["dataset"] == dataset
            ],
            unit="negative log-likelihood",
        )
        for dataset in _datasets(artefact)
    }


def _future(artefact: Result) -> dict[str, Drawing]:
    return {
        f"future-{dataset}": dots(
            f"RMSE on later ratings, {_called(dataset)}",
            [
                _dot(row, "rmse", artefact)
                for row in artefact["summary"]
                if row["dataset"] == dataset
            ],
            unit="RMSE",
        )
        for dataset in _datasets(artefact)
    }


def _claims(artefact: Result) -> dict[str, Drawing]:
    names = [name for name in ("cost of observations", "cost of rank") if name in artefact["small"]]
    if not names:
        return {}
    lines, titles = [], []
    for name in names:
        found = artefact["small"][name]
        sizes = found["repeats"][0]["sizes"]
        seconds = np.median([one["seconds"] for one in found["repeats"]], axis=0).tolist()
        straight = [seconds[0] * size / sizes[0] for size in sizes]
        lines.append([Line("measured", sizes, seconds), Line("linear", sizes, straight)])
        titles.append(f"{name.capitalize()}: exponent {found['mean']['exponent']:.2f}")

    def set_up(axes: Axes, k: int) -> None:
        logarithmic(axes.xaxis)
        logarithmic(axes.yaxis)
        axes.set_xticks(lines[k][0].x, [f"{size:,}" for size in lines[k][0].x])

    below = [name.removeprefix("cost of ") for name in names]
    return {"claims": panels(titles, lines, x=below, y="seconds of an epoch", set_up=set_up)}


FIGURES: dict[str, Callable[[Result], dict[str, Drawing]]] = {
    "ratings": _ratings,
    "time": _time,
    "regression": _regression,
    "sensors": _sensors,
    "curves": _curves,
    "noise": _noise,
    "future": _future,
    "claims": _claims,
}


def _dot(row: Result, metric: str, artefact: Result, mark: float | None = None) -> Dot:
    low, high = row["interval95"][metric]
    return Dot(_title(row["model"], artefact), row["mean"][metric], low, high, mark)


def _by_share(rows: list[Result], artefact: Result) -> list[Line]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        found.setdefault(row["model"], []).append((row["share"], row["mean"]["mse"]))
    return [
        Line(_title(name, artefact), *map(list, zip(*sorted(points), strict=True)))
        for name, points in found.items()
    ]


def _datasets(artefact: Result) -> list[str]:
    return list(dict.fromkeys(row["dataset"] for row in artefact["summary"]))


def _title(model: str, artefact: Result) -> str:
    """Return what tables call a model; a control is called by its name."""
    title: str = artefact["models"].get(model, {}).get("title", model)
    return title


def _called(dataset: str) -> str:
    """Return what people call a dataset."""
    known: Mapping[str, Any] = paper()["datasets"]
    return TITLES.get(dataset) or known.get(dataset, {}).get("title", dataset)
