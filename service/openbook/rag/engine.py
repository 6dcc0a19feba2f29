"""The whole model behind one door: questions and a leased snapshot in, answers with their provenance out.

The engine keeps nothing of a question and no index: the snapshot is an argument, so that no answer can read two
versions. What a causal generator keeps of passages belongs to their snapshot and goes with it. The engine is safe to
call from several threads.

Each call takes the questions of a batch and gives each the result that it has alone. Their `seconds` are those of the
batch. An error fails the whole batch. `between_steps` is called before each decoder step; an exception from it stops
the batch. Ignore the results of questions that it marks as abandoned. A listener hears of an answer before the call
ends; an exception from it stops the batch too. The generation of a `Source` is 0: the engine knows of no swaps.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openbook.entities import (
    Answer,
    AnswerOptions,
    AnswerPassage,
    AnswerText,
    AnswerToken,
    Hypothesis,
    IndexVersion,
    KeptStats,
    ModelKind,
    PriorWeights,
    Retrieval,
    RetrievedPassages,
    RetrieverChoice,
    RetrieverKind,
    Scores,
    Source,
    StageSeconds,
    TargetScore,
)
from openbook.errors import NotCalibrated, RerankerMissing, RetrieverUnavailable, SearchParameterUnknown
from openbook.rag import provenance
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.decoder import BetweenSteps, nothing
from openbook.rag.decoding import document_posterior
from openbook.rag.generators import open_generator
from openbook.rag.listening import NO_LISTENERS, Listeners, ToldTokens
from openbook.rag.marginal import doc_log_prior
from openbook.rag.reranker import Reranker
from openbook.rag.retriever import (
    Bm25Retriever,
    DenseRetriever,
    HybridRetriever,
    QuestionEncoder,
    RerankedRetriever,
)
from openbook.storage.readable_index import ReadableIndex


@dataclass(frozen=True, slots=True)
class _Searched:
    """The passages of Q questions."""

    retrieved: list[RetrievedPassages]
    log_prior: Tensor  # (Q, K)
    source: Source


class RagEngine:
    """Answers, scores and retrieves with one checkpoint, and one reranker where it is given."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        reranker: Reranker | None = None,
        *,
        passage_bytes: int = 0,
        keep_weights: bool = True,
    ) -> None:
        """A causal generator keeps `passage_bytes` of what it reads of each snapshot's passages, while that is open.
        Without `keep_weights` the checkpoint serves no other engine, and no weight is in memory twice."""
        self._checkpoint = checkpoint
        self._question_encoder = QuestionEncoder(checkpoint)
        self._dense = DenseRetriever(self._question_encoder, checkpoint.facts.prior_scale)
        self._bm25 = Bm25Retriever()
        self._hybrid = HybridRetriever(self.prior) if self.prior is not None else None
        self.reranker_name = reranker.name if reranker is not None else None
        self._reranked = RerankedRetriever(reranker) if reranker is not None else None
        self._generator = open_generator(checkpoint, passage_bytes=passage_bytes, keep_weights=keep_weights)

    @property
    def checkpoint_name(self) -> str:
        """name@fingerprint, as answers give it."""
        return self._checkpoint.name

    @property
    def encoder_fingerprint(self) -> str | None:
        """The passage encoder whose vectors the question encoder was trained against; None where it is not said."""
        return self._checkpoint.facts.encoder_fingerprint

    @property
    def model(self) -> ModelKind:
        """The model of a question that names none."""
        return self._checkpoint.facts.model or "token"

    @property
    def prior(self) -> PriorWeights | None:
        """The weights of the hybrid retriever; None where the checkpoint has none."""
        return self._checkpoint.facts.prior

    @property
    def max_no_answer(self) -> float | None:
        """Above this `no_answer` the checkpoint would rather not answer; None where it has none."""
        return self._checkpoint.facts.max_no_answer

    @property
    def special_tokens(self) -> frozenset[str]:
        """The texts of tokens that are no part of an answer's words, such as the one that ends it."""
        return frozenset(self._generator.tokenizer.all_special_tokens)

    @property
    def joins_tokens(self) -> bool:
        """Whether joining its tokens gives an answer's text; else the text is known only with the last token."""
        return not (self._checkpoint.uncased or self._generator.tokenizer.clean_up_tokenization_spaces)

    def kept(self) -> KeptStats | None:
        """What a causal generator has kept of passages; None for a generator that keeps nothing."""
        return self._generator.kept()

    def growth(self, versions: int) -> int:
        """The bytes that kept passages may still take, where so many versions are open."""
        return self._generator.growth(versions)

    def retriever(self, choice: RetrieverChoice, snapshot: ReadableIndex) -> RetrieverKind:
        """The retriever that `choice` means for this version.

        Raises RetrieverUnavailable where the version lacks BM25, RerankerMissing, and NotCalibrated where the
        checkpoint lacks a prior.
        """
        has_bm25 = snapshot.info.bm25 is not None
        if choice == "auto":
            return "hybrid" if has_bm25 and self.prior is not None else "dense"
        if choice in ("bm25", "hybrid") and not has_bm25:
            raise RetrieverUnavailable(version=snapshot.info.version, retriever=choice)
        if choice == "hybrid" and self.prior is None:
            raise NotCalibrated(checkpoint=self.checkpoint_name, asked="retriever 'hybrid'", fact="prior")
        if choice == "reranked" and self._reranked is None:
            raise RerankerMissing()
        return choice

    @property
    def dimension(self) -> int:
        """Of the question encoder's vectors, and so of every index that this engine can read."""
        return self._question_encoder.dimension

    @torch.inference_mode()
    def answer(
        self,
        questions: Sequence[str],
        snapshot: ReadableIndex,
        options: AnswerOptions,
        between_steps: BetweenSteps = nothing,
        listeners: Listeners = NO_LISTENERS,
    ) -> list[Answer]:
        self._generator.check_length("max_new_tokens", options.max_new_tokens)
        found, encoded = self._read(questions, snapshot, options, between_steps, listeners)
        started = time.perf_counter()
        start = self._generator.start(encoded)
        n_read = np.reshape(self._generator.n_read(encoded), (len(questions), -1)).sum(axis=1)  # (Q,)
        texts = self._generator.texts(encoded)
        del encoded  # the start has read it
        no_answer = self._no_answer(start, found)  # Q
        told = {
            number: ToldTokens(self._generator.token_texts, listener.tell)
            for number, listener in listeners.items()
            if listener.max_no_answer is None or no_answer[number] <= listener.max_no_answer
        }
        decoded = self._generator.decode(start, found.log_prior, options, between_steps, told, texts)
        answers = [
            self._answer(question, retrieved, log_prior, best, options, empty, found.source)
            for question, retrieved, log_prior, best, empty in zip(
                questions, found.retrieved, found.log_prior, decoded, no_answer, strict=True
            )
        ]
        for number, heard in told.items():
            if heard.tokens:
                # computed together, the same tokens differ in a last digit
                answers[number] = replace(answers[number], tokens=tuple(heard.tokens))
        source = _after(found.source, generate=time.perf_counter() - started)
        return [replace(answer, source=source, n_read=n) for answer, n in zip(answers, n_read.tolist(), strict=True)]

    @torch.inference_mode()
    def score(
        self,
        questions: Sequence[str],
        targets: Sequence[str],
        snapshot: ReadableIndex,
        options: AnswerOptions,
        between_steps: BetweenSteps = nothing,
    ) -> list[Scores]:
        """log p(target | question) of each target (section 3.4 classifies so), end-of-sequence included."""
        target_ids = self._generator.target_ids(targets)
        found, encoded = self._read(questions, snapshot, options, between_steps)
        started = time.perf_counter()
        start = self._generator.start(encoded)
        scored = self._generator.score(start, found.log_prior, target_ids, options.model, between_steps)
        source = _after(found.source, generate=time.perf_counter() - started)
        return [
            _scores(targets, of_question, retrieved, log_prior, options, source)
            for of_question, retrieved, log_prior in zip(scored, found.retrieved, found.log_prior, strict=True)
        ]

    @torch.inference_mode()
    def retrieve(
        self,
        questions: Sequence[str],
        snapshot: ReadableIndex,
        options: AnswerOptions,
        between_steps: BetweenSteps = nothing,
    ) -> list[Retrieval]:
        """The passages alone."""
        return _retrievals(self._find(questions, snapshot, options, between_steps))

    def _find(
        self, questions: Sequence[str], snapshot: ReadableIndex, options: AnswerOptions, between_steps: BetweenSteps
    ) -> _Searched:
        if options.retriever == "bm25" and options.search:
            raise SearchParameterUnknown(name=options.search[0][0], searched="retriever bm25")
        retriever = self.retriever(options.retriever, snapshot)
        n_docs = min(options.n_docs, len(snapshot)) if options.or_all else options.n_docs
        between_steps()
        # before anything is computed: a filter may not fit this version
        passing = time.perf_counter()
        allowed = snapshot.allowed(options.filter) if options.filter is not None else None  # (N,)
        started = time.perf_counter()
        vectors = self._question_encoder.encode(questions) if retriever != "bm25" else None  # (Q, d)
        encoded = time.perf_counter()
        if vectors is None:
            retrieved = self._bm25.retrieve(questions, snapshot, n_docs, allowed)
        elif retriever == "hybrid" and self._hybrid is not None:
            retrieved = self._hybrid.search(questions, vectors, snapshot, n_docs, options.search, allowed)
        elif retriever == "reranked" and self._reranked is not None:
            retrieved = self._reranked.search(
                questions, vectors, snapshot, n_docs, options.search, between_steps, allowed
            )
        else:
            retrieved = self._dense.search(vectors, snapshot, n_docs, options.search, allowed)
        doc_scores = torch.tensor([one.doc_scores for one in retrieved], dtype=torch.float64)  # (Q, K)
        seconds = StageSeconds(encode=encoded - started, retrieve=time.perf_counter() - encoded + started - passing)
        log_prior = doc_log_prior(doc_scores).float().to(self._checkpoint.device)  # (Q, K)
        info = snapshot.info
        index = IndexVersion(info.version, 0, info.snapshot_date)
        name = self._checkpoint.name
        return _Searched(
            retrieved, log_prior, Source(index, info.attribution, name, retriever, options.search, seconds)
        )

    def _read(
        self,
        questions: Sequence[str],
        snapshot: ReadableIndex,
        options: AnswerOptions,
        between_steps: BetweenSteps,
        listeners: Listeners = NO_LISTENERS,
    ) -> tuple[_Searched, Any]:
        found = self._find(questions, snapshot, options, between_steps)
        if listeners:
            retrievals = _retrievals(found)
            for number, listener in listeners.items():
                listener.tell(retrievals[number])
        between_steps()
        started = time.perf_counter()
        encoded = self._generator.encode(questions, [one.passages for one in found.retrieved], snapshot)
        # encode: everything that an encoder reads, the questions and the passages
        return replace(found, source=_after(found.source, encode=time.perf_counter() - started)), encoded

    def _no_answer(self, start: Any, found: _Searched) -> list[float]:
        """p(no passage answers | x) of each question; without a calibration for its retriever p(empty answer | x)."""
        empty: list[float] = self._generator.empty_log_prob(start, found.log_prior).exp().tolist()
        weights = self._checkpoint.facts.no_answer
        if weights is None or found.source.retriever != "hybrid":
            return empty
        return [
            weights.probability(one, retrieved.doc_scores[0])
            for one, retrieved in zip(empty, found.retrieved, strict=True)
        ]

    def _answer(
        self,
        question: str,
        retrieved: RetrievedPassages,
        log_prior: Tensor,
        best: Sequence[Hypothesis],
        options: AnswerOptions,
        no_answer: float,
        source: Source,
    ) -> Answer:
        """What the hypotheses of one question say, and of which passage: log_prior (K,)."""
        posterior = document_posterior(best[0], options.model)
        by_posterior = sorted(range(len(posterior)), key=lambda k: -posterior[k])
        best_first = [retrieved.passages[k] for k in by_posterior]
        # where no passage's text has a word, its title or the question may still say how it is written
        texts = [*(passage.text for passage in best_first), *(passage.title for passage in best_first), question]
        answers = tuple(
            AnswerText(
                self._text(one, texts),
                one.log_prob,
                n_tokens=len(one.token_ids),
                ended=one.token_ids[-1] == self._generator.eos,
            )
            for one in best
        )
        token_texts = self._generator.token_texts(best[0].token_ids)
        return Answer(
            answers=answers,
            tokens=tuple(
                starmap(AnswerToken, zip(token_texts, best[0].token_log_probs, best[0].posterior, strict=True))
            ),
            passages=_passages(retrieved, log_prior, posterior, answers[0].text),
            model=options.model,
            posterior_kind="per_token" if options.model == "token" else "running",
            no_answer=no_answer,
            source=source,
        )

    def _text(self, hypothesis: Hypothesis, texts: Sequence[str]) -> str:
        text = self._generator.text(hypothesis.token_ids)
        return provenance.as_written(text, texts) if self._checkpoint.uncased else text


def _after(source: Source, *, encode: float = 0.0, generate: float = 0.0) -> Source:
    """The same after so many seconds more."""
    seconds = source.seconds
    return replace(source, seconds=replace(seconds, encode=seconds.encode + encode, generate=generate))


def _scores(
    targets: Sequence[str],
    scored: Sequence[Hypothesis],
    retrieved: RetrievedPassages,
    log_prior: Tensor,
    options: AnswerOptions,
    source: Source,
) -> Scores:
    """The targets of one question: log_prior (K,)."""
    shares = torch.softmax(torch.tensor([one.log_prob for one in scored], dtype=torch.float64), dim=0).tolist()
    posteriors = [document_posterior(one, options.model) for one in scored]
    log_probs = [one.log_prob for one in scored]
    best = log_probs.index(max(log_probs))
    return Scores(
        tuple(starmap(TargetScore, zip(targets, log_probs, shares, posteriors, strict=True))),
        _passages(retrieved, log_prior, posteriors[best], targets[best]),
        options.model,
        source,
    )


def _retrievals(found: _Searched) -> list[Retrieval]:
    return [
        Retrieval(_passages(retrieved, log_prior, log_prior.exp().tolist(), ""), found.source)
        for retrieved, log_prior in zip(found.retrieved, found.log_prior, strict=True)
    ]


def _passages(
    retrieved: RetrievedPassages, log_prior: Tensor, posterior: Sequence[float], answer: str
) -> tuple[AnswerPassage, ...]:
    """The passages as an answer shows them, by rank: log_prior (K,), posterior of length K."""
    return tuple(
        AnswerPassage(rank, passage, doc_score, prior, share, provenance.answer_spans(answer, passage.text))
        for rank, (passage, doc_score, prior, share) in enumerate(
            zip(retrieved.passages, retrieved.doc_scores, log_prior.exp().tolist(), posterior, strict=True), start=1
        )
    )
