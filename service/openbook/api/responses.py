"""What goes out over HTTP for a question, as the OpenAPI page documents it; and what goes out for an error.

A response is read from the attributes of an entity: `AnswerResponse.model_validate(answer)`.
"""

import math
from typing import Annotated

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from openbook.entities import ModelKind, PosteriorKind, RetrieverKind
from openbook.storage.feedback import Rating


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


class _Response(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class Index(_Response):
    version: str
    generation: Annotated[int, Field(description="Swaps since the service started.")]
    snapshot_date: Annotated[str | None, Field(description="The date of the text in the index.")]


class Seconds(_Response):
    queue: float
    encode: float
    retrieve: float
    generate: float
    total: float


# The fields of an entity's `source`, which a body spreads.
Retriever = Annotated[RetrieverKind, Field(validation_alias=AliasPath("source", "retriever"))]
Search = Annotated[
    dict[str, int],
    BeforeValidator(dict),
    Field(
        validation_alias=AliasPath("source", "search"),
        description="What the question asked for in place of the manifest's.",
    ),
]
SourceIndex = Annotated[Index, Field(validation_alias=AliasPath("source", "index"))]
Attribution = Annotated[
    str,
    Field(
        validation_alias=AliasPath("source", "attribution"),
        description="What a reader of the passages must be shown; empty where nothing.",
    ),
]
CheckpointName = Annotated[str, Field(validation_alias=AliasPath("source", "checkpoint"))]
SourceSeconds = Annotated[Seconds, Field(validation_alias=AliasPath("source", "seconds"))]


class RetrievedPassage(_Response):
    rank: int
    passage_id: Annotated[str, Field(validation_alias=AliasPath("passage", "passage_id"))]
    title: Annotated[str, Field(validation_alias=AliasPath("passage", "title"))]
    text: Annotated[str, Field(validation_alias=AliasPath("passage", "text"))]
    url: Annotated[
        str | None, Field(validation_alias=AliasPath("passage", "url"), description="Opens the source: http or https.")
    ]
    section: Annotated[
        str | None,
        Field(
            validation_alias=AliasPath("passage", "section"), description='The headings above the text, " > " between.'
        ),
    ]
    published: Annotated[
        str | None,
        Field(
            validation_alias=AliasPath("passage", "published"),
            description="A date, 2018-12-20, or a time in UTC, 2018-12-20T10:00:00Z.",
        ),
    ]
    metadata: Annotated[
        dict[str, str | int | float | bool | list[str]],
        BeforeValidator(dict),
        Field(
            validation_alias=AliasPath("passage", "metadata"),
            description="Free fields, of the types that the version declares.",
        ),
    ]
    doc_score: Annotated[
        float,
        Field(
            description="Inner product of the question's and the passage's vectors, their BM25 score, or a sum of both."
        ),
    ]
    prior: Annotated[float, Field(description="p(z | x): the softmax of doc_score over the passages retrieved.")]


class ProvenancePassage(RetrievedPassage):
    posterior: Annotated[float, Field(description="The share of this passage in the answer.")]
    answer_spans: Annotated[
        list[tuple[int, int]], Field(description="Where the answer stands in text: characters [start, end).")
    ]


class OneAnswer(_Response):
    text: str
    log_prob: float


class Token(_Response):
    text: str
    log_prob: float
    posterior: Annotated[list[float], Field(description="Over the passages, in the order of their rank.")]


class AnswerResponse(_Response):
    answer: Annotated[
        str | None, Field(validation_alias="text", description="null: withheld, since no_answer is above the limit.")
    ]
    abstained: Annotated[bool, Field(description="Whether the answer is withheld; answers then are candidates.")]
    log_prob: Annotated[float, Field(validation_alias=AliasPath("answers", 0, "log_prob"))]
    model: ModelKind
    retriever: Retriever
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
        Field(description="That no passage answers the question, from p(empty answer | x) and the best doc_score."),
    ]
    index: SourceIndex
    attribution: Attribution
    checkpoint: CheckpointName
    seconds: SourceSeconds


class AnswerOrError(BaseModel):
    """What became of one question: it has one of the two."""

    answer: Annotated[AnswerResponse | None, Field(description="The body of /answer.")] = None
    error: Annotated["ProblemResponse | None", Field(description="The problem that /answer would end with.")] = None


class AnswersResponse(BaseModel):
    results: Annotated[list[AnswerOrError], Field(description="Of each question, in the order asked.")]


class AnswerGroupResponse(_Response):
    answer: Annotated[str | None, Field(description="As the first of the versions words it; null: they abstain.")]
    versions: list[str]


class CompareResponse(_Response):
    question: str
    agree: Annotated[
        bool, Field(description="Whether all versions say the same, but for case, articles and punctuation.")
    ]
    groups: Annotated[list[AnswerGroupResponse], Field(description="Who says what: one entry for each answer.")]
    answers: Annotated[list[AnswerResponse], Field(description="Of each version, in the order asked for.")]


class TargetProbability(_Response):
    target: str
    log_prob: Annotated[
        float | None,
        BeforeValidator(_finite),
        Field(description="log p(target | question); null for minus infinity."),
    ]
    probability: Annotated[float, Field(description="p(target | question) over the given targets.")]
    posterior: list[float]
    reason: Annotated[str | None, Field(description="Why the checkpoint cannot say the target; null where it can.")] = (
        None
    )


class ScoreResponse(_Response):
    best: str
    targets: list[TargetProbability]
    passages: list[ProvenancePassage]
    model: ModelKind
    retriever: Retriever
    search: Search
    index: SourceIndex
    attribution: Attribution
    checkpoint: CheckpointName
    seconds: SourceSeconds


class RetrieveResponse(_Response):
    passages: list[RetrievedPassage]
    retriever: Retriever
    search: Search
    index: SourceIndex
    attribution: Attribution
    checkpoint: CheckpointName
    seconds: SourceSeconds


class FeedbackResponse(BaseModel):
    """What was kept."""

    rating: Rating
    version: Annotated[str, Field(description="Of the index that the answer came from.")]


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
