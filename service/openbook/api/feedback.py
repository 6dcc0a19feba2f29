"""The call of readers: whether an answer was right, and what it should have been."""

from fastapi import APIRouter

from openbook import errors
from openbook.api.access import TheServices
from openbook.api.body import JsonRoute
from openbook.api.openapi import BODY_PROBLEMS, problem_responses
from openbook.api.schemas import FeedbackRequest
from openbook.errors import FeedbackDisabled
from openbook_client import results

FEEDBACK_PROBLEMS = problem_responses(
    *(errors.InvalidRequest, errors.FeedbackDisabled, errors.UnknownAnswer, errors.FeedbackNotKept),
    http=BODY_PROBLEMS,
)

router = APIRouter(route_class=JsonRoute, tags=["questions"])


@router.post("/feedback", responses=FEEDBACK_PROBLEMS)
async def feedback(body: FeedbackRequest, services: TheServices) -> results.FeedbackKept:
    """Say whether an answer of this service was right. It is on the disk when the call returns."""
    if services.feedback is None:
        raise FeedbackDisabled
    record = services.feedback.record(body.request_id, body.rating, body.correction)
    await services.readers.run(services.feedback.keep_record, record)
    return results.FeedbackKept(rating=record.rating, version=record.version)
