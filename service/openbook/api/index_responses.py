"""What goes out over HTTP about the index and the service itself, as the OpenAPI page documents it."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from openbook.api.responses import Index
from openbook.application.follow_current import FollowProblem
from openbook.application.live_index import Resident
from openbook.application.swap_index import LoadReport, SwapReport
from openbook.application.swap_progress import SwapProgress
from openbook.entities import Bm25Info, IndexInfo
from openbook.storage.history import SwapRecord


class FileResponse(BaseModel):
    bytes: int
    sha256: str


class Bm25Response(BaseModel):
    """How the BM25 scores of a version were made."""

    k1: float
    b: float
    analyser: str
    n_terms: Annotated[int, Field(description="Different words in the passages.")]

    @classmethod
    def of(cls, bm25: Bm25Info) -> "Bm25Response":
        return cls(k1=bm25.k1, b=bm25.b, analyser=bm25.analyser, n_terms=bm25.n_terms)


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
        Bm25Response | None, Field(description="null: questions with retriever bm25 are refused for this version.")
    ]

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
            attribution=info.attribution,
            factory=info.factory,
            index_reason=info.index_reason,
            search=dict(info.search),
            files={name: FileResponse(bytes=file.bytes, sha256=file.sha256) for name, file in info.files.items()},
            bm25=Bm25Response.of(info.bm25) if info.bm25 is not None else None,
        )


class ResidentIndex(Index):
    bytes: Annotated[int, Field(description="Held by this version once all its pages are read.")]
    live: Annotated[bool, Field(description="What a question that names no version is answered from.")]
    retiring: Annotated[bool, Field(description="Closes when the last question that reads it has ended.")]
    leases: Annotated[int, Field(description="Questions that read it now.")]

    @classmethod
    def of_resident(cls, resident: Resident) -> "ResidentIndex":
        return cls(
            **Index.model_validate(resident.index).model_dump(),
            bytes=resident.bytes,
            live=resident.live,
            retiring=resident.retiring,
            leases=resident.leases,
        )


class IndexesResponse(BaseModel):
    live: Annotated[Index | None, Field(description="What a question asked now is answered from.")]
    resident: Annotated[
        list[ResidentIndex],
        Field(description="Open now: the live one, those that a question may name, and those that one still reads."),
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


class LoadResponse(BaseModel):
    version: str
    seconds: Annotated[dict[str, float], Field(description="Of each stage, and in total.")]

    @classmethod
    def of(cls, report: LoadReport) -> "LoadResponse":
        return cls(version=report.version, seconds=report.seconds)


class SwapProgressResponse(BaseModel):
    """The swap that is under way, or else the last one since the service started."""

    state: Literal["idle", "running", "done", "failed"]
    version: Annotated[str | None, Field(description="What is to be live, or to be loaded.")]
    previous: Annotated[str | None, Field(description="What was live when it began.")]
    policy: Annotated[
        str | None, Field(description="availability, resource, or load: beside the live one, without a flip.")
    ]
    stage: Annotated[
        str | None, Field(description="verify, open, drain, warm, flip or current: what is done, or what failed.")
    ]
    fraction: Annotated[float | None, Field(description="How much of the stage is done, 0 to 1, where that is known.")]
    seconds: Annotated[dict[str, float], Field(description="Of each stage so far, and in total.")]
    started_at: Annotated[str | None, Field(description="ISO 8601, UTC.")]
    code: Annotated[str | None, Field(description="Of the error that ended it.")]
    detail: str

    @classmethod
    def of(cls, progress: SwapProgress) -> "SwapProgressResponse":
        """Without the actor: anyone may look, and only who holds the token may know who asked."""
        return cls(
            state=progress.state,
            version=progress.version,
            previous=progress.previous,
            policy=progress.policy,
            stage=progress.stage,
            fraction=progress.fraction,
            seconds=dict(progress.seconds),
            started_at=progress.started_at,
            code=progress.error,
            detail=progress.detail,
        )


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

    @classmethod
    def of(cls, record: SwapRecord) -> "SwapRecordResponse":
        return cls(
            time=record.time,
            actor=record.actor,
            replica=record.replica,
            previous=record.previous,
            version=record.version,
            policy=record.policy,
            outcome=record.outcome,
            generation=record.generation,
            seconds=record.seconds,
            detail=record.detail,
        )


class HistoryResponse(BaseModel):
    swaps: Annotated[list[SwapRecordResponse], Field(description="Newest first, of every service on the folder.")]


class FollowingResponse(BaseModel):
    """Whether this service serves what CURRENT names. What cannot be followed is tried again by itself."""

    ok: bool
    wanted: Annotated[str | None, Field(description="The version that CURRENT names and that cannot be served.")]
    code: Annotated[str | None, Field(description="Why it cannot: a code of the table of errors.")]
    detail: str
    since: Annotated[str | None, Field(description="Since when: ISO 8601, UTC.")]

    @classmethod
    def of(cls, problem: FollowProblem | None) -> "FollowingResponse":
        if problem is None:
            return cls(ok=True, wanted=None, code=None, detail="", since=None)
        return cls(ok=False, wanted=problem.wanted, code=problem.code, detail=problem.detail, since=problem.since)


class ReadyResponse(BaseModel):
    status: str
    index: Index
    checkpoint: str
    following: Annotated[
        FollowingResponse | None, Field(description="null: this service does not follow CURRENT (OPENBOOK_FOLLOW_S=0).")
    ]


class AliveResponse(BaseModel):
    status: str
