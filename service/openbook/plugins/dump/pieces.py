"""The bytes of a dump, piece by piece, from any piece on: a plain file in stretches, a bzip2 file in its blocks.

A bzip2 block can be decompressed without those before it, wherever it begins among the bits. So reading starts at
any block, whether the file holds one stream or a stream for every hundred pages, and a damaged block costs only itself.
"""

import bz2
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STRETCH = 1 << 20
BLOCK_MAGIC = 0x314159265359
END_MAGIC = 0x177245385090
MAGIC_BITS = 48
CHECKSUM_BITS = 32
# What 900 kB can be at most after compression; further apart, a magic number between two is damaged.
LONGEST_BLOCK_BITS = 8 * 1_000_000


@dataclass(frozen=True, slots=True)
class Piece:
    """`data` of the file from position `start` up to `end`, or None where it is damaged. `read`: bytes of the file."""

    start: int
    end: int
    data: bytes | None
    read: int


def read_pieces(path: Path, start: int = 0) -> Iterator[Piece]:
    """The piece that begins at `start`, and all after it. Raises OSError.

    In a plain file a position counts bytes, and any byte may be the start. In a `.bz2` it counts bits, and
    a block starts there.
    """
    with path.open("rb") as file:
        if path.suffix == ".bz2":
            yield from _blocks(file.fileno(), start)
            return
        file.seek(start)
        while data := file.read(STRETCH):
            yield Piece(start, start + len(data), data, read=start + len(data))
            start += len(data)


def _blocks(descriptor: int, start: int) -> Iterator[Piece]:
    begin: int | None = None
    for position, is_block in _magics(descriptor, start // 8):
        if position < start:
            continue
        if begin is not None:
            yield _block(descriptor, begin, position)
        begin = position if is_block else None
    if begin is not None:  # a whole file ends its last stream: this one was cut off
        yield _block(descriptor, begin, 8 * os.fstat(descriptor).st_size)


def _magics(descriptor: int, start: int) -> Iterator[tuple[int, bool]]:
    """The bits at which a block (True) or the end of a stream (False) is announced, from byte `start` on.

    By chance the bits inside a block announce one once in 2^48 bits, a few times in ten thousand copies of
    Wikipedia; that block is then taken for damaged.
    """
    needles = [
        (inner, shift, magic)
        for magic in (BLOCK_MAGIC, END_MAGIC)
        for shift in range(8)
        # the 5 bytes that the magic number fills wholly when it begins `shift` bits into a byte
        for inner in [(magic >> (shift or 8) & (1 << 40) - 1).to_bytes(5)]
    ]
    overlap = 6
    while data := os.pread(descriptor, STRETCH + overlap, start):
        found = []
        for inner, shift, magic in needles:
            at = data.find(inner)
            while at >= 0:
                first = at - 1 if shift else at
                window = int.from_bytes(data[max(first, 0) : first + 7].ljust(7, b"\0"))
                if 0 <= first < STRETCH and window >> (8 - shift) & (1 << MAGIC_BITS) - 1 == magic:
                    found.append((8 * (start + first) + shift, magic == BLOCK_MAGIC))
                at = data.find(inner, at + 1)
        yield from sorted(found)
        start += STRETCH


def _block(descriptor: int, begin: int, end: int) -> Piece:
    """The block in bits `begin` to `end`, made a stream of its own: header, block, end, checksum of all blocks."""
    data: bytes | None = None
    n_bits = end - begin
    if MAGIC_BITS + CHECKSUM_BITS < n_bits <= LONGEST_BLOCK_BITS:
        first, last = begin // 8, (end + 7) // 8
        bits = int.from_bytes(os.pread(descriptor, last - first, first)) >> 8 * last - end & (1 << n_bits) - 1
        # the checksum of a stream with one block is the block's own, which follows its magic number
        checksum = bits >> n_bits - MAGIC_BITS - CHECKSUM_BITS & (1 << CHECKSUM_BITS) - 1
        stream = (bits << MAGIC_BITS | END_MAGIC) << CHECKSUM_BITS | checksum
        padding = -(n_bits + MAGIC_BITS + CHECKSUM_BITS) % 8
        n_bytes = (n_bits + MAGIC_BITS + CHECKSUM_BITS + padding) // 8
        decompressor = bz2.BZ2Decompressor()
        try:
            data = decompressor.decompress(b"BZh9" + (stream << padding).to_bytes(n_bytes))
        except OSError:
            data = None
        if not decompressor.eof:
            data = None
    return Piece(begin, end, data, read=end // 8)
