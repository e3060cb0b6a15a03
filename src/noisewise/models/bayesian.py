"""BayesianFactorizer: every observation has a mean and a deviation, and neither is a single number.

    value_ij ~ N(mu + u_i + v_j + U_i . V_j,  sum_k P_ik Q_jk)

All unknowns are drawn again and again from their posterior (Gibbs sampling), and predictions are
averaged over the draws. Nothing is tuned: how much to shrink is drawn too.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from noisewise.data import (
    Observations,
    encode_cells,
    encode_ids,
    observe,
    warn_of_unknown,
)
from noisewise.engine.arrays import Codes, Floats
from noisewise.engine.gibbs.data import Spec
from noisewise.engine.gibbs.diagnostics import convergence
from noisewise.engine.gibbs.fold_in import fold_in
from noisewise.engine.gibbs.posterior import RatingPosterior, Side
from noisewise.engine.gibbs.sampler import Chain, Schedule
from noisewise.engine.training import Callback, Training, standardised
from noisewise.errors import DataError, SettingError, warn
from noisewise.models.base import Cells, at_one_moment, in_one_step, interrupted
from noisewise.models.checkpoints import Checkpoint, Wanted, checkpoints_of
from noisewise.models.iterative import Learner, fixed_seed, range_of, warn_if_alike, with_ids
from noisewise.models.rows import Rows
from noisewise.models.sampled import (
    FEWEST_DRAWS,
    check_draws,
    check_schedule,
    draws_worth,
    is_scale,
    prepare,
    run_chain,
)
from noisewise.models.sampled_storage import rating_schema, restored_ratings
from noisewise.schema import Entry, Found, Schema, record
from noisewise.settings import (
    Rule,
    check,
    either,
    learned,
    number,
    one_of,
    setting,
    settings,
    span,
    whole,
)

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
class BayesianFactorizer(Learner, Rows):
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

    _std_is_honest: ClassVar[bool] = True

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
    sweeps: int = setting(whole(2), "How often to draw everything, at most.", default=300)
    burn_in: int = setting(whole(0), "Sweeps at the start that do not count.", default=50)
    tolerance: float | None = setting(
        either(number(above=0.0), None),
        "Stop early once predictions are settled to this share of the noise's std. None runs all.",
        default=None,
    )
    chains: int = setting(
        whole(1), "Independent runs, one after another; their draws are pooled.", default=1
    )
    samples: int = setting(
        whole(1), "Draws to keep for predictions, of all chains together.", default=100
    )
    value_range: Literal["auto"] | tuple[float, float] | None = setting(
        either(span(), "auto", None),
        "Clip predictions to the range of the training values, not at all, or to this range. "
        '"auto" does where values are a scale, as stars are: both ends were given more than once. '
        "The largest of many measurements is no bound.",
        default="auto",
    )

    factors_: RatingPosterior = learned("The draws that were kept.")
    convergence_: dict[str, dict[str, float]] = learned(
        "Split R-hat and effective sample size of a few summaries, and of predictions."
    )

    @in_one_step
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Observations | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        checkpoint_epochs: int | None = 50,
        checkpoint_minutes: float | None = 5.0,
    ) -> Self:
        """Draw from the posterior, given a table of ids and a value for each row.

        Parameters
        ----------
        X : table of ids, sparse matrix or Observations
            One id column per mode (see ``noisewise.observe``), and the column named by ``time``.
        y : sequence of float, optional
            The values; without it, the last column of X.
        validation : Observations, optional
            Values to watch the running mean by. They are not trained on.
        callbacks : sequence of callables
            Called with (EpochInfo, Chain) after each sweep; one that returns True ends sampling.
        checkpoint : path or None
            Keep the state of sampling in this file, and go on from it if it is there. The file is
            removed when sampling has ended.
        checkpoint_epochs, checkpoint_minutes : int, float or None
            Write it after so many sweeps, or minutes, whichever comes first.

        Returns
        -------
        self

        Raises
        ------
        FitInterrupted
            At Ctrl-C, after the sweep is finished: a ``KeyboardInterrupt`` that ends loops around
            the fit. The model has the draws that its message tells of. Inside of burn-in there are
            none: it is a plain ``KeyboardInterrupt`` then, and the model is as it was.
        """
        started = clock.perf_counter()
        observations, validation = self._given(X, y, validation)
        wanted = Wanted.checked(checkpoint, checkpoint_epochs, checkpoint_minutes)
        stages = [_stage(chain) for chain in range(self.chains)]
        checkpoints = checkpoints_of(
            self, wanted, stages, observations, len(observations), validation
        )
        done = self._draw(observations, validation, checkpoints, callbacks)
        self._note_columns(X)
        self.seconds_ = clock.perf_counter() - started
        self._warn_unless_converged(done)
        for kept in checkpoints.values():
            kept.remove()
        return self

    @available_if(_has_levels)  # type: ignore[untyped-decorator]
    @at_one_moment
    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Predict the probability of every level; only of ``likelihood="ordinal"``.

        Returns
        -------
        ndarray
            A row per cell, a column for each of ``levels_``.
        """
        codes, time = self._encoded(X)
        warn_of_unknown(X, self.ids_, self._unseen(codes))
        return self.factors_.probabilities(codes, self._threads(), time)

    @at_one_moment
    def row(self, id: Any, *, mode: int | str = 0) -> RowSummary:
        """Read what was learned of an id: its bias, its noise, how often it was observed.

        Factors are not among it: they turn from draw to draw, and only their products mean a thing.
        """
        check_is_fitted(self)
        m = self.mode_number(mode)
        code = self._known_code(id, m)
        place = sum(self.factors_.shape[:m]) + code
        biases = self.factors_.draws["biases"][:, place].astype(np.float64)
        biases *= self.factors_.scale.scale
        noise = math.sqrt(self.factors_.noise_by_row(m)[code])
        count = int(self.factors_.counts[m][code])
        return RowSummary(float(biases.mean()), float(biases.std()), noise, count)

    @property
    def levels_(self) -> Floats:
        """The levels that values have, in order; of ``likelihood="ordinal"``."""
        return self.factors_.scale.levels

    def _given(
        self, X: Any, y: Any, validation: Observations | None
    ) -> tuple[Observations, Observations | None]:
        """Check settings, and observe what to learn from and what to watch."""
        check(self)
        check_schedule(self)
        observations = self._checked(X, y)
        warn_if_alike(observations)
        if validation is not None:
            validation = observe(validation, ids=observations.ids)
            observations = with_ids(observations, validation)
        return observations, validation

    def _draw(
        self,
        observations: Observations,
        validation: Observations | None,
        checkpoints: dict[str, Checkpoint],
        callbacks: Sequence[Callback],
    ) -> list[Training[Chain[Any]]]:
        """Run all chains, and take over what they have come to."""
        seed, value_range = fixed_seed(self.random_state), None
        if self.value_range != "auto" or is_scale(observations.values):
            value_range = range_of(self.value_range, observations)
        done: list[Training[Chain[Any]]] = []
        for chain in range(self.chains):
            sampler = prepare(
                self._spec(observations.n_modes, seed, chain), observations, validation,
                value_range, self._schedule, self._threads(),
            )  # fmt: skip
            label = "sample" if self.chains == 1 else f"chain {chain + 1} of {self.chains}"
            kept = checkpoints.get(_stage(chain))
            done.append(run_chain(self, sampler, kept, callbacks, label=label, fewest=FEWEST_DRAWS))
            if done[-1].interrupted:
                break
        check_draws(done, self.burn_in)
        chains = [run.state for run in done if run.state.n_kept]  # one cut short may have none
        self.factors_ = sampler.posterior(chains)
        self.ids_, self.value_range_, self.calibration_ = observations.ids, value_range, None
        names = list(sampler.summaries(chains[0].draw))
        self.convergence_ = convergence(chains, names, self.burn_in)
        curve = [info for training in done for info in training.curve]
        self._describe(observations, curve, len(curve))
        return done

    @property
    def _schedule(self) -> Schedule:
        return Schedule(self.sweeps, self.burn_in, -(-self.samples // self.chains))

    def _checked(self, X: Any, y: Any) -> Observations:
        time = None if isinstance(X, Observations) else self.time
        observations = observe(X, y, duplicates=self.duplicates, time=time)
        n_modes = observations.n_modes
        if self.time is not None:
            if observations.time is None:
                raise DataError("time was set, but these observations have no times.")
            if n_modes != 2:
                raise DataError(f"time needs 2 id columns; got {n_modes}.")
        if self.implicit is True and n_modes != 2:
            raise DataError(f"implicit=True needs 2 id columns; got {n_modes}.")
        return observations

    def observed(self, X: Any, y: Any) -> Observations:
        """Observe values for a model that is fitted, with their times if it follows any."""
        time = None if isinstance(X, Observations) else self.time
        return observe(X, y, duplicates="last", ids=self.ids_, time=time)

    def _spec(self, n_modes: int, seed: int, chain: int = 0) -> Spec:
        rank = self.deviation_rank if self.deviation == "lowrank" else NOISE_RANK[self.deviation]
        implicit = n_modes == 2 if self.implicit == "auto" else bool(self.implicit)
        return Spec(self.rank, rank, self.likelihood, implicit, self.time is not None, seed, chain)

    def _warn_unless_converged(self, done: list[Training[Chain[Any]]]) -> None:
        """Tell of sampling that was interrupted, or that should have run for longer."""
        if done[-1].interrupted:
            many = self.chains * self._schedule.room
            interrupted(self, draws_worth(done, self.chains * self.sweeps, many))
        found = self.convergence_["predictions (median)"]
        if found["rhat"] > WORST_RHAT:
            warn(
                f"Predictions have not settled (split R-hat {found['rhat']:.2f}, which should be "
                f"below {WORST_RHAT}): raise sweeps (now {self.sweeps}) or burn_in (now "
                f"{self.burn_in}).",
            )

    def _encoded(self, X: Any) -> tuple[tuple[Codes, ...], npt.NDArray[Any] | None]:
        """Codes and times of cells, ids never seen after the last row."""
        check_is_fitted(self)
        if self.time is None:
            codes, time = encode_ids(X, self.ids_), None
        else:
            codes, time = encode_cells(X, self.ids_, self.time)
        return tuple(self.factors_.known_codes(m, code) for m, code in enumerate(codes)), time

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        codes, time = self._encoded(X)
        return Cells(self.factors_.moments(codes, self._threads(), time), self._unseen(codes))

    def _fold(self, mode: int, codes: Codes, values: Floats) -> Side:
        scale = self.factors_.scale
        if not self.factors_.spec.ordinal:
            z = standardised(values, scale.location, scale.scale)
            return fold_in(self.factors_, mode, codes, z)
        places = np.searchsorted(scale.levels, values)
        strange = scale.levels[np.minimum(places, len(scale.levels) - 1)] != values
        if strange.any():
            raise DataError(
                f"fold_in needs values among the levels {scale.levels.tolist()}; got "
                f"{values[strange][0]}."
            )
        return fold_in(self.factors_, mode, codes, places.astype(np.float32))

    def schema(self) -> Schema:
        """Declare what a file keeps: also the posterior."""
        yield from super().schema()
        yield from rating_schema(self, tuple(map(len, self.ids_)))
        yield Entry("convergence", "convergence_", record)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        self.factors_ = restored_ratings(self, found)


def _stage(chain: int) -> str:
    return "fit" if chain == 0 else f"chain{chain + 1}"
