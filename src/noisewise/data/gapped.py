"""Files with gaps: read whole, and written back in the same layout with the gaps filled.

Text and Parquet hold tables, which are tables of pyarrow (extra: parquet); all columns of text are
text, letter for letter. NetCDF (extra: xarray) is read by the HDF5 library, which a file that was
made to do so can crash or keep busy for ever: take such files only from those you trust.
"""

from __future__ import annotations

import csv
import gzip
import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.data import reader
from noisewise.data.binary import read_parquet
from noisewise.data.ids import Codes, Ids
from noisewise.data.tables_with_holes import Mask
from noisewise.data.timestamps import Ints, text_times, time_numbers
from noisewise.errors import DataError, MissingExtraError, SettingError, listed, shortened
from noisewise.storage import write_bytes

DELIMITERS = (",", ";", "\t")
ABSENT = ("", "na", "n/a", "nan", "null", "none")  # how text says that there is no reading
KINDS = {
    ".csv": "text", ".tsv": "text", ".txt": "text", ".parquet": "parquet",
    ".nc": "netcdf", ".nc4": "netcdf", ".netcdf": "netcdf",
}  # fmt: skip
USUAL = {
    "time": ("time", "timestamp", "datetime", "date", "day", "hour", "epoch", "step"),
    "location": ("location", "site", "station", "place", "room", "mote", "moteid", "node"),
    "sensor": ("sensor", "species", "variable", "quantity", "parameter", "kind"),
    "value": ("value", "reading", "measurement"),
}

_HDF5 = b"\x89HDF\r\n\x1a\n"
_PURPOSE = "Filling gaps in tables"


@dataclass(frozen=True, eq=False)
class Gapped:
    """A file with gaps, read."""

    table: Any  # of pyarrow or xarray: what a ``DeviationImputer`` takes
    options: dict[str, Any]  # what it must be told: time, location, sensor and value
    write: Callable[[Path, Any, Any], list[Path]]  # to a path, what was filled and stds
    names: list[str]  # all columns or variables of the file


def read_gapped(
    path: str | Path,
    *,
    time: str | None = None,
    location: str | None = None,
    sensor: str | None = None,
    value: str | None = None,
    separator: str | None = None,
    complete: bool = False,
) -> Gapped:
    """Read a file with gaps.

    Columns that are not named are found by their usual names. A table with a column of values is
    long, any other is wide; ``separator`` stands between location and sensor in the names of its
    columns. Of NetCDF, ``time`` and ``sensor`` are dimensions, and ``value`` is the variable to
    fill: all over time, if it is not given. ``complete`` adds the rows that a long table lacks:
    every time of the table between the first and the last row of a series.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    named = {"value": value, "time": time, "location": location, "sensor": sensor}
    kind = kind_of(path)
    if kind == "netcdf":
        refuse(kind, location=location, separator=separator, complete=complete)
        return _netcdf(path, time, sensor, value)
    with reader.named_errors(path):
        is_text = kind == "text"
        rows = Rows.read_text(path) if is_text else Rows(read_parquet(path, list, _PURPOSE), None)
        roles = find_roles(rows.names, named)
        if roles["value"] is None:
            refuse("a wide table", location=location, sensor=sensor, complete=complete)
            return _wide(rows, roles["time"], separator)
        refuse("a long table", separator=separator)
        return _long(rows, roles, complete)


def kind_of(path: Path) -> str:
    """Return whether a file is text, Parquet or NetCDF, by its name."""
    suffix = reader.suffix_of(path)
    if suffix not in KINDS or (path.suffix == ".gz" and KINDS[suffix] != "text"):
        raise DataError(
            f"The name of a file with gaps must end in {', '.join(KINDS)} or .csv.gz; got {path}."
        )
    return KINDS[suffix]


def beside(path: Path, word: str) -> Path:
    """Return a path with a word before its suffix."""
    bare = Path(path.name.removesuffix(".gz"))
    return path.with_name(f"{bare.stem}.{word}{bare.suffix}{path.name[len(bare.name) :]}")


def refuse(layout: str, **options: Any) -> None:
    """Raise for the first option that is given and would do nothing."""
    for name, given in options.items():
        if given:
            raise SettingError(f"{name} does nothing for {layout}; got {given!r}, leave it out.")


def find_roles(names: list[str], named: dict[str, str | None]) -> dict[str, str | None]:
    """Return the column of each role: as named, else the one with a usual name, else None."""
    taken = {name for name in named.values() if name is not None}
    roles = {}
    for role, name in named.items():
        usual = [n for n in names if n.strip().lower() in USUAL[role] and n not in taken]
        if name is not None and names.count(name) != 1:
            raise DataError(f"{role} must be one of the columns {listed(names)}; got {name!r}.")
        if name is None and len(usual) > 1:
            raise DataError(f"Which of the columns {listed(usual)} is the {role}? Name it.")
        roles[role] = name or next(iter(usual), None)
        if roles["value"] is None and role == "time":
            break  # as only a long table has columns for location and sensor
    return dict.fromkeys(named) | roles


def _long(rows: Rows, roles: dict[str, str | None], complete: bool) -> Gapped:
    options: dict[str, Any] = {role: name for role, name in roles.items() if name is not None}
    if "time" not in options:
        raise DataError(
            f"Which of the columns {listed(rows.names)} is the time? Name it with time."
        )
    value, time = options["value"], options["time"]
    ids = [options[role] for role in ("location", "sensor") if role in options]
    if complete:
        coded = [Ids.encode(rows.entries(name), name)[1] for name in ids]
        when, _ = time_numbers(rows.frame([], [time], []).column(time).to_numpy(), "time")
        rows = rows.extended(ids, time, *lacking(coded, Ids.encode(when, time)[1]))
    table = rows.frame(ids, [time], [value])
    holes = holes_of(table.column(value))

    def write(path: Path, filled: Any, std: Any) -> list[Path]:
        columns = {name: rows.table.column(name) for name in rows.names}
        columns[value] = rows.filled(value, filled.column(value), holes)
        columns[f"{value}_std"] = rows.added(std.column(value))
        columns[f"{value}_imputed"] = holes.astype(np.int8)
        rows.write(path, columns)
        return [path]

    return Gapped(table, options, write, rows.names)


def _wide(rows: Rows, time: str | None, separator: str | None) -> Gapped:
    series = [name for name in rows.names if name != time]
    table = rows.frame([], [] if time is None else [time], series)
    options: dict[str, Any] = {"time": time}
    if separator is not None:
        for name in series:
            if name.count(separator) != 1:
                raise DataError(
                    f"Columns must be named LOCATION{separator}SENSOR; got {name!r}: rename it, or "
                    "leave out the separator."
                )
        options["location"] = lambda name: name.split(separator)[0]
        options["sensor"] = lambda name: name.split(separator)[1]
    holes = {name: holes_of(table.column(name)) for name in series}

    def write(path: Path, filled: Any, std: Any) -> list[Path]:
        kept = {} if time is None else {time: rows.table.column(time)}
        both = kept | {n: rows.filled(n, filled.column(n), holes[n]) for n in series}
        stds = kept | {n: rows.added(std.column(n)) for n in series}
        paths = [path, beside(path, "std")]
        for out, columns in zip(paths, (both, stds), strict=True):
            rows.write(out, {name: columns[name] for name in rows.names})
        return paths

    return Gapped(table, options, write, rows.names)


def _netcdf(path: Path, time: str | None, sensor: str | None, value: str | None) -> Gapped:
    """Read a file: the variable ``value``, or all over time, which are the sensors then.

    Written back, each variable has two
    more beside it: the std, 0 at readings, and ``NAME_imputed``, 1 where a gap was filled.
    """
    try:
        import h5py
        import xarray
    except ImportError:
        raise MissingExtraError("Reading NetCDF", "xarray") from None
    most = reader.most_unpacked(path)
    try:
        # The content is opened and not the path, under which a broken file could stay open.
        with path.open("rb") as content:
            if content.read(len(_HDF5)) == _HDF5:
                with h5py.File(content, "r") as whole:
                    _look_through(whole)
            content.seek(0)
            with xarray.open_dataset(content) as file:
                reader.check_unpacked(file.nbytes, most)
                data = file.load()
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # of broken files, xarray and what it reads with raise anything
        raise DataError(f"{path} cannot be read as NetCDF: {shortened(error)}") from error
    time = time or "time"
    over_time = [str(name) for name, part in data.data_vars.items() if time in part.dims]
    names = over_time if value is None else [value]
    if not names or names[0] not in over_time:
        raise DataError(
            f"{path} needs variables with the dimension {time!r}; it has {listed(over_time)} of "
            f"them, and the dimensions {listed(list(data.dims))}."
        )
    options: dict[str, Any] = {"time": time} | ({} if sensor is None else {"sensor": sensor})

    def write(out: Path, filled: Any, std: Any) -> list[Path]:
        added = {}
        for name in names:
            whole, spread = (filled, std) if value is not None else (filled[name], std[name])
            added[name] = whole
            added[f"{name}_std"] = spread.drop_attrs()
            added[f"{name}_imputed"] = (data[name].isnull() & whole.notnull()).astype("int8")
        with tempfile.TemporaryDirectory() as folder:
            whole_file = Path(folder, out.name)
            try:
                data.assign(added).to_netcdf(whole_file)
            except (ValueError, TypeError, RuntimeError) as error:  # of names and attributes
                raise DataError(f"{out} cannot be written as NetCDF: {shortened(error)}") from error
            write_bytes(out, whole_file.read_bytes())
        return [out]

    return Gapped(data[value] if value is not None else data, options, write, over_time)


def _look_through(whole: Any) -> None:
    """Look at every part of an HDF5 file: h5netcdf does not clean up after what it cannot open."""

    def look(name: str, part: Any) -> None:
        dict(part.attrs)

    look("", whole)
    whole.visititems(look)


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


@dataclass(frozen=True, eq=False)
class Rows:
    """A table that can be filled and written back."""

    table: Any  # of pyarrow, as the file has it
    delimiter: str | None  # between fields of text; None for Parquet

    @classmethod
    def read_text(cls, path: Path) -> Rows:
        """Read a file in UTF-8 whose first line names the columns."""
        arrow = reader.require_pyarrow(_PURPOSE)
        text = reader.TextTable.open(path, DELIMITERS)
        names = text.fields
        if len(names) < 2 or len(set(names)) < len(names):
            raise DataError(
                f"line 1 must name the columns, two or more and no two alike; got {listed(names)}."
            )
        columns: dict[str, list[str]] = {name: [] for name in names}
        for block in text.blocks(names, below=True):
            for column, part in zip(columns.values(), block.columns, strict=True):
                column.extend(part)
        if not columns[names[0]]:
            raise DataError("There are no rows below the names of the columns.")
        return cls(arrow.table(columns), text.delimiter)

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.table.column_names)

    def entries(self, name: str) -> list[Any]:
        """Return a column of ids."""
        column = self.table.column(name).to_pylist()
        return column if self.delimiter is None else [entry.strip() for entry in column]

    def frame(self, ids: Sequence[str], times: Sequence[str], readings: Sequence[str]) -> Any:
        """Return some columns: of text, times as numbers or dates and readings as numbers."""
        if self.delimiter is None:
            return self.table.select([*ids, *times, *readings])
        columns: dict[str, Any] = {name: self.entries(name) for name in ids}
        columns |= {name: text_times(self.entries(name)) for name in times}
        columns |= {name: _numbers(self.entries(name), name) for name in readings}
        return reader.require_pyarrow(_PURPOSE).table(columns)

    def filled(self, name: str, numbers: Any, holes: Mask) -> Any:
        """Return a column of readings with numbers in its holes."""
        if self.delimiter is None:
            return numbers
        column = self.table.column(name).to_pylist()
        new = numbers.to_numpy()
        for row in np.flatnonzero(holes & ~np.isnan(new)).tolist():
            column[row] = _text(new[row])
        return column

    def added(self, numbers: Any) -> Any:
        """Return a new column of numbers."""
        if self.delimiter is None:
            return numbers
        return [_text(number) for number in numbers.to_numpy().tolist()]

    def extended(self, ids: Sequence[str], time: str, like: Ints, at: Ints) -> Rows:
        """Add rows with the ids of some rows and the times of others, and nothing else in them."""
        arrow = reader.require_pyarrow(_PURPOSE)
        rows = dict.fromkeys(ids, like) | {time: at}
        absent = None if self.delimiter is None else ""
        new = {
            field.name: self.table.column(field.name).take(arrow.array(rows[field.name]))
            if field.name in rows
            else arrow.array([absent] * len(at), field.type)
            for field in self.table.schema
        }
        both = [self.table, arrow.table(new)]
        return Rows(arrow.concat_tables(both, promote_options="permissive"), self.delimiter)

    def write(self, path: Path, columns: dict[str, Any]) -> None:
        """Write columns, in the format that the rows came in."""
        table = reader.require_pyarrow(_PURPOSE).table(columns)
        if self.delimiter is None:
            write_parquet(path, table.replace_schema_metadata(self.table.schema.metadata))
        else:
            write_text(path, table.to_pydict(), self.delimiter)


def write_parquet(path: Path, table: Any) -> None:
    """Write a table of pyarrow, wholly or not at all."""
    content = io.BytesIO()
    reader.require_pyarrow("Writing Parquet").parquet.write_table(table, content)
    write_bytes(path, content.getvalue())


def write_text(path: Path, table: Mapping[str, Sequence[Any]], delimiter: str) -> None:
    """Write columns as CSV or TSV, packed if the path ends in ``.gz``, wholly or not at all."""
    content = as_text(table, delimiter).encode()
    write_bytes(path, gzip.compress(content, mtime=0) if path.suffix.lower() == ".gz" else content)


def as_text(table: Mapping[str, Sequence[Any]], delimiter: str = ",") -> str:
    """Return columns as the text of a CSV or TSV file."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return text.getvalue()


def holes_of(column: Any) -> Mask:
    """Tell which entries of a column of pyarrow are null or NaN."""
    return np.asarray(column.is_null(nan_is_null=True).to_numpy(), dtype=bool)


def _numbers(entries: list[str], name: str) -> NDArray[np.float64]:
    """Return readings as numbers, NaN where there is none."""
    numbers = np.full(len(entries), np.nan)
    for row, entry in enumerate(entries):
        try:
            numbers[row] = np.nan if entry.lower() in ABSENT else reader.to_float(entry)
        except ValueError:
            raise DataError(
                f"row {row + 1} of column {name!r} must be a number, or empty for a gap; got "
                f"{entry[:60]!r}: mend it, or remove the column if it holds no readings. If the "
                "table has a row for each reading, name the column of values."
            ) from None
    return numbers


def _text(number: float) -> str:
    return "" if np.isnan(number) else f"{number:.7g}"
