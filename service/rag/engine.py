"""The whole model behind one door: a question and a leased snapshot in, an answer with its provenance out.

The engine keeps nothing of a question and no index: the snapshot is an argument, so that no answer can read two
versions. It is safe to call from several threads.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from service.entities import (
    AnswerOptions,
    AnswerPassage,
    AnswerText,
    AnswerToken,
    Hypothesis,
    ModelKind,
    PosteriorKind,
    RetrievedPassages,
    StageSeconds,
    TargetScore,
)
from service.errors import InvalidRequest
from service.rag import decoding, provenance
from service.rag.checkpoint import Checkpoint
from service.rag.decoder import DecoderState, nothing
from service.rag.generator import EncodedPassages, Generator
from service.rag.marginal import doc_log_prior
from service.rag.retriever import DenseRetriever, QuestionEncoder
from service.storage.snapshot import IndexSnapshot


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """The best `num_answers` answers; tokens, posteriors and spans are those of the first.

    `no_answer` is p(empty answer | x), whether or not the checkpoint would ever give it.
    """

    answers: tuple[AnswerText, ...]
    tokens: tuple[AnswerToken, ...]
    passages: tuple[AnswerPassage, ...]
    posterior_kind: PosteriorKind
    no_answer: float
    seconds: StageSeconds


@dataclass(frozen=True, slots=True)
class EngineScores:
    """log p(target | x) of each target, in the order given; passages carry the prior, and the posterior of the
    best target."""

    targets: tuple[TargetScore, ...]
    passages: tuple[AnswerPassage, ...]
    seconds: StageSeconds


@dataclass(frozen=True, slots=True)
class EngineRetrieval:
    """Passages with doc_scores and prior; nothing was generated, so the posterior is the prior."""

    passages: tuple[AnswerPassage, ...]
    seconds: StageSeconds


@dataclass(frozen=True, slots=True)
class _Read:
    """A question with its passages found and read."""

    retrieved: RetrievedPassages
    log_prior: Tensor  # (K,)
    encoded: EncodedPassages
    seconds: StageSeconds


class RagEngine:
    """Answers, scores and retrieves with one checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._question_encoder = QuestionEncoder(checkpoint)
        self._retriever = DenseRetriever(self._question_encoder)
        self._generator = Generator(checkpoint)

    @property
    def checkpoint_name(self) -> str:
        """name@fingerprint, as answers give it."""
        return self._checkpoint.name

    @property
    def encoder_fingerprint(self) -> str | None:
        """The passage encoder whose vectors the question encoder was trained against; None where it is not said."""
        return self._checkpoint.facts.encoder_fingerprint

    @property
    def dimension(self) -> int:
        """Of the question encoder's vectors, and so of every index that this engine can read."""
        return self._question_encoder.dimension

    @torch.inference_mode()
    def answer(
        self,
        question: str,
        snapshot: IndexSnapshot,
        options: AnswerOptions,
        *,
        between_steps: Callable[[], None] = nothing,
    ) -> EngineAnswer:
        """Answer one question. `between_steps` is called before each decoder step; what it raises ends the work."""
        self._generator.check_length("max_new_tokens", options.max_new_tokens)
        read = self._read(question, snapshot, options.n_docs, between_steps)
        started = time.perf_counter()
        start = self._generator.start(read.encoded)
        no_answer = decoding.empty_log_prob(start, read.log_prior[None], self._generator.eos).exp()  # (1,)
        best = self._decode(read, start, options, between_steps)[: options.num_answers]
        posterior = _document_posterior(best[0], options.model)
        by_posterior = sorted(range(len(posterior)), key=lambda k: -posterior[k])
        best_first = [read.retrieved.passages[k] for k in by_posterior]
        # where no passage's text has a word, its title or the question may still say how it is written
        texts = [*(passage.text for passage in best_first), *(passage.title for passage in best_first), question]
        answers = tuple(AnswerText(self._text(one, texts), one.log_prob) for one in best)
        return EngineAnswer(
            answers=answers,
            tokens=self._tokens(best[0]),
            passages=_passages(read.retrieved, read.log_prior, posterior, answers[0].text),
            posterior_kind="per_token" if options.model == "token" else "running",
            no_answer=float(no_answer),
            seconds=replace(read.seconds, generate=time.perf_counter() - started),
        )

    @torch.inference_mode()
    def score(
        self,
        question: str,
        targets: Sequence[str],
        snapshot: IndexSnapshot,
        *,
        n_docs: int,
        model: ModelKind,
        between_steps: Callable[[], None] = nothing,
    ) -> EngineScores:
        """log p(target | question) of each target (section 3.4 classifies so), end-of-sequence included."""
        target_ids = [tuple(self._generator.target_ids(target)) for target in targets]
        _check_targets(targets, target_ids)
        read = self._read(question, snapshot, n_docs, between_steps)
        started = time.perf_counter()
        scored = decoding.score_targets(
            self._generator,
            read.encoded,
            read.log_prior,
            target_ids,
            sequence=model == "sequence",
            between_steps=between_steps,
        )
        shares = torch.softmax(torch.tensor([one.log_prob for one in scored], dtype=torch.float64), dim=0).tolist()
        posteriors = [_document_posterior(one, model) for one in scored]
        best = max(range(len(scored)), key=lambda i: scored[i].log_prob)
        return EngineScores(
            targets=tuple(
                TargetScore(target, one.log_prob, share, posterior)
                for target, one, share, posterior in zip(targets, scored, shares, posteriors, strict=True)
            ),
            passages=_passages(read.retrieved, read.log_prior, posteriors[best], targets[best]),
            seconds=replace(read.seconds, generate=time.perf_counter() - started),
        )

    @torch.inference_mode()
    def retrieve(self, question: str, snapshot: IndexSnapshot, n_docs: int) -> EngineRetrieval:
        """The passages alone."""
        retrieved, log_prior, seconds = self._find(question, snapshot, n_docs)
        prior = tuple(log_prior.exp().tolist())
        return EngineRetrieval(_passages(retrieved, log_prior, prior, ""), seconds)

    def _find(
        self, question: str, snapshot: IndexSnapshot, n_docs: int
    ) -> tuple[RetrievedPassages, Tensor, StageSeconds]:
        started = time.perf_counter()
        vectors = self._question_encoder.encode([question])  # (1, d)
        encoded = time.perf_counter()
        (retrieved,) = self._retriever.search(vectors, snapshot, n_docs)
        doc_scores = torch.tensor(retrieved.doc_scores, dtype=torch.float64)  # (K,)
        found = time.perf_counter()
        log_prior = doc_log_prior(doc_scores).float().to(self._checkpoint.device)  # (K,)
        return retrieved, log_prior, StageSeconds(encode=encoded - started, retrieve=found - encoded)

    def _read(self, question: str, snapshot: IndexSnapshot, n_docs: int, between_steps: Callable[[], None]) -> _Read:
        between_steps()
        retrieved, log_prior, seconds = self._find(question, snapshot, n_docs)
        between_steps()
        started = time.perf_counter()
        encoded = self._generator.encode([question], [retrieved.passages])
        # encode: everything that an encoder reads, the question's and the passages'
        seconds = replace(seconds, encode=seconds.encode + time.perf_counter() - started)
        return _Read(retrieved, log_prior, encoded, seconds)

    def _decode(
        self, read: _Read, start: DecoderState, options: AnswerOptions, between_steps: Callable[[], None]
    ) -> tuple[Hypothesis, ...]:
        log_prior = read.log_prior[None]  # (1, K)
        if options.model == "token":
            return decoding.rag_token(
                self._generator,
                read.encoded,
                log_prior,
                num_beams=options.num_beams,
                max_new_tokens=options.max_new_tokens,
                between_steps=between_steps,
                start=start,
            )[0]
        return decoding.rag_sequence(
            self._generator,
            read.encoded,
            log_prior,
            num_beams=options.num_beams,
            max_new_tokens=options.max_new_tokens,
            thorough=options.decoding == "thorough",
            between_steps=between_steps,
            start=start,
        )[0]

    def _text(self, hypothesis: Hypothesis, texts: Sequence[str]) -> str:
        text = self._generator.text(hypothesis.token_ids)
        return provenance.as_written(text, texts) if self._checkpoint.uncased else text

    def _tokens(self, hypothesis: Hypothesis) -> tuple[AnswerToken, ...]:
        return tuple(
            AnswerToken(text, log_prob, posterior)
            for text, log_prob, posterior in zip(
                self._generator.token_texts(hypothesis.token_ids),
                hypothesis.token_log_probs,
                hypothesis.posterior,
                strict=True,
            )
        )


def _check_targets(targets: Sequence[str], target_ids: Sequence[tuple[int, ...]]) -> None:
    """Two targets that are one to the generator would share a probability that belongs to one."""
    seen: dict[tuple[int, ...], str] = {}
    for target, ids in zip(targets, target_ids, strict=True):
        if ids in seen:
            raise InvalidRequest(
                field="targets", reason=f"{seen[ids]!r} and {target!r} are the same to this checkpoint's generator."
            )
        seen[ids] = target


def _document_posterior(hypothesis: Hypothesis, model: ModelKind) -> tuple[float, ...]:
    """One number a passage. RAG-Sequence: p(z | x, y), the last column. RAG-Token has a posterior for each token and
    none for the answer: the mean over its tokens, the share of the answer that each passage accounts for."""
    if model == "sequence":
        return hypothesis.posterior[-1]
    columns = hypothesis.posterior
    return tuple(sum(column[k] for column in columns) / len(columns) for k in range(len(columns[0])))


def _passages(
    retrieved: RetrievedPassages, log_prior: Tensor, posterior: Sequence[float], answer: str
) -> tuple[AnswerPassage, ...]:
    return tuple(
        AnswerPassage(rank, passage, doc_score, prior, share, provenance.answer_spans(answer, passage.text))
        for rank, (passage, doc_score, prior, share) in enumerate(
            zip(retrieved.passages, retrieved.doc_scores, log_prior.exp().tolist(), posterior, strict=True), start=1
        )
    )
