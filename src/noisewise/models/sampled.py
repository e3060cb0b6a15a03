"""What sampled models share: chains, what their draws are worth, and what files keep of them."""

from __future__ import annotations

import math
import time as clock
from abc import abstractmethod
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from noisewise import schema
from noisewise.data import Observations, observe
from noisewise.engine.data import Scale, Spec, Timeline
from noisewise.engine.gibbs.posterior import RatingPosterior
from noisewise.engine.gibbs.sampler import Chain
from noisewise.engine.gibbs.schedule import Schedule
from noisewise.engine.gibbs.sweep import EFFECTS, convergence
from noisewise.engine.rounding import coded, decoded
from noisewise.engine.sharded import Sharded
from noisewise.engine.training import Callback, EpochInfo, Training, one_blas_thread, train
from noisewise.engine.workers import Cluster
from noisewise.errors import FitInterrupted, SettingError, training_bar, warn
from noisewise.models.arranged import matrices
from noisewise.models.base import in_one_step
from noisewise.models.lead import fit_at
from noisewise.models.learner import Checkpoint, Given, How, Learner, checkpoints_of, with_ids
from noisewise.schema import Entry, Found, Schema, Tensor
from noisewise.settings import check, either, learned, number, setting, settings, whole
from noisewise.storage import Damaged

FEWEST_DRAWS = 2  # one alone would say that nothing is unknown

Run = Training[Chain[Any]]
Sizes = dict[str, tuple[str, tuple[int, ...]]]  # type and size of every part of a draw


class Coded(NamedTuple):
    """A tensor of half precision that takes a byte a number where its rows were rounded."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    of: schema.Place
    rule: schema.Rule = schema.ANYTHING

    def write(self, value: Any, header: dict[str, Any], tensors: Any) -> None:
        """Put it among the tensors."""
        both = value.coded() if isinstance(value, Sharded) else coded(value)
        if both is None:
            tensors[self.name] = value
        else:
            tensors[f"{self.name}.multiples"], tensors[f"{self.name}.powers"] = both

    def read(self, source: schema.Source) -> Any:
        """Return it as declared."""
        if f"{self.name}.multiples" not in source.tensors:
            return Tensor(*self).read(source)
        multiples = source.array(f"{self.name}.multiples", "uint8", *self.shape)
        found = decoded(multiples, source.array(f"{self.name}.powers", "uint8", *self.shape[:-1]))
        if found is None:
            raise source.damaged("is out of bounds", f"{self.name}.powers")
        return found


@settings
class Sampled(Learner):
    """Base class of models whose unknowns are drawn from their posterior (``_draw``)."""

    _std_is_honest: ClassVar[bool] = True
    _on_clusters: ClassVar[bool] = False  # whether workers of a cluster can sample it

    sweeps: int = setting(whole(2), "How often to draw everything, at most.", default=300)
    burn_in: int = setting(whole(0), "Sweeps at the start that do not count.", default=50)
    samples: int = setting(
        whole(1), "Draws to keep for predictions, of all chains together, at most.", default=100
    )
    tolerance: float | None = setting(
        either(number(above=0.0), None),
        "Stop early once predictions are settled to this share of the noise's std. None runs all.",
        default=None,
    )

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
        cluster: str | Cluster | None = None,
    ) -> Self:
        """Draw from the posterior, given a table of ids and a value for each row.

        Parameters
        ----------
        X : table of ids, sparse matrix or Observations
            One id column per mode (see ``noisewise.observe``), and the column of times, if any.
        y : sequence of float, optional
            The values; without it, the last column of X.
        validation : Observations, optional
            More values. A ``BayesianFactorizer`` watches the running mean by them, and does not
            train on them. For a ``TemporalFactorizer`` they should be like those to be predicted,
            single readings or whole outages: a chain without them says how far std and intervals
            must reach; then another learns from all.
        callbacks : sequence of callables
            Called with (EpochInfo, Chain) after each sweep; one that returns True ends sampling.
        checkpoint : path or None
            Keep the state of sampling in this file, and go on from it if it is there. The file is
            removed when sampling has ended.
        checkpoint_epochs, checkpoint_minutes : int, float or None
            Write it after so many sweeps, or minutes, whichever comes first.
        cluster : str or Cluster, optional
            Sample on a cluster of Ray ("local", "auto", "ray://host:port"): no bit changes.

        Raises
        ------
        FitInterrupted
            At Ctrl-C, after the sweep is finished. The model has the draws that its message tells
            of; where there are none, it is a ``KeyboardInterrupt``, and the model is as it was.
        """
        kept = checkpoint, checkpoint_epochs, checkpoint_minutes
        return self._fit(Given(X, y, validation), How(callbacks, kept, cluster))

    def _fit(self, given: Given, how: How) -> Self:
        """Fit here or on a cluster, which may read the ratings itself."""
        fit_at(self._place(how.cluster), self, self._train, given, how)
        return self

    def _train(
        self, given: Given, callbacks: Sequence[Callback], wanted: Checkpoint | None
    ) -> None:
        started, validation = clock.perf_counter(), given.validation
        seen = self._observed(given)
        if validation is not None:
            validation = observe(validation, ids=seen.ids)
            seen = with_ids(seen, validation)
        checkpoints = self._checkpoints(wanted, seen, validation)
        runs, told = self._draw(seen, validation, checkpoints, callbacks)
        self._note_columns(given.X)
        self.seconds_ = clock.perf_counter() - started
        if runs[-1].interrupted:
            raise FitInterrupted(self._worth(runs), self)
        if told is not None:
            warn(f"Predictions have not settled {told}")
        for kept in checkpoints.values():
            kept.remove()

    def _place(self, cluster: Any) -> Cluster | None:
        """Return where to sample; raise for settings that cannot be meant."""
        check(self)
        if self.burn_in >= self.sweeps:
            raise SettingError(
                f"sweeps must be more than burn_in; got {self.sweeps} and {self.burn_in}."
            )
        return super()._place(cluster)

    @abstractmethod
    def _observed(self, given: Given) -> Observations:
        """Observe what to learn from."""

    @abstractmethod
    def _draw(
        self,
        seen: Observations,
        held_out: Observations | None,
        checkpoints: dict[str, Checkpoint],
        callbacks: Sequence[Callback],
    ) -> tuple[list[Run], str | None]:
        """Run all chains, take over what they have come to, and say why they should go on."""

    @property
    @abstractmethod
    def _schedule(self) -> Schedule:
        """How long a chain runs, and which of its draws are kept."""

    @property
    def _stages(self) -> list[str]:
        """The names of chains, for their checkpoints."""
        return ["fit"]

    def _checkpoints(
        self, wanted: Checkpoint | None, seen: Observations, held_out: Observations | None
    ) -> dict[str, Checkpoint]:
        return checkpoints_of(self, wanted, self._stages, seen, len(seen), held_out)

    def _run(
        self,
        sampler: Any,
        checkpoint: Checkpoint | None,
        callbacks: Sequence[Callback],
        *,
        label: str = "sample",
        fewest: int = 0,
    ) -> Run:
        """Run one chain until predictions are known to the tolerance, of so many draws at least."""

        def converged(info: EpochInfo, state: Chain[Any]) -> bool:
            if self.tolerance is None or state.n_kept < fewest:
                return False
            return bool(sampler.mean_error(state) < self.tolerance)

        with one_blas_thread():
            return train(
                sampler.start(),
                sampler.step,
                epochs=self.sweeps,
                validate=sampler.validate if getattr(sampler, "query", None) is not None else None,
                keep_best=False,
                callbacks=(converged, *callbacks),
                checkpoint=checkpoint,
                bar=training_bar(label, unit="sweep", verbose=self.verbose),
                advice="Values far from all others may be errors: look at them.",
            )

    def _chains(self, seen: Observations, sampler: Any, runs: list[Run]) -> list[Chain[Any]]:
        """Return chains that have draws, of which there must be some; note how they went."""
        last = runs[-1]
        few = sum(run.state.n_kept for run in runs) < FEWEST_DRAWS
        if few and (last.interrupted or last.stopped):
            told = f"after sweep {last.state.epoch}, with burn_in={self.burn_in}: that leaves no"
            if not last.interrupted:
                raise SettingError(f"A callback ended sampling {told} posterior; let it run on.")
            raise KeyboardInterrupt(
                f"Sampling was interrupted {told} posterior, and the model is as it was."
            )
        chains = [run.state for run in runs if run.state.n_kept]  # one cut short may have none
        first = self._schedule.first(chains[0].epoch)
        self.convergence_ = convergence(chains, sampler.names, first)
        curve = [info for run in runs for info in run.curve]
        self.ids_ = seen.ids
        self._describe(seen, curve, len(curve))
        return chains

    def _worth(self, runs: list[Run]) -> str:
        """Say what draws are worth whose sampling was interrupted."""
        done, many, chosen = (
            sum(r.state.epoch for r in runs),
            len(self._stages),
            self._schedule.chosen,
        )
        draws = sum(len(chosen(run.state.n_kept)) for run in runs)
        wanted = many * len(chosen(len(self._schedule.kept_by(self.sweeps))))
        return (
            f"Sampling was interrupted after sweep {done} of {many * self.sweeps}: the model "
            f"predicts from {draws} draws, and would have had {wanted}."
        )


def rating_schema(model: Any, shape: tuple[int, ...]) -> Schema:
    """Declare what a file keeps of ``factors_``, a posterior of ratings."""
    n, half, number = yield from _head("factors_")
    spec = model._spec(len(shape), number)
    side = sum(len(table) for table in model.features_.values())
    yield Entry("posterior.location", "factors_.scale.location", schema.real())
    yield Entry("posterior.scale", "factors_.scale.scale", schema.real(above=0.0))
    yield Entry("posterior.range", _ends, _range)
    anchor = yield Entry("posterior.anchor", "factors_.scale.anchor", schema.integer())
    rule = schema.RISING if spec.ordinal else schema.ANYTHING
    levels = yield Tensor("levels", "float32", (schema.ANY,), "factors_.scale.levels", rule)
    if spec.ordinal and not 1 <= anchor < len(levels):
        raise Damaged("its scale of values makes no sense")
    sizes = _rating_sizes(spec, shape, len(levels), half, side)
    for mode in (0, 1) if spec.time else ():
        name, of = f"timeline{mode}", "factors_.timeline"
        starts = yield Tensor(
            f"{name}.starts", "int64", (shape[mode] + 1,), f"{of}.starts.{mode}", schema.STARTS
        )
        size, rule = (int(starts[-1]),), schema.below(shape[1 - mode])
        yield Tensor(f"{name}.times", "float64", size, f"{of}.times.{mode}")
        yield Tensor(f"{name}.others", "int32", size, f"{of}.others.{mode}", rule)
        sizes[f"gaps{mode}"] = (half, (size[0] + shape[mode],))
    yield from _draws("factors_", n, sizes)
    yield from _counts("factors_", shape)


def restored_ratings(model: Any, found: Found) -> RatingPosterior:
    """Make the posterior of what ``rating_schema`` declares."""
    shape, own = tuple(map(len, model.ids_)), found.part("posterior")
    low, high = own["range"]
    scale = Scale(own["location"], own["scale"], low, high, found["levels"], own["anchor"])
    spec, timeline = model._spec(len(shape), own["seed"]), None
    if spec.time:
        both = [found.part(f"timeline{mode}") for mode in (0, 1)]
        timeline = Timeline(*(tuple(part[name] for part in both) for name in Timeline._fields))
    cold = matrices(model.features_, len(shape))
    return RatingPosterior(spec, shape, *_common(found, shape), scale, timeline, cold)


def _head(place: str) -> Generator[Any, Any, tuple[int, str, int]]:
    """Declare how many draws there are, of which type, and their seed; return them."""
    n = yield Entry("posterior.draws", lambda model: len(getattr(model, place)), schema.integer(1))
    half = yield Entry(
        "posterior.half",
        lambda model: getattr(model, place).draws["factors"].dtype == np.float16,
        schema.flag,
    )
    number = yield Entry("posterior.seed", f"{place}.spec.seed", schema.seed)
    return n, "float16" if half else "float32", number


def _draws(place: str, n: int, sizes: Sizes) -> Schema:
    for name, (dtype, size) in sizes.items():
        rule = schema.POSITIVE if name in ("noise", "level") else schema.ANYTHING
        kind = Coded if dtype == "float16" and name in ("factors", "features") else Tensor
        yield kind(f"draws.{name}", dtype, (n, *size), f"{place}.draws.{name}", rule)


def _counts(place: str, shape: tuple[int, ...]) -> Schema:
    for m, rows in enumerate(shape):
        yield Tensor(f"mode{m}.counts", "int64", (rows,), f"{place}.counts.{m}", schema.COUNTS)


def _common(found: Found, shape: tuple[int, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(found[f"mode{m}.counts"] for m in range(len(shape))), found.part("draws")


def _ends(model: Any) -> list[float | None]:
    scale = model.factors_.scale
    return [None if math.isinf(end) else end for end in (scale.low, scale.high)]


def _range(value: Any) -> tuple[float, float] | None:
    """Return both ends, infinite where there is none; they are the same where all values were."""
    low, high = (
        default if end is None else float(end)
        for end, default in zip(value, (-math.inf, math.inf), strict=True)
    )
    return (low, high) if low <= high else None


def _sizes(spec: Spec, shape: tuple[int, ...], half: str) -> Sizes:
    rows, modes, D1, K = sum(shape), len(shape), spec.rank + 1, spec.noise_rank
    return {
        "factors": (half, (rows, spec.rank)),
        "biases": (half, (rows,)),
        "noise": ("float32", (rows, K)),
        "level": ("float32", (max(K, 1),)),
        "typical": ("float32", (modes, D1)),
        "covariances": ("float32", (modes, D1, D1)),
    }


def _rating_sizes(spec: Spec, shape: tuple[int, ...], n_levels: int, half: str, side: int) -> Sizes:
    rows, modes, D1 = sum(shape), len(shape), spec.rank + 1
    many, wide = n_levels - 2 if spec.ordinal else 0, D1 + spec.noise_rank
    cold: Sizes = {
        "cold_weights": (half, (side, wide)),
        "cold_centres": ("float32", (modes, wide)),
        "cold_covariances": ("float32", (modes, D1, D1)),
    }
    return (
        _sizes(spec, shape, half)
        | (cold if side else {})
        | {
            "centres": ("float32", (modes, D1)),
            "precisions": ("float32", (modes, D1, D1)),
            "features": (half, ((rows if spec.implicit else 0) + side, D1)),
            "widths": (half, (shape[0], many)),
            "width_centre": ("float32", (many,)),
            "temporal_settings": ("float32", (len(EFFECTS) if spec.time else 0, 2)),
        }
    )
