"""The two shipped texts are frozen; what is written of other facts and of an invented world is as well-formed."""

import gzip
import json
import re
from dataclasses import replace

from openbook_lab.encyclopedia import Article, World, articles, shuffled
from openbook_lab.encyclopedia.titles import office_title
from tests.places import ROOT

TEXTS = ROOT / "checkpoints" / "openbook-mini" / "texts"


def test_it_writes_the_texts_that_are_shipped_byte_for_byte(book: list[Article], year: int) -> None:
    """Other words need new texts, new demo indexes, and a checkpoint that is trained on them."""
    lines = (
        json.dumps({"id": one.article_id, "title": one.title, "text": one.text}, ensure_ascii=False) + "\n"
        for one in book
    )
    assert gzip.decompress((TEXTS / f"wiki-{year}.jsonl.gz").read_bytes()).decode() == "".join(lines)


def test_an_office_changes_its_text_only_with_its_facts(
    worlds: dict[int, World], written: dict[int, list[Article]]
) -> None:
    """One new holder is put into 2016; nothing but what speaks of that office may be worded otherwise."""
    world = worlds[2016]
    peru = next(office for office in world.offices if (office.country, office.title) == ("Peru", "President"))
    changed = replace(
        world,
        offices=tuple(replace(office, holder="Maria Quispe") if office is peru else office for office in world.offices),
    )
    old_texts = {article.title: article.text for article in written[2016]}
    new_texts = {article.title: article.text for article in articles(changed)}
    differing = {title for title in old_texts.keys() | new_texts.keys() if old_texts.get(title) != new_texts.get(title)}
    assert differing == {
        "Peru",
        "President of Peru",
        "Government of Peru",
        "Leaders of South America",
        "Pedro Pablo Kuczynski",
        "Maria Quispe",
    }
    for title in ("Peru", "President of Peru", "Government of Peru", "Leaders of South America"):
        assert old_texts[title].replace(peru.holder, "Maria Quispe") == new_texts[title]


# names that look like misprints
_NAMES = ("Bri Bri", "Jabal an Nabi Shu'ayb")


def _misprinted(book: list[Article]) -> dict[str, list[str]]:
    """By title; the words of songs are free."""
    found = {article.title: _misprints(re.sub(r'"[^"]*"', "song", article.text)) for article in book}
    return {title: misprints for title, misprints in found.items() if misprints}


def _misprints(text: str) -> list[str]:
    found = []
    for name in _NAMES:
        text = text.replace(name, "Name")
    for pattern in (
        r"None(?! of its)",
        r"\bnan\b",
        r"[{}\[\]|_]",
        r" {2}",
        r"\s[,;:]|\s\.(?![a-z]{2}\b)",
        r",,|\.\.|,\.|;\.",
        r"\b[Aa] [AEIO]\w",
        r"\ba [aeio]\w",
        r"\b[Aa]n (?![aeiouAEIOU])",
        r"(?<!\.)\b(\w+) \1\b",
        r"\bthe the\b|\bThe the\b|\bof of\b",
        r"(?<!-)\bone (countries|economies|presidents|kings|neighbours)\b",
        r"\b(?:two|three|four|\d\d) (country|economy|president|king|neighbour|other country)\b",
        r"\b(in|of|from|and|with) (Netherlands|Philippines|United|Bahamas|Gambia|Comoros|Maldives)\b",
        r"\bthe (Peru|France|Chad|Angola)\b(?!v)",
    ):
        found += [match[0] for match in re.finditer(pattern, text)]
    return found


def test_an_encyclopedia_of_an_invented_world_is_as_well_formed(worlds: dict[int, World]) -> None:
    invented = shuffled(worlds[2018], 11)
    found = list(articles(invented))
    assert len({article.article_id for article in found}) == len(found)
    texts = {article.title: article.text for article in found}
    for office in invented.offices:
        assert office.holder in " ".join(texts[office_title(office)].split()[:40])
    assert _misprinted(found) == {}
