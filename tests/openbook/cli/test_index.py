import json
from pathlib import Path

import numpy as np
import pytest

from openbook.indexing.building import reading
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.settings import default_indexes
from openbook.storage.index_store import IndexStore
from tests.fixtures.command_line import Run


def test_list_marks_the_current_version_and_as_json_has_the_manifests(run: Run, indexes_folder: Path) -> None:
    lines = run("index", "list", "--indexes", indexes_folder).out.splitlines()
    assert [line.split()[:2] for line in lines if "tiny-" in line] == [["*", "tiny-2016"], ["tiny-2018", "2018-12-20"]]
    listed = run("index", "list", "--indexes", indexes_folder, "--json").json
    assert (listed["current"], [one["version"] for one in listed["versions"]]) == (
        "tiny-2016",
        ["tiny-2016", "tiny-2018"],
    )
    assert listed["versions"][0]["files"]["index.faiss"]["bytes"] > 0


def test_list_of_nothing_says_what_to_run(run: Run) -> None:
    ended = run("index", "list")
    assert (ended.code, ended.out) == (0, "")
    assert "openbook index build wiki-2018" in ended.err


def test_list_shows_what_can_be_read_and_names_what_cannot(run: Run, indexes_folder: Path) -> None:
    (indexes_folder / "tiny-2018" / "manifest.json").write_text("{")
    ended = run("index", "list", "--indexes", indexes_folder)
    assert ended.code == 1
    assert "tiny-2016" in ended.out
    assert ended.err.startswith("error [index_corrupt]: The manifest of index 'tiny-2018'")


def test_info_is_the_manifest(run: Run, indexes_folder: Path) -> None:
    shown = run("index", "info", "tiny-2018", "--indexes", indexes_folder).out
    as_json = run("index", "info", "tiny-2018", "--indexes", indexes_folder, "--json").json
    assert as_json["snapshot_date"] == "2018-12-20"
    for key in as_json:
        assert key in [line.partition(" ")[0] for line in shown.splitlines()]
    assert as_json["files"]["passages.arrow"]["sha256"] in shown


def test_verify_without_a_version_reads_all_of_them(run: Run, indexes_folder: Path) -> None:
    ended = run("index", "verify", "--indexes", indexes_folder)
    assert (ended.code, ended.err) == (0, "")
    assert "tiny-2016: good\n" in ended.out
    assert "tiny-2018: good\n" in ended.out


def test_verify_finds_a_flipped_bit_and_goes_on_to_the_next(run: Run, indexes_folder: Path) -> None:
    path = indexes_folder / "tiny-2016" / "passages.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    ended = run("index", "verify", "--indexes", indexes_folder)
    assert ended.code == 1
    assert "tiny-2018: good\n" in ended.out
    assert ended.err.startswith("error [index_corrupt]: 'passages.arrow' of index 'tiny-2016'")


def test_build_needs_a_name_for_a_file(run: Run, tmp_path: Path) -> None:
    ended = run("index", "build", tmp_path / "passages.jsonl")
    assert ended.code == 2
    assert ended.err == "error [setting_invalid]: --name: is needed for a version of texts of your own\n"


def test_build_does_not_replace_a_version_unasked(run: Run, indexes_folder: Path) -> None:
    ended = run("index", "build", "wiki-2016", "--name", "tiny-2016", "--indexes", indexes_folder)
    assert ended.code == 1
    assert ended.err.startswith("error [index_exists]: ")


def test_build_publishes_a_file_and_the_first_version_becomes_current(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "book.jsonl"
    rows = [{"id": str(i), "title": f"Page {i}", "text": f"this is what page {i} says"} for i in range(3)]
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    built = run("index", "build", source, "--name", "first", "--date", "2020-01-02", "--licence", "CC0-1.0")
    assert built.code == 0, built.err
    assert built.out == ""
    assert "built first: 3 passages of 3 articles" in built.err
    assert "first is CURRENT" in built.err
    again = run("index", "build", source, "--name", "second", "--type", "hnsw")
    assert "first stays CURRENT: openbook index swap second" in again.err
    store = IndexStore(default_indexes())
    assert store.current() == "first"
    assert (store.info("first").snapshot_date, store.info("first").licence) == ("2020-01-02", "CC0-1.0")
    assert store.info("second").index_type == "hnsw"


@pytest.mark.parametrize(
    ("changed", "kept"), [("f5.txt", "2 were embedded before"), ("f6.txt", "2 were embedded before"), ("f0.txt", "")]
)
def test_a_file_that_changes_while_a_build_is_stopped_is_read_again(
    run: Run, tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch, changed: str, kept: str
) -> None:
    """Two texts never mix, and what has not changed is not embedded again."""
    monkeypatch.setattr(reading, "SHARD_PASSAGES", 2)
    for number in range(6):
        folder = tmp_path / "notes" / f"{number}"
        folder.mkdir(parents=True)
        (folder / f"f{number}.txt").write_text(f"the king of {number}")
    build = ("index", "build", "notes", "--encoder", tiny_encoder, "--no-bm25", "--name")
    with monkeypatch.context() as stopping:
        encode, calls = PassageEncoder.encode, []

        def stop(*arguments: object, **named: object) -> object:
            calls.append(arguments)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return encode(*arguments, **named)  # type: ignore[arg-type]

        stopping.setattr(PassageEncoder, "encode", stop)
        assert "v is stopped; the same command continues it" in run(*build, "v").err
    # of the same length, in a folder whose own listing stays as it is
    (tmp_path / "notes" / changed[1] / changed).parent.mkdir(exist_ok=True)
    (tmp_path / "notes" / changed[1] / changed).write_text("the lake of 1")
    built = run(*build, "v")
    assert built.code == 0, built.err
    assert "notes has changed since v was stopped: reading it again" in built.err
    assert kept in built.err
    assert ("were embedded before" in built.err) == bool(kept)
    assert run(*build, "whole").code == 0
    store = IndexStore(default_indexes())
    assert store.info("v").files == store.info("whole").files


def test_build_of_a_file_that_is_not_there_leaves_nothing(run: Run, tmp_path: Path) -> None:
    ended = run("index", "build", tmp_path / "missing.jsonl", "--name", "first")
    assert ended.code == 1
    assert ended.err.startswith("error [source_invalid]: ")
    assert not (default_indexes()).exists()


def test_an_estimate_says_what_it_takes_and_does_nothing(run: Run, tmp_path: Path) -> None:
    ended = run("index", "build", "wiki-2016", "--name", "first", "--estimate")
    assert ended.code == 0, ended.err
    assert " passages, " in ended.err
    assert "disk: at most " in ended.err
    assert "comparing with each of them is exact" in ended.err
    assert not (default_indexes()).exists()


def test_vectors_are_imported_merged_and_deleted(run: Run, tmp_path: Path) -> None:
    for version, first in (("one", 0), ("two", 3)):
        rows = [{"id": str(first + i), "title": "t", "text": f"text {i}"} for i in range(3)]
        (tmp_path / f"{version}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        np.save(tmp_path / f"{version}.npy", np.eye(3, 4, dtype=np.float32))
        made = run(
            *("index", "import", f"{version}.jsonl", "--vectors", f"{version}.npy", "--name", version),
            *("--type", "flat"),
            *("--encoder", "facebook/dpr-ctx_encoder-multiset-base", "--fingerprint", "abc"),
        )
        assert made.code == 0, made.err
    merged = run("index", "merge", "one", "two", "--name", "both")
    assert "built both: 6 passages" in merged.err
    store = IndexStore(default_indexes())
    assert store.info("both").encoder_name == "facebook/dpr-ctx_encoder-multiset-base"
    assert "bytes a passage" in run("index", "info", "both").out

    assert run("index", "delete", "one", "--yes").err.startswith("error [index_in_use]")
    assert run("index", "delete", "two", "--yes").code == 0
    (default_indexes() / ".work-three").mkdir()
    assert "three is unfinished" in run("index", "list").err
    assert run("index", "delete", "three", "--yes").code == 0
    assert run("index", "delete", "three", "--yes").err.startswith("error [unknown_index]")
    assert store.versions() == ("both", "one")
    assert run("index", "prune").err == "removed nothing\n"
    assert run("index", "prune", "--older-than", "0").err == "removed 1 deleted or replaced\n"
    assert [path.name for path in store.folder.glob(".*")] == [".lock"]


def test_delete_asks_first(run: Run, indexes_folder: Path) -> None:
    ended = run("index", "delete", "tiny-2018", "--indexes", indexes_folder)
    assert ended.code == 1
    assert "Remove the version tiny-2018" in ended.err
    assert IndexStore(indexes_folder).versions() == ("tiny-2016", "tiny-2018")
