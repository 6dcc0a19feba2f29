"""A file of a folder, read: its sections, and what it says of itself."""

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from openbook.indexing.splitting import Section

# Why a file is left out.
BROKEN, TOO_LARGE = "broken", "too large"
# Of the text of one file, in bytes or characters. Cut into passages it takes a hundred times that in memory.
LARGEST_TEXT = 16 << 20
# What windows-1252 makes of another alphabet: control characters, and signs between two letters.
_NOT_WESTERN = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]|[^\W\d_][¡-¬®-¶¸¹»-¿×÷][^\W\d_]")
# Of the letters, so many at most are not in ASCII.
MOST_ACCENTS = 0.3


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


def decoded(content: bytes) -> str:
    """A text in UTF-8; else in UTF-16 with its mark; else in windows-1252, which it has to look like.

    Raises UnicodeError for any other.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16")
    try:
        return content.decode("utf-8-sig")
    except UnicodeError:
        text = content.decode("cp1252")
        letters, plain = (sum(map(str.isalpha, one)) for one in (text, text.encode("ascii", "ignore").decode()))
        if _NOT_WESTERN.search(text) or letters - plain > MOST_ACCENTS * letters:
            raise
        return text


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads the bytes of a file of one kind: what an entry point of the group `openbook.files` is.

    `read` returns the file, or the reason why it is left out. It runs in a process with limits of time and memory, to
    which it is pickled, so it is a function of a module. Its `packages` come with `extra`, such as openbook[pdf].
    """

    read: Callable[[bytes], FolderFile | str]
    extra: str = ""
    packages: tuple[str, ...] = ()

    @property
    def lacks(self) -> str | None:
        """The extra, where a package of it is not installed."""
        return None if all(find_spec(package) for package in self.packages) else self.extra
