"""The journal of a build: each finished step, a line of JSON."""

import json
import os
from pathlib import Path
from typing import Any

from openbook.storage import durable

Entry = dict[str, Any]


class Journal:
    """Lines of a file, read when it is opened, then appended one by one.

    A line is written after the files that it describes, and counts once it is on the disk. A power failure may cut the
    last line: it is dropped, and its work is done again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: list[Entry] = []
        content = path.read_bytes() if path.exists() else None
        for line in (content or b"").split(b"\n"):
            try:
                self.entries.append(json.loads(line))
            except ValueError:
                # the lines after a damaged one may depend on it
                break
        if content != self._content():
            self.keep(len(self.entries))

    def write(self, entry: Entry) -> None:
        """Append a line and bring it to the disk. Raises OSError when the disk is full."""
        with self._path.open("ab") as file:
            file.write(_line(entry))
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(entry)

    def keep(self, n_entries: int) -> None:
        """Forget all entries but the first `n_entries`."""
        del self.entries[n_entries:]
        durable.write_atomically(self._path, self._content().decode())

    def _content(self) -> bytes:
        return b"".join(map(_line, self.entries))


def _line(entry: Entry) -> bytes:
    return json.dumps(entry, ensure_ascii=False).encode() + b"\n"
