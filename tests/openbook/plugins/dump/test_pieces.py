"""A file's bytes, from any of its pieces on."""

import bz2
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openbook.plugins.dump import pieces
from openbook.plugins.dump.pieces import read_pieces

# 100 kB is a block at level 1: some of these take several, some of which hold runs that are shortened before.
STREAMS = st.lists(st.tuples(st.integers(0, 150_000), st.integers(0, 3), st.integers(1, 2)), min_size=1, max_size=3)


def content(n: int, kind: int, seed: int) -> bytes:
    if kind == 0:
        return b"a" * n
    return random.Random(seed).randbytes(n) if kind == 1 else (b"some words of a page, %d. " % seed * (n // 20))[:n]


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(streams=STREAMS)
def test_the_blocks_of_all_streams_are_the_file_and_each_begins_one_again(
    tmp_path: Path, streams: list[tuple[int, int, int]]
) -> None:
    contents = [content(n, kind, seed) for seed, (n, kind, _) in enumerate(streams)]
    path = tmp_path / "x.bz2"
    path.write_bytes(b"".join(bz2.compress(data, level) for data, (_, _, level) in zip(contents, streams, strict=True)))
    found = list(read_pieces(path))
    assert b"".join(piece.data or b"" for piece in found) == b"".join(contents)
    assert [piece.read for piece in found] == sorted(piece.read for piece in found)
    for number, piece in enumerate(found):
        assert list(read_pieces(path, piece.start)) == found[number:]
        assert list(read_pieces(path, piece.end)) == found[number + 1 :]


def test_a_block_is_found_across_the_borders_of_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.bz2"
    path.write_bytes(b"".join(bz2.compress(b"stream %d" % number) for number in range(40)))
    whole = list(read_pieces(path))
    assert [piece.data for piece in whole] == [b"stream %d" % number for number in range(40)]
    for stretch in (1, 7, 64, 65):
        monkeypatch.setattr(pieces, "STRETCH", stretch)
        assert list(read_pieces(path)) == whole


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0.05, 0.95), seed=st.integers(0, 100))
def test_damage_costs_the_block_that_it_lies_in_and_no_other(tmp_path: Path, where: float, seed: int) -> None:
    """Where it hits a block's beginning, the block before cannot tell where it ends, and goes with it."""
    path = tmp_path / "x.bz2"
    compressed = bytearray(bz2.compress(content(250_000, 1, seed), 1))
    path.write_bytes(compressed)
    whole = list(read_pieces(path))
    compressed[int(len(compressed) * where)] ^= 0xFF
    path.write_bytes(compressed)
    found = list(read_pieces(path))
    lost = [piece for piece in found if piece.data is None]
    assert len(lost) == 1
    kept = [piece for piece in found if piece.data is not None]
    assert all(piece in whole for piece in kept)
    assert len(whole) - len(kept) in (1, 2)


def test_a_file_that_was_cut_off_gives_the_blocks_that_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.bz2"
    compressed = bz2.compress(content(450_000, 1, 0), 1)
    path.write_bytes(compressed)
    whole = list(read_pieces(path))
    path.write_bytes(compressed[: len(compressed) // 2])
    found = list(read_pieces(path))
    assert found[:-1] == whole[: len(found) - 1]
    assert len(found) == 3
    assert found[-1].data is None


@pytest.mark.parametrize("data", [b"", b"BZh9", b"no such file at all", b"BZh9" + b"\x31\x41\x59\x26\x53\x59" * 3])
def test_what_is_no_bzip2_file_holds_nothing(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.bz2"
    path.write_bytes(data)
    assert [piece.data for piece in read_pieces(path) if piece.data] == []


def test_a_plain_file_is_read_from_any_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "STRETCH", 3)
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    assert [piece.data for piece in read_pieces(path, 4)] == [b"456", b"789"]
    assert [(piece.start, piece.end, piece.read) for piece in read_pieces(path, 4)] == [(4, 7, 7), (7, 10, 10)]
