"""The mixture: the same pools from the same seed, shares that move, negatives that hold no answer."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from openbook.indexing.passage_encoder import PassageEncoder
from openbook_lab.datasets.questions import Question
from openbook_lab.training.data import Questions, pieces_of, titled_pieces
from openbook_lab.training.examples import AnswerPool, ReadingExample
from openbook_lab.training.mixture import Mixture, hard_negatives, question_sources


def named(name: str) -> ReadingExample:
    return ReadingExample(name, "", "", "", None)


def test_a_pool_depends_on_seed_and_number_alone_and_shares_move() -> None:
    sources = {"early": lambda _: named("early"), "late": lambda _: named("late")}
    shares = {"early": (1.0, 0.0), "late": (0.0, 1.0), "absent": (5.0, 5.0)}
    mixture = Mixture(sources, seed=3, pools=3, shares=shares)
    assert {e.question for e in mixture.pool(0, 50)} == {"early"}
    assert {e.question for e in mixture.pool(2, 50)} == {"late"}
    middle = Counter(e.question for e in mixture.pool(1, 400))
    assert 150 < middle["early"] < 250
    assert mixture.pool(1, 50) == Mixture(sources, seed=3, pools=3, shares=shares).pool(1, 50)
    assert mixture.pool(1, 50) != Mixture(sources, seed=4, pools=3, shares=shares).pool(1, 50)


@given(st.integers(0, 450))
def test_pieces_hold_every_word_once_and_are_even(count: int) -> None:
    words = [f"w{i}" for i in range(count)]
    pieces = pieces_of(" ".join(words))
    assert " ".join(pieces).split() == words
    sizes = [len(piece.split()) for piece in pieces]
    assert not sizes or (max(sizes) <= 100 and max(sizes) - min(sizes) <= 1)


def test_negatives_hold_no_answer_and_come_from_the_nearest_first(questions: list[Question]) -> None:
    pieces = [*titled_pieces(questions), ("Peru", "Peru has a president, and its capital is not told here.")]
    negatives = hard_negatives(questions, pieces, encoder=PassageEncoder.load(), keep=2)
    for question, rows in zip(questions, negatives, strict=True):
        assert all(answer not in pieces[row][1] for row in rows for answer in question.answers)
    assert pieces[negatives[0][0]][1].startswith("Peru has a president")


def test_every_source_gives_examples_with_the_answer_where_they_say(questions: list[Question]) -> None:
    unanswerable = [Question("Who was queen of Peru?", (), "Peru", questions[0].context)]
    given = Questions(paragraphs=questions, sentences=questions, unanswerable=unanswerable)
    sources = question_sources(given, AnswerPool.of(questions), PassageEncoder.load())
    without_answer = {"distractor", "unanswerable", "distant"}
    for name, source in sources.items():
        random_state = random.Random(0)
        made = [example for _ in range(40) if (example := source(random_state)) is not None]
        assert made, name
        for example in made:
            assert (example.start is None) == (name in without_answer), name
            if example.start is not None:
                assert example.text[example.start :].startswith(example.answer)
