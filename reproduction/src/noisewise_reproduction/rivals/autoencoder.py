"""The autoencoder with its data: forward, gradient, one epoch, validation.

No table of examples and outputs is ever built. The input layer sums rows of weights over observed
inputs, the output layer multiplies rows where an output was observed, and the gradient of either
is a sum over observed cells again.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise.data import Observations
from noisewise.engine.arrays import Counts
from noisewise.engine.sgd.strata import LEAST_VARIANCE
from noisewise.engine.training import EpochInfo, standardised
from noisewise.models.learner import mean_and_std
from noisewise_reproduction.rivals.torch_state import Cells, Tensor, TorchState

START_STD = 0.003  # of the first weights: many inputs must not saturate a unit


def balanced(n: Counts, counts: Counts, balance: float) -> npt.NDArray[np.float64]:
    """Return what the inputs of an example with n values are multiplied by; 1 for an average n."""
    average = counts[counts > 0].mean()
    return np.asarray((average / np.maximum(n, 1)) ** balance)


class Network:
    """One hidden layer of sigmoids, linear outputs, and what they are trained on.

    Parameters
    ----------
    torch, device
        The library, and where to compute.
    data, held_out : Observations
        What to train on, and what to validate on.
    encoded : int
        The mode whose ids are the examples.
    hidden : int
        Units of the hidden layer.
    l2, presence, balance : float
        See ``AutoRec``.
    value_range : tuple of float or None
        Predictions are clipped to it in validation.
    n_jobs : int
        Threads of the CPU.
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
        l2: float,
        presence: float,
        balance: float,
        value_range: tuple[float, float] | None,
        n_jobs: int,
    ) -> None:
        self.torch, self.device, self.hidden, self.l2 = torch, device, hidden, l2
        self.n_outputs, self.value_range = data.shape[1 - encoded], value_range
        self.location, self.scale = mean_and_std(data.values)
        self.variance = 1.0  # of the errors, before the last step

        def layout(of: Observations, first: int) -> tuple[Cells, Any]:
            shape = of.shape[first], of.shape[1 - first]
            return Cells.of(torch, of.codes[first], of.codes[1 - first], shape, device, n_jobs)

        self.by_example, order = layout(data, encoded)
        self.by_output, again = layout(data, 1 - encoded)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        self.turned = torch.from_numpy(place[again]).to(device)  # from examples to outputs
        values = standardised(data.values[order], self.location, self.scale)
        self.target = torch.from_numpy(values).to(device)
        counts = np.bincount(data.codes[encoded], minlength=data.shape[encoded])
        share = torch.from_numpy(balanced(counts, counts, balance).astype(np.float32)).to(device)
        self.input = (self.target + presence) * share.repeat_interleave(
            self.by_example.starts.diff()
        )
        self.turned_input = self.input[self.turned]
        if held_out is not None:
            self.judged, order = layout(held_out, encoded)
            self.truth = held_out.values[order].astype(np.float64)

    def first_weights(self, seed: int) -> dict[str, Tensor]:
        """Small random weights, the same on any device."""
        rng = np.random.default_rng([seed, 0])
        shape = self.n_outputs, self.hidden
        arrays = {
            "encoder": START_STD * rng.standard_normal(shape, dtype=np.float32),
            "decoder": START_STD * rng.standard_normal(shape, dtype=np.float32),
            "shift": np.zeros(self.hidden, dtype=np.float32),
            "bias": np.zeros(self.n_outputs, dtype=np.float32),
        }
        return {k: self.torch.from_numpy(array).to(self.device) for k, array in arrays.items()}

    def forward(self, weights: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Hidden layer of every example, and the error of every observation."""
        hidden = self._encode(weights)
        return hidden, self._decode(weights, hidden, self.by_example) - self.target

    def step(self, state: TorchState) -> EpochInfo:
        """One epoch: the error that is reported is that before its last step."""
        squared = math.nan

        def closure() -> float:
            nonlocal squared
            loss, squared = self._gradient(state.weights)
            return loss

        state.optimizer.step(closure)
        state.epoch += 1
        mean = squared / len(self.target) * self.scale**2
        self.variance = max(mean, LEAST_VARIANCE * self.scale**2)
        return EpochInfo(state.epoch, math.sqrt(mean), self._nll(mean))

    def validate(self, state: TorchState) -> tuple[float, float]:
        """RMSE and NLL on held-out data, the std being that of the training errors."""
        fitted = self._decode(state.weights, self._encode(state.weights), self.judged)
        mean = self.location + self.scale * fitted.cpu().numpy().astype(np.float64)
        if self.value_range is not None:
            mean = np.clip(mean, *self.value_range)
        squared = float(np.mean((self.truth - mean) ** 2))
        return math.sqrt(squared), self._nll(squared)

    def _nll(self, squared: float) -> float:
        return 0.5 * (math.log(2.0 * math.pi * self.variance) + squared / self.variance)

    def _encode(self, weights: dict[str, Tensor]) -> Tensor:
        total = self.by_example.sums(weights["encoder"], self.input)
        return self.torch.sigmoid(total + weights["shift"])

    def _decode(self, weights: dict[str, Tensor], hidden: Tensor, cells: Cells) -> Tensor:
        return cells.dots(hidden, weights["decoder"]) + weights["bias"][cells.columns]

    def _gradient(self, weights: dict[str, Tensor]) -> tuple[float, float]:
        """Leave the gradient of the loss in ``grad`` of every weight; return loss and SSE."""
        hidden, error = self.forward(weights)
        turned = error[self.turned]
        back = self.by_example.sums(weights["decoder"], error) * hidden * (1.0 - hidden)
        gradient = {
            "encoder": self.by_output.sums(back, self.turned_input),
            "decoder": self.by_output.sums(hidden, turned),
            "shift": back.sum(0),
            "bias": self.by_output.sums(self.torch.ones_like(hidden[:, :1]), turned)[:, 0],
        }
        squared = float((error.double() ** 2).sum())
        penalty = 0.0
        for name, weight in weights.items():
            weight.grad = 2.0 * gradient[name]
            if name in ("encoder", "decoder"):
                weight.grad += self.l2 * weight
                penalty += 0.5 * self.l2 * float((weight.double() ** 2).sum())
        return squared + penalty, squared
