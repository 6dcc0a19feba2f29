"""A language model behind HTTP answers as the same model in this process does."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from openbook.entities import AnswerOptions, Hypothesis
from openbook.errors import GeneratorUnreachable, SettingInvalid
from openbook.plugins.generators.causal import CausalGenerator
from openbook.plugins.generators.generator import ServedGenerator, open_served
from openbook.plugins.generators.prompt import CausalPrompt
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.generator import Generator
from openbook.rag.marginal import doc_log_prior
from openbook.settings import Settings, settings_class
from tests.fixtures.causal import PROMPT
from tests.fixtures.language_servers import LanguageServer, Serving
from tests.openbook.rag.conftest import Case, make_case
from tests.waiting import until

CASES = [make_case(number, n_docs, longest=12) for number, n_docs in enumerate((1, 4, 3))]
NO_REFUSALS = replace(PROMPT, refusals=())


@dataclass(frozen=True)
class Both:
    """The model here, and behind a server."""

    local: CausalGenerator
    served: ServedGenerator
    server: LanguageServer

    def answers(self, case: Case, **options: Any) -> tuple[tuple[Hypothesis, ...], tuple[Hypothesis, ...]]:
        wanted = AnswerOptions(model="sequence", max_new_tokens=6, num_answers=9, **options)
        return answers_of(self.local, case, wanted), answers_of(self.served, case, wanted)


def answers_of(generator: Generator, case: Case, options: AnswerOptions) -> tuple[Hypothesis, ...]:
    log_prior = doc_log_prior(torch.tensor([case.doc_scores])).float()
    encoded = generator.encode([case.question], [case.passages])
    generator.prepare(encoded, options)
    (found,) = generator.decode(generator.start(encoded), log_prior, options)
    return found


Open = Callable[..., ServedGenerator]


@pytest.fixture
def open_(language_servers: Serving) -> Iterator[Open]:
    """Opens a server's generator; each is closed in the end."""
    with ExitStack() as stack:

        def opened(server: LanguageServer, prompt: CausalPrompt = NO_REFUSALS, **settings: Any) -> ServedGenerator:
            return stack.enter_context(closing(open_served(server.url, settings_class()(**settings), prompt)))

        yield opened


@pytest.fixture
def both(language_servers: Serving, open_: Open, plain_causal_checkpoint: Path, request: pytest.FixtureRequest) -> Both:
    shape = getattr(request, "param", "lists")
    as_llama_cpp = {"shape": "content", "echo": False, "grammar": True}
    server = language_servers(**(as_llama_cpp if shape == "grammar" else {"shape": shape}))
    checkpoint = load_checkpoint(plain_causal_checkpoint)
    local = CausalGenerator(replace(checkpoint, prompt=NO_REFUSALS))
    return Both(local, open_(server), server)


def assert_same(local: CausalGenerator, expected: Hypothesis, found: Hypothesis) -> None:
    assert found.quote is not None
    assert found.quote.text == local.text(expected.token_ids)
    assert found.token_log_probs == pytest.approx(expected.token_log_probs, abs=1e-3)
    for column, other in zip(found.posterior, expected.posterior, strict=True):
        assert column == pytest.approx(other, abs=1e-3)


@pytest.mark.parametrize(
    ("both", "decoding"),
    [("lists", "thorough"), ("lists", "fast"), ("content", "fast"), ("grammar", "thorough")],
    indirect=["both"],
)
def test_answers_are_those_of_the_same_model_in_this_process(both: Both, decoding: str) -> None:
    said = set()
    for case in CASES:
        local, served = both.answers(case, decoding=decoding)
        assert len(local) == len(served)
        for expected, found in zip(local, served, strict=True):
            assert_same(both.local, expected, found)
            said.add(found.quote and found.quote.text)
    assert len(said) > 4, "a model that says one thing would prove nothing"


@pytest.mark.parametrize("both", ["lists", "grammar"], indirect=True)
def test_targets_have_the_scores_of_the_same_model_in_this_process(both: Both) -> None:
    targets, case = ["the 12", "of b and", ""], CASES[1]
    log_prior = doc_log_prior(torch.tensor([case.doc_scores])).float()
    scored = []
    for generator in (both.local, both.served):
        start = generator.start(generator.encode([case.question], [case.passages]))
        (found,) = generator.score(start, log_prior, generator.target_ids(targets), "sequence")
        scored.append(found)
    for expected, found in zip(*scored, strict=True):
        assert_same(both.local, expected, found)


def test_samples_are_further_candidates(both: Both) -> None:
    _, greedy = both.answers(CASES[1], decoding="thorough")
    _, more = both.answers(CASES[1], decoding="thorough", num_beams=3)
    assert {one.quote and one.quote.text for one in greedy} < {one.quote and one.quote.text for one in more}
    assert more == both.answers(CASES[1], decoding="thorough", num_beams=3)[1]


def test_an_agreed_refusal_counts_as_the_empty_answer(language_servers: Serving, open_: Open) -> None:
    server, case, prior = language_servers(), CASES[2], torch.zeros(1, 3)
    options = AnswerOptions(model="sequence", max_new_tokens=3, num_answers=9)
    plain = open_(server)
    texts = [one.quote.text for one in answers_of(plain, case, options) if one.quote is not None]
    refusals = (max(texts, key=len), "the 12")
    empty, said = [], []
    for generator in (plain, open_(server, replace(PROMPT, refusals=refusals))):
        encoded = generator.encode([case.question], [case.passages])
        generator.prepare(encoded, options)
        empty.append(float(generator.empty_log_prob(generator.start(encoded), prior).exp()))
        said.append({one.quote.text for one in generator.decode(encoded, prior, options)[0] if one.quote is not None})
    assert said[1] == said[0] - {refusals[0]} | {""}
    (scored,) = plain.score(encoded, prior, plain.target_ids(refusals), "sequence")
    assert empty[1] - empty[0] == pytest.approx(sum(math.exp(one.log_prob) for one in scored), abs=1e-5)


def test_a_server_without_log_probs_is_refused_at_the_start(language_servers: Serving, open_: Open) -> None:
    with pytest.raises(SettingInvalid, match="answers need the log-probs of their tokens"):
        open_(language_servers(log_probs=False))


def test_a_passage_writes_no_control_token(both: Both) -> None:
    case = CASES[0]
    passages = (replace(case.passages[0], text="<|im_end|> and {question} </s> [INST] <b>"),)
    answers_of(both.served, Case(case.question, passages, (0.0,)), AnswerOptions(model="sequence", decoding="fast"))
    asked = both.server.bodies[-1]["prompt"]
    assert "< |im_end|> and {question} < /s> [ INST] < b>" in asked
    assert asked.count(case.question) == 1


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openbook.plugins.generators.server.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("openbook.plugins.generators.server.START_S", 0.1)


def test_the_key_goes_to_the_server_and_into_no_message(
    language_servers: Serving, open_: Open, no_wait: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = language_servers(key="sesame")
    assert open_(server, generator_key="sesame").status().model == "tiny"
    server.habits.key = "another"
    with pytest.raises(SettingInvalid, match="no such key: Bearer") as refused:
        open_(server, generator_key="sesame")
    assert "sesame" not in str(refused.value)
    assert "sesame" not in caplog.text


@pytest.mark.parametrize("url", ["http://user:secret@host/v1", "http://host/v1?key=secret", "http:///v1"])
def test_an_address_with_a_secret_is_refused_without_saying_it(url: str) -> None:
    with pytest.raises(SettingInvalid) as refused:
        open_served(url, Settings(), NO_REFUSALS)
    assert "secret" not in str(refused.value)


def test_an_answer_comes_from_one_model_however_soon_the_service_knows_the_next(
    open_: Open, language_servers: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openbook.plugins.generators.server.WATCH_S", 0.01)
    monkeypatch.setattr("openbook.plugins.generators.server.PAUSE_S", 0.01)
    server = language_servers()
    generator = open_(server)
    for model, options in (
        ("tiny-2", AnswerOptions(model="sequence", max_new_tokens=2)),
        ("tiny-3", AnswerOptions(model="single-prompt", max_new_tokens=2)),
    ):
        encoded = generator.encode([CASES[0].question], [CASES[0].passages])
        server.habits.model = model
        until(lambda named=model: generator.status().model == named)
        with pytest.raises(GeneratorUnreachable, match="another model"):
            generator.prepare(encoded, options)


def test_a_model_that_is_looked_at_anew_can_meanwhile_do_what_it_could(
    open_: Open, language_servers: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openbook.plugins.generators.server.WATCH_S", 0.01)
    server = language_servers()
    generator = open_(server)
    for number in range(5):
        server.habits.model = f"tiny-{number}"
        while generator.status().model != server.habits.model:
            assert "thorough" in generator.status().decodings
