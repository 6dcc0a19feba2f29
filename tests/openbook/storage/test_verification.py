"""Whatever is wrong with a version has its own error, and the version is not opened."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openbook.errors import IndexCorrupt
from openbook.storage.durable import sha256_of
from openbook.storage.faiss_index import FaissIndex
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import sealed
from openbook.storage.passages import PassageFile
from openbook.storage.vectors import VectorFile
from tests.fixtures.indexes import publish_tiny, tiny_passages, tiny_vectors
from tests.openbook.storage.mappings import until_unmapped

VERSION = "tiny-2016"
FILES = ("index.faiss", "passages.arrow")


def edit_manifest(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / VERSION / "manifest.json"
    fields = json.loads(path.read_text())
    edit(fields)
    path.write_bytes(sealed(fields))


def admit(folder: Path, name: str) -> None:
    """Let the manifest say what the file is now, so that the next check is reached."""
    path = folder / VERSION / name
    admitted = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    edit_manifest(folder, lambda fields: fields["files"].update({name: admitted}))


def refuse(folder: Path, error: type[Exception], said: str | None = None, *, verify: str = "checksum") -> None:
    with pytest.raises(error, match=said) as caught:
        IndexStore(folder).check(VERSION, verify=verify)  # type: ignore[arg-type]
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("index_type", "file", "dtype"), [("flat", "index.faiss", "f4"), ("IVF2,Flat", "vectors.npy", "f2")]
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_checksum_also_finds_a_vector_that_was_never_finite(
    tmp_path: Path, index_type: str, file: str, dtype: str, value: float
) -> None:
    passages = list(tiny_passages(VERSION))
    publish_tiny(IndexStore(tmp_path), VERSION, index_type=index_type)
    vector = tiny_vectors(passages)[2].astype(dtype)
    path = tmp_path / VERSION / file
    content = path.read_bytes()
    assert content.count(vector.tobytes()) == 1
    path.write_bytes(content.replace(vector.tobytes(), np.full_like(vector, value).tobytes()))
    admit(tmp_path, file)
    store = IndexStore(tmp_path)
    store.open(VERSION).close()
    refuse(tmp_path, IndexCorrupt, "the vector of row 2 is not finite")
    for read in (store.verify, partial(store.check, verify="checksum")):
        with pytest.raises(IndexCorrupt, match="the vector of row 2 is not finite"):
            read(VERSION)
    until_unmapped(tmp_path)


def other_version(tmp_path: Path, **changed: object) -> Path:
    publish_tiny(IndexStore(tmp_path / "other"), VERSION, **changed)
    return tmp_path / "other" / VERSION


def test_a_sound_version_opens_and_verifies(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    lines: list[str] = []
    assert store.verify(VERSION, lines.append) == store.info(VERSION)
    assert [line.split(":")[0] for line in lines] == list(FILES)
    store.open(VERSION, encoder_fingerprint="tiny-encoder", dimension=32).close()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("instead", ["nothing", "folder", "link"])
def test_a_file_that_is_not_there(indexes_folder: Path, tmp_path: Path, name: str, instead: str) -> None:
    path = indexes_folder / VERSION / name
    outside = path.rename(tmp_path / name)
    if instead == "folder":
        path.mkdir()
    elif instead == "link":
        path.symlink_to(outside)
    if instead == "link":
        refuse(indexes_folder, IndexCorrupt, "symbolic link")
    else:
        refuse(indexes_folder, IndexCorrupt, name)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verify", ["manifest", "checksum"])
@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: content + b"\0", lambda _: b""])
def test_a_file_of_another_size(indexes_folder: Path, name: str, verify: str, change: Callable[[bytes], bytes]) -> None:
    path = indexes_folder / VERSION / name
    path.write_bytes(change(path.read_bytes()))
    refuse(indexes_folder, IndexCorrupt, name, verify=verify)


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_another_number_of_entries(indexes_folder: Path, tmp_path: Path, name: str) -> None:
    fewer = tiny_passages(VERSION)[:11]
    source = other_version(tmp_path, passages=fewer, vectors=tiny_vectors(fewer))
    shutil.copyfile(source / name, indexes_folder / VERSION / name)
    admit(indexes_folder, name)
    refuse(indexes_folder, IndexCorrupt, f"'{name}' of index 'tiny-2016' holds 11 entries where its manifest says 12")


def test_vectors_of_another_dimension(indexes_folder: Path, tmp_path: Path) -> None:
    source = other_version(tmp_path, vectors=tiny_vectors(tiny_passages(VERSION), dimension=8))
    shutil.copyfile(source / "index.faiss", indexes_folder / VERSION / "index.faiss")
    admit(indexes_folder, "index.faiss")
    refuse(indexes_folder, IndexCorrupt, "has 8 dimensions where its manifest says 32")


def test_an_index_of_another_type(indexes_folder: Path, tmp_path: Path) -> None:
    source = other_version(tmp_path, index_type="hnsw")
    shutil.copyfile(source / "index.faiss", indexes_folder / VERSION / "index.faiss")
    admit(indexes_folder, "index.faiss")
    refuse(indexes_folder, IndexCorrupt, "of type hnsw where its manifest says flat")


@pytest.mark.parametrize("name", FILES)
def test_garbage_that_the_manifest_admits(indexes_folder: Path, name: str) -> None:
    (indexes_folder / VERSION / name).write_bytes(b"garbage" * 100)
    admit(indexes_folder, name)
    refuse(indexes_folder, IndexCorrupt, name)


def test_a_pickle_is_never_loaded(indexes_folder: Path, tmp_path: Path) -> None:
    """Opcodes that would make a file, were anything to unpickle them."""
    trace = tmp_path / "loaded"
    pickle = (
        b"cpathlib\nPath\n(V" + str(trace).encode() + b"\ntR(dbcbuiltins\nopen\n(V" + str(trace).encode() + b"\nVw\ntR."
    )
    for name in FILES:
        (indexes_folder / VERSION / name).write_bytes(pickle)
        admit(indexes_folder, name)
    refuse(indexes_folder, IndexCorrupt)
    assert not trace.exists()


@pytest.mark.parametrize("defect", ["dimension", "index.faiss"])
def test_an_error_that_is_kept_does_not_keep_the_mapping(indexes_folder: Path, defect: str) -> None:
    if defect == "dimension":
        edit_manifest(indexes_folder, lambda fields: fields.update(dimension=31))
    else:
        (indexes_folder / VERSION / defect).write_bytes(b"garbage" * 100)
        admit(indexes_folder, defect)
    with pytest.raises(IndexCorrupt) as kept:
        IndexStore(indexes_folder).open(VERSION)
    assert kept.value.__traceback__ is not None
    until_unmapped(indexes_folder)


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_every_byte_that_changes_is_found_by_its_checksum(indexes_folder: Path, name: str) -> None:
    store = IndexStore(indexes_folder)
    path = indexes_folder / VERSION / name
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        with pytest.raises(IndexCorrupt):
            store.check(VERSION, verify="checksum")
    path.write_bytes(content)
    store.check(VERSION, verify="checksum")


def test_a_version_is_checked_without_being_opened(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    told: list[float] = []
    identity = store.check(VERSION, verify="checksum", report=told.append)
    assert told == sorted(told)
    assert told[-1] == 1
    until_unmapped(indexes_folder)
    snapshot = store.open(VERSION)
    assert snapshot.identity == identity == store.check(VERSION)
    snapshot.close()
    (indexes_folder / VERSION / "passages.arrow").unlink()
    with pytest.raises(IndexCorrupt, match="lacks its file"):
        store.check(VERSION)


def test_a_file_that_was_written_again_is_another(indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    before = store.check(VERSION)
    for name in (*FILES, "manifest.json"):
        path = indexes_folder / VERSION / name
        path.write_bytes(path.read_bytes())
        assert store.check(VERSION) != before
        before = store.check(VERSION)


@pytest.mark.parametrize("opens", [FaissIndex.open, PassageFile.open, partial(VectorFile.open, shape=(1, 2))])
def test_errors_of_a_file_that_cannot_be_read_name_no_folder(tmp_path: Path, opens: Any) -> None:
    for put in (lambda path: None, Path.mkdir):
        put(tmp_path / "part")
        with pytest.raises(IndexCorrupt, match="cannot be read") as unreadable:
            opens(tmp_path / "part", version="v")
        assert str(tmp_path) not in str(unreadable.value)


def test_passages_of_format_2_are_published_opened_and_verified(tmp_path: Path) -> None:
    passages = [
        replace(one, url=f"https://example.org/{row}", section="S", published="2016-01-01", metadata=(("row", row),))
        for row, one in enumerate(tiny_passages(VERSION))
    ]
    store = IndexStore(tmp_path)
    publish_tiny(store, VERSION, passages=passages)
    info = store.verify(VERSION)
    assert (info.passages_format, info.metadata) == (2, {"row": "integer"})
    assert store.open(VERSION).passages(range(12)) == tuple(passages)
    for declared in ({"row": "number"}, {"rows": "integer"}, {}):
        edit_manifest(tmp_path, partial(dict.update, metadata=declared))
        refuse(tmp_path, IndexCorrupt, "meta.row: int64")
