"""Real servers, each in a process of its own, and what the system says of them."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from tests.places import ROOT
from tests.waiting import PATIENCE_S, until

TOKEN = "open sesame"


@dataclass(frozen=True)
class Reply:
    status: int
    body: dict[str, Any]
    headers: dict[str, str]


class Connection:
    """One client's connection, which stays open from call to call."""

    def __init__(self, port: int, patience_s: float = PATIENCE_S) -> None:
        self._http = HTTPConnection("127.0.0.1", port, timeout=patience_s)

    def call(self, method: str, path: str, body: object = None) -> Reply:
        """Raises OSError or HTTPException where there is no whole answer."""
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        try:
            self._http.request(method, path, None if body is None else json.dumps(body), headers)
            response = self._http.getresponse()
            content = response.read()
        except (OSError, HTTPException):
            self._http.close()
            raise
        is_json = "json" in response.headers.get("content-type", "")
        return Reply(
            response.status,
            json.loads(content) if is_json else {"text": content.decode()},
            {name.lower(): value for name, value in response.headers.items()},
        )

    def close(self) -> None:
        self._http.close()


@dataclass
class Server:
    """A server that can be stopped in its tracks, killed and begun again."""

    pid: int
    port: int
    log: Path
    settings: dict[str, object]
    begin_again: Callable[[], int] = field(repr=False)
    patience_s: float = PATIENCE_S

    def call(self, method: str, path: str, body: object = None) -> Reply:
        connection = Connection(self.port, self.patience_s)
        try:
            return connection.call(method, path, body)
        finally:
            connection.close()

    def swap(self, version: str, **fields: object) -> Reply:
        return self.call("POST", "/index/swap", {"version": version, **fields})

    def live(self) -> str | None:
        live = self.call("GET", "/index").body["live"]
        return live["version"] if live is not None else None

    def wait_until_ready(self) -> None:
        until(lambda: self.alive() and self._ready(), what=f"a server that is ready, see {self.log}")

    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError as error:
            raise AssertionError(f"the server ended: {self.log.read_text()[-2000:]}") from error
        return True

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """As a power cut would, but for the disk. One that has ended stays so."""
        if self.gone():
            return
        self.send(signal.SIGKILL)
        until(self.gone, what="the end of a killed server")

    def gone(self) -> bool:
        return not Path(f"/proc/{self.pid}").exists()

    def restart(self) -> None:
        self.pid = self.begin_again()
        self.wait_until_ready()

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the system does not say how much memory is resident")

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def mapped_indexes(self) -> int:
        """How many index files are mapped: each open version has one."""
        lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return len({line.split(maxsplit=5)[5] + line.split()[4] for line in lines if "index.faiss" in line})

    def _ready(self) -> bool:
        try:
            return self.call("GET", "/readyz").status == 200
        except OSError:
            return False


class Nursery:
    """Where servers come from: see tests/soak/nursery.py."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, "-m", "tests.soak.nursery"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._servers: list[Server] = []

    def begin(
        self, log: Path, *, environment: dict[str, str] | None = None, slow_disk_s: float = 0.0, **settings: object
    ) -> Server:
        """A server with these settings on a port of its own; it is not ready yet.

        `environment` is added to what this process has. With `slow_disk_s`, each warm-up takes so many
        seconds longer.
        """
        port = free_port()
        given = {"port": port, "admin_token": TOKEN, "threads": 1, "max_queue": 64, "timeout_s": 300, **settings}
        more = {"environment": environment or {}, "slow_disk_s": slow_disk_s}
        order = json.dumps({"settings": given, "log": str(log), **more}, default=str)
        server = Server(self._fork(order), port, log, given, lambda: self._fork(order))
        self._servers.append(server)
        return server

    def close(self) -> None:
        for server in self._servers:
            server.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait(PATIENCE_S)

    def _fork(self, order: str) -> int:
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError("the nursery has no pipes")
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
