"""How long chains run, and which of their draws are kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Run sweeps, forget the first ones, and keep draws of the rest: evenly spaced, the last too.

    Examples
    --------
    >>> Schedule(sweeps=10, burn_in=2, keep=3).kept_by(10)
    [5, 8, 10]
    """

    sweeps: int
    burn_in: int
    keep: int

    @property
    def room(self) -> int:
        """Draws that are kept at the same time, at most."""
        return min(self.keep, self.sweeps - self.burn_in)

    def first(self, epoch: int) -> int:
        """Return how many sweeps do not count, after so many."""
        return self.burn_in

    def chosen(self, many: int) -> list[int]:
        """Return which of so many kept draws stay in the end."""
        return list(range(many))

    def kept_by(self, epoch: int) -> list[int]:
        """Return the sweeps whose draws are kept after so many."""
        many, total = self.room, self.sweeps - self.burn_in
        ran = range(1, epoch - self.burn_in + 1)
        return [self.burn_in + k for k in ran if k * many // total > (k - 1) * many // total]


class LaterHalf(Schedule):
    """Keep draws of the later half of all sweeps, however long a chain will run.

    Of those that count, every second, fourth, eighth... is kept, so that there are not too many.

    Examples
    --------
    >>> schedule = LaterHalf(sweeps=20, burn_in=2, keep=4)
    >>> [schedule.kept_by(epoch) for epoch in (2, 4, 7, 20)]
    [[], [3, 4], [4, 5, 6, 7], [12, 16, 20]]
    """

    def first(self, epoch: int) -> int:
        """Return how many sweeps do not count, after so many."""
        return max(self.burn_in, epoch // 2)

    def kept_by(self, epoch: int) -> list[int]:
        """Return the sweeps whose draws are kept after so many."""
        first, step = self.first(epoch), 1
        while epoch // step - first // step > self.keep:
            step *= 2
        return list(range((first // step + 1) * step, epoch + 1, step))


class Thinned(Schedule):
    """Keep draws of all sweeps that count, evenly spaced, however long a chain will run.

    At first every draw is kept, then every second, fourth, eighth... of twice as many as wanted,
    of which the end of the chain leaves those that are farthest apart.

    Examples
    --------
    >>> schedule = Thinned(sweeps=100, burn_in=2, keep=3)
    >>> [schedule.kept_by(epoch) for epoch in (2, 5, 9, 30)]
    [[], [3, 4, 5], [4, 6, 8], [8, 16, 24]]
    >>> schedule.chosen(6)
    [1, 3, 5]
    """

    @property
    def room(self) -> int:
        """Draws that are kept at the same time, at most."""
        return min(2 * self.keep, self.sweeps - self.burn_in)

    def kept_by(self, epoch: int) -> list[int]:
        """Return the sweeps whose draws are kept after so many."""
        first, step = self.burn_in, 1
        while epoch // step - first // step > 2 * self.keep:
            step *= 2
        return list(range((first // step + 1) * step, epoch + 1, step))

    def chosen(self, many: int) -> list[int]:
        """Return which of so many kept draws stay in the end: evenly spaced, the last too."""
        few = min(self.keep, many)
        return [(k + 1) * many // few - 1 for k in range(few)]
