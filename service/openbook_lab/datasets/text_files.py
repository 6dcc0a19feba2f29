"""Files of text and JSON that people give, plain or compressed; whatever is wrong is named with where it stands."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from openbook.errors import SourceInvalid

GZIP_MAGIC = b"\x1f\x8b"
T = TypeVar("T")


class Wrong(ValueError):
    """What is wrong with one entry; whoever reads the file adds where it stands."""


class TextFile:
    """A whole file in memory, read once, so that it may be a pipe. What is in it, its content says."""

    def __init__(self, path: Path) -> None:
        """Raises SourceInvalid for what cannot be read, with the line that is not UTF-8."""
        self.path = path
        try:
            content = path.read_bytes()
            if content.startswith(GZIP_MAGIC):
                content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceInvalid(source=path, reason=f"cannot be read ({error})") from error
        try:
            self.text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise SourceInvalid(source=f"{path}:{line}", reason=f"not UTF-8 ({error.reason})") from error

    def lines(self) -> Iterator[tuple[str, str]]:
        """Each line that is not empty, with its place, "file:number"."""
        # by line feeds alone: other separators that Unicode knows stand in texts
        for number, line in enumerate(self.text.split("\n"), start=1):
            if line.strip():
                yield f"{self.path}:{number}", line

    def first_line(self) -> str:
        """The first that is not empty; "" where all are."""
        return next((line for _, line in self.lines()), "")

    def value(self) -> Any:
        """The file as one JSON value; None where it is none, as a file of several lines of objects is not."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    def objects(self, make: Callable[[str, dict[str, Any]], T]) -> Iterator[T]:
        """What `make(place, object)` makes of each line. Its Wrong comes back as SourceInvalid with file and line."""
        for place, line in self.lines():
            try:
                yield make(place, get_object(_json(line)))
            except Wrong as error:
                raise SourceInvalid(source=place, reason=f"not a question: {error}") from error

    def entries(self, found: Any, name: str, make: Callable[[dict[str, Any]], T]) -> Iterator[T]:
        """What `make` makes of each object of the list `found`, which the file calls `name`."""
        if not isinstance(found, list):
            raise SourceInvalid(source=self.path, reason=f"{name} is no list")
        for number, entry in enumerate(found):
            try:
                yield make(get_object(entry))
            except Wrong as error:
                place = f"{self.path}: {name}[{number}]"
                raise SourceInvalid(source=place, reason=f"not a question: {error}") from error


def get_object(value: Any) -> dict[str, Any]:
    """`value` as the object that it is. Raises Wrong."""
    if not isinstance(value, dict):
        raise Wrong("not a JSON object")
    return value


def get_text(record: dict[str, Any], name: str) -> str:
    """The text under `name`, without space around it. Raises Wrong where it is missing, no text, or empty."""
    value = record.get(name)
    if not isinstance(value, str):
        raise Wrong(f"{name} is {'missing' if value is None else 'no string'}")
    if not value.strip():
        raise Wrong(f"{name} is empty")
    return value.strip()


def get_list(record: dict[str, Any], name: str) -> list[Any]:
    """The list under `name`. Raises Wrong where it is missing or none."""
    value = record.get(name)
    if not isinstance(value, list):
        raise Wrong(f"{name} is {'missing' if value is None else 'no list'}")
    return value


def get_texts(record: dict[str, Any], name: str) -> tuple[str, ...]:
    """The texts of the list under `name`, those that are empty left out. Raises Wrong where it is none."""
    value = get_list(record, name)
    if not all(isinstance(one, str) for one in value):
        raise Wrong(f"{name} holds what is no string")
    return tuple(one.strip() for one in value if one.strip())


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Wrong(f"not JSON ({error})") from error
