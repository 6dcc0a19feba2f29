"""Whether every passage id of a version is there once."""

from array import array
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from openbook.entities import Passage
from openbook.errors import SourceInvalid


class UniqueIds:
    """Counts passages and remembers eight bytes of each id, so that millions of ids fit in memory."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._hashes = array("q")

    def __len__(self) -> int:
        return len(self._hashes)

    def over(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """The passages as they are, remembered."""
        for passage in passages:
            self._hashes.append(hash(passage.passage_id))
            yield passage

    def check(self, again: Callable[[], Iterable[Passage]]) -> None:
        """Raise SourceInvalid for no passage, and for the first one whose id was there before.

        Reads the passages `again` only where two ids have one hash.
        """
        if not self._hashes:
            raise SourceInvalid(source=self._source, reason="there is no passage to index")
        hashes = np.sort(np.frombuffer(self._hashes, dtype=np.int64))  # (N,)
        suspects = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
        seen: set[str] = set()
        for row, passage in enumerate(again() if suspects else ()):
            if hash(passage.passage_id) in suspects:
                if passage.passage_id in seen:
                    reason = f"passage id {passage.passage_id!r} comes again in row {row}"
                    raise SourceInvalid(source=self._source, reason=reason)
                seen.add(passage.passage_id)
