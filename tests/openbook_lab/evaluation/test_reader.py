"""Batches of questions against the engine that answers one at a time, and runs that go on after a kill."""

import json
from contextlib import closing
from pathlib import Path

import pytest
import torch

from openbook.entities import AnswerOptions
from openbook.errors import InvalidRequest, SourceInvalid
from openbook.indexing.index_builder import Silence
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.storage.index_store import IndexStore
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer
from openbook_lab.evaluation.reader import GREEDY, BatchReader, Decode, OpenQuestion, ask
from tests.fixtures.indexes import tiny_passages

QUESTIONS = ["who is president of peru", "what is the capital of the country", "where is the island", "how many"]
WAYS = [GREEDY, Decode("token", 3), Decode("sequence", 3), Decode("sequence", 3, "fast")]
YES = GivenAnswer("yes", -0.5, (1.0,))


@pytest.fixture
def reader(tiny_checkpoint: Path) -> BatchReader:
    return BatchReader(load_checkpoint(tiny_checkpoint))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.jsonl"


@pytest.mark.parametrize("decode", WAYS, ids=lambda decode: decode.key)
def test_a_batch_is_answered_as_the_engine_answers_each(
    tiny_checkpoint: Path, tiny_indexes: Path, decode: Decode
) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    engine = RagEngine(checkpoint)
    options = AnswerOptions(n_docs=3, model=decode.model, decoding=decode.decoding, num_beams=decode.num_beams)
    with closing(IndexStore(tiny_indexes).open("tiny-2016")) as snapshot:
        one_by_one = [engine.answer([question], snapshot, options)[0] for question in QUESTIONS]
    asked = [
        OpenQuestion(
            question,
            tuple(found.passage for found in answer.passages),
            tuple(found.doc_score for found in answer.passages),
        )
        for question, answer in zip(QUESTIONS, one_by_one, strict=True)
    ]
    (batch,) = BatchReader(checkpoint).read(asked, [decode])
    for together, alone in zip(batch, one_by_one, strict=True):
        assert together.text == alone.answers[0].text
        assert together.log_prob == pytest.approx(alone.answers[0].log_prob, abs=1e-4)
        assert together.posterior == pytest.approx([found.posterior for found in alone.passages], abs=1e-4)


@pytest.mark.parametrize("decode", WAYS, ids=lambda decode: decode.key)
def test_a_closed_book_is_what_transformers_makes_of_the_question_alone(tiny_checkpoint: Path, decode: Decode) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    asked = [OpenQuestion(question, (), ()) for question in QUESTIONS]
    (batch,) = BatchReader(checkpoint, max_new_tokens=6).read(asked, [decode])
    for question, given in zip(QUESTIONS, batch, strict=True):
        inputs = checkpoint.generator_tokenizer(question, return_tensors="pt")
        # no length penalty and nothing given up early: a score is log p(y | x), as here
        output = checkpoint.generator.generate(
            inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            num_beams=decode.num_beams,
            do_sample=False,
            max_new_tokens=6,
            length_penalty=0.0,
            early_stopping="never" if decode.num_beams > 1 else None,
            return_dict_in_generate=True,
            output_scores=True,
        )
        text = checkpoint.generator_tokenizer.decode(output.sequences[0], skip_special_tokens=True)
        assert given.text.lower() == text.strip().lower()
        with torch.no_grad():
            logits = checkpoint.generator(**inputs, decoder_input_ids=output.sequences[:, :-1]).logits  # (1, T, V)
        steps = torch.log_softmax(logits.double(), dim=-1).gather(-1, output.sequences[:, 1:, None])  # (1, T, 1)
        assert given.log_prob == pytest.approx(float(steps.sum()), abs=1e-4)
        assert given.posterior == ()


def test_a_closed_book_refuses_what_the_generator_cannot_read(reader: BatchReader) -> None:
    with pytest.raises(InvalidRequest, match=r"question: it takes \d+ tokens; this checkpoint's generator reads"):
        reader.read([OpenQuestion("where " * 1000, (), ())], [GREEDY])


def test_two_spaces_are_one_to_a_closed_book_as_beside_a_passage(tiny_bart_checkpoint: Path) -> None:
    # byte pairs tell them apart, word pieces do not
    reader = BatchReader(load_checkpoint(tiny_bart_checkpoint))
    ((one, two),) = reader.read([OpenQuestion("where is", (), ()), OpenQuestion("where  is", (), ())], [GREEDY])
    assert one.log_prob == pytest.approx(two.log_prob, abs=1e-6)


def test_a_run_continues_from_the_answers_that_were_written(reader: BatchReader, path: Path) -> None:
    passages = tuple(tiny_passages("tiny-2016")[:2])
    questions = [OpenQuestion(text, passages, (1.0, 0.5)) for text in QUESTIONS[:3]]
    decodes = (GREEDY, Decode("token", 2))
    whole = ask(reader, questions, decodes, AnswerLog(path), progress=Silence(), stage="all")
    lines = path.read_text().splitlines(keepends=True)
    # killed in the middle of a line: four answers are whole
    path.write_text("".join(lines[:4]) + lines[4][:20])
    assert ask(reader, questions, decodes, AnswerLog(path), progress=Silence(), stage="all") == whole
    # nothing that was whole is asked again, and nothing else is left out
    assert sorted(path.read_text().splitlines()) == sorted(line.rstrip("\n") for line in lines)


def test_the_same_passages_are_read_once_whatever_chose_them(reader: BatchReader, path: Path) -> None:
    passages, log = tuple(tiny_passages("tiny-2016")[:2]), AnswerLog(path)
    for scores in ((1.0, 0.5), (3.0, 2.5), (1.0, 0.4)):
        ask(reader, [OpenQuestion(QUESTIONS[0], passages, scores)], [GREEDY], log, progress=Silence(), stage="one")
    assert len(path.read_text().splitlines()) == 2


def test_answers_are_asked_together_where_the_log_lacks_one(path: Path) -> None:
    no, calls = GivenAnswer("no", -1.0, ()), []

    def both() -> list[GivenAnswer]:
        calls.append(1)
        return [YES, no]

    AnswerLog(path).add("K=5", [("a", YES)])
    for _ in range(2):
        assert list(AnswerLog(path).get_or_ask("K=5", ["a", "b"], both)) == [YES, no]
    assert len(calls) == 1


def test_a_line_that_is_not_an_answer_is_named(path: Path) -> None:
    AnswerLog(path).add("K=5", [("question", YES)])
    with path.open("a") as file:
        file.write(json.dumps({"setting": "K=5"}) + "\n")
    with pytest.raises(SourceInvalid, match=r"answers\.jsonl:2: not an answer"):
        AnswerLog(path)
