"""DeviationFactorizer: every observation has a mean and a deviation, both low-rank.

    mean_ij     = mu + u_i + v_j + U_i . V_j
    variance_ij = P_i . Q_j + delta            P, Q >= 0

and for tensors likewise, with a third and further modes:

    mean_ijk     = mu + u_i + v_j + t_k + sum_d U_id V_jd T_kd
    variance_ijk = sum_d P_id Q_jd W_kd + delta

learned together by projected AdaGrad on the Gaussian likelihood (Lee, Yang and Lin, 2017).
"""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from noisewise.data import Observations, observe
from noisewise.engine.sgd.factors import Factors
from noisewise.engine.sgd.layout import Params
from noisewise.errors import SettingError
from noisewise.models.changing import in_one_step, interrupted
from noisewise.models.fitting import continue_factors, fit_factors
from noisewise.models.trained import RULES, Fit, Plan
from noisewise.models.trained_storage import Factored
from noisewise.recommend import Seen
from noisewise.settings import Rule, check, number, one_of, whole

# For tensors of sensors, near the best trials of experiments/search_sensors.py.
PTF: dict[str, Any] = {
    "rank": 64,
    "deviation_rank": 0,
    "epochs": 60,
    "patience": 5,
    "learning_rate": 0.3,
    "biases": False,
    "l2": 4.0,
    "penalty": "row",
    "delta": 0.02,
    "beta": 0.0,
}
DTF: dict[str, Any] = PTF | {
    "deviation_rank": 8,
    "deviation_learning_rate": 0.1,
    "deviation_l1": 0.1,
}


class DeviationFactorizer(Factored):
    """Factorization of matrices and tensors that learns how noisy each observation is.

    With two id columns this is DMF, with three or more DTF; ``deviation_rank=0`` makes of them
    Biased MF and PTF. Values are centred and divided by their standard deviation before training,
    so that the settings below mean the same for stars, percents and volts.

    The defaults are for two modes. A penalty that is right for a matrix drives all factors of a
    tensor to zero: for three modes and more start from ``DeviationFactorizer(**DTF)`` or
    ``(**PTF)``, which this module has beside the class. Only two modes can ``recommend`` and
    ``fold_in``.

    Parameters
    ----------
    rank : int
        Factors of the mean.
    deviation_rank : int
        Factors of the variance. 0 gives every observation the same variance.
    epochs : int
        How often to visit every observation, at most.
    patience : int or None
        A share of the data is held out, training stops after so many epochs without a better
        result there, and std and intervals are calibrated on it. None runs all epochs on all data.
    refit : bool
        Once the number of epochs was chosen on held-out data, train again on everything.
    monitor : {"rmse", "nll"}
        What must get better on the held-out data.
    validation_fraction : float
        Share to hold out.
    learning_rate, deviation_learning_rate : float
        AdaGrad's step for the mean (and biases), and for the deviation.
    biases : bool
        Whether every id has a bias, which is added to the mean.
    l2, bias_l2 : float
        Penalty on the squares of mean factors, and of biases.
    deviation_l1 : float
        Penalty on the size of deviation factors; makes them sparse.
    penalty : {"rating", "row"}
        Charge the penalty of a row with each of its observations, or once.
    delta : float
        Floor of the variance, as a share of the variance of all values.
    beta : float
        Weight every term of the likelihood by ``variance ** beta``: 0 is the paper's model, 1 fits
        the mean as if all observations were alike.
    warmup : int
        Epochs in which only the mean is learned.
    adagrad : {"coordinate", "row"}
        One sum of squared gradients per coordinate, or one per row: faster, another optimiser.
    value_range : "auto", None or (low, high)
        Clip predictions to the range of the training values, not at all, or to this range.
    unknown : "default" or float
        What to predict for a cell with an id never seen: what is known of the rest, or a constant.
    duplicates : {"error", "last", "mean"}
        What to do about a cell that is given more than once.
    keep_seen : bool
        Remember which cells were trained on (4 bytes each), for ``recommend`` to leave them out.
    checkpoint : path or None
        Keep the state of training in this file, and go on from it if it is there. The file is
        removed when training has ended.
    checkpoint_epochs, checkpoint_minutes : int, float or None
        Write it after so many epochs, or minutes, whichever comes first.
    random_state : int, RandomState or None
        The same int gives the same bits, whatever the number of threads.
    n_jobs : int or None
        Threads; -1 uses all cores.
    verbose : bool or None
        Show a progress bar: True always, False never; None on a terminal and in a notebook.

    Attributes
    ----------
    ids_ : tuple of Ids
        Ids of each mode.
    factors_ : Factors
        What was learned; ``row(id)`` reads it by id.
    calibration_ : Calibration or None
        What held-out errors said of the std.
    learning_curve_ : dict of lists
        Per epoch: epoch, train_rmse, train_nll, validation_rmse, validation_nll, seconds.
    n_epochs_ : int
        Epochs of the model that is kept.
    seconds_ : float
        Time that fit took.

    Examples
    --------
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Alien", 1), ("bob", "M", 5)]
    >>> model = DeviationFactorizer(rank=2, deviation_rank=1, patience=None, random_state=0)
    >>> model = model.fit(ratings)
    >>> mean, std = model.predict([("ann", "M")], return_std=True)
    >>> bool(std[0] > 0)
    True
    """

    _rules: ClassVar[dict[str, Rule]] = RULES | {
        "rank": whole(0),
        "deviation_rank": whole(0),
        "learning_rate": number(above=0.0),
        "deviation_learning_rate": number(above=0.0),
        "biases": one_of(True, False),
        "l2": number(least=0.0),
        "bias_l2": number(least=0.0),
        "deviation_l1": number(least=0.0),
        "penalty": one_of("rating", "row"),
        "delta": number(above=0.0),
        "beta": number(least=0.0, most=1.0),
        "warmup": whole(0),
        "adagrad": one_of("coordinate", "row"),
    }
    _any_modes = True

    def __init__(
        self,
        rank: int = 128,
        *,
        deviation_rank: int = 8,
        epochs: int = 100,
        patience: int | None = 3,
        refit: bool = True,
        monitor: Literal["rmse", "nll"] = "rmse",
        validation_fraction: float = 0.1,
        learning_rate: float = 0.055,
        deviation_learning_rate: float = 0.015,
        biases: bool = True,
        l2: float = 0.05,
        bias_l2: float = 0.02,
        deviation_l1: float = 0.0006,
        penalty: Literal["rating", "row"] = "rating",
        delta: float = 0.24,
        beta: float = 0.25,
        warmup: int = 2,
        adagrad: Literal["coordinate", "row"] = "coordinate",
        value_range: Literal["auto"] | tuple[float, float] | None = "auto",
        unknown: Literal["default"] | float = "default",
        duplicates: Literal["error", "last", "mean"] = "error",
        keep_seen: bool = True,
        checkpoint: str | Path | None = None,
        checkpoint_epochs: int | None = 1,
        checkpoint_minutes: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = -1,
        verbose: bool | None = None,
    ) -> None:
        self.rank = rank
        self.deviation_rank = deviation_rank
        self.epochs = epochs
        self.patience = patience
        self.refit = refit
        self.monitor = monitor
        self.validation_fraction = validation_fraction
        self.learning_rate = learning_rate
        self.deviation_learning_rate = deviation_learning_rate
        self.biases = biases
        self.l2 = l2
        self.bias_l2 = bias_l2
        self.deviation_l1 = deviation_l1
        self.penalty = penalty
        self.delta = delta
        self.beta = beta
        self.warmup = warmup
        self.adagrad = adagrad
        self.value_range = value_range
        self.unknown = unknown
        self.duplicates = duplicates
        self.keep_seen = keep_seen
        self.checkpoint = checkpoint
        self.checkpoint_epochs = checkpoint_epochs
        self.checkpoint_minutes = checkpoint_minutes
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _learn(
        self, observations: Observations, held_out: Observations | None, plan: Plan, seed: int
    ) -> Fit:
        return fit_factors(self._params(seed), observations, held_out, plan, self._threads())

    def _adopt(self, knowledge: Factors) -> None:
        self.factors_ = knowledge

    @in_one_step
    def partial_fit(self, X: Any, y: Any = None, *, epochs: int = 10) -> Self:
        """Go on learning from new observations, of new ids or old ones, without a restart.

        Only the new observations are visited, ``epochs`` times. Scale, calibration and range of
        values stay as they are. On a model that was never fitted, this trains on all of X.
        """
        check(self, self._rules)
        if not whole(1).holds(epochs):
            raise SettingError(f"epochs must be {whole(1).words}; got {epochs!r}.")
        if not hasattr(self, "factors_"):
            patience, limit = self.patience, self.epochs
            try:
                self.patience, self.epochs = None, epochs
                return self.fit(X, y)
            finally:
                self.patience, self.epochs = patience, limit
        started = time.perf_counter()
        new = self._checked(observe(X, y, duplicates=self.duplicates, ids=self.ids_))
        plan = Plan(self.factors_.state.epoch + epochs, label="partial fit", verbose=self.verbose)
        fitted = continue_factors(self.factors_, new, plan, self._threads())
        self._adopt(fitted.knowledge)
        before, self.ids_ = self.seen_, new.ids
        self._describe(new, fitted.curve, fitted.epochs)
        if before is not None:
            cells = zip(before.cells(), new.codes, strict=True)
            self.seen_ = Seen.of(tuple(np.append(a, b) for a, b in cells), new.shape)
        self.seconds_ = time.perf_counter() - started
        if fitted.interrupted:
            run = fitted.epochs - plan.epochs + epochs
            interrupted(
                self,
                f"Learning from new observations was interrupted after epoch {run} of {epochs}: "
                "the model is that of this epoch.",
            )
        return self

    def _params(self, seed: int) -> Params:
        names = {field.name for field in fields(Params)} - {"seed"}
        return Params(**{name: getattr(self, name) for name in names}, seed=seed)
