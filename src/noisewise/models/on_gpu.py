"""What models trained by gradient descent do on a GPU: the settings, a fit, many predictions."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise, repeat
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from noisewise.data import Observations
from noisewise.data.ids import Seen
from noisewise.engine import devices
from noisewise.engine.arrays import Codes, Counts, Moments, Values
from noisewise.engine.devices import Device
from noisewise.engine.gibbs import gpu_fold_in as fold_in_draws
from noisewise.engine.gibbs.gpu_posterior import GpuPosterior, Sought
from noisewise.engine.gibbs.posterior import RatingPosterior
from noisewise.engine.sgd import gpu, gpu_fold_in, gpu_plan
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.gpu_factors import OnGpu, finalize
from noisewise.engine.sgd.gpu_state import GpuState, initial_state, sent
from noisewise.engine.sgd.layout import Params
from noisewise.engine.training import EpochInfo
from noisewise.errors import SettingError, warn
from noisewise.models.iterative import Fit, Plan
from noisewise.models.new_row import Recommendation
from noisewise.settings import Rule, one_of, setting, settings

MANY_CELLS = 5_000_000  # to predict, from which on it pays to send rows to a GPU
MANY_DRAWN = 50_000_000  # the same where each is predicted by every draw: cells times draws
MANY_ROWS = 5_000  # to recommend to
MANY_NEW = 100  # to fold in; of draws, the fewer there are
LISTED = 50_000  # lists that are made at a time, so that what is needed on the way is soon free

T = TypeVar("T")


@settings
class OnDevice:
    """Base class of models that can be trained on a GPU."""

    device: str = setting(
        Rule(
            "'cpu', 'auto', 'cuda' or a GPU by its number, such as 'cuda:1'",
            lambda v: isinstance(v, str) and devices.NAMES.fullmatch(v) is not None,
        ),
        "Where to train: on the CPU, on a GPU (of several, the one with this number), or on a GPU "
        "if there is one. No file keeps it.",
        default="cpu",
    )

    def _on_device(self, there: Callable[[Device], T], here: Callable[[], T]) -> T:
        """Do one thing on the GPU that is chosen, or the other on the CPU."""
        device = devices.chosen(self.device)
        if device is None:
            return here()
        try:
            with device.active(), devices.enough_memory(device):
                return there(device)
        except devices.TooLittleMemory as error:
            if self.device != "auto":
                raise
            warn(f"device='auto' takes the CPU. {error}")
        finally:
            device.release()
        return here()


@settings
class FactorsOnDevice(OnDevice):
    """Base class of models by gradient descent that can be trained on a GPU."""

    precision: Literal["single", "half"] = setting(
        one_of("single", "half"),
        "On a GPU: half keeps the factors of the shorter mode in 16 bits, which is faster; where "
        "training gets worse by it, a warning says so and it goes on in single. Two modes only.",
        default="single",
    )
    deterministic: bool = setting(
        one_of(True, False),
        "On a GPU: the same bits on every run, which takes longer. On a CPU they always are.",
        default=False,
    )

    def _options(self) -> gpu.Options:
        return gpu.Options(self.precision, self.deterministic)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Keep Python from looking for garbage, again and again, among millions of new objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def fit_factors(
    device: Device,
    options: gpu.Options,
    params: Params,
    data: Observations,
    held_out: Observations | None,
    plan: Plan,
    advice: str,
) -> Fit:
    """Train on observations, watching held-out ones if there are any."""
    if options.precision == "half" and data.n_modes > 2:
        raise SettingError(f"precision='half' needs 2 id columns; got {data.n_modes}.")
    ratings = gpu.Ratings(device, params, options, data.codes, data.values, data.shape)
    state = initial_state(device, params, ratings.counts)
    return _trained(ratings, state, ratings.counts, held_out, plan, advice)


def continue_factors(
    device: Device,
    options: gpu.Options,
    old: Factors,
    data: Observations,
    plan: Plan,
    advice: str,
) -> Fit:
    """Train on from what was learned, visiting only new observations; their ids extend the old."""
    units = old.location, old.scale
    ratings = gpu.Ratings(device, old.params, options, data.codes, data.values, data.shape, units)
    counts = tuple(
        new + np.pad(count, (0, len(new) - len(count)))
        for count, new in zip(old.counts, ratings.counts, strict=True)
    )
    return _trained(ratings, sent(device, old.grown(counts)), counts, None, plan, advice)


def _trained(
    ratings: gpu.Ratings,
    state: GpuState,
    counts: tuple[Any, ...],
    held_out: Observations | None,
    plan: Plan,
    advice: str,
) -> Fit:
    location, scale, params = ratings.location, ratings.scale, ratings.params

    def step(state: GpuState) -> EpochInfo:
        info = ratings.epoch(state)
        rmse, nll = info.train_rmse * scale, info.train_nll + math.log(scale)
        return replace(info, train_rmse=rmse, train_nll=nll)

    watched = None
    if held_out is not None:
        cells, truth = held_out.codes, held_out.values
        watched = gpu.HeldOut(ratings, cells, truth, plan.value_range).judge
    warmup = params.warmup if params.deviation_rank else 0
    training = plan.train(state, step, watched, warmup=warmup, advice=advice)
    chosen = training.chosen
    factors = finalize(ratings.device, params, chosen, counts, location, scale)
    return Fit(factors, chosen.epoch, training.curve, training.interrupted)


def seen(device: Device, observations: Observations) -> Seen:
    """Remember cells, as ``Seen.of`` does."""
    codes = tuple(map(device.on_device, observations.codes))
    starts, columns = gpu_plan.seen(device.xp, codes, observations.shape)
    return Seen(device.on_host(starts), device.on_host(columns))


def moments(device: Device, factors: Factors, codes: tuple[Codes, ...]) -> Moments:
    """Moments of many cells."""
    return OnGpu(device, factors).moments(codes)


def best(
    device: Device,
    factors: Factors,
    rows: Codes,
    n: int,
    ranking: dict[str, Any],
    finished: Callable[[Moments], Moments],
    labels: npt.NDArray[Any],
) -> list[list[Recommendation]]:
    """Return the best n columns for many rows.

    ``ranking`` is what ``OnGpu.top`` is told; ``finished`` clips and calibrates moments; ``labels``
    has the ids of columns.
    """
    here = OnGpu(device, factors)
    codes = here.top(rows, n, **ranking)
    many = (codes >= 0).sum(axis=1)
    found = here.moments((np.repeat(rows, many), codes[codes >= 0]))
    return _lists(codes, finished(found), labels)


def best_of_draws(
    device: Device,
    posterior: RatingPosterior,
    rows: Codes,
    n: int,
    ranking: dict[str, Any],
    finished: Callable[[Moments], Moments],
    labels: npt.NDArray[Any],
) -> list[list[Recommendation]]:
    """Return the best n columns for many rows, by a posterior; see ``best``."""
    codes, found = GpuPosterior(device, posterior).best(rows, Sought(n, **ranking))
    return _lists(codes, finished(found), labels)


def moments_of_draws(
    device: Device, posterior: RatingPosterior, codes: tuple[Codes, ...], time: Any
) -> Moments:
    """Moments of many cells, by a posterior."""
    return GpuPosterior(device, posterior).moments(codes, time)


def recommend_many(
    model: Any,
    here: Callable[..., list[list[Recommendation]]],
    there: Callable[..., list[list[Recommendation]]],
    ids: Sequence[Any],
    n: int,
    chosen: dict[str, Any],
) -> list[list[Recommendation]]:
    """Recommend on the GPU of a model (``there``) where that pays, or else as it does ``here``."""
    if chosen["candidates"] is not None:
        chosen["candidates"] = list(chosen["candidates"])
    sound = n > 0 and np.isfinite(chosen["risk"]) and chosen["by"] == "value"
    sound &= not (chosen["exclude_seen"] and model.seen_ is None) and len(model.ids_) == 2
    if model.device == "cpu" or len(ids) < MANY_ROWS or not sound:
        return here(ids, n, **chosen)
    allowed = chosen["candidates"]
    ranking = {
        "risk": chosen["risk"], "std_scale": model.std_scale_,
        "seen": model.seen_ if chosen["exclude_seen"] else None,
        "candidates": None if allowed is None else model._codes(1, allowed),
    }  # fmt: skip
    rows = model.factors_.known_codes(0, model._codes(0, ids))
    parts = rows, n, ranking, model._calibrated, model.ids_[1].labels
    lists: list[list[Recommendation]] = model._on_device(
        lambda device: there(device, model.factors_, *parts), lambda: here(ids, n, **chosen)
    )
    return lists


def new_rows(
    model: Any,
    here: Callable[..., list[Any]],
    mode: int,
    starts: Counts,
    codes: Codes,
    values: Values,
) -> list[Any]:
    """Fold in on the GPU of a model where that pays, or else as it does ``here``."""
    factors, many = model.factors_, len(starts) - 1
    given = mode, starts, codes, values
    if model.device == "cpu" or many < MANY_NEW:
        return here(*given)
    fold = gpu_fold_in.fold_in_many if isinstance(factors, Factors) else fold_in_draws.fold_in_many

    def there(device: Device) -> list[Any]:
        side = fold(device, factors, *given)
        return [side.part(slice(k, k + 1)) for k in range(many)]

    sides: list[Any] = model._on_device(there, lambda: here(*given))
    return sides


def _lists(codes: Codes, moments: Moments, labels: npt.NDArray[Any]) -> list[list[Recommendation]]:
    """Return columns, -1 where there is none, with their moments as lists of recommendations."""
    mean, noise, epistemic = moments
    std = np.sqrt(noise + epistemic)
    names = np.empty(len(labels), dtype=object)
    names[:] = labels.tolist()  # one object for each id, however often it is listed
    lists: list[list[Recommendation]] = []
    first = 0
    with _nothing_collected():
        for start in range(0, len(codes), LISTED):
            some = codes[start : start + LISTED]
            ends = np.cumsum((some >= 0).sum(axis=1)).tolist()
            part = slice(first, first + ends[-1])
            columns = names[some[some >= 0]], mean[part], std[part]
            triples = zip(*(column.tolist() for column in columns), strict=True)
            # As _make does, but without a call of Python for each of millions.
            described = list(map(tuple.__new__, repeat(Recommendation), triples))
            lists += [described[a:b] for a, b in pairwise([0, *ends])]
            first = part.stop
    return lists
