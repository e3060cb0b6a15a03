"""Ids as a file has them: whole numbers, text, or JSON with the names of types."""

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

from noisewise.data import Ids
from noisewise.data.tables import check_ids
from noisewise.errors import DataError, ModelFileError
from noisewise.storage import ANY, Tensors, check_starts, cut, shown, take, take_whole


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
            _refuse(label)
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
    return _refuse(label)


def _refuse(label: object) -> NoReturn:
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
