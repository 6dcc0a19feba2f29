"""Files of JSON, whole or one object a line, in which whatever is wrong is named with where it stands."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from service.errors import SourceInvalid

GZIP_MAGIC = b"\x1f\x8b"
T = TypeVar("T")


class Wrong(ValueError):
    """What is wrong with one entry; whoever reads the file adds where it stands."""


def text_of(path: Path) -> str:
    """The whole file, uncompressed. Raises SourceInvalid, with the line that is not UTF-8."""
    try:
        content = path.read_bytes()
        if content.startswith(GZIP_MAGIC):
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceInvalid(source=path, reason=f"cannot be read ({error})") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SourceInvalid(source=f"{path}:{line}", reason=f"not UTF-8 ({error.reason})") from error


def numbered_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Each line that is not empty, with its place, "file:number"."""
    # by line feeds alone: other separators that Unicode knows stand in texts
    for number, line in enumerate(text_of(path).split("\n"), start=1):
        if line.strip():
            yield f"{path}:{number}", line


def json_of(path: Path) -> Any:
    """The file as one JSON value; None where it is none, as a file of several lines of objects is not."""
    try:
        return json.loads(text_of(path))
    except (ValueError, RecursionError):
        return None


def objects_of_lines(path: Path, make: Callable[[str, dict[str, Any]], T]) -> Iterator[T]:
    """What `make(place, object)` makes of each line. Its Wrong comes back as SourceInvalid with file and line."""
    for place, line in numbered_lines(path):
        try:
            yield make(place, _object(line))
        except Wrong as error:
            raise SourceInvalid(source=place, reason=f"not a question: {error}") from error


def entries(path: Path, found: Any, name: str, make: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """What `make` makes of each object of the list `found`, which the file calls `name`."""
    if not isinstance(found, list):
        raise SourceInvalid(source=path, reason=f"{name} is no list")
    for number, entry in enumerate(found):
        try:
            if not isinstance(entry, dict):
                raise Wrong("not a JSON object")
            yield make(entry)
        except Wrong as error:
            raise SourceInvalid(source=f"{path}: {name}[{number}]", reason=f"not a question: {error}") from error


def get_text(record: dict[str, Any], name: str) -> str:
    """The text under `name`, without space around it. Raises Wrong where it is missing, no text, or empty."""
    value = record.get(name)
    if not isinstance(value, str):
        raise Wrong(f"{name} is {'missing' if value is None else 'no string'}")
    if not value.strip():
        raise Wrong(f"{name} is empty")
    return value.strip()


def get_texts(record: dict[str, Any], name: str) -> tuple[str, ...]:
    """The texts of the list under `name`, those that are empty left out. Raises Wrong where it is none."""
    value = record.get(name)
    if not isinstance(value, list):
        raise Wrong(f"{name} is {'missing' if value is None else 'no list'}")
    if not all(isinstance(one, str) for one in value):
        raise Wrong(f"{name} holds what is no string")
    return tuple(one.strip() for one in value if one.strip())


def _object(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Wrong(f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise Wrong("not a JSON object")
    return record
