"""Is an id there twice? Asked of more ids than fit in memory as strings: 8 bytes of each, and exact all the same."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.errors import SourceInvalid

HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Counted:
    """How many passages there are, and of how many different titles."""

    n_passages: int
    n_articles: int


def check_unique(
    source: str, passages: Callable[[], Iterator[Passage]], report: Callable[[int], None] | None = None
) -> Counted:
    """Read all passages; once more where two hashes are the same. `report` is told each passage's row.

    Raises SourceInvalid for the first passage whose id was there before. Takes 8 bytes a passage and up to 8 an
    article, twice while they are sorted.
    """
    ids, titles = bytearray(), bytearray()
    title = None
    for row, passage in enumerate(passages()):
        ids += _hash(passage.passage_id)
        if passage.title != title:
            # passages of an article stand together, as a rule
            title = passage.title
            titles += _hash(title)
        if report is not None:
            report(row)
    hashes = np.frombuffer(ids, dtype=np.uint64)  # (N,)
    again = _repeated(hashes)  # (R,)
    if again.size:
        _find_the_repeated(source, passages, {number.tobytes() for number in again})
    return Counted(len(hashes), len(np.unique(np.frombuffer(titles, dtype=np.uint64))))


def _hash(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=HASH_BYTES).digest()


def _repeated(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The values that are there more than once: (R,)."""
    in_order = np.sort(hashes)  # (N,)
    return np.unique(in_order[1:][in_order[1:] == in_order[:-1]])


def _find_the_repeated(source: str, passages: Callable[[], Iterator[Passage]], suspects: set[bytes]) -> None:
    """Two ids may have one hash by chance: only the ids themselves can say."""
    seen: set[str] = set()
    for row, passage in enumerate(passages()):
        if _hash(passage.passage_id) not in suspects:
            continue
        if passage.passage_id in seen:
            raise SourceInvalid(source=source, reason=f"passage id {passage.passage_id!r} comes again in row {row}")
        seen.add(passage.passage_id)
