"""What is kept of passages: bounded, the least recently used first to go, and gone with their book."""

import gc
from pathlib import Path

import pytest
import torch
from torch import Tensor

from openbook.entities import AnswerOptions, KeptStats, Passage
from openbook.rag.causal_generator import CausalGenerator
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.rag.kept_passages import KeptPassages
from openbook.storage.index_store import IndexStore

BYTES = 100


class Book:
    """What passages come from."""


def read(passages: list[str]) -> list[Tensor]:
    return [torch.full((BYTES,), ord(passage), dtype=torch.uint8) for passage in passages]


def test_a_passage_is_read_once_and_given_each_time() -> None:
    kept, book = KeptPassages(10 * BYTES), Book()
    asked: list[list[str]] = []

    def counted(passages: list[str]) -> list[Tensor]:
        asked.append(passages)
        return read(passages)

    first = kept.read(book, ["a", "b", "a"], counted)
    second = kept.read(book, ["b", "c"], counted)
    assert [int(one[0]) for one in (*first, *second)] == list(map(ord, "ababc"[:2] + "a" + "bc"))
    assert asked == [["a", "b"], ["c"]]
    assert kept.stats() == KeptStats(hits=1, misses=3, bytes=3 * BYTES)


def test_the_least_recently_used_go_first() -> None:
    kept, book = KeptPassages(2 * BYTES), Book()
    kept.read(book, ["a", "b"], read)
    kept.read(book, ["a"], read)
    kept.read(book, ["c"], read)
    before = kept.stats()
    assert before.bytes == 2 * BYTES
    kept.read(book, ["a", "c"], read)
    assert kept.stats().hits == before.hits + 2
    kept.read(book, ["b"], read)
    assert kept.stats().misses == before.misses + 1


def test_each_book_has_its_own_and_takes_it_along() -> None:
    kept, book, other = KeptPassages(BYTES), Book(), Book()
    kept.read(book, ["a"], read)
    kept.read(other, ["a"], read)
    assert kept.stats() == KeptStats(hits=0, misses=2, bytes=2 * BYTES)
    assert (kept.growth(3), kept.growth(2), kept.growth(1)) == (BYTES, 0, 0)
    del book
    gc.collect()
    assert kept.stats().bytes == BYTES
    kept.read(other, ["a"], read)
    assert kept.stats().hits == 1


@pytest.mark.parametrize("max_bytes", [0, BYTES - 1])
def test_nothing_is_kept_that_does_not_fit(max_bytes: int) -> None:
    kept, book = KeptPassages(max_bytes), Book()
    for _ in range(2):
        kept.read(book, ["a"], read)
    kept.read(None, ["a"], read)
    assert kept.stats() == KeptStats(hits=0, misses=3, bytes=0)


def test_a_kept_passage_takes_its_own_bytes_and_no_others(tiny_causal_checkpoint: Path) -> None:
    """Passages are read together, padded to the longest; one that is kept must not hold the memory of all."""
    generator = CausalGenerator(load_checkpoint(tiny_causal_checkpoint), passage_bytes=1 << 24)
    book = Book()
    passages = [Passage(str(words), "peru", "the sea " * words) for words in (1, 2, 3, 40)]
    read = generator.encode(["who"], [passages], book).passages
    held = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in read}
    kept = generator.kept()
    assert kept.bytes == sum(tensor.nbytes for tensor in read)
    assert sum(held.values()) == kept.bytes
    again = generator.encode(["what"], [passages], book).passages
    assert [tensor.data_ptr() for tensor in again] == [tensor.data_ptr() for tensor in read]


def test_a_closed_snapshot_leaves_nothing_behind(tiny_causal_checkpoint: Path, tiny_indexes: Path) -> None:
    engine = RagEngine(load_checkpoint(tiny_causal_checkpoint), passage_bytes=1 << 20)
    snapshot = IndexStore(tiny_indexes).open("tiny-2016")
    options = AnswerOptions(n_docs=2, max_new_tokens=2)
    for _ in range(2):
        engine.answer(["who is the president of peru ?"], snapshot, options)
    stats = engine.kept()
    assert stats is not None
    assert (stats.hits, stats.misses) == (2, 2)
    assert stats.bytes > 0
    snapshot.close()
    del snapshot
    gc.collect()
    after = engine.kept()
    assert after is not None
    assert after.bytes == 0
