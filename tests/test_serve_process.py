"""The service as its own processes: attacks, reloads under load, workers, and its end."""

import hashlib
import json
import os
import signal
import socket
import threading
import time
from contextlib import suppress

import pytest

pytest.importorskip("fastapi", reason="serving needs the extra serve")
pytest.importorskip("uvicorn", reason="serving needs the extra serve")

from serve_models import TOKEN, save_all, serving

from noisewise import ModelFileError, SettingError
from noisewise.serve.run import Settings, serve

CELL = {"cells": [["user00", "item03"]]}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return save_all(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def guarded(files):
    """A server that gives a request one second to arrive."""
    with serving(files["dmf"], "--receive", "1") as server:
        yield server


def head(length, more=""):
    return (
        f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\n{length}\r\n{more}\r\n"
    ).encode()


def status_of(connection):
    received = b""
    while b"\r\n" not in received:
        part = connection.recv(65536)
        if not part:
            break
        received += part
    return int(received.split()[1]) if received else None


def flood(connection, piece, many):
    """Send much, until the server has had enough."""
    with suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(many):
            connection.sendall(piece)


def test_a_body_of_a_hundred_megabytes_is_refused_and_the_answer_can_be_read(guarded):
    piece = b"x" * 2**20
    with guarded.dial() as connection:
        connection.sendall(head(f"Content-Length: {100 * 2**20}"))
        flood(connection, piece, 100)
        assert status_of(connection) == 413
    with guarded.dial() as connection:  # and one that does not say how long it is
        connection.sendall(head("Transfer-Encoding: chunked"))
        flood(connection, b"100000\r\n" + piece + b"\r\n", 100)
        assert status_of(connection) == 413
    with guarded.dial() as connection:  # nor is it read from who has no token
        connection.sendall(head(f"Content-Length: {100 * 2**20}").replace(TOKEN.encode(), b"?"))
        flood(connection, piece, 100)
        assert status_of(connection) == 401


def test_a_body_that_comes_slowly_is_given_up(guarded):
    with guarded.dial() as connection:
        connection.sendall(head("Content-Length: 100") + b'{"cells"')
        started = time.monotonic()
        assert status_of(connection) == 408
        assert time.monotonic() - started < 5.0
    assert guarded.ask("POST", "/v1/predict", CELL)[0] == 200


def test_a_head_that_does_not_end_is_given_up(guarded):
    with guarded.dial() as connection:
        assert connection.recv(100) == b""  # nothing was sent
    with guarded.dial() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        assert connection.recv(100) == b""  # not all was sent
    with guarded.dial() as connection:
        flood(connection, b"GET /health HTTP/1.1\r\n" + b"X-Many: 1\r\n" * 1000, 100)
        with suppress(ConnectionResetError):  # closed, before or after all was read
            while connection.recv(65536):
                pass
    connection = guarded.connect()  # whereas a connection may rest between requests
    for _ in range(2):
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b'{"status":"alive"}'
        time.sleep(1.3)
    connection.close()


def test_ids_with_scripts_and_escape_codes_are_text(guarded):
    evil = "\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>\u202e'; DROP TABLE"
    status, found = guarded.ask("POST", "/v1/recommend", {"ids": [evil], "n": 1})
    assert (status, found["lists"][0]["id"], found["lists"][0]["known"]) == (200, evil, False)
    guarded.ask("GET", "/v1/%1b%5b2J%0afake")
    assert not any("\x1b" in line for line in guarded.lines)
    assert guarded.ask("POST", "/v1/predict", CELL, Authorization="Bearer wrong")[0] == 401


def until(holds):
    """Wait until something holds, however slow the machine."""
    for _ in range(600):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("It never came to be.")


def sha256(content):
    return hashlib.sha256(content).hexdigest()[:16]


def workers_of(server):
    """Return the processes that have logged a request."""
    events = [json.loads(line) for line in server.lines if line.startswith("{")]
    return {event["pid"] for event in events if event["event"] == "request"}


def test_reloads_under_load_lose_no_request_and_mix_no_answer_and_workers_are_replaced(
    files, tmp_path
):
    path, versions = tmp_path / "model.nw", [files["dmf"], files["bayes"]]
    path.write_bytes(versions[0].read_bytes())
    asked = {"cells": [["user00", "item03"], ["user01", "item04"]]}
    found, broken, done = {}, [], threading.Event()
    with serving(path, "--workers", "2", "--every", "0.05") as server:

        def client():
            while not done.is_set():
                status, answer = server.ask("POST", "/v1/predict", asked)
                if status != 200:
                    broken.append(answer)
                found.setdefault(answer["model"], set()).add(tuple(answer["mean"]))

        clients = [threading.Thread(target=client) for _ in range(4)]
        for thread in clients:
            thread.start()
        for k in range(1, 6):
            beside, broken_one = tmp_path / "beside", k == 3
            content = b"broken" if broken_one else versions[k % 2].read_bytes()
            beside.write_bytes(content)
            os.replace(beside, path)
            wanted = {"reload": "failed"} if broken_one else {"model": sha256(content)}
            until(lambda wanted=wanted: wanted.items() <= server.ask("GET", "/ready")[1].items())
        done.set()
        for thread in clients:
            thread.join()
        os.kill(workers_of(server).pop(), signal.SIGKILL)
        until(lambda: any("a worker died" in line for line in server.lines))
        assert all(server.ask("POST", "/v1/predict", CELL)[0] == 200 for _ in range(20))
        assert server.stop() == 0
    assert broken == []
    assert len(found) == 2
    assert all(len(answers) == 1 for answers in found.values())


def test_sigterm_answers_what_is_in_flight(files):
    with serving(files["imputer"]) as server:
        answers = []
        job = threading.Thread(
            target=lambda: answers.append(server.ask("POST", "/v1/noise", {"fewest": 1}))
        )
        job.start()
        body = b'{"series": 1}'  # refused in the end, but answered
        slow = server.dial()
        slow.sendall(head(f"Content-Length: {len(body)}") + body[:5])
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        slow.sendall(body[5:])
        assert status_of(slow) == 422
        slow.close()
        job.join()
        assert answers[0][0] == 200
        assert server.process.wait(20) == 0
        with pytest.raises(ConnectionRefusedError):
            server.dial()


def test_what_cannot_be_served_is_a_sentence(files, tmp_path, monkeypatch):
    def refuse(path, match, error=ModelFileError, **settings):
        with pytest.raises(error, match=match):
            serve(Settings(path, port=0, **settings))

    monkeypatch.delenv("NOISEWISE_TOKEN", raising=False)
    refuse(files["dmf"], "set NOISEWISE_TOKEN", SettingError, host="0.0.0.0")
    refuse(tmp_path / "none.nw", "There is no file")
    (tmp_path / "broken.nw").write_bytes(b"broken")
    refuse(tmp_path / "broken.nw", "broken.nw is not a noisewise file")
    refuse(files["dmf"], "workers must be 1 to 256; got 0", SettingError, workers=0)
    refuse(files["dmf"], "root must begin with /", SettingError, root="films/")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=f"port {port} cannot be served on"):
            serve(Settings(files["dmf"], port=port))
