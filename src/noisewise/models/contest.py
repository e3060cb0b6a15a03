"""A contest of models: who predicts best what was hidden; and whether a few do better together.

Errors are in units of the series that they are of. What nobody can predict, a broken reading, does
not count: the hundredth of the cells that the best prediction of each is farthest from.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from noisewise.data import Ids, Observations
from noisewise.engine.arrays import Array, Ints
from noisewise.engine.training import in_threads, one_blas_thread
from noisewise.errors import DataError, DivergedError, training_bar, unsaid
from noisewise.models.base import clone_with
from noisewise.models.holes import Like, Readings, Trial, likeness
from noisewise.models.sensors import SeriesModel
from noisewise.models.temporal import TemporalFactorizer

SWEEPS = 60, 240  # that a sampler is judged by, at least and at most
WORK = 2_000_000  # readings times sweeps of a sampler that is judged
FEW_READINGS, MANY_READINGS = 15_000_000, 80_000_000  # times sweeps of the last fit
SHORTEST, LONGEST = 80, 600  # sweeps of the last fit
CHAINS, MOST_OF_CHAINS = 2, 2_000_000  # of a sampler that is taken alone; readings at most
ALL_TOGETHER = 1.5  # times the sweeps of one that all have together
WIDER, WIDEST = 4.0, 16  # times the factors that it was judged with, and factors, at most
MUCH, SERIES = 2.0, 3  # times the readings, and series for every factor, at least
THREE, TWO = 300_000, 2_000_000  # readings that so many samplers may learn from, at most
TRIALS, MOST_TRIALS = 3, 8  # parts of the readings that are hidden, one after another
ENOUGH = 300  # hidden cells
HOPELESS = 1.3  # times the error of the best, after the first trial
FEW = 30  # hidden cells that tell nobody to be hopeless
DEAR = 3  # models that cost seconds and go on after the first trial
TRIM = 0.01  # share of the cells that do not count
FARTHEST = 30.0  # units that an error counts at most
LEAST = 1e-9  # of an error, in units of the std of a series
TAIL = 0.025  # share of readings at either end that do not count for the unit of a series
TOGETHER, NEAR = 3, 1.1  # models that may be taken together, and their errors over the best's
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
    weight: Array  # how much each counts; 1 on average
    answers: dict[str, Answers]  # of those that took part in all trials
    errors: dict[str, float]  # of everybody, also of those that left after the first trial
    seconds: dict[str, float]

    def squared(self, *names: str) -> Array:
        """Return weighted squared errors of the mean of some models, of the cells that count."""
        own = np.mean([self.answers[name].own for name in names], axis=0)
        count = self._counted
        squared = _squared(own, self.truth, self.unit)[count]
        return np.asarray(squared * self.weight[count] / self.weight[count].mean())

    @property
    def _counted(self) -> Any:
        return counted([_squared(a.own, self.truth, self.unit) for a in self.answers.values()])

    def together(self, dear: Collection[str], n: int) -> tuple[tuple[str, ...], float]:
        """Return the best model, or the best few whose mean is better than each; and the error.

        Of those that are dear, as many as may learn from n readings.
        """
        errors = {name: self._error(name) for name in self.answers}
        order = sorted(errors, key=errors.__getitem__)
        out = [name for name in order if name in dear][1 + (n <= TWO) + (n <= THREE) :]
        limit = NEAR * errors[order[0]]
        near = [name for name in order if errors[name] <= limit and name not in out]
        found = {tuple(near[:k]): self._error(*near[:k]) for k in range(1, TOGETHER + 1)}
        best = min(found, key=found.__getitem__)
        return best, found[best]

    def _error(self, *names: str) -> float:
        return math.sqrt(float(self.squared(*names).mean()))


def _squared(own: Array, truth: Array, unit: Array) -> Array:
    return np.asarray(np.minimum(np.abs(own - truth) / unit, FARTHEST) ** 2)


def counted(squared: Sequence[Array]) -> Any:
    """Tell which cells count: all but those that even the best is farthest from."""
    least = np.min(squared, axis=0)
    return least <= np.quantile(least, 1.0 - TRIM, method="higher")


def series_scale(values: Array, which: Ints, n: int) -> Array:
    """Return the std of every series without its tails; that of all of them for a constant one.

    Examples
    --------
    >>> values = np.array([0.0, 1.0] * 50 + [7.0] * 4)
    >>> series_scale(values, np.repeat([0, 1], [100, 4]), 2).round(2).tolist()
    [0.5, 0.5]
    """
    order = np.argsort(which, kind="stable")
    bounds = np.searchsorted(which[order], np.arange(n + 1))
    scale = np.zeros(n)
    for s in range(n):
        own = values[order[bounds[s] : bounds[s + 1]]].astype(np.float64)
        if len(own) > 1:
            low, high = np.quantile(own, [TAIL, 1.0 - TAIL])
            scale[s] = np.clip(own, low, high).std() or own.std()
    usual = float(np.median(scale[scale > 0])) if (scale > 0).any() else 1.0
    return np.where(scale > 0, scale, usual)


def draw_trials(drawn: Iterator[Trial]) -> list[Trial]:
    """Take trials, as many as it takes to hide enough cells."""
    taken: list[Trial] = []
    for _ in range(MOST_TRIALS):
        trial = next(drawn)
        if len(trial.hidden) and len(trial.train) > 1:
            taken.append(trial)
        if len(taken) >= TRIALS and sum(len(one.hidden) for one in taken) >= ENOUGH:
            break
    return taken


def compact(seen: Observations) -> Observations:
    """Return observations without the ids that none of them has."""
    coded = []
    for own, codes in zip(seen.ids, seen.codes, strict=True):
        present, code = np.unique(codes, return_inverse=True)
        coded.append((Ids(own.labels[present], own.name), code.astype(np.int32)))
    return Observations(tuple(c for _, c in coded), seen.values, tuple(i for i, _ in coded))


def shortened(model: Any, n: int) -> Any:
    """Return an unfitted copy for one thread, to be judged by n readings in no longer than it must.

    Chains that are too short find less in outages than they will: of few readings they are longer.
    """
    if not isinstance(model, TemporalFactorizer):
        return clone_with(model, n_jobs=1)
    sweeps = max(int(np.clip(WORK // n, *SWEEPS)), 3 * model.burn_in)
    return clone_with(model, sweeps=min(model.sweeps, sweeps), n_jobs=1, verbose=False)


def lengthened(model: Any, n: int, together: int) -> Any:
    """Return an unfitted copy to learn from n readings: few take longer to settle, in less time.

    It may be shorter where several are taken together: their mean settles sooner.
    """
    if not isinstance(model, TemporalFactorizer):
        return clone_with(model)
    least, most = min(FEW_READINGS // n, LONGEST), max(MANY_READINGS // n, SHORTEST)
    sweeps = int(min(max(model.sweeps, least), most) * ALL_TOGETHER / max(together, CHAINS))
    return clone_with(model, sweeps=max(sweeps, 3 * model.burn_in))


def widened(model: Any, ratio: float, n_series: int) -> Any:
    """Return an unfitted copy for ``ratio`` times the readings that a model was judged by.

    What more readings of many series tell takes more factors; what is not needed fades away.

    Examples
    --------
    >>> model = TemporalFactorizer(4)
    >>> [widened(model, ratio, 100).rank for ratio in (1.9, 6.0, 20.0, 400.0)]
    [4, 9, 16, 16]
    >>> widened(model, 20.0, 18).rank
    6
    """
    if not isinstance(model, TemporalFactorizer) or ratio < MUCH:
        return clone_with(model)
    wider = int(model.rank * np.clip(math.sqrt(ratio), 1.0, WIDER))
    return clone_with(model, rank=max(model.rank, min(wider, WIDEST, n_series // SERIES)))


def has_chains(model: Any, n: int) -> bool:
    """Tell whether several chains are worth it: each may have found another part of the truth."""
    return isinstance(model, TemporalFactorizer) and n <= MOST_OF_CHAINS


def uncalibrated(model: Any) -> Any:
    """Take from a fitted model what its own few held-out cells said of its std."""
    model.calibration_ = None
    return model


def is_dear(model: Any) -> bool:
    """Tell whether a model costs seconds."""
    return not isinstance(model, SeriesModel)


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
        """Let models predict what is hidden, trial by trial; the hopeless stop after the first."""
        seen = Observations(self.seen.codes, scaling.values, self.seen.ids)
        own, restore = self.readings.seen, scaling.restore
        unit = series_scale(restore(seen, seen.values, None), own.which, self.readings.n_series)
        staying = [*self.candidates] if names is None else [*names]
        said: dict[str, list[Answers]] = {name: [] for name in staying}
        seconds, errors = dict.fromkeys(staying, 0.0), dict.fromkeys(staying, np.inf)
        weights = [np.ones(len(trial.hidden)) for trial in self.trials]
        if self.like == "table":
            weights = likeness(self.readings, self.trials)
        truths, units = [], []
        for turn, trial in enumerate(self.trials):
            train, asked = compact(seen.take(trial.train)), compact(seen.take(trial.hidden))
            truths.append(np.asarray(restore(asked, asked.values, None), dtype=np.float64))
            units.append(unit[own.which[trial.hidden]])
            for name, (found, taken) in self._asked(staying, train, asked, restore, turn).items():
                seconds[name] += taken
                if found is None:
                    staying.remove(name)
                else:
                    said[name].append(found)
            parts = (truths, units, weights[: turn + 1])
            truth, units_of, weight = (np.concatenate(part) for part in parts)
            errors |= _errors(said, staying, truth, units_of, weight)
            if turn == 0:
                everybody, first = staying, dict(errors)
                staying = _hopeful(errors, staying, self.dear, len(trial.hidden))
        if staying:  # of those that left early, as if later trials had been as hard for them
            harder = float(np.mean([errors[name] / max(first[name], LEAST) for name in staying]))
            left = {*everybody} - {*staying}
            errors |= {name: min(harder * first[name], FARTHEST) for name in left}
        cells = seen.take(np.concatenate([trial.hidden for trial in self.trials]))
        number = np.repeat(np.arange(len(self.trials)), [len(t.hidden) for t in self.trials])
        answers = {
            name: Answers(*(np.concatenate(part) for part in zip(*said[name], strict=True)))
            for name in staying
        }
        return Contest(cells, number, truth, units_of, weight, answers, errors, seconds)

    def _asked(
        self, names: Sequence[str], train: Observations, asked: Observations, restore: Restore,
        turn: int,
    ) -> dict[str, tuple[Answers | None, float]]:  # fmt: skip
        """Return what models say of a trial, and in how many seconds; each in a thread."""
        order = sorted(names, key=lambda name: name not in self.dear)  # the longest first
        label = f"trial {turn + 1} of {len(self.trials)}"
        bar = training_bar(label, unit="model", verbose=self.verbose)(total=len(order))

        found: dict[str, tuple[Answers | None, float]] = {}

        def ask(name: str) -> None:
            started = clock.perf_counter()
            model = shortened(self.candidates[name], len(train))
            answers = _answers(model, train, asked, restore)
            found[name] = answers, clock.perf_counter() - started
            bar.update()

        with one_blas_thread(), bar:
            in_threads(ask, order, self.threads)
        return found

    def best_scale(
        self, scales: Sequence[Scaling], names: Sequence[str], first: Contest | None = None
    ) -> tuple[Scaling, Contest, dict[str, float]]:
        """Return the scale on which models predict best, what they said, and errors on others.

        Both count: the error of the mean, and that of quantiles. ``first`` is what was said on the
        first scale, if models were asked.
        """
        found = first or self.hold(scales[0], names)
        best, said = scales[0], found
        errors: dict[str, float] = {}
        least = _loss(found, names, scales[0].restore)
        for scaling in scales[1:]:
            found = self.hold(scaling, names)
            errors |= {f"{name}, {scaling.name}": found.errors[name] for name in names}
            loss = _loss(found, names, scaling.restore)
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


def _errors(
    said: dict[str, list[Answers]], names: list[str], truth: Array, unit: Array, weight: Array
) -> dict[str, float]:
    if not names:
        return {}
    squared = {
        name: _squared(np.concatenate([one.own for one in said[name]]), truth, unit)
        for name in names
    }
    count = counted(list(squared.values()))
    return {
        name: float(np.sqrt(np.average(one[count], weights=weight[count])))
        for name, one in squared.items()
    }


def _hopeful(
    errors: dict[str, float], names: list[str], dear: Collection[str], n: int
) -> list[str]:
    """Return those that are worth another trial: near the best, and of the dear the best few."""
    if n < FEW or not names:
        return names
    limit = HOPELESS * min(errors[name] for name in names)
    out = {*sorted((name for name in names if name in dear), key=errors.__getitem__)[DEAR:]}
    return [name for name in names if name not in out and errors[name] <= limit]


def _loss(found: Contest, names: Sequence[str], restore: Restore) -> float:
    """Return the loss of the mean and of quantiles together; infinite if a model gave up."""
    if any(name not in found.answers for name in names):
        return math.inf
    error = math.sqrt(float(found.squared(*names).mean()))
    return math.sqrt(error * _quantile_loss(found, names, restore))


def _quantile_loss(found: Contest, names: Sequence[str], restore: Restore) -> float:
    """Return the mean loss of quantiles (pinball) of a model, once its std is calibrated."""
    mean = np.mean([found.answers[name].mean for name in names], axis=0)
    std = np.mean([found.answers[name].std for name in names], axis=0)
    score = np.abs(found.cells.values - mean) / np.maximum(std, 1e-300)
    std = std * float(np.quantile(score, 0.9)) / float(ndtri(0.95))
    total = np.zeros(len(found.truth))
    for share in QUANTILES:
        quantile = restore(found.cells, mean + float(ndtri(share)) * std, None)
        below = (found.truth - quantile) / found.unit
        total += np.minimum(np.maximum(share * below, (share - 1.0) * below), FARTHEST)
    return float(np.average(total, weights=found.weight)) + np.finfo(float).tiny
