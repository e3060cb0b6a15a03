"""Files of noisewise, taken apart, changed and put together again with a checksum that fits."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from noisewise import storage

Rng = np.random.Generator
Array = npt.NDArray[Any]

WHOLE = (0, 1, -1, 2, 3, 7, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**63 - 1, -(2**63))
HUGE = (2**63, 2**64, -(2**64), 10**30, 10**400)
REAL = (0.0, -0.0, 0.5, -1.5, math.nan, math.inf, -math.inf, 1e-45, 1e-300, 3.5e38, 1e308, -1e308)
TEXTS = ("", "x", "auto", "default", "\x00", "\ud800", "None", "1", "å" * 300, "../../x", "float32")
OTHERS: tuple[Any, ...] = (
    None, True, False, [], {}, [[]], [None], {"": None}, [0, 1], [1, 0], [1.5, math.nan],
    [2**63 - 1, 2**63 - 1], {"model": "TypeMean", "settings": {}}, {"model": [], "settings": []},
    {"model": "Factorizer", "settings": {}}, {"model": "AutoFactorizer", "settings": {}},
)  # fmt: skip
DTYPES = ("float16", "float32", "float64", "int32", "int64", "uint8", "int8", "uint64", "bool")


class Parts(NamedTuple):
    """A file taken apart."""

    header: Any
    tensors: dict[str, Array]


def taken_apart(content: bytes, folder: Path) -> Parts:
    """Read a file without any check."""
    path = folder / "whole"
    path.write_bytes(content)
    with safe_open(path, "np") as file:
        header = json.loads(file.metadata()["noisewise"])
    return Parts(header, load(content))


def put_together(document: str, tensors: dict[str, Array]) -> bytes:
    """Write a file whose checksum fits, whatever it holds."""
    contiguous = {name: np.array(tensor, order="C") for name, tensor in tensors.items()}
    checksum = storage._checksum(document, contiguous)
    return save(contiguous, metadata={"noisewise": document, "checksum": checksum})


def forged(valid: list[bytes], parts: list[Parts], rng: Rng) -> bytes:
    """Change a valid file: its header and tensors, or its bytes."""
    which = int(rng.integers(len(valid)))
    if rng.random() < 0.15:
        content = changed_bytes(valid[which], rng)
        return repaired(content) if rng.random() < 0.5 else content
    header = copy.deepcopy(parts[which].header)
    tensors = dict(parts[which].tensors)
    other = parts[int(rng.integers(len(parts)))]
    for _ in range(1 + min(int(rng.geometric(0.55)) - 1, 6)):
        if rng.random() < 0.5 or not tensors:
            header = changed_json(header, rng)
        else:
            change_tensors(tensors, other.tensors, rng)
    return put_together(text_of(header, rng), tensors)


def text_of(header: Any, rng: Rng) -> str:
    """Return a header as JSON; now and then nested too deep, or with a key given twice."""
    document = json.dumps(header)
    fate = rng.random()
    if fate < 0.005:
        deep = int(rng.choice([100, 900, 5_000, 100_000]))
        return document.replace("null", "[" * deep + "]" * deep, 1)
    if fate < 0.02 and isinstance(header, dict) and header:
        name = str(rng.choice(list(header)))
        return f"{document[:-1]}, {json.dumps(name)}: {json.dumps(hostile(rng), default=str)}}}"
    return document


def hostile(rng: Rng) -> Any:
    """Return a value that nobody would write."""
    kinds = (WHOLE, WHOLE, HUGE, REAL, REAL, TEXTS, OTHERS)
    values: tuple[Any, ...] = kinds[int(rng.integers(len(kinds)))]
    return copy.deepcopy(values[int(rng.integers(len(values)))])


def changed_json(header: Any, rng: Rng) -> Any:
    """Change one place of a JSON document."""
    places = list(_places(header))
    if not places:
        return hostile(rng)
    box, key = places[int(rng.integers(len(places)))]
    fate = rng.random()
    if fate < 0.5:
        box[key] = hostile(rng)
    elif fate < 0.6:
        del box[key]
    elif fate < 0.75:
        box[key] = _nudged(box[key], rng)
    elif fate < 0.85:
        other, name = places[int(rng.integers(len(places)))]
        box[key], other[name] = copy.deepcopy(other[name]), copy.deepcopy(box[key])
    elif fate < 0.9:
        box[key] = [box[key]]
    elif fate < 0.95 and isinstance(box, list):
        box.insert(key, copy.deepcopy(box[key]))
    elif isinstance(box, dict):
        box[str(key) + str(rng.integers(10))] = hostile(rng)
    return header


def _places(value: Any) -> Any:
    """Yield every place of a JSON document, as a container and a key."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inside in list(pairs):
        yield value, key
        if isinstance(inside, dict | list):
            yield from _places(inside)


def _nudged(value: Any, rng: Rng) -> Any:
    """Return a value next to one that is valid."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + int(rng.choice([-2, -1, 1, 2, 1000, -2 * value]))
    if isinstance(value, float):
        return value * float(rng.choice([-1.0, 0.0, 1e-6, 1e6, 1e30, 2.0]))
    if isinstance(value, str):
        return value + "x" if rng.random() < 0.5 else value[:-1]
    return value[: len(value) // 2] if isinstance(value, list) else value


def change_tensors(tensors: dict[str, Array], others: dict[str, Array], rng: Rng) -> None:
    """Change one tensor, or which tensors there are."""
    names = sorted(tensors)
    name = names[int(rng.integers(len(names)))]
    fate = rng.random()
    if fate < 0.6:
        tensors[name] = changed_values(tensors[name], rng)
    elif fate < 0.8:
        tensors[name] = changed_shape(tensors[name], rng)
    elif fate < 0.85:
        with np.errstate(all="ignore"):
            tensors[name] = tensors[name].astype(DTYPES[int(rng.integers(len(DTYPES)))])
    elif fate < 0.9:
        second = names[int(rng.integers(len(names)))]
        tensors[name], tensors[second] = tensors[second], tensors[name]
    elif fate < 0.93:
        del tensors[name]
    elif fate < 0.96:
        tensors[f"{name}x"] = tensors.pop(name)
    else:
        more = sorted(others)
        tensors[name] = others[more[int(rng.integers(len(more)))]]


def changed_values(tensor: Array, rng: Rng) -> Array:
    """Change numbers of a tensor."""
    tensor = tensor.copy()
    flat = tensor.reshape(-1)
    if not flat.size:
        return tensor
    fate = rng.random()
    if fate < 0.4:
        for place in rng.integers(flat.size, size=int(rng.integers(1, 4))):
            flat[place] = _number(flat.dtype, rng)
    elif fate < 0.55 and flat.size > 2:  # the ends stay: what looks at them alone is content
        flat[1:-1] = [_number(flat.dtype, rng) for _ in range(flat.size - 2)]
    elif fate < 0.65:
        flat[:] = _number(flat.dtype, rng)
    elif fate < 0.75:
        flat[:] = flat[::-1].copy()
    elif fate < 0.85:
        rng.shuffle(flat)
    elif fate < 0.95:
        place = int(rng.integers(flat.size))
        with np.errstate(all="ignore"):
            flat[place] += np.array(rng.choice([-1, 1, 2]), dtype=flat.dtype)
    else:
        flat[-1] = _number(flat.dtype, rng)
    return tensor


def _number(dtype: Any, rng: Rng) -> Any:
    values: tuple[Any, ...] = WHOLE if dtype.kind in "iub" or rng.random() < 0.3 else REAL
    value = values[int(rng.integers(len(values)))]
    with np.errstate(all="ignore"):
        if dtype.kind not in "iub":
            return np.float64(value).astype(dtype)
        return np.array(value % 2**64, dtype=np.uint64).astype(dtype)


def changed_shape(tensor: Array, rng: Rng) -> Array:
    """Make a tensor longer, shorter, flatter or empty."""
    changes: list[Callable[[], Array]] = [
        lambda: tensor[:-1] if tensor.ndim else tensor,
        lambda: tensor[:0] if tensor.ndim else tensor,
        lambda: tensor[1:] if tensor.ndim else tensor,
        lambda: np.concatenate([tensor, tensor[-1:]]) if tensor.ndim else tensor,
        lambda: np.concatenate([tensor, tensor]) if tensor.ndim else tensor,
        lambda: tensor.T,
        lambda: tensor.reshape(-1),
        lambda: tensor[None],
        lambda: tensor[..., None],
        lambda: tensor[..., :-1] if tensor.ndim else tensor,
        lambda: tensor[..., :0] if tensor.ndim else tensor,
        lambda: np.zeros((0, 2**31), dtype=tensor.dtype),
        lambda: np.zeros(100_000, dtype=tensor.dtype),
    ]
    return changes[int(rng.integers(len(changes)))]()


def changed_bytes(content: bytes, rng: Rng) -> bytes:
    """Change bytes of any file."""
    data = bytearray(content)
    for _ in range(int(rng.geometric(0.4))):
        n = len(data)
        if not n:
            break
        at, fate = int(rng.integers(n)), rng.random()
        if fate < 0.3:
            data[at] ^= 1 << int(rng.integers(8))
        elif fate < 0.5:
            data[at] = int(rng.choice([0, 1, 0x20, 0x7F, 0x80, 0xFF, 0x22, 0x2C, 0x30, 0x39]))
        elif fate < 0.6:
            del data[at : at + int(rng.geometric(0.1))]
        elif fate < 0.7:
            data[at:at] = bytes(rng.integers(0, 256, int(rng.geometric(0.1)), dtype=np.uint8))
        elif fate < 0.8:
            start = int(rng.integers(n))
            data[at:at] = data[start : start + int(rng.integers(1, 64))]
        elif fate < 0.9:
            size = int(rng.choice([2, 4, 8]))
            value = WHOLE[int(rng.integers(len(WHOLE)))] % 2 ** (8 * size)
            data[at : at + size] = value.to_bytes(size, "little")
        else:
            del data[at:]
    return bytes(data)


def repaired(content: bytes) -> bytes:
    """Give a file the checksum that fits, if it can be read at all."""
    try:
        tensors = load(content)
        start = 8 + int.from_bytes(content[:8], "little")
        document = json.loads(content[8:start])["__metadata__"]["noisewise"]
        return put_together(document, tensors)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return content
