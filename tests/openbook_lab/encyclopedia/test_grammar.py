"""The small words come out as English has them."""

from datetime import date

import pytest

from openbook_lab.encyclopedia import load_world
from openbook_lab.encyclopedia.grammar import (
    Count,
    Names,
    Text,
    an,
    in_words,
    listed,
    long_date,
    number,
    on_date,
    ordinal,
    place,
    possessive,
    sentence_case,
)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (an("emir"), "an emir"),
        (an("absolute monarchy"), "an absolute monarchy"),
        (an("presidential republic"), "a presidential republic"),
        (an("unitary state"), "a unitary state"),
        (an("European country"), "a European country"),
        (possessive("Peru"), "Peru's"),
        (possessive("the Philippines"), "the Philippines'"),
        (listed([]), ""),
        (listed(["Arabic"]), "Arabic"),
        (listed(["Arabic", "French"]), "Arabic and French"),
        (listed(["Bolivia", "Chile", "Peru"], "or"), "Bolivia, Chile or Peru"),
        (number(1285216), "1,285,216"),
        (number(0.44), "0.44"),
        (number(1000.0), "1,000"),
        (f"{Count(1)} {Count(1):country|countries}", "one country"),
        (f"{Count(12)} king{Count(12):|s}", "twelve kings"),
        (f"{Count(13)} king{Count(13):|s}", "13 kings"),
        (f"{Names(('Peru',))} {Names(('Peru',)):is|are} near", "Peru is near"),
        (f"{Names(('Peru', 'Chile')):or} {Names(('Peru', 'Chile')):is|are} near", "Peru or Chile are near"),
        (Names(("Bolivia", "Chile", "Peru")).rest, ", Chile and Peru"),
        (f"third{Text('Peru'):, after *}", "third, after Peru"),
        (f"third{Text(''):, after *}", "third"),
        (in_words(22), "twenty-two"),
        (in_words(104), "one hundred and four"),
        (in_words(30), "thirty"),
        (in_words(13), "thirteen"),
        (in_words(200), "two hundred"),
        (long_date(date(2016, 7, 28)), "28 July 2016"),
        (long_date(date(1991, 1, 1)), "1 January 1991"),
        (on_date("28 July 1821"), "on 28 July 1821"),
        (on_date("1278"), "in 1278"),
        (on_date("about 965"), "about 965"),
        (sentence_case("the Netherlands is flat"), "The Netherlands is flat"),
        (sentence_case('"o canada" is sung'), '"O canada" is sung'),
        (sentence_case("22 presidents came"), "Twenty-two presidents came"),
        (sentence_case("'Akilisi Pohiva reigns"), "'Akilisi Pohiva reigns"),
        (sentence_case(""), ""),
    ],
)
def test_words(found: str, expected: str) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        (1, "first"),
        (10, "tenth"),
        (11, "11th"),
        (12, "12th"),
        (21, "21st"),
        (102, "102nd"),
        (111, "111th"),
        (113, "113th"),
    ],
)
def test_ordinals(rank: int, expected: str) -> None:
    assert ordinal(rank) == expected


def test_places_take_their_article_just_where_the_table_says_so() -> None:
    for country in load_world(2018).countries:
        assert place(country.name) == country.noun
