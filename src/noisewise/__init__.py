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
from noisewise.models.drmf import TrimmedFactorizer
from noisewise.models.linear import DeviationRegressor
from noisewise.models.rbmf import RobustBayesianFactorizer
from noisewise.models.rcf import HuberFactorizer
from noisewise.noise import noisy_ids, noisy_observations
from noisewise.observations import Ids, Observations, observe

__version__ = "0.1.0"

__all__ = [
    "BayesianFactorizer",
    "Calibration",
    "DataError",
    "DeviationFactorizer",
    "DeviationRegressor",
    "DivergedError",
    "HuberFactorizer",
    "Ids",
    "MissingExtraError",
    "ModelFileError",
    "NoisewiseError",
    "Observations",
    "RobustBayesianFactorizer",
    "SettingError",
    "TrimmedFactorizer",
    "load",
    "noisy_ids",
    "noisy_observations",
    "observe",
    "read",
]
