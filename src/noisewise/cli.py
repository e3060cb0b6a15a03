"""The command line: demo, fit, predict, recommend, noise, evaluate."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from noisewise.errors import MissingExtraError, NoisewiseError, SettingError

try:
    import typer
except ImportError as error:
    raise SystemExit(str(MissingExtraError("The command line", "cli"))) from error

from noisewise import __version__, datasets, storage
from noisewise.datasets.cells import read_cells, typed
from noisewise.experiments import ratings
from noisewise.experiments.demo import run_demo
from noisewise.models import load
from noisewise.models.low_rank import Rowwise
from noisewise.noise import noisy_ids, noisy_observations
from noisewise.observations import Observations

app = typer.Typer(
    help="Noise-aware matrix factorization: a prediction, and how far off it may be.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)

Data = Annotated[
    Path,
    typer.Argument(help="CSV, TSV, Parquet, npz, MovieLens file or folder.", show_default=False),
]
ModelFile = Annotated[Path, typer.Argument(help="A model that `fit` wrote.", show_default=False)]
ModelName = Annotated[str, typer.Option("--model", help=f"One of {', '.join(ratings.MODELS)}.")]
Settings = Annotated[
    list[str], typer.Option("--set", help="A setting, e.g. rank=64; may be given often.")
]
IdColumns = Annotated[
    list[str], typer.Option("--id", help="An id column; give one per mode, in order.")
]
ValueColumn = Annotated[str | None, typer.Option("--value", help="The column with the values.")]
Duplicated = Annotated[str, typer.Option(help="A cell given more than once: error, last or mean.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the report as JSON; - prints it.")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page and the picture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the made-up ratings.")] = 0,
    report: Json = None,
) -> None:
    """Fit Biased MF and DMF to built-in ratings whose noise is known, and draw a page.

    Example: `noisewise demo --out demo`
    """
    result = run_demo(seed=seed, directory=out, progress=lambda line: print(line, file=sys.stderr))
    _tell(result.text, result.report, report)


@app.command()
def fit(
    data: Data,
    out: Annotated[Path, typer.Option(help="Where to write the model.")],
    model: ModelName = "bayes",
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody changes it
    id: IdColumns = [],  # noqa: B006
    value: ValueColumn = None,
    duplicates: Duplicated = "error",
    seed: Annotated[int, typer.Option(help="The same seed gives the same bits.")] = 0,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keep training in this file; go on from it if it is there.")
    ] = None,
    report: Json = None,
) -> None:
    """Learn a model from a table of ratings: the Bayesian one, unless another is named.

    Example: `noisewise fit ratings.csv --out movies.nw --set rank=32`
    """
    chosen = {"random_state": seed, **_parsed(settings)}
    observations = _read(data, id, value, duplicates, _time_of(chosen))
    if checkpoint is not None:
        chosen["checkpoint"] = str(checkpoint)
    fitted = ratings.build(model, chosen).fit(observations)
    fitted.save(out)
    curve = {k: v[fitted.n_epochs_ - 1] for k, v in fitted.learning_curve_.items() if v}
    summary = {
        "model": model,
        "file": str(out),
        "observations": len(observations),
        "shape": list(observations.shape),
        "epochs": fitted.n_epochs_,
        "held_out_rmse": curve.get("validation_rmse"),
        "held_out_nll": curve.get("validation_nll"),
        "seconds": fitted.seconds_,
    }
    text = (
        f"{observations!r}\n{model}, {fitted.n_epochs_} epochs, {fitted.seconds_:.1f} s"
        f"{_held_out(summary)}\nThe model is in {out}."
    )
    _tell(text, summary, report)


@app.command()
def predict(
    model: ModelFile,
    cells: Annotated[Path, typer.Argument(help="CSV, TSV or Parquet with the id columns.")],
    out: Annotated[Path | None, typer.Option(help="CSV to write; without it, print.")] = None,
    coverage: Annotated[float, typer.Option(help="Share of values in the interval.")] = 0.9,
    report: Json = None,
) -> None:
    """Predict cells: mean, standard deviation, and an interval.

    Example: `noisewise predict movies.nw pairs.csv --out predicted.csv`
    """
    fitted = load(model)
    columns, seconds = read_cells(cells, fitted.ids_, _time_of(fitted.get_params()))
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
        storage.write_bytes(out, _csv(table).encode())
        _tell(f"{len(rows):,} predictions are in {out}.", _records(table), report)
    else:
        _tell(_csv(table).rstrip("\n"), _records(table), report)


@app.command()
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
    fitted = _low_rank(model)
    users = [typed(id, fitted.ids_[0]) for id in ids]
    lists = fitted.recommend_many(users, n, risk=risk, exclude_seen=not seen)
    parts, found = [], []
    for user, best in zip(users, lists, strict=True):
        known = fitted.ids_[0].lookup([user])[0] >= 0
        note = "" if known else "  (not seen in training: what is best on average)"
        lines = [f"  {k:>3}. {r.id}  {r.mean:.2f} ± {r.std:.2f}" for k, r in enumerate(best, 1)]
        parts.append("\n".join([f"{fitted.ids_[0].name} {user}{note}", *lines]))
        found.append({"id": user, "known": bool(known), "best": [r._asdict() for r in best]})
    _tell("\n".join(parts), found, report)


@app.command()
def noise(
    model: ModelFile,
    mode: Annotated[str, typer.Option(help="Name or number of the mode: 0 users, 1 items.")] = "0",
    n: Annotated[int, typer.Option("-n", help="How many.")] = 20,
    fewest: Annotated[int, typer.Option(help="Leave out ids with fewer observations.")] = 5,
    data: Annotated[
        Path | None, typer.Option(help="Ratings: rank these instead of users or items.")
    ] = None,
    id: IdColumns = [],  # noqa: B006
    value: ValueColumn = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw a picture, PNG or SVG.")] = None,
    report: Json = None,
) -> None:
    """Show who is noisy: the users, items or single ratings that the model trusts least.

    Example: `noisewise noise movies.nw --mode item -n 10`
    """
    fitted = _low_rank(model)
    if data is not None:
        table = noisy_observations(fitted, _read(data, id, value, "last"), n=n)
    else:
        table = noisy_ids(fitted, mode=int(mode) if mode.isdigit() else mode, n=n, fewest=fewest)
        if plot is not None:
            from noisewise.report import figures

            storage.write_bytes(plot, figures.render(figures.noisy_ids(table), plot.suffix[1:]))
    plain = {name: column.tolist() for name, column in table.items()}
    _tell(_aligned(plain), _records(plain), report)


@app.command()
def evaluate(
    data: Data,
    model: ModelName = "dmf",
    settings: Settings = [],  # noqa: B006
    splits: Annotated[int, typer.Option(help="How many splits.")] = 5,
    seed: Annotated[int, typer.Option(help="The first split's seed.")] = 0,
    protocol: Annotated[
        str, typer.Option(help="paper (random tenths), time (later ratings) or user.")
    ] = "paper",
    id: IdColumns = [],  # noqa: B006
    value: ValueColumn = None,
    time: Annotated[str | None, typer.Option(help="The column with the time.")] = None,
    duplicates: Duplicated = "error",
    against: Annotated[
        Path | None, typer.Option(help="A result of the same splits to test against, in pairs.")
    ] = None,
    report: Json = None,
) -> None:
    """Measure a model the way the paper does: random tenths, epochs chosen on validation.

    Example: `noisewise evaluate ml1m.npz --model biased-mf --splits 5 --json biased-mf.json`
    """
    if protocol == "time" and time is None:
        time = "timestamp"
    chosen = _parsed(settings)
    observations = _read(data, id, value, duplicates, time or _time_of(chosen))
    result = ratings.evaluate(
        observations, model, chosen, splits=splits, seed=seed, protocol=protocol
    )
    shown = [
        key
        for key in ("rmse", "nll", "log_loss", "spearman", "auc", "coverage90", "epochs", "seconds")
        if key in result["mean"]
    ]
    table: dict[str, list[Any]] = {"seed": [row["seed"] for row in result["splits"]] + ["mean"]}
    for key in shown:
        table[key] = [row[key] for row in result["splits"]] + [result["mean"][key]]
    text = _aligned(table)
    if against is not None:
        other = json.loads(against.read_text())
        test = ratings.compare(result, other)
        result["against"] = {"model": other["model"], "metric": "rmse", **test._asdict()}
        text += (
            f"\nrmse minus that of {other['model']}: {test.difference:+.4f} "
            f"(95 % {test.low:+.4f} to {test.high:+.4f}), lower on {test.wins} of {test.n}, "
            f"paired t p = {test.t_pvalue:.2g}"
        )
    _tell(text, result, report)


def main() -> None:
    """Run the command line; an error is one sentence, not a traceback."""
    try:
        app()
    except (NoisewiseError, OSError) as error:
        print(f"noisewise: {error}", file=sys.stderr)
        raise SystemExit(2) from None


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def _read(
    path: Path, ids: Sequence[str], value: str | None, duplicates: str, time: str | None = None
) -> Observations:
    return datasets.read(
        path,
        ids=list(ids) or None,
        value=value,
        time=time,
        duplicates=duplicates,  # type: ignore[arg-type]
    )


def _time_of(settings: dict[str, Any]) -> str | None:
    """Return the column of times that a model asks for."""
    time = settings.get("time")
    return time if isinstance(time, str) else None


def _low_rank(path: Path) -> Rowwise:
    fitted = load(path)
    if not isinstance(fitted, Rowwise):
        raise SettingError(f"{path} holds a {type(fitted).__name__}, which has no factors.")
    return fitted


def _parsed(settings: Iterable[str]) -> dict[str, Any]:
    """Read settings such as rank=64: numbers, true, false, null, pairs as [1, 5], or words."""
    parsed = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise SettingError(f"--set takes NAME=VALUE, e.g. rank=64; got {setting!r}.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        parsed[name.strip()] = tuple(value) if isinstance(value, list) else value
    return parsed


def _tell(text: str, report: Any, path: Path | None) -> None:
    """Print the text, or write the report where --json says; - prints the report instead."""
    if path is None or str(path) != "-":
        print(text)
    document = ratings.as_json(report)
    if path is not None and str(path) == "-":
        print(document, end="")
    elif path is not None:
        storage.write_bytes(path, document.encode())


def _held_out(summary: dict[str, Any]) -> str:
    if summary["held_out_rmse"] is None:
        return ""
    return f", held-out RMSE {summary['held_out_rmse']:.4f}, NLL {summary['held_out_nll']:.4f}"


def _records(table: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def _csv(table: dict[str, list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return text.getvalue()


def _aligned(table: dict[str, list[Any]]) -> str:
    """Columns of text, numbers with four digits and to the right."""
    columns = []
    for name, entries in table.items():
        texts = [f"{e:.4f}" if isinstance(e, float) else str(e) for e in entries]
        width = max(map(len, [name, *texts]))
        columns.append([text.rjust(width) for text in [name, *texts]])
    return "\n".join("  ".join(row) for row in zip(*columns, strict=True))
