"""The restricted Boltzmann machine with its data: contrastive divergence, one epoch, validation.

A visible unit is an item with one state per level of the values; where nothing was observed there
is no unit. With ``v`` the observed levels of one user and ``h`` its hidden units,

    p(h_f = 1 | v)        = sigmoid(b_f + sum over observed (i, k) of W_ikf)
    p(item i has level k) = softmax over k of (c_ik + sum_f h_f W_ikf)

Training raises the probability of what was observed against that of what the machine dreams after
a few steps of Gibbs sampling from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from noisewise.data import Observations
from noisewise.engine.arrays import Floats
from noisewise.engine.sgd.strata import LEAST_VARIANCE
from noisewise.engine.training import EpochInfo
from noisewise_reproduction.rivals.torch_state import (
    Cells,
    Optimizer,
    Tensor,
    TorchState,
    torch_threads,
)

START_STD = 0.01  # of the first weights
FIRST_MOMENTUM, CALM_EPOCHS = 0.5, 5  # the first gradients are steep


class Schedule(NamedTuple):
    """How the machine learns (see ``RBM``)."""

    learning_rate: float
    decay: float
    momentum: float
    l2: float
    batch: int
    steps: int
    steps_every: int

    def optimizer(self, torch: Any, weights: dict[str, Tensor]) -> Optimizer:
        """Descent with momentum; only weights decay, not biases."""
        groups = [
            {"params": [weight], "weight_decay": self.l2 if name == "weights" else 0.0}
            for name, weight in weights.items()
        ]
        return torch.optim.SGD(groups, lr=self.learning_rate, momentum=self.momentum)

    def prepare(self, optimizer: Optimizer, epoch: int) -> int:
        """Set rate and momentum for an epoch, and return its steps of Gibbs sampling."""
        for group in optimizer.param_groups:
            group["lr"] = self.learning_rate * self.decay**epoch
            group["momentum"] = self.momentum if epoch >= CALM_EPOCHS else FIRST_MOMENTUM
        return min(1 + epoch // self.steps_every, self.steps)


class _Batch(NamedTuple):
    rows: Tensor  # example of every observation, from 0
    starts: Tensor
    items: Tensor
    observed: Tensor  # item and level as one number
    levels: Cells  # every level of every observed item


class Machine:
    """Hidden units, softmax units, and what they are trained on.

    Parameters
    ----------
    torch, device
        The library, and where to compute.
    data, held_out : Observations
        What to train on, and what to validate on.
    encoded : int
        The mode whose ids are the examples; the other has the visible units.
    hidden : int
        Hidden units.
    levels : ndarray
        The values there are, sorted.
    schedule : Schedule
        How to learn.
    value_range : tuple of float or None
        Predictions are clipped to it in validation.
    seed, n_jobs : int
        Seed of all random numbers; threads of the CPU.
    """

    def __init__(
        self,
        torch: Any,
        device: Any,
        data: Observations,
        held_out: Observations | None,
        *,
        encoded: int,
        hidden: int,
        levels: Floats,
        schedule: Schedule,
        value_range: tuple[float, float] | None,
        seed: int,
        n_jobs: int,
    ) -> None:
        self.torch, self.device, self.hidden, self.schedule = torch, device, hidden, schedule
        self.n_examples, self.n_visible = data.shape[encoded], data.shape[1 - encoded]
        self.value_range, self.seed, self.n_jobs = value_range, seed, n_jobs
        self.n_levels = len(levels)
        self.levels = torch.from_numpy(levels).to(device)
        level = np.searchsorted(levels, data.values)
        states = data.codes[1 - encoded] * np.int32(self.n_levels) + level.astype(np.int32)
        self.counts = np.bincount(states, minlength=self.n_visible * self.n_levels)
        shape = self.n_examples, self.n_visible * self.n_levels
        self.observed, _ = Cells.of(torch, data.codes[encoded], states, shape, device, n_jobs)
        if held_out is not None:
            cells, order = Cells.of(
                torch, held_out.codes[encoded], held_out.codes[1 - encoded],
                (self.n_examples, self.n_visible), device, n_jobs,
            )  # fmt: skip
            self.judged_items = cells.columns
            self.judged = self._levels_of(cells.starts, cells.columns)
            self.truth = torch.from_numpy(held_out.values[order]).to(device)

    def first_weights(self) -> dict[str, Tensor]:
        """Small random weights, and biases that give every item its own shares of the levels."""
        rng = np.random.default_rng([self.seed, 0])
        counts = self.counts.reshape(-1, self.n_levels)
        share = counts.sum(axis=0) / counts.sum()
        prior = counts + self.n_levels * share
        arrays = {
            "weights": rng.normal(0.0, START_STD, (counts.size, self.hidden)),
            "visible": np.log(prior / prior.sum(axis=1, keepdims=True)).reshape(-1),
            "hidden": np.zeros(self.hidden),
        }
        return {
            name: self.torch.from_numpy(array.astype(np.float32)).to(self.device)
            for name, array in arrays.items()
        }

    def encode(self, weights: dict[str, Tensor], observed: Cells) -> Tensor:
        """Probabilities of the hidden units, from observed levels."""
        return self.torch.sigmoid(observed.sums(weights["weights"]) + weights["hidden"])

    def step(self, state: TorchState) -> EpochInfo:
        """One epoch; the error that is reported is that of the first reconstructions."""
        steps = self.schedule.prepare(state.optimizer, state.epoch)
        seed = np.random.SeedSequence([self.seed, 2, state.epoch]).generate_state(1)
        random = self.torch.Generator(self.device).manual_seed(int(seed[0]))
        squared = nll = 0.0
        for batch in self._batches(random):
            chances = self._learn(state, batch, steps, random)
            parts = self._judge(chances, self.levels[batch.observed % self.n_levels])
            squared, nll = squared + parts[0], nll + parts[1]
        state.epoch += 1
        n = len(self.observed.columns)
        return EpochInfo(state.epoch, math.sqrt(squared / n), nll / n)

    def validate(self, state: TorchState) -> tuple[float, float]:
        """RMSE and NLL on held-out data."""
        hidden = self.encode(state.weights, self.observed)
        chances = self._chances(state.weights, hidden, self.judged, self.judged_items)
        squared, nll = self._judge(chances, self.truth, self.value_range)
        return math.sqrt(squared / len(self.truth)), nll / len(self.truth)

    def _batches(self, random: Any) -> Iterator[_Batch]:
        """Examples in a random order, some at a time, with their observations."""
        torch, n_levels = self.torch, self.n_levels
        starts = self.observed.starts
        order = torch.randperm(self.n_examples, generator=random, device=self.device)
        for rows in order.split(self.schedule.batch):
            first, count = starts[rows], starts[rows + 1] - starts[rows]
            place = torch.zeros(len(rows) + 1, dtype=torch.int32, device=self.device)
            place[1:] = count.cumsum(0)
            row = torch.repeat_interleave(torch.arange(len(rows), device=self.device), count)
            within = torch.arange(len(row), device=self.device) - place[row]
            observed = self.observed.columns[first[row] + within]
            items = observed // n_levels
            if len(row):
                yield _Batch(row, place, items, observed, self._levels_of(place, items))

    def _learn(self, state: TorchState, batch: _Batch, steps: int, random: Any) -> Tensor:
        """Take one step of the optimizer; return the chances of every level after one dream."""
        torch, weights = self.torch, state.weights
        awake = hidden = self.encode(weights, self._cells(batch.starts, batch.observed))
        first = None
        for _ in range(steps):
            on = torch.rand(hidden.shape, generator=random, device=self.device) < hidden
            chances = self._chances(weights, on.float(), batch.levels, batch.items)
            first = chances if first is None else first
            drawn = torch.rand((len(chances), 1), generator=random, device=self.device)
            level = (drawn > chances.cumsum(1)[:, :-1]).sum(1, dtype=torch.int32)
            dreamt = batch.items * self.n_levels + level
            hidden = self.encode(weights, self._cells(batch.starts, dreamt))
        self._leave_gradient(weights, batch, dreamt, awake, hidden)
        with torch_threads(torch, self.n_jobs):  # every weight by itself: the same bits
            state.optimizer.step()
        return first

    def _leave_gradient(
        self,
        weights: dict[str, Tensor],
        batch: _Batch,
        dreamt: Tensor,
        awake: Tensor,
        asleep: Tensor,
    ) -> None:
        """Leave in ``grad`` of every weight what is dreamt less what was observed, on average."""
        torch, n, n_states = self.torch, len(awake), len(weights["visible"])
        states = torch.cat([dreamt, batch.observed])
        order = torch.argsort(states, stable=True)
        rows = torch.cat([batch.rows, batch.rows + n])[order].int()
        sign = torch.ones(len(states), device=self.device)
        sign[len(dreamt) :] = -1.0
        starts = torch.zeros(n_states + 1, dtype=torch.int32, device=self.device)
        starts[1:] = torch.bincount(states, minlength=n_states).cumsum(0)
        by_state = Cells(torch, starts, rows, 2 * n, self.n_jobs)
        weights["weights"].grad = by_state.sums(torch.cat([asleep, awake]), sign[order]) / n
        seen, dreams = (torch.bincount(s, minlength=n_states) for s in (batch.observed, dreamt))
        weights["visible"].grad = (dreams - seen) / n
        weights["hidden"].grad = (asleep - awake).mean(0)

    def _chances(
        self, weights: dict[str, Tensor], hidden: Tensor, levels: Cells, items: Tensor
    ) -> Tensor:
        """Probability of every level of some items, given hidden units."""
        bias = weights["visible"].view(-1, self.n_levels)[items]
        product = levels.dots(hidden, weights["weights"]).view(-1, self.n_levels)
        return self.torch.softmax(product + bias, 1)

    def _judge(
        self, chances: Tensor, truth: Tensor, value_range: tuple[float, float] | None = None
    ) -> tuple[float, float]:
        """Sum of squared errors and of NLL."""
        mean = (chances * self.levels).sum(1, keepdim=True)
        variance = (chances * (self.levels - mean) ** 2).sum(1).double().clamp(min=LEAST_VARIANCE)
        mean = mean[:, 0]
        if value_range is not None:
            mean = mean.clamp(*value_range)
        squared = (truth - mean).double() ** 2
        nll = 0.5 * (2.0 * math.pi * variance).log() + 0.5 * squared / variance
        return float(squared.sum()), float(nll.sum())

    def _cells(self, starts: Tensor, states: Tensor) -> Cells:
        return Cells(self.torch, starts, states, self.n_visible * self.n_levels, self.n_jobs)

    def _levels_of(self, starts: Tensor, items: Tensor) -> Cells:
        """Return all levels of items as cells."""
        each = self.torch.arange(self.n_levels, dtype=self.torch.int32, device=self.device)
        states = items[:, None] * self.n_levels + each
        return self._cells(starts * self.n_levels, states.reshape(-1))
