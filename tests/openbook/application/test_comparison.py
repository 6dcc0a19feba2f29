"""One question asked of several versions at once."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.application.admission import WorkPool
from openbook.application.answer_question import AnswerQuestion, Ask
from openbook.application.comparison import Comparison, normalise
from openbook.application.live_index import Lease, LiveIndex
from openbook.entities import Answer, AnswerOptions, AnswerText, IndexVersion, Source, StageSeconds
from openbook.errors import DeadlineExceeded, IndexNotResident, UnknownIndex
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.clock import Clock
from tests.fixtures.replicas import Start
from tests.waiting import HELD_S, PATIENCE_S, reached

QUESTION = "who is the president of peru ?"
BOTH = ("tiny-2018", "tiny-2016")
OPTIONS = AnswerOptions(max_new_tokens=6)


@pytest.fixture
def live(start: Start) -> LiveIndex:
    replica = start(residents=2)
    replica.swap_index.load("tiny-2018").result(PATIENCE_S)
    return replica.live


def test_a_version_compared_with_itself_agrees(answer_question: AnswerQuestion) -> None:
    found = asyncio.run(answer_question.compare(Ask(QUESTION, OPTIONS, 60), ("tiny-2016", "tiny-2016")))
    assert found.agree
    assert found.groups[0].versions == ("tiny-2016", "tiny-2016")


@pytest.mark.parametrize(("version", "error"), [("tiny-2016-copy", UnknownIndex), ("tiny-2018", IndexNotResident)])
def test_a_version_that_is_not_open_refuses_the_whole(
    answer_question: AnswerQuestion, live: LiveIndex, pool: WorkPool, version: str, error: type[Exception]
) -> None:
    live.retire_residents("tiny-2018")
    with pytest.raises(error):
        asyncio.run(answer_question.compare(Ask(QUESTION, OPTIONS, 60), ("tiny-2016", version)))
    assert pool.running() == 0
    assert {one.leases for one in live.residents()} == {0}


def test_a_comparison_takes_one_slot_all_its_leases_and_one_deadline(
    answer_question: AnswerQuestion, live: LiveIndex, pool: WorkPool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    nearest = IndexSnapshot.nearest

    def slow_search(self: IndexSnapshot, *given: Any, **named: Any) -> Any:
        go_on.wait(HELD_S)
        return nearest(self, *given, **named)

    monkeypatch.setattr(IndexSnapshot, "nearest", slow_search)

    async def main() -> None:
        asked = [asyncio.ensure_future(answer_question.compare(Ask(QUESTION, OPTIONS, 600), BOTH)) for _ in "ab"]
        await reached(lambda: sum(one.leases for one in live.residents()) == 4)
        assert [one.leases for one in live.residents()] == [2, 2]
        assert pool.running() + pool.waiting() == 2
        clock.forward(600)
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(one).partition(" s.")[0] for one in ended] == ["No answer within 600"] * 2
        assert [type(one) for one in ended] == [DeadlineExceeded] * 2
        # the leases belong to the work, which has not ended
        assert [one.leases for one in live.residents()] == [2, 2]
        go_on.set()
        await reached(lambda: not pool.running())

    asyncio.run(main())
    assert {one.leases for one in live.residents()} == {0}


def test_a_swap_beside_a_comparison_comes_before_all_its_leases_or_after_them(
    answer_question: AnswerQuestion, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = LiveIndex.leases

    @contextmanager
    def then_swapped(self: LiveIndex, versions: Sequence[str | None]) -> Iterator[tuple[Lease, ...]]:
        with leases(self, versions) as given:
            with leases(self, ("tiny-2018",)) as (other,):
                self.flip(other.snapshot)
            yield given

    monkeypatch.setattr(LiveIndex, "leases", then_swapped)
    found = asyncio.run(answer_question.compare(Ask(QUESTION, OPTIONS, 60), BOTH))
    assert {answer.source.index.generation for answer in found.answers} == {0}
    assert live.now().generation == 1  # type: ignore[union-attr]


def answer(version: str, text: str) -> Answer:
    return Answer(
        answers=(AnswerText(text, -1.0),),
        tokens=(),
        passages=(),
        model="token",
        posterior_kind="per_token",
        no_answer=0.0,
        source=Source(IndexVersion(version, 0, None), "", "tiny", "dense", (), StageSeconds()),
    )


def test_versions_with_the_same_answer_are_one_group() -> None:
    texts = {"a": "The Queen.", "b": "a king", "c": "queen", "d": "King"}
    found = Comparison.of(QUESTION, [answer(version, text) for version, text in texts.items()])
    assert [(group.answer, group.versions) for group in found.groups] == [
        ("The Queen.", ("a", "c")),
        ("a king", ("b", "d")),
    ]
    assert not found.agree
    assert Comparison.of(QUESTION, [answer("a", "yes"), answer("b", "Yes!")]).agree


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Pedro Pablo Kuczynski", "pedro pablo  kuczynski .", True),
        ("the United States", "United States", True),
        ("\uff21\uff22", "ab", True),
        ("‘Nepal’", "nepal", True),
        ("the", "a", False),
        ("4.2 million", "42 million", False),
        ("-4.2%", "4.2%", False),
        ("$5", "5", False),
        ("São Tomé", "Sao Tome", False),
        ("", "...", True),
        ("", "none", False),
    ],
)
def test_answers_that_differ_in_no_fact_are_the_same(one: str, other: str, same: bool) -> None:
    assert (normalise(one) == normalise(other)) is same


@given(st.text(max_size=60))
def test_normalising_twice_is_normalising_once(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
