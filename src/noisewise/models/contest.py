"""A contest of models: who predicts best what was hidden; and whether a few do better together.

Errors are in units of the series that they are of. What nobody can predict, a broken reading, does
not count: the hundredth of the cells that the best prediction of each is farthest from.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri

from noisewise.data import Ids, Observations
from noisewise.engine.arrays import Array, Ints
from noisewise.engine.training import in_threads, one_blas_thread
from noisewise.errors import DataError, DivergedError, training_bar, unsaid
from noisewise.models.holes import Like, Readings, Trial, likeness, outages, trials
from noisewise.models.lengths import as_in_the_end, is_dear, shortened, uncalibrated
from noisewise.models.mixing import Mix, mixed, usual_stds
from noisewise.models.staying import (
    AFTER_A_HEAT,
    AFTER_A_TRIAL,
    as_if_later,
    hopeful,
    without_twins,
)
from noisewise.models.weighing import Hidden, by_holes, series_scale, usual_errors

THREE, TWO = 300_000, 2_000_000  # readings that so many samplers may learn from, at most
TRIALS, MOST_TRIALS = 3, 8  # parts of the readings that are hidden, one after another
ENOUGH = 300  # hidden cells
# A table of more than HEATS times the cells of a heat has one: a trial in a small window, which
# tells who of the dear takes part in the others, and nothing else.
HEAT, HEATS = 40_000, 2.0
AFTER_HEAT, MANY = 2, 200  # trials after it; outages of a table of which a trial fewer tells enough
VARIED = 100  # outages that were hidden, of which models of a mix know some better than others
TRIM = 0.01  # share of the cells that do not count
FARTHEST = 30.0  # units that an error counts at most
LEAST = 1e-9  # of an error, in units of the std of a series
NEAR, MOST_NEAR = 1.5, 8  # errors over the best's of those that may be mixed, and how many
GAIN = 0.99  # of the error of the best scale that another may have at most
QUANTILES = np.linspace(0.05, 0.95, 10)  # of predictions, that tell a scale

Restore = Callable[[Observations, Any, Any], Any]  # cells, mean and std -> mean in own units


class Scaling(NamedTuple):
    """A scale that models may compute in."""

    name: str | None
    values: Any  # of the observations on this scale
    restore: Restore


def unscaled(seen: Observations) -> Scaling:
    """Return the scale of values as they are."""
    return Scaling(None, seen.values, lambda cells, mean, std: mean)


class Answers(NamedTuple):
    """What a model said of hidden cells."""

    mean: Array
    std: Array
    own: Array  # the mean in units of the table


@dataclass(frozen=True, eq=False)
class Contest:
    """What models said of hidden cells, trial by trial; and how well."""

    cells: Observations  # that were hidden, of all trials
    trial: Ints  # of every cell
    truth: Array  # in units of the table
    unit: Array  # of the series of each, in the same
    hidden: Hidden
    weight: Array  # how much the error of each counts; 1 on average
    answers: dict[str, Answers]  # of those that took part in all trials
    errors: dict[str, float]  # of everybody, also of those that left after the first trial
    seconds: dict[str, float]

    def said(self, mix: Mix, part: Literal["mean", "std", "own"]) -> Array:
        """Return what some models said together of hidden cells."""
        answers = [self.answers[name] for name in mix.names]
        return mix.of([getattr(one, part) for one in answers], [one.std for one in answers])

    def usual_stds(self, mix: Mix) -> tuple[float, ...] | None:
        """Return the std that each model usually has, over the mean of all; None if none counts."""
        stds = [self.answers[name].std for name in mix.names]
        return usual_stds(stds) if mix.by_std else None

    def squared(self, mix: Mix) -> Array:
        """Return weighted squared errors of some models together, of the cells that count."""
        count = self._counted
        squared = _squared(self.said(mix, "own"), self.truth, self.unit)[count]
        return np.asarray(squared * self.weight[count] / self.weight[count].mean())

    @property
    def _counted(self) -> Any:
        return counted([_squared(a.own, self.truth, self.unit) for a in self.answers.values()])

    def best(self, dear: Collection[str], n: int) -> tuple[Mix, float]:
        """Return the best model, or a mix of a few that errs less than each; and the error.

        Of those that are dear, as many as may learn from n readings.
        """
        errors = {name: self.error(Mix.only(name)) for name in self.answers}
        order = sorted(errors, key=errors.__getitem__)
        out = [name for name in order if name in dear][1 + (n <= TWO) + (n <= THREE) :]
        limit = NEAR * errors[order[0]]
        near = [name for name in order if errors[name] <= limit and name not in out][:MOST_NEAR]
        return self.together(near)

    def together(self, near: Sequence[str]) -> tuple[Mix, float]:
        """Return the mix of some models, or the best of them alone; and the error.

        Where many outages were hidden, a model of the mix may count more where it is surer.
        """
        near = sorted(near, key=lambda name: self.error(Mix.only(name)))
        count = self._counted
        away = np.array([(self.answers[name].own - self.truth) / self.unit for name in near])
        away = np.clip(away[:, count], -FARTHEST, FARTHEST)
        mix = mixed(near, away, self.weight[count], self.hidden.outage[count])
        is_varied = len(np.unique(self.hidden.outage)) >= VARIED
        mixes = [mix._replace(by_std=True)] if is_varied and len(mix.names) > 1 else []
        options = [*mixes, mix, Mix.only(near[0])]
        return min(((one, self.error(one)) for one in options), key=lambda pair: pair[1])

    def error(self, mix: Mix) -> float:
        """Return the root of the mean squared error, in units of the std of a series."""
        return math.sqrt(float(self.squared(mix).mean()))


def _squared(own: Array, truth: Array, unit: Array) -> Array:
    return np.asarray(np.minimum(np.abs(own - truth) / unit, FARTHEST) ** 2)


def counted(squared: Sequence[Array]) -> Any:
    """Tell which cells count: all but those that even the best is farthest from."""
    least = np.min(squared, axis=0)
    return least <= np.quantile(least, 1.0 - TRIM, method="higher")


def draw_trials(drawn: Iterator[Trial], least: int = TRIALS) -> list[Trial]:
    """Take trials, as many as it takes to hide enough cells."""
    taken: list[Trial] = []
    for _ in range(MOST_TRIALS):
        trial = next(drawn)
        if len(trial.hidden) and len(trial.train) > 1:
            taken.append(trial)
        if len(taken) >= least and sum(len(one.hidden) for one in taken) >= ENOUGH:
            break
    return taken


def draw_heat(
    readings: Readings, like: Like, rng: np.random.Generator
) -> tuple[Trial | None, list[Trial]]:
    """Take the heat of a large table, and the trials."""
    drawn, fewer = trials(readings, like, rng), int(readings.n_outages >= MANY)
    if readings.size <= HEAT:
        return None, draw_trials(drawn)
    if readings.size <= HEATS * HEAT:
        return None, draw_trials(drawn, TRIALS - fewer)
    heat = draw_trials(trials(readings.within(HEAT), like, rng), 1)
    return (heat[0] if heat else None), draw_trials(drawn, AFTER_HEAT - fewer)


def compact(seen: Observations) -> Observations:
    """Return observations without the ids that none of them has."""
    coded = []
    for own, codes in zip(seen.ids, seen.codes, strict=True):
        present, code = np.unique(codes, return_inverse=True)
        coded.append((Ids(own.labels[present], own.name), code.astype(np.int32)))
    return Observations(tuple(c for _, c in coded), seen.values, tuple(i for i, _ in coded))


@dataclass(frozen=True, eq=False)
class Arena:
    """Where models compete: readings, what is hidden of them in each trial, and who takes part."""

    seen: Observations
    readings: Readings
    trials: list[Trial]
    candidates: dict[str, Any]  # unfitted models
    like: Like  # what is hidden is like: cells count by that, if it is the table
    threads: int = 1
    verbose: bool | None = False
    heat: Trial | None = None  # in a small window, before the trials

    @property
    def dear(self) -> list[str]:
        """Names of candidates that cost seconds."""
        return [name for name, model in self.candidates.items() if is_dear(model)]

    @property
    def n_hidden(self) -> int:
        """Cells that are hidden, in all trials."""
        return sum(len(trial.hidden) for trial in self.trials)

    @property
    def ratio(self) -> float:
        """Readings over those that a trial has."""
        sizes = [len(trial.train) + len(trial.hidden) for trial in self.trials]
        return len(self.seen) / float(np.mean(sizes)) if sizes else 1.0

    def hold(self, scaling: Scaling, names: Sequence[str] | None = None) -> Contest:
        """Let models predict what is hidden, trial by trial; the hopeless stop after the first.

        Models that have a name here were chosen before: they need no heat, and all stay.
        """
        seen = Observations(self.seen.codes, scaling.values, self.seen.ids)
        own, restore = self.readings.seen, scaling.restore
        unit = series_scale(restore(seen, seen.values, None), own.which, self.readings.n_series)
        staying = [*self.candidates] if names is None else [*names]
        said: dict[str, list[Answers]] = {name: [] for name in staying}
        seconds, errors = dict.fromkeys(staying, 0.0), dict.fromkeys(staying, np.inf)
        heats = [self.heat] if names is None and self.heat is not None else []
        cells = self._hidden(heats or self.trials)
        truths, units, told = [], [], []
        turns = [*heats, *self.trials]
        for turn, trial in enumerate(turns):
            train, asked = compact(seen.take(trial.train)), compact(seen.take(trial.hidden))
            truths.append(np.asarray(restore(asked, asked.values, None), dtype=np.float64))
            units.append(unit[own.which[trial.hidden]])
            label = f"trial {turn + 1} of {len(turns)}"
            models = {name: shortened(self.candidates[name], len(train)) for name in staying}
            for name, (found, taken) in self._asked(models, train, asked, restore, label).items():
                seconds[name] += taken
                if found is None:
                    staying.remove(name)
                else:
                    said[name].append(found)
            truth, units_of = np.concatenate(truths), np.concatenate(units)
            so_far = cells.some(slice(len(truth)))
            weight, now = self._judged(said, staying, truth, units_of, so_far)
            told.append(now)
            errors |= now
            if names is None and turn == 0:
                staying = without_twins({name: said[name][0].mean for name in staying}, staying)
                limits = AFTER_A_HEAT if heats else AFTER_A_TRIAL
                staying = hopeful(errors, staying, self.dear, len(trial.hidden), limits)
            if turn < len(heats):  # which only tells who takes part
                said, truths, units = {name: [] for name in staying}, [], []
                cells = self._hidden(self.trials)
        errors |= as_if_later(told, staying, (LEAST, FARTHEST))
        there = seen.take(np.concatenate([trial.hidden for trial in self.trials]))
        number = np.repeat(np.arange(len(self.trials)), [len(t.hidden) for t in self.trials])
        answers = {
            name: Answers(*(np.concatenate(part) for part in zip(*said[name], strict=True)))
            for name in staying
        }
        judged = so_far, weight, answers, errors, seconds
        return Contest(there, number, truth, units_of, *judged)

    def _asked(
        self, models: dict[str, Any], train: Observations, asked: Observations, restore: Restore,
        label: str,
    ) -> dict[str, tuple[Answers | None, float]]:  # fmt: skip
        """Return what models say of a trial, and in how many seconds; each in a thread."""
        order = sorted(models, key=lambda name: name not in self.dear)  # the longest first
        bar = training_bar(label, unit="model", verbose=self.verbose)(total=len(order))

        found: dict[str, tuple[Answers | None, float]] = {}

        def ask(name: str) -> None:
            started = clock.perf_counter()
            answers = _answers(models[name], train, asked, restore)
            found[name] = answers, clock.perf_counter() - started
            bar.update()

        with one_blas_thread(), bar:
            in_threads(ask, order, self.threads)
        return found

    def _hidden(self, trials: list[Trial]) -> Hidden:
        """Return what trials hide."""
        rows = np.concatenate([trial.hidden for trial in trials])
        alike = np.ones(len(rows))
        if self.like == "table":
            alike = np.concatenate(likeness(self.readings, trials))
        return Hidden(self.readings.seen.which[rows], outages(self.readings, trials), alike)

    def weighed(self, cells: Hidden, usual: Array) -> Array:
        """Return how much hidden cells count, by what errors usually are in series."""
        if self.like != "table":
            return cells.alike
        n = self.readings.n_series
        return by_holes(cells, np.bincount(self.readings.holes.which, minlength=n), usual)

    def _judged(
        self, said: dict[str, list[Answers]], names: list[str], truth: Array, unit: Array,
        cells: Hidden,
    ) -> tuple[Array, dict[str, float]]:  # fmt: skip
        """Return how much cells count, and the errors of models."""
        if not names:
            return cells.alike, {}
        own = [np.concatenate([answers.own for answers in said[name]]) for name in names]
        squared = [_squared(one, truth, unit) for one in own]
        count = counted(squared)
        those = np.array(squared)[:, count]
        usual = usual_errors(those, cells.some(count), self.readings.n_series)
        weight = self.weighed(cells, usual)
        errors = np.sqrt(np.average(those, axis=1, weights=weight[count]))
        return weight, dict(zip(names, errors.tolist(), strict=True))

    def judged_whole(self, scaling: Scaling, models: dict[str, Any], found: Contest) -> Contest:
        """Let models learn from all but what was hidden: some gain far more by it than others."""
        rest = np.ones(len(self.seen), dtype=bool)
        rest[np.concatenate([trial.hidden for trial in self.trials])] = False
        seen = Observations(self.seen.codes, scaling.values, self.seen.ids).take(rest)
        long = {name: as_in_the_end(one, len(seen), len(models)) for name, one in models.items()}
        parts = compact(seen), compact(found.cells)
        said = self._asked(long, *parts, scaling.restore, "the whole table")
        answers = {name: one for name, (one, _) in said.items() if one is not None}
        return replace(found, answers=answers) if len(answers) == len(models) else found

    def best_scale(
        self, scales: Sequence[Scaling], mix: Mix, first: Contest | None = None
    ) -> tuple[Scaling, Contest, dict[str, float]]:
        """Return the scale on which models predict best, what they said, and errors on others.

        Both count: the error of the mean, and that of quantiles. ``first`` is what was said on the
        first scale, if models were asked.
        """
        found = first or self.hold(scales[0], mix.names)
        best, said = scales[0], found
        errors: dict[str, float] = {}
        least = _loss(found, mix, scales[0].restore)
        for scaling in scales[1:]:
            found = replace(self.hold(scaling, mix.names), weight=said.weight)
            errors |= {
                f"{name}, {scaling.name}": found.error(Mix.only(name)) for name in found.answers
            }
            loss = _loss(found, mix, scaling.restore)
            if loss < GAIN * least:
                best, said, least = scaling, found, loss
        return best, said, errors


def _answers(
    model: Any, train: Observations, asked: Observations, restore: Restore
) -> Answers | None:
    """Fit a model and ask it; None if it cannot learn from so little."""
    try:
        with unsaid(""):  # what a model has to say of a part of the data is of no concern
            uncalibrated(model.fit(train))
            mean, std = model.predict(asked, return_std=True)
    except (DataError, DivergedError):
        return None
    own = restore(asked, mean, std)
    parts = (np.asarray(part, dtype=np.float64) for part in (mean, std, own))
    return Answers(*parts)


def _loss(found: Contest, mix: Mix, restore: Restore) -> float:
    """Return the loss of the mean and of quantiles together; infinite if a model gave up."""
    if any(name not in found.answers for name in mix.names):
        return math.inf
    return math.sqrt(found.error(mix) * _quantile_loss(found, mix, restore))


def _quantile_loss(found: Contest, mix: Mix, restore: Restore) -> float:
    """Return the mean loss of quantiles (pinball) of a model, once its std is calibrated."""
    mean, std = found.said(mix, "mean"), found.said(mix, "std")
    score = np.abs(found.cells.values - mean) / np.maximum(std, 1e-300)
    std = std * float(np.quantile(score, 0.9)) / float(ndtri(0.95))
    total = np.zeros(len(found.truth))
    for share in QUANTILES:
        quantile = restore(found.cells, mean + float(ndtri(share)) * std, None)
        below = (found.truth - quantile) / found.unit
        total += np.minimum(np.maximum(share * below, (share - 1.0) * below), FARTHEST)
    return float(np.average(total, weights=found.weight)) + np.finfo(float).tiny
