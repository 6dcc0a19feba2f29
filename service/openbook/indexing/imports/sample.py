"""Are vectors that somebody brings those of the encoder that he names? A few are made again."""

from collections.abc import Callable

import numpy as np

from openbook.errors import SourceInvalid
from openbook.indexing.building.embedding import Vectors
from openbook.indexing.building.work_folder import WorkFolder
from openbook.indexing.passage_encoder import PassageEncoder

SAMPLE = 8
# Half precision, and passages that were cut at another length, move a cosine less than another encoder does.
LEAST_COSINE = 0.98
LARGEST_RATIO = 1.05


def same_vectors(encoder: PassageEncoder, name: str) -> Callable[[WorkFolder, int, Vectors], None]:
    """A look at the first shard of an import. It raises SourceInvalid where the encoder makes other vectors."""

    def check(work: WorkFolder, number: int, vectors: Vectors) -> None:
        if number:
            return
        if vectors.shape[1] != encoder.dimension:
            raise SourceInvalid(
                source=name, reason=f"{vectors.shape[1]} dimensions, where {encoder.name} makes {encoder.dimension}"
            )
        rows = np.unique(np.linspace(0, len(vectors) - 1, SAMPLE, dtype=np.int64))  # (s,)
        passages = work.read_shard(0)
        made = encoder.encode([passages[row] for row in rows])  # (s, d)
        given = vectors[rows]  # (s, d)
        lengths = np.linalg.norm(made, axis=1), np.linalg.norm(given, axis=1)  # (s,) each
        cosines = (made * given).sum(axis=1) / np.maximum(lengths[0] * lengths[1], 1e-12)  # (s,)
        ratios = lengths[1] / np.maximum(lengths[0], 1e-12)  # (s,)
        if cosines.min() < LEAST_COSINE or ratios.max() > LARGEST_RATIO or ratios.min() < 1 / LARGEST_RATIO:
            raise SourceInvalid(
                source=name,
                reason=f"its vectors are not those of {encoder.name}: of {len(rows)} that were made again the smallest "
                f"cosine is {cosines.min():.3f}, the lengths are {ratios.min():.3f} to {ratios.max():.3f} times theirs",
            )

    return check
