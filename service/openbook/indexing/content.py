"""What may go into a version: looked at before anything is written, or as it is written."""

from array import array
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.storage.manifest import is_date
from openbook.storage.passages import PassageFile
from openbook.storage.vectors import slices


def check_description(version: str, snapshot_date: str | None) -> None:
    """Raise SourceInvalid for what no manifest can say."""
    if snapshot_date is not None and not is_date(snapshot_date):
        raise SourceInvalid(source=version, reason=f"{snapshot_date!r} is no date such as 2018-12-20")


def check_shape(version: str, vectors: NDArray[np.float32]) -> None:
    """Raise SourceInvalid for what is not one vector for each passage."""
    if vectors.ndim != 2 or vectors.shape[1] < 1:
        raise SourceInvalid(source=version, reason=f"vectors of shape {vectors.shape} do not fit passages")


def check_finite(version: str, vectors: NDArray[np.float32]) -> None:
    """Raise SourceInvalid for a vector that is not finite; reads all of them, a slice at a time."""
    for part in slices(vectors.shape[0]):
        strange = np.flatnonzero(~np.isfinite(vectors[part]).all(axis=1))
        if strange.size:
            raise SourceInvalid(source=version, reason=f"the vector of row {part.start + strange[0]} is not finite")


class PassageCheck:
    """Counts passages as they go by and remembers eight bytes of each id, so that those of millions fit in memory."""

    def __init__(self, version: str) -> None:
        self.n_passages = 0
        self._version = version
        self._hashes = array("q")

    def over(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        for passage in passages:
            self._hashes.append(hash(passage.passage_id))
            self.n_passages += 1
            yield passage

    def check(self, vectors: NDArray[np.float32], written: PassageFile) -> None:
        """Raise SourceInvalid where there is no passage, where vectors do not fit them, or where an id comes again."""
        if not self.n_passages:
            raise SourceInvalid(source=self._version, reason="there is no passage to index")
        if vectors.shape[0] != self.n_passages:
            raise SourceInvalid(
                source=self._version, reason=f"vectors of shape {vectors.shape} do not fit {self.n_passages} passages"
            )
        hashes = np.frombuffer(self._hashes, dtype=np.int64)  # (N,)
        order = np.argsort(hashes, kind="stable")  # (N,)
        again = hashes[order[1:]] == hashes[order[:-1]]  # (N - 1,)
        alike = np.unique(np.concatenate([order[1:][again], order[:-1][again]]))  # (a,), rows in order
        seen: set[str] = set()
        for row in alike.tolist():
            passage_id = written.take([row])[0].passage_id
            if passage_id in seen:
                raise SourceInvalid(source=self._version, reason=f"passage id {passage_id!r} comes again in row {row}")
            seen.add(passage_id)
