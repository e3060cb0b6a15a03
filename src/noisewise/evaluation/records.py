"""Results: measured split by split, and kept in a file that is taken up where it stopped.

A file holds one result, or a list of them, one per protocol. It is written after every split, and
nothing in it is believed when it is read back.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict, Unpack

from noisewise.data import Observations
from noisewise.engine import devices
from noisewise.errors import DataError, progress, shortened
from noisewise.evaluation.comparison import Result, split_ratio, summarise
from noisewise.storage import write_bytes

_WHOLE = {"model", "settings", "protocol", "data", "splits"}
ASIDE = ("rounds", "users")  # of every split, beside its scores
UNTOLD = {"random_state", "verbose"}  # settings that a result does not name


class RunOptions(TypedDict, total=False):
    """How a run over splits goes on from an earlier one, and what it tells meanwhile."""

    earlier: Result | None  # of the same model and data: only splits that it lacks are run
    after_split: Callable[[Result], object]  # called with the result so far after every split
    verbose: bool | None  # a bar of splits: always, never; None on a terminal and in a notebook


def measure(
    build: Callable[[int], Any],
    score: Callable[[Any, int], dict[str, Any]],
    seeds: Iterable[int],
    *,
    name: str | None,
    about: dict[str, Any],
    **options: Unpack[RunOptions],
) -> Result:
    """Run a model over splits, and return what was measured with its mean and interval.

    ``build`` makes a new model from the seed of a split; ``score`` fits it to the split and returns
    its scores; what stands under ``ASIDE`` is none. ``about`` has protocol and data.
    """
    earlier = options.get("earlier")
    rows = {row["seed"]: row for row in earlier["splits"]} if earlier else {}
    aside: dict[str, dict[int, Any]] = {
        key: {row["seed"]: row for row in (earlier or {}).get(key, ())} for key in ASIDE
    }
    for seed in progress(seeds, desc=name or "", unit="split", verbose=options.get("verbose")):
        model = build(seed)
        head = {"model": name or type(model).__name__, "settings": settings_of(model), **about}
        if earlier is not None:
            _check_same(earlier, head)
        if seed in rows:
            continue
        scores = score(model, seed)
        for key in scores.keys() & ASIDE:
            aside[key][seed] = {"seed": seed, **scores.pop(key)}
        rows[seed] = {"seed": seed, **scores}
        if "after_split" in options:
            options["after_split"](_result(head, rows, aside))
    return _result(head, rows, aside)


def data_of(observations: Observations) -> dict[str, Any]:
    """Return what a result says of its data."""
    return {"observations": len(observations), "shape": list(observations.shape)}


def _check_same(earlier: Result, head: dict[str, Any]) -> None:
    """Raise unless splits of an earlier result may stand beside new ones."""
    for key, here in plain(head).items():
        there = earlier.get(key)
        if there != here:
            if isinstance(there, dict) and isinstance(here, dict):
                differ = [k for k in {**there, **here} if there.get(k) != here.get(k)]
                there, here = ({k: d.get(k) for k in differ} for d in (there, here))
            raise DataError(
                f"An earlier result can only be taken up with the same {key}; it has {there}, and "
                f"this run {here}: write to another file, or remove the old one."
            )


def settings_of(model: Any) -> dict[str, Any]:
    """Return the settings of a model and of models within it, as JSON has them, but for seeds."""
    settings = model.get_params() if hasattr(model, "get_params") else {}
    return plain({k: v for k, v in settings.items() if k.rpartition("__")[2] not in UNTOLD})


def where_and_when() -> dict[str, Any]:
    """Name the machine, the versions and the day, for a result to carry."""
    packages = ("noisewise", "numpy", "numba", "scikit-learn")
    torch = sys.modules.get("torch")  # else no rival has used a graphics card
    gpu = {"gpu": torch.cuda.get_device_name()} if torch and torch.cuda.is_available() else {}
    gpu |= {"gpu": card} if (card := devices.card()) is not None else {}
    return {
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "packages": {name: version(name) for name in packages},
            **gpu,
        },
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def as_json(result: Result) -> str:
    """Write a result as JSON; what could not be measured is null."""

    def text(value: Any) -> str:  # models have their settings beside them
        return type(value).__name__ if hasattr(value, "get_params") else str(value)

    return json.dumps(_finite(result), indent=1, default=text) + "\n"


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """Return what JSON makes of a value."""
    made: dict[str, Any] = json.loads(as_json(value))
    return made


class Record:
    """Results of one model on the same data, one per protocol, in a file if there is one.

    ``about`` is what all have in common, such as model and data; a file of others is refused.
    """

    path: Path | None

    def __init__(self, about: dict[str, Any], path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.results: list[Result] = []
        if self.path is not None and self.path.exists():
            self.results = read_results(self.path)
        for key, value in about.items():
            for result in self.results:
                if result[key] != value:
                    raise DataError(
                        f"{path} holds results of another {key}, {result[key]} and not {value}: "
                        "write to another file, or remove the old one."
                    )

    def under(self, protocol: str | dict[str, Any]) -> Result | None:
        """Return the result under a protocol, None if there is none yet."""
        return next((one for one in self.results if one["protocol"] == protocol), None)

    def keep(self, result: Result) -> None:
        """Put a result in the place of the one under the same protocol, and write the file."""
        under = self.under(result["protocol"])
        place = len(self.results) if under is None else self.results.index(under)
        self.results[place : place + 1] = [result]
        if self.path is not None:
            write_bytes(self.path, as_json(self.content).encode())

    @property
    def content(self) -> Any:
        """What the file holds: the result if there is one, else a list."""
        return self.results[0] if len(self.results) == 1 else self.results


def read_results(path: str | Path) -> list[Result]:
    """Read a file of results; a broken or foreign one is a ``DataError``."""
    content = read_json(path, "results")
    results = content if isinstance(content, list) else [content]
    if not results:
        raise DataError(f"{path} holds no results: remove it, or run `noisewise evaluate` again.")
    for result in results:
        if not isinstance(result, dict) or not result.keys() >= _WHOLE:
            raise DataError(
                f"{path} holds something other than results of `noisewise evaluate`: these have "
                f"{', '.join(sorted(_WHOLE))}."
            )
        rows, parts = result["splits"], (result["settings"], result["data"])
        rules = {
            "its splits must each have a seed, and numbers": isinstance(rows, list)
            and all(map(_is_split, rows)),
            "it does not name its model and its protocol": isinstance(result["model"], str)
            and _is_protocol(result["protocol"]),
            "its settings and its data must have names": all(isinstance(p, dict) for p in parts),
            "the means of its scores must have names": isinstance(result.get("mean", {}), dict),
        }
        for words, sound in rules.items():
            check_sound(path, sound, words)
    return results


def check_sound(path: str | Path, sound: bool, words: str) -> None:
    """Raise that a file is damaged, and in which way, unless it is sound."""
    if not sound:
        raise DataError(f"{path} is damaged: {words}.")


def read_json(path: str | Path, what: str) -> Any:
    """Read a JSON file; one that is none is a ``DataError``, which says what it must hold."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # brackets may be too deep to read
        raise DataError(f"{path} must hold {what} as JSON: {shortened(error)}.") from None


def is_number(value: Any) -> bool:
    """Tell whether a value is a number that fits a float: ``True`` and ``10**400`` are none."""
    return isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**1023
    )


def is_score(value: Any) -> bool:
    """Tell whether a value is a number, or None for what could not be measured."""
    return value is None or is_number(value)


def _result(head: dict[str, Any], rows: dict[int, Any], aside: dict[str, Any]) -> Result:
    splits = [rows[seed] for seed in sorted(rows)]
    ratio = split_ratio(head["protocol"], head["data"])
    found = {  # what JSON has as null could not be measured
        key: summarise([math.nan if row[key] is None else row[key] for row in splits], ratio)
        for key in splits[0]
        if key != "seed" and all(is_score(row.get(key, "")) for row in splits)
    }
    return {
        **head,
        "splits": splits,
        "mean": {key: summary.mean for key, summary in found.items()},
        "interval95": {key: [summary.low, summary.high] for key, summary in found.items()},
        **{key: [own[seed] for seed in sorted(own)] for key, own in aside.items() if own},
        **where_and_when(),
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*:(.*)$", info.read_text() if info.exists() else "", re.M)
    return named[1].strip() if named else platform.processor() or "unknown"


def _is_split(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("seed"), int):
        return False
    return all(isinstance(v, str) if k == "choice" else is_score(v) for k, v in row.items())


def _is_protocol(protocol: Any) -> bool:
    if isinstance(protocol, dict):
        return isinstance(protocol.get("kind"), str) and is_number(protocol.get("share"))
    return isinstance(protocol, str)
