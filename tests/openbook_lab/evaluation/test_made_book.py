"""Questions that passages make of themselves, and the scale of a prior that is fitted to them."""

import math
import random
from collections import Counter

import pytest

from openbook.entities import Passage, PriorWeights
from openbook_lab.evaluation.book_study import LEAST_LOG_PROB
from openbook_lab.evaluation.made_book import EASIER, WORD, fit_made, make_questions
from openbook_lab.evaluation.prior_fit import CandidateReadings, fit_scale

SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "ne", "po")
EVERYWHERE = ("river", "north", "green", "land")
# The better of two passages is the right one for three questions of four.
THREE_OF_FOUR = CandidateReadings.of(
    [[1.0, 0.0]] * 4, [[1.0, 0.0]] * 4, [[[0.0], [LEAST_LOG_PROB]]] * 3 + [[[LEAST_LOG_PROB], [0.0]]]
)


def passages_of_a_folder(n_passages: int) -> list[Passage]:
    """Passages of one sentence: some words that all of them have, and others of their own."""
    drawn = random.Random(0)
    own = [["".join(drawn.choices(SYLLABLES, k=4)) for _ in range(4)] for _ in range(n_passages)]
    return [
        Passage(f"file#{number}", "File", f"the {' and the '.join(drawn.sample([*EVERYWHERE, *words], 8))} .")
        for number, words in enumerate(own)
    ]


def test_each_question_has_a_few_words_of_its_passage() -> None:
    passages = passages_of_a_folder(40)
    made = make_questions(passages, most=30, seed=1)
    assert len(made) == 30
    assert made == make_questions(passages, most=30, seed=1) != make_questions(passages, most=30, seed=2)
    for question, place in made:
        words = question.removeprefix("what ").removesuffix("?").split()
        assert 2 <= len(words) <= 4
        assert set(words) <= set(WORD.findall(passages[place].text)) - {"the", "and"}


def test_at_most_half_ask_in_whole_sentences_where_there_is_another_half() -> None:
    defined = [Passage(f"{n}#0", "T", f"Term{n} is a word.") for n in range(20)]
    both = make_questions([*defined, *passages_of_a_folder(20)], most=20, seed=0)
    assert Counter(question.startswith("What is Term") for question, _ in both) == {True: 10, False: 10}
    assert len(make_questions(defined, most=20, seed=0)) == 20


def test_what_several_passages_would_ask_is_not_asked() -> None:
    same = [Passage(f"{n}#0", "Lease", "A lease is the right to read.") for n in range(2)]
    assert make_questions(same, most=10, seed=0) == []
    assert [question for question, _ in make_questions(same[:1], most=10, seed=0)] == ["What is a lease?"]


@pytest.mark.parametrize(
    "text",
    [
        "```\nlong river north green land blue island sea\n```",
        "river north green land",
        "it is the river of the north",
        "",
    ],
)
def test_code_and_scraps_make_no_question(text: str) -> None:
    assert make_questions([Passage("a#0", "T", text)], most=10, seed=0) == []


@pytest.mark.parametrize("start", [PriorWeights(8.0, 4.0), PriorWeights(0.2, 0.1)])
def test_a_scale_makes_a_prior_as_sure_as_it_is_right(start: PriorWeights) -> None:
    # odds of three to one, as near as an eighth of a power of two comes
    factor = fit_scale(THREE_OF_FOUR, start, n_docs=2)
    assert factor * (start.dense + start.bm25) == pytest.approx(math.log(3), rel=0.05)
    # one passage alone is the first at any scale
    assert fit_scale(CandidateReadings.of([[1.0]], [[1.0]], [[[0.0]]]), start, n_docs=2) == 1.0


def test_a_prior_that_is_about_right_stays_and_another_gets_its_scale() -> None:
    wanted = math.log(3) / EASIER
    for near in (0.8, 1.0, 1.25):
        prior = PriorWeights(near * wanted / 2, near * wanted / 2)
        assert fit_made(THREE_OF_FOUR, prior, n_docs=2) == prior
    for far in (1 / 8, 8):
        fitted = fit_made(THREE_OF_FOUR, PriorWeights(far * wanted * 0.75, far * wanted * 0.25), n_docs=2)
        assert fitted.dense == pytest.approx(3 * fitted.bm25, abs=1e-3)
        assert fitted.dense + fitted.bm25 == pytest.approx(wanted, rel=0.05)
