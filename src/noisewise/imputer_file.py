"""Files of imputers: settings, readings, what their table was like, and the model of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise import storage
from noisewise.data import Ids, Observations
from noisewise.data.tables_with_holes import CLOCKS, Fitted
from noisewise.engine.gibbs.series.later import Place
from noisewise.errors import SettingError
from noisewise.models.base import Factorizer
from noisewise.models.model_file import OF_THE_MACHINE, IdsOfModes, Part
from noisewise.scaling import TRANSFORMS, Decided
from noisewise.schema import (
    ANY,
    Entry,
    Found,
    Rule,
    Schema,
    Source,
    Tensor,
    below,
    integer,
    packed,
    real,
    rises,
    unpacked,
)
from noisewise.since import Since
from noisewise.storage import Damaged

KIND = "imputer"
MOST_FILTERS = 16  # models within each other that go on as filters
LATEST = 2**62  # time that rows may be counted from: more would not fit a number of 64 bits


class Kept(NamedTuple):
    """What a file keeps of a fitted imputer."""

    settings: dict[str, Any]
    fitted: Fitted  # what its table was like
    seen: Observations  # readings
    sensor: int | None  # the mode that is the sensor
    model: Factorizer
    n_features: int | None
    features: list[str] | None
    decided: Decided
    since: Since  # readings after the fit
    places: list[Place]  # where they led filters


def write(path: str | Path, kept: Kept) -> None:
    """Write what is kept of an imputer, wholly or not at all."""
    storage.write(path, KIND, *packed(_schema(), kept))


def read(path: str | Path) -> Kept:
    """Undo ``write``, trusting nothing."""
    found = unpacked(_schema(), Source(*storage.read(path, KIND)))
    ids = found["ids"]
    codes = tuple(found[f"mode{mode}.codes"] for mode in range(len(ids)))
    if found["model"].ids_ != ids:
        raise Damaged("its model is not of its readings")
    seen = Observations(codes, found["values"], ids)
    if found["fitted"].names != seen.names:
        raise Damaged("its readings are of another table")
    own = {name: found[name] for name in Kept._fields if name in found}
    return Kept(seen=seen, since=_since(found), places=_places(found), **own)


def _since(found: Found) -> Since:
    """Return what was read after the fit."""
    if found["since.codes"] is None:
        return Since.none(len(found["ids"]))
    since = Since(*(found[f"since.{name}"] for name in Since._fields))
    if not rises(since.when) or len(since.joined(since)) != len(since):
        raise Damaged("what was read after the fit is not in order")
    return since


def _places(found: Found) -> list[Place]:
    """Return where filters are."""
    many = found["filters"] or 0
    parts = ([found[f"filter{k}.{name}"] for name in Place._fields] for k in range(many))
    return [Place(*part) for part in parts]


def _schema() -> Schema:
    """Declare what a file holds."""
    yield Entry("settings", lambda kept: _plain(kept.settings), _given)
    yield Part("model", "model")
    ids = yield IdsOfModes("ids", "seen.ids")
    if len(ids) < 2:
        raise Damaged(f"it has {len(ids)} modes")
    yield Entry("sensor", "sensor", integer(most=len(ids) - 2), optional=True)
    values = yield Tensor("values", "float64", (ANY,), "seen.values")
    for mode, own in enumerate(ids):
        rule = _every_one_of(len(own))
        yield Tensor(f"mode{mode}.codes", "int32", (len(values),), f"seen.codes.{mode}", rule)
    yield Entry("fitted", "fitted", _fitted)
    yield DecidedScale("decided", "decided")
    yield from _later(ids)
    many = yield Entry("n_features", "n_features", integer(least=1), optional=True)
    names = yield Entry("features", "features", lambda v: list(map(str, v)), optional=True)
    if names is not None and len(names) != many:
        raise Damaged(f"it names {len(names)} of {many} columns")


def _later(ids: tuple[Ids, ...]) -> Schema:
    """Declare what a file keeps of what was read after the fit; older files have nothing of it."""
    shape = (len(ids) - 1, ANY)
    codes = yield Tensor("since.codes", "int32", shape, "since.codes", optional=True)
    if codes is None:
        yield Entry("filters", lambda kept: 0, integer(), added=True)
        return
    for mode, own in enumerate(ids[:-1]):
        if not below(len(own)).holds(codes[mode]):
            raise Damaged("since.codes is out of bounds")
    for name in ("when", "values"):
        yield Tensor(f"since.{name}", "float64", codes.shape[1:], f"since.{name}")
    many = yield Entry("filters", lambda kept: len(kept.places), integer(most=MOST_FILTERS))
    for k in range(many):
        yield Entry(f"filter{k}.when", f"places.{k}.when", real())
        means = yield Tensor(f"filter{k}.means", "float64", (ANY, ANY), f"places.{k}.means")
        square = (*means.shape, means.shape[1])
        yield Tensor(f"filter{k}.covariances", "float64", square, f"places.{k}.covariances")


class DecidedScale(NamedTuple):
    """A field that says which scale was decided on; files of before that was asked have none."""

    name: str
    of: str

    def write(self, value: Decided, header: dict[str, Any], tensors: Any) -> None:
        """Put it into the header."""
        header[self.name] = list(value)

    def read(self, source: Source) -> Decided:
        """Return it as declared."""
        transform, chosen, dropped = source.header.get(self.name, Decided())
        flags = isinstance(chosen, bool) and isinstance(dropped, bool)
        if transform not in (None, *TRANSFORMS) or not flags:
            raise Damaged("its scale makes no sense")
        return Decided(transform, chosen, dropped)


def _every_one_of(n: int) -> Rule:
    """Ask for numbers of 0 to n - 1, each there once or more."""
    return Rule("does not match its ids", lambda a: np.array_equal(np.unique(a), np.arange(n)))


def _fitted(entry: Any) -> Fitted:
    names, lengths, clock, end = entry
    if type(end) is not int or abs(end) > LATEST:
        raise Damaged(f"its readings end at {storage.shown(end)}")
    if clock not in CLOCKS:
        raise Damaged("its readings are of another table")
    return Fitted(tuple(names), tuple(map(int, lengths)), clock, end)


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as JSON has them; a dict from columns becomes pairs."""
    plain = _portable(settings)
    if isinstance(plain["random_state"], np.random.RandomState):
        plain["random_state"] = None
    if not isinstance(plain["like"], str):  # it told how to choose, which is done
        plain["like"] = "table"
    for name in ("location", "sensor"):
        if isinstance(plain[name], Mapping):
            plain[name] = list(plain[name].items())
    for name, value in plain.items():
        try:
            json.dumps(value)
        except TypeError:
            hint = "; give a dict instead" if callable(value) else ""
            raise SettingError(
                f"{name} must be plain numbers and text to be saved{hint}; got {value!r}."
            ) from None
    return plain


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """Undo ``_plain``."""
    given = _portable(settings)
    for name in ("location", "sensor"):
        if isinstance(given[name], list):
            given[name] = dict(given[name])
    if isinstance(given.get("bounds"), list):
        given["bounds"] = tuple(given["bounds"])
    for name, value in (given["settings"] or {}).items():
        given["settings"][name] = tuple(value) if isinstance(value, list) else value
    return given


def _portable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, and those of the model among them, without any that no file decides."""
    kept = {name: value for name, value in settings.items() if name not in OF_THE_MACHINE}
    inside = kept.get("settings")
    return kept if inside is None else kept | {"settings": _portable(inside)}
