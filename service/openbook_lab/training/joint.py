"""Stage 2, the paper's objective (section 2.4): -log of the marginal over the passages that the question finds.

Question encoder and generator learn together; the passages' vectors stay as they are. Passages are found anew at each
step with the question encoder as it then is, by exact inner products.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import DPRQuestionEncoder, PreTrainedModel

from openbook.errors import SourceInvalid
from openbook.rag import marginal
from openbook.rag.generator import Generator
from openbook.rag.wording import Wording
from openbook_lab.training.batches import IGNORED, ReadingBatch, collate, encode_examples
from openbook_lab.training.dev_scores import open_scores, reading_scores
from openbook_lab.training.distillation import encode_questions
from openbook_lab.training.examples import Question, ReadingExample
from openbook_lab.training.forward import passage_token_log_probs
from openbook_lab.training.loop import MasterAdamW, frozen_parameters, random_of
from openbook_lab.training.parts import generator_groups, question_groups
from openbook_lab.training.reading import parts_of
from openbook_lab.training.retrieval import Found, Library, LibraryQuestion, found_answer, retrieve
from openbook_lab.training.stage import (
    WORD_EMBEDDINGS,
    Log,
    Machine,
    Progress,
    StageConfig,
    no_progress,
    train_stage,
)
from openbook_lab.training.weights import served

Loss = Literal["token", "sequence", "both"]
Draw = Callable[[random.Random], LibraryQuestion]
# Rounds of drawing that find no answer at all before training gives up.
FRUITLESS_ROUNDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class JointConfig(StageConfig):
    """How stage 2 is trained. `questions_per_step` are those of all processes together.

    `world_share` of the questions are about an invented world, `office_share` of those about who holds an office.
    """

    steps: int = 320
    warm_up: int = 30
    encoder_rate: float = 2e-5
    decoder_rate: float = 5e-5
    question_rate: float = 2e-5
    evaluate_every: int = 80
    save_every: int = 40
    questions_per_step: int = 16
    n_docs: int = 5
    world_share: float = 0.2
    office_share: float = 0.5
    loss: Loss = "both"


def joint_loss(
    token_log_probs: Tensor, doc_scores: Tensor, mask: Tensor, *, loss: Loss = "both", tokens: int | None = None
) -> Tensor:
    """Mean over answer tokens of the RAG-Token or the RAG-Sequence negative log marginal, or half of each.

    Shapes (B, K, T), (B, K), (B, T). `tokens` is what the mean is over, where these are a part of the questions.
    """
    prior = marginal.doc_log_prior(doc_scores)  # (B, K)
    if loss == "token":
        nll = marginal.rag_token_nll(token_log_probs, prior, mask)  # (B,)
    elif loss == "sequence":
        nll = marginal.rag_sequence_nll(token_log_probs, prior, mask)  # (B,)
    else:
        token = marginal.rag_token_nll(token_log_probs, prior, mask)  # (B,)
        nll = 0.5 * (token + marginal.rag_sequence_nll(token_log_probs, prior, mask))  # (B,)
    return nll.sum() / (mask.sum() if tokens is None else tokens)  # ()


class JointTask:
    """Steps of questions drawn anew, each with the passages that it finds. Processes share `questions_per_step`."""

    name = "joint"
    judged_by = "open_exact_match"

    def __init__(
        self,
        question_encoder: DPRQuestionEncoder,
        generator: PreTrainedModel,
        question_tokenizer: Any,
        wording: Wording,
        libraries: Mapping[str, Library],
        draw: Draw,
        config: JointConfig,
        machine: Machine,
        dev: Sequence[Question],
        dev_library: Library | None,
    ) -> None:
        self._question_encoder = question_encoder
        self._generator = generator
        self._question_tokenizer = question_tokenizer
        self._wording = wording
        self._libraries = {name: library.to(machine.device) for name, library in libraries.items()}
        self._draw = draw
        self._config = config
        self._machine = machine
        self._dev = dev
        self._dev_library = dev_library and dev_library.to(machine.device)

    def learn(self, step: int, gather: Callable[[], None]) -> Mapping[str, float]:
        config = self._config
        found, hits = self._find(random_of(config.seed, "joint", step, self._machine.replicas.rank))
        parts = parts_of(found, config.accumulate)
        batches = [self._batch(part) for part in parts]
        wanted = [(batch.targets != IGNORED)[:: config.n_docs] for batch in batches]  # (B, T) each
        tokens = sum(int(mask.sum()) for mask in wanted)
        total, length = 0.0, 0.0
        for part, batch, mask in zip(parts, batches, wanted, strict=True):
            with torch.set_grad_enabled("question-encoder" not in config.freeze):
                vectors = self._vectors([item.question.text for item in part])  # (B, d)
                passages = torch.stack([self._libraries[f.question.library].vectors[f.rows] for f in part])  # (B, K, d)
                doc_scores = (passages @ vectors[..., None])[..., 0]  # (B, K)
            log_probs = passage_token_log_probs(self._generator, batch)  # (R, T)
            loss = joint_loss(
                log_probs.view(len(part), config.n_docs, -1), doc_scores, mask, loss=config.loss, tokens=tokens
            )
            torch.autograd.backward(loss)
            gather()
            total += float(loss.detach())
            length += float(vectors.detach().norm(dim=-1).sum()) / len(found)
        looked_for = {"found": sum(hits) / len(hits)} if hits else {}
        return {"nll": total, **looked_for, "length": length}

    def place(self) -> Mapping[str, int]:
        return {}

    def go_to(self, place: Mapping[str, int]) -> None:
        """What a step draws follows from its number."""

    @torch.no_grad()
    def evaluate(self) -> Mapping[str, float]:
        if not self._dev:
            return {}
        scores: dict[str, float] = {"questions": len(self._dev)}
        over_paragraphs = [question for question in self._dev if question.context]
        if over_paragraphs:
            matched, overlap = reading_scores(self._generator, self._wording, over_paragraphs)
            scores |= {"dev_exact_match": matched, "dev_f1": overlap}
        if self._dev_library is None:
            return scores
        library = self._dev_library
        asked = [LibraryQuestion(question.text, (), "dev") for question in self._dev]
        size = max(1, self._config.questions_per_step)
        vectors = torch.cat([self._vectors([q.text for q in part]) for part in parts_of(asked, -(-len(asked) // size))])
        found = retrieve(asked, vectors, {"dev": library}, self._config.n_docs)
        doc_scores = torch.stack([library.vectors[f.rows] @ v for f, v in zip(found, vectors, strict=True)])  # (Q, K)
        generator = Generator(served(self._question_encoder, self._generator, self._question_tokenizer, self._wording))
        passages = [[library.passages[row] for row in f.rows] for f in found]
        matched, overlap = open_scores(generator, self._dev, passages, doc_scores)
        return scores | {"open_exact_match": matched, "open_f1": overlap}

    def _vectors(self, questions: Sequence[str]) -> Tensor:
        return encode_questions(self._question_encoder, self._question_tokenizer, questions)  # (B, d)

    def _find(self, random_state: random.Random) -> tuple[list[Found], list[bool]]:
        """This process's questions of a step with their passages; and of each drawn whose answer must be found,
        whether it was."""
        share = max(1, self._config.questions_per_step // self._machine.replicas.count)
        found: list[Found] = []
        hits: list[bool] = []
        asked = rounds = 0
        while len(found) < share:
            drawn = [self._draw(random_state) for _ in range(share)]
            with torch.no_grad():
                vectors = self._vectors([question.text for question in drawn])  # (B, d)
            retrieved = retrieve(drawn, vectors, self._libraries, self._config.n_docs)
            learnt = [found_answer(item, self._libraries) is not None for item in retrieved]
            found += [item for item, is_learnt in zip(retrieved, learnt, strict=True) if is_learnt]
            hits += [
                is_learnt
                for question, is_learnt in zip(drawn, learnt, strict=True)
                if question.answers and not question.written
            ]
            asked, rounds = asked + len(drawn), rounds + 1
            if rounds == FRUITLESS_ROUNDS and not found:
                raise SourceInvalid(
                    source="joint training",
                    reason=f"of {asked} questions not one found a passage that holds an answer of its",
                )
        return found[:share], hits

    def _batch(self, found: Sequence[Found]) -> ReadingBatch:
        """Every found passage with its question and the answer that was found: R = B * K rows, question by question."""
        examples = []
        for item in found:
            answer = found_answer(item, self._libraries) or ""
            for row in item.rows:
                passage = self._libraries[item.question.library].passages[row]
                examples.append(ReadingExample(item.question.text, passage.title, passage.text, answer, None))
        encoded = encode_examples(
            examples,
            self._wording,
            max_input_length=self._config.max_input_length,
            max_target_length=self._config.max_target_length,
        )
        return collate(encoded, self._wording).to(self._machine.device)


def train_joint(
    question_encoder: DPRQuestionEncoder,
    generator: PreTrainedModel,
    question_tokenizer: Any,
    wording: Wording,
    libraries: Mapping[str, Library],
    draw: Draw,
    config: JointConfig,
    *,
    state_file: Path,
    log: Log,
    dev: Sequence[Question] = (),
    dev_library: Library | None = None,
    machine: Machine | None = None,
    progress: Progress = no_progress,
) -> None:
    """Train both models in place; they are left in float32 and in evaluation mode. Resumes from `state_file`.

    `dev_library` holds the passages that answer the questions of `dev`, among others.
    """
    machine = machine or Machine()
    for model in (question_encoder, generator):
        model.to(machine.device).float()
        model.set_attn_implementation("eager")
    groups = generator_groups(generator, config)
    if "question-encoder" in config.freeze:
        question_encoder.requires_grad_(False)
    else:
        groups += question_groups(
            question_encoder, config.question_rate, embeddings=WORD_EMBEDDINGS not in config.freeze
        )
    optimizer = MasterAdamW(
        groups,
        frozen=[*frozen_parameters(generator), *frozen_parameters(question_encoder)],
        replicas=machine.replicas,
        weight_decay=config.weight_decay,
    )
    generator.to(machine.dtype)
    question_encoder.to(machine.dtype).eval()
    train_stage(
        JointTask(
            question_encoder, generator, question_tokenizer, wording, libraries, draw, config, machine, dev, dev_library
        ),
        generator,
        optimizer,
        config,
        state_file=state_file,
        machine=machine,
        log=log,
        progress=progress,
    )
    optimizer.copy_masters_to(generator)
    optimizer.copy_masters_to(question_encoder)
