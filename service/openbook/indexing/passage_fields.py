"""What passages have beside id, title and text: the types of their fields, and what no index holds."""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from functools import reduce
from typing import Final
from urllib.parse import urlsplit

from openbook.entities import MetadataType, MetadataValue, Passage
from openbook.errors import SourceInvalid
from openbook.storage.manifest import RICH_FORMAT
from openbook.storage.passages import PLAIN, PassageFields

METADATA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
MOST_FIELDS = 64
# An answer carries the fields of each of its passages.
MOST_URL, MOST_SECTION, MOST_METADATA = 2048, 1024, 16_384
# Of a passage that a build takes, in characters: no encoder reads as much, and every answer carries all of it.
MOST_ID, MOST_TITLE, MOST_TEXT = 2048, 1024, 32_768
# A value of the first type is one of the second, too.
_WIDER: Final[Mapping[MetadataType, MetadataType]] = {"integer": "number", "date": "string"}
_URL = re.compile(r"https?://[^\s\x00-\x20\x7f<>\"]+", re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


def fields_of(passages: Iterable[Passage]) -> PassageFields:
    """What these passages need. Raises SourceInvalid for a field with values of two types, and for too many."""
    return reduce(_with, passages, PLAIN)


def united(one: PassageFields, other: PassageFields, source: str) -> PassageFields:
    """What holds the passages of both. Raises SourceInvalid, on `source`, where one field has two types."""
    types = dict(one.metadata)
    for name, second in other.metadata.items():
        first = types.get(name, second)
        common = wider(first, second)
        if common is None:
            reason = f"metadata field {name!r} has values of type {first} and of type {second}"
            raise SourceInvalid(source=source, reason=reason)
        types[name] = common
    if len(types) > MOST_FIELDS:
        reason = f"{len(types)} metadata fields; a version has at most {MOST_FIELDS}"
        raise SourceInvalid(source=source, reason=reason)
    return PassageFields(max(one.passages_format, other.passages_format), dict(sorted(types.items())))


def _with(fields: PassageFields, passage: Passage) -> PassageFields:
    if (passage.url, passage.section, passage.published, passage.metadata) == (None, None, None, ()):
        return fields
    types = {name: type_of(value) for name, value in passage.metadata}
    if fields.passages_format == RICH_FORMAT and all(
        name in fields.metadata and wider(fields.metadata[name], kind) == fields.metadata[name]
        for name, kind in types.items()
    ):
        return fields
    return united(fields, PassageFields(RICH_FORMAT, types), f"passage {passage.passage_id!r}")


def wider(first: MetadataType, second: MetadataType) -> MetadataType | None:
    """The type that holds the values of both; None where none does."""
    if first == second or _WIDER.get(second) == first:
        return first
    return second if _WIDER.get(first) == second else None


def type_of(value: MetadataValue) -> MetadataType:
    """The narrowest type of a value: text is a date where `is_moment` says so."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "date" if is_moment(value) else "string"
        case _:
            return "strings"


def defect_of(passage: Passage) -> str | None:
    """Why no index holds this url, section, publishing time or metadata; None where one does."""
    if passage.url is not None and (len(passage.url) > MOST_URL or not is_url(passage.url)):
        return f"url: {passage.url!r:.80} is no http(s) address of at most {MOST_URL} characters"
    if passage.section is not None and not 0 < len(passage.section) <= MOST_SECTION:
        return f"section: it has {len(passage.section)} characters, not 1 to {MOST_SECTION}"
    if passage.published is not None and not is_moment(passage.published):
        return f"published: {passage.published!r:.80} is no date such as 2018-12-20 and no time in UTC"
    names = [name for name, _ in passage.metadata]
    if names != sorted(set(names)):
        return "metadata: its names are not sorted, or one comes twice"
    for name, value in passage.metadata:
        if not METADATA_NAME.fullmatch(name):
            return f"metadata: {name!r:.80} is no name of letters, digits and _, at most 64 of them"
        if isinstance(value, float) and not math.isfinite(value):
            return f"metadata.{name}: {value} is no number"
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            return f"metadata.{name}: {value!r:.40} does not fit into 64 bits"
    if sum(_characters(value) for _, value in passage.metadata) > MOST_METADATA:
        return f"metadata: its texts have more than {MOST_METADATA:,} characters"
    return None


def too_long(passage: Passage) -> str | None:
    """Why no build takes a passage so long; None where it does. A version of before may hold one."""
    for name, text, most in (
        ("id", passage.passage_id, MOST_ID),
        ("title", passage.title, MOST_TITLE),
        ("text", passage.text, MOST_TEXT),
    ):
        if len(text) > most:
            return f"{name} has {len(text):,} characters, more than {most:,}"
    return None


def is_url(text: str) -> bool:
    """Whether a browser may be sent to this address: http or https, with a host, without white space or quotes."""
    try:
        return bool(_URL.fullmatch(text) and urlsplit(text).hostname)
    except ValueError:
        return False


def is_moment(text: str) -> bool:
    """Whether this is a date such as 2018-12-20, or a time in UTC such as 2018-12-20T10:00:00Z: sorted as text, they
    are sorted by time."""
    try:
        if len(text) == len("2018-12-20"):
            return date.fromisoformat(text).isoformat() == text
        return bool(_TIME.fullmatch(text)) and datetime.fromisoformat(text) is not None
    except ValueError:
        return False


def _characters(value: MetadataValue) -> int:
    return sum(map(len, value)) if isinstance(value, tuple) else len(value) if isinstance(value, str) else 0
