"""An answer to clients of OpenAI's API, told while it is made: chunks of a chat completion, or events of a response.

The deltas, joined, are the answer's text. Where an answer is written as a passage writes it, only the whole answer
tells how: one delta at the end then has all of it. `openbook` tells more, and earlier: in each chunk or event it is a
part of the body of POST /answer, first the passages, then each token, at last all of it.
"""

import time
from collections.abc import AsyncGenerator, Iterator
from typing import Any, TypeAlias

from fastapi import Request
from fastapi.sse import format_sse_event
from pydantic import TypeAdapter

from openbook.api.problems import Problem
from openbook.api.streaming import Event, EventStream
from openbook.api.writing import Writer
from openbook.entities import Answer, AnswerToken, Retrieval
from openbook.plugins.openai.problems import openai_error
from openbook.plugins.openai.requests import ChatCompletionRequest, ResponsesRequest
from openbook.plugins.openai.responses import (
    ChatChoice,
    ChatCompletionResponse,
    ChatLogprobs,
    OpenAIResponse,
    OutputMessage,
    OutputText,
    ResponseFailure,
    TokenLogprob,
    message_id,
    model_name,
    token_logprob,
)
from openbook.rag.engine import EngineFacts
from openbook_client.results import Retrieval as RetrieveResponse
from openbook_client.results import Token

FIELDS = TypeAdapter(dict[str, Any])
DONE = b"data: [DONE]\n\n"
# The type of an event of a response, and its other fields.
Typed: TypeAlias = tuple[str, dict[str, Any]]
# What decoding makes of bytes that are no character yet.
UNFINISHED = "\N{REPLACEMENT CHARACTER}"


class Deltas:
    """An answer's text, as far as it is certain, piece by piece; with `joined` it is its tokens' texts, joined."""

    def __init__(self, *, joined: bool) -> None:
        self.joined = joined
        self._said = ""
        self._sent = ""

    def of_token(self, text: str) -> str:
        """What a token adds to the text."""
        self.joined = self.joined and UNFINISHED not in text
        if not self.joined:
            return ""
        self._said += text
        # an answer has no space at its ends
        before, self._sent = self._sent, self._said.strip()
        return self._sent[len(before) :]

    def rest_of(self, text: str) -> str:
        """What is left of the whole text."""
        return text[len(self._sent) :] if text.startswith(self._sent) else ""


class OpenAIStream(EventStream):
    """What both have: the answer's deltas and the probabilities of their tokens."""

    def __init__(
        self,
        request: Request,
        events: AsyncGenerator[Event],
        writer: Writer,
        body: ChatCompletionRequest | ResponsesRequest,
        facts: EngineFacts,
    ) -> None:
        super().__init__(request, events, writer)
        self._asked = body
        self._request_id: str = request.state.request_id
        self._created = int(time.time())
        self._special = facts.special_tokens
        self._deltas = Deltas(joined=facts.joins_tokens)
        self._n_sent = 0

    def _token(self, token: AnswerToken) -> tuple[str, list[TokenLogprob]]:
        """What a token adds to the text, and its probability where it is asked for."""
        if token.text in self._special:
            return "", []
        delta = self._deltas.of_token(token.text)
        if not (self._deltas.joined and self._asked.wants_logprobs):
            return delta, []
        self._n_sent += 1
        # RAG-Sequence tells no tokens
        return delta, [token_logprob(token, "token", self._asked)]

    def _rest(self, text: str, logprobs: list[TokenLogprob]) -> tuple[str, list[TokenLogprob]]:
        """What no token has added."""
        return self._deltas.rest_of(text), logprobs[self._n_sent :]


class ChatStream(OpenAIStream):
    """`data:` lines with a chunk each, and [DONE] at the end."""

    _asked: ChatCompletionRequest
    _model = ""
    _checkpoint = ""
    _begun = False

    def told(self, event: Event) -> bytes:
        return b"".join(format_sse_event(data_str=_text(chunk)) for chunk in self._chunks(event))

    def failed(self, problem: Problem) -> bytes:
        return format_sse_event(data_str=_text({"error": openai_error(problem)}))

    def ended(self) -> bytes:
        return DONE

    def _chunks(self, event: Event) -> Iterator[dict[str, Any]]:
        match event:
            case Retrieval():
                self._model, self._checkpoint = model_name(event.source.index.version), event.source.checkpoint
                delta = {} if self._begun else {"role": "assistant", "content": ""}
                self._begun = True
                yield self._chunk(_choice(0, delta), openbook=RetrieveResponse.model_validate(event))
            case AnswerToken():
                text, logprobs = self._token(event)
                openbook = {"tokens": [Token.model_validate(event)]}
                yield self._chunk(_choice(0, {"content": text} if text else {}, logprobs), openbook=openbook)
            case Answer():
                yield from self._last_chunks(event)

    def _last_chunks(self, answer: Answer) -> Iterator[dict[str, Any]]:
        whole = ChatCompletionResponse.of(
            answer, self._asked, self._special, request_id=self._request_id, created=self._created
        )
        best, *others = whole.choices
        delta, logprobs = self._rest(best.message.content, best.logprobs.content if best.logprobs else [])
        if delta or logprobs:
            yield self._chunk(_choice(0, {"content": delta}, logprobs))
        for other in others:
            yield self._chunk(_choice(other.index, {"role": "assistant", "content": other.message.content}))
            yield self._chunk(_choice(other.index, {}, ended=other))
        annotations = {"annotations": best.message.annotations} if best.message.annotations else {}
        yield self._chunk(_choice(0, annotations, ended=best), openbook=whole.openbook)
        if self._wants_usage:
            yield self._chunk(usage=whole.usage)

    @property
    def _wants_usage(self) -> bool:
        options = self._asked.stream_options
        return options is not None and bool(options.include_usage)

    def _chunk(self, *choices: dict[str, Any], **more: Any) -> dict[str, Any]:
        chunk = {
            "id": f"chatcmpl-{self._request_id}",
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "system_fingerprint": self._checkpoint,
            "choices": choices,
        }
        return chunk | ({"usage": None} if self._wants_usage else {}) | more


class ResponsesStream(OpenAIStream):
    """Events with a type and a number. All but the first and the last are about the one text of the one message."""

    _asked: ResponsesRequest
    _number = 0
    _response: OpenAIResponse | None = None

    def told(self, event: Event) -> bytes:
        return b"".join(self._numbered(kind, fields) for kind, fields in self._typed(event))

    def failed(self, problem: Problem) -> bytes:
        error = openai_error(problem)
        events = [] if self._response is not None else [self._created_with(self._asked.model)]
        # the response itself can name few codes, and none of ours
        failure = ResponseFailure(message=error["message"] or "")
        ended = self._begun.model_copy(update={"status": "failed", "error": failure})
        events += [
            ("error", {name: error[name] for name in ("code", "message", "param")}),
            ("response.failed", {"response": ended}),
        ]
        return b"".join(self._numbered(kind, fields) for kind, fields in events)

    def _typed(self, event: Event) -> Iterator[Typed]:
        match event:
            case Retrieval():
                opens = self._response is None
                if opens:
                    yield self._created_with(model_name(event.source.index.version))
                found = RetrieveResponse.model_validate(event)
                yield "response.in_progress", {"response": self._begun, "openbook": found}
                if opens:
                    message = OutputMessage(id=self._message, status="in_progress", content=[])
                    yield "response.output_item.added", {"output_index": 0, "item": message}
                    part = OutputText(text="", annotations=[], logprobs=[])
                    yield "response.content_part.added", self._place | {"part": part}
            case AnswerToken():
                delta, logprobs = self._token(event)
                openbook = {"tokens": [Token.model_validate(event)]}
                yield self._delta(delta, logprobs, openbook=openbook)
            case Answer():
                yield from self._last(self._begun.answered(event, self._asked, self._special))

    def _last(self, whole: OpenAIResponse) -> Iterator[Typed]:
        (message,) = whole.output
        (part,) = message.content
        delta, logprobs = self._rest(part.text, part.logprobs)
        if delta or logprobs:
            yield self._delta(delta, logprobs)
        for number, annotation in enumerate(part.annotations):
            added = {"annotation_index": number, "annotation": annotation}
            yield "response.output_text.annotation.added", self._place | added
        yield "response.output_text.done", self._place | {"text": part.text, "logprobs": part.logprobs}
        yield "response.content_part.done", self._place | {"part": part}
        yield "response.output_item.done", {"output_index": 0, "item": message}
        yield f"response.{whole.status}", {"response": whole}

    def _created_with(self, model: str) -> Typed:
        self._response = OpenAIResponse.begun(
            self._asked, model=model, request_id=self._request_id, created=self._created
        )
        return "response.created", {"response": self._response}

    @property
    def _begun(self) -> OpenAIResponse:
        assert self._response is not None
        return self._response

    @property
    def _message(self) -> str:
        return message_id(self._begun.id)

    @property
    def _place(self) -> dict[str, Any]:
        """Of the one text."""
        return {"item_id": self._message, "output_index": 0, "content_index": 0}

    def _delta(self, delta: str, logprobs: list[TokenLogprob], **more: Any) -> Typed:
        return "response.output_text.delta", self._place | {"delta": delta, "logprobs": logprobs} | more

    def _numbered(self, kind: str, fields: dict[str, Any]) -> bytes:
        event = {"type": kind, "sequence_number": self._number} | fields
        self._number += 1
        return format_sse_event(event=kind, data_str=_text(event))


def _choice(
    number: int, delta: dict[str, Any], logprobs: list[TokenLogprob] | None = None, ended: ChatChoice | None = None
) -> dict[str, Any]:
    return {
        "index": number,
        "delta": delta,
        "logprobs": ChatLogprobs(content=logprobs) if logprobs else None,
        "finish_reason": ended.finish_reason if ended is not None else None,
    }


def _text(found: dict[str, Any]) -> str:
    return FIELDS.dump_json(found).decode()
