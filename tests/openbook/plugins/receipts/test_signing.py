"""A receipt by itself: any change is found and named, and the folder keeps the newest."""

import json
import os
import stat
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.errors import SourceInvalid
from openbook.plugins.receipts.folder import KEY, ReceiptFolder, ReceiptNotKept, UnknownReceipt
from openbook.plugins.receipts.signing import altered, canonical, read_receipt, signed

SECRET = b"k" * 32
CONTENT: dict[str, Any] = {
    "format": 1,
    "id": "0" * 32,
    "time": "2026-01-31T12:00:00+00:00",
    "question": "who is the president of peru ?",
    "options": {"model": "sequence", "n_docs": 2},
    "answer": None,
    "log_prob": -0.25,
    "tokens": [{"text": "José", "log_prob": -1e-05, "posterior": [0.75, 0.25]}, {"text": "", "posterior": [1.0, 0]}],
    "passages": [{"passage_id": "peru#0", "text": "a\u2028b", "metadata": {"page": 3}}],
}
RECEIPT = signed(CONTENT, SECRET)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Each place of a JSON value that holds something."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


@given(st.sampled_from(list(places(RECEIPT))), st.sampled_from(["change", "remove"]), st.integers())
def test_whatever_is_changed_is_found_and_named(path: tuple[Any, ...], how: str, seed: int) -> None:
    receipt = deepcopy(RECEIPT)
    *before, last = path
    holder: Any = receipt
    for key in before:
        holder = holder[key]
    if how == "remove":
        del holder[last]
    else:
        others = [None, True, "x", 0.1234, [], {"a": 1}, Random(seed).randint(3, 9)]
        holder[last] = next(one for one in others if canonical(one) != canonical(holder[last]))
    wrong = altered(receipt, SECRET)
    if path[0] == "seals":
        # of all seals, those of no field
        assert wrong == ([path[1]] if len(path) > 1 else sorted(CONTENT))
    else:
        assert wrong == [path[0]]


def test_a_whole_receipt_is_whole_however_its_json_is_written() -> None:
    for text in (json.dumps(RECEIPT, indent=2), canonical(RECEIPT).decode()):
        assert altered(read_receipt(text.encode(), "here"), SECRET) == []
    assert altered(RECEIPT, b"o" * 32) == sorted(CONTENT)
    more = altered({**RECEIPT, "note": "paid"}, SECRET)
    assert more == ["note"]
    # fields of two receipts of one service
    other = signed({**CONTENT, "question": "another"}, SECRET)
    mixed = {
        **RECEIPT,
        "question": other["question"],
        "seals": {**RECEIPT["seals"], "question": other["seals"]["question"]},
    }
    assert altered(mixed, SECRET) == ["signature"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "answer": "a", "answer": "b"}', "[" * 100_000, "\ud800"]
)
def test_what_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(SourceInvalid, match="it is no receipt"):
        read_receipt(text.encode("utf-8", "surrogatepass"), "here")


def kept(folder: ReceiptFolder) -> set[int]:
    return {int(path.stem, 16) for path in folder.path.glob("*.json")}


def keep(folder: ReceiptFolder, number: int, size: int = 10) -> None:
    name = f"{number:032x}"
    folder.keep(name, b"x" * size)
    os.utime(folder.path / f"{name}.json", ns=(number, number))


def test_the_oldest_make_room(tmp_path: Path) -> None:
    folder = ReceiptFolder(tmp_path / "receipts", most_bytes=100)
    folder.key()
    for number in range(1, 6):
        keep(folder, number, 30)
    assert kept(folder) == {3, 4, 5}
    keep(folder, 6, 70)
    assert kept(folder) == {5, 6}
    # a clock that went back: what was just given stays
    keep(folder, 0)
    assert 0 in kept(folder)
    keep(folder, 7, 500)
    assert kept(folder) == {7}
    with pytest.raises(UnknownReceipt):
        folder.read(f"{1:032x}")


@pytest.mark.parametrize("receipt_id", ["", "key", "../key", "0" * 31, "0" * 32, "é" * 32, "0" * 32 + "\n"])
def test_only_a_receipt_is_read(tmp_path: Path, receipt_id: str) -> None:
    folder = ReceiptFolder(tmp_path, most_bytes=100)
    folder.key()
    with pytest.raises(UnknownReceipt):
        folder.read(receipt_id)


def test_the_key_is_made_once_and_is_the_owners_alone(tmp_path: Path) -> None:
    folder = ReceiptFolder(tmp_path / "receipts", most_bytes=100)
    key = folder.key()
    assert (len(key), folder.key()) == (32, key)
    assert ReceiptFolder(folder.path, most_bytes=9).key() == key
    assert stat.S_IMODE((folder.path / KEY).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert [path.name for path in folder.path.iterdir()] == [KEY]
    (folder.path / KEY).write_text("short")
    with pytest.raises(ReceiptNotKept):
        folder.key()
