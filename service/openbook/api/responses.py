"""What goes out over HTTP for a question, as the OpenAPI page documents it; and what goes out for an error."""

import math
from typing import Annotated

from pydantic import BaseModel, Field

from openbook.application.answer_question import Retrieval, Scores
from openbook.application.comparison import Comparison
from openbook.entities import Answer, AnswerPassage, IndexVersion, ModelKind, PosteriorKind, RetrieverKind, StageSeconds

Search = Annotated[dict[str, int], Field(description="What the question asked for in place of the manifest's.")]
Attribution = Annotated[str, Field(description="What a reader of the passages must be shown; empty where nothing.")]


class Index(BaseModel):
    version: str
    generation: Annotated[int, Field(description="Swaps since the service started.")]
    snapshot_date: Annotated[str | None, Field(description="The date of the text in the index.")]

    @classmethod
    def of(cls, index: IndexVersion) -> "Index":
        return cls(version=index.version, generation=index.generation, snapshot_date=index.snapshot_date)


class Seconds(BaseModel):
    queue: float
    encode: float
    retrieve: float
    generate: float
    total: float

    @classmethod
    def of(cls, seconds: StageSeconds) -> "Seconds":
        return cls(
            queue=seconds.queue,
            encode=seconds.encode,
            retrieve=seconds.retrieve,
            generate=seconds.generate,
            total=seconds.total,
        )


class RetrievedPassage(BaseModel):
    rank: int
    passage_id: str
    title: str
    text: str
    doc_score: Annotated[
        float, Field(description="Inner product of the question's and the passage's vectors, or the BM25 score.")
    ]
    prior: Annotated[float, Field(description="p(z | x): the softmax of doc_score over the passages retrieved.")]

    @classmethod
    def of(cls, found: AnswerPassage) -> "RetrievedPassage":
        return cls(
            rank=found.rank,
            passage_id=found.passage.passage_id,
            title=found.passage.title,
            text=found.passage.text,
            doc_score=found.doc_score,
            prior=found.prior,
        )


class ProvenancePassage(RetrievedPassage):
    posterior: Annotated[float, Field(description="The share of this passage in the answer.")]
    answer_spans: Annotated[
        list[tuple[int, int]], Field(description="Where the answer stands in text: characters [start, end).")
    ]

    @classmethod
    def of(cls, found: AnswerPassage) -> "ProvenancePassage":
        return cls(
            **RetrievedPassage.of(found).model_dump(),
            posterior=found.posterior,
            answer_spans=list(found.answer_spans),
        )


class OneAnswer(BaseModel):
    text: str
    log_prob: float


class Token(BaseModel):
    text: str
    log_prob: float
    posterior: Annotated[list[float], Field(description="Over the passages, in the order of their rank.")]


class AnswerResponse(BaseModel):
    answer: str
    log_prob: float
    model: ModelKind
    retriever: RetrieverKind
    search: Search
    answers: list[OneAnswer]
    passages: list[ProvenancePassage]
    tokens: list[Token]
    posterior_kind: Annotated[
        PosteriorKind,
        Field(description="per_token: p(z | x, y_i, y_<i) of RAG-Token. running: p(z | x, y_1..i) of RAG-Sequence."),
    ]
    no_answer: Annotated[
        float,
        Field(description="p(empty answer | x): to a checkpoint trained for it, that no passage answers the question."),
    ]
    index: Index
    attribution: Attribution
    checkpoint: str
    seconds: Seconds

    @classmethod
    def of(cls, answer: Answer) -> "AnswerResponse":
        return cls(
            answer=answer.answers[0].text,
            log_prob=answer.answers[0].log_prob,
            model=answer.model,
            retriever=answer.retriever,
            search=dict(answer.search),
            answers=[OneAnswer(text=one.text, log_prob=one.log_prob) for one in answer.answers],
            passages=[ProvenancePassage.of(passage) for passage in answer.passages],
            tokens=[
                Token(text=token.text, log_prob=token.log_prob, posterior=list(token.posterior))
                for token in answer.tokens
            ],
            posterior_kind=answer.posterior_kind,
            no_answer=answer.no_answer,
            index=Index.of(answer.index),
            attribution=answer.attribution,
            checkpoint=answer.checkpoint,
            seconds=Seconds.of(answer.seconds),
        )


class AnswerGroupResponse(BaseModel):
    answer: Annotated[str, Field(description="As the first of the versions words it.")]
    versions: list[str]


class CompareResponse(BaseModel):
    question: str
    agree: Annotated[
        bool, Field(description="Whether all versions say the same, but for case, articles and punctuation.")
    ]
    groups: Annotated[list[AnswerGroupResponse], Field(description="Who says what: one entry for each answer.")]
    answers: Annotated[list[AnswerResponse], Field(description="Of each version, in the order asked for.")]

    @classmethod
    def of(cls, question: str, comparison: Comparison) -> "CompareResponse":
        return cls(
            question=question,
            agree=comparison.agree,
            groups=[
                AnswerGroupResponse(answer=group.answer, versions=list(group.versions)) for group in comparison.groups
            ],
            answers=[AnswerResponse.of(answer) for answer in comparison.answers],
        )


class TargetProbability(BaseModel):
    target: str
    log_prob: Annotated[float | None, Field(description="log p(target | question); null for minus infinity.")]
    probability: Annotated[float, Field(description="p(target | question) over the given targets.")]
    posterior: list[float]


class ScoreResponse(BaseModel):
    best: str
    targets: list[TargetProbability]
    passages: list[ProvenancePassage]
    model: ModelKind
    retriever: RetrieverKind
    search: Search
    index: Index
    attribution: Attribution
    checkpoint: str
    seconds: Seconds

    @classmethod
    def of(cls, scores: Scores) -> "ScoreResponse":
        return cls(
            best=max(scores.targets, key=lambda one: one.log_prob).target,
            targets=[
                TargetProbability(
                    target=one.target,
                    log_prob=one.log_prob if math.isfinite(one.log_prob) else None,
                    probability=one.probability,
                    posterior=list(one.posterior),
                )
                for one in scores.targets
            ],
            passages=[ProvenancePassage.of(passage) for passage in scores.passages],
            model=scores.model,
            retriever=scores.retriever,
            search=dict(scores.search),
            index=Index.of(scores.index),
            attribution=scores.attribution,
            checkpoint=scores.checkpoint,
            seconds=Seconds.of(scores.seconds),
        )


class RetrieveResponse(BaseModel):
    passages: list[RetrievedPassage]
    retriever: RetrieverKind
    search: Search
    index: Index
    attribution: Attribution
    checkpoint: str
    seconds: Seconds

    @classmethod
    def of(cls, retrieval: Retrieval) -> "RetrieveResponse":
        return cls(
            passages=[RetrievedPassage.of(passage) for passage in retrieval.passages],
            retriever=retrieval.retriever,
            search=dict(retrieval.search),
            index=Index.of(retrieval.index),
            attribution=retrieval.attribution,
            checkpoint=retrieval.checkpoint,
            seconds=Seconds.of(retrieval.seconds),
        )


class FieldError(BaseModel):
    field: str
    reason: str


class ProblemResponse(BaseModel):
    """RFC 9457. Every error of this service has this body."""

    type: str
    title: str
    status: int
    detail: Annotated[str, Field(description="What is wrong with this request, for people.")]
    code: Annotated[str, Field(description="What is wrong, for programs. Stable.")]
    request_id: str | None
    errors: list[FieldError] = []
