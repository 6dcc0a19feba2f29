"""The question encoder learns the teacher's vectors, on the scale that it was asked for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase

from service.offline.training.distillation import (
    DistillationConfig,
    distil_question_encoder,
    encode_questions,
    fold_scale,
    question_vectors,
)
from service.offline.training.warm_start import warm_start_question_encoder
from service.rag.passage_encoder import PassageEncoder

QUESTIONS = [
    "what is the capital of peru?",
    "who was king of ecuador?",
    "when was ana torres born?",
    "how many people live in lima?",
    "who is the president of peru?",
    "what river is there in the country?",
]


def test_the_scale_is_the_mean_length_of_the_vectors(bert_folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    encoder = warm_start_question_encoder(bert_folder).eval()
    before = question_vectors(encoder, tokenizer, QUESTIONS)
    fold_scale(encoder, tokenizer, QUESTIONS, 28.0)
    after = question_vectors(encoder, tokenizer, QUESTIONS)
    assert np.linalg.norm(after, axis=1).mean() == pytest.approx(28.0, abs=1e-3)
    assert (before * after).sum(axis=1) == pytest.approx(
        np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1), rel=1e-4
    )


def test_distillation_brings_the_vectors_to_the_teachers(
    bert_folder: Path, tokenizer: PreTrainedTokenizerBase, passage_encoder: PassageEncoder
) -> None:
    encoder = warm_start_question_encoder(bert_folder)
    lines: list[dict[str, Any]] = []
    config = DistillationConfig(steps=60, questions_per_step=6, warm_up=2, rate=3e-3, scale=10.0)
    distil_question_encoder(encoder, tokenizer, QUESTIONS, passage_encoder, config, log=lines.append)
    assert lines[-1]["loss"] < 0.3 * lines[0]["loss"]
    vectors, wanted = question_vectors(encoder, tokenizer, QUESTIONS), passage_encoder.encode_texts(QUESTIONS)
    assert ((vectors * wanted).sum(axis=1) / np.linalg.norm(vectors, axis=1) > 0.95).all()
    assert np.linalg.norm(vectors, axis=1).mean() == pytest.approx(10.0, rel=0.1)


def test_vectors_of_many_questions_keep_their_order(bert_folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    encoder = warm_start_question_encoder(bert_folder).eval()
    with torch.no_grad():
        alone = torch.cat([encode_questions(encoder, tokenizer, [question]) for question in QUESTIONS]).numpy()
    np.testing.assert_allclose(question_vectors(encoder, tokenizer, QUESTIONS, batch_size=4), alone, atol=1e-4)
