"""A server on this machine, and datasets that have their files there."""

import hashlib
import http.server
import threading
from dataclasses import replace
from functools import partial

import pytest

from noisewise.data import fetch


class Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, content, asked, *args):
        self.content, self.asked = content, asked
        super().__init__(*args)

    def do_GET(self):
        self.asked.append(self.path)
        found = self.content.get(self.path.partition("?")[0])
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server with files to fill in, and what it was asked for."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    content, asked = {}, []
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, content, asked)
    ) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield content, asked, f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


@pytest.fixture
def local(server):
    """Put files on the server, and return a dataset that has its files there."""
    content, _, address = server

    def put(name, *bodies, checked=True):
        source, files = fetch.find(name), []
        for k, (file, body) in enumerate(zip(source.files, bodies, strict=True)):
            path = f"/{k}/{file.url.partition('?')[0].rpartition('/')[2]}"
            content[path] = body
            question = "".join(file.url.partition("?")[1:])
            md5 = hashlib.md5(body, usedforsecurity=False).hexdigest()
            own = md5 if checked and file.md5 is not None else file.md5
            files.append(replace(file, url=address + path + question, md5=own))
        return replace(source, files=tuple(files))

    return put
