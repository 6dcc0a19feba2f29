"""What retrieval is worth, worked out by hand over answers that were given."""

import numpy as np

from openbook.entities import RetrievedPassages
from openbook.rag.checkpoint import Checkpoint
from openbook_lab.datasets.golds import Golds
from openbook_lab.datasets.question_files import QaQuestion
from openbook_lab.evaluation.ablation import arms_of, columns_of, compare
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.index_asking import PaperPlan, TextAnswers
from openbook_lab.evaluation.marks import mark_answers
from openbook_lab.evaluation.reader import Decode
from openbook_lab.evaluation.retrieval import CLOSED_BOOK, Finding, Retrieval
from tests.fixtures.evaluation import mean

QUESTIONS = [QaQuestion(text, Golds((gold,))) for text, gold in (("a", "lima"), ("b", "quito"), ("c", "rome"))]
PLAN = PaperPlan(n_docs=2)
TOKEN, SEQUENCE = PLAN.decodes


def answered(checkpoint: Checkpoint, retriever: Finding, answers: dict[Decode, str]) -> TextAnswers:
    """Three answers for each way of decoding, a letter each: r is right, anything else is wrong."""
    vectors, nothing = np.empty((3, 0), dtype=np.float32), RetrievedPassages((), (), ())
    given = {
        decode: [
            GivenAnswer(question.golds.texts[0] if letter == "r" else "no", -1.0, ())
            for question, letter in zip(QUESTIONS, letters, strict=True)
        ]
        for decode, letters in answers.items()
    }
    retrieval = Retrieval("c", checkpoint, vectors, (nothing,) * 3, retriever)
    return TextAnswers(retrieval, {0 if retriever == CLOSED_BOOK else 2: given})


def test_each_arm_is_compared_with_the_first_ones_same_model(checkpoint: Checkpoint) -> None:
    every = {
        "learned": answered(checkpoint, "dense", {TOKEN: "rr.", SEQUENCE: "rrr"}),
        "BM25": answered(checkpoint, "bm25", {TOKEN: "rrr", SEQUENCE: "r.."}),
        "none": answered(checkpoint, CLOSED_BOOK, {Decode("token", 1): ".r."}),
    }
    rows = compare("nq", every, PLAN, lambda answers: mark_answers(answers, [one.golds for one in QUESTIONS]))
    columns = columns_of("EM", "F1")
    found = []
    for cells in rows:
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
