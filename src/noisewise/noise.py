"""Ranks who is noisy: ids and single observations of ratings; series and locations of sensors.

A sensor is noisy in one of two ways: its readings scatter, or it has a drift of its own. Tables are
dicts of columns, which ``pandas.DataFrame`` and ``polars.DataFrame`` take as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from noisewise.data import Observations
from noisewise.data.ids import check_values
from noisewise.data.labelled import labelled
from noisewise.data.observations import Duplicates
from noisewise.data.tables_with_holes import Roles
from noisewise.data.timestamps import mode_number
from noisewise.errors import DataError, SettingError
from noisewise.models.base import as_it_is
from noisewise.models.rows import Rows
from noisewise.models.temporal import TemporalFactorizer
from noisewise.settings import either, whole

Column = npt.NDArray[Any]
Table = dict[str, Column]

JUDGE: dict[str, Any] = {"rank": 1, "sweeps": 60, "tolerance": None}  # enough to rank sensors
BORROWED = 10  # series that what all sensors have in common is worth
FEWEST_PEERS = 4  # series of a sensor that have a median of their own


def noisy_ids(model: Rows, *, mode: int | str = 0, n: int | None = 20, fewest: int = 1) -> Table:
    """Rank the ids of a mode by the noise that the model expects of them.

    The noise of a user is the root mean variance over the items that people rate: every item
    weighs as much as it has observations. ``mode`` is 0 for users, 1 for items, or a column's name.
    The table has id, noise_std (in units of the values), observations, and relative: noise_std over
    that of the median id. It has ``n`` rows, the noisiest first (None gives all), of ids with
    ``fewest`` observations or more.

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
    if not isinstance(model, Rows):
        raise SettingError(
            f"noisy_ids needs a model that keeps a row for every id, such as BayesianFactorizer or "
            f"DeviationFactorizer; a {type(model).__name__} does not. See noisy_observations, and "
            "noisy_series for sensors."
        )
    model = as_it_is(model)
    m = model.mode_number(mode)
    noise = np.sqrt(model.factors_.noise_by_row(m)) * model.std_scale_
    counts = model.factors_.counts[m]
    eligible = np.flatnonzero(counts >= _checked(fewest))
    noise = noise[eligible]
    columns = {
        "id": model.ids_[m].labels[eligible],
        "noise_std": noise,
        "observations": counts[eligible],
        "relative": noise / (np.median(noise) if len(noise) else np.nan),
    }
    return _first(columns, by=noise, n=n)


def noisy_observations(model: Rows, X: Any, y: Any = None, *, n: int | None = 20) -> Table:
    """Rank single observations by how far they lie from what the model expects.

    X and y are as for ``fit``, and may be what the model was trained on. The table has one column
    per mode, value, predicted, std, and surprise: the error in stds. It begins with the most
    surprising `n`; None gives all.

    Examples
    --------
    >>> from noisewise import DeviationFactorizer
    >>> ratings = [("ann", "Alien", 5), ("ann", "Brazil", 4), ("bob", "Brazil", 1)]
    >>> model = DeviationFactorizer(rank=1, patience=None, random_state=0).fit(ratings)
    >>> table = noisy_observations(model, ratings, n=1)
    >>> sorted(table)
    ['item', 'predicted', 'std', 'surprise', 'user', 'value']
    """
    check_is_fitted(model)
    model = as_it_is(model)
    observations = model.observed(X, y)
    mean, std = model.expected(observations)
    surprise = (observations.values - mean) / std
    modes = zip(observations.ids, observations.codes, strict=True)
    columns = {ids.name: ids.labels[codes] for ids, codes in modes}
    columns |= {
        "value": observations.values, "predicted": mean, "std": std, "surprise": surprise,
    }  # fmt: skip
    return _first(columns, by=np.abs(surprise), n=n)


def noise_model(X: Any, y: Any = None, **settings: Any) -> TemporalFactorizer:
    """Fit the model by which sensors are judged; settings are those of ``TemporalFactorizer``.

    It has one factor: what one sensor does alone must not pass for something that all share.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> day = np.sin(np.arange(100) / 4)
    >>> rooms = {f"room {k}": rng.normal(day, 0.1 + (k == 2)) for k in range(5)}
    >>> rows = [(room, t, y) for room, path in rooms.items() for t, y in enumerate(path)]
    >>> noise_model(rows, random_state=0, n_jobs=1).predict([("room 1", 50)]).shape
    (1,)
    """
    return TemporalFactorizer(**(JUDGE | settings)).fit(X, y)


def table_noise_model(
    X: Any,
    *,
    time: Any = None,
    location: Any = None,
    sensor: Any = "auto",
    value: Any = None,
    duplicates: Duplicates = "error",
    **settings: Any,
) -> TemporalFactorizer:
    """Fit the model by which sensors are judged to a table as ``DeviationImputer`` takes it.

    X is a wide or long frame, a series, an array or of xarray, with holes or without; the other
    parameters say what is what in it, as they do there. Settings are as for ``noise_model``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> day = np.sin(np.arange(100) / 4)[:, None]
    >>> heat = rng.normal(20 + day, [0.1, 0.1, 1.0, 0.1, 0.1])
    >>> model = table_noise_model(heat, sensor=None, random_state=0, n_jobs=1)
    >>> noisy_series(model, n=1)["series"].tolist()
    [2]
    """
    table = labelled(X, Roles(time, location, sensor, value, duplicates))
    seen = table.observed(duplicates)
    if len(seen) < 2:
        raise DataError(f"X has {len(seen)} readings; at least 2 are needed.")
    known = Observations(seen.codes, check_values(seen.values, "value"), seen.ids)
    return noise_model(known, sensor=table.sensor, **settings)


def noisy_series(model: TemporalFactorizer, *, n: int | None = 20, fewest: int = 1) -> Table:
    """Rank series of sensors by what they do alone: scatter and drift.

    Beside what all sensors have in common, a series has an Ornstein-Uhlenbeck path of its own, and
    noise. What of both is gone by the next reading is white noise; what stays is drift. Each is
    compared with the other series of the same sensor, or with all where these are fewer than 4: by
    how many standard deviations, told by the median distance, its logarithm lies above their
    median. ``noise`` is the root of the sum of both squares, what lies below the median counting as
    0. Above 3 or so, a sensor is not like the others.

    The model is one such as ``noise_model`` or ``table_noise_model`` gives; ``n`` and ``fewest``
    are as for ``noisy_ids``. The table has a column of ids for each mode but time, noise, white,
    drift, white_std and drift_std (in units of the values), and observations.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> day = np.sin(np.arange(100) / 4)
    >>> rooms = {f"room {k}": rng.normal(day, 0.1 + (k == 2)) for k in range(5)}
    >>> rows = [(room, t, y) for room, path in rooms.items() for t, y in enumerate(path)]
    >>> table = noisy_series(noise_model(rows, random_state=0, n_jobs=1))
    >>> table["user"][0], bool(table["white"][0] > 3), bool(table["drift"][0] < 3)
    ('room 2', True, True)
    """
    model = as_it_is(model)
    known = model.noise_by_series_
    eligible = np.flatnonzero(known["observations"] >= _checked(fewest))
    known = {name: column[eligible] for name, column in known.items()}
    grouping, units = model.encoder_.grouping, model.encoder_.units
    sensors = grouping.sensors[eligible]
    names = [ids.name for mode, ids in enumerate(model.ids_) if mode != grouping.time]
    series = model.posterior_.series
    gaps = np.diff(series.time)[np.diff(series.which) == 0]
    gap = float(np.median(gaps)) if len(gaps) else 0.0
    stays = np.exp(-gap / known["timescale"])  # of a path, until the next reading
    white_std = np.sqrt(known["noise_std"] ** 2 + (1.0 - stays) * known["drift_std"] ** 2)
    drift_std = np.sqrt(stays) * known["drift_std"]
    scale = np.sqrt(units.variance[sensors])
    white, drift = (
        unusual(std / scale, sensors, known["observations"]) for std in (white_std, drift_std)
    )
    noise = np.hypot(np.maximum(white, 0.0), np.maximum(drift, 0.0))
    columns = {name: known[name] for name in names} | {
        "noise": noise, "white": white, "drift": drift, "white_std": white_std,
        "drift_std": drift_std, "observations": known["observations"],
    }  # fmt: skip
    return _first(columns, by=noise, n=n)


def noisy_places(
    model: TemporalFactorizer, *, mode: int | str = 0, n: int | None = 20, fewest: int = 1
) -> Table:
    """Rank locations, or the ids of another mode, by the noise of their series.

    All series of a location count the same: its noise is the root mean square of theirs, and so are
    its white noise and its drift. ``mode`` is any but time, by number or name; all else is as for
    ``noisy_series``. The table has id, noise, white, drift, worst (the other ids of its noisiest
    series), series (how many) and observations.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> day = np.sin(np.arange(100) / 4)
    >>> rooms = {f"room {k}": rng.normal(day, 0.1 + (k == 2)) for k in range(5)}
    >>> rows = [(room, t, y) for room, path in rooms.items() for t, y in enumerate(path)]
    >>> model = noise_model(rows, random_state=0, n_jobs=1)
    >>> noisy_places(model, n=1)["id"].tolist()
    ['room 2']
    """
    model = as_it_is(model)
    table = noisy_series(model, n=None, fewest=fewest)
    ids = model.ids_[mode_number(mode, model.ids_, "mode")]
    if ids.name not in table:
        raise SettingError(f"mode must be another one than that of time; got {mode!r}.")
    others = [own.name for own in model.ids_ if own is not ids and own.name in table]
    rows, first, which, many = np.unique(
        ids.lookup(table[ids.name]), return_index=True, return_inverse=True, return_counts=True
    )

    def together(name: str) -> Column:
        return np.sqrt(np.bincount(which, np.maximum(table[name], 0.0) ** 2) / many)

    noise = together("noise")
    worst = [" ".join(str(table[name][row]) for name in others) for row in first]
    columns = {
        "id": ids.labels[rows], "noise": noise, "white": together("white"),
        "drift": together("drift"), "worst": np.array(worst, dtype=object), "series": many,
        "observations": np.bincount(which, table["observations"]).astype(np.int64),
    }  # fmt: skip
    return _first(columns, by=noise, n=n)


def unusual(stds: Column, sensors: Column, counts: Column) -> Column:
    """Tell how far stds lie above the median of their sensor, in stds of their logarithms.

    Sensors borrow some of that std from all; those of very few series, all of it and the median
    too. A std that few observations told may be off by chance: that counts, too.
    """
    if not len(stds):
        return np.empty(0)
    logs = np.log(np.maximum(stds, np.finfo(np.float64).tiny))
    parts = [np.flatnonzero(sensors == sensor) for sensor in np.unique(sensors)]
    away, out = np.empty(len(logs)), np.empty(len(logs))
    for part in parts:
        peers = logs[part] if len(part) >= FEWEST_PEERS else logs
        away[part] = logs[part] - np.median(peers)
    common = _spread(away)
    for part in parts:
        many = len(part) if len(part) >= FEWEST_PEERS else 0
        variance = (many * _spread(away[part]) ** 2 + BORROWED * common**2) / (many + BORROWED)
        out[part] = away[part] / np.sqrt(variance + 0.5 / counts[part])
    return out


def _checked(fewest: int) -> int:
    whole(0).require("fewest", fewest)
    return max(fewest, 1)


def _first(columns: Table, *, by: Column, n: int | None) -> Table:
    """Return the `n` rows of a table with the largest numbers, those first; None gives all."""
    either(whole(1), None).require("n", n)
    order = np.argsort(-by, kind="stable")[:n]
    return {name: column[order] for name, column in columns.items()}


def _spread(away: Column) -> float:
    """Return the standard deviation of distances from a median, as their own median tells it."""
    return float(np.median(np.abs(away)) / stats.norm.ppf(0.75))
