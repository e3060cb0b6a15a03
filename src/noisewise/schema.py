"""What a file holds, declared once: names, types, shapes and bounds.

A schema is a generator. It yields a field, gets its value back, and may declare with it what comes
next. A field has a ``name`` in the file, a place ``of`` it in the object, and methods
``write(value, header, tensors)`` and ``read(source)``.

>>> from types import SimpleNamespace
>>> def schema():
...     starts = yield Tensor("starts", "int64", (3,), "starts", STARTS)
...     yield Tensor("columns", "int32", (starts[-1],), "columns", below(9))
>>> seen = SimpleNamespace(starts=np.array([0, 2, 3]), columns=np.array([8, 1, 5], np.int32))
>>> header, tensors = packed(schema(), seen)
>>> unpacked(schema(), Source(header, tensors))["columns"].tolist()
[8, 1, 5]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noisewise.storage import Damaged, Tensors, finite, shown

ANY = None  # stands for any length of a tensor
MOST_OBSERVED = 2**53  # observations of a row, so that sums of them stay exact
LARGEST_REAL = 1e150  # of a number of a header: far beyond any value, and its square is finite

Values = npt.NDArray[Any]
Place = str | Callable[[Any], Any]  # where an object has a value: attributes and keys, with dots
Schema = Generator[Any, Any, Any]  # of fields; it is sent their values


class Rule(NamedTuple):
    """What the numbers of a tensor must be: what to say of others, and a test."""

    words: str
    holds: Callable[[Values], Any]


ANYTHING = Rule("", lambda a: True)
NOT_NEGATIVE = Rule("must not be negative", lambda a: not (a < 0).any())
POSITIVE = Rule("must be above 0", lambda a: not (a <= 0).any())
RISING = Rule("is not sorted", lambda a: len(a) and rises(a, strictly=True))
STARTS = Rule("makes no sense", lambda a: len(a) and a[0] == 0 and rises(a))
COUNTS = Rule(
    "makes no sense", lambda a: len(a) and a.min() >= 0 and 0 < a.max() <= MOST_OBSERVED
)  # how often each row was observed


def below(n: int) -> Rule:
    """Ask for numbers of 0 to n - 1."""
    return Rule("is out of bounds", lambda a: not a.size or (a.min() >= 0 and a.max() < n))


def keys(n: int) -> Rule:
    """Ask for numbers of 0 to n - 1 that are sorted, each there once."""
    return Rule(STARTS.words, lambda a: RISING.holds(a) and a[0] >= 0 and a[-1] < n)


def rises(numbers: Values, *, strictly: bool = False) -> bool:
    """Tell whether no number is below the one before it, or strictly, all are above."""
    before, after = numbers[:-1], numbers[1:]
    return bool((after > before).all() if strictly else (after >= before).all())


class Tensor(NamedTuple):
    """A tensor; one that is optional is None where there is none."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    of: Place
    rule: Rule = ANYTHING
    optional: bool = False

    def write(self, value: Any, header: dict[str, Any], tensors: Tensors) -> None:
        """Put it among the tensors."""
        if value is not None or not self.optional:
            tensors[self.name] = value

    def read(self, source: Source) -> Any:
        """Return it as declared."""
        if self.optional and self.name not in source.tensors:
            return None
        tensor = source.array(self.name, self.dtype, *self.shape)
        # What lies in shards is never here as a whole; its rules are those of single numbers.
        parts = tensor.pieces() if hasattr(tensor, "pieces") else [tensor]
        if not all(self.rule.holds(part) for part in parts):
            raise source.damaged(self.rule.words, self.name)
        return tensor


class Entry(NamedTuple):
    """A value of the header; dots in its name lead into dicts within each other."""

    name: str
    of: Place
    kind: Callable[[Any], Any]  # returns a value as it should be, or None if it cannot be meant
    optional: bool = False  # may be null
    added: bool = False  # files of earlier versions lack it: then it is null

    def write(self, value: Any, header: dict[str, Any], tensors: Tensors) -> None:
        """Put it into the header; what could not be measured of a record is null."""
        *above, last = self.name.split(".")
        for key in above:
            header = header.setdefault(key, {})
        header[last] = finite(value) if self.kind is record else value

    def read(self, source: Source) -> Any:
        """Return it as declared."""
        value: Any = source.header
        for key in self.name.split("."):
            value = value.get(key) if self.added else value[key]
        if (self.optional or self.added) and value is None:
            return None
        found = self.kind(value)
        if found is None:
            raise Damaged(f"{self.name} is {shown(value)}")
        return found


def integer(least: int = 0, most: int = 2**53) -> Callable[[Any], int | None]:
    """Ask for a whole number within bounds."""
    return lambda v: v if type(v) is int and least <= v <= most else None


def real(above: float = -math.inf) -> Callable[[Any], float | None]:
    """Ask for a number above a bound that has a square."""

    def kind(value: Any) -> float | None:
        sound = type(value) in (int, float) and abs(value) <= LARGEST_REAL and value > above
        return float(value) if sound else None

    return kind


def record(value: Any) -> dict[str, Any] | None:
    """Ask for a dict."""
    return value if isinstance(value, dict) else None


def flag(value: Any) -> bool | None:
    """Ask for true or false."""
    return value if isinstance(value, bool) else None


seed = integer(most=2**1024)  # of random numbers: as large as a user likes


@dataclass(frozen=True)
class Source:
    """A part of a file that is not trusted: what is taken from it is checked first."""

    header: dict[str, Any]
    file: Tensors  # all of them
    prefix: str = ""  # what the names of the tensors of this part begin with

    @property
    def tensors(self) -> Tensors:
        """Tensors of this part, by their own names."""
        return _below(self.file, self.prefix)

    def part(self, name: str) -> Source:
        """Return tensors below a name, and what the header has below it, or else all of it."""
        header = self.header.get(name, self.header)
        return Source(header, self.file, f"{self.prefix}{name}.")

    def array(self, name: str, dtype: str, *shape: int | None) -> Values:
        """Return a tensor of a type and shape; None is any length."""
        tensor = self.file.get(self.prefix + name)
        if tensor is None:
            raise self.damaged("is missing", name)
        fits = len(shape) == tensor.ndim and all(
            want in (ANY, got) for want, got in zip(shape, tensor.shape, strict=True)
        )
        if tensor.dtype != np.dtype(dtype) or not fits:
            wanted = ", ".join("any" if length is ANY else str(length) for length in shape)
            raise self.damaged(
                f"must be {dtype} of shape ({wanted}); got {tensor.dtype} of shape {tensor.shape}",
                name,
            )
        return tensor

    def whole(self, name: str, least: int = 0, most: int = 2**53) -> int:
        """Return a whole number within bounds."""
        return int(Entry(name, "", integer(least, most)).read(self))

    def real(self, name: str, above: float = -math.inf) -> float:
        """Return a number above a bound."""
        return float(Entry(name, "", real(above)).read(self))

    def damaged(self, words: str, name: str | None = None) -> Damaged:
        """Return what to raise where something else is wrong, with a tensor if it has a name."""
        return Damaged(words if name is None else f"{self.prefix}{name} {words}")


class Found(dict[str, Any]):
    """Values that a file has, by their names there."""

    def part(self, name: str) -> dict[str, Any]:
        """Return what is below a name."""
        return _below(self, f"{name}.")


def packed(schema: Schema, owner: Any) -> tuple[dict[str, Any], Tensors]:
    """Return header and tensors of what a schema declares of an object."""
    header: dict[str, Any] = {}
    tensors: Tensors = {}

    def written(field: Any) -> Any:
        value = _value(owner, field.of)
        field.write(value, header, tensors)
        return value

    _run(schema, written)
    return header, tensors


def unpacked(schema: Schema, source: Source, owner: Any = None) -> Found:
    """Return what a schema declares, from a file that is not trusted; set an owner's attributes."""
    found = Found()

    def read(field: Any) -> Any:
        value = found[field.name] = field.read(source)
        if owner is not None and isinstance(field.of, str) and field.of.isidentifier():
            setattr(owner, field.of, value)
        return value

    _run(schema, read)
    return found


def _run(schema: Schema, answer: Callable[[Any], Any]) -> None:
    """Give a schema the value of every field that it declares."""
    value = None
    while True:
        try:
            field = schema.send(value)
        except StopIteration:
            return
        value = answer(field)


def _value(owner: Any, place: Place) -> Any:
    """Return what an object has at a place; None where there is nothing on the way."""
    if not isinstance(place, str):
        return place(owner)
    for step in place.split("."):
        if isinstance(owner, dict):
            owner = owner[step]
        elif owner is not None:
            owner = owner[int(step)] if step.isdigit() else getattr(owner, step)
    return owner


def _below(named: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key[len(prefix) :]: v for key, v in named.items() if key.startswith(prefix)}
