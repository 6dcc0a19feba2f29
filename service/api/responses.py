"""What goes out over HTTP, as the OpenAPI page documents it."""

import math
from typing import Annotated

from pydantic import BaseModel, Field

from service.application.answer_question import Retrieval, Scores
from service.application.live_index import Resident
from service.application.swap_index import SwapReport
from service.entities import Answer, AnswerPassage, IndexInfo, IndexVersion, ModelKind, PosteriorKind, StageSeconds


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
    doc_score: Annotated[float, Field(description="Inner product of the question's and the passage's vectors.")]
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
    answers: list[OneAnswer]
    passages: list[ProvenancePassage]
    tokens: list[Token]
    posterior_kind: Annotated[
        PosteriorKind,
        Field(description="per_token: p(z | x, y_i, y_<i) of RAG-Token. running: p(z | x, y_1..i) of RAG-Sequence."),
    ]
    index: Index
    checkpoint: str
    seconds: Seconds

    @classmethod
    def of(cls, answer: Answer) -> "AnswerResponse":
        return cls(
            answer=answer.answers[0].text,
            log_prob=answer.answers[0].log_prob,
            model=answer.model,
            answers=[OneAnswer(text=one.text, log_prob=one.log_prob) for one in answer.answers],
            passages=[ProvenancePassage.of(passage) for passage in answer.passages],
            tokens=[
                Token(text=token.text, log_prob=token.log_prob, posterior=list(token.posterior))
                for token in answer.tokens
            ],
            posterior_kind=answer.posterior_kind,
            index=Index.of(answer.index),
            checkpoint=answer.checkpoint,
            seconds=Seconds.of(answer.seconds),
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
    index: Index
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
            index=Index.of(scores.index),
            checkpoint=scores.checkpoint,
            seconds=Seconds.of(scores.seconds),
        )


class RetrieveResponse(BaseModel):
    passages: list[RetrievedPassage]
    index: Index
    checkpoint: str
    seconds: Seconds

    @classmethod
    def of(cls, retrieval: Retrieval) -> "RetrieveResponse":
        return cls(
            passages=[RetrievedPassage.of(passage) for passage in retrieval.passages],
            index=Index.of(retrieval.index),
            checkpoint=retrieval.checkpoint,
            seconds=Seconds.of(retrieval.seconds),
        )


class FileResponse(BaseModel):
    bytes: int
    sha256: str


class ManifestResponse(BaseModel):
    """One version on disk, as its manifest has it."""

    version: str
    n_passages: int
    dimension: int
    index_type: str
    encoder_name: str
    encoder_fingerprint: str
    created_at: str
    snapshot_date: str | None
    source: str
    licence: str
    search: dict[str, int]
    files: dict[str, FileResponse]

    @classmethod
    def of(cls, info: IndexInfo) -> "ManifestResponse":
        return cls(
            version=info.version,
            n_passages=info.n_passages,
            dimension=info.dimension,
            index_type=info.index_type,
            encoder_name=info.encoder_name,
            encoder_fingerprint=info.encoder_fingerprint,
            created_at=info.created_at,
            snapshot_date=info.snapshot_date,
            source=info.source,
            licence=info.licence,
            search=dict(info.search),
            files={name: FileResponse(bytes=file.bytes, sha256=file.sha256) for name, file in info.files.items()},
        )


class ResidentIndex(Index):
    bytes: Annotated[int, Field(description="Held by this version once all its pages are read.")]

    @classmethod
    def of_resident(cls, resident: Resident) -> "ResidentIndex":
        return cls(**Index.of(resident.index).model_dump(), bytes=resident.bytes)


class IndexesResponse(BaseModel):
    live: Annotated[Index | None, Field(description="What a question asked now is answered from.")]
    resident: Annotated[
        list[ResidentIndex], Field(description="Open now: the live one, and those that questions still read.")
    ]
    versions: Annotated[list[str], Field(description="On disk, ready to be swapped in.")]
    checkpoint: str


class SwapResponse(BaseModel):
    version: str
    previous: str | None
    generation: int
    durable: Annotated[
        bool, Field(description="False: CURRENT could not be written, and a restart comes back on another version.")
    ]
    seconds: Annotated[dict[str, float], Field(description="Of each stage, and in total.")]

    @classmethod
    def of(cls, report: SwapReport) -> "SwapResponse":
        return cls(
            version=report.version,
            previous=report.previous,
            generation=report.generation,
            durable=report.durable,
            seconds=report.seconds,
        )


class ReadyResponse(BaseModel):
    status: str
    index: Index
    checkpoint: str


class AliveResponse(BaseModel):
    status: str


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
