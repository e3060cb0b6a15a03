"""update: new ratings taken into a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from noisewise.cli import options
from noisewise.cli.features import FeatureOptions, knowing
from noisewise.cli.options import Columns, check_file, option, tell
from noisewise.cli.ratings import MODEL_FILE
from noisewise.data import Ids, Observations
from noisewise.data.tables import default_names, find_ids
from noisewise.errors import SettingError, listed
from noisewise.models import load


def update(
    model: Path = MODEL_FILE,
    data: Path = typer.Argument(..., help="New ratings: CSV, TSV, Parquet, npz, MovieLens."),
    out: Path | None = option(
        "Where to write the updated model.", check=check_file, show_default="in its place"
    ),
    *,
    columns: Columns,
    features: FeatureOptions,
    report: Path | None = options.JSON,
) -> None:
    """Take new ratings into a model, of known users and items and of new ones, without a restart.

    A cell that the model has seen already has its new rating from now on. It warns when ratings are
    not what the model expected, and when so many are new that it should be fitted again.

    Example: `noisewise update movies.nw today.csv`

    Example: `noisewise update movies.nw today.csv --item-features new-films.csv`
    """
    fitted = knowing(load(model), features)
    if not hasattr(fitted, "partial_fit"):
        raise SettingError(f"{model} holds a {type(fitted).__name__}, which has to be fitted anew.")
    new = columns.read(data)
    if new.n_modes != len(fitted.ids_):
        raise SettingError(
            f"{model} has {len(fitted.ids_)} id columns, but {data} has {new.n_modes}."
        )
    order = range(new.n_modes) if columns.id else _order(new.names, fitted.ids_, data)
    entries = [_entries(new, k, known) for k, known in zip(order, fitted.ids_, strict=True)]
    rows = list(zip(*entries, strict=True))
    before = [len(ids) for ids in fitted.ids_]
    fitted.partial_fit(rows, new.values, sample_weight=new.weight)
    place = model if out is None else out
    fitted.save(place)
    added = {ids.name: len(ids) - had for ids, had in zip(fitted.ids_, before, strict=True)}
    told = ", ".join(f"{many:,} new in {name}" for name, many in added.items())
    summary = {
        "model": str(place), "observations": len(new), "new_ids": added,
        "seconds": fitted.seconds_,
    }  # fmt: skip
    if drift := getattr(fitted, "drift_", None):
        summary["drift"] = drift._asdict()
    ratings = "1 rating" if len(new) == 1 else f"{len(new):,} ratings"
    text = f"{ratings}, {told}, {fitted.seconds_:.1f} s\nThe model is in {place}."
    tell(text, summary, report)


def _order(names: Sequence[str], known: Sequence[Ids], data: Path) -> Sequence[int]:
    """Return which column of a file has the ids of each mode: by name, where it has names."""
    wanted = [ids.name for ids in known]
    order = find_ids(list(names), wanted)
    if order is None and list(names) != default_names(len(names)):
        raise SettingError(
            f"{data} has the id columns {listed(names)}, but the model knows {listed(wanted)}: say "
            "which are which with --id, one for each, in the order of the model."
        )
    return range(len(wanted)) if order is None else order


def _entries(new: Observations, mode: int, known: Ids) -> list[Any]:
    """Return the ids of rows, as text where those of the model are, though all are numbers."""
    ids = new.ids[mode]
    labels: list[Any] = ids.labels.tolist()
    text = known.labels.dtype.kind == "O" and all(type(one) is str for one in known.labels)
    if text and ids.labels.dtype.kind == "i":
        labels = list(map(str, labels))
    return [labels[code] for code in new.codes[mode].tolist()]
