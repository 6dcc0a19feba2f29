"""Installs this clone for the Makefile: what Openbook needs, and its parts in place. This script needs nothing but pip.

    python deploy/install.py EXTRA...           what these extras need, and every part, as `pip install -e` does
    python deploy/install.py --needs EXTRA...   only what these extras need: the parts are in place

pip compiles no files here: most are never imported, and compiling all takes a third of the time. Nor does it make an
environment to build each part in: all are built by the setuptools that is installed with what they need.
"""

import re
import subprocess
import sys
import time
import tomllib
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_path

PARTS = (
    *(".", "service/openbook_client", "service/openbook_lab"),
    *("checkpoints/openbook-mini-bart", "checkpoints/openbook-mini", "checkpoints/openbook-base"),
)
LOG = Path(sys.prefix) / "install.log"
# On Linux PyPI's torch carries gigabytes of CUDA.
TORCH_FOR_CPU = "https://download.pytorch.org/whl/cpu"


def needs(extras: list[str]) -> list[str]:
    """What these extras, the parts and the build of the parts require, without the parts themselves."""
    projects = [tomllib.loads(Path(part, "pyproject.toml").read_text(encoding="utf-8")) for part in PARTS]
    optional = projects[0]["project"]["optional-dependencies"]
    ours = {project["project"]["name"] for project in projects}
    wanted = {one for project in projects for one in project["project"].get("dependencies", ())}
    wanted |= {one for extra in extras for one in optional[extra]} | set(projects[0]["build-system"]["requires"])
    return sorted(one for one in wanted if re.split(r"[^\w-]", one)[0] not in ours)


def pip(*arguments: str) -> bool:
    """Run `pip install`; True where it succeeds. It shows one line with how far pip is, in place of pip's hundreds."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", *arguments]
    with LOG.open("w", encoding="utf-8") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
        shown = began = time.monotonic()
        while running.poll() is None:
            time.sleep(0.2)
            every_s = 0.2 if sys.stdout.isatty() else 15
            if time.monotonic() - shown >= every_s:
                shown = time.monotonic()
                show(f"{shown - began:4.0f} s  {how_far(LOG.read_text(encoding='utf-8', errors='replace'))}")
    if sys.stdout.isatty():
        sys.stdout.write("\r\033[K")
    return running.returncode == 0


def how_far(log: str) -> str:
    if chosen := re.search(r"^Installing collected packages: (.*)", log, re.MULTILINE):
        names = {re.sub(r"[-_.]+", "_", name).lower() for name in chosen[1].split(", ")}
        there = {path.name.split("-")[0].lower() for path in Path(get_path("purelib")).glob("*.dist-info")}
        done = len({re.sub(r"[-_.]+", "_", name) for name in there} & names)
        return f"[{'=' * (20 * done // len(names)):20}] {done} of {len(names)} packages are unpacked"
    found = re.findall(r"^\s*(?:Collecting|Processing|Obtaining) (\S+)", log, re.MULTILINE)
    return f"{len(found)} packages are found and downloaded, {found[-1] if found else ''}"


def show(line: str) -> None:
    """Print a line; on a terminal it replaces the line before."""
    sys.stdout.write(f"\r\033[K{line[:100]}" if sys.stdout.isatty() else f"{line}\n")
    sys.stdout.flush()


def choose_torch() -> None:
    """On Linux without a GPU take the torch without CUDA, unless pip has an index of its own, or torch is there."""
    if sys.platform != "linux" or Path("/dev/nvidia0").exists() or find_spec("torch"):
        return
    configured = [sys.executable, "-m", "pip", "config", "list"]
    if ".index-url" not in subprocess.run(configured, capture_output=True, text=True, check=False).stdout:
        print(f"There is no GPU: torch comes without CUDA, from {TORCH_FOR_CPU}.", flush=True)  # noqa: T201
        if not pip("-c", "constraints.txt", "--retries", "1", "--timeout", "15", "--index-url", TORCH_FOR_CPU, "torch"):
            print("It cannot be reached: PyPI has torch, too.", flush=True)  # noqa: T201


def main(arguments: list[str]) -> None:
    extras = [one for one in arguments if not one.startswith("--")]
    choose_torch()
    done = pip("-c", "constraints.txt", *needs(extras))
    if done and "--needs" not in arguments:
        done = pip("--no-deps", "--no-build-isolation", *(word for part in PARTS for word in ("-e", part)))
    if not done:
        sys.exit(f"{LOG.read_text(encoding='utf-8', errors='replace')}\nThis was not installed.")


if __name__ == "__main__":
    main(sys.argv[1:])
