"""Lines through noisy points, to look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from noisewise.errors import DataError
from noisewise.report.figures import INK, LOOKS, Drawing

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase


def line_fits(
    x: ArrayLike, y: ArrayLike, truth: ArrayLike, lines: Mapping[str, ArrayLike]
) -> Drawing:
    """Draw noisy points, where they would be without noise, and lines that were fitted to them.

    Parameters
    ----------
    x, y, truth : arrays
        Points, and the expected value of each: circles and squares.
    lines : dict
        For each name of a fit what it predicts at x.
    """
    if not 1 <= len(lines) <= len(LOOKS):
        raise DataError(f"A figure holds 1 to {len(LOOKS)} lines; got {len(lines)}.")
    columns = [np.asarray(column, dtype=float) for column in (x, y, truth, *lines.values())]
    shapes = [column.shape for column in columns]
    if len(set(shapes)) > 1 or columns[0].ndim != 1 or len(columns[0]) < 2:
        raise DataError(
            "x, y, truth and lines need one dimension, one length and 2 rows or more; got shapes "
            f"{', '.join(map(str, shapes))}."
        )
    order = np.argsort(columns[0], kind="stable")
    place, points, expected, *fitted = (column[order] for column in columns)
    errors = {
        name: float(np.sqrt(np.mean((column - expected) ** 2)))
        for name, column in zip(lines, fitted, strict=True)
    }

    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        for (name, error), column, (colour, dashes) in zip(
            errors.items(), fitted, LOOKS, strict=False
        ):
            axes.plot(place, column, dashes, color=colour, label=f"{name}: off by {error:.3f}")
        axes.vlines(place, expected, points, color=INK, linewidth=0.7, alpha=0.4)
        axes.plot(place, points, "o", color=INK, markerfacecolor="none", label="seen")
        axes.plot(place, expected, "s", color=INK, markersize=4.0, label="expected")
        axes.set(xlabel="x", ylabel="y", title="A line through noisy points")
        axes.legend()

    words = ", ".join(f"{name} {error:.3f}" for name, error in errors.items())
    return Drawing(
        draw, f"Lines through {len(place)} noisy points. Off the truth by: {words}.", 4.1
    )
