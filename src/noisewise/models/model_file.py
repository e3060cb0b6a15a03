"""A model as a file has it: settings, ids, calibration, and what it has learned.

Ids are whole numbers, text, or JSON with the names of types.
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Callable
from itertools import pairwise
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from noisewise import registry, schema
from noisewise.calibration import COVERAGES, IDS_UNSEEN, Calibration, Shape
from noisewise.data import Ids
from noisewise.data.ids import as_objects, check_ids
from noisewise.errors import DataError, ModelFileError
from noisewise.schema import Entry, Place, Schema, Source, Tensor
from noisewise.settings import check
from noisewise.storage import BROKEN, Damaged, Foreign, Tensors, cut, reading, shown

LARGEST_SCALE = 1e18  # of a calibration, whose square float32 can hold
# Settings that no file keeps or decides.
OF_THE_MACHINE = ("verbose", "device", "precision", "deterministic")


def pack(model: Any) -> tuple[dict[str, Any], Tensors]:
    """Return the header and the tensors of a file that holds a fitted model."""
    header, tensors = schema.packed(model.schema(), model)
    common, of_all = schema.packed(_common(), model)
    about = {"model": type(model).__name__, "settings": _settings(model)}
    return header | about | common, tensors | of_all


def unpack(path: str | Path, header: dict[str, Any], tensors: Tensors, kind: Any) -> Any:
    """Undo ``pack``, trusting nothing; the model must be of a class."""
    name = header.get("model")
    if name != kind.__name__:
        raise ModelFileError(f"{path} holds a {name}, not a {kind.__name__}.")
    with reading(path):
        return _unpacked(Source(header, tensors), kind)


def model_class(name: Any) -> Any:
    """Return the class that a file names, if noisewise or an installed package declares it."""
    kind = registry.class_named(name)
    if hasattr(kind, "load"):  # else the package declares what is no model
        return kind
    raise Foreign(f"a model that no installed package has: {shown(name)}")


def _common() -> Schema:
    """Declare what files keep of every model, beside its class and its settings."""
    yield IdsOfModes("ids", "ids_")
    yield Entry("has_names", lambda model: hasattr(model, "feature_names_in_"), schema.flag)
    yield Entry("value_range", "value_range_", _span, optional=True)
    fitted = yield Entry("calibration", _calibration, schema.record, optional=True)
    if fitted is not None:
        rule, of = schema.NOT_NEGATIVE, "calibration_"
        yield Tensor("calibration.scores", "float64", (None,), f"{of}.scores", rule)
        yield Tensor("calibration.sets", "float64", (None,), f"{of}.sets", rule, optional=True)
        widths = yield Tensor(
            "calibration.widths", "float64", (len(COVERAGES), None, None), f"{of}.shape.widths",
            rule, optional=True,
        )  # fmt: skip
        sizes = {} if widths is None else _sizes(widths)
        for name, (size, rule) in sizes.items():
            yield Tensor(f"calibration.{name}", "float64", (size,), f"{of}.shape.{name}", rule)
        if widths is not None:
            own = yield Tensor(
                "calibration.strangers", "float64", (len(COVERAGES), None, None),
                f"{of}.strangers.widths", schema.NOT_NEGATIVE, optional=True,
            )  # fmt: skip
            if own is not None:
                yield Tensor(
                    "calibration.strangers_at", "float64", (own.shape[1],),
                    f"{of}.strangers.mean_groups", sizes["mean_groups"][1],
                )  # fmt: skip


def _unpacked(source: Source, kind: Any) -> Any:
    model = _made(kind, source.header["settings"])
    found = schema.unpacked(_common(), source, model)
    n_modes = len(model.ids_)
    if n_modes < 2:
        raise Damaged(f"it must have 2 modes, but has {n_modes}")
    model.n_features_in_ = n_modes
    if found["has_names"]:
        model.name_columns()
    model.calibration_ = None
    if found["calibration"] is not None:
        model.calibration_ = _calibrated(found["calibration"], found.part("calibration"))
    model.restore(schema.unpacked(model.schema(), source, model))
    return model


def _span(value: Any) -> tuple[float, float] | None:
    low, high = (float(end) for end in value)
    return (low, high) if low <= high else None


def _calibration(model: Any) -> dict[str, Any] | None:
    found = model.calibration_
    return None if found is None else {"scale": found.scale, "n": found.n}


def _sizes(widths: npt.NDArray[Any]) -> dict[str, tuple[int | None, schema.Rule]]:
    """Return lengths and rules of what belongs to the widths of a shape."""
    _, means, stds = widths.shape
    sorted_ = schema.Rule("is not sorted", lambda a: len(a) and schema.rises(a))
    rules = {"mean_at": (None, sorted_), "mean_log": (None, schema.ANYTHING)}
    rules |= {"std_at": (None, sorted_), "std_log": (None, schema.ANYTHING)}
    return rules | {"mean_groups": (means, sorted_), "std_groups": (stds, sorted_)}


def _calibrated(entry: dict[str, Any], found: dict[str, Any]) -> Calibration:
    scores, sets, shape, strangers = found["scores"], found["sets"], None, None
    scale, n = float(entry["scale"]), schema.integer()(entry["n"])
    sound = len(scores) > 0 and schema.rises(scores) and 0 < scale < LARGEST_SCALE
    if sets is not None:
        sound &= len(sets) > 0 and schema.rises(sets)
    if found["widths"] is not None:
        shape = Shape(**{name: found[name] for name in Shape._fields})
        sound &= all(len(shape[k]) == len(shape[k + 1]) for k in (0, 2))
        if found["strangers"] is not None:
            own = {"mean_groups": found["strangers_at"], "widths": found["strangers"]}
            many = own["widths"].shape[2]  # 1 in files of earlier versions
            sound &= 1 <= many <= len(IDS_UNSEEN)
            strangers = shape._replace(std_groups=IDS_UNSEEN[:many], **own)
    if not sound or n is None or len(scores) > n or (sets is not None and len(sets) > n):
        raise Damaged("its calibration makes no sense")
    return Calibration(scale, scores, n, shape, sets, strangers)


class Part(NamedTuple):
    """A field of a schema that is a fitted model within another."""

    name: str
    of: Place

    def write(self, value: Any, header: dict[str, Any], tensors: Tensors) -> None:
        """Put its header and its tensors below its name."""
        header[self.name], own = pack(value)
        tensors |= {f"{self.name}.{key}": tensor for key, tensor in own.items()}

    def read(self, source: Source) -> Any:
        """Return the model."""
        header, tensors = source.header[self.name], source.part(self.name).tensors
        return _unpacked(Source(header, tensors), model_class(header.get("model")))


class IdsOfModes(NamedTuple):
    """A field of a schema that is the ids of all modes."""

    name: str
    of: Place

    def write(self, value: tuple[Ids, ...], header: dict[str, Any], tensors: Tensors) -> None:
        """Put what they are into the header, and the ids among the tensors."""
        packed = [pack_ids(ids, f"mode{m}") for m, ids in enumerate(value)]
        header[self.name] = [entry for entry, _ in packed]
        for _, own in packed:
            tensors |= own

    def read(self, source: Source) -> tuple[Ids, ...]:
        """Return ids that obey the rules of any table."""
        entries = enumerate(source.header[self.name])
        return tuple(unpack_ids(entry, source, f"mode{m}") for m, entry in entries)


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


def _made(kind: Any, settings: dict[str, Any]) -> Any:
    """Return a model with the settings of a file, which obey the same rules as those of a user."""

    def restored(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(restored, value))
        if isinstance(value, dict):
            return _made(model_class(value["model"]), value["settings"])
        return value

    model = kind(**{k: restored(v) for k, v in settings.items() if k not in OF_THE_MACHINE})
    check(model)
    return model


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


def unpack_ids(entry: Any, source: Source, prefix: str) -> Ids:
    """Undo ``pack_ids``; ids obey the rules of any table, as the file is not trusted."""
    try:
        name, kind = entry["name"], entry["type"]
        length = Source(entry, {}).whole("length", least=1, most=2**31 - 1)
        if not isinstance(name, str):
            raise Damaged(f"a mode is called {shown(name)}")
        if kind == "int":
            labels = source.array(f"{prefix}.ids", "int64", length)
            different = len(np.unique(labels))
        elif kind in ("str", "json"):
            found: list[Any] = _unpack_texts(source, prefix, length)
            if kind == "json":
                found = [_untagged(json.loads(text)) for text in found]
                check_ids(found, name)
            labels = as_objects(found)
            different = len(set(found))
        else:
            raise Damaged(f"ids of the unknown type {shown(kind)}")
    except Damaged:
        raise
    except BROKEN as error:
        raise Damaged(f"its ids cannot be read ({cut(repr(error))})") from error
    if different != length:
        raise Damaged(f"{length} ids, but only {different} different")
    return Ids(labels, name)


def _pack_texts(texts: list[str], prefix: str) -> Tensors:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    letters = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {f"{prefix}.ids": letters, f"{prefix}.id_ends": ends}


def _unpack_texts(source: Source, prefix: str, length: int) -> list[str]:
    blob = source.array(f"{prefix}.ids", "uint8", schema.ANY).tobytes()
    bounds = np.append(0, source.array(f"{prefix}.id_ends", "int64", length))
    if not schema.STARTS.holds(bounds):
        raise source.damaged(schema.STARTS.words, f"{prefix}.id_ends")
    if bounds[-1] != len(blob):
        raise Damaged("its ids do not match their lengths")
    return [blob[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(bounds.tolist())]


def _tagged(label: object) -> Any:
    """JSON that remembers the type of an id."""
    if isinstance(label, np.generic) and not isinstance(label, np.datetime64):
        label = label.item()  # inside a tuple; elsewhere numpy's numbers are Python's by now
    if label is None or isinstance(label, bool | str):
        return label
    if isinstance(label, tuple):
        return {"tuple": [_tagged(part) for part in label]}
    for tag, (kind, written, _) in ID_TYPES.items():
        if isinstance(label, kind):
            return {tag: written(label)}
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
    return ID_TYPES[tag][2](content)


def _decimal(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text!r} is no decimal") from None


_iso = methodcaller("isoformat")

# By the tag that a file has: a type of ids, how one is written, and how it is read.
ID_TYPES: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "int": (int, str, int),
    "float": (float, float.hex, float.fromhex),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "datetime": (datetime.datetime, _iso, datetime.datetime.fromisoformat),
    "date": (datetime.date, _iso, datetime.date.fromisoformat),
    "time": (datetime.time, _iso, datetime.time.fromisoformat),
    "datetime64": (np.datetime64, str, np.datetime64),
    "uuid": (uuid.UUID, attrgetter("hex"), uuid.UUID),
    "decimal": (decimal.Decimal, str, _decimal),
}
