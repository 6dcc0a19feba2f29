"""BM25 in the place of DPR, its scores the logits of p(z | x): the ablation of section 4.5 and Table 6."""

from collections.abc import Sequence

from openbook.entities import RetrievedPassages
from openbook.errors import TooManyDocs
from openbook.storage.snapshot import IndexSnapshot


class Bm25Retriever:
    """The K passages with the largest BM25 scores, and those scores. Reads words: it needs no checkpoint.

    Where fewer than K passages hold a word of the question, the rest are the first of the others in the order of
    their rows, with a doc_score of 0; a question without any word that the index knows has so a flat prior.
    """

    def retrieve(self, questions: Sequence[str], snapshot: IndexSnapshot, n_docs: int) -> list[RetrievedPassages]:
        """Raises RetrieverUnavailable where the snapshot has no files for it, TooManyDocs as DenseRetriever does."""
        bm25 = snapshot.bm25()
        if n_docs > len(snapshot):
            raise TooManyDocs(n_docs=n_docs, version=snapshot.info.version, n_passages=len(snapshot))
        found = zip(*bm25.search(questions, n_docs), strict=True)  # Q of (K,) and (K,)
        return [
            RetrievedPassages(tuple(rows.tolist()), snapshot.passages(rows.tolist()), tuple(scores.tolist()))
            for rows, scores in found
        ]
