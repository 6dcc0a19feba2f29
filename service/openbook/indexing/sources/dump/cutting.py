"""Pages cut out of the bytes of a dump, without trusting that they are whole.

In a dump every `<` of a page's own text is written `&lt;`, so `<page>` and `</page>` occur only around pages. They are
looked for as bytes: damage inside one page cannot reach the next.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openbook.indexing.sources.dump.pieces import Piece

OPEN, CLOSE = b"<page>", b"</page>"
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
        self._read = 0

    def pages(self, pieces: Iterable[Piece], largest: int = LARGEST_PAGE) -> Iterator[PageBytes]:
        inside = oversized = False
        scanned = 0
        for piece in pieces:
            self._read = piece.read
            if piece.data is None:
                # a page that has begun is lost with the block, and the next one begins somewhere after it
                self._forget()
                inside = oversized = False
                scanned = 0
                yield PageBytes(None, "damaged", mark=f"{piece.end}:0", read=self._read)
                continue
            self._append(piece)
            while True:
                if not inside:
                    begin = self._buffer.find(OPEN, scanned)
                    if begin < 0:
                        self._drop(max(len(self._buffer) - len(OPEN) + 1, 0))
                        scanned = 0
                        break
                    self._drop(begin)
                    inside, scanned = True, len(OPEN)
                close = self._buffer.find(CLOSE, scanned)
                following = self._buffer.find(OPEN, scanned, close if close >= 0 else len(self._buffer))
                if close < 0 and following < 0:
                    scanned = max(len(self._buffer) - len(CLOSE) + 1, scanned)
                    if oversized or scanned > largest:
                        oversized = True
                        self._drop(scanned)
                        scanned = 0
                    break
                end = following if following >= 0 else close + len(CLOSE)
                defect = "too large" if oversized or end > largest else "broken" if following >= 0 else ""
                data = None if defect else bytes(memoryview(self._buffer)[:end])
                yield PageBytes(data, defect, mark=self._mark(end), read=self._read)
                self._drop(end)
                inside = oversized = False
                scanned = 0
        if inside:
            yield PageBytes(None, "cut off", mark=self._mark(len(self._buffer)), read=self._read)

    def _append(self, piece: Piece) -> None:
        data = piece.data or b""
        self._starts.append((self._base + len(self._buffer) - self._offset, piece.start))
        self._buffer += memoryview(data)[self._offset :]
        self._offset = 0

    def _drop(self, n: int) -> None:
        del self._buffer[:n]  # CPython moves the beginning of a bytearray, not what follows
        self._base += n
        while len(self._starts) > 1 and self._starts[1][0] <= self._base:
            self._starts.popleft()

    def _forget(self) -> None:
        self._buffer.clear()
        self._starts.clear()
        self._offset = 0

    def _mark(self, at: int) -> str:
        """The mark of byte `at` of the buffer."""
        count = self._base + at
        first, start = next(entry for entry in reversed(self._starts) if entry[0] <= count)
        return f"{start}:{count - first}"
