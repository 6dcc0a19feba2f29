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
from service.offline.training.batches import IGNORED, ReadingBatch, collate, encode_examples
from service.offline.training.counterfactual import occurrences
from service.offline.training.distillation import encode_questions, question_groups
from service.offline.training.dropout import MaskedDropout, silence_dropout
from service.offline.training.examples import NO_ANSWER, ReadingExample
from service.offline.training.loop import (
    ALONE,
    MasterAdamW,
    ParameterGroup,
    Replicas,
    cross_entropy_of_targets,
    frozen_parameters,
    learning_rate,
    load_state,
    save_state,
)
from service.offline.training.reading import train_logits_bias
from service.rag import marginal


@dataclass(frozen=True, slots=True)
class JointConfig:
    steps: int = 480
    questions_per_step: int = 8
    n_docs: int = 5
    warm_up: int = 30
    encoder_rate: float = 8e-5
    decoder_rate: float = 2e-4
    question_rate: float = 3e-5
    dropout: float = 0.1
    max_input_length: int = 300
    max_target_length: int = 24
    save_every: int = 60
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Library:
    """Passages that are searched together, with their fixed vectors."""

    passages: Sequence[Passage]
    vectors: Tensor  # (N, d)


@dataclass(frozen=True, slots=True)
class LibraryQuestion:
    """A question to one library. Any of `answers` is right; the first that was found is the one to be generated.

    `rows` are passages known to hold it, where they are known. Without `answers` the library does not answer it.
    """

    text: str
    answers: tuple[str, ...]
    library: str
    kind: str = ""
    rows: tuple[int, ...] = ()


Draw = Callable[[random.Random], LibraryQuestion]


@dataclass(frozen=True, slots=True)
class Found:
    """A question with the passages that it found."""

    question: LibraryQuestion
    rows: list[int]  # K


def retrieve(
    questions: Sequence[LibraryQuestion], vectors: Tensor, libraries: Mapping[str, Library], n_docs: int
) -> list[Found]:
    """The passages with the largest inner products, best first; `vectors` are the questions', (B, d).

    Where a question's passage is known and was missed, it takes the last place: what retrieval cannot do yet is then
    learnt, too.
    """
    found = []
    for question, vector in zip(questions, vectors, strict=True):
        scores = libraries[question.library].vectors @ vector  # (N,)
        rows = scores.topk(n_docs).indices.tolist()
        if question.rows and not set(question.rows) & set(rows):
            known = torch.tensor(question.rows)  # (R,)
            rows[-1] = int(known[scores[known].argmax()])
        found.append(Found(question, rows))
    return found


def found_answer(found: Found, libraries: Mapping[str, Library]) -> str | None:
    """What is to be generated: the first of the answers that stands in a found passage.

    The empty answer where the library has none; None where an answer was not found, and there is nothing to learn.
    """
    if not found.question.answers:
        return NO_ANSWER
    texts = [libraries[found.question.library].passages[row].text for row in found.rows]
    return next((answer for answer in found.question.answers if any(occurrences(answer, text) for text in texts)), None)


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
    replicas: Replicas = ALONE,
) -> None:
    """Train both models in place; they are left in float32 and in evaluation mode. Resumes from `state_file`.

    Several replicas share `questions_per_step` between them.
    """
    share = max(1, config.questions_per_step // replicas.count)
    for model in (question_encoder, generator):
        model.set_attn_implementation("eager")
    generator.requires_grad_(True)
    train_logits_bias(generator)
    generator.model.shared.requires_grad_(False)
    silence_dropout(generator)
    encoder = tuple(p for p in generator.model.encoder.parameters() if p.requires_grad)
    decoder = tuple(p for p in generator.model.decoder.parameters() if p.requires_grad)
    groups = [
        ParameterGroup(encoder, config.encoder_rate),
        ParameterGroup((*decoder, generator.get_parameter("final_logits_bias")), config.decoder_rate),
        *question_groups(question_encoder, config.question_rate),
    ]
    frozen = [*frozen_parameters(generator), *frozen_parameters(question_encoder)]
    optimizer = MasterAdamW(groups, frozen=frozen, replicas=replicas)
    generator.to(torch.bfloat16)
    question_encoder.to(torch.bfloat16)
    state_file.parent.mkdir(parents=True, exist_ok=True)
    state = load_state(state_file) or {"step": 0}
    if "optimizer" in state:
        optimizer.load_state_dict(state["optimizer"])
    first = int(state["step"])
    handles = MaskedDropout(
        config.dropout, seed=config.seed + first + replicas.rank * config.steps, dtype=torch.bfloat16
    ).attach(generator)
    generator.train()
    question_encoder.eval()
    began = time.monotonic()
    recent: list[float] = []
    asked = kept = 0
    for step in range(first, config.steps):
        random_state = random.Random(f"{config.seed} joint {step} {replicas.rank}")
        found: list[Found] = []
        while len(found) < share:
            drawn = [draw(random_state) for _ in range(share)]
            with torch.no_grad():
                vectors = encode_questions(question_encoder, tokenizer, [q.text for q in drawn])  # (B, d)
            retrieved = retrieve(drawn, vectors, libraries, config.n_docs)
            answerable = [item for item in retrieved if found_answer(item, libraries) is not None]
            asked, kept = asked + len(drawn), kept + len(answerable)
            found += answerable
        found = found[:share]
        vectors = encode_questions(question_encoder, tokenizer, [f.question.text for f in found])  # (B, d)
        doc_scores = torch.stack(
            [libraries[f.question.library].vectors[f.rows] @ vector for f, vector in zip(found, vectors, strict=True)]
        )  # (B, K)
        batch = _batch(found, libraries, tokenizer, generator, config)
        shape = (len(found), config.n_docs, -1)
        token_log_probs = passage_token_log_probs(generator, batch).view(shape)  # (B, K, T)
        mask = (batch.targets != IGNORED).view(shape)[:, 0]  # (B, T)
        loss = joint_loss(token_log_probs, doc_scores, mask)
        torch.autograd.backward(loss)
        rate = learning_rate(step, steps=config.steps, warm_up=config.warm_up)
        norm = optimizer.step(rate)
        recent.append(float(loss.detach()))
        if replicas.rank == 0 and ((step + 1) % 20 == 0 or step + 1 == config.steps):
            seconds = (time.monotonic() - began) / (step + 1 - first)
            line = {"step": step + 1, "nll": sum(recent) / len(recent), "norm": norm, "found": kept / asked}
            log({**line, "length": float(vectors.detach().norm(dim=-1).mean()), "s/step": seconds})
            recent.clear()
        if replicas.rank == 0 and ((step + 1) % config.save_every == 0 or step + 1 == config.steps):
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
) -> ReadingBatch:
    """Every found passage with its question and the answer that was found: R = B * K rows, question by question."""
    examples = []
    for item in found:
        answer = found_answer(item, libraries) or ""
        for row in item.rows:
            passage = libraries[item.question.library].passages[row]
            examples.append(ReadingExample(item.question.text, passage.title, passage.text, answer, None))
    encoded = encode_examples(
        examples, tokenizer, max_input_length=config.max_input_length, max_target_length=config.max_target_length
    )
    return collate(encoded, pad=tokenizer.pad_token_id, start=generator.config.decoder_start_token_id)
