"""update: new ratings taken into a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from noisewise.cli import options
from noisewise.cli.features import FeatureOptions, knowing
from noisewise.cli.options import Columns, check_file, option, tell
from noisewise.cli.ratings import MODEL_FILE
from noisewise.data import Ids
from noisewise.errors import SettingError
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
    labels = [_labels(own, known) for own, known in zip(new.ids, fitted.ids_, strict=True)]
    rows = [
        tuple(labels[m][code] for m, code in enumerate(cell))
        for cell in zip(*(codes.tolist() for codes in new.codes), strict=True)
    ]
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


def _labels(new: Ids, known: Ids) -> list[Any]:
    """Return new ids, as text where those of the model are, though the new ones are all numbers."""
    labels: list[Any] = new.labels.tolist()
    text = known.labels.dtype.kind == "O" and all(type(one) is str for one in known.labels)
    return list(map(str, labels)) if text and new.labels.dtype.kind == "i" else labels
