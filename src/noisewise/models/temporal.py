"""TemporalFactorizer: what sensors have in common and what each does on its own, drawn together.

    value = biases + sum_d U_id V_jd T_kd + x_s(t) + e,   e ~ N(0, noise of the series)

with an Ornstein-Uhlenbeck process x_s over real time for every series s. All unknowns are drawn
again and again from their posterior (Gibbs sampling), and predictions are averaged over the draws.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from noisewise.calibration import Calibration
from noisewise.data import Observations, observe
from noisewise.data.timestamps import Units, checked_stamps
from noisewise.engine.gibbs.data import Spec
from noisewise.engine.gibbs.diagnostics import convergence
from noisewise.engine.gibbs.sampler import Chain, LaterHalf
from noisewise.engine.gibbs.series_sampler import SeriesPosterior, SeriesSampler
from noisewise.engine.training import Callback, Training
from noisewise.errors import warn
from noisewise.models.base import Cells, at_one_moment, in_one_step, interrupted
from noisewise.models.checkpoints import Checkpoint, Wanted, checkpoints_of
from noisewise.models.iterative import Learner, fixed_seed, joined, range_of, with_ids
from noisewise.models.sampled import (
    SensorEncoder,
    check_draws,
    check_schedule,
    draws_worth,
    run_chain,
    time_last,
)
from noisewise.models.sampled_storage import restored_series, series_schema
from noisewise.models.sensors import InTime, Typed, grouping_of, units_schema
from noisewise.schema import Entry, Found, Schema, record
from noisewise.settings import (
    check,
    either,
    learned,
    number,
    one_of,
    setting,
    settings,
    whole,
)

Table = dict[str, npt.NDArray[Any]]


@settings
class TemporalFactorizer(Learner, InTime, Typed):
    """Bayesian factorization of sensors, each of which also drifts on its own; nothing to tune.

    What sensors share is a low-rank tensor of any number of modes, one of them time. What a series
    does beyond that is an Ornstein-Uhlenbeck process over real elapsed time, however irregular, and
    white noise of a size of its own. In an outage, the others tell; between frequent readings, its
    own neighbours in time do. Values are standardised by type of sensor.

    Examples
    --------
    >>> rows = [(place, hour, np.sin(hour / 4) + (place == "attic") * hour / 40)
    ...         for place in ("hall", "attic", "cellar") for hour in range(48)]
    >>> model = TemporalFactorizer(rank=1, sweeps=100, tolerance=None, random_state=0)
    >>> model = model.fit([row for row in rows if row[0] != "hall" or not 20 < row[1] < 28])
    >>> mean, std = model.predict([("hall", 24)], return_std=True)
    >>> bool(abs(mean[0] - np.sin(24 / 4)) < 0.3)
    True
    """

    _std_is_honest: ClassVar[bool] = True

    rank: int = setting(
        whole(0),
        "Factors that sensors share. More are better as long as time allows.",
        default=32,
        kw_only=False,
    )
    noise: Literal["series", "lowrank"] = setting(
        one_of("series", "lowrank"),
        "The noise of a reading: a variance for every series, or a sum of products of factors of "
        "its ids and time.",
        default="series",
    )
    deviation_rank: int = setting(
        whole(1), 'Factors of the noise, for ``noise="lowrank"``.', default=2
    )
    sweeps: int = setting(whole(2), "How often to draw everything, at most.", default=500)
    burn_in: int = setting(
        whole(0),
        "Sweeps at the start that never count; of all others, the later half does.",
        default=20,
    )
    samples: int = setting(whole(1), "Draws to keep for predictions, at most.", default=100)
    tolerance: float | None = setting(
        either(number(above=0.0), None),
        "Stop once the mean of a typical prediction is settled to this share of its std. None runs "
        "all.",
        default=0.06,
    )

    encoder_: SensorEncoder = learned("How ids become rows of the sampler, and values standard.")
    posterior_: SeriesPosterior = learned("The draws that were kept.")
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
        X : table of ids or Observations
            One id column per mode, one of which holds the times: numbers or dates.
        y : sequence of float, optional
            The values; without it, the last column of X.
        validation : Observations, optional
            More readings, like those to be predicted: single ones, or whole outages. A chain
            without them says how far std and intervals must reach; then another learns from all.
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
            the fit. The model has the draws that its message tells of. Inside of burn-in, and while
            validation is used, there are none: it is a plain ``KeyboardInterrupt`` then, and the
            model is as it was.
        """
        started = clock.perf_counter()
        seen, held_out = self._given(X, y, validation)
        everything = seen if held_out is None else joined(seen, held_out)
        wanted = Wanted.checked(checkpoint, checkpoint_epochs, checkpoint_minutes)
        checkpoints = checkpoints_of(self, wanted, ["fit"], everything, len(seen))
        calibration = None if held_out is None else self._judged(seen, held_out)
        sampler, run = self._draw(everything, checkpoints.get("fit"), callbacks)
        self.calibration_ = calibration
        self._note_columns(X)
        self.seconds_ = clock.perf_counter() - started
        self._warn_unless_converged(sampler, run)
        for kept in checkpoints.values():
            kept.remove()
        return self

    @property
    @at_one_moment
    def noise_by_series_(self) -> Table:
        """What was learned of every series, as columns of a table.

        A column of ids for each mode but time; ``noise_std`` and ``drift_std`` in units of the
        values: how far single readings scatter, and how far the series wanders on its own;
        ``timescale``, the time after which it has forgotten all but 1/e of that, in units of the
        ids of time (seconds for dates); and ``observations``.

        A sensor that fails slowly drifts, and scatters no more than before: look at both.
        """
        check_is_fitted(self)
        posterior, encoder = self.posterior_, self.encoder_
        series = posterior.series
        scale = self.std_scale_ * np.sqrt(encoder.units.variance[encoder.grouping.sensors])
        of_modes = zip(encoder.modes[:-1], posterior.codes[:-1, series.starts[:-1]], strict=True)
        timescale, amplitude = (
            np.median(posterior.draws[name], axis=0) for name in ("timescales", "amplitudes")
        )
        return {self.ids_[m].name: self.ids_[m].labels[codes] for m, codes in of_modes} | {
            "noise_std": scale * np.sqrt(posterior.noise_by_series(self._threads())),
            "drift_std": scale * np.sqrt(amplitude),
            "timescale": timescale.astype(np.float64),
            "observations": series.counts,
        }

    def _judged(self, seen: Observations, held_out: Observations) -> Calibration:
        """Learn from a chain that has not seen some readings how far predictions are off."""
        trial = clone(self).fit(seen)
        return cast(Calibration, trial.calibrate(held_out).calibration_)

    def _spec(self, seed: int) -> Spec:
        noise_rank = self.deviation_rank if self.noise == "lowrank" else 0
        return Spec(self.rank, noise_rank, "gaussian", implicit=False, time=False, seed=seed)

    def _given(
        self, X: Any, y: Any, validation: Observations | None
    ) -> tuple[Observations, Observations | None]:
        """Check settings, and observe what to learn from and what to judge by."""
        check(self)
        check_schedule(self)
        seen = observe(X, y, duplicates=self.duplicates)
        if validation is None:
            return seen, None
        held_out = observe(validation, ids=seen.ids)
        return with_ids(seen, held_out), held_out

    def _draw(
        self, seen: Observations, checkpoint: Checkpoint | None, callbacks: Sequence[Callback]
    ) -> tuple[SeriesSampler, Training[Chain[Any]]]:
        """Run the chain, and take over what it has come to."""
        encoder = SensorEncoder.of(seen, self.time, self.sensor)
        data = encoder.series_data(seen)
        sampler = SeriesSampler(
            self._spec(fixed_seed(self.random_state)), data, encoder.timescales(data),
            LaterHalf(self.sweeps, self.burn_in, self.samples), self._threads(),
        )  # fmt: skip
        run = run_chain(self, sampler, checkpoint, callbacks)
        check_draws([run], self.burn_in)
        chain = run.state
        self.posterior_, self.encoder_, self.ids_ = sampler.posterior(chain), encoder, seen.ids
        self.value_range_ = range_of(self.value_range, seen)
        names, first = list(sampler.summaries(chain.draw)), sampler.schedule.first(chain.epoch)
        self.convergence_ = convergence([chain], names, first)
        self._describe(seen, run.curve, chain.epoch)
        return sampler, run

    def _warn_unless_converged(self, sampler: SeriesSampler, run: Training[Chain[Any]]) -> None:
        """Tell of sampling that was interrupted, or that should have run for longer."""
        if run.interrupted:
            many = len(sampler.schedule.kept_by(self.sweeps))
            interrupted(self, draws_worth([run], self.sweeps, many))
        error = sampler.mean_error(run.state)
        if self.tolerance is not None and not error < self.tolerance:
            told = f"the mean of a typical one may be off by {error:.2f} of its std"
            if error == math.inf:
                told = "so few do not tell how far off they are"
            warn(
                f"Predictions have not settled after {self.n_epochs_} sweeps: {told}, and "
                f"tolerance is {self.tolerance}. Raise sweeps (now {self.sweeps}), or tolerance.",
            )

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        codes, when = self.encoder_.encoded(X, self.ids_)
        return Cells(*self.encoder_.predicted(self.posterior_, codes, when, self._threads()))

    def schema(self) -> Schema:
        """Declare what a file keeps: also the posterior, and the units of values."""
        yield from super().schema()
        grouping = grouping_of(self, self.ids_)
        yield from series_schema(self, time_last(grouping))
        yield Entry("convergence", "convergence_", record)
        yield from units_schema("units.", "encoder_.units", grouping.n_sensors + 1)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        grouping, units = grouping_of(self, self.ids_), Units(**found.part("units"))
        bare = SensorEncoder(grouping, units, *checked_stamps(self.ids_[grouping.time]))
        self.posterior_ = restored_series(self, found, bare.shape, bare.times)
        self.encoder_ = bare.with_series(self.posterior_)
