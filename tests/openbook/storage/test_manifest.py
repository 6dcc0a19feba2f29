import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from openbook.entities import FileInfo, IndexInfo
from openbook.errors import IndexCorrupt
from openbook.storage.manifest import MANIFEST, is_date, open_manifest, sealed, write_manifest

INFO = IndexInfo(
    version="wiki-2018",
    n_passages=2,
    dimension=32,
    index_type="hnsw",
    encoder_name="encoder",
    encoder_fingerprint="0123",
    created_at="2026-01-01T00:00:00+00:00",
    snapshot_date="2018-12-20",
    source="Zürich 東京",
    licence="CC BY-SA 4.0",
    search={"efSearch": 128},
    files={"index.faiss": FileInfo(1, "a" * 64), "passages.arrow": FileInfo(2, "b" * 64)},
)


def written(place: Path, **changed: Any) -> Path:
    """A manifest with some fields changed, and those given as ... left out."""
    write_manifest(place, INFO)
    fields = json.loads((place / MANIFEST).read_text()) | changed
    (place / MANIFEST).write_bytes(sealed({name: value for name, value in fields.items() if value is not ...}))
    return place


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_manifest(tmp_path, INFO)
    assert open_manifest(tmp_path, "wiki-2018").info == INFO


def test_a_manifest_names_the_folder_of_its_files(tmp_path: Path) -> None:
    write_manifest(tmp_path, INFO)
    assert open_manifest(tmp_path, "wiki-2018").folder == tmp_path
    write_manifest(tmp_path, INFO, files_in="r-0123abcd")
    found = open_manifest(tmp_path, "wiki-2018")
    assert (found.info, found.folder) == (INFO, tmp_path / "r-0123abcd")


@pytest.mark.parametrize("folder", ["..", "r-0123abcd/..", "/r-0123abcd", "r-0123ABCD", 7, None])
def test_a_folder_that_could_lead_elsewhere_is_refused(tmp_path: Path, folder: object) -> None:
    with pytest.raises(IndexCorrupt, match="is no folder of a version"):
        open_manifest(written(tmp_path, folder=folder), "wiki-2018")


def test_a_field_of_a_later_openbook_is_passed_over(tmp_path: Path) -> None:
    assert open_manifest(written(tmp_path, mood="sunny"), "wiki-2018").info == INFO


def test_a_missing_manifest_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(IndexCorrupt, match="has no manifest"):
        open_manifest(tmp_path, "wiki-2018")


def test_a_manifest_that_the_system_refuses_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).mkdir()
    with pytest.raises(IndexCorrupt, match="cannot be read"):
        open_manifest(tmp_path, "wiki-2018")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null", b"[]", b'"manifest"', b"\x80\x04K\x01."]
)
def test_what_is_no_json_object_is_invalid(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(IndexCorrupt, match="The manifest of index"):
        open_manifest(tmp_path, "wiki-2018")


@pytest.mark.parametrize("number", [0, 1, 2, "3", True, None, ...])
def test_another_format_is_refused_and_says_what_to_do(tmp_path: Path, number: Any) -> None:
    with pytest.raises(IndexCorrupt, match="reads format 3: build the version again"):
        open_manifest(written(tmp_path, format=number), "wiki-2018")


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(IndexInfo)])
def test_a_field_of_another_type_is_named(tmp_path: Path, name: str) -> None:
    wrong = "two" if name in ("n_passages", "dimension", "search", "files", "passages_format", "metadata") else 2
    with pytest.raises(IndexCorrupt, match=f"{name}: Input should be"):
        open_manifest(written(tmp_path, **{name: wrong}), "wiki-2018")


GOOD_FILE = {"bytes": 1, "sha256": "a" * 64}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"n_passages": 0}, "n_passages: Input should be greater"),
        ({"index_type": "annoy"}, "'annoy' is none of flat, hnsw"),
        ({"snapshot_date": "20 December 2018"}, "is no date"),
        ({"search": {"efSearch": 0}}, "search.efSearch: Input should be greater"),
        ({"files": {"index.faiss": GOOD_FILE}}, "files.passages.arrow: Field required"),
        (
            {"files": {"index.faiss": GOOD_FILE, "passages.arrow": {**GOOD_FILE, "sha256": "A" * 64}}},
            "sha256: String should match",
        ),
    ],
)
def test_a_value_that_cannot_be_is_named(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(IndexCorrupt, match=said):
        open_manifest(written(tmp_path, **changed), "wiki-2018")


def test_the_manifest_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexCorrupt, match="the manifest of 'wiki-2018'"):
        open_manifest(written(tmp_path), "wiki-2016")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2018-12-20", True), ("20181220", False), ("2018-W51-4", False), ("2018-02-30", False), ("", False)],
)
def test_a_date_is_written_in_one_way(text: str, expected: bool) -> None:
    assert is_date(text) is expected


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"passages_format": 0}, "passages_format: Input should be"),
        ({"metadata": {"a": "string"}}, "metadata: passages of format 1 have none"),
        ({"passages_format": 2, "metadata": {"a": "text"}}, "metadata.a: Input should be"),
        ({"passages_format": 2, "metadata": {"a.b": "string"}}, "metadata.a.b"),
        ({"passages_format": 2, "metadata": {f"f{n}": "string" for n in range(65)}}, "at most 64"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(IndexCorrupt, match=said):
        open_manifest(written(tmp_path, **changed), "wiki-2018")
