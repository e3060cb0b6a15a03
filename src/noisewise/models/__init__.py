"""One file per model, all with one contract; ``load`` reads any of them back."""

from __future__ import annotations

from pathlib import Path

from noisewise import storage
from noisewise.errors import ModelFileError
from noisewise.models.auto import AutoFactorizer
from noisewise.models.autorec import AutoRec
from noisewise.models.base import Factorizer
from noisewise.models.bayesian import BayesianFactorizer
from noisewise.models.deviation import DeviationFactorizer
from noisewise.models.drmf import TrimmedFactorizer
from noisewise.models.interpolation import LinearInterpolator
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

MODELS: dict[str, type[Factorizer]] = {
    model.__name__: model
    for model in (
        AutoFactorizer,
        AutoRec,
        BayesianFactorizer,
        DeviationFactorizer,
        HuberFactorizer,
        LinearInterpolator,
        LLORMA,
        OUSmoother,
        RBM,
        ResidualFactorizer,
        RobustBayesianFactorizer,
        SpatialNeighbours,
        TableImputer,
        TemporalFactorizer,
        TrimmedFactorizer,
        TuckerFactorizer,
    )
}


def load(path: str | Path) -> Factorizer:
    """Read a model of any kind that ``save`` wrote.

    Raises
    ------
    ModelFileError
        If the file is broken, foreign, or of a model that this version does not have.
    """
    name = storage.read_header(path, "model").get("model")
    if not isinstance(name, str) or name not in MODELS:
        raise ModelFileError(
            f"{path} holds a model that this version does not have: {storage.shown(name)}."
        )
    return MODELS[name].load(path)
