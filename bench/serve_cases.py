"""Requests made up from the OpenAPI document of the service: none may be an error of the server.

python bench/serve_cases.py --cases 7500 --json bench/results/serve-cases.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from starlette.testclient import TestClient

from noisewise import BayesianFactorizer, DeviationFactorizer, DeviationImputer
from noisewise.data.synthetic import make_ratings
from noisewise.evaluation.records import where_and_when
from noisewise.serve.app import create_app
from noisewise.serve.limits import Limits
from noisewise.serve.meters import Meters
from noisewise.serve.spool import Spool
from noisewise.serve.state import State

HERE = "http://127.0.0.1"


def models() -> dict[str, Any]:
    """Fit a small model of each kind; ids of one are numbers, so that some cases meet them."""
    ratings = make_ratings(n_users=30, n_items=20, seed=0).observations
    numbers = [(k % 7, k % 5, float(k % 3)) for k in range(35)]
    hours = np.arange(48.0)
    heat = np.column_stack([20 + np.sin(hours / 4), 15 + np.sin(hours / 4)])
    heat[20:22, 0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws settle little
        bayes = BayesianFactorizer(rank=2, sweeps=30, burn_in=10, random_state=0, n_jobs=1)
        bayes.fit(ratings)
    return {
        "dmf": DeviationFactorizer(rank=1, epochs=2, random_state=0).fit(numbers),
        "bayes": bayes,
        "imputer": DeviationImputer("ou", random_state=0).fit(heat),
    }


def run(path: Path, folder: Path, cases: int, start: int = 0) -> Counter[tuple[str, int]]:
    """Send about so many cases to a service of one model; count them by operation and status."""
    state = State(Spool(path, folder), Limits(), Meters(), every=60.0)
    found: Counter[tuple[str, int]] = Counter()
    with TestClient(create_app(state), base_url=HERE, raise_server_exceptions=False) as client:
        schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
        operations = [result.ok() for result in schema.get_all_operations()]
        for number, operation in enumerate(operations):
            for mode in GenerationMode:
                many = max(cases // (2 * len(operations)), 1)
                _send(client, operation, mode, many, found, start + number)
    return found


def _send(
    client: Any, operation: Any, mode: Any, many: int, found: Counter[tuple[str, int]], start: int
) -> None:
    @seed(start)
    @settings(
        max_examples=many, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        asked = case.as_transport_kwargs(base_url=HERE)
        known = ("method", "url", "params", "headers", "cookies", "json", "data", "content")
        given = {name: asked[name] for name in known if asked.get(name) is not None}
        if "data" in given:
            given["content"] = given.pop("data")
        answer = client.request(**given)
        found[operation.label, answer.status_code] += 1
        if answer.status_code >= 500:
            raise AssertionError(f"{operation.label}: {answer.status_code} for {given}")

    with suppress(Unsatisfiable):  # an operation without parameters has no wrong ones
        send()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=7500)  # some operations have few
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models().items():
            path = Path(folder) / f"{name}.nw"
            model.save(path)
            (room := Path(folder) / name).mkdir()
            counts = run(path, room, -(-asked.cases // 3))
            found[name] = {}
            for (label, status), many in sorted(counts.items()):
                found[name].setdefault(label, {})[str(status)] = many
    statuses: Counter[str] = Counter()
    for operations in found.values():
        for own in operations.values():
            statuses.update(own)
    total = sum(statuses.values())
    failed = sum(many for status, many in statuses.items() if status.startswith("5"))
    report = {
        "cases": total, "server_errors": failed, "by_status": dict(sorted(statuses.items())),
        "by_model": found, "schemathesis": schemathesis.__version__, **where_and_when(),
    }  # fmt: skip
    print(f"{total:,} cases, {failed} errors of the server; {dict(sorted(statuses.items()))}")
    if asked.json is not None:
        asked.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
