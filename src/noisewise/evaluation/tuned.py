"""Files of tuning: every trial of every model, whole after each of them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from noisewise.documents import is_number, is_score, read_json
from noisewise.errors import DataError, SettingError, listed, shortened
from noisewise.evaluation.comparison import Result
from noisewise.evaluation.ranges import Settings, as_tuples
from noisewise.evaluation.records import as_json, where_and_when
from noisewise.evaluation.trials import Trial
from noisewise.storage import write_bytes

FORMAT = 1

_HEAD = {"tuning", "task", "method", "seed", "metric", "models"}
_OF_MODEL = {"fixed", "ranges", "trials"}


class Tuned:
    """All trials so far, in a file if there is one.

    Parameters
    ----------
    head : dict
        What all trials have in common: task, method, seed, metric.
    path : path or None
        The file; trials that it already holds are read, and kept. None keeps them in memory.

    Attributes
    ----------
    trials : dict of lists
        What was tried, by model.
    """

    def __init__(self, head: dict[str, Any], path: str | Path | None = None) -> None:
        self.head = {"tuning": FORMAT, **head}
        self.path = None if path is None else Path(path)
        self.about: dict[str, Any] = {}
        self.trials: dict[str, list[Trial]] = {}
        if self.path is not None and self.path.exists():
            content = read_tuned(self.path)
            for key, value in self.head.items():
                if content[key] != _plain(value):
                    raise self.foreign(key)
            for model, entry in content["models"].items():
                self.about[model] = {key: entry[key] for key in ("fixed", "ranges")}
                self.trials[model] = entry["trials"]

    def begin(self, model: str, fixed: Settings, ranges: dict[str, Any]) -> list[Trial]:
        """Make room for a model; return the trials it has had with these settings and ranges."""
        about = {"fixed": fixed, "ranges": ranges}
        if _plain(self.about.setdefault(model, about)) != _plain(about):
            raise self.foreign(f"choice of settings and ranges for {model}")
        return self.trials.setdefault(model, [])

    def keep(self, model: str, trial: Trial) -> None:
        """Add a trial, and write the file."""
        self.trials[model].append(trial)
        if self.path is not None:
            write_bytes(self.path, as_json(self.content).encode())

    def foreign(self, what: str) -> DataError:
        """Return the error that a file is of another search."""
        return DataError(
            f"{self.path} was begun with another {what}: write to another file, or remove the old "
            "one."
        )

    @property
    def best(self) -> Result | None:
        """The best trial of all, with its model; None if there is none yet."""
        found = [
            (error(trial, self.head["metric"]), k, {"model": model, **trial})
            for model, trials in self.trials.items()
            for k, trial in enumerate(trials)
        ]
        lowest, _, best = min(found, key=lambda one: one[:2], default=(math.inf, 0, {}))
        return best if lowest < math.inf else None

    @property
    def content(self) -> Result:
        """What the file holds."""
        metric = self.head["metric"]
        models = {
            model: {
                **self.about[model],
                "best": min(trials, key=lambda trial: error(trial, metric)),
                "seconds": sum(trial["seconds"] for trial in trials),
                "trials": trials,
            }
            for model, trials in self.trials.items()
            if trials
        }
        return {**self.head, "best": self.best, "models": models, **where_and_when()}


def error(trial: Trial, metric: str) -> float:
    """Return how bad a trial was; inf where training diverged or nothing could be measured."""
    value = trial.get(metric)
    return value if value is not None and math.isfinite(value) else math.inf


def best_settings(
    path: str | Path, model: str | None = None, kind: str | None = None
) -> tuple[str, Settings]:
    """Read the best settings from a file of tuning.

    Parameters
    ----------
    path : path
        What ``noisewise tune`` wrote.
    model : str, optional
        Of which model; of the best one by default.
    kind : {"ratings", "sensors"}, optional
        What they must be for.

    Returns
    -------
    model, settings
    """
    content = read_tuned(path)
    if kind not in (None, content["task"]["kind"]):
        raise DataError(
            f"{path} has settings for {shortened(content['task']['kind'])}, not for {kind}."
        )
    tuned, metric = content["models"], content["metric"]
    if model is not None and model not in tuned:
        raise SettingError(f"{path} has settings of {listed(list(tuned))}; got {model!r}.")
    found = [
        (error(trial, metric), name, trial["settings"])
        for name in (tuned if model is None else [model])
        for trial in tuned[name]["trials"]
    ]
    lowest, name, settings = min(found, key=lambda one: one[0], default=(math.inf, "", {}))
    if lowest == math.inf:
        raise DataError(f"{path} has no trial that came to an end; tune with other ranges.")
    return name, settings


def read_tuned(path: str | Path) -> Result:
    """Read a file of tuning; a broken or foreign one is a ``DataError``."""
    content = read_json(path, "trials")
    if not isinstance(content, dict) or not content.keys() >= _HEAD:
        raise DataError(
            f"{path} holds something other than trials of `noisewise tune`: these have "
            f"{', '.join(sorted(_HEAD))}."
        )
    if content["tuning"] != FORMAT:
        found = shortened(content["tuning"])
        raise DataError(f"{path} has format {found}; this version reads {FORMAT}.")
    if not isinstance(content["models"], dict) or not isinstance(content["task"], dict):
        raise DataError(f"{path} is damaged: its task and its models must have names.")
    metric = content["metric"]
    if not isinstance(metric, str) or not isinstance(content["task"].get("kind"), str):
        raise DataError(f"{path} is damaged: it does not name its metric and what it is for.")
    for model, entry in content["models"].items():
        if not isinstance(entry, dict) or not entry.keys() >= _OF_MODEL:
            raise DataError(
                f"{path} is damaged: {shortened(model)} needs {', '.join(sorted(_OF_MODEL))}."
            )
        trials = entry["trials"]
        if not isinstance(trials, list) or not all(_is_trial(trial, metric) for trial in trials):
            raise DataError(
                f"{path} is damaged: trials of {shortened(model)} need settings, seconds and a "
                "number for their error."
            )
        for trial in trials:
            trial["settings"] = {k: as_tuples(v) for k, v in trial["settings"].items()}
    return content


def _is_trial(trial: Any, metric: str) -> bool:
    return (
        isinstance(trial, dict)
        and isinstance(trial.get("settings"), dict)
        and is_number(trial.get("seconds"))
        and is_score(trial.get(metric))
    )


def _plain(value: Any) -> Any:
    """Return what JSON makes of a value."""
    return json.loads(as_json(value))
