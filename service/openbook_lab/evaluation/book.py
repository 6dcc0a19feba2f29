"""The book that questions are asked of: all their paragraphs, and more passages beside them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.errors import IndexIncompatible, SourceInvalid
from openbook.indexing.bm25_publish import add_bm25
from openbook.indexing.index_builder import Progress, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.sources import PassageBatch, PassageSource, open_source
from openbook.indexing.sources.source import rows_before
from openbook.indexing.splitting import split_words
from openbook.rag.checkpoint import Checkpoint, choose_dtype
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.answer_log import digest_of


def write_book(questions: Sequence[Question], files: Sequence[Path]) -> tuple[Passage, ...]:
    """The questions' paragraphs, each once and in 100-word pieces, then the passages of the files in their order.

    Raises SourceInvalid for a file that cannot be read, and for a book without passages.
    """
    paragraphs = dict.fromkeys((question.title, question.context) for question in questions if question.context)
    passages: list[Passage] = []
    counted: Counter[str] = Counter()
    for title, context in paragraphs:
        for text in split_words(context):
            passages.append(Passage(f"paragraphs/{title}#{counted[title]}", title, text))
            counted[title] += 1
    for number, file in enumerate(files):
        passages += (
            replace(passage, passage_id=f"{number}/{passage.passage_id}")
            for passage in open_source(str(file)).passages()
        )
    if not passages:
        raise SourceInvalid(source="questions and passages", reason="they hold nothing that could be read")
    return tuple(passages)


class BookSource(PassageSource):
    """The book as a source of an index. A mark is the number of passages before it."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        super().__init__("paragraphs of questions, and passages beside them", None)
        self._passages = passages

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        for number in range(rows_before(after, self.name), len(self._passages)):
            yield PassageBatch((self._passages[number],), mark=str(number + 1), read=number + 1)


@contextmanager
def open_book(
    book: Sequence[Passage],
    work: Path,
    *,
    asked_by: Sequence[Checkpoint],
    encoder_folder: Path | None = None,
    progress: Progress | None = None,
    bm25: bool = False,
) -> Iterator[IndexSnapshot]:
    """The book's index in `work`, built unless it is there; with `bm25` it has BM25's files.

    Its name is a digest of passages and encoder, so that another book never gets these vectors. Raises
    IndexIncompatible, before anything is built, for a checkpoint that expects another passage encoder.
    """
    store = IndexStore(work / "indexes")
    device = str(asked_by[0].device) if asked_by else "cpu"
    encoder = PassageEncoder.load(encoder_folder, device=device, dtype=choose_dtype("auto", device))
    for checkpoint in asked_by:
        expected = checkpoint.facts.encoder_fingerprint
        if expected not in (None, encoder.fingerprint):
            raise IndexIncompatible(
                version="of the evaluation", index_encoder=encoder.fingerprint, checkpoint_encoder=expected
            )
    texts = (f"{passage.passage_id}\n{passage.title}\n{passage.heading}\n{passage.text}" for passage in book)
    version = f"book-{digest_of(encoder.fingerprint, *texts)}"
    if version not in store.versions():
        build_index(store, version, BookSource(book), encoder, report=progress)
    if bm25 and store.info(version).bm25 is None:
        add_bm25(store, version)
    with closing(store.open(version)) as snapshot:
        yield snapshot


def frozen_vectors(
    questions: Sequence[str], learned: NDArray[np.float32], encoder_folder: Path | None = None
) -> NDArray[np.float32]:
    """The passage encoder's own vectors of the questions: (Q, d), as long on average as the `learned` ones (Q, d).

    The length scales the prior: with another length the temperature would differ too. It does not change which
    passages are found.
    """
    encoder = PassageEncoder.load(encoder_folder)
    vectors = encoder.encode_texts(questions)  # (Q, d)
    scale = np.linalg.norm(learned, axis=1).mean() / max(np.linalg.norm(vectors, axis=1).mean(), 1e-9)
    return np.asarray(vectors * scale, dtype=np.float32)
