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
from openbook_lab.evaluation.asking import Marks, Setting, ask, difference, mark
from openbook_lab.evaluation.reader import GREEDY, BatchReader, Decode, OpenQuestion
from tests.fixtures.indexes import tiny_passages

QUESTIONS = ["who is president of peru", "what is the capital of the country", "where is the island", "how many"]
WAYS = [GREEDY, Decode("token", 3), Decode("sequence", 3), Decode("sequence", 3, "fast")]
YES = GivenAnswer("yes", -0.5, (1.0,))


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


def test_a_closed_book_refuses_what_the_generator_cannot_read(tiny_checkpoint: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"question: it takes \d+ tokens; this checkpoint's generator reads"):
        BatchReader(load_checkpoint(tiny_checkpoint)).read([OpenQuestion("where " * 1000, (), ())], [GREEDY])


def test_unlike_numbers_of_passages_are_asked_in_one_go_that_counts_passages(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    passages = tuple(tiny_passages("tiny-2016")[:4])
    seen: list[tuple[int, int | None, str]] = []

    class Seen:
        def update(self, done: int, total: int | None, what: str) -> None:
            seen.append((done, total, what))

    def of(number: int) -> OpenQuestion:
        k = (0, 1, 4)[number]
        return OpenQuestion(QUESTIONS[0], passages[:k], (0.0,) * k)

    reader, log = BatchReader(load_checkpoint(tiny_checkpoint)), AnswerLog(tmp_path / "answers.jsonl")
    given = ask(reader, Setting(of, (GREEDY,)), 3, log, progress=Seen(), stage="sweep")
    assert [len(answer.posterior) for answer in given[GREEDY] if answer is not None] == [0, 1, 4]
    assert seen == [(done, 6, "sweep, passages") for done in (0, 4, 5, 6)]
    seen.clear()
    ask(reader, Setting(of, (GREEDY,)), 3, AnswerLog(tmp_path / "answers.jsonl"), progress=Seen(), stage="sweep")
    assert seen == [(6, 6, "sweep, passages")]


def test_a_run_goes_on_from_the_answers_that_were_written(tiny_checkpoint: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    path = tmp_path / "answers.jsonl"
    passages = tuple(tiny_passages("tiny-2016")[:2])

    def of(number: int) -> OpenQuestion | None:
        return None if number == 3 else OpenQuestion(QUESTIONS[number], passages, (1.0, 0.5))

    setting = Setting(of, (GREEDY, Decode("token", 2)))
    whole = ask(BatchReader(checkpoint), setting, len(QUESTIONS), AnswerLog(path), progress=Silence(), stage="all")
    assert [answer is None for answer in whole[GREEDY]] == [False, False, False, True]

    lines = path.read_text().splitlines(keepends=True)
    # killed in the middle of a line: four answers are whole
    path.write_text("".join(lines[:4]) + lines[4][:20])
    again = ask(BatchReader(checkpoint), setting, len(QUESTIONS), AnswerLog(path), progress=Silence(), stage="all")
    assert again == whole
    # nothing that was whole is asked again, and nothing else is left out
    assert sorted(path.read_text().splitlines()) == sorted(line.rstrip("\n") for line in lines)


def test_the_same_passages_are_read_once_whatever_chose_them(tiny_checkpoint: Path, tmp_path: Path) -> None:
    passages = tuple(tiny_passages("tiny-2016")[:2])
    log, reader = AnswerLog(tmp_path / "answers.jsonl"), BatchReader(load_checkpoint(tiny_checkpoint))
    for scores in ((1.0, 0.5), (3.0, 2.5), (1.0, 0.4)):
        setting = Setting(lambda _, scores=scores: OpenQuestion(QUESTIONS[0], passages, scores), (GREEDY,))
        ask(reader, setting, 1, log, progress=Silence(), stage="one")
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 2


def test_what_is_in_the_log_is_not_what_another_setting_would_say(tmp_path: Path) -> None:
    log = AnswerLog(tmp_path / "answers.jsonl")
    log.add("K=5", [("question", YES)])
    assert AnswerLog(tmp_path / "answers.jsonl").get("K=5", "question") == YES
    assert log.get("K=1", "question") is None


def test_a_line_that_is_no_answer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    AnswerLog(path).add("K=5", [("question", YES)])
    with path.open("a") as file:
        file.write(json.dumps({"setting": "K=5"}) + "\n")
    with pytest.raises(SourceInvalid, match=r"answers\.jsonl:2: not an answer"):
        AnswerLog(path)


def test_answers_are_marked_against_the_golds_of_their_question() -> None:
    marks = mark(
        [GivenAnswer("The Lima", 0.0, ()), None, GivenAnswer("Maria Lopez", 0.0, ())], [["lima"], ["x"], ["Lopez"]]
    )
    assert marks.exact_match == (1.0, None, 0.0)
    assert marks.f1 == (1.0, None, pytest.approx(2 / 3))
    assert marks.questions == 2
    matched, overlap = marks.intervals()
    assert (matched.mean, round(overlap.mean, 1)) == (50.0, 83.3)


def test_a_difference_is_over_the_questions_that_both_have() -> None:
    first = Marks((1.0, 1.0, None, 0.0), (1.0, 0.5, None, 0.0))
    second = Marks((0.0, None, 1.0, 0.0), (0.5, None, 1.0, 0.0))
    questions, matched, overlap = difference(first, second)
    assert (questions, matched.mean, overlap.mean) == (2, 50.0, 25.0)


def test_two_spaces_are_one_to_a_closed_book_as_they_are_beside_a_passage(tiny_bart_checkpoint: Path) -> None:
    # byte pairs tell them apart, word pieces do not
    reader = BatchReader(load_checkpoint(tiny_bart_checkpoint))
    ((one, two),) = reader.read([OpenQuestion("where is", (), ()), OpenQuestion("where  is", (), ())], [GREEDY])
    assert one.log_prob == pytest.approx(two.log_prob, abs=1e-6)
