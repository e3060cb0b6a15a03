"""Protocols for tensors of sensors: any model, single cells or outages, errors in fixed units.

Errors are z-scores, by mean and std of a sensor over all observed cells of the dataset: units are
the same over splits and models. A few broken readings can decide a mean of squared errors, so the
median and the mean without the largest hundredth stand beside it.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from noisewise import metrics
from noisewise.data import Observations
from noisewise.data.panel import SENSOR, TIME, Panel
from noisewise.errors import SettingError
from noisewise.evaluation.comparison import Result
from noisewise.evaluation.records import RunOptions, data_of, measure
from noisewise.evaluation.trials import Task, about_task
from noisewise.settings import whole
from noisewise.splits import Split, block_split, share_split

PROTOCOLS = ("cells", "blocks")
METRICS = ("mse", "trimmed_mse", "median_se", "nll")  # of tuning, the usual one first
FIT_SHARE = 0.9  # of what was observed that is not test, where nobody says
OUTAGE_SHARE = 0.2  # of stretches that are hidden

Floats = NDArray[np.float64]


def evaluate(
    data: Panel,
    build_model: Callable[[int], Any],
    *,
    protocol: str = "cells",
    share: float,
    repeats: int = 5,
    seed: int = 0,
    outage: float | None = None,
    name: str | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    """Run a model over splits and report its errors on each, with the mean and its interval.

    ``build_model`` makes a new model from a seed. One whose ``fit`` takes no ``validation`` has
    nothing to choose, and is given all that is not test. Splits are ``seed`` to ``seed + repeats -
    1``. They hide single cells ("cells"), where ``share`` is that of all cells that train; or
    stretches of time of single series ("blocks"), where it is that of blocks that are test, and
    ``outage`` is how many seconds a stretch lasts. ``options`` are those of ``RunOptions``. The
    result is ready for JSON; its model is called ``name``, or by its class.

    Examples
    --------
    >>> from noisewise import LinearInterpolator, observe
    >>> from noisewise.data.panel import Panel
    >>> rows = [("hall", "heat", t, 20 + (t % 24) / 6) for t in range(100)]
    >>> panel = Panel.of(observe(rows))
    >>> result = evaluate(panel, lambda seed: LinearInterpolator(n_jobs=1), share=0.5, repeats=2)
    >>> len(result["splits"]), result["model"]
    (2, 'LinearInterpolator')
    """
    whole(1).require("repeats", repeats)
    whole(0).require("seed", seed)
    observations, units = data.observations, sensor_units(data)

    def measured(model: Any, k: int) -> dict[str, Any]:
        split = split_of(data, protocol, share, outage, k)
        watches = "validation" in inspect.signature(model.fit).parameters
        train = observations.take(split.train if watches else split.fit)
        shown = {"validation": observations.take(split.validation)} if watches else {}
        started = time.perf_counter()
        model.fit(train, **shown)
        seconds = time.perf_counter() - started
        scores = score(model, observations.take(split.test), units)
        choice = {"choice": str(model.choice_)} if hasattr(model, "choice_") else {}
        return {**scores, "seconds": seconds, **choice}

    about = {"protocol": protocol_of(protocol, share, outage), "data": data_of(observations)}
    seeds = range(seed, seed + repeats)
    return measure(build_model, measured, seeds, name=name, about=about, **options)


def sensor_task(
    data: Panel,
    *,
    protocol: str = "cells",
    share: float | None = None,
    outage: float | None = None,
    seed: int = 0,
) -> Task:
    """Judge models of sensors on held-out cells or stretches of time, as for ``evaluate``.

    By default nine tenths of the readings are not test, for "blocks" eight.

    Examples
    --------
    >>> from noisewise import observe
    >>> from noisewise.data.panel import Panel
    >>> rows = [("hall", "heat", t, 20 + (t % 24) / 6) for t in range(100)]
    >>> panel = Panel.of(observe(rows))
    >>> sensor_task(panel).metrics[0]
    'mse'
    """
    seen = data.observations
    if share is None:
        cells = FIT_SHARE * len(seen) / np.prod(seen.shape, dtype=np.float64)
        share = OUTAGE_SHARE if protocol == "blocks" else float(cells)
    chosen = protocol_of(protocol, share, outage)
    split = split_of(data, protocol, share, outage, seed)
    train, held_out = seen.take(split.train), seen.take(split.validation)
    errors = partial(score, units=sensor_units(dataclasses.replace(data, observations=train)))
    about = about_task("sensors", seen, chosen, seed)
    shared = {"time": -1, "sensor": 1, "coordinates": data.coordinates}
    return Task("sensors", train, held_out, about, METRICS, errors, shared=shared)


def protocol_of(kind: str, share: float, outage: float | None = None) -> dict[str, Any]:
    """Return a protocol as a result has it."""
    return {"kind": kind, "share": share, "outage_seconds": outage}


def sensor_units(data: Panel) -> tuple[Floats, Floats]:
    """Mean and std of each sensor over all observed cells; 1 for what always reads the same."""
    seen = data.observations
    sensor, size = seen.codes[SENSOR], seen.shape[SENSOR]
    values = seen.values.astype(np.float64)
    count = np.maximum(np.bincount(sensor, minlength=size), 1)
    mean = np.bincount(sensor, values, minlength=size) / count
    std = np.sqrt(np.bincount(sensor, (values - mean[sensor]) ** 2, minlength=size) / count)
    return mean, np.where(std > 0, std, 1.0)


def score(model: Any, test: Observations, units: tuple[Floats, Floats]) -> dict[str, float]:
    """Errors of a fitted model on cells that it has not seen, in the given units."""
    mean, std = model.predict(test, return_std=True)
    low, high = model.predict_interval(test, 0.9)
    centre, scale = (column[test.codes[SENSOR]] for column in units)
    truth = (test.values - centre) / scale
    mean, std = (mean - centre) / scale, std / scale
    squared = (truth - mean) ** 2
    return {
        "mse": metrics.mse(truth, mean),
        "median_se": float(np.median(squared)),
        "trimmed_mse": trimmed_mean(squared),
        "nll": metrics.nll(truth, mean, std),
        "coverage90": metrics.coverage(test.values, low, high),
    }


def trimmed_mean(values: Floats) -> float:
    """Mean without the largest hundredth, rounded down."""
    return float(np.sort(values)[: len(values) - len(values) // 100].mean())


def split_of(data: Panel, protocol: str, share: float, outage: float | None, seed: int) -> Split:
    """Return a split of a protocol."""
    whole(0).require("seed", seed)
    if protocol not in PROTOCOLS:
        raise SettingError(f"protocol must be one of {', '.join(PROTOCOLS)}; got {protocol!r}.")
    if protocol == "cells" and outage is not None:
        raise SettingError(f"The protocol 'cells' has no outages; leave out outage={outage}.")
    seen = data.observations
    if protocol == "cells":
        return share_split(seen.shape, seen.codes, share, seed)
    if outage is None:
        raise SettingError("The protocol 'blocks' needs outage=, in seconds, such as 2 * 3600.")
    seconds = data.elapsed()[seen.codes[TIME]]
    return block_split(seen.codes[:TIME], seconds, outage, share, seed)
