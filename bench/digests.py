"""Digests of what noisewise computes, to see that a change of its code changes none of the numbers.

    python bench/digests.py --write digests.json
    python bench/digests.py --check digests.json [--only SUBSTRING]

Every model is fitted to small data, with one thread and with two, and asked all that it can answer,
before and after it was saved and loaded. Readers, splits and metrics are asked as well. ``--write``
keeps a digest of every answer. ``--check`` prints the cases that differ from those in the file, are
missing or failed, and ends with status 1 if there are any. Both also say where answers depend on
the number of threads or change in a file; what the file was written with is not held against a run.

A kernel that numba has compiled in this very process may round in another way than the same kernel
from numba's cache. So ``--write`` keeps what a second process computes, and ``--check`` runs cases
that differ once more in a second process; both print what was so in the first.

Only numbers and ids are digested: arrays as float64 with their shape, all else as text. Names of
classes, settings and columns are not, nor are bytes of files. So digests outlive new names and new
formats of files: where a name changes, change it here, and the digests must stay.

Digests hold for one kind of machine and one set of versions of numpy, numba and torch. Write them
where the change begins, and do not commit them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import scipy.sparse
import xarray as xr

import noisewise as nw

Answers = dict[str, Any]  # what was asked -> what came back
Digests = dict[str, str]  # what was asked -> the digest of what came back

THREADS = 1, 2
SEED = 7

# What has no public name: module and name, by what it is called below.
ELSEWHERE = {
    "DTF": "noisewise.models.deviation:DTF",
    "PTF": "noisewise.models.deviation:PTF",
    "TypeMean": "noisewise.models.residual:TypeMean",
    "LLORMA": "noisewise_reproduction.rivals.llorma:LLORMA",
    "RBM": "noisewise_reproduction.rivals.rbm:RBM",
    "AutoRec": "noisewise_reproduction.rivals.autorec:AutoRec",
    "DeviationRegressor": "noisewise_reproduction.rivals.linear:DeviationRegressor",
    "HuberFactorizer": "noisewise_reproduction.rivals.rcf:HuberFactorizer",
    "RobustBayesianFactorizer": "noisewise_reproduction.rivals.rbmf:RobustBayesianFactorizer",
    "SpatialNeighbours": "noisewise_reproduction.rivals.spatial:SpatialNeighbours",
    "TableImputer": "noisewise_reproduction.rivals.table_imputers:TableImputer",
    "TrimmedFactorizer": "noisewise_reproduction.rivals.drmf:TrimmedFactorizer",
    "TuckerFactorizer": "noisewise_reproduction.rivals.tucker:TuckerFactorizer",
    "sensor_model": "noisewise.registry:build",
    "make_ratings": "noisewise.data.synthetic:make_ratings",
    "draw_points": "noisewise_reproduction.runs.regression:draw_points",
    "read_sensors": "noisewise.data.panel:read_panel",
    "read_gapped": "noisewise.data.gapped:read_gapped",
    "read_readings": "noisewise.cli.impute:read_readings",
    "fill_file": "noisewise.cli.impute:fill_file",
    "rating_split": "noisewise.splits:rating_split",
    "split_by_time": "noisewise.splits:split_by_time",
    "split_by_user": "noisewise.splits:split_by_user",
    "random_split": "noisewise.splits:random_split",
    "share_split": "noisewise.splits:share_split",
    "block_split": "noisewise.splits:block_split",
}
METRICS = "noisewise.metrics"
COMPARISON = "noisewise.evaluation.comparison"


def elsewhere(called: str) -> Any:
    """Return what has no public name; only the cases that need it fail if it has moved."""
    module, name = ELSEWHERE[called].split(":")
    return getattr(import_module(module), name)


def metric(name: str) -> Any:
    """Return a metric, or what compares them over splits, by its name."""
    found = getattr(import_module(METRICS), name, None)
    return found or getattr(import_module(COMPARISON), name)


# ------------------------------------------------------------------------------------------ digests


def digest(answer: Any) -> str:
    """Return a short digest of numbers, texts, and anything made of them."""
    sha = hashlib.sha256()
    _feed(sha, answer)
    return sha.hexdigest()[:16]


def _feed(sha: Any, answer: Any) -> None:
    if isinstance(answer, dict):
        answer = tuple(answer.values())  # keys are names
    if isinstance(answer, pd.DataFrame | pd.Series | pl.DataFrame | xr.DataArray | pa.ChunkedArray):
        answer = answer.to_numpy()
    if isinstance(answer, bool | int | float | np.generic | np.ndarray):
        array = np.asarray(answer)
        if array.dtype.kind in "biuf":
            array = array.astype(np.float64)
            array[np.isnan(array)] = np.nan  # one of the many bit patterns there are
            sha.update(f"array{array.shape}".encode())
            sha.update(np.ascontiguousarray(array).tobytes())
            return
        answer = array.tolist()
    if isinstance(answer, list | tuple):
        sha.update(f"list({len(answer)})".encode())
        for one in answer:
            _feed(sha, one)
    elif answer is None or isinstance(answer, str):
        text = str(answer).encode()
        sha.update(f"text({len(text)})".encode() + text)
    else:
        raise TypeError(f"What is a {type(answer).__name__}?")


def rounded(numbers: Any) -> Any:
    """Return numbers with twelve significant digits, as the sum of many depends on the machine."""
    if isinstance(numbers, dict):
        return [rounded(one) for one in numbers.values()]
    return [float(f"{one:.11e}") for one in np.atleast_1d(np.asarray(numbers, float)).ravel()]


def as_text(ids: Iterable[Any]) -> list[str]:
    """Return ids as text."""
    return [str(one) for one in np.asarray(ids, dtype=object).tolist()]


# --------------------------------------------------------------------------------------------- data


class Table:
    """Cells, one id each per mode, their values, and other cells to ask for."""

    def __init__(self, cells: list[tuple[Any, ...]], values: Any, asked: list[Any]) -> None:
        self.cells = cells
        self.values = np.asarray(values, dtype=np.float64)
        self.asked = asked

    def part(self, rows: slice) -> Table:
        return Table(self.cells[rows], self.values[rows], self.asked)

    def observed(self) -> nw.Observations:
        return nw.observe(self.cells, self.values)


def make_table(shape: tuple[int, ...], n: int, names: str, seed: int) -> Table:
    """Draw cells of a table with a low-rank mean, some of whose rows are noisier than others."""
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(int(np.prod(shape)))[: n + 300]
    codes = np.unravel_index(drawn, shape)
    factors = [rng.normal(size=(size, 2)) for size in shape]
    biases = [rng.normal(0, 0.4, size) for size in shape]
    noise = [rng.uniform(0.4, 1.4, size) for size in shape]
    by_mode = list(zip(codes, factors, biases, noise, strict=True))
    mean = 3.0 + sum(b[c] for c, _, b, _ in by_mode)
    mean = mean + 0.6 * np.prod([f[c] for c, f, _, _ in by_mode], axis=0).sum(axis=1)
    values = rng.normal(mean, 0.7 * np.prod([s[c] for c, _, _, s in by_mode], axis=0))
    rows = zip(*(c.tolist() for c in codes), strict=True)
    cells = [tuple(f"{name}{k}" for name, k in zip(names, row, strict=True)) for row in rows]
    unknown = [(*cells[0][:-1], "nothing"), ("nobody", *cells[1][1:]), ("?",) * len(shape)]
    return Table(cells[:n], values[:n], cells[:200] + cells[n:] + unknown)


def in_stars(table: Table) -> Table:
    """Return a table with whole stars for values."""
    return Table(table.cells, np.clip(np.rint(table.values), 1, 5), table.asked)


def make_sensors(places: int, times: int, seed: int) -> Table:
    """Draw readings of two types of sensors that share signals and drift; some were not taken."""
    rng = np.random.default_rng(seed)
    when = np.cumsum(rng.integers(1, 4, times))
    signals = np.sin(np.outer([1, 0.3], when / 4)) + 0.2 * rng.normal(size=(2, times))
    rows = []
    for place in range(places):
        for kind, (mean, std) in {"heat": (20.0, 3.0), "damp": (500.0, 90.0)}.items():
            drift = np.cumsum(rng.normal(0, 0.15, times))
            own = rng.normal(0, 0.7, 2) @ signals + drift + 0.2 * rng.normal(size=times)
            rows += [
                (f"p{place}", kind, int(t), mean + std * v) for t, v in zip(when, own, strict=True)
            ]
    out = ("p1", "heat"), when[times // 2], when[times // 2 + 6]
    taken = [
        rng.random() > 0.25 and not (row[:2] == out[0] and out[1] <= row[2] <= out[2])
        for row in rows
    ]
    kept = [row for row, here in zip(rows, taken, strict=True) if here]
    lost = [row for row, here in zip(rows, taken, strict=True) if not here]
    kept = [kept[k] for k in rng.permutation(len(kept))]
    unseen = [("p0", "heat", int(when[-1]) + 5), ("p0", "damp", 1.5), ("nowhere", "heat", 4)]
    asked = [row[:3] for row in kept[:100] + lost] + unseen
    return Table([row[:3] for row in kept], [row[3] for row in kept], asked)


RATINGS = make_table((90, 60), 2400, "ui", SEED)
STARS = in_stars(RATINGS)
LATER = make_table((100, 60), 300, "ui", SEED + 1)  # ten users more
TENSOR = make_table((30, 20, 40), 6000, "abc", SEED + 2)  # many enough for threads to share
TENSOR4 = make_table((15, 12, 10, 12), 9000, "abcd", SEED + 3)
SENSORS = make_sensors(6, 60, SEED + 4)
WHERE = {f"p{k}": (float(k % 3), 0.7 * k) for k in range(6)}
TIMES = 978_300_000 + np.random.default_rng(SEED).integers(0, 3e7, len(STARS.cells))


@cache
def large() -> Table:
    """Return so many ratings that threads share loops over all of them."""
    return make_table((400, 300), 70_000, "ui", SEED + 5)


def timed(table: Table) -> pd.DataFrame:
    """Return stars with the time at which each was given."""
    frame = pd.DataFrame(table.cells, columns=["user", "item"])
    return frame.assign(when=TIMES[: len(frame)])


def holed() -> np.ndarray[Any, Any]:
    """Return a table of 80 times and 5 series with holes."""
    rng = np.random.default_rng(SEED)
    day = np.sin(2 * np.pi * np.arange(80) / 24)[:, None]
    data = rng.uniform(10, 20, 5) + day * rng.uniform(0.5, 2, 5) + 0.1 * rng.normal(size=(80, 5))
    data[rng.random(data.shape) < 0.15] = np.nan
    data[30:42, 1] = np.nan
    return data


# ------------------------------------------------------------------------ models and their settings


def deviation(jobs: int, **settings: Any) -> Any:
    chosen = {"rank": 5, "deviation_rank": 2, "epochs": 12, "random_state": SEED}
    return nw.DeviationFactorizer(**chosen | settings, n_jobs=jobs)


def of_tensor(jobs: int, preset: str, **settings: Any) -> Any:
    return deviation(jobs, **elsewhere(preset) | {"rank": 5, "epochs": 8} | settings)


def bayesian(jobs: int, **settings: Any) -> Any:
    chosen = {"rank": 4, "sweeps": 24, "burn_in": 8, "samples": 12, "random_state": SEED}
    return nw.BayesianFactorizer(**chosen | settings, n_jobs=jobs)


def temporal(jobs: int, **settings: Any) -> Any:
    chosen = {"rank": 3, "sweeps": 24, "burn_in": 6, "samples": 12, "tolerance": None}
    return nw.TemporalFactorizer(**chosen | settings, random_state=SEED, n_jobs=jobs)


def huber(jobs: int, **settings: Any) -> Any:
    chosen = {"rank": 5, "epochs": 12, "random_state": SEED}
    return elsewhere("HuberFactorizer")(**chosen | settings, n_jobs=jobs)


def trimmed(jobs: int, **settings: Any) -> Any:
    chosen = {"rank": 5, "epochs": 12, "round_epochs": 3, "outliers": 0.05, "random_state": SEED}
    return elsewhere("TrimmedFactorizer")(**chosen | settings, n_jobs=jobs)


def robust(jobs: int, **settings: Any) -> Any:
    chosen = {"rank": 4, "epochs": 15, "random_state": SEED}
    return elsewhere("RobustBayesianFactorizer")(**chosen | settings, n_jobs=jobs)


def llorma(jobs: int, **settings: Any) -> Any:
    chosen = {"rank": 3, "models": 6, "global_rank": 2, "learning_rate": 0.05, "l2": 0.05}
    return elsewhere("LLORMA")(
        **chosen | {"epochs": 12, "random_state": SEED} | settings, n_jobs=jobs
    )


def autorec(jobs: int, **settings: Any) -> Any:
    chosen = {"hidden": 8, "l2": 10.0, "epochs": 20, "patience": 5, "device": "cpu"}
    return elsewhere("AutoRec")(**chosen | settings, random_state=SEED, n_jobs=jobs)


def rbm(jobs: int, **settings: Any) -> Any:
    chosen = {"hidden": 8, "learning_rate": 0.3, "l2": 0.001, "batch": 40, "epochs": 10}
    chosen |= {"steps_every": 4, "patience": 5, "device": "cpu"}
    return elsewhere("RBM")(**chosen | settings, random_state=SEED, n_jobs=jobs)


def residual(jobs: int, inner: Any = None, **settings: Any) -> Any:
    return nw.ResidualFactorizer(inner, **settings, random_state=SEED, n_jobs=jobs)


def tucker(jobs: int, **settings: Any) -> Any:
    chosen = {"rank": 3, "epochs": 12, "random_state": SEED}
    return elsewhere("TuckerFactorizer")(**chosen | settings, n_jobs=jobs)


def auto(jobs: int, candidates: Any, **settings: Any) -> Any:
    return nw.AutoFactorizer(candidates, **settings, random_state=SEED, n_jobs=jobs)


def sensor_model(jobs: int, name: str, where: Any = None, **settings: Any) -> Any:
    shared = {"coordinates": where, "random_state": SEED, "n_jobs": jobs}
    return elsewhere("sensor_model")("sensors", name, settings, **shared)


def imputer(jobs: int, method: str = "ou", **settings: Any) -> Any:
    return nw.DeviationImputer(method, **settings, random_state=SEED, n_jobs=jobs)


# ------------------------------------------------------------------------------- what models answer


def before_and_after(model: Any, ask: Callable[[Any], Answers]) -> dict[str, Digests]:
    """Ask a fitted model, and what comes back from a file of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        fitted = digests_of(ask(model))
        model.save(path)
        loaded = digests_of(ask(load_of(model)(path)))
    return {"fitted": fitted, "loaded": loaded}


def load_of(model: Any) -> Callable[[Path], Any]:
    """Return what reads a file of such a model: ``load`` of all public ones, if it is one."""
    known = hasattr(nw, type(model).__name__) and hasattr(model, "predict")
    return nw.load if known else type(model).load


def digests_of(answers: Answers) -> Digests:
    return {asked: digest(answer) for asked, answer in answers.items()}


def about_cells(model: Any, asked: Any) -> Answers:
    """Ask what every model can tell of cells."""
    return {
        "predict": model.predict(asked, return_std=True),
        "mean": model.predict(asked),
        "parts": model.predict_parts(asked),
        "interval": [model.predict_interval(asked, coverage) for coverage in (0.5, 0.9)],
        "calibration": model.std_scale_,
        "ids": [as_text(ids.labels) for ids in model.ids_],
    }


def about_training(model: Any) -> Answers:
    """Ask how training went."""
    curve = [part for name, part in model.learning_curve_.items() if name != "seconds"]
    return {"curve": curve, "epochs": model.n_epochs_}


def about_rows(model: Any, table: Table) -> Answers:
    """Ask what models know that have a row for every user and every item."""
    users, items = (list(dict.fromkeys(cell[k] for cell in table.cells)) for k in (0, 1))
    new = model.fold_in([*items[:6], "nothing"], [5, 4, 3, 1, 2, 5, 4])
    other = model.fold_in(users[:5], [1, 2, 5, 4, 3], mode=1)
    return {
        "recommend": [_listed(model.recommend(user, 5)) for user in [*users[:8], "nobody"]],
        "recommend, safe": _listed(model.recommend(users[0], 5, risk=1.0)),
        "recommend, all": _listed(model.recommend(users[1], 70, exclude_seen=False)),
        "recommend, some": _listed(model.recommend(users[2], 9, candidates=items[5:15])),
        "recommend_many": [_listed(best) for best in model.recommend_many(users, 3, risk=-0.5)],
        "similar": [_listed(model.similar(one, 5)) for one in items[:5]],
        "similar users": _listed(model.similar(users[0], 5, mode=0)),
        "fold_in": new.predict([*items, "nothing"], return_std=True),
        "fold_in, parts": new.predict_parts(items),
        "fold_in, interval": new.predict_interval(items[:9]),
        "fold_in, recommend": _listed(new.recommend(6, risk=0.5)),
        "fold_in of an item": other.predict(users, return_std=True),
        "row": [tuple(model.row(users[0])), tuple(model.row(items[0], mode=1))],
        "noisy_ids": [_table(nw.noisy_ids(model, mode=mode, n=None)) for mode in (0, 1)],
        "noisy_observations": _table(nw.noisy_observations(model, table.cells, table.values)),
    }


def about_series(model: Any) -> Answers:
    """Ask which sensors are noisy."""
    return {
        "series": _table(model.noise_by_series_),
        "noisy_series": _table(nw.noisy_series(model, n=None)),
        "noisy_series, few": _table(nw.noisy_series(model, n=3, fewest=20)),
        "noisy_places": _table(nw.noisy_places(model, n=None)),
    }


def _listed(rows: Any) -> list[Any]:
    return [(str(row[0]), *map(float, row[1:])) for row in rows]


def _table(columns: Any) -> list[Any]:
    arrays = [np.asarray(column) for column in columns.values()]
    return [as_text(a) if a.dtype.kind in "OUS" else a for a in arrays]


# ----------------------------------------------------------------------------------- kinds of cases


def fitted_rows(model: Any, table: Table = RATINGS, more: Any = None, **given: Any) -> Any:
    """Fit a model of users and items, and ask it everything; ``more`` asks for more."""
    model.fit(table.cells, table.values, **given)
    return before_and_after(model, lambda m: _all_of_rows(m, table, more))


def _all_of_rows(model: Any, table: Table, more: Any = None) -> Answers:
    answers = about_cells(model, table.asked) | about_training(model) | about_rows(model, table)
    return answers | (more(model) if more else {})


def fitted_cells(model: Any, table: Table, more: Any = None, **given: Any) -> Any:
    """Fit a model that only tells of cells; ``more`` asks for more."""
    model.fit(table.cells, table.values, **given)
    return before_and_after(
        model, lambda m: about_cells(m, table.asked) | (more(m) if more else {})
    )


def fitted_series(model: Any, table: Table = SENSORS, **given: Any) -> Any:
    """Fit a model of series of sensors."""
    return fitted_cells(model, table, lambda m: about_training(m) | about_series(m), **given)


def _given_to(model: Any, X: Any, y: Any, asked: Any, more: Any = None) -> Any:
    """Fit a model to a table of another kind."""
    model.fit(X, y)
    return before_and_after(model, lambda m: about_cells(m, asked) | (more(m) if more else {}))


def with_time(model: Any, ordinal: bool = False) -> Any:
    """Fit a model of users and items whose ratings have times."""
    frame = timed(STARS)
    asked = frame.iloc[:300].assign(when=frame["when"][:300] + 10**6)

    def more(m: Any) -> Answers:
        without = {"without times": m.predict(frame[["user", "item"]][:50], return_std=True)}
        noisy = {"noisy, times": _table(nw.noisy_observations(m, frame, STARS.values))}
        answers = about_training(m) | without | about_rows(m, STARS) | noisy
        return answers | (_levels(m, asked) if ordinal else {})

    return _given_to(model, frame, STARS.values, asked, more)


def _levels(model: Any, asked: Any) -> Answers:
    return {"proba": model.predict_proba(asked), "levels": model.levels_}


def proba(model: Any) -> Answers:
    """Ask for the probability of every level."""
    return _levels(model, STARS.asked)


def sampled(model: Any) -> Answers:
    """Ask how well a chain has converged."""
    return {"convergence": [list(one.values()) for one in model.convergence_.values()]}


def fitted_again(model: Any) -> Any:
    """Fit a model, go on with ratings of new users, and ask."""
    model.fit(RATINGS.cells, RATINGS.values)
    known = set(RATINGS.cells)
    new = [k for k, cell in enumerate(LATER.cells) if cell not in known]
    model.partial_fit([LATER.cells[k] for k in new], LATER.values[new], epochs=4)
    both = Table(RATINGS.cells, RATINGS.values, RATINGS.asked + LATER.asked)
    return before_and_after(model, lambda m: _all_of_rows(m, both))


def fitted_in_parts(model: Any) -> Any:
    """Learn by ``partial_fit`` alone."""
    for rows in (slice(1500), slice(1500, None)):
        part = RATINGS.part(rows)
        model.partial_fit(part.cells, part.values, epochs=5)
    return before_and_after(model, lambda m: _all_of_rows(m, RATINGS))


def calibrated(model: Any) -> Any:
    """Fit a model to a part of the ratings, and calibrate it on the rest."""
    part, rest = RATINGS.part(slice(2000)), RATINGS.part(slice(2000, None))
    model.fit(part.cells, part.values).calibrate(rest.cells, rest.values)
    return before_and_after(model, lambda m: about_cells(m, RATINGS.asked))


def taken_up(model: Any, table: Table, after: int) -> Any:
    """Break a fit off after some epochs, and go on from its checkpoint."""

    class Broken(Exception):
        pass

    def break_off(info: Any, state: Any) -> None:
        if info.epoch == after:
            raise Broken

    with tempfile.TemporaryDirectory() as folder:
        kept = {"checkpoint": Path(folder, "checkpoint"), "checkpoint_epochs": 1}
        with suppress(Broken):
            model.fit(table.cells, table.values, callbacks=[break_off], **kept)
        if not kept["checkpoint"].exists():
            raise RuntimeError("There is no checkpoint to go on from.")
        return fitted_cells(model, table, about_training, **kept)


def interrupted(model: Any, table: Table, after: int) -> Any:
    """Press Ctrl-C after some epochs, and take the model as it is then."""

    def press(info: Any, state: Any) -> None:
        if info.epoch == after:
            raise KeyboardInterrupt

    try:
        model.fit(table.cells, table.values, callbacks=[press])
    except nw.FitInterrupted:
        ask = table.asked
        return before_and_after(model, lambda m: about_cells(m, ask) | about_training(m))
    raise RuntimeError("The fit was not interrupted.")


def many_cells(model: Any, table: Table = RATINGS) -> Any:
    """Ask for so many cells that every thread has some."""
    model.fit(table.cells, table.values)
    many = table.asked * (140_000 // len(table.asked))
    return before_and_after(model, lambda m: {"predict": m.predict(many, return_std=True)})


def alone(model: Any) -> Answers:
    """Ask what a model says of a cell without its own reading."""
    return {"leave_one_out": model.leave_one_out(SENSORS.cells, return_std=True)}


def smoothed(model: Any) -> Answers:
    return alone(model) | {"doubt": model.epistemic_share(SENSORS.asked), "phi": model.phi_}


def chosen(model: Any) -> Answers:
    scores = [(s["error"], s["score"]) for s in model.scores_.values()]
    return {"scores": scores, "choice": list(model.scores_).index(model.choice_)}


def repeated() -> Table:
    """Return the ratings with some cells given again."""
    values = np.append(RATINGS.values, RATINGS.values[:200][::-1])
    return Table(RATINGS.cells + RATINGS.cells[:200], values, RATINGS.asked)


def sparse() -> Any:
    codes = np.array([(int(user[1:]), int(item[1:])) for user, item in RATINGS.cells])
    return scipy.sparse.csr_array((RATINGS.values, codes.T), shape=(90, 60))


def weighed(model: Any) -> Answers:
    return {"weights": model.weights(RATINGS.cells, RATINGS.values)}


def found_outliers(model: Any) -> Answers:
    return {"outliers": model.is_outlier(RATINGS.cells, RATINGS.values)}


def cored(model: Any) -> Answers:
    return about_training(model) | {"core": model.core_}


def tabled(model: Any) -> Answers:
    return {"table": model.table_}


def dated() -> Table:
    """Return the readings with dates in the place of numbers."""

    def date(cell: Any) -> Any:
        return (*cell[:2], str(np.datetime64("2024-01-01T00", "h") + int(cell[2])))

    return Table([date(c) for c in SENSORS.cells], SENSORS.values, [date(c) for c in SENSORS.asked])


def two_modes() -> Table:
    """Return the readings of one type."""
    rows = [k for k, cell in enumerate(SENSORS.cells) if cell[1] == "heat"]
    asked = [(cell[0], cell[2]) for cell in SENSORS.asked if cell[1] == "heat"]
    cells = [(SENSORS.cells[k][0], SENSORS.cells[k][2]) for k in rows]
    return Table(cells, SENSORS.values[rows], asked)


def filled(model: Any, X: Any, later: Any = None) -> Any:
    """Fill a table and perhaps another one, which came later."""
    model.fit(X)

    def ask(m: Any) -> Answers:
        tables = [X] if later is None else [X, later]
        return {
            "filled": [[_numbers(t) for t in m.transform(one, return_std=True)] for one in tables]
        }

    return before_and_after(model, ask)


def _numbers(table: Any) -> Any:
    """Return the numbers of a table of any kind, column by column."""
    if isinstance(table, np.ndarray | xr.DataArray):
        return np.asarray(table)
    if isinstance(table, xr.Dataset):
        return [np.asarray(table[name]) for name in table.data_vars]
    if isinstance(table, pd.DataFrame):
        columns = [table.iloc[:, k].to_numpy() for k in range(table.shape[1])]
    elif isinstance(table, pl.DataFrame):
        columns = [column.to_numpy() for column in table.get_columns()]
    else:
        columns = [column.to_numpy() for column in table.columns]
    return [a if a.dtype.kind in "biuf" else as_text(a) for a in columns]


HOURS = pd.date_range("2024-03-30", periods=80, freq="h")
SERIES = ["hall/heat", "hall/damp", "attic/heat", "attic/damp", "cellar/heat"]


def wide() -> pd.DataFrame:
    return pd.DataFrame(holed(), columns=SERIES, index=HOURS)


def wide_of_levels() -> pd.DataFrame:
    frame = wide()
    pairs = [name.split("/") for name in frame.columns]
    frame.columns = pd.MultiIndex.from_tuples(pairs, names=["location", "sensor"])
    return frame


def long() -> pd.DataFrame:
    data = holed()
    rows = [
        (*name.split("/"), hour, data[t, k])
        for k, name in enumerate(SERIES)
        for t, hour in enumerate(HOURS)
    ]
    return pd.DataFrame(rows, columns=["place", "kind", "when", "reading"])


LONG = {"location": "place", "sensor": "kind", "time": "when", "value": "reading"}


def grid() -> xr.DataArray:
    data = np.stack([holed()[:, :2], holed()[:, 2:4]])
    coords = {"location": ["hall", "attic"], "time": HOURS, "sensor": ["heat", "damp"]}
    return xr.DataArray(data, coords, dims=["location", "time", "sensor"])


def dataset() -> xr.Dataset:
    whole = grid()
    return xr.Dataset({name: whole.sel(sensor=name, drop=True) for name in ("heat", "damp")})


def regressed(*given: Any, **settings: Any) -> Digests:
    """Fit a line to points of which some are noisier than others."""
    rng = np.random.default_rng(SEED)
    X = rng.uniform(-1, 2, (300, 3))
    std = 0.1 + np.abs(X[:, 0])
    y = X @ [2.0, -1.0, 0.5] + 0.3 + rng.normal(0, std)
    model = elsewhere("DeviationRegressor")(**settings).fit(X, y, *([std] if given else []))
    line = model.coef_, model.intercept_, model.deviation_coef_, model.deviation_intercept_
    asked = rng.normal(size=(100, 3))
    return digests_of(
        {
            "predict": model.predict(asked, return_std=True),
            "parts": model.predict_parts(asked),
            "line": line,
            "nll": model.nll_,
        }
    )


MODELS: dict[str, Callable[[int], dict[str, Digests]]] = {
    # Deviation factorizer: two modes
    "deviation": lambda jobs: fitted_rows(deviation(jobs)),
    "deviation, constant noise": lambda jobs: fitted_rows(deviation(jobs, deviation_rank=0)),
    "deviation, no factors": lambda jobs: fitted_rows(deviation(jobs, rank=0)),
    "deviation, higher ranks": lambda jobs: fitted_rows(
        deviation(jobs, rank=17, deviation_rank=9, epochs=6)
    ),
    "deviation, penalty per row": lambda jobs: fitted_rows(deviation(jobs, penalty="row", l2=0.5)),
    "deviation, adagrad per row": lambda jobs: fitted_rows(deviation(jobs, adagrad="row")),
    "deviation, adagrad per row, constant noise": lambda jobs: fitted_rows(
        deviation(jobs, adagrad="row", deviation_rank=0)
    ),
    "deviation, beta 0": lambda jobs: fitted_rows(deviation(jobs, beta=0.0)),
    "deviation, beta 1": lambda jobs: fitted_rows(deviation(jobs, beta=1.0)),
    "deviation, no biases": lambda jobs: fitted_rows(deviation(jobs, biases=False)),
    "deviation, no warm-up": lambda jobs: fitted_rows(deviation(jobs, warmup=0)),
    "deviation, other numbers": lambda jobs: fitted_rows(
        deviation(
            jobs,
            learning_rate=0.1,
            deviation_learning_rate=0.03,
            l2=0.02,
            bias_l2=0.05,
            deviation_l1=0.002,
            delta=0.1,
            validation_fraction=0.2,
        )
    ),
    "deviation, patience None": lambda jobs: fitted_rows(deviation(jobs, patience=None)),
    "deviation, patience, no refit": lambda jobs: fitted_rows(
        deviation(jobs, patience=2, epochs=60, learning_rate=0.1, refit=False)
    ),
    "deviation, patience, refit": lambda jobs: fitted_rows(
        deviation(jobs, patience=2, epochs=60, learning_rate=0.1)
    ),
    "deviation, monitors nll": lambda jobs: fitted_rows(deviation(jobs, monitor="nll")),
    "deviation, given validation": lambda jobs: fitted_rows(
        deviation(jobs),
        RATINGS.part(slice(2000)),
        validation=RATINGS.part(slice(2000, None)).observed(),
    ),
    "deviation, no value range": lambda jobs: fitted_rows(deviation(jobs, value_range=None)),
    "deviation, value range": lambda jobs: fitted_rows(deviation(jobs, value_range=(1.0, 5.0))),
    "deviation, unknown": lambda jobs: fitted_rows(deviation(jobs, unknown=2.5)),
    "deviation, another seed": lambda jobs: fitted_rows(deviation(jobs, random_state=1)),
    "deviation, last of duplicates": lambda jobs: fitted_cells(
        deviation(jobs, duplicates="last"), repeated()
    ),
    "deviation, mean of duplicates": lambda jobs: fitted_cells(
        deviation(jobs, duplicates="mean"), repeated()
    ),
    "deviation, values far from zero": lambda jobs: fitted_cells(
        deviation(jobs), Table(RATINGS.cells, 1e9 + RATINGS.values, RATINGS.asked)
    ),
    "deviation, partial_fit": lambda jobs: fitted_again(deviation(jobs)),
    "deviation, partial_fit alone": lambda jobs: fitted_in_parts(deviation(jobs)),
    "deviation, calibrate": lambda jobs: calibrated(deviation(jobs, patience=None)),
    "deviation, from a checkpoint": lambda jobs: taken_up(deviation(jobs), RATINGS, 4),
    "deviation, interrupted": lambda jobs: interrupted(deviation(jobs), RATINGS, 4),
    "deviation, many cells": lambda jobs: many_cells(deviation(jobs, epochs=4)),
    "deviation, 4 modes, many cells": lambda jobs: many_cells(
        of_tensor(jobs, "DTF", epochs=3), TENSOR4
    ),
    "deviation, large": lambda jobs: fitted_cells(deviation(jobs, epochs=3), large()),
    "deviation, from a frame": lambda jobs: _given_to(
        deviation(jobs),
        pl.DataFrame(RATINGS.cells, schema=["movie", "user"], orient="row"),
        RATINGS.values,
        pl.DataFrame(RATINGS.asked, schema=["movie", "user"], orient="row"),
    ),
    "deviation, from a sparse matrix": lambda jobs: _given_to(
        deviation(jobs), sparse(), None, np.argwhere(np.ones((20, 12), bool))
    ),
    # Deviation factorizer: three modes and four
    "deviation, 3 modes": lambda jobs: fitted_cells(of_tensor(jobs, "DTF"), TENSOR, about_training),
    "deviation, 3 modes, constant noise": lambda jobs: fitted_cells(
        of_tensor(jobs, "PTF"), TENSOR, about_training
    ),
    "deviation, 3 modes, biases": lambda jobs: fitted_cells(
        of_tensor(jobs, "DTF", biases=True, beta=0.25, patience=None), TENSOR, about_training
    ),
    "deviation, 3 modes, penalty per rating": lambda jobs: fitted_cells(
        of_tensor(jobs, "DTF", penalty="rating", l2=0.01, deviation_l1=1e-4), TENSOR, about_training
    ),
    "deviation, 3 modes, adagrad per row": lambda jobs: fitted_cells(
        of_tensor(jobs, "DTF", adagrad="row"), TENSOR, about_training
    ),
    "deviation, 4 modes": lambda jobs: fitted_cells(
        of_tensor(jobs, "DTF"), TENSOR4, about_training
    ),
    "deviation, 4 modes, constant noise": lambda jobs: fitted_cells(
        of_tensor(jobs, "PTF"), TENSOR4, about_training
    ),
    "deviation, 4 modes, adagrad per row": lambda jobs: fitted_cells(
        of_tensor(jobs, "DTF", adagrad="row", biases=True, learning_rate=0.05),
        TENSOR4,
        about_training,
    ),
    # Bayesian factorizer
    "bayes": lambda jobs: fitted_rows(bayesian(jobs), more=sampled),
    "bayes, stars": lambda jobs: fitted_rows(bayesian(jobs), STARS, sampled),
    "bayes, constant noise": lambda jobs: fitted_rows(bayesian(jobs, deviation="constant")),
    "bayes, noise of rank 1": lambda jobs: fitted_rows(bayesian(jobs, deviation="rank1")),
    "bayes, noise of rank 3": lambda jobs: fitted_rows(bayesian(jobs, deviation_rank=3)),
    "bayes, implicit": lambda jobs: fitted_rows(bayesian(jobs, implicit=True)),
    "bayes, not implicit": lambda jobs: fitted_rows(bayesian(jobs, implicit=False)),
    "bayes, constant noise, not implicit": lambda jobs: fitted_rows(
        bayesian(jobs, deviation="constant", implicit=False)
    ),
    "bayes, no factors": lambda jobs: fitted_rows(bayesian(jobs, rank=0)),
    "bayes, time": lambda jobs: with_time(bayesian(jobs, time="when")),
    "bayes, time, constant noise": lambda jobs: with_time(
        bayesian(jobs, time="when", deviation="constant", implicit=False)
    ),
    "bayes, ordinal": lambda jobs: fitted_rows(bayesian(jobs, likelihood="ordinal"), STARS, proba),
    "bayes, ordinal, constant noise": lambda jobs: fitted_rows(
        bayesian(jobs, likelihood="ordinal", deviation="constant"), STARS, proba
    ),
    "bayes, ordinal, time": lambda jobs: with_time(
        bayesian(jobs, likelihood="ordinal", time="when"), ordinal=True
    ),
    "bayes, two chains": lambda jobs: fitted_rows(bayesian(jobs, chains=2), more=sampled),
    "bayes, tolerance": lambda jobs: fitted_rows(
        bayesian(jobs, tolerance=0.5, sweeps=80), more=sampled
    ),
    "bayes, given validation": lambda jobs: fitted_rows(
        bayesian(jobs),
        RATINGS.part(slice(2000)),
        validation=RATINGS.part(slice(2000, None)).observed(),
    ),
    "bayes, 3 modes": lambda jobs: fitted_cells(bayesian(jobs), TENSOR, about_training),
    "bayes, 4 modes": lambda jobs: fitted_cells(
        bayesian(jobs, deviation="constant"), TENSOR4, about_training
    ),
    "bayes, from a checkpoint": lambda jobs: taken_up(bayesian(jobs), RATINGS, 14),
    "bayes, interrupted": lambda jobs: interrupted(bayesian(jobs), RATINGS, 16),
    "bayes, many cells": lambda jobs: many_cells(bayesian(jobs, samples=3)),
    "bayes, large": lambda jobs: fitted_cells(
        bayesian(jobs, rank=40, sweeps=6, burn_in=2, samples=3, implicit=True), large()
    ),
    # Robust models and networks
    "huber": lambda jobs: fitted_rows(huber(jobs), more=weighed),
    "huber, other numbers": lambda jobs: fitted_rows(
        huber(jobs, k=2.0, scale_floor=0.3, patience=None), more=weighed
    ),
    "trimmed": lambda jobs: fitted_rows(trimmed(jobs), more=found_outliers),
    "trimmed, patience None": lambda jobs: fitted_rows(
        trimmed(jobs, patience=None, outliers=0.01), more=found_outliers
    ),
    "robust bayes": lambda jobs: fitted_rows(robust(jobs)),
    "robust bayes, patience None": lambda jobs: fitted_rows(
        robust(jobs, patience=None, max_precision=3.0)
    ),
    "robust bayes, large": lambda jobs: fitted_cells(
        robust(jobs, epochs=4), large().part(slice(9000))
    ),
    "llorma": lambda jobs: fitted_cells(llorma(jobs), RATINGS, about_training),
    "llorma, quadratic kernel": lambda jobs: fitted_cells(
        llorma(jobs, kernel="quadratic", bandwidth=2.0), RATINGS, about_training
    ),
    "llorma, global loss": lambda jobs: fitted_cells(
        llorma(jobs, loss="global", patience=None), RATINGS, about_training
    ),
    "autorec": lambda jobs: fitted_rows(autorec(jobs)),
    "autorec, of users": lambda jobs: fitted_rows(autorec(jobs, orientation="user")),
    "autorec, lbfgs": lambda jobs: fitted_rows(
        autorec(jobs, optimizer="lbfgs", presence=0.0, balance=0.0, patience=None)
    ),
    "autorec, large": lambda jobs: fitted_cells(
        autorec(jobs, hidden=60, epochs=6), large().part(slice(20_000))
    ),
    "rbm": lambda jobs: fitted_cells(rbm(jobs), STARS, lambda m: about_training(m) | proba(m)),
    "rbm, of items": lambda jobs: fitted_cells(
        rbm(jobs, orientation="item", patience=None),
        STARS,
        lambda m: about_training(m) | proba(m),
    ),
    "rbm, large": lambda jobs: fitted_cells(
        rbm(jobs, hidden=60, epochs=4, batch=200), in_stars(large().part(slice(20_000)))
    ),
    # Sensors
    "temporal": lambda jobs: fitted_series(temporal(jobs)),
    "temporal, heavy tails": lambda jobs: fitted_series(temporal(jobs, tails="heavy")),
    "temporal, no factors": lambda jobs: fitted_series(temporal(jobs, rank=0)),
    "temporal, one type": lambda jobs: fitted_series(temporal(jobs, sensor=None)),
    "temporal, 2 modes": lambda jobs: fitted_series(temporal(jobs), two_modes()),
    "temporal, dates": lambda jobs: fitted_series(temporal(jobs), dated()),
    "temporal, tolerance": lambda jobs: fitted_series(temporal(jobs, tolerance=0.5, sweeps=150)),
    "temporal, given validation": lambda jobs: fitted_series(
        temporal(jobs),
        SENSORS.part(slice(400)),
        validation=SENSORS.part(slice(400, None)).observed(),
    ),
    "temporal, from a checkpoint": lambda jobs: taken_up(temporal(jobs), SENSORS, 12),
    "temporal, interrupted": lambda jobs: interrupted(temporal(jobs), SENSORS, 16),
    "temporal, many cells": lambda jobs: many_cells(temporal(jobs, samples=3), SENSORS),
    "noise_model": lambda jobs: before_and_after(
        nw.noise_model(SENSORS.cells, SENSORS.values, random_state=SEED, n_jobs=jobs), about_series
    ),
    "residual": lambda jobs: fitted_cells(residual(jobs), SENSORS),
    "residual, sampled": lambda jobs: fitted_cells(residual(jobs, bayesian(jobs)), SENSORS),
    "residual, deviation": lambda jobs: fitted_cells(
        residual(jobs, of_tensor(jobs, "DTF")), SENSORS
    ),
    "residual of type, deviation": lambda jobs: fitted_cells(
        residual(jobs, of_tensor(jobs, "DTF"), base="type"), SENSORS
    ),
    "residual of type, constant noise": lambda jobs: fitted_cells(
        residual(jobs, of_tensor(jobs, "PTF"), base="type"), SENSORS
    ),
    "residual, given validation": lambda jobs: fitted_cells(
        residual(jobs, bayesian(jobs)),
        SENSORS.part(slice(400)),
        validation=SENSORS.part(slice(400, None)).observed(),
    ),
    "smoother": lambda jobs: fitted_cells(nw.OUSmoother(n_jobs=jobs), SENSORS, smoothed),
    "smoother, one type": lambda jobs: fitted_cells(
        nw.OUSmoother(sensor=None, value_range=None, n_jobs=jobs), SENSORS, smoothed
    ),
    "smoother, dates": lambda jobs: fitted_cells(nw.OUSmoother(n_jobs=jobs), dated()),
    "smoother, many cells": lambda jobs: many_cells(nw.OUSmoother(n_jobs=jobs), SENSORS),
    "interpolator": lambda jobs: fitted_cells(nw.LinearInterpolator(n_jobs=jobs), SENSORS, alone),
    "interpolator, 2 modes": lambda jobs: fitted_cells(
        nw.LinearInterpolator(n_jobs=jobs), two_modes()
    ),
    "neighbours": lambda jobs: fitted_cells(
        elsewhere("SpatialNeighbours")(WHERE, n_jobs=jobs), SENSORS
    ),
    "neighbours, inverse distances": lambda jobs: fitted_cells(
        elsewhere("SpatialNeighbours")(WHERE, power="auto", n_jobs=jobs), SENSORS
    ),
    "neighbours, two": lambda jobs: fitted_cells(
        elsewhere("SpatialNeighbours")(WHERE, n_neighbours=2, power=1.5, n_jobs=jobs), SENSORS
    ),
    "neighbours, many cells": lambda jobs: many_cells(
        elsewhere("SpatialNeighbours")(WHERE, n_jobs=jobs), SENSORS
    ),
    "tucker": lambda jobs: fitted_cells(tucker(jobs), SENSORS, cored),
    "tucker, ranks": lambda jobs: fitted_cells(
        tucker(jobs, rank=(3, 2, 4), patience=None, sensor=None), SENSORS, cored
    ),
    "type mean": lambda jobs: fitted_cells(elsewhere("TypeMean")(), SENSORS, alone),
    "table imputer, knn": lambda jobs: fitted_cells(
        elsewhere("TableImputer")("knn", random_state=SEED), SENSORS, tabled
    ),
    "table imputer, knn, alike": lambda jobs: fitted_cells(
        elsewhere("TableImputer")("knn", weights="uniform", n_neighbours=3, random_state=SEED),
        SENSORS,
    ),
    "table imputer, iterative": lambda jobs: fitted_cells(
        elsewhere("TableImputer")("iterative", iterations=2, n_nearest=4, random_state=SEED),
        SENSORS,
        tabled,
    ),
    "auto, two": lambda jobs: fitted_cells(auto(jobs, ["linear", "ou"]), SENSORS, chosen),
    "auto, named and given": lambda jobs: fitted_cells(
        auto(jobs, ["ou", ("own", temporal(jobs)), ("sampled", bayesian(jobs))]), SENSORS, chosen
    ),
    "auto, all": lambda jobs: fitted_cells(auto(jobs, None), two_modes(), chosen),
    "by name, bayes": lambda jobs: fitted_cells(
        sensor_model(jobs, "bayes", rank=2, sweeps=10, burn_in=4), SENSORS
    ),
    "by name, fast": lambda jobs: fitted_cells(
        sensor_model(jobs, "fast", rank=2, sweeps=10, burn_in=4), SENSORS
    ),
    "by name, ou": lambda jobs: fitted_cells(sensor_model(jobs, "ou"), SENSORS),
    "by name, linear": lambda jobs: fitted_cells(sensor_model(jobs, "linear"), SENSORS),
    "by name, dtf": lambda jobs: fitted_cells(sensor_model(jobs, "dtf", epochs=4), SENSORS),
    "by name, ptf": lambda jobs: fitted_cells(sensor_model(jobs, "ptf", epochs=4), SENSORS),
    "by name, tucker": lambda jobs: fitted_cells(sensor_model(jobs, "tucker", epochs=4), SENSORS),
    "by name, knn": lambda jobs: fitted_cells(sensor_model(jobs, "knn", WHERE), SENSORS),
    "by name, idw": lambda jobs: fitted_cells(sensor_model(jobs, "idw", WHERE), SENSORS),
    "by name, knn-imputer": lambda jobs: fitted_cells(sensor_model(jobs, "knn-imputer"), SENSORS),
    "by name, iterative-imputer": lambda jobs: fitted_cells(
        sensor_model(jobs, "iterative-imputer", iterations=2), SENSORS
    ),
    "by name, auto": lambda jobs: fitted_cells(
        sensor_model(jobs, "auto", candidates=("linear", "ou")), SENSORS
    ),
    # Imputer
    "imputer, array": lambda jobs: filled(imputer(jobs), holed(), holed()[:50]),
    "imputer, array, rows that came later": lambda jobs: filled(
        imputer(jobs), holed()[:60], holed()[40:]
    ),
    "imputer, array, no refit": lambda jobs: filled(
        imputer(jobs, refit=False), holed()[:60], holed()[60:]
    ),
    "imputer, array of 3 dimensions": lambda jobs: filled(
        imputer(jobs), np.moveaxis(grid().to_numpy(), 1, -1)
    ),
    "imputer, wide frame": lambda jobs: filled(imputer(jobs), wide(), wide().iloc[20:70]),
    "imputer, wide frame, named": lambda jobs: filled(
        imputer(
            jobs,
            location={name: name.split("/")[0] for name in SERIES},
            sensor={name: name.split("/")[1] for name in SERIES},
        ),
        wide(),
    ),
    "imputer, wide frame of levels": lambda jobs: filled(imputer(jobs), wide_of_levels()),
    "imputer, wide frame of polars": lambda jobs: filled(
        imputer(jobs, time="when"), pl.from_pandas(wide().reset_index(names="when"))
    ),
    "imputer, long frame": lambda jobs: filled(imputer(jobs, **LONG), long(), long().iloc[::3]),
    "imputer, long frame of arrow": lambda jobs: filled(
        imputer(jobs, **LONG), pa.Table.from_pandas(long())
    ),
    "imputer, xarray": lambda jobs: filled(imputer(jobs), grid()),
    "imputer, dataset of xarray": lambda jobs: filled(imputer(jobs), dataset()),
    "imputer, bayes": lambda jobs: filled(
        imputer(jobs, "bayes", settings={"rank": 2, "sweeps": 12, "burn_in": 4}), wide_of_levels()
    ),
    "imputer, fast": lambda jobs: filled(
        imputer(jobs, "fast", settings={"rank": 2, "sweeps": 12, "burn_in": 4}), wide_of_levels()
    ),
    "imputer, dtf": lambda jobs: filled(
        imputer(jobs, "dtf", settings={"epochs": 4}), wide_of_levels()
    ),
    "imputer, knn-imputer": lambda jobs: filled(imputer(jobs, "knn-imputer"), wide()),
    "imputer, auto": lambda jobs: filled(
        imputer(jobs, "auto", settings={"candidates": ("linear", "ou")}), wide()
    ),
}


# ------------------------------------------------------------------- readers, splits, metrics, data


def seen(observations: Any) -> list[Any]:
    """Return what was observed, without the names of the modes."""
    ids = [as_text(one.labels) for one in observations.ids]
    return [list(observations.codes), observations.values, ids, observations.time]


def of_files(files: dict[str, str | bytes], *asks: Callable[[Path], Any]) -> Digests:
    """Write files into a folder, and ask about them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in files.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
        return digests_of({f"{k}": ask(folder) for k, ask in enumerate(asks)})


def lines(separator: str, head: str = "", rows: int = 400) -> str:
    """Return ratings of users and items as lines of numbers."""
    numbers = (
        (user[1:], item[1:], f"{stars:.0f}", str(when))
        for (user, item), stars, when in zip(STARS.cells, STARS.values, TIMES, strict=True)
    )
    return head + "".join(separator.join(row) + "\n" for row in list(numbers)[:rows])


def text_columns() -> dict[str, Any]:
    users, items = ([cell[k] for cell in RATINGS.cells[:300]] for k in (0, 1))
    return {"user": users, "item": items, "rating": RATINGS.values[:300], "timestamp": TIMES[:300]}


def csv(separator: str = ",", **more: Any) -> str:
    return pd.DataFrame(text_columns() | more).to_csv(sep=separator, index=False)


def packed_csv() -> bytes:
    return gzip.compress(csv().encode())


def read_tables() -> Digests:
    """Read Parquet and npz, which are written with the file closed."""
    columns = text_columns()
    codes = np.arange(300, dtype=np.int32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parquet.write_table(pa.table(columns), folder / "ratings.parquet")
        np.savez(
            folder / "ratings.npz", user=codes % 17, item=codes // 17, rating=codes % 9 + 1,
            user_id=[f"u{k}" for k in range(17)], rating_scale=0.5, when=TIMES[:300],
        )  # fmt: skip
        np.savez(
            folder / "sensors.npz", loc=codes % 5, sensor=codes // 5 % 2, time=codes // 10,
            value=columns["rating"], site_code=list("ABCDE"), sensor_name=["heat", "damp"],
            time_origin="1993-01-01 (days)", coords_latlon=51.5 + np.arange(10).reshape(5, 2) / 99,
        )  # fmt: skip
        np.savez(folder / "named.npz", a=codes % 30, b=codes // 30, c=codes % 4, y=codes / 7)
        sensors = nw.read(folder / "sensors.npz")
        data = elsewhere("read_sensors")(folder / "sensors.npz")
        return digests_of(
            {
                "parquet": seen(nw.read(folder / "ratings.parquet")),
                "parquet, time": seen(nw.read(folder / "ratings.parquet", time="timestamp")),
                "npz": seen(nw.read(folder / "ratings.npz")),
                "npz, time": seen(nw.read(folder / "ratings.npz", time="when")),
                "npz of sensors": seen(sensors),
                "npz of sensors, whole": about_places(data),
                "npz, named": seen(nw.read(folder / "named.npz", ids=["a", "b", "c"], value="y")),
            }
        )


def about_places(data: Any) -> list[Any]:
    places = data.coordinates or {}
    counts = list(data.report.values())
    where = as_text(places), list(places.values())
    return [seen(data.observations), where, data.seconds, counts, data.elapsed()]


def sensors_read(folder: Path) -> list[Any]:
    return about_places(elsewhere("read_sensors")(folder))


LAB = "".join(
    f"2004-02-28 0{k % 9}:58:{k % 50 + 10}.5 {k // 3 + 2} {k % 3 + 1} {19 + k / 8} {38 - k / 16} "
    f"{'' if k % 7 == 0 else 45 + k} {2.5 + k / 512}\n"
    for k in range(60)
)
LONDON = "Site,Species,ReadingDateTime,Value,Units,Provisional or Ratified\n" + "".join(
    f"MY1,{kind},{day:02}/07/2002 00:00,{'' if day % 5 == 0 else day * scale},ug m-3,R\n"
    for kind, scale in (("NO2", 3.5), ("CO", 0.25))
    for day in range(1, 29)
)
SITES = "@SiteCode,@SiteName,@Latitude,@Longitude\nMY1,Marylebone Road,51.52254,-0.15459\n"
NETFLIX = "".join(
    f"{movie}:\n"
    + "".join(
        f"{user * 37 + 6},{(user * movie) % 5 + 1},200{movie}-0{user % 9 + 1}-11\n"
        for user in range(1, 30, movie)
    )
    for movie in (1, 2, 3)
)


def gapped_files() -> dict[str, bytes]:
    """Return a wide and a long table with gaps in every format there is."""
    tables = {
        "wide": wide().reset_index(names="time"),
        "long": long().rename(
            columns={"place": "location", "kind": "sensor", "when": "time", "reading": "value"}
        ),
    }
    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, table in tables.items():
            files[f"{name}.csv"] = table.to_csv(index=False, float_format="%.6f").encode()
            files[f"{name}.tsv"] = table.to_csv(index=False, sep="\t", float_format="%.6f").encode()
            files[f"{name}.csv.gz"] = gzip.compress(files[f"{name}.csv"])
            path = Path(folder, name)
            parquet.write_table(pa.Table.from_pandas(table, preserve_index=False), path)
            files[f"{name}.parquet"] = path.read_bytes()
        for name, data in {"dataset.nc": dataset(), "grid.nc": grid().to_dataset(name="y")}.items():
            path = Path(folder, name)
            data.to_netcdf(path)
            files[name] = path.read_bytes()
    return files


def read_back(path: Path) -> Any:
    """Read a table of any format without noisewise."""
    if path.suffix == ".nc":
        with xr.open_dataset(path) as data:
            return _numbers(data.load())
    if path.suffix == ".parquet":
        return _numbers(parquet.read_table(path))
    return _numbers(pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ","))


def gaps_filled(file: str, **layout: Any) -> Digests:
    """Read a file with gaps, fill it by hand and by a model, and read what was written."""

    def table(folder: Path) -> Any:
        return _numbers(elsewhere("read_gapped")(folder / file, **layout).table)

    def written(folder: Path) -> Any:
        gapped = elsewhere("read_gapped")(folder / file, **layout)
        model = imputer(1, "linear", **gapped.options)
        paths = gapped.write(
            folder / f"by hand {file}", *model.fit_transform(gapped.table, return_std=True)
        )
        return [read_back(path) for path in paths]

    def observed(folder: Path) -> Any:
        known, group = elsewhere("read_readings")(folder / file, **layout)
        return [seen(known), group]

    def whole(folder: Path) -> Any:
        out = folder / f"filled {file}"
        report = elsewhere("fill_file")(folder / file, out, method="ou", seed=SEED, **layout)
        counts = [report["readings"], report["filled"], report["left"]]
        return [counts, [read_back(Path(path)) for path in report["written"]]]

    return of_files({file: gapped_files()[file]}, table, written, observed, whole)


def split(name: str, *given: Any, **settings: Any) -> Any:
    parts = elsewhere(name)(*given, **settings)
    return [parts.train, parts.validation, parts.test, parts.fit]


def splits_of(name: str, *given: Any, **settings: Any) -> Digests:
    """Split by three seeds."""
    return digests_of(
        {f"seed {seed}": split(name, *given, **settings, seed=seed) for seed in (0, 1, 2)}
    )


def random_splits() -> Digests:
    cases = [(50, 0.1), (101, 0.25)]
    return digests_of(
        {
            f"{n}, seed {seed}": elsewhere("random_split")(n, share, np.random.default_rng(seed))
            for n, share in cases
            for seed in (0, 1, 2)
        }
    )


@cache
def rated() -> Any:
    return RATINGS.observed()


@cache
def readings() -> Any:
    return SENSORS.observed()


class Judged:
    """Fixed truths and predictions of them."""

    rng = np.random.default_rng(SEED)
    std = rng.uniform(0.3, 1.5, 500)
    mean = rng.normal(3, 1, 500)
    truth = rng.normal(mean, std)
    low, high = mean - 1.5 * std, mean + 1.4 * std
    stars = np.clip(np.rint(truth), 1, 5)
    levels = np.arange(1.0, 6.0)
    ranked, relevant = list(range(40)), [3, 5, 8, 13, 21, 55]
    a, b = rng.normal(0.9, 0.01, 8), rng.normal(0.91, 0.01, 8)


def metrics_of(*asks: tuple[str, tuple[Any, ...]]) -> Digests:
    """Ask metrics by their names; digests are numbered."""
    found = [metric(name)(*given) for name, given in asks]
    return digests_of({f"{k}": rounded(one) for k, one in enumerate(found)})


def made_up(**settings: Any) -> Digests:
    ratings = elsewhere("make_ratings")(**settings)
    return digests_of(
        {
            "observations": seen(ratings.observations),
            "truth": [ratings.true_mean, ratings.true_std],
            "part": seen(ratings.take(slice(10, 60)).observations),
        }
    )


def observed_tables() -> Digests:
    """Observe tables of all kinds."""
    frame = pd.DataFrame(RATINGS.cells, columns=["user", "item"]).assign(rating=RATINGS.values)
    again = repeated()
    few = RATINGS.part(slice(50)).observed()
    return digests_of(
        {
            "rows": seen(
                nw.observe([(*c, v) for c, v in zip(RATINGS.cells, RATINGS.values, strict=True)])
            ),
            "pandas": seen(nw.observe(frame)),
            "polars": seen(nw.observe(pl.from_pandas(frame))),
            "arrow": seen(nw.observe(pa.Table.from_pandas(frame))),
            "sparse": seen(nw.observe(sparse())),
            "array": seen(nw.observe(np.argwhere(np.ones((5, 4, 3))), np.arange(60) / 7)),
            "last": seen(nw.observe(again.cells, again.values, duplicates="last")),
            "mean": seen(nw.observe(again.cells, again.values, duplicates="mean")),
            "time": seen(nw.observe(STARS.cells, STARS.values, time=TIMES)),
            "ids": seen(nw.observe(RATINGS.cells, RATINGS.values, ids=few.ids)),
            "take": seen(rated().take(slice(5, 25))),
            "decode": [as_text(cell) for cell in rated().decode(slice(30))],
            "shape": [rated().shape, len(rated()), rated().n_modes],
        }
    )


def numbered() -> Digests:
    """Number ids of all kinds."""
    kinds = {
        "text": ["b", "a", "b", "c"],
        "integers": np.array([5, 2, 2, 9]),
        "far apart": np.array([5, 2, 10**12, 2]),
        "floats": np.array([2.5, 1.0, 2.5]),
        "mixed": ["a", 1, "1", 1],
    }
    answers: Answers = {}
    for name, column in kinds.items():
        ids, codes = nw.Ids.encode(column, "id")
        more, new = ids.extend([*list(column)[:2], 77])
        found = ids.lookup([*list(column)[:2], 77])
        answers[name] = [as_text(ids.labels), codes, found, as_text(more.labels), new]
    return digests_of(answers)


def intervals() -> Digests:
    rng = np.random.default_rng(SEED)
    answers: Answers = {}
    for n in (3, 50, 5000):
        one = nw.Calibration.measure(rng.normal(0, 2, n), rng.uniform(0.5, 2, n))
        reach = [one.half_width(coverage) for coverage in (0.1, 0.5, 0.9, 0.99, 0.9999)]
        answers[f"{n}"] = [one.scale, one.scores, one.n, reach]
    return digests_of(answers)


J = Judged
OTHERS: dict[str, Callable[[], Digests]] = {
    "regressor": lambda: regressed(),
    "regressor, constant noise": lambda: regressed(deviation="constant"),
    "regressor, through zero": lambda: regressed(fit_intercept=False, delta=0.1),
    "regressor, known noise": lambda: regressed("std"),
    "observe": observed_tables,
    "ids": numbered,
    "calibration": intervals,
    "read MovieLens 100K": lambda: of_files(
        {"u.data": lines("\t")},
        lambda folder: seen(nw.read(folder)),
        lambda folder: seen(nw.read(folder / "u.data", time="timestamp")),
    ),
    "read MovieLens 1M": lambda: of_files(
        {"ratings.dat": lines("::"), "packed/ratings.dat.gz": gzip.compress(lines("::").encode())},
        lambda folder: seen(nw.read(folder / "ratings.dat", time="timestamp")),
        lambda folder: seen(nw.read(folder / "packed")),
    ),
    "read MovieLens 20M": lambda: of_files(
        {"ratings.csv": lines(",", "userId,movieId,rating,timestamp\n")},
        lambda folder: seen(nw.read(folder, time="timestamp")),
    ),
    "read Netflix": lambda: of_files(
        {"combined_data_1.txt": NETFLIX},
        lambda folder: seen(nw.read(folder)),
        lambda folder: seen(nw.read(folder / "combined_data_1.txt", time="date")),
    ),
    "read CSV": lambda: of_files(
        {"a.csv": csv(), "b.csv": csv(";"), "c.csv": csv(note="so, so"), "d.csv.gz": packed_csv()},
        lambda folder: seen(nw.read(folder / "a.csv")),
        lambda folder: seen(nw.read(folder / "a.csv", time="timestamp")),
        lambda folder: seen(nw.read(folder / "b.csv")),
        lambda folder: seen(
            nw.read(folder / "c.csv", ids=["item", "note", "user"], value="timestamp")
        ),
        lambda folder: seen(nw.read(folder / "d.csv.gz", ids=[1, 0], value=2)),
    ),
    "read CSV, duplicates": lambda: of_files(
        {"a.csv": csv() + csv(rating=RATINGS.values[300:600]).split("\n", 1)[1]},
        lambda folder: seen(nw.read(folder / "a.csv", duplicates="last")),
        lambda folder: seen(nw.read(folder / "a.csv", duplicates="mean")),
    ),
    "read TSV": lambda: of_files(
        {"a.tsv": csv("\t"), "b.tsv": lines("\t")},
        lambda folder: seen(nw.read(folder / "a.tsv")),
        lambda folder: seen(nw.read(folder / "b.tsv")),
    ),
    "read text": lambda: of_files(
        {"a.txt": lines("::"), "b.dat": lines(",")},
        lambda folder: seen(nw.read(folder / "a.txt")),
        lambda folder: seen(nw.read(folder / "b.dat", ids=[1, 0], value=2, time=3)),
        lambda folder: seen(nw.read(folder / "b.dat", format="csv")),
    ),
    "read Parquet and npz": read_tables,
    "read Intel lab": lambda: of_files(
        {"data.txt": LAB, "mote_locs.txt": "1 21.5 23\n2 24.5 20\n3 19.5 19\n"},
        lambda folder: seen(nw.read(folder)),
        sensors_read,
    ),
    "read London": lambda: of_files(
        {"MY1.csv": LONDON, "sites.csv": SITES}, lambda folder: seen(nw.read(folder)), sensors_read
    ),
    "gaps, wide CSV": lambda: gaps_filled("wide.csv"),
    "gaps, wide CSV, separator": lambda: gaps_filled("wide.csv", separator="/"),
    "gaps, wide TSV": lambda: gaps_filled("wide.tsv"),
    "gaps, wide Parquet": lambda: gaps_filled("wide.parquet"),
    "gaps, long CSV": lambda: gaps_filled("long.csv"),
    "gaps, long CSV, packed": lambda: gaps_filled("long.csv.gz"),
    "gaps, long CSV, complete": lambda: gaps_filled("long.csv", complete=True),
    "gaps, long TSV": lambda: gaps_filled("long.tsv"),
    "gaps, long Parquet": lambda: gaps_filled("long.parquet"),
    "gaps, NetCDF": lambda: gaps_filled("dataset.nc"),
    "gaps, NetCDF, one variable": lambda: gaps_filled("grid.nc", value="y", sensor="sensor"),
    "split, ratings": lambda: splits_of("rating_split", 1003),
    "split, by user": lambda: splits_of("split_by_user", rated().codes[0]),
    "split, by item": lambda: splits_of(
        "split_by_user", rated().codes[1], test=0.2, validation=0.15
    ),
    "split, by time": lambda: digests_of(
        {
            "table": split("split_by_time", TIMES),
            "shares": split("split_by_time", TIMES, test=0.3, validation=0.2),
            "users": split("split_by_time", TIMES, users=rated().codes[0]),
        }
    ),
    "split, random": random_splits,
    "split, share": lambda: splits_of("share_split", readings().shape, readings().codes, share=0.3),
    "split, blocks": lambda: splits_of(
        "block_split",
        readings().codes[:2],
        readings().ids[2].labels[readings().codes[2]],
        length=20,
        share=0.2,
    ),
    "metrics of the mean": lambda: metrics_of(
        ("rmse", (J.truth, J.mean)), ("mse", (J.truth, J.mean)), ("mae", (J.truth, J.mean))
    ),
    "metrics of the std": lambda: metrics_of(
        ("nll", (J.truth, J.mean, J.std)),
        ("constant_nll", (J.truth, J.mean, J.truth[:50] - J.mean[:50])),
        ("crps", (J.truth, J.mean, J.std)),
        ("rating_log_loss", (J.stars, J.mean, J.std, J.levels)),
        ("sharpness", (J.std,)),
        ("calibration_curve", (J.truth, J.mean, J.std, np.linspace(0.05, 0.95, 19))),
        ("miscalibration_area", (J.truth, J.mean, J.std)),
        ("ence", (J.truth, J.mean, J.std)),
        ("ence", (J.truth, J.mean, J.std, 4)),
    ),
    "metrics of intervals": lambda: metrics_of(
        ("coverage", (J.truth, J.low, J.high)),
        ("width", (J.low, J.high)),
        ("interval_score", (J.truth, J.low, J.high, 0.85)),
    ),
    "metrics of rankings": lambda: metrics_of(
        ("spearman", (J.truth, J.mean, J.std)),
        ("error_auc", (J.truth, J.mean, J.std)),
        ("error_auc", (J.truth, J.mean, J.std, 0.5)),
        ("ause", (J.truth, J.mean, J.std)),
        ("ause", (J.truth, J.mean, J.std.round(1))),
        ("rpi", (J.truth, J.mean, J.std)),
        ("ndcg_at", (J.ranked, J.relevant, 10)),
        ("recall_at", (J.ranked, J.relevant, 10)),
    ),
    "metrics, all at once": lambda: metrics_of(
        ("evaluate", (J.truth, J.mean)),
        ("evaluate", (J.truth, J.mean, J.std)),
        ("evaluate", (J.truth, J.mean, J.std, J.low, J.high, 0.85)),
    ),
    "metrics over splits": lambda: metrics_of(
        ("summarise", (J.a,)),
        ("summarise", (J.a, 0.1)),
        ("paired_test", (J.a, J.b)),
        ("paired_test", (J.a, J.b, 0.1)),
    ),
    "made-up ratings": lambda: made_up(n_users=60, n_items=40),
    "made-up ratings, other settings": lambda: made_up(
        n_users=50, n_items=70, density=0.3, rank=2, deviation_rank=0, noise=0.5, seed=3
    ),
    "made-up points": lambda: digests_of(
        {
            "same": elsewhere("draw_points")(0),
            "growing": elsewhere("draw_points")(1, 50, growing=True),
        }
    ),
}


# ------------------------------------------------------------------------------------------ running


def run(name: str) -> tuple[Digests, Digests, list[str]]:
    """Run a case.

    Returns its digests, those of the model from a file, and what is not the same for two threads or
    from a file.
    """
    if name in OTHERS:
        return OTHERS[name](), {}, []
    runs = {jobs: MODELS[name](jobs) for jobs in THREADS}
    first = runs[THREADS[0]]
    flags = []
    for jobs, answers in runs.items():
        for when, found in answers.items():
            told = f"{when}, {jobs} thread{'s' * (jobs > 1)}"
            flags += [
                f"{told}: {asked}" for asked, d in first["fitted"].items() if found[asked] != d
            ]
    return first["fitted"], first["loaded"], flags


def run_all(names: list[str]) -> dict[str, Any]:
    """Run cases, and print a line for each; one that fails does not stop the others.

    A line has the digest of the first answer, mostly of predictions with their std, that of the
    same answer from a file, and one of all answers.
    """
    results: dict[str, Any] = {}
    for name in names:
        started = time.process_time()
        flags: list[str] = []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found, loaded, flags = run(name)
            results[name] = {"digests": found, "flags": flags}
            asked = next(iter(found))
            told = f"{found[asked]} {loaded.get(asked, '-' * 16)} {digest(list(found.values()))}"
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
            results[name] = {"failed": text}
            told = f"failed: {text}"
        seconds = time.process_time() - started
        print(f"{name:43} {told} {seconds:5.1f} s", *flags, sep="\n    not the same: ", flush=True)
    return results


def in_a_new_process(names: list[str]) -> dict[str, Any]:
    """Run cases where no kernel was compiled just now."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run_all, names).result()


def only(expected: dict[str, Any], name: str) -> dict[str, Any]:
    return {name: expected[name]} if name in expected else {}


def is_error(name: str) -> bool:
    """Tell whether a public name is that of an exception."""
    public = getattr(nw, name)
    return isinstance(public, type) and issubclass(public, BaseException)


def compare(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Say what is not as in the file."""
    wrong = []
    for name, kept in expected.items():
        case = found.get(name)
        if case is None:
            wrong.append(f"{name}: missing")
            continue
        if "failed" in case or "failed" in kept:
            wrong.append(f"{name}: failed: {case.get('failed', 'in the file only')}")
            continue
        for asked, before in kept["digests"].items():
            now = case["digests"].get(asked)
            if now != before:
                wrong.append(f"{name}: {asked} {'is missing' if now is None else 'differs'}")
        wrong += [f"{name}: {flag}" for flag in case["flags"] if flag not in kept["flags"]]
    return wrong


def main() -> int:
    """Write digests, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--write", type=Path, metavar="FILE", help="write digests")
    task.add_argument("--check", type=Path, metavar="FILE", help="compare with digests")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="check only such cases")
    given = parser.parse_args()
    if given.write and given.only:
        parser.error("--only goes with --check.")
    names = [name for name in (*MODELS, *OTHERS) if given.only in name]
    results = run_all(names)
    if given.write:
        print("Once more, with what was compiled read from files:")
        first, results = results, in_a_new_process(names)
        for line in compare(first, results):
            print(f"In the first run only: {line}")
        given.write.write_text(json.dumps(results, indent=1) + "\n")
        wrong = [
            f"{n}: failed: {case['failed']}" for n, case in results.items() if "failed" in case
        ]
        told = "No case failed."
    else:
        expected = json.loads(given.check.read_text())
        expected = {name: case for name, case in expected.items() if given.only in name}
        suspect = [n for n in names if compare({n: results[n]}, only(expected, n))]
        if suspect:
            print(
                *compare({n: results[n] for n in suspect}, {n: expected[n] for n in suspect}),
                sep="\n",
            )
            print("These once more, with what was compiled read from files:")
            results |= in_a_new_process(suspect)
        wrong, told = compare(results, expected), "All the same."
        for name in sorted(results.keys() - expected.keys()):
            print(f"{name}: is not in the file, and was compared with nothing")
    print(f"{len(results)} cases; {time.process_time():.0f} s of processor time in the first run")
    source = Path(__file__).read_text()
    unused = [name for name in nw.__all__ if f"nw.{name}" not in source and not is_error(name)]
    if unused:
        print(f"No case uses the public {', '.join(unused)}.")
    print(*wrong, f"{len(wrong)} wrong" if wrong else told, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
