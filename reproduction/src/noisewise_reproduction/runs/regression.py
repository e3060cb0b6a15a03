r"""The paper's second figure: linear regression (LR) against deviation-driven regression (DLR).

    python -m noisewise_reproduction.runs.regression \
        --json reproduction/results/regression.json --figure dlr.png

Points scatter around the line y = x with one variance, .01, yet by chance some lie far from it and
others close. The paper's DLR is told how far each lies, and weighs it by that: what a model that
learns deviations could gain at best. Two more worlds have nobody to tell: there the deviation is
learned, once where the noise grows with x, and once where it does not and nothing is to be gained.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise import metrics, storage
from noisewise.errors import SettingError
from noisewise.evaluation import comparison
from noisewise.evaluation.records import as_json, where_and_when
from noisewise.report.figures import Drawing, render
from noisewise_reproduction.page.regression import line_fits
from noisewise_reproduction.rivals.linear import DeviationRegressor

VARIANCE = 0.01  # of the noise, in the paper's figure
FIGURE_POINTS = 12
POINTS = 100  # where the deviation must be learned

Array = npt.NDArray[np.float64]


class Points(NamedTuple):
    """Points of a line, seen with noise; ``truth`` is without, ``std`` how far each was moved."""

    x: Array
    y: Array
    truth: Array
    std: Array


def draw_points(seed: int, n: int = FIGURE_POINTS, *, growing: bool = False) -> Points:
    """Draw points around y = x, evenly spread from 0 to 1.

    Parameters
    ----------
    seed : int
        Where random numbers start.
    n : int
        How many points.
    growing : bool
        Let the noise grow with x, to a variance of ``VARIANCE`` on average; else it is the same
        for all.

    Examples
    --------
    >>> points = draw_points(0)
    >>> bool(np.allclose(points.y - points.truth, np.sign(points.y - points.truth) * points.std))
    True
    """
    x = np.linspace(0.0, 1.0, n)
    level = np.sqrt(VARIANCE * (2.0 * x if growing else np.ones(n)))
    noise = np.random.default_rng(seed).normal(0.0, 1.0, n) * level
    return Points(x, x + noise, x, np.abs(noise))


def fits(points: Points, *, told: bool) -> dict[str, Array]:
    """Fit both lines and return what they predict at x; DLR is told the deviations, or learns them.

    A point without noise has no weight of its own; it is taken to be moved by a millionth.
    """
    X = points.x[:, None]
    std = np.maximum(points.std, 1e-6) if told else None
    plain = DeviationRegressor("constant").fit(X, points.y)
    driven = DeviationRegressor("linear").fit(X, points.y, sample_std=std)
    return {"LR": plain.predict(X), "DLR": driven.predict(X)}


def compare(seeds: int = 200) -> dict[str, Any]:
    """Measure how far both lines are off the true one, in three worlds, over many draws.

    Parameters
    ----------
    seeds : int
        Draws in each world.

    Returns
    -------
    dict
        For each world: mean error of LR and DLR, their difference with its 95 % interval and
        p-values, and in how many draws DLR was closer.
    """
    if seeds < 2:
        raise SettingError(f"seeds must be 2 or more; got {seeds!r}.")
    worlds: dict[str, dict[str, Any]] = {
        "deviations told": {"n": FIGURE_POINTS, "growing": False, "told": True},
        "noise grows, deviations learned": {"n": POINTS, "growing": True, "told": False},
        "same noise, deviations learned": {"n": POINTS, "growing": False, "told": False},
    }
    return {name: _world(seeds, **world) for name, world in worlds.items()}


def figure(seed: int = 0) -> Drawing:
    """Draw the figure: points, where they should be, and both lines."""
    points = draw_points(seed)
    return line_fits(points.x, points.y, points.truth, fits(points, told=True))


def main() -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path, help="a .png or .svg file")
    given = parser.parse_args()
    worlds = compare(given.seeds)
    for name, row in worlds.items():
        print(name, {k: float(f"{v:.3g}") for k, v in row.items() if isinstance(v, float | int)})
    if given.json is not None:
        result = {"seeds": given.seeds, "worlds": worlds, **where_and_when()}
        storage.write_bytes(given.json, as_json(result).encode())
    if given.figure is not None:
        storage.write_bytes(given.figure, render(figure(), given.figure.suffix.lstrip(".")))


def _world(seeds: int, n: int, growing: bool, told: bool) -> dict[str, Any]:
    errors: dict[str, list[float]] = {"LR": [], "DLR": []}
    for seed in range(seeds):
        points = draw_points(seed, n, growing=growing)
        for name, line in fits(points, told=told).items():
            errors[name].append(metrics.rmse(points.truth, line))
    test = comparison.paired_test(errors["DLR"], errors["LR"])
    return {
        "points": n,
        "lr_error": float(np.mean(errors["LR"])),
        "dlr_error": float(np.mean(errors["DLR"])),
        "difference": test.difference,
        "interval95": [test.low, test.high],
        "t_pvalue": test.t_pvalue,
        "wilcoxon_pvalue": test.wilcoxon_pvalue,
        "wins": test.wins,
    }


if __name__ == "__main__":
    main()
