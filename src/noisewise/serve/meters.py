"""What a server counts, as Prometheus reads it: requests, times, reloads; over all workers.

Where there are several, they count in files of a folder; ``PROMETHEUS_MULTIPROC_DIR`` must name it
before this module is imported.
"""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Meters:
    """Counters of a server; with a folder, they are sums over all processes that count there."""

    registry: CollectorRegistry
    requests: Counter
    seconds: Histogram
    model_seconds: Histogram
    reloads: Counter
    stale: Gauge
    loaded: Gauge

    def __init__(self, folder: Path | None = None) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "noisewise_requests", "Requests answered.", ["endpoint", "status"], registry=registry
        )
        self.seconds = Histogram(
            "noisewise_request_seconds",
            "Time from the first byte of a request to the last of its answer.",
            ["endpoint"],
            registry=registry,
            buckets=SECONDS,
        )
        self.model_seconds = Histogram(
            "noisewise_model_seconds",
            "The part of it that was spent in the model.",
            ["endpoint"],
            registry=registry,
            buckets=SECONDS,
        )
        self.reloads = Counter(
            "noisewise_reloads", "Versions of the file that were tried.", ["outcome"],
            registry=registry,
        )  # fmt: skip
        self.stale = Gauge(
            "noisewise_stale",
            "Workers that serve an older version, as the file is broken or gone.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.loaded = Gauge(
            "noisewise_loaded_timestamp_seconds",
            "When the model was loaded that is served.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._folder = folder

    def text(self) -> bytes:
        """Return all counters as Prometheus reads them."""
        registry = self.registry
        if self._folder is not None:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, path=str(self._folder))
        found: bytes = generate_latest(registry)
        return found
