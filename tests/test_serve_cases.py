"""Requests made up from the OpenAPI document: none is an error of the server (some of many)."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="serving needs the extra serve")
pytest.importorskip("schemathesis", reason="making up requests needs schemathesis")
sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import serve_cases
from serve_models import save_all


@pytest.mark.filterwarnings("ignore")  # numbers that are made up overflow
def test_no_request_is_an_error_of_the_server(tmp_path):
    for name, path in save_all(tmp_path).items():
        (room := tmp_path / name).mkdir()
        found = serve_cases.run(path, room, 100)
        assert sum(found.values()) > 50
        assert max(status for _, status in found) < 500
        assert min(status for _, status in found) == 200
