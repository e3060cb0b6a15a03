"""An imputer as a file has it: settings, readings and the model; nothing in it can run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noisewise import storage
from noisewise.data.holes import CLOCKS, Fitted
from noisewise.errors import ModelFileError, SettingError
from noisewise.imputing.knowledge import Knowledge
from noisewise.models.base import OF_THE_MACHINE
from noisewise.settings import check

_KIND = "imputer"
LATEST = 2**62  # time that rows may be counted from: more would not fit a number of 64 bits


def write(path: str | Path, imputer: Any) -> None:
    """Write a fitted imputer, wholly or not at all."""
    header, tensors = imputer._knowledge.pack()
    names = getattr(imputer, "feature_names_in_", None)
    settings = imputer.get_params(deep=False)
    del settings["verbose"]  # how it is watched is no part of it
    settings["settings"] = _kept(settings["settings"])
    header |= {
        "settings": _plain(settings),
        "fitted": imputer._fitted,
        "n_features": getattr(imputer, "n_features_in_", None),
        "features": None if names is None else names.tolist(),
    }
    storage.write(path, _KIND, header, tensors)


def read(path: str | Path, kind: type[Any]) -> Any:
    """Undo ``write``, trusting nothing."""
    header, tensors = storage.read(path, _KIND)
    try:
        imputer = kind(**_given(header["settings"]))
        check(imputer, kind._rules)
        imputer._knowledge = Knowledge.unpack(path, header, tensors)
        imputer._fitted = _fitted(path, header["fitted"], imputer._knowledge)
        names, many = header["features"], header["n_features"]
        if names is not None:
            imputer.feature_names_in_ = np.array(list(map(str, names)), dtype=object)
        if many is not None:
            imputer.n_features_in_ = storage.take_whole(path, header, "n_features", least=1)
            if names is not None and len(names) != many:
                raise ModelFileError(f"{path} is damaged: it names {len(names)} of {many} columns.")
    except ModelFileError:
        raise
    except storage.BROKEN as error:
        raise storage.damaged(path, error) from error
    return imputer


def _fitted(path: str | Path, entry: Any, knowledge: Knowledge) -> Fitted:
    names, lengths, clock, end = entry
    if type(end) is not int or abs(end) > LATEST:
        raise ModelFileError(f"{path} is damaged: its readings end at {storage.shown(end)}.")
    fitted = Fitted(tuple(names), tuple(map(int, lengths)), clock, end)
    if fitted.names != knowledge.seen.names or clock not in CLOCKS:
        raise ModelFileError(f"{path} is damaged: its readings are of another table.")
    return fitted


def _kept(settings: Any) -> Any:
    """Return settings of the model without those that no file decides."""
    if settings is None:
        return None
    return {name: value for name, value in settings.items() if name not in OF_THE_MACHINE}


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as JSON has them; a dict from columns becomes pairs."""
    if isinstance(settings["random_state"], np.random.RandomState):
        settings["random_state"] = None
    for name in ("location", "sensor"):
        if isinstance(settings[name], Mapping):
            settings[name] = list(settings[name].items())
    for name, value in settings.items():
        try:
            json.dumps(value)
        except TypeError:
            hint = "; give a dict instead" if callable(value) else ""
            raise SettingError(
                f"{name} must be plain numbers and text to be saved{hint}; got {value!r}."
            ) from None
    return settings


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """Undo ``_plain``."""
    for name in ("location", "sensor"):
        if isinstance(settings[name], list):
            settings[name] = dict(settings[name])
    inside = _kept(settings["settings"])
    if inside is not None:
        settings["settings"] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in inside.items()
        }
    return settings
