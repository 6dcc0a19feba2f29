"""What a build has finished, a line of JSON for each thing, in the order in which it was finished.

A line counts once it is on the disk, and it is written only after what it tells of is. The last line may have been
cut by a power failure; it is dropped, and what it told of is done again.
"""

import errno
import json
import os
from pathlib import Path
from typing import Any

from openbook.storage import durable

Entry = dict[str, Any]


class Journal:
    """Lines of a file, read once when it is opened, then written one by one."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        content = path.read_bytes() if path.exists() else b""
        self.entries: list[Entry] = []
        self._ends = [0]
        for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
            try:
                entry = json.loads(line)
            except ValueError:
                # what follows a damaged line may rest on it
                break
            self.entries.append(entry)
            self._ends.append(self._ends[-1] + len(line))
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.ftruncate(self._descriptor, self._ends[-1])
        if not content:
            durable.sync_folder(path.parent)

    def write(self, entry: Entry) -> None:
        """Bring one more line to the disk."""
        line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        if os.pwrite(self._descriptor, line, self._ends[-1]) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        os.fsync(self._descriptor)
        self.entries.append(entry)
        self._ends.append(self._ends[-1] + len(line))

    def keep(self, n_entries: int) -> None:
        """Forget all entries but the first `n_entries`."""
        os.ftruncate(self._descriptor, self._ends[n_entries])
        os.fsync(self._descriptor)
        del self.entries[n_entries:], self._ends[n_entries + 1 :]

    def close(self) -> None:
        os.close(self._descriptor)
