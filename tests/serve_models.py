"""Small fitted models for tests of the service, and the service in processes of its own."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager

import numpy as np

from noisewise import BayesianFactorizer, DeviationFactorizer, DeviationImputer
from noisewise.data.synthetic import make_ratings

TOKEN = "a token of twenty let"


def readings():
    """Two days and more of two sensors, one of them with a hole."""
    hours = np.arange(96)
    hall, attic = 20 + np.sin(hours / 4), 15 + np.sin(hours / 4)
    hall[20:24] = np.nan
    stamps = [f"2026-01-{1 + h // 24:02d}T{h % 24:02d}:00" for h in hours.tolist()]
    return {"time": stamps, "hall": hall.tolist(), "attic": attic.tolist()}


def imputer():
    import pyarrow

    return DeviationImputer("ou", time="time", random_state=0).fit(pyarrow.table(readings()))


def save_all(folder):
    """Fit a model of each kind, and return the files they are in."""
    ratings = make_ratings(n_users=60, n_items=40, seed=0).observations
    paths = {name: folder / f"{name}.nw" for name in ("dmf", "bayes", "imputer")}
    DeviationFactorizer(rank=2, deviation_rank=1, random_state=0).fit(ratings).save(paths["dmf"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws settle little
        model = BayesianFactorizer(rank=2, sweeps=40, burn_in=20, random_state=0, n_jobs=1)
        model.fit(ratings).save(paths["bayes"])
    imputer().save(paths["imputer"])
    return paths


class Server:
    """A server in processes of its own."""

    def __init__(self, process):
        self.process, self.lines = process, []
        for line in process.stderr:
            self.lines.append(line)
            if "Ctrl-C ends it" in line:
                break
        else:
            raise AssertionError("".join(self.lines))
        self.port = int(line.split("127.0.0.1:")[1].split(";")[0])
        self.reader = threading.Thread(target=lambda: self.lines.extend(process.stderr))
        self.reader.start()

    def connect(self, timeout=20.0):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, **headers):
        """Return status and answer of one request."""
        connection = self.connect()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"} | headers
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        connection.close()
        return answer.status, found

    def dial(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20.0)

    def stop(self):
        """End it as a supervisor would; return the exit code."""
        self.process.terminate()
        return self.process.wait(20)


@contextmanager
def serving(path, *options):
    environment = os.environ | {"NOISEWISE_TOKEN": TOKEN}
    command = [sys.executable, "-m", "noisewise", "serve", str(path), "--port", "0", *options]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        server = Server(process)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(20)
        server.reader.join()
        process.stderr.close()
