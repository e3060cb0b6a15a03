"""Files with gaps: read, and written back in the same layout with the gaps filled.

A table is long, with a row for each reading; wide, with a column for each series; or both, with
rows for each place and time and a column for each sensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.data import reader, roles
from noisewise.data.dialect import Given
from noisewise.data.ids import Codes
from noisewise.data.netcdf import read_netcdf
from noisewise.data.numerals import unlikely
from noisewise.data.roles import Found
from noisewise.data.sources import PURPOSE, ParquetSource, Source, TextSource, time_codes
from noisewise.data.tables_with_holes import Mask
from noisewise.data.timestamps import Floats, Ints
from noisewise.errors import DataError, SettingError, listed, warn

KINDS = {
    ".csv": "text", ".tsv": "text", ".txt": "text", ".dat": "text", ".tab": "text", ".asc": "text",
    ".parquet": "parquet", ".nc": "netcdf", ".nc4": "netcdf", ".netcdf": "netcdf",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Gapped:
    """A file with gaps, read."""

    table: Any  # of pyarrow or xarray: what a ``DeviationImputer`` takes
    options: dict[str, Any]  # what it must be told: time, location, sensor and value
    write: Callable[..., list[Path]]  # to a path, what was filled, stds; ends of intervals by name
    names: list[str]  # all columns or variables of the file
    left: list[str] = field(default_factory=list)  # those that hold no readings, and stay


def read_gapped(
    path: str | Path,
    *,
    time: str | None = None,
    location: str | Sequence[str] | None = None,
    sensor: str | None = None,
    value: str | None = None,
    separator: str | None = None,
    complete: bool = False,
    ignore: str | Sequence[str] = (),
    date_order: str | None = None,
    **text: Any,
) -> Gapped:
    """Read a file with gaps, as loggers, networks and spreadsheets write them.

    Columns that are not named are found by what they hold, and by their usual names. A table with a
    column of values is long, any other is wide; ``separator`` stands between location and sensor in
    the names of its columns. Where times repeat in a wide table, the column ``location`` tells the
    rows of a time apart; several columns may do so together. Columns that hold no numbers stay as
    they are, and so do those to ``ignore``. Of NetCDF, ``time`` and ``sensor`` are dimensions, and
    ``value`` is the variable to fill: all over time, if it is not given. ``complete`` adds the rows
    that a long table lacks: every time of the table between the first and the last row of a series.

    For text: ``missing`` has entries that stand for a missing reading, such as -999 (an empty
    field, NA, a dash and the like always do), ``decimal`` is "." or ",", ``date_order`` is "dmy",
    "mdy" or "ymd", ``delimiter`` stands between fields, ``header`` is the line with the names,
    counted from 1 (0 if there is none), and ``encoding`` that of the file. What is not given is
    found out; where the file does not tell, an error asks for it.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    kind = kind_of(path)
    where = (location,) if isinstance(location, str) else tuple(location or ())
    ignored = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    given = _given(text)
    if kind != "text":
        refuse(kind, **given._asdict(), date_order=date_order)
    if kind == "netcdf":
        refuse(kind, location=location, separator=separator, complete=complete, ignore=ignored)
        return Gapped(*read_netcdf(path, time, sensor, value))
    named = Found((), where, () if sensor is None else (sensor,), value)
    with reader.named_errors(path):
        source: Source
        if kind == "text":
            source = TextSource.read(path, given, date_order, named.ids)
        else:
            source = ParquetSource.read(path)
        roles.checked(ignored, source.names, "ignore")
        found = _roles(source, named, time, ignored)
        if value is None and found.value is None and not found.location:
            refuse("a wide table", sensor=sensor, complete=complete)
            return _wide(source, found, separator, ignored)
        refuse("a long table" if found.value else "rows for each place", separator=separator)
        if found.value is None:
            refuse("a table with a column for each sensor", complete=complete, sensor=sensor)
            return _wide(source, found, None, ignored)
        return _long(source, found, complete)


def _given(text: dict[str, Any]) -> Given:
    unknown = [name for name in text if name not in Given._fields]
    if unknown:
        raise SettingError(f"read_gapped has no option {unknown[0]!r}.")
    missing = text.get("missing") or ()
    several = (missing,) if isinstance(missing, str | float | int) else tuple(missing)
    return Given(**text | {"missing": several})


def kind_of(path: Path) -> str:
    """Return whether a file is text, Parquet or NetCDF, by its name."""
    suffix = reader.suffix_of(path)
    if suffix not in KINDS or (reader.is_packed(path) and KINDS[suffix] != "text"):
        hint = {
            ".xlsx": " Save the sheet as CSV.", ".xls": " Save the sheet as CSV.",
            ".zst": " Unpack it first, with zstd -d.", ".zip": " Unpack it first.",
        }.get(path.suffix.lower(), "")  # fmt: skip
        raise DataError(
            f"The name of a file with gaps must end in {', '.join(KINDS)}, or for packed text in "
            f".csv.gz, .csv.bz2 or .csv.xz; got {path}.{hint}"
        )
    return KINDS[suffix]


def beside(path: Path, word: str) -> Path:
    """Return a path with a word before its suffix."""
    bare = Path(reader.bare_name(path))
    return path.with_name(f"{bare.stem}.{word}{bare.suffix}{path.name[len(bare.name) :]}")


def refuse(layout: str, **options: Any) -> None:
    """Raise for the first option that is given and would do nothing."""
    for name, given in options.items():
        if given:
            raise SettingError(f"{name} does nothing for {layout}; got {given!r}, leave it out.")


def _roles(source: Source, named: Found, time: str | None, ignored: Sequence[str]) -> Found:
    """Return the columns of every role."""
    roles.checked(named.location, source.names, "location")
    roles.checked(named.sensor, source.names, "sensor")
    if named.value is not None:
        roles.checked([named.value], source.names, "value")
    given = () if named.value is None else (named.value,)
    taken = {*named.ids, *given, *ignored}
    times = roles.find_time(source, time, taken)
    value = roles.find_value(source, named.value, {*taken, *times})
    if value is not None and not times:
        raise DataError(
            f"Which of the columns {listed(source.names)} is the time? Name it with time=."
        )
    codes: Codes = np.arange(source.n_rows, dtype=np.int32)
    if times:
        codes = time_codes(source.times(times))
    return roles.find_ids(source, Found(times, named.location, named.sensor, value), codes, value)


def _long(source: Source, found: Found, complete: bool) -> Gapped:
    value, time = str(found.value), found.time[0]
    columns: dict[str, Any] = {}
    options: dict[str, Any] = {"value": value, "time": time}
    for role, names in (("location", found.location), ("sensor", found.sensor)):
        if names:
            options[role] = " ".join(names)
            columns[options[role]] = source.labels(names)
    columns[time] = source.times(found.time)
    columns[value] = source.numbers(value)
    table, more = reader.require_pyarrow(PURPOSE).table(columns), {}
    if complete:
        coded = [c for name in found.ids if (c := source.codes(name)) is not None]
        like, at = lacking(coded, time_codes(columns[time]))
        more = dict.fromkeys(found.ids, like) | dict.fromkeys(found.time, at)
        table = _extended(table, value, time, like, at)
    holes = holes_of(table.column(value))
    _warn_of_codes(source, {value: table.column(value)})

    def numbers(of: Any) -> Any:
        return of.column(value) if isinstance(source, ParquetSource) else _floats(of, value)

    def write(path: Path, filled: Any, std: Any, **ends: Any) -> list[Path]:
        added = {f"{value}_std": numbers(std), f"{value}_imputed": holes.astype(np.int8)}
        added |= {f"{value}_{name}": numbers(end) for name, end in ends.items()}
        new = {value: (numbers(filled), holes)}
        source.write(path, new, added, more if complete else {})
        return [path]

    used = {value, *found.time, *found.ids}
    return Gapped(table, options, write, source.names, _left(source, used))


def _extended(table: Any, value: str, time: str, like: Ints, at: Ints) -> Any:
    """Add rows with the ids of some rows and the times of others, and no values in them."""
    arrow = reader.require_pyarrow(PURPOSE)
    new = {
        name: arrow.nulls(len(at), table.column(name).type)
        if name == value
        else table.column(name).take(arrow.array(at if name == time else like))
        for name in table.column_names
    }
    return arrow.concat_tables([table, arrow.table(new, schema=table.schema)])


def _wide(source: Source, found: Found, separator: str | None, ignored: Sequence[str]) -> Gapped:
    """Read a column for each series; or for each sensor, where a column says where a row is."""
    series = _series(source, found, ignored, keep_empty=separator is not None)
    options: dict[str, Any] = {"time": found.time[0] if found.time else None}
    columns: dict[str, Any] = {}
    if found.location:
        options["location"] = " ".join(found.location)
        columns[options["location"]] = source.labels(found.location)
    if found.time:
        columns[found.time[0]] = source.times(found.time)
    columns |= {name: source.numbers(name) for name in series}
    _warn_of_codes(source, {name: columns[name] for name in series})
    if separator is not None:
        for name in series:
            if name.count(separator) != 1:
                raise DataError(
                    f"Columns must be named LOCATION{separator}SENSOR; got {name!r}: rename it, or "
                    "leave out the separator."
                )
        options["location"] = lambda name: name.split(separator)[0]
        options["sensor"] = lambda name: name.split(separator)[1]
    table = reader.require_pyarrow(PURPOSE).table(columns)
    holes = {name: holes_of(table.column(name)) for name in series}

    def write(path: Path, filled: Any, std: Any, **ends: Any) -> list[Path]:
        paths = [path, *(beside(path, name) for name in ("std", *ends))]
        every = np.ones(source.n_rows, dtype=bool)
        of_all = [False, True, *(False for _ in ends)]
        for out, numbers, all_of in zip(paths, (filled, std, *ends.values()), of_all, strict=True):
            new = {
                name: (
                    numbers.column(name)
                    if isinstance(source, ParquetSource)
                    else _floats(numbers, name),
                    every if all_of else holes[name],
                )
                for name in series
            }
            source.write(out, new, {}, {})
        return paths

    used = {*series, *found.time, *found.location}
    return Gapped(table, options, write, source.names, _left(source, used))


def _series(source: Source, found: Found, ignored: Sequence[str], *, keep_empty: bool) -> list[str]:
    """Return the columns of readings."""
    rest = [n for n in source.names if n not in {*found.time, *found.location, *ignored}]
    series = [
        name for name in rest if source.is_number(name) or (keep_empty and source.is_empty(name))
    ]
    if isinstance(source, TextSource):
        ids = [codes for n in found.location if (codes := source.codes(n)) is not None]
        first = source.names[0] if found.time else None  # where rows are counted, beside times
        series = [n for n in series if not _is_about(n, source.numbers(n), ids, n == first)]
        clocks = [n for n in series if found.time and roles.may_be_time(n) and source.is_epoch(n)]
        series = [n for n in series if n not in clocks]
    if not series:
        raise DataError(
            f"No column holds readings: the columns are {listed(source.names)}, and numbers are in "
            f"{'none' if not rest else 'none but the time'} of them."
        )
    return series


def _is_about(name: str, numbers: Floats, location: list[Codes], may_count: bool) -> bool:
    """Tell whether a column of numbers tells something of rows or places, and holds no readings."""
    if roles.is_beside(name, numbers, may_count=may_count):
        return True
    if not location or np.isnan(numbers).any():
        return False
    # Where many rows are of one place, what never changes there is no reading of it.
    _, first, place = np.unique(location[0], return_index=True, return_inverse=True)
    return len(first) * 2 < len(numbers) and bool((numbers == numbers[first][place]).all())


def _left(source: Source, used: set[str]) -> list[str]:
    return [name for name in source.names if name not in used]


def _warn_of_codes(source: Source, readings: dict[str, Any]) -> None:
    """Warn of numbers that look like those which loggers write where there is no reading."""
    if not isinstance(source, TextSource):
        return
    for name, column in readings.items():
        numbers = np.asarray(column, dtype=np.float64)
        code = unlikely(numbers)
        if code is not None:
            many = int((numbers == code).sum())
            warn(
                f"Column {name!r} holds {code:g} {many:,} times, far from all other readings. If "
                f"it stands for a missing reading, say missing={code:g}."
            )
            return


def _floats(table: Any, name: str) -> Floats:
    return np.asarray(table.column(name).to_numpy(), dtype=np.float64)


def lacking(modes: list[Codes], time: Codes) -> tuple[Ints, Ints]:
    """Find cells that series lack between first and last: a row of the series and of the time."""
    labels = np.column_stack([*modes, np.zeros(len(time), dtype=np.int64)])
    _, of_series, which = np.unique(labels, axis=0, return_index=True, return_inverse=True)
    times, of_time = np.unique(time, return_index=True)
    n, which = len(times), which.ravel()
    first, last = np.full(len(of_series), n), np.zeros(len(of_series), dtype=np.int64)
    np.minimum.at(first, which, time)
    np.maximum.at(last, which, time)
    spans = [s * n + np.arange(a, b + 1) for s, (a, b) in enumerate(zip(first, last, strict=True))]
    series, when = np.divmod(np.setdiff1d(np.concatenate(spans), which * n + time), n)
    return of_series[series], of_time[when]


def holes_of(column: Any) -> Mask:
    """Tell which entries of a column of pyarrow are null or NaN."""
    return np.asarray(column.is_null(nan_is_null=True).to_numpy(), dtype=bool)
