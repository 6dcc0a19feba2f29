"""The demo's two texts as sources of passages: one small encyclopedia as of two days, the same articles in each."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from openbook.indexing.sources.source import PassageBatch, PassageSource, rows_before
from openbook.indexing.splitting import Section, SourceArticle, split_article

DATES = {"wiki-2016": "2016-11-30", "wiki-2018": "2018-12-20"}


class DemoText(PassageSource):
    """The articles of `texts/VERSION.jsonl.gz`, a line each. A mark is the number of articles."""

    def __init__(self, version: str) -> None:
        date = DATES[version]
        name = f"Openbook's encyclopedia of countries and offices, {date[:4]}"
        super().__init__(name, None, snapshot_date=date, licence="Apache-2.0")
        self._path = Path(__file__).with_name("texts") / f"{version}.jsonl.gz"

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        first, read = rows_before(after, self.name), 0
        with gzip.open(self._path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                article = json.loads(line)
                read += len(article["text"].encode())
                if number > first:
                    cut = SourceArticle(article["id"], article["title"], (Section(article["text"]),))
                    yield PassageBatch(split_article(cut), mark=str(number), read=read)
