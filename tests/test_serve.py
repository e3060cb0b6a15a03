"""The service in one process: what it answers, and what it refuses."""

import json
import logging
import threading
import time

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="serving needs the extra serve")
pytest.importorskip("prometheus_client", reason="serving needs the extra serve")

from serve_models import imputer, readings, save_all
from starlette.testclient import TestClient

from noisewise import (
    BayesianFactorizer,
    DeviationFactorizer,
    DeviationImputer,
    SettingError,
    load,
    storage,
)
from noisewise.errors import ModelFileError
from noisewise.noise import noisy_ids
from noisewise.serve.app import create_app
from noisewise.serve.limits import Bearer, Buckets, Limits, token_for
from noisewise.serve.logs import LOGGER, JsonLines
from noisewise.serve.meters import Meters
from noisewise.serve.spool import Spool
from noisewise.serve.state import State

TOKEN = "a token of twenty let"
HERE = "http://127.0.0.1"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return save_all(tmp_path_factory.mktemp("models"))


@pytest.fixture
def service(tmp_path):
    """Start services in this process."""
    open_ones = []

    def start(path, token=None, every=60.0, **limits):
        folder = tmp_path / f"versions{len(open_ones)}"
        folder.mkdir()
        state = State(Spool(path, folder), Limits(**limits), Meters(), every=every)
        client = TestClient(create_app(state, Bearer(token)), base_url=HERE)
        client.__enter__()
        open_ones.append(client)
        client.state = state
        return client

    yield start
    for client in open_ones:
        client.__exit__(None, None, None)


def ask(client, endpoint, status=200, **asked):
    answer = client.post(f"/v1/{endpoint}", json=asked)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_body_that_is_not_sent_as_json_is_told_so(service, files):
    client = service(files["dmf"])
    body = '{"cells": [["user00", "item03"]]}'
    for sent in ({"content": body, "headers": {"Content-Type": "text/plain"}}, {"json": []}, {}):
        answer = client.post("/v1/predict", **sent)
        assert answer.status_code == 422
        assert answer.json()["error"].startswith("The body must be a JSON object, sent with")


def test_predictions_and_intervals_are_those_of_the_model(service, files):
    for name in ("dmf", "bayes"):
        client, model = service(files[name]), load(files[name])
        cells = [["user00", "item03"], ["user07", "item01"]]
        found = ask(client, "predict", cells=cells)
        mean, noise_std, epistemic_std = model.predict_parts([tuple(cell) for cell in cells])
        np.testing.assert_allclose(found["mean"], mean, rtol=1e-6)
        np.testing.assert_allclose(found["noise_std"], noise_std, rtol=1e-6)
        np.testing.assert_allclose(found["epistemic_std"], epistemic_std, rtol=1e-6)
        low, high = model.predict_interval([tuple(cell) for cell in cells], coverage=0.8)
        found = ask(client, "interval", cells=cells, coverage=0.8)
        np.testing.assert_allclose(found["low"], low, rtol=1e-6)
        np.testing.assert_allclose(found["high"], high, rtol=1e-6)


def test_an_answer_names_the_version_it_is_from(service, files):
    client = service(files["dmf"])
    answer = client.post("/v1/predict", json={"cells": [["user00", "item03"]]})
    digest = client.get("/ready").json()["model"]
    assert answer.headers["x-noisewise-model"] == answer.json()["model"] == digest
    assert answer.headers["server-timing"].startswith("model;dur=")


def test_lists_are_those_of_the_model_with_intervals(service, files):
    client, model = service(files["bayes"]), load(files["bayes"])
    found = ask(client, "recommend", ids=["user00", "nobody"], n=3)
    first, second = found["lists"]
    assert [row["id"] for row in first["items"]] == [r.id for r in model.recommend("user00", 3)]
    assert (first["known"], second["known"]) == (True, False)
    assert all(row["low"] < row["mean"] < row["high"] for row in first["items"])
    few = ask(client, "recommend", ids=["user00"], candidates=["item01", "item02"], risk=1.0,
              exclude_seen=False)  # fmt: skip
    assert {row["id"] for row in few["lists"][0]["items"]} == {"item01", "item02"}
    back = ask(client, "recommend", ids=["item03"], mode="item", n=1, exclude_seen=False)
    assert back["lists"][0]["items"][0]["id"].startswith("user")


def test_a_new_user_gets_what_fold_in_recommends(service, files):
    client, model = service(files["dmf"]), load(files["dmf"])
    others, values = ["item01", "item02", "item03"], [5.0, 1.0, 4.0]
    row = model.fold_in(others, values)
    found = ask(client, "fold_in", others=others, values=values, n=4, predict=["item05"])
    assert [row["id"] for row in found["items"]] == [r.id for r in row.recommend(4)]
    mean, std = row.predict(["item05"], return_std=True)
    assert found["predicted"][0]["mean"] == pytest.approx(float(mean[0]), rel=1e-6)
    assert found["predicted"][0]["std"] == pytest.approx(float(std[0]), rel=1e-6)
    ask(client, "fold_in", 422, others=["item01"], values=[1.0, 2.0])


def test_a_prediction_is_explained(service, files):
    client, model = service(files["bayes"]), load(files["bayes"])
    found = ask(client, "explain", user="user00", item="item03", n=3)
    why = model.explain("user00", "item03", 3)
    assert [pull["id"] for pull in found["pulls"]] == [pull.id for pull in why.pulls]
    assert found["average"] + sum(p["pull"] for p in found["pulls"]) + found["rest"] == (
        pytest.approx(found["mean"])
    )
    assert "not seen" in ask(client, "explain", 422, user="nobody", item="item03")["error"]


def test_noisy_ids_are_ranked(service, files):
    client, model = service(files["bayes"]), load(files["bayes"])
    found = ask(client, "noise", mode="item", n=3, fewest=1)["columns"]
    assert found["id"] == noisy_ids(model, mode=1, n=3)["id"].tolist()


def test_a_table_is_filled_however_it_is_sent(service, files):
    client, table = service(files["imputer"]), readings()
    columns = {
        name: [None if value != value else value for value in column]
        for name, column in table.items()
    }
    found = ask(client, "impute", columns=columns, coverage=0.8)
    assert found["holes"] == {"hall": [20, 21, 22, 23]}
    filled, std = imputer().transform(frame(table), return_std=True)
    np.testing.assert_allclose(found["columns"]["hall"], filled["hall"].to_numpy(), rtol=1e-6)
    np.testing.assert_allclose(found["std"]["hall"], std["hall"].to_numpy()[20:24], rtol=1e-6)
    assert all(np.array(found["low"]["hall"]) < np.array(found["high"]["hall"]))
    rows = zip(*columns.values(), strict=True)
    text = "\n".join(",".join("" if v is None else str(v) for v in row) for row in rows)
    again = ask(client, "impute", csv=f"when,hall,attic\n{text}\n", coverage=0.8)
    np.testing.assert_allclose(again["columns"]["hall"], found["columns"]["hall"], rtol=1e-5)
    assert "one of columns, rows or csv" in ask(client, "impute", 422)["error"]


def test_columns_of_text_alone_are_refused_where_an_array_was_learned_from(service, tmp_path):
    DeviationImputer("ou", random_state=0).fit(np.sin(np.arange(40.0))[:, None]).save(
        tmp_path / "array.nw"
    )
    client = service(tmp_path / "array.nw")
    assert "no column of readings" in ask(client, "impute", 422, columns={"a": [None, ""]})["error"]
    asked = {"a": ["x", "y"], "b": ["z", None]}
    assert "'b' must hold numbers" in ask(client, "impute", 422, columns=asked)["error"]


def frame(table):
    import pyarrow

    return pyarrow.table(table)


def test_imputers_fitted_to_arrays_and_to_frames_with_an_index_are_asked_alike(service, tmp_path):
    import pandas as pd

    from noisewise import DeviationImputer

    table = readings()
    values = np.column_stack([table["hall"], table["attic"]])
    DeviationImputer("ou", random_state=0).fit(values).save(tmp_path / "array.nw")
    rows = [[None if v != v else v for v in row] for row in values.tolist()]
    client = service(tmp_path / "array.nw")
    found = ask(client, "impute", rows=rows)
    assert found["holes"] == {"0": [20, 21, 22, 23]}
    by_name = {"hall": [row[0] for row in rows], "attic": [row[1] for row in rows]}
    assert ask(client, "impute", columns=by_name)["columns"]["hall"] == found["columns"]["0"]
    ask(client, "impute", 422, rows=[[1.0, 2.0], [1.0]])
    indexed = pd.DataFrame(
        {k: table[k] for k in ("hall", "attic")}, pd.DatetimeIndex(table["time"])
    )
    DeviationImputer("ou", random_state=0).fit(indexed).save(tmp_path / "frame.nw")
    client = service(tmp_path / "frame.nw")
    found = ask(client, "impute", columns={"time": table["time"], **by_name})
    assert found["holes"] == {"hall": [20, 21, 22, 23]}
    assert found["columns"]["time"][0] == "2026-01-01T00:00:00"
    assert "cannot be read" in ask(
        client, "impute", 422, columns={"time": ["x"] * len(rows), **by_name}
    )["error"]  # fmt: skip


def test_the_rows_that_come_next_are_forecast(service, files):
    client, table = service(files["imputer"]), readings()
    columns = {n: [None if v != v else v for v in column] for n, column in table.items()}
    found = ask(client, "forecast", columns=columns, steps=3, coverage=0.8)
    assert found["columns"]["time"][0].startswith("2026-01-05T00:00")
    want = imputer().forecast(3, frame(table), 0.8)
    np.testing.assert_allclose(found["columns"]["attic"], want.mean["attic"].to_numpy(), rtol=1e-6)
    np.testing.assert_allclose(found["low"]["attic"], want.low["attic"].to_numpy(), rtol=1e-6)
    assert set(found["std"]) == {"hall", "attic"}
    assert "one of columns, rows or csv" in ask(client, "forecast", 422, steps=3)["error"]
    assert "predict" in ask(service(files["dmf"]), "forecast", 409, steps=3)["error"]


def test_odd_readings_of_a_table_are_found(service, files):
    client, table = service(files["imputer"]), readings()
    columns = {n: [None if v != v else v for v in column] for n, column in table.items()}
    columns["attic"][50] = -40.0
    found = ask(client, "anomalies", columns=columns)["columns"]
    assert (found["kind"], found["series"]) == (["spike"], ["attic"])
    assert found["start"] == ["2026-01-03T02:00:00"]
    assert "attic read -40" in found["words"][0]
    assert "spike" not in ask(client, "anomalies")["columns"]["kind"]


def test_series_of_an_imputer_are_ranked_by_noise(service, files):
    client = service(files["imputer"])
    found = ask(client, "noise", n=2)["columns"]
    assert sorted(found["series"]) == ["attic", "hall"]


def test_the_wrong_kind_of_model_says_what_it_can_be_asked(service, files):
    rating, filling = service(files["dmf"]), service(files["imputer"])
    told = ask(filling, "recommend", 409, ids=["user00"])["error"]
    assert told.startswith("A DeviationImputer is served, which has no recommend; it can be asked")
    assert "DeviationFactorizer" in ask(rating, "explain", 409, user="a", item="b")["error"]
    assert "predict" in ask(rating, "impute", 409, rows=[[1.0]])["error"]
    assert filling.get("/v1/model").json()["kind"] == "imputer"
    about = rating.get("/v1/model").json()
    assert about["modes"] == [{"name": "user", "ids": 60}, {"name": "item", "ids": 40}]
    assert "explain" not in about["endpoints"]


def test_ids_are_found_by_letters_and_come_in_any_type(service, tmp_path):
    rows = [(k % 7, f"film {k % 5}", float(k % 5)) for k in range(35)]
    DeviationFactorizer(rank=1, epochs=2, random_state=0).fit(rows).save(tmp_path / "m.nw")
    client = service(tmp_path / "m.nw")
    assert client.get("/v1/ids", params={"mode": "item", "like": "M 3"}).json()["ids"] == ["film 3"]
    assert client.get("/v1/ids", params={"mode": "0", "n": 2}).json()["ids"] == [0, 1]
    assert client.get("/v1/ids", params={"mode": "7"}).status_code == 422
    by_number = ask(client, "predict", cells=[[3, "film 1"]])["mean"]
    assert ask(client, "predict", cells=[["3", "film 1"]])["mean"] == by_number


def test_what_makes_no_sense_is_refused_with_a_sentence(service, files):
    client = service(files["dmf"], cells=50, body=10_000)
    cases = [
        ("predict", 422, {"cells": []}), ("predict", 422, {"cells": [["user00"]]}),
        ("predict", 422, {"cells": [["user00", "item00", "x"]]}),
        ("predict", 422, {"cells": [[True, "item00"]]}), ("predict", 422, {"cell": 1}),
        ("interval", 422, {"cells": [["user00", "item00"]], "coverage": 1.0}),
        ("recommend", 422, {"ids": ["user00"], "n": 0}),
        ("recommend", 422, {"ids": ["user00"], "mode": "nothing"}),
        ("recommend", 422, {"ids": ["item00"], "mode": 1, "by": "utility"}),
        ("predict", 413, {"cells": [["user00", "item00"]] * 51}),
        ("predict", 413, {"cells": [["user00", "x" * 11_000]]}),
    ]  # fmt: skip
    for endpoint, status, asked in cases:
        assert ask(client, endpoint, status, **asked)["error"]
    assert client.post("/v1/predict", content="{").status_code == 422
    assert client.get("/v1/predict").status_code == 405
    assert client.get("/nothing").json() == {"error": "Not Found"}


@pytest.mark.parametrize(
    "body",
    [
        '{"cells": [["\\ud800", "\\u001b[2J"]]}', '{"cells": [[NaN, "item00"]]}',
        '{"cells": [[1e400, "item00"]]}', '{"cells": [[' + "9" * 5000 + ', "item00"]]}',
        "[" * 100_000, '{"cells": ' * 5000, "\x00", '{"cells": [["a", "b"]], "cells": 1}',
        '{"cells": [[99999999999999999999, "item00"]]}',
    ],
    ids=lambda body: body[:24],
)  # fmt: skip
def test_hostile_json_is_refused_or_answered_and_never_an_error_of_the_server(service, files, body):
    client = service(files["dmf"])
    answer = client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 422)
    assert "\x1b" not in answer.text


def test_values_beyond_reason_are_refused(service, files):
    for name in ("dmf", "bayes"):
        client = service(files[name])
        answer = client.post(
            "/v1/fold_in", json={"others": ["item01", "item02"], "values": [1e300, -1e300]}
        )
        assert answer.status_code in (200, 422)


def test_a_token_is_asked_for_and_compared_as_a_whole(service, files):
    client = service(files["dmf"], TOKEN)
    asked = {"json": {"cells": [["user00", "item03"]]}}
    given = [None, "", "Bearer", "Bearer x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN]
    for header in given:
        headers = {} if header is None else {"authorization": header}
        answer = client.post("/v1/predict", **asked, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert client.get("/metrics", headers=headers).status_code == 401
    right = {"authorization": f"Bearer {TOKEN}"}
    assert client.post("/v1/predict", **asked, headers=right).status_code == 200
    assert client.get("/metrics", headers=right).status_code == 200
    for path in ("/", "/health", "/ready", "/openapi.json"):
        assert client.get(path).status_code == 200


def test_below_a_path_of_a_proxy_the_same_is_open(service, files):
    client = service(files["dmf"], TOKEN)
    below = TestClient(client.app, base_url=HERE, root_path="/films")  # as uvicorn has it
    assert below.get("/films/health").status_code == 200
    assert below.get("/films/").status_code == 200
    assert below.get("/films/v1/model").status_code == 401


def test_without_a_token_only_names_of_this_machine_are_answered_to(service, files):
    client = service(files["dmf"])
    assert client.get("/v1/model", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/v1/model", headers={"host": "localhost:8000"}).status_code == 200
    assert client.get("/v1/model", headers={"host": "[::1]:8000"}).status_code == 200
    assert client.get("/health", headers={"host": "evil.example"}).status_code == 200


def test_only_loopback_is_served_without_a_token(monkeypatch):
    monkeypatch.delenv("NOISEWISE_TOKEN", raising=False)
    assert token_for("127.0.0.1") is token_for("::1") is token_for("localhost") is None
    for host in ("0.0.0.0", "192.168.1.2", "::", "example.org"):
        with pytest.raises(SettingError, match="set NOISEWISE_TOKEN"):
            token_for(host)
    monkeypatch.setenv("NOISEWISE_TOKEN", "short")
    with pytest.raises(SettingError, match="16 or more"):
        token_for("127.0.0.1")
    monkeypatch.setenv("NOISEWISE_TOKEN", TOKEN)
    assert token_for("0.0.0.0") == TOKEN


def test_clients_that_ask_too_often_wait(service, files):
    client = service(files["dmf"], rate=0.01, burst=3)
    found = [client.get("/v1/model") for _ in range(4)]
    assert [answer.status_code for answer in found] == [200, 200, 200, 429]
    assert int(found[-1].headers["retry-after"]) > 50
    assert client.get("/health").status_code == 200


def test_networks_of_one_customer_share_a_bucket():
    from noisewise.serve.guard import neighbourhood

    assert neighbourhood("2001:db8::1") == neighbourhood("2001:db8::ffff:2")
    assert neighbourhood("2001:db8::1") != neighbourhood("2001:db8:0:1::1")
    assert neighbourhood("10.0.0.1") != neighbourhood("10.0.0.2")
    buckets = Buckets(0.0, 1)
    assert {buckets.wait("x") for _ in range(10)} == {0.0}


def test_a_changed_file_is_served_and_a_broken_one_is_not(service, files, tmp_path):
    path = tmp_path / "model.nw"
    path.write_bytes(files["dmf"].read_bytes())
    client = service(path)
    first = client.get("/ready").json()
    old = ask(client, "predict", cells=[["user00", "item03"]])["mean"]
    path.write_bytes(files["bayes"].read_bytes())  # in place: what is mapped must not change
    assert ask(client, "predict", cells=[["user00", "item03"]])["mean"] == old
    assert client.state.look()
    new = ask(client, "predict", cells=[["user00", "item03"]])["mean"]
    assert new != old
    assert client.get("/ready").json()["model"] != first["model"]
    whole = files["bayes"].read_bytes()
    for broken in (b"", b"nothing", whole[:1000], whole[:-1], whole[:2000] + b"x" + whole[2001:]):
        path.write_bytes(broken)
        assert not client.state.look()
        assert ask(client, "predict", cells=[["user00", "item03"]])["mean"] == new
        assert client.get("/ready").json()["reload"] == "failed"
        assert client.get("/v1/model").json()["reload_error"]
    path.unlink()
    client.state.look()
    assert "no file" in client.get("/v1/model").json()["reload_error"]
    path.write_bytes(files["dmf"].read_bytes())
    assert client.state.look()
    assert client.get("/ready").json() == first
    text = client.get("/metrics").text
    assert 'noisewise_reloads_total{outcome="failed"} 6.0' in text
    assert 'noisewise_reloads_total{outcome="done"} 2.0' in text


def test_a_worker_in_place_of_another_begins_with_the_last_version_that_could_be_read(
    service, files, tmp_path
):
    path = tmp_path / "model.nw"
    path.write_bytes(files["dmf"].read_bytes())
    client = service(path)
    path.write_bytes(files["bayes"].read_bytes())
    other = State(client.state.spool, Limits(), Meters(), every=60.0)
    other.served = client.state.served  # what the first process has had all along
    path.write_bytes(b"broken")
    other.start()
    other.stop()
    assert isinstance(other.served.model, BayesianFactorizer)


def test_the_file_is_watched(service, files, tmp_path):
    path = tmp_path / "model.nw"
    path.write_bytes(files["dmf"].read_bytes())
    client = service(path, every=0.02)
    first = client.get("/ready").json()["model"]
    path.write_bytes(files["bayes"].read_bytes())
    for _ in range(500):
        if client.get("/ready").json()["model"] != first:
            break
        time.sleep(0.02)
    assert client.get("/v1/model").json()["name"] == "BayesianFactorizer"


def test_logs_are_lines_of_json_in_which_nothing_acts(service, files):
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(JsonLines().format(record))

    handler = Keep()
    LOGGER.addHandler(handler)
    LOGGER.setLevel("INFO")
    try:
        client = service(files["dmf"])
        client.get("/v1/%1b[2J<script>\u202e")
        ask(client, "predict", cells=[["\x1b[2J<script>alert(1)</script>", "item03"]])
    finally:
        LOGGER.removeHandler(handler)
    first, second = (json.loads(line) for line in lines)
    assert first["path"] == "/v1/\\x1b[2J<script>\\u202e"
    assert (first["status"], second["status"]) == (404, 200)
    assert not any("\x1b" in line or "\u202e" in line for line in lines)
    assert second["ms"] > 0


def test_long_jobs_are_few_and_end(service, files):
    client = service(files["imputer"], jobs=1)
    go = threading.Event()
    slow = client.state.served.need

    def need(endpoint):
        go.wait(10)
        return slow(endpoint)

    object.__setattr__(client.state.served, "need", need)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(client.post("/v1/noise", json={})))
    thread.start()
    while not client.state._jobs:
        time.sleep(0.01)
    assert client.post("/v1/noise", json={}).status_code == 503
    go.set()
    thread.join()
    assert answers[0].status_code == 200


def test_warnings_of_the_model_are_part_of_the_answer(service, tmp_path):
    rows = [(k % 7, f"film {k % 5}", float(k % 5)) for k in range(35)]
    DeviationFactorizer(rank=1, epochs=2, random_state=0).fit(rows).save(tmp_path / "m.nw")
    client = service(tmp_path / "m.nw")
    found = ask(client, "predict", cells=[["ann", "film 1"]])
    assert "None of these ids" in found["warnings"][0]


def test_every_endpoint_has_an_example_that_fits_its_schema(service, files):
    from noisewise.serve.app import ROUTES

    spec = service(files["dmf"]).get("/openapi.json").json()
    for route in ROUTES:
        (example,) = spec["components"]["schemas"][route.asked.__name__]["examples"]
        route.asked(**example)
        assert f"/v1/{route.name}" in spec["paths"]


def test_a_file_whose_entries_make_no_sense_is_refused_and_stray_tensors_are_passed_over(
    files, tmp_path
):
    header = storage.read_header(files["bayes"], None)
    kind = header.pop("kind")
    header.pop("version")
    tensors = storage.read(files["bayes"], kind)[1]
    path, folder = tmp_path / "odd.nw", tmp_path / "copies"
    folder.mkdir()
    stray = {"x.multiples": np.zeros((3, 4), np.uint8), "x.powers": np.zeros(7, np.uint8)}
    storage.write(path, kind, header, tensors | stray)
    loaded = Spool(path, folder).load().model
    cells = [(loaded.ids_[0].labels[0], loaded.ids_[1].labels[0])]
    same = load(files["bayes"]).predict(cells, return_std=True)
    np.testing.assert_array_equal(loaded.predict(cells, return_std=True), same)
    assert loaded.factors_.draws["factors"].dtype == np.float32
    storage.write(path, kind, header | {"posterior": [1]}, tensors)
    with pytest.raises(ModelFileError, match=r"odd\.nw is damaged"):
        Spool(path, folder).load()
