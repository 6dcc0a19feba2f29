"""BM25 on the command line: added to a version, built with one, and asked."""

import json
import re
from pathlib import Path

import pytest

from openbook.indexing.bm25_build import write_bm25
from openbook.indexing.sources import open_source
from openbook.storage.index_store import IndexStore
from tests.fixtures.command_line import QUESTION, Run


def test_bm25_is_added_to_a_version_and_its_manifest_says_how(run: Run, indexes_folder: Path) -> None:
    before = run("index", "info", "tiny-2016", "--indexes", indexes_folder, "--json").json
    assert before["bm25"] is None
    ended = run("index", "bm25", "tiny-2016", "--indexes", indexes_folder)
    assert ended.code == 0
    assert "added BM25 to tiny-2016: " in ended.err
    assert "words of 12 passages" in ended.err
    after = run("index", "info", "tiny-2016", "--indexes", indexes_folder, "--json").json
    assert (after["bm25"]["k1"], after["bm25"]["b"]) == (0.9, 0.4)
    assert {name: after["files"][name] for name in before["files"]} == before["files"]
    assert "bm25.scores.npy" in run("index", "info", "tiny-2016", "--indexes", indexes_folder).out
    assert run("index", "verify", "tiny-2016", "--indexes", indexes_folder).code == 0


def test_ask_names_a_retriever_and_shows_it(run: Run, indexes_folder: Path, here: tuple[object, ...]) -> None:
    run("index", "bm25", "tiny-2016", "--indexes", indexes_folder)
    ask = ("ask", QUESTION, *here, "--n-docs", 3, "--max-new-tokens", 3, "--retriever")
    shown = run(*ask, "bm25")
    assert shown.code == 0
    assert ", retriever bm25: queue" in shown.out.splitlines()[-1]
    assert "retriever" not in run(*ask, "dense").out
    answer = run(*ask, "bm25", "--json").json
    assert answer["retriever"] == "bm25"
    assert answer["passages"][0]["passage_id"] == "peru"


@pytest.mark.parametrize("asked", ["", "--bm25", "--no-bm25"])
def test_a_version_is_built_with_bm25_unless_that_is_declined(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setattr("openbook.cli.index_build.BM25_UNASKED", 6)
    source = tmp_path / "passages.jsonl"
    passages = [
        {"id": f"p{row}", "title": f"Title {row}", "text": f"The number {row} is a number."} for row in range(6)
    ]
    source.write_text("\n".join(json.dumps(passage) for passage in passages))
    built = run("index", "build", source, "--name", "numbers", "--indexes", tmp_path / "indexes", *asked.split())
    assert built.code == 0, built.err
    snapshot = IndexStore(tmp_path / "indexes").open("numbers")
    if asked == "--no-bm25":
        assert snapshot.info.bm25 is None
    else:
        rows, _ = snapshot.bm25().search(["which number is 4?"], 1)
        assert [one.passage_id for one in snapshot.passages(rows[0].tolist())] == ["p4"]
    snapshot.close()


def test_many_passages_have_bm25_only_where_it_is_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    build = ("index", "build", "wiki-2016", "--name", "first", "--estimate")
    unasked = after(run(*build).err)
    monkeypatch.setattr("openbook.cli.index_build.BM25_UNASKED", 2000)
    assert after(run(*build).err) < after(run(*build, "--bm25").err) == unasked


def test_an_estimate_counts_bm25_and_is_near_what_it_takes(run: Run, tmp_path: Path) -> None:
    build = ("index", "build", "wiki-2016", "--name", "first", "--estimate")
    without, with_bm25 = (after(run(*build, *more).err) for more in (("--no-bm25",), ("--bm25",)))
    passages = [one for batch in open_source("wiki-2016").batches() for one in batch.passages]
    write_bm25(tmp_path, passages, len(passages))
    taken = sum(path.stat().st_size for path in tmp_path.glob("bm25.*"))
    # sentences of few patterns have fewer words than others
    assert taken < with_bm25 - without < 1.5 * taken


def after(said: str) -> float:
    """The bytes that a version is said to take once it is built."""
    found = re.search(r"while it is built, ([0-9.]+) MB afterwards", said.replace("\n", " "))
    assert found is not None, said
    return 1e6 * float(found[1])
