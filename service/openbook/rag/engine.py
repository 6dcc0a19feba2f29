"""The whole model behind one door: questions and a leased snapshot in, answers with their provenance out.

The engine keeps nothing of a question and no index: the snapshot is an argument, so that no answer can read two
versions. The engine is safe to call from several threads.

Each call takes the questions of a batch and gives each the result that it has alone. Their `seconds` are those of the
batch. An error fails the whole batch. `between_steps` is called before each decoder step; an exception from it stops
the batch. Ignore the results of questions that it marks as abandoned. A listener hears of an answer before the call
ends; an exception from it stops the batch too. The generation of a `Source` is 0: the engine knows of no swaps.
"""

import math
import operator
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, starmap
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openbook.entities import (
    Answer,
    AnswerOptions,
    AnswerPassage,
    AnswerText,
    AnswerToken,
    Decoding,
    GeneratorStatus,
    Hypothesis,
    IndexVersion,
    LeftOut,
    MarginalKind,
    ModelKind,
    Passage,
    PosteriorKind,
    PriorWeights,
    Quote,
    Retrieval,
    RetrievedPassages,
    RetrieverChoice,
    RetrieverKind,
    Scores,
    Source,
    StageSeconds,
    TargetScore,
)
from openbook.errors import InvalidRequest, NotCalibrated, RetrieverUnavailable
from openbook.rag import provenance
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.decoder import BetweenSteps, nothing
from openbook.rag.decoding import document_posterior
from openbook.rag.evidence import evidence
from openbook.rag.generator import Generator
from openbook.rag.listening import NO_LISTENERS, Listeners, ToldTokens
from openbook.rag.marginal import doc_log_prior, without
from openbook.rag.open_generator import open_generator
from openbook.rag.reranker import Reranker
from openbook.rag.retriever import (
    Bm25Retriever,
    DenseRetriever,
    HybridRetriever,
    QuestionEncoder,
    RerankedRetriever,
    Retriever,
    Search,
)
from openbook.storage.snapshot import IndexSnapshot

# Passages that are read at once where each is judged alone: a client that has gone is noticed after so many.
READ_TOGETHER = 8
# A single prompt marginalises nothing: the prior stays as it is.
POSTERIOR_KINDS: dict[ModelKind, PosteriorKind] = {
    "token": "per_token",
    "sequence": "running",
    "single-prompt": "prior",
}
# What a generator that runs elsewhere says meanwhile: enough to hear a refusal.
NOTHING_SAID = AnswerOptions(model="sequence", decoding="fast", max_new_tokens=4)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine is. All but the last five fields are the checkpoint's; see `checkpoint.Facts`."""

    checkpoint: str
    """name@fingerprint, as answers give it."""
    encoder_fingerprint: str | None
    """The passage encoder whose vectors the question encoder was trained against; None where it is not said."""
    dimension: int
    """Of the question encoder's vectors, and so of every index that this engine can read."""
    model: MarginalKind
    """The model of a question that names none."""
    prior: PriorWeights | None
    """The weights of the hybrid retriever; None where the checkpoint has none."""
    max_no_answer: float | None
    """Above this `no_answer` the checkpoint would rather not answer; None where it has none."""
    most_docs: int
    """The passages of a question that names no number, where fewer leave it unanswered; 0: no more than those."""
    reranker: str | None
    special_tokens: frozenset[str]
    """The texts of tokens that are no part of an answer's words, such as the one that ends it."""
    decoding: Decoding
    """Of a question that names none."""
    joins_tokens: bool
    """Whether joining its tokens gives an answer's text; else the text is known only with the last token."""
    precision: str
    """Of the generator's products: float32, bfloat16, float64 or int8."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The passages of Q questions, and where they come from."""

    retrieved: Sequence[RetrievedPassages]
    source: Source


@dataclass(frozen=True, slots=True)
class Read:
    """What the generator read of K passages of each of Q questions; see `RagEngine.read`."""

    questions: Sequence[str]
    found: Searched
    log_prior: Tensor  # (Q, K)
    encoded: Any


class RagEngine:
    """Answers, scores and retrieves with one checkpoint, and one reranker where it is given."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        reranker: Reranker | None = None,
        *,
        generator: Generator | None = None,
        keep_weights: bool = True,
    ) -> None:
        """`generator` is one that was made of the checkpoint already. Without `keep_weights` the
        checkpoint serves no other engine, and no weight is in memory twice."""
        self._checkpoint = checkpoint
        facts = checkpoint.facts
        self._question_encoder = QuestionEncoder(checkpoint, keep_weights=keep_weights)
        self._retrievers: dict[RetrieverKind, Retriever] = {
            "dense": DenseRetriever(facts.prior_scale),
            "bm25": Bm25Retriever(),
        }
        if facts.prior is not None:
            self._retrievers["hybrid"] = HybridRetriever(facts.prior)
        if reranker is not None:
            self._retrievers["reranked"] = RerankedRetriever(reranker)
        if generator is None:
            generator = open_generator(checkpoint, keep_weights=keep_weights)
        self._generator = generator
        status = generator.status()
        self._facts = EngineFacts(
            checkpoint=checkpoint.name,
            encoder_fingerprint=facts.encoder_fingerprint,
            dimension=self._question_encoder.dimension,
            model=facts.model or "token",
            prior=facts.prior,
            max_no_answer=facts.max_no_answer,
            most_docs=facts.most_docs,
            reranker=reranker.name if reranker is not None else None,
            special_tokens=frozenset(generator.tokenizer.all_special_tokens),
            decoding="thorough" if status is None or "thorough" in status.decodings else "fast",
            joins_tokens=generator.quotes
            or not (checkpoint.uncased or generator.tokenizer.clean_up_tokenization_spaces),
            precision="int8" if checkpoint.int8 else str(checkpoint.question_encoder.dtype).removeprefix("torch."),
        )

    @property
    def facts(self) -> EngineFacts:
        """What the engine is now: the model of a generator that runs elsewhere may change."""
        return replace(self._facts, checkpoint=self._generator.called(self._checkpoint.name))

    def generator(self) -> GeneratorStatus | None:
        """The generator that runs elsewhere; None where it is the checkpoint's own."""
        return self._generator.status()

    def close(self) -> None:
        """Let go of what is held outside this process. Nothing may be asked afterwards."""
        self._generator.close()

    def retriever(self, choice: RetrieverChoice, snapshot: IndexSnapshot) -> RetrieverKind:
        """The retriever that `choice` means for this version.

        Raises RetrieverUnavailable where the version lacks BM25, RetrieverUnavailable, and NotCalibrated where the
        checkpoint lacks a prior.
        """
        has_bm25 = snapshot.info.bm25 is not None
        if choice == "auto":
            return "hybrid" if has_bm25 and "hybrid" in self._retrievers else "dense"
        if choice in ("bm25", "hybrid") and not has_bm25:
            raise RetrieverUnavailable(version=snapshot.info.version, retriever=choice)
        if choice in self._retrievers:
            return choice
        if choice == "hybrid":
            raise NotCalibrated(checkpoint=self.facts.checkpoint, asked="retriever 'hybrid'", fact="prior")
        raise RetrieverUnavailable("reranker", version=snapshot.info.version)

    def answer(
        self,
        questions: Sequence[str],
        snapshot: IndexSnapshot,
        options: AnswerOptions,
        between_steps: BetweenSteps = nothing,
        listeners: Listeners = NO_LISTENERS,
    ) -> list[Answer]:
        """The answer to each question, from n_docs passages, or from most_docs where n_docs do not answer it."""
        self._generator.check(options)
        self._generator.check_length("max_new_tokens", options.max_new_tokens)
        most = self._facts.max_no_answer
        if most is None or options.most_docs <= options.n_docs or options.n_docs >= _n_readable(snapshot, options):
            return self._answered(questions, snapshot, options, between_steps, listeners)
        # nobody hears of an answer that another one may replace
        first = {number: replace(one, max_no_answer=one.at_most(most)) for number, one in listeners.items()}
        answers = self._answered(questions, snapshot, options, between_steps, first)
        gone = between_steps() or ()
        doubtful = [number for number, one in enumerate(answers) if one.no_answer > most and number not in gone]
        further = replace(options, n_docs=options.most_docs)
        # of several questions no more rows are read together than before
        together = max(1, len(questions) * options.n_docs // options.most_docs)
        for at in range(0, len(doubtful), together):
            some = doubtful[at : at + together]
            heard = {place: listeners[number] for place, number in enumerate(some) if number in listeners}
            check = partial(_gone_of, some, between_steps)
            again = self._answered([questions[one] for one in some], snapshot, further, check, heard)
            for number, one in zip(some, again, strict=True):
                seconds = answers[number].source.seconds + one.source.seconds
                answers[number] = replace(one, source=replace(one.source, seconds=seconds))
        return answers

    def _answered(
        self,
        questions: Sequence[str],
        snapshot: IndexSnapshot,
        options: AnswerOptions,
        between_steps: BetweenSteps,
        listeners: Listeners,
    ) -> list[Answer]:
        found = self._find(questions, snapshot, options, between_steps)
        if listeners:
            retrievals = _retrievals(found)
            for number, listener in listeners.items():
                listener.tell(retrievals[number])
        between_steps()
        return self.answers(self.read(questions, found), options, between_steps, listeners)

    def score(
        self,
        questions: Sequence[str],
        targets: Sequence[str],
        snapshot: IndexSnapshot,
        options: AnswerOptions,
        between_steps: BetweenSteps = nothing,
    ) -> list[Scores]:
        """log p(target | question) of each target (section 3.4 classifies so), end-of-sequence included."""
        # refused before anything is searched
        self._generator.check(options)
        self._generator.target_ids(targets)
        found = self._find(questions, snapshot, options, between_steps)
        between_steps()
        return self.scores(self.read(questions, found), targets, options, between_steps)

    @torch.inference_mode()
    def retrieve(
        self,
        questions: Sequence[str],
        snapshot: IndexSnapshot,
        options: AnswerOptions,
        between_steps: BetweenSteps = nothing,
    ) -> list[Retrieval]:
        """The passages alone."""
        return _retrievals(self._find(questions, snapshot, options, between_steps))

    @torch.inference_mode()
    def read(self, questions: Sequence[str], found: Searched) -> Read:
        """Read K passages with each question, wherever they come from.

        K = 0 is the closed book of the paper's baselines: p(y | x) of the question alone. Raises InvalidRequest for a
        question that the generator cannot read.
        """
        started = time.perf_counter()
        doc_scores = torch.tensor([one.doc_scores for one in found.retrieved], dtype=torch.float64)  # (Q, K)
        if doc_scores.shape[1]:
            encoded = self._generator.encode(questions, [one.passages for one in found.retrieved])
        else:
            # one row with probability 1
            encoded = self._generator.encode_questions(questions)
            doc_scores = torch.zeros(len(questions), 1, dtype=torch.float64)  # (Q, 1)
        log_prior = _log_prior(doc_scores).to(self._checkpoint.device)  # (Q, K)
        # encode: everything that an encoder reads, the questions and the passages
        found = replace(found, source=_after(found.source, encode=time.perf_counter() - started))
        return Read(questions, found, log_prior, encoded)

    def answers(
        self,
        read: Read,
        options: AnswerOptions,
        between_steps: BetweenSteps = nothing,
        listeners: Listeners = NO_LISTENERS,
    ) -> list[Answer]:
        """Answer from what was read; `options` say how to decode."""
        with torch.inference_mode():  # a decorator would hold on to its arguments
            started = time.perf_counter()
            questions, found, log_priors = read.questions, read.found, read.log_prior
            self._generator.prepare(read.encoded, options, between_steps)
            start = self._generator.start(read.encoded)
            n_read = np.reshape(self._generator.n_read(read.encoded), (len(questions), -1)).sum(axis=1)  # (Q,)
            texts = self._generator.texts(read.encoded)
            del read  # the start has read it: what nobody else holds gives its memory back
            no_answer = self._no_answer(start, found, log_priors)  # Q
            n_docs = log_priors.shape[1]
            left_out = options.leave_one_out and n_docs > 1
            # K of Q
            no_answers = [self._no_answer(start, found, log_priors, left) for left in range(n_docs) if left_out]
            told = {
                number: ToldTokens(self._token_texts, listener.tell)
                for number, listener in listeners.items()
                if listener.max_no_answer is None or no_answer[number] <= listener.max_no_answer
            }
            decoded = self._generator.decode(start, log_priors, options, between_steps, told, texts)
            answers = [
                self._answer(question, retrieved, log_prior, best, options, empty, found.source)
                for question, retrieved, log_prior, best, empty in zip(
                    questions, found.retrieved, log_priors, decoded, no_answer, strict=True
                )
            ]
            for number, heard in told.items():
                if heard.tokens:
                    # computed together, the same tokens differ in a last digit
                    answers[number] = replace(answers[number], tokens=tuple(heard.tokens))
            if options.leave_one_out:
                answers = [
                    replace(answer, leave_one_out=self._left_out(question, retrieved, best[0].without, empty, options))
                    for answer, question, retrieved, best, *empty in zip(
                        answers, questions, found.retrieved, decoded, *no_answers, strict=True
                    )
                ]
            source = _after(found.source, generate=time.perf_counter() - started)
            # as it is called now: its model may have changed since the search
            source = replace(source, checkpoint=self.facts.checkpoint)
            return [
                replace(answer, source=source, n_read=n) for answer, n in zip(answers, n_read.tolist(), strict=True)
            ]

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], between_steps: BetweenSteps = nothing) -> tuple[NDArray[np.float32], int]:
        """The vectors (n, d) of the question encoder, of length 1, and the number of tokens that were read."""
        found, n_read = [np.empty((0, self._facts.dimension), dtype=np.float32)], 0
        for at in range(0, len(texts), READ_TOGETHER):
            between_steps()
            some = texts[at : at + READ_TOGETHER]
            found.append(self._question_encoder.encode(some))
            n_read += sum(map(len, self._question_encoder.token_ids(some)))
        vectors = np.concatenate(found)  # (n, d)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny), n_read

    @torch.inference_mode()
    def relevance(
        self, question: str, passages: Sequence[Passage], between_steps: BetweenSteps = nothing
    ) -> list[float]:
        """The probability that a passage answers the question, 1 - p(empty answer | x, z), of each passage alone."""
        found: list[float] = []
        for at in range(0, len(passages), READ_TOGETHER):
            between_steps()
            some = passages[at : at + READ_TOGETHER]
            # each as the one passage of a question of its own
            encoded = self._generator.encode([question] * len(some), [[one] for one in some])
            self._generator.prepare(encoded, NOTHING_SAID, between_steps)
            start = self._generator.start(encoded)
            alone = torch.zeros(len(some), 1, device=self._checkpoint.device)  # (n, 1)
            found += (-torch.expm1(self._generator.empty_log_prob(start, alone).double())).clamp(0, 1).tolist()
        return found

    @torch.inference_mode()
    def scores(
        self, read: Read, targets: Sequence[str], options: AnswerOptions, between_steps: BetweenSteps = nothing
    ) -> list[Scores]:
        """Score targets under what was read. Raises InvalidRequest for two targets that have the same tokens."""
        started = time.perf_counter()
        target_ids = self._generator.target_ids(targets)
        start = self._generator.start(read.encoded)
        scored = self._generator.score(start, read.log_prior, target_ids, options.model, between_steps)
        source = _after(read.found.source, generate=time.perf_counter() - started)
        return [
            _scores(targets, of_question, retrieved, log_prior, options, source, self._generator.why_not)
            for of_question, retrieved, log_prior in zip(scored, read.found.retrieved, read.log_prior, strict=True)
        ]

    @torch.inference_mode()
    def _find(
        self, questions: Sequence[str], snapshot: IndexSnapshot, options: AnswerOptions, between_steps: BetweenSteps
    ) -> Searched:
        if options.retriever == "bm25" and options.search:
            field = f"search.{options.search[0][0]}"
            raise InvalidRequest("search", field=field, searched="retriever bm25", known="none")
        chosen = self.retriever(options.retriever, snapshot)
        retriever = self._retrievers[chosen]
        n_docs = min(options.n_docs, len(snapshot)) if options.or_all else options.n_docs
        between_steps()
        # before anything is computed: a filter may not fit this version
        passing = time.perf_counter()
        allowed = snapshot.allowed(options.filter) if options.filter is not None else None  # (N,)
        started = time.perf_counter()
        vectors = np.empty((len(questions), 0), dtype=np.float32)  # (Q, 0)
        if retriever.reads_vectors:
            vectors = self._question_encoder.encode(questions)  # (Q, d)
        encoded = time.perf_counter()
        asked = Search(questions, vectors, snapshot, n_docs, options.search, allowed, between_steps)
        retrieved = retriever.search(asked)
        if options.without:
            retrieved = [_without(one, options.without) for one in retrieved]
        seconds = StageSeconds(encode=encoded - started, retrieve=time.perf_counter() - encoded + started - passing)
        info = snapshot.info
        index = IndexVersion(info.version, 0, info.snapshot_date)
        source = Source(index, info.attribution, self.facts.checkpoint, chosen, options.search, seconds)
        return Searched(retrieved, source)

    def _no_answer(self, start: Any, found: Searched, log_prior: Tensor, left: int | None = None) -> list[float]:
        """p(no passage answers | x) of each question; without a calibration for its retriever p(empty answer | x).

        Of the passages but `left`, where it is given: log_prior (Q, K).
        """
        if left is not None:
            log_prior = without(log_prior, left)
        empty: list[float] = self._generator.empty_log_prob(start, log_prior).exp().tolist()
        weights = self._checkpoint.facts.no_answer
        if weights is None or found.source.retriever != "hybrid":
            return empty
        least = self._least_empty(start, log_prior) if weights.least else [1.0] * len(empty)
        return [
            weights.probability(one, sum(map(operator.mul, prior, retrieved.coverage)), of_one)
            for one, of_one, prior, retrieved in zip(
                empty, least, log_prior.exp().tolist(), found.retrieved, strict=True
            )
        ]

    def _least_empty(self, start: Any, log_prior: Tensor) -> list[float]:
        """The smallest p(empty answer | x, z) of each question, over the passages that have a prior: (Q, K)."""
        alone = torch.full_like(log_prior, -torch.inf).expand(log_prior.shape[1], -1, -1).clone()  # (K, Q, K)
        for k, of_passage in enumerate(alone):
            of_passage[:, k] = 0.0
        each = torch.stack([self._generator.empty_log_prob(start, one).cpu().exp() for one in alone], dim=1)  # (Q, K)
        least: list[float] = each.masked_fill(log_prior.cpu() == -torch.inf, 1.0).amin(dim=1).tolist()
        return least

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
        texts = _written(question, zip(retrieved.passages, posterior, strict=False))
        answers = tuple(
            AnswerText(
                self._text(one, texts),
                one.log_prob,
                n_tokens=len(one.token_ids),
                ended=one.token_ids[-1] == self._generator.eos,
            )
            for one in best
        )
        token_texts, quote = self._token_texts(best[0]), best[0].quote
        passages = _passages(retrieved, log_prior, posterior, answers[0].text, quote)
        return Answer(
            answers=answers,
            tokens=tuple(
                starmap(AnswerToken, zip(token_texts, best[0].token_log_probs, best[0].posterior, strict=True))
            ),
            passages=passages,
            model=options.model,
            posterior_kind=POSTERIOR_KINDS[options.model],
            no_answer=no_answer,
            source=source,
            evidence=evidence(question, answers[0].text, passages, quote.weights if quote else ()),
            audit=best[0].audit,
        )

    def _left_out(
        self,
        question: str,
        retrieved: RetrievedPassages,
        best: Sequence[Hypothesis],
        no_answers: Sequence[float],
        options: AnswerOptions,
    ) -> tuple[LeftOut, ...]:
        """What is said of one question without each of its passages: an answer and a `no_answer` of each."""
        found = []
        for k, (one, no_answer) in enumerate(zip(best, no_answers, strict=True)):
            posterior = document_posterior(one, options.model)
            both = list(zip(retrieved.passages, posterior, strict=True))
            text = self._text(one, _written(question, [*both[:k], *both[k + 1 :]]))
            found.append(LeftOut(k + 1, retrieved.passages[k].passage_id, text, one.log_prob, no_answer, posterior))
        return tuple(found)

    def _token_texts(self, hypothesis: Hypothesis) -> Sequence[str]:
        if hypothesis.quote is not None:
            return hypothesis.quote.token_texts
        return self._generator.token_texts(hypothesis.token_ids)

    def _text(self, hypothesis: Hypothesis, texts: Sequence[str]) -> str:
        if hypothesis.quote is not None:
            return hypothesis.quote.text
        text = self._generator.text(hypothesis.token_ids)
        return provenance.as_written(text, texts) if self._checkpoint.uncased else text


def _without(retrieved: RetrievedPassages, left_out: Sequence[str]) -> RetrievedPassages:
    """The passages of other ids. Raises InvalidRequest where there is none."""
    kept = [k for k, one in enumerate(retrieved.passages) if one.passage_id not in left_out]
    if retrieved.passages and not kept:
        reason = f"names all {len(retrieved)} passages that were retrieved, which leaves none to read"
        raise InvalidRequest(field="without", reason=reason)
    return RetrievedPassages(
        tuple(retrieved.rows[k] for k in kept),
        tuple(retrieved.passages[k] for k in kept),
        tuple(retrieved.doc_scores[k] for k in kept),
        tuple(retrieved.coverage[k] for k in kept if retrieved.coverage),
    )


def _written(question: str, passages: Iterable[tuple[Passage, float]]) -> list[str]:
    """The texts that say how the words of an answer are written, the likeliest passage first; each has its posterior.

    Where no passage's text has a word, its heading or the question may still say it.
    """
    best_first = [passage for passage, _ in sorted(passages, key=lambda one: -one[1])]
    return [*(passage.text for passage in best_first), *(passage.heading for passage in best_first), question]


def _n_readable(snapshot: IndexSnapshot, options: AnswerOptions) -> int:
    """How many passages of the version a question may be answered from."""
    return len(snapshot) if options.filter is None else int(np.count_nonzero(snapshot.allowed(options.filter)))


def _gone_of(some: Sequence[int], between_steps: BetweenSteps) -> list[int]:
    """The places in `some` of the questions that nobody waits for any more."""
    gone = between_steps() or ()
    return [place for place, number in enumerate(some) if number in gone]


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
    why_not: str | None,
) -> Scores:
    """The targets of one question: log_prior (K,). `why_not` says why one of them is impossible."""
    both = torch.tensor([one.log_prob for one in scored], dtype=torch.float64)  # (T,)
    # 0 for each where none is possible
    shares = torch.softmax(both, dim=0).nan_to_num().tolist()
    reasons = [why_not if one.log_prob == -math.inf else None for one in scored]
    posteriors = [document_posterior(one, options.model) for one in scored]
    log_probs = [one.log_prob for one in scored]
    best = log_probs.index(max(log_probs))
    return Scores(
        tuple(starmap(TargetScore, zip(targets, log_probs, shares, posteriors, reasons, strict=True))),
        _passages(retrieved, log_prior, posteriors[best], targets[best], scored[best].quote),
        options.model,
        source,
    )


def _retrievals(found: Searched) -> list[Retrieval]:
    log_priors = _log_prior(torch.tensor([one.doc_scores for one in found.retrieved], dtype=torch.float64))  # (Q, K)
    return [
        Retrieval(_passages(retrieved, log_prior, log_prior.exp().tolist(), ""), found.source)
        for retrieved, log_prior in zip(found.retrieved, log_priors, strict=True)
    ]


def _log_prior(doc_scores: Tensor) -> Tensor:
    """(Q, K) in float64 -> (Q, K) in float32, in which generators add it to what they say."""
    return doc_log_prior(doc_scores).float()


def _passages(
    retrieved: RetrievedPassages,
    log_prior: Tensor,
    posterior: Sequence[float],
    answer: str,
    quote: Quote | None = None,
) -> tuple[AnswerPassage, ...]:
    """The passages as an answer shows them, by rank: log_prior (K,), posterior of length K."""
    spans = quote.spans if quote else [provenance.answer_spans(answer, one.text) for one in retrieved.passages]
    columns = (retrieved.passages, retrieved.doc_scores, log_prior.exp().tolist(), posterior, spans)
    return tuple(starmap(AnswerPassage, zip(count(1), *columns, strict=False)))
