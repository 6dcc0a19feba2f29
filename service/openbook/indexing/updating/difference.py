"""What differs between the passages of two versions, or of a version and a source."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openbook.indexing.updating.contents import Contents, DigestTable


@dataclass(frozen=True, slots=True)
class Difference:
    """From `before` to `after`, as masks: `removed` (N,) of before; the others (M,) of after.

    A passage is `added` whose id is new. It is `reworded` where its heading or its text is another, so that it has
    another vector, and `relabelled` where only its other fields are. `rows` (M,) holds each passage's row in before,
    or -1.
    """

    rows: NDArray[np.int64]
    added: NDArray[np.bool_]
    reworded: NDArray[np.bool_]
    relabelled: NDArray[np.bool_]
    removed: NDArray[np.bool_]

    @classmethod
    def between(cls, before: Contents, after: Contents) -> "Difference":
        """Each id must stand once on either side."""
        rows = DigestTable(before.ids).rows(after.ids)  # (M,)
        known = rows >= 0
        removed = np.ones(len(before), dtype=np.bool_)  # (N,)
        removed[rows[known]] = False
        another_text, another_whole = np.zeros((2, len(after)), dtype=np.bool_)
        another_text[known] = before.texts[rows[known]] != after.texts[known]
        another_whole[known] = before.wholes[rows[known]] != after.wholes[known]
        return cls(rows, ~known, another_text, another_whole & ~another_text, removed)

    @property
    def changed(self) -> NDArray[np.bool_]:
        """Passages whose id was there before, with anything else: (M,)."""
        return self.reworded | self.relabelled

    @property
    def differs(self) -> bool:
        return bool(self.added.any() or self.changed.any() or self.removed.any())
