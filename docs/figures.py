"""Draw the pictures of the pages from made-up data: python docs/figures.py."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

import noisewise
from noisewise import DeviationImputer
from noisewise.data.samples import sample_ratings, sample_readings
from noisewise.data.synthetic import make_ratings

mpl.use("Agg")
from matplotlib import pyplot as plt

IMAGES = Path(__file__).parent / "images"
BLUE, ORANGE, GREY = "#2f6f9f", "#d9822b", "#8a949e"
OUTAGE = slice("2026-03-08", "2026-03-11")
plt.rcParams |= {
    "figure.dpi": 110, "savefig.dpi": 110, "font.size": 10, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "svg.hashsalt": "noisewise",
}  # fmt: skip


def readings() -> pd.DataFrame:
    """Return the made-up readings, with times as their index."""
    table = pd.DataFrame(sample_readings())
    return table.set_index(pd.to_datetime(table.pop("time")))


def band(axes: Any, frame: pd.DataFrame, series: str, method: str) -> None:
    """Draw readings around the outage, what was filled in, and the 90 % band."""
    imputer = DeviationImputer(method, random_state=0).fit(frame)
    filled = imputer.transform(frame)[series].loc[OUTAGE]
    low, high = (end[series].loc[OUTAGE] for end in imputer.interval(frame))
    gap = frame[series].loc[OUTAGE].isna()
    around = gap | gap.shift(fill_value=False) | gap.shift(-1, fill_value=False)
    axes.fill_between(
        filled.index, low.where(around), high.where(around), color=ORANGE, alpha=0.25, lw=0,
        label="90 % interval",
    )  # fmt: skip
    axes.plot(filled.where(around), color=ORANGE, label="filled in")
    axes.plot(frame[series].loc[OUTAGE], color=BLUE, label="read")
    axes.set_ylabel("°C")
    axes.xaxis.set_major_locator(mpl.dates.DayLocator())
    axes.xaxis.set_major_formatter(mpl.dates.DateFormatter("%d %b"))


def films(axes: Any) -> None:
    """Draw predictions with intervals for two people."""
    table = sample_ratings()["ratings"]
    rows = list(zip(table["user"], table["item"], table["rating"], strict=True))
    model = noisewise.BayesianFactorizer(random_state=0, n_jobs=1).fit(rows)
    titles = ["Groundhog Day", "Solaris", "Alien", "Carrie", "Vertigo"]
    for shift, who, color in ((0.14, "ann", BLUE), (-0.14, "zoe", ORANGE)):
        cells = [(who, title) for title in titles]
        mean, (low, high) = model.predict(cells), model.predict_interval(cells)
        at = np.arange(len(titles))[::-1] + shift
        axes.errorbar(
            mean, at, xerr=[mean - low, high - mean], fmt="o", color=color, capsize=3, label=who
        )
    axes.set_yticks(np.arange(len(titles))[::-1], titles)
    axes.set_xlabel("predicted stars, 90 % interval")
    axes.set_xlim(0.5, 6.6)
    axes.set_xticks([1, 2, 3, 4, 5])
    axes.legend(loc="center right", frameon=False)


def save(figure: Any, name: str) -> None:
    """Write a figure."""
    figure.tight_layout()
    figure.savefig(IMAGES / f"{name}.png", metadata={"Software": None})
    plt.close(figure)


def cover(frame: pd.DataFrame) -> None:
    """Draw what both audiences get, side by side."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
    films(left)
    left.set_title("Ratings: a prediction, and how far off it may be", fontsize=10)
    band(right, frame, "attic", "bayes")
    right.set_title("Sensors: a gap filled, and how far off that may be", fontsize=10)
    right.set_ylim(bottom=9.5)  # the legend has a place of its own
    right.legend(loc="lower right", frameon=False, ncols=3, fontsize=8)
    save(figure, "cover")


def outage(frame: pd.DataFrame) -> None:
    """Draw two days without power, filled by the default."""
    figure, axes = plt.subplots(figsize=(8, 3))
    band(axes, frame, "attic", "auto")
    axes.legend(loc="lower right", frameon=False, ncols=3)
    save(figure, "outage")


def methods(frame: pd.DataFrame) -> None:
    """Draw the same by a model that knows each series alone, and by one that asks the others."""
    figure, both = plt.subplots(1, 2, figsize=(10, 3.2), sharey=True)
    for axes, (method, words) in zip(
        both, {"seasonal": "each series alone", "bayes": "all series together"}.items(), strict=True
    ):
        band(axes, frame, "attic", method)
        axes.set_title(f'method="{method}": {words}', fontsize=10)
    both[0].set_ylim(bottom=7.5)  # the legend has a place of its own
    both[0].legend(loc="lower right", frameon=False, ncols=3, fontsize=8)
    save(figure, "methods")


def forecast(frame: pd.DataFrame) -> None:
    """Draw a day ahead."""
    figure, axes = plt.subplots(figsize=(8, 3))
    told = DeviationImputer("seasonal", random_state=0).fit(frame).forecast(24)
    axes.plot(frame["garden"].loc["2026-03-13":], color=BLUE, label="read")
    axes.fill_between(told.mean.index, told.low["garden"], told.high["garden"], color=ORANGE,
                      alpha=0.25, lw=0, label="90 % interval")  # fmt: skip
    axes.plot(told.mean["garden"], color=ORANGE, label="forecast")
    axes.set_ylabel("°C")
    axes.xaxis.set_major_locator(mpl.dates.DayLocator())
    axes.xaxis.set_major_formatter(mpl.dates.DateFormatter("%d %b"))
    axes.legend(loc="lower left", frameon=False, ncols=3)
    save(figure, "forecast")


def calibration() -> None:
    """Draw errors of tenths of the cells against their predicted std."""
    made = make_ratings(n_users=300, n_items=100, seed=0)
    test = made.take(slice(5000, len(made.true_std)))
    model = noisewise.DeviationFactorizer(rank=8, random_state=0)
    model.fit(made.take(slice(0, 5000)).observations)
    mean, std = model.predict(test.observations.decode(), return_std=True)
    error = test.observations.values - mean
    tenths = np.array_split(np.argsort(std), 10)
    x = [std[part].mean() for part in tenths]
    y = [np.sqrt(np.mean(error[part] ** 2)) for part in tenths]
    figure, axes = plt.subplots(figsize=(4.6, 4))
    axes.plot([0.5, 1.7], [0.5, 1.7], color=GREY, ls="--", lw=1, label="as promised")
    axes.plot(x, y, "o", color=BLUE, label="tenths of the cells")
    axes.set(xlabel="predicted std", ylabel="typical error", aspect="equal")
    axes.legend(frameon=False)
    save(figure, "calibration")


def main() -> None:
    """Draw all."""
    warnings.filterwarnings("ignore", "Predictions have not settled")
    frame = readings()
    for draw in (cover, outage, methods, forecast):
        draw(frame)
    calibration()


if __name__ == "__main__":
    main()
