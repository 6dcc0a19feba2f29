import json
import os
import stat
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from openbook.storage import feedback
from openbook.storage.feedback import FeedbackFile, FeedbackRecord

RECORD = FeedbackRecord(
    time="2026-01-01T00:00:00+00:00",
    request_id="59c26eed2b343cdb",
    rating="down",
    correction="Martín Vizcarra",
    question="Who is the President of Peru?",
    answer="Pedro Pablo Kuczynski",
    version="wiki-2016",
    checkpoint="openbook-mini@0",
)


def test_what_is_appended_is_a_line_and_comes_back_in_order(tmp_path: Path) -> None:
    file = FeedbackFile(tmp_path / "feedback.jsonl")
    other = replace(RECORD, rating="up", correction=None, answer=None, question="line\u2028end\n")
    for record in (RECORD, other):
        file.append(record)
    assert tuple(file.records()) == (RECORD, other)
    first, second = (tmp_path / "feedback.jsonl").read_text().splitlines()
    assert json.loads(first) == asdict(RECORD)
    assert json.loads(second)["answer"] is None


def test_half_a_line_swallows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "feedback.jsonl"
    file = FeedbackFile(path)
    file.append(RECORD)
    path.write_bytes(path.read_bytes() + b'{"time": "2026')
    file.append(RECORD)
    path.write_bytes(path.read_bytes() + b"\xff\n" + b"x" * (feedback.LONGEST_LINE + 9) + b"\n")
    file.append(RECORD)
    assert tuple(file.records()) == (RECORD,) * 3


def test_the_file_is_for_its_owner_alone_and_may_be_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "feedback.jsonl"
    file = FeedbackFile(path)
    file.check()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.rename(tmp_path / "old.jsonl")
    file.append(RECORD)
    assert tuple(file.records()) == (RECORD,)


def test_a_full_file_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "feedback.jsonl"
    file = FeedbackFile(path)
    file.append(RECORD)
    monkeypatch.setattr(feedback, "MAX_BYTES", 2 * path.stat().st_size - 2)
    with pytest.raises(OSError, match="has reached"):
        file.append(RECORD)
    assert tuple(file.records()) == (RECORD,)


@pytest.mark.parametrize("name", ["a folder", "a pipe", "a link", "missing/feedback.jsonl"])
def test_a_place_that_cannot_be_appended_to_is_found_out_at_the_start(tmp_path: Path, name: str) -> None:
    (tmp_path / "a folder").mkdir()
    os.mkfifo(tmp_path / "a pipe")
    (tmp_path / "a link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"Errno"):
        FeedbackFile(tmp_path / name).check()
    assert not (tmp_path / "elsewhere").exists()
