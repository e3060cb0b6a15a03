"""Runs of sensors: a model on a split of single cells, or of outages."""

from __future__ import annotations

from functools import partial
from typing import Any

from noisewise import registry
from noisewise.data.panel import SENSOR, Panel
from noisewise.evaluation import records, sensors
from noisewise_reproduction.runs.plan import Chosen
from noisewise_reproduction.runs.run import Numbers, Run, defaults_of, settings_of
from noisewise_reproduction.runs.sources import Source


def sensor_run(
    source: Source, chosen: Chosen, seed: int, share: float, outage: float | None = None
) -> Run:
    """Return the run of a model on a split: a share of all cells trains, or outages are hidden.

    Parameters
    ----------
    source : Source
        A tensor of sensors.
    chosen : Chosen
        The model.
    seed : int
        The split, and what the model is built with.
    share : float
        Of all cells for training; or with `outage` of the stretches that are hidden.
    outage : float, optional
        How many seconds a hidden stretch lasts.
    """
    data = source.sensors()
    model = registry.build(
        "sensors", chosen.model, chosen.settings, sensor=SENSOR, coordinates=data.coordinates,
        n_jobs=-1,
    )  # fmt: skip
    kind = "cells" if outage is None else "blocks"
    about = {
        "task": "sensor",
        "dataset": source.name,
        "model": chosen.model,
        "settings": settings_of(model),
        "protocol": sensors.protocol_of(kind, share, outage),
        "data": records.data_of(data.observations),
        "seed": seed,
    }
    labels = {
        "dataset": source.name, "protocol": kind, "share": share, "model": chosen.label,
        "seed": seed,
    }  # fmt: skip
    measure = partial(judged, source, chosen.model, chosen.settings, share, outage, seed)
    return Run(about, labels, measure, defaults=defaults_of(model))


def judged(
    source: Source,
    model: str,
    settings: dict[str, Any],
    share: float,
    outage: float | None,
    seed: int,
    n_jobs: int,
) -> Numbers:
    """Measure a sensor run: its "scores"."""
    data: Panel = source.sensors()

    def make(seed: int) -> Any:
        return registry.build(
            "sensors", model, settings, sensor=SENSOR, coordinates=data.coordinates,
            random_state=seed, n_jobs=n_jobs,
        )  # fmt: skip

    result = sensors.evaluate(
        data, make, protocol="cells" if outage is None else "blocks", share=share, repeats=1,
        seed=seed, outage=outage, name=model,
    )  # fmt: skip
    (row,) = result["splits"]
    return {"scores": {key: value for key, value in row.items() if key != "seed"}}
