"""The book that questions are asked of, with real vectors in a real index."""

from pathlib import Path

import numpy as np
import pytest

from openbook.entities import Passage
from openbook.errors import IndexIncompatible
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.rag.checkpoint import Checkpoint, load_checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.evaluation.asked import QuestionSet
from openbook_lab.evaluation.book import open_book, write_book


def test_each_paragraph_stands_in_the_book_once_and_in_pieces_of_a_hundred_words(book: tuple[Passage, ...]) -> None:
    ids = [passage.passage_id for passage in book]
    assert ids == ["paragraphs/Peru#0", "paragraphs/Kenya#0", "paragraphs/Kenya#1", "0/1", "0/2", "0/3"]
    assert [len(passage.text.split()) for passage in book[:3]] == [33, 100, 36]


def test_a_second_opening_encodes_nothing_again_and_another_book_has_another_index(
    book: tuple[Passage, ...],
    asked: QuestionSet,
    snapshot: IndexSnapshot,
    checkpoint: Checkpoint,
    tiny_encoder: Path,
    book_work: Path,
) -> None:
    vectors = snapshot.vectors(range(len(book)))  # (N, d)
    expected = PassageEncoder.load(tiny_encoder).encode(book)  # (N, d)
    # an index may be encoded in bfloat16
    assert np.abs(vectors - expected).max() < 0.1 * np.abs(expected).max()
    with open_book(book, book_work, asked_by=[checkpoint], encoder_folder=tiny_encoder) as again:
        assert again.info == snapshot.info
    without = write_book(asked.every, [])
    with open_book(without, book_work, asked_by=[checkpoint], encoder_folder=tiny_encoder) as other:
        assert other.info.version != snapshot.info.version


def test_a_checkpoint_of_another_encoder_is_refused_before_a_build(
    book: tuple[Passage, ...], tiny_checkpoint: Path, tiny_encoder: Path, tmp_path: Path
) -> None:
    asking = [load_checkpoint(tiny_checkpoint)]
    with pytest.raises(IndexIncompatible), open_book(book, tmp_path, asked_by=asking, encoder_folder=tiny_encoder):
        pass
    assert not (tmp_path / "indexes").exists()
