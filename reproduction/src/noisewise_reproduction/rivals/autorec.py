"""AutoRec: an autoencoder that fills in what it was not shown.

    h_i     = sigmoid(sum_j x_ij V_j + m)        over the observed values x of item i
    mean_ij = W_j . h_i + b_j

trained on the observed outputs only, by full-batch steps (Sedhain, Menon, Sanner and Xie, 2015).
What it knows of an item is the row h_i, so it predicts like any factorization.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy.special import expit

from noisewise import schema
from noisewise.data import Observations
from noisewise.engine.arrays import Codes, Floats
from noisewise.engine.sgd.factors import Factors, Side
from noisewise.engine.sgd.layout import BIAS, LINE, Params, State, aligned_zeros
from noisewise.engine.sgd.strata import LEAST_VARIANCE
from noisewise.models.factor_rows import FactorRows
from noisewise.models.iterative import Fit, Iterative, Plan
from noisewise.models.learner import count_rows
from noisewise.settings import either, learned, number, one_of, setting, settings, whole
from noisewise_reproduction.rivals.autoencoder import Network, balanced
from noisewise_reproduction.rivals.torch_state import (
    DEVICE,
    Optimizer,
    Tensor,
    TorchState,
    device_for,
    torch_for,
    torch_threads,
)

FIRST_STEP = 0.001  # of resilient propagation, which finds its own from there
LBFGS_STEPS = 5  # in an epoch
LBFGS_HISTORY = 10  # pairs of steps and gradients, each as large as all weights
ADVICE = "Try a larger l2 (now {}), or optimizer='rprop'."


class Autoencoder(NamedTuple):
    """What was learned: rows that predict, and the weights that give a new example its row."""

    factors: Factors
    encoder: Floats  # the last row is the average, for an id never seen
    shift: Floats


@settings
class AutoRec(Iterative, FactorRows):
    """Autoencoder for ratings, with one hidden layer of sigmoids.

    Values are centred and divided by their standard deviation. The std is that of the errors, the
    same for every cell, plus what is not known of rows with few observations; held-out data scales
    both. Training gives the same bits for any number of threads of a CPU; a GPU gives others.

    Examples
    --------
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Alien", 1), ("bob", "M", 5)]
    >>> model = AutoRec(hidden=2, l2=0.1, epochs=20, patience=None, random_state=0)
    >>> model = model.fit(ratings)
    >>> mean, std = model.predict([("ann", "M")], return_std=True)
    >>> bool(std[0] > 0)
    True
    """

    hidden: int = setting(
        whole(1),
        "Units of the hidden layer.",
        default=500,
        kw_only=False,
    )
    orientation: Literal["item", "user"] = setting(
        one_of("item", "user"),
        "Encode every item from its users' values, or every user from the values of items. Here "
        '"user" stands for the first mode and "item" for the second.',
        default="item",
    )
    optimizer: Literal["rprop", "lbfgs"] = setting(
        one_of("rprop", "lbfgs"),
        "Resilient propagation, one step an epoch; or L-BFGS, five steps an epoch.",
        default="rprop",
    )
    l2: float = setting(
        number(least=0.0),
        "Half of it is charged on the squares of all weights, once.",
        default=330.0,
    )
    presence: float = setting(
        number(),
        "An average value enters as this number of standard deviations, a missing one as 0: "
        "above 0, it is seen who rated at all. Stars as they are have about 3.",
        default=7.0,
    )
    balance: float = setting(
        number(least=0.0, most=1.0),
        "Inputs of an item with n values are divided by ``n ** balance``, over that of an "
        "average n: 0 is the paper's network, whose units the popular items saturate.",
        default=0.75,
    )
    device: Literal["auto", "cpu", "cuda"] = setting(
        DEVICE,
        'Where to train; "auto" takes a GPU if there is one.',
        default="auto",
    )
    epochs: int = setting(
        whole(1),
        "Steps through all data, at most.",
        default=500,
    )
    patience: int | None = setting(
        either(whole(1), None),
        "A share of the data is held out, training stops after so many epochs without a better "
        "result there, and std and intervals are calibrated on it. None runs all epochs on all "
        "data.",
        default=25,
    )
    encoder_: Floats = learned(
        "Weights and biases of the hidden layer; the last row of weights is the average."
    )
    shift_: Floats = learned(
        "Weights and biases of the hidden layer; the last row of weights is the average."
    )

    @property
    def _encoded(self) -> int:
        """The mode whose ids are the examples."""
        return 1 if self.orientation == "item" else 0

    def _fold(self, mode: int, codes: Codes, values: Floats) -> Side:
        """Send a new example through the network; give a new output its weights by regression."""
        side = super()._fold(mode, codes, values)
        if mode != self._encoded:
            return side
        factors = self.factors_
        inputs = (values - factors.location) / factors.scale + self.presence
        inputs *= balanced(np.array(len(values)), factors.counts[mode], self.balance)
        row = np.zeros_like(side.rows)
        row[0, LINE : LINE + self.hidden] = expit(inputs @ self.encoder_[codes] + self.shift_)
        return side._replace(rows=row)

    def _learn(
        self, observations: Observations, held_out: Observations | None, plan: Plan, seed: int
    ) -> Fit:
        torch = torch_for("AutoRec")
        with torch_threads(torch, 1):
            network = Network(
                torch, device_for(torch, self.device), observations, held_out,
                encoded=self._encoded, hidden=self.hidden, l2=self.l2, presence=self.presence,
                balance=self.balance, value_range=plan.value_range, n_jobs=self._threads(),
            )  # fmt: skip
            state = TorchState(torch, network.first_weights(seed), self._optimizer)
            validate = network.validate if held_out is not None else None
            training = plan.train(state, network.step, validate, advice=ADVICE.format(self.l2))
            chosen = training.chosen
            outcome = self._finalized(network, chosen, observations, seed)
        return Fit(outcome, chosen.epoch, training.curve, training.interrupted)

    def _optimizer(self, weights: dict[str, Tensor]) -> Optimizer:
        optim = torch_for("AutoRec").optim
        if self.optimizer == "rprop":
            return optim.Rprop(weights.values(), lr=FIRST_STEP)
        return optim.LBFGS(
            weights.values(), max_iter=LBFGS_STEPS, history_size=LBFGS_HISTORY,
            line_search_fn="strong_wolfe",
        )  # fmt: skip

    def _finalized(
        self, network: Network, trained: TorchState, observations: Observations, seed: int
    ) -> Autoencoder:
        """Turn weights into rows: the hidden layer for one mode, the output layer for the other."""
        hidden, error = network.forward(trained.weights)
        variance = max(float((error**2).mean()), LEAST_VARIANCE)
        weights = trained.arrays()
        params = self._params(seed)
        rows = [_rows(params, hidden.cpu().numpy()), _rows(params, weights["decoder"])]
        rows[1][:, BIAS] = weights["bias"]
        if self._encoded == 1:
            rows.reverse()
        state = State(tuple(rows), params.layout, trained.epoch, variance)
        counts = count_rows(observations)
        order = tuple(np.arange(n, dtype=np.int32) for n in observations.shape)
        factors = Factors.finalize(params, state, counts, network.location, network.scale, order)
        seen = counts[1 - self._encoded] > 0
        average = weights["encoder"][seen].mean(axis=0, keepdims=True)
        return Autoencoder(factors, np.append(weights["encoder"], average, 0), weights["shift"])

    def _params(self, seed: int) -> Params:
        """Describe a factorization whose rows of outputs are fitted by the same ridge."""
        return Params(
            rank=self.hidden, deviation_rank=0, learning_rate=1.0, deviation_learning_rate=1.0,
            l2=self.l2 / 2, bias_l2=0.0, deviation_l1=0.0, penalty="row", delta=LEAST_VARIANCE,
            beta=1.0, warmup=0, adagrad="row", seed=seed,
        )  # fmt: skip

    def _adopt(self, outcome: Autoencoder) -> None:
        self.factors_, self.encoder_, self.shift_ = outcome

    def schema(self) -> schema.Schema:
        """Declare what a file keeps: also the encoder."""
        yield from super().schema()
        n = len(self.ids_[1 - self._encoded]) + 1
        yield schema.Tensor("encoder", "float32", (n, self.hidden), "encoder_")
        yield schema.Tensor("shift", "float32", (self.hidden,), "shift_")


def _rows(params: Params, factors: Floats) -> Floats:
    """Pack factors as the engine has them."""
    rows = aligned_zeros(len(factors), params.layout.width)
    rows[:, LINE : LINE + params.rank] = factors
    return rows
