import json
from pathlib import Path

import pytest

from openbook.indexing.publishing import publish
from openbook.storage.index_store import IndexStore
from openbook_lab.evaluation.leaders import leader_questions
from tests.fixtures.command_line import TOKEN, Run
from tests.fixtures.evaluation import PASSAGES, QUESTIONS, write_lines
from tests.fixtures.indexes import ENCODER, tiny_passages, tiny_vectors

# the way of asking that fewest offices have
STYLE = "function"
FAST = ("--style", STYLE, "--n-docs", 1)


def publish_like(folder: Path, version: str, like: str) -> None:
    """The passages of a tiny version under another name."""
    passages = tiny_passages(like)
    publish(
        IndexStore(folder),
        version,
        vectors=tiny_vectors(passages),
        passages=passages,
        index_type="flat",
        encoder_name=ENCODER,
        encoder_fingerprint=ENCODER,
    )


def test_leaders_asks_each_index_about_each_year(run: Run, tiny_checkpoint: Path, indexes_folder: Path) -> None:
    here = ("--checkpoint", tiny_checkpoint, "--indexes", indexes_folder)
    ended = run("eval", "leaders", *here, *FAST, "--index", "tiny-2018", "--json", "l.json", "--markdown", "l.md")
    assert ended.code == 0, ended.err
    report = json.loads(Path("l.json").read_text())
    whole, by_style = report["tables"]
    (row,) = whole["rows"]
    assert row["index"] == "tiny-2018"
    assert row["questions"] == len(leader_questions([STYLE]))
    assert set(row["holder: 2016"]) == {"mean", "low", "high"}
    assert [row["style"] for row in by_style["rows"]] == [STYLE]
    assert report["facts"]["checkpoint"].startswith("tiny@")
    assert "| index | holder: 2016 | holder: 2018 | questions |" in Path("l.md").read_text()


def test_leaders_leaves_a_service_on_the_index_that_it_had(
    run: Run, service: str, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBOOK_ADMIN_TOKEN", TOKEN)
    ended = run("eval", "leaders", "--url", service, *FAST, "--sample", 2, "--index", "tiny-2018")
    assert ended.code == 0, ended.err
    assert "index holder: 2016 holder: 2018 questions" in " ".join(ended.out.split())
    assert "\n tiny-2018" in ended.out or "\ntiny-2018" in ended.out
    assert (indexes_folder / "CURRENT").read_text() == "tiny-2016\n"


def test_leaders_needs_a_token_only_for_an_index_that_is_not_open(run: Run, service: str, indexes_folder: Path) -> None:
    few = ("--url", service, *FAST, "--sample", 2)
    ended = run("eval", "leaders", *few, "--index", "tiny-2016")
    assert ended.code == 0, ended.err
    publish_like(indexes_folder, "published-since", "tiny-2018")
    refused = run("eval", "leaders", *few, "--index", "published-since")
    assert refused.err.startswith("error [unauthorized]")
    swapped = run("eval", "leaders", *few, "--index", "published-since", "--token", TOKEN)
    assert swapped.code == 0, swapped.err


def test_leaders_refuses_a_way_of_asking_that_there_is_none_of(run: Run) -> None:
    ended = run("eval", "leaders", "--style", "shouted")
    assert ended.code == 1
    assert ended.err.startswith("error [invalid_request]: style: 'shouted' is none of ")


def test_facts_asks_the_index_of_each_year(run: Run, tiny_checkpoint: Path, indexes_folder: Path) -> None:
    for year in (2016, 2018):
        publish_like(indexes_folder, f"wiki-{year}", f"tiny-{year}")
    here = ("--checkpoint", tiny_checkpoint, "--indexes", indexes_folder, "--n-docs", 1)
    ended = run("eval", "facts", *here, "--kind", "capital", "--sample", 2, "--json", "facts.json")
    assert ended.code == 0, ended.err
    whole, by_kind = json.loads(Path("facts.json").read_text())["tables"]
    assert [(row["index"], row["questions"]) for row in whole["rows"]] == [("wiki-2016", 2), ("wiki-2018", 2)]
    assert {row["kind"] for row in by_kind["rows"]} == {"capital"}


def test_reading_sets_checkpoints_side_by_side(run: Run, checkpoint_folder: Path, tiny_checkpoint: Path) -> None:
    questions = write_lines(Path("questions.jsonl"), QUESTIONS)
    ended = run(
        "eval", "reading", questions, "--all", "--checkpoint", checkpoint_folder, "--against", tiny_checkpoint,
        "--work", "work", "--json", "reading.json",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    (table,) = json.loads(Path("reading.json").read_text())["tables"]
    assert [row["questions"] for row in table["rows"]] == [4, 4]
    assert len({row["checkpoint"] for row in table["rows"]}) == 2


def test_reading_says_when_no_question_is_about_what_training_held_out(run: Run, checkpoint_folder: Path) -> None:
    questions = write_lines(Path("questions.jsonl"), [one for one in QUESTIONS if one["title"] == "Peru"])
    ended = run("eval", "reading", questions, "--checkpoint", checkpoint_folder)
    assert ended.code == 1
    assert "no question is about Apollo program" in ended.err


def test_open_shows_retrieval_answers_and_differences_and_asks_nothing_twice(
    run: Run, checkpoint_folder: Path, tiny_encoder: Path
) -> None:
    questions = write_lines(Path("questions.jsonl"), QUESTIONS)
    passages = write_lines(Path("passages.jsonl"), PASSAGES)
    command = (
        "eval", "open", questions, "--passages", passages, "--all", "--checkpoint", checkpoint_folder,
        "--encoder", tiny_encoder, "--n-docs", 3, "--num-beams", 2, "--k", 2, "--frozen", "--bm25",
        "--work", "work",
    )  # fmt: skip
    ended = run(*command, "--json", "open.json")
    assert ended.code == 0, ended.err
    report = json.loads(Path("open.json").read_text())
    retrieval, answers, differences, over_k = report["tables"]
    assert [row["K"] for row in over_k["rows"]] == [2, 2]
    assert report["facts"]["passages"] == 6
    assert retrieval["title"] == "Retrieval from 6 passages"
    assert len(retrieval["rows"]) == 3 * 3
    assert len({row["retrieval"] for row in retrieval["rows"] if row["retrieval"].endswith(", BM25")}) == 1
    first = [row for row in answers["rows"] if not row["checkpoint"].endswith((", frozen", ", BM25"))]
    assert {(row["passages"], row["decoding"]) for row in first} == {
        ("3 retrieved", "RAG-Token, greedy"),
        ("3 retrieved", "RAG-Token, 2 beams"),
        ("3 retrieved", "RAG-Sequence, thorough, 2 beams"),
        ("3 retrieved", "RAG-Sequence, fast, 2 beams"),
        ("top passage alone", "RAG-Token, greedy"),
        ("top passage alone", "RAG-Token, 2 beams"),
        ("gold piece alone", "RAG-Token, greedy"),
        ("gold piece alone", "RAG-Token, 2 beams"),
        ("3 retrieved, gold piece among them", "RAG-Token, greedy"),
        ("3 retrieved, gold piece among them", "RAG-Sequence, thorough, 2 beams"),
        ("gold piece and 2 nearest wrong", "RAG-Token, greedy"),
        ("gold piece and 2 nearest wrong", "RAG-Sequence, thorough, 2 beams"),
        ("2 retrieved", "RAG-Token, greedy"),
        ("2 retrieved", "RAG-Sequence, thorough, 2 beams"),
    }
    assert {row["questions"] for row in answers["rows"]} == {4}
    assert any(row["what"].startswith("against tiny@") for row in differences["rows"])

    (log,) = Path("work").glob("answers-*.jsonl")
    written = log.read_text()
    again = run(*command, "--json", "again.json", "--plot", "k.svg")
    assert again.code == 0, again.err
    assert Path("k.svg").read_text().startswith("<?xml")
    assert log.read_text() == written
    assert json.loads(Path("again.json").read_text())["tables"] == report["tables"]


def test_posteriors_shows_where_answers_are_from_and_what_tells_them_apart(
    run: Run, checkpoint_folder: Path, tiny_encoder: Path
) -> None:
    questions = write_lines(Path("questions.jsonl"), QUESTIONS)
    passages = write_lines(Path("passages.jsonl"), PASSAGES)
    ended = run(
        "eval", "posteriors", questions, "--unanswerable", questions, "--passages", passages, "--held-out", "Kenya",
        "--checkpoint", checkpoint_folder, "--encoder", tiny_encoder, "--n-docs", 3, "--num-beams", 1,
        "--work", "work", "--json", "posteriors.json",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    report = json.loads(Path("posteriors.json").read_text())
    assert report["facts"]["unanswerable"] == 1
    titles = [table["title"] for table in report["tables"]]
    assert titles[:2] == ["Which passage an answer is from", "Answerable or not"]
