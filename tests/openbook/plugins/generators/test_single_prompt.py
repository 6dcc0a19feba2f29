"""The model "single-prompt": a server answers from all passages at once, the audit says what each sentence stands on,
and the stream and the page show both."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.api.composition import load_engine
from openbook.entities import AnswerOptions, Audit, Hypothesis, Passage
from openbook.errors import GeneratorLacks, SettingInvalid
from openbook.plugins.generators.causal import CausalGenerator
from openbook.plugins.generators.generator import ServedGenerator, open_served
from openbook.plugins.generators.prompt import filled
from openbook.plugins.generators.server import RowPrompt
from openbook.plugins.generators.single_prompt import LEAST_SUPPORT, OneAnswer, SinglePrompt, by_sentence
from openbook.plugins.generators.wire import AnswerEnds, Said, SaidToken, Saying
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.decoder import nothing
from openbook.rag.listening import Certain
from openbook.rag.marginal import doc_log_prior
from openbook.settings import Settings, settings_class
from tests.fixtures.causal import PROMPT
from tests.fixtures.language_servers import LanguageServer, Serving, TinyModel
from tests.openbook.api.conftest import PERU, client_of, ended_with, serving
from tests.openbook.api.test_streaming import streaming_from
from tests.openbook.rag.conftest import Case, make_case
from tests.waiting import HELD_S, until

CASE = make_case(1, 4, longest=12)
OPTIONS = AnswerOptions(model="single-prompt", max_new_tokens=12)
NO_REFUSALS = replace(PROMPT, refusals=())
Open = Callable[..., ServedGenerator]


@pytest.fixture
def prompt_file(tmp_path: Path) -> Path:
    # the tiny model reads no longer one
    path = tmp_path / "prompt.json"
    path.write_text(json.dumps(NO_REFUSALS.content()), encoding="utf-8")
    return path


@pytest.fixture
def open_(prompt_file: Path) -> Iterator[Open]:
    with ExitStack() as stack:

        def opened(server: LanguageServer, **settings: Any) -> ServedGenerator:
            own = settings_class()(**{"prompt": prompt_file, "single_prompt": prompt_file} | settings)
            return stack.enter_context(closing(open_served(server.url, own, None)))

        yield opened


def answer_of(
    generator: ServedGenerator, case: Case, listeners: dict[int, Certain] | None = None
) -> tuple[Hypothesis, float]:
    log_prior = doc_log_prior(torch.tensor([case.doc_scores])).float()
    encoded = generator.encode([case.question], [case.passages])
    generator.prepare(encoded, OPTIONS)
    empty = float(generator.empty_log_prob(encoded, log_prior))
    ((found,),) = generator.decode(generator.start(encoded), log_prior, OPTIONS, listeners=listeners or {})
    return found, empty


def audit_of(found: Hypothesis) -> Audit:
    assert found.audit is not None
    return found.audit


def test_the_answer_is_that_of_the_same_model_to_all_passages_as_one(
    language_servers: Serving, open_: Open, plain_causal_checkpoint: Path
) -> None:
    found, empty = answer_of(open_(language_servers()), CASE)
    checkpoint = load_checkpoint(plain_causal_checkpoint)
    longer = replace(NO_REFUSALS, longest_passage=800)
    local = CausalGenerator(replace(checkpoint, prompt=longer))
    texts = [f"{one.title}\n{one.text}" if one.title else one.text for one in CASE.passages]
    joined = Passage("all", "", "\n\n".join(texts))
    start = local.start(local.encode([CASE.question], [[joined]]))
    options = replace(OPTIONS, model="token")
    assert empty == pytest.approx(float(local.empty_log_prob(start, torch.zeros(1, 1))), abs=1e-3)
    ((expected,),) = local.decode(start, torch.zeros(1, 1), options)
    assert found.quote is not None
    assert found.quote.text == local.text(expected.token_ids)
    assert found.token_log_probs == pytest.approx(expected.token_log_probs, abs=1e-3)
    prior = doc_log_prior(torch.tensor([CASE.doc_scores])).exp()[0].tolist()
    assert all(column == pytest.approx(prior, abs=1e-6) for column in found.posterior)


def test_support_is_what_a_sentence_loses_without_a_passage(
    language_servers: Serving, open_: Open, plain_causal_checkpoint: Path
) -> None:
    found, _ = answer_of(open_(language_servers()), CASE)
    (sentence,) = audit_of(found).sentences
    assert found.quote is not None
    assert (sentence.text, sentence.start, sentence.end) == (found.quote.text, 0, len(found.quote.text))
    tiny = TinyModel(plain_causal_checkpoint / "generator")
    said = "".join(found.quote.token_texts).removesuffix("</s>")

    def log_prob(passages: tuple[Passage, ...]) -> tuple[float, int]:
        text = "\n\n".join(f"{one.title}\n{one.text}" if one.title else one.text for one in passages)
        first = tiny.tokenizer(filled(WHOLE, text, CASE.question))["input_ids"]
        answer = tiny.tokenizer(said)["input_ids"]
        after = tiny.log_probs([*first, *answer])[len(first) - 1 :]
        return sum(float(after[at, token]) for at, token in enumerate(answer)), len(answer)

    whole, n_tokens = log_prob(CASE.passages)
    each = [log_prob((*CASE.passages[:k], *CASE.passages[k + 1 :]))[0] for k in range(len(CASE.passages))]
    assert sentence.support == pytest.approx([whole - one for one in each], abs=1e-3)
    assert sentence.support_of_all == pytest.approx(whole - log_prob(())[0], abs=1e-3)
    assert sentence.supported == (sentence.support_of_all >= LEAST_SUPPORT * n_tokens)


WHOLE = "\n\n".join(
    [
        PROMPT.system,
        f"Passage: Peru\nthe queen of peru is old . Question: who is old{PROMPT.opening}the queen of peru",
        f"{PROMPT.user}{PROMPT.opening.rstrip()}",
    ]
)


@pytest.mark.parametrize(
    ("habits", "settings", "reason"),
    [
        ({"echo": False}, {}, "tells no probability of given words"),
        ({}, {"audit": False}, "does not audit"),
    ],
)
def test_what_nobody_measured_has_a_reason(
    language_servers: Serving, open_: Open, habits: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    server = language_servers(**habits)
    audit = audit_of(answer_of(open_(server, **settings), CASE)[0])
    assert reason in (audit.reason or "")
    assert {(one.supported, one.support, one.support_of_all) for one in audit.sentences} == {(None, None, None)}


def test_a_refusal_is_the_empty_answer(language_servers: Serving, open_: Open, tmp_path: Path) -> None:
    for echo in (True, False):
        server = language_servers(echo=echo)
        plain, before = answer_of(open_(server), CASE)
        assert plain.quote is not None
        refusing = tmp_path / "refusing.json"
        refusing.write_text(json.dumps(replace(PROMPT, refusals=(plain.quote.text,)).content()), encoding="utf-8")
        heard: list[Hypothesis] = []
        found, empty = answer_of(open_(server, single_prompt=refusing), CASE, {0: heard.append})
        assert found.quote is not None
        assert (found.quote.text, found.log_prob, audit_of(found).sentences) == ("", empty, ())
        assert [one.quote and one.quote.text for one in heard] == [""]
        likely = plain.log_prob if plain.token_ids[-1] == 0 else -math.inf
        assert empty == pytest.approx(math.log(math.exp(before) + math.exp(likely)), abs=1e-3)


def test_tokens_fall_to_the_sentence_that_they_end_in() -> None:
    text = " One is 1. Zwölf 😀 too.\nOn it goes"
    words = (
        " One",
        " is",
        " 1",
        ".",
        " Zw",
        "\ufffd",
        "\ufffd",
        "lf",
        " \ufffd",
        "\ufffd",
        " too",
        ".\n",
        "On",
        " it goes",
    )
    said = Said(words, tuple(-float(n) for n in range(len(words))), ended=False, text=text)
    ends = [text.index(".") + 1, text.index("\n"), len(text)]
    assert by_sentence(said, text, ends) == [
        [0.0, -1.0, -2.0, -3.0],
        [-4.0, -5.0, -6.0, -7.0, -8.0, -9.0, -10.0, -11.0],
        [-12.0, -13.0],
    ]


def test_a_token_that_goes_on_behind_a_stop_ends_the_answer() -> None:
    saying = Saying([])
    event = {
        "choices": [{"text": "Yes.\n\n", "logprobs": {"tokens": ["Yes", ".\n\n"], "token_logprobs": [-1.0, -2.0]}}]
    }
    assert not saying.add(event, AnswerEnds(("\n",)))
    assert saying.said() == replace(
        saying.said(), words=("Yes", "."), log_probs=(-1.0, -2.0, 0.0), ended=True, text="Yes."
    )


def test_no_other_thread_sees_what_is_behind_a_stop() -> None:
    seen: list[str] = []

    class Watched(list[Any]):
        def append(self, token: Any) -> None:
            seen.append(token.text)
            super().append(token)

    tokens = {"tokens": ["Yes", ".\n\nQ"], "token_logprobs": [-1.0, -2.0]}
    assert not Saying(Watched()).add({"choices": [{"text": "Yes.\n\nQ", "logprobs": tokens}]}, AnswerEnds(("\n",)))
    assert seen == ["Yes", "."]


@pytest.mark.parametrize(
    ("prompt", "single", "setting"),
    [
        ({}, {"chat": True, "opening": ""}, "OPENBOOK_SINGLE_PROMPT: must be a chat exactly where"),
        ({"chat": True, "opening": ""}, {"chat": True}, "OPENBOOK_SINGLE_PROMPT: the answer of a chat"),
        ({"chat": True}, {"chat": True, "opening": ""}, "OPENBOOK_PROMPT: the answer of a chat"),
    ],
)
def test_prompts_that_do_not_go_are_refused_by_their_setting(
    tmp_path: Path, prompt: dict[str, Any], single: dict[str, Any], setting: str
) -> None:
    files = {"prompt": tmp_path / "one.json", "single_prompt": tmp_path / "other.json"}
    for path, change in zip(files.values(), (prompt, single), strict=True):
        path.write_text(json.dumps(replace(PROMPT, **change).content()), encoding="utf-8")
    with pytest.raises(SettingInvalid, match=f"^{setting}"):
        open_served("http://127.0.0.1:9/v1", settings_class()(**files), None)


def test_a_single_prompt_alone_says_how_the_server_is_asked(
    language_servers: Serving, open_: Open, tmp_path: Path
) -> None:
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps(replace(NO_REFUSALS, chat=True, opening="").content()), encoding="utf-8")
    server = language_servers()
    with pytest.raises(SettingInvalid, match="no such path"):
        open_(server, prompt=None, single_prompt=chat)


def test_an_answer_that_was_begun_ends_where_nobody_waits_for_it(language_servers: Serving, open_: Open) -> None:
    server = language_servers()
    # the second question has its turn when the first answer has ended
    generator = open_(server, generator_concurrency=1)
    server.habits.pause_s = HELD_S
    before, left = len(server.bodies), len(server.hung_up)

    def first_is_gone() -> tuple[int, ...]:
        if len(server.hung_up) > left:
            server.habits.pause_s = 0
        return (0,) if len(server.bodies) > before else ()

    encoded = generator.encode([CASE.question] * 2, [CASE.passages] * 2)
    generator.prepare(encoded, OPTIONS, first_is_gone)
    assert [one is None for one in encoded.single] == [True, False]
    assert len(server.hung_up) == left + 1
    generator.close()


def test_a_refusal_with_more_behind_a_stop_is_not_told() -> None:
    class Telling:
        def each(self, works: list[Any], between_steps: Callable[[], object], identity: str) -> list[None]:
            between_steps()
            for work in works:
                work.close()
            return [None] * len(works)

    one = OneAnswer("who", CASE.passages[:1], RowPrompt())
    one.saying.text = "unknown\nQ"
    one.saying.tokens += [SaidToken("unknown", -1.0, -2.0, is_end=False), SaidToken("\nQ", -1.0, -1.0, is_end=True)]
    server: Any = Telling()
    heard: list[Hypothesis] = []
    single = SinglePrompt(server, replace(PROMPT, refusals=("unknown",)), audits=False)
    single.decode([one], torch.zeros(1, 1), nothing, {0: heard.append}, "")
    assert heard == []


def test_other_generators_refuse_a_single_prompt(plain_causal_checkpoint: Path) -> None:
    with pytest.raises(GeneratorLacks, match="OPENBOOK_GENERATOR"):
        CausalGenerator(load_checkpoint(plain_causal_checkpoint)).check(OPTIONS)


# --- in a service ------------------------------------------------------------------------------------------

ASKED = {"question": PERU, "n_docs": 3, "max_new_tokens": 12, "abstain": "never", "model": "single-prompt"}
Start = Callable[[LanguageServer], TestClient]


def settings_of(settings: Settings, server: LanguageServer, prompt_file: Path) -> Settings:
    more = {"generator": server.url, "prompt": prompt_file, "single_prompt": prompt_file}
    return settings.model_copy(update=more)


@pytest.fixture
def start(settings: Settings, prompt_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    for name, seconds in (("FIRST_PAUSE_S", 0.01), ("PAUSE_S", 0.05)):
        monkeypatch.setattr(f"openbook.plugins.generators.server.{name}", seconds)
    with ExitStack() as stack:

        def started(server: LanguageServer) -> TestClient:
            own = settings_of(settings, server, prompt_file)
            return stack.enter_context(client_of(create_app(own, engine=load_engine(own))))

        yield started


def test_the_response_says_what_was_measured(start: Start, language_servers: Serving) -> None:
    client = start(language_servers())
    best = client.post("/answer", json=ASKED).raise_for_status().json()
    assert (best["model"], best["posterior_kind"]) == ("single-prompt", "prior")
    assert [one["posterior"] for one in best["passages"]] == [one["prior"] for one in best["passages"]]
    assert "".join(token["text"] for token in best["tokens"]).removesuffix("</s>").strip() == best["answer"]
    assert best["audit"]["reason"] is None
    for one in best["audit"]["sentences"]:
        assert best["answer"][one["start"] : one["end"]] == one["text"]
        assert len(one["support"]) == 3
    assert client.post("/answer", json=ASKED | {"model": "sequence"}).json()["audit"] is None


def test_tokens_are_told_while_the_server_says_them(
    settings: Settings, prompt_file: Path, language_servers: Serving
) -> None:
    server = language_servers()
    own = settings_of(settings, server, prompt_file)
    events: list[tuple[str, dict[str, Any]]] = []
    under_way: list[int] = []
    with serving(create_app(own, engine=load_engine(own)), own) as address:
        # the fourth is not said before the first is told
        server.habits.pause_s, server.habits.pause_after = HELD_S, 3
        with streaming_from(address, ASKED | {"stream": True, "timeout_s": 100}) as coming:
            for name, data in coming:
                events.append((name, data))
                if name == "token":
                    under_way.append(server.under_way)
                    server.habits.pause_s = 0
    assert under_way[0] == 1
    assert [name for name, _ in events][:1] == ["passages"]
    told = [data for name, data in events if name == "token"]
    (answer,) = [data for name, data in events if name == "answer"]
    assert told == answer["tokens"]
    assert len(told) > 3


def test_an_answer_that_breaks_off_is_not_begun_again(start: Start, language_servers: Serving) -> None:
    server = language_servers()
    client = start(server)
    sequence = ASKED | {"model": "sequence"}
    whole = client.post("/answer", json=sequence).raise_for_status().json()
    server.habits.breaks_after = 0
    assert client.post("/answer", json=sequence).raise_for_status().json()["answers"] == whole["answers"]
    server.habits.breaks_after = 2
    assert ended_with(client.post("/answer", json=ASKED)) == (502, "generator_failed")


def test_a_question_whose_time_is_up_ends_the_answer_at_the_server(start: Start, language_servers: Serving) -> None:
    server = language_servers()
    client = start(server)
    server.habits.pause_s = HELD_S
    late = ASKED | {"timeout_s": 1.0, "max_new_tokens": 30}
    left = len(server.hung_up)

    def a_late_one_hung_up() -> bool:
        # on a busy machine the time may be up before the server is asked
        assert ended_with(client.post("/answer", json=late)) == (504, "deadline_exceeded")
        return len(server.hung_up) > left

    until(a_late_one_hung_up)
