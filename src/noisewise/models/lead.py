"""Who leads a fit whose ratings a cluster reads: a process there, so that this one stays small.

The lead fits the model as one machine would. After every epoch it tells the driver, who shows
progress, asks callbacks and answers whether to go on. The model comes back whole, or piece by piece
as its file.
"""

from __future__ import annotations

import os
import queue
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from noisewise import storage
from noisewise.engine import workers
from noisewise.engine.training import Callback, CtrlC, EpochInfo
from noisewise.engine.versions import check_versions, versions
from noisewise.engine.workers import Cluster
from noisewise.errors import FitInterrupted, SettingError, training_bar, warn
from noisewise.models.learner import RULES, Checkpoint, Given, How
from noisewise.models.shelf import head_of
from noisewise.spread_reader import Source, is_spread, read_spread, source_of

PIECE = 8 * 2**20  # bytes of a model's file that travel at a time


@dataclass(frozen=True)
class Summary:
    """How many observations a model was fitted to, and of how many ids."""

    n: int
    shape: tuple[int, ...]
    shown: str

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return self.shown


class Lead:
    """A process of the cluster that fits a model."""

    def __init__(self) -> None:
        self.told: queue.Queue[Any] = queue.Queue()
        self.answers: queue.Queue[str] = queue.Queue()
        self.model: Any = None
        self.path: Path | None = None

    def fit(self, model: Any, source: Source, cluster: Cluster, kept: dict[str, Any]) -> Any:
        """Fit a model; return what of, what to warn of, and how it was interrupted, if it was."""
        end = None
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                seen = read_spread(source, model.duplicates)
                try:
                    model.fit(seen, cluster=cluster, callbacks=(self._tell,), **kept)
                except FitInterrupted as stop:
                    end = str(stop)
            self.model = model
            told = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
            return Summary(len(seen), seen.shape, repr(seen)), told, end
        finally:
            self.told.put(None)

    def _tell(self, info: EpochInfo, state: Any) -> bool:
        self.told.put(info)
        answer = self.answers.get()
        if answer == "interrupt":
            raise KeyboardInterrupt
        return answer == "stop"

    def check(self, wanted: dict[str, str]) -> None:
        """Raise unless this process has the versions that are wanted."""
        check_versions(wanted)

    def next(self) -> EpochInfo | None:
        """Wait for the next epoch; None at the end."""
        found: EpochInfo | None = self.told.get()
        return found

    def answer(self, what: str) -> None:
        """Let training go on, stop, or be interrupted."""
        self.answers.put(what)

    def fitted(self) -> Any:
        """Return the model."""
        return self.model

    def save(self) -> int:
        """Write the model's file here; return its size."""
        handle, name = tempfile.mkstemp(suffix=".noisewise")
        os.close(handle)
        self.path = Path(name)
        self.model.save(self.path)
        return self.path.stat().st_size

    def save_to(self, folder: Path) -> None:
        """Write what the shards in a folder lack."""
        self.model.save(folder)

    def piece(self, start: int) -> bytes:
        """Return a piece of the file."""
        assert self.path is not None
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(PIECE)

    def clean(self) -> None:
        """Remove the file."""
        if self.path is not None:
            self.path.unlink()


def led(
    model: Any,
    source: Callable[[], Source],
    cluster: Cluster,
    callbacks: Sequence[Callback],
    kept: dict[str, Any],
    take: Callable[[Any, workers.Team], Any],
) -> Any:
    """Let a lead fit a model; return the summary, and what ``take`` made of the lead.

    A lead that is lost is replaced: another goes on from the checkpoint, or begins anew.
    """

    def attempt() -> Any:
        ray, team = workers.library(), workers.Team(cluster)
        lead = ray.remote(Lead).options(num_cpus=0, max_concurrency=4).remote()
        try:
            team.get(lead.check.remote(versions()))
            fit = lead.fit.remote(model, source(), cluster, kept)
            _follow(lead, team, model, callbacks)
            summary = team.get(fit)
            return summary, take(lead, team)
        finally:
            ray.kill(lead)

    with workers.connected(cluster):
        summary, taken = workers.persistently(attempt, lambda: None)
    for told in summary[1]:
        warn(told)
    return summary, taken


def _follow(lead: Any, team: workers.Team, model: Any, callbacks: Sequence[Callback]) -> None:
    """Show progress and ask callbacks after every epoch, until there is no other."""
    unit = "sweep" if hasattr(model, "sweeps") else "epoch"
    total = getattr(model, f"{unit}s")
    bar = training_bar("fit", unit=unit, verbose=model.verbose)(total=total)
    words = f"Stopping after this {unit}; press Ctrl-C again to stop at once."
    with bar, CtrlC(words) as ctrl_c:
        while (info := team.get(lead.next.remote())) is not None:
            bar.n = info.epoch
            bar.set_postfix_str(f"rmse {info.train_rmse:.4f}, nll {info.train_nll:.4f}")
            stops = [bool(callback(info, None)) for callback in callbacks]  # all are asked
            answer = "interrupt" if ctrl_c.pressed else "stop" if any(stops) else "go on"
            team.get(lead.answer.remote(answer))


def fit_at(
    place: Cluster | None,
    model: Any,
    work: Callable[..., None],
    given: Given,
    how: How,
) -> None:
    """Fit a model here, by workers of a cluster, or by a lead where a cluster reads the ratings.

    ``work`` fits where there are ratings.
    """
    wanted = Checkpoint.wanted(*how.kept)
    if place is None or not is_spread(given.X):
        with workers.working(place):
            work(given, how.callbacks, wanted)
        return
    if any(other is not None for other in given[1:]):
        raise SettingError(
            "y, validation, features and sample_weight must be left out where a cluster reads the "
            "ratings."
        )
    source = partial(source_of, given.X, None, None, getattr(model, "time", None))
    kept = dict(zip(RULES, how.kept, strict=True))
    summary, fitted = led(
        model, source, place, how.callbacks, kept, lambda lead, team: team.get(lead.fitted.remote())
    )
    vars(model).update(vars(fitted))
    if summary[2] is not None:
        raise FitInterrupted(summary[2], model)


def fit_to_file(
    model: Any, source: Callable[[], Source], cluster: Cluster, kept: dict[str, Any], out: Path
) -> Any:
    """Fit a model by a lead, and write its file, of which no more than a piece is ever here.

    Where ``out`` is a folder, workers write shards there, and the lead the rest.
    """

    def take(lead: Any, team: workers.Team) -> dict[str, Any]:
        if cluster.shards is not None:
            team.get(lead.save_to.remote(Path(cluster.shards)))
            return storage.read_header(head_of(cluster.shards), "model")
        size = team.get(lead.save.remote())
        with storage.writing(out) as file:
            for start in range(0, size, PIECE):
                file.write(team.get(lead.piece.remote(start)))
        team.get(lead.clean.remote())
        return storage.read_header(out, "model")

    return led(model, source, cluster, (), kept, take)
