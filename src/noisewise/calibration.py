"""What held-out errors say of a predicted std: a factor, its shape over the scale, and intervals.

On a scale with ends the noise shrinks towards them, and whole stars lie now nearer to a prediction,
now farther from it. So the variance gets a smooth factor of the predicted mean and std, and
half-widths are quantiles of held-out errors over their std by groups of both (Mondrian
split-conformal); few observations fall back on all of them. Cells with an id never seen, whose std
is wide beside the gaps between stars, have half-widths of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtrit

from noisewise.engine.training import one_blas_thread
from noisewise.errors import DataError, brief
from noisewise.settings import number

MAX_SCORES = 2_000  # kept of a large calibration set: its quantiles, rounded away from zero
FEWEST_SHAPED = 500  # held-out observations from which on a std has a shape
MOST_SHAPED = 30_000  # that are looked at
COVERAGES = np.concatenate([[0.01], np.arange(1, 20) / 20, [0.96, 0.97, 0.98, 0.99, 0.995, 0.999]])
KNOTS = 8  # of the smooth factors of the variance
PENALTY = 20.0  # on the squares of their weights: observations that say that there is no shape
GRID = 65  # points that a factor is kept at
MOST_FACTOR = 4.0  # of a variance, either way
MOST_SQUARE = 25.0  # of an error over its std, beyond which it says no more about the shape
GROUPS = (20, 5)  # of the mean and of the std, at most
PER_GROUP = (100, 1_000)  # observations that it takes for one more
BORROWED = 100.0  # observations that a group has from its neighbours of all std, and from all
MORE_BORROWED = 300.0  # the same, of cells left out: their noise is known less well
IDS_UNSEEN = np.array([1.0, 2.0])  # of a cell: what half-widths of strangers are grouped by

Numbers = NDArray[np.float64]


class Shape(NamedTuple):
    """How a std, and the reach of an interval in stds, depend on the predicted mean and std."""

    mean_at: Numbers  # means, and logs of the factor of the variance there
    mean_log: Numbers
    std_at: Numbers  # logs of stds, and logs of the factor
    std_log: Numbers
    mean_groups: Numbers  # centres of groups: of the mean, and of the std with its factor
    std_groups: Numbers
    widths: Numbers  # half-widths in stds, for each of ``COVERAGES`` and each group

    def __repr__(self) -> str:
        return brief(self)

    @classmethod
    def learn(cls, mean: Numbers, std: Numbers, error: Numbers, *, held_out: bool) -> Shape | None:
        """Learn from errors that were held out, or left out; None where they say nothing.

        Errors over their std have the mean square 1. Of held-out ones, the std has a factor of its
        own; groups are by mean and std either way.
        """
        if len(mean) > MOST_SHAPED:
            some = np.random.default_rng(0).permutation(len(mean))[:MOST_SHAPED]
            mean, std, error = mean[some], std[some], error[some]
        squares = (error / std) ** 2
        if not squares.any():
            return None
        parts = [mean, np.log(std)] if held_out else [mean]
        with one_blas_thread():  # the same bits on any number of threads
            curves = _curves(parts, squares)
        curves += [(np.zeros(1), np.zeros(1))] * (2 - len(curves))
        (mean_at, mean_log), (std_at, std_log) = curves
        start = cls(mean_at, mean_log, std_at, std_log, mean[:1], std[:1], np.ones((1, 1, 1)))
        factor = start.factor(mean, std)
        level = float(np.mean(squares / factor))
        if not 0.0 < level < math.inf:
            return None
        own = start._replace(mean_log=mean_log + math.log(level))
        calibrated = std * np.sqrt(own.factor(mean, std))
        borrowed = BORROWED if held_out else MORE_BORROWED
        return own._grouped(mean, calibrated, np.abs(error) / calibrated, borrowed)

    def factor(self, mean: Any, std: Any) -> Any:
        """Return the factor of the variance of cells."""
        logs = np.log(np.maximum(std, np.finfo(np.float64).tiny))
        log = np.interp(mean, self.mean_at, self.mean_log)
        log += np.interp(logs, self.std_at, self.std_log)
        return np.exp(np.clip(log, -math.log(MOST_FACTOR), math.log(MOST_FACTOR)))

    def half_width(self, coverage: float, mean: Any, std: Any) -> Any:
        """Stds to either side of the mean that hold ``coverage`` of cells like these."""
        place = float(np.interp(coverage, COVERAGES, np.arange(len(COVERAGES))))
        below, above = math.floor(place), math.ceil(place)
        widths = self.widths[below] + (place - below) * (self.widths[above] - self.widths[below])
        if coverage < COVERAGES[0]:
            widths = widths * coverage / COVERAGES[0]
        if coverage > COVERAGES[-1]:
            widths = widths * normal_half_width(coverage) / normal_half_width(COVERAGES[-1])
        return self._between(widths, mean, std)

    def _between(self, widths: Numbers, mean: Any, std: Any) -> Any:
        """Return what lies between the centres of groups."""
        from scipy.ndimage import map_coordinates

        at = [
            np.interp(where, centres, np.arange(len(centres)))
            for where, centres in ((mean, self.mean_groups), (std, self.std_groups))
        ]
        return map_coordinates(widths, at, order=1, mode="nearest")

    def _grouped(
        self, mean: Numbers, std: Numbers, scores: Numbers, borrowed: float, *, by_std: bool = True
    ) -> Shape:
        """Measure half-widths by groups; together they cover as often as they say."""
        n, order = len(scores), np.argsort(scores, kind="stable")
        many = [max(1, min(m, n // per)) for m, per in zip(GROUPS, PER_GROUP, strict=True)]
        found = [_groups(mean, many[0]), _groups(std, many[1] if by_std else 1)]
        (of_mean, means), (of_std, stds) = found
        widths = np.empty((len(COVERAGES), len(means), len(stds)))
        in_order, of_mean, of_std = scores[order], of_mean[order], of_std[order]
        for a in range(len(means)):
            row = of_mean == a
            shared = borrowed / n + borrowed * row / max(int(row.sum()), 1)
            for b in range(len(stds)):
                weight = np.cumsum(shared + (row & (of_std == b)))
                at = np.searchsorted(weight, COVERAGES * weight[-1])
                widths[:, a, b] = in_order[np.minimum(at, n - 1)]
        own = self._replace(mean_groups=means, std_groups=stds)
        least = max(float(in_order[-1]), 1.0) * 1e-9
        for k, coverage in enumerate(COVERAGES):
            widths[k] = np.maximum(widths[k], least)
            ratio = np.sort(scores / own._between(widths[k], mean, std))
            widths[k] *= ratio[min(math.ceil((n + 1) * coverage), n) - 1]
        return own._replace(widths=np.maximum.accumulate(widths, axis=0))


def _curves(parts: list[Numbers], squares: Numbers) -> list[tuple[Numbers, Numbers]]:
    """Fit smooth factors, whose product is the expected square; return them at some points."""
    from sklearn.linear_model import PoissonRegressor
    from sklearn.preprocessing import SplineTransformer

    grids, bases, on_grids = [], [], []
    for part in parts:
        knots = np.unique(np.quantile(part, np.linspace(0.0, 1.0, KNOTS)))
        grid = np.linspace(knots[0], knots[-1], GRID)
        basis, on_grid = np.zeros((len(part), 0)), np.zeros((GRID, 0))
        if len(knots) > 1:
            splines = SplineTransformer(knots=knots[:, None], extrapolation="constant")
            splines.fit(part[:, None])
            basis, on_grid = splines.transform(part[:, None]), splines.transform(grid[:, None])
            centre = basis.mean(axis=0)
            basis, on_grid = basis - centre, on_grid - centre
        grids.append(grid)
        bases.append(basis)
        on_grids.append(on_grid)
    X = np.hstack(bases)
    if not X.shape[1]:
        return [(grid, np.zeros(GRID)) for grid in grids]
    fitted = PoissonRegressor(alpha=PENALTY / len(X), solver="newton-cholesky")
    fitted.fit(X, np.minimum(squares, MOST_SQUARE))
    weights = np.split(fitted.coef_, np.cumsum([basis.shape[1] for basis in bases])[:-1])
    return [
        (grid, on_grid @ weight)
        for grid, on_grid, weight in zip(grids, on_grids, weights, strict=True)
    ]


def _groups(numbers: Numbers, many: int) -> tuple[NDArray[np.int64], Numbers]:
    """Return the group of every number, as even as ties allow, and the centre of each."""
    edges = np.unique(np.quantile(numbers, np.arange(1, many) / many))
    group = np.searchsorted(edges, numbers)
    kept, group = np.unique(group, return_inverse=True)
    centres = np.array([np.median(numbers[group == k]) for k in range(len(kept))])
    return group, centres


@dataclass(frozen=True, eq=False)
class Calibration:
    """What held-out errors say of the predicted std: split-conformal intervals, scaled by it.

    The score of an observation is its error over its std. A quantile of held-out scores times the
    std is the half-width of an interval: whatever the shape of the errors, it covers as often as it
    says on data like the held-out data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> held_out = Calibration.measure(error=rng.normal(0, 2.0, 1000), std=np.ones(1000))
    >>> round(held_out.scale, 1), held_out.n  # errors were twice as large as the std said
    (2.0, 1000)
    """

    scale: float  # makes the mean squared score 1: std times scale is the calibrated std
    scores: Numbers  # sorted absolute errors over calibrated std: ``MAX_SCORES``
    n: int  # held-out observations
    shape: Shape | None = None  # of the std over predicted means and stds
    sets: Numbers | None = None  # sorted chances of levels up to the true one: see ``set_reach``
    strangers: Shape | None = None  # half-widths of cells with ids never seen: by their number

    __repr__ = brief

    @classmethod
    def measure(
        cls, error: ArrayLike, std: ArrayLike, mean: ArrayLike | None = None
    ) -> Calibration:
        """Learn from errors on data that was not trained on, and the std predicted for them.

        With the predicted ``mean`` of enough of them, std and intervals get a shape.
        """
        errors, stds = np.abs(np.asarray(error, float)), np.asarray(std, float)
        means = stds if mean is None else np.asarray(mean, float)
        if not errors.shape == stds.shape == means.shape == (errors.size,):
            raise DataError(
                "Calibration needs columns of one length; errors, stds and means have the shapes "
                f"{errors.shape}, {stds.shape} and {means.shape}."
            )
        with np.errstate(divide="ignore", invalid="ignore"):  # what is not finite is refused below
            scores = errors / stds
        if not len(scores) or not (np.isfinite(scores) & (stds > 0.0)).all():
            raise DataError(
                "Calibration needs held-out errors that are finite numbers, and stds above 0."
            )
        scale, shape = float(np.sqrt(np.mean(np.sort(scores) ** 2))) or 1.0, None
        scores = scores / scale
        if mean is not None and len(scores) >= FEWEST_SHAPED:
            shape = Shape.learn(means, scale * stds, errors, held_out=True)
            if shape is not None:
                scores = scores / np.sqrt(shape.factor(means, scale * stds))
        return cls(scale, _kept(scores), len(scores), shape)

    @classmethod
    def left_out(
        cls,
        truth: Numbers,
        means: Numbers,
        stds: Numbers,
        levels: Numbers,
        chances: Numbers | None = None,
        scale: float = 1.0,
    ) -> Calibration | None:
        """Learn from cells as they are predicted from all others: the shape, and half-widths.

        How large stds are is left to the model, but for ``scale``. Of a short chain, errors of
        cells left out are too small: half-widths never cover less than these stds say. ``chances``
        of levels are those of a model that has its own. None where there are too few cells, or no
        errors.
        """
        errors, n = np.abs(truth - means), len(truth)
        with np.errstate(divide="ignore", invalid="ignore"):
            level = float(np.sqrt(np.mean((errors / stds) ** 2))) if n else 0.0
        if n < FEWEST_SHAPED or not 0.0 < level < math.inf:
            return None
        shape = Shape.learn(means, level * stds, errors, held_out=False)
        if shape is None:
            return None
        most = max(level, 1.0) / scale
        shape = shape._replace(std_groups=shape.std_groups / level, widths=shape.widths * most)
        calibrated = stds * np.sqrt(shape.factor(means, stds))
        sets = None
        if len(levels):
            own = level_chances(levels, means, calibrated) if chances is None else chances
            sets = kept_sets(own, levels, truth)
        return cls(scale, _kept(errors / (calibrated * level) * most), n, shape, sets)

    def with_strangers(
        self, truth: Numbers, means: Numbers, stds: Numbers, unseen: Numbers
    ) -> Calibration:
        """Learn also from cells as they are predicted as if ``unseen`` ids, 1 or 2, were new.

        Of one new id, what else predicts a cell has seen it, and so errors are smaller than those
        of strangers, whereas the half-widths of cells that are known are too wide: a half-width is
        half-way between both, as factors go. Of two, nothing has seen the cell. Too few cells, or
        none with an error, leave all as it is.
        """
        few = min(np.sum(unseen == 1), np.sum(unseen == 2)) < FEWEST_SHAPED
        if self.shape is None or few:
            return self
        calibrated = stds * np.sqrt(self.factor(means, stds))
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = np.abs(truth - means) / calibrated
        if not (np.isfinite(scores).all() and scores.any()):
            return self
        one, two = (
            self.shape._grouped(means[own], calibrated[own], scores[own], BORROWED, by_std=False)
            for own in (unseen == 1, unseen == 2)
        )
        at = one.mean_groups
        usual = np.full_like(at, np.median(calibrated[unseen == 1]))
        known, both = (
            np.stack([shape.half_width(coverage, at, usual) for coverage in COVERAGES])
            for shape in (self.shape, two)
        )
        widths = np.stack([np.sqrt(one.widths[..., 0] * known), both], axis=-1)
        return replace(self, strangers=one._replace(std_groups=IDS_UNSEEN, widths=widths))

    def half_width(
        self, coverage: float, mean: Any = None, std: Any = None, strangers: Any = None
    ) -> Any:
        """Calibrated stds to either side of the mean that hold ``coverage`` of the cells.

        Cells are all, or like those of the given mean and calibrated std; ``strangers`` says how
        many of their ids were never seen.
        """
        check_coverage(coverage)
        if self.shape is not None and mean is not None:
            known = self.shape.half_width(coverage, mean, std)
            if self.strangers is None or strangers is None:
                return known
            new = np.asarray(strangers, dtype=np.float64)
            return np.where(new, self.strangers.half_width(coverage, mean, new), known)
        rank = math.ceil((self.n + 1) * coverage - 1e-9)  # of 1 to n: the score that covers enough
        if rank > self.n:  # more than so few can tell, from whose errors the scale is known, too
            return max(float(self.scores[-1]), float(stdtrit(self.n, 0.5 + 0.5 * coverage)))
        return float(_of_rank(self.scores, rank, self.n))

    def factor(self, mean: Any, std: Any) -> Any:
        """Return what the variance of cells is to be multiplied by."""
        if self.shape is None:
            return self.scale**2
        return self.scale**2 * self.shape.factor(mean, self.scale * std)

    def set_reach(self, coverage: float) -> float:
        """Return how much of the chances of all levels the likeliest must have to cover enough."""
        check_coverage(coverage)
        if self.sets is None or not len(self.sets):
            return coverage
        rank = math.ceil((self.n + 1) * coverage - 1e-9)
        return 1.0 if rank > self.n else float(_of_rank(self.sets, rank, self.n))


def _kept(scores: Numbers) -> Numbers:
    """Return all scores in order, or quantiles of many."""
    if len(scores) > MAX_SCORES:
        return np.quantile(scores, np.linspace(0, 1, MAX_SCORES), method="higher")
    return np.sort(scores)


def _of_rank(kept: Numbers, rank: int, n: int) -> float:
    """Return the score of a rank from 1 to n, of scores of which some are kept."""
    return float(kept[math.ceil((rank - 1) * (len(kept) - 1) / max(n - 1, 1))])


def level_chances(levels: Numbers, mean: Any, std: Any) -> Numbers:
    """Return the chance of every level: that a normal value is nearest to it.

    Examples
    --------
    >>> level_chances(np.array([1.0, 2.0, 3.0]), np.array([2.0]), np.array([0.5])).round(2)
    array([[0.16, 0.68, 0.16]])
    """
    ends = np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2.0, [np.inf]])
    spread = np.maximum(np.asarray(std, float), np.finfo(np.float64).tiny)
    below = ndtr((ends - np.asarray(mean, float)[:, None]) / spread[:, None])
    return np.diff(below, axis=1)


def up_to(chances: Numbers) -> Numbers:
    """Return for every level the chances of those that are as likely or likelier, and its own."""
    order = np.argsort(-chances, axis=1, kind="stable")
    summed = np.cumsum(np.take_along_axis(chances, order, axis=1), axis=1)
    out = np.empty_like(chances)
    np.put_along_axis(out, order, summed, axis=1)
    return out


def kept_sets(chances: Numbers, levels: Numbers, truth: ArrayLike) -> Numbers:
    """Return what ``Calibration.sets`` keeps, of cells whose true values are known."""
    place = np.searchsorted((levels[1:] + levels[:-1]) / 2.0, np.asarray(truth, float))
    return _kept(up_to(chances)[np.arange(len(chances)), place])


def normal_half_width(coverage: float) -> float:
    """Stds to either side of the mean that hold ``coverage`` of a normal distribution."""
    check_coverage(coverage)
    return float(ndtri(0.5 + 0.5 * coverage))


def check_coverage(coverage: Any) -> None:
    """Raise unless coverage is a share strictly between 0 and 1."""
    if not (number(above=0.0).holds(coverage) and coverage < 1.0):
        raise DataError(f"coverage must be between 0 and 1, e.g. 0.9; got {coverage!r}.")
