"""The paper's experiments as commands, over a tiny index."""

import json
from pathlib import Path

import pytest

from service.storage.bm25_publish import add_bm25
from service.storage.index_store import IndexStore
from tests.cli.conftest import Run
from tests.fixtures.evaluation import write_lines

Here = tuple[object, ...]


@pytest.fixture
def here(tiny_checkpoint: Path, indexes_folder: Path) -> Here:
    """What every command is told."""
    return ("--checkpoint", tiny_checkpoint, "--indexes", indexes_folder, "--index", "tiny-2016", "--n-docs", 2)


def test_qa_marks_each_file_and_asks_nothing_twice(run: Run, here: Here, indexes_folder: Path) -> None:
    add_bm25(IndexStore(indexes_folder), "tiny-2016")
    write_lines(Path("nq.jsonl"), [{"question": "who is president of peru", "answer": ["a", "b"]}] * 2)
    write_lines(Path("trec.jsonl"), [{"question": "where is the capital of the country", "answer_pattern": "th."}])
    command = ("eval", "qa", "nq.jsonl", "trec.jsonl", *here, "--retriever", "dense", "--retriever", "bm25")
    ended = run(*command, "--work", "work", "--json", "qa.json", "--markdown", "qa.md")
    assert ended.code == 0, ended.err
    report = json.loads(Path("qa.json").read_text())
    answers, retrieval = report["tables"]
    assert {(row["file"], row["retriever"], row["decoding"], row["questions"]) for row in answers["rows"]} == {
        (file, retriever, decoding, questions)
        for file, questions in (("nq.jsonl", 2), ("trec.jsonl", 1))
        for retriever in ("dense", "bm25")
        for decoding in ("RAG-Token, greedy", "RAG-Sequence, thorough, greedy")
    }
    trec = next(row for row in retrieval["rows"] if row["file"] == "trec.jsonl" and row["k"] == 1)
    assert trec["answer in top k"]["mean"] == 100
    assert (report["facts"]["index"], report["facts"]["K"]) == ("tiny-2016", 2)
    assert "| file | retriever | decoding | questions | EM | F1 |" in Path("qa.md").read_text()

    (log,) = Path("work").glob("answers-*.jsonl")
    written = log.read_text()
    again = run(*command, "--work", "work", "--json", "again.json")
    assert again.code == 0, again.err
    assert log.read_text() == written
    assert json.loads(Path("again.json").read_text())["tables"] == report["tables"]


def test_qa_names_the_line_that_is_no_question(run: Run, here: Here) -> None:
    write_lines(Path("nq.jsonl"), [{"question": "q", "answer": ["a"]}, {"question": "q"}])
    ended = run("eval", "qa", "nq.jsonl", *here)
    assert ended.code == 1
    assert "nq.jsonl:2: not a question: answers is missing" in ended.err
