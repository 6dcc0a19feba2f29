"""Reading ahead changes how many steps an answer takes, and nothing else: held against full passes in float64."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from openbook.entities import AnswerOptions, Hypothesis
from openbook.rag import decoding, reading_ahead
from openbook.rag.bart_decoder import BartState
from openbook.rag.decoder import DecoderState
from openbook.rag.generator import Generator
from openbook.rag.guessing import MOST_GUESSED
from openbook.rag.marginal import doc_log_prior
from openbook.rag.reading_ahead import PATIENCE, ReadingAhead
from openbook.rag.transformers_state import TransformersState
from tests.fixtures.causal import write_causal
from tests.openbook.plugins.generators.test_causal_exact import Causal, read
from tests.openbook.rag.conftest import Case, Subject, assert_same, make_case
from tests.reference.reference import Found

MAX_NEW_TOKENS = 9
EVERY = ["tiny", "tiny_bart", "tiny_t5", "llama", "qwen2", "gpt2", "mistral"]
QUICK = ["tiny", "tiny_t5", "llama"]
Texts = Sequence[Sequence[int]]


class Reader:
    """A generator with the reference of its model, of any architecture."""

    def __init__(self, subject: Subject | Causal) -> None:
        self.generator: Generator = subject.generator
        self.reference: Callable[[Case], Any] = subject.reference

    def answer(self, case: Case, texts: Texts = (), **options: Any) -> Hypothesis:
        encoded = self.generator.encode([case.question], [case.passages])
        log_prior = doc_log_prior(torch.tensor([case.doc_scores], dtype=torch.float64)).float()
        wanted = AnswerOptions(**({"max_new_tokens": MAX_NEW_TOKENS} | options))
        start = self.generator.start(encoded)
        ((found,),) = decoding.decode(self.generator, start, log_prior, wanted, texts=texts)
        return found


def every(*names: str) -> pytest.MarkDecorator:
    marks = [pytest.param(one, marks=() if one in names else pytest.mark.slow) for one in EVERY]
    return pytest.mark.parametrize("reader", marks, indirect=True)


@pytest.fixture(scope="module")
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    name = getattr(request, "param", "tiny")
    if name.startswith("tiny"):
        return Reader(request.getfixturevalue(name))
    return Reader(read(write_causal(tmp_path_factory.mktemp("causal"), name)))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each step has read."""
    counts: list[int] = []
    for kind in (BartState, TransformersState):

        def counted(self: Any, tokens: Sequence[int], whole: Any = kind.read) -> torch.Tensor:
            counts.append(len(tokens))
            read: torch.Tensor = whole(self, tokens)
            return read

        monkeypatch.setattr(kind, "read", counted)
    return counts


def holding(answer: Sequence[int], n_docs: int, dice: random.Random) -> list[list[int]]:
    """Texts of which one holds the answer among other tokens."""
    texts = [[dice.randrange(5, 60) for _ in range(12)] for _ in range(n_docs)]
    place = dice.randrange(12)
    texts[dice.randrange(n_docs)][place:place] = answer
    return texts


@pytest.mark.parametrize(
    "numbers_of_passages", [(2, 5), pytest.param(range(1, 11), marks=pytest.mark.slow)], ids=["some", "many"]
)
@every(*QUICK)
def test_guesses_right_and_wrong_change_nothing(
    reader: Reader, steps: list[int], monkeypatch: pytest.MonkeyPatch, numbers_of_passages: Sequence[int]
) -> None:
    """Each step is handed some right tokens and then some wrong ones, against the reference."""
    dice = random.Random(1)
    monkeypatch.setattr(reader.generator, "shortest_answer", 6)
    read_ahead = wrong = 0
    for n_docs in numbers_of_passages:
        case = make_case(300 + n_docs, n_docs, longest=12)
        reference = reader.reference(case)
        expected = greedy(reference, shortest=6)

        def guess(
            said: list[int], texts: Texts, weights: Any, ends: Any, most: int, right: Any = expected
        ) -> list[int]:
            assert tuple(said) == right.tokens[: len(said)]
            known = list(right.tokens[len(said) : len(said) + dice.randrange(most + 1)])
            return [*known, *(dice.randrange(5, 60) for _ in range(dice.randrange(most + 1 - len(known))))]

        monkeypatch.setattr(reading_ahead, "guess", guess)
        steps.clear()
        found = reader.answer(case, [()] * n_docs)
        assert found.token_ids == expected.tokens
        assert found.log_prob == pytest.approx(expected.log_prob, abs=1e-4)
        for column, by_hand in zip(found.posterior, reference.rag_token_posterior(expected.tokens), strict=True):
            assert column == pytest.approx(by_hand, abs=1e-4)
        assert all(1 <= count <= MOST_GUESSED + 1 for count in steps)
        read_ahead += len(expected.tokens) - 1 - len(steps)
        wrong += sum(steps) - len(expected.tokens) + 1
    assert read_ahead > 0
    assert wrong > 0


def greedy(reference: Any, shortest: int) -> Found:
    """The likeliest token at each step; an end before `shortest` tokens is none."""
    said: tuple[int, ...] = ()
    log_prob = 0.0
    while len(said) < MAX_NEW_TOKENS and reference.eos not in said:
        row = reference.token_marginal(said)
        allowed = [token for token in range(len(row)) if token != reference.eos or len(said) >= shortest]
        token = max(allowed, key=lambda one: row[one])
        said, log_prob = (*said, token), log_prob + row[token]
    return Found(said, log_prob)


@every("tiny", "llama")
def test_an_answer_that_stands_in_a_passage_takes_fewer_steps(
    reader: Reader, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(2)
    monkeypatch.setattr(reader.generator, "shortest_answer", 12)
    everywhere = once = without = 0
    for seed in range(310, 314):
        case = make_case(seed, 3, longest=12)
        alone = reader.answer(case, max_new_tokens=16)
        steps.clear()
        assert_same(reader.answer(case, [(1, *alone.token_ids)] * 3, max_new_tokens=16), alone)
        everywhere += len(steps)
        steps.clear()
        assert_same(reader.answer(case, holding(alone.token_ids, 3, dice), max_new_tokens=16), alone)
        once += len(steps)
        steps.clear()
        assert_same(reader.answer(case, [(1, 4, 1)] * 3, max_new_tokens=16), alone)
        assert steps == [1] * (len(alone.token_ids) - 1), "nothing of it stands there"
        without += len(steps)
    assert everywhere < 0.75 * without
    assert once <= without


@pytest.mark.parametrize("max_new_tokens", [1, 2, 3, 5])
def test_nothing_is_read_beyond_max_new_tokens(
    reader: Reader, steps: list[int], monkeypatch: pytest.MonkeyPatch, max_new_tokens: int
) -> None:
    monkeypatch.setattr(reader.generator, "shortest_answer", 8)
    for seed in range(61, 64):
        case = make_case(seed, 3, longest=12)
        alone = reader.answer(case)
        steps.clear()
        cut = reader.answer(case, [alone.token_ids] * 3, max_new_tokens=max_new_tokens)
        assert cut.token_ids == alone.token_ids[:max_new_tokens]
        # the last token is chosen, not read
        assert sum(steps) <= max(0, max_new_tokens - 1)


def test_wrong_guesses_are_soon_no_more_made(reader: Reader, steps: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_ahead, "guess", lambda said, texts, weights, ends, most: [ends[0]] * most)
    monkeypatch.setattr(reader.generator, "shortest_answer", 40)
    case = make_case(61, 2)
    assert_same(reader.answer(case, [()] * 2, max_new_tokens=30), reader.answer(case, max_new_tokens=30))
    wrong = sum(steps[:29]) - 29
    assert PATIENCE < wrong <= PATIENCE + MOST_GUESSED


@every("tiny", "tiny_t5", "llama")
def test_a_branch_begins_behind_what_the_search_chose(reader: Reader) -> None:
    case = make_case(61, 2)
    generator = reader.generator

    def start() -> DecoderState:
        return generator.start(generator.encode([case.question], [case.passages]))

    source = torch.zeros(2, 1, dtype=torch.long)
    with torch.inference_mode():
        plain = start()
        ahead = ReadingAhead(start(), [(7, 8, 9, 10)] * 2, torch.tensor([-0.5, -0.9]), (3,), 9)
        for token in (7, 8, 11):
            for state in (plain, ahead):
                state.advance(source, torch.full((2, 1), token))
            branch = ahead.branch([1])
            assert torch.allclose(branch.logits, plain.logits[[1]], atol=1e-4)
            branch.advance(source[:1], torch.full((1, 1), 12))
            other = plain.branch([1])
            other.advance(source[:1], torch.full((1, 1), 12))
            assert torch.allclose(branch.logits, other.logits, atol=1e-4)
        assert torch.allclose(ahead.logits, plain.logits, atol=1e-4)
