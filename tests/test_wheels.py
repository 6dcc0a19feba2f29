"""The wheels in a new environment and an empty folder, from `pip install` to the answer about Peru."""

import os
import shutil
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.places import ROOT
from tests.soak.servers import free_port
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NEWER = [path for name in ("python3.13", "python3.12") if (path := shutil.which(name))]
QUESTION = {"question": "Who is the President of Peru?"}
START_S = 120


@pytest.fixture(scope="module")
def wheels() -> Path:
    subprocess.run(["make", "wheels"], cwd=ROOT, check=True, capture_output=True)
    return ROOT / "dist"


def test_there_is_one_wheel_for_each_distribution_and_none_holds_the_tests(wheels: Path) -> None:
    names = sorted(path.name.split("-")[0] for path in wheels.glob("*.whl"))
    assert names == [
        "openbook",
        "openbook_base",
        "openbook_client",
        "openbook_lab",
        "openbook_mini",
        "openbook_mini_bart",
    ]
    for wheel in wheels.glob("*.whl"):
        assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("tests")]


@pytest.mark.parametrize("python", [sys.executable, *NEWER[:1]])
def test_in_an_empty_folder_the_demo_answers(
    wheels: Path, tmp_path: Path, python: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home, written = tmp_path / "home", tmp_path / "written"
    home.mkdir()
    began = time.monotonic()
    if subprocess.run([python, "-m", "venv", tmp_path / "venv"], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} makes no environment here")
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", "--find-links", wheels]
    subprocess.run([*pip, "-c", ROOT / "constraints.txt", "openbook[mini]"], cwd=home, check=True)
    installed = time.monotonic()

    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBOOK_", "XDG_"))}
    environment |= {"HOME": str(home), "HF_HUB_OFFLINE": "1"}
    openbook = tmp_path / "venv/bin/openbook"
    refused = subprocess.run(
        [openbook, "serve"], cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "openbook demo" in refused.stderr

    port = free_port()
    with written.open("w") as log:
        command = [openbook, "demo", "--port", str(port)]
        demo = subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log)
    try:
        until(lambda: answers(port), what="an answer", limit_s=START_S, every_s=0.5)
        answer = answers(port).json()
        seconds = f"installed in {installed - began:.0f} s, answered {time.monotonic() - installed:.0f} s later"
    finally:
        demo.terminate()
        demo.wait(timeout=PATIENCE_S)
    assert "Kuczynski" in answer["answer"]
    assert answer["index"]["version"] == "wiki-2016"
    assert (home / ".local/share/openbook/indexes/CURRENT").is_file()
    assert list(home.iterdir()) == [home / ".local"], written.read_text()
    with capsys.disabled():
        sys.stderr.write(f"\n{python}: {seconds}\n")


def answers(port: int) -> Any:
    """A response, once the service listens."""
    with suppress(httpx.TransportError):
        response = httpx.post(f"http://127.0.0.1:{port}/answer", json=QUESTION, timeout=PATIENCE_S)
        return response if response.is_success else None
