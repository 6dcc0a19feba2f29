"""The articles of one world, in a fixed order. The list depends on the facts' keys, so it is the same in both years
but for the persons, who come and go."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.offline.encyclopedia import country, economy, office, person, titles
from service.offline.encyclopedia.comparisons import Comparisons
from service.offline.encyclopedia.world import World


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
        yield _article(land.name, country.country_text(land, facts))
        for title, text in ((titles.economy_title(land), economy.economy_text(land, facts)),):
            if text:
                yield _article(title, text)
    for seat in world.offices:
        yield _article(titles.office_title(seat), office.office_text(seat, facts))
    for holder in dict.fromkeys(seat.holder for seat in world.offices):
        yield _article(titles.person_title(world, holder), person.person_text(holder, facts))


def _article(title: str, text: str) -> Article:
    return Article(article_id=titles.article_id(title), title=title, text=text)
