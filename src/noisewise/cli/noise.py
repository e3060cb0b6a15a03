"""Who is noisy: users, items and ratings; locations and series of sensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from noisewise import storage
from noisewise.cli.checks import picture_to_write, to_write
from noisewise.cli.shared import (
    Dataset,
    Duplicated,
    Format,
    IdColumns,
    Json,
    LocationColumn,
    ReadingColumn,
    SensorColumn,
    Separator,
    TimeColumn,
    read,
    refuse,
    say,
    tell,
)
from noisewise.cli.tables import aligned, records
from noisewise.data import Observations, files
from noisewise.data.files import FORMATS
from noisewise.data.gapped import KINDS
from noisewise.errors import SettingError
from noisewise.filling import check_sensors, read_readings
from noisewise.models import load
from noisewise.models.auto import AutoFactorizer
from noisewise.models.rows import Rowwise
from noisewise.models.temporal import TemporalFactorizer
from noisewise.noise import (
    Table,
    noise_model,
    noisy_ids,
    noisy_observations,
    noisy_places,
    noisy_series,
)


def noise(
    source: Annotated[
        Path,
        typer.Argument(
            help="A model of ratings that `fit` wrote; a model of sensors, or their readings.",
            show_default=False,
        ),
    ],
    mode: Annotated[
        str,
        typer.Option(help="Name or number of the mode to rank: 0 users, 1 items; 0 locations."),
    ] = "0",
    n: Annotated[int, typer.Option("-n", help="How many.")] = 20,
    fewest: Annotated[int, typer.Option(help="Leave out what has fewer observations.")] = 5,
    data: Annotated[
        Path | None, typer.Option(help="Ratings: rank these instead of users or items.")
    ] = None,
    id: IdColumns = [],  # noqa: B006 - typer reads the default, nobody changes it
    value: ReadingColumn = None,
    time: TimeColumn = None,
    location: LocationColumn = None,
    sensor: SensorColumn = None,
    separator: Separator = None,
    format: Format = None,
    dataset: Dataset = None,
    duplicates: Duplicated = "error",
    seed: Annotated[int, typer.Option(help="Readings: the same seed gives the same bits.")] = 0,
    save: Annotated[
        Path | None, to_write(help="Readings: keep the model they are judged by.")
    ] = None,
    plot: Annotated[
        Path | None, picture_to_write(help="Also draw a picture, .png or .svg.")
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
    of_mode = int(mode) if mode.isdigit() else mode
    if data is None and (dataset is not None or format is not None or _is_data(source)):
        layout = {"time": time, "location": location, "sensor": sensor, "separator": separator}
        seen, sensor = _readings(source, dataset, id, value, duplicates, format, layout)
        say(f"Judging {seen!r}")
        judge = noise_model(seen, sensor=sensor, random_state=seed)
        if save is not None:
            judge.save(save)
        _tell_sensors(judge, of_mode, n, fewest, plot, report)
        return
    refuse(
        "is for readings of sensors, not for a model", dataset=dataset, save=save, time=time,
        location=location, sensor=sensor, separator=separator,
    )  # fmt: skip
    model: Any = load(source)
    if isinstance(model, AutoFactorizer):
        model = model.model_
    if isinstance(model, TemporalFactorizer):
        refuse("is for ratings", data=data)
        _tell_sensors(model, of_mode, n, fewest, plot, report)
        return
    if not isinstance(model, Rowwise):
        raise SettingError(
            f"{source} holds a {type(model).__name__}, which does not tell who is noisy."
        )
    if data is not None:
        refuse("is for users or items, not for single ratings", plot=plot)
        table = noisy_observations(model, read(data, id, value, "last", format=format), n=n)
    else:
        table = noisy_ids(model, mode=of_mode, n=n, fewest=fewest)
        if plot is not None:
            from noisewise.report import figures

            storage.write_bytes(plot, figures.render(figures.noisy_ids(table), plot.suffix[1:]))
    plain = _plain(table)
    tell(aligned(plain), records(plain), report)


def _is_data(path: Path) -> bool:
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    return path.is_dir() or suffix in FORMATS or suffix in KINDS


def _readings(
    path: Path,
    dataset: str | None,
    ids: list[str],
    value: str | None,
    duplicates: str,
    format: str | None,
    layout: dict[str, str | None],
) -> tuple[Observations, Any]:
    """Read sensors, time as the last id; and say which mode is their type."""
    if dataset is not None:
        refuse("is not for a named dataset, whose columns are known", **layout)
        return files.named_panel(dataset, path).observations, "auto"
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    published = path.is_dir() or (path.is_file() and files.is_panel(path))
    if ids or format is not None or published or suffix not in KINDS:
        refuse("is not for readings with --id, nor for files whose columns are known", **layout)
        seen = read(path, ids, value, duplicates, format=format)
        check_sensors(path, seen.names)
        return seen, "auto"
    return read_readings(path, duplicates, value=value, **layout)  # type: ignore[arg-type]


def _tell_sensors(
    model: TemporalFactorizer,
    mode: int | str,
    n: int,
    fewest: int,
    plot: Path | None,
    report: Path | None,
) -> None:
    places = noisy_places(model, mode=mode, n=n, fewest=fewest)
    series = noisy_series(model, n=n, fewest=fewest)
    if plot is not None:
        from noisewise.report import canvas
        from noisewise.report.series import noise_parts

        ids = [series[own.name].tolist() for own in model.ids_ if own.name in series]
        names = [" ".join(map(str, row)) for row in zip(*ids, strict=True)]
        drawing = noise_parts({**series, "series": np.array(names, dtype=object)})
        storage.write_bytes(plot, canvas.render(drawing, plot.suffix[1:]))
    tables = {"places": _plain(places), "series": _plain(series)}
    text = "\n\n".join(aligned(table) for table in tables.values())
    tell(text, {what: records(table) for what, table in tables.items()}, report)


def _plain(table: Table) -> dict[str, list[Any]]:
    return {name: column.tolist() for name, column in table.items()}
