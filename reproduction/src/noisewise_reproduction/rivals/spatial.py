"""SpatialNeighbours: what the nearest sensors of the same type say at the same moment.

With ``power=0`` this is k nearest neighbours, with 1 or 2 inverse distance weighting.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from noisewise import storage
from noisewise.data import Ids, encode_ids, id_columns, observe
from noisewise.data.tables import take_apart
from noisewise.data.timestamps import Units, key_places, mode_number, n_keys, series_keys
from noisewise.engine.arrays import Moments
from noisewise.errors import DataError, ModelFileError, SettingError
from noisewise.models.base import Cells, Threads, in_one_step
from noisewise.models.iterative import range_of
from noisewise.models.model_file import pack_ids, unpack_ids
from noisewise.models.sensors import PRIOR, InTime, take_keys
from noisewise.settings import Rule, check, either, learned, number, setting, settings, whole
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

    def pack(self) -> tuple[dict[str, Any], storage.Tensors]:
        """Return what a file keeps of this model."""
        entry, tensors = pack_ids(self._places, "places")
        tensors |= {
            "position": self._snapshots.position,
            "keys": self._keys,
            "kinds": self._kinds,
            "starts": self._snapshots.starts,
            "seen": self._snapshots.places,
            "values": self._snapshots.values,
            "mean": self._units.mean,
            "variance": self._units.variance,
            "spread": self._spread,
            "factor": self._factor,
        }
        chosen = {"n_neighbours": self.n_neighbours_, "power": self.power_}
        return {"places": entry, "chosen": chosen, "seconds": self.seconds_}, tensors

    def unpack(self, path: str | Path, header: dict[str, Any], tensors: storage.Tensors) -> None:
        """Undo ``pack``, trusting nothing."""

        def take(name: str, dtype: str, *shape: int | None) -> npt.NDArray[Any]:
            return storage.take(path, tensors, name, dtype, *shape)

        self._places = unpack_ids(path, header["places"], tensors, "places")
        position = take("position", "float64", len(self._places), storage.ANY)
        pairs = zip(self._places.labels.tolist(), position.tolist(), strict=True)
        self.coordinates = {label: tuple(row) for label, row in pairs}
        time, self.location_ = self._modes(self.ids_, self._places)
        most = max(len(position) - 1, 1)
        self.n_neighbours_ = storage.take_whole(path, header["chosen"], "n_neighbours", 1, most)
        self.power_ = storage.take_real(path, header["chosen"], "power")
        shape = tuple(map(len, self.ids_))
        self._keys = take_keys(path, tensors, "keys", n_keys(shape, self.location_))
        self._kinds = take_keys(path, tensors, "kinds", n_keys(shape, self.location_, time))
        starts = storage.take_starts(path, tensors, "starts", len(self._keys))
        seen = take("seen", "int64", int(starts[-1]))
        storage.check_codes(path, "seen", seen, len(position))
        values = take("values", "float64", len(seen))
        self._snapshots = Snapshots(starts, seen, values, position)
        n_types = len(self._kinds) + 1
        self._units = Units(take("mean", "float64", n_types), take("variance", "float64", n_types))
        self._factor = take("factor", "float64", n_types)
        self._spread = take("spread", "float64", self.n_neighbours_ + 1)
        positive = min(map(np.min, (self._units.variance, self._factor, self._spread))) > 0
        if not (positive and self.power_ >= 0):
            raise ModelFileError(f"{path} is damaged: its neighbours make no sense.")
        self.n_features_in_ = len(shape)
        self.seconds_ = float(header["seconds"])


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
