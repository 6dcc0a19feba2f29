"""Invented worlds: every question's passages hold its answer, distractors hold none, the seed decides everything."""

import random
from collections import Counter

from openbook.entities import Passage
from openbook.indexing.passage_encoder import PassageEncoder
from openbook_lab.datasets.questions import Question
from openbook_lab.training.data import Questions
from openbook_lab.training.examples import AnswerPool, occurrences
from openbook_lab.training.libraries import DEV, PARAGRAPHS, draw_from, library_questions, make_libraries
from openbook_lab.training.mixture import world_sources
from openbook_lab.training.worlds import InventedWorld, LibraryQuestion, invented_worlds

PASSAGES = (
    Passage("president-of-peru#0", "President of Peru", "Ana Torres has been the President of Peru since 1999."),
    Passage("prime-minister-of-peru#0", "Prime Minister of Peru", "Juan Perez serves as Prime Minister of Peru."),
    Passage("peru#0", "Peru", "Peru has its capital at Quito."),
)


def asked(text: str, answer: str, kind: str, row: int) -> LibraryQuestion:
    return LibraryQuestion(text, (answer,), "small", kind, (row,), PASSAGES[row].title)


SMALL = InventedWorld(
    "small",
    PASSAGES,
    (
        asked("Who is the President of Peru?", "Ana Torres", "office", 0),
        asked("Who is the Prime Minister of Peru?", "Juan Perez", "office", 1),
        asked("What is the capital of Peru?", "Quito", "capital", 2),
    ),
)


def test_every_question_knows_passages_that_hold_its_answer() -> None:
    (world,) = invented_worlds(1, seed=3)
    assert len(world.passages) > 1000
    assert len(world.questions) > 10_000
    assert {"office", "capital", "gdp", "independence"} <= {question.kind for question in world.questions}
    for question in random.Random(0).sample(world.questions, 500):
        assert question.rows
        assert all(occurrences(question.answers[0], world.passages[row].text) for row in question.rows)


def test_examples_hold_their_answer_and_distractors_do_not() -> None:
    sources = world_sources([SMALL], AnswerPool({"person": ("Maria Lopez", "Ana Ruiz"), "name": ("Lima",)}))
    random_state = random.Random(0)
    for _ in range(60):
        example = sources["world"](random_state)
        assert example is not None
        assert example.start is not None
        assert example.text[example.start :].startswith(example.answer)
    distractors = [example for _ in range(60) if (example := sources["world_distractor"](random_state)) is not None]
    assert distractors
    for example in distractors:
        right = next(q for q in SMALL.questions if q.text.rstrip("?") == example.question.rstrip("?"))
        assert not occurrences(right.answers[0], example.text)


def test_libraries_keep_worlds_apart_and_rows_right() -> None:
    given = Questions(held_out=[Question("Who?", ("Ana",), "Peru", "Ana is.")])
    libraries = make_libraries(given, [SMALL], encoder=PassageEncoder.load())
    questions = library_questions(given, [SMALL])
    assert set(libraries) == {PARAGRAPHS, "small", DEV}
    assert libraries["small"].vectors.shape == (3, 384)
    assert [passage.text for passage in libraries[DEV].passages] == ["Ana is."]
    assert libraries[DEV].vectors.shape == (1, 384)
    for question in questions["small"]:
        assert occurrences(question.answers[0], libraries["small"].passages[question.rows[0]].text)


def test_draws_follow_their_shares() -> None:
    questions = {PARAGRAPHS: SMALL.questions[:1], "small": SMALL.questions}
    draw = draw_from(questions, world_share=0.5, office_share=0.0)
    random_state = random.Random(0)
    kinds = Counter(draw(random_state).kind for _ in range(400))
    # half from the paragraphs, which are one office question here; the rest half offices, half capitals
    assert 60 < kinds["capital"] < 140


def test_kinds_of_questions_over_paragraphs_come_as_their_weights_say() -> None:
    question = Question("Who?", ("Ana",), "Peru", "Ana is.")
    given = Questions(paragraphs=[question] * 9, unanswerable=[question], alone=[question, Question("?", ())])
    questions = library_questions(given, [])
    assert Counter(q.kind for q in questions[PARAGRAPHS]) == {"paragraph": 9, "unanswerable": 1, "alone": 1}
    assert all(q.answers == () for q in questions[PARAGRAPHS] if q.kind == "unanswerable")
    weights = {"paragraph": 1.0, "unanswerable": 3.0}
    draw = draw_from(questions, world_share=0.0, office_share=0.0, paragraph_kinds=weights)
    random_state = random.Random(0)
    kinds = Counter(draw(random_state).kind for _ in range(400))
    assert 70 < kinds["paragraph"] < 130
    assert kinds["alone"] == 0
    whole = draw_from(questions, world_share=0.0, office_share=0.0)
    assert 300 < Counter(whole(random_state).kind for _ in range(400))["paragraph"] < 350
