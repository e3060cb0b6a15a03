"""Settings to try next, from trials that are over: Bayesian search (optuna, an extra).

A sampler is made anew for every trial, from a seed and the number of the trial, and told of all
trials before. So what it suggests depends on these alone, and a search that was killed goes on as
if it had not been.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from noisewise.errors import MissingExtraError
from noisewise.evaluation.ranges import Choices, Range, Settings, Space

Done = tuple[Settings, float]  # settings and their error, which is inf where training diverged


def suggest(space: Space, seed: int, done: Sequence[Done]) -> Settings:
    """Suggest settings, by a tree-structured Parzen estimator; the first ten are random.

    Parameters
    ----------
    space : dict of ranges
        Where to look.
    seed : int
        The same seed and trials give the same suggestion.
    done : sequence of (settings, error)
        All trials so far.
    """
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("Bayesian search", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would report every study
    distributions = {name: _distribution(optuna, one) for name, one in space.items()}
    state = np.random.SeedSequence([seed, len(done)]).generate_state(1)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=int(state[0])))
    for settings, error in done:
        study.add_trial(
            optuna.trial.create_trial(
                params={name: _told(one, settings[name]) for name, one in space.items()},
                distributions=distributions,
                value=error if math.isfinite(error) else math.inf,
            )
        )
    asked = study.ask(distributions).params
    return {name: _meant(one, asked[name]) for name, one in space.items()}


def _distribution(optuna: Any, one: Range) -> Any:
    kinds = optuna.distributions
    if isinstance(one, Choices):  # by number, as choices may be of any type
        return kinds.CategoricalDistribution(list(range(len(one.choices))))
    if one.int:
        return kinds.IntDistribution(int(one.low), int(one.high), log=one.log)
    return kinds.FloatDistribution(one.low, one.high, log=one.log)


def _told(one: Range, value: Any) -> Any:
    return one.choices.index(value) if isinstance(one, Choices) else value


def _meant(one: Range, value: Any) -> Any:
    return one.choices[value] if isinstance(one, Choices) else value
