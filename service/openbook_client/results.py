"""What a call returns: the bodies of the service, frozen.

A field that a newer service adds is kept, so that `body()` is what was sent. Texts such as `model` are plain strings
for the same reason: a newer service may know more of them.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr


class Part(BaseModel):
    """A part of a body."""

    model_config = ConfigDict(frozen=True, extra="allow")

    def body(self) -> dict[str, Any]:
        """What the service sent, as it sent it."""
        return self.model_dump(mode="json", exclude_unset=True)


class Result(Part):
    """A whole body."""

    _request_id: str = PrivateAttr("")

    @property
    def request_id(self) -> str:
        """What finds the call in the service's log."""
        return self._request_id


class IndexVersion(Part):
    """Which book answered: the version, the swaps since the service started, the date of its text."""

    version: str
    generation: int
    snapshot_date: str | None


class StageSeconds(Part):
    queue: float
    encode: float
    retrieve: float
    generate: float
    total: float


class RetrievedPassage(Part):
    """`prior` is p(z | x), the softmax of `doc_score` over the passages retrieved.

    `url` opens the source, `section` is the headings above the text, `published` a date or a time in UTC.
    """

    rank: int
    passage_id: str
    title: str
    text: str
    url: str | None = None
    section: str | None = None
    published: str | None = None
    metadata: Mapping[str, str | int | float | bool | tuple[str, ...]] = {}
    doc_score: float
    prior: float


class Passage(RetrievedPassage):
    """`posterior` is its share in the answer; `answer_spans` are the characters [start, end) of `text` that hold it."""

    posterior: float
    answer_spans: tuple[tuple[int, int], ...]


class AnswerText(Part):
    text: str
    log_prob: float


class Token(Part):
    """`posterior` has one number for each passage, in the order of their rank."""

    text: str
    log_prob: float
    posterior: tuple[float, ...]


class Answer(Result):
    """`answer` is None where it is withheld (`abstained`); then `answers` are candidates."""

    answer: str | None
    abstained: bool
    log_prob: float
    model: str
    retriever: str
    search: Mapping[str, int]
    answers: tuple[AnswerText, ...]
    passages: tuple[Passage, ...]
    tokens: tuple[Token, ...]
    posterior_kind: str
    no_answer: float
    index: IndexVersion
    attribution: str
    checkpoint: str
    seconds: StageSeconds


class FieldError(Part):
    field: str
    reason: str


class Problem(Part):
    """RFC 9457. The clients raise it as Refused, but for one question of several."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str | None
    errors: tuple[FieldError, ...] = ()


class AnswerOrError(Part):
    """What became of one question of several: it has one of the two."""

    answer: Answer | None = None
    error: Problem | None = None


class Answers(Result):
    """Of each question, in the order asked."""

    results: tuple[AnswerOrError, ...]


class AnswerGroup(Part):
    answer: str | None
    versions: tuple[str, ...]


class Comparison(Result):
    """The answer of each version, and who says the same."""

    question: str
    agree: bool
    groups: tuple[AnswerGroup, ...]
    answers: tuple[Answer, ...]


class TargetScore(Part):
    """`log_prob` is log p(target | question), None for minus infinity, and `reason` says why it is; `probability` is
    over the given targets."""

    target: str
    log_prob: float | None
    probability: float
    posterior: tuple[float, ...]
    reason: str | None = None


class Scores(Result):
    best: str
    targets: tuple[TargetScore, ...]
    passages: tuple[Passage, ...]
    model: str
    retriever: str
    search: Mapping[str, int]
    index: IndexVersion
    attribution: str
    checkpoint: str
    seconds: StageSeconds


class Retrieval(Result):
    passages: tuple[RetrievedPassage, ...]
    retriever: str
    search: Mapping[str, int]
    index: IndexVersion
    attribution: str
    checkpoint: str
    seconds: StageSeconds


class FeedbackKept(Result):
    """`version` is of the index that the answer came from."""

    rating: str
    version: str


class Resident(IndexVersion):
    """An open version."""

    bytes: int
    live: bool
    retiring: bool
    leases: int


class PriorWeights(Part):
    dense: float
    bm25: float


class Indexes(Result):
    """The live version, the open versions, and those on disk."""

    live: IndexVersion | None
    resident: tuple[Resident, ...]
    versions: tuple[str, ...]
    checkpoint: str
    model: str
    max_no_answer: float | None
    prior: PriorWeights | None
    reranker: str | None
    feedback: bool


class FileInfo(Part):
    bytes: int
    sha256: str


class Bm25Info(Part):
    k1: float
    b: float
    analyser: str
    n_terms: int


class Lineage(Part):
    """`base_manifest` is the sha256 of the base's manifest; the counts are of passages."""

    base: str
    base_manifest: str
    added: int
    changed: int
    removed: int
    embedded: int
    relinked: int


class Manifest(Result):
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
    attribution: str
    factory: str
    index_reason: str
    search: Mapping[str, int]
    files: Mapping[str, FileInfo]
    bm25: Bm25Info | None
    lineage: Lineage | None
    passages_format: int
    metadata: Mapping[str, str]


class Swapped(Result):
    """`durable` is false where CURRENT could not be written: a restart comes back on another version."""

    version: str
    previous: str | None
    generation: int
    durable: bool
    seconds: Mapping[str, float]


class Loaded(Result):
    version: str
    seconds: Mapping[str, float]


class SwapProgress(Result):
    """The swap under way, or how the last one ended."""

    state: Literal["idle", "running", "done", "failed"]
    version: str | None
    previous: str | None
    policy: str | None
    stage: str | None
    fraction: float | None
    seconds: Mapping[str, float]
    started_at: str | None
    code: str | None
    detail: str


class SwapRecord(Part):
    time: str
    actor: str
    replica: str
    previous: str | None
    version: str
    policy: str
    outcome: str
    generation: int | None
    seconds: float
    detail: str


class History(Result):
    """Newest first."""

    swaps: tuple[SwapRecord, ...]


class Following(Part):
    """Whether the service serves what CURRENT names; else which version it cannot serve, why, and since when."""

    ok: bool
    wanted: str | None
    code: str | None
    detail: str
    since: str | None


class Ready(Result):
    status: str
    index: IndexVersion
    checkpoint: str
    following: Following | None
