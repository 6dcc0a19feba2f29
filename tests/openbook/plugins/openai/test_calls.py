"""OpenAI's own client, strict about every body, against a real server: a version is a model, an answer a completion."""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import ResponseOutputMessage
from pydantic import SecretStr
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.api.schemas import OpenbookOptions
from openbook.entities import Answer, AnswerOptions, Evidence
from openbook.plugins.openai.requests import NO_ANSWER, ChatCompletionRequest, ResponsesRequest
from openbook.plugins.openai.responses import citations, linked, shown
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from openbook_client.links import passage_path
from tests.openbook.api.conftest import ADMIN, PERU, TOKEN, Serve, get, post, serving, without_seconds
from tests.places import ROOT
from tests.waiting import PATIENCE_S

DOCUMENT = ROOT / "docs" / "http.md"
CHAT: dict[str, Any] = {"model": "openbook", "messages": [{"role": "user", "content": PERU}]}
RESPONSE: dict[str, Any] = {"model": "openbook", "input": PERU}
SMALL = {"openbook": {"n_docs": 4}}

# What clients send without being asked to, and what only hints.
TAKEN_BY_BOTH: dict[str, Any] = {
    **{"temperature": 0.7, "top_p": 0.9, "user": "me", "safety_identifier": "me", "service_tier": "auto"},
    **{"metadata": {"chat": "1"}, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "store": False},
    **{"prompt_cache_key": "x", "prompt_cache_retention": "24h", "stream": False, "stream_options": {}},
}
TAKEN: dict[str, dict[str, Any]] = {
    "chat": TAKEN_BY_BOTH
    | {"seed": 7, "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "stop": []}
    | {"response_format": {"type": "text"}, "modalities": ["text"], "reasoning_effort": "low", "n": 1}
    | {"function_call": "none", "functions": [], "verbosity": "low", "max_tokens": 4096},
    "responses": TAKEN_BY_BOTH
    | {"instructions": "Be brief.", "truncation": "auto", "reasoning": {"effort": "low"}, "background": False}
    | {"text": {"format": {"type": "text"}, "verbosity": "low"}, "include": ["reasoning.encrypted_content"]}
    | {"max_output_tokens": 100_000, "max_tool_calls": 3},
}
FUNCTION = {"name": "look"}
REFUSED_BY_BOTH: list[tuple[str, Any]] = [
    ("tool_choice", "required"),
    ("tool_choice", {"type": "function", "function": {"name": "look"}}),
    ("moderation", {"model": "omni-moderation-latest"}),
    ("top_logprobs", 2),
    ("metadata", {"x": 1}),
    ("metadata", {str(number): "" for number in range(17)}),
    ("qestion", 1),
]
REFUSED: list[tuple[str, str, Any]] = [
    *((call, name, value) for call in ("chat", "responses") for name, value in REFUSED_BY_BOTH),
    ("chat", "response_format", {"type": "json_object"}),
    ("chat", "modalities", ["text", "audio"]),
    ("chat", "audio", {"voice": "alloy", "format": "wav"}),
    ("chat", "function_call", FUNCTION),
    ("chat", "web_search_options", {}),
    ("chat", "logit_bias", {"5": 1}),
    ("chat", "n", 17),
    ("responses", "text", {"format": {"type": "json_object"}}),
    ("responses", "background", True),
    ("responses", "previous_response_id", "resp_1"),
    ("responses", "conversation", "conv_1"),
    ("responses", "prompt", {"id": "x"}),
]
NO_TEXT = "must be a text: the service does not read parts of type"
# turns -> the field at fault, and why
WRONG_TURNS: list[tuple[list[Any], str, str]] = [
    ([{"role": "system", "content": "x"}], "{}", "holds no turn with the role user, whose last one is the question"),
    ([{"role": "user"}], "{}[0].content", "must be a valid string"),
    ([{"role": "user", "content": []}], "{}[0].content", "must not be empty or blank"),
    ([{"role": "user", "content": "x" * 2001}], "{}[0].content", "must have at most 2000 characters"),
    (
        [{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
        *("{}[1].content[0]", f"{NO_TEXT} 'image_url'"),
    ),
    (
        [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text"}]}],
        *("{}[0].content[1]", f"{NO_TEXT} 'text'"),
    ),
    ([{"role": "user", "content": ["x"]}], "{}[0].content[0]", f"{NO_TEXT} None"),
    ([{"role": 5, "content": "x"}], "{}[0].role", "must be a valid string"),
    (["x"], "{}[0]", "must be a JSON object"),
]


def client_of(server: str) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{server}/v1", api_key="any", max_retries=0, timeout=PATIENCE_S, _strict_response_validation=True
    )


@pytest.fixture(scope="module")
def address(tiny_indexes: Path, tiny_checkpoint: Path, engine: RagEngine) -> Iterator[str]:
    """A real server of which no test of this file changes anything."""
    settings = Settings(
        indexes=tiny_indexes,
        checkpoint=str(tiny_checkpoint),
        admin_token=SecretStr(TOKEN),
        port=0,
        follow_s=0.0,
        max_new_tokens=40,
    )
    with serving(create_app(settings, engine=engine), settings) as address:
        yield address


@pytest.fixture(scope="module")
def ai(address: str) -> Iterator[openai.OpenAI]:
    with client_of(address) as client:
        yield client


def ask(ai: openai.OpenAI, call: str, **changed: Any) -> Any:
    """The completion, or the response, of a small question with some fields changed."""
    fields = (CHAT if call == "chat" else RESPONSE) | changed
    known = {name: fields.pop(name) for name in ("model", "messages", "input") if name in fields}
    extra = {"openbook": {"n_docs": 4}} | fields
    create: Any = ai.chat.completions.create if call == "chat" else ai.responses.create
    return create(**known, extra_body=extra)


def text_of(call: str, answered: Any) -> str:
    text: str = answered.choices[0].message.content if call == "chat" else answered.output_text
    return text


@pytest.fixture(scope="module")
def answer(engine: RagEngine, tiny_indexes: Path) -> Iterator[Answer]:
    """To PERU, with as many passages as `ask` asks for."""
    with closing(IndexStore(tiny_indexes).open("tiny-2016", dimension=engine.facts.dimension)) as snapshot:
        yield engine.answer([PERU], snapshot, AnswerOptions(n_docs=4))[0]


# --- models ------------------------------------------------------------------------------------------------


def test_the_live_version_and_every_open_one_are_models(ai: openai.OpenAI, address: str) -> None:
    resident = {one["version"]: one for one in get(f"{address}/index").json()["resident"]}
    models = {model.id: model for model in ai.models.list()}
    assert list(models) == ["openbook", "openbook:tiny-2016", "openbook:tiny-2018"]
    assert ai.models.retrieve("openbook:tiny-2018") == models["openbook:tiny-2018"]
    for version in resident:
        described = {name: resident[version][name] for name in ("version", "generation", "snapshot_date")}
        assert models[f"openbook:{version}"].model_dump()["openbook"] == described
    assert models["openbook"].created == models["openbook:tiny-2016"].created > 1_700_000_000


@pytest.mark.parametrize(
    "model", ["gpt-4o", "openbook:", "openbook:tiny-1999", "openbook:../x", "openbookish", ":", "", "openbook:a\0b"]
)
def test_what_is_not_open_is_no_model(ai: openai.OpenAI, model: str) -> None:
    for call in ("chat", "responses"):
        with pytest.raises(openai.NotFoundError) as refused:
            ask(ai, call, model=model)
        known = "Models: openbook, openbook:tiny-2016, openbook:tiny-2018."
        assert refused.value.body == {
            "message": f"model: there is no model {model!r}. {known}",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    if model and model.isprintable() and "/" not in model:
        with pytest.raises(openai.NotFoundError) as refused:
            ai.models.retrieve(model)
        assert refused.value.code == "model_not_found"


def test_a_model_that_names_a_version_pins_it_through_a_swap(serve: Serve) -> None:
    server = serve()
    with client_of(server) as ai:
        assert ask(ai, "chat").model == "openbook:tiny-2016"
        assert post(f"{server}/index/swap", json={"version": "tiny-2018"}, headers=ADMIN).status_code == 200
        for call in ("chat", "responses"):
            for model, version in (("", "tiny-2018"), (":tiny-2016", "tiny-2016"), (":tiny-2018", "tiny-2018")):
                answered = ask(ai, call, model=f"openbook{model}")
                assert answered.model == f"openbook:{version}"
                assert answered.openbook["index"]["version"] == version
        assert next(iter(ai.models.list())).model_dump()["openbook"]["version"] == "tiny-2018"


# --- answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["chat", "responses"])
def test_an_answer_is_the_one_that_the_call_answer_gives(ai: openai.OpenAI, address: str, call: str) -> None:
    plain = post(f"{address}/answer", json={"question": PERU, "n_docs": 4}).json()
    for one in plain["passages"]:
        one["url"] = address + passage_path("tiny-2016", one["passage_id"])
    answered = ask(ai, call)
    assert without_seconds(answered.openbook) == without_seconds(plain)
    text, _, quoted = text_of(call, answered).partition("\n\n> ")
    assert text == plain["answer"]
    assert quoted.startswith(plain["evidence"][0]["text"].partition("\n")[0])
    assert answered.model == "openbook:tiny-2016"
    n_said = len(plain["tokens"])
    usage = answered.usage.model_dump()
    assert [n for name, n in usage.items() if name in ("completion_tokens", "output_tokens")] == [n_said]
    if call == "chat":
        assert answered.system_fingerprint == plain["checkpoint"]
        assert [(one.finish_reason, one.logprobs, one.message.refusal) for one in answered.choices] == [
            ("stop", None, None)
        ]
    else:
        assert (answered.status, answered.error, answered.incomplete_details) == ("completed", None, None)
        assert answered.output[0].content[0].logprobs == []


def test_the_prompt_is_what_the_generator_reads(ai: openai.OpenAI, engine: RagEngine, answer: Answer) -> None:
    usage = ask(ai, "chat").usage
    n_read = sum(len(engine._generator.input_ids(PERU, one.passage)) for one in answer.passages)
    assert usage.prompt_tokens == n_read == answer.n_read
    assert usage.total_tokens == n_read + usage.completion_tokens


def test_the_id_of_an_answer_finds_its_line_in_the_log(ai: openai.OpenAI) -> None:
    headers = {"x-request-id": "mine-7"}
    chat = ai.chat.completions.create(**CHAT, extra_headers=headers)
    response = ai.responses.create(**RESPONSE, extra_headers=headers)
    assert isinstance(response.output[0], ResponseOutputMessage)
    assert (chat.id, response.id, response.output[0].id) == ("chatcmpl-mine-7", "resp_mine-7", "msg_mine-7")
    assert chat._request_id == "mine-7"


def test_log_probabilities_are_those_of_the_marginal(ai: openai.OpenAI) -> None:
    chat = ask(ai, "chat", logprobs=True, top_logprobs=1)
    response = ask(ai, "responses", include=["message.output_text.logprobs"], top_logprobs=1)
    *words, end = chat.openbook["tokens"]
    assert end["text"] == "[SEP]"
    for found in (chat.choices[0].logprobs.content, response.output[0].content[0].logprobs):
        assert [(one.token, one.logprob) for one in found] == [(one["text"], one["log_prob"]) for one in words]
        assert all(bytes(one.bytes).decode() == one.token for one in found)
        assert [[(top.token, top.logprob) for top in one.top_logprobs] for one in found] == [
            [(one["text"], one["log_prob"])] for one in words
        ]
    assert sum(one.logprob for one in chat.choices[0].logprobs.content) + end["log_prob"] == pytest.approx(
        chat.openbook["log_prob"], abs=1e-4
    )


@pytest.mark.parametrize("openbook", [{"num_beams": 2}, {"model": "sequence"}])
def test_no_token_is_said_to_be_the_likeliest_that_need_not_be(ai: openai.OpenAI, openbook: dict[str, Any]) -> None:
    found = ask(ai, "chat", logprobs=True, top_logprobs=1, openbook={"n_docs": 4} | openbook)
    assert found.choices[0].logprobs.content
    assert all(one.top_logprobs == [] for one in found.choices[0].logprobs.content)


def test_several_answers_are_several_choices(ai: openai.OpenAI, address: str) -> None:
    plain = post(f"{address}/answer", json={"question": PERU, "n_docs": 4, "num_answers": 3}).json()
    found = ask(ai, "chat", n=3, logprobs=True)
    assert len(plain["answers"]) == 3
    best, *others = (one.message.content for one in found.choices)
    # evidence is that of the first
    assert [best.partition("\n\n> ")[0], *others] == [one["text"] or NO_ANSWER for one in plain["answers"]]
    assert [one.index for one in found.choices] == [0, 1, 2]
    assert [one.logprobs is not None for one in found.choices] == [True, False, False]
    alone = len(plain["tokens"])
    assert found.usage.completion_tokens > alone


@pytest.mark.parametrize(
    ("call", "field"), [("chat", "max_tokens"), ("chat", "max_completion_tokens"), ("responses", "max_output_tokens")]
)
def test_an_answer_that_was_cut_off_says_so(ai: openai.OpenAI, call: str, field: str) -> None:
    cut = ask(ai, call, **{field: 1})
    usage = cut.usage.model_dump()
    assert 1 in (usage.get("completion_tokens"), usage.get("output_tokens"))
    if call == "chat":
        assert cut.choices[0].finish_reason == "length"
    else:
        assert (cut.status, cut.output[0].status) == ("incomplete", "incomplete")
        assert cut.incomplete_details.reason == "max_output_tokens"


def test_more_tokens_than_allowed_mean_as_many_as_allowed(ai: openai.OpenAI) -> None:
    assert text_of("chat", ask(ai, "chat", max_tokens=10**9)) == text_of("chat", ask(ai, "chat", max_tokens=40))


@pytest.mark.parametrize("call", ["chat", "responses"])
def test_a_withheld_answer_is_a_sentence(ai: openai.OpenAI, call: str) -> None:
    changed = {"logprobs": True, "n": 2} if call == "chat" else {"include": ["message.output_text.logprobs"]}
    found = ask(ai, call, openbook={"n_docs": 4, "abstain": {"max_no_answer": 0}}, **changed)
    assert text_of(call, found) == NO_ANSWER
    assert (found.openbook["answer"], found.openbook["abstained"]) == (None, True)
    if call == "chat":
        (choice,) = found.choices
        assert (choice.finish_reason, choice.message.refusal, choice.logprobs.content) == ("stop", None, [])
    else:
        (part,) = found.output[0].content
        assert (found.status, part.annotations, part.logprobs) == ("completed", [], [])


def with_spans(answer: Answer, *holding: int, urls: bool = False) -> Answer:
    """The same where only these passages, by rank, hold the answer, and have urls or not."""
    return replace(
        answer,
        passages=tuple(
            replace(
                one,
                posterior=0.1 * one.rank,
                answer_spans=((0, 3),) if one.rank in holding else (),
                passage=replace(one.passage, url=f"https://a.example/{one.rank}" if urls else None),
            )
            for one in answer.passages
        ),
    )


def test_passages_that_hold_the_answer_are_cited_or_the_one_it_owes_most_to(answer: Answer) -> None:
    for holding, cited in (((1, 3), (3, 1)), ((2,), (2,)), ((), (4,))):
        found = citations(with_spans(answer, *holding, urls=True))
        assert [one.url for one in found] == [f"https://a.example/{rank}" for rank in cited]
    assert citations(replace(with_spans(answer, 1), abstained=True)) == []


def test_an_answer_is_shown_with_what_it_stands_on_and_where_that_is_from(answer: Answer) -> None:
    stretch = Evidence(2, "p", "1. Pull.\n\n2. Push.", 0, 18, 0.9)
    found = replace(with_spans(answer, 2), evidence=(stretch, replace(stretch, rank=1, text="Pull.")))
    titles = [one.passage.title for one in found.passages]
    quoted = f"> 1. Pull.\n>\n> 2. Push.\n>\n> {titles[1]}\n\n> Pull.\n>\n> {titles[0]}"
    assert shown(found) == f"{found.text}\n\n{quoted}"
    assert shown(replace(found, abstained=True)) == NO_ANSWER
    linked = with_spans(found, 2, urls=True)
    placed = replace(linked.passages[1], passage=replace(linked.passages[1].passage, section="Doors"))
    linked = replace(linked, passages=(linked.passages[0], placed, *linked.passages[2:]))
    assert f"> [{titles[1]} > Doors](https://a.example/2)\n\n> Pull." in shown(linked)


@pytest.mark.parametrize("call", ["chat", "responses"])
def test_a_passage_without_a_url_is_cited_by_its_page_at_the_service(ai: openai.OpenAI, call: str) -> None:
    found = ask(ai, call)
    passages = {one["url"]: one for one in found.openbook["passages"]}
    if call == "chat":
        text, cited = (
            found.choices[0].message.content,
            [one.url_citation for one in found.choices[0].message.annotations],
        )
    else:
        ((part,),) = (one.content for one in found.output)
        text, cited = part.text, part.annotations
    assert cited
    for one in cited:
        # the evidence stands below
        assert (one.start_index, one.end_index) == (0, len(text.partition("\n\n> ")[0]))
        assert get(one.url).json()["passage"]["text"] == passages[one.url]["text"]
    assert f"]({cited[0].url})" in text


def test_links_begin_with_the_address_that_readers_have(serve: Serve) -> None:
    address = serve(public_url="https://books.example.org/ask/")
    for stream in (False, True):
        text = post(f"{address}/v1/chat/completions", json=CHAT | SMALL | {"stream": stream}).text
        assert '"url":"https://books.example.org/ask/passages/' in text
        assert address not in text


def test_a_citation_of_a_document_with_pages_names_the_page(answer: Answer) -> None:
    found = with_spans(answer, 1)
    of_pdf = replace(found.passages[0], passage=replace(found.passages[0].passage, metadata=(("page", 3),)))
    (cited,) = citations(linked(replace(found, passages=(of_pdf, *found.passages[1:])), "https://b.example/x/"))
    assert cited.title == f"{of_pdf.title}, page 3"
    assert cited.url == f"https://b.example/x/passages/tiny-2016/{of_pdf.passage_id}#page=3"


# --- what is sent ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "turns",
    [
        [{"role": "system", "content": "Answer in verse."}, {"role": "user", "content": PERU}],
        [
            {"role": "user", "content": "who is the king ?"},
            {"role": "assistant", "content": None, "refusal": "no", "tool_calls": []},
            {"role": "user", "content": f"  {PERU}\n"},
        ],
        [{"role": "user", "content": PERU}, {"role": "assistant", "content": "the"}],
        [{"role": "user", "content": [{"type": "image_url"}]}, {"role": "user", "content": PERU, "name": "me"}],
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "who is the president"}, {"type": "text", "text": "of peru ?"}],
            }
        ],
        [{"role": "user", "content": [{"type": "input_text", "text": PERU}]}, {"type": "reasoning", "summary": []}],
    ],
)
def test_the_last_turn_of_the_user_is_the_question(ai: openai.OpenAI, turns: list[Any]) -> None:
    expected = text_of("chat", ask(ai, "chat"))
    assert text_of("chat", ask(ai, "chat", messages=turns)) == expected
    assert text_of("responses", ask(ai, "responses", input=turns)) == expected


CONVERSATION = [
    {"role": "system", "content": "Answer in verse."},
    {"role": "user", "content": [{"type": "image_url"}]},
    {"role": "user", "content": "Who is the President of Peru?"},
    {"role": "assistant", "content": "Martin Vizcarra\n\n> Since 2018 he is."},
    {"role": "user", "content": "x" * 2001},
    {"role": "assistant", "content": "y" * 5000},
    {"role": "user", "content": "And of Chile?"},
]


def test_a_turn_that_leans_on_those_before_it_is_completed(ai: openai.OpenAI, address: str) -> None:
    for call, name, path in (("chat", "messages", "chat/completions"), ("responses", "input", "responses")):
        for turns, understood in (
            (CONVERSATION, "Who is the President of Chile?"),
            (
                [*CONVERSATION[:4], {"role": "user", "content": "When was he elected?"}],
                "When was Martin Vizcarra elected?",
            ),
            (CONVERSATION[:3], None),
            # a model that writes more has answered it
            ([CONVERSATION[2], CONVERSATION[5], CONVERSATION[6]], "Who is the President of Chile?"),
        ):
            assert ask(ai, call, **{name: turns}, **SMALL).openbook["understood_as"] == understood
        streamed = post(f"{address}/v1/{path}", json={"model": "openbook", name: CONVERSATION, "stream": True, **SMALL})
        assert '"understood_as":"Who is the President of Chile?"' in streamed.text


def test_a_long_chat_of_open_webui_is_still_answered(address: str) -> None:
    """What it sends of itself: 36 tools, 25 kB in all, and every turn anew, each answer with its evidence."""
    tool = {"type": "function", "function": {"name": "look", "parameters": {}, "description": "x" * 600}}
    said = "Martin Vizcarra" + "\n\n> He holds the office.\n>\n> [Peru](http://127.0.0.1:8000/passages/x/peru%230)" * 6
    turns = [CONVERSATION[2], {"role": "assistant", "content": said}] * 200
    body = {"stream": True, "model": "openbook", "messages": [*turns, {"role": "user", "content": "And of Chile?"}]}
    answered = post(f"{address}/v1/chat/completions", json=body | {"tools": [tool] * 36})
    assert (answered.status_code, answered.headers["x-openbook-ignored"]) == (200, "tools")
    assert '"understood_as":"Who is the President of Chile?"' in answered.text
    assert answered.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(("turns", "field", "reason"), WRONG_TURNS)
def test_a_turn_that_cannot_be_asked_is_named(ai: openai.OpenAI, turns: list[Any], field: str, reason: str) -> None:
    for call, name in (("chat", "messages"), ("responses", "input")):
        with pytest.raises(openai.BadRequestError) as refused:
            ask(ai, call, **{name: turns})
        place = field.format(name)
        assert (refused.value.param, refused.value.code) == (place, "invalid_request")
        assert refused.value.body["message"] == f"{place}: {reason}"  # type: ignore[index]


@pytest.mark.parametrize("call", ["chat", "responses"])
def test_a_hint_changes_nothing(ai: openai.OpenAI, call: str) -> None:
    expected = ask(ai, call).openbook
    for fields in (TAKEN[call], dict.fromkeys(TAKEN[call])):
        assert without_seconds(ask(ai, call, **fields).openbook) == without_seconds(expected)


@pytest.mark.parametrize(("call", "name", "value"), REFUSED)
def test_what_the_service_cannot_do_is_refused(ai: openai.OpenAI, call: str, name: str, value: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(ai, call, **{name: value})
    assert (refused.value.param or "").split(".")[0].split("[")[0] == name
    assert (refused.value.type, refused.value.code) == ("invalid_request_error", "invalid_request")


# What chats send by themselves: Open WebUI its tools, others stops and penalties.
OFFERED: dict[str, dict[str, Any]] = {
    "chat": {
        **{"tools": [{"type": "function", "function": FUNCTION}], "functions": [FUNCTION], "store": True},
        **{"stop": ["\n"], "frequency_penalty": 0.5, "presence_penalty": -1, "temperature": 0.2, "user": "me"},
    },
    "responses": {"tools": [{"type": "web_search"}], "store": True, "temperature": 0.2, "user": "me"},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("call", ["chat", "responses"])
def test_what_chats_offer_is_taken_and_named_in_a_header(ai: openai.OpenAI, call: str, stream: bool) -> None:
    create = {
        "chat": ai.chat.completions.with_raw_response.create,
        "responses": ai.responses.with_raw_response.create,
    }[call]
    plain = {"chat": CHAT, "responses": RESPONSE}[call] | {"stream": stream}
    # neither is a tool that nobody asks for, nor a default
    found = create(**plain, **OFFERED[call], tool_choice="auto", top_p=None)  # type: ignore[operator]
    assert set(found.headers["x-openbook-ignored"].split(", ")) == set(OFFERED[call])
    assert "x-openbook-ignored" not in create(**plain).headers  # type: ignore[operator]


def test_a_form_of_an_answer_that_is_not_text_is_refused_with_what_to_do(ai: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match=r"plain text; ask without it, and read openbook\.answer"):
        ask(ai, "chat", response_format=form)


def test_a_client_of_the_older_call_is_told_what_to_set(ai: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=r"OpenAILike\(is_chat_model=True\)") as refused:
        ai.completions.create(model="openbook", prompt=PERU)
    assert refused.value.code == "not_found"


def test_a_response_repeats_what_was_asked_for(ai: openai.OpenAI) -> None:
    found = ask(ai, "responses", instructions="Be brief.", metadata={"chat": "1"}, max_output_tokens=5)
    assert (found.instructions, found.metadata, found.max_output_tokens) == ("Be brief.", {"chat": "1"}, 5)


@pytest.mark.parametrize(
    ("openbook", "param"),
    [
        ({"n_docs": 13}, "openbook.n_docs"),
        ({"question": "x"}, "openbook.question"),
        ({"max_new_tokens": 3}, "openbook.max_new_tokens"),
        ({"search": {"nprobe": 3}}, "openbook.search.nprobe"),
    ],
)
def test_an_option_of_ours_is_checked_under_its_own_name(ai: openai.OpenAI, openbook: Any, param: str) -> None:
    for call in ("chat", "responses"):
        with pytest.raises(openai.BadRequestError) as refused:
            ask(ai, call, openbook=openbook)
        assert refused.value.param == param


def test_the_document_names_every_field_and_no_other() -> None:
    section = DOCUMENT.read_text(encoding="utf-8").split("\n## From clients of OpenAI's API\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \|", section.split("| field |")[1].split("\n\n")[0], re.MULTILINE)
    named = {name.split(".")[0] for row in rows for name in re.findall(r"`([\w.]+)`", row)} - {"message"}
    fields = set(ChatCompletionRequest.model_fields) | set(ResponsesRequest.model_fields)
    assert named == fields - {"model", "messages", "input"}
    options = next(line for line in section.splitlines() if line.startswith("| `openbook` | an object"))
    assert set(re.findall(r"`(\w+)`", options)) - {"openbook"} == set(OpenbookOptions.model_fields)


# --- what every call of the service holds to ---------------------------------------------------------------


def test_every_error_has_the_body_that_these_clients_read(reader: TestClient) -> None:
    json_type = {"content-type": "application/json"}
    calls: list[tuple[int, str, str, dict[str, Any]]] = [
        (404, "not_found", "invalid_request_error", {"method": "POST", "url": "/v1/images", "json": {}}),
        (405, "method_not_allowed", "invalid_request_error", {"method": "GET", "url": "/v1/responses"}),
        (400, "malformed_body", "invalid_request_error", {"method": "POST", "content": b"{", "headers": json_type}),
        (413, "body_too_large", "invalid_request_error", {"method": "POST", "content": b" " * 262_145}),
        (415, "unsupported_media_type", "invalid_request_error", {"method": "POST", "content": b"{}"}),
        (421, "host_refused", "invalid_request_error", {"method": "GET", "headers": {"host": "elsewhere.example"}}),
        (
            *(403, "origin_refused", "permission_error"),
            {"method": "POST", "json": CHAT, "headers": {"origin": "http://elsewhere.example"}},
        ),
        (431, "head_too_large", "invalid_request_error", {"method": "GET", "headers": {"x": "y" * 17_000}}),
    ]
    for status, code, kind, call in calls:
        response = reader.request(**({"url": "/v1/chat/completions"} | call))
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-request-id"]
        error = response.json()["error"]
        assert set(response.json()) == {"error"}
        assert set(error) == {"message", "type", "param", "code"}
        assert (response.status_code, error["code"], error["type"], error["param"]) == (status, code, kind, None)


def test_a_problem_that_has_no_place_there_becomes_one_that_clients_do_not_repeat(ai: openai.OpenAI) -> None:
    # 409 elsewhere
    for openbook in ({"retriever": "bm25"}, {"abstain": "calibrated"}):
        with pytest.raises(openai.BadRequestError) as refused:
            ask(ai, "chat", openbook=openbook)
        assert refused.value.code in ("retriever_unavailable", "not_calibrated")


def test_a_deadline_holds_there_too_and_is_not_asked_again(ai: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as late:
        ask(ai, "responses", openbook={"timeout_s": 0.000001})
    assert (late.value.status_code, late.value.code, late.value.type) == (504, "deadline_exceeded", "server_error")
    # the client would otherwise ask twice more
    assert late.value.response.headers["x-should-retry"] == "false"


def test_any_key_will_do_and_none(address: str) -> None:
    for headers in ({}, {"authorization": "Bearer sk-whatever"}, {"authorization": "Basic x"}):
        assert post(f"{address}/v1/chat/completions", json=CHAT, headers=headers).status_code == 200
