"""The demo's encyclopedia as a source of passages."""

from collections.abc import Iterator, Mapping

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.sources.source import Batch, passages_of
from openbook.indexing.splitting import passages
from openbook_lab.encyclopedia import articles, load_world
from openbook_lab.encyclopedia.world import SNAPSHOT_DATES

DEMO_YEARS = {"wiki-2016": 2016, "wiki-2018": 2018}


class EncyclopediaSource:
    """The demo: one small encyclopedia as of a year, the same articles in each. A mark is the number of articles."""

    total_bytes: int | None = None
    attribution = ""

    def __init__(self, version: str) -> None:
        self._year = DEMO_YEARS[version]
        self.name = f"Openbook's encyclopedia of countries and offices, {self._year}"
        self.snapshot_date: str | None = SNAPSHOT_DATES[self._year].isoformat()
        self.licence = "Apache-2.0"

    def passages(self) -> Iterator[Passage]:
        return passages_of(self)

    def batches(self, after: str | None = None) -> Iterator[Batch]:
        first = 0
        if after is not None:
            if not (after.isascii() and after.isdigit()):
                raise SourceInvalid(source=self.name, reason=f"{after!r} is no mark of this source")
            first = int(after)
        read = 0
        for number, article in enumerate(articles(load_world(self._year)), start=1):
            read += len(article.text.encode())
            if number > first:
                yield Batch(tuple(passages([article])), mark=str(number), read=read)

    def skipped(self) -> Mapping[str, int]:
        return {}
