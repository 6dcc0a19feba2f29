"""The vectors beside a lossy index."""

from pathlib import Path

import numpy as np
import pytest

from openbook.indexing.array_writing import write_vectors
from openbook.storage import vectors
from openbook.storage.vectors import VectorFile


@pytest.mark.parametrize(("row_s", "times"), [(0.0, 4), (1e9, 1)])
def test_rows_are_read_ahead_while_their_readers_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_s: float, times: int
) -> None:
    given = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float16).astype(np.float32)
    write_vectors(tmp_path / "vectors.npy", given, "v")
    file = VectorFile.open(tmp_path / "vectors.npy", shape=(50, 8), version="v")
    asked: list[list[int]] = []
    monkeypatch.setattr(vectors, "COLD_ROW_S", row_s)
    monkeypatch.setattr(vectors, "READ_AHEAD_ROWS", 3)
    monkeypatch.setattr(vectors, "read_ahead", lambda array, rows: asked.append(rows.tolist()))
    for _ in range(4):
        np.testing.assert_array_equal(file.take([7, 0, 49]), given[[7, 0, 49]])
    assert asked == [[7, 0, 49]] * times
    # more than any search proposes
    assert len(file.take(range(4))) == 4
    assert len(asked) == times
    file.close()
