"""The free fields of front matter as metadata: people write them by hand, one field in several types."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from openbook.entities import Metadata, MetadataType, MetadataValue
from openbook.indexing.passage_fields import MOST_FIELDS, MOST_METADATA, type_of, wider
from openbook.indexing.sources.moments import as_moment

# `path` and `page` are the source's own.
OWN = ("path", "page")
_NO_NAME = re.compile(r"[^A-Za-z0-9_]", re.ASCII)


@dataclass(frozen=True, slots=True)
class FrontFields:
    """The type of each field of a folder: the one that holds the values of all files, else text."""

    types: Mapping[str, MetadataType]

    @classmethod
    def of(cls, files: Iterable[Mapping[str, object]]) -> "FrontFields":
        """The fields of all files; of more than a version can declare, those that most files have."""
        found: dict[str, set[MetadataType]] = defaultdict(set)
        counted: Counter[str] = Counter()
        for fields in files:
            values = _values(fields)
            counted.update(values.keys())
            for name, value in values.items():
                found[name].add(type_of(value))
        most = sorted(counted, key=lambda name: (-counted[name], name))[: MOST_FIELDS - len(OWN)]
        return cls({name: _common(found[name]) for name in sorted(most)})

    def metadata(self, fields: Mapping[str, object], **own: MetadataValue) -> Metadata:
        """The declared ones of these fields and the source's own, as far as a passage may hold so much."""
        found, left = dict(own), MOST_METADATA - sum(len(str(value)) for value in own.values())
        for name, value in _values(fields).items():
            if name in self.types:
                stored = _as(value, self.types[name])
                left -= sum(map(len, stored)) if isinstance(stored, tuple) else len(str(stored))
                if left < 0:
                    break
                found[name] = stored
        return tuple(sorted(found.items()))


def _values(fields: Mapping[str, object]) -> dict[str, MetadataValue]:
    """What can be metadata, by names that can be: `my-key` is my_key. Tables within tables are left out."""
    found: dict[str, MetadataValue] = {}
    for given, value in fields.items():
        name = _NO_NAME.sub("_", given)[:64]
        name = f"_{name}"[:64] if name[:1].isdigit() else name
        read = _value(value)
        if name and name not in OWN and read is not None:
            found.setdefault(name, read)
    return found


def _value(value: object) -> MetadataValue | None:
    if isinstance(value, list):
        texts = [_text(one) for one in value if isinstance(one, str | int | float | date)]
        return tuple(text for text in texts if text) if len(texts) == len(value) else None
    if isinstance(value, date):
        return as_moment(value)
    if isinstance(value, str):
        return _text(value) or None
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else _text(value)
    # neither infinite nor no number
    return value if isinstance(value, float) and value - value == 0 else None


def _text(value: object) -> str:
    if isinstance(value, date):
        return as_moment(value) or ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return " ".join(text.encode("utf-8", "replace").decode().split())


def _common(types: set[MetadataType]) -> MetadataType:
    first, *rest = sorted(types)
    common: MetadataType | None = first
    for other in rest:
        common = wider(common, other) if common is not None else None
    return common or ("strings" if "strings" in types else "string")


def _as(value: MetadataValue, kind: MetadataType) -> MetadataValue:
    if kind == "strings" and not isinstance(value, tuple):
        return (_text(value),)
    return _text(value) if kind == "string" else value
