"""The encyclopedia as an editor and a reader with a question would check it."""

import gzip
import json
import re
from dataclasses import replace

from openbook.indexing.splitting import PASSAGE_WORDS, SHORTEST_TAIL, passages, split_words
from openbook_lab.encyclopedia import Article, World, articles, shuffled
from openbook_lab.encyclopedia.titles import article_id, office_title, person_title
from tests.places import ROOT

TEXTS = ROOT / "checkpoints" / "openbook-mini" / "texts"


def test_it_writes_the_texts_that_are_shipped_byte_for_byte(book: list[Article], year: int) -> None:
    """Other words need new texts, new demo indexes, and a checkpoint that is trained on them."""
    lines = (
        json.dumps({"id": one.article_id, "title": one.title, "text": one.text}, ensure_ascii=False) + "\n"
        for one in book
    )
    assert gzip.decompress((TEXTS / f"wiki-{year}.jsonl.gz").read_bytes()).decode() == "".join(lines)


def test_both_years_have_the_same_articles_but_for_the_persons(
    worlds: dict[int, World], written: dict[int, list[Article]]
) -> None:
    without = []
    for year, book in written.items():
        ids = [article.article_id for article in book]
        assert len(ids) == len(set(ids))
        persons = {article_id(person_title(worlds[year], office.holder)) for office in worlds[year].offices}
        without.append([name for name in ids if name not in persons])
    assert without[0] == without[1]


def test_articles_of_one_title_have_one_id_and_titles_are_specific(written: dict[int, list[Article]]) -> None:
    titles = {article.title for article in written[2016]}
    assert {"Peru", "President of Peru", "Pedro Pablo Kuczynski", "Government of the Netherlands"} <= titles
    assert "Economy of Peru" in titles
    for article in written[2016]:
        assert article.article_id == article_id(article.title)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", article.article_id)


def test_the_year_itself_changes_no_word(worlds: dict[int, World], written: dict[int, list[Article]]) -> None:
    """The world of 2018 with the facts of 2016 is word for word the encyclopedia of 2016."""
    old, new = worlds[2016], worlds[2018]
    disguised = replace(new, countries=old.countries, offices=old.offices)
    assert list(articles(disguised)) == written[2016]


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


def test_articles_change_where_facts_do(written: dict[int, list[Article]]) -> None:
    old = {article.article_id: article.text for article in written[2016]}
    same = [article for article in written[2018] if old.get(article.article_id) == article.text]
    kinds = {article.article_id.split("-")[0] for article in same}
    # independence and symbols have no yearly fact, so that all of theirs are the same
    assert {"independence", "national"} <= kinds
    for article in written[2018]:
        if article.title.startswith(("Independence of", "Foundation of", "National symbols of")):
            assert old[article.article_id] == article.text


def test_the_holder_stands_in_the_first_sentence_of_the_office_with_its_full_name(
    world: World, book: list[Article]
) -> None:
    texts = {article.title: article.text for article in book}
    for office in world.offices:
        title = office_title(office)
        first = split_words(texts[title])[0]
        # up to where the second sentence begins, roughly: holder, office, country and date are all in the first words
        opening = " ".join(first.split()[:40])
        assert office.holder in opening
        assert title in opening
        if office.since:
            assert f"{office.since.day} {office.since:%B} {office.since.year}" in opening


def test_no_snapshot_knows_the_other_years_holders(world: World, other: World, book: list[Article]) -> None:
    strangers = {office.holder for office in other.offices} - {office.holder for office in world.offices}
    assert len(strangers) > 90
    words = " ".join(f"{article.title} {article.text}" for article in book)
    for stranger in strangers:
        assert stranger not in words or not re.search(rf"(?<!\w){re.escape(stranger)}(?!\w)", words), stranger


def test_no_article_states_the_other_years_population_or_output(
    world: World, other: World, book: list[Article]
) -> None:
    texts = {article.title: article.text for article in book}
    for country, elsewhen in zip(world.countries, other.countries, strict=True):
        if country.population and elsewhen.population and country.population != elsewhen.population:
            assert f"{elsewhen.population:,}" not in texts[f"Population of {country.noun}"]
            assert f"{country.population:,}" in texts[f"Population of {country.noun}"]
        if country.gdp and elsewhen.gdp and country.gdp != elsewhen.gdp:
            assert f"{elsewhen.gdp} " not in texts[f"Economy of {country.noun}"].replace(".", " ")


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


def test_nothing_is_misprinted(book: list[Article]) -> None:
    assert _misprinted(book) == {}


def test_every_sentence_begins_with_a_capital_or_a_name_and_ends(book: list[Article]) -> None:
    for article in book:
        assert article.text[-1] == ".", article.title
        text = re.sub(r'"[^"]*"', "Song", article.text)
        text = re.sub(r"\b(Mt|St|[A-Z])\. ", r"\1 ", text)
        for sentence in re.split(r"(?<=[.!?]) (?!\.[a-z]{2}\b)", text):
            first = sentence.lstrip("'")[0]
            assert first.isupper(), (article.title, sentence)


def test_there_are_enough_passages_and_none_too_long(book: list[Article]) -> None:
    lengths = [len(passage.text.split()) for passage in passages(book)]
    assert len(lengths) >= 1500
    assert max(lengths) < PASSAGE_WORDS + SHORTEST_TAIL
    assert sum(lengths) / len(lengths) > 60


def test_the_same_thing_is_said_in_many_ways(written: dict[int, list[Article]], worlds: dict[int, World]) -> None:
    """Of the first sentences of all presidents' articles, names taken out, there are at least eight."""
    texts = {article.title: article.text for article in written[2016]}
    shapes = set()
    for office in worlds[2016].offices:
        if office.title == "President" and office.since:
            opening = " ".join(texts[office_title(office)].split()[:30])
            for name in (office.holder, office_title(office)):
                opening = opening.replace(name, "X")
            shapes.add(" ".join(opening.split()[:4]))
    assert len(shapes) >= 8


def test_an_encyclopedia_of_an_invented_world_is_as_well_formed(worlds: dict[int, World]) -> None:
    invented = shuffled(worlds[2018], 11)
    found = list(articles(invented))
    assert len({article.article_id for article in found}) == len(found)
    texts = {article.title: article.text for article in found}
    for office in invented.offices:
        assert office.holder in " ".join(texts[office_title(office)].split()[:40])
    assert _misprinted(found) == {}
