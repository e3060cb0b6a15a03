"""New observations taken into every kept draw: rows that changed, given everything else.

A kept draw has rows, noise, prior and implicit sets. New observations change the conditional of the
rows that they are of. These rows and their noise are drawn anew, mode by mode and a few times, from
the conditionals that a sweep has, given all their observations, old and new. Priors stay as they
are in the draw; what a new id would add to the sets of others is taken to be zero, its prior mean.

A row of thousands of observations costs as much as they are, and a few new ones hardly move it. It
waits until they are a share of all that it has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from noisewise.engine.arrays import Codes, Counts, Floats
from noisewise.engine.data import Data
from noisewise.engine.gibbs import newcomers
from noisewise.engine.gibbs.posterior import RatingPosterior
from noisewise.engine.gibbs.steps.ordinal import draw_levels
from noisewise.engine.gibbs.steps.regression import feature_part
from noisewise.engine.gibbs.steps.rows import EXACT_FROM, NO_EFFECTS, draw_rows, means
from noisewise.engine.gibbs.steps.variances import draw_noise, roots
from noisewise.engine.gibbs.sweep import UPDATE, Snapshot, key
from noisewise.engine.training import in_threads, one_blas_thread

CHEAP = 10  # observations to visit for every new one: up to these, no row has to wait
MOST_LOOKED = 20_000  # observations that show what average rows are like
SHARE = 0.05  # of a row's observations that are new, from which it waits no longer


class Changed(NamedTuple):
    """The rows of a mode that are drawn anew, with all their observations."""

    mode: int
    rows: Codes
    data: Data
    weight: Floats  # root of the weight of every observation
    sets: Any  # of the rows, as a sparse matrix of shares; None without implicit sets
    side: Any = None  # features of the rows, as a sparse matrix; None without


def due_rows(counts: Counts, waiting: Counts, n_new: int) -> Codes:
    """Return rows to draw anew: those that changed, or enough of them that have changed enough.

    Examples
    --------
    >>> due_rows(np.array([1000, 10, 5]), np.array([1, 2, 0]), n_new=3).tolist()
    [1]
    >>> due_rows(np.array([20, 10, 5]), np.array([1, 2, 0]), n_new=3).tolist()
    [0, 1]
    """
    changed = np.flatnonzero(waiting)
    if counts[changed].sum() > CHEAP * n_new:
        changed = changed[waiting[changed] >= SHARE * counts[changed]]
    return changed.astype(np.int32)


def changed_rows(
    mode: int,
    rows: Codes,
    codes: tuple[Codes, ...],
    values: Floats,
    weight: Floats,
    shape: tuple[int, ...],
    implicit: bool,
) -> Changed:
    """Arrange all observations of some rows of a mode; values are standardised."""
    chosen = np.isin(codes[mode], rows)
    own = tuple(code[chosen] for code in codes)
    data, order = Data.arrange(own, values[chosen], shape)
    sets = None
    if implicit:
        place = np.full(shape[mode], -1)
        place[rows] = np.arange(len(rows))
        share = 1.0 / np.sqrt(np.bincount(own[mode], minlength=shape[mode])[own[mode]])
        cells = place[own[mode]], own[1 - mode]
        sets = scipy.sparse.csr_array(
            (share.astype(np.float32), cells), shape=(len(rows), shape[1 - mode])
        )
    return Changed(mode, rows, data, np.sqrt(weight[chosen][order]), sets)


def updated(
    posterior: RatingPosterior,
    shape: tuple[int, ...],
    counts: tuple[Counts, ...],
    codes: tuple[Codes, ...],
    changed: list[Changed],
    sweeps: int,
    n_jobs: int,
) -> RatingPosterior:
    """Return a posterior whose draws know the new observations of the rows that changed."""
    draws = grown(posterior, shape)
    places = _some(codes, shape)
    seen = sum(int(count.sum()) for count in counts)  # tells one update from the next

    def update(number: int) -> None:
        one = {name: array[number] for name, array in draws.items()}
        _update(posterior, one, counts, changed, places, sweeps, (UPDATE, seen, number))

    with one_blas_thread():
        in_threads(update, range(len(posterior)), n_jobs)
    scale, cold = posterior.scale, posterior.cold
    return RatingPosterior(posterior.spec, shape, counts, draws, scale, cold=cold)


def _some(codes: tuple[Codes, ...], shape: tuple[int, ...]) -> Any:
    """Return where rows of some observations are, among those of all modes."""
    n = len(codes[0])
    some = np.sort(np.random.default_rng(0).permutation(n)[:MOST_LOOKED])
    firsts = np.cumsum([0, *shape[:-1]])
    pairs = zip(codes, firsts, strict=True)
    return np.array([code[some] + first for code, first in pairs], dtype=np.int32)


def grown(posterior: RatingPosterior, shape: tuple[int, ...]) -> Snapshot:
    """Return a copy of all draws with room for new rows: average ones, with average noise."""
    spec, old = posterior.spec, posterior.shape
    if len(posterior.draws["factors"]) == 0 or len(shape) != 2:
        raise ValueError(f"draws of two modes are needed; got shape {shape}")
    added = [new - before for new, before in zip(shape, old, strict=True)]
    draws = {name: array.copy() for name, array in posterior.draws.items()}
    typical = draws["typical"]
    level = draws["level"] if spec.noise_rank else draws["level"][:, :0]
    fill = {
        "factors": [typical[:, mode, None, :-1] for mode in (0, 1)],
        "biases": [typical[:, mode, None, -1] for mode in (0, 1)],
        "noise": [np.ones_like(level)[:, None], level[:, None]],
    }
    for name, of_modes in fill.items():
        parts = np.split(draws[name], [old[0]], axis=1)
        for mode in (0, 1):
            more = np.repeat(of_modes[mode], added[mode], axis=1).astype(draws[name].dtype)
            parts[mode] = np.concatenate([parts[mode], more], axis=1)
        draws[name] = np.concatenate(parts, axis=1)
    if spec.implicit:  # the features of the first mode's sets come first: rows of the second
        parts = np.split(draws["features"], [old[1], sum(old)], axis=1)  # side features are last
        for k, mode in enumerate((1, 0)):
            parts[k] = np.pad(parts[k], ((0, 0), (0, added[mode]), (0, 0)))
        draws["features"] = np.concatenate(parts, axis=1)
    centre = draws["width_centre"][:, None].astype(draws["widths"].dtype)
    more = np.repeat(centre, added[0], axis=1)
    draws["widths"] = np.concatenate([draws["widths"], more], axis=1)
    return draws


def _update(
    posterior: RatingPosterior,
    one: dict[str, Any],
    counts: tuple[Counts, ...],
    changed: list[Changed],
    places: Any,
    sweeps: int,
    place: tuple[int, ...],
) -> None:
    """Draw rows that changed anew in one draw, whose arrays are views that are written to."""
    spec, D = posterior.spec, posterior.spec.rank
    factors = np.zeros((len(one["biases"]), -(-max(D, 1) // 16) * 16), dtype=np.float32)
    factors[:, :D] = one["factors"]
    biases, noise = (one[name].astype(np.float32) for name in ("biases", "noise"))
    for sweep in range(sweeps):
        for own in changed:
            if len(own.rows):
                keys = [key(spec.seed, *place, sweep, own.mode, kind) for kind in range(3)]
                _draw(posterior, one, own, factors, biases, noise, keys)
    one["factors"][:], one["biases"][:] = factors[:, :D], biases
    one["noise"][:] = noise
    first = 0
    for mode, count in enumerate(counts):
        rows = np.flatnonzero(count) + first
        own_rows = np.column_stack([factors[rows, :D], biases[rows]]).astype(np.float64)
        mean = own_rows.mean(axis=0)
        centred = own_rows - mean
        one["typical"][mode], one["covariances"][mode] = mean, centred.T @ centred / len(rows)
        first += len(count)
    one["typical"][:] = newcomers.as_chosen(one, places)


def _draw(
    posterior: RatingPosterior,
    one: dict[str, Any],
    own: Changed,
    factors: Floats,
    biases: Floats,
    noise: Floats,
    keys: list[np.uint64],
) -> None:
    """Draw the rows of a mode that changed, and then their noise; of levels, hidden values first.

    ``keys`` are those of rows, of noise and of hidden values.
    """
    spec, mode, data = posterior.spec, own.mode, own.data
    root, fitted = np.empty((2, len(data)), dtype=np.float32)
    if spec.noise_rank:
        roots(data.places, noise, root)
    else:
        root[:] = 1.0 / np.sqrt(float(one["level"][0]))
    root *= own.weight
    effects = NO_EFFECTS
    if own.sets is not None or own.side is not None:
        effects = np.zeros((data.shape[mode], spec.rank + 1), dtype=np.float32)
    if own.sets is not None:
        features = one["features"][feature_part(data, mode)].astype(np.float32)
        effects[own.rows] = own.sets @ features
    if own.side is not None:
        part = newcomers.part_of(posterior.cold, mode)
        effects[own.rows] += newcomers.prior_shift(one, part, own.side).astype(np.float32)
    values = data.values
    if spec.ordinal:
        means(data.places, factors, biases, fitted)
        values = _hidden(posterior, one, data, fitted, root, keys[2])
    exact = root.max(initial=0.0) > EXACT_FROM
    index, level = data.index[mode], one["level"].astype(np.float64)
    draw_rows(
        own.rows, data.starts[mode], index, data.others[mode], factors, biases,
        data.firsts[mode], root[index], values[index],
        one["centres"][mode].astype(np.float64), effects,
        one["precisions"][mode].astype(np.float64), spec.rank, keys[0],
        np.empty(0, dtype=np.float64 if exact else np.float32), fitted,
    )  # fmt: skip
    if spec.noise_rank:
        residual = (values - fitted) * own.weight
        last = mode == data.n_modes - 1
        draw_noise(
            own.rows, data.starts[mode], data.others[mode], noise, data.firsts[mode],
            residual[index], level if last else np.ones_like(level), keys[1],
        )  # fmt: skip


def _hidden(
    posterior: RatingPosterior,
    one: dict[str, Any],
    data: Data,
    fitted: Floats,
    root: Floats,
    key: np.uint64,
) -> Floats:
    """Draw the hidden values of levels, given all rows; cut-points stay as they are."""
    widths, centre = (one[name].astype(np.float64) for name in ("widths", "width_centre"))
    hidden = np.empty_like(fitted)
    users = np.flatnonzero(np.diff(data.starts[0])).astype(np.int32)
    draw_levels(
        users, data.starts[0], data.values.astype(np.int32), fitted, root, widths, centre,
        np.ones_like(centre), posterior.scale.anchor, 0.0, key, hidden,
        np.zeros(len(widths), dtype=np.bool_),
    )  # fmt: skip
    return hidden
