"""Small fitted models for tests of the service."""

import warnings

import numpy as np

from noisewise import BayesianFactorizer, DeviationFactorizer, DeviationImputer
from noisewise.data.synthetic import make_ratings


def readings():
    """Two days and more of two sensors, one of them with a hole."""
    hours = np.arange(96)
    hall, attic = 20 + np.sin(hours / 4), 15 + np.sin(hours / 4)
    hall[20:24] = np.nan
    stamps = [f"2026-01-{1 + h // 24:02d}T{h % 24:02d}:00" for h in hours.tolist()]
    return {"time": stamps, "hall": hall.tolist(), "attic": attic.tolist()}


def imputer():
    import pyarrow

    return DeviationImputer("ou", time="time", random_state=0).fit(pyarrow.table(readings()))


def save_all(folder):
    """Fit a model of each kind, and return the files they are in."""
    ratings = make_ratings(n_users=60, n_items=40, seed=0).observations
    paths = {name: folder / f"{name}.nw" for name in ("dmf", "bayes", "imputer")}
    DeviationFactorizer(rank=2, deviation_rank=1, random_state=0).fit(ratings).save(paths["dmf"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws settle little
        model = BayesianFactorizer(rank=2, sweeps=40, burn_in=20, random_state=0, n_jobs=1)
        model.fit(ratings).save(paths["bayes"])
    imputer().save(paths["imputer"])
    return paths
