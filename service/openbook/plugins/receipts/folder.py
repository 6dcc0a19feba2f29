"""The folder of receipts: one file each, and the key that signs them. A restart finds both; the oldest make room."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from openbook.errors import FeedbackNotKept, UnknownAnswer
from openbook.storage.durable import read_small, write_atomically

KEY, KEY_BYTES = "key", 32
ID = re.compile(r"[0-9a-f]{32}")
MOST_BYTES = 1 << 30
OWNER_ALONE, OWNERS_FOLDER = 0o600, 0o700


class UnknownReceipt(UnknownAnswer):
    message = "This service has no receipt {receipt_id!r:.80}. It keeps the newest."


class ReceiptNotKept(FeedbackNotKept):
    message = "The receipt could not be kept: {reason}"


@dataclass(frozen=True, slots=True)
class ReceiptFolder:
    """Of receipts of at most `most_bytes` together. Services that share it share the key. Any thread may call."""

    path: Path
    most_bytes: int

    def key(self) -> bytes:
        """The key, made once. Raises ReceiptNotKept."""
        path = self.path / KEY
        try:
            if not path.exists():
                self.path.mkdir(OWNERS_FOLDER, parents=True, exist_ok=True)
                aside = self.path / f".{KEY}-{token_hex(4)}"
                descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ALONE)
                with os.fdopen(descriptor, "w") as file:
                    file.write(token_hex(KEY_BYTES) + "\n")
                    file.flush()
                    os.fsync(descriptor)
                # of several services the first one's stays
                with suppress(FileExistsError):
                    path.hardlink_to(aside)
                aside.unlink()
            return read_key(path)
        except (OSError, ValueError) as error:
            raise ReceiptNotKept(reason=f"its key: {getattr(error, 'strerror', None) or error}") from error

    def keep(self, receipt_id: str, content: bytes) -> None:
        """Bring it to the disk, and let the oldest go that have no room. Raises ReceiptNotKept."""
        try:
            mine = self._file(receipt_id)
            write_atomically(mine, content.decode("utf-8"))
            found = []
            for file in self.path.glob("*.json"):
                # another service may have let it go
                with suppress(FileNotFoundError):
                    state = file.stat()
                    found.append((file != mine, -state.st_mtime_ns, file, state.st_size))
            total = 0
            for others, _, file, size in sorted(found):
                total += size
                if others and total > self.most_bytes:
                    file.unlink(missing_ok=True)
        except OSError as error:
            raise ReceiptNotKept(reason=error.strerror or type(error).__name__) from error

    def read(self, receipt_id: str) -> bytes:
        """Raises UnknownReceipt."""
        try:
            if ID.fullmatch(receipt_id):
                return read_small(self._file(receipt_id), MOST_BYTES)[0]
        except OSError:
            pass
        raise UnknownReceipt(receipt_id=receipt_id)

    def _file(self, receipt_id: str) -> Path:
        return self.path / f"{receipt_id}.json"


def read_key(path: Path) -> bytes:
    """Raises OSError, and ValueError for what is no key."""
    key = bytes.fromhex(read_small(path, 1_000)[0].decode("ascii").strip())
    if len(key) < KEY_BYTES:
        raise ValueError(f"{path.name} holds no key of {KEY_BYTES} bytes")
    return key
