"""SpatialNeighbours: what the nearest sensors of the same type say at the same moment.

With ``power=0`` this is k nearest neighbours, with 1 or 2 inverse distance weighting.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from noisewise.data import Ids, encode_ids, id_columns, observe
from noisewise.data.tables import take_apart
from noisewise.data.timestamps import Units, key_places, mode_number, n_keys, series_keys
from noisewise.engine.arrays import Moments
from noisewise.errors import DataError, SettingError
from noisewise.models.base import Cells, Threads, in_one_step
from noisewise.models.learner import range_of
from noisewise.models.model_file import pack_ids, unpack_ids
from noisewise.models.sensors import PRIOR, InTime, units_schema
from noisewise.schema import (
    ANY,
    POSITIVE,
    STARTS,
    Entry,
    Found,
    Place,
    Schema,
    Source,
    Tensor,
    below,
    integer,
    keys,
    real,
)
from noisewise.settings import Rule, check, either, learned, number, setting, settings, whole
from noisewise.storage import Damaged, Tensors
from noisewise_reproduction.rivals.engine.neighbours import Array, Ints, Nearest, Snapshots, nearest

NEIGHBOURS = 10  # tried by "auto", at most
POWERS = (0.0, 1.0, 2.0)  # tried by "auto"
CHUNK = 65_536  # cells whose neighbours are held at a time
LEAST = 1e-6  # share of a type's variance that an error has at least


@settings
class SpatialNeighbours(InTime, Threads):
    """Average the nearest observed locations at the same time and of the same type of sensor.

    Neighbours of a cell have the same ids in all modes but the location; a cell itself is never its
    own neighbour. Where a location has no coordinates, or no neighbour was observed, the type's
    training mean is predicted. The std is that of errors at training cells, in units of their
    type's standard deviation, by the number of neighbours that were found, times a factor for the
    type.

    Examples
    --------
    >>> coordinates = {"hall": (0, 0), "attic": (0, 3), "cellar": (0, -9)}
    >>> readings = [("hall", 8, 20.0), ("attic", 8, 22.0), ("hall", 9, 21.0), ("cellar", 9, 14.0)]
    >>> model = SpatialNeighbours(coordinates, n_neighbours=1).fit(readings)
    >>> model.predict([("cellar", 8), ("attic", 9)]).tolist()
    [20.0, 21.0]
    """

    coordinates: Any = setting(
        Rule("a table or a dict", lambda _: True),
        "``{id: (x, y)}``, or rows of an id and its coordinates: any number of them, in units "
        "in which a straight line is a distance. Locations that were never trained on may be "
        "among them.",
        kw_only=False,
    )
    n_neighbours: int | Literal["auto"] = setting(
        either(whole(1), "auto"),
        'How many neighbours to average at most. "auto" takes the number, up to 10, with the '
        "smallest error at training cells, each predicted from the others, types weighted alike "
        "by their variance.",
        default="auto",
    )
    power: float | Literal["auto"] = setting(
        either(number(least=0.0), "auto"),
        'Weight neighbours by ``distance ** -power``: 0 is the plain mean. "auto" chooses among '
        "0, 1 and 2, as above.",
        default=0,
    )
    location_: int = learned("The mode whose ids have coordinates.")
    n_neighbours_: int = learned("What was chosen.")
    power_: float = learned("What was chosen.")
    seconds_: float = learned("Time that fit took.")
    _std_is_honest: ClassVar[bool] = True

    @in_one_step
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a table of ids and a value for each row.

        Parameters
        ----------
        X : table of ids or Observations
            One id column per mode: locations, times, and maybe types of sensors.
        y : sequence of float, optional
            The values; without it, the last column of X.

        Returns
        -------
        self
        """
        started = clock.perf_counter()
        check(self)
        places, position = read_coordinates(self.coordinates)
        seen = observe(X, y, duplicates=self.duplicates)
        time, location = self._modes(seen.ids, places)
        keys, which = np.unique(
            series_keys(seen.codes, seen.shape, location)[0], return_inverse=True
        )
        kinds, types = np.unique(
            series_keys(seen.codes, seen.shape, location, time)[0], return_inverse=True
        )
        place = places.lookup(seen.ids[location].labels)[seen.codes[location]].astype(np.int64)
        on_map = place >= 0
        snapshots = Snapshots.group(
            which[on_map], place[on_map], seen.values[on_map], len(keys), position
        )
        units = Units.of(seen.values, types, len(kinds))
        z = (seen.values - units.mean[types]) / np.sqrt(units.variance[types])
        self._settle(snapshots, units, which, place, types, z)
        self._snapshots, self._units = snapshots, units
        self._keys, self._kinds, self._places = keys, kinds, places
        self.location_, self.ids_, self.calibration_ = location, seen.ids, None
        self.value_range_ = range_of(self.value_range, seen)
        self._note_columns(X)
        self.seconds_ = clock.perf_counter() - started
        return self

    def _modes(self, ids: tuple[Ids, ...], places: Ids) -> tuple[int, int]:
        """Return the modes of time and of location."""
        time = mode_number(self.time, ids, "time")
        known = [int((places.lookup(one.labels) >= 0).sum()) for one in ids]
        known[time] = 0
        location = int(np.argmax(known))
        if not known[location]:
            others = [one.name for mode, one in enumerate(ids) if mode != time]
            raise DataError(f"None of the ids of {others} has coordinates; got them for {places}.")
        return time, location

    def _settle(
        self, snapshots: Snapshots, units: Units, which: Ints, place: Ints, types: Ints, z: Array
    ) -> None:
        """Choose number and power by errors at training cells, and keep how large these are."""
        limit = max(len(snapshots.position) - 1, 1)
        tried = range(1, NEIGHBOURS + 1) if self.n_neighbours == "auto" else [self.n_neighbours]
        numbers = sorted({min(int(n), limit) for n in tried})
        powers = POWERS if self.power == "auto" else (float(self.power),)
        options = list(product(numbers, powers))

        def errors(options: list[tuple[int, float]]) -> Iterator[tuple[slice, Nearest, Array]]:
            """Per chunk of cells, its neighbours, and the squared errors of every option."""
            most = max(n for n, _ in options)
            scale = np.sqrt(units.variance)
            for start in range(0, len(z), CHUNK):
                part = slice(start, start + CHUNK)
                kind = types[part]
                near = nearest(snapshots, which[part], place[part], most, self._threads())
                means = np.array([near.average(*option, snapshots.least) for option in options])
                error = (means - units.mean[kind]) / scale[kind] - z[part]
                yield part, near, np.where(near.found > 0, error**2, 0.0)

        if len(options) > 1:
            total = sum(squared.sum(axis=1) for _, _, squared in errors(options))
            options = [options[int(np.argmin(total))]]
        left, found = np.empty(len(z)), np.empty(len(z), dtype=np.int64)
        for part, near, squared in errors(options):
            left[part], found[part] = squared[0], near.found
        self.n_neighbours_, self.power_ = options[0]
        told = found > 0
        overall = (PRIOR + left.sum()) / (PRIOR + told.sum())
        sums = np.bincount(found, left, self.n_neighbours_ + 1)
        counts = np.bincount(found, minlength=self.n_neighbours_ + 1)
        spread = np.maximum((PRIOR * overall + sums) / (PRIOR + counts), LEAST)
        scores = np.bincount(types, left / spread[found], len(units.mean))
        counts = np.bincount(types[told], minlength=len(units.mean))
        self._spread, self._factor = spread, (PRIOR + scores) / (PRIOR + counts)

    def cells(self, X: Any) -> Cells:
        """Return what is known of cells, before clipping and calibration."""
        codes = encode_ids(X, self.ids_)
        entries = id_columns(X, self.ids_)[self.location_].entries
        place = self._places.lookup(entries).astype(np.int64)
        shape, location = tuple(map(len, self.ids_)), self.location_
        time = mode_number(self.time, self.ids_, "time")
        which = key_places(self._keys, *series_keys(codes, shape, location))
        types = key_places(self._kinds, *series_keys(codes, shape, location, time))
        mean, variance = self._units.mean[types], self._units.variance[types]
        found = np.empty(len(place), dtype=np.int64)
        for start in range(0, len(place), CHUNK):
            part = slice(start, start + CHUNK)
            near = nearest(
                self._snapshots, which[part], place[part], self.n_neighbours_, self._threads()
            )
            there = near.found > 0
            average = near.average(self.n_neighbours_, self.power_, self._snapshots.least)
            mean[part][there] = average[there]
            found[part] = near.found
        factor = self._factor[types] * variance
        noise = np.minimum(factor * self._spread[1:].min(), variance)
        full = np.where(found > 0, factor * self._spread[found], variance)
        unseen = (codes[location] < 0) & (place < 0)
        for mode, code in enumerate(codes):
            unseen |= (code < 0) & (mode != location)
        parts = (mean, noise, np.maximum(full - noise, 0.0))
        return Cells(Moments(*(part.astype(self._units.precision) for part in parts)), unseen)

    def schema(self) -> Schema:
        """Declare what a file keeps: places, snapshots of what was observed, units and errors."""
        places = yield IdsOf("places", "_places")
        position = yield Tensor("position", "float64", (len(places), ANY), "_snapshots.position")
        time, location = self._modes(self.ids_, places)
        most = max(len(position) - 1, 1)
        n = yield Entry("chosen.n_neighbours", "n_neighbours_", integer(1, most))
        power = yield Entry("chosen.power", "power_", real())
        if power < 0:
            raise Damaged(f"chosen.power is {power}")
        yield Entry("seconds", "seconds_", real())
        shape = tuple(map(len, self.ids_))
        moments = yield Tensor("keys", "int64", (ANY,), "_keys", keys(n_keys(shape, location)))
        rule = keys(n_keys(shape, location, time))
        n_types = len((yield Tensor("kinds", "int64", (ANY,), "_kinds", rule)))
        size = (len(moments) + 1,)
        starts = yield Tensor("starts", "int64", size, "_snapshots.starts", STARTS)
        size = (int(starts[-1]),)
        yield Tensor("seen", "int64", size, "_snapshots.places", below(len(position)))
        yield Tensor("values", "float64", size, "_snapshots.values")
        yield from units_schema("", "_units", n_types + 1)
        yield Tensor("factor", "float64", (n_types + 1,), "_factor", POSITIVE)
        yield Tensor("spread", "float64", (n + 1,), "_spread", POSITIVE)

    def restore(self, found: Found) -> None:
        """Make what was learned of what a file has."""
        pairs = zip(self._places.labels.tolist(), found["position"].tolist(), strict=True)
        self.coordinates = {label: tuple(row) for label, row in pairs}
        _, self.location_ = self._modes(self.ids_, self._places)
        parts = (found[name] for name in ("starts", "seen", "values", "position"))
        self._snapshots = Snapshots(*parts)
        self._units = Units(found["mean"], found["variance"])


class IdsOf(NamedTuple):
    """A field of a schema that is ids."""

    name: str
    of: Place

    def write(self, value: Ids, header: dict[str, Any], tensors: Tensors) -> None:
        """Put what they are into the header, and the ids among the tensors."""
        header[self.name], own = pack_ids(value, self.name)
        tensors |= own

    def read(self, source: Source) -> Ids:
        """Return ids that obey the rules of any table."""
        return unpack_ids(source.header[self.name], source, self.name)


def read_coordinates(coordinates: Any) -> tuple[Ids, Array]:
    """Return the ids of places, and a row of coordinates for each.

    Examples
    --------
    >>> places, position = read_coordinates({"hall": (0, 0), "attic": (0, 3)})
    >>> position.tolist()
    [[0.0, 0.0], [0.0, 3.0]]
    """
    if isinstance(coordinates, Mapping):
        labels, rows = list(coordinates), list(coordinates.values())
    else:
        try:
            first, *rest = take_apart(coordinates)[1]
        except DataError:
            raise SettingError(
                f"coordinates must be a dict {{id: (x, y)}} or a table; got {coordinates!r}."
            ) from None
        labels = list(first)
        rows = list(zip(*rest, strict=True))
    try:
        position = np.array([tuple(row) for row in rows], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"coordinates must have the same number of numbers for each id; {error}."
        ) from None
    if position.ndim != 2 or not position.size:
        raise DataError(
            f"coordinates must have one or more numbers for each id; got shape {position.shape}."
        )
    bad = ~np.isfinite(position).all(axis=1)
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"coordinates must be finite; got {position[row].tolist()} for {labels[row]!r}."
        )
    places, codes = Ids.encode(labels, "place")
    if len(places) < len(labels):
        raise DataError(
            f"coordinates must have each id once; got {len(labels)} rows for {len(places)} ids."
        )
    in_order = np.empty_like(position)
    in_order[codes] = position
    return places, in_order
