"""Joint training, the paper's objective (section 2.4): -log of the marginal over the passages that the question finds.

Question encoder and generator learn together; the passages' vectors stay as they are. Each step retrieves anew with the
question encoder as it then is, by exact inner products.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openbook.errors import SourceInvalid
from openbook.rag import marginal
from openbook.rag.generator import Generator
from openbook_lab.datasets.questions import Question
from openbook_lab.training.base import RagModels
from openbook_lab.training.batches import IGNORED, ReadingBatch, collate, encode_examples
from openbook_lab.training.distillation import encode_questions
from openbook_lab.training.examples import NO_ANSWER, ReadingExample
from openbook_lab.training.forward import open_scores, passage_token_log_probs, reading_scores
from openbook_lab.training.libraries import Draw, Found, Library, found_answer, retrieve
from openbook_lab.training.machine import Machine
from openbook_lab.training.optimizer import ParameterGroup, generator_groups, question_groups
from openbook_lab.training.recipe import WORD_EMBEDDINGS, JointConfig, Loss
from openbook_lab.training.stage import parts_of, random_of
from openbook_lab.training.weights import served
from openbook_lab.training.worlds import LibraryQuestion

# Rounds of drawing without a single answer before training gives up.
FRUITLESS_ROUNDS = 100


def joint_loss(
    token_log_probs: Tensor, doc_scores: Tensor, mask: Tensor, *, loss: Loss = "both", tokens: int | None = None
) -> Tensor:
    """Mean over answer tokens of the RAG-Token or the RAG-Sequence negative log marginal, or half of each.

    Shapes (B, K, T), (B, K), (B, T). `tokens` is the count of a whole batch of which these questions are a part.
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


@dataclass
class JointTask:
    """Steps of questions drawn anew, each with the passages that it finds. Processes share `questions_per_step`.

    `dev_library` holds the passages that answer the questions of `dev`, among others.
    """

    rag: RagModels
    libraries: Mapping[str, Library]
    draw: Draw
    config: JointConfig
    machine: Machine = field(default_factory=Machine)
    dev: Sequence[Question] = ()
    dev_library: Library | None = None
    place: dict[str, int] = field(default_factory=dict)  # what a step draws follows from its number
    name: str = "joint"
    judged_by: str = "open_exact_match"

    def __post_init__(self) -> None:
        self.libraries = {name: library.to(self.machine.device) for name, library in self.libraries.items()}
        self.dev_library = self.dev_library and self.dev_library.to(self.machine.device)

    @property
    def models(self) -> Sequence[PreTrainedModel]:
        return self.rag.generator, self.rag.question_encoder

    def groups(self) -> list[ParameterGroup]:
        config, question_encoder = self.config, self.rag.question_encoder
        groups = generator_groups(self.rag.generator, config)
        if "question-encoder" in config.freeze:
            question_encoder.requires_grad_(False)
            return groups
        embeddings = WORD_EMBEDDINGS not in config.freeze
        return groups + question_groups(question_encoder, config.question_rate, embeddings=embeddings)

    def learn(self, step: int, gather: Callable[[], None]) -> Mapping[str, float]:
        config = self.config
        found, hits = self._find(random_of(config.seed, "joint", step, self.machine.replicas.rank))
        parts = parts_of(found, config.accumulate)
        batches = [self._batch(part) for part in parts]
        wanted = [(batch.targets != IGNORED)[:: config.n_docs] for batch in batches]  # (B, T) each
        tokens = sum(int(mask.sum()) for mask in wanted)
        total, length = 0.0, 0.0
        for part, batch, mask in zip(parts, batches, wanted, strict=True):
            with torch.set_grad_enabled("question-encoder" not in config.freeze):
                vectors = self._vectors([item.question for item in part])  # (B, d)
                passages = torch.stack([self.libraries[f.question.library].vectors[f.rows] for f in part])  # (B, K, d)
                doc_scores = (passages @ vectors[..., None])[..., 0]  # (B, K)
            log_probs = passage_token_log_probs(self.rag.generator, batch)  # (R, T)
            loss = joint_loss(
                log_probs.view(len(part), config.n_docs, -1), doc_scores, mask, loss=config.loss, tokens=tokens
            )
            torch.autograd.backward(loss)
            gather()
            total += float(loss.detach())
            length += float(vectors.detach().norm(dim=-1).sum()) / len(found)
        looked_for = {"found": sum(hits) / len(hits)} if hits else {}
        return {"nll": total, **looked_for, "length": length}

    @torch.no_grad()
    def evaluate(self) -> Mapping[str, float]:
        if not self.dev:
            return {}
        scores: dict[str, float] = {"questions": len(self.dev)}
        over_paragraphs = [question for question in self.dev if question.context]
        if over_paragraphs:
            matched, overlap = reading_scores(self.rag.generator, self.rag.wording, over_paragraphs)
            scores |= {"dev_exact_match": matched, "dev_f1": overlap}
        if self.dev_library is None:
            return scores
        library = self.dev_library
        asked = [LibraryQuestion(question.text, (), "dev") for question in self.dev]
        batches = parts_of(asked, -(-len(asked) // self.config.questions_per_step))
        vectors = torch.cat([self._vectors(batch) for batch in batches])  # (Q, d)
        found = retrieve(asked, vectors, {"dev": library}, self.config.n_docs)
        doc_scores = torch.stack([library.vectors[f.rows] @ v for f, v in zip(found, vectors, strict=True)])  # (Q, K)
        passages = [[library.passages[row] for row in f.rows] for f in found]
        matched, overlap = open_scores(Generator(served(self.rag)), self.dev, passages, doc_scores)
        return scores | {"open_exact_match": matched, "open_f1": overlap}

    def _vectors(self, questions: Sequence[LibraryQuestion]) -> Tensor:
        texts = [question.text for question in questions]
        return encode_questions(self.rag.question_encoder, self.rag.question_tokenizer, texts)  # (B, d)

    def _find(self, random_state: random.Random) -> tuple[list[Found], list[bool]]:
        """This process's questions of a step with their passages; and for each drawn question whose answer has to be
        found, whether it was."""
        share = max(1, self.config.questions_per_step // self.machine.replicas.count)
        found: list[Found] = []
        hits: list[bool] = []
        rounds = 0
        while len(found) < share:
            drawn = [self.draw(random_state) for _ in range(share)]
            with torch.no_grad():
                vectors = self._vectors(drawn)  # (B, d)
            for item in retrieve(drawn, vectors, self.libraries, self.config.n_docs):
                is_learnt = found_answer(item, self.libraries) is not None
                if is_learnt:
                    found.append(item)
                if item.question.answers and not item.question.written:
                    hits.append(is_learnt)
            rounds += 1
            if rounds == FRUITLESS_ROUNDS and not found:
                raise SourceInvalid(
                    source="joint training",
                    reason=f"none of {rounds * share} questions found a passage that holds one of its answers",
                )
        return found[:share], hits

    def _batch(self, found: Sequence[Found]) -> ReadingBatch:
        """Every found passage with its question and the answer that was found: R = B * K rows, question by question."""
        examples = []
        for item in found:
            answer = found_answer(item, self.libraries) or NO_ANSWER
            for row in item.rows:
                passage = self.libraries[item.question.library].passages[row]
                examples.append(ReadingExample(item.question.text, passage.title, passage.text, answer, None))
        encoded = encode_examples(
            examples,
            self.rag.wording,
            max_input_length=self.config.max_input_length,
            max_target_length=self.config.max_target_length,
        )
        return collate(encoded, self.rag.wording).to(self.machine.device)
