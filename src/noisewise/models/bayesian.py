"""BayesianFactorizer: every observation has a mean and a deviation, and neither is a single number.

    value_ij ~ N(mu + u_i + v_j + U_i . V_j,  sum_k P_ik Q_jk)

All unknowns are drawn again and again from their posterior (Gibbs sampling), and predictions are
averaged over the draws. Nothing is tuned: how much to shrink is drawn too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from noisewise.data import (
    Observations,
    encode_cells,
    encode_ids,
    id_columns,
    observe,
    warn_of_unknown,
)
from noisewise.data.features import Tables
from noisewise.engine.arrays import Codes, Counts, Floats, Moments
from noisewise.engine.data import Spec
from noisewise.engine.devices import Device
from noisewise.engine.gibbs.fold_in import fold_in
from noisewise.engine.gibbs.posterior import RatingPosterior, Side
from noisewise.engine.gibbs.schedule import Schedule, Thinned
from noisewise.engine.training import Callback
from noisewise.engine.workers import Cluster
from noisewise.errors import DataError, SettingError
from noisewise.models import learner, on_cluster, on_gpu
from noisewise.models.arranged import prepare
from noisewise.models.base import Cells, at_one_moment, in_one_step
from noisewise.models.featured import Featured
from noisewise.models.kept_rows import KeptRows
from noisewise.models.learner import Checkpoint, Given, How, checkpoints_of
from noisewise.models.sampled import FEWEST_DRAWS, Run, Sampled, rating_schema, restored_ratings
from noisewise.models.strangers import learned as calibrated
from noisewise.recommend import Lists, Sought
from noisewise.schema import Entry, Found, Schema, record
from noisewise.settings import SPAN, Rule, either, learned, number, one_of, setting, settings, whole

NOISE_RANK = {"constant": 0, "rank1": 1}
WORST_RHAT = 1.2


def _has_levels(model: Any) -> bool:
    if model.likelihood != "ordinal":
        raise SettingError('predict_proba needs likelihood="ordinal".')
    return True


class RowSummary(NamedTuple):
    """What was learned of one id, in units of the values (of levels, of the hidden ones)."""

    bias: float
    bias_std: float
    noise_std: float
    observations: int


@settings
class BayesianFactorizer(Sampled, Featured, KeptRows, on_gpu.OnDevice):
    """Bayesian factorization that learns how noisy each observation is; no setting needs tuning.

    Examples
    --------
    >>> import warnings
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Alien", 1), ("bob", "M", 5)]
    >>> model = BayesianFactorizer(rank=2, sweeps=60, burn_in=20, random_state=0)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # four ratings settle nothing
    ...     model = model.fit(ratings)
    >>> mean, noise, epistemic = model.predict_parts([("ann", "M")])
    >>> bool(noise[0] > 0 and epistemic[0] > 0)
    True
    """

    _on_clusters = True

    rank: int = setting(
        whole(0),
        "Factors of the mean. More are better as long as time allows.",
        default=64,
        kw_only=False,
    )
    deviation: Literal["lowrank", "rank1", "constant"] = setting(
        one_of("lowrank", "rank1", "constant"),
        "The noise of an observation: a sum of products of factors of its ids, one product, or the "
        "same for all.",
        default="lowrank",
    )
    deviation_rank: int = setting(
        whole(1), 'Factors of the noise, for ``deviation="lowrank"``.', default=2
    )
    likelihood: Literal["gaussian", "ordinal"] = setting(
        one_of("gaussian", "ordinal"),
        "Values as numbers, or as levels that each user tells apart in their own way (stars): "
        "slower, with better probabilities (``predict_proba``).",
        default="gaussian",
    )
    implicit: bool | Literal["auto"] = setting(
        one_of(True, False, "auto"),
        "Learn also from the set of items that each user has rated, whatever the ratings, and from "
        "the set of users of each item, as SVD++ and timeSVD++ do. Values are still needed: this "
        'is no model of clicks or purchases. "auto" does with two id columns; with more there are '
        "no sets to learn from.",
        default="auto",
    )
    time: str | int | None = setting(
        Rule(
            "the name of a column, its number counted from 0, or None",
            lambda v: v is None or isinstance(v, str) or whole(0).holds(v),
        ),
        "The column of X that holds times (its name, or its number), if moods and fashions should "
        "be followed. Observations bring their times along; then any name will do.",
        default=None,
    )
    samples: int = setting(
        whole(1), "Draws to keep for predictions, of all chains together, at most.", default=43
    )
    tolerance: float | None = setting(
        either(number(above=0.0), None),
        "Stop early once predictions have settled to this share of the noise's std: half of what "
        "the means of both halves of the chain differ by. None runs all sweeps.",
        default=0.05,
    )
    chains: int = setting(
        whole(1), "Independent runs, one after another; their draws are pooled.", default=1
    )
    value_range: Literal["auto"] | tuple[float, float] | None = setting(
        either(SPAN, "auto", None),
        "Clip predictions to the range of the training values, not at all, or to this range. "
        '"auto" does where values are a scale, as stars are: both ends were given more than once. '
        "The largest of many measurements is no bound.",
        default="auto",
    )

    factors_: RatingPosterior = learned("The draws that were kept.")

    @in_one_step
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        features: Tables | None = None,
        validation: Observations | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        checkpoint_epochs: int | None = 50,
        checkpoint_minutes: float | None = 5.0,
        cluster: str | Cluster | None = None,
    ) -> Self:
        """Draw from the posterior, given a table of ids and a value for each row.

        Parameters
        ----------
        X : table of ids, sparse matrix or Observations
            One id column per mode (see ``noisewise.observe``), and the column of times, if any.
        y : sequence of float, optional
            The values; without it, the last column of X.
        sample_weight : sequence of float, optional
            What the variance of the noise of every value is divided by.
        features : dict of tables, optional
            What else is known of ids, by mode, such as ``{"user": users, "item": items}``: frames
            or dicts of columns, one of which has the ids, or a pair of ids and an array. Numbers,
            categories, lists of words; entries may be missing. Ids without values are predicted by
            their features later on.
        validation, callbacks, checkpoint, checkpoint_epochs, checkpoint_minutes, cluster
            As those of ``TemporalFactorizer.fit``; ``validation`` is only watched.

        Raises
        ------
        FitInterrupted
            At Ctrl-C, after the sweep is finished. The model has the draws that its message tells
            of; where there are none, it is a ``KeyboardInterrupt``, and the model is as it was.
        """
        kept = checkpoint, checkpoint_epochs, checkpoint_minutes
        given = Given(X, y, validation, sample_weight, features)
        return self._fit(given, How(callbacks, kept, cluster))

    @available_if(_has_levels)  # type: ignore[untyped-decorator]
    @at_one_moment
    def predict_proba(self, X: Any, *, features: Tables | None = None) -> npt.NDArray[np.float64]:
        """Predict the probability of every level; only of ``likelihood="ordinal"``.

        There is a row per cell, and a column for each of ``levels_``; ``features`` are as in
        ``predict``.
        """
        self = self.with_features(features)
        codes, time = self._encoded(X)
        warn_of_unknown(X, self.ids_, self._unseen(codes))
        return self.factors_.probabilities(codes, self._threads(), time)

    def _has_shape(self) -> bool:
        return self.deviation != "constant"  # else the noise is the same for all

    def _level_chances(self, X: Any) -> npt.NDArray[np.float64]:
        if not self.factors_.spec.ordinal:
            return super()._level_chances(X)
        return np.asarray(self.predict_proba(X))

    @at_one_moment
    def row(self, id: Any, *, mode: int | str = 0) -> RowSummary:
        """Read what was learned of an id: its bias, its noise, how often it was observed.

        Factors are not among it: they turn from draw to draw, and only their products mean a thing.
        """
        check_is_fitted(self)
        m = self.mode_number(mode)
        code = self._known_code(id, m)
        place, unit = sum(self.factors_.shape[:m]) + code, self.factors_.scale.scale
        biases = unit * self.factors_.draws["biases"][:, place].astype(np.float64)
        noise = math.sqrt(self.factors_.noise_by_row(m)[code])
        count = int(self.factors_.counts[m][code])
        return RowSummary(float(biases.mean()), float(biases.std()), noise, count)

    def _observed(self, given: Given) -> Observations:
        time = None if isinstance(given.X, Observations) else self.time
        own: Any = {"time": time, "weight": given.sample_weight}
        observations = observe(given.X, given.y, duplicates=self.duplicates, **own)
        n_modes = observations.n_modes
        if self.time is not None:
            if observations.time is None:
                raise DataError("time was set, but these observations have no times.")
            if n_modes != 2:
                raise DataError(f"time needs 2 id columns; got {n_modes}.")
        if self.implicit is True and n_modes != 2:
            raise DataError(f"implicit=True needs 2 id columns; got {n_modes}.")
        learner.warn_if_alike(observations)
        self.features_ = self._learn_tables(given.features, observations)
        return observations

    def _checkpoints(
        self, wanted: Checkpoint | None, seen: Observations, held_out: Observations | None
    ) -> dict[str, Checkpoint]:
        tables = self.features_.values()
        more = [array for t in tables for array in (t.matrix.indices, t.matrix.data)]
        return checkpoints_of(self, wanted, self._stages, seen, len(seen), held_out, more)

    def _draw(
        self,
        seen: Observations,
        held_out: Observations | None,
        checkpoints: dict[str, Checkpoint],
        callbacks: Sequence[Callback],
    ) -> tuple[list[Run], str | None]:
        given = seen, held_out, checkpoints, callbacks
        return self._on_device(
            lambda device: self._drawn(device, *given), lambda: self._drawn(None, *given), seen
        )

    def _drawn(
        self,
        device: Device | None,
        seen: Observations,
        held_out: Observations | None,
        checkpoints: dict[str, Checkpoint],
        callbacks: Sequence[Callback],
    ) -> tuple[list[Run], str | None]:
        seed, value_range = learner.fixed_seed(self.random_state), None
        ends = seen.values.min(), seen.values.max()
        if self.value_range != "auto" or all((seen.values == end).sum() > 1 for end in ends):
            value_range = learner.range_of(self.value_range, seen)
        runs: list[Run] = []
        for chain, stage in enumerate(self._stages):
            sampler = prepare(
                self._spec(seen.n_modes, seed, chain), seen, held_out, value_range,
                self._schedule, self._threads(), device, self.features_,
            )  # fmt: skip
            label = "sample" if self.chains == 1 else f"chain {chain + 1} of {self.chains}"
            kept = on_cluster.kept_by(sampler, checkpoints.get(stage))
            runs.append(self._run(sampler, kept, callbacks, label=label, fewest=FEWEST_DRAWS))
            if runs[-1].interrupted:
                break
            if chain + 1 < self.chains:
                on_cluster.release(sampler, runs[-1].state)
        self.factors_ = sampler.posterior(self._chains(seen, sampler, runs))
        self.value_range_, self.calibration_ = value_range, None
        self._note_levels(seen.values)
        found = sampler.left_out([run.state for run in runs])
        if found is not None and self._has_shape():
            self.calibration_ = calibrated(self, sampler, found)
        rhat = self.convergence_["predictions (median)"]["rhat"]
        if not rhat > WORST_RHAT:
            return runs, None
        return runs, (
            f"(split R-hat {rhat:.2f}, which should be below {WORST_RHAT}): raise sweeps (now "
            f"{self.sweeps}) or burn_in (now {self.burn_in})."
        )

    @property
    def _schedule(self) -> Schedule:
        kind = Schedule if self.tolerance is None else Thinned
        return kind(self.sweeps, self.burn_in, -(-self.samples // self.chains))

    @property
    def _stages(self) -> list[str]:
        return ["fit", *(f"chain{chain}" for chain in range(2, self.chains + 1))]

    def observed(self, X: Any, y: Any) -> Observations:
        """Observe values for a model that is fitted, with their times if it follows any."""
        time = None if isinstance(X, Observations) else self.time
        return observe(X, y, duplicates="last", ids=self.ids_, time=time)

    def _spec(self, n_modes: int, seed: int, chain: int = 0) -> Spec:
        rank = self.deviation_rank if self.deviation == "lowrank" else NOISE_RANK[self.deviation]
        implicit = n_modes == 2 if self.implicit == "auto" else bool(self.implicit)
        return Spec(self.rank, rank, self.likelihood, implicit, self.time is not None, seed, chain)

    def _encoded(self, X: Any) -> tuple[tuple[Codes, ...], npt.NDArray[Any] | None]:
        """Codes and times of cells, ids never seen after the last row."""
        check_is_fitted(self)
        if self.time is None:
            codes, time = encode_ids(X, self.ids_), None
        else:
            codes, time = encode_cells(X, self.ids_, self.time)
        if not self.features_:
            known = tuple(self.factors_.known_codes(m, code) for m, code in enumerate(codes))
            return known, time
        columns = id_columns(X, self.ids_, self.time)
        pairs = enumerate(zip(codes, columns, strict=True))
        return tuple(self._places(m, code, own.entries) for m, (code, own) in pairs), time

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        codes, time = self._encoded(X)
        unseen, own = self._unseen(codes), self.factors_
        few = len(codes) > 2 or len(unseen) * len(own) < on_gpu.MANY_DRAWN

        def here() -> Moments:
            return own.moments(codes, self._threads(), time)

        if few or self.device == "cpu" or self._are_new(codes):
            return Cells(here(), unseen)
        there = partial(on_gpu.moments_of_draws, posterior=own, codes=codes, time=time)
        return Cells(self._on_device(there, here), unseen)

    @at_one_moment
    def strangers(self, X: Any) -> npt.NDArray[np.int64] | None:
        """Return how many ids of each cell were never seen; None where intervals are the same."""
        if self.calibration_ is None or self.calibration_.strangers is None:
            return None
        both = zip(self._encoded(X)[0], self.factors_.shape, strict=True)
        found: npt.NDArray[np.int64] = np.sum([codes >= n for codes, n in both], axis=0)
        return found  # those with features come last

    def _best(self, mode: int, codes: Codes, sought: Sought) -> Lists:
        rows, columns = (self.factors_.shape[m] for m in (mode, 1 - mode))
        if (codes > rows).any() or (sought.columns > columns).any():  # which a GPU does not know
            return super()._best(mode, codes, sought)
        return on_gpu.best_columns(self, super()._best, on_gpu.best_of_draws, mode, codes, sought)

    def _fold(self, mode: int, codes: Codes, values: Floats, *features: Any) -> Side:
        return fold_in(self.factors_, mode, codes, self._as_drawn(values, "fold_in"), *features)

    def _fold_many(self, mode: int, starts: Counts, codes: Codes, values: Any) -> list[Any]:
        own = self.factors_
        new = (codes > own.shape[1 - mode]).any()  # which a GPU does not know
        if own.spec.ordinal or self.device == "cpu" or new:
            return self._fold_each(mode, starts, codes, values)
        z = self._as_drawn(values, "fold_in_many")

        def here(mode: int, starts: Counts, codes: Codes, values: Any) -> list[Any]:
            spans = pairwise(starts.tolist())
            return [fold_in(own, mode, codes[a:b], values[a:b]) for a, b in spans]

        return on_gpu.new_rows(self, here, mode, starts, codes, z)

    def schema(self) -> Schema:
        """Declare what a file keeps: also the posterior."""
        yield from super().schema()
        yield from rating_schema(self, tuple(map(len, self.ids_)))
        yield Entry("convergence", "convergence_", record)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        self.factors_ = restored_ratings(self, found)
        if not len(self.levels_) and self.factors_.spec.ordinal:  # in files of earlier versions
            self.levels_ = self.factors_.scale.levels.astype(np.float64)
