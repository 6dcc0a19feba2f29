"""The articles of one world, in a fixed order. Both years have the same list except for the persons."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openbook.entities import Passage
from openbook.indexing.splitting import Section, SourceArticle, split_article
from openbook_lab.encyclopedia.comparisons import Comparisons
from openbook_lab.encyclopedia.country import country_articles
from openbook_lab.encyclopedia.lists import lists
from openbook_lab.encyclopedia.office import office_article, person_article
from openbook_lab.encyclopedia.titles import article_id
from openbook_lab.encyclopedia.world import World


@dataclass(frozen=True, slots=True)
class Article:
    """One article. `article_id` is the slug of the title and is unique; `text` is one run of sentences."""

    article_id: str
    title: str
    text: str


def articles(world: World) -> Iterator[Article]:
    """Every article of this world's encyclopedia, each once. The same world always gives the same text."""
    for title, text in _written(Comparisons(world)):
        if text:
            yield Article(article_id(title), title, text)


def passages(articles: Iterable[Article]) -> Iterator[Passage]:
    """The passages of each article in turn, named after its id."""
    for one in articles:
        yield from split_article(SourceArticle(one.article_id, one.title, (Section(one.text),)))


def _written(facts: Comparisons) -> Iterator[tuple[str, str]]:
    for country in facts.world.countries:
        yield from country_articles(country, facts)
    for office in facts.world.offices:
        yield office_article(office, facts)
    for holder in facts.holdings:
        yield person_article(holder, facts)
    yield from lists(facts)
