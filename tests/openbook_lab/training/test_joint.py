"""Joint training: the loss is the paper's marginal with its gradients, and both models learn."""

import copy
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from openbook.entities import Passage, PriorWeights
from openbook_lab.training.batches import collate, encode_examples
from openbook_lab.training.examples import ReadingExample
from openbook_lab.training.forward import passage_log_probs
from openbook_lab.training.joint import JointTask, joint_loss
from openbook_lab.training.libraries import FoundPassages, Library, index_words, retrieve
from openbook_lab.training.models import RagModels
from openbook_lab.training.recipe import JointConfig
from openbook_lab.training.stage import train_stage
from openbook_lab.training.worlds import LibraryQuestion

PASSAGES = (
    Passage("1", "Peru", "Lima is the capital of Peru."),
    Passage("2", "Ecuador", "Quito is the capital of Ecuador."),
    Passage("3", "Peru", "Maria Lopez was president."),
    Passage("4", "Ecuador", "Juan Perez was king in 1830."),
)
QUESTIONS = (
    LibraryQuestion("what is the capital of peru?", ("Lima",), "world"),
    LibraryQuestion("who was king of ecuador?", ("Juan Perez",), "world"),
)


def drawn(random_state: random.Random) -> LibraryQuestion:
    return random_state.choice(QUESTIONS)


@pytest.fixture
def libraries() -> dict[str, Library]:
    torch.manual_seed(1)
    return {"world": Library(PASSAGES, torch.nn.functional.normalize(torch.randn(4, 32), dim=-1))}


def test_the_largest_inner_products_are_found_best_first(libraries: Mapping[str, Library]) -> None:
    library = libraries["world"]
    found = retrieve(QUESTIONS, library.vectors[[2, 1]], libraries, 2)
    assert [item.passages[0] for item in found] == [PASSAGES[2], PASSAGES[1]]
    best = (library.vectors @ library.vectors[2]).argsort(descending=True)[:2].tolist()
    assert found[0].passages == [PASSAGES[row] for row in best]
    assert torch.equal(found[0].vectors, library.vectors[best])


def test_a_hybrid_prior_weighs_words_beside_vectors(libraries: Mapping[str, Library]) -> None:
    library = replace(libraries["world"], bm25=index_words(PASSAGES, "world"))
    prior, vector = PriorWeights(dense=0.5, bm25=3.0), library.vectors[2]
    (found,) = retrieve(QUESTIONS[1:], vector[None], {"world": library}, 4, prior)
    of_words = library.bm25_scores(QUESTIONS[1].text)
    assert int(of_words.argmax()) == 3  # "king" and "ecuador" stand there alone
    scores = 0.5 * (library.vectors @ vector) + 3.0 * of_words
    assert found.passages == [PASSAGES[row] for row in scores.argsort(descending=True).tolist()]
    torch.testing.assert_close(found.doc_scores(vector, prior), scores.sort(descending=True).values)


@pytest.mark.parametrize(
    ("answers", "written", "silent"),
    [
        (("Lima", "capital"), False, [False, False, True, True]),
        ((), False, [True] * 4),
        (("Lima",), True, [False] * 4),
    ],
)
def test_what_holds_no_answer_should_say_nothing(answers: tuple[str, ...], written: bool, silent: list[bool]) -> None:
    question = LibraryQuestion("?", answers, "world", written=written)
    assert FoundPassages(question, PASSAGES, torch.empty(0), torch.empty(0)).silent() == silent


def test_passages_without_the_answer_learn_to_say_nothing(
    models: RagModels, libraries: dict[str, Library], tmp_path: Path
) -> None:
    lines: list[Any] = []
    config = JointConfig(
        steps=30, questions_per_step=2, n_docs=4, warm_up=2, encoder_rate=3e-3, decoder_rate=3e-3, silence=1.0
    )
    task = JointTask(config, models, libraries, drawn)
    train_stage(task, state_file=tmp_path / "s.pt", log=lines.append)
    assert lines[-1]["silence"] < 0.7 * lines[0]["silence"]


def test_a_known_passage_that_was_missed_takes_the_last_place(libraries: Mapping[str, Library]) -> None:
    vector = libraries["world"].vectors[2]
    worst = int((libraries["world"].vectors @ vector).argmin())
    question = LibraryQuestion("?", ("Lima",), "world", rows=(worst,))
    (found,) = retrieve([question], vector[None], libraries, 2)
    assert found.passages == [PASSAGES[2], PASSAGES[worst]]


@pytest.mark.parametrize(
    ("answers", "rows", "target"),
    [
        (("Lima",), [1, 0], "Lima"),
        (("Lima",), [1, 2], None),
        (("Lim",), [0], None),  # no whole word
        (("Quit", "king", "1830"), [3], "king"),
        ((), [0, 1], ""),  # the library does not answer it
    ],
)
def test_the_first_answer_in_a_found_passage_is_the_target(
    answers: tuple[str, ...], rows: list[int], target: str | None
) -> None:
    found = FoundPassages(
        LibraryQuestion("?", answers, "world"), [PASSAGES[row] for row in rows], torch.empty(0), torch.empty(0)
    )
    assert found.target() == target


def test_the_loss_and_its_gradients_are_those_of_the_marginal_written_out() -> None:
    torch.manual_seed(0)
    log_probs = torch.randn(2, 3, 4, dtype=torch.float64).abs().neg().requires_grad_()  # (B, K, T)
    doc_scores = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)  # (B, K)
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])  # (B, T)
    loss = joint_loss(log_probs, doc_scores, mask)
    gradients = torch.autograd.grad(loss, (log_probs, doc_scores))

    total = torch.zeros((), dtype=torch.float64)
    for b, length in enumerate((4, 2)):
        prior = doc_scores[b].exp() / doc_scores[b].exp().sum()  # (K,)
        p = log_probs[b, :, :length].exp()  # (K, T)
        total = total - 0.5 * (prior @ p).log().sum() - 0.5 * (prior @ p.prod(dim=1)).log()
    expected = total / 6
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, (log_probs, doc_scores)))


def test_token_log_probs_are_those_of_a_plain_forward_pass(models: RagModels) -> None:
    examples = [
        ReadingExample("who was king?", passage.title, passage.text, answer, None)
        for passage, answer in zip(PASSAGES, ("Juan Perez", "Lima", "1830", "Maria Lopez"), strict=True)
    ]
    encoded = encode_examples(examples, models.wording, 90, 8)
    with torch.no_grad():
        found, empty = passage_log_probs(models.generator, collate(encoded, models.wording), models.wording)
        for row, example in enumerate(encoded):
            logits = models.generator(
                input_ids=torch.tensor([example.input_ids]),
                decoder_input_ids=torch.tensor([[2, *example.target_ids[:-1]]]),
            ).logits[0]  # (T, V)
            expected = logits.log_softmax(dim=-1)[range(len(example.target_ids)), example.target_ids]
            torch.testing.assert_close(found[row, : len(expected)], expected, atol=1e-4, rtol=0)
            assert not found[row, len(expected) :].any()
            # the empty answer is the end in the place of the first token
            nothing = logits[0].log_softmax(dim=-1)[models.wording.eos]
            torch.testing.assert_close(empty[row], nothing, atol=1e-4, rtol=0)


def test_both_models_learn_and_the_library_does_not(
    models: RagModels, libraries: dict[str, Library], tmp_path: Path
) -> None:
    question_encoder = models.question_encoder
    before = copy.deepcopy(question_encoder.state_dict())
    vectors = libraries["world"].vectors.clone()
    lines: list[Any] = []
    config = JointConfig(
        steps=40, questions_per_step=2, n_docs=4, warm_up=2, encoder_rate=3e-3, decoder_rate=3e-3, question_rate=1e-3
    )
    task = JointTask(config, models, libraries, drawn)
    train_stage(task, state_file=tmp_path / "s.pt", log=lines.append)
    assert lines[-1]["nll"] < 0.9 * lines[0]["nll"]
    embeddings = "question_encoder.bert_model.embeddings.word_embeddings.weight"
    after = question_encoder.state_dict()
    torch.testing.assert_close(after[embeddings], before[embeddings], atol=0, rtol=0)
    assert any((after[name] != before[name]).any() for name in before if "query" in name)
    torch.testing.assert_close(libraries["world"].vectors, vectors, atol=0, rtol=0)
    assert not question_encoder.training
    assert not models.generator.training
