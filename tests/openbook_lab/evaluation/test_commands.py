"""`openbook eval`, each command over a tiny index."""

import json
from pathlib import Path

import pytest
import torch

from openbook.indexing.bm25_publish import add_bm25
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook.storage.index_store import IndexStore
from tests.fixtures.command_line import TOKEN, Run
from tests.fixtures.evaluation import QUESTIONS, write_lines
from tests.fixtures.indexes import ENCODER, tiny_passages, tiny_vectors
from tests.fixtures.publishing import publish
from tests.openbook_lab.evaluation.conftest import Measured

Here = tuple[object, ...]
TARGETS = ("the president", "the capital", "the island")
SAID = [part for target in TARGETS for part in ("--target", target)]


@pytest.fixture
def here(tiny_checkpoint: Path, indexes_folder: Path) -> Here:
    return ("--checkpoint", tiny_checkpoint, "--indexes", indexes_folder, "--index", "tiny-2016", "--n-docs", 2)


@pytest.fixture
def files(bare: None) -> None:
    """Public files of two questions, a text and a claim, in the current folder."""
    write_lines(Path("nq.jsonl"), [{"question": one, "answer": ["a"]} for one in ("who is king", "where is peru")])
    write_lines(Path("texts.jsonl"), [{"input": "peru", "references": ["the capital of peru is lima"]}])
    claim = {"claim": "the king", "label": "REFUTES", "evidence": [[[1, 2, "Nowhere", 0]]]}
    write_lines(Path("claims.jsonl"), [claim])


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


# --- the encyclopedia's own questions ---------------------------------------------------------------------------


def test_leaders_asks_each_index_about_each_year(
    measured: Measured, tiny_checkpoint: Path, indexes_folder: Path
) -> None:
    here = ("--checkpoint", tiny_checkpoint, "--indexes", indexes_folder, "--index", "tiny-2018")
    report = measured("leaders", *here, "--n-docs", 1, "--sample", 1, "--markdown", "l.md")
    whole, by_style = report["tables"]
    (row,) = whole["rows"]
    assert (row["index"], row["questions"]) == ("tiny-2018", len(by_style["rows"]))
    assert set(row["holder: 2016"]) == {"mean", "low", "high"}
    assert {row["questions"] for row in by_style["rows"]} == {1}
    assert report["facts"]["checkpoint"].startswith("tiny@")
    assert "| index | holder: 2016 | holder: 2018 | questions |" in Path("l.md").read_text()


def test_leaders_swaps_with_a_token_to_what_is_not_open_and_swaps_back(
    run: Run, service: str, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ("eval", "leaders", "--url", service, "--n-docs", 1, "--sample", 1, "--index")
    assert run(*few, "tiny-2016").code == 0
    publish_like(indexes_folder, "published-since", "tiny-2018")
    refused = run(*few, "published-since")
    assert refused.err.startswith("error [unauthorized]")
    monkeypatch.setenv("OPENBOOK_ADMIN_TOKEN", TOKEN)
    ended = run(*few, "published-since")
    assert ended.code == 0, ended.err
    assert "index holder: 2016 holder: 2018 questions" in " ".join(ended.out.split())
    assert "\n published-since" in ended.out or "\npublished-since" in ended.out
    assert (indexes_folder / "CURRENT").read_text() == "tiny-2016\n"


# --- files of questions -----------------------------------------------------------------------------------------


def test_reading_asks_with_the_paragraph(measured: Measured, question_file: Path, checkpoint_folder: Path) -> None:
    here = ("--checkpoint", checkpoint_folder, "--work", "work")
    (table,) = measured("reading", question_file, "--all", *here)["tables"]
    assert [(row["questions"], row["checkpoint"][:5]) for row in table["rows"]] == [(4, "tiny@")]


def test_open_shows_retrieval_answers_and_each_k_and_asks_nothing_twice(
    measured: Measured, question_file: Path, passage_file: Path, checkpoint_folder: Path, tiny_encoder: Path
) -> None:
    command = (
        "open", question_file, "--passages", passage_file, "--all", "--checkpoint", checkpoint_folder,
        "--encoder", tiny_encoder, "--n-docs", 3, "--num-beams", 2, "--k", 2, "--retriever", "dense",
        "--retriever", "frozen", "--retriever", "bm25",
        "--work", "work",
    )  # fmt: skip
    report = measured(*command)
    retrieval, answers, over_k = report["tables"]
    assert [row["K"] for row in over_k["rows"]] == [2, 2]
    assert report["facts"]["passages"] == 6
    assert retrieval["title"] == "Retrieval from 6 passages"
    assert len(retrieval["rows"]) == 3 * 3
    assert len({row["retrieval"] for row in retrieval["rows"] if row["retrieval"].endswith(", BM25")}) == 1
    first = [row for row in answers["rows"] if not row["checkpoint"].endswith((", frozen", ", BM25"))]
    token, tokens, thorough, fast = (
        "RAG-Token, greedy",
        "RAG-Token, 2 beams",
        "RAG-Sequence, thorough, 2 beams",
        "RAG-Sequence, fast, 2 beams",
    )
    by_passages: dict[str, set[str]] = {}
    for row in first:
        by_passages.setdefault(row["passages"], set()).add(row["decoding"])
    assert by_passages == {
        "3 retrieved": {token, tokens, thorough, fast},
        "top passage alone": {token, tokens},
        "2 retrieved": {token, thorough},
    }
    assert {row["questions"] for row in answers["rows"]} == {4}

    (log,) = Path("work").glob("answers-*.jsonl")
    written = log.read_text()
    assert measured(*command, "--plot", "k.svg")["tables"] == report["tables"]
    assert Path("k.svg").read_text().startswith("<?xml")
    assert log.read_text() == written


# --- the paper's experiments ------------------------------------------------------------------------------------


def test_qa_marks_each_file_and_asks_nothing_twice(measured: Measured, here: Here, indexes_folder: Path) -> None:
    add_bm25(IndexStore(indexes_folder), "tiny-2016")
    write_lines(Path("nq.jsonl"), [{"question": "who is president of peru", "answer": ["a", "b"]}] * 2)
    write_lines(Path("trec.jsonl"), [{"question": "where is the capital of the country", "answer_pattern": "th."}])
    both = ("--retriever", "dense", "--retriever", "bm25")
    command = ("qa", "nq.jsonl", "trec.jsonl", *here, *both, "--work", "work", "--markdown", "qa.md")
    report = measured(*command)
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
    assert measured(*command)["tables"] == report["tables"]
    assert log.read_text() == written


def test_a_closed_book_needs_no_index(measured: Measured, files: None, tiny_checkpoint: Path) -> None:
    here = ("--checkpoint", tiny_checkpoint, "--indexes", "nowhere", "--closed-book")
    report = measured("qa", "nq.jsonl", *here)
    ((row,),) = (table["rows"] for table in report["tables"])
    assert (row["retriever"], row["decoding"], row["questions"]) == ("closed book", "greedy", 2)
    assert (row["answer in a passage"], row["EM, answer in no passage"]) == (None, None)
    assert report["facts"]["index"] == "none"

    written = measured("generation", "texts.jsonl", *here, "--num-beams", 2, "--max-new-tokens", 4)
    people, model = written["tables"][0]["rows"]
    assert (people["written by"], model["written by"], model["decoding"]) == ("people", "closed book", "2 beams")


def test_the_sweep_goes_on_from_the_answers_that_it_has_beside_a_closed_book(
    measured: Measured, run: Run, here: Here, files: None
) -> None:
    both = ("--retriever", "dense", "--closed-book")
    command = ("qa", "nq.jsonl", *here, *both, "--k", 1, "--k", 3, "--work", "work", "--plot", "k.svg")
    answers, *_, swept = tables = measured(*command)["tables"]
    assert Path("k.svg").read_text().startswith("<?xml")
    assert [(row["retriever"], row["decoding"]) for row in answers["rows"]] == [
        ("dense", "RAG-Token, greedy"),
        ("dense", "RAG-Sequence, thorough, greedy"),
        ("closed book", "greedy"),
    ]
    assert swept["title"] == "K at test time"
    assert [(row["K"], row["decoding"].split(",")[0]) for row in swept["rows"]] == [
        (1, "RAG-Token"),
        (3, "RAG-Token"),
        (1, "RAG-Sequence"),
        (3, "RAG-Sequence"),
    ]
    (log,) = Path("work").glob("answers-*.jsonl")
    written = log.read_text().splitlines(keepends=True)
    assert len(written) == 2 * 2 * 3 + 2
    # stopped after the first five answers
    log.write_text("".join(written[:5]))
    again = run("eval", *command, "--json", "again.json")
    assert "nq.jsonl: dense, passages: 12 of 12" in again.err
    assert set(log.read_text().splitlines(keepends=True)) == set(written)
    assert json.loads(Path("again.json").read_text())["tables"] == tables


def test_a_plot_without_a_sweep_and_a_k_beyond_the_index_are_refused_at_once(run: Run, here: Here, files: None) -> None:
    assert "give each K with --k" in run("eval", "qa", "nq.jsonl", *here, "--plot", "k.svg").err
    without = run("eval", "open", "nq.jsonl", "--part", "decodings", "--plot", "k.svg")
    assert "draws K at test time; --part sweep" in without.err
    assert not Path("k.svg").exists()
    assert "50 passages were asked for" in run("eval", "qa", "nq.jsonl", *here, "--k", 50).err


@pytest.mark.parametrize("command", ["qa", "fever", "ablation"])
def test_an_index_of_another_passage_encoder_is_refused(
    run: Run, here: Here, files: None, checkpoint_folder: Path, indexes_folder: Path, command: str
) -> None:
    add_bm25(IndexStore(indexes_folder), "tiny-2016")
    file = "claims.jsonl" if command == "fever" else "nq.jsonl"
    asked = ("eval", command, file, *here, "--work", "work", "--checkpoint", checkpoint_folder)
    assert "error [index_incompatible]: The index 'tiny-2016' was built with" in run(*asked).err
    if command == "qa":
        # words are compared by BM25, and no vectors
        assert run(*asked, "--retriever", "bm25").code == 0
    if command == "ablation":
        frozen = run("eval", command, file, *here, "--work", "work", "--frozen", checkpoint_folder)
        assert (frozen.code, "error [index_incompatible]" in frozen.err) == (1, True)


def test_fever_judges_by_the_likeliest_label_and_goes_on_from_what_it_has(
    measured: Measured, run: Run, here: Here
) -> None:
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
    command = ("fever", "fever.jsonl", *here, *SAID, "--work", "work")
    labels, gold = measured(*command)["tables"]
    # one claim under all three labels: one judgement is right of three, and at most one of two
    by_way = {(row["model"], row["labels"]): row for row in labels["rows"]}
    assert {row["claims"] for (_, ways), row in by_way.items() if ways == "2-way"} == {2}
    assert by_way["RAG-Token", "3-way"]["accuracy"]["mean"] == pytest.approx(100 / 3)
    assert by_way["RAG-Sequence", "2-way"]["accuracy"]["mean"] == 50
    assert [row["claims with evidence"] for row in gold["rows"]] == [2, 2]
    assert max(row["gold article in top k"]["mean"] for row in gold["rows"]) <= 50

    (log,) = Path("work").glob("*-claims.jsonl")
    written = log.read_text()
    measured(*command)
    assert log.read_text() == written
    assert run("eval", *command, "--target", "a fourth").err.startswith("error [setting_invalid]: --target")


def test_a_claim_is_judged_without_passages_by_the_generator_alone(
    measured: Measured, here: Here, files: None, tiny_checkpoint: Path
) -> None:
    alone = ("--checkpoint", tiny_checkpoint, "--indexes", "nowhere", "--closed-book", "--work", "work")
    (labels,) = measured("fever", "claims.jsonl", *alone, *SAID)["tables"]
    assert [(row["model"], row["labels"]) for row in labels["rows"]] == [
        ("closed book", "3-way"),
        ("closed book", "2-way"),
    ]
    # what transformers' BART makes of the claim alone
    checkpoint = load_checkpoint(tiny_checkpoint)
    claim = checkpoint.generator_tokenizer("the king", return_tensors="pt")
    generator = EncoderDecoder(checkpoint)
    (log,) = Path("work").glob("*-claims.jsonl")
    for line, target in zip(log.read_text().splitlines(), TARGETS, strict=True):
        ids = torch.tensor([[*generator.prefix, *generator.target_ids([target])[0]]])  # (1, P + T)
        with torch.no_grad():
            logits = checkpoint.generator(**claim, decoder_input_ids=ids[:, :-1]).logits  # (1, P + T - 1, V)
        steps = torch.log_softmax(logits.double(), dim=-1).gather(-1, ids[:, 1:, None])[0, :, 0]  # (P + T - 1,)
        expected = float(steps[len(generator.prefix) - 1 :].sum())
        assert json.loads(line)["log_prob"] == pytest.approx(expected, abs=1e-4)

    both = measured("fever", "claims.jsonl", *here, *SAID, "--closed-book", "--retriever", "dense")
    assert [row["model"] for row in both["tables"][0]["rows"][::2]] == ["RAG-Token", "RAG-Sequence", "closed book"]


def test_generation_measures_texts_beside_those_of_people_and_at_each_k(measured: Measured, here: Here) -> None:
    clue = {"answer": "peru", "question": "'Lima is the capital of the land of the sun'"}
    write_lines(Path("jeopardy.jsonl"), [clue])
    fast = ("--num-beams", 2, "--max-new-tokens", 8, "--k", 1, "--k", 2)
    texts, swept = measured("generation", "jeopardy.jsonl", *here, *fast, "--work", "work")["tables"]
    people, *models = texts["rows"]
    assert (people["written by"], people["distinct tri-grams, %"]) == ("people", 100)
    assert [row["decoding"] for row in models] == ["RAG-Token, 2 beams", "RAG-Sequence, fast, 2 beams"]
    assert all(0 <= row["BLEU-1"] <= 100 for row in models)
    assert [row["K"] for row in swept["rows"]] == [1, 2, 1, 2]
    assert all({"BLEU-1", "ROUGE-L"} <= row.keys() for row in swept["rows"])


def test_one_table_has_every_retriever_the_closed_book_and_the_seeds_mean(
    measured: Measured, run: Run, here: Here, files: None, tiny_checkpoint: Path, indexes_folder: Path
) -> None:
    command = (
        *("ablation", "nq.jsonl", "--texts", "texts.jsonl", "--max-new-tokens", 4, *here),
        *("--frozen", tiny_checkpoint, "--work", "work", "--model", "sequence"),
    )
    refused = run("eval", *command)
    assert (refused.code, "openbook index bm25 tiny-2016" in refused.err) == (1, True)

    add_bm25(IndexStore(indexes_folder), "tiny-2016")
    answers, texts = measured(*command)["tables"]
    arms = ["learned", "frozen in training", "BM25", "none: closed book"]
    for table in (answers, texts):
        assert [row["retrieval"] for row in table["rows"]] == arms
    # the same checkpoint twice: no difference at all
    assert answers["rows"][1]["EM, points"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert texts["rows"][3]["ROUGE-L, points"] is not None

    Path("report.json").rename("a.json")
    spread, apart = measured("seeds", *("x=a.json",) * 2, *("y=a.json",) * 2, "--measure", "EM")["tables"]
    assert {(row["arm"], row["seeds"], row["sd"]) for row in spread["rows"]} == {("x", 2, 0.0), ("y", 2, 0.0)}
    assert {row["difference"]["mean"] for row in apart["rows"]} == {0.0}


def test_precisions_are_held_against_the_first(measured: Measured, checkpoint_folder: Path, tiny_encoder: Path) -> None:
    questions = write_lines(Path("questions.jsonl"), QUESTIONS)
    found = measured(
        "precision", questions, "--all", "--checkpoint", checkpoint_folder, "--encoder", tiny_encoder,
        "--n-docs", 2, "--num-beams", 2, "--work", "work",
    )  # fmt: skip
    assert found["facts"]["K"] == 2
    rows = found["tables"][0]["rows"]
    assert [(row["decoding"], row["precision"]) for row in rows] == [
        (decoding, precision)
        for decoding in ("RAG-Token, greedy", "RAG-Token, 2 beams")
        for precision in ("float32", "bfloat16", "int8")
    ]
    exact = [row for row in rows if row["precision"] == "float32"]
    assert all(row["% answered otherwise than float32"]["mean"] == 0 for row in exact)
    assert {row["questions"] for row in rows} == {sum(1 for one in QUESTIONS if one["answers"])}
