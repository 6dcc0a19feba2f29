"""Joint training, the paper's objective (section 2.4): -log of the marginal over the passages that the question finds.

Question encoder and generator learn together; the passages' vectors stay as they are. Each step retrieves anew with the
question encoder as it then is, by exact inner products, and by BM25 beside them where the base has a hybrid prior.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openbook.errors import SourceInvalid
from openbook.rag import marginal
from openbook.rag.open_generator import open_generator
from openbook_lab.training.batches import IGNORED, ReadingBatch, collate, encode_examples
from openbook_lab.training.distillation import encode_questions
from openbook_lab.training.examples import NO_ANSWER, ReadingExample
from openbook_lab.training.forward import open_scores, passage_log_probs
from openbook_lab.training.libraries import DEV, Draw, FoundPassages, Library, retrieve
from openbook_lab.training.models import RagModels
from openbook_lab.training.optimizer import ParameterGroup, generator_groups, question_groups
from openbook_lab.training.recipe import GENERATOR, WORD_EMBEDDINGS, JointConfig, Loss
from openbook_lab.training.stage import Task, parts_of, random_of
from openbook_lab.training.weights import alone_scores, served
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
    losses = []
    if loss != "sequence":
        losses.append(marginal.rag_token_nll(token_log_probs, prior, mask))  # (B,)
    if loss != "token":
        losses.append(marginal.rag_sequence_nll(token_log_probs, prior, mask))  # (B,)
    nll = torch.stack(losses).mean(dim=0)  # (B,)
    return nll.sum() / (mask.sum() if tokens is None else tokens)  # ()


@dataclass
class JointTask(Task):
    """Steps of questions drawn anew, each with the passages that it finds. Processes share `questions_per_step`.

    What a step draws follows from its number, so `place` stays empty. The library DEV holds the passages that answer
    the questions of `dev`, among others; without it nothing is searched for them.
    """

    name = "joint"
    judged_by = "open_exact_match"
    config: JointConfig
    rag: RagModels
    libraries: Mapping[str, Library]
    draw: Draw

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
        found, hits = self._find(random_of(config.seed, "joint", step, self.machine.rank))
        parts = parts_of(found, config.accumulate)
        batches = [self._batch(part) for part in parts]
        wanted = [(batch.targets != IGNORED)[:: config.n_docs] for batch in batches]  # (B, T) each
        tokens = sum(int(mask.sum()) for mask in wanted)
        n_silent = sum(sum(item.silent()) for item in found)
        is_frozen = set(config.freeze) >= GENERATOR
        total, length, empty = 0.0, 0.0, 0.0
        for part, batch, mask in zip(parts, batches, wanted, strict=True):
            with torch.set_grad_enabled("question-encoder" not in config.freeze):
                vectors = self._vectors([item.question for item in part])  # (B, d)
                doc_scores = self._doc_scores(part, vectors)  # (B, K)
            with torch.set_grad_enabled(not is_frozen):
                log_probs = passage_log_probs(self.rag.generator, batch, self.rag.wording)
            by_passage = log_probs.tokens.view(len(part), config.n_docs, -1)  # (B, K, T)
            loss = joint_loss(by_passage, doc_scores, mask, loss=config.loss, tokens=tokens)
            total += float(loss.detach())
            if config.silence and n_silent:
                silent = torch.tensor([one for item in part for one in item.silent()], device=loss.device)  # (R,)
                said_nothing = -log_probs.empty[silent].sum() / n_silent
                empty += float(said_nothing.detach())
                loss = loss + config.silence * said_nothing
            torch.autograd.backward(loss)
            gather()
            length += float(vectors.detach().norm(dim=-1).sum()) / len(found)
        looked_for = {"found": sum(hits) / len(hits)} if hits else {}
        return {"nll": total, **({"silence": empty} if config.silence else {}), **looked_for, "length": length}

    @torch.no_grad()
    def evaluate(self) -> Mapping[str, float]:
        if not self.dev:
            return {}
        scores: dict[str, float] = {"questions": len(self.dev)}
        over_paragraphs = [question for question in self.dev if question.context]
        if over_paragraphs:
            matched, overlap = alone_scores(self.rag, over_paragraphs)
            scores |= {"dev_exact_match": matched, "dev_f1": overlap}
        if DEV not in self.libraries:
            return scores
        asked = [LibraryQuestion(question.text, (), DEV) for question in self.dev]
        batches = parts_of(asked, -(-len(asked) // self.config.questions_per_step))
        vectors = torch.cat([self._vectors(batch) for batch in batches])  # (Q, d)
        found = retrieve(asked, vectors, self.libraries, self.config.n_docs, self.rag.prior)
        doc_scores = self._doc_scores(found, vectors)  # (Q, K)
        passages = [item.passages for item in found]
        matched, overlap = open_scores(open_generator(served(self.rag)), self.dev, passages, doc_scores)
        return scores | {"open_exact_match": matched, "open_f1": overlap}

    def _doc_scores(self, found: Sequence[FoundPassages], vectors: Tensor) -> Tensor:
        return torch.stack([one.doc_scores(v, self.rag.prior) for one, v in zip(found, vectors, strict=True)])  # (B, K)

    def _vectors(self, questions: Sequence[LibraryQuestion]) -> Tensor:
        texts = [question.text for question in questions]
        return encode_questions(self.rag.question_encoder, self.rag.question_tokenizer, texts)  # (B, d)

    def _find(self, random_state: random.Random) -> tuple[list[FoundPassages], list[bool]]:
        """This process's questions of a step with their passages; and for each drawn question whose answer has to be
        found, whether it was."""
        share = max(1, self.config.questions_per_step // self.machine.count)
        found: list[FoundPassages] = []
        hits: list[bool] = []
        rounds = 0
        while len(found) < share:
            drawn = [self.draw(random_state) for _ in range(share)]
            with torch.no_grad():
                vectors = self._vectors(drawn)  # (B, d)
            for item in retrieve(drawn, vectors, self.libraries, self.config.n_docs, self.rag.prior):
                is_learnt = item.target() is not None
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

    def _batch(self, found: Sequence[FoundPassages]) -> ReadingBatch:
        """Every found passage with its question and the answer that was found: R = B * K rows, question by question."""
        examples = []
        for item in found:
            text, answer = item.question.text, item.target() or NO_ANSWER
            examples += [ReadingExample(text, passage.title, passage.text, answer, None) for passage in item.passages]
        wording, config = self.rag.wording, self.config
        encoded = encode_examples(examples, wording, config.max_input_length, config.max_target_length)
        return collate(encoded, wording).to(self.machine.device)
