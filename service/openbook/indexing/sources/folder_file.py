"""A file of a folder, read: its sections, and what it says of itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openbook.indexing.splitting import Section

# Why a file is left out.
BROKEN, TOO_LARGE = "broken", "too large"
# Of the text of one file, in bytes or characters. Cut into passages it takes a hundred times that in memory.
LARGEST_TEXT = 16 << 20


@dataclass(frozen=True, slots=True)
class FolderFile:
    """`title`, `url` and `published` are None where the file does not say them.

    `fields` are other things that it says of itself, of any type; `noted` is what could not be read of them.
    """

    sections: tuple[Section, ...]
    title: str | None = None
    url: str | None = None
    published: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    noted: str | None = None
