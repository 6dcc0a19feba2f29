"""The paper's experiments as commands, over a tiny index."""

import json
from pathlib import Path

import pytest
import torch

from openbook.indexing.bm25_publish import add_bm25
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.generator import Generator
from openbook.storage.index_store import IndexStore
from tests.fixtures.command_line import Run
from tests.fixtures.evaluation import write_lines
from tests.fixtures.indexes import tiny_passages

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


def test_a_closed_book_needs_no_index(run: Run, tiny_checkpoint: Path) -> None:
    write_lines(Path("nq.jsonl"), [{"question": "who is president of peru", "answer": ["a"]}])
    write_lines(Path("texts.jsonl"), [{"input": "peru", "references": ["the capital of peru is lima"]}])
    here = ("--checkpoint", tiny_checkpoint, "--indexes", "nowhere", "--closed-book", "--json", "report.json")
    ended = run("eval", "qa", "nq.jsonl", *here)
    assert ended.code == 0, ended.err
    report = json.loads(Path("report.json").read_text())
    ((row,),) = (table["rows"] for table in report["tables"])
    assert (row["retriever"], row["decoding"], row["questions"]) == ("closed book", "greedy", 1)
    assert (row["answer in a passage"], row["EM, answer in no passage"]) == (None, None)
    assert report["facts"]["index"] == "none"

    pytest.importorskip("sacrebleu")
    ended = run("eval", "generation", "texts.jsonl", *here, "--num-beams", 2, "--max-new-tokens", 4)
    assert ended.code == 0, ended.err
    people, model = json.loads(Path("report.json").read_text())["tables"][0]["rows"]
    assert (people["written by"], model["written by"], model["decoding"]) == ("people", "closed book", "2 beams")


def test_a_closed_book_stands_beside_what_a_retriever_finds(run: Run, here: Here) -> None:
    write_lines(Path("nq.jsonl"), [{"question": "who is president of peru", "answer": ["a"]}])
    command = ("eval", "qa", "nq.jsonl", *here, "--model", "token", "--closed-book")
    ended = run(*command, "--retriever", "dense", "--json", "qa.json")
    assert ended.code == 0, ended.err
    answers = json.loads(Path("qa.json").read_text())["tables"][0]["rows"]
    assert [(row["retriever"], row["decoding"]) for row in answers] == [
        ("dense", "RAG-Token, greedy"),
        ("closed book", "greedy"),
    ]


def test_the_sweep_goes_on_from_the_answers_that_it_has(run: Run, here: Here) -> None:
    pytest.importorskip("matplotlib")
    write_lines(Path("nq.jsonl"), [{"question": one, "answer": ["a"]} for one in ("who is king", "where is peru")])
    command = ("eval", "qa", "nq.jsonl", *here, "--k", 1, "--k", 3, "--work", "work", "--plot", "k.svg")
    ended = run(*command, "--json", "qa.json")
    assert ended.code == 0, ended.err
    assert Path("k.svg").read_text().startswith("<?xml")
    tables = json.loads(Path("qa.json").read_text())["tables"]
    swept = next(table for table in tables if table["title"] == "K at test time")
    assert [(row["K"], row["decoding"].split(",")[0]) for row in swept["rows"]] == [
        (1, "RAG-Token"),
        (3, "RAG-Token"),
        (1, "RAG-Sequence"),
        (3, "RAG-Sequence"),
    ]
    (log,) = Path("work").glob("answers-*.jsonl")
    written = log.read_text().splitlines(keepends=True)
    assert len(written) == 2 * 2 * 3
    # stopped after the first five answers
    log.write_text("".join(written[:5]))
    again = run(*command, "--json", "again.json")
    assert "nq.jsonl: dense, passages: 12 of 12" in again.err
    assert set(log.read_text().splitlines(keepends=True)) == set(written)
    assert json.loads(Path("again.json").read_text())["tables"] == tables


def test_texts_are_measured_at_each_k(run: Run, here: Here) -> None:
    pytest.importorskip("sacrebleu")
    write_lines(Path("texts.jsonl"), [{"input": "peru", "references": ["the capital of peru is lima"]}])
    command = ("eval", "generation", "texts.jsonl", *here, "--num-beams", 1, "--max-new-tokens", 4)
    ended = run(*command, "--k", 1, "--k", 2, "--json", "texts.json")
    assert ended.code == 0, ended.err
    _, swept = json.loads(Path("texts.json").read_text())["tables"]
    assert [row["K"] for row in swept["rows"]] == [1, 2, 1, 2]
    assert all({"BLEU-1", "ROUGE-L"} <= row.keys() for row in swept["rows"])


def test_a_plot_without_a_sweep_and_a_k_beyond_the_index_are_refused_at_once(run: Run, here: Here) -> None:
    write_lines(Path("nq.jsonl"), [{"question": "who is king", "answer": ["a"]}])
    assert "give each K with --k" in run("eval", "qa", "nq.jsonl", *here, "--plot", "k.svg").err
    assert "50 passages were asked for" in run("eval", "qa", "nq.jsonl", *here, "--k", 50).err


@pytest.mark.parametrize("command", [("qa",), ("fever",), ("ablation",)], ids=lambda command: str(command[0]))
def test_an_index_of_another_passage_encoder_is_refused_where_its_vectors_are_searched(
    run: Run, here: Here, checkpoint_folder: Path, indexes_folder: Path, command: tuple[str, ...]
) -> None:
    add_bm25(IndexStore(indexes_folder), "tiny-2016")
    write_lines(Path("nq.jsonl"), [{"question": "who is king", "answer": ["a"]}])
    write_lines(Path("claims.jsonl"), [{"claim": "lima is in peru", "label": "SUPPORTS", "evidence": []}])
    asked = ("eval", *command, "claims.jsonl" if command == ("fever",) else "nq.jsonl", *here, "--work", "work")
    of_another = ("--checkpoint", checkpoint_folder)
    assert "error [index_incompatible]: The index 'tiny-2016' was built with" in run(*asked, *of_another).err
    if command == ("qa",):
        # words are compared by BM25, and no vectors
        assert run(*asked, *of_another, "--retriever", "bm25").code == 0


def test_qa_names_the_line_that_is_no_question(run: Run, here: Here) -> None:
    write_lines(Path("nq.jsonl"), [{"question": "q", "answer": ["a"]}, {"question": "q"}])
    ended = run("eval", "qa", "nq.jsonl", *here)
    assert ended.code == 1
    assert "nq.jsonl:2: not a question: answers is missing" in ended.err


def test_fever_judges_by_the_likeliest_label_and_goes_on_from_what_it_has(run: Run, here: Here) -> None:
    passage = tiny_passages("tiny-2016")[0]
    page = passage.title.replace(" ", "_")
    write_lines(
        Path("fever.jsonl"),
        [
            {"claim": passage.text, "label": "SUPPORTS", "evidence": [[[1, 2, page, 0]]]},
            {"claim": passage.text, "label": "REFUTES", "evidence": [[[1, 2, "Nowhere", 0]]]},
            {"claim": passage.text, "label": "NOT ENOUGH INFO", "evidence": [[[1, None, None, None]]]},
        ],
    )
    targets = ("--target", "the president", "--target", "the capital", "--target", "the island")
    command = ("eval", "fever", "fever.jsonl", *here, *targets, "--work", "work")
    ended = run(*command, "--json", "fever.json")
    assert ended.code == 0, ended.err
    labels, gold = json.loads(Path("fever.json").read_text())["tables"]
    # one claim under all three labels: one judgement is right of three, and at most one of two
    by_way = {(row["model"], row["labels"]): row for row in labels["rows"]}
    assert {row["claims"] for (_, ways), row in by_way.items() if ways == "2-way"} == {2}
    assert by_way["RAG-Token", "3-way"]["accuracy"]["mean"] == pytest.approx(100 / 3)
    assert by_way["RAG-Sequence", "2-way"]["accuracy"]["mean"] == 50
    assert [row["claims with evidence"] for row in gold["rows"]] == [2, 2]
    assert max(row["gold article in top k"]["mean"] for row in gold["rows"]) <= 50

    (log,) = Path("work").glob("*-claims.jsonl")
    written = log.read_text()
    again = run(*command, "--json", "again.json")
    assert again.code == 0, again.err
    assert log.read_text() == written
    assert run(*command, "--target", "a fourth").err.startswith("error [setting_invalid]: --target")


def test_a_claim_is_judged_without_passages_by_the_generator_alone(run: Run, here: Here, tiny_checkpoint: Path) -> None:
    write_lines(Path("fever.jsonl"), [{"claim": "the king", "label": "REFUTES", "evidence": [[[1, 2, "Nowhere", 0]]]}])
    targets = ("the president", "the capital", "the island")
    said = ("--target", targets[0], "--target", targets[1], "--target", targets[2])
    alone = ("--checkpoint", tiny_checkpoint, "--indexes", "nowhere", "--closed-book", "--work", "work")
    ended = run("eval", "fever", "fever.jsonl", *alone, *said, "--json", "fever.json")
    assert ended.code == 0, ended.err
    (labels,) = json.loads(Path("fever.json").read_text())["tables"]
    assert [(row["model"], row["labels"]) for row in labels["rows"]] == [
        ("closed book", "3-way"),
        ("closed book", "2-way"),
    ]
    # what transformers' BART makes of the claim alone
    checkpoint = load_checkpoint(tiny_checkpoint)
    claim = checkpoint.generator_tokenizer("the king", return_tensors="pt")
    generator = Generator(checkpoint)
    (log,) = Path("work").glob("*-claims.jsonl")
    for line, target in zip(log.read_text().splitlines(), targets, strict=True):
        ids = torch.tensor([[*generator.prefix, *generator.target_ids([target])[0]]])  # (1, P + T)
        with torch.no_grad():
            logits = checkpoint.generator(**claim, decoder_input_ids=ids[:, :-1]).logits  # (1, P + T - 1, V)
        steps = torch.log_softmax(logits.double(), dim=-1).gather(-1, ids[:, 1:, None])[0, :, 0]  # (P + T - 1,)
        expected = float(steps[len(generator.prefix) - 1 :].sum())
        assert json.loads(line)["log_prob"] == pytest.approx(expected, abs=1e-4)

    both = run(
        "eval", "fever", "fever.jsonl", *here, *said, "--closed-book", "--retriever", "dense", "--json", "b.json"
    )
    assert both.code == 0, both.err
    rows = json.loads(Path("b.json").read_text())["tables"][0]["rows"]
    assert [row["model"] for row in rows[::2]] == ["RAG-Token", "RAG-Sequence", "closed book"]


def test_generation_measures_texts_beside_those_of_people(run: Run, here: Here) -> None:
    pytest.importorskip("sacrebleu")
    clue = {"answer": "peru", "question": "'Lima is the capital of the land of the sun'"}
    write_lines(Path("jeopardy.jsonl"), [clue])
    ended = run(
        "eval", "generation", "jeopardy.jsonl", *here, "--num-beams", 2, "--max-new-tokens", 8, "--work", "work",
        "--json", "generation.json",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    people, *models = json.loads(Path("generation.json").read_text())["tables"][0]["rows"]
    assert people["written by"] == "people"
    assert people["distinct tri-grams, %"] == 100
    assert [row["decoding"] for row in models] == ["RAG-Token, 2 beams", "RAG-Sequence, fast, 2 beams"]
    assert all(0 <= row["BLEU-1"] <= 100 for row in models)
