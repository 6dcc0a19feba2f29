"""The calls of OpenAI's API, so that the clients that people have can ask: a version of the index is a model."""

import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from datetime import datetime
from typing import TypeVar

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from openbook import errors
from openbook.api.body import JSON, JsonRoute
from openbook.api.calls import Call, Routes, TheCall
from openbook.api.logs import FACTS
from openbook.api.middleware import while_connected
from openbook.api.openapi import BODY_PROBLEMS, FILTER_PROBLEMS, STREAMED, problem_responses
from openbook.api.schemas import MAX_DOCS, AnswerRequest
from openbook.api.streaming import Event
from openbook.application.live_index import Resident
from openbook.entities import Answer, AnswerToken, Passage
from openbook.errors import IndexNotResident, InvalidRequest, UnknownIndex
from openbook.plugins.openai.problems import WORDS, ModelNotFound
from openbook.plugins.openai.requests import (
    ChatCompletionRequest,
    EmbeddingsRequest,
    ModelBody,
    OpenAIBody,
    RerankRequest,
    ResponsesRequest,
)
from openbook.plugins.openai.responses import (
    NAME,
    ChatCompletionResponse,
    EmbeddingsResponse,
    ModelResponse,
    ModelsResponse,
    OpenAIResponse,
    RerankResponse,
    linked,
    model_name,
)
from openbook.plugins.openai.streams import ChatStream, OpenAIStream, ResponsesStream
from openbook_client.results import IndexVersion as Index

S = TypeVar("S", bound=OpenAIStream)
R = TypeVar("R", bound=Response)
IGNORED = "x-openbook-ignored"
NO_COMPLETIONS = (
    "The service answers chats: call /v1/chat/completions. LlamaIndex does with OpenAILike(is_chat_model=True), "
    "LangChain with ChatOpenAI in place of OpenAI."
)

ASKING_PROBLEMS = problem_responses(
    *(errors.InvalidRequest, *FILTER_PROBLEMS),
    *(ModelNotFound, errors.RetrieverUnavailable, errors.NotCalibrated, errors.ResponseTooLarge),
    *(errors.Overloaded, errors.NoLiveIndex, errors.IndexUnreachable, errors.DeadlineExceeded),
    *(errors.GeneratorUnreachable, errors.GeneratorFailed, errors.GeneratorLacks),
    http=BODY_PROBLEMS,
    words=WORDS,
)

RERANKING_PROBLEMS = problem_responses(
    *(errors.InvalidRequest, ModelNotFound, errors.Overloaded, errors.DeadlineExceeded),
    http=BODY_PROBLEMS,
    words=WORDS,
)

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["OpenAI"])
routes = Routes(router, WORDS)


@router.get("/models", responses=problem_responses(words=WORDS))
async def models(call: TheCall) -> ModelsResponse:
    """The live version, as `openbook`, and every open version under its own name."""
    return ModelsResponse(data=list(_models(call)))


@router.get("/models/{model}", responses=problem_responses(ModelNotFound, words=WORDS))
async def model(model: str, call: TheCall) -> ModelResponse:
    """One of the models."""
    for one in _models(call):
        if one.id == model:
            return one
    raise _not_found(model, call)


@router.post("/chat/completions", response_model=ChatCompletionResponse, responses={200: STREAMED, **ASKING_PROBLEMS})
async def chat_completions(body: ChatCompletionRequest, call: TheCall) -> Response:
    """Answer the last turn of the user; with `stream` in chunks, as the answer is made."""
    if body.stream:
        return _said(body, await _begun(ChatStream, body, call))
    answer = await _answer(body, call)
    named = {"request_id": call.request.state.request_id, "created": int(time.time())}
    special = call.services.engine.facts.special_tokens
    written = await call.written(
        lambda: ChatCompletionResponse.of(answer, body, special, **named).model_dump_json(), answer
    )
    return _said(body, written)


@router.post("/completions", include_in_schema=False)
async def completions() -> Response:
    """Older clients call it by default: say what to set."""
    raise HTTPException(404, NO_COMPLETIONS)


@router.post("/responses", response_model=OpenAIResponse, responses={200: STREAMED, **ASKING_PROBLEMS})
async def responses(body: ResponsesRequest, call: TheCall) -> Response:
    """Answer the input, or the last turn of the user in it; with `stream` in events, as the answer is made."""
    if body.stream:
        return _said(body, await _begun(ResponsesStream, body, call))
    request_id = call.request.state.request_id
    begun = OpenAIResponse.begun(body, model=body.model, request_id=request_id, created=int(time.time()))
    answer = await _answer(body, call)
    special = call.services.engine.facts.special_tokens
    written = await call.written(lambda: begun.answered(answer, body, special).model_dump_json(), answer)
    return _said(body, written)


@router.post("/rerank", response_model=RerankResponse, responses=RERANKING_PROBLEMS)
async def rerank(body: RerankRequest, call: TheCall) -> Response:
    """How probably each document answers the query, as Cohere's and Jina's call of that name has it."""
    _check_model(body.model, call)
    if len(body.documents) > MAX_DOCS:
        raise InvalidRequest(field="documents", reason=f"must be at most {MAX_DOCS}")
    passages = [Passage("", one.title, one.text) for one in body.documents]
    scoring = call.services.answer_question.relevance(body.query, passages, timeout_s=call.settings.timeout_s)
    scores = await while_connected(call.request, scoring)
    if call.settings.log_questions:
        setattr(call.request.state, FACTS, {"question": body.query})
    reranked = RerankResponse.of(scores, body, request_id=call.request.state.request_id)
    return _said(body, Response(reranked.model_dump_json(), media_type=JSON))


@router.post("/embeddings", response_model=EmbeddingsResponse, responses=RERANKING_PROBLEMS)
async def embeddings(body: EmbeddingsRequest, call: TheCall) -> Response:
    """The question encoder's vectors, as OpenAI's call of that name has them."""
    _check_model(body.model, call)
    dimension = call.services.engine.facts.dimension
    if body.dimensions not in (None, dimension):
        raise InvalidRequest(field="dimensions", reason=f"must be {dimension}, which the encoder makes")
    encoding = call.services.answer_question.embed(body.input, timeout_s=call.settings.timeout_s)
    vectors, n_read = await while_connected(call.request, encoding)
    made = await call.services.readers.run(lambda: EmbeddingsResponse.of(vectors, n_read, body).model_dump_json())
    return _said(body, Response(made, media_type=JSON))


def _check_model(model: str, call: Call) -> None:
    """Raises ModelNotFound for a version that is not open, too."""
    version = _version(model, call)
    if version is not None and not call.services.live.resident(version):
        raise _not_found(model, call)


def _said(body: ModelBody, response: R) -> R:
    """The response, which names what was not read."""
    if body.ignored:
        response.headers[IGNORED] = ", ".join(body.ignored)
    return response


def _asked(body: OpenAIBody, call: Call) -> AnswerRequest:
    """The same as a body of POST /answer. Raises InvalidRequest, ModelNotFound."""
    asked = body.asked(call.settings)
    return asked.model_copy(update={"index": _version(body.model, call)})


async def _answer(body: OpenAIBody, call: Call) -> Answer:
    asked = _asked(body, call)
    with _in_its_words(body, call):
        return linked(await call.answer(asked), _base(call))


async def _begun(stream: Callable[..., S], body: OpenAIBody, call: Call) -> S:
    """A stream that has its first event, or has waited long for it."""
    asked = _asked(body, call)

    async def told() -> AsyncGenerator[Event]:
        with _in_its_words(body, call):
            async with aclosing(call.stream(asked)) as coming:
                async for event in coming:
                    yield event if isinstance(event, AnswerToken) else linked(event, _base(call))

    begun = stream(call.request, told(), call.writer, body, call.services.engine.facts)
    await begun.begin()
    return begun


def _base(call: Call) -> str:
    """Where links begin. A chat in a container calls the service by a name that no reader's browser knows."""
    return call.settings.public_url or str(call.request.base_url)


@contextmanager
def _in_its_words(body: OpenAIBody, call: Call) -> Iterator[None]:
    """Let an error name what the client sent: the fields of this body, and a model where we have a version."""
    try:
        yield
    except InvalidRequest as error:
        raise error.renamed(body.name_of(str(error.data["field"]))) from error
    except (UnknownIndex, IndexNotResident) as error:
        raise _not_found(body.model, call) from error


def _version(model: str, call: Call) -> str | None:
    """The version that the model names; None for the live one. Raises ModelNotFound for a name of another kind."""
    name, _, version = model.partition(":")
    if name != NAME or (":" in model and not version):
        raise _not_found(model, call)
    return version or None


def _models(call: Call) -> Iterator[ModelResponse]:
    residents = [one for one in call.services.live.residents() if not one.retiring]
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


def _not_found(model: str, call: Call) -> ModelNotFound:
    return ModelNotFound(model=model, known=tuple(one.id for one in _models(call)))
