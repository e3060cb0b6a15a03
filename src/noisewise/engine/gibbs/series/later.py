"""Readings that come in after a fit: after its end by filters, before it by the paths of series.

Factors before the end stay as they were drawn. What is known at any moment depends on the draws and
on the readings alone, in whatever pieces they came, but for rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from noisewise.engine.arrays import Array, Moments
from noisewise.engine.gibbs.series.online import NOTHING, Online, Timed
from noisewise.engine.gibbs.series.posterior import (
    LIGHTEST,
    SHADES,
    Asked,
    SeriesPosterior,
    factors_at,
)
from noisewise.errors import brief


class Place(NamedTuple):
    """Where filters are: the moment, and means and covariances of all draws."""

    when: float
    means: Array
    covariances: Array


@dataclass(frozen=True)
class Later:
    """What is known after a fit: where its draws end, what was read since, and where that leads."""

    posterior: SeriesPosterior
    start: Online
    read: Timed  # all readings since
    state: Online
    before: Online  # as of before the last readings,
    last: Timed  # which are these

    __repr__ = brief

    @classmethod
    def of(cls, posterior: SeriesPosterior) -> Later:
        """Begin where a fit ended."""
        start = Online.of(posterior)
        return cls(posterior, start, NOTHING, start, start, NOTHING)

    def given(self, new: Timed, n_jobs: int = 1) -> Later:
        """Take readings in; of one cell, the new one holds."""
        begun = self
        early = new.when <= self.posterior.stamps[-1]
        if early.any():
            posterior = with_readings(self.posterior, new.take(early))
            start = Online.of(posterior, n_jobs)
            begun = replace(self, posterior=posterior, start=start)
        new = Timed.of(*new.take(~early))
        again = _joined(self.read, new)
        fresh = len(again.when) == len(self.read.when) + len(new.when)
        if not early.any() and fresh and (not len(new.when) or new.when[0] >= self.state.when):
            state, before, last = self.state.run(new, n_jobs=n_jobs).state, self.state, new
        else:
            state, before, last = begun.start.run(again, n_jobs=n_jobs).state, begun.start, again
        return replace(begun, read=again, state=state, before=before, last=last)

    def with_all(self) -> SeriesPosterior:
        """Return the draws with all readings, of which those after the end tell of series alone."""
        return with_readings(self.posterior, self.read) if len(self.read.when) else self.posterior

    def settled(self) -> Later:
        """Return the same as a file has it: with the last readings among all others."""
        return replace(self, before=self.state, last=NOTHING)

    @property
    def place(self) -> Place:
        """Where the filters are."""
        return Place(self.state.when, self.state.means, self.state.covariances)

    def leads_to(self, new: Timed, place: Place) -> bool:
        """Tell whether a place is one that readings can lead to."""
        fits = place.means.shape == self.start.means.shape
        fits &= place.covariances.shape == self.start.covariances.shape
        return fits and place.when == max(self.start.when, float(new.when.max(initial=-np.inf)))

    def at_place(self, new: Timed, place: Place) -> Later:
        """Take readings in that led to a place, without going there again."""
        early = new.when <= self.posterior.stamps[-1]
        begun = self.given(new.take(early)) if early.any() else self
        read = Timed.of(*new.take(~early))
        state = replace(begun.start, **place._asdict())
        return replace(begun, read=read, state=state, before=state, last=NOTHING)

    def moments(self, asked: Asked, n_jobs: int = 1) -> Moments:
        """Moments of cells: of known series after the end of the fit by filters, else by draws."""
        after = (asked.which >= 0) & (asked.when > self.posterior.stamps[-1])
        found = np.empty((3, len(after)))
        for part, told in ((~after, self._before_end), (after, self._after_end)):
            if part.any():
                which, when, sensor = (own[part] for own in asked[1:4])
                some = Asked(asked.codes[:, part], which, when, sensor, asked.sensors)
                found[:, part] = told(some, n_jobs)
        return Moments(found[0], found[1], found[2])

    def _before_end(self, asked: Asked, n_jobs: int) -> Moments:
        return self.posterior.moments(asked, n_jobs)

    def _after_end(self, asked: Asked, n_jobs: int) -> Moments:
        order = np.lexsort([asked.which, asked.when])
        cells = Timed(asked.when[order], asked.which[order], np.zeros(len(order)))
        if cells.when[0] >= self.state.when:
            run = self.state.run(NOTHING, cells, n_jobs)
        elif cells.when[0] > self.before.when:
            run = self.before.run(self.last, cells, n_jobs)
        else:
            run = self.start.run(self.read, cells, n_jobs)
        back = np.argsort(order)
        return Moments(*(part[back] for part in run.moments))


def _joined(old: Timed, new: Timed) -> Timed:
    """Return cells of both; of one that both have, what the new one says."""
    pairs: Any = zip(old, new, strict=True)
    both = Timed(*(np.concatenate(pair) for pair in pairs))
    number = np.arange(len(both.when))
    order = np.lexsort([number, both.which, both.when])
    last = np.ones(len(order), dtype=bool)
    last[:-1] = (np.diff(both.when[order]) != 0) | (np.diff(both.which[order]) != 0)
    return both.take(order[last])


def with_readings(posterior: SeriesPosterior, new: Timed) -> SeriesPosterior:
    """Return the same draws with more readings of series that they have, before their end."""
    posterior = _with_stamps(posterior, np.unique(new.when))
    series, kept = posterior.series, np.ones(len(posterior.values), dtype=bool)
    row = np.searchsorted(posterior.stamps, new.when).astype(np.int32)
    at = series.place(new.which, new.when)
    inside = np.flatnonzero(at < series.starts[new.which + 1])
    kept[at[inside[series.time[at[inside]] == new.when[inside]]]] = False
    codes = posterior.codes[:, series.starts[new.which]]  # of the series
    codes[-1] = row
    which = np.append(series.which[kept], new.which)
    order = np.lexsort([np.append(posterior.codes[-1, kept], row), which])
    draws = dict(posterior.draws)
    if posterior.spec.tails:  # of which nothing is known: as heavy as usual
        usual = np.rint(-SHADES * np.log(LIGHTEST)).astype(np.uint8)
        more = np.full((len(posterior), len(row)), usual, dtype=np.uint8)
        draws["weights"] = np.append(draws["weights"][:, kept], more, axis=1)[:, order]
    values = np.append(posterior.values[kept], new.values.astype(np.float32))
    codes = np.append(posterior.codes[:, kept], codes, axis=1)
    return replace(posterior, codes=codes[:, order], values=values[order], draws=draws)


def _with_stamps(posterior: SeriesPosterior, times: Array) -> SeriesPosterior:
    """Return the same draws at more moments, where factors are what is expected of them."""
    times = np.setdiff1d(times, posterior.stamps)
    if not len(times):
        return posterior
    spec, stamps = posterior.spec, np.union1d(posterior.stamps, times)
    at = np.searchsorted(stamps, posterior.stamps)
    new = np.searchsorted(stamps, times)
    factors, slopes = (
        np.zeros((len(posterior), len(stamps), width), np.float32)
        for width in (spec.width, spec.rank)
    )
    for draw in range(len(posterior)):
        state = {name: part[draw].astype(np.float64) for name, part in posterior.draws.items()}
        factors[draw, at], slopes[draw, at] = state["factors"], state["slopes"]
        factors[draw, new] = factors_at(times, posterior.stamps, state, spec)[0]
        for k in range(spec.rank):
            slopes[draw, new, k] = np.interp(times, posterior.stamps, state["slopes"][:, k])
    codes = posterior.codes.copy()
    codes[-1] = at[codes[-1]]
    draws = posterior.draws | {"factors": factors, "slopes": slopes}
    shape = (*posterior.shape[:-1], len(stamps))
    return replace(posterior, shape=shape, codes=codes, stamps=stamps, draws=draws)
