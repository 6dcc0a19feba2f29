"""Learning to retrieve: the loss is the share of right passages, and the question encoder alone learns."""

import copy
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook_lab.datasets.questions import Question
from openbook_lab.training.data import Questions
from openbook_lab.training.libraries import DEV, PARAGRAPHS, Library, index_words
from openbook_lab.training.models import RagModels
from openbook_lab.training.recipe import RetrievalConfig
from openbook_lab.training.retrieval import RetrievalTask, retrieval_loss, retrieval_questions
from openbook_lab.training.stage import train_stage
from openbook_lab.training.worlds import LibraryQuestion

PASSAGES = (
    Passage("1", "Peru", "Lima is the capital of Peru."),
    Passage("2", "Ecuador", "Quito is the capital of Ecuador."),
    Passage("3", "Peru", "Lima lies by the sea."),
    Passage("4", "Ecuador", "Juan Perez was king in 1830."),
)
CAPITAL = LibraryQuestion("what is the capital of peru?", ("Lima",), PARAGRAPHS)
KING = LibraryQuestion("who was king of ecuador?", ("Juan Perez",), PARAGRAPHS)
CONFIG = RetrievalConfig(
    steps=8, questions_per_step=4, warm_up=1, question_rate=3e-3, n_docs=4, dense=1.0, bm25=0.5, log_every=1
)


def drawn(random_state: random.Random) -> LibraryQuestion:
    return random_state.choice((CAPITAL, KING))


@pytest.fixture
def libraries() -> dict[str, Library]:
    torch.manual_seed(1)
    vectors = torch.nn.functional.normalize(torch.randn(4, 32), dim=-1)
    return {PARAGRAPHS: Library(PASSAGES, vectors, index_words(PASSAGES, PARAGRAPHS))}


def test_the_loss_and_its_gradient_are_those_of_the_share_written_out() -> None:
    torch.manual_seed(0)
    doc_scores = torch.randn(5, dtype=torch.float64, requires_grad=True)  # (K,)
    loss = retrieval_loss(doc_scores, 2)
    p = doc_scores.exp() / doc_scores.exp().sum()  # (K,)
    expected = -(p[0] + p[1]).log()
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss, doc_scores)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, doc_scores)[0])


def test_candidates_are_the_best_by_both_scores_with_the_right_ones_first(
    models: RagModels, libraries: dict[str, Library]
) -> None:
    library = libraries[PARAGRAPHS]
    task = RetrievalTask(replace(CONFIG, n_docs=3, bm25=9.0), models, libraries, drawn)
    vector = library.vectors[1:2]  # (1, d)
    (found,) = task._candidates([CAPITAL], vector)
    assert found is not None
    of_words = library.bm25_scores(CAPITAL.text)
    best = ((library.vectors @ vector[0]) + 9.0 * of_words).argsort(descending=True).tolist()[:3]
    expected = [row for row in best if row in (0, 2)] + [row for row in best if row not in (0, 2)]
    torch.testing.assert_close(found.vectors, library.vectors[expected], atol=0, rtol=0)
    torch.testing.assert_close(found.bm25, of_words[expected], atol=0, rtol=0)
    assert (found.n_right, found.found) == (sum(row in (0, 2) for row in best), True)


def test_a_known_passage_is_the_right_one_and_others_with_the_answer_are_neither(
    models: RagModels, libraries: dict[str, Library]
) -> None:
    library = libraries[PARAGRAPHS]
    task = RetrievalTask(CONFIG, models, libraries, drawn)
    (found,) = task._candidates([replace(CAPITAL, rows=(2,))], library.vectors[:1])
    assert found is not None
    assert (found.n_right, len(found.vectors)) == (1, 3)  # not the first passage, which holds the answer too
    torch.testing.assert_close(found.vectors[0], library.vectors[2], atol=0, rtol=0)
    assert not any(torch.equal(vector, library.vectors[0]) for vector in found.vectors)
    assert task._candidates([replace(CAPITAL, answers=("Cusco",))], library.vectors[:1]) == [None]


def test_questions_know_their_paragraphs_pieces_and_share_the_answers_of_equal_ones() -> None:
    filler = " ".join(["word"] * 98)
    questions = Questions(
        paragraphs=[
            Question("Where is it?", ("Lima",), "Peru", f"It lies in Lima. {filler} Lima is a city."),
            Question("where is it", ("Quito",), "Ecuador", "It lies in Quito."),
        ],
        alone=[Question("Who was it?", ("Ana",))],
    )
    here, there, who = retrieval_questions(questions, [])[PARAGRAPHS]
    assert (here.rows, there.rows, who.rows) == ((0, 1), (2,), ())
    assert here.answers == there.answers == ("Lima", "Quito")
    assert who.answers == ("Ana",)


def test_the_question_encoder_learns_to_find_and_nothing_else_moves(
    models: RagModels, libraries: dict[str, Library], tmp_path: Path
) -> None:
    before = copy.deepcopy(models.question_encoder.state_dict())
    generator = copy.deepcopy(models.generator.state_dict())
    lines: list[Any] = []
    train_stage(RetrievalTask(CONFIG, models, libraries, drawn), state_file=tmp_path / "s.pt", log=lines.append)
    assert lines[-1]["nll"] < 0.7 * lines[0]["nll"]
    after = models.question_encoder.state_dict()
    embeddings = "question_encoder.bert_model.embeddings.word_embeddings.weight"
    torch.testing.assert_close(after[embeddings], before[embeddings], atol=0, rtol=0)
    assert any((after[name] != before[name]).any() for name in before if "query" in name)
    torch.testing.assert_close(dict(models.generator.state_dict()), dict(generator), atol=0, rtol=0)


def test_the_pull_keeps_the_vectors_near_those_of_before(
    models: RagModels, libraries: dict[str, Library], tmp_path: Path
) -> None:
    moved: list[float] = []
    for pull in (0.0, 300.0):
        lines: list[Mapping[str, Any]] = []
        own = replace(models, question_encoder=copy.deepcopy(models.question_encoder))
        task = RetrievalTask(replace(CONFIG, steps=4, pull=pull), own, libraries, drawn)
        train_stage(task, state_file=tmp_path / f"{pull}.pt", log=lines.append)
        moved.append(lines[-1]["moved"])
    assert moved[1] < 0.5 * moved[0]


def test_dev_questions_are_judged_by_the_place_of_the_first_answer(
    models: RagModels, libraries: dict[str, Library]
) -> None:
    # words alone decide: the capital of Peru is first, the king is not
    by_words = replace(CONFIG, dense=1e-9, bm25=1.0)
    dev = [Question("capital of peru", ("Lima",)), Question("ecuador", ("Juan Perez",)), Question("peru", ("Cusco",))]
    task = RetrievalTask(by_words, models, {DEV: libraries[PARAGRAPHS]}, drawn, dev=dev)
    task.models[0].eval()
    scores = libraries[PARAGRAPHS].bm25_scores("ecuador")
    place = 1 + int((scores > scores[3]).sum())
    assert place == 2
    assert task.evaluate() == pytest.approx(
        {"questions": 3, "dev_first": 100 / 3, "dev_five": 200 / 3, "dev_mrr": (1 + 1 / 2) / 3}
    )


def test_questions_that_find_no_answer_end_the_stage(models: RagModels, libraries: dict[str, Library]) -> None:
    task = RetrievalTask(
        replace(CONFIG, questions_per_step=1), models, libraries, lambda _: replace(CAPITAL, answers=("Cusco",))
    )
    with pytest.raises(SourceInvalid, match="none of 100 questions found a passage that holds one of its answers"):
        task.learn(0, lambda: None)
