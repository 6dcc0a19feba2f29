"""What a causal generator has read of the passages of a book, kept for the next question.

A passage stands before the question in its prompt, so its keys and values are the same for every question. The least
recently used go first. They are kept with the book: once nothing else refers to it, they are gone.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor

from openbook.entities import KeptStats

Passage = TypeVar("Passage")


class _Kept:
    def __init__(self) -> None:
        self.bytes = 0
        self.passages: OrderedDict[Any, Tensor] = OrderedDict()


class KeptPassages:
    """At most `max_bytes` of passages for each book; 0 keeps none. Safe to call from several threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._books: WeakKeyDictionary[Any, _Kept] = WeakKeyDictionary()
        self._hits = self._misses = 0

    def read(
        self, book: object | None, passages: Sequence[Passage], read: Callable[[list[Passage]], list[Tensor]]
    ) -> list[Tensor]:
        """What `read` makes of each passage; it is called once, with those that are not kept, each once."""
        found: dict[Passage, Tensor] = {}
        with self._lock:
            kept = self._books.get(book) if book is not None else None
            for passage in dict.fromkeys(passages):
                if kept is not None and passage in kept.passages:
                    kept.passages.move_to_end(passage)
                    found[passage] = kept.passages[passage]
            missing = [one for one in dict.fromkeys(passages) if one not in found]
            self._hits += len(found)
            self._misses += len(missing)
        if missing:
            found |= zip(missing, read(missing), strict=True)
            if book is not None and self._max_bytes:
                self._keep(book, {one: found[one] for one in missing})
        return [found[one] for one in passages]

    def stats(self) -> KeptStats:
        with self._lock:
            return KeptStats(self._hits, self._misses, sum(one.bytes for one in self._books.values()))

    def growth(self, books: int) -> int:
        """The bytes that may still come, where so many books are open."""
        return max(0, books * self._max_bytes - self.stats().bytes)

    def _keep(self, book: object, passages: dict[Any, Tensor]) -> None:
        with self._lock:
            kept = self._books.setdefault(book, _Kept())
            for passage, tensor in passages.items():
                if passage not in kept.passages and tensor.nbytes <= self._max_bytes:
                    kept.passages[passage] = tensor
                    kept.bytes += tensor.nbytes
            while kept.bytes > self._max_bytes:
                _, gone = kept.passages.popitem(last=False)
                kept.bytes -= gone.nbytes
