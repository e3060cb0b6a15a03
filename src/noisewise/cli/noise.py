"""Who is noisy: users, items and ratings; locations and series of sensors."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import typer

from noisewise import noise as rank
from noisewise import registry, storage
from noisewise.cli import options
from noisewise.cli.impute import check_sensors, read_readings, read_timed
from noisewise.cli.options import Columns, Layout, check_file, option, refuse, tell
from noisewise.data import Ids, Observations
from noisewise.data.files import FORMATS
from noisewise.data.gapped import KINDS
from noisewise.data.panel import named_panel
from noisewise.data.reader import suffix_of
from noisewise.data.timestamps import Clock, checked_stamps
from noisewise.errors import SettingError
from noisewise.models import load
from noisewise.models.auto import AutoFactorizer
from noisewise.models.rows import Rows
from noisewise.models.temporal import TemporalFactorizer
from noisewise.report import figures
from noisewise.report.series import noise_parts


def _check_picture(path: Path) -> None:
    figures.check_kind(path.suffix[1:])
    check_file(path)


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """What is ranked, how much of it is listed, and where it is drawn."""

    mode: str = option(
        "Name or number of the mode to rank: 0 users, 1 items; 0 locations.", default="0"
    )
    n: int = option("How many.", "-n", default=20)
    fewest: int = option("Leave out what has fewer observations.", default=5)
    plot: Path | None = option("Also draw a picture, .png or .svg.", check=_check_picture)

    @property
    def ranked_mode(self) -> int | str:
        """The mode, by number if it is one."""
        return int(self.mode) if self.mode.isdigit() else self.mode

    def draw(self, drawing: figures.Drawing) -> None:
        """Write a picture."""
        if self.plot is not None:
            storage.write_bytes(self.plot, figures.render(drawing, self.plot.suffix[1:]))


@dataclass(frozen=True, kw_only=True)
class Readings(Layout):
    """How readings of sensors are read: as `impute` does, or with an id column per mode."""

    id: list[str] = options.IDS
    format: str | None = options.FORMAT
    dataset: str | None = options.DATASET
    duplicates: str = options.DUPLICATES

    @property
    def layout(self) -> dict[str, Any]:
        """What only tables with gaps have, by the names of options."""
        names = [one.name for one in fields(Layout) if one.name != "value"]
        return {name: getattr(self, name) for name in names}

    def read(self, path: Path) -> tuple[Observations, Any]:
        """Read sensors, time as the last id; and say which mode is the sensor."""
        known = self._known(path)
        if known is not None:
            return known, "auto"
        return read_readings(path, self.duplicates, value=self.value, **self.layout)  # type: ignore[arg-type]

    def timed(self, path: Path) -> tuple[Observations, Clock]:
        """Read sensors, times as numbers; and say whether these are seconds of dates."""
        known = self._known(path)
        if known is None:
            return read_timed(path, self.duplicates, value=self.value, **self.layout)  # type: ignore[arg-type]
        stamps, dated = checked_stamps(known.ids[-1])
        times, places = Ids.encode(stamps, known.ids[-1].name)
        codes = (*known.codes[:-1], places[known.codes[-1]])
        clock: Clock = "dates" if dated else "numbers"
        return Observations(codes, known.values, (*known.ids[:-1], times)), clock

    def _known(self, path: Path) -> Observations | None:
        """Read what has an id column per mode, or is known by name; None for tables with gaps."""
        if self.dataset is not None:
            refuse("is not for a named dataset, whose columns are known", **self.layout)
            return named_panel(self.dataset, path).observations
        published = path.is_dir() or (path.is_file() and registry.recognised("sensors", path))
        if not (self.id or self.format is not None or published or suffix_of(path) not in KINDS):
            return None
        words = "is not for readings with --id, nor for files whose columns are known"
        refuse(words, **self.layout)
        seen = self.columns(self.duplicates).read(path)
        check_sensors(path, seen.names)
        return seen

    def columns(self, duplicates: str) -> Columns:
        """Return the columns of a table with an id column per mode."""
        own: Any = {"value": self.value, "format": self.format, "weight": None}
        return Columns(id=self.id, duplicates=duplicates, **own)


def noise(
    source: Path = typer.Argument(
        ..., help="A model of ratings that `fit` wrote; a model of sensors, or their readings."
    ),
    *,
    ranking: Ranking,
    data: Path | None = option("Ratings: rank these instead of users or items."),
    readings: Readings,
    seed: int = option("Readings: the same seed gives the same bits.", default=0),
    save: Path | None = option("Readings: keep the model they are judged by.", check=check_file),
    report: Path | None = options.JSON,
) -> None:
    """Show who is noisy: users, items, single ratings; or sensors, by white noise and by drift.

    Readings are read as `impute` reads them: long or wide, with gaps, columns in any order and
    found by their usual names. With --id, one per mode and time the last, as `fit` reads ratings.

    Example: `noisewise noise readings.csv -n 10`

    Example: `noisewise noise movies.nw --mode item -n 10`

    Example: `noisewise noise intel.npz --dataset intel-2epoch -n 5`
    """
    named = readings.dataset is not None or readings.format is not None
    is_data = named or source.is_dir() or suffix_of(source) in {*FORMATS, *KINDS}
    if data is None and is_data:
        seen, sensor = readings.read(source)
        options.say(f"Judging {seen!r}")
        judge = rank.noise_model(seen, sensor=sensor, random_state=seed)
        if save is not None:
            judge.save(save)
        return _tell_sensors(judge, ranking, report)
    refuse("is for readings of sensors, not for a model", dataset=readings.dataset, save=save,
           **readings.layout)  # fmt: skip
    model: Any = load(source)
    if isinstance(model, AutoFactorizer):
        model = model.model_
    if isinstance(model, TemporalFactorizer):
        refuse("is for ratings", data=data)
        return _tell_sensors(model, ranking, report)
    if not isinstance(model, Rows):
        raise SettingError(
            f"{source} holds a {type(model).__name__}, which does not tell who is noisy."
        )
    if data is not None:
        refuse("is for users or items, not for single ratings", plot=ranking.plot)
        table = rank.noisy_observations(model, readings.columns("last").read(data), n=ranking.n)
    else:
        table = rank.noisy_ids(model, mode=ranking.ranked_mode, n=ranking.n, fewest=ranking.fewest)
        if ranking.plot is not None:
            ranking.draw(figures.noisy_ids(table))
    plain = _plain(table)
    return tell(options.aligned(plain), options.records(plain), report)


def _tell_sensors(model: TemporalFactorizer, ranking: Ranking, report: Path | None) -> None:
    places = rank.noisy_places(model, mode=ranking.ranked_mode, n=ranking.n, fewest=ranking.fewest)
    series = rank.noisy_series(model, n=ranking.n, fewest=ranking.fewest)
    if ranking.plot is not None:
        ids = [series[own.name].tolist() for own in model.ids_ if own.name in series]
        names = [" ".join(map(str, row)) for row in zip(*ids, strict=True)]
        ranking.draw(noise_parts({**series, "series": np.array(names, dtype=object)}))
    tables = {"places": _plain(places), "series": _plain(series)}
    text = "\n\n".join(options.aligned(table) for table in tables.values())
    tell(text, {what: options.records(table) for what, table in tables.items()}, report)


def _plain(table: rank.Table) -> dict[str, list[Any]]:
    return {name: column.tolist() for name, column in table.items()}
