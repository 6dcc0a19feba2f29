"""A FAISS file with passages and their vectors: adopted, continued after an interruption, or refused."""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from openbook.entities import IndexInfo
from openbook.errors import BuildDiffers
from openbook.indexing.building.embedding import NamedEncoder
from openbook.indexing.faiss_adopting import adoptable
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.plugins.ready.dataset_folder import DatasetFolder
from openbook.plugins.ready.engine import Ready
from openbook.storage.index_store import IndexStore
from tests.openbook.indexing.builds import Seen, interrupt
from tests.openbook.plugins.ready.test_imports import PASSAGES, VECTORS, D, N, dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As wiki_dpr's, with its graph over 8-bit codes."""
    return dataset(tmp_path / "wiki_dpr", "stream")


def graph(folder: Path, n_rows: int = N) -> Path:
    index: Any = faiss.index_factory(D, "HNSW8,SQ8", faiss.METRIC_INNER_PRODUCT)
    index.train(VECTORS)
    index.add(VECTORS[:n_rows])
    faiss.write_index(index, str(folder / "HNSW8_SQ8-IP.faiss"))
    return folder / "HNSW8_SQ8-IP.faiss"


def take_in(store: IndexStore, folder: Path, file: Path | None, report: Seen | None = None) -> IndexInfo:
    source = DatasetFolder(folder)
    encoder = NamedEncoder("facebook/dpr", "", source.dimension)
    adopted = None if file is None else adoptable(file, source.dimension)
    options = BuildOptions(index="auto", engine=Ready(source), adopted=adopted)
    return build_index(store, "v", source, encoder, options, report=report).info


def test_a_dataset_with_its_faiss_file_is_a_version_with_exact_scores(store: IndexStore, folder: Path) -> None:
    file = graph(folder)
    info = take_in(store, folder, file)
    assert (info.index_type, info.factory) == ("factory", "HNSW8,SQ8")
    assert (store.folder / "v" / "index.faiss").read_bytes() == file.read_bytes()
    store.verify("v")
    snapshot = store.open("v")
    snapshot.warm()
    assert snapshot.passages(range(N)) == tuple(PASSAGES)
    np.testing.assert_array_equal(snapshot.vectors(range(N)), VECTORS.astype(np.float16).astype(np.float32))
    assert snapshot.search(VECTORS[4:5], 1, parameters={"candidates": N})[0, 0] == int(np.argmax(VECTORS @ VECTORS[4]))


@pytest.mark.parametrize("stage", ["embed", "probe", "checksum"])
def test_an_import_that_was_stopped_continues(store: IndexStore, folder: Path, stage: str) -> None:
    file = graph(folder)
    with pytest.raises(KeyboardInterrupt):
        take_in(store, folder, file, Seen(stage, interrupt))
    assert store.versions() == ()
    with pytest.raises(BuildDiffers, match=r"index_file: .*IP\.faiss, now none"):
        take_in(store, folder, None)
    again = Seen()
    assert take_in(store, folder, file, again).factory == "HNSW8,SQ8"
    assert not again.done("read")
    store.verify("v")
    assert [path.name for path in store.folder.iterdir()] == ["v"]
