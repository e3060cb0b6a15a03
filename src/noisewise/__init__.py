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
    SettingError,
)
from noisewise.imputer import DeviationImputer
from noisewise.models import load
from noisewise.models.auto import AutoFactorizer
from noisewise.models.autorec import AutoRec
from noisewise.models.bayesian import BayesianFactorizer
from noisewise.models.deviation import DeviationFactorizer
from noisewise.models.drmf import TrimmedFactorizer
from noisewise.models.interpolation import LinearInterpolator
from noisewise.models.linear import DeviationRegressor
from noisewise.models.llorma import LLORMA
from noisewise.models.rbm import RBM
from noisewise.models.rbmf import RobustBayesianFactorizer
from noisewise.models.rcf import HuberFactorizer
from noisewise.models.residual import ResidualFactorizer
from noisewise.models.smoother import OUSmoother
from noisewise.models.spatial import SpatialNeighbours
from noisewise.models.table_imputers import TableImputer
from noisewise.models.temporal import TemporalFactorizer
from noisewise.models.tucker import TuckerFactorizer
from noisewise.noise import noise_model, noisy_ids, noisy_observations, noisy_places, noisy_series
from noisewise.version import VERSION

__version__ = VERSION
del VERSION

__all__ = [
    "LLORMA",
    "RBM",
    "AutoFactorizer",
    "AutoRec",
    "BayesianFactorizer",
    "Calibration",
    "DataError",
    "DeviationFactorizer",
    "DeviationImputer",
    "DeviationRegressor",
    "DivergedError",
    "FitInterrupted",
    "HuberFactorizer",
    "Ids",
    "LinearInterpolator",
    "MissingExtraError",
    "ModelFileError",
    "NoisewiseError",
    "OUSmoother",
    "Observations",
    "ResidualFactorizer",
    "RobustBayesianFactorizer",
    "SettingError",
    "SpatialNeighbours",
    "TableImputer",
    "TemporalFactorizer",
    "TrimmedFactorizer",
    "TuckerFactorizer",
    "load",
    "noise_model",
    "noisy_ids",
    "noisy_observations",
    "noisy_places",
    "noisy_series",
    "observe",
    "read",
]
