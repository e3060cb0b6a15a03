"""Who is noisy: users, items and ratings; locations and series of sensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from noisewise import storage
from noisewise.cli.impute import check_sensors, read_readings
from noisewise.cli.options import (
    Columns,
    Dataset,
    Duplicated,
    Format,
    IdColumns,
    Json,
    Layout,
    picture_to_write,
    refuse,
    to_write,
)
from noisewise.cli.output import aligned, records, say, tell
from noisewise.data import Observations
from noisewise.data.files import FORMATS
from noisewise.data.gapped import KINDS
from noisewise.data.panel import is_panel, named_panel
from noisewise.errors import SettingError
from noisewise.models import load
from noisewise.models.auto import AutoFactorizer
from noisewise.models.rows import Rows
from noisewise.models.temporal import TemporalFactorizer
from noisewise.noise import (
    Table,
    noise_model,
    noisy_ids,
    noisy_observations,
    noisy_places,
    noisy_series,
)
from noisewise.report import figures
from noisewise.report.series import noise_parts


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """What is ranked, how much of it is listed, and where it is drawn."""

    mode: Annotated[
        str,
        typer.Option(help="Name or number of the mode to rank: 0 users, 1 items; 0 locations."),
    ] = "0"
    n: Annotated[int, typer.Option("-n", help="How many.")] = 20
    fewest: Annotated[int, typer.Option(help="Leave out what has fewer observations.")] = 5
    plot: Annotated[Path | None, picture_to_write(help="Also draw a picture, .png or .svg.")] = None

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

    id: IdColumns = field(default_factory=list)
    format: Format = None
    dataset: Dataset = None
    duplicates: Duplicated = "error"

    @property
    def layout(self) -> dict[str, str | None]:
        """What only tables with gaps have, by the names of options."""
        names = ("time", "location", "sensor", "separator")
        return {name: getattr(self, name) for name in names}

    def read(self, path: Path) -> tuple[Observations, Any]:
        """Read sensors, time as the last id; and say which mode is the sensor."""
        if self.dataset is not None:
            refuse("is not for a named dataset, whose columns are known", **self.layout)
            return named_panel(self.dataset, path).observations, "auto"
        suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
        published = path.is_dir() or (path.is_file() and is_panel(path))
        if self.id or self.format is not None or published or suffix not in KINDS:
            words = "is not for readings with --id, nor for files whose columns are known"
            refuse(words, **self.layout)
            seen = self.columns(self.duplicates).read(path)
            check_sensors(path, seen.names)
            return seen, "auto"
        return read_readings(path, self.duplicates, value=self.value, **self.layout)  # type: ignore[arg-type]

    def columns(self, duplicates: str) -> Columns:
        """Return the columns of a table with an id column per mode."""
        return Columns(id=self.id, value=self.value, format=self.format, duplicates=duplicates)


def noise(
    source: Annotated[
        Path,
        typer.Argument(
            help="A model of ratings that `fit` wrote; a model of sensors, or their readings.",
            show_default=False,
        ),
    ],
    *,
    ranking: Ranking,
    data: Annotated[
        Path | None, typer.Option(help="Ratings: rank these instead of users or items.")
    ] = None,
    readings: Readings,
    seed: Annotated[int, typer.Option(help="Readings: the same seed gives the same bits.")] = 0,
    save: Annotated[
        Path | None, to_write(help="Readings: keep the model they are judged by.")
    ] = None,
    report: Json = None,
) -> None:
    """Show who is noisy: users, items, single ratings; or sensors, by white noise and by drift.

    Readings are read as `impute` reads them: long or wide, with gaps, columns in any order and
    found by their usual names. With --id, one per mode and time the last, as `fit` reads ratings.

    Example: `noisewise noise readings.csv -n 10`

    Example: `noisewise noise movies.nw --mode item -n 10`

    Example: `noisewise noise intel.npz --dataset intel-2epoch -n 5`
    """
    named = readings.dataset is not None or readings.format is not None
    if data is None and (named or _is_data(source)):
        seen, sensor = readings.read(source)
        say(f"Judging {seen!r}")
        judge = noise_model(seen, sensor=sensor, random_state=seed)
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
        table = noisy_observations(model, readings.columns("last").read(data), n=ranking.n)
    else:
        table = noisy_ids(model, mode=ranking.ranked_mode, n=ranking.n, fewest=ranking.fewest)
        if ranking.plot is not None:
            ranking.draw(figures.noisy_ids(table))
    plain = _plain(table)
    return tell(aligned(plain), records(plain), report)


def _is_data(path: Path) -> bool:
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    return path.is_dir() or suffix in FORMATS or suffix in KINDS


def _tell_sensors(model: TemporalFactorizer, ranking: Ranking, report: Path | None) -> None:
    places = noisy_places(model, mode=ranking.ranked_mode, n=ranking.n, fewest=ranking.fewest)
    series = noisy_series(model, n=ranking.n, fewest=ranking.fewest)
    if ranking.plot is not None:
        ids = [series[own.name].tolist() for own in model.ids_ if own.name in series]
        names = [" ".join(map(str, row)) for row in zip(*ids, strict=True)]
        ranking.draw(noise_parts({**series, "series": np.array(names, dtype=object)}))
    tables = {"places": _plain(places), "series": _plain(series)}
    text = "\n\n".join(aligned(table) for table in tables.values())
    tell(text, {what: records(table) for what, table in tables.items()}, report)


def _plain(table: Table) -> dict[str, list[Any]]:
    return {name: column.tolist() for name, column in table.items()}
