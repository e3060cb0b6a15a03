"""NetCDF with gaps: arrays over time and place, read and written by xarray (extra: xarray)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noisewise.errors import DataError, MissingExtraError
from noisewise.storage import write_bytes


def read_netcdf(
    path: Path, time: str | None, sensor: str | None, value: str | None
) -> tuple[Any, dict[str, Any], Callable[[Path, Any, Any], list[Path]]]:
    """Read a file: the variable ``value``, or all over time, which are types of sensors then.

    What was filled stands in the place of what was read. Beside each variable stand two more: the
    std, 0 at readings, as ``NAME_std``; and ``NAME_imputed``, 1 where a gap was filled.

    Returns
    -------
    table, options, write
        As ``Gapped`` has them.
    """
    try:
        import xarray
    except ImportError:
        raise MissingExtraError("Reading NetCDF", "xarray") from None
    try:
        with xarray.open_dataset(path) as file:
            data = file.load()
    except (ValueError, OSError, LookupError, TypeError) as error:
        raise DataError(f"{path} cannot be read as NetCDF: {error}") from None
    time = time or "time"
    over_time = [str(name) for name, part in data.data_vars.items() if time in part.dims]
    names = over_time if value is None else [value]
    if not names or names[0] not in over_time:
        raise DataError(
            f"{path} needs variables with the dimension {time!r}; it has {', '.join(over_time)} of "
            f"them, and the dimensions {', '.join(map(str, data.dims))}."
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
            data.assign(added).to_netcdf(whole_file)
            write_bytes(out, whole_file.read_bytes())
        return [out]

    return data[value] if value is not None else data, options, write
