"""serve: a fitted model as a service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from noisewise.cli.options import option, say
from noisewise.serve.limits import Limits
from noisewise.serve.run import Settings
from noisewise.serve.run import serve as run

MOST = Limits()


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What is refused."""

    max_body: float = option("Megabytes of a request.", default=MOST.body / 2**20)
    max_cells: int = option("Cells or ids of a request.", default=MOST.cells)
    max_readings: int = option("Cells of a table of readings.", default=MOST.readings)
    receive: float = option("Seconds in which a request must be here.", default=MOST.receive)
    rate: float = option(
        "Requests a second that one client may send in the long run; 0 sets no limit.",
        default=MOST.rate,
    )
    burst: int = option("Requests that a client may send at once.", default=MOST.burst)

    def limits(self) -> Limits:
        """Return them in bytes, rows and seconds."""
        return Limits(
            body=int(self.max_body * 2**20), cells=self.max_cells, readings=self.max_readings,
            receive=self.receive, rate=self.rate, burst=self.burst,
        )  # fmt: skip


def serve(
    model: Path = typer.Argument(..., help="A model that `fit` wrote, or an imputer."),
    host: str = option("Address; any but loopback needs a token.", default="127.0.0.1"),
    port: int = option("Port; 0 takes one that is free.", default=8000),
    workers: int = option("Processes, which share the model's memory.", default=1),
    threads: int = option("Threads of each that ask the model.", default=2),
    every: float = option("Seconds between looks at the file.", default=1.0),
    proxies: str = option("Addresses of proxies to believe, with commas between.", default=""),
    root: str = option("Path below which a proxy shows the server, e.g. /films.", default=""),
    log: str = option("debug, info, warning or error.", default="info"),
    *,
    bounds: Bounds,
) -> None:
    """Serve a model over HTTP, with a page to look at it: predictions, lists, tables without gaps.

    Clients send the token that is in the environment as NOISEWISE_TOKEN; without one, only this
    machine is served. A model file that changes is loaded while the old one answers.

    Example: `noisewise serve movies.nw`

    Example: `noisewise serve movies.nw --host 0.0.0.0 --workers 4 --rate 20`
    """
    settings = Settings(
        model, host, port, workers, threads, every, proxies, root, log, bounds.limits()
    )
    run(settings, lambda address: say(f"Serving {model} on {address}; Ctrl-C ends it."))
