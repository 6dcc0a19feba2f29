"""An answer heard while it is decoded: what was told stands in the answer, to the last digit."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.entities import AnswerOptions, AnswerToken, Retrieval
from openbook.rag.engine import RagEngine
from openbook.rag.listening import Listener
from openbook.storage.snapshot import IndexSnapshot
from tests.openbook.rag.test_engine_together import SUBJECTS, assert_same, question_texts

GREEDY = AnswerOptions(num_beams=1, max_new_tokens=8)
BEAMS = AnswerOptions(num_beams=4, max_new_tokens=8, num_answers=4)
SEQUENCE = AnswerOptions(n_docs=3, model="sequence", num_beams=3, max_new_tokens=6)


class Heard:
    """What one listener hears, and at which step it hears each token."""

    def __init__(self, max_no_answer: float | None = None) -> None:
        self.retrievals: list[Retrieval] = []
        self.tokens: list[AnswerToken] = []
        self.steps: list[int] = []
        self.step = 0
        self.listener = Listener(self._hear, max_no_answer)

    def _hear(self, event: Retrieval | AnswerToken) -> None:
        if isinstance(event, Retrieval):
            assert not self.tokens
            self.retrievals.append(event)
        else:
            self.tokens.append(event)
            self.steps.append(self.step)

    def between_steps(self) -> None:
        self.step += 1


@given(
    questions=st.lists(question_texts, min_size=1, max_size=5),
    options=st.sampled_from([GREEDY, BEAMS, replace(BEAMS, num_beams=2, num_answers=1)]),
    listening=st.sets(st.integers(0, 4), min_size=1),
)
@settings(max_examples=20, derandomize=True)
def test_the_tokens_that_are_told_are_those_of_the_answer(
    engine: RagEngine, snapshot: IndexSnapshot, questions: list[str], options: AnswerOptions, listening: set[int]
) -> None:
    heard = {number: Heard() for number in listening if number < len(questions)}
    listeners = {number: one.listener for number, one in heard.items()}
    answers = engine.answer(questions, snapshot, options, listeners=listeners)
    unheard = engine.answer(questions, snapshot, options)
    for number, (answer, expected) in enumerate(zip(answers, unheard, strict=True)):
        if number in heard:
            assert tuple(heard[number].tokens) == answer.tokens
            (retrieval,) = heard[number].retrievals
            assert [one.passage for one in retrieval.passages] == [one.passage for one in answer.passages]
            assert [one.prior for one in retrieval.passages] == [one.prior for one in answer.passages]
        # a listener changes nothing but the last digit of its own tokens
        assert_same(answer, expected)
        assert answer.answers == expected.answers
        assert number in heard or replace(answer, source=expected.source) == expected


def test_a_greedy_search_tells_each_token_at_its_step(engine: RagEngine, snapshot: IndexSnapshot) -> None:
    heard = Heard()
    (answer,) = engine.answer(["peru"], snapshot, GREEDY, heard.between_steps, {0: heard.listener})
    # a step before the search, one before the encoder
    assert len(answer.tokens) > 2
    assert heard.steps == [3 + number for number in range(len(answer.tokens))]


def test_beams_tell_what_all_of_them_share_before_the_search_ends(engine: RagEngine, snapshot: IndexSnapshot) -> None:
    before_the_end = 0
    for subject in SUBJECTS:
        heard = Heard()
        engine.answer([subject], snapshot, BEAMS, heard.between_steps, {0: heard.listener})
        before_the_end += sum(step < heard.step for step in heard.steps)
    assert before_the_end


def test_rag_sequence_tells_the_passages_alone(engine: RagEngine, snapshot: IndexSnapshot) -> None:
    heard = Heard()
    (answer,) = engine.answer(["peru"], snapshot, SEQUENCE, listeners={0: heard.listener})
    assert [one.passage for one in heard.retrievals[0].passages] == [one.passage for one in answer.passages]
    assert not heard.tokens
    assert answer.tokens


def test_no_token_is_told_of_an_answer_that_will_be_withheld(engine: RagEngine, snapshot: IndexSnapshot) -> None:
    (answer,) = engine.answer(["peru"], snapshot, GREEDY)
    withheld, given_ = Heard(answer.no_answer / 2), Heard(min(1.0, answer.no_answer * 2))
    listeners = {0: withheld.listener, 1: given_.listener}
    answers = engine.answer(["peru", "peru"], snapshot, GREEDY, listeners=listeners)
    assert (len(withheld.retrievals), len(withheld.tokens)) == (1, 0)
    assert tuple(given_.tokens) == answers[1].tokens
    assert [token.text for token in answers[0].tokens] == [token.text for token in answers[1].tokens]
