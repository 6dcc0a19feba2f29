"""Files of text and JSON from users, plain or compressed. Every error names the place of what is wrong."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from openbook.errors import SourceInvalid

GZIP_MAGIC = b"\x1f\x8b"
T = TypeVar("T")


class Wrong(ValueError):
    """What is wrong with one entry; the reader of the file adds its place."""


class TextFile:
    """A whole file in memory, read once, so that it may be a pipe. Its content says what it is, not its name."""

    def __init__(self, path: Path) -> None:
        """Raises SourceInvalid for a file that cannot be read, and for the first line that is not UTF-8."""
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
        # only line feeds separate lines: texts hold other Unicode separators
        for number, line in enumerate(self.text.split("\n"), start=1):
            if line.strip():
                yield f"{self.path}:{number}", line

    def first_line(self) -> str:
        """The first line that is not empty; "" without one."""
        return next((line for _, line in self.lines()), "")

    def value(self) -> Any:
        """The file as one JSON value; None where it is not one, such as a file of several objects."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    def rows(self, make: Callable[[str, str], T]) -> Iterator[T]:
        """What `make(place, line)` makes of each line. Raises SourceInvalid with file and line for its Wrong."""
        for place, line in self.lines():
            with _placed(place):
                made = make(place, line)
            yield made

    def objects(self, make: Callable[[str, dict[str, Any]], T]) -> Iterator[T]:
        """What `make(place, object)` makes of each line, which must be a JSON object."""
        return self.rows(lambda place, line: make(place, get_object(_json(line))))

    def entries(self, found: Any, name: str, make: Callable[[dict[str, Any]], T]) -> Iterator[T]:
        """What `make` makes of each object of the list `found`, which the file calls `name`."""
        if not isinstance(found, list):
            raise SourceInvalid(source=self.path, reason=f"{name} is no list")
        return self.members(enumerate(found), name, make)

    def members(
        self, found: Iterable[tuple[object, Any]], name: str, make: Callable[[dict[str, Any]], T]
    ) -> Iterator[T]:
        """What `make` makes of each object of the pairs (key, object) `found`, which the file calls `name`."""
        for key, entry in found:
            with _placed(f"{self.path}: {name}[{key}]"):
                made = make(get_object(entry))
            yield made


@contextmanager
def _placed(place: str) -> Iterator[None]:
    try:
        yield
    except Wrong as error:
        raise SourceInvalid(source=place, reason=f"not a question: {error}") from error


def get_object(value: Any) -> dict[str, Any]:
    """`value`, which must be a JSON object, or Wrong is raised."""
    if not isinstance(value, dict):
        raise Wrong("not a JSON object")
    return value


def get_text(record: dict[str, Any], name: str) -> str:
    """The text under `name`, stripped. Raises Wrong if it is missing, no string, or empty."""
    value = record.get(name)
    if not isinstance(value, str):
        raise Wrong(f"{name} is {'missing' if value is None else 'no string'}")
    if not value.strip():
        raise Wrong(f"{name} is empty")
    return value.strip()


def get_list(record: dict[str, Any], name: str) -> list[Any]:
    """The list under `name`. Raises Wrong if it is missing or no list."""
    value = record.get(name)
    if not isinstance(value, list):
        raise Wrong(f"{name} is {'missing' if value is None else 'no list'}")
    return value


def get_texts(record: dict[str, Any], name: str) -> tuple[str, ...]:
    """The texts of the list under `name` that are not empty. Raises Wrong if it is no list of strings."""
    value = get_list(record, name)
    if not all(isinstance(one, str) for one in value):
        raise Wrong(f"{name} holds what is no string")
    return tuple(one.strip() for one in value if one.strip())


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Wrong(f"not JSON ({error})") from error
