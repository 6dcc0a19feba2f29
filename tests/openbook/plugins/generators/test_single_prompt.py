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

from openbook.entities import AnswerOptions, Audit, Hypothesis, Passage, Sentence
from openbook.errors import GeneratorLacks, SettingInvalid
from openbook.plugins.generators.causal import CausalGenerator
from openbook.plugins.generators.generator import ServedGenerator, open_served
from openbook.plugins.generators.prompt import filled
from openbook.plugins.generators.server import RowPrompt
from openbook.plugins.generators.single_prompt import LEAST_SUPPORT, OneAnswer, SinglePrompt, audited, by_sentence
from openbook.plugins.generators.wire import AnswerEnds, Said, SaidToken, Saying
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.decoder import nothing
from openbook.rag.listening import Certain
from openbook.rag.marginal import doc_log_prior
from openbook.settings import settings_class
from tests.fixtures.causal import PROMPT
from tests.fixtures.language_servers import LanguageServer, Serving, TinyModel
from tests.openbook.rag.conftest import Case, make_case
from tests.waiting import HELD_S

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


def test_a_sentence_that_is_said_again_has_the_support_of_the_first() -> None:
    texts = ("It is red.", "It is blue.", "It is red.", "It is")
    sentences = [Sentence(text, at, at + len(text)) for at, text in enumerate(texts)]
    # two passages: what was said makes the last two likely whatever is read
    whole = [[-1.0, -1.0], [-4.0], [-0.1], [-0.1]]
    without = [
        [[-3.0, -2.0], [-4.0], [-0.1], [-0.1]],
        [[-1.0, -1.0], [-4.0], [-0.1], [-0.1]],
        [[-3.0, -3.0], [-4.2], [-0.1], [-0.1]],
    ]
    found = audited(sentences, whole, without)
    assert [(one.text, one.start) for one in found] == [(text, at) for at, text in enumerate(texts)]
    assert [one.supported for one in found] == [True, False, True, True]
    assert [one.support_of_all for one in found] == pytest.approx([4.0, 0.2, 4.0, 4.0])
    assert [one.support for one in found] == [(3.0, 0.0), (0.0, 0.0), (3.0, 0.0), (3.0, 0.0)]


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
