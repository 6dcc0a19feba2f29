import dataclasses
import shutil
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from openbook import extensions
from openbook.cli.serve import DEMO_VERSIONS, provide
from openbook.errors import IndexCorrupt, SettingInvalid
from openbook.settings import default_indexes
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import open_manifest, write_manifest
from tests.fixtures.command_line import Run
from tests.fixtures.indexes import publish_tiny


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of an installed checkpoint package that brings the demo's two versions."""
    folder = tmp_path / "site" / "tiny_package"
    (folder / "indexes").mkdir(parents=True)
    (folder / "__init__.py").touch()
    made = IndexStore(tmp_path / "made")
    for name, like in zip(DEMO_VERSIONS, ("tiny-2016", "tiny-2018"), strict=True):
        publish_tiny(made, like)
        shutil.copytree(made.folder / like, folder / "indexes" / name)
        renamed = dataclasses.replace(open_manifest(folder / "indexes" / name, like).info, version=name)
        write_manifest(folder / "indexes" / name, renamed)
    monkeypatch.syspath_prepend(str(folder.parent))
    entry = EntryPoint("openbook-mini", "tiny_package", extensions.CHECKPOINTS)
    monkeypatch.setattr(extensions, "entry_points", lambda group: [entry] if group == entry.group else [])
    return folder


def test_the_demo_copies_what_the_package_brings_and_begins_on_the_first(package: Path, tmp_path: Path) -> None:
    store = IndexStore(tmp_path / "indexes")
    provide(store)
    assert store.versions() == DEMO_VERSIONS
    assert store.current() == "wiki-2016"
    for version in DEMO_VERSIONS:
        assert store.verify(version).version == version


def test_the_demo_copies_and_then_serves_with_the_public_token(package: Path, run: Run) -> None:
    ended = run("demo", "--indexes", "books", "--host", "0.0.0.0")
    assert ended.code == 2
    assert ended.err.startswith(
        "copied wiki-2016 to books\ncopied wiki-2018 to books\nerror [setting_invalid]: --demo: "
    )


def test_what_is_there_stays_as_it_is(package: Path, tmp_path: Path) -> None:
    store = IndexStore(tmp_path / "indexes")
    provide(store)
    store.set_current("wiki-2018")
    shutil.rmtree(package / "indexes")
    provide(store)
    assert store.current() == "wiki-2018"


def test_a_damaged_package_is_refused_and_nothing_is_published(package: Path, tmp_path: Path) -> None:
    damaged = package / "indexes" / "wiki-2016" / "passages.arrow"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    store = IndexStore(tmp_path / "indexes")
    with pytest.raises(IndexCorrupt, match="does not match the sha256"):
        provide(store)
    assert store.versions() == ()


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extensions, "entry_points", lambda group: [])
    with pytest.raises(SettingInvalid, match=r"pip install 'openbook\[mini\]'"):
        provide(IndexStore(tmp_path / "indexes"))


def test_indexes_are_in_the_working_folder_or_else_among_the_users_data(run: Run, tmp_path: Path) -> None:
    assert default_indexes() == tmp_path / "data" / "openbook" / "indexes"
    (tmp_path / "indexes").mkdir()
    assert default_indexes() == Path("indexes")
