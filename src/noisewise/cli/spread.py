"""Work on a cluster: options, and fits of ratings that it reads; this process holds neither."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from noisewise.cli.options import Columns, Stopped, check_file, option, refuse, tell
from noisewise.data import Observations
from noisewise.engine.workers import Cluster, connected
from noisewise.errors import SettingError
from noisewise.models.lead import fit_to_file
from noisewise.spread_reader import read_spread, source_of
from noisewise.storage import destination


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Where the work is done."""

    cluster: str | None = option(
        "Work on a cluster of Ray: local, auto, or where it is, as ray://host:10001. To learn, it "
        "reads a folder of Parquet itself. No bit changes."
    )
    workers: int | None = option("How many workers; else one for every machine of the cluster.")
    shards: Path | None = option(
        "A folder that all machines reach. Workers write the draws of a Bayesian model there while "
        "it is measured, and predictions read them there: no machine has all of them."
    )

    def refuse(self) -> None:
        """Raise where there is no work for a cluster."""
        refuse("is for ratings", **asdict(self))

    def place(self, model: Any = None) -> Cluster | None:
        """Return where to work, or to fit a model; None if here."""
        refuse("is for evaluate; of fit, --out may be a folder", shards=self.shards)
        return self._place(model)

    @contextmanager
    def measuring(self, model: Any) -> Iterator[Cluster | None]:
        """Return where to fit models that are measured, one after another; None if here."""
        place = self._place(model)
        if self.shards is None:
            yield place
            return
        if place is None:
            raise SettingError("--shards is for --cluster.")
        if not self.shards.is_dir():
            raise SettingError(f"--shards must be a folder that is there; got {self.shards}.")
        with tempfile.TemporaryDirectory(prefix="noisewise-", dir=self.shards.absolute()) as own:
            yield Cluster.wanted(replace(place, shards=own), model)

    def _place(self, model: Any) -> Cluster | None:
        if self.cluster is None:
            if self.workers is not None:
                raise SettingError("--workers is for --cluster.")
            return None
        if model is None:
            return Cluster.of(Cluster(self.cluster, self.workers))
        if not hasattr(model, "_on_clusters"):
            name = type(model).__name__
            raise SettingError(f"--cluster must be left out: a {name} is fitted on one machine.")
        return Cluster.wanted(Cluster(self.cluster, self.workers), model)


@contextmanager
def reading(
    place: Cluster | None, data: Path, columns: Columns, time: str | None
) -> Iterator[Observations]:
    """Read ratings here, or by a cluster if it can; it stays connected meanwhile."""
    if place is None or not is_parquet(data):
        yield columns.read(data, time)
        return
    with connected(place):
        source = source_of(data.absolute(), columns.id, columns.value, time)
        yield read_spread(source, columns.duplicates)


def check_model(path: Path) -> None:
    """Raise if no model can be written to a path; a folder is for a cluster (see ``sharded``)."""
    if not path.is_dir():
        check_file(path)


OUT = option(
    "The file to write the model to. With --cluster also a folder that is there, and that all "
    "machines reach: every worker writes the draws of its rows there.",
    default=...,
    check=check_model,
)


def sharded(place: Cluster | None, out: Path, model: Any) -> Cluster | None:
    """Return where to fit a model: where it is written to a folder, workers write shards there."""
    if place is None:
        destination(out)  # which is no folder
        return None
    return Cluster.wanted(replace(place, shards=out.absolute()), model) if out.is_dir() else place


def refuse_features(features: Any) -> None:
    """Raise for features, which a cluster does not take."""
    if any(asdict(features).values()):
        raise SettingError("A cluster takes no features: leave them out, or fit without it.")


def is_parquet(data: Path) -> bool:
    """Whether a cluster can read it: a Parquet file, or a folder of them."""
    return data.suffix == ".parquet" or (data.is_dir() and any(data.rglob("*.parquet")))


def fit(
    name: str,
    model: Any,
    data: Path,
    columns: Columns,
    place: Cluster,
    kept: dict[str, Any],
    out: Path,
    report: Path | None,
) -> None:
    """Fit a model there, write its file, and say how it went."""
    refuse("needs a fit without --cluster", weight=columns.weight)
    model.set_params(duplicates=columns.duplicates)
    time = getattr(model, "time", None)
    source = partial(source_of, data.absolute(), columns.id, columns.value, time)
    (seen, _, end), header = fit_to_file(model, source, place, kept, out)
    if end is not None:
        raise Stopped(f"{end} It is in {out}.")
    describe(name, out, seen, header["record"], report)


def describe(name: str, out: Path, seen: Any, record: dict[str, Any], report: Path | None) -> None:
    """Say what was learned from which observations, and how long that took."""
    epochs, seconds = record["epochs"], record["seconds"]
    curve = {k: v[epochs - 1] for k, v in record["learning_curve"].items() if v}
    rmse, nll = (curve.get(f"validation_{measure}") for measure in ("rmse", "nll"))
    summary = {
        "model": name, "file": str(out), "observations": len(seen), "shape": list(seen.shape),
        "epochs": epochs, "held_out_rmse": rmse, "held_out_nll": nll, "seconds": seconds,
    }  # fmt: skip
    held_out = "" if rmse is None else f", held-out RMSE {rmse:.4f}, NLL {nll:.4f}"
    text = f"{seen!r}\n{name}, {epochs} epochs, {seconds:.1f} s{held_out}\nThe model is in {out}."
    tell(text, summary, report)
