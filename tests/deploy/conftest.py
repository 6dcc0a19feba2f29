"""What is found on this machine: an engine, a compose, a promtool."""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT

PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "openbook.json"
PROMETHEUS_IMAGE = "prom/prometheus"


def every(key: str, part: Any) -> Iterator[Any]:
    """What stands under `key` anywhere in a JSON document."""
    if isinstance(part, dict):
        if key in part:
            yield part[key]
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from every(key, one)


def run(*command: str, check: bool = True, timeout_s: float = 120, **more: object) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(  # type: ignore[call-overload]
        command, capture_output=True, text=True, timeout=timeout_s, check=False, **more
    )
    if check and ended.returncode:
        raise AssertionError(
            f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}"[-6000:]
        )
    return ended


def succeeds(*command: str) -> bool:
    return shutil.which(command[0]) is not None and run(*command, check=False).returncode == 0


@pytest.fixture(scope="session")
def engine_reached() -> None:
    if not succeeds("docker", "info"):
        pytest.skip("no Docker engine is reachable")


@pytest.fixture(scope="session")
def compose(engine_reached: None) -> Sequence[str]:
    for command in (("docker", "compose"), ("docker-compose",)):
        if succeeds(*command, "version"):
            return command
    pytest.skip("neither `docker compose` nor docker-compose is installed")


@pytest.fixture(scope="session")
def promtool() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs promtool, of this machine or of Prometheus' own image, in a folder."""
    if shutil.which("promtool"):
        return lambda folder, *arguments: run("promtool", *arguments, check=False, cwd=folder)
    if not succeeds("docker", "image", "inspect", PROMETHEUS_IMAGE):
        pytest.skip(f"there is no promtool, and no engine with the image {PROMETHEUS_IMAGE}")

    def in_image(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        inside = ("-v", f"{folder}:/folder:ro", "-w", "/folder", "--entrypoint", "promtool", PROMETHEUS_IMAGE)
        return run("docker", "run", "--rm", *inside, *arguments, check=False)

    return in_image
