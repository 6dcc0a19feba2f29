"""Many of OpenAI's own clients at once, of every kind of call: no answer is mixed or lost when the index is swapped."""

import asyncio
import time
from collections import Counter
from typing import Any

import openai
import pytest

from tests.fixtures.summary import Summary
from tests.soak.clients import COLOURS, QUESTIONS, mixture
from tests.soak.conftest import Serve
from tests.soak.test_streams import at_rest

AT_ONCE = 48
ROUNDS = 10
OPENBOOK: dict[str, Any] = {"model": "openbook", "extra_body": {"openbook": {"n_docs": 3}}}

# What was heard of an answer: its text, each model that it was said to be of, and the body of /answer.
Heard = tuple[str, set[str], dict[str, Any]]


async def chat(ai: openai.AsyncOpenAI, question: str) -> Heard:
    found = (await ai.chat.completions.create(**chat_of(question))).to_dict()
    return found["choices"][0]["message"]["content"], {found["model"]}, found["openbook"]


async def chat_stream(ai: openai.AsyncOpenAI, question: str) -> Heard:
    chunks = [one.to_dict() async for one in await ai.chat.completions.create(**chat_of(question), stream=True)]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    return text, {chunk["model"] for chunk in chunks}, chunks[-1]["openbook"]


async def response(ai: openai.AsyncOpenAI, question: str) -> Heard:
    found = await ai.responses.create(**response_of(question))
    return found.output_text, {found.model}, found.to_dict()["openbook"]


async def response_stream(ai: openai.AsyncOpenAI, question: str) -> Heard:
    events = [one.to_dict() async for one in await ai.responses.create(**response_of(question), stream=True)]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    responses = [event["response"] for event in events if "response" in event]
    return text, {one["model"] for one in responses}, responses[-1]["openbook"]


def chat_of(question: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}], "max_tokens": 6, **OPENBOOK}


def response_of(question: str) -> dict[str, Any]:
    return {"input": question, "max_output_tokens": 6, **OPENBOOK}


CALLS = (chat, chat_stream, response, response_stream)


def fault_of(heard: Heard) -> str | None:
    text, models, answer = heard
    if text != answer["answer"]:
        return f"{text!r} is said where {answer['answer']!r} is the answer"
    if models != {f"openbook:{answer['index']['version']}"}:
        return f"{models} are named where {answer['index']} answered"
    return mixture(answer, None)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_openais_clients_get_whole_answers_of_one_version_each(serve: Serve, summary: Summary) -> None:
    server = serve(max_queue=AT_ONCE, residents=2)
    server.wait_until_ready()

    async def rounds() -> list[Heard]:
        heard: list[Heard] = []
        async with openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{server.port}/v1",
            api_key="any",
            max_retries=0,
            timeout=600,
            _strict_response_validation=True,
        ) as ai:
            for turn in range(ROUNDS):
                asked = [
                    asyncio.create_task(CALLS[one % len(CALLS)](ai, QUESTIONS[one % len(QUESTIONS)]))
                    for one in range(AT_ONCE)
                ]
                await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                swapped = await asyncio.to_thread(server.swap, ("book-blue", "book-red")[turn % 2])
                assert swapped.status == 200, swapped.body
                heard += await asyncio.gather(*asked)
        return heard

    began = time.monotonic()
    heard = asyncio.run(rounds())
    versions = Counter(answer["index"]["version"] for _, _, answer in heard)
    seconds = time.monotonic() - began
    summary(f"{len(heard)} answers to OpenAI's clients across {ROUNDS} swaps, {seconds:.1f} s: {dict(versions)}")
    assert [fault for one in heard if (fault := fault_of(one))][:5] == []
    assert len(heard) == AT_ONCE * ROUNDS
    assert versions.keys() == COLOURS.keys()
    assert at_rest(server)
