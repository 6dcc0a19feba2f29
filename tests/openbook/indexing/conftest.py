from pathlib import Path

import pytest

from openbook.indexing.passage_encoder import PassageEncoder


@pytest.fixture
def encoder(tiny_encoder: Path) -> PassageEncoder:
    """A passage encoder that is real, and so small that it costs nothing."""
    return PassageEncoder.load(tiny_encoder)
