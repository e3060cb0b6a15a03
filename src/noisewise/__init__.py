"""Noise-aware matrix factorization: a prediction, and how far off it may be."""

from noisewise.calibration import Calibration
from noisewise.datasets import read
from noisewise.errors import (
    DataError,
    DivergedError,
    MissingExtraError,
    ModelFileError,
    NoisewiseError,
    SettingError,
)
from noisewise.models import load
from noisewise.models.bayesian import BayesianFactorizer
from noisewise.models.deviation import DeviationFactorizer
from noisewise.noise import noisy_ids, noisy_observations
from noisewise.observations import Ids, Observations, observe

__version__ = "0.1.0"

__all__ = [
    "BayesianFactorizer",
    "Calibration",
    "DataError",
    "DeviationFactorizer",
    "DivergedError",
    "Ids",
    "MissingExtraError",
    "ModelFileError",
    "NoisewiseError",
    "Observations",
    "SettingError",
    "load",
    "noisy_ids",
    "noisy_observations",
    "observe",
    "read",
]
