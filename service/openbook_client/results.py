"""The records that a call returns. The service makes its bodies from these classes, and a client reads them.

A field that a newer service adds is kept, so that `body()` is what was sent. Texts such as `model` are plain strings
for the same reason: a newer service may know more of them. The document of the service names those that it knows.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

ModelName = Annotated[str, Field(json_schema_extra={"enum": ["token", "sequence"]})]
AnsweringName = Annotated[str, Field(json_schema_extra={"enum": ["token", "sequence", "single-prompt"]})]
RetrieverName = Annotated[str, Field(json_schema_extra={"enum": ["dense", "bm25", "hybrid", "reranked"]})]
RatingName = Annotated[str, Field(json_schema_extra={"enum": ["up", "down"]})]
MetadataTypeName = Annotated[
    str, Field(json_schema_extra={"enum": ["string", "integer", "number", "boolean", "date", "strings"]})
]
Search = Annotated[Mapping[str, int], Field(description="What the question asked for in place of the manifest's.")]
Attribution = Annotated[str, Field(description="What a reader of the passages must be shown; empty where nothing.")]
Seconds = Annotated[Mapping[str, float], Field(description="Of each stage, and in total.")]


class Part(BaseModel):
    """A part of a body. `model_validate` also takes an object that has the fields as attributes."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        from_attributes=True,
        ser_json_inf_nan="null",
        # the service leaves no field out
        json_schema_serialization_defaults_required=True,
    )

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
    """Which book answered."""

    version: str
    generation: Annotated[int, Field(description="Swaps since the service started.")]
    snapshot_date: Annotated[str | None, Field(description="The date of the text in the index.")]


class StageSeconds(Part):
    queue: float
    encode: float
    retrieve: float
    generate: float
    total: float


class _RankFirst(Part):
    """The last parent: its field comes before all others."""

    rank: int


class PassageText(Part):
    """A passage as its source has it."""

    passage_id: str
    title: str
    text: str
    url: Annotated[str | None, Field(description="Opens the source: http or https.")] = None
    section: Annotated[str | None, Field(description='The headings above the text, " > " between.')] = None
    published: Annotated[
        str | None, Field(description="A date, 2018-12-20, or a time in UTC, 2018-12-20T10:00:00Z.")
    ] = None
    metadata: Annotated[
        Mapping[str, str | int | float | bool | tuple[str, ...]],
        Field(description="Free fields, of the types that the version declares."),
    ] = {}


class RetrievedPassage(PassageText, _RankFirst):
    doc_score: Annotated[
        float,
        Field(
            description="Inner product of the question's and the passage's vectors, their BM25 score, or a sum of both."
        ),
    ]
    prior: Annotated[float, Field(description="p(z | x): the softmax of doc_score over the passages retrieved.")]


class Passage(RetrievedPassage):
    posterior: Annotated[float, Field(description="The share of this passage in the answer.")]
    answer_spans: Annotated[
        tuple[tuple[int, int], ...], Field(description="Where the answer stands in text: characters [start, end).")
    ]


class Evidence(Part):
    """A sentence, list item, table row or code block that the answer stands on."""

    rank: Annotated[int, Field(description="Of its passage.")]
    passage_id: str
    text: str
    start: Annotated[int, Field(description="Where it stands in the passage's text: characters [start, end).")]
    end: int
    share: Annotated[float, Field(description="Of the posterior: what the answer's spans in it carry.")]


class AnswerText(Part):
    text: str
    log_prob: float


class Token(Part):
    text: str
    log_prob: float
    posterior: Annotated[tuple[float, ...], Field(description="Over the passages, in the order of their rank.")]


class LeftOut(Part):
    """What the answer would be, had this passage not been retrieved."""

    rank: int
    passage_id: str
    answer: Annotated[str | None, Field(description="null: it would be withheld.")]
    log_prob: float
    no_answer: float
    posterior: Annotated[
        tuple[float, ...], Field(description="Over the passages, in the order of their rank: 0 for this one.")
    ]


class Sentence(Part):
    """A sentence of an answer, and what it stands on."""

    text: str
    start: Annotated[int, Field(description="Where it stands in the answer: characters [start, end).")]
    end: int
    supported: Annotated[
        bool | None, Field(description="Whether the passages make it likelier than it is without; null: not measured.")
    ]
    support: Annotated[
        tuple[float, ...] | None,
        Field(description="By how much its log-prob falls without each passage, in the order of their rank."),
    ]
    support_of_all: Annotated[float | None, Field(description="By how much it falls without any passage.")]


class Audit(Part):
    """What the sentences of a single prompt's answer stand on: measured, not said by the model."""

    sentences: tuple[Sentence, ...]
    reason: Annotated[str | None, Field(description="Why nothing was measured; null where it was.")]


class Answer(Result):
    answer: Annotated[str | None, Field(description="null: withheld, since no_answer is above the limit.")]
    abstained: Annotated[bool, Field(description="Whether the answer is withheld; answers then are candidates.")]
    understood_as: Annotated[
        str | None, Field(description="The question that was answered, completed by history; null: as it was asked.")
    ] = None
    log_prob: float
    model: AnsweringName
    retriever: RetrieverName
    search: Search
    answers: tuple[AnswerText, ...]
    passages: tuple[Passage, ...]
    evidence: Annotated[tuple[Evidence, ...], Field(description="At most three, the largest share first.")] = ()
    tokens: tuple[Token, ...]
    posterior_kind: Annotated[
        str,
        Field(
            description="per_token: p(z | x, y_i, y_<i) of RAG-Token. running: p(z | x, y_1..i) of RAG-Sequence. "
            "prior: p(z | x), since a single prompt marginalises nothing.",
            json_schema_extra={"enum": ["per_token", "running", "prior"]},
        ),
    ]
    no_answer: Annotated[
        float,
        Field(description="That no passage answers the question, from what its passages say and hold of it."),
    ]
    leave_one_out: Annotated[
        tuple[LeftOut, ...] | None,
        Field(description="Without each passage; null: not asked for. Empty where there is one passage."),
    ] = None
    audit: Annotated[Audit | None, Field(description="Of model single-prompt; null of every other.")] = None
    index: IndexVersion
    attribution: Attribution
    checkpoint: str
    seconds: StageSeconds


class FieldError(Part):
    field: str
    reason: str


class BrokenAnswer(Part):
    """A guarded question, what its answer breaks, and the answers of the live version and of the refused one."""

    question: str
    broken: str
    before: str | None
    after: str | None


class Problem(Part):
    """RFC 9457. Every error of the service has this body. The clients raise it, but for one question of several."""

    type: str
    title: str
    status: int
    detail: Annotated[str, Field(description="What is wrong with this request, for people.")]
    code: Annotated[str, Field(description="What is wrong, for programs. Stable.")]
    request_id: str | None
    errors: tuple[FieldError, ...] = ()
    broken: Annotated[tuple[BrokenAnswer, ...], Field(description="Of guard_failed: the first 20.")] = ()
    n_broken: Annotated[int | None, Field(description="Of guard_failed: all of them.")] = None


class AnswerOrError(Part):
    """What became of one question of several: it has one of the two."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    answer: Annotated[Answer | None, Field(description="The body of /answer.")] = None
    error: Annotated[Problem | None, Field(description="The problem that /answer would end with.")] = None


class Answers(Result):
    results: Annotated[tuple[AnswerOrError, ...], Field(description="Of each question, in the order asked.")]


class AnswerGroup(Part):
    answer: Annotated[str | None, Field(description="As the first of the versions words it; null: they abstain.")]
    versions: tuple[str, ...]


class Comparison(Result):
    question: str
    agree: Annotated[
        bool, Field(description="Whether all versions say the same, but for case, articles and punctuation.")
    ]
    groups: Annotated[tuple[AnswerGroup, ...], Field(description="Who says what: one entry for each answer.")]
    answers: Annotated[tuple[Answer, ...], Field(description="Of each version, in the order asked for.")]


class TargetScore(Part):
    target: str
    log_prob: Annotated[float | None, Field(description="log p(target | question); null for minus infinity.")]
    probability: Annotated[float, Field(description="p(target | question) over the given targets.")]
    posterior: tuple[float, ...]
    reason: Annotated[str | None, Field(description="Why the checkpoint cannot say the target; null where it can.")] = (
        None
    )


class Scores(Result):
    best: Annotated[str | None, Field(description="null where the checkpoint can say none of the targets.")]
    targets: tuple[TargetScore, ...]
    passages: tuple[Passage, ...]
    model: ModelName
    retriever: RetrieverName
    search: Search
    index: IndexVersion
    attribution: Attribution
    checkpoint: str
    seconds: StageSeconds


class Retrieval(Result):
    passages: tuple[RetrievedPassage, ...]
    retriever: RetrieverName
    search: Search
    index: IndexVersion
    attribution: Attribution
    checkpoint: str
    seconds: StageSeconds


class PassageInPlace(Result):
    """A passage within its document."""

    passage: PassageText
    before: Annotated[PassageText | None, Field(description="Ends where it begins; null: it is the first.")]
    after: Annotated[PassageText | None, Field(description="Begins where it ends; null: it is the last.")]
    page: Annotated[int | None, Field(description="Of the document, where that has pages.")]
    index: IndexVersion
    attribution: Attribution


class FeedbackKept(Result):
    """What was kept."""

    rating: RatingName
    version: Annotated[str, Field(description="Of the index that the answer came from.")]


class Resident(IndexVersion):
    """An open version."""

    bytes: Annotated[int, Field(description="Held by this version once all its pages are read.")]
    live: Annotated[bool, Field(description="A question that names no version is answered from this one.")]
    retiring: Annotated[bool, Field(description="Closes when the last question that reads it has ended.")]
    leases: Annotated[int, Field(description="Questions that read it now.")]


class PriorWeights(Part):
    """The weights of the hybrid retriever: doc_score = dense * inner product + bm25 * BM25 score."""

    dense: float
    bm25: float


class GeneratorStatus(Part):
    """A language model that a server runs in place of the checkpoint's generator."""

    model: str
    decodings: Annotated[
        tuple[Literal["thorough", "fast"], ...],
        Field(description="Without thorough the server tells no probability of given words: /score is refused, too."),
    ]
    problem: Annotated[str | None, Field(description="Why it does not answer now.")]


class GuardCheck(Part):
    """How a version answered what the service guards."""

    version: str
    time: str
    questions: int
    broken: Annotated[int, Field(description="Whose answers break what they must hold.")]
    left: Annotated[int, Field(description="Not asked: the time of a check was up.")]


class Indexes(Result):
    live: Annotated[IndexVersion | None, Field(description="A question asked now is answered from this version.")]
    resident: Annotated[
        tuple[Resident, ...],
        Field(description="Open now: the live version, versions that a question may name, and versions still read."),
    ]
    versions: Annotated[tuple[str, ...], Field(description="On disk, ready to be swapped in.")]
    checkpoint: str
    model: Annotated[ModelName, Field(description="Of the checkpoint: answers a question that names no model.")]
    max_no_answer: Annotated[
        float | None, Field(description='What abstain "calibrated" means; null: such questions are refused.')
    ]
    prior: Annotated[
        PriorWeights | None,
        Field(description="What the checkpoint weighs retriever hybrid with; null: such questions are refused."),
    ]
    reranker: Annotated[
        str | None, Field(description="What scores for retriever reranked; null: such questions are refused.")
    ]
    generator: Annotated[GeneratorStatus | None, Field(description="null: the checkpoint's own answers.")] = None
    last_check: Annotated[
        GuardCheck | None, Field(description="The last one of this service; null: none since it started.")
    ] = None
    feedback: Annotated[bool, Field(description="Whether POST /feedback keeps what readers say.")]
    offers: Annotated[tuple[str, ...], Field(description="What else POST /answer gives where asked: a receipt.")] = ()


class FileInfo(Part):
    bytes: int
    sha256: str


class Bm25Info(Part):
    """How the BM25 scores of a version were made."""

    k1: float
    b: float
    analyser: str
    n_terms: Annotated[int, Field(description="Different words in the passages.")]


class Lineage(Part):
    """What a version was made from, and how they differ."""

    base: str
    base_manifest: Annotated[str, Field(description="sha256 of the base's manifest.json.")]
    added: int
    changed: int
    removed: int
    embedded: Annotated[int, Field(description="Passages whose text the base lacked.")]
    relinked: Annotated[int, Field(description="Vectors that a graph or lists lost or gained since made as a whole.")]


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
    attribution: Annotated[str, Field(description="What a reader of the text must be shown; empty where nothing.")]
    factory: Annotated[
        str, Field(description="The FAISS factory string of the index; empty where the manifest lacks it.")
    ]
    index_reason: Annotated[str, Field(description="Why the index is of its type; empty where nobody said.")]
    search: Annotated[Mapping[str, int], Field(description="How thoroughly it is searched, unless a question says.")]
    files: Mapping[str, FileInfo]
    bm25: Annotated[Bm25Info | None, Field(description="null: no question with retriever bm25 or hybrid.")]
    lineage: Annotated[Lineage | None, Field(description="Of an update; null: built from its source.")]
    passages_format: Annotated[
        int, Field(description="2 where passages have a url, section, date or metadata; 1 where they have none.")
    ]
    metadata: Annotated[
        Mapping[str, MetadataTypeName], Field(description="The type of each free field of the passages, by its name.")
    ]


class Swapped(Result):
    version: str
    previous: str | None
    generation: int
    durable: Annotated[
        bool, Field(description="False: CURRENT could not be written; a restart will load another version.")
    ]
    seconds: Seconds


class Loaded(Result):
    version: str
    seconds: Seconds


class SwapProgress(Result):
    """The swap that is under way, or else the last one since the service started."""

    state: Literal["idle", "running", "done", "failed"]
    version: Annotated[str | None, Field(description="The version to make live, or to load.")]
    previous: Annotated[str | None, Field(description="The version that was live when the swap began.")]
    policy: Annotated[
        str | None,
        Field(description="availability, resource, or load: beside the live one, without a flip; check: closed again."),
    ]
    stage: Annotated[
        str | None,
        Field(description="pull, verify, open, drain, warm, guard, flip or current: the running or the failed stage."),
    ]
    fraction: Annotated[float | None, Field(description="The share of the stage that is done, 0 to 1, where known.")]
    seconds: Annotated[Mapping[str, float], Field(description="Of each stage so far, and in total.")]
    started_at: Annotated[str | None, Field(description="ISO 8601, UTC.")]
    code: Annotated[str | None, Field(description="Of the error that ended it.")]
    detail: str


class SwapRecord(Part):
    """One swap of the past, or the refusal of one."""

    time: Annotated[str, Field(description="When it ended: ISO 8601, UTC.")]
    actor: Annotated[str, Field(description="Who asked: x-openbook-actor, else the client's address.")]
    replica: Annotated[str, Field(description="Which service did it.")]
    previous: str | None
    version: str
    policy: str
    outcome: Annotated[str, Field(description="ok, not_durable, or the code of the error that ended it.")]
    generation: Annotated[int | None, Field(description="Of that service after the swap; null where there was none.")]
    seconds: float
    detail: str


class History(Result):
    swaps: Annotated[tuple[SwapRecord, ...], Field(description="Newest first, of every service on the folder.")]


class Following(Part):
    """Whether this service serves what CURRENT names. It keeps trying a version that it cannot serve."""

    ok: bool
    wanted: Annotated[str | None, Field(description="The version that CURRENT names and that cannot be served.")]
    code: Annotated[str | None, Field(description="Why it cannot: a code of the table of errors.")]
    detail: str
    since: Annotated[str | None, Field(description="Since when: ISO 8601, UTC.")]


class Ready(Result):
    status: str
    index: IndexVersion
    checkpoint: str
    following: Annotated[
        Following | None, Field(description="null: this service does not follow CURRENT (OPENBOOK_FOLLOW_S=0).")
    ]
    generator: Annotated[GeneratorStatus | None, Field(description="null: the checkpoint's own answers.")] = None
