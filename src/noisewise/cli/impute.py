"""Gaps of a file filled, and a page of its series."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import typer

from noisewise.calibration import check_coverage
from noisewise.cli import options
from noisewise.cli.options import Layout, check_file, option, parsed, say, tell
from noisewise.data import Observations
from noisewise.data.gapped import Gapped, kind_of, read_gapped
from noisewise.data.ids import check_values
from noisewise.data.labelled import labelled
from noisewise.data.observations import Duplicates
from noisewise.data.tables import find_ids
from noisewise.data.tables_with_holes import LabelledArray, Roles
from noisewise.data.timestamps import Floats, Units, are_dates
from noisewise.errors import DataError, SettingError, listed
from noisewise.imputer import DeviationImputer, methods
from noisewise.models.auto import LIKE, AutoFactorizer
from noisewise.models.base import Factorizer
from noisewise.noise import noise_model, noisy_series
from noisewise.report.charts import Trace
from noisewise.report.page import Table
from noisewise.report.series import COVERAGE, MOST_SERIES, check_most, series_page
from noisewise.report.traces import odd_of_table, traces
from noisewise.scaling import TRANSFORMS
from noisewise.storage import write_bytes

METHODS = methods()


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What readings can be, and what their gaps are like."""

    scale: str = option(
        "What models compute in: readings as they are, their roots or logarithms; auto tries all "
        "where readings look like counts or concentrations.",
        default="auto",
        choices=("auto", "none", *TRANSFORMS),
    )
    low: float | None = option(
        "What no reading can be below; else 0 where readings look like counts or concentrations."
    )
    high: float | None = option("What no reading can be above.")
    whole: bool = option("Readings are whole numbers.", "--whole", default=False)
    outliers: str = option(
        "Whether to learn from single readings far from all others: auto finds out.",
        default="auto",
        choices=("auto", "keep", "drop"),
    )
    like: str = option(
        "What gaps are like that auto judges by: those of FILE, or others.",
        default="table",
        choices=LIKE,
    )
    limit: int | None = option(
        "How many gaps in a row are filled, the first ones; others of a longer run stay.",
    )
    coverage: float | None = option(
        "Also write the ends of intervals that hold the missing reading so often, e.g. 0.9, beside "
        "the stds: as VALUE_low and VALUE_high, or in files with .low and .high.",
    )

    @property
    def given(self) -> dict[str, Any]:
        """Settings of an imputer."""
        said = self.low is not None or self.high is not None
        own: dict[str, Any] = {"scale": None if self.scale == "none" else self.scale}
        own |= {"bounds": (self.low, self.high) if said else "auto", "whole": self.whole}
        return own | {"outliers": self.outliers, "like": self.like, "limit": self.limit}


def impute(
    file: Path = typer.Argument(
        ..., help="Text such as CSV (also .gz, .bz2, .xz), Parquet or NetCDF, with gaps."
    ),
    out: Path = option(
        "The filled file, in the format and layout of FILE. Long: beside the values stand "
        "VALUE_std and VALUE_imputed (1 where a gap was filled). Wide: stds are in a second "
        "file of the same layout, OUT with .std before its suffix. NetCDF: beside every "
        "variable stand NAME_std and NAME_imputed.",
        default=...,
        check=check_file,
    ),
    method: str = option(f"One of {', '.join(METHODS)}.", default="auto", choices=METHODS),
    *,
    layout: Layout,
    complete: bool = option(
        "Long: also add the rows that a series lacks between its first and its last.",
        "--complete",
        default=False,
    ),
    duplicates: str = options.DUPLICATES,
    readings: Readings,
    page: Path | None = option(
        "Also write a page (HTML) of all series, the longest gaps first: to zoom into, with what "
        "was chosen, how sure it is, and what is odd.",
        check=check_file,
    ),
    most: int = option("Series to draw on the page.", default=MOST_SERIES),
    settings: list[str] = options.SETTINGS,
    seed: int = options.SEED,
    report: Path | None = options.JSON,
) -> None:
    """Fill the gaps of a file of sensors, with a std for every value that is filled in.

    A long table has a row for each reading, and columns such as time, location, sensor and value; a
    wide one has a row for each time and a column for each series, or for each sensor where a column
    says the location. Columns that are not named are found by what they hold and by their usual
    names; lines of loggers above the table, dates and decimal commas of other countries are
    understood. Readings and all else stay as they are, letter for letter.

    Example: `noisewise impute readings.csv --out filled.csv --page page.html`

    Example: `noisewise impute air.csv --time day --location site --sensor species --value level
    --out filled.csv --method bayes`
    """
    result = fill_file(
        file, out, method=method, settings=parsed(settings), duplicates=cast(Any, duplicates),
        page=page, most=most, seed=seed, say=say, complete=complete, coverage=readings.coverage,
        readings=readings.given, **asdict(layout),
    )  # fmt: skip
    tell(_told(result), result, report)


def _told(result: dict[str, Any]) -> str:
    """Say what was filled, how, and what else was tried."""
    left = f", {result['left']:,} could not be filled" if result["left"] else ""
    text = (
        f"{result['filled']:,} missing readings were filled by {result['chosen']!r}{left}, "
        f"{result['seconds']:.1f} s\nThe result is in {' and '.join(result['written'])}."
    )
    text += f"\nLook at {result['page']}." if "page" in result else ""
    if result["scores"]:
        columns: dict[str, list[Any]] = {"method": [*result["scores"]]}
        for key in ("error", "score", "seconds"):
            columns[key] = [f"{one[key]:.3g}" for one in result["scores"].values()]
        text += f"\n{result['reason']}\n\n{options.aligned(columns)}"
    return text


def fill_file(
    path: str | Path,
    out: str | Path,
    *,
    method: str = "auto",
    settings: Mapping[str, Any] | None = None,
    duplicates: Duplicates = "error",
    page: str | Path | None = None,
    most: int = MOST_SERIES,
    seed: int = 0,
    coverage: float | None = None,
    readings: Mapping[str, Any] | None = None,
    say: Callable[[str], object] = lambda line: None,
    **layout: Any,
) -> dict[str, Any]:
    """Fill the gaps of a file, write it in the same layout with the std beside; return a report.

    Columns are given as for ``read_gapped``, all else as for ``DeviationImputer``, of which
    ``readings`` has more settings. A page draws the ``most`` series with the longest gaps. ``say``
    is called with a line of text when a step begins.
    """
    path, out = Path(path), Path(out)
    _check(path, out, page, most, coverage)
    started = clock.perf_counter()
    gapped = _read(path, say, layout)
    as_cells = partial(labelled, roles=Roles(**gapped.options, duplicates=duplicates))
    cells = as_cells(gapped.table)
    holes = np.isnan(cells.values)
    if not holes.any():
        raise DataError(
            f"{path} has no gap to fill: all of {holes.size:,} cells have a reading. If a long "
            "table lacks rows, ask for them to be added with --complete."
        )
    imputer = DeviationImputer(
        method, **gapped.options, duplicates=duplicates, settings=settings, random_state=seed,
        **(readings or {}),
    )  # fmt: skip
    say(f"Fitting {method} to {holes.size - holes.sum():,} readings")
    imputer.fit(gapped.table)
    say(f"Filling {holes.sum():,} gaps")
    filled, std = imputer.transform(gapped.table, return_std=True)
    ends = () if coverage is None else imputer.interval(gapped.table, coverage)
    written = gapped.write(out, filled, std, **dict(zip(("low", "high"), ends, strict=False)))
    left = int(np.isnan(as_cells(filled).values).sum())
    report = {
        "file": str(path), "written": [str(file) for file in written], "method": method,
        "chosen": imputer.chosen_, "readings": int(holes.size - holes.sum()),
        "filled": int(holes.sum()) - left, "left": left, "left_alone": gapped.left,
        "scale": imputer.scale_, **_choice(imputer.model_),
    }  # fmt: skip
    if page is not None:
        say(f"Drawing {page}")
        parts = (filled, *(ends or imputer.interval(gapped.table, COVERAGE)))
        entries = _entries(cells, [as_cells(part).values for part in parts], duplicates, seed)
        html = _page(path.name, entries, imputer, report, most, coverage or COVERAGE)
        write_bytes(page, html.encode())
        report["page"] = str(page)
    return report | {"seconds": clock.perf_counter() - started}


def _read(path: Path, say: Callable[[str], object], layout: dict[str, Any]) -> Gapped:
    say(f"Reading {path}")
    gapped = read_gapped(path, **layout)
    if gapped.left:
        say(f"Left alone: {listed(gapped.left)}")
    return gapped


def _choice(model: Factorizer) -> dict[str, Any]:
    """Return why a method was chosen, and the errors of all, if there was a choice."""
    if not isinstance(model, AutoFactorizer):
        return {"reason": None, "scores": {}}
    return {"reason": str(model), "scores": model.scores_}


def read_readings(
    path: str | Path, duplicates: Duplicates = "error", **layout: Any
) -> tuple[Observations, int | None]:
    """Read what a file with gaps has, time as the last mode, and which mode is the sensor."""
    seen, cells = _read_cells(path, duplicates, layout)
    return seen, cells.sensor


def read_timed(
    path: str | Path, duplicates: Duplicates = "error", **layout: Any
) -> tuple[Observations, bool]:
    """Read what a file with gaps has, time as the last mode, and whether times are dates."""
    seen, cells = _read_cells(path, duplicates, layout)
    return seen, are_dates(cells.clock)


def _read_cells(
    path: str | Path, duplicates: Duplicates, layout: dict[str, Any]
) -> tuple[Observations, LabelledArray]:
    gapped = read_gapped(path, **layout)
    check_sensors(path, gapped.names)
    cells = labelled(gapped.table, Roles(**gapped.options, duplicates=duplicates))
    seen = cells.observed(duplicates)
    if len(seen) < 2:
        raise DataError(f"{path} has {len(seen)} readings; at least 2 are needed.")
    return Observations(seen.codes, check_values(seen.values, "value"), seen.ids), cells


def check_sensors(path: str | Path, names: Sequence[str]) -> None:
    """Raise if columns are those of ratings."""
    if find_ids(list(names), ["user", "item"]) is not None:
        raise DataError(f"{path} holds ratings: fit a model to them, and show its noise.")


def _check(
    path: Path, out: Path, page: str | Path | None, most: int, coverage: float | None
) -> None:
    """Raise for what would only fail after the work."""
    if coverage is not None:
        check_coverage(coverage)
    if kind_of(out) != kind_of(path):
        raise SettingError(f"The result has the format of {path}; name it so, and not {out}.")
    options.keep(path, out)
    for file in (out, *([] if page is None else [Path(page)])):
        if not file.resolve().parent.is_dir():
            raise SettingError(f"There is no folder {file.resolve().parent} to write to.")
    if page is not None:
        check_most(most)


def _noise(
    cells: LabelledArray, seen: Observations, seed: int
) -> dict[tuple[Any, ...], tuple[float, ...]]:
    """Noise of every series that was read, by its ids, as a ``Trace`` has it."""
    # Readings are judged in units of their sensor, as a model computes in float32.
    mode = cells.sensor
    sensors: Any = np.zeros(len(seen), np.int64) if mode is None else seen.codes[mode]
    mean, variance = Units.of(seen.values, sensors, 1 if mode is None else len(seen.ids[mode]))
    scale = np.sqrt(variance)
    scores = (seen.values - mean[sensors]) / scale[sensors]
    known = Observations(seen.codes, scores.astype(np.float32), seen.ids)
    table = noisy_series(noise_model(known, sensor=mode, random_state=seed), n=None)
    ids = [table[name] for name in cells.names[:-1]]
    own = scale[0] if mode is None else scale[seen.ids[mode].lookup(ids[mode])]
    columns = [table[name] for name in ("noise", "white", "drift")]
    columns += [own * table[name] for name in ("white_std", "drift_std")]
    return dict(zip(zip(*ids, strict=True), zip(*columns, strict=True), strict=True))


def _entries(
    cells: LabelledArray, parts: Sequence[Floats], duplicates: Duplicates, seed: int
) -> list[Trace]:
    """Take a table apart into its series, with their noise and what is odd in them."""
    seen = cells.observed(duplicates)
    return traces(cells, parts, odd_of_table(cells, seen), _noise(cells, seen, seed))


def _page(
    name: str,
    entries: Sequence[Trace],
    imputer: DeviationImputer,
    report: Any,
    most: int,
    coverage: float,
) -> str:
    left = f" {report['left']:,} could not be filled." if report["left"] else ""
    lead = (
        f"{len(entries):,} series with {report['readings']:,} readings; {report['filled']:,} gaps "
        f"were filled by {report['chosen']!r}.{left}"
    )
    return series_page(
        f"{name}, filled", entries, lead=lead, method=_method(imputer.model_), most=most,
        coverage=coverage,
        foot=f"Made by noisewise from {name} with seed {imputer.random_state}.",
    )  # fmt: skip


def _method(model: Factorizer) -> list[str | Table]:
    """Say how the method was chosen, if it was."""
    if not isinstance(model, AutoFactorizer) or not model.scores_:
        return []
    rows = [
        [name, f"{one['error']:.3g}", f"{one['score']:.2f}", f"{one['seconds']:.1f}"]
        for name, one in model.scores_.items()
    ]
    head = ["method", "error", "over the best", "seconds"]
    words = (
        "Root of the mean squared error on readings that were hidden as the gaps of the table are, "
        "in units of the std of each series. The lowest is the best."
    )
    return [str(model), Table(head, rows, words)]
