"""Settings as fields of a dataclass: default, rule and documentation in one place.

A class whose settings are declared with ``setting``, and what it learns with ``learned``, becomes
by ``@settings`` an estimator in scikit-learn's sense: a constructor that only assigns, keyword-only
unless a field says otherwise, and a docstring with sections Parameters and Attributes.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import os
import re
import textwrap
from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple, TypeVar, dataclass_transform

import numpy as np

from noisewise.errors import SettingError


class Rule(NamedTuple):
    """What a setting must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]

    def require(self, name: str, value: Any) -> None:
        """Raise unless what was given as ``name`` obeys."""
        if not self.holds(value):
            raise SettingError(f"{name} must be {self.words}; got {value!r}.")


def whole(least: int) -> Rule:
    """Ask for a whole number of at least ``least``."""
    return Rule(
        f"a whole number, {least} or more",
        lambda v: isinstance(v, int | np.integer) and type(v) is not bool and bool(v >= least),
    )


def number(*, above: float = -math.inf, least: float = -math.inf, most: float = math.inf) -> Rule:
    """Ask for a finite number between bounds."""
    words = ["a number"]
    words += [f"above {above:g}"] if above > -math.inf else []
    words += [f"at least {least:g}"] if least > -math.inf else []
    words += [f"at most {most:g}"] if most < math.inf else []

    def holds(v: Any) -> bool:
        if type(v) is bool or not isinstance(v, int | float | np.number):
            return False
        return bool(math.isfinite(v) and above < v and least <= v <= most)

    return Rule(", ".join(words), holds)


def one_of(*choices: object) -> Rule:
    """Ask for one of a few."""
    return Rule(
        f"one of {', '.join(map(repr, choices))}",
        lambda v: isinstance(v, Hashable) and v in choices,  # an array has no truth value
    )


def either(first: Rule, *others: object) -> Rule:
    """Ask for what obeys a rule, or is one of a few other things."""
    words = " or ".join([first.words, *map(repr, others)])
    return Rule(words, lambda v: one_of(*others).holds(v) or first.holds(v))


def _is_span(v: Any) -> bool:
    pair = isinstance(v, tuple | list) and len(v) == 2
    return pair and all(map(number().holds, v)) and v[0] < v[1]


SPAN = Rule("a pair (low, high)", _is_span)
SEASONS = Rule(
    'periods above 0, "auto" or None',
    lambda v: (
        v is None
        or (isinstance(v, str) and v == "auto")
        or (isinstance(v, tuple | list) and all(map(number(above=0.0).holds, v)))
    ),
)
PATH = Rule("a path", lambda v: isinstance(v, str | os.PathLike) and str(v) != "")
RANDOM_SEED = Rule(
    f"{whole(0).words}, a RandomState or None",
    lambda v: v is None or isinstance(v, np.random.RandomState) or whole(0).holds(v),
)
THREADS = Rule(  # as joblib has it: -1 is all cores
    "a whole number but 0, or None",
    lambda v: v is None or (isinstance(v, int | np.integer) and type(v) is not bool and v != 0),
)

C = TypeVar("C", bound=type)


def setting(
    rule: Rule, doc: str, *, default: Any = dataclasses.MISSING, kw_only: bool = True
) -> Any:
    """Declare a setting: what it must be, a line of documentation, and its default."""
    told = {"rule": rule, "doc": doc}
    return dataclasses.field(default=default, kw_only=kw_only, metadata=told)


def learned(doc: str = "", *, init: Literal[False] = False) -> Any:
    """Declare an attribute that ``fit`` sets; what has no documentation is not for users."""
    return dataclasses.field(init=init, metadata={"doc": doc})


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(setting, learned))
def settings(kind: C) -> C:
    """Make of a class with declared settings an estimator: its constructor, its docstring."""
    dataclasses.dataclass(eq=False, repr=False, match_args=False, kw_only=True)(kind)
    if kind.__doc__ is not None:  # as python -OO has it
        kind.__doc__ = _documented(kind)
    return kind


def rules_of(kind: Any) -> dict[str, Rule]:
    """Return what the settings of a model, or of a class of models, must be."""
    fields = dataclasses.fields(kind)
    return {field.name: field.metadata["rule"] for field in fields if "rule" in field.metadata}


def check(model: Any, rules: dict[str, Rule] | None = None) -> None:
    """Raise for the first setting of ``model`` that does not obey its rule."""
    for name, rule in (rules_of(model) if rules is None else rules).items():
        rule.require(name, getattr(model, name))


def _documented(kind: Any) -> str:
    """Return the docstring of a class, with sections of its settings and of what it learns."""
    lines = inspect.cleandoc(kind.__doc__ or "").splitlines()
    ruled = [n for n, line in enumerate(lines) if re.fullmatch("-{3,}", line)]
    at = ruled[0] - 1 if ruled else len(lines)
    left = {field.name: field for field in dataclasses.fields(kind) if field.metadata.get("doc")}
    names = [name for base in kind.__mro__ for name in inspect.get_annotations(base)]
    fields = [left.pop(name) for name in names if name in left]  # own ones, then inherited ones
    fields.sort(key=lambda field: bool(field.kw_only))  # positional ones first
    parts = ["\n".join(lines[:at]).rstrip()]
    for title, is_setting in (("Parameters", True), ("Attributes", False)):
        if entries := [_entry(field) for field in fields if field.init is is_setting]:
            parts.append("\n".join([title, "-" * len(title), *entries]))
    return "\n\n".join([*parts, "\n".join(lines[at:])]).rstrip()


def _entry(field: dataclasses.Field[Any]) -> str:
    """Return what a docstring says of a field, as numpydoc has it."""
    kind: Any = field.type  # text, where a file has postponed annotations
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    words = _type_words(ast.parse(text, mode="eval").body)
    told = " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    default = f", default {field.default!r}" if field.init else ""
    doc = textwrap.indent(textwrap.fill(field.metadata["doc"], 92), "    ")
    return f"{field.name} : {told}{default}\n{doc}"


def _type_words(node: ast.expr) -> list[str]:
    """Return the types that an annotation allows, in words."""
    if isinstance(node, ast.BinOp):
        return [*_type_words(node.left), *_type_words(node.right)]
    if not isinstance(node, ast.Subscript):
        name = ast.unparse(node).rpartition(".")[2]
        return ["ndarray" if name in ("Array", "Floats", "Ints") else name]
    outer = ast.unparse(node.value)
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    words = [" or ".join(_type_words(one)) for one in inner]
    if outer in ("Optional", "Union"):  # what ``|`` of types becomes
        return [*words, "None"] if outer == "Optional" else words
    if outer == "Literal":
        choices = [one.replace("'", '"') for one in map(ast.unparse, inner)]
        return choices if len(choices) == 1 else [f"{{{', '.join(choices)}}}"]
    if outer == "tuple":
        many = isinstance(inner[-1], ast.Constant) and inner[-1].value is ...
        return [f"tuple of {words[0]}" if many else f"({', '.join(words)})"]
    return ["ndarray" if "ndarray" in outer.lower() else outer]
