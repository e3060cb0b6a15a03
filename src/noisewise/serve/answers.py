"""Answers of a model, as plain lists and dicts; each is wholly of one version of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisewise import noise
from noisewise.data.files import typed
from noisewise.data.ids import Ids
from noisewise.errors import DataError, NoisewiseError
from noisewise.imputer import DeviationImputer
from noisewise.models.auto import AutoFactorizer
from noisewise.models.kept_rows import KeptRows
from noisewise.models.rows import Rows
from noisewise.models.temporal import TemporalFactorizer
from noisewise.serve import schemas
from noisewise.serve.limits import Limits
from noisewise.serve.spool import Loaded

RATINGS, SENSORS, IMPUTER = "ratings", "sensors", "imputer"
OF_KIND: dict[str, tuple[str, ...]] = {
    RATINGS: ("predict", "interval", "recommend", "fold_in", "explain", "noise"),
    SENSORS: ("predict", "interval", "noise"),
    IMPUTER: ("impute", "forecast", "anomalies", "noise"),
}


class Refused(NoisewiseError):
    """A request that cannot be answered, with the status of HTTP that says so."""

    status: int
    headers: dict[str, str]

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


@dataclass(frozen=True)
class Served:
    """A version of a model, and what it can be asked."""

    loaded: Loaded
    limits: Limits

    @property
    def model(self) -> Any:
        """The model."""
        return self.loaded.model

    @cached_property
    def kind(self) -> str:
        """Whether it is of ratings, of sensors, or an imputer."""
        if isinstance(self.model, DeviationImputer):
            return IMPUTER
        return RATINGS if isinstance(self.model, Rows) and len(self.model.ids_) == 2 else SENSORS

    @cached_property
    def endpoints(self) -> list[str]:
        """What it can be asked."""
        can = {"explain": self._can_explain, "noise": self._can_rank}
        return [name for name in OF_KIND[self.kind] if can.get(name, lambda: True)()]

    def _can_explain(self) -> bool:
        if not isinstance(self.model, KeptRows) or self.model.values_ is None:
            return False
        spec = self.model.factors_.spec
        return not (spec.ordinal or spec.time)

    def _can_rank(self) -> bool:
        return isinstance(self._plain, Rows | TemporalFactorizer | DeviationImputer)

    @cached_property
    def _plain(self) -> Any:
        """The model, or the one that a contest of models has chosen."""
        return self.model.model_ if isinstance(self.model, AutoFactorizer) else self.model

    def need(self, endpoint: str) -> None:
        """Refuse what this model cannot be asked."""
        if endpoint not in self.endpoints:
            raise Refused(
                409,
                f"A {type(self.model).__name__} is served, which has no {endpoint}; it can be "
                f"asked to {', '.join(self.endpoints)}.",
            )

    @property
    def ids(self) -> tuple[Ids, ...]:
        """The ids of each mode."""
        known = self.model._standardised.seen.ids if self.kind == IMPUTER else self.model.ids_
        return tuple(known)

    @cached_property
    def _texts(self) -> list[dict[str, Any]]:
        """Of ids that are neither numbers nor text, each by its text."""
        plain = (str, int, float)
        return [
            {}
            if ids.labels.dtype.kind == "i"
            else {_text(x): x for x in ids.labels.tolist() if type(x) not in plain}
            for ids in self.ids
        ]

    def own(self, mode: int, id: Any) -> Any:
        """Return an id as the model has it, for one that has come as JSON."""
        if isinstance(id, str):
            id = self._texts[mode].get(id, id)
        return typed(id, self.ids[mode])

    def few(self, things: Sequence[Any], what: str) -> None:
        """Refuse more than a request may have."""
        if len(things) > self.limits.cells:
            raise Refused(
                413, f"A request may have {self.limits.cells:,} {what}; got {len(things):,}."
            )

    def mode(self, asked: int | str) -> int:
        """Return the number of a mode."""
        return int(self.model.mode_number(asked))

    @cached_property
    def judge(self) -> TemporalFactorizer:
        """The model by which sensors are judged; of an imputer it is fitted when first asked."""
        if self.kind != IMPUTER:
            return self._plain  # type: ignore[no-any-return]
        standard = self.model._standardised
        return noise.noise_model(standard.seen, sensor=standard.sensor, random_state=0, n_jobs=1)


Asked = Callable[[Served, Any], dict[str, Any]]


def predict(served: Served, asked: schemas.Cells) -> dict[str, Any]:
    """Predict cells, with the parts of their std."""
    mean, own, epistemic = served.model.moments(_cells(served, asked.cells))
    return {
        "mean": mean.tolist(),
        "std": np.sqrt(own + epistemic).tolist(),
        "noise_std": np.sqrt(own).tolist(),
        "epistemic_std": np.sqrt(epistemic).tolist(),
    }


def interval(served: Served, asked: schemas.CellsWithin) -> dict[str, Any]:
    """Predict intervals of cells."""
    model, cells = served.model, _cells(served, asked.cells)
    mean, std = model.predict(cells, return_std=True)
    low, high = model.interval(mean, std, asked.coverage, model.strangers(cells))
    ends = {"low": low.tolist(), "high": high.tolist()}
    return {"mean": mean.tolist(), **ends, "coverage": asked.coverage}


def recommend(served: Served, asked: schemas.Lists) -> dict[str, Any]:
    """Recommend to some ids."""
    served.few(asked.ids, "ids")
    model, mode = served.model, served.mode(asked.mode)
    ids = [served.own(mode, id) for id in asked.ids]
    codes = model.ids_[mode].lookup(ids)
    known = (codes >= 0) & (model.factors_.counts[mode][codes] > 0)
    found = model.recommend_many(
        ids, asked.n, mode=mode, exclude_seen=asked.exclude_seen, **_wishes(served, mode, asked)
    )
    rows = [row for best in found for row in best]
    cells = [(id, row[0]) for id, best in zip(ids, found, strict=True) for row in best]
    cells = cells if mode == 0 else [(own, id) for id, own in cells]
    strangers = model.strangers(cells) if cells else None
    described = iter(_described(model, rows, asked.coverage, strangers))
    lists = [
        {"id": _plain(id), "known": bool(is_known), "items": [next(described) for _ in best]}
        for id, is_known, best in zip(ids, known, found, strict=True)
    ]
    return {"lists": lists, "coverage": asked.coverage}


def fold_in(served: Served, asked: schemas.NewRow) -> dict[str, Any]:
    """Learn a new id and recommend to it; the model stays as it is."""
    served.few(asked.others, "ids")
    model, mode = served.model, served.mode(asked.mode)
    if len(asked.others) != len(asked.values):
        raise DataError(
            f"There must be a value for each id; got {len(asked.others)} and {len(asked.values)}."
        )
    row = model.fold_in([served.own(1 - mode, id) for id in asked.others], asked.values, mode=mode)
    best = row.recommend(asked.n, exclude_seen=asked.exclude_seen, **_wishes(served, mode, asked))
    answer = {
        "items": _described(model, best, asked.coverage, row.strangers([one[0] for one in best])),
        "predicted": None,
        "coverage": asked.coverage,
    }
    if asked.predict is not None:
        served.few(asked.predict, "ids")
        others = [served.own(1 - mode, id) for id in asked.predict]
        both = (part.tolist() for part in row.predict(others, return_std=True))
        answer["predicted"] = _described(
            model, list(zip(others, *both, strict=True)), asked.coverage, row.strangers(others)
        )
    return answer


def explain(served: Served, asked: schemas.Cell) -> dict[str, Any]:
    """Say which of a user's own values pull a prediction."""
    found = served.model.explain(served.own(0, asked.user), served.own(1, asked.item), asked.n)
    pulls = [pull._asdict() | {"id": _plain(pull.id)} for pull in found.pulls]
    return {**found._asdict(), "pulls": pulls}


def noisy(served: Served, asked: schemas.Noisy) -> dict[str, Any]:
    """Rank who is noisy: ids of a mode, or series of sensors."""
    if isinstance(served._plain, Rows):
        table = noise.noisy_ids(served._plain, mode=asked.mode, n=asked.n, fewest=asked.fewest)
    else:
        table = noise.noisy_series(served.judge, n=asked.n, fewest=asked.fewest)
    return {"columns": {name: listed(column) for name, column in table.items()}}


def find(served: Served, mode: int | str, like: str, n: int) -> dict[str, Any]:
    """Return ids of a mode whose text has some letters in it."""
    names = [ids.name for ids in served.ids]
    if isinstance(mode, str) and not mode.isdecimal() and mode not in names:
        raise DataError(f"mode must be one of {names} or their numbers from 0; got {mode!r}.")
    number = names.index(mode) if isinstance(mode, str) and mode in names else int(mode)
    if not 0 <= number < len(names):
        raise DataError(f"mode must be one of {names} or their numbers from 0; got {mode!r}.")
    ids, wanted = served.ids[number], like.casefold()
    found: list[Any] = []
    for id in ids.labels.tolist():
        if wanted in str(id).casefold():
            found.append(_plain(id))
            if len(found) == n:
                break
    return {"mode": ids.name, "ids": found, "total": len(ids)}


def about(served: Served) -> dict[str, Any]:
    """Say what is served."""
    model = served.model
    span = getattr(model, "value_range_", None)
    modes = [{"name": ids.name, "ids": len(ids)} for ids in served.ids]
    settings = {name: _plain(value) for name, value in model.get_params(deep=False).items()}
    if served.kind == IMPUTER:
        settings |= {"chosen": model.chosen_, "scale": model.scale_}
    return {
        "kind": served.kind,
        "name": type(model).__name__,
        "modes": modes,
        "endpoints": served.endpoints,
        "value_range": None if span is None else list(span),
        "settings": settings,
    }


def listed(column: Any) -> list[Any]:
    """Return a column as JSON has it: what is not finite is null, and other ids are text."""
    return [_plain(entry) for entry in np.asarray(column).tolist()]


def _plain(entry: Any) -> Any:
    if isinstance(entry, float):
        return entry if math.isfinite(entry) else None
    return entry if entry is None or isinstance(entry, int | str) else _text(entry)


def _text(entry: Any) -> str:
    return str(entry.isoformat() if hasattr(entry, "isoformat") else entry)


def _cells(served: Served, cells: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return cells as the model has them; each must have an id of every mode."""
    served.few(cells, "cells")
    many = len(served.ids)
    wrong = next((cell for cell in cells if len(cell) != many), None)
    if wrong is not None:
        names = ", ".join(ids.name for ids in served.ids)
        raise DataError(f"A cell needs {many} ids ({names}); got {len(wrong)}.")
    return [tuple(served.own(mode, id) for mode, id in enumerate(cell)) for cell in cells]


def _wishes(served: Served, mode: int, asked: schemas.Wishes) -> dict[str, Any]:
    """Return what is common to lists for old ids and for new ones."""
    candidates = asked.candidates
    if candidates is not None:
        served.few(candidates, "candidates")
        candidates = [served.own(1 - mode, id) for id in candidates]
    return {"by": asked.by, "risk": asked.risk, "candidates": candidates}


def _described(
    model: Any, rows: Iterable[Any], coverage: float, strangers: Any
) -> list[dict[str, Any]]:
    """Return recommendations with the ends of their intervals."""
    rows = list(rows)
    if not rows:
        return []
    mean, std = (np.array([row[k] for row in rows], dtype=np.float32) for k in (1, 2))
    low, high = (end.tolist() for end in model.interval(mean, std, coverage, strangers))
    return [
        {"id": _plain(id), "mean": m, "std": s, "low": a, "high": b}
        for (id, m, s), a, b in zip(rows, low, high, strict=True)
    ]
