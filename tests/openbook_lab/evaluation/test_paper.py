"""What the tables of the paper are made of, worked out by hand."""

import math

import pytest

from openbook.entities import RetrievedPassages
from openbook.rag.checkpoint import Checkpoint
from openbook_lab.datasets.golds import AnswerPattern, Golds
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.marks import ANSWER_METRICS, mark_answers
from openbook_lab.evaluation.options import CLOSED_BOOK, Finding, Options
from openbook_lab.evaluation.paper import TextAnswers, arms_of, columns_of, compare, decodes_of, qa_cells
from openbook_lab.evaluation.reader import Decode
from openbook_lab.evaluation.retrieval import RetrievalFigures
from tests.fixtures.evaluation import mean

GOLDS = [Golds((gold,)) for gold in ("lima", "quito", "rome")]
OPTIONS = Options(n_docs=2)
TOKEN, SEQUENCE = decodes_of(OPTIONS)


def means(golds: list[Golds], held: list[bool], *texts: str) -> list[float]:
    """Over one passage for each question."""
    given = [GivenAnswer(text, -1.0, (1.0,)) for text in texts]
    return [mean(cell) for cell in qa_cells(golds, [[one, True] for one in held], given, 1)[1:]]


def test_answers_may_be_right_where_no_passage_holds_one() -> None:
    golds = [Golds(("lima",)), Golds(("lima", "quito")), Golds(("nairobi",)), Golds(("bravo",))]
    found = means(golds, [True, False, False, False], "The Lima", "quito", "nairobi", "rio bravo")
    # three of four are right and one names it; of the three questions whose passages hold no answer, two are right
    assert found == pytest.approx([75, 275 / 3, 100, 25, 200 / 3])


def test_patterns_have_no_f1_and_no_unaided_answer_is_no_number() -> None:
    golds = [Golds(patterns=(AnswerPattern("lim[ae]", "here"),))] * 2
    assert means(golds, [True, True], "Lime", "no") == pytest.approx([50, math.nan, 50, 100, math.nan], nan_ok=True)
    assert means(golds[:1], [False], "no")[4] == 0


def test_thorough_and_fast_say_nothing_to_rag_token() -> None:
    assert decodes_of(Options(num_beams=3, decoding="fast")) == (Decode("token", 3), Decode("sequence", 3, "fast"))


def answered(retriever: Finding, answers: dict[Decode, str]) -> TextAnswers:
    """Three answers for each way of decoding, a letter each: r is right, anything else is wrong."""
    nothing = RetrievedPassages((), (), ())
    given = {
        decode: [
            GivenAnswer(gold.texts[0] if letter == "r" else "no", -1.0, ())
            for gold, letter in zip(GOLDS, letters, strict=True)
        ]
        for decode, letters in answers.items()
    }
    retrieval = RetrievalFigures("c", (nothing,) * 3, retriever)
    return TextAnswers(retrieval, {0 if retriever == CLOSED_BOOK else 2: given})


def test_each_arm_is_compared_with_the_first_ones_same_model() -> None:
    every = {
        "learned": answered("dense", {TOKEN: "rr.", SEQUENCE: "rrr"}),
        "BM25": answered("bm25", {TOKEN: "rrr", SEQUENCE: "r.."}),
        "none": answered(CLOSED_BOOK, {Decode("token", 1): ".r."}),
    }
    columns = columns_of(*ANSWER_METRICS)
    found = []
    for cells in compare("nq", every, OPTIONS, lambda answers: mark_answers(answers, GOLDS)):
        row = dict(zip(columns, cells, strict=True))
        points = row["EM, points"]
        gap = None if points is None else round(mean(points), 1)
        found.append((row["retrieval"], row["decoding"], round(mean(row["EM"]), 1), row["compared with"], gap))
    assert found == [
        ("learned", "RAG-Token, greedy", 66.7, "", None),
        ("BM25", "RAG-Token, greedy", 100.0, "RAG-Token, greedy", 33.3),
        ("none", "greedy", 33.3, "RAG-Token, greedy", -33.3),
        ("learned", "RAG-Sequence, thorough, greedy", 100.0, "", None),
        ("BM25", "RAG-Sequence, thorough, greedy", 33.3, "RAG-Sequence, thorough, greedy", -66.7),
        ("none", "greedy", 33.3, "RAG-Sequence, thorough, greedy", -66.7),
    ]


def test_a_checkpoint_trained_frozen_retrieves_with_its_own_encoder(checkpoint: Checkpoint) -> None:
    learned, frozen, *others = [(arm.name, arm.retriever) for arm in arms_of(checkpoint)]
    assert (learned, frozen) == (("learned", "dense"), ("frozen", "frozen"))
    assert others == [("BM25", "bm25"), ("none: closed book", CLOSED_BOOK)]
    arm = arms_of(checkpoint, checkpoint)[1]
    assert (arm.name, arm.retriever) == ("frozen in training", "dense")
