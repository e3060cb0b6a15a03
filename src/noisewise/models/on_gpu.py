"""What models trained by gradient descent do on a GPU: the settings, a fit, many predictions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeVar

import numpy as np

from noisewise.data import Observations
from noisewise.data.ids import Seen
from noisewise.engine import devices
from noisewise.engine.arrays import Codes, Counts, Moments, Values
from noisewise.engine.devices import Device
from noisewise.engine.gibbs import gpu_fold_in as fold_in_draws
from noisewise.engine.gibbs import gpu_posterior
from noisewise.engine.gibbs.gpu_posterior import GpuPosterior
from noisewise.engine.gibbs.posterior import RatingPosterior
from noisewise.engine.sgd import gpu, gpu_fold_in, gpu_plan
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.gpu_factors import OnGpu, finalize
from noisewise.engine.sgd.gpu_state import GpuState, initial_state, sent
from noisewise.engine.sgd.layout import Params
from noisewise.engine.training import EpochInfo
from noisewise.errors import SettingError, warn
from noisewise.models.iterative import Fit, Plan
from noisewise.recommend import Lists, Sought, ranked
from noisewise.settings import Rule, one_of, setting, settings

MANY_CELLS = 5_000_000  # to predict, from which on it pays to send rows to a GPU
MANY_DRAWN = 50_000_000  # the same where each is predicted by every draw: cells times draws
MANY_ROWS = 5_000  # to recommend to
MANY_NEW = 100  # to fold in
RING_MODES = 2  # with more, a CPU is faster than a GPU with the same bits on every run

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

    def _on_device(
        self, there: Callable[[Device], T], here: Callable[[], T], seen: Any = None
    ) -> T:
        """Do one thing on the GPU that is chosen, or the other on the CPU, as with weights."""
        if seen is not None and seen.weight is not None:
            if self.device not in ("cpu", "auto"):
                raise SettingError(f'sample_weight needs device="cpu"; got {self.device!r}.')
            return here()
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
        "On a GPU: the same bits on every run, which takes longer; with more than two modes, the "
        "CPU trains. There they always are the same.",
        default=False,
    )

    def _options(self) -> gpu.Options:
        return gpu.Options(self.precision, self.deterministic)

    def _trained_on(
        self, seen: Observations, there: Callable[[Device], T], here: Callable[[], T]
    ) -> T:
        """Train on the GPU that is chosen, or on the CPU."""
        n_modes = seen.n_modes
        if self.device != "cpu" and self.deterministic and n_modes > RING_MODES:
            warn(
                f"deterministic=True trains {n_modes} id columns on the CPU, which is faster than "
                "a GPU that has the same bits on every run."
            )
            return here()
        return self._on_device(there, here, seen)


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


def best(device: Device, factors: Factors, rows: Codes, std_scale: float, sought: Sought) -> Lists:
    """Return the best columns for many rows of the first mode."""
    here, (n, _) = OnGpu(device, factors), factors.shortlist(sought.n)
    codes = here.top(
        rows, n, risk=sought.risk, std_scale=std_scale, seen=sought.seen, candidates=sought.columns
    )
    at, found = np.nonzero(codes >= 0)
    cells = rows[at], codes[at, found]
    return ranked(len(rows), at, cells[1], here.moments(cells), sought)


def best_of_draws(
    device: Device, posterior: RatingPosterior, rows: Codes, std_scale: float, sought: Sought
) -> Lists:
    """Return the best columns for many rows of the first mode, by a posterior."""
    asked = gpu_posterior.Sought(
        posterior.shortlist(sought.n)[0], sought.risk, std_scale, sought.seen, sought.columns
    )
    codes, moments = GpuPosterior(device, posterior).best(rows, asked)
    at, found = np.nonzero(codes >= 0)
    return ranked(len(rows), at, codes[at, found], moments, sought)


def moments_of_draws(
    device: Device, posterior: RatingPosterior, codes: tuple[Codes, ...], time: Any
) -> Moments:
    """Moments of many cells, by a posterior."""
    return GpuPosterior(device, posterior).moments(codes, time)


def best_columns(
    model: Any,
    here: Callable[..., Lists],
    there: Callable[..., Lists],
    mode: int,
    rows: Codes,
    sought: Sought,
) -> Lists:
    """Rank on the GPU of a model (``there``) where that pays, or else as it does ``here``."""
    few = len(rows) < MANY_ROWS or not len(sought.columns) or sought.likely is not None
    calibration = model.calibration_
    shaped = bool(sought.risk) and calibration is not None and calibration.shape is not None
    if model.device == "cpu" or mode != 0 or few or shaped:  # a GPU ranks by one scale for all
        return here(mode, rows, sought)
    lists: Lists = model._on_device(
        lambda device: there(device, model.factors_, rows, model.std_scale_, sought),
        lambda: here(mode, rows, sought),
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
