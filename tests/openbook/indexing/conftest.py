from pathlib import Path

import pytest

from openbook.indexing.passage_encoder import PassageEncoder
from openbook.storage.index_store import IndexStore


@pytest.fixture(scope="session")
def encoder(tiny_encoder: Path) -> PassageEncoder:
    """A passage encoder that is real, and so small that it costs nothing."""
    return PassageEncoder.load(tiny_encoder)


@pytest.fixture
def store(tmp_path: Path) -> IndexStore:
    return IndexStore(tmp_path / "indexes")
