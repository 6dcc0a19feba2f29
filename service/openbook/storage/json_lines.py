"""Files of JSON lines that people write by hand."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from openbook.errors import SourceInvalid, first_defect

M = TypeVar("M", bound=BaseModel)


def read_json_lines(path: Path, kind: type[M]) -> dict[int, M]:
    """The records of a file by their lines, counted from 1. An empty line holds none.

    Raises SourceInvalid for a file that is missing or not UTF-8, and with its number for a line that is no record.
    """
    found = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceInvalid(source=path, reason=f"cannot be read ({error})") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found[number] = kind.model_validate_json(line)
            except ValidationError as error:
                raise SourceInvalid(source=f"{path}, line {number}", reason=first_defect(error)) from error
    return found
