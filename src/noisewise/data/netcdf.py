"""NetCDF files with gaps (extra: xarray), and back.

They are read by the HDF5 library, which a file that was made to do so can crash or keep busy for
ever: take such files only from those you trust.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noisewise.data import reader
from noisewise.errors import DataError, MissingExtraError, listed, shortened
from noisewise.storage import write_bytes

_HDF5 = b"\x89HDF\r\n\x1a\n"


def read_netcdf(
    path: Path, time: str | None, sensor: str | None, value: str | None
) -> tuple[Any, dict[str, Any], Callable[[Path, Any, Any], list[Path]], list[str]]:
    """Read a file: the variable ``value``, or all over time, which are the sensors then.

    Written back, each variable has two more beside it: the std, 0 at readings, and
    ``NAME_imputed``, 1 where a gap was filled. Return what ``Gapped`` has.
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

    def write(out: Path, filled: Any, std: Any, **ends: Any) -> list[Path]:
        added = {}
        for name in names:
            whole, spread = (filled, std) if value is not None else (filled[name], std[name])
            added[name] = whole
            added[f"{name}_std"] = spread.drop_attrs()
            added[f"{name}_imputed"] = (data[name].isnull() & whole.notnull()).astype("int8")
            for which, end in ends.items():
                own = end if value is not None else end[name]
                added[f"{name}_{which}"] = own.drop_attrs()
        with tempfile.TemporaryDirectory() as folder:
            whole_file = Path(folder, out.name)
            try:
                data.assign(added).to_netcdf(whole_file)
            except (ValueError, TypeError, RuntimeError) as error:  # of names and attributes
                raise DataError(f"{out} cannot be written as NetCDF: {shortened(error)}") from error
            write_bytes(out, whole_file.read_bytes())
        return [out]

    return data[value] if value is not None else data, options, write, over_time


def _look_through(whole: Any) -> None:
    """Look at every part of an HDF5 file: h5netcdf does not clean up after what it cannot open."""

    def look(name: str, part: Any) -> None:
        dict(part.attrs)

    look("", whole)
    whole.visititems(look)
