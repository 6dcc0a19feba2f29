"""JSON lines: passages as they are, or articles that are split."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from openbook.entities import Passage
from openbook.indexing.sources.lines import FileSource, Position
from openbook.indexing.splitting import split_words

PASSAGE_FIELDS = {"id", "title", "text"}
ARTICLE_FIELDS = {"title", "text"}


class JsonLinesSource(FileSource):
    """{"id", "title", "text"}: a passage, taken as it is. {"title", "text"}: an article, split into passages.

    The passages of an article are named `<title>#0`, `<title>#1`, ...; a later line with the same title counts on.
    A file is read on from a mark by seeking, unless an article came before it: its title is needed for that count.
    """

    def _passages_from(self, start: Position) -> Iterator[tuple[Position, tuple[Passage, ...]]]:
        counted: Counter[str] = Counter()
        for number, offset, line in self._lines(Position() if start.replay else start):
            if not line.strip():
                continue
            fields = self._fields(number, line)
            if "id" in fields:
                passages: tuple[Passage, ...] = (Passage(fields["id"], fields["title"], fields["text"]),)
            else:
                title, before = fields["title"], counted[fields["title"]]
                # an article without words is refused as the empty passage that it would be
                texts = split_words(fields["text"]) or [""]
                passages = tuple(Passage(f"{title}#{before + n}", title, text) for n, text in enumerate(texts))
                counted[title] += len(texts)
            yield Position(number, offset, replay=bool(counted)), passages

    def _fields(self, number: int, line: str) -> dict[str, str]:
        try:
            fields: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._invalid(number, f"not JSON ({error})") from error
        if not isinstance(fields, dict):
            raise self._invalid(number, "not a JSON object")
        if isinstance(fields.get("id"), int) and not isinstance(fields["id"], bool):
            fields["id"] = str(fields["id"])
        for name in sorted(PASSAGE_FIELDS if "id" in fields else ARTICLE_FIELDS):
            value = fields.get(name)
            if not isinstance(value, str):
                raise self._invalid(number, f"{name} is {'missing' if name not in fields else 'no string'}")
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise self._invalid(number, f"{name} holds half of a surrogate pair") from error
        return fields
