"""Where passages come from: the demo's encyclopedia, JSON lines, DPR's table."""

import csv
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from service.entities import Passage
from service.errors import SourceInvalid
from service.offline.encyclopedia import articles, load_world
from service.offline.encyclopedia.world import SNAPSHOT_DATES
from service.offline.splitting import passages, split_words

DEMO_YEARS = {"wiki-2016": 2016, "wiki-2018": 2018}
PASSAGE_FIELDS = {"id", "title", "text"}
ARTICLE_FIELDS = {"title", "text"}
TABLE_HEADER = ["id", "text", "title"]


class PassageSource(Protocol):
    """Passages in an order that never changes, and what the manifest says of where they come from."""

    @property
    def name(self) -> str: ...

    @property
    def snapshot_date(self) -> str | None: ...

    @property
    def licence(self) -> str: ...

    def passages(self) -> Iterator[Passage]: ...


def open_source(what: str, *, snapshot_date: str | None = None, licence: str = "") -> PassageSource:
    """The source that `what` names: wiki-2016, wiki-2018, or a file .jsonl or .tsv, either also with .gz.

    `snapshot_date` and `licence` are what the manifest is to say of a file; the demo's are its own.
    Raises SourceInvalid for a file that is not there or of a kind that is not read.
    """
    if what in DEMO_YEARS:
        return EncyclopediaSource(what)
    path = Path(what)
    kinds = {".jsonl": JsonLinesSource, ".tsv": PassageTableSource}
    kind = kinds.get(Path(path.name.removesuffix(".gz")).suffix)
    if kind is None:
        demo = ", ".join(DEMO_YEARS)
        raise SourceInvalid(source=what, reason=f"neither one of {demo} nor a file .jsonl or .tsv (or either .gz)")
    if not path.is_file():
        raise SourceInvalid(source=what, reason="there is no such file")
    return kind(path, snapshot_date=snapshot_date, licence=licence)


class EncyclopediaSource:
    """The demo: one small encyclopedia as of a year, the same articles in each."""

    def __init__(self, version: str) -> None:
        self._year = DEMO_YEARS[version]
        self.name = f"Openbook's encyclopedia of countries and offices, {self._year}"
        self.snapshot_date: str | None = SNAPSHOT_DATES[self._year].isoformat()
        self.licence = "Apache-2.0"

    def passages(self) -> Iterator[Passage]:
        yield from passages(articles(load_world(self._year)))


class FileSource:
    """A file of lines in UTF-8. What cannot be read is named with its line, and so is an id that comes twice."""

    def __init__(self, path: Path, *, snapshot_date: str | None = None, licence: str = "") -> None:
        self._path = path
        self.name = path.name
        self.snapshot_date = snapshot_date
        self.licence = licence

    def passages(self) -> Iterator[Passage]:
        """Raises SourceInvalid at the first line that is none."""
        first_lines: dict[str, int] = {}
        for number, passage in self._numbered_passages():
            if not passage.text.strip():
                raise self._invalid(number, "text is empty")
            before = first_lines.setdefault(passage.passage_id, number)
            if before != number:
                raise self._invalid(number, f"id {passage.passage_id!r} is that of line {before}")
            yield passage

    def _numbered_passages(self) -> Iterator[tuple[int, Passage]]:
        raise NotImplementedError

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Lines with their numbers, from 1; ended by a line feed and by nothing else that Unicode knows."""
        number = 0
        try:
            with gzip.open(self._path) if self._path.suffix == ".gz" else self._path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise self._invalid(number, f"not UTF-8 ({error.reason} at byte {error.start})") from error
        except (OSError, EOFError, zlib.error) as error:
            raise self._invalid(number + 1, f"cannot be read ({error})") from error

    def _invalid(self, number: int, reason: str) -> SourceInvalid:
        return SourceInvalid(source=f"{self._path}:{number}", reason=reason)


class JsonLinesSource(FileSource):
    """{"id", "title", "text"}: a passage, taken as it is. {"title", "text"}: an article, split into passages.

    The passages of an article are named `<title>#0`, `<title>#1`, ...; a later line with the same title counts on.
    """

    def _numbered_passages(self) -> Iterator[tuple[int, Passage]]:
        counted: Counter[str] = Counter()
        for number, line in self._lines():
            if not line.strip():
                continue
            fields = self._fields(number, line)
            if "id" in fields:
                yield number, Passage(fields["id"], fields["title"], fields["text"])
                continue
            title = fields["title"]
            # an article without words is refused as the empty passage that it would be
            for text in split_words(fields["text"]) or [""]:
                yield number, Passage(f"{title}#{counted[title]}", title, text)
                counted[title] += 1

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


class PassageTableSource(FileSource):
    """DPR's psgs_w100.tsv: id, text and title separated by tabs, quoted as CSV, with a header."""

    def _numbered_passages(self) -> Iterator[tuple[int, Passage]]:
        numbers = [0]

        def lines() -> Iterator[str]:
            for number, line in self._lines():
                numbers[0] = number
                yield line

        # strict: a quotation mark that is never closed is an error, not one passage to the end of the file
        rows = csv.reader(lines(), delimiter="\t", strict=True)
        try:
            header = next(rows, [])
            if header != TABLE_HEADER:
                raise self._invalid(1, f"the header is {header}, not {TABLE_HEADER}")
            for row in rows:
                if not row:
                    continue
                if len(row) != len(TABLE_HEADER):
                    raise self._invalid(numbers[0], f"{len(row)} columns, not {len(TABLE_HEADER)}")
                passage_id, text, title = row
                yield numbers[0], Passage(passage_id, title, text)
        except csv.Error as error:
            raise self._invalid(numbers[0], str(error)) from error
