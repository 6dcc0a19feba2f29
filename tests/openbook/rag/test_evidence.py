"""What an answer stands on: the sentence, list item, row or code block around its spans, verbatim."""

from collections.abc import Sequence

import pytest

from openbook.entities import AnswerPassage, Evidence, Passage
from openbook.rag.evidence import MOST_AROUND, MOST_EVIDENCE, evidence
from openbook.rag.provenance import answer_spans

HOTELS = (
    "Hotels\n\nYou may spend up to 160 euros a night in most cities, and up to 220 euros in London and New York. "
    "Ask Dr. Lindt, e.g. by mail, before you\nspend more."
)
WHEEL = """Changing the tube

Turn the bike upside down. It takes ten minutes:

1. Open the quick release
   and lift the wheel out.
2. Lever the tyre off.
   * Mind the rim.

Then put all back."""
NIGHT = "It is noon. Day ends. The sun sets. It rains. Dogs bark. Owls call. Day comes."
CODE = """Backups

Pause the server first:

```sh
# 2. not an item
ferrule pause

cp -r /srv /backup
```

It takes a minute."""
TABLE = "code: F204 | meaning: the disk is full\ncode: F307 | meaning: the index is damaged\n| F410 | too many logins |"


def passages(answer: str, *texts: str, posterior: Sequence[float] = (1.0,)) -> list[AnswerPassage]:
    return [
        AnswerPassage(k + 1, Passage(f"p{k}", "Title", text), 0.0, share, share, answer_spans(answer, text))
        for k, (text, share) in enumerate(zip(texts, posterior, strict=True))
    ]


@pytest.mark.parametrize(
    ("question", "answer", "text", "found"),
    [
        ("how much may a hotel cost ?", "220 euros", HOTELS, HOTELS[8:105]),
        ("who is asked ?", "Dr. Lindt", HOTELS, HOTELS[106:]),
        ("what is it called ?", "Hotels", HOTELS, "Hotels"),
        ("what is opened ?", "release", "Tube. 1. Open the release. 2. Wait.", "1. Open the release."),
        ("what is opened ?", "release", "1. Open the release. " + "2. Wait. " * 50, "1. Open the release."),
        ("what is opened ?", "quick release", WHEEL, "1. Open the quick release\n   and lift the wheel out."),
        ("what to mind ?", "the rim", WHEEL, "* Mind the rim."),
        ("what is copied ?", "/srv", CODE, CODE[CODE.index("```sh") : CODE.index("\n\nIt takes")]),
        ("what does F307 mean ?", "the index is damaged", TABLE, "code: F307 | meaning: the index is damaged"),
        ("how far ?", "58 km", "Battery | Value: 58 km\nTowing | Value: no", "Battery | Value: 58 km"),
        ("what is F410 ?", "too many logins", TABLE, "| F410 | too many logins |"),
    ],
)
def test_the_unit_that_holds_the_answer_is_what_it_stands_on(question: str, answer: str, text: str, found: str) -> None:
    (one,) = evidence(question, answer, passages(answer, text))
    assert one == Evidence(1, "p0", found, text.index(found), text.index(found) + len(found), pytest.approx(1.0))


@pytest.mark.parametrize(
    ("question", "answer", "text", "start", "end"),
    [
        ("How do I change the tube?", "Lever the tyre off", WHEEL, "It takes", "rim."),
        ("How is a tube changed?", "ten minutes", WHEEL, "Turn the", "rim."),
        ("How do I make a backup?", "cp -r /srv /backup", CODE, "Pause the", "backup\n```"),
        ("Why is the server paused?", "Pause the server", CODE, "Pause the", "backup\n```"),
        ("What happens at night?", "rains", NIGHT, "Day ends.", "Owls call."),
        ("How long is a night?", "rains", NIGHT, "It rains", "rains."),
    ],
)
def test_a_question_that_asks_how_gets_the_whole_list_or_sentences_around(
    question: str, answer: str, text: str, start: str, end: str
) -> None:
    (one,) = evidence(question, answer, passages(answer, text))
    assert one.text == text[text.index(start) : text.index(end) + len(end)] == text[one.start : one.end]


def test_the_shares_are_those_of_the_spans_and_the_largest_come_first() -> None:
    given = passages(
        "May", "Kale in May. Not May, May.", "It is May.", "May!", "May?", posterior=(0.3, 0.6, 0.07, 0.03)
    )
    found = evidence("when ?", "May", given)
    assert [(one.rank, one.text, one.share) for one in found] == [
        (2, "It is May.", pytest.approx(0.6)),
        (1, "Not May, May.", pytest.approx(0.2)),
        (1, "Kale in May.", pytest.approx(0.1)),
    ]
    # a place in the words of the question weighs more
    nearer = evidence("when to sow kale ?", "May", given)
    assert [(one.text, one.share) for one in nearer[1:]] == [
        ("Kale in May.", pytest.approx(0.15)),
        ("Not May, May.", pytest.approx(0.15)),
    ]
    weighed = evidence("when ?", "May", given, [(0.6, 0.1, 0.1), (0.02,), (0.5,), (0.5,)])
    assert [(one.rank, one.text, one.share) for one in weighed] == [
        (2, "It is May.", pytest.approx(0.6)),
        (1, "Kale in May.", pytest.approx(0.225)),
        (1, "Not May, May.", pytest.approx(0.075)),
    ]
    # what carries too little is left out
    assert len(evidence("when ?", "May", given[1:])) == 2 < MOST_EVIDENCE


def test_an_answer_that_stands_nowhere_shows_the_words_that_are_closest_to_it() -> None:
    text = "The tower is old. It was finished in the year 1889, so eighty-nine. It is high."
    given = passages("eighteen eighty-nine, finished", "Nothing.", text, posterior=(0.1, 0.9))
    (one,) = evidence("When was the tower finished?", "eighteen eighty-nine, finished", given)
    assert (one.rank, one.text, one.share) == (2, "It was finished in the year 1889, so eighty-nine.", 0.9)


def test_an_empty_answer_and_no_passages_have_none() -> None:
    assert evidence("who ?", "", passages("", "a b")) == ()
    assert evidence("who ?", "peru", []) == ()
    (nothing,) = evidence("who ?", "peru", passages("peru", ""))
    assert nothing.text == ""


def test_a_text_without_an_end_is_cut_around_the_answer() -> None:
    text = "a " * 10_400 + "peru " + "b " * 10_000
    (one,) = evidence("which country ?", "peru", passages("peru", text))
    assert len(one.text) == 2 * MOST_AROUND + len("peru")
    assert one.text == text[one.start : one.end]
