"""What routers share: a request that is answered by the service. A plug-in of the group `openbook.routers` begins here.

Its entry point names a `Routes`, which also words every error below the prefix of its router.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import Field, create_model
from starlette.responses import Response

from openbook.api.body import JSON
from openbook.api.composition import Services
from openbook.api.logs import FACTS, FOUND
from openbook.api.middleware import while_connected
from openbook.api.problems import PROBLEM_JSON, ProblemWords
from openbook.api.schemas import AnswerRequest, QuestionBody
from openbook.api.streaming import Event
from openbook.api.writing import Found, Writer
from openbook.application.answer_question import Ask
from openbook.application.comparison import Comparison
from openbook.entities import Answer, Retrieval, Scores
from openbook.extensions import ANSWERS, ROUTERS, extensions
from openbook.settings import Settings

F = TypeVar("F", Answer, Scores, Retrieval, Comparison)

COMPUTED = ("encode", "retrieve", "generate")


@dataclass(frozen=True, slots=True)
class Routes:
    """What a plug-in adds to the service: a router with a prefix, and how errors are written below it."""

    router: APIRouter
    words: ProblemWords = PROBLEM_JSON


@dataclass(frozen=True, slots=True)
class Addition:
    """What a plug-in of the group `openbook.answers` adds to an answer, under the name of its entry point: a switch of
    the body of /answer, and, where that is on, what `make` returns as a field of the response.

    `check(call)` raises before anything is computed. Neither is called for a stream, which is refused. Where
    `always(settings)` holds, every answer that is no stream has it, whatever the body says. Where `offered(settings)`
    holds, GET /index names it, and the page offers it.
    """

    description: str
    check: "Callable[[Call], None]"
    make: "Callable[[Call, AnswerRequest, Answer], Awaitable[Any]]"
    always: "Callable[[Settings], bool]" = lambda settings: False
    offered: "Callable[[Settings], bool]" = lambda settings: True


@cache
def additions() -> Mapping[str, Addition]:
    """Those of all plug-ins, by name."""
    return {name: found.load() for name, found in extensions(ANSWERS).items()}


@cache
def answer_request() -> type[AnswerRequest]:
    """The body of /answer, with the switches of all plug-ins."""
    switches: dict[str, Any] = {
        name: (Annotated[bool, Field(strict=True, description=one.description)], False)
        for name, one in additions().items()
    }
    return create_model("AnswerRequest", __base__=AnswerRequest, **switches)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and what its route needs of the service. A route takes `call: TheCall`."""

    request: Request

    @property
    def services(self) -> Services:
        services: Services = self.request.app.state.services
        return services

    @property
    def settings(self) -> Settings:
        settings: Settings = self.request.app.state.settings
        return settings

    @property
    def writer(self) -> Writer:
        writer: Writer = self.request.app.state.writer
        return writer

    def ask(self, asked: QuestionBody) -> Ask:
        """What the service is asked. Raises InvalidRequest for an option above a limit."""
        return asked.ask(self.settings, self.services.engine)

    async def answer(self, asked: AnswerRequest) -> Answer:
        """The answer, after admission and within the operator's limits.

        Raises InvalidRequest for an option above a limit, Overloaded, DeadlineExceeded, UnknownIndex, IndexNotResident,
        NoLiveIndex and the errors of a search; ClientGone once the client has hung up.
        """
        return await self.finished(asked, self.services.answer_question.answer(self.ask(asked)))

    async def stream(self, asked: AnswerRequest) -> AsyncGenerator[Event]:
        """The answer while it is made: the passages, each token, the whole answer. Raises what `answer` raises."""
        async with aclosing(self.services.answer_question.stream(self.ask(asked))) as coming:
            async for event in coming:
                if isinstance(event, Answer):
                    self.leave_facts(asked, event)
                yield event

    async def finished(self, asked: QuestionBody, coming: Coroutine[Any, Any, F]) -> F:
        """What `coming` gives, unless the client hangs up first. Leaves its facts for the access log."""
        found = await while_connected(self.request, coming)
        self.leave_facts(asked, found)
        return found

    async def written(self, make: Callable[[], str], found: Found) -> Response:
        """The response whose JSON `make` makes of `found`. Raises ResponseTooLarge."""
        return Response(await self.writer.write(make, found), media_type=JSON)

    def leave_facts(self, asked: QuestionBody, found: Answer | Scores | Retrieval | Comparison) -> None:
        """Leave to the access log which versions answered, and the seconds of each stage; for spans, what is found."""
        sources = [one.source for one in found.answers] if isinstance(found, Comparison) else [found.source]
        seconds = [source.seconds for source in sources]
        facts: dict[str, object] = {
            "index": ",".join(source.index.version for source in sources),
            "generation": sources[0].index.generation,
            "queue_s": round(seconds[0].queue, 6),
            **{f"{stage}_s": round(sum(getattr(one, stage) for one in seconds), 6) for stage in COMPUTED},
        }
        if self.settings.log_questions:
            facts["question"] = asked.question
        setattr(self.request.state, FACTS, facts)
        if not isinstance(found, Comparison):
            setattr(self.request.state, FOUND, found)


TheCall = Annotated[Call, Depends(Call)]


def add_routes(app: FastAPI) -> None:
    """Add the routers of all plug-ins, behind the service's own calls."""
    problem_words: dict[str, ProblemWords] = {}
    for found in extensions(ROUTERS).values():
        routes: Routes = found.load()
        app.include_router(routes.router)
        problem_words[f"{routes.router.prefix}/"] = routes.words
    app.state.problem_words = problem_words
