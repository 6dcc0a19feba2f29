"""The question encoder learns the teacher's vectors, on the scale that it was asked for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import DPRQuestionEncoder, PreTrainedTokenizerBase

from openbook.indexing.passage_encoder import PassageEncoder
from openbook_lab.training.distillation import distil_question_encoder, encode_questions, fold_scale
from openbook_lab.training.recipe import DistillationConfig
from openbook_lab.training.warm_start import warm_start_question_encoder

QUESTIONS = [
    "what is the capital of peru?",
    "who was king of ecuador?",
    "when was ana torres born?",
    "how many people live in lima?",
    "who is the president of peru?",
    "what river is there in the country?",
]


@torch.inference_mode()
def vectors_of(encoder: DPRQuestionEncoder, tokenizer: PreTrainedTokenizerBase) -> NDArray[np.float32]:
    """(Q, d)."""
    return encode_questions(encoder, tokenizer, QUESTIONS).numpy()


def test_the_scale_is_the_mean_length_of_the_vectors(bert_folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    encoder = warm_start_question_encoder(bert_folder).eval()
    before = vectors_of(encoder, tokenizer)
    fold_scale(encoder, tokenizer, QUESTIONS, 28.0)
    after = vectors_of(encoder, tokenizer)
    assert np.linalg.norm(after, axis=1).mean() == pytest.approx(28.0, abs=1e-3)
    assert (before * after).sum(axis=1) == pytest.approx(
        np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1), rel=1e-4
    )


def test_a_long_question_is_read_as_far_as_the_encoder_can(
    bert_folder: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    encoder = warm_start_question_encoder(bert_folder).eval()
    alike = "lima " * 80
    with torch.no_grad():
        one, other = encode_questions(encoder, tokenizer, [f"{alike}peru", f"{alike}quito"])
        cut, same = encode_questions(encoder, tokenizer, [f"{alike}peru", f"{alike}quito"], max_length=64)
    assert float((one - other).abs().max()) > 1e-3
    assert torch.equal(cut, same)


def test_distillation_brings_the_vectors_to_the_teachers(
    bert_folder: Path, tokenizer: PreTrainedTokenizerBase, passage_encoder: PassageEncoder
) -> None:
    encoder = warm_start_question_encoder(bert_folder)
    lines: list[dict[str, Any]] = []
    config = DistillationConfig(steps=60, questions_per_step=6, warm_up=2, rate=3e-3, scale=10.0)
    distil_question_encoder(encoder, tokenizer, QUESTIONS, passage_encoder, config, log=lines.append)
    assert lines[-1]["loss"] < 0.3 * lines[0]["loss"]
    vectors, wanted = vectors_of(encoder, tokenizer), passage_encoder.encode_texts(QUESTIONS)
    assert ((vectors * wanted).sum(axis=1) / np.linalg.norm(vectors, axis=1) > 0.95).all()
    assert np.linalg.norm(vectors, axis=1).mean() == pytest.approx(10.0, rel=0.1)
