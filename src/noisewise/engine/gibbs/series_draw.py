"""One draw of everything unknown: rows, and what is known of every series."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from noisewise.engine.arrays import Floats
from noisewise.engine.gibbs import draw as rows
from noisewise.engine.gibbs.data import Model
from noisewise.engine.gibbs.series_data import Timetable
from noisewise.engine.series import Array

START_STD = 0.1  # of factors
STILL = 1e-8  # amplitude of courses that have not joined in


@dataclass
class Draw(rows.Draw):
    """All unknowns, in standardised units.

    Attributes
    ----------
    courses
        x of its series at every observation.
    lengths, amplitudes
        Of every series: the time after which x has forgotten all but 1/e, and the variance of x.
    variances
        Noise of every series, where it is not low-rank.
    """

    courses: Floats
    lengths: Array
    amplitudes: Array
    variances: Array


def first_draw(model: Model, timetable: Timetable, shortest: float, longest: float) -> Draw:
    """Start from small random factors, and courses that stand still."""
    start = rows.first_draw(model, timetable.problem, start_std=START_STD)
    start.scales[:] = 1.0
    n = len(timetable.series)
    return Draw(
        **{field.name: getattr(start, field.name) for field in fields(start)},
        courses=np.zeros(len(timetable.problem), dtype=np.float32),
        lengths=np.full(n, np.sqrt(shortest * longest)),
        amplitudes=np.full(n, STILL),
        variances=np.ones(n),
    )
