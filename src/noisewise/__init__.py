"""Noise-aware matrix factorization: a prediction, and how far off it may be.

Public names are imported when they are first used, so that ``import noisewise`` itself costs next
to nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisewise.anomalies.find import find_anomalies
    from noisewise.calibration import Calibration
    from noisewise.data import Ids, Observations, observe
    from noisewise.data.feature_files import read_features
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
    from noisewise.gaps import GapReport, gap_report
    from noisewise.imputer import DeviationImputer
    from noisewise.models import load
    from noisewise.models.auto import AutoFactorizer
    from noisewise.models.bayesian import BayesianFactorizer
    from noisewise.models.deviation import DeviationFactorizer
    from noisewise.models.residual import ResidualFactorizer
    from noisewise.models.series import LinearInterpolator, OUSmoother
    from noisewise.models.temporal import TemporalFactorizer
    from noisewise.noise import (
        noise_model,
        noisy_ids,
        noisy_observations,
        noisy_places,
        noisy_series,
        table_noise_model,
    )

_NAMES = {
    "anomalies.find": "find_anomalies",
    "data": "Ids Observations observe",
    "data.feature_files": "read_features",
    "data.files": "read",
    "errors": (
        "DataError DivergedError FitInterrupted MissingExtraError ModelFileError NoisewiseError "
        "PluginError SettingError"
    ),
    "gaps": "GapReport gap_report",
    "imputer": "DeviationImputer",
    "models": "load",
    "models.auto": "AutoFactorizer",
    "models.bayesian": "BayesianFactorizer",
    "models.deviation": "DeviationFactorizer",
    "models.residual": "ResidualFactorizer",
    "models.series": "LinearInterpolator OUSmoother",
    "models.temporal": "TemporalFactorizer",
    "noise": (
        "noise_model noisy_ids noisy_observations noisy_places noisy_series table_noise_model"
    ),
    "calibration": "Calibration",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__version__ = "0.1.0"

__all__ = [
    "AutoFactorizer", "BayesianFactorizer", "Calibration", "DataError", "DeviationFactorizer",
    "DeviationImputer", "DivergedError", "FitInterrupted", "GapReport", "Ids",
    "LinearInterpolator", "MissingExtraError", "ModelFileError", "NoisewiseError", "OUSmoother",
    "Observations", "PluginError", "ResidualFactorizer", "SettingError", "TemporalFactorizer",
    "find_anomalies", "gap_report", "load", "noise_model", "noisy_ids", "noisy_observations",
    "noisy_places", "noisy_series", "observe", "read", "read_features", "table_noise_model",
]  # fmt: skip


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name, or a module of this package, when it is first asked for."""
        if name in _HOME:
            globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
            return globals()[name]
        if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
