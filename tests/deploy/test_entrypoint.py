"""What the image does before it serves: an empty folder gets the demo, another is left as it is."""

import subprocess
from pathlib import Path

import pytest

from tests.deploy.conftest import ROOT

ENTRYPOINT = ROOT / "deploy" / "image" / "entrypoint.sh"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    for name in ("indexes/wiki-2016/manifest.json", "indexes/wiki-2018/manifest.json", "checkpoints/mini/config.json"):
        file = tmp_path / "demo" / name
        file.parent.mkdir(parents=True)
        file.write_text(name)
    (tmp_path / "demo" / "indexes" / "CURRENT").write_text("wiki-2016\n")
    for name in ("indexes", "checkpoints"):
        (tmp_path / name).mkdir()
    return tmp_path / "demo"


def start(demo: Path, *command: str) -> subprocess.Popen[str]:
    folder = demo.parent
    environment = {
        "PATH": "/usr/bin:/bin",
        "OPENBOOK_DEMO": str(demo),
        "OPENBOOK_INDEXES": str(folder / "indexes"),
        "OPENBOOK_CHECKPOINTS": str(folder / "checkpoints"),
    }
    return subprocess.Popen(
        [str(ENTRYPOINT), *command], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=250)
    return process.returncode, out, err


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_empty_folders_get_the_demo_and_the_command_runs_in_its_place(demo: Path) -> None:
    assert ended(start(demo, "echo", "served")) == (0, "served\n", "")
    assert files(demo.parent / "indexes") == files(demo / "indexes")
    assert files(demo.parent / "checkpoints") == files(demo / "checkpoints")


def test_the_end_of_the_command_is_the_end_of_the_container(demo: Path) -> None:
    assert ended(start(demo, "sh", "-c", "exit 7"))[0] == 7


def test_a_folder_that_holds_something_is_left_as_it_is(demo: Path) -> None:
    mine = demo.parent / "indexes" / "mine"
    mine.mkdir()
    (mine / "manifest.json").write_text("mine")
    assert ended(start(demo, "true"))[0] == 0
    assert files(demo.parent / "indexes") == {"mine/manifest.json": "mine"}


def test_a_new_file_system_counts_as_empty(demo: Path) -> None:
    (demo.parent / "indexes" / "lost+found").mkdir()
    assert ended(start(demo, "true"))[0] == 0
    assert files(demo.parent / "indexes") == files(demo / "indexes")


def test_a_start_that_was_killed_while_it_filled_is_gone_on_with(demo: Path) -> None:
    indexes = demo.parent / "indexes"
    (indexes / ".filling" / "wiki-2018").mkdir(parents=True)
    (indexes / "wiki-2016").mkdir()
    (indexes / "wiki-2016" / "manifest.json").write_text("indexes/wiki-2016/manifest.json")
    assert ended(start(demo, "true"))[0] == 0
    assert files(indexes) == files(demo / "indexes")
    assert not (indexes / ".filling").exists()


def test_of_many_that_start_at_once_each_finds_all_of_the_demo(demo: Path) -> None:
    indexes = demo.parent / "indexes"
    starts = [start(demo, "find", str(indexes), "-type", "f") for _ in range(8)]
    expected = sorted(str(indexes / name) for name in files(demo / "indexes"))
    assert [(code, sorted(out.splitlines()), err) for code, out, err in map(ended, starts)] == [(0, expected, "")] * 8


def test_what_is_gone_stays_gone(demo: Path) -> None:
    """A version that an operator removed does not come back while another is there."""
    ended(start(demo, "true"))
    (demo.parent / "indexes" / "wiki-2016" / "manifest.json").unlink()
    (demo.parent / "indexes" / "wiki-2016").rmdir()
    ended(start(demo, "true"))
    assert not (demo.parent / "indexes" / "wiki-2016").exists()
