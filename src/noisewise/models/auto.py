"""AutoFactorizer: all models of sensors, judged on holes like those of the table; the best is kept.

Which one is best depends on what is missing: between frequent readings a line is hard to beat, in
an outage only other sensors know anything, and where nobody read, what repeats every day. So the
table's own holes are moved in time, and hide what lies under them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from noisewise.calibration import Calibration
from noisewise.data import Ids, Observations, encode_ids, observe, warn_of_unknown
from noisewise.data.timestamps import (
    SeriesIndex,
    key_places,
    n_keys,
    sensor_modes,
    series_keys,
)
from noisewise.engine.arrays import Floats, Ints, Moments
from noisewise.errors import SettingError
from noisewise.models import contest, lengths, local, reasons
from noisewise.models.average import AverageFactorizer
from noisewise.models.base import (
    Cells,
    Factorizer,
    Seeded,
    Threads,
    as_it_is,
    at_one_moment,
    clone_with,
    in_one_step,
    shown,
)
from noisewise.models.contest import Arena, Contest, Scaling
from noisewise.models.deviation import dtf
from noisewise.models.grid import TableModel
from noisewise.models.holes import Like
from noisewise.models.holes import Readings as Arranged
from noisewise.models.learner import FEWEST_HELD_OUT, fixed_seed
from noisewise.models.local import LocalScale
from noisewise.models.mixing import Mix
from noisewise.models.model_file import Part
from noisewise.models.sensors import InTime, Readings, index_of
from noisewise.models.series import LinearInterpolator, OUSmoother
from noisewise.models.temporal import TemporalFactorizer
from noisewise.models.weighing import series_scale
from noisewise.schema import ANY, POSITIVE, RISING, Entry, Found, Schema, Tensor, real
from noisewise.schema import keys as keys_rule
from noisewise.settings import Rule, learned, one_of, setting, settings
from noisewise.storage import Damaged

# What competes: cheap ones first, as the first is taken where there is nothing to judge by.
CANDIDATES: dict[str, Factorizer] = {
    "linear": LinearInterpolator(),
    "pchip": LinearInterpolator(curve="pchip"),
    "ou": OUSmoother(),
    "seasonal": OUSmoother(seasons="auto"),
    "nearest": TableModel("nearest"),
    "nearest-lagged": TableModel("nearest", lags=(1, 3)),
    "regression": TableModel("regression"),
    "lagged": TableModel("regression", lags=(1, 3)),
    "forest": TableModel("forest", lags=(1, 3)),
    "soft": TableModel("soft"),
    "svd": TableModel("svd", rank=4),
    "dtf": dtf(),
    "bayes": TemporalFactorizer(),
    "bayes-4": TemporalFactorizer(4),
    "bayes-smooth": TemporalFactorizer(16, kernel="matern32"),
    "bayes-smooth-4": TemporalFactorizer(4, kernel="matern32"),
    "bayes-seasons": TemporalFactorizer(8, kernel="matern32", seasons="auto"),
    "bayes-seasons-2": TemporalFactorizer(2, seasons="auto"),
    "bayes-calendar": TemporalFactorizer(2, seasons="auto", season_rank=24),
    "bayes-heavy": TemporalFactorizer(8, tails="heavy"),
}
LIKE = ("table", "cells", "blocks", "blackout", "end")
JOIN = " + "  # between the names of those that are taken together

log: logging.Logger = logging.getLogger("noisewise")


@settings
class AutoFactorizer(Readings, InTime, Seeded, Threads):
    """Choose among models of sensors by what they predict of readings that were hidden.

    What is missing of the table is moved in time by random offsets, three or more, and hides what
    lies under it; of a large table by one or two, in a window of time and of some of the series.
    Every candidate learns from the rest and predicts what is hidden; those far behind after the
    first offset, those that say just what another says, and all but five of those that cost seconds
    are not asked again; of a large table, a small window tells which these are, and three stay. The
    one with the lowest mean squared error is fitted again on everything, or a mix of up to four
    that is better, with weights that hedge where few outages tell, and maybe more where each is
    surer; if the table is much larger than a trial, samplers have more factors, and those of a mix
    are weighed once more by what they predict after learning from all but the hidden readings.
    Errors are in units of the std of their series, without the hundredth of cells that nobody can
    predict, and count as often as there are holes of their series; if few outages were hidden
    there, others join, over what is usual in their series.
    Stds and intervals are calibrated on the same cells, by series and by the size of the std. With
    too few observations to judge by, the first candidate is taken.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = [(place, t, place + np.sin(t / 9)) for place in range(4) for t in range(200)]
    >>> rows = [rows[k] for k in rng.permutation(len(rows))[:400]]
    >>> model = AutoFactorizer(["linear", "ou"], random_state=0).fit(rows)
    >>> sorted(model.scores_)[:2], model.choice_ in model.scores_
    (['linear', 'ou'], True)
    """

    candidates: Sequence[str | tuple[str, Factorizer]] | None = setting(
        Rule("a sequence or None", lambda v: v is None or isinstance(v, Sequence)),
        f"What to try: names among {', '.join(CANDIDATES)}, which are all tried by default, or "
        "pairs (name, model). ``random_state`` and ``n_jobs`` of all of them are those given here; "
        "those named also get ``time``, ``sensor`` and ``value_range``.",
        default=None,
        kw_only=False,
    )
    like: Like = setting(
        one_of(*LIKE),
        'What the holes are like that will be filled: those of the table, single "cells", "blocks" '
        'of ten steps of single series, "blackout" (of all series) or the "end" of all series, as '
        "in a forecast. A table that has hardly any holes is judged by cells and by blocks.",
        default="table",
    )

    scale_: str | None = learned("Name of the scale that the model computes in.")
    choice_: str = learned("Name of the candidate that was chosen, or of a few with a + between.")
    model_: Factorizer = learned("The chosen candidate, fitted on everything.")
    scores_: dict[str, dict[str, float]] = learned(
        'For every candidate: "error", the root of the mean squared error of hidden cells in units '
        'of the std of their series; "score", that over the error of the best; and "seconds" that '
        "it took. Candidates that were hopeless after the first offset have the error there, times "
        "how much harder the others were for the rest. Empty if there was too little to judge by."
    )
    reason_: str = learned(
        "What was chosen and why, in a sentence; also what ``str`` gives, and what the logger "
        '"noisewise" is told.'
    )
    local_: LocalScale = learned("Factors of stds by series and by size.")
    _index: SeriesIndex = learned()

    @in_one_step
    def fit(
        self, X: Any, y: Any = None, *, holes: Any = None, scales: Sequence[Scaling] = ()
    ) -> Self:
        """Learn from a table of ids, one of which is a time (a number or a date), and values y.

        Parameters
        ----------
        X : table of ids, or Observations
            Without y, the last column has the values.
        y : values, optional
            One for each row.
        holes : table of ids or Observations, optional
            Cells that are to be filled. By default, what is missing of all series at all times.
        scales : sequence of Scaling, optional
            Scales that models may compute in: names, the values of X on them, and functions
            ``restore(cells, mean, std)`` that return means in the units that errors count in. The
            chosen models are tried on all of them.
        """
        self._call = (holes, scales)
        self._fit(X, y, None)
        del self._call
        return self

    def _learn(
        self, seen: Observations, validation: Observations | None
    ) -> tuple[Observations, Calibration | None]:
        """Try every candidate, and fit the best on everything."""
        scaling, model, calibration = self._choose(seen)  # what that took is freed before the fit
        seen = Observations(seen.codes, scaling.values, seen.ids)
        model = lengths.fitted(model, seen)
        self.model_ = model if calibration is None else lengths.uncalibrated(model)
        self._index = _series_of(self, seen)
        log.info("%s", self)
        return seen, calibration

    def _choose(self, seen: Observations) -> tuple[Scaling, Any, Calibration | None]:
        """Return the scale to compute in, the model that is to be fitted, and its calibration."""
        seed = fixed_seed(self.random_state)
        candidates = self._candidates(seed)
        holes, scales = self._call
        scales = scales or (contest.unscaled(seen),)
        if holes is not None and not isinstance(holes, Observations):
            holes = observe(holes, np.zeros(len(holes)), duplicates="last")
        time = sensor_modes(self.time, self.sensor, seen.ids)[0]
        arranged = Arranged.of(seen, time, holes)
        heat, drawn = contest.draw_heat(arranged, self.like, np.random.default_rng([seed, 5]))
        arena = Arena(
            seen, arranged, drawn, candidates, self.like, self._threads(), self.verbose, heat,
        )  # fmt: skip
        found = arena.hold(scales[0]) if arena.n_hidden >= FEWEST_HELD_OUT else None
        scaling: Scaling = scales[0]
        chosen, together = Mix.only(next(iter(candidates))), {}
        self.scores_, calibration, local_scale = {}, None, None
        self.reason_ = reasons.no_choice(chosen)
        size = arena.ratio, arranged.n_series
        wide = {name: lengths.widened(model, *size) for name, model in candidates.items()}
        if found is not None and found.answers:
            chosen, error = found.best(arena.dear, len(seen))
            trials, others = found, dict[str, float]()
            if len(scales) > 1:
                scaling, found, others = arena.best_scale(scales, chosen, found)
            if len(chosen.names) > 1 and arena.ratio >= lengths.MUCH:
                found = arena.judged_whole(
                    scaling, {name: wide[name] for name in chosen.names}, found
                )
                chosen, error = found.together(chosen.names)
            self.scores_ = _scores(trials, chosen, error)
            self.reason_ = reasons.of_choice(self.scores_, chosen, trials, self.like)
            self.reason_ += reasons.of_scale(scaling, others) if others else ""
            together = {"weights": chosen.weights, "usual_stds": found.usual_stds(chosen)}
            local_scale, calibration = _calibrated(found, chosen, arena, scaling)
        self.choice_, self.scale_ = JOIN.join(chosen.names), scaling.name
        taken = {name: wide[name] for name in chosen.names}
        self.reason_ += reasons.of_ranks(taken, candidates, arena.ratio)
        unit = series_scale(scaling.values, arranged.seen.which, arranged.n_series)
        self.local_ = local_scale or LocalScale.none(unit)
        return scaling, self._chosen(taken, together, seed, len(seen)), calibration

    def _candidates(self, seed: int) -> dict[str, Any]:
        """Return unfitted models by name."""
        shared = {"random_state": seed, "n_jobs": self.n_jobs, **shown(self.verbose)}
        named = shared | {
            "time": self.time, "sensor": self.sensor, "value_range": self.value_range,
        }  # fmt: skip
        found: dict[str, Any] = {}
        given: Sequence[Any] = [*CANDIDATES] if self.candidates is None else self.candidates
        for one in given:
            pair = isinstance(one, tuple | list) and len(one) == 2
            if isinstance(one, str) and one in CANDIDATES:
                name, model = one, clone_with(CANDIDATES[one], **named)
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

    def _chosen(self, models: dict[str, Any], together: dict[str, Any], seed: int, n: int) -> Any:
        """Return one model, or several together, for n readings, unfitted."""
        many = len(models)
        pairs = tuple((name, lengths.lengthened(one, n, many)) for name, one in models.items())
        if len(pairs) == 1 and lengths.has_chains(pairs[0][1], n):
            pairs, together = pairs * lengths.CHAINS, {}
        if len(pairs) == 1:
            return pairs[0][1]
        return AverageFactorizer(
            pairs, **together, time=self.time, sensor=self.sensor, random_state=seed,
            value_range=self.value_range, n_jobs=self.n_jobs, verbose=self.verbose,
        )  # fmt: skip

    def refitted(self, seen: Observations) -> Self:
        """Return the same choice and calibration, with the chosen model fitted to other readings.

        Examples
        --------
        >>> rows = [(place, t, place + np.sin(t / 9)) for place in range(4) for t in range(80)]
        >>> model = AutoFactorizer(["linear", "ou"], random_state=0).fit(rows[::2])
        >>> model.refitted(observe(rows)).predict([(2, 21)]).round(3)
        array([2.723], dtype=float32)
        """
        again = as_it_is(self)
        model = lengths.fitted(clone_with(self.model_), seen)
        again.model_ = model if self.calibration_ is None else lengths.uncalibrated(model)
        again.ids_ = seen.ids
        index = _series_of(self, seen)
        which = index.series(seen.codes)
        unit = series_scale(seen.values, which, len(index.keys))
        old = _renamed(self._index, self.ids_, seen.ids)
        at = key_places(index.keys, old, old >= 0)
        series = np.ones(len(unit))
        series[at[at >= 0]] = self.local_.series[at >= 0]
        again._index, again.local_ = index, replace(self.local_, series=series, unit=unit)
        return again

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        return self._judged(X)[0]

    @at_one_moment
    def predict_judged(self, X: Any) -> tuple[Floats, Floats, Floats]:
        """Predict mean and std; and the std of the chosen model, before it was calibrated."""
        cells, judged = self._judged(X)
        warn_of_unknown(X, self.ids_, cells.unseen, but=self._unbounded())
        mean, noise, epistemic = self.finished(cells)
        return mean, np.sqrt(noise + epistemic), judged

    def _judged(self, X: Any) -> tuple[Cells, Floats]:
        found = self.model_.cells(X)
        mean, noise, epistemic = self.model_.finished(found)
        which, judged = self._index.series(encode_ids(X, self.ids_)), np.sqrt(noise + epistemic)
        square = self.local_.factors(which, judged) ** 2
        noise, epistemic = ((square * part).astype(part.dtype) for part in (noise, epistemic))
        return Cells(Moments(mean, noise, epistemic), found.unseen), judged

    def __str__(self) -> str:
        return f"AutoFactorizer {self.reason_}" if hasattr(self, "reason_") else repr(self)

    def schema(self) -> Schema:
        """Declare what a file keeps: the chosen model, and why it was chosen."""
        self._candidates(0)
        yield Part("model_", "model_")
        yield Entry("choice", "choice_", str)
        yield Entry("scale", "scale_", str, optional=True)
        yield Entry("scores", "scores_", _as_scores)
        yield Entry("reason", "reason_", str)
        yield Entry("seconds", "seconds_", real())
        index = index_of(self, self.ids_)
        rule = keys_rule(n_keys(index.shape, index.time))
        keys = yield Tensor("local.keys", "int64", (ANY,), "_index.keys", rule)
        yield Tensor("local.series", "float64", (len(keys),), "local_.series", POSITIVE)
        yield Tensor("local.unit", "float64", (len(keys),), "local_.unit", POSITIVE)
        knots = yield Tensor("local.knots", "float64", (ANY,), "local_.knots", RISING)
        yield Tensor("local.by_std", "float64", (len(knots),), "local_.by_std", POSITIVE)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        if self.model_.ids_ != self.ids_:
            raise Damaged("its parts do not belong together")
        parts = found.part("local")
        self._index = replace(index_of(self, self.ids_), keys=parts.pop("keys"))
        self.local_ = LocalScale(**parts)


def _series_of(model: AutoFactorizer, seen: Observations) -> SeriesIndex:
    """Return which series observations are of."""
    bare = index_of(model, seen.ids)
    return replace(bare, keys=np.unique(series_keys(seen.codes, seen.shape, bare.time)[0]))


def _renamed(index: SeriesIndex, before: tuple[Ids, ...], after: tuple[Ids, ...]) -> Ints:
    """Return the numbers that series have by other ids; -1 where there is none."""
    others = [mode for mode in range(len(before)) if mode != index.time]
    old = np.unravel_index(index.keys, [index.shape[mode] for mode in others])
    codes: list[Any] = [np.zeros(len(index.keys), dtype=np.int32)] * len(before)
    for mode, code in zip(others, old, strict=True):
        codes[mode] = after[mode].lookup(before[mode].labels)[code]
    keys, known = series_keys(tuple(codes), tuple(map(len, after)), index.time)
    return np.where(known, keys, -1)


def _calibrated(
    found: Contest, mix: Mix, arena: Arena, scaling: Scaling
) -> tuple[LocalScale, Calibration]:
    """Learn from hidden cells how far the chosen model is off."""
    mean, std = found.said(mix, "mean"), found.said(mix, "std")
    n_different = len(np.unique(np.concatenate([trial.hidden for trial in arena.trials])))
    error, n = found.cells.values - mean, arena.readings.n_series
    unit = series_scale(scaling.values, arena.readings.seen.which, n)
    weight = arena.weighed(found.hidden, np.ones(n))
    which, outage, _ = found.hidden
    cells = local.Hidden(error, std, which, outage, found.trial, weight, n_different)
    return local.measure(cells, unit)


def _as_scores(value: Any) -> dict[str, dict[str, float]]:
    return {name: {k: float(v) for k, v in one.items()} for name, one in value.items()}


def _scores(found: Contest, chosen: Mix, error: float) -> dict[str, dict[str, float]]:
    """Return the record of everybody, and of those taken together; the best first."""
    errors, seconds = dict(found.errors), dict(found.seconds)
    name = JOIN.join(chosen.names)
    errors[name], seconds[name] = error, sum(found.seconds[one] for one in chosen.names)
    best = max(min(errors.values()), contest.LEAST)
    return {
        one: {"error": errors[one], "score": max(errors[one], contest.LEAST) / best,
              "seconds": seconds[one]}
        for one in sorted(errors, key=errors.__getitem__)
        if np.isfinite(errors[one])
    }  # fmt: skip
