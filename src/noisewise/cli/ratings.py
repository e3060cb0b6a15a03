"""Ratings: the demo, models, predictions, recommendations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise import registry
from noisewise.cli.options import (
    RATING_MODELS,
    Columns,
    Data,
    Json,
    Settings,
    Tuned,
    choice,
    chosen,
    folder_to_write,
    table_to_write,
    time_of,
    to_write,
)
from noisewise.cli.output import Stopped, as_text, records, say, tell, write_table
from noisewise.data.cells import read_cells, typed
from noisewise.errors import FitInterrupted, SettingError, printable
from noisewise.evaluation.demo import run_demo
from noisewise.models import load
from noisewise.models.rows import Rows

ModelFile = Annotated[Path, typer.Argument(help="A model that `fit` wrote.", show_default=False)]
ModelName = Annotated[
    str | None,
    choice(
        RATING_MODELS,
        "--model",
        help=f"One of {', '.join(RATING_MODELS)}.",
        show_default="bayes",
    ),
]


def demo(
    out: Annotated[Path, folder_to_write(help="Folder for the page and the picture.")] = Path(
        "demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the made-up ratings.")] = 0,
    report: Json = None,
) -> None:
    """Fit Biased MF and DMF to built-in ratings whose noise is known, and draw a page.

    Example: `noisewise demo --out demo`
    """
    result = run_demo(seed=seed, directory=out, progress=say)
    tell(result.text, result.report, report)


def fit(
    data: Data,
    out: Annotated[Path, to_write(help="The file to write the model to.")],
    model: ModelName = None,
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody changes it
    tuned: Tuned = None,
    *,
    columns: Columns,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bits.")] = 0,
    checkpoint: Annotated[
        Path | None, to_write(help="Keep training in this file; go on from it if it is there.")
    ] = None,
    report: Json = None,
) -> None:
    """Learn a model from a table of ratings: the Bayesian one, unless another is named.

    Ctrl-C stops after the epoch, writes the best model so far, says what it is worth, and ends with
    130; pressed twice, it stops at once and writes nothing.

    Example: `noisewise fit ratings.csv --out movies.nw --set rank=32`

    Example: `noisewise fit ratings.tsv --id who --id film --value stars --model dmf --out fast.nw`
    """
    named, own = chosen(settings, tuned, model, "ratings")
    name, own = named or "bayes", {"random_state": seed, **own}
    observations = columns.read(data, time_of(own))
    fitted = registry.build("ratings", name, own)
    kept = {} if checkpoint is None else {"checkpoint": checkpoint}  # not every model has one
    try:
        fitted.fit(observations, **kept)
    except FitInterrupted as stop:
        fitted.save(out)
        raise Stopped(f"{stop} It is in {out}.{_goes_on(checkpoint)}") from None
    except KeyboardInterrupt:
        raise Stopped(
            f"Stopped before there was a model to keep: {out} was not written."
            f"{_goes_on(checkpoint)}"
        ) from None
    fitted.save(out)
    curve = {k: v[fitted.n_epochs_ - 1] for k, v in fitted.learning_curve_.items() if v}
    summary = {
        "model": name,
        "file": str(out),
        "observations": len(observations),
        "shape": list(observations.shape),
        "epochs": fitted.n_epochs_,
        "held_out_rmse": curve.get("validation_rmse"),
        "held_out_nll": curve.get("validation_nll"),
        "seconds": fitted.seconds_,
    }
    text = (
        f"{observations!r}\n{name}, {fitted.n_epochs_} epochs, {fitted.seconds_:.1f} s"
        f"{_held_out(summary)}\nThe model is in {out}."
    )
    tell(text, summary, report)


def predict(
    model: ModelFile,
    cells: Annotated[Path, typer.Argument(help="CSV, TSV or Parquet with the id columns.")],
    out: Annotated[
        Path | None,
        table_to_write(
            help="The table to write: .csv, .tsv (both also .gz) or .parquet; else it is printed."
        ),
    ] = None,
    coverage: Annotated[float, typer.Option(help="Share of values in the interval.")] = 0.9,
    report: Json = None,
) -> None:
    """Predict cells: mean, standard deviation, and an interval.

    Example: `noisewise predict movies.nw pairs.csv --out predicted.csv`

    Example: `noisewise predict movies.nw pairs.parquet --coverage 0.8 --out predicted.parquet`
    """
    fitted = load(model)
    columns, seconds = read_cells(cells, fitted.ids_, time_of(fitted.get_params()))
    rows = list(zip(*columns, *([] if seconds is None else [seconds.tolist()]), strict=True))
    if not rows:
        raise SettingError(f"{cells} has no cells to predict.")
    mean, std = fitted.predict(rows, return_std=True)
    low, high = fitted.predict_interval(rows, coverage=coverage)
    names = [ids.name for ids in fitted.ids_]
    table = dict(zip(names, columns, strict=True)) | {
        "mean": mean.tolist(), "std": std.tolist(), "low": low.tolist(), "high": high.tolist(),
    }  # fmt: skip
    if out is not None:
        write_table(out, table)
        tell(f"{len(rows):,} predictions are in {out}.", records(table), report)
    else:
        tell(as_text(table).rstrip("\n"), records(table), report, is_data=True)


def recommend(
    model: ModelFile,
    ids: Annotated[list[str], typer.Argument(help="Whom to recommend to, one or more.")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 10,
    risk: Annotated[
        float, typer.Option(help="Rank by mean minus risk times std: above 0 plays safe.")
    ] = 0.0,
    seen: Annotated[bool, typer.Option("--seen", help="Also recommend what was rated.")] = False,
    report: Json = None,
) -> None:
    """Recommend what a user has not rated yet.

    Example: `noisewise recommend movies.nw 17 42 -n 5 --risk 1`
    """
    fitted = low_rank(model)
    users = [typed(id, fitted.ids_[0]) for id in ids]
    lists = fitted.recommend_many(users, n, risk=risk, exclude_seen=not seen)
    parts, found = [], []
    for user, best in zip(users, lists, strict=True):
        known = fitted.ids_[0].lookup([user])[0] >= 0
        note = "" if known else "  (not seen in training: what is best on average)"
        lines = [
            f"  {k:>3}. {printable(r.id)}  {r.mean:.2f} ± {r.std:.2f}"
            for k, r in enumerate(best, 1)
        ]
        head = printable(f"{fitted.ids_[0].name} {user}")
        parts.append("\n".join([f"{head}{note}", *lines]))
        found.append({"id": user, "known": bool(known), "best": [r._asdict() for r in best]})
    tell("\n".join(parts), found, report)


def low_rank(path: Path) -> Rows:
    """Read a model that has a row of factors for every id."""
    fitted = load(path)
    if not isinstance(fitted, Rows):
        raise SettingError(f"{path} holds a {type(fitted).__name__}, which has no factors.")
    return fitted


def _goes_on(checkpoint: Path | None) -> str:
    there = checkpoint is not None and checkpoint.exists()
    return f" The same command goes on from {checkpoint}." if there else ""


def _held_out(summary: dict[str, Any]) -> str:
    if summary["held_out_rmse"] is None:
        return ""
    return f", held-out RMSE {summary['held_out_rmse']:.4f}, NLL {summary['held_out_nll']:.4f}"
