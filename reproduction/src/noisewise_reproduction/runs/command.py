"""``noisewise reproduce``: measure artefacts, and write for each a JSON file and its figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from noisewise.errors import SettingError
from noisewise.evaluation.records import as_json, where_and_when
from noisewise.report.figures import render, require_matplotlib
from noisewise.storage import write_bytes
from noisewise_reproduction.page.evidence_figures import drawings
from noisewise_reproduction.runs.adopting import adopt
from noisewise_reproduction.runs.artefacts import (
    claims,
    curves,
    datasets,
    future,
    noise,
    ratings,
    regression,
    sensors,
    time,
)
from noisewise_reproduction.runs.plan import Plan
from noisewise_reproduction.runs.run import Run, Store
from noisewise_reproduction.runs.running import measure_all

# Each has a TITLE, runs(plan), and gather(plan, finished) for what its JSON file holds.
ARTEFACTS: dict[str, ModuleType] = {
    "datasets": datasets,
    "ratings": ratings,
    "time": time,
    "regression": regression,
    "sensors": sensors,
    "curves": curves,
    "noise": noise,
    "future": future,
    "claims": claims,
}
ALL = "all"
NOT_RUN = "it was not run"


def reproduce(
    what: Sequence[str] = (ALL,),
    *,
    data: str | Path,
    out: str | Path,
    splits: int | None = None,
    jobs: int = 1,
    quick: bool = False,
    adopted: str | Path | None = None,
    measure: bool = True,
    say: Callable[[str], object] = lambda line: None,
) -> dict[str, Path]:
    """Measure artefacts, write what was found, and return where the JSON file of each is.

    Runs that are finished are not measured again, whichever command or artefact measured them.

    Parameters
    ----------
    what : sequence of str
        Artefacts, or "all".
    data : path
        A folder with copies of the data.
    out : path
        Where to write: ``<artefact>.json``, figures as ``<artefact>.svg`` and ``.png``, and
        finished runs in the folder ``runs``.
    splits : int, optional
        How many; by default five, or one for a quick run.
    jobs : int
        Processes. With one, every model uses all cores.
    quick : bool
        One split, small ranks, few epochs, short series.
    adopted : path, optional
        A folder with results of ``noisewise evaluate`` to take over where settings agree.
    measure : bool
        Whether to measure what is missing; else what is finished is put together.
    say : callable
        Called with a line of text about what was done.
    """
    require_matplotlib()  # before the work, not after it
    names = chosen(what)
    plan = Plan.of(data, quick=quick, splits=splits)
    folder = Path(out)
    store = Store(folder / "runs")
    wanted: dict[str, list[Run]] = {name: ARTEFACTS[name].runs(plan) for name in names}
    every = [run for runs in wanted.values() for run in runs]
    if adopted is not None:
        taken = adopt(every, store, adopted)
        beside = f"; no results: {', '.join(taken.strange)}" if taken.strange else ""
        say(f"Adopted {taken.runs} runs from {adopted}{beside}.")
    why = measure_all(every, store, jobs=jobs) if measure else {}
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name, runs in wanted.items():
        result = json.loads(as_json(gathered(name, plan, runs, store, why)))
        written[name] = _write(folder / f"{name}.json", result)
        missing = len(result["left_out"])
        say(f"{written[name]}: {len(runs) - missing} of {len(runs)} runs.")
    return written


def _write(path: Path, result: dict[str, Any]) -> Path:
    """Write the file of an artefact, and its figures beside it."""
    write_bytes(path, as_json(result).encode())
    for kind in ("svg", "png"):
        for place, drawing in drawings(result).items():
            write_bytes(path.with_name(f"{place}.{kind}"), render(drawing, kind))
    return path


def chosen(what: Sequence[str]) -> list[str]:
    """Return the artefacts that were asked for, in the order of the paper.

    Examples
    --------
    >>> chosen(["time", "ratings"])
    ['ratings', 'time']
    """
    for name in what:
        if name not in (*ARTEFACTS, ALL):
            raise SettingError(
                f"An artefact is one of {', '.join(ARTEFACTS)} or {ALL}; got {name!r}."
            )
    return [name for name in ARTEFACTS if name in what or ALL in what or not what]


def gathered(
    name: str, plan: Plan, runs: list[Run], store: Store, why: dict[str, str]
) -> dict[str, Any]:
    """Return what the JSON file of an artefact holds."""
    found = [(run, store.read(run)) for run in runs if store.has(run)]
    records = [record for _, record in found]
    body = ARTEFACTS[name].gather(plan, found) if found else {}
    return {
        "artefact": name,
        "title": ARTEFACTS[name].TITLE,
        "quick": plan.quick,
        "splits": plan.splits,
        **body,
        "models": _models(plan, runs),
        "left_out": [
            {**run.labels, "why": why.get(run.name, NOT_RUN)} for run in runs if not store.has(run)
        ],
        "adopted": sorted({record["adopted"] for record in records if "adopted" in record}),
        "warnings": sorted({line for record in records for line in record.get("warnings", ())}),
        "machines": _distinct([record["machine"] for record in records]),
        "dates": sorted({str(record["date"]) for record in records}),
        "noisewise": version("noisewise"),
        **where_and_when(),
    }


def _models(plan: Plan, runs: list[Run]) -> dict[str, Any]:
    """Return the models of an artefact with all their settings, and how these were chosen."""
    found: dict[str, Any] = {}
    for run in runs:
        task = run.about["task"]
        if task in ("rating", "fit", "controls", "sensor"):
            label = run.labels["model"]
            model = plan.model(label, "sensors" if task == "sensor" else "ratings")
            found[label] = {
                "title": model.title,
                "model": model.model,
                "changed": model.settings,
                "chosen": model.chosen,
                "settings": run.about["settings"],
            }
    return found


def _distinct(machines: list[Any]) -> list[Any]:
    seen: list[Any] = []
    for machine in machines:
        if machine is not None and machine not in seen:
            seen.append(machine)
    return seen
