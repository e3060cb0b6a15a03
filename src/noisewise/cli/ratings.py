"""Ratings: the demo, models, predictions, recommendations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import typer

from noisewise import registry
from noisewise.cli import options, spread
from noisewise.cli.features import FeatureOptions, knowing
from noisewise.cli.options import Columns, Stopped, check_file, check_folder, chosen, option, tell
from noisewise.data import Ids
from noisewise.data.files import read_cells, typed
from noisewise.data.sources import as_text
from noisewise.errors import FitInterrupted, SettingError, printable
from noisewise.evaluation.demo import run_demo
from noisewise.models import load
from noisewise.models.featured import features_for
from noisewise.models.lists import Recommendation
from noisewise.models.rows import Rows

MODEL_FILE = typer.Argument(..., help="A model that `fit` wrote.")


def demo(
    out: Path = option(
        "Folder for the page and the picture.", default=Path("demo"), check=check_folder
    ),
    seed: int = option("Seed of the made-up ratings.", default=0),
    report: Path | None = options.JSON,
) -> None:
    """Fit Biased MF and DMF to built-in ratings whose noise is known, and draw a page.

    Example: `noisewise demo --out demo`
    """
    result = run_demo(seed=seed, directory=out, progress=options.say)
    tell(result.text, result.report, report)


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """Where training is kept, so that it can go on when it was killed."""

    checkpoint: Path | None = option(
        "Keep training in this file; go on from it if it is there.", check=check_file
    )
    resume: Path | None = option(
        "The same, but refuse to begin anew: the file must be there.", check=check_file
    )

    @property
    def path(self) -> Path | None:
        """The file."""
        return self.checkpoint if self.resume is None else self.resume

    def given(self) -> dict[str, Any]:
        """Return what ``fit`` of a model is told."""
        if self.resume is not None:
            if self.checkpoint is not None:
                raise SettingError("--resume has the name of the file; leave out --checkpoint.")
            if not self.resume.exists():
                raise SettingError(f"There is no checkpoint at {self.resume} to go on from.")
        return {} if self.path is None else {"checkpoint": self.path}


def fit(
    data: Path = options.DATA,
    out: Path = spread.OUT,
    model: str | None = option(
        f"One of {options.RATING_NAMES}.", choices=options.RATING_MODELS, show_default="bayes"
    ),
    settings: list[str] = options.SETTINGS,
    tuned: Path | None = options.TUNED,
    *,
    columns: Columns,
    features: FeatureOptions,
    seed: int = options.SEED,
    device: str | None = options.DEVICE,
    workers: spread.ClusterOptions,
    kept: CheckpointOptions,
    report: Path | None = options.JSON,
) -> None:
    """Learn a model from a table of ratings: the Bayesian one, unless another is named.

    Ctrl-C stops after the epoch, writes the best model so far, says what it is worth, and ends with
    130; pressed twice, it stops at once and writes nothing.

    Example: `noisewise fit ratings.csv --out movies.nw --set rank=32`

    Example: `noisewise fit ratings.csv --item-features films.csv --out movies.nw`

    Example: `noisewise fit ratings.tsv --id who --id film --value stars --model dmf --out fast.nw`

    Example: `noisewise fit ratings/ --model dmf --cluster ray://10.0.0.7:10001 --out large.nw`

    Example: `noisewise fit ratings/ --cluster auto --resume /shared/kept --out /shared/large/`
    """
    name, own = chosen("ratings", model, "bayes", settings, tuned, device)
    fitted = registry.build("ratings", name, own, random_state=seed)
    given, checkpoint = kept.given(), kept.path
    place = spread.sharded(workers.place(fitted), out, fitted)
    if place is not None and spread.is_parquet(data):
        spread.refuse_features(features)
        spread.fit(name, fitted, data, columns, place, given, out, report)
        return
    observations = columns.read(data, options.time_of(own))
    given |= {} if place is None else {"cluster": place}
    if not given.keys() <= signature(fitted.fit).parameters.keys():
        raise SettingError(f"checkpoint must be left out: the model {name!r} does not keep any.")
    began, tables = time.perf_counter(), features.tables(observations.ids, data)
    try:
        fitted.fit(observations, **given, **features_for(fitted, tables))
    except FitInterrupted as stop:
        fitted.save(out)
        raise Stopped(f"{stop} It is in {out}.{_goes_on(checkpoint)}") from None
    except KeyboardInterrupt:
        raise Stopped(_nothing(out, checkpoint)) from None
    seconds = getattr(fitted, "seconds_", time.perf_counter() - began)
    fitted.save(out)
    record = {
        "epochs": getattr(fitted, "n_epochs_", 1), "seconds": seconds,
        "learning_curve": getattr(fitted, "learning_curve_", {}),
    }  # fmt: skip
    spread.describe(name, out, observations, record, report)


def _check_table(path: Path) -> None:
    options.table_ending(path)
    check_file(path)


def predict(
    model: Path = MODEL_FILE,
    cells: Path = typer.Argument(..., help="CSV, TSV or Parquet with the id columns."),
    out: Path | None = option(
        "The table to write: .csv, .tsv (both also .gz) or .parquet; else it is printed.",
        check=_check_table,
    ),
    coverage: float = option("Share of values in the interval, and in sets.", default=0.9),
    sets: bool = option(
        "Of ratings that are levels, such as stars: also the smallest set of them that holds the "
        "rating with this share.",
        "--sets",
        default=False,
    ),
    device: str | None = options.DEVICE,
    *,
    features: FeatureOptions,
    report: Path | None = options.JSON,
) -> None:
    """Predict cells: mean, standard deviation, and an interval.

    Ids that are new are predicted by their features, if the model was fitted with such: those that
    were in the files of `fit`, or are in these.

    Example: `noisewise predict movies.nw pairs.csv --out predicted.csv`

    Example: `noisewise predict movies.nw pairs.csv --sets --item-features new-films.csv`

    Example: `noisewise predict movies.nw pairs.parquet --coverage 0.8 --out predicted.parquet`
    """
    fitted = knowing(options.on_device(load(model), device), features)
    columns, seconds = read_cells(cells, fitted.ids_, options.time_of(fitted.get_params()))
    rows = list(zip(*columns, *([] if seconds is None else [seconds.tolist()]), strict=True))
    if not rows:
        raise SettingError(f"{cells} has no cells to predict.")
    mean, std = fitted.predict(rows, return_std=True)
    low, high = fitted.predict_interval(rows, coverage=coverage)
    found = {"mean": mean, "std": std, "low": low, "high": high}
    table = {ids.name: column for ids, column in zip(fitted.ids_, columns, strict=True)}
    table |= {name: numbers.tolist() for name, numbers in found.items()}
    if sets:
        chosen_levels = fitted.predict_set(rows, coverage=coverage)
        table["set"] = _sets(fitted.levels_, chosen_levels)
    if out is not None:
        options.write_table(out, table)
        tell(f"{len(rows):,} predictions are in {out}.", options.records(table), report)
    else:
        tell(as_text(table).rstrip("\n"), options.records(table), report, is_data=True)


def _sets(levels: Any, chosen: Any) -> list[str]:
    """Return sets of levels as text, such as 3 4 5."""
    names = [f"{level:g}" for level in levels.tolist()]
    return [" ".join(np.array(names)[own].tolist()) for own in chosen]


@dataclass(frozen=True, kw_only=True)
class Order:
    """What lists are ranked by, and whose they are."""

    by: str = option(
        "Rank by the value that is expected, or by the chance that a user takes an item up and "
        "likes it (utility).",
        default="value",
        choices=("value", "utility"),
    )
    risk: float = option("Rank by mean minus risk times std: above 0 plays safe.", default=0.0)
    seen: bool = option("Also recommend what was rated.", "--seen", default=False)
    mode: str | None = option("The id column of those who get lists; else the first.")

    def ranked(self, fitted: Any) -> tuple[int, dict[str, Any]]:
        """Return the number of the mode, and how a model is asked for lists."""
        if not isinstance(fitted, Rows):
            if self.risk or self.by != "value" or self.mode is not None:
                name = type(fitted).__name__
                raise SettingError(f"--by, --risk and --mode are not for a {name}.")
            return 0, {"exclude_seen": not self.seen}
        mode = "0" if self.mode is None else self.mode
        named = mode in [ids.name for ids in fitted.ids_] or not mode.isdecimal()
        m = fitted.mode_number(mode if named else int(mode))
        return m, {"by": self.by, "risk": self.risk, "mode": m, "exclude_seen": not self.seen}


def recommend(
    model: Path = MODEL_FILE,
    ids: list[str] | None = typer.Argument(None, help="Whom to recommend to, one or more."),
    everybody: bool = option("Recommend to everybody the model knows.", "--all", default=False),
    n: int = option("How many.", "-n", default=10),
    *,
    order: Order,
    out: Path | None = option(
        "The table to write: .csv, .tsv (both also .gz) or .parquet; else lists are printed.",
        check=_check_table,
    ),
    device: str | None = options.DEVICE,
    workers: spread.ClusterOptions,
    features: FeatureOptions,
    report: Path | None = options.JSON,
) -> None:
    """Recommend what a user has not rated yet, or with --mode item, who will like an item.

    To those who are new, by their features, if the model was fitted with such.

    Example: `noisewise recommend movies.nw 17 42 -n 5 --risk 1`

    Example: `noisewise recommend movies.nw --all --device cuda --out lists.parquet`

    Example: `noisewise recommend movies.nw --all --cluster auto --out lists.parquet`
    """
    if everybody == bool(ids):
        raise SettingError(
            f"recommend takes ids, or --all; got {'both' if everybody else 'neither'}."
        )
    fitted = knowing(load(model), features)
    if not hasattr(fitted, "recommend_many"):
        raise SettingError(f"{model} holds a {type(fitted).__name__}, which does not recommend.")
    m, ranked = order.ranked(fitted)
    fitted, names = options.on_device(fitted, device), fitted.ids_[m]
    everyone: list[Any] = names.labels.tolist()
    users = everyone if everybody else [typed(id, names) for id in ids or ()]
    place = workers.place()
    if out is not None and isinstance(fitted, Rows):
        return _written(fitted, users, n, ranked | {"cluster": place}, out, report)
    if place is not None:
        raise SettingError("--cluster is for lists of a model with rows, that --out has written.")
    lists = fitted.recommend_many(users, n, **ranked)
    known = (names.lookup(users) >= 0).tolist()
    found = [] if report is None else [
        {"id": user, "known": is_known, "best": [r._asdict() for r in best]}
        for user, is_known, best in zip(users, known, lists, strict=True)
    ]  # fmt: skip
    if out is not None:
        options.write_table(out, _ranked(fitted.ids_, users, lists))
        text = f"Lists for {len(users):,} are in {out}."
    else:
        text = "\n".join(map(_list, _heads(fitted, m, users, known), lists))
    return tell(text, found, report)


def _written(
    fitted: Rows, users: list[Any], n: int, ranked: dict[str, Any], out: Path, report: Path | None
) -> None:
    """Write lists as one table."""
    if options.table_ending(out) == options.PARQUET:
        length = fitted.recommend_all(n, ids=users, out=out, **ranked)
    else:
        columns = fitted.recommend_all(n, ids=users, frame=None, **ranked)
        table = {name: column.tolist() for name, column in columns.items()}
        options.write_table(out, table)
        length = len(next(iter(table.values())))
    text = f"Lists for {len(users):,} are in {out}."
    tell(text, {"file": str(out), "lists": len(users), "lines": length}, report)


def _ranked(
    ids: Sequence[Ids], users: list[Any], lists: list[list[Recommendation]]
) -> options.Table:
    """Return lists as columns: user, rank, item, mean and std."""
    names = [ids[0].name, "rank", ids[1].name, "mean", "std"]
    rows = [
        (user, k, *best) for user, own in zip(users, lists, strict=True)
        for k, best in enumerate(own, 1)
    ]  # fmt: skip
    return {name: [row[k] for row in rows] for k, name in enumerate(names)}


def _heads(fitted: Any, mode: int, users: list[Any], known: list[bool]) -> list[str]:
    """Name those who get lists, and say of everybody who is new what a list is made by."""
    table, name = getattr(fitted, "features_", {}).get(mode), fitted.ids_[mode].name
    described = [False] * len(users) if table is None else (table.places(users) >= 0).tolist()
    words = ["by features" if one else "what is best on average" for one in described]
    return [
        printable(f"{name} {user}") + ("" if seen else f"  (not seen in training: {why})")
        for user, seen, why in zip(users, known, words, strict=True)
    ]


def _list(head: str, best: list[Recommendation]) -> str:
    lines = [
        f"  {k:>3}. {printable(r.id)}  {r.mean:.2f} ± {r.std:.2f}" for k, r in enumerate(best, 1)
    ]
    return "\n".join([head, *lines])


def _nothing(out: Path, checkpoint: Path | None) -> str:
    words = f"Stopped before there was a model to keep: {out} was not written."
    return f"{words}{_goes_on(checkpoint)}"


def _goes_on(checkpoint: Path | None) -> str:
    there = checkpoint is not None and checkpoint.exists()
    return f" The same command goes on from {checkpoint}." if there else ""
