"""The call that shows a passage within its document: as JSON, and to a browser as a page."""

from dataclasses import asdict
from html import escape

from fastapi import APIRouter
from starlette.responses import Response

from openbook import errors
from openbook.api.body import JSON
from openbook.api.calls import TheCall
from openbook.api.middleware import while_connected
from openbook.api.openapi import problem_responses
from openbook.api.page import WEB, filled_page, wants_page
from openbook.application.answer_question import FoundInPlace
from openbook.entities import Passage
from openbook_client import results
from openbook_client.links import passage_path

router = APIRouter(tags=["questions"])


@router.get(
    "/passages/{version}/{passage_id:path}",
    response_model=results.PassageInPlace,
    responses={
        200: {
            "description": "The passage; as a page where the header Accept names text/html.",
            "content": {"text/html": {}},
        },
        **problem_responses(
            *(errors.UnknownPassage, errors.UnknownIndex, errors.IndexNotResident),
            *(errors.Overloaded, errors.NoLiveIndex, errors.DeadlineExceeded),
        ),
    },
)
async def passage(version: str, passage_id: str, call: TheCall) -> Response:
    """A passage of an open version within its document: what stands before it, and what after it."""
    looking = call.services.answer_question.in_place(version, passage_id, timeout_s=call.settings.timeout_s)
    found = await while_connected(call.request, looking)
    if wants_page(call.request):
        return _page_of(found)
    return Response(_record_of(found).model_dump_json(), media_type=JSON)


def _record_of(found: FoundInPlace) -> results.PassageInPlace:
    place = found.place
    return results.PassageInPlace(
        passage=_text_of(place.passage),
        before=_text_of(place.before) if place.before is not None else None,
        after=_text_of(place.after) if place.after is not None else None,
        page=page_number(place.passage),
        index=results.IndexVersion.model_validate(found.index),
        attribution=found.attribution,
    )


def _text_of(passage: Passage) -> results.PassageText:
    return results.PassageText.model_validate(asdict(passage) | {"metadata": dict(passage.metadata)})


def page_number(passage: Passage) -> int | None:
    """The page of its document that it stands on, where that has pages."""
    page = dict(passage.metadata).get("page")
    return page if isinstance(page, int) else None


def _page_of(found: FoundInPlace) -> Response:
    """Whatever a passage holds becomes text."""
    place, version = found.place, found.index.version
    passage = place.passage
    page, path = page_number(passage), dict(passage.metadata).get("path")
    known = [path, f"page {page}" if page is not None else None, passage.section, passage.published]
    whence = [escape(str(one)) for one in known if one]
    if passage.url is not None:
        # of http or https: no version is built with another
        whence.append(_link(passage.url, passage.url))
    dated = f" of {found.index.snapshot_date}" if found.index.snapshot_date else ""
    return filled_page(
        WEB / "passage.html",
        here="passage" if page is None else f"page={page}",
        title=escape(passage.title or passage.passage_id),
        whence=" · ".join(whence),
        before=_neighbour(place.before, version, "Before it"),
        text=escape(passage.text),
        after=_neighbour(place.after, version, "After it"),
        named=escape(f"Passage {passage.passage_id} of {version}{dated}."),
        attribution=escape(found.attribution),
    )


def _neighbour(passage: Passage | None, version: str, where: str) -> str:
    if passage is None:
        return ""
    link = _link(passage_path(version, passage.passage_id, page_number(passage)), where)
    return f'<p class="small">{link}</p>\n<p class="text">{escape(passage.text)}</p>'


def _link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}" rel="noopener noreferrer">{escape(text)}</a>'
