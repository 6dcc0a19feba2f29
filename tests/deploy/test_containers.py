"""The image and the compose file in a real engine: built, begun, asked, swapped, watched, ended.

TORCH_INDEX_URL, PIP_INDEX_URL and PIP_EXTRA_INDEX_URL go from the environment to the build; OPENBOOK_TEST_IMAGE names
an image that is built already. Where the engine has built none of it before, that takes a quarter of an hour.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

import openbook
from tests import waiting
from tests.deploy.conftest import ROOT, run, succeeds
from tests.fixtures.summary import Summary
from tests.soak.servers import TOKEN, free_port

pytestmark = [pytest.mark.docker, pytest.mark.timeout(5400)]

QUESTION = {"question": "Who is the President of Peru?"}
IN_2016, IN_2018 = "Kuczynski", "Vizcarra"
BUILD_S, START_S = 5000.0, 300.0
BUILD_ARGUMENTS = ("TORCH_INDEX_URL", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
# with a Python image of 130 MB, and torch without CUDA
MAX_BYTES_BEYOND_PYTHON = 1_400_000_000
LOCKED_DOWN = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


@pytest.fixture(scope="module")
def image(engine_reached: None, summary: Summary) -> str:
    built = os.environ.get("OPENBOOK_TEST_IMAGE")
    if built:
        return built
    given = [f"--build-arg={name}={os.environ[name]}" for name in BUILD_ARGUMENTS if name in os.environ]
    began = time.monotonic()
    run("docker", "build", *given, "-t", "openbook:test", ".", cwd=ROOT, timeout_s=BUILD_S)
    summary(f"built in {time.monotonic() - began:.0f} s")
    return "openbook:test"


def until(condition: Callable[[], object], *, what: str, limit_s: float) -> float:
    """The seconds until `condition`, of a service that may not listen yet."""

    def holds() -> object:
        try:
            return condition()
        except (httpx.HTTPError, KeyError, IndexError, ValueError):
            return False

    return waiting.until(holds, what=what, limit_s=limit_s, every_s=0.5)


class Address:
    def __init__(self, port: int) -> None:
        self.port = port
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)

    def get(self, path: str, **query: str) -> dict[str, Any]:
        body: dict[str, Any] = self._http.get(path, params=query).raise_for_status().json()
        return body

    def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        return self._http.post(path, json=body, headers=headers)

    def answer(self) -> tuple[str, str]:
        body = self.post("/answer", QUESTION).raise_for_status().json()
        return body["answer"], body["index"]["version"]

    def swap(self, version: str) -> httpx.Response:
        return self.post("/index/swap", {"version": version}, authorization=f"Bearer {TOKEN}")

    def ready(self) -> bool:
        return self._http.get("/readyz").status_code == 200

    def close(self) -> None:
        self._http.close()


class Container:
    def __init__(self, name: str) -> None:
        self.name = name

    def inside(self, *command: str) -> str:
        return run("docker", "exec", self.name, *command).stdout.strip()

    def inspect(self, template: str) -> str:
        return run("docker", "inspect", "-f", template, self.name).stdout.strip()

    def logs(self) -> str:
        return run("docker", "logs", self.name).stderr


class Composition:
    """docker-compose.yml under a project of its own, on ports that are free."""

    def __init__(self, compose: Sequence[str], image: str) -> None:
        self.ports = {name: free_port() for name in ("OPENBOOK", "PROMETHEUS")}
        self._environment = {
            **os.environ,
            **{f"{name}_PORT": str(port) for name, port in self.ports.items()},
            "OPENBOOK_IMAGE": image,
            "OPENBOOK_ADMIN_TOKEN": TOKEN,
        }
        project = f"openbook-test-{self.ports['OPENBOOK']}"
        self._compose = [*compose, "-p", project]
        self.addresses: list[Address] = []

    def __call__(self, *arguments: str) -> str:
        ended = run(*self._compose, *arguments, cwd=ROOT, env=self._environment, timeout_s=START_S)
        return ended.stdout.strip()

    def address(self, name: str) -> Address:
        self.addresses.append(Address(self.ports[name]))
        return self.addresses[-1]

    def container(self, service_name: str) -> Container:
        return Container(self("ps", "-q", service_name))

    def down(self) -> None:
        for address in self.addresses:
            address.close()
        self("down", "--volumes", "--remove-orphans")


@pytest.fixture(scope="module")
def up(compose: Sequence[str], image: str) -> Iterator[Composition]:
    composition = Composition(compose, image)
    try:
        composition("up", "-d", "--no-build", "openbook", "prometheus")
        yield composition
    finally:
        composition.down()


def prometheus_says(prometheus: Address, query: str) -> float:
    return float(prometheus.get("/api/v1/query", query=query)["data"]["result"][0]["value"][1])


def test_it_answers_is_swapped_is_watched_comes_back_and_ends(up: Composition, summary: Summary) -> None:
    openbook, prometheus = up.address("OPENBOOK"), up.address("PROMETHEUS")
    began = time.monotonic()
    until(openbook.ready, what="a service that is ready", limit_s=START_S)
    answer, version = openbook.answer()
    summary(f"first answer {time.monotonic() - began:.1f} s after compose was done")
    assert IN_2016 in answer
    assert version == "wiki-2016"

    assert openbook.swap("wiki-2018").json()["durable"] is True
    answer, version = openbook.answer()
    assert IN_2018 in answer
    assert version == "wiki-2018"
    assert openbook.post("/index/swap", {"version": "wiki-2016"}).status_code == 401

    def counted() -> bool:
        return (
            prometheus_says(prometheus, 'up{job="openbook"}') == 1
            and prometheus_says(prometheus, 'openbook_swaps_total{outcome="ok"}') == 1
            and prometheus_says(prometheus, 'openbook_index_info{version="wiki-2018"}') == 1
            and prometheus_says(prometheus, 'sum(openbook_requests_total{route="/answer", outcome="ok"})') == 2
        )

    until(counted, what="Prometheus to have seen two answers and the swap", limit_s=60)
    groups = prometheus.get("/api/v1/rules")["data"]["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}
    assert len(prometheus.get("/api/v1/targets")["data"]["activeTargets"]) == 1

    container = up.container("openbook")
    until(lambda: container.inspect("{{.State.Health.Status}}") == "healthy", what="a healthy container", limit_s=60)
    assert container.inside("id", "-u") == "10001"
    assert not succeeds("docker", "exec", container.name, "touch", "/opt/openbook/written")
    status = container.inside("cat", "/proc/1/status")
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    lines = [json.loads(line) for line in container.logs().splitlines()]
    assert {"wiki-2016", "wiki-2018"} <= {line.get("index") for line in lines if line.get("route") == "/answer"}

    up("restart", "-t", "60", "openbook")
    until(openbook.ready, what="a service that is ready again", limit_s=START_S)
    assert openbook.answer()[1] == "wiki-2018"
    up("stop", "-t", "60", "openbook")
    assert container.inspect("{{.State.ExitCode}} {{.State.OOMKilled}}") == "0 false"


def test_a_folder_that_cannot_be_written_is_refused_with_the_reason(image: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    ended = run("docker", "run", "--rm", *LOCKED_DOWN, "-v", f"{tmp_path}:/indexes", image, check=False)
    assert ended.returncode != 0
    assert "/indexes is empty and user 10001 cannot write to it" in ended.stderr


def test_the_image_is_small_labelled_and_holds_what_the_constraints_say(image: str, summary: Summary) -> None:
    size, base = (int(run("docker", "inspect", "-f", "{{.Size}}", one).stdout) for one in (image, "python:3.11-slim"))
    summary(f"{size / 1e6:.0f} MB, of which {base / 1e6:.0f} MB are python:3.11-slim")
    assert size - base < MAX_BYTES_BEYOND_PYTHON
    labels = json.loads(run("docker", "inspect", "-f", "{{json .Config.Labels}}", image).stdout)
    assert labels["org.opencontainers.image.version"] == openbook.__version__
    listing = "from importlib.metadata import distributions as d; print(*(f'{p.name}=={p.version}' for p in d()))"
    held = run("docker", "run", "--rm", "--entrypoint", "python3", image, "-c", listing).stdout.split()
    pinned = {
        line.lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    }
    ours = {one.lower().replace("_", "-").partition("+")[0] for one in held if not one.startswith("openbook")}
    assert ours - pinned <= {one for one in ours if one.startswith(("pip==", "setuptools==", "wheel=="))}
