"""Passages are disjoint pieces of an article: no word lost, none said twice."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.indexing.splitting import (
    PASSAGE_WORDS,
    SHORTEST_TAIL,
    Section,
    SourceArticle,
    Split,
    split_article,
    split_words,
)
from openbook_lab import encyclopedia

WORDS = st.lists(st.text(alphabet="abcdefg.,'", min_size=1, max_size=5), max_size=450)
SPACES = st.sampled_from([" ", "  ", "\n", "\t \n"])


@given(tokens=WORDS, space=SPACES, words=st.integers(1, 120), shortest_tail=st.integers(0, 130))
def test_every_word_stands_in_exactly_one_passage_in_its_order(
    tokens: list[str], space: str, words: int, shortest_tail: int
) -> None:
    pieces = split_words(space.join(tokens), words, shortest_tail)
    assert " ".join(pieces).split() == tokens


@given(tokens=WORDS, words=st.integers(1, 120), shortest_tail=st.integers(0, 130))
def test_every_passage_has_its_documented_length(tokens: list[str], words: int, shortest_tail: int) -> None:
    lengths = [len(piece.split()) for piece in split_words(" ".join(tokens), words, shortest_tail)]
    assert all(length == words for length in lengths[:-1])
    if len(lengths) > 1:
        assert min(shortest_tail, words) <= lengths[-1] <= words + max(min(shortest_tail, words) - 1, 0)
    assert (lengths == []) is (tokens == [])


def test_a_passage_of_no_words_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        split_words("some words", words=0)


def test_passages_are_numbered_within_their_article_and_keep_its_title() -> None:
    long = encyclopedia.Article("a-long-one", "A long one", " ".join(["word"] * 250))
    short = encyclopedia.Article("a-short-one", "A short one", "Just this.")
    found = list(encyclopedia.passages([long, short]))
    ids = [f"a-long-one#{position}" for position in range(3)]
    assert [passage.passage_id for passage in found] == [*ids, "a-short-one#0"]
    assert [passage.title for passage in found] == ["A long one"] * 3 + ["A short one"]
    assert list(encyclopedia.passages([encyclopedia.Article("empty", "Empty", " \n ")])) == []


def test_a_passage_of_words_has_the_section_of_most_of_its_words() -> None:
    words = [f"w{position}" for position in range(250)]
    sections = (
        Section(" ".join(words[:130]), "Early", (("page", 1),)),
        Section(""),
        Section(" ".join(words[130:]), "Late", (("page", 2),)),
    )
    found = split_article(SourceArticle("a", "A", sections, "https://a.org", "2018-12-20", (("path", "a.md"),)))
    assert " ".join(passage.text for passage in found).split() == words
    assert [passage.section for passage in found] == ["Early", "Late", "Late"]
    assert {(passage.url, passage.published) for passage in found} == {("https://a.org", "2018-12-20")}
    assert found[0].metadata == (("page", 1), ("path", "a.md"))
    assert found[2].metadata == (("page", 2), ("path", "a.md"))


def test_whole_sentences_of_one_section_fill_a_passage_up_to_100_words() -> None:
    forty = " ".join(["word"] * 39) + " end."
    sections = (Section(f"{forty} {forty} {forty}", "One"), Section(f"{forty}\n\n{forty}", "Two"))
    found = split_article(SourceArticle("a", "A", sections), "sentences")
    assert [(len(one.text.split()), one.section) for one in found] == [(80, "One"), (40, "One"), (80, "Two")]
    assert all(one.text.endswith("end.") for one in found)
    assert [one.passage_id for one in found] == ["a#0", "a#1", "a#2"]


def test_only_a_sentence_of_more_than_100_words_is_cut() -> None:
    text = "Short one. " + " ".join(["long"] * 230) + ". Last one."
    found = split_article(SourceArticle("a", "A", (Section(text),)), "sentences")
    assert [len(one.text.split()) for one in found] == [2, 100, 100, 32]
    assert " ".join(one.text for one in found) == text


CHINESE = "东京是日本的首都，也是世界上人口最多的城市之一。" * 60
JAPANESE = "東京は日本の首都であり、世界最大の都市の一つです。「大きい」と言われています。" * 40
THAI = "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย" * 30


@pytest.mark.parametrize("split", ["words", "sentences"])
@pytest.mark.parametrize("text", [CHINESE, JAPANESE, THAI, THAI.replace("และ", " และ")])
def test_text_without_spaces_is_never_one_long_passage(text: str, split: Split) -> None:
    found = split_article(SourceArticle("a", "A", (Section(text),)), split)
    assert all(len(one.text) <= 2 * (PASSAGE_WORDS + SHORTEST_TAIL) * 2 for one in found)
    assert len(found) >= len(text) / 500
    assert "".join(one.text for one in found).replace(" ", "") == text.replace(" ", "")
    if split == "sentences" and text is not THAI and " " not in text:
        assert all(one.text[-1] in "。」" for one in found)
    # no mark stands without its letter
    assert not any(unicodedata.combining(one.text[0]) for one in found)


def test_a_foreign_name_counts_as_one_word_of_its_article() -> None:
    text = " ".join(["word"] * 99 + ["機動戦士ガンダム逆襲のシャアベルトーチカチルドレン物語第一部"] + ["word"] * 40)
    assert [len(piece.split()) for piece in split_words(text)] == [100, 40]


@pytest.mark.parametrize("text", ["A" * 100_000, "é" * 100_000, "e" + "\u0301" * 100_000])
def test_a_word_without_end_is_cut(text: str) -> None:
    found = split_words(text)
    assert "".join(found) == text
    assert max(map(len, found)) <= (PASSAGE_WORDS + SHORTEST_TAIL) * 160


@given(st.text(max_size=300), st.sampled_from(["words", "sentences"]))
def test_no_character_is_lost(text: str, split: Split) -> None:
    found = split_article(SourceArticle("a", "A", (Section(text),)), split, words=3)
    assert "".join("".join(one.text.split()) for one in found) == "".join(text.split())


def test_quotation_marks_without_end_take_no_time_without_end() -> None:
    began = time.process_time()
    assert split_article(SourceArticle("a", "A", (Section('"(«' * 100_000 + "a. b. " * 1000),)), "sentences")
    assert time.process_time() - began < 4


LINED = f"""Doors

{"A long beginning of a section. " * 2}The second sentence.

1. Open the door and
   go in.
2. Close the door.

name: oak | height: {"tall " * 6}| price: high
name: fir | height: {"low " * 6}| price: low

```
open

close
```"""


def lined(text: str, words: int, heading: str | None = "Doors") -> list[str]:
    section = Section(text, heading, has_lines=True)
    return [one.text for one in split_article(SourceArticle("a", "A", (section,)), "sentences", words=words)]


@pytest.mark.parametrize("words", range(2, 70, 4))
def test_text_with_lines_is_cut_between_its_blocks_and_sentences(words: int) -> None:
    found = lined(LINED, words)
    assert "".join("".join(found).split()) == "".join(LINED.split())
    at = 0
    for text in found:
        # verbatim, in order
        at = LINED.index(text, at) + len(text)
    assert found[0].startswith("Doors\n\nA long")
    if words >= 12:
        for whole in (
            "1. Open the door and\n   go in.",
            "name: fir |",
            "```\nopen\n\nclose\n```",
            "A long beginning of a section.",
        ):
            assert any(whole in text for text in found)
        assert not any(text.endswith("|") for text in found)


@pytest.mark.parametrize("lead", ["Then run this:", "Note"])
def test_what_leads_to_a_block_stays_with_it_where_both_fit(lead: str) -> None:
    before, block = "Seven words stand here before the end.", "```\nserve --port 80\n```"
    text = f"{before}\n\n{lead}\n\n{block}"
    assert lined(text, 11, None) == [before, f"{lead}\n\n{block}"]
    assert lined(f"{before}\n\nFirst do this:\n\n{lead}\n\n{block}", 11, None)[1].startswith("First do this:")
    # but for a block that leaves no room, and a heading
    stop = "Stop it now.\n\nThen run this:"
    assert lined(f"{stop}\n\n{block}", 7, None) == [stop, block]
    assert lined(f"Doors\n\n{lead}\n\n{block}", 6) == [f"Doors\n\n{lead}", block]
    assert lined(f"{before} Done\n\n{block}", 11, None)[0].endswith("Done")


def test_text_with_lines_that_is_too_long_is_cut_at_its_lines_and_then_its_words() -> None:
    code = "```\n" + "\n".join(f"line {number}" for number in range(60)) + "\n```"
    found = lined(code, 50, None)
    assert len(found) == 3
    assert all(line in (*code.split("\n"),) for text in found for line in text.split("\n"))
    sentence = " ".join(f"w{number}" for number in range(120))
    assert lined(sentence, 50, None) == [" ".join(sentence.split()[a:b]) for a, b in ((0, 50), (50, 120))]
    chinese = "中文" * 110
    assert [len(text) for text in lined(chinese, 50, None)] == [100, 120]
    wide = f"a{' ' * 40_000}b"
    assert lined(f"```\n{wide}\n```", 50, None) == ["``` a b ```"]
    assert lined("", 50) == []
