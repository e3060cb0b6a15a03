"""Hyperparameter search: many trials on validation data alone, of models in turns, in one file.

Each model gets the same budget, in trials or in minutes. The file is written after every trial, and
a search that was stopped or killed goes on from it. Settings of a trial depend on seed and number
of the trial, and in Bayesian search on all trials before: what goes on is what was begun.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noisewise import registry
from noisewise.errors import DataError, SettingError, listed, progress, shortened
from noisewise.evaluation import records, trials
from noisewise.evaluation.comparison import Result
from noisewise.evaluation.ranking import higher_is_better
from noisewise.evaluation.trials import Range, Settings, Space, Task, Trial, as_tuples
from noisewise.settings import whole
from noisewise.storage import write_bytes

METHODS = ("random", "bayes")
FORMAT = 1
_HEAD = {"tuning", "task", "method", "seed", "metric", "models"}
_OF_MODEL = {"fixed", "ranges", "trials"}


@dataclass(frozen=True)
class Budget:
    """What every model gets: so many trials, or so many minutes of them.

    Examples
    --------
    >>> done = [{"seconds": 1.0}]
    >>> Budget(trials=2).is_spent(done), Budget(minutes=0.01).is_spent(done)
    (False, True)
    """

    trials: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if (self.trials is None) == (self.minutes is None):
            raise SettingError(
                "A budget is a number of trials or of minutes, one of the two; got "
                f"trials={self.trials} and minutes={self.minutes}."
            )
        if self.trials is not None and self.trials < 1:
            raise SettingError(f"trials must be 1 or more; got {self.trials}.")
        if self.minutes is not None and not self.minutes > 0:
            raise SettingError(f"minutes must be above 0; got {self.minutes}.")

    def is_spent(self, done: Sequence[Trial]) -> bool:
        """Tell whether a model that has had these trials gets no more."""
        if self.trials is not None:
            return len(done) >= self.trials
        return bool(sum(trial["seconds"] for trial in done) >= 60 * (self.minutes or 0.0))


DEFAULT = Budget(trials=20)


@dataclass(frozen=True)
class Search:
    """Where to look for the settings of a model, and for how long."""

    model: str
    fixed: Settings
    space: Space
    budget: Budget

    def drawn(self, seed: int, number: int) -> Settings:
        """Return the settings of a trial of random search."""
        return {**self.fixed, **trials.draw(self.space, seed, number)}

    def next(self, method: str, seed: int, metric: str, done: Sequence[Trial]) -> Settings:
        """Return what is tried after these trials."""
        if method == "random":
            return self.drawn(seed, len(done))
        told = [(trial["settings"], error(trial, metric)) for trial in done]
        return {**self.fixed, **trials.suggest(self.space, seed, told)}


class Tuned:
    """All trials so far by model, and what they have in common; in a file if there is one."""

    head: dict[str, Any]
    path: Path | None

    def __init__(self, head: dict[str, Any], path: str | Path | None = None) -> None:
        self.head = records.plain({"tuning": FORMAT, **head})
        self.path = None if path is None else Path(path)
        self.models: dict[str, dict[str, Any]] = {}  # settings, ranges and trials of each
        if self.path is not None and self.path.exists():
            content = read_tuned(self.path)
            for key in self.head:
                if content[key] != self.head[key]:
                    raise self.foreign(key)
            self.models = content["models"]

    def begin(self, search: Search, method: str, seed: int) -> list[Trial]:
        """Return the trials that a model has had; raise unless they are of this search."""
        ranges = {name: asdict(one) for name, one in search.space.items()}
        about = {"fixed": search.fixed, "ranges": ranges}
        entry = self.models.setdefault(search.model, {**about, "trials": []})
        if records.plain({key: entry[key] for key in about}) != records.plain(about):
            raise self.foreign(f"choice of settings and ranges for {search.model}")
        done: list[Trial] = entry["trials"]
        for k, trial in enumerate(done if method == "random" else []):
            if not trials.same_settings(trial["settings"], search.drawn(seed, k)):
                raise self.foreign(f"draw of settings in trial {k} of {search.model}")
        return done

    def keep(self, model: str, trial: Trial) -> None:
        """Add a trial, and write the file."""
        self.models[model]["trials"].append(trial)
        if self.path is not None:
            write_bytes(self.path, records.as_json(self.content).encode())

    def foreign(self, what: str) -> DataError:
        """Return the error that a file is of another search."""
        advice = "write to another file, or remove the old one."
        return DataError(f"{self.path} was begun with another {what}: {advice}")

    @property
    def best(self) -> Result | None:
        """The best trial of all, with its model; None if there is none yet."""
        best = _best(self.models, self.head["metric"])
        return None if best is None else {"model": best[0], **best[1]}

    @property
    def content(self) -> Result:
        """What the file holds."""
        metric = self.head["metric"]
        models = {
            model: {
                "fixed": entry["fixed"],
                "ranges": entry["ranges"],
                "best": min(entry["trials"], key=lambda trial: error(trial, metric)),
                "seconds": sum(trial["seconds"] for trial in entry["trials"]),
                "trials": entry["trials"],
            }
            for model, entry in self.models.items()
            if entry["trials"]
        }
        return {**self.head, "best": self.best, "models": models, **records.where_and_when()}


def error(trial: Trial, metric: str) -> float:
    """Return how bad a trial was; inf where training diverged or nothing could be measured."""
    value = trial.get(metric)
    if value is None or not math.isfinite(value):
        return math.inf
    return float(-value if higher_is_better(metric) else value)


def best_settings(
    path: str | Path, model: str | None = None, kind: str | None = None
) -> tuple[str, Settings]:
    """Read the best of a file of tuning, or of a model there; it must be for ratings or sensors."""
    content = read_tuned(path)
    found = content["task"]["kind"]
    if kind not in (None, found):
        raise DataError(f"{path} has settings for {shortened(found)}, not for {kind}.")
    tuned = content["models"]
    if model is not None and model not in tuned:
        raise SettingError(f"{path} has settings of {listed(list(tuned))}; got {model!r}.")
    best = _best(tuned if model is None else {model: tuned[model]}, content["metric"])
    if best is None:
        raise DataError(f"{path} has no trial that came to an end; tune with other ranges.")
    return best[0], best[1]["settings"]


def read_tuned(path: str | Path) -> Result:
    """Read a file of tuning; a broken or foreign one is a ``DataError``."""
    content = records.read_json(path, "trials")
    if not isinstance(content, dict) or not content.keys() >= _HEAD:
        raise DataError(
            f"{path} holds something other than trials of `noisewise tune`: these have "
            f"{', '.join(sorted(_HEAD))}."
        )
    if content["tuning"] != FORMAT:
        found = shortened(content["tuning"])
        raise DataError(f"{path} has format {found}; this version reads {FORMAT}.")
    models, task, metric = (content[key] for key in ("models", "task", "metric"))
    named = isinstance(models, dict) and isinstance(task, dict)
    records.check_sound(path, named, "its task and its models must have names")
    told = isinstance(metric, str) and isinstance(task.get("kind"), str)
    records.check_sound(path, told, "it does not name its metric and what it is for")
    for model, entry in models.items():
        whole = isinstance(entry, dict) and entry.keys() >= _OF_MODEL
        records.check_sound(path, whole, f"{shortened(model)} needs {', '.join(sorted(_OF_MODEL))}")
        done = entry["trials"]
        sound = isinstance(done, list) and all(_is_trial(trial, metric) for trial in done)
        words = "need settings, seconds and a number for their error"
        records.check_sound(path, sound, f"trials of {shortened(model)} {words}")
        for trial in done:
            trial["settings"] = {k: as_tuples(v) for k, v in trial["settings"].items()}
    return content


def tune(
    task: Task,
    models: Sequence[str],
    *,
    budget: Budget = DEFAULT,
    method: str = "random",
    metric: str | None = None,
    seed: int = 0,
    fixed: Mapping[str, Any] | None = None,
    ranges: Mapping[str, Range] | None = None,
    path: str | Path | None = None,
    n_jobs: int = -1,
) -> Result:
    """Search for good settings of models, and keep every trial in a file.

    Each of ``models``, by their names on the command line, gets the ``budget``, trials of earlier
    runs included; one without ranges gets a single trial. "random" draws settings, "bayes" goes by
    what earlier trials say (optuna). Trials are ranked by ``metric``, the first of the task by
    default. The seed draws settings, and is that of every model; ``n_jobs`` are its threads.

    ``fixed`` settings are not searched for; ``ranges`` stand beside or in place of those in
    ``ranges.toml``. Those of one model among several are named with it, such as "dmf.rank". Trials
    that the file at ``path`` has are not run again. What it holds at the end is returned.

    Examples
    --------
    >>> from noisewise.data.synthetic import make_ratings
    >>> from noisewise.evaluation.ratings import rating_task
    >>> task = rating_task(make_ratings(n_users=40, n_items=20, seed=0).observations)
    >>> result = tune(task, ["dmf"], budget=Budget(trials=2), fixed={"rank": 2}, n_jobs=1)
    >>> result["best"]["model"]
    'dmf'
    """
    whole(0).require("seed", seed)
    metric = metric or task.metrics[0]
    for name, value, known in (("method", method, METHODS), ("metric", metric, task.metrics)):
        if value not in known:
            raise SettingError(f"{name} must be one of {', '.join(known)}; got {value!r}.")
    searches = _searches(task, models, budget, fixed or {}, ranges or {}, seed)
    tuned = Tuned({"task": task.about, "method": method, "seed": seed, "metric": metric}, path)
    done = {search.model: tuned.begin(search, method, seed) for search in searches}
    bar = progress(
        total=None if budget.trials is None else sum(s.budget.trials or 0 for s in searches),
        initial=sum(map(len, done.values())),
        desc="tune", unit="trial", dynamic_ncols=True,
    )  # fmt: skip
    with bar:
        while searches := [s for s in searches if not s.budget.is_spent(done[s.model])]:
            for search in searches:  # in turns, until every budget is spent
                bar.set_postfix_str(f"{search.model} now; {_shown(tuned.best, metric)}")
                settings = search.next(method, seed, metric, done[search.model])
                trial = trials.run_trial(task, search.model, settings, seed, n_jobs)
                tuned.keep(search.model, trial)
                bar.update()
        bar.set_postfix_str(_shown(tuned.best, metric))
    return tuned.content


def _searches(
    task: Task,
    models: Sequence[str],
    budget: Budget,
    fixed: Mapping[str, Any],
    ranges: Mapping[str, Range],
    seed: int,
) -> list[Search]:
    """Say for every model where to look; raise for a setting that it does not have."""
    if not models or len(set(models)) < len(models):
        raise SettingError(f"Name one model or several, none of them twice; got {list(models)}.")
    for name in (*fixed, *ranges):
        of_model, dot, _ = name.rpartition(".")
        if dot and of_model not in models:
            raise SettingError(f"{name} is about {of_model!r}, which is not among {list(models)}.")
    searches = []
    for model in models:
        own, given = _of(model, fixed), _of(model, ranges)
        if both := sorted(own.keys() & given.keys()):
            raise SettingError(f"{both[0]} is both fixed and a range; give it once.")
        known = {**trials.as_space(registry.ranges(task.kind, model)), **given}
        space = {name: one for name, one in known.items() if name not in own}
        search = Search(model, own, space, budget if space else Budget(trials=1))
        task.build(model, search.drawn(seed, 0), seed, 1)
        searches.append(search)
    return searches


def _of(model: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is meant for a model: named without any, or with this one, which counts more."""
    parts = [(*name.rpartition("."), value) for name, value in named.items()]
    return {name: value for owner in ("", model) for of, _, name, value in parts if of == owner}


def _best(models: Mapping[str, Any], metric: str) -> tuple[str, Trial] | None:
    """Return the model and the trial of the lowest error; None if no trial came to an end."""
    every = [(model, trial) for model, entry in models.items() for trial in entry["trials"]]
    ended = [one for one in every if error(one[1], metric) < math.inf]
    return min(ended, key=lambda one: error(one[1], metric), default=None)


def _shown(best: Result | None, metric: str) -> str:
    return "no best yet" if best is None else f"best {metric} {best[metric]:.4f} ({best['model']})"


def _is_trial(trial: Any, metric: str) -> bool:
    return (
        isinstance(trial, dict)
        and isinstance(trial.get("settings"), dict)
        and records.is_number(trial.get("seconds"))
        and records.is_score(trial.get(metric))
    )
