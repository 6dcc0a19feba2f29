"""Passages as digests: so that two versions are compared, and a text is found again, without holding either."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Passage

DIGEST_BYTES = 16
REPORT_EVERY = 4096

# (N,) of 16 bytes each. NumPy drops zeros at the end of one that is taken out, and compares all 16 bytes.
Digests = NDArray[np.bytes_]


def digest(*values: object) -> bytes:
    """A 16-byte BLAKE2b digest of the values."""
    # repr is unambiguous of text, numbers, tuples and passages, and takes what UTF-8 cannot hold
    return blake2b(repr(values).encode(), digest_size=DIGEST_BYTES).digest()


def text_digest(passage: Passage) -> bytes:
    """Of what PassageEncoder reads, and nothing else: two passages with one digest have one vector."""
    # DPR's encoder reads the title, others the heading
    return digest(passage.title, passage.heading, passage.text)


def whole_digest(passage: Passage) -> bytes:
    """Of everything that a version keeps of a passage."""
    # where a field is declared as a number, 3 comes back as 3.0
    metadata = tuple(
        (name, int(value) if isinstance(value, float) and value.is_integer() else value)
        for name, value in passage.metadata
    )
    return digest(replace(passage, metadata=metadata) if metadata else passage)


@dataclass(frozen=True, slots=True)
class Contents:
    """Of each passage in its order the digest of its id, of what is embedded, and of all it has: (N,) each."""

    ids: Digests
    texts: Digests
    wholes: Digests

    @classmethod
    def of(cls, passages: Iterable[Passage], report: Callable[[int], None] | None = None) -> "Contents":
        """`report` receives how many passages have been read."""
        ids, texts, wholes, n_passages = bytearray(), bytearray(), bytearray(), 0
        for n_passages, passage in enumerate(passages, start=1):
            ids += digest(passage.passage_id)
            texts += text_digest(passage)
            wholes += whole_digest(passage)
            if report is not None and n_passages % REPORT_EVERY == 0:
                report(n_passages)
        return cls(as_digests(ids), as_digests(texts), as_digests(wholes))

    def __len__(self) -> int:
        return len(self.ids)


class DigestTable:
    """In which row a digest stands."""

    def __init__(self, digests: Digests) -> None:
        self._order = np.argsort(digests, kind="stable")  # (N,)
        self._sorted = digests[self._order]  # (N,)

    def rows(self, wanted: Digests) -> NDArray[np.int64]:
        """The first row of each, or -1: (n,)."""
        if not len(self._sorted):
            return np.full(len(wanted), -1, dtype=np.int64)
        places = np.searchsorted(self._sorted, wanted)  # (n,)
        places[places == len(self._sorted)] = 0
        return np.where(self._sorted[places] == wanted, self._order[places], -1)


def as_digests(content: bytes | bytearray) -> Digests:
    return np.frombuffer(content, dtype=f"S{DIGEST_BYTES}")
