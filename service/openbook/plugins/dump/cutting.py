"""Pages cut out of the bytes of a dump, without trusting that they are whole.

In a dump every `<` of a page's own text is written `&lt;`, so `<page>` and `</page>` occur only around pages. They are
looked for as bytes: damage inside one page cannot reach the next.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openbook.plugins.dump.pieces import Piece

OPEN, CLOSE = b"<page>", b"</page>"
TOKEN = re.compile(OPEN + b"|" + CLOSE)
# MediaWiki refuses wikitext above 2 MiB; escaped for XML it may grow some times over.
LARGEST_PAGE = 8 << 20


@dataclass(frozen=True, slots=True)
class PageBytes:
    """One `<page>...</page>` with the mark after it; `data` is None for a page with a `defect`."""

    data: bytes | None
    defect: str
    mark: str
    read: int


class PageCutter:
    """Cuts one run of pieces into pages. A mark is `<start of a piece>:<bytes into it>`."""

    def __init__(self, offset: int = 0) -> None:
        """`offset`: how many bytes of the first piece are passed over."""
        self._offset = offset
        self._buffer = bytearray()
        self._base = 0  # bytes dropped from the buffer since reading began
        # of the pieces in the buffer: (count of a piece's first byte, its start)
        self._starts: deque[tuple[int, int]] = deque()

    def pages(self, pieces: Iterable[Piece], largest: int = LARGEST_PAGE) -> Iterator[PageBytes]:
        inside = oversized = False
        scanned = read = 0
        for piece in pieces:
            read = piece.read
            if piece.data is None:
                # a page that has begun is lost with the block, and the next one begins somewhere after it
                self._buffer.clear()
                self._starts.clear()
                self._offset = scanned = 0
                inside = oversized = False
                yield PageBytes(None, "damaged", mark=f"{piece.end}:0", read=read)
                continue
            self._starts.append((self._base + len(self._buffer) - self._offset, piece.start))
            self._buffer += memoryview(piece.data)[self._offset :]
            self._offset = 0
            while match := TOKEN.search(self._buffer, scanned):
                begins = match[0] == OPEN
                if inside:
                    end = match.start() if begins else match.end()
                    defect = "too large" if oversized or end > largest else "broken" if begins else ""
                    data = None if defect else bytes(memoryview(self._buffer)[:end])
                    yield PageBytes(data, defect, mark=self._mark(end), read=read)
                    oversized = False
                    self._drop(end)
                else:
                    self._drop(match.start() if begins else match.end())
                inside, scanned = begins, len(OPEN) if begins else 0
            # the beginning of a token may be at the end
            scanned = max(len(self._buffer) - len(CLOSE) + 1, scanned)
            oversized = inside and (oversized or scanned > largest)
            if oversized or not inside:
                self._drop(scanned)
                scanned = 0
        if inside:
            yield PageBytes(None, "cut off", mark=self._mark(len(self._buffer)), read=read)

    def _drop(self, n: int) -> None:
        del self._buffer[:n]  # CPython moves the beginning of a bytearray, not what follows
        self._base += n
        while len(self._starts) > 1 and self._starts[1][0] <= self._base:
            self._starts.popleft()

    def _mark(self, at: int) -> str:
        """The mark of byte `at` of the buffer."""
        count = self._base + at
        first, start = next(entry for entry in reversed(self._starts) if entry[0] <= count)
        return f"{start}:{count - first}"
