"""OpenAI's own client, strict about every chunk and event, hears an answer while it is made."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from openbook.api import streaming
from openbook.api.app import create_app
from openbook.plugins.openai.streams import UNFINISHED, Deltas
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from tests.fixtures.clock import Clock
from tests.fixtures.stepping import Stepping
from tests.openbook.api.conftest import PERU, SlowSearch, serving, without_seconds
from tests.openbook.api.test_server import counted
from tests.openbook.plugins.openai.test_calls import client_of, text_of
from tests.waiting import PATIENCE_S, until

OPENBOOK = {"n_docs": 4}
BOTH = ("chat", "responses")

Asked = dict[str, Any]


@contextmanager
def client_with(engine: RagEngine, folder: Path) -> Iterator[openai.OpenAI]:
    settings = Settings(indexes=folder, port=0, follow_s=0.0)
    with serving(create_app(settings, engine=engine), settings) as address, client_of(address) as client:
        yield client


@pytest.fixture(scope="module")
def ai(tiny_indexes: Path, engine: RagEngine) -> Iterator[openai.OpenAI]:
    """A client of a service that writes its answers as the passages do."""
    with client_with(engine, tiny_indexes) as client:
        yield client


@pytest.fixture(scope="module")
def cased(tiny_indexes: Path, tiny_checkpoint: Path) -> Iterator[openai.OpenAI]:
    """A client of a service whose answers are what their tokens say."""
    checkpoint = load_checkpoint(tiny_checkpoint)
    checkpoint = replace(checkpoint, facts=replace(checkpoint.facts, uncased=False))
    with client_with(RagEngine(checkpoint), tiny_indexes) as client:
        yield client


def asked_of(ai: openai.OpenAI, call: str, question: str, *, stream: bool, **changed: Any) -> Any:
    fields = {"model": "openbook", "extra_body": {"openbook": OPENBOOK | changed.pop("openbook", {})}} | changed
    if call == "chat":
        messages: Any = [{"role": "user", "content": question}]
        return ai.chat.completions.create(messages=messages, stream=stream, **fields)
    return ai.responses.create(input=question, stream=stream, **fields)


def heard(ai: openai.OpenAI, call: str, question: str = PERU, **changed: Any) -> list[dict[str, Any]]:
    return [one.to_dict() for one in asked_of(ai, call, question, stream=True, **changed)]


def deltas_of(call: str, parts: list[dict[str, Any]], index: int = 0) -> list[str]:
    """The pieces of the text, of one choice."""
    if call == "responses":
        return [one["delta"] for one in parts if one["type"] == "response.output_text.delta"]
    choices = [choice for one in parts for choice in one["choices"] if choice["index"] == index]
    return [choice["delta"].get("content") or "" for choice in choices]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"logprobs": True, "top_logprobs": 1, "stream_options": {"include_usage": True}},
        {"n": 3},
        {"openbook": {"model": "sequence"}},
        {"openbook": {"abstain": {"max_no_answer": 0}}},
        {"max_tokens": 2},
    ],
    ids=["greedy", "logprobs", "beams", "sequence", "withheld", "cut"],
)
def test_the_chunks_of_a_chat_make_its_completion(ai: openai.OpenAI, changed: Asked) -> None:
    plain = {name: value for name, value in changed.items() if name != "stream_options"}
    whole = asked_of(ai, "chat", PERU, stream=False, **plain).to_dict()
    chunks = heard(ai, "chat", **changed)
    assert len({(one["id"], one["created"], one["model"], one["system_fingerprint"]) for one in chunks}) == 1
    assert (chunks[0]["model"], chunks[0]["object"]) == ("openbook:tiny-2016", "chat.completion.chunk")
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    if "stream_options" in changed:
        usage = chunks.pop()
        assert (usage["choices"], usage["usage"]) == ([], whole["usage"])
        assert {one["usage"] for one in chunks} == {None}
    assert "openbook" in chunks[-1]
    for choice in whole["choices"]:
        number = choice["index"]
        assert "".join(deltas_of("chat", chunks, number)) == choice["message"]["content"]
        of_choice = [one for chunk in chunks for one in chunk["choices"] if one["index"] == number]
        ends = [one["finish_reason"] for one in of_choice]
        assert ends == [None] * (len(ends) - 1) + [choice["finish_reason"]]
        logprobs = [token for one in of_choice for token in (one["logprobs"] or {"content": []})["content"]]
        expected = (choice["logprobs"] or {"content": []})["content"]
        assert [one["token"] for one in logprobs] == [one["token"] for one in expected]
    parts = [one["openbook"] for one in chunks if "openbook" in one]
    assert "posterior" not in parts[0]["passages"][0]
    told = [token for part in parts[1:-1] for token in part["tokens"]]
    withheld_or_sequence = bool({"model", "abstain"} & set(changed.get("openbook", {})))
    assert told == ([] if withheld_or_sequence else parts[-1]["tokens"])
    assert {name: parts[-1][name] for name in ("answer", "abstained", "index")} == {
        name: whole["openbook"][name] for name in ("answer", "abstained", "index")
    }


def test_the_last_line_of_a_chat_says_that_it_is_done(ai: openai.OpenAI) -> None:
    body = {"model": "openbook", "messages": [{"role": "user", "content": PERU}], "stream": True}
    response = httpx.post(f"{ai.base_url}chat/completions", json=body, timeout=PATIENCE_S, verify=False)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["x-accel-buffering"] == "no"
    *chunks, done, nothing = response.text.split("\n\n")
    assert (done, nothing) == ("data: [DONE]", "")
    assert all(one.startswith('data: {"id":"chatcmpl-') for one in chunks)


OPENING = ["created", "in_progress", "output_item.added", "content_part.added"]
CLOSING = ["output_text.done", "content_part.done", "output_item.done"]


@pytest.mark.parametrize(
    ("changed", "last"),
    [
        ({}, "completed"),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 1}, "completed"),
        ({"openbook": {"model": "sequence"}}, "completed"),
        ({"openbook": {"abstain": {"max_no_answer": 0}}}, "completed"),
        ({"max_output_tokens": 2}, "incomplete"),
    ],
    ids=["greedy", "logprobs", "sequence", "withheld", "cut"],
)
def test_the_events_of_a_response_come_in_order_and_make_it(ai: openai.OpenAI, changed: Asked, last: str) -> None:
    whole = asked_of(ai, "responses", PERU, stream=False, **changed).to_dict()
    events = heard(ai, "responses", **changed)
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    types = [one["type"].removeprefix("response.") for one in events]
    (part,) = whole["output"][0]["content"]
    n_deltas = types.count("output_text.delta")
    n_annotations = len(part["annotations"])
    middle = ["output_text.delta"] * n_deltas + ["output_text.annotation.added"] * n_annotations
    assert types == [*OPENING, *middle, *CLOSING, last]
    assert "".join(deltas_of("responses", events)) == part["text"] == events[types.index("output_text.done")]["text"]
    annotations = [one["annotation"] for one in events if one["type"].endswith("annotation.added")]
    assert annotations == part["annotations"]
    tokens = [one["token"] for one in part["logprobs"]]
    assert [found["token"] for one in events if one["type"].endswith("delta") for found in one["logprobs"]] == tokens
    assert [one["token"] for one in events[types.index("output_text.done")]["logprobs"]] == tokens
    response, begun = events[-1]["response"], events[0]["response"]
    assert (begun["status"], begun["id"], begun["model"]) == ("in_progress", response["id"], "openbook:tiny-2016")
    (message,) = response["output"]
    assert {one["item_id"] for one in events if "item_id" in one} == {message["id"]}
    assert events[types.index("output_item.done")]["item"] == message
    assert (response["status"], response["usage"]) == (whole["status"], whole["usage"])
    assert without_seconds(response["openbook"]).keys() == without_seconds(whole["openbook"]).keys()
    assert events[1]["openbook"]["passages"][0]["passage_id"] == response["openbook"]["passages"][0]["passage_id"]


@pytest.mark.parametrize("call", BOTH)
def test_what_its_tokens_say_is_sent_token_by_token(cased: openai.OpenAI, call: str) -> None:
    for question in (PERU, "who is the king ?"):
        whole = asked_of(cased, call, question, stream=False)
        deltas = [delta for delta in deltas_of(call, heard(cased, call, question)) if delta]
        assert "".join(deltas) == text_of(call, whole)
        # the evidence comes at the end
        assert deltas[:-1] == [one["text"] for one in whole.to_dict()["openbook"]["tokens"] if one["text"] != "[SEP]"]
        assert len(deltas) > 2


def test_bytes_that_are_no_character_yet_are_not_sent(tiny_indexes: Path, tiny_bart_checkpoint: Path) -> None:
    question = "how long is the river ?"
    with client_with(RagEngine(load_checkpoint(tiny_bart_checkpoint)), tiny_indexes) as ai:
        whole = asked_of(ai, "chat", question, stream=False).to_dict()
        text = whole["choices"][0]["message"]["content"]
        assert "".join(one["text"] for one in whole["openbook"]["tokens"][:-1]) != text
        assert "".join(deltas_of("chat", heard(ai, "chat", question))) == text


# --- how a stream ends -------------------------------------------------------------------------------------


def test_a_response_that_fails_says_why_and_that_it_has_failed(server: str, stepping: Stepping, clock: Clock) -> None:
    with client_of(server) as ai:
        events = []
        for event in asked_of(ai, "responses", PERU, stream=True, openbook={"timeout_s": 100.0}):
            events.append(event.to_dict())
            if len(events) == len(OPENING):
                clock.forward(100)
    assert [one["type"].removeprefix("response.") for one in events] == [*OPENING, "error", "failed"]
    assert [one["sequence_number"] for one in events] == list(range(6))
    assert (events[4]["code"], events[4]["param"]) == ("deadline_exceeded", None)
    response = events[5]["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert response["error"]["message"] == events[4]["message"]
    stepping.go_on(1)
    until(lambda: counted(server, "openbook_questions_running") == 0)


def test_an_error_after_a_long_silence_is_told_in_the_stream(
    server: str, slow_search: SlowSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "HEARTBEAT_S", 0.05)
    with client_of(server) as ai:
        chat, response = (asked_of(ai, call, PERU, stream=True, openbook={"n_docs": 13}) for call in BOTH)
        slow_search.go_on.set()
        with pytest.raises(openai.APIError) as ended:
            list(chat)
        assert (ended.value.code, ended.value.param) == ("invalid_request", "openbook.n_docs")
        events = [one.to_dict() for one in response]
        assert [one["type"] for one in events] == ["response.created", "error", "response.failed"]
        assert events[1]["param"] == "openbook.n_docs"


# --- the text, piece by piece ------------------------------------------------------------------------------


@bounded(max_examples=50)
@given(st.lists(st.text(alphabet=f"ab \n{UNFINISHED}", max_size=4), max_size=8), st.booleans())
def test_the_pieces_of_a_text_join_to_it(tokens: list[str], joined: bool) -> None:
    deltas = Deltas(joined=joined)
    # bytes that were no character become one, or stay none
    text = "".join(tokens).replace(UNFINISHED, "é").strip()
    pieces = [deltas.of_token(token) for token in tokens]
    assert "".join(pieces) + deltas.rest_of(text) == text
    assert joined or not any(pieces)


def test_a_piece_is_sent_as_soon_as_it_is_certain() -> None:
    deltas = Deltas(joined=True)
    tokens = (" the", " ", "sea", f" {UNFINISHED}", " is")
    assert [deltas.of_token(token) for token in tokens] == ["the", "", " sea", "", ""]
    assert deltas.rest_of("the sea é is") == " é is"
    # never, but what has been sent cannot be taken back
    assert deltas.rest_of("a sea") == ""
