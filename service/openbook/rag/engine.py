"""The whole model behind one door: a question and a leased snapshot in, an answer with its provenance out.

The engine keeps nothing of a question and no index: the snapshot is an argument, so that no answer can read two
versions. It is safe to call from several threads.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from openbook.entities import (
    AnswerOptions,
    AnswerText,
    AnswerToken,
    Hypothesis,
    ModelKind,
    RetrievedPassages,
    RetrieverKind,
    SearchChanges,
    StageSeconds,
    TargetScore,
)
from openbook.errors import SearchParameterUnknown
from openbook.rag import decoding, provenance
from openbook.rag.bm25_retriever import Bm25Retriever
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.decoder import BetweenSteps, DecoderState, nothing
from openbook.rag.engine_results import (
    EngineAnswer,
    EngineRetrieval,
    EngineScores,
    answer_passages,
    check_targets,
    document_posterior,
)
from openbook.rag.generator import EncodedPassages, Generator
from openbook.rag.marginal import doc_log_prior
from openbook.rag.retriever import DenseRetriever, QuestionEncoder
from openbook.storage.snapshot import IndexSnapshot


@dataclass(frozen=True, slots=True)
class _Read:
    """Q questions with their passages found and read."""

    retrieved: list[RetrievedPassages]
    log_prior: Tensor  # (Q, K)
    encoded: EncodedPassages
    seconds: StageSeconds


class RagEngine:
    """Answers, scores and retrieves with one checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._question_encoder = QuestionEncoder(checkpoint)
        self._dense = DenseRetriever(self._question_encoder)
        self._bm25 = Bm25Retriever()
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
        between_steps: BetweenSteps = nothing,
    ) -> EngineAnswer:
        """Answer one question. `between_steps` is called before each decoder step; what it raises ends the work."""
        return self.answer_together([question], snapshot, options, between_steps=between_steps)[0]

    @torch.inference_mode()
    def answer_together(
        self,
        questions: Sequence[str],
        snapshot: IndexSnapshot,
        options: AnswerOptions,
        *,
        between_steps: BetweenSteps = nothing,
    ) -> list[EngineAnswer]:
        """Answer several questions in one go, each as it would be answered alone.

        Their `seconds` are those of all together: so long did each of them take. What one question raises, all do. What
        comes back for a question that `between_steps` has named is not its answer, and nobody's.
        """
        self._generator.check_length("max_new_tokens", options.max_new_tokens)
        read = self._read(questions, snapshot, options.n_docs, options.retriever, options.search, between_steps)
        started = time.perf_counter()
        start = self._generator.start(read.encoded)
        no_answer = decoding.empty_log_prob(start, read.log_prior, self._generator.eos).exp()  # (Q,)
        decoded = self._decode(read, start, options, between_steps)
        answers = [
            self._answer(question, retrieved, log_prior, best[: options.num_answers], options.model, empty)
            for question, retrieved, log_prior, best, empty in zip(
                questions, read.retrieved, read.log_prior, decoded, no_answer.tolist(), strict=True
            )
        ]
        seconds = replace(read.seconds, generate=time.perf_counter() - started)
        return [replace(answer, seconds=seconds) for answer in answers]

    @torch.inference_mode()
    def score(
        self,
        question: str,
        targets: Sequence[str],
        snapshot: IndexSnapshot,
        *,
        n_docs: int,
        model: ModelKind,
        retriever: RetrieverKind = "dense",
        search: SearchChanges = (),
        between_steps: BetweenSteps = nothing,
    ) -> EngineScores:
        """log p(target | question) of each target (section 3.4 classifies so), end-of-sequence included."""
        target_ids = [tuple(self._generator.target_ids(target)) for target in targets]
        check_targets(targets, target_ids)
        read = self._read([question], snapshot, n_docs, retriever, search, between_steps)
        retrieved, log_prior = read.retrieved[0], read.log_prior[0]  # (K,)
        started = time.perf_counter()
        scored = decoding.score_targets(
            self._generator,
            read.encoded,
            log_prior,
            target_ids,
            sequence=model == "sequence",
            between_steps=between_steps,
        )
        shares = torch.softmax(torch.tensor([one.log_prob for one in scored], dtype=torch.float64), dim=0).tolist()
        posteriors = [document_posterior(one, model) for one in scored]
        best = max(range(len(scored)), key=lambda i: scored[i].log_prob)
        return EngineScores(
            targets=tuple(
                TargetScore(target, one.log_prob, share, posterior)
                for target, one, share, posterior in zip(targets, scored, shares, posteriors, strict=True)
            ),
            passages=answer_passages(retrieved, log_prior, posteriors[best], targets[best]),
            seconds=replace(read.seconds, generate=time.perf_counter() - started),
        )

    def retrieve(
        self, question: str, snapshot: IndexSnapshot, n_docs: int, *, retriever: RetrieverKind = "dense"
    ) -> EngineRetrieval:
        """The passages alone."""
        return self.retrieve_together([question], snapshot, n_docs, retriever=retriever)[0]

    @torch.inference_mode()
    def retrieve_together(
        self,
        questions: Sequence[str],
        snapshot: IndexSnapshot,
        n_docs: int,
        *,
        retriever: RetrieverKind = "dense",
        search: SearchChanges = (),
    ) -> list[EngineRetrieval]:
        """The passages of several questions, found in one go; `seconds` as of `answer_together`."""
        found, log_prior, seconds = self._find(questions, snapshot, n_docs, retriever, search)
        return [
            EngineRetrieval(answer_passages(retrieved, log_priors, log_priors.exp().tolist(), ""), seconds)
            for retrieved, log_priors in zip(found, log_prior, strict=True)
        ]

    def _find(
        self,
        questions: Sequence[str],
        snapshot: IndexSnapshot,
        n_docs: int,
        retriever: RetrieverKind,
        search: SearchChanges,
    ) -> tuple[list[RetrievedPassages], Tensor, StageSeconds]:
        """The passages of each question, and their doc_log_prior (Q, K)."""
        if retriever == "bm25" and search:
            raise SearchParameterUnknown(name=search[0][0], searched="retriever bm25")
        started = time.perf_counter()
        vectors = self._question_encoder.encode(questions) if retriever == "dense" else None  # (Q, d)
        encoded = time.perf_counter()
        retrieved = (
            self._bm25.retrieve(questions, snapshot, n_docs)
            if vectors is None
            else self._dense.search(vectors, snapshot, n_docs, search)
        )
        doc_scores = torch.tensor([one.doc_scores for one in retrieved], dtype=torch.float64)  # (Q, K)
        found = time.perf_counter()
        log_prior = doc_log_prior(doc_scores).float().to(self._checkpoint.device)  # (Q, K)
        return retrieved, log_prior, StageSeconds(encode=encoded - started, retrieve=found - encoded)

    def _read(
        self,
        questions: Sequence[str],
        snapshot: IndexSnapshot,
        n_docs: int,
        retriever: RetrieverKind,
        search: SearchChanges,
        between_steps: BetweenSteps,
    ) -> _Read:
        between_steps()
        retrieved, log_prior, seconds = self._find(questions, snapshot, n_docs, retriever, search)
        between_steps()
        started = time.perf_counter()
        encoded = self._generator.encode(questions, [one.passages for one in retrieved])
        # encode: everything that an encoder reads, the questions and the passages
        seconds = replace(seconds, encode=seconds.encode + time.perf_counter() - started)
        return _Read(retrieved, log_prior, encoded, seconds)

    def _decode(
        self, read: _Read, start: DecoderState, options: AnswerOptions, between_steps: BetweenSteps
    ) -> list[tuple[Hypothesis, ...]]:
        if options.model == "token":
            return decoding.rag_token(
                self._generator,
                read.encoded,
                read.log_prior,
                num_beams=options.num_beams,
                max_new_tokens=options.max_new_tokens,
                between_steps=between_steps,
                start=start,
            )
        return decoding.rag_sequence(
            self._generator,
            read.encoded,
            read.log_prior,
            num_beams=options.num_beams,
            max_new_tokens=options.max_new_tokens,
            thorough=options.decoding == "thorough",
            between_steps=between_steps,
            start=start,
        )

    def _answer(
        self,
        question: str,
        retrieved: RetrievedPassages,
        log_prior: Tensor,
        best: Sequence[Hypothesis],
        model: ModelKind,
        no_answer: float,
    ) -> EngineAnswer:
        """What the hypotheses of one question say, and of which passage: log_prior (K,)."""
        posterior = document_posterior(best[0], model)
        by_posterior = sorted(range(len(posterior)), key=lambda k: -posterior[k])
        best_first = [retrieved.passages[k] for k in by_posterior]
        # where no passage's text has a word, its title or the question may still say how it is written
        texts = [*(passage.text for passage in best_first), *(passage.title for passage in best_first), question]
        answers = tuple(AnswerText(self._text(one, texts), one.log_prob) for one in best)
        return EngineAnswer(
            answers=answers,
            tokens=self._tokens(best[0]),
            passages=answer_passages(retrieved, log_prior, posterior, answers[0].text),
            posterior_kind="per_token" if model == "token" else "running",
            no_answer=no_answer,
            seconds=StageSeconds(),
        )

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
