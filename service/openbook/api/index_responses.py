"""The bodies that describe the index and the service, as the OpenAPI page documents them.

A route returns the data of the rooms below. FastAPI reads the fields of these models from its attributes.
"""

from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from openbook.api.problems import shown
from openbook.api.responses import Index
from openbook.application.follow_current import FollowProblem
from openbook.application.live_index import Resident
from openbook.entities import MetadataType, ModelKind

# Anyone may read these: bounded, and without a path of the disk. The log has the whole.
Shown = Annotated[str, AfterValidator(shown)]


class FileResponse(BaseModel):
    bytes: int
    sha256: str


class Bm25Response(BaseModel):
    """How the BM25 scores of a version were made."""

    k1: float
    b: float
    analyser: str
    n_terms: Annotated[int, Field(description="Different words in the passages.")]


class LineageResponse(BaseModel):
    """What a version was made from, and how they differ."""

    base: str
    base_manifest: Annotated[str, Field(description="sha256 of the base's manifest.json.")]
    added: int
    changed: int
    removed: int
    embedded: Annotated[int, Field(description="Passages whose text the base lacked.")]
    relinked: Annotated[int, Field(description="Vectors that a graph or lists lost or gained since made as a whole.")]


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
    attribution: Annotated[str, Field(description="What a reader of the text must be shown; empty where nothing.")]
    factory: Annotated[
        str, Field(description="The FAISS factory string of the index; empty where the manifest lacks it.")
    ]
    index_reason: Annotated[str, Field(description="Why the index is of its type; empty where nobody said.")]
    search: Annotated[dict[str, int], Field(description="How thoroughly it is searched, unless a question says.")]
    files: dict[str, FileResponse]
    bm25: Annotated[
        Bm25Response | None,
        Field(description="null: no question with retriever bm25 or hybrid."),
    ]
    lineage: Annotated[LineageResponse | None, Field(description="Of an update; null: built from its source.")]
    passages_format: Annotated[
        int, Field(description="2 where passages have a url, section, date or metadata; 1 where they have none.")
    ]
    metadata: Annotated[
        dict[str, MetadataType], Field(description="The type of each free field of the passages, by its name.")
    ]


class ResidentIndex(Index):
    bytes: Annotated[int, Field(description="Held by this version once all its pages are read.")]
    live: Annotated[bool, Field(description="A question that names no version is answered from this one.")]
    retiring: Annotated[bool, Field(description="Closes when the last question that reads it has ended.")]
    leases: Annotated[int, Field(description="Questions that read it now.")]

    @classmethod
    def of_resident(cls, resident: Resident) -> "ResidentIndex":
        return cls.model_validate(asdict(resident.index) | asdict(resident))


class PriorResponse(BaseModel):
    """The weights of the hybrid retriever: doc_score = dense * inner product + bm25 * BM25 score."""

    model_config = ConfigDict(from_attributes=True)

    dense: float
    bm25: float


class IndexesResponse(BaseModel):
    live: Annotated[Index | None, Field(description="A question asked now is answered from this version.")]
    resident: Annotated[
        list[ResidentIndex],
        Field(description="Open now: the live version, versions that a question may name, and versions still read."),
    ]
    versions: Annotated[list[str], Field(description="On disk, ready to be swapped in.")]
    checkpoint: str
    model: Annotated[ModelKind, Field(description="Of the checkpoint: answers a question that names no model.")]
    max_no_answer: Annotated[
        float | None, Field(description='What abstain "calibrated" means; null: such questions are refused.')
    ]
    prior: Annotated[
        PriorResponse | None,
        Field(description="What the checkpoint weighs retriever hybrid with; null: such questions are refused."),
    ]
    reranker: Annotated[
        str | None, Field(description="What scores for retriever reranked; null: such questions are refused.")
    ]
    feedback: Annotated[bool, Field(description="Whether POST /feedback keeps what readers say.")]


class SwapResponse(BaseModel):
    version: str
    previous: str | None
    generation: int
    durable: Annotated[
        bool, Field(description="False: CURRENT could not be written; a restart will load another version.")
    ]
    seconds: Annotated[dict[str, float], Field(description="Of each stage, and in total.")]


class LoadResponse(BaseModel):
    version: str
    seconds: Annotated[dict[str, float], Field(description="Of each stage, and in total.")]


class SwapProgressResponse(BaseModel):
    """The swap that is under way, or else the last one since the service started."""

    # no actor: anyone may read this, and only a client with the token may know who asked
    state: Literal["idle", "running", "done", "failed"]
    version: Annotated[Shown | None, Field(description="The version to make live, or to load.")]
    previous: Annotated[str | None, Field(description="The version that was live when the swap began.")]
    policy: Annotated[
        str | None, Field(description="availability, resource, or load: beside the live one, without a flip.")
    ]
    stage: Annotated[
        str | None,
        Field(description="pull, verify, open, drain, warm, flip or current: the running or the failed stage."),
    ]
    fraction: Annotated[float | None, Field(description="The share of the stage that is done, 0 to 1, where known.")]
    seconds: Annotated[dict[str, float], Field(description="Of each stage so far, and in total.")]
    started_at: Annotated[str | None, Field(description="ISO 8601, UTC.")]
    code: Annotated[str | None, Field(validation_alias="error", description="Of the error that ended it.")]
    detail: Shown


class SwapRecordResponse(BaseModel):
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


class HistoryResponse(BaseModel):
    swaps: Annotated[list[SwapRecordResponse], Field(description="Newest first, of every service on the folder.")]


class FollowingResponse(BaseModel):
    """Whether this service serves what CURRENT names. It keeps trying a version that it cannot serve."""

    ok: bool
    wanted: Annotated[Shown | None, Field(description="The version that CURRENT names and that cannot be served.")]
    code: Annotated[str | None, Field(description="Why it cannot: a code of the table of errors.")]
    detail: Shown
    since: Annotated[str | None, Field(description="Since when: ISO 8601, UTC.")]

    @classmethod
    def of(cls, problem: FollowProblem | None) -> "FollowingResponse":
        if problem is None:
            return cls(ok=True, wanted=None, code=None, detail="", since=None)
        return cls(ok=False, **asdict(problem))


class ReadyResponse(BaseModel):
    status: str
    index: Index
    checkpoint: str
    following: Annotated[
        FollowingResponse | None, Field(description="null: this service does not follow CURRENT (OPENBOOK_FOLLOW_S=0).")
    ]


class AliveResponse(BaseModel):
    status: str
