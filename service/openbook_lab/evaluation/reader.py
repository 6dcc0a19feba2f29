"""Batches of questions through the decoders, each with given passages, and only those that the log does not know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from openbook.entities import AnswerOptions, Decoding, Hypothesis, ModelKind, Passage
from openbook.errors import InvalidRequest
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.decoding import document_posterior
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook.rag.generator import Generator
from openbook.rag.generators import open_generator
from openbook.rag.marginal import doc_log_prior
from openbook.rag.provenance import as_written
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer, digest_of

MAX_NEW_TOKENS = AnswerOptions().max_new_tokens
# (question, passage) pairs read together; more do not fit the cache of a processor core.
ROWS_A_BATCH = 40


@dataclass(frozen=True, slots=True)
class Decode:
    """How answers are searched for. RAG-Token ignores `decoding`: it has one."""

    model: ModelKind
    num_beams: int
    decoding: Decoding = "thorough"

    @property
    def key(self) -> str:
        """Its name in an answer log."""
        kind = self.model if self.model == "token" else f"{self.model} {self.decoding}"
        return f"{kind} beams={self.num_beams}"

    def __str__(self) -> str:
        """Its name in a table."""
        beams = "greedy" if self.num_beams == 1 else f"{self.num_beams} beams"
        return f"RAG-Token, {beams}" if self.model == "token" else f"RAG-Sequence, {self.decoding}, {beams}"


GREEDY = Decode("token", 1)


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question with the K passages to read and their doc_scores. K = 0: the generator reads the question alone."""

    text: str
    passages: tuple[Passage, ...]
    doc_scores: tuple[float, ...]

    @property
    def key(self) -> str:
        """Its name in an answer log: equal keys are equal input to a generator.

        Only differences of scores count, because the prior depends on nothing else.
        """
        best = max(self.doc_scores, default=0.0)
        scores = ",".join(f"{score - best:.4f}" for score in self.doc_scores)
        passages = (part for passage in self.passages for part in (passage.title, passage.text))
        return digest_of(self.text, scores, *passages)


class BatchReader:
    """Answers as the engine does, from passages that are given."""

    def __init__(
        self, checkpoint: Checkpoint, generator: Generator | None = None, *, max_new_tokens: int = MAX_NEW_TOKENS
    ) -> None:
        """`generator` is one that was made of the checkpoint already."""
        self._checkpoint = checkpoint
        self._generator = open_generator(checkpoint) if generator is None else generator
        self._max_new_tokens = max_new_tokens

    @torch.inference_mode()
    def read(self, questions: Sequence[OpenQuestion], decodes: Sequence[Decode]) -> list[list[GivenAnswer]]:
        """For each way of decoding, the best answer to each question; all questions have K passages.

        K = 0 is the closed book of the paper's baselines: both models are p(y | x). Raises InvalidRequest for a
        question that is longer than the generator reads.
        """
        encoded, log_prior = self._encode(questions)  # log_prior (Q, K)
        return [
            [
                self._given(question, of_question[0], decode.model)
                for question, of_question in zip(questions, self._decode(encoded, log_prior, decode), strict=True)
            ]
            for decode in decodes
        ]

    @torch.inference_mode()
    def score(self, question: OpenQuestion, targets: Sequence[str]) -> list[GivenAnswer]:
        """log p(target | question) of each target under RAG-Sequence, with end-of-sequence; without passages, under
        both models. Raises InvalidRequest for two targets that have the same tokens."""
        target_ids = self._generator.target_ids(targets)
        encoded, log_prior = self._encode([question])  # log_prior (1, K)
        (scored,) = self._generator.score(self._generator.start(encoded), log_prior, target_ids, "sequence")
        return [
            GivenAnswer(target, one.log_prob, document_posterior(one, "sequence") if question.passages else ())
            for target, one in zip(targets, scored, strict=True)
        ]

    def _encode(self, questions: Sequence[OpenQuestion]) -> tuple[Any, torch.Tensor]:
        """The encoded passages, and the doc_log_prior (Q, K). A closed book is one row with probability 1."""
        if questions[0].passages:
            encoded = self._generator.encode([q.text for q in questions], [q.passages for q in questions])
            doc_scores = torch.tensor([q.doc_scores for q in questions], dtype=torch.float64)  # (Q, K)
        else:
            if not isinstance(self._generator, EncoderDecoder):
                raise InvalidRequest(field="passages", reason="this checkpoint's generator has no closed book.")
            rows = [self._question_ids(question.text) for question in questions]
            encoded = self._generator.encode_ids(rows)
            doc_scores = torch.zeros(len(rows), 1, dtype=torch.float64)  # (Q, 1)
        return encoded, doc_log_prior(doc_scores).float().to(self._checkpoint.device)

    def _question_ids(self, text: str) -> list[int]:
        """The question's tokens alone, without the separator that would come before a passage."""
        # two spaces become one, as they do beside a passage
        ids: list[int] = self._generator.tokenizer(text.replace("  ", " "), verbose=False)["input_ids"]
        positions: int | None = getattr(self._checkpoint.generator.config, "max_position_embeddings", None)
        limit = min(self._checkpoint.config.max_combined_length, positions or len(ids))
        if len(ids) > limit:
            reason = f"it takes {len(ids)} tokens; this checkpoint's generator reads {limit} in all."
            raise InvalidRequest(field="question", reason=reason)
        return ids

    def _decode(self, encoded: Any, log_prior: torch.Tensor, decode: Decode) -> list[tuple[Hypothesis, ...]]:
        options = AnswerOptions(
            model=decode.model,
            decoding=decode.decoding,
            num_beams=decode.num_beams,
            max_new_tokens=self._max_new_tokens,
        )
        return self._generator.decode(self._generator.start(encoded), log_prior, options)

    def _given(self, question: OpenQuestion, hypothesis: Hypothesis, model: ModelKind) -> GivenAnswer:
        posterior = document_posterior(hypothesis, model) if question.passages else ()
        text = self._generator.text(hypothesis.token_ids)
        if self._checkpoint.uncased:
            by_posterior = sorted(range(len(posterior)), key=lambda k: -posterior[k])
            # without a passage, the question shows how words are written
            text = as_written(text, [question.passages[k].text for k in by_posterior] or [question.text])
        return GivenAnswer(text, hypothesis.log_prob, posterior)


def ask(
    reader: BatchReader,
    questions: Sequence[OpenQuestion | None],
    decodes: Sequence[Decode],
    log: AnswerLog,
    *,
    progress: Progress,
    stage: str,
) -> dict[Decode, list[GivenAnswer | None]]:
    """By decoding, the answer to each question, None for None. What the log lacks is asked and written.

    The log knows a question by its text, passages and scores: the same passages are read once, whatever chose them.
    """
    keys = [None if question is None else question.key for question in questions]
    by_key = {
        key: question for key, question in zip(keys, questions, strict=True) if key is not None and question is not None
    }
    waiting: dict[int, list[str]] = {}
    for key, question in by_key.items():
        if _missing(log, decodes, [key]):
            waiting.setdefault(len(question.passages), []).append(key)
    # progress counts passages where their number differs, since they take the time
    alike = len({len(question.passages) for question in by_key.values()}) < 2
    weight = {key: 1 if alike else max(1, len(question.passages)) for key, question in by_key.items()}
    stage, total = stage if alike else f"{stage}, passages", sum(weight.values())
    answered = total - sum(weight[key] for group in waiting.values() for key in group)
    progress.update(answered, total, stage)
    # the most passages first, then the longest: what does not fit into memory fails at once
    for n_docs, group in sorted(waiting.items(), reverse=True):
        group.sort(key=lambda key: -max((len(one.text) for one in by_key[key].passages), default=0))
        size = max(1, ROWS_A_BATCH // max(1, n_docs))
        for first in range(0, len(group), size):
            batch = group[first : first + size]
            missing = _missing(log, decodes, batch)
            read = reader.read([by_key[key] for key in batch], missing)
            for decode, answers in zip(missing, read, strict=True):
                log.add(decode.key, zip(batch, answers, strict=True))
            answered += sum(weight[key] for key in batch)
            progress.update(answered, total, stage)
    return {decode: [None if key is None else log.get(decode.key, key) for key in keys] for decode in decodes}


def _missing(log: AnswerLog, decodes: Sequence[Decode], keys: Sequence[str]) -> list[Decode]:
    return [decode for decode in decodes if any(log.get(decode.key, key) is None for key in keys)]
