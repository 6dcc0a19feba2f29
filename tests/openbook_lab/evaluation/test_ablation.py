"""What retrieval is worth, worked out by hand over answers that were given."""

import numpy as np

from openbook.entities import RetrievedPassages
from openbook.rag.checkpoint import Checkpoint
from openbook_lab.datasets.golds import Golds
from openbook_lab.datasets.question_files import QaQuestion
from openbook_lab.evaluation.ablation import answer_measures, arms_of, columns_of, compare
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.contestants import Contestant
from openbook_lab.evaluation.index_asking import CLOSED_BOOK, Asked, Finding, PaperPlan
from openbook_lab.evaluation.reader import Decode
from openbook_lab.evaluation.statistics import Interval

QUESTIONS = [QaQuestion(text, Golds((gold,))) for text, gold in (("a", "lima"), ("b", "quito"), ("c", "rome"))]
PLAN = PaperPlan(n_docs=2)
TOKEN, SEQUENCE = PLAN.decodes


def asked(checkpoint: Checkpoint, retriever: Finding, answers: dict[Decode, str]) -> Asked:
    """Three answers for each way of decoding, a letter each: r is right, anything else is wrong."""
    found = Contestant("c", checkpoint, np.empty((3, 0), dtype=np.float32), (RetrievedPassages((), (), ()),) * 3)
    given = {
        decode: [
            GivenAnswer(question.golds.texts[0] if letter == "r" else "no", -1.0, ())
            for question, letter in zip(QUESTIONS, letters, strict=True)
        ]
        for decode, letters in answers.items()
    }
    return Asked(retriever, found, {0 if retriever == CLOSED_BOOK else 2: given})


def test_each_arm_is_compared_with_the_first_ones_same_model(checkpoint: Checkpoint) -> None:
    every = {
        "learned": asked(checkpoint, "dense", {TOKEN: "rr.", SEQUENCE: "rrr"}),
        "BM25": asked(checkpoint, "bm25", {TOKEN: "rrr", SEQUENCE: "r.."}),
        "none": asked(checkpoint, CLOSED_BOOK, {Decode("token", 1): ".r."}),
    }
    rows = compare("nq", every, PLAN, lambda answers: answer_measures(answers, QUESTIONS))
    columns = columns_of(("EM", "F1"))
    found = []
    for cells in rows:
        row = dict(zip(columns, cells, strict=True))
        matched, apart = row["EM"], row["EM, points"]
        assert isinstance(matched, Interval)
        assert apart is None or isinstance(apart, Interval)
        gap = None if apart is None else round(apart.mean, 1)
        found.append((row["retrieval"], row["decoding"], round(matched.mean, 1), row["compared with"], gap))
    assert found == [
        ("learned", "RAG-Token, greedy", 66.7, "", None),
        ("BM25", "RAG-Token, greedy", 100.0, "RAG-Token, greedy", 33.3),
        ("none", "greedy", 33.3, "RAG-Token, greedy", -33.3),
        ("learned", "RAG-Sequence, thorough, greedy", 100.0, "", None),
        ("BM25", "RAG-Sequence, thorough, greedy", 33.3, "RAG-Sequence, thorough, greedy", -66.7),
        ("none", "greedy", 33.3, "RAG-Sequence, thorough, greedy", -66.7),
    ]


def test_a_checkpoint_that_was_trained_frozen_retrieves_with_its_own_encoder(checkpoint: Checkpoint) -> None:
    assert [(arm.name, arm.retriever) for arm in arms_of(checkpoint)] == [
        ("learned", "dense"),
        ("frozen", "frozen"),
        ("BM25", "bm25"),
        ("none: closed book", CLOSED_BOOK),
    ]
    assert (arms_of(checkpoint, checkpoint)[1].name, arms_of(checkpoint, checkpoint)[1].retriever) == (
        "frozen in training",
        "dense",
    )
