"""Stage 2, the paper's objective (section 2.4): -log of the marginal over the passages that the question finds.

Question encoder and generator learn together; the passages' vectors stay as they are. Passages are found anew at each
step with the question encoder as it then is, by exact inner products.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BartForConditionalGeneration, DPRQuestionEncoder

from service.entities import Passage
from service.offline.training.counterfactual import occurrences
from service.offline.training.distillation import encode_questions, question_groups
from service.offline.training.dropout import MaskedDropout
from service.offline.training.examples import ReadingExample
from service.offline.training.loop import (
    MasterAdamW,
    ParameterGroup,
    cross_entropy_of_targets,
    learning_rate,
    load_state,
    save_state,
)
from service.offline.training.reading import IGNORED, ReadingBatch, collate, encode_examples, train_logits_bias
from service.rag import marginal


@dataclass(frozen=True, slots=True)
class JointConfig:
    steps: int = 700
    questions_per_step: int = 8
    n_docs: int = 5
    warm_up: int = 30
    encoder_rate: float = 5e-5
    decoder_rate: float = 1e-4
    question_rate: float = 3e-5
    dropout: float = 0.1
    max_input_length: int = 300
    max_target_length: int = 24
    save_every: int = 100
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Library:
    """Passages that are searched together, with their fixed vectors."""

    passages: Sequence[Passage]
    vectors: Tensor  # (N, d)


@dataclass(frozen=True, slots=True)
class LibraryQuestion:
    """A question to one library. Any of `answers` is right."""

    text: str
    answers: tuple[str, ...]
    library: str


Draw = Callable[[random.Random], LibraryQuestion]


@dataclass(frozen=True, slots=True)
class Found:
    """A question with the passages that it found."""

    question: LibraryQuestion
    rows: list[int]  # K


def retrieve(
    questions: Sequence[LibraryQuestion], vectors: Tensor, libraries: Mapping[str, Library], n_docs: int
) -> list[Found]:
    """The passages with the largest inner products, best first; `vectors` are the questions', (B, d)."""
    found = []
    for question, vector in zip(questions, vectors, strict=True):
        scores = libraries[question.library].vectors @ vector  # (N,)
        found.append(Found(question, scores.topk(n_docs).indices.tolist()))
    return found


def holds_answer(found: Found, libraries: Mapping[str, Library]) -> bool:
    """Whether one of the found passages has one of the answers in it: only then is there anything to learn."""
    passages = libraries[found.question.library].passages
    return any(bool(occurrences(answer, passages[row].text)) for answer in found.question.answers for row in found.rows)


def passage_token_log_probs(generator: BartForConditionalGeneration, batch: ReadingBatch) -> Tensor:
    """log p(y_i | x, z, y_<i) of every target token, 0 on padding: (R, T)."""
    states = generator.model.encoder(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask
    ).last_hidden_state  # (R, S, d)
    hidden = generator.model.decoder(
        input_ids=batch.decoder_input_ids,
        encoder_hidden_states=states,
        encoder_attention_mask=batch.attention_mask,
        use_cache=False,
    ).last_hidden_state  # (R, T, d)
    wanted = batch.targets != IGNORED  # (R, T)
    logits = torch.nn.functional.linear(hidden[wanted], generator.lm_head.weight)  # (N, V)
    losses = cross_entropy_of_targets(logits + generator.final_logits_bias, batch.targets[wanted])  # (N,)
    return torch.zeros(wanted.shape).masked_scatter(wanted, -losses)  # (R, T)


def joint_loss(token_log_probs: Tensor, doc_scores: Tensor, mask: Tensor) -> Tensor:
    """Mean over answer tokens of the RAG-Token and RAG-Sequence negative log marginals, half each.

    Shapes (B, K, T), (B, K), (B, T).
    """
    prior = marginal.doc_log_prior(doc_scores)  # (B, K)
    token = marginal.rag_token_nll(token_log_probs, prior, mask)  # (B,)
    sequence = marginal.rag_sequence_nll(token_log_probs, prior, mask)  # (B,)
    return 0.5 * (token + sequence).sum() / mask.sum()  # ()


def train_joint(
    question_encoder: DPRQuestionEncoder,
    generator: BartForConditionalGeneration,
    tokenizer: Any,
    libraries: Mapping[str, Library],
    draw: Draw,
    config: JointConfig,
    *,
    state_file: Path,
    log: Callable[[dict[str, Any]], None],
) -> None:
    """Train both models in place; they are left in float32 and in evaluation mode. Resumes from `state_file`."""
    for model in (question_encoder, generator):
        model.set_attn_implementation("eager")
        model.to(torch.bfloat16)
    generator.requires_grad_(True)
    train_logits_bias(generator)
    generator.model.shared.requires_grad_(False)
    for module in generator.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    encoder = tuple(p for p in generator.model.encoder.parameters() if p.requires_grad)
    decoder = tuple(p for p in generator.model.decoder.parameters() if p.requires_grad)
    optimizer = MasterAdamW(
        [
            ParameterGroup(encoder, config.encoder_rate),
            ParameterGroup((*decoder, generator.get_parameter("final_logits_bias")), config.decoder_rate),
            *question_groups(question_encoder, config.question_rate),
        ]
    )
    state = load_state(state_file) or {"step": 0}
    if "optimizer" in state:
        optimizer.load_state_dict(state["optimizer"])
    first = int(state["step"])
    handles = MaskedDropout(config.dropout, seed=config.seed + first, dtype=torch.bfloat16).attach(generator)
    generator.train()
    question_encoder.eval()
    began = time.monotonic()
    recent: list[float] = []
    asked = kept = 0
    for step in range(first, config.steps):
        random_state = random.Random(f"{config.seed} joint {step}")
        found: list[Found] = []
        while len(found) < config.questions_per_step:
            drawn = [draw(random_state) for _ in range(config.questions_per_step)]
            with torch.no_grad():
                vectors = encode_questions(question_encoder, tokenizer, [q.text for q in drawn])  # (B, d)
            answerable = [f for f in retrieve(drawn, vectors, libraries, config.n_docs) if holds_answer(f, libraries)]
            asked, kept = asked + len(drawn), kept + len(answerable)
            found += answerable
        found = found[: config.questions_per_step]
        vectors = encode_questions(question_encoder, tokenizer, [f.question.text for f in found])  # (B, d)
        doc_scores = torch.stack(
            [libraries[f.question.library].vectors[f.rows] @ vector for f, vector in zip(found, vectors, strict=True)]
        )  # (B, K)
        batch = _batch(found, libraries, tokenizer, generator, config, random_state)
        shape = (len(found), config.n_docs, -1)
        token_log_probs = passage_token_log_probs(generator, batch).view(shape)  # (B, K, T)
        mask = (batch.targets != IGNORED).view(shape)[:, 0]  # (B, T)
        loss = joint_loss(token_log_probs, doc_scores, mask)
        loss.backward()
        rate = learning_rate(step, steps=config.steps, warm_up=config.warm_up)
        norm = optimizer.step(rate)
        recent.append(float(loss))
        if (step + 1) % 20 == 0 or step + 1 == config.steps:
            seconds = (time.monotonic() - began) / (step + 1 - first)
            line = {"step": step + 1, "nll": sum(recent) / len(recent), "norm": norm, "found": kept / asked}
            log({**line, "length": float(vectors.norm(dim=-1).mean()), "s/step": seconds})
            recent.clear()
        if (step + 1) % config.save_every == 0 or step + 1 == config.steps:
            save_state(state_file, {"step": step + 1, "optimizer": optimizer.state_dict()})
    for handle in handles:
        handle.remove()
    optimizer.copy_masters_to(generator)
    optimizer.copy_masters_to(question_encoder)
    generator.eval()


def _batch(
    found: Sequence[Found],
    libraries: Mapping[str, Library],
    tokenizer: Any,
    generator: BartForConditionalGeneration,
    config: JointConfig,
    random_state: random.Random,
) -> ReadingBatch:
    """Every found passage with its question and one of its answers: R = B * K rows, question by question."""
    examples = []
    for item in found:
        answer = random_state.choice(item.question.answers)
        for row in item.rows:
            passage = libraries[item.question.library].passages[row]
            examples.append(ReadingExample(item.question.text, passage.title, passage.text, answer, None))
    encoded = encode_examples(
        examples, tokenizer, max_input_length=config.max_input_length, max_target_length=config.max_target_length
    )
    return collate(encoded, pad=tokenizer.pad_token_id, start=generator.config.decoder_start_token_id)
