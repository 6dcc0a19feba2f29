"""An object store by fsspec.

What fails for a moment is tried again within seconds. A store that is silent fails a small call after SMALL_CALL_S
seconds, all tries included; the bytes of files have no such limit. Only the libraries of the store read credentials,
from the environment.
"""

import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar
from urllib.parse import urlsplit

from filelock import FileLock

from openbook.errors import OpenbookError, SettingInvalid, StoreUnreachable
from openbook.plugins.objects.object_store import Conflict, ObjectStore, Report
from openbook.storage import durable
from openbook.storage.current import StoreMark
from openbook.storage.index_store import LOCK, LOCK_S
from openbook.storage.manifest import MOST_BYTES

# Of each scheme the package that fsspec asks; the first two come with it.
PACKAGES = {"file": "", "memory": "", "s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}
TRIES = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 2.0
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5, 15
# A call for a name, a mark or a manifest takes no longer, all tries included.
SMALL_CALL_S = 15.0
# Seconds between two looks at whether a call is to end.
LOOK_S = 0.05
# Of an upload: so many parts of so many bytes are in memory at once, and S3 takes at most 10,000 of them.
UPLOADS_AT_ONCE, UPLOAD_BYTES, MOST_PARTS = 4, 16 << 20, 10_000
# An object that holds nothing: a write to it that must be refused shows whether the store knows conditions.
PROBE = ".conditional"
NO_TAG = '"00000000000000000000000000000000"'
CONFLICTS = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
NOT_KNOWN = ("NotImplemented", "InvalidArgument", "InvalidRequest", "501", "400")

T = TypeVar("T")

logger = logging.getLogger(__name__)


class FsspecStore(ObjectStore):
    """The versions below `url`, such as s3://bucket/prefix.

    The first call raises SettingInvalid where the package of the scheme is not installed.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._scheme = urlsplit(url).scheme
        self._conditions: bool | None = None

    # --- reading -------------------------------------------------------------------------------------------

    def marks(self) -> dict[str, StoreMark]:
        try:
            found = self._call(lambda files: files.find(self._base, detail=True))
        except FileNotFoundError:
            return {}
        return {name[len(self._base) :].strip("/"): StoreMark(_tag(info)) for name, info in found.items()}

    def mark(self, path: str) -> StoreMark | None:
        try:
            return StoreMark(_tag(self._call(lambda files: files.info(self._at(path)))))
        except FileNotFoundError:
            return None

    def small(self, path: str, at_most: int) -> bytes | None:
        try:
            return self._call(lambda files: bytes(files.cat_file(self._at(path), start=0, end=at_most + 1)))
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        try:
            return int(self._call(lambda files: files.info(self._at(path)))["size"])
        except FileNotFoundError:
            return None

    def read(self, path: str, start: int, end: int, ending: threading.Event | None = None) -> bytes:
        """An answer that is cut short is asked for again."""

        def whole(files: Any) -> bytes:
            content: bytes = files.cat_file(self._at(path), start=start, end=end)
            if len(content) != end - start:
                raise OSError(errno.EIO, "an answer was cut short")
            return content

        return self._call(whole, is_small=False, ending=ending)

    # --- writing -------------------------------------------------------------------------------------------

    def put_file(self, path: str, file: Path, report: Report) -> None:
        if self._folder is not None:
            target = self._folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            aside = target.with_name(f".{target.name}-{token_hex(4)}")
            try:
                shutil.copyfile(file, aside)
                durable.sync_file(aside)
                aside.replace(target)
            finally:
                aside.unlink(missing_ok=True)
            report(file.stat().st_size)
            return
        from fsspec.callbacks import Callback

        # the second attempt begins again
        sent = [0]

        class Sent(Callback):  # type: ignore[misc]
            def relative_update(self, inc: int = 1) -> None:
                sent[0] += inc
                report(inc)

        more: dict[str, Any] = {}
        if self._scheme == "s3":
            part = max(UPLOAD_BYTES, -(-file.stat().st_size // MOST_PARTS))
            more = {"chunksize": part, "max_concurrency": UPLOADS_AT_ONCE}

        def put(files: Any) -> None:
            if sent[0]:
                report(-sent[0])
                sent[0] = 0
            files.put_file(str(file), self._at(path), callback=Sent(), **more)

        self._call(put, is_small=False)
        size = file.stat().st_size
        if sent[0] < size:
            report(size - sent[0])

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._call(lambda files: files.rm(self._at(path), recursive=True), is_small=False)

    def has_conditions(self) -> bool:
        """Whether a write can be bound to what is there. Asks an S3 store once, with a write that it must refuse."""
        if self._scheme != "s3":
            return self._folder is not None
        if self._conditions is None:
            # two threads may both ask: no lock is held over a call
            try:
                self._call(lambda files: files.pipe_file(self._at(PROBE), b"", IfMatch=NO_TAG))
                self._conditions = False
            except (Conflict, FileNotFoundError):
                self._conditions = True
            except _Unknown:
                self._conditions = False
        return self._conditions

    def write(self, path: str, content: bytes, expected: StoreMark | None) -> StoreMark:
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / path).parent.mkdir(exist_ok=True)
            with FileLock(self._folder / LOCK, timeout=LOCK_S, poll_interval=0.01):
                if self.mark(path) != expected:
                    raise Conflict
                durable.write_atomically(self._folder / path, content.decode())
                return self.mark(path) or StoreMark("")
        if self.has_conditions():
            condition = {"IfMatch": expected.tag} if expected is not None else {"IfNoneMatch": "*"}
            try:
                answer = self._call(lambda files: files.pipe_file(self._at(path), content, **condition))
            except FileNotFoundError:
                raise Conflict from None
            return StoreMark(str(answer["ETag"]))
        logger.warning(
            "the store %s knows no conditional writes: of two writers in the same moment the last one wins", self.url
        )
        if self.mark(path) != expected:
            raise Conflict
        self._call(lambda files: files.pipe_file(self._at(path), content))
        mark = self.mark(path)
        if mark is None or self.small(path, MOST_BYTES) != content:
            raise Conflict
        return mark

    # --- below ---------------------------------------------------------------------------------------------

    def _at(self, path: str) -> str:
        return f"{self._base}/{path}"

    @cached_property
    def _folder(self) -> Path | None:
        """Of file://, where an object is replaced by a rename."""
        return Path(self._base) if self._scheme == "file" else None

    @cached_property
    def _base(self) -> str:
        return str(self._files._strip_protocol(self.url)).rstrip("/")

    @cached_property
    def _files(self) -> Any:
        from fsspec import filesystem

        more: dict[str, Any] = {}
        if self._scheme == "s3":
            timeouts = {"connect_timeout": CONNECT_TIMEOUT_S, "read_timeout": READ_TIMEOUT_S}
            more = {"config_kwargs": {**timeouts, "retries": {"max_attempts": 0}}}
        try:
            # a listing that is kept would hide what other processes write
            files = filesystem(self._scheme, use_listings_cache=False, skip_instance_cache=True, **more)
        except ImportError:
            package = PACKAGES[self._scheme]
            how = "pip install 'openbook[s3]'" if self._scheme == "s3" else f"pip install {package}"
            reason = f"{self._scheme}:// needs the package {package}: {how}"
            raise SettingInvalid(setting="OPENBOOK_INDEXES", reason=reason) from None
        if self._scheme == "s3":
            # `_call` tries again, and can be stopped
            files.retries = 1
        return files

    def _call(self, ask: Callable[[Any], T], *, is_small: bool = True, ending: threading.Event | None = None) -> T:
        """Ask the store, again after a pause where that may help; where the call `is_small`, for SMALL_CALL_S at most.

        Raises FileNotFoundError, Conflict, _Unknown for a request that the store does not know, and StoreUnreachable,
        also where `ending`, or without it the one of this store, is set.
        """
        ending = ending if ending is not None else self.ending
        # before the clock starts: the first call imports a library
        files = self._files
        until = time.monotonic() + SMALL_CALL_S if is_small else None
        pause_s, reason = FIRST_PAUSE_S, ""
        for n in range(TRIES):
            if n and (ending.wait(pause_s) or (until is not None and time.monotonic() >= until)):
                break
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if n else pause_s
            try:
                return _answer(partial(ask, files), until, ending)
            except _GivenUp as given_up:
                reason = str(given_up)
                break
            except (FileNotFoundError, OpenbookError):
                raise
            except Exception as error:
                code, reason = _code_of(error), _reason_of(error)
                if isinstance(error, FileExistsError) or code in CONFLICTS:
                    raise Conflict from None
                if code in NOT_KNOWN:
                    raise _Unknown(url=self.url, reason=reason) from None
                if isinstance(error, PermissionError) or type(error).__name__ == "NoCredentialsError":
                    break
        raise StoreUnreachable(url=self.url, reason=reason or "the waiting was ended") from None


class _GivenUp(Exception):
    """A call is no longer waited for."""


def _answer(ask: Callable[[], T], until: float | None, ending: threading.Event) -> T:
    """What `ask` returns, or raises. Raises _GivenUp at the time `until`, and when `ending` is set.

    A library's call cannot be interrupted: it has a thread of its own, which ends with the library's timeout, and which
    the end of the process does not wait for.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="store-call", daemon=True).start()
    while True:
        left_s = LOOK_S if until is None else min(LOOK_S, until - time.monotonic())
        if wait_for((answer,), max(0.0, left_s)).done:
            return answer.result()
        if ending.is_set():
            raise _GivenUp("the waiting was ended")
        if until is not None and time.monotonic() >= until:
            raise _GivenUp("it is silent")


class _Unknown(StoreUnreachable):
    """The store does not know what was asked of it."""


def _tag(info: dict[str, Any]) -> str:
    """What changes with each writing of an object."""
    for name in ("ETag", "etag", "generation"):
        if info.get(name):
            return str(info[name])
    return "/".join(str(info.get(name)) for name in ("ino", "mtime", "created", "size"))


def _code_of(error: BaseException | None) -> str:
    """The code of S3 behind an error; empty where there is none."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        error = error.__cause__
    return ""


def _reason_of(error: Exception) -> str:
    """Why, without the library's own sentence, which may hold addresses and names of keys."""
    code = _code_of(error)
    if isinstance(error, PermissionError):
        return f"it refuses access ({code})" if code else "it refuses access"
    if type(error).__name__ == "NoCredentialsError":
        return "no credentials are to be found in the environment"
    if isinstance(error, OSError) and error.errno is not None and not code:
        return os.strerror(error.errno)
    return code or type(error).__name__
