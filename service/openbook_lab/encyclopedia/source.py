"""The demo's encyclopedia as a source of passages."""

from collections.abc import Iterator

from openbook.indexing.sources.source import PassageBatch, PassageSource, rows_before
from openbook.indexing.splitting import passages
from openbook_lab.encyclopedia import articles, load_world
from openbook_lab.encyclopedia.world import SNAPSHOT_DATES

DEMO_YEARS = {"wiki-2016": 2016, "wiki-2018": 2018}


class EncyclopediaSource(PassageSource):
    """The demo: one small encyclopedia as of a year, the same articles in each. A mark is the number of articles."""

    def __init__(self, version: str) -> None:
        self._year = DEMO_YEARS[version]
        name = f"Openbook's encyclopedia of countries and offices, {self._year}"
        super().__init__(name, None, snapshot_date=SNAPSHOT_DATES[self._year].isoformat(), licence="Apache-2.0")

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        first, read = rows_before(after, self.name), 0
        for number, article in enumerate(articles(load_world(self._year)), start=1):
            read += len(article.text.encode())
            if number > first:
                yield PassageBatch(tuple(passages([article])), mark=str(number), read=read)
