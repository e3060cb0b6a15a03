"""RBM: a restricted Boltzmann machine, whose visible units are items with one state per level.

Trained by contrastive divergence (Salakhutdinov, Mnih and Hinton, 2007); ``boltzmann`` has the
equations. It predicts a chance for every level, and from these a mean and a std.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from noisewise.data import Observations, encode_ids, warn_of_unknown
from noisewise.engine.arrays import Codes, Floats
from noisewise.errors import DataError
from noisewise.models.base import Cells, at_one_moment
from noisewise.models.iterative import Fit, Iterative, Plan
from noisewise.models.learner import check_levels, count_rows
from noisewise.schema import Found, Schema
from noisewise.settings import either, learned, number, one_of, setting, settings, whole
from noisewise_reproduction.rivals.boltzmann import Machine, Schedule
from noisewise_reproduction.rivals.levels import Levels
from noisewise_reproduction.rivals.torch_state import (
    DEVICE,
    TorchState,
    device_for,
    torch_for,
    torch_threads,
)

MOST_LEVELS = 50
SETTLE = 10  # epochs, in which small random weights have yet to break their symmetry
ADVICE = "Try a smaller learning_rate (now {0.learning_rate}) or momentum (now {0.momentum})."


@settings
class RBM(Iterative):
    """Restricted Boltzmann machine for values of few levels, such as stars.

    Each user is a case of its own: its visible units are the items it rated, one state per level;
    weights are shared by all. The std is that of the predicted chances, plus what is not known of
    ids with few observations; held-out data scales both. Training gives the same bits for any
    number of threads of a CPU; a GPU draws other random numbers.

    Examples
    --------
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Alien", 1), ("bob", "M", 5)]
    >>> model = RBM(hidden=2, epochs=5, patience=None, random_state=0).fit(ratings)
    >>> model.levels_
    array([1., 4., 5.], dtype=float32)
    >>> model.predict_proba([("ann", "M")]).shape
    (1, 3)
    """

    hidden: int = setting(
        whole(1),
        "Hidden units.",
        default=400,
        kw_only=False,
    )
    orientation: Literal["user", "item"] = setting(
        one_of("user", "item"),
        "Whose hidden units: a case is a user with the items it rated, or an item with its "
        'users. Here "user" stands for the first mode and "item" for the second.',
        default="user",
    )
    learning_rate: float = setting(
        number(above=0.0),
        "Step along the gradient, which is the mean over the cases of a batch.",
        default=0.011,
    )
    decay: float = setting(
        number(above=0.0, most=1.0),
        "The rate is multiplied by it after every epoch.",
        default=0.99,
    )
    momentum: float = setting(
        number(least=0.0, most=0.999),
        "Share of the last step that is taken again; one half in the first five epochs.",
        default=0.9,
    )
    l2: float = setting(
        number(least=0.0),
        "Decay of weights: a penalty on their squares.",
        default=0.00015,
    )
    batch: int = setting(
        whole(1),
        "Cases in a batch.",
        default=200,
    )
    steps: int = setting(
        whole(1),
        "Steps of Gibbs sampling, in the end; the first epochs take one.",
        default=3,
    )
    steps_every: int = setting(
        whole(1),
        "Epochs after which one more step is taken.",
        default=40,
    )
    device: Literal["auto", "cpu", "cuda"] = setting(
        DEVICE,
        'Where to train; "auto" takes a GPU if there is one.',
        default="auto",
    )
    epochs: int = setting(
        whole(1),
        "How often to visit every observation, at most.",
        default=250,
    )
    patience: int | None = setting(
        either(whole(1), None),
        "A share of the data is held out, training stops after so many epochs without a better "
        "result there, and std and intervals are calibrated on it. None runs all epochs on all "
        "data.",
        default=10,
    )
    distribution_: Levels = learned(
        "Hidden units of the cases, weights and biases of the visible units."
    )

    @property
    def levels_(self) -> Floats:
        """The values there are, sorted."""
        check_is_fitted(self)
        return self.distribution_.values

    @at_one_moment
    def predict_proba(self, X: Any) -> Floats:
        """Predict the chance of every level.

        Parameters
        ----------
        X : table of ids
            One id column per mode. Ids never seen get the average of the others.

        Returns
        -------
        chances : ndarray of shape (rows, levels)
            In the order of ``levels_``; every row sums to 1.
        """
        check_is_fitted(self)
        codes = encode_ids(X, self.ids_)
        warn_of_unknown(X, self.ids_, np.any([code < 0 for code in codes], axis=0))
        return self.distribution_.chances(self._sides(codes))

    def _checked(self, observations: Observations) -> Observations:
        observations = super()._checked(observations)
        n = len(np.unique(observations.values))
        if n > MOST_LEVELS:
            raise DataError(
                f"RBM needs values of at most {MOST_LEVELS} levels, such as stars; got {n} "
                "different values: round them, or use a model for any numbers."
            )
        check_levels(observations.values)
        return replace(observations, values=observations.values.astype(np.float32))

    @property
    def _encoded(self) -> int:
        """The mode whose ids are the cases."""
        return 0 if self.orientation == "user" else 1

    def _learn(
        self, observations: Observations, held_out: Observations | None, plan: Plan, seed: int
    ) -> Fit:
        torch = torch_for("RBM")
        schedule = Schedule(
            self.learning_rate, self.decay, self.momentum, self.l2, self.batch, self.steps,
            self.steps_every,
        )  # fmt: skip
        levels = np.unique(observations.values)
        with torch_threads(torch, 1):
            machine = Machine(
                torch, device_for(torch, self.device), observations, held_out,
                encoded=self._encoded, hidden=self.hidden, levels=levels, schedule=schedule,
                value_range=plan.value_range, seed=seed, n_jobs=self._threads(),
            )  # fmt: skip
            state = TorchState(
                torch, machine.first_weights(), lambda weights: schedule.optimizer(torch, weights)
            )
            training = plan.train(
                state, machine.step, machine.validate if held_out is not None else None,
                warmup=SETTLE, advice=ADVICE.format(self),
            )  # fmt: skip
            chosen = training.chosen
            hidden = machine.encode(chosen.weights, machine.observed).cpu().numpy()
        arrays = chosen.arrays()
        counts = count_rows(observations)
        shape = len(counts[1 - self._encoded]), len(levels)
        outcome = Levels.finalize(
            levels,
            hidden,
            arrays["weights"].reshape(*shape, self.hidden),
            arrays["visible"].reshape(shape),
            (counts[self._encoded], counts[1 - self._encoded]),
        )
        return Fit(outcome, chosen.epoch, training.curve, training.interrupted)

    def _adopt(self, outcome: Levels) -> None:
        self.distribution_ = outcome

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        codes = encode_ids(X, self.ids_)
        known = self._sides(codes)
        examples, visible = (len(count) for count in self.distribution_.counts)
        unseen = (known[0] == examples) | (known[1] == visible)
        return Cells(self.distribution_.moments(known), unseen)

    def _sides(self, codes: tuple[Codes, ...]) -> tuple[Codes, Codes]:
        """Codes of cases and of visible units, as ``distribution_`` has them."""
        return self.distribution_.known_codes((codes[self._encoded], codes[1 - self._encoded]))

    def schema(self) -> Schema:
        """Declare what a file keeps: also the machine."""
        yield from super().schema()
        sides = len(self.ids_[self._encoded]), len(self.ids_[1 - self._encoded])
        yield from Levels.schema(sides, self.hidden)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        super().restore(found)
        self.distribution_ = Levels.of(found)
