"""What retrieval is worth, and reports over seeds, as commands."""

import json
from pathlib import Path

import pytest

from openbook.indexing.bm25_publish import add_bm25
from openbook.storage.index_store import IndexStore
from tests.fixtures.command_line import Run
from tests.fixtures.evaluation import write_lines


def test_one_table_has_every_retriever_and_the_closed_book_and_seeds_have_their_mean(
    run: Run, tiny_checkpoint: Path, indexes_folder: Path
) -> None:
    pytest.importorskip("sacrebleu")
    write_lines(Path("nq.jsonl"), [{"question": one, "answer": ["a"]} for one in ("who is king", "where is peru")])
    write_lines(Path("texts.jsonl"), [{"input": "peru", "references": ["the capital of peru is lima"]}])
    here = ("--checkpoint", tiny_checkpoint, "--indexes", indexes_folder, "--index", "tiny-2016", "--n-docs", 2)
    command = (
        *("eval", "ablation", "nq.jsonl", "--texts", "texts.jsonl", "--max-new-tokens", 4, *here),
        *("--frozen", tiny_checkpoint, "--work", "work", "--model", "sequence"),
    )
    refused = run(*command)
    assert (refused.code, "openbook index bm25 tiny-2016" in refused.err) == (1, True)

    add_bm25(IndexStore(indexes_folder), "tiny-2016")
    ended = run(*command, "--json", "a.json")
    assert ended.code == 0, ended.err
    answers, texts = json.loads(Path("a.json").read_text())["tables"]
    for table in (answers, texts):
        assert [row["retrieval"] for row in table["rows"]] == [
            "learned",
            "frozen in training",
            "BM25",
            "none: closed book",
        ]
    # the same checkpoint twice: no difference at all
    assert answers["rows"][1]["EM, points"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert texts["rows"][3]["ROUGE-L, points"] is not None

    ended = run("eval", "seeds", "x=a.json", "x=a.json", "y=a.json", "y=a.json", "--measure", "EM", "--json", "s.json")
    assert ended.code == 0, ended.err
    spread, apart = json.loads(Path("s.json").read_text())["tables"]
    assert {(row["arm"], row["seeds"], row["sd"]) for row in spread["rows"]} == {("x", 2, 0.0), ("y", 2, 0.0)}
    assert {row["difference"]["mean"] for row in apart["rows"]} == {0.0}


def test_a_report_may_have_an_equals_sign_in_its_place(run: Run) -> None:
    place = Path("rate=1e-5/report.json")
    place.parent.mkdir()
    place.write_text(json.dumps({"tables": [{"title": "T", "rows": [{"text": "x", "EM": 1.0}]}]}))
    for asked, arm in ((str(place), ""), (f"learned={place}", "learned")):
        ended = run("eval", "seeds", asked, "--json", "s.json")
        assert ended.code == 0, ended.err
        assert json.loads(Path("s.json").read_text())["tables"][0]["rows"][0]["arm"] == arm


def test_without_a_file_there_is_nothing_to_ask(run: Run) -> None:
    assert "name a file of questions, or one of --texts" in run("eval", "ablation").err


def test_a_frozen_checkpoint_of_another_passage_encoder_is_refused(
    run: Run, tiny_checkpoint: Path, checkpoint_folder: Path, indexes_folder: Path
) -> None:
    add_bm25(IndexStore(indexes_folder), "tiny-2016")
    write_lines(Path("nq.jsonl"), [{"question": "who is king", "answer": ["a"]}])
    here = ("--checkpoint", tiny_checkpoint, "--indexes", indexes_folder, "--index", "tiny-2016", "--n-docs", 2)
    ended = run("eval", "ablation", "nq.jsonl", *here, "--frozen", checkpoint_folder, "--work", "work")
    assert (ended.code, "error [index_incompatible]" in ended.err) == (1, True)
