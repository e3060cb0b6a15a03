"""A model inside another: the settings it is given, and the part of the file that it is kept in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.base import clone

from noisewise import storage
from noisewise.models.base import Factorizer, model_class


def clone_with(model: Factorizer, **settings: Any) -> Any:
    """Return an unfitted copy of a model, with those of the settings that it knows.

    Examples
    --------
    >>> from noisewise.models.smoother import OUSmoother
    >>> clone_with(OUSmoother(time=0), n_jobs=1, random_state=7)
    OUSmoother(n_jobs=1, time=0)
    """
    copy = clone(model)
    known = copy.get_params(deep=False)
    return copy.set_params(**{name: value for name, value in settings.items() if name in known})


def shown(verbose: bool | None) -> dict[str, bool]:
    """Return ``verbose`` for a model within another, which keeps its own unless told otherwise."""
    return {} if verbose is None else {"verbose": verbose}


def pack(model: Factorizer, name: str) -> tuple[dict[str, Any], storage.Tensors]:
    """Return the part of the header, and the tensors, of a fitted model within another."""
    header, tensors = model._filed()
    return {name: header}, {f"{name}.{key}": tensor for key, tensor in tensors.items()}


def unpack(path: str | Path, header: dict[str, Any], tensors: storage.Tensors, name: str) -> Any:
    """Undo ``pack``, trusting nothing."""
    own = {
        key.removeprefix(f"{name}."): tensor
        for key, tensor in tensors.items()
        if key.startswith(f"{name}.")
    }
    return model_class(path, header[name]["model"])._unfiled(path, header[name], own)
