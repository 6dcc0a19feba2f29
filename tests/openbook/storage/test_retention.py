"""Which versions a prune by number and age deletes, and which it never deletes."""

import dataclasses
import datetime
import json
from pathlib import Path

import pytest

from openbook.errors import IndexCorrupt
from openbook.indexing.building import reading
from openbook.indexing.building.work_folder import bases
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.storage.history import SwapHistory, SwapRecord
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import MANIFEST, sealed
from openbook.storage.retention import Retention, Retired, retire
from tests.fixtures.command_line import Run
from tests.fixtures.indexes import ENCODER, publish_tiny
from tests.openbook.indexing.builds import interrupt

VERSIONS = ("v1", "v2", "v3", "v4", "v5", "v6")
# what is made of which, where neither is finished
NEEDED = {"v1": "next", "v2": "both", "v3": "both"}


@pytest.fixture
def store(tmp_path: Path) -> IndexStore:
    """v1 to v6, built 60, 50 ... 10 days ago; services start on v6."""
    store = IndexStore(tmp_path / "indexes")
    now = datetime.datetime.now(datetime.UTC)
    for age, version in enumerate(VERSIONS[::-1], start=1):
        publish_tiny(store, "tiny-2016", as_version=version)
        manifest = store.folder / version / MANIFEST
        built = now - datetime.timedelta(days=10 * age)
        fields = json.loads(manifest.read_text()) | {"created_at": built.isoformat(timespec="seconds")}
        manifest.write_bytes(sealed(fields))
    store.set_current("v6")
    return store


def swapped(store: IndexStore, previous: str, version: str) -> None:
    record = SwapRecord("", "", "", previous, version, "availability", "ok", 1, 0.0)
    SwapHistory(store.folder).append(record)


@pytest.mark.parametrize(
    ("retention", "removed"),
    [
        (Retention(), ()),
        (Retention(keep=6), ()),
        (Retention(keep=9), ()),
        (Retention(keep=2), ("v1", "v2", "v3", "v4")),
        (Retention(days=35), ("v1", "v2", "v3")),
        (Retention(keep=4, days=35), ("v1", "v2")),
        (Retention(keep=2, days=55), ("v1",)),
        (Retention(keep=1, among=lambda version: version < "v4"), ("v1", "v2")),
    ],
)
def test_versions_go_that_neither_number_nor_age_keeps(
    store: IndexStore, retention: Retention, removed: tuple[str, ...]
) -> None:
    assert retire(store, retention, {}, dry_run=True) == Retired(removed, ())
    assert store.versions() == VERSIONS
    assert retire(store, retention, {}) == Retired(removed, ())
    assert store.versions() == tuple(one for one in VERSIONS if one not in removed)
    assert retire(store, retention, {}) == Retired((), ())


def test_what_is_needed_is_never_deleted(store: IndexStore) -> None:
    store.set_current("v1")
    swapped(store, "v2", "v1")
    swapped(store, "v3", "v4")
    opened = store.open("v3")
    (store.folder / "v4" / MANIFEST).write_text("{")
    for dry_run in (True, False):
        found = retire(store, Retention(days=1), {}, dry_run=dry_run)
        assert found.removed == ("v5", "v6")
        assert [version for version, _ in found.spared] == ["v4", "v1", "v2", "v3"]
        assert [reason.split(":")[0] for _, reason in found.spared] == [
            "its age is not known",
            "services start on it",
            "a rollback of v1 leads to it",
            "a process has it open",
        ]
    opened.close()
    assert retire(store, Retention(days=1), {}).removed == ("v3",)
    assert store.versions() == ("v1", "v2", "v4")


def test_what_an_unfinished_version_is_made_from_stays(
    run: Run, store: IndexStore, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update or a merge that was killed goes on by the same command, which needs its versions."""
    loaded = PassageEncoder.load(tiny_encoder)
    expected = dataclasses.replace(loaded, source=dataclasses.replace(loaded.source, fingerprint=ENCODER))
    monkeypatch.setattr(PassageEncoder, "load", lambda *_, **__: expected)
    gone = store.folder.parent / "gone.txt"
    gone.write_text("river")
    making = [
        ("index", "update", "v1", "--name", "next", "--delete", gone, "--indexes", store.folder),
        ("index", "merge", "v2", "v3", "--name", "both", "--prefix", "--indexes", store.folder),
    ]
    with monkeypatch.context() as stopping:
        stopping.setattr(reading, "read", lambda *_: interrupt())
        for command in making:
            assert "is stopped; the same command continues it" in run(*command).err
    said = run("index", "prune", "--keep", "1", "--older-than", "0", "--indexes", store.folder).err.splitlines()
    why = "is made from it: finish that, or openbook index delete"
    assert said[:-1] == [
        *(f"{base} stays: the unfinished {version} {why} {version}" for base, version in NEEDED.items()),
        *("deleted v4", "deleted v5"),
    ]
    for command in making:
        ended = run(*command)
        assert ended.code == 0, ended.err
    assert {*NEEDED} <= {*retire(store, Retention(keep=2), bases(store.folder)).removed}


def test_nothing_is_deleted_where_nobody_knows_what_is_live(store: IndexStore) -> None:
    (store.folder / "CURRENT").unlink()
    (store.folder / "CURRENT").mkdir()
    with pytest.raises(IndexCorrupt, match="CURRENT cannot be read"):
        retire(store, Retention(keep=1), {})
    assert store.versions() == VERSIONS


def test_the_command_says_what_stays_and_what_goes(run: Run, store: IndexStore) -> None:
    store.set_current("v2")
    arguments = ("index", "prune", "--indexes", store.folder, "--keep", "3")
    said = run(*arguments, "--dry-run")
    assert said.err.splitlines() == ["v2 stays: services start on it", "v1 would be deleted", "v3 would be deleted"]
    assert store.versions() == VERSIONS
    said = run(*arguments, "--older-than", "0")
    assert said.err.splitlines()[1:] == ["deleted v1", "deleted v3", "removed 2 deleted or replaced"]
    assert sorted(path.name for path in store.folder.glob("[v.]*")) == [".lock", "v2", "v4", "v5", "v6"]
