"""Measures one record at a time: ``PYTHON bench/imputation_worker.py DATA``, run by imputation.py.

A line of JSON comes in, {"dataset", "scenario", "mask", "method", "threads"}; the versions that are
here go out, then a record. Who fails ends the process, and the last line of stderr says why. What
libraries print goes nowhere: C++ code writes past Python's own stdout.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
import warnings
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from imputation_cases import Case, case
from imputation_peers import PEERS

COVERAGE = 0.9
DIVERGED = 1e6  # stds of all readings that no error may reach
OURS = "noisewise-"

Record = dict[str, Any]
Numbers = Any


class Filled(NamedTuple):
    """A table filled, with the ends of intervals where a method has any."""

    mean: Numbers
    low: Numbers = None
    high: Numbers = None
    notes: Record = {}  # noqa: RUF012 (never written to)


def measured(data: Path, task: Record) -> Record:
    """Fill one table by one method, and score it."""
    if task["scenario"].startswith("protocol"):
        from imputation_protocols import protocol_record

        return protocol_record(data, task)
    one = case(data, task["dataset"], task["scenario"], task["mask"])
    reset_peak()
    started, cpu = time.perf_counter(), time.process_time()
    filled = (ours if task["method"].startswith(OURS) else peers)(one, task)
    took = {
        "seconds": round(time.perf_counter() - started, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "peak_mb": round(peak_mb()),
    }
    return scores(one, filled) | took | filled.notes


def peers(one: Case, task: Record) -> Filled:
    """Fill by another package; a tensor as the table of its series that have readings."""
    peer = PEERS[task["method"]]
    table = one.values if one.time == 0 else one.values.reshape(-1, one.values.shape[-1]).T
    known = ~np.isnan(table).all(axis=0)
    mean = np.full(table.shape, np.nan)
    mean[:, known] = peer.fill(table[:, known], **peer.settings)
    return Filled(mean if one.time == 0 else mean.T.reshape(one.values.shape))


def ours(one: Case, task: Record) -> Filled:
    """Fill by noisewise: "noisewise-METHOD", or "noisewise-METHOD:{JSON of settings}"."""
    from noisewise import DeviationImputer

    name, _, settings = task["method"].removeprefix(OURS).partition(":")
    given = {"settings": json.loads(settings)} if settings else {}
    if one.time:  # of locations, sensors and times
        given["sensor"] = 1
    imputer = DeviationImputer(name, random_state=task["mask"], n_jobs=task["threads"], **given)
    table = one.values
    if one.stamps is not None:
        import pandas as pd

        names = [f"series {k}" for k in range(table.shape[1])]
        table = pd.DataFrame(table, index=pd.DatetimeIndex(one.stamps), columns=names)
    filled = np.asarray(imputer.fit(table).transform(table))
    low, high = (np.asarray(end) for end in imputer.interval(table, coverage=COVERAGE))
    return Filled(filled, low, high, notes_of(imputer))


def notes_of(imputer: Any) -> Record:
    """Return what "auto" says of its choice."""
    model, notes = imputer.model_, {}
    for name in ("choice_", "reason_", "scores_"):
        if hasattr(model, name):
            notes[name.strip("_")] = getattr(model, name)
    return json.loads(json.dumps(notes, default=_plain))  # type: ignore[no-any-return]


def scores(one: Case, filled: Filled) -> Record:
    """Errors of the cells that are asked for, and coverage of every series."""
    error = ((filled.mean - one.truth) / one.scale)[one.asked]
    if not np.isfinite(error).all():
        return {"failed": "left holes unfilled"}
    if np.abs(error).max() > DIVERGED * np.nanstd(one.values / one.scale):
        return {"failed": "diverged"}
    found: Record = {
        "cells": len(error),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.abs(error).mean()),
        "mse": float(np.mean(error**2)),
    }
    series = tuple(k for k in range(one.values.ndim) if k != one.time)
    dark = np.isnan(one.values).all(axis=series, keepdims=True) & one.asked
    if dark.any() and not dark[one.asked].all():  # moments at which nobody measured, apart
        error = ((filled.mean - one.truth) / one.scale)[dark]
        found["dark"] = {"cells": int(dark.sum()), "mae": float(np.abs(error).mean())}
    if filled.low is not None:
        within = (filled.low <= one.truth) & (one.truth <= filled.high) & one.asked
        asked = one.asked.sum(axis=one.time).ravel()
        width = ((filled.high - filled.low) / one.scale)[one.asked]
        found["coverage90"] = float(within.sum() / one.asked.sum())
        found["width"] = float(width.mean())
        found["series"] = np.flatnonzero(asked).tolist()
        found["asked"] = asked[asked > 0].tolist()
        found["covered"] = within.sum(axis=one.time).ravel()[asked > 0].tolist()
        squared = np.where(one.asked, ((filled.mean - one.truth) / one.scale) ** 2, 0.0)
        found["squared"] = [_short(x) for x in squared.sum(axis=one.time).ravel()[asked > 0]]
        found["lowest"] = float(np.minimum(filled.mean, filled.low)[one.asked].min())
    return found


def environment(task: Record) -> Record:
    """Name the versions that a record was measured with."""
    found: Record = {"python": platform.python_version()}
    packages = ["noisewise", "numpy", "numba", "scikit-learn"]
    if not task["method"].startswith(OURS):
        packages = ["numpy", PEERS[task["method"]].package]
    if "pypots" in packages:
        import torch

        packages.append("torch")
        found |= {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    if "noisewise" in packages and (commit := _commit()):
        found["commit"] = commit
    return found | {"packages": {name: version(name) for name in packages}}


def _commit() -> str:
    """Return the commit that noisewise is of; nothing where it is not in a repository."""
    from noisewise import __file__ as source

    def told(*words: str) -> str:
        command = ["git", "-C", str(Path(source).parent), *words]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return found.stdout.strip()

    # Records that are written meanwhile change the tree, but not what is measured.
    changed = told("status", "--short", "--", ".", ":/bench/*.py")
    return told("describe", "--always") + ("-dirty" if changed else "")


def reset_peak() -> None:
    """Forget the most memory that this process has had."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """Return the most memory since then, in MB."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def main() -> None:
    """Answer tasks until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    data = Path(sys.argv[1])
    for line in sys.stdin:
        task = json.loads(line)
        for answer in (environment, partial(measured, data)):
            answers.write(json.dumps(answer(task)) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
