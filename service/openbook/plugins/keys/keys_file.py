"""The file of keys, `NAME sha256:HEX [RATE/min]` a line, read again when it changes."""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from secrets import compare_digest

from openbook.errors import SettingInvalid
from openbook.storage.durable import FileMark, read_small

SETTING = "OPENBOOK_API_KEYS_FILE"
NAME = r"[A-Za-z0-9._-]{1,64}"
LINE = re.compile(rf"({NAME})\s+sha256:([0-9a-fA-F]{{64}})(?:\s+([1-9][0-9]{{0,5}})/min)?")
MOST_BYTES = 1 << 20
LOOK_EVERY_S = 1.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Key:
    """What is known of a key: whose it is, its sha256, and the questions a minute that it may ask."""

    name: str
    digest: bytes
    rate: int | None


def digest_of(key: bytes) -> bytes:
    """Keys are long and random: nothing slower than sha256 is needed to hide them."""
    return sha256(key).digest()


def parse_keys(content: bytes) -> tuple[Key, ...]:
    """The keys of a file. Raises SettingInvalid with the number of a wrong line, never its text: it may be a key."""
    keys: dict[str, Key] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        found = LINE.fullmatch(text)
        if not text:
            continue
        if found is None:
            raise SettingInvalid(setting=SETTING, reason=f"line {number} is not NAME sha256:HEX [RATE/min].")
        name, digest, rate = found.groups()
        if name in keys:
            raise SettingInvalid(setting=SETTING, reason=f"line {number} names {name} a second time.")
        keys[name] = Key(name, bytes.fromhex(digest), int(rate) if rate else None)
    return tuple(keys.values())


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys of the file at `path`. Raises SettingInvalid."""
    try:
        # a secret of Kubernetes is a link
        return parse_keys(read_small(path.resolve(), MOST_BYTES)[0])
    except OSError as error:
        raise SettingInvalid(setting=SETTING, reason=f"{path.name} cannot be read: {error.strerror}.") from error


@dataclass(slots=True)
class KeysFile:
    """The keys of a file as it is now, give or take a second. Not locked: only the event loop uses it.

    A file that breaks leaves the keys that were read before, and is logged once. Raises SettingInvalid where it is
    broken at first.
    """

    path: Path
    clock: Callable[[], float] = time.monotonic
    _keys: tuple[Key, ...] = ()
    _seen: object = field(init=False)
    _looked: float = field(init=False)

    def __post_init__(self) -> None:
        # before the reading: a change meanwhile is seen by the next look
        self._looked, self._seen = self.clock(), self._mark()
        self._keys = read_keys(self.path)

    def holder(self, key: bytes) -> Key | None:
        """Whose key this is, in the same time for every key."""
        found, digest = None, digest_of(key)
        for one in self._now():
            if compare_digest(one.digest, digest):
                found = one
        return found

    def has(self, key: Key) -> bool:
        """Whether a key that was found is still there."""
        return any(one.digest == key.digest for one in self._now())

    def _now(self) -> tuple[Key, ...]:
        if self.clock() - self._looked >= LOOK_EVERY_S:
            self._looked, seen = self.clock(), self._mark()
            if seen != self._seen:
                self._seen = seen
                self._read_again()
        return self._keys

    def _read_again(self) -> None:
        try:
            self._keys = read_keys(self.path)
            logger.info("%s was read again: %d keys", self.path.name, len(self._keys))
        except SettingInvalid as error:
            logger.error("%s The keys that were read before stay valid.", error)

    def _mark(self) -> object:
        """What differs whenever the file does."""
        try:
            return FileMark.of(self.path.stat())
        except OSError as error:
            return error.errno
