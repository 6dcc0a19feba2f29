"""The joint loss of both models against transformers' own RAG: values and gradients, in a real tiny RAG folder."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, RagSequenceForGeneration, RagTokenForGeneration

from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.wording import Wording
from openbook_lab.training.batches import IGNORED, ReadingBatch, collate, encode_examples
from openbook_lab.training.distillation import encode_questions
from openbook_lab.training.examples import ReadingExample
from openbook_lab.training.forward import passage_log_probs
from openbook_lab.training.joint import joint_loss
from openbook_lab.training.recipe import Loss

K = 3
QUESTIONS = ("who was president of peru?", "what is the capital of japan?")
PASSAGES = ("the president of peru was elected.", "a small island in the sea.", "the capital is an old city of japan.")
CLASSES: dict[str, type[PreTrainedModel]] = {"token": RagTokenForGeneration, "sequence": RagSequenceForGeneration}


def batch_of(wording: Wording, answers: tuple[str, str]) -> ReadingBatch:
    examples = [
        ReadingExample(question, "peru", text, answer, None)
        for question, answer in zip(QUESTIONS, answers, strict=True)
        for text in PASSAGES
    ]
    encoded = encode_examples(examples, wording, 200, 16)
    return collate(encoded, wording)


def labels_of(batch: ReadingBatch, wording: Wording) -> Tensor:
    """transformers reads the labels with the decoder and scores them shifted by one: they open with its start."""
    targets = batch.targets[::K]  # (B, T)
    start = torch.full((len(targets), 1), wording.prefix[0])  # (B, 1)
    return torch.cat([start, targets.masked_fill(targets == IGNORED, wording.pad)], dim=1)  # (B, 1 + T)


def ours_and_theirs(folder: Path, kind: Loss, answers: tuple[str, str]) -> tuple[tuple[Tensor, ...], ...]:
    """(loss, gradient of a generator's and of a question encoder's weight), ours first.

    Sums over the answers, which is what transformers gives under reduce_loss.
    """
    found = []
    for own in (True, False):
        model = CLASSES[kind].from_pretrained(folder).eval()
        generator, question_encoder = model.rag.generator, model.rag.question_encoder
        generator.set_attn_implementation("eager")
        checkpoint = load_checkpoint(folder)
        wording = Wording.of(generator, checkpoint.generator_tokenizer)
        batch = batch_of(wording, answers)
        torch.manual_seed(0)
        passages = torch.randn(len(QUESTIONS), K, 32) * 0.4  # (B, K, d)
        vectors = encode_questions(question_encoder, checkpoint.question_tokenizer, QUESTIONS)  # (B, d)
        doc_scores = (passages @ vectors[..., None])[..., 0]  # (B, K)
        if own:
            log_probs = passage_log_probs(generator, batch, wording).tokens.view(len(QUESTIONS), K, -1)  # (B, K, T)
            mask = (batch.targets != IGNORED)[::K]  # (B, T)
            loss = joint_loss(log_probs, doc_scores, mask, loss=kind, tokens=1)
        else:
            loss = model(
                context_input_ids=batch.input_ids,
                context_attention_mask=batch.attention_mask,
                doc_scores=doc_scores,
                labels=labels_of(batch, wording),
                n_docs=K,
                reduce_loss=True,
            ).loss
        loss.backward()
        weights = (
            next(p for name, p in generator.named_parameters() if name.endswith(("layers.0.fc1.weight", ".wi.weight"))),
            next(p for name, p in question_encoder.named_parameters() if name.endswith("query.weight")),
        )
        found.append((loss.detach(), *(weight.grad for weight in weights if weight.grad is not None)))
    return tuple(found)


@pytest.mark.parametrize(
    ("kind", "folder"), [("token", "tiny_checkpoint"), ("sequence", "tiny_checkpoint"), ("token", "tiny_t5_checkpoint")]
)
def test_value_and_gradients_are_those_of_transformers(kind: Loss, folder: str, request: pytest.FixtureRequest) -> None:
    ours, theirs = ours_and_theirs(request.getfixturevalue(folder), kind, ("the old king", "japan"))
    assert len(ours) == len(theirs) == 3
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-3, rtol=1e-5)
    for own, other in zip(ours[1:], theirs[1:], strict=True):
        assert other.abs().max() > 1e-3
        torch.testing.assert_close(own, other, atol=1e-3, rtol=1e-3)


def test_departure_the_empty_answer_has_no_prior_in_their_loss_of_rag_sequence(tiny_checkpoint: Path) -> None:
    """It adds log p(z | x) to the second scored token, and the empty answer has but its end: docs/decoding.md.

    The loss of a question that no passage answers is too low there, and teaches the question encoder nothing of it.
    """
    ours, theirs = ours_and_theirs(tiny_checkpoint, "sequence", ("", ""))
    assert float(ours[0]) > float(theirs[0]) + 0.5
    assert ours[2].abs().max() > 1e-4
    assert len(theirs) == 2 or theirs[2].abs().max() < 1e-6
    # RAG-Token takes the prior at every token: there the two agree
    ours, theirs = ours_and_theirs(tiny_checkpoint, "token", ("", ""))
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-3, rtol=1e-5)


def test_departure_their_loss_of_rag_sequence_knows_no_t5(tiny_t5_checkpoint: Path) -> None:
    """It asks the generator's configuration for a bos_token_id, which T5's does not have."""
    with pytest.raises(AttributeError, match="bos_token_id"):
        ours_and_theirs(tiny_t5_checkpoint, "sequence", ("the old king", "japan"))
