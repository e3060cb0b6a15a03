"""Files made wrong: bytes, fields of tables, entries of JSON, arrays and columns."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

Rng = np.random.Generator

HOSTILE = (
    "", " ", "0", "-0", "-1", "1e400", "-1e400", "1e30", "1e-400", "nan", "NaN", "inf", "-inf",
    "NULL", "None", "1_0", "0x10", "0b1", "1e", "1.5.2", "1,5", "+7", "007", "9" * 19, "9" * 30,
    "9" * 5000, "-9223372036854775808", "9223372036854775807", "9223372036854775808",
    "18446744073709551616", "9007199254740993", "4294967296", "3.4028236e38", "1e-46", "\0", "a\0b",
    "\ufeff", "\ufeff1", '"', '""', '"a', 'a"b', '"a""b"', "'", "\\", "\\N", "::", ",", ";", "\t",
    "\r", "\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\u2028", "\xa0", "\u202eabc",
    "\x1b[2J", "١٢", "½", "²", "½", "é", "😀", "\ud7ff", "x" * 200, "x" * 140_000, "1" * 400,
    "0000-00-00", "0001-01-01", "9999-12-31T23:59:59.999999", "10000-01-01", "2024-02-30",
    "2024-01-01T00:00+25:00", "2024-01-01T24:00", "20240101", "2024-W01-1", "31/12/9999 23:00",
    "00/00/0000 00:00", "11/07/2002 00:00", "1e18", "-62135596801", "253402300800", "1e15",
    "true", "[]", "{}", "=1+1", "user", "value", "time", "%s", "{0}", "../x",
)  # fmt: skip

NUMBERS: tuple[Any, ...] = (
    None, True, False, 0, -1, -0.0, 0.5, 1e308, float("nan"), float("inf"), 2**31, 2**53 + 1, 2**63,
    2**64, 10**400, "", "a", "1", "\0", "x" * 1000, [], [0], {}, {"a": 1}, [[[[]]]],
)  # fmt: skip


def pick(rng: Rng, options: Sequence[Any]) -> Any:
    """Return one of the options as it is; numpy would make an array of them, and drop NULs."""
    return options[int(rng.integers(len(options)))]


def bytes_changed(rng: Rng, content: bytes) -> bytes:
    """Change, drop, double or insert some bytes."""
    data = bytearray(content)
    for _ in range(1 + int(rng.geometric(0.5))):
        if not data:
            break
        at = int(rng.integers(len(data)))
        n = int(min(rng.geometric(0.1), len(data) - at))
        match int(rng.integers(8)):
            case 0:
                data[at] ^= 1 << int(rng.integers(8))
            case 1:
                data[at] = int(rng.integers(256))
            case 2:
                data[at : at + n] = bytes([pick(rng, [0, 255, 127, 128])]) * n
            case 3:
                del data[at : at + n]
            case 4:
                data[at:at] = data[at : at + n]
            case 5:
                data[at:at] = rng.bytes(n)
            case 6:
                other = int(rng.integers(len(data)))
                data[at : at + n] = data[other : other + n]
            case _:
                del data[at:]
    return bytes(data)


def table_changed(rng: Rng, text: str, delimiters: Sequence[str]) -> bytes:
    """Change fields, rows, columns or delimiters of a table in text."""
    delimiter = str(pick(rng, delimiters))
    rows = [line.split(delimiters[0]) for line in text.splitlines()]
    for _ in range(int(rng.geometric(0.6))):
        row = int(rng.integers(len(rows)))
        fields = rows[row]
        at = int(rng.integers(len(fields))) if fields else 0
        match int(rng.integers(12)):
            case 0 | 1 | 2 | 3 | 4 if fields:
                fields[at] = str(pick(rng, HOSTILE))
            case 5 if fields:
                fields[at] += str(pick(rng, HOSTILE))
            case 6:
                rows[row] = fields[:at] + fields[at + 1 :]
            case 7:
                rows[row] = fields[:at] + ["7"] * pick(rng, [1, 3, 3000]) + fields[at:]
            case 8:
                rows += [list(fields)] * pick(rng, [1, 2, 300])
            case 9 if len(rows) > 1:
                del rows[row]
            case 10:  # a column of one kind, so that no row is alone with it
                hostile = str(pick(rng, HOSTILE))
                for other in rows[1:]:
                    if at < len(other):
                        other[at] = hostile
            case _:
                rng.shuffle(rows[0])
    end = str(pick(rng, ["\n", "\n", "\n", "\r\n", "\r"]))
    encoding = str(pick(rng, ["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"]))
    content = end.join(delimiter.join(fields) for fields in rows) + end
    encoded = content.encode(encoding, "replace")
    return bytes_changed(rng, encoded) if rng.random() < 0.2 else encoded


def json_changed(rng: Rng, document: Any) -> bytes:
    """Put something else in some places of a document."""
    content = json.loads(json.dumps(document))
    for _ in range(int(rng.geometric(0.6))):
        places = list(_places(content))
        if not places:
            break
        inside, key = places[int(rng.integers(len(places)))]
        if rng.random() < 0.2:
            del inside[key]
        else:
            inside[key] = copy.deepcopy(pick(rng, NUMBERS))
    encoded = json.dumps(content).encode()
    if rng.random() < 0.02:
        encoded = b'{"a":' * 100_000
    return bytes_changed(rng, encoded) if rng.random() < 0.3 else encoded


def _places(content: Any) -> Any:
    keys = content if isinstance(content, dict) else range(len(content))
    for key in keys:
        yield content, key
        if isinstance(content[key], dict | list):
            yield from _places(content[key])


def arrays_changed(rng: Rng, arrays: dict[str, Any]) -> bytes:
    """Write arrays to an npz file, some of them others than they should be."""
    arrays = dict(arrays)
    for _ in range(int(rng.geometric(0.6))):
        name = str(pick(rng, list(arrays)))
        if rng.random() < 0.15:
            arrays.pop(name)
        else:
            arrays[name] = array_changed(rng, np.asarray(arrays.get(name, 0)))
        if not arrays:
            break
    packed = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED
    forged = str(pick(rng, list(arrays))) if arrays and rng.random() < 0.4 else ""
    with zipfile.ZipFile(packed, "w", kind) as archive:
        for name, array in arrays.items():
            own = io.BytesIO()
            np.lib.format.write_array(own, array, allow_pickle=True)
            content = own.getvalue()
            if name == forged:
                content = _forged_header(rng, content)
            archive.writestr(f"{name}.npy", content)
    content = packed.getvalue()
    return bytes_changed(rng, content) if rng.random() < 0.3 else content


def array_changed(rng: Rng, array: Any) -> Any:
    """Return an array of other type, shape or values."""
    flat = array.ravel()
    match int(rng.integers(10)):
        case 0:
            kinds = ["i1", "u8", "i8", "f2", "f8", "c16", "?", "U3", "S3", "O", "M8[s]", "m8[D]"]
            try:
                return array.astype(pick(rng, kinds))
            except (ValueError, TypeError, OverflowError):
                return array[..., None]
        case 1:
            return array[None]
        case 2:
            return flat[:0]
        case 3:
            return np.concatenate([flat, flat])
        case 4:
            return flat[: int(rng.integers(len(flat) + 1))]
        case 5:
            extreme = [0, -1, 2**31, 2**53 + 1, 2**62, -(2**63), 2**63 - 1]
            return np.resize(np.array(extreme)[rng.permutation(len(extreme))], flat.shape)
        case 6:
            extreme_floats = [np.nan, np.inf, -np.inf, 1e308, 1e-320, -0.0, 1e30, 3.5e38]
            return np.resize(rng.permutation(extreme_floats), flat.shape)
        case 7:
            return np.resize(np.array([pick(rng, HOSTILE)[:40] for _ in range(3)]), flat.shape)
        case 8:
            return np.zeros(flat.shape, dtype=[("a", "i4"), ("b", "f8")])
        case _:
            return np.array(pick(rng, HOSTILE))


def _forged_header(rng: Rng, content: bytes) -> bytes:
    """Let an array claim something else of itself."""
    start = 10
    length = int.from_bytes(content[8:10], "little")
    header, data = content[start : start + length], content[start + length :]
    shapes = [b"(1000000000000,)", b"(-3,)", b"(3.5,)", b"(2, 2, 2)", b"()", b"(True,)", b"((1,),)"]
    kinds = [b"'<U0'", b"'<U99999999'", b"'|O'", b"'<f16'", b"'|V8'", b"'M8'", b"[('a','<i8')]",
             b"'<i8,<i8'", b"None", b"'zz'", b"('<i8', (5,))", b"'" + b"(" * 50 + b"'"]  # fmt: skip
    new = bytes_changed(rng, header)
    if rng.random() < 0.7:
        shape, kind = pick(rng, shapes), pick(rng, kinds)
        new = b"{'descr': " + kind + b", 'fortran_order': False, 'shape': " + shape + b"}\n"
    elif rng.random() < 0.2:
        new = b"[" * 9_000
    version = pick(rng, [(1, 2), (2, 4), (3, 4)])
    prefix = b"\x93NUMPY" + bytes([version[0], 0]) + len(new).to_bytes(version[1], "little")
    return prefix + new + data
