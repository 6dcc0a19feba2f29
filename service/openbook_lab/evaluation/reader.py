"""Batches of questions through the decoders, each with given passages, and only those that the log does not know."""

from collections.abc import Sequence
from dataclasses import dataclass

from openbook.entities import (
    Answer,
    AnswerOptions,
    Decoding,
    IndexVersion,
    MarginalKind,
    Passage,
    RetrievedPassages,
    Source,
    StageSeconds,
)
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.engine import RagEngine, Read, Searched
from openbook.rag.generator import Generator
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer, digest_of

MAX_NEW_TOKENS = AnswerOptions().max_new_tokens
# (question, passage) pairs read together; more do not fit the cache of a processor core.
ROWS_A_BATCH = 40


@dataclass(frozen=True, slots=True)
class Decode:
    """How answers are searched for. RAG-Token ignores `decoding`: it has one."""

    model: MarginalKind
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
        passages = (part for passage in self.passages for part in (passage.title, passage.heading, passage.text))
        return digest_of(self.text, scores, *passages)


class BatchReader:
    """Answers as the engine does, from passages that are given."""

    def __init__(
        self, checkpoint: Checkpoint, generator: Generator | None = None, *, max_new_tokens: int = MAX_NEW_TOKENS
    ) -> None:
        """`generator` is one that was made of the checkpoint already."""
        self._engine = RagEngine(checkpoint, generator=generator)
        self._max_new_tokens = max_new_tokens

    def read(self, questions: Sequence[OpenQuestion], decodes: Sequence[Decode]) -> list[list[GivenAnswer]]:
        """For each way of decoding, the best answer to each question; all questions have K passages.

        Raises what `RagEngine.read` raises.
        """
        read = self._read(questions)
        given = []
        for decode in decodes:
            options = AnswerOptions(
                model=decode.model,
                decoding=decode.decoding,
                num_beams=decode.num_beams,
                max_new_tokens=self._max_new_tokens,
            )
            answers = self._engine.answers(read, options)
            given.append(
                [GivenAnswer(one.answers[0].text, one.answers[0].log_prob, _posterior(one)) for one in answers]
            )
        return given

    def score(
        self, question: OpenQuestion, targets: Sequence[str], model: MarginalKind = "sequence"
    ) -> list[GivenAnswer]:
        """log p(target | question) of each target, with end-of-sequence; without passages both models say the same.

        Raises InvalidRequest for two targets that have the same tokens.
        """
        (scored,) = self._engine.scores(self._read([question]), targets, AnswerOptions(model=model))
        return [
            GivenAnswer(one.target, one.log_prob, one.posterior if question.passages else ()) for one in scored.targets
        ]

    def _read(self, questions: Sequence[OpenQuestion]) -> Read:
        passages = [RetrievedPassages((), one.passages, one.doc_scores) for one in questions]
        given = Source(IndexVersion("", 0, None), "", self._engine.facts.checkpoint, "dense", (), StageSeconds())
        return self._engine.read([one.text for one in questions], Searched(passages, given))


def _posterior(answer: Answer) -> tuple[float, ...]:
    return tuple(passage.posterior for passage in answer.passages)


def ask(
    reader: BatchReader,
    questions: Sequence[OpenQuestion],
    decodes: Sequence[Decode],
    log: AnswerLog,
    *,
    progress: Progress,
    stage: str,
) -> dict[Decode, list[GivenAnswer]]:
    """By decoding, the answer to each question. What the log lacks is asked and written.

    The log knows a question by its text, passages and scores: the same passages are read once, whatever chose them.
    """
    keys = [question.key for question in questions]
    by_key = dict(zip(keys, questions, strict=True))
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
    # all are there now
    return {decode: [answer for key in keys if (answer := log.get(decode.key, key)) is not None] for decode in decodes}


def _missing(log: AnswerLog, decodes: Sequence[Decode], keys: Sequence[str]) -> list[Decode]:
    return [decode for decode in decodes if any(log.get(decode.key, key) is None for key in keys)]
