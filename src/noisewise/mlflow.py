"""An MLflow flavour: models are logged, loaded and served by MLflow, without pickle.

A logged model is the safetensors file that ``save`` writes, with a signature. As a ``pyfunc`` it
takes a frame of ids and gives mean, std, and the ends of an interval; an imputer takes a table with
holes and gives it filled, with a column of stds beside each that had holes (extra: mlflow).
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from noisewise.any_file import load_any
from noisewise.calibration import check_coverage
from noisewise.errors import MissingExtraError
from noisewise.imputer import DeviationImputer

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of models of its own that MLflow looks at
        pyfunc: Any = import_module("mlflow.pyfunc")  # the module, not what stands for it
        from mlflow.models import Model, ModelSignature
        from mlflow.models.utils import _save_example  # what every flavour of MLflow calls
        from mlflow.tracking.artifact_utils import _download_artifact_from_uri
        from mlflow.types.schema import ColSpec, DataType, ParamSchema, ParamSpec, Schema
except ImportError:
    raise MissingExtraError("The MLflow flavour", "mlflow") from None

FLAVOR_NAME = "noisewise"
FILE = "model.safetensors"
COVERAGE = 0.9


def save_model(
    model: Any,
    path: str | Path,
    *,
    mlflow_model: Any = None,
    signature: Any = None,
    input_example: Any = None,
    pip_requirements: list[str] | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Save a fitted model or imputer as an MLflow model.

    Parameters
    ----------
    model : Factorizer or DeviationImputer
        Fitted.
    path : path
        The folder to make.
    mlflow_model : mlflow.models.Model, optional
        What ``log_model`` adds to.
    signature : ModelSignature, optional
        By default that of the ids of a model; an imputer has none: its tables are of any kind.
    input_example : frame, optional
        An example that MLflow keeps with the model.
    pip_requirements : list of str, optional
        By default this version of noisewise.
    metadata : dict, optional
        Anything to keep with the model.

    Examples
    --------
    >>> import tempfile
    >>> from noisewise import DeviationFactorizer
    >>> model = DeviationFactorizer(rank=1, patience=None).fit([("ann", "M", 5), ("bob", "M", 4)])
    >>> save_model(model, f"{tempfile.mkdtemp()}/films")
    """
    check_is_fitted(model)
    folder = Path(path)
    folder.mkdir(parents=True)
    mlflow_model = Model() if mlflow_model is None else mlflow_model
    if input_example is not None:
        _save_example(mlflow_model, input_example, str(folder))
    signature = signature_of(model) if signature is None else signature
    if signature is not None:
        mlflow_model.signature = signature
    if metadata is not None:
        mlflow_model.metadata = metadata
    model.save(folder / FILE)
    _write_needs(folder, pip_requirements or [f"noisewise[mlflow]=={version('noisewise')}"])
    pyfunc.add_to_model(
        mlflow_model, loader_module="noisewise.mlflow", data=FILE,
        python_env="python_env.yaml",
    )  # fmt: skip
    kind = type(model).__name__
    mlflow_model.add_flavor(
        FLAVOR_NAME, noisewise_version=version("noisewise"), data=FILE, model=kind
    )
    mlflow_model.save(str(folder / "MLmodel"))


def _write_needs(folder: Path, packages: list[str]) -> None:
    """Write down the Python and the packages that a model needs."""
    (folder / "requirements.txt").write_text("\n".join(packages) + "\n")
    python = ".".join(map(str, sys.version_info[:3]))
    (folder / "python_env.yaml").write_text(
        f'python: "{python}"\ndependencies:\n- -r requirements.txt\n'
    )


def log_model(
    model: Any, name: str = "model", *, registered_model_name: str | None = None, **given: Any
) -> Any:
    """Log a fitted model or imputer to the active run, or to a new one; return MLflow's ModelInfo.

    Parameters
    ----------
    model : Factorizer or DeviationImputer
        Fitted.
    name : str
        What the model is called.
    registered_model_name : str, optional
        Register it under this name, too.
    **given
        As for ``save_model``.

    Examples
    --------
    It writes to the database or server that MLflow is set up with.

    >>> from noisewise import DeviationFactorizer
    >>> model = DeviationFactorizer(rank=1, patience=None).fit([("ann", "M", 5), ("bob", "M", 4)])
    >>> info = log_model(model, "films")  # doctest: +SKIP
    >>> load_model(info.model_uri)  # doctest: +SKIP
    DeviationFactorizer(patience=None, rank=1)
    """
    settings = {key: str(value)[:500] for key, value in model.get_params(deep=False).items()}
    return Model.log(
        artifact_path=None, name=name, flavor=sys.modules[__name__], model=model,
        registered_model_name=registered_model_name, params=settings, **given,
    )  # fmt: skip


def load_model(model_uri: str, dst_path: str | None = None) -> Any:
    """Load what ``log_model`` or ``save_model`` kept, as the model that it was.

    Examples
    --------
    >>> import tempfile
    >>> from noisewise import DeviationFactorizer
    >>> model = DeviationFactorizer(rank=1, patience=None).fit([("ann", "M", 5), ("bob", "M", 4)])
    >>> folder = f"{tempfile.mkdtemp()}/films"
    >>> save_model(model, folder)
    >>> load_model(folder)
    DeviationFactorizer(patience=None, rank=1)
    """
    folder = Path(_download_artifact_from_uri(artifact_uri=model_uri, output_path=dst_path))
    flavour = Model.load(str(folder)).flavors[FLAVOR_NAME]
    return load_any(folder / flavour["data"])


def signature_of(model: Any) -> Any:
    """Return what a model takes and gives as MLflow has it; None for an imputer."""
    if isinstance(model, DeviationImputer):
        return None
    kinds = {"i": DataType.long, "f": DataType.double}
    inputs = [
        ColSpec(kinds.get(ids.labels.dtype.kind, DataType.string), ids.name) for ids in model.ids_
    ]
    outputs = [ColSpec(DataType.double, name) for name in ("mean", "std", "low", "high")]
    coverage = ParamSpec("coverage", DataType.double, COVERAGE)
    return ModelSignature(Schema(inputs), Schema(outputs), ParamSchema([coverage]))


class Wrapped:
    """A model as MLflow's ``pyfunc`` asks it."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def get_raw_model(self) -> Any:
        """Return the model itself."""
        return self.model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Predict cells of a frame of ids; of an imputer, fill a table."""
        pd: Any = import_module("pandas")
        if isinstance(self.model, DeviationImputer):
            return self._filled(model_input)
        coverage = float((params or {}).get("coverage", COVERAGE))
        check_coverage(coverage)
        mean, std = self.model.predict(model_input, return_std=True)
        low, high = self.model.interval(mean, std, coverage, self.model.strangers(model_input))
        columns = {"mean": mean, "std": std, "low": low, "high": high}
        return pd.DataFrame({name: np.asarray(c, np.float64) for name, c in columns.items()})

    def _filled(self, table: Any) -> Any:
        filled, std = self.model.transform(table, return_std=True)
        if not hasattr(filled, "columns"):
            return filled
        given, out = table, filled.copy()
        for name in given.columns[given.isna().any()]:
            out[f"{name}_std"] = std[name]
        return out


def _load_pyfunc(data_path: str) -> Wrapped:
    """Load a model for ``mlflow.pyfunc``, which looks for a function of this name."""
    return Wrapped(load_any(Path(data_path)))
