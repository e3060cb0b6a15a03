"""Who is noisy: the ids and the single observations that a model trusts least.

Tables are dicts of columns, so that ``pandas.DataFrame(table)`` or ``polars.DataFrame(table)`` take
them as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from noisewise.errors import SettingError
from noisewise.models.changing import as_it_is
from noisewise.models.rows import Rowwise

Table = dict[str, npt.NDArray[Any]]


def noisy_ids(model: Rowwise, *, mode: int | str = 0, n: int | None = 20, fewest: int = 1) -> Table:
    """Rank the ids of a mode by the noise that the model expects of them.

    The noise of a user is the root mean variance over the items that people rate: every item
    weighs as much as it has observations.

    Parameters
    ----------
    model : Rowwise
        A fitted model.
    mode : int or str
        0 for users, 1 for items, or a column's name.
    n : int or None
        How many, the noisiest first; None gives all.
    fewest : int
        Leave out ids with fewer observations.

    Returns
    -------
    dict of arrays
        id, noise_std (in units of the values), observations, and relative: noise_std over that of
        the median id.

    Examples
    --------
    >>> from noisewise import DeviationFactorizer
    >>> from noisewise.data.synthetic import make_ratings
    >>> ratings = make_ratings(n_users=60, n_items=40, seed=0).observations
    >>> model = DeviationFactorizer(rank=2, deviation_rank=1, random_state=0).fit(ratings)
    >>> sorted(noisy_ids(model, n=3))
    ['id', 'noise_std', 'observations', 'relative']
    """
    check_is_fitted(model)
    check_many(n)
    if not isinstance(model, Rowwise):
        raise SettingError(
            f"noisy_ids needs a model that keeps a row for every id, such as BayesianFactorizer or "
            f"DeviationFactorizer; a {type(model).__name__} does not. See noisy_observations, and "
            "noisy_series for sensors."
        )
    model = as_it_is(model)
    m = model._mode(mode)
    noise = np.sqrt(model.factors_.noise_by_row(m)) * model.std_scale_
    counts = model.factors_.counts[m]
    eligible = np.flatnonzero(counts >= max(fewest, 1))
    order = eligible[np.argsort(-noise[eligible], kind="stable")][:n]
    middle = np.median(noise[eligible]) if len(eligible) else np.nan
    return {
        "id": model.ids_[m].labels[order],
        "noise_std": noise[order],
        "observations": counts[order],
        "relative": noise[order] / middle,
    }


def noisy_observations(model: Rowwise, X: Any, y: Any = None, *, n: int | None = 20) -> Table:
    """Rank single observations by how far they lie from what the model expects.

    Parameters
    ----------
    model : Rowwise
        A fitted model.
    X, y : as for ``fit``
        The observations to look at; they may be those it was trained on.
    n : int or None
        How many, the most surprising first; None gives all.

    Returns
    -------
    dict of arrays
        One column per mode, value, predicted, std, and surprise: the error in stds.
    """
    check_is_fitted(model)
    check_many(n)
    model = as_it_is(model)
    observations = model._observed_again(X, y)
    mean, std = model.predict(observations, return_std=True)
    surprise = (observations.values - mean) / std
    order = np.argsort(-np.abs(surprise), kind="stable")[:n]
    modes = zip(observations.ids, observations.codes, strict=True)
    return {
        **{ids.name: ids.labels[codes[order]] for ids, codes in modes},
        "value": observations.values[order],
        "predicted": mean[order],
        "std": std[order],
        "surprise": surprise[order],
    }


def check_many(n: int | None) -> None:
    """Raise unless so many rows can be listed; None lists all."""
    if n is not None and n < 1:
        raise SettingError(f"n must be 1 or more, or None for all; got {n!r}.")
