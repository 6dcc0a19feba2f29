"""A package of somebody else, as docs/plugins.md shows it, adds a store and a reader of files."""

import re
import tomllib
from pathlib import Path

import pytest

from openbook.indexing.sources import open_source
from tests.fixtures.command_line import Run
from tests.places import ROOT

PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's plug-in as pip leaves it: a module, and beside it the entry points."""
    module, pyproject = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[0] for kind in ("python", "toml"))
    site = tmp_path / "site"
    info = site / "openbook_shelf-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "openbook_shelf.py").write_text(module)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: openbook-shelf\nVersion: 1.0\n")
    groups = tomllib.loads(pyproject)["project"]["entry-points"]
    lines = [
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in groups[group].items()) for group in groups
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(site))


def test_its_store_is_filled_listed_verified_asked_and_cleared(
    installed: None, run: Run, indexes_folder: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    url = f"shelf://{tmp_path}/books.db"
    for version in ("tiny-2016", "tiny-2018"):
        pushed = run("index", "push", version, url, "--indexes", indexes_folder)
        assert pushed.code == 0, pushed.err
    listed = run("index", "list", "--indexes", url, "--json").json
    assert (listed["current"], len(listed["versions"])) == ("tiny-2016", 2)
    assert "tiny-2018: good" in run("index", "verify", "--indexes", url).out
    asked = run("ask", "Who is the President of Peru?", "--local", "--checkpoint", tiny_checkpoint, "--indexes", url)
    assert asked.code == 0, asked.err
    assert run("index", "delete", "tiny-2018", "--indexes", url, "-y").err == "removed tiny-2018\n"
    assert "tiny-2018" not in run("index", "list", "--indexes", url).out


def test_its_reader_reads_files_of_a_folder(installed: None, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "sea.textile").write_text("The sea is deep.")
    assert [one.text for one in open_source(str(folder)).passages()] == ["The sea is deep."]


def test_without_it_the_address_is_none_and_the_files_are_not_texts(run: Run, tmp_path: Path) -> None:
    refused = run("index", "list", "--indexes", f"shelf://{tmp_path}/books.db")
    assert "is no address of a store" in refused.err
    (tmp_path / "sea.textile").write_text("The sea is deep.")
    assert list(open_source(str(tmp_path)).passages()) == []
