"""AutoFactorizer: several models of sensors, judged on the data at hand; the best is kept.

Which one is best depends on what is missing: between frequent readings a line is hard to beat, in
an outage only other sensors know anything. So both are tried: single cells and whole stretches.
"""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from noisewise.data import Observations
from noisewise.data.timestamps import Units, checked_stamps, sensor_modes, series_keys
from noisewise.engine.arrays import Array, Ints
from noisewise.engine.data import Series
from noisewise.errors import SettingError, unsaid
from noisewise.models.base import Cells, Factorizer, Seeded, Threads, clone_with, shown
from noisewise.models.learner import FEWEST_HELD_OUT, fixed_seed
from noisewise.models.model_file import Part
from noisewise.models.residual import fast
from noisewise.models.sensors import InTime, Readings
from noisewise.models.series import LinearInterpolator, OUSmoother
from noisewise.models.temporal import TemporalFactorizer
from noisewise.schema import Entry, Found, Schema, real
from noisewise.settings import Rule, learned, number, setting, settings
from noisewise.splits import Calibration
from noisewise.storage import Damaged

CANDIDATES: dict[str, Factorizer] = {
    "linear": LinearInterpolator(),
    "ou": OUSmoother(),
    "fast": fast(),
    "bayes": TemporalFactorizer(),
}
SWEEPS = 60  # that a sampler is judged by; one that settles later is no better than "fast"
TRAIN, CELLS, BLOCKS = range(3)
KINDS = {"cells": CELLS, "blocks": BLOCKS}
STEPS = 10  # of time that a stretch lasts where the data have no gap to go by
LONGEST = 0.1  # share of all time that a stretch lasts at most
TRIM = 0.01  # share of squared errors, the largest, that do not count
LEAST = 1e-9  # of a squared error, in units of a type's variance

log = logging.getLogger("noisewise")


class Gaps(NamedTuple):
    """What is missing between the first and the last reading of every series."""

    single: float  # share of missing cells that are between two readings
    length: float  # of the longer gap that the typical missing cell is in


@settings
class AutoFactorizer(Readings, InTime, Seeded, Threads):
    """Choose among models of sensors by what they predict of readings that were held out.

    Half of the held-out cells are single ones, half are stretches of single series, as long as the
    gap that the typical missing cell is in: ten steps of time if there is none, at most a tenth of
    all time.

    Every candidate is fitted once on the rest, a ``TemporalFactorizer`` for 60 sweeps only. Its
    score is its mean squared error on either kind, over that of the best candidate there, weighted
    as single cells and stretches are among what is missing. Errors are in units of the std of a
    type of sensor, without the largest hundredth. The best is fitted again on everything; std and
    intervals are calibrated on what it was judged by. With too few observations to judge by, the
    first candidate is taken.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = [(place, t, place + np.sin(t / 9)) for place in range(4) for t in range(200)]
    >>> rows = [rows[k] for k in rng.permutation(len(rows))[:400]]
    >>> model = AutoFactorizer(["linear", "ou"], random_state=0).fit(rows)
    >>> sorted(model.scores_), model.choice_ in model.scores_
    (['linear', 'ou'], True)
    """

    candidates: Sequence[str | tuple[str, Factorizer]] | None = setting(
        Rule("a sequence or None", lambda v: v is None or isinstance(v, Sequence)),
        'What to try: names among "linear", "ou", "fast" and "bayes", which are all tried by '
        "default, or pairs (name, model). ``random_state`` and ``n_jobs`` of all of them are those "
        "given here; those named also get ``time`` and ``sensor``.",
        default=None,
        kw_only=False,
    )
    validation_fraction: float = setting(
        number(above=0.0, most=0.5), "Share of the observations to hold out.", default=0.1
    )

    choice_: str = learned("Name of the candidate that was chosen.")
    model_: Factorizer = learned("The chosen candidate, fitted on everything.")
    scores_: dict[str, dict[str, float]] = learned(
        'For every candidate: mean squared error of "cells" and of "blocks", "score", and the '
        '"seconds" that its fit took. Empty if there was too little to judge by.'
    )
    reason_: str = learned(
        "What was chosen and why, in a sentence; also what ``str`` gives, and what the logger "
        '"noisewise" is told.'
    )

    def _learn(
        self, seen: Observations, validation: Observations | None
    ) -> tuple[Observations, Calibration | None]:
        """Try every candidate, and fit the best on everything."""
        seed = fixed_seed(self.random_state)
        candidates = self._candidates(seed)
        gaps, part = self._held_out(seen, seed)
        calibration, scores = None, {}
        choice = next(iter(candidates))
        reason = f"chose {choice!r}, the first: too few observations to judge by."
        if np.bincount(part, minlength=3).min() >= FEWEST_HELD_OUT:
            alike = like_gaps(part, gaps.single, seed)
            judged = {
                name: self._judge(_shortened(model), seen, part, alike)
                for name, model in candidates.items()
            }
            scores = _scores({name: record for name, (record, _) in judged.items()}, gaps.single)
            choice = min(scores, key=lambda name: scores[name]["score"])
            calibration = judged[choice][1]
            reason = _reason(choice, scores, gaps)
        self.model_ = clone_with(candidates[choice]).fit(seen)
        self.choice_, self.scores_, self.reason_ = choice, scores, reason
        log.info("%s", self)
        return seen, calibration

    def _candidates(self, seed: int) -> dict[str, Any]:
        """Return unfitted models by name."""
        shared = {"random_state": seed, "n_jobs": self.n_jobs, **shown(self.verbose)}
        found: dict[str, Any] = {}
        given: Sequence[Any] = [*CANDIDATES] if self.candidates is None else self.candidates
        for one in given:
            pair = isinstance(one, tuple | list) and len(one) == 2
            if isinstance(one, str) and one in CANDIDATES:
                name = one
                model = clone_with(CANDIDATES[one], time=self.time, sensor=self.sensor, **shared)
            elif pair and isinstance(one[0], str) and isinstance(one[1], Factorizer):
                name, model = one[0], clone_with(one[1], **shared)
            else:
                raise SettingError(
                    f"candidates must be some of {', '.join(CANDIDATES)}, or pairs of a name and a "
                    f"model; got {one!r}."
                )
            if name in found:
                raise SettingError(f"candidates must have different names; got {name!r} twice.")
            found[name] = model
        if not found:
            raise SettingError("candidates must have one at least; got none.")
        return found

    def _held_out(self, seen: Observations, seed: int) -> tuple[Gaps, Ints]:
        """Return the gaps in the data, and which part an observation is in."""
        time, _ = sensor_modes(self.time, self.sensor, seen.ids)
        stamps, _ = checked_stamps(seen.ids[time])
        when = stamps[seen.codes[time]]
        keys, which = np.unique(series_keys(seen.codes, seen.shape, time)[0], return_inverse=True)
        gaps = find_gaps(Series.group(which, when, seen.values, len(keys)))
        stretch = ((when - when.min()) // gaps.length).astype(np.int64)
        _, block = np.unique(which * (stretch.max() + 1) + stretch, return_inverse=True)
        rng = np.random.default_rng([seed, 5])
        size = int(0.5 * self.validation_fraction * len(seen))
        order = rng.permutation(int(block.max()) + 1)
        full = np.searchsorted(np.cumsum(np.bincount(block)[order]), size)
        part = np.where(np.isin(block, order[: full + 1]), BLOCKS, TRAIN)
        part[rng.permutation(np.flatnonzero(part == TRAIN))[:size]] = CELLS
        return gaps, part

    def _judge(
        self, model: Any, seen: Observations, part: Ints, alike: Ints
    ) -> tuple[dict[str, float], Calibration]:
        """Fit a candidate on one part, judge it by the others; those alike gaps calibrate it."""
        started = clock.perf_counter()
        with unsaid("Predictions have not settled"):  # a chain is judged as it is
            model.fit(seen.take(part == TRAIN))
        seconds = clock.perf_counter() - started
        sensor = sensor_modes(self.time, self.sensor, seen.ids)[1]
        types = np.zeros(len(seen), np.int64) if sensor is None else seen.codes[sensor]
        units = Units.of(seen.values, types, int(types.max()) + 1)
        held_out = np.flatnonzero(part != TRAIN)
        asked = seen.take(held_out)
        error = asked.values - model.predict(asked)
        _, noise, epistemic = model.cells(asked).moments
        std, kept = np.sqrt(noise + epistemic), np.isin(held_out, alike)
        calibration = Calibration.measure(error[kept], std[kept])
        squared = error.astype(np.float64) ** 2 / units.variance[types[held_out]]
        record = {name: _trimmed(squared[part[held_out] == kind]) for name, kind in KINDS.items()}
        return record | {"seconds": seconds}, calibration

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        return self.model_.cells(X)

    def __str__(self) -> str:
        return f"AutoFactorizer {self.reason_}" if hasattr(self, "reason_") else repr(self)

    def schema(self) -> Schema:
        """Declare what a file keeps: the chosen model, and why it was chosen."""
        self._candidates(0)
        yield Part("model_", "model_")
        yield Entry("choice", "choice_", str)
        yield Entry("scores", "scores_", _as_scores)
        yield Entry("reason", "reason_", str)
        yield Entry("seconds", "seconds_", real())

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        if self.model_.ids_ != self.ids_:
            raise Damaged("its parts do not belong together")


def find_gaps(series: Series) -> Gaps:
    """Measure what is missing between the first and the last reading of every series."""
    step, span = series.usual_step(), float(np.ptp(series.time))
    inside = np.diff(series.which) == 0
    missing = np.rint(np.diff(series.time)[inside] / step) - 1
    single, longer = float((missing == 1).sum()), np.sort(missing[missing > 1])
    total = single + float(longer.sum())
    length = float(STEPS)
    if len(longer):
        reached = np.cumsum(longer)
        length = float(longer[np.searchsorted(reached, 0.5 * reached[-1])])
    length = max(min(length * step, LONGEST * span), step)
    return Gaps(single / total if total else 0.5, length)


def like_gaps(part: Ints, single: float, seed: int) -> Ints:
    """Return as many held-out observations as can be with the mix that what is missing has."""
    rng = np.random.default_rng([seed, 6])
    shares = {CELLS: single, BLOCKS: 1.0 - single}
    rows = {kind: np.flatnonzero(part == kind) for kind in shares}
    most = min(len(rows[kind]) / share for kind, share in shares.items() if share > 0)
    taken = [rng.permutation(rows[kind])[: round(share * most)] for kind, share in shares.items()]
    return np.sort(np.concatenate(taken))


def _as_scores(value: Any) -> dict[str, dict[str, float]]:
    return {name: {k: float(v) for k, v in one.items()} for name, one in value.items()}


def _shortened(model: Any) -> Any:
    """Return an unfitted copy that takes no longer than it must to be judged."""
    if not isinstance(model, TemporalFactorizer):
        return clone_with(model)
    return clone_with(model, sweeps=min(model.sweeps, max(SWEEPS, 3 * model.burn_in)))


def _scores(records: dict[str, dict[str, float]], single: float) -> dict[str, dict[str, float]]:
    """Return records with the score of each: errors over the best, weighted."""
    best = {kind: min(record[kind] for record in records.values()) for kind in KINDS}
    weights = {"cells": single, "blocks": 1.0 - single}
    return {
        name: record
        | {"score": sum(w * (record[k] + LEAST) / (best[k] + LEAST) for k, w in weights.items())}
        for name, record in records.items()
    }


def _reason(choice: str, scores: dict[str, dict[str, float]], gaps: Gaps) -> str:
    order = sorted(scores, key=lambda name: scores[name]["score"])
    told = [
        f"{name} {scores[name]['cells']:.3g} and {scores[name]['blocks']:.3g}" for name in order
    ]
    return (
        f"chose {choice!r}: lowest mean squared error, in units of each type's variance, on single "
        f"cells (weight {gaps.single:.2f}) and on stretches of {gaps.length:g} (weight "
        f"{1 - gaps.single:.2f}); {', '.join(told)}."
    )


def _trimmed(squared: Array) -> float:
    return float(np.sort(squared)[: len(squared) - int(TRIM * len(squared))].mean())
