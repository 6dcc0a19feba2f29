"""The two clients. They differ in how they wait; what they send and read is made in `calls` and `wire`."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from types import TracebackType
from typing import Any, Self, Unpack

import httpx

from openbook_client.calls import (
    AnswerOptions,
    Call,
    Calls,
    CompareOptions,
    LoadOptions,
    R,
    Rating,
    RetrieveOptions,
    RollbackOptions,
    ScoreOptions,
    SwapOptions,
)
from openbook_client.events import EventReader, StreamEvent
from openbook_client.results import (
    Answer,
    Answers,
    Comparison,
    FeedbackKept,
    History,
    Indexes,
    Loaded,
    Manifest,
    PassageInPlace,
    Ready,
    Retrieval,
    Scores,
    Swapped,
    SwapProgress,
)
from openbook_client.wire import Outcome, Wire

TIMEOUT_S = 30.0
# A swap of a large index takes minutes.
SWAP_TIMEOUT_S = 900.0
RETRIES = 2

Events = Iterator[StreamEvent]
AsyncEvents = AsyncIterator[StreamEvent]


class Openbook:
    """The service at `url`. Its connections stay open until `close`, or the end of a `with` block.

    token           the admin token, for the calls that change the index; else an API key, where the service wants one
    actor           who you are, for the service's history
    timeout_s       the longest that a question may take that names no `timeout_s`: the service's OPENBOOK_TIMEOUT_S
    swap_timeout_s  the longest that a change of the index may take
    retries         how often a call is sent again: a refused connection always; a question, or a call that only reads,
                    also where the service is busy (after its Retry-After) or the connection breaks; a change of the
                    index that may have begun never

    Raises WrongUse for an argument that no request can carry. A call raises Refused with the `code` of the service;
    Silent after a timeout; Unreachable where nothing answers or something else does.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        actor: str | None = None,
        timeout_s: float = TIMEOUT_S,
        swap_timeout_s: float = SWAP_TIMEOUT_S,
        retries: int = RETRIES,
    ) -> None:
        self._wire = Wire(url, token, actor, retries)
        self._calls = Calls(timeout_s, swap_timeout_s)
        self._http = httpx.Client(**self._wire.transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def answer(self, question: str, **options: Unpack[AnswerOptions]) -> Answer:
        """The answer, with the passages that it came from and the posterior of each at each token."""
        return self._result(self._calls.answer(question, options))

    def answers(self, questions: Sequence[str], **options: Unpack[AnswerOptions]) -> Answers:
        """The answers to up to 64 questions, each with an answer or an error of its own, in the order asked."""
        return self._result(self._calls.answers(questions, options))

    def score(self, question: str, targets: Sequence[str], **options: Unpack[ScoreOptions]) -> Scores:
        """p(target | question) of each target."""
        return self._result(self._calls.score(question, targets, options))

    def retrieve(self, question: str, **options: Unpack[RetrieveOptions]) -> Retrieval:
        """The passages for a question. Nothing is generated."""
        return self._result(self._calls.retrieve(question, options))

    def compare(self, question: str, versions: Sequence[str], **options: Unpack[CompareOptions]) -> Comparison:
        """The answers of two to eight open versions."""
        return self._result(self._calls.compare(question, versions, options))

    def passage(self, version: str, passage_id: str) -> PassageInPlace:
        """A passage of an open version within its document."""
        return self._result(self._calls.passage(version, passage_id))

    def feedback(self, request_id: str, rating: Rating, correction: str | None = None) -> FeedbackKept:
        """Say whether the answer with this `request_id` was right, and what it should have been."""
        return self._result(self._calls.feedback(request_id, rating, correction))

    def index(self) -> Indexes:
        """What is live, what is open, and what is on disk."""
        return self._result(self._calls.index())

    def manifest(self, version: str) -> Manifest:
        """What a version on disk says of itself."""
        return self._result(self._calls.manifest(version))

    def ready(self) -> Ready:
        """Raises NotReady where nothing is live."""
        return self._result(self._calls.ready())

    def swap(self, version: str, **options: Unpack[SwapOptions]) -> Swapped:
        """Make a version live. Returns when it is; a swap that fails leaves the live one."""
        return self._result(self._calls.swap(version, options))

    def rollback(self, **options: Unpack[RollbackOptions]) -> Swapped:
        """Swap to the version that was live before."""
        return self._result(self._calls.rollback(options))

    def load(self, version: str, **options: Unpack[LoadOptions]) -> Loaded:
        """Open a version beside the live one."""
        return self._result(self._calls.load(version, options))

    def begin_swap(self, version: str, **options: Unpack[SwapOptions]) -> SwapProgress:
        """As `swap`, but returns once it has begun; `progress` tells how it goes and ends."""
        return self._result(self._calls.begin(self._calls.swap(version, options)))

    def begin_rollback(self, **options: Unpack[RollbackOptions]) -> SwapProgress:
        """As `rollback`, likewise."""
        return self._result(self._calls.begin(self._calls.rollback(options)))

    def begin_load(self, version: str, **options: Unpack[LoadOptions]) -> SwapProgress:
        """As `load`, likewise."""
        return self._result(self._calls.begin(self._calls.load(version, options)))

    def progress(self) -> SwapProgress:
        """The swap under way, or how the last one ended."""
        return self._result(self._calls.progress())

    def history(self, limit: int = 20) -> History:
        """The newest swaps, refused and failed ones too."""
        return self._result(self._calls.history(limit))

    @contextmanager
    def stream(self, question: str, **options: Unpack[AnswerOptions]) -> Iterator[Events]:
        """The answer while it is made: the passages as Retrieval, each Token, and at last the Answer, which counts.

        `with service.stream(question) as events:`; leaving the block ends the question. The passages may come
        again before the first token. An error is raised as of `answer`, and may come later.
        """
        call = self._calls.stream(question, options)
        outcome = self._outcome(call, stream=True)
        reader = self._wire.events(call, outcome)
        assert isinstance(outcome, httpx.Response)
        with closing(outcome):
            yield self._events(call, outcome, reader)

    def _events(self, call: Call[Any], response: httpx.Response, reader: EventReader) -> Events:
        with self._wire.streaming(call, reader):
            for chunk in response.iter_bytes():
                yield from reader.feed(chunk)

    def _result(self, call: Call[R]) -> R:
        return self._wire.result(call, self._outcome(call))

    def _outcome(self, call: Call[Any], *, stream: bool = False) -> Outcome:
        """What became of the call after the last try; with `stream` the response before its body, where that is one."""
        for tries in itertools.count(1):
            outcome = self._send(call, stream=stream)
            pause_s = self._wire.pause_s(call, outcome, tries)
            if pause_s is None:
                break
            time.sleep(pause_s)
        return outcome

    def _send(self, call: Call[Any], *, stream: bool) -> Outcome:
        try:
            response = self._http.send(self._wire.request(self._http, call), stream=stream)
            if stream and not self._wire.streams(response):
                response.read()
        except httpx.HTTPError as error:
            return error
        return response


class AsyncOpenbook:
    """As Openbook, for a program that runs in an event loop: every call is awaited."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        actor: str | None = None,
        timeout_s: float = TIMEOUT_S,
        swap_timeout_s: float = SWAP_TIMEOUT_S,
        retries: int = RETRIES,
    ) -> None:
        self._wire = Wire(url, token, actor, retries)
        self._calls = Calls(timeout_s, swap_timeout_s)
        self._http = httpx.AsyncClient(**self._wire.transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    @property
    def url(self) -> str:
        """The address of the service, without a password in it."""
        return self._wire.shown

    async def answer(self, question: str, **options: Unpack[AnswerOptions]) -> Answer:
        """The answer, with the passages that it came from and the posterior of each at each token."""
        return await self._result(self._calls.answer(question, options))

    async def answers(self, questions: Sequence[str], **options: Unpack[AnswerOptions]) -> Answers:
        """The answers to up to 64 questions, each with an answer or an error of its own, in the order asked."""
        return await self._result(self._calls.answers(questions, options))

    async def score(self, question: str, targets: Sequence[str], **options: Unpack[ScoreOptions]) -> Scores:
        """p(target | question) of each target."""
        return await self._result(self._calls.score(question, targets, options))

    async def retrieve(self, question: str, **options: Unpack[RetrieveOptions]) -> Retrieval:
        """The passages for a question. Nothing is generated."""
        return await self._result(self._calls.retrieve(question, options))

    async def compare(self, question: str, versions: Sequence[str], **options: Unpack[CompareOptions]) -> Comparison:
        """The answers of two to eight open versions."""
        return await self._result(self._calls.compare(question, versions, options))

    async def passage(self, version: str, passage_id: str) -> PassageInPlace:
        """A passage of an open version within its document."""
        return await self._result(self._calls.passage(version, passage_id))

    async def feedback(self, request_id: str, rating: Rating, correction: str | None = None) -> FeedbackKept:
        """Say whether the answer with this `request_id` was right, and what it should have been."""
        return await self._result(self._calls.feedback(request_id, rating, correction))

    async def index(self) -> Indexes:
        """What is live, what is open, and what is on disk."""
        return await self._result(self._calls.index())

    async def manifest(self, version: str) -> Manifest:
        """What a version on disk says of itself."""
        return await self._result(self._calls.manifest(version))

    async def ready(self) -> Ready:
        """Raises NotReady where nothing is live."""
        return await self._result(self._calls.ready())

    async def swap(self, version: str, **options: Unpack[SwapOptions]) -> Swapped:
        """Make a version live. Returns when it is; a swap that fails leaves the live one."""
        return await self._result(self._calls.swap(version, options))

    async def rollback(self, **options: Unpack[RollbackOptions]) -> Swapped:
        """Swap to the version that was live before."""
        return await self._result(self._calls.rollback(options))

    async def load(self, version: str, **options: Unpack[LoadOptions]) -> Loaded:
        """Open a version beside the live one."""
        return await self._result(self._calls.load(version, options))

    async def begin_swap(self, version: str, **options: Unpack[SwapOptions]) -> SwapProgress:
        """As `swap`, but returns once it has begun; `progress` tells how it goes and ends."""
        return await self._result(self._calls.begin(self._calls.swap(version, options)))

    async def begin_rollback(self, **options: Unpack[RollbackOptions]) -> SwapProgress:
        """As `rollback`, likewise."""
        return await self._result(self._calls.begin(self._calls.rollback(options)))

    async def begin_load(self, version: str, **options: Unpack[LoadOptions]) -> SwapProgress:
        """As `load`, likewise."""
        return await self._result(self._calls.begin(self._calls.load(version, options)))

    async def progress(self) -> SwapProgress:
        """The swap under way, or how the last one ended."""
        return await self._result(self._calls.progress())

    async def history(self, limit: int = 20) -> History:
        """The newest swaps, refused and failed ones too."""
        return await self._result(self._calls.history(limit))

    @asynccontextmanager
    async def stream(self, question: str, **options: Unpack[AnswerOptions]) -> AsyncIterator[AsyncEvents]:
        """The answer while it is made: the passages as Retrieval, each Token, and at last the Answer, which counts.

        `async with service.stream(question) as events:`; leaving the block ends the question. The passages may come
        again before the first token. An error is raised as of `answer`, and may come later.
        """
        call = self._calls.stream(question, options)
        outcome = await self._outcome(call, stream=True)
        reader = self._wire.events(call, outcome)
        assert isinstance(outcome, httpx.Response)
        async with aclosing(outcome):
            yield self._events(call, outcome, reader)

    async def _events(self, call: Call[Any], response: httpx.Response, reader: EventReader) -> AsyncEvents:
        with self._wire.streaming(call, reader):
            async for chunk in response.aiter_bytes():
                for event in reader.feed(chunk):
                    yield event

    async def _result(self, call: Call[R]) -> R:
        return self._wire.result(call, await self._outcome(call))

    async def _outcome(self, call: Call[Any], *, stream: bool = False) -> Outcome:
        """What became of the call after the last try; with `stream` the response before its body, where that is one."""
        for tries in itertools.count(1):
            outcome = await self._send(call, stream=stream)
            pause_s = self._wire.pause_s(call, outcome, tries)
            if pause_s is None:
                break
            await asyncio.sleep(pause_s)
        return outcome

    async def _send(self, call: Call[Any], *, stream: bool) -> Outcome:
        try:
            response = await self._http.send(self._wire.request(self._http, call), stream=stream)
            if stream and not self._wire.streams(response):
                await response.aread()
        except httpx.HTTPError as error:
            return error
        return response
