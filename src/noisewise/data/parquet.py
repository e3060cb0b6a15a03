"""Tables from Parquet files, by pyarrow (extra: parquet), checked before memory is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noisewise.data.reader import check_columns, check_unpacked, most_unpacked, require_pyarrow
from noisewise.errors import DataError, listed, shortened

_ENTRY = 8  # bytes that an entry takes in memory, however small it is in the file


def read_parquet(
    path: Path, choose: Callable[[list[str]], list[str]], purpose: str = "Reading Parquet"
) -> Any:
    """Read the columns that ``choose`` takes of all names as a table of pyarrow, fully checked."""
    arrow = require_pyarrow(purpose)
    # Arrow checks what it reads, but says so by builtin exceptions, too.
    faults = (arrow.ArrowException, OSError, ValueError, OverflowError, LookupError, TypeError)
    try:
        with arrow.parquet.ParquetFile(path) as file:
            schema, size = file.schema_arrow, file.metadata
            names = list(schema.names)
    except faults as error:
        raise _damaged(error) from error
    check_columns(len(names))
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise DataError(f"No two columns may be called alike; got {listed(repeated)} twice.")
    chosen, most = choose(names), most_unpacked(path)
    try:
        check_unpacked(_claimed(size, chosen), most)
        kinds = arrow.string(), arrow.binary()
        text = [name for name in chosen if schema.field(name).type in kinds]
        # Text that repeats stays short in a dictionary; how long it would be is known beforehand.
        with arrow.parquet.ParquetFile(path, read_dictionary=text) as file:
            table = file.read(columns=chosen).select(chosen)
        table.validate(full=True)
        check_unpacked(_decoded(arrow, table), most)
        plain = arrow.schema([schema.field(name) for name in chosen], schema.metadata)
        table = table.cast(plain)
        for column in table.columns:
            if arrow.types.is_temporal(column.type):
                column.unique().to_pylist()  # raises for dates that are none
    except DataError:
        raise
    except faults as error:
        raise _damaged(error) from error
    return table


def _claimed(size: Any, chosen: list[str]) -> int:
    """Return how many bytes some columns take by the number of rows that the file claims.

    What it says of single columns is not asked for: pyarrow ends the process if that is damaged.
    """
    groups = [int(size.row_group(g).num_rows) for g in range(size.num_row_groups)]
    return _ENTRY * len(chosen) * max(sum(map(abs, groups)), abs(int(size.num_rows)))


def _decoded(arrow: Any, table: Any) -> int:
    """Return how many bytes a table takes with its dictionaries written out."""
    total = table.nbytes
    for column in table.columns:
        if arrow.types.is_dictionary(column.type):
            for part in column.chunks:
                lengths = arrow.compute.binary_length(part.dictionary).cast(arrow.int64())
                total += arrow.compute.sum(lengths.take(part.indices)).as_py() or 0
    return int(total)


def _damaged(error: Exception) -> DataError:
    return DataError(f"The Parquet file is damaged; get a new copy. {shortened(error)}")
