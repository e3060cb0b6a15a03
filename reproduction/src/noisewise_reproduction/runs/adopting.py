"""Results of ``noisewise evaluate`` as finished runs, where data, split and settings agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from noisewise.data.panel import TIME
from noisewise.errors import DataError
from noisewise.evaluation.records import read_results
from noisewise_reproduction.runs.run import NEUTRAL, Run, Store

MODES = ("location", "sensor", "time")
TASKS = ("rating", "sensor")  # what `noisewise evaluate` measures
_NOTHING = object()


class Adopted(NamedTuple):
    """How many runs were taken over, and which files held something else than results."""

    runs: int
    strange: list[str]


def adopt(runs: Sequence[Run], store: Store, folder: str | Path) -> Adopted:
    """Take over results from files, for runs that are not finished yet.

    A result is taken if it is of the same model, protocol and data, and of the same settings but
    for those that change no number. A setting that the file does not name is one that did not exist
    then: it must have its default now.

    Parameters
    ----------
    runs : sequence of Run
        What is wanted.
    store : Store
        Where to keep it.
    folder : path
        A folder with JSON files.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"Expected a folder with results to adopt; got {folder}.")
    results: list[tuple[str, dict[str, Any]]] = []
    strange = []
    for path in sorted(folder.glob("*.json")):
        try:
            results += [(path.name, result) for result in read_results(path)]
        except DataError:  # searches and times live beside results: they are named in the end
            strange.append(path.name)
    taken = 0
    for run in {run.name: run for run in runs}.values():
        if run.about["task"] not in TASKS or store.has(run):
            continue
        for name, result in results:
            numbers = numbers_for(run, result)
            if numbers is not None:
                store.keep(run, {"numbers": numbers, "adopted": name, **_where(result)})
                taken += 1
                break
    return Adopted(taken, strange)


def numbers_for(run: Run, result: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a result says of a run; None if it is of something else."""
    about = run.about
    if any(result[key] != about[key] for key in ("model", "protocol", "data")):
        return None
    shape = about["data"]["shape"]
    ours, theirs, defaults = (
        numbered(settings, shape)
        for settings in (about["settings"], result["settings"], run.defaults)
    )
    if not agree(ours, theirs, defaults):
        return None
    row = next((row for row in result["splits"] if row["seed"] == about["seed"]), None)
    if row is None:
        return None
    numbers: dict[str, Any] = {"scores": {k: v for k, v in row.items() if k != "seed"}}
    for rounds in result.get("rounds", ()):
        if rounds["seed"] == about["seed"]:
            numbers["rounds"] = {k: v for k, v in rounds.items() if k != "seed"}
    return numbers


def agree(ours: dict[str, Any], theirs: dict[str, Any], defaults: dict[str, Any]) -> bool:
    """Return whether settings of a file are ours, but for those that change no number.

    Parameters
    ----------
    ours : dict
        Every setting of a run.
    theirs : dict
        Settings of a file.
    defaults : dict
        What a setting has that the file does not name.

    Examples
    --------
    >>> agree({"rank": 8, "biases": True}, {"rank": 8, "n_jobs": 2}, {"biases": True})
    True
    >>> agree({"rank": 8}, {"rank": 9}, {})
    False
    """
    known = {k: v for k, v in theirs.items() if k.rpartition("__")[2] not in NEUTRAL}
    if known.keys() - ours.keys():
        return False
    return all(
        _same(name, value, known.get(name, defaults.get(name, _NOTHING)))
        for name, value in ours.items()
    )


def numbered(settings: dict[str, Any], shape: Sequence[int]) -> dict[str, Any]:
    """Return settings in which the modes of a tensor of sensors are numbers.

    As models take it, the type "auto" is the mode called "sensor".

    Examples
    --------
    >>> numbered({"time": -1, "sensor": "auto", "rank": 3}, (15, 19, 7479))
    {'time': 2, 'sensor': 1, 'rank': 3}
    """
    if len(shape) != len(MODES):
        return settings
    known = {name: number for number, name in enumerate(MODES)} | {-1: TIME}
    known["auto"] = known["sensor"]
    return {
        name: known.get(value, value) if name in ("time", "sensor") else value
        for name, value in settings.items()
    }


def _same(name: str, ours: Any, theirs: Any) -> bool:
    """Compare a setting; sets are learned from with two modes, and "auto" says the same."""
    if name == "implicit":
        ours, theirs = (True if value == "auto" else value for value in (ours, theirs))
    return bool(ours == theirs)


def _where(result: dict[str, Any]) -> dict[str, Any]:
    return {key: result.get(key) for key in ("machine", "date")}
