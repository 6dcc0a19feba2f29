"""The switch `receipt` of POST /answer, and the calls that show a receipt and answer it again."""

from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeGuard

from fastapi import APIRouter
from starlette.responses import Response

from openbook import __version__, errors
from openbook.api.body import JSON
from openbook.api.calls import Addition, Call, Routes, TheCall, additions
from openbook.api.openapi import problem_responses
from openbook.api.page import filled_page, wants_page
from openbook.api.questions import QUESTION_PROBLEMS
from openbook.api.schemas import AnswerRequest
from openbook.entities import Answer, IndexInfo
from openbook.errors import IndexNotResident, InvalidRequest, OpenbookError, UnknownIndex
from openbook.plugins.receipts.comparing import compared
from openbook.plugins.receipts.folder import ReceiptFolder, UnknownReceipt
from openbook.plugins.receipts.settings import ReceiptsSettings
from openbook.plugins.receipts.signing import (
    FORMAT,
    altered,
    canonical,
    manifest_sha256,
    passage_sha256,
    read_receipt,
    signed,
)
from openbook.settings import Settings
from openbook_client import results

ID_BYTES = 16
# Not of the question, or said by the receipt in another place.
LEFT_OUT = {"question", "index", "timeout_s", "stream"}

router = APIRouter(prefix="/receipts", tags=["questions"])
routes = Routes(router)


class VersionGone(UnknownIndex):
    message = (
        "The version {version!r} of this receipt is gone, and cannot answer again. GET /receipts/{id} has the passages "
        "that it read. At {time} it said {answer!r:.200} to {question!r:.200}"
    )

    def __init__(self, **said: Any) -> None:
        OpenbookError.__init__(self, **said)


def _check(call: Call) -> None:
    _folder(call)


async def _make(call: Call, asked: AnswerRequest, found: Answer) -> str:
    folder = _folder(call)
    content = await _content(call, asked, found)
    receipt = await call.services.readers.run(lambda: signed(content, folder.key()))
    receipt_id: str = content["id"]
    await call.services.readers.run(folder.keep, receipt_id, canonical(receipt))
    return receipt_id


def _kept(settings: Settings) -> TypeGuard[ReceiptsSettings]:
    return isinstance(settings, ReceiptsSettings) and settings.receipts is not None


def _always(settings: Settings) -> bool:
    return _kept(settings) and settings.receipts_always


addition = Addition(
    "Keep a signed receipt of the answer; `receipt` of the response is its id.", _check, _make, _always, _kept
)


@router.get(
    "/{receipt_id}",
    response_model=dict[str, Any],
    responses={
        200: {
            "description": "The receipt; as a page where the header Accept names text/html.",
            "content": {"text/html": {}},
        },
        **problem_responses(errors.InvalidRequest, UnknownReceipt),
    },
)
async def receipt(receipt_id: str, call: TheCall) -> Response:
    """A receipt as it was signed."""
    content = await call.services.readers.run(_folder(call).read, receipt_id)
    if wants_page(call.request):
        return _page_of(read_receipt(content, receipt_id))
    return Response(content, media_type=JSON)


@router.get("/{receipt_id}/replay", response_model=dict[str, Any], responses=QUESTION_PROBLEMS)
async def replay(receipt_id: str, call: TheCall) -> Response:
    """Answer the question of a receipt again: from its version, and from the live one."""
    folder = _folder(call)
    then = read_receipt(await call.services.readers.run(folder.read, receipt_id), receipt_id)
    wrong = altered(then, await call.services.readers.run(folder.key))
    if wrong:
        raise InvalidRequest(field="receipt", reason=f"it was altered since it was signed: {', '.join(wrong)}")
    version = then["index"]["version"]
    try:
        found, asked = await _again(call, then, version)
    except UnknownIndex as error:
        said = {name: then[name] for name in ("id", "time", "answer", "question")}
        raise VersionGone(version=version, **said) from error
    now = await _content(call, asked, found)
    live = found
    if call.services.live.now() != found.source.index:
        live, _ = await _again(call, then, None)
    replayed = {"id": receipt_id, **compared(then, now), "now": _said(found), "live": _said(live)}
    return Response(canonical(replayed), media_type=JSON)


def _folder(call: Call) -> ReceiptFolder:
    settings = call.settings
    if not isinstance(settings, ReceiptsSettings) or settings.receipts is None:
        reason = "this service keeps none: its operator names a folder for them by OPENBOOK_RECEIPTS"
        raise InvalidRequest(field="receipt", reason=reason)
    return ReceiptFolder(settings.receipts, settings.receipts_mb << 20)


async def _again(call: Call, then: Mapping[str, Any], version: str | None) -> tuple[Answer, AnswerRequest]:
    asked = AnswerRequest.model_validate({"question": then["question"], **then["options"], "index": version})
    return await call.answer(asked), asked


def _said(found: Answer) -> dict[str, Any]:
    return {
        "answer": found.answer,
        "log_prob": found.log_prob,
        "no_answer": found.no_answer,
        "index": results.IndexVersion.model_validate(found.index).body(),
    }


def _manifest(call: Call, version: str) -> IndexInfo:
    """Of a version that answered a moment ago: where a swap has closed it since, as it is on the disk."""
    try:
        with call.services.live.lease(version) as lease:
            return lease.snapshot.info
    except IndexNotResident:
        return call.services.store.info(version)


async def _content(call: Call, asked: AnswerRequest, found: Answer) -> dict[str, Any]:
    """The body of the answer, with what it was made from; nothing of who asked."""
    body = results.Answer.model_validate(found).model_dump(mode="json", exclude={"seconds"})
    options = asked.options(call.settings, call.services.engine)
    given = asked.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=LEFT_OUT | set(additions()))
    # what the service chose where the question did not: another service may choose otherwise
    chosen = {
        **{"model": options.model, "decoding": options.decoding, "num_beams": options.num_beams},
        **{"retriever": found.retriever},
        "abstain": "never" if options.max_no_answer is None else {"max_no_answer": options.max_no_answer},
    }
    sha256 = manifest_sha256(await call.services.readers.run(_manifest, call, found.index.version))
    return {
        **{"format": FORMAT, "id": token_hex(ID_BYTES), "time": datetime.now(UTC).isoformat(timespec="seconds")},
        **{"question": asked.question, "options": given | chosen},
        **body,
        "index": body["index"] | {"manifest_sha256": sha256},
        "passages_sha256": [passage_sha256(one.title, one.text) for one in found.passages],
        "engine": {"version": __version__, "precision": call.services.engine.facts.precision},
    }


def _page_of(then: Mapping[str, Any]) -> Response:
    """To keep and to print. Whatever a receipt holds becomes text."""
    index, engine = then["index"], then["engine"]
    both = zip(then["passages"], then["passages_sha256"], strict=True)
    passages = [
        f"<li><h4>{escape(one['title'] or one['passage_id'])}</h4><p class='small'>{escape(one['passage_id'])}, "
        f"posterior {one['posterior']:.4f}, prior {one['prior']:.4f}, sha256 {sha256}</p>"
        f"<p class='text'>{escape(one['text'])}</p></li>"
        for one, sha256 in both
    ]
    tokens = ", ".join(f"{one['text'].strip()} ({one['log_prob'] or 0:.4f})" for one in then["tokens"])
    facts = {
        "receipt": then["id"],
        "time": then["time"],
        "log p(answer)": then["log_prob"],
        "p(no answer)": then["no_answer"],
        "tokens": tokens,
        "options": canonical(then["options"]).decode(),
        "version": f"{index['version']}, text of {index['snapshot_date']}, manifest {index['manifest_sha256']}",
        "checkpoint": then["checkpoint"],
        "engine": f"openbook {engine['version']}, {engine['precision']}",
        "signature": then["signature"],
    }
    return filled_page(
        Path(__file__).parent / "receipt.html",
        question=escape(then["question"]),
        answer=escape("(withheld)" if then["answer"] is None else then["answer"]),
        facts="".join(
            f"<tr><th scope='row'>{name}</th><td>{escape(str(one))}</td></tr>" for name, one in facts.items()
        ),
        passages="".join(passages),
        attribution=escape(then["attribution"]),
    )
