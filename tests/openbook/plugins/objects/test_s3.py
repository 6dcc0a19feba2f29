"""A real S3 server on loopback: conditional writes, and a line that is slow, cut, refused or silent."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openbook.errors import CurrentConflict, ShuttingDown, StoreUnreachable
from openbook.plugins.objects import fsspec_store
from openbook.plugins.objects.copying import pull, push
from openbook.plugins.objects.fsspec_store import FsspecStore
from openbook.storage.index_store import IndexStore
from tests.fixtures.stores import SECRET, Line, ignore, push_all
from tests.waiting import PATIENCE_S

URL = "s3://books/indexes"


@pytest.fixture(autouse=True)
def hasty(soon_again: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsspec_store, "READ_TIMEOUT_S", 1)


@pytest.fixture
def cache(tmp_path: Path) -> IndexStore:
    return IndexStore(tmp_path / "cache")


def quiet(share: float) -> None:
    """Reports nothing."""


def test_an_s3_server_keeps_versions_and_a_current_of_one_writer(
    s3: Line, tiny_indexes: Path, cache: IndexStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    objects = push_all(URL, tiny_indexes)
    assert objects.has_conditions()
    assert (objects.versions(), objects.current()) == (("tiny-2016", "tiny-2018"), "tiny-2016")
    assert not push(objects, IndexStore(tiny_indexes), "tiny-2018", quiet)
    # every third answer ends in its midst
    s3.cut_every = 3
    pull(objects, cache, "tiny-2018", quiet, ignore)
    assert s3.n_cut > 2
    assert cache.verify("tiny-2018") == IndexStore(tiny_indexes).info("tiny-2018")
    s3.heal()
    seen = objects.current_mark()
    mark = objects.write_current("tiny-2018", seen)
    assert (mark, objects.current()) == (objects.current_mark(), "tiny-2018")
    for expected in (seen, None):
        with pytest.raises(CurrentConflict, match="tiny-2018"):
            objects.write_current("tiny-2016", expected)
    assert objects.write_current("tiny-2018", mark) != mark
    assert "conditional" not in caplog.text


@pytest.mark.slow
def test_a_store_that_ignores_conditions_is_found_out(
    s3: Line, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    objects = FsspecStore(URL)
    pipe = objects._files.pipe_file

    def forgetful(path: str, content: bytes, **conditions: str) -> Any:
        return pipe(path, content)

    monkeypatch.setattr(objects._files, "pipe_file", forgetful)
    seen = objects.write_current("tiny-2016", None)
    assert not objects.has_conditions()
    assert "of two writers in the same moment the last one wins" in caplog.text
    objects.write_current("tiny-2018", seen)
    # what was there before the write is still compared
    with pytest.raises(CurrentConflict):
        objects.write_current("tiny-2016", seen)


@pytest.mark.slow
def test_an_answer_that_was_lost_is_no_conflict(s3: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = FsspecStore(URL)
    seen = objects.write_current("tiny-2016", None)
    pipe, lost = objects._files.pipe_file, [True]

    def lose(path: str, content: bytes, **conditions: str) -> Any:
        answer = pipe(path, content, **conditions)
        if lost.pop() if lost else False:
            raise ConnectionResetError(104, "Connection reset by peer")
        return answer

    monkeypatch.setattr(objects._files, "pipe_file", lose)
    assert objects.write_current("tiny-2018", seen) == objects.current_mark()
    assert lost == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["refusing", "silent"])
def test_a_line_that_breaks_ends_the_pull_and_the_next_goes_on(
    s3: Line, tiny_indexes: Path, cache: IndexStore, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    objects = push_all(URL, tiny_indexes)
    came: list[int] = []

    def count(n_bytes: int) -> None:
        came.append(n_bytes)
        if len(came) == 4:
            setattr(s3, fault, True)

    began = time.monotonic()
    with pytest.raises(StoreUnreachable) as away:
        pull(objects, cache, "tiny-2018", quiet, count)
    # five attempts of at most a second
    assert time.monotonic() - began < PATIENCE_S
    assert cache.versions() == ()
    s3.heal()
    rest: list[int] = []
    pull(objects, cache, "tiny-2018", quiet, rest.append)
    size = sum(file.bytes for file in cache.info("tiny-2018").files.values())
    assert sum(came) + sum(rest) == size
    said = str(away.value) + repr(away.value.data) + caplog.text
    assert SECRET not in said
    assert "127.0.0.1" not in said


@pytest.mark.slow
def test_a_pull_over_a_silent_line_ends_when_it_is_told_to(s3: Line, tiny_indexes: Path, cache: IndexStore) -> None:
    objects = push_all(URL, tiny_indexes)
    ending = threading.Event()

    def report(share: float) -> None:
        if share > 0.3:
            s3.silent = True
            threading.Timer(0.2, ending.set).start()
        if ending.is_set():
            raise ShuttingDown(version="tiny-2018")

    began = time.monotonic()
    with pytest.raises(ShuttingDown):
        pull(objects, cache, "tiny-2018", report, ignore)
    assert time.monotonic() - began < PATIENCE_S
    s3.heal()


@pytest.mark.slow
def test_a_large_file_goes_in_parts_and_is_counted_once(
    s3: Line, tmp_path: Path, cache: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 takes parts of at least 5 MiB."""
    monkeypatch.setattr(fsspec_store, "UPLOAD_BYTES", 5 << 20)
    objects, file, sent = FsspecStore(URL), tmp_path / "large", []
    content = bytes(range(256)) * (13 << 12)
    file.write_bytes(content)
    objects.put_file("v/large", file, sent.append)
    assert (sum(sent), len(sent) > 2) == (len(content), True)
    assert objects.size("v/large") == len(content)
    assert objects.read("v/large", 6 << 20, (6 << 20) + 300) == content[6 << 20 : (6 << 20) + 300]


@pytest.mark.slow
def test_without_credentials_and_without_access_the_error_says_which(
    s3: Line, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    objects = FsspecStore(URL)

    def refuse(*more: object, **named: object) -> None:
        raise PermissionError(f"the key {SECRET} is not known")

    with monkeypatch.context() as refused:
        refused.setattr(objects._files, "info", refuse)
        with pytest.raises(StoreUnreachable, match="it refuses access") as denied:
            objects.current_mark()
    assert SECRET not in str(denied.value) + str(denied.value.__cause__) + caplog.text
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(StoreUnreachable, match="no credentials are to be found"):
        FsspecStore(URL).write_current("v", None)


def test_an_object_that_is_shorter_than_its_range_is_no_content(tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(b"abc")
    store = FsspecStore(f"file://{tmp_path}")
    assert store.read("v", 1, 3) == b"bc"
    with pytest.raises(StoreUnreachable, match="Input/output error"):
        store.read("v", 1, 4)


def test_the_package_of_a_store_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*more: object, **named: object) -> Callable[[], None]:
        raise ImportError("no such module")

    monkeypatch.setattr("fsspec.filesystem", missing)
    with pytest.raises(Exception, match=r"pip install 'openbook\[s3\]'"):
        FsspecStore("s3://books").versions()
    with pytest.raises(Exception, match="pip install gcsfs"):
        FsspecStore("gs://books").versions()
