"""Kept draws on a cluster: every worker has those of its rows, and the lead has what is small."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from noisewise.engine.arrays import Ints, Values
from noisewise.engine.gibbs.views import Layout
from noisewise.engine.rounding import coded
from noisewise.engine.sharded import Pieces
from noisewise.engine.workers import Team

AT_ONCE = 64 * 2**20  # bytes of draws that are brought to the lead together, at least one draw


class Shelf(Protocol):
    """Where the workers of a fit write shards, and where these are read."""

    def write(self, number: int, tensors: dict[str, Pieces]) -> None:
        """Write the shard of a worker."""

    def open(self, name: str) -> Sequence[Values]:
        """Return what shards have of an array, in the order of rows."""

    def discard(self) -> None:
        """Remove what has been written."""


class Share(NamedTuple):
    """Rows of an array that a worker has, and what it calls them."""

    worker: int
    key: str  # the name of the array and the mode
    rows: slice


def shares(name: str, layout: Layout) -> list[Share] | None:
    """Return who has which rows of what is kept, in their order; None for what only the lead has.

    Gaps are those of rows in time: one before every observation, and one after the last.
    """
    stem, modes = name, range(len(layout.shape))
    if name in ("gaps0", "gaps1"):
        stem, modes = "gaps", range(int(name[-1]), int(name[-1]) + 1)
    elif name == "widths":
        modes = range(1)
    elif name not in ("factors", "biases", "noise", "features"):
        return None
    if name == "features" and not layout.spec.implicit:
        return None
    found = []
    for mode in modes:
        first = 0 if stem == "gaps" else sum(layout.shape[:mode])
        for worker in range(len(layout.cuts[mode]) - 1):
            own = layout.own(mode, worker)
            ends = own.start, own.stop
            if stem == "gaps":
                ends = tuple(int(layout.starts[mode][end]) + end for end in ends)
            rows = slice(first + ends[0], first + ends[1])
            found.append(Share(worker, f"{name}.{mode}", rows))
    return found


class KeptHere:
    """What a worker keeps: draws of its rows, by name and by their place among kept draws."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[int, Values]] = {}

    def keep(self, places: Sequence[int], rows: dict[str, Values]) -> None:
        """Keep draws of rows at some places."""
        for name, draws in rows.items():
            own = self.kept.setdefault(name, {})
            # A copy: what came from elsewhere stays in memory that all share until it is let go.
            own |= {place: np.array(draw) for place, draw in zip(places, draws, strict=True)}

    def rearrange(self, keys: Sequence[str], stay: Sequence[int]) -> None:
        """Keep only some draws of arrays, in this order."""
        for key in keys:
            own = self.kept[key]
            self.kept[key] = {place: own[old] for place, old in enumerate(stay)}

    def kept_rows(self, key: str, places: Sequence[int]) -> Values:
        """Return some draws of an array."""
        return np.stack([self.kept[key][place] for place in places])

    def write_kept(self, shelf: Shelf, number: int, places: Sequence[int]) -> list[str]:
        """Write some draws of all rows as a shard; return which arrays take a byte a number."""
        tensors, rounded = {}, []
        for key, own in self.kept.items():
            first = own[places[0]]
            size = (len(places), *first.shape)
            tensors[key] = Pieces(first.dtype, size, partial(_in_order, own, places))
            bytewise = first.dtype == np.float16 and first.ndim == 2
            if bytewise and all(coded(draw) is not None for draw in tensors[key].pieces()):
                rounded.append(key)
        shelf.write(number, tensors)
        return rounded


def _in_order(draws: dict[int, Values], places: Sequence[int]) -> Iterator[Values]:
    for place in places:
        yield draws[place][None]


@dataclass(frozen=True, eq=False)
class SpreadDraws:
    """Kept draws of rows that workers have: an array, as far as a chain makes use of one.

    ``layout`` returns who has which rows by now.
    """

    name: str
    team: Team
    layout: Callable[[], Layout]
    places: Ints  # of its draws among all kept ones
    dtype: np.dtype[Any]
    size: tuple[int, ...]  # of one draw

    @classmethod
    def room(
        cls, name: str, team: Team, layout: Callable[[], Layout], many: int, one: Values
    ) -> SpreadDraws:
        """Return room for so many draws like this one; it takes none until there are some."""
        return cls(name, team, layout, np.arange(many), one.dtype, one.shape)

    def __deepcopy__(self, known: Any) -> SpreadDraws:
        return self  # workers have one array of a name

    @property
    def shape(self) -> tuple[int, ...]:
        """Draws, rows, and what a row has."""
        return (len(self.places), *self.size)

    def __len__(self) -> int:
        return len(self.places)

    def astype(self, dtype: Any) -> SpreadDraws:
        """Return room for draws of another type."""
        return replace(self, dtype=np.dtype(dtype))

    def __getitem__(self, some: Any) -> SpreadDraws:
        return replace(self, places=self.places[some])

    def __setitem__(self, some: Any, given: Any) -> None:
        """Give workers their rows of draws, or let them move draws that they have."""
        if isinstance(given, SpreadDraws):
            keys = sorted({share.key for share in self._shares})
            self.team.ask("rearrange", keys, given.places.tolist())
        else:
            give(self.team, self.layout(), self.places[some].tolist(), {self.name: given})

    @property
    def _shares(self) -> list[Share]:
        found = shares(self.name, self.layout())
        assert found is not None
        return found

    def pieces(self) -> Iterator[Values]:
        """Bring draws here, some at a time."""
        one = self.dtype.itemsize * int(np.prod(self.size))
        step = max(1, AT_ONCE // max(one, 1))
        for start in range(0, len(self), step):
            places = self.places[start : start + step].tolist()
            calls = [self.team.call(s.worker, "kept_rows", s.key, places) for s in self._shares]
            found = np.empty((len(places), *self.size), dtype=self.dtype)
            for share, rows in zip(self._shares, calls, strict=True):
                found[:, share.rows] = self.team.get(rows[0])
            yield found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        found, start = np.empty(self.shape, dtype=dtype or self.dtype), 0
        for piece in self.pieces():
            found[start : start + len(piece)] = piece
            start += len(piece)
        return found


def give(team: Team, layout: Layout, places: Sequence[int], rows: dict[str, Values]) -> None:
    """Give every worker its rows of some draws, to keep at some places."""
    each: list[dict[str, Values]] = [{} for _ in range(len(team))]
    for name, draws in rows.items():
        for worker, key, own in shares(name, layout) or ():
            each[worker][key] = draws[:, own]
    team.ask("keep", each=[(places, own) for own in each])
