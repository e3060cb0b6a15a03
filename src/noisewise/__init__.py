"""Noise-aware matrix factorization: a prediction, and how far off it may be."""

from noisewise.calibration import Calibration
from noisewise.data import Ids, Observations, observe
from noisewise.data.files import read
from noisewise.errors import (
    DataError,
    DivergedError,
    FitInterrupted,
    MissingExtraError,
    ModelFileError,
    NoisewiseError,
    PluginError,
    SettingError,
)
from noisewise.imputer import DeviationImputer
from noisewise.models import load
from noisewise.models.auto import AutoFactorizer
from noisewise.models.bayesian import BayesianFactorizer
from noisewise.models.deviation import DeviationFactorizer
from noisewise.models.interpolation import LinearInterpolator
from noisewise.models.residual import ResidualFactorizer
from noisewise.models.smoother import OUSmoother
from noisewise.models.temporal import TemporalFactorizer
from noisewise.noise import noise_model, noisy_ids, noisy_observations, noisy_places, noisy_series
from noisewise.version import VERSION

__version__ = VERSION
del VERSION

__all__ = [
    "AutoFactorizer",
    "BayesianFactorizer",
    "Calibration",
    "DataError",
    "DeviationFactorizer",
    "DeviationImputer",
    "DivergedError",
    "FitInterrupted",
    "Ids",
    "LinearInterpolator",
    "MissingExtraError",
    "ModelFileError",
    "NoisewiseError",
    "OUSmoother",
    "Observations",
    "PluginError",
    "ResidualFactorizer",
    "SettingError",
    "TemporalFactorizer",
    "load",
    "noise_model",
    "noisy_ids",
    "noisy_observations",
    "noisy_places",
    "noisy_series",
    "observe",
    "read",
]
