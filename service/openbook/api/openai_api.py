"""The calls of OpenAI's API, so that the clients that people have can ask: a version of the index is a model."""

import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from datetime import datetime
from typing import TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from openbook import errors
from openbook.api.access import TheServices, TheSettings, TheWriter
from openbook.api.body import JsonRoute
from openbook.api.composition import Services
from openbook.api.openai_requests import ChatCompletionRequest, OpenAIBody, ResponsesRequest
from openbook.api.openai_responses import (
    NAME,
    ChatCompletionResponse,
    ModelResponse,
    ModelsResponse,
    OpenAIResponse,
    model_name,
)
from openbook.api.openai_streams import ChatStream, OpenAIStream, ResponsesStream
from openbook.api.openapi import BODY_PROBLEMS, problem_responses
from openbook.api.questions import FILTER_PROBLEMS, STREAMED, answered, leave_facts, written
from openbook.api.streaming import Event
from openbook.api.writing import Writer
from openbook.application.live_index import Resident
from openbook.entities import Answer
from openbook.errors import IndexNotResident, InvalidRequest, ModelNotFound, UnknownIndex
from openbook.settings import Settings
from openbook_client.results import IndexVersion as Index

S = TypeVar("S", bound=OpenAIStream)

ASKING_PROBLEMS = problem_responses(
    *(errors.InvalidRequest, *FILTER_PROBLEMS),
    *(errors.ModelNotFound, errors.RetrieverUnavailable, errors.NotCalibrated, errors.ResponseTooLarge),
    *(errors.Overloaded, errors.NoLiveIndex, errors.IndexUnreachable, errors.DeadlineExceeded),
    http=BODY_PROBLEMS,
    openai=True,
)

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["OpenAI"])


@router.get("/models", responses=problem_responses(openai=True))
async def models(services: TheServices) -> ModelsResponse:
    """The live version, as `openbook`, and every open version under its own name."""
    return ModelsResponse(data=list(_models(services)))


@router.get("/models/{model}", responses=problem_responses(errors.ModelNotFound, openai=True))
async def model(model: str, services: TheServices) -> ModelResponse:
    """One of the models."""
    for one in _models(services):
        if one.id == model:
            return one
    raise _not_found(model, services)


@router.post("/chat/completions", response_model=ChatCompletionResponse, responses={200: STREAMED, **ASKING_PROBLEMS})
async def chat_completions(
    body: ChatCompletionRequest, request: Request, services: TheServices, settings: TheSettings, writer: TheWriter
) -> Response:
    """Answer the last turn of the user; with `stream` in chunks, as the answer is made."""
    if body.stream:
        return await _begun(ChatStream, body, request, services, settings, writer)
    answer = await _answer(body, request, services, settings)
    named = {"request_id": request.state.request_id, "created": int(time.time())}
    special = services.engine.facts.special_tokens
    return await written(
        writer, lambda: ChatCompletionResponse.of(answer, body, special, **named).model_dump_json(), answer
    )


@router.post("/responses", response_model=OpenAIResponse, responses={200: STREAMED, **ASKING_PROBLEMS})
async def responses(
    body: ResponsesRequest, request: Request, services: TheServices, settings: TheSettings, writer: TheWriter
) -> Response:
    """Answer the input, or the last turn of the user in it; with `stream` in events, as the answer is made."""
    if body.stream:
        return await _begun(ResponsesStream, body, request, services, settings, writer)
    begun = OpenAIResponse.begun(body, model=body.model, request_id=request.state.request_id, created=int(time.time()))
    answer = await _answer(body, request, services, settings)
    special = services.engine.facts.special_tokens
    return await written(writer, lambda: begun.answered(answer, body, special).model_dump_json(), answer)


async def _answer(body: OpenAIBody, request: Request, services: Services, settings: Settings) -> Answer:
    asked, version = body.asked(settings), _version(body.model, services)
    with _in_its_words(body, services):
        options, timeout_s = asked.options(settings, services.engine), asked.timeout(settings)
        coming = services.answer_question.answer(asked.question, options, timeout_s=timeout_s, index=version)
        return await answered(request, asked, coming)


async def _begun(
    stream: Callable[..., S],
    body: OpenAIBody,
    request: Request,
    services: Services,
    settings: Settings,
    writer: Writer,
) -> S:
    """A stream that has its first event, or has waited long for it."""
    asked, version = body.asked(settings), _version(body.model, services)

    async def told() -> AsyncGenerator[Event]:
        with _in_its_words(body, services):
            options, timeout_s = asked.options(settings, services.engine), asked.timeout(settings)
            coming = services.answer_question.stream(asked.question, options, timeout_s=timeout_s, index=version)
            async with aclosing(coming):
                async for event in coming:
                    yield event

    begun = stream(request, told(), writer, lambda found: leave_facts(request, asked, found), body, services.engine)
    await begun.begin()
    return begun


@contextmanager
def _in_its_words(body: OpenAIBody, services: Services) -> Iterator[None]:
    """Let an error name what the client sent: the fields of this body, and a model where we have a version."""
    try:
        yield
    except InvalidRequest as error:
        raise error.renamed(body.name_of(str(error.data["field"]))) from error
    except (UnknownIndex, IndexNotResident) as error:
        raise _not_found(body.model, services) from error


def _version(model: str, services: Services) -> str | None:
    """The version that the model names; None for the live one. Raises ModelNotFound for a name of another kind."""
    name, _, version = model.partition(":")
    if name != NAME or (":" in model and not version):
        raise _not_found(model, services)
    return version or None


def _models(services: Services) -> Iterator[ModelResponse]:
    residents = [one for one in services.live.residents() if not one.retiring]
    for resident in residents:
        if resident.live:
            yield _model(NAME, resident)
    for resident in residents:
        yield _model(model_name(resident.index.version), resident)


def _model(name: str, resident: Resident) -> ModelResponse:
    try:
        created = int(datetime.fromisoformat(resident.created_at).timestamp())
    except ValueError:
        created = 0
    return ModelResponse(id=name, created=created, openbook=Index.model_validate(resident.index))


def _not_found(model: str, services: Services) -> ModelNotFound:
    return ModelNotFound(model=model, known=tuple(one.id for one in _models(services)))
