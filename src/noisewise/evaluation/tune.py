"""Tuning: many trials of one model or of several, on validation data alone, kept in one file.

Models take turns, and each gets the same budget, in trials or in minutes. The file is written after
every trial, beside its name and then renamed; a search that was stopped or killed goes on from it.
Settings of a trial depend on the seed and the number of the trial (random search), or on these and
all trials before (Bayesian search): the search that goes on is the one that was begun.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisewise.errors import SettingError
from noisewise.evaluation.comparison import Result
from noisewise.evaluation.ranges import (
    Range,
    Settings,
    Space,
    as_plain,
    draw,
    same_settings,
    space_of,
)
from noisewise.evaluation.suggest import suggest
from noisewise.evaluation.trials import Task, Trial, run_trial
from noisewise.evaluation.tuned import Tuned, error
from noisewise.progress import progress

METHODS = ("random", "bayes")


@dataclass(frozen=True)
class Budget:
    """What every model gets: so many trials, or so many minutes of them."""

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
        seconds: float = sum(trial["seconds"] for trial in done)
        return seconds >= 60 * (self.minutes or 0.0)


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
        return {**self.fixed, **draw(self.space, seed, number)}

    def suggested(self, seed: int, metric: str, done: Sequence[Trial]) -> Settings:
        """Return what Bayesian search tries next."""
        told = [(trial["settings"], error(trial, metric)) for trial in done]
        return {**self.fixed, **suggest(self.space, seed, told)}


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

    Parameters
    ----------
    task : Task
        What settings are judged on.
    models : sequence of str
        Which models, by their names on the command line. One without ranges gets a single trial.
    budget : Budget
        What each model gets, trials of earlier runs included.
    method : {"random", "bayes"}
        Settings drawn at random, or by what earlier trials say (optuna).
    metric : str, optional
        What to rank trials by, one of the task's; the first of them by default.
    seed : int
        Draws settings, and is the seed of every model.
    fixed : dict, optional
        Settings that are not searched for. Those of one model among several are named with it, such
        as "dmf.rank".
    ranges : dict of ranges, optional
        Ranges beside or in place of those in ``ranges.toml``, named in the same way.
    path : path, optional
        The file; trials that it holds are not run again.
    n_jobs : int
        Threads of every model; -1 uses all cores.

    Returns
    -------
    dict
        JSON-ready, as the file has it: task, method, seed, metric, the best model with its
        settings, and for every model its ranges, its best trial and all its trials.
    """
    metric = task.metrics[0] if metric is None else metric
    for name, value, known in (("method", method, METHODS), ("metric", metric, task.metrics)):
        if value not in known:
            raise SettingError(f"{name} must be one of {', '.join(known)}; got {value!r}.")
    searches = _searches(task, models, budget, fixed or {}, ranges or {}, seed)
    head = {"task": task.about, "method": method, "seed": seed, "metric": metric}
    tuned = Tuned(head, path)
    for search in searches:
        done = tuned.begin(search.model, search.fixed, as_plain(search.space))
        for k, trial in enumerate(done if method == "random" else []):
            if not same_settings(trial["settings"], search.drawn(seed, k)):
                raise tuned.foreign(f"draw of settings in trial {k} of {search.model}")
    bar = progress(
        total=None if budget.trials is None else sum(s.budget.trials or 0 for s in searches),
        initial=sum(len(tuned.trials[search.model]) for search in searches),
        desc="tune", unit="trial", dynamic_ncols=True,
    )  # fmt: skip
    with bar:
        for search in _turns(searches, tuned):
            bar.set_postfix_str(f"{search.model} now; {_shown(tuned.best, metric)}")
            done = tuned.trials[search.model]
            if method == "random":
                settings = search.drawn(seed, len(done))
            else:
                settings = search.suggested(seed, metric, done)
            tuned.keep(search.model, run_trial(task, search.model, settings, seed, n_jobs))
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
        known = {**space_of(task.kind, model), **given}
        space = {name: one for name, one in known.items() if name not in own}
        search = Search(model, own, space, budget if space else Budget(trials=1))
        task.build(model, search.drawn(seed, 0), seed, 1)
        searches.append(search)
    return searches


def _of(model: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is meant for a model: named without any, or with this one, which counts more."""
    parts = [(*name.rpartition("."), value) for name, value in named.items()]
    return {name: value for owner in ("", model) for of, _, name, value in parts if of == owner}


def _turns(searches: Sequence[Search], tuned: Tuned) -> Iterator[Search]:
    """Yield models in turns, until every budget is spent."""
    going = list(searches)
    while going := [s for s in going if not s.budget.is_spent(tuned.trials[s.model])]:
        yield from going


def _shown(best: Result | None, metric: str) -> str:
    return "no best yet" if best is None else f"best {metric} {best[metric]:.4f} ({best['model']})"
