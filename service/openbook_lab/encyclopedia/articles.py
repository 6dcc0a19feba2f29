"""The articles of one world, in a fixed order. The list depends on the facts' keys, so it is the same in both years
but for the persons, who come and go."""

from collections.abc import Iterator
from dataclasses import dataclass

from openbook_lab.encyclopedia import (
    country,
    economy,
    geography,
    government,
    history,
    lists,
    office,
    person,
    population,
    symbols,
    titles,
)
from openbook_lab.encyclopedia.comparisons import Comparisons
from openbook_lab.encyclopedia.world import World


@dataclass(frozen=True, slots=True)
class Article:
    """One article. `article_id` is the slug of the title and is unique; `text` is one run of sentences."""

    article_id: str
    title: str
    text: str


def articles(world: World) -> Iterator[Article]:
    """Every article of this world's encyclopedia, each once. The same world always gives the same text."""
    facts = Comparisons(world)
    for land in world.countries:
        written = (
            (land.name, country.country_text(land, facts)),
            (titles.geography_title(land), geography.geography_text(land, facts)),
            (titles.population_title(land), population.population_text(land, facts)),
            (titles.economy_title(land), economy.economy_text(land, facts)),
            (titles.government_title(land), government.government_text(land, facts)),
            (titles.history_title(land), history.history_text(land, facts)),
            (titles.symbols_title(land), symbols.symbols_text(land, facts)),
        )
        yield from (_article(title, text) for title, text in written if text)
    for seat in world.offices:
        yield _article(titles.office_title(seat), office.office_text(seat, facts))
    for holder in dict.fromkeys(seat.holder for seat in world.offices):
        yield _article(titles.person_title(world, holder), person.person_text(holder, facts))
    yield from (_article(title, text) for title, text in lists.lists(facts))


def _article(title: str, text: str) -> Article:
    return Article(article_id=titles.article_id(title), title=title, text=text)
