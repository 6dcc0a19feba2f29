"""What may go into a version, looked at before anything is written."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.entities import Passage
from service.errors import SourceInvalid
from service.storage.manifest import is_date


def check_content(
    version: str, vectors: NDArray[np.float32], passages: Sequence[Passage], snapshot_date: str | None
) -> None:
    """Raise SourceInvalid for passages and vectors that no index can hold."""
    if snapshot_date is not None and not is_date(snapshot_date):
        raise SourceInvalid(source=version, reason=f"{snapshot_date!r} is no date such as 2018-12-20")
    if not passages:
        raise SourceInvalid(source=version, reason="there is no passage to index")
    if vectors.ndim != 2 or vectors.shape[0] != len(passages) or vectors.shape[1] < 1:
        raise SourceInvalid(
            source=version, reason=f"vectors of shape {vectors.shape} do not fit {len(passages)} passages"
        )
    strange = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if strange.size:
        raise SourceInvalid(source=version, reason=f"the vector of row {strange[0]} is not finite")
    seen: set[str] = set()
    for row, passage in enumerate(passages):
        if passage.passage_id in seen:
            raise SourceInvalid(source=version, reason=f"passage id {passage.passage_id!r} comes again in row {row}")
        seen.add(passage.passage_id)
