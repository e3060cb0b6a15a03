"""A model as a file has it: settings, ids, calibration, and what it has learned.

Ids are whole numbers, text, or JSON with the names of types.
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from noisewise import registry
from noisewise.calibration import Calibration
from noisewise.data import Ids
from noisewise.data.ids import check_ids
from noisewise.errors import DataError, ModelFileError
from noisewise.settings import check
from noisewise.storage import (
    ANY,
    BROKEN,
    Tensors,
    check_starts,
    cut,
    damaged,
    rises,
    shown,
    take,
    take_whole,
)

LARGEST_SCALE = 1e18  # of a calibration, whose square float32 can hold
OF_THE_MACHINE = ("verbose",)  # settings that no file keeps or decides


def pack(model: Any) -> tuple[dict[str, Any], Tensors]:
    """Return the header and the tensors of a file that holds a fitted model."""
    header, tensors = model.pack()
    packed = [pack_ids(ids, f"mode{m}") for m, ids in enumerate(model.ids_)]
    for _, id_tensors in packed:
        tensors |= id_tensors
    header |= {
        "model": type(model).__name__,
        "settings": _settings(model),
        "ids": [entry for entry, _ in packed],
        "has_names": hasattr(model, "feature_names_in_"),
        "value_range": model.value_range_,
        "calibration": None,
    }
    if model.calibration_ is not None:
        header["calibration"] = {"scale": model.calibration_.scale, "n": model.calibration_.n}
        tensors["calibration.scores"] = model.calibration_.scores
    return header, tensors


def unpack(path: str | Path, header: dict[str, Any], tensors: Tensors, *, kind: Any = None) -> Any:
    """Undo ``pack``, trusting nothing; if a class is given, the model must be of it."""
    name = header.get("model")
    if kind is not None and name != kind.__name__:
        raise ModelFileError(f"{path} holds a {name}, not a {kind.__name__}.")
    try:
        model = _made(path, kind or model_class(path, name), header["settings"])
        model.ids_ = tuple(
            unpack_ids(path, entry, tensors, f"mode{m}") for m, entry in enumerate(header["ids"])
        )
        if len(model.ids_) < 2:
            raise ModelFileError(
                f"{path} is damaged: it must have 2 modes, but has {len(model.ids_)}."
            )
        model.n_features_in_ = len(model.ids_)
        if header.get("has_names") is True:
            model.name_columns()
        model.value_range_ = _value_range(path, header["value_range"])
        model.calibration_ = _calibration(path, header["calibration"], tensors)
        model.unpack(path, header, tensors)
    except ModelFileError:
        raise
    except BROKEN as error:
        raise damaged(path, error) from error
    return model


def pack_part(model: Any, name: str) -> tuple[dict[str, Any], Tensors]:
    """Return the part of the header, and the tensors, of a fitted model within another."""
    header, tensors = pack(model)
    return {name: header}, {f"{name}.{key}": tensor for key, tensor in tensors.items()}


def unpack_part(path: str | Path, header: dict[str, Any], tensors: Tensors, name: str) -> Any:
    """Undo ``pack_part``, trusting nothing."""
    own = {
        key.removeprefix(f"{name}."): tensor
        for key, tensor in tensors.items()
        if key.startswith(f"{name}.")
    }
    return unpack(path, header[name], own)


def _calibration(path: str | Path, entry: Any, tensors: Tensors) -> Calibration | None:
    if entry is None:
        return None
    scores = take(path, tensors, "calibration.scores", "float64", ANY)
    scale, n = float(entry["scale"]), take_whole(path, entry, "n")
    in_order = len(scores) > 0 and scores[0] >= 0 and rises(scores)
    if not (in_order and 0 < scale < LARGEST_SCALE and len(scores) <= n):
        raise ModelFileError(f"{path} is damaged: its calibration makes no sense.")
    return Calibration(scale, scores, n)


def _value_range(path: str | Path, entry: Any) -> tuple[float, float] | None:
    if entry is None:
        return None
    low, high = (float(end) for end in entry)
    if not low <= high:
        raise ModelFileError(f"{path} is damaged: its range of values is {shown(entry)}.")
    return low, high


def model_class(path: str | Path, name: Any) -> Any:
    """Return the class that a file names, if noisewise or an installed package declares it."""
    kind = registry.class_named(name)
    if hasattr(kind, "load"):  # else the package declares what is no model
        return kind
    raise ModelFileError(f"{path} holds a model that no installed package has: {shown(name)}.")


def _settings(model: Any) -> dict[str, Any]:
    """Return settings as a file has them: where and how a fit runs is not among them."""
    params = model.get_params(deep=False)
    return {name: _plain(params[name]) for name in params if name not in OF_THE_MACHINE}


def _plain(value: Any) -> Any:
    """Return a setting as JSON has it; of a model within a model, its class and settings."""
    if isinstance(value, BaseEstimator):
        return {"model": type(value).__name__, "settings": _settings(value)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return None if isinstance(value, np.random.RandomState | np.random.Generator) else str(value)


def _made(path: str | Path, kind: Any, settings: dict[str, Any]) -> Any:
    """Return a model with the settings of a file, which obey the same rules as those of a user."""
    given = {name: _setting(path, v) for name, v in settings.items() if name not in OF_THE_MACHINE}
    model = kind(**given)
    check(model)
    return model


def _setting(path: str | Path, value: Any) -> Any:
    """Undo ``_plain``."""
    if isinstance(value, list):
        return tuple(_setting(path, part) for part in value)
    if isinstance(value, dict):
        return _made(path, model_class(path, value["model"]), value["settings"])
    return value


def pack_ids(ids: Ids, prefix: str) -> tuple[dict[str, Any], Tensors]:
    """Turn ids into a header entry and tensors: whole numbers, text, or JSON with type names."""
    entry = {"name": ids.name, "length": len(ids)}
    if ids.labels.dtype == np.int64:
        return {**entry, "type": "int"}, {f"{prefix}.ids": ids.labels}
    labels = ids.labels.tolist()
    if all(type(label) is str for label in labels):
        return {**entry, "type": "str"}, _pack_texts(labels, prefix)
    texts = [json.dumps(_tagged(label)) for label in labels]
    for label, text in zip(labels, texts, strict=True):
        if _untagged(json.loads(text)) != label:
            _refuse_id(label)
    return {**entry, "type": "json"}, _pack_texts(texts, prefix)


def unpack_ids(path: str | Path, entry: Any, tensors: Tensors, prefix: str) -> Ids:
    """Undo ``pack_ids``; ids obey the rules of any table, as the file is not trusted."""
    try:
        name, kind = entry["name"], entry["type"]
        length = take_whole(path, entry, "length", least=1, most=2**31 - 1)
        if not isinstance(name, str):
            raise ModelFileError(f"{path} is damaged: a mode is called {shown(name)}.")
        if kind == "int":
            labels = take(path, tensors, f"{prefix}.ids", "int64", length)
            different = len(np.unique(labels))
        elif kind in ("str", "json"):
            found: list[Any] = _unpack_texts(path, tensors, prefix, length)
            if kind == "json":
                found = [_untagged(json.loads(text)) for text in found]
                check_ids(found, name)
            labels = _objects(found)
            different = len(set(found))
        else:
            raise ModelFileError(f"{path} is damaged: ids of the unknown type {shown(kind)}.")
    except ModelFileError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ModelFileError(
            f"{path} is damaged: its ids cannot be read ({cut(repr(error))})."
        ) from error
    if different != length:
        raise ModelFileError(f"{path} is damaged: {length} ids, but only {different} different.")
    return Ids(labels, name)


def _pack_texts(texts: list[str], prefix: str) -> Tensors:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {
        f"{prefix}.ids": np.frombuffer(b"".join(encoded), dtype=np.uint8),
        f"{prefix}.id_ends": ends,
    }


def _unpack_texts(path: str | Path, tensors: Tensors, prefix: str, length: int) -> list[str]:
    blob = take(path, tensors, f"{prefix}.ids", "uint8", ANY).tobytes()
    ends = take(path, tensors, f"{prefix}.id_ends", "int64", length)
    bounds = np.append(0, ends)
    check_starts(path, f"{prefix}.id_ends", bounds)
    if bounds[-1] != len(blob):
        raise ModelFileError(f"{path} is damaged: its ids do not match their lengths.")
    pairs = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    return [blob[start:end].decode("utf-8", "surrogatepass") for start, end in pairs]


def _tagged(label: object) -> Any:
    """JSON that remembers the type of an id."""
    if isinstance(label, np.generic) and not isinstance(label, np.datetime64):
        label = label.item()  # inside a tuple; elsewhere numpy's numbers are Python's by now
    if label is None or isinstance(label, bool | str):
        return label
    if isinstance(label, int):
        return {"int": str(label)}
    if isinstance(label, float):
        return {"float": label.hex()}
    if isinstance(label, bytes):
        return {"bytes": label.hex()}
    if isinstance(label, tuple):
        return {"tuple": [_tagged(part) for part in label]}
    for kind in (datetime.datetime, datetime.date, datetime.time):
        if isinstance(label, kind):
            return {kind.__name__: label.isoformat()}
    if isinstance(label, np.datetime64):
        return {"datetime64": str(label)}
    if isinstance(label, uuid.UUID):
        return {"uuid": label.hex}
    if isinstance(label, decimal.Decimal):
        return {"decimal": str(label)}
    return _refuse_id(label)


def _refuse_id(label: object) -> NoReturn:
    raise DataError(
        f"Ids of type {type(label).__name__} cannot be saved, e.g. {label!r}; "
        "use int, str, float, bool, bytes, dates, UUIDs, decimals, or tuples of these."
    )


def _untagged(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "tuple":
        return tuple(_untagged(part) for part in content)
    readers: dict[str, Callable[[str], Any]] = {
        "int": int,
        "float": float.fromhex,
        "bytes": bytes.fromhex,
        "date": datetime.date.fromisoformat,
        "datetime": datetime.datetime.fromisoformat,
        "time": datetime.time.fromisoformat,
        "datetime64": np.datetime64,
        "uuid": uuid.UUID,
        "decimal": _decimal,
    }
    return readers[tag](content)


def _decimal(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text!r} is no decimal") from None


def _objects(values: list[Any]) -> npt.NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
