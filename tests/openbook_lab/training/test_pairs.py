"""Training on pairs alone: questions without paragraphs, texts to write, claims; with passages and without any."""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from openbook.entities import Passage
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.wording import Wording
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.reader import GREEDY, BatchReader, OpenQuestion
from openbook_lab.training.batches import encode_examples
from openbook_lab.training.data import Questions, read_all
from openbook_lab.training.examples import ReadingExample
from openbook_lab.training.libraries import PARAGRAPHS, FoundPassages, draw_from, library_questions
from openbook_lab.training.mixture import closed_book_source
from openbook_lab.training.recipe import DistillationConfig, JointConfig, ReadingConfig, RetrievalConfig
from openbook_lab.training.run import Training, TrainingConfig
from tests.openbook_lab.training.files import lines, logged, refused, said_by, with_files

NONE = torch.empty(0)

PASSAGES = (
    {"id": "1", "title": "Peru", "text": "Lima is the capital of Peru."},
    {"id": "2", "title": "Ecuador", "text": "Quito is the capital of Ecuador."},
)
ASKED = ({"question": "What is the capital of Peru?", "answer": ["Lima"]}, {"question": "Who?", "answer": ["Quito"]})
CLUES: tuple[dict[str, Any], ...] = (
    {"input": "Lima", "references": ["the capital of peru", "a city in peru"]},
    {"input": "Maria Lopez", "references": ["who was president"]},
)
CLAIMS = (
    {"claim": "Lima is the capital of Peru.", "label": "SUPPORTS", "evidence": []},
    {"claim": "Lima is the capital of Ecuador.", "label": "REFUTES", "evidence": []},
)


@pytest.fixture
def config(tmp_path: Path, bert_folder: Path) -> TrainingConfig:
    """Nothing to ask yet; the passages are all that is searched."""
    return TrainingConfig(
        output=tmp_path / "mine",
        work=tmp_path / "work",
        passages=(lines(tmp_path / "passages.jsonl", PASSAGES),),
        base=bert_folder,
        name="mine",
        worlds=0,
        reading=ReadingConfig(steps=0, tokens_per_step=300, examples_per_pool=8),
        distillation=DistillationConfig(steps=0),
        joint=JointConfig(steps=2, questions_per_step=2, n_docs=2),
    )


def closed(config: TrainingConfig, **reading: float) -> TrainingConfig:
    """The recipe of a closed book, with these numbers of reading."""
    return replace(
        config,
        passages=(),
        closed_book=True,
        reading=replace(config.reading, dropout=0.0, **reading),
        joint=replace(config.joint, steps=0),
    )


def test_texts_are_always_learnt_and_answers_only_where_they_were_found() -> None:
    clue, claim = Question("Lima", ("a city in Peru",)), Question("Lima is in Peru.", ("SUPPORTS",))
    asked = library_questions(Questions(alone=[clue], prompts=[clue], claims=[claim]), [])[PARAGRAPHS]
    passages = [Passage("1", "Quito", "Quito is in Ecuador.")]
    learnt = {question.kind: FoundPassages(question, passages, NONE, NONE).target() for question in asked}
    assert learnt == {"alone": None, "text": "a city in Peru", "claim": "SUPPORTS"}


def test_with_unfound_an_answer_is_learnt_whatever_was_found_and_one_that_was_first() -> None:
    alone = [Question("Which city?", ("Lima", "Quito"))]
    there, nowhere = Passage("1", "", "Quito is there."), Passage("2", "", "None.")
    asked = [
        *library_questions(Questions(alone=alone), [])[PARAGRAPHS],
        *library_questions(Questions(alone=alone), [], unfound=True)[PARAGRAPHS],
        *library_questions(Questions(paragraphs=alone), [], unfound=True)[PARAGRAPHS],
    ]
    assert [FoundPassages(question, [there], NONE, NONE).target() for question in asked] == ["Quito"] * 3
    assert [FoundPassages(question, [nowhere], NONE, NONE).target() for question in asked] == [None, "Lima", "Lima"]


def test_unfound_reaches_what_is_drawn(config: TrainingConfig) -> None:
    for unfound in (False, True):
        draw = Training(with_files(replace(config, unfound=unfound), questions=ASKED)).draw()
        assert draw(random.Random(0)).written is unfound


def test_a_closed_book_learns_the_first_of_several_answers_and_every_text(config: TrainingConfig) -> None:
    asked = [{"question": "Who?", "answer": ["Ana", "Ana Torres"]}]
    read = read_all(with_files(config, questions=asked, texts=CLUES[:1]))
    assert [pair.answers for pair in read.pairs()] == [("Ana",), ("the capital of peru", "a city in peru")]


def test_pairs_come_equally_often_and_beside_paragraphs_by_their_kind(
    config: TrainingConfig, questions: list[Question]
) -> None:
    config = with_files(config, questions=[*ASKED, *ASKED], texts=CLUES[1:])
    draw, random_state = Training(config).draw(), random.Random(0)
    assert 60 < Counter(draw(random_state).kind for _ in range(500))["text"] < 140
    draw = Training(with_files(config, paragraphs=questions)).draw()
    # weights of 1, 0.85 and 0.05
    assert 210 < Counter(draw(random_state).kind for _ in range(500))["text"] < 320


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"Data": [{"Question": "Where?", "Answer": {"Value": "Peru", "Aliases": ["Peru", "Republic"]}}]}),
        json.dumps([{"utterance": "Where?", "targetValue": '(list (description Peru) (description "Republic"))'}]),
        "Where?\t['Peru', 'Republic']",
    ],
    ids=["TriviaQA", "WebQuestions", "DPR"],
)
def test_questions_alone_come_in_the_forms_of_the_public_files(
    config: TrainingConfig, tmp_path: Path, content: str
) -> None:
    (tmp_path / "published").write_text(content)
    read = read_all(replace(config, questions=(tmp_path / "published",)))
    assert read.alone == [Question("Where?", ("Peru", "Republic"))]


def test_questions_with_answers_and_passages_are_enough_and_judged_by_their_own(config: TrainingConfig) -> None:
    still = {"encoder_rate": 1e-12, "decoder_rate": 1e-12, "question_rate": 1e-12}
    joint = replace(config.joint, steps=9, evaluate_every=1, log_every=1, patience=2, **still)
    config = with_files(replace(config, joint=joint), questions=ASKED, dev=ASKED[:1])
    assert "2 questions alone" in said_by(config)
    log = logged(config, "joint")
    assert {entry["found"] for entry in log if "nll" in entry} == {1.0}
    judged = [entry for entry in log if "open_exact_match" in entry]
    # the first is the best so far, and two are no better
    assert [entry["step"] for entry in judged[:-1]] == [1, 2, 3]
    assert all("dev_exact_match" not in entry for entry in judged)
    assert "kept" in judged[-1]
    assert load_checkpoint(config.output).facts.name == "mine"


def test_reading_is_not_judged_by_questions_without_their_paragraphs(
    config: TrainingConfig, questions: list[Question]
) -> None:
    reads, joint = replace(config.reading, steps=1, evaluate_every=1, patience=1), replace(config.joint, steps=0)
    config = with_files(replace(config, reading=reads, joint=joint), paragraphs=questions, dev=ASKED)
    refused(config, "stopping early in reading needs held-out questions with their paragraphs")
    config = replace(config, reading=replace(reads, patience=0))
    said_by(config)
    assert ["dev_exact_match" in entry for entry in logged(config, "reading")] == [False]


def test_what_is_too_long_to_be_asked_is_left_out_and_said(config: TrainingConfig) -> None:
    # the generator reads 96 tokens, and half of them are for the passage
    long, fits = {"question": "lima " * 50, "answer": ["Lima"]}, {"question": "lima " * 40, "answer": ["Lima"]}
    config = with_files(config, questions=[long, fits, fits, long])
    described = Training(config).description()
    assert {"2 questions alone", "2 are longer than 48 tokens, and are left out"} <= set(described)
    assert len(Training(closed(config)).questions.alone) == 4


def test_each_text_that_was_written_for_a_prompt_is_drawn_as_often_as_another() -> None:
    texts = [Question("Lima?", ("one", "two", "three"))]
    draw = draw_from(library_questions(Questions(prompts=texts), []), world_share=0.0, office_share=0.0)
    random_state = random.Random(0)
    drawn = [draw(random_state) for _ in range(300)]
    assert all(count > 70 for count in Counter(question.answers for question in drawn).values())
    assert {len(question.answers) for question in drawn} == {1}
    # a prompt is no question that somebody types: it stays as it is
    assert {question.text for question in drawn} == {"Lima?"}


def test_a_closed_book_reads_in_training_what_it_reads_when_it_is_asked(
    wording: Wording, tokenizer: PreTrainedTokenizerBase
) -> None:
    example = closed_book_source([Question("who was king", ("juan perez",))])(random.Random(0))
    assert example == ReadingExample("who was king", "", "", "juan perez", None)
    (encoded,) = encode_examples([example], wording.without_passages(), 96, 24)
    assert encoded.input_ids == tokenizer("who was king")["input_ids"]


def test_texts_and_claims_are_learnt_beside_passages_that_do_not_hold_them(config: TrainingConfig) -> None:
    config = with_files(config, texts=CLUES, claims=CLAIMS)
    assert {"2 texts to write", "2 claims"} <= set(said_by(config))
    # what is written is not looked for
    assert ["found" in entry for entry in logged(config, "joint")] == [False]
    assert load_checkpoint(config.output).facts.name == "mine"
    # the question encoder is shown what is asked
    assert read_all(config).texts() == ["Lima", "Maria Lopez", *(claim["claim"] for claim in CLAIMS)]


def test_a_closed_book_learns_to_write_without_any_passage(config: TrainingConfig) -> None:
    config = closed(config, steps=60, warm_up=5, encoder_rate=1e-2, decoder_rate=1e-2, examples_per_pool=16)
    config = replace(config, held_out=("Peru",), distillation=DistillationConfig(steps=1))
    clues = [{"input": "lima", "references": ["the capital"]}, {"input": "maria", "references": ["who was president"]}]
    # held out with a paragraph that a closed book must not be shown
    asked = Question("lima", ("the capital",), "Peru", "Quito, the capital, is here.")
    config = with_files(config, texts=clues, paragraphs=[asked])
    # the base brings no question encoder
    assert {"distillation: begins", "joint: left out"} <= set(said_by(config))
    assert logged(config, "reading")[-1]["dev_exact_match"] == 100
    reader = BatchReader(load_checkpoint(config.output))
    (written,) = reader.read([OpenQuestion("lima", (), ()), OpenQuestion("maria", (), ())], [GREEDY])
    assert [answer.text for answer in written] == ["the capital", "who was president"]


def test_a_closed_books_loss_is_what_its_evaluation_says_of_the_same_text(
    config: TrainingConfig, wording: Wording
) -> None:
    # one step at a rate that moves nothing: the loss is that of the folder
    config = closed(replace(config, dtype="float32"), steps=1, encoder_rate=1e-12, decoder_rate=1e-12, log_every=1)
    config = with_files(config, texts=CLUES[1:])
    said_by(config)
    (target,) = wording.targets(CLUES[1]["references"], 24)
    reader = BatchReader(load_checkpoint(config.output))
    (scored,) = reader.score(OpenQuestion("Maria Lopez", (), ()), CLUES[1]["references"])
    assert logged(config, "reading")[0]["nll"] == pytest.approx(-scored.log_prob / len(target), rel=1e-3)


def test_pairs_that_nothing_can_be_learnt_from_are_refused_before_anything_begins(
    config: TrainingConfig, tmp_path: Path
) -> None:
    unanswered = (lines(tmp_path / "unanswered.jsonl", [{"question": "Who?", "answers": []}]),)
    asked = with_files(config, questions=ASKED)
    joint, reads = config.joint, replace(asked, reading=replace(config.reading, steps=1))
    idle, book = replace(asked, joint=replace(joint, steps=0)), replace(reads, closed_book=True)
    without_index = closed(asked, steps=1)
    generator = ("generator-encoder", "generator-decoder")
    finds = RetrievalConfig(steps=1)
    frozen = replace(reads.reading, freeze=generator)
    all_frozen, patient = replace(joint, freeze=(*generator, "question-encoder")), replace(joint, patience=1)
    for refusable, reason in (
        (book, "--joint-steps: with a closed book there are no passages"),
        (replace(idle, closed_book=True), "--reading-steps: a closed book learns by reading alone"),
        (replace(book, joint=idle.joint), "passages: a closed book has no use for them"),
        (replace(without_index, retrieval=finds), "--retrieval-steps: with a closed book there are no passages"),
        (replace(asked, questions=unanswered, joint=idle.joint, retrieval=finds), "so there is nothing to find"),
        (replace(without_index, worlds=1), "worlds: a closed book has no use for them"),
        (replace(without_index, questions=unanswered), "none of them has an answer, so there is nothing to train on"),
        (replace(asked, questions=unanswered), "0 questions with answers are left to train on, and a step takes 2"),
        (reads, "reading learns from questions over paragraphs, and there are none: name a file with --paragraphs"),
        (replace(reads, reading=frozen), "with both parts of the generator frozen reading has nothing to learn"),
        (replace(asked, joint=all_frozen), "with all three parts frozen there is nothing to learn"),
        (replace(asked, joint=patient), "stopping early needs held-out questions with answers: name a file with --dev"),
        (replace(asked, dev=unanswered), "a question to measure with needs an answer"),
        (replace(asked, passages=()), "0 are there to be found: name some with --passages"),
        (idle, "no stage has a step, so there is nothing to train"),
        (replace(config, texts=(tmp_path / "nowhere.jsonl",)), "nowhere.jsonl: there is no such file"),
        (with_files(config, texts=[*CLUES, {"input": "Lima"}]), "texts.jsonl:3"),
    ):
        refused(refusable, reason)
