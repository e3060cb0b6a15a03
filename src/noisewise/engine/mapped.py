"""One function called with many tasks by the workers of a cluster; results come in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from noisewise.engine.workers import Cluster, Team, connected, persistently, put, take

AHEAD = 2  # tasks of every worker that are under way, or wait to be taken

R = TypeVar("R")


class Mapper:
    """What a worker has: the function, which is told how many threads there are."""

    function: Any
    threads: int

    def __init__(self, function: Sequence[Any], threads: int) -> None:
        (self.function,), self.threads = take(function), threads

    def result(self, task: Any) -> Any:
        """Return what the function makes of a task."""
        return self.function(task, self.threads)


def mapped(
    cluster: Cluster, function: Callable[[Any, int], R], tasks: Sequence[Any]
) -> Iterator[R]:
    """Yield what a function makes of tasks, in their order; only a few wait to be taken.

    The function goes to every machine once. What a worker had to do that is lost is done again.
    """
    with connected(cluster):
        team, kept, ahead = Team(cluster), [put(function)], dict[int, Any]()

        def begin() -> None:
            ahead.clear()
            team.restart()
            team.make(Mapper, [(kept, team.threads)] * len(team))

        def result(number: int) -> R:
            for k in range(number, min(len(tasks), number + AHEAD * len(team))):
                if k not in ahead:
                    (ahead[k],) = team.call(k % len(team), "result", tasks[k])
            found: R = team.get(ahead.pop(number))
            return found

        try:
            persistently(begin, lambda: None)
            for number in range(len(tasks)):
                yield persistently(partial(result, number), begin)
        finally:
            team.stop()
