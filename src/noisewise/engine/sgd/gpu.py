"""DMF, Biased MF, DTF and PTF on a GPU: epochs and predictions, with the equations of the CPU.

``Ratings`` holds observations in the order in which the kernels of ``kernels.cu`` visit them: on
the GPU, or in pieces that are sent there one after the other in every epoch, if they do not fit.
``GpuState`` is carried from epoch to epoch by the one training loop; its rows have the layout of
``layout.py``, so that a model trained here is the same file, and predicts anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import numpy as np

from noisewise.engine.arrays import Codes, Counts, Values
from noisewise.engine.devices import WARP, Device, too_little
from noisewise.engine.sgd import gpu_plan
from noisewise.engine.sgd.gpu_plan import Order
from noisewise.engine.sgd.gpu_state import (
    GpuState,
    halved,
    laid_out,
    made_whole,
    merge,
    release_deviation,
    stride,
)
from noisewise.engine.sgd.layout import BIAS, Layout, Params
from noisewise.engine.training import EpochInfo, mean_in_units, standardised
from noisewise.errors import warn

LEAST_VARIANCE = 1e-6  # of residuals: values that are all alike must not divide by zero
BETAS = {0.0: 0, 0.25: 1, 0.5: 2}  # that the kernels have roots for
WORSE = 1.001  # training error with half precision over that with single, beyond which it is left
NO_REPLICAS: Counts = np.empty(0, dtype=np.int64)
STREAMED = 1  # whether rows of one warp alone leave the cache first
COPIES = 3.5  # of the rows of a model: trained, best so far, and what it takes to make them


class Options(NamedTuple):
    """What a user chose of the way to train on a GPU."""

    precision: Literal["single", "half"] = "single"
    deterministic: bool = False


class Ratings:
    """Observations on a GPU, or beside it, and the kernels that visit them.

    Parameters
    ----------
    device, params, options
        Where, what and how to train.
    codes, values, shape
        Row of each mode, and the value, of every observation; rows of each mode.
    units
        Location and scale of values; None measures them.

    Attributes
    ----------
    location, scale
        Values are standardised by these.
    counts
        Observations of every row, per mode.
    """

    device: Device
    params: Params
    shape: tuple[int, ...]
    n: int
    is_ring: bool
    kernels: Kernels
    resident: bool
    location: float
    scale: float

    def __init__(
        self,
        device: Device,
        params: Params,
        options: Options,
        codes: tuple[Codes, ...],
        values: Values,
        shape: tuple[int, ...],
        units: tuple[float, float] | None = None,
    ) -> None:
        self.device, self.params, self.shape, self.n = device, params, shape, len(values)
        self.is_ring = options.deterministic or (
            self.n < gpu_plan.RING_BELOW and len(shape) == 2  # the shortest of more would limit it
        )
        self.kernels = Kernels(device, params, len(shape), self.is_ring)
        self._halved = None
        if options.precision == "half" and len(shape) == 2:
            self._halved = Kernels(device, params, len(shape), self.is_ring, half=True)
        self._best = math.inf  # training error of an epoch with half precision
        most = self._room() // gpu_plan.SORTING_BYTES
        self.resident = self.n <= most
        if self.resident:
            codes = tuple(map(device.on_device, codes))
            values = device.on_device(values)
        self.location, self.scale = measured(values) if units is None else units
        values = standardised(values, self.location, self.scale)
        xp = device.xp if self.resident else np
        counted = [xp.bincount(c, minlength=n) for c, n in zip(codes, shape, strict=True)]
        if self.resident:
            self._orders = [self._ordered(codes, values)]
            counted = [device.on_host(count) for count in counted]
        else:
            self._orders = list(self._in_pieces(codes, values, counted, max(1, most // 2)))
        self.counts: tuple[Counts, ...] = tuple(counted)

    def _room(self) -> int:
        """Bytes that observations may take beside the rows of a model."""
        rows = int(COPIES * 4 * self.params.layout.width * sum(self.shape))
        free = self.device.free_bytes()
        if rows > free:
            raise too_little(self.device, rows, f"Training {_sum(self.shape)} rows")
        return free - rows

    def _in_pieces(
        self, codes: tuple[Codes, ...], values: Values, counts: list[Counts], most: int
    ) -> Iterator[Order]:
        """Put observations in order piece by piece, each with rows of the longest mode alone."""
        device = self.device
        longest = max(range(len(self.shape)), key=lambda m: self.shape[m])
        piece = gpu_plan.pieces(counts[longest], most)[codes[longest]]
        for k in range(int(piece.max()) + 1):
            own = np.flatnonzero(piece == k)
            if len(own):
                here = tuple(device.on_device(code[own]) for code in codes)
                order = self._ordered(here, device.on_device(values[own]))
                yield order.with_arrays([device.pinned(array) for array in order.arrays])

    def _ordered(self, codes: tuple[Any, ...], values: Any) -> Order:
        xp, workers = self.device.xp, self.kernels.workers
        if not self.is_ring:
            return gpu_plan.in_runs(xp, codes, values, self.shape, workers)
        side = gpu_plan.ring_side(len(values), self.shape, workers)
        return gpu_plan.in_ring(xp, codes, values, self.shape, side)

    def pieces(self) -> Iterator[Order]:
        """Yield observations that are on the GPU; the next ones come while these are visited."""
        if self.resident:
            yield from self._orders
            return
        coming = self._sent(self._orders[0])
        for k in range(len(self._orders)):
            self.device.arrived()
            here = coming
            if k + 1 < len(self._orders):
                with self.device.uploading():
                    coming = self._sent(self._orders[k + 1])
            yield here

    def _sent(self, order: Order) -> Order:
        return order.with_arrays([self.device.on_device(array) for array in order.arrays])

    def epoch(self, state: GpuState) -> EpochInfo:
        """Visit every observation once; the report is in standardised units.

        Half precision is on trial: in its first epoch, and in the first with deviation factors, it
        is held against single precision, and later against itself. Where it is worse, it is left.
        """
        if state.epoch == self.params.warmup:
            release_deviation(state, self.params)
        if self._halved is None:
            return self._epoch(state, self.kernels)
        known = None
        if self._best == math.inf or state.epoch == self.params.warmup:
            known = state.copy()
            self._best = WORSE * self._epoch(known, self.kernels).train_rmse
        info = self._epoch(state, self._halved)
        if not info.train_rmse <= self._best:
            self._halved = None
            warn(
                f"Half precision has a training error of {info.train_rmse:.5f} in epoch "
                f"{info.epoch}, where {self._best:.5f} was expected (in standard deviations of the "
                "values): training goes on in single precision."
            )
            if known is not None:
                state.rows, state.variance = known.rows, known.variance
        self._best = min(self._best, WORSE * info.train_rmse)
        return info

    def _epoch(self, state: GpuState, kernels: Kernels) -> EpochInfo:
        params = self.params
        learn = params.deviation_rank > 0 and state.epoch >= params.warmup
        rng = np.random.default_rng([params.seed, 2, state.epoch])
        squared = scaled = 0.0
        for order in self.pieces():
            sums = kernels.visit(state, order, learn, rng)
            squared, scaled = squared + sums[0], scaled + sums[1]
        if not params.biases:
            for own in state.rows:
                own[:, BIAS] = 0.0  # their steps were nearly nothing, and should be nothing
        return _reported(state, params, learn, squared / self.n, scaled / self.n)


def _reported(
    state: GpuState, params: Params, learn: bool, squared: float, scaled: float
) -> EpochInfo:
    """Count the epoch, and report as ``strata.epoch`` does."""
    state.epoch += 1
    if not learn:
        scaled = math.log(state.variance) + squared / state.variance
        floor = LEAST_VARIANCE if len(state.rows) == 2 else params.delta
        state.variance = max(squared, floor)
    if params.deviation_rank == 0:
        scaled = math.log(state.variance) + squared / state.variance
    nll = 0.5 * (math.log(2.0 * math.pi) + scaled)
    return EpochInfo(state.epoch, math.sqrt(squared), nll)


class Kernels:
    """The kernels of ``kernels.cu`` for a layout of rows."""

    device: Device
    params: Params
    half: bool
    resident: int
    workers: int

    def __init__(
        self, device: Device, params: Params, n_modes: int, is_ring: bool, half: bool = False
    ) -> None:
        self.device, self.params, self.half = device, params, half
        layout = params.layout
        self.resident = _resident(layout, n_modes)
        told = {
            "MODES": n_modes,
            "MEAN": layout.mean,
            "DEVIATION": layout.deviation,
            "PER_ROW": int(layout.copies == 1),
            "SHARES": int(params.penalty == "row"),
            "BETA": BETAS.get(params.beta, 3),
            "HALF": (1 if is_ring else 2) if half else 0,
            "RING": int(is_ring),
            "FULL_STRIDE": 4 * stride(layout.width),
            "HALF_STRIDE": 4 * stride(layout.width - (layout.mean + layout.deviation) // 2),
            "AHEAD": 4 if is_ring else 0,
            "STREAMED": STREAMED,
            "RESIDENT": self.resident,
        }
        options = tuple(f"-D{name}={value}" for name, value in told.items())
        here = files(__package__)
        source = "".join(here.joinpath(name).read_text() for name in ("rows.cu", "kernels.cu"))
        self._kernel = device.compiled(source, options)
        self.workers = device.workers(self.resident)

    def visit(
        self, state: GpuState, order: Order, learn: bool, rng: np.random.Generator
    ) -> tuple[float, float]:
        """Visit observations; return squared errors, and twice the likelihood, summed."""
        xp, stage = self.device.xp, "learn" if learn else "warmup"
        rows = [state.rows[m] for m in order.modes]
        for place, extra in order.replicas.items():
            rows[place] = laid_out(xp, rows[place], rows[place][xp.asarray(extra)])
        short = 0 if order.side else 1  # place of the mode that has half precision
        if self.half:
            rows[short] = halved(xp, rows[short], state.layout)
        work = self._work(state, rows, order.codes, order.values)
        if order.side:
            sums = xp.zeros((order.side, 2))
            steps = (len(order.starts) - 1) // order.side
            labels = gpu_plan.labels(len(rows), order.side, rng)
            progress = xp.zeros(order.side, dtype=np.uint32)
            self._kernel(f"ring_{stage}", order.side)(
                *work, np.int64(order.side), order.starts, np.int64(steps),
                self.device.on_device(labels), progress, sums,
            )  # fmt: skip
        else:
            sums, runs = xp.zeros((self.workers, 2)), len(order.starts) - 1
            stride, offset = gpu_plan.affine(runs, rng)
            self._kernel(f"race_{stage}", self.workers)(
                *work, np.int64(self.workers), order.starts, np.int64(runs), np.int64(stride),
                np.int64(offset), sums,
            )  # fmt: skip
        if self.half:
            rows[short] = made_whole(xp, rows[short], state.layout)
        for place in {*order.replicas, *([short] if self.half else [])}:
            extra = order.replicas.get(place, NO_REPLICAS)
            merge(xp, state.rows[order.modes[place]], rows[place], extra, state.layout)
        squared, scaled = self.device.on_host(sums.sum(axis=0)).tolist()
        return squared, scaled

    def predict(self, state: GpuState, codes: tuple[Any, ...]) -> tuple[Any, Any]:
        """Mean and variance of given cells, in standardised units, on the GPU."""
        params, n = self.params, len(codes[0])
        mean, variance = (self.device.xp.empty(n, dtype=np.float32) for _ in "mv")
        learned = params.deviation_rank > 0 and state.epoch > params.warmup
        work = self._work(state, list(state.rows), codes, mean)
        self._kernel("predict", self.workers)(
            *work, np.int64(self.workers), np.int64(n), np.int32(learned), mean, variance
        )
        return mean, variance

    def _work(
        self, state: GpuState, rows: list[Any], codes: tuple[Any, ...], values: Any
    ) -> tuple[Any, ...]:
        """Return what every kernel is told."""
        params = self.params
        more = self.device.pointers([*rows[2:], *codes[2:]])
        settings = (
            params.learning_rate, params.deviation_learning_rate, params.l2, params.bias_l2,
            params.deviation_l1, params.delta, params.beta, state.variance,
        )  # fmt: skip
        return (*rows[:2], *codes[:2], more, values, *map(np.float32, settings))


class HeldOut:
    """Cells that were held out, on a GPU, and how well a state predicts them."""

    ratings: Ratings
    value_range: Any
    codes: tuple[Any, ...]
    truth: Any
    least: float

    def __init__(
        self, ratings: Ratings, codes: tuple[Codes, ...], values: Values, value_range: Any
    ) -> None:
        device = ratings.device
        self.ratings, self.value_range = ratings, value_range
        self.codes = tuple(map(device.on_device, codes))
        self.truth = device.on_device(values)
        self.least = 1e-12 * min(1.0, float(values.var(dtype=np.float64)) or 1.0)

    def judge(self, state: GpuState) -> tuple[float, float]:
        """RMSE and NLL of predictions, clipped to the range of values."""
        xp, ratings = self.ratings.device.xp, self.ratings
        mean, variance = ratings.kernels.predict(state, self.codes)
        mean = mean_in_units(mean, ratings.location, ratings.scale)
        if self.value_range is not None:
            mean = xp.clip(mean, *self.value_range)
        squared = (self.truth - mean).astype(np.float64) ** 2
        s = xp.maximum(variance.astype(np.float64) * ratings.scale**2, self.least)
        nll = 0.5 * (xp.log(2 * math.pi * s) + squared / s).mean()
        return math.sqrt(float(squared.mean())), float(nll)


def _resident(layout: Layout, n_modes: int) -> int:
    """Blocks on a multiprocessor: as many as its registers allow, measured on an H200."""
    per_lane = sum(-(-width // WARP) for width in (layout.mean, layout.deviation))
    floats = layout.copies * per_lane * n_modes // 2
    if floats <= (8 if layout.copies == 2 else 4):
        return 4
    return 3 if floats <= 16 else 2 if floats <= 32 else 1


def measured(values: Any) -> tuple[float, float]:
    """Mean and std of values, to standardise them by; a std of 1 where all are alike."""
    alike = float(values.min()) == float(values.max())
    std = 1.0 if alike else float(values.std(dtype=np.float64))
    return float(values.mean(dtype=np.float64)), std


def _sum(shape: tuple[int, ...]) -> str:
    return " + ".join(f"{n:,}" for n in shape)
