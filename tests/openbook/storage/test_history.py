import json
import multiprocessing
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.storage import history
from openbook.storage.history import HISTORY, MAX_DETAIL, SwapHistory, SwapRecord
from tests.waiting import PATIENCE_S

RECORD = SwapRecord(
    time="2026-01-01T00:00:00+00:00",
    actor="ann",
    replica="host:8000",
    previous="wiki-2016",
    version="wiki-2018",
    policy="availability",
    outcome="ok",
    generation=1,
    seconds=0.25,
)


def numbered(number: int) -> SwapRecord:
    return replace(RECORD, generation=number)


def numbers(found: tuple[SwapRecord, ...]) -> list[int | None]:
    return [record.generation for record in found]


def test_what_is_appended_comes_back_newest_first(tmp_path: Path) -> None:
    kept = SwapHistory(tmp_path)
    assert kept.last(5) == ()
    for number in range(4):
        kept.append(numbered(number))
    assert numbers(kept.last(3)) == [3, 2, 1]
    assert kept.last(10)[-1] == numbered(0)
    assert kept.last(0) == ()
    assert SwapHistory(tmp_path).last(1) == (numbered(3),)


def test_a_record_is_one_line_of_json_whatever_it_holds(tmp_path: Path) -> None:
    strange = replace(RECORD, actor='a\n"b"\ud800\u2028é', previous=None, generation=None, detail="x" * 10_000)
    SwapHistory(tmp_path).append(strange)
    [line] = (tmp_path / HISTORY).read_text(encoding="ascii").splitlines()
    assert json.loads(line)["detail"] == "x" * MAX_DETAIL
    [found] = SwapHistory(tmp_path).last(1)
    assert found == replace(strange, detail="x" * MAX_DETAIL, actor='a\n"b"?\u2028é')
    assert not found.succeeded()


@pytest.mark.parametrize(
    "strange", [b"", b"{", b"null", b'{"time": 1}', b"\xff\xfe", b'{"time":"', b"[" * 10_000, b"\0" * 100]
)
def test_a_strange_line_is_passed_over(tmp_path: Path, strange: bytes) -> None:
    kept = SwapHistory(tmp_path)
    kept.append(numbered(1))
    with (tmp_path / HISTORY).open("ab") as file:
        file.write(strange + b"\n")
    kept.append(numbered(2))
    assert numbers(kept.last(9)) == [2, 1]


def test_a_torn_last_line_takes_no_other_with_it(tmp_path: Path) -> None:
    kept = SwapHistory(tmp_path)
    kept.append(numbered(1))
    kept.append(numbered(2))
    content = (tmp_path / HISTORY).read_bytes()
    for cut in range(len(content)):
        (tmp_path / HISTORY).write_bytes(content[:cut])
        kept.append(numbered(3))
        found = numbers(kept.last(9))
        whole = content[:cut].count(b"\n") + (content[cut : cut + 1] == b"\n")
        assert found == [3, *[2, 1][2 - whole :]]


def test_a_write_that_is_cut_short_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[:7]))
    SwapHistory(tmp_path).append(RECORD)
    assert SwapHistory(tmp_path).last(1) == (RECORD,)


@settings(max_examples=40)
@given(lengths=st.lists(st.integers(0, 60), max_size=12), block=st.integers(1, 700), wanted=st.integers(0, 14))
def test_lines_are_found_whatever_the_blocks(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], block: int, wanted: int
) -> None:
    kept = SwapHistory(tmp_path_factory.mktemp("history"))
    records = [replace(RECORD, generation=number, detail="d" * length) for number, length in enumerate(lengths)]
    for record in records:
        kept.append(record)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "BLOCK_BYTES", block)
        assert kept.last(wanted) == tuple(reversed(records))[:wanted]


def append_many(folder: Path, first: int) -> None:
    kept = SwapHistory(folder)
    for number in range(first, first + 25):
        kept.append(replace(RECORD, generation=number, detail="d" * (number % 400)))


def test_processes_and_threads_append_at_once_and_no_record_is_lost(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=append_many, args=(tmp_path, 100 * number)) for number in range(2)]
    threads = [threading.Thread(target=append_many, args=(tmp_path, 100 * number)) for number in range(2, 5)]
    for one in [*processes, *threads]:
        one.start()
    for one in [*processes, *threads]:
        one.join(PATIENCE_S)
    found = numbers(SwapHistory(tmp_path).last(1000))
    assert sorted(found) == [100 * number + each for number in range(5) for each in range(25)]  # type: ignore[type-var]


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        SwapHistory(tmp_path / "none").append(RECORD)
    assert SwapHistory(tmp_path / "none").last(3) == ()
    (tmp_path / HISTORY).mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        SwapHistory(tmp_path).append(RECORD)
    assert SwapHistory(tmp_path).last(3) == ()


def put_link(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, put_link])
def test_what_is_no_regular_file_is_neither_read_nor_written(tmp_path: Path, put: Callable[[Path], None]) -> None:
    put(tmp_path / HISTORY)
    assert SwapHistory(tmp_path).last(5) == ()
    with pytest.raises(OSError, match=r"regular|symbolic|directory"):
        SwapHistory(tmp_path).append(RECORD)
    assert not (tmp_path / "elsewhere").exists()
