"""Panel: readings of sensors over time, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from noisewise import registry
from noisewise.data.files import read
from noisewise.data.ids import Ids
from noisewise.data.observations import Duplicates, Observations, check_repeats
from noisewise.data.timestamps import Floats, checked_stamps
from noisewise.errors import DataError, brief, listed

LOCATION, SENSOR, TIME = 0, 1, 2  # the modes of a panel

Coordinates: TypeAlias = dict[Any, tuple[float, float]]
Repeats: TypeAlias = Duplicates | Literal["first"]


@dataclass(frozen=True, eq=False)
class Panel:
    """Readings of sensors over time: what was measured where, by which sensor, and when.

    The modes are location, sensor and time, in this order.

    Examples
    --------
    >>> from noisewise.data import observe
    >>> seen = observe([("hall", "heat", 7, 20.5), ("hall", "heat", 9, 21.0)])
    >>> Panel(seen, {"hall": (0.0, 2.5)}, seconds=60.0).elapsed()
    array([  0., 120.])
    """

    observations: Observations  # ids of time are numbers that count steps of equal length
    coordinates: Coordinates | None  # x and y in metres of locations that somebody placed
    seconds: float  # how long a step of time is
    report: dict[str, int] = field(default_factory=dict)  # what a reader left out, how often

    __repr__ = brief

    def __post_init__(self) -> None:
        _check_modes(self.observations)
        times = self.observations.ids[TIME].labels.tolist()
        strange = [id for id in times if not isinstance(id, int | float)]
        if strange:
            raise DataError(
                f"The ids of time must be numbers that count steps; got {strange[0]!r}: number the "
                "dates in days or seconds."
            )
        if not self.seconds > 0:
            raise DataError(f"seconds must be above 0; got {self.seconds}.")

    def elapsed(self) -> Floats:
        """Return the seconds from the first time id to each of the others, by row number."""
        times = self.observations.ids[TIME].labels.astype(np.float64)
        return np.asarray((times - times.min()) * self.seconds)

    @classmethod
    def of(cls, observations: Observations) -> Panel:
        """Take a table of location, sensor and time, in seconds or dates, for readings."""
        _check_modes(observations)
        known = observations.ids[TIME]
        stamps, places = Ids.encode(checked_stamps(known)[0], known.name)
        codes = (*observations.codes[:TIME], places[observations.codes[TIME]])
        ids = (*observations.ids[:TIME], stamps)
        return cls(Observations(codes, observations.values, ids), None, seconds=1.0)


def _check_modes(observations: Observations) -> None:
    if observations.n_modes != TIME + 1:
        found = ", ".join(observations.names)
        raise DataError(f"Expected the modes location, sensor and time; got {found}.")


def read_panel(path: str | PathLike[str], *, repeats: Repeats = "first") -> Panel:
    """Read sensors in a format that an installed package knows, each cell once (``repeats``).

    Examples
    --------
    noisewise itself reads sensors as tables (``DeviationImputer``); other formats are those of
    installed packages, and a file that none of them knows is refused.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.md"
    >>> _ = path.write_text("Check the attic.")
    >>> read_panel(path)
    Traceback (most recent call last):
    noisewise.errors.DataError: ...notes.md: expected ...
    """
    if repeats != "first":
        check_repeats(repeats)
    path = Path(path)
    found = registry.recognised("sensors", path)
    if found is None:
        if path.suffix == ".npz":
            seen = read(path)  # which says what is wrong with it
            raise DataError(f"{path}: Expected sensors; got observations of {listed(seen.names)}.")
        known = " or ".join(registry.formats("sensors")) or "a format of an installed package"
        raise DataError(f"{path}: expected {known}.")
    panel: Panel = found(path, repeats=repeats)
    return panel


def named_panel(name: str, path: str | PathLike[str], *, exact: bool = True) -> Panel:
    """Make one of ``registry.tensors()``, which results are reported on, from a copy of its data.

    If ``exact``, a copy must have as many observed cells as the tensor is known to have.
    """
    package, known = registry.tensor(name)
    panel: Panel = registry.imported(known.make, package)(Path(path))
    if exact and len(panel.observations) != known.observed:
        raise DataError(
            f"{path}: {name} has {known.observed:,} observed cells, but this copy gives "
            f"{len(panel.observations):,}; get another one, or pass exact=False to take it as it "
            "is."
        )
    return panel
