"""Files of lines, plain or compressed with gzip: JSON lines and DPR's table, read from any line on."""

import csv
import gzip
import json
import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from openbook.entities import Metadata, MetadataValue, Passage
from openbook.errors import SourceInvalid
from openbook.indexing.passage_fields import MOST_TITLE, defect_of, fields_of, too_long, united
from openbook.indexing.sources.moments import as_moment
from openbook.indexing.sources.source import PassageBatch, PassageSource, no_mark
from openbook.indexing.sources.url_template import UrlTemplate
from openbook.indexing.splitting import Section, SourceArticle, Split, split_article
from openbook.storage.passages import PLAIN

PASSAGE_FIELDS = {"id", "title", "text"}
ARTICLE_FIELDS = {"title", "text"}
TABLE_HEADER = ["id", "text", "title"]
# In bytes, and of a row of a table. A compressed file may unpack into a line that no memory holds.
LONGEST_LINE = 16 << 20


@dataclass(frozen=True, slots=True)
class Position:
    """After a line: how many lines and how many bytes, decompressed, are before it. With `replay`, reading from here
    needs the lines before."""

    line: int = 0
    offset: int = 0
    replay: bool = False

    def __str__(self) -> str:
        return f"{'replay' if self.replay else 'line'}:{self.line}:{self.offset}"


class FileSource(PassageSource):
    """A file of lines in UTF-8. An error names the line that cannot be read."""

    def __init__(
        self,
        path: Path,
        *,
        snapshot_date: str | None = None,
        licence: str = "",
        split: Split | None = None,
        url_template: UrlTemplate | None = None,
    ) -> None:
        """`url_template` makes the address of a passage that has none of its own."""
        given = {"split": split, "url template": url_template.template if url_template is not None else None}
        choices = {name: str(value) for name, value in given.items() if value is not None}
        super().__init__(path.name, path.stat().st_size, snapshot_date=snapshot_date, licence=licence, choices=choices)
        self._path = path
        self._split: Split = split or "words"
        self._url_template = url_template
        self._read = 0

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        """Raises SourceInvalid at the first bad line, and for a mark that is none of this file."""
        start = Position() if after is None else self._position(after)
        fields = PLAIN
        for position, passages in self._passages_from(start):
            for passage in passages:
                if not passage.text.strip():
                    raise self._invalid(position.line, "text is empty")
                if (defect := too_long(passage) or defect_of(passage)) is not None:
                    raise self._invalid(position.line, defect)
            fields = united(fields, fields_of(passages[:1]), f"{self._path}:{position.line}")
            if position.line > start.line:
                yield PassageBatch(passages, mark=str(position), read=self._read)

    @abstractmethod
    def _passages_from(self, start: Position) -> Iterator[tuple[Position, tuple[Passage, ...]]]:
        """The passages of each line after `start`, or of every line when `start` asks for a replay."""

    def _url(self, passage_id: str, title: str) -> str | None:
        return None if self._url_template is None else self._url_template.url(id=passage_id, title=title)

    def _lines(self, start: Position) -> Iterator[tuple[int, int, str]]:
        """Lines with their numbers, from 1, and the offsets of their ends. Only a line feed ends a line.

        A compressed file is decompressed from its beginning, and passed over up to `start`.
        """
        number, offset = start.line, start.offset
        try:
            with self._path.open("rb") as raw:
                file = gzip.GzipFile(fileobj=raw) if self._path.suffix == ".gz" else raw
                file.seek(offset)
                while line := file.readline(LONGEST_LINE + 1):
                    number += 1
                    if len(line) > LONGEST_LINE:
                        raise self._invalid(number, f"the line has more than {LONGEST_LINE:,} bytes")
                    offset += len(line)
                    self._read = offset if file is raw else raw.tell()
                    yield number, offset, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise self._invalid(number, f"not UTF-8 ({error.reason} at byte {error.start})") from error
        except (OSError, EOFError, zlib.error) as error:
            raise self._invalid(number + 1, f"cannot be read ({error})") from error

    def _position(self, mark: str) -> Position:
        kind, *numbers = mark.split(":")
        if kind not in ("line", "replay") or len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
            raise no_mark(self._path, mark)
        return Position(int(numbers[0]), int(numbers[1]), replay=kind == "replay")

    def _invalid(self, number: int, reason: str) -> SourceInvalid:
        return SourceInvalid(source=f"{self._path}:{number}", reason=reason)


class JsonLinesSource(FileSource):
    """{"id", "title", "text"}: a passage, taken as it is. {"title", "text"}: an article, split into passages.

    Both may have "url", "section", "published" and a "metadata" object. The passages of an article are named
    `<title>#0`, `<title>#1`, ...; a later line with the same title counts on. Reading from a mark seeks, unless an
    article came before it: the count of its title is then needed.
    """

    def _passages_from(self, start: Position) -> Iterator[tuple[Position, tuple[Passage, ...]]]:
        counted: Counter[str] = Counter()
        for number, offset, line in self._lines(Position() if start.replay else start):
            if not line.strip():
                continue
            fields = self._fields(number, line)
            title, name = fields["title"], fields.get("id")
            url = self._text(number, fields, "url") or self._url(name or title, title)
            section = Section(fields["text"], self._text(number, fields, "section"), self._metadata(number, fields))
            published = self._published(number, fields)
            if name is not None:
                passages: tuple[Passage, ...] = (
                    Passage(name, title, section.text, url, section.heading, published, section.metadata),
                )
            else:
                before = counted[title]
                # an article without words gives one empty passage, which is refused
                found = split_article(SourceArticle(title, title, (section,), url, published), self._split)
                found = found or (Passage(f"{title}#0", title, ""),)
                passages = tuple(replace(one, passage_id=f"{title}#{before + n}") for n, one in enumerate(found))
                counted[title] += len(found)
            yield Position(number, offset, replay=bool(counted)), passages

    def _fields(self, number: int, line: str) -> dict[str, Any]:
        try:
            fields: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._invalid(number, f"not JSON ({error})") from error
        if not isinstance(fields, dict):
            raise self._invalid(number, "not a JSON object")
        if isinstance(fields.get("id"), int) and not isinstance(fields["id"], bool):
            fields["id"] = str(fields["id"])
        for name in sorted(PASSAGE_FIELDS if "id" in fields else ARTICLE_FIELDS):
            if not isinstance(fields.get(name), str):
                raise self._invalid(number, f"{name} is {'missing' if name not in fields else 'no string'}")
            self._text(number, fields, name)
        # an article's passages all repeat it
        if len(fields["title"]) > MOST_TITLE:
            raise self._invalid(number, f"title has {len(fields['title']):,} characters, more than {MOST_TITLE:,}")
        return fields

    def _text(self, number: int, fields: Mapping[str, Any], name: str) -> str | None:
        """A text that may be absent or null; an empty one is none."""
        value = fields.get(name)
        if value is not None and not isinstance(value, str):
            raise self._invalid(number, f"{name} is no string")
        try:
            (value or "").encode()
        except UnicodeEncodeError as error:
            raise self._invalid(number, f"{name} holds half of a surrogate pair") from error
        return value or None

    def _published(self, number: int, fields: Mapping[str, Any]) -> str | None:
        text = self._text(number, fields, "published")
        moment = as_moment(text)
        if text is not None and moment is None:
            raise self._invalid(number, f"published is {text!r:.80}, no date or time of ISO 8601 such as 2018-12-20")
        return moment

    def _metadata(self, number: int, fields: Mapping[str, Any]) -> Metadata:
        given = fields.get("metadata")
        if given is None:
            return ()
        if not isinstance(given, dict):
            raise self._invalid(number, "metadata is no object")
        found: list[tuple[str, MetadataValue]] = []
        for name, value in sorted(given.items()):
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str):
                    self._text(number, {f"metadata.{name}": text}, f"metadata.{name}")
                elif isinstance(value, list) or isinstance(text, dict):
                    raise self._invalid(
                        number, f"metadata.{name} is no text, number, true, false or list of texts: {value!r:.80}"
                    )
            if value is not None:
                found.append((name, tuple(value) if isinstance(value, list) else value))
        return tuple(found)


class PassageTableSource(FileSource):
    """DPR's psgs_w100.tsv: id, text and title separated by tabs, quoted as CSV, with a header."""

    def _passages_from(self, start: Position) -> Iterator[tuple[Position, tuple[Passage, ...]]]:
        position = start
        # of the row so far, which quotation marks may carry over any number of lines
        n_characters = 0

        def lines() -> Iterator[str]:
            nonlocal position, n_characters
            for number, offset, line in self._lines(start):
                position = Position(number, offset)
                n_characters += len(line)
                if n_characters > LONGEST_LINE:
                    raise self._invalid(number, f"the row has more than {LONGEST_LINE:,} characters")
                yield line

        # strict: a quotation mark that is never closed is an error, not one passage to the end of the file
        rows = csv.reader(lines(), delimiter="\t", strict=True)
        try:
            if start == Position():
                header = next(rows, [])
                if header != TABLE_HEADER:
                    raise self._invalid(1, f"the header is {header!r:.200}, not {TABLE_HEADER}")
            for row in rows:
                n_characters = 0
                if not row:
                    continue
                if len(row) != len(TABLE_HEADER):
                    raise self._invalid(position.line, f"{len(row)} columns, not {len(TABLE_HEADER)}")
                passage_id, text, title = row
                yield position, (Passage(passage_id, title, text, self._url(passage_id, title)),)
        except csv.Error as error:
            raise self._invalid(position.line, str(error)) from error
