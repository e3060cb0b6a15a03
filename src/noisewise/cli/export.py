"""export: what a model has learned, for programs that know nothing of noisewise."""

from __future__ import annotations

from pathlib import Path

import typer

from noisewise.cli.options import check_file, option, say
from noisewise.cli.ratings import MODEL_FILE
from noisewise.data.reader import suffix_of
from noisewise.errors import SettingError
from noisewise.export import to_onnx, write_vectors
from noisewise.models import load


def export(
    model: Path = MODEL_FILE,
    out: Path = typer.Argument(..., help="File to write: .onnx, .npz or .parquet."),
    mode: str | None = option(
        "One side alone, by number or name: 0 users, 1 items. Vectors are of one side, users by "
        "default; without it, ONNX takes both and gives mean and std."
    ),
) -> None:
    """Write a model to ONNX, or the vectors of its users or items to npz or Parquet.

    Inner products of the vectors of both sides are means and variances. It is for the model dmf.

    Example: `noisewise export movies.nw movies.onnx`

    Example: `noisewise export movies.nw items.parquet --mode item`
    """
    check_file(out)
    fitted, suffix = load(model), suffix_of(out)
    side: int | str | None = int(mode) if mode is not None and mode.isdigit() else mode
    if suffix == ".onnx":
        to_onnx(fitted, out, mode=side)
        say(f"Wrote {out}.")
    elif suffix in (".npz", ".parquet"):
        many = write_vectors(fitted, out, mode=0 if side is None else side)
        say(f"Wrote the vectors of {many:,} ids to {out}.")
    else:
        raise SettingError(f"A model is exported to .onnx, .npz or .parquet; got {out}.")
