"""What each way of retrieving finds for many questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from openbook.entities import PriorWeights, RetrievedPassages
from openbook.errors import NotCalibrated, SettingInvalid
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.retriever import (
    Bm25Retriever,
    DenseRetriever,
    HybridRetriever,
    QuestionEncoder,
    Retriever,
    Search,
)
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.golds import Golds
from openbook_lab.evaluation.book import frozen_vectors
from openbook_lab.evaluation.options import CLOSED_BOOK, Finding
from openbook_lab.evaluation.reader import OpenQuestion

# Passages found for each question.
CANDIDATES = 50
QUESTIONS_A_BATCH = 64


@dataclass(frozen=True, slots=True)
class RetrievalFigures:
    """The best `CANDIDATES` passages of each question, or all where an index has fewer; of a closed book none."""

    name: str
    found: tuple[RetrievedPassages, ...]
    retriever: Finding = "dense"

    def best(self, texts: Sequence[str], n_docs: int) -> list[OpenQuestion]:
        """The questions `texts`, each with the best `n_docs`; none of a closed book."""
        return [
            OpenQuestion(text, found.passages[:n_docs], found.doc_scores[:n_docs])
            for text, found in zip(texts, self.found, strict=True)
        ]

    def held(self, golds: Sequence[Golds]) -> list[list[bool]]:
        """For each passage found for each question, whether it holds an answer."""
        return [
            [of_question.stand_in(passage.text) for passage in retrieved.passages]
            for retrieved, of_question in zip(self.found, golds, strict=True)
        ]


def retrieve(
    checkpoint: Checkpoint,
    texts: Sequence[str],
    snapshot: IndexSnapshot | None,
    retriever: Finding = "dense",
    encoder_folder: Path | None = None,
) -> RetrievalFigures:
    """What this way finds for the questions `texts`, to be read by the checkpoint's generator.

    "dense" searches with the checkpoint's question encoder; "frozen" with the vectors of the passage encoder in
    `encoder_folder` (None: the packaged one). "bm25" is section 4.5 but for the generator: the paper trains one on
    what BM25 finds, this one was trained on what its own retriever found. "hybrid" weighs both as the checkpoint says.
    "closed book" finds nothing.

    Raises SettingInvalid without a `snapshot` to search, NotCalibrated for "hybrid" without weights.
    """
    name = checkpoint.name if retriever == "dense" else f"{checkpoint.name}, {retriever.replace('bm25', 'BM25')}"
    if retriever == CLOSED_BOOK:
        return RetrievalFigures(name, (RetrievedPassages((), (), ()),) * len(texts), retriever)
    if snapshot is None:
        raise SettingInvalid(setting="retriever", reason=f"{retriever} needs an index to search")
    searching: Retriever = DenseRetriever(checkpoint.facts.prior_scale)
    if retriever == "bm25":
        searching = Bm25Retriever()
    elif retriever == "hybrid":
        searching = HybridRetriever(_weights(checkpoint))
    vectors = np.empty((len(texts), 0), dtype=np.float32)  # (Q, 0)
    if searching.reads_vectors:
        encoder = QuestionEncoder(checkpoint)
        batches = [texts[first : first + QUESTIONS_A_BATCH] for first in range(0, len(texts), QUESTIONS_A_BATCH)]
        vectors = np.concatenate([encoder.encode(batch) for batch in batches])  # (Q, d)
    if retriever == "frozen":
        vectors = frozen_vectors(texts, vectors, encoder_folder)
    found = searching.search(Search(texts, vectors, snapshot, min(CANDIDATES, len(snapshot))))
    return RetrievalFigures(name, tuple(found), retriever)


def _weights(checkpoint: Checkpoint) -> PriorWeights:
    if checkpoint.facts.prior is None:
        raise NotCalibrated(checkpoint=checkpoint.name, asked="retriever 'hybrid'", fact="prior")
    return checkpoint.facts.prior
