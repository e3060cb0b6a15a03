"""Fits of ratings that a cluster reads: this process holds neither them nor the model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from noisewise.cli.options import Columns, Stopped, option, tell
from noisewise.engine.workers import Cluster
from noisewise.errors import SettingError
from noisewise.models.lead import fit_to_file
from noisewise.spread_reader import source_of


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Where a model is trained."""

    cluster: str | None = option(
        "Train on a cluster of Ray: local, auto, or where it is, as ray://host:10001. It reads a "
        "folder of Parquet itself. No bit changes."
    )
    workers: int | None = option("How many workers; else one for every machine of the cluster.")

    def place(self, model: Any) -> Cluster | None:
        """Return where to fit a model; None if here."""
        if self.cluster is None:
            if self.workers is not None:
                raise SettingError("--workers is for --cluster.")
            return None
        if not hasattr(model, "_on_clusters"):
            name = type(model).__name__
            raise SettingError(f"--cluster must be left out: a {name} is fitted on one machine.")
        return Cluster.wanted(Cluster(self.cluster, self.workers), model)


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
