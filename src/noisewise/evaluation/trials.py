"""Trials: where settings are searched, what to try next, and one trial on validation data.

A range is ``{low = 0.001, high = 0.1, log = true}``, ``{low = 1, high = 6, int = true}`` or
``{choices = [8, 16]}`` in ``ranges.toml``; in words ``l2=0.001:0.1:log``, ``n=1:6``, ``rank=8,16``.
A trial trains on one part of a split and is judged by another; the test part is never looked at.
"""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from noisewise import registry
from noisewise.data import Observations
from noisewise.data.features import Tables
from noisewise.errors import DivergedError, MissingExtraError, SettingError
from noisewise.evaluation.records import data_of
from noisewise.models.featured import features_for
from noisewise.models.iterative import Iterative

ROUNDING = 1e-9  # relative: far above what machines differ by, far below what matters

Settings = dict[str, Any]
Trial = dict[str, Any]


@dataclass(frozen=True)
class Numbers:
    """Numbers from ``low`` to ``high``: evenly, or evenly on a log scale; all, or whole ones.

    Examples
    --------
    >>> 0.01 <= Numbers(0.01, 0.3, log=True).draw(np.random.default_rng(0)) <= 0.3
    True
    """

    low: float
    high: float
    log: bool = False
    int: bool = False

    def __post_init__(self) -> None:
        ends = (self.low, self.high)
        if not all(isinstance(end, int | float) and math.isfinite(end) for end in ends):
            raise SettingError(f"A range has two finite numbers as its ends; got {ends}.")
        if not self.low < self.high or (self.log and self.low <= 0):
            least = "above 0, and " if self.log else ""
            raise SettingError(f"The ends of a range must be {least}in order; got {ends}.")
        if self.int and any(end != int(end) for end in ends):
            raise SettingError(f"A range of whole numbers has whole ends; got {ends}.")

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a number."""
        if self.int and not self.log:
            return int(rng.integers(int(self.low), int(self.high), endpoint=True))
        if not self.log:
            return float(rng.uniform(self.low, self.high))
        beyond = self.high + 1 if self.int else self.high
        drawn = math.exp(rng.uniform(math.log(self.low), math.log(beyond)))
        return min(int(drawn), int(self.high)) if self.int else drawn


@dataclass(frozen=True)
class Choices:
    """A few values, each as likely as the others.

    Examples
    --------
    >>> Choices((32, 64)).draw(np.random.default_rng(0)) in (32, 64)
    True
    """

    choices: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.choices:
            raise SettingError("A range of choices needs one at least; got none.")

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw one of them."""
        return self.choices[int(rng.integers(len(self.choices)))]


Range = Numbers | Choices
Space = dict[str, Range]


def draw(space: Space, seed: int, number: int) -> Settings:
    """Draw the settings of a trial, which depend on nothing but seed and number of the trial."""
    rng = np.random.default_rng([seed, number])
    return {name: one.draw(rng) for name, one in space.items()}


def same_settings(one: Any, other: Any) -> bool:
    """Return whether settings are the same, but for last digits that another machine may round."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_settings(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_settings, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUNDING)
    return bool(one == other)


def as_space(entries: Mapping[str, Any]) -> Space:
    """Read ranges as TOML has them."""
    space: Space = {}
    for name, entry in entries.items():
        kind = Choices if isinstance(entry, dict) and "choices" in entry else Numbers
        known = {field.name for field in fields(kind)}
        if not isinstance(entry, dict) or not set(entry) <= known:
            raise SettingError(
                f"The range of {name} must be {{low, high, log, int}} or {{choices}}; got {entry}."
            )
        try:
            space[name] = kind(**{key: as_tuples(value) for key, value in entry.items()})
        except TypeError as error:
            raise SettingError(f"The range of {name} is not whole: {error}.") from None
    return space


def as_tuples(value: Any) -> Any:
    """Return what JSON holds with tuples for lists, as models take it."""
    return tuple(map(as_tuples, value)) if isinstance(value, list | tuple) else value


def parse_range(word: str) -> tuple[str, Range]:
    """Read a range from words, such as ``rank=8,16,32``, and the name of its setting."""
    name, equals, text = word.partition("=")
    if not (name.strip() and equals and text):
        raise SettingError(
            f"--range takes NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=A,B,C; got {word!r}."
        )
    ends = text.split(":")
    if len(ends) == 1:
        return name.strip(), Choices(tuple(map(_value_of, text.split(","))))
    low, high = _value_of(ends[0]), _value_of(ends[1])
    numbers = all(isinstance(end, int | float) for end in (low, high))
    if not numbers or len(ends) > 3 or ends[2:] not in ([], ["log"]):
        raise SettingError(f"A range of numbers is LOW:HIGH or LOW:HIGH:log; got {text!r}.")
    whole = isinstance(low, int) and isinstance(high, int)
    return name.strip(), Numbers(low, high, log=len(ends) == 3, int=whole)


def suggest(space: Space, seed: int, done: Sequence[tuple[Settings, float]]) -> Settings:
    """Suggest settings by a tree-structured Parzen estimator of optuna; the first ten are random.

    The sampler is made anew and told of all trials before and their errors (inf where training
    diverged): what it suggests depends on these and the seed alone, also after a search was killed.
    """
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("Bayesian search", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would report every study
    distributions = {name: _distribution(optuna, one) for name, one in space.items()}
    state = np.random.SeedSequence([seed, len(done)]).generate_state(1)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=int(state[0])))
    choices = {name: one.choices for name, one in space.items() if isinstance(one, Choices)}
    for settings, error in done:
        params = {name: settings[name] for name in space}
        params |= {name: values.index(settings[name]) for name, values in choices.items()}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=distributions, value=error)
        )
    asked: Settings = study.ask(distributions).params
    return asked | {name: values[asked[name]] for name, values in choices.items()}


@dataclass(frozen=True, eq=False)
class Task:
    """What settings are judged on."""

    kind: registry.Kind  # of models that it is for
    train: Observations
    validation: Observations
    about: dict[str, Any]  # data and split, as a file of tuning has them
    metrics: tuple[str, ...]  # what trials can be ranked by, the usual one first; lower is better
    score: Callable[[Any, Observations], dict[str, float]]  # errors of a model on a part
    settings: Settings = field(default_factory=dict)  # of every model, where a trial has no others
    shared: dict[str, Any] = field(default_factory=dict)  # what models get that have such settings
    features: Tables | None = None  # what is known of ids, which every model must be able to take

    def build(self, name: str, settings: Settings, seed: int, n_jobs: int) -> Any:
        """Make a model for a trial."""
        own = {**self.settings, **settings}
        shared = {**self.shared, "random_state": seed, "n_jobs": n_jobs}
        return registry.build(self.kind, name, own, **shared)


def about_task(
    kind: str, seen: Observations, protocol: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Return data and split of a task, as a file of tuning has them."""
    crc = 0
    for column in (*seen.codes, seen.values):
        crc = zlib.crc32(np.ascontiguousarray(column).data, crc)
    data = {**data_of(seen), "checksum": f"{crc:08x}"}
    return {"kind": kind, "data": data, "protocol": protocol, "split": seed}


def run_trial(task: Task, model: str, settings: Settings, seed: int, n_jobs: int = -1) -> Trial:
    """Train with settings, and report what validation says, or under "diverged" what went wrong."""
    fitted: Any = task.build(model, settings, seed, n_jobs)
    started = time.perf_counter()
    scores: dict[str, Any]
    beside = features_for(fitted, task.features)
    try:
        if watches_validation(fitted):  # all else is not shown the validation part
            fitted.set_params(refit=False).fit(task.train, validation=task.validation)
        else:
            fitted.fit(task.train, **beside)
        measured = task.score(fitted, task.validation)
        scores = {name: measured[name] for name in task.metrics}
        if hasattr(fitted, "n_epochs_"):
            scores["epochs"] = int(fitted.n_epochs_)
    except DivergedError as error:
        scores = {"diverged": str(error)}
    return {"settings": settings, **scores, "seconds": time.perf_counter() - started}


def watches_validation(model: Any) -> bool:
    """Tell whether a model chooses the number of its epochs on validation data."""
    return isinstance(model, Iterative) and model.patience is not None


def _value_of(text: str) -> Any:
    """Read a number, true, false, null, or a word."""
    try:
        return as_tuples(json.loads(text))
    except ValueError:
        return text.strip()


def _distribution(optuna: Any, one: Range) -> Any:
    kinds = optuna.distributions
    if isinstance(one, Choices):  # by number, as choices may be of any type
        return kinds.CategoricalDistribution(list(range(len(one.choices))))
    if one.int:
        return kinds.IntDistribution(int(one.low), int(one.high), log=one.log)
    return kinds.FloatDistribution(one.low, one.high, log=one.log)
